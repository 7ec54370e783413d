/* checked.h - cache of request data that passed its check: forms (structured outputs) and DRY's sequence
 * breakers.
 * An application sends the same schema with each of a thousand requests: it is checked once.  Refused data is
 * not cached.  Bounded: the least recently used form is dropped first.  Owns a reference to each form.  Any
 * thread. */
#ifndef QUERN_CONTROLLER_REQUEST_CHECKED_H
#define QUERN_CONTROLLER_REQUEST_CHECKED_H

#include "proto/form.h"

struct checked;

/* Make a cache for at most form_bytes of forms' text. */
struct checked *checked_new(size_t form_bytes);
void checked_free(struct checked *c); /* NULL is fine */

/* Return a reference to the cached form equal to f; NULL if there is none, or c is NULL. */
struct form *checked_form(struct checked *c, const struct form *f);
/* Cache f, which passed its check.  Does nothing if c is NULL, or if f alone exceeds the cache's bytes. */
void checked_keep_form(struct checked *c, struct form *f);

/* Look up the tokens of the last breakers cached; false if their key differs.  *ids is a copy that the caller
 * frees, NULL if *n is 0.  key: key_n bytes that identify the strings. */
bool checked_breakers(struct checked *c, const void *key, size_t key_n, int32_t **ids, uint32_t *n);
void checked_keep_breakers(struct checked *c, const void *key, size_t key_n, const int32_t *ids, uint32_t n);

#endif
