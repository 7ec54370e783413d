/* scheduler.h - `quern bench scheduler`: runs the real scheduler in simulated time, under a trace of
 * arrivals, with the cost model of a device.
 * Reports the latencies that clients would see, and the scheduler's own cost. */
#ifndef QUERN_BENCH_SCHEDULER_H
#define QUERN_BENCH_SCHEDULER_H

int cmd_bench_scheduler(int argc, char **argv);

#endif
