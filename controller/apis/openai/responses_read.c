#include "controller/apis/openai/responses_read.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/utf8.h"
#include "controller/apis/openai/openai_json.h"
#include "controller/request/request_fields.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { NAME_CHARS = 64 /* OpenAI's limit */ };

static const struct field_row rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the model's name"},
	{"input", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL,
	 "a text, or items: messages of text, calls of functions and their outputs, reasoning"},
	{"instructions", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the system's message"},
	{"max_output_tokens", FIELD_INTEGER, FIELD_HONOURED, 1, 2147483647, NULL,
	 "bounds the tokens of the output, reasoning counted"},
	{"temperature", FIELD_NUMBER, FIELD_HONOURED, 0, 1000, NULL, "as in chat"},
	{"top_p", FIELD_NUMBER, FIELD_HONOURED, 0, 1, NULL, "as in chat"},
	{"tools", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "functions; tools of OpenAI's own are refused"},
	{"tool_choice", FIELD_STRING | FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "none, auto, required, a function, or allowed_tools (auto)"},
	{"parallel_tool_calls", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "false: one call at most"},
	{"text", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "format: text, json_object or json_schema; verbosity has no effect"},
	{"reasoning", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "effort, as in chat; the reasoning itself is shown, never a summary"},
	{"stream", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "the response as events"},
	{"metadata", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, "up to 16 texts, repeated in the response"},
	{"user", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the turns of a key are shared among its users"},
	{"include", FIELD_ARRAY, FIELD_NEUTRAL, 0, 0, "[[], [\"reasoning.encrypted_content\"]]",
	 "the reasoning is shown as it is; nothing else can be included"},
	{"store", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL,
	 "with a journal, responses are stored unless this is false; without one, none is"},
	{"background", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL,
	 "the reply is that the response has begun; needs a journal"},
	{"previous_response_id", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL,
	 "its items, input and output, precede the input; needs a journal"},
	{"conversation", FIELD_STRING | FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "its items precede the input; input and output are added to it; needs a journal"},
	{"response_format", FIELD_ANY, FIELD_REFUSED, 0, 0, NULL, "use text.format"},
	{"prompt", FIELD_OBJECT, FIELD_REFUSED, 0, 0, NULL,
	 "there are no stored prompts: send instructions and input"},
	{"truncation", FIELD_STRING, FIELD_NEUTRAL, 0, 0, "[\"disabled\"]",
	 "an input that is longer than the context is refused, never cut"},
	{"top_logprobs", FIELD_INTEGER, FIELD_NEUTRAL, 0, 0, "[0]",
	 "chat completions show log probabilities"},
	{"moderation", FIELD_ANY, FIELD_REFUSED, 0, 0, NULL, "there is no model for it"},
	{"context_management", FIELD_ARRAY, FIELD_NEUTRAL, 0, 0, "[[]]", "the context is never compacted"},
	{"max_tool_calls", FIELD_ANY, FIELD_IGNORED, 0, 0, NULL,
	 "bounds OpenAI's own tools, of which none are"},
	{"stream_options", FIELD_ANY, FIELD_IGNORED, 0, 0, NULL, "events are never obfuscated"},
	{"service_tier", FIELD_ANY, FIELD_IGNORED, 0, 0, NULL, "there is one tier"},
	{"safety_identifier", FIELD_ANY, FIELD_IGNORED, 0, 0, NULL,
	 "up to 64 characters of text are repeated in the response"},
	{"prompt_cache_key", FIELD_ANY, FIELD_IGNORED, 0, 0, NULL, "prefixes are found without it"},
	{"prompt_cache_retention", FIELD_ANY, FIELD_IGNORED, 0, 0, NULL,
	 "prefixes are kept as there is room"},
	{"prompt_cache_options", FIELD_ANY, FIELD_IGNORED, 0, 0, NULL, "prefixes are found without them"},
	{"seed", FIELD_INTEGER, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"top_k", FIELD_INTEGER, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"min_p", FIELD_NUMBER, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"presence_penalty", FIELD_NUMBER, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"frequency_penalty", FIELD_NUMBER, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"repetition_penalty", FIELD_NUMBER, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"stop", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"ignore_eos", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"priority", FIELD_INTEGER, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"cache_salt", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"deadline_ms", FIELD_INTEGER, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"enable_thinking", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"thinking_token_budget", FIELD_INTEGER, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
	{"chat_template_kwargs", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, "as in chat"},
};
const struct field_table responses_fields = {rows, sizeof rows / sizeof *rows, &request_constraint_fields};

const struct generation_name responses_names[] = {
	{"messages", "input"},
	{"max_completion_tokens", "max_output_tokens"},
	{"response_format", "text.format"},
	{"reasoning_effort", "reasoning.effort"},
	{"tool_call_id", "call_id"},
	{NULL, NULL},
};

/* Fields with the same meaning in a chat. */
static const char *const same[] = {"model",
				   "temperature",
				   "top_p",
				   "parallel_tool_calls",
				   "stream",
				   "user",
				   "seed",
				   "top_k",
				   "min_p",
				   "presence_penalty",
				   "frequency_penalty",
				   "repetition_penalty",
				   "stop",
				   "ignore_eos",
				   "priority",
				   "cache_salt",
				   "deadline_ms",
				   "enable_thinking",
				   "thinking_token_budget",
				   "chat_template_kwargs"};

/* --- items to messages --- */

struct turns {
	json_t *messages;
	json_t *assistant; /* borrowed: the last message, if items of its turn may still be added; or NULL */
	struct api_problem *p;
	const char *field; /* the client's name of the field of items */
	size_t at;         /* index of the item */
};

static int bad(const struct turns *t, const char *member, const char *why)
{
	char param[48];
	snprintf(param, sizeof param, "%s[%zu]%s%s", t->field, t->at, member[0] ? "." : "", member);
	return api_fail(t->p, E_BAD_REQUEST, param, "%s %s", param, why);
}

static json_t *add(struct turns *t, const char *role)
{
	json_t *m = json_pack("{s:s}", "role", role);
	json_array_append_new(t->messages, m);
	t->assistant = NULL;
	return m;
}

/* Return the message of the assistant's turn; a new one if the last has one of the members `without`. */
static json_t *turn(struct turns *t, const char *const *without)
{
	bool fits = t->assistant != NULL;
	for (; fits && *without; without++)
		fits = !json_object_get(t->assistant, *without);
	if (!fits) {
		json_t *m = add(t, "assistant");
		t->assistant = m;
	}
	return t->assistant;
}

/* Return the text of a string, or of an array of parts of these types.  NULL: refused. */
static json_t *text_of(const struct turns *t, const char *member, const json_t *v)
{
	static const struct {
		const char *type, *text;
	} types[] = {{"input_text", "text"},
		     {"output_text", "text"},
		     {"text", "text"},
		     {"reasoning_text", "text"},
		     {"refusal", "refusal"}};
	char why[128];
	if (json_is_string(v))
		return json_incref((json_t *)v);
	if (!json_is_array(v)) {
		bad(t, member, "must be a string or an array of parts");
		return NULL;
	}
	struct buf all = {0};
	for (size_t i = 0; i < json_array_size(v); i++) {
		const json_t *part = json_array_get(v, i);
		const char *type = json_string_value(json_get(part, "type"));
		const json_t *text = NULL;
		for (size_t k = 0; type && k < sizeof types / sizeof types[0]; k++)
			if (!strcmp(type, types[k].type))
				text = json_get(part, types[k].text);
		if (!json_is_string(text)) {
			snprintf(why, sizeof why, "has a part %zu of type %.32s: only text is taken", i,
				 type ? type : "(none)");
			buf_fini(&all);
			bad(t, member, why);
			return NULL;
		}
		buf_put(&all, json_string_value(text), json_string_length(text));
	}
	json_t *joined = json_stringn(all.p ? all.p : "", all.len);
	buf_fini(&all);
	return joined;
}

static int add_message(struct turns *t, const json_t *item)
{
	static const char *const roles[] = {"user", "system", "developer", "assistant"};
	static const char *const without[] = {"content", "tool_calls", NULL};
	const char *role = json_string_value(json_get(item, "role"));
	bool known = false;
	for (size_t i = 0; role && i < sizeof roles / sizeof roles[0]; i++)
		known = known || !strcmp(role, roles[i]);
	if (!known)
		return bad(t, "role", "must be user, system, developer or assistant");
	json_t *text = text_of(t, "content", json_get(item, "content"));
	if (!text)
		return -EINVAL;
	json_t *m = !strcmp(role, "assistant") ? turn(t, without) : add(t, role);
	json_object_set_new(m, "content", text);
	return 0;
}

static int add_call(struct turns *t, const json_t *item)
{
	static const char *const any[] = {NULL};
	const json_t *id = json_get(item, "call_id"), *name = json_get(item, "name");
	const json_t *arguments = json_get(item, "arguments");
	if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
		return bad(t, "", "needs the strings call_id, name and arguments");
	json_t *m = turn(t, any);
	json_t *calls = json_object_get(m, "tool_calls");
	if (!calls) {
		calls = json_array();
		json_object_set_new(m, "tool_calls", calls);
	}
	if (!json_object_get(m, "content"))
		json_object_set_new(m, "content", json_null());
	json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function",
					       "function", "name", name, "arguments", arguments));
	return 0;
}

