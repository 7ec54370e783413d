/* pack.c - packs operands and weights of mode bf16, as drawn in bf16.h. */
#include "kernels/cpu/bf16/bf16.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/codes.h"
#include "kernels/cpu/pack.h"
#include "kernels/half4.h"

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

/* Return the input at position p of a step. */
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
	/* An odd number of lines: rows a power of two apart would share few cache sets. */
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

/* Store four BF16, in the lower halves of v, as pairs in the table's order. */
static void put_pairs(const struct cpu_bf16 *b, ints4 v, uint32_t *to)
{
	const uint32_t x[4] = {(uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2], (uint32_t)v[3]};
	to[0] = b->chains ? x[2] | x[0] << 16 : x[0] | x[1] << 16;
	to[1] = b->chains ? x[3] | x[1] << 16 : x[2] | x[3] << 16;
}

/* Store eight BF16 weights as pairs.  The values stay, except that denormals become 0 and NaN quiet. */
static void eight_pairs(const struct cpu_bf16 *b, const unsigned char *w, uint32_t *to)
{
	typedef int16_t shorts __attribute__((vector_size(16)));
	shorts v;
	memcpy(&v, w, sizeof v);
	const shorts size = v & 0x7fff, none = size<0x0080, nan = size> 0x7f80;
	v = (v & ~(none & 0x7fff)) | (nan & 0x40);
	if (b->chains)
		v = __builtin_shufflevector(v, v, 2, 0, 3, 1, 6, 4, 7, 5);
	memcpy(to, &v, sizeof v);
}

/* Make the pairs of a step of one output: n weights from w[from] on, then zeros. */
static void step_pairs(const struct cpu_bf16 *b, const void *w, enum kern_dtype dtype, size_t from, int n,
		       uint32_t pairs[BF16_STEP / 2])
{
	int i = 0;
	for (; dtype == KERN_BF16 && i + 8 <= n; i += 8)
		eight_pairs(b, (const unsigned char *)w + (from + (size_t)i) * 2, pairs + i / 2);
	for (; i < BF16_STEP; i += 4) {
		floats4 v = {0};
		if (i + 4 <= n)
			v = half4_load(w, dtype, from + (size_t)i);
		else
			for (int j = 0; i + j < n; j++)
				v[j] = half_load(w, dtype, from + (size_t)(i + j));
		put_pairs(b, half4_to_bf16(v), pairs + i / 2);
	}
}

void cpu_bf16_pack_floats(const struct cpu_bf16 *b, unsigned char *out, const void *w, enum kern_dtype dtype,
			  int n, int k, int tiles)
{
	uint32_t pairs[LANES_N][BF16_STEP / 2];
	for (int k0 = 0; k0 < k; k0 += BF16_STEP, out += (size_t)tiles * BF16_BRICK)
		for (int o = 0; o < n; o += LANES_N) {
			const int rows = n - o < LANES_N ? n - o : LANES_N;
			for (int r = 0; r < rows; r++)
				step_pairs(b, w, dtype, (size_t)(o + r) * (size_t)k + (size_t)k0,
					   k - k0 < BF16_STEP ? k - k0 : BF16_STEP, pairs[r]);
			cpu_pack_transpose((const unsigned char *)pairs, sizeof pairs[0], rows, BF16_STEP / 2,
					   4, out + o / LANES_N * BF16_BRICK, LANES_N * 4);
		}
}

/* Convert output n of r to BF16 in row.  x: room for one row, or two with permuted inputs. */
static void values_row(const struct cpu_bf16 *b, const struct codes *c, const struct code_rows *r, int n,
		       codes_group_fn *floats, float *x, void *row)
{
	float *ordered = c->perm ? x + c->k : x;
	codes_row_floats(c, r, n, floats, x);
	for (int i = 0; c->perm && i < c->k; i++)
		ordered[c->perm[i]] = x[i];
	b->weights(row, ordered, c->k);
}

/* Return the bytes of a row of values: an odd number of lines, as in cpu_bf16_row(). */
static size_t value_row(int k)
{
	return (size_t)padded(k) * 2 | 64;
}

size_t cpu_bf16_values_scratch(int k)
{
	return LANES_N * value_row(k) + (size_t)k * sizeof(float) * 2;
}

void cpu_bf16_pack_values(const struct cpu_bf16 *b, unsigned char *out, const struct codes *c,
			  const struct code_rows *r, codes_group_fn *floats, int n, int tiles)
{
	void *scratch = xmalloc(cpu_bf16_values_scratch(c->k));
	const struct bf16_values v = {.c = c, .r = r, .floats = floats, .n = n, .tiles = tiles};
	cpu_bf16_pack_values_in(b, out, &v, scratch);
	free(scratch);
}

