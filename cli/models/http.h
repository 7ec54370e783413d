/* http.h - HTTP(S) requests of `quern pull`, several at a time, through libcurl.
 *
 *     http_begin() ... http_begin()      up to as many as the caller likes
 *     http_wait()                        the next call that has ended, in any order
 *     http_end()                         of an ended call, or one that is to be given up
 *
 * Redirects are followed here, not by libcurl: up to 8, never from https to http.  The token is sent to one
 * origin (scheme, host and port) only, whatever a server redirects to, and over plain http only to this
 * machine. */
#ifndef QUERN_CLI_MODELS_HTTP_H
#define QUERN_CLI_MODELS_HTTP_H

#include "base/buf.h"
#include "cli/models/file_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http;

struct http_settings {
	const char *token;        /* NULL: none */
	const char *token_origin; /* source_origin() of the server that gets it */
	const char *ca;           /* file of certificates to trust, or NULL for the system's */
};

enum { HTTP_TEXT = 320 };

/* What the last server of a chain of redirects replied; the X- fields are the first server's. */
struct http_reply {
	int status;                /* 0: none came */
	int64_t length;            /* Content-Length; -1: not given */
	int64_t from, to, total;   /* Content-Range; -1: not given */
	int retry_after;           /* seconds; 0: not given */
	char etag[ETAG_SIZE];      /* without quotes; "" if absent or weak */
	char linked[DIGEST_HEX];   /* X-Linked-Etag, where it is a SHA-256 */
	char next[SOURCE_URL_MAX]; /* Link: <...>; rel="next" */
	char error[HTTP_TEXT];     /* X-Error-Message, or the beginning of the body of an error */
	bool error_header;
};

struct http_call {
	/* In. */
	const char *url;  /* borrowed until http_end() */
	int64_t from, to; /* a range, inclusive; from < 0: all */
	/* Takes a part of the body of a 2xx reply; -errno gives the call up. */
	int (*body)(struct http_call *c, const char *p, size_t n);
	void *ctx;
	/* Out. */
	struct http_reply reply;
	int code;     /* of libcurl; 0: the reply is complete */
	int given_up; /* what body() returned */
	/* http.c's. */
	void *easy, *headers;
	char detail[256];
	char *at; /* the address now, behind redirects; owned */
	int n_redirects;
	struct http *http;
};

/* Copies s.  -EINVAL, -ENOENT, -EIO with the reason. */
int http_open(const struct http_settings *s, struct http **out, char *why, size_t why_n);
void http_close(struct http *h); /* all calls have ended; NULL is fine */

int http_begin(struct http *h, struct http_call *c, char *why, size_t why_n);
/* An ended call; NULL: none within the time, or Ctrl-C. */
struct http_call *http_wait(struct http *h, int timeout_ms);
/* Forgets a call, ended or not, that http_begin() took. */
void http_end(struct http *h, struct http_call *c);

/* Whether the same request may succeed later: the network, 429, 5xx. */
bool http_is_transient(const struct http_call *c);
/* Milliseconds to wait before the Nth try again (from 0), as the server or a growing delay has it. */
int http_delay_ms(const struct http_call *c, int nth);
enum { HTTP_RETRIES = 6, HTTP_RETRY_AFTER_MAX = 600 };

/* The error of an ended call that did not succeed: cause and remedy.  -errno. */
int http_why(const struct http_call *c, char *why, size_t why_n);

/* The whole body of at most max bytes, with tries again and Ctrl-C (-EINTR).  out is appended to.  reply may
 * be NULL.  max 0: the body is not wanted, only what the reply says of it. */
int http_get(struct http *h, const char *url, size_t max, struct buf *out, struct http_reply *reply,
	     char *why, size_t why_n);

#endif
