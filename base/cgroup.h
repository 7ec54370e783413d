/* cgroup.h - what the control groups of this process (version 1 or 2, and those above it) let it have.
 * root: "" (of tests: a directory that holds proc/self/cgroup and sys/fs/cgroup). */
#ifndef QUERN_BASE_CGROUP_H
#define QUERN_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* Memory in bytes, and what is left of it; false where none of them sets a limit. */
bool cgroup_memory(const char *root, int64_t *limit, int64_t *left);

/* Processors' worth of time (cpu.max, cpu.cfs_quota_us), rounded down to whole ones and at least 1: a thread
 * more would have them all stopped for a part of each period.  0: no limit. */
int cgroup_cpus(const char *root);

#endif
