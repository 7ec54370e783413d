/* int_avx512amx.c - attention on INT8 and INT16 keys and values for AMX: sixteen queries by sixteen tokens
 * (or values of a head) by 64 d (or tokens) in one instruction.
 * Few queries go through VNNI: the sums are exact, so the bits are the same.  See ints.h.
 *
 *     tile 0, 1   A: high and low bytes of 16 queries' q, or of their weights
 *     tile 2, 3   B: 16 lines of two tiles of K, or of two blocks of 16 d of V; high bytes, then low bytes
 *     tile 4..7   C: int32 [16][16]: A 0 B 2, A 1 B 2 (and A 0 with the low bytes); the same with B 3
 *
 * Lines of K are AMX tiles as stored in the cache.  V is gathered, since 64 tokens are four tiles of the
 * cache. */
#include "kernels/cpu/attention/int.h"
#include "kernels/cpu/dot/dot.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(INT_EMULATED)

#include "kernels/cpu/attention/int_avx512.h"

enum {
	AMX_ROWS = 16,
	AMX_FEW = 8, /* most queries for VNNI */
	AMX_TILE = 1024,
};

#ifndef INT_EMULATED

/* Asm, so that no compiler has to support the extension; "memory", since a tile cannot be an operand of
 * asm. */
#define AMX_LOAD(t, p, stride)                                                                               \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(p)), "r"((size_t)(stride))     \
			 : "memory")
#define AMX_STORE(t, p, stride)                                                                              \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void *)(p)), "r"((size_t)(stride))       \
			 : "memory")
#define AMX_ZERO(t)           __asm__ volatile("tilezero %%tmm" #t ::: "memory")
/* C += A B: A has signed, or unsigned, bytes */
#define AMX_SIGNED(c, a, b)   __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define AMX_UNSIGNED(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define AMX_RELEASE()         __asm__ volatile("tilerelease" ::: "memory")

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

struct job;
static void chunk_amx(const struct job *j);

/* INT_WORK: V of a chunk as B tiles, [D / 16][group of 64 tokens][planes], and two tiles of K. */
#define INT_NAME      "amx"
#define INT_PAD       (AMX_FEW + 1)
#define INT_CHUNK     chunk_amx
#define INT_WORK(dim) ((size_t)((dim + 15) / 16 * GROUPS * 2 + ((dim) + 63) / 64 * 4) * AMX_TILE)
#define INT_SPAN      KV_QUERIES
#include "kernels/cpu/attention/ints.h"

typedef int32_t sums[2][16][16]; /* products with the high bytes, and the low bytes */

/* Sixteen queries of a head. */
struct square {
	const struct job *j;
	int head, r0, n;    /* the first n queries exist; the others are zeros */
	int t0, t1, g0, g1; /* tiles and groups that the queries see */
	struct scratch s;
	unsigned char *tiles; /* INT_WORK */
	sums *c;              /* [8]: sums of four tiles of K, and of four blocks of V, used alternately by
				 two */
};

/* One A and two B (or twice the same) in memory: 16 lines, `row` bytes apart.  low: bytes from the high bytes
 * to the low bytes; 0: there are none. */
struct factors {
	const unsigned char *a, *b[2];
	size_t a_row, a_low;
	size_t b_row, b_low;
	size_t b_step; /* from 64 to the next 64; those of A are adjacent */
};

