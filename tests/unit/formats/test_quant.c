/* Quantized checkpoints in Hugging Face layout: weights equal those of the packages that write them
 * (tests/golden/quant.json); unsupported ones are refused by name. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "formats/quant.h"
#include "formats/safetensors.h"
#include "formats/shard.h"
#include "formats/weights.h"
#include "tests/driver.h"
#include "tests/unit/formats/quant_layer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(quant, .timeout = 120);

/* ---- whole models ---- */

static uint32_t crc32_of(const void *p, size_t n)
{
	static uint32_t table[256];
	const unsigned char *b = p;
	uint32_t crc = ~0u;
	for (uint32_t i = 0; i < 256 && !table[255]; i++) {
		uint32_t v = i;
		for (int j = 0; j < 8; j++)
			v = v & 1 ? v >> 1 ^ 0xedb88320 : v >> 1;
		table[i] = v;
	}
	for (size_t i = 0; i < n; i++)
		crc = crc >> 8 ^ table[(crc ^ b[i]) & 255];
	return ~crc;
}

static int check_layer(const struct weights_linear *l, const json_t *tensors, const char *model)
{
	const json_t *crc = json_object_get(tensors, l->name);
	if (!l->w)
		return 0;
	cr_expect_eq(crc != NULL, l->kind != WEIGHTS_DENSE, "%s: %s", model, l->name);
	if (!crc || l->kind == WEIGHTS_DENSE)
		return 0;
	/* A part of a tensor: the parts are adjacent in it, and the first one reads all. */
	struct weights_linear whole = *l;
	whole.codes = l->kind == WEIGHTS_CODES ? *codes_whole(&l->codes) : l->codes;
	if (l->kind == WEIGHTS_CODES)
		whole.n = whole.codes.n;
	float *w = floats_of(&whole);
	const uint32_t have = crc32_of(w, (size_t)whole.n * (size_t)whole.k * sizeof *w);
	cr_expect_eq(have, (uint32_t)json_integer_value(crc), "%s: the weights of %s differ", model, l->name);
	free(w);
	return l->kind != WEIGHTS_CODES || l->codes.n == whole.n || l->codes.n0 == 0;
}

static json_t *golden_of(const char *file)
{
	json_t *all = NULL;
	cr_assert_eq(json_read(repofile(file), 4 << 20, &all, &why), 0, "%s", why.text);
	return all;
}

static json_t *golden(void)
{
	return golden_of("tests/golden/quant.json");
}

static const struct weights_linear *linear_at(const struct weights_layer *l, int j)
{
	const struct weights_linear *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
	return all[j];
}
enum { LINEARS = 7 };

/* Count the scales of quantized activations, which are not used. */
static int n_input_scales(const struct weights *w)
{
	int n = 0;
	for (int i = 0; i < w->files.n_tensors; i++) {
		struct weights_tensor t;
		w->files.tensor(w->files.at, i, &t);
		n += strstr(t.name, ".input_scale") != NULL;
	}
	return n;
}

/* Check all layers of a model; every tensor of the package must be present. */
static void check_model(const json_t *c, const char *path,
			int (*check)(const struct weights_linear *l, const json_t *tensors,
				     const char *model),
			const char *embedding)
{
	const json_t *tensors = json_get(c, "tensors");
	const char *name = json_string_value(json_get(c, "name"));
	struct model_config config;
	struct weights *w;
	if (!path)
		cr_skip_test("tiny models need Python with numpy");
	cr_assert_eq(model_config_load(path, &config, &why), 0, "%s", why.text);
	cr_assert_eq(weights_open(path, &config, &w, &why), 0, "%s", why.text);
	struct weights_linear embed = w->embed_codes;
	if (!embed.w)
		embed = (struct weights_linear){
			.n = config.n_vocab, .k = config.hidden, .w = w->embed.data, .dtype = w->embed.dtype};
	int n = check(&w->head, tensors, name);
	if (embedding) {
		snprintf(embed.name, sizeof embed.name, "%s", embedding);
		const int once = check(&embed, tensors, name);
		n += w->head.w && strcmp(w->head.name, embedding) == 0 ? 0 : once; /* counted as the head */
	}
	for (int k = 0; k < w->n_layers; k++) {
		const struct weights_layer *l = &w->layers[k];
		for (int j = 0; j < LINEARS; j++)
			n += check(linear_at(l, j), tensors, name);
		for (int e = 0; e < l->n_experts; e++)
			n += check(&l->experts[e].gate, tensors, name) +
			     check(&l->experts[e].up, tensors, name) +
			     check(&l->experts[e].down, tensors, name);
	}
	cr_expect_eq(n, (int)json_object_size(tensors), "%s: %d", name, n);
	cr_expect_eq(w->n_unused, n_input_scales(w), "%s", name);
	weights_close(w);
	model_config_fini(&config);
}

