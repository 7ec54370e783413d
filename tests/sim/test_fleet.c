/* test_fleet.c - replicas and tp_groups while workers join, die, hang and lose messages: every job gets the
 * tokens of an undisturbed run, once. */
#include "base/clock.h"
#include "tests/sim/device.h"
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

Test(fleet, two_replicas_share_the_load)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &(struct fake_config){.step_us = 500});
	struct fake_worker *b = rig_worker(r, &(struct fake_config){.step_us = 500});
	rig_wait_replicas(r, 2, "serving");
	rig_submit_many(r, 0, 16, 30, 40);
	rig_finish_many(r, 0, 16);
	cr_assert_gt(a->n_plans, 30);
	cr_assert_gt(b->n_plans, 30);
	const struct engine_status *s = rig_status(r);
	cr_assert_eq(s->n_workers, 2);
	cr_assert_eq(s->counts.n_blocks, 2 * RIG_BLOCKS);
	cr_assert_eq(s->counts.generated_tokens,
		     s->replicas[0].counts.generated_tokens + s->replicas[1].counts.generated_tokens);
	cr_assert_neq(s->workers[0].replica, s->workers[1].replica);
	rig_free(r);
}

Test(fleet, jobs_of_a_lost_replica_continue_at_the_other)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, &(struct fake_config){.die_at = 20});
	rig_worker(r, NULL);
	rig_wait_replicas(r, 2, "serving");
	rig_submit_many(r, 0, 12, 30, 60);
	rig_finish_many(r, 0, 12);
	cr_assert(r->ready); /* one replica always served */
	rig_free(r);
}

Test(fleet, hung_worker_is_lost_and_revived_by_its_next_message)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, &(struct fake_config){.hang_at = 10, .hang_ms = 4000});
	rig_wait_replicas(r, 1, "serving");
	rig_submit(r, 0, 0, 30, 60);
	rig_wait_tokens(r, 0, 2);
	struct fake_worker *b = rig_worker(r, &(struct fake_config){.step_us = 20000});
	rig_wait_replicas(r, 2, "serving");
	rig_finish(r, 0); /* on b */
	cr_assert_gt(b->n_plans, 0);
	rig_wait_replicas(r, 2, "serving"); /* a is back */
	cr_assert_eq(a->n_loads, 2);
	rig_free(r);
}

/* ---- numerics classes ---- */

static const struct engine_config short_wait = {.worker_wait_us = 500000};
static const struct engine_config class_change = {.class_change = true};
static const struct fake_config class_b = {.numerics = "class b"};

/* Start job 0 in class a and let the only worker of that class die; class b serves. */
static struct rig *lose_class_a(const struct engine_config *cfg, struct fake_worker **b)
{
	struct rig *r = rig_new(cfg);
	struct fake_worker *a = rig_worker(r, &(struct fake_config){.step_us = 10000});
	rig_wait_ready(r, true);
	rig_submit(r, 0, 0, 30, 200);
	rig_wait_tokens(r, 0, 3);
	*b = rig_worker(r, &class_b);
	rig_wait_replicas(r, 2, "serving");
	atomic_store(&a->dies, true); /* in the middle of the job */
	rig_wait_replicas(r, 1, "serving");
	return r;
}

Test(fleet, begun_job_stays_within_its_numerics_class)
{
	struct fake_worker *b;
	struct rig *r = lose_class_a(&short_wait, &b);
	rig_submit(r, 1, 500, 30, 20);
	rig_finish(r, 1); /* a new job may run in any class */
	rig_wait_failed(r, 0, E_WORKER_LOST);
	rig_free(r);
}

Test(fleet, begun_job_continues_when_its_numerics_class_is_back)
{
	struct fake_worker *b;
	struct rig *r = lose_class_a(NULL, &b);
	struct fake_worker *c = rig_worker(r, NULL);
	rig_finish(r, 0);
	cr_assert_gt(c->n_plans, 0);
	cr_assert_eq(b->n_plans, 0);
	cr_assert(!r->jobs[0].class_changed);
	rig_free(r);
}

Test(fleet, allowed_change_of_numerics_class_is_marked)
{
	struct fake_worker *b;
	struct rig *r = lose_class_a(&class_change, &b);
	rig_finish(r, 0);
	cr_assert(r->jobs[0].class_changed);
	rig_free(r);
}

