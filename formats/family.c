#include "formats/family.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PRE_NORMS                                                                                            \
	{                                                                                                    \
		[NORM_ATTN] = "input_layernorm", [NORM_FFN] = "post_attention_layernorm"                     \
	}

#define EXPERT_NAMES                                                                                         \
	{                                                                                                    \
		"gate_proj", "up_proj", "down_proj"                                                          \
	}

static const struct family_experts qwen2_experts = {
	.n = "num_experts",
	.intermediate = "moe_intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.shared = "mlp.shared_expert",
	.shared_size = "shared_expert_intermediate_size",
	.shared_gate = true,
	.steps = true,
};
static const struct family_experts qwen3_experts = {
	.n = "num_experts",
	.intermediate = "moe_intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.steps = true,
};
static const struct family_experts qwen3_vl_experts = {
	.n = "num_experts",
	.intermediate = "moe_intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.steps = true,
	.normalize = NORMALIZE_ALWAYS,
};
static const struct family_experts mixtral_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "block_sparse_moe",
	.names = {"w1", "w3", "w2"},
	.normalize = NORMALIZE_ALWAYS,
};
static const struct family_experts olmoe_experts = {
	.n = "num_experts",
	.intermediate = "intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
};
static const struct family_experts glm4_experts = {
	.n = "n_routed_experts",
	.intermediate = "moe_intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.shared = "mlp.shared_experts",
	.first_dense = true,
	.choice = "gate.e_score_correction_bias",
	.score = SCORE_SIGMOID,
	.groups = true,
	.scaled = true,
};

static const struct family_experts minimax_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "block_sparse_moe",
	.names = {"w1", "w3", "w2"},
	.choice = "e_score_correction_bias",
	.score = SCORE_SIGMOID,
	.normalize = NORMALIZE_ALWAYS,
};
static const struct family_experts exaone_experts = {
	.n = "num_experts",
	.intermediate = "moe_intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.choice = "e_score_correction_bias",
	.shared = "mlp.shared_experts",
	.first_dense = true,
	.score = SCORE_SIGMOID,
	.groups = true,
	.scaled = true,
};
static const struct family_experts hy_v3_experts = {
	.n = "num_experts",
	.intermediate = "moe_intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.router = "router.gate",
	.choice = "expert_bias",
	.shared = "mlp.shared_mlp",
	.first_dense = true,
	.normalize = NORMALIZE_ALWAYS,
	.score = SCORE_SIGMOID,
	.scaled = true,
};
static const struct family_experts granite_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "block_sparse_moe",
	.router = "router.layer",
	.stack = {"block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"},
	.normalize = NORMALIZE_ALWAYS, /* equals a softmax over the chosen experts only */
};
static const struct family_experts granite_shared_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "block_sparse_moe",
	.router = "router.layer",
	.stack = {"block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"},
	.shared = "shared_mlp",
	.shared_names = {NULL, "input_linear", "output_linear"},
	.shared_size = "shared_intermediate_size",
	.normalize = NORMALIZE_ALWAYS,
};
static const struct family_experts hunyuan_experts = {
	.n = "num_experts",
	.intermediate = "intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.router = "gate.wg",
	.shared = "mlp.shared_mlp",
	.shared_size = "intermediate_size",
	.normalize = NORMALIZE_ALWAYS,
};

static const struct family_experts aria_experts = {
	.n = "num_experts",
	.intermediate = "intermediate_size",
	.module = "mlp",
	.router = "router",
	.stack = {"mlp.experts.fc1.weight", "mlp.experts.fc2.weight", .by_input = true},
	.shared = "mlp.shared_experts",
	.normalize = NORMALIZE_ALWAYS,
};
static const struct family_experts ernie_experts = {
	.n = "num_experts",
	.intermediate = "moe_intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.choice = "moe_statics.e_score_correction_bias",
	.shared = "mlp.shared_experts",
	.first_dense = true,
	.steps = true,
	.normalize = NORMALIZE_ALWAYS,
};

static const struct family_experts gpt_oss_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "mlp",
	.names = {"gate_up_proj", NULL, "down_proj"},
	.router = "router",
	.stack = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj", .by_input = true, .turns = true},
	.mxfp4 = true,
	.bias = true,
	.normalize = NORMALIZE_ALWAYS, /* equals a softmax over the chosen experts only */
};

#define GGUF_PRE                                                                                             \
	{                                                                                                    \
		[NORM_ATTN] = "attn_norm", [NORM_FFN] = "ffn_norm"                                           \
	}
/* The norm before the feed-forward layer has the name of one after attention. */
#define GGUF_NEXT                                                                                            \
	{                                                                                                    \
		[NORM_ATTN] = "attn_norm", [NORM_FFN] = "post_attention_norm"                                \
	}
#define GGUF_BOTH                                                                                            \
	{                                                                                                    \
		"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"                              \
	}

static const struct family_gguf gguf_llama = {
	.name = "llama", .norms = GGUF_PRE, .permuted = true, .window = true, .normalize = true};
static const struct family_gguf gguf_qwen2 = {.name = "qwen2", .norms = GGUF_PRE};
static const struct family_gguf gguf_qwen3 = {.name = "qwen3", .norms = GGUF_PRE};
static const struct family_gguf gguf_olmo2 = {
	.name = "olmo2",
	.norms = {[NORM_ATTN_POST] = "post_attention_norm", [NORM_FFN_POST] = "post_ffw_norm"}};
static const struct family_gguf gguf_smollm3 = {
	.name = "smollm3", .norms = GGUF_PRE, .permuted = true, .no_rope = 4};
static const struct family_gguf gguf_phi3 = {
	.name = "phi3", .norms = GGUF_PRE, .gate_up = true, .window = true, .longrope = true, .rstrip = true};
static const struct family_gguf gguf_glm4 = {.name = "glm4", .norms = GGUF_BOTH, .gate_up = true};
static const struct family_gguf gguf_gemma2 = {.name = "gemma2",
					       .norms = GGUF_BOTH,
					       .window = true,
					       .default_window = 4096,
					       .every = 2,
					       .large_layers = 46,
					       .caps = {50, 30}};
static const struct family_gguf gguf_gemma3 = {.name = "gemma3",
					       .norms = GGUF_BOTH,
					       .window = true,
					       .every = 6,
					       .large_layers = 62,
					       .local_theta = 10000};
static const struct family_gguf gguf_qwen2moe = {.name = "qwen2moe", .norms = GGUF_PRE};
static const struct family_gguf gguf_qwen3moe = {.name = "qwen3moe", .norms = GGUF_PRE, .normalize = true};
static const struct family_gguf gguf_olmoe = {.name = "olmoe", .norms = GGUF_PRE};
static const struct family_gguf gguf_glm4moe = {.name = "glm4moe", .norms = GGUF_NEXT, .normalize = true};
static const struct family_gguf gguf_gpt_oss = {.name = "gpt-oss",
						.norms = GGUF_NEXT,
						.window = true,
						.every = 2,
						.normalize = true,
						.yarn_exact = true};

#define POST_NORMS                                                                                           \
	{                                                                                                    \
		[NORM_ATTN_POST] = "post_attention_layernorm", [NORM_FFN_POST] =                             \
								       "post_feedforward_layernorm"          \
	}
