/* slots.h - what the worker remembers of each sequence: parameters, tokens, block table.
 * A cache only: a plan can rebuild any of it.  Token ids live on the device, [max_slots]
 * [max_context + 2], so that the next step finds a sampled token there; forks copy ids on the device.
 * Behind the last place for a token lies mirostat's mu.
 * The host keeps the prompts (for their log-probabilities) and, of the sampled tokens, only their
 * number, which includes tokens that the device has still to sample.  All work on the device is queued. */
#ifndef QUERN_WORKER_SLOTS_H
#define QUERN_WORKER_SLOTS_H

#include "kernels/kern.h"
#include "proto/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slot {
	bool used;
	uint64_t seq;   /* the controller's id, for logs */
	uint32_t index; /* output of its job */
	uint32_t n_prompt;
	uint32_t n_tokens;    /* that the device has once its queued work is done */
	int64_t n_kv;         /* positions with K and V in the cache; -1: from the next run */
	uint32_t n_blocks;    /* in its table */
	uint64_t ran;         /* number of the plan that last had a run for it */
	uint32_t last_row;    /* of that run, in its batch */
	struct params params; /* owned; token ids all below n_vocab */
};

struct slots_limits {
	uint32_t max_slots;
	uint32_t max_context;
	uint32_t max_blocks; /* of a table */
	uint32_t n_blocks;   /* of the pool */
	uint32_t n_vocab;
};

struct guide;
struct slots;

/* -ENOMEM with the bytes.  ops, dev and stream are borrowed. */
int slots_new(struct slots **out, const struct slots_limits *lim, const struct kern_ops *ops,
	      struct kern_dev *dev, struct kern_stream *stream, char *why, size_t why_n);
void slots_free(struct slots *s);                    /* NULL is fine */
void slots_follow(struct slots *s, struct guide *g); /* g sees every change of a slot's output; borrowed */
void slots_reset(struct slots *s);                   /* forget every sequence */
void slots_pool(struct slots *s,
		uint32_t n_blocks); /* sets the pool's size, if it was unknown at slots_new() */

/* A used slot; NULL and the reason otherwise. */
struct slot *slots_get(struct slots *s, uint32_t slot, char *why, size_t why_n);

/* A plan begins; the plan PENDING_AHEAD before it must be done. */
void slots_begin(struct slots *s);
/* Execute one part of a plan.  -EINVAL, -EIO with the reason. */
int slots_drop(struct slots *s, uint32_t slot, char *why, size_t why_n);
int slots_set(struct slots *s, const struct plan_seq *p, char *why, size_t why_n);
int slots_fork(struct slots *s, const struct plan_fork *p, char *why, size_t why_n);
int slots_choose(struct slots *s, const struct plan_set *p, char *why, size_t why_n);
int slots_table(struct slots *s, const struct plan_table *p, char *why, size_t why_n);

const int32_t *slots_blocks(const struct slots *s, uint32_t slot); /* its table, host */
const int32_t *slots_prompt(const struct slots *s, uint32_t slot); /* its prompt's tokens, host */
int32_t slots_base(const struct slots *s, uint32_t slot);  /* index of its first token in the buffer */
int32_t slots_mu_at(const struct slots *s, uint32_t slot); /* index of its mu in the buffer */
int32_t *slots_buffer(const struct slots *s);              /* the buffer, device */

#endif
