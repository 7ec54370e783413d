#include "controller/chat/chat_messages.h"

#include "base/buf.h"

#include <stdbool.h>
#include <string.h>

static enum template_role role_of(const json_t *m)
{
	const char *role = json_string_value(json_object_get(m, "role"));
	return template_role_of(role ? role : "");
}

static bool is_user(const json_t *m)
{
	const char *role = json_string_value(json_object_get(m, "role"));
	return role && strcmp(role, "user") == 0;
}

/* Join texts with an empty line between them; with an empty text there is no line. */
static json_t *joined_texts(const json_t *a, const json_t *b)
{
	struct buf text = {0};
	buf_put(&text, json_string_value(a), json_string_length(a));
	if (json_string_length(a) && json_string_length(b))
		buf_puts(&text, "\n\n");
	buf_put(&text, json_string_value(b), json_string_length(b));
	json_t *s = json_stringn(text.p ? text.p : "", text.len);
	buf_fini(&text);
	return s;
}

/* Return the content as a new list of parts. */
static json_t *parts_of(json_t *content)
{
	return json_is_array(content) ? json_deep_copy(content)
				      : json_pack("[{s:s, s:O}]", "type", "text", "text", content);
}

/* Join the contents of two messages; if a or b has parts, as parts, with an empty line after
 * a's last part. */
static json_t *joined_contents(json_t *a, json_t *b)
{
	if (json_is_string(a) && json_is_string(b))
		return joined_texts(a, b);
	json_t *parts = parts_of(a), *more = parts_of(b);
	json_t *first = json_array_get(more, 0), *text = json_object_get(first, "text");
	if (json_array_size(parts) && first) {
		struct buf gap = {0};
		buf_puts(&gap, "\n\n");
		buf_put(&gap, json_string_value(text), json_string_length(text));
		json_object_set_new(first, "text", json_stringn(gap.p, gap.len));
		buf_fini(&gap);
	}
	json_array_extend(parts, more);
	json_decref(more);
	return parts;
}

static void join(json_t *to, const json_t *m)
{
	json_object_set_new(to, "content",
			    joined_contents(json_object_get(to, "content"), json_object_get(m, "content")));
}

static bool has_calls(const json_t *m)
{
	return json_array_size(json_object_get(m, "tool_calls")) > 0;
}

/* Return true if a message must be joined to the one before it, which may be NULL. */
static bool is_joined(const struct template_facts *f, const json_t *before, const json_t *m)
{
	if (!before)
		return false;
	if (role_of(m) == ROLE_SYSTEM)
		return role_of(before) == ROLE_SYSTEM && !f->systems;
	if (role_of(m) == ROLE_ASSISTANT)
		return role_of(before) == ROLE_ASSISTANT && !f->assistants && !has_calls(before) &&
		       !has_calls(m);
	return is_user(m) &&
	       ((is_user(before) && !f->users) || (role_of(before) == ROLE_TOOL && !f->user_after_tool));
}

/* ---- calls ---- */

static bool has_id(const json_t *result, const json_t *id)
{
	return json_equal(json_object_get(result, "tool_call_id"), id);
}

static json_t *no_text(const struct template_facts *f)
{
	return f->content[ROLE_ASSISTANT].text ? json_string("")
					       : json_pack("[{s:s, s:s}]", "type", "text", "text", "");
}

/* Drop the text of messages with calls, which would hide the calls. */
static void drop_text(const struct template_facts *f, json_t *messages)
{
	json_t *m;
	size_t i;
	json_array_foreach(messages, i, m)
	{
		if (has_calls(m))
			json_object_set_new(m, "content", no_text(f));
	}
}

/* Append the message with one of its calls; text and reasoning stay with the first call. */
static void append_call(const struct template_facts *f, json_t *out, const json_t *m, size_t i)
{
	static const char *const once[] = {"reasoning_content", "reasoning", "thinking"};
	json_t *one = json_copy((json_t *)m), *call = json_array_get(json_object_get(m, "tool_calls"), i);
	json_object_set_new(one, "tool_calls", json_pack("[O]", call));
	for (size_t k = 0; i && k < sizeof once / sizeof *once; k++)
		json_object_del(one, once[k]);
	if (i)
		json_object_set_new(one, "content", no_text(f));
	json_array_append_new(out, one);
}

/* Make a message of each call, followed by its results; results without a call come last. */
static void split_calls(const struct template_facts *f, json_t *messages)
{
	json_t *all = json_array(), *m, *result;
	const size_t n = json_array_size(messages);
	for (size_t at = 0, end; at < n; at = end) {
		m = json_array_get(messages, at);
		end = at + 1;
		const json_t *calls = json_object_get(m, "tool_calls");
		if (json_array_size(calls) < 2) {
			json_array_append(all, m);
			continue;
		}
		while (end < n && role_of(json_array_get(messages, end)) == ROLE_TOOL)
			end++;
		json_t *results = json_array();
		for (size_t k = at + 1; k < end; k++)
			json_array_append(results, json_array_get(messages, k));
		for (size_t i = 0; i < json_array_size(calls); i++) {
			const json_t *id = json_object_get(json_array_get(calls, i), "id");
			append_call(f, all, m, i);
			for (size_t k = 0; (result = json_array_get(results, k));) {
				if (!has_id(result, id)) {
					k++;
					continue;
				}
				json_array_append(all, result);
				json_array_remove(results, k);
			}
		}
		json_array_extend(all, results);
		json_decref(results);
	}
	json_array_clear(messages);
	json_array_extend(messages, all);
	json_decref(all);
}

void message_turns_fit(const struct template_facts *f, bool results, json_t *messages)
{
	if (!f->calls_and_text)
		drop_text(f, messages);
	if (!f->parallel)
		split_calls(f, messages);
	json_t *all = json_array(), *m;
	bool leading = true; /* only system messages so far */
	size_t i;
	json_array_foreach(messages, i, m)
	{
		const bool system = role_of(m) == ROLE_SYSTEM;
		leading = leading && system;
		if (role_of(m) == ROLE_TOOL && results && !f->results)
			json_object_set_new(m, "role", json_string("user"));
		if (system && !(leading ? f->system : f->later_system))
			json_object_set_new(m, "role", json_string("user"));
		json_t *before = json_array_get(all, json_array_size(all) - 1);
		if (is_joined(f, before, m))
			join(before, m);
		else
			json_array_append(all, m);
	}
	json_array_clear(messages);
	json_array_extend(messages, all);
	json_decref(all);
}
