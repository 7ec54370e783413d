/* Ollama requests become requests of the chat and completions dialects. */
#include "controller/apis/ollama/ollama_read.h"
#include "proto/params.h"
#include "tests/unit/apis/read_rig.h"

TestSuite(ollama_read, .timeout = 60);

static const struct ollama_reading of_chat = {.chats = true, .thinks = true, .call_ids = true},
				   of_generate = {.generate = true, .chats = true, .thinks = true};

static void becomes(const struct ollama_reading *how, const char *client, const char *want)
{
	json_t *c = parsed(client);
	struct ollama_request r;
	struct api_problem p = {0};
	cr_assert_eq(ollama_read(c, how, &r, &p), 0, "%s: %s", client, p.why);
	cr_expect_str_eq(r.ignored, "", "%s", r.ignored);
	expect_json(r.request, want, client);
	json_decref(r.request);
	json_decref(c);
}

static void refused(const struct ollama_reading *how, const char *client, const char *param)
{
	json_t *c = parsed(client);
	struct ollama_request r;
	struct api_problem p = {0};
	cr_assert_neq(ollama_read(c, how, &r, &p), 0, "taken: %s", client);
	cr_expect_str_eq(p.param, param, "%s: %s", client, p.why);
	json_decref(c);
}

static void ignores(const struct ollama_reading *how, const char *client, const char *names)
{
	json_t *c = parsed(client);
	struct ollama_request r;
	struct api_problem p = {0};
	cr_assert_eq(ollama_read(c, how, &r, &p), 0, "%s: %s", client, p.why);
	cr_expect_str_eq(r.ignored, names, "%s: %s", client, r.ignored);
	json_decref(r.request);
	json_decref(c);
}

#define ASK "\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]"

Test(ollama_read, a_chat_streams_unless_it_says_otherwise)
{
	becomes(&of_chat, "{" ASK "}", "{" ASK ", \"stream\": true}");
	becomes(&of_chat, "{" ASK ", \"stream\": false}", "{" ASK ", \"stream\": false}");
	becomes(&of_chat, "{\"model\": \"m:latest\", \"messages\": [], \"stream\": false}",
		"{\"model\": \"m\", \"messages\": [], \"stream\": false}");
	becomes(&of_chat, "{\"model\": \":latest\", \"messages\": [], \"stream\": false}",
		"{\"model\": \":latest\", \"messages\": [], \"stream\": false}");
	refused(&of_chat, "{\"messages\": []}", "model");
}

Test(ollama_read, options_become_fields)
{
	becomes(&of_chat,
		"{" ASK
		", \"stream\": false, \"options\": {\"num_predict\": 9, \"temperature\": 0.5, \"top_k\": 3, "
		"\"top_p\": 0.5, \"min_p\": 0.1, \"typical_p\": 0.9, \"repeat_penalty\": 1.1, "
		"\"presence_penalty\": 1, "
		"\"frequency_penalty\": 0.5, \"seed\": 7, \"stop\": [\"x\"], \"mirostat\": 1, "
		"\"mirostat_tau\": 4, "
		"\"mirostat_eta\": 0.2}}",
		"{" ASK
		", \"stream\": false, \"max_tokens\": 9, \"temperature\": 0.5, \"top_k\": 3, \"top_p\": 0.5, "
		"\"min_p\": 0.1, \"typical_p\": 0.9, \"repetition_penalty\": 1.1, \"presence_penalty\": 1, "
		"\"mirostat\": 1, \"mirostat_tau\": 4, \"mirostat_eta\": 0.2, "
		"\"frequency_penalty\": 0.5, \"seed\": 7, \"stop\": [\"x\"]}");
	becomes(&of_chat, "{" ASK ", \"options\": {\"num_predict\": -1, \"seed\": -1, \"stop\": []}}",
		"{" ASK ", \"stream\": true}");
	refused(&of_chat, "{" ASK ", \"options\": {\"num_predict\": 0}}", "options.num_predict");
	refused(&of_chat, "{" ASK ", \"options\": {\"mirostat\": 3}}", "options.mirostat");
	refused(&of_chat, "{" ASK ", \"options\": {\"top_k\": \"x\"}}", "options.top_k");
	refused(&of_chat, "{" ASK ", \"options\": []}", "options");
}

