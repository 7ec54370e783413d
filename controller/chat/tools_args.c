/* Arguments that are not written as JSON, and become it: values between tags, and literals. */
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

/* What follows does not belong to the call: its arguments are those so far. */
static void close_unless_closed(struct tools *t, enum tools_found found, const struct tools_sink *to)
{
	if (found == TOOLS_NO && t->begun && !t->arg.closed)
		tools_put_close(t, to);
}

/* ---- the types that the request declares ---- */

static bool is_text(const json_t *type)
{
	return json_is_string(type) && !strcmp(json_string_value(type), "string");
}

static bool is_null(const json_t *type)
{
	return json_is_string(type) && !strcmp(json_string_value(type), "null");
}

/* A type, a list of types, or a list of schemas that have one type each. */
enum tools_arg_kind tools_arg_kind_of(const json_t *schema)
{
	const json_t *of = json_object_get(schema, "type"), *v;
	bool text = false, null = false, other = false;
	size_t i;
	if (is_text(of))
		return ARG_TEXT;
	of = of ? of : json_object_get(schema, "anyOf");
	of = of ? of : json_object_get(schema, "oneOf");
	json_array_foreach(of, i, v)
	{
		const json_t *type = json_is_object(v) ? json_object_get(v, "type") : v;
		text = text || is_text(type);
		null = null || is_null(type);
		other = other || !(is_text(type) || is_null(type));
	}
	return !text || other ? ARG_ANY : null ? ARG_TEXT_OR_NULL : ARG_TEXT;
}

/* Of the current call's argument with the current key. */
static enum tools_arg_kind declared_kind(const struct tools *t)
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

/* ---- pairs ---- */

/* A key, or the end of the call, which a text that may follow it shows. */
static enum tools_found pair_or_end(struct tools *t, const struct tools_sink *to)
{
	enum tools_found found = tools_eat_literal(t, t->format->tags.key_open);
	if (found == TOOLS_YES) {
		t->arg.at = ARG_KEY_TEXT;
		buf_clear(&t->arg.key);
		return TOOLS_YES;
	}
	for (int k = 0; k < TOOLS_THEN_MAX && t->format->then[k].text && tools_left(t); k++) {
		const int is = marker_begins(tools_next(t), tools_left(t), t->format->then[k].text);
		if (is > 0) {
			tools_put_close(t, to);
			return TOOLS_NO; /* no further pair: the call closes, complete */
		}
		found = is == 0 ? TOOLS_MORE : found;
	}
	return found;
}

static enum tools_found pair_key(struct tools *t)
{
	const char *close = t->format->tags.key_close;
	const size_t most = TOOLS_KEY_MAX + strlen(close);
	const size_t searched = tools_left(t) < most ? tools_left(t) : most;
	const char *end = memmem(tools_next(t), searched, close, strlen(close));
	if (!end)
		return searched < most ? TOOLS_MORE : TOOLS_NO;
	const size_t n = (size_t)(end - tools_next(t));
	buf_put(&t->arg.key, tools_next(t), n);
	tools_eat(t, n + strlen(close));
	t->arg.at = ARG_OPEN;
	return n ? TOOLS_YES : TOOLS_NO;
}

static enum tools_found pair_open(struct tools *t, const struct tools_sink *to)
{
	const struct tools_tags *tags = &t->format->tags;
	t->arg.kind = tags->text_open ? ARG_ANY : declared_kind(t);
	if (*tags->value_open) {
		enum tools_found found = tags->text_open ? tools_eat_literal(t, tags->text_open) : TOOLS_NO;
		if (found == TOOLS_YES)
			t->arg.kind = ARG_TEXT;
		if (found != TOOLS_YES) {
			const enum tools_found other = tools_eat_literal(t, tags->value_open);
			if (other != TOOLS_YES)
				return found == TOOLS_MORE ? found : other;
		}
	}
	tools_put_key(t, to);
	if (t->arg.kind == ARG_TEXT)
		tools_put(t, "\"", 1, to);
	t->arg.at = ARG_VALUE;
	t->arg.began = false;
	buf_clear(&t->arg.value);
	return TOOLS_YES;
}

/* A value of another type than text, complete: as JSON if it is any, else as text. */
static void put_value(struct tools *t, const struct tools_sink *to)
{
	static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
	const char *p = t->arg.value.p ? t->arg.value.p : "";
	size_t n = t->arg.value.len;
	const char *bare = p + marker_skip_blanks(p, n);
	size_t bare_n = n - (size_t)(bare - p);
	while (bare_n && marker_is_blank(bare[bare_n - 1]))
		bare_n--;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (bare_n == strlen(words[i][0]) && !memcmp(bare, words[i][0], bare_n)) {
			bare = words[i][1];
			bare_n = strlen(bare);
		}
	static const struct tools_literals python = {'=', ')', NULL};
	struct buf literal = {0};
	json_t *v = NULL;
	if (t->arg.kind == ARG_ANY)
		v = json_loadb(bare, bare_n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
			       NULL);
	/* Some templates show lists and objects as Python prints them, so models write them so. */
	const bool nested = t->arg.kind == ARG_ANY && !v && bare_n && (*bare == '[' || *bare == '{');
	if (nested && tools_literal_json(&literal, bare, bare_n, &python)) {
		tools_put(t, literal.p, literal.len, to);
	} else if (v || (t->arg.kind == ARG_TEXT_OR_NULL && bare_n == 4 && !memcmp(bare, "null", 4))) {
		tools_put(t, bare, bare_n, to);
	} else {
		tools_put(t, "\"", 1, to);
		tools_put_escaped(t, p, n, to);
		tools_put(t, "\"", 1, to);
	}
	json_decref(v);
	buf_fini(&literal);
}

