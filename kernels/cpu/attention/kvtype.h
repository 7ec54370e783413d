/* kvtype.h - how one storage type keeps K and V, as a table: one per type and instruction set.
 *
 * The cache is cut into tiles of KV_TILE tokens; a block of the cache is one or more tiles, aligned to
 * positions.  A tile holds K of all KV heads, then V of all KV heads.  The layout of a head's K and V, scales
 * included, is private to the type:
 *
 *     tile   | K head 0 | K head 1 | ... | V head 0 | V head 1 | ... |
 *              k_bytes                     v_bytes
 *
 *     F32          K [D][16]            V [16][D]
 *     BF16         K [D/2][16][2]       V [8][D][2]        pairs along D, pairs of tokens: the
 *                                                          operands of vdpbf16ps and tdpbf16ps
 *     INT8, INT16  lines of 64 bytes in one or two planes, the scales of K and V after K: int.h
 *
 * D of V is padded to 16, D of K to the group of values in the last brackets.  Sizes are multiples of 64.
 * Padding is 0, as in a new cache.  A task that reads a tile (16 tokens of all heads) reads one run of K and
 * one of V.
 *
 * Chunks of CHUNK tokens, aligned to positions, are the unit of arithmetic.  chunk() computes the maximum,
 * sum and weighted sum of one chunk, and attention.c merges chunks in ascending order.  A query's results
 * depend only on that query and the tokens it sees: not on m, the other queries, the number of heads, or the
 * threads; nor on the instruction set, if the type promises it.  This header has no inline functions, since
 * files of different instruction sets include it. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_KVTYPE_H
#define QUERN_KERNELS_CPU_ATTENTION_KVTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa.h"

enum {
	KV_TILE = LANES_N,
	KV_QUERIES = 128, /* most queries of a KV head in one chunk() */
};

/* One chunk of n_heads adjacent KV heads with m queries each (rows x query heads of that KV head). */
struct cpu_kv_chunk {
	int n_heads, m;
	int dim, dim_pad; /* D, and D rounded up to 16 */
	float scale;      /* scale of the scores, as given to queries() */
	float cap;        /* > 0: a score s becomes cap * tanh(s / cap) */
	/* ALiBi: the score of token t for query i of head h gets slope * (t - at[i]) added.  The slope is
	 * alibi[h * alibi_step + i % alibi_heads], and at[i] the query's own token, counted from the chunk's
	 * first.  alibi NULL: nothing is added. */
	const float *alibi;
	int alibi_step, alibi_heads;
	const int *at;
	/* [n_heads] prepared groups of m queries, q_stride bytes (q_bytes(dim, m)) apart, 64-aligned */
	const unsigned char *q;
	size_t q_stride;
	/* K and V of the first head in each tile that some query sees, 64-aligned.  The next head follows
	 * k_bytes and v_bytes further on.  Tiles that no query sees are not set. */
	const unsigned char *k[CHUNK_TILES];
	const unsigned char *v[CHUNK_TILES];
	size_t k_bytes, v_bytes;
	/* [m] tokens of the chunk that query i of every head sees: from <= t < to.  Other tokens never touch
	 * its result, not even as 0 times infinity.  A query with from >= to sees no token, and its results
	 * are not read.  Ascending: neither from nor to falls as i grows. */
	const int *from, *to;
	unsigned char *work; /* scratch of work_bytes(dim, n_heads, m), 64-aligned */
	/* out, each 64-aligned if m and dim_pad allow it */
	float *max, *sum; /* [n_heads][m] */
	float *o; /* [n_heads][m][dim_pad], not divided by sum.  sum and o have weights exp(score - max),
		     times the type's `one` */
};

struct cpu_kv_type {
	const char *name;           /* "f32" */
	float one;                  /* weight of exp(0) in the sum and o of a chunk */
	int span;                   /* queries of a KV head that prefill computes at once, <= KV_QUERIES */
	size_t (*k_bytes)(int dim); /* bytes of one head in a tile */
	size_t (*v_bytes)(int dim);
	/* Store token `at` (0 to 15) of a tile; k and v are [dim]. */
	void (*store)(unsigned char *kt, unsigned char *vt, int at, const float *k, const float *v, int dim);
	size_t (*q_bytes)(int dim, int m); /* bytes of m prepared queries, a multiple of 64 */
	/* Prepare m queries; q[i] is [dim], not scaled. */
	void (*queries)(unsigned char *out, const float *const *q, int m, int dim, float scale);
	size_t (*work_bytes)(int dim, int n_heads, int m); /* never falls as m or n_heads grows */
	void (*chunk)(const struct cpu_kv_chunk *c);
};

#endif
