/* touch.c - touches pages of the cache before a step needs them.
 *
 * The system allocates and clears memory when it is first written; in the middle of a prompt, that made it 6%
 * slower.  Touching the whole pool at once would slow down the start, and waste memory on a machine with few
 * requests.  So a thread of low priority stays some blocks ahead of the highest block in use.  Blocks are
 * given out in ascending order, and a block that was in use before has its pages. */
#include "kernels/cpu/touch.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"

struct cpu_touch {
	struct cpu_touch_pool pools[CPU_TOUCH_POOLS];
	int n_pools, n_blocks, ahead;
	pthread_t thread;
	bool started;
	_Atomic int wanted; /* touch blocks 0 .. wanted - 1 */
	int done;           /* blocks touched so far; the thread writes it under the lock */
	bool quit;
	pthread_mutex_t lock;
	pthread_cond_t more, caught_up;
};

static void touch_blocks(const struct cpu_touch *t, int b0, int b1)
{
	for (int i = 0; i < t->n_pools; i++) {
		const struct cpu_touch_pool *p = &t->pools[i];
		const size_t block = p->bytes / (size_t)p->n_layers / (size_t)t->n_blocks;
		for (int l = 0; l < p->n_layers; l++)
			alloc_touch(p->p + ((size_t)l * (size_t)t->n_blocks + (size_t)b0) * block,
				    (size_t)(b1 - b0) * block);
	}
}

/* Touch a few blocks at a time, so that the thread can quit soon. */
static void *touch_main(void *arg)
{
	enum { AT_ONCE = 16 };
	struct cpu_touch *t = arg;
	setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
	pthread_mutex_lock(&t->lock);
	while (!t->quit) {
		int b1 = atomic_load(&t->wanted);
		const int b0 = t->done;
		if (b0 == b1) {
			pthread_cond_signal(&t->caught_up);
			pthread_cond_wait(&t->more, &t->lock);
			continue;
		}
		b1 = b1 - b0 > AT_ONCE ? b0 + AT_ONCE : b1;
		pthread_mutex_unlock(&t->lock);
		touch_blocks(t, b0, b1);
		pthread_mutex_lock(&t->lock);
		t->done = b1;
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static int wanted_for(const struct cpu_touch *t, int used)
{
	return t->n_blocks - used < t->ahead ? t->n_blocks : used + t->ahead;
}

struct cpu_touch *cpu_touch_new(const struct cpu_touch_pool *pools, int n_pools, int n_blocks, int ahead)
{
	struct cpu_touch *t = xcalloc(1, sizeof *t);
	sigset_t all, was;
	for (int i = 0; i < n_pools; i++)
		t->pools[i] = pools[i];
	t->n_pools = n_pools;
	t->n_blocks = n_blocks;
	t->ahead = ahead;
	atomic_store(&t->wanted, wanted_for(t, 0));
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->more, NULL);
	pthread_cond_init(&t->caught_up, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	t->started = !pthread_create(&t->thread, NULL, touch_main, t); /* without the thread, steps touch the
									  pages */
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (t->started)
		pthread_setname_np(t->thread, "quern-touch");
	return t;
}

void cpu_touch_free(struct cpu_touch *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->quit = true;
	pthread_cond_signal(&t->more);
	pthread_mutex_unlock(&t->lock);
	if (t->started)
		pthread_join(t->thread, NULL);
	pthread_cond_destroy(&t->caught_up);
	pthread_cond_destroy(&t->more);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* Wakes the thread when half of the blocks ahead are used up. */
void cpu_touch_used(struct cpu_touch *t, int n_blocks)
{
	if (!t)
		return;
	const int want = wanted_for(t, n_blocks), had = atomic_load(&t->wanted);
	if (want <= had || (want - had < t->ahead / 2 && want < t->n_blocks))
		return;
	pthread_mutex_lock(&t->lock);
	atomic_store(&t->wanted, want);
	pthread_cond_signal(&t->more);
	pthread_mutex_unlock(&t->lock);
}

int cpu_touch_wait(struct cpu_touch *t)
{
	pthread_mutex_lock(&t->lock);
	while (t->started && t->done < atomic_load(&t->wanted))
		pthread_cond_wait(&t->caught_up, &t->lock);
	const int done = t->done;
	pthread_mutex_unlock(&t->lock);
	return done;
}
