/* lark.c - a recursive descent parser. */
#include "grammar/lark.h"
#include "grammar/char_set.h"
#include "grammar/regex.h"
#include "grammar/rule_names.h"
#include "grammar/scan.h"
#include "grammar/schema/schema.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const size_t json_tree_max = (size_t)256 << 20;

struct parser {
	struct scan s;
	int depth;
	bool terminal; /* within the definition of a terminal: nothing is ignored */
	struct rule_names names;
	int ignored;  /* the rule for ignored texts between terminals */
	int *ignores; /* the nodes of %ignore */
	size_t n_ignores, cap_ignores;
};

/* Terminals of Lark's common.lark, written from the texts its documentation describes. */
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
	size_t from = r->s.at;
	while (is_name(scan_peek(&r->s)))
		r->s.at++;
	return r->s.at - from;
}

/* Return true for the name of a terminal: NAME or _NAME. */
static bool is_terminal(const char *name, size_t n)
{
	while (n && *name == '_')
		name++, n--;
	return n && is_upper(*name);
}

/* In a rule, let ignored text follow a terminal. */
static int terminal(struct parser *r, int node)
{
	return r->terminal ? node : ast_seq2(r->s.a, node, ast_ref(r->s.a, r->ignored));
}

/* Read a string after its opening quote and decode escapes.  Return false if an error was set. */
static bool take_string(struct parser *r, struct buf *out)
{
	static const char from[] = "nrtfv\\\"'/", to[] = "\n\r\t\f\v\\\"'/";
	for (;;) {
		int c = scan_peek(&r->s);
		if (c < 0 || c == '\n')
			return scan_fail(&r->s, -EINVAL, "a string without its end"), false;
		r->s.at++;
		if (c == '"')
			return true;
		if (c != '\\') {
			buf_putc(out, (char)c);
			continue;
		}
		c = scan_peek(&r->s);
		const char *simple = c > 0 ? strchr(from, c) : NULL;
		int digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
		uint32_t code = 0;
		char s[4];
		r->s.at += c >= 0; /* stay within the text: parsing continues here after an error */
		if (simple) {
			buf_putc(out, to[simple - from]);
			continue;
		}
		if (!digits || !scan_hex(&r->s, digits, &code) || (code >= 0xd800 && code < 0xe000))
			return scan_fail(&r->s, -EINVAL, "an unknown escape in a string"), false;
		buf_put(out, s, (size_t)utf8_encode(code, s));
	}
}

/* Match a text in any case. */
static int any_case(struct parser *r, const struct buf *text)
{
	int *nodes = xcalloc(text->len + 1, sizeof *nodes), len;
	size_t n = 0;
	for (size_t i = 0; i < text->len; i += (size_t)len) {
		struct char_set set = {0};
		const uint32_t c = utf8_at(text->p + i, &len);
		char_set_add(&set, c, c);
		char_set_add_cases(&set);
		nodes[n++] = ast_chars(r->s.a, set.r, set.n, false);
		char_set_fini(&set);
	}
	int node = ast_seq(r->s.a, nodes, n);
	free(nodes);
	return node;
}

/* Parse the rest of a range, .."z", after its first string. */
static int parse_range(struct parser *r, const struct buf *first)
{
	struct buf last = {0};
	int node = AST_FAILED, n = 0, m = 0;
	scan_space(&r->s, false);
	if (!scan_take(&r->s, "\""))
		return scan_fail(&r->s, -EINVAL, "a range without its end");
	if (take_string(r, &last)) {
		struct char_range c = {0, 0};
		if (first->len && last.len) {
			c.first = utf8_at(first->p, &n);
			c.last = utf8_at(last.p, &m);
		}
		if ((size_t)n != first->len || (size_t)m != last.len || c.first > c.last)
			scan_fail(&r->s, -EINVAL, "a range that is not from one character to another");
		else
			node = ast_chars(r->s.a, &c, 1, false);
	}
	buf_fini(&last);
	return node;
}

static int parse_string(struct parser *r)
{
	struct buf text = {0};
	int node = AST_FAILED;
	if (take_string(r, &text)) {
		size_t at = r->s.at;
		scan_space(&r->s, false);
		if (scan_take(&r->s, "..")) {
			node = parse_range(r, &text);
		} else {
			r->s.at = at;
			node = scan_take(&r->s, "i") ? any_case(r, &text)
						     : ast_literal(r->s.a, text.p, text.len);
		}
	}
	buf_fini(&text);
	return node == AST_FAILED ? node : terminal(r, node);
}

