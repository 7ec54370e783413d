/* fewest.h - searches for the fewest workers that keep the objectives under a trace that is known in advance.
 * The result is a schedule, one number of workers per time slot, evaluated by simulating the service itself
 * (fleet_replay.h).  Its workers take no time to start.
 *
 * The first schedule follows the load: the work of a slot over the capacity of a replica, times the least
 * factor that keeps the objectives.  Then the number is reduced by one wherever the objectives are still
 * kept, long stretches first.  The result keeps the objectives; it is not proven to be minimal. */
#ifndef QUERN_BENCH_SIM_FEWEST_H
#define QUERN_BENCH_SIM_FEWEST_H

#include "bench/sim/fleet_replay.h"

struct fewest {
	uint32_t *schedule; /* [n] owned */
	size_t n;
	int64_t slot_us;
	uint32_t constant; /* fewest workers that keep the objectives if the number never changes */
	double constant_worker_s;
	uint32_t n_runs;                   /* number of simulations */
	struct fleet_replay_report report; /* of the schedule */
};

/* Search.  cfg: the service; its own scaling is ignored.  most: replicas; share: fraction of the requests
 * that must be good.  -ERANGE: `most` replicas do not suffice.  progress: called after each simulation; may
 * be NULL. */
int fewest_find(const struct fleet_replay_config *cfg, const struct trace *trace, int64_t slot_us,
		uint32_t most, double share, void (*progress)(const struct fewest *f), struct fewest *out,
		char *why, size_t why_n);
void fewest_fini(struct fewest *f);

#endif
