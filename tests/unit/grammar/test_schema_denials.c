/* test_schema_denials.c - the negation of a schema, for each of its keywords; and which schemas apply to a
 * member. */
#include "tests/unit/grammar/schema_help.h"

Test(denials, an_object_is_denied_by_a_member_that_does_not_fit)
{
	expect("{\"type\":\"object\",\"not\":{\"properties\":{\"a\":true,\"b\":{\"type\":\"null\"}}}}", NULL,
	       YES("{\"b\": 1}", "{\"b\": 1, \"a\": 1}"), NO("{}", "{\"a\": 1}", "{\"b\": null}"));
	refuse("{\"type\":\"object\",\"not\":{\"properties\":{\"a\":true}}}", -EINVAL, "no value");
	expect("{\"type\":\"object\",\"not\":{\"patternProperties\":{\"^x\":{\"type\":\"null\"},\"^y\":"
	       "true}}}",
	       NULL, YES("{\"x\": 1}", "{\"a\": 1, \"xy\": 1}"), NO("{}", "{\"a\": 1}", "{\"x\": null}"));
	expect("{\"type\":\"object\",\"not\":{\"properties\":{\"a\":true},\"patternProperties\":{\"^x\":true}"
	       ",\"additionalProperties\":false}}",
	       NULL, YES("{\"b\": 1}", "{\"a\": 1, \"b\": 1}"), NO("{}", "{\"a\": 1}", "{\"x\": 1}"));
	expect("{\"type\":\"object\",\"not\":{\"unevaluatedProperties\":{\"type\":\"null\"}}}", NULL,
	       YES("{\"b\": 1}"), NO("{}", "{\"b\": null}"));
	/* a value that is no object satisfies the schema */
	refuse("{\"type\":\"string\",\"not\":{\"properties\":{\"a\":false}}}", -EINVAL, "no value");
	expect("{\"type\":\"object\",\"not\":{\"propertyNames\":{\"maxLength\":1}}}", NULL,
	       YES("{\"ab\": 1}", "{\"a\": 1, \"bc\": 1}"), NO("{}", "{\"a\": 1}"));
}

Test(denials, an_array_is_denied_by_an_item_that_does_not_fit)
{
	expect("{\"type\":\"array\",\"not\":{\"prefixItems\":[{\"const\":1},{\"const\":2}]}}", NULL,
	       YES("[2]", "[1, 1]", "[2, 2]", "[1, 3, 4]"), NO("[]", "[1]", "[1, 2]", "[1, 2, 3]"));
	expect("{\"type\":\"array\",\"not\":{\"items\":[{\"const\":1}],\"additionalItems\":false}}", NULL,
	       YES("[2]", "[1, 1]", "[2, 2]"), NO("[]", "[1]"));
	expect("{\"type\":\"array\",\"not\":{\"prefixItems\":[{\"const\":1}],\"unevaluatedItems\":false}}",
	       NULL, YES("[2]", "[1, 1]"), NO("[]", "[1]"));
	expect("{\"type\":\"array\",\"not\":{\"unevaluatedItems\":{\"const\":1}}}", NULL,
	       YES("[2]", "[1, 2]"), NO("[]", "[1]", "[1, 1]"));
	expect("{\"type\":\"array\",\"not\":{\"items\":false}}", NULL, YES("[1]", "[1, 2]"), NO("[]"));
	refuse("{\"type\":\"array\",\"not\":{\"items\":true}}", -EINVAL, "no value");
	expect("{\"type\":\"array\",\"not\":{\"prefixItems\":[{\"const\":1}],\"items\":true}}", NULL,
	       YES("[2]", "[2, 1]"), NO("[]", "[1]", "[1, 2]"));
	refuse("{\"type\":\"array\",\"not\":{\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}}",
	       -ENOTSUP, "the denial of items behind a prefix");
	expect("{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"not\":{\"contains\":{\"const\":1}}}", NULL,
	       YES("[]", "[2]", "[2, 2]"), NO("[1]", "[2, 1]"));
	refuse("{\"type\":\"array\",\"not\":{\"uniqueItems\":true}}", -ENOTSUP, "the denial of uniqueItems");
	refuse("{\"type\":\"array\",\"not\":{\"uniqueItems\":false}}", -EINVAL, "no value");
	refuse("{\"type\":\"string\",\"not\":{\"items\":false}}", -EINVAL, "no value");
}

