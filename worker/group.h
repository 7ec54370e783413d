/* group.h - a worker's place in a tensor-parallel group: joins it, agrees with the other ranks,
 * and hands the collectives of kern's table on to the model and the sampler.
 *
 *   hello.meet      group_meet_new(): where the others find this worker, should it be rank 0
 *   load            group_join(), group_agree()
 *   each plan       group_sum_rows(), group_gather_cols(), group_broadcast()
 *   a lost rank     any of these gives an error (group_broke()): group_leave(), hello again
 *
 * A group is used by one thread.  NULL is the group of a worker that serves alone: the operations
 * then do nothing and are 0. */
#ifndef QUERN_WORKER_GROUP_H
#define QUERN_WORKER_GROUP_H

#include "kernels/coll.h"
#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct group;
struct group_meet;

/* A fresh place, as text (COLL_MEET_SIZE).  -ENODEV, -ENOTSUP where this device cannot be part of
 * a group. */
int group_meet_new(struct group_meet **out, const char *device, char *text, char *why, size_t why_n);
void group_meet_free(struct group_meet *m); /* NULL is fine */

struct group_args {
	const char *device;
	struct kern_dev *dev;
	uint64_t epoch;
	int rank, n_ranks;
	const char *meet;             /* rank 0's text */
	struct group_meet **mine;     /* this worker's place: used up where it is rank 0; may hold NULL */
	int max_cols;                 /* most columns that a rank gives to group_gather_cols() */
	int timeout_ms;               /* how late a rank may be for an operation, once group_settled() */
	bool (*cancelled)(void *arg); /* asked while waiting; NULL: never */
	void *cancelled_arg;
};

/* Waits until all ranks are there.  -ECANCELED; -ESTALE, -ECONNRESET: this group does not come
 * about, another may; anything else: none will. */
int group_join(struct group **out, const struct group_args *a, char *why, size_t why_n);
void group_leave(struct group *g); /* NULL is fine */

/* Does this error mean that the group is over, while this worker is as good as before? */
bool group_broke(int rc);
const char *group_why(const struct group *g);

/* What the ranks must have in common, and the least of what they have. */
struct group_pools {
	uint32_t n_blocks, n_host_blocks, max_context;
};
/* same: a line that must be equal on all ranks (numerics, sizes).  -EINVAL: it is not. */
int group_agree(struct group *g, const char *same, struct group_pools *pools, char *why, size_t why_n);

/* A plan was served whole: what takes long the first time is done (coll.h). */
void group_settled(struct group *g); /* NULL is fine */

/* As in coll.h. */
int group_sum_rows(struct group *g, struct kern_stream *s, void *x, int n_rows, int width);
int group_gather_cols(struct group *g, struct kern_stream *s, void *out, const void *in, int n_rows,
		      const int *widths);
int group_broadcast(struct group *g, void *bytes_of_rank_0, size_t bytes);
/* Of ops where g is NULL. */
int group_sync(struct group *g, const struct kern_ops *ops, struct kern_stream *s);

#endif
