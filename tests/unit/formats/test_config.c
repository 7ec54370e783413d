/* config.json and generation_config.json: values are read, or refused by name. */
#include "base/json.h"
#include "formats/config.h"
#include "formats/family.h"
#include "tests/testdata.h"
#include "tests/unit/formats/config_dir.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(config, .init = make_dir, .fini = remove_dir);

static int load(void)
{
	model_config_fini(&c);
	return model_config_load(dir, &c, &why);
}

static void accepted(const char *more)
{
	put_with(more);
	int rc = load();
	cr_assert_eq(rc, 0, "%s: %s", more, why.text);
}

static void refused(const char *more, int err, const char *reason)
{
	put_with(more);
	int rc = load();
	cr_assert_eq(rc, err, "%s: rc %d, %s", more, rc, why.text);
	cr_assert(strstr(why.text, reason), "%s: \"%s\" does not contain \"%s\"", more, why.text, reason);
	cr_assert(strstr(why.text, "config.json"), "\"%s\" does not name the file", why.text);
}

Test(config, a_small_llama_is_read)
{
	accepted("{}");
	cr_expect_str_eq(c.family->type, "llama");
	cr_expect_str_eq(c.arch_name, "LlamaForCausalLM");
	cr_expect_eq(c.hidden, 64);
	cr_expect_eq(c.intermediate, 172);
	cr_expect_eq(c.n_layers, 5);
	cr_expect_eq(c.n_heads, 8);
	cr_expect_eq(c.n_kv_heads, 4);
	cr_expect_eq(c.head_dim, 8);
	cr_expect_eq(c.rope_dim, 8);
	cr_expect_eq(c.max_position, 256);
	cr_expect_float_eq(c.rms_eps, 1e-6f, 1e-12);
	cr_expect_float_eq(c.rope_theta, 10000, 0);
	cr_expect(!c.tied && !c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.qk_norm && !c.quant.n_schemes);
	cr_expect_eq(c.n_eos, 0);
	cr_expect_eq(c.bos, -1);
	cr_expect(isnan(c.gen_temperature));
}

Test(config, the_family_decides_biases_and_norms)
{
	accepted("{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": true}");
	cr_expect(c.qk_norm && c.qkv_bias && c.o_bias);
	cr_expect_eq(c.head_dim, 128);
	accepted("{\"architectures\": [\"Qwen2ForCausalLM\"]}");
	cr_expect(!c.qk_norm && c.qkv_bias && !c.o_bias);
	accepted("{\"attention_bias\": true, \"mlp_bias\": true}");
	cr_expect(c.qkv_bias && c.o_bias && c.mlp_bias);
	accepted("{\"architectures\": null, \"model_type\": \"mistral\"}");
	cr_expect_str_eq(c.family->type, "mistral");
	cr_expect_str_eq(c.arch_name, "MistralForCausalLM");
}

Test(config, missing_and_out_of_range_values_are_named)
{
	refused("{\"hidden_size\": null}", -EINVAL, "hidden_size is missing");
	refused("{\"vocab_size\": 0}", -EINVAL, "vocab_size is 0");
	refused("{\"num_hidden_layers\": 1025}", -EINVAL, "num_hidden_layers is 1025");
	refused("{\"num_hidden_layers\": 9223372036854775807}", -EINVAL, "num_hidden_layers");
	refused("{\"num_attention_heads\": \"8\"}", -EINVAL, "num_attention_heads must be an integer");
	refused("{\"num_key_value_heads\": 3}", -EINVAL, "not a multiple of num_key_value_heads 3");
	refused("{\"num_key_value_heads\": 16}", -EINVAL, "num_key_value_heads is 16");
	refused("{\"hidden_size\": 65}", -EINVAL, "head_dim is missing");
	refused("{\"head_dim\": 7}", -EINVAL, "head_dim 7 must be even");
	refused("{\"rms_norm_eps\": -1}", -EINVAL, "rms_norm_eps");
	refused("{\"rope_theta\": 0}", -EINVAL, "rope_theta");
	refused("{\"max_position_embeddings\": -5}", -EINVAL, "max_position_embeddings");
	refused("{\"tie_word_embeddings\": 1}", -EINVAL, "tie_word_embeddings must be true or false");
	refused("{\"architectures\": \"LlamaForCausalLM\"}", -EINVAL, "architectures must be a list");
}

Test(config, a_family_names_keys_as_it_likes)
{
	accepted("{\"architectures\": [\"GraniteForCausalLM\"], \"logits_scaling\": 4.0, "
		 "\"attention_multiplier\": 0.5, \"residual_multiplier\": 1.0}");
	cr_expect(c.logit_scale == 0.25f && c.attn_scale == 0.5f && c.residual_scale == 0 &&
		  c.embed_scale == 0);
	accepted("{\"architectures\": [\"HunYuanDenseV1ForCausalLM\"], "
		 "\"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 16.0}}");
	cr_expect(c.rope == ROPE_NONE && fabs(c.rope_theta - 10000 * pow(16, 8.0 / 6)) < 1 &&
		  c.qk_norm_after);
	accepted("{\"architectures\": [\"HunYuanMoEV1ForCausalLM\"], \"num_experts\": 4, "
		 "\"moe_topk\": [2, 2, 2, 2, 2], \"num_shared_expert\": [2, 2, 2, 2, 2]}");
	cr_expect(c.experts.n_chosen == 2 && c.experts.shared == 2 * c.experts.intermediate);
	accepted("{\"architectures\": [\"HunYuanMoEV1ForCausalLM\"], \"num_experts\": 4}");
	cr_expect_eq(c.experts.shared, c.experts.intermediate);
	accepted("{\"rope_parameters\": {\"rope_theta\": 1e4, \"rope_type\": \"default\", "
		 "\"llama_4_scaling_beta\": 0.1}}");
	cr_expect_eq(c.q_scale_beta, 0);
	accepted("{\"architectures\": [\"Exaone4ForCausalLM\"], \"sliding_window\": 8, "
		 "\"sliding_window_pattern\": 2}");
	for (int i = 0; i < 5; i++)
		cr_expect(c.layers[i].rope == (i % 2 ? LAYER_ROPE_NONE : LAYER_ROPE) &&
				  c.layers[i].window == (i % 2 ? 0 : 8),
			  "layer %d", i);
	refused("{\"architectures\": [\"StableLmForCausalLM\"], \"layer_norm_eps\": 1e-5, "
		"\"rms_norm_eps\": 1e-6}",
		-EINVAL, "rms_norm_eps and layer_norm_eps contradict each other");
}

