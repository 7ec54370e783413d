/* GBNF, Lark and choices: their matches, and refusals by name. */
#include "tests/unit/grammar/grammar_help.h"
#include "grammar/source.h"
#include "base/alloc.h"
#include "base/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct grammar *source(enum grammar_language language, const char *text)
{
	struct ast *a = NULL;
	struct why why = {""};
	cr_assert_eq(grammar_parse(language, text, strlen(text), NULL, &a, &why), 0, "%s", why.text);
	return help_grammar(a, NULL);
}

static void expect_refused(enum grammar_language language, const char *text, int err, const char *want)
{
	struct ast *a = NULL;
	struct why why = {""};
	cr_expect_eq(grammar_parse(language, text, strlen(text), NULL, &a, &why), err, "%.100s", text);
	cr_expect_str_eq(why.text, want);
	cr_expect_null(a);
}

Test(gbnf, the_example_of_a_calculator)
{
	struct grammar *g =
		source(GRAMMAR_GBNF, "# sums\n"
				     "root  ::= (expr \"=\" ws term \"\\n\")+\n"
				     "expr  ::= term ([-+*/] term)*\n"
				     "term  ::= ident | num | \"(\" ws expr \")\" ws # in parentheses\n"
				     "ident ::= [a-z] [a-z0-9_]* ws\n"
				     "num   ::= [0-9]+ ws\n"
				     "ws    ::= [ \\t\\n]*\n");
	help_yes(g, "x=1\n", "(a_1 +2)*3 = y\n", "1+2=3\nx=4\n");
	help_no(g, "", "x=", "x=1", "x+=1\n", "(x=1\n", "X=1\n");
	grammar_free(g);
}

Test(gbnf, all_that_an_element_can_be)
{
	struct grammar *g = source(
		GRAMMAR_GBNF,
		"root ::= a{2} b{1,2} c{2,} d? .  |\n \"\\x41\\u00e4\\\"\"  \n"
		"a ::= \"a\" |\n \"A\"\nb ::= [^a-c\\]]\nc ::= ( \"c\"\n | \"C\" )\nd ::= \"d\"+ \"\"");
	help_yes(g, "aAxcCz", "aaxxcccddd\xc3\xa4", "A\xc3\xa4\"", "aaxcc\n");
	help_no(g, "axcc.", "aaacc.", "aaxc.", "aa]cc.", "aaxcc");
	grammar_free(g);
}

Test(gbnf, left_recursion_is_fine)
{
	struct grammar *g = source(GRAMMAR_GBNF, "root ::= root \"+\" root | [0-9] | root \"!\"");
	help_yes(g, "1", "1+2+3!", "1!!+2");
	help_no(g, "+", "1+", "!1", "12");
	grammar_free(g);
}

