/* parallel.h - a loop that runs on all cores. */
#ifndef QUERN_QUANT_PARALLEL_H
#define QUERN_QUANT_PARALLEL_H

/* Call f(arg, i) for i in 0 .. n - 1, in any order, on one thread per core or the number set by
 * parallel_limit(); return when all calls have finished.  Results must not depend on the order. */
void parallel_for(int n, void (*f)(void *arg, int i), void *arg);

/* Use at most n threads from now on; 0: one per core.  Call before the first loop. */
void parallel_limit(int n);

#endif
