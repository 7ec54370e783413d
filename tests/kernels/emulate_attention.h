/* emulate_attention.h - emulates the AVX-512 intrinsics that attention/int_avx512*.c need in addition to
 * emulate_avx512.h. Include emulate_avx512.h first. */
#ifndef QUERN_TESTS_KERNELS_EMULATE_ATTENTION_H
#define QUERN_TESTS_KERNELS_EMULATE_ATTENTION_H

#include "tests/kernels/emulate_avx512.h"

EM __m512i em_xor_si512(__m512i x, __m512i y)
{
	em a = {.i = x}, b = {.i = y};
	EACH(l, 16) a.u[l] ^= b.u[l];
	return a.i;
}

EM __m512i em_set1_epi16(short v)
{
	em a;
	EACH(l, 32) a.w[l] = (uint16_t)v;
	return a.i;
}

/* Permute within each quarter of four lanes. */
EM __m512 em_permute_ps(__m512 x, int how)
{
	em a = {.f = x}, out;
	EACH(l, 16) out.s[l] = a.s[l / 4 * 4 + (how >> l % 4 * 2 & 3)];
	return out.f;
}

/* Select whole quarters: the lower two from x, the upper two from y. */
EM __m512 em_shuffle_f32x4(__m512 x, __m512 y, int how)
{
	em a = {.f = x}, b = {.f = y}, out;
	EACH(l, 16) out.s[l] = (l < 8 ? a : b).s[(how >> l / 4 * 2 & 3) * 4 + l % 4];
	return out.f;
}

EM __m512i em_cvtps_epi32(__m512 x)
{
	em a = {.f = x};
	EACH(h, 2) a.i256[h] = _mm256_cvtps_epi32(a.f256[h]);
	return a.i;
}

EM uint16_t em_word(int32_t v)
{
	return (uint16_t)(v < 0 ? 0 : v > 65535 ? 65535 : v);
}

EM __m512i em_packus_epi32(__m512i x, __m512i y)
{
	em a = {.i = x}, b = {.i = y}, out;
	EACH(l, 32) out.w[l] = em_word((l % 8 < 4 ? a : b).d[l / 8 * 4 + l % 4]);
	return out.i;
}

EM __m512i em_packus_epi16(__m512i x, __m512i y)
{
	em a = {.i = x}, b = {.i = y}, out;
	EACH(l, 64)
	{
		const int16_t v = (int16_t)(l % 16 < 8 ? a : b).w[l / 16 * 8 + l % 8];
		out.b[l] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
	}
	return out.i;
}

#undef _mm512_permute_ps
#undef _mm512_shuffle_f32x4
#define _mm512_xor_si512     em_xor_si512
#define _mm512_set1_epi16    em_set1_epi16
#define _mm512_permute_ps    em_permute_ps
#define _mm512_shuffle_f32x4 em_shuffle_f32x4
#define _mm512_cvtps_epi32   em_cvtps_epi32
#define _mm512_packus_epi32  em_packus_epi32
#define _mm512_packus_epi16  em_packus_epi16

#endif
