/* gbnf.c - a parser by recursive descent. */
#include "grammar/gbnf.h"
#include "grammar/char_set.h"
#include "grammar/rule_names.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 250, COUNT_MAX = 1000000000 };

struct parser {
	struct ast *a;
	const char *p;
	size_t n, at;
	int depth;
	bool failed;
	struct rule_names names;
};

static int parse_alternatives(struct parser *r, bool nested);

static int fail(struct parser *r, int err, const char *what)
{
	size_t line = 1;
	for (size_t i = 0; i < r->at && i < r->n; i++)
		line += r->p[i] == '\n';
	r->failed = true;
	return ast_fail(r->a, err, "GBNF, line %zu: %s", line, what);
}

static int peek(const struct parser *r)
{
	return r->at < r->n ? (unsigned char)r->p[r->at] : -1;
}

static bool take(struct parser *r, const char *s)
{
	size_t n = strlen(s);
	if (r->n - r->at < n || memcmp(r->p + r->at, s, n) != 0)
		return false;
	r->at += n;
	return true;
}

static void skip_space(struct parser *r, bool lines)
{
	for (;; r->at++) {
		if (peek(r) == '#')
			while (peek(r) >= 0 && peek(r) != '\n')
				r->at++;
		if (peek(r) != ' ' && peek(r) != '\t' && peek(r) != '\r' && !(lines && peek(r) == '\n'))
			return;
	}
}

static bool is_name(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
	       c == '_';
}

static size_t take_name(struct parser *r)
{
	size_t from = r->at;
	while (is_name(peek(r)))
		r->at++;
	return r->at - from;
}

