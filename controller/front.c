#include "controller/front.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/jobs.h"
#include "controller/jobsock.h"
#include "controller/journal.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

enum {
	EVENTS_BATCH = 1024, /* of the engine's, between two looks at the requests */
	STATUS_WAIT_US = 5 * 1000 * 1000,
	SWEEP_US = 1000 * 1000,
	RETRY_MS = 10,
};

/* What other threads ask for. */
enum note_kind {
	NOTE_SUBMIT,
	NOTE_UNLISTEN,
	NOTE_STATUS,
	NOTE_SNAPSHOT,
	NOTE_CANCEL,
	NOTE_ORDER,
	NOTE_CONNECT,
	NOTE_SETTLED,
	NOTE_QUIT,
};

struct note {
	struct note *next;
	enum note_kind kind;
	struct submit *submit; /* NOTE_SUBMIT; owned */
	struct listener listener;
	uint64_t id; /* NOTE_UNLISTEN */
	void (*status)(void *user, const struct engine_status *s);
	struct engine_cmd *order; /* NOTE_ORDER; owned */
	void (*done)(void *user, enum code code, const char *why);
	uint32_t n_cells, max_jobs; /* NOTE_SNAPSHOT */
	void (*snapshot)(void *user, struct front_snapshot *s);
	char *owner; /* NOTE_CANCEL: owned or NULL */
	void (*cancelled)(void *user, enum code code);
	void *user;
	/* NOTE_SETTLED: a durable job is on the disk, or is not.  NOTE_CANCEL: job. */
	char job[JOBS_ID_SIZE];
	bool end;
	int rc;
	char why[256];
};

/* A question to the engine that is not answered yet, or an order that is not carried out. */
struct asked {
	struct asked *next;
	uint64_t tag;
	int64_t until_us; /* INT64_MAX: the engine itself says when it gives up */
	void (*status)(void *user, const struct engine_status *s); /* NULL: a snapshot or an order */
	void (*done)(void *user, enum code code, const char *why);
	void (*snapshot)(void *user, struct front_snapshot *s);
	uint32_t max_jobs;
	void *user;
};

struct front {
	void *zmq;
	const struct service *svc;
	pthread_t thread;
	char jobs_endpoint[256];

	/* Any thread. */
	atomic_uint_fast64_t last_listener;
	atomic_bool ready;
	atomic_uint max_context;
	pthread_mutex_t lock; /* of the notes and of stopped */
	struct note *notes, **last_note;
	bool stopped;
	int wake; /* eventfd */

	/* The front end's thread. */
	void *events; /* PULL, ENGINE_OUT */
	void *engine; /* PUSH, ENGINE_IN; NULL before front_connect() */
	struct jobs *jobs;
	struct journal *journal; /* NULL: none */
	struct jobsock *sock;              /* NULL: none */
	struct asked *asked, **last_asked; /* oldest first */
	uint64_t last_tag;
	struct engine_cmd **early; /* commands from before front_connect(), or that could not be sent yet */
	size_t n_early, early_cap;
	bool quit;
};

/* --- to the engine --- */

/* Sends what waits, in its order.  No high-water mark: what is under way is bounded by the number of
 * jobs.  What cannot be sent for want of memory is not lost, or its client would wait for ever: it is
 * tried again. */
static void send_early(struct front *f)
{
	size_t n = 0;
	while (f->engine && n < f->n_early &&
	       zmq_send(f->engine, &f->early[n], sizeof(struct engine_cmd *), ZMQ_DONTWAIT) >= 0)
		n++;
	if (f->engine && n < f->n_early)
		log_warn("front", "the engine takes no command, trying again waiting=%zu error=%s", f->n_early - n,
			 zmq_strerror(zmq_errno()));
	if (n)
		memmove(f->early, f->early + n, (f->n_early - n) * sizeof(struct engine_cmd *));
	f->n_early -= n;
}

