/* Documents that combine grammars: each type's texts, special tokens, budgets, and refusals with their
 * place. */
#include "tests/unit/grammar/grammar_help.h"
#include "grammar/source.h"
#include "base/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(composite, .timeout = 60);

static struct ast *parsed(const char *text)
{
	struct ast *a = NULL;
	struct why why = {""};
	cr_assert_eq(grammar_parse(GRAMMAR_COMPOSITE, text, strlen(text), NULL, &a, &why), 0, "%s: %s", text,
		     why.text);
	return a;
}

static struct grammar *composite(const char *text)
{
	return help_grammar(parsed(text), NULL);
}

static void expect_refused(const char *text, int err, const char *want)
{
	struct ast *a = NULL;
	struct why why = {""};
	cr_expect_eq(grammar_parse(GRAMMAR_COMPOSITE, text, strlen(text), NULL, &a, &why), err, "%.100s",
		     text);
	cr_expect_str_eq(why.text, want);
	cr_expect_null(a);
}

Test(composite, parts_in_order_and_choices_of_parts)
{
	struct grammar *g =
		composite("{\"type\": \"sequence\", \"parts\": ["
			  "{\"type\": \"either\", \"parts\": [{\"type\": \"literal\", \"text\": \"a\\n\"},"
			  "  {\"type\": \"choice\", \"choices\": [\"b\", \"cc\"]}]},"
			  "{\"type\": \"repeat\", \"min\": 1, \"max\": 2, \"part\": {\"type\": \"literal\", "
			  "\"text\": \"-\"}},"
			  "{\"type\": \"repeat\", \"part\": {\"type\": \"regex\", \"pattern\": \"[0-9]x\"}},"
			  "{\"type\": \"option\", \"part\": {\"type\": \"gbnf\", \"grammar\": \"root ::= "
			  "\\\"g\\\" root?\"}},"
			  "{\"type\": \"lark\", \"grammar\": \"start: \\\"l\\\"\"}]}");
	help_yes(g, "a\n-l", "b--l", "cc-1x2xl", "b-gggl", "b-9xgl");
	help_no(g, "", "a-l", "c-l", "b---l", "bl", "b-1l", "b-g", "b-ll");
	grammar_free(g);
}

Test(composite, a_schema_is_its_own_root)
{
	struct grammar *g = composite(
		"{\"type\": \"sequence\", \"parts\": ["
		"{\"type\": \"schema\", \"schema\": {\"$ref\": \"#/$defs/a\","
		"  \"$defs\": {\"a\": {\"type\": \"array\", \"items\": {\"$ref\": \"#\"}, \"maxItems\": "
		"1}}}},"
		"{\"type\": \"schema\", \"schema\": {\"const\": \"/\"}, \"strings\": \"short\"}]}");
	help_yes(g, "[]\"/\"", "[[]]\"/\"");
	help_no(g, "[]", "\"/\"", "[[],[]]\"/\"");
	grammar_free(g);
}

Test(composite, short_strings_have_one_spelling)
{
	struct grammar *g = composite(
		"{\"type\": \"schema\", \"schema\": {\"type\": \"string\", \"pattern\": \"^[^b]*$\"},"
		" \"strings\": \"short\"}");
	help_yes(g, "\"\"", "\"a\\n/\\\"\\\\\"", "\"\\u0001\xc3\xa4\"");
	help_no(g, "\"\\/\"", "\"\\u0061\"", "\"\\u000a\"", "\"b\"", "\"\n\"", "a");
	grammar_free(g);
}

