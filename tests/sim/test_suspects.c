/* A job on which workers die ends; no other does because of it. */
#include "base/alloc.h"
#include "controller/sched_move.h"
#include "tests/sim/device.h"
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- the whole engine ---- */

enum { WORKERS = 8, KILLER = 7 };

/* Each worker that died is followed by another, until the job has ended; returns how many died. */
static int replace_until_end(struct rig *r, struct fake_worker *w, int n, uint64_t job)
{
	int last = n - 1;
	while (!r->jobs[job].done) {
		int alive = 0;
		for (int i = 0; i <= last; i++)
			alive += !w[i].end;
		for (; alive < n; alive++) {
			cr_assert_lt(last + 1, WORKERS, "no end of dying");
			fake_start(&w[++last], r);
		}
		rig_status(r);
	}
	int dead = 0;
	for (int i = 0; i <= last; i++)
		dead += w[i].end;
	return dead;
}

static void end_all(struct fake_worker *w)
{
	for (int i = 0; i < WORKERS; i++)
		if (w[i].rig)
			fake_end(&w[i]);
}

/* With n replicas at a time. */
static void survive(int n)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker w[WORKERS] = {0};
	for (int i = 0; i < WORKERS; i++)
		w[i].die_of = KILLER;
	for (int i = 0; i < n; i++)
		fake_start(&w[i], r);
	rig_wait_replicas(r, (uint32_t)n, "serving");
	for (uint64_t i = 0; i < 12; i++)
		rig_submit(r, i, (uint32_t)i * 37, 30, 40);
	cr_assert_eq(replace_until_end(r, w, n, KILLER), 3);
	cr_assert_eq(r->jobs[KILLER].code, E_INTERNAL);
	cr_assert(strstr(r->jobs[KILLER].why, "workers were lost three times"), "%s", r->jobs[KILLER].why);
	cr_assert_eq(r->jobs[KILLER].n_out, 0);
	if (n == 1) {
		for (int i = 0; i < WORKERS; i++)
			if (!w[i].rig) {
				fake_start(&w[i], r);
				break;
			}
	}
	for (uint64_t i = 0; i < 12; i++)
		if (i != KILLER)
			rig_finish(r, i);
	rig_free(r);
	end_all(w);
}

Test(suspects, a_job_on_which_every_worker_dies_ends_and_the_others_get_their_tokens)
{
	survive(1);
}

Test(suspects, it_ends_where_there_are_several_replicas_too)
{
	survive(2);
}

/* What counts is that it was under way, not that it was there. */
Test(suspects, workers_that_die_again_and_again_by_themselves_cost_no_job)
{
	struct rig *r = rig_new(NULL);
	struct fake_worker w[WORKERS] = {0};
	for (int i = 0; i < WORKERS - 1; i++)
		w[i].die_at = 9;
	for (uint64_t i = 0; i < 6; i++)
		rig_submit(r, i, (uint32_t)i * 37, 30, 40);
	fake_start(&w[0], r);
	for (int i = 1; i < WORKERS; i++) {
		while (!w[i - 1].end)
			rig_status(r);
		fake_start(&w[i], r);
	}
	for (uint64_t i = 0; i < 6; i++)
		rig_finish(r, i);
	rig_free(r);
	end_all(w);
}

/* ---- the scheduler ---- */

enum { SLOTS = 4, BLOCKS = 64, CONTEXT = 300, CHUNK = 16 };

struct one {
	struct sched *s;
	struct device *device;
	struct plan plan;
	struct result result;
	struct sched_events ev;
	uint64_t epoch;
	int64_t now_us;
};

static void serve(struct one *o)
{
	if (o->device)
		device_free(o->device);
	o->device = device_new(SLOTS, BLOCKS, 0, 16, CONTEXT);
	sched_start(o->s, BLOCKS, 0, ++o->epoch);
}

static struct one *one_new_probing(int64_t probe_us)
{
	struct one *o = xcalloc(1, sizeof *o);
	o->now_us = 1;
	o->s = sched_new(&(struct sched_config){
		.block_size = 16, .max_seqs = SLOTS, .max_rows = 64, .chunk = CHUNK, .probe_us = probe_us});
	serve(o);
	return o;
}

static struct one *one_new(void)
{
	return one_new_probing(0);
}

