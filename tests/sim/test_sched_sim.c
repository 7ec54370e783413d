/* test_sched_sim.c - the real scheduler and block manager with a simulated device, driven by seeds: tiny
 * pools, preemption, forks, cancels, lost workers, plans ahead of results (checks: sched_rig.h).
 * QUERN_SIM_SEED replays one seed; QUERN_SIM_SEEDS is the number of seeds, QUERN_SIM_SEED0 the first. */
#include "base/alloc.h"
#include "tests/sim/sched_rig.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_JOBS = 40, MAX_OUT = 200 };

static void add_job(struct sched_rig *r)
{
	struct rig_job *j = rig_job(r);
	j->params.n = rig_rnd(r, 3) ? 1 : 1 + rig_rnd(r, 8);
	j->params.seed = rig_rnd(r, 1u << 30);
	j->n_prompt = 1 + rig_rnd(r, rig_rnd(r, 4) ? 20 : r->max_context / 2);
	if (j->n_prompt > r->max_context - 1)
		j->n_prompt = r->max_context - 1;
	uint32_t room = r->max_context - j->n_prompt;
	j->params.max_tokens = 1 + rig_rnd(r, room < MAX_OUT ? room : MAX_OUT);
	j->params.min_tokens = rig_rnd(r, 2) ? 0 : rig_rnd(r, 10);
	if (rig_rnd(r, 5) == 0) {
		j->params.beam_width = j->params.n + rig_rnd(r, 4);
		j->params.early = (enum params_early)rig_rnd(r, 3);
		j->params.length_penalty = (float)rig_rnd(r, 5) / 2 - 0.5f;
	}
	j->prompt = xmalloc(j->n_prompt * sizeof *j->prompt);
	/* Many prompts share a prefix, some across tenants. */
	uint32_t shared = rig_rnd(r, 3) ? rig_rnd(r, j->n_prompt + 1) : 0, kind = rig_rnd(r, 3);
	for (uint32_t i = 0; i < j->n_prompt; i++)
		j->prompt[i] = i < shared ? (i * 7 + kind) % DEVICE_VOCAB : rig_rnd(r, DEVICE_VOCAB);
	struct group *g = rig_group(r, j);
	g->priority = (int32_t)rig_rnd(r, 3) - 1;
	g->user = rig_rnd(r, 4);
	g->salt = rig_rnd(r, 2);
	if (rig_rnd(r, 20) == 0)
		g->deadline_us = j->deadline_us = r->now + 1 + rig_rnd(r, 60);
	sched_add(r->sched, &g, r->now);
}

static void disturb(struct sched_rig *r)
{
	uint32_t what = rig_rnd(r, 100), job = r->n_jobs ? rig_rnd(r, r->n_jobs) : 0;
	if (r->n_jobs == 0)
		return;
	if (what < 2) {
		rig_cancel(r, job);
	} else if (what < 4) {
		rig_stop(r, job, rig_rnd(r, r->jobs[job].params.n));
	} else if (what == 4 && rig_rnd(r, 4) == 0) {
		rig_lose_worker(r);
		rig_start_worker(r);
	}
	rig_take_events(r);
}

static void choose(struct sched_rig *r)
{
	r->n_blocks = 4 + rig_rnd(r, rig_rnd(r, 2) ? 12 : 200);
	r->max_context = r->n_blocks * 16;
	if (r->max_context > 400)
		r->max_context = 400;
	uint32_t n_slots = 1 + rig_rnd(r, 24);
	r->n_host = rig_rnd(r, 3) ? rig_rnd(r, 2 * r->n_blocks) : 0;
	r->cfg.block_size = 16;
	r->cfg.max_seqs = n_slots;
	r->cfg.max_rows = n_slots + rig_rnd(r, 200);
	r->cfg.chunk = rig_rnd(r, 2) ? 0 : 1 + rig_rnd(r, 40);
	r->cfg.prefill_separate = rig_rnd(r, 4) == 0;
	r->cfg.no_cache = rig_rnd(r, 4) == 0;
	r->cfg.preempt = (enum sched_preempt)rig_rnd(r, 3);
	r->cfg.seed = rig_rnd(r, 1000);
	r->cfg.step_us = rig_rnd(r, 2) ? rig_rnd(r, 100) * 1000 : 0;
	r->cfg.step_auto = rig_rnd(r, 2);
	r->cfg.first_prompt_rows = 1 + rig_rnd(r, 40);
	r->cfg.mixture_rows = rig_rnd(r, 3) ? 0 : 1 + rig_rnd(r, 80);
	r->cfg.aging_us = rig_rnd(r, 2) ? 200 : 0;
	rig_choose_drafts(r);
	rig_choose_kinds(r);
}

