/* Outputs in the messages of harmony channels: reasoning, answers and calls do not depend on how the text is
 * split. */
#include "controller/chat/chat_stream.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(channels, .timeout = 120);

#define H(header)  "<|channel|>" header "<|message|>"
#define NEXT       "<|end|><|start|>assistant"
#define CALL(f)    H("commentary to=functions." f " <|constrain|>json")
#define THOUGHT(t) H("analysis") t NEXT

/* Return the parsed output as (reasoning) answer [name|arguments]. The text is split at a, at b and every
 * `step` bytes. */
static char *parse(const struct chat_stream_rules *rules, const char *text, size_t a, size_t b, size_t step)
{
	struct chat_stream s;
	struct buf thought = {0}, answer = {0}, calls = {0}, out = {0};
	const size_t n = strlen(text);
	bool open = false;
	chat_stream_init(&s, rules);
	for (size_t i = 0, from = 0; i <= n + 1; i++) {
		if (i == n + 1) {
			chat_stream_end(&s);
		} else if (i == n || i == a || i == b || (step && i % step == 0)) {
			char *piece = malloc(i - from + 1); /* its exact size, for the sanitizer */
			memcpy(piece, text + from, i - from);
			chat_stream_push(&s, piece, i - from);
			free(piece);
			from = i;
		}
		buf_put(&thought, s.reasoning.p, s.reasoning.len);
		buf_put(&answer, s.content.p, s.content.len);
		for (uint32_t k = 0; k < s.n_calls; k++) {
			if (s.calls[k].id[0])
				buf_printf(&calls, "%s[%s|", open ? "]" : "", s.calls[k].name.p);
			open = true;
			buf_put(&calls, s.calls[k].arguments.p, s.calls[k].arguments.len);
		}
		chat_stream_take_delta(&s);
	}
	if (thought.len)
		buf_printf(&out, "(%s)", thought.p);
	buf_put(&out, answer.p, answer.len);
	buf_put(&out, calls.p, calls.len);
	buf_puts(&out, open ? "]" : "");
	chat_stream_fini(&s);
	buf_fini(&thought);
	buf_fini(&answer);
	buf_fini(&calls);
	return buf_take(&out);
}

static void expect_by(const struct chat_stream_rules *rules, const char *text, const char *want)
{
	const size_t n = strlen(text);
	for (size_t a = 0; a <= n; a++)
		for (size_t b = a; b <= n; b++) {
			char *got = parse(rules, text, a, b, a == b ? a % 5 : 0);
			const bool same = !strcmp(got, want);
			cr_expect(same, "\"%s\" cut at %zu and %zu: \"%s\" instead of \"%s\"", text, a, b,
				  got, want);
			free(got);
			if (!same)
				return;
		}
}

static struct chat_stream_rules harmony(void)
{
	return (struct chat_stream_rules){.reasoning = true,
					  .marks = reasoning_marks_named("harmony"),
					  .show_reasoning = true,
					  .tools = TOOLS_HARMONY};
}

static void expect(const char *text, const char *want)
{
	const struct chat_stream_rules rules = harmony();
	expect_by(&rules, text, want);
}

Test(channels, thoughts_and_answers_are_told_apart)
{
	expect(THOUGHT("Hm, <so>.") H("final") "Yes <|en\n", "(Hm, <so>.)Yes <|en\n");
	expect(H("final") "Yes.<|return|>", "Yes.");
	expect(THOUGHT("a") THOUGHT("b") H("final") "c", "(a\nb)c");
	expect(H("commentary") "I look." NEXT THOUGHT("a") H("final") "c", "(a)I look.\nc");
	expect(H("analysis") "cut <|e", "(cut <|e)");
	expect(THOUGHT("") H("final") "", "");
}

