/* dots.h - the kernels of dot.h, written once on the lanes of a vec_*.h and the dots of an instruction set.
 * Included once by each .c file of an instruction set, which first includes its vec_*.h and defines
 *   DOT_NAME, DOT_TABLE     the table
 *   DOT_ACC                 accumulators (of 16 sums, per plane) that fit the registers
 *   DOT_ROWS                most rows at once, up to 6
 *   DOT_FOLD                1: products are added in 16 bits first, at most 8 per accumulator
 *   DOT_SPLIT8              1: codes of 8 and 6 bits are split in two, since products of bytes would saturate
 *   DOT_UNPACK              from this many rows on, codes are first unpacked to one byte each; 0: never
 *
 * and the types and functions
 *   qv   64 bytes of codes, [16 outputs][4 k]:   qv_load, qv_store, qv_low, qv_high,
 *        qv_pair(q, j) (bits 2 j and 2 j + 1), qv_join(low, q, j) (puts these above four bits)
 *   qx   4 signed bytes, for all outputs:        qx_load
 *   qh   partial sums:                           qh_begin(qa), qh_dot(qh, qv, qx), qh_end(qa, qh)
 *   qa   16 int32:                               qa_zero, qa_set1, qa_add, qa_mul, qa_shl(a, n), qa_u8,
 *        qa_float, qa_bits (of floats), qa_shr8 (with the sign), qa_store8 (the low bytes),
 *        qa_hsum, qa_hsum8(out, q) (the sums of eight) */
#include <stddef.h>
#include <string.h>

#include "kernels/cpu/dot/dot.h"
#include "kernels/cpu/heads.h"

#define PRAGMA(x) _Pragma(#x)
#ifdef DOT_EMULATED
#define UNROLL
#define UNROLL4
#define ROLLED
#elif defined(__clang__)
#define UNROLL  PRAGMA(clang loop unroll(full))
#define UNROLL4 PRAGMA(clang loop unroll_count(4))
#define ROLLED  PRAGMA(clang loop unroll(disable))
#else
#define UNROLL  PRAGMA(GCC unroll 16)
#define UNROLL4 PRAGMA(GCC unroll 4)
#define ROLLED  PRAGMA(GCC unroll 1)
#endif

/* ---- activations ---- */

/* x + 1.5 * 2^23 has x, rounded to the nearest integer (ties to even), in its low bits. */
#define ROUND_MAGIC 12582912.0f

/* a = max |x| / top.  A group with a value that is not finite gets the scale NaN, so that its outputs are
 * NaN.  A group with all values below 1e-30 counts as zeros. */
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

/* Return the nearest integers of 16 values, of which n exist. */
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

/* Quantize the ACT_GROUP values from k0 on, of which n exist. */
VFN void quant_group(unsigned char *row, const float *x, const struct cpu_operand *op, int k0, const int n)
{
	uint32_t *sums = (uint32_t *)(void *)(row + op->sums) + k0 / ACT_SUM + 1, sum = 0;
	int32_t of[16]; /* ACT_GROUP / ACT_SUM sums, and the rest of a vector */
	qa q[ACT_GROUP / ACT_SUM];
	float inverse;
	((float *)(void *)(row + op->scales))[k0 / ACT_GROUP] =
		quant_scale(x, n, op->wide ? 32512 : 127, &inverse);
	if (inverse == 0) { /* zeros, or values that are not finite */
		memset(row + k0, 0, ACT_GROUP);
		if (op->wide)
			memset(row + op->k_pad + k0, 0, ACT_GROUP);
		memset(sums, 0, ACT_GROUP / ACT_SUM * sizeof *sums);
		return;
	}
	UNROLL for (int i = 0; i < ACT_GROUP / ACT_SUM; i++)
	{
		q[i] = quant_lanes(x + i * ACT_SUM, n - i * ACT_SUM, inverse);
		quant_store(row + k0 + i * ACT_SUM, q[i], op);
	}
	qa_hsum8(of, q);
	for (int i = 0; i < ACT_GROUP / ACT_SUM; i++)
		sums[i] = sum += (uint32_t)of[i];
}

