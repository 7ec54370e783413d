/* test_pace.c - chunks of prompts follow the measured speed: a replica on simulated devices in simulated
 * time, where a formula gives the cost of a step. */
#include "base/alloc.h"
#include "controller/fleet/replica.h"
#include "controller/sched/sched_move.h"
#include "tests/sim/device.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(pace, .timeout = 120);

enum { SEQS = 32, ROWS = 2048, BLOCKS = 4096, CONTEXT = 1200, STREAMS = 4, WARM = 40 };

/* step = fixed + prompt rows * row + decodes * decode, longer by up to `noise` percent */
struct speed {
	double fixed_us, row_us, decode_us;
	uint32_t noise;
};
static const struct speed slow = {50000, 6000, 6000, 0};   /* 160 prompt tokens per second */
static const struct speed uneven = {50000, 3000, 3000, 8}; /* a machine shared with others */
static const struct speed heavy = {100000, 1000, 1000, 0};
static const struct speed cpu = {20000, 1200, 1200, 0};
static const struct speed fast = {5000, 30, 30, 0};
static const struct speed long_contexts = {20000, 500, 5000, 0}; /* a decode reads its whole context */

struct sim {
	struct replica *r;
	struct device *device;
	struct worker worker;
	struct plan plans[SCHED_AHEAD];
	uint32_t first, n;
	struct result result;
	struct sched_events ev;
	struct speed speed;
	double slower; /* factor on all costs */
	uint64_t jobs, rng;
	int64_t now_us;
	uint32_t prompts_done;
};

static uint32_t mixture_rows, stream_above_rows; /* for replicas that sim_open() makes */
enum { SENT_US = 600000 };                       /* a step with more rows than stream_above_rows */

static void sim_open(struct sim *m, struct speed speed, int64_t step_us, bool automatic)
{
	struct engine_config cfg = {.block_size = 16,
				    .max_seqs = SEQS,
				    .max_rows = ROWS,
				    .model_context = CONTEXT,
				    .step_us = step_us,
				    .step_auto = automatic,
				    .mixture_rows = mixture_rows};
	struct worker *ranks[] = {&m->worker};
	uint32_t odd;
	struct why why;
	*m = (struct sim){.speed = speed, .slower = 1, .rng = 1, .now_us = 1};
	m->worker.ready = (struct bus_ready){.n_blocks = BLOCKS, .stream_above_rows = stream_above_rows};
	m->r = replica_new(&cfg, 1, 1, ranks, 1);
	m->device = device_new(SEQS, BLOCKS, 0, 16, CONTEXT);
	cr_assert_eq(replica_start(m->r, &odd, &why), 0, "%s", why.text);
}

static void sim_close(struct sim *m)
{
	replica_free(m->r);
	device_free(m->device);
	for (int i = 0; i < SCHED_AHEAD; i++)
		plan_fini(&m->plans[i]);
	result_fini(&m->result);
	sched_events_fini(&m->ev);
}

static uint64_t add_search(struct sim *m, uint32_t n_prompt, uint32_t max_tokens, uint32_t beams)
{
	struct params params;
	uint32_t *prompt = xmalloc(n_prompt * sizeof *prompt);
	uint64_t job = ++m->jobs;
	for (uint32_t i = 0; i < n_prompt; i++)
		prompt[i] = (uint32_t)(job * 31 + i * 7) % DEVICE_VOCAB;
	params_init(&params);
	params.max_tokens = max_tokens;
	params.ignore_eos = true;
	params.beam_width = beams;
	struct group *g = group_new(job, prompt, n_prompt, &params);
	sched_add(m->r->sched, &g, m->now_us);
	return job;
}

static uint64_t add(struct sim *m, uint32_t n_prompt, uint32_t max_tokens)
{
	return add_search(m, n_prompt, max_tokens, 0);
}

