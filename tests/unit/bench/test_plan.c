/* Costs of devices and models for `quern plan`. */
#include "bench/sim/costmodel.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct why why;

static int read_device(const char *text, struct costmodel_device *d)
{
	return costmodel_device_read(text, d, &why);
}

Test(plan, devices_have_a_name_and_a_count)
{
	static const struct {
		const char *text, *name;
		uint32_t count;
	} good[] = {
		{"h100", "h100", 1}, {"H200x2", "h200", 2}, {"4090x16", "4090", 16}, {"a100x1", "a100", 1}};
	struct costmodel_device d;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		cr_assert_eq(read_device(good[i].text, &d), 0, "%s", good[i].text);
		cr_expect_str_eq(d.name, good[i].name);
		cr_expect_eq(d.count, good[i].count);
		cr_expect_not(d.cpu);
		cr_expect_eq(d.source, COSTMODEL_DATA_SHEET);
	}
	static const char *const bad[] = {"", "h999", "h100x0", "h100x9999", "h100x2y", "x2", "h100x-1"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect_eq(read_device(bad[i], &d), -EINVAL, "%s", bad[i]);
	cr_expect_eq(read_device("h999", &d), -EINVAL);
	cr_expect_not_null(strstr(why.text, "h200"));
}

/* Write a file in the format of bench engine's results; return its path. */
static const char *measured(const char *text)
{
	static char path[64];
	snprintf(path, sizeof path, "/tmp/quern-plan-%d", getpid());
	FILE *f = fopen(path, "w");
	cr_assert_not_null(f);
	fputs(text, f);
	fclose(f);
	return path;
}

Test(plan, measured_costs_are_a_line_through_two_batches)
{
	struct costmodel_device d;
	struct costmodel_model m = {.params = 1e9, .step_bytes = 2e9, .kv_token_bytes = 1e5, .n_layers = 10};
	cr_assert_eq(read_device("h100", &d), 0);
	costmodel_load(&d, &m);
	/* A step of batch 1 takes 1000 us, a step of batch 11 takes 1500 us. The batch between is ignored. */
	const char *path = measured(
		"{\"results\": ["
		"{\"batch\": 11, \"decode_tokens_per_s\": 7333.333333, \"prefill_tokens_per_s\": 9000},"
		"{\"batch\": 1, \"decode_tokens_per_s\": 1000, \"prefill_tokens_per_s\": 10000},"
		"{\"batch\": 4, \"decode_tokens_per_s\": 1, \"prefill_tokens_per_s\": 5000}]}");
	cr_assert_eq(costmodel_measured(&d, path, &why), 0, "%s", why.text);
	cr_expect_float_eq(d.cost.decode_row_us, 50, 0.01);
	cr_expect_float_eq(d.cost.base_us, 950, 0.01);
	cr_expect_eq(d.source, COSTMODEL_MEASURED);
	/* A prompt of 1000 rows at 10000 rows per second, with two decodes in the same step. */
	struct plan p = {0};
	*plan_add_run(&p) = (struct plan_run){.n_rows = 1000};
	*plan_add_run(&p) = (struct plan_run){.n_rows = 1};
	*plan_add_run(&p) = (struct plan_run){.n_rows = 1};
	p.n_rows = 1002;
	d.cost.kv_token_bytes = 0;
	cr_expect_float_eq(costmodel_step_us(&d.cost, &p, 16), 950 + 100 + 1e5, 1);
	plan_fini(&p);
	unlink(path);
}

Test(plan, measurements_of_one_batch_are_refused)
{
	struct costmodel_device d;
	static const char *const bad[] = {
		"{}",
		"[]",
		"nothing",
		"{\"results\": 3}",
		"{\"results\": [{\"batch\": 1, \"decode_tokens_per_s\": 9, \"prefill_tokens_per_s\": 90}]}",
		"{\"results\": [{\"batch\": 1, \"decode_tokens_per_s\": 0}, {\"batch\": 2}]}"};
	cr_assert_eq(read_device("h100", &d), 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect_neq(costmodel_measured(&d, measured(bad[i]), &why), 0, "%s", bad[i]);
	unlink(measured(""));
	cr_expect_eq(costmodel_measured(&d, "/nothing/there", &why), -ENOENT);
}

Test(plan, devices_that_share_a_model_divide_it_and_wait_for_each_other)
{
	struct costmodel_device d;
	struct costmodel_model m = {
		.params = 8e9, .step_bytes = 5e9, .kv_token_bytes = 1.5e5, .n_layers = 36};
	cr_assert_eq(read_device("h100x2", &d), 0);
	costmodel_load(&d, &m);
	cr_expect_eq(d.cost.flop_per_token, 16e9);
	const struct costmodel one = costmodel_replica(&d, &m, 1), two = costmodel_replica(&d, &m, 2);
	cr_expect_eq(two.weights_bytes * 2, one.weights_bytes);
	cr_expect_eq(two.flop_per_token * 2, one.flop_per_token);
	cr_expect_eq(two.kv_token_bytes * 2, one.kv_token_bytes);
	cr_expect_gt(two.base_us, one.base_us + 36);
}
