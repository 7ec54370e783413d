/* expr_derive.c - derivatives of expressions, and the automaton's queries on its states. */
#include "grammar/expr_impl.h"
#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Limit on the states visited by a search for an accepted text: a product of counters may have very many. */
enum { SEARCH_MAX = 200000, SEARCH_PAIRS = 64 /* states without an end before pairs are tried */ };
enum { SEARCH_TOTAL = 4 << 20 /* derivatives of intersections by all searches of a compilation */ };
enum { LARGER_MAX = 64 /* states with which a difference is compared */ };
enum { DERIVED_MIN = 1 << 10, DERIVED_MAX = 1 << 16 };

static uint32_t first_of(struct exprs *x, uint32_t e);

static void set_union(uint64_t *to, const uint64_t *from)
{
	for (int i = 0; i < 4; i++)
		to[i] |= from[i];
}

static void first_union(struct exprs *x, uint32_t e, uint64_t *out)
{
	uint32_t s = first_of(x, e);
	set_union(out, x->sets[s]);
}

static void find_first(struct exprs *x, uint32_t e, uint64_t *out)
{
	uint64_t other[4] = {0};
	struct expr n = x->nodes[e];
	switch (n.kind) {
	case KIND_LITERAL: {
		uint8_t b = (uint8_t)x->text[n.a];
		out[b >> 6] |= (uint64_t)1 << (b & 63);
		break;
	}
	case KIND_SET:
		set_union(out, x->sets[n.a]);
		break;
	case KIND_SEQ:
		for (; n.kind == KIND_SEQ; e = n.b, n = x->nodes[e]) {
			first_union(x, n.a, out);
			if (!expr_nullable(x, n.a))
				return;
		}
		first_union(x, e, out);
		break;
	case KIND_ALT:
		for (uint32_t i = 0; i < n.b; i++)
			first_union(x, x->kids[n.a + i], out);
		break;
	case KIND_REPEAT:
		first_union(x, n.a, out);
		break;
	case KIND_AND:
		first_union(x, n.a, out);
		first_union(x, n.b, other);
		for (int i = 0; i < 4; i++)
			out[i] &= other[i];
		break;
	case KIND_NOT:
		memset(out, 0xff, 4 * sizeof *out);
		break;
	case KIND_UNORDERED:
		if (n.c % 4 == PHASE_BEHIND)
			first_union(x, x->kids[n.a], out);
		else
			for (uint32_t i = 1; i < n.b; i++)
				first_union(x, x->kids[n.a + i], out);
		break;
	default:
		break;
	}
}

static uint32_t first_of(struct exprs *x, uint32_t e)
{
	uint64_t s[4] = {0};
	if (x->memo[e].first == UINT32_MAX) {
		find_first(x, e, s);
		uint32_t set = exprs_intern_set(x, s);
		x->memo[e].first = set;
	}
	return x->memo[e].first;
}

const uint64_t *expr_first(struct exprs *x, uint32_t e)
{
	uint32_t s = first_of(x, e);
	return x->sets[s];
}

static uint32_t minus_one(uint32_t n)
{
	return n == EXPR_INFINITE || n == 0 ? n : n - 1;
}

/* Return the derivative of e by byte b. */
static uint32_t derive(struct exprs *x, uint32_t e, uint8_t b);

static uint32_t derive_unordered(struct exprs *x, uint32_t e, uint8_t b)
{
	const struct expr n = x->nodes[e];
	const size_t mark = x->n_stack;
	x->work += (uint64_t)n.b * n.b; /* all remaining members, for each member */
	exprs_spend(x, (uint64_t)n.b * n.b);
	const uint32_t from = n.c % 4 == PHASE_BEHIND ? 0 : 1, to = from ? n.b : 1;
	for (uint32_t i = from; i < to; i++) {
		uint32_t d = derive(x, x->kids[n.a + i], b);
		if (d != EXPR_NEVER)
			exprs_push(x, expr_seq(x, d, expr_unordered_rest(x, e, i)));
	}
	return exprs_pop_alt(x, mark);
}

