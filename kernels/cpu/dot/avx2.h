/* avx2.h - what the two kernels of 256 bits share: avx2.c, avx2vnni.c.  See dots.h. */
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

#endif
