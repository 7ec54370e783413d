#include "formats/config_keys.h"

#include "base/err.h"
#include "base/json.h"
#include "formats/config.h"
#include "formats/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* config.json being read, or its text_config with the keys of of_whole. */
struct reader {
	json_t *root;
	const struct family *family;
	struct why *why;
};

static int fail(const struct reader *r, int err, const char *text)
{
	return err_why(r->why, err, "%s", text);
}

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
	const json_t *text = json_get(r->root, "text_config");
	if (!text)
		return 0;
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

/* Give each value of config.json the name that the readers use.  defaults: the values that config.json does
 * not have were added, and do not contradict it. */
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

static bool is_value(const json_t *have, const json_t *want)
{
	return json_is_number(have) && json_is_number(want)
		       ? json_number_value(have) == json_number_value(want)
		       : json_equal(have, want) == 1;
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
		if (!have || is_value(have, v))
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

/* Properties of a row without which a key is not read. */
enum {
	OF_QKV_BIAS = 1 << 0,
	OF_MLP_BIAS = 1 << 1,
	OF_WINDOW = 1 << 2,
	OF_SWITCH = 1 << 3,  /* use_sliding_window turns the window on */
	OF_FIRST = 1 << 4,   /* max_window_layers says where windows begin */
	OF_PATTERN = 1 << 5, /* sliding_window_pattern says where they are not */
	OF_NOPE = 1 << 6,    /* no_rope_layers */
	OF_ROPE = 1 << 7,
	OF_ROPE_BY_LAYER = 1 << 8,
	OF_CLAMPED = 1 << 9,
	OF_EXPERTS = 1 << 10,
	OF_STEPS = 1 << 11,
	OF_FIRST_DENSE = 1 << 12,
	OF_SHARED = 1 << 13,
	OF_GROUPS = 1 << 14,
	OF_NORMALIZE = 1 << 15,
	OF_SCALED = 1 << 16,
	OF_ALPHA = 1 << 17,
	OF_Q_SCALED = 1 << 18,
	OF_SELECTION = 1 << 19,
	OF_MSCALE = 1 << 20,
};

static unsigned properties_of(const struct family *f)
{
	const struct family_experts *x = f->experts;
	const bool qkv_bias = f->qkv_bias == BIAS_BY_KEY || f->o_bias == BIAS_BY_KEY;
	unsigned of = 0;
	of |= qkv_bias ? OF_QKV_BIAS : 0;
	of |= f->mlp_bias == BIAS_BY_KEY ? OF_MLP_BIAS : 0;
	of |= f->window != WINDOW_NONE ? OF_WINDOW : 0;
	of |= f->window == WINDOW_SWITCH ? OF_SWITCH | OF_FIRST : 0;
	of |= f->window == WINDOW_FROM ? OF_FIRST : 0;
	of |= f->window == WINDOW_PATTERN ? OF_PATTERN : 0;
	of |= f->nope == NOPE_KEYS ? OF_NOPE : 0;
	of |= f->learned || f->sines ? 0 : OF_ROPE;
	of |= f->rope_by_layer ? OF_ROPE_BY_LAYER : 0;
	of |= f->clamped ? OF_CLAMPED : 0;
	of |= f->ntk_alpha ? OF_ALPHA : 0;
	of |= f->q_scaled ? OF_Q_SCALED : 0;
	of |= f->rope_mscale ? OF_MSCALE : 0;
	if (!x)
		return of;
	of |= OF_EXPERTS;
	of |= x->steps ? OF_STEPS : 0;
	of |= x->first_dense ? OF_FIRST_DENSE : 0;
	of |= x->shared && !x->shared_size ? OF_SHARED : 0;
	of |= x->groups ? OF_GROUPS : 0;
	of |= x->normalize == NORMALIZE_BY_KEY ? OF_NORMALIZE : 0;
	of |= x->scaled ? OF_SCALED : 0;
	of |= x->selection ? OF_SELECTION | OF_NORMALIZE : 0;
	return of;
}

/* Keys that config.c and config_experts.c read, and the properties of which a row needs one for that; 0: all
 * rows. */
struct read_key {
	const char *name;
	unsigned of;
};
static const struct read_key read_keys[] = {{"architectures", 0},
					    {"model_type", 0},
					    {"text_config", 0},
					    {"vision_config", 0},
					    {"audio_config", 0},
					    {"dtype", 0},
					    {"torch_dtype", 0},
					    {"tie_word_embeddings", 0},
					    {"bos_token_id", 0},
					    {"eos_token_id", 0},
					    {"quantization", 0},
					    {"quantization_config", 0},
					    {"compression_config", 0},
					    {"vocab_size", 0},
					    {"hidden_size", 0},
					    {"intermediate_size", 0},
					    {"num_hidden_layers", 0},
					    {"num_attention_heads", 0},
					    {"num_key_value_heads", 0},
					    {"head_dim", 0},
					    {"hidden_act", 0},
					    {"max_position_embeddings", 0},
					    {"rms_norm_eps", 0},
					    {"num_nextn_predict_layers", 0},
					    {"layer_types", 0},
					    {"attention_bias", OF_QKV_BIAS},
					    {"mlp_bias", OF_MLP_BIAS},
					    {"sliding_window", OF_WINDOW},
					    {"use_sliding_window", OF_SWITCH},
					    {"max_window_layers", OF_FIRST},
					    {"sliding_window_pattern", OF_PATTERN},
					    {"_sliding_window_pattern", OF_PATTERN},
					    {"no_rope_layers", OF_NOPE},
					    {"no_rope_layer_interval", OF_NOPE},
					    {"partial_rotary_factor", 0},
					    {"use_mrope", 0},
					    {"is_causal", 0},
					    {"rope_theta", OF_ROPE},
					    {"rope_scaling", OF_ROPE},
					    {"rope_parameters", OF_ROPE},
					    {"original_max_position_embeddings", OF_ROPE},
					    {"rope_local_base_freq", OF_ROPE_BY_LAYER},
					    {"swiglu_limit", OF_CLAMPED},
					    {"num_experts", OF_EXPERTS},
					    {"num_local_experts", OF_EXPERTS},
					    {"n_routed_experts", OF_EXPERTS},
					    {"num_experts_per_tok", OF_EXPERTS},
					    {"mlp_layer_types", OF_EXPERTS},
					    {"decoder_sparse_step", OF_STEPS},
					    {"mlp_only_layers", OF_STEPS},
					    {"first_k_dense_replace", OF_FIRST_DENSE},
					    {"n_shared_experts", OF_SHARED},
					    {"n_group", OF_GROUPS},
					    {"topk_group", OF_GROUPS},
					    {"norm_topk_prob", OF_NORMALIZE},
					    {"expert_selection_fn", OF_SELECTION},
					    {"shared_expert_combination_strategy", OF_SELECTION},
					    {"routed_scaling_factor", OF_SCALED}};

/* Keys that are read in rope_parameters and rope_scaling, and the properties that a row needs for that. */
static const struct read_key rope_keys[] = {{"type", 0},
					    {"rope_type", 0},
					    {"rope_theta", 0},
					    {"factor", 0},
					    {"partial_rotary_factor", 0},
					    {"original_max_position_embeddings", 0},
					    {"attention_factor", 0},
					    {"low_freq_factor", 0},
					    {"high_freq_factor", 0},
					    {"short_factor", 0},
					    {"long_factor", 0},
					    {"beta_fast", 0},
					    {"beta_slow", 0},
					    {"mscale", 0},
					    {"mscale_all_dim", 0},
					    {"truncate", 0},
					    {"alpha", OF_ALPHA},
					    {"llama_4_scaling_beta", OF_Q_SCALED},
					    {"short_mscale", OF_MSCALE},
					    {"long_mscale", OF_MSCALE},
					    {"full_attention", OF_ROPE_BY_LAYER},
					    {"sliding_attention", OF_ROPE_BY_LAYER},
					    {"max_position_embeddings", 0},
					    /* All parts of a text have one position. */
					    {"mrope_section", 0},
					    {"mrope_interleaved", 0}};

/* Keys that do not change the results: settings of training, tokens of other modalities, notes. */
static const char *const harmless_keys[] = {
	"transformers_version",
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
	"emb_pdrop",
	"embedding_fraction",
	"init_device",
	"slow_but_exact",
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
	"cache_implementation",
	"chunk_size_feed_forward",
	"problem_type",
	"activation_dropout",
	"attention_probs_dropout_prob",
	"hidden_dropout_prob",
	"embed_dropout",
	"resid_dropout",
	"layerdrop",
	"pooling", /* of a classifier, which is refused */
	"enable_moe_fp32_combine",
	"attention_types",      /* attention_layers says the same */
	"multi_query",          /* Falcon's new decoder has num_kv_heads */
	"word_embed_proj_dim"}; /* another size brings tensors that are refused */

bool config_key_is_harmless(const char *key)
{
	for (size_t i = 0; i < sizeof harmless_keys / sizeof *harmless_keys; i++)
		if (strcmp(key, harmless_keys[i]) == 0)
			return true;
	return false;
}

static bool is_read(const struct read_key *keys, size_t n, unsigned of, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(key, keys[i].name) == 0)
			return !keys[i].of || (keys[i].of & of);
	return false;
}

