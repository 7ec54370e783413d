#include "formats/config.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/config_experts.h"
#include "formats/config_keys.h"
#include "formats/family.h"
#include "formats/pool_config.h"
#include "formats/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* Files being read, and the buffer for a message. */
struct reader {
	json_t *root; /* config.json, or its text_config with the keys of of_whole */
	json_t *gen;  /* generation_config.json, or NULL */
	const struct family *family;
	struct why *why;
};

static int fail(const struct reader *r, int err, const char *text)
{
	return err_why(r->why, err, "%s", text);
}

/* Read an integer as int; need: the key is required. */
static int get_int(const struct reader *r, const json_t *o, const char *key, int lo, int hi, bool need,
		   int *out)
{
	int64_t v = *out;
	if (need && !json_get(o, key))
		return err_why(r->why, -EINVAL, "%s is missing", key);
	int rc = json_get_int(o, key, lo, hi, &v, r->why);
	*out = (int)v;
	return rc;
}

/* Read a finite number in [lo, hi]. */
static int get_num(const struct reader *r, const json_t *o, const char *key, double lo, double hi,
		   double *out)
{
	double v = *out;
	int rc = json_get_num(o, key, &v, r->why);
	if (rc)
		return rc;
	if (json_get(o, key) && !(v >= lo && v <= hi))
		return err_why(r->why, -EINVAL, "%s is %g, must be from %g to %g", key, v, lo, hi);
	*out = v;
	return 0;
}

static int read_shape(const struct reader *r, struct model_config *c)
{
	const json_t *o = r->root;
	int rc = 0;
	if ((rc = get_int(r, o, "num_hidden_layers", 1, CONFIG_LAYERS_MAX, true, &c->n_layers)) ||
	    (rc = get_int(r, o, "hidden_size", 1, 1 << 17, true, &c->hidden)) ||
	    (rc = get_int(r, o, "num_attention_heads", 1, 4096, true, &c->n_heads)) ||
	    (rc = get_int(r, o, "vocab_size", 1, 1 << 22, true, &c->n_vocab)) ||
	    (rc = get_int(r, o, "max_position_embeddings", 1, 1 << 24, true, &c->max_position)) ||
	    (rc = get_int(r, o, "num_nextn_predict_layers", 0, CONFIG_LAYERS_MAX, false, &c->n_predict)))
		return rc;
	/* The usual size of a feed-forward layer without a gate, whose key may be missing. */
	double ratio = 4;
	if ((rc = get_num(r, o, "#ffn_ratio", 1e-3, 1e3, &ratio)))
		return rc;
	c->intermediate = r->family->ffn_plain ? (int)(ratio * c->hidden) : 0;
	if ((rc = get_int(r, o, "intermediate_size", 1, 1 << 20, !r->family->ffn_plain && !r->family->experts,
			  &c->intermediate)))
		return rc;
	bool one = false;
	if ((rc = json_get_bool(o, "#multi_query", &one, r->why)))
		return rc;
	c->n_kv_heads = one ? 1 : c->n_heads;
	if (!one && (rc = get_int(r, o, "num_key_value_heads", 1, c->n_heads, false, &c->n_kv_heads)))
		return rc;
	if (c->n_heads % c->n_kv_heads)
		return err_why(r->why, -EINVAL,
			       "num_attention_heads %d is not a multiple of num_key_value_heads %d",
			       c->n_heads, c->n_kv_heads);
	c->head_dim = c->hidden / c->n_heads;
	if (!json_get(o, "head_dim") && c->hidden % c->n_heads)
		return err_why(
			r->why, -EINVAL,
			"hidden_size %d is not a multiple of num_attention_heads %d, and head_dim is missing",
			c->hidden, c->n_heads);
	if ((rc = get_int(r, o, "head_dim", 2, 1024, false, &c->head_dim)))
		return rc;
	if (c->head_dim % 2 || c->head_dim < 2)
		return err_why(r->why, -EINVAL, "head_dim %d must be even", c->head_dim);
	double eps = 1e-6;
	if ((rc = get_num(r, o, "rms_norm_eps", 0, 1, &eps)))
		return rc;
	c->rms_eps = (float)eps;
	return 0;
}

