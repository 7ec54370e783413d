/* vec_plain.h - sixteen float lanes in C with the compiler's own vectors, for any machine.
 * See vec_avx512.h.  Without fused multiply-add instructions it is slow, but gives the same bits. */
#ifndef QUERN_KERNELS_CPU_VEC_PLAIN_H
#define QUERN_KERNELS_CPU_VEC_PLAIN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/half.h"

/* All functions here are inlined: no call passes a vector, so the calling convention does not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define VFN      static inline __attribute__((always_inline))
#define LANES(i) for (int i = 0; i < 16; i++)

typedef float vf __attribute__((vector_size(64)));
typedef uint32_t vq __attribute__((vector_size(64)));
typedef int32_t vmask __attribute__((vector_size(64)));

VFN vf v_set1(float a)
{
	return (vf){a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a};
}

VFN vf v_zero(void)
{
	return v_set1(0);
}

VFN vf v_load(const float *p)
{
	vf r;
	memcpy(&r, p, sizeof r);
	return r;
}

VFN void v_store(float *p, vf a)
{
	memcpy(p, &a, sizeof a);
}

VFN vf v_load_n(const float *p, int n)
{
	vf r = v_zero();
	memcpy(&r, p, (size_t)n * 4);
	return r;
}

VFN void v_store_n(float *p, vf a, int n)
{
	memcpy(p, &a, (size_t)n * 4);
}

VFN vf v_load_f16(const uint16_t *p)
{
	vf r;
	LANES(i) r[i] = half_from_f16(p[i]);
	return r;
}

VFN vf v_load_bf16(const uint16_t *p)
{
	vf r;
	LANES(i) r[i] = half_from_bf16(p[i]);
	return r;
}

VFN vf v_even_bf16(const uint16_t *p)
{
	vf r;
	LANES(i) r[i] = half_from_bf16(p[2 * i]);
	return r;
}

VFN vf v_odd_bf16(const uint16_t *p)
{
	vf r;
	LANES(i) r[i] = half_from_bf16(p[2 * i + 1]);
	return r;
}

VFN vf v_load_u8(const uint8_t *p)
{
	vf r;
	LANES(i) r[i] = p[i];
	return r;
}

VFN vf v_load_e4m3(const uint8_t *p)
{
	vf r;
	LANES(i)
	{
		const int size = (p[i] & 0x7f) << 7, nan = size == 0x3f80 ? 0x7c00 : 0;
		r[i] = half_from_f16((uint16_t)((p[i] & 0x80) << 8 | size | nan)) * 256;
	}
	return r;
}

VFN void v_lookup(uint8_t *p, const uint8_t table[16])
{
	LANES(i) p[i] = table[p[i] & 15];
}

/* 16 signed bytes */
VFN vf v_load_i8(const unsigned char *p)
{
	vf r;
	LANES(i) r[i] = (signed char)p[i];
	return r;
}

VFN vf v_fma(vf a, vf b, vf c)
{
	LANES(i) c[i] = fmaf(a[i], b[i], c[i]);
	return c;
}

VFN vf v_add(vf a, vf b)
{
	return a + b;
}

VFN vf v_sub(vf a, vf b)
{
	return a - b;
}

VFN vf v_mul(vf a, vf b)
{
	return a * b;
}

VFN vf v_div(vf a, vf b)
{
	return a / b;
}

/* a where the mask is all ones, b where it is 0 */
VFN vf v_choose(vmask m, vf a, vf b)
{
	return (vf)((m & (vmask)a) | (~m & (vmask)b));
}

VFN vf v_max(vf a, vf b)
{
	return v_choose(a > b, a, b);
}

VFN vf v_min(vf a, vf b)
{
	return v_choose(a < b, a, b);
}

VFN vf v_keep_ge(vf a, vf x, vf limit)
{
	return (vf)((x >= limit) & (vmask)a);
}

VFN vf v_keep_range(vf a, int from, int to, vf other)
{
	const vmask i = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	return v_choose((i >= from) & (i < to), a, other);
}

VFN vf v_keep_bits(vf a, uint32_t bits, vf other)
{
	const vmask i = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	return v_choose((((vmask){0} + (int32_t)bits) >> i & 1) != 0, a, other);
}

VFN vf v_scale2(vf p, vf t)
{
	return (vf)((vq)p + ((vq)t << 23));
}

VFN vf v_rest(vf x)
{
	const vf round = v_set1(0x1.8p23f);
	return x - ((x + round) - round);
}

VFN vf v_scale_by(vf p, vf n)
{
	vq by;
	LANES(i) by[i] = n[i] == n[i] ? (uint32_t)(int32_t)n[i] << 23 : 0;
	return (vf)((vq)p + by);
}

VFN vf v_round_bf16(vf a)
{
	return (vf)(((vq)a + 0x8000) & 0xffff0000);
}

VFN float v_hsum(vf a)
{
	for (int half = 8; half; half /= 2)
		for (int i = 0; i < half; i++)
			a[i] += a[i + half];
	return a[0];
}

VFN float v_hmax(vf a)
{
	for (int half = 8; half; half /= 2)
		for (int i = 0; i < half; i++)
			a[i] = a[i] > a[i + half] ? a[i] : a[i + half];
	return a[0];
}

VFN float v_lane0(vf a)
{
	return a[0];
}

VFN vq vq_load(const void *p)
{
	vq r;
	memcpy(&r, p, sizeof r);
	return r;
}

VFN vq vq_shr8(vq a)
{
	return a >> 8;
}

VFN vq vq_shr4(vq a)
{
	return a >> 4;
}

VFN vq vq_set1(uint32_t a)
{
	return (vq){a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a};
}

VFN vf vq_nibble(vq q, vq mask, vq magic)
{
	return (vf)((q & mask) | magic);
}

VFN void v_prefetch(const void *p)
{
	(void)p;
}

/* Prefetch to the second-level cache. */
VFN void v_prefetch_far(const void *p)
{
	(void)p;
}

#endif
