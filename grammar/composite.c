/* composite.c - compiles a document part by part, one function per type. */
#include "grammar/composite.h"
#include "grammar/gbnf.h"
#include "grammar/lark.h"
#include "grammar/lexicon.h"
#include "grammar/regex.h"
#include "grammar/schema/schema.h"
#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t json_tree_max = (size_t)256 << 20;
enum { PATH_SHOWN = 200 };

struct scope;

struct composite_parser {
	struct ast *a;
	struct buf path; /* path of the current part, "#/parts/1" */
	const struct scope *scope;
	bool bounded; /* the schemas of the current part are bounded */
	int depth;
	int err;
	struct why *why;
};

static int part_node(struct composite_parser *f, const json_t *part);

/* Record the first error with the path.  Returns AST_FAILED. */
static int fail(struct composite_parser *f, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int fail(struct composite_parser *f, int err, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	if (f->err)
		return AST_FAILED;
	va_start(ap, fmt);
	format_text(text, sizeof text, fmt, ap);
	va_end(ap);
	f->err = err;
	err_why(f->why, err, "composite: %.*s%s: %s", PATH_SHOWN, f->path.p,
		f->path.len > PATH_SHOWN ? "..." : "", text);
	return AST_FAILED;
}

/* Extend the path by a member.  Pass the result to path_back() to restore it. */
static size_t path_to(struct composite_parser *f, const char *key, size_t i)
{
	const size_t back = f->path.len;
	buf_printf(&f->path, "/%s", key);
	if (i != SIZE_MAX)
		buf_printf(&f->path, "/%zu", i);
	return back;
}

static void path_back(struct composite_parser *f, size_t back)
{
	f->path.len = back;
	f->path.p[back] = '\0';
}

/* Check a node made by another parser; errors of that parser lack the path. */
static int checked(struct composite_parser *f, int node)
{
	struct why text = {""};
	if (node != AST_FAILED || f->err)
		return f->err ? AST_FAILED : node;
	int rc = ast_check(f->a, &text);
	return fail(f, rc ? rc : -EINVAL, "%s", text.text);
}

/* ---- members ---- */

static const json_t *string_of(struct composite_parser *f, const json_t *part, const char *key)
{
	const json_t *v = json_object_get(part, key);
	if (!json_is_string(v)) {
		fail(f, -EINVAL, "\"%s\" must be a string", key);
		return NULL;
	}
	return v;
}

/* Return the nodes of an array of strings, which the caller frees, and set *n; NULL: an error. */
static int *strings_of(struct composite_parser *f, const json_t *list, const char *key, size_t *n)
{
	size_t i;
	json_t *v;
	*n = json_array_size(list);
	if (!json_is_array(list) || !*n) {
		fail(f, -EINVAL, "\"%s\" must be an array of strings", key);
		return NULL;
	}
	int *nodes = xcalloc(*n, sizeof *nodes);
	json_array_foreach(list, i, v)
	{
		if (!json_is_string(v)) {
			fail(f, -EINVAL, "\"%s\": item %zu is not a string", key, i);
			free(nodes);
			return NULL;
		}
		nodes[i] = ast_literal(f->a, json_string_value(v), json_string_length(v));
	}
	return nodes;
}

/* Refuse members that this type does not have, rather than ignore them. */
static int check_members(struct composite_parser *f, const json_t *part, const char *const *known)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)part, key, v)
	{
		bool is_known = strcmp(key, "type") == 0;
		for (size_t i = 0; known[i]; i++)
			is_known |= strcmp(key, known[i]) == 0;
		if (!is_known)
			return fail(f, -EINVAL, "\"%.64s\" is not a member of this type", key);
	}
	return 0;
}

/* ---- types ---- */

static int schema_part(struct composite_parser *f, const json_t *part, struct schema_options *o)
{
	struct why text = {""};
	int node = AST_FAILED;
	const json_t *schema = json_object_get(part, "schema");
	if (!schema)
		return fail(f, -EINVAL, "\"schema\" is missing");
	const size_t back = path_to(f, "schema", SIZE_MAX);
	o->bounded = f->bounded;
	int rc = schema_node(f->a, schema, o, &node, &text);
	if (rc)
		fail(f, rc, "%s", text.text);
	path_back(f, back);
	return node;
}

