/* JSON schemas as grammars: the texts that each keyword allows, and refusals with name and place. */
#include "tests/unit/grammar/schema_help.h"

/* Without these bounds a weak model might never end its output. */
static const struct schema_options bounded = {.bounded = true};
#define CLOSED(schema, yes, no)                                                                              \
	do {                                                                                                 \
		static const char *const also[] = {no, NULL};                                                \
		expect(schema, &bounded, YES yes, also);                                                     \
		expect(schema, NULL, YES yes, NO(NULL));                                                     \
		expect(schema, NULL, also, NO(NULL));                                                        \
	} while (0)
#define LIST(...) __VA_ARGS__

Test(schema, bounded_objects_that_list_properties_have_no_others)
{
	CLOSED("{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},\"required\":[\"a\"],\"type\":"
	       "\"object\"}",
	       ("{\"a\": 1}", "{\"a\": 1, \"b\": [{\"x\": 1}]}"),
	       LIST("{\"a\": 1, \"c\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1}"));
	CLOSED("{\"type\":\"object\",\"properties\":{}}", ("{}"), LIST("{\"a\": 1}"));
	/* nothing is listed, or the schema mentions other members */
	expect("{\"type\":\"object\"}", &bounded, YES("{}", "{\"a\": 1}"), NO(NULL));
	expect("{\"type\":\"object\",\"required\":[\"a\"]}", &bounded, YES("{\"a\": 1, \"b\": 2}"), NO("{}"));
	expect("{\"properties\":{\"a\":{}},\"additionalProperties\":true,\"type\":\"object\"}", &bounded,
	       YES("{\"b\": 1}"), NO(NULL));
	expect("{\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"null\"},\"type\":\"object\"}",
	       &bounded, YES("{\"b\": null}"), NO("{\"b\": 1}"));
	expect("{\"properties\":{\"a\":{}},\"unevaluatedProperties\":true,\"type\":\"object\"}", &bounded,
	       YES("{\"b\": 1}"), NO(NULL));
	/* at every depth */
	CLOSED("{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"a\":{\"properties\":{"
	       "\"b\":{}},"
	       "\"type\":\"object\"}}}}",
	       ("[{\"a\": {\"b\": 1}}, {}]"), LIST("[{\"a\": {\"c\": 1}}]", "[{\"c\": 1}]"));
	/* a const value keeps its own members */
	expect("{\"const\":{\"a\":1}}", &bounded, YES("{\"a\": 1}"), NO("{}", "{\"a\": 1, \"b\": 1}"));
}

