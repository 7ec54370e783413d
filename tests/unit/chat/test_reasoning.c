/* Reasoning and answer do not depend on how the text is split. */
#include "controller/chat/reasoning.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void parse(const char *text, bool inside, size_t a, size_t b, size_t step, struct buf *reasoning,
		  struct buf *answer)
{
	struct reasoning r;
	size_t n = strlen(text);
	reasoning_init(&r, inside);
	for (size_t i = 0, from = 0; i <= n; i++)
		if (i == n || i == a || i == b || (step && i % step == 0)) {
			char *piece = malloc(i - from + 1);
			memcpy(piece, text + from, i - from);
			reasoning_push(&r, piece, i - from, reasoning, answer);
			free(piece);
			from = i;
		}
	reasoning_end(&r, reasoning, answer);
	reasoning_fini(&r);
}

static void expect(const char *text, bool inside, const char *reasoning, const char *answer)
{
	size_t n = strlen(text);
	for (size_t a = 0; a <= n; a++)
		for (size_t b = a; b <= n; b++) {
			struct buf t = {0}, s = {0};
			buf_puts(&t, "");
			buf_puts(&s, "");
			parse(text, inside, a, b, a == b ? a % 4 : 0, &t, &s);
			bool same = !strcmp(t.p ? t.p : "", reasoning) && !strcmp(s.p ? s.p : "", answer);
			cr_expect(same, "\"%s\" cut at %zu and %zu: reasoning \"%s\", answer \"%s\"", text, a,
				  b, t.p, s.p);
			buf_fini(&t);
			buf_fini(&s);
			if (!same)
				return;
		}
}

Test(reasoning, reasoning_precedes_the_answer)
{
	expect("<think>\nHm.\n\nSo.\n</think>\n\nYes.\n", false, "Hm.\n\nSo.", "Yes.\n");
	expect("\n<think>Hm.</think>Yes.", false, "Hm.", "Yes.");
	expect("<think>\n\n</think>\n\nYes.", false, "", "Yes.");
}

Test(reasoning, an_output_without_reasoning_is_an_answer)
{
	expect("Yes. <think>no</think>", false, "", "Yes. <think>no</think>");
	expect(" <thin", false, "", " <thin");
	expect("", false, "", "");
	expect("  ", false, "", "  ");
}

Test(reasoning, a_prompt_may_open_the_reasoning)
{
	expect("Hm.\n</think>\n\nYes.", true, "Hm.", "Yes.");
	expect("\n</think>\n\nYes.", true, "", "Yes.");
	expect("<think>\nHm.\n</think>\nYes.", true, "Hm.", "Yes.");
	expect("Hm, a <think> inside.</think>Yes.", true, "Hm, a <think> inside.", "Yes.");
}

Test(reasoning, reasoning_may_be_cut_by_the_end_of_output)
{
	expect("<think>\nHm.\nI", false, "Hm.\nI", "");
	expect("Hm. </thin", true, "Hm. </thin", "");
	expect("<think>Hm.</think>", false, "Hm.", "");
}

Test(reasoning, the_first_closing_tag_ends_the_reasoning)
{
	expect("<think>a</think>b</think>c", false, "a", "b</think>c");
}

Test(reasoning, a_tag_left_open_by_the_prompt_is_found)
{
	cr_expect(reasoning_is_open(&reasoning_usual, "<|im_start|>assistant\n<think>\n", 30));
	cr_expect_not(reasoning_is_open(&reasoning_usual, "<think>\n\n</think>\n\n", 19));
	cr_expect_not(reasoning_is_open(&reasoning_usual, "think>", 6));
	cr_expect_not(reasoning_is_open(&reasoning_usual, "", 0));
}

static bool mentions(const void *user, const char *word)
{
	return strstr(user, word);
}

