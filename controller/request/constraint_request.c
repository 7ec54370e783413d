#include "controller/request/constraint_request.h"

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

/* Source of a constraint, for errors: the request's field, and the key within it or NULL. */
struct place {
	const char *field, *key;
	struct api_problem *p;
};

static int wrong(const struct place *at, const char *must)
{
	return api_fail(at->p, E_BAD_REQUEST, at->field, "%s%s%s must be %s", at->field, at->key ? "." : "",
			at->key ? at->key : "", must);
}

/* Read a schema, or the text of a schema. */
static int schema_part(const struct place *at, const json_t *v, json_t **part)
{
	json_t *schema = NULL;
	struct why why;
	if (json_is_object(v) || json_is_boolean(v))
		schema = json_incref((json_t *)v);
	else if (!json_is_string(v))
		return wrong(at, "a JSON schema");
	else if (json_parse_within(json_string_value(v), json_string_length(v), schema_tree_max, &schema,
				   NULL, &why))
		return api_fail(at->p, E_BAD_REQUEST, at->field, "%s: the schema is not JSON: %s", at->field,
				why.text);
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

/* Return true for GBNF.  As in vLLM, a GBNF rule has ::= outside of comments. */
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

static int typed_part(const struct place *at, const json_t *v, json_t **part);

/* Read `grammar`: llama.cpp's is GBNF or llguidance's language; TGI's has a type. */
static int gbnf_or_typed_part(const struct place *at, const json_t *v, json_t **part)
{
	if (json_get(v, "type"))
		return typed_part(at, v, part);
	const char *text = json_is_string(v) ? json_string_value(v) : "";
	return text_part(at, v, strncmp(text, "%llguidance", 11) == 0 ? "lark" : "gbnf", "grammar", part);
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

/* Read Ollama's `format`. */
static int format_part(const struct place *at, const json_t *v, json_t **part)
{
	const char *word = json_is_string(v) ? json_string_value(v) : NULL;
	if (word && !*word)
		return 0;
	if (word && strcmp(word, "json") == 0)
		return object_part(at, json_true(), part);
	return json_is_object(v) ? schema_part(at, v, part) : wrong(at, "\"json\" or a JSON schema");
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

/* Read {begin, schema, end} and append it to all. */
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

/* Read structural tags: free text, in which each trigger begins one of the structures. */
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

static int tags_text_part(const struct place *at, const json_t *v, json_t **part);

/* Read structural tags, or their text. */
static int any_tags_part(const struct place *at, const json_t *v, json_t **part)
{
	if (json_is_string(v) && !json_string_length(v))
		return 0;
	return json_is_object(v) ? tags_part(at, v, part) : tags_text_part(at, v, part);
}

/* Read the text of structural tags. */
static int tags_text_part(const struct place *at, const json_t *v, json_t **part)
{
	json_t *tags = NULL;
	struct why why;
	if (!json_is_string(v))
		return wrong(at, "a string of JSON");
	if (json_parse_within(json_string_value(v), json_string_length(v), schema_tree_max, &tags, NULL,
			      &why))
		return api_fail(at->p, E_BAD_REQUEST, at->field, "%s: the structural tag is not JSON: %s",
				at->field, why.text);
	int rc = tags_part(at, tags, part);
	json_decref(tags);
	return rc;
}

/* ---- response_format ---- */

/* Read {"name", "schema", "strict"}, or the schema itself. */
static int json_schema_part(const struct place *at, const json_t *o, json_t **part)
{
	const struct place in = {at->field, "json_schema", at->p};
	const json_t *strict = json_get(o, "strict"), *schema = json_get(o, "schema");
	if (!json_is_object(o))
		return wrong(&in, "an object with a schema");
	if (strict && !json_is_boolean(strict))
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"%s.json_schema.strict must be true or false", at->field);
	if (!schema)
		return api_fail(at->p, E_BAD_REQUEST, at->field, "%s.json_schema.schema is missing",
				at->field);
	return schema_part(at, schema, part);
}

/* Read a schema in TGI's `value`: alone, or in an object like json_schema's. */
static int value_part(const struct place *at, const json_t *v, json_t **part)
{
	return json_is_object(json_get(v, "schema")) ? schema_part(at, json_get(v, "schema"), part)
						     : schema_part(at, v, part);
}

/* Constraint types and the member that holds each type's data: OpenAI's json_schema; llama.cpp's and
 * Fireworks' schema; TGI's value; Together's pattern; LMDeploy's regex_schema; Fireworks' grammar. */
static const struct {
	const char *type, *member;
	int (*read)(const struct place *at, const json_t *v, json_t **part);
} typed[] = {
	{"json_schema", "json_schema", json_schema_part},
	{"json_schema", "schema", schema_part},
	{"json_schema", "value", value_part},
	{"json_object", "schema", schema_part},
	{"json_object", "value", value_part},
	{"json", "value", value_part},
	{"json", "schema", schema_part},
	{"regex", "pattern", regex_part},
	{"regex", "value", regex_part},
	{"regex", "regex", regex_part},
	{"regex_schema", "regex_schema", regex_part},
	{"grammar", "grammar", grammar_part},
	{"structural_tag", NULL, tags_part},
	{"text", NULL, NULL},
};
enum { N_TYPED = sizeof typed / sizeof *typed };

/* Refuse members that constrain outputs but do not belong to the type. */
static int check_members(const struct place *at, const json_t *v, const char *type, const char *member)
{
	for (size_t i = 0; i < N_TYPED; i++) {
		const char *other = typed[i].member;
		if (other && json_get(v, other) && (!member || strcmp(other, member) != 0))
			return api_fail(at->p, E_BAD_REQUEST, at->field,
					"%s.%s does not go with the type %s%s%s", at->field, other, type,
					member ? " and " : "", member ? member : "");
	}
	return 0;
}

static int typed_part(const struct place *at, const json_t *v, json_t **part)
{
	const json_t *of = json_object_get(v, "type");
	const char *type = json_is_string(of) ? json_string_value(of) : "";
	size_t first = N_TYPED;
	if (!json_is_object(v) || !json_is_string(of))
		return wrong(at, "an object with a type");
	for (size_t i = N_TYPED; i > 0; i--)
		if (strcmp(typed[i - 1].type, type) == 0 &&
		    (first == N_TYPED || json_get(v, typed[i - 1].member) ||
		     !json_get(v, typed[first].member)))
			first = i - 1;
	if (first == N_TYPED)
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"%s.type is %.64s, must be text, json_object, json_schema, regex, grammar or "
				"structural_tag",
				at->field, type);
	const char *member = typed[first].member;
	const json_t *x = member ? json_get(v, member) : v;
	if (check_members(at, v, type, x ? member : NULL))
		return -EINVAL;
	if (!x && strncmp(type, "json", 4) == 0 && strcmp(type, "json_schema") != 0)
		return object_part(at, json_true(), part);
	if (!x && typed[first].read != json_schema_part)
		return wrong(&(struct place){at->field, member, at->p}, "given");
	return typed[first].read ? typed[first].read(at, x, part) : 0;
}

/* ---- structured_outputs ---- */

/* Check the options of schemas. */
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

/* Set the whitespace of a constraint that is a schema.  The pattern comes from a field, or from a key in
 * it. */
static int apply_space(const struct place *at, const char *pattern, json_t *part)
{
	const char *dot = at->key ? "." : "", *key = at->key ? at->key : "";
	if (!part || !json_object_get(part, "schema"))
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"%s%s%s is the whitespace of JSON: it goes with a schema or a JSON object",
				at->field, dot, key);
	const json_t *had = json_object_get(part, "space");
	const char *same = json_string_value(json_object_get(had, "pattern"));
	if (had && !(same && strcmp(same, pattern) == 0))
		return api_fail(at->p, E_BAD_REQUEST, at->field,
				"%s%s%s: the whitespace of the output is set already", at->field, dot, key);
	json_object_set_new(part, "space", json_pack("{s:s}", "pattern", pattern));
	return 0;
}