static int read_act(const struct reader *r, struct model_config *c)
{
	static const struct {
		const char *name;
		enum config_act act;
	} acts[] = {{"silu", ACT_SILU},
		    {"swish", ACT_SILU},
		    {"gelu_pytorch_tanh", ACT_GELU_TANH},
		    {"gelu_new", ACT_GELU_TANH},
		    {"gelu_fast", ACT_GELU_TANH},
		    {"gelu", ACT_GELU},
		    {"relu", ACT_RELU},
		    {"relu2", ACT_RELU2},
		    {"xielu", ACT_XIELU}};
	const char *act = "silu";
	size_t i = 0;
	int rc = json_get_str(r->root, "hidden_act", &act, r->why);
	if (rc)
		return rc;
	while (i < sizeof acts / sizeof *acts && strcmp(act, acts[i].name) != 0)
		i++;
	if (i == sizeof acts / sizeof *acts)
		return err_why(r->why, -ENOTSUP,
			       "hidden_act %.40s is not supported (supported: silu, gelu_pytorch_tanh, gelu, "
			       "relu, relu2, xielu)",
			       act);
	c->act = acts[i].act;
	if (c->act == ACT_GELU && r->family->gelu_tanh)
		c->act = ACT_GELU_TANH;
	c->ffn_plain = r->family->ffn_plain;
	if (!c->ffn_plain && c->act != ACT_SILU && c->act != ACT_GELU_TANH)
		return err_why(r->why, -ENOTSUP,
			       "hidden_act %.40s of a gate is not supported (supported: silu, "
			       "gelu_pytorch_tanh)",
			       act);
	if (!r->family->clamped)
		return 0;
	double limit = 0;
	if ((rc = get_num(r, r->root, "swiglu_limit", 1e-3, 1e6, &limit)))
		return rc;
	c->act = ACT_GELU_SIGMOID;
	c->act_limit = (float)limit;
	c->up_plus = 1;
	return 0;
}

/* Read whether a layer has a bias: always, never, or by `key`, or else by `general`. */
static int read_bias(const struct reader *r, enum family_bias rule, const char *key, const char *general,
		     bool *out)
{
	*out = rule == BIAS_ALWAYS;
	if (rule != BIAS_BY_KEY)
		return 0;
	int rc = json_get_bool(r->root, general, out, r->why);
	return rc ? rc : json_get_bool(r->root, key, out, r->why);
}

static int read_biases(const struct reader *r, struct model_config *c)
{
	const struct family *f = r->family;
	int rc;
	if ((rc = read_bias(r, f->qkv_bias, "#qkv_bias", "attention_bias", &c->qkv_bias)) ||
	    (rc = read_bias(r, f->o_bias, "#o_bias", "attention_bias", &c->o_bias)) ||
	    (rc = read_bias(r, f->mlp_bias, "#mlp_bias", "mlp_bias", &c->mlp_bias)))
		return rc;
	return read_bias(r, f->head_bias, "#head_bias", "#head_bias", &c->head_bias);
}

/* Round v > 0 to the type. */
static float rounded(float v, enum config_dtype type)
{
	const int bits = type == CONFIG_BF16 ? 16 : type == CONFIG_F16 ? 13 : 0;
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	if (bits)
		u = (u + ((1u << (bits - 1)) - 1) + (u >> bits & 1)) >> bits << bits;
	memcpy(&v, &u, sizeof v);
	return v;
}

/* Read factors and limits.  A factor of 1 is none. */
static int read_factors_of(const struct reader *r, struct model_config *c)
{
	const struct {
		const char *key;
		float *to;
		bool factor;
	} all[] = {
		{"#embed_scale", &c->embed_scale, true}, {"#residual_scale", &c->residual_scale, true},
		{"#attn_scale", &c->attn_scale, false},  {"#attn_cap", &c->attn_cap, false},
		{"#logit_cap", &c->logit_cap, false},    {"#logit_scale", &c->logit_scale, true},
		{"#qkv_clip", &c->qkv_clip, false},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		double v = 0;
		const int rc = get_num(r, r->root, all[i].key, 1e-6, 1e6, &v);
		if (rc)
			return rc;
		*all[i].to = all[i].factor && v == 1 ? 0 : (float)v;
	}
	if (r->family->embed != EMBED_PLAIN)
		c->embed_scale = sqrtf((float)c->hidden);
	if (r->family->embed == EMBED_ROOT_ROUNDED) /* as transformers does */
		c->embed_scale = rounded(c->embed_scale, c->dtype);
	return 0;
}

