#include "proto/plan.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>

void plan_reset(struct plan *p)
{
	p->epoch = p->number = 0;
	p->n_kinds = 0;
	p->n_drop = p->n_drop_constraints = p->n_constraints = p->n_seqs = p->n_forks = p->n_sets =
		p->n_tables = 0;
	p->n_swap_out = p->n_swap_in = p->n_copies = 0;
	p->n_runs = p->n_rows = p->n_samples = 0;
}

void plan_fini(struct plan *p)
{
	free(p->drop);
	free(p->drop_constraints);
	free(p->constraints);
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
	array_grow(p->drop, p->cap_drop, p->n_drop + 1);
	return &p->drop[p->n_drop++];
}

uint32_t *plan_add_drop_constraint(struct plan *p)
{
	array_grow(p->drop_constraints, p->cap_drop_constraints, p->n_drop_constraints + 1);
	return &p->drop_constraints[p->n_drop_constraints++];
}

struct plan_constraint *plan_add_constraint(struct plan *p)
{
	array_grow(p->constraints, p->cap_constraints, p->n_constraints + 1);
	return &p->constraints[p->n_constraints++];
}

struct plan_seq *plan_add_seq(struct plan *p)
{
	array_grow(p->seqs, p->cap_seqs, p->n_seqs + 1);
	return &p->seqs[p->n_seqs++];
}

struct plan_fork *plan_add_fork(struct plan *p)
{
	array_grow(p->forks, p->cap_forks, p->n_forks + 1);
	return &p->forks[p->n_forks++];
}

struct plan_set *plan_add_set(struct plan *p)
{
	array_grow(p->sets, p->cap_sets, p->n_sets + 1);
	return &p->sets[p->n_sets++];
}

struct plan_table *plan_add_table(struct plan *p)
{
	array_grow(p->tables, p->cap_tables, p->n_tables + 1);
	return &p->tables[p->n_tables++];
}

struct plan_pair *plan_add_swap_out(struct plan *p)
{
	array_grow(p->swap_out, p->cap_swap_out, p->n_swap_out + 1);
	return &p->swap_out[p->n_swap_out++];
}

struct plan_pair *plan_add_swap_in(struct plan *p)
{
	array_grow(p->swap_in, p->cap_swap_in, p->n_swap_in + 1);
	return &p->swap_in[p->n_swap_in++];
}

struct plan_pair *plan_add_copy(struct plan *p)
{
	array_grow(p->copies, p->cap_copies, p->n_copies + 1);
	return &p->copies[p->n_copies++];
}

struct plan_run *plan_add_run(struct plan *p)
{
	array_grow(p->runs, p->cap_runs, p->n_runs + 1);
	return &p->runs[p->n_runs++];
}

void result_reset(struct result *r)
{
	r->epoch = r->number = 0;
	r->step_us = 0;
	r->n_tokens = r->n_logprobs = r->n_top = r->n_failed = r->n_held = 0;
	r->n_pools = r->n_pool_words = r->n_counts = r->n_mus = 0;
}

void result_fini(struct result *r)
{
	free(r->tokens);
	free(r->counts);
	free(r->mus);
	free(r->logprobs);
	free(r->top_ids);
	free(r->top_logprobs);
	free(r->failed);
	free(r->held);
	free(r->pools);
	free(r->pool_words);
	*r = (struct result){0};
}

void result_add_token(struct result *r, uint32_t token)
{
	array_grow(r->tokens, r->cap_tokens, r->n_tokens + 1);
	r->tokens[r->n_tokens++] = token;
}

void result_add_count(struct result *r, uint32_t n)
{
	array_grow(r->counts, r->cap_counts, r->n_counts + 1);
	r->counts[r->n_counts++] = n;
}

void result_add_mu(struct result *r, int32_t mu)
{
	array_grow(r->mus, r->cap_mus, r->n_mus + 1);
	r->mus[r->n_mus++] = mu;
}

struct result_logprob *result_add_logprob(struct result *r)
{
	array_grow(r->logprobs, r->cap_logprobs, r->n_logprobs + 1);
	return &r->logprobs[r->n_logprobs++];
}

void result_add_failed(struct result *r, uint32_t slot, const char *reason)
{
	array_grow(r->failed, r->cap_failed, r->n_failed + 1);
	struct result_failed *f = &r->failed[r->n_failed++];
	f->slot = slot;
	snprintf(f->reason, sizeof f->reason, "%s", reason);
}

void result_add_held(struct result *r, uint32_t slot)
{
	array_grow(r->held, r->cap_held, r->n_held + 1);
	r->held[r->n_held++] = slot;
}

void result_add_top(struct result *r, uint32_t id, float logprob)
{
	array_grow(r->top_ids, r->cap_top_ids, r->n_top + 1);
	array_grow(r->top_logprobs, r->cap_top_logprobs, r->n_top + 1);
	r->top_ids[r->n_top] = id;
	r->top_logprobs[r->n_top++] = logprob;
}

struct result_pool *result_add_pool(struct result *r, uint32_t n_words)
{
	array_grow(r->pools, r->cap_pools, r->n_pools + 1);
	array_grow(r->pool_words, r->cap_pool_words, r->n_pool_words + n_words);
	struct result_pool *p = &r->pools[r->n_pools++];
	*p = (struct result_pool){.n_words = n_words, .at = r->n_pool_words};
	r->n_pool_words += n_words;
	return p;
}