Test(config, keys_that_are_not_read_are_listed_with_their_values)
{
	accepted("{\"use_cache\": true, \"logit_scale\": 0.5, \"mystery\": {\"a\": 1}}");
	cr_expect_str_eq(c.unread, "logit_scale=0.5 mystery={\"a\":1}");
	/* Read for other families only, as in transformers. */
	accepted("{\"sliding_window\": 4, \"n_group\": 2, \"norm_topk_prob\": true, "
		 "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0, \"alpha\": 3.0}}");
	cr_expect_str_eq(c.unread, "sliding_window=4 n_group=2 norm_topk_prob=true rope_scaling.alpha=3.0");
	accepted("{\"use_cache\": true}");
	cr_expect_str_eq(c.unread, "");
	accepted("{\"architectures\": [\"FalconForCausalLM\"], \"new_decoder_architecture\": true, "
		 "\"multi_query\": true, \"num_kv_heads\": 4, \"num_ln_in_parallel_attn\": 2}");
	cr_expect_str_eq(c.unread, "");
}

Test(config, unsupported_options_are_named)
{
	refused("{\"architectures\": [\"RwkvForCausalLM\"]}", -ENOTSUP, "RwkvForCausalLM");
	refused("{\"architectures\": [\"DeepseekV3ForCausalLM\"]}", -ENOTSUP, "DeepseekV3ForCausalLM");
	static const char *const heads[] = {"Qwen3ForSequenceClassification", "LlamaForTokenClassification",
					    "InternLM2ForRewardModel"};
	for (int i = 0; i < 3; i++) {
		char more[128];
		snprintf(more, sizeof more, "{\"architectures\": [\"%s\"]}", heads[i]);
		refused(more, -ENOTSUP, heads[i]);
		cr_expect_not_null(strstr(why.text, "a head that classifies is not supported"), "%s",
				   why.text);
	}
	refused("{\"hidden_act\": \"quick_gelu\"}", -ENOTSUP, "hidden_act quick_gelu");
	refused("{\"hidden_act\": \"relu\"}", -ENOTSUP, "hidden_act relu of a gate");
	refused("{\"rope_scaling\": {\"rope_type\": \"dynamic\", \"alpha\": 1000.0}}", -EINVAL,
		"factor of rope type dynamic is missing");
	refused("{\"architectures\": [\"OPTForCausalLM\"], \"do_layer_norm_before\": false}", -ENOTSUP,
		"do_layer_norm_before false is not supported for OPTForCausalLM (only true)");
	refused("{\"architectures\": [\"FalconForCausalLM\"], \"num_ln_in_parallel_attn\": 2}", -ENOTSUP,
		"num_ln_in_parallel_attn 2 is not supported for FalconForCausalLM (only 1)");
	refused("{\"architectures\": [\"Qwen3VLMoeForConditionalGeneration\"], \"sliding_window\": 8}",
		-ENOTSUP, "sliding_window 8 is not supported");
	refused("{\"torch_dtype\": \"float8_e4m3fn\"}", -ENOTSUP, "torch_dtype float8_e4m3fn");
	refused("{\"partial_rotary_factor\": 0.5}", -ENOTSUP, "partial_rotary_factor");
	refused("{\"architectures\": [\"Qwen2ForCausalLM\"], \"use_mrope\": true}", -ENOTSUP, "use_mrope");
	refused("{\"is_causal\": false}", -ENOTSUP, "is_causal false");
	refused("{\"rope_scaling\": {\"type\": \"xpos\"}}", -ENOTSUP, "rope type xpos");
	refused("{\"rope_scaling\": [1]}", -EINVAL, "must be an object");
}

Test(config, unsupported_quantizations_are_named)
{
	refused("{\"quantization\": {\"bits\": 4, \"group_size\": 64}}", -ENOTSUP, "MLX");
	refused("{\"quantization_config\": {\"quant_method\": \"hqq\", \"bits\": 4}}", -ENOTSUP, "hqq");
	refused("{\"quantization_config\": {\"bits\": 4}}", -ENOTSUP, "none named");
	refused("{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 5}}", -ENOTSUP, "5 bits");
	refused("{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"version\": "
		"\"marlin\"}}",
		-ENOTSUP, "version marlin");
	refused("{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"zero_point\": false}}",
		-ENOTSUP, "zero_point");
	refused("{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 0}}",
		-EINVAL, "group_size 0");
	refused("{\"quantization_config\": {\"quant_method\": \"awq\"}}", -EINVAL, "bits is missing");
}

Test(config, awq_is_read)
{
	accepted("{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32, "
		 "\"version\": "
		 "\"gemm\", \"zero_point\": true, \"modules_to_not_convert\": [\"lm_head\", \"q_proj\"]}}");
	cr_expect(c.quant.schemes[0].layout == QUANT_AWQ && c.quant.n_schemes == 1 &&
		  c.quant.schemes[0].bits == 4);
	cr_expect_eq(c.quant.schemes[0].group, 32);
	accepted(
		"{\"quantization_config\": {\"quant_method\": \"awq\", \"w_bit\": 4, \"q_group_size\": -1}}");
	cr_expect_eq(c.quant.schemes[0].group, -1);
}

