#include "controller/http/http_impl.h"

#include "base/alloc.h"
#include "base/entropy.h"
#include "controller/message/service.h"
#include "controller/metrics/metrics.h"
#include "controller/metrics/tracer.h"
#include "controller/http/api_keys.h"
#include "controller/http/framing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	HTTP_TOO_LARGE = 413, /* libmicrohttpd has renamed its constant */
	/* The body of a refused request is read to its end, so that the client sees the reply, if it is at
	 * most this many times the limit. */
	PASS_OVER = 4,
	ACCEPT_MAX = 1024,
	PASS_OVER_STRANGER = 1 << 20, /* bytes, for clients without a valid key */
};

/* The authority of a target in absolute form; p NULL: another form. */
struct host_name {
	const char *p;
	size_t n;
};

static void refuse(struct exchange *x, unsigned status, const char *code, const char *why)
{
	exchange_error(x, status,
		       status == MHD_HTTP_TOO_MANY_REQUESTS ? "rate_limit_error"
		       : status >= 500                      ? "server_error"
							    : "invalid_request_error",
		       NULL, code, "%s", why);
	x->refused = true;
	exchange_body_free(x);
}

static void refuse_too_large(struct exchange *x)
{
	char why[128];
	snprintf(why, sizeof why, "the request is larger than %" PRIu64 " bytes", x->max_body);
	refuse(x, HTTP_TOO_LARGE, "request_too_large", why);
}

/* Accept only application/json: a page in a browser needs a preflight to send it. */
static bool is_json(const char *type)
{
	static const char want[] = "application/json";
	size_t n = sizeof want - 1;
	return type && !strncasecmp(type, want, n) && (!type[n] || type[n] == ';' || type[n] == ' ');
}

static bool method_fits(const struct http_route *r, const char *method)
{
	size_t n = strlen(method);
	for (const char *a = r->allow; (a = strstr(a, method)); a += n)
		if ((a == r->allow || a[-1] == ' ') && (!a[n] || a[n] == ','))
			return true;
	return false;
}

const char *http_rest(const struct http_route *r, const char *url)
{
	const char *p = r->path;
	for (; *p; p++, url++) {
		if (*url != *p)
			return NULL;
		while (*url == '/' && url[1] == '/')
			url++;
	}
	const char *end = url + strspn(url, "/");
	return r->flags & ROUTE_PREFIX ? url : *end ? NULL : end;
}

/* Return the route of url; NULL if there is none. */
static const struct http_route *find_route(const struct http_app *app, const char *url)
{
	for (size_t i = 0; i < app->n_routes; i++) {
		const struct http_route *r = &app->routes[i];
		if ((!app->only || r->flags & app->only) && http_rest(r, url))
			return r;
	}
	return NULL;
}

/* Check the key.  Without a key, not even the existence of a path is disclosed.  false: refused. */
static bool check_key(struct exchange *x, struct MHD_Connection *c)
{
	const char *given = http_header(c, MHD_HTTP_HEADER_AUTHORIZATION),
		   *plain = http_header(c, "x-api-key");
	char bearer[sizeof "Bearer " + APIKEY_BYTES_MAX + 1]; /* one byte longer than any key */
	if (!given && plain) {
		snprintf(bearer, sizeof bearer, "Bearer %s", plain);
		given = bearer;
	}
	if (!x->host->keys || (x->route && x->route->flags & ROUTE_OPEN))
		return true;
	x->key = api_keys_find(x->host->keys, given, x->started_us);
	if (x->key)
		return true;
	refuse(x, MHD_HTTP_UNAUTHORIZED, given ? "invalid_api_key" : "missing_api_key",
	       given ? "unknown API key"
		     : "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
	return false;
}

/* Refuse the request if a limit is reached, before its body is read. */
static void check_limits(struct exchange *x, bool queued)
{
	const struct service *svc = x->host->svc;
	struct why why;
	if (x->key && api_key_begin(x->key, 0, true, x->started_us, &x->retry_s, &why)) {
		refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_exceeded", why.text);
		return;
	}
	if (queued && service_full(svc, &why))
		refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, "overloaded", why.text);
}

/* Refuse pages of an origin; the reason names the option that allows them. */
static void refuse_origin(struct exchange *x, const char *origin)
{
	char why[320];
	snprintf(why, sizeof why,
		 "pages of %.100s may not send this to the service (header Origin); --cors-origin %.100s "
		 "allows "
		 "it",
		 origin, origin);
	refuse(x, MHD_HTTP_FORBIDDEN, "origin_not_allowed", why);
}

