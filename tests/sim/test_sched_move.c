/* test_sched_move.c - several schedulers with a simulated device each, driven by a seed.  Groups move between
 * them: new groups, those of a lost worker, those of a drained worker.  Every job ends once, with exactly the
 * tokens of an undisturbed run, and nothing is left behind.
 * QUERN_SIM_SEED replays one seed. */
#include "base/alloc.h"
#include "controller/sched/sched_move.h"
#include "tests/sim/device.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { REPLICAS = 3, JOBS = 30, OUT = 60, CONTEXT = 200, SLOTS = 6, SEEDS = 300 };

struct job {
	uint32_t prompt[CONTEXT], n_prompt;
	struct params params;
	uint32_t out[4][OUT], n_out[4];
	bool done;
};

struct replica {
	struct sched *sched;
	struct device *device; /* NULL: it has no worker */
	uint32_t n_blocks, n_host;
	struct result result;
	int n_under_way;
	bool draining;
};

struct sim {
	uint64_t rng, seed, epoch, order;
	int64_t now;
	struct replica replicas[REPLICAS];
	struct sched *unassigned;
	struct job jobs[JOBS];
	uint32_t n_jobs, n_ended;
	uint32_t n_begun; /* groups that were moved without need after they had begun */
	struct sched_events ev;
	struct plan plan;
};

static uint32_t rnd(struct sim *m, uint32_t n)
{
	m->rng = m->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((m->rng >> 33) % n);
}

static void check_output(const struct sim *m, const struct job *j, uint32_t index)
{
	uint32_t all[4][OUT], n_all[4];
	bool stopped[4];
	if (j->params.beam_width)
		device_search(j->prompt, j->n_prompt, &j->params, all[0], OUT, n_all, stopped);
	else
		n_all[index] = device_expect(j->prompt, j->n_prompt, &j->params, index, all[index], OUT);
	cr_assert_eq(j->n_out[index], n_all[index], "seed %" PRIu64 ": a token too many or too few", m->seed);
	cr_assert_arr_eq(j->out[index], all[index], n_all[index] * sizeof all[0][0], "seed %" PRIu64,
			 m->seed);
}

static void take_events(struct sim *m)
{
	for (uint32_t i = 0; i < m->ev.n; i++) {
		const struct sched_event *e = &m->ev.v[i];
		struct job *j = &m->jobs[e->job];
		cr_assert(!j->done, "seed %" PRIu64 ": an event after the end", m->seed);
		switch (e->kind) {
		case SCHED_TOKEN:
			if (!e->stop)
				j->out[e->index][j->n_out[e->index]++] = e->token;
			break;
		case SCHED_POOLED:
		case SCHED_OUTPUT_DONE:
			check_output(m, j, e->index);
			break;
		case SCHED_GROUP_DONE:
			j->done = true;
			m->n_ended++;
			break;
		case SCHED_GROUP_FAILED:
			cr_assert_fail("seed %" PRIu64 ": a job failed", m->seed);
		}
	}
	m->ev.n = 0;
}

/* Give the group to a replica that serves and is not draining, else to unassigned. */
static void route(struct sim *m, struct group *g)
{
	uint32_t first = rnd(m, REPLICAS);
	for (uint32_t i = 0; i < REPLICAS; i++) {
		struct replica *r = &m->replicas[(first + i) % REPLICAS];
		if (!r->device || r->draining)
			continue;
		sched_adopt(r->sched, &g);
		return;
	}
	sched_adopt(m->unassigned, &g);
}

static void route_all(struct sim *m, struct sched *from)
{
	for (struct group *g = sched_first(from), *next; g; g = next) {
		next = sched_next(from, g);
		route(m, sched_detach(from, g));
		sched_check(from);
	}
}

static void add_job(struct sim *m)
{
	uint32_t id = m->n_jobs++;
	struct job *j = &m->jobs[id];
	params_init(&j->params);
	j->params.n = rnd(m, 3) ? 1 : 1 + rnd(m, 4);
	j->params.seed = rnd(m, 1u << 30);
	j->params.max_tokens = 1 + rnd(m, OUT);
	if (rnd(m, 2)) { /* the outputs of a job end at different times */
		j->params.stop_ids = xmemdup(&(uint32_t){DEVICE_STOP}, sizeof(uint32_t));
		j->params.n_stop_ids = 1;
	}
	if (rnd(m, 4) == 0)
		j->params.beam_width = j->params.n + rnd(m, 4);
	j->n_prompt = 1 + rnd(m, CONTEXT - OUT);
	for (uint32_t i = 0; i < j->n_prompt; i++)
		j->prompt[i] = i < 48 ? i : rnd(m, DEVICE_VOCAB);
	struct params copy;
	params_copy(&copy, &j->params);
	struct group *g =
		group_new(id, xmemdup(j->prompt, j->n_prompt * sizeof *j->prompt), j->n_prompt, &copy);
	g->user = rnd(m, 3);
	g->order = ++m->order;
	g->arrival_us = m->now;
	route(m, g);
}

