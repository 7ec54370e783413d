#include "controller/http.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/exchange.h"
#include "controller/http_routes.h"
#include "controller/peers.h"
#include "controller/prep.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	HTTP_TOO_LARGE = 413, /* libmicrohttpd has changed its name for it */
	N_THREADS = 2,        /* of libmicrohttpd */
	N_PREP_THREADS = 2,
	PREP_BYTES = 16 << 10, /* larger requests are prepared elsewhere */
	BACKLOG = 1024,
	MAX_CONNECTIONS = 16384,
	SPARE_FILES = 256, /* descriptors that are not connections */
	TIMEOUT_S = 120,
	MAX_UNREAD = 4 << 20,
	MAX_UNREAD_ALL = 512 << 20,
	CONNECTION_BYTES = 32 << 10, /* of libmicrohttpd for each: bounds the headers */
	CHUNK_BYTES = 16 << 10,      /* asked of a stream at once */
	/* A body that is refused is read to its end, so that the client gets to see the reply, but only
	 * when it is at most this many times the limit. */
	PASS_OVER = 4,
	BODIES = 16, /* largest bodies that are held at once */
};

struct http {
	struct exchange_host host;
	struct MHD_Daemon *daemon;
	struct peers *peers;
	struct prep *prep;
	char address[INET6_ADDRSTRLEN + 16];
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

static void refuse_too_large(struct exchange *x)
{
	char why[128];
	snprintf(why, sizeof why, "the request is larger than %" PRIu32 " bytes",
		 x->host->svc->max_request_bytes);
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

/* All that the headers can be refused for; the length of the body as they say it. */
static void check_headers(struct exchange *x, struct MHD_Connection *c, const char *url, const char *method,
			  uint64_t *length)
{
	const char *rest, *coding = header(c, MHD_HTTP_HEADER_CONTENT_ENCODING);
	const struct http_route *r = http_route_find(url, &rest);
	struct header_count n = {0};
	MHD_get_connection_values(c, MHD_HEADER_KIND, count_header, &n);
	const char *len = header(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
	*length = len ? strtoull(len, NULL, 10) : 0;
	if (n.lengths + n.encodings > 1) {
		/* Someone before us may have read it otherwise: request smuggling. */
		*length = UINT64_MAX;
		refuse(x, MHD_HTTP_BAD_REQUEST, NULL, "more than one Content-Length or Transfer-Encoding");
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
	} else if (r->post && !is_json(header(c, MHD_HTTP_HEADER_CONTENT_TYPE))) {
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type",
		       "Content-Type must be application/json");
	} else if (coding && strcasecmp(coding, "identity") != 0) {
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type",
		       "Content-Encoding is not supported");
	} else if (*length > x->host->svc->max_request_bytes) {
		refuse_too_large(x);
	}
}

static bool take_body(struct exchange *x, const char *p, size_t n)
{
	uint64_t max = x->host->svc->max_request_bytes;
	x->body_seen += n;
	if (!x->refused && x->body_seen > max)
		refuse_too_large(x);
	if (!x->refused && !exchange_body(x, p, n))
		refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, "overloaded",
		       "too many large requests at once: try again");
	return x->body_seen <= PASS_OVER * max;
}

/* Replies. */

static void add_header(struct MHD_Response *r, const char *name, const char *value)
{
	if (MHD_add_response_header(r, name, value) != MHD_YES)
		log_warn("http", "header %s left out", name);
}

/* Names of keys come from the client: nothing but printable ASCII gets into a header. */
static void add_ignored(struct MHD_Response *r, const struct exchange *x)
{
	char value[sizeof x->ignored];
	size_t n = 0;
	for (; n + 1 < sizeof value && x->ignored[n]; n++)
		value[n] = x->ignored[n] >= 0x20 && x->ignored[n] < 0x7f ? x->ignored[n] : '?';
	value[n] = '\0';
	if (n)
		add_header(r, "x-quern-ignored", value);
}

