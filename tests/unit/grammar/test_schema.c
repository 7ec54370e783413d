/* JSON schemas as grammars: which texts each keyword leaves, and what is refused by name and place. */
#include "base/json.h"
#include "grammar/schema/schema.h"
#include "tests/unit/grammar/grammar_help.h"

#include <criterion/criterion.h>
#include <errno.h>
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

Test(schema, types_have_their_texts)
{
	expect("{}", NULL, YES("null", "true", "-0.5e+3", "\"a\"", "[]", "[1, \"x\", {}]", "{\"a\": [null]}"),
	       NO("", "nul", "01", "1.", "+1", "\"", "[1,]", "{\"a\"}", "{,}", "'a'", " 1"));
	expect("{\"type\":\"integer\"}", NULL, YES("0", "-12", "100"), NO("1.0", "1e3", "00", "-", "\"1\""));
	expect("{\"type\":[\"null\",\"boolean\"]}", NULL, YES("null", "true", "false"), NO("0", "\"\""));
	expect("{\"type\":\"string\"}", NULL, YES("\"\\u00e9\\n\\/\"", "\"\xc3\xa9\"", "\"\\ud83d\\ude00\""),
	       NO("\"\\ud83d\"", "\"\\ude00\"", "\"\n\"", "\"\\x\"", "\"\xc3\""));
	expect("true", NULL, YES("1"), NO(""));
}

Test(schema, whitespace_is_bounded_by_the_policy)
{
	const char *s = "{\"properties\":{\"a\":{\"items\":true}},\"additionalProperties\":false,\"type\":"
			"\"object\"}";
	const struct schema_options compact = {.space = SCHEMA_SPACE_COMPACT};
	const struct schema_options flexible = {.space = SCHEMA_SPACE_FLEXIBLE, .max_space = 2};
	expect(s, &compact, YES("{\"a\":[1,2]}", "{}"), NO("{\"a\": 1}", "{\"a\":[1, 2]}"));
	expect(s, NULL, YES("{\"a\":[1, 2]}", "{\"a\": [1,2]}"), NO("{ }", "{\"a\":  1}", "{\"a\" :1}"));
	expect(s, &flexible, YES("{\n\t\"a\" : [ 1 , 2 ]\r\n}", "{  }"), NO("{   }", "{\"a\":   1}", " {}"));
}

Test(schema, whitespace_is_what_a_pattern_matches_of_it)
{
	const char *s =
		"{\"properties\":{\"a\":{\"items\":{\"type\":\"integer\"}}},\"additionalProperties\":false,"
		"\"type\":\"object\"}";
	const struct schema_options lines = {.space = SCHEMA_SPACE_PATTERN, .space_pattern = "(\n )?"};
	const struct schema_options any = {.space = SCHEMA_SPACE_PATTERN, .space_pattern = "\\s*"};
	const struct schema_options must = {.space = SCHEMA_SPACE_PATTERN, .space_pattern = " |-"};
	expect(s, &lines, YES("{}", "{\n \"a\":\n [\n 1,\n 2]}", "{\n }", "{\"a\":[1,2]}"),
	       NO("{ }", "{\n}", "{\n \n }", "{\"a\": [1]}", "{\"a\":[1, 2]}"));
	expect(s, &any, YES("{\t\r}", "{\"a\"                    :[ ]}", "{\"a\":[\n1\n,\n2\n]\n}"),
	       NO("{\f}", "{\xc2\xa0}", "{                     }"));
	expect(s, &must, YES("{ }", "{ \"a\" : [ 1 , 2 ] }", "{ \"a\" : [ ] }"),
	       NO("{}", "{  }", "{--}", "{ \"a\":[ 1 ] }"));
}

Test(schema, members_come_in_the_schemas_order)
{
	const char *s =
		"{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"},\"a\":{\"const\":\"x\"}},"
		"\"required\":[\"c\",\"a\"]}";
	expect(s, NULL,
	       YES("{\"b\": 1, \"a\": \"x\", \"c\": [], \"d\": 0}", "{\"a\": \"x\", \"c\": 1}",
		   "{\"a\": \"x\", \"c\": 1, \"d\": 0, \"aa\": 1}"),
	       NO("{\"a\": \"x\", \"b\": 1, \"c\": 1}", "{\"a\": \"x\"}", "{\"a\": \"y\", \"c\": 1}",
		  "{\"b\": \"1\", \"a\": \"x\", \"c\": 1}", "{\"a\": \"x\", \"c\": 1, \"b\": 2}",
		  "{\"a\": \"x\", \"c\": 1, \"\\u0061\": 1}", "{\"a\": \"x\", \"c\": 1,}"));
	expect("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false}",
	       NULL, YES("{}", "{\"a\": 1}", "{\"b\": 1}", "{\"a\": 1, \"b\": 2}"),
	       NO("{\"c\": 1}", "{\"a\": 1, \"a\": 1}", "{, \"a\": 1}", "{\"a\": 1 \"b\": 2}"));
}

