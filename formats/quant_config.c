/* quant_config.c - read quantization_config of config.json, and refuse what is not supported. */
#include "formats/quant.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"

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
	for (int i = 0; i < q->n_schemes; i++)
		if (memcmp(&q->schemes[i], &s, sizeof s) == 0)
			return 0;
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
	int bits = 0, group = 128, rc;
	bool zero_point = true, known = false;
	snprintf(r->q->name, sizeof r->q->name, "%s", "AWQ");
	if ((rc = get_str(r, o, "version", &version)))
		return rc;
	for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
		if (strcasecmp(version, versions[i].name) == 0) {
			r->q->layout = versions[i].layout;
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
	if (bits != 4 && !(bits == 8 && r->q->layout == QUANT_AWQ))
		return err_why(r->why, -ENOTSUP,
			       "AWQ version %.40s with %d bits is not supported (only 4, and 8 of gemm)",
			       version, bits);
	if (!zero_point)
		return fail(r, -ENOTSUP, "AWQ without zero_point is not supported");
	return add_scheme(r, (struct quant_scheme){bits, group, 1});
}

/* ---- GPTQ, and AutoRound's dialects ---- */

/* Add the bits and group_size of o, or the defaults, as a scheme. */
static int add_gptq(const struct reader *r, const json_t *o, int bits, int group)
{
	static const int known[] = {2, 3, 4, 8};
	int rc;
	if ((rc = get_int(r, o, "bits", 1, 64, &bits)) ||
	    (rc = get_int(r, o, "group_size", -1, GROUP_MAX, &group)) || (rc = check_group(r, group)))
		return rc;
	if (bits >= NOT_QUANTIZED)
		return 0;
	if (r->q->layout == QUANT_AWQ ? bits != 4 && bits != 8 : !among(bits, known, 4))
		return err_why(r->why, -ENOTSUP, "%s with %d bits is not supported (supported: %s)",
			       r->q->name, bits, r->q->layout == QUANT_AWQ ? "4, 8" : "2, 3, 4, 8");
	return add_scheme(r, (struct quant_scheme){bits, group, 1});
}

/* Read rules by name; each has fields that replace the defaults: {"name or pattern": {"bits": 8}}. */
static int read_rules(const struct reader *r, const json_t *o, const char *key, int bits, int group)
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
		if ((rc = add_gptq(r, rule, bits, group)))
			return err_prefix(r->why, rc, "%s of %.80s", key, name);
	}
	return 0;
}

static int read_gptq_fields(const struct reader *r, const json_t *o, const char *rules)
{
	const char *pack = "int32", *type = "int";
	int bits = 0, group = 128, rc;
	if (!json_get(o, "bits"))
		return fail(r, -EINVAL, "bits is missing");
	if ((rc = get_int(r, o, "bits", 1, 64, &bits)) ||
	    (rc = get_int(r, o, "group_size", -1, GROUP_MAX, &group)) ||
	    (rc = get_str(r, o, "pack_dtype", &pack)) || (rc = get_str(r, o, "data_type", &type)) ||
	    (rc = check_names(r, o, "modules_to_not_convert")))
		return rc;
	if (strcmp(pack, "int32") != 0 && strcmp(pack, "torch.int32") != 0)
		return err_why(r->why, -ENOTSUP, "pack_dtype %.40s is not supported (only int32)", pack);
	if (strcmp(type, "int") != 0)
		return err_why(r->why, -ENOTSUP, "data_type %.40s is not supported (only int)", type);
	if ((rc = add_gptq(r, o, bits, group)))
		return rc;
	return read_rules(r, o, rules, bits, group);
}

