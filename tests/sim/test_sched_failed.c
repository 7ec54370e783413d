/* The scheduler with failed sequences, with constraints that fill plans, and with sums of pooled prompts. */
#include "base/alloc.h"
#include "controller/sched/sched.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 256, PROMPT = 20 };

static struct sched *sched;
static struct sched_events events;
static struct plan plans[2]; /* in flight, indexed by number */
static struct result result;

static void init(void)
{
	sched = sched_new(&(struct sched_config){
		.block_size = 16, .max_seqs = 16, .max_rows = 512, .first_prompt_rows = 512, .seed = 1});
	sched_start(sched, BLOCKS, 0, 1);
}

static void fini(void)
{
	sched_check(sched);
	sched_free(sched);
	sched_events_fini(&events);
	plan_fini(&plans[0]);
	plan_fini(&plans[1]);
	result_fini(&result);
}

TestSuite(failed, .init = init, .fini = fini, .timeout = 60);

/* Add a job with a prompt of its own, so that none of it is cached. */
static void add(uint64_t job, struct params *p)
{
	uint32_t *prompt = xcalloc(PROMPT, sizeof *prompt);
	for (uint32_t i = 0; i < PROMPT; i++)
		prompt[i] = (uint32_t)job * PROMPT + i;
	p->max_tokens = 10;
	struct group *g = group_new(job, prompt, PROMPT, p);
	sched_add(sched, &g, 0);
}

static void add_outputs(uint64_t job, uint32_t n)
{
	struct params p;
	params_init(&p);
	p.n = n;
	add(job, &p);
}

static const struct plan *next_plan(void)
{
	struct sched_stats st;
	sched_stats(sched, &st);
	struct plan *p = &plans[st.n_steps % 2];
	cr_assert(sched_plan(sched, 1, p));
	sched_check(sched);
	return p;
}

/* Answer with token 7 for every run that samples; failed: slots of failed sequences. */
static void answer(const struct plan *p, const uint32_t *failed, uint32_t n_failed)
{
	result_reset(&result);
	result.epoch = p->epoch;
	result.number = p->number;
	for (uint32_t i = 0; i < p->n_samples; i++)
		result_add_token(&result, 7);
	for (uint32_t i = 0; i < n_failed; i++)
		result_add_failed(&result, failed[i], "too deep");
	cr_assert_eq(sched_apply(sched, &result, 2, &events), 0);
	sched_check(sched);
}

static uint32_t count(enum sched_event_kind kind, uint64_t job)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < events.n; i++)
		n += events.v[i].kind == kind && events.v[i].job == job;
	return n;
}

static uint32_t slot_of(const struct plan *p, uint64_t job)
{
	for (uint32_t i = 0; i < p->n_seqs; i++)
		if (p->seqs[i].seq == job)
			return p->seqs[i].slot;
	cr_assert_fail("job %llu is not in the plan", (unsigned long long)job);
	return UINT32_MAX;
}

Test(failed, the_job_ends_with_the_reason_and_others_go_on)
{
	add_outputs(1, 1);
	add_outputs(2, 1);
	const struct plan *first = next_plan();
	const uint32_t slot = slot_of(first, 1);
	answer(first, &slot, 1);
	cr_assert_eq(events.n, 2);
	cr_expect_eq(events.v[0].kind, SCHED_GROUP_FAILED);
	cr_expect_eq(events.v[0].job, 1);
	cr_expect_eq(events.v[0].code, E_BAD_REQUEST);
	cr_expect_str_eq(events.v[0].why, "too deep");
	cr_expect_eq(count(SCHED_TOKEN, 2), 1);
	for (int i = 1; i < 10; i++)
		answer(next_plan(), NULL, 0);
	cr_expect_eq(count(SCHED_TOKEN, 2), 10);
	cr_expect_eq(count(SCHED_GROUP_DONE, 2), 1);
	cr_expect_eq(count(SCHED_TOKEN, 1), 0);
}

/* The worker received the next plan before it could report the failure, and reports it again. */
Test(failed, all_outputs_end_once_with_two_plans_under_way)
{
	add_outputs(1, 4);
	const struct plan *first = next_plan(), *second = next_plan();
	cr_assert_eq(second->n_samples, 4);
	const uint32_t slots[] = {first->runs[1].slot, first->runs[2].slot};
	answer(first, slots, 2);
	answer(second, slots, 2);
	cr_expect_eq(count(SCHED_GROUP_FAILED, 1), 1);
	cr_expect_eq(events.n, 1);
	struct sched_stats st;
	sched_stats(sched, &st);
	cr_expect_eq(st.n_groups + st.n_running + st.n_waiting, 0);
	cr_expect_eq(st.n_free + st.n_cached, BLOCKS);
}

