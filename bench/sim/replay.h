/* replay.h - the scheduler under load, in simulated time: the real scheduler plans arrivals, and a device of
 * the cost model executes the plans.
 *
 *     plan n+1     |--cpu--|                |--cpu--|        up to SCHED_AHEAD plans in flight
 *     device     ----- step n -----><----- step n+1 -----><-- one step at a time
 *     result n                     |                     |  applied before the next plan
 *
 * Tokens are a hash of (chat, position), so that the next turn of a chat repeats its history without storing
 * it.  The scheduler's decisions depend only on the configuration and the seed; measured CPU times vary. */
#ifndef QUERN_BENCH_SIM_REPLAY_H
#define QUERN_BENCH_SIM_REPLAY_H

#include "base/err.h"
#include "bench/sim/costmodel.h"
#include "bench/sim/samples.h"
#include "bench/sim/traces.h"
#include "controller/sched/sched.h"

#include <stddef.h>
#include <stdint.h>

enum { REPLAY_VOCAB = 151936 };

/* Objectives of a good request, in ms; 0: none. */
struct slo {
	double ttft_ms, tpot_ms, e2el_ms;
};
/* Parse "ttft:1000,tpot:50". */
int slo_parse(const char *text, struct slo *out, struct why *why);

struct replay_config {
	struct sched_config sched;
	struct costmodel cost;
	uint32_t n_blocks, n_host_blocks;
	uint32_t max_context;   /* longer requests, and requests larger than the pool, are refused */
	uint32_t shared_prefix; /* tokens of a prefix that all prompts share */
	uint32_t n_turns;       /* turns per chat; 1: single requests */
	double think_us;        /* mean time between a turn's end and the arrival of the next turn */
	struct lengths lengths; /* for later turns: new text, output */
	uint32_t n_users;
	bool fcfs; /* treat all requests as one user's */
	uint64_t seed;
	struct slo slo;
	/* Instead of a trace: keep this many sequences decoding, and measure `steps` steps once all are
	 * admitted. 0: use the trace. */
	uint32_t running, steps, running_prompt;
};

/* For `running`: the longest sequence, and the size of a pool that holds all sequences. */
uint64_t replay_running_tokens(const struct replay_config *cfg);
uint64_t replay_running_blocks(const struct replay_config *cfg);

struct replay_user {
	uint64_t n_done, n_good, output_tokens;
	struct samples ttft_ms, tpot_ms;
};

struct replay_report {
	uint64_t n_requests, n_done, n_refused, n_good;
	uint64_t prompt_tokens, output_tokens;    /* of completed requests */
	uint64_t admitted_tokens, cached_tokens;  /* prompt tokens at first admission; of these, found in the
						   * cache */
	uint64_t recomputed_tokens;               /* tokens computed again after a preemption */
	uint64_t n_preempted, n_preempted_swap;   /* preempted sequences; of these, swapped out */
	uint64_t n_swap_out, n_swap_in, n_copies; /* numbers of blocks */
	uint64_t n_steps, n_rows;
	struct samples ttft_ms, tpot_ms, itl_ms, e2el_ms;
	struct samples step_ms;     /* device time per step */
	struct samples step_cpu_us; /* CPU time of the engine per step, all categories below */
	struct samples plan_bytes;
	/* Mean CPU time per step.  other: arrivals, and calls when there was nothing to plan. */
	double plan_cpu_us, encode_cpu_us, decode_cpu_us, apply_cpu_us, other_cpu_us;
	double allocs_per_step;
	double sim_s, busy_s;                         /* simulated time; of this, the device was busy */
	double wall_s, cpu_s;                         /* real time and CPU time of the whole simulation */
	double waiting_mean, running_mean, held_mean; /* means over time; held: fraction of the pool, 0..1 */
	uint32_t waiting_max, running_max;
	double held_max;
	struct replay_user *users; /* [n_users] */
	uint32_t n_users;
};

/* Run the simulation.  -EDEADLK: requests wait but nothing is planned; -ENOSPC: the pool is too small for
 * `running`. */
int replay_run(const struct replay_config *cfg, const struct trace *trace, struct replay_report *out,
	       struct why *why);
void replay_report_fini(struct replay_report *r);

#endif
