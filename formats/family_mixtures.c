/* family_mixtures.c - the rows of families with mixtures of experts. */
#include "formats/family_impl.h"

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
static const struct family_experts phimoe_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "block_sparse_moe",
	.names = {"w1", "w3", "w2"},
	.normalize = NORMALIZE_NEVER,
	.score = SCORE_SPARSEMIXER,
	.own = {.router = "mlp.router"},
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
	.own = {.choice = "mlp.gate.e_score_correction_bias"},
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
	.own = {.router = "mlp.gate",
		.choice = "mlp.e_score_correction_bias",
		.shared = "mlp.shared_experts"},
};
static const struct family_experts granite_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "block_sparse_moe",
	.router = "router.layer",
	.stack = {"block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"},
	.normalize = NORMALIZE_ALWAYS, /* equals a softmax over the chosen experts only */
	.own = {.stack = {.gate_up = "block_sparse_moe.experts.gate_up_proj",
			  .down = "block_sparse_moe.experts.down_proj"},
		.router = "block_sparse_moe.router"},
};
static const struct family_experts granite_swa_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "block_sparse_moe",
	.router = "router",
	.stack = {"block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj"},
	.normalize = NORMALIZE_ALWAYS,
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
	.own = {.stack = {.gate_up = "block_sparse_moe.experts.gate_up_proj",
			  .down = "block_sparse_moe.experts.down_proj"},
		.router = "block_sparse_moe.router"},
};
static const struct family_experts hunyuan_experts = {
	.n = "num_experts",
	.intermediate = "intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.router = "gate.wg",
	.shared = "mlp.shared_mlp",
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
	.own = {.choice = "mlp.gate.moe_statics.e_score_correction_bias"},
};