static uint32_t find_derivative(struct exprs *x, uint32_t e, uint8_t b)
{
	struct expr n = x->nodes[e];
	size_t mark = x->n_stack;
	x->work += 1 + (n.kind == KIND_ALT ? n.b : 0);
	exprs_spend(x, 1 + (n.kind == KIND_ALT ? n.b : 0));
	if (x->spent)
		return EXPR_NEVER;
	switch (n.kind) {
	case KIND_SEQ:
		for (; n.kind == KIND_SEQ; e = n.b, n = x->nodes[e]) {
			exprs_push(x, expr_seq(x, derive(x, n.a, b), n.b));
			if (!expr_nullable(x, n.a))
				return exprs_pop_alt(x, mark);
		}
		exprs_push(x, derive(x, e, b));
		return exprs_pop_alt(x, mark);
	case KIND_ALT:
		for (uint32_t i = 0; i < n.b; i++) {
			uint32_t kid = x->kids[n.a + i];
			if (set_has(expr_first(x, kid), b))
				exprs_push(x, derive(x, kid, b));
		}
		return exprs_pop_alt(x, mark);
	case KIND_REPEAT: {
		uint32_t d = derive(x, n.a, b);
		if (d == EXPR_NEVER)
			return EXPR_NEVER;
		return expr_seq(x, d, expr_repeat(x, n.a, minus_one(n.b), minus_one(n.c)));
	}
	case KIND_AND: {
		uint32_t d = derive(x, n.a, b);
		return d == EXPR_NEVER ? EXPR_NEVER : expr_and_like(x, &n, d, derive(x, n.b, b));
	}
	case KIND_NOT:
		return expr_not(x, derive(x, n.a, b));
	case KIND_UNORDERED:
		return derive_unordered(x, e, b);
	default:
		return EXPR_NEVER;
	}
}

/* Empty the cache and double its size. */
static void derived_grow(struct exprs *x)
{
	x->n_derived = x->n_derived ? 2 * x->n_derived : DERIVED_MIN;
	free(x->derived);
	x->derived = xcalloc(x->n_derived, sizeof *x->derived);
}

void exprs_forget_derived(struct exprs *x)
{
	free(x->derived);
	x->derived = NULL;
	x->n_derived = 0;
}

static uint32_t derive(struct exprs *x, uint32_t e, uint8_t b)
{
	const struct expr n = x->nodes[e];
	if (n.kind == KIND_LITERAL)
		return (uint8_t)x->text[n.a] == b ? expr_literal_at(x, n.a + 1, n.b - 1) : EXPR_NEVER;
	if (n.kind == KIND_SET)
		return set_has(x->sets[n.a], b) ? EXPR_EMPTY : EXPR_NEVER;
	if (n.kind < KIND_LITERAL || n.kind == KIND_CALL)
		return EXPR_NEVER;
	while (x->n_derived < x->n_nodes && x->n_derived < DERIVED_MAX)
		derived_grow(x);
	const uint32_t hash = (e * 0x9e3779b1u ^ b * 0x85ebca6bu) >> 7;
	const struct derived *known = &x->derived[hash & (x->n_derived - 1)];
	if (known->e == e && known->byte == b)
		return known->d;
	const uint32_t d = find_derivative(x, e, b);
	if (!x->full && !x->over) /* the cache may have grown meanwhile */
		x->derived[hash & (x->n_derived - 1)] = (struct derived){e, d, b};
	return d;
}

