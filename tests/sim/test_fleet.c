/* Workers come and go: several replicas, groups of workers.  Every job gets the
 * tokens that it has undisturbed, once. */
#include "base/clock.h"
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

Test(fleet, two_replicas_share_the_load)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.step_us = 500}, b = {.step_us = 500};
	fake_start(&a, r);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	submit_many(r, 16, 30, 40);
	finish_many(r, 16);
	cr_assert_gt(a.n_plans, 30);
	cr_assert_gt(b.n_plans, 30);
	const struct engine_status *s = rig_status(r);
	cr_assert_eq(s->n_workers, 2);
	cr_assert_eq(s->n_blocks, 2 * RIG_BLOCKS);
	cr_assert_eq(s->generated_tokens, s->replicas[0].generated_tokens + s->replicas[1].generated_tokens);
	cr_assert_neq(s->workers[0].replica, s->workers[1].replica);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(fleet, the_jobs_of_a_lost_replica_go_on_at_the_other)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.die_at = 20}, b = {0};
	fake_start(&a, r);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	submit_many(r, 12, 30, 60);
	finish_many(r, 12);
	cr_assert(r->ready); /* one served all the time */
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(fleet, a_replica_that_hangs_is_lost_and_taken_back_when_it_speaks)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.hang_at = 10, .hang_ms = 4000}, b = {.step_us = 20000};
	fake_start(&a, r);
	rig_wait_replicas(r, 1, "serving");
	rig_submit(r, 0, 0, 30, 60);
	rig_wait_tokens(r, 0, 2);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	rig_finish(r, 0); /* at b */
	cr_assert_gt(b.n_plans, 0);
	rig_wait_replicas(r, 2, "serving"); /* a is back */
	cr_assert_eq(a.n_loads, 2);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

/* ---- numerics classes ---- */

/* A job that has begun at one class, whose only worker then dies; another class serves. */
static void lose_a_class(struct rig *r, struct fake_worker *a, struct fake_worker *b)
{
	a->step_us = 10000;
	b->numerics = "class b";
	fake_start(a, r);
	rig_wait_ready(r, true);
	rig_submit(r, 0, 0, 30, 200);
	rig_wait_tokens(r, 0, 3);
	fake_start(b, r);
	rig_wait_replicas(r, 2, "serving");
	atomic_store(&a->dies, true); /* in the midst of the job */
	rig_wait_replicas(r, 1, "serving");
}

Test(fleet, a_job_that_has_begun_stays_within_its_class)
{
	struct rig *r = rig_new(&(struct engine_config){.worker_wait_us = 500000});
	struct fake_worker a = {0}, b = {0};
	lose_a_class(r, &a, &b);
	rig_submit(r, 1, 500, 30, 20);
	rig_finish(r, 1); /* a new one may go anywhere */
	rig_wait_end(r, 0);
	cr_assert_eq(r->jobs[0].code, E_WORKER_LOST);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(fleet, a_job_goes_on_when_its_class_is_back)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {0}, b = {0}, c = {0};
	lose_a_class(r, &a, &b);
	fake_start(&c, r);
	rig_finish(r, 0);
	cr_assert_gt(c.n_plans, 0);
	cr_assert_eq(b.n_plans, 0);
	cr_assert(!r->jobs[0].class_changed);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
	fake_end(&c);
}

