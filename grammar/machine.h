/* machine.h - the automaton of a grammar: its states and their transitions by bytes.
 * A state is a set of positions: (the rest of a rule's body, the node to continue with after it has
 * matched).
 *
 *     state     { (expression, node), ... }, and a flag: the text may end here
 *     node      { (rest, parent node), ... }: the callers of a rule; each continues with its rest;
 *               node 0: the end of the text
 *
 * Nodes are thus a graph-structured stack (Tomita 1986; Scott and Johnstone, "GLL parsing", 2010): a rule
 * called at one place of the text is one node for all its callers, which keeps ambiguous and left-recursive
 * grammars polynomial. States and nodes are hash-consed by content, not by position in the text: a loop
 * returns to the same number, so token masks can be cached by state number. Nodes that call each other in a
 * cycle (left recursion) are hash-consed as one group.
 *
 * The numbers depend on the order of earlier calls; the texts that they match do not. Not thread-safe. */
#ifndef QUERN_GRAMMAR_MACHINE_H
#define QUERN_GRAMMAR_MACHINE_H

#include "base/err.h"
#include "grammar/ast.h"
#include "grammar/work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MACHINE_DEAD = 0 };

struct machine_limits {
	size_t bytes;             /* expressions, states and rows; 0: 128 MiB */
	int depth;                /* nested calls of recursive rules; 0: 1,000 */
	struct grammar_work work; /* limit for compilation */
};

struct machine;

/* Compile a. Return 0; -E2BIG, -EINVAL as compile_ast(); -EAGAIN if the work limit is reached. The tree is
 * not needed afterwards. Further expressions may be added between machine_open() and machine_seal();
 * machine_seal() must precede the first step. */
int machine_open(const struct ast *a, const struct machine_limits *limits, struct machine **out,
		 struct why *why);
void machine_seal(struct machine *m);
void machine_free(struct machine *m); /* NULL is fine */

uint32_t machine_start(struct machine *m);
/* Return the next state, or MACHINE_DEAD if no text continues with byte or after an error. */
uint32_t machine_step(struct machine *m, uint32_t state, uint8_t byte);
bool machine_accepts(const struct machine *m, uint32_t state);
/* Limit the work from now on. */
void machine_allow(struct machine *m, struct grammar_work work);
/* Return 0, or why steps fail. -ENOMEM: no memory for states, and every step is MACHINE_DEAD; reset and
 * replay the bytes. -EAGAIN: the work limit is reached, and every unknown step is
 * MACHINE_DEAD until machine_allow(). */
int machine_error(const struct machine *m);
/* Return the bound that refused a step since machine_clear_refusal() (nested too deep, too many positions);
 * NULL if none did, so the grammar itself does not allow the byte. */
const char *machine_refusal(const struct machine *m);
void machine_clear_refusal(struct machine *m);
/* Drop all states: every number except MACHINE_DEAD becomes invalid. */
void machine_reset(struct machine *m);
/* Return the number of resets, counted from 1.  State numbers are valid within one generation. */
uint64_t machine_generation(const struct machine *m);

size_t machine_memory(const struct machine *m);
size_t machine_n_states(const struct machine *m);
size_t machine_n_exprs(const struct machine *m);

#endif