/* Apply the options to a constraint that is a schema; part NULL: there is none. */
static int apply_options(const struct place *at, const json_t *v, json_t *part)
{
	const json_t *schema = json_object_get(part, "schema"), *space = json_get(v, "whitespace_pattern");
	const struct place in = {at->field, "whitespace_pattern", at->p};
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

/* ---- the whole request ---- */

/* Return true if two constraints are equal apart from whitespace; the whitespace that either sets stays in
 * *part.  Clients send the same constraint in a server's older field and in its newer one. */
static bool merge(json_t **part, const json_t *one)
{
	json_t *a = json_copy(*part), *b = json_copy((json_t *)one);
	const json_t *space = json_object_get(one, "space"); /* set by structured_outputs only */
	json_object_del(a, "space");
	json_object_del(b, "space");
	const bool same = json_equal(a, b);
	if (same && space)
		json_object_set(*part, "space", (json_t *)space);
	json_decref(a);
	json_decref(b);
	return same;
}

int constraint_request_part(const struct request_fields *f, json_t **part, const char **field,
			    struct api_problem *p)
{
	const struct {
		const char *name;
		const json_t *value;
		int (*read)(const struct place *at, const json_t *v, json_t **part);
	} all[] = {{"response_format", f->response_format, typed_part},
		   {"structured_outputs", f->structured, structured_part},
		   {"guided_json", f->guided_json, schema_part},
		   {"guided_regex", f->guided_regex, regex_part},
		   {"guided_choice", f->guided_choice, choice_part},
		   {"guided_grammar", f->guided_grammar, grammar_part},
		   {"grammar", f->gbnf, gbnf_or_typed_part},
		   {"json_schema", f->json_schema, schema_part},
		   {"schema", f->schema, schema_part},
		   {"regex", f->regex, regex_part},
		   {"ebnf", f->ebnf, grammar_part},
		   {"format", f->format, format_part},
		   {"structural_tag", f->structural, any_tags_part}};
	int rc = 0;
	*part = NULL;
	*field = NULL;
	for (size_t i = 0; i < sizeof all / sizeof *all && !rc; i++) {
		const struct place at = {all[i].name, NULL, p};
		json_t *one = NULL;
		rc = all[i].value ? all[i].read(&at, all[i].value, &one) : 0;
		const bool merged = !rc && one && *part && merge(part, one);
		if (!rc && one && *part && !merged)
			rc = api_fail(p, E_BAD_REQUEST, all[i].name,
				      "%s and %s: only one may say what outputs look like", *field,
				      all[i].name);
		if (rc || merged || !one) {
			json_decref(one);
			continue;
		}
		*part = one;
		*field = all[i].name;
	}
	if (!rc && f->guided_space)
		rc = apply_space(&(struct place){"guided_whitespace_pattern", NULL, p}, f->guided_space,
				 *part);
	if (!rc && constraint_request_exact(f) && json_is_object(json_object_get(*part, "space")))
		json_object_set_new(json_object_get(*part, "space"), "max", json_null());
	if (rc) {
		json_decref(*part);
		*part = NULL;
	}
	return rc;
}

bool constraint_request_exact(const struct request_fields *f)
{
	return f->schema_exact &&
	       !json_is_true(json_object_get(f->structured, "disable_additional_properties"));
}

/* Take a chunk of jansson's output; nonzero: too much. */
static int put_bounded(const char *p, size_t n, void *user)
{
	struct buf *text = user;
	if (text->len + n > CONSTRAINT_TEXT_MAX)
		return -1;
	buf_put(text, p, n);
	return 0;
}

/* Return the source text of a constraint: the text itself if it is in one language, otherwise a JSON
 * document.  bounded: its schemas are bounded.  The caller frees it.  NULL: too large. */
static char *source_of(const json_t *part, bool bounded, enum grammar_language *language, size_t *n)
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
	json_t *whole = NULL;
	const json_t *v = part;
	*language = GRAMMAR_COMPOSITE;
	for (size_t i = 0; i < sizeof plain / sizeof *plain && json_object_size(part) == 2; i++)
		if (strcmp(type, plain[i].type) == 0) {
			*language = plain[i].language;
			v = json_object_get(part, plain[i].key);
		}
	if (json_is_string(v) && *language != GRAMMAR_SCHEMA) {
		*n = json_string_length(v);
		return xmemdup(json_string_value(v), *n + 1);
	}
	if (bounded && *language == GRAMMAR_SCHEMA)
		*language = GRAMMAR_SCHEMA_BOUNDED;
	if (bounded && *language == GRAMMAR_COMPOSITE)
		v = whole = json_pack("{s:s, s:O}", "type", "bounded", "part", part);
	/* A subtree that is referenced in several places is written in each, so the text may be far larger
	 * than the tree. */
	struct buf text = {0};
	const int rc = json_dump_callback(v, put_bounded, &text, JSON_COMPACT | JSON_ENCODE_ANY);
	json_decref(whole);
	if (rc) {
		buf_fini(&text);
		return NULL;
	}
	*n = text.len;
	buf_putc(&text, '\0');
	return text.p;
}

