/* expr.c - the arena: hash-consing and normal forms. */
#include "grammar/expr_impl.h"
#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Most children of an ALT made by a derivative, or twice the widest made by compilation if that is more.
 * Bounds the positions followed at once. */
enum { WIDTH_MAX = 4096 };
enum { SHARED_NESTED_MAX = 16, LITERAL_HASHED = 16 };
enum { ROW_GUESS = 64, TABLE_MIN = 1024 };
/* Units of work (work.h) to split all bytes by a set. */
enum { SPLIT_WORK = 12 };

static uint32_t mix(uint32_t h, uint32_t v)
{
	h = (h ^ v) * 0x9e3779b1u;
	return h ^ h >> 15;
}

static bool has_kids(const struct expr *n)
{
	return n->kind == KIND_ALT || n->kind == KIND_UNORDERED;
}

static uint32_t node_hash(const struct exprs *x, const struct expr *n)
{
	uint32_t h = mix(n->kind, n->b);
	if (n->kind == KIND_LITERAL) { /* hash the text; only the beginning of a long one */
		for (uint32_t i = 0; i < n->b && i < LITERAL_HASHED; i++)
			h = mix(h, (uint8_t)x->text[n->a + i]);
		return h;
	}
	if (!has_kids(n))
		return mix(mix(h, n->a), n->c);
	h = mix(h, n->c);
	for (uint32_t i = 0; i < n->b; i++)
		h = mix(h, x->kids[n->a + i]);
	return h;
}

static bool node_equal(const struct exprs *x, const struct expr *m, const struct expr *n)
{
	if (m->kind != n->kind || m->b != n->b || m->c != n->c)
		return false;
	return m->a == n->a || (m->kind == KIND_LITERAL && !memcmp(x->text + m->a, x->text + n->a, n->b)) ||
	       (has_kids(m) && memcmp(x->kids + m->a, x->kids + n->a, n->b * sizeof *x->kids) == 0);
}

size_t exprs_memory(const struct exprs *x)
{
	return x->n_nodes * (sizeof *x->nodes + sizeof *x->memo) + x->n_kids * sizeof *x->kids + x->n_text +
	       x->n_sets * sizeof *x->sets + x->n_set_table * sizeof *x->set_table +
	       numbers_bytes(&x->table) + x->n_rows * sizeof *x->rows;
}

uint64_t exprs_work(const struct exprs *x)
{
	return x->work;
}

void exprs_allow(struct exprs *x, struct grammar_work work)
{
	x->allowed = work;
	x->left = work.units ? (int64_t)work.units : INT64_MAX;
	x->over = x->over && !x->spent;
	x->spent = false;
}

void exprs_spend(struct exprs *x, uint64_t units)
{
	const struct grammar_work *w = &x->allowed;
	x->left -= (int64_t)units;
	if (!grammar_charge(w->account, units))
		x->spent = x->over = true;
	if (x->left >= 0 || x->spent)
		return;
	if (!w->units || (w->more && w->more(w->arg)))
		x->left = w->units ? (int64_t)w->units : INT64_MAX;
	else
		x->spent = x->over = true;
}

size_t exprs_count(const struct exprs *x)
{
	return x->n_nodes;
}

int exprs_error(const struct exprs *x)
{
	return x->full ? -ENOMEM : x->spent ? -EAGAIN : x->over ? -E2BIG : 0;
}

void exprs_clear_over(struct exprs *x)
{
	x->over = x->spent;
}

static bool is_node(const void *owner, uint32_t e, const void *what)
{
	const struct exprs *x = owner;
	return node_equal(x, &x->nodes[e], what);
}

static void table_fill(struct exprs *x)
{
	numbers_reset(&x->table, x->n_nodes);
	for (uint32_t e = EXPR_ANY; e < x->n_nodes; e++)
		numbers_put(&x->table, node_hash(x, &x->nodes[e]), e);
}

static uint32_t near_sum(uint64_t a, uint64_t b)
{
	return a + b < NEAR_MAX ? (uint32_t)(a + b) : NEAR_MAX;
}

/* Estimate the bytes to the end of the nearest text. For intersections the estimates of the operands are
 * added, since the operands reach their ends one after another. Used only to order a search. */
