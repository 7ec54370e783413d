/* http.h - the HTTP server: transport over libmicrohttpd, in front of a table of routes.
 * Owns: the listening socket, connections, their requests until the reply has been sent (exchange.h),
 * and the bytes of replies that clients have not read yet.  Requests are checked, and the routes'
 * functions called, on libmicrohttpd's own threads; what a route answers later wakes its connection.
 * Names no resource: the routes and their objects are the application's (struct http_app). */
#ifndef QUERN_CONTROLLER_HTTP_HTTP_H
#define QUERN_CONTROLLER_HTTP_HTTP_H

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
	ROUTE_PREFIX = 1,       /* path ends in '/': the rest is passed to the call */
	ROUTE_JSON = 2,         /* the body is application/json */
	ROUTE_OPEN = 4,         /* needs no key */
	ROUTE_COUNTED = 8,      /* against a key's limits */
	ROUTE_QUEUED = 16,      /* becomes jobs: refused while the queue is full */
	ROUTE_JSON_POST = 32,   /* POST: the body is application/json */
	ROUTE_ENDLESS = 64,     /* a stream that ends with the service */
	ROUTE_REQUEST_ID = 128, /* each reply has the header request-id, drawn for the request */
};

/* Appends the body of an error, in the shape of an API. */
typedef void http_errors(struct buf *b, const struct http_failure *f);

struct http_route {
	const char *path;
	const char *allow; /* "GET, HEAD" or "POST" */
	/* A complete request.  rest: the path behind a prefix.  Leaves x in phase REPLY, WAITING or STREAM.
	 * NULL: not built yet.  libmicrohttpd's thread, or a preparing one (prep.h). */
	void (*call)(struct exchange *x, const char *rest);
	unsigned flags;
	/* May be NULL.  POST, headers complete: sets the work that takes the body as it comes, and
	 * x->max_body.  -EINVAL: the body is not the form that this path takes. */
	int (*upload)(struct exchange *x);
	/* The body of an error, in the shape of the API that the path belongs to: of a handler's errors and
	 * of those before any handler runs (no key, too large, too many).  NULL: OpenAI's (http_error.h). */
	http_errors *errors;
};

/* What is served.  All but the routes' calls come from http_start() and http_stop(). */
struct http_app {
	const struct http_route *routes;
	size_t n_routes;
	void *user; /* host->user */
	/* The shape of errors of a request (its headers are there, x->route is set) whose route has none, for
	 * paths of several APIs; NULL: OpenAI's.  May be NULL. */
	http_errors *(*errors_for)(const struct exchange *x);
	/* Before the first request.  From then on it may make exchanges without a connection. */
	int (*start)(void *user, struct exchange_host *host, char *why, size_t why_n);
	/* Makes no more of these and aborts those under way; then all exchanges are ended. */
	void (*quiesce)(void *user);
	/* The connections have gone: answers requests that wait for anything but the front end. */
	void (*drain)(void *user);
	/* The last exchange has gone. */
	void (*stop)(void *user);
};

struct http_config {
	char addr[256];              /* "127.0.0.1:8080", "[::1]:8080", "localhost:8080"; ":8080" is loopback;
				      * port 0: one that is free */
	char access_log[1024];       /* file, "-": stdout, "": none */
	char api_keys[1024];         /* file of keys (api_keys.h); "": requests need none */
	char cors[1024];             /* origins of pages that may use it (cors.h); "": none */
	char tls_cert[1024];         /* PEM file with the chain; "": no TLS */
	char tls_key[1024];          /* PEM file */
	bool insecure;               /* other addresses than loopback are allowed without keys */
	uint32_t max_connections;    /* 0: 16384, or what RLIMIT_NOFILE allows */
	uint32_t timeout_s;          /* an idle connection is closed after, 0: 120 */
	size_t max_unread_bytes;     /* of a reply; beyond it the request is cancelled; 0: 4 MB */
	size_t max_unread_all_bytes; /* of all replies; beyond it those are cancelled that leave more
				      * than a fair share of it; 0: 512 MB */
};

/* Binds and starts the threads; app is copied.  svc and app->user outlive the server.  -EINVAL for an
 * address that is malformed, -EPERM for one that needs insecure, -EADDRINUSE and the like from binding;
 * why has the reason. */
int http_start(const struct service *svc, const struct http_app *app, const struct http_config *cfg,
	       struct http **out, char *why, size_t why_n);

/* "127.0.0.1:8080", with the port that was chosen. */
const char *http_address(const struct http *h);

/* Reads the certificate again (tls.h), and logs what came of it.  Any thread. */
void http_reload(struct http *h);

/* Before the end: requests for new work (POST to ROUTE_COUNTED) are refused with 503, every reply closes its
 * connection. */
void http_drain(struct http *h);
uint32_t http_n_draining(struct http *h); /* exchange_n_draining() */

/* Accepts no more connections, closes all (their jobs are cancelled), waits for the threads and until the
 * front end has released every listener: the front end's thread must still run. */
void http_stop(struct http *h); /* NULL is fine */

#endif
