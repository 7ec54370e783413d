/* kernels.h - `quern bench kernels`: single operations, relative to the peak rates of the machine. */
#ifndef QUERN_BENCH_KERNELS_H
#define QUERN_BENCH_KERNELS_H

/* argv[0] is the command's name; returns the exit status. */
int cmd_bench_kernels(int argc, char **argv);

#endif