Test(composite, rules_are_referred_to_by_name)
{
	struct grammar *g = composite(
		"{\"type\": \"rules\", \"rules\": {\"list\": {\"type\": \"sequence\", \"parts\": ["
		"{\"type\": \"literal\", \"text\": \"[\"}, {\"type\": \"repeat\", \"part\": {\"type\": "
		"\"either\", "
		"\"parts\": [{\"type\": \"rule\", \"name\": \"x\"}, {\"type\": \"rule\", \"name\": "
		"\"list\"}]}}, "
		"{\"type\": \"literal\", \"text\": \"]\"}]}, \"x\": {\"type\": \"literal\", \"text\": "
		"\"x\"}}, "
		"\"part\": {\"type\": \"sequence\", \"parts\": [{\"type\": \"rule\", \"name\": \"list\"}, "
		"{\"type\": \"rules\", \"rules\": {\"x\": {\"type\": \"literal\", \"text\": \"y\"}}, "
		"\"part\": "
		"{\"type\": \"rule\", \"name\": \"x\"}}, {\"type\": \"rule\", \"name\": \"x\"}]}}");
	help_yes(g, "[]yx", "[xx[x[]]]yx");
	help_no(g, "[]xx", "[]", "[y]yx", "[[]yx");
	grammar_free(g);
	expect_refused("{\"type\": \"rule\", \"name\": \"x\"}", -EINVAL,
		       "composite: #: there is no rule \"x\"");
	expect_refused("{\"type\": \"rules\", \"rules\": {\"x\": {\"type\": \"regex\", \"pattern\": \"(\"}}, "
		       "\"part\": "
		       "{\"type\": \"rule\", \"name\": \"x\"}}",
		       -EINVAL, "composite: #/rules/x: regex, byte 1: ( without )");
	expect_refused("{\"type\": \"sequence\", \"parts\": [{\"type\": \"rules\", \"rules\": {}, \"part\": "
		       "{\"type\": "
		       "\"text\"}}, {\"type\": \"rules\", \"rules\": [], \"part\": {\"type\": \"text\"}}]}",
		       -EINVAL, "composite: #/parts/1: \"rules\" must be an object of parts");
	struct ast *a = parsed(
		"{\"type\": \"rules\", \"rules\": {\"x\": {\"type\": \"sequence\", \"parts\": [{\"type\": "
		"\"literal\", \"text\": \"a\"}, {\"type\": \"rule\", \"name\": \"x\"}]}}, \"part\": "
		"{\"type\": "
		"\"rule\", \"name\": \"x\"}}");
	struct why why;
	cr_expect_eq(grammar_new(a, NULL, NULL, &g, &why), -EINVAL);
	cr_expect_str_eq(why.text, "no text matches the grammar: x needs itself, and so never ends");
	ast_free(a);
}

Test(composite, a_schema_may_be_that_of_a_property_and_have_pythons_words)
{
	struct grammar *g =
		composite("{\"type\": \"schema\", \"property\": \"a\", \"words\": \"python\", \"schema\": "
			  "{\"properties\": {\"a\": {\"type\": [\"boolean\", \"null\"]}, \"b\": {}}, "
			  "\"required\": [\"b\"]}}");
	help_yes(g, "True", "False", "None");
	help_no(g, "true", "{}", "null");
	grammar_free(g);
	expect_refused("{\"type\": \"schema\", \"property\": \"a\", \"schema\": {}}", -EINVAL,
		       "composite: #/schema: #: there is no property \"a\"");
	expect_refused("{\"type\": \"schema\", \"words\": \"c\", \"schema\": {}}", -EINVAL,
		       "composite: #: \"words\" must be \"json\" or \"python\"");
	expect_refused("{\"type\": \"schema\", \"property\": 1, \"schema\": {}}", -EINVAL,
		       "composite: #: \"property\" must be a string without NUL");
}

Test(composite, a_schema_may_leave_out_blanks)
{
	struct grammar *g = composite(
		"{\"type\": \"schema\", \"schema\": {\"items\": {\"const\": 1}, \"type\": \"array\"},"
		" \"space\": \"none\"}");
	help_yes(g, "[]", "[1]", "[1,1]");
	help_no(g, "[1, 1]", "[ ]");
	grammar_free(g);
}

Test(composite, schemas_are_bounded_within_a_part)
{
#define OBJECT                                                                                               \
	"{\"type\": \"schema\", \"schema\": {\"properties\": {\"a\": {\"type\": \"integer\"}}, \"type\": "   \
	"\"object\"}}"
	struct grammar *g = composite(
		"{\"type\": \"sequence\", \"parts\": [{\"type\": \"bounded\", \"part\": {\"type\": "
		"\"option\", \"part\": " OBJECT "}}, {\"type\": \"literal\", \"text\": \";\"}, " OBJECT "]}");
	help_yes(g, ";{}", "{\"a\": 1};{\"a\": 1, \"b\": 2}", "{};{\"a\": 123456789012345678901}");
	help_no(g, "{\"b\": 1};{}", "{\"a\": 123456789012345678901};{}");
	grammar_free(g);
	expect_refused(
		"{\"type\": \"option\", \"part\": {\"type\": \"bounded\", \"part\": {\"type\": \"xml\"}}}",
		-EINVAL, "composite: #/part: type \"xml\" is not known");
}

