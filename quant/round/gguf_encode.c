#include "quant/round/gguf_encode.h"

#include "formats/gguf.h"
#include "kernels/half.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 32, SUPER = 256, FINE = 16 };

/* A smaller scale means a block of zeros. */
static const float least = 1e-15f;

/* Round to the nearest integer, ties to even, and limit the result to +-2^22. */
static int near(float x)
{
	const float most = 0x1p22f;
	return !(x > -most) ? -(1 << 22) : x > most ? 1 << 22 : (int)((x + 0x1.8p23f) - 0x1.8p23f);
}

static int within(int lo, int x, int hi)
{
	return x < lo ? lo : x > hi ? hi : x;
}

static void put_f16(uint8_t *out, float x)
{
	const uint16_t h = half_near_f16(x);
	memcpy(out, &h, sizeof h);
}

static float get_f16(const uint8_t *in)
{
	uint16_t h;
	memcpy(&h, in, sizeof h);
	return half_from_f16(h);
}

/* ---- blocks of 32 with one scale ---- */

/* Return the value with the largest magnitude; the first one, if several have it. */
static float largest(const float *x, int n)
{
	float size = 0, value = 0;
	for (int i = 0; i < n; i++)
		if (fabsf(x[i]) > size) {
			size = fabsf(x[i]);
			value = x[i];
		}
	return value;
}

static void q8_0(const float *x, const float *importance, uint8_t *out)
{
	(void)importance; /* the largest value alone gives the scale */

	const float d = fabsf(largest(x, BLOCK)) / 127, per = d != 0 ? 1 / d : 0;
	put_f16(out, d);
	for (int i = 0; i < BLOCK; i++)
		out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * per);
}

static void q4_0(const float *x, const float *importance, uint8_t *out)
{
	(void)importance;
	const float d = largest(x, BLOCK) / -8, per = d != 0 ? 1 / d : 0;
	put_f16(out, d);
	for (int i = 0; i < BLOCK / 2; i++) {
		const int lo = within(0, (int)(x[i] * per + 8.5f), 15);
		const int hi = within(0, (int)(x[i + BLOCK / 2] * per + 8.5f), 15);
		out[2 + i] = (uint8_t)(lo | hi << 4);
	}
}

/* ---- weights of errors ---- */

/* Return the mean of the squares of n values. */
static float mean_square(const float *x, int n)
{
	float sum = 0;
	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	return sum / (float)n;
}

/* Weigh the error of each of 32 values by the importance of its input and by its magnitude, to which
 * `typical`, a mean square of values around it, is added. */
static void weigh(const float *x, const float *importance, float typical, float weight[BLOCK])
{
	for (int i = 0; i < BLOCK; i++)
		weight[i] = importance[i] * sqrtf(typical + x[i] * x[i]);
}

/* ---- Q4_K and Q5_K ---- */

/* A grid of codes for 32 values, from a minimum of at most 0. */
struct grid {
	float scale, min;
	uint8_t code[BLOCK];
};

/* The grids that a search tries: codes up to `top`, stretched by first + step * i, i <= last. */
struct grids {
	int top;
	float first, step;
	int last;
};

static void grid_codes(const float *x, float per, float min, int top, uint8_t *code)
{
	for (int i = 0; i < BLOCK; i++)
		code[i] = (uint8_t)within(0, near(per * (x[i] - min)), top);
}

static float grid_error(const float *x, const float *weight, const struct grid *g)
{
	float error = 0;
	for (int i = 0; i < BLOCK; i++) {
		const float off = g->scale * (float)g->code[i] + g->min - x[i];
		error += weight[i] * (off * off);
	}
	return error;
}

