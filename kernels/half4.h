/* half4.h - half.h on vectors of four, for compilers that are given no instruction set. */
#ifndef QUERN_KERNELS_HALF4_H
#define QUERN_KERNELS_HALF4_H

#include "kernels/half.h"

typedef float floats4 __attribute__((vector_size(16)));
typedef int32_t ints4 __attribute__((vector_size(16)));

/* Load values at .. at + 3 of an array of F32, F16 or BF16. */
static inline floats4 half4_load(const void *w, enum kern_dtype dtype, size_t at)
{
	floats4 f;
	uint16_t h[4];
	if (dtype == KERN_F32) {
		memcpy(&f, (const unsigned char *)w + at * 4, sizeof f);
		return f;
	}
	memcpy(h, (const unsigned char *)w + at * 2, sizeof h);
	const ints4 v = {h[0], h[1], h[2], h[3]};
	if (dtype == KERN_BF16)
		return (floats4)(v << 16);
	/* F16: move exponent and mantissa to their places in an F32, then multiply by 2^(127 - 15). */
	const ints4 size = (v & 0x7fff) << 13, special = size >= 0x0f800000;
	return (floats4)((ints4)((floats4)size * 0x1p112f) | (v & 0x8000) << 16 |
			 (special & (0x7f800000 | size)));
}

/* half_to_bf16() of four values, in the lower halves of the result. */
static inline ints4 half4_to_bf16(floats4 f)
{
	typedef uint32_t words __attribute__((vector_size(16)));
	const words u = (words)f, size = u & 0x7fffffff, high = u >> 16;
	const words near = (u + 0x7fff + (high & 1)) >> 16;
	const words nan = (words)(size > 0x7f800000), none = (words)(size < 0x00800000);
	const words some = (near & ~nan) | ((high | 0x40) & nan);
	return (ints4)((some & ~none) | (high & 0x8000 & none));
}

#endif
