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

/* Find a key, or "object.key". */
static const json_t *find_key(const json_t *o, const char *key)
{
	char object[48];
	const char *dot = strchr(key, '.');
	if (!dot)
		return json_get(o, key);
	snprintf(object, sizeof object, "%.*s", (int)(dot - key), key);
	const json_t *in = json_get(o, object);
	return json_is_object(in) ? json_get(in, dot + 1) : NULL;
}

static bool all_alike(const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!json_is_integer(json_array_get(list, i)) ||
		    !json_equal(json_array_get(list, i), json_array_get(list, 0)))
			return false;
	return json_array_size(list) > 0;
}

/* Give each value of config.json the name that this file reads.  defaults: the values that config.json does not
 * have were added, and do not contradict it. */
static int rename_keys(const struct reader *r, bool defaults)
{
	for (size_t i = 0; i < sizeof r->family->keys / sizeof *r->family->keys; i++) {
		const struct family_key *k = &r->family->keys[i];
		const json_t *v = k->ours ? find_key(r->root, k->theirs) : NULL;
		const json_t *there = k->ours ? json_get(r->root, k->ours) : NULL;
		if (json_is_array(v) && all_alike(v)) /* one value for each layer */
			v = json_array_get(v, 0);
		if (!v)
			continue;
		if (defaults && there && k->how != KEY_FIRST)
			continue;
		if (k->how == KEY_SAME && there && !json_equal(v, there))
			return err_why(r->why, -EINVAL, "%s and %s contradict each other", k->ours,
				       k->theirs);
		if (k->how == KEY_SAME || k->how == KEY_FIRST) {
			json_object_set(r->root, k->ours, (json_t *)v);
			continue;
		}
		const double x = json_number_value(v);
		if (!json_is_number(v) || !(x >= 1e-9 && x <= 1e9))
			return err_why(r->why, -EINVAL, "%s must be a number from 1e-9 to 1e9", k->theirs);
		json_object_set_new(r->root, k->ours, json_real(k->how == KEY_INVERSE ? 1 / x : 1 / sqrt(x)));
	}
	return 0;
}

