/* Automata of trees: accepted texts, recursion of every kind, counters, products, limits. */
#include "tests/unit/grammar/grammar_help.h"
#include "base/alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static int maybe(struct ast *a, int x)
{
	return ast_option(a, x);
}

Test(machine, rules_recurse_in_the_middle)
{
	struct ast *a = ast_new(NULL);
	int list = ast_rule(a, "list");
	int more = ast_repeat(a, ast_seq2(a, ast_text(a, ","), ast_ref(a, list)), 0, -1);
	int some = maybe(a, ast_seq2(a, ast_ref(a, list), more));
	ast_rule_set(a, list, ast_seq3(a, ast_text(a, "["), some, ast_text(a, "]")));
	ast_start(a, ast_ref(a, list));
	struct grammar *g = help_grammar(a, NULL);
	help_yes(g, "[]", "[[]]", "[[],[]]", "[[[]],[[],[]]]");
	help_no(g, "", "[", "[[]", "[],[]", "[[],]", "[]]", "[,]");
	grammar_free(g);
}

/* sum ::= sum "+" atom | atom; atom ::= "x" | "(" sum ")" */
Test(machine, rules_recurse_on_the_left)
{
	struct ast *a = ast_new(NULL);
	int sum = ast_rule(a, "sum"), atom = ast_rule(a, "atom");
	ast_rule_set(a, sum,
		     ast_alt2(a, ast_seq3(a, ast_ref(a, sum), ast_text(a, "+"), ast_ref(a, atom)),
			      ast_ref(a, atom)));
	ast_rule_set(a, atom,
		     ast_alt2(a, ast_text(a, "x"),
			      ast_seq3(a, ast_text(a, "("), ast_ref(a, sum), ast_text(a, ")"))));
	ast_start(a, ast_ref(a, sum));
	struct grammar *g = help_grammar(a, NULL);
	help_yes(g, "x", "x+x", "x+x+x+x", "(x+x)+x", "((x))+(x+(x+x))");
	help_no(g, "", "+", "x+", "+x", "(x", "x)", "(x+)x", "xx");
	grammar_free(g);
}

/* s ::= s s | "a" | "" : any number of a, with very many derivations. */
Test(machine, an_ambiguous_grammar_stays_small)
{
	struct ast *a = ast_new(NULL);
	int s = ast_rule(a, "s");
	int kids[] = {ast_seq2(a, ast_ref(a, s), ast_ref(a, s)), ast_text(a, "a"), ast_empty(a)};
	ast_rule_set(a, s, ast_alt(a, kids, 3));
	ast_start(a, ast_ref(a, s));
	struct grammar *g = help_grammar(a, NULL);
	char text[2001];
	memset(text, 'a', sizeof text);
	cr_expect(help_accepts(g, text, 2000));
	text[2000] = 'b';
	cr_expect_not(help_accepts(g, text, 2001));
	struct grammar_counts c;
	grammar_counts(g, &c);
	cr_expect(c.n_states < 20, "%zu states", c.n_states);
	grammar_free(g);
}

/* a ::= b "x" | "y"; b ::= c?  a;  c ::= "c": left recursion over two rules, after a nullable rule. */
Test(machine, left_recursion_is_found_behind_nullable_rules)
{
	struct ast *a = ast_new(NULL);
	int ra = ast_rule(a, "a"), rb = ast_rule(a, "b"), rc = ast_rule(a, "c");
	ast_rule_set(a, ra, ast_alt2(a, ast_seq2(a, ast_ref(a, rb), ast_text(a, "x")), ast_text(a, "y")));
	ast_rule_set(a, rb, ast_seq2(a, maybe(a, ast_ref(a, rc)), ast_ref(a, ra)));
	ast_rule_set(a, rc, ast_text(a, "c"));
	ast_start(a, ast_ref(a, ra));
	struct grammar *g = help_grammar(a, NULL);
	help_yes(g, "y", "yx", "yxxx", "cyx", "ccyxx", "cyxx");
	help_no(g, "", "x", "cy", "ccyx", "yc");
	grammar_free(g);
}

/* Right recursion: the stack does not grow if a rule ends with a call of itself. */
Test(machine, a_call_at_the_end_of_a_rule_does_not_grow_the_stack)
{
	struct ast *a = ast_new(NULL);
	int s = ast_rule(a, "s");
	ast_rule_set(a, s, ast_seq2(a, ast_text(a, "a"), maybe(a, ast_ref(a, s))));
	ast_start(a, ast_ref(a, s));
	struct grammar *g = help_grammar(a, NULL);
	char text[5000];
	memset(text, 'a', sizeof text);
	cr_expect(help_accepts(g, text, sizeof text));
	struct grammar_counts c;
	grammar_counts(g, &c);
	cr_expect(c.n_states < 10, "%zu states", c.n_states);
	grammar_free(g);
}

