#include "controller/apis/anthropic/anthropic_read.h"

#include "base/json.h"
#include "controller/request/request_fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct anthropic_reading *reading(const struct translation *t)
{
	return t->user;
}

static bool is_type(const json_t *o, const char *type)
{
	const json_t *t = json_object_get(o, "type");
	return json_is_string(t) && strcmp(json_string_value(t), type) == 0;
}

static const char *type_of(const json_t *o)
{
	const json_t *t = json_object_get(o, "type");
	return json_is_string(t) ? json_string_value(t) : "(none)";
}

/* --- tools --- */

static int read_tool(struct translation *t, const json_t *tool, size_t at, json_t *out)
{
	if (!json_is_object(tool))
		return api_fail(t->p, E_BAD_REQUEST, "tools", "tools[%zu] must be an object", at);
	const json_t *type = json_get(tool, "type"), *name = json_get(tool, "name");
	const json_t *schema = json_get(tool, "input_schema");
	if (type && !is_type(tool, "custom"))
		return api_fail(
			t->p, E_BAD_REQUEST, "tools",
			"tools[%zu].type \"%.64s\" is not taken: this service has no tools of its own, give "
			"name and input_schema",
			at, type_of(tool));
	if (!json_is_string(name))
		return api_fail(t->p, E_BAD_REQUEST, "tools", "tools[%zu].name must be a string", at);
	if (!json_is_object(schema))
		return api_fail(t->p, E_BAD_REQUEST, "tools",
				"tools[%zu].input_schema must be a JSON schema, an object", at);
	int rc = translate_members(t, tool, "tools.", &anthropic_tool_members);
	if (rc)
		return rc;
	json_t *f = json_pack("{s:O, s:O}", "name", name, "parameters", schema);
	const json_t *description = json_get(tool, "description"), *strict = json_get(tool, "strict");
	if (description)
		json_object_set(f, "description", (json_t *)description);
	if (strict)
		json_object_set(f, "strict", (json_t *)strict);
	json_array_append_new(out, json_pack("{s:s, s:o}", "type", "function", "function", f));
	return 0;
}

static int read_tools(struct translation *t, const json_t *v)
{
	size_t at;
	const json_t *tool;
	json_t *out = json_array();
	json_object_set_new(t->out, "tools", out);
	json_array_foreach(v, at, tool)
	{
		int rc = read_tool(t, tool, at, out);
		if (rc)
			return rc;
	}
	return 0;
}

