/* Structured output for calls: the parser reads accepted texts as calls of declared tools with arguments that
 * match their schemas, and the grammar accepts the calls that templates write. */
#include "controller/chat/reasoning_grammar.h"
#include "controller/chat/tools.h"
#include "controller/chat/tools_grammar.h"
#include "grammar/grammar.h"
#include "grammar/source.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(tools_grammar, .timeout = 120);

static const char tools_text[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"strict\": true, \"parameters\":"
	" {\"type\": \"object\", \"properties\": {"
	"  \"city\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 9},"
	"  \"unit\": {\"type\": \"string\", \"enum\": [\"celsius\", \"fahrenheit\"]},"
	"  \"days\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 30},"
	"  \"note\": {\"type\": [\"string\", \"null\"]},"
	"  \"level\": {\"enum\": [\"1\", \"true\"]}},"
	" \"required\": [\"city\", \"days\"], \"additionalProperties\": false}}},"
	"{\"type\": \"function\", \"function\": {\"name\": \"list-2\", \"parameters\":"
	" {\"properties\": {\"of\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/i\"}, "
	"\"maxItems\": 3},"
	"  \"on\": {\"type\": \"boolean\"}}, \"additionalProperties\": false,"
	"  \"$defs\": {\"i\": {\"enum\": [\"a\\\"b\", 1.5, true, null]}}}}},"
	"{\"type\": \"function\", \"function\": {\"name\": \"now\"}}]";

static json_t *parsed(const char *text)
{
	json_t *v = json_loads(text, 0, NULL);
	cr_assert_not_null(v);
	return v;
}

/* ---- special tokens: marks that are single tokens in models ---- */

static bool is_mark(const void *user, const char *p, size_t n)
{
	(void)user;
	return (n > 4 && !memcmp(p, "<|", 2) && p[n - 1] == '>') ||
	       (n > 6 && !memcmp(p, "<\xef\xbd\x9c", 4) && p[n - 1] == '>' && !memchr(p + 1, '<', n - 1)) ||
	       (n == 12 && !memcmp(p, "[TOOL_CALLS]", 12)) || (n == 6 && !memcmp(p, "[ARGS]", 6)) ||
	       (n == 11 && !memcmp(p, "<tool_call>", 11));
}

/* Return the text without the bytes that enclose special tokens. */
static char *plain(const char *p, size_t n, size_t *out_n)
{
	char *out = malloc(n + 1);
	*out_n = 0;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] < 0xfe)
			out[(*out_n)++] = p[i];
	out[*out_n] = '\0';
	return out;
}

/* ---- the calls in an output ---- */

struct calls {
	struct buf text, names[TOOLS_CALLS_MAX], arguments[TOOLS_CALLS_MAX];
	uint32_t n;
};

static void on_text(void *user, const char *p, size_t n)
{
	buf_put(&((struct calls *)user)->text, p, n);
}

static void on_begin(void *user, uint32_t call, const char *name, size_t n)
{
	struct calls *c = user;
	cr_assert_eq(call, c->n++);
	buf_put(&c->names[call], name, n);
}

static void on_arguments(void *user, uint32_t call, const char *p, size_t n)
{
	buf_put(&((struct calls *)user)->arguments[call], p, n);
}

static void calls_fini(struct calls *c)
{
	buf_fini(&c->text);
	for (uint32_t i = 0; i < c->n; i++) {
		buf_fini(&c->names[i]);
		buf_fini(&c->arguments[i]);
	}
}

static void read_calls(enum tools_style style, const json_t *tools, const char *begun, const char *p,
		       size_t n, struct calls *c)
{
	const struct tools_sink to = {on_text, on_begin, on_arguments, c};
	struct tools t;
	tools_init(&t, style, tools);
	if (begun)
		t.forced = true;
	if (begun)
		tools_push(&t, begun, strlen(begun), &to);
	tools_push(&t, p, n / 2, &to);
	tools_push(&t, p + n / 2, n - n / 2, &to);
	tools_end(&t, &to);
	tools_fini(&t);
}

/* ---- grammars ---- */