static void dots_quantize_group(unsigned char *row, const float *x, const struct cpu_operand *op, int k0)
{
	if (op->k - k0 >= ACT_GROUP)
		quant_group(row, x, op, k0, ACT_GROUP);
	else
		quant_group(row, x, op, k0, op->k - k0);
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

/* A run of consecutive segments of the same length, within a super-group. */
struct seg {
	const unsigned char *supers; /* super-heads, heads and lines from the first tile wanted on; super_head
					apart */
	const unsigned char *heads;  /* head apart */
	const unsigned char *lines;  /* 64 apart */
	size_t step;                 /* bytes from a line to the next */
	int rounds;   /* in a segment, of 8 k (4 bits, 1 line), 16 k (6 bits, 3 lines) or 4 k (8 bits, 1
			 line) */
	int n;        /* segments in the run */
	size_t pitch; /* bytes from a segment to the next */
	size_t ahead; /* prefetch distance as in cpu_dot_tile, for the first rows only */
	const struct cpu_dot_tile *t;
	const unsigned char *x; /* first row, from the segment's first value on */
	const unsigned char *row;
	int k0, k1; /* inputs of the first segment */
	float *c;
};

VFN void seg_next(struct seg *s)
{
	const int len = s->k1 - s->k0;
	s->n--;
	s->heads += s->pitch;
	s->lines += s->pitch;
	s->x += len;
	s->k0 = s->k1;
	s->k1 += len;
}

VFN qa seg_zeros(const struct seg *s, int v)
{
	const struct cpu_codes *c = &s->t->codes;
	return c->heads != HEADS_AWQ ? qa_set1(c->zero) : qa_u8(s->heads + (size_t)v * AWQ_HEAD + 32);
}

VFN vf seg_scales(const struct seg *s, int v)
{
	const struct cpu_codes *c = &s->t->codes;
	return heads_scales(c, s->supers + (size_t)v * (size_t)c->super_head,
			    s->heads + (size_t)v * (size_t)c->head);
}

VFN vf seg_minimums(const struct seg *s, int v)
{
	const struct cpu_codes *c = &s->t->codes;
	return heads_minimums(c, s->supers + (size_t)v * (size_t)c->super_head,
			      s->heads + (size_t)v * (size_t)c->head);
}

/* Return minus the sum of a row's values in the segment. */
VFN int32_t seg_minus(const struct seg *s, const unsigned char *row)
{
	const uint32_t *sums = (const uint32_t *)(const void *)(row + s->t->op->sums);
	return (int32_t)(sums[s->k0 / ACT_SUM] - sums[(s->k1 + ACT_SUM - 1) / ACT_SUM]);
}

/* Factors that scale the sums of a segment, row by row. */
struct seg_acts {
	float a[DOT_ROWS];
	int32_t minus[DOT_ROWS], zero[DOT_ROWS]; /* minus the sum of the values; that times the part's zero */
	float minus_f[DOT_ROWS];
};

VFN void seg_acts_of(const struct seg *s, const int m, struct seg_acts *out)
{
	const struct cpu_operand *op = s->t->op;
	const unsigned char *row = s->row;
	const size_t a = op->scales + (size_t)(s->k0 / ACT_GROUP) * sizeof(float), stride = op->row;
	const uint32_t zero = (uint32_t)s->t->codes.zero;
	UNROLL for (int r = 0; r < m; r++, row += stride)
	{
		out->a[r] = *(const float *)(const void *)(row + a);
		out->minus[r] = seg_minus(s, row);
		out->zero[r] = (int32_t)(zero * (uint32_t)out->minus[r]);
		out->minus_f[r] = (float)out->minus[r];
	}
}

/* Scale exact sums to outputs, for tile v and m rows.  The zero is that of the part, or each lane's own with
 * HEADS_AWQ; with minimums it is 0. */
VFN void seg_scale(const struct seg *s, int v, const int m, const qa *sum, int tn_all,
		   const struct seg_acts *acts)
{
	const struct cpu_codes *codes = &s->t->codes;
	const vf scale = seg_scales(s, v);
	const size_t stride = (size_t)tn_all * 16;
	float *c = s->c + v * 16;
	if (codes->minimums) {
		const vf min = seg_minimums(s, v);
		UNROLL for (int r = 0; r < m; r++, c += stride)
		{
			const vf a = v_set1(acts->a[r]);
			const vf y = v_fma(v_mul(scale, a), qa_float(sum[r]), v_load(c));
			v_store(c, v_fma(v_mul(min, a), v_set1(acts->minus_f[r]), y));
		}
		return;
	}
	if (codes->heads == HEADS_AWQ) {
		const qa zeros = qa_u8(s->heads + (size_t)v * AWQ_HEAD + 32);
		UNROLL for (int r = 0; r < m; r++, c += stride)
		{
			const qa x = qa_add(sum[r], qa_mul(zeros, qa_set1(acts->minus[r])));
			v_store(c, v_fma(v_mul(scale, v_set1(acts->a[r])), qa_float(x), v_load(c)));
		}
		return;
	}
	UNROLL for (int r = 0; r < m; r++, c += stride)
	{
		const qa x = qa_add(sum[r], qa_set1(acts->zero[r]));
		v_store(c, v_fma(v_mul(scale, v_set1(acts->a[r])), qa_float(x), v_load(c)));
	}
}

/* Load a round of codes: q[j] has k 4 j to 4 j + 3; high[j] has their upper bits, if codes are split. */
VFN void seg_codes(const int bits, const int wp, const unsigned char *p, size_t step, qv q[4], qv high[4])
{
	const qv line = qv_load(p);
	if (bits == 8) {
		q[0] = wp == 2 ? qv_low(line) : line;
		high[0] = qv_high(line);
		return;
	}
	q[0] = qv_low(line);
	q[1] = qv_high(line);
	if (bits == 4)
		return;
	const qv second = qv_load(p + step), pairs = qv_load(p + 2 * step);
	q[2] = qv_low(second);
	q[3] = qv_high(second);
	UNROLL for (int j = 0; j < 4; j++)
	{
		if (wp == 2)
			high[j] = qv_pair(pairs, j);
		else
			q[j] = qv_join(q[j], pairs, j);
	}
}

/* Planes of x: high and low bytes in int16.  Planes of codes: 2 if codes are split. */
#define SEG_X_PLANES(wide)    ((wide) ? 2 : 1)
#define SEG_CODE_PLANES(bits) ((bits) != 4 && DOT_SPLIT8 ? 2 : 1)

/* Addresses that a round reads. */
struct seg_at {
	const unsigned char *codes;       /* line of the first tile */
	const unsigned char *x[DOT_ROWS]; /* the rows' values in the segment */
	size_t k;                         /* offset of the round's first value in a row */
};

/* Add the products of one round to the sums. */
VFN void seg_round(const int tn, const int m, const int bits, const int wide, const struct seg *s,
		   const struct seg_at *from, qh sums[4][DOT_ROWS][2][2])
{
	const int xp = SEG_X_PLANES(wide), wp = SEG_CODE_PLANES(bits);
	const int quads = bits == 8 ? 1 : bits == 6 ? 4 : 2, lines = bits == 6 ? 3 : 1;
	const size_t low = (size_t)s->t->op->k_pad;
	UNROLL for (int v = 0; v < tn; v++)
	{
		const unsigned char *p = from->codes + (size_t)v * 64;
		qv q[4], high[4];
		seg_codes(bits, wp, p, s->step, q, high);
		/* To the second-level cache; with distance 0, the lines being read. */
		UNROLL for (int line = 0; line < lines; line++)
			__builtin_prefetch(p + (size_t)line * s->step + s->ahead, 0, 2);
		UNROLL for (int r = 0; r < m; r++) UNROLL for (int b = 0; b < xp; b++)
			UNROLL for (int j = 0; j < quads; j++)
		{
			const qx x = qx_load(from->x[r] + (size_t)b * low + from->k + (size_t)(4 * j));
			sums[v][r][b][0] = qh_dot(sums[v][r][b][0], q[j], x);
			if (wp == 2)
				sums[v][r][b][1] = qh_dot(sums[v][r][b][1], high[j], x);
		}
	}
}

#define SEG_EACH                                                                                             \
	UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++)                               \
		UNROLL for (int b = 0; b < xp; b++) UNROLL for (int w = 0; w < wp; w++)

