/* field_table.h - the fields of an API's request as a table: honoured, ignored or refused.
 *
 * The first check of a request, the list in x-quern-ignored, refusals by name, /openapi.json and the pages in
 * docs/apis/ all use these rows.  Constant data and pure functions. */
#ifndef QUERN_CONTROLLER_REQUEST_FIELD_TABLE_H
#define QUERN_CONTROLLER_REQUEST_FIELD_TABLE_H

#include "controller/request/api_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum field_effect {
	FIELD_HONOURED,
	FIELD_IGNORED, /* accepted without effect, and named in x-quern-ignored */
	FIELD_NEUTRAL, /* accepted if the value changes nothing, else refused by name */
	FIELD_REFUSED, /* refused by name; null counts as absent */
};

/* JSON types that a value may have. */
enum {
	FIELD_STRING = 1,
	FIELD_NUMBER = 2,
	FIELD_INTEGER = 4, /* 3.0 counts as an integer */
	FIELD_BOOLEAN = 8,
	FIELD_ARRAY = 16,
	FIELD_OBJECT = 32,
	FIELD_ANY = 63,
};

struct field_row {
	const char *name;
	unsigned types;
	enum field_effect effect;
	double lo, hi;       /* bounds of a number; both 0: no bounds */
	const char *neutral; /* FIELD_NEUTRAL: the accepted values as a JSON array: "[1, []]" */
	const char *about;   /* one line of help: what the field does, or why it is refused and what to do
			    * instead */
};

struct field_table {
	const struct field_row *rows;
	size_t n_rows;
	const struct field_table *next; /* rows shared by several requests; NULL: none */
};

/* Check every member of a request: type, bounds, refusals, neutral values.  Unknown members are refused if
 * strict; otherwise they are appended to ignored ("a, b"), as are members without effect.  NULL members count
 * as absent.  -EINVAL with *p filled, which names the field. */
int field_table_check(const struct field_table *t, const json_t *request, bool strict, char *ignored,
		      size_t ignored_n, struct api_problem *p);

/* Append name to the list "a, b" for a header.  Characters that a field name would not have become '?'.  A
 * name that does not fit is left out. */
void field_table_ignore(char *ignored, size_t ignored_n, const char *name);

/* Return the rows as the properties of a JSON schema: type, minimum, maximum, description, and x-quern (the
 * effect).  The caller decrefs it. */
json_t *field_table_schema(const struct field_table *t);

#endif
