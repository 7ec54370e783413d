/* family.h - what sets the architectures of Hugging Face's directories apart, as a table: defaults of
 * config.json, names of norms, where biases are, which layers have a window.  A new architecture that is put
 * together from what others have is a new row. */
#ifndef QUERN_FORMATS_FAMILY_H
#define QUERN_FORMATS_FAMILY_H

#include "formats/config.h"

#include <stdbool.h>
#include <stddef.h>

enum family_bias { BIAS_NONE, BIAS_BY_KEY, BIAS_ALWAYS }; /* by attention_bias or mlp_bias */

/* Which layers have a sliding window. */
enum family_window {
	WINDOW_NONE,
	WINDOW_ALL,     /* all, if sliding_window is given */
	WINDOW_SWITCH,  /* with use_sliding_window: by layer_types, or from max_window_layers on */
	WINDOW_PATTERN, /* by layer_types, or all but each sliding_window_pattern-th */
};

/* Norms of a layer: before and behind attention, before and behind the feed-forward layer. */
enum { NORM_ATTN, NORM_ATTN_POST, NORM_FFN, NORM_FFN_POST, NORMS };

/* Of a mixture: keys of config.json, and names within a layer. */
struct family_experts {
	const char *n, *intermediate; /* keys; the number that a row has is num_experts_per_tok everywhere */
	const char *module;           /* "mlp": has .gate (the router) and .experts.0.NAME */
	const char *names[3];         /* of gate, up and down in an expert */
	const char *router;           /* "mlp.router", in place of .gate; or NULL */
	bool fused;              /* experts are stored as gpt-oss has them, all in one tensor: weights.c */
	bool bias;               /* router and experts have biases */
	const char *shared;      /* "mlp.shared_expert", or NULL */
	const char *shared_size; /* key of its intermediate size; NULL: n_shared_experts of an expert's */
	bool shared_gate;        /* "mlp.shared_expert_gate" weighs it */
	bool steps;              /* decoder_sparse_step and mlp_only_layers say which layers are sparse */
	bool first_dense;        /* first_k_dense_replace does */
	bool normalize;          /* always; else norm_topk_prob says */
	bool deepseek;           /* sigmoid, a bias for the choice, groups, routed_scaling_factor */
};

struct family {
	const char *arch, *type; /* "Qwen3ForCausalLM", "qwen3" */
	enum config_arch id;
	const char *defaults;     /* JSON: what config.json may leave out; or NULL */
	const char *norms[NORMS]; /* "input_layernorm"; NULL: none */
	enum config_qk_norm qk_norm;
	enum family_bias qkv_bias, o_bias, mlp_bias;
	enum family_window window;
	const struct family_experts *experts; /* NULL: dense */
	bool qk_norm_by_key;                  /* use_qk_norm; else there is one */
	bool partial;                         /* partial_rotary_factor may be less than 1 */
	bool rope_pairs;                      /* rotated values are neighbours */
	bool rope_by_layer; /* layers with a window have a base of their own (rope_local_base_freq) */
	bool no_rope;       /* no_rope_layers: layers without rotation */
	bool sinks;         /* of attention; "self_attn.sinks" */
	bool clamped;       /* gates by a sigmoid, up to swiglu_limit, and ups plus 1 */
	bool gemma;         /* soft caps, query_pre_attn_scalar, weights of norms + 1, a scaled embedding */
};

/* By the architecture, or by the model type where arch is NULL; NULL: not supported. */
const struct family *family_find(const char *arch, const char *type);
/* The row of an architecture. */
const struct family *family_of(enum config_arch id);
/* "Llama, Mistral, ..." */
void family_names(char *out, size_t n);

#endif
