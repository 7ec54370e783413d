/* slots.h - the worker's state of each sequence: parameters, tokens, block table.
 * A cache only: a plan can rebuild any of it.  Token ids are stored on the device, so that the next step
 * reads a sampled token there; forks copy ids on the device.  The host has a copy of the ids that it knows:
 * the prompt, for its log-probabilities, and the output, to draft from it.  n_tokens includes tokens that the
 * device has yet to sample.  All work on the device is queued.
 *
 *   a slot's places     tokens [max_context + 1] | mirostat's mu | the tokens that an open run draws
 *
 * The rows of an open run (plan.h) have its drafts in their histories, after the last token.  The tokens that
 * they draw go to places of their own until the drafts are compared with them (open_runs.h). */
#ifndef QUERN_WORKER_SLOTS_H
#define QUERN_WORKER_SLOTS_H

#include "base/err.h"
#include "kernels/kern.h"
#include "proto/plan.h"
#include "worker/draft.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slot {
	bool used;
	uint64_t seq;   /* the controller's id, for logs */
	uint32_t index; /* output index within its job */
	uint32_t n_prompt;
	uint32_t n_tokens; /* tokens that the device has when its queued work is done */
	bool held;         /* its last sampling run sat out: struct result */
	bool constraint;   /* its output has a constraint */
	uint32_t n_known;  /* tokens that the host knows */
	struct draft_pace pace;
	uint32_t n_open;   /* rows of its open run in the plan being begun; 0: it has all its tokens */
	int64_t n_kv;      /* positions with K and V in the cache; -1: set by the next run */
	uint32_t n_blocks; /* rows of its tables */
	/* Position from which on its tables have what is read: a plan leaves out the blocks before a
	 * window. */
	uint32_t from;
	uint64_t ran;         /* number of the last plan with a run of this slot */
	uint64_t ran_first;   /* number of the first one; 0: none yet */
	uint32_t last_row;    /* last row of that run, in its batch */
	struct params params; /* owned; token ids all below n_vocab */
};

struct slots_limits {
	uint32_t max_slots;
	uint32_t max_context;
	uint32_t max_blocks; /* rows of a table */
	uint32_t block_size; /* tokens */
	struct kinds kinds;  /* kinds of layers: a slot has a table for each */
	uint32_t n_blocks;   /* blocks of the pool */
	uint32_t n_vocab;
};

struct guide;
struct slots;

/* Return the most slots for a context: rows refer to their tokens by an int32 index. */
uint32_t slots_most(uint32_t max_context);

/* Create the slots; ops, dev and stream are borrowed.  -ENOMEM with the bytes. */
int slots_new(struct slots **out, const struct slots_limits *lim, const struct kern_ops *ops,
	      struct kern_dev *dev, struct kern_stream *stream, struct why *why);
void slots_free(struct slots *s); /* NULL is fine */
/* g receives every change of a slot's output; borrowed */
void slots_follow(struct slots *s, struct guide *g);
void slots_reset(struct slots *s); /* forgets every sequence */
void slots_pool(struct slots *s,
		uint32_t n_blocks); /* sets the pool's size, if it was unknown in slots_new() */

/* Record that the run that samples the slot's token at `position` is queued; held: the run sits out. */
void slots_sample(struct slots *s, uint32_t slot, uint32_t position, bool held);

/* Record that plan `number` has a run of the slot, which ends in this row of its batch. */
void slots_ran(struct slot *slot, uint64_t number, uint32_t last_row);
/* A token that plan `number` sampled is known.  No-op if the slot has another sequence by now. */
void slots_know(struct slots *s, uint32_t slot, uint64_t number, uint32_t position, int32_t token);
/* Give the slot's open run n drafts after its last token; n_open is then n + 1. */
int slots_draft(struct slots *s, uint32_t slot, const int32_t *drafts, uint32_t n, struct why *why);
/* The open run of plan `number` that began at `position` has drawn n tokens; last: the last of them, to be
 * stored.  No-op if the slot has another sequence by now. */
int slots_drew(struct slots *s, uint32_t slot, uint64_t number, uint32_t position, uint32_t n, int32_t last,
	       struct why *why);

/* Tokens of a plan that are staged in pinned memory for their upload.  Further tokens are uploaded from the
 * caller's memory, which may block. */
enum { SLOTS_STAGE = 1 << 16 };

/* Return a slot in use; NULL with the reason otherwise. */
struct slot *slots_get(struct slots *s, uint32_t slot, struct why *why);

/* Begin a plan; the plan PENDING_AHEAD before it must be done. */
void slots_begin(struct slots *s);
/* Execute one entry of a plan; for slots_drop(), the slot may be empty.  -EINVAL, -EIO with the reason. */
int slots_drop(struct slots *s, uint32_t slot, struct why *why);
int slots_set(struct slots *s, const struct plan_seq *p, struct why *why);
int slots_fork(struct slots *s, const struct plan_fork *p, struct why *why);
int slots_choose(struct slots *s, const struct plan_set *p, struct why *why);
int slots_table(struct slots *s, const struct plan_table *p, struct why *why);

void slots_tables(const struct slots *s, struct kern_batch *b);    /* tables i of b are slot i's */
const int32_t *slots_tokens(const struct slots *s, uint32_t slot); /* [n_known], then drafts; on the host */
int32_t slots_base(const struct slots *s, uint32_t slot);     /* index of its first token in the buffer */
int32_t slots_mu_at(const struct slots *s, uint32_t slot);    /* index of its mu in the buffer */
int32_t slots_drawn_at(const struct slots *s, uint32_t slot); /* place of the first token of an open run */
int32_t *slots_buffer(const struct slots *s);                 /* the token buffer, on the device */

#endif