static void send_engine(void *user, struct engine_cmd *c)
{
	struct front *f = user;
	if (f->n_early == f->early_cap) {
		f->early_cap = f->early_cap ? 2 * f->early_cap : 16;
		f->early = xrealloc(f->early, f->early_cap, sizeof(struct engine_cmd *));
	}
	f->early[f->n_early++] = c;
	send_early(f);
}

static void connect_engine(struct front *f)
{
	int zero = 0;
	assert(!f->engine);
	void *s = zmq_socket(f->zmq, ZMQ_PUSH);
	if (!s || zmq_setsockopt(s, ZMQ_SNDHWM, &zero, sizeof zero) ||
	    zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof zero) || zmq_connect(s, ENGINE_IN)) {
		log_error("front", "cannot reach the engine error=%s", zmq_strerror(zmq_errno()));
		if (s)
			zmq_close(s);
		return;
	}
	f->engine = s;
	send_early(f);
}

/* --- status --- */

static struct asked *ask(struct front *f, const struct note *n, int64_t until_us)
{
	struct asked *a = xcalloc(1, sizeof *a);
	a->tag = ++f->last_tag;
	a->until_us = until_us;
	a->status = n->status;
	a->done = n->done;
	a->snapshot = n->snapshot;
	a->max_jobs = n->max_jobs;
	a->user = n->user;
	*f->last_asked = a;
	f->last_asked = &a->next;
	return a;
}

static void ask_status(struct front *f, const struct note *n)
{
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	c->kind = ENGINE_STATUS;
	c->tag = ask(f, n, clock_us() + STATUS_WAIT_US)->tag;
	c->n_cells = n->n_cells;
	params_init(&c->params);
	send_engine(f, c);
}

static void answer_snapshot(struct front *f, const struct asked *a, struct engine_status **status)
{
	struct jobs_counts n;
	jobs_counts(f->jobs, &n);
	struct front_snapshot s = {.status = status ? *status : NULL,
				   .jobs = a->max_jobs ? jobs_now(f->jobs, a->max_jobs, clock_us()) : NULL,
				   .n_queued = n.n_queued,
				   .n_running = n.n_running,
				   .n_finished = n.n_finished};
	a->snapshot(a->user, &s);
	if (status)
		*status = s.status;
	json_decref(s.jobs);
}

static void give_order(struct front *f, struct note *n)
{
	struct engine_cmd *c = n->order;
	n->order = NULL;
	c->tag = ask(f, n, INT64_MAX)->tag;
	send_engine(f, c);
}

static struct asked *take_asked(struct front *f, struct asked **at)
{
	struct asked *a = *at;
	*at = a->next;
	if (!*at)
		f->last_asked = at;
	return a;
}

/* status: NULL when there is none; left with its owner, unless a snapshot takes it. */
static void answer_asked(struct front *f, struct asked **at, struct engine_status **status)
{
	struct asked *a = take_asked(f, at);
	if (a->snapshot)
		answer_snapshot(f, a, status);
	else if (a->status)
		a->status(a->user, status ? *status : NULL);
	else
		a->done(a->user, E_NOT_READY, "the service ends");
	free(a);
}

static void on_order_done(struct front *f, const struct engine_event *e)
{
	for (struct asked **at = &f->asked; *at; at = &(*at)->next)
		if ((*at)->tag == e->tag) {
			struct asked *a = take_asked(f, at);
			a->done(a->user, e->code, e->why);
			free(a);
			return;
		}
}

static void on_status_reply(struct front *f, struct engine_event *e)
{
	for (struct asked **at = &f->asked; *at; at = &(*at)->next)
		if ((*at)->tag == e->tag) {
			answer_asked(f, at, &e->status);
			return;
		}
}

static void give_up_asked(struct front *f, int64_t now)
{
	for (struct asked **at = &f->asked; *at;) {
		if ((*at)->until_us <= now)
			answer_asked(f, at, NULL);
		else
			at = &(*at)->next;
	}
}

/* --- what comes in --- */

static void on_state(struct front *f, const struct engine_event *e)
{
	uint32_t most = f->svc->model_context;
	if (e->max_context && e->max_context < most)
		most = e->max_context;
	atomic_store(&f->max_context, most);
	atomic_store(&f->ready, e->ready);
	log_info("front", "state ready=%d max_context=%u", e->ready, most);
}