Test(reasoning, families_have_marks_of_their_own)
{
	cr_expect_str_eq(reasoning_marks_of(mentions, "{{ '<think></think>' }}")->name, "qwen3");
	cr_expect_str_eq(reasoning_marks_of(mentions, "<seed:think></seed:think>")->open, "<seed:think>");
	cr_expect_null(reasoning_marks_of(mentions, "plain <|end|>"));
	cr_expect_str_eq(
		reasoning_marks_of(mentions, "'<|channel|>analysis<|message|>' + x + '<|end|>'")->name,
		"harmony");
	const struct reasoning_marks *h = reasoning_marks_named("harmony");
	cr_expect(reasoning_is_open(h, "x<|channel|>analysis<|message|>", 31));
	cr_expect_not(reasoning_is_closed(h, "x<|end|><|start|>assistant", 26));
	cr_expect(reasoning_is_closed(h, "<|channel|>final<|message|>x", 28));
	cr_expect_str_eq(reasoning_marks_of(mentions, "<|START_THINKING|>x<|END_THINKING|>")->name, "cohere");
	cr_expect_null(reasoning_marks_named("other"));
	const struct reasoning_marks *m = reasoning_marks_named("mistral");
	struct buf t = {0}, s = {0};
	struct reasoning r;
	cr_expect(reasoning_is_open(m, "x[THINK]\n", 9) && reasoning_is_closed(m, "x[/THINK]", 9));
	reasoning_init(&r, false);
	r.marks = m;
	for (const char *p = "[THINK]a <think>[/THIN[/THINK]\nb"; *p; p++)
		reasoning_push(&r, p, 1, &t, &s);
	reasoning_end(&r, &t, &s);
	cr_expect_str_eq(t.p, "a <think>[/THIN");
	cr_expect_str_eq(s.p, "b");
	reasoning_fini(&r);
	buf_fini(&t);
	buf_fini(&s);
}