static struct grammar *compiled(enum grammar_language language, json_t *source)
{
	struct why why = {""};
	char *text = json_dumps(source, JSON_ENCODE_ANY);
	struct ast *a;
	struct grammar *g;
	cr_assert_eq(grammar_parse(language, text, strlen(text), NULL, &a, &why), 0, "%s\n%s", why.text,
		     text);
	cr_assert_eq(grammar_new(a, NULL, NULL, &g, &why), 0, "%s", why.text);
	ast_free(a);
	free(text);
	json_decref(source);
	return g;
}

static json_t *form_of(enum tools_style style, enum tools_need need, const json_t *tools, const char *named,
		       bool parallel, bool special)
{
	const struct tools_grammar g = {.style = style,
					.need = need,
					.tools = tools,
					.named = named,
					.parallel = parallel,
					.specials = {special ? is_mark : NULL, NULL}};
	struct why why = {""};
	json_t *out;
	cr_assert_eq(tools_grammar(&g, &out, &why), 0, "%s", why.text);
	return out;
}

static bool accepts(struct grammar *g, const char *p, size_t n)
{
	struct matcher *m = matcher_new(g);
	bool end = false;
	int rc = matcher_accept_bytes(m, p, n, NULL);
	if (rc == 0)
		cr_assert_eq(matcher_can_end(m, &end), 0);
	matcher_free(m);
	return end;
}

/* Return the schema of the tool's arguments, compiled. */
static struct grammar *schema_of(const json_t *tools, const char *name)
{
	size_t i;
	json_t *tool;
	json_array_foreach(tools, i, tool)
	{
		json_t *f = json_object_get(tool, "function"), *p = json_object_get(f, "parameters");
		if (strcmp(json_string_value(json_object_get(f, "name")), name) != 0)
			continue;
		p = p ? json_copy(p) : json_pack("{s:b}", "additionalProperties", 0);
		json_object_set_new(p, "type", json_string("object"));
		return compiled(GRAMMAR_SCHEMA, p);
	}
	cr_assert_fail("%s is not a declared tool", name);
	return NULL;
}

static void expect_calls(enum tools_style style, const json_t *tools, const char *begun, const char *p,
			 size_t n, uint32_t most)
{
	struct calls c = {0};
	read_calls(style, tools, begun, p, n, &c);
	cr_expect(c.n >= 1 && c.n <= most, "style %d: %u calls in \"%s\"", style, c.n, p);
	cr_expect_eq(c.text.len, 0, "style %d: text \"%s\" in \"%s\"", style, c.text.p, p);
	for (uint32_t i = 0; i < c.n; i++) {
		struct grammar *g = schema_of(tools, c.names[i].p);
		cr_expect(c.arguments[i].p && accepts(g, c.arguments[i].p, c.arguments[i].len),
			  "style %d: arguments %s of %s in \"%s\"", style, c.arguments[i].p, c.names[i].p, p);
		grammar_free(g);
	}
	calls_fini(&c);
}

/* ---- random outputs ---- */

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	return *seed ^= *seed << 17;
}

enum { WALK_MAX = 700 };

/* Write a random accepted output; return its bytes, or 0 if it became too long. Fragments of the format are
 * as likely as letters. */
static size_t walk(struct grammar *g, const struct tools_format *f, uint64_t *seed, char *out)
{
	const char *const pieces[] = {f->tags.value_close ? f->tags.value_close : "\"",
				      f->literals.quote ? f->literals.quote : ",",
				      f->tags.key_open ? f->tags.key_open : "}",
				      "\n",
				      "\"",
				      "\xff<|\"|>\xfe"};
	struct matcher *m = matcher_new(g);
	size_t n = 0;
	bool end = false;
	while (n < WALK_MAX - 64) {
		const uint64_t r = random_next(seed);
		const char *piece = pieces[r % 6];
		cr_assert_eq(matcher_can_end(m, &end), 0);
		if (end && r >> 8 & 1)
			break;
		size_t len = strlen(piece);
		if (r >> 16 & 1 && matcher_accept_bytes(m, piece, len, NULL) == 0) {
			memcpy(out + n, piece, len);
			n += len;
			continue;
		}
		size_t i = 0;
		for (; i < 256; i++) {
			out[n] = (char)((r >> 24) + i * 37);
			if (matcher_accept_bytes(m, out + n, 1, NULL) == 0)
				break;
		}
		if (i == 256)
			break;
		n++;
	}
	cr_assert_eq(matcher_can_end(m, &end), 0);
	matcher_free(m);
	out[n] = '\0';
	return end ? n : 0;
}

