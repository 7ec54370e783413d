/* beside.h - the host's CPU beside a worker's GPU: experts that lie in host memory, and the way to them.
 *
 *   GPU stream   route | x, experts, weights -> host, event | the shared expert ............ | sum -> GPU, +
 *   host         queues all of that        | waits for the event | norm, experts of the CPU  |
 *
 * The residual stream crosses, in F32, and not what the GPU's norm makes of it, which has a layout that only
 * its table knows: the norm is computed once more, by the CPU's table.  A row's bits depend on that row
 * alone, since both tables keep that rule, and where an expert is computed is fixed when the model is loaded.
 * All memory is allocated at the start.  Knows nothing of models or layers. */
#ifndef QUERN_WORKER_EXPERTS_BESIDE_H
#define QUERN_WORKER_EXPERTS_BESIDE_H

#include "kernels/kern.h"

#include <stddef.h>
#include <stdint.h>

struct beside;

struct beside_args {
	const struct kern_ops *ops; /* of the GPU; borrowed for its life, as is dev */
	struct kern_dev *dev;
	struct kern_open_args cpu; /* for the CPU's table; its sizes but max_rows are not read */
	int hidden, n_chosen;
};

/* A device as parts of a model are loaded to it. */
struct beside_table {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct kern_info info;
};

/* -ENOMEM, -ENOTSUP, ... with the reason. */
int beside_open(struct beside **out, const struct beside_args *a, char *why, size_t why_n);
void beside_close(struct beside *b); /* NULL is fine; what was loaded to its table is freed before */
const struct beside_table *beside_table(const struct beside *b);

/* The three parts of a layer, in this order; all rows of a step at once.
 * send: queues on s, a stream of the GPU, what the CPU reads: x F32 [n_rows, hidden], expert and weight
 * [n_rows, n_chosen].  compute: waits for that, not for what was queued on s since; norm: F32 [hidden] of the
 * CPU's table, or NULL.  finish: queues on s the experts' sum to out, F32 [n_rows, hidden] of the GPU. */
int beside_send(struct beside *b, struct kern_stream *s, const void *x, const int32_t *expert,
		const float *weight, int n_rows);
int beside_compute(struct beside *b, const struct kern_experts *experts, const void *norm, float eps,
		   int n_rows);
int beside_finish(struct beside *b, struct kern_stream *s, void *out, int n_rows);

/* The experts of the rows that the last compute had: int32 [n_rows, n_chosen]. */
const int32_t *beside_chosen(const struct beside *b);

#endif