Test(ollama_read, parameters_of_the_table_are_options)
{
	size_t n = 0;
	for (const struct params_row *row = params_rows; row < params_rows + n_params_rows; row++) {
		char client[256], want[256], name[64];
		if (!row->ollama)
			continue;
		snprintf(client, sizeof client, "{%s, \"options\": {\"%s\": %.10g}}", ASK, row->ollama,
			 row->hi);
		snprintf(want, sizeof want, "{%s, \"stream\": true, \"%s\": %.10g}", ASK, row->name, row->hi);
		becomes(&of_chat, client, want);
		snprintf(client, sizeof client, "{%s, \"options\": {\"%s\": \"x\"}}", ASK, row->ollama);
		snprintf(name, sizeof name, "options.%s", row->ollama);
		refused(&of_chat, client, name);
		n++;
	}
	cr_expect_eq(n, 11);
}

Test(ollama_read, what_has_no_effect_is_named)
{
	json_t *c = parsed(
		"{" ASK
		", \"keep_alive\": 5, \"brand_new\": 1, \"options\": {\"num_ctx\": 4096, \"new\": 1}}");
	struct ollama_reading strict = of_chat;
	struct ollama_request r;
	struct api_problem p = {0};
	cr_assert_eq(ollama_read(c, &of_chat, &r, &p), 0, "%s", p.why);
	cr_expect_str_eq(r.ignored, "keep_alive, brand_new, options.num_ctx, options.new");
	json_decref(r.request);
	strict.strict = true;
	cr_assert_neq(ollama_read(c, &strict, &r, &p), 0);
	cr_expect_str_eq(p.param, "brand_new");
	json_decref(c);
}

Test(ollama_read, a_form_and_a_thought)
{
	becomes(&of_chat, "{" ASK ", \"stream\": false, \"format\": \"json\", \"think\": true}",
		"{" ASK ", \"stream\": false, \"format\": \"json\", \"enable_thinking\": true}");
	becomes(&of_chat,
		"{" ASK ", \"stream\": false, \"format\": {\"type\": \"object\"}, \"think\": \"low\"}",
		"{" ASK
		", \"stream\": false, \"format\": {\"type\": \"object\"}, \"reasoning_effort\": \"low\"}");
	/* constraints in the syntax of other servers pass, too */
	becomes(&of_chat, "{" ASK ", \"stream\": false, \"regex\": \"a\", \"guided_json\": {}}",
		"{" ASK ", \"stream\": false, \"regex\": \"a\", \"guided_json\": {}}");
	refused(&of_chat, "{" ASK ", \"think\": \"deep\"}", "think");
	becomes(&of_chat, "{" ASK ", \"stream\": false, \"think\": \"max\"}",
		"{" ASK ", \"stream\": false, \"reasoning_effort\": \"high\"}");
}

/* If the template has no switch for thinking, the reasoning is not shown. With a raw prompt it is ordinary
 * text. */
Test(ollama_read, a_thought_that_cannot_be_switched_off_is_not_shown)
{
	const struct ollama_reading no_switch = {.chats = true}, raw = {.generate = true, .chats = true};
	static const char *const thinks[] = {"true", "false", "\"high\""};
	becomes(&no_switch, "{" ASK ", \"stream\": false, \"think\": false}",
		"{" ASK ", \"stream\": false, \"include_reasoning\": false}");
	ignores(&no_switch, "{" ASK ", \"think\": true}", "think");
	for (size_t i = 0; i < 3; i++) {
		char text[128];
		snprintf(text, sizeof text,
			 "{\"model\": \"m\", \"prompt\": \"p\", \"raw\": true, \"think\": %s}", thinks[i]);
		ignores(&raw, text, "think");
	}
}

Test(ollama_read, results_find_their_calls)
{
	becomes(&of_chat,
		"{\"model\": \"m\", \"stream\": false, \"messages\": [{\"role\": \"assistant\", \"content\": "
		"\"\", "
		"\"thinking\": \"hm\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
		"{\"k\": 1}}}, "
		"{\"function\": {\"name\": \"g\"}}]}, {\"role\": \"tool\", \"tool_name\": \"g\", "
		"\"content\": \"G\"}, "
		"{\"role\": \"tool\", \"content\": \"F\"}]}",
		"{\"model\": \"m\", \"stream\": false, \"messages\": [{\"role\": \"assistant\", \"content\": "
		"\"\", "
		"\"reasoning_content\": \"hm\", \"tool_calls\": [{\"id\": \"call_0\", \"type\": "
		"\"function\", "
		"\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"k\\\":1}\"}}, {\"id\": \"call_1\", "
		"\"type\": "
		"\"function\", \"function\": {\"name\": \"g\", \"arguments\": \"{}\"}}]}, {\"role\": "
		"\"tool\", \"name\": "
		"\"g\", \"tool_call_id\": \"call_1\", \"content\": \"G\"}, {\"role\": \"tool\", "
		"\"tool_call_id\": "
		"\"call_0\", \"content\": \"F\"}]}");
}