static unsigned try_form(enum tools_style style, json_t *tools, json_t *composite, const char *begun,
			 uint32_t most, unsigned n_walks)
{
	struct grammar *g = compiled(GRAMMAR_COMPOSITE, composite);
	uint64_t seed = 88172645463325252u + (uint64_t)style;
	unsigned n_ended = 0;
	for (unsigned i = 0; i < n_walks; i++) {
		char out[WALK_MAX];
		size_t n = walk(g, tools_format(style), &seed, out), plain_n;
		if (!n)
			continue;
		char *text = plain(out, n, &plain_n);
		expect_calls(style, tools, begun, text, plain_n, most);
		free(text);
		n_ended++;
	}
	grammar_free(g);
	return n_ended;
}

/* Gemma's format writes nested values in its own syntax, for which there is no schema. */
static json_t *tools_for(enum tools_style style)
{
	json_t *tools = parsed(tools_text);
	if (style == TOOLS_GEMMA4)
		json_array_remove(tools, 1);
	return tools;
}

Test(tools_grammar, what_a_form_accepts_are_calls_with_arguments_of_their_schemas)
{
	for (int s = TOOLS_HERMES; s < TOOLS_N_STYLES; s++) {
		json_t *tools = tools_for((enum tools_style)s);
		unsigned n = 0;
		for (int special = 0; special < 2; special++)
			for (int many = 0; many < 2; many++)
				n += try_form((enum tools_style)s, tools,
					      form_of((enum tools_style)s, TOOLS_REQUIRED, tools, NULL, many,
						      special),
					      NULL, many ? TOOLS_CALLS_MAX : 1, 150);
		cr_expect(n > 60, "style %d: %u of 600 outputs ended", s, n);
		json_decref(tools);
	}
}

Test(tools_grammar, a_begun_call_is_completed)
{
	for (int s = TOOLS_HERMES; s < TOOLS_N_STYLES; s++) {
		const struct tools_format *f = tools_format((enum tools_style)s);
		json_t *tools = tools_for((enum tools_style)s);
		char begun[256];
		unsigned n = 0;
		snprintf(begun, sizeof begun, "%sweather%s", f->before, f->after);
		/* Mistral's older models write lists, which a prompt cannot begin. */
		for (int special = s == TOOLS_MISTRAL; special < 2; special++)
			n += try_form(
				(enum tools_style)s, tools,
				form_of((enum tools_style)s, TOOLS_BEGUN, tools, "weather", true, special),
				begun, 1, 150);
		cr_expect(n > 15, "style %d: %u outputs ended", s, n);
		json_decref(tools);
	}
}

/* ---- calls written by templates ---- */

#define BAR  "\xef\xbd\x9c"
#define GAP  "\xe2\x96\x81"
#define DSML BAR "DSML" BAR
static const struct {
	enum tools_style style;
	const char *text; /* two calls */
} written[] = {
	{TOOLS_HERMES,
	 "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n"
	 "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
	{TOOLS_LLAMA3, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}; "
		       "{\"name\": \"now\", \"parameters\": {}}"},
	{TOOLS_PYTHONIC, "[weather(city=\"Oslo\", days=2), now()]"},
	{TOOLS_LFM2, "<|tool_call_start|>[weather(city=\"Oslo\", days=2), now()]<|tool_call_end|>"},
	{TOOLS_QWEN3_CODER, "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n"
			    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n"
			    "<tool_call>\n<function=now>\n</function>\n</tool_call>"},
	{TOOLS_GLM45,
	 "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
	 "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>"},
	{TOOLS_MINIMAX_M2,
	 "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n"
	 "<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n"
	 "</minimax:tool_call>"},
	{TOOLS_DEEPSEEK_V3, "<" BAR "tool" GAP "calls" GAP "begin" BAR "><" BAR "tool" GAP "call" GAP
			    "begin" BAR ">function<" BAR "tool" GAP "sep" BAR
			    ">weather\n```json\n{\"city\": \"Oslo\", \"days\": 2}\n```<" BAR "tool" GAP
			    "call" GAP "end" BAR ">\n<" BAR "tool" GAP "call" GAP "begin" BAR ">function<" BAR
			    "tool" GAP "sep" BAR ">now\n```json\n{}\n```<" BAR "tool" GAP "call" GAP "end" BAR
			    "><" BAR "tool" GAP "calls" GAP "end" BAR ">"},
	{TOOLS_DEEPSEEK_V32,
	 "<" DSML "function_calls>\n<" DSML "invoke name=\"weather\">\n<" DSML
	 "parameter name=\"city\" string=\"true\">Oslo</" DSML "parameter>\n<" DSML
	 "parameter name=\"days\" string=\"false\">2</" DSML "parameter>\n</" DSML "invoke>\n<" DSML
	 "invoke name=\"now\">\n</" DSML "invoke>\n</" DSML "function_calls>"},
	{TOOLS_KIMI_K2,
	 "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
	 "{\"city\": \"Oslo\", \"days\": 2}<|tool_call_end|><|tool_call_begin|>functions.now:1"
	 "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"},
	{TOOLS_MISTRAL,
	 "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}, "
	 "{\"name\": \"now\", \"arguments\": {}}]"},
	{TOOLS_GEMMA4, "<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>,days:2}<tool_call|>"
		       "<|tool_call>call:now{}<tool_call|>"},
};

