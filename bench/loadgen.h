/* loadgen.h - many streamed requests to an OpenAI-compatible server at once, with the arrival times
 * of their chunks.  One thread, libcurl's multi interface on epoll. */
#ifndef QUERN_BENCH_LOADGEN_H
#define QUERN_BENCH_LOADGEN_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A request: when to send it, and its outcome.  The first three members are set by the caller. */
struct load_request {
	int64_t at_us;               /* since the run began; the array is sorted by it */
	uint32_t n_prompt, n_output; /* tokens requested */

	int64_t sent_us;   /* since the run began; -1: never sent */
	int64_t last_us;   /* since it was sent: the last chunk with a choice */
	int64_t *chunk_us; /* [n_chunks] owned; since it was sent: each chunk with tokens */
	uint32_t n_chunks, cap_chunks;
	uint32_t got_prompt, got_output; /* tokens by the server's usage; 0: without usage */
	char *text;                      /* owned; NULL unless keep_text */
	char *error;                     /* owned; the reason of a failure; NULL: complete */
};
void load_request_fini(struct load_request *r);

struct load_progress {
	size_t n_done, n_failed, n_running, n_waiting; /* waiting: due, without a place */
	uint64_t n_tokens;                             /* chunks with tokens, so far */
	int64_t now_us;
};

struct load_config {
	const char *url;     /* of the completions or chat completions; http or https */
	const char *api_key; /* NULL: none */
	size_t max_running;  /* 0: no bound */
	int64_t timeout_us;  /* of one request, from its beginning to its end */
	bool keep_text;
	/* The JSON of request nth into out, which is empty. */
	void (*body)(void *ctx, size_t nth, struct buf *out);
	/* About five times a second; NULL: none. */
	void (*progress)(void *ctx, const struct load_progress *p);
	void *ctx;
};

struct load_totals {
	int64_t duration_us;
	int64_t cpu_us;     /* of this thread */
	size_t max_running; /* the most at one time */
	bool interrupted; /* by Ctrl-C (term.h, armed by the caller): running requests were cut, the rest not
			     sent */
};

/* Sends v[0..n) and waits for their ends.  Failures of requests are in their `error`; -errno only if the run
 * could not start. */
int load_run(const struct load_config *c, struct load_request *v, size_t n, struct load_totals *out,
	     char *why, size_t why_n);

/* One request and its JSON reply: GET without a body (NULL), else POST.  *out is the caller's.
 * -ECONNREFUSED and the like; -EREMOTEIO: the server answered with an error, which is in why;
 * -EPROTO: the reply is not JSON. */
int load_call(const char *url, const char *api_key, const char *body, json_t **out, char *why, size_t why_n);

/* A parsed chunk of a stream.  Borrows from the JSON. */
struct load_chunk {
	bool has_choice;
	bool has_tokens;                 /* not only a role, not only an end */
	bool finished;                   /* a finish_reason */
	const char *text;                /* "" where there is none */
	const char *error;               /* the server's message; NULL: none */
	uint32_t got_prompt, got_output; /* 0: no usage */
};
void load_chunk_read(const json_t *event, struct load_chunk *out);

#endif
