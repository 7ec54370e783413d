/* grammar.c - a compiled grammar: its automaton and its caches. */
#include "grammar/grammar_impl.h"
#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static const size_t mask_bytes_default = (size_t)16 << 20;

/* Return the set of the characters of slice c. */
static uint32_t slice_expr(struct exprs *x, int c)
{
	static const struct char_range ranges[N_LEXICON_SLICES][8] = {
		[LEXICON_LOWER] = {{'a', 'z'}},
		[LEXICON_ALNUM] = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}},
		[LEXICON_JSON] = {{' ', '!'},
				  {'#', '['},
				  {']', '~'},
				  {0x80, 0xd7ff},
				  {0xe000, 0xffff},
				  {0x10000, 0x10ffff}},
	};
	size_t n = 0;
	while (n < 8 && ranges[c][n].last)
		n++;
	return expr_repeat(x, utf8_set_expr(x, ranges[c], n), 0, EXPR_INFINITE);
}

int grammar_new(const struct ast *a, const struct lexicon *v, const struct grammar_limits *limits,
		struct grammar **out, struct why *why)
{
	static const struct grammar_limits none;
	struct grammar *g = xcalloc(1, sizeof *g);
	const struct grammar_limits *l = limits ? limits : &none;
	struct machine_limits ml = {.bytes = l->state_bytes, .depth = l->depth, .work = l->work};
	int rc = machine_open(a, &ml, &g->m, why);
	if (rc) {
		free(g);
		return rc;
	}
	g->v = v;
	g->budget = ast_budget_of(a);
	for (int c = 0; c < N_LEXICON_SLICES && v; c++)
		g->slices[c] = slice_expr(g->m->x, c);
	machine_seal(g->m);
	if (machine_start(g->m) == MACHINE_DEAD) {
		rc = machine_error(g->m) == -EAGAIN
			     ? -EAGAIN
			     : err_why(why, -E2BIG, "%s",
				       machine_refusal(g->m) ? machine_refusal(g->m)
							     : "the grammar takes too much memory");
		machine_free(g->m);
		free(g);
		return rc;
	}
	if (v)
		mask_init(g, l->mask_bytes ? l->mask_bytes : mask_bytes_default);
	machine_allow(g->m, (struct grammar_work){0});
	*out = g;
	return 0;
}

void grammar_free(struct grammar *g)
{
	if (!g)
		return;
	mask_fini(g);
	machine_free(g->m);
	free(g);
}

void grammar_allow(struct grammar *g, struct grammar_work work)
{
	machine_allow(g->m, work);
}

uint64_t grammar_work_done(const struct grammar *g)
{
	return exprs_work(g->m->x);
}

void grammar_counts(const struct grammar *g, struct grammar_counts *out)
{
	*out = (struct grammar_counts){
		.n_states = machine_n_states(g->m),
		.n_exprs = machine_n_exprs(g->m),
		.bytes = machine_memory(g->m),
		.n_masks = g->n_masks,
		.n_made = g->n_made,
		.n_resets = g->n_resets,
	};
	if (g->v)
		out->bytes += g->n_slots * (g->v->n_words * sizeof *g->masks + sizeof *g->slots);
}
