#include "controller/exchange.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "controller/accesslog.h"
#include "controller/apikeys.h"
#include "controller/http_files.h"
#include "controller/jsonw.h"
#include "controller/metrics.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
	STOP_WAIT_S = 10,
	STOP_SEND_MS = 2000, /* for the last words of a service that ends */
	OUT_KEEP = 64 << 10, /* memory that an emptied stream keeps */
	UNREAD_FAIR = 256 << 10, /* what a stream may have unread when all have too much */
};

struct exchange *exchange_new(struct exchange_host *host, struct MHD_Connection *conn)
{
	struct exchange *x = xcalloc(1, sizeof *x);
	x->host = host;
	x->conn = conn;
	x->started_us = clock_us();
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

static void leg_fini(struct leg *l)
{
	submit_free(l->submit);
	free(l->echo);
	free(l->tokens);
	for (uint32_t i = 0; l->said && i < l->n_outputs; i++)
		said_fini(&l->said[i]);
	free(l->said);
	free(l->offset);
	buf_fini(&l->choices);
	buf_fini(&l->prompt_logprobs);
}

void exchange_ref(struct exchange *x)
{
	atomic_fetch_add(&x->refs, 1);
}

/* The leg's job has ended, or there will be none: what the key has used is known, its place is free.
 * Under the lock, and before the client can have all of the reply, after which it may send the next
 * request at once. */
static void settle_key(struct exchange *x, struct leg *l)
{
	if (!x->key_jobs || l->settled)
		return;
	l->settled = true;
	if (l->n_generated)
		apikey_charge(x->key, l->n_generated, clock_us());
	apikey_end(x->key);
}

void exchange_unref(struct exchange *x)
{
	if (atomic_fetch_sub(&x->refs, 1) != 1)
		return;
	struct exchange_host *host = x->host;
	if (x->line)
		x->line->gone(x, x->line->user);
	/* First out of the list: exchange_stop_all() must not find it half taken apart. */
	pthread_mutex_lock(&host->lock);
	if (x->next)
		x->next->prev = x->prev;
	if (x->prev)
		x->prev->next = x->next;
	else
		host->first = x->next;
	pthread_mutex_unlock(&host->lock);
	exchange_body_free(x);
	upload_free(x->upload);
	for (size_t i = 0; i < x->n_legs; i++) {
		settle_key(x, &x->legs[i]); /* of those that were never handed over */
		leg_fini(&x->legs[i]);
	}
	free(x->legs);
	free(x->model);
	free(x->forced);
	buf_fini(&x->out);
	pthread_mutex_destroy(&x->lock);
	free(x);
	pthread_mutex_lock(&host->lock);
	if (--host->n == 0)
		pthread_cond_broadcast(&host->none);
	pthread_mutex_unlock(&host->lock);
}

/* Under the lock, whenever out has changed: what is unread, of this one and of all. */
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

/* Suspending and waking: under the lock. */

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

/* No byte more: the connection is cut, also where libmicrohttpd waits for it to take bytes. */
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

/* Jobs that still run lose their listener.  Not under the lock: it calls the front end. */
static void cancel(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	bool handed_over = x->handed_over; /* otherwise the legs may be in the making */
	pthread_mutex_unlock(&x->lock);
	if (!handed_over)
		return;
	for (size_t i = 0; i < x->n_legs; i++) {
		struct leg *l = &x->legs[i];
		pthread_mutex_lock(&x->lock);
		bool now = l->submitted && !l->finished && !l->unlistened;
		if (now)
			l->unlistened = true;
		pthread_mutex_unlock(&x->lock);
		if (now)
			front_unlisten(x->host->front, l->listener);
	}
}

/* Under the lock. */
static void count_request(const struct exchange *x, bool cut)
{
	enum metric_counter c = cut               ? METRIC_HTTP_CUT
				: x->status == 429 ? METRIC_HTTP_429
				: x->status >= 500 ? METRIC_HTTP_5XX
				: x->status >= 400 ? METRIC_HTTP_4XX
						   : METRIC_HTTP_2XX;
	metrics_add(x->host->svc->metrics, c, 1);
	accesslog_write(x->host->log, x, cut);
}

void exchange_close(struct exchange *x, bool cut)
{
	hangup_del(x->host->hangup, x->watch);
	x->watch = 0;
	pthread_mutex_lock(&x->lock);
	count_request(x, cut || x->dead);
	x->dead = x->over = true;
	x->conn = NULL;
	buf_fini(&x->out);
	x->out_head = 0;
	count_unread(x);
	pthread_mutex_unlock(&x->lock);
	cancel(x);
	exchange_unref(x);
}

void exchange_gone(void *user)
{
	struct exchange *x = user;
	pthread_mutex_lock(&x->lock);
	/* One that has all of its reply to come may well have closed its side. */
	bool now = !x->over;
	if (now)
		kill_locked(x);
	pthread_mutex_unlock(&x->lock);
	if (now)
		cancel(x);
}

/* The request's body. */

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

void exchange_body_free(struct exchange *x)
{
	atomic_fetch_sub(&x->host->body_bytes, x->body.len);
	buf_fini(&x->body);
}

/* Replies. */

static void reply_locked(struct exchange *x, unsigned status, struct buf *json)
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
	reply_locked(x, status, json);
	pthread_mutex_unlock(&x->lock);
}

