/* config.h - the configuration of a model: of a directory in Hugging Face layout (config.c), or of another
 * kind (formats/model_file.h); and the RoPE tables that follow from it (config_rope.c).
 * An architecture or option that is not supported is named in the error, never ignored. */
#ifndef QUERN_FORMATS_CONFIG_H
#define QUERN_FORMATS_CONFIG_H

#include "formats/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum config_arch {
	ARCH_LLAMA,
	ARCH_MISTRAL,
	ARCH_QWEN2,
	ARCH_QWEN3,
	ARCH_OLMO2,
	ARCH_SMOLLM3,
	ARCH_PHI3,
	ARCH_GLM,
	ARCH_GLM4,
	ARCH_GEMMA2,
	ARCH_GEMMA3,
	ARCH_QWEN2_MOE,
	ARCH_QWEN3_MOE,
	ARCH_MIXTRAL,
	ARCH_OLMOE,
	ARCH_GLM4_MOE,
	ARCH_GPT_OSS,
};
enum config_act { ACT_SILU, ACT_GELU_TANH, ACT_GELU_SIGMOID };
/* RMS norm of q and k before the rotation: of each head, or one over all heads of a row (OLMo 2). */
enum config_qk_norm { QK_NORM_NONE, QK_NORM_HEADS, QK_NORM_ROWS };
enum config_layer_rope { LAYER_ROPE, LAYER_ROPE_LOCAL, LAYER_ROPE_NONE };
enum config_rope { ROPE_NONE, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_LLAMA3, ROPE_YARN, ROPE_LONGROPE };
enum config_dtype { CONFIG_F32, CONFIG_F16, CONFIG_BF16 };

/* How an embedding model makes one vector of a prompt's rows.  NONE: it says nothing; OTHER: a way that is
 * not supported, named in pool_why. */
enum config_pool { CONFIG_POOL_NONE, CONFIG_POOL_LAST, CONFIG_POOL_MEAN, CONFIG_POOL_OTHER };

/* Why a model with a head that classifies is refused. */
#define CONFIG_CLASSIFIER                                                                                    \
	"a head that classifies is not supported; models that rank by the logits of yes and no "             \
	"(Qwen3-Reranker) and embedding models are"

enum { CONFIG_EOS_MAX = 16, CONFIG_LAYERS_MAX = 1024, CONFIG_EXPERTS_MAX = 1024, CONFIG_CHOSEN_MAX = 64 };

enum config_score { SCORE_SOFTMAX, SCORE_SIGMOID };

/* A mixture of experts: a row has n_chosen of n, as struct kern_route_args (kernels/kern.h) says. */
struct config_experts {
	int n; /* 0: the model is dense */
	int n_chosen;
	int intermediate; /* of each */
	int shared;       /* intermediate values of the expert that all rows have; 0: none */
	bool shared_gate; /* it is weighed by a gate of its own; else by 1 */
	enum config_score score;
	bool choice_bias;            /* a bias that counts for the choice only */
	bool router_bias, bias;      /* of the router, and of each expert's gate, up and down */
	int n_groups, groups_chosen; /* 0: none */
	bool normalize;
	float scale;
};

struct model_config {
	enum config_arch arch;
	char arch_name[64]; /* "Qwen3ForCausalLM" */
	bool text_only;     /* the model has other parts (vision), which are not read */
	int n_layers, hidden, intermediate, n_heads, n_kv_heads, head_dim, n_vocab;
	int n_predict; /* layers behind the others, which predict further tokens (MTP): they are not read */
	int max_position; /* context of the model */
	float rms_eps;
	struct config_experts experts;
	uint8_t layer_sparse[CONFIG_LAYERS_MAX]; /* 1: this layer has the experts, and no other feed-forward
						    layer of `intermediate` values */
	bool tied;                               /* head = embedding */
	bool qkv_bias, o_bias, mlp_bias;
	enum config_qk_norm qk_norm;
	enum config_act act;
	float act_limit, up_plus; /* of gate and up, as kern_linear_src (kernels/kern.h) says; 0: none */
	bool sinks;               /* each head has one: kern_attn_args */
	/* 0 each: as most models have it. */
	float norm_offset;                       /* added to the weights of norms (Gemma: 1) */
	float embed_scale;                       /* the embedding's rows are multiplied by it (Gemma) */
	float attn_scale;                        /* of scores; 0: 1 / sqrt(head_dim) */
	float attn_cap, logit_cap;               /* x becomes cap * tanh(x / cap) (Gemma 2); 0: none */
	int window;                              /* sliding window, 0: none */
	uint8_t layer_window[CONFIG_LAYERS_MAX]; /* 1: this layer uses it */
	enum config_dtype dtype;                 /* torch_dtype */
	uint8_t layer_rope[CONFIG_LAYERS_MAX];   /* enum config_layer_rope */

	double rope_theta;
	double rope_local_theta; /* of layers with LAYER_ROPE_LOCAL, which know no scaling; 0: there are none
				  */
	int rope_dim;            /* rotated values of a head */
	bool rope_pairs;         /* rotated are values 2i and 2i + 1, not i and i + rope_dim / 2 */
	enum config_rope rope;
	double rope_factor, rope_low, rope_high; /* llama3; factor: linear, dynamic, yarn */
	double yarn_attention_factor;            /* <= 0: by the formula */
	double yarn_beta_fast, yarn_beta_slow, yarn_mscale, yarn_mscale_all_dim;
	bool yarn_truncate;
	int rope_original;              /* original_max_position_embeddings; 0: none */
	double *long_short, *long_long; /* longrope factors, [rope_dim/2], owned */

	struct quant quant; /* of a directory in Hugging Face layout */

	enum config_pool pool;
	bool embeds;       /* an embedding model: it may have no head */
	bool pool_plain;   /* its vectors are not normalized */
	char pool_why[96]; /* POOL_OTHER */

	int64_t bos;                  /* -1: none */
	uint32_t eos[CONFIG_EOS_MAX]; /* of generation_config.json, else of config.json */
	int n_eos;

	/* generation_config.json; NaN or -1: not given.  do_sample false: temperature 0. */
	double gen_temperature, gen_top_p, gen_min_p, gen_repetition;
	int64_t gen_top_k, gen_max_new_tokens;
};

/* path: a directory or a file, of any kind that formats/model_file.h knows. -ENOENT, -EINVAL, -ENOTSUP with
 * the reason. */
int model_config_load(const char *path, struct model_config *out, char *why, size_t why_n);
/* Of a directory in Hugging Face layout: config.json and generation_config.json. */
int hf_config_load(const char *dir, struct model_config *out, char *why, size_t why_n);
void model_config_fini(struct model_config *c);

/* Weights that a row is multiplied by in the layers, one multiplication each: of experts those it has. */
int64_t model_config_row_macs(const struct model_config *c);
/* All weights of the layers' linear parts. */
int64_t model_config_layer_weights(const struct model_config *c);
/* Widest feed-forward layer that all rows have: of dense layers, or of shared experts; 0: there is none. */
int model_config_ffn_width(const struct model_config *c);

/* cos and sin of the model's RoPE for positions 0..n-1, as Hugging Face computes them: out
 * [n, rope_dim/2, 2], multiplied by the attention factor of yarn and longrope.  max_context: the longest
 * context that is served, on which dynamic and longrope depend. */
void model_config_rope(const struct model_config *c, int n, int max_context, float *out);
/* The same of layers with LAYER_ROPE_LOCAL. */
void model_config_rope_local(const struct model_config *c, int n, float *out);

#endif
