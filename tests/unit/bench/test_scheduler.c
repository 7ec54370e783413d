/* test_scheduler.c - the parts of `quern bench scheduler`: traces, cost model, percentiles, plots,
 * simulation. */
#include "base/err.h"
#include "bench/commands.h"
#include "bench/plot.h"
#include "bench/sim/replay.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <string.h>

#define HEADING "TIMESTAMP,ContextTokens,GeneratedTokens\n"

static struct why why;

static int parse(const char *text, struct trace *t)
{
	why.text[0] = '\0';
	return trace_parse(text, strlen(text), t, &why);
}

static void refused(const char *text, const char *because)
{
	struct trace t;
	cr_assert_eq(parse(text, &t), -EINVAL, "taken: %s", text);
	cr_assert(strstr(why.text, because), "\"%s\" does not say \"%s\"", why.text, because);
	cr_assert_null(t.v);
}

/* ---- traces ---- */

Test(traces, a_file_is_read_with_times_from_its_first_arrival)
{
	struct trace t;
	cr_assert_eq(parse("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
			   "2023-11-16 23:59:59.6805900,374,44\r\n"
			   "2023-11-17 00:00:01.0000000,396,109\r\n",
			   &t),
		     0, "%s", why.text);
	cr_assert_eq(t.n, 2);
	cr_assert_eq(t.v[0].at_us, 0);
	cr_assert_eq(t.v[0].n_prompt, 374);
	cr_assert_eq(t.v[0].n_output, 44);
	cr_assert_eq(t.v[1].at_us, 1319410);
	trace_fini(&t);
}

Test(traces, columns_have_any_order_and_others_are_ignored)
{
	struct trace t;
	cr_assert_eq(parse("id,GeneratedTokens,TIMESTAMP,ContextTokens,x\na,5,1.5,6,\nb,7,2,8,", &t), 0, "%s",
		     why.text);
	cr_assert_eq(t.n, 2);
	cr_assert_eq(t.v[0].n_prompt, 6);
	cr_assert_eq(t.v[1].n_output, 7);
	cr_assert_eq(t.v[1].at_us, 500000);
	trace_fini(&t);
}

Test(traces, time_zones_are_applied)
{
	struct trace t;
	cr_assert_eq(parse(HEADING "2024-02-29T01:00:00+01:00,1,1\n2024-02-29T00:00:02Z,1,1\n"
				   "2024-02-28 20:00:03.25-04:00,1,1\n",
			   &t),
		     0, "%s", why.text);
	cr_assert_eq(t.v[1].at_us, 2000000);
	cr_assert_eq(t.v[2].at_us, 3250000);
	trace_fini(&t);
}

Test(traces, arrivals_out_of_order_are_sorted)
{
	struct trace t;
	cr_assert_eq(parse(HEADING "3,1,1\n\n1,2,0\n2,3,1\n", &t), 0, "%s", why.text);
	cr_assert_eq(t.n, 3);
	cr_assert_eq(t.v[0].n_prompt, 2);
	cr_assert_eq(t.v[0].n_output, 1, "an output of nothing is one token");
	cr_assert_eq(t.v[2].at_us, 2000000);
	trace_fini(&t);
}

Test(traces, bad_input_is_refused_by_line)
{
	refused("", "empty");
	refused("TIMESTAMP,ContextTokens\n1,2\n", "heading");
	refused(HEADING, "no arrivals");
	refused(HEADING "1,2,3\n1,2\n", "line 3: 2 fields where 3");
	refused(HEADING "yesterday,2,3\n", "line 2: TIMESTAMP");
	refused(HEADING "2023-13-01 00:00:00,2,3\n", "line 2: TIMESTAMP");
	refused(HEADING "2023-11-16 18:15:46.,2,3\n", "line 2: TIMESTAMP");
	refused(HEADING "2023-11-16 18:15:46+1:00,2,3\n", "line 2: TIMESTAMP");
	refused(HEADING "1234567890123,2,3\n", "line 2: TIMESTAMP");
	refused(HEADING ",2,3\n", "line 2: TIMESTAMP");
	refused(HEADING "1,0,3\n", "line 2: ContextTokens");
	refused(HEADING "1,-4,3\n", "line 2: ContextTokens");
	refused(HEADING "1,4,\n", "line 2: GeneratedTokens");
	refused(HEADING "1,4,99999999999999999999\n", "line 2: GeneratedTokens");
	refused(HEADING "1,16777217,3\n", "line 2: ContextTokens");
}

