/* route.h - chooses the replica for a job.  Pure. */
#ifndef QUERN_CONTROLLER_FLEET_ROUTE_H
#define QUERN_CONTROLLER_FLEET_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

/* A candidate replica. */
struct route_option {
	uint64_t load;   /* tokens queued or held there */
	uint32_t cached; /* prompt tokens of the job in the replica's prefix cache */
	double speed;    /* tokens per second; 0: unknown, the mean of the others is used */
};

/* Return the replica that finishes the job's prefill first: the replica with the longest cached prefix,
 * unless more waits there than the prefix saves; without a prefix, the replica with the least load for its
 * speed.  n >= 1. */
uint32_t route_choose(const struct route_option *options, uint32_t n, uint32_t n_prompt);

/* Work left before a group ends at one replica, with that replica's measured speeds. */
struct route_path {
	uint64_t prompt_tokens; /* to compute: prompts of the groups before it, and its own uncached part */
	uint64_t steps;         /* decode steps: until it is admitted, and for its own output */
	double prefill_tps;     /* tokens per second; 0: unknown, the other replica's is used */
	double decode_us;       /* time of a decode step; 0: unknown, the other replica's is used */
};

/* Return whether path a ends earlier than b. */
bool route_is_earlier(const struct route_path *a, const struct route_path *b);

#endif
