/* schema_help.h - compiles JSON schemas and checks which texts they accept, or why they are refused. */
#ifndef QUERN_TESTS_UNIT_GRAMMAR_SCHEMA_HELP_H
#define QUERN_TESTS_UNIT_GRAMMAR_SCHEMA_HELP_H

#include "base/json.h"
#include "grammar/schema/schema.h"
#include "tests/unit/grammar/grammar_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int compile(const char *text, const struct schema_options *o, struct grammar **g, char *why,
		   size_t why_n)
{
	json_t *schema;
	int node, rc;
	cr_assert_eq(json_parse(text, strlen(text), &schema, why, why_n), 0, "%s", why);
	struct ast *a = ast_new(NULL);
	rc = schema_node(a, schema, o, &node, why, why_n);
	if (!rc) {
		ast_start(a, node);
		rc = grammar_new(a, NULL, NULL, g, why, why_n);
	}
	ast_free(a);
	json_decref(schema);
	return rc;
}

static void expect(const char *schema, const struct schema_options *o, const char *const *yes,
		   const char *const *no)
{
	struct grammar *g;
	char why[512] = "";
	cr_assert_eq(compile(schema, o, &g, why, sizeof why), 0, "%s: %s", schema, why);
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
	char why[512] = "";
	int rc = compile(schema, NULL, &g, why, sizeof why);
	cr_expect_eq(rc, err, "%s: %d, %s", schema, rc, why);
	cr_expect(strstr(why, says), "%s: \"%s\" does not say \"%s\"", schema, why, says);
	grammar_free(g);
}

#endif
