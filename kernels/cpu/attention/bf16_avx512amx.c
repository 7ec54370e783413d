/* bf16_avx512amx.c - attention of mode bf16 (bf16.h) for AMX.
 * Few queries go through multiply-adds, which sum in the same order.  Tests compile it with BF16_EMULATED.
 *
 * A square is 32 queries of a head:
 *     tile 0, 1   A: 16 queries each, 32 d; or their weights of 32 tokens
 *     tile 2, 3   B: 32 d of two tiles of K, as stored; or 32 tokens of two blocks of 16 d of V
 *     tile 4..7   C: A 0 B 2, A 0 B 3, A 1 B 2, A 1 B 3
 * V is gathered once for all squares, with tokens i and 16 + i of two tiles of the cache paired. */
#include "kernels/cpu/attention/bf16.h"
#include "kernels/cpu/bf16/bf16.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(BF16_EMULATED)

#include <math.h>
#include <string.h>

#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/attention/alibi.h"
#include "kernels/cpu/attention/exp2.h"
#include "kernels/cpu/bf16/flush.h"
#include "kernels/cpu/bf16/round.h"
#include "kernels/cpu/cpu.h"

#ifdef BF16_EMULATED
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(enable)") /* some loops have no fixed count */
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum {
	AMX_ROWS = 16,
	AMX_FEW = 8, /* most queries for multiply-adds */
	AMX_TILE = 1024,
	SQUARE = 2 * AMX_ROWS,
	STEP = 32,
	PAIRS = CHUNK / STEP,
	SPAN = 128,
	/* Row sizes are padded, since rows a power of two apart share cache sets. */
	ROW = CHUNK + LANES_N,    /* floats of a row of scores */
	WEIGHTS = 2 * CHUNK + 64, /* bytes of a row of weights */
};

#ifndef BF16_EMULATED

/* Asm, so that no compiler has to support the extension; "memory", since a tile cannot be an operand of
 * asm. */
#define AMX_LOAD(t, p, stride)                                                                               \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(p)), "r"((size_t)(stride))     \
			 : "memory")
#define AMX_STORE(t, p, stride)                                                                              \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void *)(p)), "r"((size_t)(stride))       \
			 : "memory")
#define AMX_ZERO(t)      __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define AMX_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define AMX_RELEASE()    __asm__ volatile("tilerelease" ::: "memory")