static bool hex(struct parser *r, int digits, uint32_t *out)
{
	*out = 0;
	for (int i = 0; i < digits; i++, r->at++) {
		int c = peek(r);
		int d = c >= '0' && c <= '9'                 ? c - '0'
			: (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
							     : -1;
		if (d < 0)
			return false;
		*out = *out << 4 | (uint32_t)d;
	}
	return *out <= CHAR_MAX_CODE;
}

/* One character of a string or class; escapes undone. */
static bool take_char(struct parser *r, uint32_t *out)
{
	static const char from[] = "nrt\\\"[]-^", to[] = "\n\r\t\\\"[]-^";
	int len;
	if (peek(r) < 0)
		return fail(r, -EINVAL, "a string or class without its end"), false;
	if (!take(r, "\\")) {
		*out = utf8_at(r->p + r->at, &len);
		r->at += (size_t)len;
		return true;
	}
	int c = peek(r);
	const char *simple = c > 0 ? strchr(from, c) : NULL;
	r->at += c >= 0;
	if (simple) {
		*out = (uint32_t)(unsigned char)to[simple - from];
		return true;
	}
	int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
	if (!digits || !hex(r, digits, out))
		return fail(r, -EINVAL, "an unknown escape"), false;
	return true;
}

static int parse_string(struct parser *r)
{
	struct buf text = {0};
	uint32_t c;
	while (!take(r, "\"")) {
		char s[4];
		if (!take_char(r, &c) || c == 0 || (c >= 0xd800 && c < 0xe000)) {
			buf_fini(&text);
			return r->failed ? AST_FAILED : fail(r, -EINVAL, "not a character");
		}
		buf_put(&text, s, (size_t)utf8_encode(c, s));
	}
	int node = ast_literal(r->a, text.p, text.len);
	buf_fini(&text);
	return node;
}

static int parse_class(struct parser *r)
{
	struct char_set s = {0};
	bool negated = take(r, "^");
	int node = AST_FAILED;
	while (!take(r, "]")) {
		uint32_t first, last;
		if (!take_char(r, &first))
			goto done;
		last = first;
		if (peek(r) == '-' && r->at + 1 < r->n && r->p[r->at + 1] != ']') {
			r->at++;
			if (!take_char(r, &last))
				goto done;
		}
		if (first > last) {
			fail(r, -EINVAL, "a range that ends before it begins");
			goto done;
		}
		char_set_add(&s, first, last);
	}
	node = ast_chars(r->a, s.r, s.n, negated);
done:
	char_set_fini(&s);
	return node;
}

static int parse_element(struct parser *r)
{
	if (take(r, "\""))
		return parse_string(r);
	if (take(r, "["))
		return parse_class(r);
	if (take(r, "."))
		return ast_chars(r->a, NULL, 0, true);
	if (take(r, "(")) {
		if (++r->depth > DEPTH_MAX)
			return fail(r, -E2BIG, "groups are nested too deep");
		skip_space(r, true);
		int node = parse_alternatives(r, true);
		r->depth--;
		if (node == AST_FAILED)
			return AST_FAILED;
		return take(r, ")") ? node : fail(r, -EINVAL, "( without )");
	}
	if (peek(r) == '<' || peek(r) == '!')
		return fail(r, -EINVAL, "tokens (<...>) are not supported");
	const char *name = r->p + r->at;
	size_t n = take_name(r);
	if (!n)
		return fail(r, -EINVAL, "a string, class, group or rule is missing");
	int rule = rule_names_get(&r->names, r->a, name, n);
	return rule == AST_FAILED ? AST_FAILED : ast_ref(r->a, rule);
}

static bool number(struct parser *r, int64_t *out)
{
	size_t from = r->at;
	*out = 0;
	for (; peek(r) >= '0' && peek(r) <= '9'; r->at++)
		*out = *out * 10 + peek(r) - '0' > COUNT_MAX ? COUNT_MAX : *out * 10 + peek(r) - '0';
	return r->at > from;
}

/* Behind {. */
static bool braces(struct parser *r, int64_t *min, int64_t *max)
{
	skip_space(r, false);
	if (!number(r, min)) {
		*min = 0;
		if (peek(r) != ',')
			return fail(r, -EINVAL, "a repeat's count is missing"), false;
	}
	*max = *min;
	skip_space(r, false);
	if (take(r, ",")) {
		skip_space(r, false);
		if (!number(r, max))
			*max = -1;
		skip_space(r, false);
	}
	if (!take(r, "}") || (*max >= 0 && *min > *max))
		return fail(r, -EINVAL, "a repeat {...} that is not one"), false;
	return true;
}

/* 1: a repeat; 0: none; -1: an error. */
static int quantifier(struct parser *r, int64_t *min, int64_t *max)
{
	*min = 0;
	*max = -1;
	if (take(r, "{"))
		return braces(r, min, max) ? 1 : -1;
	if (take(r, "?"))
		*max = 1;
	else if (take(r, "+"))
		*min = 1;
	else if (!take(r, "*"))
		return 0;
	return 1;
}

/* An element and all repeats behind it. */
static int parse_repeats(struct parser *r, bool nested)
{
	int64_t min, max;
	int node = parse_element(r), more = 0;
	while (node != AST_FAILED) {
		skip_space(r, nested);
		more = quantifier(r, &min, &max);
		if (more <= 0)
			break;
		node = ast_repeat(r->a, node, min, max);
	}
	return more < 0 ? AST_FAILED : node;
}

static int parse_sequence(struct parser *r, bool nested)
{
	int *nodes = NULL;
	size_t n = 0, cap = 0;
	while (peek(r) >= 0 && peek(r) != '|' && peek(r) != ')' && peek(r) != '\n' && !r->failed) {
		int node = parse_repeats(r, nested);
		if (node == AST_FAILED) {
			free(nodes);
			return AST_FAILED;
		}
		array_grow(nodes, cap, n + 1);
		nodes[n++] = node;
	}
	int node = ast_seq(r->a, nodes, n);
	free(nodes);
	return node;
}

static int parse_alternatives(struct parser *r, bool nested)
{
	int *nodes = NULL;
	size_t n = 0, cap = 0;
	do {
		skip_space(r, true);
		int node = parse_sequence(r, nested);
		if (node == AST_FAILED) {
			free(nodes);
			return AST_FAILED;
		}
		array_grow(nodes, cap, n + 1);
		nodes[n++] = node;
		skip_space(r, nested);
	} while (take(r, "|"));
	int node = ast_alt(r->a, nodes, n);
	free(nodes);
	return node;
}

static void parse_rule(struct parser *r)
{
	const char *name = r->p + r->at;
	size_t n = take_name(r);
	if (!n) {
		fail(r, -EINVAL, "a rule's name is missing");
		return;
	}
	int rule = rule_names_get(&r->names, r->a, name, n);
	skip_space(r, false);
	r->failed |= rule == AST_FAILED;
	if (!take(r, "::=")) {
		fail(r, -EINVAL, "::= is missing");
		return;
	}
	int node = parse_alternatives(r, false);
	r->failed |= node == AST_FAILED;
	if (r->failed)
		return;
	if (peek(r) >= 0 && peek(r) != '\n') {
		fail(r, -EINVAL, peek(r) == ')' ? ") without (" : "the rule does not end here");
		return;
	}
	ast_rule_set(r->a, rule, node);
}

int gbnf_parse(struct ast *a, const char *p, size_t n)
{
	struct parser r = {.a = a, .p = p, .n = n};
	int node = AST_FAILED;
	if (utf8_valid(p, n) != n)
		return ast_fail(a, -EINVAL, "GBNF: not UTF-8");
	for (skip_space(&r, true); peek(&r) >= 0 && !r.failed; skip_space(&r, true))
		parse_rule(&r);
	if (!r.failed) {
		int root = rule_names_find(&r.names, a, "root", 4);
		node = root < 0 ? ast_fail(a, -EINVAL, "GBNF: the rule root is missing") : ast_ref(a, root);
	}
	rule_names_fini(&r.names);
	return node;
}