/* Read what the norms are, and where. */
static int read_norms(const struct reader *r, struct model_config *c)
{
	const struct family *f = r->family;
	bool parallel = true, normed = true;
	int rc;
	if ((rc = json_get_bool(r->root, "#parallel", &parallel, r->why)) ||
	    (rc = json_get_bool(r->root, "#qk_norm", &normed, r->why)))
		return rc;
	c->norm = f->norm;
	c->norm_bias = f->norm_bias;
	c->norm_offset = f->norm_offset;
	c->block = parallel ? f->block : BLOCK_SERIAL;
	c->qk_norm = normed ? f->qk_norm : QK_NORM_NONE;
	c->qk_norm_after = f->qk_norm_after;
	c->qk_norm_bias = f->qk_norm_bias;
	return 0;
}

static int read_switches(const struct reader *r, struct model_config *c)
{
	const json_t *o = r->root;
	bool mrope = false, causal = true;
	int rc = 0;
	if ((rc = read_act(r, c)) || (rc = read_biases(r, c)) ||
	    (rc = json_get_bool(o, "tie_word_embeddings", &c->tied, r->why)) ||
	    (rc = json_get_bool(o, "use_mrope", &mrope, r->why)) ||
	    (rc = json_get_bool(o, "is_causal", &causal, r->why)))
		return rc;
	if (mrope)
		return fail(r, -ENOTSUP, "use_mrope is not supported");
	if (!causal) /* transformers reads this key for every class */
		return fail(r, -ENOTSUP, "is_causal false (tokens attend to later ones) is not supported");
	c->sinks = r->family->sinks;
	if ((rc = read_norms(r, c)))
		return rc;

	const char *dtype = NULL;
	if ((rc = json_get_str(o, "torch_dtype", &dtype, r->why)) ||
	    (!dtype && (rc = json_get_str(o, "dtype", &dtype, r->why))))
		return rc;
	if (!dtype || strcmp(dtype, "float32") == 0)
		c->dtype = CONFIG_F32;
	else if (strcmp(dtype, "float16") == 0)
		c->dtype = CONFIG_F16;
	else if (strcmp(dtype, "bfloat16") == 0)
		c->dtype = CONFIG_BF16;
	else
		return err_why(r->why, -ENOTSUP, "torch_dtype %.40s is not supported", dtype);
	return 0;
}

/* ---- sliding window ---- */

/* Read layer_types if given.  A layer of "sliding_attention" gets a window of 1 until the size is known. */
static int read_layer_types(const struct reader *r, struct model_config *c, bool *there)
{
	const json_t *types = json_get(r->root, "layer_types");
	*there = types != NULL;
	if (!types)
		return 0;
	if (!json_is_array(types) || json_array_size(types) != (size_t)c->n_layers)
		return err_why(r->why, -EINVAL, "layer_types must be a list of %d names", c->n_layers);
	for (int i = 0; i < c->n_layers; i++) {
		const char *t = json_string_value(json_array_get(types, (size_t)i));
		if (t && (strcmp(t, "sliding_attention") == 0 || strcmp(t, "local") == 0))
			c->layers[i].window = 1;
		else if (!t || (strcmp(t, "full_attention") != 0 && strcmp(t, "global") != 0))
			return err_why(r->why, -ENOTSUP, "layer_types[%d] %.40s is not supported", i,
				       t ? t : "(not a string)");
	}
	return 0;
}

static bool any_window(const struct model_config *c)
{
	for (int i = 0; i < c->n_layers; i++)
		if (c->layers[i].window)
			return true;
	return false;
}

/* Apply the window to all layers or to none. */
static int window_all(const struct reader *r, struct model_config *c, bool typed)
{
	for (int i = 0; typed && i < c->n_layers; i++)
		if (c->layers[i].window != c->layers[0].window)
			return err_why(r->why, -ENOTSUP,
				       "layer_types of more than one kind is not supported for %s",
				       c->arch_name);
	if (typed && (c->layers[0].window != 0) != (c->window != 0))
		return fail(r, -EINVAL, "layer_types and sliding_window contradict each other");
	for (int i = 0; i < c->n_layers; i++)
		c->layers[i].window = c->window != 0;
	return 0;
}