Test(gbnf, errors_name_the_line)
{
	expect_refused(GRAMMAR_GBNF, "a ::= \"x\"", -EINVAL, "GBNF: the rule root is missing");
	expect_refused(GRAMMAR_GBNF, "root ::= a", -EINVAL, "rule a is not defined");
	expect_refused(GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", -EINVAL, "rule root is defined twice");
	expect_refused(GRAMMAR_GBNF, "root ::= \"a\"\n\nx = \"b\"", -EINVAL, "GBNF, line 3: ::= is missing");
	expect_refused(GRAMMAR_GBNF, "root ::= (\"a\"", -EINVAL, "GBNF, line 1: ( without )");
	expect_refused(GRAMMAR_GBNF, "root ::= \"a\")", -EINVAL, "GBNF, line 1: ) without (");
	expect_refused(GRAMMAR_GBNF, "root ::= \"a", -EINVAL,
		       "GBNF, line 1: a string or class without its end");
	expect_refused(GRAMMAR_GBNF, "root ::= <[12]>", -EINVAL,
		       "GBNF, line 1: tokens (<...>) are not supported");
	expect_refused(GRAMMAR_GBNF, "root ::= [b-a]", -EINVAL,
		       "GBNF, line 1: a range that ends before it begins");
	expect_refused(GRAMMAR_GBNF, "root ::= \"a\"{2,1}", -EINVAL,
		       "GBNF, line 1: a repeat {...} that is not one");
	expect_refused(GRAMMAR_GBNF, "root ::= \"\\q\"", -EINVAL, "GBNF, line 1: an unknown escape");
	expect_refused(GRAMMAR_GBNF, "root ::= \"\\x`1\"", -EINVAL, "GBNF, line 1: an unknown escape");
	expect_refused(GRAMMAR_GBNF, "root ::= *", -EINVAL,
		       "GBNF, line 1: a string, class, group or rule is missing");
	expect_refused(GRAMMAR_GBNF, "\xff", -EINVAL, "GBNF: not UTF-8");
}

Test(gbnf, characters_classes_and_counts_have_bounds)
{
	struct grammar *g = source(GRAMMAR_GBNF, "root ::= [a-] [+\\-z] \"\\U0010ffff\"");
	help_yes(g, "a+\xf4\x8f\xbf\xbf", "-z\xf4\x8f\xbf\xbf", "--\xf4\x8f\xbf\xbf");
	help_no(g, "b+\xf4\x8f\xbf\xbf", "]+\xf4\x8f\xbf\xbf", "a.\xf4\x8f\xbf\xbf");
	grammar_free(g);
	expect_refused(GRAMMAR_GBNF, "root ::= \"a\\x00\"", -EINVAL, "GBNF, line 1: not a character");
	expect_refused(GRAMMAR_GBNF, "root ::= \"\\ud800\"", -EINVAL, "GBNF, line 1: not a character");
	expect_refused(GRAMMAR_GBNF, "root ::= \"\\U00110000\"", -EINVAL, "GBNF, line 1: an unknown escape");
	expect_refused(GRAMMAR_GBNF, "root ::= [\\U00110000]", -EINVAL, "GBNF, line 1: an unknown escape");
	/* 2^64 must not become 0 */
	expect_refused(GRAMMAR_GBNF, "root ::= \"a\"{18446744073709551616,1}", -EINVAL,
		       "GBNF, line 1: a repeat {...} that is not one");
}

/* Return n times `open`, then `middle`, then n times `close`. */
static struct buf nested(const char *head, size_t n, const char *open, const char *middle, const char *close)
{
	struct buf b = {0};
	buf_puts(&b, head);
	for (size_t i = 0; i < n; i++)
		buf_puts(&b, open);
	buf_puts(&b, middle);
	for (size_t i = 0; i < n; i++)
		buf_puts(&b, close);
	return b;
}

Test(source, groups_are_nested_to_a_depth_and_repeated_without_end)
{
	static const struct {
		enum grammar_language language;
		const char *head, *why;
	} of[] = {{GRAMMAR_GBNF, "root ::= ", "GBNF, line 1: groups are nested too deep"},
		  {GRAMMAR_LARK, "start: ", "Lark, line 1: groups are nested too deep"}};
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		struct buf b = nested(of[i].head, 250, "(", "\"a\"", ")");
		struct grammar *g = source(of[i].language, b.p);
		help_yes(g, "a");
		grammar_free(g);
		buf_fini(&b);
		b = nested(of[i].head, 251, "(", "\"a\"", ")");
		expect_refused(of[i].language, b.p, -E2BIG, of[i].why);
		buf_fini(&b);
		b = nested(of[i].head, 300, "(\"a\")", "\"b\"", "");
		grammar_free(source(of[i].language, b.p));
		buf_fini(&b);
	}
}

Test(source, a_source_is_bounded)
{
	const size_t n = GRAMMAR_SOURCE_MAX + 1;
	char *text = xmalloc(n);
	struct ast *a = NULL;
	struct why why = {""};
	memset(text, 'a', n);
	cr_expect_eq(grammar_parse(GRAMMAR_REGEX, text, n, NULL, &a, &why), -E2BIG);
	cr_expect_str_eq(why.text, "a grammar of 16777217 bytes, at most 16777216");
	cr_expect_null(a);
	free(text);
}

/* Chains of rules in both directions, and one cycle of all rules. */
Test(gbnf, a_hundred_thousand_rules)
{
	enum { N = 100000 };
	for (int kind = 0; kind < 3; kind++) {
		struct buf text = {0};
		buf_puts(&text, "root ::= r0\n");
		for (int i = 0; i < N; i++) {
			int to = kind == 1 ? N - 1 - i : i;
			if (to + 1 < N)
				buf_printf(&text, "r%d ::= \"%s\" r%d\n", to,
					   kind == 2  ? "a"
					   : i % 1000 ? ""
						      : "b",
					   to + 1);
			else
				buf_printf(&text, "r%d ::= \"c\"%s\n", to, kind == 2 ? " r0 | \"d\"" : "");
		}
		struct grammar *g = source(GRAMMAR_GBNF, text.p);
		struct grammar_counts c;
		grammar_counts(g, &c);
		cr_expect(c.bytes < 64 << 20, "%zu bytes", c.bytes);
		struct matcher *m = matcher_new(g);
		char forced[50];
		cr_expect_eq(matcher_forced(m, forced, 50), 50, "%d", kind);
		cr_expect_eq(forced[0], kind == 2 ? 'a' : 'b');
		matcher_free(m);
		grammar_free(g);
		buf_fini(&text);
	}
}

