/* Chats with parsed outputs (tool calls, reasoning) give the same result streamed and whole. */
#include "controller/request/chat_request.h"

#include "tests/wire/http_rig.h"

#include <sys/stat.h>

TestSuite(http_chat, .timeout = 60, .fini = stop);

/* A ChatML template that shows its whole input, and opens the reasoning if enable_thinking is set. */
static const char template[] =
	"{%- if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
	"<tool_call>{{ '\n' }}...</tool_call><|im_end|>\n{% endif %}"
	"{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
	"{%- for c in m.tool_calls or [] %}<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": "
	"{{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
	"{%- if add_generation_prompt %}<|im_start|>assistant\n"
	"{%- if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}{% endif %}"
	"{#- </think> #}";

static char dir[] = "/tmp/quern-chat-XXXXXX";

static void start_chat(void)
{
	struct http_config cfg = {.addr = "127.0.0.1:0"};
	struct why why = {""};
	char path[64];
	load();
	chat_free(chat);
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
	FILE *f = fopen(path, "w");
	fputs(template, f);
	fclose(f);
	int rc = chat_load(dir, &chat, &why);
	unlink(path);
	rmdir(dir);
	cr_assert(rc == 0, "%s", why.text);
	svc.chat = chat;
	cr_assert(chat_request_styles(&svc, "auto", "auto", &why) == 0, "%s", why.text);
	cr_assert(svc.tools == TOOLS_HERMES && svc.reasoning);
	start_with(&cfg);
}

#define WEATHER                                                                                              \
	"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":"           \
	"{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}}}]"

/* Return a request that gives the output `text`. */
static char *says(const char *text, const char *more)
{
	struct buf b = {0};
	json_t *s = json_string(text);
	char *quoted = json_dumps(s, JSON_ENCODE_ANY);
	buf_printf(&b, "{" CHAT ",\"user\":\"say\",\"cache_salt\":%s%s%s}", quoted, more[0] ? "," : "", more);
	free(quoted);
	json_decref(s);
	return buf_take(&b);
}

/* Return the message that a client assembles from a stream's deltas, and its finish reason. */
static json_t *added_up(json_t *events, const char **finish)
{
	json_t *m = json_pack("{s:s, s:s, s:[]}", "content", "", "reasoning_content", "", "tool_calls"), *e,
	       *c;
	size_t i, k;
	json_array_foreach(events, i, e)
	{
		const json_t *d = json_object_get(choice(e, 0), "delta");
		static const char *const texts[] = {"content", "reasoning_content"};
		for (int t = 0; t < 2; t++) {
			char *all = xasprintf("%s%s", text_of(m, texts[t]), text_of(d, texts[t]));
			json_object_set_new(m, texts[t], json_string(all));
			free(all);
		}
		json_array_foreach(json_object_get(d, "tool_calls"), k, c)
		{
			json_t *calls = json_object_get(m, "tool_calls");
			size_t index = (size_t)json_integer_value(json_object_get(c, "index"));
			cr_assert(index <= json_array_size(calls), "calls come in order");
			if (index == json_array_size(calls)) {
				cr_expect(*text_of(c, "id") && !strcmp(text_of(c, "type"), "function"));
				json_array_append_new(
					calls, json_pack("{s:s, s:s}", "name",
							 text_of(json_object_get(c, "function"), "name"),
							 "arguments", ""));
			} else {
				cr_expect_null(json_object_get(c, "id"));
				cr_expect_null(json_object_get(json_object_get(c, "function"), "name"));
			}
			json_t *call = json_array_get(calls, index);
			char *all = xasprintf("%s%s", text_of(call, "arguments"),
					      text_of(json_object_get(c, "function"), "arguments"));
			json_object_set_new(call, "arguments", json_string(all));
			free(all);
		}
		const char *f = text_of(choice(e, 0), "finish_reason");
		*finish = *f ? f : *finish;
	}
	return m;
}

