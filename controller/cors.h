/* cors.h - which web pages of other origins may use the HTTP API from a browser. */
#ifndef QUERN_CONTROLLER_CORS_H
#define QUERN_CONTROLLER_CORS_H

#include <stdbool.h>
#include <stddef.h>

struct cors;

/* list: "https://a.example,http://localhost:3000", or "*" for all.  -EINVAL: an entry that is no
 * origin (scheme://host[:port], nothing behind), why names it. */
int cors_parse(const char *list, struct cors **out, char *why, size_t why_n);
void cors_free(struct cors *c); /* NULL is fine */

/* Whether a request with this Origin may see the reply.  c NULL: none may; origin NULL: no. */
bool cors_allows(const struct cors *c, const char *origin);
/* Whether a page of this origin came from where its request goes: http(s):// and the header Host. */
bool cors_is_own(const char *origin, const char *host);

#endif
