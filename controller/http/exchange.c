#include "controller/http/exchange.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "controller/http/access_log.h"
#include "controller/http/hangup.h"
#include "controller/http/http.h"
#include "controller/http/http_error.h"
#include "controller/message/service.h"
#include "controller/metrics/metrics.h"
#include "controller/metrics/span.h"
#include "controller/metrics/tracer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
	STOP_WAIT_S = 10,
	STOP_SEND_MS = 2000,     /* time to send the last replies when the service stops */
	OUT_KEEP = 64 << 10,     /* memory that an emptied stream keeps, bytes */
	UNREAD_FAIR = 256 << 10, /* unread bytes allowed per stream when all streams together have too many */
};

void exchange_host_init(struct exchange_host *host, const struct service *svc)
{
	host->svc = svc;
	atomic_init(&host->body_bytes, 0);
	atomic_init(&host->unread_bytes, 0);
	atomic_init(&host->draining, false);
	pthread_mutex_init(&host->lock, NULL);
	pthread_cond_init(&host->none, NULL);
}

void exchange_host_fini(struct exchange_host *host)
{
	pthread_cond_destroy(&host->none);
	pthread_mutex_destroy(&host->lock);
}

struct exchange *exchange_new(struct exchange_host *host, struct MHD_Connection *conn)
{
	struct exchange *x = xcalloc(1, sizeof *x);
	x->host = host;
	x->conn = conn;
	x->started_us = clock_us();
	x->max_body = host->svc->max_request_bytes;
	atomic_init(&x->refs, 1);
	pthread_mutex_init(&x->lock, NULL);
	pthread_mutex_lock(&host->lock);
	bool stopping = host->stopping;
	if (!stopping) {
		x->next = host->first;
		if (x->next)
			x->next->prev = x;
		host->first = x;
		host->n++;
	}
	pthread_mutex_unlock(&host->lock);
	if (stopping) {
		pthread_mutex_destroy(&x->lock);
		free(x);
		return NULL;
	}
	return x;
}

void exchange_ref(struct exchange *x)
{
	atomic_fetch_add(&x->refs, 1);
}

void exchange_unref(struct exchange *x)
{
	if (atomic_fetch_sub(&x->refs, 1) != 1)
		return;
	struct exchange_host *host = x->host;
	if (x->released)
		x->released(x, x->released_user);
	/* Unlink first: exchange_stop_all() must not find a half-freed exchange. */
	pthread_mutex_lock(&host->lock);
	if (x->next)
		x->next->prev = x->prev;
	if (x->prev)
		x->prev->next = x->next;
	else
		host->first = x->next;
	pthread_mutex_unlock(&host->lock);
	exchange_body_free(x);
	if (x->work)
		x->work->free(x);
	buf_fini(&x->out);
	trace_context_fini(&x->trace);
	free(x->idempotency_key);
	free(x->last_event_id);
	pthread_mutex_destroy(&x->lock);
	free(x);
	pthread_mutex_lock(&host->lock);
	if (--host->n == 0)
		pthread_cond_broadcast(&host->none);
	pthread_mutex_unlock(&host->lock);
}

void exchange_set_work(struct exchange *x, const struct exchange_work *work, void *data)
{
	pthread_mutex_lock(&x->lock);
	x->work_data = data;
	x->work = work;
	pthread_mutex_unlock(&x->lock);
}

/* Recount the unread bytes of this exchange and of the host after each change of out.  Under the lock. */
static size_t count_unread(struct exchange *x)
{
	size_t now = x->phase == EXCHANGE_REPLY ? 0 : x->out.len - x->out_head;
	if (now > x->counted)
		atomic_fetch_add(&x->host->unread_bytes, now - x->counted);
	else
		atomic_fetch_sub(&x->host->unread_bytes, x->counted - now);
	x->counted = now;
	return now;
}

/* Suspend and resume the connection.  Under the lock. */

static void suspend(struct exchange *x)
{
	x->suspended = true;
	MHD_suspend_connection(x->conn);
}

static void wake(struct exchange *x)
{
	if (!x->suspended)
		return;
	x->suspended = false;
	MHD_resume_connection(x->conn);
}

/* Cut the connection without sending another byte, even while libmicrohttpd waits for its socket. */
static void kill_locked(struct exchange *x)
{
	x->dead = x->over = true;
	buf_fini(&x->out);
	x->out_head = 0;
	count_unread(x);
	if (!x->conn)
		return;
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (i)
		shutdown(i->connect_fd, SHUT_RDWR);
	wake(x);
}

/* Cancel the work.  Not under the lock, because the work calls the front end. */
static void cancel(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	const struct exchange_work *work = x->work;
	pthread_mutex_unlock(&x->lock);
	if (work && work->cancel)
		work->cancel(x);
}

