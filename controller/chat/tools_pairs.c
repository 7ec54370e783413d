/* Reads arguments written as keys and values between tags.
 *
 * A value may contain its format's own tags, so a tag ends a value only if valid syntax follows:
 *
 *     value_close  key_open KEY key_close        the next pair
 *     value_close  then[0] CLOSER                the end of the call; CLOSER is a later text of `then`
 *     value_close  CLOSER CALL                   a call without its end
 *     then[0] CLOSER CALL                        a value without its end
 *
 * CLOSER is required only if the format has one; CALL is the beginning of another call. The end of the
 * output matches everything that may follow. Text that may still become one of these is held back. */
#include "controller/chat/tools_impl.h"

#include "controller/chat/marker.h"

#include <string.h>

/* ---- keys and values ---- */

/* Read a key tag, or detect the end of the call by a text that may follow a call. */
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
			return TOOLS_NO; /* no further pair: close the complete call */
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
	t->arg.kind = tags->text_open ? ARG_ANY : tools_declared_kind(t);
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

/* Pass on a complete non-text value: as JSON if it is valid JSON, else as text. */
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
	/* Some templates print lists and objects as Python does, and models imitate them. */
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

/* ---- look-ahead ---- */

enum { AHEAD_BLANKS_MAX = 64 /* before each tag, bytes */ };

/* Text that is read without being consumed. */
struct ahead {
	const char *p;
	size_t n, at;
};

static enum tools_found either(enum tools_found a, enum tools_found b)
{
	return a == TOOLS_YES || b == TOOLS_YES     ? TOOLS_YES
	       : a == TOOLS_MORE || b == TOOLS_MORE ? TOOLS_MORE
						    : TOOLS_NO;
}

/* Skip blanks.  Return false if there are too many. */
static bool ahead_blanks(struct ahead *a)
{
	const size_t n = marker_skip_blanks(a->p + a->at, a->n - a->at);
	a->at += n;
	return n <= AHEAD_BLANKS_MAX;
}

/* Skip blanks and this text, or leave a unchanged. */
static enum tools_found ahead_text(struct ahead *a, const char *text)
{
	struct ahead b = *a;
	if (!ahead_blanks(&b))
		return TOOLS_NO;
	const int is = marker_begins(b.p + b.at, b.n - b.at, text);
	if (is > 0)
		*a = (struct ahead){b.p, b.n, b.at + strlen(text)};
	return is > 0 ? TOOLS_YES : is < 0 ? TOOLS_NO : TOOLS_MORE;
}

/* Skip a key and its tags.  A key must not contain a tag or a newline. */
static enum tools_found ahead_key(struct ahead *a, const struct tools_tags *tags)
{
	enum tools_found found = ahead_text(a, tags->key_open);
	for (size_t n = 0; found == TOOLS_YES; n++, a->at++) {
		const int is = marker_begins(a->p + a->at, a->n - a->at, tags->key_close);
		if (is == 0)
			return TOOLS_MORE;
		if (is > 0)
			return n ? TOOLS_YES : TOOLS_NO;
		if (n == TOOLS_KEY_MAX || a->p[a->at] == '<' || a->p[a->at] == '\n')
			return TOOLS_NO;
	}
	return found;
}

static enum tools_found ahead_name(struct ahead *a)
{
	size_t n = 0;
	bool few = ahead_blanks(a);
	while (a->at < a->n && n <= TOOLS_NAME_MAX && tools_is_name_byte(a->p[a->at]))
		a->at++, n++;
	if (!few || n > TOOLS_NAME_MAX)
		return TOOLS_NO;
	return a->at == a->n ? TOOLS_MORE : n ? TOOLS_YES : TOOLS_NO;
}

/* Skip a text that may follow a call and does not begin another. */
static enum tools_found ahead_closer(struct ahead *a, const struct tools_format *f)
{
	enum tools_found found = TOOLS_NO;
	for (int k = 1; k < TOOLS_THEN_MAX && f->then[k].text; k++)
		if (f->then[k].to < 0 && found != TOOLS_YES)
			found = either(found, ahead_text(a, f->then[k].text));
	return found;
}

/* Match the steps of a call from `step` to its arguments, and the beginning of these. */
static enum tools_found ahead_steps(struct ahead a, const struct tools_format *f, int step)
{
	enum tools_found found = TOOLS_YES;
	for (; found == TOOLS_YES && f->steps[step].op != TOOLS_OP_PAIRS; step++)
		found = f->steps[step].op == TOOLS_OP_NAME ? ahead_name(&a)
							   : ahead_text(&a, f->steps[step].text);
	if (found != TOOLS_YES)
		return found;
	struct ahead key = a;
	found = ahead_key(&key, &f->tags);
	for (int k = 0; k < TOOLS_THEN_MAX && f->then[k].text; k++) {
		struct ahead end = a;
		found = either(found, ahead_text(&end, f->then[k].text));
	}
	return found;
}

