/* The scheduler resumes jobs from before a crash: they continue after their saved tokens. */
#include "base/alloc.h"
#include "controller/sched/sched.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

enum { BLOCKS = 64, PROMPT = 20 };

static struct sched *sched;
static struct sched_events events;
static struct plan plan;

static void init(void)
{
	sched = sched_new(&(struct sched_config){.block_size = 16, .max_seqs = 8, .max_rows = 64, .seed = 1});
}

static void fini(void)
{
	sched_check(sched);
	sched_free(sched);
	sched_events_fini(&events);
	plan_fini(&plan);
}

TestSuite(resume, .init = init, .fini = fini, .timeout = 60);

static struct group *group(uint64_t job, uint32_t n, uint32_t max_tokens)
{
	struct params p;
	params_init(&p);
	p.n = n;
	p.max_tokens = max_tokens;
	uint32_t *prompt = xcalloc(PROMPT, sizeof *prompt);
	for (uint32_t i = 0; i < PROMPT; i++)
		prompt[i] = i;
	return group_new(job, prompt, PROMPT, &p);
}

static bool next_plan(void)
{
	bool is = sched_plan(sched, 1, &plan);
	sched_check(sched);
	return is;
}

/* Answer with `token` for every run that samples. */
static void answer(uint32_t token)
{
	struct result r = {.epoch = plan.epoch, .number = plan.number, .n_tokens = plan.n_samples};
	r.tokens = xcalloc(plan.n_samples + 1, sizeof *r.tokens);
	for (uint32_t i = 0; i < plan.n_samples; i++)
		r.tokens[i] = token;
	cr_assert_eq(sched_apply(sched, &r, 2, &events), 0);
	free(r.tokens);
	sched_check(sched);
}

static uint32_t count(enum sched_event_kind kind, uint32_t index)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < events.n; i++)
		n += events.v[i].kind == kind && events.v[i].index == index;
	return n;
}

Test(resume, resumed_tokens_are_computed_and_not_published_again)
{
	uint32_t had[] = {100, 101, 102}, n_had[] = {3};
	struct group *g = group(1, 1, 5);
	group_resume(g, had, n_had, NULL);
	sched_add(sched, &g, 0);
	sched_start(sched, BLOCKS, 0, 1);
	cr_assert(next_plan());
	cr_assert_eq(plan.n_seqs, 1);
	cr_expect_eq(plan.seqs[0].n_prompt, PROMPT);
	cr_expect_eq(plan.seqs[0].n_tokens, PROMPT + 3);
	cr_expect_eq(plan.seqs[0].tokens[PROMPT + 2], 102);
	cr_expect_eq(plan.n_rows, PROMPT + 3);
	cr_expect_eq(plan.n_samples, 1);
	answer(103);
	cr_assert(next_plan());
	answer(104);
	cr_expect_eq(count(SCHED_TOKEN, 0), 2);
	cr_expect_eq(count(SCHED_OUTPUT_DONE, 0), 1);
	cr_expect_eq(count(SCHED_GROUP_DONE, 0), 1);
}

Test(resume, outputs_go_on_from_where_each_is)
{
	uint32_t had[] = {100, 101}, n_had[] = {2, UINT32_MAX, 0, 0};
	struct group *g = group(1, 4, 4);
	group_resume(g, had, n_had, NULL);
	sched_add(sched, &g, 0);
	sched_start(sched, BLOCKS, 0, 1);
	for (int i = 0; next_plan(); i++) {
		cr_assert_lt(i, 100);
		answer(7);
	}
	cr_expect_eq(count(SCHED_TOKEN, 0), 2);
	cr_expect_eq(count(SCHED_TOKEN, 1), 0);
	cr_expect_eq(count(SCHED_TOKEN, 2), 4);
	cr_expect_eq(count(SCHED_TOKEN, 3), 4);
	cr_expect_eq(count(SCHED_OUTPUT_DONE, 1), 0);
	cr_expect_eq(count(SCHED_GROUP_DONE, 0), 1);
	struct sched_stats st;
	sched_stats(sched, &st);
	cr_expect_eq(st.n_groups + st.n_waiting + st.n_running, 0);
}

Test(resume, one_that_had_many_tokens_survives_the_loss_of_its_worker)
{
	uint32_t had[40], n_had[] = {40};
	for (uint32_t i = 0; i < 40; i++)
		had[i] = 200 + i;
	struct group *g = group(1, 1, 50);
	group_resume(g, had, n_had, NULL);
	sched_add(sched, &g, 0);
	sched_start(sched, BLOCKS, 0, 1);
	cr_assert(next_plan());
	answer(1);
	cr_assert(next_plan());
	sched_lost(sched);
	sched_start(sched, BLOCKS, 0, 2);
	for (int i = 0; next_plan(); i++) {
		cr_assert_lt(i, 100);
		answer(1);
	}
	cr_expect_eq(count(SCHED_TOKEN, 0), 10);
	cr_expect_eq(count(SCHED_GROUP_DONE, 0), 1);
}

/* Answer with a token and mirostat's mu for the plan's only sequence. */
static int answer_mu(uint32_t token, const int32_t *mu)
{
	struct result r = {.epoch = plan.epoch, .number = plan.number};
	result_add_token(&r, token);
	if (mu)
		result_add_mu(&r, *mu);
	int rc = sched_apply(sched, &r, 2, &events);
	result_fini(&r);
	return rc;
}

Test(resume, the_state_of_mirostat_comes_back_with_the_tokens)
{
	uint32_t had[] = {100, 101}, n_had[] = {2};
	const int32_t mus[] = {-7}, next = 12345;
	struct group *g = group(1, 1, 9), *fresh = group(2, 1, 9);
	g->params.mirostat = 2;
	group_resume(g, had, n_had, mus);
	sched_add(sched, &g, 0);
	sched_start(sched, BLOCKS, 0, 1);
	cr_assert(next_plan());
	cr_expect_eq(plan.seqs[0].mu, -7);
	cr_expect_eq(answer_mu(7, NULL), -EPROTO);
	cr_assert_eq(answer_mu(7, &next), 0);
	cr_expect_eq(events.v[0].mu, next);
	cr_assert(next_plan());
	sched_lost(sched); /* the token in flight is lost and sampled again from the same state */
	sched_start(sched, BLOCKS, 0, 2);
	cr_assert(next_plan());
	cr_assert_eq(plan.seqs[0].n_tokens, PROMPT + 3);
	cr_expect_eq(plan.seqs[0].mu, next);
	cr_expect_eq(fresh->seqs[0].mu, 0);
	group_free(fresh);
}
