/* test_fleet_orders.c - scale and drain while jobs run: every job gets the tokens of an undisturbed run,
 * once. */
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static const struct engine_config supervised = {.supervised = true};
static const struct fake_config slow = {.step_us = 5000};

/* ---- drain ---- */

static uint64_t worker_of(struct rig *r, uint32_t i)
{
	return rig_status(r)->replicas[i].workers[0];
}

Test(fleet_orders, jobs_of_a_drained_worker_move)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &(struct fake_config){.step_us = 1000});
	rig_wait_ready(r, true);
	uint64_t first = worker_of(r, 0);
	rig_worker(r, &(struct fake_config){.step_us = 1000});
	rig_wait_replicas(r, 2, "serving");
	rig_submit_many(r, 0, 12, 30, 100);
	rig_wait_tokens(r, 0, 1);
	rig_order(r, ENGINE_DRAIN, first, 0);
	rig_expect_order(r);
	cr_assert(a->stopped);
	cr_assert(!r->jobs[11].done); /* the drain did not wait for their end */
	rig_finish_many(r, 0, 12);
	cr_assert_eq(rig_status(r)->n_replicas, 1);
	cr_assert_eq(rig_status(r)->n_workers, 1);
	rig_free(r);
}

Test(fleet_orders, last_replica_of_a_numerics_class_finishes_its_jobs)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &(struct fake_config){.step_us = 1000});
	rig_wait_ready(r, true);
	uint64_t first = worker_of(r, 0);
	rig_submit_many(r, 0, 10, 30, 60); /* four of them begin */
	rig_wait_tokens(r, 0, 1);
	struct fake_worker *b = rig_worker(r, &(struct fake_config){.numerics = "class b"});
	rig_wait_replicas(r, 2, "serving");
	rig_order(r, ENGINE_DRAIN, first, 0);
	rig_expect_order(r);
	rig_finish_many(r, 0, 10);
	for (uint64_t i = 0; i < 10; i++)
		cr_assert(!r->jobs[i].class_changed);
	cr_assert(a->stopped && !b->stopped);
	rig_free(r);
}

Test(fleet_orders, only_replica_finishes_its_jobs_and_is_not_ready)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, &(struct fake_config){.step_us = 1000});
	rig_wait_ready(r, true);
	rig_submit_many(r, 0, 6, 30, 30);
	rig_wait_tokens(r, 0, 1);
	rig_order(r, ENGINE_DRAIN, worker_of(r, 0), 0);
	rig_wait_ready(r, false);
	rig_expect_order(r);
	rig_finish_many(r, 0, 6);
	rig_free(r);
}

/* Drain the only replica while it runs job 0. */
static void drain_with_a_job(struct rig *r)
{
	rig_submit(r, 0, 0, 30, 200);
	rig_wait_tokens(r, 0, 2);
	rig_order(r, ENGINE_DRAIN, worker_of(r, 0), 0);
	rig_wait_replicas(r, 1, "draining");
}

Test(fleet_orders, drain_continues_after_an_interrupted_connection)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &slow);
	rig_wait_ready(r, true);
	drain_with_a_job(r);
	a->hello_again = true;
	rig_expect_order(r);
	cr_assert(a->stopped);
	cr_assert_eq(a->n_loads, 2); /* to finish the job, which only this worker could continue */
	rig_finish(r, 0);
	rig_free(r);
}

Test(fleet_orders, drain_continues_after_the_loss_of_a_rank)
{
	struct rig *r = rig_new(&(struct engine_config){.tp = 2});
	struct fake_worker *a = rig_worker(r, &slow);
	struct fake_worker *b = rig_worker(r, &slow);
	rig_wait_ready(r, true);
	drain_with_a_job(r);
	rig_end_worker(b);
	struct fake_worker *c = rig_worker(r, NULL);
	rig_expect_order(r);
	rig_finish(r, 0);
	rig_wait_stopped(c); /* the whole tp_group */
	cr_assert(a->stopped);
	rig_free(r);
}

Test(fleet_orders, drain_stops_ranks_without_jobs)
{
	struct rig *r = rig_new(&(struct engine_config){.tp = 2, .worker_wait_us = 300000});
	struct fake_worker *a = rig_worker(r, &slow);
	struct fake_worker *b = rig_worker(r, &slow);
	rig_wait_ready(r, true);
	drain_with_a_job(r);
	rig_end_worker(b);
	rig_wait_failed(r, 0, E_WORKER_LOST);
	rig_expect_order(r);
	cr_assert(a->stopped);
	rig_free(r);
}

