#include "bench/commands.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/option_table.h"
#include "bench/sim/costmodel.h"
#include "bench/sim/fleet_replay.h"
#include "bench/sim/traces.h"
#include "cli/command.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 16, MAX_ROWS = 2048, CHUNK = 512, STEP_MS = 25, ROWS_SHOWN = 60 };

static const struct usage usage = {
	.name = "bench autoscale",
	.words = "",
	.about = "Simulates a service that autoscales (quern serve --max-replicas) under a trace of "
		 "arrivals: the\n"
		 "controller's own code, in simulated time, with workers whose speed follows from a cost "
		 "model.  Prints\n"
		 "the latencies that clients would see, and the number of workers.",
};

struct bench {
	struct fleet_replay_config cfg;
	struct trace trace;
	double slot_s;
	struct fleet_replay_report report;
};

/* ---- options ---- */

static int seconds(const struct opts *o, const char *name, double least, int64_t *us, struct why *why)
{
	const double s = opts_number(o, name);
	if (!(s >= least && s <= 86400))
		return err_why(why, -EINVAL, "--%s must be %g to 86400 seconds", name, least);
	*us = (int64_t)(s * 1e6);
	return 0;
}

static int read_rule(const struct opts *o, struct bench *b, struct why *why)
{
	struct autoscale_config *a = &b->cfg.engine.autoscale;
	a->min = (uint32_t)opts_int(o, "replicas");
	a->max = (uint32_t)opts_int(o, "max-replicas");
	a->target = opts_number(o, "scale-at");
	b->cfg.n_first = (uint32_t)opts_int_or(o, "first", a->min);
	if (a->max < a->min || b->cfg.n_first < a->min || b->cfg.n_first > a->max)
		return err_why(why, -EINVAL,
			       "--replicas %u, --first %u, --max-replicas %u: must not fall in this order",
			       a->min, b->cfg.n_first, a->max);
	if (!(a->target >= 0.01 && a->target <= 1e6))
		return err_why(why, -EINVAL, "--scale-at must be 0.01 to 1000000");
	int rc = seconds(o, "scale-period", 0.1, &a->period_us, why);
	if (!rc)
		rc = seconds(o, "scale-down-after", 0.1, &a->down_us, why);
	a->window_us = 2 * a->period_us;
	return rc;
}

static int read_options(const struct opts *o, struct bench *b, struct why *why)
{
	struct fleet_replay_config *c = &b->cfg;
	int64_t slot_us = 0;
	int rc = costmodel_named(opts_text(o, "device"), &c->cost, why);
	if (rc)
		return err_prefix(why, rc, "--device");
	c->engine.block_size = BLOCK_SIZE;
	c->engine.max_rows = MAX_ROWS;
	c->engine.chunk = CHUNK;
	c->engine.step_us = STEP_MS * 1000;
	c->engine.step_auto = true;
	c->engine.max_seqs = (uint32_t)opts_int(o, "max-seqs");
	if (c->engine.max_seqs > MAX_ROWS)
		c->engine.max_rows = c->engine.max_seqs;
	snprintf(c->engine.preempt, sizeof c->engine.preempt, "auto");
	c->n_blocks = costmodel_blocks(&c->cost, costmodel_kv_bytes(&c->cost), BLOCK_SIZE);
	c->max_context = (uint32_t)opts_int(o, "context");
	c->seed = (uint64_t)opts_int(o, "seed");
	rc = slo_parse(opts_text(o, "slo"), &c->slo, why);
	if (rc)
		return err_prefix(why, rc, "--slo");
	if ((rc = seconds(o, "start", 0, &c->start_us, why)) || (rc = seconds(o, "slot", 1, &slot_us, why)))
		return rc;
	b->slot_s = (double)slot_us / 1e6;
	return read_rule(o, b, why);
}

static int read_trace(const struct opts *o, struct bench *b, struct why *why)
{
	const double rate = opts_number(o, "rate"), duration = opts_number(o, "duration");
	if (!opts_has(o, "trace"))
		return err_why(why, -EINVAL, "--trace is missing: a CSV file of arrivals");
	if (!(rate >= 1e-6 && rate <= 1e6))
		return err_why(why, -EINVAL, "--rate must be 1e-6 to 1e6");
	if (opts_has(o, "duration") && !(duration > 0 && duration <= 1e9))
		return err_why(why, -EINVAL, "--duration must be above 0 and at most 1e9 seconds");
	int rc = trace_read(opts_text(o, "trace"), &b->trace, why);
	if (rc)
		return rc;
	trace_scale(&b->trace, rate);
	if (opts_has(o, "duration"))
		trace_cut(&b->trace, (int64_t)(duration * 1e6));
	return 0;
}

/* ---- the report ---- */

/* Return the worker seconds of the report within [from, to). */
static double workers_between(const struct fleet_replay_report *r, int64_t from_us, int64_t to_us)
{
	double sum = 0;
	for (size_t i = 0; i < r->n_points; i++) {
		int64_t a = r->points[i].at_us,
			b = i + 1 < r->n_points ? r->points[i + 1].at_us : (int64_t)(r->sim_s * 1e6);
		a = a > from_us ? a : from_us;
		b = b < to_us ? b : to_us;
		if (b > a)
			sum += (double)(b - a) / 1e6 * r->points[i].n_workers;
	}
	return sum;
}

