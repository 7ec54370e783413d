/* The tracer's settings, and its queue when the collector accepts nothing. */
#include "controller/metrics/metrics.h"
#include "controller/metrics/span.h"
#include "controller/metrics/tracer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *names[8], *values[8];
static size_t n_vars;

static const char *env(const char *name)
{
	for (size_t i = 0; i < n_vars; i++)
		if (strcmp(names[i], name) == 0)
			return values[i];
	return NULL;
}

static void set(const char *name, const char *value)
{
	names[n_vars] = name;
	values[n_vars++] = value;
}

static struct tracer_config config;
static struct why why;

static int configure(const char *endpoint, double rate)
{
	return tracer_configure(endpoint, rate, env, &config, &why);
}

static void fini(void)
{
	tracer_config_fini(&config);
}

TestSuite(tracer, .fini = fini, .timeout = 60);

Test(tracer, without_an_endpoint_there_is_none)
{
	cr_assert_eq(configure(NULL, -1), 0);
	cr_expect_null(config.url);
}

Test(tracer, an_endpoint_is_a_base)
{
	static const char *const ends[][2] = {{"http://a:4318", "http://a:4318/v1/traces"},
					      {"http://a:4318/", "http://a:4318/v1/traces"},
					      {"https://a/b", "https://a/b/v1/traces"},
					      {"http://a/v1/traces", "http://a/v1/traces"}};
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		cr_assert_eq(configure(ends[i][0], -1), 0);
		cr_expect_str_eq(config.url, ends[i][1]);
		cr_expect_eq(config.rate, 1);
		fini();
	}
	cr_expect_eq(configure("a:4318", -1), -EINVAL);
	cr_expect_not_null(strstr(why.text, "--otlp-endpoint"));
}

Test(tracer, variables_of_opentelemetry_are_read)
{
	set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:1");
	set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://whole:1/x");
	set("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc , x-tenant = a%3Db");
	set("OTEL_SERVICE_NAME", "stories");
	set("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=test");
	set("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
	set("OTEL_TRACES_SAMPLER_ARG", "0.25");
	set("OTEL_BSP_SCHEDULE_DELAY", "50");
	cr_assert_eq(configure(NULL, -1), 0);
	cr_expect_str_eq(config.url, "http://whole:1/x");
	cr_assert_eq(config.n_headers, 2);
	cr_expect_str_eq(config.headers[0], "authorization: Bearer abc");
	cr_expect_str_eq(config.headers[1], "x-tenant: a=b");
	cr_expect_str_eq(config.service, "stories");
	cr_expect_eq(config.rate, 0.25);
	cr_expect_eq(config.timeout_ms, 10000);
	cr_expect_eq(config.batch_ms, 50);
	buf_putc(&config.resource, '\0');
	cr_expect_not_null(
		strstr(config.resource.p, "\"service.name\",\"value\":{\"stringValue\":\"stories\"}"));
	cr_expect_null(strstr(config.resource.p, "other"));
	cr_expect_not_null(strstr(config.resource.p, "deployment.environment.name"));
	fini();
	/* Options override environment variables. */
	cr_assert_eq(configure("http://option:1", 0.5), 0);
	cr_expect_str_eq(config.url, "http://option:1/v1/traces");
	cr_expect_eq(config.rate, 0.5);
}

Test(tracer, malformed_variables_are_refused_and_secrets_not_shown)
{
	static const char *const bad[] = {"secret", "=secret", "a b=secret", "a=sec%0aret", "a:b=secret"};
	set("OTEL_EXPORTER_OTLP_HEADERS", "");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		values[0] = bad[i];
		cr_expect_eq(configure("http://a:1", -1), -EINVAL, "%s", bad[i]);
		cr_expect_null(strstr(why.text, "sec"));
	}
	n_vars = 0;
	set("OTEL_TRACES_SAMPLER", "traceidratio");
	set("OTEL_TRACES_SAMPLER_ARG", "2");
	cr_expect_eq(configure("http://a:1", -1), -EINVAL);
	set("OTEL_EXPORTER_OTLP_TIMEOUT", "soon");
	values[0] = "always_on";
	cr_expect_eq(configure("http://a:1", -1), -EINVAL);
	cr_expect_eq(configure(NULL, 2), -EINVAL);
}

Test(tracer, disabled_sdks_send_nothing)
{
	set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:1");
	set("OTEL_SDK_DISABLED", "true");
	cr_assert_eq(configure(NULL, -1), 0);
	cr_expect_null(config.url);
}

/* No collector listens: the queue fills, and spans without space are counted. */
Test(tracer, the_queue_is_bounded)
{
	struct metrics *m = metrics_new(1024);
	struct tracer *t;
	cr_assert_eq(configure("http://127.0.0.1:1", 0.5), 0);
	cr_assert_eq(tracer_start(&config, m, &t, &why), 0);
	for (int i = 0; i < 3 * TRACER_SPANS_MAX; i++) {
		struct buf spans = {0};
		buf_puts(&spans, "{}");
		tracer_put(t, &spans, 1);
	}
	cr_expect_geq(metrics_count(m, METRIC_SPANS_DROPPED), TRACER_SPANS_MAX);
	struct buf large = {0};
	buf_puts(&large, "{}");
	buf_reserve(&large, TRACER_BYTES_MAX + 1);
	memset(large.p + 2, ' ', TRACER_BYTES_MAX);
	large.len = TRACER_BYTES_MAX + 1;
	const uint64_t before = metrics_count(m, METRIC_SPANS_DROPPED);
	tracer_put(t, &large, 1);
	cr_expect_eq(metrics_count(m, METRIC_SPANS_DROPPED), before + 1);
	int n_sampled = 0;
	for (int i = 0; i < 2000; i++) {
		struct trace_context x;
		tracer_draw(t, &x);
		n_sampled += x.sampled;
	}
	cr_expect(n_sampled > 800 && n_sampled < 1200, "%d", n_sampled);
	tracer_stop(t);
	/* Every span is accounted for: none sent, the others dropped or failed. */
	cr_expect_eq(metrics_count(m, METRIC_SPANS_SENT), 0);
	cr_expect_eq(metrics_count(m, METRIC_SPANS_DROPPED) + metrics_count(m, METRIC_SPANS_FAILED),
		     3 * TRACER_SPANS_MAX + 1);
	metrics_free(m);
}
