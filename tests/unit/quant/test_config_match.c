/* test_config_match.c - compares a converted file's configuration with its source's: each field that affects
 * outputs. */
#include "quant/convert/config_match.h"
#include "quant/windows.h"

#include "controller/tokenizer/tokenizer.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct model_config plain(void)
{
	struct model_config c = {.arch_name = "X",
				 .n_layers = 3,
				 .hidden = 64,
				 .intermediate = 128,
				 .n_heads = 4,
				 .n_kv_heads = 2,
				 .head_dim = 16,
				 .n_vocab = 100,
				 .max_position = 256,
				 .rms_eps = 1e-6f,
				 .attn_scale = 0.25f,
				 .embed_scale = 8,
				 .experts = {.n = 4, .n_chosen = 2, .intermediate = 32, .scale = 1},
				 .rope_theta = 10000,
				 .rope_local_theta = 1000,
				 .rope_dim = 16,
				 .rope_original = 64};
	c.layers[1].rope = LAYER_ROPE_LOCAL;
	return c;
}

static const char *differs(const struct model_config *b)
{
	static struct why why;
	const struct model_config a = plain();
	why.text[0] = '\0';
	cr_expect_eq(config_match(&a, b, "a GGUF file", &why), -ENOTSUP, "nothing differs");
	return why.text;
}

