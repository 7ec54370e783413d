#include "controller/jinja/text.h"

#include "base/charclass.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>

/* ---- construction ---- */

void jb_init(struct jbuild *b, struct jctx *c)
{
	*b = (struct jbuild){.c = c, .max = UINT32_MAX - 1};
}

static void mark(struct jbuild *b, size_t start, size_t end)
{
	if (b->n_spans && b->spans[b->n_spans - 1].end == start) {
		b->spans[b->n_spans - 1].end = (uint32_t)end;
		return;
	}
	if (b->n_spans == b->cap_spans) {
		size_t cap = b->cap_spans ? b->cap_spans * 2 : 8;
		b->spans = jinja_realloc(b->c, b->spans, b->cap_spans * sizeof *b->spans,
					 cap * sizeof *b->spans);
		b->cap_spans = cap;
	}
	b->spans[b->n_spans++] = (struct jspan){(uint32_t)start, (uint32_t)end};
}

static void put_bytes(struct jbuild *b, const char *p, size_t n)
{
	if (n > b->max - b->n)
		jinja_fail(b->c, -E2BIG, "it makes a text of more than %zu bytes", b->max);
	if (n > b->cap - b->n) {
		size_t cap = b->cap ? b->cap * 2 : 64;
		cap = cap < b->n + n ? b->n + n : cap;
		b->p = jinja_realloc(b->c, b->p, b->cap, cap);
		b->cap = cap;
	}
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
	jinja_step(b->c, 1 + (n >> 6));
}

void jb_put(struct jbuild *b, const char *p, size_t n, bool input)
{
	put_bytes(b, p, n);
	if (input && n)
		mark(b, b->n - n, b->n);
}

void jb_puts(struct jbuild *b, const char *literal)
{
	put_bytes(b, literal, strlen(literal));
}

void jb_char(struct jbuild *b, uint32_t cp, bool input)
{
	char s[4];
	jb_put(b, s, (size_t)utf8_encode(cp, s), input);
}

