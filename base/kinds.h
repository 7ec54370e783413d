/* kinds.h - kinds of layers, by the positions of which they read K and V.
 * Layers of full attention read all earlier positions, layers with a sliding window only the last ones.  The
 * layers of a model are cut into kinds of equally many layers, so that a block of any kind has the same size
 * and all kinds share one pool.  A sequence has a block table for each kind:
 *
 *   logical block     0    1    2    3    4        32 tokens in each, a window of 40 tokens
 *   kind 0, full    [ 7 ][ 2 ][ 9 ][ 1 ][ 5 ]
 *   kind 1, window  [   ][   ][ 4 ][ 8 ][ 3 ]      the row at position 140 reads from position 101 on:
 *                                                  blocks 0 to 2 are not read again */
#ifndef QUERN_BASE_KINDS_H
#define QUERN_BASE_KINDS_H

#include <stdbool.h>
#include <stdint.h>

enum { KINDS_MAX = 8 };

struct kinds {
	uint32_t n;                 /* at least 1 */
	uint32_t window[KINDS_MAX]; /* positions that a row reads, its own among them; 0: all up to its own */
};

#define KINDS_ONE ((struct kinds){.n = 1})

/* Return the first position that the row at `position` reads in layers of this kind. */
static inline uint32_t kinds_first(const struct kinds *k, uint32_t kind, uint32_t position)
{
	const uint32_t window = k->window[kind];
	return window && position >= window ? position - window + 1 : 0;
}

/* Return whether any kind has a window. */
static inline bool kinds_have_windows(const struct kinds *k)
{
	bool any = false;
	for (uint32_t i = 0; i < k->n; i++)
		any |= k->window[i] > 0;
	return any;
}

/* Return the most blocks, of all kinds, that a sequence holds while it grows to n_tokens in steps of at most
 * `chunk`: of a kind with a window those of the window, of two chunks (a plan in flight may still
 * read the one before the last), and one that the window begins in. */
static inline uint32_t kinds_blocks(const struct kinds *k, uint32_t n_tokens, uint32_t block_size,
				    uint32_t chunk)
{
	const uint64_t all = ((uint64_t)n_tokens + block_size - 1) / block_size;
	uint64_t n = 0;
	for (uint32_t i = 0; i < k->n; i++) {
		const uint64_t span = (uint64_t)k->window[i] + 2 * (uint64_t)chunk,
			       most = (span + block_size - 1) / block_size + 1;
		n += k->window[i] && most < all ? most : all;
	}
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* Return the length of the longest sequence that n_blocks hold; at most 2^30. */
static inline uint32_t kinds_tokens(const struct kinds *k, uint32_t n_blocks, uint32_t block_size,
				    uint32_t chunk)
{
	uint32_t lo = 0, hi = 1u << 30;
	while (lo < hi) {
		const uint32_t mid = lo + (hi - lo + 1) / 2;
		if (kinds_blocks(k, mid, block_size, chunk) <= n_blocks)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}

#endif
