/* int_avx512.h - shared by the kernels for AVX-512 VNNI and for AMX.
 * See ints.h.  Tests compile them with INT_EMULATED and provide the instructions as functions. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_INT_AVX512_H
#define QUERN_KERNELS_CPU_ATTENTION_INT_AVX512_H

#include <string.h>

#include "kernels/cpu/vec_avx512.h"

typedef __m512i qa, kl, vl;
typedef struct {
	__m512i high, low;
} ks;
typedef ks ws, ka, va;

#ifndef INT_EMULATED
/* gcc 12 copies and spills accumulators around its own builtin. */
VFN __m512i vpdpbusd512(__m512i acc, __m512i unsigned_bytes, __m512i signed_bytes)
{
	__asm__("vpdpbusd %2,%1,%0" : "+v"(acc) : "v"(unsigned_bytes), "v"(signed_bytes));
	return acc;
}
#endif

VFN vf v_swap(vf a, const int n)
{
	if (n == 1)
		return _mm512_permute_ps(a, 0xb1);
	if (n == 2)
		return _mm512_permute_ps(a, 0x4e);
	if (n == 4)
		return _mm512_shuffle_f32x4(a, a, 0xb1);
	return _mm512_shuffle_f32x4(a, a, 0x4e);
}

VFN qa qa_load(const int32_t *p)
{
	return _mm512_loadu_si512(p);
}

VFN void qa_store(int32_t *p, qa a)
{
	_mm512_storeu_si512(p, a);
}

VFN qa qa_add(qa a, qa b)
{
	return _mm512_add_epi32(a, b);
}

VFN vf qa_float(qa a)
{
	return _mm512_cvtepi32_ps(a);
}

/* Load K as unsigned bytes, by adding 128. */
VFN kl kl_load(const unsigned char *p)
{
	return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8((char)0x80));
}

VFN vl vl_load(const unsigned char *p)
{
	return _mm512_loadu_si512(p);
}

VFN __m512i word_at(const unsigned char *p)
{
	int32_t d;
	memcpy(&d, p, 4);
	return _mm512_set1_epi32(d);
}

VFN ks ks_load(const unsigned char *q, size_t plane)
{
	return (ks){word_at(q), word_at(q + plane)};
}

VFN ws ws_load(const unsigned char *w)
{
	return ks_load(w, 256);
}

VFN ka ka_sums(int32_t high, int32_t low)
{
	return (ka){_mm512_set1_epi32((int32_t)((uint32_t)high * -128u)),
		    _mm512_set1_epi32((int32_t)((uint32_t)low * -128u))};
}

#define ka_begin(q, planes) ka_sums((q)->sum_high, (q)->sum_low + ((planes) == 2 ? (q)->sum_high : 0))

VFN ka ka_full(ka a, kl line, ks x)
{
	return (ka){vpdpbusd512(a.high, line, x.high), vpdpbusd512(a.low, line, x.low)};
}

VFN ka ka_high(ka a, kl line, ks x)
{
	return (ka){a.high, vpdpbusd512(a.low, line, x.high)};
}

VFN qa ka_end(ka a)
{
	return _mm512_add_epi32(_mm512_slli_epi32(a.high, 8), a.low);
}

VFN va va_begin(void)
{
	return (va){_mm512_setzero_si512(), _mm512_setzero_si512()};
}

VFN va va_full(va a, vl line, ws x)
{
	return (va){vpdpbusd512(a.high, x.high, line), vpdpbusd512(a.low, x.low, line)};
}

VFN va va_high(va a, vl line, ws x)
{
	return (va){a.high, vpdpbusd512(a.low, x.high, line)};
}

VFN qa va_end(va a)
{
	return ka_end(a);
}

/* The instructions pack within quarters of a register: each quarter has one quad of each of the four
 * tiles. */
VFN void w_store(unsigned char *high, unsigned char *low, const vf e[4])
{
	const __m512i mask = _mm512_set1_epi16(255);
	const __m512i a = _mm512_packus_epi32(_mm512_cvtps_epi32(e[0]), _mm512_cvtps_epi32(e[1]));
	const __m512i b = _mm512_packus_epi32(_mm512_cvtps_epi32(e[2]), _mm512_cvtps_epi32(e[3]));
	_mm512_storeu_si512(high, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
	_mm512_storeu_si512(low, _mm512_packus_epi16(_mm512_and_si512(a, mask), _mm512_and_si512(b, mask)));
}

#define INT_ACC              12
#define INT_ROWS             8
#define INT_W_AT(tile, quad) ((tile) / 4 * 16 + (quad)*4 + (tile) % 4)

#endif