/* Totals over all seeds of a run. */
static struct {
	uint64_t steps, plans, jobs, searches, preempted, swapped_out, prefix_hits, tokens;
} done;

static void count(const struct sched_stats *st)
{
	done.plans += st->n_steps;
	done.preempted += st->n_preempted;
	done.swapped_out += st->n_swapped_out;
	done.prefix_hits += st->prefix_hits;
	done.tokens += st->generated_tokens;
}

static void run_seed(uint64_t seed)
{
	struct sched_rig r;
	rig_init(&r, seed, "QUERN_SIM_SEED");
	choose(&r);
	uint64_t link = 1 + rig_rnd(&r, 1000), step = 0;
	rig_open(&r, 1 + rig_rnd(&r, MAX_JOBS));
	rig_start_worker(&r);
	sched_speed(r.sched, 1000, (double)link, 16);
	sched_step_costs(r.sched,
			 (struct sched_costs){rig_rnd(&r, 50000), rig_rnd(&r, 3) ? rig_rnd(&r, 5000) : 0,
					      rig_rnd(&r, 9000)});
	for (uint32_t idle = 0; r.n_ended < r.n_want; step++) {
		r.now++;
		while (r.n_jobs < r.n_want && rig_rnd(&r, 3) == 0)
			add_job(&r);
		disturb(&r);
		sched_expire(r.sched, r.now, &r.ev);
		rig_take_events(&r);
		bool planned = rig_plan(&r);
		sched_check(r.sched);
		bool applied = r.n_under_way && (r.n_under_way == SCHED_AHEAD || rig_rnd(&r, 2));
		if (applied)
			rig_apply_oldest(&r);
		sched_check(r.sched);
		idle = planned || applied || r.n_jobs < r.n_want || r.n_under_way ? 0 : idle + 1;
		if (idle > 100 || step > 200000)
			rig_fail(&r, "no progress");
	}
	done.steps += step;
	done.jobs += r.n_jobs;
	for (uint32_t i = 0; i < r.n_jobs; i++)
		done.searches += r.jobs[i].params.beam_width > 0;
	struct sched_stats st;
	rig_close(&r, &st);
	count(&st);
}

Test(sched_sim, any_schedule_gives_the_same_tokens)
{
	const char *one = getenv("QUERN_SIM_SEED"), *many = getenv("QUERN_SIM_SEEDS");
	if (one) {
		run_seed(strtoull(one, NULL, 10));
		return;
	}
	uint64_t n = many ? strtoull(many, NULL, 10) : 600;
	const char *first = getenv("QUERN_SIM_SEED0");
	uint64_t seed0 = first ? strtoull(first, NULL, 10) : 1;
	for (uint64_t seed = seed0; seed < seed0 + n; seed++)
		run_seed(seed);
	if (!many)
		return;
	fprintf(stderr,
		"%" PRIu64 " seeds from %" PRIu64 " on: %" PRIu64 " steps, %" PRIu64 " plans, %" PRIu64
		" jobs (%" PRIu64 " beam searches), %" PRIu64 " tokens, %" PRIu64 " preemptions (%" PRIu64
		" by swapping), %" PRIu64 " prompt tokens found cached: no violation\n",
		n, seed0, done.steps, done.plans, done.jobs, done.searches, done.tokens, done.preempted,
		done.swapped_out, done.prefix_hits);
}
