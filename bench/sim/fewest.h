/* fewest.h - the fewest workers that keep the objectives under a trace, with the future known: a schedule,
 * one number for each slot of time, found by search in the simulation of the service itself (fleet_replay.h).
 * Its workers cost no time to start.
 *
 * A schedule by the load (work of a slot over what a replica does, times a factor; the least factor that will
 * do), then fewer by one wherever the objectives are still kept, over long stretches first.  What is found
 * keeps the objectives; that no schedule with fewer does is not proven. */
#ifndef QUERN_BENCH_SIM_FEWEST_H
#define QUERN_BENCH_SIM_FEWEST_H

#include "bench/sim/fleet_replay.h"

struct fewest {
	uint32_t *schedule; /* [n] owned */
	size_t n;
	int64_t slot_us;
	uint32_t constant; /* the fewest that keep them if their number never changes */
	double constant_worker_s;
	uint32_t n_runs;                   /* simulations */
	struct fleet_replay_report report; /* of the schedule */
};

/* cfg: of the service, whose own scaling does not count.  most: replicas; share: of the requests that must be
 * good. -ERANGE: `most` do not suffice.  progress: called after each simulation; may be NULL. */
int fewest_find(const struct fleet_replay_config *cfg, const struct trace *trace, int64_t slot_us,
		uint32_t most, double share, void (*progress)(const struct fewest *f), struct fewest *out,
		char *why, size_t why_n);
void fewest_fini(struct fewest *f);

#endif
