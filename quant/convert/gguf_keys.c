#include "quant/convert/gguf_keys.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/terminal/term.h"
#include "formats/family.h"
#include "quant/convert/hf_vocab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE_MAX = 64 << 20 };

const char *const gguf_source_files[] = {"config.json",           "generation_config.json",
					 "tokenizer_config.json", "special_tokens_map.json",
					 "chat_template.jinja",   NULL};

struct keys {
	struct writer *w;
	const char *arch;
};

static const char *key_of(const struct keys *k, const char *name, char out[128])
{
	snprintf(out, 128, "%s.%s", k->arch, name);
	return out;
}

static void put_u32(const struct keys *k, const char *name, int64_t v)
{
	char key[128];
	writer_meta_u32(k->w, key_of(k, name, key), (uint32_t)v);
}

static void put_f32(const struct keys *k, const char *name, double v)
{
	char key[128];
	writer_meta_f32(k->w, key_of(k, name, key), (float)v);
}

static void put_bool(const struct keys *k, const char *name, bool v)
{
	char key[128];
	writer_meta_bool(k->w, key_of(k, name, key), v);
}

static void put_str(const struct keys *k, const char *name, const char *v)
{
	char key[128];
	writer_meta_str(k->w, key_of(k, name, key), v);
}

/* ---- RoPE ---- */

/* Return Llama 3's scaling as a wavelength factor: long waves are stretched, short ones kept, those between
 * interpolated. */
static float llama3_factor(const struct model_config *c, int i)
{
	const double pi = 3.14159265358979323846;
	const float inv = 1 / (float)pow((float)c->rope_theta, (float)(2 * i) / (float)c->rope_dim);
	const float old = (float)c->rope_original, wave = (float)(2 * pi) / inv;
	if (wave < old / (float)c->rope_high)
		return 1;
	if (wave > old / (float)c->rope_low)
		return (float)c->rope_factor;
	const float smooth = (old / wave - (float)c->rope_low) / (float)(c->rope_high - c->rope_low);
	return 1 / ((1 - smooth) / (float)c->rope_factor + smooth);
}

bool gguf_keys_factors(const struct model_config *c, const char *tensor, float *out)
{
	const double *from = NULL;
	const bool freqs = strcmp(tensor, "rope_freqs.weight") == 0 && c->rope == ROPE_LLAMA3;
	if (c->rope == ROPE_LONGROPE && strcmp(tensor, "rope_factors_short.weight") == 0)
		from = c->long_short;
	if (c->rope == ROPE_LONGROPE && strcmp(tensor, "rope_factors_long.weight") == 0)
		from = c->long_long;
	if (!freqs && !from)
		return false;
	for (int i = 0; out && i < c->rope_dim / 2; i++)
		out[i] = freqs ? llama3_factor(c, i) : (float)from[i];
	return true;
}

static int put_rope(const struct keys *k, const struct model_config *c, struct why *why)
{
	static const char *const names[] = {"none", "linear", "dynamic", "llama3", "yarn", "longrope"};
	const bool plain_yarn = c->rope == ROPE_YARN && c->yarn_attention_factor <= 0 &&
				c->yarn_mscale == 0 && c->yarn_mscale_all_dim == 0 && c->yarn_truncate;
	put_f32(k, "rope.freq_base", c->rope_theta);
	put_u32(k, "rope.dimension_count", c->rope_dim);
	if (c->rope_local_theta != 0)
		put_f32(k, "rope.freq_base_swa", c->rope_local_theta);
	switch (c->rope) {
	case ROPE_NONE:
	case ROPE_LLAMA3:
		return 0;
	case ROPE_LINEAR:
		put_str(k, "rope.scaling.type", "linear");
		put_f32(k, "rope.scaling.factor", c->rope_factor);
		return 0;
	case ROPE_LONGROPE:
		if (!c->family->gguf->longrope)
			break;
		put_u32(k, "rope.scaling.original_context_length", c->rope_original);
		put_f32(k, "rope.scaling.attn_factor",
			c->yarn_attention_factor > 0 ? c->yarn_attention_factor
			: c->rope_factor <= 1        ? 1
						     : sqrt(1 + log(c->rope_factor) / log(c->rope_original)));
		return 0;
	case ROPE_YARN:
		if (!plain_yarn)
			break;
		put_str(k, "rope.scaling.type", "yarn");
		put_f32(k, "rope.scaling.factor", c->rope_factor);
		put_u32(k, "rope.scaling.original_context_length", c->rope_original);
		put_f32(k, "rope.scaling.yarn_beta_fast", c->yarn_beta_fast);
		put_f32(k, "rope.scaling.yarn_beta_slow", c->yarn_beta_slow);
		return 0;
	default:
		break;
	}
	return err_why(why, -ENOTSUP,
		       "its RoPE is scaled by %s%s, which the keys of a GGUF file of %s cannot say",
		       names[c->rope], c->rope == ROPE_YARN ? " with other than the usual factors" : "",
		       c->arch_name);
}

