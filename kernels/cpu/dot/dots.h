/* dots.h - the kernels of dot.h, written once on the lanes of a vec_*.h and the dots of an instruction set.
 * Included once by each of the instruction sets, a .c file, which first includes its vec_*.h and defines
 *   DOT_NAME, DOT_TABLE     the table
 *   DOT_ACC                 accumulators (of 16 sums, per plane) that fit the registers
 *   DOT_ROWS                at most this many rows at once, up to 6
 *   DOT_FOLD                1: products are added up in 16 bits first, 8 at most per accumulator
 *   DOT_SPLIT8              1: codes of 8 bits are two of 4 bits, where a product of bytes would saturate
 *   DOT_UNPACK              rows from which codes of 4 bits are first brought to one byte each; 0: never
 * and the types and functions
 *   qv   64 bytes of codes, [16 outputs][4 k]:   qv_load, qv_store, qv_low, qv_high
 *   qx   4 signed bytes, for all outputs:        qx_load
 *   qh   sums under way:                         qh_begin(qa), qh_dot(qh, qv, qx), qh_end(qa, qh)
 *   qa   16 int32:                               qa_zero, qa_set1, qa_add, qa_mul, qa_shl(a, n), qa_u8,
 *        qa_float, qa_bits (of floats), qa_shr8 (with the sign), qa_store8 (the low bytes), qa_hsum */
#include <stddef.h>
#include <string.h>

#include "kernels/cpu/dot/dot.h"

#define PRAGMA(x) _Pragma(#x)
#ifdef DOT_EMULATED
#define UNROLL
#define ROLLED
#elif defined(__clang__)
#define UNROLL PRAGMA(clang loop unroll(full))
#define ROLLED PRAGMA(clang loop unroll(disable))
#else
#define UNROLL PRAGMA(GCC unroll 16)
#define ROLLED PRAGMA(GCC unroll 1)
#endif

/* ---- activations ---- */

/* Rounds to the nearest integer, ties to even: what is left in the low bits of 1.5 * 2^23 + x. */
#define ROUND_MAGIC 12582912.0f

/* a = max |x| / top.  A group with a value that is not finite has a scale that is NaN, as its outputs shall
 * be; one whose values are all below 1e-30 counts as zeros. */
VFN float quant_scale(const float *x, int n, float top, float *inverse)
{
	vf most = v_zero(), wrong = v_zero();
	for (int i = 0; i < n; i += 16) {
		vf v = n - i >= 16 ? v_load(x + i) : v_load_n(x + i, n - i);
		most = v_max(v_max(v, v_sub(v_zero(), v)), most);
		wrong = v_fma(v, v_zero(), wrong);
	}
	const float m = v_hmax(most), bad = v_hsum(wrong);
	const int real = bad == 0 && m >= 1e-30f;
	*inverse = real ? top / m : 0;
	return bad == 0 ? real ? m / top : 0 : bad;
}

/* The nearest integers of 16 values, n of which there are. */
VFN qa quant_lanes(const float *x, int n, float inverse)
{
	vf v = n >= 16 ? v_load(x) : n > 0 ? v_load_n(x, n) : v_zero();
	return qa_add(qa_bits(v_add(v_mul(v, v_set1(inverse)), v_set1(ROUND_MAGIC))), qa_set1(-0x4b400000));
}

VFN void quant_store(unsigned char *out, qa q, const struct cpu_operand *op)
{
	if (op->wide) {
		qa_store8(out + op->k_pad, q);
		q = qa_shr8(qa_add(q, qa_set1(128)));
	}
	qa_store8(out, q);
}

static void dots_quantize_group(unsigned char *row, const float *x, const struct cpu_operand *op, int k0)
{
	const int n = op->k - k0 < ACT_GROUP ? op->k - k0 : ACT_GROUP;
	uint32_t *sums = (uint32_t *)(void *)(row + op->sums) + k0 / ACT_SUM + 1, sum = 0;
	float inverse;
	((float *)(void *)(row + op->scales))[k0 / ACT_GROUP] =
		quant_scale(x, n, op->wide ? 32512 : 127, &inverse);
	if (inverse == 0) { /* of values that are not finite nothing else is to be had */
		memset(row + k0, 0, ACT_GROUP);
		if (op->wide)
			memset(row + op->k_pad + k0, 0, ACT_GROUP);
		memset(sums, 0, ACT_GROUP / ACT_SUM * sizeof *sums);
		return;
	}
	for (int i = 0; i < ACT_GROUP; i += ACT_SUM) {
		const qa q = quant_lanes(x + i, n - i, inverse);
		quant_store(row + k0 + i, q, op);
		*sums++ = sum += (uint32_t)qa_hsum(q);
	}
}