/* Check a constraint.  Returns 0, or an error with the reason in why. */
static int check(const struct constraint *f, struct grammar_account *account, struct why *why)
{
	const struct ast_limits tree = {.account = account};
	const struct grammar_limits limits = {.work = {.account = account}};
	struct ast *ast = NULL;
	struct grammar *g = NULL;
	int rc = grammar_parse((enum grammar_language)f->language, f->text, f->n, &tree, &ast, why);
	if (!rc)
		rc = grammar_new(ast, NULL, &limits, &g, why);
	grammar_free(g);
	ast_free(ast);
	return rc;
}

int constraint_request_spent(const char *field, const char *why, struct api_problem *p)
{
	return api_fail(p, E_BAD_REQUEST, field,
			"%s: %s: more than %d units, the limit of a request: use fewer or simpler patterns "
			"(.* at the start, large counts and several patterns for the same text cost most), "
			"or fewer alternatives",
			field, *why ? why : "the grammar takes too much work", CONSTRAINT_WORK_MAX);
}

int constraint_request_compile(const json_t *part, const char *field, bool exact, struct checked *known,
			       struct grammar_account *account, struct constraint **out,
			       struct api_problem *p)
{
	enum grammar_language language;
	size_t n;
	struct why why = {""};
	char *text = source_of(part, !exact, &language, &n);
	*out = NULL;
	if (!text || n > CONSTRAINT_TEXT_MAX || n > GRAMMAR_SOURCE_MAX) {
		free(text);
		return api_fail(p, E_BAD_REQUEST, field, "%s is larger than %d MiB", field,
				CONSTRAINT_TEXT_MAX >> 20);
	}
	struct constraint *f = constraint_new((uint8_t)language, text, n),
			  *same = checked_constraint(known, f);
	free(text);
	const int rc = same ? 0 : check(f, account, &why);
	if (rc) {
		constraint_free(f);
		return rc == -EAGAIN ? constraint_request_spent(field, why.text, p)
				     : api_fail(p, E_BAD_REQUEST, field, "%s: %s", field, why.text);
	}
	if (!same)
		checked_keep_constraint(known, f);
	else
		constraint_free(f);
	*out = same ? same : f;
	return 0;
}
