/* turns.h - the outputs of a request token by token, in an order that depends on the tokens alone: the first
 * token of each output, the second of each, ..., each output's end behind its last one.  However the tokens
 * come, what is made of them is the same whenever it is made again.  Pure.
 *
 *     output 0   a b c .        turns_put(): as they come, any number at once
 *     output 1   x y .          turns_next(): a x b y c . .
 */
#ifndef QUERN_CONTROLLER_APIS_TURNS_H
#define QUERN_CONTROLLER_APIS_TURNS_H

#include "controller/message/job_event.h"

#include <stdbool.h>
#include <stdint.h>

struct turns;

struct turns *turns_new(uint32_t n_outputs);
void turns_free(struct turns *t); /* NULL is fine */

/* Takes what is new of an output, from its first token on: tokens with `starts`, the end with `tail`. */
void turns_put(struct turns *t, uint32_t output, const struct output_view *v);
/* The next token, or the next end: index is the output, its text that token's alone (an end's: what the end
 * added).  Borrowed until the next call of either.  false: it has not come yet, or turns_over(). */
bool turns_next(struct turns *t, struct output_view *one);
/* Every end was given. */
bool turns_over(const struct turns *t);

#endif
