/* dots.h - attention of mode bf16 (bf16.h) by multiply-adds on the sixteen lanes of vec_*.h.
 * Like floats.h, included by inner.h once for each instruction set; the layouts are those of floats.h. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_DOTS_H
#define QUERN_KERNELS_CPU_ATTENTION_DOTS_H

#include "kernels/cpu/attention/exp2.h"
#include "kernels/cpu/attention/floats.h"
#include "kernels/cpu/attention/kvtype.h"
#include "kernels/cpu/bf16/flush.h"

#define DOT_LOG2_E 0x1.715476p+0f /* scores are powers of 2 */

enum {
	DOT_STEP = 32, /* d or tokens in a step */
	/* Most queries with 8, 4, 2 vectors of V.  The first chains are kept in memory while the second ones
	 * are summed. */
	DOT_WIDE8 = ATTN_WIDE8,
	DOT_WIDE4 = ATTN_WIDE4 / 2,
	DOT_WIDE2 = (ATTN_WIDE2 + 1) / 2,
};

/* ---- queries: laid out as in floats.h ---- */

static void dot_queries(unsigned char *out, const float *const *q, int m, int dim, float scale)
{
	const float by = scale * DOT_LOG2_E;
	float *to = (float *)(void *)out;
	float_queries(out, q, m, dim, by);
	for (int i = 0; i < even(dim) * m; i++) {
		const uint32_t u = (uint32_t)to_bf16(to[i]) << 16;
		memcpy(&to[i], &u, 4);
	}
}

/* ---- scores ---- */

/* Score hn heads or tn tiles at once, like scores() of floats.h: s[m][16] of each. */
VFN void dot_scores(const int hn, const int tn, const int m, const struct scores_args *a)
{
	const int n = hn * tn;
	const unsigned char *kp[4] = {a->k[0], a->k[n > 1 ? 1 : 0], a->k[n > 2 ? 2 : 0], a->k[n > 2 ? 3 : 0]};
	for (int d0 = 0; d0 < a->dim; d0 += DOT_STEP) {
		vf sums[2][4][INNER_ROWS];
		const int d1 = sooner(d0 + DOT_STEP, even(a->dim));
		UNROLL for (int v = 0; v < n; v++) UNROLL for (int r = 0; r < m; r++) sums[0][v][r] =
			sums[1][v][r] = v_zero();
		for (int d = d0; d < d1; d += 2) {
			if (tn == 1 && a->next)
				UNROLL for (int v = 0; v < n; v++)
					v_prefetch_far(a->next + (size_t)v * a->next_step + (size_t)d * 32);
			UNROLL for (int odd = 0; odd < 2; odd++)
			{
				vf w[4];
				UNROLL for (int v = 0; v < n; v++) w[v] = load_half(kp[v] + d * 32, odd);
				const float *qd = a->q + (d + odd) * m;
				UNROLL for (int r = 0; r < m; r++) UNROLL for (int v = 0; v < n;
									       v++) sums[odd][v][r] =
					v_fma(v_set1(qd[(size_t)(hn > 1 ? v : 0) * a->q_step + (size_t)r]),
					      w[v], sums[odd][v][r]);
			}
		}
		UNROLL for (int v = 0; v < n; v++) UNROLL for (int r = 0; r < m; r++)
		{
			float *s = a->s + (size_t)v * a->s_step + r * 16;
			v_store(s, v_add(d0 ? v_load(s) : v_zero(), v_add(sums[0][v][r], sums[1][v][r])));
		}
	}
}

static void scores_dots(int hn, int tn, int m, const struct scores_args *a)
{
	if (hn == 4) {
		ROW_SWITCH(m, ATTN_HEADS4, dot_scores(4, 1, M, a))
	} else if (hn == 2) {
		ROW_SWITCH(m, ATTN_HEADS2, dot_scores(2, 1, M, a))
	} else if (tn == 2) {
		ROW_SWITCH(m, ATTN_TILES2, dot_scores(1, 2, M, a))
	} else {
		ROW_SWITCH(m, INNER_ROWS, dot_scores(1, 1, M, a))
	}
}

/* ---- weights ---- */