Test(denials, schemas_that_are_combined_are_denied_as_logic_has_it)
{
	static const char *const all[] = {"1", "2", "3", "4", NULL};
	static const struct {
		const char *denied, *rest; /* values from 1 to 4 */
	} cases[] = {
		{"{\"allOf\":[{\"enum\":[1,2]},{\"enum\":[2,3]}]}", "134"},
		{"{\"anyOf\":[{\"const\":1},{\"const\":2}]}", "34"},
		{"{\"oneOf\":[{\"enum\":[1,2]},{\"enum\":[2,3]}]}", "24"},
		{"{\"oneOf\":[{\"const\":1},{\"enum\":[2,3]},{\"enum\":[3,4]}]}", "3"},
		{"{\"not\":{\"enum\":[1,2]}}", "12"},
		{"{\"not\":{\"not\":{\"enum\":[1,2]}}}", "34"},
		{"{\"if\":{\"enum\":[1,2]},\"then\":{\"const\":1},\"else\":{\"const\":3}}", "24"},
		{"{\"if\":{\"enum\":[1,2]},\"then\":{\"const\":1}}", "2"},
		{"{\"if\":{\"enum\":[1,2]},\"else\":{\"const\":3}}", "4"},
		{"{\"const\":1}", "234"},
		{"{\"enum\":[1,2],\"minimum\":2}", "134"},
		{"{\"$ref\":\"#/$defs/a\"}", "34"},
		{"{\"$ref\":\"#/$defs/a\",\"minimum\":2}", "134"},
		{"false", "1234"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[256];
		const char *yes[5] = {NULL}, *no[5] = {NULL};
		int n_yes = 0, n_no = 0;
		for (int j = 0; all[j]; j++)
			if (strchr(cases[i].rest, *all[j]))
				yes[n_yes++] = all[j];
			else
				no[n_no++] = all[j];
		snprintf(text, sizeof text,
			 "{\"enum\":[1,2,3,4],\"not\":%s,\"$defs\":{\"a\":{\"enum\":[1,2]}}}",
			 cases[i].denied);
		expect(text, NULL, yes, no);
	}
	refuse("{\"enum\":[1,2],\"not\":{\"if\":{\"const\":1}}}", -EINVAL, "no value");
	refuse("{\"enum\":[1,2],\"not\":{\"description\":\"any\"}}", -EINVAL, "no value");
}

Test(denials, what_a_member_needs_is_denied_where_the_member_is)
{
	static const char object[] = "\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{\"enum\":[1,2]},"
				     "\"c\":{}},\"additionalProperties\":false";
	char text[320];
	snprintf(text, sizeof text, "{%s,\"not\":{\"dependentRequired\":{\"a\":[\"b\",\"c\"]}}}", object);
	expect(text, NULL, YES("{\"a\": 1}", "{\"a\": 1, \"b\": 1}", "{\"a\": 1, \"c\": 1}"),
	       NO("{}", "{\"b\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1}"));
	snprintf(text, sizeof text,
		 "{%s,\"not\":{\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{\"const\":1}}}}}}",
		 object);
	expect(text, NULL, YES("{\"a\": 1, \"b\": 2}"),
	       NO("{}", "{\"b\": 2}", "{\"a\": 1}", "{\"a\": 1, \"b\": 1}"));
	refuse("{\"type\":\"string\",\"not\":{\"dependentRequired\":{\"a\":[\"b\"]}}}", -EINVAL, "no value");
}

/* Properties and each pattern that matches the name apply; additionalProperties applies if none does. */
Test(denials, a_member_has_all_schemas_that_speak_of_its_name)
{
	expect("{\"type\":\"object\",\"properties\":{\"xa\":{\"minimum\":2},\"xyz\":{}},"
	       "\"patternProperties\":"
	       "{\"^x\":{\"type\":\"integer\"},\"y\":{\"maximum\":5}},\"required\":[\"xyz\"],"
	       "\"additionalProperties\":{\"type\":\"null\"}}",
	       NULL, YES("{\"xyz\": 1}", "{\"xa\": 2, \"xyz\": 5}", "{\"xyz\": 5, \"o\": null}"),
	       NO("{\"xyz\": 6}", "{\"xyz\": \"a\"}", "{\"xa\": 1, \"xyz\": 1}", "{\"xyz\": 1, \"o\": 1}",
		  "{\"xyz\": null}"));
	/* a pattern is taken into account even if the name matches only one of the patterns */
	expect("{\"type\":\"object\",\"allOf\":[{\"properties\":{\"xa\":{}}},{\"patternProperties\":{\"^x\":{"
	       "\"type\":\"integer\"},\"^z\":{}},\"additionalProperties\":{\"type\":\"null\"}}]}",
	       NULL, YES("{\"xa\": 1}", "{}"), NO("{\"xa\": null}"));
	/* a name in another schema is not known to this schema */
	expect("{\"type\":\"object\",\"allOf\":[{\"properties\":{\"o\":{}}},{\"properties\":{\"p\":{}},"
	       "\"additionalProperties\":{\"type\":\"null\"}}]}",
	       NULL, YES("{\"o\": null}", "{\"o\": null, \"p\": 1}"), NO("{\"o\": 1}"));
	/* a forbidden name, and a name that is required but impossible */
	expect("{\"type\":\"object\",\"properties\":{\"ab\":{},\"c\":{}},\"propertyNames\":{\"maxLength\":1},"
	       "\"additionalProperties\":false}",
	       NULL, YES("{}", "{\"c\": 1}"), NO("{\"ab\": 1}"));
	refuse("{\"type\":\"object\",\"propertyNames\":{\"maxLength\":1},\"required\":[\"ab\"]}", -EINVAL,
	       "no value");
	refuse("{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", -EINVAL,
	       "no value");
}
