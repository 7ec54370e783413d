/* test_engine.c - the engine with simulated workers: jobs end once and with the right tokens, even if workers
 * die, hang or send garbage, or jobs hit a limit. */
#include "base/alloc.h"
#include "tests/sim/device.h"
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static const struct engine_config short_wait = {.worker_wait_us = 300000};

/* The job has three outputs. */
Test(engine, job_gets_its_tokens)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, NULL);
	rig_submit_n(r, 1, 31, 40, 50, 3);
	rig_finish(r, 1);
	rig_free(r);
}

/* Run a job of n outputs until its only worker fails; then another worker joins. */
static void survive(const struct fake_config *faulty, uint32_t n)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, faulty);
	rig_wait_ready(r, true);
	rig_submit_n(r, 2, 62, 40, 100, n);
	rig_wait_ready(r, false);
	cr_assert(!r->jobs[2].done);
	rig_worker(r, NULL);
	rig_finish(r, 2);
	rig_free(r);
}

Test(engine, job_survives_a_worker_that_dies)
{
	survive(&(struct fake_config){.die_at = 20}, 2);
}

Test(engine, job_survives_a_worker_that_hangs)
{
	survive(&(struct fake_config){.hang_at = 20}, 1);
}

/* The worker receives stop and exits. */
Test(engine, job_survives_a_worker_that_sends_garbage)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &(struct fake_config){.garbage_at = 10});
	rig_wait_ready(r, true);
	rig_submit(r, 4, 124, 40, 60);
	rig_join_worker(a);
	cr_assert(a->stopped);
	rig_worker(r, NULL);
	rig_finish(r, 4);
	rig_free(r);
}

Test(engine, job_waits_for_a_worker_only_so_long)
{
	struct rig *r = rig_new(&short_wait);
	rig_submit(r, 5, 155, 4, 4);
	rig_wait_failed(r, 5, E_WORKER_LOST);
	rig_free(r);
}

Test(engine, durable_job_waits_for_a_worker_without_limit)
{
	struct rig *r = rig_new(&short_wait);
	rig_resume(r, 7, 4, 5, 2, "class a", true);
	rig_submit(r, 8, 248, 4, 4);
	rig_wait_failed(r, 8, E_WORKER_LOST);
	cr_assert(!r->jobs[7].done);
	cr_assert_eq(r->jobs[7].n_out, 2);
	rig_worker(r, NULL);
	rig_finish(r, 7);
	rig_free(r);
}

Test(engine, full_queue_refuses_jobs)
{
	struct rig *r = rig_new(&(struct engine_config){.max_jobs = 4});
	int n_accepted = 0;
	rig_submit_many(r, 10, 20, 4, 4);
	for (uint64_t job = 10; job < 20; job++) {
		rig_wait_accepted(r, job);
		n_accepted += r->jobs[job].accepted;
		cr_assert(r->jobs[job].accepted || r->jobs[job].code == E_OVERLOADED);
	}
	cr_assert_eq(n_accepted, 4);
	rig_free(r);
}

/* Fill the queue with jobs of one account after another. */
Test(engine, an_account_leaves_room_in_the_queue)
{
	enum { MOST = 12 };
	struct rig *r = rig_new(&(struct engine_config){.max_jobs = MOST});
	uint32_t n[4] = {0}, sum = 0;
	/* The last group has no account: it may fill the rest. */
	for (uint32_t i = 0; i < 4; i++) {
		r->account = i < 3 ? i + 1 : 0;
		for (uint32_t job = i * MOST; job < (i + 1) * MOST; job++) {
			rig_submit(r, job, 7, 4, 4);
			rig_wait_accepted(r, job);
			n[i] += r->jobs[job].accepted;
			cr_assert(r->jobs[job].accepted || (r->jobs[job].code == E_OVERLOADED &&
							    strstr(r->jobs[job].why, "queue is full")));
		}
		sum += n[i];
	}
	cr_expect_eq(n[0], MOST * 3 / 4, "%u", n[0]);
	cr_expect(n[1] == 2 && n[2] == 1, "%u %u", n[1], n[2]);
	cr_expect_eq(sum, MOST);
	rig_free(r);
}

