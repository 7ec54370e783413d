#include "controller/chat/tools.h"

#include "controller/chat/marker.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

enum {
	KEY_MAX = 64, /* bytes kept of a key: more than any that is looked for */
	NAME_MAX_BYTES = 1024,
	DEPTH_MAX = 512,
};

static const char hermes_open[] = "<tool_call>";
static const char hermes_close[] = "</tool_call>";
static const char llama_tag[] = "<|python_tag|>";

void tools_init(struct tools *t, enum tools_style style)
{
	*t = (struct tools){.style = style, .state = style == TOOLS_LLAMA3 ? TOOLS_START : TOOLS_TEXT};
}

void tools_fini(struct tools *t)
{
	buf_fini(&t->held);
	buf_fini(&t->raw);
	buf_fini(&t->key);
	buf_fini(&t->string);
	buf_fini(&t->name);
	buf_fini(&t->pending);
}

static void put_text(const char *p, size_t n, const struct tools_sink *to)
{
	if (!n)
		return;
	to->text(to->user, p, n);
}

/* --- a call --- */

static void call_open(struct tools *t, enum tools_at at)
{
	t->state = TOOLS_CALL;
	t->at = at;
	t->value = VALUE_OTHER;
	t->begun = t->has_name = t->has_arguments = t->escaped = t->in_string = false;
	t->depth = 0;
	buf_clear(&t->key);
	buf_clear(&t->string);
	buf_clear(&t->name);
	buf_clear(&t->pending);
}

