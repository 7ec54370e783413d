/* plan.h - `quern plan`: whether a model fits devices and serves a rate, what clients would see, and the
 * options to serve it with.  The real scheduler in simulated time (replay.h), on a device of the cost model.
 */
#ifndef QUERN_BENCH_PLAN_H
#define QUERN_BENCH_PLAN_H

int cmd_plan(int argc, char **argv);

#endif