static double step_us(struct sim *m, uint32_t decodes, uint32_t prompts)
{
	m->rng = m->rng * 6364136223846793005u + 1442695040888963407u;
	const double more = (double)(m->rng >> 33) / (1u << 31) * m->speed.noise / 100;
	const double rows = m->speed.fixed_us + prompts * m->speed.row_us + decodes * m->speed.decode_us;
	return (stream_above_rows && decodes + prompts > stream_above_rows ? SENT_US : rows) * (1 + more) *
	       m->slower;
}

/* Run one step, with a plan in flight as usual.  Return its duration; *decodes, *prompts: its rows.  0:
 * nothing to do. */
static double step(struct sim *m, uint32_t *decodes, uint32_t *prompts)
{
	while (m->n < SCHED_AHEAD) {
		struct plan *p = &m->plans[(m->first + m->n) % SCHED_AHEAD];
		if (!sched_plan(m->r->sched, m->now_us, p))
			break;
		replica_planned(m->r, p);
		device_submit(m->device, p);
		m->n++;
	}
	if (!m->n)
		return 0;
	const struct plan *p = &m->plans[m->first];
	*decodes = *prompts = 0;
	for (uint32_t i = 0; i < p->n_runs; i++)
		*(p->runs[i].n_rows > 1 ? prompts : decodes) += p->runs[i].n_rows;
	const double us = step_us(m, *decodes, *prompts);
	device_answer(m->device, &m->result);
	m->result.step_us = (uint32_t)us;
	m->now_us += (int64_t)us;
	cr_assert_eq(replica_result(m->r, &m->result, m->now_us, &m->ev), 0);
	for (uint32_t i = 0; i < m->ev.n; i++)
		m->prompts_done += m->ev.v[i].kind == SCHED_TOKEN && m->ev.v[i].job > STREAMS;
	m->ev.n = 0;
	m->first = (m->first + 1) % SCHED_AHEAD;
	m->n--;
	return us;
}

/* Run some streams, then long prompts next to them; measure the gaps between tokens once speeds are known. */
struct gaps {
	double longest_us;
	uint32_t steps;
};

static struct gaps gaps_beside_prompts(struct sim *m)
{
	struct gaps g = {0};
	uint32_t decodes, prompts;
	for (int i = 0; i < STREAMS; i++)
		add(m, 30, 1000);
	for (int i = 0; i < WARM; i++)
		step(m, &decodes, &prompts);
	for (int i = 0; i < 3; i++)
		add(m, 600, 1);
	for (; m->prompts_done < 3; g.steps++) {
		cr_assert_lt(g.steps, 2000, "the prompts make no progress");
		const double us = step(m, &decodes, &prompts);
		cr_assert_eq(decodes, STREAMS);
		g.longest_us = us > g.longest_us ? us : g.longest_us;
	}
	return g;
}

Test(pace, a_slow_device_keeps_the_bound_beside_prompts)
{
	struct sim m;
	sim_open(&m, slow, 150000, false);
	const struct gaps g = gaps_beside_prompts(&m);
	cr_expect_leq(g.longest_us, 150000, "%.0f ms", g.longest_us / 1e3);
	cr_expect_geq(g.longest_us, 120000, "the bound is used: %.0f ms", g.longest_us / 1e3);
	/* 12 prompt rows fit next to 4 decodes */
	cr_expect_leq(g.steps, 1800 / 12 + 10);
	sim_close(&m);
}

Test(pace, an_uneven_device_keeps_the_bound_beside_prompts)
{
	struct sim m;
	sim_open(&m, uneven, 138000, false);
	const struct gaps g = gaps_beside_prompts(&m);
	cr_expect_leq(g.longest_us, 150000, "%.0f ms", g.longest_us / 1e3);
	cr_expect_leq(g.steps, 1800 / 16 + 10);
	sim_close(&m);
}

