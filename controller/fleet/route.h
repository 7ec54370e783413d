/* route.h - chooses the replica for a job.  Pure. */
#ifndef QUERN_CONTROLLER_FLEET_ROUTE_H
#define QUERN_CONTROLLER_FLEET_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

/* A candidate replica. */
struct route_option {
	uint64_t load;   /* tokens queued or held there */
	uint32_t cached; /* tokens of the job's prompt in its prefix cache */
	double speed;    /* tokens per second; 0: unknown, taken as the mean of the others */
};

/* The replica that finishes the job's prefill first: the one with the longest cached prefix, unless
 * more waits there than the prefix saves; without a prefix, the least loaded for its speed.  n >= 1. */
uint32_t route_choose(const struct route_option *options, uint32_t n, uint32_t n_prompt);

/* What lies between now and the end of a group at one replica, with that replica's measured speeds. */
struct route_path {
	uint64_t prompt_tokens; /* to compute: of the groups before it, and its own that are not cached */
	uint64_t steps;         /* that decode: until it is admitted, and for its own output */
	double prefill_tps;     /* tokens per second; 0: unknown, taken as the other replica's */
	double decode_us;       /* of a step; likewise */
};

/* Whether the end of path a is earlier than that of b. */
bool route_is_earlier(const struct route_path *a, const struct route_path *b);

#endif
