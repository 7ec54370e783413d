/* test_sched_priority.c - a group of a higher priority is admitted soon, by preemption if necessary; a group
 * that has waited long goes first. */
#include "tests/sim/one_sched.h"

#include <inttypes.h>

enum { INTERACTIVE = 0, BATCH = 100 };

static const int64_t MINUTE_US = 60 * 1000 * 1000;

static uint32_t submit(struct sim *m, int32_t priority, uint32_t n_prompt, uint32_t n_out)
{
	return submit_seeded(m, priority, n_prompt, n_out, m->n_jobs);
}

/* ---- aging ---- */

/* The big job holds 70 of 100 blocks, runs for two minutes, and is preempted when a group of a higher
 * priority grows. */
Test(sched_priority, running_time_is_not_waiting_time)
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

/* Interactive jobs fill the worker at all times, and more of them wait. */
Test(sched_priority, a_group_that_waited_a_minute_goes_before_any_priority)
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
	cr_expect_eq(m->jobs[line].n_tokens, 0, "a group of a higher priority always waits");
	m->now += MINUTE_US;
	for (int i = 0; i < SLOTS; i++)
		last = submit(m, INTERACTIVE, 16, 100);
	cr_expect_leq(plans_to_token(m, line), 200);
	cr_expect_not(m->jobs[last].done);
	sim_free(m);
}

/* 600 groups of a batch have waited for more than a minute. */
Test(sched_priority, old_work_does_not_hold_up_a_higher_priority)
{
	struct sim *m = sim_new(1200, 0, false);
	for (int i = 0; i < 600; i++)
		submit(m, BATCH, 16, 200);
	steps(m, 50);
	m->now += 2 * MINUTE_US;
	step(m);
	for (int i = 0; i < 10; i++) {
		uint32_t job = submit(m, INTERACTIVE, 16, 16);
		cr_expect_leq(plans_to_token(m, job), 3 * 8, "job %d", i);
		steps(m, 20);
	}
	sim_free(m);
}

/* Old batch groups and a flood of interactive groups: one admission in eight goes to age. */
Test(sched_priority, age_earns_one_admission_in_eight)
{
	enum { LINES = 400, FIRST = LINES, N = 800, OUT = 16 };
	struct sim *m = sim_new(1200, 0, false);
	for (int i = 0; i < LINES; i++)
		submit(m, BATCH, 16, OUT);
	m->now += 2 * MINUTE_US;
	uint32_t done = 0, lines = 0;
	for (int i = 0; i < 20000 && done < N; i++) {
		while (m->n_jobs < FIRST + done + 3 * SLOTS)
			submit(m, INTERACTIVE, 16, OUT);
		step(m);
		done = lines = 0;
		for (uint32_t k = 0; k < m->n_jobs; k++)
			*(k < FIRST ? &lines : &done) += m->jobs[k].done;
	}
	cr_assert_geq(done, N);
	cr_expect_leq(lines, N / 7 + 2, "%u of a batch beside %u", lines, done);
	cr_expect_geq(lines, N / 10, "%u of a batch beside %u", lines, done);
	sim_free(m);
}

/* A chunked prompt of a lower priority, next to a flood of higher-priority prompts that fill every step. */
Test(sched_priority, an_admitted_prompt_makes_progress)
{
	struct sim *m = sim_new(1200, 512, false);
	uint32_t line = submit(m, BATCH, 1900, 4);
	step(m);
	for (int i = 0; i < 400 && !m->jobs[line].first_token; i++) {
		for (int k = 0; k < 4; k++)
			submit(m, INTERACTIVE, 1000, 1);
		step(m);
	}
	cr_expect(m->jobs[line].first_token);
	sim_free(m);
}

/* The group waited for a slot, and was admitted before groups of a higher priority. */
Test(sched_priority, an_aged_group_is_protected_for_a_while)
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

/* ---- preemption ---- */

/* Each priority has its own virtual token counters. */
Test(sched_priority, counters_of_other_priorities_do_not_count)
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
		cr_expect_eq(n_preempted(m), 1, "one is preempted for one, once: %" PRIu64, n_preempted(m));
		sim_free(m);
	}
}

/* The lower priorities hold all blocks. */
Test(sched_priority, a_higher_priority_gets_blocks_of_the_lowest)
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

Test(sched_priority, a_job_that_ran_for_minutes_is_preempted_like_any_other)
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

/* One user's jobs hold all slots for a long time.  When the user is far ahead of another user that has waited
 * meanwhile, one of the jobs is preempted, and continues later. */
Test(sched_priority, a_user_far_ahead_makes_place_for_another)
{
	enum { ANNA = 1, BERT, LONG = 1900, LEAD_PLANS = 16384 / (3 * SLOTS) };
	struct sim *m = sim_new(2000, 0, false);
	uint32_t jobs[SLOTS];
	for (uint32_t i = 0; i < SLOTS; i++)
		jobs[i] = submit_as(m, ANNA, INTERACTIVE, 16, LONG, i);
	steps(m, 10);
	uint32_t job = submit_as(m, BERT, INTERACTIVE, 16, 16, SLOTS);
	cr_expect_leq(plans_to_token(m, job), LEAD_PLANS + 20);
	cr_expect_eq(n_preempted(m), 1);
	steps(m, 3000);
	for (uint32_t i = 0; i < SLOTS; i++)
		cr_expect(m->jobs[jobs[i]].done);
	cr_expect_eq(n_preempted(m), 1);
	sim_free(m);
}

/* The job fits next to the running job, which holds the same prompt. */
Test(sched_priority, a_job_that_shares_blocks_preempts_none)
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

/* A group of the same priority holds most blocks: those of the lower priority would not suffice. */
Test(sched_priority, no_group_is_preempted_in_vain)
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

/* A slot is needed repeatedly. */
Test(sched_priority, preempted_groups_make_progress)
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

/* Recomputing the evicted blocks of the preempted group takes longer than the pause between jobs of a higher
 * priority: each of these jobs waits until the group has a new token. */
Test(sched_priority, group_that_catches_up_is_not_preempted_before_its_next_token)
{
	enum { N = 8, BLOCKS = 64, CHUNK = 32, LONG = 40 * 16, SHORT = 42 * 16, OUT = 100 };
	struct sim *m = sim_new(BLOCKS, CHUNK, false);
	uint32_t batch = submit(m, BATCH, LONG, OUT);
	plans_to_token(m, batch);
	for (uint32_t i = 0; i < N; i++) {
		uint32_t job = submit(m, INTERACTIVE, SHORT, 1), had = m->jobs[batch].n_tokens;
		plans_to_token(m, job);
		cr_expect_eq(n_preempted(m), i + 1);
		cr_expect(i == 0 || m->jobs[batch].n_tokens > had, "preempted without a token");
		steps(m, 4); /* the batch job runs again */
	}
	sim_free(m);
}
