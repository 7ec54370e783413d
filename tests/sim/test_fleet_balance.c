/* test_fleet_balance.c - work stealing: the other replicas, and one that joins later, share the jobs of a
 * lost replica; jobs move to where they are expected to end earlier. */
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <unistd.h>

enum { SLOW_US = 100000 }; /* duration of a step: no job ends during the checks */

static const struct fake_config slow = {.step_us = SLOW_US};

static uint32_t jobs_at(const struct engine_replica *r)
{
	return r->counts.n_running + r->counts.n_waiting;
}

/* The jobs have begun and wait for a slot: their load is their tokens, not their number. */
Test(fleet_balance, every_replica_gets_jobs_of_a_lost_one)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &(struct fake_config){.step_us = 500});
	rig_wait_ready(r, true);
	rig_submit_many(r, 0, RIG_SLOTS, 150, 80);
	for (uint64_t i = 0; i < RIG_SLOTS; i++)
		rig_wait_tokens(r, i, 1);
	a->step_us = SLOW_US;
	struct fake_worker *b = rig_worker(r, &slow);
	rig_wait_replicas(r, 2, "serving");
	rig_submit_many(r, 10, 10 + RIG_SLOTS, 20, 200); /* fill b's slots ... */
	rig_wait_tokens(r, 13, 1);
	struct fake_worker *c = rig_worker(r, &slow);
	rig_wait_replicas(r, 3, "serving");
	rig_submit_many(r, 20, 20 + RIG_SLOTS, 50, 200); /* ... and c's with a little more */
	rig_wait_tokens(r, 23, 1);
	rig_end_worker(a);
	rig_wait_replicas(r, 2, "serving");
	const struct engine_status *s = rig_status(r);
	uint32_t x = jobs_at(&s->replicas[0]), y = jobs_at(&s->replicas[1]);
	cr_assert_eq(x + y, 3 * RIG_SLOTS);
	cr_assert(x > RIG_SLOTS && y > RIG_SLOTS, "%u and %u", x, y);
	b->step_us = c->step_us = 0;
	rig_finish_many(r, 0, RIG_SLOTS);
	rig_free(r);
}

/* Lose one of two full replicas: all jobs have begun, and half of them wait at b. */
static struct rig *lose_one_of_two(struct fake_worker **b)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &(struct fake_config){.step_us = 1000});
	*b = rig_worker(r, &(struct fake_config){.step_us = 1000});
	rig_wait_replicas(r, 2, "serving");
	rig_submit_many(r, 0, 2 * RIG_SLOTS, 30, 200);
	for (uint64_t i = 0; i < 2 * RIG_SLOTS; i++)
		rig_wait_tokens(r, i, 1);
	(*b)->step_us = SLOW_US;
	rig_end_worker(a);
	rig_wait_replicas(r, 1, "serving");
	return r;
}

Test(fleet_balance, joining_replica_steals_begun_jobs)
{
	struct fake_worker *b;
	struct rig *r = lose_one_of_two(&b);
	struct fake_worker *again = rig_worker(r, NULL);
	rig_wait_replicas(r, 2, "serving");
	uint32_t n_waiting = 1;
	for (int i = 0; n_waiting && i < 30000; i++) {
		const struct engine_status *s = rig_status(r);
		n_waiting = s->replicas[0].counts.n_waiting + s->replicas[1].counts.n_waiting;
		usleep(1000);
	}
	cr_assert_eq(n_waiting, 0);
	cr_assert_gt(again->n_plans, 0);
	cr_assert(!r->jobs[0].done);
	b->step_us = 0;
	rig_finish_many(r, 0, 2 * RIG_SLOTS);
	for (uint64_t i = 0; i < 2 * RIG_SLOTS; i++)
		cr_assert(!r->jobs[i].class_changed);
	rig_free(r);
}

Test(fleet_balance, begun_jobs_are_not_stolen_by_another_numerics_class)
{
	struct fake_worker *b;
	struct rig *r = lose_one_of_two(&b);
	struct fake_worker *other = rig_worker(r, &(struct fake_config){.numerics = "class b"});
	rig_wait_replicas(r, 2, "serving");
	b->step_us = 0;
	rig_finish_many(r, 0, 2 * RIG_SLOTS);
	cr_assert_eq(other->n_plans, 0);
	rig_free(r);
}

/* No job of the longest queue fits the joining replica; a job of the next queue does. */
Test(fleet_balance, jobs_that_fit_are_stolen_from_a_shorter_queue)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, &slow);
	rig_wait_ready(r, true);
	rig_submit_many(r, 0, 3 * RIG_SLOTS, 170, 60);
	rig_wait_tokens(r, 0, 1);
	rig_worker(r, &(struct fake_config){.step_us = SLOW_US, .n_blocks = 10});
	rig_wait_replicas(r, 2, "serving");
	rig_submit_many(r, 20, 20 + 2 * RIG_SLOTS, 10, 50);
	rig_wait_tokens(r, 20, 1);
	const struct engine_status *s = rig_status(r);
	cr_assert(s->replicas[0].counts.n_waiting && s->replicas[1].counts.n_waiting);
	struct fake_worker *small = rig_worker(r, &(struct fake_config){.n_blocks = 4});
	rig_wait_replicas(r, 3, "serving");
	for (int i = 0; small->n_plans == 0 && i < 10000; i++) {
		rig_status(r);
		usleep(1000);
	}
	cr_assert_gt(small->n_plans, 0);
	rig_free(r);
}

