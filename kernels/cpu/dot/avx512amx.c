/* avx512amx.c - the integer kernels for AMX: sixteen rows by sixteen outputs by 64 k in one instruction.
 * Fewer than AMX_MIN rows go through VNNI: the sums are exact, so the bits are the same.  See dots.h.
 *
 * For rows left over by passes, and for all rows if codes have minimums, zeros that need a correction, or
 * only one tile ("few rows" and amx_pass.h describe the differences):
 *
 *     tile 0, 1   A: 16 rows of 64 signed bytes, k 0 to 63 and 64 to 127 of a segment
 *     tile 2, 3   B: 16 lines of [16 outputs][4 codes] of one tile of outputs, for the same k
 *     tile 4..7   C: int32 [16 rows][16 outputs], in rotation
 *
 * Codes become signed bytes as they are unpacked, with the zero already subtracted.  B stays in its tiles
 * while the rows of a panel are multiplied.  A sum takes 50 cycles from its last instruction to memory, and
 * its tile cannot be reused before.  So four sums are in flight, each cleared, summed and stored in one
 * sequence (other orders took twice as long), and scaled two sums later. */
#include "kernels/cpu/dot/dot.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(DOT_EMULATED)

#include "kernels/cpu/dot/avx512.h"

enum {
	AMX_ROWS = 16,
	AMX_K = 64,
	AMX_MIN = 5,       /* rows; with 4, VNNI is faster from a cache */
	AMX_MIN_SHORT = 9, /* for groups that make segments short */
	AMX_PANEL = 64,    /* rows: outputs and a segment's operands stay in the first-level cache */
	AMX_SEGMENTS = DOT_SCRATCH / (AMX_K * BLOCK_N), /* unpacked at once */
	AMX_TURNS = 4,
	AMX_DELAY = 2,
	AMX_SUMS = 2 * BLOCK_TILES, /* with few rows: two segments; else AMX_TURNS */
	AMX_RING = 5, /* segments: one being unpacked, one being computed, and those with sums not yet
			 scaled */
	AMX_PASS = 2 * AMX_ROWS, /* rows in a pass */
};

#ifndef DOT_EMULATED

/* Asm, so that no compiler has to support the extension; "memory", since a tile cannot be an operand of
 * asm. */
#define AMX_LOAD(t, p, stride)                                                                               \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(p)), "r"((size_t)(stride))     \
			 : "memory")
/* Bypasses the first-level cache. */
#define AMX_LOAD_ONCE(t, p, stride)                                                                          \
	__asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t ::"r"((const void *)(p)), "r"((size_t)(stride))   \
			 : "memory")
#define AMX_STORE(t, p, stride)                                                                              \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void *)(p)), "r"((size_t)(stride))       \
			 : "memory")
#define AMX_ZERO(t)      __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define AMX_DOT(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define AMX_RELEASE()    __asm__ volatile("tilerelease" ::: "memory")

#define AMX_BYTES                                                                                            \
	{                                                                                                    \
		64, 64, 64, 64, 64, 64, 64, 64                                                               \
	}
/* Set the rows of all tiles: n1 for tiles 1, 6 and 7, 16 for tiles 2 and 3, n0 for the others. */
static void amx_configure(int n0, int n1)
{
	const uint8_t a = (uint8_t)n0, b = (uint8_t)n1;
	const struct {
		uint8_t palette, start_row, reserved[14];
		uint16_t bytes[16];
		uint8_t rows[16];
	} config = {.palette = 1, .bytes = AMX_BYTES, .rows = {a, b, 16, 16, a, a, b, b}};
	__asm__ volatile("ldtilecfg %0" ::"m"(config));
}

#endif

struct cpu_dot_tile;
static void amx_tile(const struct cpu_dot_tile *t);

#define DOT_NAME "amx"
#define DOT_TILE amx_tile
#include "kernels/cpu/dot/dots.h"

/* ---- codes to tiles ---- */

