#include "quant/convert/hf_files.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/family.h"
#include "formats/config_experts.h"
#include "quant/convert/gguf_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- config.json ---- */

static void put(json_t *o, const char *key, json_t *v)
{
	json_object_set_new(o, key, v);
}

static void put_int(json_t *o, const char *key, int64_t v)
{
	put(o, key, json_integer(v));
}

static void put_float(json_t *o, const char *key, double v)
{
	put(o, key, hf_number(v));
}

/* ---- experts ---- */

static int first_sparse(const struct model_config *c)
{
	int i = 0;
	while (i < c->n_layers && !c->layers[i].sparse)
		i++;
	return i;
}

static json_t *dense_layers(const struct model_config *c)
{
	json_t *list = json_array();
	for (int i = 0; i < c->n_layers; i++)
		if (!c->layers[i].sparse)
			json_array_append_new(list, json_integer(i));
	return list;
}

/* Add the keys for c's mixture of experts to config.json. */
static void put_experts(json_t *config, const struct model_config *c)
{
	const struct config_experts *x = &c->experts;
	const struct family_experts *f = c->family->experts;
	if (!f || !x->n)
		return;
	put_int(config, f->n, x->n);
	put_int(config, "num_experts_per_tok", x->n_chosen);
	put_int(config, f->intermediate, x->intermediate);
	if (f->normalize == NORMALIZE_BY_KEY)
		json_object_set_new(config, "norm_topk_prob", json_boolean(x->normalize));
	if (f->shared_size)
		put_int(config, f->shared_size, x->shared);
	else if (f->shared)
		put_int(config, "n_shared_experts", x->shared / x->intermediate);
	if (f->first_dense)
		put_int(config, "first_k_dense_replace", first_sparse(c));
	if (f->steps) {
		put_int(config, "decoder_sparse_step", 1);
		json_object_set_new(config, "mlp_only_layers", dense_layers(c));
	}
	if (f->scaled) {
		json_object_set_new(config, "routed_scaling_factor", hf_number((double)x->scale));
		put_int(config, "n_group", x->n_groups ? x->n_groups : 1);
		put_int(config, "topk_group", x->n_groups ? x->groups_chosen : 1);
	}
}

/* ---- what config.json cannot hold ---- */

/* Describe the first property in which the model's a differs from b; false: none. */
static bool difference(const struct model_config *a, const struct model_config *b, char *out, size_t n)
{
	const struct config_experts *x = &a->experts, *y = &b->experts;
	out[0] = '\0';
	if (x->n != y->n || x->n_chosen != y->n_chosen)
		snprintf(out, n, "%d of %d experts for a row", x->n_chosen, x->n);
	else if (x->intermediate != y->intermediate)
		snprintf(out, n, "experts of %d values", x->intermediate);
	else if (x->score != y->score)
		snprintf(out, n, "experts chosen by a %s", x->score == SCORE_SIGMOID ? "sigmoid" : "softmax");
	else if (x->choice_bias != y->choice_bias)
		snprintf(out, n, "%s bias for the choice of experts", x->choice_bias ? "a" : "no");
	else if (x->normalize != y->normalize)
		snprintf(out, n, "weights of experts that are %sdivided by their sum",
			 x->normalize ? "" : "not ");
	else if (x->scale != y->scale)
		snprintf(out, n, "weights of experts that are scaled by %g", (double)x->scale);
	else if (x->n_groups != y->n_groups || x->groups_chosen != y->groups_chosen)
		snprintf(out, n, "experts in %d groups, of which a row has %d", x->n_groups,
			 x->groups_chosen);
	else if (x->shared != y->shared)
		snprintf(out, n, "a shared expert of %d values", x->shared);
	else if (x->shared_gate != y->shared_gate)
		snprintf(out, n, "a shared expert %s a gate", x->shared_gate ? "with" : "without");
	else if (x->router_bias != y->router_bias || x->bias != y->bias)
		snprintf(out, n, "biases of a router or of experts");
	for (int i = 0; !out[0] && i < a->n_layers; i++)
		if (a->layers[i].sparse != b->layers[i].sparse)
			snprintf(out, n, "%s in layer %d", a->layers[i].sparse ? "experts" : "no experts", i);
	return out[0] != '\0';
}

