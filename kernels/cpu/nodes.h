/* nodes.h - one worker over several NUMA nodes: which threads run on which node, and how memory is placed on
 * the node that reads it.
 *
 *     threads   0 .. 63 on node 0        64 .. 127 on node 1          (2 x 64 cores)
 *     tasks     [---- node 0's run ----][---- node 1's run ----]     as par.c deals them: consecutive
 *     weights   blocks of those tasks    blocks of those tasks        bound there (mbind)
 *     K and V   pages interleaved: a task of attention reads from all nodes, over all memory buses
 *
 * A thread without work first helps the threads of its own node.  None of this changes a bit of the
 * results. */
#ifndef QUERN_KERNELS_CPU_NODES_H
#define QUERN_KERNELS_CPU_NODES_H

#include <sched.h>
#include <stddef.h>

enum { NODES_MAX = 16 };

struct cpu_nodes {
	int n;
	int id[NODES_MAX];          /* the system's numbers of the nodes */
	cpu_set_t cpus[NODES_MAX];  /* CPUs of each node that this process may use */
	int thread0[NODES_MAX + 1]; /* threads thread0[i] .. thread0[i + 1] - 1 run on node i; at least one */
	/* Place the pages of an area on the nodes `ids`: on a single node, or interleaved over several.  0 or
	 * -errno. */
	int (*bind)(void *p, size_t bytes, const int *ids, int n_ids);
};

/* For tests: a directory that holds sys/devices/system, and a function called instead of mbind. */
extern const char *cpu_nodes_root;
extern int (*cpu_nodes_bind)(void *p, size_t bytes, const int *ids, int n_ids);

/* Find the nodes in the mask, and divide the threads in proportion to their processors.  out->n is 1 with one
 * node, or fewer threads than nodes. */
void cpu_nodes_read(const cpu_set_t *mask, int n_threads, struct cpu_nodes *out);
/* Place [p, p + bytes), `each` bytes per task, on the nodes of its tasks: first .. first + n - 1 of `all`.
 * Bytes after the last task belong to it.  nodes NULL: do nothing. */
void cpu_nodes_place(const struct cpu_nodes *nodes, void *p, size_t bytes, size_t each, int first, int n,
		     int all);
/* Interleave the pages over all nodes. */
void cpu_nodes_spread(const struct cpu_nodes *nodes, void *p, size_t bytes);

#endif
