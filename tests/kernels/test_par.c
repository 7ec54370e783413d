/* The CPU table's threads: every task runs once, before the call returns. Also the thread that touches the
 * cache's pages in advance. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/nodes.h"
#include "kernels/cpu/touch.h"

/* All tests use one time limit. If limits differ, Criterion sometimes leaks one, and the leak detector
 * reports it. */
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
	struct why why;
	*d = (struct kern_dev){.n_threads = threads};
	cr_assert_eq(cpu_pool_new(&d->pool, threads, &why), 0, "%s", why.text);
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

/* Order in which the tasks of a job were started. */
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

/* Block a helper thread, as if the system did not schedule it, until the caller has run all other tasks. */
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
	struct cpu_nodes nodes = {.n = 2, .thread0 = {0, 1, STUCK_THREADS}};
	open_dev(&d, STUCK_THREADS);
	cr_assert_eq(sched_getaffinity(0, sizeof nodes.cpus[0], &nodes.cpus[0]), 0);
	nodes.cpus[1] = nodes.cpus[0];
	for (int i = 0; i < 20; i++) {
		struct stuck s = {0};
		if (i == 10) /* the helpers are on another node */
			cpu_pool_place(d.pool, &nodes);
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

/* ---- cache pages: touched before use, and no more than needed ---- */

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

/* Check that blocks 0 .. n - 1 have pages in every layer of both pools, and that the other blocks have
 * none. */
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
	cpu_touch_used(w.t, 3); /* most of the blocks remain */
	cr_expect_eq(cpu_touch_wait(w.t), 8);
	check_blocks(&w, 8);
	cpu_touch_used(w.t, 5);
	cr_expect_eq(cpu_touch_wait(w.t), 13);
	check_blocks(&w, 13);
	cpu_touch_used(w.t, 2); /* lower blocks again */
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
	alloc_touch(p + 2 * PAGE - 1, 2 * PAGE + 2); /* one byte of the first and last page */
	alloc_touch(p + PAGE, 0);
	cr_assert_eq(mincore(p, 6 * PAGE, in), 0);
	for (int i = 0; i < 6; i++)
		cr_expect_eq(in[i] & 1, i >= 1 && i <= 4, "page %d", i);
	munmap(p, 6 * PAGE);
}

/* ---- NUMA nodes: a simulated machine ---- */

static char machine[64]; /* its directory */

static void machine_new(void)
{
	char path[256];
	static const char *const parts[] = {"", "/sys", "/sys/devices", "/sys/devices/system",
					    "/sys/devices/system/node"};
	snprintf(machine, sizeof machine, "/tmp/quern-test-nodes-%d", (int)getpid());
	for (int i = 0; i < 5; i++) {
		snprintf(path, sizeof path, "%s%s", machine, parts[i]);
		mkdir(path, 0700);
	}
	cpu_nodes_root = machine;
}

static void machine_node(int id, const char *cpus)
{
	char path[256];
	snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d", machine, id);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/cpulist", machine, id);
	FILE *f = fopen(path, "w");
	cr_assert(f);
	fprintf(f, "%s\n", cpus);
	fclose(f);
}

static void machine_free(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -r %s", machine);
	cr_assert_eq(system(command), 0);
	cpu_nodes_root = "";
}

static void check_threads(const struct cpu_nodes *n, int nodes, const int *thread0)
{
	cr_assert_eq(n->n, nodes, "%d nodes", n->n);
	for (int i = 0; i <= nodes; i++)
		cr_expect_eq(n->thread0[i], thread0[i], "node %d begins with thread %d", i, n->thread0[i]);
}

static cpu_set_t all_cpus(void)
{
	cpu_set_t all;
	for (int i = 0; i < CPU_SETSIZE; i++)
		CPU_SET(i, &all);
	return all;
}