/* Check that a reader of config.json routes rows as c does; omitted keys have the architecture's defaults.
 * -ENOTSUP names what differs.  0 for a dense model. */
static int check_experts(const json_t *config, const struct model_config *c, struct why *why)
{
	const struct family *f = c->family;
	struct model_config back = {.n_layers = c->n_layers, .intermediate = c->intermediate};
	char what[96] = "no experts";
	if (!f->experts)
		return 0;
	json_t *whole = json_copy((json_t *)config);
	json_t *defaults = f->defaults ? json_loads(f->defaults, 0, NULL) : NULL;
	if (defaults)
		json_object_update_missing(whole, defaults);
	int rc = c->experts.n ? config_experts_read(whole, f, &back, why) : 0;
	if (!rc && (!c->experts.n || difference(c, &back, what, sizeof what)))
		rc = err_why(why, -ENOTSUP, "the model has %s, which config.json of %s cannot say", what,
			     f->arch);
	json_decref(defaults);
	json_decref(whole);
	return rc;
}

/* ---- config.json, whole ---- */

static json_t *factors(const double *from, int n)
{
	json_t *a = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(a, json_real(from[i]));
	return a;
}

static json_t *scaling_tree(const struct model_config *c)
{
	static const char *const names[] = {"", "linear", "dynamic", "llama3", "yarn", "longrope"};
	if (c->rope == ROPE_NONE)
		return NULL;
	json_t *o = json_pack("{s:s}", "rope_type", names[c->rope]);
	put_float(o, "factor", c->rope_factor);
	if (c->rope == ROPE_LLAMA3) {
		put_float(o, "low_freq_factor", c->rope_low);
		put_float(o, "high_freq_factor", c->rope_high);
	}
	if (c->rope == ROPE_YARN) {
		put_float(o, "beta_fast", c->yarn_beta_fast);
		put_float(o, "beta_slow", c->yarn_beta_slow);
	}
	if (c->rope == ROPE_LLAMA3 || c->rope == ROPE_YARN || c->rope == ROPE_LONGROPE)
		put_int(o, "original_max_position_embeddings", c->rope_original);
	if (c->rope == ROPE_LONGROPE) {
		put(o, "short_factor", factors(c->long_short, c->rope_dim / 2));
		put(o, "long_factor", factors(c->long_long, c->rope_dim / 2));
		if (c->yarn_attention_factor > 0)
			put_float(o, "attention_factor", c->yarn_attention_factor);
	}
	return o;
}

static void put_window(json_t *o, const struct model_config *c, enum family_window kind)
{
	json_t *types = json_array();
	for (int i = 0; i < c->n_layers; i++)
		json_array_append_new(
			types, json_string(c->layers[i].window ? "sliding_attention" : "full_attention"));
	put(o, "sliding_window", c->window ? json_integer(c->window) : json_null());
	if (kind == WINDOW_PATTERN)
		json_object_set(o, "layer_types", types);
	json_decref(types);
}

static const char *act_name(enum config_act act)
{
	static const char *const names[] = {[ACT_SILU] = "silu",  [ACT_GELU_TANH] = "gelu_pytorch_tanh",
					    [ACT_GELU] = "gelu",  [ACT_GELU_SIGMOID] = "silu",
					    [ACT_RELU] = "relu",  [ACT_RELU2] = "relu2",
					    [ACT_XIELU] = "xielu"};
	return names[act];
}

