/* output_choose_best() selects the sampled outputs that are returned. */
#include "controller/jobs/output.h"

#include <criterion/criterion.h>

static struct output outputs[PARAMS_N_MAX];

/* Make an output of n tokens with this log-probability each; its first token is 100 + i. */
static void fill(uint32_t i, uint32_t n, float logprob, enum finish finish)
{
	struct output *o = &outputs[i];
	*o = (struct output){.index = i, .finish = finish, .n_shown = n};
	toklog_init(&o->log, true);
	for (uint32_t k = 0; k < n; k++)
		toklog_push(&o->log, &(struct engine_token){.token = 100 + i, .logprob = logprob, .rank = 1},
			    NULL, NULL);
}

static void kept(uint32_t i, uint32_t was)
{
	cr_expect_eq(outputs[i].index, i);
	cr_expect_eq(outputs[i].log.token[0], 100 + was, "place %u has output %u, not %u", i,
		     outputs[i].log.token[0] - 100, was);
	output_fini(&outputs[i]);
}

Test(best_of, highest_sums_are_kept_highest_first)
{
	fill(0, 3, -1, FINISH_LENGTH);
	fill(1, 1, -0.5f, FINISH_STOP);
	fill(2, 2, -2, FINISH_STOP);
	fill(3, 2, -1, FINISH_STOP);
	output_choose_best(outputs, 4, 3);
	kept(0, 1);
	kept(1, 3);
	kept(2, 0);
}

Test(best_of, equal_sums_are_ordered_by_index)
{
	for (uint32_t i = 0; i < 5; i++)
		fill(i, 2, i == 4 ? -1 : -2, FINISH_LENGTH);
	output_choose_best(outputs, 5, 4);
	kept(0, 4);
	kept(1, 0);
	kept(2, 1);
	kept(3, 2);
}

Test(best_of, complete_outputs_rank_before_partial_and_these_before_empty)
{
	fill(0, 1, -0.1f, FINISH_ABORT);
	fill(1, 9, -3, FINISH_STOP);
	fill(2, 0, 0, FINISH_ABORT);
	fill(3, 2, -1, FINISH_ABORT);
	output_choose_best(outputs, 4, 3);
	kept(0, 1);
	kept(1, 0);
	kept(2, 3);
}

Test(best_of, all_can_be_kept)
{
	for (uint32_t i = 0; i < PARAMS_N_MAX; i++)
		fill(i, 1, -(float)(PARAMS_N_MAX - i), FINISH_STOP);
	output_choose_best(outputs, PARAMS_N_MAX, PARAMS_N_MAX);
	for (uint32_t i = 0; i < PARAMS_N_MAX; i++)
		kept(i, PARAMS_N_MAX - 1 - i);
}
