/* Requests of OpenAI's Responses API in the chat dialect. */
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

/* Metadata of one text, of this many characters, each of them n bytes. */
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
