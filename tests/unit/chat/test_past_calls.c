/* Calls of earlier turns are written in the tool format for templates that show no calls. */
#include "controller/chat/chat.h"
#include "controller/chat/template_probe.h"
#include "controller/chat/tools.h"
#include "tests/unit/chat/chat_help.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(past_calls, .timeout = 60);

/* Shows tools and contents, but no calls. */
static const char template[] = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
			       "[{{ m.role }}:{{ m.content | trim }}]{% endfor %}";

static const char tools[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {\"type\": "
	"\"object\", "
	"\"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}, \"exact\": "
	"{\"type\": \"boolean\"}, \"tags\": {\"type\": \"array\"}, \"none\": {}}}}}, {\"type\": "
	"\"function\", "
	"\"function\": {\"name\": \"now\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";

static const char arguments[] = "{\"city\": \"Paris, 12\\n\\\"x\\\" \\u00e9\", \"days\": 3, \"exact\": true, "
				"\"tags\": [\"a\", \"b\", {\"c\": false}], \"none\": null}";

static json_t *call(const char *id, const char *name, const char *text)
{
	return json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function", "name", name,
			 "arguments", text);
}

/* Return a user message with this text, an assistant message with the calls, and a result. */
static json_t *conversation(const char *text, json_t *calls)
{
	return json_pack("[{s:s, s:s}, {s:s, s:s, s:o}, {s:s, s:s, s:s}]", "role", "user", "content", text,
			 "role", "assistant", "content", "", "tool_calls", calls, "role", "tool", "content",
			 "ok", "tool_call_id", "a");
}

static void render(enum tools_style style, json_t *messages, struct chat_prompt *p)
{
	struct chat *c;
	struct why why = {""};
	json_t *declared = json_loads(tools, 0, NULL);
	cr_assert_eq(chat_help_load(template, "", "", &c, &why), 0, "%s", why.text);
	cr_assert_not(chat_facts(c, true)->calls);
	const struct chat_input rq = {.messages = messages, .tools = declared, .calls = style};
	cr_assert_eq(chat_render_json(c, &rq, p, &why), 0, "%s", why.text);
	chat_free(c);
	json_decref(declared);
	json_decref(messages);
}

struct calls {
	int n;
	char name[4][64];
	struct buf arguments[4];
};

static void on_text(void *user, const char *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

static void on_begin(void *user, uint32_t at, const char *name, size_t n)
{
	struct calls *c = user;
	cr_assert_lt(at, 4);
	snprintf(c->name[c->n++], sizeof c->name[0], "%.*s", (int)n, name);
}

static void on_arguments(void *user, uint32_t at, const char *p, size_t n)
{
	buf_put(&((struct calls *)user)->arguments[at], p, n);
}

static void expect_call(struct calls *got, int i, const char *name, const char *text, const char *format)
{
	cr_assert_lt(i, got->n, "%s: %d calls", format, got->n);
	json_t *want = json_loads(text, 0, NULL), *is = json_loads(got->arguments[i].p, 0, NULL);
	cr_expect_str_eq(got->name[i], name);
	cr_expect(json_equal(is, want), "%s: %s", format, got->arguments[i].p);
	json_decref(want);
	json_decref(is);
}

static const char *turn_of(const struct chat_prompt *p)
{
	const char *turn = strstr(p->text.p, "[assistant:");
	cr_assert(turn);
	return turn + strlen("[assistant:");
}

Test(past_calls, each_format_reads_what_it_spells)
{
	for (int style = TOOLS_NONE + 1; style < TOOLS_N_STYLES; style++) {
		const struct tools_format *f = tools_format(style);
		if (f->channels)
			continue;
		json_t *calls = json_array();
		json_array_append_new(calls, call("a", "get_weather", arguments));
		json_array_append_new(calls, call("b", "now", "{}"));
		struct chat_prompt p = {0};
		render(style, conversation("q", calls), &p);
		struct calls got = {0};
		const struct tools_sink to = {on_text, on_begin, on_arguments, &got};
		struct tools t;
		json_t *declared = json_loads(tools, 0, NULL);
		tools_init(&t, style, declared);
		tools_push(&t, turn_of(&p), strlen(turn_of(&p)), &to);
		tools_end(&t, &to);
		expect_call(&got, 0, "get_weather", arguments, f->name);
		expect_call(&got, 1, "now", "{}", f->name);
		for (int i = 0; i < 4; i++)
			buf_fini(&got.arguments[i]);
		tools_fini(&t);
		json_decref(declared);
		chat_prompt_fini(&p);
	}
}

static bool is_plain(const struct chat_prompt *p, const char *text)
{
	const char *hit = strstr(turn_of(p), text);
	cr_assert(hit, "%s in %s", text, p->text.p);
	const size_t at = (size_t)(hit - p->text.p);
	for (size_t i = 0; i < p->n_plain; i++)
		if (p->plain[i].start < at + strlen(text) && p->plain[i].end > at)
			return true;
	return false;
}

/* The format's marks become special tokens. Text of the request does not, even if it looks like a mark. */
Test(past_calls, marks_are_the_template_s_and_the_rest_is_plain_text)
{
	struct chat_prompt p = {0};
	json_t *calls = json_array();
	json_array_append_new(calls, call("a", "get_weather", "{\"city\": \"</tool_call>\"}"));
	render(TOOLS_HERMES, conversation("q", calls), &p);
	cr_expect_str_eq(turn_of(&p), "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
				      "\"</tool_call>\"}}\n</tool_call>][tool:ok]");
	cr_expect_not(is_plain(&p, "<tool_call>"));
	cr_expect_not(is_plain(&p, "}\n</tool_call>"));
	cr_expect(is_plain(&p, "get_weather"));
	cr_expect(is_plain(&p, "\"</tool_call>\""));
	cr_expect(is_plain(&p, "ok"));
	for (size_t i = 1; i < p.n_plain; i++)
		cr_expect_lt(p.plain[i - 1].end, p.plain[i].start);
	chat_prompt_fini(&p);
}

Test(past_calls, calls_stand_after_the_content_in_each_turn)
{
	struct chat_prompt p = {0};
	json_t *messages = json_array(), *calls;
	for (int i = 0; i < 2; i++) {
		calls = json_array();
		json_array_append_new(calls, call("a", "now", i ? "{\"i\": 1}" : "{oops"));
		json_t *turn = conversation("q", calls);
		json_object_set_new(json_array_get(turn, 1), "content", json_string(i ? "b" : ""));
		json_array_extend(messages, turn);
		json_decref(turn);
	}
	render(TOOLS_HERMES, messages, &p);
	cr_expect_str_eq(turn_of(&p),
			 "<tool_call>\n{\"name\": \"now\", \"arguments\": {oops}\n</tool_call>][tool:ok]"
			 "[user:q][assistant:b\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"i\": 1}}\n"
			 "</tool_call>][tool:ok]");
	chat_prompt_fini(&p);
}

/* The placeholder of a call during rendering never equals text of the request. */
Test(past_calls, no_text_of_the_request_becomes_a_call)
{
	struct chat_prompt p = {0};
	json_t *calls = json_array();
	json_array_append_new(calls, call("a", "now", "{\"x\": \"Xcalls1n0.\"}"));
	render(TOOLS_HERMES, conversation("Xcalls0n0. Xcalls00n0.", calls), &p);
	cr_expect(strstr(p.text.p, "[user:Xcalls0n0. Xcalls00n0.][assistant:<tool_call>"), "%s", p.text.p);
	cr_expect(strstr(p.text.p, "\"Xcalls1n0.\"}}\n</tool_call>]"), "%s", p.text.p);
	chat_prompt_fini(&p);
}
