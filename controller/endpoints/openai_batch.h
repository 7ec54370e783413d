/* openai_batch.h - OpenAI's batch API: files of requests that run in the background.
 * Owns: the set of live batches, a thread that feeds their lines to the front end as room becomes available,
 * and the results until the output files are written.  Every line becomes durable jobs with their own keys,
 * so that a batch survives a restart: a line without a result in the journal is submitted again, and is the
 * same job.
 *
 *   validating --> in_progress --> finalizing --> completed
 *        |failed        |cancelling, or expired     --> cancelled, expired
 *
 * A line runs through the code of its HTTP path (controller/apis/openai/openai.h), in an exchange
 * without a connection. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_OPENAI_BATCH_H
#define QUERN_CONTROLLER_ENDPOINTS_OPENAI_BATCH_H

#include "base/err.h"
#include "controller/request/field_table.h"
#include "controller/http/exchange.h"
#include "controller/http/api_keys.h"
#include "controller/jobs/file_store.h"

#include <jansson.h>

struct batches;
struct mailbox;

extern const char batches_schema[]; /* SQL of the batches' tables in the journal (journal.h) */

enum {
	OPENAI_BATCH_LINES_MAX = 50000,
	OPENAI_BATCH_LINE_BYTES_MAX = 16 << 20,
	OPENAI_BATCH_LIVE_MAX = 1000, /* batches that have not ended */
	/* A key may have at most this many times the batches left for other keys: three quarters if it is
	 * alone. */
	OPENAI_BATCH_LIVE_PART = 3,
	OPENAI_BATCH_PRIORITY = 100, /* added to the priority of each line: lower runs first */
};

/* Report a live batch that has this file as its input: after a restart the batch reads the file from the
 * beginning. */
file_used_by batches_with_input;

/* Start, and resume the journal's live batches, later if the journal cannot be opened yet.  host, mailbox and
 * files are borrowed. */
int batches_start(struct exchange_host *host, struct mailbox *mailbox, struct file_store *files,
		  struct batches **out, struct why *why);
/* Return true once the journal has been read.  Before that, only batches_quiesce() and batches_stop() may be
 * called. */
bool batches_ready(const struct batches *bs);
/* Submit no more lines.  Lines in flight are dropped; their jobs continue, or wait in the journal.  Called
 * before exchange_stop_all(). */
void batches_quiesce(struct batches *bs);
/* Stop, after exchange_stop_all(), when the front end has released all listeners and the journal has ended
 * (journal_end()). */
void batches_stop(struct batches *bs); /* NULL is fine */

struct openai_batch_request {
	char owner[FILE_OWNER_SIZE];
	struct api_key_terms terms; /* terms of the owner's key; without a key, any priority */
	const char *input_file;
	const char *endpoint;
	const char *window;    /* "24h" */
	int64_t output_keep_s; /* 0: output files do not expire */
	const json_t *metadata;
};
/* Create a batch.  done is called once, on any thread: 0 with the batch in OpenAI's shape (borrowed), or
 * -errno and why (-EINVAL: the request is invalid, *param names the field; -EAGAIN: too many batches, or the
 * disk fails). */
void batches_create(struct batches *bs, const struct openai_batch_request *r,
		    void (*done)(void *user, int rc, const json_t *batch, const char *param, const char *why),
		    void *user);
/* Return a batch, which the caller owns; NULL: the owner has no such batch. */
json_t *batches_get(struct batches *bs, const char *owner, const char *id);
/* Return an array of batches, newest first, after the batch `after`.  The caller owns it.  NULL: no batch
 * `after`. */
json_t *batches_list(struct batches *bs, const char *owner, const char *after, int max, bool *more);
/* Cancel a batch and return its new state; NULL: no such batch.  *ended: there was nothing left to cancel. */
json_t *batches_cancel(struct batches *bs, const char *owner, const char *id, bool *ended);

/* Fields of a request for a new batch. */
extern const struct field_table batches_fields;

/* Routes (http.h): /v1/batches, and one batch. */
void batches_call(struct exchange *x, const char *rest);
void batches_call_one(struct exchange *x, const char *rest);

#endif
