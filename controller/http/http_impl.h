/* http_impl.h - what http.c (lifecycle, libmicrohttpd's callbacks), http_check.c (what a request is
 * refused for) and http_reply.c (responses and their headers) share.  For these only. */
#ifndef QUERN_CONTROLLER_HTTP_HTTP_IMPL_H
#define QUERN_CONTROLLER_HTTP_HTTP_IMPL_H

#include "controller/http/cors.h"
#include "controller/http/exchange.h"
#include "controller/http/http.h"
#include "controller/http/listen.h"
#include "controller/http/peers.h"

struct http {
	struct exchange_host host;
	struct http_app app;
	struct MHD_Daemon *daemon;
	struct peers *peers;
	struct cors *cors; /* NULL: no page of another origin */
	struct tls *tls;   /* NULL: no TLS */
	unsigned timeout_s;
	int listen_fd; /* until libmicrohttpd has its own descriptor of it; -1: not open */
	int quiet_fd;  /* that descriptor, from MHD_quiesce_daemon(); -1: none */
	bool v6;
	char address[HTTP_ADDRESS_SIZE];
};

static inline const char *http_header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* http_check.c */

/* The request's headers into x; its route, or the reply that refuses it.  fault: framing_fault()'s.  true:
 * the reply is sent before the body comes. */
bool http_check_headers(const struct http *h, struct exchange *x, struct MHD_Connection *c, const char *url,
			const char *method, const char *fault);
/* A part of the body.  false: more came than is passed over, the connection is closed. */
bool http_take_body(struct exchange *x, const char *p, size_t n);

/* http_reply.c */

/* Queues the reply, suspends the connection, or (MHD_NO) closes it. */
enum MHD_Result http_respond(struct exchange *x, struct MHD_Connection *c);

#endif