Test(tools_grammar, what_templates_write_is_accepted)
{
	for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
		json_t *tools = tools_for(written[i].style);
		struct calls c = {0};
		const size_t n = strlen(written[i].text);
		struct grammar *g = compiled(GRAMMAR_COMPOSITE, form_of(written[i].style, TOOLS_REQUIRED,
									tools, NULL, true, false));
		cr_expect(accepts(g, written[i].text, n), "style %d", written[i].style);
		cr_expect(!accepts(g, written[i].text, n - 1), "style %d", written[i].style);
		cr_expect(!accepts(g, "Hello", 5) && !accepts(g, "", 0), "style %d", written[i].style);
		grammar_free(g);
		read_calls(written[i].style, tools, NULL, written[i].text, n, &c);
		cr_expect_eq(c.n, 2, "style %d", written[i].style);
		calls_fini(&c);
		/* The grammar allows one call only, and one tool only. */
		g = compiled(GRAMMAR_COMPOSITE,
			     form_of(written[i].style, TOOLS_REQUIRED, tools, NULL, false, false));
		cr_expect(!accepts(g, written[i].text, n), "style %d", written[i].style);
		grammar_free(g);
		g = compiled(GRAMMAR_COMPOSITE,
			     form_of(written[i].style, TOOLS_REQUIRED, tools, "weather", true, false));
		cr_expect(!accepts(g, written[i].text, n), "style %d", written[i].style);
		grammar_free(g);
		json_decref(tools);
	}
}

Test(tools_grammar, text_may_stand_before_calls_that_are_not_required)
{
	for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
		const enum tools_style s = written[i].style;
		const bool at_start = tools_format(s)->at_start;
		json_t *tools = tools_for(s);
		struct buf text = {0};
		struct grammar *g =
			compiled(GRAMMAR_COMPOSITE, form_of(s, TOOLS_FREE, tools, NULL, true, false));
		cr_expect(accepts(g, "Hello < [x] { \n", 15) && accepts(g, "", 0), "style %d", s);
		cr_expect(accepts(g, written[i].text, strlen(written[i].text)), "style %d", s);
		buf_printf(&text, "Well.\n%s", written[i].text);
		cr_expect(accepts(g, text.p, text.len), "style %d", s);
		buf_puts(&text, "more");
		cr_expect_eq(accepts(g, text.p, text.len), at_start, "style %d", s);
		/* After a mark only a call is accepted. */
		buf_clear(&text);
		buf_printf(&text, "%snonsense", tools_format(s)->marks[0].text);
		cr_expect(!accepts(g, text.p, text.len), "style %d", s);
		buf_fini(&text);
		grammar_free(g);
		json_decref(tools);
	}
}

static void yes_and_no(struct grammar *g, const char *const *yes, const char *const *no)
{
	for (; *yes; yes++)
		cr_expect(accepts(g, *yes, strlen(*yes)), "%s", *yes);
	for (; *no; no++)
		cr_expect(!accepts(g, *no, strlen(*no)), "%s", *no);
	grammar_free(g);
}
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_refused(enum tools_style style, const char *parameters, bool strict, int err,
			   const char *want)
{
	json_t *p = json_loads(parameters, JSON_DECODE_ANY, NULL), *out;
	json_t *tools = json_pack("[{s:s, s:{s:s, s:b, s:o}}]", "type", "function", "function", "name", "f",
				  "strict", strict, "parameters", p);
	const struct tools_grammar g = {.style = style, .need = TOOLS_REQUIRED, .tools = tools};
	struct why why = {""};
	cr_expect_eq(tools_grammar(&g, &out, &why), err, "%s", parameters);
	cr_expect_str_eq(why.text, want);
	json_decref(out);
	json_decref(tools);
}

