/* turns.h - the outputs of a request token by token, in an order that depends on the tokens alone: the first
 * token of each output, the second of each, ..., and each output's end after its last token.  The order does
 * not depend on how the tokens arrive, so whatever is built from it can be built again identically.  Pure.
 *
 *     output 0   a b c .        turns_put(): as they arrive, any number at once
 *     output 1   x y .          turns_next(): a x b y c . . */
#ifndef QUERN_CONTROLLER_APIS_TURNS_H
#define QUERN_CONTROLLER_APIS_TURNS_H

#include "controller/message/job_event.h"

#include <stdbool.h>
#include <stdint.h>

struct turns;

struct turns *turns_new(uint32_t n_outputs);
void turns_free(struct turns *t); /* NULL is fine */

/* Take the news of an output, from its first token on: tokens with `starts`, the end with `tail`. */
void turns_put(struct turns *t, uint32_t output, const struct output_view *v);
/* Return the next token or the next end.  one->index is the output; one's text belongs to that token alone,
 * or is the text that the end added.  Borrowed until the next call of turns_put() or turns_next().  false: it
 * has not arrived yet, or turns_over(). */
bool turns_next(struct turns *t, struct output_view *one);
/* Return true if every end was returned. */
bool turns_over(const struct turns *t);

#endif
