#include "controller/apis/anthropic/anthropic_read.h"

#include "base/buf.h"
#include "base/json.h"
#include "controller/chat/marker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Position of a block, for errors: "messages[2].content[0]". */
struct place {
	struct translation *t;
	const char *field; /* "messages" or "system" */
	char at[64];
};

static int fail(const struct place *w, const char *what)
{
	return api_fail(w->t->p, E_BAD_REQUEST, w->field, "%s%s", w->at, what);
}

static const char *type_of(const json_t *block)
{
	const json_t *t = json_object_get(block, "type");
	return json_is_string(t) ? json_string_value(t) : "";
}

static int refuse_block(const struct place *w, const json_t *block)
{
	const char *type = type_of(block);
	if (!strcmp(type, "image") || !strcmp(type, "document"))
		return api_fail(w->t->p, E_BAD_REQUEST, w->field,
				"%s: blocks of type \"%s\" are not taken: this model reads text", w->at,
				type);
	return api_fail(w->t->p, E_BAD_REQUEST, w->field, "%s: blocks of type \"%.64s\" are not taken here",
			w->at, type);
}

/* Name the members of a block that have no effect. */
static int check_members(const struct place *w, const json_t *block, const struct field_table *members)
{
	return translate_members(w->t, block, w->field[0] == 's' ? "system." : "messages.", members);
}

/* Add a text block as a part of a chat's content. */
static int add_text(const struct place *w, const json_t *block, json_t *parts)
{
	const json_t *text = json_get(block, "text");
	if (!json_is_string(text))
		return fail(w, ".text must be a string");
	json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
	return check_members(w, block, &anthropic_text_members);
}

/* Return parts as a content: a single part as a string.  Takes parts. */
static json_t *content_of(json_t *parts)
{
	if (json_array_size(parts) > 1)
		return parts;
	json_t *text = json_object_get(json_array_get(parts, 0), "text");
	text = text ? json_incref(text) : json_string("");
	json_decref(parts);
	return text;
}

/* Read a string, or blocks of text only.  The caller owns *out. */
static int text_content(struct place *w, const json_t *content, json_t **out)
{
	size_t i, n = strlen(w->at);
	const json_t *block;
	if (!content || json_is_null(content)) {
		*out = json_string("");
		return 0;
	}
	if (json_is_string(content)) {
		*out = json_incref((json_t *)content);
		return 0;
	}
	if (!json_is_array(content))
		return fail(w, " must be a string or an array of blocks");
	json_t *parts = json_array();
	json_array_foreach(content, i, block)
	{
		snprintf(w->at + n, sizeof w->at - n, "[%zu]", i);
		int rc = strcmp(type_of(block), "text") == 0 ? add_text(w, block, parts)
							     : refuse_block(w, block);
		if (rc) {
			json_decref(parts);
			return rc;
		}
	}
	w->at[n] = 0;
	*out = content_of(parts);
	return 0;
}

/* --- user messages --- */

/* Add the text so far, if any, as a message. */
static void flush_text(json_t *out, json_t **parts)
{
	if (json_array_size(*parts))
		json_array_append_new(out,
				      json_pack("{s:s, s:o}", "role", "user", "content", content_of(*parts)));
	else
		json_decref(*parts);
	*parts = json_array();
}