static uint32_t near_of(const struct exprs *x, const struct expr *n)
{
	uint32_t near = NEAR_MAX;
	switch ((enum expr_kind)n->kind) {
	case KIND_LITERAL:
		return near_sum(n->b, 0);
	case KIND_SEQ:
	case KIND_AND:
		return near_sum(x->memo[n->a].near, x->memo[n->b].near);
	case KIND_ALT:
		for (uint32_t i = 0; i < n->b; i++)
			if (x->memo[x->kids[n->a + i]].near < near)
				near = x->memo[x->kids[n->a + i]].near;
		return near;
	case KIND_REPEAT:
		return near_sum((uint64_t)x->memo[n->a].near * n->b, 0);
	case KIND_UNORDERED:
		near = 0;
		for (uint32_t i = 2; i < 2 + n->c / 4; i++)
			near = near_sum(near, x->memo[x->kids[n->a + i]].near);
		return near;
	default:
		return n->flags & EXPR_NULLABLE ? 0 : 1;
	}
}

static struct expr_memo memo_new(uint32_t near)
{
	return (struct expr_memo){.near = near,
				  .first = UINT32_MAX,
				  .row = UINT32_MAX,
				  .clamp = UINT32_MAX,
				  .shortest = UINT16_MAX,
				  .reach = UINT16_MAX};
}

static void nodes_grow(struct exprs *x, uint32_t n)
{
	const uint32_t had = x->cap_nodes;
	pages_grow(x->nodes, x->cap_nodes, n);
	if (x->cap_nodes > had)
		x->memo = pages_realloc(x->memo, had, x->cap_nodes, sizeof *x->memo);
}

/* Return the number of node n. Its children (ALT, UNORDERED) are at the end of kids and are dropped if the
 * node exists already. */
static uint32_t intern(struct exprs *x, struct expr n)
{
	exprs_spend(x, 1);
	if (x->full || x->over)
		goto fail;
	const uint32_t hash = node_hash(x, &n), e = numbers_find(&x->table, hash, is_node, x, &n);
	if (e != UINT32_MAX) {
		if (has_kids(&n))
			x->n_kids = n.a;
		return e;
	}
	if (exprs_memory(x) > x->max_bytes || x->n_nodes >= UINT32_MAX / 2) {
		x->full = true;
		goto fail;
	}
	nodes_grow(x, x->n_nodes + 1);
	x->nodes[x->n_nodes] = n;
	x->memo[x->n_nodes] = memo_new(near_of(x, &n));
	numbers_put(&x->table, hash, x->n_nodes);
	return x->n_nodes++;
fail:
	if (has_kids(&n))
		x->n_kids = n.a;
	return EXPR_NEVER;
}

static uint32_t set_hash(const uint64_t s[4])
{
	uint32_t h = 0;
	for (int i = 0; i < 4; i++)
		h = mix(mix(h, (uint32_t)s[i]), (uint32_t)(s[i] >> 32));
	return h;
}

static void set_table_fill(struct exprs *x)
{
	memset(x->set_table, 0, x->n_set_table * sizeof *x->set_table);
	for (uint32_t s = 0; s < x->n_sets; s++) {
		uint32_t i = set_hash(x->sets[s]) & (x->n_set_table - 1);
		while (x->set_table[i])
			i = (i + 1) & (x->n_set_table - 1);
		x->set_table[i] = s + 1;
	}
}

uint32_t exprs_intern_set(struct exprs *x, const uint64_t set[4])
{
	uint32_t i = set_hash(set) & (x->n_set_table - 1);
	for (; x->set_table[i]; i = (i + 1) & (x->n_set_table - 1))
		if (memcmp(x->sets[x->set_table[i] - 1], set, sizeof *x->sets) == 0)
			return x->set_table[i] - 1;
	array_grow(x->sets, x->cap_sets, x->n_sets + 1);
	memcpy(x->sets[x->n_sets], set, sizeof *x->sets);
	x->set_table[i] = ++x->n_sets;
	if (2 * x->n_sets > x->n_set_table) {
		x->n_set_table *= 2;
		x->set_table = xrealloc(x->set_table, x->n_set_table, sizeof *x->set_table);
		set_table_fill(x);
	}
	return x->n_sets - 1;
}

