/* gguf_config.c - the configuration of a model in a GGUF file.  Keys begin with the architecture:
 * "qwen3.block_count". */
#include "formats/gguf.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/family.h"
#include "formats/pool_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct reader {
	const struct gguf *g;
	char arch[32];
	const struct family *family;
	struct why *why;
};

static int fail(const struct reader *r, int err, const char *what, const char *text)
{
	return err_why(r->why, err, "%s: %s %s", gguf_path(r->g), what, text);
}

static const char *key_of(const struct reader *r, const char *name, char out[128])
{
	snprintf(out, 128, "%s.%s", r->arch, name);
	return out;
}

/* Read a key of the architecture; an array of equal values counts as that value.  If the key is missing, *out
 * stays, or with `need` it is an error. */
static int get_int(const struct reader *r, const char *name, int64_t lo, int64_t hi, bool need, int *out)
{
	char key[128];
	struct gguf_array a;
	int64_t v = *out, next;
	int rc = gguf_find_array(r->g, key_of(r, name, key), &a, NULL);
	if (rc == 0) {
		if (!gguf_int_at(&a, 0, &v))
			return fail(r, -EINVAL, key, "must be an integer, or an array of them");
		for (size_t i = 1; i < a.n; i++)
			if (!gguf_int_at(&a, i, &next) || next != v)
				return fail(r, -ENOTSUP, key,
					    "differs between layers, which is not supported");
	} else {
		rc = gguf_find_int(r->g, key, &v, r->why);
		if (rc == -ENOENT && !need)
			return 0;
		if (rc)
			return rc;
	}
	if (v < lo || v > hi)
		return err_why(r->why, -EINVAL, "%s: key %s is %lld, must be from %lld to %lld",
			       gguf_path(r->g), key, (long long)v, (long long)lo, (long long)hi);
	*out = (int)v;
	return 0;
}

static int get_num(const struct reader *r, const char *name, double lo, double hi, double *out)
{
	char key[128];
	double v;
	const int rc = gguf_find_num(r->g, key_of(r, name, key), &v, r->why);
	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	if (!(v >= lo && v <= hi))
		return err_why(r->why, -EINVAL, "%s: key %s is %g, must be from %g to %g", gguf_path(r->g),
			       key, v, lo, hi);
	*out = v;
	return 0;
}

static bool has(const struct reader *r, const char *tensor)
{
	return gguf_find(r->g, tensor) != NULL;
}

/* ---- parts ---- */

/* Refuse files of another type: adapters may have a model's keys and tensors. */
static int check_type(const struct reader *r)
{
	struct gguf_string s;
	const int rc = gguf_find_string(r->g, "general.type", &s, r->why);
	if (rc == -ENOENT)
		return 0;
	if (!rc && (s.n != strlen("model") || memcmp(s.p, "model", s.n) != 0))
		return err_why(r->why, -ENOTSUP, "%s: is no model: general.type is %.*s", gguf_path(r->g),
			       s.n < 60 ? (int)s.n : 60, s.p);
	return rc;
}

static int read_arch(struct reader *r, struct model_config *c)
{
	struct gguf_string s;
	int rc = gguf_find_string(r->g, "general.architecture", &s, r->why);
	if (rc)
		return rc;
	char near[160], typed[64];
	int experts = 0;
	snprintf(typed, sizeof typed, "%.*s", s.n < 60 ? (int)s.n : 60, s.p);
	r->family = s.n < sizeof r->arch ? family_find_gguf(typed, false) : NULL;
	if (!r->family)
		return err_why(r->why, -ENOTSUP,
			       "%s: architecture %s is not supported (%sall that are: docs/MODELS.md)",
			       gguf_path(r->g), typed, family_near(typed, true, near, sizeof near));
	snprintf(r->arch, sizeof r->arch, "%.31s", typed);
	if ((rc = get_int(r, "expert_count", 0, CONFIG_EXPERTS_MAX, false, &experts)))
		return rc;
	r->family = family_find_gguf(typed, experts > 0);
	c->family = r->family;
	c->rope_pairs = r->family->rope_pairs || r->family->gguf->permuted;
	snprintf(c->arch_name, sizeof c->arch_name, "%s", r->family->arch);
	return 0;
}