/* Multiply over n steps of 64, and store C. */
#define SQUARE(name, dot)                                                                                    \
	static void name(const struct factors *f, int n, sums *c)                                            \
	{                                                                                                    \
		const unsigned char *a = f->a, *b0 = f->b[0], *b1 = f->b[1];                                 \
		AMX_ZERO(4);                                                                                 \
		AMX_ZERO(5);                                                                                 \
		AMX_ZERO(6);                                                                                 \
		AMX_ZERO(7);                                                                                 \
		for (int i = 0; i < n; i++, a += 64, b0 += f->b_step, b1 += f->b_step) {                     \
			AMX_LOAD(0, a, f->a_row);                                                            \
			AMX_LOAD(2, b0, f->b_row);                                                           \
			dot(4, 0, 2);                                                                        \
			AMX_LOAD(1, a + f->a_low, f->a_row);                                                 \
			dot(5, 1, 2);                                                                        \
			AMX_LOAD(3, b1, f->b_row);                                                           \
			dot(6, 0, 3);                                                                        \
			dot(7, 1, 3);                                                                        \
			if (!f->b_low)                                                                       \
				continue;                                                                    \
			AMX_LOAD(2, b0 + f->b_low, f->b_row);                                                \
			dot(5, 0, 2);                                                                        \
			AMX_LOAD(3, b1 + f->b_low, f->b_row);                                                \
			dot(7, 0, 3);                                                                        \
		}                                                                                            \
		AMX_STORE(4, c[0][0], 64);                                                                   \
		AMX_STORE(5, c[0][1], 64);                                                                   \
		AMX_STORE(6, c[1][0], 64);                                                                   \
		AMX_STORE(7, c[1][1], 64);                                                                   \
	}
SQUARE(square_signed, AMX_SIGNED)
SQUARE(square_unsigned, AMX_UNSIGNED)

VFN qa sum_of(int32_t (*c)[16][16], int r)
{
	return _mm512_add_epi32(_mm512_slli_epi32(_mm512_loadu_si512(c[0][r]), 8),
				_mm512_loadu_si512(c[1][r]));
}

/* ---- scores ---- */

static const unsigned char *square_queries(const struct square *q)
{
	return q->j->c->q + (size_t)q->head * q->j->c->q_stride + (size_t)q->r0 * q->j->each;
}

/* Return K of tile t, or a copy padded with lines of zeros if its lines are not a multiple of 16. */
static const unsigned char *key_lines(const struct square *q, int t)
{
	const struct job *j = q->j;
	const size_t line = (size_t)j->planes * 64, blocks = (size_t)(j->c->dim_pad / 16);
	const unsigned char *k = j->c->k[t] + (size_t)q->head * j->c->k_bytes;
	if (j->lines % 16 == 0)
		return k;
	unsigned char *to = q->tiles + (blocks * GROUPS * 2 + (size_t)(t % 2) * (j->d64 / 64 * 2)) * AMX_TILE;
	memcpy(to, k, (size_t)j->lines * line);
	memset(to + (size_t)j->lines * line, 0, (size_t)(16 - j->lines % 16) * line);
	return to;
}

static void scores_of(const struct square *q, int t)
{
	const struct job *j = q->j;
	const unsigned char *a = square_queries(q), *k = j->c->k[t] + (size_t)q->head * j->c->k_bytes;
	const vf scale = v_load((const float *)(const void *)(k + (size_t)(j->lines * j->planes) * 64));
	const vf log = v_load(q->s.log + t * 16);
	float *s = q->s.s + (size_t)q->r0 * ROW + t * 16;
	int32_t(*c)[16][16] = q->c[t % 4];
	UNROLL for (int r = 0; r < AMX_ROWS; r++)
	{
		const float own = query_head(a + (size_t)r * j->each, j->d64)->scale;
		v_store(s + r * ROW, score(sum_of(c, r), scale, v_set1(own), log));
	}
}

/* Multiply by tiles t and t + 1 (t is even), and convert the products of the two tiles before to scores. */
static void scores_step(const struct square *q, int t)
{
	const struct job *j = q->j;
	const size_t line = (size_t)j->planes * 64;
	const int n = (int)(j->d64 / 64), t0 = t < q->t0 ? t + 1 : t, t1 = t + 1 < q->t1 ? t + 1 : t;
	const struct factors f = {.a = square_queries(q),
				  .a_row = j->each,
				  .a_low = j->d64,
				  .b = {key_lines(q, t0), key_lines(q, t1)},
				  .b_row = line,
				  .b_low = j->planes == 2 ? 64 : 0,
				  .b_step = 16 * line};
	square_signed(&f, n, q->c + t % 4);
	for (int i = t - 2; i < t; i++)
		if (i >= q->t0)
			scores_of(q, i);
	for (int i = t0; t + 2 >= q->t1 && i <= t1; i++)
		scores_of(q, i);
}

/* ---- weighted sums ---- */

