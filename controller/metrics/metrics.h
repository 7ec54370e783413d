/* metrics.h - the counters and histograms of /metrics, under vLLM's names with the prefix "quern:".
 * Owns: their values.  Any thread adds: a few relaxed atomic additions, without lock or allocation, so that
 * the token path may do it.  A scrape reads concurrently: each value is consistent in itself, but the sum of
 * a histogram may be an observation ahead of its buckets.
 *
 * Each output of a job (n of them) counts as a request, as in vLLM. */
#ifndef QUERN_CONTROLLER_METRICS_METRICS_H
#define QUERN_CONTROLLER_METRICS_METRICS_H

#include "base/buf.h"
#include "controller/message/engine_msg.h"

#include <stdint.h>

struct metrics;
struct loghist;
struct trace_context;

enum metric_counter {
	METRIC_PROMPT_TOKENS,
	METRIC_GENERATION_TOKENS,
	METRIC_FINISHED_STOP, /* request_success_total{finished_reason} */
	METRIC_FINISHED_LENGTH,
	METRIC_FINISHED_ABORT,
	METRIC_FINISHED_ERROR,
	METRIC_HTTP_2XX, /* http_requests_total{status} */
	METRIC_HTTP_4XX,
	METRIC_HTTP_429,
	METRIC_HTTP_5XX,
	METRIC_HTTP_CUT,      /* the client disconnected or did not read */
	METRIC_PROMPT_CACHED, /* prompt_tokens_by_source_total{source}; counted when a job ends */
	METRIC_PROMPT_COMPUTED,
	METRIC_SPANS_SENT,    /* trace_spans_total{outcome} */
	METRIC_SPANS_DROPPED, /* the queue was full */
	METRIC_SPANS_FAILED,  /* the collector did not accept them */
	METRIC_COUNTERS
};

/* Times are in microseconds; the others are tokens. */
enum metric_histogram {
	METRIC_TTFT,
	METRIC_ITL,
	METRIC_TPOT,
	METRIC_E2E,
	METRIC_QUEUE,
	METRIC_PREFILL,
	METRIC_DECODE,
	METRIC_INFERENCE,
	METRIC_ITERATION_TOKENS,
	METRIC_REQUEST_PROMPT_TOKENS,
	METRIC_REQUEST_GENERATION_TOKENS,
	METRIC_REQUEST_MOST_TOKENS, /* tokens of the longest output of a job */
	METRIC_REQUEST_MAX_TOKENS,
	METRIC_REQUEST_N,
	METRIC_PREFILL_COMPUTED,
	METRIC_HISTOGRAMS
};

/* max_context: largest bucket of the histograms of tokens per request. */
struct metrics *metrics_new(uint32_t max_context);
void metrics_free(struct metrics *m); /* NULL is fine */

/* Add to a counter or a histogram; no effect if m is NULL.  TTFT and ITL also go into a loghist, for the live
 * stream's percentiles. */
void metrics_add(struct metrics *m, enum metric_counter c, uint64_t n);
void metrics_observe(struct metrics *m, enum metric_histogram h, int64_t value);
/* Like metrics_observe(), for a request that belongs to a trace.  If the trace is recorded, the observation
 * becomes the exemplar of its bucket, which links a slow bucket to a slow request. */
void metrics_observe_traced(struct metrics *m, enum metric_histogram h, int64_t value,
			    const struct trace_context *of);
/* Return the loghist of METRIC_TTFT or METRIC_ITL; NULL for other histograms, or if m is NULL. */
const struct loghist *metrics_fine(const struct metrics *m, enum metric_histogram h);
uint64_t metrics_count(const struct metrics *m, enum metric_counter c);

enum metrics_format {
	METRICS_TEXT,        /* Prometheus' text format 0.0.4, without exemplars */
	METRICS_OPENMETRICS, /* OpenMetrics 1.0: headings name counters without _total; ends with # EOF */
};

/* Return the format for a request's Accept header (accept.h; NULL: no header), OpenMetrics if both are
 * equally acceptable. */
enum metrics_format metrics_format(const char *accept);
/* Return the format's Content-Type. */
const char *metrics_content_type(enum metrics_format format);

/* Append all metrics to b; model is the label model_name.  s: gauges and counters of the engine; NULL: the
 * engine did not answer, and they are left out. */
void metrics_write(const struct metrics *m, const char *model, const struct engine_status *s,
		   enum metrics_format format, struct buf *b);

#endif