static int read_shape(const struct reader *r, struct model_config *c)
{
	const struct gguf_tensor *embed = gguf_find(r->g, "token_embd.weight");
	double eps = 1e-5;
	int rc = 0, values;
	if (!embed)
		return fail(r, -ENOENT, "tensor token_embd.weight", "is missing");
	if (embed->n_dims != 2 || embed->size[1] < 1 || embed->size[1] > 1 << 22)
		return fail(r, -EINVAL, "tensor token_embd.weight", "is no table of 1 to 4194304 tokens");
	c->n_vocab = (int)embed->size[1];
	if ((rc = get_int(r, "block_count", 1, CONFIG_LAYERS_MAX, true, &c->n_layers)) ||
	    (rc = get_int(r, "nextn_predict_layers", 0, c->n_layers - 1, false, &c->n_predict)) ||
	    (rc = get_int(r, "embedding_length", 1, 1 << 17, true, &c->hidden)) ||
	    (rc = get_int(r, "feed_forward_length", 1, 1 << 20, true, &c->intermediate)) ||
	    (rc = get_int(r, "attention.head_count", 1, 4096, true, &c->n_heads)) ||
	    (rc = get_int(r, "context_length", 1, 1 << 24, true, &c->max_position)))
		return rc;
	c->n_layers -= c->n_predict;
	c->n_kv_heads = c->n_heads;
	if ((rc = get_int(r, "attention.head_count_kv", 1, c->n_heads, false, &c->n_kv_heads)))
		return rc;
	if (c->n_heads % c->n_kv_heads)
		return fail(r, -EINVAL, "attention.head_count",
			    "is not a multiple of attention.head_count_kv");
	c->head_dim = c->hidden / c->n_heads;
	if ((rc = get_int(r, "attention.key_length", 2, 1024, false, &c->head_dim)))
		return rc;
	values = c->head_dim;
	if ((rc = get_int(r, "attention.value_length", 2, 1024, false, &values)))
		return rc;
	if (values != c->head_dim)
		return fail(r, -ENOTSUP, "attention.value_length",
			    "other than attention.key_length is not supported");
	if (c->head_dim < 2 || c->head_dim % 2)
		return fail(r, -EINVAL, "attention.key_length", "must be even");
	if ((rc = get_num(r,
			  r->family->norm == CONFIG_NORM_LAYER ? "attention.layer_norm_epsilon"
							       : "attention.layer_norm_rms_epsilon",
			  0, 1, &eps)))
		return rc;
	c->rms_eps = (float)eps;
	return 0;
}

/* Read where the norms are: attention and FFN side by side have one norm, or two and a key that says so. */
static int read_block(const struct reader *r, struct model_config *c)
{
	const struct family *f = r->family;
	bool parallel = f->block != BLOCK_PARALLEL || !has(r, "blk.0.ffn_norm.weight");
	char key[128];
	const int rc = f->gguf->parallel ? gguf_find_bool(r->g, key_of(r, "use_parallel_residual", key),
							  &parallel, r->why)
					 : 0;
	c->norm = f->norm;
	c->norm_bias = f->norm_bias;
	c->qk_norm_after = f->qk_norm_after;
	c->qk_norm_bias = f->qk_norm_bias;
	c->block = parallel ? f->block : BLOCK_SERIAL;
	c->ffn_plain = f->ffn_plain;
	c->act = f->clamped ? ACT_GELU_SIGMOID : f->gguf->act;
	c->act_limit = f->clamped ? 7 : 0;
	c->up_plus = f->clamped ? 1 : 0;
	c->head_bias = has(r, "output.bias");
	return rc == -ENOENT ? 0 : rc;
}

static bool is_of_layer(const struct gguf_tensor *t, const char *part)
{
	const size_t n = strlen(t->name), k = strlen(part);
	return n > k && strncmp(t->name, "blk.", 4) == 0 && strcmp(t->name + n - k, part) == 0;
}

/* Set the switches by the tensors.  If any layer has a bias or norm, all must: the reader of weights names a
 * missing one. */
