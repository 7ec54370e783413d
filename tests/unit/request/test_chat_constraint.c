/* The constraint on a chat's outputs follows from its tools, tool choice, response format and reasoning. */
#include "controller/chat/reasoning.h"
#include "grammar/grammar.h"
#include "grammar/source.h"
#include "tests/unit/request/api_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static struct chat *chat;

/* Load a chat with this template. */
static struct chat *chat_of(const char *template)
{
	struct why why;
	char dir[] = "/tmp/quern-test-XXXXXX", path[64];
	struct chat *c;
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
	FILE *f = fopen(path, "w");
	fputs(template, f);
	fclose(f);
	cr_assert_eq(chat_load(dir, &c, &why), 0, "%s", why.text);
	unlink(path);
	rmdir(dir);
	return c;
}

static struct chat *harmony_chat(void)
{
	return chat_of("{{ tools }}{% for m in messages %}<|start|>{{ m.role }}"
		       "{% if m.name == 'thought' %}<|channel|>analysis"
		       "{% elif m.name == 'call' %}<|channel|>commentary to=functions.f"
		       "{% elif m.role == 'assistant' %}<|channel|>final{% endif %}"
		       "<|message|>{{ m.content }}<|end|>{% endfor %}"
		       "{% if add_generation_prompt %}<|start|>assistant{% endif %}");
}

/* Open a model that reasons, and calls tools in Qwen's format. */
static void open_thinker(void)
{
	open_demo();
	chat = chat_of(
		"{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ tools }}[assistant]"
		"{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
		"{% elif thinks is defined %}<think>\n{% endif %}{# <tool_call> #}");
	demo.svc.chat = chat;
	demo.svc.tools = TOOLS_HERMES;
	demo.svc.reasoning = true;
}

static void close_thinker(void)
{
	chat_free(chat);
	close_demo();
}

TestSuite(chat_constraint, .init = open_thinker, .fini = close_thinker, .timeout = 60);

#define TOOL(strict, parameters)                                                                             \
	"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"strict\": " strict           \
	", \"parameters\": " parameters "}}]"
#define A_IS_1                                                                                               \
	"{\"properties\": {\"a\": {\"const\": 1}}, \"required\": [\"a\"], \"additionalProperties\": false}"
#define CALL  "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
#define OTHER "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 2}}\n</tool_call>"

static int ask(const char *fields, struct submit **s, struct api_reply *reply, struct api_problem *p)
{
	struct buf text = {0};
	buf_printf(&text, "{%s%s}",
		   strncmp(fields, "\"messages\"", 10) == 0
			   ? ""
			   : "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], ",
		   fields);
	int rc = submit(API_CHAT, text.p, s, reply, p);
	buf_fini(&text);
	return rc;
}

/* yes: accepted texts; NULL: outputs are unconstrained. */
static void expect(const char *fields, const char *const *yes, const char *const *no)
{
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	struct ast *a;
	struct grammar *g;
	struct why why;
	cr_assert_eq(ask(fields, &s, &reply, &p), 0, "%s: %s", fields, p.why);
	const struct constraint *f = s->params.constraint;
	cr_expect_eq(!f, !yes, "%s", fields);
	if (f && yes) {
		cr_assert_eq(grammar_parse(f->language, f->text, f->n, NULL, &a, &why), 0, "%s", why.text);
		cr_assert_eq(grammar_new(a, NULL, NULL, &g, &why), 0, "%s", why.text);
		for (int want = 1; want >= 0; want--)
			for (const char *const *t = want ? yes : no; *t; t++) {
				struct matcher *m = matcher_new(g);
				bool end = false;
				if (matcher_accept_bytes(m, *t, strlen(*t), NULL) == 0)
					matcher_can_end(m, &end);
				cr_expect_eq(end, want, "%s: \"%s\"", fields, *t);
				matcher_free(m);
			}
		grammar_free(g);
		ast_free(a);
	}
	submit_free(s);
}
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void refused(const char *fields, const char *param, const char *words)
{
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	cr_expect_neq(ask(fields, &s, &reply, &p), 0, "taken: %s", fields);
	cr_expect_str_eq(p.param, param, "%s: %s", fields, p.why);
	cr_expect(strstr(p.why, words), "%s: %s", fields, p.why);
	submit_free(s);
}

