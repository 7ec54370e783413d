/* The fields of a request as a table: types, limits, ignored and refused fields. */
#include "controller/request/field_table.h"

#include "base/json.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static const struct field_row rows[] = {
	{"text", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "the text"},
	{"count", FIELD_INTEGER, FIELD_HONOURED, 1, 10, NULL, "how many"},
	{"share", FIELD_NUMBER, FIELD_HONOURED, 0, 0.5, NULL, "a share"},
	{"tag", FIELD_ANY, FIELD_IGNORED, 0, 0, NULL, "changes nothing"},
	{"mode", FIELD_ANY, FIELD_NEUTRAL, 0, 0, "[\"plain\", 1, []]", "only plain text"},
};
/* Fields common to all requests. */
static const struct field_row more[] = {
	{"image", FIELD_ANY, FIELD_REFUSED, 0, 0, NULL, "models here read text"},
};
static const struct field_table common = {more, 1, NULL};
static const struct field_table table = {rows, sizeof rows / sizeof *rows, &common};
static char ignored[64];
static struct api_problem problem;

static int check(const char *text, bool strict)
{
	json_t *o;
	struct why why;
	ignored[0] = 0;
	problem = (struct api_problem){0};
	cr_assert_eq(json_parse(text, strlen(text), &o, &why), 0, "%s: %s", text, why.text);
	int rc = field_table_check(&table, o, strict, ignored, sizeof ignored, &problem);
	json_decref(o);
	return rc;
}

static void expect_refused(const char *text, const char *param, const char *why)
{
	cr_expect_eq(check(text, false), -EINVAL, "%s", text);
	cr_expect_str_eq(problem.param, param);
	cr_expect_str_eq(problem.why, why);
}

Test(field_table, values_that_fit_are_taken)
{
	cr_expect_eq(check("{\"text\": \"a\", \"count\": 10, \"share\": 0.5}", true), 0);
	cr_expect_eq(check("{\"text\": [], \"count\": 1.0, \"share\": 0}", true), 0);
	cr_expect_eq(check("{\"text\": null, \"image\": null, \"mode\": null}", true), 0);
	cr_expect_str_eq(ignored, "");
}

Test(field_table, types_and_bounds_are_named)
{
	expect_refused("{\"text\": 1}", "text", "text must be a string or an array");
	expect_refused("{\"count\": 1.5}", "count", "count must be an integer");
	expect_refused("{\"count\": 11}", "count", "count is 11, must be from 1 to 10");
	expect_refused("{\"count\": 0}", "count", "count is 0, must be from 1 to 10");
	expect_refused("{\"share\": 0.75}", "share", "share is 0.75, must be from 0 to 0.5");
	expect_refused("{\"share\": true}", "share", "share must be a number");
	expect_refused("[]", "", "the request must be a map of fields to values");
}

Test(field_table, numbers_beyond_64_bits_are_named_only_where_they_are_read)
{
	expect_refused("{\"count\": 18446744073709551616}", "count",
		       "count is 18446744073709551616, beyond the range of numbers");
	expect_refused("{\"text\": -1e400}", "text", "text is -1e400, beyond the range of numbers");
	cr_expect_eq(check("{\"tag\": 18446744073709551616, \"other\": 18446744073709551616}", false), 0);
	cr_expect_str_eq(ignored, "tag, other");
}

Test(field_table, what_is_refused_says_why)
{
	expect_refused("{\"image\": {}}", "image", "image is not supported: models here read text");
	expect_refused("{\"mode\": \"fancy\"}", "mode", "mode is not supported: only plain text");
	expect_refused("{\"mode\": true}", "mode", "mode is not supported: only plain text");
	cr_expect_eq(check("{\"mode\": \"plain\"}", true), 0);
	cr_expect_eq(check("{\"mode\": 1.0}", true), 0);
	cr_expect_eq(check("{\"mode\": []}", true), 0);
}

Test(field_table, what_has_no_effect_is_listed)
{
	cr_expect_eq(check("{\"tag\": 1, \"a b\\n\": 2}", false), 0);
	cr_expect_str_eq(ignored, "tag, a?b?");
	cr_expect_eq(check("{\"tag\": 1}", true), 0);
	cr_expect_str_eq(ignored, "tag");
	cr_expect_eq(check("{\"other\": 1}", true), -EINVAL);
	cr_expect_str_eq(problem.why, "unknown field other");
}

Test(field_table, a_list_that_is_full_ends_at_a_whole_name)
{
	for (int i = 0; i < 40; i++)
		field_table_ignore(ignored, sizeof ignored, "twelve_bytes");
	cr_expect_lt(strlen(ignored), sizeof ignored);
	cr_expect_str_eq(ignored + strlen(ignored) - 12, "twelve_bytes");
}

/* An API's own field, such as `format`, takes precedence over the common one. */
Test(field_table, the_first_row_of_a_name_counts)
{
	static const struct field_row own[] = {
		{"image", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "its name"}};
	static const struct field_table first = {own, 1, &common};
	json_t *o = json_pack("{s:s}", "image", "a"), *schema = field_table_schema(&first);
	cr_expect_eq(field_table_check(&first, o, true, ignored, sizeof ignored, &problem), 0);
	cr_expect_str_eq(json_string_value(json_object_get(json_object_get(schema, "image"), "x-quern")),
			 "honoured");
	json_decref(o);
	json_decref(schema);
}

Test(field_table, a_schema_has_every_row)
{
	json_t *o = field_table_schema(&table);
	char *text = json_dumps(o, JSON_COMPACT);
	cr_expect_str_eq(
		text,
		"{\"text\":{\"type\":[\"string\",\"array\"],\"description\":\"the "
		"text\",\"x-quern\":\"honoured\"},"
		"\"count\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":10,\"description\":\"how many\","
		"\"x-quern\":\"honoured\"},"
		"\"share\":{\"type\":\"number\",\"minimum\":0,\"maximum\":0.5,\"description\":\"a share\","
		"\"x-quern\":\"honoured\"},"
		"\"tag\":{\"description\":\"changes nothing\",\"x-quern\":\"ignored\"},"
		"\"mode\":{\"enum\":[\"plain\",1,[]],\"description\":\"only plain text\",\"x-quern\":\"only "
		"neutral "
		"values\"},"
		"\"image\":{\"description\":\"models here read text\",\"x-quern\":\"refused\"}}");
	free(text);
	json_decref(o);
}
