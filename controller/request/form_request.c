#include "controller/request/form_request.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json.h"
#include "grammar/grammar.h"
#include "grammar/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const size_t schema_tree_max = (size_t)256 << 20;

/* ---- parts ---- */

/* Where a part is read from: the request's field, and the key within it or NULL. */
struct place {
	const char *field, *key;
	struct api_problem *p;
};

static int wrong(const struct place *at, const char *must)
{
	return api_fail(at->p, E_BAD_REQUEST, at->field, "%s%s%s must be %s", at->field, at->key ? "." : "",
			at->key ? at->key : "", must);
}

/* A schema, or the text of one. */
static int schema_part(const struct place *at, const json_t *v, json_t **part)
{
	json_t *schema = NULL;
	char why[256];
	if (json_is_object(v) || json_is_boolean(v))
		schema = json_incref((json_t *)v);
	else if (!json_is_string(v))
		return wrong(at, "a JSON schema");
	else if (json_parse_within(json_string_value(v), json_string_length(v), schema_tree_max, &schema,
				   NULL, why, sizeof why))
		return api_fail(at->p, E_BAD_REQUEST, at->field, "%s: the schema is not JSON: %s", at->field,
				why);
	*part = json_pack("{s:s, s:o}", "type", "schema", "schema", schema);
	return 0;
}

static int text_part(const struct place *at, const json_t *v, const char *type, const char *key,
		     json_t **part)
{
	if (!json_is_string(v))
		return wrong(at, "a string");
	if (json_string_length(v))
		*part = json_pack("{s:s, s:O}", "type", type, key, v);
	return 0;
}

static int regex_part(const struct place *at, const json_t *v, json_t **part)
{
	return text_part(at, v, "regex", "pattern", part);
}

static int gbnf_part(const struct place *at, const json_t *v, json_t **part)
{
	return text_part(at, v, "gbnf", "grammar", part);
}

/* As vLLM tells them apart: a rule of GBNF is written with ::=, outside of comments. */
static bool is_gbnf(const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n"), code = n;
		for (size_t i = 0; i < n && code == n; i++)
			if (text[i] == '#' || (text[i] == '/' && i + 1 < n && text[i + 1] == '/'))
				code = i;
		if (memmem(text, code, "::=", 3))
			return true;
		text += n + (text[n] == '\n');
	}
	return false;
}

static int grammar_part(const struct place *at, const json_t *v, json_t **part)
{
	const bool gbnf = json_is_string(v) && is_gbnf(json_string_value(v));
	return text_part(at, v, gbnf ? "gbnf" : "lark", "grammar", part);
}

static int choice_part(const struct place *at, const json_t *v, json_t **part)
{
	size_t i, n = json_array_size(v);
	const json_t *choice;
	json_array_foreach(v, i, choice) n -= json_is_string(choice);
	if (!json_is_array(v) || n || !json_array_size(v))
		return wrong(at, "an array of strings, at least one");
	*part = json_pack("{s:s, s:O}", "type", "choice", "choices", v);
	return 0;
}

static int object_part(const struct place *at, const json_t *v, json_t **part)
{
	if (!json_is_boolean(v))
		return wrong(at, "true or false");
	if (json_is_true(v))
		*part = json_pack("{s:s, s:{s:s}}", "type", "schema", "schema", "type", "object");
	return 0;
}

/* ---- structural tags ---- */

static bool begins_with_any(const json_t *begin, const json_t *starts)
{
	size_t i;
	const json_t *start;
	json_array_foreach(starts, i, start)
	{
		const size_t n = json_string_length(start);
		if (n <= json_string_length(begin) &&
		    memcmp(json_string_value(begin), json_string_value(start), n) == 0)
			return true;
	}
	return false;
}

/* {begin, schema, end}, appended to all. */
static int add_tag(const struct place *at, const json_t *tag, const json_t *triggers, json_t *all)
{
	const json_t *begin = json_object_get(tag, "begin"), *end = json_object_get(tag, "end");
	const json_t *schema = json_get(tag, "schema");
	if (!json_is_string(begin) || !json_is_string(end) || !schema)
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"%s: a structure must have begin, schema and end", at->field);
	if (!begins_with_any(begin, triggers))
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"%s: the structure that begins with \"%.64s\" begins with no trigger",
				at->field, json_string_value(begin));
	json_array_append_new(all, json_pack("{s:s, s:[{s:s, s:O}, {s:s, s:O}, {s:s, s:O}]}", "type",
					     "sequence", "parts", "type", "literal", "text", begin, "type",
					     "schema", "schema", schema, "type", "literal", "text", end));
	return 0;
}

