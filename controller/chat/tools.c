#include "controller/chat/tools_impl.h"

#include "controller/chat/marker.h"

#include <string.h>

enum { FIRST_SEARCH = 128 /* bytes */ };

void tools_init(struct tools *t, enum tools_style style, const json_t *declared)
{
	const struct tools_format *f = tools_format(style);
	*t = (struct tools){
		.format = f, .declared = declared, .state = f && f->at_start ? TOOLS_START : TOOLS_TEXT};
}

void tools_fini(struct tools *t)
{
	buf_fini(&t->held);
	buf_fini(&t->raw);
	buf_fini(&t->name);
	buf_fini(&t->pending);
	buf_fini(&t->object.key);
	buf_fini(&t->object.string);
	buf_fini(&t->arg.key);
	buf_fini(&t->arg.value);
}

static void put_text(const char *p, size_t n, const struct tools_sink *to)
{
	if (n)
		to->text(to->user, p, n);
}

/* ---- shared by the steps ---- */

void tools_eat(struct tools *t, size_t n)
{
	if (!t->begun)
		buf_put(&t->raw, tools_next(t), n);
	t->at += n;
}

bool tools_eat_blanks(struct tools *t)
{
	if (tools_left(t))
		tools_eat(t, marker_skip_blanks(tools_next(t), tools_left(t)));
	return tools_left(t);
}

enum tools_found tools_eat_literal(struct tools *t, const char *text)
{
	if (!tools_eat_blanks(t))
		return TOOLS_MORE;
	const int is = marker_begins(tools_next(t), tools_left(t), text);
	if (is > 0)
		tools_eat(t, strlen(text));
	return is > 0 ? TOOLS_YES : is < 0 ? TOOLS_NO : TOOLS_MORE;
}

void tools_begin(struct tools *t, const struct tools_sink *to)
{
	if (t->begun || !t->has_name || !t->has_arguments)
		return;
	t->begun = true;
	to->begin(to->user, t->n_calls, t->name.p, t->name.len);
	buf_clear(&t->raw);
	if (t->pending.len)
		to->arguments(to->user, t->n_calls, t->pending.p, t->pending.len);
	buf_clear(&t->pending);
}

void tools_put(struct tools *t, const char *p, size_t n, const struct tools_sink *to)
{
	if (!n)
		return;
	if (t->begun)
		to->arguments(to->user, t->n_calls, p, n);
	else
		buf_put(&t->pending, p, n);
}

/* ---- a call ---- */

/* Return the bytes of the word at byte i; 0: none, or more text is needed (*more). */
static size_t word_at(const struct tools *t, size_t i, bool *more)
{
	const size_t left = tools_left(t), from = i;
	while (i < left && tools_is_name_byte(tools_next(t)[i]))
		i++;
	*more = i == left && i - from <= TOOLS_NAME_MAX;
	return *more ? 0 : i - from;
}

static enum tools_found read_name(struct tools *t, const char *prefix)
{
	bool more;
	if (!tools_eat_blanks(t))
		return TOOLS_MORE;
	const int is = prefix ? marker_begins(tools_next(t), tools_left(t), prefix) : -1;
	if (is == 0)
		return TOOLS_MORE;
	const size_t i = is > 0 ? strlen(prefix) : 0;
	const size_t n = word_at(t, i, &more);
	if (more)
		return TOOLS_MORE;
	if (!n || n > TOOLS_NAME_MAX)
		return TOOLS_NO;
	buf_put(&t->name, tools_next(t) + i, n);
	t->has_name = true;
	tools_eat(t, i + n);
	return TOOLS_YES;
}

static enum tools_found read_id(struct tools *t, const char *before)
{
	bool more;
	if (!tools_eat_blanks(t))
		return TOOLS_MORE;
	const int is = marker_begins(tools_next(t), tools_left(t), before);
	if (is <= 0)
		return is ? TOOLS_YES : TOOLS_MORE;
	const size_t n = word_at(t, strlen(before), &more);
	if (more)
		return TOOLS_MORE;
	tools_eat(t, strlen(before) + n);
	return n && n <= TOOLS_NAME_MAX ? TOOLS_YES : TOOLS_NO;
}