Test(lark, rules_terminals_and_what_is_ignored)
{
	struct grammar *g = source(
		GRAMMAR_LARK, "// a list of sums\n"
			      "start: \"let\"i NAME \"=\" sum (\",\" sum)~0..2\n"
			      "?sum: sum \"+\" atom -> add\n"
			      "    | atom\n"
			      "!atom: NAME | INT | \"(\" sum \")\" | [SIGN] /\\d+\\.\\d+/ | \"x\"..\"z\"\n"
			      "SIGN: \"-\" | \"+\"\n"
			      "NAME: /[a-c]+/\n"
			      "%import common.INT\n"
			      "%import common.WS -> SPACE\n"
			      "%ignore SPACE\n"
			      "%ignore /#[^\\n]*\\n/\n");
	help_yes(g, "let a=b", "LeT abc = a + 1 + ( c ) ", " let a=-1.5,y,2", "let # here\n a = z");
	help_no(g, "let a", "let d=a", "let a=", "let a=1,2,3,4", "let a=- 1.5x", "l et a=b", "let a=1 .5");
	grammar_free(g);
}

Test(lark, comments_lists_of_imports_and_flags)
{
	struct grammar *g = source(GRAMMAR_LARK, "# as Lark writes them\n"
						 "%import common (INT, WS,\n  CNAME) # several\n"
						 "%ignore WS // and this\n"
						 "start: /select/i item+ \"\u00c4b\"i # not a rule: x\n"
						 "item: INT | \"#\" | /a.b/si\n");
	help_yes(g, "SELECT 1 # \u00e4B", "SelecT A\nb\u00c4b");
	help_no(g, "select 1 # ab", "select\u00c4b", "selec 1\u00c4b");
	grammar_free(g);
	g = source(GRAMMAR_LARK, "start: /[k-m]+[^x]\u03c3/i /[k-m]/");
	help_yes(g, "KlM\u212aA\u03a3k", "lz\u03c2m");
	help_no(g, "kX\u03c3k", "kx\u03c3k", "jz\u03c3k", "kz\u03c3K");
	grammar_free(g);
}

Test(lark, imports_are_as_lark_has_them)
{
	static const struct {
		const char *name, *yes[4], *no[4];
	} of[] = {
		{"DIGIT", {"7"}, {"", "77", "a"}},
		{"HEXDIGIT", {"7", "a", "F"}, {"g", "aa"}},
		{"INT", {"0", "007"}, {"-1", "1.", ""}},
		{"SIGNED_INT", {"1", "-1", "+12"}, {"--1", "-", "1.0"}},
		{"DECIMAL", {"1.", ".5", "1.25"}, {"1", ".", "1e5"}},
		{"FLOAT", {"1.5", "1e5", "1.e-5", ".5E+3"}, {"1", "e5", "-1.5"}},
		{"SIGNED_FLOAT", {"-1.5", "+1e5", "2."}, {"1", "-", "-1"}},
		{"NUMBER", {"1", "1.5", "1e5", ".5"}, {"-1", "e5", "."}},
		{"SIGNED_NUMBER", {"-1", "+.5e3", "1"}, {"--1", "-", "1e"}},
		{"LCASE_LETTER", {"a"}, {"A", "aa", "1"}},
		{"UCASE_LETTER", {"A"}, {"a", "AA"}},
		{"LETTER", {"a", "Z"}, {"_", "aa", "1"}},
		{"WORD", {"a", "aZ"}, {"a1", "a_", ""}},
		{"CNAME", {"a", "_1", "aB_9"}, {"1a", "a-", ""}},
		{"ESCAPED_STRING", {"\"\"", "\"a\\\"b\"", "\"\\\\\""}, {"\"a\"b\"", "\"\\\"", "\"\n\"", "a"}},
		{"WS_INLINE", {" ", "\t "}, {"\n", ""}},
		{"WS", {" \t\f\r\n"}, {"", "a", "\v"}},
		{"CR", {"\r"}, {"\n"}},
		{"LF", {"\n"}, {"\r", "\n\n"}},
		{"NEWLINE", {"\n", "\r\n\n"}, {"\r", "", "\n\r"}},
		{"SH_COMMENT", {"#", "# a"}, {"//", "#\n"}},
		{"CPP_COMMENT", {"//", "// a"}, {"#", "/a", "//\n"}},
		{"SQL_COMMENT", {"--", "-- a"}, {"-", "--\n"}},
	};
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		char text[128];
		snprintf(text, sizeof text, "%%import common.%s\nstart: %s\n", of[i].name, of[i].name);
		struct grammar *g = source(GRAMMAR_LARK, text);
		for (size_t k = 0; k < 4; k++) {
			if (of[i].yes[k])
				cr_expect(help_accepts(g, of[i].yes[k], strlen(of[i].yes[k])), "%s: %s",
					  of[i].name, of[i].yes[k]);
			if (of[i].no[k])
				cr_expect_not(help_accepts(g, of[i].no[k], strlen(of[i].no[k])), "%s: %s",
					      of[i].name, of[i].no[k]);
		}
		grammar_free(g);
	}
}