static int check_triggers(const struct place *at, const json_t *triggers)
{
	size_t i;
	const json_t *trigger;
	json_array_foreach(triggers, i, trigger) if (!json_string_length(trigger)) return api_fail(
		at->p, E_BAD_REQUEST, at->field, "%s: triggers[%zu] must be a string that is not empty",
		at->field, i);
	return 0;
}

/* Free text, in which each trigger begins one of the structures. */
static int tags_part(const struct place *at, const json_t *v, json_t **part)
{
	const json_t *triggers = json_object_get(v, "triggers"), *tags = json_object_get(v, "structures"),
		     *tag;
	size_t i;
	int rc = 0;
	if (json_get(v, "format"))
		return api_fail(at->p, E_BAD_REQUEST, at->field, "%s.format is not built yet", at->field);
	if (!json_array_size(triggers) || !json_array_size(tags))
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"%s: a structural tag must have structures and triggers, at least one each",
				at->field);
	if (check_triggers(at, triggers))
		return -EINVAL;
	json_t *all = json_array();
	json_array_foreach(tags, i, tag) if (!rc) rc = add_tag(at, tag, triggers, all);
	if (!rc)
		*part = json_pack("{s:s, s:[{s:s, s:{s:s, s:[{s:s, s:O}, {s:s, s:O}]}}, {s:s, s:O}]}", "type",
				  "sequence", "parts", "type", "repeat", "part", "type", "sequence", "parts",
				  "type", "text", "until", triggers, "type", "either", "parts", all, "type",
				  "text", "until", triggers);
	json_decref(all);
	return rc;
}

/* The text of one. */
static int tags_text_part(const struct place *at, const json_t *v, json_t **part)
{
	json_t *tags = NULL;
	char why[256];
	if (!json_is_string(v))
		return wrong(at, "a string of JSON");
	if (json_parse_within(json_string_value(v), json_string_length(v), schema_tree_max, &tags, NULL, why,
			      sizeof why))
		return api_fail(at->p, E_BAD_REQUEST, at->field, "%s: the structural tag is not JSON: %s",
				at->field, why);
	int rc = tags_part(at, tags, part);
	json_decref(tags);
	return rc;
}

/* ---- response_format ---- */

static int json_schema_part(const struct place *at, const json_t *format, json_t **part)
{
	const struct place in = {at->field, "json_schema", at->p};
	const json_t *o = json_object_get(format, "json_schema"), *strict = json_get(o, "strict"),
		     *schema = json_get(o, "schema");
	if (!json_is_object(o))
		return wrong(&in, "an object with a schema");
	if (strict && !json_is_boolean(strict))
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"response_format.json_schema.strict must be true or false");
	if (!schema)
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"response_format.json_schema.schema is missing");
	return schema_part(at, schema, part);
}

static int response_part(const struct place *at, const json_t *v, json_t **part)
{
	const json_t *of = json_object_get(v, "type"), *schema = json_get(v, "schema");
	const char *type = json_is_string(of) ? json_string_value(of) : "";
	if (!json_is_object(v) || !json_is_string(of))
		return wrong(at, "an object with a type");
	if (strcmp(type, "text") == 0)
		return 0;
	/* llama.cpp's form has the schema itself. */
	if (strcmp(type, "json_schema") == 0 && schema && !json_get(v, "json_schema"))
		return schema_part(at, schema, part);
	if (strcmp(type, "json_schema") == 0)
		return json_schema_part(at, v, part);
	if (strcmp(type, "structural_tag") == 0)
		return tags_part(at, v, part);
	if (strcmp(type, "json_object") == 0 && schema)
		return schema_part(at, schema, part);
	if (strcmp(type, "json_object") == 0)
		return object_part(at, json_true(), part);
	return api_fail(
		at->p, E_BAD_REQUEST, at->field,
		"response_format.type is %.64s, must be text, json_object, json_schema or structural_tag",
		type);
}

/* ---- structured_outputs ---- */

/* Options of schemas. */
static int check_options(const struct place *at, const json_t *v)
{
	static const char *const flags[] = {"disable_any_whitespace", "disable_additional_properties",
					    "disable_fallback"};
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (json_get(v, flags[i]) && !json_is_boolean(json_get(v, flags[i])))
			return api_fail(at->p, E_BAD_REQUEST, at->field, "%s.%s must be true or false",
					at->field, flags[i]);
	return 0;
}

