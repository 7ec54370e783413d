#include "bench/commands.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "bench/sim/costmodel.h"
#include "bench/plot.h"
#include "bench/sim/replay.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"
#include "bench/sim/traces.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RATES_MAX = 32, ARRIVALS_MAX = 20000000, RUNNING_MAX = 65536, USERS_SHOWN = 32 };

/* Bounds of rates and speeds, which keep times within 64 bits of microseconds. */
static const double number_min = 1e-6, number_max = 1e9;

static const struct usage usage = {
	.name = "bench scheduler",
	.words = "",
	.about = "Runs the scheduler in simulated time, with arrivals from a trace or synthetic ones, and a "
		 "device\n"
		 "whose speed follows from a cost model.  Prints the latencies that clients would see, and "
		 "the\n"
		 "processor time of the scheduler itself.",
};

struct bench {
	struct replay_config cfg;
	const char *trace_path; /* NULL: synthetic arrivals */
	struct trace trace;     /* the trace as read */
	struct synthetic synthetic;
	struct users users;
	int64_t only_user; /* -1: all users */
	double duration_s; /* 0: the whole trace */
	double rates[RATES_MAX];
	size_t n_rates;
	struct replay_report reports[RATES_MAX];
};

/* ---- options ---- */

static int number_above(const struct opts *o, const char *name, double scale, double *out, struct why *why)
{
	if (!opts_has(o, name))
		return 0;
	double x = opts_number(o, name);
	if (!(x >= number_min && x <= number_max))
		return err_why(why, -EINVAL, "--%s is not %g to %g", name, number_min, number_max);
	*out = x * scale;
	return 0;
}

/* Read "0,128,128": three kinds of layers. */
static int windows_of(const char *text, struct kinds *out, struct why *why)
{
	*out = (struct kinds){0};
	for (const char *at = text;; at++) {
		char *end;
		const unsigned long window = strtoul(at, &end, 10);
		if (!isdigit((unsigned char)*at) || window > INT32_MAX || out->n == KINDS_MAX ||
		    (*end && *end != ','))
			return err_why(why, -EINVAL, "--windows: \"%.40s\" is not a list of up to %d numbers",
				       text, KINDS_MAX);
		out->window[out->n++] = (uint32_t)window;
		at = end;
		if (!*end)
			return 0;
	}
}

static int device_of(const struct opts *o, struct costmodel *c, struct why *why)
{
	int rc = costmodel_named(opts_text(o, "device"), c, why);
	if (!rc)
		rc = number_above(o, "gb-per-s", 1e9, &c->bytes_per_s, why);
	if (!rc)
		rc = number_above(o, "link-gb-per-s", 1e9, &c->link_bytes_per_s, why);
	if (!rc)
		rc = number_above(o, "tflops", 1e12, &c->flop_per_s, why);
	if (!rc)
		rc = number_above(o, "step-ms", 1e3, &c->base_us, why);
	if (!rc)
		rc = number_above(o, "params", 2e9, &c->flop_per_token, why);
	c->memory_bytes = (double)opts_int_or(o, "memory", (int64_t)c->memory_bytes);
	c->weights_bytes = (double)opts_int_or(o, "weights-bytes", (int64_t)c->weights_bytes);
	c->kv_token_bytes = (double)opts_int_or(o, "kv-token-bytes", (int64_t)c->kv_token_bytes);
	if (!rc)
		rc = windows_of(opts_text(o, "windows"), &c->kinds, why);
	if (!rc && c->kv_token_bytes < 1)
		rc = err_why(why, -EINVAL, "--kv-token-bytes must be above 0");
	return rc;
}

