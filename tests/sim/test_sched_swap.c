/* test_sched_swap.c - preemption by swapping: when it is chosen, and the fate of the blocks. */
#include "base/alloc.h"
#include "tests/sim/sched_rig.h"

#include <criterion/criterion.h>

enum { HIGH = 0, LOW = 5, JOBS = 16, BLOCK = 16, BLOCK_BYTES = 4096 };

static void open_rig(struct sched_rig *r, uint32_t n_blocks, uint32_t n_host)
{
	rig_init(r, 1, "no seed");
	r->cfg.block_size = BLOCK;
	r->cfg.max_seqs = 8;
	r->cfg.max_rows = 512;
	r->cfg.no_cache = true;
	r->cfg.preempt = SCHED_SWAP;
	r->n_blocks = n_blocks;
	r->n_host = n_host;
	r->max_context = 1024;
}

static void start(struct sched_rig *r)
{
	rig_open(r, JOBS);
	rig_start_worker(r);
}

static void close_rig(struct sched_rig *r)
{
	struct sched_stats st;
	rig_close(r, &st);
}

/* Submit a job with exactly n_out tokens.  Prompts of one kind share all but their last token. */
static uint32_t submit(struct sched_rig *r, int32_t priority, uint32_t n_prompt, uint32_t n_out,
		       uint32_t kind)
{
	struct rig_job *j = rig_job(r);
	j->params.max_tokens = j->params.min_tokens = n_out;
	j->params.seed = r->n_jobs;
	j->n_prompt = n_prompt;
	j->prompt = xmalloc(n_prompt * sizeof *j->prompt);
	for (uint32_t i = 0; i < n_prompt; i++)
		j->prompt[i] = (kind * 31 + i) % DEVICE_VOCAB;
	j->prompt[n_prompt - 1] = r->n_jobs;
	struct group *g = rig_group(r, j);
	g->priority = priority;
	sched_add(r->sched, &g, r->now);
	return r->n_jobs - 1;
}

static bool step(struct sched_rig *r)
{
	r->now++;
	bool planned = rig_plan(r);
	sched_check(r->sched);
	if (r->n_under_way)
		rig_apply_oldest(r);
	sched_check(r->sched);
	return planned;
}

static void finish(struct sched_rig *r)
{
	for (int i = 0; i < 5000 && r->n_ended < r->n_jobs; i++)
		step(r);
	cr_assert_eq(r->n_ended, r->n_jobs);
}

static struct sched_stats stats(const struct sched_rig *r)
{
	struct sched_stats st;
	sched_stats(r->sched, &st);
	return st;
}

/* ---- swap or recompute ---- */

/* Preempt a group with 256 computed tokens in 16 blocks, when copying the blocks out and in takes `ratio` of
 * the time to compute the tokens.  Return whether the group was swapped. */
static bool is_swapped(double ratio)
{
	struct sched_rig r;
	open_rig(&r, 40, 40);
	r.cfg.preempt = SCHED_AUTO;
	start(&r);
	const double tps = 1000, seconds = 256 / tps * ratio;
	sched_speed(r.sched, tps, 2.0 * 16 * BLOCK_BYTES / seconds, BLOCK_BYTES);
	submit(&r, LOW, 250, 100, 1);
	for (int i = 0; i < 6; i++)
		step(&r);
	submit(&r, HIGH, 500, 8, 2);
	for (int i = 0; i < 20 && stats(&r).n_preempted == 0; i++)
		step(&r);
	struct sched_stats st = stats(&r);
	cr_assert_eq(st.n_preempted, 1);
	finish(&r);
	close_rig(&r);
	return st.n_swapped_out == 1;
}

Test(sched_swap, whichever_is_estimated_to_cost_less)
{
	cr_expect(is_swapped(0.5));
	cr_expect(is_swapped(0.8));
	cr_expect_not(is_swapped(1.3));
	cr_expect_not(is_swapped(2));
}

/* ---- shared blocks ---- */

enum { SHARED = 1600, SHARING = 4, ALL = 450 };

/* Return the blocks that the outputs of the first n jobs need if they share SHARED tokens; check that they
 * share these blocks. */
static uint32_t sharing(const struct sched_rig *r, uint32_t n)
{
	uint32_t blocks = SHARED / BLOCK;
	const struct block_table *first = &sched_find(r->sched, 0)->seqs[0].table;
	for (uint32_t i = 0; i < n; i++) {
		const struct group *g = sched_find(r->sched, i);
		for (uint32_t k = 0; k < g->n_seqs; k++) {
			const struct block_table *t = &g->seqs[k].table;
			cr_assert_geq(t->n, SHARED / BLOCK);
			cr_expect_arr_eq(t->ids, first->ids, SHARED / BLOCK * sizeof *t->ids);
			blocks += t->n - SHARED / BLOCK;
		}
	}
	return blocks;
}

