/* tp_group.h - a worker's membership in a tensor-parallel group: joins it, agrees with the other ranks, and
 * passes the collectives of the kernels' table to the model and the sampler.
 *
 *   hello.rendezvous      tp_group_rendezvous_new(): where the others find this worker, if it becomes rank 0
 *   load            tp_group_join(), tp_group_agree()
 *   each plan       tp_group_sum_rows(), tp_group_gather_cols(), tp_group_share_tokens(): all queued
 *   its result      tp_group_look() periodically, or tp_group_wait()
 *   a lost rank     any of these returns an error (tp_group_broke()): tp_group_leave(), hello again
 *
 * A group is used by one thread.  NULL is the group of a worker that serves alone: the operations then do
 * nothing and return 0. */
#ifndef QUERN_WORKER_TP_GROUP_H
#define QUERN_WORKER_TP_GROUP_H

#include "base/err.h"
#include "kernels/coll.h"
#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_group;
struct tp_group_rendezvous;

/* Open a new meeting place, with its address as text (COLL_RENDEZVOUS_SIZE).  -ENODEV, -ENOTSUP: this device
 * cannot be part of a group. */
int tp_group_rendezvous_new(struct tp_group_rendezvous **out, const char *device, char *text,
			    struct why *why);
void tp_group_rendezvous_free(struct tp_group_rendezvous *m); /* NULL is fine */

struct tp_group_args {
	const char *device;
	struct kern_dev *dev;
	uint64_t epoch;
	int rank, n_ranks;
	const char *rendezvous; /* rank 0's text */
	struct tp_group_rendezvous *
		*mine;  /* this worker's meeting place, consumed if it is rank 0; may hold NULL */
	int max_cols;   /* most columns that a rank passes to tp_group_gather_cols() */
	int timeout_ms; /* a rank later than this for an operation is lost, after tp_group_warmed_up() */
	bool (*cancelled)(void *arg); /* polled while waiting; NULL: never cancelled */
	void *cancelled_arg;
	/* called when the group ends, as in coll.h: frees the graphs that contain its operations */
	void (*over)(void *arg);
	void *over_arg;
};

/* Wait until all ranks have joined.  0, -ECANCELED; -ESTALE, -ECONNRESET: this group failed to form, a
 * later one may succeed; any other error: none will. */
int tp_group_join(struct tp_group **out, const struct tp_group_args *a, struct why *why);
void tp_group_leave(struct tp_group *g); /* NULL is fine */

/* True if another rank caused the error: the group has ended, but this worker can serve in a later one. */
bool tp_group_broke(int rc);
const char *tp_group_why(const struct tp_group *g);

/* Pool sizes of a rank; the group serves with the least of each. */
struct tp_group_pools {
	uint32_t n_blocks, n_host_blocks, max_context;
};
/* Set pools to the least of all ranks.  same: a line that must be equal on all ranks (numerics, sizes).
 * -EINVAL: the lines differ. */
int tp_group_agree(struct tp_group *g, const char *same, struct tp_group_pools *pools, struct why *why);

/* Set *ok to whether it is true on all ranks; every rank calls it. */
int tp_group_all(struct tp_group *g, bool *ok);

/* Call after a whole plan was served: from now on timeout_ms limits how late a rank may be (coll.h). */
void tp_group_warmed_up(struct tp_group *g); /* NULL is fine */

/* The following are as in coll.h. */
int tp_group_sum_rows(struct tp_group *g, struct kern_stream *s, void *x, int n_rows, int width);
int tp_group_gather_cols(struct tp_group *g, struct kern_stream *s, void *out, const void *in, int n_rows,
			 const int *widths);
int tp_group_share_tokens(struct tp_group *g, struct kern_stream *s, int32_t *tokens, const int32_t *at,
			  int n);
int tp_group_broadcast(struct tp_group *g, void *bytes_of_rank_0, size_t bytes);
int tp_group_look(struct tp_group *g, int64_t since_us);
/* Wait for e, unless the group ends first.  ops is used if g is NULL. */
int tp_group_wait(struct tp_group *g, const struct kern_ops *ops, struct kern_event *e, int64_t since_us);
/* ops is used if g is NULL. */
int tp_group_sync(struct tp_group *g, const struct kern_ops *ops, struct kern_stream *s);

#endif