static int add_result(struct place *w, const json_t *block, json_t *out)
{
	const json_t *id = json_get(block, "tool_use_id");
	json_t *content;
	size_t n = strlen(w->at);
	if (!json_is_string(id))
		return fail(w, ".tool_use_id must be a string");
	snprintf(w->at + n, sizeof w->at - n, ".content");
	int rc = text_content(w, json_get(block, "content"), &content);
	if (rc)
		return rc;
	json_array_append_new(
		out, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", content));
	if (json_is_true(json_get(block, "is_error")))
		translate_ignore(w->t, "messages.is_error");
	return check_members(w, block, &anthropic_result_members);
}

static int read_user(struct place *w, const json_t *blocks, json_t *out)
{
	json_t *parts = json_array();
	size_t i, n = strlen(w->at), before = json_array_size(out);
	const json_t *block;
	int rc = 0;
	json_array_foreach(blocks, i, block)
	{
		snprintf(w->at + n, sizeof w->at - n, "[%zu]", i);
		if (!strcmp(type_of(block), "text")) {
			rc = add_text(w, block, parts);
		} else if (!strcmp(type_of(block), "tool_result")) {
			flush_text(out, &parts);
			rc = add_result(w, block, out);
		} else {
			rc = refuse_block(w, block);
		}
		if (rc)
			break;
	}
	flush_text(out, &parts);
	json_decref(parts);
	if (!rc && json_array_size(out) == before)
		json_array_append_new(out, json_pack("{s:s, s:s}", "role", "user", "content", ""));
	return rc;
}

/* --- assistant messages --- */

struct reply_parts {
	json_t *parts, *calls; /* owned */
	struct buf thinking;
};

static int add_call(const struct place *w, const json_t *block, json_t *calls)
{
	const json_t *id = json_get(block, "id"), *name = json_get(block, "name"),
		     *input = json_get(block, "input");
	if (!json_is_string(id) || !json_is_string(name))
		return fail(w, ": a tool_use block needs id and name, strings");
	if (input && !json_is_object(input))
		return fail(w, ".input must be an object");
	char *text = input ? json_text(input, JSON_COMPACT) : NULL;
	json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:s}}", "id", id, "type", "function",
					       "function", "name", name, "arguments", text ? text : "{}"));
	free(text);
	return check_members(w, block, &anthropic_use_members);
}

static int add_thinking(const struct place *w, const json_t *block, struct buf *out)
{
	const json_t *text = json_get(block, "thinking");
	if (!json_is_string(text))
		return fail(w, ".thinking must be a string");
	buf_put(out, json_string_value(text), json_string_length(text));
	return check_members(w, block, &anthropic_thinking_block_members);
}

static int add_block(const struct place *w, const json_t *block, struct reply_parts *r)
{
	const char *type = type_of(block);
	if (!strcmp(type, "text"))
		return add_text(w, block, r->parts);
	if (!strcmp(type, "tool_use"))
		return add_call(w, block, r->calls);
	if (!strcmp(type, "thinking"))
		return add_thinking(w, block, &r->thinking);
	if (strcmp(type, "redacted_thinking") != 0)
		return refuse_block(w, block);
	/* Only the service that made it can decrypt it. */
	translate_ignore(w->t, "messages.redacted_thinking");
	return 0;
}

static int read_assistant(struct place *w, const json_t *blocks, json_t *out)
{
	struct reply_parts r = {.parts = json_array(), .calls = json_array()};
	size_t i, n = strlen(w->at);
	const json_t *block;
	int rc = 0;
	json_array_foreach(blocks, i, block)
	{
		snprintf(w->at + n, sizeof w->at - n, "[%zu]", i);
		rc = add_block(w, block, &r);
		if (rc)
			break;
	}
	json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", content_of(r.parts));
	if (r.thinking.len)
		json_object_set_new(m, "reasoning_content", json_stringn(r.thinking.p, r.thinking.len));
	if (json_array_size(r.calls))
		json_object_set(m, "tool_calls", r.calls);
	json_array_append_new(out, m);
	json_decref(r.calls);
	buf_fini(&r.thinking);
	return rc;
}

/* --- all messages --- */