static uint32_t n_held(const struct sched_rig *r)
{
	return stats(r).n_held;
}

static uint32_t n_host_held(const struct sched_rig *r)
{
	return stats(r).n_host_blocks - stats(r).n_host_free;
}

struct copies {
	uint32_t out, in;
};

static void step_counted(struct sched_rig *r, struct copies *c)
{
	if (!step(r))
		return;
	c->out += r->plan.n_swap_out;
	c->in += r->plan.n_swap_in;
}

/* Swap out all outputs of the first n jobs, for a job of a higher priority that needs nearly all blocks for a
 * while, until they are back. */
static struct copies swap_all(struct sched_rig *r, uint32_t n, bool forget)
{
	struct copies c = {0};
	const uint64_t n_preempted = stats(r).n_preempted;
	cr_expect_eq(n_held(r), sharing(r, n), "before");
	const uint32_t big = submit(r, HIGH, (ALL - 50) * BLOCK, 20, 2);
	for (int i = 0; i < 500 && stats(r).n_preempted < n_preempted + SHARING; i++)
		step_counted(r, &c);
	cr_assert_eq(stats(r).n_swapped, SHARING);
	cr_expect_eq(n_host_held(r), sharing(r, n), "swapped out");
	if (forget)
		sched_forget_prefixes(r->sched);
	while (!r->jobs[big].done)
		step_counted(r, &c);
	for (int i = 0; i < 100 && stats(r).n_running < SHARING; i++)
		step_counted(r, &c);
	cr_assert_eq(stats(r).n_running, SHARING);
	cr_expect_eq(n_held(r), sharing(r, n), "back again");
	cr_expect_eq(n_host_held(r), 0);
	return c;
}

/* Four jobs share a prompt of 1,600 tokens. */
static void start_sharing(struct sched_rig *r)
{
	open_rig(r, ALL, 2 * ALL);
	r->cfg.no_cache = false;
	r->max_context = ALL * BLOCK;
	start(r);
	for (int i = 0; i < SHARING; i++) {
		submit(r, LOW, SHARED + 1, 300, 1);
		for (int k = 0; k < 6; k++)
			step(r);
	}
}

Test(sched_swap, jobs_share_their_blocks_before_a_swap_after_it_and_when_they_are_back)
{
	struct sched_rig r;
	start_sharing(&r);
	const struct copies c = swap_all(&r, SHARING, false);
	cr_expect(c.out >= SHARED / BLOCK && c.out <= SHARED / BLOCK + SHARING * 5, "%u copies", c.out);
	cr_expect_leq(c.in, c.out);
	finish(&r);
	close_rig(&r);
}

/* A second swap copies only new blocks: those of the first are still in the host pool. */
Test(sched_swap, a_second_swap_copies_only_what_is_new)
{
	struct sched_rig r;
	start_sharing(&r);
	swap_all(&r, SHARING, false);
	const struct copies c = swap_all(&r, SHARING, false);
	cr_expect(c.out > 0 && c.out <= SHARING * 8, "%u copies", c.out);
	finish(&r);
	close_rig(&r);
}

/* Only the host pool has the prompt's first blocks: a later job with this prefix gets them from there. */
Test(sched_swap, a_prompt_is_found_in_the_host_pool)
{
	struct sched_rig r;
	struct copies c = {0};
	start_sharing(&r);
	swap_all(&r, SHARING, false);
	finish(&r);
	submit(&r, HIGH, (ALL - 2) * BLOCK, 4, 2); /* the device has other blocks now */
	finish(&r);
	const struct sched_stats before = stats(&r);
	submit(&r, LOW, SHARED + 1, 4, 1);
	for (int i = 0; i < 50 && r.n_ended < r.n_jobs; i++)
		step_counted(&r, &c);
	cr_expect(c.in <= SHARED / BLOCK && c.in >= SHARED / BLOCK - 2, "%u copies", c.in);
	cr_expect_eq(stats(&r).prefix_hits - before.prefix_hits, SHARED);
	cr_expect_leq(stats(&r).prompt_tokens - before.prompt_tokens, BLOCK);
	finish(&r);
	close_rig(&r);
}

/* The prefix cache is emptied while the jobs are swapped out. */
Test(sched_swap, jobs_share_their_blocks_again_although_prefixes_are_forgotten)
{
	struct sched_rig r;
	start_sharing(&r);
	swap_all(&r, SHARING, true);
	finish(&r);
	cr_expect_eq(stats(&r).n_cached, 0, "nor are blocks that follow forgotten ones kept");
	close_rig(&r);
}

