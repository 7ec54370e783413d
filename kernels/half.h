/* half.h - F16 and BF16 to float, exactly (NaN stays NaN), and float to F16 and BF16, on the host. */
#ifndef QUERN_KERNELS_HALF_H
#define QUERN_KERNELS_HALF_H

#include "kernels/kern.h"

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

/* Return false if f is not exactly an F16 value. */
static inline bool half_to_f16(float f, uint16_t *out)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	const uint32_t sign = u >> 16 & 0x8000, exp = u >> 23 & 255, man = u & 0x7fffff;
	if (exp == 255 || (exp > 112 && exp < 143)) {
		*out = (uint16_t)(sign | (exp == 255 ? 31 : exp - 112) << 10 | man >> 13);
		return !(man & 0x1fff);
	}
	const float units = (sign ? -f : f) * 0x1p24f;
	if (!(units < 1024) || units != (float)(int)units)
		return false;
	*out = (uint16_t)(sign | (uint32_t)units);
	return true;
}

/* Round to the nearest F16, ties to even.  Too large: infinite; NaN stays NaN. */
static inline uint16_t half_near_f16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	const uint32_t sign = u >> 16 & 0x8000, size = u & 0x7fffffff;
	if (size > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (size >= 0x477ff000)
		return (uint16_t)(sign | 0x7c00);
	if (size >= 0x38800000)
		return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
	/* Subnormal in F16: adding 2^23 rounds the value to units of 2^-24. */
	const float units = (sign ? -f : f) * 0x1p24f + 0x1p23f;
	return (uint16_t)(sign | (uint32_t)(units - 0x1p23f));
}

/* Round to the nearest BF16, ties to even.  Denormals become 0 with their sign; NaN stays NaN. */
static inline uint16_t half_to_bf16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	const uint32_t size = u & 0x7fffffff, near = (u + 0x7fff + (u >> 16 & 1)) >> 16;
	const uint32_t some = size > 0x7f800000 ? u >> 16 | 0x40 : near;
	return (uint16_t)(size < 0x00800000 ? u >> 16 & 0x8000 : some);
}

/* Return values[i] of an array of F32, F16 or BF16, at any alignment. */
static inline float half_load(const void *values, enum kern_dtype dtype, size_t i)
{
	float f;
	uint16_t h;
	if (dtype == KERN_F32) {
		memcpy(&f, (const unsigned char *)values + i * 4, 4);
		return f;
	}
	memcpy(&h, (const unsigned char *)values + i * 2, 2);
	return dtype == KERN_F16 ? half_from_f16(h) : half_from_bf16(h);
}

#endif
