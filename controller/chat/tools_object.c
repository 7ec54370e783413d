/* Reads a call that is one JSON object, and arguments that are one JSON object. */
#include "controller/chat/tools_impl.h"

#include "controller/chat/marker.h"

#include <string.h>

enum { KEY_MAX = 64 /* bytes kept of a key: more than any known key has */ };

void tools_object_open(struct tools *t, bool arguments_only)
{
	struct tools_object *o = &t->object;
	o->at = arguments_only ? AT_VALUE : AT_OPEN;
	o->value = arguments_only ? VALUE_ARGUMENTS : VALUE_OTHER;
	o->escaped = o->in_string = false;
	o->depth = 0;
	buf_clear(&o->key);
	buf_clear(&o->string);
}

static void value_begin(struct tools *t)
{
	static const struct {
		const char *key;
		enum tools_value value;
	} known[] = {{"name", VALUE_NAME},
		     {"tool_name", VALUE_NAME},
		     {"arguments", VALUE_ARGUMENTS},
		     {"parameters", VALUE_ARGUMENTS}};
	struct tools_object *o = &t->object;
	o->value = VALUE_OTHER;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (o->key.len == strlen(known[i].key) && !memcmp(o->key.p, known[i].key, o->key.len))
			o->value = known[i].value;
	/* If a key is duplicated, the first wins. */
	if ((o->value == VALUE_NAME && t->has_name) || (o->value == VALUE_ARGUMENTS && t->has_arguments))
		o->value = VALUE_OTHER;
	o->depth = 0;
	o->in_string = o->escaped = false;
	buf_clear(&o->string);
}

