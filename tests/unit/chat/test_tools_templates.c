/* Formats of tool calls, tested with the models' own templates: a call that the template writes is read back
 * unchanged. The templates are independent of this parser. */
#include "controller/chat/reasoning.h"
#include "controller/chat/tools.h"
#include "controller/chat/tools_probe.h"
#include "tests/unit/chat/chat_help.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(tools_templates, .timeout = 120);

static const char tools[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Weather.\", "
	"\"parameters\": {\"type\": \"object\", \"properties\": {"
	"\"city\": {\"type\": \"string\", \"description\": \"c\"}, \"days\": {\"type\": \"integer\", "
	"\"description\": \"d\"}, \"exact\": {\"type\": \"boolean\", \"description\": \"e\"}, \"tags\": "
	"{\"type\": "
	"\"array\", \"description\": \"t\", \"items\": {\"type\": \"string\"}}}, \"required\": "
	"[\"city\"]}}}, "
	"{\"type\": \"function\", \"function\": {\"name\": \"now\", \"description\": \"Time.\", "
	"\"parameters\": "
	"{\"type\": \"object\", \"properties\": {\"zone\": {\"type\": \"string\", \"description\": "
	"\"z\"}}}}}]";

static const char first[] =
	"{\"city\": \"Paris, 12\\n\\\"x\\\"\", \"days\": 3, \"exact\": true, \"tags\": [\"a\", \"b\"]}";
static const char second[] = "{\"zone\": \"7\"}";

/* ---- parsed calls ---- */

struct calls {
	int n;
	char name[8][64];
	struct buf arguments[8];
};

static void on_text(void *user, const char *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

static void on_begin(void *user, uint32_t call, const char *name, size_t n)
{
	struct calls *c = user;
	cr_assert(call < 8 && (int)call == c->n);
	snprintf(c->name[c->n++], sizeof c->name[0], "%.*s", (int)n, name);
}

static void on_arguments(void *user, uint32_t call, const char *p, size_t n)
{
	buf_put(&((struct calls *)user)->arguments[call], p, n);
}

static void expect_call(const struct calls *c, int i, const char *name, const char *arguments, const char *of)
{
	cr_expect(i < c->n && !strcmp(c->name[i], name), "%s: call %d of %d is %s", of, i, c->n,
		  i < c->n ? c->name[i] : "missing");
	if (i >= c->n)
		return;
	json_t *got = json_loads(c->arguments[i].p ? c->arguments[i].p : "", 0, NULL);
	json_t *want = json_loads(arguments, 0, NULL);
	cr_expect(got && json_equal(got, want), "%s: call %d has the arguments %s instead of %s", of, i,
		  c->arguments[i].p, arguments);
	json_decref(got);
	json_decref(want);
}

/* ---- rendered prompts ---- */

static char *rendered(const struct chat *c, bool with_calls, int n_calls, struct why *why)
{
	json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "What is the weather?");
	struct chat_prompt p = {0};
	if (with_calls) {
		json_t *calls = json_pack("[{s:s, s:s, s:{s:s, s:s}}]", "id", "call00001", "type", "function",
					  "function", "name", "get_weather", "arguments", first);
		if (n_calls > 1)
			json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", "call00002",
							       "type", "function", "function", "name", "now",
							       "arguments", second));
		json_array_append_new(messages, json_pack("{s:s, s:s, s:o}", "role", "assistant", "content",
							  "", "tool_calls", calls));
		json_array_append_new(messages,
				      json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "content", "ok",
						"name", "get_weather", "tool_call_id", "call00001"));
	}
	json_t *declared = json_loads(tools, 0, NULL);
	struct chat_input rq = {
		.messages = messages, .tools = declared, .add_generation_prompt = !with_calls};
	const int rc = chat_render_json(c, &rq, &p, why);
	char *text = rc ? NULL : strdup(p.text.p ? p.text.p : "");
	chat_prompt_fini(&p);
	json_decref(messages);
	json_decref(declared);
	return text;
}