struct exprs *exprs_new(size_t max_bytes)
{
	struct exprs *x = xcalloc(1, sizeof *x);
	x->max_bytes = max_bytes;
	x->left = INT64_MAX;
	x->n_set_table = TABLE_MIN;
	x->set_table = xcalloc(x->n_set_table, sizeof *x->set_table);
	nodes_grow(x, TABLE_MIN);
	static const struct expr first[] = {
		{.kind = KIND_NEVER, .flags = EXPR_IS_DEAD | EXPR_FINITE},
		{.kind = KIND_EMPTY, .flags = EXPR_NULLABLE | EXPR_IS_ALIVE | EXPR_FINITE},
		{.kind = KIND_NOT, .flags = EXPR_NULLABLE | EXPR_HAS_AND | EXPR_IS_ALIVE, .a = EXPR_NEVER},
	};
	for (uint32_t e = 0; e < 3; e++) {
		x->nodes[e] = first[e];
		x->memo[e] = memo_new(near_of(x, &first[e]));
		x->memo[e].clamp = e;
	}
	x->n_nodes = 3;
	table_fill(x);
	return x;
}

void exprs_free(struct exprs *x)
{
	if (!x)
		return;
	pages_free(x->nodes, x->cap_nodes, sizeof *x->nodes);
	pages_free(x->memo, x->cap_nodes, sizeof *x->memo);
	pages_free(x->kids, x->cap_kids, sizeof *x->kids);
	free(x->text);
	free(x->sets);
	numbers_fini(&x->table);
	free(x->set_table);
	pages_free(x->rows, x->cap_rows, sizeof *x->rows);
	free(x->derived);
	free(x->stack);
	free(x->calls);
	free(x);
}

uint32_t expr_literal_at(struct exprs *x, uint32_t at, uint32_t n)
{
	return n ? intern(x, (struct expr){.kind = KIND_LITERAL,
					   .flags = EXPR_IS_ALIVE | EXPR_FINITE,
					   .a = at,
					   .b = n})
		 : EXPR_EMPTY;
}

uint32_t expr_literal(struct exprs *x, const void *p, size_t n)
{
	if (n == 0)
		return EXPR_EMPTY;
	if (n > x->max_bytes || x->n_text + n > UINT32_MAX) {
		x->full = true;
		return EXPR_NEVER;
	}
	array_grow(x->text, x->cap_text, x->n_text + n);
	memcpy(x->text + x->n_text, p, n);
	x->n_text += n;
	return expr_literal_at(x, (uint32_t)(x->n_text - n), (uint32_t)n);
}

uint32_t expr_set(struct exprs *x, const uint64_t set[4])
{
	if (!(set[0] | set[1] | set[2] | set[3]))
		return EXPR_NEVER;
	return intern(x, (struct expr){.kind = KIND_SET,
				       .flags = EXPR_IS_ALIVE | EXPR_FINITE,
				       .a = exprs_intern_set(x, set)});
}

uint32_t expr_call(struct exprs *x, uint32_t rule)
{
	return intern(x, (struct expr){.kind = KIND_CALL, .flags = EXPR_HAS_CALL | EXPR_IS_ALIVE, .a = rule});
}

static uint16_t deeper(int depth)
{
	return (uint16_t)(depth < UINT16_MAX ? depth + 1 : UINT16_MAX);
}

uint32_t expr_seq(struct exprs *x, uint32_t a, uint32_t b)
{
	if (a == EXPR_NEVER || b == EXPR_NEVER)
		return EXPR_NEVER;
	if (a == EXPR_EMPTY)
		return b;
	if (b == EXPR_EMPTY)
		return a;
	const struct expr *m = &x->nodes[a], *n = &x->nodes[b];
	unsigned all = m->flags & n->flags, any = m->flags | n->flags;
	unsigned flags = (all & (EXPR_NULLABLE | EXPR_IS_ALIVE | EXPR_FINITE)) |
			 (any & (EXPR_HAS_CALL | EXPR_HAS_AND | EXPR_HAS_REPEAT));
	int depth = deeper(m->depth) > n->depth ? deeper(m->depth) : n->depth;
	return intern(
		x,
		(struct expr){
			.kind = KIND_SEQ, .flags = (uint8_t)flags, .depth = (uint16_t)depth, .a = a, .b = b});
}

