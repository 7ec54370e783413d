/* Times of a group: phases, reasons for waiting, and the events that report them. */
#include "base/alloc.h"
#include "controller/sched/sched.h"
#include "controller/sched/sched_move.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { BLOCKS = 64 };

static struct sched *sched;
static struct sched_events events;
static struct plan plan;

static void init(void)
{
	sched = sched_new(&(struct sched_config){.block_size = 16, .max_seqs = 2, .max_rows = 64, .seed = 1});
}

static void fini(void)
{
	sched_check(sched);
	sched_free(sched);
	sched_events_fini(&events);
	plan_fini(&plan);
}

TestSuite(times, .init = init, .fini = fini, .timeout = 60);

static struct group *group(uint64_t job, uint32_t n_prompt, uint32_t max_tokens, int32_t priority)
{
	struct params p;
	params_init(&p);
	p.max_tokens = max_tokens;
	uint32_t *prompt = xcalloc(n_prompt, sizeof *prompt);
	for (uint32_t i = 0; i < n_prompt; i++)
		prompt[i] = (uint32_t)job * 1000 + i;
	struct group *g = group_new(job, prompt, n_prompt, &p);
	g->priority = priority;
	return g;
}

static void add(uint64_t job, uint32_t n_prompt, uint32_t max_tokens, int32_t priority, int64_t now)
{
	struct group *g = group(job, n_prompt, max_tokens, priority);
	sched_add(sched, &g, now);
}

/* Make a plan at `from` and answer it at `to`. */
static void step(int64_t from, int64_t to)
{
	cr_assert(sched_plan(sched, from, &plan));
	struct result r = {.epoch = plan.epoch, .number = plan.number, .n_tokens = plan.n_samples};
	r.tokens = xcalloc(plan.n_samples + 1, sizeof *r.tokens);
	cr_assert_eq(sched_apply(sched, &r, to, &events), 0);
	free(r.tokens);
	sched_check(sched);
}

/* Return the timeline of a live job at this time. */
static struct timeline times(uint64_t job, int64_t now)
{
	struct timeline t;
	const struct group *g = sched_find(sched, job);
	cr_assert_not_null(g);
	sched_times(sched, g, now, &t);
	return t;
}

static const struct timeline *ended(uint64_t job)
{
	for (uint32_t i = 0; i < events.n; i++)
		if (events.v[i].job == job &&
		    (events.v[i].kind == SCHED_GROUP_DONE || events.v[i].kind == SCHED_GROUP_FAILED))
			return &events.times[events.v[i].times];
	return NULL;
}

Test(times, a_job_is_unassigned_queued_prefilled_and_decoded)
{
	add(1, 100, 3, 0, 1000);
	cr_expect_eq(times(1, 1500).phase, PHASE_UNASSIGNED);
	struct group *g = sched_detach(sched, sched_find(sched, 1));
	sched_start(sched, BLOCKS, 0, 1);
	sched_clock(sched, 2000);
	sched_adopt(sched, &g);
	cr_expect_eq(times(1, 2500).phase, PHASE_QUEUED);
	step(3000, 3400); /* 64 rows of the prompt */
	step(3400, 3600); /* the rest, and the first token */
	step(3600, 3700);
	step(3700, 3900);
	const struct timeline *t = ended(1);
	cr_assert_not_null(t);
	cr_expect_eq(t->us[PHASE_UNASSIGNED], 1000);
	cr_expect_eq(t->us[PHASE_QUEUED], 1000);
	cr_expect_eq(t->us[PHASE_PREFILL], 600);
	cr_expect_eq(t->n_chunks, 2);
	cr_expect_eq(t->n_rows, 100);
	/* The receiver of the event closes the last phase. */
	struct timeline whole = *t;
	timeline_end(&whole, 3900);
	cr_expect_eq(whole.us[PHASE_DECODE], 300);
	cr_expect_eq(whole.n_spans, 4);
	cr_expect_eq(whole.spans[3].from_us, 3600);
	cr_expect_eq(whole.spans[3].to_us, 3900);
}

Test(times, a_queued_job_knows_that_slots_held_it_up)
{
	sched_start(sched, BLOCKS, 0, 1);
	for (uint64_t job = 1; job <= 3; job++)
		add(job, 10, 4, 0, 1000);
	step(1000, 1100);
	step(1100, 1200);
	struct timeline t = times(3, 1300);
	cr_expect_eq(t.n_ahead, 2);
	cr_expect_eq(t.n_begun, 2);
	cr_expect_eq(t.held_us[HOLD_SLOTS], 300);
	cr_expect_eq(t.held_us[HOLD_BLOCKS], 0);
	cr_expect_eq(t.us[PHASE_QUEUED], 300);
	/* Reading the timeline changes nothing. */
	cr_expect_eq(times(3, 1300).held_us[HOLD_SLOTS], 300);
	step(1300, 1400);
	step(1400, 1500);
	step(1500, 1600);
	t = times(3, 1600);
	cr_expect_eq(t.us[PHASE_QUEUED], 500);
	cr_expect_eq(t.held_us[HOLD_SLOTS], 500);
}

Test(times, a_wait_belongs_to_what_held_up_the_plan_before_it)
{
	sched_start(sched, BLOCKS, 0, 1);
	add(1, 10, 9, 0, 1000);
	add(2, 10, 9, 0, 1000);
	step(1000, 1050);
	add(3, 10, 9, 0, 1100);
	step(1200, 1250); /* the first plan that finds no slot for the job */
	const struct timeline t = times(3, 1350);
	cr_expect_eq(t.held_us[HOLD_TURN], 100);
	cr_expect_eq(t.held_us[HOLD_SLOTS], 150);
}