Test(schema, values_beyond_64_bits_are_as_they_are_written_out)
{
	expect("{\"enum\": [1e22, -2.5e300, 1.5]}", NULL,
	       YES("10000000000000000000000", "10000000000000000000000.0", "1.5"),
	       NO("1", "10000000000000000000001"));
}

Test(schema, members_may_come_in_any_order)
{
	const struct schema_options any = {.any_order = 10};
	expect("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"const\":\"x\"},"
	       "\"c\":{}},"
	       "\"required\":[\"c\",\"a\"],\"additionalProperties\":{\"type\":\"null\"}}",
	       &any,
	       YES("{\"a\": 1, \"c\": 2}", "{\"c\": 2, \"a\": 1}",
		   "{\"b\": \"x\", \"c\": [], \"z\": null, \"a\": 1}",
		   "{\"z\": null, \"c\": 1, \"y\": null, \"a\": 1, \"x\": null, \"b\": \"x\"}"),
	       NO("{}", "{\"a\": 1}", "{\"a\": 1, \"c\": 1, \"a\": 1}", "{\"b\": \"x\", \"c\": 1}",
		  "{\"z\": 1, \"a\": 1, \"c\": 1}", "{\"a\": 1, \"c\": 1,}", "{\"a\": 1 \"c\": 1}",
		  "{\"c\": 1, \"a\": \"1\"}", "{, \"c\": 1, \"a\": 1}"));
	expect("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false}",
	       &any, YES("{}", "{\"b\": 1}", "{\"b\": 1, \"a\": 2}"),
	       NO("{\"c\": 1}", "{\"b\": 1, \"b\": 1}", "{\"b\": 1, }"));
	expect("{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"l\":{"
	       "\"$ref\":\"#/$defs/t\"},"
	       "\"r\":{\"$ref\":\"#/$defs/"
	       "t\"}},\"required\":[\"v\"],\"additionalProperties\":false}},\"$ref\":\"#/$defs/t\"}",
	       &any, YES("{\"r\": {\"l\": {\"v\": 1}, \"v\": 2}, \"v\": 3}"),
	       NO("{\"r\": {\"l\": {\"v\": 1}}, \"v\": 3}", "{\"r\": {\"v\": 1}}"));
}

Test(schema, names_of_other_members_match_patterns)
{
	expect("{\"type\":\"object\",\"properties\":{\"x1\":true},\"patternProperties\":{\"^x\":{\"type\":"
	       "\"integer\"},"
	       "\"1$\":{\"minimum\":5}},\"additionalProperties\":{\"type\":\"null\"}}",
	       NULL, YES("{\"x1\": 5}", "{\"x\": 1, \"x11\": 7, \"1\": true, \"1\": 6, \"n\": null}"),
	       NO("{\"x1\": 4}", "{\"x1\": \"5\"}", "{\"x\": 1.5}", "{\"x01\": 4}", "{\"a1\": 4}",
		  "{\"n\": 1}"));
	expect("{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2,\"pattern\":\"^[a-z\\\"]*$\"}}", NULL,
	       YES("{}", "{\"a\": 1, \"\\\"b\": 2}"), NO("{\"abc\": 1}", "{\"A\": 1}"));
	expect("{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"b\",\"c\"]},\"properties\":{\"a\":{},"
	       "\"b\":{}}}",
	       NULL, YES("{\"b\": 1, \"c\": 2}"), NO("{\"a\": 1}", "{\"d\": 1}"));
}

Test(schema, members_are_counted)
{
	expect("{\"allOf\":[{\"required\":[\"a\"]},{\"required\":[\"a\"],\"maxProperties\":1}],\"type\":"
	       "\"object\"}",
	       NULL, YES("{\"a\":1}"), NO("{}", "{\"a\":1,\"b\":1}"));
	expect("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":2,"
	       "\"maxProperties\":3}",
	       NULL, YES("{\"a\": 1, \"b\": 2}", "{\"b\": 1, \"c\": 2}", "{\"c\": 1, \"d\": 1, \"e\": 2}"),
	       NO("{}", "{\"a\": 1}", "{\"x\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1, \"d\": 1}"));
	refuse("{\"type\":\"object\",\"minProperties\":2,\"maxProperties\":1}", -EINVAL, "#: no value");
}

