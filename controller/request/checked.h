/* checked.h - cache of request data that passed its check: constraints (structured outputs) and DRY's
 * sequence breakers.
 * An application sends the same schema with each of a thousand requests: it is checked once.  Refused data is
 * not cached.  Bounded: the least recently used constraint is dropped first.  Owns a reference to each
 * constraint.  Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_CHECKED_H
#define QUERN_CONTROLLER_REQUEST_CHECKED_H

#include "proto/constraint.h"

struct checked;

/* Make a cache for at most constraint_bytes of constraints' text. */
struct checked *checked_new(size_t constraint_bytes);
void checked_free(struct checked *c); /* NULL is fine */

/* Return a reference to the cached constraint equal to f; NULL if there is none, or c is NULL. */
struct constraint *checked_constraint(struct checked *c, const struct constraint *f);
/* Cache f, which passed its check.  Does nothing if c is NULL, or if f alone exceeds the cache's bytes. */
void checked_keep_constraint(struct checked *c, struct constraint *f);

/* Look up the tokens of the last breakers cached; false if their key differs.  *ids is a copy that the caller
 * frees, NULL if *n is 0.  key: key_n bytes that identify the strings. */
bool checked_breakers(struct checked *c, const void *key, size_t key_n, int32_t **ids, uint32_t *n);
void checked_keep_breakers(struct checked *c, const void *key, size_t key_n, const int32_t *ids, uint32_t n);

#endif
