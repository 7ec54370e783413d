/* step.h - one worker without its socket: a model on a device, and the plans that it carries
 * out.  The link feeds it from the bus; the offline tools and the tests feed it directly.
 *
 *   struct step *s;
 *   step_open(&s, &args, &ready, why, sizeof why);
 *   while (...)
 *           step_run(s, &plan, &result, why, sizeof why);
 *   step_close(s);
 *
 * step_run() is step_begin() and step_end(): between the two the device works, and further plans
 * may be begun (STEP_AHEAD in all), so that it finds the next one queued when it has done one.
 *
 * One rank of a group (load->n_ranks > 1) holds its part of the weights after step_open(); it
 * serves after step_join(), and again after another one where the group was lost meanwhile.
 *
 * Single-threaded, except for the progress callback, which is called from step_open(). */
#ifndef QUERN_WORKER_STEP_H
#define QUERN_WORKER_STEP_H

#include "formats/config.h"
#include "proto/bus.h"
#include "proto/plan.h"
#include "worker/group.h"
#include "worker/tune.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct step;

struct step_args {
	const char *device;                             /* "cpu", "cpu:0", "cuda:1" */
	const char *isa;                                /* NULL: the best */
	double memory_fraction;                         /* of the device, for this worker; 0: cache.h */
	const struct bus_load *load;                    /* 0 where the worker shall choose */
	bool no_graphs; /* run every step operation by operation */
	struct tune_source tune;                        /* load->fast: where its crossovers may be */
	void (*progress)(void *arg, unsigned permille); /* or NULL */
	void *progress_arg;
	atomic_ullong *moves;                           /* model.h; borrowed for the step's life, or NULL */
};

/* Load the model.  ready says what there is now; of one rank of a group, step_join() fills it
 * instead.  -ENOENT, -EINVAL, -ENOTSUP, -ENOMEM, -ENODEV with the reason. */
int step_open(struct step **out, const struct step_args *a, struct bus_ready *ready, char *why, size_t why_n);
void step_close(struct step *s); /* NULL is fine; waits for what is under way */

/* How a rank finds the others, and how long it waits for one. */
struct step_group {
	struct group_meet **mine; /* this worker's place, used up where it is rank 0 */
	int timeout_ms;           /* how late a rank may be */
	bool (*cancelled)(void *arg); /* asked while waiting; NULL: never */
	void *cancelled_arg;
};

/* Join the group that `load` describes (which step_serves()), leaving the one before, agree on
 * the sizes of the pools, begin load's epoch.  group_broke(rc): it did not come about, another
 * one may; the weights stay.  Else no group will, with this worker. */
int step_join(struct step *s, const struct bus_load *load, const struct step_group *g, struct bus_ready *ready,
	      char *why, size_t why_n);
void step_leave(struct step *s); /* the others see it; nothing where there is no group */
bool step_joined(const struct step *s); /* can it run plans?  Always, of one that serves alone */
int step_rank(const struct step *s);
int step_group_size(const struct step *s); /* 1: it serves alone */

/* Forget every sequence, and what is under way, for which it waits; begin a new epoch, at plan 1.  The
 * weights stay. */
void step_reset(struct step *s, uint64_t epoch, struct bus_ready *ready);
/* Would `load` need anything but a reset? */
bool step_serves(const struct step *s, const struct bus_load *load);

/* Plans that may be begun before the first of them is ended. */
enum { STEP_AHEAD = 2 };

/* Queue one plan on the device; fewer than STEP_AHEAD are under way.  It returns when all is queued,
 * and p is not needed any more: on the CPU, and in a group (whose ranks wait for each other), the
 * plan is then done.
 * -ESTALE: a plan of another epoch, or of a group that was lost: nothing was done.  -ENXIO: not the number that is due
 * (step_expected), nothing was done.  Else group_broke(rc): a rank
 * was lost in mid-step; the group is left, step_join() begins anew.  Anything else: the plan contradicts what the worker
 * holds (-EINVAL) or the device failed (-EIO); the plans before it can still be ended, but then only a
 * reset helps. */
int step_begin(struct step *s, const struct plan *p, char *why, size_t why_n);
/* The answer r (reset first) to the first of the plans that are under way, of which there is one;
 * waits for it.  -EIO: the device failed, only a reset helps. */
int step_end(struct step *s, struct result *r, char *why, size_t why_n);
int step_under_way(const struct step *s); /* how many */
/* Need step_end() not wait?  To be asked when step_fd() is readable (and now and then: a device that
 * failed may not tell), which this makes unreadable until the next plan is done. */
bool step_done(struct step *s);
int step_fd(const struct step *s); /* an eventfd */
/* Begin and end: nothing else is under way. */
int step_run(struct step *s, const struct plan *p, struct result *r, char *why, size_t why_n);
uint64_t step_expected(const struct step *s); /* the plan to begin next, */
uint64_t step_ended(const struct step *s);    /* and the last that was ended; 0: none of this epoch */
uint64_t step_epoch(const struct step *s);

const struct bus_limits *step_limits(const struct step *s);
uint32_t step_block_size(const struct step *s);
const struct model_config *step_config(const struct step *s);

/* How many steps were replayed from a graph (graphs.h). */
uint64_t step_replayed(const struct step *s);

/* For tests: the logits [n_vocab] that the i-th token of the plan begun last was chosen from.
 * -ENOENT: it had no such token, or more rows of logits than are kept. */
int step_logits(struct step *s, uint32_t i, float *out);

#endif
