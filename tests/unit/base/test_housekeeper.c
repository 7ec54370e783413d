/* Parts are called when they are due, woken or ready; freed memory is returned to the system. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/housekeeper.h"
#include "base/trim.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

TestSuite(housekeeper, .timeout = 60);

static struct housekeeper *house;

static void start(void)
{
	struct why why;
	cr_assert_eq(housekeeper_start(&house, &why), 0, "%s", why.text);
}

static void await(const atomic_uint *x, unsigned at_least)
{
	while (atomic_load(x) < at_least)
		usleep(1000);
}

static atomic_uint n_ticks, n_ready;

static int64_t tick_often(void *user, int64_t now)
{
	(void)user;
	atomic_fetch_add(&n_ticks, 1);
	return now + 1000;
}

static int64_t tick_when_woken(void *user, int64_t now)
{
	(void)user, (void)now;
	atomic_fetch_add(&n_ticks, 1);
	return INT64_MAX;
}

static void on_ready(void *user)
{
	eventfd_t n;
	eventfd_read(*(int *)user, &n);
	atomic_fetch_add(&n_ready, 1);
}

Test(housekeeper, a_part_is_called_when_it_is_due)
{
	start();
	int part = housekeeper_add(house, &(struct house_part){.fd = -1, .tick = tick_often});
	await(&n_ticks, 5);
	housekeeper_remove(house, part);
	unsigned n = atomic_load(&n_ticks);
	usleep(20000);
	cr_expect_eq(atomic_load(&n_ticks), n, "called after it was removed");
	housekeeper_stop(house);
}

Test(housekeeper, a_part_without_a_time_is_called_when_it_is_woken)
{
	start();
	int part = housekeeper_add(house, &(struct house_part){.fd = -1, .tick = tick_when_woken});
	for (unsigned i = 1; i <= 100; i++) {
		await(&n_ticks, i);
		housekeeper_wake(house, part);
	}
	await(&n_ticks, 101);
	housekeeper_remove(house, part);
	cr_expect_eq(atomic_load(&n_ticks), 101);
	housekeeper_stop(house);
}

Test(housekeeper, a_part_is_called_when_its_descriptor_is_ready)
{
	start();
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int part = housekeeper_add(house, &(struct house_part){.fd = fd, .ready = on_ready, .user = &fd});
	for (unsigned i = 1; i <= 100; i++) {
		eventfd_write(fd, 1);
		await(&n_ready, i);
	}
	housekeeper_remove(house, part);
	eventfd_write(fd, 1);
	usleep(20000);
	cr_expect_eq(atomic_load(&n_ready), 100, "called after it was removed");
	close(fd);
	housekeeper_stop(house);
}

/* --- removing a part during its call --- */

static atomic_uint begun, may_end, ended;

static int64_t tick_long(void *user, int64_t now)
{
	(void)user, (void)now;
	atomic_store(&begun, 1);
	await(&may_end, 1);
	atomic_store(&ended, 1);
	return INT64_MAX;
}

static void *let_it_end(void *arg)
{
	(void)arg;
	usleep(50000);
	atomic_store(&may_end, 1);
	return NULL;
}

Test(housekeeper, a_removal_waits_for_a_call_under_way)
{
	pthread_t t;
	start();
	int part = housekeeper_add(house, &(struct house_part){.fd = -1, .tick = tick_long});
	await(&begun, 1);
	pthread_create(&t, NULL, let_it_end, NULL);
	housekeeper_remove(house, part);
	cr_expect_eq(atomic_load(&ended), 1);
	pthread_join(t, NULL);
	housekeeper_stop(house);
}

/* --- memory --- */

static void needs_system_malloc(void)
{
#ifdef __SANITIZE_ADDRESS__
	cr_skip_test("the sanitizer's malloc keeps what is freed");
#endif
}

static size_t resident(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	cr_assert(f && fscanf(f, "%*d %ld", &pages) == 1);
	fclose(f);
	return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void *pinned;
static atomic_uint used, may_free;

/* One block stays allocated, so free() alone cannot return the blocks before it to the system. */
static void *use_memory(void *arg)
{
	enum { N = 400000, BYTES = 150 };
	void **all = xcalloc(N, sizeof *all);
	for (int i = 0; i < N; i++)
		memset(all[i] = xmalloc(BYTES), 1, BYTES);
	pinned = xmalloc(BYTES);
	atomic_store(&used, 1);
	await(&may_free, 1);
	for (int i = 0; i < N; i++)
		free(all[i]);
	free(all);
	return arg;
}

static void *use_the_end(void *arg)
{
	enum { N = 200000, BYTES = 150 };
	void **all = xcalloc(N, sizeof *all);
	for (int i = 0; i < N; i++)
		memset(all[i] = xmalloc(BYTES), 1, BYTES);
	for (int i = 0; i < N; i++)
		free(all[i]);
	free(all);
	atomic_store(&used, 1);
	await(&may_free, 1);
	return arg;
}

/* This holds also after a large block was freed, and while the thread that owns the heap runs. */
Test(housekeeper, the_end_of_a_threads_heap_is_given_back)
{
	enum { LARGE = 30 << 20 };
	pthread_t t;
	needs_system_malloc();
	trim_init();
	free(memset(xmalloc(LARGE), 1, LARGE));
	size_t before = resident();
	pthread_create(&t, NULL, use_the_end, NULL);
	await(&used, 1);
	cr_expect(resident() <= before + (4 << 20), "%zu before, %zu after", before, resident());
	atomic_store(&may_free, 1);
	pthread_join(t, NULL);
}

Test(housekeeper, memory_that_was_freed_is_given_back)
{
	pthread_t t;
	struct trim trim = {0};
	needs_system_malloc();
	start();
	size_t before = resident();
	pthread_create(&t, NULL, use_memory, NULL);
	await(&used, 1);
	cr_expect(resident() > before + (50 << 20), "%zu before, %zu now", before, resident());
	/* The thread frees its memory after trim_tick() has seen the growth. */
	int64_t next = trim_tick(&trim, 1);
	cr_expect(next > 1 && trim.kept > before + (50 << 20));
	atomic_store(&may_free, 1);
	pthread_join(t, NULL);
	int part = housekeeper_add(house, &(struct house_part){.fd = -1, .tick = trim_tick, .user = &trim});
	/* malloc keeps up to 2 MiB for itself */
	for (int i = 0; i < 2000 && resident() > before + (2 << 20); i++)
		usleep(10000);
	cr_expect(resident() <= before + (2 << 20), "%zu before, %zu after", before, resident());
	housekeeper_remove(house, part);
	housekeeper_stop(house);
	free(pinned);
}
