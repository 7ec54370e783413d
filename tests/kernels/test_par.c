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

Test(par, every_task_of_many_short_jobs_is_done_once)
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

static void sleep_once(void *arg, int task, int thread)
{
	(void)task;
	(void)thread;
	nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

Test(par, the_caller_waits_for_a_task_that_another_has_begun)
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
