/* The memory that `quern inspect` predicts for a layer (formats/place/packed.h) equals the memory that the
 * CPU's kernel table takes, in every mode and for every format of weights. */
#include "formats/place/packed.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "formats/gguf.h"
#include "kernels/cpu/cpu.h"

static struct kern_dev *device(enum packed_mode m, enum packed_head head)
{
	static const enum kern_compute modes[] = {[PACKED_F32] = KERN_COMPUTE_F32,
						  [PACKED_BF16] = KERN_COMPUTE_BF16,
						  [PACKED_INT16] = KERN_COMPUTE_INT16,
						  [PACKED_INT8] = KERN_COMPUTE_INT8};
	static const enum kern_head heads[] = {[PACKED_HEAD_MODE] = KERN_HEAD_MODE,
					       [PACKED_HEAD_STORED] = KERN_HEAD_STORED,
					       [PACKED_HEAD_INT8] = KERN_HEAD_INT8};
	struct kern_open_args a = {.index = -1,
				   .compute = modes[m],
				   .head = heads[head],
				   .n_threads = 1,
				   .max_rows = 1,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 1,
				   .max_blocks_per_seq = 1};
	struct kern_dev *d;
	struct why why;
	cr_assert_eq(kern_cpu_ops.open(&d, &a, &why), 0, "%s", why.text);
	cr_assert_str_eq(packed_mode_name(m), kern_compute_name(modes[m]));
	return d;
}

static const uint16_t bias[256];

static const enum kern_dtype dtypes[] = {
	[CONFIG_F32] = KERN_F32, [CONFIG_F16] = KERN_F16, [CONFIG_BF16] = KERN_BF16};

/* Load a layer of these parts and return its bytes. head: NULL if the layer is not the output head. */
static int64_t loaded_as(enum packed_mode m, const enum packed_head *head,
			 const struct weights_linear *const *parts, int n)
{
	struct kern_dev *d = device(m, head ? *head : PACKED_HEAD_MODE);
	struct kern_linear_src src = {.name = parts[0]->name,
				      .k = parts[0]->k,
				      .group = parts[0]->group,
				      .n_parts = n,
				      .head = head};
	struct kern_linear *w;
	struct why why = {""};
	for (int i = 0; i < n; i++) {
		const struct weights_linear *l = parts[i];
		src.parts[i] = (struct kern_linear_part){.dtype = l->kind == WEIGHTS_DENSE ? dtypes[l->dtype]
								  : l->kind == WEIGHTS_AWQ ? KERN_AWQ4
											   : KERN_CODES,
							 .n = l->n,
							 .w = l->kind == WEIGHTS_CODES ? &l->codes : l->w,
							 .qzeros = l->qzeros,
							 .scales = l->scales,
							 .bias = l->bias.data,
							 .bias_dtype = KERN_F16};
	}
	cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &w, &why), 0, "%s", why.text);
	const int64_t bytes = kern_cpu_ops.linear_bytes(w);
	kern_cpu_ops.linear_free(w);
	kern_cpu_ops.close(d);
	return bytes;
}

static int64_t loaded(enum packed_mode m, const struct weights_linear *const *parts, int n)
{
	return loaded_as(m, NULL, parts, n);
}

/* Repeat the check for the output head, with each --head-dtype. */
static void check_head(const struct weights_linear *l, const char *what)
{
	for (int m = 0; m < PACKED_MODES; m++)
		for (int h = PACKED_HEAD_MODE; h <= PACKED_HEAD_INT8; h++) {
			const enum packed_head head = (enum packed_head)h;
			const int64_t want = loaded_as((enum packed_mode)m, &head, &l, 1),
				      got = packed_head_part(l, (enum packed_mode)m, head);
			cr_expect_eq(got, want, "head of %s, %d x %d, %s, %d: %lld, not %lld", what, l->n,
				     l->k, packed_mode_name((enum packed_mode)m), h, (long long)got,
				     (long long)want);
		}
}

static void check_parts(const struct weights_linear *const *parts, int n, const char *what)
{
	for (int m = 0; m < PACKED_MODES; m++) {
		const int64_t want = loaded((enum packed_mode)m, parts, n),
			      got = packed_parts(parts, n, (enum packed_mode)m);
		cr_expect_eq(got, want, "%s, %d x %d, %s: %lld, not %lld", what, parts[0]->n, parts[0]->k,
			     packed_mode_name((enum packed_mode)m), (long long)got, (long long)want);
	}
}

