/* test_sched_one_pool.c - preemption where all memory is one pool, as on a CPU: the blocks of preempted
 * sequences stay cached where they are. */
#include "base/alloc.h"
#include "tests/sim/sched_rig.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 16, MAX_JOBS = 24, MAX_OUT = 160, MAX_CONTEXT = 400, HIGH = 0, LOW = 5 };

static void open_rig(struct sched_rig *r, uint32_t n_blocks, uint32_t n_slots, bool cache)
{
	rig_init(r, 1, "no seed");
	r->cfg.block_size = BLOCK;
	r->cfg.max_seqs = n_slots;
	r->cfg.no_cache = !cache;
	r->cfg.max_rows = 512;
	r->cfg.preempt = SCHED_SWAP;
	r->n_blocks = n_blocks;
	r->max_context = 1024;
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

/* Submit a job with exactly n_out tokens; kind chooses the prompt. */
static struct rig_job *job(struct sched_rig *r, uint32_t n_prompt, uint32_t n_out, uint32_t kind)
{
	struct rig_job *j = rig_job(r);
	j->params.max_tokens = j->params.min_tokens = n_out;
	j->params.seed = r->n_jobs;
	j->n_prompt = n_prompt;
	j->prompt = xmalloc(n_prompt * sizeof *j->prompt);
	for (uint32_t i = 0; i < n_prompt; i++)
		j->prompt[i] = (kind * 31 + i) % DEVICE_VOCAB;
	return j;
}

static void submit(struct sched_rig *r, struct rig_job *j, int32_t priority)
{
	struct group *g = rig_group(r, j);
	g->priority = priority;
	sched_add(r->sched, &g, r->now);
}

/* Make a plan and apply a result.  ahead: the plan is sent before the earlier result is applied. */
static void step(struct sched_rig *r, bool ahead)
{
	r->now++;
	const bool planned = rig_plan(r);
	cr_expect(!planned || (r->plan.n_swap_out == 0 && r->plan.n_swap_in == 0));
	sched_check(r->sched);
	if (r->n_under_way > (ahead && planned ? 1 : 0))
		rig_apply_oldest(r);
	sched_check(r->sched);
}

static void finish(struct sched_rig *r, bool ahead)
{
	for (int i = 0; i < 5000 && r->n_ended < r->n_jobs; i++)
		step(r, ahead);
	cr_assert_eq(r->n_ended, r->n_jobs);
}

/* A job of n_low tokens is preempted for one of n_high tokens, in a pool of 40 blocks. */
static struct sched_stats preempt(uint32_t n_low, uint32_t n_high, bool ahead, uint32_t *n_copies)
{
	struct sched_rig r;
	open_rig(&r, 40, 8, false);
	submit(&r, job(&r, n_low, 100, 1), LOW);
	for (int i = 0; i < 7; i++)
		step(&r, ahead);
	submit(&r, job(&r, n_high, 8, 2), HIGH);
	*n_copies = 0;
	for (int i = 0; i < 60; i++) {
		step(&r, ahead);
		*n_copies += r.plan.n_copies;
	}
	finish(&r, ahead);
	const struct sched_stats st = stats(&r);
	close_rig(&r);
	return st;
}

/* 250 and 500 tokens do not fit in 640, 250 and 350 do until the outputs grow. */
Test(one_pool, only_what_was_evicted_is_recomputed)
{
	uint32_t n_copies;
	for (int ahead = 0; ahead < 2; ahead++) {
		const struct sched_stats st = preempt(250, 500, ahead, &n_copies);
		cr_expect_eq(st.n_preempted, 1);
		cr_expect_eq(st.n_swapped_out, 0);
		/* 16 blocks were computed, 40 - 32 were not needed by the other. */
		cr_expect(st.recomputed_tokens > 0 && st.recomputed_tokens <= 256 + 6 - 8 * BLOCK, "%" PRIu64,
			  st.recomputed_tokens);
		cr_expect_eq(n_copies, 0);
	}
}

/* The last block, which is not full, stays as well.  `ahead`: it is known when the tokens in flight are. */
Test(one_pool, nothing_is_recomputed_if_nothing_was_evicted)
{
	for (int ahead = 0; ahead < 2; ahead++)
		for (int no_cache = 0; no_cache < 2; no_cache++) {
			struct sched_rig r;
			open_rig(&r, 400, 2, !no_cache);
			for (uint32_t i = 0; i < 8; i++)
				submit(&r, job(&r, 50 + 3 * i, 60, i), LOW);
			for (int i = 0; i < 10; i++)
				step(&r, ahead);
			for (uint32_t i = 0; i < 4; i++) {
				submit(&r, job(&r, 20, 5, 20 + i), HIGH); /* needs a slot */
				for (int k = 0; k < 20; k++)
					step(&r, ahead);
			}
			cr_expect_gt(stats(&r).n_preempted, 0);
			finish(&r, ahead);
			cr_expect_eq(stats(&r).recomputed_tokens, 0);
			cr_expect(!no_cache || stats(&r).n_cached == 0, "nothing is kept for anyone else");
			close_rig(&r);
		}
}

/* Cached blocks of ended jobs go first. */
Test(one_pool, preempted_blocks_are_evicted_after_others)
{
	struct sched_rig r;
	open_rig(&r, 60, 8, true);
	submit(&r, job(&r, 320, 1, 3), LOW); /* leaves 20 cached blocks, used before the next job's */
	finish(&r, false);
	submit(&r, job(&r, 250, 100, 1), LOW);
	for (int i = 0; i < 6; i++)
		step(&r, false);
	submit(&r, job(&r, 320, 1, 4), LOW); /* leaves 20 cached blocks, used after that job's */
	while (r.n_ended < 2)
		step(&r, false);
	submit(&r, job(&r, 700, 4, 2), HIGH); /* 45 blocks: the preempted job's 17 do not fit beside */
	for (int i = 0; i < 60 && stats(&r).n_preempted == 0; i++)
		step(&r, false);
	cr_assert_eq(stats(&r).n_preempted, 1);
	finish(&r, false);
	cr_expect_leq(stats(&r).recomputed_tokens, 3 * BLOCK, "%" PRIu64, stats(&r).recomputed_tokens);
	close_rig(&r);
}

/* Prefixes are forgotten while the job waits: it continues from its blocks, and nobody else finds them. */
Test(one_pool, a_preempted_job_keeps_its_blocks_although_prefixes_are_forgotten)
{
	struct sched_rig r;
	open_rig(&r, 40, 1, true);
	submit(&r, job(&r, 150, 100, 1), LOW);
	for (int i = 0; i < 6; i++)
		step(&r, false);
	submit(&r, job(&r, 350, 8, 2), HIGH);
	for (int i = 0; i < 60 && stats(&r).n_preempted == 0; i++)
		step(&r, false);
	cr_assert_eq(stats(&r).n_preempted, 1);
	sched_forget_prefixes(r.sched);
	finish(&r, false);
	cr_expect_eq(stats(&r).recomputed_tokens, 0);
	cr_expect_eq(stats(&r).n_cached, 0);
	close_rig(&r);
}

/* Four outputs have the prompt's last block in common, and are preempted at once.  Each of them writes into a
 * copy but the last. */
Test(one_pool, outputs_that_share_a_partly_filled_block_continue_from_it)
{
	struct sched_rig r;
	open_rig(&r, 40, 8, true);
	struct rig_job *j = job(&r, 100, 40, 1);
	j->params.n = 4;
	submit(&r, j, LOW);
	step(&r, false);
	submit(&r, job(&r, 500, 4, 2), HIGH);
	finish(&r, false);
	cr_expect_gt(stats(&r).n_preempted, 0);
	close_rig(&r);
}

/* ---- against two pools ---- */

/* Jobs and their arrivals are drawn before the first plan, so that they are the same for every pool. */
static void draw(struct sched_rig *r, uint32_t n_jobs, uint32_t max_context, uint32_t *due)
{
	const uint32_t every = 1 + rig_rnd(r, 20), n_max = 1 + rig_rnd(r, 8);
	for (uint32_t i = 0; i < n_jobs; i++) {
		struct rig_job *j = rig_job(r);
		j->params.n = rig_rnd(r, 3) ? 1 : 1 + rig_rnd(r, n_max);
		j->params.seed = rig_rnd(r, 1u << 30);
		j->n_prompt = 1 + rig_rnd(r, rig_rnd(r, 4) ? 20 : max_context / 2);
		const uint32_t room = max_context - j->n_prompt;
		j->params.max_tokens = 1 + rig_rnd(r, room < MAX_OUT ? room : MAX_OUT);
		j->prompt = xmalloc(j->n_prompt * sizeof *j->prompt);
		const uint32_t shared = rig_rnd(r, 3) ? rig_rnd(r, j->n_prompt + 1) : 0, kind = rig_rnd(r, 3);
		for (uint32_t k = 0; k < j->n_prompt; k++)
			j->prompt[k] = k < shared ? (k * 7 + kind) % DEVICE_VOCAB : rig_rnd(r, DEVICE_VOCAB);
		due[i] = (i ? due[i - 1] : 0) + rig_rnd(r, 2 * every);
	}
}

struct outcome {
	uint64_t recomputed, preempted, plans;
};

/* Run a seed's jobs with two pools, the second 1 / share of the first, or with one of the same memory. */
static struct outcome run(uint64_t seed, uint32_t share, bool one)
{
	struct sched_rig r;
	struct sched_stats st;
	uint32_t due[MAX_JOBS], n_copied = 0, n_added = 0;
	rig_init(&r, seed, "QUERN_SIM_SEED");
	const uint32_t n_device = 8 + rig_rnd(&r, rig_rnd(&r, 2) ? 24 : 160), n_host = n_device / share;
	const uint32_t max_context = n_device * BLOCK < MAX_CONTEXT ? n_device * BLOCK : MAX_CONTEXT;
	const uint32_t n_jobs = 1 + rig_rnd(&r, MAX_JOBS);
	r.n_blocks = one ? n_device + n_host : n_device;
	r.n_host = one ? 0 : n_host;
	r.max_context = r.n_blocks * BLOCK;
	r.cfg.block_size = BLOCK;
	r.cfg.max_seqs = 1 + rig_rnd(&r, 24);
	r.cfg.max_rows = r.cfg.max_seqs + rig_rnd(&r, 200);
	r.cfg.no_cache = rig_rnd(&r, 4) == 0;
	r.cfg.preempt = SCHED_SWAP;
	rig_open(&r, n_jobs);
	rig_start_worker(&r);
	draw(&r, n_jobs, max_context, due);
	for (uint32_t at = 0; r.n_ended < n_jobs; at++) {
		r.now++;
		for (; n_added < n_jobs && due[n_added] <= at; n_added++)
			submit(&r, &r.jobs[n_added], (int32_t)(n_added % 3));
		if (rig_plan(&r))
			n_copied += r.plan.n_swap_out + r.plan.n_swap_in;
		if (r.n_under_way == SCHED_AHEAD || (r.n_under_way && at % 3 == 0))
			rig_apply_oldest(&r);
		if (at > 200000)
			rig_fail(&r, "no progress");
	}
	rig_close(&r, &st);
	cr_expect(!one || n_copied == 0, "one pool swaps nothing");
	return (struct outcome){st.recomputed_tokens, st.n_preempted, st.n_steps};
}

/* The sums over many seeds are compared.  A single seed may differ: with more room, other sequences run. */
Test(one_pool, recomputes_no_more_than_two_pools_of_the_same_memory)
{
	const char *many = getenv("QUERN_SIM_SEEDS");
	const uint64_t n = many ? strtoull(many, NULL, 10) : 200;
	const uint32_t shares[] = {2, 4, 8};
	for (int k = 0; k < 3; k++) {
		struct outcome sum[2] = {{0}};
		for (uint64_t seed = 1; seed <= n; seed++)
			for (int one = 0; one < 2; one++) {
				const struct outcome o = run(seed, shares[k], one);
				sum[one].recomputed += o.recomputed;
				sum[one].preempted += o.preempted;
				sum[one].plans += o.plans;
			}
		if (many)
			fprintf(stderr,
				"host pool of 1/%u: two pools recompute %" PRIu64 " tokens after %" PRIu64
				" preemptions in %" PRIu64 " plans, one %" PRIu64 " after %" PRIu64
				" in %" PRIu64 "\n",
				shares[k], sum[0].recomputed, sum[0].preempted, sum[0].plans,
				sum[1].recomputed, sum[1].preempted, sum[1].plans);
		cr_expect(sum[0].recomputed > 0 && sum[1].recomputed <= sum[0].recomputed,
			  "host pool of 1/%u: %" PRIu64 " with one, %" PRIu64 " with two", shares[k],
			  sum[1].recomputed, sum[0].recomputed);
	}
}
