/* Converts one literal, Python's or of a format with its own quote, to JSON. */
#include "controller/chat/tools_impl.h"

#include "base/utf8.h"
#include "controller/chat/marker.h"

#include <stdio.h>
#include <string.h>

struct reader {
	const char *p, *end;
	const struct tools_literals *f;
	struct buf *out;
};

static void blanks(struct reader *r)
{
	r->p += marker_skip_blanks(r->p, (size_t)(r->end - r->p));
}

static bool take(struct reader *r, const char *text)
{
	const size_t n = strlen(text);
	if ((size_t)(r->end - r->p) < n || memcmp(r->p, text, n) != 0)
		return false;
	r->p += n;
	return true;
}

static void put_code(struct buf *out, uint32_t c)
{
	char utf8[4];
	if (c == '"' || c == '\\')
		buf_printf(out, "\\%c", (char)c);
	else if (c < 0x20)
		buf_printf(out, "\\u%04x", c);
	else
		buf_put(out, utf8, utf8_encode(c, utf8));
}

static int hex_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Read the n digits of an escape.  Return false if they are not digits or not a character. */
static bool put_hex(struct reader *r, int n)
{
	uint32_t c = 0;
	for (int i = 0; i < n; i++) {
		const int h = r->p < r->end ? hex_of(*r->p++) : -1;
		if (h < 0)
			return false;
		c = c << 4 | (uint32_t)h;
	}
	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return false;
	put_code(r->out, c);
	return true;
}

/* Read an escape after the backslash. */
static bool put_escape(struct reader *r)
{
	static const char from[] = "nrtbfv0a\\'\"", to[] = "\n\r\t\b\f\v\0\a\\'\"";
	const char c = *r->p++;
	if (c == 'x')
		return put_hex(r, 2);
	if (c == 'u' || c == 'U')
		return put_hex(r, c == 'u' ? 4 : 8);
	const char *at = memchr(from, c, sizeof from - 1);
	if (at)
		put_code(r->out, (unsigned char)to[at - from]);
	else if (c != '\n') { /* Python keeps the backslash of an unknown escape */
		buf_puts(r->out, "\\\\");
		r->p--;
	}
	return true;
}

enum tools_found tools_quote_ends(const char *p, size_t n)
{
	const size_t i = marker_skip_blanks(p, n);
	if (i > TOOLS_BLANKS_MAX)
		return TOOLS_NO;
	return i == n ? TOOLS_MORE : memchr(",:]}", p[i], 4) ? TOOLS_YES : TOOLS_NO;
}

/* Take the quote if it ends a text.  A text may contain the format's own quote, but not Python's. */
static bool take_end(struct reader *r, const char *quote)
{
	const char *from = r->p;
	if (take(r, quote) &&
	    (quote != r->f->quote || tools_quote_ends(r->p, (size_t)(r->end - r->p)) != TOOLS_NO))
		return true;
	r->p = from;
	return false;
}

/* Read a text up to its closing `quote`. */
static bool text(struct reader *r, const char *quote, bool escapes)
{
	buf_putc(r->out, '"');
	while (r->p < r->end) {
		if (take_end(r, quote)) {
			buf_putc(r->out, '"');
			return true;
		}
		const unsigned char c = (unsigned char)*r->p++;
		if (escapes && c == '\\') {
			if (r->p == r->end || !put_escape(r))
				return false;
		} else if (c < 0x80) {
			put_code(r->out, c);
		} else {
			buf_putc(r->out, (char)c);
		}
	}
	return false;
}

static bool string(struct reader *r)
{
	if (r->f->quote)
		return take(r, r->f->quote) && text(r, r->f->quote, false);
	if (take(r, "'"))
		return text(r, "'", true);
	return take(r, "\"") && text(r, "\"", true);
}

/* Read a number in JSON's syntax. */
static bool number(struct reader *r)
{
	const char *from = r->p;
	while (r->p < r->end && strchr("+-.0123456789eE", *r->p) && *r->p)
		r->p++;
	json_t *v = json_loadb(from, (size_t)(r->p - from), JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
	const bool ok = json_is_number(v);
	if (ok)
		buf_put(r->out, from, (size_t)(r->p - from));
	json_decref(v);
	return ok;
}

static bool word(struct reader *r)
{
	static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
					       {"true", "true"}, {"false", "false"}, {"null", "null"}};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (take(r, words[i][0])) {
			buf_puts(r->out, words[i][1]);
			return true;
		}
	return number(r);
}

static bool key(struct reader *r)
{
	if (r->p < r->end && (*r->p == '"' || *r->p == '\'' || *r->p == '<'))
		return string(r);
	const char *from = r->p;
	while (r->f->quote && r->p < r->end && *r->p != ':' && *r->p != '"' && *r->p != '\\' &&
	       (unsigned char)*r->p >= 0x20)
		r->p++;
	buf_printf(r->out, "\"%.*s\"", (int)(r->p - from), from);
	return r->p > from;
}

static bool value(struct reader *r, int depth);

/* Read the rest of a list, tuple or object, up to its closing bracket. */
static bool members(struct reader *r, char close, bool keys, int depth)
{
	for (bool any = false;; any = true) {
		blanks(r);
		if (r->p < r->end && *r->p == close) {
			r->p++;
			return true;
		}
		if (any && !take(r, ","))
			return false;
		blanks(r);
		if (r->p < r->end && *r->p == close && any) { /* a trailing comma */
			r->p++;
			return true;
		}
		if (any)
			buf_puts(r->out, ", ");
		if (keys) {
			if (!key(r))
				return false;
			blanks(r);
			if (!take(r, ":"))
				return false;
			buf_puts(r->out, ": ");
		}
		if (!value(r, depth))
			return false;
	}
}

static bool value(struct reader *r, int depth)
{
	blanks(r);
	if (depth == 0 || r->p == r->end)
		return false;
	const char c = *r->p;
	if (c == '[' || c == '(' || c == '{') {
		r->p++;
		buf_putc(r->out, c == '{' ? '{' : '[');
		const bool ok = members(r, c == '[' ? ']' : c == '(' ? ')' : '}', c == '{', depth - 1);
		buf_putc(r->out, c == '{' ? '}' : ']');
		return ok;
	}
	return (c == '"' || c == '\'' || c == '<') ? string(r) : word(r);
}

bool tools_literal_json(struct buf *out, const char *p, size_t n, const struct tools_literals *f)
{
	struct reader r = {p, p + n, f, out};
	const bool ok = value(&r, TOOLS_LITERAL_DEPTH);
	blanks(&r);
	return ok && r.p == r.end;
}
