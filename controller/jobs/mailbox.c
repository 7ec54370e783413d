#include "controller/jobs/mailbox.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mailbox {
	atomic_uint_fast64_t last_listener;
	atomic_bool ready, draining;
	atomic_uint n_draining;
	atomic_int_fast64_t loop_us;
	atomic_uint max_context;
	pthread_mutex_t lock; /* guards first, last, closed and waits */
	char waits[256];
	struct mailbox_cmd *first, **last;
	bool closed;
	int wake; /* eventfd */
};

/* --- lifecycle --- */

struct mailbox *mailbox_new(uint32_t max_context)
{
	int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake < 0)
		return NULL;
	struct mailbox *m = xcalloc(1, sizeof *m);
	m->last = &m->first;
	m->wake = wake;
	atomic_init(&m->max_context, max_context);
	atomic_init(&m->n_draining, UINT32_MAX);
	atomic_init(&m->loop_us, clock_us());
	pthread_mutex_init(&m->lock, NULL);
	return m;
}

void mailbox_free(struct mailbox *m)
{
	if (!m)
		return;
	while (m->first) {
		struct mailbox_cmd *next = m->first->next;
		mailbox_cmd_free(m->first);
		m->first = next;
	}
	pthread_mutex_destroy(&m->lock);
	close(m->wake);
	free(m);
}

void mailbox_cmd_free(struct mailbox_cmd *c)
{
	submit_free(c->submit);
	engine_cmd_free(c->order);
	free(c->job);
	free(c->owner);
	free(c);
}

/* --- senders --- */

static struct mailbox_cmd *cmd_new(enum mailbox_cmd_kind kind, void *user)
{
	struct mailbox_cmd *c = xcalloc(1, sizeof *c);
	c->kind = kind;
	c->user = user;
	return c;
}

/* Queue a command.  false: the mailbox is closed, and the caller keeps the command.  A CALL is always
 * queued. */
static bool post(struct mailbox *m, struct mailbox_cmd *c)
{
	pthread_mutex_lock(&m->lock);
	bool closed = m->closed && c->kind != MAILBOX_CALL;
	if (!closed) {
		*m->last = c;
		m->last = &c->next;
		eventfd_write(m->wake, 1);
	}
	pthread_mutex_unlock(&m->lock);
	return !closed;
}

static void post_or_free(struct mailbox *m, struct mailbox_cmd *c)
{
	if (!post(m, c))
		mailbox_cmd_free(c);
}

uint64_t mailbox_listener_id(struct mailbox *m)
{
	return atomic_fetch_add(&m->last_listener, 1) + 1;
}

void mailbox_submit(struct mailbox *m, struct submit **s, const struct listener *l)
{
	struct mailbox_cmd *c = cmd_new(MAILBOX_SUBMIT, NULL);
	c->submit = *s;
	c->listener = *l;
	*s = NULL;
	if (post(m, c))
		return;
	struct job_event e = {.kind = JOB_ERROR, .code = E_NOT_READY, .why = "the service is stopping"};
	l->event(l->user, &e);
	if (l->gone)
		l->gone(l->user);
	mailbox_cmd_free(c);
}

void mailbox_unlisten(struct mailbox *m, uint64_t listener_id)
{
	struct mailbox_cmd *c = cmd_new(MAILBOX_UNLISTEN, NULL);
	c->listener_id = listener_id;
	post_or_free(m, c);
}

bool mailbox_ready(const struct mailbox *m)
{
	return atomic_load(&m->ready) && !atomic_load(&m->draining);
}

void mailbox_waits(struct mailbox *m, char *out, size_t n)
{
	pthread_mutex_lock(&m->lock);
	snprintf(out, n, "%s", m->waits);
	pthread_mutex_unlock(&m->lock);
}

bool mailbox_draining(const struct mailbox *m)
{
	return atomic_load(&m->draining);
}

uint32_t mailbox_n_draining(const struct mailbox *m)
{
	return atomic_load(&m->n_draining);
}

uint32_t mailbox_max_context(const struct mailbox *m)
{
	return atomic_load(&m->max_context);
}

int64_t mailbox_loop_us(const struct mailbox *m)
{
	return atomic_load(&m->loop_us);
}

void mailbox_status(struct mailbox *m, void (*cb)(void *user, const struct engine_status *s), void *user)
{
	struct mailbox_cmd *c = cmd_new(MAILBOX_STATUS, user);
	c->on_status = cb;
	if (post(m, c))
		return;
	cb(user, NULL);
	mailbox_cmd_free(c);
}