/* Return whether the family's row names the key, or an object that contains it. */
static bool is_of_row(const struct family *f, const char *key)
{
	const struct family_experts *x = f->experts;
	const char *const of_experts[] = {x ? x->n : NULL, x ? x->intermediate : NULL,
					  x ? x->shared_size : NULL};
	const size_t n = strlen(key);
	bool named = false;
	for (size_t i = 0; i < sizeof f->keys / sizeof *f->keys && f->keys[i].ours; i++)
		named |= strncmp(f->keys[i].theirs, key, n) == 0 &&
			 (f->keys[i].theirs[n] == '\0' || f->keys[i].theirs[n] == '.');
	for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++)
		named |= of_experts[i] && strcmp(of_experts[i], key) == 0;
	const char *const texts[] = {f->require, f->when};
	for (size_t i = 0; i < sizeof texts / sizeof *texts && !named; i++) {
		json_t *o = texts[i] ? json_loads(texts[i], 0, NULL) : NULL;
		named = json_object_get(o, key) != NULL;
		json_decref(o);
	}
	return named;
}

/* Add a key that is not read to the list, with its value: "logit_scale=0.5". */
static void add_unread(struct model_config *c, const char *object, const char *key, const json_t *v)
{
	const size_t len = strlen(c->unread);
	char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
	snprintf(c->unread + len, sizeof c->unread - len, "%s%.60s%s%.60s=%.40s", len ? " " : "", object,
		 *object ? "." : "", key, text ? text : "?");
	free(text);
}

