/* The real scheduler and block manager, driven by a seed with a simulated device: whatever
 * happens (tiny pools, preemption, forks, cancels, a lost worker, plans ahead of results), every
 * job ends once, and every output has exactly the tokens that it has undisturbed.
 * QUERN_SIM_SEED replays one seed; QUERN_SIM_SEEDS runs so many from QUERN_SIM_SEED0 on. */
#include "base/alloc.h"
#include "controller/sched.h"
#include "tests/sim/device.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JOBS = 40, MAX_OUT = 200 };

struct job {
	uint32_t *prompt, n_prompt;
	struct params params;
	uint32_t out[8][MAX_OUT], n_out[8];
	bool output_done[8], cancelled, stopped[8], done;
	int n_done;
	int64_t deadline_us;
};

struct sim {
	uint64_t rng;
	uint64_t seed;
	struct sched *sched;
	struct device *device;
	uint32_t max_context, n_blocks, n_host, n_slots, block_size;
	struct plan plan;
	struct result results[SCHED_AHEAD];
	int n_results; /* of plans carried out, not yet applied; oldest first */
	struct sched_events ev;
	struct job jobs[MAX_JOBS];
	uint32_t n_jobs, n_ended;
	int64_t now;
	uint64_t epoch;
};

static uint32_t rnd(struct sim *m, uint32_t n)
{
	m->rng = m->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((m->rng >> 33) % n);
}

static void fail_seed(const struct sim *m, const char *what)
{
	cr_assert_fail("seed %" PRIu64 ": %s (replay: QUERN_SIM_SEED=%" PRIu64 ")", m->seed, what, m->seed);
}

static void add_job(struct sim *m)
{
	uint32_t id = m->n_jobs++;
	struct job *j = &m->jobs[id];
	params_init(&j->params);
	j->params.n = rnd(m, 3) ? 1 : 1 + rnd(m, 8);
	j->params.seed = rnd(m, 1u << 30);
	j->n_prompt = 1 + rnd(m, rnd(m, 4) ? 20 : m->max_context / 2);
	if (j->n_prompt > m->max_context - 1)
		j->n_prompt = m->max_context - 1;
	uint32_t room = m->max_context - j->n_prompt;
	j->params.max_tokens = 1 + rnd(m, room < MAX_OUT ? room : MAX_OUT);
	j->params.min_tokens = rnd(m, 2) ? 0 : rnd(m, 10);
	if (rnd(m, 5) == 0) {
		j->params.beam_width = j->params.n + rnd(m, 4);
		j->params.early = (enum params_early)rnd(m, 3);
		j->params.length_penalty = (float)rnd(m, 5) / 2 - 0.5f;
	}
	j->params.stop_ids = xmalloc(sizeof(uint32_t));
	j->params.stop_ids[0] = DEVICE_STOP;
	j->params.n_stop_ids = 1;
	j->prompt = xmalloc(j->n_prompt * sizeof *j->prompt);
	/* Many begin alike, some alike with another tenant. */
	uint32_t alike = rnd(m, 3) ? rnd(m, j->n_prompt + 1) : 0, kind = rnd(m, 3);
	for (uint32_t i = 0; i < j->n_prompt; i++)
		j->prompt[i] = i < alike ? (i * 7 + kind) % DEVICE_VOCAB : rnd(m, DEVICE_VOCAB);
	struct params copy;
	params_copy(&copy, &j->params);
	struct group *g =
		group_new(id, xmemdup(j->prompt, j->n_prompt * sizeof *j->prompt), j->n_prompt, &copy);
	g->priority = (int32_t)rnd(m, 3) - 1;
	g->user = rnd(m, 4);
	g->salt = rnd(m, 2);
	if (rnd(m, 20) == 0)
		g->deadline_us = j->deadline_us = m->now + 1 + rnd(m, 60);
	sched_add(m->sched, &g, m->now);
}

