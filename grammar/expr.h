/* expr.h - regular expressions over bytes, with calls of recursive rules, as the states of an automaton.
 * Expressions are hash-consed: equal expressions have the same number. The derivative of an expression by a
 * byte (Brzozowski 1964, "Derivatives of regular expressions") is again an expression, so the numbers are
 * the states of an automaton that is determinized as texts reach it. Alternatives with the same first or
 * last factor share it: a b | a c is a (b | c). Counters stay counters: a{0,100000} is followed by
 * a{0,99999}.
 *
 *     number   0 EXPR_NEVER   1 EXPR_EMPTY   2 EXPR_ANY (any bytes)
 *     node     SEQ a b | ALT kids | REPEAT body min max | SET bytes | LITERAL bytes | CALL rule | AND a b |
 *              NOT a | UNORDERED separator others members
 *
 * A call matches nothing here: the stack (machine.h) follows calls. AND and NOT hold no calls. Owns: nodes,
 * sets, rows. Not thread-safe.
 * Memory is bounded: beyond the limit `full` is set and every result is EXPR_NEVER; exprs_reset() returns to
 * the state after compilation. Errors of shape (too wide) set `over` with the same effect. */
#ifndef QUERN_GRAMMAR_EXPR_H
#define QUERN_GRAMMAR_EXPR_H

#include "grammar/work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXPR_NEVER, EXPR_EMPTY, EXPR_ANY };
#define EXPR_UNKNOWN  UINT32_MAX
#define EXPR_INFINITE UINT32_MAX /* the max of an unbounded repeat */

struct exprs;

struct exprs *exprs_new(size_t max_bytes);
void exprs_free(struct exprs *x); /* NULL is fine */

/* Constructors.  All normalize. */
uint32_t expr_literal(struct exprs *x, const void *p, size_t n);
uint32_t expr_set(struct exprs *x, const uint64_t set[4]);
uint32_t expr_seq(struct exprs *x, uint32_t a, uint32_t b);
uint32_t expr_alt(struct exprs *x, const uint32_t *kids, size_t n);
uint32_t expr_alt2(struct exprs *x, uint32_t a, uint32_t b);
uint32_t expr_repeat(struct exprs *x, uint32_t body, uint32_t min, uint32_t max);
uint32_t expr_and(struct exprs *x, uint32_t a, uint32_t b);
/* Like expr_and(), where b is a repeat of units and every text of a is a sequence of units. expr_clamp() can
 * then drop a distant bound. */
uint32_t expr_and_counted(struct exprs *x, uint32_t a, uint32_t b);
uint32_t expr_not(struct exprs *x, uint32_t a);
/* kids: a separator that is not nullable, others (EXPR_NEVER: none), then n - 2 members, of which the first
 * n_required are required. See ast_unordered(). */
uint32_t expr_unordered(struct exprs *x, const uint32_t *kids, size_t n, uint32_t n_required);
uint32_t expr_call(struct exprs *x, uint32_t rule);

/* End compilation: partition the bytes into classes that no expression distinguishes. */
void exprs_seal(struct exprs *x);
void exprs_reset(struct exprs *x); /* drop everything made after exprs_seal() */
int exprs_n_classes(const struct exprs *x);
const uint8_t *exprs_classes(const struct exprs *x);        /* [256]: the class of each byte */
uint8_t exprs_class_byte(const struct exprs *x, int class); /* the first byte of a class */
/* Return the work done on derivatives so far: about one unit per node visited.  Never decreases. */
uint64_t exprs_work(const struct exprs *x);
/* Limit the work from now on; initially it is unlimited. Beyond the limit operations fail with -EAGAIN until
 * the next call of this function; results found so far are kept. */
void exprs_allow(struct exprs *x, struct grammar_work work);
/* Count work that expr.h does not count itself. */
void exprs_spend(struct exprs *x, uint64_t units);
size_t exprs_memory(const struct exprs *x);
size_t exprs_count(const struct exprs *x);
/* Return 0; -ENOMEM if full; -EAGAIN if the limit of exprs_allow() is reached; -E2BIG if too wide.
 * exprs_reset() clears -ENOMEM and -E2BIG; exprs_clear_over() clears -E2BIG alone. */
int exprs_error(const struct exprs *x);
void exprs_clear_over(struct exprs *x);

/* Return the derivative of e by byte class c, or EXPR_NEVER if no text follows.  Call after exprs_seal(). */
uint32_t expr_next(struct exprs *x, uint32_t e, int class);
bool expr_nullable(const struct exprs *x, uint32_t e);
bool expr_has_call(const struct exprs *x, uint32_t e);
int expr_depth(const struct exprs *x, uint32_t e); /* recursion depth of deriving e */
/* Return the set of bytes that e can begin with, calls excluded; a superset if e holds AND or NOT. */
const uint64_t *expr_first(struct exprs *x, uint32_t e);
/* Return true if some text matches e.  Exact; a call counts as a text. */
bool expr_alive(struct exprs *x, uint32_t e);

/* The calls that e can begin with: first rule, then rest.  The array is valid until the next expr_calls(). */
struct expr_call {
	uint32_t rule, rest;
};
const struct expr_call *expr_calls(struct exprs *x, uint32_t e, size_t *n);

/* Return an expression that no text of at most n bytes distinguishes from e as a prefix: counters beyond n
 * are cut. All calls use the same n. */
uint32_t expr_clamp(struct exprs *x, uint32_t e, uint32_t n);
/* Return true if no text of at most far bytes distinguishes e from its clamp.  All calls use the same far. */
bool expr_clamp_is_far(struct exprs *x, uint32_t e, uint32_t n, uint32_t far);

#endif