Test(fleet, a_change_of_class_that_is_allowed_is_marked)
{
	struct rig *r = rig_new(&(struct engine_config){.class_change = true});
	struct fake_worker a = {0}, b = {0};
	lose_a_class(r, &a, &b);
	rig_finish(r, 0);
	cr_assert(r->jobs[0].class_changed);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

/* Everything was started anew, on another kind of device: the job's class is not there. */
Test(fleet, a_job_from_before_a_restart_stays_within_its_class)
{
	struct rig *r = rig_new(&(struct engine_config){.worker_wait_us = 500000});
	struct fake_worker b = {.numerics = "class b"};
	fake_start(&b, r);
	rig_wait_ready(r, true);
	rig_resume(r, 0, 30, 20, 5, "class a");
	rig_wait_end(r, 0);
	cr_assert_eq(r->jobs[0].code, E_WORKER_LOST);
	cr_assert_eq(r->jobs[0].n_out, 5);
	cr_assert_eq(b.n_plans, 0);
	rig_free(r);
	fake_end(&b);
}

Test(fleet, a_job_from_before_a_restart_waits_for_its_class)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {0}, b = {.numerics = "class b"};
	rig_resume(r, 0, 30, 20, 5, "class a");
	fake_start(&b, r);
	rig_wait_ready(r, true);
	fake_start(&a, r);
	rig_finish(r, 0);
	cr_assert_eq(b.n_plans, 0);
	cr_assert(!r->jobs[0].class_changed);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(fleet, a_change_of_class_over_a_restart_is_marked)
{
	struct rig *r = rig_new(&(struct engine_config){.class_change = true});
	struct fake_worker b = {.numerics = "class b"};
	rig_resume(r, 0, 30, 20, 5, "class a");
	fake_start(&b, r);
	rig_finish(r, 0);
	cr_assert(r->jobs[0].class_changed);
	rig_free(r);
	fake_end(&b);
}

/* ---- jobs that not every replica holds ---- */

enum { SMALL_BLOCKS = 4, LARGER = 100 }; /* tokens that such a pool does not hold */

/* A worker under the test's hand, told to load, which it does not finish yet. */
static void *slow_loader(struct rig *r, struct bus_load *load)
{
	void *peer = rig_peer(r, "slow");
	rig_say(peer, &(struct bus_msg){.type = BUS_HELLO, .hello = {"cpu", "here", 1}});
	cr_assert_eq(rig_hear(peer, load), BUS_LOAD);
	return peer;
}

/* Which replica serves first after a restart is chance. */
Test(fleet, a_job_from_before_a_restart_waits_for_a_replica_that_holds_it)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker small = {.n_blocks = SMALL_BLOCKS}, large = {0};
	rig_resume(r, 0, LARGER - 20, 20, 5, "class a"); /* read before the first one serves, ... */
	fake_start(&small, r);
	rig_wait_ready(r, true);
	rig_resume(r, 1, LARGER - 20, 20, 5, "class a"); /* ... and after that */
	const struct engine_status *s = rig_status(r);
	cr_assert(!r->jobs[0].done && !r->jobs[1].done, "%s%s", r->jobs[0].why, r->jobs[1].why);
	cr_assert(strstr(s->note, "2 jobs wait for a replica that holds 100 tokens: the largest holds 64"),
		  "%s", s->note);
	fake_start(&large, r);
	rig_finish(r, 0);
	rig_finish(r, 1);
	cr_assert_eq(small.n_plans, 0);
	cr_assert_str_empty(rig_status(r)->note);
	rig_free(r);
	fake_end(&small);
	fake_end(&large);
}

Test(fleet, a_job_from_before_a_restart_fails_where_the_model_itself_is_too_small)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {0};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	rig_resume(r, 0, RIG_CONTEXT, 1, 0, "class a");
	rig_wait_end(r, 0);
	cr_assert_eq(r->jobs[0].code, E_TOO_LONG);
	rig_free(r);
	fake_end(&a);
}

Test(fleet, a_job_that_came_first_is_judged_when_all_have_loaded)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker small = {.n_blocks = SMALL_BLOCKS};
	struct bus_load load;
	rig_submit(r, 0, 0, LARGER - 20, 20);
	void *peer = slow_loader(r, &load);
	fake_start(&small, r);
	rig_wait_ready(r, true);
	rig_status(r);
	cr_assert(!r->jobs[0].done, "%s", r->jobs[0].why);
	rig_say(peer,
		&(struct bus_msg){
			.type = BUS_READY,
			.ready = {.epoch = load.epoch, .n_blocks = RIG_BLOCKS, .n_vocab = DEVICE_VOCAB}});
	cr_assert_eq(rig_hear(peer, NULL), BUS_PLAN);
	zmq_close(peer);
	rig_free(r);
	fake_end(&small);
}

