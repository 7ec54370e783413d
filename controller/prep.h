/* prep.h - threads for large requests: parsing and tokenizing them takes long enough to hold up
 * the streams of the libmicrohttpd thread on which they came. */
#ifndef QUERN_CONTROLLER_PREP_H
#define QUERN_CONTROLLER_PREP_H

#include "controller/exchange.h"

#include <stddef.h>

struct prep;

int prep_start(unsigned n_threads, struct prep **out, char *why, size_t why_n);
/* Finishes what is in hand and lets go of the rest.  NULL is fine. */
void prep_stop(struct prep *p);

/* Runs call(x, "") on one of the threads, in the order of putting; keeps a reference to x until
 * then.  x is parked; its connection may be gone by then, and the call must not look at it. */
void prep_put(struct prep *p, struct exchange *x, void (*call)(struct exchange *x, const char *rest));

#endif