/* After a restart on another kind of device, no replica has the job's class. */
Test(fleet, resumed_job_stays_within_its_numerics_class)
{
	struct rig *r = rig_new(&short_wait);
	struct fake_worker *b = rig_worker(r, &class_b);
	rig_wait_ready(r, true);
	rig_resume(r, 0, 30, 20, 5, "class a", false);
	rig_wait_failed(r, 0, E_WORKER_LOST);
	cr_assert_eq(r->jobs[0].n_out, 5);
	cr_assert_eq(b->n_plans, 0);
	rig_free(r);
}

Test(fleet, resumed_job_waits_for_its_numerics_class)
{
	struct rig *r = rig_new(NULL);
	rig_resume(r, 0, 30, 20, 5, "class a", false);
	struct fake_worker *b = rig_worker(r, &class_b);
	rig_wait_ready(r, true);
	rig_worker(r, NULL);
	rig_finish(r, 0);
	cr_assert_eq(b->n_plans, 0);
	cr_assert(!r->jobs[0].class_changed);
	rig_free(r);
}

Test(fleet, allowed_change_of_numerics_class_over_a_restart_is_marked)
{
	struct rig *r = rig_new(&class_change);
	rig_resume(r, 0, 30, 20, 5, "class a", false);
	rig_worker(r, &class_b);
	rig_finish(r, 0);
	cr_assert(r->jobs[0].class_changed);
	rig_free(r);
}

/* The grammar engine's version matters only to jobs with structured output. */
static struct rig *resume_at_newer_grammar(struct constraint *constraint, struct fake_worker **newer)
{
	struct rig *r = rig_new(&short_wait);
	*newer = rig_worker(r, &(struct fake_config){.numerics = "class a grammar=2 tp=1"});
	rig_wait_ready(r, true);
	r->constraint = constraint;
	rig_resume(r, 0, 30, 20, 5, "class a grammar=1 tp=1", false);
	return r;
}

Test(fleet, job_without_a_form_goes_on_with_a_newer_grammar_engine)
{
	struct fake_worker *newer;
	struct rig *r = resume_at_newer_grammar(NULL, &newer);
	rig_finish(r, 0);
	cr_assert_gt(newer->n_plans, 0);
	cr_assert(!r->jobs[0].class_changed);
	rig_free(r);
}

Test(fleet, job_with_a_form_stays_with_its_grammar_engine)
{
	struct fake_worker *newer;
	struct rig *r = resume_at_newer_grammar(constraint_new(1, "a+", 2), &newer);
	rig_wait_failed(r, 0, E_WORKER_LOST);
	cr_assert_eq(newer->n_plans, 0);
	cr_assert_eq(r->jobs[0].n_out, 5);
	rig_free(r);
}

/* ---- jobs too long for some replicas ---- */

enum { SMALL_BLOCKS = 4, LARGER = 100 }; /* blocks of a small pool; tokens that do not fit it */
static const struct fake_config small_pool = {.n_blocks = SMALL_BLOCKS};

/* After a restart, replicas may start to serve in any order. */
Test(fleet, resumed_job_waits_for_a_replica_large_enough)
{
	struct rig *r = rig_new(NULL);
	rig_resume(r, 0, LARGER - 20, 20, 5, "class a", false); /* before the first replica serves, ... */
	struct fake_worker *small = rig_worker(r, &small_pool);
	rig_wait_ready(r, true);
	rig_resume(r, 1, LARGER - 20, 20, 5, "class a", false); /* ... and after that */
	const struct engine_status *s = rig_status(r);
	cr_assert(!r->jobs[0].done && !r->jobs[1].done, "%s%s", r->jobs[0].why, r->jobs[1].why);
	cr_assert(strstr(s->note, "2 jobs wait for a replica that holds 100 tokens: the largest holds 64"),
		  "%s", s->note);
	rig_worker(r, NULL);
	rig_finish(r, 0);
	rig_finish(r, 1);
	cr_assert_eq(small->n_plans, 0);
	cr_assert_str_empty(rig_status(r)->note);
	rig_free(r);
}

Test(fleet, resumed_job_longer_than_the_model_context_fails)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, NULL);
	rig_wait_ready(r, true);
	rig_resume(r, 0, RIG_CONTEXT, 1, 0, "class a", false);
	rig_wait_failed(r, 0, E_TOO_LONG);
	rig_free(r);
}