/* A segment and its unpacked codes at b: [tile][k / 64][16 lines][64 bytes]. */
struct amx_seg {
	struct seg s;
	const unsigned char *b;
	int n_k;
	bool fixed;                         /* a zero was only partly subtracted: sums need a correction */
	_Alignas(64) float scales[BLOCK_N]; /* scales of the outputs wanted */
};

/* Return the part of 16 zeros to subtract from the codes, so that a byte holds the difference.  rest:
 * corrected in the sums. */
VFN qa amx_zeros(const struct seg *s, int v, qa *rest)
{
	const qa z = seg_zeros(s, v), near = s->t->codes.bits < 8 ? qa_and(z, qa_set1(127)) : qa_set1(128);
	*rest = qa_add(z, qa_mul(near, qa_set1(-1)));
	return near;
}

/* Return true if the zero of a whole part can be subtracted completely; zeros per group are checked one by
 * one. */
static bool amx_whole_zero(const struct cpu_codes *c)
{
	return c->heads == HEADS_AWQ || (c->bits < 8 ? c->zero < 128 : c->zero == 128);
}

/* Unpack n rounds.  Fields of s are copied to locals, since for the compiler a store of bytes could alias
 * them. */
VFN unsigned char *amx_rounds(const struct seg *s, const unsigned char *p, qv zero, unsigned char *to,
			      const int bits, const int n)
{
	const int quads = bits == 8 ? 1 : bits == 6 ? 4 : 2, lines = bits == 6 ? 3 : 1;
	const size_t step = s->step, round = (size_t)lines * step, ahead = s->ahead;
	UNROLL4 for (int i = 0; i < n; i++, p += round, to += quads * 64)
	{
		qv q[4], high[4];
		seg_codes(bits, 1, p, step, q, high);
		UNROLL for (int l = 0; l < lines; l++) __builtin_prefetch(p + (size_t)l * step + ahead, 0, 2);
		UNROLL for (int j = 0; j < quads; j++) qv_store(to + j * 64, qv_sub8(q[j], zero));
	}
	return to;
}

VFN unsigned char *amx_codes(const struct seg *s, const unsigned char *p, qv zero, unsigned char *to,
			     const int bits)
{
	const int whole = ACT_GROUP / (bits == 4 ? 8 : bits == 6 ? 16 : 4);
	return s->rounds == whole ? amx_rounds(s, p, zero, to, bits, whole)
				  : amx_rounds(s, p, zero, to, bits, s->rounds);
}

/* Unpack the codes of one tile to signed bytes, then zeros up to a multiple of 64 k, since the activations
 * there belong to another segment.  Returns true if sums need a correction. */
static bool amx_unpack(const struct seg *s, int v, unsigned char *to, int n_k)
{
	qa rest;
	const qv zero = qa_mul(amx_zeros(s, v, &rest), qa_set1(0x01010101));
	const unsigned char *p = s->lines + (size_t)v * 64;
	unsigned char *const end = to + n_k * 1024;
	if (s->t->codes.bits == 4)
		to = amx_codes(s, p, zero, to, 4);
	else if (s->t->codes.bits == 6)
		to = amx_codes(s, p, zero, to, 6);
	else
		to = amx_codes(s, p, zero, to, 8);
	if (to < end)
		memset(to, 0, (size_t)(end - to));
	return qa_hsum(qa_mul(rest, rest)) != 0;
}

/* ---- sums to outputs ---- */

/* Sums of up to 16 rows with a tile, to be scaled. */
struct amx_sums {
	_Alignas(64) int32_t at[2][AMX_ROWS][16]; /* [plane of the activations] */
	const struct amx_seg *g;                  /* segment; NULL: no sums */
	const float *a;                           /* [16] scales of the rows */
	int v;                                    /* tile index */
	int row, first, rows; /* row: the call's row that is row 0 here; rows first .. rows - 1 are wanted */
};

