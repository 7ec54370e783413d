/* record.h - a job's records in the journal, as bytes: the request, runs of tokens, outputs.
 * msgpack arrays, numbers in little-endian columns.  Each record ends in a checksum (XXH3) of its bytes and
 * its name, since SQLite does not detect a flipped byte within a row, nor a row in the wrong place.  Reading
 * is bounds-checked; a record that does not fit is -EBADMSG with the reason.
 *
 *   | msgpack array ...                        | checksum, 8 bytes |
 *   |<------- the cursor of record_open() ---->|                     name: "request ID", "tokens ID 0 128",
 * ...
 */
#ifndef QUERN_CONTROLLER_JOBS_RECORD_H
#define QUERN_CONTROLLER_JOBS_RECORD_H

#include "base/buf.h"
#include "controller/jobs/output.h"
#include "controller/message/submit.h"
#include "controller/message/trace_context.h"
#include "proto/cursor.h"

/* Appends the checksum.  name: which record of which job; not stored. */
void record_seal(struct buf *b, const char *name);
/* A cursor over the record without its checksum. */
int record_open(struct cursor *c, const void *bytes, size_t n, const char *name, char *why, size_t why_n);
/* After reading: 0 when every byte was read and valid. */
int record_close(struct cursor *c, char *why, size_t why_n);

/* A validated request, its times as wall clock: now_us and unix_us are both clocks' present. */
void record_put_request(struct buf *out, const struct submit *s, int64_t now_us, int64_t unix_us);
/* *out is the caller's, on success. */
int record_get_request(struct cursor *c, uint32_t n_vocab, int64_t now_us, int64_t unix_us,
		       struct submit **out, char *why, size_t why_n);

/* The trace that a job belongs to, without which it could not go on in it after a restart. */
void record_put_trace(struct buf *out, const struct trace_context *t);
/* *out: trace_context_fini(); empty if the cursor has failed. */
void record_get_trace(struct cursor *c, struct trace_context *out);

/* Tokens [from, to), with their logprobs if t has them, and if mu is not NULL with mirostat's mu behind them.
 */
void record_put_tokens(struct buf *out, const struct toklog *t, uint32_t from, uint32_t to,
		       const int32_t *mu);
struct record_tokens {
	uint32_t n;
	bool has_mu;
	struct engine_token
		*tokens; /* owned, as are the others; top0 points into them.  mu: that behind the last */
	uint32_t *top_ids;
	float *top_logprobs;
};
void record_get_tokens(struct cursor *c, struct record_tokens *out);
void record_tokens_fini(struct record_tokens *t);

/* An output that has ended, with its text. */
void record_put_output(struct buf *out, const struct output *o, const struct output_rules *r);
/* Into an initialised, empty output, which is unchanged if the cursor has failed. */
void record_get_output(struct cursor *c, struct output *o, const struct output_rules *r, uint32_t n_stop);

#endif
