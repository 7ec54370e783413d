/* Responses API requests become requests of the chat dialect. */
#include "controller/apis/openai/responses_read.h"
#include "tests/unit/apis/read_rig.h"

#include "base/buf.h"

TestSuite(responses_read, .timeout = 60);

static json_t *read_one(const json_t *client)
{
	json_t *request, *items;
	struct api_problem p = {0};
	cr_assert_eq(responses_read(client, NULL, &request, &items, &p), 0, "%s", p.why);
	json_decref(items);
	return request;
}

static const json_t *content_of(const json_t *request)
{
	return json_object_get(json_array_get(json_object_get(request, "messages"), 0), "content");
}

Test(responses_read, parts_are_joined_with_every_byte)
{
	json_t *c = parsed("{\"input\": [{\"role\": \"user\", \"content\": ["
			   "{\"type\": \"input_text\", \"text\": \"a\\u0000b\"},"
			   "{\"type\": \"text\", \"text\": \"\"},"
			   "{\"type\": \"output_text\", \"text\": \"\\u20ac\"}]}]}");
	json_t *r = read_one(c);
	const json_t *text = content_of(r);
	cr_assert_eq(json_string_length(text), 6);
	cr_expect_arr_eq(json_string_value(text), "a\0b\xe2\x82\xac", 6);
	json_decref(r);
	json_decref(c);
}

static void becomes_behind(const char *history, const char *client, const char *want)
{
	json_t *h = history ? parsed(history) : NULL, *c = parsed(client), *request, *items;
	struct api_problem p = {0};
	cr_assert_eq(responses_read(c, h, &request, &items, &p), 0, "%s: %s", client, p.why);
	expect_json(request, want, client);
	json_decref(request);
	json_decref(items);
	json_decref(h);
	json_decref(c);
}

static void becomes(const char *client, const char *want)
{
	becomes_behind(NULL, client, want);
}

#define INPUT(items) "{\"input\": [" items "]}"
#define TURNS(turns) "{\"messages\": [" turns "]}"
#define USER(text)   "{\"role\": \"user\", \"content\": \"" text "\"}"
#define THOUGHT(text)                                                                                        \
	"{\"type\": \"reasoning\", \"content\": [{\"type\": \"reasoning_text\", \"text\": \"" text "\"}]}"
#define SAID(text)                                                                                           \
	"{\"type\": \"message\", \"role\": \"assistant\", \"content\": [{\"type\": \"output_text\", "        \
	"\"text\": \"" text "\"}]}"
#define CALL(id, name)                                                                                       \
	"{\"type\": \"function_call\", \"call_id\": \"" id "\", \"name\": \"" name                           \
	"\", \"arguments\": \"{}\"}"
#define CALLED(id, name)                                                                                     \
	"{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"" name                      \
	"\", \"arguments\": \"{}\"}}"
#define RESULT(id, text)                                                                                     \
	"{\"type\": \"function_call_output\", \"call_id\": \"" id "\", \"output\": \"" text "\"}"
#define TOOL(id, text) "{\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": \"" text "\"}"

Test(responses_read, a_thought_a_text_and_calls_are_one_turn)
{
	becomes(INPUT(USER("a") ", " THOUGHT("hm") ", " SAID("so") ", " CALL("1", "f") ", " CALL(
			"2", "g") ", " RESULT("1", "x") ", " RESULT("2", "y") ", " SAID("b")),
		TURNS(USER(
			"a") ", {\"role\": \"assistant\", \"reasoning_content\": \"hm\", \"content\": "
			     "\"so\", "
			     "\"tool_calls\": [" CALLED("1", "f") ", " CALLED("2", "g") "]}, " TOOL(
				     "1",
				     "x") ", " TOOL("2",
						    "y") ", {\"role\": \"assistant\", \"content\": \"b\"}"));
	/* A call without a text, and a call after the result of another call. */
	becomes(INPUT(CALL("1", "f") ", " RESULT("1", "x") ", " CALL("2", "g")),
		TURNS("{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" CALLED(
			"1", "f") "]}, " TOOL("1", "x") ", {\"role\": \"assistant\", \"content\": null, "
							"\"tool_calls\": [" CALLED("2", "g") "]}"));
}