static void call_open(struct tools *t, int step)
{
	t->state = TOOLS_CALL;
	t->step = step;
	t->begun = t->has_name = t->has_arguments = false;
	buf_clear(&t->name);
	buf_clear(&t->pending);
	tools_object_open(t, false);
	t->arg.at = ARG_KEY;
	t->arg.any = t->arg.began = t->arg.closed = false;
	buf_clear(&t->arg.key);
	buf_clear(&t->arg.value);
}

/* Close a call after its last step, or at a byte that does not belong to it. A call that has not
 * begun is text. */
static void call_close(struct tools *t, const struct tools_sink *to)
{
	if (t->begun) {
		t->n_calls++;
		t->state = TOOLS_AFTER;
	} else {
		t->state = TOOLS_TEXT;
		put_text(t->raw.p, t->raw.len, to);
	}
	buf_clear(&t->raw);
}

/* Take one step and set *next to the following step. */
static enum tools_found take_step(struct tools *t, int *next, const struct tools_sink *to)
{
	const struct tools_step *s = &t->format->steps[t->step];
	enum tools_found found;
	*next = t->step + 1;
	switch (s->op) {
	case TOOLS_OP_LITERAL:
		return tools_eat_literal(t, s->text);
	case TOOLS_OP_MAYBE:
		found = tools_eat_literal(t, s->text);
		return found == TOOLS_NO ? TOOLS_YES : found;
	case TOOLS_OP_IF:
		found = tools_eat_literal(t, s->text);
		*next = found == TOOLS_YES ? s->to : *next;
		return found == TOOLS_NO ? TOOLS_YES : found;
	case TOOLS_OP_NAME:
		return read_name(t, s->text);
	case TOOLS_OP_ID:
		return read_id(t, s->text);
	case TOOLS_OP_OBJECT:
		return tools_object(t, to);
	case TOOLS_OP_JSON:
		return tools_json(t, to);
	case TOOLS_OP_PAIRS:
		return tools_pairs(t, to);
	case TOOLS_OP_LITERALS:
		return tools_literals(t, to);
	case TOOLS_OP_END:
		break;
	}
	return TOOLS_NO;
}

/* A state, as all below: return false if more text is needed. */
static bool in_call(struct tools *t, const struct tools_sink *to)
{
	while (t->format->steps[t->step].op != TOOLS_OP_END) {
		int next;
		const enum tools_found found = take_step(t, &next, to);
		if (found == TOOLS_MORE)
			return false;
		if (found == TOOLS_NO)
			break;
		t->step = next;
	}
	call_close(t, to);
	return true;
}

/* ---- around calls ---- */

/* Return the offset of the first mark in the first n bytes of the undecided text, or n; *undecided: bytes at
 * the end that may begin a mark. */
static size_t find_mark_within(const struct tools *t, size_t n, const struct tools_mark **found,
			       size_t *undecided)
{
	size_t first = n;
	*found = NULL;
	*undecided = 0;
	for (int i = 0; i < TOOLS_MARKS_MAX && t->format->marks[i].text; i++) {
		const struct tools_mark *m = &t->format->marks[i];
		const char *at = memmem(tools_next(t), n, m->text, strlen(m->text));
		if (at && (size_t)(at - tools_next(t)) < first) {
			first = (size_t)(at - tools_next(t));
			*found = m;
		}
		const size_t partial = marker_partial(tools_next(t), n, m->text);
		*undecided = partial > *undecided ? partial : *undecided;
	}
	return first;
}

/* Like find_mark_within() for the whole text. Searches windows of growing size, so that the cost is
 * proportional to the skipped text: otherwise, each time one mark is found, the search for an absent mark
 * would run to the end. */
static size_t find_mark(const struct tools *t, const struct tools_mark **found, size_t *undecided)
{
	const size_t left = tools_left(t);
	for (size_t n = FIRST_SEARCH;; n *= 2) {
		const size_t at = find_mark_within(t, n < left ? n : left, found, undecided);
		if (*found || n >= left)
			return at;
	}
}

