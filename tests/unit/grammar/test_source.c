/* GBNF, Lark and choices: what they match, and what is refused by name. */
#include "tests/unit/grammar/grammar_help.h"
#include "grammar/source.h"
#include "base/alloc.h"
#include "base/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct grammar *source(enum grammar_language language, const char *text)
{
	struct ast *a = NULL;
	char why[256] = "";
	cr_assert_eq(grammar_parse(language, text, strlen(text), NULL, &a, why, sizeof why), 0, "%s", why);
	return help_grammar(a, NULL);
}

static void expect_refused(enum grammar_language language, const char *text, int err, const char *want)
{
	struct ast *a = NULL;
	char why[256] = "";
	cr_expect_eq(grammar_parse(language, text, strlen(text), NULL, &a, why, sizeof why), err, "%.100s",
		     text);
	cr_expect_str_eq(why, want);
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

/* Chains of rules, forward and back, and one circle of all. */
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

/* The text ends where the next page cannot be read. */
static void refused_at_a_page_end(enum grammar_language language, const char *text, const char *want)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = strlen(text);
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ast *a = NULL;
	char why[256] = "";
	cr_assert(p != MAP_FAILED);
	cr_assert_eq(mprotect(p + page, page, PROT_NONE), 0);
	memcpy(p + page - n, text, n);
	cr_expect_eq(grammar_parse(language, p + page - n, n, NULL, &a, why, sizeof why), -EINVAL);
	cr_expect_str_eq(why, want);
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
		       "Lark, line 1: this import is not supported");
	expect_refused(GRAMMAR_LARK, "start: /a/i", -EINVAL,
		       "Lark, line 1: flags of regular expressions other than s are not supported");
	expect_refused(GRAMMAR_LARK, "start: /a(?=b)/", -EINVAL,
		       "regex, byte 4: lookahead (?= is not supported");
	expect_refused(GRAMMAR_LARK, "start: \"\u00c4b\"i", -EINVAL,
		       "Lark, line 1: a string with i and characters beyond ASCII is not supported");
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
