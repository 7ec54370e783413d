/* Random schemas and texts that the Python package jsonschema judged (tests/golden/make_schema_golden.py): a
 * grammar takes no text that is not valid, and leaves out valid ones for their order only. */
#include "base/json.h"
#include "grammar/schema/schema.h"
#include "tests/unit/grammar/grammar_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

/* Of the schemas that some value satisfies, those that are refused: denials that are not decided, mostly. */
enum { REFUSED_MAX = 12 };

/* The number of valid texts that are not taken. */
static int check(const json_t *schema, const json_t *texts, struct grammar *g)
{
	int missed = 0;
	for (size_t i = 0; i < json_array_size(texts); i++) {
		const json_t *each = json_array_get(texts, i), *text = json_array_get(each, 0);
		const bool valid = json_is_true(json_array_get(each, 1));
		const bool taken = help_accepts(g, json_string_value(text), json_string_length(text));
		char *shown = json_dumps(schema, JSON_COMPACT);
		cr_expect(valid || !taken, "%s is not valid for %s", json_string_value(text), shown);
		missed += valid && !taken;
		free(shown);
	}
	return missed;
}

static bool any_valid(const json_t *texts)
{
	for (size_t i = 0; i < json_array_size(texts); i++)
		if (json_is_true(json_array_get(json_array_get(texts, i), 1)))
			return true;
	return false;
}

/* At most so many of the valid texts (about 1,700) are not taken. */
static void run(unsigned any_order, int missed_max)
{
	const struct schema_options options = {.any_order = any_order};
	char why[512];
	json_t *cases;
	int refused = 0, missed = 0;
	cr_assert_eq(json_read("tests/golden/schema.json", 16 << 20, &cases, why, sizeof why), 0, "%s", why);
	for (size_t i = 0; i < json_array_size(cases); i++) {
		const json_t *schema = json_object_get(json_array_get(cases, i), "schema");
		const json_t *texts = json_object_get(json_array_get(cases, i), "texts");
		struct grammar *g = NULL;
		struct ast *a = ast_new(NULL);
		int node, rc = schema_node(a, schema, &options, &node, why, sizeof why);
		if (rc == 0) {
			ast_start(a, node);
			rc = grammar_new(a, NULL, NULL, &g, why, sizeof why);
		}
		ast_free(a);
		if (rc == 0)
			missed += check(schema, texts, g);
		else if (any_valid(texts))
			refused++;
		cr_expect(rc != -EINVAL || !any_valid(texts), "case %zu: %s", i, why);
		grammar_free(g);
	}
	cr_expect_leq(refused, REFUSED_MAX, "%d refused", refused);
	cr_expect_leq(missed, missed_max, "%d missed", missed);
	json_decref(cases);
}

Test(schema_golden, in_the_schemas_order)
{
	run(0, 63);
}

Test(schema_golden, in_any_order)
{
	run(10, 4); /* objects of which a member is denied or that are counted have the schema's order */
}