Test(lark, nothing_is_ignored_within_a_terminal)
{
	struct grammar *g = source(GRAMMAR_LARK, "%ignore \" \"\n"
						 "start: A _b _C\n"
						 "A: \"a\" \"a\"\n"
						 "_b: \"b\" \"b\"\n"
						 "_C: \"c\" /[/c]/ | \"\\x64\"..\"f\"\n");
	help_yes(g, "aabbcc", " aa b  b cc ", "aabbc/", "aabbd", "aabbf ");
	help_no(g, "a abbcc", "aabbc c", "aabbg", "aabb", "a a b b c c");
	grammar_free(g);
	expect_refused(GRAMMAR_LARK, "start: \"b\"..\"a\"", -EINVAL,
		       "Lark, line 1: a range that is not from one character to another");
	expect_refused(GRAMMAR_LARK, "start: \"\\ud800\"", -EINVAL,
		       "Lark, line 1: an unknown escape in a string");
	expect_refused(GRAMMAR_LARK, "start: \"a\nb\"", -EINVAL, "Lark, line 1: a string without its end");
	expect_refused(GRAMMAR_LARK, "%llguidance {\"allow_invalid_utf8\": true}\nstart: \"a\"", -EINVAL,
		       "Lark, line 1: this option of %llguidance is not supported");
}

Test(lark, llguidance_s_dialect)
{
	struct grammar *g =
		source(GRAMMAR_LARK, "%llguidance {\"no_forcing\": true}\n\n"
				     "start: \"a\" name | %json {\"properties\": {\"a}\": {\"const\": "
				     "\"\\\"\"}}, \"type\": \"object\"} \"!\"\n"
				     "name[capture]: NAME [more]\n"
				     "more[ capture = \"x\" ] : \",\" NAME\n"
				     "NAME[capture=\"y\", capture]: /[a-z]/\n");
	help_yes(g, "ab", "ab,c", "{}!", "{\"a}\": \"\\\"\"}!");
	help_no(g, "a", "ab,", "{}", "{\"b\": 1}!");
	grammar_free(g);
}

/* The text ends at a page boundary; the next page is unreadable. */
static void refused_at_a_page_end(enum grammar_language language, const char *text, const char *want)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = strlen(text);
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ast *a = NULL;
	struct why why = {""};
	cr_assert(p != MAP_FAILED);
	cr_assert_eq(mprotect(p + page, page, PROT_NONE), 0);
	memcpy(p + page - n, text, n);
	cr_expect_eq(grammar_parse(language, p + page - n, n, NULL, &a, &why), -EINVAL);
	cr_expect_str_eq(why.text, want);
	munmap(p, 2 * page);
}

Test(source, nothing_is_read_behind_an_escape_that_the_end_cuts)
{
	const char *lark = "Lark, line 1: an unknown escape in a string",
		   *gbnf = "GBNF, line 1: an unknown escape";
	refused_at_a_page_end(GRAMMAR_LARK, "start: \"\\", lark);
	refused_at_a_page_end(GRAMMAR_LARK, "start: (\"\\u", lark);
	refused_at_a_page_end(GRAMMAR_LARK, "start: \"\\x4", lark);
	refused_at_a_page_end(GRAMMAR_GBNF, "root ::= (\"\\", gbnf);
	refused_at_a_page_end(GRAMMAR_GBNF, "root ::= [\\u00", gbnf);
}

