/* coll.h - what the ranks of a tensor-parallel group do together, as a table.
 *
 * kernels/cpu/coll.c provides one between processes of a host (shared memory), the CUDA shared
 * object another (NCCL), where it was built with it.  Every rank calls the same operations in
 * the same order with the same sizes; a rank that does not is found out (-EPROTO).
 *
 * Rules that every table keeps:
 *  - Sums are made in FP32 in the order of the ranks: bits depend neither on timing nor on the
 *    size of the message.
 *  - No operation waits for ever.  A wait ends when `cancelled` says so, when a peer is seen
 *    dead, or when a peer has not come for timeout_ms.  All ranks then leave the group: whatever
 *    is called after an error gives an error at once, and nothing of a group is used twice.
 *  - Nothing is allocated after join(). */
#ifndef QUERN_KERNELS_COLL_H
#define QUERN_KERNELS_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COLL_ABI = 3, COLL_RANKS_MAX = 64, COLL_MEET_SIZE = 288, COLL_FIRST_MS = 60000 };

struct coll;      /* one rank's end of a group */
struct coll_meet; /* where the others find this process, should it be rank 0 */
struct kern_dev;
struct kern_stream;

struct coll_args {
	int rank, n_ranks;
	uint64_t epoch;               /* of the group: ranks of another one are turned away */
	const char *meet;             /* the text of rank 0's meet */
	struct coll_meet **mine;      /* of rank 0: that meet, used up by join(); else NULL */
	struct kern_dev *dev;         /* whose memory sum_rows() and gather_cols() work on */
	int max_cols;                 /* most columns that a rank gives to gather_cols() */
	int timeout_ms;               /* how long a peer may be late for an operation; see settled() */
	bool (*cancelled)(void *arg); /* asked while waiting; NULL: never */
	void *cancelled_arg;
};

/* 0, or
 *   -ECANCELED    `cancelled` said so
 *   -ECONNRESET   a peer is dead, late, or has left; the text of coll_ops.why() says which
 *   -EPROTO       a peer does something else
 *   -EIO          the device */
struct coll_ops {
	int abi;          /* COLL_ABI */
	const char *name; /* "shared memory", "NCCL" */

	/* A fresh place to meet, as text of at most COLL_MEET_SIZE bytes with its end. */
	int (*meet_new)(struct coll_meet **out, char *text, char *why, size_t why_n);
	void (*meet_free)(struct coll_meet *m); /* NULL is fine */

	/* Waits for all ranks: for as long as it takes, since they may be loading; `cancelled` and
	 * a peer's end are seen.  Beside the above: -ESTALE: rank 0 is not (any more) where the
	 * text says; -EINVAL, -ENOTSUP: this cannot work, another time neither. */
	int (*join)(struct coll **out, const struct coll_args *a, char *why, size_t why_n);
	void (*leave)(struct coll *c); /* NULL is fine; the peers see it */
	/* What broke the group. */
	const char *(*why)(const struct coll *c);

	/* Every kind of operation was done: from now on timeout_ms holds.  Before that, where things take
	 * long the first time (connections between GPUs, code that is made for the device), a peer may be
	 * late for COLL_FIRST_MS, if that is more. */
	void (*settled)(struct coll *c);

	/* x [n_rows, width] F32 on the device becomes the sum over the ranks. */
	int (*sum_rows)(struct coll *c, struct kern_stream *s, void *x, int n_rows, int width);
	/* out [n_rows, sum of widths] F32 = the ranks' in [n_rows, widths[r]] side by side, on the
	 * device.  out NULL: this rank does not want it. */
	int (*gather_cols)(struct coll *c, struct kern_stream *s, void *out, const void *in, int n_rows,
			   const int *widths);
	/* What was queued on s is done: stream_sync() that ends when a peer is lost. */
	int (*sync)(struct coll *c, struct kern_stream *s);

	/* Host memory; done when they return.  all [n_ranks][bytes]: every rank's mine [bytes]. */
	int (*gather)(struct coll *c, void *all, const void *mine, size_t bytes);
	int (*broadcast)(struct coll *c, void *bytes_of_rank_0, size_t bytes);
	int (*barrier)(struct coll *c);
};

extern const struct coll_ops coll_shm_ops;

/* The table that a device's ranks meet by: shared memory for "cpu...", NCCL for "cuda...".
 * -ENODEV as kern_find(); -ENOTSUP where the CUDA kernels were built without NCCL. */
int coll_find(const char *device, const struct coll_ops **ops, char *why, size_t why_n);

#endif
