/* field_table.h - the fields of an API's request as a table: which are honoured, ignored and refused.
 *
 * The first check of a request, the list in x-quern-ignored, the refusals by name, /openapi.json and the
 * pages in docs/apis/ all come from the same rows.  Constant data and pure functions. */
#ifndef QUERN_CONTROLLER_REQUEST_FIELD_TABLE_H
#define QUERN_CONTROLLER_REQUEST_FIELD_TABLE_H

#include "controller/request/api_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum field_effect {
	FIELD_HONOURED,
	FIELD_IGNORED, /* taken, without effect, and named in x-quern-ignored */
	FIELD_NEUTRAL, /* taken where the value changes nothing, else refused by name */
	FIELD_REFUSED, /* refused by name; null is as good as none */
};

/* What a value may be: JSON's types. */
enum {
	FIELD_STRING = 1,
	FIELD_NUMBER = 2,
	FIELD_INTEGER = 4, /* 3.0 is one */
	FIELD_BOOLEAN = 8,
	FIELD_ARRAY = 16,
	FIELD_OBJECT = 32,
	FIELD_ANY = 63,
};

struct field_row {
	const char *name;
	unsigned types;
	enum field_effect effect;
	double lo, hi;       /* of numbers; both 0: no bounds */
	const char *neutral; /* FIELD_NEUTRAL: the values that are taken, a JSON array: "[1, []]" */
	const char *about; /* a line for people: what it does, or why it is refused and what to do instead */
};

struct field_table {
	const struct field_row *rows;
	size_t n_rows;
	const struct field_table *next; /* rows that several requests have in common; NULL: none */
};

/* Checks every member of a request: its type and bounds, refusals, neutral values.  Unknown members are
 * refused if strict, else named in ignored ("a, b"; appended to what it holds), as those without effect are.
 * NULL members count as absent.  -EINVAL with *p filled, which names the field. */
int field_table_check(const struct field_table *t, const json_t *request, bool strict, char *ignored,
		      size_t ignored_n, struct api_problem *p);

/* Adds a name to a list "a, b" for a header: characters that a field's name would not have become '?', and
 * what finds no room is left out. */
void field_table_ignore(char *ignored, size_t ignored_n, const char *name);

/* "honoured", "ignored", "only neutral values", "refused" */
const char *field_effect_name(enum field_effect effect);

/* The rows as the properties of a JSON schema, to be decref'd: type, minimum, maximum, description, and
 * x-quern, the effect. */
json_t *field_table_schema(const struct field_table *t);

#endif