static void read_switches(const struct reader *r, struct model_config *c)
{
	bool f32 = true, bf16 = false, f16 = false;
	c->sinks = r->family->sinks;
	c->tied = !has(r, "output.weight");
	for (int i = 0; i < gguf_count(r->g); i++) {
		const struct gguf_tensor *t = gguf_at(r->g, i);
		c->qkv_bias |= is_of_layer(t, ".attn_qkv.bias") || is_of_layer(t, ".attn_q.bias") ||
			       is_of_layer(t, ".attn_k.bias") || is_of_layer(t, ".attn_v.bias");
		c->o_bias |= is_of_layer(t, ".attn_output.bias");
		c->mlp_bias |= is_of_layer(t, ".ffn_gate.bias") || is_of_layer(t, ".ffn_up.bias") ||
			       is_of_layer(t, ".ffn_down.bias");
		if (is_of_layer(t, ".attn_q_norm.weight") || is_of_layer(t, ".attn_k_norm.weight"))
			c->qk_norm = r->family->qk_norm ? r->family->qk_norm : QK_NORM_HEADS;
		if (t->n_dims < 2)
			continue;
		f32 &= t->type == GGUF_TYPE_F32;
		bf16 |= t->type == GGUF_TYPE_BF16;
		f16 |= t->type == GGUF_TYPE_F16;
	}
	/* If all weights are quantized, the original type is unknown: assume BF16, which has the larger
	 * range. */
	c->dtype = f32 ? CONFIG_F32 : f16 && !bf16 ? CONFIG_F16 : CONFIG_BF16;
}

/* ---- experts ---- */

static bool layer_has(const struct reader *r, int layer, const char *part)
{
	char name[96];
	snprintf(name, sizeof name, "blk.%d.%s", layer, part);
	return has(r, name);
}

/* Find the layers with experts: those with a router.  If one of them has a gate or a bias, all must. */
static void read_sparse(const struct reader *r, struct model_config *c)
{
	struct config_experts *x = &c->experts;
	for (int i = 0; i < c->n_layers; i++) {
		c->layers[i].sparse = layer_has(r, i, "ffn_gate_inp.weight");
		x->shared_gate |= layer_has(r, i, "ffn_gate_inp_shexp.weight");
		x->choice_bias |= layer_has(r, i, "exp_probs_b.bias");
		x->router_bias |= layer_has(r, i, "ffn_gate_inp.bias");
		x->bias |= layer_has(r, i, "ffn_gate_exps.bias") || layer_has(r, i, "ffn_up_exps.bias") ||
			   layer_has(r, i, "ffn_down_exps.bias");
	}
}

/* Read the width of the shared expert: from its key, as a multiple of an expert's width, or from its
 * tensor. */
static int read_shared(const struct reader *r, struct model_config *c)
{
	struct config_experts *x = &c->experts;
	int n = 0, rc;
	if ((rc = get_int(r, "expert_shared_count", 0, 64, false, &n)))
		return rc;
	x->shared = n * x->intermediate;
	for (int i = 0; !x->shared && i < c->n_layers; i++) {
		char name[96];
		snprintf(name, sizeof name, "blk.%d.ffn_gate_shexp.weight", i);
		const struct gguf_tensor *t = gguf_find(r->g, name);
		if (t && t->size[1] >= 1 && t->size[1] <= 1 << 20)
			x->shared = (int)t->size[1];
	}
	return get_int(r, "expert_shared_feed_forward_length", 0, 1 << 20, false, &x->shared);
}

static int read_groups(const struct reader *r, struct config_experts *x)
{
	int groups = 1, chosen = 1, rc;
	if ((rc = get_int(r, "expert_group_count", 0, CONFIG_EXPERTS_MAX, false, &groups)) ||
	    (rc = get_int(r, "expert_group_used_count", 0, CONFIG_EXPERTS_MAX, false, &chosen)) ||
	    groups <= 1)
		return rc;
	if (chosen < 1 || chosen > groups || x->n % groups || x->n / groups * chosen < x->n_chosen)
		return fail(r, -EINVAL, "expert_group_count",
			    "and expert_group_used_count do not go with the number of experts");
	x->n_groups = groups;
	x->groups_chosen = chosen;
	return 0;
}