static int read_tool_choice(struct translation *t, const json_t *v)
{
	static const char *const names[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
	const json_t *single = json_get(v, "disable_parallel_tool_use");
	json_t *choice = NULL;
	for (size_t i = 0; i < 3; i++)
		if (is_type(v, names[i][0]))
			choice = json_string(names[i][1]);
	if (is_type(v, "tool")) {
		const json_t *name = json_get(v, "name");
		if (!json_is_string(name))
			return api_fail(t->p, E_BAD_REQUEST, "tool_choice",
					"tool_choice.name must be a string");
		choice = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
	}
	if (!choice)
		return api_fail(t->p, E_BAD_REQUEST, "tool_choice",
				"tool_choice must be {\"type\": \"auto\"}, \"any\", \"none\", or \"tool\" "
				"with a name");
	json_object_set_new(t->out, "tool_choice", choice);
	if (!is_type(v, "tool") && json_get(v, "name"))
		translate_ignore(t, "tool_choice.name");
	if (single && !json_is_boolean(single))
		return api_fail(t->p, E_BAD_REQUEST, "tool_choice",
				"tool_choice.disable_parallel_tool_use must be true or false");
	if (json_is_true(single))
		json_object_set_new(t->out, "parallel_tool_calls", json_false());
	return translate_members(t, v, "tool_choice.", &anthropic_choice_members);
}

/* --- thinking and structured output --- */

static int read_thinking(struct translation *t, const json_t *v)
{
	const bool enabled = is_type(v, "enabled"), disabled = is_type(v, "disabled");
	if (!enabled && !disabled && !is_type(v, "adaptive") && !is_type(v, "between_tools"))
		return api_fail(t->p, E_BAD_REQUEST, "thinking",
				"thinking must be {\"type\": \"enabled\", \"budget_tokens\": N}, {\"type\": "
				"\"adaptive\"} or {\"type\": \"disabled\"}");
	const json_t *budget = json_get(v, "budget_tokens"), *display = json_get(v, "display");
	int64_t n;
	if (enabled && (!json_integral(budget, &n) || n < 1 || n > 1 << 30))
		return api_fail(t->p, E_BAD_REQUEST, "thinking",
				"thinking.budget_tokens must be an integer from 1 to %d", 1 << 30);
	if (enabled)
		json_object_set(t->out, "thinking_token_budget", (json_t *)budget);
	else if (budget)
		translate_ignore(t, "thinking.budget_tokens");
	if (display && !json_is_string(display))
		return api_fail(t->p, E_BAD_REQUEST, "thinking",
				"thinking.display must be \"summarized\" or \"omitted\"");
	if ((enabled || disabled) && reading(t)->thinks)
		json_object_set_new(t->out, "enable_thinking", json_boolean(enabled));
	else if (disabled)
		json_object_set_new(t->out, "include_reasoning", json_false());
	if (display && strcmp(json_string_value(display), "omitted") == 0)
		json_object_set_new(t->out, "include_reasoning", json_false());
	return translate_members(t, v, "thinking.", &anthropic_thinking_members);
}

static int read_format(struct translation *t, const json_t *format)
{
	const json_t *schema = json_get(format, "schema");
	if (!is_type(format, "json_schema") || !json_is_object(schema))
		return api_fail(t->p, E_BAD_REQUEST, t->within[0] ? "output_config" : "output_format",
				"the output's format must be {\"type\": \"json_schema\", \"schema\": {...}}");
	json_object_set_new(t->out, "response_format",
			    json_pack("{s:s, s:{s:s, s:O, s:b}}", "type", "json_schema", "json_schema",
				      "name", "output", "schema", schema, "strict", 1));
	return translate_members(t, format, t->within[0] ? "output_config.format." : "output_format.",
				 &anthropic_format_members);
}

static int read_effort(struct translation *t, const json_t *v)
{
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	/* Templates have only three levels. */
	if (!strcmp(s, "xhigh") || !strcmp(s, "max"))
		s = "high";
	if (strcmp(s, "low") != 0 && strcmp(s, "medium") != 0 && strcmp(s, "high") != 0)
		return api_fail(
			t->p, E_BAD_REQUEST, "output_config",
			"output_config.effort must be \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"");
	json_object_set_new(t->out, "reasoning_effort", json_string(s));
	return 0;
}

static const struct field_row config_rows[] = {
	{"effort", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "where the model's template has one"},
	{"format", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, "a JSON schema"},
};
static const struct translate_rule config_rules[] = {{"effort", NULL, read_effort},
						     {"format", NULL, read_format}};
static const struct field_table config_fields = {config_rows, 2, NULL};
static const struct translate_table config_table = {&config_fields, config_rules, 2, 0};

static int read_config(struct translation *t, const json_t *v)
{
	return translate_object(t, v, "output_config.", &config_table);
}

static int read_metadata(struct translation *t, const json_t *v)
{
	const json_t *user = json_get(v, "user_id");
	if (user && !reading(t)->count)
		json_object_set(t->out, "user", (json_t *)user);
	return translate_members(t, v, "metadata.", &anthropic_metadata_members);
}

static int read_stops(struct translation *t, const json_t *v)
{
	size_t at;
	const json_t *s;
	if (!json_is_array(v))
		return api_fail(t->p, E_BAD_REQUEST, "stop_sequences",
				"stop_sequences must be an array of strings");
	json_array_foreach(v, at, s) if (!json_is_string(s) || json_string_length(s) == 0) return api_fail(
		t->p, E_BAD_REQUEST, "stop_sequences",
		"stop_sequences[%zu] must be a string of 1 byte or more", at);
	json_object_set(t->out, "stop", (json_t *)v);
	return 0;
}

static int read_messages(struct translation *t, const json_t *v)
{
	return anthropic_messages_read(t, json_get(t->client, "system"), v);
}

#define NEUTRAL "[[], {}, \"\", false]"

static const struct field_row rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "must be the served one"},
	{"messages", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL,
	 "blocks `text`, `tool_use`, `tool_result`, `thinking`; `redacted_thinking` is ignored, others are "
	 "refused; "
	 "a last message of the assistant is continued"},
	{"system", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "a string, or blocks of text"},
	{"max_tokens", FIELD_INTEGER, FIELD_HONOURED, 1, 2147483647, NULL, "must be given"},
	{"temperature", FIELD_NUMBER, FIELD_HONOURED, 0, 1000, NULL, "also beyond 1"},
	{"top_p", FIELD_NUMBER, FIELD_HONOURED, 0, 1, NULL, NULL},
	{"top_k", FIELD_INTEGER, FIELD_HONOURED, -1, 2147483647, NULL, NULL},
	{"stop_sequences", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"stream", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"tools", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL,
	 "the client's own (`name`, `description`, `input_schema`, `strict`); tools that Anthropic runs are "
	 "refused"},
	{"tool_choice", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "`auto`, `any`, `tool`, `none`; `disable_parallel_tool_use`"},
	{"thinking", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "`enabled` with `budget_tokens`, which limits the thinking, `adaptive`, `disabled`; `display`"},
	{"output_config", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, "`format` (a JSON schema) and `effort`"},
	{"output_format", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "the older name of `output_config.format`"},
	{"response_format", FIELD_ANY, FIELD_REFUSED, 0, 0, NULL, "use output_config.format"},
	{"metadata", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "`user_id`: users divide what their API key gets"},
	{"cache_control", FIELD_OBJECT, FIELD_IGNORED, 0, 0, NULL, "prefixes are cached anyway"},
	{"service_tier", FIELD_STRING, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"inference_geo", FIELD_STRING, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"speed", FIELD_STRING, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"diagnostics", FIELD_OBJECT, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"context_management", FIELD_OBJECT, FIELD_IGNORED, 0, 0, NULL,
	 "nothing of a conversation is dropped"},
	{"user_profile_id", FIELD_STRING, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"workspace_id", FIELD_STRING, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"container", FIELD_STRING | FIELD_OBJECT, FIELD_NEUTRAL, 0, 0, NEUTRAL,
	 "this service runs no code for a model"},
	{"mcp_servers", FIELD_ARRAY, FIELD_NEUTRAL, 0, 0, NEUTRAL,
	 "this service calls no other: call them from the client, as tools"},
};

