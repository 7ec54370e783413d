/* A worker's step: refused plans, results, and no allocation. */
#include "base/alloc.h"
#include "tests/driver.h"
#include "worker/slots.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>

static struct driver d;
static struct params params;
static uint32_t tokens[128];

static void open_tiny(void)
{
	driver_open_tiny(&d, &params, tokens, 128);
}

static void close_tiny(void)
{
	driver_close(&d);
}

TestSuite(step, .init = open_tiny, .fini = close_tiny);

/* Expects that the plan under construction is refused, with this reason. */
static void refused(const char *reason)
{
	int rc = driver_step(&d);
	cr_assert_eq(rc, -EINVAL, "rc %d, %s", rc, d.why.text);
	cr_assert(strstr(d.why.text, reason), "\"%s\" does not say \"%s\"", d.why.text, reason);
	/* The step must not continue from an unknown state. */
	d.number--;
	cr_assert_eq(driver_step(&d), -EINVAL);
	step_reset(d.step, 1, NULL);
	d.number = 0;
	cr_assert_eq(driver_prompt(&d, tokens, 5, 16, 5, &params), 0, "%s", d.why.text);
	cr_assert_eq(d.result.n_tokens, 1);
}

Test(step, ready_says_what_there_is)
{
	cr_expect_eq(d.ready.n_vocab, 331);
	cr_expect_gt(d.ready.n_blocks, 100);
	cr_expect_gt(d.ready.n_host_blocks, 10);
	cr_expect_gt(d.ready.weights_bytes, 100000);
	cr_expect_eq(d.ready.kv_bytes / d.ready.n_blocks * d.ready.n_blocks, d.ready.kv_bytes);
	cr_expect_eq(d.ready.n_threads, strcmp(driver_device(), "cpu") == 0 ? 2 : 1);
	cr_expect(strlen(d.ready.numerics) > 0 && strlen(d.ready.isa) > 0);
}

Test(step, a_plan_of_another_epoch_is_passed_over)
{
	const uint64_t others[] = {7, 0};
	for (int i = 0; i < 2; i++) {
		d.plan.epoch = others[i];
		d.plan.number = 1;
		cr_expect_eq(step_run(d.step, &d.plan, &d.result, &d.why), -ESTALE);
	}
	cr_expect_eq(driver_prompt(&d, tokens, 5, 16, 5, &params), 0);
}

Test(step, a_missing_plan_is_reported_and_nothing_is_done)
{
	d.number = 2;
	cr_expect_eq(driver_step(&d), -ENXIO);
	cr_expect_eq(step_expected(d.step), 1);
	d.number = 0;
	cr_expect_eq(driver_prompt(&d, tokens, 5, 16, 5, &params), 0);
	cr_expect_eq(step_expected(d.step), 2);
}

Test(step, an_empty_plan_has_an_empty_result)
{
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	cr_expect_eq(d.result.number, 1);
	cr_expect_eq(d.result.n_tokens, 0);
}

Test(step, unknown_slots_are_named)
{
	driver_add_run(&d, 3, 0, 1, false);
	refused("slot 3 of a plan holds no sequence");
	driver_add_run(&d, 4000, 0, 1, false);
	refused("slot 4000 of a plan, there are 40");
	*plan_add_fork(&d.plan) = (struct plan_fork){.parent = 2, .child = 1};
	refused("slot 2");
	*plan_add_table(&d.plan) = (struct plan_table){.slot = 2};
	refused("slot 2");
}

Test(step, positions_that_do_not_follow_are_named)
{
	driver_seq(&d, 0, tokens, 20, 20, 32, &params);
	driver_add_run(&d, 0, 0, 5, false);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	driver_add_run(&d, 0, 6, 5, false);
	refused("position 6 does not follow");
}

Test(step, tokens_that_are_not_known_are_named)
{
	driver_seq(&d, 0, tokens, 20, 20, 32, &params);
	driver_add_run(&d, 0, 0, 21, false);
	refused("only 20 tokens are known");
	driver_seq(&d, 0, tokens, 20, 20, 32, &params);
	driver_add_run(&d, 0, 0, 12, true);
	refused("token 12 is to be chosen");
}

