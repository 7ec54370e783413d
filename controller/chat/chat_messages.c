#include "controller/chat/chat_messages.h"

#include "base/err.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static bool is_text_part(const json_t *part)
{
	const char *type = json_string_value(json_object_get(part, "type"));
	return type && strcmp(type, "text") == 0 && json_is_string(json_object_get(part, "text"));
}

static int check_parts(const json_t *parts, size_t at, struct why *why)
{
	size_t i;
	const json_t *part;
	json_array_foreach(parts, i, part) if (!is_text_part(part)) return err_why(
		why, -EINVAL,
		"messages[%zu].content[%zu]: only {\"type\": \"text\", \"text\": ...} is accepted", at, i);
	return 0;
}

static json_t *joined(const json_t *parts)
{
	struct buf text = {0};
	size_t i;
	const json_t *part;
	json_array_foreach(parts, i, part)
	{
		const json_t *t = json_object_get(part, "text");
		if (i)
			buf_putc(&text, '\n');
		buf_put(&text, json_string_value(t), json_string_length(t));
	}
	json_t *s = json_stringn(text.p ? text.p : "", text.len);
	buf_fini(&text);
	return s;
}

static json_t *with_behind(const json_t *text, const char *behind)
{
	struct buf b = {0};
	buf_put(&b, json_string_value(text), json_string_length(text));
	buf_puts(&b, behind);
	json_t *s = json_stringn(b.p, b.len);
	buf_fini(&b);
	return s;
}

/* Return a copy of parts with `behind` appended to the last part's text. */
static json_t *parts_with(const json_t *parts, const char *behind)
{
	json_t *copy = json_deep_copy(parts);
	json_t *last = json_array_get(copy, json_array_size(copy) - 1);
	if (last)
		json_object_set_new(last, "text", with_behind(json_object_get(last, "text"), behind));
	return copy;
}

/* Convert the content to a shape that the template supports. */
static int set_content(const struct template_facts *a, json_t *m, size_t at, const char *behind,
		       struct why *why)
{
	json_t *content = json_object_get(m, "content"), *form;
	bool list = json_is_array(content);
	if (content && !json_is_null(content) && !json_is_string(content) && !list)
		return err_why(why, -EINVAL,
			       "messages[%zu].content must be a string or an array of text parts", at);
	int rc = list ? check_parts(content, at, why) : 0;
	if (rc)
		return rc;
	const char *role = json_string_value(json_object_get(m, "role"));
	const enum template_role r = template_role_of(role ? role : "");
	if (list && a->content[r].parts)
		form = behind ? parts_with(content, behind) : json_incref(content);
	else if (list)
		form = joined(content);
	else
		form = json_is_string(content) ? json_incref(content) : json_string("");
	if (behind && json_is_string(form)) {
		json_t *longer = with_behind(form, behind);
		json_decref(form);
		form = longer;
	}
	if (json_is_string(form) && !a->content[r].text)
		form = json_pack("[{s:s, s:o}]", "type", "text", "text", form);
	json_object_set_new(m, "content", form);
	return 0;
}

/* Set all names of the reasoning: clients use three, templates read the first or the second. */
static void set_reasoning(json_t *m)
{
	static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
	json_t *reasoning = NULL;
	for (int i = 0; i < 3 && !reasoning; i++)
		reasoning = json_get(m, names[i]);
	if (!reasoning)
		return;
	json_incref(reasoning);
	json_object_set(m, "reasoning_content", reasoning);
	if (!json_get(m, "thinking"))
		json_object_set(m, "thinking", reasoning);
	json_decref(reasoning);
}

/* Convert arguments: OpenAI's API has JSON text; most templates need the parsed value. */
static json_t *arguments_for(const struct template_facts *a, json_t *arguments)
{
	json_t *value;
	if (json_is_string(arguments) && !a->argument_text) {
		const char *text = json_string_value(arguments);
		size_t n = json_string_length(arguments);
		if (strspn(text, " \t\r\n") == n)
			return json_object();
		return json_parse(text, n, &value, NULL) == 0 ? value : json_incref(arguments);
	}
	if (json_is_object(arguments) && a->argument_text) {
		char *text = json_text(arguments, 0);
		value = json_string(text);
		free(text);
		return value;
	}
	return json_incref(arguments);
}

static bool is_short_id(const char *id)
{
	size_t n = 0;
	while ((id[n] >= '0' && id[n] <= '9') || ((id[n] | 0x20) >= 'a' && (id[n] | 0x20) <= 'z'))
		n++;
	return n == TEMPLATE_SHORT_ID && !id[n];
}

/* Replace an id by 9 letters and digits derived from it, for templates that refuse other ids. */
static void shorten_id(json_t *o, const char *key)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	const json_t *id = json_object_get(o, key);
	const char *text = json_string_value(id);
	char out[TEMPLATE_SHORT_ID + 1] = "";
	if (!text || is_short_id(text))
		return;
	XXH64_hash_t hash = XXH3_64bits(text, json_string_length(id));
	for (int i = 0; i < TEMPLATE_SHORT_ID; i++, hash /= 36)
		out[i] = digits[hash % 36];
	json_object_set_new(o, key, json_string(out));
}

static void set_tool_calls(const struct template_facts *a, json_t *m)
{
	json_t *calls = json_object_get(m, "tool_calls"), *copy, *call;
	size_t i;
	if (!json_is_array(calls))
		return;
	if (json_array_size(calls) == 0) {
		json_object_del(m, "tool_calls");
		return;
	}
	copy = json_array();
	json_array_foreach(calls, i, call)
	{
		json_t *function = json_object_get(call, "function");
		json_t *arguments = json_object_get(function, "arguments");
		json_t *one = json_copy(call);
		if (a->short_ids)
			shorten_id(one, "id");
		if (arguments) {
			json_t *f = json_copy(function);
			json_object_set_new(f, "arguments", arguments_for(a, arguments));
			json_object_set_new(one, "function", f);
		}
		json_array_append_new(copy, one);
	}
	json_object_set_new(m, "tool_calls", copy);
}

static int message_for(const struct template_facts *a, const json_t *from, size_t at, const char *behind,
		       json_t **out, struct why *why)
{
	json_t *m = json_object(), *v;
	const char *key;
	json_object_foreach((json_t *)from, key, v) if (!json_is_null(v)) json_object_set(m, key, v);
	const char *role = json_string_value(json_object_get(m, "role"));
	if (role && strcmp(role, "developer") == 0 && !a->developer)
		json_object_set_new(m, "role", json_string("system"));
	set_reasoning(m);
	set_tool_calls(a, m);
	if (a->short_ids)
		shorten_id(m, "tool_call_id");
	*out = m;
	return set_content(a, m, at, behind, why);
}

int chat_messages_for(const struct template_facts *a, const struct chat_input *rq, const char *behind,
		      json_t **out, struct why *why)
{
	json_t *all = json_array(), *m;
	size_t n = json_array_size(rq->messages);
	for (size_t i = 0; i < n; i++) {
		const json_t *from = json_array_get(rq->messages, i);
		int rc = message_for(a, from, i, i + 1 == n ? behind : NULL, &m, why);
		json_array_append_new(all, m);
		if (rc) {
			json_decref(all);
			return rc;
		}
	}
	message_turns_fit(a, rq->calls != TOOLS_NONE, all);
	*out = all;
	return 0;
}