/* Check layers of several shapes; one has a bias. */
static void check(struct weights_linear l, const char *what)
{
	static const int outputs[] = {8, 40, 64, 200};
	for (int i = 0; i < 4; i++) {
		l.n = l.codes.n = outputs[i];
		l.bias = (struct weights_vec){i == 1 ? bias : NULL, CONFIG_F16, l.n};
		check_parts((const struct weights_linear *[]){&l}, 1, what);
		check_head(&l, what);
	}
}

Test(packed, floats)
{
	static const char *const names[] = {"F32", "F16", "BF16"};
	static const enum config_dtype types[] = {CONFIG_F32, CONFIG_F16, CONFIG_BF16};
	void *w = xcalloc(200 * 300, 4);
	for (int t = 0; t < 3; t++)
		for (int k = 100; k <= 300; k += 100)
			check((struct weights_linear){.k = k, .dtype = types[t], .w = w}, names[t]);
	free(w);
}

/* Check an embedding table that is also the output head, and one that is not. */
static void check_table(const struct weights *w, int n, int k, const char *what)
{
	const struct model_config c = {.hidden = k, .n_vocab = n};
	const bool is_head = !w->head.w;
	for (int m = 0; m < PACKED_MODES; m++)
		for (int h = PACKED_HEAD_MODE; h <= PACKED_HEAD_INT8; h++) {
			const struct packed_table got =
				packed_table(w, &c, (enum packed_mode)m, (enum packed_head)h);
			struct kern_dev *d = device((enum packed_mode)m, (enum packed_head)h);
			const struct kern_embed_src src = {w->embed.data, dtypes[w->embed.dtype], n, k,
							   is_head};
			struct kern_embed *e;
			struct why why = {""};
			cr_assert_eq(kern_cpu_ops.embed_load(d, &src, &e, &why), 0, "%s", why.text);
			const int64_t want = kern_cpu_ops.embed_bytes(e);
			cr_expect_eq(got.rows + got.head, want,
				     "%s, head %d, %s, %d: %lld and %lld, not %lld", what, is_head,
				     packed_mode_name((enum packed_mode)m), h, (long long)got.rows,
				     (long long)got.head, (long long)want);
			kern_cpu_ops.embed_free(e);
			kern_cpu_ops.close(d);
		}
}

Test(packed, tables_of_rows)
{
	static const char *const names[] = {"F32", "F16", "BF16"};
	static const enum config_dtype types[] = {CONFIG_F32, CONFIG_F16, CONFIG_BF16};
	void *table = xcalloc(200 * 320, 4);
	for (int t = 0; t < 3; t++)
		for (int head = 0; head < 2; head++) {
			const struct weights w = {.embed = {table, types[t], 200 * 320},
						  .head = {.w = head ? table : NULL}};
			check_table(&w, 200, 320, names[t]);
		}
	free(table);
}

Test(packed, awq)
{
	void *w = xcalloc(200 * 320, 4);
	for (int k = 64; k <= 320; k += 256)
		for (int group = 32; group <= 128; group *= 2)
			check((struct weights_linear){.k = k,
						      .kind = WEIGHTS_AWQ,
						      .group = group,
						      .w = w,
						      .qzeros = w,
						      .scales = w},
			      "AWQ");
	free(w);
}

Test(packed, types_of_gguf)
{
	static const enum gguf_type types[] = {
		GGUF_TYPE_Q4_0,    GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,  GGUF_TYPE_Q5_1,    GGUF_TYPE_Q8_0,
		GGUF_TYPE_Q2_K,    GGUF_TYPE_Q3_K,   GGUF_TYPE_Q4_K,  GGUF_TYPE_Q5_K,    GGUF_TYPE_Q6_K,
		GGUF_TYPE_IQ4_NL,  GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4, GGUF_TYPE_IQ1_S,   GGUF_TYPE_IQ1_M,
		GGUF_TYPE_IQ2_XXS, GGUF_TYPE_IQ2_XS, GGUF_TYPE_IQ2_S, GGUF_TYPE_IQ3_XXS, GGUF_TYPE_IQ3_S};
	void *w = xcalloc(200 * 512, 2);
	for (size_t t = 0; t < sizeof types / sizeof *types; t++)
		for (int k = 256; k <= 512; k += 256) {
			struct weights_linear l = {.k = k, .kind = WEIGHTS_CODES, .w = w};
			cr_assert(gguf_codes(types[t], 200, k, w, &l.codes));
			check(l, gguf_type_name(types[t]));
		}
	free(w);
}

