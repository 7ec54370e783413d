/* Structured output in a request, in each spelling, and refused values. */
#include "controller/request/constraint_request.h"
#include "grammar/grammar.h"
#include "grammar/source.h"
#include "tests/unit/request/api_rig.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

TestSuite(form_request, .init = open_demo, .fini = close_demo, .timeout = 60);

#define CHAT "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]"

static int ask(enum api_dialect dialect, const char *fields, struct submit **s, struct api_problem *p)
{
	struct buf text = {0};
	struct api_reply reply;
	if (dialect == API_JOBS)
		buf_printf(&text, "{\"op\": \"submit\", \"id\": 1, \"prompt\": \"a\", \"params\": {%s}}",
			   fields);
	else
		buf_printf(&text, "{%s, %s}", dialect == API_CHAT ? CHAT : "\"prompt\": \"a\"", fields);
	int rc = submit(dialect, text.p, s, dialect == API_JOBS ? NULL : &reply, p);
	buf_fini(&text);
	return rc;
}

/* text: expected constraint; NULL: outputs are unconstrained. */
static void expect(enum api_dialect dialect, const char *fields, enum grammar_language language,
		   const char *text)
{
	struct submit *s;
	struct api_problem p;
	cr_assert_eq(ask(dialect, fields, &s, &p), 0, "%s: %s", fields, p.why);
	const struct constraint *f = s->params.constraint;
	cr_expect_eq(!f, !text, "%s", fields);
	if (f && text) {
		cr_expect_eq(f->language, language, "%s", fields);
		cr_expect_str_eq(f->text, text);
	}
	submit_free(s);
}

static void refused(enum api_dialect dialect, const char *fields, const char *param, const char *words)
{
	struct submit *s;
	struct api_problem p;
	cr_expect_neq(ask(dialect, fields, &s, &p), 0, "taken: %s", fields);
	cr_expect_eq(p.code, E_BAD_REQUEST, "%s: %s", fields, p.why);
	cr_expect_str_eq(p.param, param, "%s: %s", fields, p.param);
	cr_expect(strstr(p.why, words), "%s: \"%s\" does not contain \"%s\"", fields, p.why, words);
	submit_free(s);
}

static const enum api_dialect dialects[] = {API_JOBS, API_COMPLETIONS, API_CHAT};

Test(form_request, response_format_is_taken_everywhere)
{
	for (int i = 0; i < 3; i++) {
		expect(dialects[i], "\"response_format\": {\"type\": \"text\"}", 0, NULL);
		expect(dialects[i], "\"response_format\": null", 0, NULL);
		expect(dialects[i], "\"response_format\": {\"type\": \"json_object\"}",
		       GRAMMAR_SCHEMA_BOUNDED, "{\"type\":\"object\"}");
		expect(dialects[i],
		       "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\", "
		       "\"strict\": true, \"schema\": {\"type\": \"array\", \"items\": {\"minimum\": 0.1}}}}",
		       GRAMMAR_SCHEMA_BOUNDED,
		       "{\"type\":\"array\",\"items\":{\"minimum\":0.10000000000000001}}");
	}
	/* llama.cpp's spelling. */
	expect(API_CHAT, "\"response_format\": {\"type\": \"json_object\", \"schema\": {\"const\": 1}}",
	       GRAMMAR_SCHEMA_BOUNDED, "{\"const\":1}");
}

