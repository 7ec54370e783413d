/* family.h - the table of architectures: one row for a family's models in Hugging Face layout and in GGUF
 * files, which loading, converting and docs/MODELS.md read.  A new architecture that combines known features
 * is a new row; no code outside of the table names a family. */
#ifndef QUERN_FORMATS_FAMILY_H
#define QUERN_FORMATS_FAMILY_H

#include "formats/config.h"

#include <stdbool.h>
#include <stddef.h>

enum family_bias { BIAS_NONE, BIAS_BY_KEY, BIAS_ALWAYS };

/* Rule for the layers with a sliding window. */
enum family_window {
	WINDOW_NONE,
	WINDOW_ALL,     /* all layers, if sliding_window is given */
	WINDOW_SWITCH,  /* with use_sliding_window: by layer_types, or from max_window_layers on */
	WINDOW_PATTERN, /* by layer_types, or all but every sliding_window_pattern-th layer */
	WINDOW_TYPES,   /* by layer_types, or all layers */
	WINDOW_LISTED,  /* by layer_types, or none */
	WINDOW_FROM,    /* by layer_types, or from max_window_layers on */
};

/* Layers without rotation. */
enum family_nope {
	NOPE_NONE,
	NOPE_KEYS,   /* by no_rope_layers, or every no_rope_layer_interval-th layer */
	NOPE_NULL,   /* those of a layer type that is null in rope_parameters */
	NOPE_FULL,   /* those without a window, in a model that has a window */
	NOPE_ALWAYS, /* those without a window */
	NOPE_SPARSE, /* those without a window that have experts */
};

/* Embeddings of positions that are computed, not in the files: the sines of the angles p / 10000^(i / n),
 * i < n = hidden / 2, of position p, then their cosines. */
enum family_sines {
	SINES_NONE,
	SINES_OPEN,   /* n as above */
	SINES_CLOSED, /* p / 10000^(i / (n - 1)): the last angle is p / 10000 */
};

/* Factor of the embedding: none, the root of hidden_size, or that root rounded to the checkpoint's type. */
enum family_embed { EMBED_PLAIN, EMBED_ROOT, EMBED_ROOT_ROUNDED };

/* Norms of a layer: before and after attention, before and after the feed-forward layer. */
enum { NORM_ATTN, NORM_ATTN_POST, NORM_FFN, NORM_FFN_POST, NORMS };

/* Another name of a key: `theirs` of config.json, possibly of an object in it ("attn_config.clip_qkv"), gives
 * `ours`.  ours is a usual key, or one of these values that no usual key has:
 *   #embed_scale #residual_scale #attn_scale #attn_cap #logit_cap #logit_scale #qkv_clip
 *                              the members of struct model_config with these names
 *   #parallel                  attention and FFN are side by side (the row's block); else BLOCK_SERIAL
 *   #qk_norm                   q and k are normed, as the row says; else they are not
 *   #qkv_bias #o_bias #mlp_bias #head_bias   in place of attention_bias, attention_bias, mlp_bias and nothing
 *   #rope_dim                  rotated values of a head
 *   #multi_query               there is one KV head
 *   #alibi                     scores fall with the distance (the row's alibi)
 *   #ffn_ratio                 intermediate_size in units of hidden_size
 *   #layer_thetas              RoPE base of each layer, or of all; 0: no rotation
 *   #expert_size               intermediate values of an expert
 *   #last_sparse               last layer with experts; -1: the last one
 *   #router_jitter             SPARSEMIXER's jitter (struct config_experts) */
enum family_how {
	KEY_SAME,
	KEY_FIRST,        /* theirs wins over ours */
	KEY_INVERSE,      /* 1 / x */
	KEY_INVERSE_ROOT, /* 1 / sqrt(x) */
};
struct family_key {
	const char *ours, *theirs;
	enum family_how how;
};

/* Modules of a decoder, in the order of family_parts[]. */
enum family_part {
	PART_EMBED,
	PART_POSITIONS,
	PART_FINAL_NORM,
	PART_HEAD,
	PART_LAYERS,
	PART_Q,
	PART_K,
	PART_V,
	PART_QKV,
	PART_O,
	PART_Q_NORM,
	PART_K_NORM,
	PART_SINKS,
	PART_GATE,
	PART_UP,
	PART_GATE_UP,
	PART_DOWN,
	PARTS,
};
struct family_name {
	enum family_part part;
	const char *name;
};