Test(step, blocks_out_of_range_are_named)
{
	uint32_t n = step_limits(d.step)->n_blocks, host = step_limits(d.step)->n_host_blocks;
	driver_seq(&d, 0, tokens, 40, 40, 16, &params);
	driver_add_run(&d, 0, 0, 40, false);
	refused("outside its 1 blocks");
	*plan_add_copy(&d.plan) = (struct plan_pair){n, 0};
	refused("a copy from block");
	*plan_add_swap_out(&d.plan) = (struct plan_pair){0, host};
	refused("a swap out");
	*plan_add_swap_in(&d.plan) = (struct plan_pair){host, 0};
	refused("a swap in");
	driver_seq(&d, 0, tokens, 10, 10, 16, &params);
	*plan_add_table(&d.plan) = (struct plan_table){0, 5, 1, 0};
	refused("block 5 does not follow its table of 1");
	driver_seq(&d, 0, tokens, 10, 10, 16, &params);
	*plan_add_table(&d.plan) = (struct plan_table){0, 1, n, 0};
	refused("the pool has");
	const uint32_t most = step_limits(d.step)->max_context / step_block_size(d.step);
	driver_seq(&d, 0, tokens, 10, 10, UINT32_MAX, &params); /* the whole context */
	*plan_add_table(&d.plan) = (struct plan_table){0, most, 1, 0};
	refused("does not follow its table");
}

Test(step, blocks_that_a_plan_leaves_out_are_not_read)
{
	static const uint32_t blocks[] = {PLAN_NO_BLOCK, 1};
	*plan_add_seq(&d.plan) = (struct plan_seq){.n_prompt = 20,
						   .n_tokens = 20,
						   .n_blocks = 2,
						   .tokens = tokens,
						   .blocks = blocks,
						   .params = &params};
	driver_add_run(&d, 0, 16, 4, false);
	refused("position 16 reads blocks that its tables left out");
	driver_seq(&d, 0, tokens, 10, 10, 16, &params);
	*plan_add_table(&d.plan) = (struct plan_table){0, 0, 1, 1};
	refused("block 1 of kind 1");
}

Test(step, tokens_and_parameters_are_checked)
{
	uint32_t bad[] = {1, 331};
	int32_t id = -1;
	driver_seq(&d, 0, bad, 2, 2, 16, &params);
	refused("token 331");
	struct params p = params;
	p.top_p = NAN;
	driver_seq(&d, 0, tokens, 2, 2, 16, &p);
	refused("top_p is nan, out of its range 0 to 1");
	p = params;
	p.allowed = &id;
	p.n_allowed = 1;
	driver_seq(&d, 0, tokens, 2, 2, 16, &p);
	refused("allowed_token_ids");
	id = 331; /* the first invalid id */
	driver_seq(&d, 0, tokens, 2, 2, 16, &p);
	refused("token 331, the vocabulary has 331");
}

Test(step, two_runs_of_a_slot_are_refused)
{
	driver_seq(&d, 0, tokens, 20, 20, 32, &params);
	driver_add_run(&d, 0, 0, 5, false);
	driver_add_run(&d, 0, 5, 5, false);
	refused("a second run");
}

Test(step, a_fork_samples_only_where_its_parents_run_ends)
{
	driver_seq(&d, 0, tokens, 20, 20, 64, &params);
	driver_add_run(&d, 0, 0, 12, false);
	*plan_add_fork(&d.plan) = (struct plan_fork){0, 1, 1};
	*plan_add_run(&d.plan) = (struct plan_run){1, 20, 0, PLAN_SAMPLE, 0, 0};
	refused("does not end at 20 tokens");
}

Test(step, too_many_rows_are_refused)
{
	for (uint32_t s = 0; s < 3; s++) {
		driver_seq(&d, s, tokens, 100, 100, 128, &params);
		driver_add_run(&d, s, 0, 100, false);
	}
	refused("more than 256 rows");
}

/* ---- chosen tokens ---- */

