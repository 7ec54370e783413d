/* beside.h - CPU offload of experts: host experts, computed by the host's CPU for a worker on a GPU.
 *
 *   GPU stream   route | x, experts, weights -> host, event | the shared expert ............ | sum -> GPU, +
 *   host         queues all of that        | waits for the event | norm, experts of the CPU  |
 *
 * The residual stream is transferred, in F32, rather than the GPU's normed rows: only the GPU's table knows
 * their layout.  So the CPU's table computes the norm again.  A row's bits depend on that row alone: both
 * tables keep that rule, and the device of each expert is fixed when the model is loaded.  All memory is
 * allocated at start-up.  Knows nothing of models or layers. */
#ifndef QUERN_WORKER_EXPERTS_BESIDE_H
#define QUERN_WORKER_EXPERTS_BESIDE_H

#include "kernels/kern.h"

#include <stddef.h>
#include <stdint.h>

struct beside;

struct beside_args {
	const struct kern_ops *ops; /* the GPU's table; ops and dev are borrowed for its life */
	struct kern_dev *dev;
	struct kern_open_args cpu; /* for the CPU's table; of its sizes only max_rows is used */
	int hidden, n_chosen;
};

/* A device to which parts of a model are loaded. */
struct beside_table {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct kern_info info;
};

/* Open the CPU's table and allocate the memory.  -ENOMEM, -ENOTSUP, ... with the reason. */
int beside_open(struct beside **out, const struct beside_args *a, char *why, size_t why_n);
void beside_close(struct beside *b); /* NULL is fine; free everything loaded to its table first */
const struct beside_table *beside_table(const struct beside *b);

/* The three phases of a layer, in this order, for all rows of a step. send: queue on s, a stream of the
 * GPU, the transfer of the CPU's input: x F32 [n_rows, hidden], expert and weight [n_rows, n_chosen].
 * compute: wait for that transfer, not for later work on s, and compute; norm: F32 [hidden] of the CPU's
 * table, or NULL.  finish: queue on s the transfer of the experts' sum to out, F32 [n_rows, hidden] of the
 * GPU. */
int beside_send(struct beside *b, struct kern_stream *s, const void *x, const int32_t *expert,
		const float *weight, int n_rows);
int beside_compute(struct beside *b, const struct kern_experts *experts, const void *norm, float eps,
		   int n_rows);
int beside_finish(struct beside *b, struct kern_stream *s, void *out, int n_rows);

/* Return the experts of the rows of the last compute: int32 [n_rows, n_chosen]. */
const int32_t *beside_chosen(const struct beside *b);

#endif