static int policy_of(const struct opts *o, struct sched_config *s, struct why *why)
{
	const char *prefill = opts_text(o, "prefill"), *preempt = opts_text(o, "preempt");
	s->block_size = (uint32_t)opts_int(o, "block-size");
	s->max_seqs = (uint32_t)opts_int(o, "max-seqs");
	s->max_rows = (uint32_t)opts_int(o, "max-batch-tokens");
	s->chunk = (uint32_t)opts_int(o, "chunk");
	s->step_us = opts_int(o, "max-step-ms") * 1000;
	s->step_auto = !opts_has(o, "max-step-ms");
	s->no_cache = opts_flag(o, "no-prefix-cache");
	s->prefill_separate = strcmp(prefill, "separate") == 0;
	if (!s->prefill_separate && strcmp(prefill, "mixed") != 0)
		return err_why(why, -EINVAL, "--prefill: \"%.40s\" is neither mixed nor separate", prefill);
	if (strcmp(preempt, "swap") == 0)
		s->preempt = SCHED_SWAP;
	else if (strcmp(preempt, "recompute") == 0)
		s->preempt = SCHED_RECOMPUTE;
	else if (strcmp(preempt, "auto") != 0)
		return err_why(why, -EINVAL, "--preempt: \"%.40s\" is not swap, recompute or auto", preempt);
	return 0;
}

/* Set the size of the pool: as given, or what the weights leave of the memory.  For --running, at least what
 * the sequences need. */
static int pool_of(const struct opts *o, struct replay_config *c, struct why *why)
{
	uint32_t size = c->sched.block_size;
	int64_t kv_bytes = opts_int_or(o, "kv-bytes", (int64_t)costmodel_kv_bytes(&c->cost));
	c->n_blocks = costmodel_blocks(&c->cost, (double)kv_bytes, size);
	c->n_host_blocks = costmodel_blocks(&c->cost, (double)opts_int(o, "swap-bytes"), size);
	if (c->running && !opts_has(o, "kv-bytes")) {
		uint64_t need = replay_running_blocks(c);
		if (need > COSTMODEL_BLOCKS_MAX)
			return err_why(why, -EINVAL,
				       "--running: that many sequences of that length need %" PRIu64
				       " blocks",
				       need);
		c->n_blocks = need > c->n_blocks ? (uint32_t)need : c->n_blocks;
	}
	if (c->n_blocks == 0)
		return err_why(why, -EINVAL,
			       "no block fits: the KV cache has %" PRId64 " bytes, a block %.0f", kv_bytes,
			       costmodel_block_bytes(&c->cost, size));
	return 0;
}

static int rates_of(const struct opts *o, struct bench *b, struct why *why)
{
	b->n_rates = 1;
	b->rates[0] = b->trace_path ? 1 : 10;
	if (opts_has(o, "rate") && opts_has(o, "rates"))
		return err_why(why, -EINVAL, "either --rate or --rates");
	if (!opts_has(o, "rates"))
		return number_above(o, "rate", 1, &b->rates[0], why);
	const char *text = opts_text(o, "rates"), *p = text;
	for (b->n_rates = 0; b->n_rates < RATES_MAX; p++) {
		char *end;
		double x = strtod(p, &end);
		if (end == p || !(x >= number_min && x <= number_max) || (*end && *end != ','))
			break;
		b->rates[b->n_rates++] = x;
		p = end;
		if (!*p)
			return 0;
	}
	return err_why(why, -EINVAL, "--rates: \"%.40s\" is not a list of at most %d numbers of 1e-6 to 1e9",
		       text, RATES_MAX);
}

