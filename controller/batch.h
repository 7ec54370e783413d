/* batch.h - batches: files of requests that are carried out in the background (OpenAI's batch API).
 * Owns: the live batches, a thread that feeds their lines to the front end as room comes, and the
 * results until the output files are written.  Every line becomes durable jobs with keys of their
 * own, so that a batch survives whatever dies: a line whose result is not in the journal is
 * submitted again, and is the same job.
 *
 *   validating --> in_progress --> finalizing --> completed
 *        |failed        |cancelling, or expired     --> cancelled, expired
 *
 * Lines run through the very code of their HTTP path (exchange.h), without a connection. */
#ifndef QUERN_CONTROLLER_BATCH_H
#define QUERN_CONTROLLER_BATCH_H

#include "controller/exchange.h"
#include "controller/filestore.h"

#include <jansson.h>

struct batches;

enum {
	BATCH_LINES_MAX = 50000,
	BATCH_LINE_BYTES_MAX = 16 << 20,
	BATCH_LIVE_MAX = 1000, /* batches that have not ended */
	BATCH_PRIORITY = 100,  /* added to that of each line: lower runs first */
};

/* Live batches of an earlier life go on.  host and files are borrowed. */
int batches_start(struct exchange_host *host, struct filestore *files, struct batches **out, char *why,
		  size_t why_n);
/* Feeds no more; lines under way are let go of, their jobs go on or wait in the journal.  Called
 * before exchange_stop_all(). */
void batches_quiesce(struct batches *bs);
/* After it, when the front end has let go of all and the journal has ended (journal_end()). */
void batches_stop(struct batches *bs); /* NULL is fine */

struct batch_request {
	char owner[FILE_OWNER_SIZE];
	uint32_t share;
	const char *input_file;
	const char *endpoint;
	const char *window;    /* "24h" */
	int64_t output_keep_s; /* 0: output files do not expire */
	const json_t *metadata;
};
/* done: once, on any thread: 0 with the batch as OpenAI shows it (borrowed), or -errno and why
 * (-EINVAL: the request is wrong, *param names the key; -EAGAIN: too many, or the disk fails). */
void batches_create(struct batches *bs, const struct batch_request *r,
		    void (*done)(void *user, int rc, const json_t *batch, const char *param, const char *why),
		    void *user);
/* The caller's; NULL: no such batch of that owner. */
json_t *batches_get(struct batches *bs, const char *owner, const char *id);
/* Youngest first, behind `after`; an array, the caller's; NULL: no batch `after`. */
json_t *batches_list(struct batches *bs, const char *owner, const char *after, int max, bool *more);
/* The batch after it; NULL: no such batch.  *ended: nothing is left to cancel. */
json_t *batches_cancel(struct batches *bs, const char *owner, const char *id, bool *ended);

/* "90s", "30m", "24h", "7d", up to 30 days, in seconds; -1: none of these. */
int64_t batch_window_s(const char *text);

#endif
