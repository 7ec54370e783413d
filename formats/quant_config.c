/* quant_config.c - read quantization_config of config.json, and refuse what is not supported. */
#include "formats/quant.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/quant_rules.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	OWN_FILE_MAX = 1 << 20,
	GROUP_MAX = 1 << 20,
	RULES_MAX = 65536,
	NOT_QUANTIZED = 16 /* bits value that AutoRound writes for layers in floats */
};

struct reader {
	struct quant *q;
	struct why *why;
};

static int fail(const struct reader *r, int err, const char *text)
{
	return err_why(r->why, err, "%s", text);
}

/* ---- fields ---- */

static int get_int(const struct reader *r, const json_t *o, const char *key, int lo, int hi, int *out)
{
	int64_t v = *out;
	int rc = json_get_int(o, key, lo, hi, &v, r->why);
	*out = (int)v;
	return rc;
}

static int get_str(const struct reader *r, const json_t *o, const char *key, const char **out)
{
	return json_get_str(o, key, out, r->why);
}

static int get_bool(const struct reader *r, const json_t *o, const char *key, bool *out)
{
	return json_get_bool(o, key, out, r->why);
}

static int get_object(const struct reader *r, const json_t *o, const char *key, const json_t **out)
{
	*out = json_get(o, key);
	if (*out && !json_is_object(*out))
		return err_why(r->why, -EINVAL, "%s must be an object", key);
	return 0;
}

/* Check a list of names, or one name.  The names are not used: the tensors decide. */
static int check_names(const struct reader *r, const json_t *o, const char *key)
{
	const json_t *a = json_get(o, key);
	bool good = !a || json_is_string(a) || (json_is_array(a) && json_array_size(a) <= RULES_MAX);
	for (size_t i = 0; good && json_is_array(a) && i < json_array_size(a); i++)
		good = json_is_string(json_array_get(a, i));
	return good ? 0 : err_why(r->why, -EINVAL, "%s must be a list of names", key);
}

static bool among(int v, const int *list, int n)
{
	for (int i = 0; i < n; i++)
		if (v == list[i])
			return true;
	return false;
}

static int add_scheme(const struct reader *r, struct quant_scheme s)
{
	struct quant *q = r->q;
	for (int i = 0; i < q->n_schemes; i++) {
		if (memcmp(&q->schemes[i], &s, sizeof s) == 0)
			return 0;
		q->mixed |= q->schemes[i].layout != s.layout;
	}
	if (q->n_schemes == QUANT_SCHEMES_MAX)
		return err_why(r->why, -ENOTSUP, "more than %d kinds of quantized layers", QUANT_SCHEMES_MAX);
	q->schemes[q->n_schemes++] = s;
	return 0;
}

static int check_group(const struct reader *r, int group)
{
	if (group == 0 || (group > 0 && group % 8))
		return err_why(r->why, -EINVAL, "%s group_size %d must be -1 or a multiple of 8", r->q->name,
			       group);
	return 0;
}

/* ---- AWQ ---- */

static int read_awq(const struct reader *r, const json_t *o)
{
	static const struct {
		const char *name;
		enum quant_layout layout;
	} versions[] = {{"gemm", QUANT_AWQ}, {"gemv", QUANT_AWQ_GEMV}, {"gemv_fast", QUANT_AWQ_GEMV_FAST}};
	const char *version = "gemm";
	enum quant_layout layout = QUANT_AWQ;
	int bits = 0, group = 128, rc;
	bool zero_point = true, known = false;
	snprintf(r->q->name, sizeof r->q->name, "%s", "AWQ");
	if ((rc = get_str(r, o, "version", &version)))
		return rc;
	for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
		if (strcasecmp(version, versions[i].name) == 0) {
			layout = versions[i].layout;
			known = true;
		}
	if (!known)
		return err_why(r->why, -ENOTSUP,
			       "AWQ version %.40s is not supported (supported: gemm, gemv, gemv_fast)",
			       version);
	/* AutoAWQ's own quant_config.json spells the keys differently. */
	const char *bits_key = json_get(o, "w_bit") && !json_get(o, "bits") ? "w_bit" : "bits";
	const char *group_key = json_get(o, "group_size") ? "group_size" : "q_group_size";
	if (!json_get(o, bits_key))
		return err_why(r->why, -EINVAL, "%s is missing", bits_key);
	if ((rc = get_int(r, o, bits_key, 1, 64, &bits)) ||
	    (rc = get_bool(r, o, "zero_point", &zero_point)) ||
	    (rc = get_int(r, o, group_key, -1, GROUP_MAX, &group)) || (rc = check_group(r, group)) ||
	    (rc = check_names(r, o, "modules_to_not_convert")))
		return rc;
	if (bits != 4 && !(bits == 8 && layout == QUANT_AWQ))
		return err_why(r->why, -ENOTSUP,
			       "AWQ version %.40s with %d bits is not supported (only 4, and 8 of gemm)",
			       version, bits);
	if (!zero_point)
		return fail(r, -ENOTSUP, "AWQ without zero_point is not supported");
	return add_scheme(r, (struct quant_scheme){layout, bits, group, 1, 0});
}

