#include "controller/sched/seq.h"

#include "base/alloc.h"
#include "controller/sched/beam.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Capacity is reserved for all output tokens up to this many, and doubles beyond: steps allocate nothing, and
 * pages that no token reaches are never touched. */
enum { OUTPUT_ROOM = 1 << 16 };

struct group *group_new(uint64_t job, uint32_t *prompt, uint32_t n_prompt, struct params *params)
{
	struct group *g = xcalloc(1, sizeof *g);
	g->job = job;
	g->prompt = prompt;
	g->n_prompt = n_prompt;
	g->params = *params;
	params_init(params);
	g->n_seqs = g->n_live = g->params.n;
	if (g->params.beam_width) {
		g->n_seqs = g->params.beam_width;
		g->n_live = 1;
		g->beam = beam_new(&g->params);
		g->params.logprobs = (int32_t)beam_n_candidates(&g->params);
		g->params.temperature = 0; /* the token that the worker chooses is ignored */
	}
	g->times = xcalloc(1, sizeof *g->times);
	g->seqs = xcalloc(g->n_seqs, sizeof *g->seqs);
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		g->seqs[i].group = g;
		g->seqs[i].index = i;
		g->seqs[i].n_tokens = n_prompt;
		g->seqs[i].mu = params_first_mu(&g->params);
		g->seqs[i].fork_of = SEQ_NO_PLACE;
		g->seqs[i].node = CONTENTS_NONE;
		if (g->beam && i)
			g->seqs[i].state = SEQ_IDLE;
	}
	return g;
}

void group_resume(struct group *g, const uint32_t *tokens, const uint32_t *n, const int32_t *mus)
{
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (n[i] == UINT32_MAX) {
			q->state = SEQ_FINISHED;
			g->n_live--;
			continue;
		}
		assert(n[i] < g->params.max_tokens);
		for (uint32_t k = 0; k < n[i]; k++) {
			seq_own_tokens(q);
			seq_append(q, *tokens++);
		}
		if (g->params.mirostat && n[i])
			q->mu = mus[i];
	}
	assert(g->n_live > 0);
}

void group_free(struct group *g)
{
	if (!g)
		return;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		free(g->seqs[i].tokens);
		block_table_fini(&g->seqs[i].table);
	}
	beam_free(g->beam);
	params_fini(&g->params);
	free(g->seqs);
	free(g->prompt);
	free(g->sums);
	free(g->times);
	free(g);
}

static void reserve_tokens(struct seq *s)
{
	uint32_t most = s->group->params.max_tokens;
	s->cap_tokens = s->group->n_prompt + (most < OUTPUT_ROOM ? most : OUTPUT_ROOM);
	s->tokens = xmalloc(s->cap_tokens * sizeof *s->tokens);
}

void seq_own_tokens(struct seq *s)
{
	if (s->tokens)
		return;
	reserve_tokens(s);
	memcpy(s->tokens, s->group->prompt, s->n_tokens * sizeof *s->tokens);
}

void seq_copy_tokens(struct seq *to, const struct seq *from)
{
	if (!to->tokens)
		reserve_tokens(to);
	if (to->cap_tokens < from->cap_tokens) {
		to->cap_tokens = from->cap_tokens;
		to->tokens = xrealloc(to->tokens, to->cap_tokens, sizeof *to->tokens);
	}
	to->n_tokens = from->n_tokens;
	memcpy(to->tokens, from->tokens, from->n_tokens * sizeof *to->tokens);
}

void seq_append(struct seq *s, uint32_t token)
{
	array_grow(s->tokens, s->cap_tokens, s->n_tokens + 1);
	s->tokens[s->n_tokens++] = token;
}
