/* int_avx512amx.c - attention on INT8 and INT16 keys and values for AMX: sixteen queries by sixteen tokens
 * (or values of a head) by 64 d (or tokens) in one instruction.  Few queries go through VNNI: the sums are
 * exact, so the bits are the same.  See ints.h.
 *
 *     tile 0, 1   A: high and low bytes of 16 queries' q, or of their weights
 *     tile 2, 3   B: 16 lines of two tiles of K, or of two blocks of 16 d of V; high bytes, then low
 *     tile 4..7   C: int32 [16][16]: A 0 B 2, A 1 B 2 (+ A 0 with the low bytes), the same with B 3
 *
 * Lines of K are tiles as they lie in the cache.  V is gathered, since 64 tokens are four tiles of the cache.
 */
#include "kernels/cpu/attention/int.h"
#include "kernels/cpu/dot/dot.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(INT_EMULATED)

#include "kernels/cpu/attention/int_avx512.h"

enum {
	AMX_ROWS = 16,
	AMX_FEW = 8, /* queries that VNNI takes */
	AMX_TILE = 1024,
};

#ifndef INT_EMULATED

/* Asm, so that no compiler has to know the extension; "memory", since a tile is no operand of it. */
#define AMX_LOAD(t, p, stride)                                                                               \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(p)), "r"((size_t)(stride))     \
			 : "memory")
#define AMX_STORE(t, p, stride)                                                                              \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void *)(p)), "r"((size_t)(stride))       \
			 : "memory")
#define AMX_ZERO(t)           __asm__ volatile("tilezero %%tmm" #t ::: "memory")
/* C += A B: of signed bytes, or of unsigned bytes in A */
#define AMX_SIGNED(c, a, b)   __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define AMX_UNSIGNED(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define AMX_RELEASE()         __asm__ volatile("tilerelease" ::: "memory")

/* All eight tiles are 16 rows of 64 bytes. */
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

/* V of a chunk as B tiles: [group of 64 tokens][D / 16][planes], and the last lines of two tiles of K. */
#define INT_NAME      "amx"
#define INT_PAD       (AMX_FEW + 1)
#define INT_CHUNK     chunk_amx
#define INT_WORK(dim) ((size_t)((dim + 15) / 16 * GROUPS * 2 + 4) * AMX_TILE)
#define INT_SPAN      KV_QUERIES
#include "kernels/cpu/attention/ints.h"

/* Sixteen queries of a head. */
struct square {
	const struct job *j;
	int head, r0, n; /* n of them are there, the others are zeros */
	struct scratch s;
	unsigned char *tiles; /* INT_WORK */
	int32_t (*c)[16][16]; /* [4]: tiles 4 to 7 */
};

static void amx_zero4(void)
{
	AMX_ZERO(4);
	AMX_ZERO(5);
	AMX_ZERO(6);
	AMX_ZERO(7);
}

static void amx_store4(const struct square *q)
{
	AMX_STORE(4, q->c[0], 64);
	AMX_STORE(5, q->c[1], 64);
	AMX_STORE(6, q->c[2], 64);
	AMX_STORE(7, q->c[3], 64);
}

VFN qa square_sum(const struct square *q, int v, int r)
{
	return _mm512_add_epi32(_mm512_slli_epi32(_mm512_loadu_si512(q->c[2 * v][r]), 8),
				_mm512_loadu_si512(q->c[2 * v + 1][r]));
}

/* ---- scores ---- */

/* 16 lines of a tile of K from step i on; where fewer are left, with lines of zeros. */
static const unsigned char *key_lines(const struct square *q, int t, int i, int which)
{
	const struct job *j = q->j;
	const int left = j->lines - i * 16;
	const size_t line = (size_t)j->planes * 64;
	const unsigned char *k = j->c->k[t] + (size_t)q->head * j->c->k_bytes + (size_t)i * 16 * line;
	if (left >= 16)
		return k;
	unsigned char *to = q->tiles + (size_t)(j->c->dim_pad / 16 * GROUPS * 2 + which * 2) * AMX_TILE;
	memcpy(to, k, (size_t)left * line);
	memset(to + (size_t)left * line, 0, (size_t)(16 - left) * line);
	return to;
}

