/* fleet_replay.h - a whole service under load, in simulated time: the controller's real fleet (routing, work
 * stealing, scale and drain, schedulers, the worker bus), with workers of the cost model that start and end.
 *
 *     arrivals --> fleet (controller/fleet) --plans--> worker: one step after another, by costmodel.h
 *                    |  ^                   <-results--
 *                    |  '-- hello, ready: start_us after the order
 *                    '-- SCALE, KEEP: the simulated supervisor starts workers, and ends those that start
 *
 * The number of replicas is the fleet's own decision (engine.autoscale).  There is one thread; every message
 * passes through the bus's real encoders over inproc sockets.  The outcome depends only on the configuration
 * and the trace. */
#ifndef QUERN_BENCH_SIM_FLEET_REPLAY_H
#define QUERN_BENCH_SIM_FLEET_REPLAY_H

#include "base/err.h"
#include "bench/sim/costmodel.h"
#include "bench/sim/replay.h"
#include "bench/sim/samples.h"
#include "bench/sim/traces.h"
#include "controller/fleet/engine_config.h"

#include <stddef.h>
#include <stdint.h>

struct fleet_replay_config {
	struct engine_config
		engine; /* uses max_seqs, max_rows, chunk, step_us, step_auto, block_size, autoscale */
	struct costmodel cost;
	uint32_t n_blocks;    /* blocks of one worker */
	uint32_t max_context; /* longer requests are refused */
	uint32_t n_first;     /* workers that serve at the beginning */
	int64_t start_us;     /* time from the order of a worker until it serves */
	uint64_t seed;
	struct slo slo;
};

/* Number of workers from a time on. */
struct fleet_replay_point {
	int64_t at_us;
	uint32_t n_workers, n_serving;
};

struct fleet_replay_report {
	uint64_t n_requests, n_refused, n_done, n_good;
	uint64_t n_lost; /* accepted, but failed */
	struct samples ttft_ms, tpot_ms;
	double worker_s; /* worker seconds, from each worker's order to its end */
	double sim_s, wall_s;
	uint32_t n_started, n_ended, n_most;
	struct fleet_replay_point *points; /* [n_points] owned */
	size_t n_points, cap_points;
};

int fleet_replay_run(const struct fleet_replay_config *cfg, const struct trace *trace,
		     struct fleet_replay_report *out, struct why *why);
void fleet_replay_report_fini(struct fleet_replay_report *r);
/* Return the fraction of accepted requests that are good; 1 if there are none; 0 after an early end. */
double fleet_replay_good(const struct fleet_replay_report *r);

#endif
