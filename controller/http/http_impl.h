/* http_impl.h - shared by http.c (lifecycle, libmicrohttpd's callbacks), http_check.c (which requests are
 * refused) and http_reply.c (responses and headers).  Private to them. */
#ifndef QUERN_CONTROLLER_HTTP_HTTP_IMPL_H
#define QUERN_CONTROLLER_HTTP_HTTP_IMPL_H

#include "controller/http/cors.h"
#include "controller/http/exchange.h"
#include "controller/http/http.h"
#include "controller/http/listen.h"
#include "controller/http/peers.h"

/* One instance of libmicrohttpd, for one listening socket. */
struct http_daemon {
	struct http *http;
	struct MHD_Daemon *mhd;
	int quiet_fd; /* the socket, from MHD_quiesce_daemon(); -1: none */
};

struct http {
	struct exchange_host host;
	struct http_app app;
	struct peers *peers;
	struct cors *cors; /* NULL: pages of other origins are not allowed */
	struct tls *tls;   /* NULL: no TLS */
	unsigned timeout_s;
	struct http_listeners listeners; /* empty: not listening */
	struct http_daemon daemons[HTTP_LISTENERS_MAX];
	size_t n_daemons;
};

static inline const char *http_header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* http_check.c */

/* Read the request's headers into x, and find its route or set the reply that refuses it.  fault: from
 * framing_fault().  true: the reply is sent before the body is received. */
bool http_check_headers(const struct http *h, struct exchange *x, struct MHD_Connection *c, const char *url,
			const char *method, const char *fault);
/* Return the rest of url after the route's path, as the client wrote it; NULL: the route does not match.  In
 * the path, repeated slashes count as one, and a trailing slash is ignored. */
const char *http_rest(const struct http_route *r, const char *url);
/* Take a chunk of the body.  false: the discarded bytes exceed their limit, and the connection is closed. */
bool http_take_body(struct exchange *x, const char *p, size_t n);

/* http_reply.c */

/* Queue the reply, suspend the connection, or close it (MHD_NO). */
enum MHD_Result http_respond(struct exchange *x, struct MHD_Connection *c);

#endif