void exchange_reply_as(struct exchange *x, unsigned status, const char *type, struct buf *body)
{
	pthread_mutex_lock(&x->lock);
	x->type = type;
	reply_locked(x, status, body);
	pthread_mutex_unlock(&x->lock);
}

void exchange_stream(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	x->phase = EXCHANGE_STREAM;
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
	openai_error(&json, type, param, code, message);
	pthread_mutex_lock(&x->lock);
	note_error(x, type, code);
	reply_locked(x, status, &json);
	pthread_mutex_unlock(&x->lock);
}

void exchange_fail(struct exchange *x, enum code code, const char *param, const char *why)
{
	struct openai_status s = openai_status_of(code);
	exchange_error(x, s.status, s.type, param, s.code, "%s", why);
}

/* Events: on the front end's thread, under the lock. */

static void chunk_begin(struct exchange *x)
{
	buf_puts(&x->out, "data: ");
}

static void chunk_end(struct exchange *x)
{
	struct openai_usage so_far = x->usage;
	so_far.completion_tokens = x->streamed_tokens;
	openai_end_chunk(&x->out, &x->shape, x->continuous_usage ? &so_far : NULL);
	buf_puts(&x->out, "\n\n");
}

static struct openai_prompt leg_prompt(const struct leg *l, const struct job_event *e)
{
	return (struct openai_prompt){
		.echo = l->echo,
		.echo_n = l->echo_n,
		.tokens = l->tokens,
		.n_tokens = l->n_prompt,
		.logprobs = e->prompt_logprobs,
		.echo_logprobs = l->x->echo_logprobs && l->tokens,
	};
}

static void leg_accepted(struct leg *l, const struct job_event *e)
{
	struct exchange *x = l->x;
	x->usage.prompt_tokens += e->prompt_tokens;
	x->n_accepted++;
	snprintf(l->job, sizeof l->job, "%s", e->job);
	if (!x->stream)
		return;
	struct openai_prompt p = leg_prompt(l, e);
	for (uint32_t i = 0; i < l->n_outputs; i++) {
		if (!x->shape.chat && !p.echo)
			break;
		chunk_begin(x);
		if (x->shape.chat)
			openai_chunk_role(&x->out, &x->shape, l->first + i);
		else
			openai_chunk_echo(&x->out, &x->shape, l->first + i, &p, &l->offset[i]);
		chunk_end(x);
	}
	if (x->n_accepted == x->n_legs) {
		x->phase = EXCHANGE_STREAM;
		x->status = MHD_HTTP_OK;
	}
}

static void leg_delta(struct leg *l, const struct job_event *e)
{
	struct exchange *x = l->x;
	const struct output_view *d = &e->delta;
	if (!x->stream || d->index >= l->n_outputs)
		return;
	x->streamed_tokens += d->n_tokens;
	struct said *a = l->said ? &l->said[d->index] : NULL;
	if (a && d->text_n)
		said_push(a, d->text, d->text_n);
	if (a && d->finish != FINISH_NONE)
		said_end(a);
	/* Text that is held back gives no chunk, unless its tokens are to be shown. */
	bool news = a ? said_has_news(a) : d->text_n > 0;
	if (!news && d->finish == FINISH_NONE && !x->shape.logprobs && !x->shape.return_token_ids)
		return;
	chunk_begin(x);
	openai_chunk_delta(&x->out, &x->shape, l->first + d->index, d, a, &l->offset[d->index]);
	chunk_end(x);
	if (a)
		said_told(a);
}