/* ---- the configuration ---- */

/* Return a property of the mixture that GGUF files of its architecture cannot express; NULL: none. */
static const char *not_of_mixtures(const struct model_config *c)
{
	const struct config_experts *x = &c->experts;
	int dense = 0;
	if (!x->n)
		return NULL;
	if (c->family->experts->mxfp4)
		return "experts in MXFP4, several in one tensor";
	while (dense < c->n_layers && !c->layers[dense].sparse)
		dense++;
	if (dense && !c->family->experts->first_dense)
		return "layers without experts";
	for (int i = dense; i < c->n_layers; i++)
		if (!c->layers[i].sparse)
			return "layers without experts among those that have some";
	if (!c->family->experts->scaled && x->normalize != c->family->gguf->normalize)
		return x->normalize ? "norm_topk_prob" : "no norm_topk_prob";
	return NULL;
}

/* Properties that llama.cpp hard-codes must be those of the model. */
int gguf_keys_check(const struct model_config *c, struct why *why)
{
	const bool gemma = c->family->embed != EMBED_PLAIN;
	const char *what = NULL;
	if (!c->family->gguf)
		return err_why(why, -ENOTSUP, "%s is in no GGUF file that quern reads", c->arch_name);
	what = not_of_mixtures(c);
	if (c->text_only)
		what = "parts other than text";
	if (c->pool == CONFIG_POOL_OTHER || c->embeds)
		what = "no head, or a way of pooling";
	const bool large = c->n_layers == c->family->gguf->large_layers;
	const int scored = large && c->n_heads ? c->hidden / c->n_heads : c->head_dim;
	if (gemma && c->family->gguf->large_layers && c->attn_scale != 1 / sqrtf((float)scored))
		what = "a query_pre_attn_scalar other than that of the known sizes";
	if (!gemma && !c->family->gguf->factors &&
	    (c->attn_cap != 0 || c->logit_cap != 0 || c->embed_scale != 0 || c->attn_scale != 0))
		what = "scaled scores or a scaled embedding";
	if (c->quant.name[0])
		return err_why(
			why, -ENOTSUP,
			"the model is quantized (%s), and no type of GGUF has the same values: convert the "
			"model that it was made of, and quantize the result",
			c->quant.name);
	return what ? err_why(why, -ENOTSUP, "%s has %s, which quern does not convert to GGUF", c->arch_name,
			      what)
		    : 0;
}

/* Write the window.  Gemma's layers with a window follow from the architecture; another pattern needs a
 * list. */
static int put_window(const struct keys *k, const struct model_config *c, struct why *why)
{
	const int every = c->family->gguf->every;
	bool usual = true, list[CONFIG_LAYERS_MAX];
	char key[128];
	if (!c->window) {
		if (every)
			put_u32(k, "attention.sliding_window", 0);
		return 0;
	}
	for (int i = 0; i < c->n_layers; i++) {
		list[i] = c->layers[i].window != 0;
		usual &= list[i] == (!every || (i + 1) % every != 0);
	}
	if (!c->family->gguf->window)
		return err_why(why, -ENOTSUP,
			       "%s has a sliding window, which GGUF files of this architecture do not have",
			       c->arch_name);
	put_u32(k, "attention.sliding_window", c->window);
	if (!usual)
		writer_meta_bools(k->w, key_of(k, "attention.sliding_window_pattern", key), list,
				  (size_t)c->n_layers);
	return 0;
}

static void put_shape(const struct keys *k, const struct model_config *c)
{
	put_u32(k, "block_count", c->n_layers);
	put_u32(k, "context_length", c->max_position);
	put_u32(k, "embedding_length", c->hidden);
	put_u32(k, "feed_forward_length", c->intermediate);
	put_u32(k, "attention.head_count", c->n_heads);
	put_u32(k, "attention.head_count_kv", c->n_kv_heads);
	put_u32(k, "attention.key_length", c->head_dim);
	put_u32(k, "attention.value_length", c->head_dim);
	put_f32(k,
		c->norm == CONFIG_NORM_LAYER ? "attention.layer_norm_epsilon"
					     : "attention.layer_norm_rms_epsilon",
		c->rms_eps);
	if (c->family->gguf->parallel)
		put_bool(k, "use_parallel_residual", c->block != BLOCK_SERIAL);
	if (c->family->gguf->logit_factor)
		put_f32(k, "logit_scale", c->logit_scale != 0 ? (double)c->logit_scale : 1);
	put_u32(k, "vocab_size", c->n_vocab);
}

