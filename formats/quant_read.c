/* quant_read.c - read rows of quantized layers (layouts: quant.h) as codes. */
#include "formats/quant.h"

#include "base/alloc.h"
#include "formats/weights.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- streams of codes in words ---- */

static uint32_t word_at(const unsigned char *p)
{
	uint32_t w;
	memcpy(&w, p, 4);
	return w;
}

/* Return the code at a bit offset of a stream; its words are `stride` bytes apart. */
static unsigned stream_at(const unsigned char *p, size_t stride, size_t bit, int bits)
{
	const unsigned char *at = p + bit / 32 * stride;
	const unsigned shift = bit % 32;
	uint32_t v = word_at(at) >> shift;
	if (shift + (unsigned)bits > 32)
		v |= word_at(at + stride) << (32 - shift);
	return v & ((1u << bits) - 1);
}

/* Spread the eight 4-bit codes of a word to bytes. */
static uint64_t spread4(uint32_t w)
{
	uint64_t v = w;
	v = (v | v << 16) & 0x0000ffff0000ffff;
	v = (v | v << 8) & 0x00ff00ff00ff00ff;
	return (v | v << 4) & 0x0f0f0f0f0f0f0f0f;
}

/* Read n codes of a stream. */
static void stream_read(const unsigned char *p, size_t stride, int bits, int n, uint8_t *out)
{
	const int per_word = 32 / bits;
	int i = 0;
	if (bits == 4)
		for (; i + 8 <= n; i += 8, p += stride) {
			const uint64_t v = spread4(word_at(p));
			memcpy(out + i, &v, 8);
		}
	else if (bits == 8)
		for (; i + 4 <= n; i += 4, p += stride)
			memcpy(out + i, p, 4);
	else if (bits == 2)
		for (; i + per_word <= n; i += per_word, p += stride) {
			const uint32_t w = word_at(p);
			for (int j = 0; j < per_word; j++)
				out[i + j] = w >> (2 * j) & 3;
		}
	for (int j = 0; i < n; i++, j++)
		out[i] = (uint8_t)stream_at(p, stride, (size_t)j * (size_t)bits, bits);
}

/* ---- codes ---- */

/* Read a code of AWQ "gemm": a row of words with eight or four outputs along N. */
static uint8_t awq_at(const struct quant_stored *s, const unsigned char *p, int row, int n)
{
	static const int byte[4] = {0, 2, 1, 3}; /* position of output n in a word */
	if (s->bits == 8)
		return p[(size_t)row * (size_t)s->n + (size_t)(n / 4 * 4 + byte[n % 4])];
	const size_t at = ((size_t)row * (size_t)(s->n / 8) + (size_t)(n / 8)) * 4;
	return (uint8_t)(word_at(p + at) >> (4 * codes_awq_nibble(n % 8)) & 15);
}

/* Read the code of input i of output n in AWQ "gemv_fast" (quant.h).  Input 8a + 2b + c of 32 goes to 8b + 4c
 * + a; a half word has four values of one output, and 64 such values of four outputs are stored together. */
static uint8_t fast_at(const struct quant_stored *s, int n, int i)
{
	const int in = i % 32, j = i / 32 * 32 + 8 * (in % 8 / 2) + 4 * (in % 2) + in / 8;
	const size_t at = (size_t)(n / 4) * (size_t)s->k + (size_t)(j / 64 * 64 + n % 4 * 16 + j % 64 / 4);
	return (uint8_t)(s->q[2 * at + (size_t)(j % 4 / 2)] >> (4 * (j % 2)) & 15);
}

/* Read k codes of 4 bits from code `at` of a tensor on.  high: the first of a byte is in its high bits. */
static void nibbles_of(const unsigned char *p, size_t at, int k, bool high, uint8_t *out)
{
	for (size_t i = at; i < at + (size_t)k; i++)
		*out++ = p[i / 2] >> ((i % 2 == 1) == high ? 0 : 4) & 15;
}