Test(tools_grammar, schemas_of_strict_tools_are_kept_to_or_refused)
{
	const char *lookahead = "{\"properties\": {\"a\": {\"type\": \"string\", \"pattern\": \"(?=x)\"}}}";
	expect_refused(TOOLS_HERMES, lookahead, true, -ENOTSUP,
		       "tool f: parameters: #/properties/a: the pattern \"(?=x)\": regex, byte 3: lookahead "
		       "(?= is not "
		       "supported");
	expect_refused(TOOLS_QWEN3_CODER, lookahead, true, -ENOTSUP,
		       "tool f: parameters: #/properties/a: the pattern \"(?=x)\": regex, byte 3: "
		       "lookahead (?= is "
		       "not supported");
	expect_refused(TOOLS_HERMES, lookahead, false, 0, "");
	expect_refused(TOOLS_QWEN3_CODER, lookahead, false, 0, "");
	expect_refused(TOOLS_HERMES, "{\"type\": \"string\"}", false, -EINVAL,
		       "tool f: parameters: #: the type must be \"object\"");
	expect_refused(
		TOOLS_GLM45, "{\"minProperties\": 1}", true, -ENOTSUP,
		"tool f: parameters: #: minProperties is not supported in this model's format of calls");
	expect_refused(
		TOOLS_PYTHONIC, "{\"properties\": {\"a b\": {}}, \"required\": [\"a b\"]}", false, -ENOTSUP,
		"tool f: parameters: #/properties/a b: this name cannot be written in this model's format of "
		"calls");
	expect_refused(TOOLS_PYTHONIC, "{\"properties\": {\"a b\": {}}}", false, 0, "");
	expect_refused(
		TOOLS_GEMMA4, "{\"properties\": {\"a\": {\"type\": \"array\"}}}", true, -ENOTSUP,
		"tool f: parameters: #/properties/a: a value that is not a text, number or boolean is not "
		"supported in this model's format of calls");
}

/* References resolve within the whole schema: to the root, to another property, and to definitions even if
 * the value has its own. */
Test(tools_grammar, values_may_refer_to_any_place_of_the_schema)
{
	static const char tree[] =
		"{\"properties\": {\"below\": {\"type\": \"array\", \"items\": {\"$ref\": \"#\"}},"
		" \"same\": {\"$ref\": \"#/properties/below\"},"
		" \"own\": {\"$defs\": {\"d\": {\"const\": 1}}, \"anyOf\": [{\"$ref\": \"#/$defs/d\"},"
		" {\"$ref\": \"#/properties/own/$defs/d\"}]}},"
		" \"additionalProperties\": false, \"$defs\": {\"d\": {\"const\": 2}}}";
	json_t *tools = json_pack("[{s:s, s:{s:s, s:b, s:o}}]", "type", "function", "function", "name", "f",
				  "strict", 1, "parameters", parsed(tree));
#define VALUE(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define CALL(args)        args "</function>\n</tool_call>"
	yes_and_no(compiled(GRAMMAR_COMPOSITE,
			    form_of(TOOLS_QWEN3_CODER, TOOLS_BEGUN, tools, "f", false, false)),
		   LIST(CALL(VALUE("below", "[{\"below\":[{}]}]")),
			CALL(VALUE("same", "[{}]") VALUE("own", "1")), CALL(VALUE("own", "2"))),
		   LIST(CALL(VALUE("below", "[1]")), CALL(VALUE("same", "{}")), CALL(VALUE("own", "3"))));
	json_decref(tools);
	expect_refused(TOOLS_QWEN3_CODER,
		       "{\"properties\": {\"a\": {\"items\": {\"$ref\": \"#/$defs/x\"}}}, \"$defs\": {\"x\": "
		       "{\"uniqueItems\": true}}}",
		       true, -ENOTSUP,
		       "tool f: parameters: #/$defs/x: uniqueItems of items that are not an enum of at most "
		       "9 values is "
		       "not supported");
	expect_refused(TOOLS_QWEN3_CODER, "{\"properties\": {\"a\": {\"$ref\": \"#/x\"}}}", true, -ENOTSUP,
		       "tool f: parameters: #/properties/a: $ref \"#/x\" leads to nothing in this schema");
}