/* The client's own id names the call. If the template shows no ids, none is invented. */
Test(ollama_read, a_result_may_name_its_call)
{
	static const char *const want[] = {"c2", "c1", NULL};
	json_t *c =
		parsed("{\"model\": \"m\", \"messages\": [{\"role\": \"assistant\", \"tool_calls\": ["
		       "{\"id\": \"c1\", \"function\": {\"name\": \"f\"}}, {\"id\": \"c2\", \"function\": "
		       "{\"name\": \"f\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c2\"}, "
		       "{\"role\": \"tool\", \"tool_name\": \"f\"}, {\"role\": \"tool\"}]}");
	const struct ollama_reading no_ids = {.chats = true};
	struct ollama_request r;
	struct api_problem p = {0};
	for (int shown = 0; shown < 2; shown++) {
		cr_assert_eq(ollama_read(c, shown ? &of_chat : &no_ids, &r, &p), 0, "%s", p.why);
		cr_expect_str_eq(r.ignored, "");
		const json_t *messages = json_object_get(r.request, "messages");
		for (size_t i = 0; i < 3; i++) {
			const char *id = json_string_value(
				json_object_get(json_array_get(messages, i + 1), "tool_call_id"));
			const char *wanted = shown || i == 0 ? want[i] : NULL;
			cr_expect(wanted ? id && strcmp(id, wanted) == 0 : !id, "result %zu answers %s", i,
				  id ? id : "none");
		}
		json_decref(r.request);
	}
	json_decref(c);
	refused(&of_chat, "{\"model\": \"m\", \"messages\": [{\"role\": \"tool\", \"tool_call_id\": 5}]}",
		"messages");
}

Test(ollama_read, members_of_messages_without_effect_are_named)
{
	struct ollama_reading strict = of_chat;
	ignores(&of_chat,
		"{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"a\", \"tool_name\": "
		"\"f\", "
		"\"images\": null, \"mood\": 1}], \"options\": {\"draft_num_predict\": 4}}",
		"messages.mood, messages.tool_name, options.draft_num_predict");
	strict.strict = true;
	refused(&strict, "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"mood\": 1}]}",
		"messages.mood");
}

/* The results come out of order, with and without a name, and outnumber the calls. Each takes the oldest open
 * call of its name, or else the oldest open call of all. */
Test(ollama_read, results_take_the_oldest_open_call)
{
	static const char *const results[] = {"g", NULL, "f", "other", "g", "f"};
	static const char *const want[] = {"call_1", "call_0", "call_2", "call_3", NULL, NULL};
	json_t *c = parsed("{\"model\": \"m\", \"messages\": [{\"role\": \"assistant\", \"tool_calls\": ["
			   "{\"function\": {\"name\": \"f\"}}, {\"function\": {\"name\": \"g\"}}, "
			   "{\"function\": {\"name\": \"f\"}}, {\"function\": {\"name\": \"g\"}}]}]}");
	json_t *messages = json_object_get(c, "messages");
	struct ollama_request r;
	struct api_problem p = {0};
	for (size_t i = 0; i < 6; i++)
		json_array_append_new(messages,
				      json_pack("{s:s, s:s*}", "role", "tool", "tool_name", results[i]));
	cr_assert_eq(ollama_read(c, &of_chat, &r, &p), 0, "%s", p.why);
	messages = json_object_get(r.request, "messages");
	for (size_t i = 0; i < 6; i++) {
		const char *id =
			json_string_value(json_object_get(json_array_get(messages, i + 1), "tool_call_id"));
		cr_expect(want[i] ? id && strcmp(id, want[i]) == 0 : !id, "result %zu answers %s", i,
			  id ? id : "none");
	}
	json_decref(r.request);
	json_decref(c);
}

/* A linear search for each result would take minutes here. */
Test(ollama_read, many_calls_and_results_take_their_length)
{
	enum { MANY = 60000 };
	json_t *messages = json_array(), *calls = json_array();
	json_t *c = json_pack("{s:s, s:o}", "model", "m", "messages", messages);
	struct ollama_request r;
	struct api_problem p = {0};
	for (size_t i = 0; i < MANY; i++)
		json_array_append_new(calls, json_pack("{s:{s:s}}", "function", "name", "f"));
	json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "assistant", "tool_calls", calls));
	for (size_t i = 0; i < MANY; i++)
		json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "tool", "tool_name", "g"));
	cr_assert_eq(ollama_read(c, &of_chat, &r, &p), 0, "%s", p.why);
	const json_t *last = json_array_get(json_object_get(r.request, "messages"), MANY);
	cr_expect_str_eq(json_string_value(json_object_get(last, "tool_call_id")), "call_59999");
	json_decref(r.request);
	json_decref(c);
}

