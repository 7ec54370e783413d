#include "controller/metrics/metrics.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "proto/counts.h"
#include "controller/message/trace_context.h"
#include "controller/metrics/accept.h"
#include "controller/metrics/exemplar.h"
#include "controller/metrics/loghist.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

enum { BOUNDS_MAX = 32 };

#define MS(x) ((uint64_t)((x)*1000.0 + 0.5)) /* milliseconds to microseconds */
#define S(x)  ((uint64_t)((x)*1e6 + 0.5))

/* Upper bounds of the buckets, ascending, as in vLLM; 0 ends a list. */
static const uint64_t ttft_bounds[] = {MS(1),   MS(5),   MS(10),  MS(20), MS(40), MS(60),  MS(80), MS(100),
				       MS(250), MS(500), MS(750), S(1),   S(2.5), S(5),    S(7.5), S(10),
				       S(20),   S(40),   S(80),   S(160), S(640), S(2560), 0};
static const uint64_t token_bounds[] = {MS(10),  MS(25),  MS(50),  MS(75),  MS(100), MS(150), MS(200),
					MS(300), MS(400), MS(500), MS(750), S(1),    S(2.5),  S(5),
					S(7.5),  S(10),   S(20),   S(40),   S(80),   0};
static const uint64_t request_bounds[] = {MS(300), MS(500), MS(800), S(1),    S(1.5),  S(2),  S(2.5), S(5),
					  S(10),   S(15),   S(20),   S(30),   S(40),   S(50), S(60),  S(120),
					  S(240),  S(480),  S(960),  S(1920), S(7680), 0};
static const uint64_t n_bounds[] = {1, 2, 5, 10, 20, 0};
static const uint64_t iteration_bounds[] = {1,   8,    16,   32,   64,   128,   256,
					    512, 1024, 2048, 4096, 8192, 16384, 0};

struct family {
	const char *name, *help;
	bool seconds;
	const uint64_t *bounds; /* NULL: 1, 2, 5, 10, ... up to max_context */
};

static const struct family families[METRIC_HISTOGRAMS] = {
	[METRIC_TTFT] = {"time_to_first_token_seconds", "Time from a request to its first token.", true,
			 ttft_bounds},
	[METRIC_ITL] = {"inter_token_latency_seconds", "Time between two tokens of a request.", true,
			token_bounds},
	[METRIC_TPOT] = {"request_time_per_output_token_seconds",
			 "Mean time per token of a request after the first.", true, token_bounds},
	[METRIC_E2E] = {"e2e_request_latency_seconds", "Time from a request to its end.", true,
			request_bounds},
	[METRIC_QUEUE] = {"request_queue_time_seconds", "Time that a request waited before it first ran.",
			  true, request_bounds},
	[METRIC_PREFILL] = {"request_prefill_time_seconds",
			    "Time from a request's first run to its first token.", true, request_bounds},
	[METRIC_DECODE] = {"request_decode_time_seconds", "Time from a request's first token to its last.",
			   true, request_bounds},
	[METRIC_INFERENCE] = {"request_inference_time_seconds",
			      "Time from a request's first run to its last token.", true, request_bounds},
	[METRIC_ITERATION_TOKENS] = {"iteration_tokens_total", "Tokens computed in a step of the engine.",
				     false, iteration_bounds},
	[METRIC_REQUEST_PROMPT_TOKENS] = {"request_prompt_tokens", "Tokens of a request's prompt.", false,
					  NULL},
	[METRIC_REQUEST_GENERATION_TOKENS] = {"request_generation_tokens", "Tokens generated for a request.",
					      false, NULL},
	[METRIC_REQUEST_MOST_TOKENS] = {"request_max_num_generation_tokens",
					"Tokens of the longest output of a request with n of them.", false,
					NULL},
	[METRIC_REQUEST_MAX_TOKENS] = {"request_params_max_tokens", "max_tokens of a request.", false, NULL},
	[METRIC_REQUEST_N] = {"request_params_n", "n of a request.", false, n_bounds},
	[METRIC_PREFILL_COMPUTED] = {"request_prefill_kv_computed_tokens",
				     "Tokens of a prompt that were not found in the prefix cache.", false,
				     NULL},
};

