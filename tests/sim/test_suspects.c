/* test_suspects.c - a job that kills workers is found and fails; no other job fails because of it. */
#include "base/alloc.h"
#include "controller/sched/sched_move.h"
#include "tests/sim/device.h"
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- the whole engine ---- */

enum { WORKERS = 8, KILLER = 7, N_JOBS = 12 };

static int count_dead(const struct rig *r)
{
	int n = 0;
	for (uint32_t i = 0; i < r->n_workers; i++)
		n += r->workers[i]->end;
	return n;
}

/* Run a job, KILLER, that kills every worker that computes it; n replicas serve at a time. */
static void run_killer(uint32_t n)
{
	const struct fake_config killed = {.die_of = KILLER};
	struct rig *r = rig_new(NULL);
	for (uint32_t i = 0; i < n; i++)
		rig_worker(r, &killed);
	rig_wait_replicas(r, n, "serving");
	rig_submit_many(r, 0, N_JOBS, 30, 40);
	while (!r->jobs[KILLER].done) {
		while (r->n_workers - (uint32_t)count_dead(r) < n) {
			cr_assert_lt(r->n_workers, WORKERS, "workers die without end");
			rig_worker(r, &killed);
		}
		rig_status(r);
	}
	cr_assert_eq(count_dead(r), 3);
	cr_assert_eq(r->jobs[KILLER].code, E_INTERNAL);
	cr_assert(strstr(r->jobs[KILLER].why, "workers were lost three times"), "%s", r->jobs[KILLER].why);
	cr_assert_eq(r->jobs[KILLER].n_out, 0);
	if (n == 1)
		rig_worker(r, &killed);
	for (uint64_t i = 0; i < N_JOBS; i++)
		if (i != KILLER)
			rig_finish(r, i);
	rig_free(r);
}

Test(suspects, job_that_kills_every_worker_fails_and_others_finish)
{
	run_killer(1);
}

Test(suspects, job_that_kills_every_worker_fails_with_several_replicas)
{
	run_killer(2);
}

/* A strike needs a job in flight at the same position each time. */
Test(suspects, workers_that_die_by_themselves_cost_no_job)
{
	struct rig *r = rig_new(NULL);
	rig_submit_many(r, 0, 6, 30, 40);
	for (int i = 0; i < WORKERS; i++) {
		struct fake_worker *w =
			rig_worker(r, &(struct fake_config){.die_at = i < WORKERS - 1 ? 9 : 0});
		while (i < WORKERS - 1 && !w->end)
			rig_status(r);
	}
	rig_finish_many(r, 0, 6);
	rig_free(r);
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

/* Execute one plan. */
static void step(struct one *o)
{
	cr_assert(plan(o));
	device_step(o->device, &o->plan, &o->result);
	cr_assert_eq(sched_apply(o->s, &o->result, o->now_us, &o->ev), 0);
	sched_check(o->s);
}

/* Let the worker die in the next plan; another worker serves. */
static void lose(struct one *o)
{
	cr_assert(plan(o));
	sched_worker_died(o->s);
	sched_lost(o->s);
	sched_check(o->s);
	serve(o);
}

/* Execute the next plan; return its jobs as bits. */
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

static bool poisoned(const struct one *o, uint64_t job)
{
	return sched_find(o->s, job)->poisoned;
}

Test(suspects, third_loss_in_a_row_poisons_the_job)
{
	struct one *o = one_new();
	add(o, 1, 10);
	lose(o);
	cr_assert(!suspect(o, 1));
	lose(o);
	cr_assert(suspect(o, 1) && !poisoned(o, 1));
	lose(o);
	cr_assert(poisoned(o, 1));
	one_free(o);
}

Test(suspects, token_clears_the_suspicion)
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
	cr_assert(!poisoned(o, 1));
	one_free(o);
}

Test(suspects, suspects_run_alone_one_after_another)
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

/* The worker may have died in the previous plan, in which the suspect was not alone. */
Test(suspects, no_job_is_poisoned_while_others_are_under_way)
{
	struct one *o = one_new();
	for (uint64_t job = 1; job <= 2; job++)
		add(o, job, 10);
	lose(o);
	lose(o);
	step(o); /* job 1 has a token, ... */
	cr_assert(!suspect(o, 1) && suspect(o, 2));
	lose(o); /* ... and job 2 is alone */
	cr_assert(poisoned(o, 2) && !poisoned(o, 1));
	one_free(o);

	o = one_new();
	add(o, 1, 10);
	lose(o);
	add(o, 2, 10);
	lose(o);
	cr_assert(suspect(o, 1) && !suspect(o, 2));
	step(o);
	cr_assert(plan(o)); /* a plan with both jobs */
	lose(o);
	cr_assert(!poisoned(o, 1) && !poisoned(o, 2) && !suspect(o, 1));
	one_free(o);
}

/* The suspect comes from another replica, where it was lost twice; all slots here are taken. */
Test(suspects, running_jobs_make_room_for_a_suspect)
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
	g->order = 1; /* set by the owner of several schedulers */
	cr_assert(g->suspect);
	cr_assert(plan(o)); /* still in flight when the suspect arrives */
	device_step(o->device, &o->plan, &o->result);
	sched_adopt(o->s, &g);
	cr_assert(!plan(o), "the suspect would be in flight with others");
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

Test(suspects, prompt_lost_at_different_places_is_not_suspect)
{
	struct one *o = one_new();
	add(o, 1, 200);
	for (int steps = 9; steps >= 0; steps -= 3) { /* fewer steps each time */
		for (int i = 0; i < steps; i++)
			step(o);
		lose(o);
		cr_assert(!suspect(o, 1));
	}
	one_free(o);
}

Test(suspects, suspect_is_cleared_when_it_has_passed_the_place)
{
	struct one *o = one_new();
	add(o, 1, 200);
	for (int i = 0; i < 2; i++) {
		step(o);
		step(o);
		lose(o); /* in its third chunk */
	}
	cr_assert(suspect(o, 1));
	add(o, 2, 10);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(jobs_of_step(o), 1u << 1);
	cr_assert(!suspect(o, 1)); /* far from its first token */
	cr_assert_eq(jobs_of_step(o), 1u << 1 | 1u << 2);
	one_free(o);
}

Test(suspects, prompt_lost_in_the_same_chunk_is_poisoned)
{
	struct one *o = one_new();
	add(o, 1, 200);
	for (int i = 0; i < 3; i++) {
		cr_assert(!poisoned(o, 1));
		step(o);
		step(o);
		lose(o);
	}
	cr_assert(poisoned(o, 1));
	one_free(o);
}

Test(suspects, cancelled_suspect_holds_up_no_job)
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

/* A worker that is killed right after its start is no evidence against its jobs. */
Test(suspects, new_worker_serves_without_suspects_at_first)
{
	struct one *o = one_new_probing(1000);
	add(o, 1, 10);
	lose(o);
	lose(o);
	cr_assert(suspect(o, 1));
	for (int i = 0; i < 5; i++) { /* the suspect is not planned */
		cr_assert(!plan(o));
		sched_worker_died(o->s);
		sched_lost(o->s);
		serve(o);
	}
	add(o, 2, 10);
	cr_assert_eq(jobs_of_step(o), 1u << 2);
	cr_assert(!poisoned(o, 1));
	o->now_us += 1000;
	cr_assert_eq(jobs_of_step(o), 1u << 1);
	cr_assert(!suspect(o, 1));
	cr_assert_eq(jobs_of_step(o), 1u << 1 | 1u << 2);
	one_free(o);
}