/* ---- GPTQ, and AutoRound's dialects ---- */

/* Add the bits and group_size of o, or those of s, as a scheme. */
static int add_gptq(const struct reader *r, const json_t *o, struct quant_scheme s)
{
	static const int known[] = {2, 3, 4, 8};
	int rc;
	if ((rc = get_int(r, o, "bits", 1, 64, &s.bits)) ||
	    (rc = get_int(r, o, "group_size", -1, GROUP_MAX, &s.group)) || (rc = check_group(r, s.group)))
		return rc;
	if (s.bits >= NOT_QUANTIZED)
		return 0;
	if (s.layout == QUANT_AWQ ? s.bits != 4 && s.bits != 8 : !among(s.bits, known, 4))
		return err_why(r->why, -ENOTSUP, "%s with %d bits is not supported (supported: %s)",
			       r->q->name, s.bits, s.layout == QUANT_AWQ ? "4, 8" : "2, 3, 4, 8");
	return add_scheme(r, s);
}

/* Read rules by name; each has fields that replace the defaults: {"name or pattern": {"bits": 8}}. */
static int read_rules(const struct reader *r, const json_t *o, const char *key, struct quant_scheme usual)
{
	const json_t *rules = NULL;
	const char *name;
	json_t *rule;
	int rc = get_object(r, o, key, &rules);
	if (rc || !rules)
		return rc;
	json_object_foreach((json_t *)rules, name, rule)
	{
		if (strncmp(name, "-:", 2) == 0)
			continue; /* not quantized */
		if (!json_is_object(rule))
			return err_why(r->why, -EINVAL, "%s of %.80s must be an object", key, name);
		if ((rc = add_gptq(r, rule, usual)))
			return err_prefix(r->why, rc, "%s of %.80s", key, name);
	}
	return 0;
}

static int read_gptq_fields(const struct reader *r, const json_t *o, enum quant_layout layout,
			    const char *rules)
{
	struct quant_scheme usual = {layout, 0, 128, 1, 0};
	const char *pack = "int32", *type = "int";
	int rc;
	if (!json_get(o, "bits"))
		return fail(r, -EINVAL, "bits is missing");
	if ((rc = get_int(r, o, "bits", 1, 64, &usual.bits)) ||
	    (rc = get_int(r, o, "group_size", -1, GROUP_MAX, &usual.group)) ||
	    (rc = get_str(r, o, "pack_dtype", &pack)) || (rc = get_str(r, o, "data_type", &type)) ||
	    (rc = check_names(r, o, "modules_to_not_convert")))
		return rc;
	if (strcmp(pack, "int32") != 0 && strcmp(pack, "torch.int32") != 0)
		return err_why(r->why, -ENOTSUP, "pack_dtype %.40s is not supported (only int32)", pack);
	if (strcmp(type, "int") != 0)
		return err_why(r->why, -ENOTSUP, "data_type %.40s is not supported (only int)", type);
	if ((rc = add_gptq(r, o, usual)))
		return rc;
	return read_rules(r, o, rules, usual);
}