Test(step, min_tokens_holds_back_the_stop_tokens)
{
	cr_assert_eq(driver_prompt(&d, tokens, 30, 64, 30, &params), 0);
	uint32_t first = d.result.tokens[0], stop[] = {first, 100000};
	struct params p = params;
	p.stop_ids = stop;
	p.n_stop_ids = 2;
	p.min_tokens = 1;
	cr_assert_eq(driver_prompt(&d, tokens, 30, 64, 30, &p), 0, "%s", d.why.text);
	cr_expect_neq(d.result.tokens[0], first);
	p.min_tokens = 0;
	cr_assert_eq(driver_prompt(&d, tokens, 30, 64, 30, &p), 0);
	cr_expect_eq(d.result.tokens[0], first);
}

static double log_softmax(const float *x, int n, uint32_t id)
{
	double most = -INFINITY, sum = 0;
	for (int i = 0; i < n; i++)
		most = x[i] > most ? x[i] : most;
	for (int i = 0; i < n; i++)
		sum += exp(x[i] - most);
	return x[id] - most - log(sum);
}

Test(step, logprobs_are_the_models_own)
{
	static float x[331];
	params.logprobs = 3;
	cr_assert_eq(driver_prompt(&d, tokens, 30, 64, 30, &params), 0);
	cr_assert_eq(step_logits(d.step, 0, x), 0);
	cr_assert_eq(d.result.n_logprobs, 1);
	const struct result_logprob *l = &d.result.logprobs[0];
	cr_expect_eq(l->token, d.result.tokens[0]);
	cr_expect_eq(l->position, 30);
	cr_expect_eq(l->rank, 1);
	cr_expect_eq(l->n_top, 3);
	cr_expect_eq(d.result.top_ids[l->top0], l->token);
	cr_expect(!l->prompt);
	cr_expect_float_eq(l->logprob, log_softmax(x, 331, l->token), 1e-4);
}

/* Prompt log-probabilities come once for every token, whatever the chunks and the number of rows that the
 * head takes at once. */
Test(step, prompt_logprobs_come_for_every_token_but_the_first)
{
	static struct result_logprob all[2][128];
	static uint32_t top[2][128][2];
	params.prompt_logprobs = 2;
	params.logprobs = 0;
	for (int k = 0; k < 2; k++) {
		uint32_t n = 0, chunk = k ? 13 : 100;
		driver_seq(&d, 0, tokens, 100, 100, 128, &params);
		for (uint32_t at = 0; at < 100; at += chunk) {
			uint32_t rows = 100 - at < chunk ? 100 - at : chunk;
			driver_add_run(&d, 0, at, rows, at + rows == 100);
			cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
			for (uint32_t i = 0; i < d.result.n_logprobs; i++, n++) {
				const struct result_logprob *l = &d.result.logprobs[i];
				all[k][n] = *l;
				memcpy(top[k][n], d.result.top_ids + l->top0, l->n_top * sizeof top[0][0][0]);
			}
		}
		cr_assert_eq(n, 100);
		for (uint32_t i = 0; i < 99; i++) {
			cr_assert(all[k][i].prompt);
			cr_assert_eq(all[k][i].position, i + 1);
			cr_assert_eq(all[k][i].token, tokens[i + 1]);
			cr_assert_eq(all[k][i].n_top, 2);
			cr_assert_leq(all[k][i].logprob, 0);
		}
		cr_assert(!all[k][99].prompt);
	}
	for (uint32_t i = 0; i < 100; i++) {
		cr_assert_eq(all[0][i].logprob, all[1][i].logprob);
		cr_assert_eq(all[0][i].rank, all[1][i].rank);
		cr_assert_arr_eq(top[0][i], top[1][i], all[0][i].n_top * sizeof top[0][0][0]);
	}
}

