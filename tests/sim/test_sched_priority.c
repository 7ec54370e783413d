/* What priorities promise: who is better placed is let in soon, and who waits long gets its turn. */
#include "base/alloc.h"
#include "controller/sched.h"
#include "tests/sim/device.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>

enum { SLOTS = 8, CONTEXT = 2048, JOBS = 2048 };

enum { INTERACTIVE = 0, BATCH = 100 };

static const int64_t MINUTE_US = 60 * 1000 * 1000;

struct job {
	uint32_t n_tokens;
	uint64_t first_token; /* plans that there were by then; 0: none yet */
	bool done;
};

struct sim {
	struct sched *sched;
	struct device *device;
	struct plan plan;
	struct result result;
	struct sched_events ev;
	int64_t now;
	uint64_t n_plans;
	struct job jobs[JOBS];
	uint32_t n_jobs;
};

static struct sim *sim_new(uint32_t n_blocks, bool cache)
{
	struct sim *m = xcalloc(1, sizeof *m);
	m->sched = sched_new(&(struct sched_config){
		.block_size = 16, .max_seqs = SLOTS, .max_rows = 2048, .no_cache = !cache});
	sched_start(m->sched, n_blocks, 0, 1);
	m->device = device_new(SLOTS, n_blocks, 0, 16, CONTEXT);
	m->now = 1;
	return m;
}

static void sim_free(struct sim *m)
{
	sched_free(m->sched);
	device_free(m->device);
	plan_fini(&m->plan);
	result_fini(&m->result);
	sched_events_fini(&m->ev);
	free(m);
}

/* Returns its number. */
static uint32_t submit(struct sim *m, int32_t priority, uint32_t n_prompt, uint32_t n_out)
{
	uint32_t job = m->n_jobs++;
	struct params params;
	uint32_t *prompt = xcalloc(n_prompt, sizeof *prompt);
	cr_assert_lt(job, JOBS);
	for (uint32_t i = 0; i < n_prompt; i++)
		prompt[i] = (job * 31 + i) % DEVICE_VOCAB;
	params_init(&params);
	params.max_tokens = n_out;
	struct group *g = group_new(job, prompt, n_prompt, &params);
	g->user = (uint64_t)(priority + 1);
	g->priority = priority;
	sched_add(m->sched, &g, m->now);
	return job;
}

static void step(struct sim *m)
{
	m->now += 1000;
	if (!sched_plan(m->sched, m->now, &m->plan))
		return;
	m->n_plans++;
	device_step(m->device, &m->plan, &m->result);
	cr_assert_eq(sched_apply(m->sched, &m->result, m->now, &m->ev), 0);
	sched_check(m->sched);
	for (uint32_t i = 0; i < m->ev.n; i++) {
		const struct sched_event *e = &m->ev.v[i];
		struct job *j = &m->jobs[e->job];
		j->done |= e->kind == SCHED_GROUP_DONE;
		if (e->kind == SCHED_TOKEN && j->n_tokens++ == 0)
			j->first_token = m->n_plans;
	}
	m->ev.n = 0;
}

static void steps(struct sim *m, int n)
{
	for (int i = 0; i < n; i++)
		step(m);
}

/* Plans from now until the job's first token. */
static uint64_t plans_to_token(struct sim *m, uint32_t job)
{
	uint64_t from = m->n_plans;
	for (int i = 0; i < 5000 && !m->jobs[job].first_token; i++)
		step(m);
	cr_assert(m->jobs[job].first_token, "it never gets one");
	return m->jobs[job].first_token - from;
}

static uint64_t n_preempted(const struct sim *m)
{
	struct sched_stats st;
	sched_stats(m->sched, &st);
	return st.n_preempted;
}

/* ---- who has waited long ---- */

/* It takes 70 of 100 blocks, runs for two minutes, and must go when what is better placed grows. */
Test(sched_priority, what_ran_for_minutes_does_not_count_as_having_waited)
{
	struct sim *m = sim_new(100, false);
	uint32_t big = submit(m, BATCH, 1120, 300);
	steps(m, 10);
	cr_assert_gt(m->jobs[big].n_tokens, 0);
	m->now += 2 * MINUTE_US;
	step(m);
	uint32_t grows = submit(m, INTERACTIVE, 400, 600);
	for (int i = 0; i < 300 && n_preempted(m) == 0; i++)
		step(m);
	cr_assert_eq(n_preempted(m), 1);
	cr_assert_not(m->jobs[big].done);
	uint32_t small = submit(m, INTERACTIVE, 16, 16);
	cr_expect_leq(plans_to_token(m, small), 3);
	cr_expect_not(m->jobs[grows].done);
	for (int i = 0; i < 3000 && !m->jobs[big].done; i++)
		step(m);
	cr_expect(m->jobs[big].done);
	sim_free(m);
}

/* Interactive jobs fill the worker all the time, and more of them wait. */
Test(sched_priority, who_has_waited_a_minute_goes_before_any_priority)
{
	struct sim *m = sim_new(400, false);
	uint32_t line = submit(m, BATCH, 16, 16), last = 0;
	for (int i = 0; i < 3 * SLOTS; i++)
		last = submit(m, INTERACTIVE, 16, 100);
	for (int i = 0; i < 200; i++) {
		step(m);
		if (i % 12 == 0)
			last = submit(m, INTERACTIVE, 16, 100);
	}
	cr_assert_gt(m->n_plans, 0);
	cr_expect_eq(m->jobs[line].n_tokens, 0, "there is always somebody better placed");
	m->now += MINUTE_US;
	for (int i = 0; i < SLOTS; i++)
		last = submit(m, INTERACTIVE, 16, 100);
	cr_expect_leq(plans_to_token(m, line), 200);
	cr_expect_not(m->jobs[last].done);
	sim_free(m);
}