static int add_call_output(struct turns *t, const json_t *item)
{
	const json_t *id = json_get(item, "call_id");
	if (!json_is_string(id))
		return bad(t, "call_id", "must be a string");
	json_t *text = text_of(t, "output", json_get(item, "output"));
	if (!text)
		return -EINVAL;
	json_t *m = add(t, "tool");
	json_object_set(m, "tool_call_id", (json_t *)id);
	json_object_set_new(m, "content", text);
	return 0;
}

static int add_reasoning(struct turns *t, const json_t *item)
{
	static const char *const without[] = {"content", "tool_calls", "reasoning_content", NULL};
	const json_t *content = json_get(item, "content");
	if (!content || !json_array_size(content))
		content = json_get(item, "summary"); /* from another service */
	json_t *text = NULL;
	if (json_array_size(content)) {
		json_t *parts = json_deep_copy(content), *part;
		size_t i;
		json_array_foreach(parts, i, part)
		{
			if (json_is_object(part))
				json_object_set_new(part, "type", json_string("reasoning_text"));
		}
		text = text_of(t, "content", parts);
		json_decref(parts);
		if (!text)
			return -EINVAL;
		json_object_set_new(turn(t, without), "reasoning_content", text);
	}
	return 0;
}

static int add_item(struct turns *t, const json_t *item)
{
	char why[192];
	if (!json_is_object(item))
		return bad(t, "", "must be an item, a map");
	const char *type = json_string_value(json_get(item, "type"));
	if (!type ? json_get(item, "role") != NULL : !strcmp(type, "message"))
		return add_message(t, item);
	if (type && !strcmp(type, "function_call"))
		return add_call(t, item);
	if (type && !strcmp(type, "function_call_output"))
		return add_call_output(t, item);
	if (type && !strcmp(type, "reasoning"))
		return add_reasoning(t, item);
	snprintf(why, sizeof why,
		 "is %.48s, which is not supported: messages, function_call, "
		 "function_call_output and reasoning are",
		 type ? type : "of no type");
	return bad(t, "type", why);
}

