/* schema_escape.c - strings in JSON's spelling (RFC 8259, 7).
 *
 *     character        spellings within strings     within names
 *     "                \"  \u0022                   \"
 *     newline          \n  \u000a \u000A            \n
 *     U+0001           \u0001                       \u0001
 *     e, é, /          itself, \u....  (and \/)     itself
 *     U+1F600          itself, \ud83d\ude00         itself
 *
 * Names of members have one spelling each, so that the complement of the known names contains no other
 * spelling of them. A node over characters is converted to a node over spellings. A text spells exactly one
 * string, so intersection and complement (within all spellings) are preserved. */
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BMP_LAST = 0xffff, CHAR_LAST = 0x10ffff, HIGH_FIRST = 0xd800, LOW_FIRST = 0xdc00, LOW_LAST = 0xdfff };

static const char short_chars[] = "\"\\\b\f\n\r\t", short_names[] = "\"\\bfnrt";

/* ---- one spelling ---- */

void string_escape(struct buf *out, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const unsigned char c = (unsigned char)p[i];
		const char *at = c ? strchr(short_chars, c) : NULL;
		if (at)
			buf_printf(out, "\\%c", short_names[at - short_chars]);
		else if (c < 0x20)
			buf_printf(out, "\\u%04x", c);
		else
			buf_putc(out, (char)c);
	}
}

int string_literal(struct schema *s, const char *p, size_t n)
{
	struct buf b = {0};
	buf_putc(&b, '"');
	string_escape(&b, p, n);
	buf_putc(&b, '"');
	int node = ast_literal(s->ast, b.p, b.len);
	buf_fini(&b);
	return node;
}

/* ---- \u and four digits ---- */

static int hex_set(struct schema *s, unsigned first, unsigned last)
{
	uint8_t set[32] = {0};
	for (unsigned d = first; d <= last; d++) {
		const unsigned char lower = (unsigned char)"0123456789abcdef"[d];
		const unsigned char upper = (unsigned char)"0123456789ABCDEF"[d];
		set[lower / 8] |= (uint8_t)(1 << lower % 8);
		set[upper / 8] |= (uint8_t)(1 << upper % 8);
	}
	return ast_set(s->ast, set);
}

/* Make the node for the n low hexadecimal digits of a to b. */
static int hex_between(struct schema *s, uint32_t a, uint32_t b, int n)
{
	struct ast *t = s->ast;
	const uint32_t all = (1u << 4 * n) - 1, below = all >> 4;
	const int any = hex_set(s, 0, 15);
	int kids[3], k = 0;
	if (n == 0)
		return ast_empty(t);
	if (a == 0 && b == all)
		return ast_repeat(t, any, n, n);
	const uint32_t x = a >> 4 * (n - 1), y = b >> 4 * (n - 1);
	if (x == y)
		return ast_seq2(t, hex_set(s, x, x), hex_between(s, a & below, b & below, n - 1));
	const bool low = (a & below) != 0, high = (b & below) != below;
	if (low)
		kids[k++] = ast_seq2(t, hex_set(s, x, x), hex_between(s, a & below, below, n - 1));
	if (x + low <= y - high)
		kids[k++] = ast_seq2(t, hex_set(s, x + low, y - high), ast_repeat(t, any, n - 1, n - 1));
	if (high)
		kids[k++] = ast_seq2(t, hex_set(s, y, y), hex_between(s, 0, b & below, n - 1));
	return ast_alt(t, kids, (size_t)k);
}

static int u_between(struct schema *s, uint32_t a, uint32_t b)
{
	return ast_seq2(s->ast, ast_text(s->ast, "\\u"), hex_between(s, a, b, 4));
}