/* A value that contains its closing tag cannot be written. */
Test(tools_grammar, values_that_hold_their_end_are_left_out_or_refused)
{
	json_t *tools = parsed(
		"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"strict\": true, \"parameters\": "
		"{\"properties\": {\"a\": {\"type\": \"string\", \"enum\": [\"x</parameter>y\", \"z\"]}, "
		"\"b\": {\"enum\": [\"x</parameter>y\", 1]}}}}}]");
	yes_and_no(compiled(GRAMMAR_COMPOSITE,
			    form_of(TOOLS_QWEN3_CODER, TOOLS_BEGUN, tools, "f", false, false)),
		   LIST(CALL(VALUE("a", "z") VALUE("b", "1"))),
		   LIST(CALL(VALUE("a", "x</parameter>y")), CALL(VALUE("b", "\"x</parameter>y\""))));
	json_decref(tools);
	expect_refused(
		TOOLS_QWEN3_CODER,
		"{\"properties\": {\"a\": {\"type\": \"string\", \"const\": \"x</parameter>y\"}}}", true,
		-ENOTSUP,
		"tool f: parameters: #/properties/a: every value holds </parameter>, which ends it in this "
		"model's format of calls");
}

/* Any member may be the first, but the grammar does not grow with the square of their number. */
Test(tools_grammar, forms_of_many_literals_are_small)
{
	json_t *properties = json_object();
	char key[16];
	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof key, "k%d", i);
		json_object_set_new(properties, key, json_pack("{s:s}", "type", "array"));
	}
	json_t *tools = json_pack("[{s:s, s:{s:s, s:{s:o}}}]", "type", "function", "function", "name", "f",
				  "parameters", "properties", properties);
	for (int i = 0; i < 2; i++) {
		const enum tools_style s = i ? TOOLS_PYTHONIC : TOOLS_GEMMA4;
		json_t *f = form_of(s, TOOLS_REQUIRED, tools, NULL, true, false);
		const size_t n = json_dumpb(f, NULL, 0, JSON_COMPACT);
		cr_expect(n < 200000, "%zu bytes", n);
		static const char *const calls[][4] = {
			{"<|tool_call>call:f{k99:[1]}<tool_call|>",
			 "<|tool_call>call:f{k0:[[{a:1}]],k7:[]}<tool_call|>",
			 "<|tool_call>call:f{}<tool_call|>", "<|tool_call>call:f{k7:[],k0:[]}<tool_call|>"},
			{"[f(k99=[1])]", "[f(k0=[[{\"a\": 1}]], k7=[])]", "[f()]", "[f(k7=[], k0=[])]"}};
		yes_and_no(compiled(GRAMMAR_COMPOSITE, f), LIST(calls[i][0], calls[i][1], calls[i][2]),
			   LIST(calls[i][3]));
	}
	json_decref(tools);
}

/* Each value refers to large definitions, so the grammar grows with the product of the two; the size limit
 * refuses it. */
Test(tools_grammar, forms_of_values_that_refer_to_large_definitions_are_bounded)
{
	const size_t n_text = 1 << 20;
	char *description = calloc(n_text + 1, 1), key[16];
	memset(description, 'x', n_text);
	json_t *plain = json_object(), *refers = json_object();
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof key, "k%d", i);
		json_object_set_new(plain, key, json_pack("{s:s}", "type", "integer"));
		json_object_set_new(refers, key, json_pack("{s:s}", "$ref", "#/$defs/d"));
	}
	json_t *defs = json_pack("{s:{s:s, s:s}}", "d", "type", "integer", "description", description);
	json_t *small = json_pack("{s:o, s:O}", "properties", plain, "$defs", defs);
	json_t *large = json_pack("{s:o, s:o}", "properties", refers, "$defs", defs);
	char *text = json_dumps(small, 0);
	expect_refused(TOOLS_QWEN3_CODER, text, true, 0, "");
	free(text);
	text = json_dumps(large, 0);
	expect_refused(
		TOOLS_QWEN3_CODER, text, false, -E2BIG,
		"tool f: parameters: the schemas of the values, with what they refer to, are larger than "
		"16 MiB");
	free(text);
	json_decref(small);
	json_decref(large);
	free(description);
}

