/* cpus.h - the processors that this process may use, by NUMA node. */
#ifndef QUERN_BASE_CPUS_H
#define QUERN_BASE_CPUS_H

#include <sched.h>
#include <stdbool.h>

/* Store the processors of a NUMA node; false if the machine has no such node.  root: ""; tests pass a
 * directory that holds sys/devices/system. */
bool cpus_of_node(const char *root, int node, cpu_set_t *out);

/* Count the cores in the affinity mask, with the hyperthreads of a core counted once, limited by this
 * process's control group (cgroup.h).  node -1: all nodes. */
int cpus_cores(int node);
/* cpus_cores_in counts the cores of a given mask.  cpus_share returns the share of one of n_sharing
 * processes, at least 1. */
int cpus_cores_in(const char *root, const cpu_set_t *mask, int node);
int cpus_share(const char *root, const cpu_set_t *mask, int node, int n_sharing);

#endif