Test(schema, bounded_objects_keep_the_names_of_all_their_schemas)
{
	CLOSED("{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\",\"z\"]}",
	       ("{\"a\": 1, \"z\": 2}", "{\"a\": {}, \"z\": {}}"), LIST("{\"a\": 1, \"z\": 2, \"y\": 3}"));
	CLOSED("{\"type\":\"object\",\"properties\":{\"a\":{}},\"patternProperties\":{\"^x-\":{\"type\":"
	       "\"null\"}}}",
	       ("{\"a\": 1, \"x-b\": null}", "{\"x-\": null}"), LIST("{\"y\": null}"));
	CLOSED("{\"allOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"properties\":{\"b\":{}},"
	       "\"required\":[\"b\"]}],"
	       "\"type\":\"object\"}",
	       ("{\"a\": 1, \"b\": 2}"), LIST("{\"a\": 1, \"b\": 2, \"c\": 3}"));
	CLOSED("{\"$defs\":{\"base\":{\"properties\":{\"a\":{}}}},\"$ref\":\"#/$defs/"
	       "base\",\"properties\":{\"b\":{}},"
	       "\"required\":[\"a\",\"b\"],\"type\":\"object\"}",
	       ("{\"b\": 1, \"a\": 2}"), LIST("{\"b\": 1, \"a\": 2, \"c\": 3}"));
	CLOSED("{\"type\":\"object\",\"properties\":{\"k\":{}},\"required\":[\"k\"],\"anyOf\":[{"
	       "\"properties\":{\"a\":{}},"
	       "\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
	       ("{\"k\": 1, \"a\": 2}", "{\"k\": 1, \"b\": 2}"), LIST("{\"k\": 1, \"a\": 2, \"c\": 3}"));
	CLOSED("{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[1,2]}},\"required\":[\"k\"],\"if\":{"
	       "\"properties\":{"
	       "\"k\":{\"const\":1}}},\"then\":{\"properties\":{\"v\":{\"type\":\"null\"}},\"required\":["
	       "\"v\"]},"
	       "\"else\":{\"required\":[\"w\"]}}",
	       ("{\"k\": 1, \"v\": null}", "{\"k\": 2, \"w\": 0}"),
	       LIST("{\"k\": 1, \"v\": null, \"w\": 0}", "{\"k\": 2, \"w\": 0, \"v\": 0}"));
	CLOSED("{\"type\":\"object\",\"properties\":{\"a\":{}},\"dependentRequired\":{\"a\":[\"b\"]},"
	       "\"dependentSchemas\":{\"a\":{\"properties\":{\"c\":{}}}}}",
	       ("{}", "{\"a\": 1, \"c\": 1, \"b\": 1}"), LIST("{\"d\": 1}"));
	/* one branch's rule for other members holds for the whole object */
	expect("{\"type\":\"object\",\"properties\":{\"a\":{}},\"anyOf\":[{\"additionalProperties\":true},{"
	       "\"required\":"
	       "[\"a\"]}]}",
	       &bounded, YES("{\"b\": 1}"), NO(NULL));
	expect("{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"x\"},\"n\":{\"type\":"
	       "\"integer\"}},"
	       "\"required\":[\"k\",\"n\"]},{\"properties\":{\"k\":{\"const\":\"y\"}},\"required\":[\"k\"]}]"
	       "}",
	       &bounded, YES("{\"k\": \"x\", \"n\": 1}", "{\"k\": \"y\"}"),
	       NO("{\"k\": \"y\", \"n\": 1}", "{\"k\": \"x\", \"n\": 1, \"m\": 1}"));
	/* not: a member that only the negated schema names */
	expect("{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"],\"not\":{\"properties\":{"
	       "\"b\":"
	       "{\"type\":\"null\"}}}}",
	       &bounded, YES("{\"a\": 1, \"b\": 2}"), NO("{\"a\": 1}", "{\"a\": 1, \"b\": null}"));
}

Test(schema, bounded_objects_stay_satisfiable)
{
	/* more members required than listed */
	CLOSED("{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":2}",
	       ("{\"a\": 1, \"x\": 2}", "{\"x\": 1, \"y\": 2}"), LIST("{\"a\": 1, \"x\": 2, \"y\": 3}"));
	/* as many members required as listed */
	CLOSED("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":1}",
	       ("{\"a\": 1}", "{\"b\": 1}", "{\"a\": 1, \"b\": 1}"), LIST("{\"x\": 1}"));
	/* an object that would nest forever */
	expect("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"minProperties\":1}", &bounded,
	       YES("{\"x\": 1}", "{\"a\": {\"a\": {\"x\": 1}}}"), NO("{}"));
	/* a member is required, but none of the listed ones is possible */
	expect("{\"type\":\"object\",\"properties\":{\"a\":false},\"minProperties\":1}", &bounded,
	       YES("{\"b\": 1}"), NO("{}", "{\"a\": 1}", "{\"b\": 1, \"c\": 1}"));
	/* a negation that needs a member with any name */
	expect("{\"type\":\"object\",\"properties\":{\"a\":{}},\"not\":{\"additionalProperties\":{\"type\":"
	       "\"null\"}}}",
	       &bounded, YES("{\"b\": 1}"), NO("{\"b\": null}"));
}

Test(schema, bounded_numbers_end)
{
	static const char twenty[] = "12345678901234567890", more[] = "123456789012345678901";
	const char *numbers[] = {"{\"type\":\"integer\"}",
				 "{\"type\":\"number\"}",
				 "{\"type\":\"integer\",\"minimum\":-5}",
				 "{\"type\":\"integer\",\"minimum\":1}",
				 "{\"type\":\"number\",\"exclusiveMinimum\":0}",
				 "{\"type\":\"integer\",\"multipleOf\":10}",
				 "{\"type\":\"integer\",\"not\":{\"const\":1}}"};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		expect(numbers[i], &bounded, YES(twenty),
		       NO("123456789012345678900", "100000000000000000000"));
		expect(numbers[i], NULL, YES(twenty, "123456789012345678900"), NO(NULL));
	}
	expect("{\"type\":\"integer\",\"maximum\":5}", &bounded, YES("-12345678901234567890"),
	       NO("-123456789012345678901"));
	expect("{\"type\":\"number\"}", &bounded, YES("-0.12345678901234567890e-300", "1E+7"),
	       NO("0.123456789012345678901", "1e1000"));
	/* longer numbers in the schema itself can be reached */
	expect("{\"type\":\"integer\",\"minimum\":1e30}", &bounded, YES("1000000000000000000000000000001"),
	       NO(more));
	expect("{\"type\":\"integer\",\"minimum\":1e30,\"multipleOf\":10}", &bounded,
	       YES("1000000000000000000000000000010"), NO("1000000000000000000000000000001"));
	expect("{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1e-30}", &bounded,
	       YES("0.0000000000000000000000000000001"), NO("0.1"));
	expect("{\"type\":\"integer\",\"minimum\":0,\"maximum\":1e25}", &bounded,
	       YES("9999999999999999999999999"), NO("99999999999999999999999999"));
	expect("{\"enum\":[1e30]}", &bounded, YES("1000000000000000000000000000000"), NO("1"));
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