/* All eight tiles have 16 rows of 64 bytes. */
static void amx_configure(void)
{
	static const struct {
		uint8_t palette, start_row, reserved[14];
		uint16_t bytes[16];
		uint8_t rows[16];
	} config = {.palette = 1,
		    .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
		    .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
	__asm__ volatile("ldtilecfg %0" ::"m"(config));
}

#endif

#define LOG2_E 0x1.715476p+0f

/* The kernels for few queries, and for values that tiles would mix into queries that do not see them. */
static const struct cpu_isa *isa(void)
{
#ifdef BF16_EMULATED
	return cpu_isa_plain();
#else
	return cpu_isa_avx512();
#endif
}

static const struct cpu_kv_type *few(void)
{
	return isa()->kv_dots;
}

/* ---- sizes ---- */

static size_t up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static size_t kv_k_bytes(int dim)
{
	return few()->k_bytes(dim);
}

static size_t kv_v_bytes(int dim)
{
	return few()->v_bytes(dim);
}

static void store_token(unsigned char *kt, unsigned char *vt, int at, const float *k, const float *v, int dim)
{
	few()->store(kt, vt, at, k, v, dim);
}

/* Return the bytes of a query, in whole steps. */
static size_t query_bytes(int dim)
{
	return up((size_t)dim, STEP) * 2;
}

static size_t kv_q_bytes(int dim, int m)
{
	return m <= AMX_FEW ? few()->q_bytes(dim, m) : up((size_t)m, SQUARE) * query_bytes(dim);
}

static void kv_queries(unsigned char *out, const float *const *q, int m, int dim, float scale)
{
	const float by = scale * LOG2_E;
	unsigned char *to = out;
	if (m <= AMX_FEW) {
		few()->queries(out, q, m, dim, scale);
		return;
	}
	for (int i = 0; i < m; i++, to += query_bytes(dim)) {
		float x[HEAD_MAX];
		for (int d = 0; d < dim; d++)
			x[d] = q[i][d] * by;
		round_pairs(to, x, dim);
	}
	memset(to, 0, kv_q_bytes(dim, m) - (size_t)m * query_bytes(dim));
}

/* The scratch of a chunk, used for one head after another. */
struct scratch {
	float *s;            /* [SQUARE][ROW] scores */
	unsigned char *p;    /* [SQUARE] rows of WEIGHTS bytes */
	unsigned char *v;    /* [PAIRS][dim_pad / 16] tiles of V */
	unsigned char *k;    /* [2] tiles of K, padded to whole steps */
	float *o;            /* [SQUARE][dim_pad]: results of a square with fewer queries */
	float *q;            /* [dim] of a single query */
	unsigned char *work; /* scratch of few() for that query */
	size_t bytes;
};

static struct scratch scratch_at(unsigned char *base, int dim)
{
	const size_t pad = up((size_t)dim, 16),
		     sizes[] = {SQUARE * ROW * sizeof(float), SQUARE * WEIGHTS,
				pad / 16 * PAIRS * AMX_TILE,  2 * (query_bytes(dim) / 64) * AMX_TILE,
				SQUARE * pad * sizeof(float), up(few()->q_bytes(dim, 1), 64)};
	unsigned char *at[sizeof sizes / sizeof *sizes + 1];
	size_t n = 0;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; n += sizes[i++])
		at[i] = base ? base + n : NULL;
	return (struct scratch){.s = (float *)(void *)at[0],
				.p = at[1],
				.v = at[2],
				.k = at[3],
				.o = (float *)(void *)at[4],
				.q = (float *)(void *)at[5],
				.work = base ? base + n : NULL,
				.bytes = n + few()->work_bytes(dim, 1, 1)};
}

static size_t kv_work_bytes(int dim, int n_heads, int m)
{
	const size_t one = few()->work_bytes(dim, n_heads, m < AMX_FEW ? m : AMX_FEW),
		     many = scratch_at(NULL, dim).bytes;
	return m <= AMX_FEW || one > many ? one : many;
}

/* ---- a head ---- */

struct head {
	const struct cpu_kv_chunk *c;
	int h;
	int t0, t1; /* tiles that some query sees */
	int lo, hi; /* tokens that some query sees */
	bool edges; /* some query sees fewer of them */
	struct scratch s;
};

static struct head head_of(const struct cpu_kv_chunk *c)
{
	struct head h = {.c = c, .lo = CHUNK, .hi = 0, .s = scratch_at(c->work, c->dim)};
	for (int i = 0; i < c->m; i++)
		if (c->from[i] < c->to[i]) {
			h.lo = c->from[i] < h.lo ? c->from[i] : h.lo;
			h.hi = c->to[i] > h.hi ? c->to[i] : h.hi;
		}
	for (int i = 0; i < c->m; i++)
		h.edges |= c->from[i] < c->to[i] && (c->from[i] > h.lo || c->to[i] < h.hi);
	h.t0 = h.lo / 16;
	h.t1 = (h.hi + 15) / 16;
	return h;
}

/* Return a mask, with 16 bits each for tokens 2 i and 2 i + 1 of tile t: set if some query sees the token. */
static uint32_t pair_seen(const struct head *h, int t, int i)
{
	const int a = t * 16 + 2 * i, b = a + 1;
	return (a >= h->lo && a < h->hi ? 0xffffu : 0) | (b >= h->lo && b < h->hi ? 0xffff0000u : 0);
}

/* (a & mask) | b */
VFN __m512i either(__m512i a, __m512i mask, __m512i b)
{
	return _mm512_ternarylogic_epi32(a, mask, b, 0xEA);
}

/* Convert lines i of V of two tiles to lines of operands B; x or y NULL: zeros.  With edges, values that no
 * query sees become 0, and *top is raised to the largest exponents. */