Test(quant, weights_are_those_of_the_packages_bit_for_bit)
{
	static const char *const files[] = {"tests/golden/quant.json", "tests/golden/quant_forms.json"};
	for (int f = 0; f < 2; f++) {
		json_t *all = golden_of(files[f]);
		cr_expect_geq(json_array_size(all), f ? 111 : 30);
		/* Each format exists in three families; check only one of them, as test_model.c does. */
		for (size_t i = 0; i < json_array_size(all); i++) {
			const json_t *c = json_array_get(all, i);
			if (!f || getenv("QUERN_TEST_LONG") || i % 3 == i / 3 % 3)
				check_model(c, tiny_model(json_string_value(json_get(c, "name"))),
					    check_layer, NULL);
		}
		json_decref(all);
	}
}

/* Check a matrix of a GGUF file, quantized or not. */
static int check_gguf_layer(const struct weights_linear *l, const json_t *tensors, const char *model)
{
	const json_t *crc = json_object_get(tensors, l->name);
	const size_t n = (size_t)l->n * (size_t)l->k;
	if (!l->w || (!crc && strcmp(l->name, "output") == 0)) /* tied */
		return 0;
	cr_assert_not_null(crc, "%s: %s", model, l->name);
	float *w = xmalloc(n * sizeof *w);
	if (l->kind == WEIGHTS_CODES)
		codes_floats(&l->codes, 0, l->n, w);
	else
		weights_to_f32(&(struct weights_vec){l->w, l->dtype, (int)n}, w);
	cr_expect_eq(crc32_of(w, n * sizeof *w), (uint32_t)json_integer_value(crc), "%s: %s", model, l->name);
	free(w);
	return 1;
}

Test(quant, files_of_gguf_are_those_of_the_package_bit_for_bit)
{
	json_t *all = golden_of("tests/golden/gguf_models.json");
	cr_expect_eq(json_array_size(all), 69);
	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *c = json_array_get(all, i);
		if (getenv("QUERN_TEST_LONG") || i % 3 == i / 3 % 3)
			check_model(c, tiny_gguf(json_string_value(json_get(c, "name"))), check_gguf_layer,
				    "token_embd");
	}
	json_decref(all);
}

/* ---- truncated files ---- */

Test(quant, a_file_that_was_cut_names_the_file_the_tensor_and_the_byte)
{
	static const char *const names[] = {"qwen3-w4a16",     "llama-w8a8",    "llama-fp8-channel",
					    "qwen3-gptq4-act", "qwen3-awq-g32", "qwen3-nvfp4",
					    "qwen3-nf4"};
	char dir[] = "/tmp/quern-quant-cut-XXXXXX", part[64];
	cr_assert(mkdtemp(dir));
	char *path = file_join(dir, "model.safetensors");
	for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
		const char *model = tiny_model(names[k]);
		struct model_config c;
		struct weights *w;
		size_t n;
		char *data;
		if (!model)
			cr_skip_test("tiny models need Python with numpy");
		cr_assert_eq(model_config_load(model, &c, &why), 0, "%s", why.text);
		char *whole = file_join(model, "model.safetensors");
		cr_assert_eq(file_read(whole, 1 << 24, &data, &n, &why), 0, "%s", why.text);
		const size_t head = 8 + (size_t)(unsigned char)data[0] + 256 * (size_t)(unsigned char)data[1];
		for (size_t i = 0; i < 64; i++) {
			const size_t cut = n * i / 64;
			FILE *f = fopen(path, "wb");
			cr_assert(fwrite(data, 1, cut, f) == cut && fclose(f) == 0);
			cr_assert_neq(weights_open(dir, &c, &w, &why), 0, "%s: %zu", names[k], cut);
			snprintf(part, sizeof part, cut > head ? "end at byte %zu;" : "%zu bytes", cut);
			cr_expect(strstr(why.text, path) && strstr(why.text, part) &&
					  strstr(why.text, "interrupted?") &&
					  (cut <= head || strstr(why.text, "tensor ")),
				  "cut at %zu: %s", cut, why.text);
		}
		model_config_fini(&c);
		free(whole);
		free(data);
	}
	unlink(path);
	rmdir(dir);
	free(path);
}

