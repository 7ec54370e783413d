/* batch.h - a plan's runs in the form that the kernels take, and the rows of logits to sample from.
 * Checks every run against the worker's own state.  Allocates at batch_new() only. */
#ifndef QUERN_WORKER_BATCH_H
#define QUERN_WORKER_BATCH_H

#include "kernels/kern.h"
#include "proto/bus.h"
#include "proto/plan.h"
#include "worker/slots.h"

#include <stddef.h>
#include <stdint.h>

/* One row of logits to sample from. */
struct batch_want {
	int32_t row; /* of the batch */
	uint32_t slot;
	uint32_t position; /* of the token that these logits are for */
	int32_t forced;    /* that token, if it is of the prompt; -1: it is sampled */
};

/* A run of a sequence that is pooled (params.pool), and what of its rows is needed for that. */
struct batch_pool {
	int32_t row0; /* of the batch */
	uint32_t n_rows;
	uint32_t slot;
	uint32_t pos0, run_rows; /* the run */
	enum params_pool kind;
	uint32_t want; /* PARAMS_POOL_LOGITS: the want with its logits */
};

struct batch {
	struct kern_batch kern;   /* the argument of batch_set(); points into the arrays below */
	struct batch_want *wants; /* [n_wants] in the plan's order */
	uint32_t n_wants;
	uint32_t cap_wants;
	struct batch_pool *pools; /* [n_pools] in the plan's order */
	uint32_t n_pools;
	int32_t *token_at, *row0, *pos0, *tables, *logits_row; /* owned */
	size_t tables_bytes;
	int max_logits;
	uint32_t max_blocks;
	uint32_t block_size;
};

/* -ENOMEM with the bytes. */
int batch_new(struct batch **out, const struct bus_limits *lim, uint32_t block_size, int max_logits,
	      char *why, size_t why_n);
void batch_free(struct batch *b); /* NULL is fine */

/* Builds the batch from the plan's runs, after its other parts were executed, and records the runs' effects
 * in the slots.  -EINVAL with the reason. */
int batch_build(struct batch *b, struct slots *slots, const struct plan *p, const struct bus_limits *lim,
		char *why, size_t why_n);

/* Makes the wants from `first` on that fit one call of the head the batch's logits rows; returns their
 * number. */
int batch_group(struct batch *b, uint32_t first);

#endif
