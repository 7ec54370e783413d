/* inner.h - the inner kernels, written on the sixteen lanes of vec_*.h.
 * Included once by each isa_*.c, which first includes its vec_*.h and defines
 *   INNER_ROWS      rows_max: rows x 1 tile of accumulators fit the registers
 *   INNER_ROWS2     up to this many rows take 2 tiles at once,
 *   INNER_ROWS4     up to this many take 4: few rows need several tiles to hide the latency of a chain
 *   INNER_AWQ2, INNER_AWQ4   these limits for AWQ4, which also needs registers for widening
 *   INNER_AHEAD     AWQ4: prefetch the next group
 *   ATTN_HEADS4, ATTN_HEADS2   up to this many queries of a head take 4, 2 heads at once,
 *   ATTN_TILES2     2 tiles of tokens,
 *   ATTN_WIDE8, ATTN_WIDE4, ATTN_WIDE2   8, 4, 2 vectors of V
 *   ATTN_SPAN       queries that prefill takes at once
 * Everything here is static.
 *
 * The kernels are always_inline functions of constant (tiles, rows); a switch on the rows chooses the copy.
 * Accumulators are small arrays that the compiler keeps in registers once all loops over tiles and rows are
 * unrolled. */
#include <math.h>
#include <stddef.h>

#include "kernels/cpu/draw.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/isa.h"

#define PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define UNROLL PRAGMA(clang loop unroll(full))
#else
#define UNROLL PRAGMA(GCC unroll 16)
#endif

/* Switch from a number of rows to the kernel built for it. */
#define ROW_CASE(n, max, call)                                                                               \
	case n:                                                                                              \
		if (n <= (max)) {                                                                            \
			enum { M = n <= (max) ? n : 1 };                                                     \
			call;                                                                                \
		}                                                                                            \
		break;
#define ROW_SWITCH(m, max, call)                                                                             \
	switch (m) {                                                                                         \
		ROW_CASE(1, max, call)                                                                       \
		ROW_CASE(2, max, call)                                                                       \
		ROW_CASE(3, max, call)                                                                       \
		ROW_CASE(4, max, call)                                                                       \
		ROW_CASE(5, max, call)                                                                       \
		ROW_CASE(6, max, call)                                                                       \
		ROW_CASE(7, max, call)                                                                       \
		ROW_CASE(8, max, call)                                                                       \
		ROW_CASE(9, max, call)                                                                       \
		ROW_CASE(10, max, call)                                                                      \
	}

/* ---- exp ---- */

/* exp(x) for x <= 88; 0 below -87 and for NaN.  x = n ln 2 + r; e^r is a polynomial of degree 6 fitted to |r|
 * <= 0.3475 with a relative error of 3e-9. */
VFN vf v_exp(vf x)
{
	const vf round = v_set1(0x1.8p23f);
	vf t = v_fma(x, v_set1(0x1.715476p+0f), round);
	vf n = v_sub(t, round);
	vf r = v_fma(n, v_set1(-0x1.62e4p-1f), x); /* ln 2 in two parts, the first with 14 bits */
	r = v_fma(n, v_set1(-0x1.7f7d1cp-20f), r);
	vf p = v_set1(0.001381422160193324f);
	p = v_fma(p, r, v_set1(0.00836889911442995f));
	p = v_fma(p, r, v_set1(0.04166840389370918f));
	p = v_fma(p, r, v_set1(0.1666651964187622f));
	p = v_fma(p, r, v_set1(0.4999999403953552f));
	p = v_fma(v_mul(r, r), p, r);
	p = v_add(p, v_set1(1));
	return v_keep_ge(v_scale2(p, t), x, v_set1(-87));
}

/* cap * tanh(x / cap) = cap - 2 cap / (e^(2 x / cap) + 1); twice is 2 / cap.  NaN stays NaN. */
VFN vf v_softcap(vf x, vf cap, vf twice)
{
	const vf y = v_max(v_set1(-80), v_min(v_set1(80), v_mul(x, twice)));
	const vf far = v_div(v_add(cap, cap), v_add(v_exp(y), v_set1(1)));
	return v_fma(y, v_zero(), v_sub(cap, far));
}

static void inner_softcap(float *x, int n, float cap)
{
	const vf c = v_set1(cap), twice = v_set1(2 / cap);
	int i = 0;
	for (; i + 16 <= n; i += 16)
		v_store(x + i, v_softcap(v_load(x + i), c, twice));
	if (i < n)
		v_store_n(x + i, v_softcap(v_load_n(x + i, n - i), c, twice), n - i);
}

