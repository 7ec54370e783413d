/* family.h - the table of architectures in Hugging Face layout: defaults of config.json, names of norms,
 * which layers have biases or a window.  A new architecture that combines known features is a new row. */
#ifndef QUERN_FORMATS_FAMILY_H
#define QUERN_FORMATS_FAMILY_H

#include "formats/config.h"

#include <stdbool.h>
#include <stddef.h>

enum family_bias { BIAS_NONE, BIAS_BY_KEY, BIAS_ALWAYS }; /* BY_KEY: by attention_bias or mlp_bias */

/* Rule for the layers with a sliding window. */
enum family_window {
	WINDOW_NONE,
	WINDOW_ALL,     /* all layers, if sliding_window is given */
	WINDOW_SWITCH,  /* with use_sliding_window: by layer_types, or from max_window_layers on */
	WINDOW_PATTERN, /* by layer_types, or all but every sliding_window_pattern-th layer */
};

/* Norms of a layer: before and after attention, before and after the feed-forward layer. */
enum { NORM_ATTN, NORM_ATTN_POST, NORM_FFN, NORM_FFN_POST, NORMS };

/* Keys of config.json for a mixture of experts, and tensor names within a layer. */
struct family_experts {
	const char *n, *intermediate; /* keys; the chosen experts per row are num_experts_per_tok in every
				       * family */
	const char *module;           /* "mlp": contains .gate (the router) and .experts.0.NAME */
	const char *names[3];         /* names of gate, up and down in an expert */
	const char *router;           /* "mlp.router" in place of .gate; or NULL */
	bool fused;                   /* all experts are in one tensor, as in gpt-oss (weights.c) */
	bool bias;                    /* the router and the experts have biases */
	const char *shared;           /* "mlp.shared_expert", or NULL */
	const char *shared_size; /* key of its intermediate size; NULL: n_shared_experts times an expert's
				  * size */
	bool shared_gate;        /* "mlp.shared_expert_gate" gives its weight */
	bool steps;              /* decoder_sparse_step and mlp_only_layers give the sparse layers */
	bool first_dense;        /* first_k_dense_replace gives the sparse layers */
	bool normalize;          /* weights are always normalized; else norm_topk_prob decides */
	bool deepseek;           /* DeepSeek routing: sigmoid, choice bias, groups, routed_scaling_factor */
};

struct family {
	const char *arch, *type; /* "Qwen3ForCausalLM", "qwen3" */
	enum config_arch id;
	const char *defaults;     /* JSON: values for keys that config.json may omit; or NULL */
	const char *norms[NORMS]; /* "input_layernorm"; NULL: none */
	enum config_qk_norm qk_norm;
	enum family_bias qkv_bias, o_bias, mlp_bias;
	enum family_window window;
	const struct family_experts *experts; /* NULL: dense */
	bool qk_norm_by_key;                  /* use_qk_norm decides; else the norm is always there */
	bool partial;                         /* partial_rotary_factor may be less than 1 */
	bool rope_pairs;                      /* RoPE rotates neighbouring values */
	bool rope_by_layer; /* layers with a window have their own base (rope_local_base_freq) */
	bool no_rope;       /* no_rope_layers: layers without rotation */
	bool sinks;         /* attention sinks: "self_attn.sinks" */
	bool clamped;       /* sigmoid gate, clamped to swiglu_limit; 1 is added to up */
	bool gemma;         /* soft caps, query_pre_attn_scalar, norm weights + 1, scaled embedding */
};

/* Find a family by its architecture, or by its model type if arch is NULL.  NULL: not supported. */
const struct family *family_find(const char *arch, const char *type);
/* Return the row of an architecture. */
const struct family *family_of(enum config_arch id);
/* Write up to three of the n names that share the longest prefix with `typed`, as "nearest:
 * Qwen3ForCausalLM, Qwen2ForCausalLM; "; "" if no name shares one.  Return out. */
const char *family_nearest(const char *typed, const char *const *names, size_t n, char *out, size_t size);
/* family_nearest() over the architectures in the table. */
const char *family_near(const char *typed, char *out, size_t size);

#endif
