/* What a lost replica leaves behind is shared by the others, and shared anew when one comes back. */
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <unistd.h>

enum { SLOW_US = 100000 }; /* of a step: nothing ends while it is looked at */

static uint32_t jobs_at(const struct engine_replica *r)
{
	return r->n_running + r->n_waiting;
}

static void submit_from(struct rig *r, uint64_t first, uint64_t end, uint32_t n_prompt, uint32_t max_tokens)
{
	for (uint64_t i = first; i < end; i++)
		rig_submit(r, i, (uint32_t)i * 37, n_prompt, max_tokens);
}

static void finish_all(struct rig *r, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		rig_finish(r, i);
}

/* They have begun, and wait for a slot: what they bring is what they hold, not how many they are. */
Test(fleet_balance, all_others_get_jobs_of_a_replica_that_died)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.step_us = 500}, b = {0}, c = {0};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	submit_from(r, 0, RIG_SLOTS, 150, 80);
	for (uint64_t i = 0; i < RIG_SLOTS; i++)
		rig_wait_tokens(r, i, 1);
	a.step_us = b.step_us = c.step_us = SLOW_US;
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	submit_from(r, 10, 10 + RIG_SLOTS, 20, 200); /* fill b's slots ... */
	rig_wait_tokens(r, 13, 1);
	fake_start(&c, r);
	rig_wait_replicas(r, 3, "serving");
	submit_from(r, 20, 20 + RIG_SLOTS, 50, 200); /* ... and c's with a little more */
	rig_wait_tokens(r, 23, 1);
	fake_end(&a);
	rig_wait_replicas(r, 2, "serving");
	const struct engine_status *s = rig_status(r);
	uint32_t x = jobs_at(&s->replicas[0]), y = jobs_at(&s->replicas[1]);
	cr_assert_eq(x + y, 3 * RIG_SLOTS);
	cr_assert(x > RIG_SLOTS && y > RIG_SLOTS, "%u and %u", x, y);
	b.step_us = c.step_us = 0;
	finish_all(r, RIG_SLOTS);
	rig_free(r);
	fake_end(&b);
	fake_end(&c);
}

Test(fleet_balance, a_replica_that_comes_back_gets_work_that_had_begun)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.step_us = 1000}, b = {.step_us = 1000}, again = {0};
	fake_start(&a, r);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	submit_from(r, 0, 2 * RIG_SLOTS, 30, 200);
	for (uint64_t i = 0; i < 2 * RIG_SLOTS; i++)
		rig_wait_tokens(r, i, 1);
	b.step_us = SLOW_US;
	fake_end(&a);
	rig_wait_replicas(r, 1, "serving");
	fake_start(&again, r);
	rig_wait_replicas(r, 2, "serving");
	uint32_t n_waiting = 1;
	for (int i = 0; n_waiting && i < 30000; i++) {
		const struct engine_status *s = rig_status(r);
		n_waiting = s->replicas[0].n_waiting + s->replicas[1].n_waiting;
		usleep(1000);
	}
	cr_assert_eq(n_waiting, 0);
	cr_assert_gt(again.n_plans, 0);
	cr_assert(!r->jobs[0].done);
	b.step_us = 0;
	finish_all(r, 2 * RIG_SLOTS);
	for (uint64_t i = 0; i < 2 * RIG_SLOTS; i++)
		cr_assert(!r->jobs[i].class_changed);
	rig_free(r);
	fake_end(&b);
	fake_end(&again);
}

/* Of another class, it takes none of them. */
Test(fleet_balance, what_has_begun_is_not_taken_over_by_another_class)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.step_us = 1000}, b = {.step_us = 1000}, other = {.numerics = "class b"};
	fake_start(&a, r);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	submit_from(r, 0, 2 * RIG_SLOTS, 30, 200);
	for (uint64_t i = 0; i < 2 * RIG_SLOTS; i++)
		rig_wait_tokens(r, i, 1);
	b.step_us = SLOW_US;
	fake_end(&a);
	rig_wait_replicas(r, 1, "serving");
	fake_start(&other, r);
	rig_wait_replicas(r, 2, "serving");
	b.step_us = 0;
	finish_all(r, 2 * RIG_SLOTS);
	cr_assert_eq(other.n_plans, 0);
	rig_free(r);
	fake_end(&b);
	fake_end(&other);
}

/* The fullest has only what does not fit; the next one has what does. */
Test(fleet_balance, a_replica_takes_over_from_whoever_has_something_that_fits)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker large = {.step_us = SLOW_US}, medium = {.step_us = SLOW_US, .n_blocks = 10};
	struct fake_worker small = {.n_blocks = 4};
	fake_start(&large, r);
	rig_wait_ready(r, true);
	submit_from(r, 0, 3 * RIG_SLOTS, 170, 60);
	rig_wait_tokens(r, 0, 1);
	fake_start(&medium, r);
	rig_wait_replicas(r, 2, "serving");
	submit_from(r, 20, 20 + 2 * RIG_SLOTS, 10, 50);
	rig_wait_tokens(r, 20, 1);
	const struct engine_status *s = rig_status(r);
	cr_assert(s->replicas[0].n_waiting && s->replicas[1].n_waiting);
	fake_start(&small, r);
	rig_wait_replicas(r, 3, "serving");
	for (int i = 0; small.n_plans == 0 && i < 10000; i++) {
		rig_status(r);
		usleep(1000);
	}
	cr_assert_gt(small.n_plans, 0);
	rig_free(r);
	fake_end(&large);
	fake_end(&medium);
	fake_end(&small);
}
