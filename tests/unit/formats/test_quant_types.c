/* Types of quantized checkpoints with a table of values: NVFP4, MXFP4, MXFP8, NF4 and LLM.int8;
 * ModelOpt's, bitsandbytes' and mixed configurations; patterns of module names. */
#include "base/file.h"
#include "formats/quant_rules.h"
#include "tests/unit/formats/quant_layer.h"

#include <math.h>
#include <sys/stat.h>

TestSuite(quant_types, .timeout = 120);

static const struct quant nvfp4 = {"NVFP4", .n_schemes = 1, .schemes = {{QUANT_NVFP4, 4, 16, 1, 0}}};
static const struct quant mxfp4 = {"MXFP4", .n_schemes = 1, .schemes = {{QUANT_MXFP4, 4, 32, 1, 0}}};
static const struct quant mxfp8 = {"MXFP8", .n_schemes = 1, .schemes = {{QUANT_MXFP8, 8, 32, 1, 0}}};
static const struct quant nf4 = {"NF4", .n_schemes = 1, .schemes = {{QUANT_NF4, 4, 64, 1, 0}}};
static const struct quant llm_int8 = {"INT8", .n_schemes = 1, .schemes = {{QUANT_LLM_INT8, 8, -1, 1, 0}}};

static const float e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* ---- E2M1 ---- */

/* A layer of 2 outputs and 32 inputs: bytes count up, so that each code is in each half of a byte. */
enum { PACKED, SCALE, WHOLE };
static unsigned char fp4_bytes[32];
static void fp4_layer(struct tensor t[TENSORS], const void *scales, int groups)
{
	for (int i = 0; i < 32; i++)
		fp4_bytes[i] = (unsigned char)(i * 37);
	memset(t, 0, TENSORS * sizeof *t);
	t[PACKED] = (struct tensor){"weight_packed", "U8", 2, 16, fp4_bytes};
	t[SCALE] = (struct tensor){"weight_scale", groups == 2 ? "F8_E4M3" : "U8", 2, groups, scales};
}

static float e2m1_at(int n, int i)
{
	return e2m1[fp4_bytes[n * 16 + i / 2] >> i % 2 * 4 & 15];
}

/* The edges of E4M3: the smallest subnormal, the largest value, zero and a negative scale. */
Test(quant_types, the_scales_of_nvfp4_are_divided_or_multiplied_by_that_of_the_tensor)
{
	static const unsigned char scales[4] = {0x01, 0x7e, 0x00, 0xb8};
	static const float values[4] = {0x1p-9f, 448, 0, -1};
	const float divisor = 0.3f, factor = 0.007f;
	struct tensor t[TENSORS];
	fp4_layer(t, scales, 2);
	for (int multiplied = 0; multiplied < 2; multiplied++) {
		t[WHOLE] = multiplied ? (struct tensor){"weight_scale_2", "F32", -1, 1, &factor}
				      : (struct tensor){"weight_global_scale", "F32", 0, 1, &divisor};
		t[PACKED].part = multiplied ? "weight" : "weight_packed";
		cr_assert_eq(find(&nvfp4, 2, 32, t), 0, "%s", why.text);
		cr_expect_str_eq(layer.codes.type, "NVFP4");
		cr_expect_eq(layer.bytes, 32 + 4 + 4);
		float *w = floats_of(&layer);
		for (int i = 0; i < 64; i++) {
			const float s = values[i / 16], by = multiplied ? s * factor : s / divisor;
			cr_expect_eq(w[i], e2m1_at(i / 32, i % 32) * by, "%d: %g", i, (double)w[i]);
		}
		free(w);
		done();
	}
}

