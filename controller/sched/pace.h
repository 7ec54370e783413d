/* pace.h - a model of what a replica's steps cost, fitted to the steps that it has done:
 *
 *     step = speed * (fixed + decodes * decode + prompt rows * row)
 *
 *       us |            x  steps with prompts: moving averages of rows and time
 *          |         .-'      slope: row
 *          |     x-'       steps of decodes alone: moving averages of rows and time
 *          | .-'              slope: decode
 *    fixed +--------------- rows
 *
 * The averages of each kind of step are kept apart: however long one kind is not seen, the line keeps its
 * slope.  A machine that others use is slower for a while, and as long as steps have prompts, no step shows
 * the cost of decodes alone.  So the speed follows every step quickly and scales all costs: otherwise a
 * slower decode would be taken for dearer prompt rows, and chunks would shrink to nothing.
 *
 * A row costs less in a step of many rows, where kernels compute several rows at once.  So steps with prompts
 * are divided by their number of rows, and the costs come from steps of many rows if there are any: otherwise
 * chunks that are small because rows seem dear would stay small.  If rows seem cheaper in steps of few rows,
 * the latest step's average is kept and the other is reset. */
#ifndef QUERN_CONTROLLER_SCHED_PACE_H
#define QUERN_CONTROLLER_SCHED_PACE_H

#include "controller/sched/sched.h"

#include <stdint.h>

enum { PACE_MANY = 16 };

struct pace_mean {
	double decodes, prompts; /* rows */
	double us;               /* at speed 1; 0: no step seen */
};

/* Zero-initialised is empty. */
struct pace {
	struct pace_mean alone; /* steps without prompts */
	struct pace_mean few;   /* steps with prompts, fewer than PACE_MANY rows */
	struct pace_mean many;  /* steps with prompts, PACE_MANY rows or more */
	double var, cov;        /* steps without prompts: variance of the number of decodes; its
				   covariance with the time at speed 1 */
	bool decode_known;      /* the number of decodes has varied enough to show the cost of a decode: */
	double decode_us;       /* cost of a decode at speed 1 */
	double slower;          /* time relative to speed 1; 0: no step seen */
};

/* Record that a step with this many rows took us microseconds; prompt_rows of the rows were of prompts.  us
 * 0: unknown, ignored.  A step that took far longer than expected counts little: the machine did something
 * else. */
void pace_note(struct pace *p, uint32_t rows, uint32_t prompt_rows, uint32_t us);
/* Return the costs; all 0 before the first step. */
struct sched_costs pace_costs(const struct pace *p);

#endif