Test(composite, whitespace_of_a_pattern_has_a_bound_that_can_be_lifted)
{
#define BLANKS "                    "
	struct grammar *g = composite("{\"type\": \"schema\", \"schema\": {\"type\": \"array\"}, \"space\": "
				      "{\"pattern\": \" *\"}}");
	help_yes(g, "[" BLANKS "]");
	help_no(g, "[" BLANKS " ]");
	grammar_free(g);
	g = composite(
		"{\"type\": \"schema\", \"schema\": {\"type\": \"array\"}, \"space\": {\"pattern\": \" *\", "
		"\"max\": "
		"null}}");
	help_yes(g, "[" BLANKS " ]", "[" BLANKS BLANKS BLANKS "1]");
	grammar_free(g);
	expect_refused(
		"{\"type\": \"schema\", \"schema\": true, \"space\": {\"pattern\": \" \", \"max\": 1}}",
		-EINVAL,
		"composite: #: \"space\" must be \"one\", \"none\" or {\"pattern\": a string without NUL}");
}

Test(composite, a_text_holds_none_of_its_ends)
{
	struct grammar *g = composite("{\"type\": \"sequence\", \"parts\": ["
				      "{\"type\": \"text\", \"until\": [\"</think>\", \"<call>\"]},"
				      "{\"type\": \"literal\", \"text\": \"</think>\"}]}");
	help_yes(g, "</think>", "a\n\"\xc3\xa4 <</thin </think>", "<call</think>", "</th</think>");
	help_no(g, "", "a", "</think></think>", "a<call></think>", "a</think>b", "\xff</think>",
		"\xc3</think>");
	grammar_free(g);
	g = composite("{\"type\": \"text\"}");
	help_yes(g, "", "any</think>thing\n");
	grammar_free(g);
}

Test(composite, a_text_with_a_schema_is_a_string_without_quotes)
{
	struct grammar *g = composite(
		"{\"type\": \"text\", \"until\": [\"</p>\"], \"schema\":"
		" {\"type\": [\"string\", \"integer\"], \"minLength\": 2, \"pattern\": \"^[^b]\"}}");
	help_yes(g, "a\"", "\n\\", "</p", "12");
	help_no(g, "", "a", "bb", "</p>", "a</p>", "\"ab</p>\"");
	grammar_free(g);
	g = composite(
		"{\"type\": \"text\", \"schema\": {\"enum\": [\"a\\nb\", 5, \"\\\"\", null, \"c</p>\"]},"
		" \"until\": [\"</p>\"]}");
	help_yes(g, "a\nb", "\"");
	help_no(g, "5", "null", "a\\nb", "\\\"", "c</p>", "\"a\"");
	grammar_free(g);
	g = composite("{\"type\": \"text\", \"schema\": {\"type\": \"string\", \"format\": \"date\","
		      " \"not\": {\"const\": \"2024-01-01\"}}}");
	help_yes(g, "2024-01-02");
	help_no(g, "2024-01-01", "2024-1-1", "\"2024-01-02\"");
	grammar_free(g);
	struct ast *a = parsed("{\"type\": \"text\", \"schema\": {\"type\": \"integer\"}}");
	struct why why;
	cr_expect_eq(grammar_new(a, NULL, NULL, &g, &why), -EINVAL);
	cr_expect_str_eq(why.text, "no text matches the grammar");
	ast_free(a);
}

