/* The syntax tree of a grammar: its nodes, limits, and printed text. */
#include "grammar/ast.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static void expect_print(struct ast *a, int node, const char *want)
{
	struct buf out = {0};
	ast_print_node(a, node, &out, 1000);
	cr_expect_str_eq(out.p, want);
	buf_fini(&out);
}

Test(ast, a_recursive_grammar_is_built_and_printed)
{
	struct ast *a = ast_new(NULL);
	int list = ast_rule(a, "list");
	int more = ast_repeat(a, ast_seq2(a, ast_text(a, ","), ast_ref(a, list)), 0, -1);
	int some = ast_option(a, ast_seq2(a, ast_ref(a, list), more));
	ast_rule_set(a, list, ast_seq3(a, ast_text(a, "["), some, ast_text(a, "]")));
	ast_start(a, ast_ref(a, list));
	struct why why;
	cr_assert_eq(ast_check(a, &why), 0, "%s", why.text);
	struct buf out = {0};
	ast_print(a, &out, 1000);
	cr_expect_str_eq(out.p, "start ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"\n");
	buf_fini(&out);
	ast_print(a, &out, 10);
	cr_expect_str_eq(out.p, "start ::= ...");
	buf_fini(&out);
	ast_free(a);
}

Test(ast, characters_are_sorted_merged_and_negated)
{
	struct ast *a = ast_new(NULL);
	const struct char_range r[] = {{'c', 'f'}, {'a', 'd'}, {0x4e00, 0x4e01}, {'g', 'g'}};
	expect_print(a, ast_chars(a, r, 4, false), "[a-g\\u{4e00}-\\u{4e01}]");
	expect_print(a, ast_chars(a, (struct char_range[]){{'\n', '\n'}}, 1, true),
		     "[\\x00-\\x09\\x0b-\\u{d7ff}\\u{e000}-\\u{10ffff}]");
	expect_print(a, ast_chars(a, (struct char_range[]){{0, 0x10ffff}}, 1, true), "never");
	expect_print(a, ast_chars(a, (struct char_range[]){{0xd800, 0xdfff}}, 1, false), "never");
	expect_print(a, ast_chars(a, (struct char_range[]){{0xd000, 0xffffffff}}, 1, false),
		     "[\\u{d000}-\\u{d7ff}\\u{e000}-\\u{10ffff}]");
	ast_free(a);
}

Test(ast, repeats_sets_and_products_print)
{
	struct ast *a = ast_new(NULL);
	uint8_t set[32] = {[0] = 0x01, [31] = 0xc0};
	int x = ast_text(a, "x\"\n");
	expect_print(a, ast_repeat(a, x, 3, -1), "\"x\\\"\\n\"{3,}");
	expect_print(a, ast_repeat(a, x, 3, 3), "\"x\\\"\\n\"{3}");
	expect_print(a, ast_repeat(a, x, 0, 10000), "\"x\\\"\\n\"{0,10000}");
	expect_print(a, ast_repeat(a, x, 0, 0), "\"\"");
	cr_expect_eq(ast_repeat(a, x, 1, 1), x);
	expect_print(a, ast_set(a, set), "<00 fe-ff>");
	expect_print(a, ast_seq2(a, ast_minus(a, x, ast_empty(a)), ast_alt2(a, x, x)),
		     "(\"x\\\"\\n\" & !\"\") (\"x\\\"\\n\" | \"x\\\"\\n\")");
	ast_free(a);
}

Test(ast, the_first_error_stays)
{
	struct ast *a = ast_new(NULL);
	struct why why;
	cr_expect_eq(ast_check(a, &why), -EINVAL);
	cr_expect_str_eq(why.text, "the grammar has no start");
	int r = ast_rule(a, "value");
	ast_start(a, ast_ref(a, r));
	cr_expect_eq(ast_check(a, &why), -EINVAL);
	cr_expect_str_eq(why.text, "rule value is not defined");
	ast_rule_set(a, r, ast_text(a, "x"));
	cr_expect_eq(ast_check(a, &why), 0);
	cr_expect_eq(ast_repeat(a, ast_text(a, "x"), 3, 2), AST_FAILED);
	cr_expect_eq(ast_text(a, "y"), AST_FAILED);
	cr_expect_eq(ast_fail(a, -E2BIG, "later"), AST_FAILED);
	cr_expect_eq(ast_check(a, &why), -EINVAL);
	cr_expect_str_eq(why.text, "a repeat of 3 to 2 times");
	ast_free(a);
}

static void expect_bound(const struct ast_limits *l, const char *want)
{
	struct ast *a = ast_new(l);
	struct why why = {""};
	for (int i = 0, x = ast_empty(a); i < 1000 && x != AST_FAILED; i++) {
		x = ast_repeat(a, ast_seq2(a, x, ast_text(a, "some text")), 2, 3);
		ast_rule_set(a, ast_rule(a, "r"), x);
	}
	cr_expect_eq(ast_check(a, &why), -E2BIG);
	cr_expect_str_eq(why.text, want);
	ast_free(a);
}

Test(ast, nodes_bytes_rules_and_depth_are_bounded)
{
	expect_bound(&(struct ast_limits){.nodes = 50}, "the grammar has more than 50 nodes");
	expect_bound(&(struct ast_limits){.bytes = 500}, "the grammar takes more than 500 bytes");
	expect_bound(&(struct ast_limits){.rules = 7}, "the grammar has more than 7 rules");
	expect_bound(&(struct ast_limits){.depth = 30}, "the grammar is nested more than 30 deep");
}
