/* Regular expressions: their matches, and refusals by name. */
#include "tests/unit/grammar/grammar_help.h"
#include "grammar/char_set.h"
#include "grammar/regex.h"
#include "base/json.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static void expect(const char *pattern, bool search, const char *const *yes, const char *const *no)
{
	struct grammar *g = help_regex(pattern, search);
	help_texts(g, true, yes);
	help_texts(g, false, no);
	grammar_free(g);
}
#define YES(...)                                                                                             \
	(const char *const[])                                                                                \
	{                                                                                                    \
		__VA_ARGS__, NULL                                                                            \
	}
#define NO(...)                                                                                              \
	(const char *const[])                                                                                \
	{                                                                                                    \
		__VA_ARGS__, NULL                                                                            \
	}

Test(regex, a_pattern_matches_the_whole_text)
{
	expect("a(b|cd)*e?", false, YES("a", "abe", "acdb", "acdcde"), NO("", "ac", "abee", "xa"));
	expect("[a-c_]{2,3}-\\d+", false, YES("ab-1", "c_c-123"), NO("a-1", "abca-1", "ab-", "ad-1"));
	expect("", false, YES(""), NO("a"));
	expect("a||b", false, YES("", "a", "b"), NO("ab"));
	expect("^abc$", false, YES("abc"), NO("ab", "abcd"));
	expect("x{0}y{,2}", false, YES("y{,2}"), NO("yy", "x"));
	expect("(?:ab){2}(?<name>c)", false, YES("ababc"), NO("abc"));
	expect("a+?b*?", false, YES("a", "aab"), NO("b"));
}

Test(regex, a_search_finds_it_anywhere)
{
	expect("b+", true, YES("b", "abba", "ab"), NO("", "a"));
	expect("^b+", true, YES("b", "bba"), NO("ab"));
	expect("b+$", true, YES("b", "ab"), NO("ba"));
	expect("^(ab|cd$)|^$", true, YES("abx", "cd", ""), NO("xab", "cdx"));
	expect("^a|b", true, YES("a", "axx", "xb", "bx"), NO("xa", "x"));
	expect("(^a)?b$", true, YES("ab", "b", "xb", "xab"), NO("ba"));
	expect("", true, YES("", "anything"), NO("\xff"));
}

Test(regex, classes_and_escapes)
{
	expect("[^a-z\\d]", false, YES("A", "-", "\xc3\xa4", "\xf0\x9f\x98\x80"),
	       NO("a", "5", "", "\xc3", "\xff"));
	expect("[]a]|[^]\\n", false, YES("x\n", "\xc3\xa4\n"), NO("a", "a]", "]"));
	expect("[-a\\]x-]+", false, YES("-", "a", "]x-"), NO("b"));
	expect("[a\\-z]", false, YES("a", "-", "z"), NO("b"));
	expect("[\\w-.]", false, YES("a", "-", "."), NO("/"));
	struct grammar *g = help_regex("\\t\\x41\\cA\\0\\/\\.[\\b]", false);
	cr_expect(help_accepts(g, "\tA\1\0/.\b", 7));
	grammar_free(g);
}

Test(regex, ranges_of_a_set_are_sorted_and_joined)
{
	struct char_set s = {0};
	char_set_add(&s, 'e', 'g');
	char_set_add(&s, 'a', 'b');
	char_set_add(&s, 'c', 'd');
	char_set_add(&s, 'f', 'f');
	char_set_add(&s, 'x', 'x');
	char_set_sort(&s);
	cr_assert_eq(s.n, 2);
	cr_expect(s.r[0].first == 'a' && s.r[0].last == 'g' && s.r[1].first == 'x');
	char_set_negate(&s);
	cr_assert_eq(s.n, 3);
	cr_expect(s.r[0].first == 0 && s.r[0].last == 'a' - 1 && s.r[1].first == 'h' && s.r[1].last == 'w' &&
		  s.r[2].first == 'y' && s.r[2].last == CHAR_MAX_CODE);
	char_set_fini(&s);
}