Test(reasoning, what_stands_around_an_answer_is_left_out)
{
	static const struct {
		const char *text, *thought, *answer;
	} all[] = {{"<|START_THINKING|>a<|START_TEXT|><|END_THINKING|><|START_RESPONSE|>b<c<|END_RESPONSE|>",
		    "a<|START_TEXT|>", "b<c"},
		   {"<|START_THINKING|><|END_THINKING|><|START_TEXT|>b<|END_TEXT|><|START_ACTION|>[", "",
		    "b<|START_ACTION|>["},
		   {"<|START_RESPONSE|>b<|END_RESPONSE", "", "b<|END_RESPONSE"},
		   {"<<|START_TEXT|", "", "<<|START_TEXT|"}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (size_t step = 1; step < 40; step++) {
			struct buf t = {0}, s = {0};
			struct reasoning r;
			const size_t n = strlen(all[i].text);
			reasoning_init(&r, false);
			r.marks = reasoning_marks_named("cohere");
			for (size_t at = 0; at < n; at += step)
				reasoning_push(&r, all[i].text + at, at + step < n ? step : n - at, &t, &s);
			reasoning_end(&r, &t, &s);
			cr_expect_str_eq(t.p ? t.p : "", all[i].thought, "in pieces of %zu", step);
			cr_expect_str_eq(s.p ? s.p : "", all[i].answer, "in pieces of %zu", step);
			reasoning_fini(&r);
			buf_fini(&t);
			buf_fini(&s);
		}
}

/* Append n newlines. */
static void put_lines(struct buf *b, size_t n)
{
	while (n--)
		buf_putc(b, '\n');
}

static void expect_in_pieces(const struct buf *text, bool inside, size_t want_reasoning, size_t want_answer)
{
	for (size_t step = 0; step < 2000; step += step < 3 ? 1 : 333) {
		struct buf t = {0}, s = {0};
		parse(text->p, inside, text->len, text->len, step, &t, &s);
		cr_expect(t.len == want_reasoning && s.len == want_answer,
			  "in pieces of %zu: %zu and %zu bytes", step, t.len, s.len);
		buf_fini(&t);
		buf_fini(&s);
	}
}

Test(reasoning, blanks_that_are_held_back_are_bounded)
{
	struct buf text = {0}, t = {0}, s = {0};
	struct reasoning r;
	buf_puts(&text, "x");
	put_lines(&text, 1500);
	buf_puts(&text, "</think>y");
	expect_in_pieces(&text, true, 1 + 1500 - 1024, 1);
	buf_clear(&text);
	put_lines(&text, 1500);
	buf_puts(&text, "<think>x</think>y");
	expect_in_pieces(&text, false, 0, text.len);
	expect_in_pieces(&text, true, 8, 1); /* the repeated tag comes early */
	buf_clear(&text);
	put_lines(&text, 100000);
	for (int inside = 0; inside < 2; inside++) {
		reasoning_init(&r, inside);
		reasoning_push(&r, "x", inside, &t, &s);
		for (int i = 0; i < 10; i++)
			reasoning_push(&r, text.p, text.len, &t, &s);
		cr_expect(r.held.len <= 1024, "%zu bytes", r.held.len);
		reasoning_fini(&r);
	}
	buf_fini(&text);
	buf_fini(&t);
	buf_fini(&s);
}

/* Expects this split of an output for the named marks, given whole and byte by byte. */
static void expect_marked(const char *name, const char *text, const char *reasoning, const char *answer)
{
	for (size_t step = 1; step <= strlen(text); step += strlen(text) - 1) {
		struct buf t = {0}, s = {0};
		struct reasoning r;
		reasoning_init(&r, false);
		r.marks = reasoning_marks_named(name);
		cr_assert(r.marks, "%s", name);
		for (size_t i = 0; i < strlen(text); i += step)
			reasoning_push(&r, text + i, i + step > strlen(text) ? strlen(text) - i : step, &t,
				       &s);
		reasoning_end(&r, &t, &s);
		cr_expect_str_eq(t.p ? t.p : "", reasoning, "%s: %s", name, text);
		cr_expect_str_eq(s.p ? s.p : "", answer, "%s: %s", name, text);
		reasoning_fini(&r);
		buf_fini(&t);
		buf_fini(&s);
	}
}

Test(reasoning, gemma_4_apertus_and_granite_have_marks_of_their_own)
{
	expect_marked("gemma4", "<|channel>thought\nHm.\n<channel|>Yes.", "Hm.", "Yes.");
	expect_marked("gemma4", "<|channel>thought\n<channel|>Yes.", "", "Yes.");
	expect_marked("gemma4", "Yes.", "", "Yes.");
	expect_marked("granite", "Here is my thought process:\n\nHm.\n\nHere is my response:\n\nYes.", "Hm.",
		      "Yes.");
	expect_marked("apertus", "<|inner_prefix|>Hm.<|inner_suffix|>Yes.", "Hm.", "Yes.");
	expect_marked("granite", "Here is my answer.", "", "Here is my answer.");
}

/* Apriel may also mark the end of its answer. */
Test(reasoning, apriel_marks_its_reasoning_and_its_answer)
{
	expect_marked("apriel", "Here are my reasoning steps:\nHm. [1]\n[BEGIN FINAL RESPONSE]\nYes [a].",
		      "Hm. [1]", "Yes [a].");
	expect_marked("apriel",
		      "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]Yes.[END FINAL RESPONSE]",
		      "Hm.", "Yes.");
	expect_marked("apriel", "[BEGIN FINAL RESPONSE]Yes.", "", "Yes.");
	expect_marked("apriel", "Yes [BEGIN.", "", "Yes [BEGIN.");
}

Test(reasoning, a_template_s_words_name_its_marks)
{
	static const struct {
		const char *text, *name;
	} all[] = {
		{"{{ '<|channel>thought\n' + m.reasoning + '\n<channel|>' }}", "gemma4"},
		{"{%- set outer_token = '<|inner_suffix|>' -%}", "apertus"},
		{"Write your thoughts after 'Here is my thought process:' and write your response after "
		 "'Here is my response:' for each user query.",
		 "granite"},
		{"provide the final solution in the following format: [BEGIN FINAL RESPONSE] ...", "apriel"},
		{"{{ m.content.split('</think>') }} 'Here is my response:'", "qwen3"},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		cr_expect_str_eq(reasoning_marks_of(mentions, all[i].text)->name, all[i].name);
}
