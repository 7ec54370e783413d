/* step.h - one worker without its socket: a model on a device, and the plans that it executes.
 * The link feeds it from the bus; the offline tools and the tests feed it directly.
 *
 *   struct step *s;
 *   step_open(&s, &args, &ready, why, sizeof why);
 *   while (...)
 *           step_run(s, &plan, &result, why, sizeof why);
 *   step_close(s);
 *
 * step_run() is step_begin() and step_end().  Between the two the device works, and further plans may
 * be begun (STEP_AHEAD in all), so that the next plan is queued before the device has done the first.
 *
 * One rank of a group (load->n_ranks > 1) holds its part of the weights after step_open(), and serves
 * after step_join().  If its group is lost, it keeps the weights and joins the next one.
 *
 * Single-threaded, except for the progress callback, which is called from step_open(). */
#ifndef QUERN_WORKER_STEP_H
#define QUERN_WORKER_STEP_H

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

struct hot_options;
struct step;
struct trace;

struct step_args {
	const char *device;     /* "cpu", "cpu:0", "cuda:1" */
	const char *isa;        /* NULL: the best */
	double memory_fraction; /* of the device, for this worker; 0: cache.h */
	const struct bus_load *load;
	const char *path;
	/* of the model on this host; NULL: load->model */ /* fields that are 0: the worker chooses */
	const char *place; /* where its experts are (formats/place/placement.h); NULL: all on the device */
	const struct hot_options *hot; /* of layers on the CPU (formats/place/hot.h); NULL: none */
	/* For load->fast, of layers on the CPU: experts come to the device for steps of more rows; 0: of more
	 * than prefetch_crossover() says; -1: they never do. */
	int send_experts_above;
	bool no_graphs;                                 /* run every step operation by operation */
	struct tune_source tune;                        /* for load->fast: where to look for its crossovers */
	void (*progress)(void *arg, unsigned permille); /* or NULL */
	void *progress_arg;
	struct loading *loading;    /* written while it opens; or NULL */
	atomic_ullong *moves;       /* progress counter (model.h); borrowed for the step's life, or NULL */
	void (*at_work)(void *arg); /* called once in a step, when the device is at work; or NULL */
	void *at_work_arg;
	enum experts_skew skew;      /* EXPERTS_ROUTED but for measurements */
	int64_t least_us;            /* a step takes at least this long, as a slower device's would; 0: no */
	struct expert_load *experts; /* borrowed for the step's life; or NULL */
	struct trace *trace; /* where the time goes (trace.h); borrowed for the step's life, or NULL */
};

/* Load the model.  Fills in ready, except for a rank of a group, for which step_join() does.  -ENOENT,
 * -EINVAL, -ENOTSUP, -ENOMEM, -ENODEV with the reason. */
int step_open(struct step **out, const struct step_args *a, struct bus_ready *ready, char *why, size_t why_n);
void step_close(struct step *s); /* NULL is fine; waits for what is under way */

/* How a rank finds the others, and how long it waits for one. */
struct step_group {
	struct tp_group_meet **mine;  /* this worker's meeting place, consumed if it is rank 0 */
	int timeout_ms;               /* how late a rank may be */
	int64_t notify_us;            /* sampler_notify_after(); 0: a quarter of that */
	bool (*cancelled)(void *arg); /* polled while waiting; NULL: never cancelled */
	void *cancelled_arg;
};

/* Leave the previous group, join the one that `load` describes (step_serves() holds for it), agree on the
 * sizes of the pools, begin load's epoch.  tp_group_broke(rc): this group does not form, a later one may; the
 * weights stay.  Any other error: no group will form with this worker. */
int step_join(struct step *s, const struct bus_load *load, const struct step_group *g,
	      struct bus_ready *ready, char *why, size_t why_n);
void step_leave(struct step *s);        /* the other ranks notice; no effect without a group */
bool step_joined(const struct step *s); /* it can run plans; always true without a group */
int step_rank(const struct step *s);
int step_group_size(const struct step *s); /* ranks; 1: no group */
/* The compute mode of the model as loaded, and of its experts on the CPU beside the device; "": it has none.
 */
const char *step_compute(const struct step *s);
const char *step_experts_compute(const struct step *s);
bool step_waits(const struct step *s); /* step_begin() waits for the device in every layer, or on some */

/* Wait for the plans under way and drop their results, forget every sequence, and begin a new epoch at
 * plan 1.  The weights stay. */
void step_reset(struct step *s, uint64_t epoch, struct bus_ready *ready);
/* True: the model as loaded fits `load`, as far as its path tells; a reset is enough. */
bool step_serves(const struct step *s, const struct bus_load *load);

/* The tokens' bytes, which outputs with a form need: once the step serves, before the first plan with one.
 * -EINVAL, -E2BIG with the reason: it cannot be used. */
int step_vocabulary(struct step *s, const struct vocabulary *v, char *why, size_t why_n);

/* Plans that may be begun before the first of them is ended. */
enum { STEP_AHEAD = 2 };

/* Queue one plan on the device; fewer than STEP_AHEAD must be under way.  p is not needed after the return.
 * On the CPU, and in a group (its ranks wait for each other), the plan is then done.  Where an output has a
 * form, the plan before it is (sampler.h).  Errors:
 *
 *     -ESTALE               another epoch, or a group that was lost      nothing was done
 *     -ENXIO                not the number that is due (step_expected)   nothing was done
 *     tp_group_broke(rc)    a rank was lost during the step              the group is left: step_join()
 *     -EINVAL, -EIO, ...    the plan contradicts the worker's state,     earlier plans can still be ended,
 *                           or the device failed                         then only a reset helps */
int step_begin(struct step *s, const struct plan *p, char *why, size_t why_n);
/* Wait for the oldest plan under way (there must be one) and store its result in r, which is reset first.
 * -EIO: the device failed, only a reset helps. */
int step_end(struct step *s, struct result *r, char *why, size_t why_n);
int step_under_way(const struct step *s); /* number of plans begun and not ended */
/* True: step_end() will not wait.  Call it when step_fd() is readable, and at intervals, because a device
 * that failed may never notify, and after step_begin(), because a plan that is done by then does not.  It
 * clears step_fd() until the next plan is done. */
bool step_done(struct step *s);
int step_fd(const struct step *s); /* an eventfd */
/* Begin and end one plan; none may be under way. */
int step_run(struct step *s, const struct plan *p, struct result *r, char *why, size_t why_n);
uint64_t step_expected(const struct step *s); /* number of the plan to begin next */
uint64_t step_ended(const struct step *s);    /* number of the last plan ended; 0: none of this epoch */
uint64_t step_epoch(const struct step *s);

const struct bus_limits *step_limits(const struct step *s);
uint32_t step_block_size(const struct step *s);
const struct model_config *step_config(const struct step *s);

/* Number of steps that were replayed from a graph (graphs.h). */
uint64_t step_replayed(const struct step *s);
/* Number of steps for which experts on the CPU came to the device. */
uint64_t step_sent(const struct step *s);

/* For tests: the logits [n_vocab] that the i-th token of the plan begun last was chosen from.
 * -ENOENT: it had no such token, or more rows of logits than are kept. */
int step_logits(struct step *s, uint32_t i, float *out);

#endif