Test(times, a_queued_job_knows_that_blocks_held_it_up)
{
	sched_start(sched, 8, 0, 1);
	add(1, 60, 40, 0, 1000);
	step(1000, 1100);
	add(2, 70, 40, 0, 1100);
	step(1100, 1200);
	step(1200, 1300);
	struct timeline t = times(2, 1300);
	cr_expect_eq(t.held_us[HOLD_BLOCKS], 200);
	cr_expect_eq(t.held_us[HOLD_SLOTS], 0);
}

Test(times, jobs_of_a_better_priority_that_went_first_are_counted)
{
	sched_start(sched, BLOCKS, 0, 1);
	add(1, 10, 2, 0, 1000);
	add(2, 10, 2, 0, 1000);
	step(1000, 1100);
	add(3, 10, 9, 5, 1100);
	add(4, 10, 2, 0, 1150);
	add(5, 10, 9, 5, 1150);
	add(6, 10, 9, -100, 1150);
	step(1200, 1300);
	step(1300, 1400);
	struct timeline t = times(3, 1400);
	cr_expect_eq(t.n_ahead, 0);
	cr_expect_eq(t.n_begun, 2);
	cr_expect_eq(t.n_better, 2);
	cr_expect_eq(times(5, 1400).n_better, 2);
	/* Job 4 has ended, and job 3, of the same priority, begins before job 5. */
	int64_t now = 1400;
	for (; times(3, now).phase == PHASE_QUEUED && now < 2000; now += 100)
		step(now, now + 100);
	t = times(5, now);
	cr_expect_eq(t.phase, PHASE_QUEUED);
	cr_expect_eq(t.n_begun, 3);
	cr_expect_eq(t.n_better, 2);
}

Test(times, a_preempted_job_and_a_swapped_one_tell_so)
{
	for (int swap = 0; swap < 2; swap++) {
		sched_free(sched);
		sched = sched_new(&(struct sched_config){.block_size = 16,
							 .max_seqs = 2,
							 .max_rows = 64,
							 .preempt = swap ? SCHED_SWAP : SCHED_RECOMPUTE,
							 .no_cache = true});
		events.n = 0;
		sched_start(sched, 8, 8, 1);
		add(1, 30, 60, 0, 1000);
		add(2, 30, 60, 0, 1000);
		const enum phase out = swap ? PHASE_SWAPPED : PHASE_PREEMPTED;
		int64_t now = 1000;
		while (times(2, now).phase != out) {
			step(now, now + 10);
			now += 10;
			cr_assert_lt(now, 3000);
		}
		const int64_t from = now;
		while (sched_find(sched, 2)) {
			step(now, now + 10);
			now += 10;
			cr_assert_lt(now, 3000);
		}
		const struct timeline *t = ended(2);
		cr_assert_not_null(t);
		cr_expect_geq(t->us[out], now - from - 1000);
		cr_expect_gt(t->us[out], 0);
		cr_expect_geq(t->n_seqs_preempted, 1);
		cr_expect_eq(t->times[PHASE_RECOMPUTE] > 0, !swap);
		cr_expect_eq(t->n_again > 30, !swap);
		cr_expect_eq(t->times[PHASE_MOVED], 0);
	}
}

Test(times, a_lost_worker_is_a_move)
{
	sched_start(sched, BLOCKS, 0, 1);
	add(1, 20, 9, 0, 1000);
	step(1000, 1100);
	step(1100, 1200);
	sched_clock(sched, 1500);
	sched_lost(sched);
	cr_expect_eq(times(1, 1600).phase, PHASE_MOVED);
	struct group *g = sched_detach(sched, sched_find(sched, 1));
	sched_start(sched, BLOCKS, 0, 2);
	sched_clock(sched, 1700);
	sched_adopt(sched, &g);
	step(2000, 2100);
	struct timeline t = times(1, 2100);
	cr_expect_eq(t.us[PHASE_MOVED], 500);
	cr_expect_eq(t.us[PHASE_RECOMPUTE], 100);
	cr_expect_eq(t.n_moves, 1);
	cr_expect_eq(t.n_again, 22);
	cr_expect_eq(t.n_seqs_preempted, 0);
	cr_expect_eq(t.phase, PHASE_DECODE);
}

Test(times, memory_is_bounded_and_the_sums_go_on)
{
	struct timeline t = {0};
	for (int i = 0; i < 100; i++)
		timeline_enter(&t, i % 2 ? PHASE_DECODE : PHASE_PREEMPTED, i * 10);
	timeline_end(&t, 1000);
	cr_expect_eq(t.n_spans, TIMELINE_SPANS);
	cr_expect_eq(t.n_left_out, 100 - TIMELINE_SPANS);
	cr_expect_eq(t.us[PHASE_DECODE], 500);
	cr_expect_eq(t.us[PHASE_PREEMPTED], 500);
	cr_expect_eq(t.times[PHASE_DECODE], 50);
	cr_expect_eq(t.spans[TIMELINE_SPANS - 1].to_us, TIMELINE_SPANS * 10);
}

Test(times, time_does_not_run_backwards)
{
	struct timeline t = {0};
	timeline_enter(&t, PHASE_QUEUED, 100);
	timeline_enter(&t, PHASE_PREFILL, 50);
	timeline_end(&t, 70);
	cr_expect_eq(t.us[PHASE_QUEUED], 0);
	cr_expect_eq(t.us[PHASE_PREFILL], 0);
	cr_expect_eq(t.spans[1].from_us, 100);
}
