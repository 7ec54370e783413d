/* autoscale.h - `quern bench autoscale`: a service that changes the number of its replicas by its load, under
 * a trace in simulated time (fleet_replay.h), beside the fewest workers that a search finds. */
#ifndef QUERN_BENCH_AUTOSCALE_H
#define QUERN_BENCH_AUTOSCALE_H

int cmd_bench_autoscale(int argc, char **argv);

#endif