Test(schema, items_have_a_prefix_and_a_rest)
{
	expect("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}],\"items\":{"
	       "\"const\":true}}",
	       NULL, YES("[]", "[1]", "[1, null]", "[1, null, true, true]"),
	       NO("[null]", "[1, null, 1]", "[1, 2]"));
	expect("{\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],\"additionalItems\":false,"
	       "\"minItems\":1}",
	       NULL, YES("[1]"), NO("[]", "[1, 2]"));
	expect("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}", NULL,
	       YES("[1, 2]", "[1, 2, 3]"), NO("[1]", "[1, 2, 3, 4]", "[1, \"\"]"));
	expect("{\"type\":\"array\",\"items\":false}", NULL, YES("[]"), NO("[1]"));
	expect("{\"type\":\"array\",\"contains\":{\"const\":7},\"minContains\":2,\"maxContains\":2,"
	       "\"maxItems\":4}",
	       NULL, YES("[7, 7]", "[1, 7, 2, 7]"), NO("[7]", "[7, 7, 7]", "[]", "[1, 7, 7, 1, 1]"));
	expect("{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"items\":{\"type\":[\"string\","
	       "\"null\"]}}",
	       NULL, YES("[null, \"a\", null, \"b\"]"), NO("[]", "[null]", "[null, \"a\", 1]"));
	expect("{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",1]},\"uniqueItems\":true}", NULL,
	       YES("[]", "[1, \"a\"]", "[\"b\", \"a\", 1]"), NO("[1, 1]", "[\"a\", 1, \"a\"]", "[\"c\"]"));
}

Test(schema, ranges_of_numbers_are_exact)
{
	expect("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":205}", NULL,
	       YES("-12", "-9", "-1", "0", "-0", "9", "10", "99", "199", "205"),
	       NO("-13", "-20", "-100", "206", "1000", "300"));
	expect("{\"type\":\"number\",\"minimum\":0.25,\"exclusiveMaximum\":10.5}", NULL,
	       YES("0.25", "0.3", "0.250", "1", "9.999", "10", "10.0", "10.49", "10.4999"),
	       NO("0.249", "0", "10.5", "10.50", "11", "-1", "100", "0.2", "1e0"));
	expect("{\"type\":\"number\",\"exclusiveMinimum\":-1.5,\"maximum\":-1.25}", NULL,
	       YES("-1.25", "-1.4999", "-1.3"), NO("-1.5", "-1.2", "-1", "-2", "1.3"));
	expect("{\"type\":\"integer\",\"exclusiveMinimum\":2.5,\"exclusiveMaximum\":4}", NULL, YES("3"),
	       NO("2", "4"));
	expect("{\"type\":\"number\",\"minimum\":0}", NULL, YES("0", "1e5", "2.5"), NO("-1", "-0.1"));
	expect("{\"type\":\"integer\",\"minimum\":5,\"exclusiveMinimum\":true}", NULL, YES("6"), NO("5"));
	expect("{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":10,\"maximum\":50}", NULL,
	       YES("14", "49", "21"), NO("7", "15", "56", "-14"));
	expect("{\"type\":\"number\",\"multipleOf\":0.01}", NULL, YES("1", "0.5", "-12.25", "1.250"),
	       NO("0.001", "1.255", "1e2"));
	expect("{\"type\":\"integer\",\"multipleOf\":25}", NULL, YES("0", "-75", "1025"),
	       NO("5", "130", "1024"));
	refuse("{\"type\":\"integer\",\"minimum\":1.2,\"maximum\":1.8}", -EINVAL, "no value");
}