/* ---- linear: weights that are widened to F32 directly ---- */

VFN vf load_w(enum kern_dtype dtype, const unsigned char *w, size_t i)
{
	if (dtype == KERN_F16)
		return v_load_f16((const uint16_t *)(const void *)w + i);
	if (dtype == KERN_BF16)
		return v_load_bf16((const uint16_t *)(const void *)w + i);
	return v_load((const float *)(const void *)w + i);
}

struct dense_args {
	const unsigned char *w;
	size_t w_stride; /* elements from k to k + 1 */
	int len;
	const float *x;
	float *c;
	size_t c_stride;
	size_t ahead;              /* > 0: prefetch the lines this many bytes after w */
	const unsigned char *next; /* weights to prefetch, which are read next; NULL: none */
	size_t next_step;          /* bytes of `next` per k */
};

/* c[m][tile] += sum over len k's, ascending, of x[k][m] * w[k][tile], as one chain that continues in c. */
VFN void dense(const enum kern_dtype dtype, const int tn, const int m, const struct dense_args *a)
{
	const size_t esize = dtype == KERN_F32 ? 4 : 2, w_step = a->w_stride * esize, c_stride = a->c_stride;
	const size_t ahead = a->ahead, next_step = a->next_step;
	const unsigned char *w = a->w, *next = a->next;
	const float *x = a->x;
	float *const c = a->c;
	vf acc[4][INNER_ROWS];
	UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++) acc[v][r] =
		v_load(c + (size_t)r * c_stride + v * 16);
	for (int k = 0; k < a->len; k++) {
		vf wv[4];
		UNROLL for (int v = 0; v < tn; v++) wv[v] = load_w(dtype, w, (size_t)v * 16);
		if (ahead)
			UNROLL for (size_t b = 0; b < (size_t)tn * 16 * esize; b += 64)
				v_prefetch(w + ahead + b);
		if (next) {
			__builtin_prefetch(next, 0, 2);
			next += next_step;
		}
		UNROLL for (int r = 0; r < m; r++)
		{
			vf xv = v_set1(x[r]);
			UNROLL for (int v = 0; v < tn; v++) acc[v][r] = v_fma(xv, wv[v], acc[v][r]);
		}
		w += w_step;
		x += m;
	}
	UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++)
		v_store(c + (size_t)r * c_stride + v * 16, acc[v][r]);
}

#define DENSE_FN(name, dtype)                                                                                \
	static void name(int tn, int m, const struct dense_args *a)                                          \
	{                                                                                                    \
		if (tn == 4) {                                                                               \
			ROW_SWITCH(m, INNER_ROWS4, dense(dtype, 4, M, a))                                    \
		} else if (tn == 2) {                                                                        \
			ROW_SWITCH(m, INNER_ROWS2, dense(dtype, 2, M, a))                                    \
		} else {                                                                                     \
			ROW_SWITCH(m, INNER_ROWS, dense(dtype, 1, M, a))                                     \
		}                                                                                            \
	}

DENSE_FN(dense_f32, KERN_F32)
DENSE_FN(dense_f16, KERN_F16)
DENSE_FN(dense_bf16, KERN_BF16)

/* ---- linear: AWQ4 ---- */

/* k 0 to 3 of a word are at bits 0, 8, 16 and 24, k 4 to 7 four bits higher; k ascends in every sum.  A
 * nibble at bits b..b+3 under the exponent of 2^(23-b) reads as 2^(23-b) + q; subtracting 2^(23-b) + z gives
 * q - z exactly.  Constants for b = 0, 8 and 16 serve all eight nibbles, after shifts by 4 and 8.  The shifts
 * are made when needed, since registers are scarce. */

struct awq_consts {
	vq mask[3], magic[3];
};

VFN struct awq_consts awq_consts(void)
{
	return (struct awq_consts){
		{vq_set1(0xf), vq_set1(0xf00), vq_set1(0xf0000)},
		{vq_set1(0x4b000000), vq_set1(0x47000000), vq_set1(0x43000000)},
	};
}

VFN void awq_zeros(vf z[3], const unsigned char *head)
{
	vf z0 = v_load_u8(head + 32);
	z[0] = v_add(v_set1(8388608), z0);
	z[1] = v_add(v_set1(32768), z0);
	z[2] = v_add(v_set1(128), z0);
}

VFN vf awq_scale(const unsigned char *head)
{
	return v_load_f16((const uint16_t *)(const void *)head);
}