Test(schema, bounds_of_several_schemas_hold_together)
{
	expect("{\"type\":\"array\",\"allOf\":[{\"minItems\":1},{\"minItems\":2},{\"minItems\":1},{"
	       "\"maxItems\":4},"
	       "{\"maxItems\":3},{\"maxItems\":5}],\"items\":{\"const\":1}}",
	       NULL, YES("[1, 1]", "[1, 1, 1]"), NO("[]", "[1]", "[1, 1, 1, 1]"));
	expect("{\"type\":\"string\",\"allOf\":[{\"minLength\":1},{\"minLength\":2},{\"minLength\":1},{"
	       "\"maxLength\":"
	       "4},{\"maxLength\":3},{\"maxLength\":5}]}",
	       NULL, YES("\"ab\"", "\"abc\""), NO("\"\"", "\"a\"", "\"abcd\""));
	expect("{\"allOf\":[{\"enum\":[\"a\",\"b\"]},{\"enum\":[\"b\",\"c\"]}]}", NULL, YES("\"b\""),
	       NO("\"a\"", "\"c\""));
	expect("{\"enum\":[\"\u00e4\u00e4\",\"\u00e4\u00e4\u00e4\"],\"minLength\":2,\"maxLength\":2}", NULL,
	       YES("\"\xc3\xa4\xc3\xa4\""), NO("\"\xc3\xa4\xc3\xa4\xc3\xa4\""));
	expect("{\"type\":\"object\",\"allOf\":[{\"minProperties\":1},{\"minProperties\":2},{"
	       "\"minProperties\":1},{"
	       "\"maxProperties\":3},{\"maxProperties\":2},{\"maxProperties\":3}]}",
	       NULL, YES("{\"a\": 1, \"b\": 1}"), NO("{\"a\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1}"));
	/* an unknown format asserts nothing, so its negation matches nothing */
	refuse("{\"type\":\"string\",\"not\":{\"format\":\"favourite\"}}", -EINVAL, "no text matches");
	refuse("{\"enum\":[\"a\",1],\"not\":{\"format\":\"favourite\"}}", -EINVAL, "no value");
}

Test(schema, items_that_are_contained_or_unique_are_counted_too)
{
	expect("{\"type\":\"array\",\"contains\":{\"const\":7},\"minItems\":2,\"items\":{\"enum\":[7,8]}}",
	       NULL, YES("[7, 8]", "[8, 8, 7]", "[7, 7]"), NO("[7]", "[8, 8]", "[]"));
	expect("{\"type\":\"array\",\"items\":{\"enum\":[1,2,3]},\"uniqueItems\":true,\"minItems\":1,"
	       "\"maxItems\":2}",
	       NULL, YES("[1]", "[3, 2]"), NO("[]", "[1, 1]", "[1, 2, 3]"));
	expect("{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"unevaluatedItems\":{\"const\":2}}",
	       NULL, YES("[]", "[1]", "[1, 2, 2]"), NO("[2]", "[1, 1]"));
	expect("{\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}", NULL,
	       YES("[1, 2]"), NO("[1, 1]"));
	expect("{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1,\"items\":{}}", NULL,
	       YES("[]", "[1]"), NO("[1, 2]"));
	expect("{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":7},\"minContains\":0},{\"contains\":{"
	       "\"const\":"
	       "8}}],\"items\":{\"type\":\"integer\"}}",
	       NULL, YES("[8]", "[7, 8]"), NO("[]", "[7]"));
	refuse("{\"type\":\"array\",\"items\":{\"enum\":[1,1.0]},\"uniqueItems\":true}", -ENOTSUP,
	       "uniqueItems of items");
	refuse("{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,4,5,6,7,8,9,10]},\"uniqueItems\":true}",
	       -ENOTSUP, "uniqueItems of items");
	refuse("{\"type\":\"array\",\"items\":{\"const\":1},\"contains\":{\"const\":2}}", -EINVAL,
	       "no value");
	refuse("{\"type\":\"array\",\"prefixItems\":[{\"const\":1},false],\"minItems\":2}", -EINVAL,
	       "no value");
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