Test(regex, unicode_is_matched_by_its_bytes)
{
	expect("[\xc3\xa4-\xc3\xbc]+", false, YES("\xc3\xa4", "\xc3\xbc\xc3\xb6"),
	       NO("\xc3", "\xc3\xbd", "a"));
	expect("\\u00e4\\u{1F600}\\uD83D\\uDE00", false, YES("\xc3\xa4\xf0\x9f\x98\x80\xf0\x9f\x98\x80"),
	       NO("a"));
	expect(".", false, YES("a", "\xc3\xa4", "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "\xef\xbf\xbf"),
	       NO("", "\n", "\r", "\xe2\x80\xa8", "\xc3", "\xa4", "\xed\xa0\x80", "\xc0\x80",
		  "\xf4\x90\x80\x80"));
	expect("\\p{Lu}\\p{L}*\\P{L}", false,
	       YES("\xc3\x84"
		   "b1",
		   "Ab."),
	       NO("ab1",
		  "\xc3\xa4"
		  "b1",
		  "Abc"));
	expect("\\p{gc=Lu}\\p{Lu}", false, YES("AB"), NO("ab", "aB"));
	expect("[\\ud83d\\u0041]\\u{10ffff}", false, YES("A\xf4\x8f\xbf\xbf"), NO("a\xf4\x8f\xbf\xbf"));
	expect("\\p{General_Category=Decimal_Number}", false, YES("7", "\xd9\xa3"), NO("x"));
	expect("\\s\\S\\w\\W", false, YES(" xy-", "\xe3\x80\x80._ "), NO("axa "));
}

Test(regex, flags_hold_for_a_group_or_for_the_whole)
{
	expect("(?i)ab|[c-d]", false, YES("ab", "AB", "aB", "C", "d"), NO("", "e"));
	expect("a(?i:b)c", false, YES("abc", "aBc"), NO("Abc", "abC"));
	expect("(?i:a(?-i:b)c)d", false, YES("Abcd", "abCd"), NO("aBcd", "abcD"));
	expect("(?s:.).", false, YES("\na"), NO("a\n", "\n\n"));
	expect("(?is:a.)b", false, YES("A\nb"), NO("A\nB"));
	/* characters that fold to the same one, and classes that exclude them */
	expect("(?i)k\xc3\x9f\xcf\x83", false,
	       YES("k\xc3\x9f\xcf\x83", "\xe2\x84\xaa\xe1\xba\x9e\xcf\x82", "K\xc3\x9f\xce\xa3"),
	       NO("kss\xcf\x83"));
	expect("(?i)[^k]", false, YES("l", "1"), NO("k", "K", "\xe2\x84\xaa"));
	expect("(?i)\\p{Lu}", false, YES("a", "A"), NO("1"));
	expect("(?i)i", false, YES("i", "I"), NO("\xc4\xb1", "\xc4\xb0"));
}

/* States are made neither per count nor per way to match. */
Test(regex, hostile_patterns_stay_small)
{
	static const char *const patterns[] = {"(a+)+b",   "(a|a)*b",           "(a*)*b",
					       "(a|aa)+b", "((a?){30}){30}a*b", "(a{0,1000}){0,1000}a*b",
					       "(.*)*.*b", "(a?){500}a{500}b"};
	char text[1001];
	memset(text, 'a', 1000);
	text[1000] = 'b';
	for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
		struct grammar *g = help_regex(patterns[i], false);
		struct grammar_counts c;
		cr_expect(help_accepts(g, text, 1001), "%s", patterns[i]);
		cr_expect_not(help_accepts(g, text, 1000), "%s", patterns[i]);
		grammar_counts(g, &c);
		cr_expect(c.bytes < 4 << 20, "%s: %zu bytes", patterns[i], c.bytes);
		grammar_free(g);
	}
}