Test(config, windows_follow_the_family)
{
	accepted("{\"sliding_window\": 16}");
	cr_expect_eq(c.window, 0);
	accepted("{\"architectures\": [\"MistralForCausalLM\"], \"sliding_window\": 16}");
	cr_expect(c.window == 16 && c.layers[0].window && c.layers[4].window);
	put("config.json",
	    "{\"architectures\": [\"MistralForCausalLM\"], \"sliding_window\": null, \"hidden_size\": 64,"
	    "\"intermediate_size\": 172, \"num_hidden_layers\": 5, \"num_attention_heads\": 8,"
	    "\"vocab_size\": 512, \"max_position_embeddings\": 256}");
	cr_assert_eq(load(), 0, "%s", why.text);
	cr_expect(c.window == 0 && !c.layers[0].window);
	accepted("{\"architectures\": [\"MistralForCausalLM\"]}");
	cr_expect_eq(c.window, 4096);
	accepted("{\"architectures\": [\"Qwen2ForCausalLM\"], \"sliding_window\": 16, \"max_window_layers\": "
		 "2}");
	cr_expect_eq(c.window, 0);
	accepted("{\"architectures\": [\"Qwen2ForCausalLM\"], \"sliding_window\": 16, \"max_window_layers\": "
		 "2, "
		 "\"use_sliding_window\": true}");
	cr_expect(c.window == 16 && !c.layers[1].window && c.layers[2].window);
	accepted("{\"architectures\": [\"Qwen3ForCausalLM\"], \"sliding_window\": 16, "
		 "\"use_sliding_window\": true, "
		 "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\", "
		 "\"full_attention\", "
		 "\"full_attention\"]}");
	cr_expect(c.window == 16 && c.layers[0].window && !c.layers[1].window);
	refused("{\"layer_types\": [\"full_attention\"]}", -EINVAL, "layer_types must be a list of 5");
	refused("{\"layer_types\": [\"full_attention\", \"linear_attention\", \"full_attention\", "
		"\"full_attention\", "
		"\"full_attention\"]}",
		-ENOTSUP, "linear_attention");
}

Test(config, rope_scalings_are_read_in_both_spellings)
{
	accepted("{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}");
	cr_expect(c.rope == ROPE_LINEAR && c.rope_factor == 2);
	accepted("{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"rope_theta\": 5000, "
		 "\"original_max_position_embeddings\": 128}}");
	cr_expect(c.rope == ROPE_YARN && c.rope_factor == 4 && c.rope_theta == 5000);
	cr_expect_eq(c.rope_original, 128);
	cr_expect_eq(c.max_position, 512);
	accepted("{\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 1, 1, 1], \"long_factor\": [1, "
		 "2, 3, 4]}, "
		 "\"original_max_position_embeddings\": 32}");
	cr_expect(c.rope == ROPE_LONGROPE && c.long_long[3] == 4 && c.rope_original == 32 &&
		  c.rope_factor == 8);
	refused("{\"rope_scaling\": {\"type\": \"linear\"}}", -EINVAL,
		"factor of rope type linear is missing");
	refused("{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1, 2, "
		"3, 4]}}",
		-EINVAL, "short_factor of longrope must be a list of 4");
	refused("{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
		"\"high_freq_factor\": 1}}",
		-EINVAL, "high_freq_factor");
	refused("{\"rope_scaling\": {\"type\": \"linear\", \"factor\": -1}}", -EINVAL, "factor is -1");
}

Test(config, generation_config_overrides_the_configuration)
{
	put_with("{\"eos_token_id\": 2, \"bos_token_id\": 1}");
	put("generation_config.json",
	    "{\"eos_token_id\": [7, 9], \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, "
	    "\"do_sample\": true, \"max_new_tokens\": 99}");
	cr_assert_eq(load(), 0, "%s", why.text);
	cr_expect(c.n_eos == 2 && c.eos[0] == 7 && c.eos[1] == 9 && c.bos == 1);
	cr_expect_float_eq(c.gen_temperature, 0.6, 1e-9);
	cr_expect(c.gen_top_k == 20 && c.gen_max_new_tokens == 99 && isnan(c.gen_min_p));
	put("generation_config.json", "{\"do_sample\": false}");
	cr_assert_eq(load(), 0, "%s", why.text);
	cr_expect(c.n_eos == 1 && c.eos[0] == 2 && c.gen_temperature == 0);
	put("generation_config.json", "{\"eos_token_id\": 512}");
	cr_assert_eq(load(), -EINVAL);
	cr_expect(strstr(why.text, "generation_config.json: eos_token_id"), "%s", why.text);
	put("generation_config.json", "[]");
	cr_assert_eq(load(), -EINVAL);
}

Test(config, files_that_are_not_json_are_named)
{
	cr_assert_eq(load(), -ENOENT);
	cr_expect(strstr(why.text, "config.json"), "%s", why.text);
	put("config.json", "{\"a\": ");
	cr_assert_eq(load(), -EINVAL);
	put("config.json", "[1, 2]");
	cr_assert_eq(load(), -EINVAL);
	cr_expect(strstr(why.text, "not a JSON object"), "%s", why.text);
}

/* ---- RoPE tables ---- */

/* At high positions a rounding error of an inverse frequency changes the angle noticeably. */
static float rope_tolerance(int position)
{
	return 2e-6f + 8e-8f * (float)position;
}

static void check_rope(const json_t *k)
{
	char *text = json_dumps(json_object_get(k, "config"), 0);
	put("config.json", text);
	free(text);
	cr_assert_eq(load(), 0, "%s", why.text);
	int context = (int)json_integer_value(json_object_get(k, "context"));
	size_t stride = (size_t)json_integer_value(json_object_get(k, "stride"));
	const json_t *positions = json_object_get(k, "positions");
	size_t half = (size_t)c.rope_dim / 2;
	float *table = malloc((size_t)context * half * 2 * sizeof *table);
	model_config_rope(&c, context, context, table);
	for (size_t i = 0; i < json_array_size(positions); i++) {
		int pos = (int)json_integer_value(json_array_get(positions, i));
		const json_t *cosines = json_array_get(json_object_get(k, "cos"), i);
		const json_t *sines = json_array_get(json_object_get(k, "sin"), i);
		cr_assert_eq(json_array_size(cosines), (half + stride - 1) / stride);
		for (size_t j = 0; j < json_array_size(cosines); j++) {
			const float *at = table + ((size_t)pos * half + j * stride) * 2;
			cr_expect_float_eq(at[0], json_number_value(json_array_get(cosines, j)),
					   rope_tolerance(pos), "%s rope %d, position %d, value %zu",
					   c.arch_name, c.rope, pos, j * stride);
			cr_expect_float_eq(at[1], json_number_value(json_array_get(sines, j)),
					   rope_tolerance(pos), "%s rope %d, position %d, value %zu",
					   c.arch_name, c.rope, pos, j * stride);
		}
	}
	free(table);
}

