/* cgroup.c - how much memory the control groups of this process let it have. */
#include "kernels/cpu/cpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

/* The names of version 1's files and of version 2's. */
struct files {
	const char *base, *limit, *used;
};
static const struct files v1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"};
static const struct files v2 = {"sys/fs/cgroup", "memory.max", "memory.current"};

/* Version 1 says "no limit" as a number of pages that no machine has. */
static const int64_t unlimited = INT64_MAX / 2;

static FILE *open_in(const char *root, const char *base, const char *group, const char *name)
{
	char path[2 * PATH_SIZE];
	int n = snprintf(path, sizeof path, "%s/%s%s/%s", root, base, group, name);
	return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* A file of one number; -1 where there is none ("max"). */
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

/* Inactive pages of files are reclaimed first: they do not count as used. */
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

/* One group's word, into the least so far. */
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

/* The group, the one above it, and so on: the strictest counts.  In a container the names are those of
 * the host while the files are the container's own: its limit then stands at the top. */
static void walk(const char *root, const struct files *v, char *group, int64_t *limit, int64_t *left)
{
	for (;;) {
		char *slash = strrchr(group, '/');
		if (strcmp(group, "/") == 0)
			group[0] = '\0';
		look(root, v, group, limit, left);
		if (!slash || !group[0])
			return;
		*slash = '\0';
	}
}

bool cpu_cgroup_memory(const char *root, int64_t *limit, int64_t *left)
{
	char line[PATH_SIZE];
	FILE *f = open_in(root, "proc/self", "", "cgroup");
	*limit = *left = INT64_MAX;
	/* hierarchy:controllers:/group */
	while (f && fgets(line, sizeof line, f)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (controllers[1] == '\0')
			walk(root, &v2, group, limit, left);
		else if (strcmp(controllers + 1, "memory") == 0)
			walk(root, &v1, group, limit, left);
	}
	if (f)
		fclose(f);
	return *limit < INT64_MAX;
}