Test(fleet, a_job_that_came_first_and_that_nothing_holds_fails)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker small = {.n_blocks = SMALL_BLOCKS};
	struct bus_load load;
	rig_submit(r, 0, 0, LARGER - 20, 20);
	void *peer = slow_loader(r, &load);
	fake_start(&small, r);
	rig_wait_ready(r, true);
	rig_say(peer, &(struct bus_msg){.type = BUS_FAILED, .failed = {load.epoch, "no memory"}});
	rig_wait_end(r, 0);
	cr_assert_eq(r->jobs[0].code, E_TOO_LONG);
	zmq_close(peer);
	rig_free(r);
	fake_end(&small);
}

/* ---- where a job goes ---- */

Test(fleet, a_job_goes_where_its_beginning_is_computed)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {0}, b = {0};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	rig_submit(r, 0, 7, 150, 10);
	rig_finish(r, 0);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	for (uint64_t i = 1; i < 6; i++) { /* one after another: b is as idle as a */
		rig_submit(r, i, 7, 150, 10);
		rig_finish(r, i);
	}
	cr_assert_eq(b.n_plans, 0);
	rig_submit(r, 6, 400, 150, 100); /* something else goes anywhere */
	rig_submit(r, 7, 600, 150, 100);
	rig_finish(r, 6);
	rig_finish(r, 7);
	cr_assert_gt(b.n_plans, 0);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(fleet, a_replica_that_joins_takes_over_what_waits)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.step_us = 3000}, b = {.step_us = 3000};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	submit_many(r, 20, 30, 60); /* four run at a time */
	rig_wait_tokens(r, 0, 1);
	fake_start(&b, r);
	finish_many(r, 20);
	cr_assert_gt(b.n_plans, 20);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(fleet, a_job_goes_only_where_it_fits)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker small = {.n_blocks = 4}, large = {0};
	fake_start(&small, r);
	rig_wait_ready(r, true);
	cr_assert_eq(rig_status(r)->max_context, 64);
	fake_start(&large, r);
	rig_wait_replicas(r, 2, "serving");
	cr_assert_eq(rig_status(r)->max_context, RIG_CONTEXT);
	for (uint64_t i = 0; i < 6; i++)
		rig_submit(r, i, (uint32_t)i * 100, 60, 40);
	finish_many(r, 6);
	cr_assert_eq(small.n_plans, 0);
	rig_free(r);
	fake_end(&small);
	fake_end(&large);
}

Test(fleet, nothing_is_ready_while_nothing_can_serve)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {0}, b = {0};
	fake_start(&a, r);
	fake_start(&b, r);
	rig_wait_replicas(r, 2, "serving");
	fake_end(&a);
	rig_wait_replicas(r, 1, "serving");
	cr_assert(r->ready && rig_status(r)->ready);
	fake_end(&b);
	rig_wait_ready(r, false);
	cr_assert(!rig_status(r)->ready);
	cr_assert_eq(rig_status(r)->n_replicas, 0);
	rig_free(r);
}

/* ---- what is lost on the way ---- */

Test(fleet, a_plan_that_is_lost_costs_no_token)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.lose_plan = 12};
	fake_start(&a, r);
	submit_many(r, 6, 30, 60);
	finish_many(r, 6);
	cr_assert_eq(a.n_loads, 2); /* the same worker, told anew */
	cr_assert_eq(rig_status(r)->n_workers, 1);
	rig_free(r);
	fake_end(&a);
}

Test(fleet, the_last_plan_that_is_lost_is_missed_by_its_number)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.lose_plan = 1};
	fake_start(&a, r);
	rig_submit(r, 0, 0, 10, 1); /* no second plan shows the gap */
	rig_finish(r, 0);
	cr_assert_eq(a.n_loads, 2);
	rig_free(r);
	fake_end(&a);
}