Test(quant, a_gguf_file_that_was_cut_names_the_file_and_the_tensor)
{
	static const char *const names[] = {"llama-IQ1_S", "qwen2-IQ1_M",   "qwen3-IQ2_XXS", "llama-IQ2_XS",
					    "qwen2-IQ2_S", "qwen3-IQ3_XXS", "llama-IQ3_S"};
	char dir[] = "/tmp/quern-gguf-cut-XXXXXX";
	cr_assert(mkdtemp(dir));
	char *path = file_join(dir, "model.gguf");
	for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
		const char *model = tiny_gguf(names[k]);
		struct gguf *g;
		size_t n;
		char *data;
		if (!model)
			cr_skip_test("tiny models need Python with numpy");
		cr_assert_eq(file_read(model, 1 << 24, &data, &n, &why), 0, "%s", why.text);
		for (size_t i = 0; i < 32; i++) {
			const size_t cut = n - 64 - i * (n / 40); /* the last tensor's end may be padding */
			FILE *f = fopen(path, "wb");
			cr_assert(fwrite(data, 1, cut, f) == cut && fclose(f) == 0);
			cr_assert_neq(gguf_open(path, &g, &why), 0, "%s: %zu", names[k], cut);
			cr_expect(strstr(why.text, path) && strstr(why.text, "tensor "), "cut at %zu: %s",
				  cut, why.text);
		}
		free(data);
	}
	unlink(path);
	rmdir(dir);
	free(path);
}

/* Check a rank's parts of q and down, with two ranks if possible. */
Test(quant, ranks_have_the_parts_of_the_whole)
{
	json_t *all = golden();
	int n_cut = 0;
	for (size_t i = 0; i < json_array_size(all); i++) {
		const char *name = json_string_value(json_get(json_array_get(all, i), "name")),
			   *dir = tiny_model(name);
		struct model_config config;
		struct weights *w;
		struct shard s;
		if (!dir)
			cr_skip_test("tiny models need Python with numpy");
		cr_assert_eq(model_config_load(dir, &config, &why), 0, "%s", why.text);
		cr_assert_eq(weights_open(dir, &config, &w, &why), 0, "%s", why.text);
		const int rc = shard_init(&s, &config, w, (struct shard_rank){1, 2, false}, &why);
		if (rc && w->layers[0].down.kind == WEIGHTS_CODES && w->layers[0].down.codes.perm)
			cr_expect(strstr(why.text, "order of its own"), "%s", why.text);
		for (int down = 0; !rc && down < 2; down++) {
			const struct weights_linear *whole = down ? &w->layers[0].down : &w->layers[0].q;
			struct weights_linear part;
			void *copy;
			if (whole->kind == WEIGHTS_DENSE)
				continue;
			const struct config_layer plan = shard_layer(&s, &config.layers[0]);
			shard_linear(&s, whole, shard_cut(&s, &plan, down ? SHARD_DOWN : SHARD_Q, whole),
				     &part, &copy);
			float *a = floats_of(whole), *b = floats_of(&part);
			const int n0 = down ? 0 : whole->n / 2, k0 = down ? whole->k / 2 : 0;
			for (int n = 0; n < part.n; n++)
				cr_expect_arr_eq(b + (size_t)n * (size_t)part.k,
						 a + (size_t)(n0 + n) * (size_t)whole->k + k0,
						 (size_t)part.k * sizeof *a, "%s: %s, output %d", name,
						 part.name, n);
			n_cut++;
			free(a);
			free(b);
			free(copy);
		}
		weights_close(w);
		model_config_fini(&config);
	}
	cr_expect_geq(n_cut, 20);
	json_decref(all);
}

/* ---- single layers ---- */

static const struct quant gptq4 = {"GPTQ", .zeros_less_one = true, .n_schemes = 1,
				   .schemes = {{QUANT_GPTQ, 4, 32, 1, 0}}};
static const struct quant packed4 = {"pack-quantized", .n_schemes = 1,
				     .schemes = {{QUANT_PACKED, 4, 32, 1, 0}}};
static const struct quant fp8 = {"FP8", .n_schemes = 1, .schemes = {{QUANT_FP8, 8, 128, 128, 0}}};

/* A GPTQ layer of 8 outputs and 64 inputs in two groups. */
enum { QW, QZ, SC, GI, GPTQ_TENSORS };
static void gptq_layer(struct tensor t[TENSORS], const int32_t *g_idx)
{
	memset(t, 0, TENSORS * sizeof *t);
	t[QW] = (struct tensor){"qweight", "I32", 8, 8, NULL};
	t[QZ] = (struct tensor){"qzeros", "I32", 2, 1, NULL};
	t[SC] = (struct tensor){"scales", "F16", 2, 8, NULL};
	if (g_idx)
		t[GI] = (struct tensor){"g_idx", "I32", 0, 64, g_idx};
}