/* Make the node for characters above the basic plane, as surrogate pairs. */
static int pairs_between(struct schema *s, uint32_t a, uint32_t b)
{
	struct ast *t = s->ast;
	const uint32_t x = (a - 0x10000) >> 10, y = (b - 0x10000) >> 10;
	const uint32_t i = (a - 0x10000) & 0x3ff, j = (b - 0x10000) & 0x3ff;
	int kids[3], k = 0;
	if (x == y)
		return ast_seq2(t, u_between(s, HIGH_FIRST + x, HIGH_FIRST + x),
				u_between(s, LOW_FIRST + i, LOW_FIRST + j));
	const bool low = i != 0, high = j != 0x3ff;
	if (low)
		kids[k++] = ast_seq2(t, u_between(s, HIGH_FIRST + x, HIGH_FIRST + x),
				     u_between(s, LOW_FIRST + i, LOW_LAST));
	if (x + low <= y - high)
		kids[k++] = ast_seq2(t, u_between(s, HIGH_FIRST + x + low, HIGH_FIRST + y - high),
				     u_between(s, LOW_FIRST, LOW_LAST));
	if (high)
		kids[k++] = ast_seq2(t, u_between(s, HIGH_FIRST + y, HIGH_FIRST + y),
				     u_between(s, LOW_FIRST, LOW_FIRST + j));
	return ast_alt(t, kids, (size_t)k);
}

/* ---- sets of characters ---- */

static bool holds(const struct char_range *r, size_t n, uint32_t c)
{
	for (size_t i = 0; i < n; i++)
		if (c >= r[i].first && c <= r[i].last)
			return true;
	return false;
}

/* Make the node for unescaped characters: all but controls, quote and backslash. */
static int as_they_are(struct schema *s, const struct char_range *r, size_t n)
{
	static const struct char_range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, CHAR_LAST}};
	struct char_range *out = xcalloc(n * 3 + 1, sizeof *out);
	size_t m = 0;
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < 3; j++) {
			const uint32_t a = r[i].first > plain[j].first ? r[i].first : plain[j].first;
			const uint32_t b = r[i].last < plain[j].last ? r[i].last : plain[j].last;
			if (a <= b)
				out[m++] = (struct char_range){a, b};
		}
	}
	int node = ast_chars(s->ast, out, m, false);
	free(out);
	return node;
}

/* Make the node for a backslash and a letter. */
static int short_escapes(struct schema *s, const struct char_range *r, size_t n, bool name)
{
	uint8_t set[32] = {0};
	bool any = false;
	for (size_t i = 0; short_chars[i]; i++) {
		const uint8_t c = (uint8_t)short_names[i];
		if (holds(r, n, (uint8_t)short_chars[i]))
			set[c / 8] |= (uint8_t)(1 << c % 8), any = true;
	}
	if (!name && holds(r, n, '/'))
		set['/' / 8] |= 1 << '/' % 8, any = true;
	return any ? ast_seq2(s->ast, ast_text(s->ast, "\\"), ast_set(s->ast, set)) : ast_never(s->ast);
}

static int control_escapes(struct schema *s, const struct char_range *r, size_t n)
{
	int kids[32], k = 0;
	for (uint32_t c = 0; c < 0x20; c++) {
		char text[8];
		if (!holds(r, n, c) || (c && strchr(short_chars, (int)c)))
			continue;
		snprintf(text, sizeof text, "\\u%04x", c);
		kids[k++] = ast_text(s->ast, text);
	}
	return ast_alt(s->ast, kids, (size_t)k);
}

static int u_escapes(struct schema *s, const struct char_range *r, size_t n)
{
	int *kids = xcalloc(3 * n + 1, sizeof *kids);
	size_t k = 0;
	for (size_t i = 0; i < n; i++) { /* ranges exclude the surrogates, or include all of them */
		const uint32_t a = r[i].first, b = r[i].last;
		if (a < HIGH_FIRST)
			kids[k++] = u_between(s, a, b < HIGH_FIRST ? b : HIGH_FIRST - 1);
		if (b > LOW_LAST && a <= BMP_LAST)
			kids[k++] =
				u_between(s, a > LOW_LAST ? a : LOW_LAST + 1, b < BMP_LAST ? b : BMP_LAST);
		if (b > BMP_LAST)
			kids[k++] = pairs_between(s, a > BMP_LAST ? a : BMP_LAST + 1, b);
	}
	int node = ast_alt(s->ast, kids, k);
	free(kids);
	return node;
}

static int escape_chars(struct schema *s, const struct char_range *r, size_t n, bool name)
{
	int raw = as_they_are(s, r, n), brief = short_escapes(s, r, n, name);
	return ast_alt(s->ast, (int[]){raw, brief, name ? control_escapes(s, r, n) : u_escapes(s, r, n)}, 3);
}