/* Exact sums of the first segment of a run; rounds: in the segment. */
VFN void seg_sums(const int tn, const int m, const int bits, const int wide, const int rounds,
		  const struct seg *s, qa sum[4][DOT_ROWS])
{
	const int xp = SEG_X_PLANES(wide), wp = SEG_CODE_PLANES(bits);
	const int quads = bits == 8 ? 1 : bits == 6 ? 4 : 2, chunk = DOT_FOLD ? 8 / quads : rounds;
	struct seg_at at = {.codes = s->lines};
	qa acc[4][DOT_ROWS][2][2];
	UNROLL for (int r = 0; r < m; r++) at.x[r] = s->x + (size_t)r * s->t->op->row;
	SEG_EACH acc[v][r][b][w] = qa_zero();
	for (int left = rounds; left > 0; left -= chunk) {
		qh h[4][DOT_ROWS][2][2];
		const int n = left < chunk ? left : chunk;
		SEG_EACH h[v][r][b][w] = qh_begin(acc[v][r][b][w]);
		ROLLED for (int i = 0; i < n; i++)
		{
			seg_round(tn, m, bits, wide, s, &at, h);
			at.codes += bits == 6 ? 3 * s->step : s->step;
			at.k += (size_t)(4 * quads);
		}
		SEG_EACH acc[v][r][b][w] = qh_end(acc[v][r][b][w], h[v][r][b][w]);
	}
	UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++)
	{
		qa part[2];
		UNROLL for (int b = 0; b < xp; b++) part[b] =
			wp == 2 ? qa_add(acc[v][r][b][0], qa_shl(acc[v][r][b][1], 4)) : acc[v][r][b][0];
		sum[v][r] = wide ? qa_add(qa_shl(part[0], 8), part[1]) : part[0];
	}
}