static void codes_of(const struct quant_stored *s, int n, uint8_t *out)
{
	const size_t row = (size_t)n * (size_t)s->k;
	switch (s->layout) {
	case QUANT_NVFP4:
	case QUANT_MXFP4:
		nibbles_of(s->q, row, s->k, false, out);
		return;
	case QUANT_NF4:
	case QUANT_FP4:
		nibbles_of(s->q, row, s->k, true, out);
		return;
	case QUANT_GPTQ:
		stream_read(s->q + (size_t)n * 4, (size_t)s->n * 4, s->bits, s->k, out);
		return;
	case QUANT_AWQ_GEMV:
	case QUANT_PACKED:
		stream_read(s->q + (size_t)n * (((size_t)s->k * (size_t)s->bits + 31) / 32 * 4), 4, s->bits,
			    s->k, out);
		return;
	case QUANT_AWQ:
		for (int i = 0; i < s->k; i++)
			out[i] = awq_at(s, s->q, i, n);
		return;
	case QUANT_AWQ_GEMV_FAST:
		for (int i = 0; i < s->k; i++)
			out[i] = fast_at(s, n, i);
		return;
	case QUANT_INT8:
	case QUANT_LLM_INT8:
		for (int i = 0; i < s->k; i++)
			out[i] = s->q[row + (size_t)i] ^ 0x80;
		return;
	case QUANT_FP8:
	case QUANT_MXFP8:
		memcpy(out, s->q + row, (size_t)s->k);
		return;
	}
}

/* ---- scales and zeros ---- */

static float f32_of(const unsigned char *p, enum codes_float type, size_t i)
{
	const enum config_dtype dtype = type == CODES_F32   ? CONFIG_F32
					: type == CODES_F16 ? CONFIG_F16
							    : CONFIG_BF16;
	float f;
	weights_to_f32(&(struct weights_vec){p + i * (type == CODES_F32 ? 4 : 2), dtype, 1}, &f);
	return f;
}

static float absmax_at(const struct quant_stored *s, size_t block)
{
	const struct quant_absmax *a = &s->absmax;
	if (!a->map)
		return f32_of(s->scales, CODES_F32, block);
	return f32_of(a->map, CODES_F32, s->scales[block]) *
		       f32_of(a->nested, CODES_F32, block / (size_t)a->nested_block) +
	       a->offset;
}

float quant_scale_at(const struct quant_stored *s, int n, int g)
{
	if (s->absmax.block)
		return absmax_at(s, ((size_t)n * (size_t)s->k + (size_t)g * (size_t)s->group) /
					    (size_t)s->absmax.block);
	const size_t at = (size_t)(n / s->block_n) * s->scale_n + (size_t)g * s->scale_g;
	float v;
	if (s->scale_type == QUANT_SCALE_E4M3)
		v = quant_e4m3[s->scales[at]];
	else if (s->scale_type == QUANT_SCALE_E8M0)
		v = codes_e8m0_half(s->scales[at]);
	else
		v = f32_of(s->scales, (enum codes_float)s->scale_type, at);
	return (s->divides ? v / s->whole : v * s->whole) * s->unit;
}

static int zero_of(const struct quant_stored *s, int n, int g)
{
	const size_t bits = (size_t)s->bits, row = s->zero_words * 4;
	unsigned z = 0;
	switch (s->layout) {
	case QUANT_GPTQ:
		z = stream_at(s->zeros + (size_t)g * row, 4, (size_t)n * bits, s->bits);
		return (int)((z + s->less_one) & ((1u << bits) - 1));
	case QUANT_PACKED:
		return (int)stream_at(s->zeros + (size_t)g * 4, row, (size_t)n * bits, s->bits);
	case QUANT_AWQ_GEMV:
		return (int)stream_at(s->zeros + (size_t)n * row, 4, (size_t)g * bits, s->bits);
	case QUANT_AWQ:
		return awq_at(s, s->zeros, g, n);
	case QUANT_INT8:
		return s->zeros[(size_t)(n / s->block_n) * s->scale_n + (size_t)g * s->scale_g] ^ 0x80;
	default:
		break;
	}
	return 0;
}

void quant_read(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const struct quant_stored *s = c->from[0];
	const size_t k = (size_t)c->k, groups = (size_t)codes_groups(c);
	uint8_t *stored = c->perm ? xmalloc(k) : NULL;
	for (int n = n0; n < n1; n++) {
		uint8_t *row = out->code + (size_t)(n - n0) * k;
		codes_of(s, n, stored ? stored : row);
		for (size_t i = 0; stored && i < k; i++)
			row[i] = stored[c->perm[i]];
		for (size_t g = 0; g < groups; g++) {
			const size_t at = (size_t)(n - n0) * groups + g;
			out->scale[at] = 1;
			out->d[at] = quant_scale_at(s, n, (int)g);
			out->offset[at] = (int16_t)(c->minimums    ? 1
						    : c->zero >= 0 ? c->zero
								   : zero_of(s, n, (int)g));
			if (c->minimums) /* stored as the value to be added */
				out->dmin[at] = -f32_of(s->zeros, CODES_F16, g * (size_t)s->n + (size_t)n);
		}
	}
	free(stored);
}