/* Replace the scores of one query by p, in place, like softmax() of floats.h. */
static void dot_softmax(float *s, size_t tile_stride, int from, int to, float *max, float *sum)
{
	const vf low = v_set1(-INFINITY);
	const int t0 = from / 16, t1 = (to + 15) / 16;
	vf mx = low;
	for (int t = t0; t < t1; t++) {
		const int a = from - t * 16, b = to - t * 16;
		vf v = v_load(s + (size_t)t * tile_stride);
		if (a > 0 || b < 16)
			v = v_keep_range(v, a > 0 ? a : 0, b < 16 ? b : 16, low);
		mx = v_max(mx, v);
	}
	const float top = v_hmax(mx);
	vf m = v_set1(top), l = v_zero();
	for (int t = t0; t < t1; t++) {
		const int a = from - t * 16, b = to - t * 16;
		vf p = exp2_3(v_sub(v_load(s + (size_t)t * tile_stride), m));
		if (a > 0 || b < 16)
			p = v_keep_range(p, a > 0 ? a : 0, b < 16 ? b : 16, v_zero());
		v_store(s + (size_t)t * tile_stride, v_round_bf16(p));
		l = v_add(l, p);
	}
	*max = top * 0x1.62e43p-1f;
	*sum = v_hsum(l);
}

/* ---- weighted sums ---- */

/* Sum one chain from 0, over tokens from <= i < to of tile t. */
VFN void dot_chain(const int tn, const int m, const struct weighted_args *a, int t, int from, int to,
		   vf acc[8][INNER_ROWS])
{
	UNROLL for (int j = 0; j < tn; j++) UNROLL for (int r = 0; r < m; r++) acc[j][r] = v_zero();
	if (from >= to)
		return;
	const float *p = a->p + (size_t)t * a->tile_stride;
	const unsigned char *v = a->v[t] + a->skip, *next = next_of(a, t);
	int i = from;
	if (i % 2 && i < to) {
		add_token(KERN_BF16, tn, m, p + i - 1, v + (size_t)(i - 1) * a->pad * 2, a->pad, 1, acc);
		i++;
	}
	for (; i + 1 < to; i += 2) {
		const unsigned char *at = v + (size_t)i * a->pad * 2;
		if (next)
			UNROLL for (int j = 0; j < tn; j++)
				v_prefetch_far(next + (size_t)i * a->pad * 2 + j * 64);
		add_token(KERN_BF16, tn, m, p + i, at, a->pad, 0, acc);
		add_token(KERN_BF16, tn, m, p + i, at, a->pad, 1, acc);
	}
	if (i < to)
		add_token(KERN_BF16, tn, m, p + i, v + (size_t)i * a->pad * 2, a->pad, 0, acc);
}

VFN void dot_weighted(const int tn, const int m, const struct weighted_args *a)
{
	for (int at = a->from / DOT_STEP * DOT_STEP; at < a->to; at += DOT_STEP) {
		vf first[8][INNER_ROWS], second[8][INNER_ROWS];
		const int from = later(a->from - at, 0), to = sooner(a->to - at, DOT_STEP);
		dot_chain(tn, m, a, at / 16, sooner(from, 16), sooner(to, 16), first);
		dot_chain(tn, m, a, at / 16 + 1, later(from - 16, 0), to - 16, second);
		UNROLL for (int j = 0; j < tn; j++) UNROLL for (int r = 0; r < m; r++)
		{
			float *o = a->o + (size_t)r * a->pad + j * 16;
			v_store(o, v_add(v_load(o), v_add(first[j][r], second[j][r])));
		}
	}
}

static void weighted_dots(int tn, int m, const struct weighted_args *a)
{
	if (tn == 8) {
		ROW_SWITCH(m, DOT_WIDE8, dot_weighted(8, M, a))
	} else if (tn == 4) {
		ROW_SWITCH(m, DOT_WIDE4, dot_weighted(4, M, a))
	} else if (tn == 2) {
		ROW_SWITCH(m, DOT_WIDE2, dot_weighted(2, M, a))
	} else {
		ROW_SWITCH(m, INNER_ROWS, dot_weighted(1, M, a))
	}
}

#endif
