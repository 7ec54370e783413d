/* Tool calls in a text, which must not depend on how the text is cut into pieces. */
#include "controller/chat/tools.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The output: text as it is, a call as [name|arguments]. */
struct out {
	struct buf all;
	uint32_t calls;
	bool open;
};

static void close_call(struct out *o)
{
	if (o->open)
		buf_putc(&o->all, ']');
	o->open = false;
}

static void on_text(void *user, const char *p, size_t n)
{
	struct out *o = user;
	cr_expect(n > 0);
	close_call(o);
	buf_put(&o->all, p, n);
}

static void on_begin(void *user, uint32_t call, const char *name, size_t n)
{
	struct out *o = user;
	close_call(o);
	cr_expect(call == o->calls++);
	o->open = true;
	buf_printf(&o->all, "[%.*s|", (int)n, name);
}

static void on_arguments(void *user, uint32_t call, const char *p, size_t n)
{
	struct out *o = user;
	cr_expect(o->open && call + 1 == o->calls && n > 0);
	buf_put(&o->all, p, n);
}

/* Parses the text in pieces: cut at cut_a and cut_b, and every `step` bytes if step is not 0. */
static char *parse(enum tools_style style, const char *text, size_t n, size_t cut_a, size_t cut_b,
		   size_t step)
{
	struct tools t;
	struct out o = {0};
	struct tools_sink to = {on_text, on_begin, on_arguments, &o};
	tools_init(&t, style);
	for (size_t i = 0, from = 0; i <= n; i++)
		if (i == n || i == cut_a || i == cut_b || (step && i % step == 0)) {
			/* On the heap and of its exact size, so that AddressSanitizer finds a read beyond it.
			 */
			char *piece = malloc(i - from + 1);
			memcpy(piece, text + from, i - from);
			tools_push(&t, piece, i - from, &to);
			free(piece);
			from = i;
		}
	tools_end(&t, &to);
	close_call(&o);
	cr_expect(t.n_calls == o.calls);
	tools_fini(&t);
	return buf_take(&o.all);
}

static void expect(enum tools_style style, const char *text, const char *want)
{
	size_t n = strlen(text);
	for (size_t a = 0; a <= n; a++)
		for (size_t b = a; b <= n; b += n > 120 ? 7 : 1) {
			char *got = parse(style, text, n, a, b, 0);
			bool same = !strcmp(got, want);
			cr_expect(same, "cut at %zu and %zu: \"%s\" instead of \"%s\"", a, b, got, want);
			free(got);
			if (!same)
				return;
		}
	for (size_t step = 1; step < 6; step++) {
		char *got = parse(style, text, n, n, n, step);
		cr_expect_str_eq(got, want, "in pieces of %zu", step);
		free(got);
	}
}

#define H(body) "<tool_call>\n" body "\n</tool_call>"

Test(tools, text_without_calls_is_unchanged)
{
	expect(TOOLS_HERMES, "Hello  world.\n\n  Bye \n", "Hello  world.\n\n  Bye \n");
	expect(TOOLS_HERMES, "a < b <tool <tool_cal <tool_ca", "a < b <tool <tool_cal <tool_ca");
	expect(TOOLS_HERMES, "", "");
	expect(TOOLS_NONE, H("{\"name\": \"f\"}"), H("{\"name\": \"f\"}"));
	expect(TOOLS_LLAMA3, " Hello {\"name\": \"f\", \"parameters\": {}}",
	       " Hello {\"name\": \"f\", \"parameters\": {}}");
}

Test(tools, hermes_call)
{
	expect(TOOLS_HERMES, H("{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}"),
	       "[get_weather|{\"city\": \"Paris\"}]");
	expect(TOOLS_HERMES, "Let me see.\n" H("{\"name\":\"f\",\"arguments\":{}}") "\n",
	       "Let me see.[f|{}]");
	expect(TOOLS_HERMES, H("{\"arguments\": {\"x\": [1, {\"y\": \"}]\\\"\"}]}, \"name\": \"late\"}"),
	       "[late|{\"x\": [1, {\"y\": \"}]\\\"\"}]}]");
	expect(TOOLS_HERMES, H("{\"name\": \"f\"}"), "[f|{}]");
	expect(TOOLS_HERMES, H("{\"name\": \"f\", \"arguments\": null}"), "[f|{}]");
	expect(TOOLS_HERMES,
	       H("{\"id\": 7, \"name\": \"f\", \"x\": {\"name\": \"g\"}, \"arguments\": {\"a\":1}}"),
	       "[f|{\"a\":1}]");
}