Test(quant_types, wrong_scales_of_nvfp4_are_refused)
{
	unsigned char scales[8] = {0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38};
	float whole = 1;
	struct tensor t[TENSORS];
	fp4_layer(t, scales, 2);
	refused(&nvfp4, 2, 32, t, -ENOENT, "m.weight_global_scale is missing, and so is weight_scale_2");
	t[WHOLE] = (struct tensor){"weight_global_scale", "F32", 0, 1, &whole};
	t[WHOLE + 1] = (struct tensor){"weight_scale_2", "F32", 0, 1, &whole};
	refused(&nvfp4, 2, 32, t, -EINVAL, "both a weight_global_scale and a weight_scale_2");
	t[WHOLE + 1].part = NULL;
	for (int sign = 0; sign < 256; sign += 128) {
		scales[2] = (unsigned char)(0x7f | sign);
		refused(&nvfp4, 2, 32, t, -EINVAL, "m.weight_scale: value 2 is not a number");
	}
	scales[2] = 0x38;
	static const float bad[] = {0, -1, NAN, INFINITY, 1e-38f};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		whole = bad[i];
		/* divided by infinity, all weights would be 0 */
		refused(&nvfp4, 2, 32, t, -EINVAL, "which is no scale");
	}
	whole = 1;
	t[SCALE].cols = 4;
	refused(&nvfp4, 2, 32, t, -EINVAL,
		"m.weight_scale has the shape [2, 4], the configuration needs [2, 2]");
	t[SCALE].cols = 2;
	t[SCALE].dtype = "U8";
	refused(&nvfp4, 2, 32, t, -EINVAL, "m.weight_scale is U8; NVFP4 needs F8_E4M3");
	refused(&nvfp4, 2, 40, t, -EINVAL, "m.weight_packed has the shape [2, 16]");
}

Test(quant_types, mxfp4_has_powers_of_two)
{
	static const unsigned char exponents[2] = {0, 254};
	struct tensor t[TENSORS];
	fp4_layer(t, exponents, 1);
	for (int modelopt = 0; modelopt < 2; modelopt++) {
		t[PACKED].part = modelopt ? "weight" : "weight_packed";
		cr_assert_eq(find(&mxfp4, 2, 32, t), 0, "%s", why.text);
		cr_expect(layer.codes.d_type == CODES_BF16 && layer.codes.table == codes_e2m1);
		float *w = floats_of(&layer);
		for (int i = 0; i < 64; i++)
			cr_expect_eq(w[i], ldexpf(e2m1_at(i / 32, i % 32), i < 32 ? -127 : 127), "%d", i);
		free(w);
		done();
	}
	static const unsigned char bad[2] = {127, 255};
	t[SCALE].data = bad;
	refused(&mxfp4, 2, 32, t, -EINVAL, "m.weight_scale: value 1 is not a number");
}

Test(quant_types, mxfp8_has_powers_of_two)
{
	unsigned char codes[64];
	static const unsigned char exponents[2] = {120, 130}, bad[2] = {255, 1};
	struct tensor t[TENSORS] = {{"weight", "F8_E4M3", 2, 32, codes},
				    {"weight_scale", "U8", 2, 1, exponents}};
	for (int i = 0; i < 64; i++)
		codes[i] = (unsigned char)(2 * i);
	cr_assert_eq(find(&mxfp8, 2, 32, t), 0, "%s", why.text);
	float *w = floats_of(&layer);
	for (int i = 0; i < 64; i++)
		cr_expect_eq(w[i], ldexpf(quant_e4m3[codes[i]], exponents[i / 32] - 127), "%d", i);
	free(w);
	done();
	t[1].data = bad;
	refused(&mxfp8, 2, 32, t, -EINVAL, "m.weight_scale: value 0 is not a number");
}

/* ---- bitsandbytes ---- */

static const float nf4_values[16] = {-1.0f,
				     -0.6961928009986877f,
				     -0.5250730514526367f,
				     -0.39491748809814453f,
				     -0.28444138169288635f,
				     -0.18477343022823334f,
				     -0.09105003625154495f,
				     0.0f,
				     0.07958029955625534f,
				     0.16093020141124725f,
				     0.24611230194568634f,
				     0.33791524171829224f,
				     0.44070982933044434f,
				     0.5626170039176941f,
				     0.7229568362236023f,
				     1.0f};