Test(form_request, vllm_s_fields)
{
	for (int i = 0; i < 3; i++) {
		expect(dialects[i], "\"guided_json\": {\"type\": \"null\"}", GRAMMAR_SCHEMA_BOUNDED,
		       "{\"type\":\"null\"}");
		expect(dialects[i], "\"guided_json\": \"{\\\"type\\\": \\\"null\\\"}\"",
		       GRAMMAR_SCHEMA_BOUNDED, "{\"type\":\"null\"}");
		expect(dialects[i], "\"guided_json\": {}", GRAMMAR_SCHEMA_BOUNDED, "{}");
		expect(dialects[i], "\"guided_regex\": \"a+\"", GRAMMAR_REGEX, "a+");
		expect(dialects[i], "\"guided_choice\": [\"yes\", \"no\"]", GRAMMAR_CHOICE,
		       "[\"yes\",\"no\"]");
		expect(dialects[i], "\"guided_regex\": \"\"", 0, NULL);
		expect(dialects[i], "\"structured_outputs\": {\"regex\": \"a\", \"json\": null}",
		       GRAMMAR_REGEX, "a");
		expect(dialects[i], "\"structured_outputs\": {\"json_object\": true}", GRAMMAR_SCHEMA_BOUNDED,
		       "{\"type\":\"object\"}");
		expect(dialects[i], "\"structured_outputs\": {\"choice\": [\"a\"], \"json_object\": false}",
		       GRAMMAR_CHOICE, "[\"a\"]");
		expect(dialects[i], "\"structured_outputs\": {\"json\": true, \"disable_fallback\": true}",
		       GRAMMAR_SCHEMA_BOUNDED, "true");
		expect(dialects[i], "\"structured_outputs\": {}", 0, NULL);
	}
}

Test(form_request, options_of_structured_outputs_change_schemas)
{
	expect(API_CHAT,
	       "\"structured_outputs\": {\"json\": {\"type\": \"array\"}, \"disable_any_whitespace\": true}",
	       GRAMMAR_COMPOSITE,
	       "{\"type\":\"bounded\",\"part\":{\"type\":\"schema\",\"schema\":{\"type\":\"array\"},"
	       "\"space\":\"none\"}}");
	expect(API_CHAT,
	       "\"structured_outputs\": {\"json_object\": true, \"whitespace_pattern\": \"\\\\s*\"}",
	       GRAMMAR_COMPOSITE,
	       "{\"type\":\"bounded\",\"part\":{\"type\":\"schema\",\"schema\":{\"type\":\"object\"},"
	       "\"space\":{\"pattern\":\"\\\\s*\"}}}");
	for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
		expect(dialects[i],
		       "\"guided_json\": {\"type\":\"array\"}, \"guided_whitespace_pattern\": \" ?\"",
		       GRAMMAR_COMPOSITE,
		       "{\"type\":\"bounded\",\"part\":{\"type\":\"schema\",\"schema\":{\"type\":\"array\"},"
		       "\"space\":{\"pattern\":\" "
		       "?\"}}}");
	expect(API_CHAT, "\"guided_whitespace_pattern\": \"\"", 0, NULL);
	expect(API_CHAT, "\"structured_outputs\": {\"regex\": \"a b\", \"disable_any_whitespace\": true}",
	       GRAMMAR_REGEX, "a b");
}

static const enum api_dialect http[] = {API_COMPLETIONS, API_CHAT};

Test(form_request, fields_of_other_servers)
{
	for (size_t i = 0; i < 2; i++) {
		expect(http[i], "\"regex\": \"a+\"", GRAMMAR_REGEX, "a+");
		expect(http[i], "\"ebnf\": \"root ::= \\\"a\\\"\"", GRAMMAR_GBNF, "root ::= \"a\"");
		expect(http[i], "\"ebnf\": \"start: \\\"a\\\"\"", GRAMMAR_LARK, "start: \"a\"");
		expect(http[i], "\"json_schema\": \"{\\\"const\\\": 1}\"", GRAMMAR_SCHEMA_BOUNDED,
		       "{\"const\":1}");
		expect(http[i], "\"schema\": {\"const\": 1}", GRAMMAR_SCHEMA_BOUNDED, "{\"const\":1}");
		expect(http[i], "\"format\": {\"const\": 1}", GRAMMAR_SCHEMA_BOUNDED, "{\"const\":1}");
		expect(http[i], "\"format\": \"json\"", GRAMMAR_SCHEMA_BOUNDED, "{\"type\":\"object\"}");
		expect(http[i], "\"format\": \"\"", 0, NULL);
		expect(http[i], "\"grammar\": \"%llguidance {}\\nstart: \\\"a\\\"\"", GRAMMAR_LARK,
		       "%llguidance {}\nstart: \"a\"");
		expect(http[i], "\"grammar\": {\"type\": \"regex\", \"value\": \"a+\"}", GRAMMAR_REGEX, "a+");
		refused(http[i], "\"format\": \"xml\"", "format", "format must be \"json\" or a JSON schema");
		refused(http[i], "\"format\": 1", "format", "format must be \"json\" or a JSON schema");
		refused(http[i], "\"regex\": 1", "regex", "regex must be a string");
		refused(http[i], "\"structural_tag\": {\"a\": 1}", "structural_tag",
			"structures and triggers");
	}
}

