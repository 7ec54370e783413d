/* vec_avx2.h - sixteen float lanes as two 256-bit registers.  See vec_avx512.h. */
#ifndef QUERN_KERNELS_CPU_VEC_AVX2_H
#define QUERN_KERNELS_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#ifndef VFN
#define VFN static inline __attribute__((always_inline))
#endif

typedef struct {
	__m256 lo, hi;
} vf;

typedef struct {
	__m256i lo, hi;
} vq;

VFN vf v_zero(void)
{
	return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

VFN vf v_set1(float a)
{
	__m256 v = _mm256_set1_ps(a);
	return (vf){v, v};
}

VFN vf v_load(const float *p)
{
	return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

VFN void v_store(float *p, vf a)
{
	_mm256_storeu_ps(p, a.lo);
	_mm256_storeu_ps(p + 8, a.hi);
}

/* All ones in lanes i < n, for the eight lanes from `first` on. */
VFN __m256i v_first8(int first, int n)
{
	__m256i i = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), i);
}

VFN vf v_load_n(const float *p, int n)
{
	return (vf){_mm256_maskload_ps(p, v_first8(0, n)), _mm256_maskload_ps(p + 8, v_first8(8, n))};
}

VFN void v_store_n(float *p, vf a, int n)
{
	_mm256_maskstore_ps(p, v_first8(0, n), a.lo);
	_mm256_maskstore_ps(p + 8, v_first8(8, n), a.hi);
}

VFN vf v_load_f16(const uint16_t *p)
{
	return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
		    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}

VFN __m256 v_bf16x8(const uint16_t *p)
{
	__m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
	return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

VFN vf v_load_bf16(const uint16_t *p)
{
	return (vf){v_bf16x8(p), v_bf16x8(p + 8)};
}

VFN __m256i v_words8(const uint16_t *p)
{
	return _mm256_loadu_si256((const __m256i *)p);
}

VFN vf v_even_bf16(const uint16_t *p)
{
	return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(v_words8(p), 16)),
		    _mm256_castsi256_ps(_mm256_slli_epi32(v_words8(p + 16), 16))};
}

VFN vf v_odd_bf16(const uint16_t *p)
{
	const __m256i high = _mm256_set1_epi32((int)0xffff0000);
	return (vf){_mm256_castsi256_ps(_mm256_and_si256(v_words8(p), high)),
		    _mm256_castsi256_ps(_mm256_and_si256(v_words8(p + 16), high))};
}

VFN vf v_load_u8(const uint8_t *p)
{
	__m128i b = _mm_loadu_si128((const __m128i *)p);
	return (vf){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b)),
		    _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(b, 8)))};
}

VFN vf v_load_e4m3(const uint8_t *p)
{
	const __m256i h = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
	const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(h, _mm256_set1_epi16(0x80)), 8);
	const __m256i size = _mm256_slli_epi16(_mm256_and_si256(h, _mm256_set1_epi16(0x7f)), 7);
	const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(size, _mm256_set1_epi16(0x3f80)),
					     _mm256_set1_epi16(0x7c00));
	const __m256i f16 = _mm256_or_si256(_mm256_or_si256(sign, size), nan);
	const __m256 by = _mm256_set1_ps(256);
	return (vf){_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(f16)), by),
		    _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(f16, 1)), by)};
}

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
	__m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
	return (vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
		    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)))};
}

VFN vf v_fma(vf a, vf b, vf c)
{
	return (vf){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

VFN vf v_add(vf a, vf b)
{
	return (vf){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

VFN vf v_sub(vf a, vf b)
{
	return (vf){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}

VFN vf v_mul(vf a, vf b)
{
	return (vf){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

VFN vf v_div(vf a, vf b)
{
	return (vf){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}

VFN vf v_max(vf a, vf b)
{
	return (vf){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

VFN vf v_min(vf a, vf b)
{
	return (vf){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

VFN vf v_keep_ge(vf a, vf x, vf limit)
{
	return (vf){_mm256_and_ps(a.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_GE_OQ)),
		    _mm256_and_ps(a.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_GE_OQ))};
}

VFN __m256 v_keep8(__m256 a, int first, int from, int to, __m256 other)
{
	__m256i in = _mm256_andnot_si256(v_first8(first, from), v_first8(first, to));
	return _mm256_blendv_ps(other, a, _mm256_castsi256_ps(in));
}

VFN vf v_keep_range(vf a, int from, int to, vf other)
{
	return (vf){v_keep8(a.lo, 0, from, to, other.lo), v_keep8(a.hi, 8, from, to, other.hi)};
}

VFN __m256 v_keep_bits8(__m256 a, uint32_t bits, __m256 other)
{
	const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	__m256i in = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane);
	return _mm256_blendv_ps(other, a, _mm256_castsi256_ps(in));
}

VFN vf v_keep_bits(vf a, uint32_t bits, vf other)
{
	return (vf){v_keep_bits8(a.lo, bits, other.lo), v_keep_bits8(a.hi, bits >> 8, other.hi)};
}

VFN __m256 v_scale8(__m256 p, __m256 t)
{
	__m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
	return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n));
}

VFN vf v_scale2(vf p, vf t)
{
	return (vf){v_scale8(p.lo, t.lo), v_scale8(p.hi, t.hi)};
}

VFN __m256 v_rest8(__m256 x)
{
	return _mm256_sub_ps(x, _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

VFN vf v_rest(vf x)
{
	return (vf){v_rest8(x.lo), v_rest8(x.hi)};
}

VFN __m256 v_scale_by8(__m256 p, __m256 n)
{
	const __m256i i = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
	return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), i));
}

VFN vf v_scale_by(vf p, vf n)
{
	return (vf){v_scale_by8(p.lo, n.lo), v_scale_by8(p.hi, n.hi)};
}

VFN __m256 v_round_bf16_8(__m256 a)
{
	const __m256i r = _mm256_add_epi32(_mm256_castps_si256(a), _mm256_set1_epi32(0x8000));
	return _mm256_castsi256_ps(_mm256_and_si256(r, _mm256_set1_epi32((int)0xffff0000)));
}

VFN vf v_round_bf16(vf a)
{
	return (vf){v_round_bf16_8(a.lo), v_round_bf16_8(a.hi)};
}

VFN float v_hsum(vf a)
{
	__m256 h = _mm256_add_ps(a.lo, a.hi);
	__m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
	q = _mm_add_ps(q, _mm_movehl_ps(q, q));
	return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

VFN float v_hmax(vf a)
{
	__m256 h = _mm256_max_ps(a.lo, a.hi);
	__m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
	q = _mm_max_ps(q, _mm_movehl_ps(q, q));
	return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

VFN float v_lane0(vf a)
{
	return _mm256_cvtss_f32(a.lo);
}

VFN vq vq_load(const void *p)
{
	return (vq){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)p + 1)};
}

VFN vq vq_shr8(vq a)
{
	return (vq){_mm256_srli_epi32(a.lo, 8), _mm256_srli_epi32(a.hi, 8)};
}

VFN vq vq_shr4(vq a)
{
	return (vq){_mm256_srli_epi32(a.lo, 4), _mm256_srli_epi32(a.hi, 4)};
}

VFN vq vq_set1(uint32_t a)
{
	__m256i v = _mm256_set1_epi32((int)a);
	return (vq){v, v};
}

VFN vf vq_nibble(vq q, vq mask, vq magic)
{
	__m256i lo = _mm256_or_si256(_mm256_and_si256(q.lo, mask.lo), magic.lo);
	__m256i hi = _mm256_or_si256(_mm256_and_si256(q.hi, mask.hi), magic.hi);
	return (vf){_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
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