struct awq_args {
	const unsigned char *heads, *lines; /* from the first tile wanted on; heads are AWQ_HEAD apart, lines
					       64 */
	size_t step;                        /* bytes from a line to the next */
	size_t ahead;                       /* bytes to the next group */
	int len;
	const float *x;
	float *c;
	size_t c_stride;
};

/* c[m][tile] = scale * (sum over the group's k's, ascending, of x[k][m] * (q - z)) + c.  Four tiles at once
 * read one ascending stream, for which prefetch instructions cost more than they gain.  Fewer tiles leave
 * gaps, which are read later (INNER_AHEAD). */
VFN void awq_group(const int tn, const int m, const struct awq_args *a)
{
	const struct awq_consts n = awq_consts();
	vf acc[4][INNER_ROWS], z[4][3];
	UNROLL for (int v = 0; v < tn; v++)
	{
		awq_zeros(z[v], a->heads + (size_t)v * AWQ_HEAD);
		UNROLL for (int r = 0; r < m; r++) acc[v][r] = v_zero();
	}
	const unsigned char *p = a->lines;
	const float *x = a->x;
	float last[8 * INNER_ROWS];
	for (int left = a->len; left > 0; left -= 8) {
		vq q[4], t[4];
		if (left < 8) { /* fewer than 8 k left in the group: 0 for the missing ones */
			memset(last, 0, sizeof last);
			memcpy(last, x, (size_t)(left * m) * sizeof *x);
			x = last;
		}
		UNROLL for (int v = 0; v < tn; v++)
		{
			q[v] = vq_load(p + (size_t)v * 64);
			if (INNER_AHEAD)
				v_prefetch(p + (size_t)v * 64 + a->ahead);
		}
		/* All tiles process one k before the next k, so that a value of x is broadcast once for all
		 * tiles. */
#define STEP(j, word, at)                                                                                    \
	{                                                                                                    \
		vf wv[4];                                                                                    \
		UNROLL for (int v = 0; v < tn; v++) wv[v] =                                                  \
			v_sub(vq_nibble(word[v], n.mask[at], n.magic[at]), z[v][at]);                        \
		UNROLL for (int r = 0; r < m; r++)                                                           \
		{                                                                                            \
			vf xv = v_set1(x[j * m + r]);                                                        \
			UNROLL for (int v = 0; v < tn; v++) acc[v][r] = v_fma(xv, wv[v], acc[v][r]);         \
		}                                                                                            \
	}
		STEP(0, q, 0)
		STEP(1, q, 1)
		STEP(2, q, 2)
		UNROLL for (int v = 0; v < tn; v++) t[v] = vq_shr8(q[v]);
		STEP(3, t, 2)
		UNROLL for (int v = 0; v < tn; v++) t[v] = vq_shr4(q[v]);
		STEP(4, t, 0)
		STEP(5, t, 1)
		STEP(6, t, 2)
		UNROLL for (int v = 0; v < tn; v++) t[v] = vq_shr8(t[v]);
		STEP(7, t, 2)
#undef STEP
		p += a->step;
		x += 8 * m;
	}
	UNROLL for (int v = 0; v < tn; v++)
	{
		vf scale = awq_scale(a->heads + (size_t)v * AWQ_HEAD);
		UNROLL for (int r = 0; r < m; r++)
		{
			float *out = a->c + (size_t)r * a->c_stride + v * 16;
			v_store(out, v_fma(scale, acc[v][r], v_load(out)));
		}
	}
}

static void awq_rows(int tn, int m, const struct awq_args *a)
{
	if (tn == 4) {
		ROW_SWITCH(m, INNER_AWQ4, awq_group(4, M, a))
	} else if (tn == 2) {
		ROW_SWITCH(m, INNER_AWQ2, awq_group(2, M, a))
	} else {
		ROW_SWITCH(m, INNER_ROWS, awq_group(1, M, a))
	}
}

/* ---- linear: one block of outputs, all rows ---- */

/* Return the rows of row block b.  Blocks are as even as possible: the first n_rows % n_blocks have one
 * more. */
static int row_block(int n_rows, int n_blocks, int b)
{
	return n_rows / n_blocks + (b < n_rows % n_blocks);
}

static int tiles_at_once(int tn, int m, int rows4, int rows2)
{
	return tn == 4 && m <= rows4 ? 4 : tn >= 2 && m <= rows2 ? 2 : 1;
}

/* Return the bytes per k of the next slice that each pass over a slice prefetches.  0: none, if there is only
 * one pass or the task has only some of the tiles. */