static void wait_load(struct engine_load *load, uint32_t n_queued, uint64_t tokens)
{
	for (int i = 0; i < 30000 && (load->n_queued != n_queued || load->queued_tokens != tokens); i++)
		usleep(1000);
	cr_expect_eq(load->n_queued, n_queued);
	cr_expect_eq(load->queued_tokens, tokens);
}

Test(engine, length_of_the_queue_is_published)
{
	struct engine_load load = {0};
	struct rig *r = rig_new(&(struct engine_config){.load = &load});
	rig_submit_many(r, 10, 13, 4, 4);
	for (uint64_t job = 10; job < 13; job++)
		rig_wait_accepted(r, job);
	wait_load(&load, 3, 12);
	rig_worker(r, NULL);
	rig_finish_many(r, 10, 13);
	wait_load(&load, 0, 0);
	rig_free(r);
}

Test(engine, reason_of_a_failed_load_is_reported)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, &(struct fake_config){.fail_load = true});
	for (int i = 0; !r->unready_why[0] && i < 30000; i++) {
		rig_status(r);
		usleep(1000);
	}
	cr_assert(strstr(r->unready_why, "the weights are torn"), "%s", r->unready_why);
	rig_free(r);
}

Test(engine, job_longer_than_any_pool_is_refused)
{
	struct rig *r = rig_new(NULL);
	rig_submit(r, 6, 186, 200, 100);
	rig_wait_failed(r, 6, E_TOO_LONG);
	cr_assert(r->jobs[6].refused);
	rig_free(r);
}

Test(engine, front_end_may_close_first)
{
	struct rig *r = rig_new(NULL);
	zmq_unbind(r->events, ENGINE_OUT);
	zmq_close(r->events);  /* front_stop() does the same, with jobs in flight */
	usleep(200000);        /* until the socket is really closed */
	rig_request_status(r); /* the reply cannot be sent */
	usleep(100000);
	r->events = zmq_socket(r->zmq, ZMQ_PULL); /* for rig_free() */
	rig_free(r);
}

/* ---- peers that misbehave ---- */

Test(engine, no_frame_of_a_message_is_taken_for_its_routing_id)
{
	struct rig *r = rig_new(NULL);
	char longer[100];
	struct bus_load load;
	struct buf b = {0};
	void *worker = rig_loading_peer(r, "worker", &load);
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	void *liar = rig_peer(r, longer);
	rig_peer_ready(worker, &load);
	rig_wait_ready(r, true);
	bus_encode(&(struct bus_msg){.type = BUS_STOP}, &b);
	zmq_send(liar, "worker", 6, ZMQ_SNDMORE);
	zmq_send(liar, b.p, b.len, 0);
	/* If the frame were taken for a routing id, the worker would be lost; instead it receives a plan. */
	rig_submit(r, 1, 31, 4, 4);
	cr_assert_eq(rig_peer_recv(worker, NULL), BUS_PLAN);
	buf_fini(&b);
	rig_free(r);
}

Test(engine, pool_beyond_any_machine_is_rejected)
{
	struct rig *r = rig_new(NULL);
	struct bus_load load;
	void *peer = rig_loading_peer(r, "worker", &load);
	rig_peer_send(peer, &(struct bus_msg){.type = BUS_READY,
					      .ready = {.epoch = load.epoch,
							.n_blocks = INT32_MAX,
							.n_vocab = DEVICE_VOCAB}});
	cr_assert_eq(rig_peer_recv(peer, NULL), BUS_STOP);
	rig_free(r);
}

Test(engine, results_from_before_an_interrupted_connection_are_ignored)
{
	struct rig *r = rig_new(NULL);
	struct bus_load load;
	struct buf b = {0};
	void *peer = rig_loading_peer(r, "worker", &load);
	rig_peer_ready(peer, &load);
	rig_wait_ready(r, true);
	const struct result late = {.epoch = load.epoch, .number = 1};
	rig_peer_hello(peer, "cpu", "here");
	bus_encode_result(&late, &b);
	zmq_send(peer, b.p, b.len, 0);
	cr_assert_eq(rig_peer_recv(peer, &load), BUS_LOAD);
	rig_wait_ready(r, false);
	rig_peer_ready(peer, &load);
	rig_wait_ready(r, true);
	buf_fini(&b);
	rig_free(r);
}