Test(quant, zero_scales_give_zero_weights)
{
	struct tensor t[TENSORS];
	gptq_layer(t, NULL);
	cr_assert_eq(find(&gptq4, 8, 64, t), 0, "%s", why.text);
	float *w = floats_of(&layer);
	for (int i = 0; i < 8 * 64; i++)
		cr_expect_eq(w[i], 0);
	cr_expect_eq(layer.bytes, 8 * 8 * 4 + 2 * 4 + 2 * 8 * 2);
	cr_expect_eq(layer.codes.d_type, CODES_F16);
	free(w);
	done();
}

Test(quant, a_zero_of_format_gptq_wraps_and_one_of_v2_does_not)
{
	const uint32_t zeros[2] = {0xffffffff, 0x77777777};
	uint16_t ones[16];
	struct tensor t[TENSORS];
	struct quant v2 = gptq4;
	gptq_layer(t, NULL);
	for (int i = 0; i < 16; i++)
		ones[i] = 0x3c00;
	t[QZ].data = zeros;
	t[SC].data = ones;
	cr_assert_eq(find(&gptq4, 8, 64, t), 0, "%s", why.text);
	float *w = floats_of(&layer);
	cr_expect(w[0] == 0 && w[63] == -8, "%g %g", (double)w[0], (double)w[63]);
	free(w);
	done();
	v2.zeros_less_one = false;
	cr_assert_eq(find(&v2, 8, 64, t), 0, "%s", why.text);
	w = floats_of(&layer);
	cr_expect(w[0] == -15 && w[63] == -7, "%g %g", (double)w[0], (double)w[63]);
	free(w);
	done();
}

Test(quant, inputs_out_of_order_are_sorted_by_their_groups)
{
	int32_t g_idx[64];
	struct tensor t[TENSORS];
	for (int i = 0; i < 64; i++)
		g_idx[i] = i % 2;
	gptq_layer(t, g_idx);
	cr_assert_eq(find(&gptq4, 8, 64, t), 0, "%s", why.text);
	cr_assert(layer.codes.perm);
	for (int i = 0; i < 64; i++)
		cr_expect_eq(layer.codes.perm[i], i < 32 ? 2 * i : 2 * (i - 32) + 1);
	done();
	for (int i = 0; i < 64; i++)
		g_idx[i] = i / 32;
	cr_assert_eq(find(&gptq4, 8, 64, t), 0, "%s", why.text);
	cr_expect_null(layer.codes.perm);
	done();
}

Test(quant, a_wrong_g_idx_is_refused)
{
	int32_t g_idx[64] = {0};
	struct tensor t[TENSORS];
	gptq_layer(t, g_idx);
	refused(&gptq4, 8, 64, t, -EINVAL, "m.g_idx: more than 32 inputs are in group 0");
	g_idx[3] = 2;
	refused(&gptq4, 8, 64, t, -EINVAL, "m.g_idx: input 3 is in group 2 of 2");
	g_idx[3] = -1;
	refused(&gptq4, 8, 64, t, -EINVAL, "m.g_idx: input 3 is in group -1 of 2");
	t[GI].cols = 63;
	refused(&gptq4, 8, 64, t, -EINVAL, "m.g_idx has the shape [63]");
}

Test(quant, missing_and_misshapen_tensors_are_named)
{
	struct tensor t[TENSORS];
	gptq_layer(t, NULL);
	t[QW].rows = 16;
	refused(&gptq4, 8, 64, t, -EINVAL, "m.qweight has the shape [16, 8], the configuration needs [8, 8]");
	gptq_layer(t, NULL);
	t[SC].dtype = "I16";
	refused(&gptq4, 8, 64, t, -EINVAL, "m.scales is I16");
	gptq_layer(t, NULL);
	t[SC].part = "other";
	refused(&gptq4, 8, 64, t, -ENOENT, "m.scales is missing");
	gptq_layer(t, NULL);
	t[QZ].part = "other";
	refused(&gptq4, 8, 64, t, -ENOENT, "m.qzeros is missing");
	gptq_layer(t, NULL);
	t[GI] = (struct tensor){"weight", "F16", 8, 64, NULL};
	refused(&gptq4, 8, 64, t, -EINVAL, "both a weight and a qweight");
	gptq_layer(t, NULL);
	refused(&gptq4, 7, 64, t, -EINVAL, "7 outputs");
	refused(&gptq4, 8, 60, t, -EINVAL, "60 inputs");
	refused(&(struct quant){0}, 8, 64, t, -EINVAL, "no quantization_config");
}

