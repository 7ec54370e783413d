/* half.h - one 16-bit float to 32 bits, exactly (NaN stays NaN). */
#ifndef QUERN_KERNELS_CPU_HALF_H
#define QUERN_KERNELS_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static inline float half_from_bf16(uint16_t h)
{
	return half_bits((uint32_t)h << 16);
}

static inline float half_from_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exp = h >> 10 & 31, man = h & 0x3ff;
	if (exp == 31)
		return half_bits(sign | 0x7f800000 | man << 13);
	if (exp)
		return half_bits(sign | (exp + 112) << 23 | man << 13);
	float f = (float)man * 0x1p-24f; /* denormal: exact */
	return sign ? -f : f;
}

#endif
