/* emulate_avx512.h - the AVX-512 intrinsics that vec_avx512.h and dot/avx512*.c use, in plain C, lane by lane
 * as Intel's manual defines them. (SIMDe in Debian 12 lacks nine of them and rounds vdpbf16ps differently.)
 * Include this file before the sources to emulate. */
#ifndef QUERN_TESTS_KERNELS_EMULATE_AVX512_H
#define QUERN_TESTS_KERNELS_EMULATE_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* No call between object files passes a 64-byte vector, so the ABI warning does not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define EM         static __attribute__((unused))
#define VFN        EM
#define EACH(i, n) for (int i = 0; i < (n); i++)

typedef union {
	__m512 f;
	__m512i i;
	__m256 f256[2];
	__m256i i256[2];
	float s[16];
	int32_t d[16];
	uint32_t u[16];
	uint16_t w[32];
	uint8_t b[64];
} em;

#define EM_FLOAT(name, expr)                                                                                 \
	EM __m512 em_##name(__m512 x, __m512 y)                                                              \
	{                                                                                                    \
		em a = {.f = x}, b = {.f = y};                                                               \
		EACH(l, 16) a.s[l] = expr;                                                                   \
		return a.f;                                                                                  \
	}
EM_FLOAT(add_ps, a.s[l] + b.s[l])
EM_FLOAT(sub_ps, a.s[l] - b.s[l])
EM_FLOAT(mul_ps, a.s[l] * b.s[l])
EM_FLOAT(div_ps, a.s[l] / b.s[l])
EM_FLOAT(max_ps, a.s[l] > b.s[l] ? a.s[l] : b.s[l])
EM_FLOAT(min_ps, a.s[l] < b.s[l] ? a.s[l] : b.s[l])

#define EM_INT(name, expr)                                                                                   \
	EM __m512i em_##name(__m512i x, __m512i y)                                                           \
	{                                                                                                    \
		em a = {.i = x}, b = {.i = y};                                                               \
		EACH(l, 16) a.u[l] = expr;                                                                   \
		return a.i;                                                                                  \
	}
EM_INT(add_epi32, a.u[l] + b.u[l])
EM_INT(mullo_epi32, a.u[l] * b.u[l])
EM_INT(and_si512, a.u[l] & b.u[l])

/* Interleave the lower or the upper halves of each 128-bit lane in units of n dwords. */
EM __m512i em_unpack(__m512i x, __m512i y, int high, int n)
{
	em a = {.i = x}, b = {.i = y}, c;
	EACH(l, 16)
	{
		const int from = l / 4 * 4 + (high ? 2 : 0) + l % 4 / (2 * n) * n + l % n;
		c.u[l] = l / n % 2 ? b.u[from] : a.u[from];
	}
	return c.i;
}
#define _mm512_unpacklo_epi32(a, b) em_unpack(a, b, 0, 1)
#define _mm512_unpackhi_epi32(a, b) em_unpack(a, b, 1, 1)
#define _mm512_unpacklo_epi64(a, b) em_unpack(a, b, 0, 2)
#define _mm512_unpackhi_epi64(a, b) em_unpack(a, b, 1, 2)

EM __m512i em_shuffle_i64x2(__m512i x, __m512i y, int imm)
{
	em a = {.i = x}, b = {.i = y}, c;
	EACH(l, 16) c.u[l] = (l < 8 ? a : b).u[(imm >> l / 4 * 2 & 3) * 4 + l % 4];
	return c.i;
}
#undef _mm512_shuffle_i64x2
#define _mm512_shuffle_i64x2 em_shuffle_i64x2

EM __m512i em_max_epu16(__m512i x, __m512i y)
{
	em a = {.i = x}, b = {.i = y};
	EACH(l, 32) a.w[l] = a.w[l] > b.w[l] ? a.w[l] : b.w[l];
	return a.i;
}

/* Return x minus the nearest integer. The kernels use no other mode. */
EM __m512 em_reduce_ps(__m512 x, int how)
{
	em a = {.f = x};
	EACH(l, 16) a.s[l] = how == 0 ? a.s[l] - nearbyintf(a.s[l]) : NAN;
	return a.f;
}

EM __m512 em_scalef_ps(__m512 x, __m512 y)
{
	em a = {.f = x}, b = {.f = y};
	EACH(l, 16) a.s[l] = b.s[l] == b.s[l] ? ldexpf(a.s[l], (int)floorf(b.s[l])) : b.s[l];
	return a.f;
}

EM __m512i em_sub_epi8(__m512i x, __m512i y)
{
	em a = {.i = x}, b = {.i = y};
	EACH(l, 64) a.b[l] = (uint8_t)(a.b[l] - b.b[l]);
	return a.i;
}

