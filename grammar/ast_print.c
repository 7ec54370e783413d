/* ast_print.c - prints a grammar as text for people. */
#include "grammar/ast.h"

#include <inttypes.h>
#include <string.h>

static void print(const struct ast *a, int node, int prec, struct buf *out, size_t end);

static void put_byte(struct buf *out, unsigned char c, char quote)
{
	if (c == '\n')
		buf_puts(out, "\\n");
	else if (c == quote || c == '\\' || (quote == ']' && (c == '-' || c == '^')))
		buf_printf(out, "\\%c", c);
	else if (c < 0x20 || c >= 0x7f)
		buf_printf(out, "\\x%02x", c);
	else
		buf_putc(out, (char)c);
}

static void put_char(struct buf *out, uint32_t c)
{
	if (c < 0x7f)
		put_byte(out, (unsigned char)c, ']');
	else
		buf_printf(out, "\\u{%" PRIx32 "}", c);
}

static void put_set(const uint8_t *set, struct buf *out)
{
	buf_puts(out, "<");
	for (int b = 0; b < 256; b++) {
		int last = b;
		if (!(set[b / 8] >> b % 8 & 1))
			continue;
		while (last < 255 && set[(last + 1) / 8] >> (last + 1) % 8 & 1)
			last++;
		buf_printf(out, "%s%02x", out->p[out->len - 1] == '<' ? "" : " ", b);
		if (last > b)
			buf_printf(out, "-%02x", last);
		b = last;
	}
	buf_puts(out, ">");
}

static void put_chars(const struct ast *a, int node, struct buf *out, size_t end)
{
	size_t n;
	const struct char_range *r = ast_ranges(a, node, &n);
	buf_putc(out, '[');
	for (size_t i = 0; i < n && out->len < end; i++) {
		put_char(out, r[i].first);
		if (r[i].last > r[i].first) {
			buf_putc(out, '-');
			put_char(out, r[i].last);
		}
	}
	buf_putc(out, ']');
}

static void put_kids(const struct ast *a, int node, const char *between, int prec, struct buf *out,
		     size_t end)
{
	for (int i = 0; i < ast_n_kids(a, node) && out->len < end; i++) {
		if (i)
			buf_puts(out, between);
		print(a, ast_kid(a, node, i), prec, out, end);
	}
}

static void put_repeat(const struct ast *a, int node, struct buf *out, size_t end)
{
	int64_t min, max;
	ast_bounds(a, node, &min, &max);
	print(a, ast_kid(a, node, 0), 3, out, end);
	if (min == 0 && max == 1)
		buf_putc(out, '?');
	else if (min < 2 && max < 0)
		buf_putc(out, min ? '+' : '*');
	else if (max < 0)
		buf_printf(out, "{%" PRId64 ",}", min);
	else if (min == max)
		buf_printf(out, "{%" PRId64 "}", min);
	else
		buf_printf(out, "{%" PRId64 ",%" PRId64 "}", min, max);
}

static void put_unordered(const struct ast *a, int node, struct buf *out, size_t end)
{
	int64_t n_required, max;
	ast_bounds(a, node, &n_required, &max);
	buf_puts(out, "unordered(");
	for (int i = 0; i < ast_n_kids(a, node) && out->len < end; i++) {
		buf_puts(out, i ? ", " : "");
		print(a, ast_kid(a, node, i), 0, out, end);
		buf_puts(out, i >= 2 && i - 2 < n_required ? "!" : "");
	}
	buf_putc(out, ')');
}

/* prec: the binding strength of the context: alternatives (1), sequences (2), repeats (3). */
static void print(const struct ast *a, int node, int prec, struct buf *out, size_t end)
{
	static const int own[] = {[AST_ALT] = 0,    [AST_AND] = 0, [AST_SEQ] = 1,
				  [AST_REPEAT] = 2, [AST_NOT] = 2, [AST_UNORDERED] = 3};
	enum ast_kind kind = ast_kind(a, node);
	size_t n;
	if (out->len >= end)
		return;
	bool wraps = ast_n_kids(a, node) && own[kind] < prec;
	if (wraps)
		buf_putc(out, '(');
	switch (kind) {
	case AST_NEVER:
		buf_puts(out, "never");
		break;
	case AST_EMPTY:
		buf_puts(out, "\"\"");
		break;
	case AST_LITERAL: {
		const char *p = ast_bytes(a, node, &n);
		buf_putc(out, '"');
		for (size_t i = 0; i < n && out->len < end; i++)
			put_byte(out, (unsigned char)p[i], '"');
		buf_putc(out, '"');
		break;
	}
	case AST_SET:
		put_set(ast_set_of(a, node), out);
		break;
	case AST_CHARS:
		put_chars(a, node, out, end);
		break;
	case AST_SEQ:
		put_kids(a, node, " ", 2, out, end);
		break;
	case AST_ALT:
		put_kids(a, node, " | ", 1, out, end);
		break;
	case AST_UNORDERED: /* separator, others, members; required members have ! */
		put_unordered(a, node, out, end);
		break;
	case AST_AND:
		put_kids(a, node, " & ", 1, out, end);
		break;
	case AST_REPEAT:
		put_repeat(a, node, out, end);
		break;
	case AST_NOT:
		buf_putc(out, '!');
		print(a, ast_kid(a, node, 0), 3, out, end);
		break;
	case AST_REF:
		buf_puts(out, ast_rule_name(a, ast_rule_of(a, node)));
		break;
	}
	if (wraps)
		buf_putc(out, ')');
}

static void cut(struct buf *out, size_t end)
{
	if (out->len <= end)
		return;
	out->len = end;
	buf_puts(out, "...");
}

void ast_print_node(const struct ast *a, int node, struct buf *out, size_t max)
{
	size_t end = out->len + max;
	print(a, node, 0, out, end);
	cut(out, end);
}

void ast_print(const struct ast *a, struct buf *out, size_t max)
{
	size_t end = out->len + max;
	if (ast_start_of(a) != AST_FAILED) {
		buf_puts(out, "start ::= ");
		print(a, ast_start_of(a), 0, out, end);
		buf_putc(out, '\n');
	}
	for (int r = 0; r < ast_n_rules(a) && out->len < end; r++) {
		buf_printf(out, "%s ::= ", ast_rule_name(a, r));
		if (ast_rule_body(a, r) != AST_FAILED)
			print(a, ast_rule_body(a, r), 0, out, end);
		buf_putc(out, '\n');
	}
	cut(out, end);
}