Test(schema, strings_are_matched_as_json_spells_them)
{
	expect("{\"type\":\"string\",\"pattern\":\"^a\\\"[\\\\n\\u00e9]$\"}", NULL,
	       YES("\"a\\\"\\n\"", "\"a\\\"\xc3\xa9\"", "\"\\u0061\\u0022\\u00E9\"", "\"a\\\"\\u000a\""),
	       NO("\"a\"\\n\"", "\"a\\\"n\"", "\"a\\\"\\u00e8\"", "\"ab\\\"\\n\""));
	expect("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", NULL,
	       YES("\"ab\"", "\"\xf0\x9f\x98\x80\\ud83d\\ude00\"", "\"\\n\\u00e9\xc3\xa9\""),
	       NO("\"a\"", "\"\"", "\"\\u00e9\"", "\"abcd\""));
	expect("{\"type\":\"string\",\"pattern\":\"b\",\"maxLength\":2}", NULL, YES("\"b\"", "\"ab\""),
	       NO("\"aab\"", "\"a\""));
	expect("{\"enum\":[\"a\\n\\u0001\",3,null,[1,{\"x\":2}]]}", NULL,
	       YES("\"a\\n\\u0001\"", "3", "null", "[1, {\"x\": 2}]"),
	       NO("\"a\"", "4", "[1]", "[1, {\"x\": 2}, 3]", "[1, {}]"));
	expect("{\"enum\":[\"a\",\"bcd\",1,20],\"not\":{\"enum\":[20]},\"maxLength\":2}", NULL,
	       YES("\"a\"", "1"), NO("\"bcd\"", "20"));
}

Test(schema, formats_are_patterns)
{
	expect("{\"type\":\"string\",\"format\":\"date\"}", NULL, YES("\"2024-02-29\"", "\"2023-12-31\""),
	       NO("\"2023-02-29\"", "\"2023-04-31\"", "\"1900-02-29\"", "\"2023-13-01\""));
	expect("{\"type\":\"string\",\"format\":\"date-time\"}", NULL,
	       YES("\"2023-01-01T00:00:00Z\"", "\"2023-01-01T23:59:59.5+01:00\""),
	       NO("\"2023-01-01\"", "\"2023-01-01T24:00:00Z\"", "\"2023-01-01T00:00:00\""));
	expect("{\"type\":\"string\",\"format\":\"ipv6\"}", NULL,
	       YES("\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"1::8\"", "\"::ffff:1.2.3.4\""),
	       NO("\"1:2:3:4:5:6:7\"", "\":::\"", "\"1::2::3\"", "\"12345::\"", "\"::256.1.1.1\""));
	expect("{\"type\":\"string\",\"format\":\"ipv4\"}", NULL, YES("\"0.255.10.199\""),
	       NO("\"256.0.0.1\"", "\"01.0.0.1\"", "\"1.2.3\""));
	expect("{\"type\":\"string\",\"format\":\"uri\"}", NULL,
	       YES("\"http://a.b:80/c?d#e\"", "\"urn:x:y\"", "\"file:///x\""),
	       NO("\"a.b\"", "\"http://a b\"", "\"//a\"", "\"\""));
	expect("{\"type\":\"string\",\"format\":\"email\"}", NULL, YES("\"a.b+c@d.org\""),
	       NO("\"a\"", "\"a@\"", "\".a@b\"", "\"a@b@c\""));
	expect("{\"type\":\"string\",\"format\":\"uuid\"}", NULL,
	       YES("\"123e4567-e89b-12d3-a456-426614174000\""), NO("\"123e4567\""));
	expect("{\"type\":\"string\",\"format\":\"duration\"}", NULL,
	       YES("\"P1DT2H\"", "\"P3W\"", "\"PT5M\""), NO("\"P\"", "\"PT\"", "\"P1H\""));
	expect("{\"type\":\"string\",\"format\":\"regex\"}", NULL,
	       YES("\"^[a-zA-Z0-9_]{3,16}$\"", "\"(a|\\\\d+)*?\"", "\"\""),
	       NO("\"(a\"", "\"[z-a]\"", "\"a{3,2}\"", "\"*\"", "\"a)\""));
	expect("{\"type\":\"string\",\"format\":\"favourite\"}", NULL, YES("\"anything\""), NO("1"));
}

Test(schema, any_of_and_all_of_combine)
{
	expect("{\"anyOf\":[{\"type\":\"integer\",\"minimum\":3},{\"type\":\"string\",\"maxLength\":1}],"
	       "\"maximum\":5}",
	       NULL, YES("3", "5", "\"a\""), NO("2", "6", "\"ab\"", "null"));
	expect("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"minimum\":2}},\"required\":[\"a\"]}"
	       ","
	       "{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}},"
	       "\"additionalProperties\":false}]}",
	       NULL, YES("{\"a\": 2}", "{\"a\": 3, \"b\": null}"),
	       NO("{\"a\": 1}", "{\"a\": 2.5}", "{\"a\": 2, \"c\": 1}", "{}"));
	refuse("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", -EINVAL, "#: no value");
	refuse("{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":false}}", -EINVAL,
	       "#: no value");
}