/* Run one job on each worker, so that their speeds are known.  The first job still runs when the second one
 * arrives. */
static void learn_speeds(struct rig *r, struct fake_worker *fast, struct fake_worker *lame)
{
	rig_submit(r, 0, 0, 20, 230);
	rig_submit(r, 1, 300, 20, 3);
	rig_finish_many(r, 0, 2);
	cr_assert_gt(fast->n_plans, 0);
	cr_assert_gt(lame->n_plans, 0);
}

/* Eight jobs for four slots: the waiting jobs end long before the slow replica could compute them. */
Test(fleet_balance, jobs_that_end_earlier_where_they_wait_stay)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *fast = rig_worker(r, &(struct fake_config){.step_us = 1000});
	struct fake_worker *lame = rig_worker(r, &(struct fake_config){.step_us = SLOW_US});
	rig_wait_replicas(r, 2, "serving");
	learn_speeds(r, fast, lame);
	int n_seqs = lame->n_seqs;
	rig_submit_many(r, 10, 10 + 2 * RIG_SLOTS, 20, 40);
	rig_finish_many(r, 10, 10 + 2 * RIG_SLOTS);
	cr_assert_eq(lame->n_seqs, n_seqs, "%d sequences went to the slow replica", lame->n_seqs - n_seqs);
	rig_free(r);
}

/* A key has many jobs here; then another key sends a short job, which is next because keys take turns. */
Test(fleet_balance, next_job_of_another_key_stays)
{
	enum { FIRST = 10, LAST = 50 };
	struct rig *r = rig_new(NULL);
	struct fake_worker *fast = rig_worker(r, &(struct fake_config){.step_us = 1000});
	struct fake_worker *lame = rig_worker(r, &(struct fake_config){.step_us = SLOW_US});
	rig_wait_replicas(r, 2, "serving");
	learn_speeds(r, fast, lame);
	int n_seqs = lame->n_seqs;
	r->account = 1;
	rig_submit_many(r, FIRST, LAST, 20, 50);
	r->account = 2;
	rig_submit(r, LAST, 800, 20, 1);
	rig_finish_many(r, FIRST, LAST + 1);
	cr_assert_eq(lame->n_seqs, n_seqs, "%d sequences went to the slow replica", lame->n_seqs - n_seqs);
	rig_free(r);
}

/* A prompt token costs a second here: waiting for a slot where the prompt is cached is better. */
Test(fleet_balance, jobs_wait_where_their_prefix_is_cached)
{
	struct rig *r = rig_new(NULL);
	struct fake_config config = {.step_us = 1000, .row_us = 1000 * 1000};
	struct fake_worker *a = rig_worker(r, &config);
	rig_wait_ready(r, true);
	rig_submit_many(r, 0, RIG_SLOTS, 100, 2); /* together they measure the prefill speed */
	rig_finish_many(r, 0, RIG_SLOTS);
	rig_submit(r, 10, 500, 160, 2);
	rig_finish(r, 10);
	a->step_us = SLOW_US;
	for (uint64_t job = 20; job < 20 + 2 * RIG_SLOTS; job++)
		rig_submit(r, job, 500, 160, 20);
	for (uint64_t job = 20; job < 20 + RIG_SLOTS; job++)
		rig_wait_tokens(r, job, 1);
	struct fake_worker *b = rig_worker(r, &config);
	rig_wait_replicas(r, 2, "serving");
	rig_status(r); /* a full round trip: b has looked for jobs by now */
	a->step_us = 0;
	rig_finish_many(r, 20, 20 + 2 * RIG_SLOTS);
	cr_assert_eq(b->n_plans, 0, "%d", b->n_plans);
	rig_free(r);
}

/* The joining replica is three times as slow: the first jobs of the queue end earlier where they are, jobs at
 * its end do not. */
Test(fleet_balance, slower_replica_takes_jobs_from_further_back)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, &(struct fake_config){.step_us = 2000});
	rig_wait_ready(r, true);
	rig_submit_many(r, 0, 60, 20, 40);
	rig_wait_tokens(r, 0, 1);
	struct fake_worker *slower = rig_worker(r, &(struct fake_config){.step_us = 6000});
	rig_finish_many(r, 0, 60);
	/* The first jobs are taken before its speed is known. */
	cr_assert_gt(slower->n_seqs, RIG_SLOTS);
	rig_free(r);
}