static int window_switch(const struct reader *r, struct model_config *c, bool typed)
{
	bool use = false;
	int first = 0;
	int rc = json_get_bool(r->root, "use_sliding_window", &use, r->why);
	if (rc)
		return rc;
	if (!use && any_window(c))
		return fail(r, -EINVAL,
			    "layer_types names sliding_attention, but use_sliding_window is false");
	if (use && !c->window && any_window(c))
		return fail(r, -EINVAL, "layer_types names sliding_attention, but sliding_window is null");
	if (!use || !c->window || typed)
		return 0;
	if ((rc = get_int(r, r->root, "max_window_layers", 0, 1 << 20, false, &first)))
		return rc;
	for (int i = 0; i < c->n_layers; i++)
		c->layers[i].window = i >= first;
	return 0;
}

static int window_pattern(const struct reader *r, struct model_config *c, bool typed)
{
	int every = 1, rc;
	if (!typed && (rc = get_int(r, r->root, "sliding_window_pattern", 1, 1 << 20, true, &every)))
		return rc;
	for (int i = 0; !typed && c->window && i < c->n_layers; i++)
		c->layers[i].window = (i + 1) % every != 0;
	if (!c->window && any_window(c))
		return fail(r, -EINVAL, "layer_types names sliding_attention, but sliding_window is null");
	return 0;
}

/* By layer_types, or for layers from `first` on. */
static int window_from(const struct reader *r, struct model_config *c, bool typed, int first)
{
	for (int i = first; !typed && c->window && i < c->n_layers; i++)
		c->layers[i].window = 1;
	if (!c->window && any_window(c))
		return fail(r, -EINVAL, "layer_types names sliding_attention, but sliding_window is null");
	return 0;
}

/* Mark the layers with a window. */
static int read_windowed(const struct reader *r, struct model_config *c, bool typed)
{
	int first = 0, rc;
	switch (r->family->window) {
	case WINDOW_ALL:
		return window_all(r, c, typed);
	case WINDOW_SWITCH:
		return window_switch(r, c, typed);
	case WINDOW_PATTERN:
		return window_pattern(r, c, typed);
	case WINDOW_FROM:
		rc = get_int(r, r->root, "max_window_layers", 0, 1 << 20, false, &first);
		return rc ? rc : window_from(r, c, typed, first);
	case WINDOW_LISTED:
		return window_from(r, c, typed, c->n_layers);
	default:
		return window_from(r, c, typed, 0);
	}
}

/* Refuse a window without layer_types, if the family needs them. */
static int check_typed(const struct reader *r, const struct model_config *c)
{
	const bool has_switch = r->family->window == WINDOW_SWITCH;
	bool use = !has_switch;
	const int rc = has_switch ? json_get_bool(r->root, "use_sliding_window", &use, r->why) : 0;
	if (rc || !r->family->window_typed || !use || (!has_switch && !c->window))
		return rc;
	return err_why(r->why, -ENOTSUP, "sliding_window without layer_types is not supported for %s",
		       c->arch_name);
}

/* Read the sliding window.  Its size is checked only if a layer uses it: use_sliding_window and layer_types
 * can turn it off. */
static int read_window(const struct reader *r, struct model_config *c)
{
	enum { WINDOW_MAX = 1 << 30 };
	int64_t size = 0;
	bool typed;
	int rc = read_layer_types(r, c, &typed);
	if (rc)
		return rc;
	if (r->family->window == WINDOW_NONE)
		return any_window(c) ? err_why(r->why, -ENOTSUP,
					       "layer_types with sliding_attention is not supported for %s",
					       c->arch_name)
				     : 0;
	if ((rc = json_get_int(r->root, "sliding_window", INT64_MIN, INT64_MAX, &size, r->why)))
		return rc;
	const bool good = size >= 1 && size <= WINDOW_MAX;
	c->window = good ? (int)size : json_get(r->root, "sliding_window") ? -1 : 0;
	rc = typed ? 0 : check_typed(r, c);
	if (!rc)
		rc = read_windowed(r, c, typed);
	if (!any_window(c))
		c->window = 0;
	for (int i = 0; i < c->n_layers; i++)
		c->layers[i].window = c->layers[i].window ? c->window : 0;
	return rc || c->window >= 0 ? rc
				    : err_why(r->why, -EINVAL, "sliding_window is %lld, must be from 1 to %d",
					      (long long)size, WINDOW_MAX);
}