static int read_gptq(const struct reader *r, const json_t *o)
{
	const char *format = NULL;
	bool marlin = false;
	int rc;
	snprintf(r->q->name, sizeof r->q->name, "%s", "GPTQ");
	if ((rc = get_str(r, o, "format", &format)) || (rc = get_str(r, o, "checkpoint_format", &format)) ||
	    (rc = get_bool(r, o, "is_marlin_format", &marlin)))
		return rc;
	if (marlin)
		format = "marlin";
	if (format && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
		return err_why(r->why, -ENOTSUP,
			       "GPTQ format %.40s is not supported (supported: gptq, gptq_v2)", format);
	r->q->zeros_less_one = !format || strcmp(format, "gptq") == 0;
	return read_gptq_fields(r, o, QUANT_GPTQ, "dynamic");
}

static int read_auto_round(const struct reader *r, const json_t *o)
{
	static const struct {
		const char *name;
		enum quant_layout layout;
		bool less_one;
	} formats[] = {
		{"auto_round:auto_gptq", QUANT_GPTQ, true}, {"auto_round:gptq", QUANT_GPTQ, true},
		{"auto_round", QUANT_GPTQ, false},          {"auto_round:gptqmodel", QUANT_GPTQ, false},
		{"auto_round:auto_awq", QUANT_AWQ, false},  {"auto_round:awq", QUANT_AWQ, false},
	};
	const char *format = NULL;
	int rc;
	snprintf(r->q->name, sizeof r->q->name, "%s", "AutoRound");
	if ((rc = get_str(r, o, "backend", &format)) || (rc = get_str(r, o, "packing_format", &format)))
		return rc;
	for (size_t i = 0; format && i < sizeof formats / sizeof formats[0]; i++) {
		if (strcmp(format, formats[i].name) != 0)
			continue;
		r->q->zeros_less_one = formats[i].less_one;
		return read_gptq_fields(r, o, formats[i].layout, "extra_config");
	}
	return err_why(r->why, -ENOTSUP,
		       "AutoRound packing_format %.40s is not supported (supported: auto_round:auto_gptq, "
		       "auto_round:gptqmodel, auto_round:auto_awq)",
		       format ? format : "(none named)");
}

/* Note the type of activations that the checkpoint was made for. */
static void set_activations(const struct reader *r, int bits, const char *type)
{
	r->q->own_activations = true;
	snprintf(r->q->activations, sizeof r->q->activations, "%d-bit %.16s", bits, type);
}

/* ---- FP8 ---- */

/* Parse two sizes, given as a list [128, 128] or as text "128x128". */
static bool two_sizes(const json_t *v, json_int_t *n, json_int_t *k)
{
	const char *text = json_string_value(v);
	if (text) {
		int end = 0;
		long long a, b;
		const bool good = strspn(text, "0123456789xX ") == strlen(text) && strlen(text) < 32 &&
				  sscanf(text, "%lld %*1[xX] %lld %n", &a, &b, &end) == 2 && !text[end];
		*n = good ? a : 0;
		*k = good ? b : 0;
		return good;
	}
	*n = json_integer_value(json_array_get(v, 0));
	*k = json_integer_value(json_array_get(v, 1));
	return json_is_array(v) && json_array_size(v) == 2;
}

/* Read the outputs and inputs of a block; absent: a scale per tensor or output. */
static int read_block(const struct reader *r, const json_t *o, const char *key, struct quant_scheme *s)
{
	const json_t *v = json_get(o, key);
	json_int_t n, k;
	if (!v)
		return 0;
	if (!two_sizes(v, &n, &k) || n < 1 || n > GROUP_MAX || k < 8 || k > GROUP_MAX || k % 8)
		return err_why(
			r->why, -EINVAL,
			"%s must be two sizes, outputs and inputs, the second a multiple of 8: [128, 128] or "
			"\"128x128\"",
			key);
	s->block_n = (int)n;
	s->group = (int)k;
	return 0;
}

/* Add a scheme, with and without a scale per output: the tensors decide. */
static int add_fp8(const struct reader *r, struct quant_scheme s)
{
	int rc = add_scheme(r, s);
	s.block_n = !s.block_n;
	return rc || s.group >= 0 ? rc : add_scheme(r, s);
}

static int read_fp8(const struct reader *r, const json_t *o)
{
	struct quant_scheme s = {QUANT_FP8, 8, -1, 1, 0};
	const char *fmt = "e4m3", *activations = "dynamic";
	int rc;
	snprintf(r->q->name, sizeof r->q->name, "%s", "FP8");
	set_activations(r, 8, "float");
	if ((rc = get_str(r, o, "fmt", &fmt)) || (rc = get_str(r, o, "activation_scheme", &activations)) ||
	    (rc = read_block(r, o, "weight_block_size", &s)) ||
	    (rc = check_names(r, o, "modules_to_not_convert")) || (rc = check_names(r, o, "ignored_layers")))
		return rc;
	if (strcmp(fmt, "e4m3") != 0 && strcmp(fmt, "float8_e4m3fn") != 0)
		return err_why(r->why, -ENOTSUP, "fp8 fmt %.40s is not supported (only e4m3)", fmt);
	if (strcmp(activations, "dynamic") != 0 && strcmp(activations, "static") != 0)
		return err_why(r->why, -ENOTSUP,
			       "activation_scheme %.40s is not supported (supported: dynamic, static)",
			       activations);
	return add_fp8(r, s);
}

/* Read MXFP4: only experts have it, and their tensors give the rest. */
static int read_mxfp4(const struct reader *r, const json_t *o)
{
	snprintf(r->q->name, sizeof r->q->name, "%s", "MXFP4");
	return check_names(r, o, "modules_to_not_convert");
}

/* ---- compressed-tensors ---- */

static int refuse_unless_empty(const struct reader *r, const json_t *o, const char *key)
{
	const json_t *v = json_get(o, key);
	if (!v || (json_is_object(v) && json_object_size(v) == 0) ||
	    (json_is_array(v) && json_array_size(v) == 0))
		return 0;
	return err_why(r->why, -ENOTSUP, "compressed-tensors with %s is not supported", key);
}

static int check_sparsity(const struct reader *r, const json_t *o)
{
	const json_t *s;
	const char *format = "dense";
	int rc;
	if ((rc = get_object(r, o, "sparsity_config", &s)) || (s && (rc = get_str(r, s, "format", &format))))
		return rc;
	if (strcmp(format, "dense") != 0)
		return err_why(r->why, -ENOTSUP, "sparsity_config of format %.40s is not supported", format);
	return 0;
}

/* Formats of compressed-tensors.  group: inputs of a group, if the format leaves no choice. */
struct ct_format {
	const char *name;
	enum quant_layout layout;
	const char *type;
	int least_bits, most_bits, group;
};

static const struct ct_format ct_formats[] = {
	{"pack-quantized", QUANT_PACKED, "int", 2, 8, 0},
	{"int-quantized", QUANT_INT8, "int", 8, 8, 0},
	{"float-quantized", QUANT_FP8, "float", 8, 8, 0},
	{"nvfp4-pack-quantized", QUANT_NVFP4, "float", 4, 4, 16},
	{"mxfp4-pack-quantized", QUANT_MXFP4, "float", 4, 4, 32},
	{"mxfp8-quantized", QUANT_MXFP8, "float", 8, 8, 32},
};

/* Read "weights" of a config group in a format with groups of one size. */
static int read_ct_blocks(const struct reader *r, const json_t *w, const struct ct_format *f,
			  struct quant_scheme s)
{
	const char *strategy = "group";
	int rc = get_str(r, w, "strategy", &strategy);
	if (rc)
		return rc;
	if (strcmp(strategy, "group") != 0 && strcmp(strategy, "tensor_group") != 0)
		return err_why(r->why, -ENOTSUP, "weights by strategy %.40s are not supported in %s",
			       strategy, f->name);
	if (s.group != f->group)
		return err_why(r->why, -ENOTSUP, "%s has groups of %d inputs, group_size is %d", f->name,
			       f->group, s.group);
	return add_scheme(r, s);
}

/* Read "weights" of a config group. */
static int read_ct_weights(const struct reader *r, const json_t *w, const struct ct_format *f, int rule)
{
	const char *type = "int", *strategy = NULL;
	struct quant_scheme s = {f->layout, f->most_bits, f->group ? f->group : -1, 1, rule};
	int rc;
	if ((rc = get_int(r, w, "num_bits", 1, 64, &s.bits)) || (rc = get_str(r, w, "type", &type)) ||
	    (rc = get_str(r, w, "strategy", &strategy)) ||
	    (rc = get_int(r, w, "group_size", -1, GROUP_MAX, &s.group)))
		return rc;
	if (!strategy)
		strategy = !json_get(w, "group_size") ? "tensor" : s.group > 0 ? "group" : "channel";
	const bool fp8 = f->layout == QUANT_FP8;
	if (strcmp(type, f->type) != 0 || s.bits < f->least_bits || s.bits > f->most_bits)
		return err_why(r->why, -ENOTSUP, "weights of type %.40s with %d bits are not supported in %s",
			       type, s.bits, f->name);
	if (f->group)
		return read_ct_blocks(r, w, f, s);
	if (strcmp(strategy, "group") == 0)
		return (rc = check_group(r, s.group)) ? rc : add_scheme(r, s);
	s.group = -1;
	if (strcmp(strategy, "block") == 0 && fp8) {
		if ((rc = read_block(r, w, "block_structure", &s)))
			return rc;
		return s.group > 0 ? add_scheme(r, s) : fail(r, -EINVAL, "block_structure is missing");
	}
	if (strcmp(strategy, "tensor") != 0 && strcmp(strategy, "channel") != 0)
		return err_why(
			r->why, -ENOTSUP,
			"weights by strategy %.40s are not supported (supported: group, channel, tensor%s)",
			strategy, fp8 ? ", block" : "");
	s.block_n = strcmp(strategy, "tensor") == 0 ? 0 : 1;
	return add_fp8(r, s);
}

/* Find the format of a config group: its own, or that of the whole.  The programs call a whole of several
 * formats "mixed-precision". */
static int ct_format_of(const struct reader *r, const json_t *g, const char *whole,
			const struct ct_format **out)
{
	const json_t *w = json_get(g, "weights");
	const char *format = NULL, *type = "int";
	int rc;
	if ((rc = get_str(r, g, "format", &format)) ||
	    (json_is_object(w) && (rc = get_str(r, w, "type", &type))))
		return rc;
	if (!format && whole && strcmp(whole, "mixed-precision") != 0)
		format = whole;
	if (format && strcmp(format, "naive-quantized") == 0)
		format = strcmp(type, "float") == 0 ? "float-quantized" : "int-quantized";
	for (size_t i = 0; format && i < sizeof ct_formats / sizeof *ct_formats; i++)
		if (strcmp(format, ct_formats[i].name) == 0) {
			*out = &ct_formats[i];
			return 0;
		}
	return err_why(r->why, -ENOTSUP,
		       "compressed-tensors format %.40s is not supported (supported: pack-quantized, "
		       "int-quantized, float-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized, "
		       "mxfp8-quantized, and mixed-precision of these)",
		       format ? format : "(none named)");
}

/* Note the type of a config group's activations. */
static int read_ct_activations(const struct reader *r, const json_t *in)
{
	const char *type = "int";
	int bits = 8, rc;
	if (!in)
		return 0;
	if (!(rc = get_int(r, in, "num_bits", 1, 64, &bits)) && !(rc = get_str(r, in, "type", &type)))
		set_activations(r, bits, type);
	return rc;
}

static int read_ct_group(const struct reader *r, const json_t *g, const char *whole, int rule)
{
	const struct ct_format *f = NULL;
	const json_t *weights, *in;
	int rc;
	if (!json_is_object(g))
		return fail(r, -EINVAL, "must be an object");
	if ((rc = get_object(r, g, "weights", &weights)) ||
	    (rc = get_object(r, g, "input_activations", &in)) ||
	    (rc = refuse_unless_empty(r, g, "output_activations")) || (rc = check_names(r, g, "targets")) ||
	    (rc = read_ct_activations(r, in)) || (rc = ct_format_of(r, g, whole, &f)) ||
	    (rc = quant_rules_add(&r->q->rules, QUANT_STYLE_REGEX, json_get(g, "targets"), rule, r->why)))
		return rc;
	if (!r->q->name[0] || strcmp(r->q->name, f->name) != 0)
		snprintf(r->q->name, sizeof r->q->name, "%s", r->q->name[0] ? "mixed-precision" : f->name);
	return weights ? read_ct_weights(r, weights, f, rule) : 0;
}

static int read_ct(const struct reader *r, const json_t *o)
{
	const char *name, *format = NULL;
	const json_t *groups;
	json_t *g;
	int rc, rule = 0;
	if ((rc = get_object(r, o, "config_groups", &groups)) || (rc = check_names(r, o, "ignore")) ||
	    (rc = refuse_unless_empty(r, o, "transform_config")) || (rc = check_sparsity(r, o)) ||
	    (rc = get_str(r, o, "format", &format)))
		return rc;
	if (!groups || json_object_size(groups) == 0)
		return fail(r, -EINVAL, "config_groups is missing");
	r->q->own_kv_cache = json_get(o, "kv_cache_scheme") != NULL;
	json_object_foreach(
		(json_t *)groups, name,
		g) if ((rc = read_ct_group(r, g, format, ++rule))) return err_prefix(r->why, rc,
										     "config_groups: %.40s",
										     name);
	if (!r->q->n_schemes)
		return fail(r, -EINVAL, "no group of config_groups has weights");
	return quant_rules_add(&r->q->rules, QUANT_STYLE_REGEX, json_get(o, "ignore"), QUANT_RULE_IGNORED,
			       r->why);
}

/* ---- entry ---- */

/* Guess the quantization method by a key that only its files have; NULL: no such key.  Older programs did not
 * write the method. */
static const char *guess_method(const json_t *o)
{
	static const char *const marks[][2] = {
		{"quant_algo", "modelopt"},
		{"config_groups", "compressed-tensors"},
		{"w_bit", "awq"},
		{"q_group_size", "awq"},
		{"version", "awq"},
		{"zero_point", "awq"},
		{"autoround_version", "auto-round"},
		{"packing_format", "auto-round"},
		{"desc_act", "gptq"},
		{"damp_percent", "gptq"},
		{"true_sequential", "gptq"},
		{"checkpoint_format", "gptq"},
		{"is_marlin_format", "gptq"},
		{"model_file_base_name", "gptq"},
		{"static_groups", "gptq"},
		{"weight_block_size", "fp8"},
		{"activation_scheme", "fp8"},
		{"load_in_4bit", "bitsandbytes"},
		{"load_in_8bit", "bitsandbytes"},
	};
	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
		if (json_object_get(o, marks[i][0]))
			return marks[i][1];
	return NULL;
}

/* ---- ModelOpt ---- */

/* Read quant_algo and group_size of o.  rule: its modules, or 0. */
static int add_modelopt(const struct reader *r, const json_t *o, int rule)
{
	/* activations: bits of floats; 0: not quantized */
	static const struct {
		const char *name;
		struct quant_scheme scheme;
		int activations;
	} algos[] = {
		{"FP8", {QUANT_FP8, 8, -1, 0, 0}, 8},
		{"FP8_PER_CHANNEL_PER_TOKEN", {QUANT_FP8, 8, -1, 1, 0}, 8},
		{"FP8_PB_WO", {QUANT_FP8, 8, 128, 128, 0}, 0},
		{"MXFP8", {QUANT_MXFP8, 8, 32, 1, 0}, 8},
		{"NVFP4", {QUANT_NVFP4, 4, 16, 1, 0}, 4},
		{"W4A16_NVFP4", {QUANT_NVFP4, 4, 16, 1, 0}, 0},
		{"MXFP4", {QUANT_MXFP4, 4, 32, 1, 0}, 0},
		{"W4A8_MXFP4_FP8", {QUANT_MXFP4, 4, 32, 1, 0}, 8},
	};
	const char *algo = NULL;
	int rc = get_str(r, o, "quant_algo", &algo);
	if (rc)
		return rc;
	for (size_t i = 0; algo && i < sizeof algos / sizeof *algos; i++) {
		if (strcasecmp(algo, algos[i].name) != 0)
			continue;
		struct quant_scheme s = algos[i].scheme;
		const int own = s.group;
		s.rule = rule;
		if (own > 0 && (rc = get_int(r, o, "group_size", 0, GROUP_MAX, &s.group)))
			return rc;
		/* ModelOpt writes 0 or nothing if the type leaves no choice. */
		if (own > 0 && s.group && s.group != own)
			return err_why(r->why, -ENOTSUP, "%s has groups of %d inputs, group_size is %d",
				       algos[i].name, own, s.group);
		s.group = own;
		if (algos[i].activations)
			set_activations(r, algos[i].activations, "float");
		return add_fp8(r, s);
	}
	return err_why(r->why, -ENOTSUP,
		       "ModelOpt's quant_algo %.40s is not supported (supported: FP8, "
		       "FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, MXFP8, NVFP4, W4A16_NVFP4, MXFP4, "
		       "W4A8_MXFP4_FP8, MIXED_PRECISION)",
		       algo ? algo : "(none named)");
}

/* Read quantized_layers of MIXED_PRECISION: {"module": {"quant_algo": ..}}.  Modules of one type have one
 * rule. */
static int read_modelopt_layers(const struct reader *r, const json_t *layers)
{
	json_t *kinds[QUANT_SCHEMES_MAX];
	const char *name;
	json_t *layer;
	int n = 0, rc = 0;
	if (!layers || json_object_size(layers) == 0)
		return fail(r, -EINVAL, "MIXED_PRECISION without quantized_layers");
	json_object_foreach((json_t *)layers, name, layer)
	{
		int i = 0;
		while (i < n && !json_equal(kinds[i], layer))
			i++;
		if (!json_is_object(layer))
			return err_why(r->why, -EINVAL, "quantized_layers: %.80s must be an object", name);
		if (i == QUANT_SCHEMES_MAX)
			return err_why(r->why, -ENOTSUP, "more than %d kinds of quantized layers", i);
		if (i == n) {
			kinds[n++] = layer;
			rc = add_modelopt(r, layer, n);
		}
		if (!rc)
			rc = quant_rules_add_name(&r->q->rules, QUANT_STYLE_WILDCARDS, name, i + 1, r->why);
		if (rc)
			return err_prefix(r->why, rc, "quantized_layers: %.80s", name);
	}
	return 0;
}

/* Read ModelOpt's keys: those of hf_quant_config.json are in an object "quantization", those of config.json
 * are not. */
static int read_modelopt(const struct reader *r, const json_t *o)
{
	const json_t *inner, *layers;
	const char *algo = NULL;
	int rc = get_object(r, o, "quantization", &inner);
	if (!rc && inner)
		o = inner;
	if (rc || (rc = get_str(r, o, "quant_algo", &algo)) || (rc = check_names(r, o, "exclude_modules")) ||
	    (rc = check_names(r, o, "ignore")) || (rc = get_object(r, o, "quantized_layers", &layers)))
		return rc;
	const bool mixed = algo && strcasecmp(algo, "MIXED_PRECISION") == 0;
	snprintf(r->q->name, sizeof r->q->name, "ModelOpt-%.30s", algo ? algo : "");
	r->q->own_kv_cache = json_get(o, "kv_cache_scheme") || json_get(o, "kv_cache_quant_algo");
	if ((rc = mixed ? read_modelopt_layers(r, layers) : add_modelopt(r, o, 0)))
		return rc;
	static const char *const lists[] = {"exclude_modules", "ignore"};
	for (int i = 0; !rc && i < 2; i++)
		rc = quant_rules_add(&r->q->rules, QUANT_STYLE_WILDCARDS, json_get(o, lists[i]),
				     QUANT_RULE_IGNORED, r->why);
	return rc;
}

/* ---- bitsandbytes ---- */

static int read_bnb(const struct reader *r, const json_t *o)
{
	bool four = false, eight = false;
	const char *type = "fp4";
	int rc;
	if ((rc = get_bool(r, o, "load_in_4bit", &four)) || (rc = get_bool(r, o, "_load_in_4bit", &four)) ||
	    (rc = get_bool(r, o, "load_in_8bit", &eight)) || (rc = get_bool(r, o, "_load_in_8bit", &eight)) ||
	    (rc = get_str(r, o, "bnb_4bit_quant_type", &type)) ||
	    (rc = check_names(r, o, "llm_int8_skip_modules")))
		return rc;
	if (four == eight)
		return fail(r, -EINVAL, "bitsandbytes needs one of load_in_4bit and load_in_8bit");
	if (eight) {
		snprintf(r->q->name, sizeof r->q->name, "%s", "bitsandbytes-INT8");
		set_activations(r, 8, "int");
		return add_scheme(r, (struct quant_scheme){QUANT_LLM_INT8, 8, -1, 1, 0});
	}
	const bool nf4 = strcmp(type, "nf4") == 0;
	if (!nf4 && strcmp(type, "fp4") != 0)
		return err_why(r->why, -ENOTSUP,
			       "bnb_4bit_quant_type %.40s is not supported (supported: nf4, fp4)", type);
	snprintf(r->q->name, sizeof r->q->name, "bitsandbytes-%s", nf4 ? "NF4" : "FP4");
	/* the size of blocks is in the tensors */
	return add_scheme(r, (struct quant_scheme){nf4 ? QUANT_NF4 : QUANT_FP4, 4, 64, 1, 0});
}

/* ---- method ---- */

static int read_method(const struct reader *r, const json_t *o, const char *method)
{
	static const struct {
		const char *name, *method;
		int (*read)(const struct reader *r, const json_t *o);
	} methods[] = {
		{"awq", "awq", read_awq},
		{"gptq", "gptq", read_gptq},
		{"auto-round", "auto-round", read_auto_round},
		{"auto_round", "auto-round", read_auto_round},
		{"intel/auto-round", "auto-round", read_auto_round},
		{"compressed-tensors", "compressed-tensors", read_ct},
		{"compressed_tensors", "compressed-tensors", read_ct},
		{"fp8", "fp8", read_fp8},
		{"fbgemm_fp8", "fp8", read_fp8},
		{"mxfp4", "mxfp4", read_mxfp4},
		{"modelopt", "modelopt", read_modelopt},
		{"modelopt_fp4", "modelopt", read_modelopt},
		{"modelopt_mxfp8", "modelopt", read_modelopt},
		{"modelopt_mixed", "modelopt", read_modelopt},
		{"bitsandbytes", "bitsandbytes", read_bnb},
	};
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		if (strcasecmp(method, methods[i].name) == 0) {
			r->q->method = methods[i].method;
			return methods[i].read(r, o);
		}
	}
	return err_why(
		r->why, -ENOTSUP,
		"quantization method %.40s is not supported (supported: awq, gptq, auto-round, "
		"compressed-tensors, fp8, mxfp4, modelopt, bitsandbytes): take the model in one of these "
		"or in GGUF, or quantize the original with quern quantize",
		method);
}

