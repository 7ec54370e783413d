/* autoscale.h - how many replicas a load wants: the rule of Kubernetes' HorizontalPodAutoscaler, with a
 * metric that is made for it.
 *
 *   load      sequences that run or wait, in the whole service: its mean over window_us
 *   wish      ceil(sqrt(load / target * serving)); the present number, where that is within the tolerance of
 * it number    raised to the least wish of the last up_us, lowered to the greatest of the last down_us
 *
 *   wishes     2  2  3  4  4  3  2  2  2  2
 *   number     2  2  3  4  4  4  4  4  3  2        up_us 0, down_us three periods
 *
 * The wish is the geometric mean of the replicas that serve and of load / target, since the requests in a
 * replica grow faster than the work that comes: about with its square, where a replica is two thirds busy and
 * more. load / target itself answers a fifth more work with half as many replicas again, and as many too few
 * after that (docs/performance/autoscaling.md).
 *
 * deploy/kubernetes/autoscaling.yaml has the same numbers for KEDA.  Which worker goes is not decided here,
 * but in fleet_order.c.  Pure: no clock, no sockets. */
#ifndef QUERN_CONTROLLER_FLEET_AUTOSCALE_H
#define QUERN_CONTROLLER_FLEET_AUTOSCALE_H

#include "controller/fleet/engine_config.h"

enum { AUTOSCALE_LOADS = 128, AUTOSCALE_WISHES = 512 };

struct autoscale { /* zeroed: begins with the first load */
	struct autoscale_config cfg;
	struct autoscale_load {
		int64_t at_us;
		double n;
	} loads[AUTOSCALE_LOADS]; /* ring: one a second */
	uint64_t n_loads;
	struct autoscale_wish {
		int64_t at_us;
		uint32_t n;
	} wishes[AUTOSCALE_WISHES]; /* ring: one a period */
	uint64_t n_wishes;
	int64_t decided_us; /* when it decided last, or began */
};

/* cfg with the rule's own numbers where it has 0.  Windows beyond what the rings hold are cut. */
void autoscale_init(struct autoscale *a, const struct autoscale_config *cfg);
/* The load now; what comes within a second of the last one kept is dropped. */
void autoscale_note(struct autoscale *a, double load, int64_t now_us);
/* Whether a period is over since the last decision, or the first load. */
bool autoscale_due(const struct autoscale *a, int64_t now_us);
/* Decides: how many replicas there should be, where `now` are wanted at present, and some of them serve. */
uint32_t autoscale_decide(struct autoscale *a, uint32_t now, uint32_t serving, int64_t now_us);
/* The mean of the loads of the window; 0: none yet. */
double autoscale_load(const struct autoscale *a, int64_t now_us);

#endif