/* Scale row r and add it at c. */
VFN void amx_scale(const struct amx_sums *p, int r, float *c, vf scale, const int wide)
{
	qa sum = qv_load((const void *)p->at[0][r]);
	if (wide)
		sum = qa_add(qa_shl(sum, 8), qv_load((const void *)p->at[1][r]));
	v_store(c, v_fma(v_mul(scale, v_set1(p->a[r])), qa_float(sum), v_load(c)));
}

/* Scale rows, with the correction for zeros not completely subtracted, and with minimums. */
static void amx_scale_general(const struct amx_sums *p, float *c)
{
	const struct seg *s = &p->g->s;
	const struct cpu_dot_tile *t = s->t;
	const vf scale = seg_scales(s, p->v), min = t->codes.minimums ? seg_minimums(s, p->v) : v_zero();
	qa rest;
	amx_zeros(s, p->v, &rest);
	for (int r = p->first; r < p->rows; r++, c += t->tn * 16) {
		const unsigned char *row = t->x + (size_t)(p->row + r) * t->op->row;
		const vf a = v_set1(p->a[r]);
		const qa minus = qa_set1(seg_minus(s, row));
		qa sum = qv_load((const void *)p->at[0][r]);
		if (t->op->wide)
			sum = qa_add(qa_shl(sum, 8), qv_load((const void *)p->at[1][r]));
		sum = qa_add(sum, qa_mul(rest, minus));
		vf y = v_fma(v_mul(scale, a), qa_float(sum), v_load(c));
		if (t->codes.minimums)
			y = v_fma(v_mul(min, a), qa_float(minus), y);
		v_store(c, y);
	}
}

VFN void amx_scale_rows(const struct amx_sums *p, float *c, const int wide)
{
	const size_t stride = (size_t)p->g->s.t->tn * 16;
	const vf scale = v_load(p->g->scales + p->v * 16);
	if (p->rows - p->first == AMX_ROWS && stride == BLOCK_N)
		UNROLL for (int r = 0; r < AMX_ROWS; r++)
			amx_scale(p, r, c + (size_t)r * BLOCK_N, scale, wide);
	else
		for (int r = p->first; r < p->rows; r++, c += stride)
			amx_scale(p, r, c, scale, wide);
}

static void amx_flush(struct amx_sums *p)
{
	if (!p->g)
		return;
	const struct cpu_dot_tile *t = p->g->s.t;
	float *c = t->c + (size_t)(p->row + p->first) * (size_t)t->tn * 16 + p->v * 16;
	if (p->g->fixed || t->codes.minimums)
		amx_scale_general(p, c);
	else if (t->op->wide)
		amx_scale_rows(p, c, 1);
	else
		amx_scale_rows(p, c, 0);
	p->g = NULL;
}

/* ---- tiles to sums ---- */

struct amx {
	const struct cpu_dot_tile *t;
	struct amx_sums sums[AMX_SUMS];
	_Alignas(64) float a[AMX_TURNS][AMX_PANEL + AMX_ROWS]; /* scales of the rows of a panel */
	/* many: rows are computed in passes; one: segments are computed as they are unpacked; few: also, in
	 * one row block. */
	bool many, one, few;
	int turn, c_turn, a_turn;
	int n_segs;
	size_t used; /* bytes of the scratch in use */
	struct amx_seg segs[AMX_SEGMENTS];
};

#define AMX_SUM(c)                                                                                           \
	do {                                                                                                 \
		AMX_ZERO(c);                                                                                 \
		AMX_DOT(c, 0, 2);                                                                            \
		if (n_k == 2)                                                                                \
			AMX_DOT(c, 1, 3);                                                                    \
		AMX_STORE(c, out, 64);                                                                       \
	} while (0)

