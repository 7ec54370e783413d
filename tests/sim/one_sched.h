/* one_sched.h - a scheduler with a simulated device, stepped one plan at a time, for tests of its order. */
#ifndef QUERN_TESTS_SIM_ONE_SCHED_H
#define QUERN_TESTS_SIM_ONE_SCHED_H

#include "base/alloc.h"
#include "controller/sched/sched.h"
#include "tests/sim/device.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { SLOTS = 8, CONTEXT = 2048, JOBS = 4096 };

struct job {
	uint32_t n_tokens;
	uint64_t first_token; /* plan number of the first token; 0: none yet */
	bool done;
	uint64_t account;
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

static inline struct sim *sim_new(uint32_t n_blocks, uint32_t chunk, bool cache)
{
	struct sim *m = xcalloc(1, sizeof *m);
	m->sched = sched_new(&(struct sched_config){
		.block_size = 16, .max_seqs = SLOTS, .max_rows = 2048, .chunk = chunk, .no_cache = !cache});
	sched_start(m->sched, n_blocks, 0, 1);
	m->device = device_new(SLOTS, n_blocks, 0, 16, CONTEXT);
	m->now = 1;
	return m;
}

static inline void sim_free(struct sim *m)
{
	sched_free(m->sched);
	device_free(m->device);
	plan_fini(&m->plan);
	result_fini(&m->result);
	sched_events_fini(&m->ev);
	free(m);
}

/* Submit a job and return its number.  Prompts with the same seed share a prefix. */
static inline uint32_t submit_of_key(struct sim *m, uint64_t account, uint64_t user, int32_t priority,
				     uint32_t n_prompt, uint32_t n_out, uint32_t seed)
{
	uint32_t job = m->n_jobs++;
	struct params params;
	uint32_t *prompt = xcalloc(n_prompt, sizeof *prompt);
	cr_assert_lt(job, JOBS);
	for (uint32_t i = 0; i < n_prompt; i++)
		prompt[i] = (seed * 31 + i) % DEVICE_VOCAB;
	params_init(&params);
	params.max_tokens = n_out;
	struct group *g = group_new(job, prompt, n_prompt, &params);
	g->account = account;
	g->user = user;
	g->priority = priority;
	m->jobs[job].account = account;
	sched_add(m->sched, &g, m->now);
	return job;
}

static inline uint32_t submit_as(struct sim *m, uint64_t user, int32_t priority, uint32_t n_prompt,
				 uint32_t n_out, uint32_t seed)
{
	return submit_of_key(m, 0, user, priority, n_prompt, n_out, seed);
}

static inline uint32_t submit_seeded(struct sim *m, int32_t priority, uint32_t n_prompt, uint32_t n_out,
				     uint32_t seed)
{
	return submit_as(m, (uint64_t)(priority + 1), priority, n_prompt, n_out, seed);
}

static inline void step(struct sim *m)
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

static inline void steps(struct sim *m, int n)
{
	for (int i = 0; i < n; i++)
		step(m);
}

/* Return the plans from now until the job's first token. */
static inline uint64_t plans_to_token(struct sim *m, uint32_t job)
{
	uint64_t from = m->n_plans;
	for (int i = 0; i < 5000 && !m->jobs[job].first_token; i++)
		step(m);
	cr_assert(m->jobs[job].first_token, "no token");
	return m->jobs[job].first_token - from;
}

static inline uint64_t n_preempted(const struct sim *m)
{
	struct sched_stats st;
	sched_stats(m->sched, &st);
	return st.n_preempted;
}

#endif
