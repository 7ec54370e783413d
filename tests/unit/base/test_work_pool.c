/* The pool takes turns between clients and limits their queues. */
#include "base/alloc.h"
#include "base/work_pool.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(work_pool, .timeout = 60);

static struct work_pool *pool;
static struct why why;

static void start(unsigned n_threads, size_t client_items, size_t items)
{
	struct work_limits l = {.n_threads = n_threads,
				.items = items,
				.bytes = 1 << 30,
				.client_items = client_items,
				.client_bytes = 10 << 20};
	cr_assert_eq(work_pool_start(&l, &pool, &why), 0, "%s", why.text);
}

/* --- work that blocks until the test continues --- */

struct gate {
	struct work w;
	sem_t begun, open;
};

static void pass(struct work *w)
{
	struct gate *g = (struct gate *)w;
	sem_post(&g->begun);
	sem_wait(&g->open);
}

static void close_gate_costly(struct gate *g, const char *client, size_t bytes, bool costly)
{
	*g = (struct gate){.w = {.run = pass, .bytes = bytes, .costly = costly}};
	sem_init(&g->begun, 0, 0);
	sem_init(&g->open, 0, 0);
	cr_assert_eq(work_pool_put(pool, client, &g->w, &why), 0, "%s", why.text);
}

static void close_gate(struct gate *g, const char *client, size_t bytes)
{
	close_gate_costly(g, client, bytes, false);
}

/* --- work that records its order --- */

struct note {
	struct work w;
	char name;
};

static char order[64];
static atomic_uint n_noted;

static void note(struct work *w)
{
	order[atomic_fetch_add(&n_noted, 1)] = ((struct note *)w)->name;
	free(w);
}

static int put(const char *client, char name, size_t bytes)
{
	struct note *n = xcalloc(1, sizeof *n);
	*n = (struct note){.w = {.run = note, .bytes = bytes}, .name = name};
	int rc = work_pool_put(pool, client, &n->w, &why);
	if (rc)
		free(n);
	return rc;
}

