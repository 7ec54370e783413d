/* Requests of OpenAI's Responses API in the chat dialect. */
#include "controller/apis/openai/responses_read.h"
#include "tests/unit/apis/read_rig.h"

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