static enum tools_found ahead_mark(struct ahead a, const struct tools_format *f, const struct tools_mark *m)
{
	const enum tools_found found = m->text && m->to >= 0 ? ahead_text(&a, m->text) : TOOLS_NO;
	return found == TOOLS_YES ? ahead_steps(a, f, m->to) : found;
}

/* Match the beginning of another call. */
static enum tools_found ahead_call(struct ahead a, const struct tools_format *f)
{
	enum tools_found found = TOOLS_NO;
	for (int k = 0; k < TOOLS_MARKS_MAX; k++)
		found = either(found, ahead_mark(a, f, &f->marks[k]));
	for (int k = 0; k < TOOLS_THEN_MAX; k++)
		found = either(found, ahead_mark(a, f, &f->then[k]));
	return found;
}

/* Match the end of the call.  closed: the value's closing tag precedes it. */
static enum tools_found ahead_end(const struct tools *t, struct ahead a, bool closed)
{
	const struct tools_format *f = t->format;
	const enum tools_found first = ahead_text(&a, f->then[0].text);
	if (first == TOOLS_YES && closed && (t->bare || !f->then[1].text))
		return TOOLS_YES;
	if (first != TOOLS_YES && !closed)
		return first;
	struct ahead behind = a;
	enum tools_found closer = ahead_closer(&behind, f);
	if (closer == TOOLS_YES)
		return first == TOOLS_YES && closed ? TOOLS_YES : ahead_call(behind, f);
	return either(either(first == TOOLS_YES ? TOOLS_NO : first, closer), ahead_call(a, f));
}

/* Decide whether a value ends at p; *tag: the bytes of its closing tag, 0 if there is none. */
static enum tools_found value_ends(const struct tools *t, const char *p, size_t n, size_t *tag)
{
	const struct tools_format *f = t->format;
	enum tools_found found;
	int is = marker_begins(p, n, f->tags.value_close);
	*tag = is > 0 ? strlen(f->tags.value_close) : 0;
	if (is > 0) {
		struct ahead key = {p, n, *tag};
		found = either(ahead_key(&key, &f->tags), ahead_end(t, (struct ahead){p, n, *tag}, true));
	} else if (is < 0) {
		is = marker_begins(p, n, f->then[0].text);
		found = is > 0 ? ahead_end(t, (struct ahead){p, n, 0}, false) : TOOLS_NO;
	}
	if (is <= 0)
		return is ? TOOLS_NO : TOOLS_MORE;
	return found == TOOLS_MORE && t->ended ? TOOLS_YES : found;
}

/* Return where the value ends, or may end (*found is MORE), in the undecided text. */
static size_t find_value_end(const struct tools *t, enum tools_found *found, size_t *tag)
{
	const char *p = tools_next(t);
	const size_t left = tools_left(t);
	*found = TOOLS_NO;
	for (size_t i = 0; i < left; i++) {
		/* All tags of all formats begin with the same byte. */
		const char *at = memchr(p + i, *t->format->tags.value_close, left - i);
		if (!at)
			break;
		i = (size_t)(at - p);
		*found = value_ends(t, at, left - i, tag);
		if (*found != TOOLS_NO)
			return i;
	}
	return left;
}

/* Read bytes of a value: text is passed on at once, other types when complete. A format may write a value on
 * its own lines, with a newline on each side. */
static enum tools_found pair_value(struct tools *t, const struct tools_sink *to)
{
	const bool lines = t->format->spellings[0].line;
	enum tools_found found;
	size_t tag;
	if (lines && !t->arg.began && *tools_next(t) == '\n')
		tools_eat(t, 1);
	t->arg.began = true;
	const char *p = tools_next(t);
	const size_t end = find_value_end(t, &found, &tag);
	const size_t n = lines && end && p[end - 1] == '\n' ? end - 1 : end;
	if (t->arg.kind == ARG_TEXT)
		tools_put_escaped(t, p, n, to);
	else
		buf_put(&t->arg.value, p, n);
	tools_eat(t, found == TOOLS_YES ? end + tag : n);
	if (found != TOOLS_YES)
		return TOOLS_MORE;
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
	tools_close_unless_closed(t, found, to);
	return found;
}