Test(config, rope_agrees_with_transformers)
{
	json_t *all;
	cr_assert_eq(json_read(repofile("tests/golden/rope.json"), 4 << 20, &all, &why), 0, "%s", why.text);
	cr_assert_geq(json_array_size(all), 10);
	for (size_t i = 0; i < json_array_size(all); i++)
		check_rope(json_array_get(all, i));
	json_decref(all);
}

Test(config, configurations_of_the_test_data_are_read_or_refused)
{
	static const struct {
		const char *dir;
		int rc;
	} all[] = {
		{"weights/stories260K-hf-bf16", 0},
		{"weights/tiny-random/tiny_llama3", 0},
		{"weights/tiny-random/tiny_mistral", 0},
		{"weights/tiny-random/tiny_qwen3", 0},
		{"weights/tiny_qwen3-awq-w4g32", 0},
		{"weights/tiny-random/tiny_qwen3_tied", -ENOTSUP},
		{"weights/tiny-random/tiny_qwen3_sharded", -ENOTSUP},
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		const char *path = testdata(all[i].dir);
		if (!path)
			cr_skip_test("%s is not here", all[i].dir);
		model_config_fini(&c);
		cr_expect_eq(model_config_load(path, &c, &why), all[i].rc, "%s: %s", path, why.text);
	}
}

/* The base grows only beyond the original context. */
Test(config, a_dynamic_rope_is_the_plain_one_up_to_the_original_context)
{
	float at[3][2 * 8 * 8];
	accepted("{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}");
	const int contexts[] = {c.rope_original, c.rope_original / 4, 2 * c.rope_original};
	for (int i = 0; i < 3; i++)
		model_config_rope(&c, 8, contexts[i], at[i]);
	cr_expect_arr_eq(at[0], at[1], 8 * (size_t)c.rope_dim * sizeof(float));
	cr_expect_neq(memcmp(at[0], at[2], 8 * (size_t)c.rope_dim * sizeof(float)), 0);
}

Test(config, an_attention_factor_of_yarn_may_be_below_1)
{
	float at[2 * 8 * 8];
	accepted("{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"attention_factor\": 0.5, "
		 "\"original_max_position_embeddings\": 64}}");
	model_config_rope(&c, 1, 256, at);
	cr_expect_eq(at[0], 0.5f);
}

Test(config, the_betas_of_yarn_have_their_papers_defaults)
{
	accepted("{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}");
	cr_expect(c.yarn_beta_fast == 32 && c.yarn_beta_slow == 1);
	accepted("{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0, \"beta_slow\": "
		 "0}}");
	cr_expect(c.yarn_beta_fast == 32 && c.yarn_beta_slow == 1);
}

Test(config, at_most_16_end_tokens_are_accepted)
{
	accepted("{\"eos_token_id\": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]}");
	cr_expect(c.n_eos == CONFIG_EOS_MAX && c.eos[15] == 15);
	refused("{\"eos_token_id\": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}", -EINVAL,
		"17 ids, at most 16");
}

/* ---- families ---- */

Test(config, layers_without_rotation_are_listed_or_each_nth)
{
	accepted("{\"architectures\": [\"SmolLM3ForCausalLM\"], \"no_rope_layers\": [1, 0, 1, 1, 0]}");
	cr_expect(c.tied && c.rope_theta == 2e6);
	for (int i = 0; i < 5; i++)
		cr_expect_eq(c.layers[i].rope, i == 1 || i == 4 ? LAYER_ROPE_NONE : LAYER_ROPE, "layer %d",
			     i);
	accepted("{\"architectures\": [\"SmolLM3ForCausalLM\"]}");
	for (int i = 0; i < 5; i++)
		cr_expect_eq(c.layers[i].rope, i == 3 ? LAYER_ROPE_NONE : LAYER_ROPE, "layer %d", i);
	refused("{\"architectures\": [\"SmolLM3ForCausalLM\"], \"no_rope_layers\": [1, 0]}", -EINVAL,
		"no_rope_layers must be a list of 5");
	refused("{\"architectures\": [\"SmolLM3ForCausalLM\"], \"use_sliding_window\": true}", -ENOTSUP,
		"without layer_types");
	accepted("{\"no_rope_layers\": [0, 0, 0, 0, 0]}"); /* Llama has no such key */
	cr_expect_eq(c.layers[0].rope, LAYER_ROPE);
}

Test(config, layers_have_one_of_two_rope_bases_or_none)
{
	accepted("{\"architectures\": [\"GraniteSWAForCausalLM\"], \"sliding_window_pattern\": 2, "
		 "\"layer_rope_theta\": [0, 500.0, 500.0, 700.0, 500.0]}");
	cr_expect(c.rope_theta == 500 && c.rope_local_theta == 700 && c.sinks);
	for (int i = 0; i < 5; i++)
		cr_expect_eq(c.layers[i].rope,
			     i == 0   ? LAYER_ROPE_NONE
			     : i == 3 ? LAYER_ROPE_LOCAL
				      : LAYER_ROPE,
			     "layer %d", i);
	refused("{\"architectures\": [\"GraniteSWAForCausalLM\"], \"sliding_window_pattern\": 2, "
		"\"layer_rope_theta\": [1, 2, 3, 0, 0]}",
		-ENOTSUP, "more than two bases");
	refused("{\"architectures\": [\"GraniteSWAForCausalLM\"], \"sliding_window_pattern\": 2, "
		"\"layer_rope_theta\": [1, 2]}",
		-EINVAL, "layer_rope_theta must be a list of 5");
	refused("{\"architectures\": [\"GraniteSWAForCausalLM\"], \"sliding_window_pattern\": 2, "
		"\"layer_rope_theta\": [1, 2, -1, 0, 0]}",
		-EINVAL, "layer_rope_theta[2]");
}

