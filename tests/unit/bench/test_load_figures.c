/* Statistics of a load test, compared with numpy (tests/golden/make_load_golden.py). */
#include "base/json.h"
#include "bench/load_figures.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(load_figures, .timeout = 60);

static int64_t int_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static struct load_request *requests_of(const json_t *list)
{
	struct load_request *v = calloc(json_array_size(list), sizeof *v);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *r = json_array_get(list, i), *chunks = json_object_get(r, "chunk_us");
		const char *error = json_string_value(json_object_get(r, "error"));
		v[i].sent_us = int_of(r, "sent_us");
		v[i].last_us = int_of(r, "last_us");
		v[i].n_prompt = (uint32_t)int_of(r, "n_prompt");
		v[i].got_prompt = (uint32_t)int_of(r, "got_prompt");
		v[i].got_output = (uint32_t)int_of(r, "got_output");
		v[i].error = error ? strdup(error) : NULL;
		v[i].n_chunks = (uint32_t)json_array_size(chunks);
		v[i].chunk_us = calloc(v[i].n_chunks + 1, sizeof *v[i].chunk_us);
		for (uint32_t k = 0; k < v[i].n_chunks; k++)
			v[i].chunk_us[k] = json_integer_value(json_array_get(chunks, k));
	}
	return v;
}

Test(load_figures, are_those_of_numpy)
{
	json_t *golden, *got = json_object();
	struct why why;
	double percentiles[8];
	cr_assert_eq(json_read(repofile("tests/golden/load.json"), 1 << 20, &golden, &why), 0, "%s",
		     why.text);
	const json_t *list = json_object_get(golden, "requests"),
		     *expected = json_object_get(golden, "expected");
	const json_t *wanted = json_object_get(golden, "percentiles"), *slos = json_object_get(golden, "slo");
	size_t n = json_array_size(list);
	struct load_request *v = requests_of(list);
	struct load_slo slo = {.any = true};
	struct load_figures f;
	for (int m = 0; m < LOAD_METRICS; m++)
		slo.max_ms[m] = json_number_value(json_object_get(slos, load_metric_names[m]));
	for (size_t i = 0; i < json_array_size(wanted); i++)
		percentiles[i] = json_number_value(json_array_get(wanted, i));
	load_figures_make(&f, v, n, int_of(golden, "duration_us"), &slo);
	load_figures_json(&f, true, percentiles, json_array_size(wanted), got);

	const char *key;
	json_t *e;
	json_object_foreach((json_t *)expected, key, e)
	{
		double want = json_number_value(e), have = json_number_value(json_object_get(got, key));
		cr_expect(json_object_get(got, key) && fabs(want - have) <= 1e-9 * fabs(want),
			  "%s: %.15g, not %.15g", key, have, want);
	}
	cr_expect(json_object_size(expected) >= 42);
	cr_expect_eq(f.n_failures, 2);
	cr_expect_eq(f.failures[0].n + f.failures[1].n, f.failed);

	load_figures_fini(&f);
	for (size_t i = 0; i < n; i++)
		load_request_fini(&v[i]);
	free(v);
	json_decref(golden);
	json_decref(got);
}

Test(load_figures, of_nothing_are_zero)
{
	struct load_figures f;
	json_t *o = json_object();
	double p99 = 99;
	load_figures_make(&f, NULL, 0, 0, NULL);
	load_figures_json(&f, false, &p99, 1, o);
	cr_expect_eq(json_real_value(json_object_get(o, "p99_itl_ms")), 0);
	cr_expect_eq(json_real_value(json_object_get(o, "output_throughput")), 0);
	cr_expect(json_is_null(json_object_get(o, "request_goodput")));
	load_figures_fini(&f);
	json_decref(o);
}