VFN void gather_lines(const bool edges, unsigned char *to, const unsigned char *x, const unsigned char *y,
		      int blocks, const uint32_t mask[2], __m512i *top)
{
	const __m512i high = _mm512_set1_epi32((int)0xffff0000), low = _mm512_set1_epi32(0xffff);
	const __m512i size = _mm512_set1_epi32(0x7fff7fff), zero = _mm512_setzero_si512();
	for (int b = 0; b < blocks; b++, to += AMX_TILE) {
		__m512i vx = x ? _mm512_loadu_si512(x + b * 64) : zero;
		__m512i vy = y ? _mm512_loadu_si512(y + b * 64) : zero;
		if (edges) {
			vx = _mm512_and_si512(vx, _mm512_set1_epi32((int)mask[0]));
			vy = _mm512_and_si512(vy, _mm512_set1_epi32((int)mask[1]));
			*top = _mm512_max_epu16(*top, _mm512_and_si512(vx, size));
			*top = _mm512_max_epu16(*top, _mm512_and_si512(vy, size));
		}
		_mm512_storeu_si512(to, either(vx, low, _mm512_slli_epi32(vy, 16)));
		_mm512_storeu_si512(to + 64, either(vy, high, _mm512_srli_epi32(vx, 16)));
	}
}

/* Gather V as operands B; values that no query sees are 0.  Returns false if a value is not finite and some
 * query does not see all tokens. */
static bool gather_values(const struct head *h)
{
	const struct cpu_kv_chunk *c = h->c;
	const size_t line = (size_t)c->dim_pad * 4, skip = (size_t)h->h * c->v_bytes;
	const int blocks = c->dim_pad / 16;
	const bool edges = h->edges || h->lo > 0 || h->hi < CHUNK;
	__m512i top = _mm512_setzero_si512();
	for (int pair = h->t0 / 2; pair < (h->t1 + 1) / 2; pair++)
		for (int i = 0; i < 8; i++) {
			const int t = 2 * pair;
			const uint32_t seen[2] = {pair_seen(h, t, i), pair_seen(h, t + 1, i)};
			const unsigned char *x = seen[0] ? c->v[t] + skip + (size_t)i * line : NULL,
					    *y = seen[1] ? c->v[t + 1] + skip + (size_t)i * line : NULL;
			unsigned char *to = h->s.v + (size_t)(pair * blocks) * AMX_TILE + (size_t)i * 128;
			if (edges)
				gather_lines(true, to, x, y, blocks, seen, &top);
			else
				gather_lines(false, to, x, y, blocks, seen, &top);
		}
	uint16_t most[32];
	memcpy(most, &top, sizeof most);
	for (int i = 0; i < 32 && h->edges; i++)
		if (most[i] >= 0x7f80)
			return false;
	return true;
}

/* Compute query by query, so that a token is never multiplied for a query that does not see it. */
static void head_alone(const struct head *h)
{
	const struct cpu_kv_chunk *c = h->c;
	const uint16_t *q = (const uint16_t *)(const void *)(c->q + (size_t)h->h * c->q_stride);
	struct cpu_kv_chunk one = *c;
	one.n_heads = one.m = 1;
	one.q = (unsigned char *)h->s.q;
	one.work = h->s.work;
	for (int t = h->t0; t < h->t1; t++) {
		one.k[t] = c->k[t] + (size_t)h->h * c->k_bytes;
		one.v[t] = c->v[t] + (size_t)h->h * c->v_bytes;
	}
	for (int i = 0; i < c->m; i++, q += query_bytes(c->dim) / 2) {
		const size_t out = (size_t)h->h * (size_t)c->m + (size_t)i;
		for (int d = 0; d < (c->dim + 1) / 2 * 2; d++)
			h->s.q[d] = half_from_bf16(q[d]);
		one.from = c->from + i;
		one.to = c->to + i;
		one.max = c->max + out;
		one.sum = c->sum + out;
		one.o = c->o + out * (size_t)c->dim_pad;
		if (c->from[i] < c->to[i])
			few()->chunk(&one);
	}
}

