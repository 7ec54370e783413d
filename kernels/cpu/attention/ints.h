/* ints.h - attention on INT8 and INT16 keys and values, one source for every instruction set: see int.h.
 * Included once by each int_*.c, which first includes its vec_*.h and defines
 *   INT_NAME                the table's name
 *   INT_ACC                 accumulators of 16 sums that fit the registers
 *   INT_ROWS                most queries that one kernel takes
 *   INT_W_AT(tile, quad)    index of four tokens' weights in a row's weights, in fours
 *   INT_PAD                 from this many queries on, they are padded with zeros to a multiple of 16
 *
 * and these types and functions:
 *   kl, vl   a line of K or of V
 *   ks, ws   four values of a query or four weights, both planes, the same in all lanes
 *   ka, va   partial sums
 *   qa       16 int32: qa_add, qa_float, qa_load, qa_store
 *
 *   kl_load, vl_load, ks_load, ws_load
 *   ka_begin(query, planes), ka_full(ka, kl, ks) += q k, ka_high(ka, kl, ks) += qh k, ka_end
 *   va_begin(), va_full(va, vl, ws) += w v, va_high(va, vl, ws) += wh v, va_end
 *   v_swap(v, n)             lane i is lane i ^ n of v: n 1, 2, 4 or 8
 *   w_store(high, low, e)    four vectors of weights, rounded, as two planes of 64 bytes */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/cpu/attention/alibi.h"
#include "kernels/cpu/attention/int.h"

#define PRAGMA(x) _Pragma(#x)
#ifdef INT_EMULATED
#define UNROLL
#define ROLLED
#elif defined(__clang__)
#define UNROLL PRAGMA(clang loop unroll(full))
#define ROLLED PRAGMA(clang loop unroll(disable))
#else
#define UNROLL PRAGMA(GCC unroll 16)
#define ROLLED PRAGMA(GCC unroll 1)
#endif

/* x + 1.5 * 2^23 has x, rounded to the nearest integer (ties to even), in its low bits. */
#define ROUND_MAGIC 12582912.0f

#define LOG2_E 0x1.715476p+0f
#define LN_2   0x1.62e43p-1f

enum {
	TOP8 = 127,
	TOP16 = 127 * 256,
	GROUP_TILES = 4, /* tiles of 16 tokens: their weights are one line */
	GROUPS = CHUNK_TILES / GROUP_TILES,
	ROW = CHUNK + LANES_N, /* floats in a row of scores; rows a power of two apart would share cache
				  sets */
	DIM_MAX = KV_INT_DIM_MAX,
};

/* ---- sizes ---- */

static inline int lines_k(int dim)
{
	return (dim + 3) / 4;
}

static size_t bytes_k(int planes, int dim)
{
	return (size_t)(lines_k(dim) * planes) * 64 + 128;
}

static size_t bytes_v(int planes, int dim)
{
	return (size_t)((dim + 15) / 16 * 4 * planes) * 64;
}

/* A prepared query: qh int8 [dim64] | ql int8 [dim64] | this head */
struct query {
	float scale;
	int32_t sum_high, sum_low;
	int32_t unused[13];
};

static inline size_t dim64(int dim)
{
	return ((size_t)dim + 63) / 64 * 64;
}

static inline size_t query_bytes(int dim)
{
	return 2 * dim64(dim) + sizeof(struct query);
}

static inline const struct query *query_head(const unsigned char *q, size_t d64)
{
	return (const struct query *)(const void *)(q + 2 * d64);
}

static size_t int_q_bytes(int dim, int m)
{
	if (m >= INT_PAD)
		m = (m + 15) & ~15;
	return (size_t)m * query_bytes(dim);
}

/* ---- exp and log ---- */

/* 65535 * 2^x; x below -100 counts as -100, NaN stays NaN.  A polynomial of degree 5 on the fraction, -0.5 to
 * 0.5, with a relative error of 8e-8. */
VFN vf exp2_top(vf x)
{
	const vf round = v_set1(ROUND_MAGIC);
	x = v_max(v_set1(-100), x);
	const vf t = v_add(x, round), r = v_sub(x, v_sub(t, round));
	vf p = v_set1(65535 * 0.0013276472167834048f);
	p = v_fma(p, r, v_set1(65535 * 0.0096755413310236106f));
	p = v_fma(p, r, v_set1(65535 * 0.05550713272875276f));
	p = v_fma(p, r, v_set1(65535 * 0.24022119723969129f));
	p = v_fma(p, r, v_set1(65535 * 0.69314696706526524f));
	p = v_fma(p, r, v_set1(65535 * 1.0000000716546418f));
	return v_scale2(p, t);
}