Test(form_request, types_of_response_format)
{
	static const struct {
		const char *format, *text;
		enum grammar_language language;
	} all[] = {
		{"{\"type\": \"json_object\", \"schema\": {\"const\": 1}}", "{\"const\":1}",
		 GRAMMAR_SCHEMA_BOUNDED},
		{"{\"type\": \"json_object\", \"value\": {\"const\": 1}}", "{\"const\":1}",
		 GRAMMAR_SCHEMA_BOUNDED},
		{"{\"type\": \"json\", \"value\": {\"const\": 1}}", "{\"const\":1}", GRAMMAR_SCHEMA_BOUNDED},
		{"{\"type\": \"json_schema\", \"value\": {\"name\": \"a\", \"schema\": {\"const\": 1}}}",
		 "{\"const\":1}", GRAMMAR_SCHEMA_BOUNDED},
		{"{\"type\": \"json_schema\", \"schema\": {\"const\": 1}}", "{\"const\":1}",
		 GRAMMAR_SCHEMA_BOUNDED},
		{"{\"type\": \"regex\", \"pattern\": \"a+\"}", "a+", GRAMMAR_REGEX},
		{"{\"type\": \"regex\", \"value\": \"a+\"}", "a+", GRAMMAR_REGEX},
		{"{\"type\": \"regex_schema\", \"regex_schema\": \"a+\"}", "a+", GRAMMAR_REGEX},
		{"{\"type\": \"grammar\", \"grammar\": \"root ::= [a]\"}", "root ::= [a]", GRAMMAR_GBNF},
	};
	static const char *const bad[][2] = {
		{"{\"type\": \"regex\"}", "response_format.pattern must be given"},
		{"{\"type\": \"grammar\"}", "response_format.grammar must be given"},
		{"{\"type\": \"text\", \"schema\": {}}",
		 "response_format.schema does not go with the type text"},
		{"{\"type\": \"json_object\", \"json_schema\": {}}",
		 "response_format.json_schema does not go with the type json_object"},
		{"{\"type\": \"json_schema\", \"json_schema\": {\"schema\": {}}, \"schema\": {}}",
		 "response_format.schema does not go with the type json_schema and json_schema"},
	};
	char fields[300];
	for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
		snprintf(fields, sizeof fields, "\"response_format\": %s", all[k].format);
		for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
			expect(dialects[i], fields, all[k].language, all[k].text);
	}
	for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
		snprintf(fields, sizeof fields, "\"response_format\": %s", bad[k][0]);
		refused(API_CHAT, fields, "response_format", bad[k][1]);
	}
}

