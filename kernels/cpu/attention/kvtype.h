/* kvtype.h - how one storage type keeps K and V, as a table: one per type and instruction set.
 *
 * The cache is cut into tiles of KV_TILE tokens (a block of the cache is one or more tiles, aligned to
 * positions).  A tile holds K of all KV heads, then V of all KV heads; what a head's K and V look like is
 * the type's own, scales included:
 *
 *     tile   | K head 0 | K head 1 | ... | V head 0 | V head 1 | ... |
 *              k_bytes                     v_bytes
 *
 *     F32          K [D][16]            V [16][D]
 *     BF16         K [D/2][16][2]       V [8][D][2]        pairs along D, pairs of tokens: what
 *                                                          vdpbf16ps and tdpbf16ps take
 *     INT8, INT16  lines of 64 bytes in one or two planes, the scales of K and V behind K: int.h
 *
 * D of V is padded to 16, D of K to the group of values in the last brackets; sizes are multiples of 64, and
 * what lies in the padding is 0, as a new cache has it.  What one task reads of a tile (16 tokens of all
 * heads) is one run of K and one of V.
 *
 * Chunks of CHUNK tokens, aligned to positions, are the unit of arithmetic: chunk() gives maximum, sum and
 * weighted sum of one chunk, and the walk (attention.c) folds chunks in ascending order.  A query's results
 * depend on that query, on the tokens it sees and on nothing else: not on m, the other queries, the number of
 * heads, or which threads do it; where the type promises it, not on the instruction set.
 * No inline functions here: files of different instruction sets include it. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_KVTYPE_H
#define QUERN_KERNELS_CPU_ATTENTION_KVTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa.h"

enum {
	KV_TILE = LANES_N,
	KV_QUERIES = 128, /* most queries of a KV head in one chunk() */
};

/* One chunk of n_heads adjacent KV heads, m queries each (rows x query heads of that KV head). */
struct cpu_kv_chunk {
	int n_heads, m;
	int dim, dim_pad; /* D, and D rounded up to 16 */
	float scale;      /* of the scores; what queries() was given */
	float cap;        /* > 0: a score s becomes cap * tanh(s / cap) */
	/* [n_heads] prepared groups of m queries, q_stride bytes (q_bytes(dim, m)) apart, 64-aligned */
	const unsigned char *q;
	size_t q_stride;
	/* K and V of the first of the heads in each tile that some query sees, 64-aligned; the next head's
	 * follow k_bytes and v_bytes further on.  Tiles that no query sees are not set. */
	const unsigned char *k[CHUNK_TILES];
	const unsigned char *v[CHUNK_TILES];
	size_t k_bytes, v_bytes;
	/* [m] tokens of the chunk that query i of every head sees: from <= t < to.  Other tokens never touch
	 * its result, not even as 0 times infinity; a query with from >= to sees none, and its results are
	 * not read.  Ascending: neither from nor to falls with i. */
	const int *from, *to;
	unsigned char *work; /* scratch of work_bytes(dim, n_heads, m), 64-aligned */
	/* out, each 64-aligned where m and dim_pad allow it */
	float *max, *sum; /* [n_heads][m] */
	float *o; /* [n_heads][m][dim_pad], not divided by sum; both with weights exp(score - max), times the
	      type's `one` */
};

struct cpu_kv_type {
	const char *name;           /* "f32" */
	float one;                  /* what a weight of exp(0) counts in the sum and o of a chunk */
	int span;                   /* queries of a KV head that prefill takes at once, <= KV_QUERIES */
	size_t (*k_bytes)(int dim); /* of one head in a tile */
	size_t (*v_bytes)(int dim);
	/* Token `at` (0 to 15) of a tile: k and v are [dim]. */
	void (*store)(unsigned char *kt, unsigned char *vt, int at, const float *k, const float *v, int dim);
	size_t (*q_bytes)(int dim, int m); /* of m prepared queries: a multiple of 64 */
	/* Prepares m queries; q[i] is [dim], not scaled. */
	void (*queries)(unsigned char *out, const float *const *q, int m, int dim, float scale);
	size_t (*work_bytes)(int dim, int n_heads, int m); /* never falls as m or n_heads grows */
	void (*chunk)(const struct cpu_kv_chunk *c);
};

#endif