/* Take the assistant's message as the template writes it: the text after the common start with the generation
 * prompt. Expect the parser to read it back. */
static void round_trip(const char *template_text, const char *name, enum tools_style want, int n_calls)
{
	struct chat *c;
	struct why why = {""};
	cr_assert_eq(chat_help_load(template_text, "<s>", "</s>", &c, &why), 0, "%s: %s", name, why.text);
	const enum tools_style probed = tools_probe(c);
	cr_expect_eq(probed, want, "%s: probed as %s", name, probed ? tools_format(probed)->name : "none");
	char *prompt = rendered(c, false, 0, &why), *all = rendered(c, true, n_calls, &why);
	cr_assert(prompt && all, "%s: %s", name, why.text);
	size_t same = 0;
	while (prompt[same] && prompt[same] == all[same])
		same++;
	/* The prompt may open the reasoning, which a message with a call does not show. */
	while (prompt[same] && same && all[same - 1] != '\n' && all[same - 1] != '>')
		same--;
	json_t *declared = json_loads(tools, 0, NULL);
	struct calls got = {0};
	struct tools_sink to = {on_text, on_begin, on_arguments, &got};
	struct tools t;
	struct buf thought = {0}, answer = {0};
	struct reasoning r;
	reasoning_init(&r, false);
	if (tools_format(want)->channels) {
		r.marks = reasoning_marks_named("harmony");
		reasoning_push(&r, all + same, strlen(all + same), &thought, &answer);
		reasoning_end(&r, &thought, &answer);
	} else {
		buf_puts(&answer, all + same);
	}
	tools_init(&t, want, declared);
	tools_push(&t, answer.p, answer.len, &to);
	tools_end(&t, &to);
	reasoning_fini(&r);
	buf_fini(&thought);
	buf_fini(&answer);
	expect_call(&got, 0, "get_weather", first, name);
	if (n_calls > 1)
		expect_call(&got, 1, "now", second, name);
	cr_expect(got.n == n_calls, "%s: %d calls in %s", name, got.n, all + same);
	for (int i = 0; i < 8; i++)
		buf_fini(&got.arguments[i]);
	tools_fini(&t);
	json_decref(declared);
	free(prompt);
	free(all);
	chat_free(c);
}

static bool mentions(const void *text, const char *word)
{
	return strstr(text, word) != NULL;
}