/* Fit scale and minimum to g's codes by weighted least squares.  False: all codes are equal. */
static bool grid_fit(const float *x, const float *weight, float sum_w, float sum_x, struct grid *g)
{
	float sum_l = 0, sum_l2 = 0, sum_xl = 0;
	for (int i = 0; i < BLOCK; i++) {
		const float w = weight[i], l = (float)g->code[i];
		sum_l += w * l;
		sum_l2 += w * l * l;
		sum_xl += w * l * x[i];
	}
	const float det = sum_w * sum_l2 - sum_l * sum_l;
	if (!(det > 0))
		return false;
	g->scale = (sum_w * sum_xl - sum_x * sum_l) / det;
	g->min = (sum_l2 * sum_x - sum_l * sum_xl) / det;
	if (g->min > 0) {
		g->min = 0;
		g->scale = sum_xl / sum_l2;
	}
	return true;
}

static void grid_search(const struct grids *t, const float *x, const float *weight, struct grid *best)
{
	float lo = x[0], hi = x[0], sum_w = weight[0], sum_x = weight[0] * x[0];
	for (int i = 1; i < BLOCK; i++) {
		lo = x[i] < lo ? x[i] : lo;
		hi = x[i] > hi ? x[i] : hi;
		sum_w += weight[i];
		sum_x += weight[i] * x[i];
	}
	if (lo > 0)
		lo = 0;
	*best = (struct grid){.min = lo};
	if (hi == lo)
		return;
	const float top = (float)t->top, per = top / (hi - lo);
	best->scale = 1 / per;
	grid_codes(x, per, lo, t->top, best->code);
	float least_error = grid_error(x, weight, best);
	for (int i = 0; i <= t->last; i++) {
		struct grid g;
		grid_codes(x, (t->first + t->step * (float)i + top) / (hi - lo), lo, t->top, g.code);
		if (!grid_fit(x, weight, sum_w, sum_x, &g))
			continue;
		const float error = grid_error(x, weight, &g);
		if (error < least_error) {
			least_error = error;
			*best = g;
			lo = g.min; /* the next grids start there */
		}
	}
}

/* Pack eight scales and eight minimums of 6 bits into 12 bytes.  0 to 3: the low bits of bytes 0 to 3
 * (scales) and 4 to 7 (minimums).  4 to 7: the low four bits in bytes 8 to 11, the high two bits on top of
 * bytes 0 to 7. */
