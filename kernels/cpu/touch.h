/* touch.h - a thread that touches the pages of the paged cache before they are used. */
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

/* Start the thread, which at once begins with the first `ahead` blocks.  The memory stays the caller's and
 * must outlive the thread.  Its contents are not changed, even while others write them. */
struct cpu_touch *cpu_touch_new(const struct cpu_touch_pool *pools, int n_pools, int n_blocks, int ahead);
void cpu_touch_free(struct cpu_touch *t); /* waits for the thread; NULL is fine */
/* Report that at most blocks 0 .. n_blocks - 1 are in use now; t NULL is fine. */
void cpu_touch_used(struct cpu_touch *t, int n_blocks);
/* For tests: wait until the thread has nothing to do; return how many blocks are done. */
int cpu_touch_wait(struct cpu_touch *t);

#endif