static int read_message(struct translation *t, const json_t *m, size_t at, json_t *out)
{
	struct place w = {.t = t, .field = "messages"};
	snprintf(w.at, sizeof w.at, "messages[%zu]", at);
	if (!json_is_object(m))
		return fail(&w, " must be {role, content}");
	const json_t *role = json_get(m, "role"), *content = json_get(m, "content");
	const char *r = json_is_string(role) ? json_string_value(role) : "";
	if (strcmp(r, "user") != 0 && strcmp(r, "assistant") != 0 && strcmp(r, "system") != 0)
		return fail(&w, ".role must be \"user\", \"assistant\" or \"system\"");
	if (!json_is_string(content) && !json_is_array(content))
		return fail(&w, ".content must be a string or an array of blocks");
	int rc = check_members(&w, m, &anthropic_message_members);
	if (rc)
		return rc;
	snprintf(w.at, sizeof w.at, "messages[%zu].content", at);
	if (json_is_array(content) && r[0] == 'u')
		return read_user(&w, content, out);
	if (json_is_array(content) && r[0] == 'a')
		return read_assistant(&w, content, out);
	json_t *text;
	rc = text_content(&w, content, &text);
	if (!rc)
		json_array_append_new(out, json_pack("{s:O, s:o}", "role", role, "content", text));
	return rc;
}

/* Return the bytes of a billing line at the beginning of a text, with its newline; 0: there is none. */
static size_t billing_line(const json_t *text)
{
	const char *p = json_string_value(text), *name = "x-anthropic-billing-header";
	const size_t k = strlen(name);
	if (!p || strncmp(p, name, k) != 0 || p[k] != ':')
		return 0;
	const size_t line = strcspn(p, "\n");
	size_t end = line;
	while (marker_is_blank(p[end - 1]))
		end--;
	return p[end - 1] == ';' ? line + (p[line] == '\n') : 0;
}

/* Drop the billing line that Claude Code puts first into the system prompt.  content: a string or parts;
 * taken.  The line's hash differs in each request, so the prefix cache would never match the text after
 * it. */
static json_t *without_billing(struct translation *t, json_t *content)
{
	json_t *part = json_array_get(content, 0);
	const json_t *text = part ? json_object_get(part, "text") : content;
	const size_t n = billing_line(text);
	if (!n)
		return content;
	translate_ignore(t, "system.x-anthropic-billing-header");
	json_t *rest = json_stringn(json_string_value(text) + n, json_string_length(text) - n);
	if (!part) {
		json_decref(content);
		return rest;
	}
	const bool empty = !json_string_length(rest);
	json_object_set_new(part, "text", rest);
	if (empty)
		json_array_remove(content, 0);
	return content_of(content);
}

static int read_system(struct translation *t, const json_t *system, json_t *out)
{
	struct place w = {.t = t, .field = "system", .at = "system"};
	json_t *content;
	int rc = text_content(&w, system, &content);
	if (rc)
		return rc;
	content = without_billing(t, content);
	if (json_array_size(content) + json_string_length(content) == 0)
		json_decref(content);
	else
		json_array_append_new(out, json_pack("{s:s, s:o}", "role", "system", "content", content));
	return 0;
}

/* Continue the assistant's last message, unless it has called a tool. */
static void set_continued(struct translation *t, const json_t *messages)
{
	const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
	const json_t *role = json_object_get(last, "role");
	if (!json_is_string(role) || strcmp(json_string_value(role), "assistant") != 0 ||
	    json_object_get(last, "tool_calls"))
		return;
	json_object_set_new(t->out, "continue_final_message", json_true());
	json_object_set_new(t->out, "add_generation_prompt", json_false());
}

int anthropic_messages_read(struct translation *t, const json_t *system, const json_t *messages)
{
	size_t at;
	const json_t *m;
	if (!json_is_array(messages) || json_array_size(messages) == 0)
		return api_fail(t->p, E_BAD_REQUEST, "messages",
				"messages must be an array of 1 message or more");
	json_t *out = json_array();
	json_object_set_new(t->out, "messages", out);
	int rc = system ? read_system(t, system, out) : 0;
	json_array_foreach(messages, at, m)
	{
		if (rc)
			break;
		rc = read_message(t, m, at, out);
	}
	if (!rc)
		set_continued(t, out);
	return rc;
}