/* Guidance and other clients send both, for older and newer releases of a server. */
Test(form_request, two_fields_that_say_the_same_are_one)
{
	for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
		expect(dialects[i],
		       "\"guided_grammar\": \"start: \\\"a\\\"\", \"structured_outputs\": {\"grammar\": "
		       "\"start: "
		       "\\\"a\\\"\"}",
		       GRAMMAR_LARK, "start: \"a\"");
		expect(dialects[i],
		       "\"guided_json\": {\"const\": 1}, \"response_format\": {\"type\": \"json_schema\", "
		       "\"json_schema\": {\"schema\": {\"const\": 1}}}",
		       GRAMMAR_SCHEMA_BOUNDED, "{\"const\":1}");
		expect(dialects[i],
		       "\"guided_json\": {\"const\": 1}, \"guided_whitespace_pattern\": \" *\", "
		       "\"structured_outputs\": {\"json\": {\"const\": 1}, \"whitespace_pattern\": \" *\"}",
		       GRAMMAR_COMPOSITE,
		       "{\"type\":\"bounded\",\"part\":{\"type\":\"schema\",\"schema\":{\"const\":1},"
		       "\"space\":{\"pattern\":\" "
		       "*\"}}}");
		expect(dialects[i],
		       "\"response_format\": {\"type\": \"json_object\"}, \"structured_outputs\": "
		       "{\"json_object\": true, "
		       "\"disable_any_whitespace\": true}",
		       GRAMMAR_COMPOSITE,
		       "{\"type\":\"bounded\",\"part\":{\"type\":\"schema\",\"schema\":{\"type\":\"object\"},"
		       "\"space\":\"none\"}}");
		refused(dialects[i],
			"\"guided_json\": {\"const\": 1}, \"structured_outputs\": {\"json\": {\"const\": 2}}",
			"guided_json", "structured_outputs and guided_json: only one");
		refused(dialects[i],
			"\"structured_outputs\": {\"json\": {\"const\": 1}, \"disable_any_whitespace\": "
			"true}, "
			"\"guided_json\": {\"const\": 1}, \"guided_whitespace_pattern\": \" *\"",
			"guided_whitespace_pattern", "is set already");
	}
	refused(API_CHAT, "\"regex\": \"a\", \"ebnf\": \"root ::= [a]\"", "ebnf", "regex and ebnf: only one");
}

/* This includes tools' schemas. A constraint from an earlier version uses neither the new language nor the
 * new part, and keeps its meaning. */
Test(form_request, schemas_are_bounded_unless_a_request_says_otherwise)
{
	static const char schema[] = "\"guided_json\": {\"properties\": {}}";
	char text[400];
	for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
		expect(dialects[i], schema, GRAMMAR_SCHEMA_BOUNDED, "{\"properties\":{}}");
		snprintf(text, sizeof text, "%s, \"schema_exact\": true", schema);
		expect(dialects[i], text, GRAMMAR_SCHEMA, "{\"properties\":{}}");
		snprintf(text, sizeof text,
			 "%s, \"schema_exact\": true, \"guided_whitespace_pattern\": \" *\"", schema);
		expect(dialects[i], text, GRAMMAR_COMPOSITE,
		       "{\"type\":\"schema\",\"schema\":{\"properties\":{}},\"space\":{\"pattern\":\" "
		       "*\",\"max\":null}}");
		demo.svc.schema_exact = true;
		expect(dialects[i], schema, GRAMMAR_SCHEMA, "{\"properties\":{}}");
		snprintf(text, sizeof text, "%s, \"schema_exact\": false", schema);
		expect(dialects[i], text, GRAMMAR_SCHEMA_BOUNDED, "{\"properties\":{}}");
		expect(dialects[i],
		       "\"structured_outputs\": {\"json\": {\"properties\": {}}, "
		       "\"disable_additional_properties\": true}",
		       GRAMMAR_SCHEMA_BOUNDED, "{\"properties\":{}}");
		demo.svc.schema_exact = false;
		refused(dialects[i], "\"schema_exact\": 1", "schema_exact", "true or false");
	}
}