Test(responses_read, what_a_turn_has_already_begins_another)
{
	becomes(INPUT(SAID("a") ", " SAID("b")), TURNS("{\"role\": \"assistant\", \"content\": \"a\"}, "
						       "{\"role\": \"assistant\", \"content\": \"b\"}"));
	becomes(INPUT(CALL("1", "f") ", " SAID("b")),
		TURNS("{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" CALLED(
			"1", "f") "]}, "
				  "{\"role\": \"assistant\", \"content\": \"b\"}"));
	becomes(INPUT(THOUGHT("hm") ", " THOUGHT("so")),
		TURNS("{\"role\": \"assistant\", \"reasoning_content\": \"hm\", \"content\": \"\"}, "
		      "{\"role\": \"assistant\", \"reasoning_content\": \"so\", \"content\": \"\"}"));
	becomes(INPUT(SAID("a") ", " USER("u") ", " CALL("1", "f")),
		TURNS("{\"role\": \"assistant\", \"content\": \"a\"}, " USER(
			"u") ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
			     "[" CALLED("1", "f") "]}"));
}

Test(responses_read, a_thought_of_another_service_is_its_summary)
{
	becomes(INPUT("{\"type\": \"reasoning\", \"content\": [], \"summary\": [{\"type\": \"summary_text\", "
		      "\"text\": "
		      "\"hm\"}]}, " SAID("a")),
		TURNS("{\"role\": \"assistant\", \"reasoning_content\": \"hm\", \"content\": \"a\"}"));
	becomes(INPUT("{\"type\": \"reasoning\", \"summary\": []}, " SAID("a")),
		TURNS("{\"role\": \"assistant\", \"content\": \"a\"}"));
}

Test(responses_read, instructions_then_the_history_then_the_input)
{
	becomes_behind(
		"[" SAID("h") "]", "{\"instructions\": \"i\", \"input\": \"a\"}",
		TURNS("{\"role\": \"system\", \"content\": \"i\"}, {\"role\": \"assistant\", \"content\": "
		      "\"h\"}, " USER("a")));
}

Test(responses_read, fields_become_those_of_a_chat)
{
	becomes("{\"input\": \"a\", \"max_output_tokens\": 9, \"reasoning\": {\"effort\": \"low\"}, "
		"\"temperature\": 0.5, "
		"\"store\": false, \"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"n\", "
		"\"schema\": {}}}}",
		"{\"messages\": [" USER(
			"a") "], \"max_completion_tokens\": 9, \"reasoning_effort\": \"low\", "
			     "\"temperature\": 0.5, \"response_format\": {\"type\": \"json_schema\", "
			     "\"json_schema\": {\"name\": "
			     "\"n\", \"schema\": {}}}}");
	becomes("{\"input\": \"a\", \"tools\": [{\"type\": \"function\", \"name\": \"f\", \"strict\": true, "
		"\"parameters\": {}, \"x\": 1}], \"tool_choice\": {\"type\": \"function\", \"name\": \"f\"}}",
		"{\"messages\": [" USER(
			"a") "], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "
			     "\"strict\": true, \"parameters\": {}}}], \"tool_choice\": {\"type\": "
			     "\"function\", \"function\": "
			     "{\"name\": \"f\"}}}");
	/* Without tools the choice is ignored, unless it requires a call. */
	becomes("{\"input\": \"a\", \"tools\": [], \"tool_choice\": \"auto\", \"text\": {\"format\": "
		"{\"type\": "
		"\"text\"}}}",
		TURNS(USER("a")));
	becomes("{\"input\": \"a\", \"tool_choice\": \"required\"}",
		"{\"messages\": [" USER("a") "], \"tool_choice\": \"required\"}");
}

Test(responses_read, as_many_parts_as_a_body_holds_are_joined_once)
{
	enum { FIRST = 4 << 20, PARTS = 200000 };
	char *first = malloc(FIRST);
	cr_assert(first);
	memset(first, 'a', FIRST);
	json_t *part = json_pack("{s:s, s:s}", "type", "input_text", "text", "b");
	json_t *parts = json_array();
	json_array_append_new(parts,
			      json_pack("{s:s, s:s%}", "type", "input_text", "text", first, (size_t)FIRST));
	for (int i = 0; i < PARTS; i++)
		json_array_append(parts, part);
	json_t *c = json_pack("{s:[{s:s, s:o}]}", "input", "role", "user", "content", parts);
	json_t *r = read_one(c);
	cr_expect_eq(json_string_length(content_of(r)), (size_t)FIRST + PARTS);
	json_decref(r);
	json_decref(c);
	json_decref(part);
	free(first);
}

#define TOOLS                                                                                                \
	"\"tools\": [{\"type\": \"function\", \"name\": \"f\"}, {\"type\": \"function\", \"name\": \"g\"}]"
