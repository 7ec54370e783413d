/* /metrics: buckets, text format, and the observations of jobs. */
#include "controller/metrics/metrics.h"

#include "controller/jobs/jobs.h"
#include "controller/message/trace_context.h"
#include "controller/tokenizer/tokenizer.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct metrics *m;

static void make(void)
{
	m = metrics_new(2048);
}

static void drop(void)
{
	metrics_free(m);
}

TestSuite(metrics, .init = make, .fini = drop);

/* Return the value of the sample `line` (name and labels), or -1. */
static double value_of(const char *line, const struct engine_status *s)
{
	struct buf b = {0};
	metrics_write(m, "demo", s, METRICS_TEXT, &b);
	char *at = strstr(b.p, line);
	double v = at && at[strlen(line)] == ' ' ? atof(at + strlen(line)) : -1;
	buf_fini(&b);
	return v;
}

Test(metrics, buckets_are_cumulative_and_include_their_bound)
{
	metrics_observe(m, METRIC_TTFT, 1000);       /* 0.001 */
	metrics_observe(m, METRIC_TTFT, 1001);       /* above that bucket */
	metrics_observe(m, METRIC_TTFT, 3000000000); /* above all buckets */
	static const char name[] = "quern:time_to_first_token_seconds";
	char line[128];
	static const struct {
		const char *le;
		double n;
	} want[] = {{"0.001", 1}, {"0.005", 2}, {"2560.0", 2}, {"+Inf", 3}};
	for (size_t i = 0; i < 4; i++) {
		snprintf(line, sizeof line, "%s_bucket{model_name=\"demo\",le=\"%s\"}", name, want[i].le);
		cr_expect(value_of(line, NULL) == want[i].n, "%s is %g", line, value_of(line, NULL));
	}
	cr_expect(value_of("quern:time_to_first_token_seconds_count{model_name=\"demo\"}", NULL) == 3);
	double sum = value_of("quern:time_to_first_token_seconds_sum{model_name=\"demo\"}", NULL);
	cr_expect(sum > 3000.0020 && sum < 3000.0021, "%.9f", sum);
}

Test(metrics, negative_time_counts_as_zero)
{
	metrics_observe(m, METRIC_QUEUE, -5);
	cr_expect(value_of("quern:request_queue_time_seconds_bucket{model_name=\"demo\",le=\"0.3\"}", NULL) ==
		  1);
	cr_expect(value_of("quern:request_queue_time_seconds_sum{model_name=\"demo\"}", NULL) == 0);
}

Test(metrics, token_buckets_end_at_the_context)
{
	metrics_observe(m, METRIC_REQUEST_PROMPT_TOKENS, 7);
	cr_expect(value_of("quern:request_prompt_tokens_bucket{model_name=\"demo\",le=\"5.0\"}", NULL) == 0);
	cr_expect(value_of("quern:request_prompt_tokens_bucket{model_name=\"demo\",le=\"10.0\"}", NULL) == 1);
	cr_expect(value_of("quern:request_prompt_tokens_bucket{model_name=\"demo\",le=\"2000.0\"}", NULL) ==
		  1);
	cr_expect(value_of("quern:request_prompt_tokens_bucket{model_name=\"demo\",le=\"5000.0\"}", NULL) ==
		  -1);
}

Test(metrics, engine_metrics_are_left_out_without_its_status)
{
	struct engine_status s = {.counts = {.n_running = 3, .n_blocks = 10, .n_held = 4}};
	cr_expect(value_of("quern:num_requests_running{model_name=\"demo\"}", &s) == 3);
	cr_expect(value_of("quern:kv_cache_usage_perc{model_name=\"demo\"}", &s) == 0.4);
	cr_expect(value_of("quern:num_requests_running{model_name=\"demo\"}", NULL) == -1);
	s.counts.n_blocks = 0;
	cr_expect(value_of("quern:kv_cache_usage_perc{model_name=\"demo\"}", &s) == 0);
}

