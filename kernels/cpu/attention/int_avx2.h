/* int_avx2.h - shared by the two kernels of 256 bits, int_avx2.c and int_avx2vnni.c.  See ints.h. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_INT_AVX2_H
#define QUERN_KERNELS_CPU_ATTENTION_INT_AVX2_H

#include <string.h>

#include "kernels/cpu/vec_avx2.h"

typedef vq qa;
struct query;

VFN __m256 swap8(__m256 a, const int n)
{
	if (n == 1)
		return _mm256_permute_ps(a, 0xb1);
	if (n == 2)
		return _mm256_permute_ps(a, 0x4e);
	return _mm256_permute2f128_ps(a, a, 1);
}

VFN vf v_swap(vf a, const int n)
{
	if (n == 8)
		return (vf){a.hi, a.lo};
	return (vf){swap8(a.lo, n), swap8(a.hi, n)};
}

VFN qa qa_load(const int32_t *p)
{
	return vq_load(p);
}

VFN void qa_store(int32_t *p, qa a)
{
	_mm256_storeu_si256((__m256i *)(void *)p, a.lo);
	_mm256_storeu_si256((__m256i *)(void *)(p + 8), a.hi);
}

VFN qa qa_add(qa a, qa b)
{
	return (qa){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}

VFN qa qa_shl8(qa a)
{
	return (qa){_mm256_slli_epi32(a.lo, 8), _mm256_slli_epi32(a.hi, 8)};
}

VFN vf qa_float(qa a)
{
	return (vf){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

VFN int32_t word_at(const unsigned char *p)
{
	int32_t d;
	memcpy(&d, p, 4);
	return d;
}

/* Convert 16 weights to 16 words, in order. */
VFN __m256i w_words(vf e)
{
	__m256i w = _mm256_packus_epi32(_mm256_cvtps_epi32(e.lo), _mm256_cvtps_epi32(e.hi));
	return _mm256_permute4x64_epi64(w, 0xd8);
}

/* Store the low bytes of 32 words, in order. */
VFN void w_bytes(unsigned char *out, __m256i a, __m256i b)
{
	__m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
	_mm256_storeu_si256((__m256i *)(void *)out, w);
}

VFN void w_store(unsigned char *high, unsigned char *low, const vf e[4])
{
	const __m256i mask = _mm256_set1_epi16(255);
	for (int t = 0; t < 4; t += 2) {
		const __m256i a = w_words(e[t]), b = w_words(e[t + 1]);
		w_bytes(high + t * 16, _mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
		w_bytes(low + t * 16, _mm256_and_si256(a, mask), _mm256_and_si256(b, mask));
	}
}

#define INT_PAD              256
#define INT_W_AT(tile, quad) ((tile)*4 + (quad))

#endif
