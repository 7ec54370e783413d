/* What priorities promise: who is better placed is let in soon, and who waits long gets its turn. */
#include "tests/sim/one_sched.h"

#include <inttypes.h>

enum { INTERACTIVE = 0, BATCH = 100 };

static const int64_t MINUTE_US = 60 * 1000 * 1000;

static uint32_t submit(struct sim *m, int32_t priority, uint32_t n_prompt, uint32_t n_out)
{
	return submit_seeded(m, priority, n_prompt, n_out, m->n_jobs);
}

/* ---- who has waited long ---- */

/* It takes 70 of 100 blocks, runs for two minutes, and must go when what is better placed grows. */
Test(sched_priority, what_ran_for_minutes_does_not_count_as_having_waited)
{
	struct sim *m = sim_new(100, 0, false);
	uint32_t big = submit(m, BATCH, 1120, 300);
	steps(m, 10);
	cr_assert_gt(m->jobs[big].n_tokens, 0);
	m->now += 2 * MINUTE_US;
	step(m);
	uint32_t grows = submit(m, INTERACTIVE, 400, 600);
	for (int i = 0; i < 300 && n_preempted(m) == 0; i++)
		step(m);
	cr_assert_eq(n_preempted(m), 1);
	cr_assert_not(m->jobs[big].done);
	uint32_t small = submit(m, INTERACTIVE, 16, 16);
	cr_expect_leq(plans_to_token(m, small), 3);
	cr_expect_not(m->jobs[grows].done);
	for (int i = 0; i < 3000 && !m->jobs[big].done; i++)
		step(m);
	cr_expect(m->jobs[big].done);
	sim_free(m);
}

/* Interactive jobs fill the worker all the time, and more of them wait. */
Test(sched_priority, who_has_waited_a_minute_goes_before_any_priority)
{
	struct sim *m = sim_new(400, 0, false);
	uint32_t line = submit(m, BATCH, 16, 16), last = 0;
	for (int i = 0; i < 3 * SLOTS; i++)
		last = submit(m, INTERACTIVE, 16, 100);
	for (int i = 0; i < 200; i++) {
		step(m);
		if (i % 12 == 0)
			last = submit(m, INTERACTIVE, 16, 100);
	}
	cr_assert_gt(m->n_plans, 0);
	cr_expect_eq(m->jobs[line].n_tokens, 0, "there is always somebody better placed");
	m->now += MINUTE_US;
	for (int i = 0; i < SLOTS; i++)
		last = submit(m, INTERACTIVE, 16, 100);
	cr_expect_leq(plans_to_token(m, line), 200);
	cr_expect_not(m->jobs[last].done);
	sim_free(m);
}

/* It waited for a slot, and was let in before those that are better placed. */
Test(sched_priority, who_has_its_turn_by_waiting_keeps_it_for_a_while)
{
	struct sim *m = sim_new(400, 0, false);
	for (int i = 0; i < 2 * SLOTS; i++)
		submit(m, INTERACTIVE, 16, 40);
	uint32_t line = submit(m, BATCH, 16, 50);
	steps(m, 20);
	m->now += MINUTE_US;
	for (int i = 0; i < 4 * SLOTS; i++)
		submit(m, INTERACTIVE, 16, 40);
	cr_expect_leq(plans_to_token(m, line), 100);
	steps(m, 60);
	cr_expect(m->jobs[line].done);
	cr_expect_eq(n_preempted(m), 0);
	sim_free(m);
}

/* ---- who makes place ---- */

/* Counters of what users were served begin at nothing in each priority. */
Test(sched_priority, what_other_priorities_were_served_gives_no_claim_to_a_slot)
{
	for (int history = 0; history < 3; history++) {
		struct sim *m = sim_new(1200, 0, false);
		for (int i = 0; history && i < 1000; i++)
			submit(m, history == 1 ? INTERACTIVE : BATCH, 16, 24);
		steps(m, 4000);
		uint32_t lines[SLOTS];
		for (int i = 0; i < SLOTS; i++)
			lines[i] = submit(m, BATCH, 16, 1000);
		steps(m, 50);
		cr_assert_gt(m->jobs[lines[SLOTS - 1]].n_tokens, 0);
		uint32_t job = submit(m, INTERACTIVE, 16, 16);
		cr_expect_leq(plans_to_token(m, job), 10, "history %d", history);
		steps(m, 1200);
		for (int i = 0; i < SLOTS; i++)
			cr_expect(m->jobs[lines[i]].done);
		cr_expect_eq(n_preempted(m), 1, "one makes place for one, once: %" PRIu64, n_preempted(m));
		sim_free(m);
	}
}