static int arrivals_of(const struct opts *o, struct bench *b, struct why *why)
{
	static const char *const synthetic[] = {"arrivals", "lengths", "multi-turn"};
	static const char *const steady[] = {"trace",      "arrivals", "rate", "rates",
					     "multi-turn", "users",    "plot"};
	struct synthetic *s = &b->synthetic;
	b->trace_path = opts_text(o, "trace");
	for (size_t i = 0; b->trace_path && i < sizeof synthetic / sizeof *synthetic; i++)
		if (opts_has(o, synthetic[i]))
			return err_why(why, -EINVAL, "either --trace or --%s", synthetic[i]);
	for (size_t i = 0; opts_has(o, "running") && i < sizeof steady / sizeof *steady; i++)
		if (opts_has(o, steady[i]))
			return err_why(why, -EINVAL, "either --running or --%s", steady[i]);
	s->seed = b->cfg.seed = (uint64_t)opts_int(o, "seed");
	int rc = arrivals_parse(opts_text(o, "arrivals"), &s->shape, why);
	if (rc)
		return err_prefix(why, rc, "--arrivals");
	rc = lengths_parse(opts_text(o, "lengths"), &s->lengths, why);
	if (rc)
		return err_prefix(why, rc, "--lengths");
	rc = users_parse(opts_text(o, "users"), &b->users, why);
	if (rc)
		return err_prefix(why, rc, "--users");
	b->only_user = opts_int_or(o, "only-user", -1);
	if (b->only_user >= (int64_t)b->users.n)
		return err_why(why, -EINVAL, "--only-user: there are %u users", b->users.n);
	b->duration_s = b->trace_path ? 0 : 300;
	rc = number_above(o, "duration", 1, &b->duration_s, why);
	if (!rc)
		rc = rates_of(o, b, why);
	for (size_t i = 0; i < b->n_rates && !rc && !b->trace_path; i++)
		if (b->rates[i] * b->duration_s > ARRIVALS_MAX)
			rc = err_why(why, -EINVAL, "--rate times --duration: more than %d arrivals",
				     ARRIVALS_MAX);
	return rc;
}

static int config_of(const struct opts *o, struct bench *b, struct why *why)
{
	struct replay_config *c = &b->cfg;
	int rc = arrivals_of(o, b, why);
	if (!rc)
		rc = device_of(o, &c->cost, why);
	if (!rc)
		rc = policy_of(o, &c->sched, why);
	if (rc)
		return rc;
	c->lengths = b->synthetic.lengths;
	c->n_turns = (uint32_t)opts_int(o, "multi-turn");
	c->n_users = b->users.n;
	c->fcfs = opts_flag(o, "fcfs");
	c->shared_prefix = (uint32_t)opts_int(o, "shared-prefix");
	c->max_context = (uint32_t)opts_int(o, "context");
	c->running = (uint32_t)opts_int(o, "running");
	c->steps = (uint32_t)opts_int(o, "steps");
	c->running_prompt = (uint32_t)opts_int(o, "prompt-tokens");
	double think_s = opts_number(o, "think");
	if (think_s < 0 || think_s > 1e6)
		return err_why(why, -EINVAL, "--think is not 0 to 1e6 seconds");
	c->think_us = think_s * 1e6;
	if (c->running) {
		c->sched.max_seqs = c->running > c->sched.max_seqs ? c->running : c->sched.max_seqs;
		c->sched.max_rows = c->running > c->sched.max_rows ? c->running : c->sched.max_rows;
		uint64_t most = replay_running_tokens(c);
		c->max_context = most > c->max_context ? (uint32_t)most : c->max_context;
		b->n_rates = 1;
	}
	rc = slo_parse(opts_text(o, "slo"), &c->slo, why);
	return rc ? err_prefix(why, rc, "--slo") : pool_of(o, c, why);
}

/* ---- the runs ---- */

static void arrivals_at(const struct bench *b, double rate, struct trace *t)
{
	if (b->trace_path) {
		t->n = t->cap = b->trace.n;
		t->v = xmemdup(b->trace.v, b->trace.n * sizeof *b->trace.v);
		trace_scale(t, rate);
		if (b->duration_s > 0)
			trace_cut(t, (int64_t)fmin(b->duration_s * 1e6, 9e18));
	} else {
		struct synthetic s = b->synthetic;
		/* The rate counts requests, and a chat has several. */
		s.rate = rate / b->cfg.n_turns;
		s.duration_us = (int64_t)(b->duration_s * 1e6);
		trace_synthetic(&s, t);
	}
	trace_users(t, &b->users, b->cfg.seed);
	if (b->only_user >= 0)
		trace_keep_user(t, (uint32_t)b->only_user);
}

