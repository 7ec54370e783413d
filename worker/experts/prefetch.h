/* prefetch.h - streams host experts to the GPU for a step of many rows, a layer ahead.
 *
 * Their weights are stored in pinned host memory as the GPU's table packs them: a second copy, besides the
 * one that the CPU computes with.  The device has two buffers (slots), each as large as the largest layer;
 * a single layer has one:
 *
 *     copies   | 0 -> slot 0 | 1 -> slot 1 |   | 2 -> slot 0 |     | 3 -> slot 1 |
 *     step       attention 0  | experts 0    |  attention 1 | experts 1 |  attention 2 | experts 2 ...
 *
 * A layer's experts are computed when their copy has finished.  A slot is refilled when its experts have
 * been computed.  Each slot has an event for both; the host waits for neither.  Knows nothing of models. */
#ifndef QUERN_WORKER_EXPERTS_PREFETCH_H
#define QUERN_WORKER_EXPERTS_PREFETCH_H

#include "base/err.h"
#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prefetch;

/* Open for at most n_layers layers.  0, -EIO with the reason. */
int prefetch_open(struct prefetch **out, const struct kern_ops *ops, struct kern_dev *dev, int n_layers,
		  struct why *why);
/* Close and free the experts; waits for copies in flight.  The streams of steps must be idle.  NULL is
 * fine. */
void prefetch_close(struct prefetch *p);

/* While a model is loaded: add the next layer's experts, which are consumed; *place: the layer's number,
 * from 0.  -ENOMEM: no pinned memory; -EIO. */
int prefetch_add(struct prefetch *p, struct kern_experts **x, int *place, struct why *why);
/* All layers are added: allocate the slots.  -ENOMEM with the bytes. */
int prefetch_ready(struct prefetch *p, struct why *why);
int64_t prefetch_host_bytes(const struct prefetch *p);

/* For a step on stream s: begin; then, for each layer in the order of their numbers, take, moe() on s with
 * *x, and give.  After a step that failed half-way, synchronize s before the next begin.  Errors: those of
 * the device. */
int prefetch_begin(struct prefetch *p);
int prefetch_take(struct prefetch *p, struct kern_stream *s, int place, const struct kern_experts **x);
int prefetch_give(struct prefetch *p, struct kern_stream *s, int place);

/* Check that the host has room for `bytes` of pinned memory and the `kept` bytes of the CPU's table, in
 * `free` bytes.  -ENOMEM with the figures and the remedy. */
struct prefetch_room {
	int64_t kept, bytes, free;
	int above; /* rows above which steps stream experts, for the message */
};
int prefetch_check_room(const struct prefetch_room *r, struct why *why);

/* Return the number of rows above which streaming a layer's experts is faster than computing them on the
 * CPU, by the rates in docs/performance/moe.md. */
struct prefetch_shape {
	int n_experts, n_chosen;
	double weight_bytes; /* bytes per weight, as the device's table packs it */
	int n_threads;       /* threads of the CPU's table */
	bool amx;            /* the CPU's table uses AMX */
};
int prefetch_crossover(const struct prefetch_shape *m);

#endif