Test(step, a_cached_prefix_may_be_skipped)
{
	static float want[331], got[331];
	uint32_t blocks[] = {9, 10, 11};
	const struct plan_seq seq = {.slot = 0,
				     .n_prompt = 40,
				     .n_tokens = 40,
				     .n_blocks = 3,
				     .tokens = tokens,
				     .blocks = blocks,
				     .params = &params};
	*plan_add_seq(&d.plan) = seq;
	driver_add_run(&d, 0, 0, 40, true);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	step_logits(d.step, 0, want);
	blocks[2] = 12; /* the last block is new; the two full blocks are cached */
	*plan_add_seq(&d.plan) = seq;
	d.plan.seqs[0].slot = 1;
	driver_add_run(&d, 1, 32, 8, true);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	step_logits(d.step, 0, got);
	cr_expect_arr_eq(want, got, sizeof want);
}

Test(step, many_forks_sample_from_one_row)
{
	params.temperature = 1;
	params.seed = 99;
	driver_seq(&d, 0, tokens, 20, 20, 64, &params);
	driver_add_run(&d, 0, 0, 20, true);
	for (uint32_t i = 1; i < 40; i++) {
		*plan_add_fork(&d.plan) = (struct plan_fork){0, i, i};
		*plan_add_run(&d.plan) = (struct plan_run){i, 20, 0, PLAN_SAMPLE, 0, 0};
	}
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	cr_assert_eq(d.result.n_tokens, 40);
	bool differ = false;
	for (uint32_t i = 1; i < 40; i++)
		differ |= d.result.tokens[i] != d.result.tokens[0];
	cr_expect(differ);
}

/* ---- the step path ---- */

/* ---- tokens chosen by the controller ---- */

static float logits_of(uint32_t i, uint32_t id)
{
	static float x[331];
	cr_assert_eq(step_logits(d.step, i, x), 0);
	return x[id];
}

/* Three hypotheses of one prompt; two are copies with their own blocks for new tokens. Each has the logits of
 * a lone sequence with the same tokens. */
Test(step, a_set_token_is_what_a_sequence_goes_on_with)
{
	const uint32_t chosen[3] = {7, 300, 41};
	float alone[3];
	uint32_t n = 20;
	for (int i = 0; i < 3; i++) {
		tokens[n] = chosen[i];
		cr_assert_eq(driver_prompt(&d, tokens, n + 1, 32, n + 1, &params), 0, "%s", d.why.text);
		alone[i] = logits_of(0, 5);
	}
	cr_assert_eq(driver_prompt(&d, tokens, n, 32, n, &params), 0, "%s", d.why.text);
	const uint32_t own = 500;
	for (uint32_t i = 1; i < 3; i++) {
		*plan_add_set(&d.plan) = (struct plan_set){i, 0, n, chosen[i]};
		*plan_add_table(&d.plan) = (struct plan_table){i, 1, own + i, 0};
		*plan_add_copy(&d.plan) = (struct plan_pair){d.next_block - 7, own + i};
	}
	*plan_add_set(&d.plan) = (struct plan_set){0, 0, n, chosen[0]};
	for (uint32_t i = 0; i < 3; i++)
		driver_add_run(&d, i, n, 1, true);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(logits_of(i, 5), alone[i], "hypothesis %u", i);
	/* The sampled token is replaced by another one. */
	*plan_add_set(&d.plan) = (struct plan_set){1, 2, n + 1, 9};
	*plan_add_set(&d.plan) = (struct plan_set){2, 2, n + 1, 10};
	driver_add_run(&d, 2, n + 1, 1, true);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
}

Test(step, tokens_that_cannot_be_set_are_named)
{
	driver_seq(&d, 0, tokens, 20, 20, 32, &params);
	*plan_add_set(&d.plan) = (struct plan_set){0, 0, 21, 5};
	refused("token 21 is set, but slot 0 has 20 tokens");
	driver_seq(&d, 0, tokens, 20, 20, 32, &params);
	*plan_add_set(&d.plan) = (struct plan_set){1, 0, 19, 5};
	refused("token 19 is set");
	driver_seq(&d, 0, tokens, 10, 20, 32, &params);
	*plan_add_set(&d.plan) = (struct plan_set){0, 0, 15, 5};
	refused("token 15 is set, but slot 0 has 20 tokens");
	driver_seq(&d, 0, tokens, 20, 20, 32, &params);
	*plan_add_set(&d.plan) = (struct plan_set){1, 0, 20, 331};
	refused("token 331 is set, the vocabulary");
	driver_seq(&d, 0, tokens, 20, 20, 32, &params);
	*plan_add_set(&d.plan) = (struct plan_set){4000, 0, 20, 5};
	refused("slot 4000");
	*plan_add_set(&d.plan) = (struct plan_set){1, 3, 20, 5};
	refused("slot 3 of a plan holds no sequence");
}

