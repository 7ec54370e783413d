/* test_sched_draft.c - open runs (plan.h): which sequences have them, their rows, and results that do not
 * fit. */
#include "base/alloc.h"
#include "controller/sched/sched.h"
#include "proto/plan.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

enum { VOCAB = 100, DRAFTS = 4 };

struct rig {
	struct sched *s;
	struct plan plan[2];
	struct result r;
	struct sched_events ev;
	uint64_t jobs;
};

static void rig_init(struct rig *g, uint32_t max_rows, uint32_t n_blocks)
{
	*g = (struct rig){0};
	g->s = sched_new(&(struct sched_config){
		.block_size = 16, .max_seqs = 8, .max_rows = max_rows, .drafts = DRAFTS});
	sched_start(g->s, n_blocks, 0, 1);
}

static void rig_fini(struct rig *g)
{
	sched_free(g->s);
	plan_fini(&g->plan[0]);
	plan_fini(&g->plan[1]);
	result_fini(&g->r);
	sched_events_fini(&g->ev);
}

static void add(struct rig *g, uint32_t n_prompt, struct params params)
{
	uint32_t *prompt = xcalloc(n_prompt, sizeof *prompt);
	for (uint32_t i = 0; i < n_prompt; i++)
		prompt[i] = (uint32_t)(g->jobs * 7 + i) % VOCAB;
	struct group *group = group_new(g->jobs++, prompt, n_prompt, &params);
	sched_add(g->s, &group, 1);
}

static struct params params_of(uint32_t max_tokens)
{
	struct params p;
	params_init(&p);
	p.max_tokens = max_tokens;
	return p;
}

/* Answer the plan: each open run returns `n` tokens, other runs one. */
static int answer(struct rig *g, const struct plan *p, uint32_t n)
{
	result_reset(&g->r);
	g->r.epoch = p->epoch;
	g->r.number = p->number;
	for (uint32_t i = 0; i < p->n_runs; i++) {
		const bool open = p->runs[i].flags & PLAN_OPEN;
		if (!(p->runs[i].flags & PLAN_SAMPLE))
			continue;
		for (uint32_t k = 0; k < (open ? n : 1); k++)
			result_add_token(&g->r, 5);
		if (open)
			result_add_count(&g->r, n);
	}
	return sched_apply(g->s, &g->r, 2, &g->ev);
}

/* Make a plan, check the scheduler, and answer it. */
static void step(struct rig *g, uint32_t n)
{
	cr_assert(sched_plan(g->s, 1, &g->plan[0]));
	sched_check(g->s);
	cr_assert_eq(answer(g, &g->plan[0], n), 0);
	sched_check(g->s);
}

static uint32_t n_tokens(const struct rig *g)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < g->ev.n; i++)
		n += g->ev.v[i].kind == SCHED_TOKEN;
	return n;
}

Test(sched_draft, a_run_has_drafts_after_the_first_token_and_returns_several)
{
	struct rig g;
	rig_init(&g, 64, 32);
	add(&g, 20, params_of(50));
	step(&g, 1);
	cr_assert_eq(g.plan[0].runs[0].flags, PLAN_SAMPLE, "the run that ends the prompt is not open");
	step(&g, 3);
	cr_assert_eq(g.plan[0].runs[0].flags, PLAN_SAMPLE | PLAN_OPEN);
	cr_assert_eq(g.plan[0].runs[0].n_rows, 1 + DRAFTS);
	cr_assert_eq(n_tokens(&g), 4);
	step(&g, 1);
	cr_assert_eq(g.plan[0].runs[0].pos0, 23, "it begins at the last of 20 + 4 tokens");
	rig_fini(&g);
}

Test(sched_draft, two_plans_in_flight_reserve_what_both_may_return)
{
	struct rig g;
	rig_init(&g, 64, 32);
	add(&g, 20, params_of(50));
	step(&g, 1);
	cr_assert(sched_plan(g.s, 1, &g.plan[0]));
	cr_assert(sched_plan(g.s, 1, &g.plan[1]));
	sched_check(g.s);
	cr_assert_eq(g.plan[1].runs[0].pos0, 21, "the least position: the plan before returns one token");
	cr_assert_eq(answer(&g, &g.plan[0], 5), 0);
	sched_check(g.s);
	cr_assert_eq(answer(&g, &g.plan[1], 5), 0);
	cr_assert_eq(n_tokens(&g), 11);
	step(&g, 1);
	cr_assert_eq(g.plan[0].runs[0].pos0, 30);
	rig_fini(&g);
}