Test(composite, strings_of_a_schema_may_be_kept_free_of_a_text)
{
	struct grammar *g = composite("{\"type\": \"schema\", \"without\": \"</p>\", \"schema\": {\"type\":"
				      " [\"string\", \"object\"], \"additionalProperties\": {\"enum\":"
				      " [\"<\", \"</p>\"]}}}");
	help_yes(g, "\"a</p\"", "\"<\\/p>\"", "{\"</p\": \"<\"}");
	help_no(g, "\"a</p>b\"", "{\"a\": \"</p>\"}", "{\"</p>\": \"<\"}");
	grammar_free(g);
	expect_refused("{\"type\": \"schema\", \"schema\": true, \"without\": \"\"}", -EINVAL,
		       "composite: #: \"without\" must be a text without quotes and backslashes");
}

/* Make a small vocabulary: special tokens, and all single bytes. */
static struct lexicon *lexicon(const char *const *words, size_t n)
{
	static char bytes[256];
	struct lexicon_token tokens[300] = {0};
	struct lexicon *v;
	for (unsigned b = 0; b < 256; b++) {
		bytes[b] = (char)b;
		tokens[b] = (struct lexicon_token){&bytes[b], 1, LEXICON_TEXT};
	}
	for (size_t i = 0; i < n; i++)
		tokens[256 + i] = (struct lexicon_token){words[i], (uint32_t)strlen(words[i]), LEXICON_TEXT};
	tokens[256 + n] = (struct lexicon_token){"", 0, LEXICON_END};
	cr_assert_eq(lexicon_new(tokens, 257 + n, &v, NULL), 0);
	return v;
}

static bool allowed(struct matcher *m, uint32_t t)
{
	const uint32_t *mask;
	cr_assert_eq(matcher_mask(m, &mask), 0);
	return mask[t >> 5] >> (t & 31) & 1;
}

enum { CALL = 256, CALL_TEXT, OTHER, END };
static const char *const words[] = {"\xff<call>\xfe", "<call>", "\xff<other>\xfe"};

Test(composite, a_special_token_is_allowed_where_it_is_named)
{
	struct lexicon *v = lexicon(words, 3);
	struct grammar *g = help_grammar(parsed("{\"type\": \"sequence\", \"parts\": [{\"type\": \"text\"},"
						"{\"type\": \"token\", \"text\": \"<call>\"},"
						"{\"type\": \"literal\", \"text\": \"x\"}]}"),
					 v);
	struct matcher *m = matcher_new(g);
	cr_expect(allowed(m, CALL));
	cr_expect(allowed(m, CALL_TEXT));
	cr_expect(!allowed(m, OTHER));
	cr_expect(!allowed(m, 0xff), "a token of one byte begins no special token");
	cr_expect(!allowed(m, 0xfd));
	cr_expect_eq(matcher_accept(m, 0xff), -EINVAL);
	cr_expect_eq(matcher_accept(m, CALL_TEXT), 0);
	cr_expect(!allowed(m, END));
	cr_expect_eq(matcher_accept(m, OTHER), -EINVAL);
	cr_expect_eq(matcher_accept(m, CALL), 0);
	cr_expect(allowed(m, 'x'));
	cr_expect(!allowed(m, CALL));
	cr_expect_eq(matcher_accept(m, 'x'), 0);
	cr_expect(allowed(m, END));
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
}

static const char thought[] =
	"{\"type\": \"sequence\", \"parts\": [{\"type\": \"text\", \"until\": [\"</t>\"]},"
	"{\"type\": \"option\", \"part\": {\"type\": \"sequence\", \"parts\":"
	" [{\"type\": \"budget\", \"tokens\": 4}, {\"type\": \"literal\", \"text\": \"\\n\"}]}},"
	"{\"type\": \"literal\", \"text\": \"</t>\"}, {\"type\": \"regex\", \"pattern\": \"[ab]*\"}]}";

static void push(struct matcher *m, const char *text)
{
	for (; *text; text++)
		cr_assert_eq(matcher_accept(m, (unsigned char)*text), 0, "%s", text);
}

/* Return the allowed bytes. */
static const char *next(struct matcher *m)
{
	static char list[258];
	size_t n = 0;
	for (uint32_t b = 0; b < 256; b++)
		if (allowed(m, b))
			list[n++] = (char)b;
	list[n] = '\0';
	return list;
}