static int run_all(struct bench *b, struct why *why)
{
	for (size_t i = 0; i < b->n_rates; i++) {
		struct trace t = {0};
		if (!b->cfg.running)
			arrivals_at(b, b->rates[i], &t);
		int rc = replay_run(&b->cfg, &t, &b->reports[i], why);
		trace_fini(&t);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- report ---- */

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

static double goodput(const struct replay_report *r)
{
	return share((double)r->n_good, r->sim_s);
}

static json_t *percentiles(struct samples *s)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", samples_mean(s), "p50",
			 samples_percentile(s, 50), "p90", samples_percentile(s, 90), "p99",
			 samples_percentile(s, 99), "max", samples_max(s));
}

static json_t *user_json(struct replay_user *u, uint32_t i, double sim_s)
{
	return json_pack("{s:I, s:I, s:I, s:f, s:o, s:o}", "user", (json_int_t)i, "done",
			 (json_int_t)u->n_done, "good", (json_int_t)u->n_good, "output_tokens_per_s",
			 share((double)u->output_tokens, sim_s), "ttft_ms", percentiles(&u->ttft_ms),
			 "tpot_ms", percentiles(&u->tpot_ms));
}

static void set(json_t *o, const char *key, double x)
{
	json_object_set_new(o, key, json_real(x));
}

static void set_int(json_t *o, const char *key, uint64_t x)
{
	json_object_set_new(o, key, json_integer((json_int_t)x));
}

static json_t *report_json(const struct bench *b, size_t i, struct replay_report *r, bool per_user)
{
	json_t *o = json_object();
	if (b->cfg.running)
		set_int(o, "running", b->cfg.running);
	else
		set(o, "rate", b->rates[i]);
	set_int(o, "requests", r->n_requests);
	set_int(o, "done", r->n_done);
	set_int(o, "refused", r->n_refused);
	set_int(o, "good", r->n_good);
	set(o, "goodput_per_s", goodput(r));
	set(o, "good_share", share((double)r->n_good, (double)r->n_done));
	set(o, "requests_per_s", share((double)r->n_done, r->sim_s));
	set(o, "prompt_tokens_per_s", share((double)r->prompt_tokens, r->sim_s));
	set(o, "output_tokens_per_s", share((double)r->output_tokens, r->sim_s));
	json_object_set_new(o, "ttft_ms", percentiles(&r->ttft_ms));
	json_object_set_new(o, "tpot_ms", percentiles(&r->tpot_ms));
	json_object_set_new(o, "itl_ms", percentiles(&r->itl_ms));
	json_object_set_new(o, "e2el_ms", percentiles(&r->e2el_ms));
	set_int(o, "preempted", r->n_preempted);
	set_int(o, "preempted_swap", r->n_preempted_swap);
	set_int(o, "preempted_recompute", r->n_preempted - r->n_preempted_swap);
	set_int(o, "recomputed_tokens", r->recomputed_tokens);
	set_int(o, "blocks_swapped_out", r->n_swap_out);
	set_int(o, "blocks_swapped_in", r->n_swap_in);
	set_int(o, "blocks_copied", r->n_copies);
	set(o, "hit_rate", share((double)r->cached_tokens, (double)r->admitted_tokens));
	set(o, "waiting_mean", r->waiting_mean);
	set_int(o, "waiting_max", r->waiting_max);
	set(o, "running_mean", r->running_mean);
	set_int(o, "running_max", r->running_max);
	set_int(o, "blocks", b->cfg.n_blocks);
	set(o, "held_mean", r->held_mean);
	set(o, "held_max", r->held_max);
	set_int(o, "steps", r->n_steps);
	set(o, "rows_per_step", share((double)r->n_rows, (double)r->n_steps));
	json_object_set_new(o, "step_ms", percentiles(&r->step_ms));
	set(o, "step_cpu_us_mean", samples_mean(&r->step_cpu_us));
	set(o, "step_cpu_us_p50", samples_percentile(&r->step_cpu_us, 50));
	set(o, "step_cpu_us_p99", samples_percentile(&r->step_cpu_us, 99));
	set(o, "step_cpu_us_max", samples_max(&r->step_cpu_us));
	json_object_set_new(o, "cpu_us_mean",
			    json_pack("{s:f, s:f, s:f, s:f, s:f}", "plan", r->plan_cpu_us, "encode",
				      r->encode_cpu_us, "decode", r->decode_cpu_us, "apply", r->apply_cpu_us,
				      "other", r->other_cpu_us));
	set(o, "allocs_per_step", r->allocs_per_step);
	json_object_set_new(o, "plan_bytes", percentiles(&r->plan_bytes));
	set(o, "sim_seconds", r->sim_s);
	set(o, "busy_share", share(r->busy_s, r->sim_s));
	set(o, "wall_seconds", r->wall_s);
	set(o, "sim_seconds_per_second", share(r->sim_s, r->wall_s));
	set(o, "sim_seconds_per_cpu_second", share(r->sim_s, r->cpu_s));
	if (per_user) {
		json_t *users = json_array();
		for (uint32_t k = 0; k < r->n_users; k++)
			json_array_append_new(users, user_json(&r->users[k], k, r->sim_s));
		json_object_set_new(o, "users", users);
	}
	return o;
}