Test(machine, rules_that_derive_no_text_are_left_out)
{
	struct ast *a = ast_new(NULL);
	int s = ast_rule(a, "s"), never = ast_rule(a, "never");
	ast_rule_set(a, never, ast_seq2(a, ast_text(a, "b"), ast_ref(a, never)));
	ast_rule_set(a, s, ast_alt2(a, ast_text(a, "a"), ast_seq2(a, ast_text(a, "c"), ast_ref(a, never))));
	ast_start(a, ast_ref(a, s));
	struct grammar *g = help_grammar(a, NULL);
	struct matcher *m = matcher_new(g);
	char forced[8];
	cr_expect_eq(matcher_forced(m, forced, sizeof forced), 1);
	cr_expect_eq(forced[0], 'a');
	matcher_free(m);
	grammar_free(g);
}

Test(machine, counters_are_exact_and_cost_no_states)
{
	struct ast *a = ast_new(NULL);
	int item = ast_seq2(a, ast_text(a, "ab"), maybe(a, ast_text(a, "c")));
	ast_start(a, ast_seq2(a, ast_repeat(a, item, 1000, 100000), ast_text(a, ".")));
	struct grammar *g = help_grammar(a, NULL);
	char *text = xmalloc(2 * 100001 + 2);
	for (int n = 998; n < 1002; n++) {
		for (int i = 0; i < n; i++)
			memcpy(text + 2 * i, "ab", 2);
		text[2 * n] = '.';
		cr_expect_eq(help_accepts(g, text, 2 * (size_t)n + 1), n >= 1000, "%d", n);
	}
	for (int i = 0; i < 100001; i++)
		memcpy(text + 2 * i, "ab", 2);
	text[200000] = '.';
	cr_expect(help_accepts(g, text, 200001));
	text[200000] = 'a';
	text[200002] = '.';
	cr_expect_not(help_accepts(g, text, 200003));
	free(text);
	grammar_free(g);
}

static int letters(struct ast *a)
{
	return ast_repeat(a, ast_chars(a, (struct char_range[]){{'a', 'z'}}, 1, false), 0, -1);
}

Test(machine, products_are_exact)
{
	struct ast *a = ast_new(NULL);
	int words = ast_alt2(a, ast_text(a, "cat"), ast_alt2(a, ast_text(a, "dog"), ast_text(a, "catalog")));
	int any3 = ast_repeat(a, ast_chars(a, (struct char_range[]){{'a', 'z'}}, 1, false), 2, 8);
	ast_start(a, ast_seq2(a, ast_and(a, ast_minus(a, letters(a), words), any3), ast_text(a, "!")));
	struct grammar *g = help_grammar(a, NULL);
	help_yes(g, "ca!", "cats!", "dogs!", "catalo!", "catalogs!", "zz!");
	help_no(g, "cat!", "dog!", "catalog!", "a!", "!", "catalogss!", "cat", "c4t!");
	grammar_free(g);
}

/* A text that cannot be completed is refused at its first byte: no mask leads to a dead end. */
Test(machine, dead_ends_of_products_are_seen_before_they_are_entered)
{
	struct ast *a = ast_new(NULL);
	int ab = ast_repeat(a, ast_text(a, "ab"), 0, -1), odd = ast_seq2(a, ast_text(a, "a"), letters(a));
	int never = ast_and(a, ast_seq2(a, ast_text(a, "x"), ab),
			    ast_seq3(a, ast_text(a, "x"), odd, ast_text(a, "c")));
	ast_start(a, ast_alt2(a, never, ast_text(a, "y")));
	struct grammar *g = help_grammar(a, NULL);
	struct matcher *m = matcher_new(g);
	cr_expect_eq(matcher_accept_bytes(m, "x", 1, NULL), -EINVAL);
	cr_expect_eq(matcher_accept_bytes(m, "y", 1, NULL), 0);
	matcher_free(m);
	grammar_free(g);
}

Test(machine, an_intersection_of_a_recursive_rule_is_refused)
{
	struct ast *a = ast_new(NULL);
	struct grammar *g;
	struct why why;
	int s = ast_rule(a, "s");
	ast_rule_set(a, s, ast_seq3(a, ast_text(a, "("), maybe(a, ast_ref(a, s)), ast_text(a, ")")));
	ast_start(a, ast_and(a, ast_ref(a, s), ast_text(a, "()")));
	cr_expect_eq(grammar_new(a, NULL, NULL, &g, &why), -EINVAL);
	cr_expect(strstr(why.text, "recursive rule"), "%s", why.text);
	ast_free(a);
}

Test(machine, a_grammar_without_texts_is_refused)
{
	struct ast *a = ast_new(NULL);
	struct grammar *g;
	struct why why;
	ast_start(a, ast_and(a, ast_text(a, "a"), ast_text(a, "b")));
	cr_expect_eq(grammar_new(a, NULL, NULL, &g, &why), -EINVAL);
	cr_expect_str_eq(why.text, "no text matches the grammar");
	ast_free(a);
}