/* True: there may be more. */
static bool read_events(struct front *f)
{
	for (int i = 0; i < EVENTS_BATCH; i++) {
		struct engine_event *e;
		if (zmq_recv(f->events, &e, sizeof(struct engine_event *), ZMQ_DONTWAIT) !=
		    sizeof(struct engine_event *))
			return false;
		if (e->kind == ENGINE_STATE)
			on_state(f, e);
		else if (e->kind == ENGINE_STATUS_REPLY)
			on_status_reply(f, e);
		else if (e->kind == ENGINE_ORDER_DONE)
			on_order_done(f, e);
		else
			jobs_event(f->jobs, e, clock_us());
		engine_event_free(e);
	}
	return true;
}

static void note_free(struct note *n)
{
	submit_free(n->submit);
	engine_cmd_free(n->order);
	free(n->owner);
	free(n);
}

static void cancel_job(struct front *f, const struct note *n)
{
	struct job *job = jobs_find(f->jobs, n->job);
	/* Another's is none that he could know of; one of the job socket's keys is nobody's here. */
	if (job && !job_is_of(job, NULL))
		job = NULL;
	if (job && n->owner && (!job_user(job) || strcmp(job_user(job), n->owner) != 0))
		job = NULL;
	if (job)
		jobs_cancel(f->jobs, job);
	if (n->cancelled)
		n->cancelled(n->user, job ? CODE_OK : E_NO_SUCH_JOB);
}

static void carry_out(struct front *f, struct note *n)
{
	switch (n->kind) {
	case NOTE_SUBMIT:
		jobs_submit(f->jobs, &n->submit, &n->listener, clock_us());
		break;
	case NOTE_UNLISTEN:
		jobs_unlisten(f->jobs, n->id);
		break;
	case NOTE_CANCEL:
		cancel_job(f, n);
		break;
	case NOTE_STATUS:
	case NOTE_SNAPSHOT:
		ask_status(f, n);
		break;
	case NOTE_ORDER:
		give_order(f, n);
		break;
	case NOTE_CONNECT:
		connect_engine(f);
		break;
	case NOTE_SETTLED:
		jobs_settled(f->jobs, n->job, n->end, n->rc, n->why, clock_us());
		break;
	case NOTE_QUIT:
		f->quit = true;
		break;
	}
	note_free(n);
}

static struct note *take_notes(struct front *f, bool last)
{
	eventfd_t ignored;
	eventfd_read(f->wake, &ignored);
	pthread_mutex_lock(&f->lock);
	struct note *n = f->notes;
	f->notes = NULL;
	f->last_note = &f->notes;
	f->stopped = last;
	pthread_mutex_unlock(&f->lock);
	return n;
}

static void read_notes(struct front *f, bool last)
{
	struct note *next;
	for (struct note *n = take_notes(f, last); n; n = next) {
		next = n->next;
		carry_out(f, n);
	}
}

static long wait_ms(const struct front *f)
{
	int64_t at = jobs_save_at(f->jobs), now = clock_us();
	if (at <= now)
		return 0;
	if (f->engine && f->n_early)
		return RETRY_MS;
	return at - now < SWEEP_US ? (at - now) / 1000 + 1 : SWEEP_US / 1000;
}

static void run_loop(struct front *f)
{
	zmq_pollitem_t items[5] = {{.socket = f->events, .events = ZMQ_POLLIN},
				   {.fd = f->wake, .events = ZMQ_POLLIN}};
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
		if (f->n_early)
			send_early(f);
		more = read_events(f);
		read_notes(f, false);
		if (f->sock) {
			jobsock_reap(f->sock);
			more |= jobsock_read(f->sock, now);
			jobsock_reap(f->sock);
		}
		if (now >= jobs_save_at(f->jobs))
			jobs_save(f->jobs);
		if (now >= sweep_us) {
			jobs_sweep(f->jobs, now);
			give_up_asked(f, now);
			sweep_us = now + SWEEP_US;
		}
	}
}