#define DIFFERS(field, value, name)                                                                          \
	do {                                                                                                 \
		struct model_config other = plain();                                                         \
		other.field = value;                                                                         \
		const char *says = differs(&other);                                                          \
		cr_expect(strstr(says, name) == says, "%s: %s", #field, says);                               \
	} while (0)

Test(config_match, each_field_that_decides_an_output_is_compared)
{
	const struct model_config a = plain(), b = plain();
	struct why why = {""};
	cr_expect_eq(config_match(&a, &b, "a GGUF file", &why), 0, "%s", why.text);
	DIFFERS(n_layers, 2, "num_hidden_layers");
	DIFFERS(hidden, 65, "hidden_size");
	DIFFERS(intermediate, 1, "intermediate_size");
	DIFFERS(n_heads, 2, "num_attention_heads");
	DIFFERS(n_kv_heads, 4, "num_key_value_heads");
	DIFFERS(head_dim, 8, "head_dim");
	DIFFERS(n_vocab, 101, "vocab_size");
	DIFFERS(max_position, 128, "max_position_embeddings");
	DIFFERS(qkv_bias, true, "attention_bias");
	DIFFERS(o_bias, true, "bias of o_proj");
	DIFFERS(mlp_bias, true, "mlp_bias");
	DIFFERS(qk_norm, 1, "norms of q and k");
	DIFFERS(act, 1, "hidden_act");
	DIFFERS(head_bias, true, "bias of the head");
	DIFFERS(qk_norm_after, true, "norms of q and k after the rotation");
	DIFFERS(qk_norm_bias, true, "biases of the norms of q and k");
	DIFFERS(norm, CONFIG_NORM_LAYER, "kind of norms");
	DIFFERS(norm_bias, true, "biases of norms");
	DIFFERS(block, BLOCK_PARALLEL, "order of attention and feed-forward layer");
	DIFFERS(ffn_plain, true, "gate of the feed-forward layer");
	DIFFERS(learned, true, "learned positions");
	DIFFERS(rope_reversed, true, "direction of the rotation");
	DIFFERS(alibi_max, 8, "slopes of ALiBi");
	DIFFERS(alibi_scaled, true, "scaled slopes of ALiBi");
	DIFFERS(q_scale_floor, 64, "scale of queries by position");
	DIFFERS(q_scale_beta, 0.1f, "llama_4_scaling_beta");
	DIFFERS(logit_scale, 0.5f, "scale of the logits");
	DIFFERS(residual_scale, 0.5f, "scale of the residual");
	DIFFERS(qkv_clip, 8, "clip_qkv");
	DIFFERS(sinks, true, "attention sinks");
	DIFFERS(window, 32, "sliding_window");
	DIFFERS(rms_eps, 1e-5f, "rms_norm_eps");
	DIFFERS(act_limit, 7, "swiglu_limit");
	DIFFERS(up_plus, 1, "up + 1");
	DIFFERS(embed_scale, 9, "scale of the embedding");
	DIFFERS(attn_scale, 0.251f, "query_pre_attn_scalar");
	DIFFERS(attn_cap, 50, "attn_logit_softcapping");
	DIFFERS(logit_cap, 30, "final_logit_softcapping");
}

Test(config_match, experts_and_layers_are_compared_one_by_one)
{
	DIFFERS(experts.n, 5, "number or size of experts");
	DIFFERS(experts.n_chosen, 1, "number or size of experts");
	DIFFERS(experts.shared, 1, "shared expert");
	DIFFERS(experts.choice_bias, true, "biases of experts");
	DIFFERS(experts.n_groups, 2, "choice of experts");
	DIFFERS(experts.normalize, true, "norm_topk_prob or the scale");
	DIFFERS(experts.scale, 2, "norm_topk_prob or the scale");
	DIFFERS(layers[2].sparse, 1, "layers with experts");
	DIFFERS(layers[2].window, 1, "layers with a sliding window");
	DIFFERS(layers[2].rope, LAYER_ROPE_NONE, "layers without rotation");
	DIFFERS(rope_local_theta, 2000, "rope_theta of layers with a sliding window");
	DIFFERS(rope_theta, 20000, "scaling of RoPE");
}

Test(config_match, other_words_for_the_same_are_no_difference)
{
	const struct model_config a = plain();
	struct model_config b = plain();
	struct why why = {""};
	b.tied = true;
	b.norm_offset = 1;
	b.rope_pairs = true;
	b.dtype = CONFIG_F16;
	b.embed_scale = 8.03f; /* rounded to the checkpoint's type */
	b.rope = ROPE_LINEAR;
	b.rope_factor = 1;
	cr_expect_eq(config_match(&a, &b, "a GGUF file", &why), 0, "%s", why.text);
	b.rope_factor = 2;
	cr_expect_eq(config_match(&a, &b, "a GGUF file", &why), -ENOTSUP);
}

/* --- windows --- */

static char text_path[64];

static void put_text(const char *text, int times)
{
	strcpy(text_path, "/tmp/quern-windows-XXXXXX");
	FILE *f = fdopen(mkstemp(text_path), "w");
	for (int i = 0; i < times; i++)
		fputs(text, f);
	fclose(f);
}

/* One tokenizer begins a text with BOS, the other does not. */
Test(windows, are_the_texts_first_tokens_wherever_it_is_cut)
{
	static const char *const models[] = {"tests/golden/tokenizer/spm_bpe", "models/demo"};
	/* 16 bytes per token are encoded at first; this may end within a character. */
	static const char text[] = "\xe4\xb8\xad\xe6\x96\x87\xf0\x9f\x98\x80 Once upon a time ";
	enum { TIMES = 100, TOKENS = 64, LENGTH = 10 };
	struct why why = {""};
	char all[8192] = "";
	int with_bos = 0;
	put_text(text, TIMES);
	for (int i = 0; i < TIMES; i++)
		strcat(all, text);
	for (size_t m = 0; m < 2; m++) {
		const char *model = repofile(models[m]);
		struct windows w;
		struct tokenizer *t;
		struct token_ids ids = {0}, begin = {0};
		size_t from = 0;
		cr_assert_eq(tokenizer_load(model, &t, &why), 0, "%s", why.text);
		cr_assert_eq(tokenizer_encode(t, all, strlen(all), 0, NULL, 0, &ids, &why), 0);
		cr_assert_eq(tokenizer_encode(t, "", 0, TOKENIZER_ADD_SPECIAL, NULL, 0, &begin, &why), 0);
		const bool bos = begin.n && begin.ids[0] == tokenizer_bos(t);
		with_bos += bos;
		cr_assert_eq(windows_read(&w, model, text_path, LENGTH, TOKENS, 1 << 20, &why), 0, "%s",
			     why.text);
		cr_expect(w.n == TOKENS && w.length == LENGTH);
		for (int i = 0; i < w.n; i++)
			cr_expect_eq(w.tokens[i], bos && i % LENGTH == 0 ? begin.ids[0] : ids.ids[from++],
				     "%d", i);
		windows_fini(&w);
		cr_expect_eq(windows_read(&w, model, text_path, LENGTH, TOKENS, 3, &why), -EINVAL);
		cr_expect(strstr(why.text, "the model has 3"), "%s", why.text);
		token_ids_fini(&ids);
		token_ids_fini(&begin);
		tokenizer_free(t);
	}
	cr_expect_eq(with_bos, 1);
	unlink(text_path);
}

Test(windows, a_file_without_a_text_is_refused)
{
	struct windows w;
	struct why why = {""};
	put_text("", 1);
	cr_expect_eq(windows_read(&w, repofile("models/demo"), text_path, 10, 64, 1 << 20, &why), -EINVAL);
	cr_expect(strstr(why.text, "has no text"), "%s", why.text);
	cr_expect_null(w.tokens);
	unlink(text_path);
}