static void square_scores(const struct square *q, int t0, int t1)
{
	const struct job *j = q->j;
	const unsigned char *a = j->c->q + (size_t)q->head * j->c->q_stride + (size_t)q->r0 * j->each;
	const size_t line = (size_t)j->planes * 64;
	const int steps = (int)(j->d64 / 64);
	for (int t = t0; t < t1; t += 2) {
		const int n = t1 - t < 2 ? 1 : 2;
		amx_zero4();
		for (int i = 0; i < steps; i++) {
			const unsigned char *k0 = key_lines(q, t, i, 0), *k1 = key_lines(q, t + n - 1, i, 1);
			AMX_LOAD(0, a + i * 64, j->each);
			AMX_LOAD(2, k0, line);
			AMX_SIGNED(4, 0, 2);
			AMX_LOAD(1, a + j->d64 + i * 64, j->each);
			AMX_SIGNED(5, 1, 2);
			AMX_LOAD(3, k1, line);
			AMX_SIGNED(6, 0, 3);
			AMX_SIGNED(7, 1, 3);
			if (j->planes == 1)
				continue;
			AMX_LOAD(2, k0 + 64, line);
			AMX_SIGNED(5, 0, 2);
			AMX_LOAD(3, k1 + 64, line);
			AMX_SIGNED(7, 0, 3);
		}
		amx_store4(q);
		for (int v = 0; v < n; v++) {
			const unsigned char *k = j->c->k[t + v] + (size_t)q->head * j->c->k_bytes;
			const vf scale = v_load((const float *)(const void *)(k + (size_t)j->lines * line));
			const vf log = v_load(q->s.log + (t + v) * 16);
			float *s = q->s.s + (size_t)q->r0 * CHUNK + (t + v) * 16;
			for (int r = 0; r < AMX_ROWS; r++) {
				const float own = query_head(a + (size_t)r * j->each, j->d64)->scale;
				v_store(s + r * CHUNK, score(square_sum(q, v, r), scale, v_set1(own), log));
			}
		}
	}
}

/* ---- weighted sums ---- */

/* Lines of V in the order of the weights: INT_W_AT.  Tiles that no query sees count for nothing. */
static void gather_values(const struct square *q, int g0, int g1)
{
	const struct job *j = q->j;
	const int blocks = j->c->dim_pad / 16;
	for (int g = g0; g < g1; g++)
		for (int i = 0; i < GROUP_TILES; i++) {
			const int t = g * GROUP_TILES + i;
			const bool here = t >= j->t0 && t < j->t1;
			const unsigned char *v = here ? j->c->v[t] + (size_t)q->head * j->c->v_bytes : NULL;
			unsigned char *to = q->tiles + (size_t)(g * blocks * j->planes) * AMX_TILE;
			for (int b = 0; b < blocks; b++)
				for (int quad = 0; quad < 4; quad++)
					for (int p = 0; p < j->planes; p++, v += here ? 64 : 0)
						qa_store((int32_t *)(void *)(to +
									     (size_t)(b * j->planes + p) *
										     AMX_TILE +
									     (quad * 4 + i) * 64),
							 here ? vl_load(v) : _mm512_setzero_si512());
		}
}