static void check_output(struct sim *m, struct job *j, uint32_t index, enum finish finish)
{
	uint32_t all[8][MAX_OUT], n_all[8], *want = all[index], n, have = j->n_out[index];
	if (j->params.beam_width) {
		bool stopped[8];
		device_search(j->prompt, j->n_prompt, &j->params, all[0], MAX_OUT, n_all, stopped);
		n = n_all[index];
		if (finish != FINISH_ABORT && finish != (stopped[index] ? FINISH_STOP : FINISH_LENGTH))
			fail_seed(m, "a hypothesis ended otherwise");
	} else {
		n = device_expect(j->prompt, j->n_prompt, &j->params, index, want, MAX_OUT);
	}
	if (have > n || memcmp(want, j->out[index], have * sizeof *want) != 0)
		fail_seed(m, "an output differs from the undisturbed one");
	if ((finish == FINISH_LENGTH || (finish == FINISH_STOP && !j->stopped[index])) && have != n)
		fail_seed(m, "an output ended too early");
	const bool nothing = j->params.beam_width && n == 0 && device_dries_up(&j->params);
	if (finish == FINISH_LENGTH && n != j->params.max_tokens && !nothing)
		fail_seed(m, "an output ended by length that is not so long");
	if (finish == FINISH_ABORT && !j->cancelled)
		fail_seed(m, "aborted without a cancel");
}

static void take_events(struct sim *m)
{
	for (uint32_t i = 0; i < m->ev.n; i++) {
		const struct sched_event *e = &m->ev.v[i];
		struct job *j = &m->jobs[e->job];
		if (j->done)
			fail_seed(m, "an event after the end of its job");
		switch (e->kind) {
		case SCHED_TOKEN:
			if (j->output_done[e->index])
				fail_seed(m, "a token after the end of its output");
			if (e->stop !=
			    (e->token == DEVICE_STOP && j->n_out[e->index] >= j->params.min_tokens))
				fail_seed(m, "a stop token that is none");
			if (e->stop)
				break;
			j->out[e->index][j->n_out[e->index]++] = e->token;
			break;
		case SCHED_OUTPUT_DONE:
			if (j->output_done[e->index])
				fail_seed(m, "an output ended twice");
			j->output_done[e->index] = true;
			j->n_done++;
			check_output(m, j, e->index, e->finish);
			break;
		case SCHED_GROUP_DONE:
			if (j->n_done != (int)j->params.n)
				fail_seed(m, "a job ended before its outputs");
			j->done = true;
			m->n_ended++;
			break;
		case SCHED_GROUP_FAILED:
			if (e->code != E_DEADLINE || !j->deadline_us || m->now < j->deadline_us)
				fail_seed(m, "a job failed without a reason");
			j->done = true;
			m->n_ended++;
			break;
		}
	}
	m->ev.n = 0;
}

static void lose_worker(struct sim *m)
{
	sched_blame(m->sched);
	sched_lost(m->sched);
	sched_check(m->sched);
	m->n_results = 0;
	device_free(m->device);
	m->device = device_new(m->n_slots, m->n_blocks, m->n_host, m->block_size, m->max_context);
	sched_start(m->sched, m->n_blocks, m->n_host, ++m->epoch);
}

static void disturb(struct sim *m)
{
	uint32_t what = rnd(m, 100), id = m->n_jobs ? rnd(m, m->n_jobs) : 0;
	if (m->n_jobs == 0)
		return;
	struct job *j = &m->jobs[id];
	if (what < 2) {
		j->cancelled = true;
		sched_cancel(m->sched, id, &m->ev);
	} else if (what < 4) {
		uint32_t index = rnd(m, j->params.n);
		j->stopped[index] = true;
		sched_stop(m->sched, id, index, &m->ev);
	} else if (what == 4 && rnd(m, 4) == 0) {
		lose_worker(m);
	}
	take_events(m);
}

static void apply_oldest(struct sim *m)
{
	if (sched_apply(m->sched, &m->results[0], m->now, &m->ev))
		fail_seed(m, "a result was refused");
	struct result first = m->results[0];
	memmove(m->results, m->results + 1, sizeof m->results - sizeof first);
	m->results[SCHED_AHEAD - 1] = first;
	m->n_results--;
	take_events(m);
}

