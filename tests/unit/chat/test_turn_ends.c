#include "controller/chat/turn_ends.h"
#include "tests/unit/chat/chat_help.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <string.h>

/* Return a tokenizer with these special tokens, from id 3 on. */
static struct tokenizer *tokens(const char *const *names)
{
	struct buf b = {0};
	struct tokenizer *t;
	struct why why = {""};
	buf_puts(&b, "{\"version\":\"1.0\",\"added_tokens\":[");
	for (int i = 0; names[i]; i++)
		buf_printf(&b, "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"normalized\":false}",
			   i ? "," : "", i + 3, names[i]);
	buf_puts(&b,
		 "],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
		 "true},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
		 "\"b\":1,\"c\":2},\"merges\":[]}}");
	cr_assert_eq(help_load_text(b.p, b.len, "{\"bos_token\":\"<bos>\"}", &t, &why), 0, "%s", why.text);
	buf_fini(&b);
	return t;
}

/* Expects these end ids for a template that writes `after` at the end of each message. */
static void expect(const char *after, const char *thoughts, const char *const *names, const char *want)
{
	struct why why = {""};
	char template[512], got[64] = "";
	uint32_t ids[16];
	int n = 0;
	struct chat *c;
	struct tokenizer *t = tokens(names);
	snprintf(template, sizeof template,
		 "{%% for m in messages %%}<|{{ m.role }}|>{{ m.content }}%s{%% endfor %%}", after);
	cr_assert_eq(chat_help_load(template, "<bos>", "</s>", &c, &why), 0, "%s", why.text);
	turn_ends_add(c, thoughts ? reasoning_marks_named(thoughts) : NULL, t, ids, &n, 16);
	for (int i = 0; i < n; i++)
		snprintf(got + strlen(got), sizeof got - strlen(got), "%s%u", i ? "," : "", ids[i]);
	cr_expect_str_eq(got, want, "%s: %s instead of %s", after, got, want);
	chat_free(c);
	tokenizer_free(t);
}

Test(turn_ends, the_special_token_after_a_message_ends_the_turn)
{
	static const char *const names[] = {"<bos>", "<fin>", "<|user|>", NULL};
	expect("<fin>", NULL, names, "4");
	expect("\n\n <fin>", NULL, names, "4");
	expect("", NULL, names, "5");     /* the start of the next turn */
	expect("<bos>", NULL, names, ""); /* the start of a text */
	expect("text", NULL, names, "");
}

Test(turn_ends, frames_of_an_answer_are_passed_over)
{
	static const char *const names[] = {"<|END_RESPONSE|>", "<fin>", NULL};
	expect("<|END_RESPONSE|><fin>", "cohere", names, "4");
	expect("<|END_RESPONSE|><fin>", NULL, names, "3");
}

Test(turn_ends, known_names_end_a_turn_without_a_template_that_shows_them)
{
	static const char *const names[] = {
		"<|im_end|>",   "<|eot_id|>", "<end_of_turn>", "<|endoftext|>", "<|end|>",
		"<|im_start|>", NULL};
	uint32_t ids[16] = {9};
	int n = 1;
	struct tokenizer *t = tokens(names);
	turn_ends_add(NULL, NULL, t, ids, &n, 16);
	cr_expect_eq(n, 6);
	for (int i = 1; i < n; i++)
		cr_expect(ids[i] >= 3 && ids[i] <= 7, "%u", ids[i]);
	n = 1; /* no more than the array holds */
	turn_ends_add(NULL, NULL, t, ids, &n, 3);
	cr_expect_eq(n, 3);
	tokenizer_free(t);
}

Test(turn_ends, the_end_of_one_message_of_channels_is_not_the_end_of_the_turn)
{
	static const char *const names[] = {"<|channel|>", "<|end|>", "<|return|>", "<|call|>", NULL};
	expect("<|end|>", "harmony", names, "5,6");
	expect("<|end|>", NULL, names, "5,6");
}
