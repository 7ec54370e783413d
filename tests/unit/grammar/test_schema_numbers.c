/* Numbers in JSON schemas: ranges, multiples, listed values. */
#include "tests/unit/grammar/schema_help.h"

Test(schema_numbers, fractional_bounds_of_integers_are_rounded_into_the_range)
{
	static const struct {
		const char *bound;
		int least, most; /* of the values -4 to 4 */
	} cases[] = {{"\"minimum\":-1.5", -1, 4},
		     {"\"minimum\":1.5", 2, 4},
		     {"\"maximum\":-1.5", -4, -2},
		     {"\"maximum\":1.5", -4, 1},
		     {"\"minimum\":-0.5", 0, 4},
		     {"\"maximum\":0.5", -4, 0},
		     {"\"maximum\":-0.5", -4, -1},
		     {"\"minimum\":0.5", 1, 4},
		     {"\"exclusiveMinimum\":-1.5", -1, 4},
		     {"\"exclusiveMaximum\":-1.5", -4, -2},
		     {"\"exclusiveMinimum\":-2", -1, 4},
		     {"\"exclusiveMaximum\":-2", -4, -3},
		     {"\"exclusiveMinimum\":-1", 0, 4},
		     {"\"exclusiveMaximum\":1", -4, 0},
		     {"\"exclusiveMinimum\":0", 1, 4},
		     {"\"exclusiveMaximum\":0", -4, -1},
		     {"\"minimum\":-2.999,\"maximum\":2.001", -2, 2}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char schema[100];
		struct grammar *g;
		struct why why;
		snprintf(schema, sizeof schema, "{\"type\":\"integer\",%s}", cases[i].bound);
		cr_assert_eq(compile(schema, NULL, &g, &why), 0, "%s: %s", schema, why.text);
		for (int v = -4; v <= 4; v++) {
			char text[8];
			snprintf(text, sizeof text, "%d", v);
			cr_expect_eq(help_accepts(g, text, strlen(text)),
				     v >= cases[i].least && v <= cases[i].most, "%s: %d", schema, v);
		}
		grammar_free(g);
	}
	/* ten digits grow to eleven */
	expect("{\"type\":\"integer\",\"maximum\":-9999999999.5}", NULL, YES("-10000000000"),
	       NO("-9999999999"));
	expect("{\"type\":\"integer\",\"minimum\":9999999999.5}", NULL, YES("10000000000"), NO("9999999999"));
	expect("{\"type\":\"integer\",\"exclusiveMaximum\":-9999999999}", NULL, YES("-10000000000"),
	       NO("-9999999999"));
	expect("{\"type\":\"integer\",\"exclusiveMinimum\":-10000000000}", NULL, YES("-9999999999"),
	       NO("-10000000000"));
}

Test(schema_numbers, ranges_of_numbers_are_exact)
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

Test(schema_numbers, bounds_of_numbers_hold_together)
{
	expect("{\"type\":\"number\",\"exclusiveMaximum\":0}", NULL, YES("-0.1", "-1", "-0.001"),
	       NO("0", "-0", "-0.0", "0.0"));
	expect("{\"type\":\"number\",\"maximum\":0}", NULL, YES("-0.1", "0", "-0", "-0.0"), NO("0.1"));
	expect("{\"type\":\"integer\",\"allOf\":[{\"minimum\":5},{\"exclusiveMinimum\":5},{\"minimum\":5}]}",
	       NULL, YES("6"), NO("5"));
	expect("{\"type\":\"integer\",\"allOf\":[{\"maximum\":5},{\"exclusiveMaximum\":5},{\"maximum\":5}]}",
	       NULL, YES("4"), NO("5"));
	expect("{\"type\":\"integer\",\"allOf\":[{\"minimum\":3},{\"minimum\":5},{\"minimum\":4},{"
	       "\"maximum\":9},{\"maximum\":7},{"
	       "\"maximum\":8}]}",
	       NULL, YES("5", "7"), NO("3", "4", "8", "9"));
	expect("{\"type\":\"number\",\"minimum\":-1,\"maximum\":1,\"not\":{\"enum\":[0]}}", NULL,
	       YES("0.5", "-0.01"), NO("0", "-0", "0.0", "-0.00"));
}

Test(schema_numbers, listed_numbers_satisfy_the_other_keywords)
{
	expect("{\"enum\":[1,2,3],\"exclusiveMinimum\":1,\"exclusiveMaximum\":3}", NULL, YES("2"),
	       NO("1", "3"));
	expect("{\"enum\":[1.5,1.25,2,0.05],\"multipleOf\":0.5}", NULL, YES("1.5", "2"), NO("1.25", "0.05"));
	refuse("{\"type\":\"integer\",\"multipleOf\":2,\"not\":{\"multipleOf\":1}}", -EINVAL, "#: no value");
	expect("{\"anyOf\":[{\"type\":\"integer\",\"multipleOf\":4,\"not\":{\"multipleOf\":2}},{\"type\":"
	       "\"null\"}]}",
	       NULL, YES("null"), NO("4", "2", "0"));
	expect("{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", NULL, YES("0.5", "-1.25"),
	       NO("1", "1.0", "1e5", "10e-1"));
	expect("{\"type\":\"integer\",\"not\":{\"multipleOf\":3}}", NULL, YES("1", "-2", "10"),
	       NO("0", "3", "-12"));
}

Test(schema_numbers, a_whole_value_may_be_written_without_its_point)
{
	expect("{\"type\":\"integer\",\"enum\":[1.0,2.5]}", NULL, YES("1", "1.0"), NO("2.5", "1.00"));
	expect("{\"const\":3}", NULL, YES("3"), NO("3.0", "03"));
}
