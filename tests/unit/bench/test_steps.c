/* Trace lines become the table of `bench engine`. */
#include "base/clock.h"
#include "bench/steps.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(steps, .timeout = 60);

static char path[] = "/tmp/quern-steps-XXXXXX";

static void append(const char *text)
{
	FILE *f = fopen(path, "a");
	cr_assert(f && fputs(text, f) >= 0);
	fclose(f);
}

/* Adds a step of worker PID, with 100 us of linear layers per row. */
static void add_step(int pid, int number, int rows, int seqs, int samples, int head_us, int message_us)
{
	char text[512];
	snprintf(text, sizeof text,
		 "{\"pid\":%d,\"number\":%d,\"at_us\":%lld,\"rows\":%d,\"seqs\":%d,\"samples\":%d,"
		 "\"context\":%d,\"ns\":{\"linear\":%d,\"head\":%d,\"result\":2000,\"message\":%d,"
		 "\"prepare\":1000}}\n",
		 pid, number, (long long)clock_us(), rows, seqs, samples, 100 * seqs, rows * 100000,
		 head_us * 1000, message_us * 1000);
	append(text);
}

static struct steps *begin(const char *device, int want)
{
	struct steps *s = NULL;
	struct why why;
	char text[512];
	close(mkstemp(path));
	snprintf(text, sizeof text,
		 "{\"load\":1,\"pid\":5,\"device\":\"%s\",\"mode\":\"f32\",\"layers_bytes\":1000000,"
		 "\"head_bytes\":500000,\"kv_token_bytes\":1000,\"layers_macs\":2000000,\"head_macs\":100}\n",
		 device);
	append(text);
	cr_assert_eq(steps_new(&s, path, &why), want, "%s", why.text);
	return s;
}

static void end(struct steps *s)
{
	struct why why;
	cr_assert_eq(steps_read(s, &why), 0, "%s", why.text);
	unlink(path);
}

static double number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	cr_assert(json_is_number(v), "%s is missing", key);
	return json_number_value(v);
}

Test(steps, a_step_of_outputs_counts_behind_another_of_its_kind)
{
	struct steps *s = begin("cpu", 0);
	add_step(5, 1, 2, 2, 2, 900, 7); /* before the run */
	steps_run_begin(s, 2);
	add_step(5, 2, 40, 2, 2, 10, 500); /* the prompts */
	add_step(5, 3, 2, 2, 2, 900, 900); /* the first step after the prompts */
	add_step(5, 4, 2, 2, 2, 100, 17);
	add_step(5, 5, 2, 2, 2, 100, 37);
	add_step(6, 6, 2, 2, 2, 900, 900); /* a step of another worker */
	add_step(5, 7, 2, 2, 2, 900, 900); /* the step before this one is missing */
	add_step(5, 8, 1, 1, 1, 900, 900); /* one sequence has ended */
	steps_run_end(s);
	add_step(5, 9, 2, 2, 2, 900, 7); /* after the run */
	end(s);
	json_t *o = steps_json(s, 2);
	const json_t *d = json_object_get(o, "decode"), *ms = json_object_get(d, "ms");
	cr_expect_eq(number(d, "steps"), 2);
	cr_expect_float_eq(number(ms, "linear"), 0.2, 1e-9);
	cr_expect_float_eq(number(ms, "head"), 0.1, 1e-9);
	cr_expect_float_eq(number(ms, "waiting"), 0.030, 1e-9, "result, message and prepare");
	cr_expect_float_eq(number(d, "step_ms"), 0.330, 1e-9);
	cr_expect_float_eq(number(d, "waiting_us_p50"), 30, 1e-9);
	/* 1.5 MB of weights and 200 tokens of K and V in 330 us */
	cr_expect_float_eq(number(d, "gb_per_s"), 1.7e6 / 330e-6 / 1e9, 1e-6);
	cr_expect_float_eq(number(d, "gop_per_s"), 2 * 4000200 / 330e-6 / 1e9, 1e-6);
	cr_expect_gt(number(d, "memory_percent"), 0);
	json_decref(o);
	steps_free(s);
}

Test(steps, each_column_of_the_table_has_its_heading)
{
	struct steps *s = begin("cpu", 0);
	struct table t = {0};
	add_step(5, 1, 2, 2, 2, 900, 7);
	steps_run_begin(s, 2);
	for (int i = 2; i < 6; i++)
		add_step(5, i, 2, 2, 2, 100, 17);
	steps_run_end(s);
	add_step(5, 6, 2, 2, 2, 900, 7);
	end(s);
	steps_table(s, &t);
	cr_assert(t.n_lines == 2);
	cr_expect_eq(t.lines[0].n, t.lines[1].n, "%zu headings, %zu cells", t.lines[0].n, t.lines[1].n);
	cr_expect_str_eq(t.lines[0].cells[5], "HEAD");
	cr_expect_str_eq(t.lines[1].cells[5], "0.100 31%");
	cr_expect_str_eq(t.lines[0].cells[6], "MASKS");
	cr_expect_str_eq(t.lines[1].cells[6], "0.000  0%");
	table_fini(&t);
	steps_free(s);
}

Test(steps, prompts_are_counted_without_their_wait)
{
	struct steps *s = begin("cpu", 0);
	steps_run_begin(s, 1);
	add_step(5, 1, 30, 1, 0, 0, 500000);
	add_step(5, 2, 30, 1, 1, 100, 10);
	steps_run_end(s);
	end(s);
	json_t *o = steps_json(s, 1);
	const json_t *p = json_object_get(o, "prompt");
	cr_expect(json_is_null(json_object_get(o, "decode")));
	cr_expect_eq(number(p, "steps"), 2);
	cr_expect_float_eq(number(p, "step_ms"), (3.0 + 3.1) / 2, 1e-9);
	cr_expect_eq(number(json_object_get(p, "ms"), "waiting"), 0);
	json_decref(o);
	steps_free(s);
}

Test(steps, only_a_cpu_is_measured)
{
	cr_expect_null(begin("cuda", -ENOTSUP));
	unlink(path);
}

Test(steps, a_line_that_is_cut_off_is_left_out)
{
	struct steps *s = begin("cpu", 0);
	steps_run_begin(s, 1);
	add_step(5, 1, 1, 1, 1, 100, 10);
	add_step(5, 2, 1, 1, 1, 100, 10);
	append("{\"pid\":5,\"number\":3,\"at_u");
	steps_run_end(s);
	end(s);
	json_t *o = steps_json(s, 1);
	cr_expect_eq(number(json_object_get(o, "decode"), "steps"), 1);
	json_decref(o);
	steps_free(s);
}
