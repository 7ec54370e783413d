/* pending.h - the plans that the device has been given and whose results nobody has taken yet:
 * of each, what was asked for, and the pinned memory that the answers come to.
 *
 *   pending_add()      a plan begins; its part of the memory is its own until pending_drop()
 *   pending_room()     so many rows are sampled for it, in the plan's order
 *   pending_first()    the oldest; when its event has come, its answers are there
 *
 * Allocates at pending_new() only.  Single-threaded. */
#ifndef QUERN_WORKER_PENDING_H
#define QUERN_WORKER_PENDING_H

#include "kernels/kern.h"

#include <stddef.h>
#include <stdint.h>

/* One that runs and one that is queued: the controller has no more under way (SCHED_AHEAD). */
enum { PENDING_AHEAD = 2 };

/* One sampled row; its answer is the i-th of `out`, its likeliest tokens stand from top0 on. */
struct pending_want {
	uint32_t slot;
	uint32_t position;  /* of the token that the row was about */
	int32_t forced;     /* that token, of the prompt; -1: it was to be chosen */
	int32_t n_logprobs; /* -1: none are wanted; else so many of the likeliest, too */
	size_t top0;
};

struct pending_plan {
	uint64_t epoch, number;
	int64_t begin_us; /* when it was begun */
	struct kern_event *done;
	struct pending_want *wants; /* [n_wants] */
	uint32_t n_wants;
	struct kern_sample_out out; /* pinned */
	size_t n_top;               /* entries of top_id and top_logprob that are taken */
};

struct pending;

/* max_wants: most rows of a plan, of up to max_top likeliest tokens each.  -ENOMEM with the bytes.
 * ops and dev are borrowed. */
int pending_new(struct pending **out, const struct kern_ops *ops, struct kern_dev *dev, uint32_t max_wants,
		uint32_t max_top, char *why, size_t why_n);
void pending_free(struct pending *p); /* NULL is fine; the device is done with all of them */

int pending_count(const struct pending *p);
struct pending_plan *pending_add(struct pending *p);   /* there are fewer than PENDING_AHEAD */
struct pending_plan *pending_first(struct pending *p); /* NULL: there is none */
void pending_drop(struct pending *p);                  /* the first */
void pending_undo(struct pending *p);                  /* the last, that did not come about */
void pending_clear(struct pending *p);                 /* all */

/* Where the answers of f's next n rows go, with room for `stride` likeliest tokens of each; the
 * rows themselves are for the caller to fill in, but for top0. */
struct pending_want *pending_room(const struct pending *p, struct pending_plan *f, int n, int stride,
				  struct kern_sample_out *out);

#endif
