/* cpus.h - the processors that this process may use, by NUMA node. */
#ifndef QUERN_BASE_CPUS_H
#define QUERN_BASE_CPUS_H

#include <sched.h>
#include <stdbool.h>

/* The processors of a NUMA node; false if the machine has no such node.  root: "" (of tests: a directory that
 * holds sys/devices/system). */
bool cpus_of_node(const char *root, int node, cpu_set_t *out);

/* Cores in the affinity mask, hyperthreads of a core counted once, and no more than the control group of this
 * process allows (cgroup.h); node -1: of all nodes. */
int cpus_cores(int node);
/* The same of a given mask; and of them the share of one of n_sharing processes, at least 1. */
int cpus_cores_in(const char *root, const cpu_set_t *mask, int node);
int cpus_share(const char *root, const cpu_set_t *mask, int node, int n_sharing);

#endif