/* ZeroMQ closes behind our back: unbound first, the name is free at once. */
static void close_events(struct front *f)
{
	struct engine_event *e;
	if (!f->events)
		return;
	while (zmq_recv(f->events, &e, sizeof(struct engine_event *), ZMQ_DONTWAIT) ==
	       sizeof(struct engine_event *))
		engine_event_free(e);
	zmq_unbind(f->events, ENGINE_OUT);
	zmq_close(f->events);
}

static void *front_thread(void *arg)
{
	struct front *f = arg;
	run_loop(f);
	atomic_store(&f->ready, false);
	/* Ends on their way to the disk are told when they are there. */
	if (f->journal)
		journal_end(f->journal);
	/* From here on front_submit() refuses by itself. */
	read_notes(f, true);
	jobs_end(f->jobs, clock_us());
	give_up_asked(f, INT64_MAX);
	if (f->sock)
		jobsock_reap(f->sock);
	jobsock_close(f->sock);
	f->sock = NULL;
	if (f->engine)
		zmq_close(f->engine);
	return NULL;
}

/* --- any thread --- */

/* False: the thread has ended, the note is still the caller's. */
static bool leave_note(struct front *f, struct note *n)
{
	pthread_mutex_lock(&f->lock);
	bool stopped = f->stopped;
	if (!stopped) {
		*f->last_note = n;
		f->last_note = &n->next;
		eventfd_write(f->wake, 1);
	}
	pthread_mutex_unlock(&f->lock);
	return !stopped;
}

static struct note *note_new(enum note_kind kind)
{
	struct note *n = xcalloc(1, sizeof *n);
	n->kind = kind;
	return n;
}

uint64_t front_listener_id(struct front *f)
{
	return atomic_fetch_add(&f->last_listener, 1) + 1;
}

void front_submit(struct front *f, struct submit **s, const struct listener *l)
{
	struct note *n = note_new(NOTE_SUBMIT);
	n->submit = *s;
	n->listener = *l;
	*s = NULL;
	if (leave_note(f, n))
		return;
	struct job_event e = {.kind = JOB_ERROR, .code = E_INTERNAL, .why = "the service is stopping"};
	l->event(l->user, &e);
	if (l->gone)
		l->gone(l->user);
	note_free(n);
}

void front_unlisten(struct front *f, uint64_t listener_id)
{
	struct note *n = note_new(NOTE_UNLISTEN);
	n->id = listener_id;
	if (!leave_note(f, n))
		note_free(n);
}

void front_status(struct front *f, void (*cb)(void *user, const struct engine_status *s), void *user)
{
	struct note *n = note_new(NOTE_STATUS);
	n->status = cb;
	n->user = user;
	if (leave_note(f, n))
		return;
	cb(user, NULL);
	note_free(n);
}

void front_order(struct front *f, struct engine_cmd **c,
		 void (*cb)(void *user, enum code code, const char *why), void *user)
{
	struct note *n = note_new(NOTE_ORDER);
	n->order = *c;
	n->done = cb;
	n->user = user;
	*c = NULL;
	if (leave_note(f, n))
		return;
	cb(user, E_NOT_READY, "the service ends");
	note_free(n);
}

void front_snapshot(struct front *f, uint32_t n_cells, uint32_t max_jobs,
		    void (*cb)(void *user, struct front_snapshot *s), void *user)
{
	struct note *n = note_new(NOTE_SNAPSHOT);
	n->n_cells = n_cells;
	n->max_jobs = max_jobs;
	n->snapshot = cb;
	n->user = user;
	if (leave_note(f, n))
		return;
	cb(user, &(struct front_snapshot){0});
	note_free(n);
}

void front_cancel(struct front *f, const char *job, const char *owner,
		  void (*cb)(void *user, enum code code), void *user)
{
	struct note *n = note_new(NOTE_CANCEL);
	/* One that is cut is none that there is. */
	snprintf(n->job, sizeof n->job, "%s", job);
	if (strlen(job) >= sizeof n->job)
		n->job[0] = '\0';
	n->owner = owner ? xstrdup(owner) : NULL;
	n->cancelled = cb;
	n->user = user;
	if (leave_note(f, n))
		return;
	if (cb)
		cb(user, E_INTERNAL);
	note_free(n);
}

