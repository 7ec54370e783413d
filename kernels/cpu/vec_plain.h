/* vec_plain.h - sixteen float lanes in plain C.  See vec_avx512.h.
 * Slow where the machine has no fused multiply-add, and still the same bits. */
#ifndef QUERN_KERNELS_CPU_VEC_PLAIN_H
#define QUERN_KERNELS_CPU_VEC_PLAIN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/half.h"

#define VFN static inline __attribute__((always_inline))
#define LANES(i) for (int i = 0; i < 16; i++)

typedef struct {
	float v[16];
} vf;

typedef struct {
	uint32_t v[16];
} vq;

VFN vf v_set1(float a)
{
	vf r;
	LANES(i) r.v[i] = a;
	return r;
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
	LANES(i) r.v[i] = half_from_f16(p[i]);
	return r;
}

VFN vf v_load_bf16(const uint16_t *p)
{
	vf r;
	LANES(i) r.v[i] = half_from_bf16(p[i]);
	return r;
}

VFN vf v_load_u8(const uint8_t *p)
{
	vf r;
	LANES(i) r.v[i] = p[i];
	return r;
}

VFN vf v_fma(vf a, vf b, vf c)
{
	vf r;
	LANES(i) r.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
	return r;
}

VFN vf v_add(vf a, vf b)
{
	LANES(i) a.v[i] += b.v[i];
	return a;
}

VFN vf v_sub(vf a, vf b)
{
	LANES(i) a.v[i] -= b.v[i];
	return a;
}

VFN vf v_mul(vf a, vf b)
{
	LANES(i) a.v[i] *= b.v[i];
	return a;
}

VFN vf v_div(vf a, vf b)
{
	LANES(i) a.v[i] /= b.v[i];
	return a;
}

VFN vf v_max(vf a, vf b)
{
	LANES(i) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
	return a;
}

VFN vf v_min(vf a, vf b)
{
	LANES(i) a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
	return a;
}

VFN vf v_keep_ge(vf a, vf x, vf limit)
{
	LANES(i) a.v[i] = x.v[i] >= limit.v[i] ? a.v[i] : 0;
	return a;
}

VFN vf v_keep_range(vf a, int from, int to, vf other)
{
	LANES(i) a.v[i] = i >= from && i < to ? a.v[i] : other.v[i];
	return a;
}

VFN vf v_scale2(vf p, vf t)
{
	uint32_t a[16], b[16];
	memcpy(a, &p, sizeof a);
	memcpy(b, &t, sizeof b);
	LANES(i) a[i] += b[i] << 23;
	memcpy(&p, a, sizeof a);
	return p;
}

VFN float v_hsum(vf a)
{
	for (int half = 8; half; half /= 2)
		for (int i = 0; i < half; i++)
			a.v[i] += a.v[i + half];
	return a.v[0];
}

VFN float v_hmax(vf a)
{
	for (int half = 8; half; half /= 2)
		for (int i = 0; i < half; i++)
			a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
	return a.v[0];
}

VFN float v_lane0(vf a)
{
	return a.v[0];
}

VFN vq vq_load(const void *p)
{
	vq r;
	memcpy(&r, p, sizeof r);
	return r;
}

VFN vq vq_shl8(vq a)
{
	LANES(i) a.v[i] <<= 8;
	return a;
}

VFN vq vq_shr12(vq a)
{
	LANES(i) a.v[i] >>= 12;
	return a;
}

VFN vq vq_set1(uint32_t a)
{
	vq r;
	LANES(i) r.v[i] = a;
	return r;
}

VFN vf vq_nibble(vq q, vq mask, vq magic)
{
	vf r;
	LANES(i) q.v[i] = (q.v[i] & mask.v[i]) | magic.v[i];
	memcpy(&r, &q, sizeof r);
	return r;
}

VFN void v_prefetch(const void *p)
{
	(void)p;
}

#endif