/* ---- a square ---- */

struct square {
	const struct head *h;
	int r0, n;  /* queries */
	int p0, p1; /* pairs of tiles that some of the queries see */
};

static struct square square_at(const struct head *h, int r0)
{
	const struct cpu_kv_chunk *c = h->c;
	struct square q = {.h = h, .r0 = r0, .n = c->m - r0 < SQUARE ? c->m - r0 : SQUARE, .p0 = PAIRS};
	for (int r = r0; r < r0 + q.n; r++)
		if (c->from[r] < c->to[r]) {
			const int p0 = c->from[r] / STEP, p1 = (c->to[r] + STEP - 1) / STEP;
			q.p0 = p0 < q.p0 ? p0 : q.p0;
			q.p1 = p1 > q.p1 ? p1 : q.p1;
		}
	q.p0 = q.p0 < q.p1 ? q.p0 : q.p1;
	return q;
}

/* Multiply two blocks of 16 rows by two of 16 columns (or twice the same), over n steps.  a_row: bytes
 * between rows; b_step: between steps. */
VFN void products_of(const unsigned char *a, size_t a_row, const unsigned char *b0, const unsigned char *b1,
		     size_t b_step, const int n)
{
	const unsigned char *a1 = a + AMX_ROWS * a_row;
	AMX_ZERO(4);
	AMX_ZERO(5);
	AMX_ZERO(6);
	AMX_ZERO(7);
	UNROLL for (int i = 0; i < n; i++)
	{
		AMX_LOAD(0, a + i * 64, a_row);
		AMX_LOAD(2, b0, 64);
		AMX_DOT(4, 0, 2);
		AMX_LOAD(3, b1, 64);
		AMX_DOT(5, 0, 3);
		AMX_LOAD(1, a1 + i * 64, a_row);
		AMX_DOT(6, 1, 2);
		AMX_DOT(7, 1, 3);
		b0 += b_step;
		b1 += b_step;
	}
}

static void products(const unsigned char *a, size_t a_row, const unsigned char *b0, const unsigned char *b1,
		     size_t b_step, int n)
{
	if (n == 8)
		products_of(a, a_row, b0, b1, b_step, 8);
	else if (n == 4)
		products_of(a, a_row, b0, b1, b_step, 4);
	else if (n == 2)
		products_of(a, a_row, b0, b1, b_step, 2);
	else
		products_of(a, a_row, b0, b1, b_step, n);
}

/* Return K of tile t, or a copy padded with zeros if its lines are not whole steps. */
static const unsigned char *key_lines(const struct head *h, int t)
{
	const struct cpu_kv_chunk *c = h->c;
	const unsigned char *k = c->k[t] + (size_t)h->h * c->k_bytes;
	const size_t bytes = (size_t)((c->dim + 1) / 2) * 64, all = query_bytes(c->dim) / 64 * AMX_TILE;
	unsigned char *to = h->s.k + (size_t)(t % 2) * all;
	if (bytes == all)
		return k;
	memcpy(to, k, bytes);
	memset(to + bytes, 0, all - bytes);
	return to;
}

/* Score the queries with both tiles of a pair. */
static void score_pair(const struct square *q, int pair)
{
	const struct head *h = q->h;
	const int t0 = 2 * pair < h->t0 ? h->t0 : 2 * pair, t1 = 2 * pair + 1 < h->t1 ? 2 * pair + 1 : t0;
	const size_t row = query_bytes(h->c->dim), stride = ROW * sizeof(float);
	float *s = h->s.s + pair * STEP;
	products(h->c->q + (size_t)h->h * h->c->q_stride + (size_t)q->r0 * row, row, key_lines(h, t0),
		 key_lines(h, t1), AMX_TILE, (int)(row / 64));
	AMX_STORE(4, s, stride);
	AMX_STORE(5, s + 16, stride);
	AMX_STORE(6, s + AMX_ROWS * ROW, stride);
	AMX_STORE(7, s + AMX_ROWS * ROW + 16, stride);
}

