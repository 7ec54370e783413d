/* codes.c - readers of stored quantizations, by ranges of outputs. */
#include "kernels/codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/half4.h"

/* ---- AWQ ---- */

static uint32_t awq_word(const void *words, int row, int n, int col)
{
	uint32_t v;
	const size_t at = (size_t)row * (size_t)(n / 8) + (size_t)col / 8;
	memcpy(&v, (const unsigned char *)words + at * 4, 4);
	return v;
}

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint64_t words16 __attribute__((vector_size(16)));

static inline bytes16 zip_low(bytes16 a, bytes16 b)
{
	return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

static inline bytes16 zip_high(bytes16 a, bytes16 b)
{
	return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* Transpose 8 rows of 16 bytes to 16 columns of 8 bytes, two columns in each of v. */
static inline void columns(bytes16 v[8])
{
	const bytes16 a0 = zip_low(v[0], v[4]), a1 = zip_low(v[1], v[5]), a2 = zip_low(v[2], v[6]),
		      a3 = zip_low(v[3], v[7]), b0 = zip_high(v[0], v[4]), b1 = zip_high(v[1], v[5]),
		      b2 = zip_high(v[2], v[6]), b3 = zip_high(v[3], v[7]);
	const bytes16 c0 = zip_low(a0, a2), c1 = zip_low(a1, a3), d0 = zip_high(a0, a2),
		      d1 = zip_high(a1, a3), e0 = zip_low(b0, b2), e1 = zip_low(b1, b3),
		      f0 = zip_high(b0, b2), f1 = zip_high(b1, b3);
	v[0] = zip_low(c0, c1);
	v[1] = zip_high(c0, c1);
	v[2] = zip_low(d0, d1);
	v[3] = zip_high(d0, d1);
	v[4] = zip_low(e0, e1);
	v[5] = zip_high(e0, e1);
	v[6] = zip_low(f0, f1);
	v[7] = zip_high(f0, f1);
}

enum { AWQ_OUTPUTS = 64, AWQ_INPUTS = 64 }; /* read at once: few rows of codes, whole cache lines */

/* Read outputs 0 .. n - 1 of the 32 in 16 bytes, for eight inputs.  The rows of words are AWQ_OUTPUTS / 2
 * bytes apart. */
static void awq_square(const unsigned char *words, uint8_t *code, size_t k, int n)
{
	/* Outputs of a word's four bytes: of the low nibbles, and of the high ones. */
	static const int output[2][4] = {{0, 4, 1, 5}, {2, 6, 3, 7}};
	for (int high = 0; high < 2; high++) {
		bytes16 v[8];
		for (int i = 0; i < 8; i++) {
			words16 w;
			memcpy(&w, words + i * (AWQ_OUTPUTS / 2), sizeof w);
			v[i] = (bytes16)(w >> 4 * high & 0x0f0f0f0f0f0f0f0fu);
		}
		columns(v);
		for (int i = 0; i < 16; i++) {
			const int o = i / 4 * 8 + output[high][i % 4];
			if (o < n)
				memcpy(code + (size_t)o * k, (const unsigned char *)v + i * 8, 8);
		}
	}
}

/* Read n outputs from n0 on, at most AWQ_OUTPUTS, and inputs i0 .. i0 + inputs - 1.  n0 is a multiple of
 * 8. */
static void awq_piece(const struct codes *c, int n0, int n, int i0, int inputs, uint8_t *code)
{
	const size_t row = (size_t)c->n / 2, k = (size_t)c->k, bytes = (size_t)(n + 7) / 8 * 4;
	unsigned char near[AWQ_INPUTS][AWQ_OUTPUTS / 2] = {0};
	for (int i = 0; i < inputs; i++) {
		const unsigned char *from =
			(const unsigned char *)c->from[0] + (size_t)(i0 + i) * row + (size_t)n0 / 2;
		if (n == AWQ_OUTPUTS) /* a length that the compiler knows: two loads and stores */
			memcpy(near[i], from, AWQ_OUTPUTS / 2);
		else
			memcpy(near[i], from, bytes);
	}
	/* Rows of codes may be a power of two apart and share few cache sets, so each row is collected here
	 * and written once. */
	uint8_t square[AWQ_OUTPUTS][AWQ_INPUTS];
	for (int i = 0; i < inputs; i += 8)
		for (int o = 0; o < n; o += 32)
			awq_square(&near[i][o / 2], &square[o][i], AWQ_INPUTS, n - o < 32 ? n - o : 32);
	for (int o = 0; o < n; o++)
		if (inputs == AWQ_INPUTS)
			memcpy(code + (size_t)o * k + i0, square[o], AWQ_INPUTS);
		else
			memcpy(code + (size_t)o * k + i0, square[o], (size_t)inputs);
}

static void awq_read_head(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const int groups = codes_groups(c);
	for (int g = 0; g < groups; g++)
		for (int col = n0; col < n1; col++) {
			const size_t at = (size_t)(col - n0) * (size_t)groups + (size_t)g;
			const uint32_t z =
				awq_word(c->from[1], g, c->n, col) >> (4 * codes_awq_nibble(col & 7));
			out->scale[at] = 1;
			out->offset[at] = z & 15;
			out->d[at] = half_load(c->from[2], KERN_F16, (size_t)g * (size_t)c->n + (size_t)col);
		}
}

static void awq_read(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const size_t k = (size_t)c->k;
	int col = n0;
	for (; col % 8 && col < n1; col++) /* up to a whole word */
		for (int i = 0; i < c->k; i++)
			out->code[(size_t)(col - n0) * k + (size_t)i] =
				awq_word(c->from[0], i, c->n, col) >> (4 * codes_awq_nibble(col & 7)) & 15;
	for (; col < n1; col += AWQ_OUTPUTS)
		for (int i = 0; i < c->k; i += AWQ_INPUTS)
			awq_piece(c, col, n1 - col < AWQ_OUTPUTS ? n1 - col : AWQ_OUTPUTS, i,
				  c->k - i < AWQ_INPUTS ? c->k - i : AWQ_INPUTS,
				  out->code + (size_t)(col - n0) * k);
	awq_read_head(c, n0, n1, out);
}

void codes_awq(struct codes *c, const struct kern_linear_part *p, int k, int group)
{
	*c = (struct codes){.n = p->n,
			    .k = k,
			    .bits = 4,
			    .group = group,
			    .super = group,
			    .zero = -1,
			    .d_type = CODES_F16,
			    .read = awq_read,
			    .from = {p->w, p->qzeros, p->scales}};
}

/* ---- floats ---- */

/* The lowest byte of each of 16 values. */
static inline bytes16 low_bytes(const ints4 v[4])
{
	typedef uint16_t shorts __attribute__((vector_size(16)));
	const shorts a = __builtin_shufflevector((shorts)v[0], (shorts)v[1], 0, 2, 4, 6, 8, 10, 12, 14);
	const shorts b = __builtin_shufflevector((shorts)v[2], (shorts)v[3], 0, 2, 4, 6, 8, 10, 12, 14);
	return __builtin_shufflevector((bytes16)a, (bytes16)b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24,
				       26, 28, 30);
}

/* The largest |w|; NaN if any w is NaN. */
static float largest(const void *w, enum kern_dtype dtype, size_t at, int n)
{
	ints4 most = {0};
	int32_t all = 0;
	int i = 0;
	for (; i + 4 <= n; i += 4) {
		const ints4 v = (ints4)half4_load(w, dtype, at + (size_t)i) & 0x7fffffff, more = v > most;
		most = (v & more) | (most & ~more);
	}
	for (int j = 0; j < 4; j++)
		all = most[j] > all ? most[j] : all;
	for (; i < n; i++) {
		const float f = fabsf(half_load(w, dtype, at + (size_t)i));
		int32_t bits;
		memcpy(&bits, &f, 4);
		all = bits > all ? bits : all;
	}
	return half_bits((uint32_t)all);
}

/* scale = max |w| / 127; each weight gets the nearest code.  Plain float arithmetic gives the same codes on
 * every machine.  A group with a weight that is not finite gets a scale that is not finite. */
static void dense_group(const void *w, enum kern_dtype dtype, size_t at, int n, uint8_t *code, float *scale)
{
	const float most = largest(w, dtype, at, n);
	const bool some = most >= 1e-30f && most < INFINITY;
	const float inverse = some ? 127 / most : 0;
	*scale = most >= 1e-30f || most != most ? most / 127 : 0;
	int i = 0;
	for (; some && i + 16 <= n; i += 16) {
		/* The sum rounds, ties to even; its lowest byte is the code. */
		ints4 v[4];
		for (int j = 0; j < 4; j++)
			v[j] = (ints4)(half4_load(w, dtype, at + (size_t)(i + 4 * j)) * inverse +
				       (0x1.8p23f + 128));
		const bytes16 q = low_bytes(v);
		memcpy(code + i, &q, sizeof q);
	}
	for (; i < n; i++)
		code[i] = some ? (uint8_t)(128 + (int)rintf(half_load(w, dtype, at + (size_t)i) * inverse))
			       : 128;
}

/* Fill row n of out from the k weights at w[at]. */
static void dense_row(const struct codes *c, const struct code_rows *out, int n, const void *w,
		      enum kern_dtype dtype, size_t at)
{
	const int groups = codes_groups(c);
	for (int g = 0; g < groups; g++) {
		const int k0 = g * c->group, len = c->k - k0 < c->group ? c->k - k0 : c->group;
		const size_t to = (size_t)n * (size_t)groups + (size_t)g;
		out->scale[to] = 1;
		out->offset[to] = 128;
		dense_group(w, dtype, at + (size_t)k0, len, out->code + (size_t)n * (size_t)c->k + k0,
			    &out->d[to]);
	}
}

static void dense_read(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const struct kern_linear_part *p = c->from[0];
	for (int n = n0; n < n1; n++)
		dense_row(c, out, n - n0, p->w, p->dtype, (size_t)n * (size_t)c->k);
}

static void again_read(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	float *w = xmalloc((size_t)c->k * sizeof *w);
	for (int n = n0; n < n1; n++) {
		codes_floats(c->from[0], n, n + 1, w);
		dense_row(c, out, n - n0, w, KERN_F32, 0);
	}
	free(w);
}

static struct codes int8_codes(int n, int k)
{
	const int group = k < CODES_DENSE_GROUP ? k : CODES_DENSE_GROUP;
	return (struct codes){
		.n = n, .k = k, .bits = 8, .group = group, .super = group, .zero = 128, .d_type = CODES_F32};
}

void codes_dense(struct codes *c, const struct kern_linear_part *p, int k)
{
	*c = int8_codes(p->n, k);
	c->read = dense_read;
	c->from[0] = p;
}

void codes_again(struct codes *c, const struct codes *from)
{
	*c = int8_codes(from->n, from->k);
	c->read = again_read;
	c->from[0] = from;
}

bool codes_are_made(const struct codes *c)
{
	return c->read == dense_read || c->read == again_read;
}