Test(work_pool, clients_take_turns)
{
	struct gate g;
	start(1, 100, 100);
	close_gate(&g, "gate", 1);
	sem_wait(&g.begun);
	for (int i = 0; i < 5; i++)
		cr_assert_eq(put("alice", 'a', 100), 0);
	cr_assert_eq(put("bob", 'b', 100), 0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(put("carol", 'c', 100), 0);
	sem_post(&g.open);
	work_pool_stop(pool);
	cr_expect_str_eq(order, "abcacaaa");
}

/* The simulated CPU time of the single thread; each work item advances it. */
static atomic_int cpu;

static int64_t read_cpu(void)
{
	return atomic_load(&cpu);
}

static void start_with_clock(void)
{
	struct work_limits l = {.n_threads = 1,
				.items = 100,
				.bytes = 1 << 30,
				.client_items = 100,
				.client_bytes = 10 << 20,
				.cpu_us = read_cpu};
	cr_assert_eq(work_pool_start(&l, &pool, &why), 0, "%s", why.text);
}

static void note_slow(struct work *w)
{
	atomic_fetch_add(&cpu, 1000000);
	note(w);
}

static void note_quick(struct work *w)
{
	atomic_fetch_add(&cpu, 50);
	note(w);
}

static void put_costing(const char *client, char name, size_t bytes, void (*run)(struct work *w))
{
	struct note *n = xcalloc(1, sizeof *n);
	*n = (struct note){.w = {.run = run, .bytes = bytes}, .name = name};
	cr_assert_eq(work_pool_put(pool, client, &n->w, &why), 0, "%s", why.text);
}

/* A client with costly work gets fewer turns, even if the work has few bytes. */
Test(work_pool, turns_are_measured_in_cpu_time)
{
	struct gate g;
	start_with_clock();
	close_gate(&g, "gate", 1);
	sem_wait(&g.begun);
	for (int i = 0; i < 3; i++)
		put_costing("costly", 'C', 100, note_slow);
	for (int i = 0; i < 20; i++)
		put_costing("quick", 'q', 10000, note_quick);
	sem_post(&g.open);
	work_pool_stop(pool);
	cr_expect_str_eq(order, "CqqqqqqqqqqqqqqqqqqqqCC");
}

/* A client is not penalised for large work that took little time. */
Test(work_pool, what_was_expected_of_a_piece_is_corrected_when_it_has_run)
{
	struct gate g;
	start_with_clock();
	close_gate(&g, "gate", 1);
	sem_wait(&g.begun);
	for (int i = 0; i < 4; i++)
		put_costing("large", 'L', 100000, note_quick);
	for (int i = 0; i < 4; i++)
		put_costing("small", 's', 1, note_quick);
	sem_post(&g.open);
	work_pool_stop(pool);
	cr_expect_str_eq(order, "LsLsLsLs");
}

Test(work_pool, a_clients_queue_is_bounded_and_named)
{
	struct gate g;
	start(1, 3, 5);
	close_gate(&g, "gate", 1);
	sem_wait(&g.begun);
	for (int i = 0; i < 3; i++)
		cr_expect_eq(put("key alice", 'a', 100), 0);
	cr_expect_eq(put("key alice", 'a', 100), -EAGAIN);
	cr_expect(strstr(why.text, "key alice") && strstr(why.text, "wait for their replies"), "%s",
		  why.text);
	/* Each client has its own limit. */
	cr_expect_eq(put("key bob", 'b', 100), 0);
	cr_expect_eq(put("key carol", 'c', 20 << 20), 0,
		     "work of any size is taken from a client that has none");
	cr_expect_eq(put("key carol", 'c', 1), -EAGAIN);
	cr_expect_eq(put("key dave", 'd', 100), -ENOBUFS);
	cr_expect(strstr(why.text, "of all clients"), "%s", why.text);
	sem_post(&g.open);
	work_pool_stop(pool);
	cr_expect_eq(atomic_load(&n_noted), 5);
}

/* If all threads were taken, this test would hang. */
static void leaves_a_thread(size_t bytes, bool costly)
{
	struct gate g[4];
	start(3, 100, 100);
	for (int i = 0; i < 4; i++)
		close_gate_costly(&g[i], "alice", bytes, costly);
	sem_wait(&g[0].begun);
	sem_wait(&g[1].begun);
	cr_assert_eq(put("alice", 'a', 100), 0);
	cr_assert_eq(put("bob", 'b', 100), 0);
	while (atomic_load(&n_noted) < 2)
		usleep(1000);
	for (int i = 0; i < 4; i++)
		sem_post(&g[i].open);
	work_pool_stop(pool);
}

Test(work_pool, large_work_leaves_a_thread_for_small)
{
	leaves_a_thread(WORK_SMALL_BYTES + 1, false);
}

Test(work_pool, costly_work_leaves_a_thread_for_small)
{
	leaves_a_thread(1, true);
}

/* --- work in order --- */

static atomic_uint n_running, n_most, n_done;

static void count(struct work *w)
{
	unsigned now = atomic_fetch_add(&n_running, 1) + 1;
	if (now > atomic_load(&n_most))
		atomic_store(&n_most, now);
	for (volatile int i = 0; i < 1000; i++)
		;
	atomic_fetch_sub(&n_running, 1);
	atomic_fetch_add(&n_done, 1);
	free(w);
}

/* The second thread is free and runs c, but b must wait for its client's earlier work, the gate. */
Test(work_pool, work_in_order_waits_for_the_piece_before_it)
{
	struct gate g;
	start(2, 100, 100);
	close_gate(&g, "jobs 1", 100);
	sem_wait(&g.begun);
	struct note *b = xcalloc(1, sizeof *b);
	*b = (struct note){.w = {.run = note, .bytes = 100, .in_order = true}, .name = 'b'};
	cr_assert_eq(work_pool_put(pool, "jobs 1", &b->w, &why), 0);
	cr_assert_eq(put("jobs 2", 'c', 100), 0);
	while (!atomic_load(&n_noted))
		usleep(1000);
	sem_post(&g.open);
	work_pool_stop(pool);
	cr_expect_str_eq(order, "cb");
}

Test(work_pool, work_in_order_runs_one_piece_at_a_time)
{
	start(3, 2000, 2000);
	for (int i = 0; i < 1000; i++) {
		struct work *w = xcalloc(1, sizeof *w);
		*w = (struct work){.run = count, .bytes = i % 3 ? 1 : WORK_SMALL_BYTES + 1, .in_order = true};
		while (work_pool_put(pool, "jobs 1", w, &why) == -EAGAIN)
			usleep(100); /* wait until the queued bytes allow another put */
	}
	work_pool_stop(pool);
	cr_expect_eq(atomic_load(&n_most), 1);
	cr_expect_eq(atomic_load(&n_done), 1000);
}