Test(schema, one_of_is_exact)
{
	expect("{\"oneOf\":[{\"type\":\"integer\",\"multipleOf\":2},{\"type\":\"integer\",\"minimum\":5}]}",
	       NULL, YES("2", "4", "5", "7", "-2"), NO("6", "8", "3"));
	expect("{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", NULL,
	       YES("{\"a\": 1}", "{\"b\": 1}", "{\"a\": 1, \"c\": 1}"), NO("{}", "{\"a\": 1, \"b\": 1}"));
	expect("{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
	       "\"additionalProperties\":false},"
	       "{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"}},\"additionalProperties\":"
	       "false}]}",
	       NULL, YES("{\"a\": 1}", "{\"b\": 1}"), NO("{}", "{\"a\": 1, \"b\": 1}", "{\"c\": 1}"));
	expect("{\"oneOf\":[{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":\"x\"}"
	       "}},"
	       "{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":\"y\"},\"z\":{"
	       "\"type\":\"null\"}}}]}",
	       NULL, YES("{\"k\": \"x\", \"z\": 1}", "{\"k\": \"y\", \"z\": null}"),
	       NO("{\"k\": \"y\", \"z\": 1}", "{\"k\": \"w\"}"));
	refuse("{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"string\"}]}", -EINVAL, "#: no value");
}

