/* line_exchange.h - run a line of a batch as an exchange without a connection.  Its body is passed unchanged
 * to the route that its url names, and the reply is left in the exchange (status and out) for released(). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_LINE_EXCHANGE_H
#define QUERN_CONTROLLER_ENDPOINTS_LINE_EXCHANGE_H

#include "controller/apis/generation.h"
#include "controller/http/exchange.h"
#include "controller/http/http.h"

#include <stdbool.h>
#include <stddef.h>

/* Return the route that a line's url names; NULL if a line may not use it. */
const struct http_route *line_exchange_route(const struct exchange_host *host, const char *url);
enum { LINE_EXCHANGE_URLS_SIZE = 240 };
/* "must be /v1/completions, ... or /score" */
void line_exchange_urls(const struct exchange_host *host, char out[LINE_EXCHANGE_URLS_SIZE]);

/* Make an exchange with this body.  line and route outlive it.  The caller sets released before it calls the
 * route, directly or by prep_put(), and then releases its reference.  NULL: the service stops. */
struct exchange *line_exchange_new(struct exchange_host *host, const struct http_route *route,
				   const struct generation_line *line, const char *body, size_t n);

/* For released(): return true if the line may be retried: it was refused for a reason other than its content
 * (the queue, the disk, a stopping service), or there is no reply. */
bool line_exchange_later(const struct exchange *x);

#endif
