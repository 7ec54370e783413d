/* http.h - the HTTP server: transport over libmicrohttpd, in front of a table of routes.
 * Owns: the listening sockets, connections, their requests until the reply has been sent (exchange.h), and
 * reply bytes that clients have not read yet.  libmicrohttpd's own threads check requests and call the
 * routes' functions; a later answer of a route resumes its connection.  Knows no resource: the application
 * owns the routes and their objects (struct http_app). */
#ifndef QUERN_CONTROLLER_HTTP_HTTP_H
#define QUERN_CONTROLLER_HTTP_HTTP_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct exchange;
struct exchange_host;
struct http;
struct http_failure;
struct service;

enum {
	ROUTE_PREFIX = 1,       /* path ends in '/': the rest of the URL is passed to the call */
	ROUTE_JSON = 2,         /* the body must be application/json */
	ROUTE_OPEN = 4,         /* needs no key */
	ROUTE_COUNTED = 8,      /* counts against a key's limits */
	ROUTE_QUEUED = 16,      /* creates jobs: refused while the queue is full */
	ROUTE_JSON_POST = 32,   /* a POST body must be application/json */
	ROUTE_ENDLESS = 64,     /* a stream that ends only when the service stops */
	ROUTE_LINE = 256,       /* may be the url of a line of a batch */
	ROUTE_REQUEST_ID = 128, /* each reply has the header request-id, generated per request */
	ROUTE_MONITOR = 512,    /* for monitoring: has no user data */
};

/* Append the body of an error, in the shape of an API. */
typedef void http_errors(struct buf *b, const struct http_failure *f);

struct http_route {
	const char *path;
	const char *allow; /* "GET, HEAD" or "POST" */
	/* Handles a complete request.  rest: the path after a prefix.  Leaves x in phase REPLY, WAITING or
	 * STREAM.  NULL: not built yet.  libmicrohttpd's thread, or a preparing thread (prep.h). */
	void (*call)(struct exchange *x, const char *rest);
	unsigned flags;
	/* May be NULL.  POST, headers complete: sets x->max_body and the work that takes the body chunk by
	 * chunk.  -EINVAL: the path does not take this body format. */
	int (*upload)(struct exchange *x);
	/* Writes the body of an error in the shape of the path's API: errors of the handler, and errors
	 * before any handler runs (no key, too large, too many).  NULL: OpenAI's (http_error.h). */
	http_errors *errors;
};

/* The application.  http_start() and http_stop() make all calls but those of the routes; start, quiesce,
 * drain and stop may be NULL. */
struct http_app {
	const struct http_route *routes;
	size_t n_routes;
	unsigned only; /* route flags: only routes with one of them are served; 0: all */
	void *user;    /* host->user */
	/* Returns the error shape of a request (headers complete, x->route set) whose route has none, for
	 * paths that several APIs share; NULL: OpenAI's.  May be NULL. */
	http_errors *(*errors_for)(const struct exchange *x);
	/* Returns true if preparing a request with this body may be slow even if the body is small.  NULL:
	 * never. */
	bool (*is_costly)(const char *body, size_t n);
	/* Called before the first request.  From then on the application may make exchanges without a
	 * connection. */
	int (*start)(void *user, struct exchange_host *host, struct why *why);
	/* Makes no more exchanges and aborts those in flight; afterwards all exchanges are ended. */
	void (*quiesce)(void *user);
	/* The connections have gone: answers the requests that wait for anything except the front end. */
	void (*drain)(void *user);
	/* Called when the last exchange has gone. */
	void (*stop)(void *user);
};

struct http_config {
	char addr[1024];             /* list for http_listen(); "none": do not listen; exchanges have no
				      * connection then */
	char access_log[1024];       /* file, "-": stdout, "": none */
	char api_keys[1024];         /* file of keys (api_keys.h); "": no key is needed */
	char cors[1024];             /* origins of pages that may use the server (cors.h); "": none */
	char tls_cert[1024];         /* PEM file with the chain; "": no TLS */
	char tls_key[1024];          /* PEM file */
	bool insecure;               /* allow addresses other than loopback without keys */
	uint32_t max_connections;    /* per listening socket; 0: 16384, or what RLIMIT_NOFILE allows */
	uint32_t timeout_s;          /* an idle connection is closed after this; 0: 120 */
	size_t max_unread_bytes;     /* per reply; above it the request is cancelled; 0: 4 MB */
	size_t max_unread_all_bytes; /* for all replies; above it, requests with more than a fair share unread
				      * are cancelled; 0: 512 MB */
};

/* Bind and start the threads; app is copied.  svc and app->user outlive the server.  -EINVAL: a malformed
 * address; -EPERM: an address that needs insecure; -EADDRINUSE and the like: from binding.  why has the
 * reason. */
int http_start(const struct service *svc, const struct http_app *app, const struct http_config *cfg,
	       struct http **out, struct why *why);

/* Return the bound addresses, in the format of cfg->addr, with the chosen ports; "": not listening. */
const char *http_address(const struct http *h);

/* Read the certificate again (tls.h), and log the result.  Any thread. */
void http_reload(struct http *h);

/* Prepare to stop: refuse requests for new work (POST to ROUTE_COUNTED) with 503, and close each connection
 * after its reply. */
void http_drain(struct http *h);
uint32_t http_n_draining(struct http *h); /* exchange_n_draining() */

/* Stop: accept no more connections, close all (their jobs are cancelled), then wait for the threads and until
 * the front end has released every listener.  The front end's thread must still run. */
void http_stop(struct http *h); /* NULL is fine */

#endif