/* A layer of 3 outputs and 24 inputs: a block of 64 ends within a row. */
enum { ROWS = 3, COLS = 24, BLOCK = 64, BLOCKS = 2 };
enum { CODES, MAP, STATE, ABSMAX };
static unsigned char nf4_bytes[ROWS * COLS / 2];
static void nf4_layer(struct tensor t[TENSORS], const char *state)
{
	for (size_t i = 0; i < sizeof nf4_bytes; i++)
		nf4_bytes[i] = (unsigned char)(i * 29);
	memset(t, 0, TENSORS * sizeof *t);
	t[CODES] = (struct tensor){"weight", "U8", ROWS * COLS / 2, 1, nf4_bytes};
	t[MAP] = (struct tensor){"weight.quant_map", "F32", 0, 16, nf4_values};
	t[STATE] =
		(struct tensor){"weight.quant_state.bitsandbytes__nf4", "U8", 0, (int)strlen(state), state};
}

static float nf4_at(int i)
{
	return nf4_values[nf4_bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
}

static const char plain_state[] = "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
				  "\"shape\": [3, 24]}";
static const char nested_state[] = "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"float16\", "
				   "\"shape\": [3, 24], \"nested_blocksize\": 1, \"nested_dtype\": "
				   "\"float32\", \"nested_offset\": 0.25}";

Test(quant_types, a_block_of_nf4_goes_on_in_the_next_row)
{
	static const float absmax[BLOCKS] = {1.7f, 0.3f};
	struct tensor t[TENSORS];
	nf4_layer(t, plain_state);
	t[ABSMAX] = (struct tensor){"weight.absmax", "F32", 0, BLOCKS, absmax};
	cr_assert_eq(find(&nf4, ROWS, COLS, t), 0, "%s", why.text);
	cr_expect_eq(layer.codes.group, 8);
	float *w = floats_of(&layer);
	for (int i = 0; i < ROWS * COLS; i++)
		cr_expect_eq(w[i], nf4_at(i) * absmax[i / BLOCK], "%d", i);
	free(w);
	done();
}

/* A layer with quantized scales: nested_blocksize 1, so that each block has another scale. */
static void nested_layer(struct tensor t[TENSORS], const float *map)
{
	static const unsigned char absmax[BLOCKS] = {3, 250};
	static const float scales[BLOCKS] = {0.9f, 1.3f};
	nf4_layer(t, nested_state);
	t[ABSMAX] = (struct tensor){"weight.absmax", "U8", 0, BLOCKS, absmax};
	t[ABSMAX + 1] = (struct tensor){"weight.nested_absmax", "F32", 0, BLOCKS, scales};
	t[ABSMAX + 2] = (struct tensor){"weight.nested_quant_map", "F32", 0, 256, map};
}

Test(quant_types, the_scales_of_nf4_may_be_quantized)
{
	float map[256];
	struct tensor t[TENSORS];
	for (int i = 0; i < 256; i++)
		map[i] = (float)(i - 128) / 130;
	nested_layer(t, map);
	cr_assert_eq(find(&nf4, ROWS, COLS, t), 0, "%s", why.text);
	float *w = floats_of(&layer);
	const volatile float product[BLOCKS] = {map[3] * 0.9f, map[250] * 1.3f};
	for (int i = 0; i < ROWS * COLS; i++)
		cr_expect_eq(w[i], nf4_at(i) * (product[i / BLOCK] + 0.25f), "%d", i);
	free(w);
	done();
	map[77] = INFINITY;
	refused(&nf4, ROWS, COLS, t, -EINVAL, "m.weight.nested_quant_map: value 77 is not a finite number");
	t[ABSMAX + 1].cols = 1;
	refused(&nf4, ROWS, COLS, t, -EINVAL, "m.weight.nested_");
}

Test(quant_types, a_quant_state_that_contradicts_the_layer_is_refused)
{
	static const struct {
		const char *state, *reason;
	} cases[] = {
		{"{\"quant_type\": \"fp4\", \"blocksize\": 64, \"shape\": [3, 24]}",
		 "quant_type is fp4, the configuration needs nf4"},
		{"{\"blocksize\": 64, \"shape\": [3, 24]}", "quant_type is missing"},
		{"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [24, 3]}", "shape is not [3, 24]"},
		{"{\"quant_type\": \"nf4\", \"blocksize\": 64}", "shape is not [3, 24]"},
		{"{\"quant_type\": \"nf4\", \"blocksize\": 96, \"shape\": [3, 24]}", "a power of 2"},
		{"{\"quant_type\": \"nf4\", \"blocksize\": 0, \"shape\": [3, 24]}", "blocksize"},
		{"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [3, 24], \"nested_offset\": 1e39}",
		 "nested_offset is no scale"},
		{"{\"quant_type\": ", "quant_state.bitsandbytes__nf4"},
		{"[]", "no JSON object"},
		{"{\"quant_type\": \"nf4\", \"blocksize\": 8, \"shape\": [3, 24]}",
		 "m.weight.absmax has the shape [2], the configuration needs [9]"},
	};
	static const float absmax[BLOCKS] = {1, 1};
	struct tensor t[TENSORS];
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		nf4_layer(t, cases[i].state);
		t[ABSMAX] = (struct tensor){"weight.absmax", "F32", 0, BLOCKS, absmax};
		refused(&nf4, ROWS, COLS, t, -EINVAL, cases[i].reason);
	}
	nf4_layer(t, plain_state);
	t[ABSMAX] = (struct tensor){"weight.absmax", "F32", 0, BLOCKS, absmax};
	t[STATE].part = "weight.other";
	refused(&nf4, ROWS, COLS, t, -ENOENT, "only models that bitsandbytes has saved in 4 bits");
	t[STATE].part = "weight.quant_state.bitsandbytes__nf4";
	t[CODES].rows--;
	refused(&nf4, ROWS, COLS, t, -EINVAL,
		"m.weight has the shape [35, 1], the configuration needs [36, 1]");
	t[CODES].rows++;
	float map[16];
	memcpy(map, nf4_values, sizeof map);
	map[9] = 0.17f;
	t[MAP].data = map;
	refused(&nf4, ROWS, COLS, t, -EINVAL, "m.weight.quant_map: value 9 is 0.17, NF4 has 0.16093");
}