EM __m512i em_slli_epi32(__m512i x, unsigned n)
{
	em a = {.i = x};
	EACH(l, 16) a.u[l] <<= n;
	return a.i;
}

EM __m512i em_srai_epi32(__m512i x, unsigned n)
{
	em a = {.i = x};
	EACH(l, 16) a.d[l] >>= n;
	return a.i;
}

EM __m128i em_cvtepi32_epi8(__m512i x)
{
	em a = {.i = x};
	uint8_t out[16];
	__m128i v;
	EACH(l, 16) out[l] = (uint8_t)a.u[l];
	memcpy(&v, out, sizeof v);
	return v;
}

EM int em_reduce_add_epi32(__m512i x)
{
	em a = {.i = x};
	uint32_t sum = 0;
	EACH(l, 16) sum += a.u[l];
	return (int)sum;
}

EM __m512i em_srli_epi32(__m512i x, unsigned n)
{
	em a = {.i = x};
	EACH(l, 16) a.u[l] >>= n;
	return a.i;
}

EM __m512i em_srli_epi16(__m512i x, unsigned n)
{
	em a = {.i = x};
	EACH(l, 32) a.w[l] = (uint16_t)(a.w[l] >> n);
	return a.i;
}

EM __m512i em_ternarylogic_epi32(__m512i x, __m512i y, __m512i z, int table)
{
	em a = {.i = x}, b = {.i = y}, c = {.i = z}, out = {.i = x};
	EACH(l, 16)
	{
		out.u[l] = 0;
		EACH(bit, 32)
		{
			const uint32_t at =
				(a.u[l] >> bit & 1) << 2 | (b.u[l] >> bit & 1) << 1 | (c.u[l] >> bit & 1);
			out.u[l] |= ((uint32_t)table >> at & 1) << bit;
		}
	}
	return out.i;
}

EM __m512 em_fmadd_ps(__m512 x, __m512 y, __m512 z)
{
	em a = {.f = x}, b = {.f = y}, c = {.f = z};
	EACH(h, 2) a.f256[h] = _mm256_fmadd_ps(a.f256[h], b.f256[h], c.f256[h]);
	return a.f;
}

EM __m512 em_set1_ps(float v)
{
	em a;
	EACH(l, 16) a.s[l] = v;
	return a.f;
}

EM __m512i em_set1_epi32(int v)
{
	em a;
	EACH(l, 16) a.d[l] = v;
	return a.i;
}

EM __m512i em_set1_epi8(char v)
{
	em a;
	EACH(l, 64) a.b[l] = (uint8_t)v;
	return a.i;
}

EM __m512 em_loadu_ps(const void *p)
{
	em a;
	memcpy(&a, p, sizeof a);
	return a.f;
}

EM void em_storeu_ps(void *p, __m512 v)
{
	memcpy(p, &v, sizeof v);
}

EM __m512i em_loadu_si512(const void *p)
{
	em a;
	memcpy(&a, p, sizeof a);
	return a.i;
}

EM void em_storeu_si512(void *p, __m512i v)
{
	memcpy(p, &v, sizeof v);
}

EM __m512 em_maskz_loadu_ps(__mmask16 m, const void *p)
{
	em a = {.f = em_set1_ps(0)};
	EACH(l, 16) if (m >> l & 1) memcpy(&a.s[l], (const char *)p + l * 4, 4);
	return a.f;
}

EM void em_mask_storeu_ps(void *p, __mmask16 m, __m512 v)
{
	em a = {.f = v};
	EACH(l, 16) if (m >> l & 1) memcpy((char *)p + l * 4, &a.s[l], 4);
}

EM __m512 em_mask_mov_ps(__m512 other, __mmask16 m, __m512 v)
{
	em a = {.f = v}, b = {.f = other};
	EACH(l, 16) if (m >> l & 1) b.s[l] = a.s[l];
	return b.f;
}

EM __mmask16 em_cmp_ge(__m512 x, __m512 y)
{
	em a = {.f = x}, b = {.f = y};
	unsigned m = 0;
	EACH(l, 16) m |= (unsigned)(a.s[l] >= b.s[l]) << l;
	return (__mmask16)m;
}

EM __m512 em_cvtph_ps(__m256i v)
{
	em a;
	union {
		__m256i v;
		__m128i h[2];
	} in = {.v = v};
	EACH(h, 2) a.f256[h] = _mm256_cvtph_ps(in.h[h]);
	return a.f;
}

EM __m512i em_cvtepu16_epi32(__m256i v)
{
	em a;
	uint16_t in[16];
	memcpy(in, &v, sizeof in);
	EACH(l, 16) a.u[l] = in[l];
	return a.i;
}

