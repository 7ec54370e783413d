/* The CPU table's threads: every task is done once, by the time the call returns. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/cpu.h"

enum { TASKS = 300 };

struct job {
	int done[TASKS], threads[TASKS];
	int number;
};

static void mark(void *arg, int task, int thread)
{
	struct job *j = arg;
	j->done[task] += j->number;
	j->threads[task] = thread;
	for (volatile int i = 0; i < task % 7 * 20; i++)
		;
}

static void open_dev(struct kern_dev *d, int threads)
{
	char why[128];
	*d = (struct kern_dev){.n_threads = threads};
	cr_assert_eq(cpu_pool_new(&d->pool, threads, why, sizeof why), 0, "%s", why);
}

static void run_jobs(struct kern_dev *d, int jobs, long pause_ns)
{
	struct job *j = calloc(1, sizeof *j);
	for (j->number = 1; j->number <= jobs; j->number++) {
		int n = 2 + j->number * 31 % (TASKS - 1);
		memset(j->done, 0, sizeof j->done);
		cpu_run(d, n, INT64_MAX, mark, j);
		for (int i = 0; i < TASKS; i++) {
			cr_assert_eq(j->done[i], i < n ? j->number : 0, "job %d task %d of %d", j->number, i,
				     n);
			cr_assert(j->threads[i] >= 0 && j->threads[i] < d->n_threads);
		}
		if (pause_ns)
			nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
	}
	free(j);
}

Test(par, every_task_of_many_short_jobs_is_done_once, .timeout = 30)
{
	for (int threads = 1; threads <= 5; threads++) {
		struct kern_dev d;
		open_dev(&d, threads);
		run_jobs(&d, 3000, 0);
		cpu_pool_free(d.pool);
	}
}

Test(par, helpers_that_fell_asleep_wake_up)
{
	struct kern_dev d;
	open_dev(&d, 3);
	run_jobs(&d, 60, 40000); /* about as long as they spin */
	run_jobs(&d, 60, 500000);
	cpu_pool_free(d.pool);
}

/* In which order the tasks of a job were begun. */
struct order {
	int place[TASKS], thread[TASKS], n;
};

static void note_place(void *arg, int task, int thread)
{
	struct order *o = arg;
	o->place[task] = __atomic_fetch_add(&o->n, 1, __ATOMIC_SEQ_CST);
	o->thread[task] = thread;
	for (volatile int i = 0; i < 200; i++)
		;
}

Test(par, a_thread_reads_its_own_run_forwards_and_others_begin_at_its_end)
{
	enum { THREADS = 3 };
	struct order *o = calloc(1, sizeof *o);
	struct kern_dev d;
	int helped = 0;
	open_dev(&d, THREADS);
	for (int job = 0; job < 2000; job++) {
		o->n = 0;
		cpu_run(&d, TASKS, INT64_MAX, note_place, o);
		for (int t = 0; t < THREADS; t++) {
			const int first = TASKS * t / THREADS, end = TASKS * (t + 1) / THREADS;
			int own = first;
			while (own < end && o->thread[own] == t)
				own++;
			for (int i = first + 1; i < own; i++)
				cr_assert_gt(o->place[i], o->place[i - 1]);
			for (int i = own; i < end; i++) {
				cr_assert_neq(o->thread[i], t, "a hole in thread %d's run at %d", t, i);
				cr_assert(i == own || o->place[i] < o->place[i - 1] ||
						  o->thread[i] != o->thread[i - 1],
					  "taken forwards");
			}
			helped += t > 0 && own > first;
		}
	}
	cr_expect_gt(helped, 0, "helpers have runs of their own");
	cpu_pool_free(d.pool);
	free(o);
}

enum { STUCK_THREADS = 3 };

struct stuck {
	int by_caller, by_helpers;
};

/* A helper that the system does not let go on, until the caller has done all the rest. */
static void get_stuck(void *arg, int task, int thread)
{
	struct stuck *s = arg;
	(void)task;
	if (!thread) {
		__atomic_fetch_add(&s->by_caller, 1, __ATOMIC_SEQ_CST);
		return;
	}
	const bool second = __atomic_fetch_add(&s->by_helpers, 1, __ATOMIC_SEQ_CST) >= STUCK_THREADS - 1;
	for (int i = 0; !second && i < 2000; i++) {
		if (__atomic_load_n(&s->by_caller, __ATOMIC_SEQ_CST) >= TASKS - (STUCK_THREADS - 1))
			return;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

Test(par, a_caller_does_what_stuck_helpers_have_not_begun)
{
	struct kern_dev d;
	open_dev(&d, STUCK_THREADS);
	for (int i = 0; i < 20; i++) {
		struct stuck s = {0};
		cpu_run(&d, TASKS, INT64_MAX, get_stuck, &s);
		cr_assert_eq(s.by_caller + s.by_helpers, TASKS);
		cr_assert_leq(s.by_helpers, STUCK_THREADS - 1);
	}
	cpu_pool_free(d.pool);
}

static void sleep_once(void *arg, int task, int thread)
{
	(void)task;
	nanosleep(&(struct timespec){.tv_nsec = thread ? 6000000 : 1000000}, NULL);
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

Test(par, the_caller_waits_for_a_task_that_another_has_begun, .timeout = 20)
{
	struct kern_dev d;
	open_dev(&d, 3);
	for (int i = 0; i < 20; i++) {
		int done = 0;
		cpu_run(&d, 3, INT64_MAX, sleep_once, &done);
		cr_assert_eq(done, 3);
	}
	cpu_pool_free(d.pool);
}

Test(par, small_work_stays_with_the_caller)
{
	struct job *j = calloc(1, sizeof *j);
	struct kern_dev d;
	open_dev(&d, 3);
	for (int i = 0; i < 100; i++) {
		cpu_run(&d, TASKS, 10, mark, j);
		for (int t = 0; t < TASKS; t++)
			cr_assert_eq(j->threads[t], 0);
	}
	cpu_pool_free(d.pool);
	free(j);
}
