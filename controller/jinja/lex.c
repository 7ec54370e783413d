#include "controller/jinja/lex.h"

#include "base/utf8.h"
#include "controller/jinja/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct lex {
	struct jctx *c;
	const char *p;
	size_t n, at;
	unsigned flags;
	uint32_t line;
	struct jtoken *tokens;
	size_t n_tokens, cap;
	char *open; /* the brackets open within a tag */
	size_t n_open, cap_open;
};

static struct jtoken *push(struct lex *x, enum jtoken_type t)
{
	if (x->n_tokens == x->cap) {
		size_t cap = x->cap ? x->cap * 2 : 256;
		x->tokens =
			jinja_realloc(x->c, x->tokens, x->cap * sizeof *x->tokens, cap * sizeof *x->tokens);
		x->cap = cap;
	}
	x->tokens[x->n_tokens] = (struct jtoken){.t = t, .line = x->line};
	return &x->tokens[x->n_tokens++];
}

/* Move to byte `at`, counting lines. */
static void skip_to(struct lex *x, size_t at)
{
	for (; x->at < at; x->at++)
		x->line += x->p[x->at] == '\n';
}

static bool looking_at(const struct lex *x, size_t at, const char *word)
{
	size_t n = strlen(word);
	return x->n - at >= n && memcmp(x->p + at, word, n) == 0;
}

static size_t behind_space(const struct lex *x, size_t at)
{
	int len;
	while (at < x->n && jchar_is_space(utf8_at(x->p + at, &len)))
		at += (size_t)len;
	return at;
}

static size_t before_space(const struct lex *x, size_t from, size_t to)
{
	int len;
	while (to > from && jchar_is_space(utf8_before(x->p, to, &len)))
		to -= (size_t)len;
	return to;
}

/* Return the end of the text [from, tag) after stripping white space as the sign of the
 * following tag demands. */
static size_t text_end(const struct lex *x, size_t from, size_t tag, char sign, bool variable)
{
	if (sign == '-')
		return before_space(x, from, tag);
	if (sign == '+' || variable || !(x->flags & JINJA_LSTRIP_BLOCKS))
		return tag;
	size_t line = tag;
	while (line > from && x->p[line - 1] != '\n')
		line--;
	if (line == from && from > 0 && x->p[from - 1] != '\n')
		return tag;
	return behind_space(x, line) >= tag ? line : tag;
}

static void put_text(struct lex *x, size_t from, size_t to)
{
	if (to > from) {
		struct jtoken *t = push(x, T_DATA);
		t->p = x->p + from;
		t->n = (uint32_t)(to - from);
	}
}

/* Return where text resumes after a tag that ends at `at`; sign: the one before its closing bracket, or 0. */
static size_t behind_tag(const struct lex *x, size_t at, char sign, bool variable)
{
	if (sign == '-')
		return behind_space(x, at);
	if (sign != '+' && !variable && x->flags & JINJA_TRIM_BLOCKS && at < x->n && x->p[at] == '\n')
		return at + 1;
	return at;
}

static void comment(struct lex *x)
{
	const char *close = memmem(x->p + x->at, x->n - x->at, "#}", 2);
	if (!close) {
		x->c->line = x->line;
		jinja_fail(x->c, -EINVAL, "a comment is not closed");
	}
	size_t at = (size_t)(close - x->p);
	char sign = at > x->at ? x->p[at - 1] : 0;
	skip_to(x, behind_tag(x, at + 2, sign, false));
}

/* Return where the text of a `{% raw %}` at tag begins; 0: not a raw tag. */
static size_t raw_begin(const struct lex *x, size_t tag)
{
	size_t at = tag + 2;
	if (at < x->n && (x->p[at] == '-' || x->p[at] == '+'))
		at++;
	at = behind_space(x, at);
	if (!looking_at(x, at, "raw"))
		return 0;
	at = behind_space(x, at + 3);
	if (looking_at(x, at, "-%}"))
		return behind_space(x, at + 3);
	return looking_at(x, at, "%}") ? at + 2 : 0;
}

static void raw(struct lex *x, size_t begin)
{
	skip_to(x, begin);
	for (size_t tag = begin; tag + 1 < x->n; tag++) {
		if (!looking_at(x, tag, "{%"))
			continue;
		size_t at = tag + 2;
		char sign = at < x->n && (x->p[at] == '-' || x->p[at] == '+') ? x->p[at] : 0;
		at = behind_space(x, at + (sign != 0));
		if (!looking_at(x, at, "endraw"))
			continue;
		at = behind_space(x, at + 6);
		char end = at < x->n && (x->p[at] == '-' || x->p[at] == '+') ? x->p[at] : 0;
		if (!looking_at(x, at + (end != 0), "%}"))
			continue;
		put_text(x, begin, text_end(x, begin, tag, sign, false));
		skip_to(x, behind_tag(x, at + (end != 0) + 2, end, false));
		return;
	}
	x->c->line = x->line;
	jinja_fail(x->c, -EINVAL, "{%% raw %%} is not closed");
}