static int add_items(struct turns *t, const json_t *items)
{
	int rc = 0;
	for (t->at = 0; !rc && t->at < json_array_size(items); t->at++)
		rc = add_item(t, json_array_get(items, t->at));
	return rc;
}

/* Add an empty content to turns without one (reasoning that nothing followed), because templates need the
 * member. */
static void complete_turns(json_t *messages)
{
	size_t i;
	json_t *m;
	json_array_foreach(messages, i, m)
	{
		if (!json_object_get(m, "content"))
			json_object_set_new(m, "content", json_string(""));
	}
}

int responses_check_items(const json_t *items, const char *field, struct api_problem *p)
{
	struct turns t = {.messages = json_array(), .p = p, .field = field};
	const int rc = add_items(&t, items);
	json_decref(t.messages);
	return rc;
}

/* --- tools and structured output --- */

/* Return a tool with its function's fields below `function`. */
static json_t *nest(const json_t *tool)
{
	static const char *const members[] = {"name", "description", "parameters", "strict"};
	json_t *f = json_object();
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
		if (json_get(tool, members[i]))
			json_object_set(f, members[i], json_get(tool, members[i]));
	return json_pack("{s:s, s:o}", "type", "function", "function", f);
}

static int read_tools(const json_t *client, json_t *request, struct api_problem *p)
{
	const json_t *tools = json_get(client, "tools");
	char param[32];
	if (!tools || !json_array_size(tools))
		return 0;
	json_t *out = json_array();
	json_object_set_new(request, "tools", out);
	for (size_t i = 0; i < json_array_size(tools); i++) {
		const json_t *tool = json_array_get(tools, i);
		const char *type = json_string_value(json_get(tool, "type"));
		snprintf(param, sizeof param, "tools[%zu]", i);
		if (!type || strcmp(type, "function") != 0)
			return api_fail(p, E_BAD_REQUEST, param,
					"%s is %.48s, which is not supported: only tools of type function "
					"are",
					param, type ? type : "of no type");
		json_array_append_new(out, nest(tool));
	}
	return 0;
}

