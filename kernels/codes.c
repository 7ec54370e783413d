/* codes.c - readers of stored quantizations, range by range. */
#include "kernels/codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/half.h"

/* ---- AWQ ---- */

/* column c of eight is at nibble awq_nibble[c] of a stored word */
static const int awq_nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t awq_word(const void *words, int row, int n, int col)
{
	uint32_t v;
	const size_t at = (size_t)row * (size_t)(n / 8) + (size_t)col / 8;
	memcpy(&v, (const unsigned char *)words + at * 4, 4);
	return v;
}

static void awq_read(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const int groups = codes_groups(c);
	const size_t k = (size_t)c->k;
	for (int i = 0; i < c->k; i++)
		for (int col = n0; col < n1;) {
			uint32_t w = awq_word(c->from[0], i, c->n, col);
			uint8_t *to = out->code + (size_t)(col - n0) * k + (size_t)i;
			for (int end = col / 8 * 8 + 8; col < end && col < n1; col++, to += k)
				*to = w >> (4 * awq_nibble[col & 7]) & 15;
		}
	for (int col = n0; col < n1; col++)
		for (int g = 0; g < groups; g++) {
			const size_t at = (size_t)(col - n0) * (size_t)groups + (size_t)g;
			const uint32_t z = awq_word(c->from[1], g, c->n, col) >> (4 * awq_nibble[col & 7]);
			out->scale[at] = 1;
			out->offset[at] = z & 15;
			out->d[at] = half_load(c->from[2], KERN_F16, (size_t)g * (size_t)c->n + (size_t)col);
		}
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

/* scale = max |w| / 127 and the nearest code, in plain float arithmetic: the codes are the same everywhere.
 * A group with a weight that is not finite has a scale that is not. */
static void dense_group(const void *w, enum kern_dtype dtype, size_t at, int n, uint8_t *code, float *scale)
{
	float most = 0;
	for (int i = 0; i < n; i++) {
		const float v = fabsf(half_load(w, dtype, at + (size_t)i));
		most = v > most || v != v ? v : most;
		if (most != most)
			break;
	}
	const bool some = most >= 1e-30f && most < INFINITY;
	const float inverse = some ? 127 / most : 0;
	*scale = most >= 1e-30f || most != most ? most / 127 : 0;
	for (int i = 0; i < n; i++)
		code[i] = some ? (uint8_t)(128 + (int)rintf(half_load(w, dtype, at + (size_t)i) * inverse))
			       : 128;
}

/* Row n of out, of the k weights from w[at] on. */
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
