/* http.h - HTTP(S) requests of `quern pull`, several in parallel, through libcurl.
 *
 *     http_begin() ... http_begin()      start any number of calls
 *     http_wait()                        the next call that has ended, in any order
 *     http_end()                         releases a call that has ended, or abandons one
 *
 * Redirects are followed here, not by libcurl: up to 8, never from https to http.  The token is sent to one
 * origin (scheme, host and port) only, whatever a server redirects to, and over plain http only to this
 * machine. */
#ifndef QUERN_CLI_MODELS_HTTP_H
#define QUERN_CLI_MODELS_HTTP_H

#include "base/buf.h"
#include "base/err.h"
#include "cli/models/file_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http;

struct http_settings {
	const char *token;        /* NULL: none */
	const char *token_origin; /* source_origin() of the server that receives the token */
	const char *ca;           /* file of trusted certificates; NULL: the system's */
};

enum { HTTP_TEXT = 320 };

/* Reply of the last server in a chain of redirects; only `linked` is from the first server. */
struct http_reply {
	int status;                /* 0: no reply was received */
	int64_t length;            /* Content-Length; -1: not given */
	int64_t from, to, total;   /* Content-Range; -1: not given */
	int retry_after;           /* seconds; 0: not given */
	char etag[ETAG_SIZE];      /* without quotes; "" if absent or weak */
	char linked[DIGEST_HEX];   /* X-Linked-Etag, where it is a SHA-256 */
	char next[SOURCE_URL_MAX]; /* Link: <...>; rel="next" */
	char error[HTTP_TEXT];     /* X-Error-Message, or the beginning of an error's body */
	bool error_header;
};

struct http_call {
	/* Inputs. */
	const char *url;  /* borrowed until http_end() */
	int64_t from, to; /* a range, inclusive; from < 0: the whole file */
	/* Receives a chunk of the body of a 2xx reply; -errno aborts the call. */
	int (*body)(struct http_call *c, const char *p, size_t n);
	void *ctx;
	/* Results. */
	struct http_reply reply;
	int code;     /* error code of libcurl; 0: the reply is complete */
	int given_up; /* error that body() returned */
	/* Internal to http.c. */
	void *easy, *headers;
	char detail[256];
	char *at; /* current address, after redirects; owned */
	int n_redirects;
	struct http *http;
};

/* Prepare for calls; s is copied.  -EINVAL, -ENOENT, -EIO with the reason. */
int http_open(const struct http_settings *s, struct http **out, struct why *why);
void http_close(struct http *h); /* all calls must have ended; NULL is fine */

int http_begin(struct http *h, struct http_call *c, struct why *why);
/* Return a call that has ended; NULL: none within the time, or Ctrl-C. */
struct http_call *http_wait(struct http *h, int timeout_ms);
/* Release a call that http_begin() took, whether it has ended or not. */
void http_end(struct http *h, struct http_call *c);

/* Return whether the same request may succeed later: network errors, 429, 5xx. */
bool http_is_transient(const struct http_call *c);
/* Return the milliseconds to wait before retry nth (from 0): the server's Retry-After, or a growing delay. */
int http_delay_ms(const struct http_call *c, int nth);
enum { HTTP_RETRIES = 6, HTTP_RETRY_AFTER_MAX = 600 };

/* Format the error of a call that failed: cause and remedy.  Returns -errno. */
int http_why(const struct http_call *c, struct why *why);

/* Get the whole body, of at most max bytes, with retries and Ctrl-C (-EINTR).  The body is appended to out;
 * reply may be NULL.  max 0: fetch no body, only the reply's headers. */
int http_get(struct http *h, const char *url, size_t max, struct buf *out, struct http_reply *reply,
	     struct why *why);

#endif
