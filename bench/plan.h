/* plan.h - `quern plan`: predicts whether a model fits devices and serves a rate, and the latencies of
 * clients, and suggests the options to serve it with.
 * It runs the real scheduler in simulated time (replay.h), on a device of the cost model. */
#ifndef QUERN_BENCH_PLAN_H
#define QUERN_BENCH_PLAN_H

int cmd_plan(int argc, char **argv);

#endif