Test(ollama_read, a_prompt_is_a_chat_unless_it_is_raw)
{
	const struct ollama_reading plain = {.generate = true};
	becomes(&of_generate, "{\"model\": \"m\", \"prompt\": \"p\", \"system\": \"s\", \"stream\": false}",
		"{\"model\": \"m\", \"stream\": false, \"messages\": [{\"role\": \"system\", \"content\": "
		"\"s\"}, "
		"{\"role\": \"user\", \"content\": \"p\"}]}");
	becomes(&of_generate, "{\"model\": \"m\", \"prompt\": \"p\", \"raw\": true, \"stream\": false}",
		"{\"model\": \"m\", \"stream\": false, \"prompt\": \"p\"}");
	becomes(&plain, "{\"model\": \"m\", \"prompt\": \"p\", \"logprobs\": true}",
		"{\"model\": \"m\", \"stream\": true, \"prompt\": \"p\", \"logprobs\": 0}");
	becomes(&plain, "{\"model\": \"m\", \"prompt\": \"p\", \"logprobs\": true, \"top_logprobs\": 3}",
		"{\"model\": \"m\", \"stream\": true, \"prompt\": \"p\", \"logprobs\": 3}");
	refused(&of_generate, "{\"model\": \"m\", \"prompt\": \"p\", \"raw\": true, \"system\": \"s\"}",
		"system");
	refused(&of_generate, "{\"model\": \"m\", \"prompt\": \"p\", \"template\": \"{{ .Prompt }}\"}",
		"template");
	refused(&of_generate, "{\"model\": \"m\", \"prompt\": \"p\", \"suffix\": \"s\"}", "suffix");
	refused(&of_generate, "{\"model\": \"m\", \"prompt\": \"p\", \"images\": [\"x\"]}", "images");
	refused(&of_generate, "{\"model\": \"m\", \"prompt\": \"p\", \"context\": [1]}", "context");
}

Test(ollama_read, nothing_to_generate_loads_or_unloads)
{
	static const struct {
		const char *text;
		bool generate, unload;
	} all[] = {
		{"{\"model\": \"m\"}", false, false},
		{"{\"model\": \"m\", \"messages\": []}", false, false},
		{"{\"model\": \"m\"}", true, false},
		{"{\"model\": \"m\", \"prompt\": \"\"}", true, false},
		{"{\"model\": \"m\", \"prompt\": \"\", \"keep_alive\": 0}", true, true},
		{"{\"model\": \"m\", \"prompt\": \"\", \"keep_alive\": \"0\"}", true, false},
		{"{\"model\": \"m\", \"prompt\": \"\", \"keep_alive\": 5}", true, false},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		json_t *c = parsed(all[i].text);
		struct ollama_request r;
		struct api_problem p = {0};
		cr_assert_eq(ollama_read(c, all[i].generate ? &of_generate : &of_chat, &r, &p), 0, "%s",
			     p.why);
		cr_expect(r.load && r.unload == all[i].unload, "%s", all[i].text);
		json_decref(r.request);
		json_decref(c);
	}
}

Test(ollama_read, every_wrong_type_is_an_error)
{
	static const char *const all[] = {
		"[5]",
		"[{}]",
		"[{\"role\": 5}]",
		"[{\"role\": \"user\", \"content\": 5}]",
		"[{\"role\": \"user\", \"content\": \"a\", \"images\": [\"x\"]}]",
		"[{\"role\": \"user\", \"content\": \"a\", \"images\": \"x\"}]",
		"[{\"role\": \"tool\", \"content\": \"a\", \"tool_name\": 5}]",
		"[{\"role\": \"assistant\", \"thinking\": 5}]",
		"[{\"role\": \"assistant\", \"tool_calls\": 5}]",
		"[{\"role\": \"assistant\", \"tool_calls\": [5]}]",
		"[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {}}]}]",
		"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":5}}]}]",
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		char text[256];
		snprintf(text, sizeof text, "{\"model\": \"m\", \"messages\": %s}", all[i]);
		refused(&of_chat, text, "messages");
	}
}
