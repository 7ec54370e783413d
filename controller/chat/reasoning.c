#include "controller/chat/reasoning.h"

#include "controller/chat/marker.h"

#include <string.h>

enum { BLANKS_MAX = 1024 }; /* blanks held back until the next text decides; more are text */

static const struct reasoning_marks others[] = {
	{.name = "mistral", .open = "[THINK]", .close = "[/THINK]"},
	{.name = "seed_oss", .open = "<seed:think>", .close = "</seed:think>"},
	{.name = "kimi", .open = "\xe2\x97\x81think\xe2\x96\xb7", .close = "\xe2\x97\x81/think\xe2\x96\xb7"},
	{.name = "cohere",
	 .open = "<|START_THINKING|>",
	 .close = "<|END_THINKING|>",
	 .frames = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
	{.name = "gemma4", .open = "<|channel>thought", .close = "<channel|>"},
	{.name = "apertus", .open = "<|inner_prefix|>", .close = "<|inner_suffix|>"},
	/* Granite 3.2: plain text, no special tokens. */
	{.name = "granite", .open = "Here is my thought process:", .close = "Here is my response:"},
	{.name = "apriel",
	 .open = "Here are my reasoning steps:",
	 .close = "[BEGIN FINAL RESPONSE]",
	 .frames = {"[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"}},
	{.name = "harmony",
	 .open = "<|channel|>analysis<|message|>",
	 .close = "<|end|>",
	 .channels = &channels_harmony}};
enum { N_OTHERS = sizeof others / sizeof *others };
const struct reasoning_marks reasoning_usual = {.name = "qwen3", .open = "<think>", .close = "</think>"};

const struct reasoning_marks *reasoning_marks_of(bool (*mentions)(const void *user, const char *word),
						 const void *user)
{
	if (mentions(user, reasoning_usual.close))
		return &reasoning_usual;
	for (size_t i = 0; i < N_OTHERS; i++)
		if (mentions(user, others[i].channels ? others[i].open : others[i].close))
			return &others[i];
	return NULL;
}

const struct reasoning_marks *reasoning_marks_named(const char *name)
{
	if (strcmp(name, reasoning_usual.name) == 0 || strcmp(name, "deepseek_r1") == 0)
		return &reasoning_usual;
	for (size_t i = 0; i < N_OTHERS; i++)
		if (strcmp(name, others[i].name) == 0)
			return &others[i];
	return NULL;
}

const char *reasoning_names(void)
{
	return "qwen3, deepseek_r1, mistral, seed_oss, kimi, cohere, gemma4, apertus, granite, "
	       "apriel or harmony";
}

void reasoning_init(struct reasoning *r, bool inside)
{
	*r = (struct reasoning){.marks = &reasoning_usual,
				.state = inside ? REASONING_INSIDE : REASONING_BEGIN};
}

void reasoning_fini(struct reasoning *r)
{
	buf_fini(&r->held);
	buf_fini(&r->framed);
}

/* Each state consumes the decidable part of held.  Return false if more text is needed. */

static bool at_begin(struct reasoning *r, struct buf *answer)
{
	size_t i = marker_skip_blanks(r->held.p, r->held.len);
	int tag = i > BLANKS_MAX ? -1 : marker_begins(r->held.p + i, r->held.len - i, r->marks->open);
	if (tag == 0)
		return false;
	if (tag > 0) {
		marker_drop(&r->held, i + strlen(r->marks->open));
		r->state = REASONING_INSIDE;
		return true;
	}
	buf_put(answer, r->held.p, r->held.len);
	buf_clear(&r->held);
	r->state = REASONING_ANSWER;
	return true;
}

/* Pass on the first n held bytes, without leading newlines.  The caller holds back trailing newlines. */
static void put_reasoning(struct reasoning *r, size_t n, struct buf *reasoning)
{
	size_t i = 0;
	while (!r->any && i < n && r->held.p[i] == '\n')
		i++;
	r->dropped += i;
	r->any = r->any || i < n;
	buf_put(reasoning, r->held.p + i, n - i);
}

static bool inside(struct reasoning *r, struct buf *reasoning)
{
	const char *end =
		r->held.len ? memmem(r->held.p, r->held.len, r->marks->close, strlen(r->marks->close)) : NULL;
	size_t whole = end ? (size_t)(end - r->held.p)
			   : r->held.len - marker_partial(r->held.p, r->held.len, r->marks->close);
	size_t n = whole;
	while (n && whole - n < BLANKS_MAX && r->held.p[n - 1] == '\n')
		n--;
	/* Some models repeat the opening tag that ended the prompt. */
	if (!r->any && n) {
		size_t i = marker_skip_blanks(r->held.p, r->held.len);
		int again = r->dropped + i > BLANKS_MAX
				    ? -1
				    : marker_begins(r->held.p + i, r->held.len - i, r->marks->open);
		if (again == 0)
			return false;
		if (again > 0) {
			marker_drop(&r->held, i + strlen(r->marks->open));
			r->dropped = 0;
			return true;
		}
	}
	if (n)
		put_reasoning(r, n, reasoning);
	if (!end) {
		marker_drop(&r->held, n);
		return false;
	}
	marker_drop(&r->held, whole + strlen(r->marks->close));
	r->state = REASONING_GAP;
	return true;
}

static bool gap(struct reasoning *r)
{
	size_t n = 0;
	while (n < r->held.len && r->held.p[n] == '\n')
		n++;
	marker_drop(&r->held, n);
	if (!r->held.len)
		return false;
	r->state = REASONING_ANSWER;
	return true;
}

/* Return 1 if p begins with a frame (*bytes: its length), 0 if more text is needed, -1 if not. */
static int frame_begins(const struct reasoning_marks *m, const char *p, size_t n, size_t *bytes)
{
	int found = -1;
	for (int i = 0; i < REASONING_FRAMES_MAX && m->frames[i] && found <= 0; i++) {
		const int is = marker_begins(p, n, m->frames[i]);
		found = is > found ? is : found;
		*bytes = is > 0 ? strlen(m->frames[i]) : 0;
	}
	return found;
}

/* Pass on the answer so far, without its frames.  All frames of a model begin with the same byte. */
static void take_framed(struct reasoning *r, struct buf *answer)
{
	const char first = r->marks->frames[0][0];
	size_t at = 0, bytes;
	while (at < r->framed.len) {
		const char *p = r->framed.p + at, *next = memchr(p, first, r->framed.len - at);
		const size_t n = next ? (size_t)(next - p) : r->framed.len - at;
		buf_put(answer, p, n);
		at += n;
		const int is = next ? frame_begins(r->marks, next, r->framed.len - at, &bytes) : -1;
		if (is == 0)
			break;
		if (next && is < 0)
			buf_put(answer, next, 1);
		at += !next ? 0 : is > 0 ? bytes : 1;
	}
	marker_drop(&r->framed, at);
}

static void split(struct reasoning *r, const char *p, size_t n, struct buf *reasoning, struct buf *answer)
{
	bool more = true;
	if (r->state == REASONING_ANSWER && !r->held.len) {
		buf_put(answer, p, n);
		return;
	}
	buf_put(&r->held, p, n);
	while (more && r->held.len)
		switch (r->state) {
		case REASONING_BEGIN:
			more = at_begin(r, answer);
			break;
		case REASONING_INSIDE:
			more = inside(r, reasoning);
			break;
		case REASONING_GAP:
			more = gap(r);
			break;
		case REASONING_ANSWER:
			buf_put(answer, r->held.p, r->held.len);
			buf_clear(&r->held);
			break;
		}
}

void reasoning_push(struct reasoning *r, const char *p, size_t n, struct buf *reasoning, struct buf *answer)
{
	if (r->marks->channels) {
		buf_put(&r->held, p, n);
		if (r->state == REASONING_INSIDE && r->messages.state == CHANNELS_HEADER)
			r->messages.state = CHANNELS_REASONING;
		r->state = REASONING_BEGIN;
		channels_take(&r->messages, r->marks->channels, &r->held, reasoning, answer);
		return;
	}
	split(r, p, n, reasoning, r->marks->frames[0] ? &r->framed : answer);
	if (r->framed.len)
		take_framed(r, answer);
}

void reasoning_end(struct reasoning *r, struct buf *reasoning, struct buf *answer)
{
	struct buf *out = r->marks->frames[0] ? &r->framed : answer;
	if (r->marks->channels)
		channels_end(&r->messages, r->marks->channels, &r->held, reasoning, answer);
	else if (r->held.len && r->state == REASONING_INSIDE)
		put_reasoning(r, r->held.len, reasoning);
	else if (r->held.len && r->state != REASONING_GAP)
		buf_put(out, r->held.p, r->held.len);
	if (r->framed.len) {
		take_framed(r, answer);
		buf_put(answer, r->framed.p, r->framed.len);
	}
	buf_clear(&r->framed);
	buf_clear(&r->held);
	r->state = REASONING_ANSWER;
}

static bool ends_with(const char *prompt, size_t n, const char *mark, size_t mark_n)
{
	while (n && marker_is_blank(prompt[n - 1]))
		n--;
	return n >= mark_n && !memcmp(prompt + n - mark_n, mark, mark_n);
}

bool reasoning_is_open(const struct reasoning_marks *m, const char *prompt, size_t n)
{
	return ends_with(prompt, n, m->open, strlen(m->open));
}

bool reasoning_is_closed(const struct reasoning_marks *m, const char *prompt, size_t n)
{
	if (m->channels)
		return !ends_with(prompt, n, m->channels->next, strlen(m->channels->next));
	return ends_with(prompt, n, m->close, strlen(m->close));
}