uint32_t expr_repeat(struct exprs *x, uint32_t body, uint32_t min, uint32_t max)
{
	if (max == 0 || body == EXPR_EMPTY || (body == EXPR_NEVER && min == 0))
		return EXPR_EMPTY;
	if (body == EXPR_NEVER)
		return EXPR_NEVER;
	const struct expr *n = &x->nodes[body];
	if (n->flags & EXPR_NULLABLE)
		min = 0;
	if (body == EXPR_ANY)
		return EXPR_ANY;
	if (min == 1 && max == 1)
		return body;
	/* (a{p,q}){min,max} with p 0 or 1 equals a{p * min, q * max}: the counts have no gaps. */
	if (n->kind == KIND_REPEAT && n->b <= 1) {
		uint64_t most =
			n->c == EXPR_INFINITE || max == EXPR_INFINITE ? EXPR_INFINITE : (uint64_t)n->c * max;
		if (most < EXPR_INFINITE || n->c == EXPR_INFINITE || max == EXPR_INFINITE)
			return expr_repeat(x, n->a, n->b * min, (uint32_t)most);
	}
	unsigned flags = (n->flags & (EXPR_HAS_CALL | EXPR_HAS_AND | EXPR_IS_ALIVE)) | EXPR_HAS_REPEAT;
	if (min == 0)
		flags |= EXPR_NULLABLE | EXPR_IS_ALIVE;
	if (max != EXPR_INFINITE)
		flags |= n->flags & EXPR_FINITE;
	return intern(x, (struct expr){.kind = KIND_REPEAT,
				       .flags = (uint8_t)flags,
				       .depth = deeper(n->depth),
				       .a = body,
				       .b = min,
				       .c = max});
}

static uint32_t intersection(struct exprs *x, uint32_t a, uint32_t b, uint32_t counted)
{
	if (a > b)
		return intersection(x, b, a,
				    counted == COUNTED_NOT    ? COUNTED_NOT
				    : counted == COUNTED_BY_A ? COUNTED_BY_B
							      : COUNTED_BY_A);
	if (a == EXPR_NEVER || a == b || b == EXPR_ANY)
		return a;
	if (a == EXPR_ANY)
		return b;
	if (a == EXPR_EMPTY)
		return expr_nullable(x, b) ? EXPR_EMPTY : EXPR_NEVER;
	const struct expr *m = &x->nodes[a], *n = &x->nodes[b];
	if (m->kind == KIND_SET && n->kind == KIND_SET) {
		uint64_t s[4];
		for (int i = 0; i < 4; i++)
			s[i] = x->sets[m->a][i] & x->sets[n->a][i];
		return expr_set(x, s);
	}
	if ((m->kind == KIND_NOT && m->a == b) || (n->kind == KIND_NOT && n->a == a))
		return EXPR_NEVER;
	return intern(x, (struct expr){.kind = KIND_AND,
				       .flags = (uint8_t)((m->flags & n->flags & EXPR_NULLABLE) |
							  ((m->flags | n->flags) & EXPR_FINITE) |
							  EXPR_HAS_AND | (counted ? EXPR_HAS_REPEAT : 0)),
				       .depth = deeper(m->depth > n->depth ? m->depth : n->depth),
				       .a = a,
				       .b = b,
				       .c = counted});
}

uint32_t expr_and(struct exprs *x, uint32_t a, uint32_t b)
{
	return intersection(x, a, b, COUNTED_NOT);
}

uint32_t expr_and_counted(struct exprs *x, uint32_t a, uint32_t b)
{
	return intersection(x, a, b, COUNTED_BY_B);
}

uint32_t expr_and_like(struct exprs *x, const struct expr *n, uint32_t a, uint32_t b)
{
	return intersection(x, a, b, n->c);
}

uint32_t expr_not(struct exprs *x, uint32_t a)
{
	const struct expr *n = &x->nodes[a];
	if (n->kind == KIND_NOT)
		return n->a;
	if (a == EXPR_NEVER)
		return x->full || x->over ? EXPR_NEVER : EXPR_ANY;
	return intern(x, (struct expr){.kind = KIND_NOT,
				       .flags = (uint8_t)((n->flags & EXPR_NULLABLE ? 0 : EXPR_NULLABLE) |
							  EXPR_HAS_AND),
				       .depth = deeper(n->depth),
				       .a = a});
}

