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
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	N_THREADS = 2, /* threads of libmicrohttpd per listening socket */
	/* Requests larger than this, or with more values, go to a preparing thread. */
	PREP_BYTES = 16 << 10,
	PREP_VALUES = 256,
	MAX_CONNECTIONS = 16384,
	TIMEOUT_S = 120,
	MAX_UNREAD = 4 << 20,
	MAX_UNREAD_ALL = 512 << 20,
	CONNECTION_BYTES = 32 << 10, /* libmicrohttpd's memory per connection: limits the headers */
	BODIES = 16,                 /* bodies of the largest size that may be held at once */
};

/* --- requests: libmicrohttpd's callbacks --- */

static struct peer *peer_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	return i->socket_context;
}

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct http *h = ((struct http_daemon *)cls)->http;
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		*context = peer_add(
			h->peers, MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
	else
		peer_del(h->peers, *context);
}

/* Return true if the body is handled fast enough for libmicrohttpd's own thread.  Streams of other clients
 * and liveness requests wait for that thread. */
static bool is_quick(const struct http *h, const struct exchange *x, bool *costly)
{
	struct json_size size;
	*costly = false;
	if (strcmp(x->method, MHD_HTTP_METHOD_POST) != 0)
		return true;
	*costly = h->app.is_costly && h->app.is_costly(x->body.p, x->body.len);
	if (*costly || x->body.len > PREP_BYTES)
		return false;
	if (x->body.len <= PREP_VALUES)
		return true;
	json_measure(x->body.p, x->body.len, &size);
	return size.n_values <= PREP_VALUES;
}

/* Return the rest of url after the route's path, without redundant slashes.  The caller owns it. */
static char *rest_of(const struct http_route *route, const char *url)
{
	char *rest = xstrdup(http_rest(route, url)), *to = rest;
	for (const char *from = rest; *from; from++)
		if (*from != '/' || (from[1] && from[1] != '/'))
			*to++ = *from;
	*to = '\0';
	return rest;
}

/* Handle a complete request. */
static void begin(struct http *h, struct exchange *x, const char *url)
{
	char *rest = rest_of(x->route, url);
	bool costly;
	if (is_quick(h, x, &costly)) {
		x->route->call(x, rest);
	} else {
		exchange_park(x);
		prep_put(x, rest, costly);
	}
	free(rest);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method,
				  const char *version, const char *upload, size_t *upload_n, void **con)
{
	struct http *h = ((struct http_daemon *)cls)->http;
	const char *host;
	size_t host_n;
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
		begin(h, x, framing_path(url, &host, &host_n));
	return http_respond(x, c);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con, enum MHD_RequestTerminationCode why)
{
	struct http *h = ((struct http_daemon *)cls)->http;
	struct exchange *x = *con;
	*con = NULL;
	if (x)
		exchange_close(x, why != MHD_REQUEST_TERMINATED_COMPLETED_OK);
	peer_replied(h->peers, peer_of(c));
}

/* Record the target when the request line has arrived and is still unmodified. */
static void *on_target(void *cls, const char *target, struct MHD_Connection *c)
{
	(void)cls;
	*peer_target(peer_of(c)) = framing_target(target);
	return NULL;
}

/* Unescape, except a path with a NUL, which would cut it short: it stays escaped and matches no route. */
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
	log_debug("http", "libmicrohttpd text=\"%s\"", line);
}

/* --- the parts of the server, in starting order --- */

static int start_listening(struct http *h, const struct http_config *cfg, struct why *why)
{
	if (strcmp(cfg->addr, "none") == 0)
		return 0;
	return http_listen(cfg->addr, cfg->insecure || cfg->api_keys[0], &h->listeners, why);
}

static void stop_listening(struct http *h)
{
	http_listeners_close(&h->listeners);
}

