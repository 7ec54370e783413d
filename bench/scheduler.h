/* scheduler.h - `quern bench scheduler`: the real scheduler in simulated time, under a
 * trace of arrivals, with the cost model of a device: the latencies that clients would see, and the
 * cost of the scheduler itself. */
#ifndef QUERN_BENCH_SCHEDULER_H
#define QUERN_BENCH_SCHEDULER_H

int cmd_bench_scheduler(int argc, char **argv);

#endif