static json_t *percentiles(struct samples *s)
{
	return json_pack("{s:f, s:f, s:f}", "p50", samples_percentile(s, 50), "p90",
			 samples_percentile(s, 90), "p99", samples_percentile(s, 99));
}

static json_t *report_json(struct fleet_replay_report *r)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:f, s:o, s:o}", "requests",
			 (json_int_t)r->n_requests, "refused", (json_int_t)r->n_refused, "done",
			 (json_int_t)r->n_done, "lost", (json_int_t)r->n_lost, "good_share",
			 fleet_replay_good(r), "worker_seconds", r->worker_s, "most_workers",
			 (json_int_t)r->n_most, "workers_started", (json_int_t)r->n_started, "sim_seconds",
			 r->sim_s, "ttft_ms", percentiles(&r->ttft_ms), "tpot_ms", percentiles(&r->tpot_ms));
}

static void print_json(struct bench *b)
{
	const int64_t slot_us = (int64_t)(b->slot_s * 1e6);
	json_t *o = report_json(&b->report), *slots = json_array();
	for (int64_t at = 0; at < (int64_t)(b->report.sim_s * 1e6); at += slot_us)
		json_array_append_new(slots,
				      json_real(workers_between(&b->report, at, at + slot_us) / b->slot_s));
	json_object_set_new(o, "workers_by_slot", slots);
	json_object_set_new(o, "slot_seconds", json_real(b->slot_s));
	json_object_set_new(o, "device", json_string(b->cfg.cost.name));
	json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(o);
}

static void print_row(struct table *t, struct fleet_replay_report *r)
{
	table_begin(t);
	table_format(t, "%.2f", 100 * fleet_replay_good(r));
	table_format(t, "%.0f", samples_percentile(&r->ttft_ms, 50));
	table_format(t, "%.0f", samples_percentile(&r->ttft_ms, 95));
	table_format(t, "%.0f", samples_percentile(&r->ttft_ms, 99));
	table_format(t, "%.1f", samples_percentile(&r->tpot_ms, 50));
	table_format(t, "%.1f", samples_percentile(&r->tpot_ms, 95));
	table_format(t, "%.3f", r->worker_s / 3600);
	table_format(t, "%u", r->n_most);
	table_format(t, "%" PRIu64, r->n_lost);
}

static void print_slots(const struct bench *b)
{
	const struct fleet_replay_report *r = &b->report;
	struct table t = {0};
	const size_t all = (size_t)ceil(r->sim_s / b->slot_s), step = (all + ROWS_SHOWN - 1) / ROWS_SHOWN;
	table_row(&t, "FROM s", "REQUESTS/s", "WORKERS", NULL);
	for (size_t i = 0, k = 0; i < all; i += step) {
		const double from = (double)i * b->slot_s, s = (double)step * b->slot_s;
		size_t n = 0;
		for (; k < b->trace.n && b->trace.v[k].at_us < (int64_t)((from + s) * 1e6); k++)
			n++;
		table_begin(&t);
		table_format(&t, "%.0f", from);
		table_format(&t, "%.1f", (double)n / s);
		table_format(&t, "%.1f",
			     workers_between(r, (int64_t)(from * 1e6), (int64_t)((from + s) * 1e6)) / s);
	}
	table_print(&t, stdout);
	table_fini(&t);
}

static void print_text(struct bench *b)
{
	struct table t = {0};
	const struct fleet_replay_report *r = &b->report;
	printf("%" PRIu64
	       " requests in %.0f s, workers of %s that take %.0f s to start; one for %g requests\n\n",
	       r->n_requests, r->sim_s, b->cfg.cost.name, (double)b->cfg.start_us / 1e6,
	       b->cfg.engine.autoscale.target);
	print_slots(b);
	printf("\n");
	table_row(&t, "GOOD %", "TTFT p50 ms", "p95", "p99", "TPOT p50 ms", "p95", "WORKER h", "MOST", "LOST",
		  NULL);
	print_row(&t, &b->report);
	table_print(&t, stdout);
	table_fini(&t);
	if (r->n_refused)
		printf("\n%" PRIu64 " requests are refused as too long\n", r->n_refused);
}

int cmd_bench_autoscale(int argc, char **argv)
{
	struct opts o = {0};
	struct bench *b = xcalloc(1, sizeof *b);
	struct why why;
	opts_add_program(&o, OPTION_BENCH_AUTOSCALE);
	int status = command_parse(&o, &usage, argc, argv);
	if (status != COMMAND_GO_ON)
		goto out;
	log_init("bench", LOG_ERROR, LOG_TEXT);
	if (read_options(&o, b, &why)) {
		status = term_usage("bench autoscale", "%s", why.text);
		goto out;
	}
	int rc = read_trace(&o, b, &why);
	if (rc == -EINVAL && !b->trace.n) {
		status = term_usage("bench autoscale", "%s", why.text);
		goto out;
	}
	if (!rc)
		rc = fleet_replay_run(&b->cfg, &b->trace, &b->report, &why);
	if (!rc && opts_flag(&o, "json"))
		print_json(b);
	else if (!rc)
		print_text(b);
	status = term_finish(rc ? term_error("%s", why.text) : EXIT_SUCCESS);
out:
	fleet_replay_report_fini(&b->report);
	trace_fini(&b->trace);
	free(b);
	opts_fini(&o);
	return status;
}
