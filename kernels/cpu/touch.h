/* touch.h - the pages of the paged cache, brought into being ahead of their use by a thread of their own. */
#ifndef QUERN_KERNELS_CPU_TOUCH_H
#define QUERN_KERNELS_CPU_TOUCH_H

#include <stdbool.h>
#include <stddef.h>

struct cpu_touch;

/* [n_layers][n_blocks] blocks of equal size. */
struct cpu_touch_pool {
	char *p;
	size_t bytes;
	int n_layers;
};

enum { CPU_TOUCH_POOLS = 4 };

/* The first `ahead` blocks are begun with at once.  The memory stays the caller's, is written by nobody (its
 * contents stay, also while others write them), and outlives the thread. */
struct cpu_touch *cpu_touch_new(const struct cpu_touch_pool *pools, int n_pools, int n_blocks, int ahead);
void cpu_touch_free(struct cpu_touch *t); /* waits for the thread; NULL is fine */
/* Blocks 0 .. n_blocks - 1 are in use now, at most; NULL is fine. */
void cpu_touch_used(struct cpu_touch *t, int n_blocks);
/* Of tests: waits until the thread has nothing to do; returns how many blocks it has done. */
int cpu_touch_wait(struct cpu_touch *t);

#endif
