/* The tool format of a template is the format that can read the call which the template writes. */
#include "controller/chat/template_probe.h"
#include "controller/chat/tools_probe.h"
#include "tests/unit/chat/chat_help.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(tools_probe, .timeout = 60);

/* A template that shows the tools and the calls with these texts. */
#define SHOWS(tools, call)                                                                                   \
	"{% if tools %}" tools "{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"                 \
	"{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}{% for c in m.tool_calls or [] %}"      \
	"{% set f = c.function %}" call "{% endfor %}<|end|>{% endfor %}"                                    \
	"{% if add_generation_prompt %}<|assistant|>{% endif %}"
#define KEYWORDS(value)                                                                                      \
	"{% for k in f.arguments %}{{ k }}=" value "{% if not loop.last %}, {% endif %}{% endfor %}"

static void expect(const char *template, enum tools_style want)
{
	struct chat *c;
	struct why why = {""};
	cr_assert_eq(chat_help_load(template, "", "", &c, &why), 0, "%s", why.text);
	const enum tools_style is = tools_probe(c);
	cr_expect_eq(is, want, "%s: %s", template, is ? tools_format(is)->name : "none");
	chat_free(c);
}

Test(tools_probe, a_call_that_is_shown_decides)
{
	/* Bare JSON and a list of Python calls, without a keyword of any format. */
	expect(SHOWS("Answer with JSON: ",
		     "{\"name\": \"{{ f.name }}\", \"parameters\": {{ f.arguments | tojson }}}"),
	       TOOLS_LLAMA3);
	expect(SHOWS("Call functions: ", "[{{ f.name }}(" KEYWORDS("{{ f.arguments[k] | tojson }}") ")]"),
	       TOOLS_PYTHONIC);
	expect(SHOWS("", "[{{ f.name }}(" KEYWORDS("{{ f.arguments[k] }}r") ")]"), TOOLS_PYTHONIC);
	/* Keywords of one format, but a call of another. */
	expect(SHOWS("Not <|python_tag|>. ", "<tool_call>{\"name\": \"{{ f.name }}\", \"arguments\": "
					     "{{ f.arguments | tojson }}}</tool_call>"),
	       TOOLS_HERMES);
}

/* MiniCPM3's calls have LFM2's marks, and these lists have tags like Hermes's and Apriel's. */
Test(tools_probe, a_format_that_cannot_read_the_call_is_none)
{
	expect(SHOWS("Calls stand within <|tool_call_start|> and <|tool_call_end|>. ",
		     "<|tool_call_start|>\n```python\n{{ f.name }}(" KEYWORDS(
			     "{{ f.arguments[k] | tojson }}") ")\n```\n<|tool_call_end|>\n"),
	       TOOLS_NONE);
	expect(SHOWS("<tool_call> ", "<tool_calls>\n- name: {{ f.name }}\n  arguments: "
				     "{{ f.arguments | tojson }}\n</tool_calls>"),
	       TOOLS_NONE);
}

/* vLLM's template of Phi-4-mini demands a mark that the calls of earlier turns lack. */
Test(tools_probe, a_mark_that_the_instructions_ask_for_comes_before_bare_json)
{
	expect(SHOWS("Answer functools[{\"name\": .., \"arguments\": ..}]. ",
		     "{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments }}}"),
	       TOOLS_PHI4);
}

Test(tools_probe, words_decide_where_no_call_is_shown)
{
	expect(SHOWS("Answer <tool_call>{..}</tool_call>. ", ""), TOOLS_HERMES);
	expect(SHOWS("Answer as you like. ", ""), TOOLS_NONE);
}

/* If a template would write argument values in Python syntax, they are passed as JSON text, which it writes
 * unchanged. */
Test(tools_probe, arguments_are_text_where_others_come_out_as_python)
{
	struct chat *c;
	struct chat_prompt p = {0};
	struct why why = {""};
	json_t *m = json_pack("[{s:s, s:s}, {s:s, s:s, s:[{s:s, s:{s:s, s:s}}]}]", "role", "user", "content",
			      "a", "role", "assistant", "content", "", "tool_calls", "id", "i", "function",
			      "name", "f", "arguments", "{\"x\": true}");
	cr_assert_eq(chat_help_load(SHOWS("", "{{ f.name }}{{ f.arguments }}"), "", "", &c, &why), 0, "%s",
		     why.text);
	const struct chat_input rq = {.messages = m};
	cr_assert_eq(chat_render_json(c, &rq, &p, &why), 0, "%s", why.text);
	cr_expect(strstr(p.text.p, "f{\"x\": true}"), "%s", p.text.p);
	chat_prompt_fini(&p);
	chat_free(c);
	json_decref(m);
}

/* Tools are supported if the template shows them, whatever keywords it has. */
Test(tools_probe, tools_must_be_shown)
{
	static const struct {
		const char *template;
		enum tools_passing way;
	} all[] = {
		{SHOWS("", ""), TOOLS_PASS_VARIABLE},
		{"{% if tools %}You have tools.{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}",
		 TOOLS_PASS_NONE},
		{"{% for m in messages %}{{ m.content }}{{ m.tool or '' }}{% endfor %}", TOOLS_PASS_NONE},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct chat *c;
		struct why why = {""};
		cr_assert_eq(chat_help_load(all[i].template, "", "", &c, &why), 0, "%s", why.text);
		cr_expect_eq(chat_facts(c, true)->tools, all[i].way, "%s", all[i].template);
		chat_free(c);
	}
}

