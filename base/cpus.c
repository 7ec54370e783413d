#include "base/cpus.h"

#include "base/cgroup.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* Read the first line of a small file in /sys; false if it cannot be read. */
static bool read_line(const char *path, char *buf, size_t n)
{
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	bool ok = fgets(buf, (int)n, f) != NULL;
	fclose(f);
	return ok;
}

/* Parse "0-3,8-11" into a set; stops at the first character that is not part of a list. */
static void parse_cpulist(const char *s, cpu_set_t *set)
{
	CPU_ZERO(set);
	while (isdigit((unsigned char)*s)) {
		char *end;
		long a = strtol(s, &end, 10), b = a;
		if (*end == '-')
			b = strtol(end + 1, &end, 10);
		for (long c = a; c <= b && c < CPU_SETSIZE; c++)
			CPU_SET((int)c, set);
		s = *end == ',' ? end + 1 : end;
	}
}

bool cpus_of_node(const char *root, int node, cpu_set_t *out)
{
	char path[512], line[1024];
	snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/cpulist", root, node);
	if (!read_line(path, line, sizeof line))
		return false;
	parse_cpulist(line, out);
	return true;
}

/* Hyperthreads of one core list the same first sibling. */
int cpus_cores_in(const char *root, const cpu_set_t *mask, int node)
{
	cpu_set_t in = *mask, seen, want;
	if (node >= 0 && cpus_of_node(root, node, &want))
		CPU_AND(&in, &in, &want);
	CPU_ZERO(&seen);
	for (int c = 0; c < CPU_SETSIZE; c++) {
		char path[512], line[64];
		int first = c;
		if (!CPU_ISSET(c, &in))
			continue;
		snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
			 root, c);
		if (read_line(path, line, sizeof line) && isdigit((unsigned char)line[0]))
			first = atoi(line);
		if (first >= 0 && first < CPU_SETSIZE)
			CPU_SET(first, &seen);
	}
	int n = CPU_COUNT(&seen), allowed = cgroup_cpus(root);
	n = allowed && allowed < n ? allowed : n;
	return n > 0 ? n : 1;
}

int cpus_share(const char *root, const cpu_set_t *mask, int node, int n_sharing)
{
	const int n = cpus_cores_in(root, mask, node) / (n_sharing > 1 ? n_sharing : 1);
	return n ? n : 1;
}

int cpus_cores(int node)
{
	cpu_set_t mask;
	return sched_getaffinity(0, sizeof mask, &mask) ? 1 : cpus_cores_in("", &mask, node);
}
