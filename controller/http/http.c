#include "controller/http/http_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "controller/message/service.h"
#include "controller/http/access_log.h"
#include "controller/http/api_keys.h"
#include "controller/http/framing.h"
#include "controller/http/hangup.h"
#include "controller/http/prep.h"
#include "controller/http/tls.h"
#include "controller/net/conns.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	N_THREADS = 2, /* of libmicrohttpd */
	/* Larger requests, or of more values, are prepared elsewhere. */
	PREP_BYTES = 16 << 10,
	PREP_VALUES = 256,
	MAX_CONNECTIONS = 16384,
	TIMEOUT_S = 120,
	MAX_UNREAD = 4 << 20,
	MAX_UNREAD_ALL = 512 << 20,
	CONNECTION_BYTES = 32 << 10, /* of libmicrohttpd for each: bounds the headers */
	BODIES = 16,                 /* largest bodies that are held at once */
};

/* Requests: libmicrohttpd's callbacks. */

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

/* Whether a large body is to be parsed.  The calls behind a prefix read the path instead, which belongs
 * to the connection and so to this thread. */
static bool is_large(const struct exchange *x)
{
	struct json_size size;
	if (strcmp(x->method, MHD_HTTP_METHOD_POST) != 0 || x->route->flags & ROUTE_PREFIX)
		return false;
	if (x->body.len <= PREP_VALUES || x->body.len > PREP_BYTES)
		return x->body.len > PREP_BYTES;
	json_measure(x->body.p, x->body.len, &size);
	return size.n_values > PREP_VALUES;
}

/* A complete request. */
static void begin(struct exchange *x, const char *url)
{
	if (!is_large(x)) {
		x->route->call(x, url + strlen(x->route->path));
		return;
	}
	exchange_park(x);
	prep_put(x, x->route->call);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method,
				  const char *version, const char *upload, size_t *upload_n, void **con)
{
	struct http *h = cls;
	struct exchange *x = *con;
	if (!x) { /* the headers are complete */
		x = *con = exchange_new(&h->host, c);
		if (!x)
			return MHD_NO;
		x->chunked = strcmp(version, MHD_HTTP_VERSION_1_0) != 0;
		const char *fault = framing_fault(c, method, version, *peer_target(peer_of(c)), &x->closing);
		return http_check_headers(h, x, c, url, method, fault) ? http_respond(x, c) : MHD_YES;
	}
	if (*upload_n) {
		bool go_on = http_take_body(x, upload, *upload_n);
		peer_body(h->peers, peer_of(c), *upload_n);
		*upload_n = 0;
		return go_on ? MHD_YES : MHD_NO;
	}
	pthread_mutex_lock(&x->lock);
	bool fresh = x->phase == EXCHANGE_READING && !x->dead;
	pthread_mutex_unlock(&x->lock);
	peer_requested(h->peers, peer_of(c));
	if (fresh)
		begin(x, url);
	return http_respond(x, c);
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

/* The first line has come, nothing of it is changed yet. */
static void *on_target(void *cls, const char *target, struct MHD_Connection *c)
{
	(void)cls;
	*peer_target(peer_of(c)) = framing_target(target);
	return NULL;
}

/* A NUL would cut the path short: such a path stays escaped, and matches no route. */
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

/* The parts of the server, in the order in which they start. */

static int start_listening(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	int fd = http_listen(cfg->addr, cfg->insecure || cfg->api_keys[0], &h->v6, h->address, why, why_n);
	h->listen_fd = fd < 0 ? -1 : fd;
	return fd < 0 ? fd : 0;
}

static void stop_listening(struct http *h)
{
	if (h->listen_fd >= 0)
		close(h->listen_fd);
	h->listen_fd = -1;
}

static int start_cors(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	return cfg->cors[0] ? cors_parse(cfg->cors, &h->cors, why, why_n) : 0;
}

static bool stop_cors(struct http *h)
{
	cors_free(h->cors);
	return true;
}

static bool stop_tls(struct http *h)
{
	tls_close(h->tls);
	return true;
}

static int start_tls(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	if (!cfg->tls_cert[0] != !cfg->tls_key[0])
		return err_why(why, why_n, -EINVAL, "--tls-cert and --tls-key belong together");
	if (!cfg->tls_cert[0])
		return 0;
	if (MHD_is_feature_supported(MHD_FEATURE_HTTPS_CERT_CALLBACK) != MHD_YES)
		return err_why(why, why_n, -ENOTSUP, "--tls-cert: libmicrohttpd was built without TLS");
	return tls_open(cfg->tls_cert, cfg->tls_key, &h->tls, why, why_n);
}

static int start_keys(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	return cfg->api_keys[0] ? api_keys_open(cfg->api_keys, &h->host.keys, why, why_n) : 0;
}

static bool stop_keys(struct http *h)
{
	api_keys_close(h->host.keys);
	return true;
}

static int start_log(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	return cfg->access_log[0] ? access_log_open(cfg->access_log, &h->host.log, why, why_n) : 0;
}

static bool stop_log(struct http *h)
{
	access_log_close(h->host.log);
	return true;
}

static int start_app(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	(void)cfg;
	return h->app.start(h->app.user, &h->host, why, why_n);
}

static void quiesce_app(struct http *h)
{
	h->app.quiesce(h->app.user);
	exchange_stop_all(&h->host);
}

static bool stop_app(struct http *h)
{
	h->app.drain(h->app.user);
	if (!exchange_wait_none(&h->host)) {
		log_error("http", "the front end still holds requests, after 10 s");
		return false;
	}
	h->app.stop(h->app.user);
	return true;
}

static int start_peers(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	h->timeout_s = cfg->timeout_s ? cfg->timeout_s : TIMEOUT_S;
	return peers_start(h->host.svc->house, h->timeout_s, &h->peers, why, why_n);
}

static bool stop_peers(struct http *h)
{
	peers_stop(h->peers);
	return true;
}

static int start_hangup(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	(void)cfg;
	return hangup_start(h->host.svc->house, exchange_abort, &h->host.hangup, why, why_n);
}

static bool stop_hangup(struct http *h)
{
	hangup_stop(h->host.hangup);
	return true;
}

/* As many connections as descriptors allow. */
static unsigned connection_limit(unsigned want)
{
	size_t can = conns_limit(want, CONNS_HTTP);
	if (can < want)
		log_info("http", "connections=%zu instead of %u: RLIMIT_NOFILE", can, want);
	return (unsigned)can;
}

/* libmicrohttpd closes the socket that it is given when it cannot start, but not in every case: it gets
 * a descriptor of its own, which is closed here if it still is this socket. */
static void close_given(int given, int own)
{
	struct stat a, b;
	if (given >= 0 && !fstat(given, &a) && !fstat(own, &b) && a.st_dev == b.st_dev &&
	    a.st_ino == b.st_ino)
		close(given);
}

static int start_daemon(struct http *h, const struct http_config *cfg, char *why, size_t why_n)
{
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
			 (h->v6 ? MHD_USE_IPv6 : 0) | (h->tls ? MHD_USE_TLS : 0);
	struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)tls_retrieve},
				       {MHD_OPTION_END, 0, NULL}};
	if (!h->tls)
		tls[0] = tls[1];
	unsigned limit = connection_limit(cfg->max_connections ? cfg->max_connections : MAX_CONNECTIONS);
	int given = fcntl(h->listen_fd, F_DUPFD_CLOEXEC, 0);
	h->daemon = given < 0 ? NULL
			      : MHD_start_daemon(flags, 0, NULL, NULL, on_request, h,
						 MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
						 MHD_OPTION_LISTEN_SOCKET, given, MHD_OPTION_THREAD_POOL_SIZE,
						 (unsigned)N_THREADS, MHD_OPTION_CONNECTION_LIMIT, limit,
						 MHD_OPTION_CONNECTION_TIMEOUT, h->timeout_s,
						 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
						 MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
						 on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
						 h, MHD_OPTION_URI_LOG_CALLBACK, on_target, NULL,
						 MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
						 MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
	if (!h->daemon) {
		close_given(given, h->listen_fd);
		return err_why(why, why_n, -EIO, "HTTP: libmicrohttpd does not start");
	}
	stop_listening(h); /* by our own descriptor */
	return 0;
}