static void one_free(struct one *o)
{
	sched_free(o->s);
	device_free(o->device);
	plan_fini(&o->plan);
	result_fini(&o->result);
	sched_events_fini(&o->ev);
	free(o);
}

static void add(struct one *o, uint64_t job, uint32_t n_prompt)
{
	struct params params;
	uint32_t *prompt = xmalloc(n_prompt * sizeof *prompt);
	for (uint32_t i = 0; i < n_prompt; i++)
		prompt[i] = (uint32_t)(job * 100 + i) % DEVICE_VOCAB;
	params_init(&params);
	params.max_tokens = 30;
	struct group *g = group_new(job, prompt, n_prompt, &params);
	sched_add(o->s, &g, o->now_us);
}

static bool plan(struct one *o)
{
	bool made = sched_plan(o->s, o->now_us, &o->plan);
	sched_check(o->s);
	return made;
}

/* A plan is made and carried out. */
static void step(struct one *o)
{
	cr_assert(plan(o));
	device_step(o->device, &o->plan, &o->result);
	cr_assert_eq(sched_apply(o->s, &o->result, o->now_us, &o->ev), 0);
	sched_check(o->s);
}

/* A worker is lost over the plan that is made now. */
static void lose(struct one *o)
{
	cr_assert(plan(o));
	sched_blame(o->s);
	sched_lost(o->s);
	sched_check(o->s);
	serve(o);
}

/* The jobs of the next plan, as bits; it is carried out. */
static unsigned jobs_of_step(struct one *o)
{
	unsigned jobs = 0;
	cr_assert(plan(o));
	for (uint32_t i = 0; i < o->plan.n_runs; i++)
		jobs |= 1u << sched_run_of(o->s, o->plan.runs[i].slot)->job;
	device_step(o->device, &o->plan, &o->result);
	cr_assert_eq(sched_apply(o->s, &o->result, o->now_us, &o->ev), 0);
	sched_check(o->s);
	return jobs;
}

static bool suspect(const struct one *o, uint64_t job)
{
	return sched_find(o->s, job)->suspect;
}

static bool guilty(const struct one *o, uint64_t job)
{
	return sched_find(o->s, job)->guilty;
}

Test(suspects, the_third_loss_in_a_row_is_its_own)
{
	struct one *o = one_new();
	add(o, 1, 10);
	lose(o);
	cr_assert(!suspect(o, 1));
	lose(o);
	cr_assert(suspect(o, 1) && !guilty(o, 1));
	lose(o);
	cr_assert(guilty(o, 1));
	one_free(o);
}

Test(suspects, a_token_in_between_clears_it)
{
	struct one *o = one_new();
	add(o, 1, 10);
	for (int i = 0; i < 5; i++) {
		lose(o);
		lose(o);
		cr_assert(suspect(o, 1));
		step(o);
		cr_assert(!suspect(o, 1));
	}
	cr_assert(!guilty(o, 1));
	one_free(o);
}