static int read_gptq(const struct reader *r, const json_t *o)
{
	const char *format = NULL;
	bool marlin = false;
	int rc;
	snprintf(r->q->name, sizeof r->q->name, "%s", "GPTQ");
	r->q->layout = QUANT_GPTQ;
	if ((rc = get_str(r, o, "format", &format)) || (rc = get_str(r, o, "checkpoint_format", &format)) ||
	    (rc = get_bool(r, o, "is_marlin_format", &marlin)))
		return rc;
	if (marlin)
		format = "marlin";
	if (format && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
		return err_why(r->why, -ENOTSUP,
			       "GPTQ format %.40s is not supported (supported: gptq, gptq_v2)", format);
	r->q->zeros_less_one = !format || strcmp(format, "gptq") == 0;
	return read_gptq_fields(r, o, "dynamic");
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
		r->q->layout = formats[i].layout;
		r->q->zeros_less_one = formats[i].less_one;
		return read_gptq_fields(r, o, "extra_config");
	}
	return err_why(r->why, -ENOTSUP,
		       "AutoRound packing_format %.40s is not supported (supported: auto_round:auto_gptq, "
		       "auto_round:gptqmodel, auto_round:auto_awq)",
		       format ? format : "(none named)");
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
	if (!rc && s.group < 0)
		rc = add_scheme(r, (struct quant_scheme){8, -1, s.block_n ? 0 : 1});
	return rc;
}

static int read_fp8(const struct reader *r, const json_t *o)
{
	struct quant_scheme s = {8, -1, 1};
	const char *fmt = "e4m3", *activations = "dynamic";
	int rc;
	snprintf(r->q->name, sizeof r->q->name, "%s", "FP8");
	r->q->layout = QUANT_FP8;
	r->q->own_activations = true;
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

/* Read "weights" of a config group. */
static int read_ct_weights(const struct reader *r, const json_t *w)
{
	const char *type = "int", *strategy = NULL;
	struct quant_scheme s = {8, -1, 1};
	int rc;
	if ((rc = get_int(r, w, "num_bits", 1, 64, &s.bits)) || (rc = get_str(r, w, "type", &type)) ||
	    (rc = get_str(r, w, "strategy", &strategy)) ||
	    (rc = get_int(r, w, "group_size", -1, GROUP_MAX, &s.group)))
		return rc;
	if (!strategy)
		strategy = !json_get(w, "group_size") ? "tensor" : s.group > 0 ? "group" : "channel";
	const bool fp8 = r->q->layout == QUANT_FP8;
	if (strcmp(type, fp8 ? "float" : "int") != 0 ||
	    (r->q->layout == QUANT_PACKED ? s.bits < 2 || s.bits > 8 : s.bits != 8))
		return err_why(r->why, -ENOTSUP, "weights of type %.40s with %d bits are not supported in %s",
			       type, s.bits, r->q->name);
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

static int read_ct_group(const struct reader *r, const json_t *g)
{
	const json_t *weights, *in;
	const char *format = NULL;
	int rc;
	if (!json_is_object(g))
		return fail(r, -EINVAL, "must be an object");
	if ((rc = get_object(r, g, "weights", &weights)) ||
	    (rc = get_object(r, g, "input_activations", &in)) ||
	    (rc = refuse_unless_empty(r, g, "output_activations")) || (rc = check_names(r, g, "targets")) ||
	    (rc = get_str(r, g, "format", &format)))
		return rc;
	if (format && strcmp(format, r->q->name) != 0)
		return err_why(r->why, -ENOTSUP, "format %.40s together with %s is not supported", format,
			       r->q->name);
	r->q->own_activations |= in != NULL;
	return weights ? read_ct_weights(r, weights) : 0;
}

/* Read the format: that of the whole, or of the first group ("mixed-precision" has none of its own). */
static int read_ct_format(const struct reader *r, const json_t *o, const json_t *groups)
{
	static const struct {
		const char *name;
		enum quant_layout layout;
	} formats[] = {{"pack-quantized", QUANT_PACKED},
		       {"int-quantized", QUANT_INT8},
		       {"float-quantized", QUANT_FP8}};
	const char *format = NULL, *name, *type = "int";
	json_t *g;
	int rc;
	if ((rc = get_str(r, o, "format", &format)))
		return rc;
	json_object_foreach((json_t *)groups, name, g)
	{
		if ((!format || strcmp(format, "mixed-precision") == 0) && json_is_object(g) &&
		    (rc = get_str(r, g, "format", &format)))
			return rc;
		const json_t *w = json_is_object(g) ? json_get(g, "weights") : NULL;
		if (json_is_object(w) && (rc = get_str(r, w, "type", &type)))
			return rc;
	}
	if (format && strcmp(format, "naive-quantized") == 0)
		format = strcmp(type, "float") == 0 ? "float-quantized" : "int-quantized";
	for (size_t i = 0; format && i < sizeof formats / sizeof formats[0]; i++)
		if (strcmp(format, formats[i].name) == 0) {
			r->q->layout = formats[i].layout;
			snprintf(r->q->name, sizeof r->q->name, "%s", formats[i].name);
			return 0;
		}
	return err_why(
		r->why, -ENOTSUP,
		"compressed-tensors format %.40s is not supported (supported: pack-quantized, int-quantized, "
		"float-quantized)",
		format ? format : "(none named)");
}

static int read_ct(const struct reader *r, const json_t *o)
{
	const json_t *groups;
	const char *name;
	json_t *g;
	int rc;
	if ((rc = get_object(r, o, "config_groups", &groups)) || (rc = check_names(r, o, "ignore")) ||
	    (rc = refuse_unless_empty(r, o, "transform_config")) || (rc = check_sparsity(r, o)))
		return rc;
	if (!groups || json_object_size(groups) == 0)
		return fail(r, -EINVAL, "config_groups is missing");
	if ((rc = read_ct_format(r, o, groups)))
		return rc;
	r->q->own_kv_cache = json_get(o, "kv_cache_scheme") != NULL;
	json_object_foreach((json_t *)groups, name, g) if ((rc = read_ct_group(r, g))) return err_prefix(
		r->why, rc, "config_groups: %.40s", name);
	return r->q->n_schemes ? 0 : fail(r, -EINVAL, "no group of config_groups has weights");
}

/* ---- entry ---- */

/* Guess the quantization method by a key that only its files have; NULL: no such key.  Older programs did not
 * write the method. */
static const char *guess_method(const json_t *o)
{
	static const char *const marks[][2] = {
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
	};
	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
		if (json_object_get(o, marks[i][0]))
			return marks[i][1];
	return NULL;
}

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
	};
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		if (strcasecmp(method, methods[i].name) == 0) {
			r->q->method = methods[i].method;
			return methods[i].read(r, o);
		}
	}
	return err_why(r->why, -ENOTSUP,
		       "quantization method %.40s is not supported (supported: awq, gptq, auto-round, "
		       "compressed-tensors, fp8, mxfp4)",
		       method);
}