/* A call begins once its name and the beginning of its arguments are known, or it is complete. */
static void call_begin(struct tools *t, const struct tools_sink *to)
{
	json_t *name = json_loadb(t->name.p, t->name.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (!json_is_string(name) || !json_string_length(name)) {
		json_decref(name);
		t->has_name = false; /* never begins: passed on as text */
		return;
	}
	t->begun = true;
	to->begin(to->user, t->n_calls, json_string_value(name), json_string_length(name));
	json_decref(name);
	buf_clear(&t->raw);
	if (t->pending.len)
		to->arguments(to->user, t->n_calls, t->pending.p, t->pending.len);
	buf_clear(&t->pending);
}

static void call_maybe_begin(struct tools *t, const struct tools_sink *to)
{
	if (!t->begun && t->has_name && t->has_arguments)
		call_begin(t, to);
}

static void put_arguments(struct tools *t, const char *p, size_t n, const struct tools_sink *to)
{
	if (t->begun)
		to->arguments(to->user, t->n_calls, p, n);
	else
		buf_put(&t->pending, p, n);
}

/* The braces are closed, or the next byte does not belong to the call. */
static void call_close(struct tools *t, const struct tools_sink *to)
{
	if (!t->begun && t->has_name && t->style == TOOLS_HERMES && !t->has_arguments)
		buf_puts(&t->pending,
			 "{}"); /* a tool without arguments; in Llama's format it is any object */
	if (!t->begun && t->has_name && t->pending.len)
		call_begin(t, to);
	if (t->begun) {
		t->n_calls++;
		t->state = TOOLS_AFTER;
	} else {
		put_text(t->raw.p, t->raw.len, to);
		t->state = TOOLS_TEXT;
	}
	buf_clear(&t->raw);
}

/* Invalid JSON or not a call: what has not begun is text. */
static void call_fail(struct tools *t, const struct tools_sink *to)
{
	if (!t->begun)
		t->has_name = false;
	call_close(t, to);
}

static void value_begin(struct tools *t)
{
	static const struct {
		const char *key;
		enum tools_value value;
	} known[] = {{"name", VALUE_NAME}, {"arguments", VALUE_ARGUMENTS}, {"parameters", VALUE_ARGUMENTS}};
	t->value = VALUE_OTHER;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (t->key.len == strlen(known[i].key) && !memcmp(t->key.p, known[i].key, t->key.len))
			t->value = known[i].value;
	/* Of a duplicate key the first one counts. */
	if ((t->value == VALUE_NAME && t->has_name) || (t->value == VALUE_ARGUMENTS && t->has_arguments))
		t->value = VALUE_OTHER;
	t->depth = 0;
	t->in_string = t->escaped = false;
	buf_clear(&t->string);
}

/* Arguments may be a string that holds their JSON, escaped. */
static bool string_done(struct tools *t, const struct tools_sink *to)
{
	if (t->value == VALUE_NAME) {
		buf_put(&t->name, t->string.p, t->string.len);
		t->has_name = t->name.len <= NAME_MAX_BYTES;
	} else if (t->value == VALUE_ARGUMENTS) {
		json_t *s = json_loadb(t->string.p, t->string.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		if (!s)
			return false;
		t->has_arguments = true;
		call_maybe_begin(t, to);
		if (json_string_length(s))
			put_arguments(t, json_string_value(s), json_string_length(s), to);
		else
			put_arguments(t, "{}", 2, to);
		json_decref(s);
	}
	call_maybe_begin(t, to);
	return true;
}

/* The end of a word: null, true, a number. */
static bool word_done(struct tools *t, const struct tools_sink *to)
{
	if (t->value == VALUE_NAME)
		return false;
	if (t->value != VALUE_ARGUMENTS)
		return true;
	bool null = t->string.len == 4 && !memcmp(t->string.p, "null", 4);
	t->has_arguments = true;
	call_maybe_begin(t, to);
	put_arguments(t, null ? "{}" : t->string.p, null ? 2 : t->string.len, to);
	return true;
}

static void track_string(struct tools *t, char c)
{
	if (t->escaped)
		t->escaped = false;
	else if (c == '\\')
		t->escaped = true;
	else if (c == '"')
		t->in_string = !t->in_string;
}

/* One byte of an object or array; true: its last. */
static bool track_nested(struct tools *t, char c)
{
	if (t->in_string || c == '"') {
		track_string(t, c);
		return false;
	}
	if (c == '{' || c == '[')
		t->depth++;
	return (c == '}' || c == ']') && --t->depth == 0;
}

enum step { STEP_NEXT, STEP_AGAIN, STEP_FAIL, STEP_CLOSE };

/* The first byte of a value. */
static enum step value_first(struct tools *t, char c, const struct tools_sink *to)
{
	value_begin(t);
	if (c == '"') {
		t->at = AT_STRING;
		t->in_string = true;
		buf_putc(&t->string, c);
		return STEP_NEXT;
	}
	if (c == '{' || c == '[') {
		if (t->value == VALUE_NAME)
			return STEP_FAIL;
		t->at = AT_VALUE;
		if (t->value == VALUE_ARGUMENTS) {
			t->has_arguments = true;
			call_maybe_begin(t, to);
		}
		return STEP_AGAIN; /* with the bytes of the value */
	}
	if ((c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-')
		return STEP_FAIL;
	t->at = AT_WORD;
	return STEP_AGAIN;
}

/* One byte that is not within an object or array. */
static enum step structure(struct tools *t, char c, const struct tools_sink *to)
{
	switch (t->at) {
	case AT_OPEN:
		if (c == '{')
			t->at = AT_KEY_OR_END;
		return marker_is_blank(c) || c == '{' ? STEP_NEXT : STEP_FAIL;
	case AT_KEY_OR_END:
		if (c == '}')
			return STEP_CLOSE;
		if (c == '"') {
			t->at = AT_KEY;
			t->escaped = false;
			buf_clear(&t->key);
		}
		return marker_is_blank(c) || c == '"' || c == ',' ? STEP_NEXT : STEP_FAIL;
	case AT_KEY:
		if (c == '"' && !t->escaped) {
			t->at = AT_COLON;
			return STEP_NEXT;
		}
		t->escaped = c == '\\' && !t->escaped;
		if (t->key.len < KEY_MAX)
			buf_putc(&t->key, c);
		return STEP_NEXT;
	case AT_COLON:
		if (c == ':')
			t->at = AT_VALUE_BEGIN;
		return marker_is_blank(c) || c == ':' ? STEP_NEXT : STEP_FAIL;
	case AT_VALUE_BEGIN:
		return marker_is_blank(c) ? STEP_NEXT : value_first(t, c, to);
	case AT_STRING:
		buf_putc(&t->string, c);
		track_string(t, c);
		if (t->in_string)
			return STEP_NEXT;
		t->at = AT_KEY_OR_END;
		return string_done(t, to) ? STEP_NEXT : STEP_FAIL;
	case AT_WORD:
		if (marker_is_blank(c) || c == ',' || c == '}') {
			t->at = AT_KEY_OR_END;
			return word_done(t, to) ? STEP_AGAIN : STEP_FAIL;
		}
		buf_putc(&t->string, c);
		return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || strchr("+-.E", c) ? STEP_NEXT
											     : STEP_FAIL;
	case AT_VALUE:
		break;
	}
	return STEP_FAIL;
}

/* Passes on the bytes of an object or array that is a value.  Bytes taken. */
static size_t nested(struct tools *t, const char *p, size_t n, const struct tools_sink *to, bool *fail)
{
	size_t i = 0;
	while (i < n) {
		bool last = track_nested(t, p[i++]);
		*fail = t->depth > DEPTH_MAX;
		if (last)
			t->at = AT_KEY_OR_END;
		if (last || *fail)
			break;
	}
	if (!t->begun)
		buf_put(&t->raw, p, i);
	if (t->value == VALUE_ARGUMENTS)
		put_arguments(t, p, i, to);
	return i;
}

/* Bytes taken by the call, which may end with them. */
static size_t in_call(struct tools *t, const char *p, size_t n, const struct tools_sink *to)
{
	size_t i = 0;
	while (i < n && t->state == TOOLS_CALL) {
		bool fail = false;
		if (t->at == AT_VALUE) {
			i += nested(t, p + i, n - i, to, &fail);
			if (fail)
				call_fail(t, to);
			continue;
		}
		enum step s = structure(t, p[i], to);
		if (s == STEP_AGAIN)
			continue;
		if (s == STEP_FAIL) {
			call_fail(t, to); /* without this byte, which is parsed again as text */
			break;
		}
		if (!t->begun)
			buf_putc(&t->raw, p[i]);
		i++;
		if (s == STEP_CLOSE)
			call_close(t, to);
	}
	return i;
}

/* --- around calls --- */

/* Text up to a marker.  As in each state, false: it needs more text. */
static bool in_text(struct tools *t, const struct tools_sink *to)
{
	bool look = t->style == TOOLS_HERMES && t->n_calls < TOOLS_CALLS_MAX;
	const char *mark = look ? memmem(t->held.p, t->held.len, hermes_open, sizeof hermes_open - 1) : NULL;
	size_t n = mark   ? (size_t)(mark - t->held.p)
		   : look ? t->held.len - marker_partial(t->held.p, t->held.len, hermes_open)
			  : t->held.len;
	size_t text = n;
	while (look && text && marker_is_blank(t->held.p[text - 1]))
		text--;
	if (mark) {
		/* raw is passed on as text if this is not a call, the blanks before it included. */
		buf_put(&t->raw, t->held.p + text, n - text + sizeof hermes_open - 1);
		put_text(t->held.p, text, to);
		marker_drop(&t->held, n + sizeof hermes_open - 1);
		call_open(t, AT_OPEN);
		return true;
	}
	put_text(t->held.p, text, to);
	marker_drop(&t->held, text);
	return false;
}

static bool at_start(struct tools *t)
{
	size_t i = marker_skip_blanks(t->held.p, t->held.len);
	if (i == t->held.len)
		return false;
	int tag = marker_begins(t->held.p + i, t->held.len - i, llama_tag);
	if (tag == 0)
		return false;
	if (tag < 0 && t->held.p[i] != '{') {
		t->state = TOOLS_TEXT;
		return true;
	}
	i += tag > 0 ? sizeof llama_tag - 1 : 0;
	buf_put(&t->raw, t->held.p, i);
	marker_drop(&t->held, i);
	call_open(t, AT_OPEN);
	return true;
}

static bool after_call(struct tools *t)
{
	size_t i = 0;
	bool llama = t->style == TOOLS_LLAMA3;
	while (i < t->held.len && (marker_is_blank(t->held.p[i]) || (llama && t->held.p[i] == ';')))
		i++;
	marker_drop(&t->held, i);
	if (!t->held.len)
		return false;
	if (llama) {
		bool another = t->held.p[0] == '{' && t->n_calls < TOOLS_CALLS_MAX;
		if (another)
			call_open(t, AT_OPEN);
		else
			t->state = TOOLS_TEXT;
		return true;
	}
	int close = marker_begins(t->held.p, t->held.len, hermes_close);
	if (close == 0)
		return false;
	if (close > 0)
		marker_drop(&t->held, sizeof hermes_close - 1);
	else
		t->state = TOOLS_TEXT;
	return true;
}

void tools_push(struct tools *t, const char *p, size_t n, const struct tools_sink *to)
{
	if (t->style == TOOLS_NONE) {
		put_text(p, n, to);
		return;
	}
	buf_put(&t->held, p, n);
	for (bool more = true; more && t->held.len;)
		switch (t->state) {
		case TOOLS_TEXT:
			more = in_text(t, to);
			break;
		case TOOLS_START:
			more = at_start(t);
			break;
		case TOOLS_CALL:
			marker_drop(&t->held, in_call(t, t->held.p, t->held.len, to));
			break;
		case TOOLS_AFTER:
			more = after_call(t);
			break;
		}
}

void tools_end(struct tools *t, const struct tools_sink *to)
{
	if (t->state == TOOLS_CALL && t->begun) {
		t->n_calls++;
	} else if (t->state == TOOLS_CALL) {
		put_text(t->raw.p, t->raw.len, to);
	} else if (t->state != TOOLS_AFTER) {
		put_text(t->held.p, t->held.len, to);
	}
	buf_clear(&t->raw);
	buf_clear(&t->held);
	t->state = TOOLS_AFTER;
}

int tools_style_parse(const char *name, enum tools_style *out)
{
	static const struct {
		const char *name;
		enum tools_style style;
	} all[] = {{"none", TOOLS_NONE}, {"hermes", TOOLS_HERMES}, {"llama3", TOOLS_LLAMA3}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(all[i].name, name)) {
			*out = all[i].style;
			return 0;
		}
	return -EINVAL;
}