Test(lark, what_is_not_supported_is_refused_by_name)
{
	expect_refused(GRAMMAR_LARK, "a: \"x\"", -EINVAL, "Lark, line 1: the rule start is missing");
	expect_refused(GRAMMAR_LARK, "start.2: \"x\"", -EINVAL, "Lark, line 1: priorities are not supported");
	expect_refused(GRAMMAR_LARK, "start: a{b}", -EINVAL, "Lark, line 1: templates are not supported");
	expect_refused(GRAMMAR_LARK, "start: A\nA: b\nb: \"x\"", -EINVAL,
		       "Lark, line 2: a terminal names a rule");
	expect_refused(GRAMMAR_LARK, "%declare A", -EINVAL,
		       "Lark, line 1: directives other than %import and %ignore are not supported");
	expect_refused(GRAMMAR_LARK, "%import python.NAME", -EINVAL,
		       "Lark, line 1: imports of anything but common are not supported");
	expect_refused(GRAMMAR_LARK, "%import common.INTEGER", -EINVAL,
		       "Lark, line 1: this import is not supported");
	expect_refused(GRAMMAR_LARK, "%import common (INT, )", -EINVAL,
		       "Lark, line 1: the name of an import is missing");
	expect_refused(GRAMMAR_LARK, "%import common (INT", -EINVAL,
		       "Lark, line 1: a list of imports without its end");
	expect_refused(GRAMMAR_LARK, "start: /a/x", -EINVAL,
		       "Lark, line 1: flags of regular expressions other than i, s and u are not supported");
	expect_refused(GRAMMAR_LARK, "%llguidance {\"lazy\": 1}\nstart: \"a\"", -EINVAL,
		       "Lark, line 1: this option of %llguidance is not supported");
	expect_refused(GRAMMAR_LARK, "%llguidance {", -EINVAL,
		       "Lark, line 1: %llguidance without a JSON object");
	expect_refused(
		GRAMMAR_LARK, "start[capture, max_tokens=5]: \"a\"", -EINVAL,
		"Lark, line 1: the attribute max_tokens is not supported: use the request's max_tokens");
	expect_refused(GRAMMAR_LARK, "start[lazy]: \"a\"", -EINVAL,
		       "Lark, line 1: attributes of rules other than capture are not supported");
	expect_refused(GRAMMAR_LARK, "start: %json {\"type\": \"int\"}", -EINVAL,
		       "Lark: %json: #: type \"int\" is unknown");
	expect_refused(GRAMMAR_LARK, "start: %json {\"a", -EINVAL,
		       "Lark, line 1: %json without a JSON schema");
	expect_refused(GRAMMAR_LARK, "start: %json []", -EINVAL, "Lark, line 1: %json without a JSON schema");
	expect_refused(GRAMMAR_LARK, "start: /a(?=b)/", -EINVAL,
		       "regex, byte 4: lookahead (?= is not supported");
	expect_refused(GRAMMAR_LARK, "start: (\"a\"", -EINVAL, "Lark, line 1: a group without its end");
	expect_refused(GRAMMAR_LARK, "start: \"ab\"..\"z\"", -EINVAL,
		       "Lark, line 1: a range that is not from one character to another");
	expect_refused(GRAMMAR_LARK, "start: b", -EINVAL, "rule b is not defined");
}

Test(choice, one_of_the_strings)
{
	struct grammar *g = source(GRAMMAR_CHOICE, "[\"yes\", \"no\", \"\\u00e4\\n\"]");
	help_yes(g, "yes", "no", "\xc3\xa4\n");
	help_no(g, "", "ye", "yesno", "yes ");
	grammar_free(g);
	expect_refused(GRAMMAR_CHOICE, "[]", -EINVAL, "choices: not an array of strings");
	expect_refused(GRAMMAR_CHOICE, "[\"a\", 1]", -EINVAL, "choices: item 1 is not a string");
}

/* ---- bounds ---- */

static int parse_within(const char *schema, struct grammar_account *account, size_t nodes)
{
	struct ast *a = NULL;
	struct why why = {""};
	const int rc = grammar_parse(GRAMMAR_SCHEMA, schema, strlen(schema),
				     &(struct ast_limits){.account = account, .nodes = nodes}, &a, &why);
	cr_expect((rc == 0) == (a != NULL) && (rc == 0) == (why.text[0] == '\0'), "%.100s: %d, %s", schema,
		  rc, why.text);
	ast_free(a);
	return rc;
}