Test(channels, calls_are_read_in_every_spelling)
{
	expect(THOUGHT("Hm.") CALL("f") "{\"a\": \"<|\"}<|call|>", "(Hm.)[f|{\"a\": \"<|\"}]");
	expect(CALL("f") "{\"a\": 1}", "[f|{\"a\": 1}]");
	/* A call as the template writes it, and with the recipient in the role. */
	expect(THOUGHT("Hm.") " to=functions.get-x<|channel|>commentary json<|message|>{}<|call|>",
	       "(Hm.)[get-x|{}]");
	expect(H("commentary to=functions.f ") "{}", "[f|{}]");
	expect(H("analysis to=functions.f code") "{}", "[f|{}]");
	expect(H("commentary to=other json") "{}", "[other|{}]");
	expect(H("analysis to=python code") "1 + 1", "(1 + 1)");
	expect(H("commentary") "I look." NEXT CALL("f") "{\"a\": 1}<|call|>", "I look.[f|{\"a\": 1}]");
	expect(CALL("f") "{}<|call|><|start|>assistant" CALL("g") "{\"b\": 2}<|call|>",
	       "[f|{}][g|{\"b\": 2}]");
	expect(CALL("now"), "[now|{}]");
	expect(CALL("f") "{\"a\": \"cu", "[f|{\"a\": \"cu]");
}

Test(channels, text_without_a_header_is_the_answer)
{
	expect("Yes. <b>", "Yes. <b>");
	expect("", "");
	expect("  ", "  ");
	expect("<|chan", "<|chan");
	expect("<|channel|>ana", ""); /* incomplete */
	expect(H("final") "a<|end|>b", "a\nb");
	expect(H("final") "a<|end|>\n", "a");
	expect(H("final") "a<|start|>user<|message|>b", "a\nb"); /* the end of the message is missing */
	expect("<|start|>assistant<|channel|>fin<|start|>assistant" H("final") "a", "a");
}

Test(channels, a_message_that_the_prompt_began_goes_on)
{
	struct chat_stream_rules rules = harmony();
	rules.continued = true;
	expect_by(&rules, " far", " far");
	expect_by(&rules, "to=functions.f is text", "to=functions.f is text");
	expect_by(&rules, "x" NEXT CALL("f") "{}<|call|>", "x[f|{}]");
	expect_by(&rules,
		  "<|end|>"
		  "<|start|>assistant" H("final") "y",
		  "\ny");
	static const struct {
		const char *prompt;
		enum channels_state place;
	} prompts[] = {
		{"", CHANNELS_HEADER},
		{"<|start|>user<|message|>a<|end|><|start|>assistant", CHANNELS_HEADER},
		{"<|start|>user<|message|>a<|end|>", CHANNELS_HEADER},
		{"<|start|>user<|message|>a<|end|><|start|>assistant" H("final") "so", CHANNELS_ANSWER},
		{"<|start|>assistant" H("analysis"), CHANNELS_REASONING},
		{"<|start|>assistant" H("analysis") "so", CHANNELS_REASONING},
		{"<|start|>assistant" H("final") "so<|return|>", CHANNELS_HEADER},
		{"<|start|>assistant" H("commentary") "so", CHANNELS_ANSWER},
		{"<|start|>assistant" CALL("f") "{", CHANNELS_CALL}};
	for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
		cr_expect_eq(channels_place(&channels_harmony, prompts[i].prompt, strlen(prompts[i].prompt)),
			     prompts[i].place, "%s", prompts[i].prompt);
}

Test(channels, messages_are_taken_apart_without_thoughts_and_tools)
{
	struct chat_stream_rules r = harmony();
	r.show_reasoning = false;
	expect_by(&r, THOUGHT("Hm.") H("final") "Yes.", "Yes.");
	r = harmony();
	r.reasoning = false;
	r.tools = TOOLS_NONE;
	cr_expect(chat_stream_parses(&r));
	expect_by(&r, H("final") "Yes.", "Yes.");
	r = harmony();
	r.reasoning_open = true;
	expect_by(&r, "Hm." NEXT H("final") "Yes.", "(Hm.)Yes.");
	r = harmony();
	r.forced = "f";
	expect_by(&r, "{\"a\": 1}", "[f|{\"a\": 1}]");
}

/* The input has no complete message, or nothing else. */
Test(channels, headers_are_bounded_and_the_search_is_linear)
{
	static const char *const pieces[] = {"<|channel|>", "<|start|>", "<|start|>a<|message|>b",
					     "<|end|>",     "<",         " "};
	const struct chat_stream_rules rules = harmony();
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
		struct buf b = {0};
		while (b.len < 2 << 20)
			buf_puts(&b, pieces[i]);
		char *whole = parse(&rules, b.p, b.len, b.len, 0), *parts = parse(&rules, b.p, 7, 7, 4001);
		cr_expect_str_eq(whole, parts, "%s", pieces[i]);
		free(whole);
		free(parts);
		buf_fini(&b);
	}
}
