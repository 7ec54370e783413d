#include "quant/round/gguf_encode.h"

#include "kernels/half.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 32, SUPER = 256, FINE = 16 };

/* A smaller scale means a block of zeros. */
static const float least = 1e-15f;

/* Round to the nearest integer, ties to even; |x| < 2^22. */
static int near(float x)
{
	return (int)((x + 0x1.8p23f) - 0x1.8p23f);
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

static void q8_0(const float *x, uint8_t *out)
{
	const float d = fabsf(largest(x, BLOCK)) / 127, per = d != 0 ? 1 / d : 0;
	put_f16(out, d);
	for (int i = 0; i < BLOCK; i++)
		out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * per);
}

static void q4_0(const float *x, uint8_t *out)
{
	const float d = largest(x, BLOCK) / -8, per = d != 0 ? 1 / d : 0;
	put_f16(out, d);
	for (int i = 0; i < BLOCK / 2; i++) {
		const int lo = within(0, (int)(x[i] * per + 8.5f), 15);
		const int hi = within(0, (int)(x[i + BLOCK / 2] * per + 8.5f), 15);
		out[2 + i] = (uint8_t)(lo | hi << 4);
	}
}

/* ---- Q4_K ---- */

/* A grid of 16 codes for 32 values, from a minimum of at most 0. */
struct grid {
	float scale, min;
	uint8_t code[BLOCK];
};

enum { TOP = 15, GRIDS = 20 };

static void grid_codes(const float *x, float per, float min, uint8_t *code)
{
	for (int i = 0; i < BLOCK; i++)
		code[i] = (uint8_t)within(0, near(per * (x[i] - min)), TOP);
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

static void grid_search(const float *x, struct grid *best)
{
	float weight[BLOCK], sum_x2 = 0, lo = x[0], hi = x[0];
	for (int i = 0; i < BLOCK; i++)
		sum_x2 += x[i] * x[i];
	const float typical = sqrtf(sum_x2 / BLOCK);
	for (int i = 0; i < BLOCK; i++)
		weight[i] = typical + fabsf(x[i]);
	float sum_w = weight[0], sum_x = weight[0] * x[0];
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
	const float per = TOP / (hi - lo);
	best->scale = 1 / per;
	grid_codes(x, per, lo, best->code);
	float least_error = grid_error(x, weight, best);
	for (int i = 0; i <= GRIDS; i++) {
		struct grid g;
		grid_codes(x, (-1.0f + 0.1f * (float)i + TOP) / (hi - lo), lo, g.code);
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

static void q4_k(const float *x, uint8_t *out)
{
	struct grid g[8];
	int scale[8], min[8];
	float top_scale = 0, top_min = 0;
	for (int j = 0; j < 8; j++) {
		grid_search(x + BLOCK * j, &g[j]);
		top_scale = g[j].scale > top_scale ? g[j].scale : top_scale;
		top_min = -g[j].min > top_min ? -g[j].min : top_min;
	}
	const float per_scale = top_scale > 0 ? 63 / top_scale : 0, per_min = top_min > 0 ? 63 / top_min : 0;
	for (int j = 0; j < 8; j++) {
		/* The cast to a byte comes before the limit, as in the reference; it matters if a fit has a
		 * negative scale. */
		scale[j] = within(0, (uint8_t)near(per_scale * g[j].scale), 63);
		min[j] = within(0, (uint8_t)near(per_min * -g[j].min), 63);
	}
	put_f16(out, top_scale / 63);
	put_f16(out + 2, top_min / 63);
	pack_scales(scale, min, out + 4);
	for (int j = 0; j < 8; j++) {
		const float d = get_f16(out) * (float)scale[j], below = get_f16(out + 2) * (float)min[j];
		for (int i = 0; d != 0 && i < BLOCK; i++)
			g[j].code[i] = (uint8_t)within(0, near((x[BLOCK * j + i] + below) / d), TOP);
	}
	for (int j = 0; j < 8; j += 2)
		for (int i = 0; i < BLOCK; i++)
			out[16 + BLOCK / 2 * j + i] = (uint8_t)(g[j].code[i] | g[j + 1].code[i] << 4);
}

/* ---- Q6_K ---- */

/* Search codes from -32 to 31 for 16 values; return the scale, which has the sign of the largest value.
 * Weights are the squares of the values. */
static float scale_search(const float *x, int8_t *code)
{
	const float top = largest(x, FINE);
	float best = 0, scale = 0;
	memset(code, 0, FINE);
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
			const float w = x[j] * x[j];
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

static void q6_k(const float *x, uint8_t *out)
{
	int8_t code[SUPER];
	uint8_t stored[SUPER], *scales = out + 192;
	float scale[FINE];
	for (int j = 0; j < FINE; j++)
		scale[j] = scale_search(x + FINE * j, code + FINE * j);
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

/* ---- blocks in a row ---- */

#define BLOCKS(number, NAME, name, values, bytes, ...)                                                       \
	void gguf_encode_##name(const float *x, size_t n, void *out)                                         \
	{                                                                                                    \
		for (size_t b = 0; b < n / (values); b++)                                                    \
			name(x + b * (values), (uint8_t *)out + b * (bytes));                                \
	}
BLOCK_TYPES(BLOCK_NONE, BLOCKS)