static int parse_regex(struct parser *r)
{
	struct buf pattern = {0};
	struct regex_options o = {0};
	for (bool in_class = false; in_class || scan_peek(&r->s) != '/'; r->s.at++) {
		int c = scan_peek(&r->s);
		if (c < 0 || c == '\n') {
			buf_fini(&pattern);
			return scan_fail(&r->s, -EINVAL, "a regular expression without its end");
		}
		if (c == '[' || c == ']')
			in_class = c == '[';
		if (c == '\\' && r->s.at + 1 < r->s.n)
			buf_putc(&pattern, r->s.p[r->s.at++]);
		buf_putc(&pattern, r->s.p[r->s.at]);
	}
	r->s.at++;
	int node = AST_FAILED;
	for (int c = scan_peek(&r->s); c == 'i' || c == 's' || c == 'u'; c = scan_peek(&r->s)) {
		o.any_case |= c == 'i';
		o.dot_newline |= c == 's';
		r->s.at++;
	}
	if (is_name(scan_peek(&r->s)))
		scan_fail(&r->s, -EINVAL,
			  "flags of regular expressions other than i, s and u are not supported");
	else
		node = regex_parse(r->s.a, pattern.p ? pattern.p : "", pattern.len, &o);
	buf_fini(&pattern);
	return node == AST_FAILED ? node : terminal(r, node);
}

/* ---- llguidance's dialect ---- */

/* Read a JSON object.  Return NULL if an error was set. */
static json_t *take_json(struct parser *r, const char *what)
{
	json_t *v = NULL;
	struct why why;
	int depth = 0;
	bool quoted = false;
	scan_space(&r->s, false);
	const size_t from = r->s.at;
	size_t end = from;
	for (; end < r->s.n && (end == from || depth); end++) {
		const char c = r->s.p[end];
		if (c == '\\' && quoted)
			end++;
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted)
			depth += (c == '{' || c == '[') - (c == '}' || c == ']');
		if (end == from && c != '{')
			break;
	}
	if (end > from && end <= r->s.n && !depth &&
	    json_parse_within(r->s.p + from, end - from, json_tree_max, &v, NULL, &why))
		v = NULL;
	if (!json_is_object(v)) {
		json_decref(v);
		scan_fail(&r->s, -EINVAL, what);
		return NULL;
	}
	r->s.at = end;
	return v;
}

/* %llguidance {...}: options of llguidance's parser; none of the accepted ones changes the language. */
static void parse_header(struct parser *r)
{
	static const char *const known[] = {"no_forcing", "allow_initial_skip", "allow_invalid_utf8",
					    "verbose"};
	json_t *o = take_json(r, "%llguidance without a JSON object"), *v;
	const char *key;
	json_object_foreach(o, key, v)
	{
		bool fine = false;
		for (size_t i = 0; i < sizeof known / sizeof *known; i++)
			fine |= !strcmp(key, known[i]);
		fine &= strcmp(key, "allow_invalid_utf8") != 0 || !json_is_true(v);
		if (!fine)
			scan_fail(&r->s, -EINVAL, "this option of %llguidance is not supported");
	}
	json_decref(o);
}

/* Accept the attribute capture, which does not change the text; refuse others, which would. */
static bool check_attribute(struct parser *r, const char *name, size_t n)
{
	static const char *const refused[][2] = {
		{"max_tokens", "the attribute max_tokens is not supported: use the request's max_tokens"},
		{"temperature", "the attribute temperature is not supported: use the request's temperature"},
		{"stop",
		 "the attribute stop is not supported: use the request's stop, or a pattern without it"},
		{"suffix", "the attribute suffix is not supported: write it behind the rule"},
	};
	const char *why = "attributes of rules other than capture are not supported";
	if (n == 7 && memcmp(name, "capture", n) == 0)
		return true;
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (strlen(refused[i][0]) == n && memcmp(refused[i][0], name, n) == 0)
			why = refused[i][1];
	scan_fail(&r->s, -EINVAL, why);
	return false;
}

/* Parse a rule's attributes after [. */
static void parse_attributes(struct parser *r)
{
	do {
		scan_space(&r->s, false);
		const char *name = r->s.p + r->s.at;
		const size_t n = take_name(r);
		if (!check_attribute(r, name, n))
			return;
		scan_space(&r->s, false);
		if (scan_take(&r->s, "=")) {
			struct buf text = {0};
			scan_space(&r->s, false);
			if (!scan_take(&r->s, "\""))
				scan_fail(&r->s, -EINVAL, "the name of a capture is missing");
			else
				take_string(r, &text);
			buf_fini(&text);
		}
		scan_space(&r->s, false);
	} while (!r->s.failed && scan_take(&r->s, ","));
	if (!r->s.failed && !scan_take(&r->s, "]"))
		scan_fail(&r->s, -EINVAL, "attributes without their end");
}