Test(tools_templates, what_a_template_writes_is_read_back)
{
	static const struct {
		const char *file;
		enum tools_style style;
		int n_calls;
	} all[] = {
		{"Apertus-8B-Instruct.jinja", TOOLS_APERTUS, 2},
		{"Apriel-1.6-15b-Thinker-fixed.jinja", TOOLS_APRIEL, 2},
		{"unsloth-Apriel-1.5.jinja", TOOLS_APRIEL, 2},
		{"CohereForAI-c4ai-command-r-plus-tool_use.jinja", TOOLS_COMMAND_R, 2},
		{"meetkai-functionary-medium-v3.1.jinja", TOOLS_FUNCTIONARY_V31, 2},
		{"fireworks-ai-llama-3-firefunction-v2.jinja", TOOLS_FIREFUNCTION, 2},
		{"ByteDance-Seed-OSS.jinja", TOOLS_SEED_OSS, 2},
		{"Cohere2MoE.jinja", TOOLS_COHERE, 2},
		{"CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", TOOLS_COHERE, 2},
		{"GLM-4.6.jinja", TOOLS_GLM45, 2},
		{"GLM-4.7-Flash.jinja", TOOLS_GLM45, 2},
		{"GLM-5.2.jinja", TOOLS_GLM45, 2},
		{"moonshotai-Kimi-K2.jinja", TOOLS_KIMI_K2, 2},
		{"Mistral-Small-3.2-24B-Instruct-2506.jinja", TOOLS_MISTRAL, 2},
		{"mistralai-Mistral-Nemo-Instruct-2407.jinja", TOOLS_MISTRAL, 2},
		{"mistralai-Ministral-3-14B-Reasoning-2512.jinja", TOOLS_MISTRAL, 2},
		{"unsloth-mistral-Devstral-Small-2507.jinja", TOOLS_MISTRAL, 2},
		{"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja", TOOLS_QWEN3_CODER, 2},
		{"Qwen3-Coder.jinja", TOOLS_QWEN3_CODER, 2},
		{"Qwen3.5-4B.jinja", TOOLS_QWEN3_CODER, 2},
		{"StepFun3.5-Flash.jinja", TOOLS_QWEN3_CODER, 2},
		{"stepfun-ai-Step-3.5-Flash.jinja", TOOLS_QWEN3_CODER, 2},
		{"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", TOOLS_HERMES, 2},
		{"Qwen-QwQ-32B.jinja", TOOLS_HERMES, 2},
		{"Qwen-Qwen2.5-7B-Instruct.jinja", TOOLS_HERMES, 2},
		{"Qwen-Qwen3-0.6B.jinja", TOOLS_HERMES, 2},
		{"Bielik-11B-v3.0-Instruct.jinja", TOOLS_HERMES, 2},
		{"MiMo-VL.jinja", TOOLS_HERMES, 2},
		{"Reka-Edge.jinja", TOOLS_HERMES, 2},
		{"deepseek-ai-DeepSeek-V3.1.jinja", TOOLS_DEEPSEEK_V31, 2},
		{"deepseek-ai-DeepSeek-V3.2.jinja", TOOLS_DEEPSEEK_V32, 2},
		{"deepseek-ai-DeepSeek-V4.jinja", TOOLS_DEEPSEEK_V32, 2},
		{"google-gemma-4-31B-it.jinja", TOOLS_GEMMA4, 2},
		{"google-gemma-4-31B-it-interleaved.jinja", TOOLS_GEMMA4, 2},
		{"meta-llama-Llama-3.1-8B-Instruct.jinja", TOOLS_LLAMA3, 1},
		{"meta-llama-Llama-3.2-3B-Instruct.jinja", TOOLS_LLAMA3, 1},
		{"openai-gpt-oss-120b.jinja", TOOLS_HARMONY, 1},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		char *text = chat_help_template(all[i].file);
		if (!text)
			cr_skip_test("the test data are not installed: %s", all[i].file);
		const enum tools_style style = tools_style_of(mentions, NULL, text);
		cr_expect(style == all[i].style, "%s: recognized as %s", all[i].file,
			  style ? tools_format(style)->name : "none");
		round_trip(text, all[i].file, all[i].style, all[i].n_calls);
		free(text);
	}
}

/* These templates show no call, or use a format that the table lacks. */
Test(tools_templates, others_are_recognized_or_not_taken_for_a_format)
{
	static const struct {
		const char *file;
		enum tools_style style;
	} all[] = {
		{"LFM2-8B-A1B.jinja", TOOLS_LFM2},
		{"ibm-granite-granite-3.3-2B-Instruct.jinja", TOOLS_GRANITE},
		{"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", TOOLS_DEEPSEEK_V3},
		{"Kimi-K2-Thinking.jinja", TOOLS_KIMI_K2},
		{"GigaChat3-10B-A1.8B.jinja", TOOLS_NONE},
		{"GigaChat3.1-10B-A1.8B.jinja", TOOLS_NONE},
		{"meetkai-functionary-medium-v3.2.jinja", TOOLS_NONE},
		{"google-gemma-2-2b-it.jinja", TOOLS_NONE},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		char *text = chat_help_template(all[i].file);
		if (!text)
			cr_skip_test("the test data are not installed: %s", all[i].file);
		const enum tools_style style = tools_style_of(mentions, NULL, text);
		cr_expect(style == all[i].style, "%s: recognized as %s", all[i].file,
			  style ? tools_format(style)->name : "none");
		free(text);
	}
}
