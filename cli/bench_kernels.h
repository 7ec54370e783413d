/* bench_kernels.h - `quern bench kernels`: the operations alone, against what the machine can do. */
#ifndef QUERN_CLI_BENCH_KERNELS_H
#define QUERN_CLI_BENCH_KERNELS_H

/* argv[0] is the command's name; returns the exit status. */
int cmd_bench_kernels(int argc, char **argv);

#endif
