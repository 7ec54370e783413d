/* cache.h - the paged KV cache of one device: its size, and the block moves of a plan.
 * The controller decides which block holds which tokens. */
#ifndef QUERN_WORKER_CACHE_H
#define QUERN_WORKER_CACHE_H

#include "base/err.h"
#include "formats/config.h"
#include "kernels/kern.h"
#include "proto/plan.h"
#include "worker/swaps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cache {
	const struct kern_ops *ops;
	struct kern_kv *kv;
	struct swaps *swaps;
	int block_size; /* tokens */
	int n_blocks;
	int n_host_blocks;
	int64_t block_bytes; /* bytes of a block: all layers of a kind */
	struct kinds kinds;  /* kinds of layers, which share the pools */
	uint64_t link_bps;   /* bytes per second between the pools, measured at start-up; 0: no host pool */
};

/* The sizes of the pools: kv_bytes on the device, swap_bytes on the host.  On a CPU both are one pool, of
 * kv_bytes + swap_bytes: swapping would copy from host memory to host memory.
 *
 * kv_bytes 0: `fraction` of the device's memory, less all that this worker has allocated there; at most the
 * free memory, less a margin for drivers that allocate late.  swap_bytes is within the fraction on a CPU.
 *
 * On a CPU without a fraction, kv_bytes 0 is a quarter of the machine's memory, halved until it is at most a
 * third of the memory left by the weights; at most 16 sequences of max_context.  swap_bytes 0 adds as much,
 * at most a sixteenth of the memory, unless kv_bytes is given.  If the pool holds less than max_context, it
 * is a multiple of 1,024 tokens.
 *
 * On a GPU, swap_bytes 0 is as much as the device pool, at most a sixteenth of this machine's memory, and at
 * most 8 GiB, since the host pool is pinned. */
struct cache_args {
	const struct kern_ops *ops; /* borrowed */
	struct kern_dev *dev;
	const struct model_config *model;
	const struct config_kinds *kinds; /* borrowed; NULL: one kind of all layers */
	int block_size;
	int max_context;
	int max_rows;          /* tokens of a step */
	int64_t weights_bytes; /* weights that are not on the device yet */
	uint64_t kv_bytes, swap_bytes;
	double fraction; /* 0: 0.9 of a GPU */
	bool two_pools;  /* a CPU has a host pool as well, for tests of swaps */
};

/* True if all blocks are in one pool: the device's memory is the host's. */
bool cache_is_one_pool(const struct cache_args *a);

/* True if the size can be computed only after everything else is on the device and each kind of step has
 * run. */
bool cache_sized_last(const struct cache_args *a);

/* Check what is possible before anything is loaded.  -ENOTSUP as below; -ENOMEM: the weights alone exceed
 * the memory. */
int cache_check(const struct cache_args *a, struct why *why);
/* Compute the numbers of blocks; allocate nothing.  -ENOMEM with the figures and the remedy: not even one
 * block fits, or a fraction leaves too few; -ENOTSUP: a head size that the device does not support. */
int cache_size(struct cache *c, const struct cache_args *a, struct why *why);
/* Allocate the pools of a sized cache; measure the link on s.  -ENOMEM with the bytes. */
int cache_open(struct cache *c, const struct cache_args *a, struct kern_stream *s, struct why *why);
void cache_close(struct cache *c); /* a zeroed one is fine */

/* Queue the plan's swaps out, then in, on their own stream (swaps.h), and its copies on s.  -EINVAL: a
 * block beyond the pool. */
int cache_run(struct cache *c, struct kern_stream *s, const struct plan *p, struct why *why);
/* Call before the batch's operations are queued on s: makes s wait for the swaps of blocks that the batch
 * uses, and for no others.  -EIO. */
int cache_settle(struct cache *c, struct kern_stream *s, const struct kern_batch *b, struct why *why);

#endif