/* No step shows the cost of decodes alone, while others use half of the machine and prompts continue. */
Test(pace, a_machine_that_slows_down_takes_prompts_in_parts_of_use)
{
	struct sim m;
	uint32_t decodes, prompts, steps = 0;
	sim_open(&m, heavy, 120000, false);
	for (int i = 0; i < STREAMS; i++)
		add(&m, 30, 1000);
	for (int i = 0; i < WARM; i++)
		step(&m, &decodes, &prompts);
	for (int i = 0; i < 5; i++)
		add(&m, 600, 1);
	for (; m.prompts_done < 5 && steps < 2000; steps++) {
		m.slower = steps > 10 ? 1.8 : 1;
		const double us = step(&m, &decodes, &prompts);
		cr_expect_leq(us, 1.8 * 1.35 * 104000, "step %u: %.0f ms", steps, us / 1e3);
	}
	cr_expect_leq(steps, 3000 / 16, "parts of %u rows", 3000 / steps);
	sim_close(&m);
}

/* When the machine is as fast as before, chunks are as large as before. */
Test(pace, a_machine_that_recovers_is_used)
{
	struct sim m;
	uint32_t decodes, prompts, rows = 0;
	sim_open(&m, cpu, 80000, false);
	for (int i = 0; i < STREAMS; i++)
		add(&m, 30, 1000);
	for (int i = 0; i < WARM; i++)
		step(&m, &decodes, &prompts);
	for (int i = 0; i < 10; i++)
		add(&m, 600, 1);
	for (int i = 0; i < 150; i++) {
		m.slower = i < 75 ? 2.5 : 1;
		const double us = step(&m, &decodes, &prompts);
		if (i >= 110)
			cr_expect_leq(us, 84000, "step %d: %.0f ms", i, us / 1e3);
		rows += i >= 110 ? prompts : 0;
	}
	cr_expect_geq(rows / 40, 36, "of 46 that fit: %u", rows / 40);
	sim_close(&m);
}

/* Decodes cost more than prompt rows: when many decodes end, there is room for more rows. */
Test(pace, decodes_have_a_price_of_their_own)
{
	enum { MANY = 10 };
	struct sim m;
	uint32_t decodes, prompts, rows = 0;
	sim_open(&m, long_contexts, 80000, false);
	for (int i = 0; i < MANY; i++) /* they begin and end one after another */
		add(&m, 30, 60 + 12 * (uint32_t)i);
	for (int i = 0; i < 60 + 12 * MANY; i++)
		step(&m, &decodes, &prompts);
	for (int i = 0; i < MANY; i++)
		add(&m, 30, i < 2 ? 1000 : 60);
	for (int i = 0; i < 50; i++)
		step(&m, &decodes, &prompts);
	for (int i = 0; i < 4; i++)
		add(&m, 1000, 1);
	for (int i = 0; i < 30; i++) {
		const double us = step(&m, &decodes, &prompts);
		cr_expect_leq(us, 1.3 * 70000, "step %d: %.0f ms, %u decodes, %u rows", i, us / 1e3, decodes,
			      prompts);
		if (i >= 20) {
			cr_expect_leq(us, 83000, "step %d: %.0f ms, %u rows", i, us / 1e3, prompts);
			cr_expect_eq(decodes, 2);
			rows += prompts;
		}
	}
	cr_expect_geq(rows / 10, 84, "of 100 that fit: %u", rows / 10);
	sim_close(&m);
}

/* 25 ms cannot be kept if a step without prompts takes 74: prompts continue, and add little. */
Test(pace, a_bound_below_a_step_of_decodes_adds_a_quarter)
{
	struct sim m;
	sim_open(&m, slow, 25000, false);
	const struct gaps g = gaps_beside_prompts(&m);
	cr_expect_leq(g.longest_us, 1.25 * 74000 + 6000, "%.0f ms", g.longest_us / 1e3);
	sim_close(&m);
}