/* Multiply one row block by the codes in their tiles. */
VFN void amx_block(struct amx *m, const unsigned char *a, size_t stride, int n_k, int32_t (*out)[16])
{
	AMX_LOAD(0, a, stride);
	if (n_k == 2)
		AMX_LOAD(1, a + AMX_K, stride);
	switch (m->c_turn++ % 4) {
	case 0:
		AMX_SUM(4);
		break;
	case 1:
		AMX_SUM(5);
		break;
	case 2:
		AMX_SUM(6);
		break;
	default:
		AMX_SUM(7);
	}
}

/* Return the first row of the block that has row r.  A last block with fewer rows is filled with the rows
 * before it, computed again. */
static int amx_begin(const struct cpu_dot_tile *t, int r)
{
	return t->n_rows - r >= AMX_ROWS ? r : t->n_rows - AMX_ROWS;
}

/* Multiply rows r0 to r1 of a segment. */
static void amx_rows(struct amx *m, const struct amx_seg *g, int r0, int r1)
{
	const struct cpu_dot_tile *t = m->t;
	const struct cpu_operand *op = t->op;
	const unsigned char *x = t->x + (g->s.x - t->x);
	const int a0 = amx_begin(t, r1 - 1 - (r1 - 1 - r0) % AMX_ROWS) < r0 ? amx_begin(t, r0) : r0;
	float *scales = m->a[m->a_turn++ % AMX_TURNS];
	for (int r = a0; r < r1; r++)
		memcpy(&scales[r - a0],
		       t->x + (size_t)r * op->row + op->scales + (size_t)(g->s.k0 / ACT_GROUP) * 4, 4);
	for (int v = 0; v < t->tn; v++) {
		const unsigned char *b = g->b + v * g->n_k * 1024;
		AMX_LOAD(2, b, 64);
		if (g->n_k == 2)
			AMX_LOAD(3, b + 1024, 64);
		for (int r = r0; r < r1; r += AMX_ROWS) {
			struct amx_sums *sums = &m->sums[m->turn % AMX_TURNS];
			const int row = amx_begin(t, r);
			const unsigned char *a = x + (size_t)row * op->row;
			amx_block(m, a, op->row, g->n_k, sums->at[0]);
			if (op->wide)
				amx_block(m, a + op->k_pad, op->row, g->n_k, sums->at[1]);
			sums->g = g;
			sums->v = v;
			sums->a = scales + row - a0;
			sums->row = row;
			sums->first = r - row;
			sums->rows = AMX_ROWS;
			m->turn++;
			amx_flush(&m->sums[(m->turn + AMX_TURNS - AMX_DELAY - 1) % AMX_TURNS]);
		}
	}
}

static void amx_begin_sums(struct amx *m, const struct cpu_dot_tile *t)
{
	m->t = t;
	m->turn = m->c_turn = m->a_turn = 0;
	for (int i = 0; i < AMX_SUMS; i++)
		m->sums[i].g = NULL;
}

static void amx_finish(struct amx *m)
{
	for (int i = 0; i < AMX_TURNS; i++)
		amx_flush(&m->sums[m->turn++ % AMX_TURNS]);
}

#include "kernels/cpu/dot/amx_pass.h"

/* ---- few rows ---- */

/* Up to 16 rows.  Step i unpacks segment i, multiplies segment i - 1, and scales the sums of segment i - 3,
 * tile by tile, so that the three run in parallel.  A sum stays in its tile until the next segment (in int16:
 * the next plane) needs the tile, so no store waits for a product. */

/* Store the sums in the tile of v to late, then compute the sums with b.  NULL: skip. */
#define AMX_TURN(c)                                                                                          \
	do {                                                                                                 \
		if (late)                                                                                    \
			AMX_STORE(c, late, 64);                                                              \
		if (b) {                                                                                     \
			AMX_ZERO(c);                                                                         \
			AMX_DOT(c, 0, 2);                                                                    \
			if (n_k == 2)                                                                        \
				AMX_DOT(c, 1, 3);                                                            \
		}                                                                                            \
	} while (0)

