/* expr_clamp.c - cuts counters that no text of n bytes can reach. */
#include "grammar/expr_impl.h"

#include <assert.h>

enum { FAR = UINT16_MAX - 1, SEQ_SEEN_MAX = 1000 };

/* reach false: return the bytes of the shortest text of e. reach true: return an upper bound, over all
 * prefixes of texts of e, of the shortest way to an end. FAR: unknown. */
static uint32_t shortest(struct exprs *x, uint32_t e, bool reach);

static uint32_t far_sum(uint64_t a, uint64_t b)
{
	return a + b < FAR ? (uint32_t)(a + b) : FAR;
}

static uint32_t find_shortest(struct exprs *x, uint32_t e, bool reach)
{
	const struct expr n = x->nodes[e];
	uint32_t all = reach ? 0 : FAR, length = 0;
	switch (n.kind) {
	case KIND_EMPTY:
		return 0;
	case KIND_LITERAL:
		return far_sum(n.b, 0);
	case KIND_SET:
		return 1;
	case KIND_SEQ:
		for (struct expr s = n; s.kind == KIND_SEQ; s = x->nodes[s.b])
			if (++length > SEQ_SEEN_MAX)
				return FAR;
		if (!reach)
			return far_sum(shortest(x, n.a, false), shortest(x, n.b, false));
		all = far_sum(shortest(x, n.a, true), shortest(x, n.b, false));
		return all > shortest(x, n.b, true) ? all : shortest(x, n.b, true);
	case KIND_ALT:
		for (uint32_t i = 0; i < n.b; i++) {
			const uint32_t kid = shortest(x, x->kids[n.a + i], reach);
			if (kid == FAR)
				return FAR;
			all = reach == (kid > all) ? kid : all;
		}
		return all;
	case KIND_REPEAT:
		if (!reach)
			return far_sum((uint64_t)shortest(x, n.a, false) * n.b, 0);
		return far_sum(shortest(x, n.a, true),
			       (uint64_t)shortest(x, n.a, false) * (n.b ? n.b - 1 : 0));
	default:
		return FAR;
	}
}

static uint32_t shortest(struct exprs *x, uint32_t e, bool reach)
{
	const uint32_t known = reach ? x->memo[e].reach : x->memo[e].shortest;
	if (known != UINT16_MAX)
		return known;
	const uint32_t found = find_shortest(x, e, reach);
	*(reach ? &x->memo[e].reach : &x->memo[e].shortest) = (uint16_t)found;
	return found;
}

/* Return true if an intersection with unit{0,max} takes effect only beyond n bytes plus the way to an end:
 * within that distance it cuts off neither the beginning of a text nor its end. */
static bool is_counted_beyond(struct exprs *x, const struct expr *both, uint32_t n)
{
	struct expr counter = x->nodes[both->c == COUNTED_BY_A ? both->a : both->b];
	const uint32_t end = shortest(x, both->c == COUNTED_BY_A ? both->b : both->a, true);
	if (counter.kind == KIND_SEQ) /* within a unit */
		counter = x->nodes[counter.b];
	return both->c && end < FAR && counter.kind == KIND_REPEAT && !counter.b &&
	       (counter.c == EXPR_INFINITE || counter.c > (uint64_t)n + end);
}

/* Return true if n bytes cannot reach the last repetition. */
static bool is_repeated_beyond(struct exprs *x, const struct expr *repeat, uint32_t n)
{
	const uint32_t least = shortest(x, repeat->a, false);
	return repeat->c > (least > 1 && least < FAR ? n / least + 1 : n);
}

/* Clamp a sequence iteratively: rules that end in each other's names make very long ones. */
static uint32_t clamp_seq(struct exprs *x, uint32_t e, uint32_t n)
{
	const size_t mark = x->n_stack;
	for (; x->nodes[e].kind == KIND_SEQ && x->nodes[e].flags & EXPR_HAS_REPEAT &&
	       x->memo[e].clamp == UINT32_MAX;
	     e = x->nodes[e].b)
		exprs_push(x, e);
	uint32_t all = expr_clamp(x, e, n);
	while (x->n_stack > mark) {
		e = x->stack[--x->n_stack];
		uint32_t a = expr_clamp(x, x->nodes[e].a, n);
		all = expr_seq(x, a, all);
		if (!x->full && !x->over)
			x->memo[e].clamp = all;
	}
	return all;
}

static uint32_t find_clamp(struct exprs *x, uint32_t e, uint32_t n)
{
	struct expr t = x->nodes[e];
	size_t mark = x->n_stack;
	switch (t.kind) {
	case KIND_SEQ:
		return clamp_seq(x, e, n);
	case KIND_ALT:
		for (uint32_t i = 0; i < t.b; i++)
			exprs_push(x, expr_clamp(x, x->kids[t.a + i], n));
		return exprs_pop_alt(x, mark);
	case KIND_REPEAT:
		/* A body with a call may match the empty text, so that min repetitions take no bytes. */
		if (t.b > n && !expr_has_call(x, t.a))
			t.b = n + 1;
		if (is_repeated_beyond(x, &t, n))
			t.c = EXPR_INFINITE;
		return expr_repeat(x, t.a, t.b, t.c);
	case KIND_AND:
		return is_counted_beyond(x, &t, n) ? expr_clamp(x, t.c == COUNTED_BY_A ? t.b : t.a, n) : e;
	default:
		return e;
	}
}

uint32_t expr_clamp(struct exprs *x, uint32_t e, uint32_t n)
{
	if (!(x->nodes[e].flags & EXPR_HAS_REPEAT))
		return e;
	assert(x->clamp_n == 0 || x->clamp_n == n);
	x->clamp_n = n;
	if (x->memo[e].clamp == UINT32_MAX) {
		uint32_t c = find_clamp(x, e, n);
		if (!x->full && !x->over)
			x->memo[e].clamp = c;
		return c;
	}
	return x->memo[e].clamp;
}

static bool find_far(struct exprs *x, uint32_t e, uint32_t n, uint32_t far)
{
	struct expr t = x->nodes[e];
	switch (t.kind) {
	case KIND_SEQ:
		for (; t.kind == KIND_SEQ && t.flags & EXPR_HAS_REPEAT; e = t.b, t = x->nodes[e])
			if (!expr_clamp_is_far(x, t.a, n, far))
				return false;
		return expr_clamp_is_far(x, e, n, far);
	case KIND_ALT:
		for (uint32_t i = 0; i < t.b; i++)
			if (!expr_clamp_is_far(x, x->kids[t.a + i], n, far))
				return false;
		return true;
	case KIND_REPEAT:
		/* A minimum that was cut can be reached within far. */
		return (t.b <= n || expr_has_call(x, t.a)) &&
		       (!is_repeated_beyond(x, &t, n) || is_repeated_beyond(x, &t, far));
	case KIND_AND:
		return !is_counted_beyond(x, &t, n) ||
		       (is_counted_beyond(x, &t, far) &&
			expr_clamp_is_far(x, t.c == COUNTED_BY_A ? t.b : t.a, n, far));
	default:
		return true;
	}
}

bool expr_clamp_is_far(struct exprs *x, uint32_t e, uint32_t n, uint32_t far)
{
	if (!(x->nodes[e].flags & EXPR_HAS_REPEAT))
		return true;
	if (!x->memo[e].clamp_far) {
		const bool is = find_far(x, e, n, far);
		x->memo[e].clamp_far = is ? 1 : 2;
	}
	return x->memo[e].clamp_far == 1;
}
