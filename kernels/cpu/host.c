#include "kernels/cpu/cpu.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* The first line of a small file of /sys or /proc; false where there is none. */
static bool read_line(const char *path, char *buf, size_t n)
{
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	bool ok = fgets(buf, (int)n, f) != NULL;
	fclose(f);
	return ok;
}

void cpu_host_name(char *out, size_t n)
{
	char line[256];
	snprintf(out, n, "CPU");
	FILE *f = fopen("/proc/cpuinfo", "re");
	if (!f)
		return;
	while (fgets(line, sizeof line, f)) {
		char *v = strchr(line, ':');
		if (strncmp(line, "model name", 10) || !v)
			continue;
		v += strspn(v, ": \t");
		v[strcspn(v, "\n")] = 0;
		snprintf(out, n, "%s", v);
		break;
	}
	fclose(f);
}

static int64_t kilobytes(const char *line, const char *key)
{
	const char *p = strstr(line, key);
	return p ? strtoll(p + strlen(key), NULL, 10) * 1024 : -1;
}

static void machine_memory(int node, int64_t *total, int64_t *free_now)
{
	char path[96] = "/proc/meminfo", line[256];
	const char *free_key = "MemAvailable:";
	*total = *free_now = 0;
	if (node >= 0) {
		snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
		free_key = "MemFree:"; /* a node tells no better */
	}
	FILE *f = fopen(path, "re");
	if (!f && node >= 0) {
		free_key = "MemAvailable:";
		f = fopen("/proc/meminfo", "re");
	}
	if (!f)
		return;
	while (fgets(line, sizeof line, f)) {
		int64_t v = kilobytes(line, "MemTotal:");
		if (v >= 0)
			*total = v;
		v = kilobytes(line, free_key);
		if (v >= 0)
			*free_now = v;
	}
	fclose(f);
}

void cpu_host_memory(int node, int64_t *total, int64_t *free_now)
{
	int64_t limit, left;
	machine_memory(node, total, free_now);
	if (!cpu_cgroup_memory("", &limit, &left))
		return;
	*total = limit < *total ? limit : *total;
	*free_now = left < *free_now ? left : *free_now;
}

/* "0-3,8-11" into a set; stops at what is no list. */
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

/* The node's processors; false where the machine has no such node. */
static bool node_cpus(int node, cpu_set_t *out)
{
	char path[96], line[1024];
	snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
	if (!read_line(path, line, sizeof line))
		return false;
	parse_cpulist(line, out);
	return true;
}

/* Threads of one core name the same first sibling; each core counts once. */
int cpu_host_cores(int node)
{
	cpu_set_t mask, seen, want;
	if (sched_getaffinity(0, sizeof mask, &mask))
		return 1;
	if (node >= 0 && node_cpus(node, &want))
		CPU_AND(&mask, &mask, &want);
	CPU_ZERO(&seen);
	for (int c = 0; c < CPU_SETSIZE; c++) {
		char path[96], line[64];
		int first = c;
		if (!CPU_ISSET(c, &mask))
			continue;
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", c);
		if (read_line(path, line, sizeof line) && isdigit((unsigned char)line[0]))
			first = atoi(line);
		if (first >= 0 && first < CPU_SETSIZE)
			CPU_SET(first, &seen);
	}
	int n = CPU_COUNT(&seen);
	return n > 0 ? n : 1;
}

int cpu_host_bind(int node, char *why, size_t why_n)
{
	cpu_set_t mask, want, both;
	if (!node_cpus(node, &want)) {
		if (node == 0)
			return 0; /* a kernel without NUMA has one node */
		return err_why(why, why_n, -ENODEV, "this machine has no NUMA node %d (cpu:%d)", node, node);
	}
	if (sched_getaffinity(0, sizeof mask, &mask))
		return err_why(why, why_n, -errno, "cannot read the CPU affinity");
	CPU_AND(&both, &mask, &want);
	if (!CPU_COUNT(&both))
		return err_why(why, why_n, -ENODEV,
			       "no CPU of NUMA node %d is in this process's affinity mask", node);
	if (sched_setaffinity(0, sizeof both, &both))
		return err_why(why, why_n, -errno, "cannot bind to NUMA node %d", node);
	return 0;
}
