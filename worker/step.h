/* step.h - one worker without its socket: a model on a device, and the plans that it carries
 * out.  The link feeds it from the bus; the offline tools and the tests feed it directly.
 *
 *   struct step *s;
 *   step_open(&s, &args, &ready, why, sizeof why);
 *   while (...)
 *           step_run(s, &plan, &result, why, sizeof why);
 *   step_close(s);
 *
 * Single-threaded, except for the progress callback, which is called from step_open(). */
#ifndef QUERN_WORKER_STEP_H
#define QUERN_WORKER_STEP_H

#include "formats/config.h"
#include "proto/bus.h"
#include "proto/plan.h"

#include <stddef.h>
#include <stdint.h>

struct step;

struct step_args {
	const char *device;                             /* "cpu", "cpu:0", "cuda:1" */
	const char *isa;                                /* NULL: the best */
	const struct bus_load *load;                    /* 0 where the worker shall choose */
	void (*progress)(void *arg, unsigned permille); /* or NULL */
	void *progress_arg;
};

/* Load the model.  ready says what there is now.  -ENOENT, -EINVAL, -ENOTSUP, -ENOMEM, -ENODEV
 * with the reason. */
int step_open(struct step **out, const struct step_args *a, struct bus_ready *ready, char *why, size_t why_n);
void step_close(struct step *s); /* NULL is fine */

/* Forget every sequence and begin a new epoch, at plan 1; the weights stay. */
void step_reset(struct step *s, uint64_t epoch, struct bus_ready *ready);
/* Would `load` need anything but a reset? */
bool step_serves(const struct step *s, const struct bus_load *load);

/* Carry out one plan: r (reset first) is its answer.
 * -ESTALE: a plan of another epoch, nothing was done.  -ENXIO: not the number that is due
 * (step_expected), nothing was done.  Anything else: the plan contradicts what the worker
 * holds (-EINVAL) or the device failed (-EIO); only a reset helps. */
int step_run(struct step *s, const struct plan *p, struct result *r, char *why, size_t why_n);
uint64_t step_expected(const struct step *s);
uint64_t step_epoch(const struct step *s);

const struct bus_limits *step_limits(const struct step *s);
uint32_t step_block_size(const struct step *s);
const struct model_config *step_config(const struct step *s);
/* Device memory: weights, scratch and token buffers, KV pool. */
void step_memory(const struct step *s, int64_t *weights, int64_t *scratch, int64_t *kv);

/* For tests: the logits [n_vocab] that the last plan's i-th chosen token was chosen from.
 * -ENOENT: it had no such token, or more rows of logits than are kept. */
int step_logits(struct step *s, uint32_t i, float *out);

#endif
