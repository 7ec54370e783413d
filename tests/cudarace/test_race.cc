/* The race detector: kernels with unordered accesses end the process, kernels with ordered accesses run.
 * Each fault is tested next to the same kernel without it. */
#include <criterion/criterion.h>
#include <signal.h>

#include "kernels/cuda/ptx_async.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "tests/cudasim/cudasim.h"

enum { FLOATS = 4096, THREADS = 128, BLOCKS = 4, SMEM = 4096 };

static float *device;

template <typename K> static void launch(K kernel, int blocks, bool mended)
{
	cudaStream_t s;
	void *p;
	cr_assert(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
	cr_assert(cudaMalloc(&p, FLOATS * sizeof(float)) == cudaSuccess);
	cr_assert(cudaMemset(p, 0, FLOATS * sizeof(float)) == cudaSuccess);
	device = (float *)p;
	cr_assert(KERN_LAUNCH(kernel, blocks, THREADS, SMEM, s, device, mended) == 0);
	cr_assert(cudaStreamSynchronize(s) == cudaSuccess);
}

/* Define two tests: the kernel with its fault, which ends the process, and without. */
#define FAULT(name, blocks)                                                                                  \
	Test(race, name, .signal = SIGABRT)                                                                  \
	{                                                                                                    \
		launch(name##_kernel, blocks, false);                                                        \
	}                                                                                                    \
	Test(race_mended, name)                                                                              \
	{                                                                                                    \
		launch(name##_kernel, blocks, true);                                                         \
	}

static float *shared_floats(void)
{
	return (float *)(void *)kern_smem();
}

/* ---- shared memory ---- */

static void a_read_before_the_barrier_kernel(float *out, bool mended)
{
	float *x = shared_floats();
	x[threadIdx.x] = 1;
	if (mended)
		block_sync();
	else
		warp_sync();
	out[blockIdx.x * THREADS + threadIdx.x] = x[THREADS - 1 - threadIdx.x];
}
FAULT(a_read_before_the_barrier, 1)

static void a_write_before_all_have_read_kernel(float *out, bool mended)
{
	float *x = shared_floats();
	x[threadIdx.x] = 1;
	block_sync();
	out[threadIdx.x] = x[(threadIdx.x + WARP) % THREADS];
	if (mended)
		block_sync();
	x[threadIdx.x] = 2;
}
FAULT(a_write_before_all_have_read, 1)

/* Lanes do not run in lockstep. */
static void a_shuffle_taken_for_a_sync_kernel(float *out, bool mended)
{
	float *x = shared_floats() + warp_id() * WARP;
	x[lane_id()] = 1;
	const float v = shfl_xor(1.0f, 1);
	if (mended)
		warp_sync();
	out[threadIdx.x] = x[lane_id() ^ 1] + v;
}
FAULT(a_shuffle_taken_for_a_sync, 1)

/* Warps 0 and 1 meet, which does not order warps 2 and 3. */
static void a_barrier_of_others_kernel(float *out, bool mended)
{
	float *x = shared_floats();
	x[threadIdx.x] = 1;
	if (warp_id() < 2)
		named_sync(1, 2 * WARP);
	else
		named_sync(2, 2 * WARP);
	const unsigned other = mended ? threadIdx.x ^ WARP : threadIdx.x ^ 2 * WARP;
	out[threadIdx.x] = x[other];
}
FAULT(a_barrier_of_others, 1)

/* Order is transitive: one warp is ordered before a second, which is ordered before a third. */
static void order_passed_on_kernel(float *out, bool mended)
{
	float *x = shared_floats();
	if (warp_id() == 0)
		x[lane_id()] = 1;
	if (warp_id() < 2)
		named_sync(1, 2 * WARP);
	if (mended ? warp_id() == 1 || warp_id() == 2 : warp_id() >= 2)
		named_sync(2, 2 * WARP);
	if (warp_id() == 2)
		out[lane_id()] = x[lane_id()];
}
FAULT(order_passed_on, 1)

/* ---- copies ---- */

static void a_copy_read_before_its_wait_kernel(float *out, bool mended)
{
	float *x = shared_floats();
	cp_async_16(x + threadIdx.x * 4, out + threadIdx.x * 4);
	cp_async_commit();
	if (mended)
		cp_async_wait<0>();
	out[threadIdx.x * 4] = x[threadIdx.x * 4];
	cp_async_wait<0>();
}
FAULT(a_copy_read_before_its_wait, 1)

/* The wait covers only the copying thread; other threads need a barrier after it. */
static void a_copy_read_by_another_kernel(float *out, bool mended)
{
	float *x = shared_floats();
	cp_async_16(x + threadIdx.x * 4, out + threadIdx.x * 4);
	cp_async_commit();
	cp_async_wait<0>();
	if (mended)
		block_sync();
	const float v = x[(threadIdx.x * 4 + THREADS) % (4 * THREADS)];
	if (v > 1)
		out[threadIdx.x * 4] = v;
}
FAULT(a_copy_read_by_another, 1)

static void a_copy_onto_what_is_read_kernel(float *out, bool mended)
{
	float *x = shared_floats();
	x[threadIdx.x] = 1;
	block_sync();
	const float v = x[(threadIdx.x + WARP) % THREADS];
	if (mended)
		block_sync();
	if (warp_id() == 0)
		cp_async_16(x + threadIdx.x * 4, out + threadIdx.x * 4);
	cp_async_commit();
	cp_async_wait<0>();
	if (v > 1)
		out[threadIdx.x] = v;
}
FAULT(a_copy_onto_what_is_read, 1)

/* ---- device memory ---- */

static void two_threads_at_one_address_kernel(float *out, bool mended)
{
	out[mended ? threadIdx.x : threadIdx.x / 2] = 1;
}
FAULT(two_threads_at_one_address, 1)

static void two_blocks_at_one_address_kernel(float *out, bool mended)
{
	out[mended ? blockIdx.x * THREADS + threadIdx.x : threadIdx.x] = 1;
}
FAULT(two_blocks_at_one_address, BLOCKS)

/* The last block to arrive adds the values that all blocks wrote. */
static void add_last(float *out, bool fence, bool sync)
{
	int *flag = (int *)(void *)kern_smem(), *count = (int *)(void *)(out + FLOATS - 4);
	out[blockIdx.x * THREADS + threadIdx.x] = 1;
	if (fence)
		fence_device();
	if (sync)
		block_sync();
	if (threadIdx.x == 0)
		*flag = atomic_add(count, 1) == BLOCKS - 1;
	block_sync();
	float sum = 0;
	if (*flag)
		for (int b = 0; b < BLOCKS; b++)
			sum += out[b * THREADS + threadIdx.x];
	if (*flag)
		out[BLOCKS * THREADS + threadIdx.x] = sum;
}

static void an_arrival_without_a_fence_kernel(float *out, bool mended)
{
	add_last(out, mended, true);
}
FAULT(an_arrival_without_a_fence, BLOCKS)

static void an_arrival_before_the_others_have_written_kernel(float *out, bool mended)
{
	add_last(out, true, mended);
}
FAULT(an_arrival_before_the_others_have_written, BLOCKS)

/* Different counters give no order. */
static void an_arrival_at_another_counter_kernel(float *out, bool mended)
{
	int *counts = (int *)(void *)(out + FLOATS - 64);
	out[blockIdx.x * THREADS + threadIdx.x] = 1;
	fence_device();
	block_sync();
	int *flag = (int *)(void *)kern_smem();
	if (threadIdx.x == 0) {
		int n = atomic_add(&counts[mended ? 0 : blockIdx.x], 1);
		*flag = mended ? n == BLOCKS - 1 : blockIdx.x == BLOCKS - 1;
	}
	block_sync();
	for (int b = 0; *flag && b < BLOCKS; b++)
		if (out[b * THREADS + threadIdx.x] > 2)
			out[FLOATS / 2 + threadIdx.x] = 1;
}
FAULT(an_arrival_at_another_counter, BLOCKS)

static void a_plain_store_beside_atomics_kernel(float *out, bool mended)
{
	uint32_t *n = (uint32_t *)(void *)out;
	if (mended || threadIdx.x)
		atomic_add(n, 1u);
	else
		*n = 1;
}
FAULT(a_plain_store_beside_atomics, 1)

/* ---- mapped memory ---- */

/* The detector watches device addresses of mapped memory like all device memory, but not host addresses. */
static float *mapped, *mapped_dev;

static void map_floats(void)
{
	void *p, *dev;
	cr_assert(cudaHostAlloc(&p, FLOATS * sizeof(float), cudaHostAllocMapped) == cudaSuccess);
	cr_assert(cudaHostGetDevicePointer(&dev, p, 0) == cudaSuccess);
	mapped = (float *)p;
	mapped_dev = (float *)dev;
}

static void two_blocks_at_one_mapped_address_kernel(float *, bool mended)
{
	mapped_dev[mended ? blockIdx.x * THREADS + threadIdx.x : threadIdx.x] = 1;
}

static void a_host_address_of_mapped_memory_kernel(float *, bool mended)
{
	(mended ? mapped_dev : mapped)[threadIdx.x] = 1;
}

#define MAPPED_FAULT(name, blocks)                                                                           \
	Test(race, name, .init = map_floats, .signal = SIGABRT)                                              \
	{                                                                                                    \
		launch(name##_kernel, blocks, false);                                                        \
	}                                                                                                    \
	Test(race_mended, name, .init = map_floats)                                                          \
	{                                                                                                    \
		launch(name##_kernel, blocks, true);                                                         \
	}
MAPPED_FAULT(two_blocks_at_one_mapped_address, 2)
MAPPED_FAULT(a_host_address_of_mapped_memory, 1)

/* ---- alignment ---- */

static void a_pointer_that_is_not_aligned_kernel(float *out, bool mended)
{
	uint64_t *x = (uint64_t *)(void *)(out + (mended ? 2 : 1));
	x[threadIdx.x] = 1;
}
FAULT(a_pointer_that_is_not_aligned, 1)

/* ---- operands that tensor cores read ---- */

enum { AFTER_THE_WAIT, BEFORE_IT, WITHOUT_A_BARRIER, WITHOUT_A_BARRIER_BEFORE, WITHOUT_A_PROXY_FENCE };

/* Store the values that are there already, so that only the detector can find the fault. */
static void tensor_reads(float *out, int when)
{
	uint32_t *x = (uint32_t *)(void *)kern_smem();
	float d[4];
	uint32_t a[4] = {1, 2, 3, 4};
	for (int i = (int)threadIdx.x; i < 64; i += THREADS)
		x[i] = 0x3c003c00;
	if (when != WITHOUT_A_PROXY_FENCE)
		fence_proxy_async_shared();
	if (when != WITHOUT_A_BARRIER_BEFORE)
		block_sync();
	wgmma_fence();
	wgmma_rs<false, 8>(d, a, wgmma_desc(x, 128, 128, WGMMA_PLAIN), false);
	wgmma_commit();
	if (when == BEFORE_IT && threadIdx.x == 0)
		x[7] = 0x3c003c00;
	wgmma_wait<0>();
	if (when == AFTER_THE_WAIT)
		block_sync();
	if (threadIdx.x == 0)
		x[7] = 0x3c003c00;
	out[threadIdx.x] = d[0];
}

static void a_store_before_the_product_is_done_kernel(float *out, bool mended)
{
	tensor_reads(out, mended ? AFTER_THE_WAIT : BEFORE_IT);
}
FAULT(a_store_before_the_product_is_done, 1)

/* A wait covers only its warp: other warps may be later. */
static void a_store_while_other_warps_wait_kernel(float *out, bool mended)
{
	tensor_reads(out, mended ? AFTER_THE_WAIT : WITHOUT_A_BARRIER);
}
FAULT(a_store_while_other_warps_wait, 1)

static void a_product_of_what_others_store_kernel(float *out, bool mended)
{
	tensor_reads(out, mended ? AFTER_THE_WAIT : WITHOUT_A_BARRIER_BEFORE);
}
FAULT(a_product_of_what_others_store, 1)

static void a_product_without_a_proxy_fence_kernel(float *out, bool mended)
{
	tensor_reads(out, mended ? AFTER_THE_WAIT : WITHOUT_A_PROXY_FENCE);
}
FAULT(a_product_without_a_proxy_fence, 1)