static void serve(struct sim *m, struct replica *r)
{
	r->device = device_new(SLOTS, r->n_blocks, r->n_host, 16, CONTEXT);
	r->draining = false;
	r->n_under_way = 0;
	sched_start(r->sched, r->n_blocks, r->n_host, ++m->epoch);
}

static void end(struct sim *m, struct replica *r)
{
	sched_worker_died(r->sched);
	sched_lost(r->sched);
	device_free(r->device);
	r->device = NULL;
	r->n_under_way = 0;
	route_all(m, r->sched);
}

static bool wants_any(const struct group *g, void *user)
{
	(void)user;
	return g->n_prompt % 2 == 0;
}

static void disturb(struct sim *m)
{
	struct replica *r = &m->replicas[rnd(m, REPLICAS)];
	uint32_t what = rnd(m, 60);
	struct group *g;
	if (!r->device) {
		if (what < 20) {
			serve(m, r);
			route_all(m, m->unassigned);
		}
	} else if (what == 0) {
		end(m, r); /* with plans in flight */
	} else if (what == 1) {
		r->draining = true;
	} else if (what < 8 && (g = sched_next_idle(r->sched, m->now, wants_any, NULL))) {
		cr_assert(g->n_inflight == 0 && g->n_prompt % 2 == 0);
		m->n_begun += g->first_run_us != 0;
		route(m, sched_detach(r->sched, g));
	}
	if (r->device && r->draining && sched_quiet(r->sched))
		end(m, r);
}

static void run_replica(struct sim *m, struct replica *r)
{
	if (!r->device)
		return;
	if (!r->draining && sched_plan(r->sched, m->now, &m->plan)) {
		device_submit(r->device, &m->plan);
		r->n_under_way++;
	}
	sched_check(r->sched);
	if (r->n_under_way == 0 || (r->n_under_way < SCHED_AHEAD && rnd(m, 2)))
		return;
	device_poison(r->device, sched_blocks(r->sched, STORE_DEVICE), sched_blocks(r->sched, STORE_HOST));
	device_answer(r->device, &r->result);
	cr_assert_eq(sched_apply(r->sched, &r->result, m->now, &m->ev), 0);
	r->n_under_way--;
	take_events(m);
	sched_check(r->sched);
}

static void expect_empty(const struct sim *m, const struct sched *s)
{
	struct sched_stats st;
	sched_stats(s, &st);
	sched_check(s);
	cr_assert(st.n_groups == 0 && st.n_queued == 0 && st.queued_tokens == 0 && st.begun_tokens == 0 &&
			  st.n_waiting == 0 && st.n_swapped == 0 && st.n_free + st.n_cached == st.n_blocks &&
			  st.n_host_free == st.n_host_blocks,
		  "seed %" PRIu64 ": something is left behind", m->seed);
}

/* Return how many groups were moved without need after they had begun. */
static uint32_t run_seed(uint64_t seed)
{
	struct sim m = {.rng = seed * 0x9e3779b97f4a7c15u + 1, .seed = seed, .now = 1};
	struct sched_config cfg = {.block_size = 16, .max_seqs = SLOTS, .max_rows = 64, .seed = seed};
	cfg.preempt = (enum sched_preempt)(seed % 3);
	m.unassigned = sched_new(&cfg);
	for (int i = 0; i < REPLICAS; i++) {
		m.replicas[i].n_blocks = CONTEXT / 16 + 1 + rnd(&m, 20);
		m.replicas[i].n_host = rnd(&m, 20);
		m.replicas[i].sched = sched_new(&cfg);
	}
	for (int step = 0; m.n_ended < JOBS; step++) {
		m.now++;
		if (m.n_jobs < JOBS && rnd(&m, 3) == 0)
			add_job(&m);
		disturb(&m);
		for (int i = 0; i < REPLICAS; i++)
			run_replica(&m, &m.replicas[i]);
		cr_assert_lt(step, 100000, "seed %" PRIu64 ": no progress", seed);
	}
	for (int i = 0; i < REPLICAS; i++) {
		struct replica *r = &m.replicas[i];
		while (r->n_under_way)
			run_replica(&m, r);
		expect_empty(&m, r->sched);
		result_fini(&r->result);
		if (r->device)
			device_free(r->device);
		sched_free(r->sched);
	}
	expect_empty(&m, m.unassigned);
	sched_free(m.unassigned);
	for (uint32_t i = 0; i < JOBS; i++)
		params_fini(&m.jobs[i].params);
	sched_events_fini(&m.ev);
	plan_fini(&m.plan);
	return m.n_begun;
}