Test(par, threads_are_divided_among_nodes_by_their_processors)
{
	struct cpu_nodes n;
	cpu_set_t all = all_cpus(), some;
	machine_new();
	machine_node(0, "0-63,128-191");
	machine_node(1, "64-127,192-255");
	cpu_nodes_read(&all, 128, &n);
	check_threads(&n, 2, (int[]){0, 64, 128});
	cr_expect(CPU_ISSET(191, &n.cpus[0]) && !CPU_ISSET(64, &n.cpus[0]) && CPU_ISSET(64, &n.cpus[1]));
	cpu_nodes_read(&all, 5, &n);
	check_threads(&n, 2, (int[]){0, 2, 5});
	cpu_nodes_read(&all, 1, &n);
	check_threads(&n, 1, (int[]){0, 1});
	some = all;
	for (int i = 0; i < 64; i++)
		CPU_CLR(i + 128, &some), CPU_CLR(i % 48 + 64, &some), CPU_CLR(i + 192, &some);
	cpu_nodes_read(&some, 80, &n); /* 64 and 16 processors remain */
	check_threads(&n, 2, (int[]){0, 64, 80});
	machine_node(3, "256-257");
	cpu_nodes_read(&all, 4, &n); /* node numbers with a gap; each node has at least one thread */
	check_threads(&n, 3, (int[]){0, 1, 3, 4});
	cr_expect_eq(n.id[2], 3);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (i >= 64 && i < 128)
			CPU_SET(i, &some);
		else
			CPU_CLR(i, &some);
	cpu_nodes_read(&some, 64, &n);
	check_threads(&n, 1, (int[]){0, 64});
	machine_free();
}

static struct {
	struct {
		uintptr_t from, to;
		int id, n_ids;
	} v[64];
	int n;
} bound;

static int remember(void *p, size_t bytes, const int *ids, int n_ids)
{
	cr_assert_lt(bound.n, 64);
	bound.v[bound.n].from = (uintptr_t)p;
	bound.v[bound.n].to = (uintptr_t)p + bytes;
	bound.v[bound.n].id = ids[0];
	bound.v[bound.n++].n_ids = n_ids;
	return 0;
}

/* Three ranges of 10, 4 and 2 blocks. The threads of node 0 run the first half of all 16 tasks: 8 blocks. */
Test(par, blocks_are_bound_to_the_node_that_has_their_tasks)
{
	enum { EACH = 8192, ALL = 16 };
	const struct cpu_nodes n = {.n = 2, .id = {0, 5}, .thread0 = {0, 3, 6}, .bind = remember};
	static const int blocks[] = {10, 4, 2};
	static const struct {
		int part, from, to, id;
	} want[] = {{0, 0, 8, 0}, {0, 8, 10, 5}, {1, 0, 4, 5}, {2, 0, 2, 5}};
	char *p = aligned_alloc(4096, ALL * EACH);
	bound.n = 0;
	for (int i = 0, first = 0; i < 3; first += blocks[i++])
		cpu_nodes_place(&n, p, (size_t)blocks[i] * EACH, EACH, first, blocks[i], ALL);
	cr_assert_eq(bound.n, 4);
	for (int i = 0; i < 4; i++) {
		cr_expect_eq(bound.v[i].from, (uintptr_t)p + (size_t)want[i].from * EACH, "area %d", i);
		cr_expect_eq(bound.v[i].to, (uintptr_t)p + (size_t)want[i].to * EACH, "area %d", i);
		cr_expect_eq(bound.v[i].id, want[i].id);
		cr_expect_eq(bound.v[i].n_ids, 1);
	}
	bound.n = 0;
	cpu_nodes_place(&n, p, 10 * EACH + 64, EACH, 0, 10, 10); /* the bias is bound with the last block */
	cr_expect_eq(bound.n, 2);
	cr_expect_eq(bound.v[1].to, (uintptr_t)p + 10 * EACH + 4096);
	bound.n = 0;
	cpu_nodes_spread(&n, p, 5 * EACH);
	cr_expect(bound.n == 1 && bound.v[0].n_ids == 2 && bound.v[0].to == (uintptr_t)p + 5 * EACH);
	cpu_nodes_place(NULL, p, EACH, EACH, 0, 1, 1);
	cpu_nodes_spread(NULL, p, EACH);
	cr_expect_eq(bound.n, 1);
	free(p);
}

struct where {
	int cpu[64], thread[64];
};

