/* schema_string.c - strings: patterns, formats, lengths and values together. */
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

static size_t n_values(const json_t *values)
{
	return json_is_array(values) ? json_array_size(values) : 1;
}

static const json_t *value_at(const json_t *values, size_t i)
{
	return json_is_array(values) ? json_array_get(values, i) : values;
}

static size_t n_chars(const char *p, size_t n)
{
	size_t chars = 0;
	for (size_t i = 0; i < n; i++)
		chars += ((unsigned char)p[i] & 0xc0) != 0x80;
	return chars;
}

int values_step(struct schema *s, const struct atom *values)
{
	return schema_step(s, n_values(values->value), values->owner);
}

static bool in_values(const json_t *values, const json_t *string)
{
	for (size_t i = 0; i < n_values(values); i++)
		if (json_equal(value_at(values, i), string))
			return true;
	return false;
}

static bool is_of_strings(const struct atom *a)
{
	return a->kind == A_ENUM || (a->kind >= A_PATTERN && a->kind <= A_MAX_LENGTH);
}

/* Set *node to a format's strings, or to AST_FAILED if the format asserts nothing. */
static int format_of(struct schema *s, const struct atom *a, int *node)
{
	const char *pattern = format_pattern(json_string_value(a->value));
	*node = pattern ? pattern_node(s, a->owner, pattern) : AST_FAILED;
	return pattern && *node == AST_FAILED ? s->err : 0;
}

/* Return 1 if v satisfies alt, 0 if not, or an error. v comes from the list `from`, which is
 * not searched again. */
static int value_fits(struct schema *s, const struct alt *alt, const json_t *v, const json_t *from)
{
	const char *p = json_string_value(v);
	const size_t n = json_string_length(v), chars = n_chars(p, n);
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		int rc = 0, node;
		if (!is_of_strings(a))
			continue;
		switch (a->kind) {
		case A_ENUM:
			if (a->value == from && !a->neg)
				break;
			rc = values_step(s, a);
			if (rc)
				return rc;
			if (in_values(a->value, v) == a->neg)
				return 0;
			break;
		case A_MIN_LENGTH:
			if (chars < a->n)
				return 0;
			break;
		case A_MAX_LENGTH:
			if (chars > a->n)
				return 0;
			break;
		case A_PATTERN:
			rc = pattern_matches(s, a->owner, json_string_value(a->value), p, n);
			if (rc < 0 || rc == a->neg)
				return rc < 0 ? rc : 0;
			break;
		default:
			rc = format_of(s, a, &node);
			if (rc)
				return rc;
			if (node == AST_FAILED ? a->neg : regular_accepts(s, node, p, n) == a->neg)
				return s->err;
		}
	}
	return 1;
}

/* Make the listed values that satisfy alt, between quotes.  any: only test whether there is one. */
static int listed_strings(struct schema *s, const struct alt *alt, const json_t *values, bool *any)
{
	const size_t n = n_values(values);
	int *kids = xcalloc(n + 1, sizeof *kids), rc = 0;
	size_t k = 0;
	struct buf text = {0};
	for (size_t i = 0; i < n && rc >= 0; i++) {
		const json_t *v = value_at(values, i);
		if (!json_is_string(v))
			continue;
		rc = value_fits(s, alt, v, values);
		if (rc <= 0)
			continue;
		if (any) {
			*any = true;
			break;
		}
		buf_clear(&text);
		if (s->o.strings == SCHEMA_STRINGS_RAW)
			buf_put(&text, json_string_value(v), json_string_length(v));
		else
			string_escape(&text, json_string_value(v), json_string_length(v));
		kids[k++] = ast_literal(s->ast, text.p ? text.p : "", text.len);
	}
	int node = rc < 0 || any ? AST_FAILED : ast_alt(s->ast, kids, k);
	free(kids);
	buf_fini(&text);
	return node;
}

/* Make every spelling of the strings in values. */
static int spellings(struct schema *s, const json_t *values, bool name)
{
	const size_t n = n_values(values);
	int *kids = xcalloc(n + 1, sizeof *kids);
	size_t k = 0;
	for (size_t i = 0; i < n; i++) {
		const json_t *v = value_at(values, i);
		if (json_is_string(v))
			kids[k++] = escape_node(
				s, ast_literal(s->ast, json_string_value(v), json_string_length(v)), name);
	}
	int node = ast_alt(s->ast, kids, k);
	free(kids);
	return node;
}

