/* regex.c - a recursive descent parser to a small tree, which is then converted to nodes. Anchors remove the
 * free text that a search adds around a pattern. */
#include "grammar/regex.h"
#include "grammar/char_set.h"
#include "base/alloc.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 250, COUNT_MAX = 1000000000, TREES_MAX = 1 << 21 };

/* Units of work (work.h): to test the categories of all characters, and to test those with case. */
enum { PROPERTY_WORK = 200, CASES_WORK = 3000 };

enum kind { LEAF, SEQ, ALT, REPEAT, BEGIN, END };

struct tree {
	enum kind kind;
	bool anchors; /* the subtree has an anchor */
	int leaf;     /* a node */
	int64_t min, max;
	int first, next; /* first child; next sibling; -1: none */
};

struct parser {
	struct ast *a;
	const struct regex_options *o;
	const char *p;
	size_t n, at;
	int depth;
	bool any_case, dot_newline; /* flags of the current group */
	struct tree *trees;
	size_t n_trees, cap_trees;
	bool failed;
};

static int parse_alt(struct parser *r);

static int fail(struct parser *r, int err, const char *what)
{
	r->failed = true;
	return ast_fail(r->a, err, "regex, byte %zu: %s", r->at, what);
}

static int tree_new(struct parser *r, enum kind kind)
{
	array_grow(r->trees, r->cap_trees, r->n_trees + 1);
	r->trees[r->n_trees] = (struct tree){.kind = kind,
					     .anchors = kind == BEGIN || kind == END,
					     .leaf = AST_FAILED,
					     .first = -1,
					     .next = -1};
	return (int)r->n_trees++;
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

static int leaf(struct parser *r, const struct char_range *c, size_t n)
{
	int t = tree_new(r, LEAF);
	r->trees[t].leaf = r->o->chars ? r->o->chars(r->o->ctx, r->a, c, n) : ast_chars(r->a, c, n, false);
	return t;
}

/* Charge units. Return false if the account is used up, and stop the parser: an error in the tree alone
 * would not. */
static bool charge(struct parser *r, uint64_t units)
{
	r->failed |= !ast_charge(r->a, units);
	return !r->failed;
}

static int leaf_set(struct parser *r, struct char_set *s, bool negated)
{
	/* only this letter's cases are looked up */
	const bool letter = s->n == 1 && s->r[0].first == s->r[0].last;
	int t = -1;
	if (charge(r, s->n + (r->any_case && !letter ? CASES_WORK : 0))) {
		if (r->any_case)
			char_set_add_cases(s);
		if (negated)
			char_set_negate(s);
		else
			char_set_sort(s);
		t = leaf(r, s->r, s->n);
	}
	char_set_fini(s);
	return t;
}

static int leaf_char(struct parser *r, uint32_t c)
{
	char s[4];
	if (r->any_case) {
		struct char_set one = {0};
		char_set_add(&one, c, c);
		return leaf_set(r, &one, false);
	}
	if (r->o->chars || (c >= 0xd800 && c <= 0xdfff))
		return leaf(r, &(struct char_range){c, c}, 1);
	int t = tree_new(r, LEAF);
	r->trees[t].leaf = ast_literal(r->a, s, (size_t)utf8_encode(c, s));
	return t;
}

static bool hex(struct parser *r, int digits, uint32_t *out)
{
	uint32_t v = 0;
	for (int i = 0; i < digits; i++, r->at++) {
		int c = peek(r);
		int d = c >= '0' && c <= '9'                 ? c - '0'
			: (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
							     : -1;
		if (d < 0 || c < 0)
			return false;
		v = v << 4 | (uint32_t)d;
	}
	*out = v;
	return true;
}

/* Read the rest of an escape after \u: HHHH, a surrogate pair, or {H...}. */
static bool unicode(struct parser *r, uint32_t *out)
{
	uint32_t low;
	if (take(r, "{")) {
		size_t end = r->at;
		while (end < r->n && r->p[end] != '}' && end - r->at < 7)
			end++;
		return end > r->at && hex(r, (int)(end - r->at), out) && take(r, "}") &&
		       *out <= CHAR_MAX_CODE;
	}
	if (!hex(r, 4, out))
		return false;
	size_t at = r->at;
	if (*out >= 0xd800 && *out < 0xdc00 && take(r, "\\u") && hex(r, 4, &low) && low >= 0xdc00 &&
	    low < 0xe000)
		*out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
	else
		r->at = at;
	return true;
}

/* Read the rest of a property, {...}, after \p or \P. */
static bool property(struct parser *r, struct char_set *s, bool negated)
{
	struct char_set found = {0};
	if (!take(r, "{")) {
		fail(r, -EINVAL, "\\p without {");
		return false;
	}
	if (!take(r, "General_Category="))
		take(r, "gc=");
	const char *end = memchr(r->p + r->at, '}', r->n - r->at);
	size_t n = end ? (size_t)(end - (r->p + r->at)) : 0;
	if (!end || !char_set_add_category(&found, r->p + r->at, n)) {
		r->failed = true;
		ast_fail(r->a, -EINVAL, "regex, byte %zu: the property \\p{%.*s} is not supported", r->at,
			 (int)(n < 40 ? n : 40), r->p + r->at);
		return false;
	}
	if (negated)
		char_set_negate(&found);
	const bool good = charge(r, PROPERTY_WORK + found.n);
	for (size_t i = 0; good && i < found.n; i++)
		char_set_add(s, found.r[i].first, found.r[i].last);
	char_set_fini(&found);
	r->at += n + 1;
	return good;
}

enum escape { ESCAPE_FAILED, ESCAPE_CHAR, ESCAPE_SET };

/* Read the rest of an escape after \: a character in *out, or a set added to s. */
static enum escape escape(struct parser *r, bool in_class, uint32_t *out, struct char_set *s)
{
	static const char from[] = "tnrfv", to[] = "\t\n\r\f\v";
	int c = peek(r), len;
	if (c < 0)
		return fail(r, -EINVAL, "\\ at the end"), ESCAPE_FAILED;
	const char *simple = c < 0x80 ? strchr(from, c) : NULL;
	r->at++;
	if (simple && c) {
		*out = (uint32_t)to[simple - from];
		return ESCAPE_CHAR;
	}
	if (char_set_add_class(s, (char)c))
		return ESCAPE_SET;
	if (c == 'p' || c == 'P')
		return property(r, s, c == 'P') ? ESCAPE_SET : ESCAPE_FAILED;
	if (c == 'x' || c == 'u') {
		if (c == 'x' ? !hex(r, 2, out) : !unicode(r, out))
			return fail(r, -EINVAL, "a code point that is not one"), ESCAPE_FAILED;
		return ESCAPE_CHAR;
	}
	if (c == 'c' && ((peek(r) | 32) >= 'a' && (peek(r) | 32) <= 'z')) {
		*out = (uint32_t)r->p[r->at++] & 31;
		return ESCAPE_CHAR;
	}
	if (c == '0' && !(peek(r) >= '0' && peek(r) <= '9')) {
		*out = 0;
		return ESCAPE_CHAR;
	}
	if (in_class && c == 'b') {
		*out = '\b';
		return ESCAPE_CHAR;
	}
	r->at--;
	if (c == 'b' || c == 'B')
		return fail(r, -EINVAL, "word boundaries (\\b, \\B) are not supported"), ESCAPE_FAILED;
	if ((c >= '0' && c <= '9') || c == 'k')
		return fail(r, -EINVAL, "references back are not supported"), ESCAPE_FAILED;
	if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
		return fail(r, -EINVAL, "an unknown escape"), ESCAPE_FAILED;
	*out = utf8_at(r->p + r->at, &len);
	r->at += (size_t)len;
	return ESCAPE_CHAR;
}

/* Read one element of a class: ESCAPE_CHAR with *out, or a set added to s. */
static enum escape class_element(struct parser *r, uint32_t *out, struct char_set *s)
{
	int len;
	if (peek(r) < 0)
		return fail(r, -EINVAL, "a class [...] without its end"), ESCAPE_FAILED;
	if (take(r, "\\"))
		return escape(r, true, out, s);
	*out = utf8_at(r->p + r->at, &len);
	r->at += (size_t)len;
	return ESCAPE_CHAR;
}

static int parse_class(struct parser *r)
{
	struct char_set s = {0};
	bool negated = take(r, "^");
	while (!take(r, "]")) {
		uint32_t first = 0, last;
		enum escape e = class_element(r, &first, &s);
		if (e == ESCAPE_FAILED)
			goto fail;
		last = first;
		/* A - before ] or next to a set is a literal -. */
		if (peek(r) == '-' && r->at + 1 < r->n && r->p[r->at + 1] != ']') {
			struct char_set right = {0};
			size_t at = r->at++;
			enum escape f = class_element(r, &last, &right);
			char_set_fini(&right);
			if (f == ESCAPE_FAILED)
				goto fail;
			if (e == ESCAPE_SET || f == ESCAPE_SET) {
				char_set_add(&s, '-', '-');
				r->at = at + 1;
				last = first;
			} else if (first > last) {
				fail(r, -EINVAL, "a range that ends before it begins");
				goto fail;
			}
		}
		if (e == ESCAPE_CHAR)
			char_set_add(&s, first, last);
	}
	return leaf_set(r, &s, negated);
fail:
	char_set_fini(&s);
	return -1;
}

/* Read flags after (?: on, then off after -, up to : or ).  Return false if an error was set. */
static bool take_flags(struct parser *r)
{
	bool on = true;
	for (; peek(r) >= 0 && peek(r) != ':' && peek(r) != ')'; r->at++) {
		const int c = peek(r);
		if (c == '-' && on)
			on = false;
		else if (c == 'i')
			r->any_case = on;
		else if (c == 's')
			r->dot_newline = on;
		else if (c != 'u')
			return fail(r, -EINVAL, "flags (?...) other than i, s and u are not supported"),
			       false;
	}
	return true;
}

/* Parse the inside of a group after its opening. */
static int parse_inside(struct parser *r)
{
	if (++r->depth > DEPTH_MAX)
		return fail(r, -E2BIG, "groups are nested too deep");
	int t = parse_alt(r);
	r->depth--;
	if (t >= 0 && !take(r, ")"))
		return fail(r, -EINVAL, "( without )");
	return t;
}

static int parse_group(struct parser *r)
{
	const bool any_case = r->any_case, dot_newline = r->dot_newline, first = r->at == 1;
	static const struct {
		const char *begin, *what;
	} refused[] = {
		{"?=", "lookahead (?= is not supported"},      {"?!", "lookahead (?! is not supported"},
		{"?<=", "lookbehind (?<= is not supported"},   {"?<!", "lookbehind (?<! is not supported"},
		{"?>", "atomic groups (?> are not supported"},
	};
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (take(r, refused[i].begin))
			return fail(r, -EINVAL, refused[i].what);
	if (take(r, "?<") || take(r, "?P<")) {
		while (peek(r) >= 0 && peek(r) != '>')
			r->at++;
		if (!take(r, ">"))
			return fail(r, -EINVAL, "a group's name without >");
	} else if (take(r, "?")) {
		if (!take_flags(r))
			return -1;
		if (first && take(r, ")")) /* applies to the whole pattern */
			return tree_new(r, SEQ);
		if (!take(r, ":"))
			return fail(r, -EINVAL, "flags (?i) stand at the beginning only: use (?i:...)");
	}
	int t = parse_inside(r);
	r->any_case = any_case;
	r->dot_newline = dot_newline;
	return t;
}

static int parse_dot(struct parser *r)
{
	struct char_set s = {0};
	if (!r->dot_newline) {
		char_set_add(&s, '\n', '\n');
		char_set_add(&s, '\r', '\r');
		char_set_add(&s, 0x2028, 0x2029);
	}
	return leaf_set(r, &s, true);
}

static int parse_atom(struct parser *r)
{
	uint32_t c;
	int len;
	if (take(r, "("))
		return parse_group(r);
	if (take(r, "["))
		return parse_class(r);
	if (take(r, "."))
		return parse_dot(r);
	if (take(r, "^"))
		return tree_new(r, BEGIN);
	if (take(r, "$"))
		return tree_new(r, END);
	if (peek(r) == '*' || peek(r) == '+' || peek(r) == '?')
		return fail(r, -EINVAL, "nothing to repeat");
	if (take(r, "\\")) {
		struct char_set s = {0};
		enum escape e = escape(r, false, &c, &s);
		if (e == ESCAPE_SET)
			return leaf_set(r, &s, false);
		char_set_fini(&s);
		return e == ESCAPE_CHAR ? leaf_char(r, c) : -1;
	}
	c = utf8_at(r->p + r->at, &len);
	r->at += (size_t)len;
	return leaf_char(r, c);
}

static bool number(struct parser *r, int64_t *out)
{
	size_t from = r->at;
	*out = 0;
	for (; peek(r) >= '0' && peek(r) <= '9'; r->at++)
		*out = *out * 10 + peek(r) - '0' > COUNT_MAX ? COUNT_MAX : *out * 10 + peek(r) - '0';
	return r->at > from;
}

/* Read {n}, {n,} or {n,m}; anything else in braces is text. */
static bool braces(struct parser *r, int64_t *min, int64_t *max)
{
	size_t from = r->at;
	if (take(r, "{") && number(r, min)) {
		*max = *min;
		if (take(r, ",") && !number(r, max))
			*max = -1;
		if (take(r, "}"))
			return true;
	}
	r->at = from;
	return false;
}

static bool quantifier(struct parser *r, int64_t *min, int64_t *max)
{
	*min = 0;
	*max = -1;
	if (take(r, "*"))
		return true;
	if (take(r, "+")) {
		*min = 1;
		return true;
	}
	if (take(r, "?")) {
		*max = 1;
		return true;
	}
	return braces(r, min, max);
}

static int parse_term(struct parser *r)
{
	int64_t min, max;
	int t = parse_atom(r);
	if (t < 0 || !quantifier(r, &min, &max))
		return t;
	if (max >= 0 && min > max)
		return fail(r, -EINVAL, "a repeat with its bounds in the wrong order");
	take(r, "?"); /* lazy: which match is found does not matter */
	size_t at = r->at;
	int64_t again;
	if (quantifier(r, &again, &again)) {
		r->at = at;
		return fail(r, -EINVAL, "nothing to repeat");
	}
	int u = tree_new(r, REPEAT);
	r->trees[u].first = t;
	r->trees[u].anchors = r->trees[t].anchors;
	r->trees[u].min = min;
	r->trees[u].max = max;
	return u;
}

static void append(struct parser *r, int parent, int *last, int kid)
{
	if (*last < 0)
		r->trees[parent].first = kid;
	else
		r->trees[*last].next = kid;
	*last = kid;
	r->trees[parent].anchors |= r->trees[kid].anchors;
}

static int parse_seq(struct parser *r)
{
	int t = tree_new(r, SEQ), last = -1;
	while (peek(r) >= 0 && peek(r) != '|' && peek(r) != ')') {
		int kid = parse_term(r);
		if (kid >= 0 && r->n_trees > TREES_MAX)
			return fail(r, -E2BIG, "the pattern has too many parts");
		if (kid < 0 || r->failed)
			return -1;
		append(r, t, &last, kid);
	}
	return t;
}

static int parse_alt(struct parser *r)
{
	int t = tree_new(r, ALT), last = -1;
	do {
		int kid = parse_seq(r);
		if (kid >= 0 && r->n_trees > TREES_MAX)
			return fail(r, -E2BIG, "the pattern has too many parts");
		if (kid < 0)
			return -1;
		append(r, t, &last, kid);
	} while (take(r, "|"));
	return t;
}

/* The context on one side of a tree: more of the pattern, free text, or an end of the text. */
enum side { INSIDE, OPEN, CLOSED };

static int any_text(struct parser *r)
{
	struct char_range all = {0, CHAR_MAX_CODE};
	int c = r->o->chars ? r->o->chars(r->o->ctx, r->a, &all, 1) : ast_chars(r->a, &all, 1, false);
	return ast_repeat(r->a, c, 0, -1);
}

static int convert(struct parser *r, int t, enum side left, enum side right);

/* Add free text to the sides of a node that are OPEN. */
static int wrap(struct parser *r, int node, enum side left, enum side right)
{
	int kids[3], n = 0;
	if (left == OPEN)
		kids[n++] = any_text(r);
	kids[n++] = node;
	if (right == OPEN)
		kids[n++] = any_text(r);
	return ast_seq(r->a, kids, (size_t)n);
}

static int misplaced(struct parser *r)
{
	r->failed = true;
	return ast_fail(r->a, -EINVAL, "regex: an anchor (^, $) inside the pattern is not supported");
}

static int convert_seq(struct parser *r, int t, enum side left, enum side right)
{
	int *kids = NULL, *nodes = NULL, result;
	size_t n = 0, cap = 0, from = 0;
	for (int k = r->trees[t].first; k >= 0; k = r->trees[k].next) {
		array_grow(kids, cap, n + 1);
		kids[n++] = k;
	}
	for (; from < n && r->trees[kids[from]].kind == BEGIN && left != INSIDE; from++)
		left = CLOSED;
	for (; n > from && r->trees[kids[n - 1]].kind == END && right != INSIDE; n--)
		right = CLOSED;
	if (from == n) {
		bool open = left == OPEN || right == OPEN;
		result = open ? any_text(r) : ast_empty(r->a);
		goto done;
	}
	nodes = xcalloc(n - from, sizeof *nodes);
	for (size_t i = from; i < n; i++)
		nodes[i - from] = convert(r, kids[i], i == from ? left : INSIDE, i + 1 == n ? right : INSIDE);
	result = ast_seq(r->a, nodes, n - from);
done:
	free(kids);
	free(nodes);
	return result;
}

static int convert_alt(struct parser *r, int t, enum side left, enum side right)
{
	int *nodes = NULL;
	size_t n = 0, cap = 0;
	for (int k = r->trees[t].first; k >= 0; k = r->trees[k].next) {
		int node = convert(r, k, left, right);
		array_grow(nodes, cap, n + 1);
		nodes[n++] = node;
	}
	int result = ast_alt(r->a, nodes, n);
	free(nodes);
	return result;
}

static int convert(struct parser *r, int t, enum side left, enum side right)
{
	struct tree n = r->trees[t];
	if (r->failed)
		return AST_FAILED;
	if (!n.anchors && (left != INSIDE || right != INSIDE))
		return wrap(r, convert(r, t, INSIDE, INSIDE), left, right);
	switch (n.kind) {
	case LEAF:
		return n.leaf;
	case BEGIN:
	case END: {
		/* One side is the end of the text; the other side keeps its context. */
		enum side mine = n.kind == BEGIN ? left : right, other = n.kind == BEGIN ? right : left;
		if (mine == INSIDE)
			return misplaced(r);
		return other == OPEN ? any_text(r) : ast_empty(r->a);
	}
	case SEQ:
		return convert_seq(r, t, left, right);
	case ALT:
		return convert_alt(r, t, left, right);
	case REPEAT:
		if (!n.anchors)
			return ast_repeat(r->a, convert(r, n.first, INSIDE, INSIDE), n.min, n.max);
		if (n.max != 1 && !(n.min == 1 && n.max == 1))
			return misplaced(r);
		int once = convert(r, n.first, left, right);
		return n.min ? once : ast_alt2(r->a, once, wrap(r, ast_empty(r->a), left, right));
	}
	return AST_FAILED;
}

int regex_parse(struct ast *a, const char *p, size_t n, const struct regex_options *options)
{
	static const struct regex_options whole;
	struct parser r = {.a = a, .o = options ? options : &whole, .p = p, .n = n};
	r.any_case = r.o->any_case;
	r.dot_newline = r.o->dot_newline;
	int node = AST_FAILED;
	if (utf8_valid(p, n) != n)
		return ast_fail(a, -EINVAL, "regex: not UTF-8");
	int t = parse_alt(&r);
	if (t >= 0 && r.at < n)
		fail(&r, -EINVAL, ") without (");
	if (t >= 0 && !r.failed)
		node = convert(&r, t, r.o->search ? OPEN : CLOSED, r.o->search ? OPEN : CLOSED);
	free(r.trees);
	return node;
}
