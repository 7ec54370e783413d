/* A trace's lines show the time of each operation of a step. */
#include "base/clock.h"
#include "tests/driver.h"
#include "worker/trace.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(trace, .timeout = 60);

enum { LINES = 64 };

static json_t *lines[LINES]; /* of the last file read */

static size_t read_lines(const char *path)
{
	char text[4096];
	size_t n = 0;
	FILE *f = fopen(path, "r");
	cr_assert(f);
	while (n < LINES && fgets(text, sizeof text, f))
		cr_assert_eq(json_parse(text, strlen(text), &lines[n++], NULL), 0, "%s", text);
	fclose(f);
	return n;
}

static int64_t integer(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	cr_assert(json_is_integer(v), "%s is missing", key);
	return json_integer_value(v);
}

static int64_t ns_of(const json_t *line, enum trace_kind k)
{
	return integer(json_object_get(line, "ns"), trace_name(k));
}

static struct trace *open_trace(char path[32])
{
	struct trace *t = NULL;
	struct why why;
	strcpy(path, "/tmp/quern-trace-XXXXXX");
	close(mkstemp(path));
	cr_assert_eq(trace_open(&t, path, &why), 0, "%s", why.text);
	return t;
}

Test(trace, a_mark_ends_the_time_of_its_kind)
{
	char path[32];
	struct trace *t = open_trace(path);
	trace_mark(t, TRACE_MESSAGE);
	const int64_t t0 = clock_ns();
	while (clock_ns() - t0 < 2000000)
		;
	trace_mark(t, TRACE_HEAD);
	trace_end(t, &(struct trace_step){.number = 7, .rows = 3, .seqs = 2, .samples = 1, .context = 40});
	trace_end(t, &(struct trace_step){.number = 8});
	trace_close(t);
	cr_assert_eq(read_lines(path), 2);
	cr_expect_eq(integer(lines[0], "number"), 7);
	cr_expect_eq(integer(lines[0], "rows"), 3);
	cr_expect_eq(integer(lines[0], "seqs"), 2);
	cr_expect_eq(integer(lines[0], "samples"), 1);
	cr_expect_eq(integer(lines[0], "context"), 40);
	cr_expect_geq(ns_of(lines[0], TRACE_HEAD), 2000000);
	cr_expect_eq(ns_of(lines[0], TRACE_LINEAR), 0);
	cr_expect_eq(ns_of(lines[1], TRACE_HEAD), 0, "a line has what was marked since the line before");
	unlink(path);
}

Test(trace, traces_of_several_workers_share_a_file)
{
	struct why why;
	char path[32];
	struct trace *a = open_trace(path), *b = NULL;
	cr_assert_eq(trace_open(&b, path, &why), 0);
	for (uint64_t i = 0; i < 20; i++) {
		trace_end(a, &(struct trace_step){.number = i});
		trace_end(b, &(struct trace_step){.number = i});
	}
	trace_close(b);
	trace_close(a);
	cr_expect_eq(read_lines(path), 40);
	unlink(path);
}

Test(trace, a_file_that_cannot_be_written_is_named)
{
	struct trace *t = NULL;
	struct why why = {""};
	cr_expect_eq(trace_open(&t, "/nowhere/steps", &why), -ENOENT);
	cr_expect(strstr(why.text, "/nowhere/steps"), "%s", why.text);
}

static void count(void *arg)
{
	++*(int *)arg;
}

Test(trace, a_step_says_once_that_the_device_is_at_work)
{
	struct params params;
	struct driver d = {0};
	const uint32_t tokens[] = {1, 2, 3};
	struct bus_load load = driver_load(repofile("models/demo"));
	int n = 0;
	const struct step_args a = {.device = "cpu", .load = &load, .at_work = count, .at_work_arg = &n};
	cr_assert_eq(step_open(&d.step, &a, &d.ready, &d.why), 0, "%s", d.why.text);
	params_init(&params);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	cr_expect_eq(n, 0, "a step without rows");
	driver_seq(&d, 0, tokens, 3, 3, 16, &params);
	driver_add_run(&d, 0, 0, 3, true);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	cr_expect_eq(n, 1);
	driver_close(&d);
}

/* Every kind of operation has its time, and nothing is omitted. */
Test(trace, a_step_is_divided_among_its_operations)
{
	static const enum trace_kind device[] = {TRACE_ROWS, TRACE_LINEAR, TRACE_ATTENTION, TRACE_HEAD,
						 TRACE_SAMPLE};
	char path[32];
	struct params params;
	struct driver d = {0};
	const uint32_t tokens[] = {1, 2, 3};
	struct bus_load load = driver_load(repofile("models/demo"));
	struct trace *t = open_trace(path);
	const struct step_args a = {.device = "cpu", .load = &load, .trace = t};
	cr_assert_eq(step_open(&d.step, &a, &d.ready, &d.why), 0, "%s", d.why.text);
	params_init(&params);
	params.max_tokens = 8;
	driver_seq(&d, 0, tokens, 3, 3, 16, &params);
	driver_add_run(&d, 0, 0, 3, true);
	const int64_t t0 = clock_ns();
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	const int64_t t1 = clock_ns();
	driver_add_run(&d, 0, 3, 1, true);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	driver_close(&d);
	trace_close(t);
	cr_assert_eq(read_lines(path), 3);
	cr_expect_eq(integer(lines[0], "load"), 1);
	cr_expect_gt(integer(lines[0], "layers_bytes"), 0);
	cr_expect_gt(integer(lines[0], "head_bytes"), 0);
	cr_expect_gt(integer(lines[0], "kv_token_bytes"), 0);
	cr_expect_eq(integer(lines[1], "rows"), 3);
	cr_expect_eq(integer(lines[1], "context"), 3);
	cr_expect_eq(integer(lines[2], "rows"), 1);
	cr_expect_eq(integer(lines[2], "context"), 4);
	cr_expect_eq(integer(lines[2], "samples"), 1);
	int64_t sum = 0;
	for (size_t i = 0; i < sizeof device / sizeof *device; i++) {
		cr_expect_gt(ns_of(lines[1], device[i]), 0, "%s", trace_name(device[i]));
		sum += ns_of(lines[1], device[i]);
	}
	cr_expect_leq(sum, t1 - t0);
	unlink(path);
}