/* Negating a count or a bound leaves the complement. */
Test(schema, denied_counts_bounds_and_values_are_the_rest)
{
	expect("{\"type\":\"string\",\"not\":{\"maxLength\":1}}", NULL, YES("\"ab\""), NO("\"\"", "\"a\""));
	expect("{\"type\":\"string\",\"not\":{\"minLength\":2}}", NULL, YES("\"\"", "\"a\""), NO("\"ab\""));
	refuse("{\"type\":\"string\",\"not\":{\"minLength\":0}}", -EINVAL, "no value");
	expect("{\"type\":\"array\",\"items\":{\"const\":1},\"not\":{\"maxItems\":1}}", NULL, YES("[1, 1]"),
	       NO("[]", "[1]"));
	expect("{\"type\":\"integer\",\"not\":{\"minimum\":5}}", NULL, YES("4"), NO("5", "6"));
	expect("{\"type\":\"integer\",\"not\":{\"exclusiveMinimum\":5}}", NULL, YES("4", "5"), NO("6"));
	expect("{\"type\":\"integer\",\"not\":{\"maximum\":5}}", NULL, YES("6"), NO("5", "4"));
	expect("{\"enum\":[null,true,1,\"a\"],\"not\":{\"enum\":[null,1]}}", NULL, YES("true", "\"a\""),
	       NO("null", "1"));
}

Test(schema, keywords_of_older_drafts_are_read)
{
	expect("{\"type\":\"integer\",\"maximum\":5,\"exclusiveMaximum\":true}", NULL, YES("4"), NO("5"));
	expect("{\"type\":\"integer\",\"maximum\":5,\"exclusiveMaximum\":false}", NULL, YES("5"), NO("6"));
	expect("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependencies\":{\"a\":\"b\"}}",
	       NULL, YES("{}", "{\"b\": 1}", "{\"a\": 1, \"b\": 1}"), NO("{\"a\": 1}"));
	expect("{\"type\":\"object\",\"properties\":{\"a\":{\"required\":true,\"type\":\"null\"}}}", NULL,
	       YES("{\"a\": null}"), NO("{\"a\": 1}"));
	expect("{\"type\":\"integer\",\"enum\":[1.0,2.5]}", NULL, YES("1.0"), NO("2.5"));
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

Test(schema, references_are_relative_to_the_schema_with_an_id)
{
	static const struct {
		const char *base, *id, *ref;
	} of[] = {{"http://a/x/y.json", "z.json", "z.json"},
		  {"http://a/x/y.json", "/z.json", "http://a/z.json"},
		  {"http://a/x/y.json", "//b/z.json", "http://b/z.json"},
		  {"http://a", "z.json", "http://a/z.json"},
		  {"urn:x", "http://b/z", "http://b/z"},
		  {"x/y", "z", "z"},
		  {"y", "z", "z"}};
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		char schema[400];
		snprintf(schema, sizeof schema,
			 "{\"$id\":\"%s\",\"$ref\":\"%s\",\"$defs\":{\"z\":{\"$id\":\"%s\",\"type\":\"null\"}"
			 "}}",
			 of[i].base, of[i].ref, of[i].id);
		expect(schema, NULL, YES("null"), NO("1"));
	}
	/* pointers: lists, both kinds of escapes, and property names */
	expect("{\"$ref\":\"#/%24defs/a%7E1b/anyOf/1\",\"$defs\":{\"a\":{\"b\":{}},\"a/"
	       "b\":{\"anyOf\":[{},{\"$ref\":"
	       "\"#/%24defs/t%7e01/b\"}]},\"t~1\":{\"b\":{\"type\":\"null\"}}}}",
	       NULL, YES("null"), NO("1"));
	refuse("{\"$ref\":\"#/anyOf/1x\",\"anyOf\":[{},{}]}", -ENOTSUP, "leads to nothing");
	refuse("{\"$ref\":\"#/anyOf/\",\"anyOf\":[{},{}]}", -ENOTSUP, "leads to nothing");
	refuse("{\"$ref\":\"#/title\",\"title\":\"a\"}", -EINVAL, "leads to a value that is no schema");
	/* an $id within a plain value names no schema */
	refuse("{\"$ref\":\"z\",\"x-not\":0,\"properties\":{\"a\":{\"const\":{\"$id\":\"z\"}}}}", -ENOTSUP,
	       "leads to nothing");
	/* a property may be named const */
	expect("{\"$ref\":\"z\",\"properties\":{\"const\":{\"$id\":\"z\",\"type\":\"null\"}}}", NULL,
	       YES("null"), NO("1"));
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
	struct why why;
	struct grammar *g;
	buf_puts(&b, "{\"allOf\":[{}");
	for (int i = 0; i < 100; i++)
		buf_puts(&b, ",{\"type\":\"object\"}");
	buf_puts(&b, "]}");
	cr_expect_eq(compile(b.p, &few, &g, &why), -E2BIG);
	cr_expect(strstr(why.text, "steps"), "%s", why.text);
	buf_fini(&b);
}