/* List the keys of config.json that are neither read nor harmless.  transformers' class does not know them
 * either: those that it knows and this program does not are in the row's `require`. */
static void list_unread(const struct reader *r, struct model_config *c)
{
	static const char *const ropes[] = {"rope_parameters", "rope_scaling"};
	const unsigned of = properties_of(r->family);
	const char *key;
	json_t *v;
	json_object_foreach(r->root, key, v)
	{
		if (!json_is_null(v) && !config_key_is_harmless(key) && !is_of_row(r->family, key) &&
		    !is_read(read_keys, sizeof read_keys / sizeof *read_keys, of, key))
			add_unread(c, "", key, v);
	}
	for (size_t i = 0; i < sizeof ropes / sizeof *ropes && (of & OF_ROPE); i++)
		json_object_foreach(json_object_get(r->root, ropes[i]), key, v)
		{
			if (!json_is_null(v) &&
			    !is_read(rope_keys, sizeof rope_keys / sizeof *rope_keys, of, key))
				add_unread(c, ropes[i], key, v);
		}
}

/* Add the keys of a JSON object that the root lacks.  of: take its member of this name; NULL: all of it. */
static void add_missing(const struct reader *r, const char *json, const char *of)
{
	json_t *all = json ? json_loads(json, 0, NULL) : NULL;
	json_t *defaults = of ? json_object_get(all, of) : all;
	if (defaults)
		json_object_update_missing(r->root, defaults);
	json_decref(all);
}

/* Return the type of the text part. */
static const char *text_type(const struct reader *r)
{
	const json_t *text = json_get(r->root, "text_config");
	const char *type = json_string_value(json_get(text ? text : r->root, "model_type"));
	return type ? type : "";
}

/* Complete the root so that it has every key under the names that this file reads. */
static int complete(struct reader *r, struct model_config *c)
{
	char type[64];
	snprintf(type, sizeof type, "%s", text_type(r));
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
	add_missing(r, r->family->also_defaults, type);
	add_missing(r, r->family->defaults, NULL);
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

static int read_family(struct reader *r, struct model_config *c)
{
	const char *type = NULL;
	const char *name = NULL;
	const json_t *text = json_get(r->root, "text_config");
	if (text && !json_is_object(text))
		return fail(r, -EINVAL, "text_config must be an object");
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

int config_keys_read(json_t **root, struct model_config *c, struct why *why)
{
	struct reader r = {.root = *root, .why = why};
	const int rc = read_family(&r, c);
	*root = r.root;
	return rc;
}

void config_keys_name(const struct family *f, struct why *why)
{
	for (size_t i = 0; f && why && i < sizeof f->keys / sizeof *f->keys && f->keys[i].ours; i++) {
		const char *ours = f->keys[i].ours, *theirs = f->keys[i].theirs;
		const size_t n = strlen(ours);
		if (strncmp(why->text, ours, n) != 0 || why->text[n] != ' ')
			continue;
		const struct why was = *why;
		if (*ours == '#') /* no file has this name */
			err_why(why, 0, "%s%s", theirs, was.text + n);
		else
			err_why(why, 0, "%s (%s)%s", theirs, ours, was.text + n);
		return;
	}
}
