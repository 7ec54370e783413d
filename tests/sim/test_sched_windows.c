/* test_sched_windows.c - kinds of layers with sliding windows: blocks before a window are given up while a
 * sequence is computed, and a cached prefix is used where its windows are cached. */
#include "base/alloc.h"
#include "tests/sim/sched_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { BLOCK = 16, MAX_JOBS = 16, HIGH = 0, LOW = 5 };

static void open_rig(struct sched_rig *r, const struct kinds *kinds, uint32_t n_blocks, uint32_t n_slots,
		     uint32_t chunk)
{
	rig_init(r, 1, "no seed");
	r->kinds = *kinds;
	r->cfg.block_size = BLOCK;
	r->cfg.max_seqs = n_slots;
	r->cfg.max_rows = chunk + n_slots;
	r->cfg.chunk = chunk;
	r->n_blocks = n_blocks;
	r->max_context = 40000;
	rig_open(r, MAX_JOBS);
	rig_start_worker(r);
}

static struct sched_stats stats(const struct sched_rig *r)
{
	struct sched_stats st;
	sched_stats(r->sched, &st);
	return st;
}

static void close_rig(struct sched_rig *r)
{
	struct sched_stats st;
	rig_close(r, &st);
}

/* Submit a job with exactly n_out tokens.  Its first n_shared tokens follow from the kind alone. */
static uint32_t submit(struct sched_rig *r, int32_t priority, uint32_t n_prompt, uint32_t n_shared,
		       uint32_t n_out, uint32_t kind)
{
	struct rig_job *j = rig_job(r);
	j->params.max_tokens = j->params.min_tokens = n_out;
	j->params.seed = r->n_jobs;
	j->n_prompt = n_prompt;
	j->prompt = xmalloc(n_prompt * sizeof *j->prompt);
	for (uint32_t i = 0; i < n_prompt; i++)
		j->prompt[i] = (kind * 31 + i * (i < n_shared ? 1 : 3 + r->n_jobs)) % DEVICE_VOCAB;
	struct group *g = rig_group(r, j);
	g->priority = priority;
	sched_add(r->sched, &g, r->now);
	return r->n_jobs - 1;
}

/* Make a plan, and apply the result of the plan before it. */
static void step(struct sched_rig *r)
{
	r->now++;
	const bool planned = rig_plan(r);
	sched_check(r->sched);
	if (r->n_under_way > planned)
		rig_apply_oldest(r);
	sched_check(r->sched);
}

static void finish(struct sched_rig *r)
{
	for (int i = 0; i < 5000 && r->n_ended < r->n_jobs; i++)
		step(r);
	cr_assert_eq(r->n_ended, r->n_jobs);
}

/* ---- blocks that are given up ---- */

enum { WINDOW = 1024, CHUNK = 512 };

/* Compute 32,000 tokens and decode 200.  Return the most blocks of kind 1 in use, blocks that a plan in
 * flight still reads among them; *last: their number at the end. */
static uint32_t most_of_window(uint32_t *last)
{
	const struct kinds kinds = {.n = 2, .window = {0, WINDOW}};
	struct sched_rig r;
	uint32_t most = 0;
	open_rig(&r, &kinds, 2400, 4, CHUNK);
	submit(&r, LOW, 32000, 32000, 200, 1);
	while (r.n_ended == 0) {
		step(&r);
		const struct group *g = sched_find(r.sched, 0);
		if (!g)
			break;
		*last = stats(&r).n_held - g->seqs[0].table.n;
		most = *last > most ? *last : most;
	}
	finish(&r);
	close_rig(&r);
	return most;
}

Test(sched_windows, a_long_sequence_holds_a_window_two_chunks_and_one_block)
{
	uint32_t last;
	const uint32_t most = most_of_window(&last);
	cr_expect_leq(most, (WINDOW + 2 * CHUNK) / BLOCK + 1, "%u blocks", most);
	cr_expect_geq(most, (WINDOW + CHUNK) / BLOCK, "%u blocks", most);
	cr_expect_leq(last, WINDOW / BLOCK + 2, "%u blocks while it decodes", last);
}

/* A pool for one sequence of 1,600 tokens without windows has room for six with them. */
Test(sched_windows, as_many_sequences_run_as_their_windows_leave_room_for)
{
	const struct kinds alike = {.n = 4}, windows = {.n = 4, .window = {0, 32, 32, 32}};
	const uint32_t n_blocks = 1 + 4 * (1600 + 64) / BLOCK;
	for (int with = 0; with < 2; with++) {
		struct sched_rig r;
		uint32_t most = 0;
		open_rig(&r, with ? &windows : &alike, n_blocks, 16, 32);
		r.max_context = 1600 + 64;
		for (uint32_t i = 0; i < 8; i++)
			submit(&r, LOW, 1600, 0, 64, 2 + i);
		for (int i = 0; i < 5000 && r.n_ended < r.n_jobs; i++) {
			step(&r);
			most = stats(&r).n_running > most ? stats(&r).n_running : most;
		}
		cr_expect(with ? most >= 3 : most == 1, "%u sequences run", most);
		finish(&r);
		close_rig(&r);
	}
}

/* ---- shared blocks ---- */

enum { SHARED = 1600, SHARING = 4, SHARED_WINDOW = 100 };