/* To decide whether any names match a pattern and not others, one accepted text is enough; the full product
 * (15,784 expressions) takes a second. */
Test(schema, names_that_must_hold_several_words_are_found_soon)
{
	struct why why;
	struct grammar *g;
	struct grammar_counts counts;
	cr_assert_eq(compile("{\"type\":\"object\",\"patternProperties\":{\"rties\":{},\"propertyNames\":{},"
			     "\"minProperties\":{},\"if\":{},\"thProperties\":{\"type\":\"null\"}}}",
			     NULL, &g, &why),
		     0, "%s", why.text);
	grammar_counts(g, &counts);
	cr_expect_leq(counts.n_exprs, 5000);
	help_yes(g, "{}", "{\"if\": 1}", "{\"thProperties\": null}");
	help_no(g, "{\"thProperties\": 1}");
	grammar_free(g);
}

Test(schema, what_explodes_is_refused)
{
	struct buf b = {0};
	struct why why;
	struct grammar *g;
	buf_puts(&b, "{\"allOf\":[");
	for (int i = 0; i < 40; i++)
		buf_printf(&b, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
			   i ? "," : "", i, i);
	buf_puts(&b, "],\"type\":\"object\"}");
	cr_expect_eq(compile(b.p, NULL, &g, &why), -E2BIG);
	cr_expect(strstr(why.text, "alternatives") || strstr(why.text, "steps"), "%s", why.text);
	buf_clear(&b);
	buf_puts(&b, "{\"anyOf\":[{}");
	for (int i = 0; i < 100000; i++)
		buf_puts(&b, ",{\"type\":\"object\"}");
	buf_puts(&b, "]}");
	cr_expect_eq(compile(b.p, NULL, &g, &why), -E2BIG);
	buf_clear(&b);
	for (int i = 0; i < 120; i++)
		buf_puts(&b, "{\"not\":");
	buf_puts(&b, "{}");
	for (int i = 0; i < 120; i++)
		buf_puts(&b, "}");
	int rc = compile(b.p, NULL, &g, &why);
	cr_expect(rc == 0 || rc == -EINVAL || rc == -E2BIG, "%d: %s", rc, why.text);
	if (!rc)
		grammar_free(g);
	buf_fini(&b);
}

/* {"type":"object","properties":{"k0":{"type":"string"},...},"required":["k0",...]}; properties and required
 * are optional. */
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