Test(quant_types, llm_int8_has_the_largest_value_of_each_row)
{
	static const signed char codes[2 * 8] = {127, -127, 1, 0, -1, 64, 2, 3, -128, 5, 6, 7, 8, 9, 10, 11};
	static const float most[2] = {254, 1};
	static unsigned char format;
	struct tensor t[TENSORS] = {{"weight", "I8", 2, 8, codes},
				    {"SCB", "F32", 0, 2, most},
				    {"weight_format", "U8", 0, 1, &format}};
	cr_assert_eq(find(&llm_int8, 2, 8, t), 0, "%s", why.text);
	float *w = floats_of(&layer);
	for (int i = 0; i < 16; i++)
		cr_expect_eq(w[i], (float)codes[i] * (most[i / 8] * (1.0f / 127)), "%d", i);
	free(w);
	cr_expect_eq(found.n_tensors, 3);
	done();
	format = 2;
	refused(&llm_int8, 2, 8, t, -ENOTSUP, "only weights row by row");
}

/* ---- config.json ---- */

#define FP4(group)                                                                                           \
	"{\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"tensor_group\", \"group_size\": " group "}"

Test(quant_types, config_groups_may_have_formats_of_their_own)
{
	struct quant q = {0};
	cr_assert_eq(
		read_config(
			"{\"quant_method\": \"compressed-tensors\", \"format\": \"mixed-precision\", "
			"\"ignore\": [\"lm_head\", \"re:.*router\"], \"config_groups\": {"
			"\"a\": {\"targets\": [\"re:.*self_attn.*\"], \"format\": \"float-quantized\", "
			"\"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\"}}, "
			"\"b\": {\"targets\": [\"Linear\"], \"format\": \"nvfp4-pack-quantized\", "
			"\"input_activations\": {\"num_bits\": 4, \"type\": \"float\"}, "
			"\"weights\": " FP4("16") "}}}",
			&q),
		0, "%s", why.text);
	cr_expect_str_eq(q.name, "mixed-precision");
	cr_expect_str_eq(q.activations, "4-bit float");
	cr_expect(q.mixed && q.n_schemes == 3 && q.schemes[0].layout == QUANT_FP8 && q.schemes[0].rule == 1 &&
		  q.schemes[2].layout == QUANT_NVFP4 && q.schemes[2].rule == 2 && q.schemes[2].group == 16);

	/* A module gets the type of its group, whatever its tensors would fit. */
	static const unsigned char scales[4] = {0x38, 0x38, 0x38, 0x38};
	static const float whole = 1;
	struct tensor t[TENSORS];
	fp4_layer(t, scales, 2);
	t[WHOLE] = (struct tensor){"weight_global_scale", "F32", 0, 1, &whole};
	cr_assert_eq(find(&q, 2, 32, t), 0, "%s", why.text);
	done();
	struct quant named = q;
	named.rules = NULL;
	cr_assert_eq(quant_rules_add_name(&named.rules, QUANT_STYLE_REGEX, "re:m$", 1, &why), 0);
	refused(&named, 2, 32, t, -ENOENT, "(by \"re:m$\" of quantization_config)");
	cr_assert_eq(quant_rules_add_name(&named.rules, QUANT_STYLE_REGEX, "m", QUANT_RULE_IGNORED, &why), 0);
	refused(&named, 2, 32, t, -EINVAL, "m is quantized, but quantization_config excludes it (\"m\")");
	quant_rules_free(named.rules);
	quant_fini(&q);
}