/* Without a prefix cache the outputs of one job share its prompt, and nothing is cached. */
Test(sched_swap, outputs_share_their_prompt_again_without_a_cache)
{
	struct sched_rig r;
	open_rig(&r, ALL, 2 * ALL);
	r.max_context = ALL * BLOCK;
	start(&r);
	struct rig_job *j = rig_job(&r);
	j->params.n = SHARING;
	j->params.max_tokens = j->params.min_tokens = 300;
	j->params.seed = 1;
	j->n_prompt = SHARED + 1;
	j->prompt = xcalloc(j->n_prompt, sizeof *j->prompt);
	struct group *g = rig_group(&r, j);
	g->priority = LOW;
	sched_add(r.sched, &g, r.now);
	for (int k = 0; k < 24; k++)
		step(&r);
	swap_all(&r, 1, false);
	finish(&r);
	cr_expect_eq(stats(&r).n_cached, 0);
	close_rig(&r);
}

/* Blocks that others hold need not be recomputed: a job that shares nearly all blocks is not swapped,
 * although copying all its blocks would cost less than computing all its tokens. */
Test(sched_swap, the_estimate_knows_what_others_hold)
{
	struct sched_rig r;
	open_rig(&r, 130, 200);
	r.cfg.no_cache = false;
	r.cfg.preempt = SCHED_AUTO;
	r.max_context = 2080;
	start(&r);
	/* Copying 100 blocks out and in takes half of the time to compute them. */
	sched_speed(r.sched, 1000, 2.0 * 100 * BLOCK_BYTES / (1600 / 1000.0 / 2), BLOCK_BYTES);
	submit(&r, HIGH, 1601, 300, 1);
	for (int i = 0; i < 6; i++)
		step(&r);
	submit(&r, LOW, 1601, 300, 1);
	for (int i = 0; i < 10; i++)
		step(&r);
	cr_assert_eq(stats(&r).n_running, 2);
	submit(&r, HIGH - 1, 27 * BLOCK, 10, 2);
	for (int i = 0; i < 40 && stats(&r).n_preempted == 0; i++)
		step(&r);
	cr_expect_eq(stats(&r).n_preempted, 1);
	cr_expect_eq(stats(&r).n_swapped_out, 0);
	finish(&r);
	close_rig(&r);
}

/* The lower priority holds 100 blocks and shares all but two with the higher priority: preempting it would
 * not make room. */
Test(sched_swap, no_group_is_preempted_for_blocks_that_others_hold)
{
	struct sched_rig r;
	open_rig(&r, 140, 0);
	r.cfg.no_cache = false;
	r.max_context = 2240;
	start(&r);
	submit(&r, HIGH, 1601, 300, 1);
	for (int i = 0; i < 6; i++)
		step(&r);
	submit(&r, LOW, 1601, 300, 1);
	for (int i = 0; i < 10; i++)
		step(&r);
	cr_assert_eq(stats(&r).n_running, 2);
	submit(&r, HIGH, 60 * BLOCK, 10, 2);
	for (int i = 0; i < 40; i++)
		step(&r);
	cr_expect_eq(stats(&r).n_preempted, 0);
	finish(&r);
	close_rig(&r);
}

/* ---- blocks of plans in flight ---- */

/* The host pool holds one group.  That group is cancelled before its copies are known to be done; the next
 * plan preempts another group. */
Test(sched_swap, a_host_block_is_not_reused_before_its_plan_is_answered)
{
	struct sched_rig r;
	open_rig(&r, 31, 10);
	start(&r);
	submit(&r, HIGH, 165, 100, 1);
	submit(&r, LOW, 143, 100, 2);
	uint32_t last = submit(&r, LOW, 143, 100, 3);
	bool swapped = false;
	for (int i = 0; i < 100 && !swapped; i++) {
		r.now++;
		cr_assert(rig_plan(&r));
		swapped = r.plan.n_swap_out > 0;
		if (!swapped)
			rig_apply_oldest(&r);
	}
	cr_assert(swapped && stats(&r).n_host_free == 0);
	rig_cancel(&r, last);
	rig_take_events(&r);
	submit(&r, HIGH - 1, 200, 8, 4);
	r.now++;
	rig_plan(&r);
	sched_check(r.sched);
	cr_expect_eq(r.plan.n_swap_out, 0);
	cr_expect_eq(stats(&r).n_preempted, 2);
	cr_expect_eq(stats(&r).n_swapped_out, 1, "the host pool is not free yet");
	finish(&r);
	close_rig(&r);
}
