/* tracer.h - sends spans to a collector: OTLP over HTTP, in JSON, through libcurl.
 * Owns: a bounded queue and the thread that empties it.  tracer_put() never waits: spans for which the queue
 * has no room are dropped and counted, so that a collector that hangs costs the service only its spans.
 *
 *   front end, HTTP threads --tracer_put()--> [queue] --> tracer's thread --POST URL/v1/traces--> collector
 *
 * A batch is sent a second after its first span (OTEL_BSP_SCHEDULE_DELAY), or earlier when it is large.
 * After 429, 502, 503, 504 or a failed connection the batch is sent again, up to 5 times, with pauses that
 * double; after any other error it is dropped, as OTLP specifies. */
#ifndef QUERN_CONTROLLER_METRICS_TRACER_H
#define QUERN_CONTROLLER_METRICS_TRACER_H

#include "base/buf.h"
#include "base/err.h"
#include "controller/message/trace_context.h"

#include <stdbool.h>
#include <stddef.h>

struct metrics;
struct tracer;

enum { TRACER_SPANS_MAX = 8192, TRACER_BYTES_MAX = 16 << 20 }; /* limits of the queue */

/* Settings of the service and the collector.  Zero-initialised is empty; release with
 * tracer_config_fini(). */
struct tracer_config {
	char *url;      /* owned: the collector's URL for traces; NULL: no tracing */
	char **headers; /* owned, [n_headers], "name: value"; secret */
	size_t n_headers;
	struct buf resource; /* attributes of the service (span.h) */
	char *ca;            /* owned: file of certificates to trust; NULL: the system's */
	double rate;         /* fraction of requests without a parent that are sampled, 0 to 1 */
	int timeout_ms;      /* of a request to the collector */
	int batch_ms;        /* how long the first span of a batch waits for more spans */
	char service[128];   /* name of the service */
};

/* Fill the config from the options (endpoint NULL, rate -1: not given) and OpenTelemetry's environment
 * variables, read by `env` (getenv, or a test's function).  -EINVAL with the reason. */
int tracer_configure(const char *endpoint, double rate, const char *(*env)(const char *name),
		     struct tracer_config *out, struct why *why);
void tracer_config_fini(struct tracer_config *c);
/* Return the value of an environment variable, for tracer_configure(). */
const char *tracer_environment(const char *name);

/* Start the tracer; takes the config's members. */
int tracer_start(struct tracer_config *cfg, struct metrics *metrics, struct tracer **out, struct why *why);
/* Send the queued spans, for at most 2 s, and stop.  NULL is fine. */
void tracer_stop(struct tracer *t);

/* Begin a trace in *t for a request without a parent, sampled by the rate.  tracer NULL: no trace. */
void tracer_draw(struct tracer *tracer, struct trace_context *t);
/* Queue the spans (span_put()) of one trace; takes their bytes.  Any thread. */
void tracer_put(struct tracer *t, struct buf *spans, size_t n_spans);

#endif