Test(quant_types, modelopt_is_read_from_both_files)
{
	struct quant q = {0};
	cr_assert_eq(read_config("{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"ignore\": "
				 "[\"lm_head\", \"model.layers.0.self_attn*\"], \"kv_cache_scheme\": "
				 "{\"num_bits\": 8}, \"config_groups\": {}}",
				 &q),
		     0, "%s", why.text);
	cr_expect(q.n_schemes == 1 && q.schemes[0].layout == QUANT_NVFP4 && q.own_kv_cache &&
		  q.own_activations && !q.mixed);
	struct quant_match m;
	cr_assert_eq(quant_rules_find(q.rules, "model.layers.0.self_attn.q_proj", &m, &why), 0);
	cr_expect_eq(m.rule, QUANT_RULE_IGNORED);
	cr_assert_eq(quant_rules_find(q.rules, "model.layers.0.mlp.up_proj", &m, &why), 0);
	cr_expect_eq(m.rule, QUANT_RULE_NONE);

	char dir[] = "/tmp/quern-modelopt-XXXXXX";
	cr_assert(mkdtemp(dir));
	char *path = file_join(dir, "hf_quant_config.json");
	FILE *f = fopen(path, "w");
	fputs("{\"producer\": {\"name\": \"modelopt\"}, \"quantization\": {\"quant_algo\": "
	      "\"MIXED_PRECISION\", \"kv_cache_quant_algo\": \"FP8\", \"quantized_layers\": {"
	      "\"a.q_proj\": {\"quant_algo\": \"FP8\"}, \"a.k_proj\": {\"quant_algo\": \"FP8\"}, "
	      "\"a.up_proj\": {\"quant_algo\": \"W4A16_NVFP4\", \"group_size\": 16}}}}",
	      f);
	fclose(f);
	quant_fini(&q);
	json_t *none = json_object();
	cr_assert_eq(quant_config_read(none, dir, &q, &why), 0, "%s", why.text);
	cr_expect_str_eq(q.method, "modelopt");
	cr_expect(q.mixed && q.n_schemes == 3 && q.schemes[0].rule == 1 && q.schemes[2].rule == 2);
	cr_assert_eq(quant_rules_find(q.rules, "a.k_proj", &m, &why), 0);
	cr_expect_eq(m.rule, 1);
	cr_assert_eq(quant_rules_find(q.rules, "a.up_proj", &m, &why), 0);
	cr_expect_eq(m.rule, 2);
	quant_fini(&q);

	json_t *root = json_pack("{s:{s:s, s:s}}", "quantization_config", "quant_method", "modelopt",
				 "quant_algo", "FP8");
	cr_expect_eq(quant_config_read(root, dir, &q, &why), -EINVAL);
	cr_expect(strstr(why.text, "quant_algo is FP8 in config.json and MIXED_PRECISION in "
				   "hf_quant_config.json"),
		  "%s", why.text);
	quant_fini(&q);
	json_decref(root);
	json_decref(none);
	unlink(path);
	rmdir(dir);
	free(path);
}

