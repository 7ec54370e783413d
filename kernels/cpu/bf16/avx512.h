/* avx512.h - shared by the kernels for AVX-512 BF16 and AMX: unpacks codes to bricks.
 * Tests compile both with BF16_EMULATED and provide the instructions as functions. */
#ifndef QUERN_KERNELS_CPU_BF16_AVX512_H
#define QUERN_KERNELS_CPU_BF16_AVX512_H

#include "kernels/cpu/bf16/bf16.h"
#include "kernels/cpu/vec_avx512.h"

#define WALK_BRICK BF16_BRICK

/* BF16 of 0 .. 15 and of -16 .. -1, indexed by the low five bits of a difference of nibbles. */
static const _Alignas(64) uint16_t bf16_table[32] = {
	0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120,
	0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0xc180, 0xc170, 0xc160, 0xc150, 0xc140, 0xc130,
	0xc120, 0xc110, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80,
};

typedef __m512i walk_zero;

/* Load the zeros of 16 outputs into both words of a pair; for 4-bit codes into all four bytes. */
VFN __m512i walk_zeros(const struct cpu_bf16_tile *t, const unsigned char *head)
{
	const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(head + 32));
	__m512i z = t->f32_scales ? _mm512_set1_epi32(t->zero) : _mm512_cvtepu8_epi32(bytes);
	z = _mm512_or_si512(z, _mm512_slli_epi32(z, 16));
	return t->bits == 8 ? z : _mm512_or_si512(z, _mm512_slli_epi32(z, 8));
}

/* Unpack 4-bit codes.  Nibbles are separated, and their zeros subtracted, in bytes; the table reads five bits
 * of each word. */
VFN void bf16_unpack4(unsigned char *out, const unsigned char *codes, __m512i zeros)
{
	const __m512i table = _mm512_load_si512(bf16_table), mask = _mm512_set1_epi32(0x0f0f0f0f);
	for (int line = 0; line < 4; line++, out += 256) {
		const __m512i q = _mm512_loadu_si512(codes + line * 64);
		const __m512i a = _mm512_sub_epi8(_mm512_and_si512(q, mask), zeros);
		const __m512i b = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi32(q, 4), mask), zeros);
		const __m512i c = _mm512_srli_epi32(a, 8), d = _mm512_srli_epi32(b, 8);
		_mm512_storeu_si512(out, _mm512_permutexvar_epi16(a, table));
		_mm512_storeu_si512(out + 64, _mm512_permutexvar_epi16(b, table));
		_mm512_storeu_si512(out + 128, _mm512_permutexvar_epi16(c, table));
		_mm512_storeu_si512(out + 192, _mm512_permutexvar_epi16(d, table));
	}
}

/* Convert two differences of bytes, in words, to BF16.  This is exact, since they have eight bits. */
VFN __m512i bf16_words(__m512i d)
{
	const __m512 low = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(d, 16), 16));
	const __m512 high = _mm512_cvtepi32_ps(_mm512_srai_epi32(d, 16));
	return _mm512_or_si512(
		_mm512_srli_epi32(_mm512_castps_si512(low), 16),
		_mm512_and_si512(_mm512_castps_si512(high), _mm512_set1_epi32((int)0xffff0000)));
}

VFN void bf16_unpack8(unsigned char *out, const unsigned char *codes, __m512i zeros)
{
	const __m512i mask = _mm512_set1_epi32(0x00ff00ff);
	for (int line = 0; line < 8; line++, out += 128) {
		const __m512i q = _mm512_loadu_si512(codes + line * 64);
		const __m512i a = _mm512_and_si512(q, mask);
		const __m512i b = _mm512_and_si512(_mm512_srli_epi32(q, 8), mask);
		_mm512_storeu_si512(out, bf16_words(_mm512_sub_epi16(a, zeros)));
		_mm512_storeu_si512(out + 64, bf16_words(_mm512_sub_epi16(b, zeros)));
	}
}

VFN void walk_codes(unsigned char *out, const unsigned char *codes, __m512i zeros, int v, const int tn,
		    const int bits)
{
	(void)tn;
	if (bits == 4)
		bf16_unpack4(out + v * BF16_BRICK, codes, zeros);
	else
		bf16_unpack8(out + v * BF16_BRICK, codes, zeros);
}

#endif