Test(suspects, those_who_were_lost_together_run_alone_one_after_another)
{
	struct one *o = one_new();
	for (uint64_t job = 1; job <= 3; job++)
		add(o, job, 10);
	lose(o);
	lose(o);
	add(o, 4, 10);
	for (unsigned job = 1; job <= 3; job++)
		cr_assert_eq(jobs_of_step(o), 1u << job, "job %u", job);
	cr_assert_eq(jobs_of_step(o), 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
	one_free(o);
}

/* The plan before, in which it was not alone, may have been the last one of the worker. */
Test(suspects, nobody_is_guilty_while_others_are_under_way)
{
	struct one *o = one_new();
	for (uint64_t job = 1; job <= 2; job++)
		add(o, job, 10);
	lose(o);
	lose(o);
	step(o); /* job 1 has a token, ... */
	cr_assert(!suspect(o, 1) && suspect(o, 2));
	lose(o); /* ... and job 2 is alone */
	cr_assert(guilty(o, 2) && !guilty(o, 1));
	one_free(o);

	o = one_new();
	add(o, 1, 10);
	lose(o);
	add(o, 2, 10);
	lose(o);
	cr_assert(suspect(o, 1) && !suspect(o, 2));
	step(o);
	cr_assert(plan(o)); /* of both */
	lose(o);
	cr_assert(!guilty(o, 1) && !guilty(o, 2) && !suspect(o, 1));
	one_free(o);
}

/* It comes from another replica, where it was lost twice; the slots here are all taken. */
Test(suspects, who_runs_already_makes_room_for_a_suspect)
{
	struct one *o = one_new(), *from = one_new();
	for (uint64_t job = 1; job <= SLOTS; job++)
		add(o, job, 10);
	step(o);
	step(o);
	add(from, 9, 10);
	lose(from);
	lose(from);
	struct group *g = sched_detach(from->s, sched_find(from->s, 9));
	g->order = 1; /* whoever has several schedulers gives the orders */
	cr_assert(g->suspect);
	cr_assert(plan(o)); /* of those that run, which is still under way when it comes */
	device_step(o->device, &o->plan, &o->result);
	sched_adopt(o->s, &g);
	cr_assert(!plan(o), "it would be in flight with others");
	cr_assert_eq(sched_apply(o->s, &o->result, o->now_us, &o->ev), 0);
	cr_assert_eq(jobs_of_step(o), 1u << 9);
	unsigned all = 0;
	for (int i = 0; i < 100 && sched_find(o->s, 9); i++)
		all |= jobs_of_step(o);
	for (int i = 0; i < 100 && sched_first(o->s); i++)
		all |= jobs_of_step(o);
	cr_assert_eq(all, 1u << 9 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
	cr_assert_null(sched_first(o->s));
	one_free(o);
	one_free(from);
}

Test(suspects, a_long_prompt_that_is_lost_at_different_places_is_no_suspect)
{
	struct one *o = one_new();
	add(o, 1, 200);
	for (int steps = 9; steps >= 0; steps -= 3) { /* never as far as before */
		for (int i = 0; i < steps; i++)
			step(o);
		lose(o);
		cr_assert(!suspect(o, 1));
	}
	one_free(o);
}

Test(suspects, a_suspect_is_cleared_when_it_has_passed_the_place)
{
	struct one *o = one_new();
	add(o, 1, 200);
	for (int i = 0; i < 2; i++) {
		step(o);
		step(o);
		lose(o); /* of its third chunk */
	}
	cr_assert(suspect(o, 1));
	add(o, 2, 10);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(jobs_of_step(o), 1u << 1);
	cr_assert(!suspect(o, 1)); /* far from its first token */
	cr_assert_eq(jobs_of_step(o), 1u << 1 | 1u << 2);
	one_free(o);
}

Test(suspects, a_long_prompt_that_is_lost_at_the_same_chunk_is_guilty)
{
	struct one *o = one_new();
	add(o, 1, 200);
	for (int i = 0; i < 3; i++) {
		cr_assert(!guilty(o, 1));
		step(o);
		step(o);
		lose(o);
	}
	cr_assert(guilty(o, 1));
	one_free(o);
}

Test(suspects, a_suspect_that_is_cancelled_holds_up_nobody)
{
	struct one *o = one_new();
	add(o, 1, 10);
	add(o, 2, 10);
	lose(o);
	lose(o);
	sched_cancel(o->s, 1, &o->ev);
	sched_check(o->s);
	cr_assert_eq(jobs_of_step(o), 1u << 2);
	add(o, 3, 10);
	cr_assert_eq(jobs_of_step(o), 1u << 2 | 1u << 3);
	one_free(o);
}

/* A worker that is killed as soon as it is up says nothing of what it was given. */
Test(suspects, a_worker_serves_without_suspects_at_first)
{
	struct one *o = one_new_probing(1000);
	add(o, 1, 10);
	lose(o);
	lose(o);
	cr_assert(suspect(o, 1));
	for (int i = 0; i < 5; i++) { /* it is not even given */
		cr_assert(!plan(o));
		sched_blame(o->s);
		sched_lost(o->s);
		serve(o);
	}
	add(o, 2, 10);
	cr_assert_eq(jobs_of_step(o), 1u << 2);
	cr_assert(!guilty(o, 1));
	o->now_us += 1000;
	cr_assert_eq(jobs_of_step(o), 1u << 1);
	cr_assert(!suspect(o, 1));
	cr_assert_eq(jobs_of_step(o), 1u << 1 | 1u << 2);
	one_free(o);
}
