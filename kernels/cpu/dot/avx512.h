/* avx512.h - shared by the kernels for AVX-512 VNNI and for AMX.
 * See dots.h.  Tests compile them with DOT_EMULATED and provide the instructions as functions. */
#ifndef QUERN_KERNELS_CPU_DOT_AVX512_H
#define QUERN_KERNELS_CPU_DOT_AVX512_H

#include <string.h>

#include "kernels/cpu/vec_avx512.h"

typedef __m512i qv;
typedef __m512i qa;
typedef __m512i qx;
typedef __m512i qh;

VFN qv qv_load(const unsigned char *p)
{
	return _mm512_loadu_si512(p);
}

VFN void qv_store(unsigned char *p, qv q)
{
	_mm512_storeu_si512(p, q);
}

VFN qv qv_low(qv q)
{
	return _mm512_and_si512(q, _mm512_set1_epi8(15));
}

VFN qv qv_high(qv q)
{
	return _mm512_and_si512(_mm512_srli_epi16(q, 4), _mm512_set1_epi8(15));
}

VFN qv qv_pair(qv q, const int j)
{
	return _mm512_and_si512(_mm512_srli_epi32(q, (unsigned)(2 * j)), _mm512_set1_epi8(3));
}

VFN qv qv_join(qv low, qv q, const int j)
{
	const qv high = j < 2 ? _mm512_slli_epi32(q, (unsigned)(4 - 2 * j))
			      : _mm512_srli_epi32(q, (unsigned)(2 * j - 4));
	return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(48), 0xf8); /* low | (high & 48) */
}

VFN qv qv_sub8(qv a, qv b)
{
	return _mm512_sub_epi8(a, b);
}

VFN qx qx_load(const unsigned char *p)
{
	int32_t d;
	memcpy(&d, p, 4);
	return _mm512_set1_epi32(d);
}

VFN qh qh_begin(qa a)
{
	return a;
}

#ifndef DOT_EMULATED
/* gcc 12 copies and spills accumulators around its own builtin. */
VFN __m512i vpdpbusd512(__m512i acc, __m512i q, __m512i x)
{
	__asm__("vpdpbusd %2,%1,%0" : "+v"(acc) : "v"(q), "v"(x));
	return acc;
}
#endif

VFN qh qh_dot(qh h, qv q, qx x)
{
	return vpdpbusd512(h, q, x);
}

VFN qa qh_end(qa a, qh h)
{
	(void)a;
	return h;
}

VFN qa qa_set1(int32_t a)
{
	return _mm512_set1_epi32(a);
}

VFN qa qa_zero(void)
{
	return _mm512_setzero_si512();
}

VFN qa qa_add(qa a, qa b)
{
	return _mm512_add_epi32(a, b);
}

VFN qa qa_mul(qa a, qa b)
{
	return _mm512_mullo_epi32(a, b);
}

VFN qa qa_and(qa a, qa b)
{
	return _mm512_and_si512(a, b);
}

VFN qa qa_shl(qa a, int n)
{
	return _mm512_slli_epi32(a, (unsigned)n);
}

VFN qa qa_u8(const unsigned char *p)
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

VFN vf qa_float(qa a)
{
	return _mm512_cvtepi32_ps(a);
}

VFN qa qa_bits(vf f)
{
	return _mm512_castps_si512(f);
}

VFN qa qa_shr8(qa a)
{
	return _mm512_srai_epi32(a, 8);
}

VFN void qa_store8(unsigned char *p, qa a)
{
	_mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(a));
}

VFN int32_t qa_hsum(qa a)
{
	return _mm512_reduce_add_epi32(a);
}

/* Within 128 bits, add the four lanes of a to two sums, and those of b, interleaved. */
VFN qa qa_pairs(qa a, qa b)
{
	return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

VFN qa qa_fours(qa a, qa b)
{
	return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

VFN void qa_hsum8(int32_t out[16], const qa q[8])
{
	const qa a = qa_fours(qa_pairs(q[0], q[1]), qa_pairs(q[2], q[3]));
	const qa b = qa_fours(qa_pairs(q[4], q[5]), qa_pairs(q[6], q[7]));
	/* Each 128 bits hold partial sums of four vectors. */
	const qa c = _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
	const qa d = _mm512_add_epi32(c, _mm512_shuffle_i64x2(c, c, 0xb1));
	_mm512_storeu_si512(out, _mm512_shuffle_i64x2(d, d, 0x08));
}

#define DOT_ACC    24
#define DOT_ROWS   6
#define DOT_FOLD   0
#define DOT_SPLIT8 0
#define DOT_UNPACK 5 /* with up to 4 rows the codes go through registers only */

#endif