Test(fleet, a_result_that_is_lost_costs_no_token)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {.lose_result = 12};
	fake_start(&a, r);
	submit_many(r, 3, 30, 60);
	finish_many(r, 3);
	cr_assert_eq(a.n_loads, 2);
	rig_free(r);
	fake_end(&a);
}

/* ---- groups ---- */

Test(fleet, a_group_is_formed_when_all_its_ranks_are_there)
{
	struct rig *r = rig_new(&(struct engine_config){.tp = 2});
	struct fake_worker a = {0}, b = {0}, c = {0};
	fake_start(&a, r);
	fake_start(&c, r);
	c.end = true; /* one that does not stay */
	pthread_join(c.thread, NULL);
	rig_submit(r, 0, 0, 30, 60);
	fake_start(&b, r);
	rig_finish(r, 0);
	/* The rank that does not answer may still have the last plans to read.  The one that does not stay may
	 * have been in a group with the first before it was missed: what counts is this group. */
	while (a.n_group_plans != b.n_group_plans)
		usleep(1000);
	cr_assert_eq(a.rank + b.rank, 1);
	cr_assert_eq((a.rank ? a : b).n_results, 0); /* rank 0 alone answers */
	const struct engine_status *s = rig_status(r);
	cr_assert_eq(s->n_replicas, 1);
	cr_assert_eq(s->replicas[0].tp, 2);
	cr_assert_eq(s->replicas[0].n_workers, 2);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(fleet, a_group_that_loses_a_rank_is_formed_anew)
{
	for (uint32_t lost = 0; lost < 2; lost++) {
		struct rig *r = rig_new(&(struct engine_config){.tp = 2});
		struct fake_worker w[3] = {0};
		fake_start(&w[0], r);
		fake_start(&w[1], r);
		rig_wait_ready(r, true);
		struct fake_worker *dies = w[0].rank == lost ? &w[0] : &w[1];
		struct fake_worker *stays = dies == &w[0] ? &w[1] : &w[0];
		w[0].step_us = w[1].step_us = 1000;
		rig_submit(r, 0, 0, 30, 200);
		rig_wait_tokens(r, 0, 5);
		fake_end(dies);
		rig_wait_ready(r, false);
		fake_start(&w[2], r);
		rig_finish(r, 0);
		cr_assert_eq(stays->rank, 1 - lost, "it keeps the shard that it has loaded");
		cr_assert_eq(w[2].rank, lost);
		rig_free(r);
		fake_end(stays);
		fake_end(&w[2]);
	}
}

Test(fleet, workers_that_are_too_few_for_a_group_wait_and_the_status_says_so)
{
	struct rig *r = rig_new(&(struct engine_config){.tp = 2});
	struct fake_worker w[5] = {{0}, {0}, {0}, {.host = "there"}, {.device = "cuda:0"}};
	for (int i = 0; i < 5; i++)
		fake_start(&w[i], r);
	rig_wait_replicas(r, 1, "serving");
	const struct engine_status *s = rig_status(r);
	for (int i = 0; s->n_workers < 5 && i < 3000; i++, s = rig_status(r))
		usleep(10000);
	cr_assert_eq(s->n_workers, 5);
	cr_assert_eq(s->n_replicas, 1); /* others are elsewhere, or of another kind */
	cr_assert(strstr(s->note, "3 workers wait"), "%s", s->note);
	rig_free(r);
	for (int i = 0; i < 5; i++)
		fake_end(&w[i]);
}

Test(fleet, ranks_that_compute_differently_are_no_group)
{
	struct rig *r = rig_new(&(struct engine_config){.tp = 2});
	struct fake_worker a = {0}, b = {.numerics = "class b"}, c = {0};
	fake_start(&a, r);
	rig_status(r);
	fake_start(&b, r);
	for (int i = 0; !a.stopped && !b.stopped && i < 1000; i++)
		usleep(10000);
	cr_assert(a.stopped != b.stopped); /* one of them is given up */
	c.numerics = a.stopped ? "class b" : NULL;
	fake_start(&c, r);
	rig_submit(r, 0, 0, 30, 20);
	rig_finish(r, 0);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
	fake_end(&c);
}

/* ---- peers that misbehave ---- */

static struct bus_msg hello_of(const char *device)
{
	struct bus_msg m = {.type = BUS_HELLO, .hello = {.host = "elsewhere", .pid = 5}};
	snprintf(m.hello.device, sizeof m.hello.device, "%s", device);
	return m;
}

Test(fleet, one_worker_more_than_there_may_be_is_told_to_stop)
{
	struct rig *r = rig_new(NULL);
	void *peers[ENGINE_WORKERS_MAX + 1];
	struct bus_msg m = hello_of("cpu");
	for (int i = 0; i <= ENGINE_WORKERS_MAX; i++) {
		char name[16];
		snprintf(name, sizeof name, "worker %d", i);
		peers[i] = rig_peer(r, name);
		rig_say(peers[i], &m);
		cr_assert_eq(rig_hear(peers[i], NULL), i < ENGINE_WORKERS_MAX ? BUS_LOAD : BUS_STOP);
	}
	for (int i = 0; i <= ENGINE_WORKERS_MAX; i++)
		zmq_close(peers[i]);
	rig_free(r);
}

Test(fleet, who_says_hello_again_and_again_is_given_up_and_others_go_on)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker a = {0};
	struct bus_msg m = hello_of("cpu");
	fake_start(&a, r);
	rig_wait_ready(r, true);
	void *peer = rig_peer(r, "flood");
	for (int i = 0; i < 2000; i++)
		rig_say(peer, &m);
	while (rig_hear(peer, NULL) != BUS_STOP)
		;
	submit_many(r, 4, 30, 40);
	finish_many(r, 4);
	zmq_close(peer);
	rig_free(r);
	fake_end(&a);
}