/* GBNF is recognized by ::= outside of comments. */
Test(form_request, grammars_are_gbnf_or_lark)
{
	expect(API_CHAT, "\"guided_grammar\": \"root ::= \\\"a\\\"\"", GRAMMAR_GBNF, "root ::= \"a\"");
	expect(API_CHAT, "\"guided_grammar\": \"start: \\\"a\\\"\"", GRAMMAR_LARK, "start: \"a\"");
	expect(API_CHAT, "\"guided_grammar\": \"// not a ::= b\\nstart: \\\"a\\\"\"", GRAMMAR_LARK,
	       "// not a ::= b\nstart: \"a\"");
	expect(API_CHAT, "\"guided_grammar\": \"# a rule\\nroot ::= \\\"a\\\"\"", GRAMMAR_GBNF,
	       "# a rule\nroot ::= \"a\"");
	expect(API_CHAT, "\"structured_outputs\": {\"grammar\": \"start: \\\"a\\\"\"}", GRAMMAR_LARK,
	       "start: \"a\"");
	expect(API_COMPLETIONS, "\"grammar\": \"root ::= [a-z]\"", GRAMMAR_GBNF, "root ::= [a-z]");
	expect(API_COMPLETIONS, "\"grammar\": \"\"", 0, NULL);
	expect(API_COMPLETIONS, "\"json_schema\": {\"type\": \"string\"}", GRAMMAR_SCHEMA_BOUNDED,
	       "{\"type\":\"string\"}");
}

Test(form_request, only_one_field_may_ask)
{
	refused(API_CHAT, "\"guided_regex\": \"a\", \"response_format\": {\"type\": \"json_object\"}",
		"guided_regex", "response_format and guided_regex");
	refused(API_CHAT, "\"structured_outputs\": {\"regex\": \"a\", \"choice\": [\"a\"]}",
		"structured_outputs", "both regex and choice");
	expect(API_CHAT, "\"guided_regex\": \"a\", \"response_format\": {\"type\": \"text\"}", GRAMMAR_REGEX,
	       "a");
}

