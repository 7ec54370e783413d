/* kernels.h - `quern bench kernels`: times single operations, relative to the machine's peak rates. */
#ifndef QUERN_BENCH_KERNELS_H
#define QUERN_BENCH_KERNELS_H

/* Run the command; argv[0] is its name.  Returns the exit status. */
int cmd_bench_kernels(int argc, char **argv);

#endif
