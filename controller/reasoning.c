#include "controller/reasoning.h"

#include <string.h>

static const char open_tag[] = "<think>";
static const char close_tag[] = "</think>";

void reasoning_init(struct reasoning *r, bool inside)
{
	*r = (struct reasoning){.state = inside ? REASONING_INSIDE : REASONING_BEGIN};
}

void reasoning_fini(struct reasoning *r)
{
	buf_fini(&r->held);
}

static void drop(struct reasoning *r, size_t n)
{
	memmove(r->held.p, r->held.p + n, r->held.len - n + 1);
	r->held.len -= n;
}

static bool is_blank(char c)
{
	return c == '\n' || c == ' ' || c == '\t' || c == '\r';
}

/* Bytes at the end of p that may become tag. */
static size_t partial(const char *p, size_t n, const char *tag)
{
	size_t k = strlen(tag) - 1;
	for (k = k < n ? k : n; k; k--)
		if (!memcmp(p + n - k, tag, k))
			break;
	return k;
}

/* Each of the following takes from held what it can decide; false: it needs more. */

static bool at_begin(struct reasoning *r, struct buf *answer)
{
	size_t tag = sizeof open_tag - 1, i = 0;
	while (i < r->held.len && is_blank(r->held.p[i]))
		i++;
	size_t rest = r->held.len - i;
	if (!memcmp(r->held.p + i, open_tag, rest < tag ? rest : tag)) {
		if (rest < tag)
			return false;
		drop(r, i + tag);
		r->state = REASONING_INSIDE;
		return true;
	}
	buf_put(answer, r->held.p, r->held.len);
	buf_clear(&r->held);
	r->state = REASONING_ANSWER;
	return true;
}

/* A thought without the newlines before it; those behind are held by the caller. */
static void think(struct reasoning *r, size_t n, struct buf *thought)
{
	size_t i = 0;
	while (!r->any && i < n && r->held.p[i] == '\n')
		i++;
	r->any = r->any || i < n;
	buf_put(thought, r->held.p + i, n - i);
}

static bool inside(struct reasoning *r, struct buf *thought)
{
	const char *end =
		r->held.len ? memmem(r->held.p, r->held.len, close_tag, sizeof close_tag - 1) : NULL;
	size_t whole =
		end ? (size_t)(end - r->held.p) : r->held.len - partial(r->held.p, r->held.len, close_tag);
	size_t n = whole;
	while (n && r->held.p[n - 1] == '\n')
		n--;
	/* A tag that a model repeats although the prompt has opened it. */
	size_t tag = sizeof open_tag - 1;
	if (!r->any && n) {
		size_t i = 0;
		while (i < r->held.len && is_blank(r->held.p[i]))
			i++;
		size_t rest = r->held.len - i;
		bool again = !memcmp(r->held.p + i, open_tag, rest < tag ? rest : tag);
		if (again && rest < tag)
			return false;
		if (again) {
			drop(r, i + tag);
			return true;
		}
	}
	if (n)
		think(r, n, thought);
	if (!end) {
		if (n)
			drop(r, n);
		return false;
	}
	drop(r, whole + sizeof close_tag - 1);
	r->state = REASONING_GAP;
	return true;
}

static bool gap(struct reasoning *r)
{
	size_t n = 0;
	while (n < r->held.len && r->held.p[n] == '\n')
		n++;
	if (n)
		drop(r, n);
	if (!r->held.len)
		return false;
	r->state = REASONING_ANSWER;
	return true;
}

void reasoning_push(struct reasoning *r, const char *p, size_t n, struct buf *thought, struct buf *answer)
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
			more = inside(r, thought);
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

void reasoning_end(struct reasoning *r, struct buf *thought, struct buf *answer)
{
	if (r->held.len && r->state == REASONING_INSIDE)
		think(r, r->held.len, thought);
	else if (r->held.len && r->state != REASONING_GAP)
		buf_put(answer, r->held.p, r->held.len);
	buf_clear(&r->held);
	r->state = REASONING_ANSWER;
}

bool reasoning_open(const char *prompt, size_t n)
{
	while (n && is_blank(prompt[n - 1]))
		n--;
	size_t tag = sizeof open_tag - 1;
	return n >= tag && !memcmp(prompt + n - tag, open_tag, tag);
}
