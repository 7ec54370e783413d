#include "base/codes.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const float codes_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

float codes_e8m0_half(uint8_t e)
{
	const uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

int codes_groups(const struct codes *c)
{
	return (c->k + c->group - 1) / c->group;
}

int codes_supers(const struct codes *c)
{
	return (c->k + c->super - 1) / c->super;
}

void codes_rows_new(struct code_rows *r, const struct codes *c, int n)
{
	const size_t rows = (size_t)n, groups = (size_t)codes_groups(c), supers = (size_t)codes_supers(c);
	*r = (struct code_rows){
		.code = xmalloc(rows * (size_t)c->k),
		.scale = xmalloc(rows * groups * sizeof *r->scale),
		.offset = xmalloc(rows * groups * sizeof *r->offset),
		.d = xmalloc(rows * supers * sizeof *r->d),
		.dmin = c->minimums ? xmalloc(rows * supers * sizeof *r->dmin) : NULL,
	};
}

void codes_rows_free(struct code_rows *r)
{
	free(r->code);
	free(r->scale);
	free(r->offset);
	free(r->d);
	free(r->dmin);
}

/* ---- cuts ---- */

static bool is_border(int at, int size, int k)
{
	return size >= k || at == k || at % size == 0;
}

bool codes_can_cut(const struct codes *c, int k0, int k)
{
	if (k0 == 0 && k == c->k)
		return true;
	return !c->perm && is_border(k0, c->group, c->k) && is_border(k0 + k, c->group, c->k) &&
	       is_border(k0, c->super, c->k) && is_border(k0 + k, c->super, c->k);
}

/* Copy the cut of every row of an array that has one value per `per` inputs. */
static void cut_rows(void *out, const void *in, size_t size, int n, const struct codes *whole,
		     const struct codes *part, int per)
{
	const int width = (whole->k + per - 1) / per, from = per >= whole->k ? 0 : part->k0 / per;
	const int some = per >= whole->k ? 1 : (part->k + per - 1) / per;
	for (int i = 0; i < n; i++)
		memcpy((unsigned char *)out + (size_t)i * (size_t)some * size,
		       (const unsigned char *)in + ((size_t)i * (size_t)width + (size_t)from) * size,
		       (size_t)some * size);
}

static void read_cut(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const struct codes *whole = c->from[0];
	const int n = n1 - n0;
	if (c->k == whole->k) {
		whole->read(whole, c->n0 + n0, c->n0 + n1, out);
		return;
	}
	struct code_rows r;
	codes_rows_new(&r, whole, n);
	whole->read(whole, c->n0 + n0, c->n0 + n1, &r);
	cut_rows(out->code, r.code, 1, n, whole, c, 1);
	cut_rows(out->scale, r.scale, sizeof *r.scale, n, whole, c, whole->group);
	cut_rows(out->offset, r.offset, sizeof *r.offset, n, whole, c, whole->group);
	cut_rows(out->d, r.d, sizeof *r.d, n, whole, c, whole->super);
	if (c->minimums)
		cut_rows(out->dmin, r.dmin, sizeof *r.dmin, n, whole, c, whole->super);
	codes_rows_free(&r);
}

void codes_cut(struct codes *out, const struct codes *whole, int n0, int n, int k0, int k)
{
	assert(n0 >= 0 && n > 0 && n0 + n <= whole->n && k0 >= 0 && k > 0 && k0 + k <= whole->k);
	assert(codes_can_cut(whole, k0, k));
	*out = *whole;
	out->n = n;
	out->k = k;
	out->n0 = n0;
	out->k0 = k0;
	out->group = whole->group < k ? whole->group : k;
	out->super = whole->super < k ? whole->super : k;
	out->read = read_cut;
	out->from[0] = whole;
}

const struct codes *codes_whole(const struct codes *c)
{
	while (c->read == read_cut)
		c = c->from[0];
	return c;
}

size_t codes_row_bytes(const struct codes *c)
{
	return (size_t)codes_supers(c) * (size_t)c->super_bytes;
}

void codes_copy_rows(const struct codes *c, int n0, int n1, void *out)
{
	const size_t row = codes_row_bytes(c);
	int super0 = 0;
	const struct codes *whole = c;
	for (; whole->read == read_cut; whole = whole->from[0]) {
		n0 += whole->n0;
		n1 += whole->n0;
		super0 += whole->k0 / whole->super;
	}
	const unsigned char *from = whole->from[0];
	from += (size_t)super0 * (size_t)c->super_bytes;
	for (int n = n0; n < n1; n++)
		memcpy((unsigned char *)out + (size_t)(n - n0) * row,
		       from + (size_t)n * codes_row_bytes(whole), row);
}

void codes_copied(struct codes *out, const struct codes *c, const void *rows, int n)
{
	const struct codes *whole = codes_whole(c);
	*out = *whole;
	out->n = n;
	out->k = c->k;
	out->group = c->group;
	out->super = c->super;
	out->from[0] = rows;
}

/* ---- floats ---- */

typedef float floats4 __attribute__((vector_size(16)));
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t shorts8 __attribute__((vector_size(16)));
typedef int32_t ints4 __attribute__((vector_size(16)));

/* Return codes 4 j .. 4 j + 3 of 16 as floats. */
static inline floats4 four_codes(const shorts8 half[2], int j)
{
	const shorts8 none = {0}, h = half[j / 2];
	const shorts8 v = j & 1 ? __builtin_shufflevector(h, none, 4, 8, 5, 9, 6, 10, 7, 11)
				: __builtin_shufflevector(h, none, 0, 8, 1, 9, 2, 10, 3, 11);
	return __builtin_convertvector((ints4)v, floats4);
}

static inline void sixteen_floats(const struct codes_group *g, const uint8_t *q, float *out)
{
	const bytes16 none = {0};
	bytes16 code;
	memcpy(&code, q, sizeof code);
	const shorts8 half[2] = {(shorts8)__builtin_shufflevector(code, none, 0, 16, 1, 17, 2, 18, 3, 19, 4,
								  20, 5, 21, 6, 22, 7, 23),
				 (shorts8)__builtin_shufflevector(code, none, 8, 24, 9, 25, 10, 26, 11, 27,
								  12, 28, 13, 29, 14, 30, 15, 31)};
	for (int j = 0; j < 4; j++) {
		const uint8_t *at = q + 4 * j;
		const float *t = g->table;
		floats4 v = t ? (floats4){t[at[0]], t[at[1]], t[at[2]], t[at[3]]} : four_codes(half, j);
		v = g->by * (v - g->zero) - g->min;
		memcpy(out + 4 * j, &v, sizeof v);
	}
}

void codes_group_floats(const struct codes_group *g, const uint8_t *code, int n, float *out)
{
	int i = 0;
	for (; i + 16 <= n; i += 16) /* explicit vectors, because compilers do not vectorize such loops */
		sixteen_floats(g, code + i, out + i);
	for (; i < n; i++) {
		const float v = g->table ? g->table[code[i]] : (float)code[i];
		out[i] = g->by * (v - g->zero) - g->min;
	}
}

void codes_row_floats(const struct codes *c, const struct code_rows *r, int n, codes_group_fn *floats,
		      float *out)
{
	const size_t row = (size_t)n, groups = (size_t)codes_groups(c), supers = (size_t)codes_supers(c);
	const uint8_t *code = r->code + row * (size_t)c->k;
	size_t at = row * groups;
	int left = c->k;
	for (size_t s = row * supers; s < (row + 1) * supers; s++) {
		const int end = left < c->super ? left : c->super;
		for (int i = 0; i < end; i += c->group, at++) {
			const int zero = c->minimums ? 0 : c->zero >= 0 ? c->zero : r->offset[at];
			const struct codes_group g = {.table = c->table,
						      .by = r->d[s] * (float)r->scale[at],
						      .zero = (float)zero,
						      .min = c->minimums ? r->dmin[s] * (float)r->offset[at]
									 : 0};
			floats(&g, code + i, end - i < c->group ? end - i : c->group, out + i);
		}
		code += end;
		out += end;
		left -= end;
	}
}

void codes_floats(const struct codes *c, int n0, int n1, float *out)
{
	struct code_rows r;
	float *row = c->perm ? xmalloc((size_t)c->k * sizeof *row) : NULL;
	codes_rows_new(&r, c, n1 - n0);
	c->read(c, n0, n1, &r);
	for (int n = 0; n < n1 - n0; n++, out += c->k) {
		codes_row_floats(c, &r, n, codes_group_floats, row ? row : out);
		for (int i = 0; row && i < c->k; i++)
			out[c->perm[i]] = row[i];
	}
	free(row);
	codes_rows_free(&r);
}
