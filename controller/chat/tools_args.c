/* Converts arguments not written as JSON: literals, and code shared with the reader of pairs. */
#include "controller/chat/tools_impl.h"

#include "controller/chat/marker.h"

#include <stdio.h>
#include <string.h>

void tools_put_escaped(struct tools *t, const char *p, size_t n, const struct tools_sink *to)
{
	size_t from = 0;
	for (size_t i = 0; i < n; i++) {
		const unsigned char c = (unsigned char)p[i];
		char escape[8];
		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		if (c == '\n' || c == '\t')
			snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : 't');
		else if (c == '"' || c == '\\')
			snprintf(escape, sizeof escape, "\\%c", c);
		else
			snprintf(escape, sizeof escape, "\\u%04x", c);
		tools_put(t, p + from, i - from, to);
		tools_put(t, escape, strlen(escape), to);
		from = i + 1;
	}
	tools_put(t, p + from, n - from, to);
}

void tools_put_key(struct tools *t, const struct tools_sink *to)
{
	t->has_arguments = true;
	tools_begin(t, to);
	if (t->arg.any)
		tools_put(t, ", \"", 3, to);
	else
		tools_put(t, "{\"", 2, to);
	t->arg.any = true;
	tools_put_escaped(t, t->arg.key.p ? t->arg.key.p : "", t->arg.key.len, to);
	tools_put(t, "\": ", 3, to);
}

void tools_put_close(struct tools *t, const struct tools_sink *to)
{
	t->has_arguments = t->arg.closed = true;
	tools_begin(t, to);
	tools_put(t, t->arg.any ? "}" : "{}", t->arg.any ? 1 : 2, to);
}

void tools_close_unless_closed(struct tools *t, enum tools_found found, const struct tools_sink *to)
{
	if (found == TOOLS_NO && t->begun && !t->arg.closed)
		tools_put_close(t, to);
}

/* ---- the types that the request declares ---- */

/* The types that a schema permits. */
struct types {
	bool text, null, other;
};

/* Add a type by name. */
static void add_type(struct types *t, const json_t *type)
{
	const char *name = json_is_string(type) ? json_string_value(type) : "";
	const bool text = strcmp(name, "string") == 0, null = strcmp(name, "null") == 0;
	t->text = t->text || text;
	t->null = t->null || null;
	t->other = t->other || !(text || null);
}

static void add_value(struct types *t, const json_t *value)
{
	t->text = t->text || json_is_string(value);
	t->null = t->null || json_is_null(value);
	t->other = t->other || !(json_is_string(value) || json_is_null(value));
}

/* Add the types of a schema: a type, a list of types, a list of schemas, or values. */
static void add_schema(struct types *t, const json_t *schema)
{
	const json_t *type = json_object_get(schema, "type"), *v;
	const json_t *any = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "oneOf");
	const json_t *values = json_object_get(schema, "enum"), *value = json_object_get(schema, "const");
	size_t i;
	if (json_is_array(type))
		json_array_foreach(type, i, v) add_type(t, v);
	else if (type)
		add_type(t, type);
	else if (any || one)
		json_array_foreach(any ? any : one, i, v) add_schema(t, v);
	else if (values)
		json_array_foreach(values, i, v) add_value(t, v);
	else if (value)
		add_value(t, value);
	else
		t->other = true;
}

enum tools_arg_kind tools_arg_kind_of(const json_t *schema)
{
	struct types t = {0};
	add_schema(&t, schema);
	return !t.text || t.other ? ARG_ANY : t.null ? ARG_TEXT_OR_NULL : ARG_TEXT;
}

enum tools_arg_kind tools_declared_kind(const struct tools *t)
{
	const json_t *tool;
	size_t i;
	json_array_foreach(t->declared, i, tool)
	{
		const json_t *f = json_object_get(tool, "function");
		const char *name = json_string_value(json_object_get(f, "name"));
		if (!name || strcmp(name, t->name.p) != 0)
			continue;
		const json_t *all = json_object_get(json_object_get(f, "parameters"), "properties");
		return tools_arg_kind_of(json_object_get(all, t->arg.key.p));
	}
	return ARG_ANY;
}

/* ---- literals ---- */