Test(config, alibi_takes_the_place_of_the_rotation)
{
	float slopes[12];
	accepted("{\"architectures\": [\"BloomForCausalLM\"], \"hidden_act\": \"gelu_new\"}");
	cr_expect(c.alibi_max == 8 && !c.alibi_scaled && c.layers[0].rope == LAYER_ROPE_NONE);
	c.n_heads = 12; /* eight slopes of eight heads, then every second of sixteen */
	model_config_alibi(&c, slopes);
	cr_expect(slopes[0] == 0.5f && slopes[7] == 0.00390625f);
	cr_expect_float_eq(slopes[8], exp2f(-0.5f), 1e-7);
	cr_expect_float_eq(slopes[11], exp2f(-3.5f), 1e-8);
	accepted("{\"architectures\": [\"FalconForCausalLM\"], \"alibi\": true, \"parallel_attn\": false, "
		 "\"hidden_act\": \"gelu\"}");
	cr_expect(c.alibi_max == 8 && c.alibi_scaled);
	c.n_heads = 3;
	model_config_alibi(&c, slopes); /* 2^-2 rounded, by the scale of the scores */
	cr_expect_float_eq(slopes[2], 0.25f / sqrtf((float)c.head_dim), 1e-6);
	accepted("{\"architectures\": [\"FalconForCausalLM\"], \"parallel_attn\": false, "
		 "\"hidden_act\": \"gelu\"}");
	cr_expect(c.alibi_max == 0 && c.layers[0].rope == LAYER_ROPE);
	refused("{\"architectures\": [\"MptForCausalLM\"], \"hidden_act\": \"gelu\", "
		"\"attn_config\": {\"alibi\": false}}",
		-ENOTSUP, "attn_config.alibi false is not supported");
}

Test(config, experts_and_the_shared_expert_are_added_or_averaged)
{
#define COHERE_MOE                                                                                           \
	"{\"architectures\": [\"Cohere2MoeForCausalLM\"], \"hidden_act\": \"silu\", \"rms_norm_eps\": "      \
	"null, "                                                                                             \
	"\"num_shared_experts\": 1"
	accepted(COHERE_MOE "}");
	cr_expect(c.experts.scale == 0.5f && c.experts.shared_scale == 0.5f && c.experts.normalize);
	cr_expect(c.experts.score == SCORE_SOFTMAX && c.experts.intermediate == 172);
	accepted(COHERE_MOE ", \"shared_expert_combination_strategy\": \"sum\", \"expert_selection_fn\": "
			    "\"sigmoid\", \"norm_topk_prob\": false}");
	cr_expect(c.experts.scale == 1 && c.experts.shared_scale == 0 && !c.experts.normalize);
	cr_expect(c.experts.score == SCORE_SIGMOID);
	refused(COHERE_MOE ", \"expert_selection_fn\": \"other\"}", -ENOTSUP, "expert_selection_fn other");
	refused(COHERE_MOE ", \"shared_expert_combination_strategy\": \"other\"}", -ENOTSUP,
		"shared_expert_combination_strategy other");
}

Test(config, the_width_of_a_feed_forward_layer_may_be_a_ratio)
{
	accepted("{\"architectures\": [\"GPTNeoXJapaneseForCausalLM\"], \"intermediate_size\": null, "
		 "\"intermediate_multiple_size\": 3}");
	cr_expect_eq(c.intermediate, 3 * c.hidden);
}

#define QWEN3_MOE                                                                                            \
	"{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"num_experts\": 6, \"num_experts_per_tok\": 2, "
#define GLM4_MOE                                                                                             \
	"{\"architectures\": [\"Glm4MoeForCausalLM\"], \"n_routed_experts\": 8, \"num_experts_per_tok\": "   \
	"3, "                                                                                                \
	"\"moe_intermediate_size\": 16, "

Test(config, mixtures_say_which_layers_have_experts_and_how_rows_are_routed)
{
	accepted(QWEN3_MOE "\"moe_intermediate_size\": 40, \"mlp_only_layers\": [1], "
			   "\"decoder_sparse_step\": 2, \"norm_topk_prob\": true}");
	cr_expect(c.experts.n == 6 && c.experts.n_chosen == 2 && c.experts.intermediate == 40);
	cr_expect(c.experts.normalize && c.experts.scale == 1 && c.experts.score == SCORE_SOFTMAX);
	cr_expect(!c.experts.shared && !c.experts.choice_bias && !c.experts.n_groups);
	for (int i = 0; i < 5; i++)
		cr_expect_eq(c.layers[i].sparse, i == 3, "layer %d", i);
	accepted("{\"architectures\": [\"Qwen2MoeForCausalLM\"], \"shared_expert_intermediate_size\": 88}");
	cr_expect(c.experts.n == 60 && c.experts.shared == 88 && c.experts.shared_gate && c.qkv_bias);
	cr_expect(!c.experts.normalize && c.layers[0].sparse && c.layers[4].sparse);
	accepted("{\"architectures\": [\"MixtralForCausalLM\"]}");
	cr_expect(c.experts.n == 8 && c.experts.intermediate == 172 && c.experts.normalize);
	accepted(GLM4_MOE "\"n_group\": 4, \"topk_group\": 2, \"routed_scaling_factor\": 2.5}");
	cr_expect(c.experts.score == SCORE_SIGMOID && c.experts.choice_bias && c.experts.normalize);
	cr_expect(c.experts.n_groups == 4 && c.experts.groups_chosen == 2 && c.experts.scale == 2.5f);
	cr_expect(c.experts.shared == 16 && !c.experts.shared_gate && !c.qk_norm);
	cr_expect(!c.layers[0].sparse && c.layers[1].sparse);
	accepted(GLM4_MOE "\"n_group\": 1, \"use_qk_norm\": true}");
	cr_expect(!c.experts.n_groups && c.qk_norm);
	accepted("{}");
	cr_expect(!c.experts.n && !c.layers[0].sparse);
}