struct histogram {
	uint64_t bounds[BOUNDS_MAX];
	int n; /* number of bounds; bucket n is +Inf */
	struct exemplar exemplar[BOUNDS_MAX + 1];
	atomic_uint_fast64_t bucket[BOUNDS_MAX + 1];
	atomic_uint_fast64_t sum;
};

struct metrics {
	struct histogram h[METRIC_HISTOGRAMS];
	atomic_uint_fast64_t counter[METRIC_COUNTERS];
	struct loghist ttft, itl;
	int64_t started_unix;
};

/* Set bounds 1, 2, 5, 10, ... up to max. */
static void one_two_five(struct histogram *h, uint64_t max)
{
	static const uint64_t steps[] = {1, 2, 5};
	uint64_t ten = 1;
	for (int i = 0; h->n < BOUNDS_MAX && steps[i % 3] * ten <= max; i++) {
		h->bounds[h->n++] = steps[i % 3] * ten;
		if (i % 3 == 2)
			ten *= 10;
	}
}

struct metrics *metrics_new(uint32_t max_context)
{
	struct metrics *m = xcalloc(1, sizeof *m);
	m->started_unix = clock_unix();
	for (int i = 0; i < METRIC_HISTOGRAMS; i++) {
		struct histogram *h = &m->h[i];
		const uint64_t *bounds = families[i].bounds;
		if (!bounds)
			one_two_five(h, max_context);
		while (bounds && bounds[h->n]) {
			h->bounds[h->n] = bounds[h->n];
			h->n++;
		}
	}
	return m;
}

void metrics_free(struct metrics *m)
{
	free(m);
}

void metrics_add(struct metrics *m, enum metric_counter c, uint64_t n)
{
	if (m)
		atomic_fetch_add_explicit(&m->counter[c], n, memory_order_relaxed);
}

void metrics_observe(struct metrics *m, enum metric_histogram which, int64_t value)
{
	metrics_observe_traced(m, which, value, NULL);
}

void metrics_observe_traced(struct metrics *m, enum metric_histogram which, int64_t value,
			    const struct trace_context *of)
{
	if (!m)
		return;
	struct histogram *h = &m->h[which];
	uint64_t x = value > 0 ? (uint64_t)value : 0;
	if (which == METRIC_TTFT)
		loghist_add(&m->ttft, value);
	else if (which == METRIC_ITL)
		loghist_add(&m->itl, value);
	int i = 0;
	while (i < h->n && x > h->bounds[i])
		i++;
	atomic_fetch_add_explicit(&h->sum, x, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->bucket[i], 1, memory_order_relaxed);
	if (of && of->sampled) {
		struct exemplar_value v = {.value = x, .unix_us = (uint64_t)clock_unix_us()};
		memcpy(v.trace, of->trace, sizeof v.trace);
		exemplar_put(&h->exemplar[i], &v);
	}
}

const struct loghist *metrics_fine(const struct metrics *m, enum metric_histogram h)
{
	return !m ? NULL : h == METRIC_TTFT ? &m->ttft : h == METRIC_ITL ? &m->itl : NULL;
}

uint64_t metrics_count(const struct metrics *m, enum metric_counter c)
{
	return m ? atomic_load_explicit(&m->counter[c], memory_order_relaxed) : 0;
}

/* --- the text --- */

struct writer {
	struct buf *b;
	enum metrics_format format;
	struct buf labels; /* model_name="..." */
};

/* Write HELP and TYPE; name includes its prefix. */
static void put_head(struct writer *w, const char *name, const char *type, const char *help)
{
	static const char total[] = "_total";
	size_t n = strlen(name);
	/* OpenMetrics: a counter's samples have the suffix _total, its heading has not. */
	if (w->format == METRICS_OPENMETRICS && strcmp(type, "counter") == 0 && n > strlen(total) &&
	    strcmp(name + n - strlen(total), total) == 0)
		n -= strlen(total);
	buf_printf(w->b, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)n, name, help, (int)n, name, type);
}

static void put_help(struct writer *w, const char *name, const char *type, const char *help)
{
	char whole[128];
	snprintf(whole, sizeof whole, "quern:%s", name);
	put_head(w, whole, type, help);
}