/* Compute the first segment of a run. */
VFN void seg_dot(const int tn, const int m, const int bits, const int wide, const struct seg *s)
{
	struct seg_acts acts;
	qa sum[4][DOT_ROWS];
	seg_sums(tn, m, bits, wide, s->rounds, s, sum);
	seg_acts_of(s, m, &acts);
	UNROLL for (int v = 0; v < tn; v++) seg_scale(s, v, m, sum[v], s->t->tn, &acts);
}

/* Compute a run of short segments, with outputs and super-group scales kept in registers.  group: inputs in a
 * segment; kind, minimums: of the heads. */
VFN void seg_short(const int tn, const int m, const int bits, const int wide, const int group,
		   const enum cpu_heads kind, const int minimums, const struct seg *run)
{
	const struct cpu_codes *codes = &run->t->codes;
	const size_t super_head = (size_t)codes->super_head, stride = (size_t)run->t->tn * 16;
	const size_t head = kind == HEADS_SUPER ? minimums ? 32 : 16 : 32;
	const int rounds = group / (bits == 8 ? 4 : bits == 6 ? 16 : 8);
	struct seg s = *run;
	vf y[4][DOT_ROWS], d[4], d_min[4];
	UNROLL for (int v = 0; v < tn; v++)
	{
		const uint16_t *super = (const uint16_t *)(const void *)(s.supers + (size_t)v * super_head);
		if (kind == HEADS_SUPER)
			d[v] = v_load_f16(super);
		if (minimums)
			d_min[v] = v_load_f16(super + 16);
		UNROLL for (int r = 0; r < m; r++) y[v][r] = v_load(s.c + (size_t)r * stride + v * 16);
	}
	for (; s.n; seg_next(&s)) {
		struct seg_acts acts;
		qa sum[4][DOT_ROWS];
		seg_sums(tn, m, bits, wide, rounds, &s, sum);
		seg_acts_of(&s, m, &acts);
		UNROLL for (int v = 0; v < tn; v++)
		{
			const unsigned char *h = s.heads + (size_t)v * head;
			const vf scale = kind == HEADS_SUPER ? v_mul(d[v], v_load_i8(h))
							     : v_load_f16((const uint16_t *)(const void *)h);
			UNROLL for (int r = 0; r < m; r++)
			{
				const vf a = v_set1(acts.a[r]);
				const qa x = minimums ? sum[v][r] : qa_add(sum[v][r], qa_set1(acts.zero[r]));
				y[v][r] = v_fma(v_mul(scale, a), qa_float(x), y[v][r]);
				if (minimums)
					y[v][r] = v_fma(v_mul(v_mul(d_min[v], v_load_u8(h + 16)), a),
							v_set1(acts.minus_f[r]), y[v][r]);
			}
		}
	}
	UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++)
		v_store(s.c + (size_t)r * stride + v * 16, y[v][r]);
}

/* True if outputs fit the registers with sums and scales. */
#define SEG_HOLDS(tn, m, bits, wide)                                                                         \
	((tn) == 4 && 3 * (tn) * (m)*SEG_X_PLANES(wide) * SEG_CODE_PLANES(bits) <= DOT_ACC)