Test(step, up_to_128_likeliest_tokens_come_in_order)
{
	params.logprobs = PARAMS_TOP_MAX;
	cr_assert_eq(driver_prompt(&d, tokens, 30, 64, 30, &params), 0, "%s", d.why.text);
	cr_assert_eq(d.result.n_logprobs, 1);
	cr_assert_eq(d.result.logprobs[0].n_top, PARAMS_TOP_MAX);
	for (uint32_t i = 1; i < PARAMS_TOP_MAX; i++)
		cr_expect(d.result.top_logprobs[i] < d.result.top_logprobs[i - 1] ||
			  (d.result.top_logprobs[i] == d.result.top_logprobs[i - 1] &&
			   d.result.top_ids[i] > d.result.top_ids[i - 1]));
	struct params p = params;
	p.logprobs = PARAMS_TOP_MAX + 1;
	driver_seq(&d, 0, tokens, 20, 20, 32, &p);
	refused("logprobs is 129, out of its range -1 to 128");
}

Test(step, allocates_nothing_once_warm)
{
	const uint32_t n = driver_brief() ? 4 : 8, end = driver_brief() ? 36 : 60; /* crosses a block's end */
	params.temperature = 0.8f;
	params.logprobs = 5;
	for (uint32_t s = 0; s < n; s++) {
		driver_seq(&d, s, tokens, 20, 20, 100, &params);
		driver_add_run(&d, s, 0, 20, true);
	}
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	for (uint32_t pos = 20; pos < end; pos++) {
		for (uint32_t s = 0; s < n; s++)
			driver_add_run(&d, s, pos, 1, true);
		alloc_guard(pos >= 22);
		int rc = driver_step(&d);
		alloc_guard(false);
		cr_assert_eq(rc, 0, "%s", d.why.text);
	}
}

/* With graphs, a step with one row per sequence and at most one sampled token each is replayed. Runs of more
 * rows and steps without sampling use no graph. */
Test(step, decoding_is_replayed_where_the_device_keeps_graphs)
{
	const uint64_t one = strcmp(driver_device(), "cpu") == 0 ? 0 : 1;
	cr_assert_eq(driver_prompt(&d, tokens, 9, 64, 9, &params), 0, "%s", d.why.text);
	driver_seq(&d, 1, tokens, 3, 3, 64, &params);
	driver_add_run(&d, 1, 0, 2, false);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	cr_assert_eq(step_replayed(d.step), 0, "prompts are not");
	driver_add_run(&d, 1, 2, 1, true);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	cr_assert_eq(step_replayed(d.step), one, "a prompt's last row is");
	for (uint32_t i = 0; i < 4; i++) {
		driver_add_run(&d, 0, 9 + i, 1, true);
		driver_add_run(&d, 1, 3 + i, 1, true);
		cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
		cr_assert_eq(d.result.n_tokens, 2);
	}
	cr_assert_eq(step_replayed(d.step), 5 * one);
	driver_seq(&d, 2, tokens, 3, 3, 64, &params);
	driver_add_run(&d, 2, 0, 3, true);
	driver_add_run(&d, 0, 13, 1, true);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	cr_assert_eq(step_replayed(d.step), 5 * one, "a prompt among them");
}

Test(step, loads_again_only_for_another_service)
{
	struct bus_load load = driver_load(tiny_model("llama3"));
	cr_expect(step_serves(d.step, &load));
	load.epoch = 9;
	cr_expect(step_serves(d.step, &load));
	load.max_rows++;
	cr_expect(!step_serves(d.step, &load));
	load = driver_load(tiny_model("llama3"));
	snprintf(load.head, sizeof load.head, "int8");
	cr_expect(!step_serves(d.step, &load));
	load = driver_load(tiny_model("llama3"));
	snprintf(load.kv, sizeof load.kv, "bf16");
	cr_expect(!step_serves(d.step, &load));
}