Test(load_figures, the_detail_has_an_entry_for_each_request_sent)
{
	int64_t chunks[] = {1000, 4000};
	struct load_request v[] = {
		{.sent_us = 5000, .chunk_us = chunks, .n_chunks = 2, .n_prompt = 7, .text = (char *)"ab"},
		{.sent_us = 6000, .error = (char *)"HTTP 429", .n_prompt = 3},
		{.sent_us = -1},
	};
	json_t *o = json_object(), *want;
	load_figures_detail(v, 3, o);
	want = json_pack("{s:[i,i], s:[i,i], s:[f,f], s:[f,f], s:[[f],[]], s:[s,s], s:[s,s]}", "input_lens",
			 7, 3, "output_lens", 2, 0, "start_times", 0.005, 0.006, "ttfts", 0.001, 0.0, "itls",
			 0.003, "generated_texts", "ab", "", "errors", "", "HTTP 429");
	cr_expect(json_equal(o, want));
	json_decref(o);
	json_decref(want);
}

Test(load_figures, objectives_are_parsed_or_refused)
{
	struct load_slo slo;
	struct why why;
	cr_assert_eq(load_slo_parse("ttft:200,tpot:50.5 e2el:3000", &slo, &why), 0, "%s", why.text);
	cr_expect_eq(slo.max_ms[LOAD_TTFT], 200);
	cr_expect_eq(slo.max_ms[LOAD_TPOT], 50.5);
	cr_expect_eq(slo.max_ms[LOAD_E2EL], 3000);
	static const char *const bad[] = {"",         "ttft",  "ttft:", "ttft:x",   "ttft:-1",    "ttft:0",
					  "ttft:inf", "itl:5", "ttf:5", "ttft:5ms", "ttft:5,tpot"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect_neq(load_slo_parse(bad[i], &slo, &why), 0, "\"%s\"", bad[i]);
}

/* ---- chunks ---- */

static struct load_chunk chunk_of(const char *text)
{
	static char error[64];
	struct load_chunk c;
	json_t *v = json_loads(text, 0, NULL);
	cr_assert(v, "%s", text);
	load_chunk_read(v, &c);
	snprintf(error, sizeof error, "%s", c.error ? c.error : "");
	c.error = c.error ? error : NULL;
	c.text = NULL; /* pointed into the JSON value, which is freed here */
	json_decref(v);
	return c;
}

Test(load_chunk, text_reasoning_and_tool_calls_count_as_tokens)
{
	static const struct {
		const char *json;
		bool tokens, finished;
	} cases[] = {
		{"{\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}", true, false},
		{"{\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}", true, false},
		{"{\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}", false, true},
		{"{\"choices\":[{\"text\":\"z\",\"finish_reason\":\"length\"}]}", true, true},
		{"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]"
		 "}",
		 false, false},
		{"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"a\"}}]}", true, false},
		{"{\"choices\":[{\"delta\":{\"content\":\"\"}}]}", true, false},
		{"{\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}", false, true},
		{"{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}", false, true},
		{"{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}", true, false},
		{"{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}", true, false},
		{"{\"choices\":[],\"usage\":{\"completion_tokens\":3}}", false, false},
		{"[]", false, false},
		{"{\"choices\":7}", false, false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct load_chunk c = chunk_of(cases[i].json);
		cr_expect_eq(c.has_tokens, cases[i].tokens, "%s", cases[i].json);
		cr_expect_eq(c.finished, cases[i].finished, "%s", cases[i].json);
	}
}

Test(load_chunk, usage_and_errors_are_parsed)
{
	struct load_chunk c =
		chunk_of("{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}");
	cr_expect_eq(c.got_prompt, 9);
	cr_expect_eq(c.got_output, 3);
	cr_expect_eq(chunk_of("{\"usage\":{\"prompt_tokens\":-9}}").got_prompt, 0);
	cr_expect_str_eq(chunk_of("{\"error\":{\"message\":\"full\"}}").error, "full");
	cr_expect_str_eq(chunk_of("{\"error\":\"full\"}").error, "full");
	cr_expect_str_eq(chunk_of("{\"error\":{}}").error, "an error without a message");
	cr_expect_null(chunk_of("{\"error\":null}").error);
}
