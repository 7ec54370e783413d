/* table.h - a table of cells in aligned columns; columns of numbers are right-aligned. */
#ifndef QUERN_CLI_TERMINAL_TABLE_H
#define QUERN_CLI_TERMINAL_TABLE_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

enum { TABLE_COLUMNS = 16 };

struct table_line {
	char *cells[TABLE_COLUMNS]; /* owned */
	size_t n;
};

/* Zero-initialised is empty.  The first row is the heading. */
struct table {
	struct table_line *lines;
	size_t n_lines;
};

void table_begin(struct table *t);               /* begins a new row */
void table_text(struct table *t, const char *s); /* adds a cell; NULL: "-".  Control characters become '?' */
void table_format(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_int(struct table *t, const json_t *v);               /* "-" if v is not an integer */
void table_row(struct table *t, ...) __attribute__((sentinel)); /* adds a row of texts, NULL at the end */
/* Print the table.  On a terminal that is too narrow, print each row as lines of a heading and a cell. */
void table_print(const struct table *t, FILE *f);
void table_fini(struct table *t);

#endif
