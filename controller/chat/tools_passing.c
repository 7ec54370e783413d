#include "controller/chat/tools_passing.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Convert [{"type": "function", "function": F}] to [F]. */
static json_t *functions_of(const json_t *tools)
{
	json_t *list = json_array();
	const json_t *tool;
	size_t i;
	json_array_foreach(tools, i, tool)
	{
		json_t *f = json_object_get(tool, "function");
		json_array_append(list, f ? f : (json_t *)tool);
	}
	return list;
}

static void add_member(json_t *messages, const json_t *functions)
{
	const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
	if (!role || strcmp(role, "system") != 0)
		json_array_insert_new(messages, 0, json_pack("{s:s, s:s}", "role", "system", "content", ""));
	json_t *first = json_copy(json_array_get(messages, 0));
	char *text = json_text(functions, 0);
	json_object_set_new(first, "tools", json_string(text));
	json_array_set_new(messages, 0, first);
	free(text);
}

/* Return today's date in local time.  A prompt without the time of day shares its prefix with others. */
static json_t *today(void)
{
	char text[32];
	struct tm tm;
	const time_t now = time(NULL);
	localtime_r(&now, &tm);
	strftime(text, sizeof text, "%Y-%m-%d", &tm);
	return json_string(text);
}

/* Add a variable unless the request has it.  Takes ownership of value. */
static void add_variable(json_t *variables, const char *name, json_t *value)
{
	if (json_object_get(variables, name))
		json_decref(value);
	else
		json_object_set_new(variables, name, value);
}

static void add_functions(json_t *variables, const json_t *functions)
{
	char *text = json_text(functions, JSON_INDENT(4));
	add_variable(variables, "functions", json_string(text));
	add_variable(variables, "datetime", today());
	free(text);
}

json_t *tools_pass(enum tools_passing way, const json_t *tools, const json_t *variables, json_t *messages)
{
	static const char *const names[TOOLS_N_PASSINGS] = {
		[TOOLS_PASS_CUSTOM] = "custom_tools",
		[TOOLS_PASS_XML] = "xml_tools",
	};
	const bool always = way == TOOLS_PASS_FUNCTIONS;
	if (!always && (!json_array_size(tools) || (!names[way] && way != TOOLS_PASS_MEMBER)))
		return json_incref((json_t *)variables);
	json_t *all = variables ? json_copy((json_t *)variables) : json_object();
	json_t *list = way == TOOLS_PASS_CUSTOM ? json_incref((json_t *)tools) : functions_of(tools);
	if (way == TOOLS_PASS_MEMBER)
		add_member(messages, list);
	else if (way == TOOLS_PASS_FUNCTIONS)
		add_functions(all, list);
	else
		add_variable(all, names[way], json_incref(list));
	json_decref(list);
	return all;
}
