#include "controller/http.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "controller/accesslog.h"
#include "controller/apikeys.h"
#include "controller/batch.h"
#include "controller/conns.h"
#include "controller/cors.h"
#include "controller/exchange.h"
#include "controller/http_common.h"
#include "controller/http_files.h"
#include "controller/http_listen.h"
#include "controller/http_routes.h"
#include "controller/peers.h"
#include "controller/prep.h"
#include "controller/tlscheck.h"
#include "controller/viewers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	HTTP_TOO_LARGE = 413, /* libmicrohttpd has changed its name for it */
	N_THREADS = 2,        /* of libmicrohttpd */
	N_PREP_THREADS = 2,
	PREP_BYTES = 16 << 10, /* larger requests are prepared elsewhere */
	MAX_CONNECTIONS = 16384,
	TIMEOUT_S = 120,
	MAX_UNREAD = 4 << 20,
	MAX_UNREAD_ALL = 512 << 20,
	CONNECTION_BYTES = 32 << 10, /* of libmicrohttpd for each: bounds the headers */
	CHUNK_BYTES = 16 << 10,      /* asked of a stream at once */
	/* A body that is refused is read to its end, so that the client gets to see the reply, but only
	 * when it is at most this many times the limit. */
	PASS_OVER = 4,
	PASS_OVER_STRANGER = 1 << 20, /* bytes, of one without a key */
	TLS_FILE_MAX = 1 << 20,
	MAX_FILE = 200 << 20, /* of an upload, as OpenAI has it */
	BODIES = 16, /* largest bodies that are held at once */
};

struct http {
	struct exchange_host host;
	struct MHD_Daemon *daemon;
	struct peers *peers;
	struct prep *prep;
	struct cors *cors;       /* NULL: no page of another origin */
	char *tls_cert, *tls_key; /* PEM; NULL: no TLS */
	char address[HTTP_ADDRESS_SIZE];
};

/* Requests. */

static const char *header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

struct header_count {
	unsigned lengths, encodings;
};

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
	struct header_count *n = cls;
	(void)kind;
	(void)value;
	n->lengths += !strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH);
	n->encodings += !strcasecmp(key, MHD_HTTP_HEADER_TRANSFER_ENCODING);
	return MHD_YES;
}

static void refuse(struct exchange *x, unsigned status, const char *code, const char *why)
{
	exchange_error(x, status,
		       status == MHD_HTTP_TOO_MANY_REQUESTS ? "rate_limit_error" : "invalid_request_error",
		       NULL, code, "%s", why);
	x->refused = true;
	exchange_body_free(x);
}

/* Of the request's body. */
static uint64_t most_bytes(const struct exchange *x)
{
	return x->upload ? x->host->max_file_bytes + UPLOAD_FORM_BYTES : x->host->svc->max_request_bytes;
}

static void refuse_too_large(struct exchange *x)
{
	char why[128];
	snprintf(why, sizeof why, "the request is larger than %" PRIu64 " bytes", most_bytes(x));
	refuse(x, HTTP_TOO_LARGE, "request_too_large", why);
}

/* Only application/json: a page in a browser cannot send it here without asking first. */
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

/* Nothing is told to one without a key, not even which paths there are.  false: refused. */
static bool check_key(struct exchange *x, struct MHD_Connection *c, const struct http_route *r)
{
	const char *said = header(c, MHD_HTTP_HEADER_AUTHORIZATION);
	if (!x->host->keys || (r && r->marks & ROUTE_OPEN))
		return true;
	x->key = apikeys_find(x->host->keys, said, x->started_us);
	if (x->key)
		return true;
	refuse(x, MHD_HTTP_UNAUTHORIZED, said ? "invalid_api_key" : "missing_api_key",
	       said ? "the API key is not known here"
		    : "an API key is needed: Authorization: Bearer KEY");
	return false;
}

/* What can be refused before the body is looked at. */
static void check_limits(struct exchange *x, bool queued)
{
	const struct service *svc = x->host->svc;
	char why[160];
	if (x->key && apikey_begin(x->key, 0, true, x->started_us, &x->retry_s, why, sizeof why)) {
		refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_exceeded", why);
		return;
	}
	if (queued && service_full(svc, why, sizeof why))
		refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, "overloaded", why);
}