Test(sched_move, a_moved_job_gets_the_same_tokens)
{
	const char *one = getenv("QUERN_SIM_SEED");
	if (one) {
		run_seed(strtoull(one, NULL, 10));
		return;
	}
	uint32_t n_begun = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		n_begun += run_seed(seed);
	cr_assert_gt(n_begun, 0);
}

static struct sched *small(bool cache)
{
	struct sched *s = sched_new(
		&(struct sched_config){.block_size = 16, .max_seqs = 4, .max_rows = 64, .no_cache = !cache});
	sched_start(s, 16, 0, 1);
	return s;
}

/* Run a job with the prompt 0 .. n_prompt - 1 and salt 5 to its end. */
static void compute(struct sched *s, uint32_t n_prompt)
{
	struct device *d = device_new(4, 16, 0, 16, CONTEXT);
	struct plan p = {0};
	struct result r = {0};
	struct sched_events ev = {0};
	struct params params;
	uint32_t *prompt = xmalloc(n_prompt * sizeof *prompt);
	for (uint32_t i = 0; i < n_prompt; i++)
		prompt[i] = i;
	params_init(&params);
	params.max_tokens = 1;
	struct group *g = group_new(1, prompt, n_prompt, &params);
	g->salt = 5;
	sched_add(s, &g, 1);
	while (sched_plan(s, 1, &p)) {
		device_step(d, &p, &r);
		cr_assert_eq(sched_apply(s, &r, 1, &ev), 0);
	}
	plan_fini(&p);
	result_fini(&r);
	sched_events_fini(&ev);
	device_free(d);
}

Test(sched_move, reports_the_cached_part_of_a_prompt)
{
	uint32_t tokens[80];
	struct sched *s = small(true), *none = small(false);
	for (uint32_t i = 0; i < 80; i++)
		tokens[i] = i;
	cr_assert_eq(sched_cached(s, tokens, 80, 5), 0);
	compute(s, 40);
	compute(none, 40);
	cr_assert_eq(sched_cached(s, tokens, 80, 5), 32); /* whole blocks */
	cr_assert_eq(sched_cached(s, tokens, 32, 5), 16); /* at least one token is computed */
	cr_assert_eq(sched_cached(s, tokens, 80, 6), 0);  /* another tenant */
	cr_assert_eq(sched_cached(none, tokens, 80, 5), 0);
	tokens[20] = 0;
	cr_assert_eq(sched_cached(s, tokens, 80, 5), 16);
	sched_lost(s);
	cr_assert_eq(sched_cached(s, tokens, 80, 5), 0);
	sched_free(s);
	sched_free(none);
}

/* The next plan's token was in flight when a stop string of the first output was found. */
Test(sched_move, a_job_moves_when_one_of_its_outputs_is_over)
{
	struct sched *from = small(true), *to = small(true);
	struct device *d = device_new(4, 16, 0, 16, CONTEXT);
	struct plan p[2] = {0};
	struct result r = {0};
	struct sched_events ev = {0};
	struct params params;
	params_init(&params);
	params.n = 2;
	params.max_tokens = 10;
	struct group *g = group_new(1, xcalloc(4, sizeof(uint32_t)), 4, &params);
	sched_add(from, &g, 1);
	for (int i = 0; i < 2; i++) {
		cr_assert(sched_plan(from, 1, &p[i]));
		device_submit(d, &p[i]);
	}
	device_answer(d, &r);
	cr_assert_eq(sched_apply(from, &r, 1, &ev), 0);
	sched_stop(from, 1, 0, &ev);
	device_answer(d, &r);
	cr_assert_eq(sched_apply(from, &r, 1, &ev), 0);
	sched_lost(from);
	struct group *moved = sched_detach(from, sched_first(from));
	sched_adopt(to, &moved);
	sched_check(to);
	device_free(d);
	d = device_new(4, 16, 0, 16, CONTEXT);
	uint32_t n_tokens = 2;
	for (ev.n = 0; sched_plan(to, 1, &p[0]);) {
		device_step(d, &p[0], &r);
		cr_assert_eq(sched_apply(to, &r, 1, &ev), 0);
	}
	for (uint32_t i = 0; i < ev.n; i++)
		n_tokens += ev.v[i].kind == SCHED_TOKEN && ev.v[i].index == 1;
	cr_expect_eq(n_tokens, 10);
	cr_expect_eq(ev.v[ev.n - 1].kind, SCHED_GROUP_DONE);
	device_free(d);
	plan_fini(&p[0]);
	plan_fini(&p[1]);
	result_fini(&r);
	sched_events_fini(&ev);
	sched_free(from);
	sched_free(to);
}

