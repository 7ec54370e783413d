/* prep.h - hands large requests to the pool of preparing threads: parsing and tokenizing them would delay the
 * streams of the libmicrohttpd thread on which they came.
 * A client of the pool is a key; without keys, an address (of IPv6, the network of 64 bits). */
#ifndef QUERN_CONTROLLER_HTTP_PREP_H
#define QUERN_CONTROLLER_HTTP_PREP_H

#include "base/work_pool.h"
#include "controller/http/exchange.h"

/* Runs call(x, "") on one of the threads in the client's turn, unless the client has left by then; keeps a
 * reference to x until then.  x is parked; its connection may be gone, and the call must not look at it.
 * Where the client's queue is full, x gets 429 as its reply, where all are, 503. */
void prep_put(struct exchange *x, void (*call)(struct exchange *x, const char *rest));

/* The client's name for the pool. */
void prep_client(const struct exchange *x, char out[WORK_CLIENT_SIZE]);

#endif