Test(quant, scales_that_are_not_finite_are_refused)
{
	const uint16_t nan[16] = {0x3c00, 0x7e00};
	const float inf[16] = {1, 2, INFINITY};
	struct tensor t[TENSORS];
	gptq_layer(t, NULL);
	t[SC].data = nan;
	refused(&gptq4, 8, 64, t, -EINVAL, "m.scales: value 1 is not a finite number");
	t[SC] = (struct tensor){"scales", "F32", 2, 8, inf};
	refused(&gptq4, 8, 64, t, -EINVAL, "m.scales: value 2 is not a finite number");
}

Test(quant, scales_that_f16_has_are_f16_and_others_are_not)
{
	static const struct {
		float value;
		bool fits;
	} cases[] = {{1, true},
		     {65504, true},
		     {65536, false},
		     {5.9604645e-8f, true},
		     {2.9802322e-8f, false},
		     {-0.0009765625f, true},
		     {1.0009765625f, true},
		     {1.00048828125f, false},
		     {6.1e-5f, false},
		     {9.1552734375e-5f, true},
		     {6.103515625e-5f + 5.9604645e-8f, true},
		     {3.0517578125e-5f + 2.9802322e-8f, false}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		float scales[16];
		struct tensor t[TENSORS];
		for (int j = 0; j < 16; j++)
			scales[j] = j == 5 ? cases[i].value : 1;
		gptq_layer(t, NULL);
		t[SC] = (struct tensor){"scales", "F32", 2, 8, scales};
		cr_assert_eq(find(&gptq4, 8, 64, t), 0, "%s", why.text);
		cr_expect_eq(layer.codes.d_type, cases[i].fits ? CODES_F16 : CODES_F32, "%g",
			     (double)cases[i].value);
		done();
	}
}

Test(quant, weight_shape_must_be_the_layers)
{
	const int64_t good[2] = {9, 64}, bad[2] = {9, 65};
	struct tensor t[TENSORS] = {{"weight_packed", "I32", 9, 8, NULL},
				    {"weight_scale", "BF16", 9, 2, NULL},
				    {"weight_shape", "I64", 0, 2, good}};
	cr_assert_eq(find(&packed4, 9, 64, t), 0, "%s", why.text);
	cr_expect_eq(layer.codes.zero, 8);
	done();
	t[2].data = bad;
	refused(&packed4, 9, 64, t, -EINVAL, "m.weight_shape has [9, 65], the configuration needs [9, 64]");
	t[2] = (struct tensor){"weight_zero_point", "I32", 1, 2, NULL};
	refused(&packed4, 9, 64, t, -EINVAL,
		"m.weight_zero_point has the shape [1, 2], the configuration needs [2, 2]");
}

Test(quant, a_last_group_may_be_smaller)
{
	struct tensor t[TENSORS] = {{"weight_packed", "I32", 3, 6, NULL},
				    {"weight_scale", "F32", 3, 2, NULL}};
	cr_assert_eq(find(&packed4, 3, 45, t), 0, "%s", why.text);
	cr_expect_eq(codes_groups(&layer.codes), 2);
	float *w = floats_of(&layer);
	free(w);
	done();
}

/* The kernels take q, k and v as AWQ only with one group size. */
Test(quant, awq_of_a_second_group_size_is_read_as_codes)
{
	static const struct quant awq = {
		"AWQ", .n_schemes = 3,
		.schemes = {{QUANT_AWQ, 8, 16, 1, 0}, {QUANT_AWQ, 4, 64, 1, 0}, {QUANT_AWQ, 4, 32, 1, 0}}};
	uint16_t scales[16];
	uint32_t words[64];
	for (int i = 0; i < 16; i++)
		scales[i] = i < 8 ? 0x3c00 : 0x4000;
	memset(words, 0x33, sizeof words);
	struct tensor t[TENSORS] = {{"qweight", "I32", 64, 1, words},
				    {"qzeros", "I32", 1, 1, NULL},
				    {"scales", "F16", 1, 8, scales}};
	cr_assert_eq(find(&awq, 8, 64, t), 0, "%s", why.text);
	cr_expect(layer.kind == WEIGHTS_AWQ && layer.group == 64);
	done();
	t[1].rows = t[2].rows = 2;
	cr_assert_eq(find(&awq, 8, 64, t), 0, "%s", why.text);
	cr_assert(layer.kind == WEIGHTS_CODES && layer.codes.group == 32);
	float *w = floats_of(&layer);
	for (int i = 0; i < 8 * 64; i++)
		cr_expect_eq(w[i], i % 64 < 32 ? 3 : 6);
	free(w);
	done();
}

