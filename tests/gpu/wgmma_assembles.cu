/* Never run: checks that ptxas accepts kernels/cuda/wgmma.cuh for every size and type, with operands in
 * registers and in shared memory, along k and along rows. */
#include "kernels/cuda/wgmma.cuh"

template <bool BF16, int N> static __device__ void sizes(float *out, uint64_t a, uint64_t b)
{
	float d[N / 2];
	uint32_t r[4] = {(uint32_t)a, (uint32_t)b, (uint32_t)(a >> 32), (uint32_t)(b >> 32)};
	for (int i = 0; i < N / 2; i++)
		d[i] = out[i];
	wgmma_fence();
	wgmma_ss<BF16, N, true, true, -1, -1>(d, a, b, true);
	wgmma_rs<BF16, N, false, 1, -1>(d, r, b, true);
	wgmma_commit();
	wgmma_wait<0>();
	for (int i = 0; i < N / 2; i++)
		out[i] = d[i];
	if constexpr (N < 256)
		sizes<BF16, N + 8>(out + N, a, b);
}

template <bool BF16> __global__ void __launch_bounds__(128) wgmma_kernel(float *out, int leading, int stride)
{
	const uint64_t a = wgmma_desc(kern_smem(), leading, stride, WGMMA_SWIZZLE_128);
	const uint64_t b = wgmma_desc(kern_smem() + 1024, leading, stride, WGMMA_PLAIN, 1);
	sizes<BF16, 8>(out + threadIdx.x * 8192, a, b);
}

template __global__ void wgmma_kernel<false>(float *, int, int);
template __global__ void wgmma_kernel<true>(float *, int, int);