/* Refuse settings that quern does not compute: keys with other values than the row of the family requires. */
static int check_required(const struct reader *r)
{
	json_t *need = r->family->require ? json_loads(r->family->require, 0, NULL) : NULL;
	const char *key;
	json_t *v;
	int rc = 0;
	json_object_foreach(need, key, v)
	{
		const json_t *have = rc ? NULL : find_key(r->root, key);
		if (!have || json_equal(have, v))
			continue;
		char *is = json_dumps(have, JSON_ENCODE_ANY | JSON_COMPACT),
		     *only = json_dumps(v, JSON_ENCODE_ANY);
		rc = err_why(r->why, -ENOTSUP, "%s %.40s is not supported for %s (only %s)", key,
			     is ? is : "?", r->family->arch, only ? only : "?");
		free(is);
		free(only);
	}
	json_decref(need);
	return rc;
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

/* ---- keys that are not read ---- */

/* Keys that this file and config_experts.c read. */
static const char *const read_keys[] = {"architectures",
					"model_type",
					"text_config",
					"vision_config",
					"audio_config",
					"dtype",
					"torch_dtype",
					"tie_word_embeddings",
					"bos_token_id",
					"eos_token_id",
					"quantization",
					"quantization_config",
					"compression_config",
					"vocab_size",
					"hidden_size",
					"intermediate_size",
					"num_hidden_layers",
					"num_attention_heads",
					"num_key_value_heads",
					"head_dim",
					"hidden_act",
					"max_position_embeddings",
					"rms_norm_eps",
					"attention_bias",
					"mlp_bias",
					"layer_types",
					"sliding_window",
					"use_sliding_window",
					"max_window_layers",
					"sliding_window_pattern",
					"_sliding_window_pattern",
					"no_rope_layers",
					"no_rope_layer_interval",
					"rope_theta",
					"rope_scaling",
					"rope_parameters",
					"rope_local_base_freq",
					"partial_rotary_factor",
					"original_max_position_embeddings",
					"use_mrope",
					"swiglu_limit",
					"num_experts",
					"num_local_experts",
					"n_routed_experts",
					"num_experts_per_tok",
					"decoder_sparse_step",
					"mlp_only_layers",
					"mlp_layer_types",
					"first_k_dense_replace",
					"n_shared_experts",
					"n_group",
					"topk_group",
					"norm_topk_prob",
					"routed_scaling_factor",
					"num_nextn_predict_layers"};

/* Keys that do not change the results: settings of training, tokens of other modalities, notes of programs. */
static const char *const harmless_keys[] = {"transformers_version",
					    "use_cache",
					    "initializer_range",
					    "init_std",
					    "pad_token_id",
					    "sep_token_id",
					    "eod_token_id",
					    "decoder_start_token_id",
					    "attention_dropout",
					    "attn_pdrop",
					    "embd_pdrop",
					    "resid_pdrop",
					    "embedding_dropout",
					    "hidden_dropout",
					    "residual_dropout",
					    "classifier_dropout",
					    "dropout",
					    "output_router_logits",
					    "router_aux_loss_coef",
					    "router_jitter_noise",
					    "input_jitter_noise",
					    "pretraining_tp",
					    "auto_map",
					    "num_logits_to_keep",
					    "is_decoder",
					    "is_encoder_decoder",
					    "id2label",
					    "label2id",
					    "use_return_dict",
					    "return_dict",
					    "output_attentions",
					    "output_hidden_states",
					    "task_specific_params",
					    "gradient_checkpointing",
					    "bad_words_ids",
					    "n_ctx",
					    "summary_activation",
					    "summary_first_dropout",
					    "summary_proj_to_labels",
					    "summary_type",
					    "summary_use_proj",
					    "reorder_and_upcast_attn",
					    "attention_softmax_in_fp32",
					    "scale_attention_softmax_in_fp32",
					    "_name_or_path",
					    "_attn_implementation",
					    "_attn_implementation_autoset",
					    "unsloth_version",
					    "unsloth_fixed",
					    "rope_interleave",
					    "qk_head_dim",
					    "image_token_id",
					    "image_token_index",
					    "video_token_id",
					    "vision_start_token_id",
					    "vision_end_token_id",
					    "vision_token_id",
					    "boi_token_index",
					    "eoi_token_index",
					    "mm_tokens_per_image",
					    "spatial_merge_size",
					    "multimodal_projector_bias",
					    "projector_hidden_act",
					    "vision_feature_layer",
					    "vision_feature_select_strategy",
					    "num_mtp_layers",
					    "mtp_layer_types",
					    "mtp_mlp_layer_types",
					    "cache_implementation"};

static bool is_in(const char *key, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(key, list[i]) == 0)
			return true;
	return false;
}

/* Return whether the family's row names the key, or an object that contains it. */
static bool is_of_row(const struct family *f, const char *key)
{
	const size_t n = strlen(key);
	bool named = false;
	for (size_t i = 0; i < sizeof f->keys / sizeof *f->keys && f->keys[i].ours; i++)
		named |= strncmp(f->keys[i].theirs, key, n) == 0 &&
			 (f->keys[i].theirs[n] == '\0' || f->keys[i].theirs[n] == '.');
	const char *const texts[] = {f->require, f->defaults, f->when};
	for (size_t i = 0; i < sizeof texts / sizeof *texts && !named; i++) {
		json_t *o = texts[i] ? json_loads(texts[i], 0, NULL) : NULL;
		named = json_object_get(o, key) != NULL;
		json_decref(o);
	}
	return named;
}

