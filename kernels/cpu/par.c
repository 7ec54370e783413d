/* par.c - the device's threads.
 *
 * Tasks are claimed one by one from a counter, by the calling thread and by the helpers alike.
 * The caller waits only for tasks that a helper has begun: a helper that the system does not
 * let run (this machine is shared with a controller, and with others) costs nothing, where a
 * barrier would wait a time slice for it.  A helper that finds nothing spins for a bounded
 * time, then sleeps.  (OpenMP's barrier was measured at 12 ms a call on two busy cores, where
 * the work itself takes 0.2 ms.)
 *
 *   state:  generation (32 bits) | next task (32 bits); CLOSED while no job is on offer
 *
 * A claim is a compare-and-swap of the whole word, so that it fails when the job that the
 * helper has read is over; a job's fields change only while it is closed. */
#include "kernels/cpu/cpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"

enum {
	WORK_WORTH_SHARING = 16384, /* about 5 us of one core: handing it over costs as much */
	SPIN_US = 50,               /* the gap between two operations of a step is shorter */
};

static const uint64_t closed = 0xffffffff;

struct helper {
	struct cpu_pool *pool;
	pthread_t thread;
	int index; /* 1..n; the caller is 0 */
};

struct cpu_pool {
	_Alignas(64) _Atomic uint64_t state;
	_Alignas(64) _Atomic int done;     /* tasks finished of the current job */
	_Alignas(64) _Atomic(cpu_fn *) fn; /* the job: written while closed */
	_Atomic(void *) arg;
	_Atomic int n_tasks;

	_Alignas(64) _Atomic int sleepers; /* helpers in or near cond_wait */
	_Atomic bool caller_sleeps;
	_Atomic bool quit;
	pthread_mutex_t lock;
	pthread_cond_t work;     /* a job is on offer, or quit */
	pthread_cond_t finished; /* done == n_tasks */
	int n_helpers;
	struct helper *helpers;
};

/* One task of the job that state names; false where there is none. */
static bool run_one(struct cpu_pool *p, int thread)
{
	uint64_t s = atomic_load(&p->state);
	for (;;) {
		uint32_t task = (uint32_t)s;
		if (task == closed)
			return false;
		cpu_fn *fn = atomic_load(&p->fn);
		void *arg = atomic_load(&p->arg);
		int n = atomic_load(&p->n_tasks);
		if ((int64_t)task >= n)
			return false;
		if (!atomic_compare_exchange_weak(&p->state, &s, s + 1))
			continue;
		fn(arg, (int)task, thread);
		if (atomic_fetch_add(&p->done, 1) + 1 == n && atomic_load(&p->caller_sleeps)) {
			pthread_mutex_lock(&p->lock);
			pthread_cond_signal(&p->finished);
			pthread_mutex_unlock(&p->lock);
		}
		return true;
	}
}

static uint32_t generation(struct cpu_pool *p)
{
	return (uint32_t)(atomic_load(&p->state) >> 32);
}

static void sleep_until(struct cpu_pool *p, uint32_t seen)
{
	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->sleepers, 1);
	while (generation(p) == seen && !atomic_load(&p->quit))
		pthread_cond_wait(&p->work, &p->lock);
	atomic_fetch_sub(&p->sleepers, 1);
	pthread_mutex_unlock(&p->lock);
}

static void *helper_main(void *arg)
{
	struct helper *h = arg;
	struct cpu_pool *p = h->pool;
	while (!atomic_load(&p->quit)) {
		uint32_t seen = generation(p);
		while (run_one(p, h->index))
			;
		for (int64_t end = clock_us() + SPIN_US; generation(p) == seen && clock_us() < end;)
			for (int i = 0; i < 32 && generation(p) == seen; i++)
				cpu_pause();
		if (generation(p) == seen)
			sleep_until(p, seen);
	}
	return NULL;
}

void cpu_pool_free(struct cpu_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->quit, true);
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < p->n_helpers; i++)
		pthread_join(p->helpers[i].thread, NULL);
	pthread_cond_destroy(&p->finished);
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p->helpers);
	alloc_big_free(p, sizeof *p);
}

int cpu_pool_new(struct cpu_pool **out, int n_threads, char *why, size_t why_n)
{
	*out = NULL;
	struct cpu_pool *p = alloc_big(sizeof *p);
	if (!p)
		return err_why(why, why_n, -ENOMEM, "no memory for the threads");
	atomic_store(&p->state, closed);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->finished, NULL);
	p->helpers = xcalloc((size_t)n_threads, sizeof *p->helpers);
	/* Signals are for the threads that expect them. */
	sigset_t all, was;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	int e = 0;
	while (!e && p->n_helpers < n_threads - 1) {
		struct helper *h = &p->helpers[p->n_helpers];
		*h = (struct helper){.pool = p, .index = p->n_helpers + 1};
		e = pthread_create(&h->thread, NULL, helper_main, h);
		if (!e) {
			pthread_setname_np(h->thread, "quern-kern");
			p->n_helpers++;
		}
	}
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (e) {
		int n = p->n_helpers;
		cpu_pool_free(p);
		return err_why(why, why_n, -e, "the system allows no more than %d threads", n + 1);
	}
	*out = p;
	return 0;
}

static void wait_done(struct cpu_pool *p, int n)
{
	for (int64_t end = clock_us() + SPIN_US; atomic_load(&p->done) < n && clock_us() < end;)
		for (int i = 0; i < 32 && atomic_load(&p->done) < n; i++)
			cpu_pause();
	if (atomic_load(&p->done) == n)
		return;
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->caller_sleeps, true);
	while (atomic_load(&p->done) < n)
		pthread_cond_wait(&p->finished, &p->lock);
	atomic_store(&p->caller_sleeps, false);
	pthread_mutex_unlock(&p->lock);
}

void cpu_run(struct kern_dev *d, int n_tasks, int64_t work, cpu_fn *fn, void *arg)
{
	struct cpu_pool *p = d->pool;
	if (d->n_threads == 1 || n_tasks < 2 || work < WORK_WORTH_SHARING) {
		for (int i = 0; i < n_tasks; i++)
			fn(arg, i, 0);
		return;
	}
	const uint64_t next = ((uint64_t)generation(p) + 1) << 32;
	atomic_store(&p->fn, fn);
	atomic_store(&p->arg, arg);
	atomic_store(&p->n_tasks, n_tasks);
	atomic_store(&p->done, 0);
	atomic_store(&p->state, next);
	if (atomic_load(&p->sleepers)) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->work);
		pthread_mutex_unlock(&p->lock);
	}
	while (run_one(p, 0))
		;
	wait_done(p, n_tasks);
	atomic_store(&p->state, next | closed);
}
