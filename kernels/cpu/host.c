#include "kernels/cpu/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/cpus.h"
#include "base/err.h"

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
		free_key = "MemFree:"; /* a node does not report MemAvailable */
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
	if (!cgroup_memory("", &limit, &left))
		return;
	*total = limit < *total ? limit : *total;
	*free_now = left < *free_now ? left : *free_now;
}

int cpu_host_bind(int node, struct why *why)
{
	cpu_set_t mask, want, both;
	if (!cpus_of_node("", node, &want)) {
		if (node == 0)
			return 0; /* a kernel without NUMA has one node */
		return err_why(why, -ENODEV, "this machine has no NUMA node %d (cpu:%d)", node, node);
	}
	if (sched_getaffinity(0, sizeof mask, &mask))
		return err_why(why, -errno, "cannot read the CPU affinity");
	CPU_AND(&both, &mask, &want);
	if (!CPU_COUNT(&both))
		return err_why(why, -ENODEV, "no CPU of NUMA node %d is in this process's affinity mask",
			       node);
	if (sched_setaffinity(0, sizeof both, &both))
		return err_why(why, -errno, "cannot bind to NUMA node %d", node);
	return 0;
}
