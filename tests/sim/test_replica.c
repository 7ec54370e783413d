/* test_replica.c - a replica's prefill speed is measured in steps that compute mostly prompts. */
#include "base/alloc.h"
#include "controller/fleet/replica.h"
#include "controller/sched/sched_move.h"
#include "tests/sim/device.h"

#include <criterion/criterion.h>

enum { SEQS = 128, ROWS = 256, BLOCKS = 512, CONTEXT = 300 };

struct one {
	struct replica *r;
	struct device *device;
	struct worker worker;
	struct plan plan;
	struct result result;
	struct sched_events ev;
	uint64_t jobs;
};

static void one_start(struct one *o)
{
	struct engine_config cfg = {
		.block_size = 16, .max_seqs = SEQS, .max_rows = ROWS, .model_context = CONTEXT};
	struct worker *ranks[] = {&o->worker};
	uint32_t odd;
	struct why why;
	o->worker.ready = (struct bus_ready){.n_blocks = BLOCKS};
	o->r = replica_new(&cfg, 1, 1, ranks, 1);
	o->device = device_new(SEQS, BLOCKS, 0, 16, CONTEXT);
	cr_assert_eq(replica_start(o->r, &odd, &why), 0, "%s", why.text);
}

static void one_end(struct one *o)
{
	replica_free(o->r);
	device_free(o->device);
	plan_fini(&o->plan);
	result_fini(&o->result);
	sched_events_fini(&o->ev);
}

static void add(struct one *o, uint32_t n_prompt, uint32_t max_tokens)
{
	struct params params;
	uint32_t *prompt = xmalloc(n_prompt * sizeof *prompt);
	uint64_t job = ++o->jobs;
	for (uint32_t i = 0; i < n_prompt; i++)
		prompt[i] = (uint32_t)(job * 31 + i * 7) % DEVICE_VOCAB;
	params_init(&params);
	params.max_tokens = max_tokens;
	params.ignore_eos = true;
	struct group *g = group_new(job, prompt, n_prompt, &params);
	g->order = job;
	sched_adopt(o->r->sched, &g);
}

/* Run a step with that duration; return its rows. */
static uint32_t step(struct one *o, uint32_t us)
{
	cr_assert(sched_plan(o->r->sched, 1, &o->plan));
	replica_planned(o->r, &o->plan);
	device_step(o->device, &o->plan, &o->result);
	o->result.step_us = us;
	cr_assert_eq(replica_result(o->r, &o->result, 1, &o->ev), 0);
	return o->plan.n_rows;
}

Test(replica, decodes_do_not_measure_prefill_speed)
{
	struct one o = {0};
	one_start(&o);
	for (int i = 0; i < 100; i++)
		add(&o, 20, 50);
	for (int i = 0; i < 7; i++) /* nearly 256 rows each, nearly all from prompts */
		step(&o, 1000);
	double tps = o.r->prefill_tps;
	cr_assert_gt(tps, 100000);
	cr_assert_leq(tps, 256000);
	while (o.plan.n_rows != 100)
		step(&o, 1000);
	tps = o.r->prefill_tps;
	for (int i = 0; i < 20; i++)
		cr_assert_eq(step(&o, 10000), 100);
	cr_assert_float_eq(o.r->prefill_tps, tps, 1e-9);
	one_end(&o);
}

Test(replica, short_prompt_beside_decodes_does_not_measure_prefill_speed)
{
	struct one o = {0};
	one_start(&o);
	for (int i = 0; i < 100; i++)
		add(&o, 2, 50);
	while (o.plan.n_rows != 100)
		step(&o, 0);
	cr_assert_eq(o.r->prefill_tps, 0);
	add(&o, 80, 2);
	cr_assert_eq(step(&o, 10000), 180);
	cr_assert_eq(o.r->prefill_tps, 0);
	add(&o, 120, 2);
	cr_assert_gt(step(&o, 10000), 220); /* more than half are prompt rows */
	cr_assert_gt(o.r->prefill_tps, 0);
	one_end(&o);
}
