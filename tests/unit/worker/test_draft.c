/* test_draft.c - drafts from a sequence's own tokens, and how many of them. */
#include "proto/plan.h"
#include "worker/draft.h"

#include <criterion/criterion.h>

#define LOOKUP(max, ...)                                                                                     \
	draft_lookup((const int32_t[]){__VA_ARGS__}, sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t), max,  \
		     out)

static int32_t out[PLAN_DRAFTS_MAX];

static void expect(const int32_t *want, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		cr_expect_eq(out[i], want[i], "draft %u: %d", i, out[i]);
}

Test(draft, guesses_what_followed_the_same_tokens)
{
	cr_assert_eq(LOOKUP(3, 7, 3, 9, 4, 5, 8, 1, 3, 9, 4), 3);
	expect((int32_t[]){5, 8, 1}, 3);
}

Test(draft, the_longest_match_comes_first_then_the_latest)
{
	/* 2 3 4 stands twice; with the 1 before it only once. */
	cr_assert_eq(LOOKUP(1, 1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 1, 2, 3, 4), 1);
	expect((int32_t[]){50}, 1);
	cr_assert_eq(LOOKUP(1, 2, 3, 4, 50, 2, 3, 4, 60, 2, 3, 4), 1);
	expect((int32_t[]){60}, 1);
}

Test(draft, a_repetition_continues)
{
	cr_assert_eq(LOOKUP(5, 1, 2, 1, 2, 1, 2), 5);
	expect((int32_t[]){1, 2, 1, 2, 1}, 5);
}

Test(draft, too_short_matches_give_nothing)
{
	cr_assert_eq(LOOKUP(3, 9, 4, 5, 8, 1, 3, 9, 4), 0);
	cr_assert_eq(LOOKUP(3, 1, 2, 3), 0);
	cr_assert_eq(LOOKUP(3, 5), 0);
	cr_assert_eq(draft_lookup(NULL, 0, 3, out), 0);
}

Test(draft, the_length_follows_what_was_accepted)
{
	struct draft_pace p = {0};
	cr_assert_eq(draft_limit(&p, 8), 8);
	draft_took(&p, 8, 2);
	cr_assert_eq(draft_limit(&p, 8), 3);
	draft_took(&p, 3, 3);
	cr_assert_eq(draft_limit(&p, 8), 6);
	draft_took(&p, 6, 6);
	cr_assert_eq(draft_limit(&p, 8), 8, "never more than requested");
}

Test(draft, a_sequence_that_is_never_guessed_drafts_ever_more_rarely)
{
	struct draft_pace p = {0};
	uint32_t n = 0;
	for (int i = 0; i < 1000; i++) {
		const uint32_t k = draft_limit(&p, 8);
		n += k;
		draft_took(&p, k, 0);
	}
	cr_expect_leq(n, 8 + 6 + 1000 / 64 + 1);
	while (!draft_limit(&p, 8))
		;
	draft_took(&p, 1, 1);
	cr_expect_eq(draft_limit(&p, 8), 2, "one that is accepted ends the wait");
	draft_took(&p, 2, 0);
	cr_expect_eq(draft_limit(&p, 8), 0);
	cr_expect_eq(draft_limit(&p, 8), 1, "the first wait is one step");
}
