#include "controller/apis/ollama/ollama_read.h"

#include "base/alloc.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tool call.  Calls of the same name form a list; numbers count from 1, 0 means none. */
struct call {
	const json_t *id; /* borrowed from the new messages */
	size_t next;
	bool answered;
};

/* All calls so far, and per name a list of those not yet answered by a result.  The lists keep the time
 * linear for a body of many calls and results. */
struct calls {
	struct call *call; /* [n], owned, oldest first; number 1 is call[0] */
	size_t n, cap;
	size_t oldest; /* every call before call[oldest] is answered */
	struct names {
		size_t first, last; /* numbers of calls */
	} * names;                  /* [n_names], owned */
	size_t n_names, cap_names;
	json_t *places; /* owned: name -> index in names */
	json_t *ids;    /* owned: id -> number of its call */
};

static const struct field_row rows[] = {
	{"role", FIELD_ANY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"content", FIELD_ANY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"thinking", FIELD_ANY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"tool_calls", FIELD_ANY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"tool_name", FIELD_ANY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"tool_call_id", FIELD_ANY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"images", FIELD_ANY, FIELD_HONOURED, 0, 0, NULL, NULL},
};
static const struct field_table members = {rows, sizeof rows / sizeof *rows, NULL};

static void add_open(struct calls *all, const json_t *name, const json_t *id)
{
	const json_t *known = json_object_get(all->places, json_string_value(name));
	const size_t place = known ? (size_t)json_integer_value(known) : all->n_names;
	array_grow(all->call, all->cap, all->n + 1);
	all->call[all->n++] = (struct call){.id = id};
	if (!known) {
		array_grow(all->names, all->cap_names, all->n_names + 1);
		json_object_set_new(all->places, json_string_value(name), json_integer((json_int_t)place));
		all->names[all->n_names++] = (struct names){0};
	}
	struct names *of = &all->names[place];
	if (of->last)
		all->call[of->last - 1].next = all->n;
	if (!of->first)
		of->first = all->n;
	of->last = all->n;
	json_object_set_new(all->ids, json_string_value(id), json_integer((json_int_t)all->n));
}

/* Return the oldest open call of this name, or of any name if the name has none; NULL: no call is open. */
static struct call *take_open(struct calls *all, const json_t *name)
{
	const json_t *known = name ? json_object_get(all->places, json_string_value(name)) : NULL;
	struct names *of = known ? &all->names[json_integer_value(known)] : NULL;
	while (of && of->first && all->call[of->first - 1].answered)
		of->first = all->call[of->first - 1].next;
	if (of && !of->first)
		of->last = 0;
	while (all->oldest < all->n && all->call[all->oldest].answered)
		all->oldest++;
	struct call *call = of && of->first        ? &all->call[of->first - 1]
			    : all->oldest < all->n ? &all->call[all->oldest]
						   : NULL;
	if (call)
		call->answered = true;
	return call;
}

static int read_call(struct translation *t, const json_t *call, size_t at, struct calls *all, json_t *out)
{
	const json_t *f = json_get(call, "function"), *name = json_get(f, "name"),
		     *given = json_get(call, "id");
	const json_t *arguments = json_get(f, "arguments");
	char id[40];
	if (!json_is_string(name))
		return api_fail(t->p, E_BAD_REQUEST, "messages",
				"messages[%zu].tool_calls: each needs a function with a name", at);
	if (arguments && !json_is_object(arguments) && !json_is_string(arguments))
		return api_fail(t->p, E_BAD_REQUEST, "messages",
				"messages[%zu].tool_calls: arguments must be an object", at);
	snprintf(id, sizeof id, "call_%zu", all->n);
	json_t *known = json_is_string(given) ? json_incref((json_t *)given) : json_string(id);
	char *text = json_is_object(arguments) ? json_text(arguments, JSON_COMPACT) : NULL;
	json_t *as_text = text                        ? json_string(text)
			  : json_is_string(arguments) ? json_incref((json_t *)arguments)
						      : json_string("{}");
	free(text);
	json_array_append_new(out, json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", known, "type", "function",
					     "function", "name", name, "arguments", as_text));
	add_open(all, name, known);
	json_decref(known); /* the message owns it */
	return 0;
}