/* more: further labels, ",a=\"b\"", or "". */
static void put_value(struct writer *w, const char *name, const char *more, double value)
{
	buf_printf(w->b, "quern:%s{%s%s} %.17g\n", name, w->labels.p, more, value);
}

static void put_one(struct writer *w, const char *name, const char *type, const char *help, double value)
{
	put_help(w, name, type, help);
	put_value(w, name, "", value);
}

/* Write a label; quotes, backslashes and newlines in its value are escaped. */
static void put_label(struct buf *b, const char *name, const char *value)
{
	buf_printf(b, "%s=\"", name);
	for (const char *p = value; *p; p++) {
		if (*p == '\\' || *p == '"')
			buf_putc(b, '\\');
		if (*p == '\n')
			buf_puts(b, "\\n");
		else
			buf_putc(b, *p);
	}
	buf_putc(b, '"');
}

/* Append the exemplar to a bucket's line: " # {trace_id="..."} VALUE SECONDS". */
static void put_exemplar_text(struct buf *b, const struct exemplar *e, double unit)
{
	struct trace_context of = {0};
	struct exemplar_value v;
	char hex[TRACE_ID_HEX];
	if (!exemplar_get(e, &v))
		return;
	memcpy(of.trace, v.trace, sizeof v.trace);
	trace_context_hex(&of, hex);
	buf_printf(b, " # {trace_id=\"%s\"} %.17g %.6f", hex, (double)v.value * unit,
		   (double)v.unix_us * 1e-6);
}

static void put_histogram(struct writer *w, const struct family *f, const struct histogram *h)
{
	double unit = f->seconds ? 1e-6 : 1;
	uint64_t n = 0;
	put_help(w, f->name, "histogram", f->help);
	for (int i = 0; i <= h->n; i++) {
		n += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
		buf_printf(w->b, "quern:%s_bucket{%s,le=\"", f->name, w->labels.p);
		if (i == h->n)
			buf_puts(w->b, "+Inf");
		else /* as Prometheus' clients write floats */
			buf_printf(w->b, "%.10g%s", (double)h->bounds[i] * unit,
				   f->seconds && h->bounds[i] % 1000000 ? "" : ".0");
		buf_printf(w->b, "\"} %" PRIu64, n);
		if (w->format == METRICS_OPENMETRICS)
			put_exemplar_text(w->b, &h->exemplar[i], unit);
		buf_putc(w->b, '\n');
	}
	buf_printf(w->b, "quern:%s_count{%s} %" PRIu64 "\n", f->name, w->labels.p, n);
	buf_printf(w->b, "quern:%s_sum{%s} %.17g\n", f->name, w->labels.p,
		   (double)atomic_load_explicit(&h->sum, memory_order_relaxed) * unit);
}

static void put_counters(struct writer *w, const struct metrics *m)
{
	static const struct {
		enum metric_counter c;
		const char *label;
	} finished[] = {{METRIC_FINISHED_STOP, ",finished_reason=\"stop\""},
			{METRIC_FINISHED_LENGTH, ",finished_reason=\"length\""},
			{METRIC_FINISHED_ABORT, ",finished_reason=\"abort\""},
			{METRIC_FINISHED_ERROR, ",finished_reason=\"error\""}},
	  http[] = {{METRIC_HTTP_2XX, ",status=\"2xx\""},
		    {METRIC_HTTP_4XX, ",status=\"4xx\""},
		    {METRIC_HTTP_429, ",status=\"429\""},
		    {METRIC_HTTP_5XX, ",status=\"5xx\""},
		    {METRIC_HTTP_CUT, ",status=\"cut\""}},
	  spans[] = {{METRIC_SPANS_SENT, ",outcome=\"sent\""},
		     {METRIC_SPANS_DROPPED, ",outcome=\"dropped\""},
		     {METRIC_SPANS_FAILED, ",outcome=\"failed\""}};
	put_one(w, "prompt_tokens_total", "counter", "Prompt tokens of requests that got their first token.",
		(double)metrics_count(m, METRIC_PROMPT_TOKENS));
	put_one(w, "generation_tokens_total", "counter", "Tokens generated.",
		(double)metrics_count(m, METRIC_GENERATION_TOKENS));
	put_help(w, "prompt_tokens_by_source_total", "counter",
		 "Prompt tokens of requests that ended: computed, or found in the prefix cache.");
	put_value(w, "prompt_tokens_by_source_total", ",source=\"local_compute\"",
		  (double)metrics_count(m, METRIC_PROMPT_COMPUTED));
	put_value(w, "prompt_tokens_by_source_total", ",source=\"local_cache_hit\"",
		  (double)metrics_count(m, METRIC_PROMPT_CACHED));
	put_one(w, "prompt_tokens_cached_total", "counter",
		"Prompt tokens of requests that ended, found in the prefix cache.",
		(double)metrics_count(m, METRIC_PROMPT_CACHED));
	put_help(w, "request_success_total", "counter", "Finished requests, by finish reason.");
	for (size_t i = 0; i < sizeof finished / sizeof *finished; i++)
		put_value(w, "request_success_total", finished[i].label,
			  (double)metrics_count(m, finished[i].c));
	put_help(w, "http_requests_total", "counter",
		 "HTTP requests answered, by status; 4xx without 429; cut: the client went away or did not "
		 "read.");
	for (size_t i = 0; i < sizeof http / sizeof *http; i++)
		put_value(w, "http_requests_total", http[i].label, (double)metrics_count(m, http[i].c));
	put_help(w, "trace_spans_total", "counter",
		 "Spans, by outcome; dropped: the queue was full; failed: the collector did not take them.");
	for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
		put_value(w, "trace_spans_total", spans[i].label, (double)metrics_count(m, spans[i].c));
}