static enum MHD_Result send_reply(struct exchange *x, struct MHD_Connection *c)
{
	pthread_mutex_lock(&x->lock);
	bool dead = x->dead;
	size_t n = x->out.len;
	char *json = buf_take(&x->out);
	unsigned status = x->status;
	pthread_mutex_unlock(&x->lock);
	struct MHD_Response *r =
		dead ? NULL : MHD_create_response_from_buffer(n, json, MHD_RESPMEM_MUST_FREE);
	if (!r) {
		free(json);
		return MHD_NO;
	}
	add_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
	if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
		add_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
	if (x->allow)
		add_header(r, MHD_HTTP_HEADER_ALLOW, x->allow);
	add_ignored(r, x);
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
	add_ignored(r, x);
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

/* A complete request. */
static void begin(struct http *h, struct exchange *x, const char *url)
{
	const char *rest;
	const struct http_route *r = http_route_find(url, &rest);
	if (x->body.len <= PREP_BYTES) {
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
	(void)version;
	if (!x) { /* headers are complete */
		x = *con = exchange_new(&h->host, c);
		if (!x)
			return MHD_NO;
		uint64_t length;
		check_headers(x, c, url, method, &length);
		bool now = x->refused && (length > (uint64_t)PASS_OVER * h->host.svc->max_request_bytes ||
					  header(c, MHD_HTTP_HEADER_EXPECT));
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
	(void)why;
	*con = NULL;
	if (x)
		exchange_close(x);
	peer_replied(h->peers, peer_of(c));
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

/* "host:port" to its parts; an empty host is loopback. */
static int split_addr(const char *addr, char host[256], char port[8], char *why, size_t why_n)
{
	const char *colon = strrchr(addr, ':');
	size_t n = colon ? (size_t)(colon - addr) : 0;
	char *end;
	unsigned long p = colon ? strtoul(colon + 1, &end, 10) : 0;
	if (!colon || !colon[1] || colon[1] < '0' || colon[1] > '9' || *end || p > 65535)
		return err_why(why, why_n, -EINVAL, "HTTP address %s: must be HOST:PORT", addr);
	const char *h = addr;
	if (n >= 2 && h[0] == '[' && h[n - 1] == ']') {
		h++;
		n -= 2;
	} else if (memchr(h, ':', n)) {
		return err_why(why, why_n, -EINVAL, "HTTP address %s: an IPv6 address stands in brackets",
			       addr);
	}
	if (n >= 256)
		return err_why(why, why_n, -EINVAL, "HTTP address: the host's name is too long");
	snprintf(host, 256, "%.*s", (int)n, h);
	if (!n)
		snprintf(host, 256, "127.0.0.1");
	else if (!strcmp(host, "*"))
		snprintf(host, 256, "0.0.0.0");
	snprintf(port, 8, "%lu", p);
	return 0;
}

static bool is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static int resolve(const char *addr, struct addrinfo **out, char *why, size_t why_n)
{
	char host[256], port[8];
	int rc = split_addr(addr, host, port, why, why_n);
	if (rc)
		return rc;
	struct addrinfo want = {
		.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	int e = getaddrinfo(host, port, &want, out);
	if (e) {
		want.ai_family = AF_INET6;
		e = getaddrinfo(host, port, &want, out);
	}
	if (e)
		return err_why(why, why_n, -EINVAL, "HTTP address %s: %s", addr, gai_strerror(e));
	return 0;
}

static void name_address(struct http *h, int fd)
{
	struct sockaddr_storage a = {0};
	socklen_t n = sizeof a;
	char host[INET6_ADDRSTRLEN] = "", port[8] = "";
	getsockname(fd, (struct sockaddr *)&a, &n);
	getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port, sizeof port,
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(h->address, sizeof h->address, a.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

/* The listening socket, or -errno. */
static int listen_on(struct http *h, const struct http_config *cfg, bool *v6, char *why, size_t why_n)
{
	struct addrinfo *ai;
	int one = 1, rc = resolve(cfg->addr, &ai, why, why_n);
	if (rc)
		return rc;
	*v6 = ai->ai_family == AF_INET6;
	int fd = -1;
	if (!is_loopback(ai->ai_addr) && !cfg->insecure) {
		rc = err_why(why, why_n, -EPERM,
			     "HTTP address %s is not loopback: anyone who reaches it may use the service; "
			     "--insecure allows it",
			     cfg->addr);
		goto done;
	}
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, BACKLOG)) {
		rc = err_why(why, why_n, -errno, "HTTP address %s: %s", cfg->addr, strerror(errno));
		if (fd >= 0)
			close(fd);
		goto done;
	}
	name_address(h, fd);
done:
	freeaddrinfo(ai);
	return rc ? rc : fd;
}

/* As many connections as descriptors allow. */
static unsigned connection_limit(unsigned want)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r))
		return want;
	rlim_t need = (rlim_t)want + SPARE_FILES;
	if (r.rlim_cur < need) {
		r.rlim_cur = r.rlim_max < need ? r.rlim_max : need;
		if (setrlimit(RLIMIT_NOFILE, &r))
			getrlimit(RLIMIT_NOFILE, &r);
	}
	if (r.rlim_cur >= need)
		return want;
	unsigned can =
		r.rlim_cur > 2 * SPARE_FILES ? (unsigned)r.rlim_cur - SPARE_FILES : (unsigned)r.rlim_cur / 2;
	log_warn("http", "connections=%u instead of %u: RLIMIT_NOFILE", can, want);
	return can;
}

int http_start(struct front *f, const struct service *svc, const struct http_config *cfg, struct http **out,
	       char *why, size_t why_n)
{
	struct http *h = xcalloc(1, sizeof *h);
	bool v6 = false;
	int rc, fd = listen_on(h, cfg, &v6, why, why_n);
	if (fd < 0) {
		rc = fd;
		goto fail_listen;
	}
	h->host.front = f;
	h->host.svc = svc;
	h->host.max_unread = cfg->max_unread_bytes ? cfg->max_unread_bytes : MAX_UNREAD;
	h->host.max_unread_all = MAX_UNREAD_ALL;
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
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
			 (v6 ? MHD_USE_IPv6 : 0);
	unsigned limit = connection_limit(cfg->max_connections ? cfg->max_connections : MAX_CONNECTIONS);
	h->daemon = MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)N_THREADS,
		MHD_OPTION_CONNECTION_LIMIT, limit, MHD_OPTION_CONNECTION_TIMEOUT, timeout,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
		MHD_OPTION_END);
	if (!h->daemon) {
		rc = err_why(why, why_n, -EIO, "HTTP: libmicrohttpd does not start");
		goto fail_daemon;
	}
	*out = h;
	return 0;

fail_daemon:
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
	exchange_stop_all(&h->host);
	MHD_stop_daemon(h->daemon);
	if (fd >= 0)
		close(fd);
	prep_stop(h->prep);
	peers_stop(h->peers);
	hangup_stop(h->host.hangup);
	if (!exchange_wait_none(&h->host)) {
		/* Listeners may still be called: their memory must stay. */
		log_error("http", "the front end does not let go of requests");
		return;
	}
	pthread_cond_destroy(&h->host.none);
	pthread_mutex_destroy(&h->host.lock);
	free(h);
}
