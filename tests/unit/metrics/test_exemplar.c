/* An exemplar that several threads write and read concurrently. */
#include "controller/metrics/exemplar.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

/* Number of reads that must see whole values. A broken lock shows in nearly every read that meets a writer,
 * and in some reads even if all threads share one core. */
enum { WRITERS = 2, READS = 2000000, SEEN = 50000 };

static struct exemplar one;
static atomic_bool end;

/* Return a value in which all fields encode i. */
static struct exemplar_value whole(uint64_t i)
{
	struct exemplar_value v = {.value = i, .unix_us = ~i};
	const uint64_t id[2] = {i * 3, i * 5};
	memcpy(v.trace, id, sizeof id);
	return v;
}

static void *write_on(void *from)
{
	for (uint64_t i = (uintptr_t)from; !atomic_load_explicit(&end, memory_order_relaxed); i += WRITERS) {
		const struct exemplar_value v = whole(i);
		exemplar_put(&one, &v);
	}
	return NULL;
}

Test(exemplar, is_one_observation_whatever_is_written_beside_it)
{
	pthread_t t[WRITERS];
	uint64_t seen = 0, last = 0, torn = 0;
	for (uintptr_t i = 0; i < WRITERS; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, write_on, (void *)(i + 1)), 0);
	for (long i = 0; i < READS || seen < SEEN; i++) {
		struct exemplar_value v;
		if (!exemplar_get(&one, &v))
			continue;
		const struct exemplar_value as_written = whole(v.value);
		torn += memcmp(&v, &as_written, sizeof v) != 0;
		seen += v.value != last;
		last = v.value;
	}
	atomic_store(&end, true);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
	cr_expect_eq(torn, 0u, "%llu of %llu", (unsigned long long)torn, (unsigned long long)seen);
}

Test(exemplar, is_none_before_the_first_and_the_last_one_then)
{
	struct exemplar e = {0};
	struct exemplar_value v;
	cr_expect(!exemplar_get(&e, &v));
	for (uint64_t i = 7; i < 9; i++) {
		const struct exemplar_value w = whole(i);
		exemplar_put(&e, &w);
		cr_assert(exemplar_get(&e, &v));
		cr_expect_eq(memcmp(&v, &w, sizeof v), 0);
	}
}

/* A thread was preempted while it wrote. */
Test(exemplar, is_left_out_while_another_is_written)
{
	struct exemplar e = {0};
	struct exemplar_value v = whole(1);
	exemplar_put(&e, &v);
	atomic_fetch_add(&e.seq, 1);
	cr_expect(!exemplar_get(&e, &v));
	v = whole(2);
	exemplar_put(&e, &v);
	atomic_fetch_add(&e.seq, 1);
	cr_assert(exemplar_get(&e, &v));
	cr_expect_eq(v.value, 1u);
}