Test(traces, a_missing_file_is_named)
{
	struct trace t = {0};
	cr_assert_eq(trace_read("/nowhere/trace.csv", &t, &why), -ENOENT);
	cr_assert(strstr(why.text, "/nowhere/trace.csv"));
}

Test(traces, published_traces_are_read)
{
	struct trace t;
	const char *path = testdata("traces/AzureLLMInferenceTrace_conv.csv");
	if (!path)
		cr_skip_test("no traces");
	cr_assert_eq(trace_read(path, &t, &why), 0, "%s", why.text);
	cr_assert_eq(t.n, 19366);
	trace_scale(&t, 2);
	trace_cut(&t, 10000000);
	for (size_t i = 1; i < t.n; i++)
		cr_assert(t.v[i].at_us >= t.v[i - 1].at_us && t.v[i].at_us <= 10000000);
	trace_fini(&t);
}

Test(traces, gaps_have_the_requested_rate_and_spread)
{
	static const double shapes[] = {0.25, 1, 4};
	for (size_t k = 0; k < 3; k++) {
		struct trace t;
		struct synthetic s = {.shape = shapes[k], .rate = 50, .duration_us = 400000000, .seed = 3};
		s.lengths.fixed_prompt = s.lengths.fixed_output = 1;
		trace_synthetic(&s, &t);
		double sum = 0, squares = 0, n = (double)t.n - 1;
		for (size_t i = 1; i < t.n; i++) {
			double gap = (double)(t.v[i].at_us - t.v[i - 1].at_us) / 1e6;
			sum += gap;
			squares += gap * gap;
		}
		double mean = sum / n, variance = squares / n - mean * mean;
		cr_assert_float_eq(mean, 0.02, 0.02 * 0.05, "mean %g", mean);
		cr_assert_float_eq(variance / (mean * mean), 1 / shapes[k], 0.1 / shapes[k], "spread %g",
				   variance / (mean * mean));
		trace_fini(&t);
	}
}

Test(traces, sharegpt_lengths_have_their_means)
{
	struct lengths l;
	struct rng r = {5};
	double prompts = 0, outputs = 0;
	cr_assert_eq(lengths_parse("sharegpt", &l, &why), 0);
	for (int i = 0; i < 200000; i++) {
		uint32_t in, out;
		lengths_draw(&l, &r, &in, &out);
		cr_assert(in >= 1 && in <= l.prompt_max && out >= 1 && out <= l.output_max);
		prompts += in;
		outputs += out;
	}
	cr_assert_float_eq(prompts / 200000, 161, 8);
	cr_assert_float_eq(outputs / 200000, 338, 8);
}

Test(traces, the_first_user_sends_skew_times_as_much)
{
	struct trace t;
	struct users u;
	struct synthetic s = {.shape = 1, .rate = 1000, .duration_us = 100000000, .seed = 3};
	size_t n[2] = {0};
	s.lengths.fixed_prompt = s.lengths.fixed_output = 1;
	trace_synthetic(&s, &t);
	cr_assert_eq(users_parse("2:100", &u, &why), 0);
	trace_users(&t, &u, 1);
	for (size_t i = 0; i < t.n; i++)
		n[t.v[i].user]++;
	cr_assert(n[0] > 80 * n[1] && n[0] < 125 * n[1], "%zu and %zu", n[0], n[1]);
	trace_keep_user(&t, 1);
	cr_assert_eq(t.n, n[1]);
	trace_fini(&t);
}