static const struct translate_rule rules[] = {
	{"model", "model", NULL},
	{"messages", NULL, read_messages},
	{"max_tokens", "max_tokens", NULL},
	{"temperature", "temperature", NULL},
	{"top_p", "top_p", NULL},
	{"top_k", "top_k", NULL},
	{"stop_sequences", NULL, read_stops},
	{"stream", "stream", NULL},
	{"tools", NULL, read_tools},
	{"tool_choice", NULL, read_tool_choice},
	{"thinking", NULL, read_thinking},
	{"output_config", NULL, read_config},
	{"output_format", NULL, read_format},
	{"metadata", NULL, read_metadata},
};

const struct field_table anthropic_fields = {rows, sizeof rows / sizeof *rows, &request_constraint_fields};
static const struct translate_table table = {&anthropic_fields, rules, sizeof rules / sizeof *rules, 0};

const struct generation_name anthropic_names[] = {
	{"stop", "stop_sequences"},
	{"user", "metadata.user_id"},
	{"enable_thinking", "thinking"},
	{"include_reasoning", "thinking.display"},
	{"thinking_token_budget", "thinking.budget_tokens"},
	{"reasoning_effort", "output_config.effort"},
	{"response_format", "output_config.format"},
	{"tool_calls", "tool_use"},
	{"tool_call_id", "tool_use_id"},
	{"reasoning_content", "thinking"},
	{NULL, NULL},
};

static int read_all(struct translation *t, const json_t *client)
{
	const struct anthropic_reading *how = reading(t);
	int rc = translate_object(t, client, "", &table);
	if (rc)
		return rc;
	request_constraint_fields_copy(client, &anthropic_fields, t->out);
	if (!json_get(client, "messages"))
		return api_fail(t->p, E_BAD_REQUEST, "messages", "messages must be given");
	if (how->count) {
		json_object_del(t->out, "max_tokens");
		json_object_del(t->out, "stream");
	} else if (!json_get(client, "max_tokens")) {
		return api_fail(t->p, E_BAD_REQUEST, "max_tokens", "max_tokens must be given");
	}
	return 0;
}

int anthropic_read(const json_t *client, const struct anthropic_reading *how, json_t **out, char ignored[512],
		   struct api_problem *p)
{
	struct translation t = {
		.out = json_object(), .within = "", .strict = how->strict, .p = p, .user = how};
	int rc = read_all(&t, client);
	memcpy(ignored, t.ignored, sizeof t.ignored);
	if (rc)
		json_decref(t.out);
	else
		*out = t.out;
	return rc;
}
