/* test_sched_room.c - admission when blocks are scarce. */
#include "tests/sim/one_sched.h"

enum { CHUNK = 256 };

/* The second job does not fit while the first computes the shared prompt and another job runs.  When the
 * other has ended, fewer blocks are free than before, but the second job needs only two. */
Test(sched_room, a_prompt_computed_meanwhile_needs_few_blocks)
{
	struct sim *m = sim_new(139, CHUNK, true);
	uint32_t other = submit_seeded(m, 0, 560, 12, 9);
	step(m);
	uint32_t first = submit_seeded(m, 0, 1600, 300, 1);
	steps(m, 2);
	uint32_t second = submit_seeded(m, 0, 1600, 300, 1);
	uint32_t behind = submit_seeded(m, 0, 16, 16, 2);
	steps(m, 10);
	cr_assert(m->jobs[first].n_tokens && !m->jobs[second].n_tokens);
	while (!m->jobs[other].done)
		step(m);
	cr_expect_leq(plans_to_token(m, second), 20);
	cr_expect_leq(plans_to_token(m, behind), 20);
	cr_expect_not(m->jobs[first].done);
	cr_expect_eq(n_preempted(m), 0);
	sim_free(m);
}

/* When the second job arrives, most blocks that the first one will need are still free. */
Test(sched_room, admission_leaves_what_running_prompts_lack)
{
	for (int cache = 0; cache < 2; cache++) {
		struct sim *m = sim_new(130, CHUNK, cache);
		uint32_t first = submit_seeded(m, 0, 1600, 16, 1), second = submit_seeded(m, 0, 1600, 16, 2);
		cr_expect_leq(plans_to_token(m, first), 1600 / CHUNK + 1);
		plans_to_token(m, second);
		steps(m, 20);
		cr_expect(m->jobs[first].done && m->jobs[second].done);
		cr_expect_eq(n_preempted(m), 0);
		sim_free(m);
	}
}