static const struct family_experts sarvam_experts = {
	.n = "n_routed_experts",
	.intermediate = "moe_intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.choice = "gate.expert_bias",
	.shared = "mlp.shared_experts",
	.first_dense = true,
	.score = SCORE_SIGMOID,
	.groups = true,
	.scaled = true,
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

static const struct family_experts flint_experts = {
	.n = "num_experts",
	.intermediate = "moe_intermediate_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.shared = "mlp.shared_expert",
	.shared_size = "shared_expert_intermediate_size",
	.steps = true,
	.score = SCORE_SIGMOID,
};

static const struct family_experts cohere2_experts = {
	.n = "num_experts",
	.intermediate = "#expert_size",
	.module = "mlp",
	.names = EXPERT_NAMES,
	.shared = "mlp.shared_experts",
	.first_dense = true,
	.selection = true,
};

static const struct family_experts dbrx_experts = {
	.n = "num_experts",
	.intermediate = "intermediate_size",
	.module = "ffn",
	.router = "router.layer",
	.stack = {"ffn.experts.mlp.w1", "ffn.experts.mlp.w2", .flat_up = "ffn.experts.mlp.v1"},
	.normalize = NORMALIZE_ALWAYS,
};

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

const struct family family_mixtures[] = {
	{.arch = "Qwen2MoeForCausalLM",
	 .type = "qwen2_moe",
	 .models = "Qwen2-MoE, Qwen1.5-MoE",
	 .gguf = &gguf_qwen2moe,
	 .defaults = "{\"sliding_window\": 4096, \"max_window_layers\": 28, \"num_experts\": 60, "
		     "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 1408, "
		     "\"shared_expert_intermediate_size\": 5632, \"decoder_sparse_step\": 1}",
	 .require = "{\"qkv_bias\": true}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_ALWAYS,
	 .window = WINDOW_SWITCH,
	 .window_typed = true,
	 .experts = &qwen2_experts},
	{.arch = "Qwen3MoeForCausalLM",
	 .type = "qwen3_moe",
	 .models = "Qwen3-MoE",
	 .gguf = &gguf_qwen3moe,
	 .defaults = "{\"num_key_value_heads\": 4, \"sliding_window\": 4096, \"max_window_layers\": 28, "
		     "\"num_experts\": 128, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768, "
		     "\"decoder_sparse_step\": 1}",
	 .require = "{\"use_sliding_window\": false}",
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
	 .defaults = "{\"num_key_value_heads\": 16, \"rope_theta\": 5e5, \"num_experts\": 60, "
		     "\"num_experts_per_tok\": 4, "
		     "\"moe_intermediate_size\": 1408, \"decoder_sparse_step\": 1}",
	 .require = "{\"sliding_window\": null}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &qwen3_vl_experts},
	{.arch = "MixtralForCausalLM",
	 .type = "mixtral",
	 .models = "Mixtral",
	 .gguf = &family_gguf_llama,
	 .defaults = "{\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-5, \"rope_theta\": 1e6, "
		     "\"num_local_experts\": 8, \"num_experts_per_tok\": 2}",
	 .norms = PRE_NORMS,
	 .window = WINDOW_ALL,
	 .experts = &mixtral_experts},
	{.arch = "PhiMoEForCausalLM",
	 .type = "phimoe",
	 .also = {"PhimoeForCausalLM"},
	 .models = "Phi-3.5-MoE",
	 .defaults = "{\"num_local_experts\": 16, \"num_experts_per_tok\": 2, \"num_key_value_heads\": 8, "
		     "\"rms_norm_eps\": 1e-5, \"rope_theta\": 1e6, \"router_jitter_noise\": 0.01, "
		     "\"max_position_embeddings\": 131072}",
	 .require = "{\"num_experts_per_tok\": 2}",
	 .keys = {{"#router_jitter", "router_jitter_noise"}, {"#head_bias", "lm_head_bias"}},
	 .norms = PRE_NORMS,
	 .norm = CONFIG_NORM_LAYER,
	 .norm_bias = true,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .head_bias = BIAS_BY_KEY,
	 .window = WINDOW_ALL,
	 .rope_mscale = true,
	 .experts = &phimoe_experts},
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
	{.arch = "SarvamMoEForCausalLM",
	 .type = "sarvam_moe",
	 .also = {"Glm4MoeForCausalLM"},
	 .as = "Glm4MoeForCausalLM",
	 .models = "Sarvam",
	 .when = "{\"model_type\": \"sarvam_moe\"}",
	 .defaults = "{\"num_key_value_heads\": 4, \"head_dim\": 64, \"rope_theta\": 8e6, "
		     "\"moe_intermediate_size\": 1024, \"num_experts_per_tok\": 6, \"n_shared_experts\": 1, "
		     "\"n_routed_experts\": 128, \"routed_scaling_factor\": 2.5, "
		     "\"first_k_dense_replace\": 1, \"norm_topk_prob\": true, \"use_qk_norm\": true}",
	 .keys = {{"num_nextn_predict_layers", "num_mtp_layers"},
		  {"n_shared_experts", "num_shared_experts"},
		  {"attention_bias", "use_qkv_bias"},
		  {"#qk_norm", "use_qk_norm"}},
	 .names = {{PART_EMBED, "word_embeddings"},
		   {PART_QKV, "attention.query_key_value"},
		   {PART_O, "attention.dense"},
		   {PART_Q_NORM, "attention.query_layernorm"},
		   {PART_K_NORM, "attention.key_layernorm"}},
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .partial = true,
	 .experts = &sarvam_experts},
	{.arch = "GptOssForCausalLM",
	 .type = "gpt_oss",
	 .models = "gpt-oss",
	 .gguf = &gguf_gpt_oss,
	 .defaults = "{\"num_hidden_layers\": 36, \"hidden_size\": 2880, \"intermediate_size\": 2880, "
		     "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"head_dim\": 64, "
		     "\"vocab_size\": 201088, \"max_position_embeddings\": 131072, "
		     "\"rms_norm_eps\": 1e-5, \"attention_bias\": true, \"rope_theta\": 150000.0, "
		     "\"sliding_window\": 128, \"sliding_window_pattern\": 2, "
		     "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32.0, "
		     "\"beta_slow\": 1.0, \"truncate\": false, \"original_max_position_embeddings\": 4096}, "
		     "\"num_local_experts\": 128, \"num_experts_per_tok\": 4, \"swiglu_limit\": 7.0, "
		     "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32.0, "
		     "\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"truncate\": false, "
		     "\"original_max_position_embeddings\": 4096}}",
	 .require = "{\"swiglu_alpha\": 1.702}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_PATTERN,
	 .experts = &gpt_oss_experts,
	 .sinks = true,
	 .clamped = true},
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
		     "\"sliding_window\": 1024, \"rope_theta\": 5e5, "
		     "\"rope_local_base_freq\": 1e4, \"num_experts\": 64, \"num_experts_per_tok\": 8, "
		     "\"moe_intermediate_size\": 896, \"norm_topk_prob\": true}",
	 .keys = {{"num_nextn_predict_layers", "num_mtp_layers"}},
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_LISTED,
	 .rope_by_layer = true,
	 .experts = &qwen3_experts},
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
	{.arch = "HunYuanMoEV1ForCausalLM",
	 .type = "hunyuan_v1_moe",
	 .models = "Hunyuan-A13B",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048, \"num_experts\": 1, "
		     "\"moe_topk\": 1, \"num_shared_expert\": 1}",
	 .keys = {{"num_experts_per_tok", "moe_topk"}, {"n_shared_experts", "num_shared_expert"}},
	 .names = HUNYUAN_NAMES,
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qk_norm_after = true,
	 .ntk_alpha = true,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &hunyuan_experts},
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
	 .mlp_bias = BIAS_BY_KEY,
	 .experts = &aria_experts},
	{.arch = "Ernie4_5_MoeForCausalLM",
	 .type = "ernie4_5_moe",
	 .models = "ERNIE 4.5 MoE",
	 .defaults = "{\"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-5, \"rope_theta\": 5e5, "
		     "\"tie_word_embeddings\": true, \"moe_k\": 6, \"moe_num_experts\": 64, "
		     "\"moe_num_shared_experts\": 2, \"moe_intermediate_size\": 1536, "
		     "\"moe_layer_start_index\": 1, \"moe_layer_interval\": 1}",
	 .require = "{\"moe_norm_min\": 1e-12}",
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
	{.arch = "FlintForCausalLM",
	 .type = "flint",
	 .models = "Flint",
	 .names = {{PART_SINKS, "self_attn.softmax_offset"}},
	 .defaults = "{\"norm_topk_prob\": true, \"moe_intermediate_size\": 512, \"num_experts\": 256, "
		     "\"num_experts_per_tok\": 6, \"shared_expert_intermediate_size\": 1024, "
		     "\"num_key_value_heads\": 4, \"head_dim\": 128, \"mlp_only_layers\": [0, 1]}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_TYPES,
	 .window_typed = true,
	 .nope = NOPE_ALWAYS,
	 .experts = &flint_experts,
	 .sinks = true},
	{.arch = "GraniteMoeSWAForCausalLM",
	 .type = "granitemoe_swa",
	 .models = "Granite Swash MoE",
	 .keys = {GRANITE_KEY_LIST, {"#layer_thetas", "layer_rope_theta"}},
	 .defaults = "{\"attention_multiplier\": 1.0, \"sliding_window\": 128}",
	 .require = "{\"shared_intermediate_size\": 0}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_PATTERN,
	 .experts = &granite_swa_experts,
	 .sinks = true},
	{.arch = "Cohere2MoeForCausalLM",
	 .type = "cohere2_moe",
	 .models = "Command A+ (Cohere 2 MoE)",
	 .defaults = "{\"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625, \"head_dim\": 128, "
		     "\"sliding_window\": 4096, \"sliding_window_pattern\": 4, "
		     "\"max_position_embeddings\": 8192, \"tie_word_embeddings\": true, \"num_experts\": 8, "
		     "\"num_experts_per_tok\": 2, \"norm_topk_prob\": true}",
	 .require = "{\"prefix_dense_sliding_window_pattern\": 1}",
	 .keys = {{"rms_norm_eps", "layer_norm_eps"},
		  {"#logit_scale", "logit_scale"},
		  {"n_shared_experts", "num_shared_experts"},
		  {"#expert_size", "intermediate_size"},
		  {"intermediate_size", "prefix_dense_intermediate_size", KEY_FIRST}},
	 .norms = {[NORM_ATTN] = "input_layernorm"},
	 .norm = CONFIG_NORM_LAYER,
	 .block = BLOCK_PARALLEL,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_PATTERN,
	 .rope_pairs = true,
	 .nope = NOPE_SPARSE,
	 .experts = &cohere2_experts},
	{.arch = "DbrxForCausalLM",
	 .type = "dbrx",
	 .models = "DBRX",
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"num_key_value_heads\": 1, \"max_seq_len\": 2048}",
	 .require = "{\"tie_word_embeddings\": false, \"ffn_config.ffn_act_fn\": {\"name\": \"silu\"}, "
		    "\"ffn_config.moe_normalize_expert_weights\": 1.0}",
	 .keys = {{"hidden_size", "d_model"},
		  {"num_attention_heads", "n_heads"},
		  {"num_hidden_layers", "n_layers"},
		  {"max_position_embeddings", "max_seq_len"},
		  {"num_key_value_heads", "attn_config.kv_n_heads"},
		  {"rope_theta", "attn_config.rope_theta"},
		  {"#qkv_clip", "attn_config.clip_qkv"},
		  {"intermediate_size", "ffn_config.ffn_hidden_size"},
		  {"num_experts", "ffn_config.moe_num_experts"},
		  {"num_experts_per_tok", "ffn_config.moe_top_k"}},
	 .prefix = "transformer.",
	 .names = {{PART_EMBED, "wte"},
		   {PART_LAYERS, "blocks"},
		   {PART_FINAL_NORM, "norm_f"},
		   {PART_QKV, "norm_attn_norm.attn.Wqkv"},
		   {PART_O, "norm_attn_norm.attn.out_proj"}},
	 .norms = {[NORM_ATTN] = "norm_attn_norm.norm_1", [NORM_FFN] = "norm_attn_norm.norm_2"},
	 .norm = CONFIG_NORM_LAYER,
	 .experts = &dbrx_experts},
};

const size_t family_n_mixtures = sizeof family_mixtures / sizeof *family_mixtures;