static const struct char_range all_chars[] = {{0, CHAR_LAST}};

int escape_any_char(struct schema *s, bool name)
{
	if (!name && s->o.strings == SCHEMA_STRINGS_RAW)
		return ast_chars(s->ast, all_chars, 1, false);
	name |= s->o.strings == SCHEMA_STRINGS_SHORT;
	int *at = name ? &s->any_name_char : &s->any_char;
	if (*at == AST_FAILED)
		*at = escape_chars(s, all_chars, 1, name);
	return *at;
}

/* ---- nodes ---- */

static int escape_literal(struct schema *s, const char *p, size_t n, bool name)
{
	struct buf text = {0};
	if (name) {
		string_escape(&text, p, n);
		int node = ast_literal(s->ast, text.p, text.len);
		buf_fini(&text);
		return node;
	}
	int *kids = xcalloc(n + 1, sizeof *kids);
	size_t k = 0;
	for (size_t i = 0; i < n;) {
		int len;
		const uint32_t c = utf8_at(p + i, &len);
		const struct char_range r = {c, c};
		kids[k++] = escape_chars(s, &r, 1, false);
		i += (size_t)len;
	}
	int node = ast_seq(s->ast, kids, k);
	free(kids);
	return node;
}

static int escape_set(struct schema *s, const uint8_t *set, bool name)
{
	struct char_range r[128];
	size_t n = 0;
	for (uint32_t c = 0; c < 128; c++)
		if (set[c / 8] >> c % 8 & 1)
			r[n++] = (struct char_range){c, c};
	return escape_chars(s, r, n, name);
}

/* Recursion is bounded by the depth of the tree. */
int escape_node(struct schema *s, int node, bool name)
{
	struct ast *t = s->ast;
	size_t n;
	int64_t min, max;
	if (node == AST_FAILED)
		return AST_FAILED; /* a bound of the tree is exceeded */
	if (!name && s->o.strings == SCHEMA_STRINGS_RAW)
		return node; /* no pattern contains AST_NOT */
	name |= s->o.strings == SCHEMA_STRINGS_SHORT;
	switch (ast_kind(t, node)) {
	case AST_NEVER:
	case AST_EMPTY:
		return node;
	case AST_LITERAL: {
		const char *p = ast_bytes(t, node, &n);
		char *copy = xmemdup(p, n);
		int made = escape_literal(s, copy, n, name);
		free(copy);
		return made;
	}
	case AST_SET:
		return escape_set(s, ast_set_of(t, node), name);
	case AST_CHARS: {
		const struct char_range *r = ast_ranges(t, node, &n);
		struct char_range *copy = xmemdup(r, n * sizeof *r);
		int made = escape_chars(s, copy, n, name);
		free(copy);
		return made;
	}
	case AST_REPEAT: {
		int kid = escape_node(s, ast_kid(t, node, 0), name);
		if (kid == AST_FAILED)
			return AST_FAILED;
		ast_bounds(t, node, &min, &max);
		return ast_repeat(t, kid, min, max);
	}
	case AST_REF:
		return escape_node(s, ast_rule_body(t, ast_rule_of(t, node)), name);
	case AST_NOT: {
		int kid = escape_node(s, ast_kid(t, node, 0), name);
		if (kid == AST_FAILED)
			return AST_FAILED;
		return ast_minus(t, ast_repeat(t, escape_any_char(s, name), 0, -1), kid);
	}
	default:
		break;
	}
	const enum ast_kind kind = ast_kind(t, node);
	const int n_kids = ast_n_kids(t, node);
	int *kids = xcalloc((size_t)n_kids, sizeof *kids), made = 0;
	for (int i = 0; i < n_kids && made != AST_FAILED; i++)
		made = kids[i] = escape_node(s, ast_kid(t, node, i), name);
	if (made != AST_FAILED)
		made = kind == AST_SEQ   ? ast_seq(t, kids, (size_t)n_kids)
		       : kind == AST_ALT ? ast_alt(t, kids, (size_t)n_kids)
					 : ast_and(t, kids[0], kids[1]);
	free(kids);
	return made;
}