static void check_mode(const char *name, const char *same_as)
{
	struct bus_load load = driver_load(tiny_model("llama3"));
	struct driver by_name, other;
	char numerics[sizeof by_name.ready.numerics];
	snprintf(load.compute, sizeof load.compute, "%s", name);
	cr_assert_eq(driver_open(&by_name, &load), 0, "%s", by_name.why.text);
	snprintf(numerics, sizeof numerics, "%s", by_name.ready.numerics);
	driver_close(&by_name);
	snprintf(load.compute, sizeof load.compute, "%s", same_as);
	cr_assert_eq(driver_open(&other, &load), 0, "%s", other.why.text);
	cr_expect_str_eq(numerics, other.ready.numerics, "mode \"%s\"", name);
	driver_close(&other);
}

Test(step, no_mode_is_that_of_the_machine)
{
	const char *best = kern_compute_name(kern_auto_compute(driver_device(), NULL));
	check_mode("", best);
	check_mode("auto", best);
	check_mode("f32", "f32");
}

Test(step, a_context_beyond_the_models_is_refused)
{
	struct driver other;
	struct bus_load load = driver_load(tiny_model("llama3"));
	load.max_context = 257;
	cr_expect_eq(driver_open(&other, &load), -EINVAL);
	cr_expect(strstr(other.why.text, "the context is 257, at most 256 is possible"), "%s",
		  other.why.text);
}

/* With a dynamic RoPE, cos and sin depend on the context, so workers of two contexts differ in bits. */
Test(step, the_numerics_class_names_the_context_of_a_dynamic_rope)
{
	struct driver other;
	const char *dir = tiny_model("llama2-dynamic");
	const uint32_t contexts[] = {64, 96};
	char numerics[2][sizeof d.ready.numerics];
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	for (int i = 0; i < 2; i++) {
		struct bus_load load = driver_load(dir);
		load.max_context = contexts[i];
		cr_assert_eq(driver_open(&other, &load), 0, "%s", other.why.text);
		strcpy(numerics[i], other.ready.numerics);
		driver_close(&other);
	}
	cr_expect_str_neq(numerics[0], numerics[1]);
}

Test(step, a_pool_that_holds_nothing_is_refused)
{
	struct driver other;
	struct bus_load load = driver_load(tiny_model("llama3"));
	load.kv_bytes = 100;
	cr_expect_eq(driver_open(&other, &load), -ENOMEM);
	cr_expect(strstr(other.why.text, "holds no block"), "%s", other.why.text);
}

Test(step, default_sizes_are_sensible)
{
	if (driver_brief()) /* takes the largest steps; test_step_memory checks these sizes on an emulated
			     * device */
		cr_skip_test("takes long on the emulated device: QUERN_TEST_LONG=1");
	struct driver other;
	struct bus_load load = {.epoch = 1};
	snprintf(load.model, sizeof load.model, "%s", tiny_model("llama3"));
	cr_assert_eq(driver_open(&other, &load), 0, "%s", other.why.text);
	const struct bus_limits *l = step_limits(other.step);
	cr_expect_eq(l->max_context, 256);
	cr_expect_eq(step_block_size(other.step), 16);
	if (strcmp(driver_device(), "cpu") == 0)
		cr_expect_eq(l->n_blocks, 16 * 256 / 16);
	else
		cr_expect_gt(l->n_blocks, 16 * 256 / 16);
	cr_expect_geq(l->max_rows, l->max_runs);
	driver_close(&other);
}

Test(step, the_most_slots_of_a_context_fit_an_index)
{
	for (uint32_t context = 1 << 20; context <= 1 << 24; context += 99991) {
		const uint64_t most = slots_most(context), room = (uint64_t)context + 2;
		cr_expect(most * room <= INT32_MAX && (most + 1) * room > INT32_MAX, "context %u", context);
	}
}
