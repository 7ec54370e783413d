/* swaps.h - copies of blocks between the device's pool and the host's, on a stream of their own, parallel
 * to the computation.
 *
 *   step's stream:  .. steps before ..|computed|  step n          |wait for moved| step that touches them
 *   swaps' stream:                    |wait    |  out, in of n    |moved|
 *
 * A swap begins when all work queued before it is done.  A step waits only if it must: to write a block
 * that is being copied out, or to use a block that is being copied in.  Swaps wait for each other, since a
 * host block filled by one may be the source of the next. */
#ifndef QUERN_WORKER_SWAPS_H
#define QUERN_WORKER_SWAPS_H

#include "kernels/kern.h"

#include <stdbool.h>
#include <stdint.h>

struct swaps;

/* Create swaps for a device pool of n_blocks.  ops, dev and kv are borrowed.  -EIO. */
int swaps_new(struct swaps **out, const struct kern_ops *ops, struct kern_dev *dev, struct kern_kv *kv,
	      int n_blocks);
void swaps_free(struct swaps *w); /* waits for swaps in flight; NULL is fine */

/* Queue a plan's swaps after the work already queued on s: first out (device, host), then in (host,
 * device).  The pairs are borrowed for the call.  0, -EIO. */
int swaps_queue(struct swaps *w, struct kern_stream *s, const int32_t (*out)[2], int n_out,
		const int32_t (*in)[2], int n_in);

/* Call before work that reads, or writes, this block is queued on s: s waits for a swap of the block.  0,
 * -EIO. */
int swaps_reads(struct swaps *w, struct kern_stream *s, int block);
int swaps_writes(struct swaps *w, struct kern_stream *s, int block);

/* True if a swap is in flight that s has not waited for. */
bool swaps_pending(struct swaps *w);

#endif
