/* vec_avx512.h - sixteen float lanes as one 512-bit register.
 * One of three headers with the same functions (also vec_avx2.h, vec_plain.h).  inner.h is written on top of
 * them; each isa_*.c includes exactly one.  Each function rounds alike in all three headers, so that they
 * give the same bits.  Never included by an ISA-neutral file. */
#ifndef QUERN_KERNELS_CPU_VEC_AVX512_H
#define QUERN_KERNELS_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#ifndef VFN /* the emulation in tests defines VFN, since it need not be fast */
#define VFN static inline __attribute__((always_inline))
#endif

typedef __m512 vf;
typedef __m512i vq;

VFN vf v_zero(void)
{
	return _mm512_setzero_ps();
}

VFN vf v_set1(float a)
{
	return _mm512_set1_ps(a);
}

VFN vf v_load(const float *p)
{
	return _mm512_loadu_ps(p);
}

VFN void v_store(float *p, vf a)
{
	_mm512_storeu_ps(p, a);
}

VFN __mmask16 v_first(int n)
{
	return (__mmask16)((1u << n) - 1);
}

/* Load the first n lanes, n 0 to 16; the other lanes are 0. */
VFN vf v_load_n(const float *p, int n)
{
	return _mm512_maskz_loadu_ps(v_first(n), p);
}

VFN void v_store_n(float *p, vf a, int n)
{
	_mm512_mask_storeu_ps(p, v_first(n), a);
}

VFN vf v_load_f16(const uint16_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

VFN vf v_load_bf16(const uint16_t *p)
{
	__m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
	return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}

/* Load the even, or the odd, of 32 consecutive values. */
VFN vf v_even_bf16(const uint16_t *p)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}

VFN vf v_odd_bf16(const uint16_t *p)
{
	__m512i high = _mm512_set1_epi32((int)0xffff0000);
	return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high));
}

VFN vf v_load_u8(const uint8_t *p)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

/* Load 16 values in E4M3.  F16 has one more exponent bit: the bits in its places read as 1/256 of the value.
 * All ones are NaN. */
VFN vf v_load_e4m3(const uint8_t *p)
{
	const __m256i h = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
	const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(h, _mm256_set1_epi16(0x80)), 8);
	const __m256i size = _mm256_slli_epi16(_mm256_and_si256(h, _mm256_set1_epi16(0x7f)), 7);
	const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(size, _mm256_set1_epi16(0x3f80)),
					     _mm256_set1_epi16(0x7c00));
	const __m256i f16 = _mm256_or_si256(_mm256_or_si256(sign, size), nan);
	return _mm512_mul_ps(_mm512_cvtph_ps(f16), _mm512_set1_ps(256));
}

/* p = table[p & 15], 16 bytes */
VFN void v_lookup(uint8_t *p, const uint8_t table[16])
{
	const __m128i low =
		_mm_and_si128(_mm_loadu_si128((const __m128i *)(const void *)p), _mm_set1_epi8(15));
	_mm_storeu_si128((__m128i *)(void *)p,
			 _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)table), low));
}

/* 16 signed bytes */
VFN vf v_load_i8(const unsigned char *p)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* a * b + c, rounded once */
VFN vf v_fma(vf a, vf b, vf c)
{
	return _mm512_fmadd_ps(a, b, c);
}

VFN vf v_add(vf a, vf b)
{
	return _mm512_add_ps(a, b);
}

VFN vf v_sub(vf a, vf b)
{
	return _mm512_sub_ps(a, b);
}

VFN vf v_mul(vf a, vf b)
{
	return _mm512_mul_ps(a, b);
}

VFN vf v_div(vf a, vf b)
{
	return _mm512_div_ps(a, b);
}

/* b if either is NaN */
VFN vf v_max(vf a, vf b)
{
	return _mm512_max_ps(a, b);
}

VFN vf v_min(vf a, vf b)
{
	return _mm512_min_ps(a, b);
}

/* a if x >= limit, else 0 (also if x is NaN) */
VFN vf v_keep_ge(vf a, vf x, vf limit)
{
	return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GE_OQ), a);
}

/* a in lanes from <= i < to, other elsewhere */
VFN vf v_keep_range(vf a, int from, int to, vf other)
{
	return _mm512_mask_mov_ps(other, (__mmask16)(v_first(to) & ~v_first(from)), a);
}

/* a in lanes with their bit set, other elsewhere */
VFN vf v_keep_bits(vf a, uint32_t bits, vf other)
{
	return _mm512_mask_mov_ps(other, (__mmask16)bits, a);
}

/* p * 2^n, where t holds 1.5 * 2^23 + n */
VFN vf v_scale2(vf p, vf t)
{
	__m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
	return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), n));
}

/* v_rest: x minus the integer nearest to x (ties to even), which is exact.  v_scale_by: p * 2^n for an
 * integer n >= -126. */
VFN vf v_rest(vf x)
{
	return _mm512_reduce_ps(x, 0);
}

VFN vf v_scale_by(vf p, vf n)
{
	return _mm512_scalef_ps(p, n);
}

/* Round each lane to BF16, to the nearest, ties up; the lower half of the lane becomes 0. */
VFN vf v_round_bf16(vf a)
{
	const __m512i r = _mm512_add_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(0x8000));
	return _mm512_castsi512_ps(_mm512_and_si512(r, _mm512_set1_epi32((int)0xffff0000)));
}

/* ((0+8)+(4+12)) + ((2+10)+(6+14)) + the same for the odd lanes: halves are added until one is left */
VFN float v_hsum(vf a)
{
	__m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
	__m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
	q = _mm_add_ps(q, _mm_movehl_ps(q, q));
	return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

VFN float v_hmax(vf a)
{
	__m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
	__m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
	q = _mm_max_ps(q, _mm_movehl_ps(q, q));
	return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

VFN float v_lane0(vf a)
{
	return _mm512_cvtss_f32(a);
}

VFN vq vq_load(const void *p)
{
	return _mm512_loadu_si512(p);
}

VFN vq vq_shr8(vq a)
{
	return _mm512_srli_epi32(a, 8);
}

VFN vq vq_shr4(vq a)
{
	return _mm512_srli_epi32(a, 4);
}

VFN vq vq_set1(uint32_t a)
{
	return _mm512_set1_epi32((int)a);
}

/* (q & mask) | magic, taken as a float */
VFN vf vq_nibble(vq q, vq mask, vq magic)
{
	return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(q, mask, magic, 0xEA));
}

VFN void v_prefetch(const void *p)
{
	_mm_prefetch((const char *)p, _MM_HINT_T0);
}

/* Prefetch to the second-level cache. */
VFN void v_prefetch_far(const void *p)
{
	_mm_prefetch((const char *)p, _MM_HINT_T1);
}

#endif
