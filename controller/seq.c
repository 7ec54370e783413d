#include "controller/seq.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Room for all output tokens, up to so many; doubles beyond.  Steps then allocate nothing, and
 * memory that no token reaches is never touched. */
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
	g->seqs = xcalloc(g->n_seqs, sizeof *g->seqs);
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		g->seqs[i].group = g;
		g->seqs[i].index = i;
		g->seqs[i].n_tokens = n_prompt;
	}
	return g;
}

void group_free(struct group *g)
{
	if (!g)
		return;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		free(g->seqs[i].tokens);
		block_table_fini(&g->seqs[i].table);
		block_table_fini(&g->seqs[i].host);
	}
	params_fini(&g->params);
	free(g->seqs);
	free(g->prompt);
	free(g);
}

void seq_own_tokens(struct seq *s)
{
	if (s->tokens)
		return;
	uint32_t most = s->group->params.max_tokens;
	s->cap_tokens = s->n_tokens + (most < OUTPUT_ROOM ? most : OUTPUT_ROOM);
	s->tokens = xmalloc(s->cap_tokens * sizeof *s->tokens);
	memcpy(s->tokens, s->group->prompt, s->n_tokens * sizeof *s->tokens);
}

void seq_append(struct seq *s, uint32_t token)
{
	if (s->n_tokens == s->cap_tokens) {
		s->cap_tokens *= 2;
		s->tokens = xrealloc(s->tokens, s->cap_tokens, sizeof *s->tokens);
	}
	s->tokens[s->n_tokens++] = token;
}
