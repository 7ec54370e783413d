/* tools_grammar_args.c - the grammar of a call's arguments: JSON, pairs between tags, or literals. */
#include "controller/chat/tools_grammar_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "controller/chat/tools_impl.h"
#include "grammar/grammar.h"
#include "grammar/schema/schema.h"
#include "grammar/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUOTED_DEPTH_MAX = 3 /* nesting of values in a format with its own quote */ };

/* A member of the arguments. */
struct member {
	const char *key;
	json_t *schema; /* owned */
	const json_t
		*whole; /* the schema of all arguments, if the member's schema refers into it; else NULL */
	bool required;
};

struct members {
	struct member *all; /* owned */
	size_t n;
	json_t *required; /* owned: a set of the required keys without a property */
};

static int schema_usable(const json_t *schema, struct grammar_account *account, struct why *why)
{
	const struct ast_limits tree = {.account = account};
	struct ast *a = NULL;
	char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
	int rc = text ? grammar_parse(GRAMMAR_SCHEMA, text, strlen(text), &tree, &a, why)
		      : err_why(why, -EINVAL, "the schema is not JSON");
	ast_free(a);
	free(text);
	return rc;
}

/* Return {"type": "schema", "schema": schema}.  Takes ownership of schema. */
static json_t *schema_part(json_t *schema)
{
	return json_pack("{s:s, s:o}", "type", "schema", "schema", schema);
}

/* Return the schema of the arguments as an object schema, with the type added if missing. */
static int object_schema(const json_t *parameters, json_t **out, struct why *why)
{
	const json_t *type = json_object_get(parameters, "type");
	if (!json_is_object(parameters)) {
		*out = json_pack("{s:s, s:b}", "type", "object", "additionalProperties", 0);
		return 0;
	}
	if (type && (!json_is_string(type) || strcmp(json_string_value(type), "object") != 0))
		return err_why(why, -EINVAL, "parameters: #: the type must be \"object\"");
	*out = json_copy((json_t *)parameters);
	if (!type)
		json_object_set_new(*out, "type", json_string("object"));
	return 0;
}

static int json_arguments(json_t *schema, bool strict, struct grammar_account *account, json_t **out,
			  struct why *why)
{
	struct why text;
	int rc = schema_usable(schema, account, &text);
	if (rc == -EAGAIN || (rc && strict))
		return err_why(why, rc, "parameters: %s", text.text);
	*out = schema_part(rc ? json_pack("{s:s}", "type", "object") : json_incref(schema));
	return 0;
}

/* ---- members ---- */

/* Return true if v contains a reference, so that it depends on its document. */
static bool refers(const json_t *v)
{
	const char *key;
	json_t *x;
	size_t i;
	json_object_foreach((json_t *)v, key,
			    x) if ((strcmp(key, "$ref") == 0 && json_is_string(x)) || refers(x)) return true;
	json_array_foreach(v, i, x) if (refers(x)) return true;
	return false;
}

static json_t *schema_of_value(const json_t *value)
{
	return json_is_object(value)  ? json_incref((json_t *)value)
	       : json_is_false(value) ? json_pack("{s:{}}", "not")
				      : json_object();
}

/* Return the strings of a list as the keys of an object. */
static json_t *set_of(const json_t *list)
{
	json_t *set = json_object(), *v;
	size_t i;
	json_array_foreach(list, i, v) if (json_is_string(v))
		json_object_set_new(set, json_string_value(v), json_null());
	return set;
}

/* Refuse assertions on the object as a whole, which pairs cannot enforce. */
static int check_whole(const json_t *schema, struct why *why)
{
	static const char *const fine[] = {"type",        "properties", "required", "additionalProperties",
					   "description", "title",      "$defs",    "definitions",
					   "$schema",     "$id",        "$comment", "default",
					   "examples",    "strict",     NULL};
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)schema, key, v)
	{
		bool known = strncmp(key, "x-", 2) == 0;
		for (size_t i = 0; fine[i]; i++)
			known |= strcmp(key, fine[i]) == 0;
		if (!known)
			return err_why(
				why, -ENOTSUP,
				"parameters: #: %.64s is not supported in this model's format of calls", key);
	}
	return 0;
}

