/* step.h - one worker without its socket: a model on a device, and the plans that it executes.
 * The link feeds it from the bus; the offline tools and the tests feed it directly.
 *
 *   struct step *s;
 *   step_open(&s, &args, &ready, why, sizeof why);
 *   while (...)
 *           step_run(s, &plan, &result, why, sizeof why);
 *   step_close(s);
 *
 * step_run() is step_begin() and step_end().  Between the two the device works, and further plans may be
 * begun (STEP_AHEAD in all), so that the next plan is queued before the device has done the first.
 *
 * One rank of a group (load->n_ranks > 1) holds its shard of the weights after step_open(), and serves
 * after step_join().  If its group is lost, it keeps the weights and joins the next one.
 *
 * Single-threaded, except for the progress callback, which is called from step_open(). */
#ifndef QUERN_WORKER_STEP_H
#define QUERN_WORKER_STEP_H

#include "base/err.h"
#include "formats/config.h"
#include "proto/bus.h"
#include "proto/plan.h"
#include "proto/vocabulary.h"
#include "worker/experts/expert_load.h"
#include "worker/loading.h"
#include "worker/tp_group.h"
#include "worker/tune.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct draft_report;
struct draft_source;
struct guide_counts;
struct guide_work;
struct hot_options;
struct step;
struct trace;

struct step_args {
	const char *device;     /* "cpu", "cpu:0", "cuda:1" */
	const char *isa;        /* NULL: the best */
	double memory_fraction; /* share of the device's memory for this worker; 0: the default (cache.h) */
	const struct bus_load *load;
	const char *path; /* the model on this host; NULL: load->model */
	/* A field below that is 0 or NULL has the default given. */
	const char *place; /* placement of the experts (formats/place/placement.h); NULL: all on the device */
	/* GPU-resident experts of layers on the CPU (formats/place/hot.h); NULL: none */
	const struct hot_options *hot;
	/* For load->fast with host experts: stream them to the device for steps of more rows than this; 0:
	 * than prefetch_crossover(); -1: never. */
	int stream_above_rows;
	bool no_graphs;          /* run every step operation by operation */
	bool two_pools;          /* a CPU has a host pool as well, for tests of swaps (cache.h) */
	struct tune_source tune; /* for load->fast: source of its crossovers */
	void (*progress)(void *arg, unsigned permille); /* or NULL */
	void *progress_arg;
	struct loading *loading;    /* progress, written during the load; or NULL */
	atomic_ullong *moves;       /* progress counter (model.h); borrowed for the step's life, or NULL */
	void (*at_work)(void *arg); /* called once per step, when the device is at work; or NULL */
	void *at_work_arg;
	enum experts_skew skew; /* EXPERTS_ROUTED but for measurements */
	int64_t least_us;       /* least time of a step, to imitate a slower device; 0: none */
	/* counters of experts, borrowed for the step's life; or NULL */
	struct expert_load *experts;
	struct trace *trace; /* times of steps (trace.h), borrowed for the step's life; or NULL */
	const struct draft_source *drafts; /* for tests: drafts (draft.h), borrowed; NULL: the lookup's */
	struct draft_report *draft_report; /* borrowed for the step's life; or NULL */
	const struct guide_work
		*guide; /* how masks of structured outputs are made (guide.h); NULL: within the step */
};

/* Load the model.  Fills in ready, except for a rank of a group, for which step_join() does.  -ENOENT,
 * -EINVAL, -ENOTSUP, -ENOMEM, -ENODEV with the reason. */
int step_open(struct step **out, const struct step_args *a, struct bus_ready *ready, struct why *why);
void step_close(struct step *s); /* NULL is fine; waits for plans in flight */

/* How a rank finds the others, and how long it waits for them. */
struct step_group {
	struct tp_group_rendezvous **mine; /* this worker's meeting place, consumed if it is rank 0 */
	int timeout_ms;                    /* a rank later than this is lost */
	int64_t notify_us;                 /* sampler_notify_after(); 0: a quarter of timeout_ms */
	bool (*cancelled)(void *arg);      /* polled while waiting; NULL: never cancelled */
	void *cancelled_arg;
};

