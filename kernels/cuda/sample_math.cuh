/* sample_math.cuh - the sampler's arithmetic, the same as the CPU's to the bit: its exp and log
 * (kernels/cpu/inner.h, sample.c: polynomials, every operation rounded once, nothing contracted)
 * and Philox4x32-10 with the CPU's key and counter. */
#ifndef QUERN_KERNELS_CUDA_SAMPLE_MATH_CUH
#define QUERN_KERNELS_CUDA_SAMPLE_MATH_CUH

#include "kernels/cuda/ptx.cuh"

/* e^x for x <= 0; 0 below -87 and for NaN. */
KERN_DEV float sample_exp(float x)
{
	const float round = 0x1.8p23f;
	const float t = f32_fma_rn(x, 0x1.715476p+0f, round), n = f32_add_rn(t, -round);
	float r = f32_fma_rn(n, -0x1.62e4p-1f, x);
	r = f32_fma_rn(n, -0x1.7f7d1cp-20f, r);
	float p = 0.001381422160193324f;
	p = f32_fma_rn(p, r, 0.00836889911442995f);
	p = f32_fma_rn(p, r, 0.04166840389370918f);
	p = f32_fma_rn(p, r, 0.1666651964187622f);
	p = f32_fma_rn(p, r, 0.4999999403953552f);
	p = f32_fma_rn(f32_mul_rn(r, r), p, r);
	p = f32_add_rn(p, 1.0f);
	return x >= -87.0f ? f32_from_bits((int)((uint32_t)f32_bits(p) + ((uint32_t)f32_bits(t) << 23)))
			   : 0.0f;
}

/* log x for normal x > 0. */
KERN_DEV float sample_log(float x)
{
	const float c[9] = {0.3333331346511841f,  -0.25000008940696716f, 0.2000211924314499f,
			    -0.1666799634695053f, 0.14219552278518677f,  -0.1240558847784996f,
			    0.11888165026903152f, -0.11675656586885452f, 0.06746640056371689f};
	uint32_t u = (uint32_t)f32_bits(x);
	const int32_t e = (int32_t)(u - 0x3f3504f3) >> 23;
	u -= (uint32_t)e << 23;
	const float f = f32_add_rn(f32_from_bits((int)u), -1.0f), n = (float)e;
	float q = c[8];
#pragma unroll
	for (int i = 7; i >= 0; i--)
		q = f32_fma_rn(q, f, c[i]);
	const float ff = f32_mul_rn(f, f);
	float r = f32_fma_rn(f32_mul_rn(ff, f), q, f32_mul_rn(ff, -0.5f));
	r = f32_fma_rn(n, 0x1.7f7d1cp-20f, r);
	return f32_fma_rn(n, 0x1.62e4p-1f, f32_add_rn(r, f));
}

/* Uniform in [0, 1) with 53 bits. */
KERN_DEV double sample_uniform(uint64_t seed, uint32_t index, uint32_t position)
{
	uint32_t c0 = index, c1 = position, c2 = 0, c3 = 0, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	for (int round = 0; round < 10; round++) {
		const uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)a;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return (double)(((uint64_t)c0 << 32 | c1) >> 11) * 0x1p-53;
}

#endif