/* ---- RoPE ---- */

static int read_factors(const struct reader *r, const json_t *o, const char *key, int n, double **out)
{
	const json_t *a = json_get(o, key);
	if (!a || !json_is_array(a) || json_array_size(a) != (size_t)n)
		return err_why(r->why, -EINVAL, "%s of longrope must be a list of %d numbers", key, n);
	*out = xcalloc((size_t)n, sizeof **out);
	for (int i = 0; i < n; i++) {
		const json_t *v = json_array_get(a, (size_t)i);
		(*out)[i] = json_number_value(v);
		if (!json_is_number(v) || !((*out)[i] > 0 && (*out)[i] <= 1e9))
			return err_why(r->why, -EINVAL, "%s[%d] must be a number from 0 to 1e9", key, i);
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
	    (rc = json_get_bool(o, "truncate", &c->yarn_truncate, r->why)))
		return rc;
	if (c->yarn_beta_fast == 0)
		c->yarn_beta_fast = 32;
	if (c->yarn_beta_slow == 0)
		c->yarn_beta_slow = 1;
	if (c->rope_theta == 1)
		return fail(r, -EINVAL, "rope_theta of yarn must not be 1");
	/* If the file has only the context before scaling, derive the context after it. */
	double scaled = c->rope_original * c->rope_factor;
	if (scaled > c->max_position && scaled <= 1 << 24)
		c->max_position = (int)scaled;
	return 0;
}

/* Read alpha (Hunyuan), which only changes the base. */
static int read_alpha(const struct reader *r, const json_t *o, struct model_config *c)
{
	double alpha = 1;
	const int rc = get_num(r, o, "alpha", 1e-3, 1e9, &alpha);
	if (rc)
		return rc;
	if (c->rope_dim < 4)
		return fail(r, -EINVAL, "head_dim must be at least 4 with dynamic rope");
	c->rope = ROPE_NONE;
	c->rope_theta *= pow(alpha, (double)c->rope_dim / (c->rope_dim - 2));
	return 0;
}

/* Read the attention factors of short and long texts, which must be equal. */
static int read_mscale(const struct reader *r, const json_t *o, struct model_config *c)
{
	double of_short = 0, of_long = 0;
	int rc;
	if (!json_get(o, "short_mscale") || !json_get(o, "long_mscale"))
		return fail(r, -EINVAL, "short_mscale or long_mscale of longrope is missing");
	if ((rc = get_num(r, o, "short_mscale", 1e-3, 1e3, &of_short)) ||
	    (rc = get_num(r, o, "long_mscale", 1e-3, 1e3, &of_long)))
		return rc;
	if (of_short != of_long)
		return err_why(r->why, -ENOTSUP,
			       "short_mscale %g and long_mscale %g differ, which is not supported", of_short,
			       of_long);
	c->yarn_attention_factor = of_long;
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
		if (c->rope != ROPE_YARN && c->rope != ROPE_LONGROPE &&
		    !(r->family->ntk_alpha && json_get(o, "alpha")))
			return err_why(r->why, -EINVAL, "factor of rope type %s is missing", type);
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
		if (r->family->rope_mscale && (rc = read_mscale(r, o, c)))
			return rc;
		if (c->rope_original < 2)
			return fail(r, -EINVAL,
				    "original_max_position_embeddings of longrope must be at least 2");
		if ((rc = read_factors(r, o, "short_factor", c->rope_dim / 2, &c->long_short)))
			return rc;
		return read_factors(r, o, "long_factor", c->rope_dim / 2, &c->long_long);
	case ROPE_DYNAMIC:
		if (r->family->ntk_alpha && json_get(o, "alpha"))
			return read_alpha(r, o, c);
		if (c->rope_dim < 4)
			return fail(r, -EINVAL, "head_dim must be at least 4 with dynamic rope");
		return 0;
	default:
		return 0;
	}
}