/* Count the blocks in the tables of the first SHARING jobs, each once. */
static uint32_t distinct(const struct sched_rig *r)
{
	bool *seen = xcalloc(r->n_blocks, sizeof *seen);
	uint32_t n = 0;
	for (uint32_t i = 0; i < SHARING; i++) {
		const struct block_table *t = &sched_find(r->sched, i)->seqs[0].table;
		for (uint32_t k = 0; k < t->n * r->kinds.n; k++)
			if (t->ids[k] != (uint32_t)CONTENTS_NONE && !seen[t->ids[k]]) {
				seen[t->ids[k]] = true;
				n++;
			}
	}
	free(seen);
	return n;
}

/* Check that the jobs hold the same blocks of kind 0, and return the number of all blocks they hold. */
static uint32_t sharing(const struct sched_rig *r)
{
	const struct block_table *first = &sched_find(r->sched, 0)->seqs[0].table;
	for (uint32_t i = 1; i < SHARING; i++) {
		const struct block_table *t = &sched_find(r->sched, i)->seqs[0].table;
		for (uint32_t k = 0; k < SHARED / BLOCK; k++)
			cr_expect_eq(t->ids[2 * k], first->ids[2 * k], "job %u, row %u", i, k);
	}
	return distinct(r);
}

static void drain(struct sched_rig *r)
{
	while (r->n_under_way)
		rig_apply_oldest(r);
}

Test(sched_windows, jobs_share_their_blocks_before_preemption_after_it_and_when_they_are_back)
{
	const struct kinds kinds = {.n = 2, .window = {0, SHARED_WINDOW}};
	struct sched_rig r;
	open_rig(&r, &kinds, 1000, SHARING, 512);
	for (int i = 0; i < SHARING; i++) {
		submit(&r, LOW, SHARED + 1, SHARED, 300, 1);
		for (int k = 0; k < 8; k++)
			step(&r);
	}
	drain(&r);
	const uint32_t before = sharing(&r);
	cr_expect_eq(stats(&r).n_held, before, "before");
	cr_expect_leq(before, SHARED / BLOCK + SHARING * (3 + SHARED_WINDOW / BLOCK + 4), "%u blocks",
		      before);
	for (int i = 0; i < SHARING; i++)
		submit(&r, HIGH, 20, 0, 40, 9);
	for (int i = 0; i < 200 && stats(&r).n_preempted < SHARING; i++)
		step(&r);
	drain(&r);
	cr_assert_eq(stats(&r).n_preempted, SHARING);
	/* The jobs grew by some tokens until they were preempted. */
	const uint32_t retained = stats(&r).n_retained;
	cr_expect(retained >= before && retained <= before + 2 * SHARING * 3, "%u blocks, %u before",
		  retained, before);
	for (int i = 0; i < 500 && r.n_ended < SHARING; i++)
		step(&r);
	for (int i = 0; i < 10; i++)
		step(&r);
	drain(&r);
	cr_assert_eq(stats(&r).n_running, SHARING);
	cr_expect_eq(stats(&r).n_held, sharing(&r), "back again");
	cr_expect_leq(stats(&r).n_held, before + 2 * SHARING * 4);
	cr_expect_eq(stats(&r).recomputed_tokens, 0);
	finish(&r);
	close_rig(&r);
}

/* ---- prefixes ---- */

/* Run a job to its end, and return how many of its prompt's tokens were cached. */
static uint32_t cached(struct sched_rig *r, uint32_t n_prompt, uint32_t n_shared, uint32_t kind)
{
	const uint64_t before = stats(r).prefix_hits;
	submit(r, LOW, n_prompt, n_shared, 4, kind);
	finish(r);
	return (uint32_t)(stats(r).prefix_hits - before);
}

Test(sched_windows, a_prefix_is_used_where_its_windows_are_cached)
{
	const struct kinds kinds = {.n = 2, .window = {0, 64}};
	struct sched_rig r;
	/* Of the second job 42 + 42 blocks stay cached; 36 of these are of windows that no end of a prompt
	 * needs. */
	open_rig(&r, &kinds, 11 + 11 + 42 + 42 + 20, 4, 64);
	cr_expect_eq(cached(&r, 160, 160, 3), 0);
	cr_expect_eq(cached(&r, 640, 640, 1), 0);
	/* Another job takes 20 free blocks, and those that are evicted first. */
	cr_expect_eq(cached(&r, 400, 400, 5), 0);
	cr_expect_eq(cached(&r, 170, 160, 3), 160, "the oldest blocks are not the first ones");
	cr_expect_eq(cached(&r, 700, 640, 1), 640, "the end of the prompt is kept");
	cr_expect_lt(cached(&r, 500, 480, 1), 480, "other windows are evicted: the cut moves back");
	cr_expect_eq(cached(&r, 510, 480, 1), 480, "until a prompt branches off there");
	close_rig(&r);
}

/* The window alone decides where all layers have one: the blocks before it are not needed. */
Test(sched_windows, without_full_attention_the_last_window_is_enough)
{
	const struct kinds kinds = {.n = 1, .window = {64}};
	struct sched_rig r;
	open_rig(&r, &kinds, 30, 4, 64);
	cr_expect_eq(cached(&r, 1600, 1600, 1), 0);
	cr_expect_eq(cached(&r, 1680, 1600, 1), 1600);
	close_rig(&r);
}