static void pack_scales(const int scale[8], const int min[8], uint8_t out[12])
{
	for (int j = 0; j < 4; j++) {
		out[j] = (uint8_t)(scale[j] | scale[j + 4] >> 4 << 6);
		out[j + 4] = (uint8_t)(min[j] | min[j + 4] >> 4 << 6);
		out[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
	}
}

/* Eight scales or minimums, none below 0, as codes of 6 bits with one float. */
enum { SIXES = 8, SIX_TOP = 63 };

/* Choose the codes from the largest of the scales; return the float. */
static float sixes_by_largest(const float *x, int code[SIXES])
{
	float top = 0;
	for (int j = 0; j < SIXES; j++)
		top = x[j] > top ? x[j] : top;
	const float per = top > 0 ? SIX_TOP / top : 0;
	for (int j = 0; j < SIXES; j++)
		/* The cast to a byte comes before the limit, as in the reference; it matters if a fit has a
		 * negative scale. */
		code[j] = within(0, (uint8_t)near(per * x[j]), SIX_TOP);
	return top / SIX_TOP;
}

/* Return how many codes per unit of x have the least weighted error, of nine grids around the one that ends
 * at the largest value `top`. */
static float sixes_grid(const float *x, const float *weight, float top)
{
	float best = 0, least_error = 0;
	for (int i = 0; i < 9; i++) {
		const int step = i == 0 ? 0 : i <= 4 ? i - 5 : i - 4;
		const float per = step ? (0.1f * (float)step + SIX_TOP) / top : SIX_TOP / top,
			    scale = 1 / per;
		float error = 0;
		for (int j = 0; j < SIXES; j++) {
			const int l = near(per * x[j]);
			const float off = x[j] - scale * (float)(l < SIX_TOP ? l : SIX_TOP);
			error += weight[j] * off * off;
		}
		if (step && !(error < least_error))
			continue;
		least_error = error;
		best = per;
	}
	return best;
}

/* Choose the codes by their weighted error, then change single codes as long as that lowers the error of the
 * best float, at most five rounds; return that float. */
static float sixes_by_weight(const float *x, const float *weight, int code[SIXES])
{
	float top = 0, sum_xl = 0, sum_l2 = 0;
	for (int j = 0; j < SIXES; j++) {
		code[j] = 0;
		top = x[j] > top ? x[j] : top;
	}
	if (top < least)
		return 0;
	const float per = sixes_grid(x, weight, top);
	for (int j = 0; j < SIXES; j++) {
		code[j] = within(0, near(per * x[j]), SIX_TOP);
		sum_xl += weight[j] * x[j] * (float)code[j];
		sum_l2 += weight[j] * (float)code[j] * (float)code[j];
	}
	bool changed = true;
	for (int round = 0; round < 5 && changed; round++) {
		changed = false;
		for (int j = 0; j < SIXES; j++) {
			const float w = weight[j], l = (float)code[j];
			float xl = sum_xl - w * x[j] * l, l2 = sum_l2 - w * l * l;
			if (!(xl > 0 && l2 > 0))
				continue;
			const int next = within(0, near(x[j] * l2 / xl), SIX_TOP);
			if (next == code[j])
				continue;
			xl += w * x[j] * (float)next;
			l2 += w * (float)next * (float)next;
			if (!(xl * xl * sum_l2 > sum_xl * sum_xl * l2))
				continue;
			code[j] = next;
			sum_xl = xl;
			sum_l2 = l2;
			changed = true;
		}
	}
	return sum_l2 > 0 ? sum_xl / sum_l2 : 0;
}

/* Choose the grids of a super-block and the two floats of its scales and minimums. */
static void choose_grids(const struct grids *t, const float *x, const float *importance, struct grid g[8],
			 uint8_t *out)
{
	const float typical = importance ? 2 * mean_square(x, SUPER) : 0;
	float scale[SIXES], below[SIXES], sum[SIXES];
	int scales[SIXES], mins[SIXES];
	for (int j = 0; j < SIXES; j++) {
		const float *from = x + BLOCK * j;
		float weight[BLOCK];
		if (importance)
			weigh(from, importance + BLOCK * j, typical, weight);
		const float size = importance ? 0 : sqrtf(mean_square(from, BLOCK));
		sum[j] = 0;
		for (int i = 0; i < BLOCK; i++) {
			if (!importance)
				weight[i] = size + fabsf(from[i]);
			sum[j] += weight[i];
		}
		grid_search(t, from, weight, &g[j]);
		scale[j] = g[j].scale;
		below[j] = -g[j].min;
	}
	put_f16(out, importance ? sixes_by_weight(scale, sum, scales) : sixes_by_largest(scale, scales));
	put_f16(out + 2, importance ? sixes_by_weight(below, sum, mins) : sixes_by_largest(below, mins));
	pack_scales(scales, mins, out + 4);
	for (int j = 0; j < SIXES; j++) {
		const float d = get_f16(out) * (float)scales[j], m = get_f16(out + 2) * (float)mins[j];
		for (int i = 0; d != 0 && i < BLOCK; i++)
			g[j].code[i] = (uint8_t)within(0, near((x[BLOCK * j + i] + m) / d), t->top);
	}
}

/* Pack the low four bits of the codes of a super-block. */
static void pack_nibbles(const struct grid g[8], uint8_t *out)
{
	for (int j = 0; j < 8; j += 2)
		for (int i = 0; i < BLOCK; i++)
			out[BLOCK / 2 * j + i] =
				(uint8_t)((g[j].code[i] & 15) | (g[j + 1].code[i] & 15) << 4);
}

static void q4_k(const float *x, const float *importance, uint8_t *out)
{
	static const struct grids plain = {15, -1.0f, 0.1f, 20}, weighted = {15, -0.9f, 0.05f, 36};
	struct grid g[8];
	choose_grids(importance ? &weighted : &plain, x, importance, g, out);
	pack_nibbles(g, out + 16);
}

static void q5_k(const float *x, const float *importance, uint8_t *out)
{
	static const struct grids plain = {31, -0.5f, 0.1f, 15}, weighted = {31, -0.9f, 0.05f, 36};
	struct grid g[8];
	choose_grids(importance ? &weighted : &plain, x, importance, g, out);
	pack_nibbles(g, out + 48);
	for (int i = 0; i < BLOCK; i++) {
		int high = 0;
		for (int j = 0; j < 8; j++)
			high |= g[j].code[i] >> 4 << j;
		out[16 + i] = (uint8_t)high;
	}
}

/* ---- Q6_K ---- */

/* Search codes from -32 to 31 for 16 values, by the error weighted with `weight` (NULL: the squares of the
 * values); return the scale, which has the opposite sign of the largest value. */
static float scale_search(const float *x, const float *weight, int8_t *code)
{
	const float top = largest(x, FINE);
	float best = 0, scale = 0;
	memset(code, -32, FINE); /* for zeros, as in the reference: the scale is 0 */
	if (fabsf(top) < least)
		return 0;
	for (int i = 0; i < 19; i++) {
		/* First the whole range, then from narrower to wider grids. */
		const int step = i == 0 ? 0 : i <= 9 ? i - 10 : i - 9;
		const float per = step ? -(32 + 0.1f * (float)step) / top : -32 / top;
		float sum_xl = 0, sum_l2 = 0;
		int8_t found[FINE];
		for (int j = 0; j < FINE; j++) {
			const int l = within(-32, near(per * x[j]), 31);
			const float w = weight ? weight[j] : x[j] * x[j];
			found[j] = (int8_t)l;
			sum_xl += w * x[j] * (float)l;
			sum_l2 += w * (float)l * (float)l;
		}
		if (step && !(sum_l2 > 0 && sum_xl * sum_xl > best * sum_l2))
			continue;
		memcpy(code, found, FINE);
		scale = sum_l2 != 0 ? sum_xl / sum_l2 : 0;
		best = scale * sum_xl;
	}
	return scale;
}

/* Pack 128 codes of 6 bits (0 to 63): low four bits in 64 bytes, high two in 32. */
static void pack_q6(const uint8_t *code, uint8_t *low, uint8_t *high)
{
	for (int i = 0; i < 32; i++) {
		const uint8_t a = code[i], b = code[i + 32], c = code[i + 64], d = code[i + 96];
		low[i] = (uint8_t)((a & 15) | (c & 15) << 4);
		low[i + 32] = (uint8_t)((b & 15) | (d & 15) << 4);
		high[i] = (uint8_t)(a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6);
	}
}

static void q6_k(const float *x, const float *importance, uint8_t *out)
{
	int8_t code[SUPER];
	uint8_t stored[SUPER], *scales = out + 192;
	float scale[FINE];
	for (int j = 0; j < FINE; j++)
		scale[j] = scale_search(x + FINE * j, importance ? importance + FINE * j : NULL,
					code + FINE * j);
	const float top = largest(scale, FINE);
	memset(out, 0, 210);
	if (fabsf(top) < least)
		return;
	const float per = -128 / top;
	put_f16(out + 208, 1 / per);
	for (int j = 0; j < FINE; j++) {
		const int s = near(per * scale[j]);
		scales[j] = (uint8_t)(s < 127 ? s : 127);
		const float d = get_f16(out + 208) * (float)(int8_t)scales[j];
		for (int i = 0; i < FINE; i++) {
			const int l =
				d != 0 ? within(-32, near(x[FINE * j + i] / d), 31) : code[FINE * j + i];
			stored[FINE * j + i] = (uint8_t)(l + 32);
		}
	}
	pack_q6(stored, out, out + 128);
	pack_q6(stored + 128, out + 64, out + 160);
}

/* ---- IQ4_XS ---- */

/* Return the index of the table's value that is nearest to x; of two as near, the larger one. */
static int nearest_iq4(float x)
{
	int above = 1;
	for (int i = 1; i < 15; i++)
		above += x >= gguf_iq4[i];
	return x - gguf_iq4[above - 1] < gguf_iq4[above] - x ? above - 1 : above;
}

/* Add the products of a choice of values for 32 x: per codes for a unit of x. */
static void iq4_sums(const float *x, const float *weight, float per, float *sum_qx, float *sum_q2)
{
	*sum_qx = *sum_q2 = 0;
	for (int i = 0; i < BLOCK; i++) {
		const float q = gguf_iq4[nearest_iq4(per * x[i])], w = weight[i];
		*sum_qx += w * q * x[i];
		*sum_q2 += w * q * q;
	}
}

enum { IQ4_TRIES = 7 };

/* Return the scale of 32 values with the least weighted error, of 16 that are tried. */
static float iq4_search(const float *x, const float *weight)
{
	const float top = largest(x, BLOCK);
	float qx, q2;
	if (fabsf(top) < least)
		return 0;
	iq4_sums(x, weight, 1 / (-top / gguf_iq4[0]), &qx, &q2);
	float scale = q2 > 0 ? qx / q2 : 0, best = scale * qx;
	for (int i = -IQ4_TRIES; i <= IQ4_TRIES; i++) {
		iq4_sums(x, weight, ((float)i + gguf_iq4[0]) / top, &qx, &q2);
		if (q2 > 0 && qx * qx > best * q2) {
			scale = qx / q2;
			best = scale * qx;
		}
	}
	return scale;
}

/* d f16 | high pairs of the scales u16 | low nibbles of the scales [4] | nibbles [128] */
static void iq4_xs(const float *x, const float *importance, uint8_t *out)
{
	const float typical = 2 * mean_square(x, SUPER);
	float scale[8];
	for (int j = 0; j < 8; j++) {
		const float *from = x + BLOCK * j;
		float weight[BLOCK];
		if (importance)
			weigh(from, importance + BLOCK * j, typical, weight);
		for (int i = 0; !importance && i < BLOCK; i++)
			weight[i] = from[i] * from[i];
		scale[j] = iq4_search(from, weight);
	}
	const float d = -largest(scale, 8) / 32, per = d != 0 ? 1 / d : 0;
	memset(out, 0, 8);
	put_f16(out, d);
	for (int j = 0; j < 8; j++) {
		const float *from = x + BLOCK * j;
		const int l = within(-32, near(per * scale[j]), 31), stored = l + 32;
		const float by = d * (float)l, per_value = by != 0 ? 1 / by : 0;
		for (int i = 0; i < BLOCK / 2; i++)
			out[8 + 16 * j + i] = (uint8_t)(nearest_iq4(per_value * from[i]) |
							nearest_iq4(per_value * from[i + 16]) << 4);
		out[4 + j / 2] |= (uint8_t)((stored & 15) << j % 2 * 4);
		out[2 + j / 4] |= (uint8_t)(stored >> 4 << j % 4 * 2);
	}
}

/* ---- blocks in a row ---- */

#define BLOCKS(number, NAME, name, values, bytes, ...)                                                       \
	void gguf_encode_##name(const float *x, size_t rows, size_t columns, const float *importance,        \
				void *out)                                                                   \
	{                                                                                                    \
		const size_t per_row = columns / (values);                                                   \
		for (size_t b = 0; b < rows * per_row; b++)                                                  \
			name(x + b * (values), importance ? importance + b % per_row * (values) : NULL,      \
			     (uint8_t *)out + b * (bytes));                                                  \
	}
BLOCK_TYPES(BLOCK_NONE, BLOCKS)
