/* chunk.h - one chunk of K and V in floats: how many heads, tiles and queries one kernel call of floats.h
 * (F32, BF16) or dots.h (mode bf16) takes; and the tables.
 * Included by inner.h after both. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_CHUNK_H
#define QUERN_KERNELS_CPU_ATTENTION_CHUNK_H

#include "kernels/cpu/attention/alibi.h"
#include "kernels/cpu/attention/dots.h"
#include "kernels/cpu/attention/floats.h"

enum way { WAY_F32, WAY_BF16, WAY_DOTS };

static void scores_any(enum way way, int hn, int tn, int m, const struct scores_args *a)
{
	static void (*const fns[])(int, int, int, const struct scores_args *) = {
		[WAY_F32] = scores_f32, [WAY_BF16] = scores_bf16, [WAY_DOTS] = scores_dots};
	fns[way](hn, tn, m, a);
}

/* Return how many of n vectors of V one kernel call takes with m queries. */
static int vectors_per_call(enum way way, int m, int n)
{
	if (n >= 8 && m <= (way == WAY_DOTS ? DOT_WIDE8 : ATTN_WIDE8))
		return 8;
	if (n >= 4 && m <= (way == WAY_DOTS ? DOT_WIDE4 : ATTN_WIDE4))
		return 4;
	return n >= 2 && m <= (way == WAY_DOTS ? DOT_WIDE2 : ATTN_WIDE2) ? 2 : 1;
}

static void weighted_any(enum way way, int m, struct weighted_args a)
{
	static void (*const fns[])(int, int, const struct weighted_args *) = {
		[WAY_F32] = weighted_f32, [WAY_BF16] = weighted_bf16, [WAY_DOTS] = weighted_dots};
	if (a.from >= a.to)
		return;
	for (int left = (int)(a.pad / 16), tn; left > 0; left -= tn) {
		tn = vectors_per_call(way, m, left);
		fns[way](tn, m, &a);
		a.skip += (size_t)tn * 64;
		a.next_skip += (size_t)tn * 64;
		a.o += (size_t)tn * 16;
	}
}

/* ---- a chunk ---- */

/* Tokens that the m queries q0 .. q0 + m - 1 see: all of the queries see [lo, hi), some see [first, last). */
struct seen {
	int q0, m, lo, hi, first, last;
};

static struct seen seen_by(const struct cpu_kv_chunk *c, int q0)
{
	struct seen s = {.q0 = q0, .m = query_group(c->m, q0), .hi = CHUNK, .first = CHUNK};
	for (int r = q0; r < q0 + s.m; r++) {
		s.lo = c->from[r] > s.lo ? c->from[r] : s.lo;
		s.hi = c->to[r] < s.hi ? c->to[r] : s.hi;
		if (c->from[r] < c->to[r]) {
			s.first = c->from[r] < s.first ? c->from[r] : s.first;
			s.last = c->to[r] > s.last ? c->to[r] : s.last;
		}
	}
	if (s.lo >= s.hi)
		s.lo = s.hi = CHUNK;
	return s;
}

/* Return the scores of a group of queries: [head][group of queries][tile][queries of the group][16]. */
static float *scores_at(const struct cpu_kv_chunk *c, int head, int q0)
{
	return (float *)(void *)c->work + ((size_t)head * (size_t)c->m + (size_t)q0) * CHUNK;
}

/* Score tn tiles from t on for heads h0 <= h < h1, several heads or several tiles per call.  Prefetches the
 * memory read next: the next heads, then `behind`. */
