/* test_names.c - tensor names in both layouts: all valid names, and names of no tensor. */
#include "formats/family.h"
#include "quant/convert/names.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct model_config of(const char *type)
{
	struct model_config c = {.family = family_find(NULL, type), .n_layers = 12, .n_predict = 2};
	if (!c.family->experts)
		return c;
	c.experts.n = 16;
	c.experts.choice_bias = c.family->experts->choice != NULL;
	for (int i = 1; i < 12; i++)
		c.layers[i].sparse = true;
	return c;
}

/* Both names belong to one tensor, and either finds it. */
static void pair(const char *type, const char *hf, const char *gguf, enum name_part part)
{
	const struct model_config c = of(type);
	const size_t n = strlen(hf);
	struct name by[2] = {0};
	cr_assert(name_of_hf(&c, hf, &by[0]), "%s", hf);
	cr_assert(name_of_gguf(&c, gguf, &by[1]), "%s", gguf);
	for (int i = 0; i < 2; i++) {
		cr_expect_str_eq(by[i].hf, hf);
		cr_expect_str_eq(by[i].gguf, gguf);
		cr_expect_eq(by[i].part, part, "%s", hf);
		cr_expect_eq(by[i].bias, strcmp(hf + n - 4, "bias") == 0, "%s", hf);
	}
}

static void none(const char *type, const char *name)
{
	const struct model_config c = of(type);
	struct name out;
	cr_expect_not(name_of_hf(&c, name, &out), "%s", name);
	cr_expect_not(name_of_gguf(&c, name, &out), "%s", name);
}

Test(names, a_tensor_of_a_dense_model_is_found_by_either_name)
{
	pair("qwen3", "model.embed_tokens.weight", "token_embd.weight", NAME_EMBED);
	pair("qwen3", "model.norm.weight", "output_norm.weight", NAME_NORM);
	pair("qwen3", "lm_head.weight", "output.weight", NAME_HEAD);
	pair("qwen3", "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", NAME_Q);
	pair("qwen3", "model.layers.11.self_attn.k_proj.bias", "blk.11.attn_k.bias", NAME_K);
	pair("qwen3", "model.layers.3.self_attn.v_proj.bias", "blk.3.attn_v.bias", NAME_LINEAR);
	pair("qwen3", "model.layers.3.self_attn.o_proj.weight", "blk.3.attn_output.weight", NAME_LINEAR);
	pair("qwen3", "model.layers.3.self_attn.q_norm.weight", "blk.3.attn_q_norm.weight", NAME_NORM);
	pair("qwen3", "model.layers.3.self_attn.k_norm.weight", "blk.3.attn_k_norm.weight", NAME_NORM);
	pair("qwen3", "model.layers.3.mlp.gate_proj.weight", "blk.3.ffn_gate.weight", NAME_LINEAR);
	pair("qwen3", "model.layers.3.mlp.up_proj.weight", "blk.3.ffn_up.weight", NAME_LINEAR);
	pair("qwen3", "model.layers.3.mlp.down_proj.weight", "blk.3.ffn_down.weight", NAME_LINEAR);
	pair("phi3", "model.layers.3.self_attn.qkv_proj.weight", "blk.3.attn_qkv.weight", NAME_LINEAR);
	pair("phi3", "model.layers.3.mlp.gate_up_proj.weight", "blk.3.ffn_up.weight", NAME_LINEAR);
	pair("glm4", "model.layers.3.mlp.gate_up_proj.weight", "blk.3.ffn_up.weight", NAME_LINEAR);
}

Test(names, a_norm_of_a_layer_has_the_place_that_its_family_gives_it)
{
	pair("qwen3", "model.layers.2.input_layernorm.weight", "blk.2.attn_norm.weight", NAME_NORM);
	pair("qwen3", "model.layers.2.post_attention_layernorm.weight", "blk.2.ffn_norm.weight", NAME_NORM);
	pair("olmo2", "model.layers.2.post_attention_layernorm.weight", "blk.2.post_attention_norm.weight",
	     NAME_NORM);
	pair("olmo2", "model.layers.2.post_feedforward_layernorm.weight", "blk.2.post_ffw_norm.weight",
	     NAME_NORM);
	none("olmo2", "model.layers.2.input_layernorm.weight");
	none("olmo2", "blk.2.attn_norm.weight");
}

