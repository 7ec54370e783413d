/* async_kernels.cu - see async_kernels.h. */
#include "tests/gpu/async_kernels.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/ptx_async.cuh"

/* The file is also compiled for older devices, which do not have these instructions. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define ON_HOPPER 1
#else
#define ON_HOPPER 0
#endif

enum { STAGE_BYTES = ASYNC_STAGE * 4, RING = 2 };

static __global__ void mbar_says_kernel(uint8_t *out)
{
#if ON_HOPPER
	uint64_t *bar = (uint64_t *)(void *)kern_smem();
	int n = 0;
	if (threadIdx.x)
		return;
	mbar_init(bar, 3);
	out[n++] = mbar_test_wait_parity(bar, 1); /* 1: the phase before the first phase */
	out[n++] = mbar_test_wait_parity(bar, 0); /* 0 */
	const uint64_t first = mbar_arrive(bar);
	out[n++] = mbar_test_wait(bar, first); /* 0 */
	mbar_arrive(bar, 2);
	out[n++] = mbar_test_wait(bar, first);    /* 1 */
	out[n++] = mbar_test_wait_parity(bar, 0); /* 1 */
	out[n++] = mbar_test_wait_parity(bar, 1); /* 0: the second phase is in flight */

	/* expected bytes keep a phase open, even when all arrivals are there */
	const uint64_t second = mbar_arrive_expect_tx(bar, 48);
	mbar_arrive(bar, 2);
	out[n++] = mbar_test_wait(bar, second); /* 0 */
	mbar_complete_tx(bar, 32);
	out[n++] = mbar_try_wait_parity(bar, 1); /* 0 */
	mbar_complete_tx(bar, 16);
	out[n++] = mbar_try_wait(bar, second);    /* 1 */
	out[n++] = mbar_test_wait_parity(bar, 1); /* 1 */
	out[n++] = mbar_test_wait_parity(bar, 0); /* 0 */

	/* pending arrivals keep it open too, even if the bytes landed before they were expected */
	mbar_complete_tx(bar, 64);
	mbar_expect_tx(bar, 64);
	out[n++] = mbar_test_wait_parity(bar, 0); /* 0 */
	mbar_arrive(bar, 3);
	out[n++] = mbar_test_wait_parity(bar, 0); /* 1 */
	mbar_inval(bar);
	mbar_init(bar, 1);
	out[n++] = mbar_test_wait_parity(bar, 0); /* 0: a new start */
	mbar_inval(bar);
#else
	(void)out;
#endif
}

static __global__ void ring_kernel(float *sums, const float *in, int n_stages)
{
#if ON_HOPPER
	uint64_t *full = (uint64_t *)(void *)kern_smem(), *empty = full + RING;
	float *ring = (float *)(void *)(kern_smem() + 128);
	in += (size_t)blockIdx.x * n_stages * ASYNC_STAGE;
	if (threadIdx.x == 0) {
		for (int i = 0; i < RING; i++) {
			mbar_init(&full[i], 1);
			mbar_init(&empty[i], ASYNC_CONSUMERS / WARP);
		}
		fence_proxy_async_shared();
	}
	block_sync();
	if (threadIdx.x == ASYNC_CONSUMERS) {
		const uint64_t policy = l2_evict_first();
		for (int i = 0; i < n_stages; i++) {
			const int at = i % RING;
			const float *from = in + (size_t)i * ASYNC_STAGE;
			if (i + 1 < n_stages)
				bulk_prefetch_l2(from + ASYNC_STAGE, STAGE_BYTES);
			mbar_wait_parity(&empty[at], (uint32_t)(i / RING + 1) & 1);
			mbar_arrive_expect_tx(&full[at], STAGE_BYTES);
			bulk_load(ring + at * ASYNC_STAGE, from, STAGE_BYTES / 2, &full[at]);
			bulk_load_hint(ring + at * ASYNC_STAGE + ASYNC_STAGE / 2, from + ASYNC_STAGE / 2,
				       STAGE_BYTES / 2, &full[at], policy);
		}
	} else if (threadIdx.x < ASYNC_CONSUMERS) {
		float sum = 0;
		for (int i = 0; i < n_stages; i++) {
			const int at = i % RING;
			mbar_wait_parity(&full[at], (uint32_t)(i / RING) & 1);
			for (int k = (int)threadIdx.x; k < ASYNC_STAGE; k += ASYNC_CONSUMERS)
				sum += ring[at * ASYNC_STAGE + k];
			warp_sync();
			if (lane_id() == 0)
				mbar_arrive(&empty[at]);
		}
		sums[blockIdx.x * ASYNC_CONSUMERS + threadIdx.x] = sum;
	}
#else
	(void)sums, (void)in, (void)n_stages;
#endif
}