#define FUNCTION(name) "{\"type\": \"function\", \"name\": \"" name "\"}"

Test(responses_read, some_tools_are_allowed)
{
	static const char *const modes[][2] = {
		{"\"mode\": \"auto\",", "auto"}, {"\"mode\": \"required\",", "required"}, {"", "auto"}};
	char text[512], want[256];
	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
		snprintf(text, sizeof text,
			 "{\"input\": \"a\", " TOOLS ", \"tool_choice\": {\"type\": \"allowed_tools\", %s"
			 " \"tools\": [" FUNCTION("g") "]}}",
			 modes[i][0]);
		snprintf(want, sizeof want,
			 "{\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"%s\", \"tools\": ["
			 "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]}}",
			 modes[i][1]);
		json_t *c = parsed(text), *r = read_one(c);
		expect_json(json_object_get(r, "tool_choice"), want, text);
		json_decref(r);
		json_decref(c);
	}
}

static void expect_refused(const char *text, const char *param, const char *why)
{
	json_t *c = parsed(text), *request, *items;
	struct api_problem p = {0};
	cr_assert_neq(responses_read(c, NULL, &request, &items, &p), 0, "%s", text);
	cr_expect_str_eq(p.param, param, "%s", text);
	cr_expect(strstr(p.why, why), "%s: %s", text, p.why);
	json_decref(c);
}

Test(responses_read, what_is_not_a_choice_of_tools_is_refused)
{
#define CHOICE(rest) "{\"input\": \"a\", " TOOLS ", \"tool_choice\": {\"type\": \"allowed_tools\", " rest "}}"
	expect_refused(CHOICE("\"mode\": \"auto\""), "tool_choice", "tool_choice.tools");
	expect_refused(CHOICE("\"mode\": \"none\", \"tools\": [" FUNCTION("f") "]"), "tool_choice", "mode");
	expect_refused(CHOICE("\"mode\": 1, \"tools\": [" FUNCTION("f") "]"), "tool_choice", "mode");
	expect_refused(CHOICE("\"tools\": [" FUNCTION("f") ", " FUNCTION("h") "]"), "tool_choice",
		       "tools[1] is none");
	expect_refused(CHOICE("\"tools\": [{\"type\": \"mcp\", \"name\": \"f\"}]"), "tool_choice",
		       "tools[0] must be");
	expect_refused(CHOICE("\"tools\": [3]"), "tool_choice", "tools[0] must be");
	expect_refused(
		"{\"input\": \"a\", \"tool_choice\": {\"type\": \"allowed_tools\", \"tools\": [" FUNCTION(
			"f") "]}}",
		"tool_choice", "tools[0] is none");
	expect_refused("{\"input\": \"a\", \"tool_choice\": {\"type\": \"mcp\"}}", "tool_choice", "mcp");
}

Test(responses_read, what_an_item_lacks_is_named_with_its_place)
{
	expect_refused("{}", "input", "missing");
	expect_refused(INPUT(USER("a") ", {\"role\": \"tool\", \"content\": \"b\"}"), "input[1].role",
		       "must be user");
	expect_refused(INPUT("{\"role\": \"user\", \"content\": 5}"), "input[0].content",
		       "a string or an array");
	expect_refused(INPUT("{\"role\": \"user\", \"content\": [{\"type\": \"input_image\"}]}"),
		       "input[0].content", "a part 0 of type input_image");
	expect_refused(INPUT("{\"type\": \"function_call\", \"call_id\": \"1\", \"name\": \"f\"}"),
		       "input[0]", "needs the strings");
	expect_refused(INPUT("{\"type\": \"function_call_output\", \"output\": \"x\"}"), "input[0].call_id",
		       "a string");
	expect_refused(INPUT("{\"type\": \"item_reference\", \"id\": \"x\"}"), "input[0].type",
		       "is item_reference, which is not supported");
	expect_refused(INPUT("{}"), "input[0].type", "is of no type");
	expect_refused(INPUT("5"), "input[0]", "must be an item");
	expect_refused("{\"input\": \"a\", \"tools\": [{\"type\": \"web_search\"}]}", "tools[0]",
		       "web_search");
	expect_refused("{\"input\": \"a\", \"text\": {\"format\": {\"type\": \"xml\"}}}", "text.format",
		       "must be of type");
	expect_refused("{\"input\": \"a\", \"reasoning\": {\"effort\": 5}}", "reasoning.effort",
		       "must be a string");
}

