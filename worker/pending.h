/* pending.h - the plans queued on the device, until their results are taken.
 * Owns: for each plan, the rows to sample and the pinned memory that receives the results.
 *
 *   pending_add()      a plan begins; a part of the memory belongs to it until pending_drop()
 *   pending_room()     room for n sampled rows, in the plan's order
 *   pending_first()    the oldest plan; its results are valid once its event is done
 *
 * Allocates at pending_new(), and for the first pooled runs.  Single-threaded. */
#ifndef QUERN_WORKER_PENDING_H
#define QUERN_WORKER_PENDING_H

#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One plan runs and one is queued: the controller sends no more (SCHED_AHEAD). */
enum { PENDING_AHEAD = 2 };

/* One sampled row: the i-th of wants has its result in the i-th entries of `out`, and its likeliest tokens
 * in the entries from top0 on. */
struct pending_want {
	uint32_t slot;
	uint32_t position;  /* of the token that the row is sampled for */
	int32_t forced;     /* that token, if it is of the prompt; -1: it is sampled */
	int32_t n_logprobs; /* -1: none; k: also of the k likeliest tokens */
	bool mirostat;      /* the token changes the sequence's mu */
	size_t top0;
	char *failure; /* the sequence's output cannot keep its form: the reason; owned.  NULL: none */
};

/* A pooled run: its values, in `rows` or `sums` of the plan. */
struct pending_pool {
	uint32_t slot;
	uint32_t pos0, n_rows; /* the run */
	uint32_t n_values;
	bool sum; /* a mean: the values are sums */
};

struct pending_plan {
	uint64_t epoch, number;
	int64_t begin_us; /* when it was begun */
	bool counted;     /* a copy of the counters of experts is under way: model_take_counts() */
	struct kern_event *done;
	struct pending_want *wants; /* [n_wants] */
	uint32_t n_wants;
	struct kern_sample_out out; /* pinned */
	size_t n_top;               /* entries of top_id and top_logprob in use */
	struct pending_pool *pools; /* [n_pools] */
	uint32_t n_pools;
	float *rows;   /* [n_pools, pool_width] pinned */
	int64_t *sums; /* [n_pools, pool_width] */
	uint32_t cap_pools;
};

struct pending;

/* max_wants: most rows of a plan, of up to max_top likeliest tokens each; pool_width: most values of a pooled
 * run.  -ENOMEM with the bytes.
 * ops and dev are borrowed. */
int pending_new(struct pending **out, const struct kern_ops *ops, struct kern_dev *dev, uint32_t max_wants,
		uint32_t max_top, uint32_t pool_width, char *why, size_t why_n);
void pending_free(struct pending *p); /* NULL is fine; the device must be done with all plans */

int pending_count(const struct pending *p);
struct pending_plan *pending_add(struct pending *p);   /* fewer than PENDING_AHEAD must be there */
struct pending_plan *pending_first(struct pending *p); /* NULL: there is none */
void pending_drop(struct pending *p);                  /* the first */
void pending_undo(struct pending *p);                  /* the last, which could not be queued */
void pending_clear(struct pending *p);                 /* all */

/* Sets out to where the results of f's next n rows go, with room for `stride` likeliest tokens of each.
 * Returns the rows, which the caller fills in except top0. */
struct pending_want *pending_room(const struct pending *p, struct pending_plan *f, int n, int stride,
				  struct kern_sample_out *out);

/* Room for n pooled runs of f, once per plan: f's pools, rows and sums, which the caller fills in.  Grows
 * where no plan has had as many: a service without pooled runs pays nothing for them.  -ENOMEM with the
 * bytes. */
int pending_pools(struct pending *p, struct pending_plan *f, uint32_t n, char *why, size_t why_n);
/* Values that a pooled run has room for. */
uint32_t pending_pool_width(const struct pending *p);
/* Pinned memory for n_rows rows of that width, on the way to a sum; of all plans.  NULL: out of memory. */
float *pending_scratch(struct pending *p, uint32_t n_rows);

#endif