Test(schema, denials_and_conditions)
{
	expect("{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"type\":\"integer\"}},"
	       "\"additionalProperties\":false}}",
	       NULL, YES("{\"a\": null}", "{\"b\": 1}", "{\"a\": 1, \"b\": 1}"), NO("{\"a\": 1}", "{}"));
	expect("{\"not\":{\"type\":[\"object\",\"array\",\"number\"]}}", NULL, YES("null", "\"a\"", "true"),
	       NO("1", "{}", "[]"));
	expect("{\"type\":\"string\",\"not\":{\"pattern\":\"^a\"}}", NULL,
	       YES("\"b\"", "\"\"", "\"\\u0062\""), NO("\"a\"", "\"\\u0061b\""));
	expect("{\"type\":\"object\",\"not\":{\"required\":[\"a\",\"b\"]}}", NULL,
	       YES("{}", "{\"a\": 1}", "{\"b\": 1}"), NO("{\"a\": 1, \"b\": 1}"));
	expect("{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"integer\"}}}", NULL,
	       YES("[\"a\"]", "[1, null, 2]"), NO("[]", "[1, 2]"));
	expect("{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"integer\"}}}", NULL,
	       YES("{\"a\": \"b\"}", "{\"a\": 1, \"b\": null, \"c\": 1}"), NO("{}", "{\"a\": 1}"));
	expect("{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"x\",\"y\"]},\"v\":{}},\"required\":["
	       "\"k\"],\"if\":"
	       "{\"properties\":{\"k\":{\"const\":\"x\"}}},\"then\":{\"required\":[\"v\"]},\"else\":{"
	       "\"properties\":{\"v\":{\"type\":\"null\"}}}}",
	       NULL, YES("{\"k\": \"x\", \"v\": 1}", "{\"k\": \"y\"}", "{\"k\": \"y\", \"v\": null}"),
	       NO("{\"k\": \"x\"}", "{\"k\": \"y\", \"v\": 1}"));
	expect("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":[\"b\"]}"
	       "}",
	       NULL, YES("{}", "{\"b\": 1}", "{\"a\": 1, \"b\": 1}"),
	       NO("{\"a\": 1}", "{\"a\": 1, \"c\": 1}"));
	expect("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependencies\":{\"a\":{"
	       "\"properties\":{\"b\":{\"type\":\"null\"}}}}}",
	       NULL, YES("{\"b\": 1}", "{\"a\": 1, \"b\": null}"), NO("{\"a\": 1, \"b\": 1}"));
}

Test(schema, references_recurse)
{
	expect("{\"$defs\":{\"list\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
	       "\"next\":{\"$ref\":\"#/$defs/list\"}},"
	       "\"required\":[\"v\"],\"additionalProperties\":false}},\"$ref\":\"#/$defs/list\"}",
	       NULL, YES("{\"v\": 1}", "{\"v\": 1, \"next\": {\"v\": 2, \"next\": {\"v\": 3}}}"),
	       NO("{}", "{\"v\": 1, \"next\": 2}", "{\"next\": {\"v\": 1}}"));
	expect("{\"$id\":\"http://a/"
	       "b.json\",\"$ref\":\"c.json#x\",\"$defs\":{\"c\":{\"$id\":\"c.json\",\"$defs\":{\"y~/"
	       "z\":{\"$anchor\":\"x\",\"$ref\":\"#/$defs/q%25\"},"
	       "\"q%\":{\"type\":\"null\"}}}}}",
	       NULL, YES("null"), NO("1"));
	refuse("{\"$ref\":\"#/a\"}", -ENOTSUP, "#: $ref \"#/a\"");
	refuse("{\"properties\":{\"a\":{\"$ref\":\"http://x/y\"}}}", -ENOTSUP, "#/properties/a: $ref");
	refuse("{\"allOf\":[{\"$ref\":\"#\"}]}", -EINVAL, "refers to itself");
	refuse("{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}", -EINVAL,
	       "");
	expect("{\"$schema\":\"http://json-schema.org/draft-07/"
	       "schema#\",\"definitions\":{\"n\":{}},\"$ref\":\"#/definitions/n\",\"type\":\"null\"}",
	       NULL, YES("1"), NO(""));
}

Test(schema, what_is_not_decided_is_named_with_its_place)
{
	refuse("{\"properties\":{\"a/b\":{\"items\":{\"$dynamicRef\":\"#x\"}}}}", -ENOTSUP,
	       "#/properties/a~1b/items: $dynamicRef");
	refuse("{\"type\":\"array\",\"uniqueItems\":true}", -ENOTSUP, "#: uniqueItems");
	refuse("{\"properties\":{\"a\":{\"type\":\"object\",\"minProperties\":30000}}}", -ENOTSUP,
	       "#/properties/a: minProperties");
	refuse("{\"type\":\"strin\"}", -EINVAL, "#: type \"strin\"");
	refuse("{\"properties\":{\"a\":{\"pattern\":\"(a\"}}}", -ENOTSUP, "#/properties/a: the pattern");
	refuse("{\"minimum\":\"1\"}", -EINVAL, "#: minimum must be a number");
	refuse("{\"anyOf\":[]}", -EINVAL, "#: anyOf must be");
	refuse("{\"properties\":{\"a\":3}}", -EINVAL, "must be an object, true or false");
	expect("{\"title\":1,\"x-any\":[],\"$comment\":{},\"deprecated\":true,\"type\":\"null\"}", NULL,
	       YES("null"), NO("1"));
}

Test(schema, steps_are_bounded)
{
	const struct schema_options few = {.max_steps = 50};
	struct buf b = {0};
	char why[512];
	struct grammar *g;
	buf_puts(&b, "{\"allOf\":[{}");
	for (int i = 0; i < 100; i++)
		buf_puts(&b, ",{\"type\":\"object\"}");
	buf_puts(&b, "]}");
	cr_expect_eq(compile(b.p, &few, &g, why, sizeof why), -E2BIG);
	cr_expect(strstr(why, "steps"), "%s", why);
	buf_fini(&b);
}

/* Whether names are left with any of the patterns and without others takes a way to the end of a text, not
 * all states of all patterns together (15,784 expressions, a second). */
Test(schema, names_that_must_hold_several_words_are_found_soon)
{
	char why[512];
	struct grammar *g;
	struct grammar_counts counts;
	cr_assert_eq(compile("{\"type\":\"object\",\"patternProperties\":{\"rties\":{},\"propertyNames\":{},"
			     "\"minProperties\":{},\"if\":{},\"thProperties\":{\"type\":\"null\"}}}",
			     NULL, &g, why, sizeof why),
		     0, "%s", why);
	grammar_counts(g, &counts);
	cr_expect_leq(counts.n_exprs, 5000);
	help_yes(g, "{}", "{\"if\": 1}", "{\"thProperties\": null}");
	help_no(g, "{\"thProperties\": 1}");
	grammar_free(g);
}

Test(schema, what_explodes_is_refused)
{
	struct buf b = {0};
	char why[512];
	struct grammar *g;
	buf_puts(&b, "{\"allOf\":[");
	for (int i = 0; i < 40; i++)
		buf_printf(&b, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
			   i ? "," : "", i, i);
	buf_puts(&b, "],\"type\":\"object\"}");
	cr_expect_eq(compile(b.p, NULL, &g, why, sizeof why), -E2BIG);
	cr_expect(strstr(why, "alternatives") || strstr(why, "steps"), "%s", why);
	buf_clear(&b);
	buf_puts(&b, "{\"anyOf\":[{}");
	for (int i = 0; i < 100000; i++)
		buf_puts(&b, ",{\"type\":\"object\"}");
	buf_puts(&b, "]}");
	cr_expect_eq(compile(b.p, NULL, &g, why, sizeof why), -E2BIG);
	buf_clear(&b);
	for (int i = 0; i < 120; i++)
		buf_puts(&b, "{\"not\":");
	buf_puts(&b, "{}");
	for (int i = 0; i < 120; i++)
		buf_puts(&b, "}");
	int rc = compile(b.p, NULL, &g, why, sizeof why);
	cr_expect(rc == 0 || rc == -EINVAL || rc == -E2BIG, "%d: %s", rc, why);
	if (!rc)
		grammar_free(g);
	buf_fini(&b);
}

/* {"type":"object","properties":{"k0":{"type":"string"},...},"required":["k0",...]}; without required: none.
 */
static void put_members(struct buf *b, int n, bool properties, bool required)
{
	buf_puts(b, "{\"type\":\"object\"");
	for (int i = 0; i < n && properties; i++)
		buf_printf(b, "%s\"k%d\":{\"type\":\"string\"}", i ? "," : ",\"properties\":{", i);
	buf_puts(b, properties ? "}" : "");
	for (int i = 0; i < n && required; i++)
		buf_printf(b, "%s\"k%d\"", i ? "," : ",\"required\":[", i);
	buf_puts(b, required ? "]}" : "}");
}

/* Ten times the members take ten times the steps and the memory, not a hundred times. */
Test(schema, many_members_cost_as_much_as_they_are)
{
	struct buf b = {0};
	char why[512] = "";
	for (int form = 1; form <= 3; form++) {
		size_t steps[2] = {0}, bytes[2];
		for (int large = 0; large < 2; large++) {
			struct grammar *g;
			struct grammar_counts counts;
			const struct schema_options o = {.steps = &steps[large]};
			buf_clear(&b);
			put_members(&b, large ? 20000 : 2000, form & 1, form & 2);
			cr_assert_eq(compile(b.p, &o, &g, why, sizeof why), 0, "form %d: %s", form, why);
			grammar_counts(g, &counts);
			bytes[large] = counts.bytes;
			if (form == 3)
				help_no(g, "{}", "{\"k1\": \"\"}");
			grammar_free(g);
		}
		cr_expect_leq(steps[1], 12 * steps[0], "form %d: %zu, %zu steps", form, steps[0], steps[1]);
		cr_expect_leq(bytes[1], 16 * bytes[0], "form %d: %zu, %zu bytes", form, bytes[0], bytes[1]);
	}
	buf_fini(&b);
}

/* What may stand first goes up to the first member that must be there. */
Test(schema, members_up_to_the_first_that_must_be_there_may_stand_first)
{
	expect("{\"properties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{}},\"required\":[\"c\"],\"type\":"
	       "\"object\","
	       "\"additionalProperties\":false}",
	       NULL,
	       YES("{\"c\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1,\"d\":1}",
		   "{\"a\":1,\"b\":1,\"c\":1}"),
	       NO("{}", "{\"d\":1}", "{\"a\":1}", "{\"a\":1,\"d\":1}", "{\"d\":1,\"c\":1}",
		  "{\"b\":1,\"a\":1,\"c\":1}"));
	expect("{\"properties\":{\"a\":{},\"b\":false,\"c\":{}},\"type\":\"object\"}", NULL,
	       YES("{}", "{\"a\":1}", "{\"c\":1}", "{\"x\":1}", "{\"a\":1,\"x\":1}", "{\"a\":1,\"c\":1}"),
	       NO("{\"b\":1}", "{\"c\":1,\"a\":1}", "{,}", "{\"x\":1,\"a\":1}"));
}

/* What each of many schemas says of each name, and copies of what a denial leaves. */
Test(schema, names_of_many_schemas_are_bounded)
{
	const struct schema_options few = {.max_steps = 2000}, more = {.max_steps = 20000};
	struct buf b = {0};
	struct grammar *g = NULL;
	char why[512] = "";
	buf_puts(&b, "{\"type\":\"object\",\"allOf\":[{}");
	for (int i = 0; i < 400; i++)
		buf_printf(&b, ",{\"properties\":{\"k%d\":{}}}", i);
	buf_puts(&b, "]}");
	cr_expect_eq(compile(b.p, &few, &g, why, sizeof why), -E2BIG);
	cr_expect(strstr(why, "steps"), "%s", why);
	buf_clear(&b);
	buf_puts(&b, "{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"string\"}},"
		     "\"required\":[\"k\"");
	for (int i = 0; i < 200; i++)
		buf_printf(&b, ",\"k%d\"", i);
	buf_puts(&b, "]}");
	cr_expect_eq(compile(b.p, &more, &g, why, sizeof why), -E2BIG);
	cr_expect(strstr(why, "steps"), "%s", why);
	buf_fini(&b);
}

Test(schema, long_enums_are_not_searched_for_their_own_values)
{
	struct buf b = {0}, list = {0};
	struct grammar *g;
	char why[512] = "";
	for (int strings = 0; strings < 2; strings++) {
		buf_clear(&list);
		for (int i = 0; i < 20000; i++)
			buf_printf(&list, strings ? "%s\"v%d\"" : "%s%d", i ? "," : "[", i);
		buf_puts(&list, "]");
		buf_clear(&b);
		buf_printf(&b, "{\"enum\":%s}", list.p);
		cr_assert_eq(compile(b.p, NULL, &g, why, sizeof why), 0, "%s", why);
		help_texts(g, true, strings ? YES("\"v0\"", "\"v19999\"") : YES("0", "19999"));
		grammar_free(g);
		buf_clear(&b);
		buf_printf(&b, "{\"allOf\":[{\"enum\":%s},{\"enum\":%s}]}", list.p, list.p);
		cr_expect_eq(compile(b.p, NULL, &g, why, sizeof why), -E2BIG);
		cr_expect(strstr(why, "steps"), "%s", why);
	}
	buf_fini(&b);
	buf_fini(&list);
}

Test(schema, multiples_of_tiny_numbers_are_refused)
{
	refuse("{\"type\":\"number\",\"multipleOf\":2e-17}", -ENOTSUP, "multipleOf 2.0000000000000001e-17 ");
	refuse("{\"type\":\"number\",\"multipleOf\":2e-6}", -ENOTSUP, "multipleOf");
	expect("{\"type\":\"number\",\"multipleOf\":0.002}", NULL, YES("0.002", "-1.1", "3.0040"),
	       NO("0.001", "1.0001"));
}

/* A C string would end there, and mean another pattern or name. */
Test(schema, a_nul_is_refused_where_it_would_cut_a_text_short)
{
	refuse("{\"type\":\"string\",\"pattern\":\"^a\\u0000b$\"}", -ENOTSUP, "pattern: a text with a NUL");
	refuse("{\"properties\":{\"enum\":{\"pattern\":\"a\\u0000\"}}}", -ENOTSUP, "a text with a NUL");
	refuse("{\"type\":\"object\",\"required\":[\"a\\u0000\"]}", -ENOTSUP, "a text with a NUL");
	expect("{\"enum\":[\"a\\u0000b\"],\"description\":\"\\u0000\"}", NULL, YES("\"a\\u0000b\""),
	       NO("\"a\"", "\"ab\""));
	expect("{\"const\":\"\\u0000\"}", NULL, YES("\"\\u0000\""), NO("\"\""));
}

/* What is not known of a pattern is not taken for "matches nothing". */
Test(schema, a_pattern_too_large_to_ask_is_an_error)
{
	struct buf b = {0};
	struct grammar *g;
	char why[512] = "";
	buf_puts(&b, "{\"type\":\"object\",\"properties\":{\"k5\":{}},\"patternProperties\":{\"^(k0");
	for (int i = 1; i < 100000; i++)
		buf_printf(&b, "|k%d", i);
	buf_puts(&b, ")$\":{\"type\":\"null\"}}}");
	cr_expect_eq(compile(b.p, NULL, &g, why, sizeof why), -E2BIG);
	cr_expect(strstr(why, "takes more than"), "%s", why);
	buf_fini(&b);
}

/* The schemas of a request's values are bounded together. */
Test(schema, several_schemas_share_a_bound_of_steps)
{
	static const char text[] =
		"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},"
		"\"b\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"integer\"}]}}}]}";
	size_t steps = 0;
	const struct schema_options each = {.max_steps = 50}, shared = {.max_steps = 50, .steps = &steps};
	struct grammar *g;
	char why[512] = "";
	int taken = 0;
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(compile(text, &each, &g, why, sizeof why), 0, "%s", why);
		grammar_free(g);
	}
	while (taken < 100 && !compile(text, &shared, &g, why, sizeof why)) {
		grammar_free(g);
		taken++;
	}
	cr_expect(taken > 0 && taken < 100, "%d", taken);
	cr_expect(strstr(why, "takes more than 50 steps"), "%s", why);
}