static int read_calls(struct translation *t, const json_t *calls, size_t at, struct calls *all, json_t *m)
{
	size_t i;
	const json_t *call;
	if (!json_is_array(calls))
		return api_fail(t->p, E_BAD_REQUEST, "messages", "messages[%zu].tool_calls must be an array",
				at);
	json_t *out = json_array();
	json_object_set_new(m, "tool_calls", out);
	json_array_foreach(calls, i, call)
	{
		int rc = read_call(t, call, at, all, out);
		if (rc)
			return rc;
	}
	return 0;
}

/* Set the id of the call that this result answers: the client's id, or the id of an open call if the template
 * shows ids. */
static void set_call_id(json_t *m, const json_t *name, const json_t *id, struct calls *all, bool shown)
{
	const json_t *known = id ? json_object_get(all->ids, json_string_value(id)) : NULL;
	if (known)
		all->call[json_integer_value(known) - 1].answered = true;
	const struct call *call = id ? NULL : take_open(all, name);
	if (id)
		json_object_set(m, "tool_call_id", (json_t *)id);
	else if (call && shown)
		json_object_set(m, "tool_call_id", (json_t *)call->id);
}

/* Check that a member is a string or absent. */
static int check_string(struct translation *t, const json_t *v, size_t at, const char *name)
{
	return !v || json_is_string(v) ? 0
				       : api_fail(t->p, E_BAD_REQUEST, "messages",
						  "messages[%zu].%s must be a string", at, name);
}

static int check_members(struct translation *t, const json_t *message, size_t at)
{
	static const char *const strings[] = {"content", "thinking", "tool_name", "tool_call_id"};
	const json_t *images = json_get(message, "images");
	int rc = 0;
	if (!json_is_object(message) || !json_is_string(json_get(message, "role")))
		return api_fail(t->p, E_BAD_REQUEST, "messages", "messages[%zu].role must be a string", at);
	if (images && (!json_is_array(images) || json_array_size(images)))
		return api_fail(t->p, E_BAD_REQUEST, "messages",
				"messages[%zu].images is not supported: this model reads text", at);
	for (size_t i = 0; i < sizeof strings / sizeof *strings && !rc; i++)
		rc = check_string(t, json_get(message, strings[i]), at, strings[i]);
	return rc ? rc : translate_members(t, message, "messages.", &members);
}

static int read_message(struct translation *t, const json_t *message, size_t at, struct calls *all,
			json_t *out)
{
	const json_t *role = json_get(message, "role"), *content = json_get(message, "content");
	const json_t *calls = json_get(message, "tool_calls"), *id = json_get(message, "tool_call_id");
	const json_t *name = json_get(message, "tool_name"), *thinking = json_get(message, "thinking");
	const struct ollama_reading *how = t->user;
	int rc = check_members(t, message, at);
	if (rc)
		return rc;
	json_t *m = json_pack("{s:O, s:o}", "role", role, "content",
			      content ? json_incref((json_t *)content) : json_string(""));
	json_array_append_new(out, m);
	if (json_string_length(thinking))
		json_object_set(m, "reasoning_content", (json_t *)thinking);
	if (strcmp(json_string_value(role), "tool") == 0) {
		if (name)
			json_object_set(m, "name", (json_t *)name);
		set_call_id(m, name, id, all, how->call_ids);
	} else if (name || id) {
		translate_ignore(t, name ? "messages.tool_name" : "messages.tool_call_id");
	}
	return calls ? read_calls(t, calls, at, all, m) : 0;
}

int ollama_messages_read(struct translation *t, const json_t *messages)
{
	struct calls all = {.places = json_object(), .ids = json_object()};
	size_t at;
	const json_t *m;
	int rc = 0;
	json_t *out = json_array();
	json_object_set_new(t->out, "messages", out);
	json_array_foreach(messages, at, m)
	{
		rc = read_message(t, m, at, &all, out);
		if (rc)
			break;
	}
	free(all.call);
	free(all.names);
	json_decref(all.places);
	json_decref(all.ids);
	return rc;
}