/* Read the routing rule. */
static int read_rule(const struct reader *r, struct config_experts *x)
{
	enum { SOFTMAX = 1, SIGMOID = 2, SOFTMAX_OF_CHOSEN = 3 };
	char key[128];
	double scale = 1;
	int how = r->family->experts->score == SCORE_SIGMOID ? SIGMOID : SOFTMAX, rc;
	x->normalize = r->family->gguf->normalize;
	if ((rc = get_int(r, "expert_gating_func", 0, 255, false, &how)) ||
	    (rc = get_num(r, "expert_weights_scale", 0, 1e6, &scale)))
		return rc;
	if (how < SOFTMAX || how > SOFTMAX_OF_CHOSEN)
		return fail(r, -ENOTSUP, key_of(r, "expert_gating_func", key),
			    "is not supported (supported: 1, 2, 3)");
	rc = gguf_find_bool(r->g, key_of(r, "expert_weights_norm", key), &x->normalize, r->why);
	if (rc && rc != -ENOENT)
		return rc;
	x->score = how == SIGMOID ? SCORE_SIGMOID : SCORE_SOFTMAX;
	/* A softmax over the chosen experts equals the full softmax divided by their sum. */
	x->normalize |= how == SOFTMAX_OF_CHOSEN;
	x->scale = scale > 0 ? (float)scale : 1;
	return read_groups(r, x);
}

static int read_experts(const struct reader *r, struct model_config *c)
{
	struct config_experts *x = &c->experts;
	char key[128];
	int rc = get_int(r, "expert_count", 0, CONFIG_EXPERTS_MAX, false, &x->n);
	if (rc || !x->n)
		return rc;
	if (!r->family->experts)
		return fail(r, -ENOTSUP, r->arch, "with experts (a mixture) is not supported");
	x->intermediate = c->intermediate;
	if ((rc = get_int(r, "expert_used_count", 1, CONFIG_CHOSEN_MAX, true, &x->n_chosen)) ||
	    (rc = get_int(r, "expert_feed_forward_length", 1, 1 << 20, false, &x->intermediate)))
		return rc;
	if (x->n_chosen > x->n)
		return fail(r, -EINVAL, key_of(r, "expert_used_count", key), "is larger than expert_count");
	read_sparse(r, c);
	rc = read_rule(r, x);
	return rc ? rc : read_shared(r, c);
}

/* Read Gemma's settings.  The converter has added 1 to the norm weights; the embedding's factor is not
 * rounded. */
static int read_gemma(const struct reader *r, struct model_config *c)
{
	double attn = r->family->gguf->caps[0], logits = r->family->gguf->caps[1];
	int rc;
	if (r->family->embed == EMBED_PLAIN)
		return 0;
	if ((rc = get_num(r, "attn_logit_softcapping", 0, 1e6, &attn)) ||
	    (rc = get_num(r, "final_logit_softcapping", 0, 1e6, &logits)))
		return rc;
	const bool large = c->n_layers == r->family->gguf->large_layers;
	c->act = ACT_GELU_TANH;
	c->attn_cap = (float)attn;
	c->logit_cap = (float)logits;
	if (r->family->gguf->large_layers)
		c->attn_scale = 1 / sqrtf((float)(large ? c->hidden / c->n_heads : c->head_dim));
	c->embed_scale = sqrtf((float)c->hidden);
	return 0;
}

/* Read factors.  A factor of 1 is none. */
static int read_factors_of(const struct reader *r, struct model_config *c)
{
	double embed = 1, residual = 1, logit = 1, attn = 0;
	int rc;
	if (r->family->gguf->logit_factor) {
		rc = get_num(r, "logit_scale", 1e-6, 1e6, &logit);
		c->logit_scale = logit == 1 ? 0 : (float)logit;
		return rc;
	}
	if (!r->family->gguf->factors)
		return 0;
	if ((rc = get_num(r, "embedding_scale", 1e-6, 1e6, &embed)) ||
	    (rc = get_num(r, "residual_scale", 1e-6, 1e6, &residual)) ||
	    (rc = get_num(r, "logit_scale", 1e-6, 1e6, &logit)) ||
	    (rc = get_num(r, "attention.scale", 0, 1e6, &attn)))
		return rc;
	c->embed_scale = embed == 1 ? 0 : (float)embed;
	c->residual_scale = residual == 1 ? 0 : (float)residual;
	c->logit_scale = logit == 1 ? 0 : (float)(1 / logit);
	c->attn_scale = (float)attn;
	return 0;
}

