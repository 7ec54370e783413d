/* batch.h - a plan's runs as input for the kernels, and the rows of logits to sample from.
 * Checks every run against the worker's own state.  Allocates in batch_new() only. */
#ifndef QUERN_WORKER_BATCH_H
#define QUERN_WORKER_BATCH_H

#include "base/err.h"
#include "kernels/kern.h"
#include "proto/bus.h"
#include "proto/plan.h"
#include "worker/slots.h"

#include <stddef.h>
#include <stdint.h>

/* One row of logits to sample from. */
struct batch_want {
	int32_t row; /* row in the batch */
	uint32_t slot;
	uint32_t position; /* position of the token that these logits predict */
	int32_t forced;    /* the token at position, if it belongs to the prompt; -1: it is sampled */
	int32_t shift;     /* as in kern_sample_row */
	int32_t draft;     /* the row's token, if it is a draft of an open run; -1: it is not */
	bool open;         /* a row of an open run */
};

/* An open run (open_runs.h): its wants are the n from `want` on. */
struct batch_open {
	uint32_t slot, want, n;
};

/* A run of a pooled sequence (params.pool), and the rows of it that pooling needs. */
struct batch_pool {
	int32_t row0; /* first row in the batch */
	uint32_t n_rows;
	uint32_t slot;
	uint32_t pos0, run_rows; /* the whole run */
	enum params_pool kind;
	uint32_t want; /* PARAMS_POOL_LOGITS: index of the want with its logits */
};

struct batch {
	/* the argument of batch_set(); points into the arrays below and into the slots */
	struct kern_batch kern;
	struct batch_want *wants; /* [n_wants] in the plan's order */
	uint32_t n_wants;
	uint32_t cap_wants;
	struct batch_pool *pools; /* [n_pools] in the plan's order */
	uint32_t n_pools;
	struct batch_open *open; /* [n_open] in the plan's order */
	uint32_t n_open;
	int32_t *token_at, *row0, *pos0, *table_at, *logits_row; /* owned */
	int max_logits;
	uint32_t block_size;
};

struct batch *batch_new(const struct bus_limits *lim, uint32_t block_size, int max_logits);
void batch_free(struct batch *b); /* NULL is fine */

/* Build the batch from the plan's runs, after all other entries of the plan were executed, and record the
 * runs' effects in the slots.  -EINVAL with the reason. */
int batch_build(struct batch *b, struct slots *slots, const struct plan *p, const struct bus_limits *lim,
		struct why *why);

/* Set the batch's logits rows to the wants from `first` on, as many as one call of the head takes; return
 * their number. */
int batch_group(struct batch *b, uint32_t first);

#endif