Test(config, gpt_oss_has_sinks_windows_by_turns_and_clamped_gates)
{
	accepted("{\"architectures\": [\"GptOssForCausalLM\"], \"rope_theta\": 150000.0}");
	cr_expect(c.sinks && c.act == ACT_GELU_SIGMOID && c.act_limit == 7 && c.up_plus == 1);
	cr_expect(c.experts.n == 128 && c.experts.n_chosen == 4 && c.experts.intermediate == 172);
	cr_expect(c.experts.normalize && c.experts.bias && c.experts.router_bias && c.qkv_bias && c.o_bias);
	cr_expect(c.window == 128 && c.layers[0].window && !c.layers[1].window && c.layers[2].window);
	cr_expect(c.rope == ROPE_YARN && !c.yarn_truncate && c.rope_factor == 32);
	accepted("{\"architectures\": [\"GptOssForCausalLM\"], \"swiglu_limit\": 1.5, "
		 "\"quantization_config\": {\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": "
		 "[\"lm_head\"]}}");
	cr_expect(c.act_limit == 1.5f);
	refused("{\"architectures\": [\"GptOssForCausalLM\"], \"swiglu_limit\": 0}", -EINVAL, "swiglu_limit");
	accepted("{}");
	cr_expect(!c.sinks && !c.up_plus && c.act == ACT_SILU);
}

Test(config, mixtures_that_cannot_be_are_named)
{
	refused(QWEN3_MOE "\"num_experts_per_tok\": 7}", -EINVAL, "num_experts_per_tok is 7, of 6 experts");
	refused(QWEN3_MOE "\"num_experts\": 0}", -EINVAL, "num_experts");
	refused(QWEN3_MOE "\"num_experts\": 1025}", -EINVAL, "num_experts");
	refused(QWEN3_MOE "\"mlp_only_layers\": [5]}", -EINVAL,
		"mlp_only_layers[0] must be a layer, from 0 to 4");
	refused(QWEN3_MOE "\"mlp_only_layers\": 1}", -EINVAL, "mlp_only_layers must be a list");
	refused(QWEN3_MOE "\"decoder_sparse_step\": 0}", -EINVAL, "decoder_sparse_step");
	refused(GLM4_MOE "\"n_group\": 3}", -EINVAL, "n_group 3 and topk_group 1");
	refused(GLM4_MOE "\"n_group\": 4, \"topk_group\": 1}", -EINVAL, "too few are left to choose 3 from");
	refused(GLM4_MOE "\"routed_scaling_factor\": 0}", -EINVAL, "routed_scaling_factor is 0");
}

Test(config, a_mixture_is_sized_by_the_experts_that_a_row_has)
{
	accepted(QWEN3_MOE "\"moe_intermediate_size\": 40, \"head_dim\": 8, \"mlp_only_layers\": [1]}");
	/* q and o are 64 x 64, k and v 64 x 32; one dense layer of width 172; four layers of 6 experts with a
	 * router. */
	const int64_t attention = 5 * (2 * 64 * 64 + 2 * 64 * 32), dense = 3 * 64 * 172;
	cr_expect_eq(model_config_layer_weights(&c), attention + dense + 4 * (6 * 3 * 64 * 40 + 6 * 64));
	cr_expect_eq(model_config_row_macs(&c), attention + dense + 4 * (2 * 3 * 64 * 40 + 6 * 64));
	cr_expect_eq(model_config_ffn_width(&c), 172);
	accepted("{\"architectures\": [\"MixtralForCausalLM\"]}");
	cr_expect_eq(model_config_ffn_width(&c), 0);
}

Test(config, a_part_of_a_head_is_rotated_where_the_family_knows_it)
{
	accepted("{\"architectures\": [\"Phi3ForCausalLM\"], \"partial_rotary_factor\": 0.75}");
	cr_expect(c.rope_dim == 6 && c.head_dim == 8 && !c.rope_pairs);
	accepted("{\"architectures\": [\"Glm4ForCausalLM\"]}");
	cr_expect(c.head_dim == 128 && c.rope_dim == 64 && c.rope_pairs && c.qkv_bias && !c.o_bias);
	refused("{\"architectures\": [\"Phi3ForCausalLM\"], \"partial_rotary_factor\": 0.4}", -EINVAL,
		"leaves 3 of 8 values");
	refused("{\"partial_rotary_factor\": 0.5}", -ENOTSUP, "partial_rotary_factor");
}

Test(config, gemma_has_caps_scales_and_windows)
{
	accepted("{\"architectures\": [\"Gemma2ForCausalLM\"], \"hidden_size\": 96, \"head_dim\": 16,"
		 "\"torch_dtype\": \"bfloat16\", \"hidden_act\": \"gelu_pytorch_tanh\"}");
	cr_expect(c.attn_cap == 50 && c.logit_cap == 30 && c.norm_offset == 1 && c.tied);
	cr_expect_eq(c.act, ACT_GELU_TANH);
	cr_expect_eq(c.embed_scale, 9.8125f, "%g: the root of 96 in BF16", (double)c.embed_scale);
	cr_expect_eq(c.attn_scale, 1 / 16.0f);
	for (int i = 0; i < 5; i++)
		cr_expect_eq(c.layers[i].window, i % 2 ? 0 : c.window, "layer %d", i);
	accepted("{\"architectures\": [\"Gemma2ForCausalLM\"], \"attn_logit_softcapping\": null}");
	cr_expect(c.attn_cap == 0 && c.logit_cap == 30);
	refused("{\"architectures\": [\"Gemma2ForCausalLM\"], \"hidden_activation\": \"quick_gelu\"}",
		-ENOTSUP, "hidden_activation (hidden_act) quick_gelu is not supported");
	refused("{\"architectures\": [\"Gemma3ForCausalLM\"], \"use_bidirectional_attention\": true}",
		-ENOTSUP, "use_bidirectional_attention");
}