Test(traces, invalid_descriptions_are_refused)
{
	static const char *const lengths[] = {"",          "fixed",      "fixed:",     "fixed:3", "fixed:0,3",
					      "fixed:3,0", "fixed:3,4x", "fixed:-1,4", "alpaca"};
	static const char *const arrivals[] = {"",         "gamma",     "gamma:",   "gamma:0",
					       "gamma:-1", "gamma:nan", "gamma:1x", "uniform"};
	static const char *const users[] = {
		"", "0", "-1", "2:", "2:0.5", "2:x", "2x", "99999999999999999999"};
	static const char *const slos[] = {"ttft",    "ttft:",         "ttft:0", "ttft:-1",
					   "ttft:1,", "ttft:1;tpot:2", "x:1",    "ttft:inf"};
	struct lengths l;
	struct users u;
	struct slo s;
	double shape;
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		cr_assert_eq(lengths_parse(lengths[i], &l, &why), -EINVAL, "%s", lengths[i]);
	for (size_t i = 0; i < sizeof arrivals / sizeof *arrivals; i++)
		cr_assert_eq(arrivals_parse(arrivals[i], &shape, &why), -EINVAL, "%s", arrivals[i]);
	for (size_t i = 0; i < sizeof users / sizeof *users; i++)
		cr_assert_eq(users_parse(users[i], &u, &why), -EINVAL, "%s", users[i]);
	for (size_t i = 0; i < sizeof slos / sizeof *slos; i++)
		cr_assert_eq(slo_parse(slos[i], &s, &why), -EINVAL, "%s", slos[i]);
	cr_assert_eq(slo_parse("tpot:50,ttft:1000.5", &s, &why), 0);
	cr_assert_eq(s.tpot_ms, 50);
	cr_assert_eq(s.ttft_ms, 1000.5);
}

/* ---- percentiles ---- */

Test(samples, percentiles_lie_between_the_nearest_ranks)
{
	struct samples s = {0};
	cr_assert_eq(samples_percentile(&s, 50), 0);
	for (int i = 100; i >= 0; i--)
		samples_add(&s, i);
	cr_assert_eq(samples_percentile(&s, 0), 0);
	cr_assert_eq(samples_percentile(&s, 50), 50);
	cr_assert_float_eq(samples_percentile(&s, 99.5), 99.5, 1e-9);
	cr_assert_eq(samples_max(&s), 100);
	samples_add(&s, 1000);
	cr_assert_eq(samples_max(&s), 1000, "a later one counts, too");
	cr_assert_float_eq(samples_mean(&s), 6050.0 / 102, 1e-9);
	samples_fini(&s);
}

/* ---- the cost model ---- */

static const struct costmodel simple = {
	.name = "simple",
	.base_us = 1000,
	.bytes_per_s = 1e12,
	.flop_per_s = 1e14,
	.link_bytes_per_s = 1e10,
	.memory_bytes = 1e11,
	.weights_bytes = 4e9,   /* read in 4 ms */
	.flop_per_token = 1e10, /* computed in 0.1 ms */
	.kv_token_bytes = 1e5,
};

Test(costmodel, a_step_takes_the_longer_of_memory_and_compute)
{
	struct plan p = {0};
	*plan_add_run(&p) = (struct plan_run){.slot = 0, .pos0 = 9999, .n_rows = 1};
	p.n_rows = 1;
	/* Weights take 4 ms, 10,000 positions take 1 ms. */
	cr_assert_float_eq(costmodel_step_us(&simple, &p, 16), 1000 + 5000, 1e-6);
	*plan_add_run(&p) = (struct plan_run){.slot = 1, .pos0 = 0, .n_rows = 100};
	p.n_rows = 101;
	cr_assert_float_eq(costmodel_step_us(&simple, &p, 16), 1000 + 10100, 1e-6);
	/* Swapping a block moves 1.6 MB at 10 GB/s; copying a block reads and writes it. */
	*plan_add_swap_out(&p) = (struct plan_pair){0, 0};
	*plan_add_copy(&p) = (struct plan_pair){0, 1};
	cr_assert_float_eq(costmodel_step_us(&simple, &p, 16), 1000 + 10100 + 160 + 3.2, 1e-6);
	plan_fini(&p);
}

Test(costmodel, the_pool_is_the_memory_without_the_weights)
{
	struct costmodel c;
	cr_assert_eq(costmodel_kv_bytes(&simple), 8.6e10);
	cr_assert_eq(costmodel_blocks(&simple, 8.6e10, 16), 53750);
	cr_assert_eq(costmodel_blocks(&simple, 1.5e6, 16), 0);
	cr_assert_eq(costmodel_blocks(&simple, 1e300, 16), COSTMODEL_BLOCKS_MAX);
	cr_assert_eq(costmodel_named("h200", &c, &why), 0);
	cr_assert_eq(c.base_us, 1300);
	cr_assert_eq(costmodel_named("h2000", &c, &why), -EINVAL);
	cr_assert(strstr(why.text, "h200, h100"), "%s", why.text);
}

