/* A fleet in simulated time: the controller's own code, with workers simulated by a cost model. */
#include "bench/sim/fleet_replay.h"

#include "base/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECOND = 1000000 };

static struct why why;

/* A low rate for 40 s, a high one for 60 s, a low one for 100 s. */
static void rise_and_fall(struct trace *t)
{
	static const struct {
		int64_t from_s, to_s;
		double rate;
	} parts[] = {{0, 40, 1}, {40, 100, 12}, {100, 200, 1}};
	struct rng r = {7};
	*t = (struct trace){0};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		for (double s = (double)parts[i].from_s; s < (double)parts[i].to_s;
		     s += rng_exponential(&r) / parts[i].rate) {
			t->v = realloc(t->v, (t->n + 1) * sizeof *t->v);
			t->v[t->n++] = (struct arrival){(int64_t)(s * SECOND), 300, 30, 0};
		}
}

/* A device that serves a few requests per second: each prompt takes 150 ms. */
static struct fleet_replay_config small(void)
{
	struct fleet_replay_config c = {.n_blocks = 2000,
					.max_context = 2048,
					.n_first = 1,
					.start_us = 5 * SECOND,
					.seed = 1,
					.slo = {.ttft_ms = 2000, .tpot_ms = 200}};
	c.cost = (struct costmodel){.name = "small",
				    .base_us = 5000,
				    .bytes_per_s = 1e12,
				    .flop_per_s = 2e12,
				    .link_bytes_per_s = 1e10,
				    .memory_bytes = 1e10,
				    .weights_bytes = 1e9,
				    .flop_per_token = 1e9,
				    .kv_token_bytes = 1e5};
	c.engine.block_size = 16;
	c.engine.max_seqs = 16;
	c.engine.max_rows = 512;
	c.engine.chunk = 256;
	c.engine.step_us = 25000;
	c.engine.step_auto = true;
	snprintf(c.engine.preempt, sizeof c.engine.preempt, "auto");
	c.engine.autoscale = (struct autoscale_config){.min = 1,
						       .max = 6,
						       .target = 2,
						       .period_us = 5 * SECOND,
						       .window_us = 5 * SECOND,
						       .down_us = 20 * SECOND};
	log_init("test", LOG_ERROR, LOG_TEXT);
	return c;
}

static void run(const struct fleet_replay_config *c, const struct trace *t, struct fleet_replay_report *r)
{
	cr_assert_eq(fleet_replay_run(c, t, r, &why), 0, "%s", why.text);
	cr_assert_eq(r->n_done + r->n_lost + r->n_refused, r->n_requests);
}

static uint32_t workers_at(const struct fleet_replay_report *r, int64_t s)
{
	uint32_t n = 0;
	for (size_t i = 0; i < r->n_points && r->points[i].at_us <= s * SECOND; i++)
		n = r->points[i].n_workers;
	return n;
}

Test(fleet_replay, workers_come_with_the_load_and_go_with_it)
{
	struct fleet_replay_config c = small();
	struct fleet_replay_report r;
	struct trace t;
	rise_and_fall(&t);
	run(&c, &t, &r);
	cr_assert_eq(r.n_lost, 0);
	cr_assert_eq(workers_at(&r, 39), 1);
	cr_assert_geq(workers_at(&r, 80), 2);
	cr_assert_eq(workers_at(&r, 199), 1);
	cr_assert_leq(r.n_most, 6);
	cr_assert_eq(r.n_started, r.n_ended);
	fleet_replay_report_fini(&r);
	trace_fini(&t);
}

Test(fleet_replay, worker_seconds_are_from_the_order_to_the_end)
{
	struct fleet_replay_config c = small();
	struct fleet_replay_report r;
	struct trace t;
	rise_and_fall(&t);
	run(&c, &t, &r);
	double sum = 0;
	for (size_t i = 0; i < r.n_points; i++) {
		const double to = i + 1 < r.n_points ? (double)r.points[i + 1].at_us : r.sim_s * SECOND;
		sum += (to - (double)r.points[i].at_us) / SECOND * r.points[i].n_workers;
	}
	cr_assert_float_eq(r.worker_s, sum, 1e-6 * sum);
	fleet_replay_report_fini(&r);
	trace_fini(&t);
}

Test(fleet_replay, the_same_configuration_gives_the_same_figures)
{
	struct fleet_replay_config c = small();
	struct fleet_replay_report a, b;
	struct trace t;
	rise_and_fall(&t);
	run(&c, &t, &a);
	run(&c, &t, &b);
	cr_assert_eq(a.n_good, b.n_good);
	cr_assert_eq(a.worker_s, b.worker_s);
	cr_assert_eq(a.ttft_ms.n, b.ttft_ms.n);
	for (size_t i = 0; i < a.ttft_ms.n; i++)
		cr_assert_eq(a.ttft_ms.x[i], b.ttft_ms.x[i], "request %zu", i);
	fleet_replay_report_fini(&a);
	fleet_replay_report_fini(&b);
	trace_fini(&t);
}

Test(fleet_replay, longer_requests_than_the_context_are_refused)
{
	struct fleet_replay_config c = small();
	struct fleet_replay_report r;
	struct arrival v[] = {{0, 100, 10, 0}, {10, 3000, 10, 0}};
	struct trace t = {v, 2, 2};
	run(&c, &t, &r);
	cr_assert_eq(r.n_refused, 1);
	cr_assert_eq(r.n_done, 1);
	cr_assert_float_eq(fleet_replay_good(&r), 1, 0);
	fleet_replay_report_fini(&r);
}
