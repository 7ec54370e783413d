#include "formats/config.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* The files being read, and the buffer for a message. */
struct reader {
	json_t *root; /* config.json */
	json_t *gen;  /* generation_config.json, or NULL */
	char *why;
	size_t why_n;
};

static const struct {
	const char *arch, *type;
	enum config_arch id;
} families[] = {
	{"LlamaForCausalLM", "llama", ARCH_LLAMA},
	{"MistralForCausalLM", "mistral", ARCH_MISTRAL},
	{"Qwen2ForCausalLM", "qwen2", ARCH_QWEN2},
	{"Qwen3ForCausalLM", "qwen3", ARCH_QWEN3},
};

static int fail(const struct reader *r, int err, const char *text)
{
	return err_why(r->why, r->why_n, err, "%s", text);
}

/* An integer into an int; need: it is required. */
static int get_int(const struct reader *r, const json_t *o, const char *key, int lo, int hi, bool need,
		   int *out)
{
	int64_t v = *out;
	if (need && !json_get(o, key))
		return err_why(r->why, r->why_n, -EINVAL, "%s is missing", key);
	int rc = json_get_int(o, key, lo, hi, &v, r->why, r->why_n);
	*out = (int)v;
	return rc;
}

/* A finite number in [lo, hi]. */
static int get_num(const struct reader *r, const json_t *o, const char *key, double lo, double hi,
		   double *out)
{
	double v = *out;
	int rc = json_get_num(o, key, &v, r->why, r->why_n);
	if (rc)
		return rc;
	if (json_get(o, key) && !(v >= lo && v <= hi))
		return err_why(r->why, r->why_n, -EINVAL, "%s is %g, must be from %g to %g", key, v, lo, hi);
	*out = v;
	return 0;
}

/* ---- architecture ---- */

static int read_arch(const struct reader *r, struct model_config *c)
{
	const char *type = NULL;
	const char *name = NULL;
	const json_t *list = json_get(r->root, "architectures");
	if (list) {
		if (!json_is_array(list) || json_array_size(list) < 1 ||
		    !json_is_string(json_array_get(list, 0)))
			return fail(r, -EINVAL, "architectures must be a list of names");
		name = json_string_value(json_array_get(list, 0));
	}
	int rc = json_get_str(r->root, "model_type", &type, r->why, r->why_n);
	if (rc)
		return rc;
	if (!name && !type)
		return fail(r, -EINVAL, "architectures and model_type are missing");
	for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
		if (strcmp(name ? name : type, name ? families[i].arch : families[i].type) != 0)
			continue;
		c->arch = families[i].id;
		err_why(c->arch_name, sizeof c->arch_name, 0, "%s", families[i].arch);
		return 0;
	}
	return err_why(r->why, r->why_n, -ENOTSUP,
		       "architecture %.100s is not supported (supported: Llama, Mistral, Qwen2 and Qwen3 "
		       "ForCausalLM)",
		       name ? name : type);
}

static int read_shape(const struct reader *r, struct model_config *c)
{
	const json_t *o = r->root;
	int rc = 0;
	if ((rc = get_int(r, o, "num_hidden_layers", 1, CONFIG_LAYERS_MAX, true, &c->n_layers)) ||
	    (rc = get_int(r, o, "hidden_size", 1, 1 << 17, true, &c->hidden)) ||
	    (rc = get_int(r, o, "intermediate_size", 1, 1 << 20, true, &c->intermediate)) ||
	    (rc = get_int(r, o, "num_attention_heads", 1, 4096, true, &c->n_heads)) ||
	    (rc = get_int(r, o, "vocab_size", 1, 1 << 22, true, &c->n_vocab)) ||
	    (rc = get_int(r, o, "max_position_embeddings", 1, 1 << 24, true, &c->max_position)))
		return rc;
	c->n_kv_heads = c->n_heads;
	if ((rc = get_int(r, o, "num_key_value_heads", 1, c->n_heads, false, &c->n_kv_heads)))
		return rc;
	if (c->n_heads % c->n_kv_heads)
		return err_why(r->why, r->why_n, -EINVAL,
			       "num_attention_heads %d is not a multiple of num_key_value_heads %d",
			       c->n_heads, c->n_kv_heads);
	/* Qwen3's configuration has its own default; the others divide. */
	c->head_dim = c->arch == ARCH_QWEN3 ? 128 : c->hidden / c->n_heads;
	if (!json_get(o, "head_dim") && c->arch != ARCH_QWEN3 && c->hidden % c->n_heads)
		return err_why(
			r->why, r->why_n, -EINVAL,
			"hidden_size %d is not a multiple of num_attention_heads %d, and head_dim is missing",
			c->hidden, c->n_heads);
	if ((rc = get_int(r, o, "head_dim", 2, 1024, false, &c->head_dim)))
		return rc;
	if (c->head_dim % 2 || c->head_dim < 2)
		return err_why(r->why, r->why_n, -EINVAL, "head_dim %d must be even", c->head_dim);
	double eps = 1e-6;
	if ((rc = get_num(r, o, "rms_norm_eps", 0, 1, &eps)))
		return rc;
	c->rms_eps = (float)eps;
	return 0;
}

