/* machine_impl.h - the automaton's arenas, for machine*.c and mask.c. */
#ifndef QUERN_GRAMMAR_MACHINE_IMPL_H
#define QUERN_GRAMMAR_MACHINE_IMPL_H

#include "grammar/compile.h"
#include "grammar/expr.h"
#include "grammar/lexicon.h"
#include "grammar/machine.h"
#include "grammar/numbers.h"
#include "grammar/utf8_set.h"

enum { NODE_END = 0 };

/* Bounds of one state, which bound a step: positions, and table slots for them. */
enum { POSITIONS_MAX = 1024, POSITIONS_TABLE = 4 * POSITIONS_MAX };
#define NODE_TEMP 0x80000000u /* marks a node of the closure in progress */

struct edge {
	uint32_t rest, parent;
};

struct stack_node {
	uint32_t edges, n_edges; /* range in machine.edges, sorted by parent; each parent once */
	uint32_t clamp;          /* memo; UINT32_MAX: not computed */
	uint32_t depth;
	uint32_t group; /* circular: the first node of the group */
	bool circular;  /* in a group that calls itself */
};

struct position {
	uint32_t e, node;
};

struct state {
	uint32_t positions, n_positions; /* range in machine.positions, sorted by node; each node once */
	uint32_t clamp;                  /* memo; UINT32_MAX: not computed */
	uint32_t mask;                   /* slot of mask.c; UINT32_MAX: none */
	/* by mask.c: number of characters that may follow, + 1; 0: unknown */
	uint8_t run[N_LEXICON_SLICES];
	bool accepts;
};

/* A node under construction: one per rule called at this place of the text. */
struct temp_node {
	uint32_t rule;
	uint32_t edges;      /* the first, in temp_edges; UINT32_MAX: none */
	bool popped;         /* the rule matches the empty text here */
	uint32_t final;      /* UINT32_MAX: not assigned */
	uint32_t index, low; /* Tarjan's algorithm; 0: not visited */
	bool on_stack;
};

struct temp_edge {
	uint32_t rest, parent, next;
};

struct machine {
	struct exprs *x;
	struct compiled grammar;
	size_t max_bytes;
	uint32_t max_depth;
	uint64_t generation;
	bool full, deep, wide; /* deep, wide: errors of the step in progress */
	const char *refusal;
	int n_classes;
	const uint8_t *classes;

	struct stack_node *nodes;
	uint32_t n_nodes, cap_nodes;
	struct edge *edges;
	size_t n_edges, cap_edges;
	struct numbers node_table;
	/* circular groups, each: the number of content words, these words, the first node */
	uint32_t *groups;
	size_t n_groups, cap_groups;

	struct state *states;
	uint32_t n_states, cap_states;
	struct position *positions;
	size_t n_positions, cap_positions;
	struct numbers state_table;
	uint32_t *rows; /* [n_states][n_classes]; EXPR_UNKNOWN: not computed */
	size_t cap_rows;
	uint32_t start;

	/* The closure in progress. */
	struct position *work;
	uint32_t n_work, cap_work;
	uint64_t *seen; /* [POSITIONS_TABLE]: stamp << 32 | index + 1 */
	uint32_t stamp;
	bool accepts;
	struct temp_node *temps;
	uint32_t n_temps, cap_temps;
	struct temp_edge *temp_edges;
	uint32_t n_temp_edges, cap_temp_edges;
	uint64_t *temp_of; /* [bodies]: stamp << 32 | temp */
	uint32_t *tarjan;
	uint32_t n_tarjan, cap_tarjan, tarjan_index;
	struct edge *scratch;
	uint32_t n_scratch, cap_scratch;
	uint32_t *words; /* the content of a group */
	size_t n_words, cap_words;
};

/* machine_stack.c */
void machine_nodes_reset(struct machine *m);
/* Finish temporary node t and those above it.  Return its final number. */
uint32_t machine_finish_node(struct machine *m, uint32_t t);
uint32_t machine_clamp_node(struct machine *m, uint32_t node, uint32_t n);

/* machine.c */
uint32_t machine_slow_step(struct machine *m, uint32_t state, int class);
/* Return a state that no text of at most n bytes distinguishes from this one: counters beyond n are cut. */
uint32_t machine_clamp(struct machine *m, uint32_t state, uint32_t n);
/* Return true if provably no text of at most far bytes distinguishes state from its clamp either. */
bool machine_clamp_is_far(struct machine *m, uint32_t state, uint32_t n, uint32_t far);

static inline uint32_t machine_step_class(struct machine *m, uint32_t state, int class)
{
	uint32_t to = m->rows[(size_t)state * (size_t)m->n_classes + (size_t) class];
	return to != EXPR_UNKNOWN ? to : machine_slow_step(m, state, class);
}

#endif