static bool is_function(const json_t *v)
{
	const char *type = json_string_value(json_get(v, "type"));
	return type && strcmp(type, "function") == 0 && json_is_string(json_get(v, "name"));
}

static bool has_tool(const json_t *tools, const char *name)
{
	bool found = false;
	for (size_t i = 0; i < json_array_size(tools) && !found; i++) {
		const char *is = json_string_value(json_get(json_array_get(tools, i), "name"));
		found = is && strcmp(is, name) == 0;
	}
	return found;
}

/* Read which tools may be called, in the chat's nested format. */
static int read_allowed(const json_t *client, const json_t *choice, json_t *request, struct api_problem *p)
{
	static const char field[] = "tool_choice";
	const json_t *mode = json_get(choice, "mode"), *list = json_get(choice, "tools");
	const char *m = mode ? json_string_value(mode) : "auto";
	if (!m || (strcmp(m, "auto") != 0 && strcmp(m, "required") != 0))
		return api_fail(p, E_BAD_REQUEST, field, "tool_choice.mode must be \"auto\" or \"required\"");
	if (!json_array_size(list))
		return api_fail(p, E_BAD_REQUEST, field, "tool_choice.tools must have at least one tool");
	json_t *out = json_array();
	int rc = 0;
	for (size_t i = 0; i < json_array_size(list) && !rc; i++) {
		const json_t *v = json_array_get(list, i), *name = json_get(v, "name");
		if (!is_function(v))
			rc = api_fail(
				p, E_BAD_REQUEST, field,
				"tool_choice.tools[%zu] must be {\"type\": \"function\", \"name\": ...}", i);
		else if (!has_tool(json_get(client, "tools"), json_string_value(name)))
			rc = api_fail(p, E_BAD_REQUEST, field, "tool_choice.tools[%zu] is none of the tools",
				      i);
		else
			json_array_append_new(out, json_pack("{s:s, s:{s:O}}", "type", "function", "function",
							     "name", name));
	}
	json_object_set_new(request, field,
			    json_pack("{s:s, s:{s:s, s:o}}", "type", "allowed_tools", "allowed_tools", "mode",
				      m, "tools", out));
	return rc;
}