/* Files in which programs wrote what config.json does not say. */
static const char *const own_files[][2] = {
	{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}, {"hf_quant_config.json", "modelopt"}};

/* Read own file i if it exists.  *out: the caller's, or NULL. */
static int read_own_file(const struct reader *r, const char *dir, size_t i, json_t **out)
{
	char *path = file_join(dir, own_files[i][0]);
	const int rc = file_exists(path) ? json_read(path, OWN_FILE_MAX, out, r->why) : 0;
	free(path);
	return rc || !*out || json_is_object(*out)
		       ? rc
		       : err_why(r->why, -EINVAL, "%s must be an object", own_files[i][0]);
}

/* Find the own file for a config.json without quantization_config. */
static int find_own_file(const struct reader *r, const char *dir, json_t **out, const char *const **file)
{
	int rc = 0;
	for (size_t i = 0; dir && !rc && !*out && i < sizeof own_files / sizeof *own_files; i++) {
		*file = own_files[i];
		rc = read_own_file(r, dir, i, out);
	}
	return rc;
}

/* Refuse a quantization_config of ModelOpt that hf_quant_config.json contradicts. */
static int check_modelopt_file(const struct reader *r, const char *dir, const json_t *o)
{
	const char *here = NULL, *there = NULL;
	const json_t *inner = NULL;
	json_t *file = NULL;
	int rc = dir && r->q->method && strcmp(r->q->method, "modelopt") == 0
			 ? read_own_file(r, dir, 2, &file)
			 : 0;
	if (!rc && file && !(rc = get_object(r, file, "quantization", &inner)) && inner &&
	    !(rc = get_str(r, o, "quant_algo", &here)) && !(rc = get_str(r, inner, "quant_algo", &there)) &&
	    here && there && strcasecmp(here, there) != 0)
		rc = err_why(r->why, -EINVAL,
			     "quant_algo is %.40s in config.json and %.40s in hf_quant_config.json", here,
			     there);
	json_decref(file);
	return rc;
}

