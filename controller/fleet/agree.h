/* agree.h - one compute mode for all workers of a kind of device, where --compute leaves it to them.
 *
 * What "auto" means depends on the machine, and replicas of different modes would give one request different
 * tokens.  So the first worker of a kind ("cpu", "cuda") decides, and every later one of that kind is told to
 * take the same mode: a mode's bits are the same on all machines (kernels/kern.h), only its speed differs.
 * It stays until the controller ends: jobs are bound to it.
 *
 * The next controller agrees on the same again, for the jobs of its journal and the workers that wait with
 * their weights: a worker that has loaded a model names the mode of that, and the first such worker of a kind
 * settles it, unless one serves already.  What has been loading in another mode loads again.
 *
 *     first worker        load (int16) . . . . . . ready      load (f32) . . ready
 *     another, with f32               hello, load (f32) . . . . ready: settled
 *     one more, with int8                                                   hello, load (f32)
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
		bool settled; /* a worker of the kind serves in it, or had loaded a model in it */
	} kinds[AGREE_KINDS]; /* [n] */
	int n;
};

/* The mode for a worker on `device` ("cpu:0"), which has loaded, or by itself would take `own` (from its
 * hello, not trusted).  wanted: --compute; anything but "auto" is returned as it is, as is "auto" for a kind
 * too many. *first: this worker has decided.  The result is valid as long as its arguments and a. */
const char *agree_compute(struct agree *a, const char *wanted, const char *device, const char *own,
			  bool loaded, bool *first);
/* What a worker is to load. */
struct agree_modes {
	char compute[8];
	char experts[8]; /* of experts on the CPU beside its device; "": it has none, or its user chose */
};

/* A worker takes part in the choice, by its hello; the log has which of them has chosen, and which take
 * another mode than their own.  wanted: --compute. */
void agree_join(struct agree *a, const char *wanted, const struct bus_hello *h, uint64_t worker);
/* The modes of a worker that has joined. */
void agree_modes(struct agree *a, const char *wanted, const struct bus_hello *h, struct agree_modes *out);
/* A worker is ready that has loaded `modes`: from now on no other worker changes them.  false: they have
 * changed meanwhile, and it must load again. */
bool agree_settle(struct agree *a, const char *wanted, const struct bus_hello *h,
		  const struct agree_modes *modes);

#endif