static void dots_add_up(unsigned char *row, const struct cpu_operand *op)
{
	uint32_t *sums = (uint32_t *)(void *)(row + op->sums);
	sums[0] = 0;
	for (int i = 0; i < op->k_pad / ACT_SUM; i += ACT_GROUP / ACT_SUM)
		for (int j = 1; j <= ACT_GROUP / ACT_SUM; j++)
			sums[i + j] += sums[i];
}

static void dots_quantize(unsigned char *row, const float *x, const struct cpu_operand *op)
{
	for (int k0 = 0; k0 < op->k_pad; k0 += ACT_GROUP)
		dots_quantize_group(row, x + k0, op, k0);
	dots_add_up(row, op);
}

/* ---- one segment ---- */

struct seg {
	const unsigned char *heads; /* of the first tile wanted, t->head apart */
	const unsigned char *lines; /* likewise, 64 apart */
	size_t step;                /* from a line to the next */
	int n_lines;
	size_t ahead; /* as in cpu_dot_tile, for the first rows only */
	const struct cpu_dot_tile *t;
	const unsigned char *x; /* first row, at the segment's first value */
	const unsigned char *row;
	int scale, sum0, sum1; /* in the row's scales and sums */
	float *c;
};

VFN qa seg_zeros(const struct seg *s, int v)
{
	const struct cpu_dot_tile *t = s->t;
	return t->f32_scales ? qa_set1(t->zero) : qa_u8(s->heads + (size_t)v * (size_t)t->head + 32);
}

VFN vf seg_scales(const struct seg *s, int v)
{
	const unsigned char *head = s->heads + (size_t)v * (size_t)s->t->head;
	return s->t->f32_scales ? v_load((const float *)(const void *)head)
				: v_load_f16((const uint16_t *)(const void *)head);
}

/* Exact sums to outputs: of tile v, rows r0 .. r0 + m - 1. */
VFN void seg_scale(const struct seg *s, int v, const int m, const qa *sum, int tn_all)
{
	const struct cpu_dot_tile *t = s->t;
	const unsigned char *head = s->heads + (size_t)v * (size_t)t->head;
	const qa zeros = seg_zeros(s, v);
	const vf scale = seg_scales(s, v);
	UNROLL for (int r = 0; r < m; r++)
	{
		const unsigned char *row = s->row + (size_t)r * t->op->row;
		const uint32_t *sums = (const uint32_t *)(const void *)(row + t->op->sums);
		const float a = ((const float *)(const void *)(row + t->op->scales))[s->scale];
		const qa minus = qa_set1((int32_t)(sums[s->sum0] - sums[s->sum1]));
		float *c = s->c + (size_t)r * (size_t)tn_all * 16 + v * 16;
		vf y = v_fma(v_mul(scale, v_set1(a)), qa_float(qa_add(sum[r], qa_mul(zeros, minus))),
			     v_load(c));
		if (t->minimums) {
			vf min = v_load((const float *)(const void *)(head + 64));
			y = v_fma(v_mul(min, v_set1(a)), qa_float(minus), y);
		}
		v_store(c, y);
	}
}

/* Lines of 8 k (4 bits) or 4 k (8 bits); planes of x: high and low bytes in int16; planes of codes: low and
 * high halves where they are split.  k 0 to 3 of a line of 4 bits, then k 4 to 7. */
#define SEG_LINE                                                                                             \
	UNROLL for (int v = 0; v < tn; v++)                                                                  \
	{                                                                                                    \
		const qv q = qv_load(p + (size_t)v * 64);                                                    \
		/* Into the second-level cache; with no distance, the line that is being read. */            \
		__builtin_prefetch(p + (size_t)v * 64 + ahead, 0, 2);                                        \
		const qv first = bits == 4 || wp == 2 ? qv_low(q) : q;                                       \
		const qv second = bits == 4 || wp == 2 ? qv_high(q) : q;                                     \
		UNROLL for (int r = 0; r < m; r++) UNROLL for (int b = 0; b < xp; b++)                       \
		{                                                                                            \
			const unsigned char *at = x[r] + (size_t)b * low + k;                                \
			h[v][r][b][0] = qh_dot(h[v][r][b][0], first, qx_load(at));                           \
			if (bits == 4)                                                                       \
				h[v][r][b][0] = qh_dot(h[v][r][b][0], second, qx_load(at + 4));              \
			if (wp == 2)                                                                         \
				h[v][r][b][1] = qh_dot(h[v][r][b][1], second, qx_load(at));                  \
		}                                                                                            \
	}

