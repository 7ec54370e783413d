/* emulate_bf16.h - the intrinsics that bf16/avx512*.c need in addition to emulate_avx512.h, with VDPBF16PS
 * and TDPBF16PS. Both are chains of fused multiply-adds. They run with denormals treated as 0
 * (flush_begin()), as the hardware instructions always do. */
#ifndef QUERN_TESTS_KERNELS_EMULATE_BF16_H
#define QUERN_TESTS_KERNELS_EMULATE_BF16_H

#include "tests/kernels/emulate_avx512.h"

EM_INT(or_si512, a.u[l] | b.u[l])

EM __m512i em_sub_epi16(__m512i x, __m512i y)
{
	em a = {.i = x}, b = {.i = y};
	EACH(l, 32) a.w[l] = (uint16_t)(a.w[l] - b.w[l]);
	return a.i;
}

EM __m512i em_permutexvar_epi16(__m512i at, __m512i table)
{
	em a = {.i = at}, b = {.i = table};
	EACH(l, 32) a.w[l] = b.w[a.w[l] & 31];
	return a.i;
}

EM float em_fma1(uint16_t x, uint16_t w, float acc)
{
	const uint32_t ux = (uint32_t)x << 16, uw = (uint32_t)w << 16;
	float fx, fw;
	memcpy(&fx, &ux, 4);
	memcpy(&fw, &uw, 4);
	return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(fx), _mm_set_ss(fw), _mm_set_ss(acc)));
}

/* VDPBF16PS: add the product of the odd values first, then the product of the even values. */
EM __m512 vdpbf16ps512(__m512 acc, __m512i x, __m512i w)
{
	em c = {.f = acc}, a = {.i = x}, b = {.i = w};
	EACH(l, 16)
	{
		c.s[l] = em_fma1(a.w[2 * l + 1], b.w[2 * l + 1], c.s[l]);
		c.s[l] = em_fma1(a.w[2 * l], b.w[2 * l], c.s[l]);
	}
	return c.f;
}

/* TDPBF16PS: sum the even and the odd values of 16 pairs in two chains from 0, then add both sums to c. */
EM void em_tdpbf16ps(int rows, float (*c)[16], const uint16_t (*a)[32], const uint16_t (*b)[32])
{
	EACH(m, rows) EACH(n, 16)
	{
		float even = 0, odd = 0;
		EACH(k, 16)
		{
			even = em_fma1(a[m][2 * k], b[k][2 * n], even);
			odd = em_fma1(a[m][2 * k + 1], b[k][2 * n + 1], odd);
		}
		c[m][n] = c[m][n] + (even + odd);
	}
}

#undef _mm512_srai_epi32
#define _mm512_or_si512          em_or_si512
#define _mm512_sub_epi16         em_sub_epi16
#define _mm512_permutexvar_epi16 em_permutexvar_epi16
#define _mm512_srai_epi32        em_srai_epi32
#define _mm512_load_si512        em_loadu_si512

#endif
