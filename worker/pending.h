/* pending.h - the plans queued on the device, until their results are taken.
 * Owns, for each plan, the rows to sample and the pinned memory that receives the results.
 *
 *   pending_add()      begin a plan; it owns a share of the memory until pending_drop()
 *   pending_room()     reserve room for n sampled rows, in the plan's order
 *   pending_first()    the oldest plan; its results are valid once its event is done
 *
 * Allocates in pending_new(), and for the first pooled runs.  Single-threaded. */
#ifndef QUERN_WORKER_PENDING_H
#define QUERN_WORKER_PENDING_H

#include "base/err.h"
#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One plan runs and one is queued: the controller sends no more (SCHED_AHEAD). */
enum { PENDING_AHEAD = 2 };

/* One sampled row.  The result of wants[i] is entry i of `out`; its most likely tokens start at
 * entry top0. */
struct pending_want {
	uint32_t slot;
	uint32_t position;  /* position of the token that the row is sampled for */
	int32_t forced;     /* that token, if it belongs to the prompt; -1: it is sampled */
	int32_t n_logprobs; /* -1: none; k: also the k most likely tokens */
	bool mirostat;      /* the token changes the sequence's mu */
	int32_t draft;      /* in an open run: the draft in this row; -1: the last token */
	bool open;          /* a row of an open run */
	bool cut;           /* no draft is accepted from this row on: it has no mask */
	bool held;          /* the row gets no token in this step: its mask is not ready */
	bool dropped;       /* a row after the tokens that an open run gives (open_runs.h) */
	size_t top0;
	char *failure; /* owned: the reason why the output cannot satisfy its constraint; NULL: none */
};

/* An open run: the n wants from `want` on; n 0: its output has all its tokens.  It gives `count` tokens. */
struct pending_open {
	uint32_t slot, want, n, count;
};

/* A pooled run; its values are in the plan's `rows` or `sums`. */
struct pending_pool {
	uint32_t slot;
	uint32_t pos0, n_rows; /* the run */
	uint32_t n_values;
	bool sum; /* a mean: its values are sums */
};

struct pending_plan {
	uint64_t epoch, number;
	int64_t begin_us; /* time of its begin */
	bool computes;    /* it has rows */
	bool counted;     /* a copy of the expert counters is in flight: model_take_counts() */
	struct kern_event *done;
	struct pending_want *wants; /* [n_wants] */
	uint32_t n_wants;
	struct pending_open *open; /* [n_open] in the plan's order */
	uint32_t n_open;
	bool settled;               /* open_settle() */
	struct kern_sample_out out; /* pinned */
	size_t n_top;               /* entries of top_id and top_logprob in use */
	struct pending_pool *pools; /* [n_pools] */
	uint32_t n_pools;
	float *rows;   /* [n_pools, pool_width] pinned */
	int64_t *sums; /* [n_pools, pool_width] */
	uint32_t cap_pools;
};

struct pending;

/* Create the plans' memory.  max_wants: most rows of a plan, each with up to max_top most likely tokens;
 * pool_width: most values of a pooled run.  ops and dev are borrowed.  -ENOMEM with the bytes. */
int pending_new(struct pending **out, const struct kern_ops *ops, struct kern_dev *dev, uint32_t max_wants,
		uint32_t max_top, uint32_t pool_width, struct why *why);
void pending_free(struct pending *p); /* NULL is fine; the device must have finished all plans */

int pending_count(const struct pending *p);
struct pending_plan *pending_add(struct pending *p);   /* requires fewer than PENDING_AHEAD plans */
struct pending_plan *pending_first(struct pending *p); /* NULL: none */
void pending_drop(struct pending *p);                  /* drops the first plan */
void pending_undo(struct pending *p);                  /* drops the last plan, which could not be queued */
void pending_clear(struct pending *p);                 /* drops all plans */

/* Reserve the next n rows of f: set out to the place of their results, with room for `stride` most likely
 * tokens of each.  Returns the rows, which the caller fills in except top0. */
struct pending_want *pending_room(const struct pending *p, struct pending_plan *f, int n, int stride,
				  struct kern_sample_out *out);

/* Reserve room for n pooled runs of f, once per plan: f's pools, rows and sums, which the caller fills in.
 * The memory grows to the most runs of any plan, so a service without pooled runs needs none.  -ENOMEM with
 * the bytes. */
int pending_pools(struct pending *p, struct pending_plan *f, uint32_t n, struct why *why);
/* Return the number of values that a pooled run has room for. */
uint32_t pending_pool_width(const struct pending *p);
/* Return pinned memory for n_rows rows of that width, to be summed; shared by all plans.  NULL: out of
 * memory. */
float *pending_scratch(struct pending *p, uint32_t n_rows);

#endif
