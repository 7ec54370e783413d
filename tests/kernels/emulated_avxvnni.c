/* emulated_avxvnni.c - kernels/cpu/dot/avx2vnni.c with the 256-bit vpdpbusd in plain C. */
#include "tests/kernels/emulated.h"

#include <immintrin.h>
#include <string.h>

#define DOT_EMULATED emulated_avxvnni
#define VFN          static __attribute__((unused))

VFN __m256i vpdpbusd256(__m256i acc, __m256i codes, __m256i x)
{
	uint32_t c[8];
	uint8_t a[32];
	int8_t b[32];
	memcpy(c, &acc, sizeof c);
	memcpy(a, &codes, sizeof a);
	memcpy(b, &x, sizeof b);
	for (int i = 0; i < 32; i++)
		c[i / 4] += (uint32_t)(a[i] * b[i]);
	memcpy(&acc, c, sizeof c);
	return acc;
}

#include "kernels/cpu/dot/avx2vnni.c"