/* List the keys of config.json that are neither read nor harmless, with their values: "logit_scale=0.5". */
static void list_unread(const struct reader *r, struct model_config *c)
{
	const char *key;
	json_t *v;
	size_t len = 0;
	json_object_foreach(r->root, key, v)
	{
		if (is_in(key, read_keys, sizeof read_keys / sizeof *read_keys) ||
		    is_in(key, harmless_keys, sizeof harmless_keys / sizeof *harmless_keys) ||
		    is_of_row(r->family, key) || json_is_null(v) || len >= sizeof c->unread)
			continue;
		char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
		len += (size_t)snprintf(c->unread + len, sizeof c->unread - len, "%s%.60s=%.40s",
					len ? " " : "", key, text ? text : "?");
		free(text);
	}
}

/* Complete the root so that it has every key under the names that this file reads. */
static int complete(struct reader *r, struct model_config *c)
{
	int rc = take_text(r);
	if (rc)
		return rc;
	list_unread(r, c);
	if ((rc = rename_keys(r, false)) || (rc = join_synonyms(r)) || (rc = check_required(r)))
		return rc;
	/* RoPE's settings have two names with different contents: a default for one must not hide the
	 * other. */
	if (json_get(r->root, "rope_parameters") && !json_get(r->root, "rope_scaling"))
		json_object_set_new(r->root, "rope_scaling", json_null());
	json_t *defaults = r->family->defaults ? json_loads(r->family->defaults, 0, NULL) : NULL;
	if (defaults)
		json_object_update_missing(r->root, defaults);
	json_decref(defaults);
	return rename_keys(r, true);
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

/* Return whether config.json has the values that a row of the table is for. */
static bool is_when(const struct reader *r, const struct family *f)
{
	json_t *want = f->when ? json_loads(f->when, 0, NULL) : NULL;
	const char *key;
	json_t *v;
	bool is = true;
	json_object_foreach(want, key, v)
	{
		const json_t *have = find_key(r->root, key);
		is = is && have && json_equal(have, v);
	}
	json_decref(want);
	return is;
}

/* Find the row of a family for this config.json: of several, the first with values that it has. */
static const struct family *family_row(const struct reader *r, const char *arch, const char *type)
{
	const char *name = arch ? arch : type;
	const struct family *f;
	for (size_t i = 0; (f = family_at(i)); i++)
		if (f->when && is_when(r, f) &&
		    (strcmp(name, arch ? f->arch : f->type) == 0 || family_is_also(f, name)))
			return f;
	f = family_find(arch, type);
	for (size_t i = 0; f && f->when; i++) {
		const struct family *other = family_at(i);
		if (!other)
			return NULL;
		if (!other->when && strcmp(other->type, f->type) == 0)
			f = other;
	}
	return f;
}

/* Find the family of the text part of an unknown model with other parts, by its model type. */
static const struct family *family_of_text(const struct reader *r)
{
	const json_t *text = json_get(r->root, "text_config");
	const char *type = json_is_object(text) ? json_string_value(json_get(text, "model_type")) : NULL;
	return type ? family_find(NULL, type) : NULL;
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
	r->family = family_row(r, name, type);
	if (!r->family && name)
		r->family = family_of_bare(name, &c->embeds);
	if (!r->family)
		r->family = family_of_text(r);
	if (!r->family && name && classifies(name))
		return err_why(r->why, -ENOTSUP, "architecture %.100s: %s", name, CONFIG_CLASSIFIER);
	if (!r->family) {
		char near[160];
		return err_why(r->why, -ENOTSUP,
			       "architecture %.100s is not supported (%sall that are: docs/MODELS.md)",
			       name ? name : type, family_near(name ? name : type, false, near, sizeof near));
	}
	c->family = r->family;
	snprintf(c->arch_name, sizeof c->arch_name, "%s", r->family->arch);
	c->text_only = json_get(r->root, "text_config") || json_get(r->root, "vision_config");
	return complete(r, c);
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
	c->intermediate = r->family->ffn_plain ? 4 * c->hidden : 0;
	if ((rc = get_int(r, o, "intermediate_size", 1, 1 << 20, !r->family->ffn_plain && !r->family->experts,
			  &c->intermediate)))
		return rc;
	bool one = false;
	if ((rc = json_get_bool(o, "#multi_query", &one, r->why)))
		return rc;
	c->n_kv_heads = one ? 1 : c->n_heads;
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
	bool mrope = false;
	int rc = 0;
	if ((rc = read_act(r, c)) || (rc = read_biases(r, c)) ||
	    (rc = json_get_bool(o, "tie_word_embeddings", &c->tied, r->why)) ||
	    (rc = json_get_bool(o, "use_mrope", &mrope, r->why)))
		return rc;
	if (mrope)
		return fail(r, -ENOTSUP, "use_mrope is not supported");
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
	if (use && !typed && r->family->nope == NOPE_KEYS)
		return fail(r, -ENOTSUP, "use_sliding_window without layer_types is not supported");
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
	default:
		return window_from(r, c, typed, 0);
	}
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
		if (c->rope != ROPE_YARN && c->rope != ROPE_LONGROPE && !json_get(o, "alpha"))
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
		if (json_get(o, "alpha"))
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

/* Mark the layers without rotation.  Learned positions and ALiBi take its place in all layers. */
static int read_nope(const struct reader *r, struct model_config *c)
{
	const struct family *f = r->family;
	const bool windows = f->nope == NOPE_ALWAYS || json_get(r->root, "sliding_window");
	int rc;
	c->learned = f->learned;
	c->alibi = f->alibi;
	if ((rc = json_get_bool(r->root, "#alibi", &c->alibi, r->why)))
		return rc;
	for (int i = 0; i < c->n_layers; i++)
		if (c->learned || c->alibi || (f->nope >= NOPE_FULL && windows && !c->layers[i].window))
			c->layers[i].rope = LAYER_ROPE_NONE;
	return f->nope == NOPE_KEYS ? read_no_rope(r, c) : 0;
}

/* Set the rotation of each layer.  *o: rope_parameters; becomes the object that applies to most layers. */
static int read_layer_ropes(const struct reader *r, struct model_config *c, const json_t **o)
{
	const json_t *full = *o ? json_get(*o, "full_attention") : NULL,
		     *local = *o ? json_get(*o, "sliding_attention") : NULL;
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
		{"su", ROPE_LONGROPE},   {"mrope", ROPE_NONE}, /* rows of text have one position in all parts */
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
	if (!(o && json_get(o, "partial_rotary_factor")) &&
	    (rc = get_int(r, r->root, "#rope_dim", 2, c->head_dim, false, &c->rope_dim)))
		return rc;
	if (r->family->rope_by_layer && c->rope_local_theta == 0)
		c->rope_local_theta = c->rope_theta;
	if (c->learned || c->alibi)
		c->rope_dim = c->head_dim;
	c->rope_pairs = r->family->rope_pairs;
	if (c->rope_dim % 2 || c->rope_dim < 2)
		return err_why(r->why, -EINVAL,
			       "partial_rotary_factor %g leaves %d of %d values of a head to rotate: an even "
			       "number is needed",
			       partial, c->rope_dim, c->head_dim);
	if (!o)
		return 0;
	double beta = 0;
	if ((rc = get_num(r, o, "llama_4_scaling_beta", 0, 1e3, &beta)))
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
	if ((rc = read_arch(&r, out)) || (rc = read_shape(&r, out)) || (rc = read_switches(&r, out)) ||
	    (rc = config_experts_read(r.root, r.family, out, why)) || (rc = read_factors_of(&r, out)) ||
	    (rc = read_window(&r, out)) || (rc = read_rope(&r, out)) ||
	    (rc = quant_config_read(r.root, dir, &out->quant, why)) || (rc = check_type(&r, dir, out))) {
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
	memset(c, 0, sizeof *c);
}