static void square_values(const struct square *q, int g0, int g1)
{
	const struct job *j = q->j;
	const int blocks = j->c->dim_pad / 16;
	const size_t pad = (size_t)j->c->dim_pad, w_row = 2 * CHUNK;
	const unsigned char *w = q->s.w + (size_t)q->r0 * w_row;
	float *out = j->c->o + ((size_t)q->head * (size_t)j->c->m + (size_t)q->r0) * pad;
	for (int b = 0; b < blocks; b += 2) {
		const int n = blocks - b < 2 ? 1 : 2;
		amx_zero4();
		for (int g = g0; g < g1; g++) {
			const unsigned char *v0 =
				q->tiles + (size_t)((g * blocks + b) * j->planes) * AMX_TILE;
			const unsigned char *v1 = v0 + (size_t)((n - 1) * j->planes) * AMX_TILE;
			AMX_LOAD(0, w + g * 64, w_row);
			AMX_LOAD(2, v0, 64);
			AMX_UNSIGNED(4, 0, 2);
			AMX_LOAD(1, w + CHUNK + g * 64, w_row);
			AMX_UNSIGNED(5, 1, 2);
			AMX_LOAD(3, v1, 64);
			AMX_UNSIGNED(6, 0, 3);
			AMX_UNSIGNED(7, 1, 3);
			if (j->planes == 1)
				continue;
			AMX_LOAD(2, v0 + AMX_TILE, 64);
			AMX_UNSIGNED(5, 0, 2);
			AMX_LOAD(3, v1 + AMX_TILE, 64);
			AMX_UNSIGNED(7, 0, 3);
		}
		amx_store4(q);
		for (int v = 0; v < n; v++)
			for (int r = 0; r < q->n; r++)
				v_store(out + (size_t)r * pad + (b + v) * 16, qa_float(square_sum(q, v, r)));
	}
}

/* ---- a chunk ---- */

/* Tiles that queries r0 to r1 see. */
static struct job seen_by(const struct job *j, int r0, int r1)
{
	struct job part = *j;
	part.t0 = CHUNK_TILES;
	part.t1 = 0;
	for (int r = r0; r < r1; r++)
		if (j->c->from[r] < j->c->to[r]) {
			const int t0 = j->c->from[r] / 16, t1 = (j->c->to[r] + 15) / 16;
			part.t0 = t0 < part.t0 ? t0 : part.t0;
			part.t1 = t1 > part.t1 ? t1 : part.t1;
		}
	return part;
}

static void square(struct square *q)
{
	const struct job *all = q->j, j = seen_by(all, q->r0, q->r0 + q->n);
	const int g0 = j.t0 / GROUP_TILES, g1 = (j.t1 + GROUP_TILES - 1) / GROUP_TILES;
	if (j.t0 >= j.t1)
		return;
	square_scores(q, j.t0, j.t1);
	weigh_rows(&j, q->head, &q->s, q->r0, q->r0 + q->n);
	for (int r = q->n; r < AMX_ROWS; r++)
		no_weights(q->s.w + (size_t)(q->r0 + r) * 2 * CHUNK, g0, g1);
	square_values(q, g0, g1);
}

/* What is left over of a head's queries. */
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

static void chunk_amx(const struct job *j)
{
	const struct cpu_kv_chunk *c = j->c;
	_Alignas(64) int32_t sums[4][16][16];
	if (c->m <= AMX_FEW) {
		chunk_any(j);
		return;
	}
	amx_configure();
	for (int h = 0; h < c->n_heads; h++) {
		struct square q = {.j = j,
				   .head = h,
				   .s = scratch_of(c, h),
				   .tiles = c->work + (size_t)c->n_heads * head_scratch(c->dim_pad, c->m),
				   .c = sums};
		value_scales(j, h, &q.s);
		gather_values(&q, j->t0 / GROUP_TILES, (j->t1 + GROUP_TILES - 1) / GROUP_TILES);
		while (c->m - q.r0 > AMX_FEW) {
			q.n = c->m - q.r0 < AMX_ROWS ? c->m - q.r0 : AMX_ROWS;
			square(&q);
			q.r0 += q.n;
		}
		if (q.r0 < c->m)
			rest_vnni(j, h, &q.s, q.r0);
	}
	AMX_RELEASE();
}

#ifdef INT_EMULATED

const struct cpu_kv_ints *INT_EMULATED(void)
{
	return &ints_table;
}

#else

/* The device's integer kernels have asked the system for tiles. */
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
