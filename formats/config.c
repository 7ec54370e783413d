#include "formats/config.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/config_experts.h"
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

/* ---- architecture ---- */

/* Keys that describe the whole model and not only its text_config.  The top-level value takes precedence;
 * text_config's is used if there is none.  All other keys come from text_config alone. */
static const char *const of_whole[] = {
	"architectures", "model_type",   "tie_word_embeddings", "torch_dtype",        "dtype",
	"bos_token_id",  "eos_token_id", "quantization_config", "compression_config", "quantization"};

/* Synonyms: different programs save the same value under these names. */
static const char *const synonyms[][3] = {
	{"num_experts", "num_local_experts", "n_routed_experts"},
	{"sliding_window_pattern", "_sliding_window_pattern"},
};

/* Replace the root by text_config, plus the keys of of_whole. */
static int take_text(struct reader *r)
{
	const json_t *text = json_object_get(r->root, "text_config");
	if (!text)
		return 0;
	if (!json_is_object(text))
		return fail(r, -EINVAL, "text_config must be an object");
	json_t *root = json_copy((json_t *)text);
	for (size_t i = 0; i < sizeof of_whole / sizeof *of_whole; i++)
		if (json_get(r->root, of_whole[i]))
			json_object_set(root, of_whole[i], json_get(r->root, of_whole[i]));
	json_decref(r->root);
	r->root = root;
	return 0;
}

/* Copy a value that has one of the synonyms to the others. */
static int join_synonyms(const struct reader *r)
{
	for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
		const char *const *names = synonyms[i], *from = NULL;
		for (int j = 0; j < 3 && names[j]; j++) {
			const json_t *v = json_get(r->root, names[j]);
			if (v && from && !json_equal(v, json_get(r->root, from)))
				return err_why(r->why, -EINVAL, "%s and %s contradict each other", from,
					       names[j]);
			from = v ? names[j] : from;
		}
		for (int j = 0; from && j < 3 && names[j]; j++)
			json_object_set(r->root, names[j], json_get(r->root, from));
	}
	return 0;
}

/* Complete the root so that it has every key under the names that this file reads. */
static int complete(struct reader *r)
{
	int rc = take_text(r);
	if (rc || (rc = join_synonyms(r)))
		return rc;
	/* RoPE's settings have two names with different contents: a default for one must not hide the
	 * other. */
	if (json_get(r->root, "rope_parameters") && !json_get(r->root, "rope_scaling"))
		json_object_set_new(r->root, "rope_scaling", json_null());
	json_t *defaults = r->family->defaults ? json_loads(r->family->defaults, 0, NULL) : NULL;
	if (defaults)
		json_object_update_missing(r->root, defaults);
	json_decref(defaults);
	return 0;
}

/* Find a family by the name of a decoder without a head, as embedding models are saved: "Qwen3Model". */
static const struct family *family_of_bare(const char *name, bool *bare)
{
	char whole[64];
	const size_t n = strlen(name), k = sizeof "Model" - 1;
	if (n <= k || n > sizeof whole - sizeof "ForCausalLM" || strcmp(name + n - k, "Model") != 0)
		return NULL;
	snprintf(whole, sizeof whole, "%.*sForCausalLM", (int)(n - k), name);
	const struct family *f = family_find(whole, NULL);
	*bare = f != NULL;
	return f;
}

/* Return whether the name is a classifier's: "Qwen3ForSequenceClassification", "LlamaForTokenClassification",
 * "InternLM2ForRewardModel". */
static bool classifies(const char *name)
{
	const char *head = strstr(name, "For");
	return head && (strstr(head, "Classification") || strstr(head, "RewardModel"));
}

