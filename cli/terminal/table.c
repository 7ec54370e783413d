#include "cli/terminal/table.h"

#include "base/alloc.h"
#include "cli/terminal/term.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void table_begin(struct table *t)
{
	t->lines = xrealloc(t->lines, t->n_lines + 1, sizeof *t->lines);
	t->lines[t->n_lines++] = (struct table_line){.n = 0};
}

void table_text(struct table *t, const char *s)
{
	struct table_line *l = &t->lines[t->n_lines - 1];
	assert(l->n < TABLE_COLUMNS);
	char *cell = xstrdup(s ? s : "-");
	for (char *p = cell; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	l->cells[l->n++] = cell;
}

void table_format(struct table *t, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	table_text(t, text);
}

void table_int(struct table *t, const json_t *v)
{
	if (json_is_integer(v))
		table_format(t, "%lld", (long long)json_integer_value(v));
	else
		table_text(t, NULL);
}

void table_row(struct table *t, ...)
{
	va_list ap;
	table_begin(t);
	va_start(ap, t);
	for (const char *s; (s = va_arg(ap, const char *));)
		table_text(t, s);
	va_end(ap);
}

/* Columns on the screen: UTF-8 continuation bytes take none. */
static int width_of(const char *s)
{
	int w = 0;
	for (; *s; s++)
		w += ((unsigned char)*s & 0xc0) != 0x80;
	return w;
}

/* Return whether every cell below the heading is a number or "-". */
static bool is_number_column(const struct table *t, size_t column)
{
	bool any = false;
	for (size_t i = 1; i < t->n_lines; i++) {
		const char *c = column < t->lines[i].n ? t->lines[i].cells[column] : "-";
		bool digits = *c && strspn(c, "0123456789.%") == strlen(c);
		if (!digits && strcmp(c, "-") != 0)
			return false;
		any = any || digits;
	}
	return any;
}

/* Print a row as lines of its cells, each with its heading, for a terminal that is narrower than the
 * table. */
static void print_block(const struct table *t, const struct table_line *l, FILE *f)
{
	const struct table_line *heads = &t->lines[0];
	int widest = 0;
	for (size_t c = 0; c < heads->n; c++)
		widest = width_of(heads->cells[c]) > widest ? width_of(heads->cells[c]) : widest;
	for (size_t c = 0; c < l->n; c++) {
		const char *head = c < heads->n ? heads->cells[c] : "";
		fprintf(f, "%s%s%s%*s  %s\n", term_style(f, TERM_BOLD), head, term_style(f, TERM_PLAIN),
			widest - width_of(head), "", l->cells[c]);
	}
}

static void print_blocks(const struct table *t, FILE *f)
{
	for (size_t i = 1; i < t->n_lines; i++) {
		if (i > 1)
			putc('\n', f);
		print_block(t, &t->lines[i], f);
	}
}

void table_print(const struct table *t, FILE *f)
{
	int widths[TABLE_COLUMNS] = {0}, whole = 0;
	const unsigned terminal = term_width(f);
	bool right[TABLE_COLUMNS];
	for (size_t c = 0; c < TABLE_COLUMNS; c++)
		right[c] = is_number_column(t, c);
	for (size_t i = 0; i < t->n_lines; i++)
		for (size_t c = 0; c < t->lines[i].n; c++)
			if (width_of(t->lines[i].cells[c]) > widths[c])
				widths[c] = width_of(t->lines[i].cells[c]);
	for (size_t c = 0; c < TABLE_COLUMNS; c++)
		whole += widths[c] ? widths[c] + (c ? 2 : 0) : 0;
	if (terminal && (unsigned)whole > terminal && t->n_lines > 1) {
		print_blocks(t, f);
		return;
	}
	for (size_t i = 0; i < t->n_lines; i++) {
		const struct table_line *l = &t->lines[i];
		if (i == 0)
			fputs(term_style(f, TERM_BOLD), f);
		for (size_t c = 0; c < l->n; c++) {
			int pad = widths[c] - width_of(l->cells[c]);
			bool last = c + 1 == l->n;
			fprintf(f, "%*s%s%*s", right[c] ? pad : 0, "", l->cells[c],
				right[c] || last ? 0 : pad, "");
			fputs(last ? "" : "  ", f);
		}
		if (i == 0)
			fputs(term_style(f, TERM_PLAIN), f);
		putc('\n', f);
	}
}

void table_fini(struct table *t)
{
	for (size_t i = 0; i < t->n_lines; i++)
		for (size_t c = 0; c < t->lines[i].n; c++)
			free(t->lines[i].cells[c]);
	free(t->lines);
	*t = (struct table){0};
}