/* Finish a string: a name, or arguments, which may be JSON text in a string. */
static bool string_done(struct tools *t, const struct tools_sink *to)
{
	const struct buf *raw = &t->object.string;
	if (t->object.value == VALUE_OTHER)
		return true;
	json_t *s = json_loadb(raw->p, raw->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (t->object.value == VALUE_NAME) {
		const size_t n = json_string_length(s);
		t->has_name = n && n <= TOOLS_NAME_MAX;
		if (t->has_name)
			buf_put(&t->name, json_string_value(s), n);
		tools_begin(t, to);
	} else if (s) {
		t->has_arguments = true;
		tools_begin(t, to);
		if (json_string_length(s))
			tools_put(t, json_string_value(s), json_string_length(s), to);
		else
			tools_put(t, "{}", 2, to);
	}
	const bool ok = s || t->object.value == VALUE_NAME;
	json_decref(s);
	return ok;
}

/* Finish a word: null, true, a number. */
static bool word_done(struct tools *t, const struct tools_sink *to)
{
	const struct buf *word = &t->object.string;
	if (t->object.value == VALUE_NAME)
		return false;
	if (t->object.value != VALUE_ARGUMENTS)
		return true;
	const bool null = word->len == 4 && !memcmp(word->p, "null", 4);
	t->has_arguments = true;
	tools_begin(t, to);
	tools_put(t, null ? "{}" : word->p, null ? 2 : word->len, to);
	return true;
}

static void track_string(struct tools_object *o, char c)
{
	if (o->escaped)
		o->escaped = false;
	else if (c == '\\')
		o->escaped = true;
	else if (c == '"')
		o->in_string = !o->in_string;
}

/* Track one byte of an object or array.  Return true for its last byte. */
static bool track_nested(struct tools_object *o, char c)
{
	if (o->in_string || c == '"') {
		track_string(o, c);
		return false;
	}
	if (c == '{' || c == '[')
		o->depth++;
	return (c == '}' || c == ']') && --o->depth == 0;
}

enum step { STEP_NEXT, STEP_AGAIN, STEP_FAIL, STEP_CLOSE };

/* Read the first byte of a value. */
static enum step value_first(struct tools *t, char c, const struct tools_sink *to)
{
	struct tools_object *o = &t->object;
	value_begin(t);
	if (c == '"') {
		o->at = AT_STRING;
		o->in_string = true;
		buf_putc(&o->string, c);
		return STEP_NEXT;
	}
	if (c == '{' || c == '[') {
		if (o->value == VALUE_NAME)
			return STEP_FAIL;
		o->at = AT_VALUE;
		t->has_arguments = t->has_arguments || o->value == VALUE_ARGUMENTS;
		tools_begin(t, to);
		return STEP_AGAIN; /* read the byte again, as part of the value */
	}
	if ((c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-')
		return STEP_FAIL;
	o->at = AT_WORD;
	return STEP_AGAIN;
}

static enum step in_key(struct tools_object *o, char c)
{
	if (c == '"' && !o->escaped) {
		o->at = AT_COLON;
		return STEP_NEXT;
	}
	o->escaped = c == '\\' && !o->escaped;
	if (o->key.len < KEY_MAX)
		buf_putc(&o->key, c);
	return STEP_NEXT;
}

static enum step in_word(struct tools *t, char c, const struct tools_sink *to)
{
	if (marker_is_blank(c) || c == ',' || c == '}') {
		t->object.at = AT_KEY_OR_END;
		return word_done(t, to) ? STEP_AGAIN : STEP_FAIL;
	}
	buf_putc(&t->object.string, c);
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || strchr("+-.E", c) ? STEP_NEXT : STEP_FAIL;
}

/* Read one byte outside nested objects and arrays. */
static enum step structure(struct tools *t, char c, const struct tools_sink *to)
{
	struct tools_object *o = &t->object;
	switch (o->at) {
	case AT_OPEN:
		if (c == '{')
			o->at = AT_KEY_OR_END;
		return marker_is_blank(c) || c == '{' ? STEP_NEXT : STEP_FAIL;
	case AT_KEY_OR_END:
		if (c == '}')
			return STEP_CLOSE;
		if (c == '"') {
			o->at = AT_KEY;
			o->escaped = false;
			buf_clear(&o->key);
		}
		return marker_is_blank(c) || c == '"' || c == ',' ? STEP_NEXT : STEP_FAIL;
	case AT_KEY:
		return in_key(o, c);
	case AT_COLON:
		if (c == ':')
			o->at = AT_VALUE_BEGIN;
		return marker_is_blank(c) || c == ':' ? STEP_NEXT : STEP_FAIL;
	case AT_VALUE_BEGIN:
		return marker_is_blank(c) ? STEP_NEXT : value_first(t, c, to);
	case AT_STRING:
		buf_putc(&o->string, c);
		track_string(o, c);
		if (o->in_string)
			return STEP_NEXT;
		o->at = AT_KEY_OR_END;
		return string_done(t, to) ? STEP_NEXT : STEP_FAIL;
	case AT_WORD:
		return in_word(t, c, to);
	case AT_VALUE:
		break;
	}
	return STEP_FAIL;
}

/* Pass on the bytes of a value that is an object or array. */
static enum tools_found nested(struct tools *t, const struct tools_sink *to)
{
	struct tools_object *o = &t->object;
	const char *p = tools_next(t);
	const size_t n = tools_left(t);
	enum tools_found found = TOOLS_MORE;
	size_t i = 0;
	while (i < n && found == TOOLS_MORE) {
		if (track_nested(o, p[i++]))
			found = TOOLS_YES;
		else if (o->depth > TOOLS_DEPTH_MAX)
			found = TOOLS_NO;
	}
	tools_eat(t, i);
	if (o->value == VALUE_ARGUMENTS)
		tools_put(t, p, i, to);
	return found;
}

enum tools_found tools_object(struct tools *t, const struct tools_sink *to)
{
	struct tools_object *o = &t->object;
	while (tools_left(t)) {
		if (o->at == AT_VALUE) {
			const enum tools_found found = nested(t, to);
			if (found != TOOLS_YES)
				return found;
			o->at = AT_KEY_OR_END;
			continue;
		}
		const enum step s = structure(t, *tools_next(t), to);
		if (s == STEP_AGAIN)
			continue;
		if (s == STEP_FAIL)
			return TOOLS_NO; /* do not consume this byte, which is parsed again as text */
		tools_eat(t, 1);
		if (s != STEP_CLOSE)
			continue;
		if (t->has_name && !t->has_arguments && !t->format->at_start) {
			/* A tool without arguments. At the very beginning of an output this could
			 * be any object. */
			t->has_arguments = true;
			buf_puts(&t->pending, "{}");
			tools_begin(t, to);
		}
		return TOOLS_YES;
	}
	return TOOLS_MORE;
}

enum tools_found tools_json(struct tools *t, const struct tools_sink *to)
{
	if (t->object.at == AT_OPEN) {
		if (!tools_eat_blanks(t))
			return TOOLS_MORE;
		if (*tools_next(t) != '{')
			return TOOLS_NO;
		tools_object_open(t, true);
		t->has_arguments = true;
		tools_begin(t, to);
	}
	return tools_left(t) ? nested(t, to) : TOOLS_MORE;
}
