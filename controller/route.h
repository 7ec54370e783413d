/* route.h - which replica a job goes to.  Pure. */
#ifndef QUERN_CONTROLLER_ROUTE_H
#define QUERN_CONTROLLER_ROUTE_H

#include <stdint.h>

/* A replica that could take the job. */
struct route_option {
	uint64_t load;          /* tokens that are queued or held there */
	uint32_t cached;        /* tokens of the job's prompt that it need not compute */
	double speed;           /* tokens per second; 0: not known, taken to be as fast as the others */
};

/* The one where the job is through its prompt soonest: that is the one with the longest cached
 * prefix, unless more waits there than the prefix saves; without a prefix, the least loaded for its
 * speed.  n >= 1. */
uint32_t route_choose(const struct route_option *options, uint32_t n, uint32_t n_prompt);

#endif
