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
static const struct family_experts mixtral_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "block_sparse_moe",
	.names = {"w1", "w3", "w2"},
	.normalize = true,
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
	.deepseek = true,
};

static const struct family_experts gpt_oss_experts = {
	.n = "num_local_experts",
	.intermediate = "intermediate_size",
	.module = "mlp",
	.names = {"gate_up_proj", NULL, "down_proj"},
	.router = "mlp.router",
	.fused = true,
	.bias = true,
	.normalize = true, /* equals a softmax over the chosen experts only */
};

static const struct family families[] = {
	{.arch = "LlamaForCausalLM",
	 .type = "llama",
	 .id = ARCH_LLAMA,
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY},
	{.arch = "MistralForCausalLM",
	 .type = "mistral",
	 .id = ARCH_MISTRAL,
	 .defaults = "{\"sliding_window\": 4096}",
	 .norms = PRE_NORMS,
	 .window = WINDOW_ALL},
	{.arch = "Qwen2ForCausalLM",
	 .type = "qwen2",
	 .id = ARCH_QWEN2,
	 .defaults = "{\"sliding_window\": 4096, \"max_window_layers\": 28}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_ALWAYS,
	 .window = WINDOW_SWITCH},
	{.arch = "Qwen3ForCausalLM",
	 .type = "qwen3",
	 .id = ARCH_QWEN3,
	 .defaults = "{\"head_dim\": 128, \"sliding_window\": 4096, \"max_window_layers\": 28}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_SWITCH},
	{.arch = "Olmo2ForCausalLM",
	 .type = "olmo2",
	 .id = ARCH_OLMO2,
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048}",
	 .norms = {[NORM_ATTN_POST] = "post_attention_layernorm",
		   [NORM_FFN_POST] = "post_feedforward_layernorm"},
	 .qk_norm = QK_NORM_ROWS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY},
	{.arch = "SmolLM3ForCausalLM",
	 .type = "smollm3",
	 .id = ARCH_SMOLLM3,
	 .defaults = "{\"num_key_value_heads\": 4, \"rope_theta\": 2e6, \"tie_word_embeddings\": true, "
		     "\"no_rope_layer_interval\": 4, \"max_window_layers\": 0}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .mlp_bias = BIAS_BY_KEY,
	 .window = WINDOW_SWITCH,
	 .no_rope = true},
	{.arch = "Phi3ForCausalLM",
	 .type = "phi3",
	 .id = ARCH_PHI3,
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 4096, "
		     "\"original_max_position_embeddings\": 4096}",
	 .norms = PRE_NORMS,
	 .window = WINDOW_ALL,
	 .partial = true},
	{.arch = "GlmForCausalLM",
	 .type = "glm",
	 .id = ARCH_GLM,
	 .defaults = "{\"head_dim\": 128, \"num_key_value_heads\": 2, \"attention_bias\": true, "
		     "\"rms_norm_eps\": 1.5625e-7, \"partial_rotary_factor\": 0.5}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_BY_KEY,
	 .partial = true,
	 .rope_pairs = true},
	{.arch = "Glm4ForCausalLM",
	 .type = "glm4",
	 .id = ARCH_GLM4,
	 .defaults = "{\"head_dim\": 128, \"num_key_value_heads\": 2, \"attention_bias\": true, "
		     "\"rms_norm_eps\": 1.5625e-7, \"partial_rotary_factor\": 0.5}",
	 .norms = {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
		   "post_mlp_layernorm"},
	 .qkv_bias = BIAS_BY_KEY,
	 .partial = true,
	 .rope_pairs = true},
	{.arch = "Gemma2ForCausalLM",
	 .type = "gemma2",
	 .id = ARCH_GEMMA2,
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
	 .gemma = true},
#define GEMMA3                                                                                               \
	.id = ARCH_GEMMA3,                                                                                   \
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
	.rope_by_layer = true, .gemma = true
	{.arch = "Gemma3ForCausalLM", .type = "gemma3_text", GEMMA3},
	/* The text part; the vision part is not read. */
	{.arch = "Gemma3ForConditionalGeneration", .type = "gemma3", GEMMA3},
	{.arch = "Qwen2MoeForCausalLM",
	 .type = "qwen2_moe",
	 .id = ARCH_QWEN2_MOE,
	 .defaults = "{\"sliding_window\": 4096, \"max_window_layers\": 28, \"num_experts\": 60, "
		     "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 1408, "
		     "\"shared_expert_intermediate_size\": 5632, \"decoder_sparse_step\": 1}",
	 .norms = PRE_NORMS,
	 .qkv_bias = BIAS_ALWAYS,
	 .window = WINDOW_SWITCH,
	 .experts = &qwen2_experts},
	{.arch = "Qwen3MoeForCausalLM",
	 .type = "qwen3_moe",
	 .id = ARCH_QWEN3_MOE,
	 .defaults = "{\"num_key_value_heads\": 4, \"sliding_window\": 4096, \"max_window_layers\": 28, "
		     "\"num_experts\": 128, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768, "
		     "\"decoder_sparse_step\": 1}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .window = WINDOW_SWITCH,
	 .experts = &qwen3_experts},
	{.arch = "MixtralForCausalLM",
	 .type = "mixtral",
	 .id = ARCH_MIXTRAL,
	 .defaults = "{\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-5, \"rope_theta\": 1e6, "
		     "\"num_local_experts\": 8, \"num_experts_per_tok\": 2}",
	 .norms = PRE_NORMS,
	 .window = WINDOW_ALL,
	 .experts = &mixtral_experts},
	{.arch = "OlmoeForCausalLM",
	 .type = "olmoe",
	 .id = ARCH_OLMOE,
	 .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 4096, \"num_experts\": 64, "
		     "\"num_experts_per_tok\": 8}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_ROWS,
	 .qkv_bias = BIAS_BY_KEY,
	 .o_bias = BIAS_BY_KEY,
	 .experts = &olmoe_experts},
	{.arch = "Glm4MoeForCausalLM",
	 .type = "glm4_moe",
	 .id = ARCH_GLM4_MOE,
	 .defaults = "{\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-5, \"partial_rotary_factor\": 0.5, "
		     "\"n_routed_experts\": 128, \"num_experts_per_tok\": 8, "
		     "\"moe_intermediate_size\": 1408, \"n_shared_experts\": 1, "
		     "\"first_k_dense_replace\": 1, \"norm_topk_prob\": true}",
	 .norms = PRE_NORMS,
	 .qk_norm = QK_NORM_HEADS,
	 .qk_norm_by_key = true,
	 .qkv_bias = BIAS_BY_KEY,
	 .partial = true,
	 .experts = &glm4_experts},
	{.arch = "GptOssForCausalLM",
	 .type = "gpt_oss",
	 .id = ARCH_GPT_OSS,
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
};

enum { N = sizeof families / sizeof families[0] };

const struct family *family_find(const char *arch, const char *type)
{
	for (size_t i = 0; i < N; i++)
		if (strcmp(arch ? arch : type, arch ? families[i].arch : families[i].type) == 0)
			return &families[i];
	return NULL;
}

const struct family *family_of(enum config_arch id)
{
	size_t i = 0;
	while (families[i].id != id) {
		i++;
		assert(i < N);
	}
	return &families[i];
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

const char *family_near(const char *typed, char *out, size_t size)
{
	const char *names[N];
	for (size_t i = 0; i < N; i++)
		names[i] = families[i].arch;
	return family_nearest(typed, names, N, out, size);
}