EM __m512i em_cvtepi8_epi32(__m128i v)
{
	em a;
	int8_t in[16];
	memcpy(in, &v, sizeof in);
	EACH(l, 16) a.u[l] = (uint32_t)in[l];
	return a.i;
}

EM __m512i em_cvtepu8_epi32(__m128i v)
{
	em a;
	uint8_t in[16];
	memcpy(in, &v, sizeof in);
	EACH(l, 16) a.u[l] = in[l];
	return a.i;
}

EM __m512 em_cvtepi32_ps(__m512i v)
{
	em a = {.i = v};
	EACH(l, 16) a.s[l] = (float)a.d[l];
	return a.f;
}

EM __m512 em_castsi512_ps(__m512i v)
{
	return (em){.i = v}.f;
}

EM __m512i em_castps_si512(__m512 v)
{
	return (em){.f = v}.i;
}

EM __m256 em_half(__m512 v, int h)
{
	return (em){.f = v}.f256[h];
}

/* VPDPBUSD: add four products of unsigned and signed bytes to each lane without saturation. */
EM __m512i vpdpbusd512(__m512i acc, __m512i codes, __m512i x)
{
	em c = {.i = acc}, a = {.i = codes}, b = {.i = x};
	EACH(l, 16) EACH(j, 4) c.u[l] += (uint32_t)((int)a.b[4 * l + j] * (int8_t)b.b[4 * l + j]);
	return c.i;
}

#define _mm512_add_ps      em_add_ps
#define _mm512_sub_ps      em_sub_ps
#define _mm512_mul_ps      em_mul_ps
#define _mm512_div_ps      em_div_ps
#define _mm512_max_ps      em_max_ps
#define _mm512_min_ps      em_min_ps
#define _mm512_add_epi32   em_add_epi32
#define _mm512_max_epu16   em_max_epu16
#define _mm512_mullo_epi32 em_mullo_epi32
#define _mm512_and_si512   em_and_si512
#define _mm512_sub_epi8    em_sub_epi8
#undef _mm512_slli_epi32
#undef _mm512_srli_epi32
#undef _mm512_srai_epi32
#undef _mm512_srli_epi16
#undef _mm512_ternarylogic_epi32
#undef _mm512_cmp_ps_mask
#undef _mm512_extractf32x8_ps
#define _mm512_slli_epi32         em_slli_epi32
#define _mm512_srli_epi32         em_srli_epi32
#define _mm512_srai_epi32         em_srai_epi32
#define _mm512_cvtepi32_epi8      em_cvtepi32_epi8
#define _mm512_reduce_add_epi32   em_reduce_add_epi32
#define _mm512_srli_epi16         em_srli_epi16
#define _mm512_ternarylogic_epi32 em_ternarylogic_epi32
#define _mm512_fmadd_ps           em_fmadd_ps
#undef _mm512_reduce_ps
#define _mm512_reduce_ps em_reduce_ps
#undef _mm512_scalef_ps
#define _mm512_scalef_ps              em_scalef_ps
#define _mm512_setzero_ps()           em_set1_ps(0)
#define _mm512_setzero_si512()        em_set1_epi32(0)
#define _mm512_set1_ps                em_set1_ps
#define _mm512_set1_epi32             em_set1_epi32
#define _mm512_set1_epi8              em_set1_epi8
#define _mm512_loadu_ps               em_loadu_ps
#define _mm512_storeu_ps              em_storeu_ps
#define _mm512_loadu_si512            em_loadu_si512
#define _mm512_storeu_si512           em_storeu_si512
#define _mm512_maskz_loadu_ps         em_maskz_loadu_ps
#define _mm512_mask_storeu_ps         em_mask_storeu_ps
#define _mm512_mask_mov_ps            em_mask_mov_ps
#define _mm512_maskz_mov_ps(m, v)     em_mask_mov_ps(em_set1_ps(0), m, v)
#define _mm512_cmp_ps_mask(a, b, how) em_cmp_ge(a, b) /* the kernels use only _CMP_GE_OQ */
#define _mm512_cvtph_ps               em_cvtph_ps
#define _mm512_cvtepu16_epi32         em_cvtepu16_epi32
#define _mm512_cvtepu8_epi32          em_cvtepu8_epi32
#define _mm512_cvtepi8_epi32          em_cvtepi8_epi32
#define _mm512_cvtepi32_ps            em_cvtepi32_ps
#define _mm512_castsi512_ps           em_castsi512_ps
#define _mm512_castps_si512           em_castps_si512
#define _mm512_castps512_ps256(v)     em_half(v, 0)
#define _mm512_extractf32x8_ps        em_half
#define _mm512_cvtss_f32(v)           ((em){.f = (v)}.s[0])

#endif