static struct grammar *brackets(const struct grammar_limits *l)
{
	struct ast *a = ast_new(NULL);
	struct grammar *g;
	int s = ast_rule(a, "s");
	ast_rule_set(a, s, ast_seq3(a, ast_text(a, "("), maybe(a, ast_ref(a, s)), ast_text(a, ")")));
	ast_start(a, ast_ref(a, s));
	cr_assert_eq(grammar_new(a, NULL, l, &g, NULL), 0);
	ast_free(a);
	return g;
}

Test(machine, nesting_is_bounded_by_name)
{
	struct grammar *g = brackets(&(struct grammar_limits){.depth = 50});
	struct matcher *m = matcher_new(g);
	char text[200];
	size_t used = 0;
	memset(text, '(', sizeof text);
	cr_expect_eq(matcher_accept_bytes(m, text, sizeof text, &used), -E2BIG);
	cr_expect_eq(used, 49, "%zu", used);
	cr_expect_str_eq(matcher_error(m), "the text is nested deeper than the grammar's bound");
	/* The text accepted before remains valid and can end. */
	memset(text, ')', sizeof text);
	cr_expect_eq(matcher_accept_bytes(m, text, used, NULL), 0);
	bool end = false;
	cr_expect_eq(matcher_can_end(m, &end), 0);
	cr_expect(end);
	matcher_free(m);
	grammar_free(g);
}

/* Two matchers share caches that hold the states of one, but not of both. Each continues correctly. */
Test(machine, caches_are_emptied_and_texts_followed_again)
{
	struct ast *a = ast_new(NULL);
	struct grammar *g;
	int x = ast_seq2(a, ast_text(a, "x"), ast_repeat(a, ast_text(a, "ab"), 10, 1000000));
	ast_start(a, ast_alt2(a, x,
			      ast_seq2(a, ast_text(a, "y"), ast_repeat(a, ast_text(a, "c"), 10, 1000000))));
	cr_assert_eq(grammar_new(a, NULL, &(struct grammar_limits){.state_bytes = 170000}, &g, NULL), 0);
	ast_free(a);
	struct matcher *m[2] = {matcher_new(g), matcher_new(g)};
	cr_assert_eq(matcher_accept_bytes(m[0], "x", 1, NULL), 0);
	cr_assert_eq(matcher_accept_bytes(m[1], "y", 1, NULL), 0);
	for (int i = 0; i < 500; i++) {
		cr_assert_eq(matcher_accept_bytes(m[0], "ab", 2, NULL), 0, "%d: %s", i, matcher_error(m[0]));
		cr_assert_eq(matcher_accept_bytes(m[1], "c", 1, NULL), 0, "%d", i);
		cr_assert_eq(matcher_accept_bytes(m[1], "b", 1, NULL), -EINVAL);
	}
	struct grammar_counts c;
	grammar_counts(g, &c);
	cr_expect(c.n_resets > 0);
	cr_expect(c.bytes < 300000, "%zu", c.bytes);
	matcher_free(m[0]);
	matcher_free(m[1]);
	grammar_free(g);
}

Test(machine, nothing_is_forced_where_the_text_may_end)
{
	struct grammar *g = help_regex("xyz?", false);
	struct matcher *m = matcher_new(g);
	char forced[8] = "";
	cr_expect_eq(matcher_forced(m, forced, sizeof forced), 2);
	cr_expect_eq(memcmp(forced, "xy", 2), 0);
	cr_expect_eq(matcher_forced(m, forced, 1), 1, "as much as there is room for");
	cr_expect_eq(matcher_accept_bytes(m, "xyz", 3, NULL), 0);
	cr_expect_eq(matcher_forced(m, forced, sizeof forced), 0);
	matcher_free(m);
	grammar_free(g);
}

Test(machine, a_matcher_goes_back_and_is_copied)
{
	struct grammar *g = brackets(NULL);
	struct matcher *m = matcher_new(g), *copy;
	bool end;
	cr_expect_eq(matcher_accept_bytes(m, "((", 2, NULL), 0);
	cr_expect_eq(matcher_accept_bytes(m, ")", 1, NULL), 0);
	copy = matcher_copy(m);
	cr_expect_eq(matcher_accept_bytes(copy, ")", 1, NULL), 0);
	cr_expect_eq(matcher_can_end(copy, &end), 0);
	cr_expect(end);
	cr_expect_eq(matcher_can_end(m, &end), 0);
	cr_expect_not(end);
	matcher_rollback(m, 1);
	cr_expect_eq(matcher_length(m), 1);
	cr_expect_eq(matcher_accept_bytes(m, "()))", 4, NULL), 0);
	cr_expect_eq(matcher_accept_bytes(m, ")", 1, NULL), -EINVAL);
	cr_expect_eq(matcher_can_end(m, &end), 0);
	cr_expect(end);
	matcher_free(m);
	matcher_free(copy);
	grammar_free(g);
}