/* Mark layers without rotation: those with 0 in no_rope_layers, or every no_rope_layer_interval-th layer. */
static int read_no_rope(const struct reader *r, struct model_config *c)
{
	const json_t *list = json_get(r->root, "no_rope_layers");
	int every = 0, rc;
	if (!list && (rc = get_int(r, r->root, "no_rope_layer_interval", 1, 1 << 20, false, &every)))
		return rc;
	if (list && (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layers))
		return err_why(r->why, -EINVAL, "no_rope_layers must be a list of %d numbers", c->n_layers);
	for (int i = 0; i < c->n_layers; i++) {
		const json_t *v = list ? json_array_get(list, (size_t)i) : NULL;
		if (v && !json_is_integer(v))
			return err_why(r->why, -EINVAL, "no_rope_layers[%d] must be 0 or 1", i);
		if (v ? !json_integer_value(v) : (i + 1) % every == 0)
			c->layers[i].rope = LAYER_ROPE_NONE;
	}
	return 0;
}

/* Return whether the row's rule leaves a layer without rotation.  NOPE_KEYS and NOPE_NULL depend on keys that
 * read_no_rope() and read_layer_ropes() look at. */
static bool is_nope(const struct reader *r, const struct config_layer *l)
{
	switch (r->family->nope) {
	case NOPE_FULL:
		return !l->window && json_get(r->root, "sliding_window");
	case NOPE_ALWAYS:
		return !l->window;
	case NOPE_SPARSE:
		return !l->window && l->sparse;
	default:
		return false;
	}
}

/* Mark the layers without rotation.  Learned positions or ALiBi take its place in all layers. */
static int read_nope(const struct reader *r, struct model_config *c)
{
	const struct family *f = r->family;
	bool alibi = f->alibi;
	int rc;
	if (alibi && (rc = json_get_bool(r->root, "#alibi", &alibi, r->why)))
		return rc;
	c->alibi_max = alibi ? 8 : 0;
	c->alibi_scaled = alibi && f->alibi_scaled;
	c->learned = f->learned || f->sines;
	for (int i = 0; i < c->n_layers; i++)
		if (c->learned || alibi || is_nope(r, &c->layers[i]))
			c->layers[i].rope = LAYER_ROPE_NONE;
	return f->nope == NOPE_KEYS ? read_no_rope(r, c) : 0;
}

/* Read the RoPE base of each layer, of which there are at most two.  *theta: the base of the layers with
 * LAYER_ROPE. */
static int read_layer_thetas(const struct reader *r, struct model_config *c, double *theta)
{
	const json_t *list = json_get(r->root, "#layer_thetas");
	double first = 0;
	if (list && json_is_array(list) && json_array_size(list) != (size_t)c->n_layers)
		return err_why(r->why, -EINVAL, "layer_rope_theta must be a list of %d numbers", c->n_layers);
	for (int i = 0; list && i < c->n_layers; i++) {
		const json_t *v = json_is_array(list) ? json_array_get(list, (size_t)i) : list;
		const double base = json_number_value(v);
		if (!json_is_number(v) || (base != 0 && !(base >= 1e-3 && base <= 1e15)))
			return err_why(r->why, -EINVAL,
				       "layer_rope_theta[%d] must be 0, or from 1e-3 to 1e15", i);
		first = first > 0 ? first : base;
		if (base != 0 && base != first && c->rope_local_theta > 0 && base != c->rope_local_theta)
			return fail(r, -ENOTSUP, "layer_rope_theta of more than two bases is not supported");
		if (base != 0 && base != first)
			c->rope_local_theta = base;
		c->layers[i].rope = base == 0       ? LAYER_ROPE_NONE
				    : base == first ? LAYER_ROPE
						    : LAYER_ROPE_LOCAL;
	}
	*theta = first > 0 ? first : *theta;
	return 0;
}

/* Return whether rope_parameters has null for a type of layers that the family then does not rotate. */
static bool is_null(const struct reader *r, const json_t *o, const char *type)
{
	return r->family->nope == NOPE_NULL && json_is_null(json_object_get(o, type));
}