void exchange_trace_job(const struct exchange *x, struct trace_context *out)
{
	if (!x->trace.set)
		return;
	trace_context_copy(out, &x->trace);
	memcpy(out->span, x->span, sizeof out->span);
}

/* Export the span of the request: in the client's trace, or as the root of its own.  Under the lock. */
static void trace_request(const struct exchange *x, bool cut)
{
	struct tracer *tracer = x->host->svc->tracer;
	struct buf all = {0}, attributes = {0};
	char name[sizeof x->method + sizeof x->path];
	if (!tracer || !x->trace.sampled)
		return;
	/* The route, not the path: span names must have few values. */
	snprintf(name, sizeof name, "%s %s", x->method, x->route ? x->route->path : "");
	span_attribute_text(&attributes, "http.request.method", x->method);
	span_attribute_text(&attributes, "url.path", x->path);
	if (x->route)
		span_attribute_text(&attributes, "http.route", x->route->path);
	if (x->status)
		span_attribute_int(&attributes, "http.response.status_code", x->status);
	if (x->remote[0])
		span_attribute_text(&attributes, "client.address", x->remote);
	if (cut || x->error[0])
		span_attribute_text(&attributes, "error.type", cut ? "cut" : x->error);
	struct span s = {.of = &x->trace,
			 .name = name,
			 .kind = SPAN_SERVER,
			 .begin_us = x->started_us,
			 .end_us = clock_us(),
			 .shift_us = span_shift(),
			 .error = cut                ? "the client did not take the whole reply"
				  : x->status >= 500 ? x->error
						     : NULL,
			 .attributes = &attributes};
	memcpy(s.id, x->span, sizeof s.id);
	memcpy(s.parent, x->trace.span, sizeof s.parent);
	span_put(&all, &s);
	tracer_put(tracer, &all, 1);
	buf_fini(&attributes);
}

/* Count, log and trace the request.  Under the lock. */
static void count_request(const struct exchange *x, bool cut)
{
	enum metric_counter c = cut                ? METRIC_HTTP_CUT
				: x->status == 429 ? METRIC_HTTP_429
				: x->status >= 500 ? METRIC_HTTP_5XX
				: x->status >= 400 ? METRIC_HTTP_4XX
						   : METRIC_HTTP_2XX;
	metrics_add(x->host->svc->metrics, c, 1);
	access_log_write(x->host->log, x, cut);
	trace_request(x, cut);
}

void exchange_close(struct exchange *x, bool cut)
{
	hangup_del(x->host->hangup, x->watch);
	x->watch = 0;
	pthread_mutex_lock(&x->lock);
	count_request(x, (cut || x->dead) && !x->endless);
	x->dead = x->over = true;
	x->conn = NULL;
	buf_fini(&x->out);
	x->out_head = 0;
	count_unread(x);
	pthread_mutex_unlock(&x->lock);
	cancel(x);
	exchange_unref(x);
}

void exchange_abort(void *user)
{
	struct exchange *x = user;
	pthread_mutex_lock(&x->lock);
	/* A client that only has to read the rest may have closed its sending side. */
	bool now = !x->over;
	if (now)
		kill_locked(x);
	pthread_mutex_unlock(&x->lock);
	if (now)
		cancel(x);
}

bool exchange_is_over(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	bool over = x->over;
	pthread_mutex_unlock(&x->lock);
	return over;
}

/* --- the request's body --- */

bool exchange_body(struct exchange *x, const char *p, size_t n)
{
	size_t held = atomic_fetch_add(&x->host->body_bytes, n) + n;
	if (held > x->host->max_bodies) {
		atomic_fetch_sub(&x->host->body_bytes, n);
		return false;
	}
	buf_put(&x->body, p, n);
	return true;
}

void exchange_body_give(struct exchange *x, const char *text, size_t n)
{
	buf_put(&x->body, text, n);
	atomic_fetch_add(&x->host->body_bytes, x->body.len);
}

void exchange_body_free(struct exchange *x)
{
	atomic_fetch_sub(&x->host->body_bytes, x->body.len);
	buf_fini(&x->body);
}

/* --- replies --- */

void exchange_reply_locked(struct exchange *x, unsigned status, struct buf *json)
{
	buf_fini(&x->out);
	x->out = *json;
	*json = (struct buf){0};
	x->status = status;
	x->phase = EXCHANGE_REPLY;
	x->over = true;
	x->out_head = 0;
	count_unread(x);
	wake(x);
}

void exchange_reply(struct exchange *x, unsigned status, struct buf *json)
{
	pthread_mutex_lock(&x->lock);
	exchange_reply_locked(x, status, json);
	pthread_mutex_unlock(&x->lock);
}