struct want {
	const char *reasoning, *content; /* content: NULL for null */
	const char *calls[4];            /* name, arguments, ... */
	const char *finish;
};

static void expect_calls(const json_t *calls, const struct want *w, bool flat)
{
	size_t n = 0;
	while (n < 2 && w->calls[2 * n])
		n++;
	cr_expect(json_array_size(calls) == n, "%zu calls instead of %zu", json_array_size(calls), n);
	for (size_t i = 0; i < n; i++) {
		const json_t *c = json_array_get(calls, i);
		const json_t *f = flat ? c : json_object_get(c, "function");
		cr_expect_str_eq(text_of(f, "name"), w->calls[2 * i]);
		cr_expect_str_eq(text_of(f, "arguments"), w->calls[2 * i + 1]);
		if (!flat)
			cr_expect(!strncmp(text_of(c, "id"), "call_", 5));
	}
}

static void expect_message(const char *text, const char *more, struct want w)
{
	char *body = says(text, more);
	struct answer a = post("/v1/chat/completions", body);
	free(body);
	cr_assert(a.status == 200, "%s", a.raw.p);
	const json_t *m = json_object_get(choice(a.json, 0), "message"),
		     *content = json_object_get(m, "content");
	if (w.content)
		cr_expect_str_eq(text_of(m, "content"), w.content, "%s", a.raw.p);
	else
		cr_expect(json_is_null(content), "%s", a.raw.p);
	cr_expect_str_eq(text_of(m, "reasoning_content"), w.reasoning, "%s", a.raw.p);
	expect_calls(json_object_get(m, "tool_calls"), &w, false);
	cr_expect_str_eq(text_of(choice(a.json, 0), "finish_reason"), w.finish, "%s", a.raw.p);
	answer_fini(&a);

	char *with = xasprintf("%s%s\"stream\":true", more, more[0] ? "," : "");
	body = says(text, with);
	free(with);
	a = post("/v1/chat/completions", body);
	free(body);
	json_t *events = events_of(&a);
	const char *finish = "";
	json_t *sum = added_up(events, &finish);
	cr_expect_str_eq(text_of(sum, "content"), w.content ? w.content : "", "%s", a.raw.p);
	cr_expect_str_eq(text_of(sum, "reasoning_content"), w.reasoning, "%s", a.raw.p);
	expect_calls(json_object_get(sum, "tool_calls"), &w, true);
	cr_expect_str_eq(finish, w.finish, "%s", a.raw.p);
	json_decref(sum);
	json_decref(events);
	answer_fini(&a);
}

#define CALL(args) "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " args "}\n</tool_call>"

Test(http_chat, a_call_is_parsed_streamed_and_whole)
{
	start_chat();
	expect_message(CALL("{\"city\": \"Paris\"}"), WEATHER,
		       (struct want){"", NULL, {"get_weather", "{\"city\": \"Paris\"}"}, "tool_calls"});
	expect_message("Let me see.\n" CALL("{\"city\": \"A\"}") "\n" CALL("{\"city\": \"B\"}"), WEATHER,
		       (struct want){"",
				     "Let me see.",
				     {"get_weather", "{\"city\": \"A\"}", "get_weather", "{\"city\": \"B\"}"},
				     "tool_calls"});
	expect_message("No need.", WEATHER, (struct want){"", "No need.", {0}, "stop"});
}

Test(http_chat, without_tools_a_call_is_text)
{
	start_chat();
	expect_message(CALL("{}"), "", (struct want){"", CALL("{}"), {0}, "stop"});
	expect_message(CALL("{}"), WEATHER ",\"tool_choice\":\"none\"",
		       (struct want){"", CALL("{}"), {0}, "stop"});
}

Test(http_chat, without_parallel_calls_there_is_one_at_most)
{
	start_chat();
	expect_message(CALL("{\"a\": 1}") CALL("{\"b\": 2}"), WEATHER ",\"parallel_tool_calls\":false",
		       (struct want){"", NULL, {"get_weather", "{\"a\": 1}"}, "tool_calls"});
}

