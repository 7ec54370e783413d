/* Expressions: the cost of finding an accepted text. The grammars' tests check what is accepted. */
#include "base/alloc.h"
#include "grammar/expr.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Return the expression for lower-case letters that contain the word. */
static uint32_t holding(struct exprs *x, const char *word)
{
	const uint64_t letters[4] = {[1] = (((uint64_t)1 << 26) - 1) << ('a' - 64)};
	const uint32_t any = expr_repeat(x, expr_set(x, letters), 0, EXPR_INFINITE);
	return expr_seq(x, any, expr_seq(x, expr_literal(x, word, strlen(word)), any));
}

static uint32_t holding_all(struct exprs *x, const char *const *words)
{
	uint32_t e = EXPR_ANY;
	for (int i = 0; words[i]; i++)
		e = expr_and(x, e, holding(x, words[i]));
	return e;
}

Test(expr, a_text_with_many_words_is_found_on_the_way_to_its_end)
{
	struct exprs *x = exprs_new(64 << 10); /* a breadth-first search takes 220 KB */
	const uint32_t e = holding_all(x, (const char *const[]){"quern", "millstone", "granary", "flour",
								"threshing", "winnowing", NULL});
	cr_expect(expr_alive(x, e));
	cr_expect_eq(exprs_error(x), 0);
	exprs_free(x);
}

Test(expr, words_that_exclude_each_other_need_no_product_of_all)
{
	struct exprs *x = exprs_new(256 << 10); /* the full product takes 900 KB */
	uint32_t e = holding_all(x, (const char *const[]){"threshing", "millstone", "granary", "winnowing",
							  "harvest", "bakeries", "flour", NULL});
	e = expr_and(x, e, expr_not(x, holding(x, "thresh")));
	cr_expect_not(expr_alive(x, e));
	cr_expect_eq(exprs_error(x), 0);
	exprs_free(x);
}

static uint32_t numbered(struct exprs *x, uint32_t body, uint32_t i)
{
	return expr_seq(x, expr_repeat(x, body, 2, 3 + i), body);
}

Test(expr, equal_ones_are_one_number_however_many_there_are)
{
	enum { N = 20000 };
	struct exprs *x = exprs_new(64 << 20);
	uint32_t *e = xcalloc(N, sizeof *e), body = holding(x, "a");
	for (uint32_t i = 0; i < N; i++) {
		e[i] = numbered(x, body, i);
		cr_assert_eq(numbered(x, body, i / 2), e[i / 2], "%u beside %u", i / 2, i);
	}
	const size_t n = exprs_count(x);
	for (uint32_t i = 0; i < N; i++)
		cr_assert_eq(numbered(x, body, i), e[i], "%u", i);
	cr_expect_eq(exprs_count(x), n);
	free(e);
	exprs_free(x);
}

/* Return the expression for any number of bytes from..to. */
static uint32_t any_of(struct exprs *x, unsigned from, unsigned to)
{
	uint64_t set[4] = {0};
	for (unsigned b = from; b <= to; b++)
		set[b / 64] |= (uint64_t)1 << b % 64;
	return expr_repeat(x, expr_set(x, set), 0, EXPR_INFINITE);
}

static uint32_t difference(struct exprs *x, uint32_t e, const uint32_t *taken, size_t n)
{
	return expr_and(x, e, expr_not(x, expr_alt(x, taken, n)));
}

/* After each step the remaining text is the same, but the subtracted expressions grow. */
Test(expr, texts_are_looked_for_where_least_is_taken_away)
{
	static const char *const words[] = {"portal", "console", "signup", "libraries", "swagger"};
	enum { N = sizeof words / sizeof *words };
	struct exprs *x = exprs_new(64 << 20);
	uint32_t taken[N + 1];
	for (int i = 0; i < N; i++)
		taken[i] = holding(x, words[i]);
	/* All texts of letters, written in two parts, so that it differs from the minuend. */
	taken[N] = expr_alt2(x, any_of(x, 'a', 'z'), expr_seq(x, any_of(x, 'a', 'k'), any_of(x, 'l', 'z')));
	const uint32_t m = expr_seq(x, any_of(x, 'a', 'z'), expr_literal(x, "e", 1));
	const uint64_t before = exprs_work(x);
	cr_expect_not(expr_alive(x, difference(x, m, taken, N + 1)));
	cr_expect(exprs_work(x) - before < 3000, "%llu", (unsigned long long)(exprs_work(x) - before));
	exprs_free(x);
}

/* [ab]*c minus a[a-d]*, c and b*d: "bc" remains, after a state from which less is subtracted. */
Test(expr, a_text_is_found_where_less_is_taken_away_later)
{
	struct exprs *x = exprs_new(64 << 20);
	const uint32_t a = expr_literal(x, "a", 1), c = expr_literal(x, "c", 1), d = expr_literal(x, "d", 1);
	const uint32_t taken[] = {expr_seq(x, a, any_of(x, 'a', 'd')), c,
				  expr_seq(x, any_of(x, 'b', 'b'), d)};
	cr_expect(expr_alive(x, difference(x, expr_seq(x, any_of(x, 'a', 'b'), c), taken, 3)));
	exprs_free(x);
}

/* Strings over the letters a to p except one, with a length that is a multiple of 251 and of 257: about
 * 65,000 states to the first text. */
static uint32_t multiple(struct exprs *x, unsigned without)
{
	const uint64_t all = (((uint64_t)1 << 16) - 1) << ('a' - 64);
	const uint64_t one[4] = {[1] = all},
		       letters[4] = {[1] = all & ~((uint64_t)1 << ('a' - 64 + without))};
	uint32_t part[2];
	for (unsigned c = 0; c < 16; c++) /* one class per letter */
		expr_set(x, (const uint64_t[4]){[1] = one[1] & (uint64_t)1 << ('a' - 64 + c)});
	for (uint32_t i = 0; i < 2; i++)
		part[i] = expr_repeat(x, expr_repeat(x, expr_set(x, letters), i ? 257 : 251, i ? 257 : 251),
				      1, EXPR_INFINITE);
	return expr_and(x, part[0], part[1]);
}

Test(expr, searches_of_a_compilation_are_bounded_together)
{
	struct exprs *x = exprs_new(512 << 20);
	unsigned found = 0;
	const uint32_t later = multiple(x, 15);
	while (found < 15 && expr_alive(x, multiple(x, found)))
		found++;
	cr_expect(found > 0 && found < 15, "%u", found);
	cr_expect_eq(exprs_error(x), -E2BIG);
	exprs_clear_over(x);
	exprs_seal(x);
	cr_expect(expr_alive(x, later));
	exprs_free(x);
}