#define MORE "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_call>"
Test(chat_constraint, arguments_have_no_members_that_a_tool_does_not_list)
{
	static const char tool[] =
		"\"tool_choice\": \"required\", " TOOL("false", "{\"properties\": {\"a\": {}}}");
	char text[400];
	expect(tool, LIST(CALL, OTHER), LIST(MORE));
	snprintf(text, sizeof text, "%s, \"schema_exact\": true", tool);
	expect(text, LIST(CALL, OTHER, MORE), LIST(""));
}

Test(chat_constraint, required_calls_may_stand_behind_a_thought)
{
	expect("\"tool_choice\": \"required\", " TOOL("false", A_IS_1),
	       LIST(CALL, "<think>\nWell, I call.\n</think>\n\n" CALL, CALL "\n" CALL),
	       LIST("Hello", "", OTHER));
	expect("\"tool_choice\": \"required\", \"parallel_tool_calls\": false, " TOOL("false", A_IS_1),
	       LIST(CALL), LIST(CALL "\n" CALL));
	expect("\"tool_choice\": \"required\", \"chat_template_kwargs\": {\"thinks\": true}, " TOOL("false",
												    A_IS_1),
	       LIST("So.\n</think>\n\n" CALL), LIST(CALL, "<think>x" CALL));
	demo.svc.marks = reasoning_marks_named("mistral");
	expect("\"tool_choice\": \"required\", " TOOL("false", A_IS_1), LIST(CALL, "[THINK]x[/THINK]" CALL),
	       LIST("<think>x</think>" CALL));
	demo.svc.marks = NULL;
	expect("\"tool_choice\": \"required\", \"enable_thinking\": false, " TOOL("false", A_IS_1),
	       LIST(CALL), LIST("<think>x</think>" CALL));
	refused("\"tool_choice\": \"required\"", "tool_choice", "needs tools");
}

Test(chat_constraint, a_named_tool_has_its_arguments)
{
	expect("\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}, " TOOL("false",
												   A_IS_1),
	       LIST(" {\"a\": 1}}\n</tool_call>"), LIST("{\"a\": 2}}\n</tool_call>", " {\"a\": 1}", CALL));
}

Test(chat_constraint, calls_are_of_the_allowed_tools)
{
#define ALLOWED(mode)                                                                                        \
	"\"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"" mode               \
	"\", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}}, "
#define TWO                                                                                                  \
	"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"g\"}}, {\"type\": \"function\", "   \
	"\"function\": {\"name\": \"f\", \"parameters\": " A_IS_1 "}}]"
	static const char other[] = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
	expect(ALLOWED("auto") TWO, LIST("Hello", CALL, CALL "\n" CALL), LIST(other, OTHER, "x" OTHER));
	expect(ALLOWED("required") TWO, LIST(CALL), LIST("Hello", other));
}

Test(chat_constraint, strict_tools_are_kept_to_where_the_model_chooses)
{
	expect(TOOL("false", A_IS_1), NULL, NULL);
	expect(TOOL("true", A_IS_1) ", \"tool_choice\": \"none\"", NULL, NULL);
	expect(TOOL("true", A_IS_1), LIST("Hello", "", CALL, "<think>x</think>Let me see.\n" CALL),
	       LIST(OTHER, "Let me see." OTHER, CALL "Hello", "<tool_call>"));
	refused(TOOL("true", "{\"properties\": {\"a\": {\"pattern\": \"(?=x)\"}}}"), "tools",
		"tools: tool f: parameters: #/properties/a");
	expect("\"tool_choice\": \"required\", " TOOL("false",
						      "{\"properties\": {\"a\": {\"pattern\": \"(?=x)\"}}}"),
	       LIST(OTHER), LIST("Hello"));
}

