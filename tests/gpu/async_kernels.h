/* async_kernels.h - kernels that use kernels/cuda/ptx_async.cuh, for tests on an emulated or a real device.
 * Addresses are in device memory, aligned to 16.  Functions return 0 or -EIO. */
#ifndef QUERN_TESTS_GPU_ASYNC_KERNELS_H
#define QUERN_TESTS_GPU_ASYNC_KERNELS_H

#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Record what one thread observes at an mbarrier, step by step (ASYNC_SAYS bytes, each 0 or 1). */
enum { ASYNC_SAYS = 32 };
int async_mbar_says(struct kern_stream *s, uint8_t *out);

/* Compute sums[b][3 * 32].  One warp fills a ring of two stages by bulk loads with n_stages stages of
 * ASYNC_STAGE floats of in[b][...]; three warps consume it.  Consumer t adds up the floats t, t + 96, ... of
 * each stage. */
enum { ASYNC_STAGE = 384, ASYNC_CONSUMERS = 96 };
int async_ring(struct kern_stream *s, float *sums, const float *in, int n_blocks, int n_stages);

/* Compute out[i] = in[i] + 1 for n_rows rows of ASYNC_STAGE floats, in one block, by bulk stores from two
 * buffers. */
int async_store(struct kern_stream *s, float *out, const float *in, int n_rows);

/* Compute x[i] = x[i] * w[i] + 1, n_times; each launch may begin early, before the previous one is done. */
int async_chain(struct kern_stream *s, float *x, const float *w, int n, int n_times);
/* Run async_chain() as a graph, launched `replays` times. */
int async_chain_graph(struct kern_stream *s, float *x, const float *w, int n, int n_times, int replays);

#ifdef __cplusplus
}
#endif

#endif