Test(quant_types, other_configurations_are_refused_by_name)
{
#define NVFP4_GROUP(weights)                                                                                 \
	"{\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\", "                  \
	"\"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": " weights "}}}"
	config_refused(NVFP4_GROUP(FP4("32")), -ENOTSUP, "groups of 16 inputs, group_size is 32");
	config_refused(NVFP4_GROUP("{\"num_bits\": 8, \"type\": \"float\"}"), -ENOTSUP,
		       "type float with 8 bits");
	config_refused(NVFP4_GROUP("{\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"channel\"}"),
		       -ENOTSUP, "strategy channel");
	config_refused("{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
		       "\"config_groups\": {\"g\": {\"targets\": [\"re:(\"], \"weights\": "
		       "{\"num_bits\": 4}}}}",
		       -EINVAL, "the pattern re:( is no regular expression");
	config_refused("{\"quant_method\": \"compressed-tensors\", \"format\": \"mixed-precision\", "
		       "\"config_groups\": {\"g\": {\"targets\": [\"Linear\"]}}}",
		       -ENOTSUP, "format (none named)");
	config_refused("{\"quant_method\": \"modelopt\"}", -ENOTSUP, "quant_algo (none named)");
	config_refused("{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4_AWQ\"}", -ENOTSUP,
		       "quant_algo NVFP4_AWQ is not supported");
	config_refused("{\"quant_algo\": \"NVFP4\", \"group_size\": 32}", -ENOTSUP,
		       "NVFP4 has groups of 16 inputs, group_size is 32");
	config_refused("{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\"}", -EINVAL,
		       "without quantized_layers");
	config_refused("{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", "
		       "\"quantized_layers\": {\"a.b\": {\"quant_algo\": \"W8A16\"}}}",
		       -ENOTSUP, "quantized_layers: a.b: ModelOpt's quant_algo W8A16");
	config_refused("{\"quant_method\": \"bitsandbytes\"}", -EINVAL,
		       "one of load_in_4bit and load_in_8bit");
	config_refused("{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, \"load_in_8bit\": true}",
		       -EINVAL, "one of load_in_4bit and load_in_8bit");
	config_refused("{\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"int4\"}", -ENOTSUP,
		       "bnb_4bit_quant_type int4");
}

/* ---- patterns ---- */

static int rule_of(const struct quant_rules *r, const char *module)
{
	struct quant_match m;
	cr_assert_eq(quant_rules_find(r, module, &m, &why), 0, "%s", why.text);
	return m.rule;
}

