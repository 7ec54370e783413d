/* http_routes.h - what each path does: a complete request in an exchange to a reply in it, or to
 * jobs that will give one.  Run on libmicrohttpd's threads. */
#ifndef QUERN_CONTROLLER_HTTP_ROUTES_H
#define QUERN_CONTROLLER_HTTP_ROUTES_H

#include "controller/exchange.h"

enum {
	ROUTE_PREFIX = 1, /* path ends in '/': what follows is the call's */
	ROUTE_JSON = 2,   /* the body is application/json */
	ROUTE_OPEN = 4,   /* needs no key */
	ROUTE_COUNTED = 8, /* against a key's limits */
	ROUTE_QUEUED = 16, /* becomes jobs: refused while the queue is full */
	ROUTE_UPLOAD = 32, /* POST: the body is a form with a file in it (http_files.h) */
	ROUTE_JSON_POST = 64, /* POST: the body is application/json */
};

struct http_route {
	const char *path;
	const char *allow; /* "GET, HEAD" or "POST" */
	/* rest: what follows a prefix.  Leaves x in phase REPLY or WAITING.  NULL: not built yet. */
	void (*call)(struct exchange *x, const char *rest);
	unsigned marks;
};

/* NULL: no such path.  *rest: within url. */
const struct http_route *http_route_find(const char *url, const char **rest);

#endif
