/* Scale and drain, while jobs run: every job gets the tokens that it has undisturbed, once. */
#include "tests/sim/device.h"
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static void submit_many(struct rig *r, uint64_t n, uint32_t n_prompt, uint32_t max_tokens)
{
	for (uint64_t i = 0; i < n; i++)
		rig_submit(r, i, (uint32_t)(i * 37), n_prompt, max_tokens);
}

static void finish_many(struct rig *r, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		rig_finish(r, i);
}

/* ---- drain ---- */

static uint64_t worker_of(struct rig *r, uint32_t i)
{
	return rig_status(r)->replicas[i].workers[0];
}

Test(fleet_orders, a_drained_worker_hands_its_jobs_on)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.step_us = 1000}, b = {.step_us = 1000};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	uint64_t first = worker_of(r, 0);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	submit_many(r, 12, 30, 100);
	rig_wait_tokens(r, 0, 1);
	rig_order(r, ENGINE_DRAIN, first, 0);
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
	cr_assert(a.stopped);
	cr_assert(!r->jobs[11].done); /* it did not wait for their end */
	finish_many(r, 12);
	cr_assert_eq(rig_status(r)->n_replicas, 1);
	cr_assert_eq(rig_status(r)->n_workers, 1);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(fleet_orders, the_last_of_its_class_finishes_what_it_has)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.step_us = 1000}, b = {.numerics = "class b"};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	uint64_t first = worker_of(r, 0);
	submit_many(r, 10, 30, 60); /* four of them begin */
	rig_wait_tokens(r, 0, 1);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	rig_order(r, ENGINE_DRAIN, first, 0);
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
	finish_many(r, 10);
	for (uint64_t i = 0; i < 10; i++)
		cr_assert(!r->jobs[i].class_changed);
	cr_assert(a.stopped && !b.stopped);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(fleet_orders, the_only_replica_finishes_what_it_has_and_is_not_ready)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.step_us = 1000};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	submit_many(r, 6, 30, 30);
	rig_wait_tokens(r, 0, 1);
	rig_order(r, ENGINE_DRAIN, worker_of(r, 0), 0);
	rig_wait_ready(r, false);
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
	finish_many(r, 6);
	rig_free(r);
	fake_end(&a);
}

/* A job runs at the only replica, which is being drained. */
static void drain_while_it_runs(struct rig *r)
{
	rig_submit(r, 0, 0, 30, 200);
	rig_wait_tokens(r, 0, 2);
	rig_order(r, ENGINE_DRAIN, worker_of(r, 0), 0);
	rig_wait_replicas(r, 1, "draining");
}

Test(fleet_orders, a_drain_outlasts_a_connection_that_breaks_on_the_way)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.step_us = 5000};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	drain_while_it_runs(r);
	a.hello_again = true;
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
	cr_assert(a.stopped);
	cr_assert_eq(a.n_loads, 2); /* to finish what only it could go on with */
	rig_finish(r, 0);
	rig_free(r);
	fake_end(&a);
}

Test(fleet_orders, a_drain_outlasts_a_rank_that_dies_on_the_way)
{
	struct rig *r = rig_new(&(struct engine_config){.tp = 2});
	struct fake_worker a = {.step_us = 5000}, b = {.step_us = 5000}, c = {0};
	fake_start(&a, r);
	fake_start(&b, r);
	rig_wait_ready(r, true);
	drain_while_it_runs(r);
	fake_end(&b);
	fake_start(&c, r);
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
	rig_finish(r, 0);
	while (!c.stopped) /* the whole group */
		usleep(1000);
	cr_assert(a.stopped);
	rig_free(r);
	fake_end(&a);
	fake_end(&c);
}

Test(fleet_orders, a_drain_leaves_no_rank_behind_that_nothing_waits_for)
{
	struct rig *r = rig_new(&(struct engine_config){.tp = 2, .worker_wait_us = 300000});
	struct fake_worker a = {.step_us = 5000}, b = {.step_us = 5000};
	fake_start(&a, r);
	fake_start(&b, r);
	rig_wait_ready(r, true);
	drain_while_it_runs(r);
	fake_end(&b);
	rig_wait_end(r, 0);
	cr_assert_eq(r->jobs[0].code, E_WORKER_LOST);
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
	cr_assert(a.stopped);
	rig_free(r);
	fake_end(&a);
}

Test(fleet_orders, a_worker_that_is_not_there_cannot_be_drained)
{
	struct rig *r = rig_new(NULL);
	rig_order(r, ENGINE_DRAIN, 99, 0);
	cr_assert_eq(rig_wait_order(r), E_BAD_REQUEST);
	cr_assert(strstr(r->order_why, "no worker 99"), "%s", r->order_why);
	rig_free(r);
}

/* ---- scale ---- */

Test(fleet_orders, scaling_up_asks_for_workers_and_waits_until_they_serve)
{
	struct rig *r = rig_new(&(struct engine_config){.supervised = true});
	struct fake_worker a = {0}, b = {0}, c = {0};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	rig_order(r, ENGINE_SCALE, 3, 0);
	rig_status(r); /* the order was read before this */
	pthread_mutex_lock(&r->lock);
	cr_assert_eq(r->n_scale, 1);
	cr_assert_eq(r->scale_workers, 2); /* beside those that nobody here started */
	pthread_mutex_unlock(&r->lock);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	cr_assert(!r->order_here);
	pthread_mutex_lock(&r->lock);
	cr_assert_eq(r->n_keep, 0);
	pthread_mutex_unlock(&r->lock);
	fake_start(&c, r);
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
	cr_assert_eq(rig_status(r)->n_replicas, 3);
	pthread_mutex_lock(&r->lock);
	cr_assert_eq(r->n_keep, 1); /* said when it is carried out, and not before */
	pthread_mutex_unlock(&r->lock);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
	fake_end(&c);
}