Test(fleet_orders, jobs_of_a_leaving_worker_move)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &slow);
	rig_wait_ready(r, true);
	rig_worker(r, &slow);
	rig_wait_replicas(r, 2, "serving");
	rig_submit_many(r, 0, 12, 30, 200);
	rig_wait_tokens(r, 0, 1);
	a->leaves = true;
	rig_wait_stopped(a);
	cr_assert(!r->jobs[11].done); /* the worker did not wait for their end */
	rig_finish_many(r, 0, 12);
	cr_assert_eq(rig_status(r)->n_workers, 1);
	rig_free(r);
}

Test(fleet_orders, leaving_worker_without_a_successor_finishes_its_jobs)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &(struct fake_config){.step_us = 1000});
	rig_wait_ready(r, true);
	rig_submit_many(r, 0, 3, 30, 60);
	rig_wait_tokens(r, 0, 1);
	a->leaves = true;
	rig_wait_ready(r, false);
	rig_wait_stopped(a);
	rig_finish_many(r, 0, 3);
	rig_free(r);
}

Test(fleet_orders, drain_of_an_unknown_worker_fails)
{
	struct rig *r = rig_new(NULL);
	rig_order(r, ENGINE_DRAIN, 99, 0);
	cr_assert_eq(rig_wait_order(r), E_BAD_REQUEST);
	cr_assert(strstr(r->order_why, "no worker 99"), "%s", r->order_why);
	rig_free(r);
}

/* ---- scale ---- */

Test(fleet_orders, scale_up_requests_workers_and_waits_until_they_serve)
{
	struct rig *r = rig_new(&supervised);
	rig_worker(r, NULL);
	rig_wait_ready(r, true);
	rig_order(r, ENGINE_SCALE, 3, 0);
	rig_status(r); /* answered after the order */
	cr_assert_eq(rig_notices(r, &r->n_scale), 1);
	cr_assert_eq(rig_notices(r, &r->scale_workers), 2); /* in addition to the one that is not
							     * supervised */
	rig_worker(r, NULL);
	rig_wait_replicas(r, 2, "serving");
	cr_assert(!r->order_here);
	cr_assert_eq(rig_notices(r, &r->n_keep), 0);
	rig_worker(r, NULL);
	rig_expect_order(r);
	cr_assert_eq(rig_status(r)->n_replicas, 3);
	cr_assert_eq(rig_notices(r, &r->n_keep), 1); /* only once the scale is reached */
	rig_free(r);
}

Test(fleet_orders, scale_up_without_a_supervisor_names_the_command)
{
	struct rig *r = rig_new(NULL);
	rig_order(r, ENGINE_SCALE, 2, 0);
	cr_assert_eq(rig_wait_order(r), E_BAD_REQUEST);
	cr_assert(strstr(r->order_why, "quern-worker --bus inproc://bus"), "%s", r->order_why);
	rig_free(r);
}

Test(fleet_orders, scale_up_without_new_workers_times_out)
{
	struct rig *r = rig_new(&supervised);
	rig_order(r, ENGINE_SCALE, 2, 300000);
	cr_assert_eq(rig_wait_order(r), E_NOT_READY);
	cr_assert(strstr(r->order_why, "0 of 2 replicas serve"), "%s", r->order_why);
	rig_free(r);
}

/* The order fails at once, not after its timeout: a retry would fail the same way. */
Test(fleet_orders, scale_up_fails_when_a_worker_cannot_serve)
{
	struct rig *r = rig_new(&supervised);
	struct bus_load load;
	char host[128] = "";
	gethostname(host, sizeof host - 1); /* the host of a worker that the supervisor started */
	rig_worker(r, NULL);
	rig_wait_ready(r, true);
	rig_order(r, ENGINE_SCALE, 2, 0);
	void *peer = rig_peer(r, "unable");
	rig_peer_hello(peer, "cuda:9", host);
	cr_assert_eq(rig_peer_recv(peer, &load), BUS_LOAD);
	struct bus_msg no = {.type = BUS_FAILED, .failed.epoch = load.epoch};
	snprintf(no.failed.why, sizeof no.failed.why, "there is no such device");
	rig_peer_send(peer, &no);
	cr_assert_eq(rig_wait_order(r), E_NOT_READY);
	cr_assert(strstr(r->order_why, "1 of 2 replicas serve"), "%s", r->order_why);
	cr_assert(strstr(r->order_why, "there is no such device"), "%s", r->order_why);
	rig_free(r);
}

static int n_stopped(const struct rig *r)
{
	int n = 0;
	for (int i = 0; i < 4; i++)
		n += r->workers[i]->stopped;
	return n;
}

