/* http.h - the HTTP server: OpenAI's API over libmicrohttpd, in front of struct front.
 * Owns: connections, their requests until the reply has been sent, and the bytes of replies
 * that clients have not read yet.  Parses, tokenizes and hands over on libmicrohttpd's own
 * threads; events come back on the front end's thread and wake the connection. */
#ifndef QUERN_CONTROLLER_HTTP_H
#define QUERN_CONTROLLER_HTTP_H

#include "controller/front.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http;
struct journal;

struct http_config {
	char addr[256];           /* "127.0.0.1:8080", "[::1]:8080", "localhost:8080"; ":8080" is loopback;
				   * port 0: one that is free */
	char access_log[1024];    /* file, "-": stdout, "": none */
	char api_keys[1024];      /* file of keys (apikeys.h); "": none are asked for */
	char cors[1024];          /* origins whose pages may use it (cors.h); "": none */
	char tls_cert[1024];      /* PEM file with the chain; "": no TLS */
	char tls_key[1024];       /* PEM file */
	bool insecure;            /* other addresses than loopback are allowed without keys */
	uint32_t max_connections; /* 0: 16384, or what RLIMIT_NOFILE allows */
	uint32_t timeout_s;       /* an idle connection is closed after, 0: 120 */
	struct journal *journal;  /* for files and batches, or NULL; outlives HTTP */
	size_t max_file_bytes;    /* of an upload, 0: 200 MB */
	size_t max_unread_bytes;  /* of a reply; beyond it the request is cancelled; 0: 4 MB */
	size_t max_unread_all_bytes; /* of all replies; beyond it those are cancelled that leave more
				      * than a fair share of it; 0: 512 MB */
};

/* Binds and starts the threads.  front and svc outlive it.  -EINVAL for an address that is none,
 * -EPERM for one that needs insecure, -EADDRINUSE and the like from binding; why says it. */
int http_start(struct front *f, const struct service *svc, const struct http_config *cfg, struct http **out,
	       char *why, size_t why_n);

/* "127.0.0.1:8080", with the port that was chosen. */
const char *http_address(const struct http *h);

/* Accepts no more, closes all connections (their jobs are cancelled), waits for the threads and
 * for the front end to let go of every listener: the front end's thread must still run. */
void http_stop(struct http *h); /* NULL is fine */

#endif
