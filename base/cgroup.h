/* cgroup.h - the limits that this process's control groups (version 1 or 2) and their ancestors set.
 * root: ""; tests pass a directory that holds proc/self/cgroup and sys/fs/cgroup. */
#ifndef QUERN_BASE_CGROUP_H
#define QUERN_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* Store the memory limit and the memory left, in bytes.  Returns false if no control group sets a limit. */
bool cgroup_memory(const char *root, int64_t *limit, int64_t *left);

/* Return the CPU quota (cpu.max, cpu.cfs_quota_us) in processors, rounded down, at least 1; 0: no limit.  One
 * thread more than that would be throttled, and all threads with it, for part of each period. */
int cgroup_cpus(const char *root);

#endif