Test(http_chat, a_named_tool_is_called)
{
	start_chat();
	/* The prompt contains the beginning of the call; the model generates the rest. */
	expect_message(" {\"city\": \"Rome\"}}\n</tool_call> and more",
		       WEATHER
		       ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}}",
		       (struct want){"", NULL, {"get_weather", "{\"city\": \"Rome\"}"}, "stop"});
	char *body = xasprintf("{" CHAT "," WEATHER
			       ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":"
			       "\"get_weather\"}},\"max_tokens\":1,\"return_token_ids\":true}");
	struct answer a = post("/v1/chat/completions", body);
	cr_expect(a.status == 200, "%s", a.raw.p);
	answer_fini(&a);
	free(body);
}

Test(http_chat, a_call_that_is_cut_ends_by_length)
{
	start_chat();
	char *body = says(CALL("{\"city\": \"Paris\"}"), WEATHER ",\"max_tokens\":12");
	struct answer a = post("/v1/chat/completions", body);
	const json_t *c = choice(a.json, 0);
	cr_expect_str_eq(text_of(c, "finish_reason"), "length", "%s", a.raw.p);
	answer_fini(&a);
	free(body);
}

Test(http_chat, reasoning_is_separated_from_the_content)
{
	start_chat();
	expect_message("<think>\nHm. So.\n</think>\n\nYes.", "",
		       (struct want){"Hm. So.", "Yes.", {0}, "stop"});
	expect_message("<think>\nHm.\n</think>\n\nYes.", "\"include_reasoning\":false",
		       (struct want){"", "Yes.", {0}, "stop"});
	expect_message("Yes.", "", (struct want){"", "Yes.", {0}, "stop"});
	expect_message("<think>\nHm.", "", (struct want){"Hm.", NULL, {0}, "stop"});
	expect_message("<think>Weather?</think>" CALL("{}"), WEATHER,
		       (struct want){"Weather?", NULL, {"get_weather", "{}"}, "tool_calls"});
}

Test(http_chat, a_prompt_that_opens_the_reasoning_is_recognized)
{
	start_chat();
	expect_message("Hm.\n</think>\n\nYes.", "\"chat_template_kwargs\":{\"enable_thinking\":true}",
		       (struct want){"Hm.", "Yes.", {0}, "stop"});
}

Test(http_chat, deepseeks_outputs_begin_within_the_reasoning)
{
	struct why why;
	start_chat();
	cr_assert(chat_request_styles(&svc, "auto", "deepseek_r1", &why) == 0);
	expect_message("Hm.\n</think>\n\nYes.", "", (struct want){"Hm.", "Yes.", {0}, "stop"});
	cr_assert(chat_request_styles(&svc, "none", "none", &why) == 0);
	expect_message("<think>a</think>b", "", (struct want){"", "<think>a</think>b", {0}, "stop"});
	cr_expect(chat_request_styles(&svc, "harmony", "none", &why) == 0 && !svc.reasoning);
	expect_message("<|channel|>final<|message|>b", "", (struct want){"", "b", {0}, "stop"});
	cr_expect(chat_request_styles(&svc, "hermes", "harmony", &why) < 0);
	cr_expect(strstr(why.text, "does not go with"), "%s", why.text);
	cr_expect(chat_request_styles(&svc, "auto", "harmony", &why) == 0 && svc.tools == TOOLS_NONE);
	cr_expect(chat_request_styles(&svc, "harmony", "auto", &why) == 0 && !svc.reasoning);
	cr_expect(chat_request_styles(&svc, "xml", "none", &why) < 0);
	cr_expect(chat_request_styles(&svc, "auto", "loud", &why) < 0);
}