static int read_switches(const struct reader *r, struct model_config *c)
{
	const json_t *o = r->root;
	const char *act = "silu";
	bool attention_bias = false;
	bool mrope = false;
	int rc = 0;
	if ((rc = json_get_str(o, "hidden_act", &act, r->why, r->why_n)))
		return rc;
	if (strcmp(act, "silu") != 0)
		return err_why(r->why, r->why_n, -ENOTSUP, "hidden_act %.40s is not supported (only silu)",
			       act);
	if ((rc = json_get_bool(o, "tie_word_embeddings", &c->tied, r->why, r->why_n)) ||
	    (rc = json_get_bool(o, "use_mrope", &mrope, r->why, r->why_n)))
		return rc;
	if (mrope)
		return fail(r, -ENOTSUP, "use_mrope is not supported");
	if (c->arch == ARCH_LLAMA || c->arch == ARCH_QWEN3) {
		if ((rc = json_get_bool(o, "attention_bias", &attention_bias, r->why, r->why_n)))
			return rc;
		c->qkv_bias = c->o_bias = attention_bias;
	}
	if (c->arch == ARCH_LLAMA && (rc = json_get_bool(o, "mlp_bias", &c->mlp_bias, r->why, r->why_n)))
		return rc;
	if (c->arch == ARCH_QWEN2)
		c->qkv_bias = true;
	c->qk_norm = c->arch == ARCH_QWEN3;

	const char *dtype = NULL;
	if ((rc = json_get_str(o, "torch_dtype", &dtype, r->why, r->why_n)) ||
	    (!dtype && (rc = json_get_str(o, "dtype", &dtype, r->why, r->why_n))))
		return rc;
	if (!dtype || strcmp(dtype, "float32") == 0)
		c->dtype = CONFIG_F32;
	else if (strcmp(dtype, "float16") == 0)
		c->dtype = CONFIG_F16;
	else if (strcmp(dtype, "bfloat16") == 0)
		c->dtype = CONFIG_BF16;
	else
		return err_why(r->why, r->why_n, -ENOTSUP, "torch_dtype %.40s is not supported", dtype);
	return 0;
}

/* ---- sliding window ---- */

/* layer_types, if given: 1 for "sliding_attention". */
static int read_layer_types(const struct reader *r, struct model_config *c, bool *there)
{
	const json_t *types = json_get(r->root, "layer_types");
	*there = types != NULL;
	if (!types)
		return 0;
	if (!json_is_array(types) || json_array_size(types) != (size_t)c->n_layers)
		return err_why(r->why, r->why_n, -EINVAL, "layer_types must be a list of %d names",
			       c->n_layers);
	for (int i = 0; i < c->n_layers; i++) {
		const char *t = json_string_value(json_array_get(types, (size_t)i));
		if (t && strcmp(t, "sliding_attention") == 0)
			c->layer_window[i] = 1;
		else if (!t || strcmp(t, "full_attention") != 0)
			return err_why(r->why, r->why_n, -ENOTSUP, "layer_types[%d] %.40s is not supported",
				       i, t ? t : "(not a string)");
	}
	return 0;
}

/* Mistral: every layer; 4096 unless given (null: none).  Qwen2 and Qwen3, if use_sliding_window is set: by
 * layer_types, or the layers from max_window_layers on. */