/* Whitespace of a part that is a schema, from a field, or a key in it. */
static int apply_space(const struct place *at, const char *pattern, json_t *part)
{
	const char *dot = at->key ? "." : "", *key = at->key ? at->key : "";
	if (!part || !json_object_get(part, "schema"))
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"%s%s%s is the whitespace of JSON: it goes with a schema or a JSON object",
				at->field, dot, key);
	if (json_object_get(part, "space"))
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"%s%s%s: the whitespace of the output is set already", at->field, dot, key);
	json_object_set_new(part, "space", json_pack("{s:s}", "pattern", pattern));
	return 0;
}

/* A copy of a schema in which objects that list properties have no others, unless they say so; of a map of
 * schemas, each. */
static json_t *closed_schema(const json_t *v, bool map)
{
	static const char *const maps[] = {"properties",  "patternProperties", "$defs",
					   "definitions", "dependentSchemas",  NULL};
	static const char *const values[] = {"enum", "const", "default", "examples", NULL};
	const char *key;
	json_t *x;
	size_t i;
	if (json_is_array(v)) {
		json_t *list = json_array();
		json_array_foreach(v, i, x) json_array_append_new(list, closed_schema(x, false));
		return list;
	}
	if (!json_is_object(v))
		return json_incref((json_t *)v);
	json_t *copy = json_object();
	json_object_foreach((json_t *)v, key, x)
	{
		bool is_map = false, is_value = false;
		for (i = 0; !map && maps[i]; i++)
			is_map |= strcmp(key, maps[i]) == 0;
		for (i = 0; !map && values[i]; i++)
			is_value |= strcmp(key, values[i]) == 0;
		json_object_set_new(copy, key, is_value ? json_incref(x) : closed_schema(x, is_map));
	}
	if (!map && (json_object_get(v, "properties") || json_object_get(v, "patternProperties")) &&
	    !json_object_get(v, "additionalProperties"))
		json_object_set_new(copy, "additionalProperties", json_false());
	return copy;
}

/* What the options make of a part that is a schema; NULL: there is none. */
static int apply_options(const struct place *at, const json_t *v, json_t *part)
{
	const json_t *schema = json_object_get(part, "schema"), *space = json_get(v, "whitespace_pattern");
	const struct place in = {at->field, "whitespace_pattern", at->p};
	if (schema && json_is_true(json_object_get(v, "disable_additional_properties")))
		json_object_set_new(part, "schema", closed_schema(schema, false));
	if (schema && json_is_true(json_object_get(v, "disable_any_whitespace")))
		json_object_set_new(part, "space", json_string("none"));
	if (!space)
		return 0;
	if (!json_is_string(space) || json_string_length(space) > SPACE_BYTES_MAX ||
	    strlen(json_string_value(space)) != json_string_length(space))
		return wrong(&in, "a string of at most 1000 bytes without NUL");
	return json_string_length(space) ? apply_space(&in, json_string_value(space), part) : 0;
}

static int structured_part(const struct place *at, const json_t *v, json_t **part)
{
	static const struct {
		const char *key;
		int (*read)(const struct place *at, const json_t *v, json_t **part);
	} kinds[] = {{"json", schema_part},        {"regex", regex_part},
		     {"choice", choice_part},      {"grammar", grammar_part},
		     {"json_object", object_part}, {"structural_tag", tags_text_part}};
	static const char *const others[] = {"disable_any_whitespace", "disable_additional_properties",
					     "disable_fallback", "whitespace_pattern"};
	const char *first = NULL, *key;
	json_t *member;
	if (!json_is_object(v))
		return wrong(at, "an object");
	json_object_foreach((json_t *)v, key, member)
	{
		bool known = false;
		for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
			known |= strcmp(key, kinds[i].key) == 0;
		for (size_t i = 0; i < sizeof others / sizeof *others; i++)
			known |= strcmp(key, others[i]) == 0;
		if (!known)
			return api_fail(at->p, E_BAD_REQUEST, at->field, "%s.%.64s is not known", at->field,
					key);
	}
	int rc = check_options(at, v);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !rc; i++) {
		const json_t *x = json_get(v, kinds[i].key);
		const struct place in = {at->field, kinds[i].key, at->p};
		json_t *had = *part;
		if (!x)
			continue;
		*part = NULL;
		rc = kinds[i].read(&in, x, part);
		if (!rc && had && *part)
			rc = api_fail(at->p, E_BAD_REQUEST, at->field,
				      "%s has both %s and %s: only one is taken", at->field, first,
				      kinds[i].key);
		if (*part)
			first = kinds[i].key;
		if (*part && had)
			json_decref(had);
		else if (!*part)
			*part = had;
	}
	return rc ? rc : apply_options(at, v, *part);
}

/* ---- the whole ---- */

