/* expr.h - regular expressions over bytes, with calls of recursive rules, as the states of an automaton.
 * Expressions are hash-consed: equal ones are one number.  What is left of an expression after a byte (its
 * derivative, Brzozowski 1964, "Derivatives of regular expressions") is an expression again, so that the
 * numbers are the states of an automaton that is determinized as texts reach it.  Alternatives with the same
 * first or last part share it: a b | a c is a (b | c).  Counters stay counters:
 * a{0,100000} is followed by a{0,99999}.
 *
 *     number   0 EXPR_NEVER   1 EXPR_EMPTY   2 EXPR_ANY (any bytes)
 *     node     SEQ a b | ALT kids | REPEAT body min max | SET bytes | LITERAL bytes | CALL rule | AND a b |
 *              NOT a | UNORDERED separator others members
 *
 * A call matches nothing here: the stack (machine.h) follows calls.  AND and NOT hold no calls.
 * Owns: nodes, sets, rows.  Not thread-safe.
 * Memory is bounded: beyond the limit `full` is set and every result is EXPR_NEVER; exprs_reset() goes back
 * to what compilation made.  Errors of shape (too wide) set `over` likewise. */
#ifndef QUERN_GRAMMAR_EXPR_H
#define QUERN_GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXPR_NEVER, EXPR_EMPTY, EXPR_ANY };
#define EXPR_UNKNOWN  UINT32_MAX
#define EXPR_INFINITE UINT32_MAX /* a repeat without a bound */

struct exprs;

struct exprs *exprs_new(size_t max_bytes);
void exprs_free(struct exprs *x); /* NULL is fine */

/* Building.  All normalize. */
uint32_t expr_literal(struct exprs *x, const void *p, size_t n);
uint32_t expr_set(struct exprs *x, const uint64_t set[4]);
uint32_t expr_seq(struct exprs *x, uint32_t a, uint32_t b);
uint32_t expr_alt(struct exprs *x, const uint32_t *kids, size_t n);
uint32_t expr_alt2(struct exprs *x, uint32_t a, uint32_t b);
uint32_t expr_repeat(struct exprs *x, uint32_t body, uint32_t min, uint32_t max);
uint32_t expr_and(struct exprs *x, uint32_t a, uint32_t b);
/* The same, where b is a repeat of units, and each text of a a sequence of units: expr_clamp() leaves out a
 * bound that is far away. */
uint32_t expr_and_counted(struct exprs *x, uint32_t a, uint32_t b);
uint32_t expr_not(struct exprs *x, uint32_t a);
/* kids: a separator that is not nullable, others (EXPR_NEVER: none), n - 2 members of which the first
 * n_required must be there: as ast_unordered(). */
uint32_t expr_unordered(struct exprs *x, const uint32_t *kids, size_t n, uint32_t n_required);
uint32_t expr_call(struct exprs *x, uint32_t rule);

/* Ends compilation: divides the bytes into classes that no expression tells apart. */
void exprs_seal(struct exprs *x);
void exprs_reset(struct exprs *x); /* forgets all that came after exprs_seal() */
int exprs_n_classes(const struct exprs *x);
const uint8_t *exprs_classes(const struct exprs *x);        /* [256] byte to class */
uint8_t exprs_class_byte(const struct exprs *x, int class); /* the first byte of a class */
/* How much was done to find what follows, since it was made: grows, about by one per node looked at. */
uint64_t exprs_work(const struct exprs *x);
size_t exprs_memory(const struct exprs *x);
size_t exprs_count(const struct exprs *x);
/* 0; -ENOMEM: full; -E2BIG: too wide.  Cleared by exprs_reset(); exprs_clear_over() clears the second alone.
 */
int exprs_error(const struct exprs *x);
void exprs_clear_over(struct exprs *x);

/* What follows byte class c; EXPR_NEVER where no text does.  After exprs_seal(). */
uint32_t expr_next(struct exprs *x, uint32_t e, int class);
bool expr_nullable(const struct exprs *x, uint32_t e);
bool expr_has_call(const struct exprs *x, uint32_t e);
int expr_depth(const struct exprs *x, uint32_t e); /* of recursion when e is derived */
/* Bytes that e can begin with, calls apart: a superset where e holds AND or NOT. */
const uint64_t *expr_first(struct exprs *x, uint32_t e);
/* Whether some text matches; exact.  Calls count as texts. */
bool expr_alive(struct exprs *x, uint32_t e);

/* Calls that e can begin with: after rule, rest.  The array is good until the next call of expr_calls(). */
struct expr_call {
	uint32_t rule, rest;
};
const struct expr_call *expr_calls(struct exprs *x, uint32_t e, size_t *n);

/* An expression that no text of at most n bytes tells from e as a prefix: counters beyond n are cut.  One n
 * for all. */
uint32_t expr_clamp(struct exprs *x, uint32_t e, uint32_t n);
/* Whether no text of at most far bytes, one number for all, tells them apart either. */
bool expr_clamp_is_far(struct exprs *x, uint32_t e, uint32_t n, uint32_t far);

#endif
