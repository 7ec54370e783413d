/* openai_batch.h - OpenAI's batch API: files of requests that run in the background.
 * Owns: the set of live batches, a thread that feeds their lines to the front end as room comes, and the
 * results until the output files are written.  Every line becomes durable jobs with keys of their
 * own, so that a batch survives a restart: a line without a result in the journal is
 * submitted again, and is the same job.
 *
 *   validating --> in_progress --> finalizing --> completed
 *        |failed        |cancelling, or expired     --> cancelled, expired
 *
 * A line runs through the code of its HTTP path (controller/apis/openai/completions.h), in an exchange
 * without a connection. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_OPENAI_BATCH_H
#define QUERN_CONTROLLER_ENDPOINTS_OPENAI_BATCH_H

#include "controller/request/field_table.h"
#include "controller/http/exchange.h"
#include "controller/http/api_keys.h"
#include "controller/jobs/file_store.h"

#include <jansson.h>

struct batches;
struct mailbox;

extern const char batches_schema[]; /* of the journal (journal.h), beside those of jobs and files */

enum {
	OPENAI_BATCH_LINES_MAX = 50000,
	OPENAI_BATCH_LINE_BYTES_MAX = 16 << 20,
	OPENAI_BATCH_LIVE_MAX = 1000, /* batches that have not ended */
	/* A key has at most so many times as many as are then left for others: alone three quarters. */
	OPENAI_BATCH_LIVE_PART = 3,
	OPENAI_BATCH_PRIORITY = 100, /* added to that of each line: lower runs first */
};

/* A live batch with this file as its input: a batch that starts again reads it from the beginning. */
file_used_by batches_with_input;

/* The journal's live batches are resumed, if need be when it can be opened.  host, mailbox and files are
 * borrowed. */
int batches_start(struct exchange_host *host, struct mailbox *mailbox, struct file_store *files,
		  struct batches **out, char *why, size_t why_n);
/* False: the journal could not be read yet.  No call below, but for the end, is allowed then. */
bool batches_ready(const struct batches *bs);
/* Submits no more lines.  Lines under way are dropped; their jobs continue, or wait in the journal.  Called
 * before exchange_stop_all(). */
void batches_quiesce(struct batches *bs);
/* Called after that, when the front end has released all listeners and the journal has ended
 * (journal_end()). */
void batches_stop(struct batches *bs); /* NULL is fine */

struct openai_batch_request {
	char owner[FILE_OWNER_SIZE];
	struct api_key_terms terms; /* of the owner; any priority for none */
	const char *input_file;
	const char *endpoint;
	const char *window;    /* "24h" */
	int64_t output_keep_s; /* 0: output files do not expire */
	const json_t *metadata;
};
/* done: once, on any thread: 0 with the batch as OpenAI shows it (borrowed), or -errno and why
 * (-EINVAL: the request is invalid, *param names the field; -EAGAIN: too many, or the disk fails). */
void batches_create(struct batches *bs, const struct openai_batch_request *r,
		    void (*done)(void *user, int rc, const json_t *batch, const char *param, const char *why),
		    void *user);
/* The caller's; NULL: no such batch of that owner. */
json_t *batches_get(struct batches *bs, const char *owner, const char *id);
/* Youngest first, behind `after`; an array, the caller's; NULL: no batch `after`. */
json_t *batches_list(struct batches *bs, const char *owner, const char *after, int max, bool *more);
/* The batch as it is then; NULL: no such batch.  *ended: nothing is left to cancel. */
json_t *batches_cancel(struct batches *bs, const char *owner, const char *id, bool *ended);

/* Of a request for a new batch. */
extern const struct field_table batches_fields;

/* Routes (http.h): /v1/batches, and one batch. */
void batches_call(struct exchange *x, const char *rest);
void batches_call_one(struct exchange *x, const char *rest);

#endif
