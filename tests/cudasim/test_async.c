/* Hopper's asynchronous instructions as kernels call them: the same kernels on the emulated device, in the
 * orders of several seeds, and on a real device.  Wrong uses: tests/cudarace/test_async.cc. */
#include "tests/cudasim/cuda_test.h"
#include "tests/gpu/async_kernels.h"

enum { SEEDS = 6, BLOCKS = 3, STAGES = 7, FLOATS = BLOCKS * STAGES * ASYNC_STAGE };

static bool is_hopper(struct kt *t)
{
	struct kern_info in;
	t->ops->info(t->dev, &in);
	const char *sm = strstr(in.numerics, "sm_");
	return sm && atoi(sm + 3) >= 90;
}

static float value(int i)
{
	return (float)(i * 37 % 1021 - 500);
}

static void open_filled(struct kt *t, float **in, float **out)
{
	static float values[FLOATS];
	ct_open(t, false, (struct kt_size){0});
	if (!is_hopper(t))
		cr_skip_test("a GPU older than Hopper");
	for (int i = 0; i < FLOATS; i++)
		values[i] = value(i);
	*in = kt_put(t, values, sizeof values);
	*out = kt_new(t, sizeof values);
}

static void close_filled(struct kt *t, float *in, float *out)
{
	kt_del(t, in);
	kt_del(t, out);
	kt_close(t);
}

Test(async, an_mbarrier_has_phases_of_arrivals_and_bytes)
{
	static const uint8_t want[] = {1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0};
	struct kt t;
	float *in, *out;
	uint8_t got[ASYNC_SAYS];
	open_filled(&t, &in, &out);
	cr_assert_eq(async_mbar_says(t.s, (uint8_t *)out), 0);
	kt_get(&t, got, out, sizeof got);
	for (size_t i = 0; i < sizeof want; i++)
		cr_expect_eq(got[i], want[i], "question %zu: %d", i, got[i]);
	close_filled(&t, in, out);
}

Test(async, stages_go_through_a_ring)
{
	struct kt t;
	float *in, *out, got[BLOCKS * ASYNC_CONSUMERS];
	open_filled(&t, &in, &out);
	for (int seed = 0; seed < SEEDS; seed++) {
		cudasim_seed((uint64_t)seed);
		cr_assert_eq(async_ring(t.s, out, in, BLOCKS, STAGES), 0);
		kt_get(&t, got, out, sizeof got);
		for (int i = 0; i < BLOCKS * ASYNC_CONSUMERS; i++) {
			const int block = i / ASYNC_CONSUMERS, lane = i % ASYNC_CONSUMERS;
			float want = 0;
			for (int k = lane; k < STAGES * ASYNC_STAGE; k += ASYNC_CONSUMERS)
				want += value(block * STAGES * ASYNC_STAGE + k);
			cr_assert_eq(got[i], want, "seed %d, block %d, lane %d: %f, expected %f", seed, block,
				     lane, (double)got[i], (double)want);
		}
	}
	close_filled(&t, in, out);
}

Test(async, rows_leave_by_bulk_stores)
{
	struct kt t;
	static float got[FLOATS];
	float *in, *out;
	open_filled(&t, &in, &out);
	for (int seed = 0; seed < SEEDS; seed++) {
		cudasim_seed((uint64_t)seed);
		cr_assert_eq(async_store(t.s, out, in, BLOCKS * STAGES), 0);
		kt_get(&t, got, out, sizeof got);
		for (int i = 0; i < FLOATS; i++)
			cr_assert_eq(got[i], value(i) + 1 + (float)!i, "seed %d, %d: %f", seed, i,
				     (double)got[i]);
	}
	close_filled(&t, in, out);
}

static float scaled(float x, float w, int times)
{
	for (int i = 0; i < times; i++)
		x = x * w + 1;
	return x;
}

/* Launches in a stream, and captured: a graph's launches begin early too. */
Test(async, launches_begin_early_in_streams_and_graphs)
{
	enum { TIMES = 9, REPLAYS = 3, N = 1000 };
	struct kt t;
	static float got[N];
	float *w, *x;
	open_filled(&t, &w, &x);
	for (int i = 0; i < N; i++)
		got[i] = 0.125f * (float)(i % 8);
	kt_del(&t, w);
	w = kt_put(&t, got, sizeof got);
	cr_assert_eq(async_chain(t.s, x, w, N, TIMES), 0);
	cr_assert_eq(async_chain_graph(t.s, x, w, N, TIMES, REPLAYS), 0);
	kt_get(&t, got, x, sizeof got);
	for (int i = 0; i < N; i++) {
		const float want = scaled(0, 0.125f * (float)(i % 8), TIMES * (1 + REPLAYS));
		cr_assert_eq(got[i], want, "%d: %f, expected %f", i, (double)got[i], (double)want);
	}
	close_filled(&t, w, x);
}
