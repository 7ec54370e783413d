/* avx2.h - shared by the two kernels of 256 bits, avx2.c and avx2vnni.c.  See dots.h. */
#ifndef QUERN_KERNELS_CPU_DOT_AVX2_H
#define QUERN_KERNELS_CPU_DOT_AVX2_H

#include <string.h>

#include "kernels/cpu/vec_avx2.h"

typedef vq qv;
typedef vq qa;
typedef __m256i qx;
typedef vq qh;

VFN qv qv_load(const unsigned char *p)
{
	return vq_load(p);
}

VFN void qv_store(unsigned char *p, qv q)
{
	_mm256_storeu_si256((__m256i *)(void *)p, q.lo);
	_mm256_storeu_si256((__m256i *)(void *)(p + 32), q.hi);
}

VFN __m256i low_half(__m256i q)
{
	return _mm256_and_si256(q, _mm256_set1_epi8(15));
}

VFN qv qv_low(qv q)
{
	return (qv){low_half(q.lo), low_half(q.hi)};
}

VFN qv qv_high(qv q)
{
	return (qv){low_half(_mm256_srli_epi16(q.lo, 4)), low_half(_mm256_srli_epi16(q.hi, 4))};
}

VFN qv qv_pair(qv q, const int j)
{
	const __m256i mask = _mm256_set1_epi8(3);
	return (qv){_mm256_and_si256(_mm256_srli_epi32(q.lo, 2 * j), mask),
		    _mm256_and_si256(_mm256_srli_epi32(q.hi, 2 * j), mask)};
}

VFN qv qv_join(qv low, qv q, const int j)
{
	const qv high = qv_pair(q, j);
	return (qv){_mm256_or_si256(low.lo, _mm256_slli_epi32(high.lo, 4)),
		    _mm256_or_si256(low.hi, _mm256_slli_epi32(high.hi, 4))};
}

VFN qx qx_load(const unsigned char *p)
{
	int32_t d;
	memcpy(&d, p, 4);
	return _mm256_set1_epi32(d);
}

VFN qa qa_set1(int32_t a)
{
	return vq_set1((uint32_t)a);
}

VFN qa qa_zero(void)
{
	return qa_set1(0);
}

VFN qa qa_add(qa a, qa b)
{
	return (qa){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}

VFN qa qa_mul(qa a, qa b)
{
	return (qa){_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}

VFN qa qa_shl(qa a, int n)
{
	return (qa){_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)};
}

VFN qa qa_u8(const unsigned char *p)
{
	__m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
	return (qa){_mm256_cvtepu8_epi32(b), _mm256_cvtepu8_epi32(_mm_srli_si128(b, 8))};
}

VFN vf qa_float(qa a)
{
	return (vf){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

VFN qa qa_bits(vf f)
{
	return (qa){_mm256_castps_si256(f.lo), _mm256_castps_si256(f.hi)};
}

VFN qa qa_shr8(qa a)
{
	return (qa){_mm256_srai_epi32(a.lo, 8), _mm256_srai_epi32(a.hi, 8)};
}

VFN void qa_store8(unsigned char *p, qa a)
{
	const __m256i byte = _mm256_set1_epi32(255);
	__m256i w = _mm256_packus_epi32(_mm256_and_si256(a.lo, byte), _mm256_and_si256(a.hi, byte));
	w = _mm256_permute4x64_epi64(w, 0xd8);
	_mm_storeu_si128((__m128i *)(void *)p,
			 _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}

VFN int32_t qa_hsum(qa a)
{
	const __m256i h = _mm256_add_epi32(a.lo, a.hi);
	__m128i q = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
	q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
	return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

VFN void qa_hsum8(int32_t out[16], const qa q[8])
{
	for (int i = 0; i < 8; i++)
		out[i] = qa_hsum(q[i]);
}

#endif