Test(regex, what_is_not_supported_is_refused_by_name)
{
	static const char *const cases[][2] = {
		{"a(?=b)", "regex, byte 4: lookahead (?= is not supported"},
		{"(?!b)", "regex, byte 3: lookahead (?! is not supported"},
		{"(?<=b)", "regex, byte 4: lookbehind (?<= is not supported"},
		{"(?<!b)", "regex, byte 4: lookbehind (?<! is not supported"},
		{"(?>b)", "regex, byte 3: atomic groups (?> are not supported"},
		{"(?m)b", "regex, byte 2: flags (?...) other than i, s and u are not supported"},
		{"b(?i)", "regex, byte 4: flags (?i) stand at the beginning only: use (?i:...)"},
		{"(?i", "regex, byte 3: flags (?i) stand at the beginning only: use (?i:...)"},
		{"(?", "regex, byte 2: flags (?i) stand at the beginning only: use (?i:...)"},
		{"(a)\\1", "regex, byte 4: references back are not supported"},
		{"\\bx", "regex, byte 1: word boundaries (\\b, \\B) are not supported"},
		{"\\p{Greek}", "regex, byte 3: the property \\p{Greek} is not supported"},
		{"a^b", "regex: an anchor (^, $) inside the pattern is not supported"},
		{"(a$)*", "regex: an anchor (^, $) inside the pattern is not supported"},
		{"(a", "regex, byte 2: ( without )"},
		{"a)", "regex, byte 1: ) without ("},
		{"[a", "regex, byte 2: a class [...] without its end"},
		{"[z-a]", "regex, byte 4: a range that ends before it begins"},
		{"*", "regex, byte 0: nothing to repeat"},
		{"a{3,2}", "regex, byte 6: a repeat with its bounds in the wrong order"},
		{"a**", "regex, byte 2: nothing to repeat"},
		{"\\", "regex, byte 1: \\ at the end"},
		{"\\q", "regex, byte 1: an unknown escape"},
		{"\\u12", "regex, byte 4: a code point that is not one"},
		{"\\u{110000}", "regex, byte 10: a code point that is not one"},
		{"\\u{}", "regex, byte 3: a code point that is not one"},
		{"\\01", "regex, byte 1: references back are not supported"},
		{"\xff", "regex: not UTF-8"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ast *a = ast_new(NULL);
		struct why why = {""};
		cr_expect_eq(regex_parse(a, cases[i][0], strlen(cases[i][0]), NULL), AST_FAILED, "%s",
			     cases[i][0]);
		cr_expect_eq(ast_check(a, &why), -EINVAL);
		cr_expect_str_eq(why.text, cases[i][1]);
		ast_free(a);
	}
}

Test(regex, nesting_is_bounded)
{
	char deep[2001];
	struct why why = {""};
	memset(deep, '(', 1000);
	memset(deep + 1000, ')', 1000);
	struct ast *a = ast_new(NULL);
	cr_expect_eq(regex_parse(a, deep, 2000, NULL), AST_FAILED);
	cr_expect_eq(ast_check(a, &why), -E2BIG);
	cr_expect(strstr(why.text, "groups are nested too deep"), "%s", why.text);
	ast_free(a);
}

static void expect_all(struct grammar *g, const char *pattern, const json_t *texts, bool want)
{
	size_t i;
	json_t *text;
	json_array_foreach(texts, i, text) cr_expect_eq(
		help_accepts(g, json_string_value(text), json_string_length(text)), want, "%s: %s: not %s",
		pattern, json_string_value(text), want ? "accepted" : "refused");
}

/* tests/golden/regex.json comes from Python's re. */
Test(regex, random_patterns_match_as_another_implementation_says)
{
	json_t *cases, *c;
	size_t i;
	struct why why;
	cr_assert_eq(json_read(repofile("tests/golden/regex.json"), 16 << 20, &cases, &why), 0, "%s",
		     why.text);
	cr_assert(json_array_size(cases) >= 400);
	json_array_foreach(cases, i, c)
	{
		const char *pattern = json_string_value(json_object_get(c, "pattern"));
		struct grammar *g = help_regex(pattern, json_is_true(json_object_get(c, "search")));
		expect_all(g, pattern, json_object_get(c, "yes"), true);
		expect_all(g, pattern, json_object_get(c, "no"), false);
		grammar_free(g);
	}
	json_decref(cases);
}