/* Return v in tile t, `other` where a query does not see from <= i < to. */
VFN vf seen(vf v, int t, int from, int to, vf other)
{
	const int a = from - t * 16, b = to - t * 16;
	if (a >= 16 || b <= 0)
		return other;
	return a <= 0 && b >= 16 ? v : v_keep_range(v, a > 0 ? a : 0, b < 16 ? b : 16, other);
}

static float top_score(const float *s, int from, int to)
{
	const vf low = v_set1(-INFINITY);
	vf m[4] = {low, low, low, low};
	if (from == 0 && to == CHUNK) {
		UNROLL for (int i = 0; i < 4; i++) m[i] = v_load(s + i * 16);
		UNROLL for (int i = 4; i < CHUNK_TILES; i++) m[i % 4] = v_max(m[i % 4], v_load(s + i * 16));
	} else {
		const int t0 = from / 16, t1 = (to + 15) / 16 - 1;
		m[0] = seen(v_load(s + t0 * 16), t0, from, to, low);
		m[1] = seen(v_load(s + t1 * 16), t1, from, to, low);
		for (int t = t0 + 1; t < t1; t++)
			m[t % 4] = v_max(m[t % 4], v_load(s + t * 16));
	}
	return v_hmax(v_max(v_max(m[0], m[1]), v_max(m[2], m[3])));
}

/* Store weights as BF16, those of two tiles interleaved. */
VFN void store_weights(unsigned char *p, vf x, vf y)
{
	const __m512i high = _mm512_set1_epi32((int)0xffff0000), half = _mm512_set1_epi32(0x8000);
	const __m512i first = _mm512_add_epi32(_mm512_castps_si512(x), half),
		      second = _mm512_add_epi32(_mm512_castps_si512(y), half);
	_mm512_storeu_si512(p, either(second, high, _mm512_srli_epi32(first, 16)));
}

/* Compute the weights of a query in all pairs of its square; return their sum. */
static float weigh_row(const struct square *q, const float *s, unsigned char *p, int from, int to, float max)
{
	const vf top = v_set1(max);
	vf sum = v_zero();
	if (from == 0 && to == CHUNK) {
		UNROLL for (int at = 0; at < CHUNK; at += STEP)
		{
			const vf x = exp2_3(v_sub(v_load(s + at), top)),
				 y = exp2_3(v_sub(v_load(s + at + 16), top));
			sum = v_add(v_add(sum, x), y);
			store_weights(p + at * 2, x, y);
		}
		return v_hsum(sum);
	}
	for (int pair = q->p0; pair < q->p1; pair++) {
		const int at = pair * STEP;
		if (from >= at + STEP || to <= at) {
			_mm512_storeu_si512(p + at * 2, _mm512_setzero_si512());
			continue;
		}
		vf x = exp2_3(v_sub(v_load(s + at), top)), y = exp2_3(v_sub(v_load(s + at + 16), top));
		if (from > at || to < at + STEP) {
			x = seen(x, 2 * pair, from, to, v_zero());
			y = seen(y, 2 * pair + 1, from, to, v_zero());
		}
		sum = v_add(v_add(sum, x), y);
		store_weights(p + at * 2, x, y);
	}
	return v_hsum(sum);
}

/* Return the largest score of query r of a square, after the cap and ALiBi if there are any. */
static float top_of(const struct square *q, int r)
{
	const struct cpu_kv_chunk *c = q->h->c;
	const int from = c->from[q->r0 + r], to = c->to[q->r0 + r], t0 = from / 16, t1 = (to + 15) / 16;
	float *s = q->h->s.s + r * ROW;
	if (from >= to)
		return 0;
	if (c->cap > 0)
		isa()->softcap(s + t0 * 16, (t1 - t0) * 16, c->cap * LOG2_E);
	if (c->alibi)
		alibi_scores(c, q->h->h, q->r0 + r, s, 16, LOG2_E);
	return top_score(s, from, to);
}

