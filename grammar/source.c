/* source.c - the common entry point of all languages. */
#include "grammar/source.h"
#include "grammar/composite.h"
#include "grammar/gbnf.h"
#include "grammar/lark.h"
#include "grammar/regex.h"
#include "grammar/schema/schema.h"
#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"

#include <stdlib.h>

static const size_t json_tree_max = (size_t)256 << 20;

static int parse_choice(struct ast *a, const char *text, size_t n)
{
	struct why why;
	json_t *list;
	size_t i;
	json_t *choice;
	if (json_parse_within(text, n, json_tree_max, &list, NULL, &why))
		return ast_fail(a, -EINVAL, "choices: %s", why.text);
	int *nodes = xcalloc(json_array_size(list) + 1, sizeof *nodes), node = AST_FAILED;
	if (!json_is_array(list) || !json_array_size(list)) {
		ast_fail(a, -EINVAL, "choices: not an array of strings");
		goto done;
	}
	json_array_foreach(list, i, choice)
	{
		if (!json_is_string(choice)) {
			ast_fail(a, -EINVAL, "choices: item %zu is not a string", i);
			goto done;
		}
		nodes[i] = ast_literal(a, json_string_value(choice), json_string_length(choice));
	}
	node = ast_alt(a, nodes, json_array_size(list));
done:
	free(nodes);
	json_decref(list);
	return node;
}

/* Errors of a schema begin with the path in the schema; the tree's own errors do not. */
static int parse_schema(struct ast *a, const char *text, size_t n, bool bounded, int *node, struct why *why)
{
	const struct schema_options options = {.bounded = bounded};
	json_t *schema;
	if (json_parse_within(text, n, json_tree_max, &schema, NULL, why))
		return err_prefix(why, -EINVAL, "schema");
	int rc = schema_node(a, schema, &options, node, why);
	json_decref(schema);
	return rc;
}

int grammar_parse(enum grammar_language language, const char *text, size_t n, const struct ast_limits *limits,
		  struct ast **out, struct why *why)
{
	struct ast *a = ast_new(limits);
	int node = AST_FAILED, rc = 0;
	*out = NULL;
	if (n > GRAMMAR_SOURCE_MAX)
		ast_fail(a, -E2BIG, "a grammar of %zu bytes, at most %d", n, GRAMMAR_SOURCE_MAX);
	else if (language == GRAMMAR_REGEX)
		node = regex_parse(a, text, n, NULL);
	else if (language == GRAMMAR_GBNF)
		node = gbnf_parse(a, text, n);
	else if (language == GRAMMAR_LARK)
		node = lark_parse(a, text, n);
	else if (language == GRAMMAR_SCHEMA || language == GRAMMAR_SCHEMA_BOUNDED)
		rc = parse_schema(a, text, n, language == GRAMMAR_SCHEMA_BOUNDED, &node, why);
	else if (language == GRAMMAR_COMPOSITE)
		rc = composite_parse(a, text, n, &node, why);
	else
		node = parse_choice(a, text, n);
	if (rc == 0) {
		ast_start(a, node);
		rc = ast_check(a, why);
	}
	if (rc && grammar_is_spent(ast_account(a)))
		rc = -EAGAIN;
	if (rc)
		ast_free(a);
	else
		*out = a;
	return rc;
}