static float exp2_one(float x)
{
	return v_lane0(v_mul(exp2_top(v_set1(x)), v_set1(1 / 65535.0f)));
}

/* Return a value 0 to 0.01 above log2(x), clipped to -40 .. 40.  The scale of a value is 2 to this power, not
 * x itself. */
static float log2_above(float x)
{
	int32_t u;
	memcpy(&u, &x, 4);
	const float l = (float)(u - 0x3f800000) * 0x1p-23f, t = l - floorf(l);
	const float y = l + 0.3465f * t * (1 - t) + 0.004f;
	return x > 0 ? y < -40 ? -40 : y > 40 ? 40 : y : -40;
}

/* ---- quantization ---- */

/* Return the largest |x|; NaN if a value is not finite. */
VFN float most_of(const float *x, int n)
{
	vf most = v_zero(), wrong = v_zero();
	for (int i = 0; i < n; i += 16) {
		vf v = n - i >= 16 ? v_load(x + i) : v_load_n(x + i, n - i);
		most = v_max(v_max(v, v_sub(v_zero(), v)), most);
		wrong = v_fma(v, v_zero(), wrong);
	}
	const float bad = v_hsum(wrong);
	return bad == 0 ? v_hmax(most) : NAN;
}

/* code[i] = x[i] * inverse, rounded; 0 from n up to a multiple of 16. */
VFN void codes_of(int32_t *code, const float *x, int n, float inverse, int top)
{
	float t[DIM_MAX];
	for (int i = 0; i < n; i += 16) {
		vf v = n - i >= 16 ? v_load(x + i) : v_load_n(x + i, n - i);
		v = v_min(v_max(v_mul(v, v_set1(inverse)), v_set1((float)-top)), v_set1((float)top));
		v_store(t + i, v_add(v, v_set1(ROUND_MAGIC)));
	}
	memcpy(code, t, (size_t)((n + 15) / 16 * 16) * sizeof *code);
	for (int i = 0; i < (n + 15) / 16 * 16; i++)
		code[i] = inverse != 0 ? code[i] - 0x4b400000 : 0;
}

static int8_t high_byte(int32_t code)
{
	return (int8_t)((code + 128) >> 8);
}

/* ---- rotation ---- */