Test(fleet, early_job_is_kept_while_a_replica_is_loading)
{
	struct rig *r = rig_new(NULL);
	struct bus_load load;
	rig_submit(r, 0, 0, LARGER - 20, 20);
	void *peer = rig_loading_peer(r, "slow", &load);
	rig_worker(r, &small_pool);
	rig_wait_ready(r, true);
	rig_status(r);
	cr_assert(!r->jobs[0].done, "%s", r->jobs[0].why);
	rig_peer_ready(peer, &load);
	cr_assert_eq(rig_peer_recv(peer, NULL), BUS_PLAN);
	rig_free(r);
}

Test(fleet, early_job_too_long_for_every_replica_fails)
{
	struct rig *r = rig_new(NULL);
	struct bus_load load;
	rig_submit(r, 0, 0, LARGER - 20, 20);
	void *peer = rig_loading_peer(r, "slow", &load);
	rig_worker(r, &small_pool);
	rig_wait_ready(r, true);
	rig_peer_send(peer, &(struct bus_msg){.type = BUS_FAILED, .failed = {load.epoch, "no memory"}});
	rig_wait_failed(r, 0, E_TOO_LONG);
	rig_free(r);
}

/* ---- routing ---- */

Test(fleet, job_goes_to_the_replica_with_its_prefix)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, NULL);
	rig_wait_ready(r, true);
	rig_submit(r, 0, 7, 150, 10);
	rig_finish(r, 0);
	struct fake_worker *b = rig_worker(r, NULL);
	rig_wait_replicas(r, 2, "serving");
	for (uint64_t i = 1; i < 6; i++) { /* one at a time, so both replicas are idle */
		rig_submit(r, i, 7, 150, 10);
		rig_finish(r, i);
	}
	cr_assert_eq(b->n_plans, 0);
	rig_submit(r, 6, 400, 150, 100); /* other prefixes may go anywhere */
	rig_submit(r, 7, 600, 150, 100);
	rig_finish(r, 6);
	rig_finish(r, 7);
	cr_assert_gt(b->n_plans, 0);
	rig_free(r);
}

Test(fleet, joining_replica_steals_waiting_jobs)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, &(struct fake_config){.step_us = 3000});
	rig_wait_ready(r, true);
	rig_submit_many(r, 0, 20, 30, 60); /* four run at a time */
	rig_wait_tokens(r, 0, 1);
	struct fake_worker *b = rig_worker(r, &(struct fake_config){.step_us = 3000});
	rig_finish_many(r, 0, 20);
	cr_assert_gt(b->n_plans, 20);
	rig_free(r);
}

Test(fleet, job_goes_only_where_it_fits)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *small = rig_worker(r, &small_pool);
	rig_wait_ready(r, true);
	cr_assert_eq(rig_status(r)->max_context, 64);
	rig_worker(r, NULL);
	rig_wait_replicas(r, 2, "serving");
	cr_assert_eq(rig_status(r)->max_context, RIG_CONTEXT);
	for (uint64_t i = 0; i < 6; i++)
		rig_submit(r, i, (uint32_t)i * 100, 60, 40);
	rig_finish_many(r, 0, 6);
	cr_assert_eq(small->n_plans, 0);
	rig_free(r);
}

Test(fleet, fleet_is_not_ready_while_no_replica_serves)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, NULL), *b = rig_worker(r, NULL);
	rig_wait_replicas(r, 2, "serving");
	rig_end_worker(a);
	rig_wait_replicas(r, 1, "serving");
	cr_assert(r->ready && rig_status(r)->ready);
	rig_end_worker(b);
	rig_wait_ready(r, false);
	cr_assert(!rig_status(r)->ready);
	cr_assert_eq(rig_status(r)->n_replicas, 0);
	rig_free(r);
}

/* ---- lost messages ---- */

/* A worker that loses a plan or a result receives the full state again: one more load, and no worker is
 * lost. */
static void lose_message(const struct fake_config *c, uint64_t n_jobs, uint32_t n_prompt, uint32_t max_tokens)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker *a = rig_worker(r, c);
	rig_submit_many(r, 0, n_jobs, n_prompt, max_tokens);
	rig_finish_many(r, 0, n_jobs);
	cr_assert_eq(a->n_loads, 2);
	cr_assert_eq(rig_status(r)->n_workers, 1);
	rig_free(r);
}

