/* floats.h - attention on K and V in F32 and BF16 by ordered FP32 FMAs, on the sixteen lanes of vec_*.h.
 * Included by inner.h, once for each instruction set; chunk.h calls these kernels.
 *
 * Every sum has one order: a score over d ascending, a weighted value over tokens ascending, each as one
 * chain of fused multiply-adds from 0.  BF16 is widened, which is exact.  The number of queries, heads and
 * tiles in one kernel call changes no bit. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_FLOATS_H
#define QUERN_KERNELS_CPU_ATTENTION_FLOATS_H

#include "kernels/cpu/attention/kvtype.h"

/* ---- layout ---- */

static int even(int n)
{
	return (n + 1) & ~1;
}

static int later(int a, int b)
{
	return a > b ? a : b;
}

static int sooner(int a, int b)
{
	return a < b ? a : b;
}

static size_t f32_k_bytes(int dim)
{
	return (size_t)even(dim) * KV_TILE * 4;
}

static size_t f32_v_bytes(int dim)
{
	return (size_t)((dim + 15) & ~15) * KV_TILE * 4;
}

static size_t bf16_k_bytes(int dim)
{
	return (size_t)even(dim) * KV_TILE * 2;
}

static size_t bf16_v_bytes(int dim)
{
	return (size_t)((dim + 15) & ~15) * KV_TILE * 2;
}

static void f32_store(unsigned char *kt, unsigned char *vt, int at, const float *k, const float *v, int dim)
{
	float *kf = (float *)(void *)kt + at;
	for (int d = 0; d < dim; d++)
		kf[d * KV_TILE] = k[d];
	memcpy((float *)(void *)vt + (size_t)at * (size_t)((dim + 15) & ~15), v, (size_t)dim * sizeof *v);
}

/* Round to the nearest, ties to even; NaN stays NaN. */
VFN uint16_t to_bf16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
	return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : r);
}

static void bf16_store(unsigned char *kt, unsigned char *vt, int at, const float *k, const float *v, int dim)
{
	uint16_t *kh = (uint16_t *)(void *)kt + 2 * at;
	uint16_t *vh = (uint16_t *)(void *)vt + (size_t)(at / 2) * 2 * (size_t)((dim + 15) & ~15) + at % 2;
	for (int d = 0; d < dim; d++)
		kh[d / 2 * 2 * KV_TILE + d % 2] = to_bf16(k[d]);
	for (int d = 0; d < dim; d++)
		vh[2 * d] = to_bf16(v[d]);
}

/* ---- queries: scaled, each group of at most INNER_ROWS as [D][m]; a 0 follows if D is odd ---- */

static size_t float_q_bytes(int dim, int m)
{
	return ((size_t)even(dim) * (size_t)m * sizeof(float) + 63) & ~(size_t)63;
}

static int query_group(int m, int q0)
{
	return m - q0 < INNER_ROWS ? m - q0 : INNER_ROWS;
}

static void float_queries(unsigned char *out, const float *const *q, int m, int dim, float scale)
{
	float *to = (float *)(void *)out;
	for (int q0 = 0, n; q0 < m; q0 += n, to += even(dim) * n) {
		n = query_group(m, q0);
		for (int i = 0; i < n; i++)
			for (int d = 0; d < dim; d++)
				to[d * n + i] = q[q0 + i][d] * scale;
		for (int i = 0; i < n && dim % 2; i++)
			to[dim * n + i] = 0;
	}
}

/* ---- scores ---- */

/* Load 16 values of a line of pairs: the even or the odd values of 32. */
VFN vf load_half(const unsigned char *p, int odd)
{
	return odd ? v_odd_bf16((const uint16_t *)(const void *)p)
		   : v_even_bf16((const uint16_t *)(const void *)p);
}

struct scores_args {
	const float *q;
	size_t q_step;
	const unsigned char *k[4];
	const unsigned char *next; /* memory read after k[], for prefetching: as many areas, next_step apart;
				      or NULL */
	size_t next_step;
	int dim;
	float *s; /* [m][16] of each head or tile, s_step floats apart */
	size_t s_step;
};