/* ---- MXFP4 ---- */

enum { MX_VALUES = 32, MX_BYTES = 16 };

static const int mxfp4_steps[] = {0, 1, 2};

static void mxfp4_read(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const unsigned char *blocks = c->from[0], *exponents = c->from[1];
	const size_t each = (size_t)(c->k / MX_VALUES), step = (size_t) * (const int *)c->from[2];
	for (size_t n = (size_t)n0, at = 0; n < (size_t)n1; n++)
		for (size_t b = n * step * each, end = b + each; b < end; b++, at++) {
			out->d[at] = codes_e8m0_half(exponents[b]);
			out->scale[at] = 1;
			out->offset[at] = 0;
			for (size_t i = 0; i < MX_BYTES; i++) {
				const unsigned char two = blocks[b * MX_BYTES + i];
				out->code[at * MX_VALUES + 2 * i] = two & 15;
				out->code[at * MX_VALUES + 2 * i + 1] = two >> 4;
			}
		}
}

void quant_mxfp4(struct codes *out, int n, int k, const void *blocks, const void *exponents, int step)
{
	assert(k % MX_VALUES == 0 && (step == 1 || step == 2));
	*out = (struct codes){.n = n,
			      .k = k,
			      .bits = 4,
			      .group = MX_VALUES,
			      .super = MX_VALUES,
			      .d_type = CODES_BF16,
			      .table = codes_e2m1,
			      .read = mxfp4_read,
			      .from = {blocks, exponents, &mxfp4_steps[step]}};
}

/* ---- E4M3 ---- */

/* E4M3: sign, 4 exponent bits with bias 7, 3 mantissa bits; no infinity; NaN is all ones. */
#define E4(e, m) ((e) ? (8 + (m)) * (float)(1 << (e)) / 1024 : (m) / 512.0f)
#define E4_8(e)  E4(e, 0), E4(e, 1), E4(e, 2), E4(e, 3), E4(e, 4), E4(e, 5), E4(e, 6), E4(e, 7)
#define E4_N(e)  -E4(e, 0), -E4(e, 1), -E4(e, 2), -E4(e, 3), -E4(e, 4), -E4(e, 5), -E4(e, 6), -E4(e, 7)

const float quant_e4m3[256] = {
	E4_8(0),    E4_8(1),    E4_8(2),    E4_8(3),    E4_8(4),    E4_8(5),   E4_8(6),    E4_8(7),
	E4_8(8),    E4_8(9),    E4_8(10),   E4_8(11),   E4_8(12),   E4_8(13),  E4_8(14),   E4(15, 0),
	E4(15, 1),  E4(15, 2),  E4(15, 3),  E4(15, 4),  E4(15, 5),  E4(15, 6), NAN,        E4_N(0),
	E4_N(1),    E4_N(2),    E4_N(3),    E4_N(4),    E4_N(5),    E4_N(6),   E4_N(7),    E4_N(8),
	E4_N(9),    E4_N(10),   E4_N(11),   E4_N(12),   E4_N(13),   E4_N(14),  -E4(15, 0), -E4(15, 1),
	-E4(15, 2), -E4(15, 3), -E4(15, 4), -E4(15, 5), -E4(15, 6), NAN,
};

static float f32_of_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

/* Convert IEEE half to single exactly, subnormals included. */
static float f32_of_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exp = h >> 10 & 31, man = h & 1023;
	if (exp == 31)
		return f32_of_bits(sign | 0x7f800000 | man << 13);
	if (exp)
		return f32_of_bits(sign | (exp + 112) << 23 | man << 13);
	float f = (float)man * (1.0f / 16777216);
	return sign ? -f : f;
}

void weights_to_f32(const struct weights_vec *v, float *out)
{
	const unsigned char *p = v->data;
	for (int i = 0; i < v->n; i++) {
		uint16_t h;
		if (v->dtype == CONFIG_F32) {
			memcpy(&out[i], p + 4 * (size_t)i, 4);
			continue;
		}
		memcpy(&h, p + 2 * (size_t)i, 2);
		out[i] = v->dtype == CONFIG_F16 ? f32_of_f16(h) : f32_of_bits((uint32_t)h << 16);
	}
}