Test(http_chat, messages_may_hold_calls_and_their_results)
{
	start_chat();
	struct answer a =
		post("/tokenize",
		     "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\","
		     "\"content\":null,"
		     "\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
		     "\"arguments\":\"{\\\"a\\\": "
		     "1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":"
		     "\"42\"}],\"add_generation_prompt\":false}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	char *ids = json_dumps(json_object_get(a.json, "tokens"), 0),
	     *body = xasprintf("{\"tokens\":%s}", ids);
	answer_fini(&a);
	a = post("/detokenize", body);
	cr_expect_str_eq(
		text_of(a.json, "prompt"),
		"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<tool_call>{\"name\": \"f\", "
		"\"arguments\": {\"a\": 1}}</tool_call>"
		"<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n",
		"%s", a.raw.p);
	answer_fini(&a);
	free(ids);
	free(body);
}

Test(http_chat, errors_in_tools_name_the_field)
{
	static const struct {
		const char *more, *param, *words;
	} cases[] = {
		{"\"tools\":[1]", "tools", "tools[0].type"},
		{"\"tools\":{}", "tools", "array"},
		{"\"tools\":[{\"type\":\"function\"}]", "tools", "function must be an object"},
		{"\"tools\":[{\"type\":\"custom\",\"custom\":{}}]", "tools", "type"},
		{"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "tools", "name"},
		{"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":1}}]",
		 "tools", "parameters"},
		{"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":1}}]", "tools",
		 "strict"},
		{"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,"
		 "\"parameters\":{\"properties\":{\"a\":{\"uniqueItems\":true}}}}}]",
		 "tools", "uniqueItems"},
		{WEATHER ",\"tool_choice\":\"always\"", "tool_choice", "must be"},
		{WEATHER ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}",
		 "tool_choice", "none of the tools"},
		{WEATHER ",\"tool_choice\":{\"type\":\"custom\"}", "tool_choice", "custom is not known"},
		{WEATHER ",\"tool_choice\":{\"type\":\"allowed_tools\"}", "tool_choice", "must have a mode"},
		{WEATHER ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"none\","
			 "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}}]}}",
		 "tool_choice", "must have a mode"},
		{WEATHER ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
			 "\"tools\":[]}}",
		 "tool_choice", "at least one"},
		{WEATHER ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
			 "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}}",
		 "tool_choice", "tools[0] is none of the tools"},
		{WEATHER ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
			 "\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\"}]}}",
		 "tool_choice", "tools[0] must be"},
		{"\"tool_choice\":\"required\"", "tool_choice", "needs tools"},
		{"\"parallel_tool_calls\":1", "parallel_tool_calls", "true or false"},
		{"\"chat_template_kwargs\":[]", "chat_template_kwargs", "object"},
	};
	start_chat();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *body = says("x", cases[i].more);
		struct answer a = post("/v1/chat/completions", body);
		cr_expect(a.raw.p && strstr(a.raw.p, cases[i].words), "%s: %s", cases[i].more, a.raw.p);
		expect_error(a, 400, NULL, cases[i].param);
		free(body);
	}
}

Test(http_chat, variables_unknown_to_the_template_are_named)
{
	start_chat();
	char *body = says(
		"x", "\"chat_template_kwargs\":{\"enable_thinking\":false,\"colour\":1},\"reasoning_effort\":"
		     "\"high\"");
	struct answer a = post("/v1/chat/completions", body);
	cr_expect_str_eq(answer_header(&a, "x-quern-ignored"),
			 "chat_template_kwargs.colour, reasoning_effort", "%s", a.raw.p);
	answer_fini(&a);
	svc.strict = true;
	expect_error(post("/v1/chat/completions", body), 400, NULL, "chat_template_kwargs");
	free(body);
}

Test(http_chat, a_template_without_tools_takes_none)
{
	start();
	char *body = says("x", WEATHER);
	expect_error(post("/v1/chat/completions", body), 400, NULL, "tools");
	svc.tools = TOOLS_HERMES; /* --tool-parser */
	struct answer a = post("/v1/chat/completions", body);
	cr_expect_not_null(strstr(a.raw.p, "takes no tools"));
	expect_error(a, 400, NULL, "tools");
	free(body);
}
