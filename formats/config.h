/* config.h - the configuration of a model.  It is read from a directory in Hugging Face layout (config.c)
 * or from another kind of file (formats/model_file.h).  config_rope.c derives the RoPE tables.
 * An unsupported architecture or option is an error that names it; it is never ignored. */
#ifndef QUERN_FORMATS_CONFIG_H
#define QUERN_FORMATS_CONFIG_H

#include "base/err.h"
#include "base/kinds.h"
#include "formats/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct family; /* formats/family.h */

/* Activation functions (enum kern_act, kernels/kern.h).  XIELU has parameters per layer
 * (weights_layer.act_args). */
enum config_act { ACT_SILU, ACT_GELU_TANH, ACT_GELU_SIGMOID, ACT_GELU, ACT_RELU, ACT_RELU2, ACT_XIELU };
/* Kind of all norms: x / rms(x), or (x - mean(x)) / sd(x). */
enum config_norm { CONFIG_NORM_RMS, CONFIG_NORM_LAYER };
/* Norm of q and k: per head with one weight vector for all heads, over all heads of a row (OLMo 2), or per
 * head with a weight vector for each head (Cohere). */
enum config_qk_norm { QK_NORM_NONE, QK_NORM_HEADS, QK_NORM_ROWS, QK_NORM_EACH };
/* How a layer adds attention and the feed-forward layer (FFN) to the residual stream x.  Each norm is
 * optional.
 *   SERIAL         x += post(attn(norm(x))), then x += post(ffn(norm(x)))
 *   PARALLEL       y = norm(x), x += attn(y) + ffn(y): one norm for both
 *   PARALLEL_TWO   x += attn(norm(x)) + ffn(ffn_norm(x)): both norms read the same x
 *   POST           x = norm(x + attn(x)), then x = norm(x + ffn(x)): attn_post and ffn_post norm the sum */
enum config_block { BLOCK_SERIAL, BLOCK_PARALLEL, BLOCK_PARALLEL_TWO, BLOCK_POST };
enum config_layer_rope { LAYER_ROPE, LAYER_ROPE_LOCAL, LAYER_ROPE_NONE };
enum config_rope { ROPE_NONE, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_LLAMA3, ROPE_YARN, ROPE_LONGROPE };
enum config_dtype { CONFIG_F32, CONFIG_F16, CONFIG_BF16 };

/* How an embedding model pools a prompt's rows into one vector.  NONE: not stated; OTHER: an unsupported
 * method, named in pool_why. */
enum config_pool { CONFIG_POOL_NONE, CONFIG_POOL_LAST, CONFIG_POOL_MEAN, CONFIG_POOL_OTHER };

/* Reason for refusing a model with a classification head. */
#define CONFIG_CLASSIFIER                                                                                    \
	"a head that classifies is not supported; models that rank by the logits of yes and no "             \
	"(Qwen3-Reranker) and embedding models are"

enum { CONFIG_EOS_MAX = 16, CONFIG_LAYERS_MAX = 1024, CONFIG_EXPERTS_MAX = 1024, CONFIG_CHOSEN_MAX = 64 };

enum config_score { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_SPARSEMIXER };

/* A mixture of experts: n_chosen of n experts compute each row; see struct kern_route_args
 * (kernels/kern.h). */
struct config_experts {
	int n; /* experts per layer; 0: the model is dense */
	int n_chosen;
	int intermediate; /* intermediate values of one expert */
	int shared;       /* intermediate values of the shared expert; 0: none */
	bool shared_gate; /* the shared expert has a gate; without one its weight is 1 */
	enum config_score score;
	bool choice_bias;            /* the router has a bias that affects the choice only */
	bool router_bias, bias;      /* the router has a bias; the experts' gate, up and down have biases */
	int n_groups, groups_chosen; /* expert groups, and how many are chosen; 0: none */
	bool normalize;
	float scale;
	float shared_scale; /* factor of the shared expert's output; 0: none (1) */
	float jitter;       /* SPARSEMIXER: half the distance within which experts share a score */
};

