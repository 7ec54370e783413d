/* machine.h - the automaton of a grammar: states, and the state that follows each by a byte.
 * A state is a set of positions: (what is left of a rule's body, where to go on when it has matched).
 *
 *     state     { (expression, node), ... }, and whether the text may end here
 *     node      { (rest, parent node), ... }: a rule was called by these, each goes on with its rest;
 *               node 0: the end of the text
 *
 * So nodes are a graph-structured stack (Tomita 1986; Scott and Johnstone, "GLL parsing", 2010): a rule
 * called at one place of the text is one node, whoever calls it, which keeps ambiguous and left-recursive
 * grammars polynomial. States and nodes are hash-consed by what they hold, not by where in the text they
 * arose: a loop comes back to the same number, and masks of tokens can be kept by it.  Nodes that call each
 * other in a circle (left recursion) are consed as one group.
 *
 * What the numbers are depends on what was asked before; what they match does not.  Not thread-safe. */
#ifndef QUERN_GRAMMAR_MACHINE_H
#define QUERN_GRAMMAR_MACHINE_H

#include "grammar/ast.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MACHINE_DEAD = 0 };

struct machine_limits {
	size_t bytes; /* of expressions, states and rows; 0: 128 MiB */
	int depth;    /* of nested calls of recursive rules; 0: 1,000 */
};

struct machine;

/* 0; -E2BIG, -EINVAL as compile_ast().  The tree is not needed afterwards.  machine_open() leaves the machine
 * open for further expressions, which must be there when machine_seal() is called, before the first step. */
int machine_open(const struct ast *a, const struct machine_limits *limits, struct machine **out, char *why,
		 size_t why_n);
void machine_seal(struct machine *m);
void machine_free(struct machine *m); /* NULL is fine */

uint32_t machine_start(struct machine *m);
/* MACHINE_DEAD where no text goes on with byte, or after an error. */
uint32_t machine_step(struct machine *m, uint32_t state, uint8_t byte);
bool machine_accepts(const struct machine *m, uint32_t state);
/* -ENOMEM: no memory is left for states, and every step is MACHINE_DEAD; reset, and come back by the bytes.
 */
int machine_error(const struct machine *m);
/* The bound that refused a step since machine_clear_refusal() (nested too deep, too many positions); NULL:
 * none, the grammar itself did. */
const char *machine_refusal(const struct machine *m);
void machine_clear_refusal(struct machine *m);
/* Forgets all states: every number but MACHINE_DEAD is invalid. */
void machine_reset(struct machine *m);
/* How often it was reset, from 1: numbers are good for one generation. */
uint64_t machine_generation(const struct machine *m);

size_t machine_memory(const struct machine *m);
size_t machine_n_states(const struct machine *m);
size_t machine_n_exprs(const struct machine *m);

#endif