Test(pace, the_default_takes_twice_a_step_of_decodes)
{
	struct sim m;
	sim_open(&m, heavy, 25000, true);
	const struct gaps g = gaps_beside_prompts(&m);
	cr_expect_leq(g.longest_us, 2 * 104000 + 8000, "%.0f ms", g.longest_us / 1e3);
	cr_expect_leq(g.steps, 1800 / 96 + 10);
	sim_close(&m);
}

/* The rows do not depend on their cost: a busy machine makes rows seem expensive. */
Test(pace, the_default_takes_32_rows_beside_streams)
{
	struct sim m;
	sim_open(&m, slow, 25000, true);
	const struct gaps g = gaps_beside_prompts(&m);
	cr_expect_leq(g.longest_us, 50000 + 32 * 6000, "%.0f ms", g.longest_us / 1e3);
	cr_expect_leq(g.steps, 1800 / 28 + 10);
	sim_close(&m);
}

Test(pace, the_default_takes_up_to_100_ms_where_decodes_take_less)
{
	struct sim m;
	sim_open(&m, cpu, 25000, true);
	const struct gaps g = gaps_beside_prompts(&m);
	cr_expect_leq(g.longest_us, 100000, "%.0f ms", g.longest_us / 1e3);
	cr_expect_leq(g.steps, 1800 / 60 + 10); /* 25 ms of decodes; 64 rows in all take 97 */
	sim_close(&m);
}

Test(pace, a_fast_device_takes_a_prompt_in_large_parts)
{
	struct sim m;
	sim_open(&m, fast, 25000, true);
	const struct gaps g = gaps_beside_prompts(&m);
	cr_expect_leq(g.longest_us, 25000 + 30, "%.0f ms", g.longest_us / 1e3);
	cr_expect_leq(g.steps, 6);
	sim_close(&m);
}

/* If no stream waits, a chunk is large enough that the fixed cost of a step matters little. */
Test(pace, prompts_alone_come_in_parts_that_are_worth_a_step)
{
	struct sim m;
	uint32_t decodes, prompts = 0, steps = 0, known = 0;
	sim_open(&m, slow, 25000, true);
	for (int i = 0; i < STREAMS; i++)
		add(&m, 30, 3);
	while (step(&m, &decodes, &prompts) > 0)
		;
	add(&m, 1000, 1);
	while (step(&m, &decodes, &prompts) > 0) {
		known += prompts >= 48; /* 7 times 50 ms in rows of 6 ms: 58 */
		steps++;
	}
	cr_expect_leq(steps, 1000 / 48 + 2);
	cr_expect_geq(known, steps - 2);
	sim_close(&m);
}

/* A step of a mixture with few rows per expert is slow per row: rows seem expensive, and chunks would stay
 * small.  Next to streams, the streams' gaps count. */
Test(pace, prompts_of_a_mixture_come_in_parts_that_share_experts)
{
	for (int automatic = 0; automatic < 2; automatic++) {
		struct sim m;
		uint32_t decodes, prompts = 0, steps = 0;
		mixture_rows = sched_mixture_rows(128, 8);
		sim_open(&m, slow, 25000, automatic);
		mixture_rows = 0;
		add(&m, 1000, 1);
		while (step(&m, &decodes, &prompts) > 0)
			steps++;
		if (automatic)
			cr_expect_eq(steps, 4, "256 rows a step: %u steps", steps);
		else
			cr_expect_gt(steps, 100, "%u steps", steps);
		add(&m, 30, 400);
		while (step(&m, &decodes, &prompts) > 0 && !decodes)
			;
		for (add(&m, 1000, 1), steps = 0; step(&m, &decodes, &prompts) > 0 && decodes;)
			cr_expect_leq(prompts, 32, "%u rows beside a stream", prompts);
		sim_close(&m);
	}
	cr_expect_eq(sched_mixture_rows(0, 0), 0);
	cr_expect_eq(sched_mixture_rows(8, 2), 64);
}

