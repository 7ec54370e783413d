/* sched_rig.h - a scheduler with a simulated device, driven by a seed, and jobs with known outputs.
 * The test chooses the pools, the jobs and the disturbances with rig_rnd().  The rig checks that every job
 * ends once, with a reason, and that every output has exactly the tokens of an undisturbed run
 * (device_expect, device_search).  A failure prints the seed and how to replay it. */
#ifndef QUERN_TESTS_SIM_SCHED_RIG_H
#define QUERN_TESTS_SIM_SCHED_RIG_H

#include "controller/sched/sched_move.h"
#include "tests/sim/device.h"

#include <stdbool.h>
#include <stdint.h>

struct rig_job {
	uint32_t *prompt, n_prompt; /* owned */
	struct params params;       /* owned */
	uint32_t *want;             /* [params.n][params.max_tokens] undisturbed outputs; owned */
	uint32_t n_want[PARAMS_N_MAX], n_out[PARAMS_N_MAX], n_done;
	bool output_done[PARAMS_N_MAX], stopped[PARAMS_N_MAX], cancelled, done;
	bool ends[PARAMS_N_MAX]; /* beam search: the hypothesis ends in a stop token */
	bool pooled;
	int64_t deadline_us;
};

struct sched_rig {
	const char *replay; /* name of the environment variable that replays a seed */
	uint64_t rng, seed;
	struct sched_config cfg;
	uint32_t n_blocks, n_host, max_context;
	uint32_t drafts_right; /* device_draft() */
	struct kinds kinds;    /* of layers; rig_init() sets one without a window */
	struct sched *sched;
	struct device *device; /* NULL: no worker serves */
	uint64_t epoch;
	int64_t now;
	struct plan plan;
	struct result result;
	uint32_t n_under_way; /* plans in flight: submitted to the device, results not applied yet */
	struct sched_events ev;
	struct rig_job *jobs; /* [n_want] */
	uint32_t n_want, n_jobs, n_ended;
};

/* Initialize with a seed, at time 1.  The test then sets cfg, n_blocks, n_host and max_context. */
void rig_init(struct sched_rig *r, uint64_t seed, const char *replay);
/* Choose kinds of layers, most with windows, in half of the cases, and lower max_context to what then fits
 * into n_blocks.  Called when the rest is set. */
void rig_choose_kinds(struct sched_rig *r);
/* Create the scheduler, for n_want jobs; no worker serves yet. */
void rig_open(struct sched_rig *r, uint32_t n_want);
/* Apply the results in flight, and check that nothing is left. */
void rig_close(struct sched_rig *r, struct sched_stats *st);

/* Choose by the seed whether runs have drafts, how many, and how many are right. */
void rig_choose_drafts(struct sched_rig *r);

uint32_t rig_rnd(struct sched_rig *r, uint32_t n); /* 0..n-1 */
void rig_fail(const struct sched_rig *r, const char *what);

/* Return the next job, to be filled in (prompt, params with a stop token); rig_group(): its group, which the
 * test adds. */
struct rig_job *rig_job(struct sched_rig *r);
struct group *rig_group(struct sched_rig *r, struct rig_job *j);
void rig_cancel(struct sched_rig *r, uint32_t job);
void rig_stop(struct sched_rig *r, uint32_t job, uint32_t index); /* the front end found a stop string */

void rig_start_worker(struct sched_rig *r);
void rig_lose_worker(struct sched_rig *r);

/* Check the events so far. */
void rig_take_events(struct sched_rig *r);
/* Make the next plan and submit it to the device.  False: there is none. */
bool rig_plan(struct sched_rig *r);
/* Execute the oldest plan in flight on the device, and apply its result. */
void rig_apply_oldest(struct sched_rig *r);

#endif
