/* loadgen.h - sends many concurrent streamed requests to an OpenAI-compatible server, and records the arrival
 * times of their chunks.
 * One thread, libcurl's multi interface on epoll. */
#ifndef QUERN_BENCH_LOADGEN_H
#define QUERN_BENCH_LOADGEN_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A request: its send time and its outcome.  The caller sets at_us, n_prompt, n_output and follows. */
struct load_request {
	int64_t at_us;               /* time since the run began; the array is sorted by it */
	uint32_t n_prompt, n_output; /* tokens requested */
	bool follows; /* send when the previous request in the array has ended, ignoring at_us; fails if that
		       * request fails */

	int64_t sent_us;   /* time since the run began; -1: never sent */
	int64_t last_us;   /* time from sending to the last chunk with a choice */
	int64_t *chunk_us; /* [n_chunks] owned; time from sending to each chunk with tokens */
	uint32_t n_chunks, cap_chunks;
	uint32_t got_prompt, got_output; /* tokens in the server's usage; 0: without usage */
	char *text;                      /* owned; NULL unless keep_text */
	char *error;                     /* owned; the reason of a failure; NULL: completed */
};
void load_request_fini(struct load_request *r);

struct load_progress {
	size_t n_done, n_failed, n_running, n_waiting; /* waiting: due, but max_running requests are
						        * running */
	uint64_t n_tokens;                             /* chunks with tokens so far */
	int64_t now_us;
};

struct load_config {
	const char *url;     /* URL of the completions or chat completions; http or https */
	const char *socket;  /* path of the Unix socket to connect to; NULL: the host of the url */
	const char *api_key; /* NULL: none */
	size_t max_running;  /* limit of concurrent requests; 0: none */
	int64_t timeout_us;  /* for one request, from its beginning to its end */
	bool keep_text;
	/* Write the JSON of request nth into out, which is empty. */
	void (*body)(void *ctx, size_t nth, struct buf *out);
	/* Called about five times a second; NULL: never. */
	void (*progress)(void *ctx, const struct load_progress *p);
	void *ctx;
};

struct load_totals {
	int64_t duration_us;
	int64_t cpu_us;     /* CPU time of this thread */
	size_t max_running; /* most concurrent requests */
	bool interrupted; /* Ctrl-C (term.h, armed by the caller) cut the running requests; the rest were not
			   * sent */
};

/* Send v[0..n) and wait until all have ended.  Failures of requests are in their `error`; -errno only if the
 * run could not start. */
int load_run(const struct load_config *c, struct load_request *v, size_t n, struct load_totals *out,
	     struct why *why);

/* Send one request and read its JSON reply: GET without a body (NULL), else POST.  The caller owns *out.
 * socket: as in struct load_config.  -ECONNREFUSED and the like; -EREMOTEIO: the server replied with an
 * error, which is in why; -EPROTO: the reply is not JSON. */
int load_call(const char *url, const char *socket, const char *api_key, const char *body, json_t **out,
	      struct why *why);

/* A parsed chunk of a stream; borrows from the JSON. */
struct load_chunk {
	bool has_choice;
	bool has_tokens;                 /* the chunk has more than a role or a finish reason */
	bool finished;                   /* the chunk has a finish_reason */
	const char *text;                /* "" if there is none */
	const char *error;               /* the server's message; NULL: none */
	uint32_t got_prompt, got_output; /* tokens in the usage; 0: no usage */
};
void load_chunk_read(const json_t *event, struct load_chunk *out);

#endif