Test(chat_constraint, answers_and_calls_are_messages_of_channels)
{
#define MESSAGE(c) "<|channel|>" c "<|message|>"
#define NEXT       "<|end|><|start|>assistant"
#define A_CALL     MESSAGE("commentary to=functions.f <|constrain|>json") "{\"a\": 1}"
#define THOUGHT    MESSAGE("analysis") "Hm." NEXT
	const char *five = "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": "
			   "{\"const\": 5}}}";
	char both[1024];
	demo.svc.tools = TOOLS_HARMONY;
	demo.svc.marks = reasoning_marks_named("harmony");
	demo.svc.chat = harmony_chat();
	expect(five, LIST(MESSAGE("final") "5", THOUGHT MESSAGE("final") "5"),
	       LIST("5", THOUGHT "5", MESSAGE("final") "6", MESSAGE("commentary") "5"));
	snprintf(both, sizeof both, "%s, %s", five, TOOL("false", A_IS_1));
	expect(both, LIST(MESSAGE("final") "5", A_CALL, THOUGHT A_CALL),
	       LIST("5", A_CALL MESSAGE("final") "5"));
	expect("\"tool_choice\": \"required\", " TOOL("false", A_IS_1), LIST(A_CALL, THOUGHT A_CALL),
	       LIST("Hello", MESSAGE("final") "Hello", A_CALL A_CALL));
	expect(TOOL("true", A_IS_1),
	       LIST(MESSAGE("final") "Hello", A_CALL, THOUGHT MESSAGE("commentary") "I look." NEXT A_CALL),
	       LIST("Hello", THOUGHT "Hello", A_CALL "x"));
	expect("\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}, " TOOL("false",
												   A_IS_1),
	       LIST("{\"a\": 1}"), LIST("{\"a\": 2}", A_CALL));
	expect("\"thinking_token_budget\": 7",
	       LIST(MESSAGE("final") "Hello", THOUGHT MESSAGE("final") "Hello"),
	       LIST("Hello", THOUGHT THOUGHT MESSAGE("final") "Hello"));
	expect("\"thinking_token_budget\": 0, " TOOL("false", A_IS_1),
	       LIST(MESSAGE("final") "Hello", A_CALL, MESSAGE("commentary to=x") "y"), LIST(THOUGHT A_CALL));
	demo.svc.reasoning = false;
	expect(five, LIST(MESSAGE("final") "5"), LIST("5", THOUGHT MESSAGE("final") "5"));
	chat_free((struct chat *)demo.svc.chat);
	demo.svc.chat = chat;
}

/* The prompt ends within a message and contains its header: an answer or reasoning. */
Test(chat_constraint, a_message_of_a_channel_is_continued)
{
#define CONTINUED(name)                                                                                      \
	"\"messages\": [{\"role\": \"assistant\", \"name\": \"" name                                         \
	"\", \"content\": \"<|start|>x<|channel|>analysis<|message|> so\"}], \"add_generation_prompt\": "    \
	"false, "                                                                                            \
	"\"continue_final_message\": true, "
#define FIVE  "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"const\": 5}}}"
#define NAMED "\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}, "
	demo.svc.tools = TOOLS_HARMONY;
	demo.svc.marks = reasoning_marks_named("harmony");
	demo.svc.chat = harmony_chat();
	expect(CONTINUED("answer") FIVE, LIST("5"),
	       LIST("6", MESSAGE("final") "5", THOUGHT MESSAGE("final") "5"));
	expect(CONTINUED("answer") FIVE ", " TOOL("false", A_IS_1), LIST("5", NEXT A_CALL),
	       LIST("6", A_CALL, "5" NEXT A_CALL, NEXT "5"));
	expect(CONTINUED("answer") TOOL("true", A_IS_1), LIST("", " far", " far" NEXT A_CALL, NEXT A_CALL),
	       LIST(NEXT A_CALL "x"));
	expect(CONTINUED("answer") "\"tool_choice\": \"required\", " TOOL("false", A_IS_1),
	       LIST(NEXT A_CALL, " far" NEXT A_CALL), LIST("", " far", A_CALL NEXT));
	expect(CONTINUED("answer") NAMED TOOL("false", A_IS_1), LIST("{\"a\": 1}"),
	       LIST(NEXT A_CALL, A_CALL));
	expect(CONTINUED("answer") "\"thinking_token_budget\": 7", NULL, NULL);
	for (int shown = 1; shown >= 0; shown--) {
		demo.svc.reasoning = shown;
		expect(CONTINUED("thought") FIVE, LIST(" I know." NEXT MESSAGE("final") "5"),
		       LIST("5", MESSAGE("final") "5"));
	}
	expect("\"add_generation_prompt\": false, " FIVE, LIST("<|start|>assistant" MESSAGE("final") "5"),
	       LIST("5", MESSAGE("final") "5"));
	refused(CONTINUED("call") FIVE, "continue_final_message",
		"the final message ends within a call of a tool");
	chat_free((struct chat *)demo.svc.chat);
	demo.svc.chat = chat;
}

