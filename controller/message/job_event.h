/* job_event.h - the events that a job sends to its listeners: accepted, deltas, and one end. */
#ifndef QUERN_CONTROLLER_MESSAGE_JOB_EVENT_H
#define QUERN_CONTROLLER_MESSAGE_JOB_EVENT_H

#include "proto/codes.h"
#include "proto/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct logprob_top {
	uint32_t token;
	float logprob;
};
struct token_logprob {
	uint32_t token;
	float logprob;
	uint32_t rank;
	uint32_t n_top;
	const struct logprob_top *top; /* most likely first */
};

/* One output of a job.  Borrowed during the listener's call. */
struct output_view {
	uint32_t index;
	const char *text;
	size_t text_n;
	const uint32_t *tokens;
	uint32_t n_tokens;
	/* [n_tokens] offset in the output of each token's text; token texts are adjacent in `text`, which
	 * begins at the first offset.  The last `tail` bytes of text belong to no token: the output's end
	 * added them. */
	const uint32_t *starts;
	size_t tail;
	const struct token_logprob *logprobs; /* [n_tokens] or NULL */
	enum finish finish;
	int64_t stop_token;        /* stop token that ended the output, its last token; -1: none */
	const char *stop_string;   /* stop string that ended the output, or NULL */
	double cumulative_logprob; /* NaN unless needed: logprobs, best_of or beam search requested */
};

enum job_event_kind { JOB_ACCEPTED, JOB_DELTA, JOB_DONE, JOB_ERROR };

struct job_event {
	enum job_event_kind kind;
	const char *job; /* public id, hard to guess; NULL: an error before the job got its id */
	uint32_t prompt_tokens;
	/* JOB_ACCEPTED */
	int64_t accepted_unix_us; /* time of acceptance, possibly before a restart of the service */
	bool again;               /* the job of an earlier request with this idempotency key */
	/* JOB_DELTA: new tokens and text of one output.  offset: index of the first new token in the output.
	 * The text may be empty: an incomplete UTF-8 character and a possible stop string are held back.
	 * finish is set in the output's last delta. */
	uint32_t offset;
	struct output_view delta;
	/* JOB_DONE: the complete outputs. */
	const struct output_view *outputs;
	uint32_t n_outputs;
	const struct token_logprob *prompt_logprobs; /* [prompt_tokens - 1] of tokens 1.., or NULL */
	const float *pooled; /* [n_pooled] with params.pool: the model's values; NULL: none */
	uint32_t n_pooled;
	uint32_t completion_tokens, cached_tokens;
	bool class_changed; /* engine_event.class_changed */
	bool service_ended; /* the service ended before the job did: its outputs are cut off */
	int64_t queued_us, first_token_us, total_us;
	/* JOB_ERROR */
	enum code code;
	const char *why;
	bool other_request; /* the idempotency key belongs to another request */
};

/* A receiver of a job's events.  Both functions run on the front end's thread and must not block.  JOB_DONE
 * or JOB_ERROR is the last event; no event follows after mailbox_unlisten() has taken effect either.  `gone`
 * (may be NULL) is called exactly once, last: user may be freed then.
 *
 *   JOB_ACCEPTED --> JOB_DELTA ... --> JOB_DONE --> gone
 *   (JOB_ERROR at any point instead of the rest) */
struct listener {
	void (*event)(void *user, const struct job_event *e);
	void (*gone)(void *user);
	void *user;
	uint64_t id; /* from mailbox_listener_id(): unique */
};

#endif