/* Return the index of the first span that ends after this byte. */
static uint32_t span_at(const struct jstr *s, size_t byte)
{
	uint32_t lo = 0, hi = s->n_spans;
	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		if (s->spans[mid].end <= byte)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool jstr_input_at(const struct jstr *s, size_t byte)
{
	if (s->marks != JM_MIXED)
		return s->marks == JM_ALL;
	uint32_t i = span_at(s, byte);
	return i < s->n_spans && s->spans[i].start <= byte;
}

void jb_sub(struct jbuild *b, const struct jstr *s, size_t from, size_t to)
{
	size_t base = b->n;
	put_bytes(b, s->p + from, to - from);
	if (to <= from || s->marks == JM_NONE)
		return;
	if (s->marks == JM_ALL) {
		mark(b, base, b->n);
		return;
	}
	for (uint32_t i = span_at(s, from); i < s->n_spans && s->spans[i].start < to; i++) {
		size_t start = s->spans[i].start < from ? from : s->spans[i].start;
		size_t end = s->spans[i].end > to ? to : s->spans[i].end;
		mark(b, base + start - from, base + end - from);
	}
}

void jb_str(struct jbuild *b, const struct jstr *s)
{
	jb_sub(b, s, 0, s->n);
}

struct jv jb_done(struct jbuild *b)
{
	struct jv v = jv_str(b->c, b->p ? b->p : "", b->n, JM_NONE);
	if (b->n_spans == 1 && b->spans[0].start == 0 && b->spans[0].end == b->n) {
		v.s->marks = JM_ALL;
	} else if (b->n_spans) {
		v.s->marks = JM_MIXED;
		v.s->spans = b->spans;
		v.s->n_spans = (uint32_t)b->n_spans;
	}
	return v;
}

/* ---- strings ---- */

struct jv jv_str(struct jctx *c, const char *p, size_t n, enum jmarks marks)
{
	struct jstr *s = jinja_alloc_raw(c, sizeof *s);
	if (n >= UINT32_MAX)
		jinja_fail(c, -E2BIG, "a string of %zu bytes", n);
	*s = (struct jstr){.p = p, .n = (uint32_t)n, .chars = UINT32_MAX, .marks = n ? marks : JM_NONE};
	return (struct jv){.t = J_STR, .s = s};
}

struct jv jv_text(struct jctx *c, const char *literal)
{
	return jv_str(c, literal, strlen(literal), JM_NONE);
}

size_t jstr_chars(struct jstr *s)
{
	if (s->chars == UINT32_MAX) {
		uint32_t n = 0;
		for (uint32_t i = 0; i < s->n; i++)
			n += ((unsigned char)s->p[i] & 0xc0) != 0x80;
		s->chars = n;
	}
	return s->chars;
}

size_t jstr_offset(struct jstr *s, size_t chars)
{
	if (jstr_chars(s) == s->n)
		return chars < s->n ? chars : s->n;
	size_t at = 0;
	while (chars-- && at < s->n)
		do
			at++;
		while (at < s->n && ((unsigned char)s->p[at] & 0xc0) == 0x80);
	return at;
}

bool jstr_is(const struct jstr *s, const char *literal)
{
	return s->n == strlen(literal) && memcmp(s->p, literal, s->n) == 0;
}

struct jv jstr_sub(struct jctx *c, const struct jstr *s, size_t from, size_t to)
{
	if (to <= from)
		return jv_str(c, "", 0, JM_NONE);
	if (s->marks != JM_MIXED)
		return jv_str(c, s->p + from, to - from, s->marks);
	struct jv v = jv_str(c, s->p + from, to - from, JM_NONE);
	uint32_t first = span_at(s, from), end = first;
	while (end < s->n_spans && s->spans[end].start < to)
		end++;
	if (end == first)
		return v;
	struct jspan *spans = jinja_alloc_n(c, end - first, sizeof *spans);
	for (uint32_t i = first; i < end; i++) {
		size_t start = s->spans[i].start < from ? from : s->spans[i].start;
		size_t stop = s->spans[i].end > to ? to : s->spans[i].end;
		spans[i - first] = (struct jspan){(uint32_t)(start - from), (uint32_t)(stop - from)};
	}
	v.s->marks = end - first == 1 && spans[0].start == 0 && spans[0].end == v.s->n ? JM_ALL : JM_MIXED;
	v.s->spans = spans;
	v.s->n_spans = end - first;
	return v;
}

/* Mark [start, end) as input in the string that ends where g does. */
static void grow_mark(struct jctx *c, struct jgrow *g, size_t start, size_t end)
{
	if (g->n_spans && g->spans[g->n_spans - 1].end >= start) {
		g->spans[g->n_spans - 1].end = (uint32_t)end;
		return;
	}
	if (g->n_spans == g->cap_spans) {
		size_t cap = g->cap_spans ? g->cap_spans * 2 : 8;
		/* Not in place: strings that share the old spans keep them. */
		struct jspan *spans = jinja_alloc_n(c, cap, sizeof *spans);
		if (g->n_spans)
			memcpy(spans, g->spans, g->n_spans * sizeof *spans);
		g->spans = spans;
		g->cap_spans = cap;
	}
	g->spans[g->n_spans++] = (struct jspan){(uint32_t)start, (uint32_t)end};
}

static void grow_marks_of(struct jctx *c, struct jgrow *g, size_t base, const struct jstr *s)
{
	if (s->marks == JM_ALL)
		grow_mark(c, g, base, base + s->n);
	for (uint32_t i = 0; s->marks == JM_MIXED && i < s->n_spans; i++)
		grow_mark(c, g, base + s->spans[i].start,
			  base + (s->spans[i].end > s->n ? s->n : s->spans[i].end));
}

struct jv jstr_concat(struct jctx *c, struct jstr *a, struct jstr *b)
{
	if (!a->n || !b->n)
		return (struct jv){.t = J_STR, .s = a->n ? a : b};
	size_t n = (size_t)a->n + b->n;
	struct jgrow *g = a->grow;
	const char *p = a->p;
	if (!g || g->used != a->n || b->n > g->cap - g->used) {
		g = jinja_alloc(c, sizeof *g);
		g->cap = n + n / 2 + 32;
		char *copy = jinja_alloc_raw(c, g->cap);
		memcpy(copy, a->p, a->n);
		p = copy;
		grow_marks_of(c, g, 0, a);
	}
	memcpy((char *)p + a->n, b->p, b->n);
	jinja_step(c, b->n >> 6);
	g->used = n;
	grow_marks_of(c, g, a->n, b);
	struct jv v = jv_str(c, p, n, JM_NONE);
	v.s->grow = g;
	v.s->n_spans = (uint32_t)g->n_spans;
	v.s->spans = g->spans;
	v.s->marks = !g->n_spans                                                              ? JM_NONE
		     : g->n_spans == 1 && g->spans[0].start == 0 && g->spans[0].end == v.s->n ? JM_ALL
											      : JM_MIXED;
	return v;
}

bool jchar_is_space(uint32_t cp)
{
	return charclass_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
}
