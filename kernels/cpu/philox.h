/* philox.h - Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3" (SC 2011).
 * It has no state: the same key and counter give the same four words on every device. */
#ifndef QUERN_KERNELS_CPU_PHILOX_H
#define QUERN_KERNELS_CPU_PHILOX_H

#include <stdint.h>

static inline void philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];
	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)a;
		k0 += 0x9E3779B9u; /* the golden ratio, and the square root of 3 minus 1 */
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

/* Return 64 uniform bits for one position of one output of a job. */
static inline uint64_t philox_bits(uint64_t seed, uint32_t index, uint32_t position)
{
	const uint32_t ctr[4] = {index, position, 0, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	uint32_t r[4];
	philox4x32(ctr, key, r);
	return (uint64_t)r[0] << 32 | r[1];
}

/* Return the other 64 bits of the same call, for a decision other than the draw. */
static inline uint64_t philox_more(uint64_t seed, uint32_t index, uint32_t position)
{
	const uint32_t ctr[4] = {index, position, 0, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	uint32_t r[4];
	philox4x32(ctr, key, r);
	return (uint64_t)r[2] << 32 | r[3];
}

#endif