/* Apply the lengths to the strings of `of`; AST_FAILED: to all strings. */
static int lengths(struct schema *s, const struct alt *alt, bool name, int of)
{
	size_t min = 0, max = SIZE_MAX;
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		if (a->kind == A_MIN_LENGTH && a->n > min)
			min = a->n;
		if (a->kind == A_MAX_LENGTH && a->n < max)
			max = a->n;
	}
	if (min > max)
		return ast_never(s->ast);
	/* A bound longer than any text is no bound. */
	const int64_t least = (int64_t)(min < INT64_MAX ? min : INT64_MAX),
		      most = max > AST_REPEAT_MAX ? -1 : (int64_t)max;
	const int unit = escape_any_char(s, name);
	return of == AST_FAILED ? ast_repeat(s->ast, unit, least, most)
				: ast_counted(s->ast, of, unit, least, most);
}

static bool has_lengths(const struct alt *alt)
{
	for (const struct atom *a = alt->atoms; a; a = a->next)
		if ((a->kind == A_MIN_LENGTH && a->n) || a->kind == A_MAX_LENGTH)
			return true;
	return false;
}

int string_body(struct schema *s, const struct alt *alt, bool name)
{
	struct ast *t = s->ast;
	const struct atom *values = alt_values(alt);
	if (values)
		return listed_strings(s, alt, values->value, NULL);
	int node = AST_FAILED, any = AST_FAILED;
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		int part = AST_FAILED;
		if (a->kind == A_ENUM)
			part = spellings(s, a->value, name);
		else if (a->kind == A_PATTERN)
			part = pattern_node(s, a->owner, json_string_value(a->value));
		else if (a->kind == A_FORMAT && format_of(s, a, &part))
			return AST_FAILED;
		if (s->err)
			return AST_FAILED;
		if (a->kind == A_FORMAT && part == AST_FAILED) {
			if (a->neg)
				return ast_never(t);
			continue;
		}
		if (a->kind != A_ENUM && a->kind != A_PATTERN && a->kind != A_FORMAT)
			continue;
		if (a->kind != A_ENUM)
			part = escape_node(s, part, name);
		if (a->neg && node == AST_FAILED && any == AST_FAILED)
			node = any = ast_repeat(t, escape_any_char(s, name), 0, -1);
		if (a->neg)
			node = ast_minus(t, node, part);
		else
			node = node == AST_FAILED ? part : ast_and(t, node, part);
	}
	if (has_lengths(alt))
		return lengths(s, alt, name, node);
	return node != AST_FAILED ? node : ast_repeat(t, escape_any_char(s, name), 0, -1);
}

int string_without(struct schema *s, int body)
{
	struct ast *t = s->ast;
	uint8_t set[32];
	if (!s->o.without || body == AST_FAILED)
		return body;
	memset(set, 0xff, sizeof set);
	int any = ast_repeat(t, ast_set(t, set), 0, -1);
	return ast_minus(t, body, ast_seq3(t, any, ast_text(t, s->o.without), any));
}

int string_node(struct schema *s, const struct alt *alt)
{
	int body = string_without(s, string_body(s, alt, false));
	if (body == AST_FAILED || s->o.strings == SCHEMA_STRINGS_RAW)
		return body;
	return ast_seq3(s->ast, ast_text(s->ast, "\""), body, ast_text(s->ast, "\""));
}

int string_is_empty(struct schema *s, const struct alt *alt)
{
	const struct atom *values = alt_values(alt);
	size_t min = 0, max = SIZE_MAX;
	bool any = false;
	int n = 0;
	if (values) {
		listed_strings(s, alt, values->value, &any);
		return s->err ? s->err : !any;
	}
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		n += is_of_strings(a) && a->kind < A_MIN_LENGTH;
		if (a->kind == A_MIN_LENGTH && a->n > min)
			min = a->n;
		if (a->kind == A_MAX_LENGTH && a->n < max)
			max = a->n;
	}
	if (min > max)
		return 1;
	if (!n || (n == 1 && !min && max == SIZE_MAX))
		return 0;
	int node = string_body(s, alt, true);
	return node == AST_FAILED ? s->err : regular_is_empty(s, node);
}