static void weigh_rows(const struct square *q)
{
	const struct cpu_kv_chunk *c = q->h->c;
	float *s = q->h->s.s, top[SQUARE];
	for (int r = 0; r < q->n; r++)
		top[r] = top_of(q, r);
	for (int r = 0; r < SQUARE; r++) {
		unsigned char *p = q->h->s.p + r * WEIGHTS;
		const int i = q->r0 + r;
		const size_t out = (size_t)q->h->h * (size_t)c->m + (size_t)i;
		if (r >= q->n || c->from[i] >= c->to[i]) {
			memset(p + q->p0 * 64, 0, (size_t)(q->p1 - q->p0) * 64);
			continue;
		}
		c->sum[out] = weigh_row(q, s + r * ROW, p, c->from[i], c->to[i], top[r]);
		c->max[out] = top[r] * 0x1.62e43p-1f;
	}
}

/* Compute the weighted sums of two blocks of 16 d. */
static void value_blocks(const struct square *q, int b)
{
	const struct head *h = q->h;
	const size_t pad = (size_t)h->c->dim_pad, step = pad / 16 * AMX_TILE;
	const bool two = (b + 1) * 16 < h->c->dim_pad;
	const unsigned char *v = h->s.v + (size_t)q->p0 * step + (size_t)b * AMX_TILE;
	float *o = q->n == SQUARE ? h->c->o + ((size_t)h->h * (size_t)h->c->m + (size_t)q->r0) * pad : h->s.o;
	o += b * 16;
	products(h->s.p + q->p0 * 64, WEIGHTS, v, two ? v + AMX_TILE : v, step, q->p1 - q->p0);
	AMX_STORE(4, o, pad * 4);
	AMX_STORE(6, o + AMX_ROWS * pad, pad * 4);
	if (two) {
		AMX_STORE(5, o + 16, pad * 4);
		AMX_STORE(7, o + AMX_ROWS * pad + 16, pad * 4);
	}
}

static void run_square(const struct head *h, int r0)
{
	const struct square q = square_at(h, r0);
	const size_t pad = (size_t)h->c->dim_pad;
	if (q.p0 == q.p1)
		return;
	for (int p = q.p0; p < q.p1; p++)
		score_pair(&q, p);
	weigh_rows(&q);
	for (int b = 0; b * 16 < h->c->dim_pad; b += 2)
		value_blocks(&q, b);
	if (q.n < SQUARE)
		memcpy(h->c->o + ((size_t)h->h * (size_t)h->c->m + (size_t)r0) * pad, h->s.o,
		       (size_t)q.n * pad * sizeof(float));
}

/* ---- a chunk ---- */

static void kv_chunk(const struct cpu_kv_chunk *c)
{
	if (c->m <= AMX_FEW) {
		few()->chunk(c);
		return;
	}
	struct head h = head_of(c);
	const unsigned was = flush_begin();
	amx_configure();
	for (; h.h < c->n_heads; h.h++) {
		if (!gather_values(&h)) {
			head_alone(&h);
			continue;
		}
		for (int r0 = 0; r0 < c->m; r0 += SQUARE)
			run_square(&h, r0);
	}
	AMX_RELEASE();
	flush_end(was);
}

static const struct cpu_kv_type amx_kv = {
	.name = "bf16 by amx",
	.one = 1,
	.span = SPAN,
	.k_bytes = kv_k_bytes,
	.v_bytes = kv_v_bytes,
	.store = store_token,
	.q_bytes = kv_q_bytes,
	.queries = kv_queries,
	.work_bytes = kv_work_bytes,
	.chunk = kv_chunk,
};

#ifdef BF16_EMULATED

const struct cpu_kv_type *BF16_EMULATED(void)
{
	return &amx_kv;
}

#else

/* cpu_bf16_amx() requests the tiles from the system. */
const struct cpu_kv_type *cpu_kv_bf16_amx(void)
{
	return cpu_isa_avx512() && cpu_bf16_amx() ? &amx_kv : NULL;
}

#endif

#else

const struct cpu_kv_type *cpu_kv_bf16_amx(void)
{
	return NULL;
}

#endif
