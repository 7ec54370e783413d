/* prefetch.h - experts of layers beside a GPU that come to it for a step of many rows, a layer ahead.
 *
 * Their weights lie in pinned host memory as the GPU's table packs them, a second copy beside the one that
 * the CPU computes with.  The device has two slots, each as large as the largest layer (one, of one
 * layer):
 *
 *     copies   | 0 -> slot 0 | 1 -> slot 1 |   | 2 -> slot 0 |     | 3 -> slot 1 |
 *     step       attention 0  | experts 0    |  attention 1 | experts 1 |  attention 2 | experts 2 ...
 *
 * Experts of a layer wait until they have arrived, and a slot is filled again when the experts in it have
 * been computed: two events a slot, and the host waits for neither.  Knows nothing of models. */
#ifndef QUERN_WORKER_EXPERTS_PREFETCH_H
#define QUERN_WORKER_EXPERTS_PREFETCH_H

#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prefetch;

/* For at most n_layers.  0, -EIO with the reason. */
int prefetch_open(struct prefetch **out, const struct kern_ops *ops, struct kern_dev *dev, int n_layers,
		  char *why, size_t why_n);
/* With the experts; waits for copies under way.  The streams of steps have done their work.  NULL is fine. */
void prefetch_close(struct prefetch *p);

/* While a model is loaded: the next layer's experts, consumed; *place: its number, from 0.  -ENOMEM: no
 * pinned memory, -EIO. */
int prefetch_add(struct prefetch *p, struct kern_experts **x, int *place, char *why, size_t why_n);
/* All layers are there: the slots.  -ENOMEM with the bytes. */
int prefetch_ready(struct prefetch *p, char *why, size_t why_n);
int64_t prefetch_host_bytes(const struct prefetch *p);

/* A step on stream s: begin, then for each layer in the order of their numbers take, moe() on s with what
 * that gives, and give.  Behind a step that failed half-way s is synchronized before the next begins. Errors:
 * those of the device. */
int prefetch_begin(struct prefetch *p);
int prefetch_take(struct prefetch *p, struct kern_stream *s, int place, const struct kern_experts **x);
int prefetch_give(struct prefetch *p, struct kern_stream *s, int place);

/* Whether the host has room for bytes beside `kept`, which the CPU's table takes, of free ones.  -ENOMEM with
 * the figures and the remedy. */
struct prefetch_room {
	int64_t kept, bytes, free;
	int above; /* for the message */
};
int prefetch_check_room(const struct prefetch_room *r, char *why, size_t why_n);

/* From more than how many rows of a step on it takes less time to send a layer's experts than to compute them
 * on the CPU, by the rates in docs/performance/moe.md. */
struct prefetch_shape {
	int n_experts, n_chosen;
	double weight_bytes; /* of one weight, as the device's table packs it */
	int n_threads;       /* of the CPU's table */
	bool amx;            /* it computes by AMX */
};
int prefetch_crossover(const struct prefetch_shape *m);

#endif
