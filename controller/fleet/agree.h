/* agree.h - one compute mode for all workers of a kind of device, where --compute leaves the choice to them.
 *
 * The meaning of "auto" depends on the machine, and replicas of different modes would give one request
 * different tokens.  So the first worker of a kind ("cpu", "cuda") chooses, and every later worker of that
 * kind receives the same mode: a mode's bits are the same on all machines (kernels/kern.h), only its speed
 * differs.  The mode is fixed until the controller ends: jobs are bound to it.
 *
 * The next controller must reach the same choice, for the jobs of its journal and for the workers that wait
 * with their weights loaded.  So a worker that has loaded a model reports that model's mode, and the first
 * such worker of a kind fixes the mode, unless another worker serves already.  A worker that has been loading
 * in another mode loads again.
 *
 *     first worker        load (int16) . . . . . . ready      load (f32) . . ready
 *     second, has f32                  hello, load (f32) . . . . ready: fixed
 *     third, prefers int8                                                   hello, load (f32)
 *
 * No sockets, no clock. */
#ifndef QUERN_CONTROLLER_FLEET_AGREE_H
#define QUERN_CONTROLLER_FLEET_AGREE_H

#include "proto/bus.h"

#include <stdbool.h>
#include <stdint.h>

enum { AGREE_KINDS = 4 };

struct agree { /* zeroed: nothing is agreed on */
	struct {
		char kind[32], mode[8];
		bool fixed;   /* a worker of the kind serves in this mode, or had loaded it */
	} kinds[AGREE_KINDS]; /* [n] */
	int n;
};

/* Return the mode for a worker on `device` ("cpu:0").  own: the mode that it has loaded, or would choose by
 * itself (from its hello, not trusted).  wanted: --compute; any value but "auto" is returned unchanged, and
 * so is "auto" when there are too many kinds.  *first: this worker made the choice.  The result is valid as
 * long as the arguments and a. */
const char *agree_compute(struct agree *a, const char *wanted, const char *device, const char *own,
			  bool loaded, bool *first);
/* The modes that a worker is to load. */
struct agree_modes {
	char compute[8];
	char experts[8]; /* mode of its host experts (CPU offload); "": it has none, or its user chose */
};

/* Let a worker take part in the choice, by its hello.  The log names the worker that chose, and workers that
 * use a mode other than their own.  wanted: --compute. */
void agree_join(struct agree *a, const char *wanted, const struct bus_hello *h, uint64_t worker);
/* Return the modes of a worker that has joined. */
void agree_modes(struct agree *a, const char *wanted, const struct bus_hello *h, struct agree_modes *out);
/* A worker that has loaded `modes` is ready: from now on no other worker changes them.  False: the modes have
 * changed meanwhile, and the worker must load again. */
bool agree_decide(struct agree *a, const char *wanted, const struct bus_hello *h,
		  const struct agree_modes *modes);

#endif