static int read_arch(struct reader *r, struct model_config *c)
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
	int rc = json_get_str(r->root, "model_type", &type, r->why);
	if (rc)
		return rc;
	if (!name && !type)
		return fail(r, -EINVAL, "architectures and model_type are missing");
	r->family = family_find(name, type);
	if (!r->family && name)
		r->family = family_of_bare(name, &c->embeds);
	if (!r->family && name && classifies(name))
		return err_why(r->why, -ENOTSUP, "architecture %.100s: %s", name, CONFIG_CLASSIFIER);
	if (!r->family) {
		char near[160];
		return err_why(r->why, -ENOTSUP,
			       "architecture %.100s is not supported (%sall that are: docs/MODELS.md)",
			       name ? name : type, family_near(name ? name : type, near, sizeof near));
	}
	c->arch = r->family->id;
	snprintf(c->arch_name, sizeof c->arch_name, "%s", r->family->arch);
	c->text_only = json_get(r->root, "text_config") != NULL;
	return complete(r);
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
	    (rc = get_int(r, o, "max_position_embeddings", 1, 1 << 24, true, &c->max_position)) ||
	    (rc = get_int(r, o, "num_nextn_predict_layers", 0, CONFIG_LAYERS_MAX, false, &c->n_predict)))
		return rc;
	c->n_kv_heads = c->n_heads;
	if ((rc = get_int(r, o, "num_key_value_heads", 1, c->n_heads, false, &c->n_kv_heads)))
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

