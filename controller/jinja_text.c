/* Strings: their bytes, which of them are input, and how values read as text. */
#include "controller/jinja_impl.h"

#include "controller/charclass.h"
#include "controller/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

enum { NAME_MAX_BYTES = 80 };

/* ---- building ---- */

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

/* The first span that ends behind byte. */
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

/* Make [start, end) input in a string that ends where g does. */
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

/* ---- values as text ---- */

bool jchar_is_space(uint32_t cp)
{
	return charclass_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
}

/* str.isprintable() of one character. */
static bool is_printable(uint32_t cp)
{
	if (cp < 127)
		return cp >= 32;
	switch (utf8proc_category((utf8proc_int32_t)cp)) {
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP:
	case UTF8PROC_CATEGORY_ZS:
		return false;
	default:
		return true;
	}
}

static void repr_escape(struct jbuild *b, uint32_t cp, char quote, bool input)
{
	char s[16];
	const char *short_form = cp == '\n'   ? "\\n"
				 : cp == '\r' ? "\\r"
				 : cp == '\t' ? "\\t"
				 : cp == '\\' ? "\\\\"
					      : NULL;
	if (short_form)
		snprintf(s, sizeof s, "%s", short_form);
	else if (cp == (uint32_t)quote)
		snprintf(s, sizeof s, "\\%c", quote);
	else
		snprintf(s, sizeof s, cp < 256 ? "\\x%02x" : cp < 65536 ? "\\u%04x" : "\\U%08x", cp);
	jb_put(b, s, strlen(s), input);
}

static void repr_str(struct jbuild *b, const struct jstr *s)
{
	bool single = memchr(s->p, '\'', s->n), twice = memchr(s->p, '"', s->n);
	char quote = single && !twice ? '"' : '\'';
	jb_put(b, &quote, 1, false);
	size_t plain = 0, at = 0;
	while (at < s->n) {
		int len;
		uint32_t cp = utf8_at(s->p + at, &len);
		if (cp == '\\' || cp == (uint32_t)quote || !is_printable(cp)) {
			jb_sub(b, s, plain, at);
			repr_escape(b, cp, quote, jstr_input_at(s, at));
			plain = at + (size_t)len;
		}
		at += (size_t)len;
	}
	jb_sub(b, s, plain, s->n);
	jb_put(b, &quote, 1, false);
}

/* The shortest digits that read back as d, as repr(float). */
void jfloat_repr(double d, char out[40])
{
	char e[40];
	if (isnan(d) || isinf(d)) {
		snprintf(out, 40, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
		return;
	}
	int precision = 0;
	do
		snprintf(e, sizeof e, "%.*e", precision, d);
	while (precision++ < 17 && strtod(e, NULL) != d);
	int exponent = atoi(strchr(e, 'e') + 1), digits = precision - 1;
	if (exponent < -4 || exponent >= 16) {
		snprintf(out, 40, "%.*e", digits, d);
	} else {
		int after = digits - exponent;
		snprintf(out, 40, "%.*f", after > 0 ? after : 1, d);
	}
}

static void put_list(struct jbuild *b, const struct jlist *l, const char *open, const char *close)
{
	jb_puts(b, open);
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			jb_puts(b, ", ");
		jv_repr(b, l->v[i]);
	}
	jb_puts(b, close);
}

static void put_dict(struct jbuild *b, const struct jdict *d)
{
	jb_puts(b, "{");
	for (size_t i = 0; i < d->n; i++) {
		if (i)
			jb_puts(b, ", ");
		jv_repr(b, d->e[i].key);
		jb_puts(b, ": ");
		jv_repr(b, d->e[i].value);
	}
	jb_puts(b, "}");
}

static void put_number(struct jbuild *b, struct jv v)
{
	char s[40];
	if (v.t == J_INT)
		snprintf(s, sizeof s, "%lld", (long long)v.i);
	else
		jfloat_repr(v.d, s);
	jb_puts(b, s);
}

static void put_other(struct jbuild *b, struct jv v)
{
	char s[160];
	switch (v.t) {
	case J_VIEW:
		jb_puts(b, v.seq->name);
		put_list(b, &v.seq->list, "([", "])");
		return;
	case J_RANGE:
		if (v.range->step == 1)
			snprintf(s, sizeof s, "range(%lld, %lld)", (long long)v.range->start,
				 (long long)v.range->stop);
		else
			snprintf(s, sizeof s, "range(%lld, %lld, %lld)", (long long)v.range->start,
				 (long long)v.range->stop, (long long)v.range->step);
		break;
	case J_NS:
		jb_puts(b, "<Namespace ");
		put_dict(b, &v.ns->vars);
		jb_puts(b, ">");
		return;
	case J_MACRO:
		if (v.macro->name)
			snprintf(s, sizeof s, "<Macro '%.100s'>", v.macro->name);
		else
			snprintf(s, sizeof s, "<Macro anonymous>");
		break;
	case J_FN:
		snprintf(s, sizeof s, "<function %s>", v.fn->name);
		break;
	case J_METHOD:
		snprintf(s, sizeof s, "<built-in method %s of %s object>", v.bound->fn->name,
			 jv_type_name(v.bound->self));
		break;
	case J_LOOP:
		snprintf(s, sizeof s, "<LoopContext %zu/%zu>", v.loop->at + 1, v.loop->items.n);
		break;
	default:
		snprintf(s, sizeof s, "<%s>", jv_type_name(v));
	}
	jb_puts(b, s);
}

void jv_repr(struct jbuild *b, struct jv v)
{
	jinja_enter(b->c);
	switch (v.t) {
	case J_MISSING:
	case J_UNDEF:
		jb_puts(b, "Undefined");
		break;
	case J_NONE:
		jb_puts(b, "None");
		break;
	case J_BOOL:
		jb_puts(b, v.b ? "True" : "False");
		break;
	case J_INT:
	case J_FLOAT:
		put_number(b, v);
		break;
	case J_STR:
		repr_str(b, v.s);
		break;
	case J_LIST:
		put_list(b, v.l, "[", "]");
		break;
	case J_TUPLE:
		put_list(b, v.l, "(", v.l->n == 1 ? ",)" : ")");
		break;
	case J_DICT:
		put_dict(b, v.m);
		break;
	default:
		put_other(b, v);
	}
	jinja_leave(b->c);
}

void jv_put(struct jbuild *b, struct jv v)
{
	if (v.t == J_STR)
		jb_str(b, v.s);
	else if (v.t != J_UNDEF)
		jv_repr(b, v);
}

struct jv jv_to_str(struct jctx *c, struct jv v)
{
	struct jbuild b;
	if (v.t == J_STR)
		return v;
	jb_init(&b, c);
	jv_put(&b, v);
	return jb_done(&b);
}

const char *jv_name_of(struct jctx *c, struct jv v)
{
	struct jbuild b;
	jb_init(&b, c);
	jv_repr(&b, v);
	size_t n = b.n < NAME_MAX_BYTES ? b.n : NAME_MAX_BYTES;
	while (n < b.n && n && ((unsigned char)b.p[n] & 0xc0) == 0x80)
		n--;
	char *s = jinja_alloc(c, n + 1);
	return memcpy(s, b.p, n);
}
