#include "controller/front.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/jobs/jobs.h"
#include "controller/jobsock/jobsock.h"
#include "controller/jobs/journal.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum {
	EVENTS_BATCH = 1024, /* events of the engine per iteration, so that requests are read in between */
	STATUS_WAIT_US = 5 * 1000 * 1000,
	SWEEP_US = 1000 * 1000,
	RETRY_MS = 10,
	DRAIN_MS = 5, /* between two counts of the draining jobs */
};

/* A query that the engine has not answered yet, or an order in progress. */
struct pending_query {
	struct pending_query *next;
	uint64_t tag;
	int64_t until_us; /* INT64_MAX: an order, which the engine itself expires */
	/* Exactly one callback is set. */
	void (*on_status)(void *user, const struct engine_status *s);
	void (*on_snapshot)(void *user, struct mailbox_snapshot *s);
	void (*on_done)(void *user, enum code code, const char *why);
	void (*on_explained)(void *user, json_t *explained, enum code code, const char *why);
	uint32_t max_jobs;      /* limit for a snapshot */
	char job[JOBS_ID_SIZE]; /* id of the job to explain */
	void *user;
};

struct front {
	void *zmq;
	const struct service *svc;
	pthread_t thread;
	bool running; /* the thread was started */
	char jobs_endpoint[256];
	void (*on_ready)(void *user, uint32_t max_context, uint64_t full_kv_bytes);
	void *on_ready_user;
	struct mailbox *mailbox;

	/* Used by the front end's thread only: */
	void *events; /* PULL, ENGINE_OUT */
	void *engine; /* PUSH, ENGINE_IN; NULL before front_connect() */
	struct jobs *jobs;
	struct journal *journal;                     /* NULL: no journal */
	struct jobsock *sock;                        /* NULL: no job socket */
	struct pending_query *queries, **last_query; /* oldest first */
	uint64_t last_tag;
	struct engine_cmd **unsent; /* commands queued before front_connect(), or that ZeroMQ refused */
	size_t n_unsent, unsent_cap;
	bool ready; /* a replica serves */
	bool draining;
	int64_t counted_us; /* when the draining jobs were last counted */
	bool quit;
};

/* --- commands to the engine --- */

/* Send the unsent commands in order.  The socket has no high-water mark: the number of jobs bounds the
 * commands in flight.  A command that cannot be sent for lack of memory is retried: if it were dropped, its
 * client would wait forever. */
static void send_unsent(struct front *f)
{
	size_t n = 0;
	while (f->engine && n < f->n_unsent && engine_msg_send(f->engine, f->unsent[n]) == 0)
		n++;
	if (f->engine && n < f->n_unsent)
		log_warn("front", "commands to the engine wait waiting=%zu reason=\"%s\"", f->n_unsent - n,
			 zmq_strerror(zmq_errno()));
	if (n)
		memmove(f->unsent, f->unsent + n, (f->n_unsent - n) * sizeof(struct engine_cmd *));
	f->n_unsent -= n;
}

static void send_engine(void *user, struct engine_cmd *c)
{
	struct front *f = user;
	array_grow(f->unsent, f->unsent_cap, f->n_unsent + 1);
	f->unsent[f->n_unsent++] = c;
	send_unsent(f);
}

static void connect_engine(struct front *f)
{
	int zero = 0;
	assert(!f->engine);
	void *s = zmq_socket(f->zmq, ZMQ_PUSH);
	if (!s || zmq_setsockopt(s, ZMQ_SNDHWM, &zero, sizeof zero) ||
	    zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof zero) || zmq_connect(s, ENGINE_IN)) {
		log_error("front", "engine unreachable reason=\"%s\"", zmq_strerror(zmq_errno()));
		if (s)
			zmq_close(s);
		return;
	}
	f->engine = s;
	send_unsent(f);
}

/* --- queries to the engine --- */