Test(metrics, worker_memory_is_labelled_by_kind)
{
	struct engine_status s = {.n_workers = 2};
	s.workers[0] = (struct engine_worker){.id = 3}; /* has not loaded a model */
	s.workers[1] = (struct engine_worker){.id = 4,
					      .weights_bytes = 6000,
					      .scratch_bytes = 500,
					      .kv_bytes = 70,
					      .host_bytes = 8,
					      .host_weights_bytes = 9,
					      .grammar_bytes = 10,
					      .device_bytes = 9000};
	cr_expect(value_of("quern:worker_memory_bytes{model_name=\"demo\",worker=\"4\",kind=\"weights\"}",
			   &s) == 6000);
	cr_expect(value_of("quern:worker_memory_bytes{model_name=\"demo\",worker=\"4\",kind=\"scratch\"}",
			   &s) == 500);
	cr_expect(value_of("quern:worker_memory_bytes{model_name=\"demo\",worker=\"4\",kind=\"kv\"}", &s) ==
		  70);
	cr_expect(value_of("quern:worker_memory_bytes{model_name=\"demo\",worker=\"4\",kind=\"host\"}", &s) ==
		  8);
	cr_expect(
		value_of("quern:worker_memory_bytes{model_name=\"demo\",worker=\"4\",kind=\"host_weights\"}",
			 &s) == 9);
	cr_expect(value_of("quern:worker_memory_bytes{model_name=\"demo\",worker=\"4\",kind=\"grammars\"}",
			   &s) == 10);
	cr_expect(value_of("quern:worker_memory_bytes{model_name=\"demo\",worker=\"3\",kind=\"kv\"}", &s) ==
		  -1);
}

Test(metrics, label_values_are_escaped)
{
	struct buf b = {0};
	metrics_write(m, "a\"b\\c\nd", NULL, METRICS_TEXT, &b);
	cr_expect_not_null(strstr(b.p, "{model_name=\"a\\\"b\\\\c\\nd\"}"));
	buf_fini(&b);
}

Test(metrics, null_metrics_are_ignored)
{
	metrics_add(NULL, METRIC_PROMPT_TOKENS, 1);
	metrics_observe(NULL, METRIC_TTFT, 1);
	cr_expect(metrics_count(NULL, METRIC_PROMPT_TOKENS) == 0);
}

static void *add_many(void *unused)
{
	(void)unused;
	for (int i = 0; i < 100000; i++) {
		metrics_add(m, METRIC_GENERATION_TOKENS, 1);
		metrics_observe(m, METRIC_ITL, i);
	}
	return NULL;
}

Test(metrics, concurrent_additions_are_all_counted)
{
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, add_many, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	cr_expect(metrics_count(m, METRIC_GENERATION_TOKENS) == 400000);
	cr_expect(value_of("quern:inter_token_latency_seconds_count{model_name=\"demo\"}", NULL) == 400000);
}

/* --- the table of jobs --- */

static uint64_t job;

static void on_command(void *user, struct engine_cmd *c)
{
	(void)user;
	job = c->kind == ENGINE_SUBMIT ? c->job : job;
	engine_cmd_free(c);
}

static void on_event(void *user, const struct job_event *e)
{
	(void)user;
	(void)e;
}

static void tokens(struct jobs *j, uint32_t index, int64_t now)
{
	struct engine_token t = {.job = job, .index = index, .token = 300};
	jobs_event(j, &(struct engine_event){.kind = ENGINE_TOKENS, .tokens = &t, .n_tokens = 1}, now);
}

Test(metrics, finished_job_adds_its_latencies_and_finish_reasons)
{
	struct why why;
	struct tokenizer *tok = NULL;
	cr_assert(tokenizer_load(repofile("models/demo"), &tok, &why) == 0, "%s", why.text);
	struct service svc = {.tokenizer = tok, .metrics = m, .max_finished = 10, .keep_finished_us = 1};
	struct jobs *j = jobs_new(&svc, on_command, NULL);
	struct submit *s = calloc(1, sizeof *s);
	params_init(&s->params);
	s->params.n = 2;
	s->params.max_tokens = 9;
	s->tokens = calloc(3, sizeof *s->tokens);
	s->n_tokens = 3;
	jobs_submit(j, &s, &(struct listener){.event = on_event, .id = 1}, 1000000);
	jobs_event(j, &(struct engine_event){.kind = ENGINE_ACCEPTED, .job = job}, 1000000);
	tokens(j, 0, 1030000); /* to first token: 30 ms */
	tokens(j, 1, 1030000);
	tokens(j, 0, 1080000); /* 50 ms */
	tokens(j, 0, 1280000); /* 200 ms */
	for (uint32_t i = 0; i < 2; i++)
		jobs_event(j,
			   &(struct engine_event){.kind = ENGINE_OUTPUT_DONE,
						  .job = job,
						  .index = i,
						  .finish = i ? FINISH_STOP : FINISH_LENGTH,
						  .stop_token = -1},
			   1280000);
	jobs_event(j,
		   &(struct engine_event){.kind = ENGINE_JOB_DONE,
					  .job = job,
					  .queued_us = 10000,
					  .first_token_us = 30000,
					  .total_us = 280000},
		   1280000);
	cr_expect(metrics_count(m, METRIC_PROMPT_TOKENS) == 3, "a prompt counts once, whatever n is");
	cr_expect(metrics_count(m, METRIC_GENERATION_TOKENS) == 4);
	cr_expect(metrics_count(m, METRIC_FINISHED_STOP) == 1);
	cr_expect(metrics_count(m, METRIC_FINISHED_LENGTH) == 1);
	static const struct {
		const char *name;
		double n, sum;
	} want[] = {{"time_to_first_token_seconds", 2, 0.06},
		    {"inter_token_latency_seconds", 2, 0.25},
		    {"request_time_per_output_token_seconds", 1, 0.125},
		    {"e2e_request_latency_seconds", 2, 0.31},
		    {"request_queue_time_seconds", 2, 0.02},
		    {"request_prefill_time_seconds", 2, 0.04},
		    {"request_decode_time_seconds", 2, 0.25},
		    {"request_prompt_tokens", 2, 6},
		    {"request_generation_tokens", 2, 4}};
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		char line[128];
		snprintf(line, sizeof line, "quern:%s_count{model_name=\"demo\"}", want[i].name);
		cr_expect(value_of(line, NULL) == want[i].n, "%s is %g", line, value_of(line, NULL));
		snprintf(line, sizeof line, "quern:%s_sum{model_name=\"demo\"}", want[i].name);
		double sum = value_of(line, NULL);
		cr_expect(sum > want[i].sum - 1e-9 && sum < want[i].sum + 1e-9, "%s is %g", line, sum);
	}
	jobs_free(j);
	tokenizer_free(tok);
}