static void member_add(struct members *m, const json_t *whole, const char *key, const json_t *value,
		       bool required)
{
	m->all[m->n++] = (struct member){key, schema_of_value(value), refers(value) ? whole : NULL, required};
}

static struct members members_of(const json_t *schema)
{
	json_t *properties = json_object_get(schema, "properties"), *v;
	json_t *required = set_of(json_object_get(schema, "required"));
	struct members m = {.required = required};
	const char *key;
	m.all = xcalloc(json_object_size(properties) + json_object_size(required) + 1, sizeof *m.all);
	json_object_foreach(properties, key, v)
		member_add(&m, schema, key, v, json_object_get(required, key) != NULL);
	json_object_foreach(required, key, v) if (!json_object_get(properties, key))
		member_add(&m, schema, key, NULL, true);
	return m;
}

static void members_fini(struct members *m)
{
	for (size_t i = 0; i < m->n; i++)
		json_decref(m->all[i].schema);
	free(m->all);
	json_decref(m->required);
}

/* ---- pairs between tags ---- */

/* Return true if the schema accepts any string. */
static bool is_plain(const json_t *schema)
{
	static const char *const asserts[] = {"enum",      "const", "pattern", "format", "minLength",
					      "maxLength", "anyOf", "oneOf",   "allOf",  "not",
					      "if",        "$ref",  NULL};
	for (size_t i = 0; asserts[i]; i++)
		if (json_object_get(schema, asserts[i]))
			return false;
	return true;
}

/* Set the member's schema in a part. */
static void put_schema(json_t *part, const struct member *e)
{
	json_object_set(part, "schema", e->whole ? (json_t *)e->whole : e->schema);
	if (e->whole)
		json_object_set_new(part, "property", json_string(e->key));
}

static json_t *member_schema_part(const struct member *e)
{
	json_t *part = json_pack("{s:s}", "type", "schema");
	put_schema(part, e);
	return part;
}

static json_t *text_value(const struct call_maker *m, const struct member *e)
{
	json_t *part = composite_text(json_pack("[s]", m->f->tags.value_close));
	if (!is_plain(e->schema))
		put_schema(part, e);
	return part;
}

static json_t *json_value(const struct call_maker *m, const struct member *e)
{
	json_t *part = member_schema_part(e);
	json_object_set_new(part, "without", json_string(m->f->tags.value_close));
	return part;
}

/* Return open VALUE, with the newlines of the spelling. */
static json_t *enclosed(const struct call_maker *m, const char *open, json_t *value)
{
	const char *line = m->s->line;
	json_t *parts = json_array();
	composite_put_spelled(parts, open, &m->g->specials);
	composite_put_spelled(parts, line, &m->g->specials);
	json_array_append_new(parts, value);
	composite_put_spelled(parts, line, &m->g->specials);
	return composite_sequence(parts);
}

static json_t *pair_value_part(const struct call_maker *m, const struct member *e)
{
	const struct tools_tags *t = &m->f->tags;
	const enum tools_arg_kind kind = tools_arg_kind_of(e->schema);
	const char *text_open = t->text_open ? t->text_open : t->value_open;
	if (kind == ARG_ANY)
		return enclosed(m, t->value_open, json_value(m, e));
	json_t *text = enclosed(m, text_open, text_value(m, e));
	if (kind == ARG_TEXT)
		return text;
	return composite_either(
		json_pack("[o, o]", text, enclosed(m, t->value_open, composite_literal("null", 4))));
}

static json_t *pair_part(const struct call_maker *m, json_t *key, json_t *value)
{
	const struct tools_tags *t = &m->f->tags;
	json_t *parts = json_array();
	composite_put_spelled(parts, t->key_open, &m->g->specials);
	json_array_append_new(parts, key);
	composite_put_spelled(parts, t->key_close, &m->g->specials);
	composite_put_spelled(parts, m->s->gap, &m->g->specials);
	json_array_append_new(parts, value);
	composite_put_spelled(parts, t->value_close, &m->g->specials);
	composite_put_spelled(parts, m->s->pair_end, &m->g->specials);
	return composite_sequence(parts);
}

