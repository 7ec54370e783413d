/* tracer_config.c - the tracer's settings, from options and OpenTelemetry's environment variables. */
#include "base/alloc.h"
#include "base/err.h"
#include "base/version.h"
#include "controller/metrics/span.h"
#include "controller/metrics/tracer.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 10000, BATCH_MS = 1000, MS_MAX = 600000, HEADERS_MAX = 32 };

const char *tracer_environment(const char *name)
{
	return getenv(name);
}

/* Return the variable, or NULL if it is unset or empty. */
static const char *get(const char *(*env)(const char *), const char *name)
{
	const char *v = env(name);
	return v && *v ? v : NULL;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 : -1;
}

/* Return a copy of p[0..n) without surrounding blanks, %XX unescaped. */
static char *unescape(const char *p, size_t n)
{
	while (n && (*p == ' ' || *p == '\t'))
		p++, n--;
	while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
		n--;
	char *out = xmalloc(n + 1), *to = out;
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '%' && i + 2 < n && hex(p[i + 1]) >= 0 && hex(p[i + 2]) >= 0) {
			*to++ = (char)(hex(p[i + 1]) << 4 | hex(p[i + 2]));
			i += 2;
		} else {
			*to++ = p[i];
		}
	}
	*to = '\0';
	return out;
}

/* Call pair for each pair of "name=value,name=value".  -EINVAL: a pair is malformed. */
static int each_pair(const char *list, int (*pair)(void *user, const char *name, const char *value),
		     void *user)
{
	int rc = 0;
	while (!rc && *list) {
		const size_t n = strcspn(list, ",");
		const char *equals = memchr(list, '=', n);
		if (equals && equals > list) {
			char *name = unescape(list, (size_t)(equals - list));
			char *value = unescape(equals + 1, n - (size_t)(equals + 1 - list));
			rc = pair(user, name, value);
			free(name);
			free(value);
		} else if (n) {
			rc = -EINVAL;
		}
		list += n + (list[n] == ',');
	}
	return rc;
}

static bool is_plain(const char *p)
{
	for (; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 127)
			return false;
	return true;
}

static int add_header(void *user, const char *name, const char *value)
{
	struct tracer_config *c = user;
	static const char others[] = "()<>@,;:\\\"/[]?={} \t";
	if (!*name || name[strcspn(name, others)] || !is_plain(name) || !is_plain(value) ||
	    c->n_headers == HEADERS_MAX)
		return -EINVAL;
	c->headers = xrealloc(c->headers, c->n_headers + 1, sizeof *c->headers);
	c->headers[c->n_headers++] = xasprintf("%s: %s", name, value);
	return 0;
}

static int add_resource(void *user, const char *name, const char *value)
{
	struct tracer_config *c = user;
	if (strcmp(name, "service.name") == 0) {
		snprintf(c->service, sizeof c->service, "%s", value);
		return 0;
	}
	span_attribute_text(&c->resource, name, value);
	return 0;
}

static int set_url(struct tracer_config *c, const char *endpoint, bool whole, struct why *why)
{
	static const char path[] = "/v1/traces";
	if (strncmp(endpoint, "http://", 7) != 0 && strncmp(endpoint, "https://", 8) != 0)
		return err_why(why, -EINVAL,
			       "--otlp-endpoint \"%s\": must be an address as http://127.0.0.1:4318",
			       endpoint);
	const char *host = strstr(endpoint, "://") + 3;
	if (memchr(host, '@', strcspn(host, "/?#"))) /* refused because the address is logged */
		return err_why(why, -EINVAL,
			       "the collector's address holds credentials: they belong in "
			       "OTEL_EXPORTER_OTLP_HEADERS");
	size_t n = strlen(endpoint);
	while (!whole && n && endpoint[n - 1] == '/')
		n--;
	const bool has =
		n >= sizeof path - 1 && memcmp(endpoint + n - (sizeof path - 1), path, sizeof path - 1) == 0;
	c->url = xasprintf("%.*s%s", (int)n, endpoint, whole || has ? "" : path);
	return 0;
}