int quant_config_read(const json_t *root, const char *dir, struct quant *out, struct why *why)
{
	static const char *const keys[] = {"quantization_config", "compression_config"};
	const struct reader r = {out, why};
	const char *key = json_get(root, keys[0]) ? keys[0] : keys[1], *method = NULL;
	const char *const *own = NULL;
	const json_t *o;
	json_t *file = NULL;
	int rc;
	memset(out, 0, sizeof *out);
	if (json_get(root, "quantization"))
		return fail(&r, -ENOTSUP,
			    "the key quantization (MLX packing) is not supported (supported: AWQ, GPTQ, "
			    "AutoRound, compressed-tensors, FP8, ModelOpt, bitsandbytes)");
	if (!json_get(root, key) && (rc = find_own_file(&r, dir, &file, &own))) {
		json_decref(file);
		return rc;
	}
	if (!(rc = get_object(&r, root, key, &o)) && (o = file ? file : o) &&
	    !(rc = get_str(&r, o, "quant_method", &method))) {
		method = method ? method : guess_method(o);
		method = method ? method : file ? own[1] : "(none named)";
		rc = read_method(&r, o, method);
		if (!rc && !file)
			rc = check_modelopt_file(&r, dir, o);
		if (file && rc)
			err_prefix(why, rc, "%s", own[0]);
	}
	json_decref(file);
	return rc;
}

void quant_fini(struct quant *q)
{
	quant_rules_free(q->rules);
	*q = (struct quant){0};
}

const char *quant_layout_name(enum quant_layout layout)
{
	static const char *const names[] = {
		[QUANT_AWQ] = "AWQ",       [QUANT_AWQ_GEMV] = "AWQ", [QUANT_AWQ_GEMV_FAST] = "AWQ",
		[QUANT_GPTQ] = "GPTQ",     [QUANT_PACKED] = "INT",   [QUANT_INT8] = "INT8",
		[QUANT_FP8] = "FP8",       [QUANT_MXFP8] = "MXFP8",  [QUANT_NVFP4] = "NVFP4",
		[QUANT_MXFP4] = "MXFP4",   [QUANT_NF4] = "NF4",      [QUANT_FP4] = "FP4",
		[QUANT_LLM_INT8] = "INT8",
	};
	return names[layout];
}
