/* sample_math.cuh - the sampler's arithmetic, bit for bit the same as the CPU's: its exp and log
 * (kernels/cpu/inner.h, sample.c: polynomials, each operation rounded once, nothing contracted),
 * Philox4x32-10 with the CPU's key and counter, and the integers of a draw (kernels/cpu/draw.h). */
#ifndef QUERN_KERNELS_CUDA_SAMPLE_MATH_CUH
#define QUERN_KERNELS_CUDA_SAMPLE_MATH_CUH

#include "kernels/cuda/ptx.cuh"

/* Return e^x for x <= 0; 0 below -87 and for NaN. */
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

/* Return log x for normal x > 0. */
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

/* Return 64 uniform bits for the draw; *more gets 64 further bits, for an additional decision. */
KERN_DEV uint64_t sample_bits(uint64_t seed, uint32_t index, uint32_t position, uint64_t *more)
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
	*more = (uint64_t)c2 << 32 | c3;
	return (uint64_t)c0 << 32 | c1;
}

/* The smallest p with a weight above 0. */
static const float p_min = 0x1p-40f;

/* Return p in units of 2^-40, rounded down; p is at most 1. */
KERN_DEV uint64_t weight_of(float p)
{
	const uint32_t u = (uint32_t)f32_bits(p), by = 127 - (u >> 23);
	return (uint64_t)((u & 0x7fffff) | 0x800000) << 17 >> (by < 63 ? by : 63);
}

/* Return all * bits / 2^64, rounded down. */
KERN_DEV uint64_t target_of(uint64_t bits, uint64_t all)
{
	const uint64_t b0 = (uint32_t)bits, b1 = bits >> 32, a0 = (uint32_t)all, a1 = all >> 32;
	const uint64_t low = b0 * a1, high = b1 * a0;
	const uint64_t middle = (b0 * a0 >> 32) + (uint32_t)low + (uint32_t)high;
	return b1 * a1 + (low >> 32) + (high >> 32) + (middle >> 32);
}

#endif