static float e4m3[256];
static int32_t perm[384];

static void read_zeros(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const size_t n = (size_t)(n1 - n0), groups = (size_t)codes_groups(c),
		     supers = (size_t)codes_supers(c);
	memset(out->code, 0, n * (size_t)c->k);
	for (size_t i = 0; i < n * groups; i++) {
		out->scale[i] = 1;
		out->offset[i] = (int16_t)(c->zero >= 0 ? c->zero : 1);
	}
	for (size_t i = 0; i < n * supers; i++) {
		out->d[i] = 1;
		if (c->minimums)
			out->dmin[i] = 1;
	}
}

/* Formats of Hugging Face checkpoints: zero points per group or shared, 2 to 8 bits, E4M3, other orders. */
Test(packed, forms_of_codes)
{
	static const struct codes forms[] = {
		{.bits = 4, .group = 128, .super = 128, .zero = -1, .d_type = CODES_F16},
		{.bits = 4, .group = 32, .super = 32, .zero = 8, .d_type = CODES_F16},
		{.bits = 4, .group = 384, .super = 384, .zero = 8, .d_type = CODES_BF16},
		{.bits = 3, .group = 64, .super = 64, .zero = -1, .d_type = CODES_F16},
		{.bits = 2, .group = 64, .super = 64, .zero = -1, .d_type = CODES_F32},
		{.bits = 8, .group = 128, .super = 128, .zero = -1, .d_type = CODES_F16},
		{.bits = 8, .group = 384, .super = 384, .zero = 128, .d_type = CODES_F32},
		{.bits = 8, .group = 40, .super = 40, .zero = 128, .d_type = CODES_F16},
		{.bits = 6, .group = 20, .super = 20, .zero = 32, .d_type = CODES_F16},
		{.bits = 4, .group = 64, .super = 64, .zero = -1, .minimums = true, .d_type = CODES_F16},
		{.bits = 4, .group = 512, .super = 512, .zero = 8, .d_type = CODES_F16},
		{.bits = 8, .group = 128, .super = 128, .table = e4m3, .d_type = CODES_F32},
		{.bits = 8, .group = 384, .super = 384, .table = e4m3, .d_type = CODES_F16},
	};
	for (int i = 0; i < 256; i++)
		e4m3[i] = (float)((i < 128 ? 1 : -1) *
				  ldexp((i & 7) / 8.0 + !!(i & 120), (i & 120 ? i >> 3 & 15 : 1) - 7));
	for (int i = 0; i < 384; i++)
		perm[i] = 383 - i;
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
		for (int order = 0; order < 2; order++) {
			struct weights_linear l = {.k = 384, .kind = WEIGHTS_CODES, .codes = forms[i]};
			char what[32];
			l.codes.k = 384;
			l.codes.group = l.codes.group < 384 ? l.codes.group : 384;
			l.codes.super = l.codes.group;
			l.codes.perm = order ? perm : NULL;
			l.codes.read = read_zeros;
			snprintf(what, sizeof what, "form %zu%s", i, order ? ", ordered" : "");
			check(l, what);
		}
}

Test(packed, an_order_is_held_once_where_parts_share_it)
{
	static int32_t other[384];
	struct weights_linear a = {.n = 40,
				   .k = 384,
				   .kind = WEIGHTS_CODES,
				   .codes = {.n = 40,
					     .k = 384,
					     .bits = 4,
					     .group = 128,
					     .super = 128,
					     .zero = 8,
					     .d_type = CODES_F16,
					     .perm = perm,
					     .read = read_zeros}};
	for (int i = 0; i < 384; i++) {
		perm[i] = 383 - i;
		other[i] = (i + 1) % 384;
	}
	struct weights_linear b = a, c = a;
	b.codes.perm = other;
	c.codes.perm = NULL;
	check_parts((const struct weights_linear *[]){&a, &a, &a}, 3, "one order");
	check_parts((const struct weights_linear *[]){&a, &b}, 2, "two orders");
	check_parts((const struct weights_linear *[]){&a, &c}, 2, "an order and none");
	check_parts((const struct weights_linear *[]){&c, &a}, 2, "none and an order");
}