Test(chat_constraint, an_answer_has_its_form_unless_a_tool_is_called)
{
	const char *format = "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": "
			     "{\"const\": 5}}}";
	char both[1024];
	expect(format, LIST("5", "<think>Five\n</think>\n\n5"), LIST("6", "<think>5", "x</think>5"));
	snprintf(both, sizeof both, "%s, %s", format, TOOL("false", A_IS_1));
	expect(both, LIST("5", CALL, "<think>x</think>" CALL), LIST("6", OTHER, "5" CALL, "Hello" CALL));
	demo.svc.marks = reasoning_marks_named("cohere");
	expect(format, LIST("5", "<|START_THINKING|>x<|END_THINKING|><|START_RESPONSE|>5<|END_RESPONSE|>"),
	       LIST("<|START_RESPONSE|>6<|END_RESPONSE|>"));
	demo.svc.marks = NULL;
	demo.svc.reasoning = false;
	expect(format, LIST("5"), LIST("<think>Five\n</think>\n\n5"));
}

Test(chat_constraint, a_thought_has_its_budget)
{
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	expect("\"thinking_token_budget\": 7", LIST("Hello", "<think>\nx</think>Hello"),
	       LIST("<think>x", "\xff"));
	cr_assert_eq(ask("\"thinking_token_budget\": 7", &s, &reply, &p), 0);
	cr_expect(strstr(s->params.constraint->text, "\"tokens\":7"), "%s", s->params.constraint->text);
	submit_free(s);
	expect("\"thinking_token_budget\": 0", LIST("Hello"), LIST("<think>\nx</think>Hello"));
	expect("\"thinking_token_budget\": 0, \"chat_template_kwargs\": {\"thinks\": true}",
	       LIST("\n</think>\n\nHello", "</think>"), LIST("x</think>Hello", "Hello"));
	refused("\"thinking_token_budget\": -1", "thinking_token_budget", "must be from 0");
	/* The template can switch its reasoning off, so no constraint is needed. */
	expect("\"reasoning_effort\": \"none\"", NULL, NULL);
	demo.svc.reasoning = false;
	cr_assert_eq(ask("\"thinking_token_budget\": 7", &s, &reply, &p), 0);
	cr_expect_null(s->params.constraint);
	cr_expect(strstr(reply.ignored, "thinking_token_budget"), "%s", reply.ignored);
	submit_free(s);
	demo.svc.strict = true;
	refused("\"thinking_token_budget\": 7", "thinking_token_budget", "no reasoning");
}

Test(chat_constraint, what_an_answer_cannot_keep_is_named_by_its_place_in_the_request)
{
	static const char schema[] =
		"\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": "
		"\"x\", \"schema\": {\"properties\": {\"a\": {\"uniqueItems\": true}}}}}";
	static const char *const with[] = {"", ", \"enable_thinking\": false", ", " TOOL("true", A_IS_1)};
	for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
		struct submit *s = NULL;
		struct api_reply reply;
		struct api_problem p;
		char fields[1024];
		snprintf(fields, sizeof fields, "%s%s", schema, with[i]);
		cr_assert_eq(ask(fields, &s, &reply, &p), -EINVAL, "%s", fields);
		cr_expect_str_eq(p.param, "response_format");
		cr_expect(strncmp(p.why, "response_format: #/properties/a: uniqueItems", 44) == 0, "%s: %s",
			  with[i], p.why);
	}
}

/* Each name pattern doubles the states of the names that match no pattern. Even a tool that need not be
 * strict is refused rather than given any object, since the work is already done. */
Test(chat_constraint, a_tool_that_takes_too_much_work_is_refused)
{
	static const char *const stricts[] = {"true", "false"};
	struct buf patterns = {0};
	for (int i = 0; i < 30; i++)
		buf_printf(&patterns, "%s\".*a.{%d}\": {\"type\": \"string\"}", i ? ", " : "", i);
	for (size_t i = 0; i < 2; i++) {
		struct buf fields = {0};
		buf_printf(
			&fields,
			"\"tool_choice\": \"required\", \"tools\": [{\"type\": \"function\", \"function\": "
			"{\"name\": \"f\", \"strict\": %s, \"parameters\": {\"patternProperties\": {%s}}}}]",
			stricts[i], patterns.p);
		refused(fields.p, "tools", "the limit of a request");
		buf_fini(&fields);
	}
	buf_fini(&patterns);
}
