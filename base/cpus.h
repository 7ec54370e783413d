/* cpus.h - the processors that this process may use, by NUMA node. */
#ifndef QUERN_BASE_CPUS_H
#define QUERN_BASE_CPUS_H

#include <sched.h>
#include <stdbool.h>

/* The processors of a NUMA node; false if the machine has no such node. */
bool cpus_of_node(int node, cpu_set_t *out);

/* Cores in the affinity mask, hyperthreads of a core counted once; node -1: of all nodes. */
int cpus_cores(int node);

#endif