static size_t next_slice_share(const struct cpu_tile *t, size_t esize)
{
	size_t passes = 0;
	for (int b = 0; b < t->n_row_blocks; b++)
		passes += (size_t)(t->tn / tiles_at_once(t->tn, row_block(t->n_rows, t->n_row_blocks, b),
							 INNER_ROWS4, INNER_ROWS2));
	return t->n_row_blocks > 1 && t->tn == t->tiles ? (size_t)t->tn * 16 * esize / passes : 0;
}

/* 16-bit and F32 weights: slices of K that stay in the first-level cache for all row blocks. */
static void tile_dense(const struct cpu_tile *t)
{
	const size_t esize = t->dtype == KERN_F32 ? 4 : 2, w_stride = (size_t)t->tiles * 16;
	const int slice = t->n_row_blocks > 1 ? 128 : t->k;
	for (int k0 = 0; k0 < t->k; k0 += slice) {
		int len = t->k - k0 < slice ? t->k - k0 : slice;
		/* Each pass over a slice prefetches a share of the next slice.  The first pass alone, without
		 * such help, would wait for memory, which the other passes would leave idle. */
		const unsigned char *next = t->w + (size_t)(k0 + len) * w_stride * esize;
		const size_t share = next_slice_share(t, esize);
		for (int b = 0, r0 = 0; b < t->n_row_blocks; b++) {
			int m = row_block(t->n_rows, t->n_row_blocks, b);
			int step = tiles_at_once(t->tn, m, INNER_ROWS4, INNER_ROWS2);
			for (int v = 0; v < t->tn; v += step) {
				struct dense_args a = {
					.w = t->w +
					     ((size_t)k0 * w_stride + (size_t)(t->t0 + v) * 16) * esize,
					.w_stride = w_stride,
					.len = len,
					.x = t->x + (size_t)r0 * (size_t)t->k + (size_t)k0 * (size_t)m,
					.c = t->c + (size_t)r0 * (size_t)t->tn * 16 + v * 16,
					.c_stride = (size_t)t->tn * 16,
					.ahead = b == 0 && !share ? 2048 : 0,
					.next = share ? next : NULL,
					.next_step = share,
				};
				next += (size_t)len * share;
				if (t->dtype == KERN_F16)
					dense_f16(step, m, &a);
				else if (t->dtype == KERN_BF16)
					dense_bf16(step, m, &a);
				else
					dense_f32(step, m, &a);
			}
			r0 += m;
		}
	}
}

/* Process one group at a time, which stays in the first-level cache for all row blocks. */
static void tile_awq(const struct cpu_tile *t)
{
	const unsigned char *w = t->w;
	for (int k0 = 0; k0 < t->k; k0 += t->codes.group) {
		int len = t->k - k0 < t->codes.group ? t->k - k0 : t->codes.group;
		const unsigned char *lines = w + (size_t)t->tiles * AWQ_HEAD;
		const size_t line = (size_t)t->tiles * 64;
		for (int b = 0, r0 = 0; b < t->n_row_blocks; b++) {
			int m = row_block(t->n_rows, t->n_row_blocks, b);
			int step = tiles_at_once(t->tn, m, INNER_AWQ4, INNER_AWQ2);
			for (int v = 0; v < t->tn; v += step) {
				struct awq_args a = {
					.heads = w + (size_t)(t->t0 + v) * AWQ_HEAD,
					.lines = lines + (size_t)(t->t0 + v) * 64,
					.step = line,
					.ahead = (size_t)t->tiles * AWQ_HEAD + (size_t)(len + 7) / 8 * line,
					.len = len,
					.x = t->x + (size_t)r0 * (size_t)t->k + (size_t)k0 * (size_t)m,
					.c = t->c + (size_t)r0 * (size_t)t->tn * 16 + v * 16,
					.c_stride = (size_t)t->tn * 16,
				};
				awq_rows(step, m, &a);
			}
			r0 += m;
		}
		w = lines + (size_t)(len + 7) / 8 * line;
	}
}

/* Bits 4 and 5 of k i of 16, from a line of pairs. */
VFN vf codes_pair(const unsigned char *line, int i)
{
	vq q = vq_load(line);
	for (int j = 0; j < i / 8; j++)
		q = vq_shr4(q);
	for (int j = 0; j < i % 4; j++)
		q = vq_shr8(q);
	/* Bits 0 and 1, or 2 and 3, of a float's mantissa. */
	const vf low = v_sub(vq_nibble(q, vq_set1(3), vq_set1(0x4b000000)), v_set1(8388608));
	const vf high = v_sub(vq_nibble(q, vq_set1(12), vq_set1(0x4b000000)), v_set1(8388608));
	return i / 4 % 2 ? v_mul(high, v_set1(0.25f)) : low;
}