/* Make the UNORDERED node of the n children at the end of kids. */
static uint32_t unordered_node(struct exprs *x, size_t n, uint32_t n_required, unsigned phase)
{
	struct expr e = {.kind = KIND_UNORDERED, .b = (uint32_t)n, .c = 4 * n_required + phase};
	e.a = (uint32_t)(x->n_kids - n);
	if (n == 2) { /* only others are left: a plain repeat */
		const uint32_t separator = x->kids[e.a], other = x->kids[e.a + 1];
		x->n_kids = e.a;
		uint32_t more = expr_repeat(x, expr_seq(x, separator, other), 0, EXPR_INFINITE);
		if (phase == PHASE_BEHIND)
			return more;
		more = expr_seq(x, other, more);
		return phase == PHASE_NEXT ? more : expr_repeat(x, more, 0, 1);
	}
	for (size_t i = 0; i < n; i++) {
		const struct expr *k = &x->nodes[x->kids[e.a + i]];
		e.flags |= k->flags & (EXPR_HAS_CALL | EXPR_HAS_AND | EXPR_HAS_REPEAT);
		if (k->depth >= e.depth)
			e.depth = deeper(k->depth);
	}
	if (phase != PHASE_NEXT && !n_required)
		e.flags |= EXPR_NULLABLE | EXPR_IS_ALIVE;
	return intern(x, e);
}

uint32_t expr_unordered(struct exprs *x, const uint32_t *kids, size_t n, uint32_t n_required)
{
	const size_t at = x->n_kids;
	pages_grow(x->kids, x->cap_kids, at + n);
	for (size_t i = 0; i < n; i++) {
		if (i < 2 || kids[i] != EXPR_NEVER) {
			x->kids[x->n_kids++] = kids[i];
		} else if (i - 2 < n_required) {
			x->n_kids = at;
			return EXPR_NEVER;
		}
	}
	return unordered_node(x, x->n_kids - at, n_required, PHASE_FIRST);
}

uint32_t expr_unordered_rest(struct exprs *x, uint32_t e, uint32_t i)
{
	const struct expr n = x->nodes[e];
	const uint32_t n_required = n.c / 4, without = i >= 2 ? i : n.b;
	pages_grow(x->kids, x->cap_kids, x->n_kids + n.b);
	for (uint32_t k = 0; k < n.b; k++)
		if (k != without)
			x->kids[x->n_kids++] = x->kids[n.a + k];
	return unordered_node(x, n.b - (i >= 2), n_required - (i >= 2 && i - 2 < n_required),
			      i ? PHASE_BEHIND : PHASE_NEXT);
}

void exprs_push(struct exprs *x, uint32_t e)
{
	if (e == EXPR_NEVER)
		return;
	array_grow(x->stack, x->cap_stack, x->n_stack + 1);
	x->stack[x->n_stack++] = e;
}

static int by_number(const void *p, const void *q)
{
	uint32_t a = *(const uint32_t *)p, b = *(const uint32_t *)q;
	return (a > b) - (a < b);
}

/* Sort s[0..n) and drop duplicates.  Derivatives are nearly sorted. */
static size_t sort_unique(uint32_t *s, size_t n)
{
	size_t m = 0;
	bool sorted = true;
	for (size_t i = 1; i < n && sorted; i++)
		sorted = s[i - 1] < s[i];
	if (sorted)
		return n;
	if (n > 16) {
		qsort(s, n, sizeof *s, by_number);
	} else {
		for (size_t i = 1; i < n; i++) {
			uint32_t e = s[i];
			size_t k = i;
			for (; k && s[k - 1] > e; k--)
				s[k] = s[k - 1];
			s[k] = e;
		}
	}
	for (size_t i = 0; i < n; i++)
		if (m == 0 || s[m - 1] != s[i])
			s[m++] = s[i];
	return m;
}