/* ---- the simulation ---- */

static struct replay_config config(void)
{
	return (struct replay_config){
		.sched = {.block_size = 16, .max_seqs = 32, .max_rows = 512, .chunk = 128},
		.cost = simple,
		.n_blocks = 2000,
		.max_context = 4096,
		.n_turns = 1,
		.think_us = 1e6,
		.lengths = {.fixed_prompt = 40, .fixed_output = 20},
		.n_users = 1,
		.seed = 7,
		.slo = {.ttft_ms = 1000, .tpot_ms = 50},
		.steps = 50,
		.running_prompt = 100,
	};
}

static struct replay_report replay(const struct replay_config *c, double rate)
{
	struct replay_report r;
	struct trace t;
	struct synthetic s = {
		.shape = 1, .rate = rate, .duration_us = 20000000, .lengths = c->lengths, .seed = c->seed};
	struct users u = {.n = c->n_users, .skew = 1};
	trace_synthetic(&s, &t);
	trace_users(&t, &u, c->seed);
	cr_assert_eq(replay_run(c, &t, &r, &why), 0, "%s", why.text);
	trace_fini(&t);
	return r;
}

Test(replay, one_request_takes_the_time_of_its_steps)
{
	struct replay_config c = config();
	struct arrival one = {.at_us = 0, .n_prompt = 200, .n_output = 3};
	struct trace t = {.v = &one, .n = 1};
	struct replay_report r;
	cr_assert_eq(replay_run(&c, &t, &r, &why), 0, "%s", why.text);
	/* The prompt takes steps of 128 and 72 rows, then comes the first token. Each decode reads the
	 * weights and its context. */
	cr_assert_eq(r.n_steps, 4);
	cr_assert_float_eq(samples_max(&r.ttft_ms), (1 + 12.8) + (1 + 7.2), 0.01);
	cr_assert_float_eq(samples_max(&r.tpot_ms), 1 + 4 + 0.0201, 0.01);
	cr_assert_float_eq(samples_max(&r.e2el_ms), 22 + 2 * 5.02, 0.01);
	cr_assert_eq(r.itl_ms.n, 2);
	cr_assert_eq(r.n_good, 1);
	replay_report_fini(&r);
}

Test(replay, the_same_seed_gives_the_same_figures)
{
	struct replay_config c = config();
	c.n_turns = 3;
	c.n_users = 4;
	c.n_blocks = 60; /* too few for all users */
	struct replay_report a = replay(&c, 10), b = replay(&c, 10);
	cr_assert_eq(a.n_done, a.n_requests);
	cr_assert_eq(a.n_steps, b.n_steps);
	cr_assert_eq(a.n_preempted, b.n_preempted);
	cr_assert(a.n_preempted > 0 && a.recomputed_tokens > 0);
	cr_assert_eq(a.recomputed_tokens, b.recomputed_tokens);
	cr_assert_eq(a.cached_tokens, b.cached_tokens);
	cr_assert_eq(a.sim_s, b.sim_s);
	cr_assert_eq(a.ttft_ms.n, b.ttft_ms.n);
	cr_assert_arr_eq(a.ttft_ms.x, b.ttft_ms.x, a.ttft_ms.n * sizeof *a.ttft_ms.x);
	replay_report_fini(&a);
	replay_report_fini(&b);
	c.seed = 8;
	b = replay(&c, 10);
	cr_assert_neq(a.sim_s, b.sim_s);
	replay_report_fini(&b);
}

