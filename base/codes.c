#include "base/codes.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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

/* Every row's part of an array with one value per `per` inputs. */
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

/* ---- floats ---- */

/* n inputs of one group, in the order of their codes; `by`: the float of their super-group times their scale.
 */
static void group_floats(const struct codes *c, const uint8_t *code, int n, float by, int zero, float min,
			 float *out)
{
	typedef float floats4 __attribute__((vector_size(16)));
	const float *table = c->table, from = (float)zero;
	int i = 0;
	for (; i + 4 <= n; i += 4) { /* four at once: compilers leave these loops as they are */
		const uint8_t *q = code + i;
		floats4 v = {q[0], q[1], q[2], q[3]};
		if (table)
			v = (floats4){table[q[0]], table[q[1]], table[q[2]], table[q[3]]};
		v = by * (v - from);
		memcpy(out + i, &v, sizeof v);
	}
	for (; i < n; i++)
		out[i] = by * ((table ? table[code[i]] : (float)code[i]) - from);
	for (i = 0; c->minimums && i < n; i++)
		out[i] -= min;
}

/* Row n, in the order of the codes. */
static void row_floats(const struct codes *c, const struct code_rows *r, int n, float *out)
{
	const size_t groups = (size_t)codes_groups(c), supers = (size_t)codes_supers(c), k = (size_t)c->k;
	for (int i = 0; i < c->k; i += c->group) {
		const size_t g = (size_t)n * groups + (size_t)(i / c->group);
		const size_t s = (size_t)n * supers + (size_t)(i / c->super);
		const int zero = c->minimums ? 0 : c->zero >= 0 ? c->zero : r->offset[g];
		group_floats(c, r->code + (size_t)n * k + (size_t)i,
			     c->k - i < c->group ? c->k - i : c->group, r->d[s] * (float)r->scale[g], zero,
			     c->minimums ? r->dmin[s] * (float)r->offset[g] : 0, out + i);
	}
}

void codes_floats(const struct codes *c, int n0, int n1, float *out)
{
	struct code_rows r;
	float *row = c->perm ? xmalloc((size_t)c->k * sizeof *row) : NULL;
	codes_rows_new(&r, c, n1 - n0);
	c->read(c, n0, n1, &r);
	for (int n = 0; n < n1 - n0; n++, out += c->k) {
		row_floats(c, &r, n, row ? row : out);
		for (int i = 0; row && i < c->k; i++)
			out[c->perm[i]] = row[i];
	}
	free(row);
	codes_rows_free(&r);
}
