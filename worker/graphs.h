/* graphs.h - decode steps captured as device graphs (kern_ops.graph_*): all operations of a model's step in
 * one launch.
 *
 * A graph is for one batch size; a step with one row per sequence is padded to the next size.  Sizes: 1, 2,
 * 4, then multiples of 8 up to 256, then of 16 up to 512, as far as a step can have them; the last size is
 * the largest step.  All graphs are made at start-up; a step allocates nothing.  Other steps run operation
 * by operation, with the same bits: prompts, steps with more sequences or rows of logits than the largest
 * size, devices without graphs.  The ranks of a group make the same graphs together.  These contain the
 * group's collectives, so a new group makes its own graphs. */
#ifndef QUERN_WORKER_GRAPHS_H
#define QUERN_WORKER_GRAPHS_H

#include "base/err.h"
#include "kernels/kern.h"
#include "worker/model.h"

#include <stddef.h>
#include <stdint.h>

struct graphs;

struct graphs_args {
	/* ops, dev, stream, model, group, kv and tokens are borrowed for the graphs' life */
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct model *model;
	struct tp_group *group; /* the model's; or NULL */
	struct kern_kv *kv;
	const int32_t *tokens;                          /* the device's token buffer */
	int max_rows;                                   /* the lesser of a step's runs and rows of logits */
	void (*progress)(void *arg, unsigned permille); /* or NULL */
	void *progress_arg;
};

/* Make all graphs, on null rows: the cache's contents are unchanged.  *out is NULL if the device has no
 * graphs; else it is set before the first graph is made, so that graphs_drop() works if the group ends
 * meanwhile.  If the memory of any rank runs out, larger steps run without a graph, which is logged.  -EIO,
 * or the error that ended the group (tp_group_broke()), with the reason. */
int graphs_new(struct graphs **out, const struct graphs_args *a, struct why *why);
void graphs_free(struct graphs *g); /* NULL is fine, here and below; does not wait for a launch */
/* Free all graphs, without waiting: later steps run without them. */
void graphs_drop(struct graphs *g);

/* Return the pad_to with which the batch can be launched, if its n_logits are all its outputs; 0: none. */
int graphs_pick(const struct graphs *g, const struct kern_batch *b);
/* Run model_forward() and model_head() for the batch that was set with that pad_to. */
int graphs_launch(struct graphs *g, int pad_to);

int graphs_count(const struct graphs *g);
int64_t graphs_bytes(const struct graphs *g);     /* device memory */
uint64_t graphs_launched(const struct graphs *g); /* since the start */

/* Compute the sizes that a step of at most max_rows is padded to, ascending; return their number.  sizes:
 * [GRAPHS_MAX]. */
enum { GRAPHS_MAX = 64 };
int graphs_sizes(int max_rows, int sizes[GRAPHS_MAX]);

#endif