/* Convert n codes of a round of one tile to floats, `stride` apart: scale * (q - zero), or scale * q - min.
 * line_step: bytes from a line to the next. */
VFN void codes_round(const struct cpu_codes *c, const unsigned char *line, size_t line_step, vf scale, vf min,
		     int n, float *out, size_t stride)
{
	/* A code goes to bits 0 to 7, or 8 to 15, of a float's mantissa, as for AWQ above. */
	const int bits = c->bits, most = bits == 4 ? 8 : bits == 6 ? 16 : 4;
	const vq mask0 = vq_set1(bits == 8 ? 0xff : 0xf), mask1 = vq_set1(bits == 8 ? 0xff00 : 0xf00);
	const vq magic0 = vq_set1(0x4b000000), magic1 = vq_set1(0x47000000);
	const vf zero = v_set1((float)c->zero);
	for (int i = 0; c->e4m3 && i < n && i < most; i++, out += stride)
		v_store(out, v_mul(scale, v_load_e4m3(line + i * LANES_N)));
	if (c->e4m3)
		return;
	vq q = vq_load(line);
	for (int i = 0; i < n && i < most; i++, out += stride) {
		/* k 0 to 3 are bytes, or their low halves; k 4 to 7 the high halves.  With 6 bits, k 8 to 15
		 * are in a second line. */
		if (i && i % 4 == 0) {
			q = vq_load(line + (size_t)(i / 8) * line_step);
			if (i % 8)
				q = vq_shr4(q);
		}
		vf code = i % 4 ? v_sub(vq_nibble(q, mask1, magic1), v_set1(32768))
				: v_sub(vq_nibble(q, mask0, magic0), v_set1(8388608));
		if (i % 4)
			q = vq_shr8(q);
		if (bits == 6)
			code = v_fma(codes_pair(line + 2 * line_step, i), v_set1(16), code);
		const vf w = v_mul(scale, v_sub(code, zero));
		v_store(out, c->minimums ? v_sub(w, min) : w);
	}
}

/* Convert inputs k .. k + n - 1 of the group at w to floats [n][tn * 16]. */
VFN void codes_slice(const struct cpu_tile *t, const unsigned char *super, const unsigned char *w, int k,
		     int n, float *out)
{
	const struct cpu_codes *c = &t->codes;
	const int per_round = c->bits == 4 ? 8 : c->bits == 6 ? 16 : 4;
	const size_t line = (size_t)t->tiles * 64, width = (size_t)t->tn * 16;
	const unsigned char *lines =
		w + (size_t)t->tiles * (size_t)c->head + (size_t)heads_lines(c->bits, k) * line;
	for (int v = 0; v < t->tn; v++) {
		const unsigned char *s = super + (size_t)(t->t0 + v) * (size_t)c->super_head;
		const unsigned char *head = w + (size_t)(t->t0 + v) * (size_t)c->head;
		const vf scale = heads_scales(c, s, head);
		const vf min = c->minimums ? heads_minimums(c, s, head) : v_zero();
		for (int i = 0; i < n; i += per_round)
			codes_round(c,
				    lines + (size_t)heads_lines(c->bits, i) * line + (size_t)(t->t0 + v) * 64,
				    line, scale, min, n - i, out + (size_t)i * width + v * 16, width);
	}
}

/* Multiply n inputs from k on, with their weights in the scratch, by all row blocks. */
static void codes_dense(const struct cpu_tile *t, int k, int n)
{
	const size_t width = (size_t)t->tn * 16;
	const float *const slice = (const float *)(const void *)t->scratch;
	for (int b = 0, r0 = 0; b < t->n_row_blocks; b++) {
		const int m = row_block(t->n_rows, t->n_row_blocks, b);
		const int step = tiles_at_once(t->tn, m, INNER_ROWS4, INNER_ROWS2);
		for (int v = 0; v < t->tn; v += step) {
			const struct dense_args a = {
				.w = (const unsigned char *)(slice + v * 16),
				.w_stride = width,
				.len = n,
				.x = t->x + (size_t)r0 * (size_t)t->k + (size_t)k * (size_t)m,
				.c = t->c + (size_t)r0 * width + v * 16,
				.c_stride = width,
			};
			dense_f32(step, m, &a);
		}
		r0 += m;
	}
}