/* Leave the previous group, join the group that `load` describes (step_serves() must hold), agree on the
 * sizes of the pools, and begin load's epoch.  tp_group_broke(rc): this group failed to form, a later one
 * may succeed; the weights stay.  Any other error: no group will form with this worker. */
int step_join(struct step *s, const struct bus_load *load, const struct step_group *g,
	      struct bus_ready *ready, struct why *why);
void step_leave(struct step *s);        /* notifies the other ranks; no effect without a group */
bool step_joined(const struct step *s); /* true: it can run plans; always true without a group */
int step_rank(const struct step *s);
int step_group_size(const struct step *s); /* ranks; 1: no group */
/* Compute mode of the loaded model, and of its host experts; "": it has none. */
const char *step_compute(const struct step *s);
const char *step_experts_compute(const struct step *s);
/* true: step_begin() waits for the device in every layer, or in some */
bool step_waits(const struct step *s);

/* Wait for the plans in flight and drop their results, forget every sequence, and begin a new epoch at plan
 * 1.  The weights stay. */
void step_reset(struct step *s, uint64_t epoch, struct bus_ready *ready);
/* True if the loaded model fits `load`, as far as its path shows; then a reset is enough. */
bool step_serves(const struct step *s, const struct bus_load *load);

/* Set the tokens' bytes, which structured outputs need.  Call it once the step serves, before the first
 * plan with a constraint.  -EINVAL, -E2BIG with the reason: v cannot be used. */
int step_vocabulary(struct step *s, const struct vocabulary *v, struct why *why);

/* Plans that may be begun before the first of them is ended. */
enum { STEP_AHEAD = 2 };

/* Queue one plan on the device; fewer than STEP_AHEAD must be in flight.  p is not needed after the return.
 * On the CPU the plan is then done.  If an output has a constraint, the plan before it is done (sampler.h).
 * Errors:
 *
 *     -ESTALE               another epoch, or the group is lost         nothing was done
 *     -ENXIO                not the expected number (step_expected)     nothing was done
 *     tp_group_broke(rc)    a rank was lost                              the group is left, with all plans
 *                                                                        in flight: step_join()
 *     -EINVAL, -EIO, ...    the plan contradicts the worker's state,     earlier plans can still be ended,
 *                           or the device failed                         then only a reset helps */
int step_begin(struct step *s, const struct plan *p, struct why *why);
/* Wait for the oldest plan in flight (there must be one) and store its result in r, which is reset first.
 * -EIO: the device failed, only a reset helps.  tp_group_broke(rc): as in step_begin(). */
int step_end(struct step *s, struct result *r, struct why *why);
int step_in_flight(const struct step *s); /* number of plans begun and not ended */
/* True if step_end() will not wait.  Clears step_fd() until the next plan is done.  Call it when step_fd()
 * is readable.  Call it also at intervals, because a device that failed, or a lost rank, may never notify;
 * and after step_begin(), because a plan that is done by then does not notify. */
bool step_done(struct step *s);
int step_fd(const struct step *s); /* an eventfd */
/* Return a slot with a run that sat out in an ended plan, and would run now; false: none.  Call it when
 * step_awake_fd() is readable (-1: no threads make masks), and after a plan is ended. */
bool step_awake(struct step *s, uint32_t *slot);
int step_awake_fd(const struct step *s);
/* Call several times a second, also without plans: frees unused grammars (guide_rest()). */
void step_rest(struct step *s, int64_t now_us);
/* Begin and end one plan; none may be in flight. */
int step_run(struct step *s, const struct plan *p, struct result *r, struct why *why);
uint64_t step_expected(const struct step *s); /* number of the plan to begin next */
uint64_t step_ended(const struct step *s);    /* number of the last plan ended; 0: none of this epoch */
uint64_t step_epoch(const struct step *s);

const struct bus_limits *step_limits(const struct step *s);
uint32_t step_block_size(const struct step *s);
const struct model_config *step_config(const struct step *s);

/* Number of steps that were replayed from a graph (graphs.h). */
uint64_t step_replayed(const struct step *s);
/* Number of steps for which host experts were streamed to the device. */
uint64_t step_sent(const struct step *s);

/* For tests: get the logits [n_vocab] from which the i-th token of the last begun plan was chosen.
 * -ENOENT: the plan had no such token, or more rows of logits than are kept. */
int step_logits(struct step *s, uint32_t i, float *out);

#endif