/* Read "key=" or the closing bracket; after a pair, a comma precedes it. */
static enum tools_found literal_key(struct tools *t, const struct tools_sink *to)
{
	const struct tools_literals *f = &t->format->literals;
	if (!tools_eat_blanks(t))
		return TOOLS_MORE;
	const char *p = tools_next(t);
	const size_t left = tools_left(t);
	size_t i = 0;
	if (t->arg.any && *p == ',')
		i = 1 + marker_skip_blanks(p + 1, left - 1);
	const size_t key = i;
	while (i < left && (p[i] == '_' || p[i] == '-' || (p[i] >= '0' && p[i] <= '9') ||
			    ((p[i] | 0x20) >= 'a' && (p[i] | 0x20) <= 'z')))
		i++;
	const size_t n = i - key;
	const size_t blanks = marker_skip_blanks(p + i, left - i);
	i += blanks;
	if (n > TOOLS_KEY_MAX || blanks > TOOLS_BLANKS_MAX || key > TOOLS_BLANKS_MAX)
		return TOOLS_NO;
	if (i == left)
		return TOOLS_MORE;
	if (p[i] == f->close && !n) { /* perhaps after a comma */
		tools_put_close(t, to);
		tools_eat(t, i + 1);
		return TOOLS_NO;
	}
	if (!n || p[i] != f->between)
		return TOOLS_NO;
	buf_clear(&t->arg.key);
	buf_put(&t->arg.key, p + key, n);
	tools_eat(t, i + 1);
	tools_put_key(t, to);
	t->arg.at = ARG_VALUE;
	t->arg.depth = 0;
	t->arg.quote = 0;
	t->arg.escaped = false;
	buf_clear(&t->arg.value);
	return TOOLS_YES;
}

/* Return true if the value ends with this text. */
static bool ends_with(const struct buf *value, const char *text)
{
	const size_t n = strlen(text);
	return value->len >= n && !memcmp(value->p + value->len - n, text, n);
}

/* Update the state for byte c, just added to the value; quote: the format's, or NULL for Python's quotes. */
static void track_literal(struct tools_arg *a, char c, const char *quote)
{
	if (quote && ends_with(&a->value, quote)) {
		a->quote = a->quote ? 0 : 1;
	} else if (a->quote) {
		if (quote)
			return;
		if (a->escaped)
			a->escaped = false;
		else if (c == '\\')
			a->escaped = true;
		else if (c == a->quote)
			a->quote = 0;
	} else if (!quote && (c == '"' || c == '\'')) {
		a->quote = c;
	} else if (c == '(' || c == '[' || c == '{') {
		a->depth++;
	} else if (c == ')' || c == ']' || c == '}') {
		a->depth--;
	}
}

/* Pass on a complete value: a literal as JSON; an expression, which has no known value, as text. */
static void put_literal(struct tools *t, const struct tools_sink *to)
{
	const char *p = t->arg.value.p ? t->arg.value.p : "";
	struct buf json = {0};
	if (tools_literal_json(&json, p, t->arg.value.len, &t->format->literals)) {
		tools_put(t, json.p, json.len, to);
	} else {
		tools_put(t, "\"", 1, to);
		tools_put_escaped(t, p, t->arg.value.len, to);
		tools_put(t, "\"", 1, to);
	}
	buf_fini(&json);
	t->arg.at = ARG_KEY;
}

static enum tools_found literal_value(struct tools *t, const struct tools_sink *to)
{
	const struct tools_literals *f = &t->format->literals;
	struct tools_arg *a = &t->arg;
	for (; tools_left(t); tools_eat(t, 1)) {
		const char c = *tools_next(t);
		const bool bracket = c == ')' || c == ']' || c == '}';
		if (!a->quote && !a->depth && (c == ',' || bracket)) {
			put_literal(t, to);
			return c == ',' || c == f->close ? TOOLS_YES : TOOLS_NO;
		}
		buf_putc(&a->value, c);
		enum tools_found ends = TOOLS_YES;
		if (f->quote && a->quote && ends_with(&a->value, f->quote))
			ends = tools_quote_ends(tools_next(t) + 1, tools_left(t) - 1);
		if (ends == TOOLS_MORE && !t->ended) {
			a->value.len--;
			return TOOLS_MORE;
		}
		if (ends != TOOLS_NO)
			track_literal(a, c, f->quote);
	}
	return TOOLS_MORE;
}

enum tools_found tools_literals(struct tools *t, const struct tools_sink *to)
{
	enum tools_found found = TOOLS_YES;
	while (found == TOOLS_YES) {
		if (!tools_left(t))
			return TOOLS_MORE;
		found = t->arg.at == ARG_VALUE ? literal_value(t, to) : literal_key(t, to);
	}
	tools_close_unless_closed(t, found, to);
	return found;
}
