/* The scheduler with runs that are held for a step, since the mask of a structured output is not ready. */
#include "base/alloc.h"
#include "controller/sched/sched.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 256, PROMPT = 16, OUT = 10 };

static struct sched *sched;
static struct sched_events events;
static struct plan plans[2]; /* in flight, by number */
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

TestSuite(held, .init = init, .fini = fini, .timeout = 60);

static void add_params(uint64_t job, struct params *p)
{
	uint32_t *prompt = xcalloc(PROMPT, sizeof *prompt);
	for (uint32_t i = 0; i < PROMPT; i++)
		prompt[i] = (uint32_t)job * PROMPT + i;
	p->max_tokens = OUT;
	struct group *g = group_new(job, prompt, PROMPT, p);
	sched_add(sched, &g, 0);
}

static void add(uint64_t job)
{
	struct params p;
	params_init(&p);
	add_params(job, &p);
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

static void expect_no_plan(void)
{
	static struct plan none;
	cr_expect_not(sched_plan(sched, 1, &none));
	plan_fini(&none);
	sched_check(sched);
}

/* Answer with token 7 for every run that samples, except those of held slots. */
static int answer_with(const struct plan *p, const uint32_t *held, uint32_t n_held)
{
	result_reset(&result);
	result.epoch = p->epoch;
	result.number = p->number;
	for (uint32_t i = 0; i < p->n_samples; i++)
		result_add_token(&result, 7);
	for (uint32_t i = 0; i < n_held; i++)
		result_add_held(&result, held[i]);
	int rc = sched_apply(sched, &result, 2, &events);
	sched_check(sched);
	return rc;
}

static void answer(const struct plan *p, const uint32_t *held, uint32_t n_held)
{
	cr_assert_eq(answer_with(p, held, n_held), 0);
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

static const struct plan_run *run_of(const struct plan *p, uint32_t slot)
{
	for (uint32_t i = 0; i < p->n_runs; i++)
		if (p->runs[i].slot == slot)
			return &p->runs[i];
	return NULL;
}

static uint64_t sat_out(void)
{
	struct sched_stats st;
	sched_stats(sched, &st);
	return st.masks_held;
}

Test(held, others_go_on_and_the_row_is_planned_again_when_its_slot_is_awake)
{
	add(1);
	add(2);
	const struct plan *first = next_plan(), *second = next_plan();
	const uint32_t slot = slot_of(first, 1), other = slot_of(first, 2);
	cr_assert_eq(run_of(second, slot)->pos0, PROMPT);
	answer(first, &slot, 1);
	const struct plan *third = next_plan();
	cr_expect_null(run_of(third, slot), "it is planned, and its mask is not made");
	cr_expect_not_null(run_of(third, other));
	answer(second, &slot, 1);
	answer(third, NULL, 0);
	cr_expect_eq(count(SCHED_TOKEN, 1), 0);
	cr_expect_eq(count(SCHED_TOKEN, 2), 3);
	sched_awake(sched, slot);
	const struct plan_run *again = run_of(next_plan(), slot);
	cr_assert_not_null(again);
	cr_expect_eq(again->pos0, PROMPT - 1, "the row that the token is sampled from is computed again");
	cr_expect_eq(again->n_rows, 1);
	cr_expect_eq(again->flags, PLAN_SAMPLE);
	cr_expect_eq(sat_out(), 2);
}

/* The mask was ready before the second plan, which was already sent. */
Test(held, a_token_of_a_plan_already_in_flight_comes_a_step_late)
{
	add(1);
	const struct plan *first = next_plan(), *second = next_plan();
	const uint32_t slot = slot_of(first, 1);
	answer(first, &slot, 1);
	expect_no_plan();
	answer(second, NULL, 0);
	cr_expect_eq(count(SCHED_TOKEN, 1), 1);
	const struct plan *third = next_plan();
	cr_expect_eq(run_of(third, slot)->pos0, PROMPT, "it is behind its first token");
	answer(third, NULL, 0);
	for (int i = 2; i < OUT; i++)
		answer(next_plan(), NULL, 0);
	cr_expect_eq(count(SCHED_TOKEN, 1), OUT);
	cr_expect_eq(count(SCHED_GROUP_DONE, 1), 1);
}

/* Nothing else runs: the held sequences wait and are not preempted as if they lacked blocks. */
Test(held, held_sequences_alone_keep_their_slots)
{
	add(1);
	add(2);
	const struct plan *first = next_plan();
	const uint32_t slot = first->runs[0].slot, other = first->runs[1].slot, both[] = {slot, other};
	answer(first, both, 2);
	for (int i = 0; i < 3; i++)
		expect_no_plan();
	struct sched_stats st;
	sched_stats(sched, &st);
	cr_expect_eq(st.n_running, 2);
	cr_expect_eq(st.masks_waiting, 2);
	cr_expect_eq(st.n_preempted, 0);
	sched_awake(sched, 15); /* an unused slot */
	expect_no_plan();
	sched_awake(sched, slot);
	const struct plan *second = next_plan();
	cr_expect_not_null(run_of(second, slot));
	cr_expect_null(run_of(second, other));
}

Test(held, a_cancelled_sequence_is_held_no_more)
{
	add(1);
	const struct plan *first = next_plan(), *second = next_plan();
	const uint32_t slot = slot_of(first, 1);
	answer(first, &slot, 1);
	sched_cancel(sched, 1, &events);
	answer(second, &slot, 1);
	sched_awake(sched, slot);
	struct sched_stats st;
	sched_stats(sched, &st);
	cr_expect_eq(st.n_groups + st.n_running, 0);
	cr_expect_eq(st.n_free + st.n_cached, BLOCKS);
	add(2);
	next_plan();
}

/* Outputs that sample from the same row: one is held, and computes the row again in its own block. */
Test(held, one_of_several_outputs_sits_out)
{
	struct params p;
	params_init(&p);
	p.n = 3;
	add_params(1, &p);
	const struct plan *first = next_plan();
	cr_assert_eq(first->n_samples, 3);
	const uint32_t slot = first->runs[1].slot;
	answer(first, &slot, 1);
	sched_awake(sched, slot);
	const struct plan *second = next_plan();
	cr_expect_eq(run_of(second, slot)->pos0, PROMPT - 1);
	cr_expect_eq(second->n_copies, 1, "the prompt's last block is shared");
	answer(second, NULL, 0);
	cr_expect_eq(count(SCHED_TOKEN, 1), 5);
}

Test(held, a_beam_search_waits_for_the_candidates_of_a_held_hypothesis)
{
	struct params p;
	params_init(&p);
	p.n = 1;
	p.beam_width = 2;
	add_params(1, &p);
	const struct plan *first = next_plan();
	const uint32_t slot = slot_of(first, 1);
	answer(first, &slot, 1);
	expect_no_plan();
	sched_awake(sched, slot);
	cr_expect_eq(run_of(next_plan(), slot)->pos0, PROMPT - 1);
}

/* The worker dies: no sequence stays held, and the tokens are computed again. */
Test(held, a_lost_worker_holds_nothing)
{
	add(1);
	const struct plan *first = next_plan();
	const uint32_t slot = slot_of(first, 1);
	answer(first, &slot, 1);
	sched_worker_died(sched);
	sched_lost(sched);
	sched_check(sched);
	sched_start(sched, BLOCKS, 0, 2);
	const struct plan *again = next_plan();
	cr_expect_eq(run_of(again, slot_of(again, 1))->n_rows, PROMPT);
}

Test(held, slots_that_sample_nothing_are_refused)
{
	add(1);
	const struct plan *first = next_plan();
	const uint32_t slot = slot_of(first, 1), other = slot ^ 1, twice[] = {slot, slot};
	cr_expect_eq(answer_with(first, &other, 1), -EPROTO);
	cr_expect_eq(answer_with(first, twice, 2), -EPROTO);
	answer(first, &slot, 1);
}
