/* cors.h - decide which web pages of other origins may use the HTTP API from a browser. */
#ifndef QUERN_CONTROLLER_HTTP_CORS_H
#define QUERN_CONTROLLER_HTTP_CORS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct cors;

/* Parse list: "https://a.example,http://localhost:3000", or "*" for all.  -EINVAL: an entry is not an origin
 * (scheme://host[:port] and nothing more); why names it. */
int cors_parse(const char *list, struct cors **out, struct why *why);
void cors_free(struct cors *c); /* NULL is fine */

/* Return true if a request with this Origin may see the reply.  c NULL: no origin may; origin NULL: false. */
bool cors_allows(const struct cors *c, const char *origin);
/* Return true if the request's host served the page: origin is http(s):// and the header Host. */
bool cors_is_own(const char *origin, const char *host);

#endif