static void finish_stream(struct exchange *x)
{
	if (x->shape.usage_null || x->return_timing) {
		chunk_begin(x);
		openai_chunk_usage(&x->out, &x->shape, x->shape.usage_null ? &x->usage : NULL,
				   x->return_timing ? &x->timing : NULL);
		buf_puts(&x->out, "\n\n");
	}
	buf_puts(&x->out, "data: [DONE]\n\n");
	x->over = true;
}

static void finish_body(struct exchange *x)
{
	struct buf b = {0};
	openai_begin(&b, &x->shape);
	buf_puts(&b, "\"choices\":[");
	for (size_t i = 0; i < x->n_legs; i++) {
		if (i)
			buf_putc(&b, ',');
		buf_put(&b, x->legs[i].choices.p, x->legs[i].choices.len);
		buf_fini(&x->legs[i].choices);
	}
	buf_puts(&b, "],\"usage\":");
	openai_usage(&b, &x->usage);
	if (x->legs[0].prompt_logprobs.len) {
		buf_puts(&b, ",\"prompt_logprobs\":");
		buf_put(&b, x->legs[0].prompt_logprobs.p, x->legs[0].prompt_logprobs.len);
	}
	if (x->return_timing)
		openai_put_timing(&b, &x->timing);
	buf_putc(&b, '}');
	reply_locked(x, MHD_HTTP_OK, &b);
}