/* Whether the text from p on ends the call, as models write it that forgot the value's end: the first text
 * that may follow a call and, where there are others, one of those. */
static enum tools_found ends_call(const struct tools_format *f, const char *p, size_t n)
{
	const int is = marker_begins(p, n, f->then[0].text);
	if (is <= 0)
		return is ? TOOLS_NO : TOOLS_MORE;
	size_t i = strlen(f->then[0].text);
	i += marker_skip_blanks(p + i, n - i);
	if (i > TOOLS_BLANKS_MAX || !f->then[1].text)
		return f->then[1].text ? TOOLS_NO : TOOLS_YES;
	enum tools_found found = TOOLS_NO;
	for (int k = 1; k < TOOLS_THEN_MAX && f->then[k].text && found != TOOLS_YES; k++) {
		const int next = marker_begins(p + i, n - i, f->then[k].text);
		found = next > 0 ? TOOLS_YES : next == 0 ? TOOLS_MORE : found;
	}
	return found;
}

/* Where the call ends in the first n bytes of a value, or may end: *found; n: nowhere. */
static size_t find_end_of_call(const struct tools *t, size_t n, enum tools_found *found)
{
	const char *p = tools_next(t);
	*found = TOOLS_NO;
	for (size_t i = 0; i < n; i++) {
		const char *at = memchr(p + i, t->format->then[0].text[0], n - i);
		if (!at)
			return n;
		i = (size_t)(at - p);
		*found = ends_call(t->format, at, tools_left(t) - i);
		if (*found != TOOLS_NO)
			return i;
	}
	return n;
}

/* Bytes of a value: of text at once, of others when all are there.  Models that write a value on lines of its
 * own put a newline on each side. */
static enum tools_found pair_value(struct tools *t, const struct tools_sink *to)
{
	const struct tools_tags *tags = &t->format->tags;
	const bool lines = !*tags->value_open;
	if (lines && !t->arg.began && *tools_next(t) == '\n')
		tools_eat(t, 1);
	t->arg.began = true;
	const char *p = tools_next(t),
		   *end = memmem(p, tools_left(t), tags->value_close, strlen(tags->value_close));
	size_t n =
		end ? (size_t)(end - p) : tools_left(t) - marker_partial(p, tools_left(t), tags->value_close);
	enum tools_found broken;
	const size_t call_end = find_end_of_call(t, n, &broken);
	if (broken != TOOLS_NO)
		end = NULL;
	n = call_end < n ? call_end : n;
	const size_t whole = n;
	if (lines && n && p[n - 1] == '\n')
		n--;
	if (t->arg.kind == ARG_TEXT)
		tools_put_escaped(t, p, n, to);
	else
		buf_put(&t->arg.value, p, n);
	if (!end && broken != TOOLS_YES) {
		tools_eat(t, n);
		return TOOLS_MORE;
	}
	tools_eat(t, end ? (size_t)(end - p) + strlen(tags->value_close) : whole);
	if (t->arg.kind == ARG_TEXT)
		tools_put(t, "\"", 1, to);
	else
		put_value(t, to);
	t->arg.at = ARG_KEY;
	return TOOLS_YES;
}

enum tools_found tools_pairs(struct tools *t, const struct tools_sink *to)
{
	enum tools_found found = TOOLS_YES;
	while (found == TOOLS_YES)
		switch (t->arg.at) {
		case ARG_KEY:
			found = pair_or_end(t, to);
			break;
		case ARG_KEY_TEXT:
			found = pair_key(t);
			break;
		case ARG_OPEN:
			found = pair_open(t, to);
			break;
		case ARG_VALUE:
			found = tools_left(t) ? pair_value(t, to) : TOOLS_MORE;
			break;
		}
	close_unless_closed(t, found, to);
	return found;
}

/* ---- literals ---- */

/* "key=" or the closing bracket; behind a pair, a comma comes first. */
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
	if (p[i] == f->close && !n) { /* perhaps behind a comma */
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

/* Whether the value ends with this text. */
static bool ends_with(const struct buf *value, const char *text)
{
	const size_t n = strlen(text);
	return value->len >= n && !memcmp(value->p + value->len - n, text, n);
}

/* One byte of a value, which has been added; quote: of the format, or NULL for Python's. */
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

/* A value, complete: an expression has no value that it stands for, and is a text. */
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
	close_unless_closed(t, found, to);
	return found;
}