static void put_engine(struct writer *w, const struct engine_status *s)
{
	const struct counts *c = &s->counts;
	uint32_t serving = 0;
	for (uint32_t i = 0; i < s->n_workers && i < ENGINE_WORKERS_MAX; i++)
		serving += strcmp(s->workers[i].state, "serving") == 0;
	for (const struct count_row *r = counts_rows; r < counts_rows + n_counts_rows; r++)
		if (r->metric)
			put_one(w, r->metric, r->flags & COUNT_TOTAL ? "counter" : "gauge", r->help,
				count_number(r, c));
	put_one(w, "kv_cache_usage_perc", "gauge", "Fraction of blocks held by requests.",
		c->n_blocks ? (double)c->n_held / c->n_blocks : 0);
	put_one(w, "workers_serving", "gauge", "Serving workers.", serving);
	put_one(w, "ready", "gauge", "1: a replica can serve.", s->ready);
}

/* Write the configuration of the cache as labels of a 1. */
static void put_cache_config(struct writer *w, const struct engine_status *s)
{
	char more[192];
	if (!s->counts.n_blocks)
		return;
	snprintf(
		more, sizeof more,
		",block_size=\"%u\",num_gpu_blocks=\"%u\",num_cpu_blocks=\"%u\",enable_prefix_caching=\"%s\"",
		s->block_size, s->counts.n_blocks, s->counts.n_host_blocks, s->no_cache ? "False" : "True");
	put_help(w, "cache_config_info", "gauge",
		 "Labels describe the KV cache: blocks on devices and on hosts.");
	put_value(w, "cache_config_info", more, 1);
}

/* Write the memory of each worker, labelled by its id. */
static void put_memory(struct writer *w, const struct engine_status *s)
{
	static const char *const kinds[] = {"weights", "scratch", "kv", "host", "host_weights", "grammars"};
	put_help(w, "worker_memory_bytes", "gauge",
		 "Memory of a worker: weights, scratch and KV pool on its device; swap pool, experts and "
		 "compiled "
		 "grammars on the host.");
	for (uint32_t i = 0; i < s->n_workers && i < ENGINE_WORKERS_MAX; i++) {
		const struct engine_worker *k = &s->workers[i];
		const uint64_t bytes[] = {k->weights_bytes, k->scratch_bytes,      k->kv_bytes,
					  k->host_bytes,    k->host_weights_bytes, k->grammar_bytes};
		for (size_t j = 0; j < sizeof kinds / sizeof *kinds && k->device_bytes; j++) {
			char more[64];
			snprintf(more, sizeof more, ",worker=\"%" PRIu64 "\",kind=\"%s\"", k->id, kinds[j]);
			put_value(w, "worker_memory_bytes", more, (double)bytes[j]);
		}
	}
}

