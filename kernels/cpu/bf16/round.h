/* round.h - converts floats to operands of bf16.h, in each of the three layouts.
 * The loops are written for the compiler to vectorize, for the instruction set of the including file. */
#ifndef QUERN_KERNELS_CPU_BF16_ROUND_H
#define QUERN_KERNELS_CPU_BF16_ROUND_H

#include <string.h>

#include "kernels/cpu/bf16/bf16.h"
#include "kernels/half.h"

static inline int round_padded(int k)
{
	return (k + BF16_STEP - 1) / BF16_STEP * BF16_STEP;
}

static inline void round_floats(void *row, const float *x, int k)
{
	float *out = row;
	for (int i = 0; i < k; i++)
		out[i] = half_from_bf16(half_to_bf16(x[i]));
	memset(out + k, 0, (size_t)(round_padded(k) - k) * sizeof *out);
}

static inline void round_pairs(void *row, const float *x, int k)
{
	uint16_t *out = row;
	for (int i = 0; i < k; i++)
		out[i] = half_to_bf16(x[i]);
	memset(out + k, 0, (size_t)(round_padded(k) - k) * sizeof *out);
}

/* Store values 2, 0, 3, 1 of every four. */
static inline void round_chains(void *row, const float *x, int k)
{
	unsigned char *four = row;
	round_pairs(row, x, k);
	for (int i = 0; i < round_padded(k) / 4; i++, four += 8) {
		uint64_t v;
		memcpy(&v, four, 8);
		v = (v >> 32 & 0xffff) | (v & 0xffff) << 16 | (v >> 48) << 32 | (v >> 16 & 0xffff) << 48;
		memcpy(four, &v, 8);
	}
}

#endif
