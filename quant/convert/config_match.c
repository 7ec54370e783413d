#include "quant/convert/config_match.h"

#include "base/alloc.h"
#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tolerances.  Some scales are rounded to the checkpoint's type in one format only (Gemma's embedding). */
static const double rounding = 1.0 / 128, precise = 1e-5;

static bool close_to(double a, double b, double by)
{
	return fabs(a - b) <= by * fabs(a);
}

/* Return the first field that differs; NULL: none.  Fields that the tensors determine are not compared: ties,
 * offsets of norms, the order of rotated pairs, the stored type. */
static const char *scalars(const struct model_config *a, const struct model_config *b)
{
	const struct {
		const char *name;
		int a, b;
	} ints[] = {
		{"num_hidden_layers", a->n_layers, b->n_layers},
		{"hidden_size", a->hidden, b->hidden},
		{"intermediate_size", a->intermediate, b->intermediate},
		{"num_attention_heads", a->n_heads, b->n_heads},
		{"num_key_value_heads", a->n_kv_heads, b->n_kv_heads},
		{"head_dim", a->head_dim, b->head_dim},
		{"vocab_size", a->n_vocab, b->n_vocab},
		{"max_position_embeddings", a->max_position, b->max_position},
		{"attention_bias", a->qkv_bias, b->qkv_bias},
		{"bias of o_proj", a->o_bias, b->o_bias},
		{"mlp_bias", a->mlp_bias, b->mlp_bias},
		{"bias of the head", a->head_bias, b->head_bias},
		{"norms of q and k", (int)a->qk_norm, (int)b->qk_norm},
		{"norms of q and k after the rotation", a->qk_norm_after, b->qk_norm_after},
		{"biases of the norms of q and k", a->qk_norm_bias, b->qk_norm_bias},
		{"kind of norms", (int)a->norm, (int)b->norm},
		{"biases of norms", a->norm_bias, b->norm_bias},
		{"order of attention and feed-forward layer", (int)a->block, (int)b->block},
		{"gate of the feed-forward layer", a->ffn_plain, b->ffn_plain},
		{"learned positions", a->learned, b->learned},
		{"direction of the rotation", a->rope_reversed, b->rope_reversed},
		{"scale of queries by position", a->q_scale_floor, b->q_scale_floor},
		{"hidden_act", (int)a->act, (int)b->act},
		{"attention sinks", a->sinks, b->sinks},
		{"scaled slopes of ALiBi", a->alibi_scaled, b->alibi_scaled},
		{"sliding_window", a->window, b->window},
		{"partial_rotary_factor", a->rope_dim, b->rope_dim},
	};
	const struct {
		const char *name;
		double a, b, by;
	} reals[] = {
		{"rms_norm_eps", (double)a->rms_eps, (double)b->rms_eps, precise},
		{"swiglu_limit", (double)a->act_limit, (double)b->act_limit, precise},
		{"up + 1", (double)a->up_plus, (double)b->up_plus, 0},
		{"scale of the embedding", (double)a->embed_scale, (double)b->embed_scale, rounding},
		{"query_pre_attn_scalar", (double)a->attn_scale, (double)b->attn_scale, precise},
		{"attn_logit_softcapping", (double)a->attn_cap, (double)b->attn_cap, precise},
		{"final_logit_softcapping", (double)a->logit_cap, (double)b->logit_cap, precise},
		{"scale of the logits", (double)a->logit_scale, (double)b->logit_scale, precise},
		{"scale of the residual", (double)a->residual_scale, (double)b->residual_scale, precise},
		{"slopes of ALiBi", (double)a->alibi_max, (double)b->alibi_max, precise},
		{"clip_qkv", (double)a->qkv_clip, (double)b->qkv_clip, precise},
		{"llama_4_scaling_beta", (double)a->q_scale_beta, (double)b->q_scale_beta, precise},
	};
	for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
		if (ints[i].a != ints[i].b)
			return ints[i].name;
	for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
		if (!close_to(reals[i].a, reals[i].b, reals[i].by))
			return reals[i].name;
	return NULL;
}

static const char *experts(const struct config_experts *a, const struct config_experts *b)
{
	if (a->n != b->n || a->n_chosen != b->n_chosen || a->intermediate != b->intermediate)
		return "number or size of experts";
	if (a->shared != b->shared || a->shared_gate != b->shared_gate)
		return "shared expert";
	if (a->router_bias != b->router_bias || a->bias != b->bias || a->choice_bias != b->choice_bias)
		return "biases of experts";
	if (a->score != b->score || a->n_groups != b->n_groups || a->groups_chosen != b->groups_chosen)
		return "choice of experts";
	return a->normalize != b->normalize || !close_to((double)a->scale, (double)b->scale, precise)
		       ? "norm_topk_prob or the scale of experts"
		       : NULL;
}

static const char *layers(const struct model_config *a, const struct model_config *b)
{
	bool local = false;
	for (int i = 0; i < a->n_layers; i++) {
		if (a->layers[i].sparse != b->layers[i].sparse)
			return "layers with experts";
		if (a->layers[i].window != b->layers[i].window)
			return "layers with a sliding window";
		if (a->layers[i].rope != b->layers[i].rope)
			return "layers without rotation (no_rope_layers)";
		local |= a->layers[i].rope == LAYER_ROPE_LOCAL;
	}
	return local && !close_to(a->rope_local_theta, b->rope_local_theta, precise)
		       ? "rope_theta of layers with a sliding window"
		       : NULL;
}

/* Return whether both have the same rotation at position 1, however the scaling is expressed; its angles are
 * the frequencies. */
static bool same_rotation(const struct model_config *a, const struct model_config *b, int context)
{
	const size_t n = 2 * (size_t)a->rope_dim;
	float *x = xcalloc(n, sizeof *x), *y = xcalloc(n, sizeof *y);
	model_config_rope(a, 2, context, x);
	model_config_rope(b, 2, context, y);
	bool same = true;
	for (size_t i = 0; i < n; i++)
		same = same && fabsf(x[i] - y[i]) <= 1e-6f + 1e-4f * fabsf(x[i]);
	free(x);
	free(y);
	return same;
}

static const char *rotation(const struct model_config *a, const struct model_config *b)
{
	const int contexts[] = {1, a->rope_original, a->max_position, b->rope_original, 2 * a->max_position};
	for (int i = 0; i < 5; i++)
		if (contexts[i] > 0 && !same_rotation(a, b, contexts[i]))
			return "scaling of RoPE";
	return NULL;
}

int config_match(const struct model_config *source, const struct model_config *back, const char *format,
		 struct why *why)
{
	const char *what = scalars(source, back);
	what = what ? what : experts(&source->experts, &back->experts);
	what = what ? what : layers(source, back);
	what = what ? what : rotation(source, back);
	return what ? err_why(why, -ENOTSUP, "%s of %s would not come through: %s would say something else",
			      what, source->arch_name, format)
		    : 0;
}