Test(replay, the_next_turn_of_a_chat_finds_its_history_in_the_cache)
{
	struct replay_config c = config();
	c.n_turns = 4;
	struct replay_report r = replay(&c, 2);
	cr_assert_eq(r.n_done % 4, 0);
	/* Prompts of 40, 100, 160 and 220 tokens; the whole history but its last block is cached. */
	cr_assert_eq(r.recomputed_tokens, 0);
	cr_assert_eq(r.prompt_tokens, r.n_done / 4 * (40 + 100 + 160 + 220));
	double hits = (double)r.cached_tokens / (double)r.admitted_tokens;
	cr_assert(hits > 0.5 && hits < 0.7, "%g", hits);
	replay_report_fini(&r);
	c.sched.no_cache = true;
	r = replay(&c, 2);
	cr_assert_eq(r.cached_tokens, 0);
	replay_report_fini(&r);
}

Test(replay, a_shared_prefix_is_computed_once)
{
	struct replay_config c = config();
	c.shared_prefix = 320;
	struct replay_report r = replay(&c, 2);
	double hits = (double)r.cached_tokens / (double)r.admitted_tokens;
	cr_assert(hits > 0.7 && hits < 320.0 / 360, "%g", hits);
	replay_report_fini(&r);
}

Test(replay, requests_beyond_the_pool_are_refused_and_the_others_run)
{
	struct replay_config c = config();
	struct arrival v[] = {{.n_prompt = 4000, .n_output = 97}, {.n_prompt = 4000, .n_output = 96}};
	struct trace t = {.v = v, .n = 2};
	struct replay_report r;
	cr_assert_eq(replay_run(&c, &t, &r, &why), 0, "%s", why.text);
	cr_assert_eq(r.n_refused, 1);
	cr_assert_eq(r.n_done, 1);
	replay_report_fini(&r);
}

Test(replay, a_steady_state_runs_all_sequences_in_every_step)
{
	struct replay_config c = config();
	c.running = 20;
	c.n_blocks = (uint32_t)replay_running_blocks(&c);
	struct replay_report r;
	cr_assert_eq(replay_run(&c, NULL, &r, &why), 0, "%s", why.text);
	cr_assert_eq(r.step_cpu_us.n, 50);
	cr_assert_eq(r.itl_ms.n, 20 * 50);
	cr_assert_eq(r.n_preempted, 0);
	cr_assert(samples_percentile(&r.step_cpu_us, 50) > 0);
	/* Each sequence takes a word each for slot, position and row count, and at times a table entry. */
	cr_assert(samples_percentile(&r.plan_bytes, 50) < 20 * 16 + 64);
	replay_report_fini(&r);
	c.n_blocks = 40;
	cr_assert_eq(replay_run(&c, NULL, &r, &why), -ENOSPC);
	cr_assert_null(r.users, "nothing is left of a run that failed");
}

Test(replay, users_are_counted_separately)
{
	struct replay_config c = config();
	c.n_users = 3;
	struct replay_report r = replay(&c, 5);
	uint64_t n = 0;
	for (uint32_t i = 0; i < 3; i++)
		n += r.users[i].n_done;
	cr_assert_eq(n, r.n_done);
	cr_assert(r.users[2].n_done > 0);
	replay_report_fini(&r);
}

/* Two users send prompts of 3,000 tokens to an H200. The first sends a hundred times more than the device can
 * take, or nothing. Return the second user's p99 TTFT. */
static double ttft_beside_a_flood(bool flood)
{
	struct replay_config c = config();
	cr_assert_eq(costmodel_named("h200", &c.cost, &why), 0);
	c.sched = (struct sched_config){
		.block_size = 16, .max_seqs = 256, .max_rows = 2048, .chunk = 512, .step_us = 25000};
	c.n_blocks = 50000;
	c.lengths = (struct lengths){.fixed_prompt = 3000, .fixed_output = 200};
	c.n_users = 2;
	struct synthetic s = {
		.shape = 1, .rate = 40, .duration_us = 100000000, .lengths = c.lengths, .seed = 1};
	struct users u = {.n = 2, .skew = 100};
	struct trace t;
	struct replay_report r;
	trace_synthetic(&s, &t);
	trace_users(&t, &u, 1);
	if (!flood)
		trace_keep_user(&t, 1);
	cr_assert_eq(replay_run(&c, &t, &r, &why), 0, "%s", why.text);
	cr_assert(r.users[1].n_done > 20);
	double p99 = samples_percentile(&r.users[1].ttft_ms, 99);
	replay_report_fini(&r);
	trace_fini(&t);
	return p99;
}