void exchange_reply_as(struct exchange *x, unsigned status, const char *type, struct buf *body)
{
	pthread_mutex_lock(&x->lock);
	x->type = type;
	exchange_reply_locked(x, status, body);
	pthread_mutex_unlock(&x->lock);
}

void exchange_reply_content(struct exchange *x, const char *type, uint64_t bytes, size_t part,
			    MHD_ContentReaderCallback read)
{
	struct buf none = {0};
	x->content_bytes = bytes;
	x->content_part = part;
	x->content_read = read;
	exchange_reply_as(x, MHD_HTTP_OK, type, &none);
}

/* Return the id that the header request-id or x-request-id has. */
static const char *id_of(const struct exchange *x)
{
	return x->drawn_id[0] ? x->drawn_id : x->request_id[0] ? x->request_id : x->id;
}

static void put_error(const struct exchange *x, struct buf *b, const struct http_failure *f)
{
	if (x->errors)
		x->errors(b, f);
	else
		http_error_openai(b, f);
}

static void note_error(struct exchange *x, const char *type, const char *code)
{
	snprintf(x->error, sizeof x->error, "%s", code ? code : type);
}

void exchange_error(struct exchange *x, unsigned status, const char *type, const char *param,
		    const char *code, const char *fmt, ...)
{
	char message[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(message, sizeof message, fmt, ap);
	va_end(ap);
	struct buf json = {0};
	put_error(x, &json, &(struct http_failure){status, type, param, code, message, id_of(x)});
	pthread_mutex_lock(&x->lock);
	note_error(x, type, code);
	exchange_reply_locked(x, status, &json);
	pthread_mutex_unlock(&x->lock);
}

void exchange_fail(struct exchange *x, enum code code, const char *param, const char *why)
{
	struct http_error e = http_error_of(code);
	exchange_error(x, e.status, e.type, param, e.code, "%s", why);
}

void exchange_error_locked(struct exchange *x, unsigned status, const char *type, const char *code,
			   const char *message)
{
	const struct http_failure f = {status, type, NULL, code, message, id_of(x)};
	struct buf json = {0};
	note_error(x, type, code);
	if (x->phase != EXCHANGE_STREAM) {
		put_error(x, &json, &f);
		exchange_reply_locked(x, status, &json);
		return;
	}
	if (!x->work || !x->work->error || !x->work->error(x, &f)) {
		buf_puts(&x->out, "data: ");
		http_error_openai(&x->out, &f);
		buf_puts(&x->out, "\n\ndata: [DONE]\n\n");
	}
	x->over = true;
	count_unread(x);
	wake(x);
}

/* --- streams --- */

void exchange_stream(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	x->phase = EXCHANGE_STREAM;
	x->endless = true;
	x->status = MHD_HTTP_OK;
	wake(x);
	pthread_mutex_unlock(&x->lock);
}

int exchange_push(struct exchange *x, const struct buf *bytes, size_t max_unread)
{
	int rc = 0;
	pthread_mutex_lock(&x->lock);
	if (x->dead || x->over)
		rc = -EPIPE;
	else if (x->out.len - x->out_head > max_unread)
		rc = -EAGAIN;
	if (!rc) {
		buf_put(&x->out, bytes->p, bytes->len);
		count_unread(x);
		wake(x);
	}
	pthread_mutex_unlock(&x->lock);
	return rc;
}

void exchange_written_locked(struct exchange *x, size_t unread_before)
{
	size_t unread = count_unread(x);
	bool crowded = atomic_load(&x->host->unread_bytes) > x->host->max_unread_all;
	/* A single write may exceed the fair share. */
	if (unread > x->host->max_unread || (crowded && unread_before > UNREAD_FAIR)) {
		log_warn("http",
			 "request cancelled request=%s unread_bytes=%zu reason=\"the client does not read\"",
			 x->id, unread);
		kill_locked(x);
	} else if (x->phase == EXCHANGE_STREAM && (unread || x->over)) {
		wake(x);
	}
}

/* --- the connection --- */

void exchange_park(struct exchange *x)
{
	if (x->parked)
		return;
	if (!x->conn) {
		x->parked = true;
		pthread_mutex_lock(&x->lock);
		x->phase = EXCHANGE_WAITING;
		pthread_mutex_unlock(&x->lock);
		return;
	}
	const union MHD_ConnectionInfo *fd =
		MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	x->parked = true;
	pthread_mutex_lock(&x->lock);
	x->phase = EXCHANGE_WAITING;
	if (!x->dead) /* dead: the server is stopping and has already handled this exchange */
		suspend(x);
	pthread_mutex_unlock(&x->lock);
	if (fd)
		x->watch = hangup_add(x->host->hangup, fd->connect_fd, x);
}

bool exchange_wait(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	bool wait = x->phase == EXCHANGE_WAITING && !x->dead;
	if (wait && !x->suspended)
		suspend(x);
	pthread_mutex_unlock(&x->lock);
	return wait;
}

/* End the reader.  libmicrohttpd (0.9.75, epoll) does not check a connection again after its reader has ended
 * until all older connections have gone, unless the connection has its own timeout. */
static ssize_t end(struct exchange *x, ssize_t how)
{
	if (x->conn)
		MHD_set_connection_option(x->conn, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
	return how;
}

ssize_t exchange_cut(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	ssize_t got = end(x, MHD_CONTENT_READER_END_WITH_ERROR);
	pthread_mutex_unlock(&x->lock);
	return got;
}

ssize_t exchange_read(void *cls, uint64_t pos, char *p, size_t max)
{
	struct exchange *x = cls;
	ssize_t got = 0;
	(void)pos; /* reading only moves forward */
	pthread_mutex_lock(&x->lock);
	size_t n = x->out.len - x->out_head;
	if (!n && !x->dead && x->work && x->work->more) {
		x->work->more(x);
		n = count_unread(x);
	}
	if (x->dead) {
		got = end(x, MHD_CONTENT_READER_END_WITH_ERROR);
	} else if (n) {
		n = n < max ? n : max;
		memcpy(p, x->out.p + x->out_head, n);
		x->out_head += n;
		got = (ssize_t)n;
		if (x->out_head == x->out.len) {
			x->out_head = 0;
			if (x->out.cap > OUT_KEEP)
				buf_fini(&x->out);
			else
				buf_clear(&x->out);
		}
		count_unread(x);
	} else if (x->over) {
		/* The last chunk is sent like any other, and another request may follow. */
		got = x->chunked ? MHD_CONTENT_READER_END_OF_STREAM
				 : end(x, MHD_CONTENT_READER_END_OF_STREAM);
	} else {
		suspend(x);
	}
	pthread_mutex_unlock(&x->lock);
	return got;
}

/* Send the last reply or event to one client.  Under the lock. */
static void stop_locked(struct exchange *x)
{
	if (x->dead || x->over)
		return;
	if (x->phase == EXCHANGE_READING)
		kill_locked(x); /* the rest of the request may never come */
	else
		exchange_error_locked(x, MHD_HTTP_SERVICE_UNAVAILABLE, "server_error", "service_stopping",
				      "the service is stopping");
}

/* Return true if libmicrohttpd still has bytes of an exchange to send. */
static bool any_open(struct exchange_host *host)
{
	bool open = false;
	pthread_mutex_lock(&host->lock);
	for (struct exchange *x = host->first; x && !open; x = x->next) {
		pthread_mutex_lock(&x->lock);
		open = x->conn && !x->dead;
		pthread_mutex_unlock(&x->lock);
	}
	pthread_mutex_unlock(&host->lock);
	return open;
}

/* Return true if stopping now would cut the reply of x.  Under the lock. */
static bool drains(const struct exchange *x)
{
	if (!x->conn || x->dead || (x->route && x->route->flags & ROUTE_ENDLESS))
		return false;
	/* Any other body still arriving is refused when it is complete. */
	return x->phase != EXCHANGE_READING || (x->work && x->work->body);
}

uint32_t exchange_n_draining(struct exchange_host *host)
{
	uint32_t n = 0;
	pthread_mutex_lock(&host->lock);
	for (struct exchange *x = host->first; x; x = x->next) {
		pthread_mutex_lock(&x->lock);
		n += drains(x);
		pthread_mutex_unlock(&x->lock);
	}
	pthread_mutex_unlock(&host->lock);
	return n;
}

void exchange_stop_all(struct exchange_host *host)
{
	atomic_store(&host->draining, true);
	pthread_mutex_lock(&host->lock);
	host->stopping = true;
	for (struct exchange *x = host->first; x; x = x->next) {
		pthread_mutex_lock(&x->lock);
		stop_locked(x);
		pthread_mutex_unlock(&x->lock);
	}
	pthread_mutex_unlock(&host->lock);
	for (int ms = 0; ms < STOP_SEND_MS && any_open(host); ms += 5)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	pthread_mutex_lock(&host->lock);
	for (struct exchange *x = host->first; x; x = x->next) {
		pthread_mutex_lock(&x->lock);
		kill_locked(x);
		pthread_mutex_unlock(&x->lock);
		if (!x->conn)
			cancel(x); /* with a connection, closing it cancels the work */
	}
	pthread_mutex_unlock(&host->lock);
}

bool exchange_wait_none(struct exchange_host *host)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_WAIT_S;
	pthread_mutex_lock(&host->lock);
	int rc = 0;
	while (host->n && !rc)
		rc = pthread_cond_timedwait(&host->none, &host->lock, &until);
	bool none = host->n == 0;
	pthread_mutex_unlock(&host->lock);
	return none;
}