Test(composite, a_spent_budget_ends_a_thought)
{
	struct lexicon *v = lexicon(words, 3);
	struct grammar *g = help_grammar(parsed(thought), v);
	struct matcher *m = matcher_new(g);
	push(m, "abc");
	cr_expect(allowed(m, 'z'));
	push(m, "d");
	cr_expect_str_eq(next(m), "\n");
	push(m, "\n</t>");
	cr_expect_str_eq(next(m), "ab");
	push(m, "ab");
	cr_expect(allowed(m, END));
	/* Roll back and continue differently. */
	matcher_rollback(m, matcher_length(m) - 3);
	cr_expect(allowed(m, 'z'));
	push(m, "\xc3"); /* within a character the budget cannot end the text, only after it */
	cr_expect(!allowed(m, '\n'));
	push(m, "\xa4");
	cr_expect_str_eq(next(m), "\n");
	struct matcher *copy = matcher_copy(m);
	push(copy, "\n</");
	cr_expect_str_eq(next(copy), "t");
	matcher_free(copy);
	/* Replay the tokens from the beginning. */
	matcher_rollback(m, matcher_length(m));
	push(m, "abcd\n<");
	cr_expect_str_eq(next(m), "/");
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
}

Test(composite, a_thought_that_ends_in_time_spends_nothing)
{
	struct lexicon *v = lexicon(words, 3);
	struct grammar *g = help_grammar(parsed(thought), v);
	struct matcher *m = matcher_new(g);
	push(m, "</t>");
	cr_expect_str_eq(next(m), "ab");
	push(m, "abababab");
	cr_expect_str_eq(next(m), "ab");
	cr_expect(allowed(m, END));
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
}

/* After caches are emptied, the state is found again from the bytes. */
Test(composite, a_spent_budget_survives_empty_caches)
{
	struct lexicon *v = lexicon(words, 3);
	struct buf text = {0};
	const struct grammar_limits limits = {.state_bytes = 1 << 20, .mask_bytes = 1};
	struct grammar *g;
	struct grammar_counts c;
	struct why why = {""};
	buf_printf(&text, "{\"type\": \"sequence\", \"parts\": [%s, {\"type\": \"regex\", \"pattern\": \"",
		   thought);
	for (int i = 0; i < 26; i++)
		buf_printf(&text, "%c[0-9]{0,2000}%c|", 'A' + i, 'A' + i);
	buf_puts(&text, "-\"}]}");
	struct ast *a = parsed(text.p);
	cr_assert_eq(grammar_new(a, v, &limits, &g, &why), 0, "%s", why.text);
	ast_free(a);
	struct matcher *m = matcher_new(g);
	push(m, "abcd\n");
	for (int i = 0; i < 26; i++) {
		const char letter[] = {(char)('A' + i), '\0'};
		struct matcher *other = matcher_new(g);
		push(other, "</t>");
		push(other, letter);
		for (int k = 0; k < 1000; k++)
			push(other, "7");
		matcher_free(other);
	}
	cr_expect_str_eq(next(m), "<");
	grammar_counts(g, &c);
	cr_expect(c.n_resets > 0);
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
	buf_fini(&text);
}

