/* cache.h - the paged KV cache of one device: how large it is, and the block moves of a plan.
 * Which block holds what is the controller's business. */
#ifndef QUERN_WORKER_CACHE_H
#define QUERN_WORKER_CACHE_H

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
	int64_t block_bytes; /* all layers */
	uint64_t link_bps;   /* bytes per second between the pools, measured at the start; 0: no host pool */
};

/* What to make of the memory: kv_bytes on the device and swap_bytes on the host.
 *
 * 0 kv_bytes: what is left of `fraction` of the device's memory beside all that this worker has taken
 * there by now, but never more than what is free, less a margin for what drivers take late.  On the
 * CPU, where the host pool comes out of the same memory, it counts, too; and without a fraction the
 * pool there is a quarter of what is free beside the weights, but no more than 16 sequences of
 * max_context need.
 * 0 swap_bytes: as much as the device pool, but no more than a sixteenth of this machine's memory, and
 * no more than 8 GiB where it must be pinned. */
struct cache_args {
	const struct kern_ops *ops; /* borrowed */
	struct kern_dev *dev;
	const struct model_config *model;
	int block_size;
	int max_context;
	int64_t weights_bytes; /* not on the device yet */
	uint64_t kv_bytes, swap_bytes;
	double fraction;       /* 0: 0.9 of a GPU */
};

/* Is the size known only once everything else is on the device, and each kind of step has run? */
bool cache_sized_last(const struct cache_args *a);

/* What can be refused before anything is loaded: -ENOTSUP as below; -ENOMEM where the weights alone are
 * more than there is. */
int cache_check(const struct cache_args *a, char *why, size_t why_n);
/* How many blocks that gives; nothing is allocated.  -ENOMEM with the figures and the remedy where it is
 * not even one, or too few of what a fraction leaves; -ENOTSUP for a head size that the device cannot
 * do. */
int cache_size(struct cache *c, const struct cache_args *a, char *why, size_t why_n);
/* The pools of a sized cache; measures the link on s.  -ENOMEM with the bytes. */
int cache_open(struct cache *c, const struct cache_args *a, struct kern_stream *s, char *why, size_t why_n);
void cache_close(struct cache *c); /* a zeroed one is fine */

/* The plan's swaps out, then in, then copies, queued: swaps beside what s does (swaps.h), copies on s.
 * -EINVAL: a block that is not there. */
int cache_run(struct cache *c, struct kern_stream *s, const struct plan *p, char *why, size_t why_n);
/* Before what computes this batch is queued on s: s waits for the swaps that are in its way, and for no
 * other.  -EIO. */
int cache_settle(struct cache *c, struct kern_stream *s, const struct kern_batch *b, char *why, size_t why_n);

#endif
