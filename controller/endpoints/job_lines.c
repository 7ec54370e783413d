#include "controller/endpoints/job_lines.h"

#include "base/alloc.h"
#include "controller/endpoints/line_exchange.h"
#include "controller/http/http_error.h"
#include "controller/http/prep.h"
#include "controller/jobs/lines.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"
#include "controller/request/request_cost.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
	struct job_lines *lines;
	struct line_request *request; /* owned */
	struct generation_line line;
	struct line_reply reply;
	uint64_t tag;
	struct exchange *x; /* valid while the run is in the list */
	struct run *next, **prev;
};

struct job_lines {
	struct exchange_host *host;
	struct mailbox *mailbox;
	pthread_mutex_t lock; /* guards the list */
	struct run *first;
};

/* --- replies --- */

/* Pass the reply to the client.  On the front end's thread. */
static void deliver(void *user)
{
	struct run *r = user;
	r->request->done(r->request->user, &r->reply);
	buf_fini(&r->reply.body);
	line_request_free(r->request);
	free(r);
}

static void fail(struct run *r, enum code code, const char *why)
{
	r->reply.code = code;
	snprintf(r->reply.why, sizeof r->reply.why, "%s", why);
}

/* Take the reply when the last reference to the exchange is released.  Any thread. */
static void on_gone(struct exchange *x, void *user)
{
	struct run *r = user;
	struct job_lines *l = r->lines;
	pthread_mutex_lock(&l->lock);
	*r->prev = r->next;
	if (r->next)
		r->next->prev = r->prev;
	pthread_mutex_unlock(&l->lock);
	if (x->dead || !x->status) {
		fail(r, E_NOT_READY, SERVICE_ENDING);
	} else if (line_exchange_later(x)) {
		fail(r, x->status == MHD_HTTP_TOO_MANY_REQUESTS ? E_OVERLOADED : E_NOT_READY,
		     x->error[0] ? x->error : "the request is refused for now");
	} else {
		r->reply.status = x->status;
		snprintf(r->reply.id, sizeof r->reply.id, "%s", x->id);
		r->reply.body = x->out;
		x->out = (struct buf){0};
	}
	mailbox_call(l->mailbox, deliver, r);
}

/* --- requests --- */

static void refuse_url(const struct exchange_host *host, struct run *r)
{
	char urls[LINE_EXCHANGE_URLS_SIZE], why[LINE_EXCHANGE_URLS_SIZE + 4];
	line_exchange_urls(host, urls);
	snprintf(why, sizeof why, "url %s", urls);
	r->reply.status = MHD_HTTP_BAD_REQUEST;
	http_error_json(&r->reply.body, "invalid_request_error", "url", NULL, why);
}

static void put(void *user, struct line_request *q, uint64_t tag)
{
	struct job_lines *l = user;
	struct run *r = xcalloc(1, sizeof *r);
	*r = (struct run){.lines = l, .request = q, .tag = tag};
	r->line = (struct generation_line){.priority = q->priority,
					   .owner = "",
					   .peer = q->peer[0] ? q->peer : NULL,
					   .terms = API_KEY_NO_TERMS,
					   .durable = q->durable,
					   .keep = q->keep};
	snprintf(r->line.key, sizeof r->line.key, "%s", q->key);
	const struct http_route *route = line_exchange_route(l->host, q->url);
	struct exchange *x =
		route ? line_exchange_new(l->host, route, &r->line, q->body.p ? q->body.p : "", q->body.len)
		      : NULL;
	buf_fini(&q->body);
	if (!x) {
		if (route)
			fail(r, E_NOT_READY, SERVICE_ENDING);
		else
			refuse_url(l->host, r);
		mailbox_call(l->mailbox, deliver, r);
		return;
	}
	snprintf(x->remote, sizeof x->remote, "%.*s", (int)sizeof x->remote - 1, q->client);
	x->released = on_gone;
	x->released_user = r;
	pthread_mutex_lock(&l->lock);
	r->x = x;
	r->next = l->first;
	r->prev = &l->first;
	if (r->next)
		r->next->prev = &r->next;
	l->first = r;
	pthread_mutex_unlock(&l->lock);
	exchange_park(x);
	prep_put(x, "", request_is_costly(x->body.p, x->body.len));
	exchange_unref(x);
}

/* Abort the request under the lock, so that its exchange stays meanwhile (on_gone() waits). */
static void drop(void *user, uint64_t tag)
{
	struct job_lines *l = user;
	pthread_mutex_lock(&l->lock);
	struct run *r = l->first;
	while (r && r->tag != tag)
		r = r->next;
	if (r)
		exchange_abort(r->x);
	pthread_mutex_unlock(&l->lock);
}

/* --- lifecycle --- */

struct job_lines *job_lines_start(struct exchange_host *host, struct mailbox *mailbox)
{
	struct job_lines *l = xcalloc(1, sizeof *l);
	l->host = host;
	l->mailbox = mailbox;
	pthread_mutex_init(&l->lock, NULL);
	lines_open(host->svc->lines, &(struct lines_server){.put = put, .drop = drop, .user = l});
	return l;
}

void job_lines_quiesce(struct job_lines *l)
{
	if (l)
		lines_close(l->host->svc->lines);
}

void job_lines_free(struct job_lines *l)
{
	if (!l)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l);
}