static void repeats(const char *client, const char *member, const char *want)
{
	json_t *c = parsed(client), *o = responses_repeat(c), *v = json_object_get(o, member);
	char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : strdup("absent");
	cr_expect_str_eq(text, want, "%s of %s: %s", member, client, text);
	free(text);
	json_decref(o);
	json_decref(c);
}

Test(responses_read, what_was_not_sent_is_repeated_as_its_default)
{
	repeats("{}", "instructions", "null");
	repeats("{\"instructions\": \"i\"}", "instructions", "\"i\"");
	repeats("{}", "tool_choice", "\"auto\"");
	repeats("{}", "parallel_tool_calls", "true");
	repeats("{\"parallel_tool_calls\": false}", "parallel_tool_calls", "false");
	repeats("{}", "text", "{\"format\":{\"type\":\"text\"}}");
	repeats("{}", "reasoning", "{\"effort\":null,\"summary\":null}");
	repeats("{}", "conversation", "absent");
	repeats("{\"conversation\": \"c\"}", "conversation", "{\"id\":\"c\"}");
	repeats("{\"conversation\": {\"id\": \"c\", \"x\": 1}}", "conversation", "{\"id\":\"c\"}");
	repeats("{\"max_tool_calls\": \"x\"}", "max_tool_calls", "null");
	repeats("{\"tools\": [{\"type\": \"function\", \"name\": \"f\"}]}", "tools",
		"[{\"type\":\"function\",\"name\":\"f\",\"strict\":null,\"parameters\":null}]");
	repeats("{\"safety_identifier\": 5}", "safety_identifier", "absent");
	repeats("{\"prompt_cache_key\": \"k\"}", "prompt_cache_key", "\"k\"");
}

/* Return a request with one metadata entry; key and value are counted in characters of 3 bytes. */
static json_t *with_metadata(size_t key, size_t value)
{
	struct buf k = {0}, v = {0};
	while (key--)
		buf_puts(&k, "\xe2\x82\xac");
	while (value--)
		buf_puts(&v, "\xe2\x82\xac");
	buf_putc(&k, 0);
	json_t *c = json_pack("{s:s, s:{s:s%}}", "input", "a", "metadata", k.p, v.p ? v.p : "", v.len);
	buf_fini(&k);
	buf_fini(&v);
	return c;
}

Test(responses_read, metadata_are_bounded_in_characters)
{
	static const struct {
		size_t key, value;
		bool fits;
	} cases[] = {{64, 512, true}, {65, 1, false}, {1, 513, false}, {0, 0, true}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		json_t *c = with_metadata(cases[i].key, cases[i].value), *request, *items;
		struct api_problem p = {0};
		const int rc = responses_read(c, NULL, &request, &items, &p);
		cr_expect_eq(rc == 0, cases[i].fits, "%zu: %s", i, p.why);
		if (rc)
			cr_expect_str_eq(p.param, "metadata");
		json_decref(request);
		json_decref(items);
		json_decref(c);
	}
	json_t *all = json_object(), *c = json_pack("{s:s, s:o}", "input", "a", "metadata", all), *request,
	       *items;
	struct api_problem p = {0};
	for (int i = 0; i < 17; i++) {
		char key[8];
		snprintf(key, sizeof key, "%d", i);
		json_object_set_new(all, key, json_string("v"));
		cr_expect_eq(responses_read(c, NULL, &request, &items, &p) == 0, i < 16, "%d: %s", i, p.why);
		json_decref(request);
		json_decref(items);
	}
	json_decref(c);
	expect_refused("{\"input\": \"a\", \"metadata\": {\"a\": 1}}", "metadata", "texts");
}

Test(responses_read, what_is_repeated_is_bounded)
{
	char text[512], id[66];
	memset(id, 'a', sizeof id);
	for (int n = 64; n <= 65; n++) {
		snprintf(text, sizeof text,
			 "{\"safety_identifier\": \"%.*s\", \"prompt_cache_key\": [1], "
			 "\"max_tool_calls\": {\"a\": 1}}",
			 n, id);
		json_t *c = parsed(text), *o = responses_repeat(c);
		cr_expect_eq(json_object_get(o, "safety_identifier") != NULL, n == 64);
		cr_expect_null(json_object_get(o, "prompt_cache_key"));
		cr_expect(json_is_null(json_object_get(o, "max_tool_calls")));
		json_decref(o);
		json_decref(c);
	}
}