Test(replay, a_flood_of_one_user_delays_another_less_than_twice)
{
	double alone = ttft_beside_a_flood(false), beside = ttft_beside_a_flood(true);
	cr_assert_lt(beside, 2 * alone, "%.0f ms against %.0f ms", beside, alone);
}

Test(replay, max_step_ms_bounds_steps_with_prompts)
{
	struct replay_config c = config();
	cr_assert_eq(costmodel_named("h200", &c.cost, &why), 0);
	c.sched.max_rows = 4096;
	c.sched.chunk = 0;
	c.sched.step_us = 25000;
	c.lengths = (struct lengths){.fixed_prompt = 3000, .fixed_output = 10};
	struct replay_report r = replay(&c, 10);
	cr_assert_lt(samples_max(&r.step_ms), 30);
	replay_report_fini(&r);
	c.sched.step_us = 0;
	r = replay(&c, 10);
	cr_assert_gt(samples_max(&r.step_ms), 100);
	replay_report_fini(&r);
}

/* ---- plots ---- */

Test(plot, values_that_are_not_finite_are_left_out_and_text_is_escaped)
{
	const double x[] = {1, 2, 3, 4}, y[] = {1, NAN, 0, 1000};
	struct plot p = {.title = "a < b & c", .x_label = "x", .y_label = "y", .log_y = true, .n_series = 1};
	struct buf out = {0};
	p.series[0] = (struct plot_series){.name = "line", .x = x, .y = y, .n = 4};
	plot_svg(&p, &out);
	cr_assert(strstr(out.p, "a &lt; b &amp; c"));
	cr_assert_null(strstr(out.p, "nan"));
	cr_assert_null(strstr(out.p, "inf"));
	size_t circles = 0;
	for (const char *s = out.p; (s = strstr(s, "<circle")); s++)
		circles++;
	cr_assert_eq(circles, 2);
	cr_assert(strstr(out.p, ">1000</text>"), "the top of the scale has a label");
	buf_fini(&out);
	p.series[0].n = 0;
	p.log_y = false;
	plot_svg(&p, &out);
	cr_assert(strstr(out.p, "</svg>"), "an empty frame");
	buf_fini(&out);
}

Test(plot, a_file_that_cannot_be_written_is_named)
{
	struct plot p = {.title = "", .x_label = "", .y_label = ""};
	cr_assert_eq(plot_write(&p, "/nowhere/plot.svg", &why), -ENOENT);
	cr_assert(strstr(why.text, "/nowhere/plot.svg"));
}

/* ---- the command ---- */

static int command(const char *a, const char *b, const char *c)
{
	char words[4][64] = {"scheduler"};
	snprintf(words[1], sizeof words[1], "%s", a);
	snprintf(words[2], sizeof words[2], "%s", b);
	snprintf(words[3], sizeof words[3], "%s", c);
	return cmd_bench_scheduler(4, (char *[]){words[0], words[1], words[2], words[3], NULL});
}

Test(bench_scheduler, wrong_usage_exits_2_and_failure_1, .init = cr_redirect_stderr)
{
	cr_assert_eq(command("--rate=0", "--seed=1", "--json"), 2);
	cr_assert_eq(command("--rates=1,x", "--seed=1", "--json"), 2);
	cr_assert_eq(command("--trace=a", "--lengths=sharegpt", "--json"), 2);
	cr_assert_eq(command("--device=abacus", "--seed=1", "--json"), 2);
	cr_assert_eq(command("--kv-bytes=1", "--seed=1", "--json"), 2);
	cr_assert_eq(command("--prefill=often", "--seed=1", "--json"), 2);
	cr_assert_eq(command("--rate=1e9", "--duration=1e9", "--json"), 2);
	cr_assert_eq(command("--running=65536", "--prompt-tokens=1048576", "--json"), 2);
	cr_assert_eq(command("--users=2", "--only-user=2", "--json"), 2);
	cr_assert_eq(command("--running=4", "--rate=3", "--json"), 2);
	cr_assert_eq(command("--tflops=1e-7", "--seed=1", "--json"), 2);
	cr_assert_eq(command("--trace=/nowhere", "--seed=1", "--json"), 1);
}