/* Zeros in F16, stored next to the scales. */
Test(quant, zeros_of_gemv_fast_are_finite_and_of_a_type_with_the_scales)
{
	static const struct quant fast = {"AWQ", .n_schemes = 1,
					  .schemes = {{QUANT_AWQ_GEMV_FAST, 4, 128, 1, 0}}};
	uint16_t zeros[32] = {[9] = 0x3c01}, scales[32];
	struct tensor t[TENSORS] = {{"qweight", "I16", 1, 128, NULL},
				    {"qzeros", "F16", 8, 4, zeros},
				    {"scales", "BF16", 8, 4, scales}};
	for (int i = 0; i < 32; i++)
		scales[i] = 0x3f80;
	cr_assert_eq(find(&fast, 4, 128, t), 0, "%s", why.text);
	cr_expect_eq(layer.codes.d_type, CODES_F16);
	done();
	scales[7] = 0x7f00;
	cr_assert_eq(find(&fast, 4, 128, t), 0, "%s", why.text);
	cr_expect_eq(layer.codes.d_type, CODES_F32);
	done();
	zeros[11] = 0x7c00;
	refused(&fast, 4, 128, t, -EINVAL, "m.qzeros: value 11 is not a finite number");
}

Test(quant, fp8_weights_that_are_nan_are_refused)
{
	unsigned char w[3 * 8] = {0};
	struct tensor t[TENSORS] = {{"weight", "F8_E4M3", 3, 8, w}, {"weight_scale_inv", "F32", 1, 1, NULL}};
	cr_assert_eq(find(&fp8, 3, 8, t), 0, "%s", why.text);
	done();
	for (int i = 0; i < 24; i++)
		for (int sign = 0; sign < 256; sign += 128) {
			memset(w, 0x7e, sizeof w);
			w[i] = (unsigned char)(0x7f | sign);
			refused(&fp8, 3, 8, t, -EINVAL, "m.weight has weights that are NaN");
		}
	memset(w, 0xfe, sizeof w);
	t[0].dtype = "F8_E5M2";
	refused(&fp8, 3, 8, t, -EINVAL, "m.weight is F8_E5M2; FP8 needs F8_E4M3");
}

Test(quant, e4m3_has_its_values)
{
	cr_expect(quant_e4m3[0x38] == 1 && quant_e4m3[0xb8] == -1 && quant_e4m3[0x7e] == 448);
	cr_expect(quant_e4m3[1] == 0x1p-9f && quant_e4m3[8] == 0x1p-6f && quant_e4m3[7] == 7 * 0x1p-9f);
	cr_expect(quant_e4m3[0x80] == 0 && signbit(quant_e4m3[0x80]) && isnan(quant_e4m3[0x7f]) &&
		  isnan(quant_e4m3[0xff]));
	for (int i = 1; i < 0x7f; i++)
		cr_expect(quant_e4m3[i] > quant_e4m3[i - 1] && quant_e4m3[128 + i] == -quant_e4m3[i]);
}

/* ---- config.json ---- */

Test(quant, methods_and_their_options_are_read)
{
	struct quant q = {0};
	cr_assert_eq(
		read_config("{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 64, \"lm_head\": true,"
			    "\"dynamic\": {\"-:.*o_proj\": {}, \"+:.*down\": {\"bits\": 8}, \"up\": "
			    "{\"group_size\": 32}}}",
			    &q),
		0, "%s", why.text);
	cr_expect(q.schemes[0].layout == QUANT_GPTQ && q.zeros_less_one && q.n_schemes == 3);
	cr_expect(q.schemes[1].bits == 8 && q.schemes[1].group == 64 && q.schemes[2].group == 32);
	cr_assert_eq(
		read_config("{\"quant_method\": \"gptq\", \"bits\": 3, \"checkpoint_format\": \"gptq_v2\"}",
			    &q),
		0);
	cr_expect(!q.zeros_less_one && q.schemes[0].group == 128);
	cr_assert_eq(read_config("{\"quant_method\": \"auto-round\", \"bits\": 4, \"packing_format\": "
				 "\"auto_round:auto_awq\", \"extra_config\": {\"x\": {\"bits\": 16}, \"y\": "
				 "{\"bits\": 8}}}",
				 &q),
		     0, "%s", why.text);
	cr_expect(q.schemes[0].layout == QUANT_AWQ && q.n_schemes == 2);
	cr_assert_eq(read_config("{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 64]}", &q), 0,
		     "%s", why.text);
	cr_expect(q.n_schemes == 1 && q.schemes[0].block_n == 128 && q.schemes[0].group == 64 &&
		  q.own_activations);
	cr_assert_eq(read_config("{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\"}", &q), 0,
		     "%s", why.text);
	cr_expect(q.n_schemes == 2 && q.schemes[0].block_n == 1 && q.schemes[1].block_n == 0);
	quant_fini(&q);
}