static int set_rate(struct tracer_config *c, double rate, const char *(*env)(const char *), struct why *why)
{
	const char *sampler = get(env, "OTEL_TRACES_SAMPLER"), *arg = get(env, "OTEL_TRACES_SAMPLER_ARG");
	c->rate = rate >= 0 ? rate : 1;
	if (rate >= 0 || !sampler)
		return 0;
	if (strstr(sampler, "always_off")) {
		c->rate = 0;
	} else if (strstr(sampler, "traceidratio")) {
		char *end;
		c->rate = arg ? strtod(arg, &end) : 1;
		if (arg && (*end || !(c->rate >= 0 && c->rate <= 1)))
			return err_why(why, -EINVAL,
				       "OTEL_TRACES_SAMPLER_ARG \"%s\": must be a number from 0 to 1", arg);
	}
	return 0;
}

static const char *choose(const char *(*env)(const char *), const char *first, const char *second)
{
	const char *v = get(env, first);
	return v ? v : get(env, second);
}

static int get_ms(const char *name, const char *v, int otherwise, int *out, struct why *why)
{
	char *end;
	const long ms = v ? strtol(v, &end, 10) : otherwise;
	if (v && (end == v || *end || ms < 1 || ms > MS_MAX))
		return err_why(why, -EINVAL, "%s \"%s\": must be 1 to %d milliseconds", name, v, MS_MAX);
	*out = (int)ms;
	return 0;
}

static int read_environment(struct tracer_config *c, const char *(*env)(const char *), struct why *why)
{
	char host[128] = "";
	const char *v = choose(env, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
	if (v && each_pair(v, add_header, c)) /* the value is secret, so the error does not show it */
		return err_why(why, -EINVAL,
			       "OTEL_EXPORTER_OTLP_HEADERS: must be a list as name=value,name=value");
	snprintf(c->service, sizeof c->service, "quern");
	v = get(env, "OTEL_RESOURCE_ATTRIBUTES");
	if (v && each_pair(v, add_resource, c))
		return err_why(why, -EINVAL,
			       "OTEL_RESOURCE_ATTRIBUTES \"%s\": must be a list as name=value,name=value", v);
	v = get(env, "OTEL_SERVICE_NAME");
	if (v)
		snprintf(c->service, sizeof c->service, "%s", v);
	span_attribute_text(&c->resource, "service.name", c->service);
	span_attribute_text(&c->resource, "service.version", QUERN_VERSION);
	if (gethostname(host, sizeof host - 1) == 0)
		span_attribute_text(&c->resource, "host.name", host);
	span_attribute_int(&c->resource, "process.pid", getpid());
	v = choose(env, "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE");
	c->ca = v ? xstrdup(v) : NULL;
	v = choose(env, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT");
	int rc = get_ms("OTEL_EXPORTER_OTLP_TIMEOUT", v, TIMEOUT_MS, &c->timeout_ms, why);
	return rc ? rc
		  : get_ms("OTEL_BSP_SCHEDULE_DELAY", get(env, "OTEL_BSP_SCHEDULE_DELAY"), BATCH_MS,
			   &c->batch_ms, why);
}

int tracer_configure(const char *endpoint, double rate, const char *(*env)(const char *),
		     struct tracer_config *out, struct why *why)
{
	*out = (struct tracer_config){0};
	if (rate > 1 || (rate < 0 && rate != -1))
		return err_why(why, -EINVAL, "--trace-sample %g: must be a number from 0 to 1", rate);
	const char *disabled = get(env, "OTEL_SDK_DISABLED"), *exporter = get(env, "OTEL_TRACES_EXPORTER");
	const char *whole = endpoint ? NULL : get(env, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
	const char *base = endpoint ? endpoint : get(env, "OTEL_EXPORTER_OTLP_ENDPOINT");
	if (!endpoint &&
	    ((disabled && strcasecmp(disabled, "true") == 0) || (exporter && strcmp(exporter, "none") == 0)))
		return 0;
	if (!whole && !base)
		return 0;
	int rc = set_url(out, whole ? whole : base, whole != NULL, why);
	if (!rc)
		rc = set_rate(out, rate, env, why);
	if (!rc)
		rc = read_environment(out, env, why);
	if (rc)
		tracer_config_fini(out);
	return rc;
}

void tracer_config_fini(struct tracer_config *c)
{
	free(c->url);
	for (size_t i = 0; i < c->n_headers; i++)
		free(c->headers[i]);
	free(c->headers);
	buf_fini(&c->resource);
	free(c->ca);
	*c = (struct tracer_config){0};
}