Test(form_request, what_is_malformed_is_named)
{
	static const char *const rows[][3] = {
		{"\"response_format\": 1", "response_format", "an object with a type"},
		{"\"response_format\": {}", "response_format", "an object with a type"},
		{"\"response_format\": {\"type\": \"xml\"}", "response_format", "xml"},
		{"\"response_format\": {\"type\": \"json_schema\"}", "response_format", "json_schema"},
		{"\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\"}}",
		 "response_format", "schema is missing"},
		{"\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {}, "
		 "\"strict\": 1}}",
		 "response_format", "strict must be true or false"},
		{"\"guided_json\": 7", "guided_json", "a JSON schema"},
		{"\"guided_json\": \"{\"", "guided_json", "not JSON"},
		{"\"guided_regex\": 7", "guided_regex", "a string"},
		{"\"guided_choice\": []", "guided_choice", "at least one"},
		{"\"guided_choice\": [\"a\", 1]", "guided_choice", "array of strings"},
		{"\"guided_choice\": \"a\"", "guided_choice", "array of strings"},
		{"\"structured_outputs\": []", "structured_outputs", "an object"},
		{"\"structured_outputs\": {\"jsn\": {}}", "structured_outputs", "jsn is not known"},
		{"\"structured_outputs\": {\"regex\": 1}", "structured_outputs", "structured_outputs.regex"},
		{"\"structured_outputs\": {\"regex\": \"a\", \"disable_any_whitespace\": 1}",
		 "structured_outputs", "disable_any_whitespace must be true or false"},
		{"\"structured_outputs\": {\"json\": {}, \"whitespace_pattern\": 1}", "structured_outputs",
		 "structured_outputs.whitespace_pattern must be a string"},
		{"\"structured_outputs\": {\"regex\": \"a\", \"whitespace_pattern\": \" \"}",
		 "structured_outputs", "structured_outputs.whitespace_pattern is the whitespace of JSON"},
		{"\"structured_outputs\": {\"json\": {}, \"whitespace_pattern\": \" \", "
		 "\"disable_any_whitespace\": true}",
		 "structured_outputs", "whitespace_pattern: the whitespace of the output is set already"},
		{"\"structured_outputs\": {\"json\": {}, \"whitespace_pattern\": \" \"}, "
		 "\"guided_whitespace_pattern\": \" *\"",
		 "guided_whitespace_pattern", "is set already"},
		{"\"guided_whitespace_pattern\": \" \"", "guided_whitespace_pattern", "goes with a schema"},
		{"\"guided_choice\": [\"a\"], \"guided_whitespace_pattern\": \" \"",
		 "guided_whitespace_pattern", "goes with a schema"},
		{"\"guided_json\": {}, \"guided_whitespace_pattern\": []", "guided_whitespace_pattern",
		 "must be a string"},
		{"\"structured_outputs\": {\"structural_tag\": \"{}\"}", "structured_outputs",
		 "must have structures and triggers"},
		{"\"structured_outputs\": {\"structural_tag\": \"{\"}", "structured_outputs", "not JSON"},
		{"\"structured_outputs\": {\"structural_tag\": {}}", "structured_outputs",
		 "structural_tag must be a string"},
		{"\"response_format\": {\"type\": \"structural_tag\", \"structures\": [{\"begin\": \"<f>\", "
		 "\"schema\": {}, \"end\": \"\"}], \"triggers\": [\"<g\"]}",
		 "response_format", "begins with no trigger"},
		{"\"response_format\": {\"type\": \"structural_tag\", \"structures\": [{\"begin\": "
		 "\"<f>\"}], "
		 "\"triggers\": [\"<f\"]}",
		 "response_format", "begin, schema and end"},
		{"\"response_format\": {\"type\": \"structural_tag\", \"structures\": [{\"begin\": \"<f>\", "
		 "\"schema\": {}, \"end\": \"\"}], \"triggers\": [\"<f\", 3]}",
		 "response_format", "triggers[1] must be a string"},
		{"\"response_format\": {\"type\": \"structural_tag\", \"structures\": [{\"begin\": \"<f>\", "
		 "\"schema\": {}, \"end\": \"\"}], \"triggers\": [\"\", \"<f\"]}",
		 "response_format", "triggers[0] must be a string"},
		{"\"response_format\": {\"type\": \"structural_tag\", \"format\": {}}", "response_format",
		 "format is not built yet"},
		{"\"grammar\": {}", "grammar", "a string"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused(API_CHAT, rows[i][0], rows[i][1], rows[i][2]);
}

/* The reason is the engine's own, with the place in the schema, pattern or grammar. */
Test(form_request, what_cannot_be_decided_is_refused_with_its_place)
{
	static const char *const rows[][3] = {
		{"\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": "
		 "{\"properties\": {\"a\": {\"$ref\": \"#/none\"}}}}}",
		 "response_format", "response_format: #/properties/a"},
		{"\"guided_json\": {\"items\": {\"$dynamicRef\": \"#a\"}}", "guided_json", "dynamicRef"},
		{"\"guided_json\": {\"enum\": []}", "guided_json", "no value satisfies"},
		{"\"guided_json\": {\"type\": \"string\", \"pattern\": \"(?<=a)b\"}", "guided_json",
		 "guided_json: #"},
		{"\"guided_regex\": \"(a\"", "guided_regex", "byte 2"},
		{"\"guided_grammar\": \"root ::= b\"", "guided_grammar", "b"},
		{"\"guided_grammar\": \"root ::= root \\\"a\\\"\"", "guided_grammar", ""},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused(API_CHAT, rows[i][0], rows[i][1], rows[i][2]);
}

Test(form_request, outputs_of_several_prompts_share_one_form)
{
	json_t *request = parsed("{\"prompt\": [\"a\", \"b\"], \"guided_regex\": \"x\"}");
	struct api_request *r;
	struct api_problem p;
	struct api_reply reply;
	struct submit *s[2];
	cr_assert_eq(api_request_read(&demo.svc, 2048, request, API_COMPLETIONS, &r, &p), 0);
	for (size_t i = 0; i < 2; i++)
		cr_assert_eq(api_request_prompt(r, i, &s[i], &reply, &p), 0, "%s", p.why);
	api_request_free(r);
	cr_expect_eq(s[0]->params.constraint, s[1]->params.constraint);
	submit_free(s[0]);
	cr_expect_str_eq(s[1]->params.constraint->text, "x");
	submit_free(s[1]);
	json_decref(request);
}

/* ---- limits: the same reason on every machine, under any load ---- */

static void refused_large(const char *field, const struct buf *value, const char *words)
{
	struct buf all = {0};
	buf_printf(&all, "\"%s\": ", field);
	buf_put(&all, value->p, value->len);
	refused(API_CHAT, all.p, field, words);
	buf_fini(&all);
}

Test(form_request, what_explodes_is_refused)
{
	struct buf b = {0};
	/* 2^40 alternatives */
	buf_puts(&b, "{\"allOf\": [");
	for (int i = 0; i < 40; i++)
		buf_printf(&b, "%s{\"anyOf\": [{\"required\": [\"a%d\"]}, {\"required\": [\"b%d\"]}]}",
			   i ? "," : "", i, i);
	buf_puts(&b, "]}");
	refused_large("guided_json", &b, "guided_json: #");
	buf_clear(&b);
	buf_puts(&b, "\"");
	for (int i = 0; i < 4000; i++)
		buf_puts(&b, "(");
	buf_puts(&b, "a");
	for (int i = 0; i < 4000; i++)
		buf_puts(&b, "{9})");
	buf_puts(&b, "\"");
	refused_large("guided_regex", &b, "regex");
	buf_fini(&b);
}

/* ---- work ---- */

/* Return a schema with name patterns, each of which doubles the states of the names that match no pattern. */
static json_t *doubling(int n)
{
	json_t *schema = json_pack("{s:s, s:{}}", "type", "object", "patternProperties");
	for (int i = 0; i < n; i++) {
		char pattern[32];
		snprintf(pattern, sizeof pattern, ".*a.{%d}", i);
		json_object_set_new(json_object_get(schema, "patternProperties"), pattern,
				    json_pack("{s:s}", "type", "string"));
	}
	return schema;
}

static int compile_doubling(int n, struct grammar_account *account, struct api_problem *p)
{
	struct constraint *constraint = NULL;
	json_t *part = json_pack("{s:s, s:o}", "type", "schema", "schema", doubling(n));
	const int rc = constraint_request_compile(part, "guided_json", true, NULL, account, &constraint, p);
	constraint_free(constraint);
	json_decref(part);
	return rc;
}

Test(form_request, the_same_work_is_counted_each_time)
{
	struct grammar_account all = {.units = CONSTRAINT_WORK_MAX}, enough, short_by_one;
	struct api_problem p;
	cr_assert_eq(compile_doubling(4, &all, &p), 0, "%s", p.why);
	cr_expect_gt(all.used, 100000, "%" PRIu64 " units: what it costs is not counted", all.used);
	enough = (struct grammar_account){.units = all.used};
	short_by_one = (struct grammar_account){.units = all.used - 1};
	cr_expect_eq(compile_doubling(4, &enough, &p), 0, "%s", p.why);
	cr_expect_eq(enough.used, all.used);
	cr_expect_neq(compile_doubling(4, &short_by_one, &p), 0);
	cr_expect(strncmp(p.why, "guided_json: ", 13) == 0 && strstr(p.why, "the limit of a request"), "%s",
		  p.why);
}

Test(form_request, what_one_compilation_took_another_of_the_request_lacks)
{
	struct grammar_account once = {.units = CONSTRAINT_WORK_MAX}, both;
	struct api_problem p;
	cr_assert_eq(compile_doubling(4, &once, &p), 0, "%s", p.why);
	both = (struct grammar_account){.units = 2 * once.used - 1};
	cr_expect_eq(compile_doubling(4, &both, &p), 0, "%s", p.why);
	cr_expect_neq(compile_doubling(4, &both, &p), 0);
}

Test(form_request, work_without_end_is_refused_everywhere)
{
	static const struct {
		enum api_dialect dialect;
		const char *before, *after, *param;
	} all[] = {{API_JOBS, "\"guided_json\": ", "", "guided_json"},
		   {API_COMPLETIONS,
		    "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\", "
		    "\"schema\": ",
		    "}}", "response_format"},
		   {API_CHAT, "\"structured_outputs\": {\"json\": ", "}", "structured_outputs"}};
	json_t *schema = doubling(30);
	char *text = json_dumps(schema, 0);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct buf fields = {0};
		buf_printf(&fields, "%s%s%s", all[i].before, text, all[i].after);
		refused(all[i].dialect, fields.p, all[i].param, "44000000 units, the limit of a request");
		buf_fini(&fields);
	}
	free(text);
	json_decref(schema);
}

/* Workers, and the service after a restart, compile an accepted constraint again without an account. */
Test(form_request, without_an_account_there_is_no_limit)
{
	struct ast *ast;
	struct grammar *g;
	struct grammar_account none_left = {0};
	struct api_problem p;
	struct why why = {""};
	json_t *schema = doubling(4);
	char *text = json_dumps(schema, 0);
	cr_expect_neq(compile_doubling(4, &none_left, &p), 0);
	cr_assert_eq(grammar_parse(GRAMMAR_SCHEMA, text, strlen(text), NULL, &ast, &why), 0, "%s", why.text);
	cr_assert_eq(grammar_new(ast, NULL, NULL, &g, &why), 0, "%s", why.text);
	grammar_free(g);
	ast_free(ast);
	free(text);
	json_decref(schema);
}

/* ---- structural tags ---- */

#define TAGS                                                                                                 \
	"\"structures\": [{\"begin\": \"<f=a>\", \"schema\": {\"type\": \"integer\"}, \"end\": \"</f>\"}, "  \
	"{\"begin\": \"<f=b>\", \"schema\": {\"const\": \"x\"}, \"end\": \"</f>\"}], \"triggers\": "         \
	"[\"<f=\"]}"

/* Return whether the constraint accepts the whole text. */
static bool takes(const struct constraint *f, const char *text)
{
	struct ast *ast;
	struct grammar *g;
	struct why why = {""};
	bool end = false;
	cr_assert_eq(grammar_parse((enum grammar_language)f->language, f->text, f->n, NULL, &ast, &why), 0,
		     "%s", why.text);
	cr_assert_eq(grammar_new(ast, NULL, NULL, &g, &why), 0, "%s", why.text);
	struct matcher *m = matcher_new(g);
	bool taken = matcher_accept_bytes(m, text, strlen(text), NULL) == 0 &&
		     matcher_can_end(m, &end) == 0 && end;
	matcher_free(m);
	grammar_free(g);
	ast_free(ast);
	return taken;
}

Test(form_request, in_free_text_a_trigger_begins_a_structure)
{
	static const char *const good[] = {"", "Hello <b>", "<f=a>12</f>",
					   "I call <f=a>7</f> and <f=b>\"x\"</f>.", "<<f=a>1</f><f=a>2</f>"};
	static const char *const bad[] = {"<f=c>1</f>", "<f=a>x</f>", "<f=a>1", "<f=b>1</f>", "a <f= b"};
	struct submit *s;
	struct api_problem p;
	cr_assert_eq(ask(API_CHAT, "\"response_format\": {\"type\": \"structural_tag\", " TAGS, &s, &p), 0,
		     "%s", p.why);
	cr_assert_eq(s->params.constraint->language, GRAMMAR_COMPOSITE);
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		cr_expect(takes(s->params.constraint, good[i]), "%s", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect(!takes(s->params.constraint, bad[i]), "%s", bad[i]);
	submit_free(s);
	/* A NUL does not end any of its texts. */
	cr_assert_eq(
		ask(API_CHAT,
		    "\"response_format\": {\"type\": \"structural_tag\", \"structures\": [{\"begin\": "
		    "\"<f\\u0000>\", \"schema\": {\"const\": 1}, \"end\": \"\"}], \"triggers\": [\"<f\"]}",
		    &s, &p),
		0, "%s", p.why);
	cr_expect(!takes(s->params.constraint, "<f1"));
	submit_free(s);
}