/* Score hn heads or tn tiles at once. */
VFN void scores(enum kern_dtype t, const int hn, const int tn, const int m, const struct scores_args *a)
{
	const unsigned char *next = a->next, *const *k = a->k;
	const size_t q_step = a->q_step, next_step = a->next_step, s_step = a->s_step;
	const float *q = a->q;
	const int dim = a->dim;
	float *s = a->s;
	vf acc[4][INNER_ROWS];
	const int n = hn * tn;
	const unsigned char *kp[4] = {k[0], k[n > 1 ? 1 : 0], k[n > 2 ? 2 : 0], k[n > 2 ? 3 : 0]};
	UNROLL for (int v = 0; v < n; v++) UNROLL for (int r = 0; r < m; r++) acc[v][r] = v_zero();
	const size_t line = t == KERN_F32 ? 64 : 32; /* bytes of one d */
	for (size_t d = 0; d < (size_t)dim; d += 2) {
		if (tn == 1 && next)
			UNROLL for (int v = 0; v < n; v++) UNROLL for (size_t b = 0; b < 2 * line; b += 64)
				v_prefetch_far(next + (size_t)v * next_step + d * line + b);
		UNROLL for (int odd = 0; odd < 2; odd++)
		{
			vf w[4];
			UNROLL for (int v = 0; v < n; v++) w[v] =
				t == KERN_F32
					? v_load((const float *)(const void *)kp[v] + (d + (size_t)odd) * 16)
					: load_half(kp[v] + d * 32, odd);
			const float *qd = q + (d + (size_t)odd) * (size_t)m;
			UNROLL for (int r = 0; r < m; r++) UNROLL for (int v = 0; v < n; v++) acc[v][r] =
				v_fma(v_set1(qd[(size_t)(hn > 1 ? v : 0) * q_step + (size_t)r]), w[v],
				      acc[v][r]);
		}
	}
	UNROLL for (int v = 0; v < n; v++) UNROLL for (int r = 0; r < m; r++)
		v_store(s + (size_t)v * s_step + r * 16, acc[v][r]);
}

#define SCORES_FN(name, t)                                                                                   \
	static void name(int hn, int tn, int m, const struct scores_args *a)                                 \
	{                                                                                                    \
		if (hn == 4) {                                                                               \
			ROW_SWITCH(m, ATTN_HEADS4, scores(t, 4, 1, M, a))                                    \
		} else if (hn == 2) {                                                                        \
			ROW_SWITCH(m, ATTN_HEADS2, scores(t, 2, 1, M, a))                                    \
		} else if (tn == 2) {                                                                        \
			ROW_SWITCH(m, ATTN_TILES2, scores(t, 1, 2, M, a))                                    \
		} else {                                                                                     \
			ROW_SWITCH(m, INNER_ROWS, scores(t, 1, 1, M, a))                                     \
		}                                                                                            \
	}
SCORES_FN(scores_f32, KERN_F32)
SCORES_FN(scores_bf16, KERN_BF16)

/* ---- softmax ---- */

/* Cap the scores of one query, in place, in the tiles that it sees at least in part. */
static void cap_scores(float *s, size_t tile_stride, int from, int to, float cap)
{
	const vf c = v_set1(cap), twice = v_set1(2 / cap);
	for (int t = from / 16; t < (to + 15) / 16; t++)
		v_store(s + (size_t)t * tile_stride,
			v_softcap(v_load(s + (size_t)t * tile_stride), c, twice));
}

/* Replace the scores of one query by exp(score - max), 0 outside from <= t < to. */
static void softmax(float *s, size_t tile_stride, int from, int to, float *max, float *sum)
{
	const vf low = v_set1(-INFINITY);
	const int t0 = from / 16, t1 = (to + 15) / 16;
	vf mx = low;
	for (int t = t0; t < t1; t++) {
		int a = from - t * 16, b = to - t * 16;
		vf v = v_load(s + (size_t)t * tile_stride);
		if (a > 0 || b < 16) {
			v = v_keep_range(v, a > 0 ? a : 0, b < 16 ? b : 16, low);
			v_store(s + (size_t)t * tile_stride, v);
		}
		mx = v_max(mx, v);
	}
	*max = v_hmax(mx);
	vf m = v_set1(*max), l = v_zero();
	for (int t = t0; t < t1; t++) {
		vf p = v_exp(v_sub(v_load(s + (size_t)t * tile_stride), m));
		v_store(s + (size_t)t * tile_stride, p);
		l = v_add(l, p);
	}
	*sum = v_hsum(l);
}

/* ---- weighted sums ---- */

/* Load 16 values of token t, from a row (F32) or a line of pairs that begins at v. */
VFN vf load_v(enum kern_dtype type, const unsigned char *v, size_t pad, int t)
{
	return type == KERN_F32 ? v_load((const float *)(const void *)v + (size_t)t * pad)
				: load_half(v + (size_t)(t / 2) * pad * 4, t % 2);
}