static void note_cpu(void *arg, int task, int thread)
{
	struct where *w = arg;
	w->cpu[task] = sched_getcpu();
	w->thread[task] = thread;
	for (volatile int i = 0; i < 100000; i++)
		;
}

Test(par, helpers_stay_on_their_node_and_every_task_is_done_once)
{
	cpu_set_t mine;
	int first = -1, last = -1;
	char list[2][16];
	cr_assert_eq(sched_getaffinity(0, sizeof mine, &mine), 0);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &mine)) {
			first = first < 0 ? i : first;
			last = i;
		}
	if (first == last)
		cr_skip_test("one processor");
	machine_new();
	snprintf(list[0], sizeof list[0], "%d", first);
	snprintf(list[1], sizeof list[1], "%d", last);
	machine_node(0, list[0]);
	machine_node(1, list[1]);
	for (int threads = 2; threads <= 5; threads++) {
		struct kern_dev d;
		struct cpu_nodes nodes;
		struct where w;
		open_dev(&d, threads);
		cpu_nodes_read(&mine, threads, &nodes);
		cr_assert_eq(nodes.n, 2);
		cpu_pool_place(d.pool, &nodes);
		run_jobs(&d, 300, 0);
		cpu_run(&d, 64, INT64_MAX, note_cpu, &w);
		for (int i = 0; i < 64; i++)
			if (w.thread[i])
				cr_expect_eq(w.cpu[i], w.thread[i] < nodes.thread0[1] ? first : last,
					     "thread %d on %d", w.thread[i], w.cpu[i]);
		cpu_pool_free(d.pool);
	}
	machine_free();
}

/* Open a device over both nodes of the simulated machine. Check where pages would be bound, and that the bits
 * are those of a device on one node. */
Test(par, a_device_over_several_nodes_binds_its_weights_and_gives_the_same_bits)
{
	enum { K = 256, N = 1280 };
	static float w[K * N], x[3 * K], y[2][3 * N];
	struct kern_open_args a = {.index = -1,
				   .n_threads = 4,
				   .max_rows = 3,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 64,
				   .max_blocks_per_seq = 4};
	const struct kern_linear_src src = {
		.name = "layer", .k = K, .n_parts = 1, .parts = {{.dtype = KERN_F32, .n = N, .w = w}}};
	for (int i = 0; i < K * N; i++)
		w[i] = (float)(i * 37 % 101 - 50) / 64;
	for (int i = 0; i < 3 * K; i++)
		x[i] = (float)(i * 53 % 97 - 48) / 32;
	machine_new();
	cpu_nodes_bind = remember;
	for (int two = 0; two < 2; two++) {
		struct kern_dev *d;
		struct kern_linear *l;
		struct why why;
		machine_node(0, two ? "0,2,4,6,8" : "0-1023");
		if (two)
			machine_node(1, "1,3,5,7,9");
		bound.n = 0;
		cr_assert_eq(kern_cpu_ops.open(&d, &a, &why), 0, "%s", why.text);
		if (two && !d->nodes)
			cr_skip_test("one processor");
		cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &l, &why), 0, "%s", why.text);
		cr_expect_eq(bound.n, 2 * two);
		if (two) {
			cr_expect_eq(bound.v[0].id, 0);
			cr_expect_eq(bound.v[1].id, 1);
			cr_expect_lt(bound.v[1].from, bound.v[1].to);
		}
		struct kern_kv *kv = kern_cpu_ops.kv_new(d, 2, 2, 16, 16, 4, 1);
		cr_expect_eq(bound.n, 3 * two, "the cache is spread");
		kern_cpu_ops.kv_free(kv);
		struct kern_stream *s = kern_cpu_ops.stream_new(d);
		for (int i = 0; i < 50; i++)
			cr_assert_eq(kern_cpu_ops.linear(s, l, y[two], x, 3, true), 0);
		kern_cpu_ops.stream_free(s);
		kern_cpu_ops.linear_free(l);
		kern_cpu_ops.close(d);
	}
	cr_expect_eq(memcmp(y[0], y[1], sizeof y[0]), 0);
	machine_free();
}
