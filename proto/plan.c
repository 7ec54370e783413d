#include "proto/plan.h"

#include "base/alloc.h"

#include <stdlib.h>

/* Room for one more element; doubles, so that a steady state stops allocating. */
static void *grow(void *array, uint32_t n, uint32_t *cap, size_t size)
{
	if (n < *cap)
		return array;
	*cap = *cap ? *cap * 2 : 32;
	return xrealloc(array, *cap, size);
}

#define ADD(p, array, n, cap)                                                                                \
	((p)->array = grow((p)->array, (p)->n, &(p)->cap, sizeof *(p)->array), &(p)->array[(p)->n++])

void plan_reset(struct plan *p)
{
	p->epoch = p->number = 0;
	p->n_drop = p->n_seqs = p->n_forks = p->n_sets = p->n_tables = 0;
	p->n_swap_out = p->n_swap_in = p->n_copies = 0;
	p->n_runs = p->n_rows = p->n_samples = 0;
}

void plan_fini(struct plan *p)
{
	free(p->drop);
	free(p->seqs);
	free(p->forks);
	free(p->sets);
	free(p->tables);
	free(p->swap_out);
	free(p->swap_in);
	free(p->copies);
	free(p->runs);
	*p = (struct plan){0};
}

uint32_t *plan_add_drop(struct plan *p)
{
	return ADD(p, drop, n_drop, cap_drop);
}

struct plan_seq *plan_add_seq(struct plan *p)
{
	return ADD(p, seqs, n_seqs, cap_seqs);
}

struct plan_fork *plan_add_fork(struct plan *p)
{
	return ADD(p, forks, n_forks, cap_forks);
}

struct plan_set *plan_add_set(struct plan *p)
{
	return ADD(p, sets, n_sets, cap_sets);
}

struct plan_table *plan_add_table(struct plan *p)
{
	return ADD(p, tables, n_tables, cap_tables);
}

struct plan_pair *plan_add_swap_out(struct plan *p)
{
	return ADD(p, swap_out, n_swap_out, cap_swap_out);
}

struct plan_pair *plan_add_swap_in(struct plan *p)
{
	return ADD(p, swap_in, n_swap_in, cap_swap_in);
}

struct plan_pair *plan_add_copy(struct plan *p)
{
	return ADD(p, copies, n_copies, cap_copies);
}

struct plan_run *plan_add_run(struct plan *p)
{
	return ADD(p, runs, n_runs, cap_runs);
}

void result_reset(struct result *r)
{
	r->epoch = r->number = 0;
	r->step_us = 0;
	r->n_tokens = r->n_logprobs = r->n_top = 0;
}

void result_fini(struct result *r)
{
	free(r->tokens);
	free(r->logprobs);
	free(r->top_ids);
	free(r->top_logprobs);
	*r = (struct result){0};
}

void result_add_token(struct result *r, uint32_t token)
{
	*ADD(r, tokens, n_tokens, cap_tokens) = token;
}

struct result_logprob *result_add_logprob(struct result *r)
{
	return ADD(r, logprobs, n_logprobs, cap_logprobs);
}

void result_add_top(struct result *r, uint32_t id, float logprob)
{
	r->top_logprobs = grow(r->top_logprobs, r->n_top, &r->cap_top_logprobs, sizeof *r->top_logprobs);
	r->top_ids = grow(r->top_ids, r->n_top, &r->cap_top_ids, sizeof *r->top_ids);
	r->top_ids[r->n_top] = id;
	r->top_logprobs[r->n_top++] = logprob;
}