VFN void add_token(enum kern_dtype type, const int tn, const int m, const float *p, const unsigned char *v,
		   size_t pad, int t, vf acc[8][INNER_ROWS])
{
	vf w[8];
	UNROLL for (int j = 0; j < tn; j++) w[j] = load_v(type, v + (size_t)j * 64, pad, t);
	UNROLL for (int r = 0; r < m; r++)
	{
		vf pv = v_set1(p[r * 16 + t]);
		UNROLL for (int j = 0; j < tn; j++) acc[j][r] = v_fma(pv, w[j], acc[j][r]);
	}
}

struct weighted_args {
	const float *p; /* [tiles][tile_stride], from the chunk's first tile on */
	size_t tile_stride;
	const unsigned char *const *v;    /* V of each tile */
	size_t skip;                      /* bytes to the head and its first value */
	const unsigned char *const *next; /* memory read after these tiles, for each tile; or NULL */
	size_t next_skip;
	int from, to; /* tokens of the chunk */
	size_t pad;
	float *o; /* the first of the values; rows are pad apart */
};

VFN const unsigned char *next_of(const struct weighted_args *a, int tile)
{
	return a->next ? a->next[tile] + a->next_skip : NULL;
}

/* acc[tn][m] += sum over tokens from <= t < to of one tile, ascending, of p[m][t] * v[t] */
VFN void weighted(enum kern_dtype type, const int tn, const int m, const struct weighted_args *a, int tile,
		  int from, int to, vf acc[8][INNER_ROWS])
{
	const size_t pad = a->pad;
	const unsigned char *next = next_of(a, tile), *v = a->v[tile] + a->skip;
	const float *p = a->p + (size_t)tile * a->tile_stride;
	const size_t token = type == KERN_F32 ? pad * 4 : pad * 2;
	int t = from;
	if (t % 2 && t < to) {
		add_token(type, tn, m, p + t - 1, v + (size_t)(t - 1) * token, pad, 1, acc);
		t++;
	}
	for (; t + 1 < to; t += 2) {
		if (next)
			UNROLL for (int j = 0; j < tn; j++) v_prefetch_far(next + (size_t)t * token + j * 64);
		if (next && type == KERN_F32)
			UNROLL for (int j = 0; j < tn; j++)
				v_prefetch_far(next + (size_t)(t + 1) * token + j * 64);
		add_token(type, tn, m, p + t, v + (size_t)t * token, pad, 0, acc);
		add_token(type, tn, m, p + t, v + (size_t)t * token, pad, 1, acc);
	}
	if (t < to)
		add_token(type, tn, m, p + t, v + (size_t)t * token, pad, 0, acc);
}

VFN void weighted_tiles(enum kern_dtype type, const int tn, const int m, const struct weighted_args *a)
{
	vf acc[8][INNER_ROWS];
	UNROLL for (int j = 0; j < tn; j++) UNROLL for (int r = 0; r < m; r++) acc[j][r] =
		v_load(a->o + (size_t)r * a->pad + j * 16);
	for (int t = a->from; t < a->to;) {
		const int tile = t / 16, base = tile * 16, end = base + 16 < a->to ? base + 16 : a->to;
		weighted(type, tn, m, a, tile, t - base, end - base, acc);
		t = end;
	}
	UNROLL for (int j = 0; j < tn; j++) UNROLL for (int r = 0; r < m; r++)
		v_store(a->o + (size_t)r * a->pad + j * 16, acc[j][r]);
}

#define WEIGHTED_FN(name, t)                                                                                 \
	static void name(int tn, int m, const struct weighted_args *a)                                       \
	{                                                                                                    \
		if (tn == 8) {                                                                               \
			ROW_SWITCH(m, ATTN_WIDE8, weighted_tiles(t, 8, M, a))                                \
		} else if (tn == 4) {                                                                        \
			ROW_SWITCH(m, ATTN_WIDE4, weighted_tiles(t, 4, M, a))                                \
		} else if (tn == 2) {                                                                        \
			ROW_SWITCH(m, ATTN_WIDE2, weighted_tiles(t, 2, M, a))                                \
		} else {                                                                                     \
			ROW_SWITCH(m, INNER_ROWS, weighted_tiles(t, 1, M, a))                                \
		}                                                                                            \
	}
WEIGHTED_FN(weighted_f32, KERN_F32)
WEIGHTED_FN(weighted_bf16, KERN_BF16)

#endif