/* Mark the layers with a window: by a list of booleans, or all but every so-many-th layer. */
static int read_pattern(const struct reader *r, struct model_config *c)
{
	static const char name[] = "attention.sliding_window_pattern";
	char key[128];
	struct gguf_array a;
	int every = r->family->gguf->every, rc;
	if (gguf_find_array(r->g, key_of(r, name, key), &a, NULL)) {
		if ((rc = get_int(r, name, 1, 1 << 20, false, &every)))
			return rc;
		for (int i = 0; i < c->n_layers; i++)
			c->layers[i].window = !every || (i + 1) % every ? c->window : 0;
		return 0;
	}
	if (a.n != (size_t)c->n_layers)
		return err_why(r->why, -EINVAL, "%s: key %s has %zu values, %d layers need as many",
			       gguf_path(r->g), key, a.n, c->n_layers);
	for (int i = 0; i < c->n_layers; i++) {
		int64_t v = a.type == GGUF_BOOL ? a.at[i] : -1;
		if ((v < 0 && !gguf_int_at(&a, (size_t)i, &v)) || v < 0 || v > 1)
			return fail(r, -EINVAL, key, "must be an array of true and false");
		c->layers[i].window = v ? c->window : 0;
	}
	return 0;
}

/* Set the window and the rotation of each layer. */
static int read_layers(const struct reader *r, struct model_config *c)
{
	int rc = get_int(r, "attention.sliding_window", 0, 1 << 30, false, &c->window);
	if (rc)
		return rc;
	if (!r->family->gguf->window) {
		const bool given = c->window != 0 && !r->family->window;
		char key[128];
		c->window = 0;
		return given ? fail(r, -ENOTSUP, key_of(r, "attention.sliding_window", key),
				    "is not supported")
			     : 0;
	}
	if ((rc = read_pattern(r, c)))
		return rc;
	if (r->family->gguf->local_theta == 0)
		return 0;
	c->rope_local_theta = r->family->gguf->local_theta;
	if ((rc = get_num(r, "rope.freq_base_swa", 1e-3, 1e15, &c->rope_local_theta)))
		return rc;
	for (int i = 0; i < c->n_layers; i++)
		c->layers[i].rope = c->layers[i].window ? LAYER_ROPE_LOCAL : LAYER_ROPE;
	return 0;
}

/* Read n positive wavelength factors, one for each pair. */
static int read_factors(const struct reader *r, const char *name, size_t n, double **out)
{
	char what[64];
	const struct gguf_tensor *t = gguf_find(r->g, name);
	snprintf(what, sizeof what, "tensor %s", name);
	if (!t)
		return fail(r, -ENOENT, what, "is missing");
	if (t->type != GGUF_TYPE_F32 || t->size[0] != (int64_t)n || t->bytes != n * 4)
		return fail(r, -EINVAL, what, "must be F32, one value for each pair");
	*out = xcalloc(n, sizeof **out);
	for (size_t i = 0; i < n; i++) {
		float f;
		memcpy(&f, (const unsigned char *)t->data + i * 4, 4);
		if (!(f > 0 && f < 1e9f))
			return fail(r, -EINVAL, what, "has a value that is no factor");
		(*out)[i] = f;
	}
	return 0;
}

/* Read longrope (Phi-3). */
static int read_longrope(const struct reader *r, struct model_config *c)
{
	const size_t n = (size_t)c->rope_dim / 2;
	int rc = get_num(r, "rope.scaling.attn_factor", 0, 1e6, &c->yarn_attention_factor);
	if (c->rope_original < 2)
		return fail(r, -EINVAL, "rope.scaling.original_context_length", "must be at least 2");
	if (rc || (rc = read_factors(r, "rope_factors_short.weight", n, &c->long_short)) ||
	    (rc = read_factors(r, "rope_factors_long.weight", n, &c->long_long)))
		return rc;
	c->rope = ROPE_LONGROPE;
	c->rope_factor = (double)c->max_position / c->rope_original;
	return 0;
}