Test(sched_move, keeps_the_order_of_arrival)
{
	struct sched *a = small(true), *b = small(true);
	for (uint64_t i = 1; i <= 6; i++) {
		struct params params;
		params_init(&params);
		params.max_tokens = 1;
		struct group *g = group_new(i, xcalloc(4, sizeof(uint32_t)), 4, &params);
		g->order = i;
		sched_adopt(i % 2 ? a : b, &g);
	}
	for (struct group *g = sched_first(b), *next; g; g = next) {
		next = sched_next(b, g);
		struct group *moved = sched_detach(b, g);
		sched_adopt(a, &moved);
	}
	uint64_t n = 0;
	for (struct group *g = sched_first(a); g; g = sched_next(a, g))
		cr_assert_eq(g->order, ++n);
	cr_assert_eq(n, 6);
	cr_assert_null(sched_first(b));
	sched_free(a);
	sched_free(b);
}

/* ---- many groups at once ---- */

enum { MANY = 8192 };

static struct group *one_of_many(uint32_t i, uint64_t user)
{
	struct params params;
	uint32_t *prompt = xcalloc(4, sizeof *prompt);
	params_init(&params);
	params.max_tokens = 10;
	struct group *g = group_new(i, prompt, 4, &params);
	g->order = i + 1;
	g->user = user;
	g->arrival_us = i;
	return g;
}

static struct sched *without_worker(void)
{
	return sched_new(&(struct sched_config){.block_size = 16, .max_seqs = 8, .max_rows = 64});
}

static bool any(const struct group *g, void *user)
{
	(void)g;
	(void)user;
	return true;
}

/* Move every second group from a lost replica to the replica that has the other groups.  Return the steps of
 * all moves. */
static uint64_t steps_of_moves(bool many_users, bool begun)
{
	struct sched *lost = without_worker(), *other = without_worker();
	struct sched_stats before, after;
	for (uint32_t i = 0; i < MANY; i++) {
		struct group *g = one_of_many(i, many_users ? i : 1);
		g->first_run_us = begun ? i + 1 : 0;
		sched_adopt(i % 2 ? lost : other, &g);
	}
	sched_stats(other, &before);
	for (struct group *g = sched_first(lost), *next; g; g = next) {
		next = sched_next(lost, g);
		struct group *moved = sched_detach(lost, g);
		sched_adopt(other, &moved);
	}
	sched_stats(other, &after);
	sched_check(other);
	uint32_t n = 0;
	for (const struct group *g = sched_first(other); g; g = sched_next(other, g))
		cr_assert_eq(g->job, n++);
	cr_assert_eq(n, MANY);
	for (n = 0; !many_users && n < MANY; n++) {
		struct group *g = sched_next_idle(other, 1, any, NULL);
		cr_assert_eq(g->job, n, "job %u is next, not %u", (unsigned)g->job, n);
		group_free(sched_detach(other, g));
	}
	sched_free(lost);
	sched_free(other);
	return after.n_order_steps - before.n_order_steps;
}

/* A few comparisons per group, not one per pair: the engine thread must serve others meanwhile. */
Test(sched_move, queues_of_a_lost_replica_are_merged_in_one_pass)
{
	for (int i = 0; i < 4; i++) {
		uint64_t n = steps_of_moves(i & 1, i & 2);
		cr_expect_lt(n, 8 * MANY, "%" PRIu64 " steps (%s users, %s)", n, i & 1 ? "many" : "one",
			     i & 2 ? "begun" : "new");
	}
}
