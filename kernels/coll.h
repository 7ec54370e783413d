/* coll.h - the collectives of a tensor-parallel group's ranks, as a table.
 *
 * kernels/cpu/coll.c provides one table, between processes of a host (shared memory).  The CUDA shared object
 * provides another (NCCL), if it was built with NCCL.  Every rank calls the same operations in the same order
 * with the same sizes; a rank that does not is detected (-EPROTO).
 *
 *     every rank:  rendezvous_new -> (rank 0's text reaches all ranks) -> join -> operations ... -> leave
 *                                                                     |
 *                               first of each kind: may be slow  -> warmed_up: timeout_ms holds
 *
 * Rules that every table keeps:
 *  - Sums are made in FP32 in the order of the ranks: bits depend neither on timing nor on the
 *    size of the message.
 *  - Operations on the device are queued.  No other operation waits for ever.  A wait ends when
 *    `cancelled` returns true, when a peer has died, or when a peer is late by timeout_ms.  The group
 *    has then ended on all ranks: every later call returns an error at once, and the group cannot be
 *    used again.
 *  - Nothing is allocated after join().
 *  - If the device's table has graphs, sum_rows() and gather_cols() may be part of a graph (kern.h).
 *    All ranks capture the same graphs and launch them in the same order. */
#ifndef QUERN_KERNELS_COLL_H
#define QUERN_KERNELS_COLL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COLL_ABI = 5, COLL_RANKS_MAX = 64, COLL_RENDEZVOUS_SIZE = 288, COLL_FIRST_MS = 60000 };

struct coll;            /* one rank's handle of a group */
struct coll_rendezvous; /* the address where other ranks find this process, if it becomes rank 0 */
struct kern_dev;
struct kern_stream;

struct coll_args {
	int rank, n_ranks;
	uint64_t epoch;                /* epoch of the group; ranks of another epoch are refused */
	const char *rendezvous;        /* address text of rank 0, from its rendezvous_new() */
	struct coll_rendezvous **mine; /* rank 0: its rendezvous, consumed by join(); other ranks: NULL */
	struct kern_dev *dev;          /* device on which sum_rows() and gather_cols() work */
	int max_cols;                  /* most columns that a rank passes to gather_cols() */
	int timeout_ms;                /* a peer may be this late for an operation; see warmed_up() */
	bool (*cancelled)(void *arg);  /* polled while waiting; NULL: never cancelled */
	void *cancelled_arg;
	/* If not NULL, called once when the group has ended, by a table whose operations can be part of
	 * graphs.  It frees all graphs that hold operations of the group, without waiting, even if a graph is
	 * in flight.  With NULL, the caller frees them before leave(). */
	void (*over)(void *arg);
	void *over_arg;
};

/* 0, or
 *   -ECANCELED    `cancelled` returned true
 *   -ECONNRESET   a peer is dead, late, or has left; coll_ops.why() names the peer
 *   -EPROTO       a peer calls another operation, or with another size
 *   -EIO          the device failed */
struct coll_ops {
	int abi;          /* COLL_ABI */
	const char *name; /* "shared memory", "NCCL" */

	/* Make a new meeting place.  text: at most COLL_RENDEZVOUS_SIZE bytes with its NUL. */
	int (*rendezvous_new)(struct coll_rendezvous **out, char *text, struct why *why);
	void (*rendezvous_free)(struct coll_rendezvous *m); /* NULL is fine */

	/* Wait for all ranks, without a time limit since they may be loading.  The wait ends early when
	 * cancelled or when a peer dies.  Besides the errors above: -ESTALE: rank 0 is not, or no longer, at
	 * the address `meet`; -EINVAL, -ENOTSUP: permanent, do not retry. */
	int (*join)(struct coll **out, const struct coll_args *a, struct why *why);
	void (*leave)(struct coll *c); /* NULL is fine; peers get -ECONNRESET */
	/* Return why the group ended. */
	const char *(*why)(const struct coll *c);

	/* From now on timeout_ms holds: every kind of operation has run once.  Before, a peer may be late by
	 * COLL_FIRST_MS, if that is more, since first calls connect GPUs and compile code for them. */
	void (*warmed_up)(struct coll *c);

	/* Replace x [n_rows, width] F32 on the device by its sum over the ranks. */
	int (*sum_rows)(struct coll *c, struct kern_stream *s, void *x, int n_rows, int width);
	/* out [n_rows, sum of widths] F32 = the ranks' in [n_rows, widths[r]], concatenated by columns, on
	 * the device.  out NULL: this rank takes part without a result. */
	int (*gather_cols)(struct coll *c, struct kern_stream *s, void *out, const void *in, int n_rows,
			   const int *widths);
	/* For each i < n, set tokens[at[i]] to its value on rank 0.  tokens: on the device.  Queued, and
	 * never part of a graph. */
	int (*share_tokens)(struct coll *c, struct kern_stream *s, int32_t *tokens, const int32_t *at, int n);
	/* Like stream_sync(), but also ends when a peer is lost. */
	int (*sync)(struct coll *c, struct kern_stream *s);
	/* Check for lost peers, without waiting.  Call it now and then while queued work is not done: an
	 * operation that waits for a lost peer would never finish.  since_us (clock_us()): when this rank
	 * finished all earlier work; a peer that has not arrived timeout_ms after that is late. */
	int (*look)(struct coll *c, int64_t since_us);

	/* Synchronous, on host memory.  all [n_ranks][bytes]: mine [bytes] of every rank. */
	int (*gather)(struct coll *c, void *all, const void *mine, size_t bytes);
	int (*broadcast)(struct coll *c, void *bytes_of_rank_0, size_t bytes);
	int (*barrier)(struct coll *c);
};

#endif