Test(fleet_orders, scaling_up_without_a_supervisor_says_what_to_start)
{
	struct rig *r = rig_new(NULL);
	rig_order(r, ENGINE_SCALE, 2, 0);
	cr_assert_eq(rig_wait_order(r), E_BAD_REQUEST);
	cr_assert(strstr(r->order_why, "quern-worker --bus inproc://bus"), "%s", r->order_why);
	rig_free(r);
}

Test(fleet_orders, scaling_up_that_does_not_come_about_ends)
{
	struct rig *r = rig_new(&(struct engine_config){.supervised = true});
	rig_order(r, ENGINE_SCALE, 2, 300000);
	cr_assert_eq(rig_wait_order(r), E_NOT_READY);
	cr_assert(strstr(r->order_why, "0 of 2 replicas serve"), "%s", r->order_why);
	rig_free(r);
}

/* At once, and not when its time is over: the worker says itself that another try would end alike. */
Test(fleet_orders, scaling_up_ends_when_a_worker_cannot_serve)
{
	struct rig *r = rig_new(&(struct engine_config){.supervised = true});
	struct fake_worker a = {0};
	struct bus_load load;
	fake_start(&a, r);
	rig_wait_ready(r, true);
	rig_order(r, ENGINE_SCALE, 2, 0);
	void *peer = rig_peer(r, "unable");
	rig_say(peer, &(struct bus_msg){.type = BUS_HELLO, .hello = {"cuda:9", "there", 7}});
	cr_assert_eq(rig_hear(peer, &load), BUS_LOAD);
	struct bus_msg no = {.type = BUS_FAILED, .failed.epoch = load.epoch};
	snprintf(no.failed.why, sizeof no.failed.why, "there is no such device");
	rig_say(peer, &no);
	cr_assert_eq(rig_wait_order(r), E_NOT_READY);
	cr_assert(strstr(r->order_why, "1 of 2 replicas serve"), "%s", r->order_why);
	cr_assert(strstr(r->order_why, "there is no such device"), "%s", r->order_why);
	zmq_close(peer);
	rig_free(r);
	fake_end(&a);
}

Test(fleet_orders, scaling_up_and_down_loses_no_job)
{
	struct rig *r = rig_new(&(struct engine_config){.supervised = true});
	struct fake_worker w[4] = {0};
	for (int i = 0; i < 4; i++) {
		w[i].step_us = 500;
		fake_start(&w[i], r);
	}
	rig_wait_replicas(r, 4, "serving");
	submit_many(r, 24, 30, 100);
	rig_wait_tokens(r, 0, 1);
	rig_order(r, ENGINE_SCALE, 2, 0);
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
	cr_assert_eq(rig_status(r)->n_replicas, 2);
	cr_assert_eq(w[0].stopped + w[1].stopped + w[2].stopped + w[3].stopped, 2);
	rig_order(r, ENGINE_SCALE, 1, 0);
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
	finish_many(r, 24);
	rig_free(r);
	for (int i = 0; i < 4; i++)
		fake_end(&w[i]);
}

Test(fleet_orders, a_later_scale_ends_an_earlier_one)
{
	struct rig *r = rig_new(&(struct engine_config){.supervised = true});
	struct fake_worker a = {0};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	rig_order(r, ENGINE_SCALE, 5, 0);
	rig_status(r);
	rig_order(r, ENGINE_SCALE, 1, 0);
	cr_assert_eq(rig_wait_order(r), E_OVERLOADED);
	r->order_here = false;
	cr_assert_eq(rig_wait_order(r), CODE_OK);
	rig_free(r);
	fake_end(&a);
}

/* Two workers that serve as a group, and one beside them, when a second group is asked for: how many the
 * supervisor is told to run. */
static uint32_t asked_beside(struct fake_worker *left, const char *device)
{
	struct rig *r = rig_new(&(struct engine_config){.supervised = true, .tp = 2});
	struct fake_worker a = {0}, b = {0};
	fake_start(&a, r);
	fake_start(&b, r);
	rig_wait_ready(r, true);
	fake_start(left, r);
	while (rig_status(r)->n_workers < 3)
		usleep(1000);
	r->order_device = device;
	rig_order(r, ENGINE_SCALE, 2, 0);
	rig_status(r); /* the order was read before this */
	pthread_mutex_lock(&r->lock);
	cr_assert_eq(r->n_scale, 1);
	uint32_t n = r->scale_workers;
	pthread_mutex_unlock(&r->lock);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
	fake_end(left);
	return n;
}

Test(fleet_orders, an_idle_worker_of_another_host_takes_nobodys_place)
{
	struct fake_worker left = {.host = "there"};
	cr_assert_eq(asked_beside(&left, NULL), 2);
}

Test(fleet_orders, an_idle_worker_that_was_started_for_it_is_one_of_the_group)
{
	char host[128] = "";
	gethostname(host, sizeof host - 1);
	struct fake_worker left = {.host = host, .pid = getpid()};
	cr_assert_eq(asked_beside(&left, NULL), 2); /* it, and another one */
}

Test(fleet_orders, an_idle_worker_of_another_device_than_was_asked_for_takes_nobodys_place)
{
	char host[128] = "";
	gethostname(host, sizeof host - 1);
	struct fake_worker left = {.host = host, .pid = getpid()};
	cr_assert_eq(asked_beside(&left, "cuda:0"), 2);
}