static void put_experts(const struct keys *k, const struct model_config *c)
{
	enum { SIGMOID = 2 };
	const struct config_experts *x = &c->experts;
	const struct family_experts *f = c->family->experts;
	int dense = 0;
	put_u32(k, "expert_count", x->n);
	put_u32(k, "expert_used_count", x->n_chosen);
	if (strcmp(f->intermediate, "intermediate_size") != 0)
		put_u32(k, "expert_feed_forward_length", x->intermediate);
	if (f->shared_size)
		put_u32(k, "expert_shared_feed_forward_length", x->shared);
	if (!f->scaled)
		return;
	while (dense < c->n_layers && !c->layers[dense].sparse)
		dense++;
	put_u32(k, "leading_dense_block_count", dense);
	put_u32(k, "expert_shared_count", x->shared / x->intermediate);
	put_u32(k, "expert_gating_func", SIGMOID);
	put_f32(k, "expert_weights_scale", x->scale);
	put_bool(k, "expert_weights_norm", x->normalize);
	if (!x->n_groups)
		return;
	put_u32(k, "expert_group_count", x->n_groups);
	put_u32(k, "expert_group_used_count", x->groups_chosen);
}

/* Write factors; 0 means a factor of 1. */
static void put_factors(const struct keys *k, const struct model_config *c)
{
	put_f32(k, "embedding_scale", c->embed_scale != 0 ? (double)c->embed_scale : 1);
	put_f32(k, "residual_scale", c->residual_scale != 0 ? (double)c->residual_scale : 1);
	put_f32(k, "logit_scale", c->logit_scale != 0 ? 1 / (double)c->logit_scale : 1);
	if (c->attn_scale != 0)
		put_f32(k, "attention.scale", (double)c->attn_scale);
}

int gguf_keys_config(struct writer *w, const struct model_config *c, const char *name, struct why *why)
{
	const struct keys k = {.w = w, .arch = c->family->gguf->name};
	writer_meta_str(w, "general.architecture", k.arch);
	writer_meta_str(w, "general.name", name);
	put_shape(&k, c);
	if (c->experts.n)
		put_experts(&k, c);
	if (c->family->gguf->factors)
		put_factors(&k, c);
	if (c->attn_cap != 0)
		put_f32(&k, "attn_logit_softcapping", c->attn_cap);
	if (c->logit_cap != 0)
		put_f32(&k, "final_logit_softcapping", c->logit_cap);
	const int rc = put_window(&k, c, why);
	return rc ? rc : put_rope(&k, c, why);
}

/* ---- the tokenizer ---- */

#define KEY(name) "tokenizer.ggml." name

static void put_ids(struct writer *w, const struct model_config *c, const struct piece_table *pt)
{
	static const char *const ends[] = {KEY("eos_token_id"), KEY("eot_token_id"), KEY("eom_token_id")};
	const int64_t bos = pt->bos >= 0 ? pt->bos : c->bos;
	int n_ends = 0;
	if (bos >= 0 && bos < c->n_vocab)
		writer_meta_u32(w, KEY("bos_token_id"), (uint32_t)bos);
	/* Readers append the token of the first key to a text, so that key gets eos if the tokenizer
	 * appends it. */
	if (pt->add_eos && pt->eos >= 0)
		writer_meta_u32(w, ends[n_ends++], (uint32_t)pt->eos);
	for (int i = 0; n_ends < 3 && i < c->n_eos; i++)
		if (!pt->add_eos || c->eos[i] != pt->eos)
			writer_meta_u32(w, ends[n_ends++], c->eos[i]);
	if (pt->model != TABLE_BYTE_BPE && pt->unk >= 0)
		writer_meta_u32(w, KEY("unknown_token_id"), (uint32_t)pt->unk);
	/* Without the token's key, readers would add the token with the usual id. */
	writer_meta_bool(w, KEY("add_bos_token"), pt->add_bos && pt->bos >= 0);
	writer_meta_bool(w, KEY("add_eos_token"), pt->add_eos && pt->eos >= 0);
}

static void put_pieces(struct writer *w, const struct piece_table *pt, size_t n)
{
	float *scores = xcalloc(n + 1, sizeof *scores);
	int32_t *types = xcalloc(n + 1, sizeof *types);
	writer_meta_strings(w, KEY("tokens"), n);
	for (size_t i = 0; i < n; i++) {
		char pad[32];
		const bool there = i < pt->n;
		snprintf(pad, sizeof pad, "[PAD%zu]", i);
		writer_meta_item(w, there ? pt->rows[i].p : pad, there ? pt->rows[i].n : strlen(pad));
		scores[i] = there ? pt->rows[i].score : 0;
		types[i] = there ? pt->rows[i].type : ROW_UNUSED;
	}
	if (pt->model != TABLE_BYTE_BPE)
		writer_meta_f32s(w, KEY("scores"), scores, n);
	writer_meta_i32s(w, KEY("token_type"), types, n);
	free(scores);
	free(types);
}