/* Parse "one", "none", {"pattern": "..."} or {"pattern": "...", "max": null}. */
static int space_of(struct composite_parser *f, const json_t *v, struct schema_options *o)
{
	const json_t *pattern = json_object_get(v, "pattern");
	const bool any_length = json_is_null(json_object_get(v, "max"));
	const char *word = v ? json_string_value(v) : "one";
	if (word && strcmp(word, "none") == 0)
		o->space = SCHEMA_SPACE_COMPACT;
	else if (word && strcmp(word, "one") == 0)
		o->space = SCHEMA_SPACE_ONE;
	else if (json_object_size(v) == 1u + any_length && json_is_string(pattern) &&
		 strlen(json_string_value(pattern)) == json_string_length(pattern)) {
		o->space = SCHEMA_SPACE_PATTERN;
		o->space_pattern = json_string_value(pattern);
		o->max_space = any_length ? UINT_MAX : 0;
	} else
		return fail(f, -EINVAL,
			    "\"space\" must be \"one\", \"none\" or {\"pattern\": a string without NUL}");
	return 0;
}

static int type_schema(struct composite_parser *f, const json_t *part)
{
	struct schema_options o = {0};
	const json_t *strings = json_object_get(part, "strings");
	const char *s = strings ? json_string_value(strings) : "json";
	if (!s || (strcmp(s, "json") != 0 && strcmp(s, "short") != 0))
		return fail(f, -EINVAL, "\"strings\" must be \"json\" or \"short\"");
	o.strings = strcmp(s, "short") == 0 ? SCHEMA_STRINGS_SHORT : SCHEMA_STRINGS_JSON;
	const json_t *without = json_object_get(part, "without");
	if (without && (!json_string_length(without) || strpbrk(json_string_value(without), "\"\\")))
		return fail(f, -EINVAL, "\"without\" must be a text without quotes and backslashes");
	o.without = json_string_value(without);
	if (space_of(f, json_object_get(part, "space"), &o))
		return AST_FAILED;
	const json_t *words = json_object_get(part, "words"), *property = json_object_get(part, "property");
	const char *w = words ? json_string_value(words) : "json";
	if (!w || (strcmp(w, "json") != 0 && strcmp(w, "python") != 0))
		return fail(f, -EINVAL, "\"words\" must be \"json\" or \"python\"");
	o.python_words = strcmp(w, "python") == 0;
	if (property && (!json_is_string(property) ||
			 strlen(json_string_value(property)) != json_string_length(property)))
		return fail(f, -EINVAL, "\"property\" must be a string without NUL");
	o.property = json_string_value(property);
	return schema_part(f, part, &o);
}

static int type_language(struct composite_parser *f, const json_t *part)
{
	const char *type = json_string_value(json_object_get(part, "type"));
	const bool regex = strcmp(type, "regex") == 0;
	const json_t *v = string_of(f, part, regex ? "pattern" : "grammar");
	if (!v)
		return AST_FAILED;
	const char *p = json_string_value(v);
	const size_t n = json_string_length(v);
	return checked(f, regex                       ? regex_parse(f->a, p, n, NULL)
			  : strcmp(type, "gbnf") == 0 ? gbnf_parse(f->a, p, n)
						      : lark_parse(f->a, p, n));
}

static int type_choice(struct composite_parser *f, const json_t *part)
{
	size_t n;
	int *nodes = strings_of(f, json_object_get(part, "choices"), "choices", &n);
	if (!nodes)
		return AST_FAILED;
	int node = ast_alt(f->a, nodes, n);
	free(nodes);
	return checked(f, node);
}

static int type_literal(struct composite_parser *f, const json_t *part)
{
	const json_t *v = string_of(f, part, "text");
	return v ? checked(f, ast_literal(f->a, json_string_value(v), json_string_length(v))) : AST_FAILED;
}