VFN void amx_turn(int v, int32_t (*late)[16], const unsigned char *b, int n_k)
{
	if (b)
		AMX_LOAD(2, b, 64);
	if (b && n_k == 2)
		AMX_LOAD(3, b + 1024, 64);
	switch (v) {
	case 0:
		AMX_TURN(4);
		break;
	case 1:
		AMX_TURN(5);
		break;
	case 2:
		AMX_TURN(6);
		break;
	default:
		AMX_TURN(7);
	}
}

static struct amx_sums *few_sums(struct amx *m, int seg, int v)
{
	return &m->sums[seg % 2 * BLOCK_TILES + v];
}

/* Begin to multiply segment i: load the scales of its rows. */
static const struct amx_seg *few_begin(struct amx *m, int i)
{
	const struct cpu_dot_tile *t = m->t;
	const struct amx_seg *g = &m->segs[i % AMX_RING];
	float *a = m->a[i % AMX_TURNS];
	for (int r = 0; r < t->n_rows; r++)
		memcpy(&a[r],
		       t->x + (size_t)r * t->op->row + t->op->scales + (size_t)(g->s.k0 / ACT_GROUP) * 4, 4);
	return g;
}

/* Step i.  g: segment i, complete except for its codes, which are unpacked here; NULL: none left. */
static void few_step(struct amx *m, int i, struct amx_seg *g)
{
	const struct cpu_dot_tile *t = m->t;
	const int planes = t->op->wide ? 2 : 1;
	const struct amx_seg *now = i >= 1 && i <= m->n_segs ? few_begin(m, i - 1) : NULL;
	for (int p = 0; p < planes; p++) {
		if (now) {
			const unsigned char *a = now->s.x + (size_t)p * (size_t)t->op->k_pad;
			AMX_LOAD(0, a, t->op->row);
			if (now->n_k == 2)
				AMX_LOAD(1, a + AMX_K, t->op->row);
		}
		/* The tiles hold plane 0 of this segment, or the last plane of the previous segment. */
		const int in_tiles = p ? i - 1 : i - 2;
		for (int v = 0; v < t->tn; v++) {
			if (!p && g) {
				unsigned char *to = t->scratch + (size_t)(i % 2 * BLOCK_TILES + v) * 2048;
				g->fixed |= amx_unpack(&g->s, v, to, g->n_k);
				v_store(g->scales + v * 16, seg_scales(&g->s, v));
			}
			if (!p && i >= 3)
				amx_flush(few_sums(m, i - 3, v));
			struct amx_sums *late =
				in_tiles >= 0 && in_tiles < m->n_segs ? few_sums(m, in_tiles, v) : NULL;
			const int plane = p ? 0 : planes - 1;
			amx_turn(v, late ? late->at[plane] : NULL,
				 now ? t->scratch + (size_t)((i - 1) % 2 * BLOCK_TILES + v) * 2048 : NULL,
				 now ? now->n_k : 0);
			if (late && plane == planes - 1) {
				late->g = &m->segs[in_tiles % AMX_RING];
				late->a = m->a[in_tiles % AMX_TURNS];
				late->v = v;
				late->row = late->first = 0;
				late->rows = t->n_rows;
			}
		}
	}
}

static void few_add(struct amx *m, const struct seg *s, int n_k)
{
	struct amx_seg *g = &m->segs[m->n_segs % AMX_RING];
	g->s = *s;
	g->n_k = n_k;
	g->fixed = false;
	few_step(m, m->n_segs++, g);
}

/* Compute segments first .. end - 1 for all rows. */
static void amx_run(struct amx *m, int first, int end)
{
	const int n = m->t->n_rows;
	bool many = m->many;
	int r = 0;
	for (int i = first; i < end; i++)
		many &= !m->segs[i].fixed;
	for (int rows; many && n - r > AMX_ROWS; r += rows) {
		rows = n - r < AMX_PASS ? n - r : AMX_PASS;
		pass_over(m->t, m->segs + first, end - first, r, rows);
	}
	for (; r < n; r += AMX_PANEL)
		for (int i = first; i < end; i++)
			amx_rows(m, &m->segs[i], r, n - r < AMX_PANEL ? n : r + AMX_PANEL);
}