/* A browser asks whether a page may send what it wants to. */
static bool is_preflight(const struct exchange *x, struct MHD_Connection *c, const char *method)
{
	return x->origin[0] && !strcmp(method, MHD_HTTP_METHOD_OPTIONS) &&
	       header(c, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_METHOD);
}

static void answer_preflight(struct exchange *x)
{
	struct buf nothing = {0};
	exchange_reply(x, MHD_HTTP_NO_CONTENT, &nothing);
	x->refused = true; /* no body is looked at */
	x->preflight = true;
}

/* A form needs no preflight: any page could write here with the browser of whoever reaches the service.
 * What names no origin is no browser.  false: refused. */
static bool check_origin(struct exchange *x, struct MHD_Connection *c, const char *method)
{
	static const char *const reading[] = {MHD_HTTP_METHOD_GET, MHD_HTTP_METHOD_HEAD,
					      MHD_HTTP_METHOD_OPTIONS};
	const char *origin = header(c, MHD_HTTP_HEADER_ORIGIN), *site = header(c, "Sec-Fetch-Site");
	for (size_t i = 0; i < sizeof reading / sizeof reading[0]; i++)
		if (!strcmp(method, reading[i]))
			return true;
	/* Behind a proxy Host may be another one; no page can set the other header. */
	if (!origin || x->origin[0] || cors_is_own(origin, header(c, MHD_HTTP_HEADER_HOST)) ||
	    (site && !strcmp(site, "same-origin")))
		return true;
	char why[320];
	snprintf(why, sizeof why,
		 "pages of %.100s may not write to this service (header Origin); --cors-origin %.100s allows it",
		 origin, origin);
	refuse(x, MHD_HTTP_FORBIDDEN, "origin_not_allowed", why);
	return false;
}

/* All that the headers can be refused for; the length of the body as they say it. */
static void check_headers(struct exchange *x, struct MHD_Connection *c, const char *url, const char *method,
			  uint64_t *length)
{
	const char *rest, *coding = header(c, MHD_HTTP_HEADER_CONTENT_ENCODING);
	const struct http_route *r = http_route_find(url, &rest);
	struct header_count n = {0};
	bool post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
	MHD_get_connection_values(c, MHD_HEADER_KIND, count_header, &n);
	const char *len = header(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
	*length = len ? strtoull(len, NULL, 10) : 0;
	if (n.lengths + n.encodings > 1) {
		/* Someone before us may have read it otherwise: request smuggling. */
		*length = UINT64_MAX;
		refuse(x, MHD_HTTP_BAD_REQUEST, NULL, "more than one Content-Length or Transfer-Encoding");
	} else if (is_preflight(x, c, method)) {
		answer_preflight(x);
	} else if (!check_key(x, c, r) || !check_origin(x, c, method)) {
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
	} else if ((r->marks & ROUTE_JSON || (r->marks & ROUTE_JSON_POST && post)) &&
		   !is_json(header(c, MHD_HTTP_HEADER_CONTENT_TYPE))) {
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type",
		       "Content-Type must be application/json");
	} else if (coding && strcasecmp(coding, "identity") != 0) {
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type",
		       "Content-Encoding is not supported");
	} else if (r->marks & ROUTE_UPLOAD && post && x->host->files && !(x->upload = upload_new(x, c))) {
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type",
		       "Content-Type must be multipart/form-data");
	} else if (*length > most_bytes(x)) {
		refuse_too_large(x);
	} else if (r->marks & ROUTE_COUNTED) {
		check_limits(x, r->marks & ROUTE_QUEUED);
	}
}

/* Bytes of a body that is refused, but read to its end. */
static uint64_t pass_over(const struct exchange *x)
{
	bool stranger = x->host->keys && !x->key;
	return stranger ? PASS_OVER_STRANGER : PASS_OVER * most_bytes(x);
}

static bool take_body(struct exchange *x, const char *p, size_t n)
{
	x->body_seen += n;
	if (!x->refused && x->body_seen > most_bytes(x))
		refuse_too_large(x);
	if (!x->refused && x->upload)
		upload_put(x->upload, p, n);
	else if (!x->refused && !exchange_body(x, p, n))
		refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, "overloaded",
		       "too many large requests at once: try again");
	return x->body_seen <= pass_over(x);
}

/* Replies. */

