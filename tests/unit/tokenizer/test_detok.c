/* Token ids become text, one id at a time. */
#include "controller/tokenizer/detok.h"
#include "base/utf8.h"
#include "tests/testdata.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static const char *const names[] = {
	"gpt2", "qwen", "llama3", "other", "llama2", "metaspace_first", "metaspace_always", "pieces", "demo"};
enum { N_NAMES = sizeof names / sizeof *names };

/* Push ids one by one. Every output must be valid UTF-8, and all outputs together must equal the decoded
 * text. */
static void stream(const struct tokenizer *t, const struct token_ids *ids, bool skip)
{
	struct buf whole = {0}, parts = {0};
	struct detok *d = detok_new(t, skip, false);
	tokenizer_decode(t, ids->ids, ids->n, skip, &whole);
	for (size_t i = 0; i < ids->n; i++) {
		size_t before = parts.len;
		detok_push(d, ids->ids[i], &parts);
		cr_assert_eq(utf8_valid(parts.p + before, parts.len - before), parts.len - before);
	}
	detok_flush(d, &parts);
	cr_assert(parts.len == whole.len &&
			  memcmp(parts.p ? parts.p : "", whole.p ? whole.p : "", whole.len) == 0,
		  "\"%s\" instead of \"%s\"", parts.p, whole.p);
	detok_free(d);
	buf_fini(&whole);
	buf_fini(&parts);
}

Test(detok, parts_of_texts_are_whole_and_add_up)
{
	for (int k = 0; k < N_NAMES; k++) {
		struct tokenizer *t = help_golden(names[k]);
		struct buf text = {0};
		uint64_t seed = 99;
		for (int i = 0; i < 400; i++) {
			help_random_text(&seed, &text);
			struct token_ids ids = help_encode(t, text.p, text.len, TOKENIZER_ADD_SPECIAL);
			stream(t, &ids, i % 2);
			token_ids_fini(&ids);
		}
		buf_fini(&text);
		tokenizer_free(t);
	}
}

Test(detok, parts_of_random_ids_are_whole_and_add_up)
{
	for (int k = 0; k < N_NAMES; k++) {
		struct tokenizer *t = help_golden(names[k]);
		uint64_t seed = 7;
		for (int i = 0; i < 1000; i++) {
			struct token_ids ids = {0};
			for (int n = i % 20; n >= 0; n--) {
				seed = seed * 6364136223846793005u + 1442695040888963407u;
				/* half of them single bytes: the low ids of these vocabularies */
				uint32_t all = tokenizer_n_vocab(t), of = seed >> 63 && all > 260 ? 260 : all;
				token_ids_push(&ids, (uint32_t)((seed >> 33) % of));
			}
			stream(t, &ids, i % 2);
			token_ids_fini(&ids);
		}
		tokenizer_free(t);
	}
}

Test(detok, an_emoji_is_emitted_with_its_last_byte)
{
	static const char llama[] = "\xf0\x9f\xa6\x99";
	struct tokenizer *t = help_golden("demo");
	struct token_ids ids = help_encode(t, llama, 4, 0);
	struct detok *d = detok_new(t, true, true);
	struct buf out = {0};
	cr_assert_gt(ids.n, 1);
	for (size_t i = 0; i + 1 < ids.n; i++) {
		detok_push(d, ids.ids[i], &out);
		cr_expect_eq(out.len, 0);
	}
	detok_push(d, ids.ids[ids.n - 1], &out);
	cr_expect_str_eq(out.p, llama);
	detok_free(d);
	buf_fini(&out);
	token_ids_fini(&ids);
	tokenizer_free(t);
}

Test(detok, an_unfinished_character_at_the_end_is_replaced)
{
	struct tokenizer *t = help_golden("demo");
	struct token_ids ids = help_encode(t, "a\xf0\x9f\xa6\x99", 5, 0);
	struct detok *d = detok_new(t, true, true);
	struct buf out = {0};
	for (size_t i = 0; i + 1 < ids.n; i++)
		detok_push(d, ids.ids[i], &out);
	detok_flush(d, &out);
	cr_expect_str_eq(out.p, "a\xef\xbf\xbd");
	detok_flush(d, &out);
	cr_expect_str_eq(out.p, "a\xef\xbf\xbd", "a second flush gives nothing");
	detok_free(d);
	buf_fini(&out);
	token_ids_fini(&ids);
	tokenizer_free(t);
}

