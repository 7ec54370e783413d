/* spin.h - how the kernels' threads wait, for a program that runs kernels. */
#ifndef QUERN_WORKER_SPIN_H
#define QUERN_WORKER_SPIN_H

/* To be called first thing in main(), before any thread is there: runs the program anew, once,
 * with the OpenMP runtime told to spin for some microseconds only and then to sleep.  Returns
 * when that is so, or when the environment says something of its own. */
void spin_settle(char **argv);

#endif