/* Gather lines of V in the order of the weights (INT_W_AT).  Tiles that no query sees become zeros. */
static void gather_values(const struct square *q, int g0, int g1)
{
	const struct job *j = q->j;
	const int blocks = j->c->dim_pad / 16;
	for (int t = g0 * GROUP_TILES; t < g1 * GROUP_TILES; t++) {
		const bool here = t >= j->t0 && t < j->t1;
		const unsigned char *v = here ? j->c->v[t] + (size_t)q->head * j->c->v_bytes : NULL;
		unsigned char *to = q->tiles + (size_t)(t / GROUP_TILES * j->planes) * AMX_TILE +
				    (size_t)(t % GROUP_TILES) * 64;
		for (int b = 0; b < blocks; b++, to += (size_t)(GROUPS * j->planes) * AMX_TILE)
			for (int i = 0; i < 4; i++)
				for (int p = 0; p < j->planes; p++) {
					unsigned char *at = to + (size_t)p * AMX_TILE + (size_t)i * 256;
					_mm512_storeu_si512(at, here ? vl_load(v) : _mm512_setzero_si512());
					v += here ? 64 : 0;
				}
	}
}

static void values_of(const struct square *q, int b)
{
	const size_t pad = (size_t)q->j->c->dim_pad;
	float *out = q->j->c->o + ((size_t)q->head * (size_t)q->j->c->m + (size_t)q->r0) * pad + b * 16;
	int32_t(*c)[16][16] = q->c[4 + b % 4];
	if (q->n == AMX_ROWS)
		UNROLL for (int r = 0; r < AMX_ROWS; r++)
			v_store(out + (size_t)r * pad, qa_float(sum_of(c, r)));
	else
		for (int r = 0; r < q->n; r++)
			v_store(out + (size_t)r * pad, qa_float(sum_of(c, r)));
}

/* Multiply by blocks b and b + 1 of 16 d, and convert the sums of the two before. */
static void values_step(const struct square *q, int b)
{
	const struct job *j = q->j;
	const int blocks = j->c->dim_pad / 16, b1 = b + 1 < blocks ? b + 1 : b;
	const unsigned char *w = q->s.w + (size_t)q->r0 * 2 * CHUNK + (size_t)q->g0 * 64;
	const size_t step = (size_t)j->planes * AMX_TILE;
	const unsigned char *v = q->tiles + (size_t)(b * GROUPS + q->g0) * step;
	const struct factors f = {.a = w,
				  .a_row = 2 * CHUNK,
				  .a_low = CHUNK,
				  .b = {v, v + (size_t)((b1 - b) * GROUPS) * step},
				  .b_row = 64,
				  .b_low = j->planes == 2 ? AMX_TILE : 0,
				  .b_step = step};
	square_unsigned(&f, q->g1 - q->g0, q->c + 4 + b % 4);
	for (int i = b - 2; i < b; i++)
		if (i >= 0)
			values_of(q, i);
	for (int i = b; b + 2 >= blocks && i <= b1; i++)
		values_of(q, i);
}

/* ---- a chunk ---- */

/* Return the square of a head's queries from r0 on, with the tiles that they see. */
static struct square square_at(const struct square *head, int r0)
{
	struct square q = *head;
	const struct cpu_kv_chunk *c = q.j->c;
	q.r0 = r0;
	q.n = c->m - r0 < AMX_ROWS ? c->m - r0 : AMX_ROWS;
	q.t0 = CHUNK_TILES;
	q.t1 = 0;
	for (int r = r0; r < r0 + q.n; r++)
		if (c->from[r] < c->to[r]) {
			const int t0 = c->from[r] / 16, t1 = (c->to[r] + 15) / 16;
			q.t0 = t0 < q.t0 ? t0 : q.t0;
			q.t1 = t1 > q.t1 ? t1 : q.t1;
		}
	q.t0 = q.t0 < q.t1 ? q.t0 : q.t1;
	q.g0 = q.t0 / GROUP_TILES;
	q.g1 = (q.t1 + GROUP_TILES - 1) / GROUP_TILES;
	return q;
}

/* Compute the weights of a square row by row; in between, the scores of the next square and the sums of the
 * last one.  Tiles multiply while other units compute exponentials. */