/* Make the row of e: its derivatives by class, filled on demand. */
static uint32_t row_new(struct exprs *x, uint32_t e)
{
	size_t n = (size_t)x->n_classes;
	const uint64_t *first = expr_first(x, e);
	pages_grow(x->rows, x->cap_rows, x->n_rows + n);
	for (size_t c = 0; c < n; c++)
		x->rows[x->n_rows + c] = set_has(first, x->class_byte[c]) ? EXPR_UNKNOWN : EXPR_NEVER;
	x->memo[e].row = (uint32_t)(x->n_rows / n);
	x->n_rows += n;
	return x->memo[e].row;
}

uint32_t expr_next(struct exprs *x, uint32_t e, int class)
{
	uint32_t row = x->memo[e].row != UINT32_MAX ? x->memo[e].row : row_new(x, e);
	size_t at = (size_t)row * (size_t)x->n_classes + (size_t) class;
	if (x->rows[at] != EXPR_UNKNOWN)
		return x->rows[at];
	uint32_t d = derive(x, e, x->class_byte[class]);
	if (!expr_alive(x, d))
		d = EXPR_NEVER;
	if (x->full || x->over)
		return EXPR_NEVER;
	x->rows[at] = d;
	return d;
}

/* Expressions in order of their first use. */
struct list {
	uint32_t *e;
	uint32_t n, cap;
	uint32_t *table, n_table; /* index + 1 */
};

/* Return the index of e; a new one has index l->n - 1. */
static uint32_t list_place(struct list *l, uint32_t e)
{
	if (2 * (l->n + 1) > l->n_table) {
		l->n_table = l->n_table ? 2 * l->n_table : 64;
		free(l->table);
		l->table = xcalloc(l->n_table, sizeof *l->table);
		for (uint32_t k = 0; k < l->n; k++) {
			uint32_t i = l->e[k] * 0x9e3779b1u & (l->n_table - 1);
			while (l->table[i])
				i = (i + 1) & (l->n_table - 1);
			l->table[i] = k + 1;
		}
	}
	uint32_t i = e * 0x9e3779b1u & (l->n_table - 1);
	for (; l->table[i]; i = (i + 1) & (l->n_table - 1))
		if (l->e[l->table[i] - 1] == e)
			return l->table[i] - 1;
	array_grow(l->e, l->cap, l->n + 1);
	l->e[l->n] = e;
	l->table[i] = ++l->n;
	return l->n - 1;
}

static void list_fini(struct list *l)
{
	free(l->e);
	free(l->table);
}

/* A search for a text accepted from state 0. The state with the smallest estimated distance to an end goes
 * first, then the older one. (With breadth first search, names that must contain five words visited every
 * state of the product.) */
struct search {
	struct list states, parts; /* parts: operands of intersections, shared by many states */
	uint32_t *from;            /* [cap_from]: index of the predecessor of a state */
	uint32_t *derived;         /* [parts][classes]; EXPR_UNKNOWN: not computed */
	size_t cap_from, cap_derived;
	uint64_t *heap; /* near << 32 | index of the unvisited states; a min-heap */
	uint32_t n_heap, cap_heap;
	/* For differences (minuend and not subtrahend): the states with each minuend, in lists with the
	 * newest first. */
	struct list minuends;
	uint32_t *last, *before; /* [cap_last] by minuend, [cap_before] by state: index + 1 */
	size_t cap_last, cap_before;
};