/* Counters only increase; gauges cover only existing replicas. */
Test(fleet, totals_include_replicas_that_have_ended)
{
	struct rig *r = rig_new(NULL);
	struct counts before, after;
	for (uint32_t n = 1; n <= 2; n++) {
		struct fake_worker *w = rig_worker(r, NULL);
		rig_wait_ready(r, true);
		rig_submit(r, n, 31 * n, 40, 20);
		rig_finish(r, n);
		before = rig_status(r)->counts;
		cr_assert_eq(before.prompt_tokens, 40 * n);
		cr_assert_eq(before.generated_tokens, 20 * n);
		cr_assert_eq(before.prefix_queries, 40 * n);
		cr_assert_eq(before.n_blocks, RIG_BLOCKS);
		rig_end_worker(w);
		rig_wait_ready(r, false);
		after = rig_status(r)->counts;
		cr_assert_eq(after.prompt_tokens, before.prompt_tokens);
		cr_assert_eq(after.generated_tokens, before.generated_tokens);
		cr_assert_eq(after.prefix_queries, before.prefix_queries);
		cr_assert_eq(after.n_steps, before.n_steps);
		cr_assert_eq(after.n_blocks, 0);
	}
	rig_free(r);
}

static void wait_turned(struct rig *r, uint32_t n)
{
	for (int i = 0; rig_notices(r, &r->n_turned) < n && i < 10000; i++)
		usleep(1000);
	cr_assert_eq(rig_notices(r, &r->n_turned), n);
}

/* A client that acts on the notice finds a front end that has the event.  While a notice is handled, the
 * engine sends nothing more. */
Test(fleet, notice_of_readiness_comes_after_the_event)
{
	struct rig *r = rig_new(NULL);
	atomic_store(&r->hold, true);
	struct fake_worker *w = rig_worker(r, NULL);
	wait_turned(r, 1);
	rig_wait_ready(r, true);
	atomic_store(&r->hold, false);
	rig_status(r);
	atomic_store(&r->hold, true);
	rig_end_worker(w);
	wait_turned(r, 2);
	rig_wait_ready(r, false);
	atomic_store(&r->hold, false);
	rig_free(r);
}

Test(fleet, lost_plan_costs_no_token)
{
	lose_message(&(struct fake_config){.lose_plan = 12}, 6, 30, 60);
}

/* No second plan reveals the gap; the number in the heartbeat does. */
Test(fleet, lost_last_plan_is_detected_by_its_number)
{
	lose_message(&(struct fake_config){.lose_plan = 1}, 1, 10, 1);
}

Test(fleet, lost_result_costs_no_token)
{
	lose_message(&(struct fake_config){.lose_result = 12}, 3, 30, 60);
}

/* ---- tp_groups ---- */

static const struct engine_config tp2 = {.tp = 2};

Test(fleet, tp_group_forms_when_all_ranks_have_joined)
{
	struct rig *r = rig_new(&tp2);
	struct fake_worker *a = rig_worker(r, NULL);
	rig_end_worker(rig_worker(r, NULL)); /* leaves again */
	rig_submit(r, 0, 0, 30, 60);
	struct fake_worker *b = rig_worker(r, NULL);
	rig_finish(r, 0);
	/* Rank 1 may still have the last plans to read.  The worker that left may have formed a tp_group with
	 * the first one before its loss was detected: only the plans of this group count. */
	while (a->n_group_plans != b->n_group_plans)
		usleep(1000);
	cr_assert_eq(a->rank + b->rank, 1);
	cr_assert_eq((a->rank ? a : b)->n_results, 0); /* only rank 0 sends results */
	const struct engine_status *s = rig_status(r);
	cr_assert_eq(s->n_replicas, 1);
	cr_assert_eq(s->replicas[0].tp, 2);
	cr_assert_eq(s->replicas[0].n_workers, 2);
	rig_free(r);
}