static void put_vocab(struct writer *w, const struct model_config *c, const struct hf_vocab *v)
{
	const struct piece_table *pt = &v->table;
	const char *model = pt->model == TABLE_BYTE_BPE    ? "gpt2"
			    : pt->model == TABLE_SCORE_BPE ? "llama"
							   : "t5";
	writer_meta_str(w, KEY("model"), model);
	writer_meta_str(w, KEY("pre"), pt->model == TABLE_BYTE_BPE ? v->pre : "default");
	put_pieces(w, pt, (size_t)c->n_vocab);
	if (pt->model == TABLE_BYTE_BPE) {
		writer_meta_strings(w, KEY("merges"), pt->n_merges);
		for (size_t i = 0; i < pt->n_merges; i++)
			writer_meta_item(w, pt->merges[i].p, pt->merges[i].n);
	} else {
		writer_meta_bool(w, KEY("add_space_prefix"), pt->add_dummy_prefix);
	}
	if (pt->model == TABLE_UNIGRAM)
		writer_meta_bool(w, KEY("remove_extra_whitespaces"), pt->remove_extra_whitespaces);
	if (pt->charsmap_n)
		writer_meta_u8s(w, KEY("precompiled_charsmap"), pt->charsmap, pt->charsmap_n);
	put_ids(w, c, pt);
}

/* Read a file of the directory as text; NULL: it is missing. */
static int read_text(const char *dir, const char *name, char **out, size_t *n, struct why *why)
{
	char *path = file_join(dir, name);
	*out = NULL;
	const int rc = file_exists(path) ? file_read(path, SOURCE_MAX, out, n, why) : 0;
	free(path);
	return rc;
}

/* Write the chat template: chat_template.jinja, or the template or list of templates in
 * tokenizer_config.json. */
static void put_template(struct writer *w, const char *jinja, const char *config)
{
	static const char key[] = "tokenizer.chat_template";
	json_t *root = NULL;
	size_t i;
	const json_t *t;
	if (jinja)
		writer_meta_str(w, key, jinja);
	if (!config || json_parse(config, strlen(config), &root, NULL))
		return;
	const json_t *v = json_object_get(root, "chat_template");
	if (json_is_string(v) && !jinja)
		writer_meta_str(w, key, json_string_value(v));
	json_array_foreach(v, i, t)
	{
		const char *name = json_string_value(json_object_get(t, "name"));
		const char *text = json_string_value(json_object_get(t, "template"));
		if (name && text && strcmp(name, "default") == 0 && !jinja)
			writer_meta_str(w, key, text);
		if (name && text && strcmp(name, "tool_use") == 0)
			writer_meta_str(w, "tokenizer.chat_template.tool_use", text);
	}
	json_decref(root);
}

static int put_sources(struct writer *w, const char *dir, struct why *why)
{
	char *jinja = NULL, *config = NULL, *tokenizer = NULL;
	size_t n;
	int rc = 0;
	for (const char *const *f = gguf_source_files; !rc && *f; f++) {
		char key[96], *text;
		rc = read_text(dir, *f, &text, &n, why);
		if (rc || !text)
			continue;
		snprintf(key, sizeof key, GGUF_SOURCE_KEY "%s", *f);
		writer_meta_string(w, key, text, n);
		free(text);
	}
	if (!rc)
		rc = read_text(dir, "chat_template.jinja", &jinja, &n, why);
	if (!rc)
		rc = read_text(dir, "tokenizer_config.json", &config, &n, why);
	if (!rc)
		rc = read_text(dir, "tokenizer.json", &tokenizer, &n, why);
	if (!rc)
		put_template(w, jinja, config);
	if (!rc && tokenizer)
		writer_meta_string(w, GGUF_TOKENIZER_KEY, tokenizer, n);
	free(jinja);
	free(config);
	free(tokenizer);
	return rc;
}

int gguf_keys_vocab(struct writer *w, const struct model_config *c, const char *dir, struct why *why)
{
	struct hf_vocab v;
	int rc = hf_vocab_read(dir, &v, why);
	const char *first = NULL;
	const int flagged = rc ? 0 : hf_vocab_flagged(&v, c->family->gguf->rstrip, &first);
	if (!rc)
		put_vocab(w, c, &v);
	if (flagged)
		term_note(
			"the keys of a GGUF file do not say which added tokens take white space next to them "
			"or "
			"stand alone only (lstrip, rstrip, single_word): texts that have them may get other "
			"ids: tokens=%d first=\"%s\"",
			flagged, first);
	hf_vocab_fini(&v);
	return rc && rc != -ENOENT ? rc : put_sources(w, dir, why);
}