/* Print one simulation as an object, several as an array in an object. */
static void print_json(struct bench *b, bool per_user)
{
	json_t *runs = json_array();
	for (size_t i = 0; i < b->n_rates; i++)
		json_array_append_new(runs, report_json(b, i, &b->reports[i], per_user));
	json_t *all =
		b->n_rates == 1 ? json_incref(json_array_get(runs, 0)) : json_pack("{s:O}", "runs", runs);
	json_object_set_new(all, "device", json_string(b->cfg.cost.name));
	json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(all);
	json_decref(runs);
}

static void latency_row(struct table *t, const char *name, struct samples *s)
{
	table_begin(t);
	table_text(t, name);
	table_format(t, "%.2f", samples_percentile(s, 50));
	table_format(t, "%.2f", samples_percentile(s, 90));
	table_format(t, "%.2f", samples_percentile(s, 99));
	table_format(t, "%.2f", samples_max(s));
}

static void print_latencies(struct replay_report *r)
{
	struct table t = {0};
	table_row(&t, "ms", "p50", "p90", "p99", "max", NULL);
	if (r->n_done) {
		latency_row(&t, "TTFT", &r->ttft_ms);
		latency_row(&t, "TPOT", &r->tpot_ms);
		latency_row(&t, "E2EL", &r->e2el_ms);
	}
	latency_row(&t, "ITL", &r->itl_ms);
	latency_row(&t, "step", &r->step_ms);
	table_print(&t, stdout);
	table_fini(&t);
}

static void print_service(const struct bench *b, const struct replay_report *r)
{
	printf("requests    %" PRIu64 " done of %" PRIu64 " in %.1f s", r->n_done, r->n_requests, r->sim_s);
	if (r->n_refused)
		printf(", %" PRIu64 " refused as too long", r->n_refused);
	printf("\nthroughput  %.2f requests/s, %.0f prompt and %.0f output tokens/s\n",
	       share((double)r->n_done, r->sim_s), share((double)r->prompt_tokens, r->sim_s),
	       share((double)r->output_tokens, r->sim_s));
	printf("goodput     %.2f requests/s (%.1f%% are good)\n", goodput(r),
	       100 * share((double)r->n_good, (double)r->n_done));
	printf("prefix      %.1f%% of prompt tokens were cached\n",
	       100 * share((double)r->cached_tokens, (double)r->admitted_tokens));
	printf("preempted   %" PRIu64 " sequences (%" PRIu64 " swapped), %" PRIu64 " tokens computed again\n",
	       r->n_preempted, r->n_preempted_swap, r->recomputed_tokens);
	printf("queues      %.1f wait (at most %u), %.1f run (at most %u)\n", r->waiting_mean, r->waiting_max,
	       r->running_mean, r->running_max);
	printf("blocks      %u, %.1f%% held (at most %.1f%%); %" PRIu64 " copied, %" PRIu64 " out, %" PRIu64
	       " in\n",
	       b->cfg.n_blocks, 100 * r->held_mean, 100 * r->held_max, r->n_copies, r->n_swap_out,
	       r->n_swap_in);
}