static int read_choice(const json_t *client, json_t *request, struct api_problem *p)
{
	const json_t *choice = json_get(client, "tool_choice");
	const char *type = json_string_value(json_get(choice, "type"));
	if (!choice)
		return 0;
	/* Without tools there is no choice, and the default counts as absent. */
	if (json_is_string(choice) && !json_get(request, "tools") &&
	    strcmp(json_string_value(choice), "required") != 0)
		return 0;
	if (json_is_string(choice)) {
		json_object_set(request, "tool_choice", (json_t *)choice);
		return 0;
	}
	if (type && strcmp(type, "allowed_tools") == 0)
		return read_allowed(client, choice, request, p);
	if (!is_function(choice))
		return api_fail(p, E_BAD_REQUEST, "tool_choice",
				"tool_choice of type %.48s is not supported: none, auto, required, "
				"allowed_tools or {\"type\": \"function\", \"name\": ...} is",
				type ? type : "(none)");
	json_object_set_new(request, "tool_choice",
			    json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name",
				      json_get(choice, "name")));
	return 0;
}

static int read_format(const json_t *client, json_t *request, struct api_problem *p)
{
	const json_t *format = json_get(json_get(client, "text"), "format");
	const char *type = json_string_value(json_get(format, "type"));
	if (!format || (type && !strcmp(type, "text")))
		return 0;
	/* Types that the chat's response_format has in the same shape. */
	if (type && (!strcmp(type, "json_object") || !strcmp(type, "grammar") || !strcmp(type, "regex"))) {
		json_object_set(request, "response_format", (json_t *)format);
		return 0;
	}
	if (!type || strcmp(type, "json_schema") != 0)
		return api_fail(
			p, E_BAD_REQUEST, "text.format",
			"text.format must be of type text, json_object, json_schema, regex or grammar");
	json_t *schema = json_copy((json_t *)format);
	json_object_del(schema, "type");
	json_object_set_new(request, "response_format",
			    json_pack("{s:s, s:o}", "type", "json_schema", "json_schema", schema));
	return 0;
}

static int read_rest(const json_t *client, json_t *request, struct api_problem *p)
{
	for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
		if (json_get(client, same[i]))
			json_object_set(request, same[i], json_get(client, same[i]));
	request_constraint_fields_copy(client, &responses_fields, request);
	if (json_get(client, "max_output_tokens"))
		json_object_set(request, "max_completion_tokens", json_get(client, "max_output_tokens"));
	const json_t *effort = json_get(json_get(client, "reasoning"), "effort");
	if (effort && !json_is_string(effort))
		return api_fail(p, E_BAD_REQUEST, "reasoning.effort", "reasoning.effort must be a string");
	if (effort)
		json_object_set(request, "reasoning_effort", (json_t *)effort);
	int rc = read_tools(client, request, p);
	if (!rc)
		rc = read_choice(client, request, p);
	return rc ? rc : read_format(client, request, p);
}

int responses_read(const json_t *client, const json_t *history, json_t **request, json_t **items,
		   struct api_problem *p)
{
	const json_t *input = json_get(client, "input"), *instructions = json_get(client, "instructions");
	struct turns t = {.messages = json_array(), .p = p, .field = "input"};
	int rc = 0;
	*request = json_pack("{s:o}", "messages", t.messages);
	*items = NULL;
	const char *metadata = openai_check_metadata(json_get(client, "metadata"));
	if (metadata)
		rc = api_fail(p, E_BAD_REQUEST, "metadata", "%s", metadata);
	else if (!input)
		rc = api_fail(p, E_BAD_REQUEST, "input", "input is missing");
	if (!rc && instructions)
		json_object_set(add(&t, "system"), "content", (json_t *)instructions);
	if (!rc && history)
		rc = add_items(&t, history);
	if (!rc) {
		*items = json_is_string(input)
				 ? json_pack("[{s:s, s:s, s:[{s:s, s:O}]}]", "type", "message", "role",
					     "user", "content", "type", "input_text", "text", input)
				 : json_incref((json_t *)input);
		rc = json_is_string(input) ? 0 : add_items(&t, *items);
		if (json_is_string(input))
			json_object_set(add(&t, "user"), "content", (json_t *)input);
	}
	complete_turns(t.messages);
	if (!rc)
		rc = read_rest(client, *request, p);
	if (rc) {
		json_decref(*request);
		json_decref(*items);
		*request = *items = NULL;
	}
	return rc;
}

