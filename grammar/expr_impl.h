/* expr_impl.h - the arena of expressions, for expr.c and expr_derive.c. */
#ifndef QUERN_GRAMMAR_EXPR_IMPL_H
#define QUERN_GRAMMAR_EXPR_IMPL_H

#include "grammar/expr.h"
#include "grammar/numbers.h"

enum expr_kind {
	KIND_NEVER,
	KIND_EMPTY,
	KIND_LITERAL, /* a: offset in text, b: length */
	KIND_SET,     /* a: set */
	KIND_SEQ,     /* a, b */
	KIND_ALT,     /* a: offset in kids, b: how many; ascending */
	KIND_REPEAT,  /* a: body, b: min, c: max */
	KIND_CALL,    /* a: rule */
	KIND_AND,     /* a < b; c: COUNTED_ */
	KIND_NOT,     /* a */
	/* a: offset in kids, b: how many (separator, others, members), c: 4 * (how many members, from the
	 * first on, must still come) + phase */
	KIND_UNORDERED,
};

/* Of KIND_UNORDERED: nothing is there yet; behind a member; behind a separator. */
enum { PHASE_FIRST, PHASE_BEHIND, PHASE_NEXT };

/* Of KIND_AND: whether one part counts the units that the other's texts are made of. */
enum { COUNTED_NOT, COUNTED_BY_A, COUNTED_BY_B };

enum {
	EXPR_NULLABLE = 1,
	EXPR_HAS_CALL = 2,
	EXPR_HAS_AND = 4,     /* an intersection or complement: may be dead without showing it */
	EXPR_IS_ALIVE = 8,    /* known */
	EXPR_IS_DEAD = 16,    /* known */
	EXPR_HAS_REPEAT = 32, /* a counter, outside intersections, or of one */
	EXPR_FINITE = 64,     /* finitely many texts; not set: not known */
};

enum { NEAR_MAX = 1 << 24 };

struct expr {
	uint8_t kind, flags;
	uint16_t depth;
	uint32_t a, b, c;
};

/* Found on demand, but for near; UINT32_MAX: not yet. */
struct expr_memo {
	uint32_t near;  /* about how many bytes lead to a text's end; at most NEAR_MAX */
	uint32_t first; /* set */
	uint32_t row;   /* index into rows, in rows of n_classes */
	uint32_t clamp;
	uint16_t shortest, reach; /* expr_clamp.c; UINT16_MAX: not yet */
	/* Of mask_run.c, by slice: characters that may follow, + 1 (0: not known), and bits of those not
	 * searched for to the end. */
	uint8_t run[3], run_cut : 3;
	uint8_t clamp_far : 2; /* 1: expr_clamp_is_far(); 2: it is not; 0: not known */
};

/* A derivative that was found; e 0: none. */
struct derived {
	uint32_t e, d;
	uint8_t byte;
};

struct exprs {
	size_t max_bytes;
	bool full, over, sealed;
	struct expr *nodes;
	struct expr_memo *memo; /* [cap_nodes] */
	uint32_t n_nodes, cap_nodes;
	uint32_t *kids;
	size_t n_kids, cap_kids;
	char *text; /* bytes of literals */
	size_t n_text, cap_text;
	uint64_t (*sets)[4];
	uint32_t n_sets, cap_sets;
	struct numbers table;             /* of nodes */
	uint32_t *set_table, n_set_table; /* of sets, + 1; open addressing */
	uint32_t *rows;
	size_t n_rows, cap_rows; /* in elements of uint32_t */
	uint32_t *stack;         /* lists under construction */
	size_t n_stack, cap_stack;
	int n_shared;      /* of alternatives under construction, one within the other */
	size_t n_searched; /* intersections that searches have derived, until exprs_seal() */
	uint64_t work;     /* of derivatives so far, about in nodes looked at */
	/* A cache of single entries, since many states share parts; at most two entries for each node, which
	 * exprs_memory() leaves out. */
	struct derived *derived;
	uint32_t n_derived; /* a power of two, or 0 */
	struct expr_call *calls;
	size_t n_calls, cap_calls;
	uint32_t clamp_n; /* what memo.clamp was found for */
	uint32_t widest;  /* children of an ALT that compilation made */
	int n_classes;
	uint32_t split_sets; /* those that have split the classes */
	size_t split_text;
	uint8_t classes[256], class_byte[256];
	struct {
		uint32_t n_nodes, n_sets;
		size_t n_kids, n_text;
	} base; /* at exprs_seal() */
};

static inline struct expr *expr_node(const struct exprs *x, uint32_t e)
{
	return &x->nodes[e];
}

static inline bool set_has(const uint64_t *set, unsigned b)
{
	return set[b >> 6] >> (b & 63) & 1;
}

/* The intersection of a and b, as n has one of its parts. */
uint32_t expr_and_like(struct exprs *x, const struct expr *n, uint32_t a, uint32_t b);
uint32_t exprs_intern_set(struct exprs *x, const uint64_t set[4]);
uint32_t expr_literal_at(struct exprs *x, uint32_t at, uint32_t n);
void exprs_classify(struct exprs *x); /* before exprs_seal(): classes for what is there */
void exprs_forget_derived(struct exprs *x);
/* What is left of e, KIND_UNORDERED, behind child i (1: others, from 2 on: a member), or behind a separator
 * (0). */
uint32_t expr_unordered_rest(struct exprs *x, uint32_t e, uint32_t i);
void exprs_push(struct exprs *x, uint32_t e);
/* The ALT of what was pushed since mark; pops it. */
uint32_t exprs_pop_alt(struct exprs *x, size_t mark);

#endif