/* They hold all blocks, too. */
Test(sched_priority, who_is_better_placed_gets_blocks_of_the_lowest_priority)
{
	struct sim *m = sim_new(200, 0, false);
	uint32_t low = submit(m, 2 * BATCH, 1000, 400), line = submit(m, BATCH, 1000, 400);
	steps(m, 2 * 60);
	cr_assert(m->jobs[low].n_tokens && m->jobs[line].n_tokens);
	uint32_t job = submit(m, INTERACTIVE, 1200, 16);
	cr_expect_leq(plans_to_token(m, job), 20);
	cr_expect_eq(n_preempted(m), 1);
	steps(m, 1500);
	cr_expect(m->jobs[low].done && m->jobs[line].done);
	sim_free(m);
}

Test(sched_priority, a_job_that_ran_for_minutes_makes_place_like_any_other)
{
	struct sim *m = sim_new(1200, 0, false);
	for (int i = 0; i < SLOTS; i++)
		submit(m, BATCH, 16, 1000);
	steps(m, 50);
	m->now += 2 * MINUTE_US;
	step(m);
	uint32_t job = submit(m, INTERACTIVE, 16, 16);
	cr_expect_leq(plans_to_token(m, job), 10);
	sim_free(m);
}

/* It fits beside them, since they hold the same prompt. */
Test(sched_priority, nobody_makes_place_for_what_shares_their_blocks)
{
	struct sim *m = sim_new(100, 0, true);
	uint32_t line = submit_seeded(m, BATCH, 1200, 200, 1);
	steps(m, 50);
	uint32_t job = submit_seeded(m, INTERACTIVE, 1200, 100, 1);
	cr_expect_leq(plans_to_token(m, job), 3);
	steps(m, 40);
	cr_expect_eq(n_preempted(m), 0);
	cr_expect_not(m->jobs[line].done);
	sim_free(m);
}

/* Most of the blocks are held by others of its own priority: a little place were of no use to it. */
Test(sched_priority, nobody_makes_place_in_vain)
{
	struct sim *m = sim_new(200, 0, false);
	uint32_t other = submit(m, INTERACTIVE, 1800, 200), line = submit(m, BATCH, 600, 200);
	steps(m, 20);
	cr_assert(m->jobs[other].n_tokens && m->jobs[line].n_tokens);
	uint32_t job = submit(m, INTERACTIVE, 1800, 16);
	steps(m, 100);
	cr_expect_eq(n_preempted(m), 0);
	cr_expect_eq(m->jobs[job].n_tokens, 0);
	plans_to_token(m, job);
	cr_expect(m->jobs[other].done);
	sim_free(m);
}

/* A slot is asked for again and again, and who makes place for that gets on all the same. */
Test(sched_priority, making_place_does_not_keep_anybody_from_getting_on)
{
	enum { N = 100, EVERY = 6, LINE = 400 };
	struct sim *m = sim_new(1200, 0, false);
	uint32_t lines[SLOTS], jobs[N];
	for (int i = 0; i < SLOTS; i++)
		lines[i] = submit(m, BATCH, 16, LINE);
	steps(m, 10);
	for (int i = 0; i < N; i++) {
		jobs[i] = submit(m, INTERACTIVE, 16, 16);
		steps(m, EVERY);
	}
	steps(m, 600);
	for (int i = 0; i < SLOTS; i++)
		cr_expect(m->jobs[lines[i]].done);
	for (int i = 0; i < N; i++)
		cr_expect(m->jobs[jobs[i]].done);
	cr_expect_leq(n_preempted(m), N, "%" PRIu64, n_preempted(m));
	cr_expect_leq(n_preempted(m), N * EVERY / 8, "%" PRIu64, n_preempted(m));
	sim_free(m);
}
