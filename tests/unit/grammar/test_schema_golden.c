/* Random schemas and texts, judged by the Python package jsonschema (tests/golden/make_schema_golden.py). A
 * grammar accepts no invalid text, and refuses valid ones only for the order of members. */
#include "base/json.h"
#include "base/buf.h"
#include "grammar/schema/schema.h"
#include "tests/unit/grammar/grammar_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Satisfiable schemas that are refused, mostly for undecided negations. */
enum { REFUSED_MAX = 12 };

/* Return the number of valid texts that are not accepted. */
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

/* Return 0, or an error with the reason and *g NULL. */
static int grammar_of(const json_t *schema, const struct schema_options *options, struct grammar **g,
		      struct why *why)
{
	struct ast *a = ast_new(NULL);
	int node, rc = schema_node(a, schema, options, &node, why);
	*g = NULL;
	if (rc == 0) {
		ast_start(a, node);
		rc = grammar_new(a, NULL, NULL, g, why);
	}
	ast_free(a);
	return rc;
}

/* At most missed_max of the valid texts (about 1,700) are not accepted. */
static void run(unsigned any_order, int missed_max)
{
	const struct schema_options options = {.any_order = any_order};
	struct why why;
	json_t *cases;
	int refused = 0, missed = 0;
	cr_assert_eq(json_read("tests/golden/schema.json", 16 << 20, &cases, &why), 0, "%s", why.text);
	for (size_t i = 0; i < json_array_size(cases); i++) {
		const json_t *schema = json_object_get(json_array_get(cases, i), "schema");
		const json_t *texts = json_object_get(json_array_get(cases, i), "texts");
		struct grammar *g;
		const int rc = grammar_of(schema, &options, &g, &why);
		if (rc == 0)
			missed += check(schema, texts, g);
		else if (any_valid(texts))
			refused++;
		cr_expect(rc != -EINVAL || !any_valid(texts), "case %zu: %s", i, why.text);
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
	run(10, 4); /* objects with a denied member or a member count keep the schema's order */
}

/* Each schema of MaskBench accepts and refuses the right texts; five schemas are refused by name. */
Test(schema_golden, schemas_that_people_wrote)
{
	const struct schema_options options = {.any_order = 10};
	struct why why;
	json_t *cases;
	int refused = 0;
	cr_assert_eq(json_read("tests/golden/maskbench.json", 16 << 20, &cases, &why), 0, "%s", why.text);
	cr_expect_eq(json_array_size(cases), 200);
	for (size_t i = 0; i < json_array_size(cases); i++) {
		const json_t *one = json_array_get(cases, i), *schema = json_object_get(one, "schema");
		const char *id = json_string_value(json_object_get(one, "id"));
		struct grammar *g;
		const int rc = grammar_of(schema, &options, &g, &why);
		cr_expect(rc == 0 || (rc == -ENOTSUP && strstr(why.text, "the denial of several schemas")),
			  "%s: %s", id, why.text);
		refused += rc != 0;
		cr_expect(rc || check(schema, json_object_get(one, "texts"), g) == 0,
			  "%s: a valid text is not taken", id);
		grammar_free(g);
	}
	cr_expect_eq(refused, 5, "%d refused", refused);
	json_decref(cases);
}

/* Print a schema's grammar, or the reason for a refusal. The heap is fragmented, in an order given by `turn`,
 * so that the schema's parts have different addresses. */
static void printed(const json_t *schema, unsigned turn, struct buf *out)
{
	enum { HOLES = 4000 };
	void *held[HOLES];
	struct why why;
	char *text = json_dumps(schema, 0);
	json_t *copy;
	int node;
	for (unsigned i = 0; i < HOLES; i++)
		held[i] = malloc(24 + (i * 7 + turn) % 6 * 16);
	for (unsigned i = 0; i < HOLES; i++) /* a permutation: 1103 has no factor of HOLES */
		free(held[(turn ? HOLES - 1 - i : i * 1103 % HOLES)]);
	cr_assert_eq(json_parse(text, strlen(text), &copy, &why), 0, "%s", why.text);
	struct ast *a = ast_new(NULL);
	if (schema_node(a, copy, NULL, &node, &why)) {
		buf_puts(out, why.text);
	} else {
		ast_start(a, node);
		ast_print(a, out, 1 << 20);
	}
	ast_free(a);
	json_decref(copy);
	free(text);
}

Test(schema_golden, where_a_schema_lies_in_memory_decides_nothing)
{
	struct why why;
	json_t *cases;
	cr_assert_eq(json_read("tests/golden/schema.json", 16 << 20, &cases, &why), 0, "%s", why.text);
	for (size_t i = 0; i < json_array_size(cases); i++) {
		struct buf text[2] = {0};
		for (unsigned turn = 0; turn < 2; turn++)
			printed(json_object_get(json_array_get(cases, i), "schema"), turn, &text[turn]);
		cr_expect(text[0].len == text[1].len && !memcmp(text[0].p, text[1].p, text[0].len),
			  "case %zu", i);
		buf_fini(&text[0]);
		buf_fini(&text[1]);
	}
	json_decref(cases);
}
