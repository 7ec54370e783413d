/* compile_productive.c - finds the rules that derive some text: x ::= "a" x derives none, and would allow
 * the beginning of a text that can never end. */
#include "grammar/compile.h"
#include "base/alloc.h"

#include <stdlib.h>

/* Dependency graph: the nodes, followed by the rules. */
struct graph {
	const struct ast *a;
	uint32_t n_nodes, n;
	uint32_t *start, *waits; /* waits[start[i]..start[i + 1]): the nodes that depend on i */
	/* number of children not known to be productive; ALT: 1 until one child is */
	uint32_t *missing;
	bool *done;
	uint32_t *queue, n_queue;
};

static void each_edge(const struct graph *g, void (*f)(const struct graph *, uint32_t below, uint32_t above))
{
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		int n_kids = ast_n_kids(g->a, (int)i), k = 0;
		if (ast_kind(g->a, (int)i) == AST_UNORDERED) { /* only the required members */
			int64_t min, max;
			ast_bounds(g->a, (int)i, &min, &max);
			k = 2;
			n_kids = 2 + (int)min;
		}
		for (; k < n_kids; k++)
			f(g, (uint32_t)ast_kid(g->a, (int)i, k), i);
		if (ast_kind(g->a, (int)i) == AST_REF)
			f(g, g->n_nodes + (uint32_t)ast_rule_of(g->a, (int)i), i);
	}
	for (int r = 0; r < ast_n_rules(g->a); r++)
		f(g, (uint32_t)ast_rule_body(g->a, r), g->n_nodes + (uint32_t)r);
}

static void count_edge(const struct graph *g, uint32_t below, uint32_t above)
{
	(void)above;
	g->start[below + 1]++;
}

static void put_edge(const struct graph *g, uint32_t below, uint32_t above)
{
	g->waits[g->start[below]++] = above;
}

static void finish(struct graph *g, uint32_t i)
{
	if (g->done[i])
		return;
	g->done[i] = true;
	g->queue[g->n_queue++] = i;
}

static void begin(struct graph *g, uint32_t i)
{
	int64_t min = 1, max;
	enum ast_kind kind = ast_kind(g->a, (int)i);
	if (kind == AST_REPEAT)
		ast_bounds(g->a, (int)i, &min, &max);
	if (kind == AST_UNORDERED)
		ast_bounds(g->a, (int)i, &min, &max);
	g->missing[i] = kind == AST_SEQ || kind == AST_AND ? (uint32_t)ast_n_kids(g->a, (int)i)
			: kind == AST_UNORDERED            ? (uint32_t)min
							   : 1;
	if (kind == AST_EMPTY || kind == AST_LITERAL || kind == AST_SET || kind == AST_CHARS ||
	    kind == AST_NOT || min == 0)
		finish(g, i);
}

void ast_productive(const struct ast *a, bool *out)
{
	struct graph g = {.a = a, .n_nodes = (uint32_t)ast_n_nodes(a)};
	g.n = g.n_nodes + (uint32_t)ast_n_rules(a);
	g.start = xcalloc(g.n + 2, sizeof *g.start);
	each_edge(&g, count_edge);
	for (uint32_t i = 0; i < g.n; i++)
		g.start[i + 1] += g.start[i];
	g.waits = xcalloc(g.start[g.n] + 1, sizeof *g.waits);
	each_edge(&g, put_edge);
	/* put_edge() has advanced start[i] to the beginning of i + 1. */
	g.missing = xcalloc(g.n + 1, sizeof *g.missing);
	g.done = xcalloc(g.n + 1, sizeof *g.done);
	g.queue = xcalloc(g.n + 1, sizeof *g.queue);
	for (uint32_t i = 0; i < g.n_nodes; i++)
		begin(&g, i);
	for (uint32_t r = g.n_nodes; r < g.n; r++)
		g.missing[r] = 1;
	for (uint32_t q = 0; q < g.n_queue; q++) {
		uint32_t i = g.queue[q];
		for (uint32_t k = i ? g.start[i - 1] : 0; k < g.start[i]; k++)
			if (g.missing[g.waits[k]] && --g.missing[g.waits[k]] == 0)
				finish(&g, g.waits[k]);
	}
	for (int r = 0; r < ast_n_rules(a); r++)
		out[r] = g.done[g.n_nodes + (uint32_t)r];
	free(g.start);
	free(g.waits);
	free(g.missing);
	free(g.done);
	free(g.queue);
}