/* ---- tokens within a tag ---- */

static int digit_of(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : 99;
}

/* Return the end of the digits of this base; single _ may be between digits. */
static size_t digits(const struct lex *x, size_t at, int base)
{
	size_t from = at;
	while (at < x->n && (digit_of(x->p[at]) < base || (x->p[at] == '_' && at > from && at + 1 < x->n &&
							   digit_of(x->p[at + 1]) < base)))
		at++;
	return at;
}

/* Return the characters [from, to) without _, NUL-terminated. */
static char *plain_number(struct lex *x, size_t from, size_t to)
{
	char *s = jinja_alloc(x->c, to - from + 1);
	size_t n = 0;
	for (size_t i = from; i < to; i++)
		if (x->p[i] != '_')
			s[n++] = x->p[i];
	return s;
}

static void number(struct lex *x)
{
	size_t from = x->at, at;
	int base = 10;
	if (x->p[from] == '0' && from + 1 < x->n) {
		char b = (char)(x->p[from + 1] | 32);
		base = b == 'x' ? 16 : b == 'o' ? 8 : b == 'b' ? 2 : 10;
	}
	if (base != 10 && (at = digits(x, from + 2, base)) > from + 2) {
		struct jtoken *t = push(x, T_INT);
		errno = 0;
		t->i = strtoll(plain_number(x, from + 2, at), NULL, base);
		if (errno)
			jinja_fail(x->c, -EINVAL, "an integer is larger than 64 bits");
		skip_to(x, at);
		return;
	}
	size_t whole = at = digits(x, from, 10);
	bool real = false, after_dot = from > 0 && x->p[from - 1] == '.';
	if (!after_dot && at + 1 < x->n && x->p[at] == '.' && digit_of(x->p[at + 1]) < 10) {
		at = digits(x, at + 1, 10);
		real = true;
	}
	if (!after_dot && at < x->n && (x->p[at] | 32) == 'e') {
		size_t e = at + 1;
		e += e < x->n && (x->p[e] == '+' || x->p[e] == '-');
		size_t end = digits(x, e, 10);
		if (end > e) {
			at = end;
			real = true;
		}
	}
	struct jtoken *t = push(x, real ? T_FLOAT : T_INT);
	char *s = plain_number(x, from, real ? at : whole);
	errno = 0;
	if (real)
		t->d = strtod(s, NULL);
	else
		t->i = strtoll(s, NULL, 10);
	if (errno && !(real && isfinite(t->d)))
		jinja_fail(x->c, -EINVAL, "the number %.40s is too large", s);
	skip_to(x, real ? at : whole);
}

/* Read n hexadecimal digits at `at`, as in \x41. */
static uint32_t hex(struct lex *x, size_t at, size_t n)
{
	uint32_t cp = 0;
	for (size_t i = 0; i < n; i++) {
		int d = at + i < x->n ? digit_of(x->p[at + i]) : 99;
		if (d > 15)
			jinja_fail(x->c, -EINVAL, "\\%c needs %zu hexadecimal digits", x->p[at - 1], n);
		cp = cp << 4 | (uint32_t)d;
	}
	if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
		jinja_fail(x->c, -EINVAL, "\\%c: U+%04X is not a character", x->p[at - 1], cp);
	return cp;
}

/* Decode the escape after the backslash at `at - 1`.  Return where it ends. */
static size_t escape(struct lex *x, size_t at, char *out, size_t *n)
{
	static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
	char e = x->p[at];
	const char *hit = strchr(from, e);
	if (e == '\n')
		return at + 1;
	if (e && hit) {
		out[(*n)++] = to[hit - from];
		return at + 1;
	}
	size_t digits_n = e == 'x' ? 2 : e == 'u' ? 4 : e == 'U' ? 8 : 0;
	if (digits_n) {
		*n += (size_t)utf8_encode(hex(x, at + 1, digits_n), out + *n);
		return at + 1 + digits_n;
	}
	if (e == 'N')
		jinja_fail(x->c, -EINVAL, "\\N{...} is not supported; write \\u....");
	if (e >= '0' && e <= '7') {
		uint32_t cp = 0;
		size_t end = at;
		while (end < at + 3 && end < x->n && x->p[end] >= '0' && x->p[end] <= '7')
			cp = cp * 8 + (uint32_t)(x->p[end++] - '0');
		*n += (size_t)utf8_encode(cp, out + *n);
		return end;
	}
	out[(*n)++] = '\\';
	return at;
}

static void string(struct lex *x)
{
	char quote = x->p[x->at];
	size_t end = x->at + 1;
	bool escaped = false;
	while (end < x->n && x->p[end] != quote) {
		escaped |= x->p[end] == '\\';
		end += x->p[end] == '\\' ? 2 : 1;
	}
	if (end >= x->n)
		jinja_fail(x->c, -EINVAL, "a string is not closed");
	struct jtoken *t = push(x, T_STRING);
	t->p = x->p + x->at + 1;
	t->n = (uint32_t)(end - x->at - 1);
	if (escaped) {
		/* An escape produces at most as many bytes as its source has. */
		char *out = jinja_alloc(x->c, t->n + 4);
		size_t n = 0;
		for (size_t i = x->at + 1; i < end;) {
			if (x->p[i] == '\\')
				i = escape(x, i + 1, out, &n);
			else
				out[n++] = x->p[i++];
		}
		t = &x->tokens[x->n_tokens - 1];
		t->p = out;
		t->n = (uint32_t)n;
	}
	skip_to(x, end + 1);
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
	       c & 0x80;
}