Test(fleet, tp_group_forms_again_after_the_loss_of_a_rank)
{
	for (uint32_t lost = 0; lost < 2; lost++) {
		struct rig *r = rig_new(&tp2);
		struct fake_worker *a = rig_worker(r, NULL), *b = rig_worker(r, NULL);
		rig_wait_ready(r, true);
		struct fake_worker *dies = a->rank == lost ? a : b, *stays = dies == a ? b : a;
		a->step_us = b->step_us = 1000;
		rig_submit(r, 0, 0, 30, 200);
		rig_wait_tokens(r, 0, 5);
		rig_end_worker(dies);
		rig_wait_ready(r, false);
		struct fake_worker *c = rig_worker(r, NULL);
		rig_finish(r, 0);
		cr_assert_eq(stays->rank, 1 - lost, "rank %u lost: the other keeps its shard", lost);
		cr_assert_eq(c->rank, lost);
		rig_free(r);
	}
}

Test(fleet, workers_too_few_for_a_tp_group_wait_with_a_status_note)
{
	struct rig *r = rig_new(&tp2);
	for (int i = 0; i < 3; i++)
		rig_worker(r, NULL);
	rig_worker(r, &(struct fake_config){.host = "there"});
	rig_worker(r, &(struct fake_config){.device = "cuda:0"});
	rig_wait_replicas(r, 1, "serving");
	const struct engine_status *s = rig_status(r);
	for (int i = 0; s->n_workers < 5 && i < 3000; i++, s = rig_status(r))
		usleep(10000);
	cr_assert_eq(s->n_workers, 5);
	cr_assert_eq(s->n_replicas, 1); /* the others have another host or device kind */
	cr_assert(strstr(s->note, "3 workers wait"), "%s", s->note);
	rig_free(r);
}

static void check_sharing(const char *device0, const char *device1, uint32_t want)
{
	struct rig *r = rig_new(&tp2);
	const char *const devices[] = {device0, device1}, *const names[] = {"a", "b"};
	struct bus_load load[2];
	void *peers[2];
	for (int i = 0; i < 2; i++) {
		peers[i] = rig_peer(r, names[i]);
		rig_peer_hello(peers[i], devices[i], "here");
	}
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(rig_peer_recv(peers[i], &load[i]), BUS_LOAD);
		cr_expect_eq(load[i].n_ranks, 2);
		cr_expect_eq(load[i].n_sharing, want, "%s and %s", device0, device1);
	}
	rig_free(r);
}

Test(fleet, ranks_know_how_many_share_their_cores)
{
	check_sharing("cpu", "cpu", 2);
	check_sharing("cpu:1", "cpu:1", 2);
	check_sharing("cpu:0", "cpu:1", 1);
}

/* Check the mode in the load of a worker that would choose `own` itself. */
static bool has_loaded;

static void check_told(struct rig *r, const char *name, const char *device, const char *own, const char *want)
{
	struct bus_msg m = {.type = BUS_HELLO, .hello = {.pid = 1, .host = "here", .loaded = has_loaded}};
	struct bus_load load;
	void *peer = rig_peer(r, name);
	snprintf(m.hello.device, sizeof m.hello.device, "%s", device);
	snprintf(m.hello.compute, sizeof m.hello.compute, "%s", own);
	rig_peer_send(peer, &m);
	cr_assert_eq(rig_peer_recv(peer, &load), BUS_LOAD);
	cr_expect_str_eq(load.compute, want, "worker %s", name);
}

Test(fleet, workers_of_a_kind_take_the_mode_of_the_first)
{
	struct rig *r = rig_new(&(struct engine_config){.compute = "auto"});
	check_told(r, "a", "cpu", "int16", "int16");
	check_told(r, "b", "cpu:1", "f32", "int16");
	check_told(r, "c", "cuda:0", "f32", "f32");
	check_told(r, "d", "cpu", "int16", "int16");
	rig_free(r);
}

Test(fleet, what_workers_have_loaded_is_agreed_on_again)
{
	struct rig *r = rig_new(&(struct engine_config){.compute = "auto"});
	check_told(r, "a", "cpu", "int16", "int16"); /* the first worker is a new one */
	has_loaded = true;
	check_told(r, "b", "cpu", "f32", "f32");
	check_told(r, "c", "cpu", "f32", "f32");
	has_loaded = false;
	check_told(r, "d", "cpu", "int16", "f32");
	rig_free(r);
}

/* Send hello for a worker that would choose `own` itself; return its peer, after checking that its load has
 * mode `want`. */
