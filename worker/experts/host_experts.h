/* host_experts.h - CPU offload of experts: host experts, computed by the host's CPU for a worker on a GPU.
 *
 *   GPU stream   route | x, experts, weights -> host, event | the shared expert ............ | sum -> GPU, +
 *   host         queues all of that        | waits for the event | norm, experts of the CPU  |
 *
 * The residual stream is transferred, in F32, rather than the GPU's normed rows: only the GPU's table knows
 * their layout.  So the CPU's table computes the norm again.  A row's bits depend on that row alone: both
 * tables keep that rule, and the device of each expert is fixed when the model is loaded.  All memory is
 * allocated at start-up.  Knows nothing of models or layers. */
#ifndef QUERN_WORKER_EXPERTS_HOST_EXPERTS_H
#define QUERN_WORKER_EXPERTS_HOST_EXPERTS_H

#include "base/err.h"
#include "kernels/kern.h"

#include <stddef.h>
#include <stdint.h>

struct host_experts;

struct host_experts_args {
	const struct kern_ops *ops; /* the GPU's table; ops and dev are borrowed for its life */
	struct kern_dev *dev;
	struct kern_open_args cpu; /* for the CPU's table; of its sizes only max_rows is used */
	int hidden, n_chosen;
};

/* A device to which parts of a model are loaded. */
struct host_experts_table {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct kern_info info;
};

/* Open the CPU's table and allocate the memory.  -ENOMEM, -ENOTSUP, ... with the reason. */
int host_experts_open(struct host_experts **out, const struct host_experts_args *a, struct why *why);
void host_experts_close(struct host_experts *b); /* NULL is fine; free everything loaded to its table first */
const struct host_experts_table *host_experts_table(const struct host_experts *b);

/* The three phases of a layer, in this order, for all rows of a step. send: queue on s, a stream of the
 * GPU, the transfer of the CPU's input: x F32 [n_rows, hidden], expert and weight [n_rows, n_chosen].
 * compute: wait for that transfer, not for later work on s, and compute; norm: F32 [hidden] of the CPU's
 * table, or NULL.  finish: queue on s the transfer of the experts' sum to out, F32 [n_rows, hidden] of the
 * GPU. */
int host_experts_send(struct host_experts *b, struct kern_stream *s, const void *x, const int32_t *expert,
		      const float *weight, int n_rows);
int host_experts_compute(struct host_experts *b, const struct kern_experts *experts, const void *norm,
			 float eps, int n_rows);
int host_experts_finish(struct host_experts *b, struct kern_stream *s, void *out, int n_rows);

/* Return the experts of the rows of the last compute: int32 [n_rows, n_chosen]. */
const int32_t *host_experts_chosen(const struct host_experts *b);

#endif