Test(quant, compressed_tensors_are_read)
{
	struct quant q = {0};
	cr_assert_eq(
		read_config(
			"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\","
			"\"ignore\": [\"re:.*gate\", \"lm_head\"], \"kv_cache_scheme\": {\"num_bits\": 8},"
			"\"config_groups\": {\"a\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": "
			"4,"
			"\"type\": \"int\", \"strategy\": \"group\", \"group_size\": 32}}, \"b\": "
			"{\"weights\":"
			"{\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\"}, "
			"\"input_activations\":"
			"{\"num_bits\": 8}}}}",
			&q),
		0, "%s", why.text);
	cr_expect(q.schemes[0].layout == QUANT_PACKED && q.own_kv_cache && q.own_activations);
	cr_expect(q.schemes[0].group == 32 && q.schemes[1].bits == 8 && q.schemes[1].group == -1);
	quant_fini(&q);
}

Test(quant, a_method_that_is_not_named_follows_from_its_keys)
{
	static const struct {
		const char *text, *name;
		enum quant_layout layout;
	} cases[] = {
		{"{\"bits\": 4, \"group_size\": 128, \"desc_act\": false}", "GPTQ", QUANT_GPTQ},
		{"{\"bits\": 4, \"group_size\": 64, \"damp_percent\": 0.01, \"sym\": true, "
		 "\"true_sequential\": true, "
		 "\"model_name_or_path\": null}",
		 "GPTQ", QUANT_GPTQ},
		{"{\"w_bit\": 4, \"q_group_size\": 128, \"zero_point\": true, \"version\": \"GEMM\"}", "AWQ",
		 QUANT_AWQ},
		{"{\"bits\": 4, \"group_size\": 128, \"zero_point\": true, \"version\": \"gemv\"}", "AWQ",
		 QUANT_AWQ_GEMV},
		{"{\"weight_block_size\": [128, 128], \"fmt\": \"e4m3\"}", "FP8", QUANT_FP8},
		{"{\"quant_method\": \"GPTQ\", \"bits\": 4}", "GPTQ", QUANT_GPTQ},
		{"{\"quant_method\": \"auto_round\", \"bits\": 4, \"packing_format\": "
		 "\"auto_round:auto_gptq\"}",
		 "AutoRound", QUANT_GPTQ},
	};
	struct quant q = {0};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cr_assert_eq(read_config(cases[i].text, &q), 0, "%s: %s", cases[i].text, why.text);
		cr_expect(q.schemes[0].layout == cases[i].layout && q.n_schemes > 0, "%s", cases[i].text);
		cr_expect_str_eq(q.name, cases[i].name);
	}
	quant_fini(&q);
}

Test(quant, blocks_are_lists_or_texts)
{
	static const char *const good[] = {"[128, 64]", "\"128x64\"", "\"128 x 64\"", "\"128X64\""};
	static const char *const bad[] = {"\"128\"",
					  "\"128x\"",
					  "\"x64\"",
					  "\"128x64x2\"",
					  "\"-128x64\"",
					  "\"128x63\"",
					  "\"99999999999999999999x64\"",
					  "\"\"",
					  "128",
					  "{}"};
	char text[256];
	struct quant q = {0};
	for (int where = 0; where < 2; where++) {
		const char *form =
			where ? "{\"quant_method\": \"fp8\", \"weight_block_size\": %s}"
			      : "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
				"\"ignore\": [\"re:.*lm_head\"], \"config_groups\": {\"group_0\": "
				"{\"weights\": "
				"{\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"block\", "
				"\"block_structure\": %s}}}}";
		for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
			snprintf(text, sizeof text, form, good[i]);
			cr_assert_eq(read_config(text, &q), 0, "%s: %s", text, why.text);
			cr_expect(q.n_schemes == 1 && q.schemes[0].block_n == 128 && q.schemes[0].group == 64,
				  "%s", text);
		}
		for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
			snprintf(text, sizeof text, form, bad[i]);
			cr_expect_eq(read_config(text, &q), -EINVAL, "%s", text);
			cr_expect(strstr(why.text, "two sizes"), "%s", why.text);
		}
	}
	quant_fini(&q);
}

