/* nodes.h - one worker over several NUMA nodes: which threads run on which node, and memory on the node that
 * reads it.
 *
 *     threads   0 .. 63 on node 0        64 .. 127 on node 1          (2 x 64 cores)
 *     tasks     [---- node 0's run ----][---- node 1's run ----]     as par.c deals them: consecutive
 *     weights   blocks of those tasks    blocks of those tasks        bound there (mbind)
 *     K and V   pages in turns: a task of attention reads from all nodes, each from its own memory bus
 *
 * A thread that is done helps those of its node first.  Nothing of it shows in the bits. */
#ifndef QUERN_KERNELS_CPU_NODES_H
#define QUERN_KERNELS_CPU_NODES_H

#include <sched.h>
#include <stddef.h>

enum { NODES_MAX = 16 };

struct cpu_nodes {
	int n;
	int id[NODES_MAX];          /* of the system */
	cpu_set_t cpus[NODES_MAX];  /* of them, those that this process may use */
	int thread0[NODES_MAX + 1]; /* threads thread0[i] .. thread0[i + 1] - 1 run on node i; at least one */
	/* Has the pages of an area on the nodes `ids`: on that one, or on several in turns.  0 or -errno. */
	int (*bind)(void *p, size_t bytes, const int *ids, int n_ids);
};

/* Of tests: a directory that holds sys/devices/system, and what is called instead of mbind. */
extern const char *cpu_nodes_root;
extern int (*cpu_nodes_bind)(void *p, size_t bytes, const int *ids, int n_ids);

/* The nodes in the mask, threads divided in proportion to their processors.  out->n is 1 where there is one
 * node, or fewer threads than nodes. */
void cpu_nodes_read(const cpu_set_t *mask, int n_threads, struct cpu_nodes *out);
/* The first of n tasks that threads of node i have (i = nodes->n: n). */
int cpu_nodes_task(const struct cpu_nodes *nodes, int i, int n);
/* Those of [p, p + bytes) that consist of `each` bytes per task, tasks first .. first + n - 1 of `all`; what
 * is behind the last belongs to it.  nodes NULL: nothing. */
void cpu_nodes_place(const struct cpu_nodes *nodes, void *p, size_t bytes, size_t each, int first, int n,
		     int all);
/* Pages in turns on all nodes. */
void cpu_nodes_spread(const struct cpu_nodes *nodes, void *p, size_t bytes);

#endif