Test(fleet, nobody_takes_the_name_of_a_worker_that_is_there)
{
	struct rig *r = rig_new(&(struct engine_config){.bus = "tcp://127.0.0.1:*"});
	struct bus_load load;
	struct bus_msg m = hello_of("cpu");
	void *ours = rig_peer(r, "name"), *liar;
	rig_say(ours, &m);
	cr_assert_eq(rig_hear(ours, &load), BUS_LOAD);
	rig_say(ours,
		&(struct bus_msg){
			.type = BUS_READY,
			.ready = {.epoch = load.epoch, .n_blocks = RIG_BLOCKS, .n_vocab = DEVICE_VOCAB}});
	rig_wait_ready(r, true);
	liar = rig_peer(r, "name");
	rig_say(liar, &(struct bus_msg){.type = BUS_STOP});
	usleep(100000);
	rig_submit(r, 0, 0, 4, 4);
	cr_assert_eq(rig_hear(ours, NULL), BUS_PLAN);
	cr_assert(r->ready);
	zmq_close(ours);
	zmq_close(liar);
	rig_free(r);
}

Test(fleet, who_never_says_hello_is_told_to_stop)
{
	struct rig *r = rig_new(NULL);
	void *peer = rig_peer(r, "stranger");
	int timeout = 100;
	zmq_setsockopt(peer, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	char bytes[64];
	int n = -1;
	for (int i = 0; n < 0 && i < 100; i++) {
		rig_say(peer, &(struct bus_msg){.type = BUS_BEAT, .beat = {1, BUS_SERVING, 0, 1}});
		n = zmq_recv(peer, bytes, sizeof bytes, 0);
	}
	cr_assert_gt(n, 0);
	cr_assert_eq(bus_peek(bytes, (size_t)n, NULL, 0), BUS_STOP);
	zmq_close(peer);
	rig_free(r);
}