Test(tools_grammar, any_of_the_literals_may_be_the_first)
{
	json_t *tools = tools_for(TOOLS_PYTHONIC);
	yes_and_no(compiled(GRAMMAR_COMPOSITE,
			    form_of(TOOLS_PYTHONIC, TOOLS_REQUIRED, tools, "list-2", false, false)),
		   LIST("[list-2()]", "[list-2(on=True)]", "[list-2(of=[1.5, None])]",
			"[list-2(of=[], on=False)]"),
		   LIST("[list-2(, on=True)]", "[list-2(on=True, of=[])]", "[list-2(of=[2])]",
			"[list-2(on=true)]", "[list-2(on=1)]"));
	json_decref(tools);
}

Test(tools_grammar, a_value_holds_no_text_that_ends_it)
{
	json_t *tools = parsed(
		"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\":"
		" {\"a\": {\"type\": [\"string\", \"integer\"]}, \"b\": {\"type\": \"string\"}}}}}]");
	yes_and_no(
		compiled(GRAMMAR_COMPOSITE, form_of(TOOLS_GLM45, TOOLS_REQUIRED, tools, "f", false, false)),
		LIST("<tool_call>f\n</tool_call>",
		     "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>\"</arg_val\"</arg_value>\n</tool_call>",
		     "<tool_call>f\n<arg_key>b</arg_key>\n<arg_value></arg_val</arg_value>\n</tool_call>"),
		LIST("<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>\"</arg_value>\"</arg_value>\n</"
		     "tool_call>",
		     "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
		     "<tool_call>f\n<arg_key>b</arg_key>\n<arg_value>x</arg_value>y</arg_value>\n</"
		     "tool_call>"));
	json_decref(tools);
}

/* ---- reasoning ---- */

static struct grammar *thinking(enum prompt_reasoning place, int64_t budget)
{
	const struct reasoning_grammar t = {
		.place = place, .open = "<think>", .close = "</think>", .budget = budget};
	return compiled(GRAMMAR_COMPOSITE, reasoning_grammar(&t, composite_literal("{}", 2)));
}

Test(tools_grammar, a_thought_stands_before_the_answer)
{
	yes_and_no(thinking(REASONING_NONE, -1), LIST("{}"), LIST("", "<think></think>{}", "a</think>{}"));
	yes_and_no(thinking(REASONING_OPEN, -1), LIST("</think>{}", "Well, {} <think>\n</think>\n\n{}"),
		   LIST("{}", "<think>x{}", "</think>\n\n\n{}", "a</think>b</think>{}"));
	yes_and_no(thinking(REASONING_OPTIONAL, -1),
		   LIST("{}", "<think>\nx\n</think>\n\n{}", "\n<think></think>{}"),
		   LIST("x</think>{}", "<think>{}", "x<think></think>{}"));
	yes_and_no(thinking(REASONING_OPEN, 0), LIST("\n</think>\n\n{}", "</think>{}"),
		   LIST("a</think>{}", "{}"));
	yes_and_no(thinking(REASONING_OPTIONAL, 0), LIST("{}"), LIST("<think></think>{}"));
}

static struct matcher *pushed(struct grammar *g, const char *text)
{
	struct matcher *m = matcher_new(g);
	for (; *text; text++)
		cr_assert_eq(matcher_accept_bytes(m, text, 1, NULL), 0, "%s", text);
	return m;
}

Test(tools_grammar, a_budget_closes_the_thought)
{
	struct grammar *g = thinking(REASONING_OPEN, 5);
	char forced[64];
	struct matcher *m = pushed(g, "abcd");
	cr_expect_eq(matcher_forced(m, forced, sizeof forced), 0);
	cr_expect_eq(matcher_accept_bytes(m, "e", 1, NULL), 0);
	cr_expect_eq(matcher_forced(m, forced, sizeof forced), 9);
	cr_expect(!memcmp(forced, "\n</think>", 9));
	matcher_free(m);
	grammar_free(g);
	g = thinking(REASONING_OPTIONAL, 10);
	m = pushed(g, "<think>abc");
	cr_expect_eq(matcher_forced(m, forced, sizeof forced), 9);
	matcher_free(m);
	grammar_free(g);
}