/* If host experts are streamed to the device for steps with many rows, prompts alone fill such steps.  Next
 * to a stream, chunks have the size that other steps' costs allow, however cheap the rows of full steps
 * were. */
Test(pace, prompts_alone_fill_the_steps_that_experts_come_for)
{
	struct sim m;
	uint32_t decodes, prompts = 0, steps = 0;
	mixture_rows = sched_mixture_rows(128, 8);
	stream_above_rows = 290;
	sim_open(&m, slow, 25000, true);
	mixture_rows = 0;
	for (int i = 0; i < 20; i++) {
		add(&m, 1000, 1);
		for (steps = 0; step(&m, &decodes, &prompts) > 0; steps++)
			;
		cr_expect_eq(steps, (1000 + ROWS - 1) / ROWS, "%u steps", steps);
	}
	add(&m, 30, 400);
	while (step(&m, &decodes, &prompts) > 0 && !decodes)
		;
	for (add(&m, 1000, 1), steps = 0; step(&m, &decodes, &prompts) > 0 && decodes;)
		cr_expect_leq(prompts, 32, "%u rows beside a stream", prompts);
	stream_above_rows = 0;
	sim_close(&m);
}

/* Run prompts of 1,000 tokens next to streams, on a device that host experts are streamed to; return the most
 * rows of a step, and the least in *least. */
static uint32_t most_beside_stream(uint32_t above, uint32_t streams, int64_t step_us, bool automatic,
				   uint32_t *least)
{
	struct sim m;
	uint32_t decodes, prompts, most = 0;
	*least = UINT32_MAX;
	mixture_rows = sched_mixture_rows(8, 2);
	stream_above_rows = above;
	sim_open(&m, cpu, step_us, automatic);
	for (uint32_t i = 0; i < streams; i++)
		add(&m, 20, 700);
	for (int i = 0; i < 300; i++) {
		if (i % 20 == 10)
			add(&m, 1000, 1);
		cr_assert(step(&m, &decodes, &prompts) > 0);
		if (decodes < streams || !prompts)
			continue;
		most = prompts + decodes > most ? prompts + decodes : most;
		*least = prompts < *least ? prompts : *least;
	}
	mixture_rows = stream_above_rows = 0;
	sim_close(&m);
	return most;
}

/* Next to streams, a chunk of a prompt never makes experts be streamed: this takes long for any number of
 * rows, and no known cost includes it.  If decodes leave hardly any rows below the limit, chunks are not
 * limited by it. */
Test(pace, beside_streams_no_experts_are_sent_for_a_part_of_a_prompt)
{
	uint32_t least;
	cr_expect_eq(most_beside_stream(40, 1, 25000, true, &least), 40);
	cr_expect_eq(most_beside_stream(100, 4, 500000, false, &least), 100);
	cr_expect_leq(most_beside_stream(400, 4, 25000, true, &least), 100);
	cr_expect_gt(most_beside_stream(20, 8, 25000, true, &least), 200);
}

/* With a step time given by the user, a step of prompts alone does not stream experts either. */
Test(pace, a_time_given_by_hand_sends_no_experts_for_prompts_alone)
{
	struct sim m;
	uint32_t decodes, prompts;
	stream_above_rows = 40;
	sim_open(&m, cpu, 100000, false);
	add(&m, 1000, 1);
	while (step(&m, &decodes, &prompts) > 0)
		cr_expect_leq(prompts, 40);
	stream_above_rows = 0;
	sim_close(&m);
}

/* A plan contains a search's hypotheses only once the tokens of the previous plan are known: the other plans
 * seem to have prompts alone. */