static int start_cors(struct http *h, const struct http_config *cfg, struct why *why)
{
	return cfg->cors[0] ? cors_parse(cfg->cors, &h->cors, why) : 0;
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

static int start_tls(struct http *h, const struct http_config *cfg, struct why *why)
{
	if (!cfg->tls_cert[0] != !cfg->tls_key[0])
		return err_why(why, -EINVAL, "--tls-cert and --tls-key belong together");
	if (!cfg->tls_cert[0])
		return 0;
	if (MHD_is_feature_supported(MHD_FEATURE_HTTPS_CERT_CALLBACK) != MHD_YES)
		return err_why(why, -ENOTSUP, "--tls-cert: libmicrohttpd was built without TLS");
	return tls_open(cfg->tls_cert, cfg->tls_key, &h->tls, why);
}

static int start_keys(struct http *h, const struct http_config *cfg, struct why *why)
{
	return cfg->api_keys[0] ? api_keys_open(cfg->api_keys, &h->host.keys, why) : 0;
}

static bool stop_keys(struct http *h)
{
	api_keys_close(h->host.keys);
	return true;
}

static int start_log(struct http *h, const struct http_config *cfg, struct why *why)
{
	return cfg->access_log[0] ? access_log_open(cfg->access_log, &h->host.log, why) : 0;
}

static bool stop_log(struct http *h)
{
	access_log_close(h->host.log);
	return true;
}

static int start_app(struct http *h, const struct http_config *cfg, struct why *why)
{
	(void)cfg;
	return h->app.start ? h->app.start(h->app.user, &h->host, why) : 0;
}

static void quiesce_app(struct http *h)
{
	if (h->app.quiesce)
		h->app.quiesce(h->app.user);
	exchange_stop_all(&h->host);
}

static bool stop_app(struct http *h)
{
	if (h->app.drain)
		h->app.drain(h->app.user);
	if (!exchange_wait_none(&h->host)) {
		log_error("http", "front end still holds requests seconds=10");
		return false;
	}
	if (h->app.stop)
		h->app.stop(h->app.user);
	return true;
}

static int start_peers(struct http *h, const struct http_config *cfg, struct why *why)
{
	h->timeout_s = cfg->timeout_s ? cfg->timeout_s : TIMEOUT_S;
	return peers_start(h->host.svc->house, h->timeout_s, &h->peers, why);
}

static bool stop_peers(struct http *h)
{
	peers_stop(h->peers);
	return true;
}

static int start_hangup(struct http *h, const struct http_config *cfg, struct why *why)
{
	(void)cfg;
	return hangup_start(h->host.svc->house, exchange_abort, &h->host.hangup, why);
}

static bool stop_hangup(struct http *h)
{
	hangup_stop(h->host.hangup);
	return true;
}

/* Return the connection limit for each of n sockets: want, or as many as the descriptors allow. */
static unsigned connection_limit(unsigned want, size_t n)
{
	size_t can = conns_limit(want * n, CONNS_HTTP) / n;
	if (can < want)
		log_info("http", "connections limited connections=%zu wanted=%u reason=RLIMIT_NOFILE", can,
			 want);
	return (unsigned)can;
}

/* libmicrohttpd closes the socket given to it when it cannot start, but not in every case.  So it gets its
 * own descriptor, which is closed here if it still is this socket. */
static void close_given(int given, int own)
{
	struct stat a, b;
	if (given >= 0 && !fstat(given, &a) && !fstat(own, &b) && a.st_dev == b.st_dev &&
	    a.st_ino == b.st_ino)
		close(given);
}

/* Start libmicrohttpd on the socket of l, which is taken: libmicrohttpd then has its own descriptor. */
static int start_daemon(struct http_daemon *d, struct http_listener *l, unsigned limit, struct why *why)
{
	const struct http *h = d->http;
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
			 (l->family == AF_INET6 ? MHD_USE_IPv6 : 0) | (h->tls ? MHD_USE_TLS : 0);
	struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)tls_retrieve},
				       {MHD_OPTION_END, 0, NULL}};
	if (!h->tls)
		tls[0] = tls[1];
	int given = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
	d->mhd = given < 0 ? NULL
			   : MHD_start_daemon(flags, 0, NULL, NULL, on_request, d, MHD_OPTION_EXTERNAL_LOGGER,
					      on_log, NULL, MHD_OPTION_LISTEN_SOCKET, given,
					      MHD_OPTION_THREAD_POOL_SIZE, (unsigned)N_THREADS,
					      MHD_OPTION_CONNECTION_LIMIT, limit,
					      MHD_OPTION_CONNECTION_TIMEOUT, h->timeout_s,
					      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
					      MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
					      on_completed, d, MHD_OPTION_NOTIFY_CONNECTION, on_connection, d,
					      MHD_OPTION_URI_LOG_CALLBACK, on_target, NULL,
					      MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_ARRAY,
					      tls, MHD_OPTION_END);
	if (!d->mhd) {
		close_given(given, l->fd);
		return err_why(why, -EIO, "HTTP: libmicrohttpd does not start");
	}
	close(l->fd);
	l->fd = -1;
	return 0;
}

