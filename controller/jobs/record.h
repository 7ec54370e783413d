/* record.h - a job's records in the journal, as bytes: the request, runs of tokens, outputs.
 * msgpack arrays, numbers in little-endian columns.  Each record ends with a checksum (XXH3) of its bytes and
 * its name, because SQLite does not detect a flipped byte within a row, nor a row in the wrong place.
 * Reading is bounds-checked; an invalid record is -EBADMSG with the reason.
 *
 *   | msgpack array ...                        | checksum, 8 bytes |
 *   |<------- the cursor of record_open() ---->|
 *
 * A record's name is "request ID", "tokens ID 0 128" or the like. */
#ifndef QUERN_CONTROLLER_JOBS_RECORD_H
#define QUERN_CONTROLLER_JOBS_RECORD_H

#include "base/buf.h"
#include "base/err.h"
#include "controller/jobs/output.h"
#include "controller/message/submit.h"
#include "controller/message/trace_context.h"
#include "proto/cursor.h"

/* Append the checksum.  name: which record of which job; not stored. */
void record_seal(struct buf *b, const char *name);
/* Check the checksum and set a cursor over the record without it. */
int record_open(struct cursor *c, const void *bytes, size_t n, const char *name, struct why *why);
/* End reading: 0 if every byte was read and valid. */
int record_close(struct cursor *c, struct why *why);

/* Append a validated request, with its times as wall clock.  now_us and unix_us are the current time of both
 * clocks. */
void record_put_request(struct buf *out, const struct submit *s, int64_t now_us, int64_t unix_us);
/* Read a request.  On success the caller owns *out. */
int record_get_request(struct cursor *c, uint32_t n_vocab, int64_t now_us, int64_t unix_us,
		       struct submit **out, struct why *why);

/* Read a request of a journal before format 4 and append it as record_put_request() would. */
int record_migrate_request(struct cursor *c, struct buf *out, struct why *why);

/* Append the trace to which a job belongs, so that the job stays in it after a restart. */
void record_put_trace(struct buf *out, const struct trace_context *t);
/* Read a trace.  *out: trace_context_fini(); empty if the cursor has failed. */
void record_get_trace(struct cursor *c, struct trace_context *out);

/* Append tokens [from, to), with their logprobs if t has them, and, if mu is not NULL, mirostat's mu after
 * the last token. */
void record_put_tokens(struct buf *out, const struct toklog *t, uint32_t from, uint32_t to,
		       const int32_t *mu);
struct record_tokens {
	uint32_t n;
	bool has_mu;
	struct engine_token
		*tokens; /* owned, as are top_ids and top_logprobs; top0 points into them.  mu: value after
			  * the last token */
	uint32_t *top_ids;
	float *top_logprobs;
};
void record_get_tokens(struct cursor *c, struct record_tokens *out);
void record_tokens_fini(struct record_tokens *t);

/* Append an output that has ended, with its text. */
void record_put_output(struct buf *out, const struct output *o, const struct output_rules *r);
/* Read an output into an initialised, empty one, which is unchanged if the cursor has failed. */
void record_get_output(struct cursor *c, struct output *o, const struct output_rules *r, uint32_t n_stop);

#endif
