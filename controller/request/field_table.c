#include "controller/request/field_table.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
	unsigned type;
	const char *name, *text; /* name in a schema; text in an error */
} types[] = {
	{FIELD_STRING, "string", "a string"},     {FIELD_NUMBER, "number", "a number"},
	{FIELD_INTEGER, "integer", "an integer"}, {FIELD_BOOLEAN, "boolean", "true or false"},
	{FIELD_ARRAY, "array", "an array"},       {FIELD_OBJECT, "object", "an object"},
};
enum { N_TYPES = sizeof types / sizeof *types };

static const char *effect_name(enum field_effect effect)
{
	static const char *const names[] = {"honoured", "ignored", "only neutral values", "refused"};
	return names[effect];
}

void field_table_ignore(char *ignored, size_t ignored_n, const char *name)
{
	const size_t n = strlen(ignored);
	char clean[65];
	size_t i;
	for (i = 0; name[i] && i < sizeof clean - 1; i++) {
		const char c = name[i];
		const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
				   (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
		clean[i] = plain ? c : '?';
	}
	clean[i] = 0;
	if (n + i + 3 < ignored_n)
		snprintf(ignored + n, ignored_n - n, "%s%s", n ? ", " : "", clean);
}

static bool has_type(const json_t *v, unsigned allowed)
{
	int64_t x;
	return (json_is_string(v) && allowed & FIELD_STRING) ||
	       (json_is_number(v) && allowed & FIELD_NUMBER) ||
	       (json_integral(v, &x) && allowed & FIELD_INTEGER) ||
	       (json_is_boolean(v) && allowed & FIELD_BOOLEAN) ||
	       (json_is_array(v) && allowed & FIELD_ARRAY) || (json_is_object(v) && allowed & FIELD_OBJECT);
}

/* Fail with "must be a string or an array". */
static int fail_type(const struct field_row *row, struct api_problem *p)
{
	char list[128] = "";
	size_t n = 0;
	for (size_t i = 0; i < N_TYPES; i++)
		if (row->types & types[i].type)
			n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? " or " : "",
					      types[i].text);
	return api_fail(p, E_BAD_REQUEST, row->name, "%s must be %s", row->name, list);
}

static int check_value(const struct field_row *row, const json_t *v, struct api_problem *p)
{
	if (json_big(v))
		return api_fail_big(p, row->name, v);
	if (!has_type(v, row->types))
		return fail_type(row, p);
	const double x = json_number_value(v);
	if (json_is_number(v) && (row->lo != 0 || row->hi != 0) && !(x >= row->lo && x <= row->hi))
		return api_fail(p, E_BAD_REQUEST, row->name, "%s is %.10g, must be from %.10g to %.10g",
				row->name, x, row->lo, row->hi);
	return 0;
}

static bool is_neutral(const struct field_row *row, const json_t *v)
{
	json_t *all = json_loads(row->neutral, JSON_DECODE_ANY, NULL);
	bool found = false;
	for (size_t i = 0; i < json_array_size(all) && !found; i++) {
		const json_t *one = json_array_get(all, i);
		found = json_is_number(one) && json_is_number(v)
				? json_number_value(one) == json_number_value(v)
				: json_equal(one, v);
	}
	json_decref(all);
	return found;
}

static int check_row(const struct field_row *row, const json_t *v, struct api_problem *p)
{
	switch (row->effect) {
	case FIELD_IGNORED:
		return 0;
	case FIELD_HONOURED:
		return check_value(row, v, p);
	case FIELD_NEUTRAL:
		if (is_neutral(row, v))
			return 0;
		break;
	case FIELD_REFUSED:
		break;
	}
	return api_fail(p, E_BAD_REQUEST, row->name, "%s is not supported%s%s", row->name,
			row->about ? ": " : "", row->about ? row->about : "");
}

static const struct field_row *find(const struct field_table *t, const char *name)
{
	for (; t; t = t->next)
		for (size_t i = 0; i < t->n_rows; i++)
			if (strcmp(t->rows[i].name, name) == 0)
				return &t->rows[i];
	return NULL;
}

int field_table_check(const struct field_table *t, const json_t *request, bool strict, char *ignored,
		      size_t ignored_n, struct api_problem *p)
{
	json_t *m = (json_t *)request; /* iteration needs a non-const pointer */
	const char *name;
	json_t *v;
	if (!json_is_object(request))
		return api_fail(p, E_BAD_REQUEST, "", "the request must be a map of fields to values");
	json_object_foreach(m, name, v)
	{
		const struct field_row *row = find(t, name);
		if (row && json_is_null(v))
			continue;
		if (!row && strict)
			return api_fail(p, E_BAD_REQUEST, name, "unknown field %.64s", name);
		if (!row || row->effect == FIELD_IGNORED)
			field_table_ignore(ignored, ignored_n, name);
		else if (check_row(row, v, p))
			return -EINVAL;
	}
	return 0;
}

static json_t *number(double x)
{
	return x == floor(x) && fabs(x) < 9e15 ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *row_schema(const struct field_row *row)
{
	json_t *o = json_object(), *list = json_array();
	for (size_t i = 0; i < N_TYPES; i++)
		/* "number" includes every integer. */
		if (row->types & types[i].type &&
		    !(types[i].type == FIELD_INTEGER && row->types & FIELD_NUMBER))
			json_array_append_new(list, json_string(types[i].name));
	if (row->types != FIELD_ANY)
		json_object_set(o, "type", json_array_size(list) == 1 ? json_array_get(list, 0) : list);
	json_decref(list);
	if (row->lo != 0 || row->hi != 0) {
		json_object_set_new(o, "minimum", number(row->lo));
		json_object_set_new(o, "maximum", number(row->hi));
	}
	if (row->effect == FIELD_NEUTRAL)
		json_object_set_new(o, "enum", json_loads(row->neutral, 0, NULL));
	if (row->about)
		json_object_set_new(o, "description", json_string(row->about));
	json_object_set_new(o, "x-quern", json_string(effect_name(row->effect)));
	return o;
}

json_t *field_table_schema(const struct field_table *t)
{
	json_t *o = json_object();
	for (; t; t = t->next)
		for (size_t i = 0; i < t->n_rows; i++)
			if (!json_object_get(o, t->rows[i].name)) /* the first row of a name counts */
				json_object_set_new(o, t->rows[i].name, row_schema(&t->rows[i]));
	return o;
}