void mailbox_order(struct mailbox *m, struct engine_cmd **order,
		   void (*cb)(void *user, enum code code, const char *why), void *user)
{
	struct mailbox_cmd *c = cmd_new(MAILBOX_ORDER, user);
	c->order = *order;
	c->on_done = cb;
	*order = NULL;
	if (post(m, c))
		return;
	cb(user, E_NOT_READY, "the service ends");
	mailbox_cmd_free(c);
}

void mailbox_snapshot(struct mailbox *m, uint32_t n_cells, uint32_t max_jobs,
		      void (*cb)(void *user, struct mailbox_snapshot *s), void *user)
{
	struct mailbox_cmd *c = cmd_new(MAILBOX_SNAPSHOT, user);
	c->n_cells = n_cells;
	c->max_jobs = max_jobs;
	c->on_snapshot = cb;
	if (post(m, c))
		return;
	cb(user, &(struct mailbox_snapshot){0});
	mailbox_cmd_free(c);
}

void mailbox_cancel(struct mailbox *m, const char *job, const char *owner,
		    void (*cb)(void *user, enum code code), void *user)
{
	struct mailbox_cmd *c = cmd_new(MAILBOX_CANCEL, user);
	c->job = xstrdup(job);
	c->owner = owner ? xstrdup(owner) : NULL;
	c->on_cancelled = cb;
	if (post(m, c))
		return;
	if (cb)
		cb(user, E_INTERNAL);
	mailbox_cmd_free(c);
}

void mailbox_explain(struct mailbox *m, const char *job, const char *owner,
		     void (*cb)(void *user, json_t *explained, enum code code, const char *why), void *user)
{
	struct mailbox_cmd *c = cmd_new(MAILBOX_EXPLAIN, user);
	c->job = xstrdup(job);
	c->owner = xstrdup(owner);
	c->on_explained = cb;
	if (post(m, c))
		return;
	cb(user, NULL, E_NOT_READY, "the service ends");
	mailbox_cmd_free(c);
}

void mailbox_written(struct mailbox *m, const char *job, bool end, int rc, const char *why)
{
	struct mailbox_cmd *c = cmd_new(MAILBOX_SETTLED, NULL);
	c->job = xstrdup(job);
	c->end = end;
	c->rc = rc;
	snprintf(c->why, sizeof c->why, "%s", why);
	post_or_free(m, c);
}

void mailbox_call(struct mailbox *m, void (*fn)(void *user), void *user)
{
	struct mailbox_cmd *c = cmd_new(MAILBOX_CALL, user);
	c->call = fn;
	post(m, c);
}

void mailbox_connect(struct mailbox *m)
{
	post_or_free(m, cmd_new(MAILBOX_CONNECT, NULL));
}

void mailbox_drain(struct mailbox *m)
{
	atomic_store(&m->draining, true);
	post_or_free(m, cmd_new(MAILBOX_DRAIN, NULL));
}

void mailbox_quit(struct mailbox *m)
{
	post_or_free(m, cmd_new(MAILBOX_QUIT, NULL));
}

/* --- the receiver --- */

int mailbox_fd(const struct mailbox *m)
{
	return m->wake;
}

struct mailbox_cmd *mailbox_take(struct mailbox *m, bool last)
{
	eventfd_t ignored;
	eventfd_read(m->wake, &ignored);
	pthread_mutex_lock(&m->lock);
	struct mailbox_cmd *first = m->first;
	m->first = NULL;
	m->last = &m->first;
	m->closed = last;
	pthread_mutex_unlock(&m->lock);
	return first;
}

void mailbox_set_ready(struct mailbox *m, bool ready)
{
	atomic_store(&m->ready, ready);
}

void mailbox_set_waits(struct mailbox *m, const char *why)
{
	pthread_mutex_lock(&m->lock);
	snprintf(m->waits, sizeof m->waits, "%s", why);
	pthread_mutex_unlock(&m->lock);
}

void mailbox_set_loop(struct mailbox *m, int64_t now_us)
{
	atomic_store(&m->loop_us, now_us);
}

void mailbox_set_n_draining(struct mailbox *m, uint32_t n)
{
	atomic_store(&m->n_draining, n);
}

void mailbox_set_max_context(struct mailbox *m, uint32_t max_context)
{
	atomic_store(&m->max_context, max_context);
}