/* Parse a schema after %json. */
static int parse_schema(struct parser *r)
{
	const struct schema_options o = {.bounded = true};
	struct why why;
	int node = AST_FAILED;
	json_t *schema = take_json(r, "%json without a JSON schema");
	if (schema && schema_node(r->s.a, schema, &o, &node, &why)) {
		ast_fail(r->s.a, -EINVAL, "Lark: %%json: %s", why.text);
		r->s.failed = true;
		node = AST_FAILED;
	}
	json_decref(schema);
	return node == AST_FAILED ? node : terminal(r, node);
}

/* ---- rules ---- */

static int parse_group(struct parser *r, const char *end)
{
	if (++r->depth > SCAN_DEPTH_MAX)
		return scan_fail(&r->s, -E2BIG, "groups are nested too deep");
	int node = parse_alternatives(r);
	r->depth--;
	scan_space(&r->s, true);
	if (node == AST_FAILED)
		return node;
	return scan_take(&r->s, end) ? node : scan_fail(&r->s, -EINVAL, "a group without its end");
}

static int parse_atom(struct parser *r)
{
	int node;
	if (scan_take(&r->s, "\""))
		return parse_string(r);
	if (scan_take(&r->s, "/"))
		return parse_regex(r);
	if (scan_take(&r->s, "("))
		return parse_group(r, ")");
	if (scan_take(&r->s, "[")) {
		node = parse_group(r, "]");
		return node == AST_FAILED ? node : ast_option(r->s.a, node);
	}
	if (scan_take(&r->s, "%json"))
		return parse_schema(r);
	const char *name = r->s.p + r->s.at;
	size_t n = take_name(r);
	if (!n)
		return scan_fail(&r->s, -EINVAL, "a string, regular expression, group or name is missing");
	if (scan_peek(&r->s) == '{')
		return scan_fail(&r->s, -EINVAL, "templates are not supported");
	if (r->terminal && !is_terminal(name, n))
		return scan_fail(&r->s, -EINVAL, "a terminal names a rule");
	int rule = rule_names_get(&r->names, r->s.a, name, n);
	if (rule == AST_FAILED)
		return AST_FAILED;
	return is_terminal(name, n) ? terminal(r, ast_ref(r->s.a, rule)) : ast_ref(r->s.a, rule);
}

/* Read blanks and a count.  Return false and read nothing if there is no count. */
static bool spaced_count(struct parser *r, int64_t *out)
{
	const size_t from = r->s.at;
	scan_space(&r->s, false);
	if (scan_count(&r->s, out))
		return true;
	r->s.at = from;
	return false;
}

static int parse_item(struct parser *r)
{
	int node = parse_atom(r);
	int64_t min = 0, max = -1;
	if (node == AST_FAILED)
		return node;
	if (scan_take(&r->s, "?")) {
		max = 1;
	} else if (scan_take(&r->s, "+")) {
		min = 1;
	} else if (!scan_take(&r->s, "*")) {
		size_t at = r->s.at;
		scan_space(&r->s, false);
		if (!scan_take(&r->s, "~")) {
			r->s.at = at;
			return node;
		}
		if (!spaced_count(r, &min))
			return scan_fail(&r->s, -EINVAL, "~ without a number");
		max = min;
		if (scan_take(&r->s, "..") && !spaced_count(r, &max))
			return scan_fail(&r->s, -EINVAL, ".. without a number");
	}
	return ast_repeat(r->s.a, node, min, max);
}

/* Return true if the sequence ends here.  At a line's end, it also moves to a | that begins the next line. */
static bool ends(struct parser *r)
{
	int c = scan_peek(&r->s);
	if (c == '\n') {
		size_t at = r->s.at;
		scan_space(&r->s, true);
		c = scan_peek(&r->s);
		if (r->depth == 0 && c != '|')
			r->s.at = at;
		if (r->depth == 0)
			return true;
	}
	return c < 0 || c == '|' || c == ')' || c == ']';
}

static int parse_sequence(struct parser *r)
{
	struct scan_nodes nodes = {0};
	for (scan_space(&r->s, false); !nodes.failed && !ends(r); scan_space(&r->s, false)) {
		if (scan_take(&r->s, "->")) {
			scan_space(&r->s, false);
			take_name(r);
			continue;
		}
		scan_add(&nodes, parse_item(r));
	}
	return scan_join(&r->s, &nodes, ast_seq);
}

static int parse_alternatives(struct parser *r)
{
	struct scan_nodes nodes = {0};
	do {
		scan_add(&nodes, parse_sequence(r));
	} while (!nodes.failed && scan_take(&r->s, "|"));
	return scan_join(&r->s, &nodes, ast_alt);
}

