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
					"expert_selection_fn",
					"shared_expert_combination_strategy",
					"routed_scaling_factor",
					"num_nextn_predict_layers"};

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
	"enable_moe_fp32_combine",
	"attention_types",      /* attention_layers says the same */
	"word_embed_proj_dim"}; /* another size brings tensors that are refused */

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

static int read_family(struct reader *r, struct model_config *c)
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

int config_keys_read(json_t **root, struct model_config *c, struct why *why)
{
	struct reader r = {.root = *root, .why = why};
	const int rc = read_family(&r, c);
	*root = r.root;
	return rc;
}
