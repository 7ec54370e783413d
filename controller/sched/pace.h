/* pace.h - what steps of a replica cost, from those that it has done:
 *
 *     step = speed * (fixed + decodes * decode + prompt rows * row)
 *
 *       us |            x  steps with prompts: moving averages of rows and time
 *          |         .-'      slope: row
 *          |     x-'       steps of decodes alone: likewise
 *          | .-'              slope: decode
 *    fixed +--------------- rows
 *
 * Averages are kept apart: however long one kind is not seen, the line keeps its slope.  A machine that
 * others use is slower for a while, and as long as prompts go on, no step shows what decodes alone take then.
 * So the speed is followed sooner than the rest, by every step, and counts for all: else what decodes cost
 * more would be taken for the price of a prompt's rows, and its parts would shrink to nothing.
 *
 * A row costs less in a step of many, where kernels work on several at once.  Steps with prompts are kept
 * apart by that, too, and those of many count: else parts that are small because rows seem dear would stay
 * so. Where rows of few seem cheaper, what was seen last is believed, and the other forgotten. */
#ifndef QUERN_CONTROLLER_SCHED_PACE_H
#define QUERN_CONTROLLER_SCHED_PACE_H

#include "controller/sched/sched.h"

#include <stdint.h>

enum { PACE_MANY = 16 };

struct pace_mean {
	double decodes, prompts; /* rows */
	double us;               /* at speed 1; 0: none seen */
};

/* Zero-initialised is empty. */
struct pace {
	struct pace_mean alone; /* steps without prompts */
	struct pace_mean few;   /* with them, fewer than PACE_MANY rows */
	struct pace_mean many;  /* with them, more */
	double var, cov;        /* of the decodes of steps without prompts; with their time at speed 1 */
	bool decode_known;      /* their number has changed enough to show what one costs: */
	double decode_us;       /* at speed 1 */
	double slower;          /* than speed 1; 0: no step seen */
};

/* A step of that many rows took us; prompt_rows of them were of prompts.  us 0: unknown, ignored.  A step
 * that took far longer than those before it counts little: the machine did something else. */
void pace_note(struct pace *p, uint32_t rows, uint32_t prompt_rows, uint32_t us);
/* All 0 before the first step. */
struct sched_costs pace_costs(const struct pace *p);

#endif