/* Return the value of a key that only the table of families names (struct family_key); NULL: none. */
static json_t *special_value(const struct model_config *c, const struct family_key *k)
{
	const struct {
		const char *key;
		double value;
		bool factor;
	} all[] = {
		{"#embed_scale", (double)c->embed_scale, true},
		{"#residual_scale", (double)c->residual_scale, true},
		{"#attn_scale", (double)c->attn_scale, false},
		{"#attn_cap", (double)c->attn_cap, false},
		{"#logit_cap", (double)c->logit_cap, false},
		{"#logit_scale", (double)c->logit_scale, true},
		{"#qkv_clip", (double)c->qkv_clip, false},
	};
	if (strcmp(k->ours, "#qk_norm") == 0)
		return json_boolean(c->qk_norm != QK_NORM_NONE);
	if (strcmp(k->ours, "#parallel") == 0)
		return json_boolean(c->block != BLOCK_SERIAL);
	if (strcmp(k->ours, "#qkv_bias") == 0 || strcmp(k->ours, "#o_bias") == 0)
		return json_boolean(k->ours[1] == 'q' ? c->qkv_bias : c->o_bias);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (strcmp(k->ours, all[i].key) != 0)
			continue;
		const double v = all[i].value == 0 && all[i].factor ? 1 : all[i].value;
		return v == 0                       ? json_null()
		       : k->how == KEY_INVERSE_ROOT ? hf_number(round(1 / (v * v)))
		       : k->how == KEY_INVERSE      ? hf_number(1 / v)
						    : hf_number(v);
	}
	return NULL;
}

/* Add the keys that the family has other names for. */
static void put_renamed(json_t *o, const struct model_config *c, const struct family *f)
{
	for (size_t i = 0; i < sizeof f->keys / sizeof *f->keys && f->keys[i].ours; i++) {
		const struct family_key *k = &f->keys[i];
		json_t *same = json_object_get(o, k->ours);
		json_t *v = k->ours[0] == '#' ? special_value(c, k) : json_incref(same);
		if (v)
			put(o, k->theirs, v);
	}
	if (c->rope_local_theta != 0)
		put_float(o, "rope_local_base_freq", c->rope_local_theta);
}

static void put_tokens(json_t *o, const struct model_config *c)
{
	put(o, "bos_token_id", c->bos >= 0 ? json_integer(c->bos) : json_null());
	json_t *eos = json_array();
	for (int i = 0; i < c->n_eos; i++)
		json_array_append_new(eos, json_integer(c->eos[i]));
	put(o, "eos_token_id",
	    c->n_eos == 1 ? json_integer(c->eos[0])
	    : c->n_eos    ? json_incref(eos)
			  : json_null());
	json_decref(eos);
}

json_t *hf_config_tree(const struct model_config *c)
{
	static const char *const dtypes[] = {"float32", "float16", "bfloat16"};
	const struct family *f = c->window ? family_with_window(c->family) : c->family;
	json_t *o = json_pack("{s:[s],s:s}", "architectures", f->arch, "model_type", f->type), *scaling;
	put_int(o, "vocab_size", c->n_vocab);
	put_int(o, "hidden_size", c->hidden);
	put_int(o, "intermediate_size", c->intermediate);
	put_int(o, "num_hidden_layers", c->n_layers);
	put_int(o, "num_attention_heads", c->n_heads);
	put_int(o, "num_key_value_heads", c->n_kv_heads);
	put_int(o, "head_dim", c->head_dim);
	put_int(o, "max_position_embeddings", c->max_position);
	put_float(o, "rms_norm_eps", c->rms_eps);
	put_float(o, "rope_theta", c->rope_theta);
	put(o, "tie_word_embeddings", json_boolean(c->tied));
	put(o, "torch_dtype", json_string(dtypes[c->dtype]));
	if (f->qkv_bias == BIAS_BY_KEY)
		put(o, "attention_bias", json_boolean(c->qkv_bias));
	if (f->mlp_bias == BIAS_BY_KEY)
		put(o, "mlp_bias", json_boolean(c->mlp_bias));
	put(o, "hidden_act", json_string(act_name(c->act)));
	if (f->window == WINDOW_ALL || f->window == WINDOW_PATTERN)
		put_window(o, c, f->window);
	if (f->partial)
		put(o, "partial_rotary_factor", json_real((double)c->rope_dim / c->head_dim));
	put_experts(o, c);
	if (f->nope == NOPE_KEYS)
		put_int(o, "no_rope_layer_interval", 4);
	if ((scaling = scaling_tree(c)))
		put(o, "rope_scaling", scaling);
	if (c->rope == ROPE_LONGROPE)
		put_int(o, "original_max_position_embeddings", c->rope_original);
	put_renamed(o, c, f);
	put_tokens(o, c);
	return o;
}

