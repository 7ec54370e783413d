/* device.h - a simulated worker: executes plans on simulated K and V, and checks them.
 * A cached position holds a hash of all tokens up to it.  So the next step detects a wrong block table, a
 * missing copy, a swap of the wrong block or a lost token.  Plans are executed late, and free blocks can be
 * overwritten meanwhile, so a block that is reused too early is detected.
 * The next token is a function of that hash, the job's seed and the output's index, so a job's correct output
 * is known without scheduling (device_expect).  The most likely next tokens are known too, and with them the
 * result of a beam search (device_search). */
#ifndef QUERN_TESTS_SIM_DEVICE_H
#define QUERN_TESTS_SIM_DEVICE_H

#include "controller/sched/blocks.h"
#include "proto/plan.h"

#include <stdbool.h>

struct device;

enum { DEVICE_VOCAB = 1000, DEVICE_STOP = 7 };

struct device *device_new(uint32_t n_slots, uint32_t n_blocks, uint32_t n_host, uint32_t block_size,
			  uint32_t max_context);
void device_free(struct device *d);
/* Set the kinds of layers, before the first plan; the default is one without a window.  A run checks, for
 * each kind, what its rows read: positions before a window may be overwritten. */
void device_set_kinds(struct device *d, const struct kinds *kinds);

/* Submit a plan; a copy is kept.  The plan is executed as late as possible: when its result is requested.  At
 * most two plans are in flight.  Aborts with a message if the plan is wrong, or writes a block that a plan in
 * flight uses for another sequence (leases.h). */
void device_submit(struct device *d, const struct plan *p);
void device_answer(struct device *d, struct result *r);                     /* result of the oldest plan in
									     * flight */
void device_step(struct device *d, const struct plan *p, struct result *r); /* submit and answer */
/* From now on, one of `every` runs that sample is held back (struct result), chosen by the seed; 0: none
 * is. */
void device_hold(struct device *d, uint32_t every, uint64_t seed);
/* From now on, open runs have drafts, of which this many in a thousand are right; 0: they have none. */
void device_draft(struct device *d, uint32_t right_permille, uint64_t seed);
/* Wake a slot that is held back, and set *slot; false: there is none. */
bool device_awake(struct device *d, uint32_t *slot);
/* Overwrite the free blocks of the scheduler's pools.  A plan that still needs one of them then finds it
 * damaged. */
void device_poison(struct device *d, const struct blocks *blocks, const struct blocks *host);

/* Write the tokens of an undisturbed output to out[max]; return how many. */
uint32_t device_expect(const uint32_t *prompt, uint32_t n_prompt, const struct params *params, uint32_t index,
		       uint32_t *out, uint32_t max);

/* Find the n best hypotheses of a beam search, without their stop tokens: out[i * max ..], n_out[i],
 * stopped[i].  n_out[i] is 0 for hypotheses that are not found.  Return how many were found. */
uint32_t device_search(const uint32_t *prompt, uint32_t n_prompt, const struct params *params, uint32_t *out,
		       uint32_t max, uint32_t *n_out, bool *stopped);

/* Compute the result of a pooling job (params.pool): out[DEVICE_POOL_MAX]; return how many values. */
enum { DEVICE_POOL_MAX = PARAMS_POOL_IDS_MAX };
uint32_t device_pool(const uint32_t *prompt, uint32_t n_prompt, const struct params *params, float *out);

/* Return whether a search with these parameters may meet NaN logits, and find fewer than n hypotheses. */
bool device_dries_up(const struct params *params);

#endif
