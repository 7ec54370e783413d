#include "controller/request/tool_request.h"

#include <string.h>

/* Check OpenAI's rule for names, which cannot forge markup within a prompt. */
static bool is_name(const json_t *v)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	size_t n = json_is_string(v) ? json_string_length(v) : 0;
	return n && n <= TOOLREQ_NAME_MAX && strspn(s, plain) == n;
}

static int check_tool(const json_t *tool, size_t at, struct api_problem *p)
{
	const json_t *type = json_object_get(tool, "type"), *f = json_object_get(tool, "function");
	const json_t *description = json_object_get(f, "description");
	const json_t *parameters = json_object_get(f, "parameters");
	if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
		return api_fail(p, E_BAD_REQUEST, "tools", "tools[%zu].type must be \"function\"", at);
	if (!json_is_object(f))
		return api_fail(p, E_BAD_REQUEST, "tools", "tools[%zu].function must be an object", at);
	if (!is_name(json_object_get(f, "name")))
		return api_fail(p, E_BAD_REQUEST, "tools",
				"tools[%zu].function.name must be 1 to %d of A-Za-z0-9_.-", at,
				TOOLREQ_NAME_MAX);
	if (description && !json_is_string(description) && !json_is_null(description))
		return api_fail(p, E_BAD_REQUEST, "tools", "tools[%zu].function.description must be a string",
				at);
	if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
		return api_fail(p, E_BAD_REQUEST, "tools",
				"tools[%zu].function.parameters must be a JSON schema, an object", at);
	const json_t *strict = json_object_get(f, "strict");
	if (strict && !json_is_boolean(strict) && !json_is_null(strict))
		return api_fail(p, E_BAD_REQUEST, "tools", "tools[%zu].function.strict must be true or false",
				at);
	return 0;
}

static const json_t *find(const json_t *tools, const char *name)
{
	size_t i;
	const json_t *tool;
	json_array_foreach(tools, i, tool)
	{
		const json_t *n = json_object_get(json_object_get(tool, "function"), "name");
		if (!strcmp(json_string_value(n), name))
			return n;
	}
	return NULL;
}

/* Read which tools may be called; the prompt shows all tools. */
static int read_allowed(const json_t *choice, struct tool_request *out, struct api_problem *p)
{
	const json_t *allowed = json_object_get(choice, "allowed_tools"), *v;
	const json_t *mode = json_object_get(allowed, "mode"), *list = json_object_get(allowed, "tools");
	const char *m = json_is_string(mode) ? json_string_value(mode) : "";
	size_t i;
	if ((strcmp(m, "auto") != 0 && strcmp(m, "required") != 0) || !json_array_size(list))
		return api_fail(
			p, E_BAD_REQUEST, "tool_choice",
			"tool_choice.allowed_tools must have a mode, \"auto\" or \"required\", and tools, "
			"at least one");
	json_array_foreach(list, i, v)
	{
		const json_t *type = json_object_get(v, "type");
		const json_t *name = json_object_get(json_object_get(v, "function"), "name");
		if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0 ||
		    !json_is_string(name))
			return api_fail(
				p, E_BAD_REQUEST, "tool_choice",
				"tool_choice.allowed_tools.tools[%zu] must be {\"type\": \"function\", "
				"\"function\": {\"name\": ...}}",
				i);
		if (!find(out->tools, json_string_value(name)))
			return api_fail(p, E_BAD_REQUEST, "tool_choice",
					"tool_choice.allowed_tools.tools[%zu] is none of the tools", i);
	}
	out->allowed = list;
	out->required = strcmp(m, "required") == 0;
	return 0;
}

json_t *tool_request_callable(const struct tool_request *t)
{
	json_t *some = json_array(), *tool;
	size_t i;
	json_array_foreach(t->tools, i, tool)
	{
		const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
		if (!t->allowed || find(t->allowed, json_string_value(name)))
			json_array_append(some, tool);
	}
	return some;
}

static int read_named(const json_t *choice, struct tool_request *out, struct api_problem *p)
{
	const json_t *type = json_object_get(choice, "type");
	const json_t *name = json_object_get(json_object_get(choice, "function"), "name");
	if (json_is_string(type) && strcmp(json_string_value(type), "allowed_tools") == 0)
		return read_allowed(choice, out, p);
	if (json_is_string(type) && strcmp(json_string_value(type), "function") != 0)
		return api_fail(p, E_BAD_REQUEST, "tool_choice",
				"tool_choice of type %.32s is not known, only function and allowed_tools",
				json_string_value(type));
	if (!json_is_string(type) || !json_is_string(name))
		return api_fail(
			p, E_BAD_REQUEST, "tool_choice",
			"tool_choice must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", "
			"\"function\": {\"name\": ...}}");
	name = find(out->tools, json_string_value(name));
	if (!name)
		return api_fail(p, E_BAD_REQUEST, "tool_choice", "tool_choice names none of the tools");
	out->forced = json_string_value(name);
	return 0;
}

static int read_choice(const json_t *choice, struct tool_request *out, struct api_problem *p)
{
	if (json_is_object(choice))
		return read_named(choice, out, p);
	const char *s = json_is_string(choice) ? json_string_value(choice) : "";
	if (!strcmp(s, "auto"))
		return 0;
	if (!strcmp(s, "none")) {
		*out = (struct tool_request){0};
		return 0;
	}
	if (!strcmp(s, "required") && !out->tools)
		return api_fail(p, E_BAD_REQUEST, "tool_choice", "tool_choice \"required\" needs tools");
	out->required = !strcmp(s, "required");
	return out->required ? 0 : read_named(choice, out, p);
}

int tool_request_read(const json_t *tools, const json_t *choice, enum tools_style style,
		      struct tool_request *out, struct api_problem *p)
{
	size_t i, n = json_array_size(tools);
	const json_t *tool;
	*out = (struct tool_request){0};
	if (n > TOOLREQ_TOOLS_MAX)
		return api_fail(p, E_BAD_REQUEST, "tools", "tools has %zu entries, at most %d are accepted",
				n, TOOLREQ_TOOLS_MAX);
	json_array_foreach(tools, i, tool)
	{
		int rc = check_tool(tool, i, p);
		if (rc)
			return rc;
		out->strict |= json_is_true(json_object_get(json_object_get(tool, "function"), "strict"));
	}
	if (n) {
		out->tools = tools;
		out->may_call = true;
	}
	int rc = choice ? read_choice(choice, out, p) : 0;
	if (rc)
		return rc;
	if (out->tools && style == TOOLS_NONE)
		return api_fail(p, E_BAD_REQUEST, "tools",
				"the style in which this model's template calls tools is not known: set "
				"--tool-parser");
	return 0;
}