static int read_window(const struct reader *r, struct model_config *c)
{
	bool typed, use = false;
	int window = 0, first = 28;
	int rc = read_layer_types(r, c, &typed);
	if (rc)
		return rc;
	bool sliding = false;
	for (int i = 0; i < c->n_layers; i++)
		sliding |= c->layer_window[i];
	if (c->arch == ARCH_LLAMA || c->arch == ARCH_MISTRAL) {
		if (sliding && c->arch == ARCH_LLAMA)
			return err_why(r->why, r->why_n, -ENOTSUP,
				       "layer_types with sliding_attention is not supported for %s",
				       c->arch_name);
		for (int i = 0; typed && i < c->n_layers; i++)
			if (c->layer_window[i] != c->layer_window[0])
				return fail(r, -ENOTSUP,
					    "layer_types of more than one kind is not supported for Mistral");
		if (c->arch == ARCH_LLAMA)
			return 0;
		if (!json_object_get(r->root, "sliding_window"))
			window = 4096;
		if ((rc = get_int(r, r->root, "sliding_window", 1, 1 << 30, false, &window)))
			return rc;
		if (typed && (c->layer_window[0] != 0) != (window != 0))
			return fail(r, -EINVAL, "layer_types and sliding_window contradict each other");
		memset(c->layer_window, window ? 1 : 0, (size_t)c->n_layers);
		c->window = window;
		return 0;
	}
	if ((rc = json_get_bool(r->root, "use_sliding_window", &use, r->why, r->why_n)))
		return rc;
	if (!use && sliding)
		return fail(r, -EINVAL,
			    "layer_types names sliding_attention, but use_sliding_window is false");
	if (!use)
		return 0;
	if (!json_object_get(r->root, "sliding_window"))
		window = 4096;
	if ((rc = get_int(r, r->root, "sliding_window", 1, 1 << 30, false, &window)) ||
	    (rc = get_int(r, r->root, "max_window_layers", 0, 1 << 20, false, &first)))
		return rc;
	if (!window) {
		if (sliding)
			return fail(r, -EINVAL,
				    "layer_types names sliding_attention, but sliding_window is null");
		return 0;
	}
	for (int i = 0; !typed && i < c->n_layers; i++)
		c->layer_window[i] = i >= first;
	for (int i = 0; i < c->n_layers; i++)
		if (c->layer_window[i])
			c->window = window;
	return 0;
}

/* ---- RoPE ---- */

static int read_factors(const struct reader *r, const json_t *o, const char *key, int n, double **out)
{
	const json_t *a = json_get(o, key);
	if (!a || !json_is_array(a) || json_array_size(a) != (size_t)n)
		return err_why(r->why, r->why_n, -EINVAL, "%s of longrope must be a list of %d numbers", key,
			       n);
	*out = xcalloc((size_t)n, sizeof **out);
	for (int i = 0; i < n; i++) {
		const json_t *v = json_array_get(a, (size_t)i);
		(*out)[i] = json_number_value(v);
		if (!json_is_number(v) || !((*out)[i] > 0 && (*out)[i] <= 1e9))
			return err_why(r->why, r->why_n, -EINVAL, "%s[%d] must be a number from 0 to 1e9",
				       key, i);
	}
	return 0;
}

static int read_yarn(const struct reader *r, const json_t *o, struct model_config *c)
{
	int rc;
	c->yarn_beta_fast = 32;
	c->yarn_beta_slow = 1;
	c->yarn_truncate = true;
	if ((rc = get_num(r, o, "beta_fast", 0, 1e6, &c->yarn_beta_fast)) ||
	    (rc = get_num(r, o, "beta_slow", 0, 1e6, &c->yarn_beta_slow)) ||
	    (rc = get_num(r, o, "mscale", 0, 1e6, &c->yarn_mscale)) ||
	    (rc = get_num(r, o, "mscale_all_dim", 0, 1e6, &c->yarn_mscale_all_dim)) ||
	    (rc = json_get_bool(o, "truncate", &c->yarn_truncate, r->why, r->why_n)))
		return rc;
	if (c->yarn_beta_fast == 0)
		c->yarn_beta_fast = 32;
	if (c->yarn_beta_slow == 0)
		c->yarn_beta_slow = 1;
	if (c->rope_theta == 1)
		return fail(r, -EINVAL, "rope_theta of yarn must not be 1");
	/* The context that the scaling was made for, if the file gives only the one before scaling. */
	double scaled = c->rope_original * c->rope_factor;
	if (scaled > c->max_position && scaled <= 1 << 24)
		c->max_position = (int)scaled;
	return 0;
}

