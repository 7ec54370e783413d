/* gbnf.c - a recursive descent parser. */
#include "grammar/gbnf.h"
#include "grammar/char_set.h"
#include "grammar/rule_names.h"
#include "grammar/scan.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct parser {
	struct scan s;
	int depth;
	struct rule_names names;
};

static int parse_alternatives(struct parser *r, bool nested);

static bool is_name(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
	       c == '_';
}

static size_t take_name(struct parser *r)
{
	size_t from = r->s.at;
	while (is_name(scan_peek(&r->s)))
		r->s.at++;
	return r->s.at - from;
}

/* Read one character of a string or class, and decode escapes. */
static bool take_char(struct parser *r, uint32_t *out)
{
	static const char from[] = "nrt\\\"[]-^", to[] = "\n\r\t\\\"[]-^";
	int len;
	if (scan_peek(&r->s) < 0)
		return scan_fail(&r->s, -EINVAL, "a string or class without its end"), false;
	if (!scan_take(&r->s, "\\")) {
		*out = utf8_at(r->s.p + r->s.at, &len);
		r->s.at += (size_t)len;
		return true;
	}
	int c = scan_peek(&r->s);
	const char *simple = c > 0 ? strchr(from, c) : NULL;
	r->s.at += c >= 0;
	if (simple) {
		*out = (uint32_t)(unsigned char)to[simple - from];
		return true;
	}
	int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
	if (!digits || !scan_hex(&r->s, digits, out) || *out > CHAR_MAX_CODE)
		return scan_fail(&r->s, -EINVAL, "an unknown escape"), false;
	return true;
}

static int parse_string(struct parser *r)
{
	struct buf text = {0};
	uint32_t c;
	while (!scan_take(&r->s, "\"")) {
		char s[4];
		if (!take_char(r, &c) || c == 0 || (c >= 0xd800 && c < 0xe000)) {
			buf_fini(&text);
			return r->s.failed ? AST_FAILED : scan_fail(&r->s, -EINVAL, "not a character");
		}
		buf_put(&text, s, (size_t)utf8_encode(c, s));
	}
	int node = ast_literal(r->s.a, text.p, text.len);
	buf_fini(&text);
	return node;
}

static int parse_class(struct parser *r)
{
	struct char_set s = {0};
	bool negated = scan_take(&r->s, "^");
	int node = AST_FAILED;
	while (!scan_take(&r->s, "]")) {
		uint32_t first, last;
		if (!take_char(r, &first))
			goto done;
		last = first;
		if (scan_peek(&r->s) == '-' && r->s.at + 1 < r->s.n && r->s.p[r->s.at + 1] != ']') {
			r->s.at++;
			if (!take_char(r, &last))
				goto done;
		}
		if (first > last) {
			scan_fail(&r->s, -EINVAL, "a range that ends before it begins");
			goto done;
		}
		char_set_add(&s, first, last);
	}
	node = ast_chars(r->s.a, s.r, s.n, negated);
done:
	char_set_fini(&s);
	return node;
}

static int parse_element(struct parser *r)
{
	if (scan_take(&r->s, "\""))
		return parse_string(r);
	if (scan_take(&r->s, "["))
		return parse_class(r);
	if (scan_take(&r->s, "."))
		return ast_chars(r->s.a, NULL, 0, true);
	if (scan_take(&r->s, "(")) {
		if (++r->depth > SCAN_DEPTH_MAX)
			return scan_fail(&r->s, -E2BIG, "groups are nested too deep");
		scan_space(&r->s, true);
		int node = parse_alternatives(r, true);
		r->depth--;
		if (node == AST_FAILED)
			return AST_FAILED;
		return scan_take(&r->s, ")") ? node : scan_fail(&r->s, -EINVAL, "( without )");
	}
	if (scan_peek(&r->s) == '<' || scan_peek(&r->s) == '!')
		return scan_fail(&r->s, -EINVAL, "tokens (<...>) are not supported");
	const char *name = r->s.p + r->s.at;
	size_t n = take_name(r);
	if (!n)
		return scan_fail(&r->s, -EINVAL, "a string, class, group or rule is missing");
	int rule = rule_names_get(&r->names, r->s.a, name, n);
	return rule == AST_FAILED ? AST_FAILED : ast_ref(r->s.a, rule);
}