/* Codes become floats slice by slice, which are computed like stored floats: the bits are those of the layer
 * in F32. */
static void tile_codes(const struct cpu_tile *t)
{
	const struct cpu_codes *c = &t->codes;
	const unsigned char *w = t->w, *super = w;
	for (int g0 = 0; g0 < t->k; g0 += c->group) {
		const int len = t->k - g0 < c->group ? t->k - g0 : c->group;
		if (c->super && g0 % c->super == 0) {
			super = w;
			w += (size_t)t->tiles * (size_t)c->super_head;
		}
		for (int s0 = 0; s0 < len; s0 += CODES_SLICE) {
			const int n = len - s0 < CODES_SLICE ? len - s0 : CODES_SLICE;
			codes_slice(t, super, w, s0, n, (float *)(void *)t->scratch);
			codes_dense(t, g0 + s0, n);
		}
		w += (size_t)t->tiles * ((size_t)c->head + (size_t)heads_lines(c->bits, len) * 64);
	}
}

static void inner_linear_tile(const struct cpu_tile *t)
{
	for (size_t i = 0; i < (size_t)t->n_rows * (size_t)t->tn; i++)
		v_store(t->c + i * 16, v_zero());
	if (t->dtype == KERN_AWQ4)
		tile_awq(t);
	else if (t->dtype == KERN_CODES)
		tile_codes(t);
	else
		tile_dense(t);
}

static void inner_store_rows(float *out, size_t out_stride, const float *c, size_t c_stride,
			     const float *bias, int n_rows, int n)
{
	for (int r = 0; r < n_rows; r++, out += out_stride, c += c_stride)
		for (int i = 0; i < n; i += 16) {
			vf a = v_load(c + i);
			if (bias)
				a = v_add(a, v_load(bias + i));
			if (n - i >= 16)
				v_store(out + i, a);
			else
				v_store_n(out + i, a, n - i);
		}
}

/* act(g) = g / (1 + exp(-a)), where a = g (silu), 2 sqrt(2 / pi) (g + 0.044715 g^3) (gelu), or 1.702 g (gelu
 * by sigmoid). */
VFN vf activated(const enum kern_act act, vf g)
{
	vf a = g;
	if (act == KERN_GELU_SIGMOID)
		a = v_mul(g, v_set1(1.702f));
	if (act == KERN_GELU_TANH)
		a = v_mul(g, v_fma(v_mul(g, g), v_set1(0.0713548162726f), v_set1(1.5957691216057f)));
	/* keep exp's argument below its overflow */
	return v_div(g, v_add(v_set1(1), v_exp(v_min(v_sub(v_zero(), a), v_set1(88)))));
}

VFN void store_glu(const enum kern_act act, const struct cpu_glu *g)
{
	const vf most = v_set1(g->limit), least = v_set1(-g->limit), plus = v_set1(g->plus);
	const float *gate = g->gate,
		    *up = g->up, *const gate_bias = g->gate_bias, *const up_bias = g->up_bias;
	const size_t out_stride = g->out_stride, c_stride = g->c_stride;
	const int n = g->n;
	float *out = g->out;
	for (int r = 0; r < g->n_rows; r++, out += out_stride, gate += c_stride, up += c_stride)
		for (int i = 0; i < n; i += 16) {
			vf gv = v_load(gate + i), uv = v_load(up + i);
			if (gate_bias)
				gv = v_add(gv, v_load(gate_bias + i));
			if (up_bias)
				uv = v_add(uv, v_load(up_bias + i));
			if (act == KERN_GELU_SIGMOID) { /* if one is NaN, v_min and v_max return the second */
				gv = v_min(most, gv);
				uv = v_add(v_max(least, v_min(most, uv)), plus);
			}
			vf a = v_mul(activated(act, gv), uv);
			if (n - i >= 16)
				v_store(out + i, a);
			else
				v_store_n(out + i, a, n - i);
		}
}

static void inner_store_glu(const struct cpu_glu *g)
{
	if (g->act == KERN_GELU_SIGMOID)
		store_glu(KERN_GELU_SIGMOID, g);
	else if (g->act == KERN_GELU_TANH)
		store_glu(KERN_GELU_TANH, g);
	else
		store_glu(KERN_SILU, g);
}

/* ---- norm and rotation ---- */

static float inner_square_sum(const float *x, int n)
{
	vf ss = v_zero();
	int i = 0;
	for (; i + 16 <= n; i += 16) {
		vf v = v_load(x + i);
		ss = v_fma(v, v, ss);
	}
	if (i < n) {
		vf v = v_load_n(x + i, n - i);
		ss = v_fma(v, v, ss);
	}
	return v_hsum(ss);
}