VFN void seg_run(const int tn, const int m, const int bits, const int wide, const struct seg *run)
{
	const struct cpu_codes *c = &run->t->codes;
	if (SEG_HOLDS(tn, m, bits, wide) && run->n > 1) { /* so each segment is a whole group */
		const bool super = c->heads == HEADS_SUPER;
		if (super && c->group == 16 && !c->minimums) {
			seg_short(tn, m, bits, wide, 16, HEADS_SUPER, 0, run);
			return;
		}
		if (super && c->group == 16 && c->minimums) {
			seg_short(tn, m, bits, wide, 16, HEADS_SUPER, 1, run);
			return;
		}
		if (super && c->group == 32 && c->minimums) {
			seg_short(tn, m, bits, wide, 32, HEADS_SUPER, 1, run);
			return;
		}
		if (c->heads == HEADS_F16 && c->group == 32) {
			seg_short(tn, m, bits, wide, 32, HEADS_F16, 0, run);
			return;
		}
	}
	for (struct seg s = *run; s.n; seg_next(&s))
		seg_dot(tn, m, bits, wide, &s);
}

/* ---- choice of the kernel ---- */

#define SEG_CASE(tn, n, bits, wide)                                                                          \
	case n: {                                                                                            \
		enum {                                                                                       \
			FITS = (tn) * (n)*SEG_X_PLANES(wide) * SEG_CODE_PLANES(bits) <= DOT_ACC &&           \
			       (n) <= DOT_ROWS,                                                              \
		};                                                                                           \
		if (FITS)                                                                                    \
			seg_run(tn, FITS ? n : 1, bits, wide, s);                                            \
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
SEG_FNS(6, 0)
SEG_FNS(6, 1)
SEG_FNS(8, 0)
SEG_FNS(8, 1)

typedef void seg_fn(int m, const struct seg *s);

static seg_fn *seg_find(int tn, int bits, bool wide)
{
	static seg_fn *const fns[3][3][2] = {
		{{seg_1_4_0, seg_1_4_1}, {seg_1_6_0, seg_1_6_1}, {seg_1_8_0, seg_1_8_1}},
		{{seg_2_4_0, seg_2_4_1}, {seg_2_6_0, seg_2_6_1}, {seg_2_8_0, seg_2_8_1}},
		{{seg_4_4_0, seg_4_4_1}, {seg_4_6_0, seg_4_6_1}, {seg_4_8_0, seg_4_8_1}},
	};
	return fns[tn / 2][bits / 2 - 2][wide];
}

/* Rows that fit the registers with tn tiles. */
static int seg_rows(int tn, int bits, bool wide)
{
	int n = DOT_ACC / (tn * SEG_X_PLANES(wide) * SEG_CODE_PLANES(bits));
	return n < DOT_ROWS ? n : DOT_ROWS;
}

/* Compute all rows, with as many tiles at once as leave registers for the rows, or for as many rows as a
 * kernel takes.  If that takes several passes, a run has one segment, which stays in the first-level
 * cache. */
static void seg_all(struct seg s, int bits, int n_rows)
{
	const bool wide = s.t->op->wide;
	const int enough =
		wide ? (DOT_ROWS + 1) / 2 : DOT_ROWS; /* a row with two planes takes the registers of two
							 rows */
	int step = s.t->tn;
	while (step > 1 && seg_rows(step, bits, wide) < (n_rows < enough ? n_rows : enough))
		step /= 2;
	const int most = seg_rows(step, bits, wide), n = (n_rows + most - 1) / most;
	seg_fn *const fn = seg_find(step, bits, wide);
	if (n == 1 && step == s.t->tn) {
		fn(n_rows, &s);
		return;
	}
	for (; s.n; seg_next(&s)) {
		struct seg rows = s;
		rows.n = 1;
		for (int b = 0; b < n; b++) {
			const int m = n_rows / n + (b < n_rows % n);
			for (int v = 0; v < s.t->tn; v += step) {
				struct seg part = rows;
				part.supers += (size_t)v * (size_t)s.t->codes.super_head;
				part.heads += (size_t)v * (size_t)s.t->codes.head;
				part.lines += (size_t)v * 64;
				part.c += v * 16;
				fn(m, &part);
			}
			rows.x += (size_t)m * s.t->op->row;
			rows.row += (size_t)m * s.t->op->row;
			rows.c += (size_t)m * (size_t)s.t->tn * 16;
			rows.ahead = 0;
		}
	}
}

/* Unpack the first segment of a run to one code per byte: lines of 4 k, the wanted tiles adjacent. */
static struct seg seg_unpack(const struct seg *run, unsigned char *to)
{
	struct seg s = *run;
	const int tn = s.t->tn, bits = s.t->codes.bits, quads = bits == 6 ? 4 : 2;
	for (int i = 0; i < s.rounds; i++)
		for (int v = 0; v < tn; v++) {
			qv q[4] = {0}, high[4];
			const unsigned char *p = s.lines + (size_t)(i * (bits == 6 ? 3 : 1)) * s.step;
			if (bits == 6)
				seg_codes(6, 1, p + (size_t)v * 64, s.step, q, high);
			else
				seg_codes(4, 1, p + (size_t)v * 64, s.step, q, high);
			for (int j = 0; j < quads; j++)
				qv_store(to + (size_t)((quads * i + j) * tn + v) * 64, q[j]);
		}
	s.lines = to;
	s.ahead = 0;
	s.step = (size_t)tn * 64;
	s.rounds *= quads;
	s.n = 1;
	return s;
}

static void seg_any(void *arg, const struct seg *run)
{
	const struct cpu_dot_tile *t = run->t;
	const int bits = t->codes.bits;
	(void)arg;
	if (!DOT_UNPACK || bits == 8 || t->n_rows < DOT_UNPACK) {
		seg_all(*run, bits, t->n_rows);
		return;
	}
	for (struct seg s = *run; s.n; seg_next(&s))
		seg_all(seg_unpack(&s, t->scratch), 8, t->n_rows);
}

/* Walk the segments of a group of inputs from g0 on; w points to its first head. */
VFN void dots_group(const struct cpu_dot_tile *t, const unsigned char *super, const unsigned char *w, int g0,
		    int n, size_t pitch, void (*fn)(void *arg, const struct seg *s), void *arg)
{
	const struct cpu_codes *c = &t->codes;
	const int g1 = t->k - g0 < c->group ? t->k : g0 + c->group;
	const int per_round = c->bits == 4 ? 8 : c->bits == 6 ? 16 : 4;
	const size_t step = (size_t)t->tiles * 64;
	for (int k0 = g0, k1; k0 < g1; k0 = k1) {
		k1 = k0 / ACT_GROUP * ACT_GROUP + ACT_GROUP;
		k1 = k1 < g1 ? k1 : g1;
		const struct seg s = {
			.supers = super + (size_t)t->t0 * (size_t)c->super_head,
			.heads = w + (size_t)t->t0 * (size_t)c->head,
			.lines = w + (size_t)t->tiles * (size_t)c->head +
				 (size_t)heads_lines(c->bits, k0 - g0) * step + (size_t)t->t0 * 64,
			.step = step,
			.rounds = (k1 - k0 + per_round - 1) / per_round,
			.n = n,
			.pitch = pitch,
			.ahead = t->ahead,
			.t = t,
			.x = t->x + k0,
			.row = t->x,
			.k0 = k0,
			.k1 = k1,
			.c = t->c,
		};
		fn(arg, &s);
	}
}

/* Walk the runs of a block, ascending.  A run is one group, or several groups if they fit within the groups
 * of activations. */
VFN void dots_walk(const struct cpu_dot_tile *t, void (*fn)(void *arg, const struct seg *s), void *arg)
{
	const struct cpu_codes *c = &t->codes;
	const int super = c->super ? c->super : t->k;
	const size_t step = (size_t)t->tiles * 64, heads = (size_t)t->tiles * (size_t)c->head;
	const size_t pitch = heads + (size_t)heads_lines(c->bits, c->group) * step;
	const unsigned char *w = t->w;
	for (int s0 = 0; s0 < t->k; s0 += super) {
		const int s1 = t->k - s0 < super ? t->k : s0 + super;
		const unsigned char *at = w;
		w += (size_t)t->tiles * (size_t)c->super_head;
		for (int g0 = s0, n; g0 < s1; g0 += n * c->group) {
			n = ACT_GROUP % c->group == 0 ? (s1 - g0) / c->group : 1;
			n = n > 0 ? n : 1;
			dots_group(t, at, w, g0, n, pitch, fn, arg);
			w += (size_t)n * pitch;
		}
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
