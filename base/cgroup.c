#include "base/cgroup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

/* Names of the files of cgroup version 1 and version 2. */
struct files {
	const char *base, *limit, *used;
};
static const struct files v1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"};
static const struct files v2 = {"sys/fs/cgroup", "memory.max", "memory.current"};

/* Version 1 expresses "no limit" as a number of bytes that no machine has. */
static const int64_t unlimited = INT64_MAX / 2;

static FILE *open_in(const char *root, const char *base, const char *group, const char *name)
{
	char path[2 * PATH_SIZE];
	int n = snprintf(path, sizeof path, "%s/%s%s/%s", root, base, group, name);
	return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* Read a file that holds one number; -1 if it holds none ("max") or is missing. */
static int64_t read_number(const char *root, const char *base, const char *group, const char *name)
{
	int64_t v = -1;
	FILE *f = open_in(root, base, group, name);
	if (!f)
		return -1;
	if (fscanf(f, "%" SCNd64, &v) != 1)
		v = -1;
	fclose(f);
	return v;
}

/* Return the bytes of inactive file pages.  They are reclaimed first, and do not count as used. */
static int64_t read_reclaimable(const char *root, const char *base, const char *group)
{
	char line[256];
	int64_t v = 0;
	FILE *f = open_in(root, base, group, "memory.stat");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "total_inactive_file %" SCNd64, &v) == 1 ||
		    sscanf(line, "inactive_file %" SCNd64, &v) == 1)
			break;
	if (f)
		fclose(f);
	return v > 0 ? v : 0;
}

/* Lower *limit and *left to the values of one group. */
static void look(const char *root, const struct files *v, const char *group, int64_t *limit, int64_t *left)
{
	int64_t max = read_number(root, v->base, group, v->limit);
	if (max < 0 || max >= unlimited)
		return;
	int64_t used = read_number(root, v->base, group, v->used);
	used = used < 0 ? 0 : used;
	int64_t give = read_reclaimable(root, v->base, group);
	int64_t rest = max - (used > give ? used - give : 0);
	*limit = max < *limit ? max : *limit;
	rest = rest > 0 ? rest : 0;
	*left = rest < *left ? rest : *left;
}

/* ---- processors ---- */

/* Version 2 has quota and period in one file, version 1 in two. */
static void look_cpus(const char *root, int version, const char *group, int *cpus)
{
	int64_t quota = -1, period = -1;
	if (version == 1) {
		quota = read_number(root, "sys/fs/cgroup/cpu", group, "cpu.cfs_quota_us");
		period = read_number(root, "sys/fs/cgroup/cpu", group, "cpu.cfs_period_us");
	} else {
		FILE *f = open_in(root, "sys/fs/cgroup", group, "cpu.max");
		if (f && fscanf(f, "%" SCNd64 " %" SCNd64, &quota, &period) != 2)
			quota = -1;
		if (f)
			fclose(f);
	}
	if (quota <= 0 || period <= 0 || quota / period >= INT_MAX)
		return;
	int n = quota < period ? 1 : (int)(quota / period);
	*cpus = *cpus == 0 || n < *cpus ? n : *cpus;
}

/* ---- the groups of this process ---- */

/* The strictest limits found so far. */
struct limits {
	int64_t memory, left;
	int cpus; /* 0: none */
};

/* Apply the limits of the group and of each ancestor: the strictest counts.  In a container, the names are
 * the host's while the files are the container's own.  The container's limit is then found at the root. */
static void walk(const char *root, int version, bool memory, char *group, struct limits *l)
{
	for (;;) {
		char *slash = strrchr(group, '/');
		if (strcmp(group, "/") == 0)
			group[0] = '\0';
		if (memory)
			look(root, version == 1 ? &v1 : &v2, group, &l->memory, &l->left);
		else
			look_cpus(root, version, group, &l->cpus);
		if (!slash || !group[0])
			return;
		*slash = '\0';
	}
}

/* Return whether name is in a comma-separated list. */
static bool has(const char *list, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (strncmp(p, name, n) == 0 && (p[n] == '\0' || p[n] == ','))
			return true;
	return false;
}

static void read_limits(const char *root, bool memory, struct limits *l)
{
	char line[PATH_SIZE];
	FILE *f = open_in(root, "proc/self", "", "cgroup");
	/* hierarchy:controllers:/group */
	while (f && fgets(line, sizeof line, f)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (controllers[1] == '\0')
			walk(root, 2, memory, group, l);
		else if (has(controllers + 1, memory ? "memory" : "cpu"))
			walk(root, 1, memory, group, l);
	}
	if (f)
		fclose(f);
}

bool cgroup_memory(const char *root, int64_t *limit, int64_t *left)
{
	struct limits l = {INT64_MAX, INT64_MAX, 0};
	read_limits(root, true, &l);
	*limit = l.memory;
	*left = l.left;
	return l.memory < INT64_MAX;
}

int cgroup_cpus(const char *root)
{
	struct limits l = {0};
	read_limits(root, false, &l);
	return l.cpus;
}