/* The worker received the next plan before a stop string of the first output was found, and fails for an
 * output that has ended by then. */
Test(failed, an_output_that_is_over_by_then_fails_nothing)
{
	add_outputs(1, 2);
	const struct plan *first = next_plan(), *second = next_plan();
	const uint32_t slot = second->runs[0].slot;
	answer(first, NULL, 0);
	const uint32_t index = slot == slot_of(first, 1) ? 0 : 1;
	sched_stop(sched, 1, index, &events);
	answer(second, &slot, 1);
	cr_expect_eq(count(SCHED_GROUP_FAILED, 1), 0);
	cr_expect_eq(count(SCHED_OUTPUT_DONE, 1), 1);
	cr_expect_eq(count(SCHED_TOKEN, 1), 3);
}

/* A failed hypothesis has no candidates. */
Test(failed, a_beam_search_ends_without_its_candidates)
{
	struct params p;
	params_init(&p);
	p.n = 1;
	p.beam_width = 2;
	add(1, &p);
	const struct plan *first = next_plan();
	const uint32_t slot = slot_of(first, 1);
	answer(first, &slot, 1);
	cr_expect_eq(count(SCHED_GROUP_FAILED, 1), 1);
	cr_expect_eq(events.n, 1);
}

Test(failed, a_slot_that_no_run_has_is_passed_over)
{
	add_outputs(1, 1);
	const struct plan *first = next_plan();
	const uint32_t other = slot_of(first, 1) ^ 1;
	answer(first, &other, 1);
	cr_expect_eq(count(SCHED_GROUP_FAILED, 1), 0);
	cr_expect_eq(count(SCHED_TOKEN, 1), 1);
}

/* Constraint texts travel with the plan that admits their sequences. */
Test(failed, a_plan_brings_at_most_64_mib_of_forms)
{
	for (uint64_t job = 1; job <= 6; job++) {
		struct params p;
		params_init(&p);
		p.n = 2;
		p.constraint = constraint_new(0, "x", 1);
		p.constraint->n = CONSTRAINT_TEXT_MAX; /* pretends to be this long */
		add(job, &p);
	}
	add_outputs(7, 1);
	const struct plan *first = next_plan();
	cr_assert_eq(first->n_seqs, 5);
	for (uint64_t job = 1; job <= 4; job++)
		slot_of(first, job);
	slot_of(first, 7);
	const struct plan *second = next_plan();
	cr_assert_eq(second->n_seqs, 2);
	slot_of(second, 5);
	slot_of(second, 6);
}

/* Answer with the sums of a plan's only run, for a pooled prompt. */
static int answer_sums(const struct plan *p, uint32_t n_words)
{
	result_reset(&result);
	result.epoch = p->epoch;
	result.number = p->number;
	struct result_pool *pool = result_add_pool(&result, n_words);
	pool->slot = p->runs[0].slot;
	pool->pos0 = p->runs[0].pos0;
	pool->n_rows = p->runs[0].n_rows;
	memset(result.pool_words, 0, n_words * sizeof *result.pool_words);
	return sched_apply(sched, &result, 2, &events);
}

static void add_mean(uint64_t job, uint32_t n)
{
	struct params p;
	params_init(&p);
	p.pool = PARAMS_POOL_MEAN;
	p.max_tokens = 1;
	uint32_t *prompt = xcalloc(n, sizeof *prompt);
	struct group *g = group_new(job, prompt, n, &p);
	sched_add(sched, &g, 0);
}

/* Sums of a cancelled job are valid: the worker that sends them is not refused. */
Test(failed, a_mean_is_cancelled_with_two_plans_under_way)
{
	add_mean(1, 1024);
	const struct plan *first = next_plan(), *second = next_plan();
	cr_assert_eq(first->runs[0].n_rows + second->runs[0].n_rows, 1024);
	sched_cancel(sched, 1, &events);
	cr_expect_eq(answer_sums(first, 128), 0);
	cr_expect_eq(answer_sums(second, 128), 0);
	cr_expect_eq(count(SCHED_POOLED, 1), 0);
}

/* All sums of one prompt have the same width. */
Test(failed, sums_of_another_width_are_refused)
{
	add_mean(1, 1024);
	const struct plan *first = next_plan(), *second = next_plan();
	cr_expect_eq(answer_sums(first, 128), 0);
	cr_expect_eq(answer_sums(second, 64), -EPROTO);
	cr_expect_eq(answer_sums(second, 128), 0);
	cr_expect_eq(count(SCHED_POOLED, 1), 1);
}