/* Read the activation function; Gemma has its own key in addition to the common one. */
static int read_act(const struct reader *r, struct model_config *c)
{
	const char *key = r->family->gemma && json_get(r->root, "hidden_activation") ? "hidden_activation"
										     : "hidden_act";
	const char *act = "silu";
	int rc = json_get_str(r->root, key, &act, r->why);
	if (rc)
		return rc;
	if (strcmp(act, "gelu_pytorch_tanh") == 0)
		c->act = ACT_GELU_TANH;
	else if (strcmp(act, "silu") != 0)
		return err_why(r->why, -ENOTSUP,
			       "%s %.40s is not supported (supported: silu, gelu_pytorch_tanh)", key, act);
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

static int read_biases(const struct reader *r, struct model_config *c)
{
	const struct family *f = r->family;
	bool attention = false, mlp = false;
	int rc;
	if (f->qkv_bias == BIAS_BY_KEY && (rc = json_get_bool(r->root, "attention_bias", &attention, r->why)))
		return rc;
	if (f->mlp_bias == BIAS_BY_KEY && (rc = json_get_bool(r->root, "mlp_bias", &mlp, r->why)))
		return rc;
	c->qkv_bias = attention || f->qkv_bias == BIAS_ALWAYS;
	c->o_bias = attention && f->o_bias == BIAS_BY_KEY;
	c->mlp_bias = mlp;
	return 0;
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

/* Read Gemma's settings.  The embedding's factor is rounded to the checkpoint's type, as in transformers. */
static int read_gemma(const struct reader *r, struct model_config *c)
{
	double attn = 0, logits = 0, scalar = c->head_dim;
	bool both_ways = false;
	int rc;
	if (!r->family->gemma)
		return 0;
	if ((rc = get_num(r, r->root, "attn_logit_softcapping", 1e-3, 1e6, &attn)) ||
	    (rc = get_num(r, r->root, "final_logit_softcapping", 1e-3, 1e6, &logits)) ||
	    (rc = get_num(r, r->root, "query_pre_attn_scalar", 1e-3, 1e6, &scalar)) ||
	    (rc = json_get_bool(r->root, "use_bidirectional_attention", &both_ways, r->why)))
		return rc;
	if (both_ways)
		return fail(r, -ENOTSUP, "use_bidirectional_attention is not supported");
	c->attn_cap = (float)attn;
	c->logit_cap = (float)logits;
	c->attn_scale = (float)(1 / sqrt(scalar));
	c->norm_offset = 1;
	c->embed_scale = rounded(sqrtf((float)c->hidden), c->dtype);
	return 0;
}

static int read_switches(const struct reader *r, struct model_config *c)
{
	const json_t *o = r->root;
	bool mrope = false;
	int rc = 0;
	if ((rc = read_act(r, c)) || (rc = read_biases(r, c)) ||
	    (rc = json_get_bool(o, "tie_word_embeddings", &c->tied, r->why)) ||
	    (rc = json_get_bool(o, "use_mrope", &mrope, r->why)))
		return rc;
	if (mrope)
		return fail(r, -ENOTSUP, "use_mrope is not supported");
	c->qk_norm = r->family->qk_norm;
	c->sinks = r->family->sinks;
	bool normed = !r->family->qk_norm_by_key;
	if (!normed && (rc = json_get_bool(o, "use_qk_norm", &normed, r->why)))
		return rc;
	if (!normed)
		c->qk_norm = QK_NORM_NONE;

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

/* Read layer_types if given: 1 for "sliding_attention". */
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
		if (t && strcmp(t, "sliding_attention") == 0)
			c->layer_window[i] = 1;
		else if (!t || strcmp(t, "full_attention") != 0)
			return err_why(r->why, -ENOTSUP, "layer_types[%d] %.40s is not supported", i,
				       t ? t : "(not a string)");
	}
	return 0;
}

static bool any_window(const struct model_config *c)
{
	for (int i = 0; i < c->n_layers; i++)
		if (c->layer_window[i])
			return true;
	return false;
}

/* Apply the window to all layers or to none. */
static int window_all(const struct reader *r, struct model_config *c, bool typed)
{
	for (int i = 0; typed && i < c->n_layers; i++)
		if (c->layer_window[i] != c->layer_window[0])
			return err_why(r->why, -ENOTSUP,
				       "layer_types of more than one kind is not supported for %s",
				       c->arch_name);
	if (typed && (c->layer_window[0] != 0) != (c->window != 0))
		return fail(r, -EINVAL, "layer_types and sliding_window contradict each other");
	memset(c->layer_window, c->window ? 1 : 0, (size_t)c->n_layers);
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
	if (use && !typed && r->family->no_rope)
		return fail(r, -ENOTSUP, "use_sliding_window without layer_types is not supported");
	if (!use || !c->window || typed)
		return 0;
	if ((rc = get_int(r, r->root, "max_window_layers", 0, 1 << 20, false, &first)))
		return rc;
	for (int i = 0; i < c->n_layers; i++)
		c->layer_window[i] = i >= first;
	return 0;
}

static int window_pattern(const struct reader *r, struct model_config *c, bool typed)
{
	int every = 1;
	int rc = get_int(r, r->root, "sliding_window_pattern", 1, 1 << 20, true, &every);
	if (rc)
		return rc;
	for (int i = 0; !typed && c->window && i < c->n_layers; i++)
		c->layer_window[i] = (i + 1) % every != 0;
	if (!c->window && any_window(c))
		return fail(r, -EINVAL, "layer_types names sliding_attention, but sliding_window is null");
	return 0;
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
	rc = r->family->window == WINDOW_ALL      ? window_all(r, c, typed)
	     : r->family->window == WINDOW_SWITCH ? window_switch(r, c, typed)
						  : window_pattern(r, c, typed);
	if (!any_window(c))
		c->window = 0;
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

/* Mark layers without rotation: those with 0 in no_rope_layers, or every no_rope_layer_interval-th layer. */
static int read_no_rope(const struct reader *r, struct model_config *c)
{
	const json_t *list = json_get(r->root, "no_rope_layers");
	int every = 0, rc;
	if (!r->family->no_rope)
		return 0;
	if (!list && (rc = get_int(r, r->root, "no_rope_layer_interval", 1, 1 << 20, false, &every)))
		return rc;
	if (list && (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layers))
		return err_why(r->why, -EINVAL, "no_rope_layers must be a list of %d numbers", c->n_layers);
	for (int i = 0; i < c->n_layers; i++) {
		const json_t *v = list ? json_array_get(list, (size_t)i) : NULL;
		if (v && !json_is_integer(v))
			return err_why(r->why, -EINVAL, "no_rope_layers[%d] must be 0 or 1", i);
		if (v ? !json_integer_value(v) : (i + 1) % every == 0)
			c->layer_rope[i] = LAYER_ROPE_NONE;
	}
	return 0;
}

/* Set the rotation of each layer.  *o: rope_parameters; becomes the object that applies to most layers. */
static int read_layer_ropes(const struct reader *r, struct model_config *c, const json_t **o)
{
	const json_t *full = *o ? json_get(*o, "full_attention") : NULL,
		     *local = *o ? json_get(*o, "sliding_attention") : NULL;
	const char *type = "default";
	int rc = read_no_rope(r, c);
	if (rc)
		return rc;
	if ((full || local) && !r->family->rope_by_layer)
		return fail(r, -ENOTSUP, "rope_parameters by layer type are not supported");
	if (!r->family->rope_by_layer)
		return 0;
	if ((full && !json_is_object(full)) || (local && !json_is_object(local)))
		return fail(r, -EINVAL, "rope_parameters must have an object for each type of layer");
	for (int i = 0; i < c->n_layers; i++)
		c->layer_rope[i] = c->layer_window[i] ? LAYER_ROPE_LOCAL : LAYER_ROPE;
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
		{"su", ROPE_LONGROPE},
	};
	const json_t *o = json_get(r->root, "rope_scaling");
	if (!o || (json_is_object(o) && json_object_size(o) == 0))
		o = json_get(r->root, "rope_parameters");
	if (o && !json_is_object(o))
		return fail(r, -EINVAL, "rope_scaling must be an object");
	double partial = 1;
	int rc = read_layer_ropes(r, c, &o);
	c->rope_theta = 10000;
	if (rc || (rc = get_num(r, r->root, "rope_theta", 1e-3, 1e15, &c->rope_theta)) ||
	    (o && (rc = get_num(r, o, "rope_theta", 1e-3, 1e15, &c->rope_theta))) ||
	    (rc = get_num(r, r->root, "partial_rotary_factor", 0, 1, &partial)) ||
	    (o && (rc = get_num(r, o, "partial_rotary_factor", 0, 1, &partial))))
		return rc;
	if (partial != 1 && !r->family->partial)
		return fail(r, -ENOTSUP, "partial_rotary_factor is not supported");
	c->rope_dim = (int)(c->head_dim * partial);
	c->rope_pairs = r->family->rope_pairs;
	if (c->rope_dim % 2 || c->rope_dim < 2)
		return err_why(r->why, -EINVAL,
			       "partial_rotary_factor %g leaves %d of %d values of a head to rotate: an even "
			       "number is needed",
			       partial, c->rope_dim, c->head_dim);
	if (!o)
		return 0;
	const char *type = "default";
	if ((rc = json_get_str(o, "type", &type, r->why)) ||
	    (rc = json_get_str(o, "rope_type", &type, r->why)))
		return rc;
	if (json_get(o, "mrope_section"))
		return fail(r, -ENOTSUP, "mrope_section is not supported");
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		if (strcmp(type, types[i].name) != 0)
			continue;
		c->rope = types[i].id;
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
	return !type || strcmp(type, r->family->type) == 0 ? 0 : hf_weights_check_names(dir, c, type, r->why);
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
	if ((rc = read_arch(&r, out)) || (rc = read_shape(&r, out)) || (rc = read_switches(&r, out)) ||
	    (rc = config_experts_read(r.root, r.family, out, why)) || (rc = read_gemma(&r, out)) ||
	    (rc = read_window(&r, out)) || (rc = read_rope(&r, out)) ||
	    (rc = quant_config_read(r.root, dir, &out->quant, why)) || (rc = check_type(&r, dir, out))) {
		err_prefix(why, rc, "%s", at);
		goto done;
	}
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
	memset(c, 0, sizeof *c);
}