/* Order of the rows of q, k and v in one tensor. */
enum family_qkv {
	QKV_SIDE_BY_SIDE,
	QKV_BY_GROUP, /* for each KV head: its query heads, k, v */
	QKV_IN_FOUR,  /* for each quarter of the heads: q, v, k */
};

/* Stacks: each matrix of all experts in one tensor, [experts, outputs, inputs] or [experts, inputs,
 * outputs]. */
struct family_stack {
	const char *gate_up, *down; /* names in a layer */
	bool by_input;              /* [experts, inputs, outputs] */
	bool turns;                 /* gate and up alternate, else gate comes before up */
	const char *flat_up;        /* up, if gate_up is gate alone: all three are [experts * intermediate,
				     * hidden]; or NULL */
};

/* Names in a layer by which transformers 5 saves a mixture with stacks, if they are not the usual ones. */
struct family_own {
	struct family_stack stack; /* empty: mlp.experts.gate_up_proj and down_proj */
	const char *router;        /* "mlp.gate"; NULL: `router` of the family in "mlp" */
	const char *choice;        /* NULL: `choice` of the family in "mlp" */
	const char *shared;        /* NULL: `shared` of the family */
};

enum family_normalize { NORMALIZE_BY_KEY, NORMALIZE_ALWAYS, NORMALIZE_NEVER };

/* Keys of config.json for a mixture of experts, and tensor names within a layer. */
struct family_experts {
	const char *n, *intermediate;    /* keys; the chosen experts per row are num_experts_per_tok */
	const char *module;              /* "mlp": contains .gate (the router) and .experts.0.NAME */
	const char *names[3];            /* names of gate, up and down in an expert */
	const char *router;              /* name in the module in place of "gate"; or NULL */
	const char *choice;              /* name there of a bias that affects only the choice; NULL: none */
	struct family_stack stack;       /* in which the family's own files have them; or empty */
	struct family_own own;           /* for files of transformers 5 with stacks */
	bool mxfp4;                      /* the stacks may be in MXFP4, as in gpt-oss */
	bool bias;                       /* the router and the experts have biases */
	const char *shared;              /* "mlp.shared_expert", or NULL */
	const char *shared_names[3];     /* names of gate, up and down in it; NULL: as in a dense layer */
	const char *shared_size;         /* key of its intermediate size; NULL: by n_shared_experts */
	bool shared_gate;                /* "mlp.shared_expert_gate" gives its weight */
	bool steps;                      /* decoder_sparse_step and mlp_only_layers give the sparse layers */
	bool first_dense;                /* first_k_dense_replace gives the sparse layers */
	enum family_normalize normalize; /* BY_KEY: norm_topk_prob */
	enum config_score score;
	bool groups; /* n_group and topk_group are read */
	bool scaled; /* routed_scaling_factor is read */
	/* expert_selection_fn replaces score and normalize: "softmax" over the chosen experts, or
	 * "sigmoid"; shared_expert_combination_strategy is read: "sum", or "average" of the experts and
	 * the shared one. */
	bool selection;
};

/* How GGUF files store a family: llama.cpp's code decides these by the architecture, and no key says them. */
struct family_gguf {
	const char *name;         /* general.architecture */
	const char *norms[NORMS]; /* "attn_norm"; NULL: none */
	bool permuted;            /* rows of q and k are stored so that neighbouring values rotate */
	bool gate_up;             /* gate and up are one tensor, "ffn_up" */
	bool window;              /* attention.sliding_window is used */
	int default_window;       /* without that key; 0: none */
	int every;                /* layers every, 2 every, .. (from 1) have no window; 0: all have it */
	int no_rope;         /* layers no_rope, 2 no_rope, .. (from 1) have no rotation; 0: all have it */
	int large_layers;    /* number of layers of the size with scores scaled by hidden / heads */
	double caps[2];      /* soft caps of scores and logits without keys */
	double local_theta;  /* RoPE base of layers with a window; 0: the same as in other layers */
	bool normalize;      /* without a key, the weights of a row's experts are divided by their sum */
	bool yarn_exact;     /* yarn_truncate is false */
	bool factors;        /* factors of embedding, scores, residual stream and logits have keys */
	bool logit_factor;   /* logit_scale multiplies the logits; with `factors` it divides them */
	bool parallel;       /* use_parallel_residual says whether attention and FFN are side by side */
	enum config_act act; /* activation of the feed-forward layer, of families without `embed` */
	bool longrope;       /* rope_factors_short and rope_factors_long are read */
	bool rstrip;         /* readers let added tokens take the white space after them */
};

