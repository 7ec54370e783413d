/* lark.c - a parser by recursive descent. */
#include "grammar/lark.h"
#include "grammar/regex.h"
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
	bool terminal; /* within the definition of a terminal: nothing is ignored */
	struct rule_names names;
	int ignored;  /* rule: texts between terminals */
	int *ignores; /* nodes of %ignore */
	size_t n_ignores, cap_ignores;
};

/* Of Lark's common.lark, by what its documentation says that each matches. */
static const struct {
	const char *name, *pattern;
} common[] = {
	{"DIGIT", "[0-9]"},
	{"HEXDIGIT", "[0-9a-fA-F]"},
	{"INT", "[0-9]+"},
	{"SIGNED_INT", "[+-]?[0-9]+"},
	{"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
	{"FLOAT", "([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"},
	{"SIGNED_FLOAT", "[+-]?(([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"},
	{"NUMBER", "([0-9]+\\.[0-9]*|\\.[0-9]+|[0-9]+)([eE][+-]?[0-9]+)?"},
	{"SIGNED_NUMBER", "[+-]?([0-9]+\\.[0-9]*|\\.[0-9]+|[0-9]+)([eE][+-]?[0-9]+)?"},
	{"LCASE_LETTER", "[a-z]"},
	{"UCASE_LETTER", "[A-Z]"},
	{"LETTER", "[A-Za-z]"},
	{"WORD", "[A-Za-z]+"},
	{"CNAME", "[A-Za-z_][A-Za-z_0-9]*"},
	{"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
	{"WS_INLINE", "[ \\t]+"},
	{"WS", "[ \\t\\f\\r\\n]+"},
	{"CR", "\\r"},
	{"LF", "\\n"},
	{"NEWLINE", "(\\r?\\n)+"},
	{"SH_COMMENT", "#[^\\n]*"},
	{"CPP_COMMENT", "//[^\\n]*"},
	{"SQL_COMMENT", "--[^\\n]*"},
};

static int parse_alternatives(struct parser *r);

static int fail(struct parser *r, int err, const char *what)
{
	size_t line = 1;
	for (size_t i = 0; i < r->at && i < r->n; i++)
		line += r->p[i] == '\n';
	r->failed = true;
	return ast_fail(r->a, err, "Lark, line %zu: %s", line, what);
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
		if (r->n - r->at >= 2 && memcmp(r->p + r->at, "//", 2) == 0)
			while (peek(r) >= 0 && peek(r) != '\n')
				r->at++;
		if (peek(r) != ' ' && peek(r) != '\t' && peek(r) != '\r' && !(lines && peek(r) == '\n'))
			return;
	}
}

static bool is_upper(int c)
{
	return c >= 'A' && c <= 'Z';
}

static bool is_name(int c)
{
	return (c >= 'a' && c <= 'z') || is_upper(c) || (c >= '0' && c <= '9') || c == '_';
}

static size_t take_name(struct parser *r)
{
	size_t from = r->at;
	while (is_name(peek(r)))
		r->at++;
	return r->at - from;
}

/* NAME and _NAME are terminals. */
static bool is_terminal(const char *name, size_t n)
{
	while (n && *name == '_')
		name++, n--;
	return n && is_upper(*name);
}

/* A terminal in a rule may be followed by what is ignored. */
static int terminal(struct parser *r, int node)
{
	return r->terminal ? node : ast_seq2(r->a, node, ast_ref(r->a, r->ignored));
}

static int hex_digit(int c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Behind the quote: the text, escapes undone.  false: an error was set. */
static bool take_string(struct parser *r, struct buf *out)
{
	static const char from[] = "nrtfv\\\"'/", to[] = "\n\r\t\f\v\\\"'/";
	for (;;) {
		int c = peek(r);
		if (c < 0 || c == '\n')
			return fail(r, -EINVAL, "a string without its end"), false;
		r->at++;
		if (c == '"')
			return true;
		if (c != '\\') {
			buf_putc(out, (char)c);
			continue;
		}
		c = peek(r);
		const char *simple = c > 0 ? strchr(from, c) : NULL;
		int digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
		uint32_t code = 0;
		char s[4];
		r->at += c >= 0; /* never behind the end: what follows an error reads on from here */
		if (simple) {
			buf_putc(out, to[simple - from]);
			continue;
		}
		for (int i = 0; i < digits; i++) {
			if (hex_digit(peek(r)) < 0)
				digits = 0;
			else
				code = code << 4 | (uint32_t)hex_digit((unsigned char)r->p[r->at++]);
		}
		if (!digits || (code >= 0xd800 && code < 0xe000))
			return fail(r, -EINVAL, "an unknown escape in a string"), false;
		buf_put(out, s, (size_t)utf8_encode(code, s));
	}
}

static int any_case(struct parser *r, const struct buf *text)
{
	for (size_t i = 0; i < text->len; i++)
		if ((unsigned char)text->p[i] >= 0x80)
			return fail(r, -EINVAL,
				    "a string with i and characters beyond ASCII is not supported");
	int *nodes = xcalloc(text->len + 1, sizeof *nodes);
	for (size_t i = 0; i < text->len; i++) {
		char c = text->p[i], other = (char)(c ^ 32);
		bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
		int one = ast_literal(r->a, &c, 1);
		nodes[i] = letter ? ast_alt2(r->a, one, ast_literal(r->a, &other, 1)) : one;
	}
	int node = ast_seq(r->a, nodes, text->len);
	free(nodes);
	return node;
}

/* Behind the second quote of the first end of a range: .."z" */
static int parse_range(struct parser *r, const struct buf *first)
{
	struct buf last = {0};
	int node = AST_FAILED, n = 0, m = 0;
	skip_space(r, false);
	if (!take(r, "\""))
		return fail(r, -EINVAL, "a range without its end");
	if (take_string(r, &last)) {
		struct char_range c = {0, 0};
		if (first->len && last.len) {
			c.first = utf8_at(first->p, &n);
			c.last = utf8_at(last.p, &m);
		}
		if ((size_t)n != first->len || (size_t)m != last.len || c.first > c.last)
			fail(r, -EINVAL, "a range that is not from one character to another");
		else
			node = ast_chars(r->a, &c, 1, false);
	}
	buf_fini(&last);
	return node;
}

static int parse_string(struct parser *r)
{
	struct buf text = {0};
	int node = AST_FAILED;
	if (take_string(r, &text)) {
		size_t at = r->at;
		skip_space(r, false);
		if (take(r, "..")) {
			node = parse_range(r, &text);
		} else {
			r->at = at;
			node = take(r, "i") ? any_case(r, &text) : ast_literal(r->a, text.p, text.len);
		}
	}
	buf_fini(&text);
	return node == AST_FAILED ? node : terminal(r, node);
}

static int parse_regex(struct parser *r)
{
	struct buf pattern = {0};
	struct regex_options o = {0};
	for (bool in_class = false; in_class || peek(r) != '/'; r->at++) {
		int c = peek(r);
		if (c < 0 || c == '\n') {
			buf_fini(&pattern);
			return fail(r, -EINVAL, "a regular expression without its end");
		}
		if (c == '[' || c == ']')
			in_class = c == '[';
		if (c == '\\' && r->at + 1 < r->n)
			buf_putc(&pattern, r->p[r->at++]);
		buf_putc(&pattern, r->p[r->at]);
	}
	r->at++;
	o.dot_newline = take(r, "s");
	int node = AST_FAILED;
	if (is_name(peek(r)))
		fail(r, -EINVAL, "flags of regular expressions other than s are not supported");
	else
		node = regex_parse(r->a, pattern.p ? pattern.p : "", pattern.len, &o);
	buf_fini(&pattern);
	return node == AST_FAILED ? node : terminal(r, node);
}

static int parse_group(struct parser *r, const char *end)
{
	if (++r->depth > DEPTH_MAX)
		return fail(r, -E2BIG, "groups are nested too deep");
	int node = parse_alternatives(r);
	r->depth--;
	skip_space(r, true);
	if (node == AST_FAILED)
		return node;
	return take(r, end) ? node : fail(r, -EINVAL, "a group without its end");
}

static int parse_atom(struct parser *r)
{
	int node;
	if (take(r, "\""))
		return parse_string(r);
	if (take(r, "/"))
		return parse_regex(r);
	if (take(r, "("))
		return parse_group(r, ")");
	if (take(r, "[")) {
		node = parse_group(r, "]");
		return node == AST_FAILED ? node : ast_option(r->a, node);
	}
	const char *name = r->p + r->at;
	size_t n = take_name(r);
	if (!n)
		return fail(r, -EINVAL, "a string, regular expression, group or name is missing");
	if (peek(r) == '{')
		return fail(r, -EINVAL, "templates are not supported");
	if (r->terminal && !is_terminal(name, n))
		return fail(r, -EINVAL, "a terminal names a rule");
	int rule = rule_names_get(&r->names, r->a, name, n);
	if (rule == AST_FAILED)
		return AST_FAILED;
	return is_terminal(name, n) ? terminal(r, ast_ref(r->a, rule)) : ast_ref(r->a, rule);
}

static bool number(struct parser *r, int64_t *out)
{
	size_t from = r->at;
	skip_space(r, false);
	*out = 0;
	size_t digits = r->at;
	for (; peek(r) >= '0' && peek(r) <= '9'; r->at++)
		*out = *out * 10 + peek(r) - '0' > COUNT_MAX ? COUNT_MAX : *out * 10 + peek(r) - '0';
	if (r->at > digits)
		return true;
	r->at = from;
	return false;
}

static int parse_item(struct parser *r)
{
	int node = parse_atom(r);
	int64_t min = 0, max = -1;
	if (node == AST_FAILED)
		return node;
	if (take(r, "?")) {
		max = 1;
	} else if (take(r, "+")) {
		min = 1;
	} else if (!take(r, "*")) {
		size_t at = r->at;
		skip_space(r, false);
		if (!take(r, "~")) {
			r->at = at;
			return node;
		}
		if (!number(r, &min))
			return fail(r, -EINVAL, "~ without a number");
		max = min;
		if (take(r, "..") && !number(r, &max))
			return fail(r, -EINVAL, ".. without a number");
	}
	return ast_repeat(r->a, node, min, max);
}

/* Whether what follows ends a sequence: at the end of a line, a | in the next one goes on. */
static bool ends(struct parser *r)
{
	int c = peek(r);
	if (c == '\n') {
		size_t at = r->at;
		skip_space(r, true);
		c = peek(r);
		if (r->depth == 0 && c != '|')
			r->at = at;
		if (r->depth == 0)
			return true;
	}
	return c < 0 || c == '|' || c == ')' || c == ']';
}

static int parse_sequence(struct parser *r)
{
	int *nodes = NULL;
	size_t n = 0, cap = 0;
	for (skip_space(r, false); !ends(r); skip_space(r, false)) {
		if (take(r, "->")) {
			skip_space(r, false);
			take_name(r);
			continue;
		}
		int node = parse_item(r);
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

static int parse_alternatives(struct parser *r)
{
	int *nodes = NULL;
	size_t n = 0, cap = 0;
	do {
		int node = parse_sequence(r);
		if (node == AST_FAILED) {
			free(nodes);
			return AST_FAILED;
		}
		array_grow(nodes, cap, n + 1);
		nodes[n++] = node;
	} while (take(r, "|"));
	int node = ast_alt(r->a, nodes, n);
	free(nodes);
	return node;
}

/* Behind %import. */
static void parse_import(struct parser *r)
{
	skip_space(r, false);
	bool known = take(r, "common.");
	const char *name = r->p + r->at;
	size_t n = take_name(r), i = 0, n_common = sizeof common / sizeof *common;
	while (i < n_common && (strlen(common[i].name) != n || memcmp(common[i].name, name, n) != 0))
		i++;
	if (!known || i == n_common) {
		fail(r, -EINVAL, "this import is not supported");
		return;
	}
	skip_space(r, false);
	if (take(r, "->")) {
		skip_space(r, false);
		name = r->p + r->at;
		n = take_name(r);
	}
	int rule = rule_names_get(&r->names, r->a, name, n);
	int node = regex_parse(r->a, common[i].pattern, strlen(common[i].pattern), NULL);
	r->failed |= rule == AST_FAILED || node == AST_FAILED;
	if (!r->failed)
		ast_rule_set(r->a, rule, node);
}

static void parse_directive(struct parser *r)
{
	if (take(r, "import")) {
		parse_import(r);
	} else if (take(r, "ignore")) {
		r->terminal = true;
		int node = parse_alternatives(r);
		array_grow(r->ignores, r->cap_ignores, r->n_ignores + 1);
		r->ignores[r->n_ignores++] = node;
		r->failed |= node == AST_FAILED;
	} else {
		fail(r, -EINVAL, "directives other than %import and %ignore are not supported");
	}
}

static void parse_rule(struct parser *r)
{
	while (peek(r) == '?' || peek(r) == '!')
		r->at++;
	const char *name = r->p + r->at;
	size_t n = take_name(r);
	if (!n) {
		fail(r, -EINVAL, "a rule's name is missing");
		return;
	}
	if (peek(r) == '.' || peek(r) == '{') {
		fail(r, -EINVAL,
		     peek(r) == '.' ? "priorities are not supported" : "templates are not supported");
		return;
	}
	int rule = rule_names_get(&r->names, r->a, name, n);
	r->terminal = is_terminal(name, n);
	skip_space(r, false);
	if (!take(r, ":")) {
		fail(r, -EINVAL, ": is missing");
		return;
	}
	int node = parse_alternatives(r);
	r->failed |= node == AST_FAILED || rule == AST_FAILED;
	if (!r->failed)
		ast_rule_set(r->a, rule, node);
}

int lark_parse(struct ast *a, const char *p, size_t n)
{
	struct parser r = {.a = a, .p = p, .n = n};
	int node = AST_FAILED;
	if (utf8_valid(p, n) != n)
		return ast_fail(a, -EINVAL, "Lark: not UTF-8");
	r.ignored = ast_rule(a, "(ignored)");
	for (skip_space(&r, true); peek(&r) >= 0 && !r.failed; skip_space(&r, true)) {
		if (take(&r, "%"))
			parse_directive(&r);
		else
			parse_rule(&r);
		skip_space(&r, false);
		if (!r.failed && peek(&r) >= 0 && peek(&r) != '\n')
			fail(&r, -EINVAL, "the rule does not end here");
	}
	if (!r.failed) {
		int start = rule_names_find(&r.names, a, "start", 5);
		if (start < 0) {
			fail(&r, -EINVAL, "the rule start is missing");
		} else {
			ast_rule_set(a, r.ignored, ast_repeat(a, ast_alt(a, r.ignores, r.n_ignores), 0, -1));
			node = ast_seq2(a, ast_ref(a, r.ignored), ast_ref(a, start));
		}
	}
	rule_names_fini(&r.names);
	free(r.ignores);
	return node;
}
