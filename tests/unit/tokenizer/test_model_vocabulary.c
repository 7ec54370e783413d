/* The description of a model's tokens that workers receive. */
#include "controller/model_vocabulary.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(vocabulary, .timeout = 120);

static void expect(const struct vocabulary *v, uint32_t id, const char *text, enum vocabulary_kind kind)
{
	const size_t n = v->at[id + 1] - v->at[id];
	cr_expect(n == strlen(text) && memcmp(v->bytes + v->at[id], text, n) == 0, "token %u: \"%.*s\"", id,
		  (int)n, v->bytes + v->at[id]);
	cr_expect_eq(v->kinds[id], kind, "token %u", id);
}

/* A word, a special token, an added token that is not special, and an id without a text. */
static const char made[] =
	"{\"version\":\"1.0\",\"added_tokens\":["
	"{\"id\":3,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"
	"{\"id\":4,\"content\":\"</s>\",\"special\":true,\"normalized\":false},"
	"{\"id\":5,\"content\":\"<think>\",\"special\":false,\"normalized\":false},"
	"{\"id\":7,\"content\":\"<|call|>\",\"special\":true,\"normalized\":false}],"
	"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
	"\"decoder\":{\"type\":\"ByteLevel\"},"
	"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u0120\":1,\"\\u0120a\":2},"
	"\"merges\":[\"\\u0120 a\"]}}";

Test(vocabulary, tokens_are_their_bytes_and_special_ones_are_marked)
{
	struct tokenizer *t;
	struct why why = {""};
	struct vocabulary v = {0};
	struct model_config c = {.n_vocab = 10, .eos = {7}, .n_eos = 1};
	cr_assert_eq(help_load_text(made, strlen(made), "{\"eos_token\":\"</s>\"}", &t, &why), 0, "%s",
		     why.text);
	model_vocabulary(t, &c, &v);
	cr_assert_eq(v.n, 10);
	expect(&v, 0, "a", VOCABULARY_TEXT);
	expect(&v, 1, " ", VOCABULARY_TEXT);
	expect(&v, 2, " a", VOCABULARY_TEXT);
	expect(&v, 3, "\xff<s>\xfe", VOCABULARY_TEXT);
	expect(&v, 4, "\xff</s>\xfe", VOCABULARY_END); /* end token of the tokenizer */
	expect(&v, 5, "<think>", VOCABULARY_TEXT);
	expect(&v, 6, "", VOCABULARY_CONTROL);             /* id without a token */
	expect(&v, 7, "\xff<|call|>\xfe", VOCABULARY_END); /* end token of the model */
	expect(&v, 8, "", VOCABULARY_CONTROL);             /* the model's table is longer */
	vocabulary_fini(&v);
	tokenizer_free(t);
}

Test(vocabulary, every_token_of_a_text_has_the_bytes_that_it_stands_for)
{
	static const char text[] = "{\"name\": \"Zoë \\u00e9\", \"n\": [1, 2.5e3]}\n\t\xf0\x9f\x98\x80";
	struct tokenizer *t = help_golden("demo");
	struct model_config c = {.n_vocab = (int)tokenizer_n_vocab(t)};
	struct vocabulary v = {0};
	struct buf all = {0};
	model_vocabulary(t, &c, &v);
	struct token_ids ids = help_encode(t, text, strlen(text), 0);
	for (size_t i = 0; i < ids.n; i++) {
		uint32_t at = v.at[ids.ids[i]];
		cr_expect_eq(v.kinds[ids.ids[i]], VOCABULARY_TEXT);
		buf_put(&all, v.bytes + at, v.at[ids.ids[i] + 1] - at);
	}
	cr_expect_str_eq(all.p, text);
	free(ids.ids);
	buf_fini(&all);
	vocabulary_fini(&v);
	tokenizer_free(t);
}