Test(quant_types, a_name_comes_before_a_pattern_and_a_pattern_before_a_class)
{
	struct quant_rules *r = NULL;
	json_t *targets = json_pack("[s, s, s]", "Linear", "re:.*mlp.*", "re:.*[.]1[.].*");
	cr_assert_eq(quant_rules_add(&r, QUANT_STYLE_REGEX, targets, 1, &why), 0);
	cr_assert_eq(quant_rules_add_name(&r, QUANT_STYLE_REGEX, "re:layers.*", 2, &why), 0);
	cr_assert_eq(quant_rules_add_name(&r, QUANT_STYLE_REGEX, "layers.0.mlp.up_proj", 3, &why), 0);
	cr_assert_eq(quant_rules_add_name(&r, QUANT_STYLE_REGEX, "re:.*lm_head", QUANT_RULE_IGNORED, &why),
		     0);
	cr_expect_eq(rule_of(r, "layers.0.mlp.up_proj"), 3);
	cr_expect_eq(rule_of(r, "layers.0.mlp.down_proj"), 1, "the first of two patterns");
	cr_expect_eq(rule_of(r, "layers.0.o_proj"), 2);
	cr_expect_eq(rule_of(r, "model.layers.0.o_proj"), 1, "a pattern matches at the beginning only");
	cr_expect_eq(rule_of(r, "layers.0.lm_head"), QUANT_RULE_IGNORED);
	cr_expect_eq(rule_of(NULL, "layers.0.mlp.up_proj"), QUANT_RULE_NONE);
	quant_rules_free(r);
	json_decref(targets);
}

Test(quant_types, wildcards_stand_for_any_text)
{
	static const struct {
		const char *pattern;
		bool matches;
	} cases[] = {{"model.layers.*", true},
		     {"model.layers.1*", true},
		     {"*q_proj", true},
		     {"*q_pro", false},
		     {"*self*q*", true},
		     {"model.layers.?.self_attn.q_proj", false},
		     {"model.layers.??.*", true},
		     {"m*l.*.12.*j", true},
		     {"*.12.*.12.*", false},
		     {"*", true},
		     {"model", false},
		     {"model.layers.12.self_attn.q_proj", true}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct quant_rules *r = NULL;
		cr_assert_eq(quant_rules_add_name(&r, QUANT_STYLE_WILDCARDS, cases[i].pattern, 1, &why), 0);
		cr_expect_eq(rule_of(r, "model.layers.12.self_attn.q_proj"), cases[i].matches, "%s",
			     cases[i].pattern);
		quant_rules_free(r);
	}
}

Test(quant_types, parts_of_one_tensor_with_different_types_are_refused)
{
	struct quant_rules *r = NULL;
	struct quant_match m;
	cr_assert_eq(quant_rules_add_name(&r, QUANT_STYLE_REGEX, "Linear", 1, &why), 0);
	cr_assert_eq(quant_rules_add_name(&r, QUANT_STYLE_REGEX, "re:.*[.](q_proj|k_proj)", 2, &why), 0);
	cr_expect_eq(quant_rules_find(r, "a.qkv_proj", &m, &why), -ENOTSUP);
	cr_expect(strstr(why.text, "a.qkv_proj holds the rows of several layers") &&
			  strstr(why.text, "k_proj has that of \"re:.*[.](q_proj|k_proj)\", v_proj that of"),
		  "%s", why.text);
	cr_assert_eq(quant_rules_add_name(&r, QUANT_STYLE_REGEX, "re:.*[.]v_proj", 2, &why), 0);
	cr_expect_eq(rule_of(r, "a.qkv_proj"), 2);
	cr_expect_eq(rule_of(r, "a.gate_up_proj"), 1);
	quant_rules_free(r);
}

/* PCRE2's own limit, ten million steps, would let this one end. */
Test(quant_types, a_pattern_that_takes_too_long_is_refused)
{
	struct quant_rules *r = NULL;
	struct quant_match m;
	cr_assert_eq(quant_rules_add_name(&r, QUANT_STYLE_REGEX, "re:(a|aa)+[bd]", 1, &why), 0);
	cr_expect_eq(quant_rules_find(r, "aaaaaaaaaaaaaaaaaaaaaaaaaaac", &m, &why), -E2BIG);
	cr_expect(strstr(why.text, "takes too long"), "%s", why.text);
	quant_rules_free(r);
}
