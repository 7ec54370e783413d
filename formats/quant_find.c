/* quant_find.c - find and check the tensors of a quantized linear layer. */
#include "formats/quant_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/quant_rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct st_tensor *quant_look(const struct safetensors *files, const char *module, const char *part)
{
	char name[160];
	snprintf(name, sizeof name, "%s.%s", module, part);
	return safetensors_find(files, name);
}

static bool is_quantized_type(const struct st_tensor *t)
{
	return t &&
	       (t->dtype == ST_I8 || t->dtype == ST_U8 || t->dtype == ST_F8_E4M3 || t->dtype == ST_F8_E5M2);
}

bool quant_has(const struct safetensors *files, const char *module)
{
	return quant_look(files, module, "qweight") || quant_look(files, module, "weight_packed") ||
	       quant_look(files, module, "weight.absmax") ||
	       is_quantized_type(quant_look(files, module, "weight"));
}

/* ---- tensors ---- */

static void shape_text(const int64_t *shape, int n_dims, char *out, size_t n)
{
	size_t len = 0;
	out[0] = '\0';
	for (int i = 0; i < n_dims && len < n; i++)
		len += (size_t)snprintf(out + len, n - len, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

/* Name of the type that is looked for, for messages. */
static const char *name_of(const struct quant_search *f)
{
	return f->q->mixed ? quant_layout_name(f->s->layout) : f->q->name;
}

int quant_wrong_shape(const struct quant_search *f, const struct st_tensor *t, const int64_t *want,
		      int n_dims)
{
	char have[160], need[64];
	shape_text(t->shape, t->n_dims, have, sizeof have);
	shape_text(want, n_dims, need, sizeof need);
	return err_why(f->why, -EINVAL,
		       "tensor %s has the shape [%s], the configuration needs [%s]: %d x %d weights of %d "
		       "bits in groups "
		       "of %d, %s",
		       t->name, have, need, f->s->n, f->s->k, f->s->bits, f->s->group, name_of(f));
}

bool quant_has_shape(const struct st_tensor *t, int64_t rows, int64_t cols)
{
	return rows ? t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols
		    : t->n_dims == 1 && t->shape[0] == cols;
}

void quant_use(const struct quant_search *f, const struct st_tensor *t)
{
	f->found->bytes += t->bytes;
	f->found->tensors[f->found->n_tensors++] = t;
}

int quant_need(const struct quant_search *f, const char *part, enum st_dtype dtype, int64_t rows,
	       int64_t cols, const unsigned char **out)
{
	const struct st_tensor *t = quant_look(f->files, f->l->name, part);
	const int64_t want[] = {rows ? rows : cols, cols};
	if (!t)
		return err_why(f->why, -ENOENT, "tensor %s.%s is missing", f->l->name, part);
	if (t->dtype != dtype)
		return err_why(f->why, -EINVAL, "tensor %s is %s; %s needs %s", t->name,
			       st_dtype_name(t->dtype), name_of(f), st_dtype_name(dtype));
	if (!quant_has_shape(t, rows, cols))
		return quant_wrong_shape(f, t, want, rows ? 2 : 1);
	quant_use(f, t);
	*out = t->data;
	return 0;
}

/* ---- scales ---- */

static int float_type(const struct quant_search *f, const struct st_tensor *t, enum quant_scale *out)
{
	if (t->dtype != ST_F32 && t->dtype != ST_F16 && t->dtype != ST_BF16)
		return err_why(f->why, -EINVAL, "tensor %s is %s; F32, F16 or BF16 is needed", t->name,
			       st_dtype_name(t->dtype));
	*out = t->dtype == ST_F32 ? QUANT_SCALE_F32 : t->dtype == ST_F16 ? QUANT_SCALE_F16 : QUANT_SCALE_BF16;
	return 0;
}

/* Return whether F16 represents v exactly: 11 significant bits, below 2^16, no bit below 2^-24. */
static bool fits_f16(float v)
{
	uint32_t u;
	int e;
	memcpy(&u, &v, 4);
	const uint32_t exponent = u >> 23 & 255;
	if (exponent >= 113 && exponent <= 142)
		return (u & 0x1fff) == 0;
	const float m = frexpf(v, &e);
	const int bits = e > -14 ? 11 : e + 24;
	const float scaled = ldexpf(m, bits > 0 ? bits : 0);
	return v == 0 || (e <= 16 && bits > 0 && scaled == truncf(scaled));
}

int quant_check_floats(const struct quant_search *f, const struct st_tensor *t, enum quant_scale type,
		       enum codes_float *out)
{
	const size_t n = t->bytes / (type == QUANT_SCALE_F32 ? 4 : 2);
	struct quant_stored one = {
		.scales = t->data, .scale_type = type, .block_n = 1, .whole = 1, .unit = 1};
	bool f16 = true;
	for (size_t i = 0; i < n; i++, one.scales += t->bytes / n) {
		const float v = quant_scale_at(&one, 0, 0);
		if (!isfinite(v))
			return err_why(f->why, -EINVAL, "tensor %s: value %zu is not a finite number",
				       t->name, i);
		f16 = f16 && fits_f16(v);
	}
	*out = f16 ? CODES_F16 : (enum codes_float)type;
	return 0;
}

static int need_scales(struct quant_search *f, const char *part, int64_t rows, int64_t cols,
		       enum codes_float *fit)
{
	const struct st_tensor *t = quant_look(f->files, f->l->name, part);
	const int64_t want[] = {rows, cols};
	int rc;
	if (!t)
		return err_why(f->why, -ENOENT, "tensor %s.%s is missing", f->l->name, part);
	if ((rc = float_type(f, t, &f->s->scale_type)))
		return rc;
	if (!quant_has_shape(t, rows, cols))
		return quant_wrong_shape(f, t, want, 2);
	quant_use(f, t);
	f->s->scales = t->data;
	return quant_check_floats(f, t, f->s->scale_type, fit);
}

/* Find a weight_scale of compressed-tensors or FP8: [1] or a scalar for the whole tensor, [N] or [N, 1], or a
 * grid. */
static int need_scale_grid(struct quant_search *f, const char *part, int block_n, int groups,
			   enum codes_float *fit)
{
	const struct st_tensor *t = quant_look(f->files, f->l->name, part);
	struct quant_stored *s = f->s;
	int rc;
	if (!t)
		return err_why(f->why, -ENOENT, "tensor %s.%s is missing", f->l->name, part);
	if ((rc = float_type(f, t, &s->scale_type)))
		return rc;
	const int64_t values = (int64_t)(t->bytes / (s->scale_type == QUANT_SCALE_F32 ? 4 : 2));
	const int64_t rows = block_n ? (s->n + block_n - 1) / block_n : 1;
	const int64_t want[] = {rows, groups};
	const bool flat =
		groups == 1 && values == rows && (t->n_dims < 2 || (t->n_dims == 2 && t->shape[1] == 1));
	/* ModelOpt has blocks as [rows, 1, groups, 1]. */
	const bool four = t->n_dims == 4 && t->shape[0] == rows && t->shape[1] == 1 &&
			  t->shape[2] == groups && t->shape[3] == 1;
	if (!flat && !four && !quant_has_shape(t, rows, groups))
		return quant_wrong_shape(f, t, want, 2);
	s->block_n = block_n ? block_n : s->n;
	s->scale_n = (size_t)groups;
	s->scale_g = 1;
	s->scales = t->data;
	quant_use(f, t);
	return quant_check_floats(f, t, s->scale_type, fit);
}

/* ---- permuted inputs ---- */

/* Sort inputs by g_idx, the group of every input; all groups must be whole.  *perm stays NULL if the inputs
 * are already sorted. */
static int sort_inputs(const struct quant_search *f, const char *part, const int32_t **perm)
{
	struct quant_stored *s = f->s;
	const struct st_tensor *t = quant_look(f->files, f->l->name, part);
	const unsigned char *p;
	int rc;
	if (!t)
		return 0;
	if ((rc = quant_need(f, part, ST_I32, 0, s->k, &p)))
		return rc;
	int32_t *next = xcalloc((size_t)f->groups, sizeof *next);
	bool sorted = true;
	for (int g = 0; g < f->groups; g++)
		next[g] = g * s->group;
	for (int i = 0; !rc && i < s->k; i++) {
		int32_t g;
		memcpy(&g, p + 4 * (size_t)i, 4);
		if (g < 0 || g >= f->groups)
			rc = err_why(f->why, -EINVAL, "tensor %s: input %d is in group %d of %d", t->name, i,
				     g, f->groups);
		else if (next[g] >= s->k || next[g] >= (g + 1) * (int64_t)s->group)
			rc = err_why(f->why, -EINVAL, "tensor %s: more than %d inputs are in group %d",
				     t->name, s->group, g);
		else {
			sorted = sorted && next[g] == i;
			s->order[next[g]++] = i;
		}
	}
	free(next);
	if (!rc && !sorted)
		*perm = s->order;
	return rc;
}

/* ---- layouts ---- */

static int find_gptq(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const int per = s->bits == 3 ? 32 : 32 / s->bits;
	int rc;
	if (s->n % per || s->k % per)
		return err_why(f->why, -EINVAL,
			       "%s has %d outputs and %d inputs; %s of %d bits packs %d at a time",
			       f->l->name, s->n, s->k, f->q->name, s->bits, per);
	s->zero_words = (size_t)s->n / 32 * (size_t)s->bits + (size_t)(s->n % 32 * s->bits / 32);
	s->scale_n = 1;
	s->scale_g = (size_t)s->n;
	if ((rc = quant_need(f, "qweight", ST_I32, (int64_t)s->k * s->bits / 32, s->n, &s->q)) ||
	    (rc = quant_need(f, "qzeros", ST_I32, f->groups, (int64_t)s->zero_words, &s->zeros)) ||
	    (rc = need_scales(f, "scales", f->groups, s->n, &c->d_type)))
		return rc;
	return sort_inputs(f, "g_idx", &c->perm);
}

/* Return whether the scheme has the group size of the first 4-bit scheme.  The kernels need one group size
 * for AWQ layers that are packed together (q, k and v). */
static bool is_first_group(const struct quant_search *f)
{
	for (int i = 0; i < f->q->n_schemes; i++)
		if (f->q->schemes[i].layout == QUANT_AWQ && f->q->schemes[i].bits == 4)
			return f->scheme.group == f->q->schemes[i].group;
	return false;
}

static int find_awq(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const int per = 32 / s->bits;
	int rc;
	if (s->n % per)
		return err_why(f->why, -EINVAL, "%s has %d outputs; AWQ packs %d at a time", f->l->name, s->n,
			       per);
	s->scale_n = 1;
	s->scale_g = (size_t)s->n;
	if ((rc = quant_need(f, "qweight", ST_I32, s->k, s->n / per, &s->q)) ||
	    (rc = quant_need(f, "qzeros", ST_I32, f->groups, s->n / per, &s->zeros)) ||
	    (rc = need_scales(f, "scales", f->groups, s->n, &c->d_type)))
		return rc;
	if (s->bits == 8 || s->scale_type != QUANT_SCALE_F16 || !is_first_group(f))
		return 0;
	f->l->kind = WEIGHTS_AWQ;
	f->l->group = s->group;
	f->l->w = s->q;
	f->l->qzeros = s->zeros;
	f->l->scales = s->scales;
	return 0;
}

/* Return the words per row of zeros: groups in words of 8, padded to 1, 2 or 4 words by group size. */
static int gemv_words(const struct quant_search *f)
{
	const int pad = f->s->group >= 128 ? 1 : f->s->group == 64 ? 2 : 4;
	return ((f->groups + 7) / 8 + pad - 1) / pad * pad;
}

static int find_gemv(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const int words = gemv_words(f);
	int rc;
	if (s->k % 8 || s->k % s->group)
		return err_why(f->why, -EINVAL, "%s has %d inputs, not a multiple of 8 and of groups of %d",
			       f->l->name, s->k, s->group);
	s->zero_words = (size_t)words;
	s->scale_n = (size_t)words * 8;
	s->scale_g = 1;
	if ((rc = quant_need(f, "qweight", ST_I32, s->n, s->k / 8, &s->q)) ||
	    (rc = quant_need(f, "qzeros", ST_I32, s->n, words, &s->zeros)))
		return rc;
	return need_scales(f, "scales", s->n, (int64_t)words * 8, &c->d_type);
}

static int find_gemv_fast(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const int rows = gemv_words(f) * 8;
	int rc;
	if (s->n % 4 || s->k % 64 || s->k % s->group)
		return err_why(f->why, -EINVAL,
			       "%s has %d outputs and %d inputs; gemv_fast packs 4 x 64, in groups of %d",
			       f->l->name, s->n, s->k, s->group);
	c->minimums = true;
	s->scale_n = 1;
	s->scale_g = (size_t)s->n;
	enum codes_float zeros;
	if ((rc = quant_need(f, "qweight", ST_I16, s->n / 4, s->k, &s->q)) ||
	    (rc = quant_need(f, "qzeros", ST_F16, rows, s->n, &s->zeros)) ||
	    (rc = quant_check_floats(f, quant_look(f->files, f->l->name, "qzeros"), QUANT_SCALE_F16,
				     &zeros)) ||
	    (rc = need_scales(f, "scales", rows, s->n, &c->d_type)))
		return rc;
	if (c->d_type != zeros)
		c->d_type = CODES_F32; /* F32 holds both types */
	return 0;
}

/* Check weight_shape, two numbers. */
static int check_weight_shape(const struct quant_search *f)
{
	const struct st_tensor *t = quant_look(f->files, f->l->name, "weight_shape");
	int64_t v[2];
	if (!t)
		return 0;
	if ((t->dtype != ST_I64 && t->dtype != ST_I32) || !quant_has_shape(t, 0, 2))
		return err_why(f->why, -EINVAL, "tensor %s must have two integers", t->name);
	for (int i = 0; i < 2; i++) {
		int32_t small;
		if (t->dtype == ST_I64) {
			memcpy(&v[i], (const unsigned char *)t->data + 8 * i, 8);
			continue;
		}
		memcpy(&small, (const unsigned char *)t->data + 4 * i, 4);
		v[i] = small;
	}
	if (v[0] != f->s->n || v[1] != f->s->k)
		return err_why(f->why, -EINVAL,
			       "tensor %s has [%lld, %lld], the configuration needs [%d, %d]", t->name,
			       (long long)v[0], (long long)v[1], f->s->n, f->s->k);
	quant_use(f, t);
	return 0;
}

static int find_packed(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const int64_t words = ((int64_t)s->k * s->bits + 31) / 32;
	int rc;
	if ((rc = check_weight_shape(f)) ||
	    (rc = quant_need(f, "weight_packed", ST_I32, s->n, words, &s->q)) ||
	    (rc = need_scale_grid(f, "weight_scale", f->scheme.block_n, f->groups, &c->d_type)))
		return rc;
	c->zero = 1 << (s->bits - 1);
	if (quant_look(f->files, f->l->name, "weight_zero_point")) {
		const int64_t rows = ((int64_t)s->n * s->bits + 31) / 32;
		c->zero = -1;
		s->zero_words = (size_t)f->groups;
		if ((rc = quant_need(f, "weight_zero_point", ST_I32, rows, f->groups, &s->zeros)))
			return rc;
	}
	return sort_inputs(f, "weight_g_idx", &c->perm);
}

static int find_int8(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const struct st_tensor *zeros = quant_look(f->files, f->l->name, "weight_zero_point");
	int rc;
	if ((rc = quant_need(f, "weight", ST_I8, s->n, s->k, &s->q)) ||
	    (rc = need_scale_grid(f, "weight_scale", f->scheme.block_n, f->groups, &c->d_type)))
		return rc;
	c->zero = 128;
	if (!zeros)
		return sort_inputs(f, "weight_g_idx", &c->perm);
	const int64_t rows = f->scheme.block_n ? s->n : 1;
	const int64_t want[] = {rows, f->groups};
	if (zeros->dtype != ST_I8)
		return err_why(f->why, -EINVAL, "tensor %s is %s; %s needs I8", zeros->name,
			       st_dtype_name(zeros->dtype), name_of(f));
	if ((int64_t)zeros->bytes != rows * f->groups)
		return quant_wrong_shape(f, zeros, want, 2);
	c->zero = -1;
	s->zeros = zeros->data;
	quant_use(f, zeros);
	return sort_inputs(f, "weight_g_idx", &c->perm);
}

/* Refuse NaN weights. */
static int check_e4m3(const struct quant_search *f)
{
	const size_t n = (size_t)f->s->n * (size_t)f->s->k;
	const uint64_t each = 0x0101010101010101;
	uint64_t bad = 0, v;
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		memcpy(&v, f->s->q + i, 8);
		bad |= (v & 0x7f * each) + each;
	}
	for (; i < n; i++)
		bad |= (f->s->q[i] & 0x7fu) + 1;
	return bad & 0x80 * each
		       ? err_why(f->why, -EINVAL, "tensor %s.weight has weights that are NaN", f->l->name)
		       : 0;
}

/* Find a weight_scale in bytes: [N, groups] of E4M3 or E8M0, none of them NaN. */
static int need_byte_scales(struct quant_search *f, enum quant_scale type)
{
	struct quant_stored *s = f->s;
	const bool e4m3 = type == QUANT_SCALE_E4M3;
	if (s->k % s->group)
		return err_why(f->why, -EINVAL, "%s has %d inputs; %s has groups of %d", f->l->name, s->k,
			       name_of(f), s->group);
	const int rc = quant_need(f, "weight_scale", e4m3 ? ST_F8_E4M3 : ST_U8, s->n, f->groups, &s->scales);
	s->scale_type = type;
	s->scale_n = (size_t)f->groups;
	s->scale_g = 1;
	for (size_t i = 0; !rc && i < (size_t)s->n * (size_t)f->groups; i++)
		if (e4m3 ? (s->scales[i] & 127) == 127 : s->scales[i] == 255)
			return err_why(f->why, -EINVAL, "tensor %s.weight_scale: value %zu is not a number",
				       f->l->name, i);
	return rc;
}

static int find_mxfp8(struct quant_search *f, struct codes *c)
{
	int rc = quant_need(f, "weight", ST_F8_E4M3, f->s->n, f->s->k, &f->s->q);
	if (rc || (rc = need_byte_scales(f, QUANT_SCALE_E8M0)))
		return rc;
	f->s->unit = 2;
	c->zero = 0;
	c->table = quant_e4m3;
	c->d_type = CODES_BF16;
	return check_e4m3(f);
}

/* Find the scale of a whole tensor in NVFP4. */
static int need_whole_scale(struct quant_search *f)
{
	static const char *const names[] = {"weight_global_scale", "weight_scale_2"};
	const struct st_tensor *t = NULL;
	for (int i = 0; i < 2; i++) {
		const struct st_tensor *one = quant_look(f->files, f->l->name, names[i]);
		if (one && t)
			return err_why(f->why, -EINVAL, "%s has both a %s and a %s", f->l->name, names[0],
				       names[1]);
		t = one ? one : t;
		f->s->divides |= one && i == 0;
	}
	if (!t)
		return err_why(f->why, -ENOENT, "tensor %s.%s is missing, and so is %s", f->l->name, names[0],
			       names[1]);
	if (t->dtype != ST_F32 || t->bytes != 4)
		return err_why(f->why, -EINVAL, "tensor %s must be one value of F32", t->name);
	memcpy(&f->s->whole, t->data, 4);
	const float most = f->s->divides ? 448 / f->s->whole : 448 * f->s->whole;
	if (!isfinite(most) || !isfinite(f->s->whole) || !(f->s->whole >= 0))
		return err_why(f->why, -EINVAL, "tensor %s is %g, which is no scale", t->name,
			       (double)f->s->whole);
	quant_use(f, t);
	return 0;
}

/* Find a module in NVFP4 or MXFP4. */
static int find_fp4(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const bool nv = s->layout == QUANT_NVFP4;
	const char *part = quant_look(f->files, f->l->name, "weight_packed") ? "weight_packed" : "weight";
	int rc = quant_need(f, part, ST_U8, s->n, s->k / 2, &s->q);
	if (rc || (rc = need_byte_scales(f, nv ? QUANT_SCALE_E4M3 : QUANT_SCALE_E8M0)) ||
	    (nv && (rc = need_whole_scale(f))))
		return rc;
	s->unit = nv ? 0.5f : 1; /* the table has twice the values, E8M0 is read as half */
	c->zero = 0;
	c->table = codes_e2m1;
	c->d_type = nv ? CODES_F32 : CODES_BF16;
	return 0;
}

static int find_fp8(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const bool inverse = quant_look(f->files, f->l->name, "weight_scale_inv") != NULL;
	int rc;
	if ((rc = quant_need(f, "weight", ST_F8_E4M3, s->n, s->k, &s->q)) ||
	    (rc = need_scale_grid(f, inverse ? "weight_scale_inv" : "weight_scale", f->scheme.block_n,
				  f->groups, &c->d_type)))
		return rc;
	c->zero = 0;
	c->table = quant_e4m3;
	return check_e4m3(f);
}

/* ---- entry ---- */

/* Name of a stored type that the bits do not tell; NULL: they do. */
static const char *type_of(enum quant_layout layout)
{
	return layout >= QUANT_MXFP8 && layout <= QUANT_FP4 ? quant_layout_name(layout) : NULL;
}

static int find_as(struct quant_search *f, struct codes *c)
{
	static int (*const find[])(struct quant_search *, struct codes *) = {
		[QUANT_AWQ] = find_awq,
		[QUANT_AWQ_GEMV] = find_gemv,
		[QUANT_AWQ_GEMV_FAST] = find_gemv_fast,
		[QUANT_GPTQ] = find_gptq,
		[QUANT_PACKED] = find_packed,
		[QUANT_INT8] = find_int8,
		[QUANT_FP8] = find_fp8,
		[QUANT_MXFP8] = find_mxfp8,
		[QUANT_NVFP4] = find_fp4,
		[QUANT_MXFP4] = find_fp4,
		[QUANT_NF4] = quant_find_bnb4,
		[QUANT_FP4] = quant_find_bnb4,
		[QUANT_LLM_INT8] = quant_find_llm_int8,
	};
	struct weights_linear *l = f->l;
	const int group = f->scheme.group > 0 && f->scheme.group < l->k ? f->scheme.group : l->k;
	f->groups = (l->k + group - 1) / group;
	*f->s = (struct quant_stored){.layout = f->scheme.layout,
				      .n = l->n,
				      .k = l->k,
				      .bits = f->scheme.bits,
				      .group = group,
				      .less_one = f->q->zeros_less_one,
				      .block_n = 1,
				      .whole = 1,
				      .unit = 1};
	*c = (struct codes){.n = l->n,
			    .k = l->k,
			    .bits = f->scheme.bits,
			    .group = group,
			    .super = group,
			    .zero = -1,
			    .d_type = CODES_F16,
			    .type = type_of(f->scheme.layout),
			    .read = quant_read};
	return find[f->scheme.layout](f, c);
}

/* Check that a module is quantized in one way, and find its rule. */
static int find_rule(const struct safetensors *files, const struct quant *q, const char *module,
		     struct quant_match *out, struct why *why)
{
	static const char *const packed[] = {"qweight", "weight_packed"};
	if (!q->n_schemes)
		return err_why(why, -EINVAL, "%s is quantized, but config.json has no quantization_config",
			       module);
	for (int i = 0; i < 2; i++)
		if (quant_look(files, module, packed[i]) && quant_look(files, module, "weight"))
			return err_why(why, -EINVAL, "%s has both a weight and a %s", module, packed[i]);
	const int rc = quant_rules_find(q->rules, module, out, why);
	if (rc || out->rule != QUANT_RULE_IGNORED)
		return rc;
	return err_why(why, -EINVAL, "%s is quantized, but quantization_config excludes it (\"%s\")", module,
		       out->pattern);
}

int quant_find(const struct safetensors *files, const struct quant *q, struct weights_linear *l,
	       struct quant_found *found, struct why *why)
{
	struct quant_match match;
	struct codes c;
	int first = find_rule(files, q, l->name, &match, why), n_tried = 0;
	if (first)
		return first;
	struct quant_stored *s = xmalloc(sizeof *s + (size_t)l->k * sizeof *s->order);
	for (int i = 0; i < q->n_schemes; i++) {
		struct quant_search f = {.files = files,
					 .q = q,
					 .l = l,
					 .found = found,
					 .scheme = q->schemes[i],
					 .s = s,
					 .why = n_tried ? NULL : why};
		if (match.rule && f.scheme.rule && f.scheme.rule != match.rule)
			continue;
		*found = (struct quant_found){.owned = s};
		const int rc = find_as(&f, &c);
		if (!n_tried++)
			first = rc;
		if (rc)
			continue;
		l->bytes = found->bytes;
		if (l->kind == WEIGHTS_AWQ) {
			found->owned = NULL;
			break;
		}
		l->kind = WEIGHTS_CODES;
		l->w = s->q;
		l->codes = c;
		l->codes.from[0] = s;
		return 0;
	}
	free(s);
	if (l->kind == WEIGHTS_AWQ)
		return 0;
	if (!n_tried)
		return err_why(
			why, -EINVAL,
			"%s is quantized, but its group of quantization_config has no weights (\"%s\")",
			l->name, match.pattern);
	return match.pattern ? err_append(why, first, " (by \"%s\" of quantization_config)", match.pattern)
			     : first;
}