/* Set the rotation of each layer.  *o: rope_parameters; becomes the object that applies to most layers. */
static int read_layer_ropes(const struct reader *r, struct model_config *c, const json_t **o)
{
	const json_t *full = *o ? json_get(*o, "full_attention") : NULL,
		     *local = *o ? json_get(*o, "sliding_attention") : NULL;
	const bool no_full = is_null(r, *o, "full_attention"), no_local = is_null(r, *o, "sliding_attention");
	const char *type = "default";
	int rc = read_nope(r, c);
	if (rc)
		return rc;
	if ((full || local) && !r->family->rope_by_layer)
		return fail(r, -ENOTSUP, "rope_parameters by layer type are not supported");
	if (!r->family->rope_by_layer)
		return 0;
	if ((full && !json_is_object(full)) || (local && !json_is_object(local)))
		return fail(r, -EINVAL, "rope_parameters must have an object for each type of layer");
	for (int i = 0; i < c->n_layers; i++)
		c->layers[i].rope = c->layers[i].window ? LAYER_ROPE_LOCAL : LAYER_ROPE;
	for (int i = 0; i < c->n_layers; i++)
		if (c->layers[i].window ? no_local : no_full)
			c->layers[i].rope = LAYER_ROPE_NONE;
	if ((rc = get_num(r, r->root, "rope_local_base_freq", 1e-3, 1e15, &c->rope_local_theta)) ||
	    (local && (rc = get_num(r, local, "rope_theta", 1e-3, 1e15, &c->rope_local_theta))) ||
	    (local && (rc = json_get_str(local, "rope_type", &type, r->why))))
		return rc;
	if (strcmp(type, "default") != 0)
		return err_why(r->why, -ENOTSUP,
			       "rope type %.40s of sliding_attention is not supported (only default)", type);
	if (full || local)
		*o = full;
	return 0;
}

static int read_rope(const struct reader *r, struct model_config *c)
{
	static const struct {
		const char *name;
		enum config_rope id;
	} types[] = {
		{"default", ROPE_NONE},  {"linear", ROPE_LINEAR}, {"dynamic", ROPE_DYNAMIC},
		{"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN},     {"longrope", ROPE_LONGROPE},
		{"su", ROPE_LONGROPE},   {"mrope", ROPE_NONE}, /* all parts of a text have one position */
	};
	const json_t *o = json_get(r->root, "rope_scaling");
	const bool older = o && !(json_is_object(o) && json_object_size(o) == 0);
	if (!older)
		o = json_get(r->root, "rope_parameters");
	if (o && !json_is_object(o))
		return err_why(r->why, -EINVAL, "%s must be an object",
			       older ? "rope_scaling" : "rope_parameters");
	double partial = 1;
	int rc = read_layer_ropes(r, c, &o);
	c->rope_theta = 10000;
	if (rc || (rc = get_num(r, r->root, "rope_theta", 1e-3, 1e15, &c->rope_theta)) ||
	    (o && (rc = get_num(r, o, "rope_theta", 1e-3, 1e15, &c->rope_theta))) ||
	    (rc = get_num(r, r->root, "partial_rotary_factor", 0, 1, &partial)) ||
	    (o && (rc = get_num(r, o, "partial_rotary_factor", 0, 1, &partial))))
		return rc;
	if ((rc = read_layer_thetas(r, c, &c->rope_theta)))
		return rc;
	if (partial != 1 && !r->family->partial)
		return fail(r, -ENOTSUP, "partial_rotary_factor is not supported");
	c->rope_dim = (int)(c->head_dim * partial);
	if (!(o && json_get(o, "partial_rotary_factor")) &&
	    (rc = get_int(r, r->root, "#rope_dim", 2, c->head_dim, false, &c->rope_dim)))
		return rc;
	if (r->family->rope_by_layer && c->rope_local_theta == 0)
		c->rope_local_theta = c->rope_theta;
	if (c->learned || c->alibi_max > 0)
		c->rope_dim = c->head_dim;
	c->rope_pairs = r->family->rope_pairs;
	c->rope_reversed = r->family->rope_reversed;
	if (c->rope_dim % 2 || c->rope_dim < 2)
		return err_why(r->why, -EINVAL,
			       "partial_rotary_factor %g leaves %d of %d values of a head to rotate: an even "
			       "number is needed",
			       partial, c->rope_dim, c->head_dim);
	if (!o)
		return 0;
	double beta = 0;
	if (r->family->q_scaled && (rc = get_num(r, o, "llama_4_scaling_beta", 0, 1e3, &beta)))
		return rc;
	if (beta != 0) {
		c->q_scale_beta = (float)beta;
		if ((rc = get_int(r, o, "original_max_position_embeddings", 1, 1 << 24, true,
				  &c->q_scale_floor)))
			return rc;
	}
	const char *type = "default";
	if ((rc = json_get_str(o, "type", &type, r->why)) ||
	    (rc = json_get_str(o, "rope_type", &type, r->why)))
		return rc;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		if (strcmp(type, types[i].name) != 0)
			continue;
		c->rope = types[i].id;
		if (r->family->rope_mscale && c->rope != ROPE_NONE && c->rope != ROPE_LONGROPE)
			return err_why(r->why, -ENOTSUP,
				       "rope type %s is not supported for %s (supported: default, longrope)",
				       type, c->arch_name);
		if (c->rope != ROPE_NONE && c->rope_local_theta > 0 && !r->family->rope_by_layer)
			return fail(r, -ENOTSUP, "a rope type with two bases is not supported");
		return c->rope == ROPE_NONE ? 0 : read_scaling(r, o, type, c);
	}
	return err_why(r->why, -ENOTSUP,
		       "rope type %.40s is not supported (supported: default, linear, dynamic, llama3, yarn, "
		       "longrope)",
		       type);
}