static struct pending_query *query_new(struct front *f, const struct mailbox_cmd *c, int64_t until_us)
{
	struct pending_query *q = xcalloc(1, sizeof *q);
	q->tag = ++f->last_tag;
	q->until_us = until_us;
	q->on_status = c->on_status;
	q->on_snapshot = c->on_snapshot;
	q->on_done = c->on_done;
	q->on_explained = c->on_explained;
	q->max_jobs = c->max_jobs;
	q->user = c->user;
	*f->last_query = q;
	f->last_query = &q->next;
	return q;
}

static void query_status(struct front *f, const struct mailbox_cmd *c)
{
	struct engine_cmd *e = xcalloc(1, sizeof *e);
	e->kind = ENGINE_STATUS;
	e->tag = query_new(f, c, clock_us() + STATUS_WAIT_US)->tag;
	e->n_cells = c->n_cells;
	params_init(&e->params);
	send_engine(f, e);
}

static void send_order(struct front *f, struct mailbox_cmd *c)
{
	if (f->draining) {
		c->on_done(c->user, E_NOT_READY, SERVICE_ENDING);
		return;
	}
	struct engine_cmd *e = c->order;
	c->order = NULL;
	e->tag = query_new(f, c, INT64_MAX)->tag;
	send_engine(f, e);
}

/* Return the link to the query with this tag; NULL: it has expired. */
static struct pending_query **query_find(struct front *f, uint64_t tag)
{
	for (struct pending_query **at = &f->queries; *at; at = &(*at)->next)
		if ((*at)->tag == tag)
			return at;
	return NULL;
}

static struct pending_query *query_take(struct front *f, struct pending_query **at)
{
	struct pending_query *q = *at;
	*at = q->next;
	if (!*at)
		f->last_query = at;
	return q;
}

static void answer_snapshot(struct front *f, const struct pending_query *q, struct engine_status **status)
{
	struct jobs_counts n;
	jobs_counts(f->jobs, &n);
	struct mailbox_snapshot s = {.status = status ? *status : NULL,
				     .jobs = q->max_jobs ? jobs_now(f->jobs, q->max_jobs, clock_us()) : NULL,
				     .n_queued = n.n_queued,
				     .n_running = n.n_running,
				     .n_finished = n.n_finished};
	q->on_snapshot(q->user, &s);
	if (status)
		*status = s.status;
	json_decref(s.jobs);
}

/* Answer a query with the status; status NULL: the engine did not answer.  The caller keeps *status unless a
 * snapshot takes it and sets *status to NULL. */
static void answer(struct front *f, struct pending_query **at, struct engine_status **status)
{
	struct pending_query *q = query_take(f, at);
	if (q->on_snapshot)
		answer_snapshot(f, q, status);
	else if (q->on_status)
		q->on_status(q->user, status ? *status : NULL);
	else if (q->on_explained)
		q->on_explained(q->user, NULL, E_NOT_READY, "the engine does not answer");
	else
		q->on_done(q->user, E_NOT_READY, "the service ends");
	free(q);
}

static void on_order_done(struct front *f, const struct engine_event *e)
{
	struct pending_query **at = query_find(f, e->tag);
	if (!at)
		return;
	struct pending_query *q = query_take(f, at);
	q->on_done(q->user, e->code, e->why);
	free(q);
}

static void on_status_reply(struct front *f, struct engine_event *e)
{
	struct pending_query **at = query_find(f, e->tag);
	if (at)
		answer(f, at, &e->status);
}

/* --- timelines of jobs --- */

static void explain(struct front *f, const struct mailbox_cmd *c)
{
	struct why why;
	struct job *job = jobs_find(f->jobs, c->job);
	if (job && !job_is_of(job, c->owner[0] ? c->owner : NULL))
		job = NULL;
	if (!job) {
		const bool unread = jobs_unread(f->jobs, &why);
		if (unread)
			err_prefix(&why, 0, "no such job, but those of the journal are not known yet");
		else
			err_why(&why, 0, "no such job");
		c->on_explained(c->user, NULL, unread ? E_NOT_READY : E_NO_SUCH_JOB, why.text);
		return;
	}
	if (job_has_ended(job)) {
		json_t *explained = jobs_explain(job, NULL, clock_us());
		c->on_explained(c->user, explained, CODE_OK, "");
		json_decref(explained);
		return;
	}
	struct engine_cmd *e = xcalloc(1, sizeof *e);
	struct pending_query *q = query_new(f, c, clock_us() + STATUS_WAIT_US);
	snprintf(q->job, sizeof q->job, "%s", job_id(job));
	e->kind = ENGINE_EXPLAIN;
	e->tag = q->tag;
	e->job = job_number(job);
	params_init(&e->params);
	send_engine(f, e);
}

