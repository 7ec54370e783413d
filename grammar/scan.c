#include "grammar/scan.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

int scan_fail(struct scan *s, int err, const char *what)
{
	size_t line = 1;
	for (size_t i = 0; i < s->at && i < s->n; i++)
		line += s->p[i] == '\n';
	s->failed = true;
	return ast_fail(s->a, err, "%s, line %zu: %s", s->language, line, what);
}

int scan_peek(const struct scan *s)
{
	return s->at < s->n ? (unsigned char)s->p[s->at] : -1;
}

static bool is_next(const struct scan *s, const char *text, size_t n)
{
	return s->n - s->at >= n && memcmp(s->p + s->at, text, n) == 0;
}

bool scan_take(struct scan *s, const char *text)
{
	const size_t n = strlen(text);
	if (!is_next(s, text, n))
		return false;
	s->at += n;
	return true;
}

static bool is_comment(const struct scan *s)
{
	for (size_t i = 0; i < sizeof s->comments / sizeof *s->comments; i++)
		if (s->comments[i] && is_next(s, s->comments[i], strlen(s->comments[i])))
			return true;
	return false;
}

void scan_space(struct scan *s, bool lines)
{
	for (;; s->at++) {
		if (is_comment(s))
			while (s->at < s->n && s->p[s->at] != '\n')
				s->at++;
		const int c = scan_peek(s);
		if (c != ' ' && c != '\t' && c != '\r' && !(lines && c == '\n'))
			return;
	}
}

static int hex_digit(int c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

bool scan_hex(struct scan *s, int digits, uint32_t *out)
{
	*out = 0;
	for (int i = 0; i < digits; i++, s->at++) {
		const int d = hex_digit(scan_peek(s));
		if (d < 0)
			return false;
		*out = *out << 4 | (uint32_t)d;
	}
	return true;
}

bool scan_count(struct scan *s, int64_t *out)
{
	const size_t from = s->at;
	*out = 0;
	for (; scan_peek(s) >= '0' && scan_peek(s) <= '9'; s->at++) {
		*out = *out * 10 + scan_peek(s) - '0';
		if (*out > SCAN_COUNT_MAX)
			*out = SCAN_COUNT_MAX;
	}
	return s->at > from;
}

void scan_add(struct scan_nodes *l, int node)
{
	l->failed |= node == AST_FAILED;
	array_grow(l->p, l->cap, l->n + 1);
	l->p[l->n++] = node;
}

int scan_join(struct scan *s, struct scan_nodes *l, int (*of)(struct ast *, const int *, size_t))
{
	const int node = l->failed ? AST_FAILED : of(s->a, l->p, l->n);
	free(l->p);
	return node;
}