/* Read AutoGPTQ's or AutoAWQ's own file if config.json has no quantization_config.  *out: the caller's, or
 * NULL. */
static int read_own_file(const struct reader *r, const char *dir, json_t **out, const char **method)
{
	static const char *const files[][2] = {{"quantize_config.json", "gptq"},
					       {"quant_config.json", "awq"}};
	*out = NULL;
	for (size_t i = 0; dir && i < 2; i++) {
		char *path = file_join(dir, files[i][0]);
		const int rc = file_exists(path) ? json_read(path, OWN_FILE_MAX, out, r->why) : 0;
		free(path);
		if (rc)
			return rc;
		*method = files[i][1];
		if (*out)
			return json_is_object(*out)
				       ? 0
				       : err_why(r->why, -EINVAL, "%s must be an object", files[i][0]);
	}
	return 0;
}

int quant_config_read(const json_t *root, const char *dir, struct quant *out, struct why *why)
{
	static const char *const keys[] = {"quantization_config", "compression_config"};
	const struct reader r = {out, why};
	const char *key = json_get(root, keys[0]) ? keys[0] : keys[1], *method = NULL, *of_file = NULL;
	const json_t *o;
	json_t *file = NULL;
	int rc;
	memset(out, 0, sizeof *out);
	if (json_get(root, "quantization"))
		return fail(&r, -ENOTSUP,
			    "the key quantization (MLX packing) is not supported (supported: AWQ, GPTQ, "
			    "AutoRound, "
			    "compressed-tensors, FP8)");
	if (!json_get(root, key) && (rc = read_own_file(&r, dir, &file, &of_file))) {
		json_decref(file);
		return rc;
	}
	if (!(rc = get_object(&r, root, key, &o)) && (o = file ? file : o) &&
	    !(rc = get_str(&r, o, "quant_method", &method))) {
		method = method ? method : guess_method(o);
		method = method ? method : of_file;
		rc = read_method(&r, o, method ? method : "(none named)");
		if (file && rc)
			err_prefix(why, rc, "%s",
				   strcmp(of_file, "gptq") == 0 ? "quantize_config.json"
								: "quant_config.json");
	}
	json_decref(file);
	return rc;
}