/* ---- tokens and generation defaults ---- */

static int read_id(const struct reader *r, const struct model_config *c, const char *key, const json_t *v,
		   int64_t *out)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= c->n_vocab)
		return err_why(r->why, -EINVAL, "%s must be a token id below %d", key, c->n_vocab);
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
		return err_why(r->why, -EINVAL, "eos_token_id has %zu ids, at most %d are accepted",
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
	    (rc = json_get_int(r->gen, "top_k", -1, INT32_MAX, &c->gen_top_k, r->why)) ||
	    (rc = json_get_int(r->gen, "max_new_tokens", 1, INT32_MAX, &c->gen_max_new_tokens, r->why)) ||
	    (rc = json_get_bool(r->gen, "do_sample", &sample, r->why)))
		return rc;
	if (!sample)
		c->gen_temperature = 0;
	return 0;
}

/* ---- entry ---- */

/* If model_type is another architecture's, the tensors' names decide whether the model is supported. */
static int check_type(const struct reader *r, const char *dir, const struct model_config *c)
{
	const char *type = json_string_value(json_get(r->root, "model_type"));
	return !type || family_find(NULL, type) == r->family || family_is_also(r->family, type) ||
			       c->text_only
		       ? 0
		       : hf_weights_check_names(dir, c, type, r->why);
}

static int read_object(const char *path, json_t **out, struct why *why)
{
	int rc = json_read(path, CONFIG_BYTES_MAX, out, why);
	if (!rc && !json_is_object(*out)) {
		json_decref(*out);
		*out = NULL;
		rc = err_why(why, -EINVAL, "%s: not a JSON object", path);
	}
	return rc;
}

int hf_config_load(const char *dir, struct model_config *out, struct why *why)
{
	struct reader r = {.why = why};
	char *path = file_join(dir, "config.json");
	char *gen_path = file_join(dir, "generation_config.json");
	const char *at = path;
	memset(out, 0, sizeof *out);
	int rc = read_object(path, &r.root, why);
	if (rc)
		goto done;
	if (file_exists(gen_path) && (rc = read_object(gen_path, &r.gen, why)))
		goto done;
	rc = config_keys_read(&r.root, out, why);
	r.family = rc ? NULL : out->family; /* its own messages have the names of the file */
	if (rc || (rc = read_shape(&r, out)) || (rc = read_switches(&r, out)) ||
	    (rc = config_experts_read(r.root, r.family, out, why)) || (rc = read_factors_of(&r, out)) ||
	    (rc = read_window(&r, out)) || (rc = read_rope(&r, out)) ||
	    (rc = quant_config_read(r.root, dir, &out->quant, why)) || (rc = check_type(&r, dir, out))) {
		config_keys_name(r.family, why);
		err_prefix(why, rc, "%s", at);
		goto done;
	}
	model_config_plan(out);
	if ((rc = pool_config_read(dir, out, why)))
		goto done;
	if ((rc = read_tokens(&r, out)) || (rc = read_generation(&r, out)))
		err_prefix(why, rc, "%s", r.gen ? gen_path : path);
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
	quant_fini(&c->quant);
	memset(c, 0, sizeof *c);
}