Test(pace, prompts_of_a_mixture_do_not_hold_up_a_beam_search)
{
	struct sim m;
	uint32_t decodes = 0, prompts = 0, beside = 0;
	mixture_rows = sched_mixture_rows(128, 8);
	sim_open(&m, slow, 25000, true);
	mixture_rows = 0;
	add_search(&m, 30, 400, 2);
	for (int i = 0; i < 20; i++)
		cr_assert_gt(step(&m, &decodes, &prompts), 0);
	add(&m, 1000, 1);
	for (int i = 0; i < 20; i++) {
		cr_assert_gt(step(&m, &decodes, &prompts), 0);
		cr_expect_lt(prompts, 128, "%u rows", prompts);
		beside += prompts;
	}
	cr_expect_gt(beside, 100, "%u rows", beside);
	sim_close(&m);
}

static double expected(const struct pace *p, double decodes, double prompts)
{
	const struct sched_costs c = pace_costs(p);
	return c.fixed_us + decodes * c.decode_us + prompts * c.row_us;
}

Test(pace, the_costs_of_a_step_are_learned_and_kept)
{
	struct pace p = {0};
	cr_expect_eq(pace_costs(&p).fixed_us, 0);
	cr_expect_eq(pace_costs(&p).row_us, 0);
	pace_note(&p, 100, 100, 20000);
	cr_expect_eq(pace_costs(&p).fixed_us, 0, "one kind of step shows no line");
	cr_expect_float_eq(pace_costs(&p).row_us, 200, 1e-9);
	for (int i = 0; i < 1000; i++)
		pace_note(&p, 4, 0, 10400);
	cr_expect_float_eq(pace_costs(&p).row_us, 100, 1e-6);
	cr_expect_float_eq(pace_costs(&p).fixed_us, 10000, 1e-3);
	pace_note(&p, 200, 196, 0); /* no time, no change */
	cr_expect_float_eq(pace_costs(&p).row_us, 100, 1e-6);
	for (int i = 0; i < 200; i++)
		pace_note(&p, 100, 96, 9000); /* the device has become faster, with decodes still to come */
	cr_expect_float_eq(expected(&p, 4, 96), 9000, 1);
}

/* If a few rows cost nearly as much as many, chunks do not shrink to those few. */
Test(pace, rows_are_as_dear_as_in_steps_of_many)
{
	struct pace p = {0};
	pace_note(&p, 128, 128, 139000);
	for (int i = 0; i < 50; i++) {
		pace_note(&p, 1, 0, 25000);
		pace_note(&p, 8, 7, 53000); /* 4 ms each, instead of 0.9 */
	}
	cr_expect_lt(pace_costs(&p).row_us, 1000);
}

/* If rows of small steps are cheaper than those of large steps were, the large steps are out of date. */
Test(pace, what_was_seen_last_is_believed)
{
	struct pace p = {0};
	pace_note(&p, 1, 0, 10000);
	pace_note(&p, 64, 63, 73000);
	for (int i = 0; i < 20; i++) {
		pace_note(&p, 1, 0, 10000);
		pace_note(&p, 8, 7, 10700);
	}
	cr_expect_lt(pace_costs(&p).row_us, 120);
	for (int i = 0; i < 40; i++)
		pace_note(&p, 64, 63, 73000);
	cr_expect_float_eq(expected(&p, 1, 63), 73000, 500);
}

/* Another process used the machine: the spike must hardly shorten the next step. */
Test(pace, a_spike_changes_little)
{
	struct pace p = {0};
	for (int i = 0; i < 50; i++) {
		pace_note(&p, 4, 0, 54000);
		pace_note(&p, 34, 30, 84000);
	}
	cr_expect_float_eq(pace_costs(&p).row_us, 1000, 1e-3);
	pace_note(&p, 34, 30, 900000);
	cr_expect_lt(pace_costs(&p).row_us, 1300);
	for (int i = 0; i < 50; i++)
		pace_note(&p, 34, 30, 144000);
	cr_expect_float_eq(expected(&p, 4, 30), 144000, 500, "a device that stays slower is believed");
	cr_expect_gt(expected(&p, 4, 0), 65000, "of its decodes, too");
}