static void on_explained(struct front *f, const struct engine_event *e)
{
	struct pending_query **at = query_find(f, e->tag);
	if (!at)
		return;
	struct pending_query *q = query_take(f, at);
	const struct job *job = jobs_find(f->jobs, q->job);
	json_t *explained = job ? jobs_explain(job, e->times, clock_us()) : NULL;
	q->on_explained(q->user, explained, job ? CODE_OK : E_NO_SUCH_JOB, "no such job");
	json_decref(explained);
	free(q);
}

static void expire_queries(struct front *f, int64_t now)
{
	for (struct pending_query **at = &f->queries; *at;) {
		if ((*at)->until_us <= now)
			answer(f, at, NULL);
		else
			at = &(*at)->next;
	}
}

/* --- events and commands --- */

static void on_state(struct front *f, const struct engine_event *e)
{
	uint32_t most = f->svc->model_context;
	if (e->max_context && e->max_context < most)
		most = e->max_context;
	mailbox_set_max_context(f->mailbox, most);
	mailbox_set_ready(f->mailbox, e->ready);
	log_info("front", "state ready=%d max_context=%u", e->ready, most);
	if (e->ready && !f->ready && f->on_ready)
		f->on_ready(f->on_ready_user, most, e->full_kv_bytes);
	f->ready = e->ready;
}

/* Handle a bounded number of events.  True: there may be more. */
static bool read_events(struct front *f)
{
	for (int i = 0; i < EVENTS_BATCH; i++) {
		struct engine_event *e = engine_msg_recv(f->events);
		if (!e)
			return false;
		if (e->kind == ENGINE_STATE)
			on_state(f, e);
		else if (e->kind == ENGINE_WAITS)
			mailbox_set_waits(f->mailbox, e->why);
		else if (e->kind == ENGINE_STATUS_REPLY)
			on_status_reply(f, e);
		else if (e->kind == ENGINE_ORDER_DONE)
			on_order_done(f, e);
		else if (e->kind == ENGINE_EXPLAINED)
			on_explained(f, e);
		else
			jobs_event(f->jobs, e, clock_us());
		engine_event_free(e);
	}
	return true;
}

/* Cancel a job.  Not found: with c->owner, a job of another owner; without, a job submitted with a key of the
 * job socket. */
static void cancel_job(struct front *f, const struct mailbox_cmd *c)
{
	struct job *job = jobs_find(f->jobs, c->job);
	if (job && !c->owner && !job_is_of(job, NULL) && !job_api_key(job))
		job = NULL;
	if (job && c->owner && !job_is_of(job, c->owner[0] ? c->owner : NULL))
		job = NULL;
	if (job)
		jobs_cancel(f->jobs, job);
	if (c->on_cancelled)
		c->on_cancelled(c->user, job ? CODE_OK : E_NO_SUCH_JOB);
}

static void dispatch(struct front *f, struct mailbox_cmd *c)
{
	switch (c->kind) {
	case MAILBOX_SUBMIT:
		jobs_submit(f->jobs, &c->submit, &c->listener, clock_us());
		break;
	case MAILBOX_UNLISTEN:
		jobs_unlisten(f->jobs, c->listener_id);
		break;
	case MAILBOX_CANCEL:
		cancel_job(f, c);
		break;
	case MAILBOX_EXPLAIN:
		explain(f, c);
		break;
	case MAILBOX_STATUS:
	case MAILBOX_SNAPSHOT:
		query_status(f, c);
		break;
	case MAILBOX_ORDER:
		send_order(f, c);
		break;
	case MAILBOX_CALL:
		c->call(c->user);
		break;
	case MAILBOX_CONNECT:
		connect_engine(f);
		break;
	case MAILBOX_SETTLED:
		jobs_written(f->jobs, c->job, c->end, c->rc, c->why, clock_us());
		break;
	case MAILBOX_DRAIN:
		f->draining = true;
		jobs_drain(f->jobs);
		break;
	case MAILBOX_QUIT:
		f->quit = true;
		break;
	}
}