/* Read rope_freqs.weight: wavelength factors, one for each pair. */
static int read_freqs(const struct reader *r, struct model_config *c)
{
	const struct gguf_tensor *t = gguf_find(r->g, "rope_freqs.weight");
	if (!t)
		return 0;
	if (c->rope != ROPE_NONE)
		return fail(r, -ENOTSUP, "tensor rope_freqs.weight",
			    "together with a scaling of RoPE is not supported");
	const size_t n = (size_t)c->rope_dim / 2;
	const int rc = read_factors(r, "rope_freqs.weight", n, &c->long_short);
	if (rc)
		return rc;
	c->rope = ROPE_LONGROPE;
	c->rope_factor = c->yarn_attention_factor = 1;
	c->rope_original = c->max_position;
	c->long_long = xmemdup(c->long_short, n * sizeof *c->long_long);
	return 0;
}

static bool is_text(const struct gguf_string *s, const char *text)
{
	return s->n == strlen(text) && memcmp(s->p, text, s->n) == 0;
}

static int read_yarn(const struct reader *r, struct model_config *c, double attention)
{
	double more = 1, ext = 1;
	int rc;
	c->rope = ROPE_YARN;
	c->yarn_truncate = !r->family->gguf->yarn_exact;
	c->yarn_beta_fast = 32;
	c->yarn_beta_slow = 1;
	if ((rc = get_num(r, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, &c->yarn_beta_fast)) ||
	    (rc = get_num(r, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, &c->yarn_beta_slow)) ||
	    (rc = get_num(r, "rope.scaling.yarn_attn_factor", 0, 1e6, &more)) ||
	    (rc = get_num(r, "rope.scaling.yarn_ext_factor", 0, 1e6, &ext)))
		return rc;
	if (attention != 1 || more != 1 || ext != 1 || c->rope_theta == 1)
		return fail(r, -ENOTSUP, "rope.scaling.type",
			    "yarn with an attn_factor or ext_factor is not supported");
	return 0;
}

static int read_scaling(const struct reader *r, struct model_config *c)
{
	char key[128];
	struct gguf_string s = {"none", 4};
	double factor = 0, attention = 1;
	int rc = gguf_find_string(r->g, key_of(r, "rope.scaling.type", key), &s, r->why);
	if (rc && rc != -ENOENT)
		return rc;
	const bool named = rc == 0;
	c->rope_original = c->max_position;
	if ((rc = get_num(r, "rope.scaling.factor", 0, 1e6, &factor)) ||
	    (rc = get_num(r, "rope.scaling.attn_factor", 0, 1e6, &attention)) ||
	    (rc = get_int(r, "rope.scaling.original_context_length", 1, 1 << 24, false, &c->rope_original)))
		return rc;
	/* Key of older converters.  A factor without a type means linear, as in llama.cpp. */
	if (!named && factor == 0 && (rc = get_num(r, "rope.scale_linear", 0, 1e6, &factor)))
		return rc;
	if (!named && factor > 0 && factor != 1)
		s = (struct gguf_string){"linear", 6};
	if (r->family->gguf->longrope && has(r, "rope_factors_long.weight"))
		return read_longrope(r, c);
	if (is_text(&s, "linear") && factor > 0) {
		c->rope = ROPE_LINEAR;
	} else if (is_text(&s, "yarn") && factor > 0) {
		if ((rc = read_yarn(r, c, attention)))
			return rc;
	} else if (!is_text(&s, "none")) {
		return err_why(
			r->why, -ENOTSUP,
			"%s: key %s %.*s with the factor %g is not supported (supported: none, linear, "
			"yarn)",
			gguf_path(r->g), key, s.n < 40 ? (int)s.n : 40, s.p, factor);
	}
	c->rope_factor = factor;
	return read_freqs(r, c);
}