static void add_header(struct MHD_Response *r, const char *name, const char *value)
{
	if (MHD_add_response_header(r, name, value) != MHD_YES)
		log_warn("http", "header %s left out", name);
}

static void add_number(struct MHD_Response *r, const char *name, int64_t x)
{
	char text[24];
	snprintf(text, sizeof text, "%" PRId64, x);
	add_header(r, name, text);
}

/* What is left of the key's limits, in OpenAI's headers. */
static void add_limits(struct MHD_Response *r, const struct exchange *x)
{
	struct apikey_left left;
	apikey_left(x->key, clock_us(), &left);
	if (left.requests >= 0) {
		add_number(r, "x-ratelimit-limit-requests", left.max_requests);
		add_number(r, "x-ratelimit-remaining-requests", left.requests);
	}
	if (left.tokens >= 0) {
		add_number(r, "x-ratelimit-limit-tokens", left.max_tokens);
		add_number(r, "x-ratelimit-remaining-tokens", left.tokens);
	}
}

/* For pages of the origins that --cors-origin names. */
static void add_cors(struct MHD_Response *r, const struct exchange *x)
{
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, x->origin);
	add_header(r, MHD_HTTP_HEADER_VARY, "Origin");
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_EXPOSE_HEADERS,
		   "x-request-id, x-quern-ignored, openai-processing-ms, retry-after");
}

/* Asked for are what the page would send; the official clients have many of their own. */
static void add_preflight(struct MHD_Response *r, const char *asked)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
	bool good = asked && strlen(asked) < 1024 && strspn(asked, plain) == strlen(asked);
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, DELETE");
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS, good ? asked : "authorization, content-type");
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_MAX_AGE, "600");
}

/* What every reply says of its request.  Names of keys come from the client: nothing but printable
 * ASCII gets into a header. */
static void add_about(struct MHD_Response *r, const struct exchange *x)
{
	char value[sizeof x->ignored];
	size_t n = 0;
	for (; n + 1 < sizeof value && x->ignored[n]; n++)
		value[n] = x->ignored[n] >= 0x20 && x->ignored[n] < 0x7f ? x->ignored[n] : '?';
	value[n] = '\0';
	if (n)
		add_header(r, "x-quern-ignored", value);
	const char *id = x->request_id[0] ? x->request_id : x->shape.id;
	if (id[0])
		add_header(r, "x-request-id", id);
	if (x->key)
		add_limits(r, x);
	if (x->origin[0])
		add_cors(r, x);
}

static void add_page_headers(struct MHD_Response *r, const struct exchange *x)
{
	add_header(r, "Content-Security-Policy", x->policy);
	add_header(r, "X-Content-Type-Options", "nosniff");
	add_header(r, "Referrer-Policy", "no-referrer");
	/* The policy of a copy would not fit. */
	add_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
}