/* Import a terminal of common, under its own name or the name after an arrow. */
static void import_terminal(struct parser *r, bool renamed)
{
	const char *name = r->s.p + r->s.at;
	size_t n = take_name(r), i = 0, n_common = sizeof common / sizeof *common;
	while (i < n_common && (strlen(common[i].name) != n || memcmp(common[i].name, name, n) != 0))
		i++;
	if (i == n_common) {
		scan_fail(&r->s, -EINVAL,
			  n ? "this import is not supported" : "the name of an import is missing");
		return;
	}
	scan_space(&r->s, false);
	if (renamed && scan_take(&r->s, "->")) {
		scan_space(&r->s, false);
		name = r->s.p + r->s.at;
		n = take_name(r);
	}
	int rule = rule_names_get(&r->names, r->s.a, name, n);
	int node = regex_parse(r->s.a, common[i].pattern, strlen(common[i].pattern), NULL);
	r->s.failed |= rule == AST_FAILED || node == AST_FAILED;
	if (!r->s.failed)
		ast_rule_set(r->s.a, rule, node);
}

/* Parse the rest of %import: common.A, common.A -> B, or common (A, B). */
static void parse_import(struct parser *r)
{
	scan_space(&r->s, false);
	if (!scan_take(&r->s, "common")) {
		scan_fail(&r->s, -EINVAL, "imports of anything but common are not supported");
		return;
	}
	if (scan_take(&r->s, ".")) {
		import_terminal(r, true);
		return;
	}
	scan_space(&r->s, false);
	if (!scan_take(&r->s, "(")) {
		scan_fail(&r->s, -EINVAL, "this import is not supported");
		return;
	}
	do {
		scan_space(&r->s, true);
		import_terminal(r, false);
		scan_space(&r->s, true);
	} while (!r->s.failed && scan_take(&r->s, ","));
	if (!r->s.failed && !scan_take(&r->s, ")"))
		scan_fail(&r->s, -EINVAL, "a list of imports without its end");
}

static void parse_directive(struct parser *r)
{
	if (scan_take(&r->s, "llguidance")) {
		parse_header(r);
	} else if (scan_take(&r->s, "import")) {
		parse_import(r);
	} else if (scan_take(&r->s, "ignore")) {
		r->terminal = true;
		int node = parse_alternatives(r);
		array_grow(r->ignores, r->cap_ignores, r->n_ignores + 1);
		r->ignores[r->n_ignores++] = node;
		r->s.failed |= node == AST_FAILED;
	} else {
		scan_fail(&r->s, -EINVAL, "directives other than %import and %ignore are not supported");
	}
}

static void parse_rule(struct parser *r)
{
	while (scan_peek(&r->s) == '?' || scan_peek(&r->s) == '!')
		r->s.at++;
	const char *name = r->s.p + r->s.at;
	size_t n = take_name(r);
	if (!n) {
		scan_fail(&r->s, -EINVAL, "a rule's name is missing");
		return;
	}
	if (scan_peek(&r->s) == '.' || scan_peek(&r->s) == '{') {
		scan_fail(&r->s, -EINVAL,
			  scan_peek(&r->s) == '.' ? "priorities are not supported"
						  : "templates are not supported");
		return;
	}
	if (scan_take(&r->s, "["))
		parse_attributes(r);
	if (r->s.failed)
		return;
	int rule = rule_names_get(&r->names, r->s.a, name, n);
	r->terminal = is_terminal(name, n);
	scan_space(&r->s, false);
	if (!scan_take(&r->s, ":")) {
		scan_fail(&r->s, -EINVAL, ": is missing");
		return;
	}
	int node = parse_alternatives(r);
	r->s.failed |= node == AST_FAILED || rule == AST_FAILED;
	if (!r->s.failed)
		ast_rule_set(r->s.a, rule, node);
}

int lark_parse(struct ast *a, const char *p, size_t n)
{
	struct parser r = {.s = {.a = a, .language = "Lark", .comments = {"//", "#"}, .p = p, .n = n}};
	int node = AST_FAILED;
	if (utf8_valid(p, n) != n)
		return ast_fail(a, -EINVAL, "Lark: not UTF-8");
	r.ignored = ast_rule(a, "(ignored)");
	for (scan_space(&r.s, true); scan_peek(&r.s) >= 0 && !r.s.failed; scan_space(&r.s, true)) {
		if (scan_take(&r.s, "%"))
			parse_directive(&r);
		else
			parse_rule(&r);
		scan_space(&r.s, false);
		if (!r.s.failed && scan_peek(&r.s) >= 0 && scan_peek(&r.s) != '\n')
			scan_fail(&r.s, -EINVAL, "the rule does not end here");
	}
	if (!r.s.failed) {
		int start = rule_names_find(&r.names, a, "start", 5);
		if (start < 0) {
			scan_fail(&r.s, -EINVAL, "the rule start is missing");
		} else {
			ast_rule_set(a, r.ignored, ast_repeat(a, ast_alt(a, r.ignores, r.n_ignores), 0, -1));
			node = ast_seq2(a, ast_ref(a, r.ignored), ast_ref(a, start));
		}
	}
	rule_names_fini(&r.names);
	free(r.ignores);
	return node;
}