/* --- fields repeated in the response --- */

static json_t *repeat_tools(const json_t *client)
{
	json_t *out = json_array();
	const json_t *tools = json_get(client, "tools");
	for (size_t i = 0; i < json_array_size(tools); i++) {
		json_t *tool = json_copy(json_array_get(tools, i));
		if (!json_object_get(tool, "strict"))
			json_object_set_new(tool, "strict", json_null());
		if (!json_object_get(tool, "parameters"))
			json_object_set_new(tool, "parameters", json_null());
		json_array_append_new(out, tool);
	}
	return out;
}

static bool is_short(const json_t *v)
{
	return json_is_string(v) && json_string_length(v) <= (size_t)4 * NAME_CHARS &&
	       utf8_chars(json_string_value(v), json_string_length(v)) <= NAME_CHARS;
}

const char *responses_conversation(const json_t *client)
{
	const json_t *c = json_get(client, "conversation");
	return json_string_value(json_is_object(c) ? json_get(c, "id") : c);
}

static json_t *or_else(const json_t *client, const char *name, json_t *otherwise)
{
	const json_t *v = json_get(client, name);
	if (!v)
		return otherwise;
	json_decref(otherwise);
	return json_incref((json_t *)v);
}

json_t *responses_repeat(const json_t *client)
{
	static const char *const or_null[] = {"instructions", "max_output_tokens", "previous_response_id"};
	/* Not checked, because they have no effect: values that OpenAI would refuse are left out. */
	static const char *const names[] = {"safety_identifier", "prompt_cache_key"};
	json_t *o = json_object();
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (is_short(json_get(client, names[i])))
			json_object_set(o, names[i], json_get(client, names[i]));
	if (json_get(client, "user"))
		json_object_set(o, "user", json_get(client, "user"));
	const json_t *calls = json_get(client, "max_tool_calls");
	json_object_set_new(o, "max_tool_calls",
			    json_is_integer(calls) ? json_incref((json_t *)calls) : json_null());
	for (size_t i = 0; i < sizeof or_null / sizeof or_null[0]; i++)
		json_object_set_new(o, or_null[i], or_else(client, or_null[i], json_null()));
	const char *conversation = responses_conversation(client);
	if (conversation)
		json_object_set_new(o, "conversation", json_pack("{s:s}", "id", conversation));
	const json_t *effort = json_get(json_get(client, "reasoning"), "effort");
	json_object_set_new(o, "reasoning", json_pack("{s:O?, s:n}", "effort", effort, "summary"));
	const json_t *format = json_get(json_get(client, "text"), "format");
	json_object_set_new(
		o, "text",
		json_pack("{s:o}", "format",
			  format ? json_incref((json_t *)format) : json_pack("{s:s}", "type", "text")));
	json_object_set_new(o, "metadata", or_else(client, "metadata", json_object()));
	json_object_set_new(o, "parallel_tool_calls", or_else(client, "parallel_tool_calls", json_true()));
	json_object_set_new(o, "tool_choice", or_else(client, "tool_choice", json_string("auto")));
	json_object_set_new(o, "tools", repeat_tools(client));
	json_object_set_new(o, "truncation", json_string("disabled"));
	json_object_set_new(o, "service_tier", json_string("default"));
	json_object_set_new(o, "top_logprobs", json_integer(0));
	return o;
}