/* Return true for a preflight: a browser asks whether a page may send a request.  Such a request never has a
 * key. */
static bool is_preflight(struct MHD_Connection *c, const char *method)
{
	return !strcmp(method, MHD_HTTP_METHOD_OPTIONS) && http_header(c, MHD_HTTP_HEADER_ORIGIN) &&
	       http_header(c, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_METHOD);
}

static void answer_preflight(struct exchange *x, const char *origin)
{
	if (!x->origin[0]) {
		refuse_origin(x, origin);
		return;
	}
	struct buf nothing = {0};
	exchange_reply(x, MHD_HTTP_NO_CONTENT, &nothing);
	x->refused = true; /* do not read the body */
	x->preflight = true;
}

/* Check the origin of a writing request.  A form needs no preflight, so any page could write through any
 * browser that reaches the service.  A request without an origin does not come from a browser.  false:
 * refused. */
static bool check_origin(struct exchange *x, struct MHD_Connection *c, const struct host_name *host,
			 const char *method)
{
	static const char *const reading[] = {MHD_HTTP_METHOD_GET, MHD_HTTP_METHOD_HEAD,
					      MHD_HTTP_METHOD_OPTIONS};
	const char *origin = http_header(c, MHD_HTTP_HEADER_ORIGIN), *site = http_header(c, "Sec-Fetch-Site");
	for (size_t i = 0; i < sizeof reading / sizeof reading[0]; i++)
		if (!strcmp(method, reading[i]))
			return true;
	char named[512];
	if (host->p)
		snprintf(named, sizeof named, "%.*s", host->n < sizeof named ? (int)host->n : 0, host->p);
	/* Behind a proxy Host may differ; no page can set Sec-Fetch-Site. */
	if (!origin || x->origin[0] ||
	    cors_is_own(origin, host->p ? named : http_header(c, MHD_HTTP_HEADER_HOST)) ||
	    (site && !strcmp(site, "same-origin")))
		return true;
	refuse_origin(x, origin);
	return false;
}

/* Refuse the request if its headers give a reason.  *length: the body's length by its header. */
static void check(struct exchange *x, struct MHD_Connection *c, const char *url, const struct host_name *host,
		  const char *method, const char *fault, uint64_t *length)
{
	const char *coding = http_header(c, MHD_HTTP_HEADER_CONTENT_ENCODING);
	const struct http_route *r = x->route;
	bool post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
	const char *len = http_header(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
	*length = len ? strtoull(len, NULL, 10) : 0;
	if (fault) {
		*length = UINT64_MAX; /* the end of the body is unknown */
		x->closing = true;
		refuse(x, MHD_HTTP_BAD_REQUEST, "malformed_request", fault);
	} else if (is_preflight(c, method)) {
		answer_preflight(x, http_header(c, MHD_HTTP_HEADER_ORIGIN));
	} else if (!check_key(x, c) || !check_origin(x, c, host, method)) {
		return;
	} else if (!r) {
		char why[256];
		snprintf(why, sizeof why, "no such path: %.200s", url);
		refuse(x, MHD_HTTP_NOT_FOUND, "not_found", why);
	} else if (!method_fits(r, method)) {
		char why[256];
		snprintf(why, sizeof why, "%s takes %s, not %.32s", r->path, r->allow, method);
		refuse(x, MHD_HTTP_METHOD_NOT_ALLOWED, "method_not_allowed", why);
		x->allow = r->allow;
	} else if (!r->call) {
		char why[256];
		snprintf(why, sizeof why, "%s is not built yet", r->path);
		refuse(x, MHD_HTTP_NOT_IMPLEMENTED, "not_implemented", why);
	} else if (post && r->flags & ROUTE_COUNTED && atomic_load(&x->host->draining)) {
		refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "service_stopping", SERVICE_ENDING);
	} else if ((r->flags & ROUTE_JSON || (r->flags & ROUTE_JSON_POST && post)) &&
		   !is_json(http_header(c, MHD_HTTP_HEADER_CONTENT_TYPE))) {
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type",
		       "Content-Type must be application/json");
	} else if (coding && strcasecmp(coding, "identity") != 0) {
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type",
		       "Content-Encoding is not supported");
	} else if (r->upload && post && r->upload(x)) {
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type",
		       "Content-Type must be multipart/form-data");
	} else if (*length > x->max_body) {
		refuse_too_large(x);
	} else if (r->flags & ROUTE_COUNTED) {
		check_limits(x, r->flags & ROUTE_QUEUED);
	}
}