#define GRANITE_KEYS                                                                                         \
	{                                                                                                    \
		{"#embed_scale", "embedding_multiplier"}, {"#residual_scale", "residual_multiplier"},        \
			{"#attn_scale", "attention_multiplier"},                                             \
			{"#logit_scale", "logits_scaling", KEY_INVERSE},                                     \
	}
#define HUNYUAN_NAMES                                                                                        \
	{                                                                                                    \
		{PART_Q_NORM, "self_attn.query_layernorm"}, {PART_K_NORM, "self_attn.key_layernorm"},        \
	}
/* Keys and names of GPT-2 that many models share. */
#define GPT_KEYS                                                                                             \
	{"hidden_size", "n_embd"}, {"num_attention_heads", "n_head"}, {"num_hidden_layers", "n_layer"},      \
		{"max_position_embeddings", "n_positions"}, {"intermediate_size", "n_inner"},                \
		{"rms_norm_eps", "layer_norm_epsilon"},                                                      \
	{                                                                                                    \
		"hidden_act", "activation_function"                                                          \
	}
#define GPT_NAMES                                                                                            \
	{PART_EMBED, "wte"}, {PART_LAYERS, "h"},                                                             \
	{                                                                                                    \
		PART_FINAL_NORM, "ln_f"                                                                      \
	}
#define GPT2_NAMES                                                                                           \
	{PART_POSITIONS, "wpe"}, {PART_QKV, "attn.c_attn"}, {PART_O, "attn.c_proj"}, {PART_UP, "mlp.c_fc"},  \
	{                                                                                                    \
		PART_DOWN, "mlp.c_proj"                                                                      \
	}
#define GEMMA_KEYS                                                                                           \
	{                                                                                                    \
		{"hidden_act", "hidden_activation", KEY_FIRST}, {"#attn_cap", "attn_logit_softcapping"},     \
			{"#logit_cap", "final_logit_softcapping"},                                           \
			{"#attn_scale", "query_pre_attn_scalar", KEY_INVERSE_ROOT},                          \
	}

static const struct family families[] = {
	{.arch = "LlamaForCausalLM",
	 .type = "llama",
	 .models = "Llama 2, 3, 3.1, 3.2, 3.3",
	 .gguf = &gguf_llama,
	 .file = "flat",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY},
	{.arch = "MistralForCausalLM",
	 .type = "mistral",
	 .models = "Mistral",
	 .gguf = &gguf_llama,
	 .defaults = "{\"sliding_window\": 4096}",
	 .norms = PRE_NORMS,
	 .window = WINDOW_ALL},
	{.arch = "Qwen2ForCausalLM",
	 .type = "qwen2",
	 .also = {"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration", "qwen2_vl_text",
		  "qwen2_5_vl_text"},
	 .models = "Qwen2, Qwen2.5",
	 .gguf = &gguf_qwen2,
	 .defaults = "{\"sliding_window\": 4096, \"max_window_layers\": 28}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_ALWAYS,
	 .window = WINDOW_SWITCH},
	{.arch = "Qwen3ForCausalLM",
	 .type = "qwen3",
	 .also = {"qwen3_vl_text"},
	 .models = "Qwen3",
	 .gguf = &gguf_qwen3,
	 .file = "ak48",
	 .defaults = "{\"head_dim\": 128, \"sliding_window\": 4096, \"max_window_layers\": 28}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_SWITCH},
	{.arch = "Olmo2ForCausalLM",
	 .type = "olmo2",
	 .models = "OLMo 2",
	 .gguf = &gguf_olmo2,
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048}",
	 .norms = {[NORM_ATTN_POST] = "post_attention_layernorm",
		   [NORM_FFN_POST] = "post_feedforward_layernorm"},
	 .qk_norm = QK_NORM_ROWS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY},
	{.arch = "SmolLM3ForCausalLM",
	 .type = "smollm3",
	 .models = "SmolLM3",
	 .gguf = &gguf_smollm3,
	 .defaults = "{\"num_key_value_heads\": 4, \"rope_theta\": 2e6, \"tie_word_embeddings\": true, "
		     "\"no_rope_layer_interval\": 4, \"max_window_layers\": 0}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .window = WINDOW_SWITCH,
	 .nope = NOPE_KEYS},
	{.arch = "Phi3ForCausalLM",
	 .type = "phi3",
	 .models = "Phi-3, Phi-4",
	 .gguf = &gguf_phi3,
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 4096, "
		     "\"original_max_position_embeddings\": 4096}",
	 .norms = PRE_NORMS,
	 .window = WINDOW_ALL,
	 .partial = true},
	{.arch = "GlmForCausalLM",
	 .type = "glm",
	 .models = "GLM-4",
	 .defaults = "{\"head_dim\": 128, \"num_key_value_heads\": 2, \"attention_bias\": true, "
		     "\"rms_norm_eps\": 1.5625e-7, \"partial_rotary_factor\": 0.5}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .partial = true,
	 .rope_pairs = true},
	{.arch = "Glm4ForCausalLM",
	 .type = "glm4",
	 .models = "GLM-4-0414",
	 .gguf = &gguf_glm4,
	 .defaults = "{\"head_dim\": 128, \"num_key_value_heads\": 2, \"attention_bias\": true, "
		     "\"rms_norm_eps\": 1.5625e-7, \"partial_rotary_factor\": 0.5}",
	 .norms = {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
		   "post_mlp_layernorm"},
	 .qkv_bias = BIAS_BY_KEY,
	 .partial = true,
	 .rope_pairs = true},
	{.arch = "Gemma2ForCausalLM",
	 .type = "gemma2",
	 .models = "Gemma 2",
	 .gguf = &gguf_gemma2,
	 .defaults = "{\"vocab_size\": 256000, \"hidden_size\": 2304, \"intermediate_size\": 9216, "
		     "\"num_hidden_layers\": 26, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
		     "\"head_dim\": 256, \"max_position_embeddings\": 8192, \"tie_word_embeddings\": true, "
		     "\"query_pre_attn_scalar\": 256, \"sliding_window\": 4096, "
		     "\"sliding_window_pattern\": 2, \"hidden_activation\": \"gelu_pytorch_tanh\", "
		     "\"final_logit_softcapping\": 30.0, \"attn_logit_softcapping\": 50.0}",
	 .norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
		   "post_feedforward_layernorm"},
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_PATTERN,
	 .norm_offset = 1,
	 .embed = EMBED_ROOT_ROUNDED,
	 .keys = GEMMA_KEYS,
	 .require = "{\"use_bidirectional_attention\": false}"},