/* Match e against body{min,max} rest. */
static bool counted(const struct exprs *x, uint32_t e, struct expr *r, uint32_t *rest)
{
	const struct expr *n = &x->nodes[e];
	*rest = EXPR_EMPTY;
	if (n->kind == KIND_SEQ) {
		*rest = n->b;
		n = &x->nodes[n->a];
	}
	*r = *n;
	return n->kind == KIND_REPEAT;
}

/* Merge body{a,b} rest | body{c,d} rest into one repeat if the counts have no gap. */
static uint32_t merged_counts(struct exprs *x, uint32_t e, uint32_t f)
{
	struct expr p, q;
	uint32_t rest, other;
	if (!counted(x, e, &p, &rest) || !counted(x, f, &q, &other) || p.a != q.a || rest != other)
		return EXPR_NEVER;
	if (p.b > q.b) {
		struct expr swap = p;
		p = q;
		q = swap;
	}
	if (p.c != EXPR_INFINITE && q.b > p.c + 1)
		return EXPR_NEVER;
	return expr_seq(x, expr_repeat(x, p.a, p.b, p.c > q.c ? p.c : q.c), rest);
}

/* Merge repeats pairwise among few children; with many positions a quadratic search would cost too much. */
static size_t merge_repeats(struct exprs *x, size_t mark, size_t n)
{
	if (n > 32)
		return n;
	for (size_t i = 0; i < n; i++)
		for (size_t k = i + 1; k < n; k++) {
			uint32_t e = merged_counts(x, x->stack[mark + i], x->stack[mark + k]);
			if (e == EXPR_NEVER)
				continue;
			x->stack[mark + i] = e;
			x->stack[mark + k] = x->stack[mark + --n];
			k = i;
		}
	return sort_unique(x->stack + mark, n);
}

/* Merge all sets among the children into one. */
static size_t merge_sets(struct exprs *x, size_t mark, size_t n)
{
	uint64_t all[4] = {0};
	size_t m = 0, n_sets = 0;
	for (size_t i = 0; i < n; i++)
		n_sets += x->nodes[x->stack[mark + i]].kind == KIND_SET;
	if (n_sets < 2)
		return n;
	for (size_t i = 0; i < n; i++) {
		uint32_t e = x->stack[mark + i];
		if (x->nodes[e].kind != KIND_SET)
			x->stack[mark + m++] = e;
		else
			for (int k = 0; k < 4; k++)
				all[k] |= x->sets[x->nodes[e].a][k];
	}
	x->stack[mark + m++] = expr_set(x, all);
	return sort_unique(x->stack + mark, m);
}

/* Replace ALTs among the children by their own children. */
static size_t flatten(struct exprs *x, size_t mark)
{
	size_t n = x->n_stack - mark;
	for (size_t i = 0; i < n; i++) {
		const struct expr *e = &x->nodes[x->stack[mark + i]];
		if (e->kind != KIND_ALT)
			continue;
		array_grow(x->stack, x->cap_stack, x->n_stack + e->b);
		x->stack[mark + i] = x->kids[e->a];
		memcpy(x->stack + x->n_stack, x->kids + e->a + 1, (e->b - 1) * sizeof *x->stack);
		x->n_stack += e->b - 1;
	}
	return x->n_stack - mark;
}

static uint32_t alt_node(struct exprs *x, const uint32_t *kids, size_t n)
{
	struct expr e = {.kind = KIND_ALT, .a = (uint32_t)x->n_kids, .b = (uint32_t)n};
	if (x->sealed && n > WIDTH_MAX && n > 2 * (size_t)x->widest) {
		x->over = true;
		return EXPR_NEVER;
	}
	if (!x->sealed && n > x->widest)
		x->widest = (uint32_t)n;
	pages_grow(x->kids, x->cap_kids, x->n_kids + n);
	memcpy(x->kids + x->n_kids, kids, n * sizeof *kids);
	x->n_kids += n;
	unsigned finite = EXPR_FINITE;
	for (size_t i = 0; i < n; i++) {
		const struct expr *k = &x->nodes[kids[i]];
		finite &= k->flags;
		e.flags |= k->flags &
			   (EXPR_NULLABLE | EXPR_HAS_CALL | EXPR_HAS_AND | EXPR_HAS_REPEAT | EXPR_IS_ALIVE);
		if (k->depth >= e.depth)
			e.depth = deeper(k->depth);
	}
	e.flags |= finite;
	return intern(x, e);
}

