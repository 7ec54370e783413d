/* test_fleet_autoscale.c - a service that changes the number of replicas by load: every job gets the tokens
 * of an undisturbed run, once. */
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

/* Decides every 100 ms; four slots per replica. */
static const struct engine_config scales_itself = {
	.supervised = true,
	.autoscale = {.min = 1,
		      .max = 3,
		      .target = 4,
		      .window_us = 200 * 1000,
		      .period_us = 100 * 1000,
		      .down_us = 300 * 1000},
};
static const struct fake_config slow = {.step_us = 3000};

static uint64_t n_jobs;

/* Keep up the load until it has had its effect, however slow the machine is. */
static void keep_loaded(struct rig *r)
{
	uint64_t n_live = 0;
	for (uint64_t job = 0; job < n_jobs; job++)
		n_live += !r->jobs[job].done;
	if (n_live < 8 && n_jobs < RIG_JOBS)
		rig_submit(r, n_jobs++, 0, 30, 200);
}

/* Start workers as the supervisor would, until n replicas serve. */
static void serve_with(struct rig *r, uint32_t n)
{
	for (uint32_t seen = 0; rig_status(r)->n_replicas < n; usleep(5000)) {
		keep_loaded(r);
		const uint32_t orders = rig_notices(r, &r->n_scale);
		for (uint32_t i = 0; orders > seen && i < rig_notices(r, &r->scale_workers); i++)
			rig_worker(r, &slow);
		seen = orders;
	}
	rig_wait_replicas(r, n, "serving");
}

static struct rig *loaded_rig(const struct engine_config *cfg)
{
	struct rig *r = rig_new(cfg);
	rig_worker(r, &slow);
	rig_wait_ready(r, true);
	n_jobs = 12;
	rig_submit_many(r, 0, n_jobs, 30, 200);
	return r;
}

Test(fleet_autoscale, replicas_come_with_the_load_and_go_with_it)
{
	struct rig *r = loaded_rig(&scales_itself);
	serve_with(r, 3);
	rig_finish_many(r, 0, n_jobs);
	rig_wait_replicas(r, 1, "serving");
	for (;;) { /* until all but one have received stop */
		uint32_t n_stopped = 0;
		for (uint32_t i = 0; i < r->n_workers; i++)
			n_stopped += r->workers[i]->stopped;
		if (n_stopped == r->n_workers - 1)
			break;
		usleep(1000);
	}
	rig_free(r);
}

Test(fleet_autoscale, no_more_replicas_than_the_most)
{
	struct engine_config two = scales_itself;
	two.autoscale.max = 2;
	struct rig *r = loaded_rig(&two);
	serve_with(r, 2);
	usleep(300 * 1000); /* three decisions */
	rig_status(r);
	cr_assert_eq(rig_notices(r, &r->scale_workers), 1);
	rig_finish_many(r, 0, n_jobs);
	rig_free(r);
}

Test(fleet_autoscale, a_scale_by_hand_is_refused)
{
	struct rig *r = loaded_rig(&scales_itself);
	rig_order(r, ENGINE_SCALE, 2, 0);
	cr_assert_eq(rig_wait_order(r), E_BAD_REQUEST);
	cr_assert(strstr(r->order_why, "1 to 3 replicas"), "%s", r->order_why);
	rig_finish_many(r, 0, n_jobs);
	rig_free(r);
}

Test(fleet_autoscale, a_drained_worker_is_replaced)
{
	struct rig *r = rig_new(&scales_itself);
	rig_worker(r, &slow);
	rig_wait_ready(r, true);
	rig_order(r, ENGINE_DRAIN, rig_status(r)->replicas[0].workers[0], 0);
	rig_expect_order(r);
	while (rig_notices(r, &r->n_scale) == 0)
		usleep(1000);
	rig_worker(r, &slow);
	rig_submit(r, 0, 0, 30, 20);
	rig_finish(r, 0);
	rig_free(r);
}
