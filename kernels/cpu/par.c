/* par.c - the device's threads.
 *
 * The tasks of a job are dealt out in advance, a run of consecutive ones to each thread, so that a thread
 * reads one long stretch of the weights, the same in every step.  A thread takes its own from the front;
 * one that has none left takes from the back of another's.  The caller waits only for tasks that a helper has
 * begun: a helper that the system does not let run (this machine is shared with a controller, and with
 * others) costs nothing, where a barrier would wait a time slice for it.  A helper that finds nothing spins
 * for a bounded time, then sleeps.  (OpenMP's barrier was measured at 12 ms a call on two busy cores, where
 * the work itself takes 0.2 ms.)
 *
 *   run of a thread:    generation (24 bits) | next task (20) | end (20)
 *
 * A claim is a compare-and-swap of the whole word, so that it fails when the job that the thread has read is
 * over: then all runs of its generation are empty.  What else a thread's lane says of a job is written before
 * the run, and while the run of the generation before is empty; a helper reads it before it claims.  Lanes
 * are lines of their own: a job is handed over, and handed back, by one line that moves between two cores. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/nodes.h"

#include <assert.h>
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
	TASK_BITS = 20,
	TASKS_MAX = 1 << TASK_BITS,
	GENERATION_MASK = (1 << 24) - 1,
	GENERATION_FIRST = GENERATION_MASK - 1000, /* it comes round in every process: no surprise then */
};

/* What one thread is to do, and has done. */
struct lane {
	_Alignas(64) _Atomic uint64_t run;
	_Atomic(cpu_fn *) fn;
	_Atomic(void *) arg;
	_Alignas(64) _Atomic uint64_t done; /* generation << 32 | tasks of it that this thread has finished */
};

struct helper {
	struct cpu_pool *pool;
	pthread_t thread;
	int index; /* 1..n; the caller is 0 */
};

struct cpu_pool {
	struct lane *lanes;                /* [n_threads] */
	_Alignas(64) _Atomic int sleepers; /* helpers in or near cond_wait */
	_Atomic bool caller_sleeps;
	_Atomic bool quit;
	pthread_mutex_t lock;
	pthread_cond_t work;     /* a job is on offer, or quit */
	pthread_cond_t finished; /* a helper has no more to do */
	uint32_t generation;     /* of the last job; the caller's */
	int n_threads, n_helpers;
	struct helper *helpers;
	const struct cpu_nodes *nodes; /* NULL: one */
};

static uint64_t run_word(uint32_t generation, int next, int end)
{
	return (uint64_t)generation << 2 * TASK_BITS | (uint64_t)next << TASK_BITS | (uint64_t)end;
}

static uint32_t generation_of(uint64_t run)
{
	return (uint32_t)(run >> 2 * TASK_BITS);
}

/* A task of a thread's run, from its front or its back; -1 where none is left of that generation. */
static int claim(struct lane *l, uint32_t generation, bool front)
{
	uint64_t run = atomic_load(&l->run);
	for (;;) {
		const int next = (int)(run >> TASK_BITS) & (TASKS_MAX - 1), end = (int)run & (TASKS_MAX - 1);
		if (generation_of(run) != generation || next >= end)
			return -1;
		if (atomic_compare_exchange_weak(&l->run, &run, front ? run + (1 << TASK_BITS) : run - 1))
			return front ? next : end - 1;
	}
}

/* The i-th thread that a thread takes tasks of: itself, those of its node, all others. */
static int helped(const struct cpu_pool *p, int thread, int i)
{
	int first = 0, n = p->n_threads;
	for (int k = 0; p->nodes && k < p->nodes->n; k++)
		if (thread >= p->nodes->thread0[k]) {
			first = p->nodes->thread0[k];
			n = p->nodes->thread0[k + 1] - first;
		}
	return i < n ? first + (thread - first + i) % n : (first + i) % p->n_threads;
}

/* All that is left to do of a job: the thread's own run, then what others have not begun. */
static void work_on(struct cpu_pool *p, uint32_t generation, int thread)
{
	struct lane *own = &p->lanes[thread];
	cpu_fn *fn = atomic_load(&own->fn);
	void *arg = atomic_load(&own->arg);
	uint32_t n = 0;
	for (int i = 0; i < p->n_threads; i++) {
		struct lane *l = &p->lanes[helped(p, thread, i)];
		for (int task; (task = claim(l, generation, i == 0)) >= 0; n++)
			fn(arg, task, thread);
	}
	atomic_store(&own->done, (uint64_t)generation << 32 | n);
}

