/* mask_run.c - computes runs: how many arbitrary characters of a slice may follow a state. A computed run is
 * never too long, but may be too short: tokens that it does not decide are walked. The run of an expression
 * is the longest run of its operands that can be found in one operand alone. Example: after the names of an
 * object's members a different rest follows each time, but the expression for unlisted names stays the same.
 *
 *     SEQ a b     run of a, if some text matches b; and run of b, if a may be empty
 *     ALT         the longest run of the alternatives; if it is finite, also a search of all together
 *     AND a !b    infinite if the run of a is and b has finitely many texts
 *     others      a search by characters */
#include "grammar/expr_impl.h"
#include "grammar/grammar_impl.h"
#include "base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS_MAX = 1000, PAIRS_TABLE = 4096, RUN_MAX = LEXICON_LONG_BYTES };
/* Limits of a search, in units of exprs_work() (walking all tries costs about 10,000): RUN_WORK from the
 * mask's own state, TOGETHER_WORK for its alternatives together, RUN_WORK_EACH from a successor state. */
enum { RUN_WORK = 30000, TOGETHER_WORK = 5000, RUN_WORK_EACH = 300, PAIR_WORK = 4 };
enum { POSITIONS = 8 }; /* positions of a state that are searched */

/* A visited point of a search: an expression, and the position within a character. */
struct pair {
	uint32_t e, u;
};

/* A search by characters: all bytes of one character are followed before the next character. */
struct pairs {
	struct pair seen[PAIRS_MAX];
	uint32_t table[PAIRS_TABLE]; /* search << 16 | index + 1; entries of earlier searches count as free */
	uint32_t search;
	uint16_t todo[PAIRS_MAX], next[PAIRS_MAX]; /* points of the current and of the next character */
	uint32_t n, n_todo, n_next;
};

struct pairs *mask_pairs_new(void)
{
	return xcalloc(1, sizeof(struct pairs));
}

/* Add a point unless it was visited.  Return false if there is no room. */
static bool pair_add(struct pairs *s, uint32_t e, uint32_t u, bool boundary)
{
	uint32_t i = (e * 0x9e3779b1u ^ u * 0x85ebca6bu) % PAIRS_TABLE;
	for (; s->table[i] >> 16 == s->search; i = (i + 1) % PAIRS_TABLE) {
		const struct pair *p = &s->seen[(s->table[i] & 0xffff) - 1];
		if (p->e == e && p->u == u)
			return true;
	}
	if (s->n == PAIRS_MAX)
		return false;
	if (boundary)
		s->next[s->n_next++] = (uint16_t)s->n;
	else
		s->todo[s->n_todo++] = (uint16_t)s->n;
	s->seen[s->n++] = (struct pair){e, u};
	s->table[i] = s->search << 16 | s->n;
	return true;
}

_Static_assert(sizeof((struct expr_memo *)0)->run == N_LEXICON_SLICES, "a run for each slice");

/* Add the successors of p by every byte that continues a character of the slice, except those with a known
 * infinite run. Return false if the expression refuses a byte, or if there is no room. */
static bool pair_follow(struct grammar *g, struct pairs *s, struct pair p, int slice)
{
	struct exprs *x = g->m->x;
	for (int c = 0; c < g->m->n_classes; c++) {
		uint32_t u = expr_next(x, p.u, c);
		if (u == EXPR_NEVER)
			continue;
		uint32_t e = expr_next(x, p.e, c);
		if (e == EXPR_NEVER)
			return false;
		const bool boundary = u == g->slices[slice];
		if (!(boundary && x->memo[e].run[slice] == 1 + RUN_INFINITE) && !pair_add(s, e, u, boundary))
			return false;
	}
	return true;
}

/* Return how many arbitrary characters of the slice may follow e, by a search of at most work units; set
 * *cut if the limit was reached. */
static uint32_t search(struct grammar *g, uint32_t e, int slice, uint64_t work, bool *cut)
{
	struct pairs *s = g->pairs;
	struct exprs *x = g->m->x;
	uint32_t chars = 0;
	const uint64_t end = x->work + work;
	s->n = s->n_todo = s->n_next = 0;
	if (++s->search > 0xffff) {
		memset(s->table, 0, sizeof s->table);
		s->search = 1;
	}
	pair_add(s, e, g->slices[slice], true);
	for (bool all = true; all && chars < RUN_MAX; chars += all) {
		memcpy(s->todo, s->next, s->n_next * sizeof *s->todo);
		s->n_todo = s->n_next;
		s->n_next = 0;
		if (s->n_todo == 0) {
			chars = RUN_INFINITE;
			break;
		}
		while (all && s->n_todo) {
			*cut = x->work >= end;
			x->work += PAIR_WORK;
			all = !*cut && pair_follow(g, s, s->seen[s->todo[--s->n_todo]], slice) && !x->spent;
		}
	}
	for (uint32_t i = 0; i < s->n && chars == RUN_INFINITE; i++)
		if (s->seen[i].u == g->slices[slice])
			x->memo[s->seen[i].e].run[slice] = 1 + RUN_INFINITE;
	/* An expression that is too wide ends the run; clear the error, so that the mask's next step does
	 * not fail. */
	exprs_clear_over(x);
	return chars;
}