static void square_weights(const struct square *q, const struct square *next, const struct square *last)
{
	const struct cpu_kv_chunk *c = q->j->c;
	const int blocks = last && last->t0 < last->t1 ? c->dim_pad / 16 : 0, t0 = next ? next->t0 & ~1 : 0,
		  tiles = next ? next->t1 - t0 : 0;
	struct job part = *q->j;
	part.t0 = q->t0;
	part.t1 = q->t1;
	if (q->t0 < q->t1)
		top_rows(&part, q->head, &q->s, q->r0, q->r0 + q->n);
	for (int r = 0, t = 0, b = 0; r < AMX_ROWS; r++) {
		unsigned char *w = q->s.w + (size_t)(q->r0 + r) * 2 * CHUNK;
		if (r >= q->n)
			no_weights(w, q->g0, q->g1);
		else if (q->t0 < q->t1)
			weigh_row(&part, q->head, &q->s, q->r0 + r);
		for (; t * AMX_ROWS < (r + 1) * tiles; t += 2)
			scores_step(next, t0 + t);
		for (; b * AMX_ROWS < (r + 1) * blocks; b += 2)
			values_step(last, b);
	}
}

/* Compute a head's leftover queries by VNNI. */
static void rest_vnni(const struct job *j, int head, const struct scratch *s, int r0)
{
	const int m = j->c->m;
	const size_t pad = (size_t)j->c->dim_pad;
	memset(s->o + (size_t)r0 * pad, 0, (size_t)(m - r0) * pad * sizeof *s->o);
	all_rows(scores_rows, j, head, s, r0, m, j->t0, j->t1);
	weigh_rows(j, head, s, r0, m);
	all_rows(values_rows, j, head, s, r0, m, j->t0, j->t1);
	sums_out(j, head, s, r0, m);
}

static void head_amx(const struct square *head)
{
	const struct job *j = head->j;
	struct square q[3]; /* the last, current and next square, in rotation */
	int n = 0, r0 = 0;
	value_scales(j, head->head, &head->s);
	gather_values(head, j->t0 / GROUP_TILES, (j->t1 + GROUP_TILES - 1) / GROUP_TILES);
	q[0] = square_at(head, 0);
	for (int t = q[0].t0 & ~1; t < q[0].t1; t += 2)
		scores_step(&q[0], t);
	for (; j->c->m - r0 > AMX_FEW; n++, r0 += AMX_ROWS) {
		struct square *next = j->c->m - r0 - AMX_ROWS > AMX_FEW ? &q[(n + 1) % 3] : NULL;
		if (next)
			*next = square_at(head, r0 + AMX_ROWS);
		square_weights(&q[n % 3], next, n ? &q[(n + 2) % 3] : NULL);
	}
	const struct square *last = &q[(n + 2) % 3];
	for (int b = 0; last->t0 < last->t1 && b < j->c->dim_pad / 16; b += 2)
		values_step(last, b);
	if (r0 < j->c->m)
		rest_vnni(j, head->head, &head->s, r0);
}

static void chunk_amx(const struct job *j)
{
	const struct cpu_kv_chunk *c = j->c;
	_Alignas(64) sums c4[8];
	if (c->m <= AMX_FEW) {
		chunk_any(j);
		return;
	}
	amx_configure();
	for (int h = 0; h < c->n_heads; h++)
		head_amx(&(struct square){.j = j,
					  .head = h,
					  .s = scratch_of(c, h),
					  .tiles = c->work +
						   (size_t)c->n_heads * head_scratch(c->dim_pad, c->m),
					  .c = c4});
	AMX_RELEASE();
}

#ifdef INT_EMULATED

const struct cpu_kv_ints *INT_EMULATED(void)
{
	return &ints_table;
}

#else

/* cpu_dot_amx() requests the tiles from the system. */
const struct cpu_kv_ints *cpu_kv_ints_amx(void)
{
	return cpu_kv_ints_avx512vnni() && cpu_dot_amx() ? &ints_table : NULL;
}

#endif

#else

const struct cpu_kv_ints *cpu_kv_ints_amx(void)
{
	return NULL;
}

#endif
