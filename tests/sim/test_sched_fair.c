/* test_sched_fair.c - fairness between users over a long time: a user that had the worker alone does not pay
 * for it when another user arrives. */
#include "base/alloc.h"
#include "controller/sched/sched.h"
#include "tests/sim/device.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>

enum { SLOTS = 8, BLOCKS = 200, CONTEXT = 128, PROMPT = 16, OUT = 60 };

enum { ANNA, BERT, USERS };

/* Each user has want[] jobs at any time: when a job ends, the user submits the next. */
struct sim {
	struct sched *sched;
	struct device *device;
	struct plan plan;
	struct result result;
	struct sched_events ev;
	int64_t now;
	uint64_t last_job;
	uint32_t want[USERS], have[USERS];
	uint64_t tokens[USERS];
};

static struct sim *sim_new(void)
{
	struct sim *m = xcalloc(1, sizeof *m);
	m->sched = sched_new(&(struct sched_config){
		.block_size = 16, .max_seqs = SLOTS, .max_rows = 128, .no_cache = true});
	sched_start(m->sched, BLOCKS, 0, 1);
	m->device = device_new(SLOTS, BLOCKS, 0, 16, CONTEXT);
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

static int user_of(uint64_t job)
{
	return (int)(job % USERS);
}

static void submit(struct sim *m, int user)
{
	struct params params;
	uint32_t *prompt = xcalloc(PROMPT, sizeof *prompt);
	m->last_job += USERS;
	for (uint32_t i = 0; i < PROMPT; i++)
		prompt[i] = (uint32_t)(m->last_job + i) % DEVICE_VOCAB;
	params_init(&params);
	params.max_tokens = OUT;
	struct group *g = group_new(m->last_job + (uint64_t)user, prompt, PROMPT, &params);
	g->user = (uint64_t)user;
	m->have[user]++;
	sched_add(m->sched, &g, m->now);
}

static void step(struct sim *m)
{
	m->now += 1000;
	for (int u = 0; u < USERS; u++)
		while (m->have[u] < m->want[u])
			submit(m, u);
	if (!sched_plan(m->sched, m->now, &m->plan))
		return;
	device_step(m->device, &m->plan, &m->result);
	cr_assert_eq(sched_apply(m->sched, &m->result, m->now, &m->ev), 0);
	for (uint32_t i = 0; i < m->ev.n; i++) {
		const struct sched_event *e = &m->ev.v[i];
		m->tokens[user_of(e->job)] += e->kind == SCHED_TOKEN;
		m->have[user_of(e->job)] -= e->kind == SCHED_GROUP_DONE;
	}
	m->ev.n = 0;
}

static void steps(struct sim *m, int n)
{
	m->tokens[ANNA] = m->tokens[BERT] = 0;
	for (int i = 0; i < n; i++)
		step(m);
}

static uint64_t n_preempted(const struct sim *m)
{
	struct sched_stats st;
	sched_stats(m->sched, &st);
	return st.n_preempted;
}

/* Anna's jobs fill the worker, and none of them waits; then Bert submits more than fit. */
Test(sched_fair, a_new_user_does_not_preempt_a_long_served_one)
{
	struct sim *m = sim_new();
	m->want[ANNA] = SLOTS;
	steps(m, 8000);
	m->want[BERT] = 10 * SLOTS;
	steps(m, 300);
	cr_expect_eq(n_preempted(m), 0, "of those that ran");
	steps(m, 4000);
	cr_expect_gt(m->tokens[ANNA], m->tokens[BERT] / 2, "%" PRIu64 " against %" PRIu64, m->tokens[ANNA],
		     m->tokens[BERT]);
	cr_expect_gt(m->tokens[BERT], m->tokens[ANNA] / 2, "%" PRIu64 " against %" PRIu64, m->tokens[BERT],
		     m->tokens[ANNA]);
	sim_free(m);
}

/* Bert has always had a job, and never more than two. */
Test(sched_fair, a_user_of_few_tokens_cannot_preempt_others_later)
{
	struct sim *m = sim_new();
	m->want[ANNA] = SLOTS - 2;
	m->want[BERT] = 1;
	steps(m, OUT / 3);
	m->want[BERT] = 2;
	steps(m, 10000);
	m->want[BERT] = 10 * SLOTS;
	steps(m, 4000);
	cr_expect_gt(m->tokens[ANNA], m->tokens[BERT] / 2, "%" PRIu64 " against %" PRIu64, m->tokens[ANNA],
		     m->tokens[BERT]);
	sim_free(m);
}

/* No user has a job for a while. */
Test(sched_fair, a_served_user_is_not_behind_after_a_pause)
{
	struct sim *m = sim_new();
	m->want[ANNA] = SLOTS;
	steps(m, 8000);
	m->want[ANNA] = 0;
	steps(m, 200);
	cr_assert_eq(m->have[ANNA], 0);
	m->want[BERT] = 10 * SLOTS;
	steps(m, 100);
	m->want[ANNA] = 10 * SLOTS;
	steps(m, 4000);
	cr_expect_gt(m->tokens[ANNA], m->tokens[BERT] / 2, "%" PRIu64 " against %" PRIu64, m->tokens[ANNA],
		     m->tokens[BERT]);
	sim_free(m);
}
