/* agree.h - one compute mode for all workers of a kind of device, where --compute leaves it to them.
 *
 * What "auto" means depends on the machine, and replicas of different modes would give one request different
 * tokens.  So the first worker of a kind ("cpu", "cuda") decides, and every later one of that kind is told to
 * take the same mode: a mode's bits are the same on all machines (kernels/kern.h), only its speed differs.
 * It stays until the controller ends: jobs are bound to it.
 *
 * The next controller agrees on the same again, for the jobs of its journal and the workers that wait with
 * their weights: a worker that has loaded a model names the mode of that, which counts more than what a
 * worker without one would take.  Where such a one came first, it keeps its mode until its next load.  Pure.
 */
#ifndef QUERN_CONTROLLER_FLEET_AGREE_H
#define QUERN_CONTROLLER_FLEET_AGREE_H

#include <stdbool.h>

enum { AGREE_KINDS = 4 };

struct agree { /* zeroed: nothing is agreed on */
	struct {
		char kind[32], mode[8];
		bool loaded;  /* a worker that had loaded a model decided */
	} kinds[AGREE_KINDS]; /* [n] */
	int n;
};

/* The mode for a worker on `device` ("cpu:0"), which has loaded, or by itself would take `own` (from its
 * hello, not trusted).  wanted: --compute; anything but "auto" is returned as it is, as is "auto" for a kind
 * too many. *first: this worker has decided.  The result is valid as long as its arguments and a. */
const char *agree_compute(struct agree *a, const char *wanted, const char *device, const char *own,
			  bool loaded, bool *first);

#endif
