/* device.h - a simulated worker: carries out plans on simulated K and V, and checks them.
 * A cached position holds a hash of all tokens up to it, so that a wrong block table, a missing copy, a swap
 * of the wrong block or a lost token is detected at the next step.  Plans are carried out late, and blocks
 * that are free meanwhile can be overwritten, so that one that is reused too early is detected.  The token
 * that follows is a function of that hash, the job's seed and the output's index, so the right output of a
 * job is known without any scheduling (device_expect).  So are the most likely tokens behind a sequence, and
 * with them what a beam search finds (device_search). */
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

/* A plan is submitted, which keeps a copy of it, and carried out as late as can be: when its result is
 * requested.  At most two are under way.  Abort with a message where a plan is wrong, or uses a block that a
 * plan under way still uses for another sequence (leases.h). */
void device_submit(struct device *d, const struct plan *p);
void device_answer(struct device *d, struct result *r);                     /* of the oldest plan under way */
void device_step(struct device *d, const struct plan *p, struct result *r); /* both, at once */
/* Overwrites the free blocks of these pools, the scheduler's.  A plan that still needs one of them then finds
 * it damaged. */
void device_poison(struct device *d, const struct blocks *blocks, const struct blocks *host);

/* The tokens of an undisturbed output; returns how many were written to out[max]. */
uint32_t device_expect(const uint32_t *prompt, uint32_t n_prompt, const struct params *params, uint32_t index,
		       uint32_t *out, uint32_t max);

/* The tokens of a beam search's n best hypotheses, without their stop tokens: out[i * max ..],
 * n_out[i], stopped[i]; nothing for those that are not found.  Returns how many were found. */
uint32_t device_search(const uint32_t *prompt, uint32_t n_prompt, const struct params *params, uint32_t *out,
		       uint32_t max, uint32_t *n_out, bool *stopped);

/* What the job gets instead of tokens (params.pool): out[DEVICE_POOL_MAX]; returns how many. */
enum { DEVICE_POOL_MAX = PARAMS_POOL_IDS_MAX };
uint32_t device_pool(const uint32_t *prompt, uint32_t n_prompt, const struct params *params, float *out);

/* Whether a search with these parameters may meet logits that are not numbers, and find fewer than n. */
bool device_dries_up(const struct params *params);

#endif
