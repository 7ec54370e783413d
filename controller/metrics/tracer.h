/* tracer.h - sends spans to a collector: OTLP over HTTP, in JSON, through libcurl.
 * Owns: a bounded queue and the thread that empties it.  tracer_put() never waits: what the queue has no room
 * for is dropped and counted, so that a collector which hangs costs the service nothing but its spans.
 *
 *   front end, HTTP threads --tracer_put()--> [queue] --> tracer's thread --POST URL/v1/traces--> collector
 *
 * A batch is sent a second after its first span (OTEL_BSP_SCHEDULE_DELAY), or when it is large.  429, 502,
 * 503, 504 and connections that fail are tried again, up to 5 times, with pauses that double; other replies
 * give the batch up, as OTLP has it. */
#ifndef QUERN_CONTROLLER_METRICS_TRACER_H
#define QUERN_CONTROLLER_METRICS_TRACER_H

#include "base/buf.h"
#include "controller/message/trace_context.h"

#include <stdbool.h>
#include <stddef.h>

struct metrics;
struct tracer;

enum { TRACER_SPANS_MAX = 8192, TRACER_BYTES_MAX = 16 << 20 }; /* in the queue */

/* What the service says of itself and of the collector.  Zero-initialised is empty; tracer_config_fini(). */
struct tracer_config {
	char *url;      /* owned: of the collector's traces; NULL: no tracing */
	char **headers; /* owned, [n_headers], "name: value": secrets */
	size_t n_headers;
	struct buf resource; /* attributes of the service (span.h) */
	char *ca;            /* owned: file of certificates to trust; NULL: the system's */
	double rate;         /* of requests without a parent, 0 to 1 */
	int timeout_ms;      /* of a request to the collector */
	int batch_ms;        /* that the first span of a batch waits for more */
	char service[128];   /* its name */
};

/* From the options (endpoint, rate: NULL, -1: not given) and OpenTelemetry's variables, which `env` reads
 * (getenv, or a test's).  -EINVAL with the reason. */
int tracer_configure(const char *endpoint, double rate, const char *(*env)(const char *name),
		     struct tracer_config *out, char *why, size_t why_n);
void tracer_config_fini(struct tracer_config *c);
/* getenv, for tracer_configure(). */
const char *tracer_environment(const char *name);

/* Takes the config's members. */
int tracer_start(struct tracer_config *cfg, struct metrics *metrics, struct tracer **out, char *why,
		 size_t why_n);
/* Sends what is queued, for at most 2 s.  NULL is fine. */
void tracer_stop(struct tracer *t);

/* Begins a trace in *t for a request without a parent, sampled by the rate.  tracer NULL: no trace. */
void tracer_draw(struct tracer *tracer, struct trace_context *t);
/* Spans (span_put()) of one trace; takes their bytes.  Any thread. */
void tracer_put(struct tracer *t, struct buf *spans, size_t n_spans);

#endif
