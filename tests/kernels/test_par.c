/* The CPU table's threads: every task is done once, by the time the call returns.  And the thread that
 * touches the cache. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/alloc.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/touch.h"

/* One limit for all: of limits that differ, Criterion loses the memory of one now and then, and the leak
 * detector finds it. */
TestSuite(par, .timeout = 60);

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

/* ---- pages of the cache: there ahead of their use, no more of them than are wanted ---- */

TestSuite(touch, .timeout = 60);

enum { PAGE = 4096, LAYERS = 3, BLOCKS = 40, BLOCK = 2 * PAGE };

struct world {
	struct cpu_touch_pool pools[2];
	struct cpu_touch *t;
};

static struct world world_new(int ahead)
{
	struct world w;
	for (int i = 0; i < 2; i++) {
		const size_t bytes = (size_t)LAYERS * BLOCKS * BLOCK;
		w.pools[i] = (struct cpu_touch_pool){
			.p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			.bytes = bytes,
			.n_layers = LAYERS};
		cr_assert_neq(w.pools[i].p, MAP_FAILED);
		madvise(w.pools[i].p, bytes, MADV_NOHUGEPAGE);
	}
	w.t = cpu_touch_new(w.pools, 2, BLOCKS, ahead);
	return w;
}

static void world_free(struct world *w)
{
	cpu_touch_free(w->t);
	for (int i = 0; i < 2; i++)
		munmap(w->pools[i].p, w->pools[i].bytes);
}

/* Blocks 0 .. n - 1 have pages in every layer of both pools, and the others none. */
static void check_blocks(const struct world *w, int n)
{
	unsigned char in[BLOCK / PAGE];
	for (int i = 0; i < 2; i++)
		for (int l = 0; l < LAYERS; l++)
			for (int b = 0; b < BLOCKS; b++) {
				char *p = w->pools[i].p + (size_t)(l * BLOCKS + b) * BLOCK;
				cr_assert_eq(mincore(p, BLOCK, in), 0);
				for (int page = 0; page < BLOCK / PAGE; page++)
					cr_assert_eq(in[page] & 1, b < n, "pool %d layer %d block %d of %d",
						     i, l, b, n);
			}
}

Test(touch, blocks_are_touched_ahead_of_their_use)
{
	struct world w = world_new(8);
	cr_expect_eq(cpu_touch_wait(w.t), 8);
	check_blocks(&w, 8);
	cpu_touch_used(w.t, 3); /* most of them are left */
	cr_expect_eq(cpu_touch_wait(w.t), 8);
	check_blocks(&w, 8);
	cpu_touch_used(w.t, 5);
	cr_expect_eq(cpu_touch_wait(w.t), 13);
	check_blocks(&w, 13);
	cpu_touch_used(w.t, 2); /* lower ones again */
	cr_expect_eq(cpu_touch_wait(w.t), 13);
	cpu_touch_used(w.t, 36);
	cr_expect_eq(cpu_touch_wait(w.t), BLOCKS, "not beyond the pool");
	check_blocks(&w, BLOCKS);
	cpu_touch_used(w.t, BLOCKS);
	cr_expect_eq(cpu_touch_wait(w.t), BLOCKS);
	world_free(&w);
}

Test(touch, a_pool_smaller_than_what_is_ahead_is_touched_whole)
{
	struct world w = world_new(1000);
	cr_expect_eq(cpu_touch_wait(w.t), BLOCKS);
	check_blocks(&w, BLOCKS);
	world_free(&w);
	cpu_touch_used(NULL, 5);
	cpu_touch_free(NULL);
}

Test(touch, what_is_written_meanwhile_stays)
{
	for (int round = 0; round < 50; round++) {
		struct world w = world_new(BLOCKS);
		for (int i = 0; i < 2; i++)
			for (size_t at = 0; at < w.pools[i].bytes; at += 512)
				w.pools[i].p[at] = (char)(at / 512 + 1);
		cpu_touch_wait(w.t);
		for (int i = 0; i < 2; i++)
			for (size_t at = 0; at < w.pools[i].bytes; at += 512)
				cr_assert_eq(w.pools[i].p[at], (char)(at / 512 + 1));
		world_free(&w);
	}
}

Test(touch, an_area_is_touched_from_its_first_page_to_its_last)
{
	unsigned char in[6];
	char *p = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq((void *)p, MAP_FAILED);
	madvise(p, 6 * PAGE, MADV_NOHUGEPAGE);
	alloc_touch(p + 2 * PAGE - 1, 2 * PAGE + 2); /* one byte of the first and last */
	alloc_touch(p + PAGE, 0);
	cr_assert_eq(mincore(p, 6 * PAGE, in), 0);
	for (int i = 0; i < 6; i++)
		cr_expect_eq(in[i] & 1, i >= 1 && i <= 4, "page %d", i);
	munmap(p, 6 * PAGE);
}