/* These classes have rules of their own for layers of which nothing says whether they have a window. */
Test(config, a_window_needs_layer_types_where_the_class_has_its_own_rule)
{
	static const char *const archs[] = {"CwmForCausalLM", "FlintForCausalLM"};
	for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
		char text[160];
		snprintf(text, sizeof text, "{\"architectures\": [\"%s\"], \"sliding_window\": 16}",
			 archs[i]);
		refused(text, -ENOTSUP, "sliding_window without layer_types is not supported for");
	}
	refused("{\"architectures\": [\"Qwen2MoeForCausalLM\"], \"use_sliding_window\": true}", -ENOTSUP,
		"without layer_types");
	accepted("{\"architectures\": [\"Qwen2MoeForCausalLM\"], \"use_sliding_window\": false}");
	cr_expect_eq(c.window, 0);
	refused("{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"use_sliding_window\": true}", -ENOTSUP,
		"use_sliding_window true is not supported for Qwen3MoeForCausalLM");
	accepted("{\"architectures\": [\"CwmForCausalLM\"], \"sliding_window\": 16, \"layer_types\": "
		 "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"full_attention\", "
		 "\"full_attention\"]}");
	cr_expect(c.layers[1].window == 16 && c.layers[0].window == 0);
}

Test(config, a_message_names_the_key_as_the_file_has_it)
{
	refused("{\"architectures\": [\"GPTJForCausalLM\"], \"model_type\": \"gptj\", \"hidden_size\": null}",
		-EINVAL, "n_embd (hidden_size) is missing");
	refused("{\"architectures\": [\"GPTJForCausalLM\"], \"model_type\": \"gptj\", \"hidden_size\": null,"
		"\"n_embd\": 0}",
		-EINVAL, "n_embd (hidden_size) is 0, must be from 1");
	refused("{\"architectures\": [\"GraniteForCausalLM\"], \"model_type\": \"granite\", "
		"\"embedding_multiplier\": 0.0}",
		-EINVAL, "config.json: embedding_multiplier is 0, must be from");
	refused("{\"rope_parameters\": 1}", -EINVAL, "rope_parameters must be an object");
	refused("{\"rope_scaling\": 1}", -EINVAL, "rope_scaling must be an object");
	refused("{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"text_config\": 1}", -EINVAL,
		"text_config must be an object");
}

Test(config, layers_with_a_window_have_a_base_of_their_own)
{
	accepted("{\"architectures\": [\"Gemma3ForCausalLM\"], \"sliding_window_pattern\": 3}");
	cr_expect(c.rope_theta == 1e6 && c.rope_local_theta == 1e4 && c.window == 4096);
	for (int i = 0; i < 5; i++)
		cr_expect((c.layers[i].window != 0) == (i != 2) &&
				  c.layers[i].rope == (i == 2 ? LAYER_ROPE : LAYER_ROPE_LOCAL),
			  "layer %d", i);
	accepted("{\"architectures\": [\"Gemma3ForCausalLM\"], \"rope_parameters\": {"
		 "\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8.0, \"rope_theta\": 2e6},"
		 "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 3e4}}}");
	cr_expect(c.rope == ROPE_LINEAR && c.rope_factor == 8 && c.rope_theta == 2e6 &&
		  c.rope_local_theta == 3e4);
	refused("{\"architectures\": [\"Gemma3ForCausalLM\"], \"rope_parameters\": {"
		"\"sliding_attention\": {\"rope_type\": \"linear\", \"factor\": 2.0}}}",
		-ENOTSUP, "rope type linear of sliding_attention");
	refused("{\"architectures\": [\"Gemma3ForCausalLM\"], \"rope_parameters\": {\"sliding_attention\": "
		"1}}",
		-EINVAL, "an object for each type of layer");
}

#define COMPASS "{\"architectures\": [\"CohereCompassForCausalLM\"]"
#define COMPASS_TYPES                                                                                        \
	COMPASS ", \"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"full_attention\", "     \
		"\"sliding_attention\", \"sliding_attention\"], \"rope_parameters\": "

Test(config, layers_of_a_type_that_rope_parameters_make_null_do_not_rotate)
{
	accepted(COMPASS_TYPES "{\"full_attention\": null, \"sliding_attention\": "
			       "{\"rope_type\": \"default\", \"rope_theta\": 3e4}}}");
	cr_expect_eq(c.rope_local_theta, 3e4);
	for (int i = 0; i < 5; i++)
		cr_expect_eq(c.layers[i].rope, i == 2 ? LAYER_ROPE_NONE : LAYER_ROPE_LOCAL, "layer %d", i);
	accepted(COMPASS_TYPES "{\"sliding_attention\": null, \"full_attention\": "
			       "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"rope_theta\": 2e4}}}");
	cr_expect(c.rope == ROPE_YARN && c.rope_theta == 2e4);
	for (int i = 0; i < 5; i++)
		cr_expect_eq(c.layers[i].rope, i == 2 ? LAYER_ROPE : LAYER_ROPE_NONE, "layer %d", i);
}

Test(config, only_layer_types_give_windows_if_the_class_knows_no_pattern)
{
	accepted(COMPASS_TYPES "{}}");
	for (int i = 0; i < 5; i++)
		cr_expect_eq(c.layers[i].window, i == 2 ? 0 : 4096, "layer %d", i);
	accepted(COMPASS ", \"sliding_window_pattern\": 3}");
	cr_expect_str_eq(c.unread, "sliding_window_pattern=3");
	for (int i = 0; i < 5; i++)
		cr_expect(c.layers[i].window == 0 && c.layers[i].rope == LAYER_ROPE, "layer %d", i);
}

#define GEMMA3_TEXT "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"model_type\": \"gemma3\", "