static int read_scaling(const struct reader *r, const json_t *o, const char *type, struct model_config *c)
{
	const bool needs_original =
		c->rope == ROPE_LLAMA3 || c->rope == ROPE_YARN || c->rope == ROPE_LONGROPE;
	int rc;
	c->rope_original = c->max_position;
	if (needs_original) {
		const json_t *from = json_get(r->root, "original_max_position_embeddings") ? r->root : o;
		if ((rc = get_int(r, from, "original_max_position_embeddings", 1, 1 << 24, false,
				  &c->rope_original)))
			return rc;
	}
	if ((rc = get_num(r, o, "factor", 1e-3, 1e6, &c->rope_factor)) ||
	    (rc = get_num(r, o, "attention_factor", 0, 1e6, &c->yarn_attention_factor)))
		return rc;
	if (c->rope_factor <= 0) {
		if (c->rope != ROPE_YARN && c->rope != ROPE_LONGROPE)
			return err_why(r->why, r->why_n, -EINVAL, "factor of rope type %s is missing", type);
		c->rope_factor = (double)c->max_position / c->rope_original;
	}
	switch (c->rope) {
	case ROPE_LLAMA3:
		if ((rc = get_num(r, o, "low_freq_factor", 1e-6, 1e6, &c->rope_low)) ||
		    (rc = get_num(r, o, "high_freq_factor", 1e-6, 1e6, &c->rope_high)))
			return rc;
		if (!(c->rope_low > 0 && c->rope_high > c->rope_low))
			return fail(r, -EINVAL,
				    "high_freq_factor of llama3 must be larger than low_freq_factor");
		return 0;
	case ROPE_YARN:
		return read_yarn(r, o, c);
	case ROPE_LONGROPE:
		if (c->rope_original < 2)
			return fail(r, -EINVAL,
				    "original_max_position_embeddings of longrope must be at least 2");
		if ((rc = read_factors(r, o, "short_factor", c->rope_dim / 2, &c->long_short)))
			return rc;
		return read_factors(r, o, "long_factor", c->rope_dim / 2, &c->long_long);
	case ROPE_DYNAMIC:
		if (c->rope_dim < 4)
			return fail(r, -EINVAL, "head_dim must be at least 4 with dynamic rope");
		return 0;
	default:
		return 0;
	}
}

static int read_rope(const struct reader *r, struct model_config *c)
{
	static const struct {
		const char *name;
		enum config_rope id;
	} types[] = {
		{"default", ROPE_NONE},  {"linear", ROPE_LINEAR}, {"dynamic", ROPE_DYNAMIC},
		{"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN},     {"longrope", ROPE_LONGROPE},
		{"su", ROPE_LONGROPE},
	};
	const json_t *o = json_get(r->root, "rope_scaling");
	if (!o || (json_is_object(o) && json_object_size(o) == 0))
		o = json_get(r->root, "rope_parameters");
	if (o && !json_is_object(o))
		return fail(r, -EINVAL, "rope_scaling must be an object");
	if (o && (json_get(o, "full_attention") || json_get(o, "sliding_attention")))
		return fail(r, -ENOTSUP, "rope_parameters by layer type are not supported");
	c->rope_theta = 10000;
	c->rope_dim = c->head_dim;
	double partial = 1;
	int rc = 0;
	if ((rc = get_num(r, r->root, "rope_theta", 1e-3, 1e15, &c->rope_theta)) ||
	    (o && (rc = get_num(r, o, "rope_theta", 1e-3, 1e15, &c->rope_theta))) ||
	    (rc = get_num(r, r->root, "partial_rotary_factor", 0, 1, &partial)) ||
	    (o && (rc = get_num(r, o, "partial_rotary_factor", 0, 1, &partial))))
		return rc;
	if (partial != 1)
		return fail(r, -ENOTSUP, "partial_rotary_factor is not supported");
	if (!o)
		return 0;
	const char *type = "default";
	if ((rc = json_get_str(o, "type", &type, r->why, r->why_n)) ||
	    (rc = json_get_str(o, "rope_type", &type, r->why, r->why_n)))
		return rc;
	if (json_get(o, "mrope_section"))
		return fail(r, -ENOTSUP, "mrope_section is not supported");
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		if (strcmp(type, types[i].name) != 0)
			continue;
		c->rope = types[i].id;
		return c->rope == ROPE_NONE ? 0 : read_scaling(r, o, type, c);
	}
	return err_why(r->why, r->why_n, -ENOTSUP,
		       "rope type %.40s is not supported (supported: default, linear, dynamic, llama3, yarn, "
		       "longrope)",
		       type);
}

/* ---- tokens and generation defaults ---- */

static int read_id(const struct reader *r, const struct model_config *c, const char *key, const json_t *v,
		   int64_t *out)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= c->n_vocab)
		return err_why(r->why, r->why_n, -EINVAL, "%s must be a token id below %d", key, c->n_vocab);
	*out = json_integer_value(v);
	return 0;
}