static bool key_fits(const struct call_maker *m, const char *key, bool pairs)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	const size_t n = strlen(key);
	if (!n || n > TOOLS_KEY_MAX)
		return false;
	return pairs ? !strstr(key, m->f->tags.key_close) : strspn(key, letters) == n;
}

/* Return true for a text or scalar, which can follow its schema; other values are not written as JSON. */
static bool is_quotable(const json_t *schema)
{
	static const char *const types[] = {"integer", "number", "boolean", "null", NULL};
	const char *type = json_string_value(json_object_get(schema, "type"));
	for (size_t i = 0; type && types[i]; i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return tools_arg_kind_of(schema) != ARG_ANY;
}

/* Count the bytes that the member adds.  A member with a reference includes the whole schema. */
static int charge(const struct call_maker *m, const struct member *e)
{
	*m->bytes += json_dumpb(e->whole ? e->whole : e->schema, NULL, 0, JSON_COMPACT);
	return *m->bytes <= GRAMMAR_SOURCE_MAX
		       ? 0
		       : err_why(m->why, -E2BIG,
				 "parameters: the schemas of the values, with what they refer to, are larger "
				 "than %d MiB",
				 GRAMMAR_SOURCE_MAX >> 20);
}

/* Return true if the schema has values that do not contain the closing tag; others cannot be written. */
static bool has_writable_value(const struct call_maker *m, const struct member *e)
{
	const char *close = m->f->tags.value_close;
	char *text = close ? json_dumps(e->whole ? e->whole : e->schema, JSON_ENCODE_ANY) : NULL;
	const bool doubtful = text && strstr(text, close);
	free(text);
	if (!doubtful)
		return true;
	const struct ast_limits tree = {.account = m->g->account};
	const struct grammar_limits limits = {.work = {.account = m->g->account}};
	struct ast *a = NULL;
	struct grammar *g = NULL;
	json_t *part = pair_value_part(m, e);
	text = json_dumps(part, JSON_ENCODE_ANY);
	const bool none = grammar_parse(GRAMMAR_COMPOSITE, text, strlen(text), &tree, &a, NULL) == 0 &&
			  grammar_new(a, NULL, &limits, &g, NULL) == -EINVAL;
	grammar_free(g);
	ast_free(a);
	free(text);
	json_decref(part);
	return !none;
}

/* Check that the schema of the value is supported; why names the place in the whole schema. */
static int value_usable(const struct call_maker *m, const struct member *e, struct why *why)
{
	const bool any = tools_arg_kind_of(e->schema) == ARG_ANY;
	const struct schema_options o = {.property = e->whole ? e->key : NULL,
					 .steps = m->steps,
					 .without = any ? m->f->tags.value_close : NULL};
	struct why text;
	struct ast *a = ast_new(&(struct ast_limits){.account = m->g->account});
	int node, rc = schema_node(a, e->whole ? e->whole : e->schema, &o, &node, &text);
	ast_free(a);
	if (rc && grammar_is_spent(m->g->account))
		rc = -EAGAIN;
	if (!rc && !has_writable_value(m, e))
		return err_why(
			why, -ENOTSUP,
			"#/properties/%.64s: every value holds %s, which ends it in this model's format of "
			"calls",
			e->key, m->f->tags.value_close);
	if (!rc)
		return 0;
	if (e->whole || strncmp(text.text, "#", 1) != 0)
		return err_why(why, rc, "%s", text.text);
	return err_why(why, rc, "#/properties/%.64s%s", e->key, text.text + 1);
}

/* Remove members that cannot be written, or refuse them; unsupported schemas become any value. */
static int check_members(const struct call_maker *m, struct members *all, bool strict, bool pairs)
{
	struct why why;
	size_t n = 0;
	for (size_t i = 0; i < all->n; i++) {
		struct member *e = &all->all[i];
		const bool fits = key_fits(m, e->key, pairs);
		if (!fits && (strict || e->required))
			return err_why(m->why, -ENOTSUP,
				       "parameters: #/properties/%.64s: this name cannot be written in this "
				       "model's format of calls",
				       e->key);
		if (!fits) {
			json_decref(e->schema);
			e->schema = NULL;
			continue;
		}
		int rc = charge(m, e);
		if (rc)
			return rc;
		rc = value_usable(m, e, &why);
		if (!rc && strict && m->f->literals.quote && !is_quotable(e->schema))
			rc = err_why(
				&why, -ENOTSUP,
				"#/properties/%.64s: a value that is not a text, number or boolean is not "
				"supported in this model's format of calls",
				e->key);
		if (rc == -EAGAIN || (rc && strict))
			return err_why(m->why, rc, "parameters: %s", why.text);
		if (rc) {
			const bool text = tools_arg_kind_of(e->schema) == ARG_TEXT;
			json_decref(e->schema);
			e->schema = text ? json_pack("{s:s}", "type", "string") : json_object();
			e->whole = NULL;
		}
		if (n < i) {
			all->all[n] = *e;
			e->schema = NULL;
		}
		n++;
	}
	all->n = n;
	return 0;
}

static json_t *pairs_part(const struct call_maker *m, const struct members *all)
{
	json_t *parts = json_array();
	for (size_t i = 0; i < all->n; i++) {
		const struct member *e = &all->all[i];
		json_t *pair = pair_part(m, composite_literal(e->key, strlen(e->key)), pair_value_part(m, e));
		json_array_append_new(parts, e->required ? pair : composite_option(pair));
	}
	return composite_sequence(parts);
}

/* ---- literals ---- */

/* Make texts of a format with its own quote, without escapes; e NULL: any text. */
static json_t *quoted_text(const struct call_maker *m, const struct member *e)
{
	const char *quote = m->f->literals.quote;
	json_t *parts = json_array(), *text = composite_text(json_pack("[s]", quote));
	if (e && !is_plain(e->schema))
		put_schema(text, e);
	composite_put_spelled(parts, quote, &m->g->specials);
	json_array_append_new(parts, text);
	composite_put_spelled(parts, quote, &m->g->specials);
	return composite_sequence(parts);
}

static json_t *numbered_rule(const char *name, size_t n)
{
	char text[32];
	snprintf(text, sizeof text, "%s%zu", name, n);
	return json_pack("{s:s, s:s}", "type", "rule", "name", text);
}

static void put_rule(json_t *rules, const char *name, size_t n, json_t *part)
{
	char text[32];
	snprintf(text, sizeof text, "%s%zu", name, n);
	json_object_set_new(rules, text, part);
}

/* Make a list of min to max values or key:value pairs. */
static json_t *quoted_list(const char *open, json_t *item, int min, int max, const char *close)
{
	json_t *comma = composite_literal(",", 1), *parts = json_array();
	json_array_append_new(parts, composite_literal(open, 1));
	json_t *more = composite_sequence(json_pack("[o, O]", comma, item));
	json_t *some = composite_sequence(json_pack(
		"[o, o]", item, composite_repeat(more, min > 1 ? min - 1 : 0, max < 1 ? 0 : max - 1)));
	if (max == 0)
		json_decref(some);
	else
		json_array_append_new(parts, min ? some : composite_option(some));
	json_array_append_new(parts, composite_literal(close, 1));
	return composite_sequence(parts);
}

/* Make values of any schema, scalars and lists, as the rules any0 (the most nested), any1, ... */
static void put_quoted_any(const struct call_maker *m, json_t *rules)
{
	for (size_t depth = 0; depth <= QUOTED_DEPTH_MAX; depth++) {
		json_t *all = json_array();
		json_array_append_new(all, quoted_text(m, NULL));
		json_array_append_new(
			all, schema_part(json_pack("{s:[s,s,s]}", "type", "number", "boolean", "null")));
		if (depth < QUOTED_DEPTH_MAX) {
			json_t *item = numbered_rule("any", depth + 1);
			json_t *pair = composite_sequence(
				json_pack("[o, o, O]", composite_regex("[A-Za-z_][A-Za-z0-9_]{0,63}"),
					  composite_literal(":", 1), item));
			json_array_append_new(all, quoted_list("[", item, 0, 1000, "]"));
			json_array_append_new(all, quoted_list("{", pair, 0, 1000, "}"));
		}
		put_rule(rules, "any", depth, composite_either(all));
	}
}

static json_t *quoted_value(const struct call_maker *m, const struct member *e)
{
	const enum tools_arg_kind kind = tools_arg_kind_of(e->schema);
	if (!is_quotable(e->schema))
		return numbered_rule("any", 0);
	if (kind == ARG_ANY)
		return member_schema_part(e);
	json_t *text = quoted_text(m, e);
	return kind == ARG_TEXT ? text
				: composite_either(json_pack("[o, o]", text, composite_literal("null", 4)));
}

static json_t *literal_value_part(const struct call_maker *m, const struct member *e)
{
	if (m->f->literals.quote)
		return quoted_value(m, e);
	json_t *part = member_schema_part(e);
	json_object_set_new(part, "strings", json_string("short"));
	json_object_set_new(part, "words", json_string("python"));
	return part;
}

static json_t *literal_part(const struct call_maker *m, const struct member *e)
{
	json_t *parts = json_array();
	json_array_append_new(parts, composite_literal(e->key, strlen(e->key)));
	json_array_append_new(parts, composite_literal(&m->f->literals.between, 1));
	json_array_append_new(parts, literal_value_part(m, e));
	return composite_sequence(parts);
}

/* Each member up to the first required one may be the first; the others follow in order:
 *
 *     any of   member0 behind0, member1 behind1, ...      behind0 ::= (", " member1)? behind1 */
static json_t *literals_part(const struct call_maker *m, const struct members *all)
{
	const char *comma = m->f->literals.quote ? "," : ", ";
	json_t *ways = json_array(), *rules = json_object();
	bool required = false;
	if (m->f->literals.quote)
		put_quoted_any(m, rules);
	for (size_t i = 0; i < all->n; i++) {
		const struct member *e = &all->all[i];
		put_rule(rules, "member", i, literal_part(m, e));
		if (i) {
			json_t *more = composite_sequence(json_pack("[o, o]",
								    composite_literal(comma, strlen(comma)),
								    numbered_rule("member", i)));
			json_t *behind = json_pack("[o, o]", e->required ? more : composite_option(more),
						   numbered_rule("behind", i));
			put_rule(rules, "behind", i - 1, composite_sequence(behind));
		}
		if (!required)
			json_array_append_new(
				ways, composite_sequence(json_pack("[o, o]", numbered_rule("member", i),
								   numbered_rule("behind", i))));
		required = required || e->required;
	}
	if (all->n)
		put_rule(rules, "behind", all->n - 1, composite_sequence(json_array()));
	if (!required)
		json_array_append_new(ways, composite_sequence(json_array()));
	return json_pack("{s:s, s:o, s:o}", "type", "rules", "rules", rules, "part", composite_either(ways));
}

/* ---- */

static enum tools_op op_of(const struct tools_format *f)
{
	for (int i = 0; i < TOOLS_STEPS_MAX; i++)
		if (f->steps[i].op == TOOLS_OP_PAIRS || f->steps[i].op == TOOLS_OP_LITERALS)
			return f->steps[i].op;
	return TOOLS_OP_JSON;
}

int arguments_part(const struct call_maker *m, const json_t *function, json_t **out)
{
	const bool strict = json_is_true(json_object_get(function, "strict"));
	const bool pairs = op_of(m->f) == TOOLS_OP_PAIRS;
	json_t *schema = NULL;
	*out = NULL;
	int rc = object_schema(json_object_get(function, "parameters"), &schema, m->why);
	if (rc == 0 && op_of(m->f) == TOOLS_OP_JSON) {
		rc = json_arguments(schema, strict, m->g->account, out, m->why);
	} else if (rc == 0) {
		struct members all = members_of(schema);
		if (strict)
			rc = check_whole(schema, m->why);
		if (rc == 0)
			rc = check_members(m, &all, strict, pairs);
		if (rc == 0)
			*out = pairs ? pairs_part(m, &all) : literals_part(m, &all);
		members_fini(&all);
	}
	json_decref(schema);
	return rc;
}