/* --- exemplars --- */

static const struct trace_context slow = {.trace = {0x4b, 0xf9, 0x2f}, .set = true, .sampled = true};

static char *written(enum metrics_format format)
{
	struct buf b = {0};
	metrics_write(m, "demo", NULL, format, &b);
	return b.p;
}

Test(metrics, a_bucket_leads_to_the_trace_of_its_last_request)
{
	static const struct trace_context quick = {.trace = {7}, .set = true, .sampled = true},
					  unsampled = {.trace = {9}, .set = true};
	metrics_observe_traced(m, METRIC_TTFT, 900, &quick);
	metrics_observe_traced(m, METRIC_TTFT, 30000000, &quick);
	metrics_observe_traced(m, METRIC_TTFT, 25000000, &slow);
	metrics_observe_traced(m, METRIC_TTFT, 24000000, &unsampled);
	metrics_observe(m, METRIC_TTFT, 23000000);
	char *text = written(METRICS_OPENMETRICS);
	cr_expect(strstr(text, "time_to_first_token_seconds_bucket{model_name=\"demo\",le=\"40.0\"} 5 # "
			       "{trace_id=\"4bf92f00000000000000000000000000\"} 25 "));
	cr_expect(strstr(text, "le=\"0.001\"} 1 # {trace_id=\"07000000000000000000000000000000\"} "));
	cr_expect(strstr(text, "time_to_first_token_seconds_bucket{model_name=\"demo\",le=\"20.0\"} 1\n"),
		  "without one");
	free(text);
}

Test(metrics, older_readers_get_no_exemplars)
{
	metrics_observe_traced(m, METRIC_TTFT, 25000000, &slow);
	char *text = written(METRICS_TEXT);
	cr_expect_null(strstr(text, "trace_id"));
	cr_expect_null(strstr(text, "# EOF"));
	cr_expect(strstr(text, "# TYPE quern:generation_tokens_total counter\n"));
	free(text);
	cr_expect_eq(metrics_format(NULL), METRICS_TEXT);
	cr_expect_eq(metrics_format("text/plain;version=0.0.4, */*"), METRICS_TEXT);
}

Test(metrics, readers_choose_the_format)
{
	static const struct {
		const char *accept;
		enum metrics_format format;
	} readers[] = {
		{"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2", METRICS_OPENMETRICS},
		/* as sent by Prometheus 2 and 3 */
		{"application/openmetrics-text;version=1.0.0,application/"
		 "openmetrics-text;version=0.0.1;q=0.75,"
		 "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
		 METRICS_OPENMETRICS},
		{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/"
		 "openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
		 "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
		 METRICS_OPENMETRICS},
		{"application/openmetrics-text", METRICS_OPENMETRICS},
		{"application/openmetrics-text, text/plain", METRICS_OPENMETRICS},
		{"application/openmetrics-text;q=0, */*", METRICS_TEXT},
		{"application/openmetrics-text;q=0.2,text/plain;q=0.5", METRICS_TEXT},
		{"application/openmetrics-text;version=0.0.1, text/plain;q=0.1", METRICS_TEXT},
		{"text/html;note=\"application/openmetrics-text\"", METRICS_TEXT},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", METRICS_TEXT},
		{"application/*, text/*", METRICS_TEXT},
		{"image/png", METRICS_TEXT},
		{"*/*", METRICS_TEXT},
	};
	for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
		cr_expect_eq(metrics_format(readers[i].accept), readers[i].format, "%s", readers[i].accept);
}
