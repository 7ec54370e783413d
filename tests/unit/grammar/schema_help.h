/* schema_help.h - compiles JSON schemas and checks which texts they accept, or why they are refused. */
#ifndef QUERN_TESTS_UNIT_GRAMMAR_SCHEMA_HELP_H
#define QUERN_TESTS_UNIT_GRAMMAR_SCHEMA_HELP_H

#include "base/err.h"
#include "base/json.h"
#include "grammar/schema/schema.h"
#include "tests/unit/grammar/grammar_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int compile(const char *text, const struct schema_options *o, struct grammar **g, struct why *why)
{
	json_t *schema;
	int node, rc;
	cr_assert_eq(json_parse(text, strlen(text), &schema, why), 0, "%s", why->text);
	struct ast *a = ast_new(NULL);
	rc = schema_node(a, schema, o, &node, why);
	if (!rc) {
		ast_start(a, node);
		rc = grammar_new(a, NULL, NULL, g, why);
	}
	ast_free(a);
	json_decref(schema);
	return rc;
}

static void expect(const char *schema, const struct schema_options *o, const char *const *yes,
		   const char *const *no)
{
	struct grammar *g;
	struct why why = {""};
	cr_assert_eq(compile(schema, o, &g, &why), 0, "%s: %s", schema, why.text);
	help_texts(g, true, yes);
	help_texts(g, false, no);
	grammar_free(g);
}
#define YES(...)                                                                                             \
	(const char *const[])                                                                                \
	{                                                                                                    \
		__VA_ARGS__, NULL                                                                            \
	}
#define NO(...) YES(__VA_ARGS__)

static void refuse(const char *schema, int err, const char *says)
{
	struct grammar *g = NULL;
	struct why why = {""};
	int rc = compile(schema, NULL, &g, &why);
	cr_expect_eq(rc, err, "%s: %d, %s", schema, rc, why.text);
	cr_expect(strstr(why.text, says), "%s: \"%s\" does not say \"%s\"", schema, why.text, says);
	grammar_free(g);
}

#endif