static bool in_text(struct tools *t, const struct tools_sink *to)
{
	const struct tools_mark *mark = NULL;
	const bool look = !t->format->at_start && t->n_calls < TOOLS_CALLS_MAX;
	size_t undecided = 0, n = look ? find_mark(t, &mark, &undecided) : tools_left(t);
	if (look && !mark)
		n -= undecided;
	size_t text = n;
	while (look && text && n - text < TOOLS_BLANKS_MAX && marker_is_blank(tools_next(t)[text - 1]))
		text--;
	put_text(tools_next(t), text, to);
	t->at += text;
	if (!mark)
		return false;
	/* If this is not a call, raw becomes text, including the blanks before it. */
	t->begun = false;
	tools_eat(t, n - text + strlen(mark->text));
	t->bare = mark != t->format->marks;
	call_open(t, mark->to);
	return true;
}

static bool at_start(struct tools *t)
{
	const size_t left = tools_left(t);
	size_t i = marker_skip_blanks(tools_next(t), left);
	if (i > TOOLS_BLANKS_MAX) {
		t->state = TOOLS_TEXT;
		return true;
	}
	if (i == left)
		return false;
	const int tag = marker_begins(tools_next(t) + i, left - i, t->format->tag);
	if (tag == 0)
		return false;
	i += tag > 0 ? strlen(t->format->tag) : 0;
	const size_t gap = marker_skip_blanks(tools_next(t) + i, left - i);
	if (gap > TOOLS_BLANKS_MAX) {
		t->state = TOOLS_TEXT;
		return true;
	}
	i += gap;
	if (i == left)
		return false;
	const struct tools_mark *m = &t->format->marks[0];
	const int is = marker_begins(tools_next(t) + i, left - i, m->text);
	if (is == 0)
		return false;
	t->state = TOOLS_TEXT;
	if (is > 0) {
		tools_eat(t, i + (m->keep ? 0 : strlen(m->text)));
		call_open(t, m->to);
	}
	return true;
}

static bool after_call(struct tools *t)
{
	t->at += marker_skip_blanks(tools_next(t), tools_left(t));
	if (!tools_left(t))
		return false;
	bool more = false;
	for (int i = 0; i < TOOLS_THEN_MAX && t->format->then[i].text; i++) {
		const struct tools_mark *m = &t->format->then[i];
		const int is = marker_begins(tools_next(t), tools_left(t), m->text);
		more = more || is == 0;
		if (is <= 0 || (m->to >= 0 && t->n_calls == TOOLS_CALLS_MAX))
			continue;
		t->begun = false;
		if (m->to < 0)
			t->at += strlen(m->text);
		else
			tools_eat(t, m->keep ? 0 : strlen(m->text));
		if (m->to >= 0)
			call_open(t, m->to);
		return true;
	}
	if (!more)
		t->state = TOOLS_TEXT;
	return !more;
}

void tools_push(struct tools *t, const char *p, size_t n, const struct tools_sink *to)
{
	if (!t->format) {
		put_text(p, n, to);
		return;
	}
	buf_put(&t->held, p, n);
	for (bool more = true; more && tools_left(t);)
		switch (t->state) {
		case TOOLS_TEXT:
			more = in_text(t, to);
			break;
		case TOOLS_START:
			more = at_start(t);
			break;
		case TOOLS_CALL:
			more = in_call(t, to);
			break;
		case TOOLS_AFTER:
			more = after_call(t);
			break;
		}
	marker_drop(&t->held, t->at);
	t->at = 0;
}

/* Return true if all pairs of a call are complete and its closing text was removed as a stop text. */
static bool ends_complete(const struct tools *t)
{
	return t->state == TOOLS_CALL && t->format->steps[t->step].op == TOOLS_OP_PAIRS &&
	       t->arg.at == ARG_KEY && (t->begun || t->forced) &&
	       marker_skip_blanks(t->held.p, t->held.len) == t->held.len;
}

void tools_end(struct tools *t, const struct tools_sink *to)
{
	t->ended = true;
	tools_push(t, "", 0, to);
	if (ends_complete(t))
		tools_put_close(t, to);
	if (t->state == TOOLS_CALL && t->begun)
		t->n_calls++;
	else if (t->state == TOOLS_CALL)
		put_text(t->raw.p, t->raw.len, to);
	if (t->state != TOOLS_AFTER && !(t->state == TOOLS_CALL && t->begun))
		put_text(t->held.p, t->held.len, to);
	buf_clear(&t->raw);
	buf_clear(&t->held);
	t->state = TOOLS_AFTER;
}