static int type_token(struct composite_parser *f, const json_t *part)
{
	const json_t *v = string_of(f, part, "text");
	const size_t n = json_string_length(v);
	char bytes[COMPOSITE_TOKEN_MAX + 2];
	if (!v)
		return AST_FAILED;
	if (!n || n > COMPOSITE_TOKEN_MAX)
		return fail(f, -EINVAL, "a token's text must have 1 to %d bytes", COMPOSITE_TOKEN_MAX);
	bytes[0] = (char)LEXICON_SPECIAL_BEGIN;
	memcpy(bytes + 1, json_string_value(v), n);
	bytes[n + 1] = (char)LEXICON_SPECIAL_END;
	return checked(f, ast_literal(f->a, bytes, n + 2));
}

/* Make the node for texts that contain none of the strings in "until". */
static int type_text(struct composite_parser *f, const json_t *part)
{
	struct schema_options raw = {.strings = SCHEMA_STRINGS_RAW,
				     .property = json_string_value(json_object_get(part, "property"))};
	const json_t *until = json_object_get(part, "until");
	int any = ast_repeat(f->a, ast_chars(f->a, NULL, 0, true), 0, -1);
	int node = json_object_get(part, "schema") ? schema_part(f, part, &raw) : any;
	size_t n;
	if (!until || node == AST_FAILED || (json_is_array(until) && !json_array_size(until)))
		return checked(f, node);
	int *ends = strings_of(f, until, "until", &n);
	if (!ends)
		return AST_FAILED;
	for (size_t i = 0; i < n; i++)
		if (!json_string_length(json_array_get(until, i)))
			fail(f, -EINVAL, "\"until\": item %zu is empty", i);
	node = ast_minus(f->a, node, ast_seq3(f->a, any, ast_alt(f->a, ends, n), any));
	free(ends);
	return checked(f, node);
}

static int type_parts(struct composite_parser *f, const json_t *part)
{
	const bool either = strcmp(json_string_value(json_object_get(part, "type")), "either") == 0;
	const json_t *parts = json_object_get(part, "parts");
	const size_t n = json_array_size(parts);
	size_t i;
	json_t *v;
	if (!json_is_array(parts) || (either && !n))
		return fail(f, -EINVAL, "\"parts\" must be an array of parts");
	int *nodes = xcalloc(n + 1, sizeof *nodes);
	json_array_foreach(parts, i, v)
	{
		const size_t back = path_to(f, "parts", i);
		nodes[i] = part_node(f, v);
		path_back(f, back);
		if (nodes[i] == AST_FAILED)
			break;
	}
	int node = f->err ? AST_FAILED : either ? ast_alt(f->a, nodes, n) : ast_seq(f->a, nodes, n);
	free(nodes);
	return checked(f, node);
}

static int type_repeat(struct composite_parser *f, const json_t *part)
{
	const bool option = strcmp(json_string_value(json_object_get(part, "type")), "option") == 0;
	int64_t min = 0, max = option ? 1 : -1;
	struct why text;
	if (json_get_int(part, "min", 0, AST_REPEAT_MAX, &min, &text) ||
	    json_get_int(part, "max", 0, AST_REPEAT_MAX, &max, &text))
		return fail(f, -EINVAL, "%s", text.text);
	const size_t back = path_to(f, "part", SIZE_MAX);
	int node = part_node(f, json_object_get(part, "part"));
	path_back(f, back);
	return node == AST_FAILED ? node : checked(f, ast_repeat(f->a, node, min, max));
}

static int type_budget(struct composite_parser *f, const json_t *part)
{
	int64_t tokens = -1;
	struct why text = {"\"tokens\" is missing"};
	if (json_get_int(part, "tokens", 1, AST_BUDGET_MAX, &tokens, &text) || tokens < 0)
		return fail(f, -EINVAL, "%s", text.text);
	return checked(f, ast_budget(f->a, (uint32_t)tokens));
}

/* The rules of a part, by name. */
struct scope {
	const struct scope *up;
	json_t *rules; /* rule number by name */
};