static void *expect_mode(struct rig *r, const char *name, const char *own, const char *want,
			 struct bus_load *load)
{
	struct bus_msg m = {.type = BUS_HELLO,
			    .hello = {.pid = 1, .host = "here", .device = "cpu", .loaded = has_loaded}};
	void *peer = rig_peer(r, name);
	snprintf(m.hello.compute, sizeof m.hello.compute, "%s", own);
	rig_peer_send(peer, &m);
	cr_assert_eq(rig_peer_recv(peer, load), BUS_LOAD);
	cr_expect_str_eq(load->compute, want, "worker %s", name);
	return peer;
}

Test(fleet, a_worker_that_joins_late_does_not_change_the_mode_of_those_that_serve)
{
	struct rig *r = rig_new(&(struct engine_config){.compute = "auto"});
	struct bus_load load;
	void *a = expect_mode(r, "a", "int16", "int16", &load);
	rig_peer_ready(a, &load);
	rig_wait_ready(r, true);
	has_loaded = true;
	expect_mode(r, "b", "f32", "int16", &load);
	has_loaded = false;
	expect_mode(r, "c", "f32", "int16", &load);
	rig_free(r);
}

Test(fleet, a_worker_that_loaded_while_the_mode_changed_loads_again)
{
	struct rig *r = rig_new(&(struct engine_config){.compute = "auto"});
	struct bus_load first, again, other;
	void *a = expect_mode(r, "a", "int16", "int16", &first);
	has_loaded = true;
	void *b = expect_mode(r, "b", "f32", "f32", &other);
	rig_peer_ready(a, &first);
	cr_assert_eq(rig_peer_recv(a, &again), BUS_LOAD);
	cr_expect_str_eq(again.compute, "f32");
	cr_expect_gt(again.epoch, first.epoch);
	rig_peer_ready(a, &again);
	rig_peer_ready(b, &other);
	rig_wait_replicas(r, 2, "serving");
	rig_free(r);
}

Test(fleet, ranks_of_a_group_are_told_one_mode)
{
	struct rig *r = rig_new(&(struct engine_config){.tp = 2, .compute = "auto"});
	struct bus_load load;
	void *peers[2];
	for (int i = 0; i < 2; i++) { /* the second rank has loaded its mode, which takes precedence */
		struct bus_msg m = {.type = BUS_HELLO,
				    .hello = {.pid = 1, .host = "here", .device = "cpu", .rendezvous = "x"}};
		m.hello.loaded = i;
		snprintf(m.hello.compute, sizeof m.hello.compute, "%s", i ? "f32" : "int16");
		peers[i] = rig_peer(r, i ? "b" : "a");
		rig_peer_send(peers[i], &m);
	}
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(rig_peer_recv(peers[i], &load), BUS_LOAD);
		cr_expect_str_eq(load.compute, "f32", "rank %u", load.rank);
	}
	rig_free(r);
}

Test(fleet, experts_beside_devices_are_computed_in_the_mode_of_the_first)
{
	static const struct {
		const char *device, *own, *want;
	} workers[] = {{"cuda:0", "", ""},
		       {"cuda:0", "int16", "int16"},
		       {"cuda:1", "f32", "int16"},
		       {"cuda:1", "", ""}};
	struct rig *r = rig_new(&(struct engine_config){.compute = "auto"});
	for (int i = 0; i < 4; i++) {
		struct bus_msg m = {.type = BUS_HELLO, .hello = {.pid = 1, .host = "here", .compute = "f32"}};
		struct bus_load load;
		char name[] = {(char)('a' + i), '\0'};
		void *peer = rig_peer(r, name);
		snprintf(m.hello.device, sizeof m.hello.device, "%s", workers[i].device);
		snprintf(m.hello.experts_compute, sizeof m.hello.experts_compute, "%s", workers[i].own);
		rig_peer_send(peer, &m);
		cr_assert_eq(rig_peer_recv(peer, &load), BUS_LOAD);
		cr_expect_str_eq(load.experts_compute, workers[i].want, "worker %d", i);
		cr_expect_str_eq(load.compute, "f32");
	}
	rig_free(r);
}

Test(fleet, workers_take_the_mode_that_is_asked_for)
{
	struct rig *r = rig_new(&(struct engine_config){.compute = "int8"});
	check_told(r, "a", "cpu", "int16", "int8");
	check_told(r, "b", "cpu", "f32", "int8");
	rig_free(r);
}