Test(source, a_bound_that_is_met_anywhere_is_an_error_of_the_schema)
{
	static const char *const schemas[] = {
		"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"bc\",\"d\\u00e4\"]}}",
		"{\"type\":\"string\",\"format\":\"ipv6\",\"not\":{\"pattern\":\"^\\\\p{Lu}\"},\"minLength\":"
		"3}",
		"{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"},\"b$\":{\"enum\":["
		"1,null]}},"
		"\"propertyNames\":{\"format\":\"date\"},\"properties\":{\"c\":{\"not\":{\"const\":\"x\"}}}}",
		"{\"oneOf\":[{\"pattern\":\"a.b\"},{\"maxLength\":2},{\"items\":{\"minimum\":-1.5}}]}",
	};
	for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
		struct grammar_account all = {.units = UINT64_MAX};
		cr_assert_eq(parse_within(schemas[i], &all, 0), 0);
		const uint64_t step = all.used / 400 + 1;
		for (uint64_t units = 0; units < all.used; units += step)
			cr_expect_eq(parse_within(schemas[i], &(struct grammar_account){.units = units}, 0),
				     -EAGAIN);
		for (size_t nodes = 1; parse_within(schemas[i], NULL, nodes) == -E2BIG;
		     nodes += 1 + nodes / 50)
			;
	}
}

/* Return the units of work (grammar/work.h) for n parts, each with its number for %d. */
static uint64_t units_of(enum grammar_language language, const char *first, const char *part, int n,
			 const char *last)
{
	struct grammar_account account = {.units = UINT64_MAX};
	const struct ast_limits tree = {.account = &account};
	const struct grammar_limits limits = {.work = {.account = &account}};
	struct ast *a = NULL;
	struct grammar *g = NULL;
	struct buf text = {0};
	struct why why = {""};
	buf_puts(&text, first);
	for (int i = 0; i < n; i++) {
		if (i)
			buf_puts(&text, language == GRAMMAR_SCHEMA ? "," : "|");
		buf_printf(&text, part, i);
	}
	buf_puts(&text, last);
	cr_assert_eq(grammar_parse(language, text.p, text.len, &tree, &a, &why), 0, "%s", why.text);
	cr_assert_eq(grammar_new(a, NULL, &limits, &g, &why), 0, "%s", why.text);
	grammar_free(g);
	ast_free(a);
	buf_fini(&text);
	return account.used;
}

/* A unit takes 10 to 35 ns (Zen 4), whatever the request contains: these take 5, 7 and 5 ms. */
Test(source, work_that_takes_time_is_counted)
{
	const uint64_t categories = units_of(GRAMMAR_REGEX, "", "\\p{L}%d", 20, ""),
		       cases = units_of(GRAMMAR_LARK, "start: ", "/[\\p{L}]%d/i", 20, ""),
		       names = units_of(GRAMMAR_SCHEMA, "{\"patternProperties\":{", "\"^a%d\":{}", 8, "}}");
	cr_expect(categories > 150000, "categories: %llu", (unsigned long long)categories);
	cr_expect(cases > 250000, "cases: %llu", (unsigned long long)cases);
	cr_expect(names > 130000, "patterns of names: %llu", (unsigned long long)names);
}

/* Parse n parts after the first; return the charged units. */
static uint64_t units_parsed(const char *first, const char *part, int n, const char *last, uint64_t units,
			     int want)
{
	struct grammar_account account = {.units = units};
	struct ast *a = NULL;
	struct buf text = {0};
	struct why why = {""};
	buf_puts(&text, first);
	for (int i = 0; i < n; i++)
		buf_puts(&text, part);
	buf_puts(&text, last);
	const int rc = grammar_parse(GRAMMAR_REGEX, text.p, text.len,
				     &(struct ast_limits){.account = &account}, &a, &why);
	cr_assert_eq(rc, want, "%d %s", rc, why.text);
	ast_free(a);
	buf_fini(&text);
	return account.used;
}

Test(source, work_ends_where_the_account_is_used_up)
{
	cr_expect_lt(units_parsed("[", "\\p{L}", 300, "]", 10000, -EAGAIN), 20000);
	cr_expect_lt(units_parsed("(?i)", "\\W", 300, "", 10000, -EAGAIN), 20000);
}

/* A single letter's cases are looked up; a set's cases are searched for. */
Test(source, letters_of_any_case_take_little_work)
{
	cr_expect_lt(units_parsed("(?i)", "ab", 1000, "", UINT64_MAX, 0), 20000);
	cr_expect_gt(units_parsed("(?i)", "[ab]", 1000, "", UINT64_MAX, 0), 1000000);
}