static void expect_tools(const char *template, const char *messages, const char *text)
{
	struct chat *c;
	struct chat_prompt p = {0};
	struct why why = {""};
	json_t *m = json_loads(messages, 0, NULL);
	json_t *tools = json_pack("[{s:s, s:{s:s}}]", "type", "function", "function", "name", "f");
	cr_assert_eq(chat_help_load(template, "", "", &c, &why), 0, "%s", why.text);
	const struct chat_input rq = {.messages = m, .tools = tools};
	cr_assert_eq(chat_render_json(c, &rq, &p, &why), 0, "%s", why.text);
	cr_expect_str_eq(p.text.p, text);
	chat_prompt_fini(&p);
	chat_free(c);
	json_decref(m);
	json_decref(tools);
}

/* The templates of Phi-4-mini and SmolLM3 take tools in these two ways. */
Test(tools_probe, tools_are_passed_in_the_way_that_shows_them)
{
	static const char member[] =
		"{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tools %}<|tool|>"
		"{{ m.tools + '' }}<|/tool|>{% endif %}<|end|>{% endfor %}",
			  xml[] = "{% for t in xml_tools or [] %}{{ t.name }};{% endfor %}"
				  "{% for m in messages %}{{ m.content }}{% endfor %}";
	expect_tools(member, "[{\"role\": \"user\", \"content\": \"a\"}]",
		     "<|system|><|tool|>[{\"name\": \"f\"}]<|/tool|><|end|><|user|>a<|end|>");
	expect_tools(member,
		     "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"a\"}]",
		     "<|system|>s<|tool|>[{\"name\": \"f\"}]<|/tool|><|end|><|user|>a<|end|>");
	expect_tools("{% if custom_tools is defined %}{{ custom_tools[0].function.name }};{% endif %}"
		     "{% for m in messages %}{{ m.content }}{% endfor %}",
		     "[{\"role\": \"user\", \"content\": \"a\"}]", "f;a");
	expect_tools(xml, "[{\"role\": \"user\", \"content\": \"a\"}]", "f;a");
}

/* Return the prompt of a question; NULL: refused.  tools, kwargs: may be NULL, become the function's. */
static char *question(const char *template, json_t *tools, json_t *kwargs)
{
	struct chat *c;
	struct chat_prompt p = {0};
	struct why why = {""};
	json_t *m = json_pack("[{s:s, s:s}]", "role", "user", "content", "a");
	cr_assert_eq(chat_help_load(template, "", "", &c, &why), 0, "%s", why.text);
	const struct chat_input rq = {.messages = m, .tools = tools, .kwargs = kwargs};
	char *text = chat_render_json(c, &rq, &p, &why) ? NULL : strdup(p.text.p);
	chat_prompt_fini(&p);
	chat_free(c);
	json_decref(m);
	json_decref(tools);
	json_decref(kwargs);
	return text;
}

/* Firefunction's template cannot be rendered without these two variables, whether or not there are tools. */
Test(tools_probe, functions_and_the_date_are_passed_to_a_template_that_needs_them)
{
	static const char needs[] = "{% set t = functions + ' Today is ' + datetime + '. ' %}{{ t }}"
				    "{% for m in messages %}{{ m.content }}{% endfor %}",
			  has[] = "{% if functions is defined or datetime is defined %}no{% endif %}"
				  "{% for m in messages %}{{ m.content }}{% endfor %}";
	char *with =
		question(needs, json_pack("[{s:s, s:{s:s}}]", "type", "function", "function", "name", "f"),
			 json_pack("{s:s}", "datetime", "Monday"));
	char *without = question(needs, NULL, NULL), *other = question(has, NULL, NULL);
	int year, month, day, n = 0;
	cr_assert(with && without && other);
	cr_expect_str_eq(with, "[\n    {\n        \"name\": \"f\"\n    }\n] Today is Monday. a");
	cr_expect_eq(sscanf(without, "[] Today is %4d-%2d-%2d. a%n", &year, &month, &day, &n), 3, "%s",
		     without);
	cr_expect_eq((size_t)n, strlen(without), "%s", without);
	cr_expect_str_eq(other, "a");
	free(with);
	free(without);
	free(other);
}

/* A template with long loops for every message loads after few steps and supports no tools. */
Test(tools_probe, trial_renderings_have_limits_of_their_own)
{
	static const char slow[] =
		"{% for i in range(2000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}" SHOWS("", "");
	struct chat *c;
	struct chat_prompt p = {0};
	struct why why = {""};
	json_t *m = json_pack("[{s:s, s:s}]", "role", "user", "content", "a");
	const struct chat_input rq = {.messages = m};
	cr_assert_eq(chat_help_load(slow, "", "", &c, &why), 0, "%s", why.text);
	cr_expect_eq(chat_facts(c, true)->tools, TOOLS_PASS_NONE);
	cr_expect_eq(chat_render_json(c, &rq, &p, &why), 0, "%s", why.text);
	cr_expect_str_eq(p.text.p, "<|user|>a<|end|>");
	chat_prompt_fini(&p);
	chat_free(c);
	json_decref(m);
}