static void read_mailbox(struct front *f, bool last)
{
	struct mailbox_cmd *next;
	for (struct mailbox_cmd *c = mailbox_take(f->mailbox, last); c; c = next) {
		next = c->next;
		dispatch(f, c);
		mailbox_cmd_free(c);
	}
}

static long wait_ms(const struct front *f)
{
	int64_t at = jobs_save_at(f->jobs), now = clock_us();
	if (at <= now)
		return 0;
	if (f->engine && f->n_unsent)
		return RETRY_MS;
	if (f->draining)
		return DRAIN_MS;
	return at - now < SWEEP_US ? (at - now) / 1000 + 1 : SWEEP_US / 1000;
}

static void count_draining(struct front *f, int64_t now)
{
	if (!f->draining || now - f->counted_us < DRAIN_MS * 1000)
		return;
	f->counted_us = now;
	mailbox_set_n_draining(f->mailbox, jobs_n_draining(f->jobs));
}

static void run_loop(struct front *f)
{
	zmq_pollitem_t items[5] = {{.socket = f->events, .events = ZMQ_POLLIN},
				   {.fd = mailbox_fd(f->mailbox), .events = ZMQ_POLLIN}};
	int n_items = 2;
	if (f->sock) {
		jobsock_poll(f->sock, &items[2].socket, &items[3].socket, &items[4].fd);
		items[2].events = items[3].events = items[4].events = ZMQ_POLLIN;
		n_items = 5;
	}
	bool more = false;
	int64_t sweep_us = 0;
	while (!f->quit) {
		zmq_poll(items, n_items, more ? 0 : wait_ms(f));
		int64_t now = clock_us();
		mailbox_set_loop(f->mailbox, now);
		if (f->n_unsent)
			send_unsent(f);
		more = read_events(f);
		read_mailbox(f, false);
		if (f->sock) {
			jobsock_reap(f->sock);
			more |= jobsock_read(f->sock, now);
			jobsock_reap(f->sock);
		}
		count_draining(f, now);
		if (now >= jobs_save_at(f->jobs))
			jobs_save(f->jobs);
		if (now >= sweep_us) {
			jobs_sweep(f->jobs, now);
			expire_queries(f, now);
			sweep_us = now + SWEEP_US;
		}
	}
}

/* Drain and close the socket.  zmq_close() completes in the background; unbinding first frees the name
 * immediately. */
static void close_events(struct front *f)
{
	struct engine_event *e;
	if (!f->events)
		return;
	while ((e = engine_msg_recv(f->events)))
		engine_event_free(e);
	zmq_unbind(f->events, ENGINE_OUT);
	zmq_close(f->events);
}

/* Wait for requests of the job socket that HTTP still holds.  HTTP has cancelled them, but a thread may be
 * processing one; their replies arrive in the mailbox. */
static void await_lines(struct front *f)
{
	struct pollfd wake = {.fd = mailbox_fd(f->mailbox), .events = POLLIN};
	if (jobsock_n_lines(f->sock))
		log_info("front", "waiting for HTTP requests requests=%u", jobsock_n_lines(f->sock));
	while (jobsock_n_lines(f->sock)) {
		poll(&wake, 1, -1);
		read_mailbox(f, true);
	}
}

static void *front_thread(void *arg)
{
	struct front *f = arg;
	run_loop(f);
	mailbox_set_ready(f->mailbox, false);
	/* Ends of jobs that are being written to the journal are reported once they are on disk. */
	if (f->journal)
		journal_end(f->journal);
	/* Closes the mailbox: from here on mailbox_submit() refuses on the caller's thread. */
	read_mailbox(f, true);
	jobs_end(f->jobs, clock_us());
	expire_queries(f, INT64_MAX);
	if (f->sock) {
		jobsock_reap(f->sock);
		await_lines(f);
	}
	jobsock_close(f->sock);
	f->sock = NULL;
	if (f->engine)
		zmq_close(f->engine);
	return NULL;
}

