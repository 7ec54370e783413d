/* par.c - the device's threads.
 *
 * The tasks of a job are divided in advance.  Each thread gets a run of consecutive tasks, so that it reads
 * one long stretch of the weights, the same in every step.  A thread takes its own tasks from the front; when
 * none is left, it takes tasks from the back of another thread's run.  The caller waits only for tasks that a
 * helper has begun.  A helper that the system does not schedule therefore costs nothing, where a barrier
 * would wait a time slice for it (the machine is shared with a controller and other programs).  A helper
 * without work spins for a bounded time, then sleeps.  (OpenMP's barrier was measured at 12 ms a call on two
 * busy cores, where the work itself takes 0.2 ms.)
 *
 *   run of a thread:    generation (24 bits) | next task (20) | end (20)
 *
 * A claim is a compare-and-swap of the whole word.  It fails if the job that the thread has read has
 * finished, since all runs of that generation are then empty.  The other fields of a thread's lane are
 * written before the run, while the run of the previous generation is empty; a helper reads them before it
 * claims.  Each lane has its own cache lines: a job is handed over, and back, by one line that moves between
 * two cores. */
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
	WORK_WORTH_SHARING = 16384, /* about 5 us of one core, which is the cost of sharing it */
	SPIN_US = 50,               /* longer than the gap between two operations of a step */
	TASK_BITS = 20,
	TASKS_MAX = 1 << TASK_BITS,
	GENERATION_MASK = (1 << 24) - 1,
	GENERATION_FIRST = GENERATION_MASK - 1000, /* early wrap in every process, so that it is well
						      tested */
};

/* The tasks of one thread, and how many it has finished. */
struct lane {
	_Alignas(64) _Atomic uint64_t run;
	_Atomic(cpu_fn *) fn;
	_Atomic(void *) arg;
	_Alignas(64) _Atomic uint64_t done; /* generation << 32 | tasks of that generation that this thread
					       has finished */
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
	pthread_cond_t work;     /* signals that a job is available, or quit */
	pthread_cond_t finished; /* signals that a helper has no tasks left */
	uint32_t generation;     /* generation of the last job; the caller's */
	int n_threads, n_helpers;
	struct helper *helpers;
	const struct cpu_nodes *nodes; /* NULL: one node */
};

static uint64_t run_word(uint32_t generation, int next, int end)
{
	return (uint64_t)generation << 2 * TASK_BITS | (uint64_t)next << TASK_BITS | (uint64_t)end;
}

static uint32_t generation_of(uint64_t run)
{
	return (uint32_t)(run >> 2 * TASK_BITS);
}

/* Claim a task of a thread's run, from its front or back; -1 if none of that generation is left. */
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

/* Return the i-th thread from which a thread takes tasks: itself, its node's threads, then all others. */
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

/* Run all tasks of a job that are left: the thread's own run, then tasks that others have not begun. */
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

int cpu_pool_new(struct cpu_pool **out, int n_threads, struct why *why)
{
	*out = NULL;
	struct cpu_pool *p = alloc_big(sizeof *p);
	struct lane *lanes = alloc_big((size_t)n_threads * sizeof *lanes);
	if (!p || !lanes) {
		alloc_big_free(lanes, (size_t)n_threads * sizeof *lanes);
		alloc_big_free(p, sizeof *p);
		return err_why(why, -ENOMEM, "no memory for the threads");
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
	/* Only threads that expect signals receive them. */
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
		return err_why(why, -e, "the system allows no more than %d threads", n + 1);
	}
	*out = p;
	return 0;
}

void cpu_pool_place(struct cpu_pool *p, const struct cpu_nodes *nodes)
{
	p->nodes = nodes;
	for (int k = 0; k < nodes->n; k++)
		for (int t = nodes->thread0[k]; t < nodes->thread0[k + 1]; t++)
			if (t) /* a thread that cannot be bound computes the same on another node */
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