static void score(enum way way, const struct cpu_kv_chunk *c, const struct seen *s, int t, int tn, int h0,
		  int h1, const unsigned char *behind)
{
	struct scores_args a = {.q_step = c->q_stride / sizeof(float), .dim = c->dim};
	for (int h = h0, hn; h < h1; h += hn) {
		hn = h1 - h >= 4 && s->m <= ATTN_HEADS4 ? 4 : h1 - h >= 2 && s->m <= ATTN_HEADS2 ? 2 : 1;
		for (int i = 0; i < hn * tn; i++)
			a.k[i] = c->k[tn > 1 ? t + i : t] + (size_t)(tn > 1 ? h : h + i) * c->k_bytes;
		a.next = h + hn < c->n_heads ? c->k[t] + (size_t)(h + hn) * c->k_bytes : behind;
		a.next_step = c->k_bytes;
		a.q = (const float *)(const void *)(c->q + (size_t)h * c->q_stride) +
		      (size_t)s->q0 * (size_t)even(c->dim);
		a.s = scores_at(c, h, s->q0) + (size_t)t * (size_t)s->m * 16;
		a.s_step = tn > 1 ? (size_t)s->m * 16 : (size_t)c->m * CHUNK;
		scores_any(way, hn, tn, s->m, &a);
	}
}

/* Score one head's tiles in pairs; several heads in their order in memory, tile by tile. */
static void score_all(enum way way, const struct cpu_kv_chunk *c, const struct seen *s, int n, int t0, int t1)
{
	const int step = c->n_heads > 1 ? 1 : 2;
	for (int t = t0; t < t1; t += step) {
		const unsigned char *behind = c->n_heads == 1 ? NULL : t + 1 < t1 ? c->k[t + 1] : c->v[t0];
		for (int h = 0; h < c->n_heads; h += 4)
			for (int g = 0; g < n; g++) {
				const int h1 = sooner(h + 4, c->n_heads), a = later(t, s[g].first / 16),
					  end = sooner(t + step, (s[g].last + 15) / 16),
					  tn = end - a == 2 && s[g].m <= ATTN_TILES2 ? 2 : 1;
				for (int i = a; i < end; i += tn)
					score(way, c, &s[g], i, tn, h, h1, behind);
			}
	}
}

/* Set the values to prefetch: those read after a head's tiles t0 <= t < t1.  last: end of all tiles. */
static void next_values(struct weighted_args *a, const struct cpu_kv_chunk *c, int head, int t0, int t1,
			int last)
{
	if (head + 1 < c->n_heads) {
		a->next = c->v;
		a->next_skip = (size_t)(head + 1) * c->v_bytes;
	} else if (2 * t1 - t0 <= last) {
		a->next = c->v + (t1 - t0);
		a->next_skip = 0;
	}
}

/* Weigh the values of tokens t0 <= t < t1.  Tokens that all queries of a group see go through one kernel.
 * The others, before and after (the edge of a window, the diagonal), go query by query: a token outside a
 * query's range never touches its result, not even times 0. */
static void weigh(enum way way, const struct cpu_kv_chunk *c, const struct seen *s, int head, int t0, int t1,
		  int last)
{
	const size_t pad = (size_t)c->dim_pad;
	struct weighted_args a = {.p = scores_at(c, head, s->q0),
				  .tile_stride = (size_t)s->m * 16,
				  .v = c->v,
				  .skip = (size_t)head * c->v_bytes,
				  .pad = pad,
				  .o = c->o + ((size_t)head * (size_t)c->m + (size_t)s->q0) * pad};
	int lo = s->lo, hi = s->hi;
	if (c->n_heads > 1)
		next_values(&a, c, head, t0 / 16, t1 / 16, (last + 15) / 16);
	if (way == WAY_DOTS) { /* whole steps */
		lo = (lo + DOT_STEP - 1) / DOT_STEP * DOT_STEP;
		hi = hi / DOT_STEP * DOT_STEP;
		if (lo >= hi)
			lo = hi = CHUNK;
	}
	for (int part = 0; part < 3; part++) {
		struct weighted_args one = a;
		if (part == 1) {
			one.from = later(lo, t0);
			one.to = sooner(hi, t1);
			weighted_any(way, s->m, one);
			continue;
		}
		for (int r = 0; r < s->m; r++, one.p += 16, one.o += pad) {
			const int from = c->from[s->q0 + r], to = c->to[s->q0 + r];
			one.from = later(part ? later(hi, from) : from, t0);
			one.to = sooner(part ? to : sooner(lo, to), t1);
			weighted_any(way, 1, one);
		}
	}
}