#define SEG_EACH                                                                                             \
	UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++)                               \
		UNROLL for (int b = 0; b < xp; b++) UNROLL for (int w = 0; w < wp; w++)

VFN void seg_dot(const int tn, const int m, const int bits, const int wide, const struct seg *s)
{
	enum { ROWS = DOT_ROWS };
	const int xp = wide ? 2 : 1, wp = bits == 8 && DOT_SPLIT8 ? 2 : 1;
	const int chunk = DOT_FOLD ? (bits == 4 ? 4 : 8) : s->n_lines;
	const size_t low = (size_t)s->t->op->k_pad, ahead = s->ahead;
	size_t k = 0;
	const unsigned char *p = s->lines, *x[ROWS];
	qa acc[4][ROWS][2][2];
	UNROLL for (int r = 0; r < m; r++) x[r] = s->x + (size_t)r * s->t->op->row;
	SEG_EACH acc[v][r][b][w] = qa_zero();
	for (int left = s->n_lines; left > 0; left -= chunk) {
		qh h[4][ROWS][2][2];
		const int n = left < chunk ? left : chunk;
		SEG_EACH h[v][r][b][w] = qh_begin(acc[v][r][b][w]);
		ROLLED for (int i = 0; i < n; i++)
		{
			SEG_LINE
			p += s->step;
			k += bits == 4 ? 8 : 4;
		}
		SEG_EACH acc[v][r][b][w] = qh_end(acc[v][r][b][w], h[v][r][b][w]);
	}
	UNROLL for (int v = 0; v < tn; v++)
	{
		qa sum[ROWS];
		UNROLL for (int r = 0; r < m; r++)
		{
			qa part[2];
			UNROLL for (int b = 0; b < xp; b++) part[b] =
				wp == 2 ? qa_add(acc[v][r][b][0], qa_shl(acc[v][r][b][1], 4))
					: acc[v][r][b][0];
			sum[r] = wide ? qa_add(qa_shl(part[0], 8), part[1]) : part[0];
		}
		seg_scale(s, v, m, sum, s->t->tn);
	}
}

/* ---- choice of the kernel ---- */

#define SEG_CASE(tn, n, bits, wide)                                                                          \
	case n: {                                                                                            \
		enum {                                                                                       \
			FITS = (tn) * (n) * ((wide) + 1) * ((bits) == 8 ? DOT_SPLIT8 + 1 : 1) <= DOT_ACC &&  \
			       (n) <= DOT_ROWS,                                                              \
		};                                                                                           \
		if (FITS)                                                                                    \
			seg_dot(tn, FITS ? n : 1, bits, wide, s);                                            \
		break;                                                                                       \
	}
#define SEG_FN(tn, bits, wide)                                                                               \
	static void seg_##tn##_##bits##_##wide(int m, const struct seg *s)                                   \
	{                                                                                                    \
		switch (m) {                                                                                 \
			SEG_CASE(tn, 1, bits, wide)                                                          \
			SEG_CASE(tn, 2, bits, wide)                                                          \
			SEG_CASE(tn, 3, bits, wide)                                                          \
			SEG_CASE(tn, 4, bits, wide)                                                          \
			SEG_CASE(tn, 5, bits, wide)                                                          \
			SEG_CASE(tn, 6, bits, wide)                                                          \
		}                                                                                            \
	}
#define SEG_FNS(bits, wide) SEG_FN(1, bits, wide) SEG_FN(2, bits, wide) SEG_FN(4, bits, wide)
SEG_FNS(4, 0)
SEG_FNS(4, 1)
SEG_FNS(8, 0)
SEG_FNS(8, 1)

typedef void seg_fn(int m, const struct seg *s);

/* Rows that fit beside tn tiles. */
static int seg_rows(int tn, int bits, bool wide)
{
	int n = DOT_ACC / (tn * (wide ? 2 : 1) * (bits == 8 && DOT_SPLIT8 ? 2 : 1));
	return n < DOT_ROWS ? n : DOT_ROWS;
}