/* Return how many bytes a refused body may have and still be read to its end. */
static uint64_t pass_over(const struct exchange *x)
{
	bool stranger = x->host->keys && !x->key;
	return stranger ? PASS_OVER_STRANGER : PASS_OVER * x->max_body;
}

bool http_take_body(struct exchange *x, const char *p, size_t n)
{
	x->body_seen += n;
	if (!x->refused && x->body_seen > x->max_body)
		refuse_too_large(x);
	if (!x->refused && x->work && x->work->body)
		x->work->body(x, p, n);
	else if (!x->refused && !exchange_body(x, p, n))
		refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, "overloaded",
		       "too many large requests at once: try again");
	return x->body_seen <= pass_over(x);
}

/* Join the lines of a header into one list; a line that does not fit is left out. */
static enum MHD_Result join_accept(void *joined, enum MHD_ValueKind kind, const char *name, const char *value)
{
	char *to = joined;
	const size_t n = strlen(to);
	(void)kind;
	if (value && strcasecmp(name, MHD_HTTP_HEADER_ACCEPT) == 0 && n + strlen(value) + 2 < ACCEPT_MAX)
		snprintf(to + n, ACCEPT_MAX - n, "%s%s", n ? ", " : "", value);
	return MHD_YES;
}

static char *copy_header(struct MHD_Connection *c, const char *name)
{
	const char *v = http_header(c, name);
	return v ? xstrdup(v) : NULL;
}

/* Store the client, the access log's fields, and headers that a call may need after the connection is
 * gone. */
static void note_request(const struct http *h, struct exchange *x, struct MHD_Connection *c, const char *url,
			 const char *method)
{
	const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const char *id = http_header(c, "X-Request-Id");
	const struct sockaddr *a = i ? i->client_addr : NULL;
	if (a && a->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, x->remote, sizeof x->remote);
	else if (a && a->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr, x->remote,
			  sizeof x->remote);
	else if (a && a->sa_family == AF_UNIX)
		snprintf(x->remote, sizeof x->remote, "unix");
	char accept[ACCEPT_MAX] = "";
	snprintf(x->method, sizeof x->method, "%s", method);
	snprintf(x->path, sizeof x->path, "%s", url);
	MHD_get_connection_values(c, MHD_HEADER_KIND, join_accept, accept);
	x->openmetrics = metrics_format(accept[0] ? accept : NULL) == METRICS_OPENMETRICS;
	x->idempotency_key = copy_header(c, "Idempotency-Key");
	x->last_event_id = copy_header(c, "Last-Event-ID");
	const char *origin = http_header(c, MHD_HTTP_HEADER_ORIGIN);
	if (origin && strlen(origin) < sizeof x->origin && cors_allows(h->cors, origin))
		snprintf(x->origin, sizeof x->origin, "%s", origin);
	static const char plain[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:";
	if (id && strlen(id) < sizeof x->request_id && strspn(id, plain) == strlen(id))
		snprintf(x->request_id, sizeof x->request_id, "%s", id);
}

/* Store the client's trace; a request that becomes jobs gets a new one if it has none. */
static void note_trace(struct exchange *x, struct MHD_Connection *c)
{
	if (!trace_context_read(&x->trace, http_header(c, "traceparent"), http_header(c, "tracestate")) &&
	    x->route && x->route->flags & ROUTE_QUEUED)
		tracer_draw(x->host->svc->tracer, &x->trace);
	if (x->trace.set)
		trace_context_span(x->span);
}

bool http_check_headers(const struct http *h, struct exchange *x, struct MHD_Connection *c, const char *url,
			const char *method, const char *fault)
{
	uint64_t length;
	struct host_name host = {0};
	url = framing_path(url, &host.p, &host.n);
	note_request(h, x, c, url, method);
	pthread_mutex_lock(&x->lock); /* exchange_n_draining() reads it */
	x->route = find_route(&h->app, url);
	pthread_mutex_unlock(&x->lock);
	note_trace(x, c);
	x->errors = x->route ? x->route->errors : NULL;
	if (!x->errors && h->app.errors_for)
		x->errors = h->app.errors_for(x);
	if (x->route && x->route->flags & ROUTE_REQUEST_ID)
		snprintf(x->drawn_id, sizeof x->drawn_id, "req_%016" PRIx64 "%016" PRIx64, entropy_u64(),
			 entropy_u64());
	check(x, c, url, &host, method, fault, &length);
	return x->refused && (length > pass_over(x) || http_header(c, MHD_HTTP_HEADER_EXPECT));
}
