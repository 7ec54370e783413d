/* swaps.h - blocks on their way between the device's pool and the host's, on a stream of their own,
 * beside the computation.
 *
 *   step's stream:  .. steps before ..|computed|  step n          |wait for moved| step that touches them
 *   swaps' stream:                    |wait    |  out, in of n    |moved|
 *
 * A swap begins when all that was queued for the step is done.  The step itself waits only where it
 * must: to write into a block that is being copied out, to read or write one that is being copied in.
 * Swaps wait for each other: a host block that one fills may be the next one's source. */
#ifndef QUERN_WORKER_SWAPS_H
#define QUERN_WORKER_SWAPS_H

#include "kernels/kern.h"

#include <stdbool.h>
#include <stdint.h>

struct swaps;

/* n_blocks: of the device.  ops, dev and kv are borrowed.  -EIO. */
int swaps_new(struct swaps **out, const struct kern_ops *ops, struct kern_dev *dev, struct kern_kv *kv,
	      int n_blocks);
void swaps_free(struct swaps *w); /* waits for what is under way; NULL is fine */

/* Queue a plan's swaps behind the work already queued on s: first out (device, host), then in (host, device).
 * The pairs are borrowed for the call.  0, -EIO. */
int swaps_queue(struct swaps *w, struct kern_stream *s, const int32_t (*out)[2], int n_out,
		const int32_t (*in)[2], int n_in);

/* The next work on s reads, or writes, this block: s waits for a swap of the block.  0, -EIO. */
int swaps_reads(struct swaps *w, struct kern_stream *s, int block);
int swaps_writes(struct swaps *w, struct kern_stream *s, int block);

/* True: a swap is under way that s has not waited for. */
bool swaps_pending(struct swaps *w);

#endif