struct family {
	const char *arch, *type;        /* "Qwen3ForCausalLM", "qwen3" */
	const char *also[6];            /* other architectures and model types with the same text part */
	const char *as;                 /* the files may have the names of this architecture's; or NULL */
	const char *models;             /* names of its models, for docs/MODELS.md */
	const struct family_gguf *gguf; /* NULL: its GGUF files are not read */
	const char *file;          /* other kind of file whose models are of the family: "ak48"; or NULL */
	const char *defaults;      /* JSON: values for keys that config.json may omit; or NULL */
	const char *also_defaults; /* JSON: {type: defaults} for types of `also` that have others */
	const char *require; /* JSON: keys that must have this value, if config.json has them; or NULL */
	const char *when;    /* JSON: the row is for a config.json with these values; or NULL.  Such rows
					  * precede the family's row for all others. */
	struct family_key keys[12];
	struct family_name names[16];
	const char *prefix;       /* comes before all names but the head's; NULL: "model." */
	const char *norms[NORMS]; /* "input_layernorm"; NULL: none */
	const char *embed_norm;   /* a norm of the embedded rows; NULL: none */
	bool no_final_norm;
	enum config_norm norm;
	bool norm_bias;
	bool norm_plain;   /* the norms have no weights: no tensors either, and the names are not read */
	float norm_offset; /* added to the norm weights */
	enum config_block block;
	enum config_qk_norm qk_norm; /* unless #qk_norm is false */
	bool qk_norm_after;          /* after the rotation */
	bool qk_norm_bias;
	bool qk_norm_plain; /* without weights */
	enum family_bias qkv_bias, o_bias, mlp_bias, head_bias;
	const char *own_o_bias; /* name of a bias of the attention's output in some of the layers; or NULL */
	enum family_window window;
	bool window_typed;                    /* windows need layer_types: the class has a rule of its own */
	const struct family_experts *experts; /* NULL: dense */
	enum family_embed embed;
	bool partial;            /* partial_rotary_factor may be less than 1 */
	bool rope_pairs;         /* RoPE rotates neighbouring values */
	bool rope_by_layer;      /* layers with a window have their own base (rope_local_base_freq) */
	bool rope_reversed;      /* RoPE rotates by the negative angles */
	bool rope_mscale;        /* longrope has its attention factor in short_mscale and long_mscale */
	bool learned;            /* learned positions in place of RoPE */
	enum family_sines sines; /* computed positions in place of RoPE */
	bool alibi;              /* ALiBi in place of RoPE, unless #alibi is false */
	bool alibi_scaled;       /* see struct model_config */
	bool q_scaled;           /* queries are scaled by position: llama_4_scaling_beta */
	bool ntk_alpha;          /* alpha of dynamic RoPE only changes the base */
	enum family_nope nope;
	bool sinks;      /* attention sinks: "self_attn.sinks" */
	bool clamped;    /* sigmoid gate, clamped to swiglu_limit; 1 is added to up */
	bool ffn_plain;  /* the feed-forward layer has no gate */
	bool gelu_tanh;  /* hidden_act "gelu" means its approximation by tanh */
	bool transposed; /* weights of layers are stored as [inputs, outputs] */
	enum family_qkv qkv;
	int position_offset; /* rows of the learned positions before the first */
};

/* Return whether the type is one of f->also. */
bool family_is_also(const struct family *f, const char *type);
/* The name of a module in Hugging Face layout. */
const char *family_name(const struct family *f, enum family_part part);

/* Find a family by its architecture, or by its model type if arch is NULL.  NULL: not supported. */
const struct family *family_find(const char *arch, const char *type);
/* Find the family of a GGUF file by its general.architecture; mixture: the file has experts.  NULL: not
 * supported. */
const struct family *family_find_gguf(const char *name, bool mixture);
/* Find the family of the models in another kind of file, which must exist. */
const struct family *family_find_file(const char *file);
/* Return the family, or if it has no windows the one whose GGUF files are the same and that has them. */
const struct family *family_with_window(const struct family *f);
/* Return whether GGUF files of the family rotate neighbouring values, and config.json's models do not. */
bool family_permutes(const struct family *f);
/* Row i of the table; NULL: there are fewer. */
const struct family *family_at(size_t i);
/* Write up to three of the n names that share the longest prefix with `typed`, as "nearest:
 * Qwen3ForCausalLM, Qwen2ForCausalLM; "; "" if no name shares one.  Return out. */
const char *family_nearest(const char *typed, const char *const *names, size_t n, char *out, size_t size);
/* family_nearest() over the architectures in the table, or over those of GGUF files. */
const char *family_near(const char *typed, bool gguf, char *out, size_t size);

#endif