static int read_eos(const struct reader *r, const json_t *v, struct model_config *c)
{
	int64_t id;
	int rc;
	if (!json_is_array(v)) {
		if ((rc = read_id(r, c, "eos_token_id", v, &id)))
			return rc;
		c->eos[c->n_eos++] = (uint32_t)id;
		return 0;
	}
	if (json_array_size(v) > CONFIG_EOS_MAX)
		return err_why(r->why, r->why_n, -EINVAL, "eos_token_id has %zu ids, at most %d are accepted",
			       json_array_size(v), CONFIG_EOS_MAX);
	for (size_t i = 0; i < json_array_size(v); i++) {
		if ((rc = read_id(r, c, "eos_token_id", json_array_get(v, i), &id)))
			return rc;
		c->eos[c->n_eos++] = (uint32_t)id;
	}
	return 0;
}

static int read_tokens(const struct reader *r, struct model_config *c)
{
	const json_t *eos = r->gen ? json_get(r->gen, "eos_token_id") : NULL;
	const json_t *bos = r->gen ? json_get(r->gen, "bos_token_id") : NULL;
	int rc = 0;
	c->bos = -1;
	if (!eos)
		eos = json_get(r->root, "eos_token_id");
	if (!bos)
		bos = json_get(r->root, "bos_token_id");
	if (eos && (rc = read_eos(r, eos, c)))
		return rc;
	return bos ? read_id(r, c, "bos_token_id", bos, &c->bos) : 0;
}

static int read_generation(const struct reader *r, struct model_config *c)
{
	bool sample = true;
	int rc;
	c->gen_temperature = c->gen_top_p = c->gen_min_p = c->gen_repetition = NAN;
	c->gen_top_k = c->gen_max_new_tokens = -1;
	if (!r->gen)
		return 0;
	if ((rc = get_num(r, r->gen, "temperature", 0, 1e4, &c->gen_temperature)) ||
	    (rc = get_num(r, r->gen, "top_p", 0, 1, &c->gen_top_p)) ||
	    (rc = get_num(r, r->gen, "min_p", 0, 1, &c->gen_min_p)) ||
	    (rc = get_num(r, r->gen, "repetition_penalty", 1e-6, 1e6, &c->gen_repetition)) ||
	    (rc = json_get_int(r->gen, "top_k", -1, INT32_MAX, &c->gen_top_k, r->why, r->why_n)) ||
	    (rc = json_get_int(r->gen, "max_new_tokens", 1, INT32_MAX, &c->gen_max_new_tokens, r->why,
			       r->why_n)) ||
	    (rc = json_get_bool(r->gen, "do_sample", &sample, r->why, r->why_n)))
		return rc;
	if (!sample)
		c->gen_temperature = 0;
	return 0;
}

/* ---- entry ---- */

static int read_object(const char *path, json_t **out, char *why, size_t why_n)
{
	int rc = json_read(path, CONFIG_BYTES_MAX, out, why, why_n);
	if (!rc && !json_is_object(*out)) {
		json_decref(*out);
		*out = NULL;
		rc = err_why(why, why_n, -EINVAL, "%s: not a JSON object", path);
	}
	return rc;
}

int hf_config_load(const char *dir, struct model_config *out, char *why, size_t why_n)
{
	struct reader r = {.why = why, .why_n = why_n};
	char *path = file_join(dir, "config.json");
	char *gen_path = file_join(dir, "generation_config.json");
	const char *at = path;
	memset(out, 0, sizeof *out);
	int rc = read_object(path, &r.root, why, why_n);
	if (rc)
		goto done;
	if (file_exists(gen_path) && (rc = read_object(gen_path, &r.gen, why, why_n)))
		goto done;
	if ((rc = read_arch(&r, out)) || (rc = read_shape(&r, out)) || (rc = read_switches(&r, out)) ||
	    (rc = read_window(&r, out)) || (rc = read_rope(&r, out)) ||
	    (rc = quant_config_read(r.root, &out->quant, why, why_n))) {
		err_prefix(why, why_n, rc, "%s", at);
		goto done;
	}
	if ((rc = read_tokens(&r, out)) || (rc = read_generation(&r, out)))
		err_prefix(why, why_n, rc, "%s", r.gen ? gen_path : path);
done:
	if (rc)
		model_config_fini(out);
	json_decref(r.root);
	json_decref(r.gen);
	free(path);
	free(gen_path);
	return rc;
}

void model_config_fini(struct model_config *c)
{
	free(c->long_short);
	free(c->long_long);
	memset(c, 0, sizeof *c);
}