/* A child that is a sequence, and the element in which it may agree with others.  Sorted by that element. */
struct shared_seq {
	uint32_t element, seq;
};

static int by_element(const void *p, const void *q)
{
	const struct shared_seq *a = p, *b = q;
	if (a->element != b->element)
		return a->element < b->element ? -1 : 1;
	return (a->seq > b->seq) - (a->seq < b->seq);
}

/* Push the sequences, those with the same element as one sequence: of the element and an alternative of what
 * remains of each. */
static void push_merged(struct exprs *x, const struct shared_seq *seqs, size_t n_seqs, bool last)
{
	for (size_t first = 0, end; first < n_seqs; first = end) {
		const uint32_t element = seqs[first].element;
		const size_t mark = x->n_stack;
		for (end = first + 1; end < n_seqs && seqs[end].element == element;)
			end++;
		if (end == first + 1) {
			exprs_push(x, seqs[first].seq);
			continue;
		}
		for (size_t i = first; i < end; i++) {
			const struct expr *seq = &x->nodes[seqs[i].seq];
			exprs_push(x, last ? seq->a : seq->b);
		}
		const uint32_t rest = exprs_pop_alt(x, mark);
		exprs_push(x, last ? expr_seq(x, rest, element) : expr_seq(x, element, rest));
	}
}

/* Merge children that are sequences with the same first (or last) element: a b | a c becomes a (b | c), so
 * that the shared element is followed once. Nested up to SHARED_NESTED_MAX. */
static size_t merge_shared(struct exprs *x, size_t mark, size_t n, bool last)
{
	size_t n_seqs = 0, n_others = 0;
	bool any = false;
	struct shared_seq few[64], *seqs = n <= 64 ? few : xcalloc(n, sizeof *seqs);
	for (size_t i = 0; i < n; i++) {
		const uint32_t child = x->stack[mark + i];
		const struct expr *e = &x->nodes[child];
		if (e->kind == KIND_SEQ)
			seqs[n_seqs++] = (struct shared_seq){last ? e->b : e->a, child};
	}
	if (n_seqs > 1)
		qsort(seqs, n_seqs, sizeof *seqs, by_element);
	for (size_t i = 1; i < n_seqs && !any; i++)
		any = seqs[i].element == seqs[i - 1].element;
	if (any) {
		for (size_t i = 0; i < n; i++)
			if (x->nodes[x->stack[mark + i]].kind != KIND_SEQ)
				x->stack[mark + n_others++] = x->stack[mark + i];
		x->n_stack = mark + n_others;
		x->n_shared++;
		push_merged(x, seqs, n_seqs, last);
		x->n_shared--;
		n = sort_unique(x->stack + mark, x->n_stack - mark);
	}
	if (seqs != few)
		free(seqs);
	return n;
}

uint32_t exprs_pop_alt(struct exprs *x, size_t mark)
{
	uint32_t e = EXPR_NEVER;
	size_t n = x->n_stack - mark;
	if (n > 1) {
		exprs_spend(x, n);
		/* Drop equal ALTs first: "r | r | ..." would copy r each time. */
		x->n_stack = mark + sort_unique(x->stack + mark, n);
		const size_t apart = x->n_stack - mark;
		n = flatten(x, mark); /* moves the stack */
		exprs_spend(x, n - apart);
		n = sort_unique(x->stack + mark, n);
		n = merge_repeats(x, mark, merge_sets(x, mark, n));
		if (n > 1 && x->n_shared < SHARED_NESTED_MAX)
			n = merge_shared(x, mark, merge_shared(x, mark, n, true), false);
		/* Drop "" if another child matches it; EXPR_EMPTY is the smallest number, so
		 * it comes first. */
		bool other = false;
		for (size_t i = 1; i < n; i++)
			other |= expr_nullable(x, x->stack[mark + i]);
		if (n > 1 && other && x->stack[mark] == EXPR_EMPTY)
			memmove(x->stack + mark, x->stack + mark + 1, --n * sizeof *x->stack);
		for (size_t i = 0; i < n; i++)
			if (x->stack[mark + i] == EXPR_ANY)
				e = EXPR_ANY;
	}
	if (e == EXPR_NEVER && n)
		e = n == 1 ? x->stack[mark] : alt_node(x, x->stack + mark, n);
	x->n_stack = mark;
	return x->full || x->over ? EXPR_NEVER : e;
}