static void inner_scale(float *out, const float *x, const float *w, int n, float by)
{
	vf s = v_set1(by);
	int i = 0;
	for (; i + 16 <= n; i += 16)
		v_store(out + i, v_mul(v_mul(v_load(x + i), s), v_load(w + i)));
	if (i < n)
		v_store_n(out + i, v_mul(v_mul(v_load_n(x + i, n - i), s), v_load_n(w + i, n - i)), n - i);
}

/* x += add */
static void inner_add(float *x, const float *add, int n)
{
	int i = 0;
	for (; i + 16 <= n; i += 16)
		v_store(x + i, v_add(v_load(x + i), v_load(add + i)));
	if (i < n)
		v_store_n(x + i, v_add(v_load_n(x + i, n - i), v_load_n(add + i, n - i)), n - i);
}

static void inner_rmsnorm(float *out, float *x, const float *add, const float *w, int n, float eps)
{
	if (add)
		inner_add(x, add, n);
	inner_scale(out, x, w, n, 1.0f / sqrtf(inner_square_sum(x, n) / (float)n + eps));
}

/* Layer norm of x to out, which may be x. */
static void inner_center(float *out, const float *x, const float *w, const float *b, int n, float eps)
{
	vf sum = v_zero(), squares = v_zero();
	for (int i = 0; i < n; i += 16)
		sum = v_add(sum, n - i >= 16 ? v_load(x + i) : v_load_n(x + i, n - i));
	const vf mean = v_set1(v_hsum(sum) / (float)n);
	for (int i = 0; i < n; i += 16) {
		const vf d = n - i >= 16
				     ? v_sub(v_load(x + i), mean)
				     : v_keep_range(v_sub(v_load_n(x + i, n - i), mean), 0, n - i, v_zero());
		squares = v_fma(d, d, squares);
	}
	const vf by = v_set1(1.0f / sqrtf(v_hsum(squares) / (float)n + eps));
	for (int i = 0; i < n; i += 16) {
		const int left = n - i;
		vf y = left >= 16
			       ? v_mul(v_mul(v_sub(v_load(x + i), mean), by), v_load(w + i))
			       : v_mul(v_mul(v_sub(v_load_n(x + i, left), mean), by), v_load_n(w + i, left));
		if (b)
			y = v_add(y, left >= 16 ? v_load(b + i) : v_load_n(b + i, left));
		if (left >= 16)
			v_store(out + i, y);
		else
			v_store_n(out + i, y, left);
	}
}

static void inner_layernorm(float *out, float *x, const float *add, const float *w, const float *b, int n,
			    float eps)
{
	if (add)
		inner_add(x, add, n);
	inner_center(out, x, w, b, n, eps);
}

/* Norm of a head to y, which may be x. */
static void head_norm(const struct cpu_head *h, float *y, const float *x)
{
	if (h->layer)
		inner_center(y, x, h->norm, h->bias, h->dim, h->eps);
	else
		inner_scale(y, x, h->norm, h->dim,
			    h->by > 0 ? h->by
				      : 1.0f / sqrtf(inner_square_sum(x, h->dim) / (float)h->dim + h->eps));
}

static void inner_head(const struct cpu_head *h)
{
	const float *x = h->src, *rope = h->rope;
	float *y = h->dst;
	if (h->norm && !h->after)
		head_norm(h, y, x);
	else
		memcpy(y, x, (size_t)h->dim * sizeof *y);
	for (int i = 0; h->clip > 0 && i < h->dim; i++)
		y[i] = y[i] > h->clip ? h->clip : y[i] < -h->clip ? -h->clip : y[i];
	const int half = h->rope_dim / 2, step = h->style == KERN_ROPE_HALVES ? 1 : 2;
	float *a = y, *b = h->style == KERN_ROPE_HALVES ? y + half : y + 1;
	for (int i = 0; i < half; i++) {
		float cs = rope[2 * i], sn = rope[2 * i + 1], ai = a[i * step], bi = b[i * step];
		a[i * step] = fmaf(ai, cs, -(bi * sn));
		b[i * step] = fmaf(bi, cs, ai * sn);
	}
	if (h->norm && h->after)
		head_norm(h, y, y);
	for (int i = 0; h->scale > 0 && i < h->dim; i++)
		y[i] *= h->scale;
}

/* ---- attention ---- */

