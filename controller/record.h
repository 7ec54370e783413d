/* record.h - what the journal keeps of a job, as bytes: the request, runs of tokens, outputs.
 * msgpack without keys, numbers in little-endian columns, and behind each record its checksum
 * (XXH3), which also covers what it belongs to: SQLite does not notice a flipped byte within a
 * row.  Reading is bounds-checked; a record that does not fit is -EBADMSG with the reason. */
#ifndef QUERN_CONTROLLER_RECORD_H
#define QUERN_CONTROLLER_RECORD_H

#include "base/buf.h"
#include "controller/output.h"
#include "proto/cursor.h"

/* The checksum of all of b; whose: what it belongs to ("request 0af3..."), not in it itself. */
void record_seal(struct buf *b, const char *whose);
/* A cursor over the record without its checksum. */
int record_open(struct cursor *c, const void *bytes, size_t n, const char *whose, char *why, size_t why_n);
/* After reading: all was taken and fitted. */
int record_close(struct cursor *c, char *why, size_t why_n);

/* A request as it was validated, its times as wall clock: now_us, unix_us are both clocks now. */
void record_put_request(struct buf *out, const struct submit *s, int64_t now_us, int64_t unix_us);
/* *out is the caller's, on success. */
int record_get_request(struct cursor *c, uint32_t n_vocab, int64_t now_us, int64_t unix_us,
		       struct submit **out, char *why, size_t why_n);

/* Tokens [from, to) with their logprobs, where there are any. */
void record_put_tokens(struct buf *out, const struct toklog *t, uint32_t from, uint32_t to);
struct record_tokens {
	uint32_t n;
	struct engine_token *tokens; /* owned, as are the others; top0 points into them */
	uint32_t *top_ids;
	float *top_logprobs;
};
void record_get_tokens(struct cursor *c, struct record_tokens *out);
void record_tokens_fini(struct record_tokens *t);

/* An output that has ended, with its text. */
void record_put_output(struct buf *out, const struct output *o, const struct output_rules *r);
/* Into an output that was initialised and is empty.  Failed cursors leave it as it is. */
void record_get_output(struct cursor *c, struct output *o, const struct output_rules *r, uint32_t n_stop);

#endif