/* Return the rows of all experts of the layer; *most: those of the busiest; most may be NULL. */
static uint64_t layer_rows(const struct engine_experts *x, uint32_t layer, uint64_t *most)
{
	const uint64_t *rows = x->rows + (size_t)layer * x->n_experts;
	uint64_t sum = 0, highest = 0;
	for (uint32_t e = 0; e < x->n_experts; e++) {
		sum += rows[e];
		highest = rows[e] > highest ? rows[e] : highest;
	}
	if (most)
		*most = highest;
	return sum;
}

/* Write, for each layer with experts, the rows of the busiest expert over the mean; if x->listed, also the
 * rows of each expert. */
static void put_experts(struct writer *w, const struct engine_experts *x)
{
	static const char all[] = "expert_layer_rows_total";
	char more[64];
	if (!x->rows)
		return;
	put_help(
		w, "expert_imbalance", "gauge",
		"Rows of a layer's busiest expert, divided by the mean of its experts; 1: all have as many.");
	for (uint32_t l = 0; l < x->n_layers; l++) {
		uint64_t most, sum = layer_rows(x, l, &most);
		snprintf(more, sizeof more, ",layer=\"%" PRIu32 "\"", l);
		if (sum)
			put_value(w, "expert_imbalance", more, (double)most * x->n_experts / (double)sum);
	}
	if (!x->listed)
		return;
	put_help(w, all, "counter", "Rows computed by an expert of a layer.");
	for (uint32_t i = 0; i < x->n_layers * x->n_experts; i++) {
		snprintf(more, sizeof more, ",layer=\"%" PRIu32 "\",expert=\"%" PRIu32 "\"", i / x->n_experts,
			 i % x->n_experts);
		if (layer_rows(x, i / x->n_experts, NULL))
			put_value(w, all, more, (double)x->rows[i]);
	}
}

/* Write the figures of the controller's process, under the names of Prometheus' own clients. */
static void put_process(struct writer *w, const struct metrics *m)
{
	struct rusage u;
	long long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	if (f && fscanf(f, "%*d %lld", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	getrusage(RUSAGE_SELF, &u);
	put_head(w, "process_cpu_seconds_total", "counter", "CPU time of the controller.");
	buf_printf(w->b, "process_cpu_seconds_total %.6f\n",
		   (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
			   (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6);
	put_head(w, "process_resident_memory_bytes", "gauge", "Memory of the controller.");
	buf_printf(w->b, "process_resident_memory_bytes %lld\n", pages * sysconf(_SC_PAGESIZE));
	put_head(w, "process_start_time_seconds", "gauge",
		 "Start time of the controller, seconds since 1970.");
	buf_printf(w->b, "process_start_time_seconds %" PRId64 "\n", m->started_unix);
}

enum metrics_format metrics_format(const char *accept)
{
	const struct accept open = accept_weigh(accept, "application/openmetrics-text", "1.0.0"),
			    text = accept_weigh(accept, "text/plain", "0.0.4");
	/* If both are equally acceptable, OpenMetrics only if it is named: an Accept with wildcards alone
	 * comes from an older reader or a browser. */
	return open.q > text.q || (open.q && open.q == text.q && open.by >= ACCEPT_TYPE && open.by >= text.by)
		       ? METRICS_OPENMETRICS
		       : METRICS_TEXT;
}

const char *metrics_content_type(enum metrics_format format)
{
	return format == METRICS_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
					     : "text/plain; version=0.0.4; charset=utf-8";
}

void metrics_write(const struct metrics *m, const char *model, const struct engine_status *s,
		   enum metrics_format format, struct buf *b)
{
	struct writer w = {.b = b, .format = format};
	put_label(&w.labels, "model_name", model);
	if (s) {
		put_engine(&w, s);
		put_cache_config(&w, s);
		put_memory(&w, s);
		put_experts(&w, &s->experts);
	}
	put_counters(&w, m);
	for (int i = 0; i < METRIC_HISTOGRAMS; i++)
		put_histogram(&w, &families[i], &m->h[i]);
	put_process(&w, m);
	if (format == METRICS_OPENMETRICS)
		buf_puts(b, "# EOF\n");
	buf_fini(&w.labels);
}