Test(config, of_a_model_with_other_parts_the_text_is_read)
{
	accepted(GEMMA3_TEXT
		 "\"text_config\": {\"hidden_size\": 48, \"num_hidden_layers\": 7, \"head_dim\": 32}}");
	cr_expect(c.hidden == 48 && c.n_layers == 7 && c.head_dim == 32 && c.text_only);
	cr_expect_eq(c.n_vocab, 262208,
		     "what the text leaves out has the family's default, not the value at the top");
	accepted(GEMMA3_TEXT
		 "\"text_config\": {\"text_config\": {\"hidden_size\": 32}, \"num_hidden_layers\": 2}}");
	cr_expect(c.n_layers == 2 && c.hidden == 2304);
	refused("{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"text_config\": 3}", -EINVAL,
		"text_config must be an object");
}

Test(config, the_top_decides_what_is_of_the_whole_model)
{
	accepted(GEMMA3_TEXT
		 "\"tie_word_embeddings\": false, \"dtype\": \"bfloat16\", \"eos_token_id\": [1, 106], "
		 "\"text_config\": {\"tie_word_embeddings\": true, \"dtype\": \"float32\", "
		 "\"eos_token_id\": 2, \"bos_token_id\": 7}}");
	cr_expect(!c.tied && c.dtype == CONFIG_BF16 && c.n_eos == 2 && c.eos[1] == 106 && c.bos == 7);
	accepted(GEMMA3_TEXT
		 "\"tie_word_embeddings\": null, \"text_config\": {\"tie_word_embeddings\": false}}");
	cr_expect(!c.tied);
	accepted(GEMMA3_TEXT "\"text_config\": {\"_sliding_window_pattern\": 3, \"sliding_window\": 8, "
			     "\"num_hidden_layers\": 6}}");
	cr_expect(c.tied && c.layers[1].window && !c.layers[2].window && c.layers[3].window &&
		  !c.layers[5].window);
}

Test(config, a_value_has_any_of_its_names_and_one_meaning)
{
	static const char *const names[] = {"num_experts", "num_local_experts", "n_routed_experts"};
	static const char *const archs[] = {"Qwen3MoeForCausalLM", "MixtralForCausalLM", "OlmoeForCausalLM",
					    "Glm4MoeForCausalLM", "Qwen2MoeForCausalLM"};
	char more[256];
	for (int a = 0; a < 5; a++)
		for (int i = 0; i < 3; i++) {
			snprintf(more, sizeof more, "{\"architectures\": [\"%s\"], \"%s\": 12}", archs[a],
				 names[i]);
			accepted(more);
			cr_expect_eq(c.experts.n, 12, "%s", more);
		}
	accepted("{\"architectures\": [\"MixtralForCausalLM\"], \"num_experts\": 6, \"num_local_experts\": "
		 "6}");
	cr_expect_eq(c.experts.n, 6);
	refused("{\"architectures\": [\"MixtralForCausalLM\"], \"num_experts\": 6, \"num_local_experts\": 7}",
		-EINVAL, "num_experts and num_local_experts contradict each other");
}

Test(config, a_default_of_rope_does_not_hide_what_the_file_says)
{
	accepted(
		"{\"architectures\": [\"GptOssForCausalLM\"], \"rope_parameters\": {\"rope_type\": \"yarn\", "
		"\"factor\": 4.0, \"rope_theta\": 1e4, \"original_max_position_embeddings\": 128}}");
	cr_expect(c.rope == ROPE_YARN && c.rope_factor == 4 && c.rope_original == 128 && c.rope_theta == 1e4);
	accepted("{\"architectures\": [\"GptOssForCausalLM\"], \"rope_parameters\": {\"rope_type\": "
		 "\"default\"}}");
	cr_expect_eq(c.rope, ROPE_NONE);
}

Test(config, a_value_that_is_switched_off_is_not_checked)
{
	accepted("{\"architectures\": [\"Qwen2ForCausalLM\"], \"sliding_window\": 0}");
	cr_expect_eq(c.window, 0);
	accepted("{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"sliding_window\": -1, "
		 "\"use_sliding_window\": false}");
	cr_expect_eq(c.window, 0);
	accepted("{\"architectures\": [\"Gemma2ForCausalLM\"], \"sliding_window\": 0, \"layer_types\": "
		 "[\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\", "
		 "\"full_attention\"]}");
	cr_expect_eq(c.window, 0);
	refused("{\"architectures\": [\"Qwen2ForCausalLM\"], \"sliding_window\": 0, \"use_sliding_window\": "
		"true, "
		"\"max_window_layers\": 2}",
		-EINVAL, "sliding_window is 0, must be from 1 to");
	refused("{\"architectures\": [\"MistralForCausalLM\"], \"sliding_window\": 0}", -EINVAL,
		"sliding_window is 0, must be from 1 to");
	accepted("{\"no_rope_layer_interval\": 0}");
	accepted("{\"architectures\": [\"SmolLM3ForCausalLM\"], \"no_rope_layer_interval\": 0, "
		 "\"no_rope_layers\": [1, 0, 1, 0, 1]}");
	cr_expect(c.layers[0].rope == LAYER_ROPE && c.layers[1].rope == LAYER_ROPE_NONE);
	refused("{\"architectures\": [\"SmolLM3ForCausalLM\"], \"no_rope_layer_interval\": 0}", -EINVAL,
		"no_rope_layer_interval is 0");
}

Test(config, a_refusal_names_what_is_nearest)
{
	refused("{\"architectures\": [\"Qwen3NextForCausalLM\"]}", -ENOTSUP,
		"Qwen3NextForCausalLM is not supported (nearest: Qwen3ForCausalLM, Qwen3MoeForCausalLM, "
		"Qwen3VLMoeForConditionalGeneration; all that are: docs/MODELS.md)");
	refused("{\"architectures\": null, \"model_type\": \"gemma4_text\"}", -ENOTSUP,
		"gemma4_text is not supported (nearest: Gemma2ForCausalLM, ");
	refused("{\"architectures\": [\"ZambaForCausalLM\"]}", -ENOTSUP,
		"supported (all that are: docs/MODELS.md)");
}
