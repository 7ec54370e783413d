/* autoscale.h - `quern bench autoscale`: simulates an autoscaling service under a trace (fleet_replay.h), and
 * compares it with the fewest workers that a search finds. */
#ifndef QUERN_BENCH_AUTOSCALE_H
#define QUERN_BENCH_AUTOSCALE_H

int cmd_bench_autoscale(int argc, char **argv);

#endif