static enum MHD_Result send_reply(struct exchange *x, struct MHD_Connection *c)
{
	pthread_mutex_lock(&x->lock);
	bool dead = x->dead;
	size_t n = x->out.len;
	char *json = buf_take(&x->out);
	unsigned status = x->status;
	pthread_mutex_unlock(&x->lock);
	struct MHD_Response *r = dead            ? NULL
				 : x->file_id[0] ? http_file_response(x)
						 : MHD_create_response_from_buffer(n, json, MHD_RESPMEM_MUST_FREE);
	if (!r || x->file_id[0]) {
		free(json);
		if (!r)
			return MHD_NO;
	}
	if (status != MHD_HTTP_NO_CONTENT)
		add_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, x->type ? x->type : "application/json");
	if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
		add_number(r, MHD_HTTP_HEADER_RETRY_AFTER, x->retry_s ? x->retry_s : 1);
	if (status == MHD_HTTP_UNAUTHORIZED)
		add_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (x->allow)
		add_header(r, MHD_HTTP_HEADER_ALLOW, x->allow);
	if (x->policy[0])
		add_page_headers(r, x);
	add_about(r, x);
	if (x->preflight)
		add_preflight(r, header(c, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS));
	add_number(r, "openai-processing-ms", (clock_us() - x->started_us) / 1000);
	enum MHD_Result rc = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result send_stream(struct exchange *x, struct MHD_Connection *c)
{
	struct MHD_Response *r =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK_BYTES, exchange_read, x, NULL);
	if (!r)
		return MHD_NO;
	add_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream; charset=utf-8");
	add_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
	/* Otherwise nginx gathers a stream before it passes it on. */
	add_header(r, "X-Accel-Buffering", "no");
	add_about(r, x);
	enum MHD_Result rc = MHD_queue_response(c, MHD_HTTP_OK, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result respond(struct exchange *x, struct MHD_Connection *c)
{
	if (exchange_wait(x))
		return MHD_YES;
	pthread_mutex_lock(&x->lock);
	enum exchange_phase phase = x->dead ? EXCHANGE_READING : x->phase;
	pthread_mutex_unlock(&x->lock);
	switch (phase) {
	case EXCHANGE_REPLY:
		return send_reply(x, c);
	case EXCHANGE_STREAM:
		return send_stream(x, c);
	case EXCHANGE_READING:
	case EXCHANGE_WAITING:
		break;
	}
	return MHD_NO; /* closes the connection */
}

/* What the access log says of the request. */
static void note_request(const struct http *h, struct exchange *x, struct MHD_Connection *c, const char *url,
			 const char *method)
{
	const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const char *id = header(c, "X-Request-Id");
	const struct sockaddr *a = i ? i->client_addr : NULL;
	if (a && a->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, x->remote, sizeof x->remote);
	else if (a && a->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr, x->remote,
			  sizeof x->remote);
	snprintf(x->method, sizeof x->method, "%s", method);
	snprintf(x->path, sizeof x->path, "%s", url);
	const char *origin = header(c, MHD_HTTP_HEADER_ORIGIN);
	if (origin && strlen(origin) < sizeof x->origin && cors_allows(h->cors, origin))
		snprintf(x->origin, sizeof x->origin, "%s", origin);
	static const char plain[] =
		"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:";
	if (id && strlen(id) < sizeof x->request_id && strspn(id, plain) == strlen(id))
		snprintf(x->request_id, sizeof x->request_id, "%s", id);
}

static struct peer *peer_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	return i->socket_context;
}

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct http *h = cls;
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		*context = peer_add(
			h->peers, MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
	else
		peer_del(h->peers, *context);
}

/* What reads a large body.  The others do not, and what they look at, the path, goes with the connection,
 * which another thread does not hold. */
static bool has_work(const struct http_route *r, const struct exchange *x)
{
	return x->body.len > PREP_BYTES && !strcmp(x->method, MHD_HTTP_METHOD_POST) &&
	       !(r->marks & ROUTE_PREFIX);
}

/* A complete request. */
static void begin(struct http *h, struct exchange *x, const char *url)
{
	const char *rest;
	const struct http_route *r = http_route_find(url, &rest);
	if (!has_work(r, x)) {
		r->call(x, rest);
		return;
	}
	exchange_park(x);
	prep_put(h->prep, x, r->call);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method,
				  const char *version, const char *upload, size_t *upload_n, void **con)
{
	struct http *h = cls;
	struct exchange *x = *con;
	if (!x) { /* headers are complete */
		x = *con = exchange_new(&h->host, c);
		if (!x)
			return MHD_NO;
		uint64_t length;
		x->chunked = strcmp(version, MHD_HTTP_VERSION_1_0) != 0;
		note_request(h, x, c, url, method);
		check_headers(x, c, url, method, &length);
		bool now = x->refused && (length > pass_over(x) || header(c, MHD_HTTP_HEADER_EXPECT));
		return now ? respond(x, c) : MHD_YES;
	}
	if (*upload_n) {
		bool go_on = take_body(x, upload, *upload_n);
		peer_body(h->peers, peer_of(c), *upload_n);
		*upload_n = 0;
		return go_on ? MHD_YES : MHD_NO;
	}
	pthread_mutex_lock(&x->lock);
	bool fresh = x->phase == EXCHANGE_READING && !x->dead;
	pthread_mutex_unlock(&x->lock);
	peer_asked(h->peers, peer_of(c));
	if (fresh)
		begin(h, x, url);
	return respond(x, c);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con, enum MHD_RequestTerminationCode why)
{
	struct http *h = cls;
	struct exchange *x = *con;
	*con = NULL;
	if (x)
		exchange_close(x, why != MHD_REQUEST_TERMINATED_COMPLETED_OK);
	peer_replied(h->peers, peer_of(c));
}