/* Parse the bounds after {. */
static bool braces(struct parser *r, int64_t *min, int64_t *max)
{
	scan_space(&r->s, false);
	if (!scan_count(&r->s, min)) {
		*min = 0;
		if (scan_peek(&r->s) != ',')
			return scan_fail(&r->s, -EINVAL, "a repeat's count is missing"), false;
	}
	*max = *min;
	scan_space(&r->s, false);
	if (scan_take(&r->s, ",")) {
		scan_space(&r->s, false);
		if (!scan_count(&r->s, max))
			*max = -1;
		scan_space(&r->s, false);
	}
	if (!scan_take(&r->s, "}") || (*max >= 0 && *min > *max))
		return scan_fail(&r->s, -EINVAL, "a repeat {...} that is not one"), false;
	return true;
}

/* Parse a repeat operator.  Return 1: a repeat; 0: none; -1: an error. */
static int quantifier(struct parser *r, int64_t *min, int64_t *max)
{
	*min = 0;
	*max = -1;
	if (scan_take(&r->s, "{"))
		return braces(r, min, max) ? 1 : -1;
	if (scan_take(&r->s, "?"))
		*max = 1;
	else if (scan_take(&r->s, "+"))
		*min = 1;
	else if (!scan_take(&r->s, "*"))
		return 0;
	return 1;
}

/* Parse an element and all repeat operators after it. */
static int parse_repeats(struct parser *r, bool nested)
{
	int64_t min, max;
	int node = parse_element(r), more = 0;
	while (node != AST_FAILED) {
		scan_space(&r->s, nested);
		more = quantifier(r, &min, &max);
		if (more <= 0)
			break;
		node = ast_repeat(r->s.a, node, min, max);
	}
	return more < 0 ? AST_FAILED : node;
}

static int parse_sequence(struct parser *r, bool nested)
{
	struct scan_nodes nodes = {0};
	while (scan_peek(&r->s) >= 0 && scan_peek(&r->s) != '|' && scan_peek(&r->s) != ')' &&
	       scan_peek(&r->s) != '\n' && !r->s.failed && !nodes.failed)

		scan_add(&nodes, parse_repeats(r, nested));
	return scan_join(&r->s, &nodes, ast_seq);
}

static int parse_alternatives(struct parser *r, bool nested)
{
	struct scan_nodes nodes = {0};
	do {
		scan_space(&r->s, true);
		scan_add(&nodes, parse_sequence(r, nested));
		scan_space(&r->s, nested);
	} while (!nodes.failed && scan_take(&r->s, "|"));
	return scan_join(&r->s, &nodes, ast_alt);
}

static void parse_rule(struct parser *r)
{
	const char *name = r->s.p + r->s.at;
	size_t n = take_name(r);
	if (!n) {
		scan_fail(&r->s, -EINVAL, "a rule's name is missing");
		return;
	}
	int rule = rule_names_get(&r->names, r->s.a, name, n);
	scan_space(&r->s, false);
	r->s.failed |= rule == AST_FAILED;
	if (!scan_take(&r->s, "::=")) {
		scan_fail(&r->s, -EINVAL, "::= is missing");
		return;
	}
	int node = parse_alternatives(r, false);
	r->s.failed |= node == AST_FAILED;
	if (r->s.failed)
		return;
	if (scan_peek(&r->s) >= 0 && scan_peek(&r->s) != '\n') {
		scan_fail(&r->s, -EINVAL,
			  scan_peek(&r->s) == ')' ? ") without (" : "the rule does not end here");
		return;
	}
	ast_rule_set(r->s.a, rule, node);
}

int gbnf_parse(struct ast *a, const char *p, size_t n)
{
	struct parser r = {.s = {.a = a, .language = "GBNF", .comments = {"#"}, .p = p, .n = n}};
	int node = AST_FAILED;
	if (utf8_valid(p, n) != n)
		return ast_fail(a, -EINVAL, "GBNF: not UTF-8");
	for (scan_space(&r.s, true); scan_peek(&r.s) >= 0 && !r.s.failed; scan_space(&r.s, true))
		parse_rule(&r);
	if (!r.s.failed) {
		int root = rule_names_find(&r.names, a, "root", 4);
		node = root < 0 ? ast_fail(a, -EINVAL, "GBNF: the rule root is missing") : ast_ref(a, root);
	}
	rule_names_fini(&r.names);
	return node;
}