/* Over all seeds of a run. */
static struct {
	uint64_t steps, plans, jobs, searches, preempted, swapped_out, prefix_hits, tokens;
} done;

static void count(const struct sim *m, uint64_t steps, const struct sched_stats *st)
{
	done.steps += steps;
	done.plans += st->n_plans;
	done.jobs += m->n_jobs;
	for (uint32_t i = 0; i < m->n_jobs; i++)
		done.searches += m->jobs[i].params.beam_width > 0;
	done.preempted += st->n_preempted;
	done.swapped_out += st->n_swapped_out;
	done.prefix_hits += st->prefix_hits;
	done.tokens += st->generated_tokens;
}

static void run_seed(uint64_t seed)
{
	struct sim m = {.rng = seed * 0x9e3779b97f4a7c15u + 1, .seed = seed, .now = 1, .epoch = 1};
	for (int i = 0; i < 4; i++)
		rnd(&m, 2);
	m.block_size = 16;
	m.n_blocks = 4 + rnd(&m, rnd(&m, 2) ? 12 : 200);
	m.max_context = m.n_blocks * m.block_size;
	if (m.max_context > 400)
		m.max_context = 400;
	m.n_slots = 1 + rnd(&m, 24);
	m.n_host = rnd(&m, 3) ? rnd(&m, 2 * m.n_blocks) : 0;
	struct sched_config cfg = {
		.block_size = m.block_size,
		.max_seqs = m.n_slots,
		.max_rows = m.n_slots + rnd(&m, 200),
		.chunk = rnd(&m, 2) ? 0 : 1 + rnd(&m, 40),
		.prefill_separate = rnd(&m, 4) == 0,
		.no_cache = rnd(&m, 4) == 0,
		.preempt = (enum sched_preempt)rnd(&m, 3),
		.seed = rnd(&m, 1000),
		.aging_us = rnd(&m, 2) ? 200 : 0,
		.step_us = rnd(&m, 2) ? rnd(&m, 100) * 1000 : 0,
		.min_prompt_rows = 1 + rnd(&m, 40),
	};
	m.sched = sched_new(&cfg);
	m.device = device_new(m.n_slots, m.n_blocks, m.n_host, m.block_size, m.max_context);
	sched_start(m.sched, m.n_blocks, m.n_host, m.epoch);
	sched_speed(m.sched, 1000, 1 + rnd(&m, 1000), 16);
	uint32_t want = 1 + rnd(&m, MAX_JOBS), idle = 0;
	uint64_t step = 0;
	for (; m.n_ended < want; step++) {
		m.now++;
		while (m.n_jobs < want && rnd(&m, 3) == 0)
			add_job(&m);
		disturb(&m);
		sched_expire(m.sched, m.now, &m.ev);
		take_events(&m);
		bool planned = sched_plan(m.sched, m.now, &m.plan);
		if (planned)
			device_step(m.device, &m.plan, &m.results[m.n_results++]);
		sched_check(m.sched);
		bool applied = m.n_results && (m.n_results == SCHED_AHEAD || rnd(&m, 2));
		if (applied)
			apply_oldest(&m);
		sched_check(m.sched);
		idle = planned || applied || m.n_jobs < want || m.n_results ? 0 : idle + 1;
		if (idle > 100 || step > 200000)
			fail_seed(&m, "nothing moves any more");
	}
	while (m.n_results)
		apply_oldest(&m);
	struct sched_stats st;
	sched_stats(m.sched, &st);
	if (st.n_groups || st.n_running || st.n_waiting || st.n_free + st.n_cached != st.n_blocks ||
	    st.n_host_free != st.n_host_blocks || st.n_swapped || st.n_queued || st.queued_tokens)
		fail_seed(&m, "something is left behind");
	count(&m, step, &st);
	for (uint32_t i = 0; i < m.n_jobs; i++) {
		free(m.jobs[i].prompt);
		params_fini(&m.jobs[i].params);
	}
	for (int i = 0; i < SCHED_AHEAD; i++)
		result_fini(&m.results[i]);
	plan_fini(&m.plan);
	sched_events_fini(&m.ev);
	device_free(m.device);
	sched_free(m.sched);
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