/* The plan of one layer.  Code that computes, sizes or cuts a layer reads the plan, never the model's scalars
 * of the same name. */
struct config_layer {
	int heads, kv_heads, dim; /* attention: query heads, KV heads, values of a head */
	int head0, kv_head0;      /* first heads, in the plan of a rank (shard_layer()); else 0 */
	int window;               /* sliding window, in tokens; 0: none */
	int inter;                /* intermediate values of the dense FFN, or of the shared expert; 0: none */
	bool sparse;              /* experts in place of the dense FFN */
	uint8_t rope;             /* enum config_layer_rope */
};

/* The layers, cut into kinds (base/kinds.h).  A block holds K and V of one kind's layers, at most n_layers:
 *
 *   layers     window full window full window        n_layers 2
 *   kind            1    0      1    0      2         kinds: 0 full, 1 and 2 with the window
 *   place           0    0      1    1      0         the second layer of kind 2 does not exist */
struct config_kinds {
	struct kinds kinds;
	int n_layers;
	uint8_t kind[CONFIG_LAYERS_MAX];
	uint16_t place[CONFIG_LAYERS_MAX]; /* among the layers of a block */
};

struct model_config {
	const struct family *family;
	char arch_name[64]; /* "Qwen3ForCausalLM" */
	bool text_only;     /* the model also has parts that are not read (vision) */
	char unread[512]; /* keys of config.json that are neither read nor harmless: "key=value key=value" */
	int n_layers, hidden, n_vocab;
	/* Values of the files, for layers whose plan does not differ. */
	int intermediate, n_heads, n_kv_heads, head_dim;
	struct config_layer layers[CONFIG_LAYERS_MAX];
	int n_predict;    /* extra layers after the decoder that predict further tokens (MTP); not read */
	int max_position; /* context of the model, in tokens */
	float rms_eps;
	struct config_experts experts;
	bool tied; /* the head is the embedding */
	bool qkv_bias, o_bias, mlp_bias, head_bias;
	enum config_norm norm;
	bool norm_bias; /* the norms of layers and the final norm have biases */
	enum config_qk_norm qk_norm;
	bool qk_norm_bias;
	bool qk_norm_after; /* q and k are normed after the rotation, else before */
	enum config_block block;
	enum config_act act;
	bool ffn_plain;           /* the FFN is down(act(up(x))), without a gate */
	float act_limit, up_plus; /* limit on gate and up, and addend of up (kern_linear_src,
				   * kernels/kern.h); 0: none */
	bool sinks;               /* each head has an attention sink (kern_attn_args) */
	/* Most models have 0 in each of these. */
	float norm_offset;         /* added to the norm weights (Gemma: 1) */
	float embed_scale;         /* factor of the embedding's rows (Gemma) */
	float residual_scale;      /* factor of each addend of the residual stream (Granite) */
	float attn_scale;          /* scale of the attention scores; 0: 1 / sqrt(head_dim) */
	float attn_cap, logit_cap; /* x becomes cap * tanh(x / cap) (Gemma 2); 0: none */
	float logit_scale;         /* factor of the logits, before logit_cap; 0: none (1) */
	float qkv_clip;            /* q, k and v are clipped to -qkv_clip .. qkv_clip, after
						  * their norm and before the rotation; 0: not */
	/* Queries of position p are multiplied by 1 + beta * ln(1 + floor(p / floor)) after the rotation
	 * (Ministral 3); beta 0: not. */
	float q_scale_beta;
	int q_scale_floor;
	/* ALiBi (kern_attn_args): the n-th of N heads has the slope 2^-(alibi_max n / N), N a power of two;
	 * 0: none.  alibi_scaled: the slopes are rounded to BF16, and get the scores' scale (Falcon). */
	float alibi_max;
	bool alibi_scaled;
	bool learned;            /* an embedding of the position is added, learned or computed
						  * (weights.positions) */
	int window;              /* sliding window of the files, in tokens; 0: none */
	enum config_dtype dtype; /* torch_dtype */

