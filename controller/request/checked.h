/* checked.h - what requests asked for before and what was found right: forms, and DRY's sequence breakers.
 * An application sends the same schema with each of a thousand requests: it is checked once.  What was
 * refused is not kept.  Bounded: the form that was not asked for the longest time goes first.  Owns a
 * reference of each form.  Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_CHECKED_H
#define QUERN_CONTROLLER_REQUEST_CHECKED_H

#include "proto/form.h"

struct checked;

/* For at most form_bytes of forms' text. */
struct checked *checked_new(size_t form_bytes);
void checked_free(struct checked *c); /* NULL is fine */

/* A reference to the form that is the same as f; NULL: none is known, or c is NULL. */
struct form *checked_form(struct checked *c, const struct form *f);
/* f is right.  Nothing where c is NULL, or where f alone has more bytes than all may have. */
void checked_keep_form(struct checked *c, struct form *f);

/* The tokens of the breakers that were kept last, if it was under this key: *ids is a copy, to be freed, or
 * NULL where *n is 0.  The key, n bytes, says the strings. */
bool checked_breakers(struct checked *c, const void *key, size_t key_n, int32_t **ids, uint32_t *n);
void checked_keep_breakers(struct checked *c, const void *key, size_t key_n, const int32_t *ids, uint32_t n);

#endif