static void float_chunk(enum way way, const struct cpu_kv_chunk *c)
{
	struct seen s[KV_QUERIES];
	int n = 0, first = CHUNK, last = 0;
	for (int q0 = 0; q0 < c->m; q0 += s[n++].m) {
		s[n] = seen_by(c, q0);
		first = sooner(first, s[n].first);
		last = later(last, s[n].last);
	}
	score_all(way, c, s, n, first / 16, (last + 15) / 16);
	memset(c->o, 0, (size_t)c->n_heads * (size_t)c->m * (size_t)c->dim_pad * sizeof *c->o);
	for (int h = 0; h < c->n_heads; h++)
		for (int g = 0; g < n; g++)
			for (int r = 0; r < s[g].m; r++) {
				const int i = s[g].q0 + r, out = h * c->m + i;
				float *row = scores_at(c, h, s[g].q0) + r * 16;
				const size_t step = (size_t)s[g].m * 16;
				if (c->from[i] >= c->to[i])
					continue;
				if (c->cap > 0)
					cap_scores(row, step, c->from[i], c->to[i],
						   way == WAY_DOTS ? c->cap * DOT_LOG2_E : c->cap);
				if (c->alibi)
					alibi_scores(c, h, i, row, step, way == WAY_DOTS ? DOT_LOG2_E : 1);
				(way == WAY_DOTS ? dot_softmax : softmax)(row, step, c->from[i], c->to[i],
									  &c->max[out], &c->sum[out]);
			}
	/* Several heads are read in their order in memory, tile by tile; a single head stays in the cache. */
	const int step = c->n_heads == 1 ? CHUNK : way == WAY_DOTS ? DOT_STEP : KV_TILE;
	for (int t = first / step * step; t < last; t += step)
		for (int h = 0; h < c->n_heads; h++)
			for (int g = 0; g < n; g++)
				weigh(way, c, &s[g], h, t, t + step, last);
}

static size_t float_work_bytes(int dim, int n_heads, int m)
{
	(void)dim;
	return (size_t)n_heads * (size_t)m * CHUNK * sizeof(float);
}

static void f32_chunk(const struct cpu_kv_chunk *c)
{
	float_chunk(WAY_F32, c);
}

static void bf16_chunk(const struct cpu_kv_chunk *c)
{
	float_chunk(WAY_BF16, c);
}

static void dots_chunk(const struct cpu_kv_chunk *c)
{
	const unsigned was = flush_begin();
	float_chunk(WAY_DOTS, c);
	flush_end(was);
}

static const struct cpu_kv_type inner_kv_f32 = {
	.name = "f32",
	.one = 1,
	.span = ATTN_SPAN,
	.k_bytes = f32_k_bytes,
	.v_bytes = f32_v_bytes,
	.store = f32_store,
	.q_bytes = float_q_bytes,
	.queries = float_queries,
	.work_bytes = float_work_bytes,
	.chunk = f32_chunk,
};

static const struct cpu_kv_type inner_kv_bf16 = {
	.name = "bf16",
	.one = 1,
	.span = ATTN_SPAN,
	.k_bytes = bf16_k_bytes,
	.v_bytes = bf16_v_bytes,
	.store = bf16_store,
	.q_bytes = float_q_bytes,
	.queries = float_queries,
	.work_bytes = float_work_bytes,
	.chunk = bf16_chunk,
};

static const struct cpu_kv_type inner_kv_dots = {
	.name = "bf16 by multiply-adds",
	.one = 1,
	.span = ATTN_SPAN,
	.k_bytes = bf16_k_bytes,
	.v_bytes = bf16_v_bytes,
	.store = bf16_store,
	.q_bytes = float_q_bytes,
	.queries = dot_queries,
	.work_bytes = float_work_bytes,
	.chunk = dots_chunk,
};

#endif