/* Replace lane i of a and its partner i ^ n by their sum (in the lower lane) and difference. */
VFN vf turn_lanes(vf a, const int n)
{
	static const float signs[4][16] = {
		{1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
		{1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
		{1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
		{1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
	};
	return v_fma(a, v_load(signs[n == 1 ? 0 : n == 2 ? 1 : n == 4 ? 2 : 3]), v_swap(a, n));
}

/* Return the size of the blocks that are rotated. */
static int turn_size(int dim)
{
	return dim & -dim;
}

/* Multiply each block of x by a Hadamard matrix of ones; x has room for a multiple of 16. */
static void turn(float *x, int dim)
{
	const int size = turn_size(dim);
	for (int i = 0; i < dim; i += 16) {
		vf a = v_load(x + i);
		if (size >= 2)
			a = turn_lanes(a, 1);
		if (size >= 4)
			a = turn_lanes(a, 2);
		if (size >= 8)
			a = turn_lanes(a, 4);
		if (size >= 16)
			a = turn_lanes(a, 8);
		v_store(x + i, a);
	}
	for (int h = 16; h < size; h *= 2)
		for (int i = 0; i < dim; i += 2 * h)
			for (int j = i; j < i + h; j += 16) {
				const vf a = v_load(x + j), b = v_load(x + j + h);
				v_store(x + j, v_add(a, b));
				v_store(x + j + h, v_sub(a, b));
			}
}

/* ---- the cache ---- */

/* Store the bytes of n codes, a multiple of 16: whole codes, or their upper and lower halves. */
static void bytes_of(int planes, unsigned char *high, unsigned char *low, const int32_t *code, int n)
{
	if (planes == 1) {
		for (int i = 0; i < n; i++)
			high[i] = (unsigned char)code[i];
		return;
	}
	for (int i = 0; i < n; i++)
		high[i] = (unsigned char)high_byte(code[i]);
	for (int i = 0; i < n; i++)
		low[i] = (unsigned char)code[i];
}

static void store_k(int planes, unsigned char *kt, int at, const float *k, int dim)
{
	float x[DIM_MAX] = {0};
	int32_t code[DIM_MAX];
	unsigned char high[DIM_MAX], low[DIM_MAX];
	memcpy(x, k, (size_t)dim * sizeof *x);
	if (planes == 1)
		turn(x, dim);
	const int top = planes == 1 ? TOP8 : TOP16;
	const float most = most_of(x, dim);
	const int some = most >= 1e-30f;
	codes_of(code, x, dim, some ? (float)top / most : 0, top);
	bytes_of(planes, high, low, code, (dim + 15) / 16 * 16);
	for (int i = 0; i < lines_k(dim); i++) {
		unsigned char *to = kt + (size_t)(i * planes) * 64 + at * 4;
		memcpy(to, high + 4 * i, 4);
		if (planes == 2)
			memcpy(to + 64, low + 4 * i, 4);
	}
	const float scale = most == most ? some ? most / TOP8 : 0 : most;
	memcpy(kt + (size_t)(lines_k(dim) * planes) * 64 + at * 4, &scale, 4);
}

/* Store byte by byte: neighbouring tokens, which another thread may store at the same time, share the
 * lines. */
static void store_v(int planes, unsigned char *kt, unsigned char *vt, int at, const float *v, int dim)
{
	int32_t code[DIM_MAX];
	unsigned char high[DIM_MAX], low[DIM_MAX];
	const int top = planes == 1 ? TOP8 : TOP16;
	const float most = most_of(v, dim);
	const float log = most == most ? log2_above(most / TOP8) : most;
	codes_of(code, v, dim, most == most ? exp2_one(-log) * (float)(top / TOP8) : 0, top);
	bytes_of(planes, high, low, code, (dim + 15) / 16 * 16);
	for (int i = 0; i < (dim + 15) / 16 * 16; i += 16) {
		unsigned char *to = vt + (size_t)((i / 4 + at / 4) * planes) * 64 + at % 4;
		for (int j = 0; j < 16; j++)
			to[4 * j] = high[i + j];
		for (int j = 0; planes == 2 && j < 16; j++)
			to[64 + 4 * j] = low[i + j];
	}
	memcpy(kt + (size_t)(lines_k(dim) * planes) * 64 + 64 + at * 4, &log, 4);
}

static void store(int planes, unsigned char *kt, unsigned char *vt, int at, const float *k, const float *v,
		  int dim)
{
	store_k(planes, kt, at, k, dim);
	store_v(planes, kt, vt, at, v, dim);
}

static void query(int planes, unsigned char *out, const float *q, int dim, float scale)
{
	float x[DIM_MAX] = {0};
	int32_t code[DIM_MAX];
	const size_t d64 = dim64(dim);
	struct query head = {0};
	memcpy(x, q, (size_t)dim * sizeof *x);
	if (planes == 1) {
		turn(x, dim);
		scale /= (float)turn_size(dim);
	}
	const float most = most_of(x, dim);
	const int some = most >= 1e-30f;
	codes_of(code, x, dim, some ? (float)TOP16 / most : 0, TOP16);
	head.scale = most == most ? some ? most / (float)TOP16 * scale : 0 : most;
	memset(out, 0, 2 * d64);
	for (int i = 0; i < dim; i++) {
		const int8_t high = high_byte(code[i]), low = (int8_t)(code[i] - high * 256);
		out[i] = (unsigned char)high;
		out[d64 + (size_t)i] = (unsigned char)low;
		head.sum_high += high;
		head.sum_low += low;
	}
	memcpy(out + 2 * d64, &head, sizeof head);
}

static void queries(int planes, unsigned char *out, const float *const *q, int m, int dim, float scale)
{
	const size_t each = query_bytes(dim);
	for (int i = 0; i < m; i++)
		query(planes, out + (size_t)i * each, q[i], dim, scale);
	memset(out + (size_t)m * each, 0, int_q_bytes(dim, m) - (size_t)m * each);
}

/* ---- scratch ---- */

/* One head's arrays in a chunk's scratch; those of the next head follow. */
struct scratch {
	float *s;         /* [m][ROW] scores */
	unsigned char *w; /* [m][2][CHUNK] planes of weights, indexed by INT_W_AT */
	int32_t *o;       /* [m][dim_pad] */
	float *log;       /* [CHUNK] natural logarithms of the value scales, added to scores; 0 with a cap */
	float *late;      /* [CHUNK] the logarithms in any case, added after a cap */
	float *inverse;   /* [CHUNK] 1 / scale */
};

static size_t head_scratch(int dim_pad, int m)
{
	m = (m + 15) & ~15;
	return (size_t)m * (ROW * sizeof(float) + 2 * CHUNK + (size_t)dim_pad * sizeof(int32_t)) +
	       3 * CHUNK * sizeof(float);
}

static struct scratch scratch_of(const struct cpu_kv_chunk *c, int head)
{
	const size_t m = (size_t)((c->m + 15) & ~15);
	struct scratch s;
	unsigned char *p = c->work + (size_t)head * head_scratch(c->dim_pad, c->m);
	s.s = (float *)(void *)p;
	s.w = p + m * ROW * sizeof(float);
	s.o = (int32_t *)(void *)(s.w + m * 2 * CHUNK);
	s.log = (float *)(void *)(s.o + m * (size_t)c->dim_pad);
	s.inverse = s.log + CHUNK;
	s.late = s.inverse + CHUNK;
	return s;
}

/* State that a chunk's kernels share: the tiles that some query sees, and the layout. */
struct job {
	const struct cpu_kv_chunk *c;
	int planes;
	int t0, t1;       /* tiles */
	int lines;        /* lines of K, each of `planes` lines of 64 bytes */
	size_t d64, each; /* bytes of a plane of a prepared query, and of all of it */
};

static struct job job_of(const struct cpu_kv_chunk *c, int planes)
{
	struct job j = {.c = c, .planes = planes, .t0 = CHUNK_TILES, .lines = lines_k(c->dim)};
	for (int i = 0; i < c->m; i++)
		if (c->from[i] < c->to[i]) {
			const int t0 = c->from[i] / 16, t1 = (c->to[i] + 15) / 16;
			j.t0 = t0 < j.t0 ? t0 : j.t0;
			j.t1 = t1 > j.t1 ? t1 : j.t1;
		}
	j.d64 = dim64(c->dim);
	j.each = query_bytes(c->dim);
	return j;
}

/* Load the scales of the values of a head. */
static void value_scales(const struct job *j, int head, const struct scratch *s)
{
	for (int t = j->t0; t < j->t1; t++) {
		const unsigned char *k = j->c->k[t] + (size_t)head * j->c->k_bytes;
		const vf log =
			v_load((const float *)(const void *)(k + (size_t)(j->lines * j->planes) * 64 + 64));
		v_store(s->late + t * 16, v_mul(log, v_set1(LN_2)));
		v_store(s->log + t * 16, j->c->cap > 0 ? v_zero() : v_mul(log, v_set1(LN_2)));
		v_store(s->inverse + t * 16, v_mul(exp2_top(v_sub(v_zero(), log)), v_set1(1 / 65535.0f)));
	}
}

/* ---- scores ---- */

VFN vf score(qa sum, vf key_scale, vf query_scale, vf log)
{
	return v_fma(v_mul(qa_float(sum), key_scale), query_scale, log);
}

struct scores_args {
	const unsigned char *q; /* first query */
	size_t d64, each;
	const unsigned char *k[GROUP_TILES];
	int lines;
	const float *log; /* from the first tile on */
	float *s;         /* from the first query and tile on */
};

VFN void scores(const int tn, const int m, const int planes, const struct scores_args *a)
{
	ka acc[GROUP_TILES][INT_ROWS];
	const unsigned char *q = a->q, *k[GROUP_TILES];
	UNROLL for (int v = 0; v < tn; v++) k[v] = a->k[v];
	UNROLL for (int r = 0; r < m; r++)
	{
		const ka first = ka_begin(query_head(q + (size_t)r * a->each, a->d64), planes);
		UNROLL for (int v = 0; v < tn; v++) acc[v][r] = first;
	}
	ROLLED for (int i = 0; i < a->lines; i++)
	{
		UNROLL for (int p = 0; p < planes; p++)
		{
			kl line[GROUP_TILES];
			UNROLL for (int v = 0; v < tn; v++) line[v] = kl_load(k[v] + p * 64);
			UNROLL for (int r = 0; r < m; r++)
			{
				const ks x = ks_load(q + (size_t)r * a->each + i * 4, a->d64);
				UNROLL for (int v = 0; v < tn; v++) acc[v][r] =
					p ? ka_high(acc[v][r], line[v], x) : ka_full(acc[v][r], line[v], x);
			}
		}
		UNROLL for (int v = 0; v < tn; v++) k[v] += planes * 64;
	}
	UNROLL for (int v = 0; v < tn; v++)
	{
		const vf scale = v_load((const float *)(const void *)k[v]), log = v_load(a->log + v * 16);
		UNROLL for (int r = 0; r < m; r++)
		{
			const float own = query_head(q + (size_t)r * a->each, a->d64)->scale;
			v_store(a->s + r * ROW + v * 16, score(ka_end(acc[v][r]), scale, v_set1(own), log));
		}
	}
}

/* ---- weights ---- */

/* Clear a query's weights in groups g0 to g1 of tiles. */
static void no_weights(unsigned char *w, int g0, int g1)
{
	for (int p = 0; g0 < g1 && p < 2; p++)
		memset(w + (size_t)p * CHUNK + (size_t)g0 * 64, 0, (size_t)(g1 - g0) * 64);
}

/* Return v in tile t, `other` where a query does not see from <= i < to. */
VFN vf seen(vf v, int t, int from, int to, vf other)
{
	const int a = from - t * 16, b = to - t * 16;
	if (a <= 0 && b >= 16)
		return v;
	if (a >= 16 || b <= 0)
		return other;
	return v_keep_range(v, a > 0 ? a : 0, b < 16 ? b : 16, other);
}

/* Replace the scores of tiles t0 <= t < t1 by cap * tanh(s / cap) + log, from 2^(2 s log2 e / cap).  NaN
 * stays NaN. */
static void cap_scores(float *s, const float *log, int t0, int t1, float cap)
{
	const vf c = v_set1(cap), by = v_set1(2 * LOG2_E / cap);
	for (int t = t0; t < t1; t++) {
		const vf y = v_max(v_set1(-60), v_min(v_set1(60), v_mul(v_load(s + t * 16), by)));
		const vf e = v_mul(exp2_top(y), v_set1(1 / 65535.0f));
		const vf far = v_div(v_add(c, c), v_add(e, v_set1(1)));
		v_store(s + t * 16, v_add(v_sub(c, far), v_load(log + t * 16)));
	}
}

/* Return the largest of the scores that a query sees. */
VFN float top_score(const float *s, int from, int to)
{
	const vf low = v_set1(-INFINITY);
	const int t0 = from / 16, t1 = (to + 15) / 16 - 1;
	vf mx[4];
	mx[0] = seen(v_load(s + t0 * 16), t0, from, to, low);
	mx[1] = seen(v_load(s + t1 * 16), t1, from, to, low);
	mx[2] = mx[3] = low;
	int t = t0 + 1;
	for (; t + 4 <= t1; t += 4)
		UNROLL for (int i = 0; i < 4; i++) mx[i] = v_max(mx[i], v_load(s + (t + i) * 16));
	for (; t < t1; t++)
		mx[0] = v_max(mx[0], v_load(s + t * 16));
	return v_hmax(v_max(v_max(mx[0], mx[1]), v_max(mx[2], mx[3])));
}

/* Weigh a group of tiles that a query sees only in part. */
static vf weigh_part(const float *s, const float *inverse, unsigned char *w, int g, int from, int to, vf m,
		     vf l)
{
	vf e[GROUP_TILES];
	for (int i = 0, t = g * GROUP_TILES; i < GROUP_TILES; i++, t++) {
		e[i] = v_zero();
		if (to <= t * 16 || from >= t * 16 + 16)
			continue;
		e[i] = seen(exp2_top(v_fma(v_load(s + t * 16), v_set1(LOG2_E), m)), t, from, to, v_zero());
		l = v_fma(e[i], seen(v_load(inverse + t * 16), t, from, to, v_zero()), l);
	}
	w_store(w + g * 64, w + CHUNK + g * 64, e);
	return l;
}

/* Convert the scores s of one query to its weights w, in groups g0 to g1; return their sum. */
static float weigh(const float *s, const float *inverse, unsigned char *w, int from, int to, int g0, int g1,
		   float max)
{
	enum { GROUP = GROUP_TILES * 16 };
	const int first = from / GROUP, last = (to + GROUP - 1) / GROUP;
	const vf m = v_set1(-(max * LOG2_E)), per_nat = v_set1(LOG2_E);
	vf l = v_zero(), e[GROUP_TILES];
	int g = first;
	no_weights(w, g0, first);
	no_weights(w, last, g1);
	if (from > g * GROUP || to < (g + 1) * GROUP) {
		l = weigh_part(s, inverse, w, g, from, to, m, l);
		g++;
	}
	for (; (g + 1) * GROUP <= to; g++) {
		const float *at = s + g * GROUP, *by = inverse + g * GROUP;
		UNROLL for (int i = 0; i < GROUP_TILES; i++) e[i] =
			exp2_top(v_fma(v_load(at + i * 16), per_nat, m));
		UNROLL for (int i = 0; i < GROUP_TILES; i++) l = v_fma(e[i], v_load(by + i * 16), l);
		w_store(w + g * 64, w + CHUNK + g * 64, e);
	}
	if (g < last)
		l = weigh_part(s, inverse, w, g, from, to, m, l);
	return v_hsum(l);
}

/* ---- weighted sums ---- */

struct values_args {
	const unsigned char *w; /* weights of the first query */
	const unsigned char *const *v;
	size_t at; /* bytes to the first line wanted in a tile */
	int t0, t1;
	int32_t *o; /* sums of the first query, from the first line's d on; added to */
	size_t o_stride;
};

VFN void values(const int dn, const int m, const int planes, const struct values_args *a)
{
	va acc[GROUP_TILES][INT_ROWS];
	UNROLL for (int v = 0; v < dn; v++) UNROLL for (int r = 0; r < m; r++) acc[v][r] = va_begin();
	for (int t = a->t0; t < a->t1; t++) {
		const unsigned char *lines = a->v[t] + a->at;
		ROLLED for (int quad = 0; quad < 4; quad++, lines += planes * 64)
		{
			const unsigned char *w = a->w + (size_t)INT_W_AT(t, quad) * 4;
			ws x[INT_ROWS];
			UNROLL for (int r = 0; r < m; r++) x[r] = ws_load(w + (size_t)r * 2 * CHUNK);
			UNROLL for (int v = 0; v < dn; v++) UNROLL for (int p = 0; p < planes; p++)
			{
				const vl line = vl_load(lines + (v * 4 * planes + p) * 64);
				UNROLL for (int r = 0; r < m; r++) acc[v][r] =
					p ? va_high(acc[v][r], line, x[r]) : va_full(acc[v][r], line, x[r]);
			}
		}
	}
	UNROLL for (int v = 0; v < dn; v++) UNROLL for (int r = 0; r < m; r++)
	{
		int32_t *o = a->o + (size_t)r * a->o_stride + v * 16;
		qa_store(o, qa_add(qa_load(o), va_end(acc[v][r])));
	}
}

/* ---- choice of the kernel ---- */

#define INT_CASE(fn, n, m, planes)                                                                           \
	case m: {                                                                                            \
		enum { FITS = (n) * (m) <= INT_ACC && (m) <= INT_ROWS };                                     \
		if (FITS)                                                                                    \
			fn(FITS ? n : 1, FITS ? m : 1, planes, a);                                           \
		break;                                                                                       \
	}
#define INT_FN(fn, n, planes)                                                                                \
	static void fn##_##n##_##planes(int m, const struct fn##_args *a)                                    \
	{                                                                                                    \
		switch (m) {                                                                                 \
			INT_CASE(fn, n, 1, planes)                                                           \
			INT_CASE(fn, n, 2, planes)                                                           \
			INT_CASE(fn, n, 3, planes)                                                           \
			INT_CASE(fn, n, 4, planes)                                                           \
			INT_CASE(fn, n, 5, planes)                                                           \
			INT_CASE(fn, n, 6, planes)                                                           \
			INT_CASE(fn, n, 7, planes)                                                           \
			INT_CASE(fn, n, 8, planes)                                                           \
		}                                                                                            \
	}
#define INT_FNS(fn)                                                                                          \
	INT_FN(fn, 1, 1) INT_FN(fn, 2, 1) INT_FN(fn, 4, 1) INT_FN(fn, 1, 2) INT_FN(fn, 2, 2) INT_FN(fn, 4, 2)
INT_FNS(scores)
INT_FNS(values)

/* Return how many of n tiles fit the registers with m queries. */
static int tiles_per_call(int m, int n)
{
	int tn = n >= 4 ? 4 : n >= 2 ? 2 : 1;
	while (tn > 1 && tn * m > INT_ACC)
		tn /= 2;
	return tn;
}

/* Score queries r0 .. r0 + m - 1 of a head, m <= INT_ROWS, in tiles t0 to t1. */
static void scores_rows(const struct job *j, int head, const struct scratch *s, int r0, int m, int t0, int t1)
{
	static void (*const fns[2][3])(int, const struct scores_args *) = {
		{scores_1_1, scores_2_1, scores_4_1}, {scores_1_2, scores_2_2, scores_4_2}};
	struct scores_args a = {
		.q = j->c->q + (size_t)head * j->c->q_stride + (size_t)r0 * j->each,
		.d64 = j->d64,
		.each = j->each,
		.lines = j->lines,
	};
	for (int t = t0, tn; t < t1; t += tn) {
		tn = tiles_per_call(m, t1 - t);
		for (int v = 0; v < tn; v++)
			a.k[v] = j->c->k[t + v] + (size_t)head * j->c->k_bytes;
		a.log = s->log + t * 16;
		a.s = s->s + (size_t)r0 * ROW + t * 16;
		fns[j->planes - 1][tn / 2](m, &a);
	}
}

static void values_rows(const struct job *j, int head, const struct scratch *s, int r0, int m, int t0, int t1)
{
	static void (*const fns[2][3])(int, const struct values_args *) = {
		{values_1_1, values_2_1, values_4_1}, {values_1_2, values_2_2, values_4_2}};
	const unsigned char *v[CHUNK_TILES];
	for (int t = t0; t < t1; t++)
		v[t] = j->c->v[t] + (size_t)head * j->c->v_bytes;
	struct values_args a = {
		.w = s->w + (size_t)r0 * 2 * CHUNK,
		.v = v,
		.t0 = t0,
		.t1 = t1,
		.o_stride = (size_t)j->c->dim_pad,
	};
	const int blocks = j->c->dim_pad / 16;
	for (int d = 0, dn; d < blocks; d += dn) {
		dn = tiles_per_call(m, blocks - d);
		a.at = (size_t)(d * 4 * j->planes) * 64;
		a.o = s->o + (size_t)r0 * a.o_stride + d * 16;
		fns[j->planes - 1][dn / 2](m, &a);
	}
}

typedef void rows_fn(const struct job *j, int head, const struct scratch *s, int r0, int m, int t0, int t1);

/* Call fn for queries r0 to m, in groups as even as possible. */
static void all_rows(rows_fn *fn, const struct job *j, int head, const struct scratch *s, int r0, int m,
		     int t0, int t1)
{
	const int left = m - r0, n = (left + INT_ROWS - 1) / INT_ROWS;
	for (int b = 0; b < n; b++) {
		const int rows = left / n + (b < left % n);
		fn(j, head, s, r0, rows, t0, t1);
		r0 += rows;
	}
}

/* ---- a chunk ---- */

/* Compute the maximums of queries r0 to r1. */
static void top_rows(const struct job *j, int head, const struct scratch *s, int r0, int r1)
{
	const struct cpu_kv_chunk *c = j->c;
	for (int r = r0; r < r1; r++) {
		float *row = s->s + (size_t)r * ROW;
		if (c->from[r] >= c->to[r])
			continue;
		if (c->cap > 0)
			cap_scores(row, s->late, c->from[r] / 16, (c->to[r] + 15) / 16, c->cap);
		if (c->alibi)
			alibi_scores(c, head, r, row, 16, 1);
		c->max[(size_t)head * (size_t)c->m + (size_t)r] = top_score(row, c->from[r], c->to[r]);
	}
}

/* Compute the weights of query r, and their sum. */
static void weigh_row(const struct job *j, int head, const struct scratch *s, int r)
{
	const struct cpu_kv_chunk *c = j->c;
	const int g0 = j->t0 / GROUP_TILES, g1 = (j->t1 + GROUP_TILES - 1) / GROUP_TILES;
	const size_t at = (size_t)head * (size_t)c->m + (size_t)r;
	unsigned char *w = s->w + (size_t)r * 2 * CHUNK;
	if (c->from[r] < c->to[r])
		c->sum[at] = weigh(s->s + (size_t)r * ROW, s->inverse, w, c->from[r], c->to[r], g0, g1,
				   c->max[at]);
	else
		no_weights(w, g0, g1);
}

static void weigh_rows(const struct job *j, int head, const struct scratch *s, int r0, int r1)
{
	top_rows(j, head, s, r0, r1);
	for (int r = r0; r < r1; r++)
		weigh_row(j, head, s, r);
}

static void sums_out(const struct job *j, int head, const struct scratch *s, int r0, int r1)
{
	const size_t pad = (size_t)j->c->dim_pad;
	float *o = j->c->o + (size_t)head * (size_t)j->c->m * pad;
	for (size_t i = (size_t)r0 * pad; i < (size_t)r1 * pad; i += 16)
		v_store(o + i, qa_float(qa_load(s->o + i)));
}

/* Process four tiles of all heads, then the next four, so that a task reads one run per tile. */
static void chunk_any(const struct job *j)
{
	const struct cpu_kv_chunk *c = j->c;
	struct scratch s;
	for (int t = j->t0, t1; t < j->t1; t = t1) {
		t1 = t + GROUP_TILES < j->t1 ? t + GROUP_TILES : j->t1;
		for (int h = 0; h < c->n_heads; h++) {
			s = scratch_of(c, h);
			if (t == j->t0)
				value_scales(j, h, &s);
			all_rows(scores_rows, j, h, &s, 0, c->m, t, t1);
		}
	}
	for (int h = 0; h < c->n_heads; h++) {
		s = scratch_of(c, h);
		weigh_rows(j, h, &s, 0, c->m);
		memset(s.o, 0, (size_t)c->m * (size_t)c->dim_pad * sizeof *s.o);
	}
	for (int t = j->t0, t1; t < j->t1; t = t1) {
		t1 = t + GROUP_TILES < j->t1 ? t + GROUP_TILES : j->t1;
		for (int h = 0; h < c->n_heads; h++) {
			s = scratch_of(c, h);
			all_rows(values_rows, j, h, &s, 0, c->m, t, t1);
		}
	}
	for (int h = 0; h < c->n_heads; h++) {
		s = scratch_of(c, h);
		sums_out(j, h, &s, 0, c->m);
	}
}

#ifndef INT_CHUNK
#define INT_CHUNK   chunk_any
#define INT_WORK(d) 0
#define INT_SPAN    KV_QUERIES
#endif

static size_t int_work_bytes(int dim, int n_heads, int m)
{
	return (size_t)n_heads * head_scratch((dim + 15) / 16 * 16, m) + INT_WORK(dim);
}

/* ---- the tables ---- */

#define INT_TYPE(bits, planes)                                                                               \
	static size_t k_bytes_##bits(int dim)                                                                \
	{                                                                                                    \
		return bytes_k(planes, dim);                                                                 \
	}                                                                                                    \
	static size_t v_bytes_##bits(int dim)                                                                \
	{                                                                                                    \
		return bytes_v(planes, dim);                                                                 \
	}                                                                                                    \
	static void store_##bits(unsigned char *kt, unsigned char *vt, int at, const float *k,               \
				 const float *v, int dim)                                                    \
	{                                                                                                    \
		store(planes, kt, vt, at, k, v, dim);                                                        \
	}                                                                                                    \
	static void queries_##bits(unsigned char *out, const float *const *q, int m, int dim, float scale)   \
	{                                                                                                    \
		queries(planes, out, q, m, dim, scale);                                                      \
	}                                                                                                    \
	static void chunk_##bits(const struct cpu_kv_chunk *c)                                               \
	{                                                                                                    \
		const struct job j = job_of(c, planes);                                                      \
		INT_CHUNK(&j);                                                                               \
	}
INT_TYPE(8, 1)
INT_TYPE(16, 2)

#define INT_ENTRY(bits)                                                                                      \
	{                                                                                                    \
		.name = "int" #bits " by " INT_NAME, .one = 65535, .span = INT_SPAN,                         \
		.k_bytes = k_bytes_##bits, .v_bytes = v_bytes_##bits, .store = store_##bits,                 \
		.q_bytes = int_q_bytes, .queries = queries_##bits, .work_bytes = int_work_bytes,             \
		.chunk = chunk_##bits,                                                                       \
	}
static const struct cpu_kv_ints ints_table = {.int8 = INT_ENTRY(8), .int16 = INT_ENTRY(16)};