bool front_ready(const struct front *f)
{
	return atomic_load(&f->ready);
}

uint32_t front_max_context(const struct front *f)
{
	return atomic_load(&f->max_context);
}

/* On the journal's thread. */
static void on_settled(void *user, const char *id, bool end, int rc, const char *why)
{
	struct note *n = note_new(NOTE_SETTLED);
	snprintf(n->job, sizeof n->job, "%s", id);
	n->end = end;
	n->rc = rc;
	snprintf(n->why, sizeof n->why, "%s", why);
	if (!leave_note(user, n))
		note_free(n);
}

/* --- lifecycle --- */

static int bind_events(struct front *f)
{
	int zero = 0;
	f->events = zmq_socket(f->zmq, ZMQ_PULL);
	/* No high-water mark: what can come is bounded by the tokens of the accepted jobs, and the
	 * engine must not wait for us. */
	if (!f->events || zmq_setsockopt(f->events, ZMQ_RCVHWM, &zero, sizeof zero) ||
	    zmq_setsockopt(f->events, ZMQ_LINGER, &zero, sizeof zero) || zmq_bind(f->events, ENGINE_OUT))
		return -zmq_errno();
	return 0;
}

void front_free(struct front *f)
{
	if (!f)
		return;
	close_events(f);
	jobs_free(f->jobs);
	for (size_t i = 0; i < f->n_early; i++)
		engine_cmd_free(f->early[i]);
	free(f->early);
	pthread_mutex_destroy(&f->lock);
	close(f->wake);
	free(f);
}

int front_start(void *zmq_context, const struct service *svc, const struct front_config *cfg,
		struct front **out, char *why, size_t why_n)
{
	struct front *f = xcalloc(1, sizeof *f);
	f->zmq = zmq_context;
	f->svc = svc;
	f->last_note = &f->notes;
	f->last_asked = &f->asked;
	atomic_init(&f->max_context, svc->model_context);
	pthread_mutex_init(&f->lock, NULL);
	f->journal = cfg->journal;
	f->jobs = jobs_new(svc, send_engine, f);
	f->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int rc = f->wake < 0 ? -errno : bind_events(f);
	if (rc)
		err_why(why, why_n, rc, "front end: %s", zmq_strerror(-rc));
	if (!rc && cfg->jobs[0])
		rc = jobsock_open(zmq_context, svc, cfg, f, f->jobs, &f->sock, why,
				  why_n);
	if (!rc && cfg->journal)
		rc = jobs_recover(f->jobs, cfg->journal, on_settled, clock_us(), why, why_n);
	if (rc)
		goto fail;
	if (f->sock)
		snprintf(f->jobs_endpoint, sizeof f->jobs_endpoint, "%s", jobsock_endpoint(f->sock));
	rc = -pthread_create(&f->thread, NULL, front_thread, f);
	if (rc) {
		err_why(why, why_n, rc, "front end: cannot start its thread");
		goto fail;
	}
	*out = f;
	return 0;
fail:
	jobsock_close(f->sock);
	/* What was begun of the jobs in the journal is left to the next life, and its thread is not to call
	 * somebody who is gone. */
	jobs_end(f->jobs, clock_us());
	if (f->journal)
		journal_end(f->journal);
	front_free(f);
	return rc;
}

void front_connect(struct front *f)
{
	leave_note(f, note_new(NOTE_CONNECT));
}

const char *front_jobs_endpoint(const struct front *f)
{
	return f->jobs_endpoint;
}

void front_stop(struct front *f)
{
	leave_note(f, note_new(NOTE_QUIT));
	pthread_join(f->thread, NULL);
	/* The journal's thread calls on_settled() until it has told all, also of a disk that fails. */
	if (f->journal)
		journal_end(f->journal);
}