static __global__ void store_kernel(float *out, const float *in, int n_rows)
{
#if ON_HOPPER
	float *rows = (float *)(void *)kern_smem();
	const uint64_t policy = l2_evict_first();
	for (int i = 0; i < n_rows; i++) {
		float *row = rows + i % RING * ASYNC_STAGE;
		if (threadIdx.x == 0)
			bulk_wait_read<RING - 1>(); /* the row before the previous row has left this buffer */
		block_sync();
		for (int k = (int)threadIdx.x; k < ASYNC_STAGE; k += (int)blockDim.x)
			row[k] = in[i * ASYNC_STAGE + k] + 1;
		fence_proxy_async_shared();
		block_sync();
		if (threadIdx.x == 0) {
			if (i % 2)
				bulk_store(out + i * ASYNC_STAGE, row, STAGE_BYTES);
			else
				bulk_store_hint(out + i * ASYNC_STAGE, row, STAGE_BYTES, policy);
			bulk_commit();
		}
	}
	if (threadIdx.x == 0) {
		bulk_wait<0>();
		fence_proxy_async_global();
		fence_proxy_async();
		out[0] += 1; /* the stored values are visible */
	}
#else
	(void)out, (void)in, (void)n_rows;
#endif
}

static __global__ void scale_kernel(float *x, const float *w, int n)
{
#if ON_HOPPER
	const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	const float factor = i < n ? w[i] : 0; /* a weight: no launch writes it */
	grid_launch_dependents();
	grid_dependency_wait();
	if (i < n)
		x[i] = x[i] * factor + 1;
#else
	(void)x, (void)w, (void)n;
#endif
}

int async_chain(struct kern_stream *s, float *x, const float *w, int n, int n_times)
{
	const int threads = 4 * WARP;
	for (int i = 0; i < n_times; i++)
		if (KERN_LAUNCH_EARLY(scale_kernel, (n + threads - 1) / threads, threads, 0, s->s, x, w, n))
			return -EIO;
	return 0;
}

int async_chain_graph(struct kern_stream *s, float *x, const float *w, int n, int n_times, int replays)
{
	cudaGraph_t g = nullptr;
	cudaGraphExec_t e = nullptr;
	if (cudaStreamBeginCapture(s->s, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
		return -EIO;
	int rc = async_chain(s, x, w, n, n_times);
	if (cudaStreamEndCapture(s->s, &g) != cudaSuccess || !g ||
	    cudaGraphInstantiateWithFlags(&e, g, 0) != cudaSuccess)
		return -EIO;
	for (int i = 0; i < replays && !rc; i++)
		rc = cudaGraphLaunch(e, s->s) == cudaSuccess ? 0 : -EIO;
	if (cudaStreamSynchronize(s->s) != cudaSuccess)
		rc = -EIO;
	cudaGraphExecDestroy(e);
	cudaGraphDestroy(g);
	return rc;
}

int async_mbar_says(struct kern_stream *s, uint8_t *out)
{
	return KERN_LAUNCH(mbar_says_kernel, 1, WARP, 128, s->s, out);
}

int async_ring(struct kern_stream *s, float *sums, const float *in, int n_blocks, int n_stages)
{
	return KERN_LAUNCH(ring_kernel, n_blocks, ASYNC_CONSUMERS + WARP, 128 + RING * STAGE_BYTES, s->s,
			   sums, in, n_stages);
}

int async_store(struct kern_stream *s, float *out, const float *in, int n_rows)
{
	return KERN_LAUNCH(store_kernel, 1, 4 * WARP, RING * STAGE_BYTES, s->s, out, in, n_rows);
}