Test(fleet, ranks_of_different_numerics_classes_form_no_tp_group)
{
	struct rig *r = rig_new(&tp2);
	struct fake_worker *a = rig_worker(r, NULL);
	rig_status(r);
	struct fake_worker *b = rig_worker(r, &class_b);
	for (int i = 0; !a->stopped && !b->stopped && i < 3000; i++)
		usleep(10000);
	cr_assert(a->stopped != b->stopped); /* one of them is given up */
	rig_worker(r, a->stopped ? &class_b : NULL);
	rig_submit(r, 0, 0, 30, 20);
	rig_finish(r, 0);
	rig_free(r);
}

/* ---- peers that misbehave ---- */

Test(fleet, worker_beyond_the_limit_is_sent_stop)
{
	struct rig *r = rig_new(NULL);
	for (int i = 0; i <= ENGINE_WORKERS_MAX; i++) {
		char name[16];
		snprintf(name, sizeof name, "worker %d", i);
		void *peer = rig_peer(r, name);
		rig_peer_hello(peer, "cpu", "elsewhere");
		cr_assert_eq(rig_peer_recv(peer, NULL), i < ENGINE_WORKERS_MAX ? BUS_LOAD : BUS_STOP);
	}
	rig_free(r);
}

Test(fleet, flood_of_hellos_loses_the_worker_and_no_other)
{
	struct rig *r = rig_new(NULL);
	rig_worker(r, NULL);
	rig_wait_ready(r, true);
	void *peer = rig_peer(r, "flood");
	for (int i = 0; i < 2000; i++)
		rig_peer_hello(peer, "cpu", "elsewhere");
	while (rig_peer_recv(peer, NULL) != BUS_STOP)
		;
	rig_submit_many(r, 0, 4, 30, 40);
	rig_finish_many(r, 0, 4);
	rig_free(r);
}

Test(fleet, routing_id_of_a_connected_worker_cannot_be_taken)
{
	struct rig *r = rig_new(&(struct engine_config){.bus = "tcp://127.0.0.1:*"});
	struct bus_load load;
	void *worker = rig_loading_peer(r, "name", &load);
	rig_peer_ready(worker, &load);
	rig_wait_ready(r, true);
	rig_peer_send(rig_peer(r, "name"), &(struct bus_msg){.type = BUS_STOP});
	usleep(100000);
	rig_submit(r, 0, 0, 4, 4);
	cr_assert_eq(rig_peer_recv(worker, NULL), BUS_PLAN);
	cr_assert(r->ready);
	rig_free(r);
}

Test(fleet, peer_without_hello_is_sent_stop)
{
	struct rig *r = rig_new(NULL);
	void *peer = rig_peer(r, "stranger");
	int timeout = 100;
	zmq_setsockopt(peer, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	char bytes[64];
	int n = -1;
	for (int i = 0; n < 0 && i < 100; i++) {
		rig_peer_send(peer, &(struct bus_msg){.type = BUS_BEAT, .beat = {1, BUS_SERVING, 0, 1}});
		n = zmq_recv(peer, bytes, sizeof bytes, 0);
	}
	cr_assert_gt(n, 0);
	cr_assert_eq(bus_peek(bytes, (size_t)n, NULL), BUS_STOP);
	rig_free(r);
}

static void *confirm_late(void *arg)
{
	rig_peer_recv(arg, NULL);
	usleep(1000 * 1000);
	rig_peer_send(arg, &(struct bus_msg){.type = BUS_STOP});
	return NULL;
}

/* A worker on a busy machine loses what it has not read when the controller closes the connection. */
Test(fleet, end_waits_until_workers_have_confirmed_stop)
{
	struct rig *r = rig_new(&(struct engine_config){.stop_us = 100 * 1000 * 1000});
	struct bus_load load;
	pthread_t thread;
	void *peer = rig_loading_peer(r, "busy", &load);
	r->n_peers--; /* open until the end */
	pthread_create(&thread, NULL, confirm_late, peer);
	int64_t begun = clock_us();
	rig_end_engine(r);
	int64_t took = clock_us() - begun;
	cr_assert_geq(took, 1000 * 1000); /* not before */
	cr_assert_lt(took, 90 * 1000 * 1000);
	pthread_join(thread, NULL);
	zmq_close(peer);
	rig_free(r);
}