/* Called on the journal's thread. */
static void on_written(void *user, const char *id, bool end, int rc, const char *why)
{
	const struct front *f = user;
	mailbox_written(f->mailbox, id, end, rc, why);
}

/* --- lifecycle --- */

static int bind_events(struct front *f)
{
	int zero = 0;
	f->events = zmq_socket(f->zmq, ZMQ_PULL);
	/* No high-water mark: the tokens of the accepted jobs bound the events, and the engine must never
	 * wait for the front end. */
	if (!f->events || zmq_setsockopt(f->events, ZMQ_RCVHWM, &zero, sizeof zero) ||
	    zmq_setsockopt(f->events, ZMQ_LINGER, &zero, sizeof zero) || zmq_bind(f->events, ENGINE_OUT))
		return -zmq_errno();
	return 0;
}

void front_stop(struct front *f)
{
	if (!f->running)
		return;
	f->running = false;
	mailbox_quit(f->mailbox);
	pthread_join(f->thread, NULL);
	/* The journal's thread calls on_written() until every write has been reported, including failed
	 * ones. */
	if (f->journal)
		journal_end(f->journal);
}

void front_free(struct front *f)
{
	if (!f)
		return;
	front_stop(f);
	close_events(f);
	jobs_free(f->jobs);
	for (size_t i = 0; i < f->n_unsent; i++)
		engine_cmd_free(f->unsent[i]);
	free(f->unsent);
	mailbox_free(f->mailbox);
	free(f);
}

static int open_jobsock(struct front *f, const struct front_config *cfg, struct why *why)
{
	struct jobsock_config c = {.endpoint = cfg->jobs,
				   .insecure = cfg->insecure,
				   .no_orders = cfg->no_orders,
				   .zap = cfg->zap};
	return jobsock_open(f->zmq, f->svc, &c, f->mailbox, f->jobs, &f->sock, why);
}

int front_start(void *zmq_context, const struct service *svc, const struct front_config *cfg,
		struct front **out, struct why *why)
{
	struct front *f = xcalloc(1, sizeof *f);
	f->zmq = zmq_context;
	f->svc = svc;
	f->last_query = &f->queries;
	f->journal = cfg->journal;
	f->on_ready = cfg->on_ready;
	f->on_ready_user = cfg->on_ready_user;
	f->jobs = jobs_new(svc, send_engine, f);
	f->mailbox = mailbox_new(svc->model_context);
	int rc = f->mailbox ? bind_events(f) : -errno;
	if (rc)
		err_why(why, rc, "front end: %s", zmq_strerror(-rc));
	if (!rc && cfg->jobs[0])
		rc = open_jobsock(f, cfg, why);
	if (!rc && cfg->journal)
		rc = jobs_recover(f->jobs, cfg->journal, on_written, clock_us(), why);
	if (rc)
		goto fail;
	if (f->sock)
		snprintf(f->jobs_endpoint, sizeof f->jobs_endpoint, "%s", jobsock_endpoint(f->sock));
	rc = -pthread_create(&f->thread, NULL, front_thread, f);
	if (rc) {
		err_why(why, rc, "front end: cannot start its thread");
		goto fail;
	}
	f->running = true;
	*out = f;
	return 0;
fail:
	jobsock_close(f->sock);
	/* Jobs resumed from the journal are left for the next start, and the journal's thread must not call
	 * back into a freed front end. */
	jobs_end(f->jobs, clock_us());
	if (f->journal)
		journal_end(f->journal);
	front_free(f);
	return rc;
}

void front_connect(struct front *f)
{
	mailbox_connect(f->mailbox);
}

struct mailbox *front_mailbox(const struct front *f)
{
	return f->mailbox;
}

const char *front_jobs_endpoint(const struct front *f)
{
	return f->jobs_endpoint;
}
