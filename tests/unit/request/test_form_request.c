/* What a request asks its outputs to look like, in each of its spellings, and what is refused. */
#include "controller/request/form_request.h"
#include "grammar/grammar.h"
#include "grammar/source.h"
#include "tests/unit/request/api_rig.h"

#include <errno.h>
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

/* text NULL: outputs are free. */
static void expect(enum api_dialect dialect, const char *fields, enum grammar_language language,
		   const char *text)
{
	struct submit *s;
	struct api_problem p;
	cr_assert_eq(ask(dialect, fields, &s, &p), 0, "%s: %s", fields, p.why);
	const struct form *f = s->params.form;
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
		expect(dialects[i], "\"response_format\": {\"type\": \"json_object\"}", GRAMMAR_SCHEMA,
		       "{\"type\":\"object\"}");
		expect(dialects[i],
		       "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\", "
		       "\"strict\": true, \"schema\": {\"type\": \"array\", \"items\": {\"minimum\": 0.1}}}}",
		       GRAMMAR_SCHEMA, "{\"type\":\"array\",\"items\":{\"minimum\":0.10000000000000001}}");
	}
	/* As llama.cpp has it. */
	expect(API_CHAT, "\"response_format\": {\"type\": \"json_object\", \"schema\": {\"const\": 1}}",
	       GRAMMAR_SCHEMA, "{\"const\":1}");
}

Test(form_request, vllm_s_fields)
{
	for (int i = 0; i < 3; i++) {
		expect(dialects[i], "\"guided_json\": {\"type\": \"null\"}", GRAMMAR_SCHEMA,
		       "{\"type\":\"null\"}");
		expect(dialects[i], "\"guided_json\": \"{\\\"type\\\": \\\"null\\\"}\"", GRAMMAR_SCHEMA,
		       "{\"type\":\"null\"}");
		expect(dialects[i], "\"guided_json\": {}", GRAMMAR_SCHEMA, "{}");
		expect(dialects[i], "\"guided_regex\": \"a+\"", GRAMMAR_REGEX, "a+");
		expect(dialects[i], "\"guided_choice\": [\"yes\", \"no\"]", GRAMMAR_CHOICE,
		       "[\"yes\",\"no\"]");
		expect(dialects[i], "\"guided_regex\": \"\"", 0, NULL);
		expect(dialects[i], "\"structured_outputs\": {\"regex\": \"a\", \"json\": null}",
		       GRAMMAR_REGEX, "a");
		expect(dialects[i], "\"structured_outputs\": {\"json_object\": true}", GRAMMAR_SCHEMA,
		       "{\"type\":\"object\"}");
		expect(dialects[i], "\"structured_outputs\": {\"choice\": [\"a\"], \"json_object\": false}",
		       GRAMMAR_CHOICE, "[\"a\"]");
		expect(dialects[i], "\"structured_outputs\": {\"json\": true, \"disable_fallback\": true}",
		       GRAMMAR_SCHEMA, "true");
		expect(dialects[i], "\"structured_outputs\": {}", 0, NULL);
	}
}

Test(form_request, options_of_structured_outputs_change_schemas)
{
	expect(API_CHAT,
	       "\"structured_outputs\": {\"json\": {\"type\": \"array\"}, \"disable_any_whitespace\": true}",
	       GRAMMAR_FORM, "{\"type\":\"schema\",\"schema\":{\"type\":\"array\"},\"space\":\"none\"}");
	expect(API_CHAT,
	       "\"structured_outputs\": {\"json_object\": true, \"whitespace_pattern\": \"\\\\s*\"}",
	       GRAMMAR_FORM,
	       "{\"type\":\"schema\",\"schema\":{\"type\":\"object\"},\"space\":{\"pattern\":\"\\\\s*\"}}");
	for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
		expect(dialects[i],
		       "\"guided_json\": {\"type\":\"array\"}, \"guided_whitespace_pattern\": \" ?\"",
		       GRAMMAR_FORM,
		       "{\"type\":\"schema\",\"schema\":{\"type\":\"array\"},\"space\":{\"pattern\":\" "
		       "?\"}}");
	expect(API_CHAT, "\"guided_whitespace_pattern\": \"\"", 0, NULL);
	expect(API_CHAT, "\"structured_outputs\": {\"regex\": \"a b\", \"disable_any_whitespace\": true}",
	       GRAMMAR_REGEX, "a b");
	/* A property may have the name of a keyword; a constant is no schema. */
	expect(API_CHAT,
	       "\"structured_outputs\": {\"disable_additional_properties\": true, \"json\": {\"properties\": "
	       "{\"properties\": {\"anyOf\": [{\"properties\": {\"a\": {}}}, {\"patternProperties\": "
	       "{\"^x\": {}}, "
	       "\"additionalProperties\": true}]}, \"enum\": {\"const\": {\"properties\": 1}}}}}",
	       GRAMMAR_SCHEMA,
	       "{\"properties\":{\"properties\":{\"anyOf\":[{\"properties\":{\"a\":{}},"
	       "\"additionalProperties\":"
	       "false},{\"patternProperties\":{\"^x\":{}},\"additionalProperties\":true}]},\"enum\":{"
	       "\"const\":"
	       "{\"properties\":1}}},\"additionalProperties\":false}");
}

/* GBNF is told from Lark by ::=, but not in a comment. */
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
	expect(API_COMPLETIONS, "\"json_schema\": {\"type\": \"string\"}", GRAMMAR_SCHEMA,
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
		 "\"guided_whitespace_pattern\": \" \"",
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

/* The engine's own reason, with the place in the schema, the pattern or the grammar. */
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
	cr_expect_eq(s[0]->params.form, s[1]->params.form);
	submit_free(s[0]);
	cr_expect_str_eq(s[1]->params.form->text, "x");
	submit_free(s[1]);
	json_decref(request);
}

/* ---- bounds: the same reason on every machine, whatever else runs ---- */

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

/* ---- structural tags ---- */

#define TAGS                                                                                                 \
	"\"structures\": [{\"begin\": \"<f=a>\", \"schema\": {\"type\": \"integer\"}, \"end\": \"</f>\"}, "  \
	"{\"begin\": \"<f=b>\", \"schema\": {\"const\": \"x\"}, \"end\": \"</f>\"}], \"triggers\": "         \
	"[\"<f=\"]}"

/* Whether the form takes the text as a whole. */
static bool takes(const struct form *f, const char *text)
{
	struct ast *ast;
	struct grammar *g;
	char why[256] = "";
	bool end = false;
	cr_assert_eq(
		grammar_parse((enum grammar_language)f->language, f->text, f->n, NULL, &ast, why, sizeof why),
		0, "%s", why);
	cr_assert_eq(grammar_new(ast, NULL, NULL, &g, why, sizeof why), 0, "%s", why);
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
	cr_assert_eq(s->params.form->language, GRAMMAR_FORM);
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		cr_expect(takes(s->params.form, good[i]), "%s", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect(!takes(s->params.form, bad[i]), "%s", bad[i]);
	submit_free(s);
	/* A NUL ends none of its texts. */
	cr_assert_eq(
		ask(API_CHAT,
		    "\"response_format\": {\"type\": \"structural_tag\", \"structures\": [{\"begin\": "
		    "\"<f\\u0000>\", \"schema\": {\"const\": 1}, \"end\": \"\"}], \"triggers\": [\"<f\"]}",
		    &s, &p),
		0, "%s", p.why);
	cr_expect(!takes(s->params.form, "<f1"));
	submit_free(s);
}
