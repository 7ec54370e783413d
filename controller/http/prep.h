/* prep.h - hand large and costly requests to the pool of preparing threads.  Parsing, tokenizing and
 * compiling them on a libmicrohttpd thread would delay that thread's streams.  A client of the pool is a key;
 * without keys, an address (for IPv6, its /64 network). */
#ifndef QUERN_CONTROLLER_HTTP_PREP_H
#define QUERN_CONTROLLER_HTTP_PREP_H

#include "base/work_pool.h"
#include "controller/http/exchange.h"

/* Call x's route with a copy of rest on a pool thread, in the client's turn, unless the client has
 * disconnected by then.  Keeps a reference to x until then.  costly: see work_pool.h.  x is parked; its
 * connection may be gone, and the call must not use it.  If the client's queue is full, the reply is 429; if
 * all queues are full, 503. */
void prep_put(struct exchange *x, const char *rest, bool costly);

/* Write the client's name for the pool to out. */
void prep_client(const struct exchange *x, char out[WORK_CLIENT_SIZE]);

#endif