Test(tools, calls_are_numbered)
{
	expect(TOOLS_HERMES,
	       H("{\"name\": \"f\", \"arguments\": {\"a\": 1}}") "\n" H(
		       "{\"name\": \"g\", \"arguments\": {\"b\": 2}}") " and done",
	       "[f|{\"a\": 1}][g|{\"b\": 2}]and done");
}

Test(tools, arguments_may_be_json_in_a_string)
{
	expect(TOOLS_HERMES, H("{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\\"}\"}"),
	       "[f|{\"a\": \"\xc3\xa9\"}]");
	expect(TOOLS_HERMES, H("{\"name\": \"f\", \"arguments\": \"\"}"), "[f|{}]");
}

Test(tools, text_that_is_not_a_call_is_unchanged)
{
	static const char *const texts[] = {
		"Use <tool_call> to call.",
		"<tool_call>\n[1]\n</tool_call>",
		"<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>",
		"<tool_call>{\"name\": {\"x\": 1}, \"arguments\": {}}</tool_call>",
		"<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
		"<tool_call>{\"arguments\": {\"a\": 1}}</tool_call> text",
		"<tool_call>{nonsense}</tool_call>",
		"<tool_call>{\"name\" \"f\"}",
		"text \n<tool_call>\n{\"name\": \"f",
		"<tool_call>\n{\"name\": \"f\", \"argum",
		"<tool_call>",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		expect(TOOLS_HERMES, texts[i], texts[i]);
}

Test(tools, a_cut_call_keeps_its_arguments_so_far)
{
	expect(TOOLS_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Par",
	       "[f|{\"city\": \"Par]");
	expect(TOOLS_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call> more",
	       "[f|{\"a\": 1}]more");
	expect(TOOLS_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "[f|{\"a\": 1}]");
	expect(TOOLS_HERMES,
	       "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n<tool_call>\n{\"name\": \"g\", "
	       "\"arguments\": {}}",
	       "[f|{}][g|{}]");
}

Test(tools, llama3_call)
{
	expect(TOOLS_LLAMA3, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", "[f|{\"x\": 1}]");
	expect(TOOLS_LLAMA3,
	       "\n <|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"x\": 1}}",
	       "[f|{\"x\": 1}]");
	expect(TOOLS_LLAMA3,
	       "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"arguments\": {\"y\": true}}\n",
	       "[f|{}][g|{\"y\": true}]");
}

Test(tools, an_answer_in_json_is_not_a_llama3_call)
{
	expect(TOOLS_LLAMA3, "{\"name\": \"Alice\", \"age\": 3}", "{\"name\": \"Alice\", \"age\": 3}");
	expect(TOOLS_LLAMA3, " {\"a\": [1, 2]} and so on", " {\"a\": [1, 2]} and so on");
	expect(TOOLS_LLAMA3, "{ is a brace", "{ is a brace");
	expect(TOOLS_LLAMA3, "<|python_tag|>print(1)", "<|python_tag|>print(1)");
}

Test(tools, nesting_and_number_of_calls_are_bounded)
{
	struct buf b = {0};
	buf_puts(&b, "<tool_call>{\"name\": \"f\", \"x\": ");
	for (int i = 0; i < 100000; i++)
		buf_putc(&b, '[');
	char *got = parse(TOOLS_HERMES, b.p, b.len, 0, 0, 0);
	cr_expect_str_eq(got, b.p);
	free(got);
	buf_clear(&b);
	for (int i = 0; i < TOOLS_CALLS_MAX + 1; i++)
		buf_puts(&b, "<tool_call>{\"name\": \"f\"}</tool_call>");
	got = parse(TOOLS_HERMES, b.p, b.len, 0, 0, 0);
	cr_expect_not_null(strstr(got, "][f|{}]<tool_call>{\"name\": \"f\"}</tool_call>"));
	free(got);
	buf_fini(&b);
}

Test(tools, styles_are_parsed_by_name)
{
	enum tools_style s;
	cr_expect(tools_style_parse("hermes", &s) == 0 && s == TOOLS_HERMES);
	cr_expect(tools_style_parse("xml", &s) < 0);
}