static uint32_t lane_generation(struct lane *l)
{
	return generation_of(atomic_load(&l->run));
}

static void sleep_until(struct cpu_pool *p, struct lane *l, uint32_t seen)
{
	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->sleepers, 1);
	while (lane_generation(l) == seen && !atomic_load(&p->quit))
		pthread_cond_wait(&p->work, &p->lock);
	atomic_fetch_sub(&p->sleepers, 1);
	pthread_mutex_unlock(&p->lock);
}

static void *helper_main(void *arg)
{
	struct helper *h = arg;
	struct cpu_pool *p = h->pool;
	struct lane *l = &p->lanes[h->index];
	uint32_t seen = GENERATION_FIRST;
	while (!atomic_load(&p->quit)) {
		const uint32_t now = lane_generation(l);
		if (now != seen) {
			work_on(p, now, h->index);
			if (atomic_load(&p->caller_sleeps)) {
				pthread_mutex_lock(&p->lock);
				pthread_cond_signal(&p->finished);
				pthread_mutex_unlock(&p->lock);
			}
			seen = now;
		}
		for (int64_t end = clock_us() + SPIN_US; lane_generation(l) == seen && clock_us() < end;)
			for (int i = 0; i < 32 && lane_generation(l) == seen; i++)
				cpu_pause();
		if (lane_generation(l) == seen)
			sleep_until(p, l, seen);
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
	alloc_big_free(p->lanes, (size_t)p->n_threads * sizeof *p->lanes);
	alloc_big_free(p, sizeof *p);
}

int cpu_pool_new(struct cpu_pool **out, int n_threads, char *why, size_t why_n)
{
	*out = NULL;
	struct cpu_pool *p = alloc_big(sizeof *p);
	struct lane *lanes = alloc_big((size_t)n_threads * sizeof *lanes);
	if (!p || !lanes) {
		alloc_big_free(lanes, (size_t)n_threads * sizeof *lanes);
		alloc_big_free(p, sizeof *p);
		return err_why(why, why_n, -ENOMEM, "no memory for the threads");
	}
	p->lanes = lanes;
	p->n_threads = n_threads;
	p->generation = GENERATION_FIRST;
	for (int i = 0; i < n_threads; i++)
		atomic_store(&lanes[i].run, run_word(GENERATION_FIRST, 0, 0));
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

void cpu_pool_place(struct cpu_pool *p, const struct cpu_nodes *nodes)
{
	p->nodes = nodes;
	for (int k = 0; k < nodes->n; k++)
		for (int t = nodes->thread0[k]; t < nodes->thread0[k + 1]; t++)
			if (t) /* a thread that cannot be bound computes the same elsewhere */
				(void)pthread_setaffinity_np(p->helpers[t - 1].thread, sizeof nodes->cpus[k],
							     &nodes->cpus[k]);
}

static bool all_done(struct cpu_pool *p, uint32_t n)
{
	uint32_t done = 0;
	for (int i = 0; i < p->n_threads; i++) {
		const uint64_t d = atomic_load(&p->lanes[i].done);
		done += d >> 32 == p->generation ? (uint32_t)d : 0;
	}
	return done == n;
}

static void wait_done(struct cpu_pool *p, uint32_t n)
{
	bool done = all_done(p, n);
	for (int64_t end = clock_us() + SPIN_US; !done && clock_us() < end;)
		for (int i = 0; i < 32 && !(done = all_done(p, n)); i++)
			cpu_pause();
	if (done)
		return;
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->caller_sleeps, true);
	while (!all_done(p, n))
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
	assert(n_tasks < TASKS_MAX);
	p->generation = (p->generation + 1) & GENERATION_MASK;
	for (int i = p->n_threads - 1; i >= 0; i--) {
		struct lane *l = &p->lanes[i];
		const int next = (int)((int64_t)n_tasks * i / p->n_threads);
		const int end = (int)((int64_t)n_tasks * (i + 1) / p->n_threads);
		atomic_store_explicit(&l->fn, fn, memory_order_relaxed);
		atomic_store_explicit(&l->arg, arg, memory_order_relaxed);
		atomic_store_explicit(&l->run, run_word(p->generation, next, end), memory_order_release);
	}
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&p->sleepers)) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->work);
		pthread_mutex_unlock(&p->lock);
	}
	work_on(p, p->generation, 0);
	wait_done(p, (uint32_t)n_tasks);
}