static void print_cost(struct replay_report *r)
{
	printf("steps       %" PRIu64 " of %.1f rows; the device works %.1f%% of the time\n", r->n_steps,
	       share((double)r->n_rows, (double)r->n_steps), 100 * share(r->busy_s, r->sim_s));
	printf("engine CPU  %.2f us per step at p50, %.2f at p99, %.1f at most; %.3f allocations\n",
	       samples_percentile(&r->step_cpu_us, 50), samples_percentile(&r->step_cpu_us, 99),
	       samples_max(&r->step_cpu_us), r->allocs_per_step);
	printf("            on average plan %.2f, encode %.2f, decode %.2f, apply %.2f, other %.2f\n",
	       r->plan_cpu_us, r->encode_cpu_us, r->decode_cpu_us, r->apply_cpu_us, r->other_cpu_us);
	printf("plan        %.0f bytes at p50, %.0f at p99\n", samples_percentile(&r->plan_bytes, 50),
	       samples_percentile(&r->plan_bytes, 99));
	printf("simulated   %.0f seconds per second (%.1f s in %.2f s)\n", share(r->sim_s, r->wall_s),
	       r->sim_s, r->wall_s);
}

static void print_users(struct replay_report *r)
{
	struct table t = {0};
	uint32_t n = r->n_users < USERS_SHOWN ? r->n_users : USERS_SHOWN;
	table_row(&t, "USER", "DONE", "GOOD %", "OUT tok/s", "TTFT p50 ms", "p99", "TPOT p50 ms", "p99",
		  NULL);
	for (uint32_t i = 0; i < n; i++) {
		struct replay_user *u = &r->users[i];
		table_begin(&t);
		table_format(&t, "%u", i);
		table_format(&t, "%" PRIu64, u->n_done);
		table_format(&t, "%.1f", 100 * share((double)u->n_good, (double)u->n_done));
		table_format(&t, "%.1f", share((double)u->output_tokens, r->sim_s));
		table_format(&t, "%.2f", samples_percentile(&u->ttft_ms, 50));
		table_format(&t, "%.2f", samples_percentile(&u->ttft_ms, 99));
		table_format(&t, "%.2f", samples_percentile(&u->tpot_ms, 50));
		table_format(&t, "%.2f", samples_percentile(&u->tpot_ms, 99));
	}
	putchar('\n');
	table_print(&t, stdout);
	table_fini(&t);
	if (n < r->n_users)
		printf("and %u more (--json has all)\n", r->n_users - n);
}

static void print_rates(struct bench *b)
{
	struct table t = {0};
	table_row(&t, "RATE", "DONE/s", "GOOD/s", "OUT tok/s", "TTFT p50 ms", "p90", "p99", "TPOT p50 ms",
		  "p99", "ITL p99 ms", "HIT %", "PREEMPTED", "CPU us p50", "p99", NULL);
	for (size_t i = 0; i < b->n_rates; i++) {
		struct replay_report *r = &b->reports[i];
		table_begin(&t);
		table_format(&t, "%g", b->rates[i]);
		table_format(&t, "%.2f", share((double)r->n_done, r->sim_s));
		table_format(&t, "%.2f", goodput(r));
		table_format(&t, "%.0f", share((double)r->output_tokens, r->sim_s));
		table_format(&t, "%.1f", samples_percentile(&r->ttft_ms, 50));
		table_format(&t, "%.1f", samples_percentile(&r->ttft_ms, 90));
		table_format(&t, "%.1f", samples_percentile(&r->ttft_ms, 99));
		table_format(&t, "%.2f", samples_percentile(&r->tpot_ms, 50));
		table_format(&t, "%.2f", samples_percentile(&r->tpot_ms, 99));
		table_format(&t, "%.2f", samples_percentile(&r->itl_ms, 99));
		table_format(&t, "%.1f", 100 * share((double)r->cached_tokens, (double)r->admitted_tokens));
		table_format(&t, "%" PRIu64, r->n_preempted);
		table_format(&t, "%.2f", samples_percentile(&r->step_cpu_us, 50));
		table_format(&t, "%.2f", samples_percentile(&r->step_cpu_us, 99));
	}
	table_print(&t, stdout);
	table_fini(&t);
}

