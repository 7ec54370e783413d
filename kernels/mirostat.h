/* mirostat.h - mirostat (Basu et al. 2020, arXiv:2007.14966) in integers, for the CPU and CUDA devices.
 *
 * Surprises, mu, tau and eta are in bits, in units of 2^-20.  The surprise of a token of weight w among
 * tokens of total weight `all` (kernels/cpu/draw.h) is log2 all - log2 w.  mu starts at 2 tau.  After each
 * token mu -= eta (surprise - tau), with the surprise among the tokens that were kept.
 *
 *     version 2   keeps tokens with a surprise in the whole row of at most mu, or else the likeliest
 *     version 1   fits Zipf's law p ~ rank^-s to the likeliest MIROSTAT_TOP tokens, and keeps the likeliest
 *                 k = (e 2^mu / (1 - N^-e))^(1/s), e = s - 1, N tokens in the vocabulary; at least 1
 *
 * Every operation is on integers, so that all devices keep and draw the same tokens.  A file that is compiled
 * for a device defines MIROSTAT_FN first. */
#ifndef QUERN_KERNELS_MIROSTAT_H
#define QUERN_KERNELS_MIROSTAT_H

#include <stdint.h>

#ifndef MIROSTAT_FN
#define MIROSTAT_FN static inline
#endif

enum {
	MIROSTAT_BITS = 20,
	MIROSTAT_ONE = 1 << MIROSTAT_BITS,
	MIROSTAT_MU_MAX = 1 << 30, /* mu stays between this and its negative: 1,024 bits */
	MIROSTAT_TOP = 100,
};

/* log2 e in units of 2^-20: from ln p to bits. */
#define MIROSTAT_PER_NAT 0x1.715476p+20f

/* a b / 2^64, rounded down. */
MIROSTAT_FN uint64_t mirostat_mul(uint64_t a, uint64_t b)
{
	const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
	const uint64_t low = a0 * b1, high = a1 * b0;
	const uint64_t middle = (a0 * b0 >> 32) + (uint32_t)low + (uint32_t)high;
	return a1 * b1 + (low >> 32) + (high >> 32) + (middle >> 32);
}

/* log2 x, rounded down; x > 0.  x is kept as 1.m 2^e; each squaring gives one bit of the fraction. */
MIROSTAT_FN int64_t mirostat_log2(uint64_t x)
{
	int64_t log = 63;
	while (!(x >> 63)) {
		x <<= 1;
		log--;
	}
	for (int i = 0; i < MIROSTAT_BITS; i++) {
		x = mirostat_mul(x, x);
		log = 2 * log + (int64_t)(x >> 63);
		x <<= 1 - (int)(x >> 63);
	}
	return log;
}

/* 2^-f in units of 2^-63; f in units of 2^-32.  The series of e^(-f ln 2), summed from its end. */
MIROSTAT_FN uint64_t mirostat_exp2(uint32_t f)
{
	const uint64_t one = (uint64_t)1 << 63, z = mirostat_mul((uint64_t)f << 32, 0xb17217f7d1cf79acu);
	uint64_t sum = one;
	for (uint32_t k = 18; k; k--)
		sum = one - mirostat_mul(z, sum) / k;
	return sum;
}

/* Return the least weight that version 2 keeps, in a row of total weight `all`; UINT64_MAX: keeps none by
 * weight. */
MIROSTAT_FN uint64_t mirostat_least(uint64_t all, int32_t mu)
{
	if (mu < 0)
		return UINT64_MAX;
	const int down = mu >> MIROSTAT_BITS;
	const uint32_t f = (uint32_t)mu << (32 - MIROSTAT_BITS);
	const uint64_t least = down > 63 ? 0 : (f ? mirostat_mul(all, mirostat_exp2(f) << 1) : all) >> down;
	return least ? least : 1;
}

/* 2^log, rounded down, from 1 to 2^31 - 1; log in units of 2^-20. */
MIROSTAT_FN int32_t mirostat_count(int64_t log)
{
	if (log < 0)
		return 1;
	if (log >> MIROSTAT_BITS >= 31)
		return 0x7fffffff;
	const int up = (int)(log >> MIROSTAT_BITS);
	const uint32_t f = (uint32_t)(log & (MIROSTAT_ONE - 1));
	if (!f)
		return (int32_t)1 << up;
	return (int32_t)(mirostat_exp2((uint32_t)(MIROSTAT_ONE - f) << (32 - MIROSTAT_BITS)) >> (62 - up));
}

/* For version 1's fit: the difference of log2(rank) between the tokens i and i + 1, counted from 0. */
MIROSTAT_FN uint64_t mirostat_step(int i)
{
	return (uint64_t)(mirostat_log2((uint64_t)i + 2) - mirostat_log2((uint64_t)i + 1));
}

/* Return how many tokens version 1 keeps.  Over the pairs of neighbours of the likeliest tokens, tb is the
 * sum of step times the fall of log2 p, and tt the sum of step squared; both in units of 2^-40. */
MIROSTAT_FN int32_t mirostat_top(uint64_t tb, uint64_t tt, int n_vocab, int32_t mu)
{
	if (!(tt >> MIROSTAT_BITS) || n_vocab < 2)
		return 1;
	const int64_t s = (int64_t)(tb / (tt >> MIROSTAT_BITS)), e = s - MIROSTAT_ONE;
	const int64_t words = mirostat_log2((uint64_t)n_vocab);
	const uint64_t y =
		(uint64_t)(e < 0 ? -e : e) * (uint64_t)words; /* N^-|e| = 2^-y, in units of 2^-40 */
	const uint64_t power = y >> 40 > 62 ? 0 : mirostat_exp2((uint32_t)(y >> 8)) >> (y >> 40);
	const uint64_t rest = ((uint64_t)1 << 63) - power; /* 1 - N^-|e| */
	int64_t log = mu; /* log2 of k^s, from the factor e / (1 - N^-e), which is 1 / ln N for e = 0 */
	if (rest == 0)
		log -= mirostat_log2((uint64_t)words * 726817 >> MIROSTAT_BITS) -
		       MIROSTAT_BITS * (int64_t)MIROSTAT_ONE;
	else
		log += mirostat_log2((uint64_t)(e < 0 ? -e : e)) - mirostat_log2(rest) +
		       (63 - MIROSTAT_BITS) * (int64_t)MIROSTAT_ONE -
		       (e < 0 ? (int64_t)(y >> MIROSTAT_BITS) : 0);
	if (s == 0)
		return log > 0 ? 0x7fffffff : 1;
	return log < 0 ? 1 : mirostat_count(log * MIROSTAT_ONE / s);
}

/* Return mu after a token of this weight was drawn from tokens of total weight `all`. */
MIROSTAT_FN int32_t mirostat_next(int32_t mu, int32_t tau, int32_t eta, uint64_t weight, uint64_t all)
{
	const int64_t over = mirostat_log2(all) - mirostat_log2(weight) - tau;
	const int64_t next = mu - eta * over / MIROSTAT_ONE;
	if (next < -MIROSTAT_MU_MAX)
		return -MIROSTAT_MU_MAX;
	return next > MIROSTAT_MU_MAX ? MIROSTAT_MU_MAX : (int32_t)next;
}

#endif
