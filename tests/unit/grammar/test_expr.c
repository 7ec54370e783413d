/* Expressions: what a search for a text costs.  What they accept is tested by the grammars that use them. */
#include <criterion/criterion.h>
#include <string.h>

#include "grammar/expr.h"

/* Any small letters with the word among them. */
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
	struct exprs *x = exprs_new(64 << 10); /* breadth first takes 220 KB */
	const uint32_t e = holding_all(x, (const char *const[]){"quern", "millstone", "granary", "flour",
								"threshing", "winnowing", NULL});
	cr_expect(expr_alive(x, e));
	cr_expect_eq(exprs_error(x), 0);
	exprs_free(x);
}

Test(expr, words_that_exclude_each_other_need_no_product_of_all)
{
	struct exprs *x = exprs_new(256 << 10); /* the product of all takes 900 KB */
	uint32_t e = holding_all(x, (const char *const[]){"threshing", "millstone", "granary", "winnowing",
							  "harvest", "bakeries", "flour", NULL});
	e = expr_and(x, e, expr_not(x, holding(x, "thresh")));
	cr_expect_not(expr_alive(x, e));
	cr_expect_eq(exprs_error(x), 0);
	exprs_free(x);
}
