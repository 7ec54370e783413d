/* bench_scheduler.h - `quern bench scheduler`: the real scheduler in simulated time, under a
 * trace of arrivals, with the cost model of a device; what clients would see, and what the
 * scheduler itself costs. */
#ifndef QUERN_CLI_BENCH_SCHEDULER_H
#define QUERN_CLI_BENCH_SCHEDULER_H

int cmd_bench_scheduler(int argc, char **argv);

#endif