/* Unpack a segment.  If the rows fit one panel, the segment before is then computed: its codes are in the
 * first-level cache by then.  Otherwise segments are collected until the scratch is full, then computed panel
 * by panel. */
static void amx_add(struct amx *m, const struct seg *s)
{
	const struct cpu_dot_tile *t = m->t;
	const int n_k = (s->k1 - s->k0 + AMX_K - 1) / AMX_K;
	const size_t tile = (size_t)n_k * 1024, bytes = tile * (size_t)t->tn;
	if (m->few) {
		few_add(m, s, n_k);
		return;
	}
	if (!m->one && (m->n_segs == AMX_SEGMENTS || m->used + bytes > DOT_SCRATCH)) {
		amx_run(m, 0, m->n_segs);
		amx_finish(m);
		m->n_segs = 0;
		m->used = 0;
	}
	const int at = m->one ? m->n_segs % AMX_RING : m->n_segs;
	struct amx_seg *g = &m->segs[at];
	unsigned char *to = t->scratch + (m->one ? (size_t)at * 2048 * BLOCK_TILES : m->used);
	g->s = *s;
	g->b = to;
	g->n_k = n_k;
	g->fixed = false;
	for (int v = 0; v < t->tn; v++) {
		g->fixed |= amx_unpack(s, v, to + (size_t)v * tile, n_k);
		v_store(g->scales + v * 16, seg_scales(s, v));
	}
	m->n_segs++;
	m->used += bytes;
	if (m->one && m->n_segs > 1) {
		const int before = (m->n_segs - 2) % AMX_RING;
		amx_run(m, before, before + 1);
	}
}

static void amx_add_run(void *arg, const struct seg *run)
{
	for (struct seg s = *run; s.n; seg_next(&s))
		amx_add(arg, &s);
}

static void amx_tile(const struct cpu_dot_tile *t)
{
	struct amx m;
	if (t->n_rows < (t->codes.group % ACT_GROUP ? AMX_MIN_SHORT : AMX_MIN)) {
		dots_tile(t);
		return;
	}
	m.many = t->n_rows > AMX_ROWS && t->tn > 1 && !t->codes.minimums && amx_whole_zero(&t->codes);
	m.one = !m.many && t->n_rows <= AMX_PANEL;
	m.few = t->n_rows <= AMX_ROWS;
	amx_begin_sums(&m, t);
	m.n_segs = 0;
	m.used = 0;
	memset(t->c, 0, (size_t)t->n_rows * (size_t)t->tn * 16 * sizeof *t->c);
	if (m.many && t->n_rows <= AMX_PASS) {
		amx_pass(t);
		AMX_RELEASE();
		return;
	}
	const int n = t->n_rows < AMX_ROWS ? t->n_rows : AMX_ROWS;
	amx_configure(n, n);
	dots_walk(t, amx_add_run, &m);
	if (m.few)
		for (int i = m.n_segs; i < m.n_segs + 3; i++)
			few_step(&m, i, NULL);
	else if (m.one)
		amx_run(&m, (m.n_segs - 1) % AMX_RING, (m.n_segs - 1) % AMX_RING + 1);
	else
		amx_run(&m, 0, m.n_segs);
	amx_finish(&m);
	AMX_RELEASE();
}

#ifdef DOT_EMULATED

const struct cpu_dot *DOT_EMULATED(void)
{
	return &dots_table;
}

#else

#include <cpuid.h>

const struct cpu_dot *cpu_dot_amx(void)
{
	unsigned a, b, c, d;
	bool ok = cpu_dot_avx512vnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 25 & 1) &&
		  cpu_isa_amx();
	return ok ? &dots_table : NULL;
}

#endif

#else

const struct cpu_dot *cpu_dot_amx(void)
{
	return NULL;
}

#endif