static void quiesce_daemon(struct http *h)
{
	h->quiet_fd = MHD_quiesce_daemon(h->daemon);
}

static bool stop_daemon(struct http *h)
{
	MHD_stop_daemon(h->daemon);
	if (h->quiet_fd >= 0)
		close(h->quiet_fd);
	return true;
}

static const struct part {
	int (*start)(struct http *h, const struct http_config *cfg, char *why, size_t why_n);
	void (*quiesce)(struct http *h); /* takes nothing new; of all parts, before the first is stopped */
	bool (*stop)(struct http *h);    /* false: it is in use yet, and all that it uses stays */
} parts[] = {
	{start_listening, stop_listening, NULL},
	{start_cors, NULL, stop_cors},
	{start_tls, NULL, stop_tls},
	{start_keys, NULL, stop_keys},
	{start_log, NULL, stop_log},
	{start_app, quiesce_app, stop_app},
	{start_peers, NULL, stop_peers},
	{start_hangup, NULL, stop_hangup},
	{start_daemon, quiesce_daemon, stop_daemon},
};

/* The first n parts, the last one first. */
static void stop_parts(struct http *h, size_t n)
{
	for (size_t i = n; i-- > 0;)
		if (parts[i].quiesce)
			parts[i].quiesce(h);
	for (size_t i = n; i-- > 0;)
		if (parts[i].stop && !parts[i].stop(h))
			return;
	exchange_host_fini(&h->host);
	free(h);
}

int http_start(const struct service *svc, const struct http_app *app, const struct http_config *cfg,
	       struct http **out, char *why, size_t why_n)
{
	struct http *h = xcalloc(1, sizeof *h);
	size_t n = 0;
	int rc = 0;
	h->app = *app;
	h->listen_fd = h->quiet_fd = -1;
	exchange_host_init(&h->host, svc);
	h->host.user = app->user;
	h->host.max_unread = cfg->max_unread_bytes ? cfg->max_unread_bytes : MAX_UNREAD;
	h->host.max_unread_all = cfg->max_unread_all_bytes ? cfg->max_unread_all_bytes : MAX_UNREAD_ALL;
	h->host.max_bodies = (size_t)BODIES * svc->max_request_bytes;
	while (!rc && n < sizeof parts / sizeof parts[0]) {
		rc = parts[n].start(h, cfg, why, why_n);
		n += !rc;
	}
	if (rc)
		stop_parts(h, n);
	else
		*out = h;
	return rc;
}

void http_reload(struct http *h)
{
	char why[512], until[16];
	bool changed;
	if (!h->tls)
		return;
	if (tls_reload(h->tls, &changed, until, why, sizeof why))
		log_warn("http", "the previous certificate stays in force: %s", why);
	else
		log_info("http", "certificate read again: %s until=%s", changed ? "it is new" : "unchanged",
			 until);
}

const char *http_address(const struct http *h)
{
	return h->address;
}

void http_drain(struct http *h)
{
	atomic_store(&h->host.draining, true);
}

uint32_t http_n_draining(struct http *h)
{
	return exchange_n_draining(&h->host);
}

void http_stop(struct http *h)
{
	if (h)
		stop_parts(h, sizeof parts / sizeof parts[0]);
}