static uint32_t run_of_expr(struct grammar *g, uint32_t e, int slice);

/* Return true if e accepts every first byte of the slice's characters. */
static bool begins_like(struct grammar *g, uint32_t e, int slice)
{
	uint64_t with[4];
	memcpy(with, expr_first(g->m->x, g->slices[slice]), sizeof with);
	const uint64_t *first = expr_first(g->m->x, e);
	for (int i = 0; i < 4; i++)
		if (with[i] & ~first[i])
			return false;
	return true;
}

static uint32_t run_of_seq(struct grammar *g, uint32_t e, int slice)
{
	struct exprs *x = g->m->x;
	uint32_t most = 0;
	for (struct expr n = x->nodes[e]; n.kind == KIND_SEQ; e = n.b, n = x->nodes[e]) {
		if (!expr_alive(x, n.b))
			return 0;
		const uint32_t run = run_of_expr(g, n.a, slice);
		most = run > most ? run : most;
		if (most == RUN_INFINITE || !expr_nullable(x, n.a))
			return most;
	}
	const uint32_t run = run_of_expr(g, e, slice);
	return run > most ? run : most;
}

static uint32_t run_of_alt(struct grammar *g, uint32_t e, int slice, bool *cut)
{
	struct exprs *x = g->m->x;
	const struct expr n = x->nodes[e];
	uint32_t most = 0, run;
	for (uint32_t i = 0; i < n.b; i++) {
		const uint32_t kid = x->kids[n.a + i];
		if (!begins_like(g, kid, slice))
			continue;
		run = run_of_expr(g, kid, slice);
		most = run > most ? run : most;
		if (most == RUN_INFINITE)
			return most;
	}
	run = search(g, e, slice, g->run_own ? TOGETHER_WORK : RUN_WORK_EACH, cut);
	return run > most ? run : most;
}

/* Return true if part has infinite runs and but is the complement of finitely many texts. */
static bool is_all_but_few(struct grammar *g, uint32_t part, uint32_t but, int slice)
{
	const struct expr *n = &g->m->x->nodes[but];
	return n->kind == KIND_NOT && g->m->x->nodes[n->a].flags & EXPR_FINITE &&
	       run_of_expr(g, part, slice) == RUN_INFINITE;
}

static uint32_t find_run(struct grammar *g, uint32_t e, int slice, bool *cut)
{
	const struct expr n = g->m->x->nodes[e];
	if (!begins_like(g, e, slice))
		return 0;
	if (n.kind == KIND_SEQ)
		return run_of_seq(g, e, slice);
	if (n.kind == KIND_ALT)
		return run_of_alt(g, e, slice, cut);
	if (n.kind == KIND_AND && (is_all_but_few(g, n.a, n.b, slice) || is_all_but_few(g, n.b, n.a, slice)))
		return RUN_INFINITE;
	return search(g, e, slice, g->run_own ? RUN_WORK : RUN_WORK_EACH, cut);
}

static uint32_t run_of_expr(struct grammar *g, uint32_t e, int slice)
{
	struct expr_memo *memo = &g->m->x->memo[e];
	bool cut = false;
	if (memo->run[slice] && !(memo->run_cut >> slice & 1 && g->run_own))
		return memo->run[slice] - 1u;
	const uint32_t chars = find_run(g, e, slice, &cut);
	if (exprs_error(g->m->x) == -EAGAIN) /* the run may be longer */
		return chars;
	memo = &g->m->x->memo[e];
	memo->run[slice] = (uint8_t)(1 + chars);
	memo->run_cut &= (uint8_t) ~(1u << slice);
	memo->run_cut |= (uint8_t)((cut && !g->run_own) << slice);
	return chars;
}

uint32_t mask_run(struct grammar *g, uint32_t state, int slice)
{
	const struct state s = g->m->states[state];
	uint32_t most = 0;
	for (uint32_t i = 0; i < s.n_positions && i < POSITIONS; i++) {
		const uint32_t run = run_of_expr(g, g->m->positions[s.positions + i].e, slice);
		most = run > most ? run : most;
	}
	if (!machine_error(g->m))
		g->m->states[state].run[slice] = (uint8_t)(1 + most);
	return most;
}