#include "kernels/cpu/attention/chunk.h"

static void inner_attn_merge(float *max, float *sum, float *o, float cmax, float csum, const float *c, int n)
{
	vf m = v_max(v_set1(*max), v_set1(cmax));
	vf a = v_exp(v_sub(v_set1(*max), m)), b = v_exp(v_sub(v_set1(cmax), m));
	*max = v_lane0(m);
	*sum = v_lane0(v_fma(v_set1(*sum), a, v_mul(v_set1(csum), b)));
	for (int i = 0; i < n; i += 16)
		v_store(o + i, v_fma(v_load(o + i), a, v_mul(v_load(c + i), b)));
}

static void inner_attn_out(float *out, const float *o, float sum, int n)
{
	vf inv = v_set1(1.0f / sum);
	int i = 0;
	for (; i + 16 <= n; i += 16)
		v_store(out + i, v_mul(v_load(o + i), inv));
	if (i < n)
		v_store_n(out + i, v_mul(v_load_n(o + i, n - i), inv), n - i);
}

/* ---- sampler ---- */

static float inner_max_block(const float *x, int n)
{
	const vf low = v_set1(-INFINITY);
	vf mx = low;
	int i = 0;
	for (; i + 16 <= n; i += 16)
		mx = v_max(v_load(x + i), mx); /* if one is NaN, v_max returns the second */
	if (i < n)
		mx = v_max(v_keep_range(v_load_n(x + i, n - i), 0, n - i, low), mx);
	return v_hmax(mx);
}

static float inner_exp_block(float *p, const float *x, int n, float max, float inv_t)
{
	const vf m = v_set1(max), s = v_set1(inv_t);
	vf sum = v_zero();
	for (int i = 0; i < n; i += 16) {
		int left = n - i;
		vf v = left >= 16 ? v_load(x + i)
				  : v_keep_range(v_load_n(x + i, left), 0, left, v_set1(-INFINITY));
		vf e = v_exp(v_mul(v_sub(v, m), s));
		sum = v_add(sum, e);
		if (p && left >= 16)
			v_store(p + i, e);
		else if (p)
			v_store_n(p + i, e, left);
	}
	return v_hsum(sum);
}

static uint64_t inner_weigh_block(const float *p, int n)
{
	uint64_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += draw_weight(p[i]);
	return sum;
}

static void inner_mask_block(float *out, const float *x, const uint32_t *mask, int n, float other)
{
	const vf no = v_set1(other);
	for (int i = 0; i < n; i += 16) {
		const int left = n - i < 16 ? n - i : 16;
		const uint32_t bits = mask[i / 32] >> (i % 32) & 0xffff;
		if (left == 16)
			v_store(out + i, v_keep_bits(v_load(x + i), bits, no));
		else
			v_store_n(out + i, v_keep_bits(v_load_n(x + i, left), bits, no), left);
	}
}

static void inner_map_codes(uint8_t *code, size_t n, const uint8_t table[16])
{
	size_t i = 0;
	for (; i + 16 <= n; i += 16)
		v_lookup(code + i, table);
	for (; i < n; i++)
		code[i] = table[code[i] & 15];
}

static void inner_code_floats(const struct codes_group *g, const uint8_t *code, int n, float *out)
{
	const vf by = v_set1(g->by), zero = v_set1(g->zero), min = v_set1(g->min);
	int i = 0;
	for (; !g->table && i + 16 <= n; i += 16)
		v_store(out + i, v_sub(v_mul(by, v_sub(v_load_u8(code + i), zero)), min));
	codes_group_floats(g, code + i, n - i, out + i);
}

static const struct cpu_isa inner_table = {
	.name = INNER_NAME,
	.rows_max = INNER_ROWS,
	.linear_tile = inner_linear_tile,
	.store_rows = inner_store_rows,
	.store_glu = inner_store_glu,
	.rmsnorm = inner_rmsnorm,
	.layernorm = inner_layernorm,
	.square_sum = inner_square_sum,
	.softcap = inner_softcap,
	.head = inner_head,
	.kv_f32 = &inner_kv_f32,
	.kv_bf16 = &inner_kv_bf16,
	.kv_dots = &inner_kv_dots,
	.attn_merge = inner_attn_merge,
	.attn_out = inner_attn_out,
	.max_block = inner_max_block,
	.exp_block = inner_exp_block,
	.weigh_block = inner_weigh_block,
	.mask_block = inner_mask_block,
	.map_codes = inner_map_codes,
	.code_floats = inner_code_floats,
};