Test(fleet_orders, scale_down_loses_no_job)
{
	struct rig *r = rig_new(&supervised);
	for (int i = 0; i < 4; i++)
		rig_worker(r, &(struct fake_config){.step_us = 500});
	rig_wait_replicas(r, 4, "serving");
	rig_submit_many(r, 0, 24, 30, 100);
	rig_wait_tokens(r, 0, 1);
	rig_order(r, ENGINE_SCALE, 2, 0);
	rig_expect_order(r);
	cr_assert_eq(rig_status(r)->n_replicas, 2);
	while (n_stopped(r) < 2) /* a scale is done when the stops are sent */
		usleep(1000);
	cr_assert_eq(n_stopped(r), 2);
	rig_order(r, ENGINE_SCALE, 1, 0);
	rig_expect_order(r);
	rig_finish_many(r, 0, 24);
	rig_free(r);
}

Test(fleet_orders, later_scale_ends_an_earlier_one)
{
	struct rig *r = rig_new(&supervised);
	rig_worker(r, NULL);
	rig_wait_ready(r, true);
	rig_order(r, ENGINE_SCALE, 5, 0);
	rig_status(r);
	rig_order(r, ENGINE_SCALE, 1, 0);
	cr_assert_eq(rig_wait_order(r), E_OVERLOADED);
	r->order_here = false;
	cr_assert_eq(rig_wait_order(r), CODE_OK);
	rig_free(r);
}

/* Order a second replica while one tp_group of two workers serves and a third worker is idle; return how many
 * workers the supervisor is requested to run. */
static uint32_t requested_workers(const struct fake_config *beside, const char *device)
{
	struct rig *r = rig_new(&(struct engine_config){.supervised = true, .tp = 2});
	rig_worker(r, NULL);
	rig_worker(r, NULL);
	rig_wait_ready(r, true);
	rig_worker(r, beside);
	while (rig_status(r)->n_workers < 3)
		usleep(1000);
	r->order_device = device;
	rig_order(r, ENGINE_SCALE, 2, 0);
	rig_status(r); /* answered after the order */
	cr_assert_eq(rig_notices(r, &r->n_scale), 1);
	uint32_t n = rig_notices(r, &r->scale_workers);
	rig_free(r);
	return n;
}

Test(fleet_orders, idle_worker_of_another_host_does_not_count_for_a_scale)
{
	cr_assert_eq(requested_workers(&(struct fake_config){.host = "there"}, NULL), 2);
}

Test(fleet_orders, idle_supervised_worker_counts_for_a_scale)
{
	char host[128] = "";
	gethostname(host, sizeof host - 1);
	/* The idle worker and one more. */
	cr_assert_eq(requested_workers(&(struct fake_config){.host = host, .pid = getpid()}, NULL), 2);
}

Test(fleet_orders, idle_worker_of_another_device_does_not_count_for_a_scale)
{
	char host[128] = "";
	gethostname(host, sizeof host - 1);
	cr_assert_eq(requested_workers(&(struct fake_config){.host = host, .pid = getpid()}, "cuda:0"), 2);
}

/* ---- choice of the replica to stop ---- */

static uint64_t n_seqs(const struct fake_worker *w)
{
	return (uint64_t)w->n_seqs;
}

Test(fleet_orders, scale_down_takes_idle_replicas)
{
	struct rig *r = rig_new(&supervised);
	struct fake_worker *w[4];
	for (int i = 0; i < 4; i++) {
		w[i] = rig_worker(r, &slow);
		rig_wait_replicas(r, (uint32_t)i + 1, "serving");
	}
	rig_submit_many(r, 0, 2, 30, 200); /* on two of them */
	rig_wait_tokens(r, 0, 1);
	rig_wait_tokens(r, 1, 1);
	rig_order(r, ENGINE_SCALE, 2, 0);
	rig_expect_order(r);
	rig_finish_many(r, 0, 2);
	for (int i = 0; i < 4; i++)
		if (n_seqs(w[i]) == 0)
			rig_wait_stopped(w[i]);
		else
			cr_expect(!w[i]->stopped, "worker %d ran %lu sequences", i,
				  (unsigned long)n_seqs(w[i]));
	rig_free(r);
}

Test(fleet_orders, scale_down_takes_replicas_with_the_least_work)
{
	struct rig *r = rig_new(&supervised);
	struct fake_worker *a = rig_worker(r, &slow);
	rig_wait_ready(r, true);
	rig_submit_many(r, 0, 3, 60, 150);
	for (uint64_t i = 0; i < 3; i++)
		rig_wait_tokens(r, i, 1);
	struct fake_worker *b = rig_worker(r, &slow);
	rig_wait_replicas(r, 2, "serving");
	rig_submit(r, 3, 0, 20, 200); /* on the idle one */
	rig_wait_tokens(r, 3, 1);
	cr_assert_eq(n_seqs(b), 1);
	rig_order(r, ENGINE_SCALE, 1, 0);
	rig_expect_order(r);
	rig_wait_stopped(b);
	cr_assert(!a->stopped);
	rig_finish_many(r, 0, 4);
	rig_free(r);
}