static void heap_put(struct search *s, uint64_t key)
{
	array_grow(s->heap, s->cap_heap, s->n_heap + 1);
	uint32_t i = s->n_heap++;
	for (; i && s->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = key;
}

/* Remove and return the index of the nearest state.  The heap must not be empty. */
static uint32_t heap_take(struct search *s)
{
	const uint32_t first = (uint32_t)s->heap[0];
	const uint64_t last = s->heap[--s->n_heap];
	uint32_t i = 0;
	for (uint32_t kid; (kid = 2 * i + 1) < s->n_heap; i = kid) {
		if (kid + 1 < s->n_heap && s->heap[kid + 1] < s->heap[kid])
			kid++;
		if (s->heap[kid] >= last)
			break;
		s->heap[i] = s->heap[kid];
	}
	s->heap[i] = last;
	return first;
}

/* Match e against the difference: part and not taken. */
static bool is_difference(const struct exprs *x, uint32_t e, uint32_t *part, uint32_t *taken)
{
	const struct expr n = x->nodes[e];
	if (n.kind != KIND_AND)
		return false;
	const bool second = x->nodes[n.b].kind == KIND_NOT;
	*part = second ? n.a : n.b;
	*taken = x->nodes[second ? n.b : n.a].a;
	return (second || x->nodes[n.a].kind == KIND_NOT) && x->nodes[*part].kind != KIND_NOT;
}

/* Return true if all alternatives of e are alternatives of f. */
static bool is_subset(const struct exprs *x, uint32_t e, uint32_t f)
{
	const struct expr m = x->nodes[e], n = x->nodes[f];
	const uint32_t *p = m.kind == KIND_ALT ? x->kids + m.a : &e,
		       *q = n.kind == KIND_ALT ? x->kids + n.a : &f;
	const uint32_t n_p = m.kind == KIND_ALT ? m.b : 1, n_q = n.kind == KIND_ALT ? n.b : 1;
	uint32_t found = 0;
	for (uint32_t i = 0; i < n_q && found < n_p && q[i] <= p[found]; i++)
		found += q[i] == p[found];
	return found == n_p;
}

/* Return true if the search has a state with the same minuend that subtracts no more: each text of this
 * state is also a text of that one (De Wulf et al., "Antichains", 2006). Where patterns may match anywhere
 * in a text, this leaves few states. */
static bool has_larger(struct exprs *x, const struct search *s, uint32_t i, uint32_t taken)
{
	for (int n = 0; i && n < LARGER_MAX; i = s->before[i - 1], n++) {
		uint32_t part, other;
		x->work++;
		exprs_spend(x, 1);
		if (is_difference(x, s->states.e[i - 1], &part, &other) && is_subset(x, other, taken))
			return true;
	}
	return false;
}

static void search_add(struct exprs *x, struct search *s, uint32_t e, uint32_t from)
{
	const uint32_t n = s->states.n;
	uint32_t part, taken, minuend = UINT32_MAX;
	exprs_spend(x, 1);
	if (is_difference(x, e, &part, &taken)) {
		const uint32_t had = s->minuends.n;
		minuend = list_place(&s->minuends, part);
		array_grow(s->last, s->cap_last, minuend + 1);
		if (minuend == had)
			s->last[minuend] = 0;
		if (has_larger(x, s, s->last[minuend], taken))
			return;
	}
	const uint32_t at = list_place(&s->states, e);
	if (at < n)
		return;
	array_grow(s->from, s->cap_from, n + 1);
	array_grow(s->before, s->cap_before, n + 1);
	s->from[at] = from;
	s->before[at] = 0;
	if (minuend != UINT32_MAX) {
		s->before[at] = s->last[minuend];
		s->last[minuend] = at + 1;
	}
	heap_put(s, (uint64_t)x->memo[e].near << 32 | at);
}

/* Return the derivative of e by byte class c. */
static uint32_t search_derive(struct exprs *x, struct search *s, uint32_t e, int c)
{
	const struct expr n = x->nodes[e];
	if (n.kind == KIND_NOT)
		return expr_not(x, search_derive(x, s, n.a, c));
	if (n.kind == KIND_AND) {
		x->n_searched += !x->sealed;
		exprs_spend(x, 2);
		const uint32_t d = search_derive(x, s, n.a, c);
		return d == EXPR_NEVER ? EXPR_NEVER : expr_and_like(x, &n, d, search_derive(x, s, n.b, c));
	}
	const size_t had = s->parts.n, width = (size_t)x->n_classes;
	const size_t row = list_place(&s->parts, e) * width;
	if (s->parts.n > had) {
		array_grow(s->derived, s->cap_derived, row + width);
		memset(s->derived + row, 0xff, width * sizeof *s->derived);
	}
	if (s->derived[row + (size_t)c] == EXPR_UNKNOWN) {
		const uint32_t d = derive(x, e, x->class_byte[c]);
		s->derived[row + (size_t)c] = d;
	}
	return s->derived[row + (size_t)c];
}

static void search_fini(struct search *s)
{
	list_fini(&s->states);
	list_fini(&s->parts);
	free(s->from);
	free(s->derived);
	free(s->heap);
	list_fini(&s->minuends);
	free(s->last);
	free(s->before);
}

/* Return true if the state is known to be alive without following it. */
static bool shows_life(struct exprs *x, uint32_t e)
{
	const struct expr *n = &x->nodes[e];
	if (n->flags & (EXPR_NULLABLE | EXPR_IS_ALIVE))
		return true;
	return n->kind != KIND_AND && n->kind != KIND_NOT && !(n->flags & EXPR_IS_DEAD) && expr_alive(x, e);
}

/* Store at most n operands of a nested intersection in out.  Return their number. */
static size_t conjuncts(const struct exprs *x, uint32_t e, uint32_t *out, size_t n)
{
	if (!n)
		return 0;
	if (x->nodes[e].kind != KIND_AND) {
		out[0] = e;
		return 1;
	}
	const size_t k = conjuncts(x, x->nodes[e].a, out, n);
	return k + conjuncts(x, x->nodes[e].b, out + k, n - k);
}

/* Return true if two operands have no common text: their product is much smaller than the product of all. */
static bool has_dead_pair(struct exprs *x, uint32_t e)
{
	enum { PARTS_MAX = 16 };
	uint32_t parts[PARTS_MAX];
	const size_t n = conjuncts(x, e, parts, PARTS_MAX);
	for (size_t i = 1; n > 2 && i < n; i++)
		for (size_t j = 0; j < i; j++) {
			const uint32_t pair = expr_and(x, parts[i], parts[j]);
			if (!x->full && !x->over && !expr_alive(x, pair) && !x->full && !x->over)
				return true;
		}
	return false;
}

static bool search_life(struct exprs *x, uint32_t e)
{
	struct search s = {0};
	bool alive = false, pairs = x->nodes[e].kind == KIND_AND;
	exprs_classify(x);
	search_add(x, &s, e, 0);
	while (s.n_heap && !alive) {
		const uint32_t i = heap_take(&s), f = s.states.e[i];
		if (shows_life(x, f)) {
			alive = true;
			for (uint32_t k = i;; k = s.from[k]) {
				x->nodes[s.states.e[k]].flags |= EXPR_IS_ALIVE;
				if (k == 0)
					break;
			}
		} else if (!(x->nodes[f].flags & EXPR_IS_DEAD)) {
			for (int c = 0; c < x->n_classes; c++) {
				uint32_t d = EXPR_NEVER;
				if (set_has(expr_first(x, f), x->class_byte[c]))
					d = search_derive(x, &s, f, c);
				if (d != EXPR_NEVER)
					search_add(x, &s, d, i);
			}
			if (s.states.n > SEARCH_MAX || x->n_searched > SEARCH_TOTAL)
				x->over = true;
			if (pairs && s.states.n > SEARCH_PAIRS && has_dead_pair(x, e))
				break;
			pairs = pairs && s.states.n <= SEARCH_PAIRS;
		}
		if (x->full || x->over)
			break;
	}
	for (uint32_t i = 0; i < s.states.n && !alive && !x->full && !x->over; i++)
		x->nodes[s.states.e[i]].flags |= EXPR_IS_DEAD;
	search_fini(&s);
	return alive;
}

static bool find_life(struct exprs *x, uint32_t e)
{
	struct expr n = x->nodes[e];
	switch (n.kind) {
	case KIND_SEQ: /* iterates, like clamp_seq() */
		for (; n.kind == KIND_SEQ && !(n.flags & (EXPR_IS_ALIVE | EXPR_IS_DEAD));
		     e = n.b, n = x->nodes[e])
			if (!expr_alive(x, n.a))
				return false;
		return expr_alive(x, e);
	case KIND_ALT:
		for (uint32_t i = 0; i < n.b; i++)
			if (expr_alive(x, x->kids[n.a + i]))
				return true;
		return false;
	case KIND_REPEAT:
		return expr_alive(x, n.a);
	case KIND_UNORDERED: /* all required members; if none is required, any child */
		for (uint32_t i = 2; i < 2 + n.c / 4; i++)
			if (!expr_alive(x, x->kids[n.a + i]))
				return false;
		for (uint32_t i = 1; i < n.b && !(n.c / 4); i++)
			if (expr_alive(x, x->kids[n.a + i]))
				return true;
		return n.c / 4 > 0;
	default:
		return search_life(x, e);
	}
}

bool expr_alive(struct exprs *x, uint32_t e)
{
	unsigned flags = x->nodes[e].flags;
	if (flags & (EXPR_IS_ALIVE | EXPR_NULLABLE))
		return true;
	if (flags & EXPR_IS_DEAD)
		return false;
	bool alive = find_life(x, e);
	if (!x->full && !x->over)
		x->nodes[e].flags |= alive ? EXPR_IS_ALIVE : EXPR_IS_DEAD;
	return alive;
}

static void put_call(struct exprs *x, uint32_t rule, uint32_t rest)
{
	array_grow(x->calls, x->cap_calls, x->n_calls + 1);
	x->calls[x->n_calls++] = (struct expr_call){rule, rest};
}

static void find_calls(struct exprs *x, uint32_t e)
{
	struct expr n = x->nodes[e];
	size_t mark = x->n_calls;
	switch (n.kind) {
	case KIND_CALL:
		put_call(x, n.a, EXPR_EMPTY);
		break;
	case KIND_SEQ:
		for (; n.kind == KIND_SEQ && n.flags & EXPR_HAS_CALL; e = n.b, n = x->nodes[e]) {
			mark = x->n_calls;
			if (expr_has_call(x, n.a))
				find_calls(x, n.a);
			for (size_t i = mark; i < x->n_calls; i++)
				x->calls[i].rest = expr_seq(x, x->calls[i].rest, n.b);
			if (!expr_nullable(x, n.a))
				return;
		}
		if (n.flags & EXPR_HAS_CALL)
			find_calls(x, e);
		break;
	case KIND_ALT:
		for (uint32_t i = 0; i < n.b; i++)
			if (expr_has_call(x, x->kids[n.a + i]))
				find_calls(x, x->kids[n.a + i]);
		break;
	case KIND_UNORDERED:
		for (uint32_t i = n.c % 4 == PHASE_BEHIND ? 0 : 1; i < (n.c % 4 == PHASE_BEHIND ? 1 : n.b);
		     i++) {
			mark = x->n_calls;
			if (!expr_has_call(x, x->kids[n.a + i]))
				continue;
			find_calls(x, x->kids[n.a + i]);
			for (size_t k = mark; k < x->n_calls; k++)
				x->calls[k].rest =
					expr_seq(x, x->calls[k].rest, expr_unordered_rest(x, e, i));
		}
		break;
	case KIND_REPEAT: {
		uint32_t rest = expr_repeat(x, n.a, minus_one(n.b), minus_one(n.c));
		find_calls(x, n.a);
		for (size_t i = mark; i < x->n_calls; i++)
			x->calls[i].rest = expr_seq(x, x->calls[i].rest, rest);
		break;
	}
	default:
		break;
	}
}

const struct expr_call *expr_calls(struct exprs *x, uint32_t e, size_t *n)
{
	x->n_calls = 0;
	if (expr_has_call(x, e))
		find_calls(x, e);
	*n = x->n_calls;
	return x->calls;
}