static int read_rope(const struct reader *r, struct model_config *c)
{
	int rc;
	c->rope_theta = 10000;
	c->rope_dim = c->head_dim;
	if ((rc = get_num(r, "rope.freq_base", 1e-3, 1e15, &c->rope_theta)) ||
	    (rc = get_int(r, "rope.dimension_count", 2, 1024, false, &c->rope_dim)))
		return rc;
	if (c->rope_dim > c->head_dim || c->rope_dim % 2 ||
	    (c->rope_dim != c->head_dim && !r->family->partial))
		return fail(r, -ENOTSUP, "rope.dimension_count",
			    "other than the size of a head is not supported");
	c->window = r->family->gguf->default_window;
	if ((rc = read_scaling(r, c)) || (rc = read_layers(r, c)))
		return rc;
	const enum family_nope nope = r->family->nope;
	for (int i = 0; (nope == NOPE_ALWAYS || (nope == NOPE_FULL && c->window)) && i < c->n_layers; i++)
		c->layers[i].rope = c->layers[i].window ? LAYER_ROPE : LAYER_ROPE_NONE;
	const int no_rope = r->family->gguf->no_rope;
	for (int i = 0; no_rope && i < c->n_layers; i++)
		c->layers[i].rope = (i + 1) % no_rope ? LAYER_ROPE : LAYER_ROPE_NONE;
	return 0;
}

static int read_tokens(const struct reader *r, struct model_config *c)
{
	static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
					   "tokenizer.ggml.eom_token_id"};
	int64_t id;
	int rc = gguf_find_int(r->g, "tokenizer.ggml.bos_token_id", &id, r->why);
	if (rc && rc != -ENOENT)
		return rc;
	c->bos = rc ? -1 : id;
	if (c->bos >= c->n_vocab || c->bos < -1)
		return fail(r, -EINVAL, "tokenizer.ggml.bos_token_id", "is no token of the vocabulary");
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		bool known = false;
		rc = gguf_find_int(r->g, ends[i], &id, r->why);
		if (rc == -ENOENT)
			continue;
		if (rc)
			return rc;
		if (id < 0 || id >= c->n_vocab)
			return fail(r, -EINVAL, ends[i], "is no token of the vocabulary");
		for (int j = 0; j < c->n_eos; j++)
			known |= c->eos[j] == (uint32_t)id;
		if (!known)
			c->eos[c->n_eos++] = (uint32_t)id;
	}
	c->gen_temperature = c->gen_top_p = c->gen_min_p = c->gen_repetition = NAN;
	c->gen_top_k = c->gen_max_new_tokens = -1;
	return 0;
}

/* Refuse a classification head.  A head of yes and no is accepted: the model's head has both logits. */
static int check_classes(const struct reader *r)
{
	char key[128];
	struct gguf_array a;
	bool classes = false;
	for (int i = 0; i < gguf_count(r->g); i++)
		classes |= strncmp(gguf_at(r->g, i)->name, "cls.", 4) == 0;
	if (!classes)
		return 0;
	if (gguf_find_array(r->g, key_of(r, "classifier.output_labels", key), &a, NULL) == 0 &&
	    a.type == GGUF_STRING && a.n == 2) {
		const struct gguf_string yes = gguf_next_string(&a), no = gguf_next_string(&a);
		if (is_text(&yes, "yes") && is_text(&no, "no"))
			return 0;
	}
	return fail(r, -ENOTSUP, "tensors cls.*:", CONFIG_CLASSIFIER);
}

static int read_pool(const struct reader *r, struct model_config *c)
{
	int type = GGUF_POOL_NONE;
	int rc = check_classes(r);
	if (!rc && !(rc = get_int(r, "pooling_type", 0, 1 << 20, false, &type)))
		pool_config_gguf(c, type);
	return rc;
}

int gguf_config_load(const char *path, struct model_config *out, struct why *why)
{
	struct gguf *g;
	memset(out, 0, sizeof *out);
	int rc = gguf_open(path, &g, why);
	if (rc)
		return rc;
	struct reader r = {.g = g, .why = why};
	if (!(rc = check_type(&r)) && !(rc = read_arch(&r, out)) && !(rc = read_shape(&r, out))) {
		read_switches(&r, out);
		if (!(rc = read_block(&r, out)) && !(rc = read_experts(&r, out)) &&
		    !(rc = read_gemma(&r, out)) && !(rc = read_factors_of(&r, out)) &&
		    !(rc = read_rope(&r, out)) && !(rc = read_pool(&r, out)))
			rc = read_tokens(&r, out);
		model_config_plan(out);
	}
	gguf_close(g);
	if (rc)
		model_config_fini(out);
	return rc;
}
