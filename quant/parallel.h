/* parallel.h - a loop that runs on all cores. */
#ifndef QUERN_QUANT_PARALLEL_H
#define QUERN_QUANT_PARALLEL_H

/* f(arg, i) for i in 0 .. n - 1, in any order, on one thread per core, or as many as parallel_limit() allows;
 * returns when all are done.  Results must not depend on the order. */
void parallel_for(int n, void (*f)(void *arg, int i), void *arg);

/* At most n threads from now on, 0: one per core.  Before the first loop. */
void parallel_limit(int n);

#endif
