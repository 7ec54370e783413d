/* pack.c - operands and weights of mode bf16, as bf16.h draws them. */
#include "kernels/cpu/bf16/bf16.h"

#include <string.h>

#include "kernels/codes.h"
#include "kernels/half.h"

/* ---- the table ---- */

const struct cpu_bf16 *cpu_bf16_choose(const char *isa)
{
	const struct cpu_bf16 *b = NULL;
	const bool avx512 = !strcmp(isa, "avx512");
	if (avx512 && !(b = cpu_bf16_amx()) && !(b = cpu_bf16_avx512bf16()))
		b = cpu_bf16_avx512();
	if (!b && strcmp(isa, "plain"))
		b = cpu_bf16_avx2();
	return b ? b : cpu_bf16_plain();
}

/* The input at place p of a step. */
static int at(const struct cpu_bf16 *b, int p)
{
	static const int chain[4] = {2, 0, 3, 1};
	return b->chains ? p / 4 * 4 + chain[p % 4] : p;
}

static int padded(int k)
{
	return (k + BF16_STEP - 1) / BF16_STEP * BF16_STEP;
}

/* ---- operands ---- */

size_t cpu_bf16_row(const struct cpu_bf16 *b, int k)
{
	/* An odd number of lines: rows that lie a power of two apart would share few sets of a cache. */
	return ((size_t)padded(k) * (b->floats ? 4 : 2) + 63) / 64 * 64 | 64;
}

void cpu_bf16_round(const struct cpu_bf16 *b, void *row, const float *x, int k)
{
	b->round(row, x, k);
}

void cpu_bf16_floats(const struct cpu_bf16 *b, float *x, const void *row, int k)
{
	for (int p = 0; p < padded(k); p++)
		if (at(b, p) < k)
			x[at(b, p)] = half_load(row, b->floats ? KERN_F32 : KERN_BF16, (size_t)p);
}

/* ---- weights ---- */

static size_t brick_bytes(int bits)
{
	return bits ? (size_t)bits * 64 : BF16_BRICK;
}

size_t cpu_bf16_tile_bytes(int k, int group, int bits)
{
	if (!bits)
		return (size_t)(padded(k) / BF16_STEP) * BF16_BRICK;
	size_t bytes = 0;
	for (int k0 = 0; k0 < k; k0 += group)
		bytes += AWQ_HEAD +
			 (size_t)(padded(k - k0 < group ? k - k0 : group) / BF16_STEP) * brick_bytes(bits);
	return bytes;
}

void cpu_bf16_pack_floats(const struct cpu_bf16 *b, unsigned char *out, const void *w, enum kern_dtype dtype,
			  int n, int k, int tiles)
{
	for (int k0 = 0; k0 < k; k0 += BF16_STEP, out += (size_t)tiles * BF16_BRICK)
		for (int o = 0; o < n; o++)
			for (int p = 0; p < BF16_STEP; p++) {
				const int i = k0 + at(b, p);
				const size_t to =
					(size_t)(p / 2 * LANES_N + o % LANES_N) * 2 + (size_t)(p % 2);
				uint16_t v = 0;
				if (i < k)
					v = half_to_bf16(
						half_load(w, dtype, (size_t)o * (size_t)k + (size_t)i));
				memcpy(out + o / LANES_N * BF16_BRICK + to * 2, &v, 2);
			}
}

void cpu_bf16_unpack(const struct cpu_bf16 *b, float *out, const unsigned char *block, int tiles, int n,
		     int k)
{
	for (int k0 = 0; k0 < k; k0 += BF16_STEP, block += (size_t)tiles * BF16_BRICK)
		for (int p = 0; p < BF16_STEP; p++)
			if (k0 + at(b, p) < k)
				out[k0 + at(b, p)] = half_load(block + n / LANES_N * BF16_BRICK, KERN_BF16,
							       (size_t)(p / 2 * LANES_N + n % LANES_N) * 2 +
								       (size_t)(p % 2));
}

/* Scales and zeros of group g of output n: those that cpu_pack() has found to fit. */
static void pack_head(unsigned char *head, const struct codes *c, const struct code_rows *r, int n, int g,
		      bool f32_scales)
{
	const size_t i = (size_t)n * (size_t)codes_groups(c) + (size_t)g;
	const size_t s = (size_t)n * (size_t)codes_supers(c) + (size_t)(g * c->group / c->super);
	const float scale = r->d[s] * (float)r->scale[i];
	const int lane = n % LANES_N, zero = c->zero >= 0 ? c->zero : r->offset[i];
	if (f32_scales) {
		memcpy(head + lane * 4, &scale, 4);
		return;
	}
	uint16_t f16 = 0;
	half_to_f16(scale, &f16);
	memcpy(head + lane * 2, &f16, 2);
	head[32 + lane] = (unsigned char)zero;
}

/* Where value i of a word of 4 or 8 begins. */
static int bit_of(int bits, int i)
{
	static const int byte[4] = {0, 2, 1, 3};
	return bits == 4 ? i / 2 * 4 + i % 2 * 16 : byte[i] * 8;
}

void cpu_bf16_pack_codes(const struct cpu_bf16 *b, unsigned char *out, const struct codes *c,
			 const struct code_rows *r, bool f32_scales, int n, int tiles)
{
	const int bits = c->bits <= 4 ? 4 : 8, per_word = 32 / bits;
	for (int k0 = 0, g = 0; k0 < c->k; k0 += c->group, g++) {
		const int len = c->k - k0 < c->group ? c->k - k0 : c->group;
		for (int o = 0; o < n; o++)
			pack_head(out + o / LANES_N * AWQ_HEAD, c, r, o, g, f32_scales);
		out += tiles * AWQ_HEAD;
		for (int s0 = 0; s0 < len; s0 += BF16_STEP, out += (size_t)tiles * brick_bytes(bits))
			for (int o = 0; o < n; o++)
				for (int p0 = 0; p0 < BF16_STEP; p0 += per_word) {
					const uint8_t *code = r->code + (size_t)o * (size_t)c->k + k0;
					uint32_t word = 0;
					for (int p = 0; p < per_word; p++) {
						const int i = s0 + at(b, p0 + p);
						word |= (i < len ? (uint32_t)code[i] : 0) << bit_of(bits, p);
					}
					memcpy(out + (size_t)(o / LANES_N) * brick_bytes(bits) +
						       (size_t)(p0 / per_word * LANES_N + o % LANES_N) * 4,
					       &word, 4);
				}
	}
}