static void brackets(struct lex *x, char c)
{
	if (c == '(' || c == '[' || c == '{') {
		if (x->n_open == x->cap_open) {
			x->open = jinja_realloc(x->c, x->open, x->cap_open, x->cap_open * 2 + 64);
			x->cap_open = x->cap_open * 2 + 64;
		}
		x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
	} else if (c == ')' || c == ']' || c == '}') {
		if (!x->n_open)
			jinja_fail(x->c, -EINVAL, "unexpected '%c'", c);
		if (x->open[--x->n_open] != c)
			jinja_fail(x->c, -EINVAL, "unexpected '%c', expected '%c'", c, x->open[x->n_open]);
	}
}

static void operator(struct lex *x)
{
	static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
	char c = x->p[x->at];
	for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
		if (looking_at(x, x->at, two[i])) {
			push(x, T_OP)->op = JOP2(two[i][0], two[i][1]);
			x->at += 2;
			return;
		}
	if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
		jinja_fail(x->c, -EINVAL, c > 32 && c < 127 ? "unexpected '%c'" : "unexpected byte %d", c);
	brackets(x, c);
	push(x, T_OP)->op = c;
	x->at++;
}

/* Read the tokens of a tag, including its closing bracket. */
static void tag(struct lex *x, bool variable)
{
	char close[3] = {variable ? '}' : '%', '}', 0};
	x->n_open = 0;
	for (;;) {
		skip_to(x, behind_space(x, x->at));
		x->c->line = x->line;
		if (x->at >= x->n)
			jinja_fail(x->c, -EINVAL, "a tag is not closed");
		char c = x->p[x->at];
		if (!x->n_open) {
			char sign = c == '-' || (c == '+' && !variable) ? c : 0;
			if (looking_at(x, x->at + (sign != 0), close)) {
				push(x, variable ? T_VAR_END : T_BLOCK_END);
				skip_to(x, behind_tag(x, x->at + (sign != 0) + 2, sign, variable));
				return;
			}
		}
		if (c >= '0' && c <= '9') {
			number(x);
		} else if (is_name_char(c)) {
			struct jtoken *t = push(x, T_NAME);
			t->p = x->p + x->at;
			while (x->at < x->n && is_name_char(x->p[x->at]))
				x->at++;
			t->n = (uint32_t)(x->p + x->at - t->p);
		} else if (c == '\'' || c == '"') {
			string(x);
		} else {
			operator(x);
		}
	}
}

/* Return the next '{' that opens a tag, or n. */
static size_t next_tag(const struct lex *x, size_t at)
{
	for (; at + 1 < x->n; at++) {
		const char *hit = memchr(x->p + at, '{', x->n - at - 1);
		if (!hit)
			break;
		at = (size_t)(hit - x->p);
		if (hit[1] == '{' || hit[1] == '%' || hit[1] == '#')
			return at;
	}
	return x->n;
}

/* Return a copy in which every line end is "\n", without the last line end. */
static char *normalized(struct jctx *c, const char *text, size_t *n)
{
	char *out = jinja_alloc_raw(c, *n + 1);
	size_t k = 0;
	for (size_t i = 0; i < *n; i++) {
		if (text[i] == '\r') {
			out[k++] = '\n';
			i += i + 1 < *n && text[i + 1] == '\n';
		} else {
			out[k++] = text[i];
		}
	}
	if (k && out[k - 1] == '\n')
		k--;
	out[k] = 0;
	*n = k;
	return out;
}

struct jtoken *jinja_lex(struct jctx *c, const char *text, size_t n, unsigned flags, size_t *n_tokens)
{
	struct lex x = {.c = c, .flags = flags, .line = 1};
	x.p = normalized(c, text, &n);
	x.n = n;
	while (x.at < x.n) {
		size_t from = x.at, at = next_tag(&x, from);
		if (at == x.n) {
			put_text(&x, from, x.n);
			break;
		}
		char kind = x.p[at + 1], sign = at + 2 < x.n ? x.p[at + 2] : 0;
		sign = sign == '-' || sign == '+' ? sign : 0;
		put_text(&x, from, text_end(&x, from, at, sign, kind == '{'));
		size_t begin = kind == '%' ? raw_begin(&x, at) : 0;
		skip_to(&x, at + 2 + (sign != 0));
		if (begin) {
			raw(&x, begin);
		} else if (kind == '#') {
			comment(&x);
		} else {
			push(&x, kind == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN);
			tag(&x, kind == '{');
		}
	}
	push(&x, T_EOF);
	*n_tokens = x.n_tokens;
	return x.tokens;
}