void cpu_bf16_pack_values_in(const struct cpu_bf16 *b, unsigned char *out, const struct bf16_values *v,
			     void *scratch)
{
	const struct codes *c = v->c;
	const struct code_rows *r = v->r;
	const int n = v->n, tiles = v->tiles;
	const size_t row = value_row(c->k);
	unsigned char *rows = scratch;
	float *x = (float *)(void *)(rows + LANES_N * row);
	for (int o = 0; o < n; o += LANES_N) {
		const int some = n - o < LANES_N ? n - o : LANES_N;
		unsigned char *brick = out + o / LANES_N * BF16_BRICK;
		for (int i = 0; i < some; i++)
			values_row(b, c, r, o + i, v->floats, x, rows + (size_t)i * row);
		for (int k0 = 0; k0 < c->k; k0 += BF16_STEP, brick += (size_t)tiles * BF16_BRICK)
			cpu_pack_transpose(rows + (size_t)k0 * 2, row, some, BF16_STEP / 2, 4, brick,
					   LANES_N * 4);
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

/* Pack the scales and zeros of group g of output n; cpu_pack() has checked that they fit. */
static void pack_head(unsigned char *head, const struct codes *c, const struct pack_rows *rows, int n, int g,
		      bool f32_scales)
{
	const struct code_rows *r = &rows->r;
	const size_t i = (size_t)n * (size_t)codes_groups(c) + (size_t)g;
	const int lane = n % LANES_N, zero = c->zero >= 0 ? c->zero : r->offset[i];
	if (f32_scales) {
		const size_t s = (size_t)n * (size_t)codes_supers(c) + (size_t)(g * c->group / c->super);
		const float scale = r->d[s] * (float)r->scale[i];
		memcpy(head + lane * 4, &scale, 4);
		return;
	}
	memcpy(head + lane * 2, &rows->d[i], 2);
	head[32 + lane] = (unsigned char)zero;
}

/* Pack eight codes of 4 bits. */
static uint32_t nibbles(const struct cpu_bf16 *b, const uint8_t *code)
{
	uint64_t v;
	memcpy(&v, code, sizeof v);
	if (b->chains) { /* bytes 0, 2, 4, 6 then have two neighbours each */
		v |= v >> 4;
		return (uint32_t)((v >> 16 & 0xff) | (v >> 40 & 0xff00) | (v & 0xff) << 16 |
				  (v >> 32 & 0xff) << 24);
	}
	uint64_t even = v & 0x000f000f000f000f, odd = v >> 8 & 0x000f000f000f000f;
	even |= even >> 12;
	odd |= odd >> 12;
	return (uint32_t)(((even | even >> 24) & 0xffff) | ((odd | odd >> 24) & 0xffff) << 16);
}

/* Pack four codes of 8 bits as bytes 0, 2, 1, 3, in the table's order. */
static uint32_t bytes(const struct cpu_bf16 *b, const uint8_t *code)
{
	uint32_t v;
	memcpy(&v, code, sizeof v);
	return b->chains ? v >> 16 | v << 16 : (v & 0xff0000ff) | (v & 0xff00) << 8 | (v & 0xff0000) >> 8;
}

/* Make the words of a step of one output: n codes, then zeros. */
static void step_words(const struct cpu_bf16 *b, int bits, const uint8_t *code, int n,
		       uint32_t words[BF16_STEP / 4])
{
	uint8_t last[BF16_STEP] = {0};
	if (n < BF16_STEP)
		code = memcpy(last, code, (size_t)n);
	for (int i = 0; i < bits; i++)
		words[i] = bits == 4 ? nibbles(b, code + 8 * i) : bytes(b, code + 4 * i);
}

void cpu_bf16_pack_codes(const struct cpu_bf16 *b, unsigned char *out, const struct codes *c,
			 const struct pack_rows *r, bool f32_scales, int n, int tiles)
{
	const int bits = c->bits <= 4 ? 4 : 8;
	const size_t k = (size_t)c->k;
	uint32_t words[LANES_N][BF16_STEP / 4];
	for (int k0 = 0, g = 0; k0 < c->k; k0 += c->group, g++) {
		const int len = c->k - k0 < c->group ? c->k - k0 : c->group;
		for (int o = 0; o < n; o++)
			pack_head(out + o / LANES_N * AWQ_HEAD, c, r, o, g, f32_scales);
		out += tiles * AWQ_HEAD;
		for (int s0 = 0; s0 < len; s0 += BF16_STEP, out += (size_t)tiles * brick_bytes(bits))
			for (int o = 0; o < n; o += LANES_N) {
				const int rows = n - o < LANES_N ? n - o : LANES_N;
				for (int i = 0; i < rows; i++)
					step_words(b, bits,
						   r->r.code + (size_t)(o + i) * k + (size_t)(k0 + s0),
						   len - s0 < BF16_STEP ? len - s0 : BF16_STEP, words[i]);
				cpu_pack_transpose((const unsigned char *)words, sizeof words[0], rows, bits,
						   4, out + (size_t)(o / LANES_N) * brick_bytes(bits),
						   LANES_N * 4);
			}
	}
}