static int64_t longer(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void leg_done(struct leg *l, const struct job_event *e)
{
	struct exchange *x = l->x;
	struct openai_timing *t = &x->timing;
	t->queued_us = longer(t->queued_us, e->queued_us);
	t->first_token_us = longer(t->first_token_us, e->first_token_us);
	t->total_us = longer(t->total_us, e->total_us);
	for (uint32_t i = 0; i < e->n_outputs; i++)
		x->finishes |= 1u << e->outputs[i].finish;
	x->usage.completion_tokens += x->no_output ? 0 : e->completion_tokens;
	x->usage.cached_tokens += e->cached_tokens;
	x->usage.class_changed = x->usage.class_changed || e->class_changed;
	if (!x->stream) {
		struct openai_prompt p = leg_prompt(l, e);
		for (uint32_t i = 0; i < e->n_outputs; i++) {
			struct output_view shown = e->outputs[i];
			const struct output_view *o = &shown;
			if (x->no_output) {
				shown.text_n = shown.n_tokens = 0;
				shown.finish = FINISH_LENGTH;
			}
			struct said *a = l->said ? &l->said[o->index] : NULL;
			if (a) {
				said_push(a, o->text, o->text_n);
				said_end(a);
			}
			if (i)
				buf_putc(&l->choices, ',');
			openai_choice(&l->choices, &x->shape, l->first + o->index, o, a, &p);
		}
		if (x->shape.chat && x->shape.prompt_logprobs && p.logprobs)
			openai_prompt_logprobs(&l->prompt_logprobs, &x->shape, &p);
	}
	if (++x->n_done < x->n_legs)
		return;
	if (x->stream)
		finish_stream(x);
	else
		finish_body(x);
}

/* What a stream ends with when it fails. */
static void put_last_error(struct exchange *x, const struct buf *json)
{
	chunk_begin(x);
	buf_put(&x->out, json->p, json->len);
	buf_puts(&x->out, "\n\ndata: [DONE]\n\n");
	x->over = true;
}

static void leg_error(struct leg *l, const struct job_event *e)
{
	struct exchange *x = l->x;
	struct openai_status s = openai_status_of(e->code);
	struct buf json = {0};
	x->finishes |= 1u << FINISH_ERROR;
	note_error(x, s.type, s.code);
	openai_error(&json, s.type, NULL, s.code, e->why);
	if (x->phase == EXCHANGE_STREAM) {
		put_last_error(x, &json);
	} else {
		reply_locked(x, s.status, &json);
	}
	buf_fini(&json);
}

static void leg_event(void *user, const struct job_event *e)
{
	struct leg *l = user;
	struct exchange *x = l->x;
	pthread_mutex_lock(&x->lock);
	if (e->kind == JOB_DELTA)
		l->n_generated += e->delta.n_tokens;
	if (e->kind == JOB_DONE)
		l->n_generated = e->completion_tokens;
	if (e->kind == JOB_DONE || e->kind == JOB_ERROR) {
		l->finished = true;
		settle_key(x, l);
	}
	bool was_over = x->over;
	size_t waiting = x->counted; /* one event alone may be larger */
	if (!was_over) {
		switch (e->kind) {
		case JOB_ACCEPTED:
			leg_accepted(l, e);
			break;
		case JOB_DELTA:
			leg_delta(l, e);
			break;
		case JOB_DONE:
			leg_done(l, e);
			break;
		case JOB_ERROR:
			leg_error(l, e);
			break;
		}
		size_t unread = count_unread(x);
		bool crowded = atomic_load(&x->host->unread_bytes) > x->host->max_unread_all;
		if (unread > x->host->max_unread || (crowded && waiting > UNREAD_FAIR)) {
			log_warn("http", "request %s cancelled: the client does not read, unread_bytes=%zu",
				 x->shape.id, unread);
			kill_locked(x);
		} else if (x->phase == EXCHANGE_STREAM && (unread || x->over)) {
			wake(x);
		}
	}
	bool now = x->over && !was_over;
	pthread_mutex_unlock(&x->lock);
	if (now)
		cancel(x);
}

static void leg_gone(void *user)
{
	struct leg *l = user;
	struct exchange *x = l->x;
	pthread_mutex_lock(&x->lock);
	settle_key(x, l);
	pthread_mutex_unlock(&x->lock);
	exchange_unref(x);
}

/* The connection's side. */

void exchange_line_key(char out[EXCHANGE_KEY_SIZE], const char *key, size_t n_legs, size_t leg)
{
	if (n_legs > 1)
		snprintf(out, EXCHANGE_KEY_SIZE, "%s/%zu", key, leg);
	else
		snprintf(out, EXCHANGE_KEY_SIZE, "%s", key);
}

void exchange_park(struct exchange *x)
{
	if (x->parked)
		return;
	if (x->line) {
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
	if (!x->dead) /* the server stops, and has been here already */
		suspend(x);
	pthread_mutex_unlock(&x->lock);
	if (fd)
		x->watch = hangup_add(x->host->hangup, fd->connect_fd, x);
}

void exchange_submit(struct exchange *x)
{
	exchange_park(x);
	pthread_mutex_lock(&x->lock);
	x->handed_over = true;
	pthread_mutex_unlock(&x->lock);
	for (size_t i = 0; i < x->n_legs; i++) {
		struct leg *l = &x->legs[i];
		pthread_mutex_lock(&x->lock);
		bool over = x->over;
		l->listener = front_listener_id(x->host->front);
		pthread_mutex_unlock(&x->lock);
		if (over)
			break; /* an earlier leg was refused */
		exchange_ref(x);
		struct listener on = {leg_event, leg_gone, l, l->listener};
		front_submit(x->host->front, &l->submit, &on);
		/* Only now: front_unlisten() of what was not submitted would be lost. */
		pthread_mutex_lock(&x->lock);
		l->submitted = true;
		pthread_mutex_unlock(&x->lock);
	}
	pthread_mutex_lock(&x->lock);
	bool over = x->over;
	pthread_mutex_unlock(&x->lock);
	if (over)
		cancel(x);
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

/* libmicrohttpd (0.9.75, epoll) leaves a connection that its reader has ended where it is, until those
 * that are older have gone.  One that has a time limit of its own it looks at again. */
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
	(void)pos; /* only ever forward */
	pthread_mutex_lock(&x->lock);
	size_t n = x->out.len - x->out_head;
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
		/* The last chunk is sent as any other, and another request may follow. */
		got = x->chunked ? MHD_CONTENT_READER_END_OF_STREAM : end(x, MHD_CONTENT_READER_END_OF_STREAM);
	} else {
		suspend(x);
	}
	pthread_mutex_unlock(&x->lock);
	return got;
}

/* Under the lock: the last words to one client. */
static void stop_locked(struct exchange *x)
{
	static const char code[] = "service_stopping";
	if (x->dead || x->over)
		return;
	if (x->phase == EXCHANGE_READING) {
		/* It may never say the rest. */
		kill_locked(x);
		return;
	}
	struct buf json = {0};
	openai_error(&json, "server_error", NULL, code, "the service is stopping");
	note_error(x, "server_error", code);
	if (x->phase == EXCHANGE_STREAM) {
		put_last_error(x, &json);
		count_unread(x);
		wake(x);
	} else {
		reply_locked(x, MHD_HTTP_SERVICE_UNAVAILABLE, &json);
	}
	buf_fini(&json);
}

/* True: libmicrohttpd has something of theirs to send yet. */
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

void exchange_stop_all(struct exchange_host *host)
{
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
