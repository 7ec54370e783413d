/* http_routes.h - what each path does: a complete request in an exchange to a reply in it, or to
 * jobs that will give one.  Run on libmicrohttpd's threads. */
#ifndef QUERN_CONTROLLER_HTTP_ROUTES_H
#define QUERN_CONTROLLER_HTTP_ROUTES_H

#include "controller/exchange.h"

struct http_route {
	const char *path;
	bool prefix;       /* path ends in '/': what follows is the call's */
	const char *allow; /* "GET, HEAD" or "POST" */
	bool post;
	/* rest: what follows a prefix.  Leaves x in phase REPLY or WAITING.  NULL: not built yet. */
	void (*call)(struct exchange *x, const char *rest);
};

/* NULL: no such path.  *rest: within url. */
const struct http_route *http_route_find(const char *url, const char **rest);

#endif
