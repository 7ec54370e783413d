/* pace.h - what steps of a replica cost, from those that it has done:
 *
 *     step = fixed + rows * row          fixed: weights are read, whatever the number of rows
 *
 *       us |            x  steps with prompts: moving averages of rows and time
 *          |         .-'
 *          |     x-'       steps of decodes alone: likewise
 *          | .-'
 *    fixed +--------------- rows
 *
 * Averages are kept apart: however long one kind is not seen, the line keeps its slope.  A row costs less in
 * a step of many, where kernels work on several at once.  Steps with prompts are kept apart by that, too, and
 * the cheaper line counts: else parts that are small because rows seem dear would stay so. */
#ifndef QUERN_CONTROLLER_SCHED_PACE_H
#define QUERN_CONTROLLER_SCHED_PACE_H

#include "controller/sched/sched.h"

#include <stdint.h>

enum { PACE_MANY = 16 };

struct pace_mean {
	double rows, us; /* 0: none seen */
};

/* Zero-initialised is empty. */
struct pace {
	struct pace_mean decodes; /* steps without prompts */
	struct pace_mean few;     /* with them, fewer than PACE_MANY rows */
	struct pace_mean many;    /* with them, more */
};

/* A step of that many rows took us; prompt_rows of them were of prompts.  us 0: unknown, ignored.  A step
 * that took far longer than those before it counts little: the machine did something else. */
void pace_note(struct pace *p, uint32_t rows, uint32_t prompt_rows, uint32_t us);
/* All 0 before the first step. */
struct sched_costs pace_costs(const struct pace *p);

#endif
