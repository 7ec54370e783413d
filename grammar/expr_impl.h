/* expr_impl.h - the arena of expressions, for expr*.c and mask_run.c. */
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
	KIND_ALT,     /* a: offset in kids, b: number of kids; ascending */
	KIND_REPEAT,  /* a: body, b: min, c: max */
	KIND_CALL,    /* a: rule */
	KIND_AND,     /* a < b; c: a COUNTED_ value */
	KIND_NOT,     /* a */
	/* a: offset in kids; b: number of kids (separator, others, members); c: 4 * (number of leading
	 * members that are still required) + phase */
	KIND_UNORDERED,
};

/* Phases of KIND_UNORDERED: nothing has been read; after a member; after a separator. */
enum { PHASE_FIRST, PHASE_BEHIND, PHASE_NEXT };

/* KIND_AND: the operand, if any, that only counts units. The other operand's texts are sequences
 * of these units. */
enum { COUNTED_NOT, COUNTED_BY_A, COUNTED_BY_B };

enum {
	EXPR_NULLABLE = 1,
	EXPR_HAS_CALL = 2,
	EXPR_HAS_AND = 4,     /* an intersection or complement: may be dead without showing it */
	EXPR_IS_ALIVE = 8,    /* proved */
	EXPR_IS_DEAD = 16,    /* proved */
	EXPR_HAS_REPEAT = 32, /* a counter outside intersections, or a counted intersection */
	EXPR_FINITE = 64,     /* finitely many texts; if unset, unknown */
};

enum { NEAR_MAX = 1 << 24 };

struct expr {
	uint8_t kind, flags;
	uint16_t depth;
	uint32_t a, b, c;
};

/* Computed on demand, except near; UINT32_MAX: not computed. */
struct expr_memo {
	uint32_t near;  /* estimate of the bytes to the nearest end of a text; at most NEAR_MAX */
	uint32_t first; /* a set */
	uint32_t row;   /* index of a row in rows, in units of n_classes */
	uint32_t clamp;
	uint16_t shortest, reach; /* expr_clamp.c; UINT16_MAX: not yet */
	/* For mask_run.c, by slice: number of characters that may follow, + 1 (0: unknown); run_cut: bits of
	 * the slices with an incomplete search. */
	uint8_t run[3], run_cut : 3;
	uint8_t clamp_far : 2; /* 1: expr_clamp_is_far(); 2: not far; 0: unknown */
};

/* A cached derivative; e 0: free. */
struct derived {
	uint32_t e, d;
	uint8_t byte;
};

struct exprs {
	size_t max_bytes;
	/* over: an error of shape, or the work limit is reached (then `spent` is set too). */
	bool full, over, spent, sealed;
	struct expr *nodes;
	struct expr_memo *memo; /* [cap_nodes] */
	uint32_t n_nodes, cap_nodes;
	uint32_t *kids;
	size_t n_kids, cap_kids;
	char *text; /* the bytes of literals */
	size_t n_text, cap_text;
	uint64_t (*sets)[4];
	uint32_t n_sets, cap_sets;
	struct numbers table;             /* the nodes */
	uint32_t *set_table, n_set_table; /* sets, + 1; open addressing */
	uint32_t *rows;
	size_t n_rows, cap_rows; /* elements of uint32_t */
	uint32_t *stack;         /* lists under construction */
	size_t n_stack, cap_stack;
	int n_shared;      /* nesting of alternatives under construction */
	size_t n_searched; /* intersections derived by searches, until exprs_seal() */
	uint64_t work;     /* derivative work so far, about one unit per node visited */
	struct grammar_work allowed;
	int64_t left; /* units until `allowed` is asked for more */
	/* A direct-mapped cache of derivatives, since many states share subexpressions. At most two entries
	 * per node; exprs_memory() leaves them out. */
	struct derived *derived;
	uint32_t n_derived; /* a power of two, or 0 */
	struct expr_call *calls;
	size_t n_calls, cap_calls;
	uint32_t clamp_n; /* the n for which memo.clamp was computed */
	uint32_t widest;  /* most children of an ALT made by compilation */
	int n_classes;
	uint32_t split_sets; /* sets [0, split_sets) have split the classes */
	size_t split_text;
	uint8_t classes[256], class_byte[256];
	struct {
		uint32_t n_nodes, n_sets;
		size_t n_kids, n_text;
	} base; /* the sizes at exprs_seal() */
};

static inline struct expr *expr_node(const struct exprs *x, uint32_t e)
{
	return &x->nodes[e];
}

static inline bool set_has(const uint64_t *set, unsigned b)
{
	return set[b >> 6] >> (b & 63) & 1;
}

/* Return the intersection of a and b, counted in the same way as n, a KIND_AND. */
uint32_t expr_and_like(struct exprs *x, const struct expr *n, uint32_t a, uint32_t b);
uint32_t exprs_intern_set(struct exprs *x, const uint64_t set[4]);
uint32_t expr_literal_at(struct exprs *x, uint32_t at, uint32_t n);
void exprs_classify(struct exprs *x); /* before exprs_seal(): compute the classes of the present nodes */
void exprs_forget_derived(struct exprs *x);
/* Return the rest of e, a KIND_UNORDERED, after child i (1: others; from 2 on: a member), or after a
 * separator (0). */
uint32_t expr_unordered_rest(struct exprs *x, uint32_t e, uint32_t i);
void exprs_push(struct exprs *x, uint32_t e);
/* Pop the expressions pushed since mark and return their ALT. */
uint32_t exprs_pop_alt(struct exprs *x, size_t mark);

#endif