/* Ten times the members take ten times the steps and memory, not a hundred times. */
Test(schema, many_members_cost_as_much_as_they_are)
{
	struct buf b = {0};
	struct why why = {""};
	for (int form = 1; form <= 3; form++) {
		size_t steps[2] = {0}, bytes[2];
		for (int large = 0; large < 2; large++) {
			struct grammar *g;
			struct grammar_counts counts;
			const struct schema_options o = {.steps = &steps[large]};
			buf_clear(&b);
			put_members(&b, large ? 20000 : 2000, form & 1, form & 2);
			cr_assert_eq(compile(b.p, &o, &g, &why), 0, "form %d: %s", form, why.text);
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

/* The members up to the first required one may come first. */
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

/* Limits on each schema's statement about each name, and on copies made for a negation. */
Test(schema, names_of_many_schemas_are_bounded)
{
	const struct schema_options few = {.max_steps = 2000}, more = {.max_steps = 20000};
	struct buf b = {0};
	struct grammar *g = NULL;
	struct why why = {""};
	buf_puts(&b, "{\"type\":\"object\",\"allOf\":[{}");
	for (int i = 0; i < 400; i++)
		buf_printf(&b, ",{\"properties\":{\"k%d\":{}}}", i);
	buf_puts(&b, "]}");
	cr_expect_eq(compile(b.p, &few, &g, &why), -E2BIG);
	cr_expect(strstr(why.text, "steps"), "%s", why.text);
	buf_clear(&b);
	buf_puts(&b, "{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"string\"}},"
		     "\"required\":[\"k\"");
	for (int i = 0; i < 200; i++)
		buf_printf(&b, ",\"k%d\"", i);
	buf_puts(&b, "]}");
	cr_expect_eq(compile(b.p, &more, &g, &why), -E2BIG);
	cr_expect(strstr(why.text, "steps"), "%s", why.text);
	buf_fini(&b);
}

Test(schema, long_enums_are_not_searched_for_their_own_values)
{
	struct buf b = {0}, list = {0};
	struct grammar *g;
	struct why why = {""};
	for (int strings = 0; strings < 2; strings++) {
		buf_clear(&list);
		for (int i = 0; i < 20000; i++)
			buf_printf(&list, strings ? "%s\"v%d\"" : "%s%d", i ? "," : "[", i);
		buf_puts(&list, "]");
		buf_clear(&b);
		buf_printf(&b, "{\"enum\":%s}", list.p);
		cr_assert_eq(compile(b.p, NULL, &g, &why), 0, "%s", why.text);
		help_texts(g, true, strings ? YES("\"v0\"", "\"v19999\"") : YES("0", "19999"));
		grammar_free(g);
		buf_clear(&b);
		buf_printf(&b, "{\"allOf\":[{\"enum\":%s},{\"enum\":%s}]}", list.p, list.p);
		cr_expect_eq(compile(b.p, NULL, &g, &why), -E2BIG);
		cr_expect(strstr(why.text, "steps"), "%s", why.text);
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

/* A C string would end at the NUL and mean another pattern or name. */
Test(schema, a_nul_is_refused_where_it_would_cut_a_text_short)
{
	refuse("{\"type\":\"string\",\"pattern\":\"^a\\u0000b$\"}", -ENOTSUP, "pattern: a text with a NUL");
	refuse("{\"properties\":{\"enum\":{\"pattern\":\"a\\u0000\"}}}", -ENOTSUP, "a text with a NUL");
	refuse("{\"type\":\"object\",\"required\":[\"a\\u0000\"]}", -ENOTSUP, "a text with a NUL");
	expect("{\"enum\":[\"a\\u0000b\"],\"description\":\"\\u0000\"}", NULL, YES("\"a\\u0000b\""),
	       NO("\"a\"", "\"ab\""));
	expect("{\"const\":\"\\u0000\"}", NULL, YES("\"\\u0000\""), NO("\"\""));
}

/* If a pattern is too large to decide, this is not taken for "matches nothing". */
Test(schema, a_pattern_too_large_to_ask_is_an_error)
{
	struct buf b = {0};
	struct grammar *g;
	struct why why = {""};
	buf_puts(&b, "{\"type\":\"object\",\"properties\":{\"k5\":{}},\"patternProperties\":{\"^(k0");
	for (int i = 1; i < 100000; i++)
		buf_printf(&b, "|k%d", i);
	buf_puts(&b, ")$\":{\"type\":\"null\"}}}");
	cr_expect_eq(compile(b.p, NULL, &g, &why), -E2BIG);
	cr_expect(strstr(why.text, "takes more than"), "%s", why.text);
	buf_fini(&b);
}

/* All schemas of a request share one limit. */
Test(schema, several_schemas_share_a_bound_of_steps)
{
	static const char text[] =
		"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},"
		"\"b\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"integer\"}]}}}]}";
	size_t steps = 0;
	const struct schema_options each = {.max_steps = 50}, shared = {.max_steps = 50, .steps = &steps};
	struct grammar *g;
	struct why why = {""};
	int taken = 0;
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(compile(text, &each, &g, &why), 0, "%s", why.text);
		grammar_free(g);
	}
	while (taken < 100 && !compile(text, &shared, &g, &why)) {
		grammar_free(g);
		taken++;
	}
	cr_expect(taken > 0 && taken < 100, "%d", taken);
	cr_expect(strstr(why.text, "takes more than 50 steps"), "%s", why.text);
}