/* Find a source file that is stored in the GGUF file. */
static bool source_of(const struct gguf *g, const char *name, struct gguf_string *out)
{
	char key[96];
	snprintf(key, sizeof key, GGUF_SOURCE_KEY "%s", name);
	return gguf_find_string(g, key, out, NULL) == 0;
}

static bool same_number(const json_t *o, const char *key, double v)
{
	const json_t *found = json_object_get(o, key);
	return !json_is_number(found) || (float)json_number_value(found) == (float)v;
}

/* Return whether a stored config.json agrees with the GGUF file's keys, which may have been edited since. */
static bool is_of(const json_t *o, const struct model_config *c)
{
	return same_number(o, "vocab_size", c->n_vocab) && same_number(o, "hidden_size", c->hidden) &&
	       same_number(o, "intermediate_size", c->intermediate) &&
	       same_number(o, "num_hidden_layers", c->n_layers) &&
	       same_number(o, "num_attention_heads", c->n_heads) &&
	       same_number(o, "num_key_value_heads", c->n_kv_heads) &&
	       same_number(o, "head_dim", c->head_dim) &&
	       same_number(o, "max_position_embeddings", c->max_position) &&
	       same_number(o, "rms_norm_eps", (double)c->rms_eps) &&
	       same_number(o, "rope_theta", c->rope_theta) && !check_experts(o, c, NULL);
}

static int write_source(struct writer *w, const struct gguf *g, const char *name, struct why *why)
{
	struct gguf_string text;
	return source_of(g, name, &text) ? writer_file(w, name, text.p, text.n, why) : 0;
}

int hf_files_config(struct writer *w, const struct gguf *g, const struct model_config *c, struct why *why)
{
	static const char predict[] = "num_nextn_predict_layers"; /* such layers are not in the file */
	struct gguf_string text;
	json_t *old = NULL, *o;
	int rc;
	if (source_of(g, "config.json", &text) && json_parse(text.p, text.n, &old, NULL) == 0 &&
	    json_is_object(old) && is_of(old, c)) {
		if (json_integer_value(json_object_get(old, predict)) == 0) {
			rc = writer_file(w, "config.json", text.p, text.n, why);
		} else {
			put_int(old, predict, 0);
			rc = writer_json(w, "config.json", old, why);
		}
		json_decref(old);
		return rc ? rc : write_source(w, g, "generation_config.json", why);
	}
	json_decref(old);
	o = hf_config_tree(c);
	if (!(rc = check_experts(o, c, why)))
		rc = writer_json(w, "config.json", o, why);
	json_decref(o);
	return rc;
}

int hf_files_vocab(struct writer *w, const struct gguf *g, const struct model_config *c, struct why *why)
{
	struct gguf_string text;
	if (gguf_find_string(g, GGUF_TOKENIZER_KEY, &text, NULL))
		return hf_vocab_files(w, g, c, why);
	int rc = writer_file(w, "tokenizer.json", text.p, text.n, why);
	for (const char *const *f = gguf_source_files + 2; !rc && *f; f++)
		rc = write_source(w, g, *f, why);
	return rc;
}

int hf_files_copy(struct writer *w, const char *dir, bool config, struct why *why)
{
	static const char *const names[] = {"config.json",
					    "quantize_config.json",
					    "quant_config.json",
					    "generation_config.json",
					    "tokenizer.json",
					    "tokenizer.model",
					    "tokenizer_config.json",
					    "special_tokens_map.json",
					    "added_tokens.json",
					    "vocab.json",
					    "merges.txt",
					    "chat_template.jinja",
					    "chat_template.json",
					    "preprocessor_config.json",
					    "processor_config.json",
					    "LICENSE"};
	bool copied;
	int rc = 0;
	for (size_t i = config ? 0 : 3; !rc && i < sizeof names / sizeof *names; i++)
		rc = writer_copy(w, dir, names[i], &copied, why);
	return rc;
}

json_t *hf_number(double v)
{
	char text[40];
	for (int digits = 1; digits <= 9; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, v);
		if (strtof(text, NULL) == (float)v)
			break;
	}
	return json_real((double)(float)v == v || strtof(text, NULL) == (float)v ? strtod(text, NULL) : v);
}