uint32_t expr_alt(struct exprs *x, const uint32_t *kids, size_t n)
{
	size_t mark = x->n_stack;
	for (size_t i = 0; i < n; i++)
		exprs_push(x, kids[i]);
	return exprs_pop_alt(x, mark);
}

uint32_t expr_alt2(struct exprs *x, uint32_t a, uint32_t b)
{
	return expr_alt(x, (uint32_t[]){a, b}, 2);
}

bool expr_nullable(const struct exprs *x, uint32_t e)
{
	return x->nodes[e].flags & EXPR_NULLABLE;
}

bool expr_has_call(const struct exprs *x, uint32_t e)
{
	return x->nodes[e].flags & EXPR_HAS_CALL;
}

int expr_depth(const struct exprs *x, uint32_t e)
{
	return x->nodes[e].depth;
}

/* Split every class by set. */
static void split_classes(struct exprs *x, const uint64_t *set)
{
	int other[256], inside[256] = {0};
	memset(other, -1, sizeof other);
	for (unsigned b = 0; b < 256; b++)
		inside[x->classes[b]] |= set_has(set, b) ? 1 : 2;
	for (unsigned b = 0; b < 256; b++) {
		int c = x->classes[b];
		if (inside[c] != 3 || !set_has(set, b))
			continue;
		if (other[c] < 0)
			other[c] = x->n_classes++;
		x->classes[b] = (uint8_t)other[c];
	}
}

/* Later sets are made from earlier ones, so only new sets split classes. */
void exprs_classify(struct exprs *x)
{
	uint64_t seen[4] = {0};
	if (x->sealed)
		return;
	const uint32_t split = x->split_sets;
	if (!x->n_classes)
		x->n_classes = 1;
	for (; x->split_sets < x->n_sets; x->split_sets++)
		split_classes(x, x->sets[x->split_sets]);
	exprs_spend(x, SPLIT_WORK * (uint64_t)(x->n_sets - split));
	for (; x->split_text < x->n_text; x->split_text++) {
		uint8_t b = (uint8_t)x->text[x->split_text];
		seen[b >> 6] |= (uint64_t)1 << (b & 63);
	}
	for (unsigned b = 0; b < 256; b++)
		if (set_has(seen, b))
			split_classes(x, (uint64_t[4]){b / 64 == 0 ? (uint64_t)1 << b % 64 : 0,
						       b / 64 == 1 ? (uint64_t)1 << b % 64 : 0,
						       b / 64 == 2 ? (uint64_t)1 << b % 64 : 0,
						       b / 64 == 3 ? (uint64_t)1 << b % 64 : 0});
	for (int b = 255; b >= 0; b--)
		x->class_byte[x->classes[b]] = (uint8_t)b;
}

void exprs_seal(struct exprs *x)
{
	exprs_classify(x);
	x->sealed = true;
	x->n_searched = 0;
	x->base.n_nodes = x->n_nodes;
	x->base.n_sets = x->n_sets;
	x->base.n_kids = x->n_kids;
	x->base.n_text = x->n_text;
}

void exprs_reset(struct exprs *x)
{
	assert(x->sealed);
	x->n_nodes = x->base.n_nodes;
	x->n_sets = x->base.n_sets;
	x->n_kids = x->base.n_kids;
	x->n_rows = x->n_calls = x->n_stack = 0;
	x->full = false;
	x->over = x->spent;
	exprs_forget_derived(x);
	for (uint32_t e = 0; e < x->n_nodes; e++)
		x->memo[e] = memo_new(x->memo[e].near);
	table_fill(x);
	set_table_fill(x);
}

int exprs_n_classes(const struct exprs *x)
{
	return x->n_classes;
}

const uint8_t *exprs_classes(const struct exprs *x)
{
	return x->classes;
}

uint8_t exprs_class_byte(const struct exprs *x, int class)
{
	return x->class_byte[class];
}
