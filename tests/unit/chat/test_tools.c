/* Tool calls in a text are found regardless of how the text is split. */
#include "controller/chat/tools.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* The parsed output: text unchanged, a call as [name|arguments]. */
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

/* The argument types that the request declares; NULL for none. */
static json_t *types;

/* Parses the text in chunks: split at cut_a and cut_b, and every `step` bytes if step is not 0. */
static char *parse(enum tools_style style, const char *text, size_t n, size_t cut_a, size_t cut_b,
		   size_t step)
{
	struct tools t;
	struct out o = {0};
	struct tools_sink to = {on_text, on_begin, on_arguments, &o};
	tools_init(&t, style, types);
	for (size_t i = 0, from = 0; i <= n; i++)
		if (i == n || i == cut_a || i == cut_b || (step && i % step == 0)) {
			/* A heap copy of the exact size lets AddressSanitizer find a read past the end. */
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
		for (size_t b = a; b <= n; b++) {
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

#define VALUE "<tool_call>\n<function=f>\n<parameter=a>\n"
#define NEXT  "<tool_call>\n<function=g>\n<parameter=b>\ny\n</parameter>\n</function>\n</tool_call>"

Test(tools, a_value_without_its_end_swallows_no_later_call)
{
	expect(TOOLS_QWEN3_CODER, VALUE "x\n</function>\n</tool_call>\n" NEXT,
	       "[f|{\"a\": \"x\"}][g|{\"b\": \"y\"}]");
	expect(TOOLS_QWEN3_CODER, VALUE "1</function></tool_call>" NEXT, "[f|{\"a\": 1}][g|{\"b\": \"y\"}]");
	expect(TOOLS_QWEN3_CODER, VALUE "x</function> </function\n</parameter>\n</function>\n</tool_call>",
	       "[f|{\"a\": \"x</function> </function\"}]");
	expect(TOOLS_GLM45,
	       "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</tool_call>\n<tool_call>g\n</tool_call>",
	       "[f|{\"a\": \"x\"}][g|{}]");
	expect(TOOLS_MINIMAX_M2,
	       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">x</invoke>\n<invoke "
	       "name=\"g\">\n</invoke>\n"
	       "</minimax:tool_call>",
	       "[f|{\"a\": \"x\"}][g|{}]");
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
	for (int i = 0; i < TOOLS_N_STYLES; i++) {
		const struct tools_format *f = tools_format((enum tools_style)i);
		cr_expect(i == TOOLS_NONE || strstr(tools_style_names(), f->name));
		cr_expect(tools_style_parse(f ? f->name : "none", &s) == 0 && (int)s == i);
	}
}

/* ---- the other formats ---- */

Test(tools, python_calls)
{
	expect(TOOLS_PYTHONIC, "[get_weather(city=\"Paris\", days=3), g()]",
	       "[get_weather|{\"city\": \"Paris\", \"days\": 3}][g|{}]");
	expect(TOOLS_PYTHONIC,
	       "<|python_start|>[f(a=True, b=None, c=[1, (2, -.5e1)], d={'k': 'it\\'s "
	       "\\u00e9\"'},)]<|python_end|>",
	       "[f|{\"a\": true, \"b\": null, \"c\": \"[1, (2, -.5e1)]\", \"d\": {\"k\": \"it's "
	       "\xc3\xa9\\\"\"}}]");
	expect(TOOLS_PYTHONIC, "[f(x=(1, 2), y=[ ], z=g(3))] and",
	       "[f|{\"x\": [1, 2], \"y\": [], \"z\": \"g(3)\"}]and");
	expect(TOOLS_LFM2, "Sure. <|tool_call_start|>[f(q='x, y)', n = 1e3)]<|tool_call_end|>ok",
	       "Sure.[f|{\"q\": \"x, y)\", \"n\": 1e3}]ok");
	static const char *const texts[] = {"[1, 2, 3]", "[link](https://x)", "[f(1)]", "[f", "[f(", "[f(a",
					    "["};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		expect(TOOLS_PYTHONIC, texts[i], texts[i]);
	expect(TOOLS_PYTHONIC, "[f(a=\"cut", "[f|{\"a\": ]");
}

Test(tools, arguments_are_whole_where_a_call_breaks_off)
{
	expect(TOOLS_PYTHONIC, "[f(a=1, 2)]", "[f|{\"a\": 1}], 2)]");
	expect(TOOLS_PYTHONIC, "[f(a=1] and", "[f|{\"a\": 1}]and");
	expect(TOOLS_GLM45, "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key>x",
	       "[f|{\"a\": 1}]x");
	expect(TOOLS_QWEN3_CODER, "<function=f>\n<parameter=a>1</parameter><parameter=></parameter>",
	       "[f|{\"a\": \"1</parameter><parameter=>\"}]");
}

Test(tools, integers_of_any_size_are_numbers)
{
	expect(TOOLS_PYTHONIC, "[f(a=12345678901234567890123)]", "[f|{\"a\": 12345678901234567890123}]");
	expect(TOOLS_QWEN3_CODER, "<function=f><parameter=a>12345678901234567890123</parameter></function>",
	       "[f|{\"a\": 12345678901234567890123}]");
}

/* Every format that parses the name separately accepts the names that a request may declare. */
Test(tools, names_may_begin_with_a_digit)
{
	expect(TOOLS_QWEN3_CODER, "<tool_call>\n<function=2fa>\n</function>\n</tool_call>", "[2fa|{}]");
	expect(TOOLS_MISTRAL, "[TOOL_CALLS]3d-view[ARGS]{}", "[3d-view|{}]");
	expect(TOOLS_KIMI_K2, "<|tool_call_begin|>functions.2fa:0<|tool_call_argument_begin|>{}", "[2fa|{}]");
}

Test(tools, keys_of_any_length_up_to_the_most_are_read_in_any_pieces)
{
	char text[512], want[512], key[300];
	for (int n = 250; n <= 256; n += 6) {
		memset(key, 'k', (size_t)n);
		key[n] = 0;
		snprintf(text, sizeof text, "<tool_call>f<arg_key>%s</arg_key><arg_value>1</arg_value>", key);
		snprintf(want, sizeof want, "[f|{\"%s\": 1]", key);
		char *whole = parse(TOOLS_GLM45, text, strlen(text), 0, 0, 0);
		char *bytes = parse(TOOLS_GLM45, text, strlen(text), 0, 0, 1);
		/* Without its end, only a stop text closes the call. */
		cr_expect(!strncmp(whole, want, strlen(want) - 1), "%s", whole);
		cr_expect_str_eq(bytes, whole);
		free(whole);
		free(bytes);
	}
}

/* In these texts every chunk starts like a call but is none. A quadratic search would exceed the limit of
 * processor time, and the process would be killed. */
Test(tools, the_search_for_calls_is_linear)
{
	static const struct {
		enum tools_style style;
		const char *piece;
		size_t each; /* bytes per push; 0: all at once */
	} all[] = {
		{TOOLS_QWEN3_CODER, "<tool_call>", 0},
		{TOOLS_QWEN3_CODER, "<function=", 0},
		{TOOLS_GLM45, "<tool_call>f<arg_key>", 0},
		{TOOLS_HERMES, "        ", 8},
		{TOOLS_LLAMA3, "        ", 8},
	};
	const struct rlimit cpu = {20, 20};
	cr_assert_eq(setrlimit(RLIMIT_CPU, &cpu), 0);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct buf b = {0};
		while (b.len < 4 << 20)
			buf_puts(&b, all[i].piece);
		char *got = parse(all[i].style, b.p, b.len, b.len, b.len, all[i].each);
		cr_expect(!strcmp(got, b.p), "%s", all[i].piece);
		free(got);
		buf_fini(&b);
	}
}

/* Linear time also holds for values that consist of possible ends. */
Test(tools, the_search_for_the_end_of_a_value_is_linear)
{
	static const char blanks[] = "                                                            ";
	struct buf name = {0};
	for (int i = 0; i < 1000; i++)
		buf_putc(&name, 'n');
	const char *const pieces[] = {"</parameter>", "</parameter>\n<parameter=key",
				      "</parameter>\n</function>",
				      "</function>\n</tool_call>\n<tool_call>\n<function=", "\n"};
	const struct rlimit cpu = {20, 20};
	cr_assert_eq(setrlimit(RLIMIT_CPU, &cpu), 0);
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
		for (size_t each = 0; each <= 8; each += 8) {
			struct buf b = {0};
			buf_puts(&b, "<tool_call>\n<function=f>\n<parameter=text>\n");
			while (b.len < 1 << 20)
				buf_printf(&b, "%s%s%s", pieces[i], blanks, name.p);
			char *got = parse(TOOLS_QWEN3_CODER, b.p, b.len, b.len, b.len, each);
			cr_expect(!strncmp(got, "[f|", 3), "%s", pieces[i]);
			free(got);
			buf_fini(&b);
		}
	buf_fini(&name);
}

Test(tools, many_blanks_before_a_call_do_not_depend_on_pieces)
{
	struct buf b = {0};
	for (int i = 0; i < 3000; i++)
		buf_putc(&b, '\n');
	buf_puts(&b, "<tool_call>{\"name\": \"f\"}</tool_call>");
	char *whole = parse(TOOLS_HERMES, b.p, b.len, 0, 0, 0);
	char *pieces = parse(TOOLS_HERMES, b.p, b.len, 0, 0, 7);
	cr_expect_str_eq(pieces, whole);
	cr_expect_not_null(strstr(whole, "[f|{}]"));
	free(whole);
	free(pieces);
	buf_fini(&b);
}

static const char declared[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
	"\"properties\": {\"text\": {\"type\": \"string\"}, \"maybe\": {\"type\": [\"string\", \"null\"]}, "
	"\"n\": {\"type\": \"integer\"}, "
	"\"opt\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}, "
	"\"both\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"integer\"}]}, "
	"\"level\": {\"enum\": [\"1\", \"2\"]}, \"unset\": {\"enum\": [\"1\", null]}, \"yes\": {\"const\": "
	"\"true\"}, "
	"\"mixed\": {\"enum\": [\"1\", 2]}}}}}]";

static void load_types(void)
{
	types = json_loads(declared, 0, NULL);
	cr_assert(types);
}

static void free_types(void)
{
	json_decref(types);
	types = NULL;
}

TestSuite(tools_pairs, .init = load_types, .fini = free_types);

#define QC(args) "<tool_call>\n<function=f>\n" args "</function>\n</tool_call>"

Test(tools_pairs, values_have_the_types_that_are_declared)
{
	expect(TOOLS_QWEN3_CODER,
	       "I look.\n" QC("<parameter=text>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n"
			      "<parameter=maybe>\nnull\n</parameter>\n"),
	       "I look.[f|{\"text\": \"12\", \"n\": 12, \"maybe\": null}]");
	expect(TOOLS_QWEN3_CODER,
	       QC("<parameter=maybe>\n7\n</parameter>\n<parameter=n>\nmany\n</parameter>\n"
		  "<parameter=other>{\"a\": [True]}</parameter>\n<parameter=flag>True</parameter>\n"),
	       "[f|{\"maybe\": \"7\", \"n\": \"many\", \"other\": {\"a\": [true]}, \"flag\": true}]");
	expect(TOOLS_QWEN3_CODER,
	       QC("<parameter=opt>12</parameter><parameter=opt>null</parameter>"
		  "<parameter=both>12</parameter>"),
	       "[f|{\"opt\": \"12\", \"opt\": null, \"both\": 12}]");
	expect(TOOLS_QWEN3_CODER,
	       QC("<parameter=level>1</parameter><parameter=yes>true</parameter><parameter=unset>1</"
		  "parameter>"
		  "<parameter=unset>null</parameter><parameter=mixed>1</parameter>"),
	       "[f|{\"level\": \"1\", \"yes\": \"true\", \"unset\": \"1\", \"unset\": null, \"mixed\": 1}]");
}

Test(tools_pairs, text_keeps_its_lines)
{
	expect(TOOLS_QWEN3_CODER, QC("<parameter=text>\nif a < b:\n\tprint(\"</para\")\n\n</parameter>\n"),
	       "[f|{\"text\": \"if a < b:\\n\\tprint(\\\"</para\\\")\\n\"}]");
	expect(TOOLS_QWEN3_CODER, QC("<parameter=text>\n\n</parameter>\n"), "[f|{\"text\": \"\"}]");
	expect(TOOLS_QWEN3_CODER, QC("<parameter=text></parameter>\n"), "[f|{\"text\": \"\"}]");
}

Test(tools_pairs, calls_without_pairs_or_with_more_calls)
{
	expect(TOOLS_QWEN3_CODER, QC(""), "[f|{}]");
	expect(TOOLS_QWEN3_CODER, QC("") "\n" QC("<parameter=n>1</parameter>") "end",
	       "[f|{}][f|{\"n\": 1}]end");
	expect(TOOLS_QWEN3_CODER, "<function=f>\n<parameter=n>1</parameter>\n</function>", "[f|{\"n\": 1}]");
	expect(TOOLS_SEED_OSS,
	       "<seed:tool_call>\n<function=f>\n<parameter=n>1</parameter>\n</function>\n</seed:tool_call>",
	       "[f|{\"n\": 1}]");
	expect(TOOLS_MINIMAX_M2,
	       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"text\">a</parameter>\n</invoke>\n"
	       "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
	       "[f|{\"text\": \"a\"}][g|{}]");
	expect(TOOLS_GLM45,
	       "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>true</arg_value>\n<arg_key>n</arg_key>\n"
	       "<arg_value>[1]</arg_value>\n</tool_call>",
	       "[f|{\"text\": \"true\", \"n\": [1]}]");
	expect(TOOLS_GLM45, "<tool_call>f</tool_call>", "[f|{}]");
}

#define BAR "\xef\xbd\x9c"
#define ML  BAR "DSML" BAR

#define SEED(args) "<seed:tool_call>\n<function=f>\n" args "</function>\n</seed:tool_call>"
#define MINI(args) "<minimax:tool_call>\n<invoke name=\"f\">\n" args "</invoke>\n</minimax:tool_call>"
#define GLM(args)  "<tool_call>f\n" args "</tool_call>"
#define DEEP(args)                                                                                           \
	"<" ML "function_calls>\n<" ML "invoke name=\"f\">\n" args "</" ML "invoke>\n</" ML "function_"      \
	"calls>"

#define QP(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define SP(key, value) "<parameter=" key ">" value "</parameter>\n"
#define MP(key, value) "<parameter name=\"" key "\">" value "</parameter>\n"
#define GP(key, value) "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"
#define DP(key, value) "<" ML "parameter name=\"" key "\" string=\"true\">" value "</" ML "parameter>\n"

/* A format's tag is data if the format does not allow the text that comes after it. */
Test(tools_pairs, tags_within_a_value_are_its_text)
{
	static const struct {
		enum tools_style style;
		const char *call, *want;
	} all[] = {
		{TOOLS_QWEN3_CODER, QC(QP("text", "a </parameter> b") QP("maybe", "z")),
		 "{\"text\": \"a </parameter> b\", \"maybe\": \"z\"}"},
		{TOOLS_QWEN3_CODER, QC(QP("text", "</parameter>\n</parameter>") QP("n", "1")),
		 "{\"text\": \"</parameter>\\n</parameter>\", \"n\": 1}"},
		{TOOLS_QWEN3_CODER, QC(QP("text", "</parameter>\n<parameter=\n</parameter><parameter=>")),
		 "{\"text\": \"</parameter>\\n<parameter=\\n</parameter><parameter=>\"}"},
		{TOOLS_QWEN3_CODER, QC(QP("text", "</parameter>\n</function>\n") QP("n", "1")),
		 "{\"text\": \"</parameter>\\n</function>\\n\", \"n\": 1}"},
		{TOOLS_QWEN3_CODER, QC(QP("text", "<parameter=n>\n1") QP("n", "1")),
		 "{\"text\": \"<parameter=n>\\n1\", \"n\": 1}"},
		{TOOLS_QWEN3_CODER, QC(QP("text", "</function>\n</tool_call> b") QP("n", "1")),
		 "{\"text\": \"</function>\\n</tool_call> b\", \"n\": 1}"},
		{TOOLS_QWEN3_CODER, QC(QP("text", "</function></tool_call><tool_call>\n<function>")),
		 "{\"text\": \"</function></tool_call><tool_call>\\n<function>\"}"},
		{TOOLS_QWEN3_CODER, QC(QP("tags", "[\"</parameter>\", 1]")),
		 "{\"tags\": [\"</parameter>\", 1]}"},
		{TOOLS_SEED_OSS, SEED(SP("text", "a </parameter> b</function>") SP("n", "1")),
		 "{\"text\": \"a </parameter> b</function>\", \"n\": 1}"},
		{TOOLS_SEED_OSS, SEED(SP("text", "</parameter><parameter=")),
		 "{\"text\": \"</parameter><parameter=\"}"},
		{TOOLS_SEED_OSS, SEED(SP("text", "</parameter></function>x</seed:tool_call>")),
		 "{\"text\": \"</parameter></function>x</seed:tool_call>\"}"},
		{TOOLS_MINIMAX_M2, MINI(MP("text", "<a></parameter></a>") MP("n", "1")),
		 "{\"text\": \"<a></parameter></a>\", \"n\": 1}"},
		{TOOLS_MINIMAX_M2, MINI(MP("text", "</invoke>\n<invoke name=\"x")),
		 "{\"text\": \"</invoke>\\n<invoke name=\\\"x\"}"},
		{TOOLS_GLM45, GLM(GP("text", "p </arg_value> q") GP("maybe", "r </tool_call> s")),
		 "{\"text\": \"p </arg_value> q\", \"maybe\": \"r </tool_call> s\"}"},
		{TOOLS_GLM45, GLM(GP("text", "</arg_value><arg_key></arg_value>")),
		 "{\"text\": \"</arg_value><arg_key></arg_value>\"}"},
		{TOOLS_GLM45, GLM(GP("text", "</tool_call><tool_call>") GP("n", "1")),
		 "{\"text\": \"</tool_call><tool_call>\", \"n\": 1}"},
		{TOOLS_DEEPSEEK_V32, DEEP(DP("text", "p </" ML "parameter> q") DP("maybe", "z")),
		 "{\"text\": \"p </" ML "parameter> q\", \"maybe\": \"z\"}"},
		{TOOLS_DEEPSEEK_V32, DEEP(DP("text", "</" ML "parameter></" ML "invoke> q")),
		 "{\"text\": \"</" ML "parameter></" ML "invoke> q\"}"},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		char want[256];
		snprintf(want, sizeof want, "[f|%s]", all[i].want);
		expect(all[i].style, all[i].call, want);
	}
}

Test(tools_pairs, newlines_belong_to_a_value_where_templates_write_none)
{
	expect(TOOLS_SEED_OSS, SEED(SP("text", "\n  a\n") SP("maybe", "\n")),
	       "[f|{\"text\": \"\\n  a\\n\", \"maybe\": \"\\n\"}]");
	expect(TOOLS_MINIMAX_M2, MINI(MP("text", "\n  a\n") MP("n", "\n1\n")),
	       "[f|{\"text\": \"\\n  a\\n\", \"n\": 1}]");
	expect(TOOLS_GLM45, GLM(GP("text", "\n a\n")), "[f|{\"text\": \"\\n a\\n\"}]");
	expect(TOOLS_DEEPSEEK_V32, DEEP(DP("text", "\n a\n")), "[f|{\"text\": \"\\n a\\n\"}]");
	expect(TOOLS_QWEN3_CODER, QC(QP("text", "\n a\n")), "[f|{\"text\": \"\\n a\\n\"}]");
}

/* A stop text or the model ended the output before the format was complete. */
Test(tools_pairs, the_end_of_the_output_ends_a_value_behind_its_tag)
{
	expect(TOOLS_QWEN3_CODER, "<tool_call>\n<function=f>\n<parameter=text>\na\n</parameter>",
	       "[f|{\"text\": \"a\"}]");
	expect(TOOLS_QWEN3_CODER,
	       "<tool_call>\n<function=f>\n<parameter=text>\na\n</parameter>\n</function>\n",
	       "[f|{\"text\": \"a\"}]");
	expect(TOOLS_QWEN3_CODER, "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n<parameter=te",
	       "[f|{\"n\": 1]");
	expect(TOOLS_QWEN3_CODER, "<tool_call>\n<function=f>\n<parameter=text>\na\n</function>\n",
	       "[f|{\"text\": \"a\"}]");
	expect(TOOLS_QWEN3_CODER, "<tool_call>\n<function=f>\n<parameter=text>\na\n</para",
	       "[f|{\"text\": \"a]");
}

Test(tools_pairs, what_is_not_a_call_is_text)
{
	static const char *const texts[] = {"<tool_call>\n<function>f",
					    "<tool_call>\n<function=f>\ntext",
					    "<tool_call>\n<function=\"f\">\n</function>",
					    "<function=",
					    "<tool_call>\n<function=f>\n<parameter=",
					    "<tool_call>\n<function=f>\n<parameter=></parameter>"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		expect(TOOLS_QWEN3_CODER, texts[i], texts[i]);
	expect(TOOLS_GLM45, "<tool_call>hello world</tool_call>", "<tool_call>hello world</tool_call>");
	expect(TOOLS_QWEN3_CODER, QC("<parameter=n>1</parameter>\nand text "),
	       "[f|{\"n\": \"1</parameter>\\nand text \"}]");
	expect(TOOLS_QWEN3_CODER, "<function=f>\n<parameter=text>\ncut", "[f|{\"text\": \"cut]");
}

#define GAP      "\xe2\x96\x81"
#define D1(a, b) "<" BAR "tool" GAP a GAP b BAR ">"
#define DSEP     "<" BAR "tool" GAP "sep" BAR ">"

Test(tools, deepseek_calls)
{
	expect(TOOLS_DEEPSEEK_V3,
	       "Yes.\n\n" D1("calls", "begin")
		       D1("call", "begin") "function" DSEP "f\n```json\n{\"a\": \"```\"}\n```" D1(
			       "call", "end") "\n" D1("call", "begin") "function" DSEP
								       "g\n```json\n{}\n```" D1("call", "end")
									       D1("calls", "end"),
	       "Yes.[f|{\"a\": \"```\"}][g|{}]");
	expect(TOOLS_DEEPSEEK_V31,
	       D1("calls", "begin") D1("call", "begin") "f" DSEP "{\"a\": 1}" D1("call", "end")
		       D1("call", "begin") "g" DSEP "{}" D1("call", "end") D1("calls", "end") "x",
	       "[f|{\"a\": 1}][g|{}]x");
	expect(TOOLS_DEEPSEEK_V31, D1("calls", "begin") D1("call", "begin") "f" DSEP "no",
	       D1("calls", "begin") D1("call", "begin") "f" DSEP "no");
	expect(TOOLS_DEEPSEEK_V32,
	       "<" ML "function_calls>\n<" ML "invoke name=\"f\">\n<" ML
	       "parameter name=\"a\" string=\"true\">12</" ML "parameter>\n<" ML
	       "parameter name=\"b\" string=\"false\">[1, 2]</" ML "parameter>\n</" ML "invoke>\n<" ML
	       "invoke name=\"g\">\n</" ML "invoke>\n</" ML "function_calls>",
	       "[f|{\"a\": \"12\", \"b\": [1, 2]}][g|{}]");
}

Test(tools, calls_in_lists_and_behind_ids)
{
	expect(TOOLS_KIMI_K2,
	       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"
	       "\"a\": 1}"
	       "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_"
	       "end|>"
	       "<|tool_calls_section_end|>",
	       "[f|{\"a\": 1}][g|{}]");
	expect(TOOLS_MISTRAL,
	       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"x\"}, {\"name\": \"g\", "
	       "\"arguments\": {}}]",
	       "[f|{\"a\": 1}][g|{}]");
	expect(TOOLS_MISTRAL, "Hm. [TOOL_CALLS]f[CALL_ID]abc123[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}",
	       "Hm.[f|{\"a\": 1}][g|{}]");
	expect(TOOLS_MISTRAL, "[TOOL_CALLS]f{\"a\": 1}", "[f|{\"a\": 1}]");
	expect(TOOLS_GRANITE,
	       "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\"}]",
	       "[f|{\"a\": 1}][g|{}]");
	expect(TOOLS_PHI4, "<|tool_call|>[{\"name\": \"f\", \"parameters\": {\"a\": 1}}]<|/tool_call|>",
	       "[f|{\"a\": 1}]");
	expect(TOOLS_COHERE,
	       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
	       "{\"a\": 1}}\n]"
	       "<|END_ACTION|>",
	       "[f|{\"a\": 1}]");
	expect(TOOLS_HARMONY,
	       "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
	       "[f|{\"a\": 1}]");
	expect(TOOLS_GEMMA4,
	       "<|tool_call>call:f{city:<|\"|>Paris, \"the\" "
	       "{city}<|\"|>,n:3,ok:true,o:{k:<|\"|>v<|\"|>,l:[1,2]}}"
	       "<tool_call|><|tool_call>call:g{}<tool_call|>",
	       "[f|{\"city\": \"Paris, \\\"the\\\" {city}\", \"n\": 3, \"ok\": true, \"o\": {\"k\": \"v\", "
	       "\"l\": [1, 2]}}][g|{}]");
	expect(TOOLS_GEMMA4,
	       "<|tool_call>call:f{a:<|\"|>x <|\"|>y<|\"|> z<|\"|>,b:[<|\"|><|\"|><|\"|> ,1]}<tool_call|>",
	       "[f|{\"a\": \"x <|\\\"|>y<|\\\"|> z\", \"b\": [\"<|\\\"|>\", 1]}]");
}
