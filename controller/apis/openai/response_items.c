#include "controller/apis/openai/responses_read.h"

#include "base/json.h"
#include "controller/jobs/file_store.h"

#include <stdbool.h>
#include <string.h>

static bool is(const json_t *item, const char *member, const char *value)
{
	const char *v = json_string_value(json_get(item, member));
	return v && strcmp(v, value) == 0;
}

static json_t *parts_of(const json_t *text, bool ours)
{
	if (ours)
		return json_pack("[{s:s, s:O, s:[], s:[]}]", "type", "output_text", "text", text,
				 "annotations", "logprobs");
	return json_pack("[{s:s, s:O}]", "type", "input_text", "text", text);
}

json_t *response_item_listed(const json_t *item, const char *id)
{
	json_t *o = json_copy((json_t *)item);
	const json_t *content = json_get(item, "content");
	if (!json_is_string(json_get(item, "type")))
		json_object_set_new(o, "type", json_string("message"));
	const bool message = is(o, "type", "message") && json_is_string(json_get(item, "role"));
	if (message && json_is_string(content))
		json_object_set_new(o, "content", parts_of(content, is(item, "role", "assistant")));
	if (is(o, "type", "reasoning") && !json_is_array(json_get(item, "summary")))
		json_object_set_new(o, "summary", json_array());
	if (!json_get(item, "status"))
		json_object_set_new(o, "status", json_string("completed"));
	if (id && !json_is_string(json_get(item, "id")))
		json_object_set_new(o, "id", json_string(id));
	return o;
}

static const char *prefix_of(const json_t *item)
{
	static const char *const types[][2] = {
		{"function_call_output", "fco_"}, {"function_call", "fc_"}, {"reasoning", "rs_"}};
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (is(item, "type", types[i][0]))
			return types[i][1];
	return "msg_";
}

json_t *response_items_named(const json_t *items)
{
	char id[FILE_ID_SIZE];
	json_t *all = json_array();
	for (size_t i = 0; i < json_array_size(items); i++) {
		json_t *o = response_item_listed(json_array_get(items, i), NULL);
		file_store_id(id, prefix_of(o));
		json_object_set_new(o, "id", json_string(id));
		json_array_append_new(all, o);
	}
	return all;
}
