/* prep.h - threads that prepare large requests: parsing and tokenizing them would delay the streams of
 * the libmicrohttpd thread on which they came. */
#ifndef QUERN_CONTROLLER_HTTP_PREP_H
#define QUERN_CONTROLLER_HTTP_PREP_H

#include "controller/http/exchange.h"

#include <stddef.h>

struct prep;

int prep_start(unsigned n_threads, struct prep **out, char *why, size_t why_n);
/* Finishes the calls that run and drops the rest.  NULL is fine. */
void prep_stop(struct prep *p);

/* Runs call(x, "") on one of the threads, first come first served; keeps a reference to x until
 * then.  x is parked; its connection may be gone by then, and the call must not look at it. */
void prep_put(struct prep *p, struct exchange *x, void (*call)(struct exchange *x, const char *rest));

#endif