/* A NUL would end the path before its end: such a path is left as it is, and found nowhere. */
static size_t unescape(void *cls, struct MHD_Connection *c, char *s)
{
	(void)cls;
	(void)c;
	return strstr(s, "%00") ? strlen(s) : MHD_http_unescape(s);
}

static void __attribute__((format(printf, 2, 0))) on_log(void *cls, const char *fmt, va_list ap)
{
	char line[512];
	(void)cls;
	vsnprintf(line, sizeof line, fmt, ap);
	line[strcspn(line, "\n")] = '\0';
	log_debug("http", "libmicrohttpd: %s", line);
}

/* Lifecycle. */

/* As many connections as descriptors allow. */
static unsigned connection_limit(unsigned want)
{
	size_t can = conns_limit(want, CONNS_HTTP);
	if (can < want)
		log_info("http", "connections=%zu instead of %u: RLIMIT_NOFILE", can, want);
	return (unsigned)can;
}

/* The key is wiped from memory that is given back. */
static void free_tls(struct http *h)
{
	free(h->tls_cert);
	if (h->tls_key)
		explicit_bzero(h->tls_key, strlen(h->tls_key));
	free(h->tls_key);
}

static int load_tls(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	size_t n;
	if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return err_why(why, why_n, -ENOTSUP, "--tls-cert: libmicrohttpd was built without TLS");
	int rc = file_read(cfg->tls_cert, TLS_FILE_MAX, &h->tls_cert, &n, why, why_n);
	if (rc)
		return err_prefix(why, why_n, rc, "--tls-cert");
	rc = file_read(cfg->tls_key, TLS_FILE_MAX, &h->tls_key, &n, why, why_n);
	return rc ? err_prefix(why, why_n, rc, "--tls-key") : tls_check(h->tls_cert, h->tls_key, why, why_n);
}

/* libmicrohttpd closes the socket that it is given when it cannot start, but not in every case: it gets
 * a descriptor of its own, which is closed here if it is this socket still. */
