/* autoscale.h - the number of replicas for a load: the rule of Kubernetes' HorizontalPodAutoscaler, with a
 * metric of its own.
 *
 *   load      sequences that run or wait, in the whole service: their mean over window_us
 *   wish      ceil(sqrt(load / target * serving)), or the present number if that is within the tolerance
 *   number    raised to the lowest wish of the last up_us, lowered to the highest of the last down_us
 *
 *   wishes     2  2  3  4  4  3  2  2  2  2
 *   number     2  2  3  4  4  4  4  4  3  2        up_us 0, down_us three periods
 *
 * The wish is the geometric mean of the number of serving replicas and load / target, because the requests in
 * a replica grow faster than the arriving work: roughly with its square when a replica is two thirds busy or
 * more.  load / target by itself would answer a fifth more work with half as many replicas again, and then
 * remove too many (docs/performance/autoscaling.md).
 *
 * deploy/kubernetes/autoscaling.yaml has the same numbers for KEDA.  fleet_order.c decides which worker is
 * removed.  Pure: no clock, no sockets. */
#ifndef QUERN_CONTROLLER_FLEET_AUTOSCALE_H
#define QUERN_CONTROLLER_FLEET_AUTOSCALE_H

#include "controller/fleet/engine_config.h"

enum { AUTOSCALE_LOADS = 128, AUTOSCALE_WISHES = 512 };

struct autoscale { /* zeroed: starts with the first load */
	struct autoscale_config cfg;
	struct autoscale_load {
		int64_t at_us;
		double n;
	} loads[AUTOSCALE_LOADS]; /* ring: one sample per second */
	uint64_t n_loads;
	struct autoscale_wish {
		int64_t at_us;
		uint32_t n;
	} wishes[AUTOSCALE_WISHES]; /* ring: one wish per period */
	uint64_t n_wishes;
	int64_t decided_us; /* time of the last decision, or of the first load */
};

/* Start with cfg, with the rule's default wherever cfg has 0.  Windows longer than the rings are cut. */
void autoscale_init(struct autoscale *a, const struct autoscale_config *cfg);
/* Record the current load; a sample within a second of the last one kept is dropped. */
void autoscale_note(struct autoscale *a, double load, int64_t now_us);
/* Return whether a period has passed since the last decision, or the first load. */
bool autoscale_due(const struct autoscale *a, int64_t now_us);
/* Decide how many replicas there should be; now: the present wanted number, of which `serving` serve. */
uint32_t autoscale_decide(struct autoscale *a, uint32_t now, uint32_t serving, int64_t now_us);
/* Return the mean load over the window; 0: no samples yet. */
double autoscale_load(const struct autoscale *a, int64_t now_us);

#endif