Test(composite, what_is_wrong_is_named_by_its_path)
{
	expect_refused(
		"{", -EINVAL,
		"composite: not valid JSON: line 1, column 1: string or '}' expected near end of file");
	expect_refused("[]", -EINVAL, "composite: #: must be an object with a \"type\"");
	expect_refused("{\"type\": \"xml\"}", -EINVAL, "composite: #: type \"xml\" is not known");
	expect_refused("{\"type\": \"text\", \"max\": 1}", -EINVAL,
		       "composite: #: \"max\" is not a member of this type");
	expect_refused("{\"type\": \"text\", \"until\": [\"\"]}", -EINVAL,
		       "composite: #: \"until\": item 0 is empty");
	expect_refused("{\"type\": \"text\", \"until\": \"x\"}", -EINVAL,
		       "composite: #: \"until\" must be an array of strings");
	expect_refused("{\"type\": \"either\", \"parts\": []}", -EINVAL,
		       "composite: #: \"parts\" must be an array of parts");
	expect_refused("{\"type\": \"sequence\", \"parts\": [{\"type\": \"repeat\", \"part\": {}}]}", -EINVAL,
		       "composite: #/parts/0/part: must be an object with a \"type\"");
	expect_refused("{\"type\": \"repeat\", \"min\": 2, \"max\": 1, \"part\": {\"type\": \"text\"}}",
		       -EINVAL, "composite: #: a repeat of 2 to 1 times");
	expect_refused("{\"type\": \"option\", \"part\": {\"type\": \"regex\", \"pattern\": \"(\"}}", -EINVAL,
		       "composite: #/part: regex, byte 1: ( without )");
	expect_refused("{\"type\": \"sequence\", \"parts\": [{\"type\": \"text\"}, {\"type\": \"schema\", "
		       "\"schema\":"
		       " {\"properties\": {\"a\": {\"type\": \"int\"}}}}]}",
		       -EINVAL, "composite: #/parts/1/schema: #/properties/a: type \"int\" is unknown");
	expect_refused("{\"type\": \"schema\", \"schema\": true, \"strings\": \"raw\"}", -EINVAL,
		       "composite: #: \"strings\" must be \"json\" or \"short\"");
	expect_refused(
		"{\"type\": \"schema\", \"schema\": true, \"space\": 1}", -EINVAL,
		"composite: #: \"space\" must be \"one\", \"none\" or {\"pattern\": a string without NUL}");
	expect_refused("{\"type\": \"schema\", \"schema\": true, \"space\": {\"pattern\": \"-+\"}}", -EINVAL,
		       "composite: #/schema: #: the pattern of whitespace \"-+\" matches no text of at most "
		       "20 blanks, "
		       "tabs, newlines and returns");
	expect_refused(
		"{\"type\": \"schema\", \"schema\": true, \"space\": {\"pattern\": \" {21}\"}}", -EINVAL,
		"composite: #/schema: #: the pattern of whitespace \" {21}\" matches no text of at most 20 "
		"blanks, tabs, newlines and returns");
	expect_refused(
		"{\"type\": \"schema\", \"schema\": true, \"space\": {\"pattern\": \"( \"}}", -ENOTSUP,
		"composite: #/schema: #: the pattern of whitespace \"( \": regex, byte 2: ( without )");
	expect_refused("{\"type\": \"token\", \"text\": \"\"}", -EINVAL,
		       "composite: #: a token's text must have 1 to 256 bytes");
	expect_refused("{\"type\": \"budget\", \"tokens\": 0}", -EINVAL,
		       "composite: #: tokens is 0, must be from 1 to 1073741824");
	expect_refused("{\"type\": \"sequence\", \"parts\": [{\"type\": \"budget\", \"tokens\": 1},"
		       " {\"type\": \"budget\", \"tokens\": 2}]}",
		       -EINVAL, "composite: #/parts/1: budgets of 1 and 2 tokens");
	expect_refused("{\"type\": \"choice\", \"choices\": [\"a\", 1]}", -EINVAL,
		       "composite: #: \"choices\": item 1 is not a string");
}

Test(composite, nesting_is_bounded)
{
	struct buf text = {0};
	for (int i = 0; i < 100; i++)
		buf_puts(&text, "{\"type\":\"option\",\"part\":");
	buf_puts(&text, "{\"type\":\"text\"}");
	for (int i = 0; i < 100; i++)
		buf_puts(&text, "}");
	struct ast *a;
	struct why why = {""};
	cr_expect_eq(grammar_parse(GRAMMAR_COMPOSITE, text.p, text.len, NULL, &a, &why), -E2BIG);
	cr_expect(strstr(why.text, "parts are nested more than 64 deep"), "%s", why.text);
	buf_clear(&text);
	/* more parts than may be nested, in one list */
	buf_puts(&text, "{\"type\":\"sequence\",\"parts\":[");
	for (int i = 0; i < 100; i++)
		buf_puts(&text, i ? ",{\"type\":\"literal\",\"text\":\"a\"}"
				  : "{\"type\":\"literal\",\"text\":\"a\"}");
	buf_puts(&text, "]}");
	cr_assert_eq(grammar_parse(GRAMMAR_COMPOSITE, text.p, text.len, NULL, &a, &why), 0, "%s", why.text);
	ast_free(a);
	buf_fini(&text);
}
