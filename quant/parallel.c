#include "quant/parallel.h"

#include "base/cpus.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS_MAX = 64 };

struct loop {
	int n;
	atomic_int next;
	void (*f)(void *arg, int i);
	void *arg;
};

static int limit;

void parallel_limit(int n)
{
	limit = n;
}

static void *run(void *arg)
{
	struct loop *l = arg;
	for (int i; (i = atomic_fetch_add(&l->next, 1)) < l->n;)
		l->f(l->arg, i);
	return NULL;
}

/* If a thread cannot be created, the others do its work. */
void parallel_for(int n, void (*f)(void *arg, int i), void *arg)
{
	struct loop l = {.n = n, .f = f, .arg = arg};
	pthread_t threads[THREADS_MAX];
	int n_threads = 0, most = (limit > 0 ? limit : cpus_cores(-1)) - 1;
	if (most > n - 1)
		most = n - 1;
	if (most > THREADS_MAX)
		most = THREADS_MAX;
	while (n_threads < most && pthread_create(&threads[n_threads], NULL, run, &l) == 0)
		n_threads++;
	run(&l);
	while (n_threads)
		pthread_join(threads[--n_threads], NULL);
}