Test(sched_draft, the_last_tokens_are_not_exceeded)
{
	struct rig g;
	rig_init(&g, 64, 32);
	add(&g, 20, params_of(4));
	step(&g, 1);
	cr_assert(sched_plan(g.s, 1, &g.plan[0]));
	cr_assert_eq(g.plan[0].runs[0].n_rows, 3, "three tokens are left");
	cr_assert(sched_plan(g.s, 1, &g.plan[1]));
	cr_assert_eq(answer(&g, &g.plan[0], 3), 0);
	cr_assert_eq(n_tokens(&g), 4);
	cr_assert_eq(answer(&g, &g.plan[1], 0), 0, "the output has all its tokens");
	sched_check(g.s);
	cr_assert_eq(n_tokens(&g), 4);
	rig_fini(&g);
}

Test(sched_draft, results_that_do_not_fit_are_refused)
{
	struct rig g;
	rig_init(&g, 64, 32);
	add(&g, 20, params_of(50));
	step(&g, 1);
	cr_assert(sched_plan(g.s, 1, &g.plan[0]));
	cr_assert_eq(answer(&g, &g.plan[0], 0), -EPROTO, "no token");
	cr_assert_eq(answer(&g, &g.plan[0], 2 + DRAFTS), -EPROTO, "more tokens than rows");
	answer(&g, &(struct plan){.epoch = 1, .number = g.plan[0].number}, 0);
	result_add_token(&g.r, 5);
	cr_assert_eq(sched_apply(g.s, &g.r, 2, &g.ev), -EPROTO, "no count");
	result_add_count(&g.r, 2);
	cr_assert_eq(sched_apply(g.s, &g.r, 2, &g.ev), -EPROTO, "fewer tokens than counted");
	result_add_token(&g.r, 5);
	cr_assert_eq(sched_apply(g.s, &g.r, 2, &g.ev), 0);
	rig_fini(&g);
}

Test(sched_draft, drafts_leave_a_row_to_every_sequence)
{
	struct rig g;
	rig_init(&g, 10, 64);
	for (int i = 0; i < 5; i++)
		add(&g, 2, params_of(50));
	for (int i = 0; i < 6; i++)
		step(&g, 1);
	step(&g, 1);
	cr_assert_eq(g.plan[0].n_runs, 5);
	cr_assert_leq(g.plan[0].n_rows, 10);
	cr_assert_gt(g.plan[0].n_rows, 5, "two rows are left for drafts");
	rig_fini(&g);
}

Test(sched_draft, drafts_preempt_no_sequence)
{
	struct rig g;
	struct sched_stats st;
	rig_init(&g, 64, 4);
	add(&g, 15, params_of(17));
	add(&g, 15, params_of(17));
	do {
		step(&g, 1);
		sched_stats(g.s, &st);
		cr_assert_eq(st.n_preempted, 0);
	} while (st.n_groups);
	rig_fini(&g);
}

Test(sched_draft, mirostat_has_no_open_runs)
{
	struct rig g;
	struct params with = params_of(50);
	with.mirostat = 2;
	rig_init(&g, 64, 32);
	add(&g, 20, with);
	for (int k = 0; k < 3; k++) {
		cr_assert(sched_plan(g.s, 1, &g.plan[0]));
		cr_assert_eq(g.plan[0].runs[0].flags, PLAN_SAMPLE);
		cr_assert_eq(g.plan[0].runs[0].n_rows, k ? 1 : 20);
		result_reset(&g.r);
		g.r.epoch = 1;
		g.r.number = g.plan[0].number;
		result_add_token(&g.r, 5);
		result_add_mu(&g.r, 1);
		cr_assert_eq(sched_apply(g.s, &g.r, 2, &g.ev), 0);
	}
	rig_fini(&g);
}