Test(quant, what_is_not_supported_is_named)
{
#define CT(format, weights, more)                                                                            \
	"{\"quant_method\": \"compressed-tensors\", \"format\": \"" format                                   \
	"\", \"config_groups\": {\"group_0\": "                                                              \
	"{\"targets\": [\"Linear\"], \"weights\": " weights "}}" more "}"
#define INT4 "{\"num_bits\": 4, \"type\": \"int\", \"group_size\": 32}"
	config_refused("{\"quant_method\": \"hqq\"}", -ENOTSUP, "method hqq is not supported");
	config_refused("{\"quant_method\": \"exl3\", \"bits\": 4}", -ENOTSUP,
		       "or quantize the original with quern quantize");
	config_refused("{\"quant_method\": \"gptq\"}", -EINVAL, "bits is missing");
	config_refused("{\"quant_method\": \"gptq\", \"bits\": 5}", -ENOTSUP, "GPTQ with 5 bits");
	config_refused("{\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"marlin\"}",
		       -ENOTSUP, "format marlin");
	config_refused("{\"quant_method\": \"gptq\", \"bits\": 4, \"is_marlin_format\": true}", -ENOTSUP,
		       "format marlin");
	config_refused("{\"quant_method\": \"gptq\", \"bits\": 4, \"pack_dtype\": \"int16\"}", -ENOTSUP,
		       "int16");
	config_refused("{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 0}", -EINVAL,
		       "group_size 0");
	config_refused("{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"x\": {\"bits\": 7}}}",
		       -ENOTSUP, "dynamic of x: GPTQ with 7 bits");
	config_refused("{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": []}", -EINVAL,
		       "dynamic must be an object");
	config_refused("{\"quant_method\": \"auto-round\", \"bits\": 4}", -ENOTSUP, "(none named)");
	config_refused("{\"quant_method\": \"auto-round\", \"bits\": 4, \"packing_format\": \"auto_round\","
		       "\"data_type\": \"mx_fp\"}",
		       -ENOTSUP, "mx_fp");
	config_refused("{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"marlin\"}", -ENOTSUP,
		       "version marlin");
	config_refused("{\"quant_method\": \"awq\", \"bits\": 8, \"version\": \"gemv\"}", -ENOTSUP, "8 bits");
	config_refused("{\"quant_method\": \"awq\", \"bits\": 4, \"modules_to_not_convert\": [1]}", -EINVAL,
		       "modules_to_not_convert must be a list of names");
	config_refused("{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}", -ENOTSUP, "e5m2");
	config_refused("{\"quant_method\": \"fp8\", \"weight_block_size\": [128]}", -EINVAL, "two sizes");
	config_refused("{\"quant_method\": \"fp8\", \"weight_block_size\": [0, 128]}", -EINVAL, "two sizes");
	config_refused(CT("nvfp4-pack-quantized", INT4, ""), -ENOTSUP, "nvfp4-pack-quantized");
	config_refused(CT("marlin-24", INT4, ""), -ENOTSUP, "marlin-24");
	config_refused(CT("pack-quantized", "{\"num_bits\": 4, \"type\": \"float\"}", ""), -ENOTSUP,
		       "type float with 4 bits");
	config_refused(CT("pack-quantized", "{\"num_bits\": 1}", ""), -ENOTSUP, "1 bits");
	config_refused(CT("int-quantized", INT4, ""), -ENOTSUP, "4 bits");
	config_refused(CT("pack-quantized", "{\"num_bits\": 4, \"strategy\": \"token\"}", ""), -ENOTSUP,
		       "strategy token");
	config_refused(
		CT("float-quantized", "{\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"block\"}", ""),
		-EINVAL, "block_structure is missing");
	config_refused(
		CT("pack-quantized", INT4, ", \"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}"),
		-ENOTSUP, "sparse-24-bitmask");
	config_refused(CT("pack-quantized", INT4, ", \"transform_config\": {\"config_groups\": {}}"),
		       -ENOTSUP, "transform_config");
	config_refused("{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}", -EINVAL,
		       "config_groups is missing");
	config_refused("{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
		       "\"config_groups\": "
		       "{\"g\": {\"output_activations\": {\"num_bits\": 8}}}}",
		       -ENOTSUP, "config_groups: g: compressed-tensors with output_activations");
}