static void close_given(int given, int own)
{
	struct stat a, b;
	if (given >= 0 && !fstat(given, &a) && !fstat(own, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
		close(given);
}

/* Before anything that its lines need. */
static void stop_batches(struct http *h)
{
	if (h->host.batches)
		batches_quiesce(h->host.batches);
}

/* When libmicrohttpd and the other threads have ended.  false: listeners may still be called, and what they
 * use must stay. */
static bool end_batches(struct http *h)
{
	/* Requests that wait for the journal are answered now, whatever its disk does. */
	if (h->host.files)
		journal_end(filestore_journal(h->host.files));
	if (!exchange_wait_none(&h->host)) {
		log_error("http", "the front end does not let go of requests");
		return false;
	}
	/* Results of lines that ended meanwhile: their ends are told to the batches. */
	if (h->host.files)
		journal_end(filestore_journal(h->host.files));
	batches_stop(h->host.batches);
	return true;
}

int http_start(struct front *f, const struct service *svc, const struct http_config *cfg, struct http **out,
	       char *why, size_t why_n)
{
	struct http *h = xcalloc(1, sizeof *h);
	bool v6 = false;
	int rc, fd = http_listen(cfg->addr, cfg->insecure || cfg->api_keys[0], &v6, h->address, why, why_n);
	if (fd < 0) {
		rc = fd;
		goto fail_listen;
	}
	h->host.front = f;
	h->host.svc = svc;
	h->host.max_unread = cfg->max_unread_bytes ? cfg->max_unread_bytes : MAX_UNREAD;
	h->host.max_unread_all = cfg->max_unread_all_bytes ? cfg->max_unread_all_bytes : MAX_UNREAD_ALL;
	h->host.max_bodies = (size_t)BODIES * svc->max_request_bytes;
	atomic_init(&h->host.body_bytes, 0);
	atomic_init(&h->host.unread_bytes, 0);
	pthread_mutex_init(&h->host.lock, NULL);
	pthread_cond_init(&h->host.none, NULL);
	rc = hangup_start(exchange_gone, &h->host.hangup, why, why_n);
	if (rc)
		goto fail_hangup;
	unsigned timeout = cfg->timeout_s ? cfg->timeout_s : TIMEOUT_S;
	rc = peers_start(timeout, &h->peers, why, why_n);
	if (rc)
		goto fail_peers;
	rc = prep_start(N_PREP_THREADS, &h->prep, why, why_n);
	if (rc)
		goto fail_prep;
	rc = cfg->cors[0] ? cors_parse(cfg->cors, &h->cors, why, why_n) : 0;
	if (!rc && !cfg->tls_cert[0] != !cfg->tls_key[0])
		rc = err_why(why, why_n, -EINVAL, "--tls-cert and --tls-key belong together");
	if (!rc && cfg->tls_cert[0])
		rc = load_tls(h, cfg, why, why_n);
	if (rc)
		goto fail_keys;
	rc = cfg->api_keys[0] ? apikeys_open(cfg->api_keys, &h->host.keys, why, why_n) : 0;
	if (rc)
		goto fail_keys;
	rc = cfg->access_log[0] ? accesslog_open(cfg->access_log, &h->host.log, why, why_n) : 0;
	if (rc)
		goto fail_log;
	h->host.max_file_bytes = cfg->max_file_bytes ? cfg->max_file_bytes : MAX_FILE;
	rc = cfg->journal ? filestore_open(cfg->journal, &h->host.files, why, why_n) : 0;
	if (rc)
		goto fail_files;
	rc = cfg->journal ? batches_start(&h->host, h->host.files, &h->host.batches, why, why_n) : 0;
	if (rc)
		goto fail_batches;
	rc = viewers_start(f, svc, &h->host.viewers, why, why_n);
	if (rc)
		goto fail_viewers;
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
			 (v6 ? MHD_USE_IPv6 : 0) | (h->tls_cert ? MHD_USE_TLS : 0);
	struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, h->tls_cert},
				       {MHD_OPTION_HTTPS_MEM_KEY, 0, h->tls_key},
				       {MHD_OPTION_END, 0, NULL}};
	if (!h->tls_cert)
		tls[0] = tls[2];
	unsigned limit = connection_limit(cfg->max_connections ? cfg->max_connections : MAX_CONNECTIONS);
	int given = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	h->daemon = given < 0 ? NULL : MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, given, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)N_THREADS,
		MHD_OPTION_CONNECTION_LIMIT, limit, MHD_OPTION_CONNECTION_TIMEOUT, timeout,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
		MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
	if (!h->daemon) {
		close_given(given, fd);
		rc = err_why(why, why_n, -EIO, "HTTP: libmicrohttpd does not start%s",
			     h->tls_cert ? ": do --tls-cert and --tls-key belong together?" : "");
		goto fail_daemon;
	}
	close(fd);
	*out = h;
	return 0;

fail_daemon:
	viewers_stop(h->host.viewers);
fail_viewers:
	stop_batches(h);
	exchange_stop_all(&h->host);
	if (!end_batches(h)) {
		close(fd);
		return rc;
	}
fail_batches:
	filestore_close(h->host.files);
fail_files:
	accesslog_close(h->host.log);
fail_log:
	apikeys_close(h->host.keys);
fail_keys:
	free_tls(h);
	cors_free(h->cors);
	prep_stop(h->prep);
fail_prep:
	peers_stop(h->peers);
fail_peers:
	hangup_stop(h->host.hangup);
fail_hangup:
	close(fd);
	pthread_cond_destroy(&h->host.none);
	pthread_mutex_destroy(&h->host.lock);
fail_listen:
	free(h);
	return rc;
}

const char *http_address(const struct http *h)
{
	return h->address;
}

void http_stop(struct http *h)
{
	if (!h)
		return;
	int fd = MHD_quiesce_daemon(h->daemon);
	stop_batches(h);
	exchange_stop_all(&h->host);
	MHD_stop_daemon(h->daemon);
	if (fd >= 0)
		close(fd);
	viewers_stop(h->host.viewers);
	prep_stop(h->prep);
	peers_stop(h->peers);
	hangup_stop(h->host.hangup);
	accesslog_close(h->host.log);
	h->host.log = NULL;
	if (!end_batches(h))
		return;
	filestore_close(h->host.files);
	apikeys_close(h->host.keys);
	free_tls(h);
	cors_free(h->cors);
	pthread_cond_destroy(&h->host.none);
	pthread_mutex_destroy(&h->host.lock);
	free(h);
}
