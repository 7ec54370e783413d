#include "kernels/cpu/nodes.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpus.h"
#include "base/log.h"

enum { IDS_MAX = 1024 };

/* A direct system call: one call does not justify linking libnuma. */
static int bind_pages(void *p, size_t bytes, const int *ids, int n_ids)
{
	unsigned long mask[IDS_MAX / (8 * sizeof(unsigned long))] = {0};
	const int bits = 8 * (int)sizeof *mask;
	for (int i = 0; i < n_ids; i++)
		mask[ids[i] / bits] |= 1ul << ids[i] % bits;
	/* Preferred, not required: a full node is no reason to fail. */
	return syscall(SYS_mbind, p, bytes, n_ids > 1 ? MPOL_INTERLEAVE : MPOL_PREFERRED, mask,
		       (unsigned long)IDS_MAX, MPOL_MF_MOVE)
		       ? -errno
		       : 0;
}

const char *cpu_nodes_root = "";
int (*cpu_nodes_bind)(void *p, size_t bytes, const int *ids, int n_ids) = bind_pages;

void cpu_nodes_read(const cpu_set_t *mask, int n_threads, struct cpu_nodes *out)
{
	int cpus[NODES_MAX], all = 0, before = 0;
	*out = (struct cpu_nodes){.bind = cpu_nodes_bind};
	for (int id = 0; id < IDS_MAX && out->n < NODES_MAX; id++) {
		cpu_set_t *set = &out->cpus[out->n];
		if (!cpus_of_node(cpu_nodes_root, id, set))
			continue; /* node numbers may have gaps */
		CPU_AND(set, set, mask);
		if (!CPU_COUNT(set))
			continue;
		cpus[out->n] = CPU_COUNT(set);
		all += cpus[out->n];
		out->id[out->n++] = id;
	}
	if (out->n < 2 || n_threads < out->n) {
		out->n = 1;
		out->thread0[1] = n_threads;
		return;
	}
	for (int i = 0; i < out->n; i++) {
		const int least = i, most = n_threads - (out->n - i); /* each node has at least one thread */
		int t = (int)((int64_t)n_threads * before / all);
		t = t < least ? least : t > most ? most : t;
		out->thread0[i] = i && t <= out->thread0[i - 1] ? out->thread0[i - 1] + 1 : t;
		before += cpus[i];
	}
	out->thread0[out->n] = n_threads;
}

/* Return the first of n tasks that node i's threads have (i = nodes->n: n). */
static int first_task(const struct cpu_nodes *nodes, int i, int n)
{
	return (int)((int64_t)n * nodes->thread0[i] / nodes->thread0[nodes->n]);
}

/* Bind whole pages.  A page that two areas share is bound by the later call. */
static void bind_area(const struct cpu_nodes *nodes, char *from, char *to, const int *ids, int n_ids)
{
	static atomic_bool told;
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t a = (uintptr_t)from & ~(page - 1), b = ((uintptr_t)to + page - 1) & ~(page - 1);
	const int e = from < to ? nodes->bind((char *)a, b - a, ids, n_ids) : 0;
	if (e && !atomic_exchange(&told, true))
		log_warn("cpu", "memory not bound to its NUMA node call=mbind reason=\"%s\"", strerror(-e));
}

void cpu_nodes_place(const struct cpu_nodes *nodes, void *p, size_t bytes, size_t each, int first, int n,
		     int all)
{
	for (int i = 0; nodes && i < nodes->n; i++) {
		int t0 = first_task(nodes, i, all) - first, t1 = first_task(nodes, i + 1, all) - first;
		t0 = t0 < 0 ? 0 : t0;
		t1 = t1 > n ? n : t1;
		if (t0 < t1)
			bind_area(nodes, (char *)p + (size_t)t0 * each,
				  (char *)p + (t1 == n ? bytes : (size_t)t1 * each), &nodes->id[i], 1);
	}
}

void cpu_nodes_spread(const struct cpu_nodes *nodes, void *p, size_t bytes)
{
	if (nodes && bytes)
		bind_area(nodes, p, (char *)p + bytes, nodes->id, nodes->n);
}
