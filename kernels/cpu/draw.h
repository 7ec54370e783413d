/* draw.h - the integers of a random draw.
 *
 * The weight of a token is p = exp((x - max) / T), at most 1, in units of 2^-40, rounded down.  The kept
 * tokens are summed in the order of their ids.  The drawn token is the first at which the sum of weights
 * passes a uniform number below the total.  Sums of integers do not depend on their order, so that any number
 * of threads finds the same token.
 *
 *     weights   | 2^40 (the likeliest) | .. |      0      | ..      28 T below the likeliest: weight 0
 *     sums      at most 2^40 DRAW_VOCAB_MAX = 2^63: no overflow */
#ifndef QUERN_KERNELS_CPU_DRAW_H
#define QUERN_KERNELS_CPU_DRAW_H

#include <stdint.h>
#include <string.h>

enum { DRAW_VOCAB_MAX = 1 << 23 };

/* The least p with a weight above 0. */
#define DRAW_P_MIN 0x1p-40f

/* Return the weight of p, 0 <= p < 2. */
static inline uint64_t draw_weight(float p)
{
	uint32_t u;
	memcpy(&u, &p, sizeof u);
	const uint32_t by = 127 - (u >> 23); /* p is below 1 by this many powers of 2; 127: p is 0 */
	return (uint64_t)((u & 0x7fffff) | 0x800000) << 17 >> (by < 63 ? by : 63);
}

/* Return bits / 2^64 of `all`, rounded down, so below `all`. */
static inline uint64_t draw_target(uint64_t bits, uint64_t all)
{
	const uint64_t b0 = (uint32_t)bits, b1 = bits >> 32, a0 = (uint32_t)all, a1 = all >> 32;
	const uint64_t low = b0 * a1, high = b1 * a0;
	const uint64_t middle = (b0 * a0 >> 32) + (uint32_t)low + (uint32_t)high;
	return b1 * a1 + (low >> 32) + (high >> 32) + (middle >> 32);
}

#endif