static int type_rules(struct composite_parser *f, const json_t *part)
{
	const json_t *rules = json_object_get(part, "rules");
	struct scope scope = {f->scope, json_object()};
	const char *name;
	json_t *v;
	int node = AST_FAILED;
	if (!json_is_object(rules))
		fail(f, -EINVAL, "\"rules\" must be an object of parts");
	json_object_foreach((json_t *)rules, name, v)
		json_object_set_new(scope.rules, name, json_integer(ast_rule(f->a, name)));
	f->scope = &scope;
	json_object_foreach((json_t *)rules, name, v)
	{
		const int rule = (int)json_integer_value(json_object_get(scope.rules, name));
		const size_t back = path_to(f, "rules", SIZE_MAX), inner = path_to(f, name, SIZE_MAX);
		const int body = f->err ? AST_FAILED : part_node(f, v);
		path_back(f, inner);
		path_back(f, back);
		if (body != AST_FAILED && rule != AST_FAILED)
			ast_rule_set(f->a, rule, body);
	}
	const size_t back = path_to(f, "part", SIZE_MAX);
	if (!f->err)
		node = part_node(f, json_object_get(part, "part"));
	path_back(f, back);
	f->scope = scope.up;
	json_decref(scope.rules);
	return node == AST_FAILED ? node : checked(f, node);
}

static int type_rule(struct composite_parser *f, const json_t *part)
{
	const json_t *name = string_of(f, part, "name"), *rule = NULL;
	for (const struct scope *s = f->scope; s && name && !rule; s = s->up)
		rule = json_object_get(s->rules, json_string_value(name));
	if (name && !rule)
		return fail(f, -EINVAL, "there is no rule \"%.64s\"", json_string_value(name));
	const int at = rule ? (int)json_integer_value(rule) : AST_FAILED;
	return !name ? AST_FAILED : checked(f, at == AST_FAILED ? at : ast_ref(f->a, at));
}

static int type_bounded(struct composite_parser *f, const json_t *part)
{
	const bool around = f->bounded;
	f->bounded = true;
	const int node = part_node(f, json_object_get(part, "part"));
	f->bounded = around;
	return node;
}

enum { MEMBERS_MAX = 6 };

static const struct {
	const char *name;
	int (*node)(struct composite_parser *f, const json_t *part);
	const char *members[MEMBERS_MAX + 1];
} types[] = {
	{"schema", type_schema, {"schema", "strings", "without", "space", "words", "property"}},
	{"regex", type_language, {"pattern"}},
	{"gbnf", type_language, {"grammar"}},
	{"lark", type_language, {"grammar"}},
	{"choice", type_choice, {"choices"}},
	{"literal", type_literal, {"text"}},
	{"token", type_token, {"text"}},
	{"text", type_text, {"until", "schema", "property"}},
	{"sequence", type_parts, {"parts"}},
	{"either", type_parts, {"parts"}},
	{"repeat", type_repeat, {"part", "min", "max"}},
	{"option", type_repeat, {"part"}},
	{"bounded", type_bounded, {"part"}},
	{"budget", type_budget, {"tokens"}},
	{"rules", type_rules, {"rules", "part"}},
	{"rule", type_rule, {"name"}},
};

static int part_node(struct composite_parser *f, const json_t *part)
{
	const char *type = json_string_value(json_object_get(part, "type"));
	int node = AST_FAILED;
	if (!json_is_object(part) || !type)
		return fail(f, -EINVAL, "must be an object with a \"type\"");
	if (++f->depth > COMPOSITE_DEPTH_MAX)
		return fail(f, -E2BIG, "parts are nested more than %d deep", COMPOSITE_DEPTH_MAX);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (strcmp(type, types[i].name) == 0) {
			if (check_members(f, part, types[i].members) == 0)
				node = types[i].node(f, part);
			f->depth--;
			return node;
		}
	return fail(f, -EINVAL, "type \"%.64s\" is not known", type);
}

int composite_parse(struct ast *a, const char *text, size_t n, int *node, struct why *why)
{
	struct composite_parser f = {.a = a, .why = why};
	json_t *root;
	*node = AST_FAILED;
	int rc = json_parse_within(text, n, json_tree_max, &root, NULL, why);
	if (rc)
		return err_prefix(why, rc, "composite");
	buf_puts(&f.path, "#");
	*node = part_node(&f, root);
	buf_fini(&f.path);
	json_decref(root);
	return f.err;
}
