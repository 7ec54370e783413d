/* graphs.h - steps of decoding as the device keeps them (kern_ops.graph_*): all operations of a
 * model's step, one launch for the host.
 *
 * A graph is for a size of batch; a step of one row to a sequence is padded to the next one.
 * Sizes: 1, 2, 4, then every 8 to 256, then every 16 to 512, none beyond what a step can have, the
 * last one exactly that.  All are made at the start; a step allocates nothing.
 * What takes no graph runs operation by operation, with the same bits: prompts, steps of more
 * sequences or rows of logits than the largest size, devices without graphs.
 * The ranks of a group make the same graphs together, with what they exchange in them, for this group:
 * another group makes its own. */
#ifndef QUERN_WORKER_GRAPHS_H
#define QUERN_WORKER_GRAPHS_H

#include "kernels/kern.h"
#include "worker/model.h"

#include <stddef.h>
#include <stdint.h>

struct graphs;

struct graphs_args {
	const struct kern_ops *ops; /* these seven are borrowed for the graphs' life */
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct model *model;
	struct tp_group *group; /* the model's; or NULL */
	struct kern_kv *kv;
	const int32_t *tokens; /* the device's token buffer */
	int max_rows;          /* of a step: runs, or rows of logits where these are fewer */
	void (*progress)(void *arg, unsigned permille); /* or NULL */
	void *progress_arg;
};

/* Makes them all, on null rows: nothing that is in the cache changes.  *out is NULL where the device
 * has none, and set before the first is made, so that graphs_drop() finds them if the group ends meanwhile.
 * Where its memory ends, or that of another rank, steps of the larger sizes take none, which is logged. -EIO,
 * or what ended the group (tp_group_broke()), with the reason. */
int graphs_new(struct graphs **out, const struct graphs_args *a, char *why, size_t why_n);
void graphs_free(struct graphs *g); /* NULL is fine, here and below; does not wait for a launch */
/* From now on no step takes one: all are freed, without waiting. */
void graphs_drop(struct graphs *g);

/* The pad_to with which a batch can be launched, if its n_logits are all its outputs; 0:
 * none. */
int graphs_pick(const struct graphs *g, const struct kern_batch *b);
/* model_forward() and model_head() for the batch that was set with that pad_to. */
int graphs_launch(struct graphs *g, int pad_to);

int graphs_count(const struct graphs *g);
int64_t graphs_bytes(const struct graphs *g);     /* device memory */
uint64_t graphs_launched(const struct graphs *g); /* since the start */

/* The sizes that a step of at most max_rows is padded to, ascending; how many.  sizes:
 * [GRAPHS_MAX]. */
enum { GRAPHS_MAX = 64 };
int graphs_sizes(int max_rows, int sizes[GRAPHS_MAX]);

#endif