int form_request_part(const struct request_fields *f, json_t **part, const char **field,
		      struct api_problem *p)
{
	const struct {
		const char *name;
		const json_t *value;
		int (*read)(const struct place *at, const json_t *v, json_t **part);
	} all[] = {{"response_format", f->response_format, response_part},
		   {"structured_outputs", f->structured, structured_part},
		   {"guided_json", f->guided_json, schema_part},
		   {"guided_regex", f->guided_regex, regex_part},
		   {"guided_choice", f->guided_choice, choice_part},
		   {"guided_grammar", f->guided_grammar, grammar_part},
		   {"grammar", f->gbnf, gbnf_part},
		   {"json_schema", f->json_schema, schema_part}};
	int rc = 0;
	*part = NULL;
	*field = NULL;
	for (size_t i = 0; i < sizeof all / sizeof *all && !rc; i++) {
		const struct place at = {all[i].name, NULL, p};
		json_t *one = NULL;
		rc = all[i].value ? all[i].read(&at, all[i].value, &one) : 0;
		if (!rc && one && *part)
			rc = api_fail(p, E_BAD_REQUEST, all[i].name,
				      "%s and %s: only one may say what outputs look like", *field,
				      all[i].name);
		if (rc || !one) {
			json_decref(one);
			continue;
		}
		*part = one;
		*field = all[i].name;
	}
	if (!rc && f->guided_space)
		rc = apply_space(&(struct place){"guided_whitespace_pattern", NULL, p}, f->guided_space,
				 *part);
	if (rc) {
		json_decref(*part);
		*part = NULL;
	}
	return rc;
}

/* A part of jansson's output; nonzero: enough. */
static int put_bounded(const char *p, size_t n, void *user)
{
	struct buf *text = user;
	if (text->len + n > FORM_TEXT_MAX)
		return -1;
	buf_put(text, p, n);
	return 0;
}

/* A part that is one language is its text; others stay documents.  To be freed; NULL: too large. */
static char *source_of(const json_t *part, enum grammar_language *language, size_t *n)
{
	static const struct {
		const char *type, *key;
		enum grammar_language language;
	} plain[] = {{"schema", "schema", GRAMMAR_SCHEMA},
		     {"choice", "choices", GRAMMAR_CHOICE},
		     {"regex", "pattern", GRAMMAR_REGEX},
		     {"gbnf", "grammar", GRAMMAR_GBNF},
		     {"lark", "grammar", GRAMMAR_LARK}};
	const char *type = json_string_value(json_object_get(part, "type"));
	const json_t *v = part;
	*language = GRAMMAR_FORM;
	for (size_t i = 0; i < sizeof plain / sizeof *plain && json_object_size(part) == 2; i++)
		if (strcmp(type, plain[i].type) == 0) {
			*language = plain[i].language;
			v = json_object_get(part, plain[i].key);
		}
	if (json_is_string(v) && *language != GRAMMAR_SCHEMA) {
		*n = json_string_length(v);
		return xmemdup(json_string_value(v), *n + 1);
	}
	/* Parts that stand in several places are written in each: the text may be far larger than the tree.
	 */
	struct buf text = {0};
	if (json_dump_callback(v, put_bounded, &text, JSON_COMPACT | JSON_ENCODE_ANY)) {
		buf_fini(&text);
		return NULL;
	}
	*n = text.len;
	buf_putc(&text, '\0');
	return text.p;
}

/* 0, or what is wrong with it, in why. */
static int check(const struct form *f, char *why, size_t why_n)
{
	struct ast *ast = NULL;
	struct grammar *g = NULL;
	int rc = grammar_parse((enum grammar_language)f->language, f->text, f->n, NULL, &ast, why, why_n);
	if (!rc)
		rc = grammar_new(ast, NULL, NULL, &g, why, why_n);
	grammar_free(g);
	ast_free(ast);
	return rc;
}

int form_request_compile(const json_t *part, const char *field, struct checked *known, struct form **out,
			 struct api_problem *p)
{
	enum grammar_language language;
	size_t n;
	char why[400] = "";
	char *text = source_of(part, &language, &n);
	*out = NULL;
	if (!text || n > FORM_TEXT_MAX || n > GRAMMAR_SOURCE_MAX) {
		free(text);
		return api_fail(p, E_BAD_REQUEST, field, "%s is larger than %d MiB", field,
				FORM_TEXT_MAX >> 20);
	}
	struct form *f = form_new((uint8_t)language, text, n), *same = checked_form(known, f);
	free(text);
	if (!same && check(f, why, sizeof why)) {
		form_free(f);
		return api_fail(p, E_BAD_REQUEST, field, "%s: %s", field, why);
	}
	if (!same)
		checked_keep_form(known, f);
	else
		form_free(f);
	*out = same ? same : f;
	return 0;
}
