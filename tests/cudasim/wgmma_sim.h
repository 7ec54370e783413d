/* wgmma_sim.h - host implementation of kernels/cuda/wgmma.cuh, with the same names and meaning. */
#ifndef QUERN_TESTS_CUDASIM_WGMMA_SIM_H
#define QUERN_TESTS_CUDASIM_WGMMA_SIM_H

#include "kernels/cuda/ptx.cuh"

/* A lane's arguments.  The lanes of a warpgroup agree in all but their registers. */
struct cudasim_product {
	float *d;    /* [n / 2] */
	uint32_t *a; /* [4]; NULL: desc_a is used */
	uint64_t desc_a, desc_b;
	int n, a_sign, b_sign;
	bool bf16, a_trans, b_trans, add;
};

uint64_t cudasim_wgmma_desc(const void *smem, int leading, int stride, int swizzle, int base_offset);
void cudasim_wgmma(const struct cudasim_product *w);
void cudasim_wgmma_fence(void);
void cudasim_wgmma_commit(void);
void cudasim_wgmma_wait(int n);

KERN_DEV uint64_t wgmma_desc(const void *smem, int leading, int stride, int swizzle, int base_offset = 0)
{
	return cudasim_wgmma_desc(smem, leading, stride, swizzle, base_offset);
}

KERN_DEV void wgmma_fence(void)
{
	cudasim_wgmma_fence();
}

KERN_DEV void wgmma_commit(void)
{
	cudasim_wgmma_commit();
}

template <int N> KERN_DEV void wgmma_wait(void)
{
	static_assert(N >= 0 && N <= 7, "");
	cudasim_wgmma_wait(N);
}

template <bool BF16, int N, bool A_TRANS = false, bool B_TRANS = false, int A_SIGN = 1, int B_SIGN = 1>
KERN_DEV void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, bool add)
{
	static_assert(N % 8 == 0 && N >= 8 && N <= 256, "");
	const struct cudasim_product w = {d, nullptr, a, b, N, A_SIGN, B_SIGN, BF16, A_TRANS, B_TRANS, add};
	cudasim_wgmma(&w);
}

template <bool BF16, int N, bool B_TRANS = false, int A_SIGN = 1, int B_SIGN = 1>
KERN_DEV void wgmma_rs(float (&d)[N / 2], uint32_t (&a)[4], uint64_t b, bool add)
{
	static_assert(N % 8 == 0 && N >= 8 && N <= 256, "");
	const struct cudasim_product w = {d, a, 0, b, N, A_SIGN, B_SIGN, BF16, false, B_TRANS, add};
	cudasim_wgmma(&w);
}

#endif