Test(detok, a_run_of_fallback_bytes_is_decoded_as_a_whole)
{
	struct tokenizer *t = help_golden("llama2");
	uint32_t f0 = (uint32_t)tokenizer_id(t, "<0xF0>"), a = (uint32_t)tokenizer_id(t, "a"),
		 e2 = (uint32_t)tokenizer_id(t, "<0x41>");
	uint32_t ids[] = {e2, f0, a};
	struct detok *d = detok_new(t, true, true);
	struct buf out = {0};
	detok_push(d, ids[0], &out);
	detok_push(d, ids[1], &out);
	cr_expect_eq(out.len, 0);
	detok_push(d, ids[2], &out);
	cr_expect_str_eq(out.p, "\xef\xbf\xbd\xef\xbf\xbd"
				"a");
	detok_free(d);
	buf_fini(&out);
	tokenizer_free(t);
}

Test(detok, the_first_space_is_kept_behind_a_prompt)
{
	struct tokenizer *t = help_golden("llama2");
	struct token_ids ids = help_encode(t, "the cat", 7, 0);
	for (int continues = 0; continues < 2; continues++) {
		struct detok *d = detok_new(t, true, continues);
		struct buf out = {0};
		for (size_t i = 0; i < ids.n; i++)
			detok_push(d, ids.ids[i], &out);
		detok_flush(d, &out);
		cr_expect_str_eq(out.p, continues ? " the cat" : "the cat");
		detok_free(d);
		buf_fini(&out);
	}
	token_ids_fini(&ids);
	tokenizer_free(t);
}

Test(detok, special_tokens_can_be_skipped)
{
	struct tokenizer *t = help_golden("demo");
	struct token_ids ids = help_encode(t, "a<|im_end|>b", 12, 0);
	for (int skip = 0; skip < 2; skip++) {
		struct detok *d = detok_new(t, skip, true);
		struct buf out = {0};
		for (size_t i = 0; i < ids.n; i++)
			detok_push(d, ids.ids[i], &out);
		detok_flush(d, &out);
		cr_expect_str_eq(out.p, skip ? "ab" : "a<|im_end|>b");
		detok_free(d);
		buf_fini(&out);
	}
	token_ids_fini(&ids);
	tokenizer_free(t);
}

Test(detok, an_id_out_of_range_is_replaced)
{
	struct tokenizer *t = help_golden("demo");
	struct token_ids ids = help_encode(t, "\xf0\x9f\xa6\x99", 4, 0);
	struct detok *d = detok_new(t, true, true);
	struct buf out = {0};
	uint32_t beyond = tokenizer_n_vocab(t);
	detok_push(d, ids.ids[0], &out);
	detok_push(d, beyond, &out);
	cr_expect_str_eq(out.p, "\xef\xbf\xbd\xef\xbf\xbd");
	cr_expect_eq(tokenizer_decode(t, &beyond, 1, false, &out), -EINVAL);
	detok_free(d);
	buf_fini(&out);
	token_ids_fini(&ids);
	tokenizer_free(t);
}

Test(detok, pieces_give_the_bytes_of_tokens)
{
	struct tokenizer *t = help_golden("demo"), *l = help_golden("llama2");
	struct buf out = {0};
	struct token_ids ids = help_encode(t, "\xf0\x9f\xa6\x99 the", 8, 0);
	for (size_t i = 0; i < ids.n; i++)
		tokenizer_piece(t, ids.ids[i], &out);
	cr_expect_str_eq(out.p, "\xf0\x9f\xa6\x99 the");
	buf_clear(&out);
	tokenizer_piece(l, (uint32_t)tokenizer_id(l, "<0xE2>"), &out);
	tokenizer_piece(l, (uint32_t)tokenizer_id(l, "\xe2\x96\x81the"), &out);
	cr_expect_str_eq(out.p, "\xe2 the");
	buf_fini(&out);
	token_ids_fini(&ids);
	tokenizer_free(t);
	tokenizer_free(l);
}