/* All rows: as many tiles at once as leave room for the rows, or for as many rows as a kernel takes. */
static void seg_all(struct seg s, int bits, int n_rows)
{
	static seg_fn *const fns[3][2][2] = {{{seg_1_4_0, seg_1_4_1}, {seg_1_8_0, seg_1_8_1}},
					     {{seg_2_4_0, seg_2_4_1}, {seg_2_8_0, seg_2_8_1}},
					     {{seg_4_4_0, seg_4_4_1}, {seg_4_8_0, seg_4_8_1}}};
	const bool wide = s.t->op->wide;
	const int enough =
		wide ? (DOT_ROWS + 1) / 2 : DOT_ROWS; /* two planes of a row are two rows' registers */
	int step = s.t->tn;
	while (step > 1 && seg_rows(step, bits, wide) < (n_rows < enough ? n_rows : enough))
		step /= 2;
	const int most = seg_rows(step, bits, wide), n = (n_rows + most - 1) / most;
	seg_fn *const fn = fns[step / 2][bits == 8][wide];
	for (int b = 0; b < n; b++) {
		const int m = n_rows / n + (b < n_rows % n);
		for (int v = 0; v < s.t->tn; v += step) {
			struct seg part = s;
			part.heads += (size_t)v * (size_t)s.t->head;
			part.lines += (size_t)v * 64;
			part.c += v * 16;
			fn(m, &part);
		}
		s.x += (size_t)m * s.t->op->row;
		s.row += (size_t)m * s.t->op->row;
		s.c += (size_t)m * (size_t)s.t->tn * 16;
		s.ahead = 0;
	}
}

/* One code per byte: lines of 4 k, the wanted tiles side by side. */
static void seg_unpack(struct seg *s, unsigned char *to)
{
	const int tn = s->t->tn;
	for (int i = 0; i < s->n_lines; i++)
		for (int v = 0; v < tn; v++) {
			const qv q = qv_load(s->lines + (size_t)i * s->step + (size_t)v * 64);
			qv_store(to + (size_t)(2 * i * tn + v) * 64, qv_low(q));
			qv_store(to + (size_t)((2 * i + 1) * tn + v) * 64, qv_high(q));
		}
	s->lines = to;
	s->ahead = 0;
	s->step = (size_t)tn * 64;
	s->n_lines *= 2;
}

static void seg_any(void *arg, const struct seg *seg)
{
	struct seg s = *seg;
	const struct cpu_dot_tile *t = s.t;
	int bits = t->bits;
	(void)arg;
	if (DOT_UNPACK && bits == 4 && t->n_rows >= DOT_UNPACK) {
		seg_unpack(&s, t->scratch);
		bits = 8;
	}
	seg_all(s, bits, t->n_rows);
}

/* The segments of a block, ascending. */
VFN void dots_walk(const struct cpu_dot_tile *t, void (*fn)(void *arg, const struct seg *s), void *arg)
{
	const int per_line = t->bits == 4 ? 8 : 4;
	const size_t step = (size_t)t->tiles * 64;
	const unsigned char *w = t->w;
	for (int g0 = 0; g0 < t->k; g0 += t->group) {
		const int g1 = t->k - g0 < t->group ? t->k : g0 + t->group;
		const unsigned char *lines = w + (size_t)t->tiles * (size_t)t->head;
		for (int k0 = g0, k1; k0 < g1; k0 = k1) {
			k1 = k0 / ACT_GROUP * ACT_GROUP + ACT_GROUP;
			k1 = k1 < g1 ? k1 : g1;
			const struct seg s = {
				.heads = w + (size_t)t->t0 * (size_t)t->head,
				.lines = lines + (size_t)((k0 - g0) / per_line) * step + (size_t)t->t0 * 64,
				.step = step,
				.n_lines = (k1 - k0 + per_line - 1) / per_line,
				.ahead = t->ahead,
				.t = t,
				.x = t->x + k0,
				.row = t->x,
				.scale = k0 / ACT_GROUP,
				.sum0 = k0 / ACT_SUM,
				.sum1 = (k1 + ACT_SUM - 1) / ACT_SUM,
				.c = t->c,
			};
			fn(arg, &s);
		}
		w = lines + (size_t)((g1 - g0 + per_line - 1) / per_line) * step;
	}
}

static void dots_tile(const struct cpu_dot_tile *t)
{
	memset(t->c, 0, (size_t)t->n_rows * (size_t)t->tn * 16 * sizeof *t->c);
	dots_walk(t, seg_any, NULL);
}

#ifndef DOT_TILE
#define DOT_TILE dots_tile
#endif

static const struct cpu_dot dots_table = {
	.name = DOT_NAME,
	.quantize = dots_quantize,
	.quantize_group = dots_quantize_group,
	.add_up = dots_add_up,
	.tile = DOT_TILE,
};