	double rope_theta;
	double rope_local_theta; /* for layers with LAYER_ROPE_LOCAL, which are never scaled; 0: none */
	int rope_dim;            /* rotated values of a head */
	bool rope_pairs;         /* rotates values 2i and 2i + 1; else i and i + rope_dim / 2 */
	bool rope_reversed;      /* by the negative angles */
	enum config_rope rope;
	double rope_factor, rope_low, rope_high; /* llama3; factor: also linear, dynamic, yarn */
	double yarn_attention_factor;            /* <= 0: computed by the formula */
	double yarn_beta_fast, yarn_beta_slow, yarn_mscale, yarn_mscale_all_dim;
	bool yarn_truncate;
	int rope_original;              /* original_max_position_embeddings; 0: none */
	double *long_short, *long_long; /* longrope factors, [rope_dim/2], owned */

	struct quant quant; /* quantization of a directory in Hugging Face layout */

	enum config_pool pool;
	bool embeds;       /* an embedding model; it may have no head */
	bool pool_plain;   /* its vectors are not normalized */
	char pool_why[96]; /* reason for CONFIG_POOL_OTHER */

	int64_t bos;                  /* -1: none */
	uint32_t eos[CONFIG_EOS_MAX]; /* from generation_config.json, else from config.json */
	int n_eos;

	/* Values of generation_config.json; NaN or -1: not given.  do_sample false: temperature 0. */
	double gen_temperature, gen_top_p, gen_min_p, gen_repetition;
	int64_t gen_top_k, gen_max_new_tokens;
};

/* Load the configuration of a model.  path: a directory or a file of any kind that formats/model_file.h
 * knows.
 * -ENOENT, -EINVAL, -ENOTSUP with the reason. */
int model_config_load(const char *path, struct model_config *out, struct why *why);
/* Load config.json and generation_config.json of a directory in Hugging Face layout. */
int hf_config_load(const char *dir, struct model_config *out, struct why *why);
void model_config_fini(struct model_config *c);
/* For readers, at the end: complete the plan of each layer from the model's scalars.  Readers have set rope,
 * window and sparse; heads, kv_heads and dim of 0 become n_heads, n_kv_heads and head_dim. */
void model_config_plan(struct model_config *c);

/* Cut the layers into kinds for sequences of up to max_context tokens; a window of as many is none.  One kind
 * of all layers if they are alike, or if windows would save nothing. */
void model_config_kinds(const struct model_config *c, uint32_t max_context, struct config_kinds *out);

/* Return the multiply-accumulates of one row in the layers' weights; of the experts, only the chosen ones
 * count. */
int64_t model_config_row_macs(const struct model_config *c);
/* Return the number of weights in the layers' linear layers. */
int64_t model_config_layer_weights(const struct model_config *c);
/* Return the values of K and V of one position, in all layers. */
int64_t model_config_kv_values(const struct model_config *c);
/* Return the width of the widest dense feed-forward layer or shared expert; 0: there is none. */
int model_config_ffn_width(const struct model_config *c);

/* Return whether a longrope model served with max_context uses its long factors, and its short ones differ.
 * transformers chooses by the length of each sequence, quern once. */
bool model_config_long_factors(const struct model_config *c, int max_context);

/* Compute cos and sin of the model's RoPE for positions 0..n-1, as Hugging Face does: out [n, rope_dim/2, 2],
 * multiplied by the attention factor of yarn and longrope.  max_context: the longest context that is served;
 * dynamic and longrope depend on it. */
void model_config_rope(const struct model_config *c, int n, int max_context, float *out);
/* Compute ALiBi's slopes of all heads: out [n_heads]. */
void model_config_alibi(const struct model_config *c, float *out);
/* model_config_rope() for layers with LAYER_ROPE_LOCAL. */
void model_config_rope_local(const struct model_config *c, int n, float *out);

#endif
