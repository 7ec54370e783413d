/* Launches that begin early: reads before their wait, and writes that no earlier wait covers. */
#include "tests/cudarace/race_test.h"

enum { WEIGHTS = FLOATS / 2 }; /* no kernel writes from here on */

static void produce_kernel(float *x)
{
	grid_launch_dependents();
	x[threadIdx.x] = 1;
}

/* Before the wait, each thread reads a weight (correct) or x (fault); after it, its neighbour's x. */
static void consume_kernel(float *x, float *y, bool mended, bool all)
{
	float v = 0;
	if (mended)
		v = x[WEIGHTS + threadIdx.x];
	else
		v = x[threadIdx.x];
	grid_launch_dependents();
	if (all || threadIdx.x == 0)
		grid_dependency_wait();
	if (!all)
		block_sync();
	y[threadIdx.x] = v + x[(threadIdx.x + 1) % THREADS];
}

/* Write nothing, and wait only if `waits` is set. */
static void idle_kernel(float *x, bool waits)
{
	float v = x[WEIGHTS + threadIdx.x];
	if (waits)
		grid_dependency_wait();
	if (v > 1)
		x[threadIdx.x] = v;
}

static void read_kernel(float *x, float *y)
{
	grid_dependency_wait();
	y[threadIdx.x] = x[threadIdx.x];
}

static void write_early_kernel(float *x, bool mended)
{
	if (mended)
		grid_dependency_wait();
	x[FLOATS / 4 + threadIdx.x] = 1;
	if (!mended)
		grid_dependency_wait();
}

/* Only warp 0 waits, which does not order warp 1. */
static void wait_for_others_kernel(float *x, bool mended)
{
	if (warp_id() == 0 || mended)
		grid_dependency_wait();
	if (warp_id() < 2 && x[threadIdx.x] > 1)
		x[FLOATS / 4 + threadIdx.x] = 1;
}

struct chain {
	cudaStream_t s;
	float *x;
};

static struct chain chain_new(void)
{
	struct chain c;
	void *p;
	cr_assert(cudaStreamCreateWithFlags(&c.s, cudaStreamNonBlocking) == cudaSuccess);
	cr_assert(cudaMalloc(&p, FLOATS * sizeof(float)) == cudaSuccess);
	cr_assert(cudaMemset(p, 0, FLOATS * sizeof(float)) == cudaSuccess);
	c.x = (float *)p;
	return c;
}

#define LATE(c, kernel, ...)  cr_assert(KERN_LAUNCH(kernel, 1, THREADS, SMEM, (c).s, __VA_ARGS__) == 0)
#define FIRST(c, kernel, ...) cr_assert(KERN_LAUNCH_EARLY(kernel, 1, THREADS, SMEM, (c).s, __VA_ARGS__) == 0)

static void pair(bool mended, bool all)
{
	struct chain c = chain_new();
	LATE(c, produce_kernel, c.x);
	FIRST(c, consume_kernel, c.x, c.x + FLOATS / 4, mended, all);
	cr_assert(cudaStreamSynchronize(c.s) == cudaSuccess);
}

Test(dependent, an_activation_read_before_the_wait, .exit_code = CUDASIM_EXPECTED)
{
	cudasim_expect("before the wait for it");
	pair(false, true);
}

Test(dependent, weights_are_read_before_the_wait)
{
	pair(true, true);
}

Test(dependent, one_thread_waits_for_those_behind_its_barrier)
{
	pair(true, false);
}

static void two_warps(bool mended)
{
	struct chain c = chain_new();
	LATE(c, produce_kernel, c.x);
	FIRST(c, wait_for_others_kernel, c.x, mended);
	cr_assert(cudaStreamSynchronize(c.s) == cudaSuccess);
}

Test(dependent, a_wait_of_another_warp, .exit_code = CUDASIM_EXPECTED)
{
	cudasim_expect("before the wait for it");
	two_warps(false);
}

Test(dependent, both_warps_wait)
{
	two_warps(true);
}

static void store(bool mended)
{
	struct chain c = chain_new();
	LATE(c, produce_kernel, c.x);
	FIRST(c, write_early_kernel, c.x, mended);
	cr_assert(cudaStreamSynchronize(c.s) == cudaSuccess);
}

Test(dependent, a_store_before_the_wait, .exit_code = CUDASIM_EXPECTED)
{
	cudasim_expect("a store to");
	store(false);
}

Test(dependent, a_store_behind_the_wait)
{
	store(true);
}

/* The third launch waits for the second, which has not waited for the first. */
static void three(bool second_waits)
{
	struct chain c = chain_new();
	LATE(c, produce_kernel, c.x);
	FIRST(c, idle_kernel, c.x, second_waits);
	FIRST(c, read_kernel, c.x, c.x + FLOATS / 4);
	cr_assert(cudaStreamSynchronize(c.s) == cudaSuccess);
}

Test(dependent, a_launch_between_that_did_not_wait, .exit_code = CUDASIM_EXPECTED)
{
	cudasim_expect("did not wait for");
	three(false);
}

Test(dependent, a_launch_between_that_waited)
{
	three(true);
}

/* A copy, and a launch that is not early, come after all earlier work. */
Test(dependent, a_full_order_between)
{
	struct chain c = chain_new();
	LATE(c, produce_kernel, c.x);
	cr_assert(cudaMemsetAsync(c.x + FLOATS / 4, 0, 64, c.s) == cudaSuccess);
	FIRST(c, consume_kernel, c.x, c.x + FLOATS / 4, false, true);
	LATE(c, produce_kernel, c.x);
	LATE(c, consume_kernel, c.x, c.x + FLOATS / 4, false, true);
	cr_assert(cudaStreamSynchronize(c.s) == cudaSuccess);
}

/* A graph comes after all earlier work; its early launches wait for each other as in a stream. */
static void graph(bool mended)
{
	struct chain c = chain_new();
	cudaGraph_t g;
	cudaGraphExec_t e;
	cr_assert(cudaStreamBeginCapture(c.s, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
	FIRST(c, consume_kernel, c.x, c.x + FLOATS / 4, false, true);
	FIRST(c, consume_kernel, mended ? c.x : c.x + FLOATS / 4, c.x + FLOATS / 8, mended, true);
	cr_assert(cudaStreamEndCapture(c.s, &g) == cudaSuccess);
	cr_assert(cudaGraphInstantiateWithFlags(&e, g, 0) == cudaSuccess);
	LATE(c, produce_kernel, c.x);
	for (int i = 0; i < 3; i++)
		cr_assert(cudaGraphLaunch(e, c.s) == cudaSuccess);
	cr_assert(cudaStreamSynchronize(c.s) == cudaSuccess);
}

Test(dependent, an_activation_read_early_in_a_graph, .exit_code = CUDASIM_EXPECTED)
{
	cudasim_expect("before the wait for it");
	graph(false);
}

Test(dependent, weights_are_read_early_in_a_graph)
{
	graph(true);
}
