/* expert_load.h - how the rows of steps are spread over experts: counted by the thread that computes, read by
 * the one that sends heartbeats. */
#ifndef QUERN_WORKER_EXPERT_LOAD_H
#define QUERN_WORKER_EXPERT_LOAD_H

#include <stdatomic.h>

struct expert_load {
	atomic_ullong rows;    /* rows times the experts that they had, over all layers */
	atomic_ullong reads;   /* experts that some row of a step had: what the steps read, layer by layer */
	atomic_ullong busiest; /* of `rows`, those of the expert of each layer that has had the most */
};

/* Which experts rows have: as the router says, or for measurements by chance, whatever it says: each alike,
 * or the i-th as often as 1 / i.  The outputs mean nothing then. */
enum experts_skew { EXPERTS_ROUTED, EXPERTS_UNIFORM, EXPERTS_ZIPF };

#endif
