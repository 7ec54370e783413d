#include "controller/chat/channels.h"

#include "controller/chat/marker.h"

#include <string.h>

enum {
	HEADER_MAX = 2048, /* bytes; a longer header is text */
	BLANKS_MAX = 1024  /* before a header; with more blanks it is text */
};

const struct channels channels_harmony = {
	.start = "<|start|>",
	.channel = "<|channel|>",
	.message = "<|message|>",
	.constrain = "<|constrain|>",
	.to = "to=",
	.functions = "functions.",
	.reasoning = "analysis",
	.call = "commentary",
	.ends = {"<|end|>", "<|call|>", "<|return|>"},
	.next = "<|start|>assistant",
	.answer = "<|channel|>final<|message|>",
	.preamble = "<|channel|>commentary<|message|>",
	.end = "<|end|>",
	.call_open = "<|channel|>commentary to=",
	.call_args = " <|constrain|>json<|message|>",
	.call_close = "<|call|>",
};

/* A span of the held text. */
struct span {
	const char *p;
	size_t n;
};

static bool span_is(struct span s, const char *text)
{
	return s.n == strlen(text) && !memcmp(s.p, text, s.n);
}

static bool span_begins(struct span s, const char *text)
{
	return s.n >= strlen(text) && !memcmp(s.p, text, strlen(text));
}

/* Return the word after the first `mark`, up to a blank or another mark; empty if there is no mark. */
static struct span word_behind(struct span h, const char *mark)
{
	const char *p = h.n ? memmem(h.p, h.n, mark, strlen(mark)) : NULL, *end = h.p + h.n;
	struct span word = {p ? p + strlen(mark) : NULL, 0};
	while (p && word.p + word.n < end && !marker_is_blank(word.p[word.n]) && word.p[word.n] != '<')
		word.n++;
	return word;
}

/* ---- headers ---- */

/* Return 1 if p begins with a header, 0 if more text is needed, -1 if not. */
static int header_begins(const struct channels *c, const char *p, size_t n)
{
	const char *const marks[] = {c->start, c->channel, c->message, c->constrain, c->to};
	int found = -1;
	for (size_t i = 0; i < sizeof marks / sizeof *marks && found <= 0; i++) {
		const int is = marker_begins(p, n, marks[i]);
		found = is > found ? is : found;
	}
	return found;
}

/* Begin a message with this header and set the state for its body. */
static void open_message(struct channels_split *s, const struct channels *c, struct span h,
			 struct buf *answer)
{
	const struct span channel = word_behind(h, c->channel), to = word_behind(h, c->to);
	const bool reasoning = span_is(channel, c->reasoning);
	const bool function = span_begins(to, c->functions);
	s->began = false;
	if (function || (to.n && span_is(channel, c->call))) {
		s->state = CHANNELS_CALL;
		buf_puts(answer, c->call_open);
		buf_put(answer, to.p, to.n);
		buf_puts(answer, c->call_args);
	} else {
		s->state = reasoning ? CHANNELS_REASONING : CHANNELS_ANSWER;
	}
}

/* Return the last occurrence, or NULL. */
static const char *last_of(const char *p, size_t n, const char *mark)
{
	const char *last = NULL;
	for (const char *q = p; (q = memmem(q, n - (size_t)(q - p), mark, strlen(mark))); q++)
		last = q;
	return last;
}

enum channels_state channels_place(const struct channels *c, const char *prompt, size_t n)
{
	struct channels_split s = {0};
	struct buf call = {0};
	const char *message = last_of(prompt, n, c->message), *start = last_of(prompt, n, c->start);
	bool ended = !message || (start && start > message);
	for (int i = 0; i < CHANNELS_ENDS_MAX && !ended; i++) {
		const char *end = last_of(prompt, n, c->ends[i]);
		ended = end && end > message;
	}
	if (!ended) {
		const size_t from = start ? (size_t)(start - prompt) : 0;
		open_message(&s, c, (struct span){prompt + from, (size_t)(message - prompt) - from}, &call);
	}
	buf_fini(&call);
	return s.state;
}

static void put_body(struct channels_split *s, const char *p, size_t n, struct buf *reasoning,
		     struct buf *answer)
{
	struct buf *out = s->state == CHANNELS_REASONING ? reasoning : answer;
	bool *any = s->state == CHANNELS_REASONING ? &s->reasoning : &s->answers;
	if (!n)
		return;
	if (s->state != CHANNELS_CALL) {
		if (!s->began && *any)
			buf_putc(out, '\n');
		*any = true;
	}
	s->began = true;
	buf_put(out, p, n);
}