static void print_text(struct bench *b, bool per_user)
{
	const struct replay_config *c = &b->cfg;
	printf("%s, %u blocks of %u tokens, %u sequences and %u tokens in a step at most\n", c->cost.name,
	       c->n_blocks, c->sched.block_size, c->sched.max_seqs, c->sched.max_rows);
	if (b->n_rates > 1) {
		print_rates(b);
		return;
	}
	print_latencies(&b->reports[0]);
	if (!c->running)
		print_service(b, &b->reports[0]);
	print_cost(&b->reports[0]);
	if (per_user && !c->running)
		print_users(&b->reports[0]);
}

static int draw(struct bench *b, const char *path, struct why *why)
{
	static const struct {
		const char *name;
		double percent;
		bool tpot;
	} lines[] = {{"TTFT p50", 50, false},
		     {"TTFT p99", 99, false},
		     {"TPOT p50", 50, true},
		     {"TPOT p99", 99, true}};
	enum { N_LINES = sizeof lines / sizeof *lines };
	double y[N_LINES][RATES_MAX];
	char title[128];
	snprintf(title, sizeof title, "Latency against rate (%s, %s arrivals)", b->cfg.cost.name,
		 b->trace_path ? "a trace's" : "synthetic");
	struct plot p = {.title = title,
			 .x_label = b->trace_path ? "times the trace's rate" : "requests per second",
			 .y_label = "ms",
			 .log_y = true,
			 .n_series = N_LINES};
	for (size_t k = 0; k < N_LINES; k++) {
		for (size_t i = 0; i < b->n_rates; i++)
			y[k][i] = samples_percentile(lines[k].tpot ? &b->reports[i].tpot_ms
								   : &b->reports[i].ttft_ms,
						     lines[k].percent);
		p.series[k] = (struct plot_series){.name = lines[k].name,
						   .x = b->rates,
						   .y = y[k],
						   .n = b->n_rates,
						   .colour = lines[k].tpot,
						   .dashed = lines[k].percent > 50};
	}
	return plot_write(&p, path, why);
}

int cmd_bench_scheduler(int argc, char **argv)
{
	struct opts o = {0};
	struct bench *b = xcalloc(1, sizeof *b);
	struct why why;
	opts_add_program(&o, OPTION_BENCH_SCHEDULER);
	int status = command_parse(&o, &usage, argc, argv);
	if (status != COMMAND_GO_ON)
		goto out;
	if (config_of(&o, b, &why)) {
		status = term_usage("bench scheduler", "%s", why.text);
		goto out;
	}
	bool per_user = opts_flag(&o, "per-user");
	int rc = 0;
	if (b->trace_path)
		rc = trace_read(b->trace_path, &b->trace, &why);
	if (!rc)
		rc = run_all(b, &why);
	if (!rc && opts_flag(&o, "json"))
		print_json(b, per_user);
	else if (!rc)
		print_text(b, per_user);
	if (!rc && opts_has(&o, "plot"))
		rc = draw(b, opts_text(&o, "plot"), &why);
	status = term_finish(rc ? term_error("%s", why.text) : EXIT_SUCCESS);
out:
	for (size_t i = 0; i < RATES_MAX; i++)
		replay_report_fini(&b->reports[i]);
	trace_fini(&b->trace);
	free(b);
	opts_fini(&o);
	return status;
}