static void quiesce_daemons(struct http *h)
{
	for (size_t i = 0; i < h->n_daemons; i++)
		h->daemons[i].quiet_fd = MHD_quiesce_daemon(h->daemons[i].mhd);
}

static bool stop_daemons(struct http *h)
{
	for (size_t i = 0; i < h->n_daemons; i++) {
		MHD_stop_daemon(h->daemons[i].mhd);
		if (h->daemons[i].quiet_fd >= 0)
			close(h->daemons[i].quiet_fd);
	}
	h->n_daemons = 0;
	return true;
}

static int start_daemons(struct http *h, const struct http_config *cfg, struct why *why)
{
	const size_t n = h->listeners.n;
	unsigned limit =
		connection_limit(cfg->max_connections ? cfg->max_connections : MAX_CONNECTIONS, n ? n : 1);
	int rc = 0;
	for (size_t i = 0; i < n && !rc; i++) {
		h->daemons[i] = (struct http_daemon){.http = h, .quiet_fd = -1};
		rc = start_daemon(&h->daemons[i], &h->listeners.at[i], limit, why);
		h->n_daemons += !rc;
	}
	if (rc) {
		quiesce_daemons(h);
		stop_daemons(h);
	}
	return rc;
}

static const struct part {
	int (*start)(struct http *h, const struct http_config *cfg, struct why *why);
	void (*quiesce)(struct http *h); /* accepts nothing new; called for all parts before the first is
					  * stopped */
	bool (*stop)(struct http *h);    /* false: the part is still in use, and everything it uses is kept */
} parts[] = {
	{start_listening, stop_listening, NULL},
	{start_cors, NULL, stop_cors},
	{start_tls, NULL, stop_tls},
	{start_keys, NULL, stop_keys},
	{start_log, NULL, stop_log},
	{start_app, quiesce_app, stop_app},
	{start_peers, NULL, stop_peers},
	{start_hangup, NULL, stop_hangup},
	{start_daemons, quiesce_daemons, stop_daemons},
};

/* Stop the first n parts in reverse order. */
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
	       struct http **out, struct why *why)
{
	struct http *h = xcalloc(1, sizeof *h);
	size_t n = 0;
	int rc = 0;
	h->app = *app;
	exchange_host_init(&h->host, svc);
	h->host.user = app->user;
	h->host.routes = app->routes;
	h->host.n_routes = app->n_routes;
	h->host.max_unread = cfg->max_unread_bytes ? cfg->max_unread_bytes : MAX_UNREAD;
	h->host.max_unread_all = cfg->max_unread_all_bytes ? cfg->max_unread_all_bytes : MAX_UNREAD_ALL;
	h->host.max_bodies = (size_t)BODIES * svc->max_request_bytes;
	while (!rc && n < sizeof parts / sizeof parts[0]) {
		rc = parts[n].start(h, cfg, why);
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
	struct why why;
	char until[16];
	bool changed;
	if (!h->tls)
		return;
	if (tls_reload(h->tls, &changed, until, &why))
		log_warn("http", "previous certificate kept reason=\"%s\"", why.text);
	else
		log_info("http", "certificate read again changed=%s until=%s", changed ? "yes" : "no", until);
}

const char *http_address(const struct http *h)
{
	return h->listeners.address;
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