/* Take a header at byte *at of held and advance *at.  Return false if more text is needed. */
static bool take_header(struct channels_split *s, const struct channels *c, const struct buf *held,
			size_t *at, struct buf *answer)
{
	const char *p = held->p + *at;
	const size_t left = held->len - *at, blanks = marker_skip_blanks(p, left);
	const int is = blanks > BLANKS_MAX ? -1 : header_begins(c, p + blanks, left - blanks);
	if (is == 0)
		return false;
	const size_t most = left < HEADER_MAX ? left : HEADER_MAX;
	const char *end = is > 0 ? memmem(p, most, c->message, strlen(c->message)) : NULL;
	if (is > 0 && !end && left < HEADER_MAX)
		return false;
	if (!end) { /* text: take at least its first byte, which may begin a mark */
		s->state = CHANNELS_ANSWER;
		s->began = false;
		const size_t n = blanks + (blanks < left);
		put_body(s, p, n, NULL, answer);
		*at += n;
		return true;
	}
	struct span h = {p, (size_t)(end - p)};
	/* If several headers have no body, use the last. */
	for (const char *q; (q = memmem(h.p, h.n, c->start, strlen(c->start)));) {
		q += strlen(c->start);
		h = (struct span){q, (size_t)(end - q)};
	}
	open_message(s, c, h, answer);
	*at += (size_t)(end - p) + strlen(c->message);
	return true;
}

/* ---- bodies ---- */

/* Return 1 if the body ends at p (*mark: bytes of its end marker), 0 if more text is needed, -1 if
 * the body continues. */
static int body_ends(const struct channels *c, const char *p, size_t n, size_t *mark)
{
	int found = marker_begins(p, n, c->start);
	*mark = 0; /* start belongs to the next header */
	for (int i = 0; i < CHANNELS_ENDS_MAX && found <= 0; i++) {
		const int is = marker_begins(p, n, c->ends[i]);
		found = is > found ? is : found;
		*mark = is > 0 ? strlen(c->ends[i]) : 0;
	}
	return found;
}

static void close_message(struct channels_split *s, const struct channels *c, struct buf *answer)
{
	if (s->state == CHANNELS_CALL) {
		buf_puts(answer, s->began ? "" : "{}");
		buf_puts(answer, c->call_close);
	}
	s->state = CHANNELS_HEADER;
}

/* Take bytes of a body; otherwise like take_header(). */
static bool take_body(struct channels_split *s, const struct channels *c, const struct buf *held, size_t *at,
		      struct buf *reasoning, struct buf *answer)
{
	const char *from = held->p + *at, *end = held->p + held->len, *p = from;
	size_t mark = 0;
	int is = -1;
	for (; (p = memchr(p, '<', (size_t)(end - p))); p++)
		if ((is = body_ends(c, p, (size_t)(end - p), &mark)) >= 0)
			break;
	p = p ? p : end;
	put_body(s, from, (size_t)(p - from), reasoning, answer);
	*at += (size_t)(p - from) + (is > 0 ? mark : 0);
	if (is > 0)
		close_message(s, c, answer);
	return is > 0;
}

/* ---- */

void channels_take(struct channels_split *s, const struct channels *c, struct buf *held,
		   struct buf *reasoning, struct buf *answer)
{
	size_t at = 0;
	bool more = true;
	while (more && at < held->len)
		more = s->state == CHANNELS_HEADER ? take_header(s, c, held, &at, answer)
						   : take_body(s, c, held, &at, reasoning, answer);
	marker_drop(held, at);
}

void channels_end(struct channels_split *s, const struct channels *c, struct buf *held, struct buf *reasoning,
		  struct buf *answer)
{
	const size_t blanks = held->len ? marker_skip_blanks(held->p, held->len) : 0;
	const bool cut = s->state == CHANNELS_HEADER && held->len > blanks &&
			 header_begins(c, held->p + blanks, held->len - blanks) > 0;
	const bool only_blanks =
		s->state == CHANNELS_HEADER && held->len == blanks && (s->reasoning || s->answers);
	if (held->len && !cut && !only_blanks) {
		if (s->state == CHANNELS_HEADER)
			s->state = CHANNELS_ANSWER, s->began = false;
		put_body(s, held->p, held->len, reasoning, answer);
	}
	if (s->state == CHANNELS_CALL && !s->began)
		buf_puts(answer, "{}");
	buf_clear(held);
}