Test(names, what_is_no_tensors_name_is_not_found)
{
	static const char *const names[] = {
		"",
		"lm_head",
		".weight",
		"lm_head.scale",
		"lm_hea.weight",
		"lm_heads.weight",
		"model.layers.0.model.norm.weight",
		"self_attn.q_proj.weight",
		"model.layers.12.self_attn.q_proj.weight",
		"model.layers.-1.self_attn.q_proj.weight",
		"model.layers.+1.self_attn.q_proj.weight",
		"model.layers..self_attn.q_proj.weight",
		"model.layers.1self_attn.q_proj.weight",
		"model.layers.1.weight",
		"model.layers.1",
		"model.layers.1.mlp.gate_up_proj.weight",
		"model.layers.1.mlp.gate.weight",
		"model.layers.1.mlp.gate.e_score_correction_bias",
		"model.norm.e_score_correction_bias",
		"blk.12.attn_q.weight",
		"blk.1.ffn_gate_inp.weight",
		"blk.1.exp_probs_b.bias",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		none("qwen3", names[i]);
	none("phi3", "model.layers.1.mlp.up_proj.weight");
}

Test(names, a_mixture_has_a_router_and_what_all_rows_share)
{
	pair("qwen2_moe", "model.layers.1.mlp.gate.weight", "blk.1.ffn_gate_inp.weight", NAME_ROUTER);
	pair("qwen2_moe", "model.layers.1.mlp.shared_expert.gate_proj.weight", "blk.1.ffn_gate_shexp.weight",
	     NAME_LINEAR);
	pair("qwen2_moe", "model.layers.1.mlp.shared_expert.up_proj.weight", "blk.1.ffn_up_shexp.weight",
	     NAME_LINEAR);
	pair("qwen2_moe", "model.layers.1.mlp.shared_expert.down_proj.weight", "blk.1.ffn_down_shexp.weight",
	     NAME_LINEAR);
	pair("qwen2_moe", "model.layers.1.mlp.shared_expert_gate.weight", "blk.1.ffn_gate_inp_shexp.weight",
	     NAME_SHARED_GATE);
	pair("glm4_moe", "model.layers.1.mlp.shared_experts.up_proj.weight", "blk.1.ffn_up_shexp.weight",
	     NAME_LINEAR);
	pair("glm4_moe", "model.layers.1.mlp.gate.e_score_correction_bias", "blk.1.exp_probs_b.bias",
	     NAME_CHOICE_BIAS);
	pair("mixtral", "model.layers.1.block_sparse_moe.gate.weight", "blk.1.ffn_gate_inp.weight",
	     NAME_ROUTER);

	none("mixtral", "blk.1.ffn_up_shexp.weight");
	none("mixtral", "model.layers.1.block_sparse_moe.gate.bias");
	none("mixtral", "model.layers.1.block_sparse_moe.gate.e_score_correction_bias");
	none("glm4_moe", "blk.1.exp_probs_b.weight");
	none("glm4_moe", "model.layers.1.mlp.gate.bias");
	none("qwen2_moe", "model.layers.0.mlp.gate.weight"); /* a dense layer */
	none("qwen2_moe", "mlp.gate.weight");
	none("gpt_oss", "blk.1.ffn_gate_inp.weight");
}

Test(names, an_expert_has_a_number_within_a_stack)
{
	struct model_config c = of("mixtral");
	struct name name;
	pair("mixtral", "model.layers.1.block_sparse_moe.experts.0.w1.weight", "blk.1.ffn_gate_exps.weight",
	     NAME_EXPERT);
	pair("mixtral", "model.layers.1.block_sparse_moe.experts.0.w3.weight", "blk.1.ffn_up_exps.weight",
	     NAME_EXPERT);
	pair("mixtral", "model.layers.1.block_sparse_moe.experts.0.w2.weight", "blk.1.ffn_down_exps.weight",
	     NAME_EXPERT);
	pair("qwen2_moe", "model.layers.1.mlp.experts.0.down_proj.weight", "blk.1.ffn_down_exps.weight",
	     NAME_EXPERT);

	cr_assert(name_of_hf(&c, "model.layers.1.block_sparse_moe.experts.15.w2.weight", &name));
	cr_expect_eq(name.expert, 15);
	cr_expect_str_eq(name.gguf, "blk.1.ffn_down_exps.weight");
	name_expert(&name, 7);
	cr_expect_eq(name.expert, 7);
	cr_expect_str_eq(name.hf, "model.layers.1.block_sparse_moe.experts.7.w2.weight");
	name_expert(&name, 12);
	cr_expect_str_eq(name.hf, "model.layers.1.block_sparse_moe.experts.12.w2.weight");
	cr_assert(name_of_gguf(&c, "output.weight", &name));
	name_expert(&name, 3);
	cr_expect_str_eq(name.hf, "lm_head.weight", "no expert's");
	cr_expect_eq(name.expert, 0);

	static const char *const ends[] = {"16.w2.weight", "07.w2.weight", "-1.w2.weight",
					   ".w2.weight",   "7.weight",     "7_w2.weight",
					   "7.w4.weight",  "7.w2.bias",    "4294967303.w2.weight"};
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		char text[128];
		snprintf(text, sizeof text, "model.layers.1.block_sparse_moe.experts.%s", ends[i]);
		none("mixtral", text);
	}
}

Test(names, layers_behind_the_models_own_are_a_predictors)
{
	const struct model_config c = of("glm4_moe");
	static const char *const yes[] = {"model.layers.12.eh_proj.weight",
					  "model.layers.13.mlp.gate.weight",
					  "language_model.model.layers.12.x",
					  "model.language_model.layers.12.x",
					  "layers.12.x",
					  "blk.13.nextn.eh_proj.weight"};
	static const char *const no[] = {"model.layers.11.mlp.gate.weight",
					 "model.layers.14.mlp.gate.weight",
					 "model.layers.12",
					 "model.layers.12x.weight",
					 "model.layers..weight",
					 "model.layers.4294967308.x",
					 "model.layers.000012.x",
					 "visual.layers.12.x",
					 "lm_head.weight"};
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
		cr_expect(name_is_of_predictor(&c, yes[i]), "%s", yes[i]);
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		cr_expect_not(name_is_of_predictor(&c, no[i]), "%s", no[i]);
}