#define GEMMA3                                                                                               \
	.models = "Gemma 3", .gguf = &gguf_gemma3,                                                           \
	.defaults =                                                                                          \
		"{\"vocab_size\": 262208, \"hidden_size\": 2304, \"intermediate_size\": 9216, "              \
		"\"num_hidden_layers\": 26, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "        \
		"\"head_dim\": 256, \"max_position_embeddings\": 131072, \"tie_word_embeddings\": true, "    \
		"\"query_pre_attn_scalar\": 256, \"sliding_window\": 4096, "                                 \
		"\"sliding_window_pattern\": 6, \"hidden_activation\": \"gelu_pytorch_tanh\", "              \
		"\"rope_theta\": 1e6, \"rope_local_base_freq\": 1e4}",                                       \
	.norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",                \
		  "post_feedforward_layernorm"},                                                             \
	.qk_norm = QK_NORM_HEADS, .qkv_bias = BIAS_BY_KEY, .o_bias = BIAS_BY_KEY, .window = WINDOW_PATTERN,  \
	.rope_by_layer = true, .norm_offset = 1, .embed = EMBED_ROOT_ROUNDED, .keys = GEMMA_KEYS,            \
	.require = "{\"use_bidirectional_attention\": false}"
	{.arch = "Gemma3ForCausalLM", .type = "gemma3_text", GEMMA3},
	/* The text part; the vision part is not read. */
	{.arch = "Gemma3ForConditionalGeneration", .type = "gemma3", GEMMA3},
	{.arch = "Qwen2MoeForCausalLM",
	 .type = "qwen2_moe",
	 .models = "Qwen2-MoE, Qwen1.5-MoE",
	 .gguf = &gguf_qwen2moe,
	 .defaults = "{\"sliding_window\": 4096, \"max_window_layers\": 28, \"num_experts\": 60, "
		     "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 1408, "
		     "\"shared_expert_intermediate_size\": 5632, \"decoder_sparse_step\": 1}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_ALWAYS,
	 .window = WINDOW_SWITCH,
	 .experts = &qwen2_experts},
	{.arch = "Qwen3MoeForCausalLM",
	 .type = "qwen3_moe",
	 .models = "Qwen3-MoE",
	 .gguf = &gguf_qwen3moe,
	 .defaults = "{\"num_key_value_heads\": 4, \"sliding_window\": 4096, \"max_window_layers\": 28, "
		     "\"num_experts\": 128, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768, "
		     "\"decoder_sparse_step\": 1}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_SWITCH,
	 .experts = &qwen3_experts},
	{.arch = "Qwen3VLMoeForConditionalGeneration",
	 .type = "qwen3_vl_moe",
	 .also = {"qwen3_vl_moe_text"},
	 .models = "Qwen3-VL-MoE",
	 .defaults = "{\"num_key_value_heads\": 4, \"num_experts\": 60, \"num_experts_per_tok\": 4, "
		     "\"moe_intermediate_size\": 1408, \"decoder_sparse_step\": 1}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &qwen3_vl_experts},
	{.arch = "MixtralForCausalLM",
	 .type = "mixtral",
	 .models = "Mixtral",
	 .gguf = &gguf_llama,
	 .defaults = "{\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-5, \"rope_theta\": 1e6, "
		     "\"num_local_experts\": 8, \"num_experts_per_tok\": 2}",
	 .norms = PRE_NORMS,
	 .window = WINDOW_ALL,
	 .experts = &mixtral_experts},
	{.arch = "OlmoeForCausalLM",
	 .type = "olmoe",
	 .keys = {{"#qkv_clip", "clip_qkv"}},
	 .models = "OLMoE",
	 .gguf = &gguf_olmoe,
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 4096, \"num_experts\": 64, "
		     "\"num_experts_per_tok\": 8}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_ROWS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &olmoe_experts},
	{.arch = "Glm4MoeForCausalLM",
	 .type = "glm4_moe",
	 .models = "GLM-4.5",
	 .gguf = &gguf_glm4moe,
	 .defaults = "{\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-5, \"partial_rotary_factor\": 0.5, "
		     "\"n_routed_experts\": 128, \"num_experts_per_tok\": 8, "
		     "\"moe_intermediate_size\": 1408, \"n_shared_experts\": 1, "
		     "\"first_k_dense_replace\": 1, \"norm_topk_prob\": true, "
		     "\"use_qk_norm\": false}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .keys = {{"#qk_norm", "use_qk_norm"}},
	 .qkv_bias = BIAS_BY_KEY,
	 .partial = true,
	 .experts = &glm4_experts},
	{.arch = "GptOssForCausalLM",
	 .type = "gpt_oss",
	 .models = "gpt-oss",
	 .gguf = &gguf_gpt_oss,
	 .defaults = "{\"num_hidden_layers\": 36, \"hidden_size\": 2880, \"intermediate_size\": 2880, "
		     "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"head_dim\": 64, "
		     "\"vocab_size\": 201088, \"max_position_embeddings\": 131072, "
		     "\"rms_norm_eps\": 1e-5, \"attention_bias\": true, \"rope_theta\": 150000.0, "
		     "\"sliding_window\": 128, \"sliding_window_pattern\": 2, "
		     "\"num_local_experts\": 128, \"num_experts_per_tok\": 4, \"swiglu_limit\": 7.0, "
		     "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32.0, "
		     "\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"truncate\": false, "
		     "\"original_max_position_embeddings\": 4096}}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_PATTERN,
	 .experts = &gpt_oss_experts,
	 .sinks = true,
	 .clamped = true},
	{.arch = "GemmaForCausalLM",
	 .type = "gemma",
	 .models = "Gemma",
	 .defaults = "{\"vocab_size\": 256000, \"hidden_size\": 3072, \"intermediate_size\": 24576, "
		     "\"num_hidden_layers\": 28, \"num_attention_heads\": 16, \"num_key_value_heads\": 16, "
		     "\"head_dim\": 256, \"max_position_embeddings\": 8192, \"tie_word_embeddings\": true, "
		     "\"hidden_act\": \"gelu_pytorch_tanh\"}",
	 .require = "{\"use_bidirectional_attention\": false}",
	 .norms = PRE_NORMS,
	 .norm_offset = 1,
	 .embed = EMBED_ROOT_ROUNDED,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .gelu_tanh = true},
	{.arch = "VaultGemmaForCausalLM",
	 .type = "vaultgemma",
	 .models = "VaultGemma",
	 .defaults = "{\"head_dim\": 256, \"num_key_value_heads\": 4, \"max_position_embeddings\": 8192, "
		     "\"tie_word_embeddings\": true, \"query_pre_attn_scalar\": 256, "
		     "\"sliding_window\": 4096, \"sliding_window_pattern\": 2, "
		     "\"hidden_activation\": \"gelu_pytorch_tanh\", \"final_logit_softcapping\": 30.0, "
		     "\"attn_logit_softcapping\": 50.0}",
	 .keys = GEMMA_KEYS,
	 .norms = {[NORM_ATTN] = "input_layernorm", [NORM_FFN] = "pre_feedforward_layernorm"},
	 .norm_offset = 1,
	 .embed = EMBED_ROOT_ROUNDED,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_PATTERN},
	{.arch = "Olmo3ForCausalLM",
	 .type = "olmo3",
	 .models = "OLMo 3",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048, \"rope_theta\": 5e5, "
		     "\"sliding_window\": 4096, \"sliding_window_pattern\": 4}",
	 .norms = POST_NORMS,
	 .qk_norm = QK_NORM_ROWS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_PATTERN,
	 .rope_by_layer = true},
	{.arch = "FlexOlmoForCausalLM",
	 .type = "flex_olmo",
	 .models = "FlexOlmo",
	 .defaults = "{\"max_position_embeddings\": 4096, \"rope_theta\": 5e5, \"num_experts\": 7, "
		     "\"num_experts_per_tok\": 5}",
	 .norms = POST_NORMS,
	 .qk_norm = QK_NORM_ROWS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &olmoe_experts},
	{.arch = "MellumForCausalLM",
	 .type = "mellum",
	 .models = "Mellum 2",
	 .defaults = "{\"num_key_value_heads\": 4, \"head_dim\": 128, \"max_position_embeddings\": 131072, "
		     "\"sliding_window\": 1024, \"sliding_window_pattern\": 1, \"rope_theta\": 5e5, "
		     "\"rope_local_base_freq\": 1e4, \"num_experts\": 64, \"num_experts_per_tok\": 8, "
		     "\"moe_intermediate_size\": 896, \"norm_topk_prob\": true}",
	 .keys = {{"num_nextn_predict_layers", "num_mtp_layers"}},
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_PATTERN,
	 .rope_by_layer = true,
	 .experts = &qwen3_experts},
	{.arch = "MinistralForCausalLM",
	 .type = "ministral",
	 .models = "Ministral",
	 .defaults = "{\"num_key_value_heads\": 8, \"max_position_embeddings\": 131072, "
		     "\"sliding_window\": 4096}",
	 .norms = PRE_NORMS,
	 .window = WINDOW_TYPES},
	{.arch = "Ministral3ForCausalLM",
	 .type = "ministral3",
	 .models = "Ministral 3, Mistral Medium 3",
	 .defaults = "{\"num_key_value_heads\": 8, \"head_dim\": 128, \"max_position_embeddings\": 262144, "
		     "\"rms_norm_eps\": 1e-5}",
	 .norms = PRE_NORMS,
	 .window = WINDOW_ALL},
	{.arch = "Dots1ForCausalLM",
	 .type = "dots1",
	 .models = "dots.llm1",
	 .defaults = "{\"max_position_embeddings\": 2048, \"sliding_window\": 4096, "
		     "\"max_window_layers\": 62, \"moe_intermediate_size\": 1408}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_FROM,
	 .experts = &glm4_experts},
	{.arch = "SolarOpenForCausalLM",
	 .type = "solar_open",
	 .models = "Solar Open",
	 .defaults = "{\"num_key_value_heads\": 8, \"head_dim\": 128, \"rms_norm_eps\": 1e-5, "
		     "\"max_position_embeddings\": 131072, \"rope_theta\": 1e6, "
		     "\"n_routed_experts\": 128, \"num_experts_per_tok\": 8, "
		     "\"moe_intermediate_size\": 1280, \"n_shared_experts\": 1, "
		     "\"first_k_dense_replace\": 0, \"norm_topk_prob\": true}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .partial = true,
	 .experts = &glm4_experts},
	{.arch = "CwmForCausalLM",
	 .type = "cwm",
	 .models = "CWM",
	 .defaults = "{\"num_key_value_heads\": 8, \"head_dim\": 128, \"rms_norm_eps\": 1e-5, "
		     "\"rope_theta\": 1e6, \"sliding_window\": 8192}",
	 .norms = PRE_NORMS,
	 .mlp_bias = BIAS_BY_KEY,
	 .window = WINDOW_TYPES},
	{.arch = "HeliumForCausalLM",
	 .type = "helium",
	 .models = "Helium",
	 .defaults = "{\"head_dim\": 128, \"rms_norm_eps\": 1e-8, \"rope_theta\": 1e5, "
		     "\"max_position_embeddings\": 4096}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .rope_pairs = true},
	{.arch = "SeedOssForCausalLM",
	 .type = "seed_oss",
	 .models = "Seed-OSS",
	 .defaults = "{\"num_key_value_heads\": 8, \"head_dim\": 128, \"attention_bias\": true, "
		     "\"attention_out_bias\": false}",
	 .keys = {{"#o_bias", "attention_out_bias"}},
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY},
	{.arch = "Ernie4_5ForCausalLM",
	 .type = "ernie4_5",
	 .models = "ERNIE 4.5",
	 .defaults = "{\"num_key_value_heads\": 2, \"head_dim\": 128, \"rms_norm_eps\": 1e-5, "
		     "\"rope_theta\": 5e5, \"tie_word_embeddings\": true}",
	 .keys = {{"attention_bias", "use_bias"}, {"mlp_bias", "use_bias"}},
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .rope_pairs = true},
	{.arch = "MiniMaxM2ForCausalLM",
	 .type = "minimax_m2",
	 .models = "MiniMax M2",
	 .defaults = "{\"num_key_value_heads\": 8, \"head_dim\": 128, \"rope_theta\": 5e6, "
		     "\"max_position_embeddings\": 196608, \"num_local_experts\": 256, "
		     "\"num_experts_per_tok\": 8}",
	 .keys = {{"#rope_dim", "rotary_dim"}},
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_ROWS,
	 .partial = true,
	 .experts = &minimax_experts},
	{.arch = "HYV3ForCausalLM",
	 .type = "hy_v3",
	 .models = "Hunyuan 3",
	 .defaults = "{\"num_key_value_heads\": 8, \"head_dim\": 128, \"rms_norm_eps\": 1e-5, "
		     "\"rope_theta\": 11158840.0, \"num_experts\": 192, \"num_experts_per_tok\": 8, "
		     "\"num_shared_experts\": 1, \"moe_intermediate_size\": 1536, "
		     "\"first_k_dense_replace\": 1, \"router_scaling_factor\": 2.826}",
	 .keys = {{"routed_scaling_factor", "router_scaling_factor"},
		  {"n_shared_experts", "num_shared_experts"}},
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .experts = &hy_v3_experts},
	{.arch = "GraniteForCausalLM",
	 .type = "granite",
	 .models = "Granite 3",
	 .keys = GRANITE_KEYS,
	 .defaults = "{\"attention_multiplier\": 1.0}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY},
	{.arch = "HyperCLOVAXForCausalLM",
	 .type = "hyperclovax",
	 .models = "HyperCLOVA X SEED",
	 .keys = {{"#embed_scale", "embedding_multiplier"},
		  {"#residual_scale", "residual_multiplier"},
		  {"#attn_scale", "attention_multiplier"},
		  {"#logit_scale", "logits_scaling"}},
	 .require = "{\"use_post_norm\": true}",
	 .norms = {"input_layernorm", "post_norm1", "post_attention_layernorm", "post_norm2"},
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY},
	{.arch = "GraniteMoeForCausalLM",
	 .type = "granitemoe",
	 .models = "Granite 3 MoE",
	 .keys = GRANITE_KEYS,
	 .defaults = "{\"attention_multiplier\": 1.0, \"num_local_experts\": 8, \"num_experts_per_tok\": 2}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &granite_experts},
	{.arch = "GraniteMoeSharedForCausalLM",
	 .type = "granitemoeshared",
	 .models = "Granite 4 preview",
	 .keys = GRANITE_KEYS,
	 .defaults = "{\"attention_multiplier\": 1.0, \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
		     "\"shared_intermediate_size\": 0}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &granite_shared_experts},
	{.arch = "HunYuanDenseV1ForCausalLM",
	 .type = "hunyuan_v1_dense",
	 .models = "Hunyuan dense",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048}",
	 .names = HUNYUAN_NAMES,
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qk_norm_after = true,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY},
	{.arch = "HunYuanMoEV1ForCausalLM",
	 .type = "hunyuan_v1_moe",
	 .models = "Hunyuan-A13B",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048, \"num_experts\": 1, "
		     "\"moe_topk\": 1}",
	 .keys = {{"num_experts_per_tok", "moe_topk"}},
	 .require = "{\"num_shared_expert\": 1}",
	 .names = HUNYUAN_NAMES,
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qk_norm_after = true,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &hunyuan_experts},
	{.arch = "Exaone4ForCausalLM",
	 .type = "exaone4",
	 .models = "EXAONE 4",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048, \"sliding_window\": 4096, "
		     "\"sliding_window_pattern\": 4}",
	 .norms = POST_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .window = WINDOW_PATTERN,
	 .nope = NOPE_FULL},
	{.arch = "ExaoneMoeForCausalLM",
	 .type = "exaone_moe",
	 .models = "K-EXAONE",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048, \"sliding_window\": 4096, "
		     "\"sliding_window_pattern\": 4, \"first_k_dense_replace\": 1, "
		     "\"moe_intermediate_size\": 1024, \"num_experts\": 64, \"num_experts_per_tok\": 8, "
		     "\"num_shared_experts\": 1, \"norm_topk_prob\": true, "
		     "\"routed_scaling_factor\": 2.5}",
	 .keys = {{"n_shared_experts", "num_shared_experts"}},
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .window = WINDOW_PATTERN,
	 .nope = NOPE_FULL,
	 .experts = &exaone_experts},
	{.arch = "CohereForCausalLM",
	 .type = "cohere",
	 .models = "Command R",
	 .defaults = "{\"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625, \"rope_theta\": 5e5, "
		     "\"max_position_embeddings\": 8192, \"tie_word_embeddings\": true, "
		     "\"use_qk_norm\": false}",
	 .keys = {{"rms_norm_eps", "layer_norm_eps"},
		  {"#logit_scale", "logit_scale"},
		  {"#qk_norm", "use_qk_norm"}},
	 .norms = {[NORM_ATTN] = "input_layernorm"},
	 .norm = CONFIG_NORM_LAYER,
	 .block = BLOCK_PARALLEL,
	 .qk_norm = QK_NORM_EACH,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .rope_pairs = true},
	{.arch = "Cohere2ForCausalLM",
	 .type = "cohere2",
	 .models = "Command R7B, Command A, Aya",
	 .defaults = "{\"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625, \"sliding_window\": 4096, "
		     "\"sliding_window_pattern\": 4, \"max_position_embeddings\": 8192, "
		     "\"tie_word_embeddings\": true}",
	 .keys = {{"rms_norm_eps", "layer_norm_eps"}, {"#logit_scale", "logit_scale"}},
	 .norms = {[NORM_ATTN] = "input_layernorm"},
	 .norm = CONFIG_NORM_LAYER,
	 .block = BLOCK_PARALLEL,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_PATTERN,
	 .rope_pairs = true,
	 .nope = NOPE_ALWAYS},
	{.arch = "StableLmForCausalLM",
	 .type = "stablelm",
	 .models = "StableLM 2",
	 .defaults = "{\"layer_norm_eps\": 1e-5, \"partial_rotary_factor\": 0.25, \"qk_layernorm\": false, "
		     "\"use_parallel_residual\": false, \"use_qkv_bias\": false}",
	 .keys = {{"rms_norm_eps", "layer_norm_eps"},
		  {"#qk_norm", "qk_layernorm"},
		  {"#parallel", "use_parallel_residual"},
		  {"#qkv_bias", "use_qkv_bias"}},
	 .names = {{PART_Q_NORM, "self_attn.q_layernorm"}, {PART_K_NORM, "self_attn.k_layernorm"}},
	 .norms = PRE_NORMS,
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .block = BLOCK_PARALLEL,
	 .qk_norm = QK_NORM_EACH,
	 .qkv_bias = BIAS_BY_KEY,
	 .partial = true},
	{.arch = "Starcoder2ForCausalLM",
	 .type = "starcoder2",
	 .models = "StarCoder 2",
	 .defaults = "{\"norm_epsilon\": 1e-5, \"num_key_value_heads\": 2, \"use_bias\": true, "
		     "\"hidden_act\": \"gelu_pytorch_tanh\", \"tie_word_embeddings\": true}",
	 .keys = {{"rms_norm_eps", "norm_epsilon"}, {"attention_bias", "use_bias"}, {"mlp_bias", "use_bias"}},
	 .names = {{PART_UP, "mlp.c_fc"}, {PART_DOWN, "mlp.c_proj"}},
	 .norms = PRE_NORMS,
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .window = WINDOW_ALL,
	 .ffn_plain = true},
	{.arch = "NemotronForCausalLM",
	 .type = "nemotron",
	 .models = "Nemotron 4, Minitron",
	 .defaults = "{\"norm_eps\": 1e-5, \"hidden_act\": \"relu2\", \"partial_rotary_factor\": 0.5}",
	 .keys = {{"rms_norm_eps", "norm_eps"}},
	 .norms = PRE_NORMS,
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .norm_offset = 1,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .partial = true,
	 .ffn_plain = true},
	{.arch = "ArceeForCausalLM",
	 .type = "arcee",
	 .models = "AFM (Arcee)",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"hidden_act\": \"relu2\"}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .ffn_plain = true},
	{.arch = "ApertusForCausalLM",
	 .type = "apertus",
	 .models = "Apertus",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"hidden_act\": \"xielu\", \"rope_theta\": 12e6, "
		     "\"max_position_embeddings\": 65536}",
	 .norms = {[NORM_ATTN] = "attention_layernorm", [NORM_FFN] = "feedforward_layernorm"},
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .ffn_plain = true},
	{.arch = "Jais2ForCausalLM",
	 .type = "jais2",
	 .models = "Jais 2",
	 .defaults = "{\"layer_norm_eps\": 1e-5, \"hidden_act\": \"relu2\", \"attention_bias\": true, "
		     "\"mlp_bias\": true, \"max_position_embeddings\": 8192}",
	 .keys = {{"rms_norm_eps", "layer_norm_eps"}},
	 .norms = PRE_NORMS,
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .ffn_plain = true},
	{.arch = "OlmoForCausalLM",
	 .type = "olmo",
	 .models = "OLMo",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048}",
	 .keys = {{"#qkv_clip", "clip_qkv"}},
	 .norms = PRE_NORMS,
	 .norm = CONFIG_NORM_LAYER,
	 .norm_plain = true,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY},
	{.arch = "PhiForCausalLM",
	 .type = "phi",
	 .models = "Phi-1, Phi-1.5, Phi-2",
	 .defaults = "{\"layer_norm_eps\": 1e-5, \"hidden_act\": \"gelu_new\", "
		     "\"partial_rotary_factor\": 0.5, \"qk_layernorm\": false, "
		     "\"max_position_embeddings\": 2048}",
	 .keys = {{"rms_norm_eps", "layer_norm_eps"}, {"#qk_norm", "qk_layernorm"}},
	 .names = {{PART_FINAL_NORM, "final_layernorm"},
		   {PART_O, "self_attn.dense"},
		   {PART_UP, "mlp.fc1"},
		   {PART_DOWN, "mlp.fc2"},
		   {PART_Q_NORM, "self_attn.q_layernorm"},
		   {PART_K_NORM, "self_attn.k_layernorm"}},
	 .norms = {[NORM_ATTN] = "input_layernorm"},
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .block = BLOCK_PARALLEL,
	 .qk_norm = QK_NORM_HEADS,
	 .qk_norm_bias = true,
	 .qkv_bias = BIAS_ALWAYS,
	 .o_bias = BIAS_ALWAYS,
	 .mlp_bias = BIAS_ALWAYS,
	 .head_bias = BIAS_ALWAYS,
	 .partial = true,
	 .ffn_plain = true},
	{.arch = "PersimmonForCausalLM",
	 .type = "persimmon",
	 .models = "Persimmon",
	 .defaults = "{\"layer_norm_eps\": 1e-5, \"hidden_act\": \"relu2\", "
		     "\"partial_rotary_factor\": 0.5, \"qk_layernorm\": true}",
	 .keys = {{"rms_norm_eps", "layer_norm_eps"}, {"#qk_norm", "qk_layernorm"}},
	 .names = {{PART_FINAL_NORM, "final_layernorm"},
		   {PART_QKV, "self_attn.query_key_value"},
		   {PART_O, "self_attn.dense"},
		   {PART_UP, "mlp.dense_h_to_4h"},
		   {PART_DOWN, "mlp.dense_4h_to_h"},
		   {PART_Q_NORM, "self_attn.q_layernorm"},
		   {PART_K_NORM, "self_attn.k_layernorm"}},
	 .norms = PRE_NORMS,
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .qk_norm = QK_NORM_HEADS,
	 .qk_norm_bias = true,
	 .qkv_bias = BIAS_ALWAYS,
	 .o_bias = BIAS_ALWAYS,
	 .mlp_bias = BIAS_ALWAYS,
	 .partial = true,
	 .ffn_plain = true,
	 .qkv = QKV_BY_GROUP},
	{.arch = "GPTNeoXForCausalLM",
	 .type = "gpt_neox",
	 .models = "GPT-NeoX, Pythia",
	 .defaults = "{\"layer_norm_eps\": 1e-5, \"hidden_act\": \"gelu\", \"rotary_pct\": 0.25, "
		     "\"attention_bias\": true, \"use_parallel_residual\": true, "
		     "\"max_position_embeddings\": 2048}",
	 .keys = {{"rms_norm_eps", "layer_norm_eps"},
		  {"partial_rotary_factor", "rotary_pct"},
		  {"rope_theta", "rotary_emb_base"},
		  {"#parallel", "use_parallel_residual"}},
	 .prefix = "gpt_neox.",
	 .names = {{PART_EMBED, "embed_in"},
		   {PART_FINAL_NORM, "final_layer_norm"},
		   {PART_HEAD, "embed_out"},
		   {PART_QKV, "attention.query_key_value"},
		   {PART_O, "attention.dense"},
		   {PART_UP, "mlp.dense_h_to_4h"},
		   {PART_DOWN, "mlp.dense_4h_to_h"}},
	 .norms = PRE_NORMS,
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .block = BLOCK_PARALLEL_TWO,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_ALWAYS,
	 .partial = true,
	 .ffn_plain = true,
	 .qkv = QKV_BY_GROUP},
	{.arch = "GPTJForCausalLM",
	 .type = "gptj",
	 .models = "GPT-J",
	 .defaults = "{\"layer_norm_epsilon\": 1e-5, \"activation_function\": \"gelu_new\", "
		     "\"rotary_dim\": 64, \"n_positions\": 2048}",
	 .keys = {GPT_KEYS, {"#rope_dim", "rotary_dim"}},
	 .prefix = "transformer.",
	 .names = {GPT_NAMES,
		   {PART_Q, "attn.q_proj"},
		   {PART_K, "attn.k_proj"},
		   {PART_V, "attn.v_proj"},
		   {PART_O, "attn.out_proj"},
		   {PART_UP, "mlp.fc_in"},
		   {PART_DOWN, "mlp.fc_out"}},
	 .norms = {[NORM_ATTN] = "ln_1"},
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .block = BLOCK_PARALLEL,
	 .mlp_bias = BIAS_ALWAYS,
	 .head_bias = BIAS_ALWAYS,
	 .rope_pairs = true,
	 .ffn_plain = true},
	{.arch = "CodeGenForCausalLM",
	 .type = "codegen",
	 .models = "CodeGen",
	 .defaults = "{\"layer_norm_epsilon\": 1e-5, \"activation_function\": \"gelu_new\", "
		     "\"rotary_dim\": 64, \"n_positions\": 2048}",
	 .keys = {GPT_KEYS, {"#rope_dim", "rotary_dim"}},
	 .prefix = "transformer.",
	 .names = {GPT_NAMES,
		   {PART_QKV, "attn.qkv_proj"},
		   {PART_O, "attn.out_proj"},
		   {PART_UP, "mlp.fc_in"},
		   {PART_DOWN, "mlp.fc_out"}},
	 .norms = {[NORM_ATTN] = "ln_1"},
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .block = BLOCK_PARALLEL,
	 .mlp_bias = BIAS_ALWAYS,
	 .head_bias = BIAS_ALWAYS,
	 .rope_pairs = true,
	 .ffn_plain = true,
	 .qkv = QKV_IN_FOUR},
	{.arch = "GPT2LMHeadModel",
	 .type = "gpt2",
	 .also = {"gpt-sw3"},
	 .models = "GPT-2, GPT-SW3",
	 .defaults = "{\"layer_norm_epsilon\": 1e-5, \"activation_function\": \"gelu_new\", "
		     "\"n_positions\": 1024, \"tie_word_embeddings\": true}",
	 .require = "{\"scale_attn_weights\": true, \"scale_attn_by_inverse_layer_idx\": false, "
		    "\"add_cross_attention\": false}",
	 .keys = {GPT_KEYS},
	 .prefix = "transformer.",
	 .names = {GPT_NAMES, GPT2_NAMES},
	 .norms = {[NORM_ATTN] = "ln_1", [NORM_FFN] = "ln_2"},
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .qkv_bias = BIAS_ALWAYS,
	 .o_bias = BIAS_ALWAYS,
	 .mlp_bias = BIAS_ALWAYS,
	 .learned = true,
	 .ffn_plain = true,
	 .transposed = true},
	{.arch = "GPTBigCodeForCausalLM",
	 .type = "gpt_bigcode",
	 .models = "StarCoder, SantaCoder",
	 .defaults = "{\"layer_norm_epsilon\": 1e-5, \"activation_function\": \"gelu_pytorch_tanh\", "
		     "\"n_positions\": 1024, \"multi_query\": true, \"tie_word_embeddings\": true}",
	 .require = "{\"scale_attn_weights\": true, \"add_cross_attention\": false, \"multi_query\": true}",
	 .keys = {GPT_KEYS, {"#multi_query", "multi_query"}},
	 .prefix = "transformer.",
	 .names = {GPT_NAMES, GPT2_NAMES},
	 .norms = {[NORM_ATTN] = "ln_1", [NORM_FFN] = "ln_2"},
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .qkv_bias = BIAS_ALWAYS,
	 .o_bias = BIAS_ALWAYS,
	 .mlp_bias = BIAS_ALWAYS,
	 .learned = true,
	 .ffn_plain = true},
	{.arch = "GPTNeoForCausalLM",
	 .type = "gpt_neo",
	 .models = "GPT-Neo",
	 .defaults = "{\"layer_norm_epsilon\": 1e-5, \"activation_function\": \"gelu_new\", "
		     "\"window_size\": 256, \"#attn_scale\": 1.0, \"tie_word_embeddings\": true}",
	 .keys = {{"num_hidden_layers", "num_layers"},
		  {"num_attention_heads", "num_heads"},
		  {"rms_norm_eps", "layer_norm_epsilon"},
		  {"hidden_act", "activation_function"},
		  {"sliding_window", "window_size"},
		  {"layer_types", "attention_layers"}},
	 .prefix = "transformer.",
	 .names = {GPT_NAMES,
		   {PART_POSITIONS, "wpe"},
		   {PART_Q, "attn.attention.q_proj"},
		   {PART_K, "attn.attention.k_proj"},
		   {PART_V, "attn.attention.v_proj"},
		   {PART_O, "attn.attention.out_proj"},
		   {PART_UP, "mlp.c_fc"},
		   {PART_DOWN, "mlp.c_proj"}},
	 .norms = {[NORM_ATTN] = "ln_1", [NORM_FFN] = "ln_2"},
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .o_bias = BIAS_ALWAYS,
	 .mlp_bias = BIAS_ALWAYS,
	 .window = WINDOW_PATTERN,
	 .learned = true,
	 .ffn_plain = true},
	{.arch = "OPTForCausalLM",
	 .type = "opt",
	 .models = "OPT",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"activation_function\": \"relu\", "
		     "\"tie_word_embeddings\": true}",
	 .require = "{\"do_layer_norm_before\": true, \"_remove_final_layer_norm\": false, "
		    "\"enable_bias\": true, \"layer_norm_elementwise_affine\": true}",
	 .keys = {{"intermediate_size", "ffn_dim"}, {"hidden_act", "activation_function"}},
	 .prefix = "model.decoder.",
	 .names = {{PART_FINAL_NORM, "final_layer_norm"},
		   {PART_O, "self_attn.out_proj"},
		   {PART_UP, "fc1"},
		   {PART_DOWN, "fc2"}},
	 .norms = {[NORM_ATTN] = "self_attn_layer_norm", [NORM_FFN] = "final_layer_norm"},
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .qkv_bias = BIAS_ALWAYS,
	 .o_bias = BIAS_ALWAYS,
	 .mlp_bias = BIAS_ALWAYS,
	 .learned = true,
	 .position_offset = 2,
	 .ffn_plain = true},
	{.arch = "BioGptForCausalLM",
	 .type = "biogpt",
	 .models = "BioGPT",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"hidden_act\": \"gelu\", \"max_position_embeddings\": 1024, "
		     "\"tie_word_embeddings\": true}",
	 .require = "{\"scale_embedding\": true}",
	 .prefix = "biogpt.",
	 .names = {{PART_FINAL_NORM, "layer_norm"},
		   {PART_HEAD, "output_projection"},
		   {PART_O, "self_attn.out_proj"},
		   {PART_UP, "fc1"},
		   {PART_DOWN, "fc2"}},
	 .norms = {[NORM_ATTN] = "self_attn_layer_norm", [NORM_FFN] = "final_layer_norm"},
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .qkv_bias = BIAS_ALWAYS,
	 .o_bias = BIAS_ALWAYS,
	 .mlp_bias = BIAS_ALWAYS,
	 .embed = EMBED_ROOT,
	 .learned = true,
	 .position_offset = 2,
	 .ffn_plain = true},
	{.arch = "MptForCausalLM",
	 .type = "mpt",
	 .models = "MPT",
	 .defaults = "{\"layer_norm_epsilon\": 1e-5, \"hidden_act\": \"gelu\", \"max_seq_len\": 2048, "
		     "\"tie_word_embeddings\": true}",
	 .require = "{\"expansion_ratio\": 4, \"no_bias\": true, \"attn_config.alibi\": true, "
		    "\"attn_config.alibi_bias_max\": 8, \"attn_config.qk_ln\": false, "
		    "\"attn_config.prefix_lm\": false, \"attn_config.attn_type\": \"multihead_attention\"}",
	 .keys = {{"hidden_size", "d_model"},
		  {"num_attention_heads", "n_heads"},
		  {"num_hidden_layers", "n_layers"},
		  {"max_position_embeddings", "max_seq_len"},
		  {"rms_norm_eps", "layer_norm_epsilon"},
		  {"#qkv_clip", "attn_config.clip_qkv"},
		  {"#attn_scale", "attn_config.softmax_scale"}},
	 .prefix = "transformer.",
	 .names = {{PART_EMBED, "wte"},
		   {PART_LAYERS, "blocks"},
		   {PART_FINAL_NORM, "norm_f"},
		   {PART_QKV, "attn.Wqkv"},
		   {PART_O, "attn.out_proj"},
		   {PART_UP, "ffn.up_proj"},
		   {PART_DOWN, "ffn.down_proj"}},
	 .norms = {[NORM_ATTN] = "norm_1", [NORM_FFN] = "norm_2"},
	 .norm = CONFIG_NORM_LAYER,
	 .alibi = true,
	 .ffn_plain = true},
#define FALCON                                                                                               \
	.arch = "FalconForCausalLM", .type = "falcon", .models = "Falcon",                                   \
	.defaults = "{\"layer_norm_epsilon\": 1e-5, \"hidden_act\": \"gelu\", \"multi_query\": true, "       \
		    "\"bias\": false, \"alibi\": false, \"max_position_embeddings\": 2048, "                 \
		    "\"tie_word_embeddings\": true}",                                                        \
	.prefix = "transformer.",                                                                            \
	.names = {{PART_EMBED, "word_embeddings"},  {PART_LAYERS, "h"},                                      \
		  {PART_FINAL_NORM, "ln_f"},        {PART_QKV, "self_attention.query_key_value"},            \
		  {PART_O, "self_attention.dense"}, {PART_UP, "mlp.dense_h_to_4h"},                          \
		  {PART_DOWN, "mlp.dense_4h_to_h"}},                                                         \
	.norm = CONFIG_NORM_LAYER, .norm_bias = true, .qkv_bias = BIAS_BY_KEY, .o_bias = BIAS_BY_KEY,        \
	.mlp_bias = BIAS_BY_KEY, .ffn_plain = true, .qkv = QKV_BY_GROUP
#define FALCON_KEYS                                                                                          \
	{"rms_norm_eps", "layer_norm_epsilon"}, {"hidden_act", "activation"}, {"attention_bias", "bias"},    \
		{"mlp_bias", "bias"},                                                                        \
	{                                                                                                    \
		"intermediate_size", "ffn_hidden_size"                                                       \
	}
	{FALCON, .when = "{\"new_decoder_architecture\": true}",
	 .require = "{\"num_ln_in_parallel_attn\": 2, \"alibi\": false}",
	 .keys = {FALCON_KEYS, {"num_key_value_heads", "num_kv_heads"}},
	 .norms = {[NORM_ATTN] = "ln_attn", [NORM_FFN] = "ln_mlp"}, .block = BLOCK_PARALLEL_TWO},
	{FALCON, .when = "{\"parallel_attn\": false}", .require = "{\"alibi\": false}",
	 .keys = {FALCON_KEYS, {"#multi_query", "multi_query"}}, .norms = PRE_NORMS},
	{FALCON, .require = "{\"alibi\": false}", .keys = {FALCON_KEYS, {"#multi_query", "multi_query"}},
	 .norms = {[NORM_ATTN] = "input_layernorm"}, .block = BLOCK_PARALLEL},
	{.arch = "ExaoneForCausalLM",
	 .type = "exaone",
	 .also = {"LlamaForCausalLM"},
	 .models = "EXAONE 3, 3.5, Deep",
	 .when = "{\"model_type\": \"exaone\"}",
	 .defaults = "{\"layer_norm_epsilon\": 1e-5, \"num_key_value_heads\": 8, \"rope_theta\": 5e5, "
		     "\"max_position_embeddings\": 4096}",
	 .keys = {{"num_hidden_layers", "num_layers"},
		  {"rms_norm_eps", "layer_norm_epsilon"},
		  {"hidden_act", "activation_function"}},
	 .prefix = "transformer.",
	 .names = {GPT_NAMES,
		   {PART_Q, "attn.attention.q_proj"},
		   {PART_K, "attn.attention.k_proj"},
		   {PART_V, "attn.attention.v_proj"},
		   {PART_O, "attn.attention.out_proj"},
		   {PART_GATE, "mlp.c_fc_0"},
		   {PART_UP, "mlp.c_fc_1"},
		   {PART_DOWN, "mlp.c_proj"}},
	 .norms = {[NORM_ATTN] = "ln_1", [NORM_FFN] = "ln_2"},
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY},
	{.arch = "AriaTextForCausalLM",
	 .type = "aria_text",
	 .models = "Aria",
	 .defaults = "{\"max_position_embeddings\": 2048, \"moe_num_experts\": 8, \"moe_topk\": 2, "
		     "\"moe_num_shared_experts\": 2}",
	 .keys = {{"num_experts", "moe_num_experts"},
		  {"num_experts_per_tok", "moe_topk"},
		  {"n_shared_experts", "moe_num_shared_experts"}},
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &aria_experts},
	{.arch = "Ernie4_5_MoeForCausalLM",
	 .type = "ernie4_5_moe",
	 .models = "ERNIE 4.5 MoE",
	 .defaults = "{\"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-5, \"rope_theta\": 5e5, "
		     "\"tie_word_embeddings\": true, \"moe_k\": 6, \"moe_num_experts\": 64, "
		     "\"moe_num_shared_experts\": 2, \"moe_intermediate_size\": 1536, "
		     "\"moe_layer_start_index\": 1, \"moe_layer_interval\": 1}",
	 .keys = {{"attention_bias", "use_bias"},
		  {"mlp_bias", "use_bias"},
		  {"num_experts", "moe_num_experts"},
		  {"num_experts_per_tok", "moe_k"},
		  {"n_shared_experts", "moe_num_shared_experts"},
		  {"first_k_dense_replace", "moe_layer_start_index"},
		  {"decoder_sparse_step", "moe_layer_interval"},
		  {"#last_sparse", "moe_layer_end_index"}},
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .rope_pairs = true,
	 .experts = &ernie_experts},
};

enum { N = sizeof families / sizeof families[0] };

static const char *const parts[PARTS] = {
	[PART_EMBED] = "embed_tokens",
	[PART_POSITIONS] = "embed_positions",
	[PART_FINAL_NORM] = "norm",
	[PART_HEAD] = "lm_head",
	[PART_LAYERS] = "layers",
	[PART_Q] = "self_attn.q_proj",
	[PART_K] = "self_attn.k_proj",
	[PART_V] = "self_attn.v_proj",
	[PART_QKV] = "self_attn.qkv_proj",
	[PART_O] = "self_attn.o_proj",
	[PART_Q_NORM] = "self_attn.q_norm",
	[PART_K_NORM] = "self_attn.k_norm",
	[PART_GATE] = "mlp.gate_proj",
	[PART_UP] = "mlp.up_proj",
	[PART_GATE_UP] = "mlp.gate_up_proj",
	[PART_DOWN] = "mlp.down_proj",
};

const char *family_name(const struct family *f, enum family_part part)
{
	for (size_t i = 0; i < sizeof f->names / sizeof *f->names && f->names[i].name; i++)
		if (f->names[i].part == part)
			return f->names[i].name;
	return parts[part];
}

bool family_is_also(const struct family *f, const char *type)
{
	for (size_t j = 0; j < sizeof f->also / sizeof *f->also && f->also[j]; j++)
		if (strcmp(type, f->also[j]) == 0)
			return true;
	return false;
}

const struct family *family_find(const char *arch, const char *type)
{
	const char *name = arch ? arch : type;
	for (size_t i = 0; i < N; i++)
		if (strcmp(name, arch ? families[i].arch : families[i].type) == 0)
			return &families[i];
	for (size_t i = 0; i < N; i++)
		if (family_is_also(&families[i], name))
			return &families[i];
	return NULL;
}

const struct family *family_at(size_t i)
{
	return i < N ? &families[i] : NULL;
}

const struct family *family_find_gguf(const char *name, bool mixture)
{
	const struct family *found = NULL;
	for (size_t i = 0; i < N; i++) {
		const struct family *f = &families[i];
		if (!f->gguf || strcmp(f->gguf->name, name) != 0)
			continue;
		if ((f->experts != NULL) == mixture)
			return f;
		found = found ? found : f;
	}
	return found;
}

const struct family *family_find_file(const char *file)
{
	size_t i = 0;
	while (!families[i].file || strcmp(families[i].file, file) != 0) {
		i++;
		assert(i < N);
	}
	return &families[i];
}

const struct family *family_with_window(const struct family *f)
{
	for (size_t i = 0; i < N && f->gguf && f->window == WINDOW_NONE; i++)
		if (families[i].gguf == f->gguf && families[i].experts == f->experts && families[i].window)
			return &families[i];
	return f;
}

bool family_permutes(const struct family *f)
{
	return f->gguf && f->gguf->permuted && !f->rope_pairs;
}

/* Return the length of the common prefix of a and b, ignoring case. */
static size_t common(const char *a, const char *b)
{
	size_t n = 0;
	while (a[n] && tolower((unsigned char)a[n]) == tolower((unsigned char)b[n]))
		n++;
	return n;
}

const char *family_nearest(const char *typed, const char *const *names, size_t n, char *out, size_t size)
{
	enum { SAME_LETTERS = 3, SHOWN = 3 };
	const char *shown[SHOWN];
	size_t len = 0, n_shown = 0;
	out[0] = '\0';
	for (size_t want = strlen(typed); want >= SAME_LETTERS && n_shown < SHOWN; want--)
		for (size_t i = 0; i < n && n_shown < SHOWN; i++)
			if (common(typed, names[i]) == want)
				shown[n_shown++] = names[i];
	for (size_t i = 0; i < n_shown && len < size; i++)
		len += (size_t)snprintf(out + len, size - len, "%s%s%s", i ? ", " : "nearest: ", shown[i],
					i + 1 == n_shown ? "; " : "");
	return out;
}

const char *family_near(const char *typed, bool gguf, char *out, size_t size)
{
	const char *names[N];
	size_t n = 0;
	for (size_t i = 0; i < N; i++) {
		const char *name = !gguf              ? families[i].arch
				   : families[i].gguf ? families[i].gguf->name
						      : NULL;
		bool known = !name;
		for (size_t j = 0; j < n && !known; j++)
			known = strcmp(names[j], name) == 0;
		if (!known)
			names[n++] = name;
	}
	return family_nearest(typed, names, n, out, size);
}
