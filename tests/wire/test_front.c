/* The front end's queries to the engine: replies, timeouts, and orders in flight. */
#include "controller/front.h"
#include "controller/jobs/mailbox.h"

#include "tests/demo_service.h"
#include "tests/wire/fake_engine.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct demo demo;
static void *zmq;
static struct front *front;
static struct fake_engine engine;

/* Counts of callbacks, updated on the front end's thread. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	int n_orders, n_status, n_snapshots, n_cancelled;
	bool none;                  /* the last status query timed out */
	enum code order, cancelled; /* results of the last order and of the last cancel */
} replies = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void on_status(void *user, const struct engine_status *s)
{
	(void)user;
	pthread_mutex_lock(&replies.lock);
	replies.n_status++;
	replies.none = !s;
	pthread_cond_signal(&replies.more);
	pthread_mutex_unlock(&replies.lock);
}

static void on_order(void *user, enum code code, const char *why)
{
	(void)user, (void)why;
	pthread_mutex_lock(&replies.lock);
	replies.n_orders++;
	replies.order = code;
	pthread_mutex_unlock(&replies.lock);
}

static void on_snapshot(void *user, struct mailbox_snapshot *s)
{
	(void)user;
	pthread_mutex_lock(&replies.lock);
	replies.n_snapshots += !s->status;
	pthread_mutex_unlock(&replies.lock);
}

static void on_job(void *user, const struct job_event *e)
{
	pthread_mutex_lock(&replies.lock);
	if (e->kind == JOB_ACCEPTED)
		snprintf(user, 64, "%s", e->job);
	pthread_cond_signal(&replies.more);
	pthread_mutex_unlock(&replies.lock);
}

static void on_cancelled(void *user, enum code code)
{
	(void)user;
	pthread_mutex_lock(&replies.lock);
	replies.n_cancelled++;
	replies.cancelled = code;
	pthread_cond_signal(&replies.more);
	pthread_mutex_unlock(&replies.lock);
}

static void await_status(int n)
{
	pthread_mutex_lock(&replies.lock);
	while (replies.n_status < n)
		pthread_cond_wait(&replies.more, &replies.lock);
	pthread_mutex_unlock(&replies.lock);
}

/* The announced context, and the context that a client would get at that moment. */
static struct {
	uint32_t announced, given;
} ready;

static void on_ready(void *user, uint32_t max_context, uint64_t full_kv_bytes)
{
	(void)user, (void)full_kv_bytes;
	pthread_mutex_lock(&replies.lock);
	ready.announced = max_context;
	ready.given = mailbox_max_context(front_mailbox(front));
	pthread_cond_signal(&replies.more);
	pthread_mutex_unlock(&replies.lock);
}

static void start(void)
{
	struct front_config cfg = {.on_ready = on_ready};
	struct why why;
	demo_open(&demo);
	demo.svc.model_context = 4096; /* more than the engine's replica holds */
	zmq = zmq_ctx_new();
	cr_assert_eq(front_start(zmq, &demo.svc, &cfg, &front, &why), 0, "%s", why.text);
	fake_start(&engine, zmq);
	front_connect(front);
}

static void stop(void)
{
	front_stop(front);
	fake_stop(&engine);
	front_free(front);
	zmq_ctx_term(zmq);
	demo_close(&demo);
}

TestSuite(front, .init = start, .fini = stop, .timeout = 60);

Test(front, is_announced_with_the_context_that_clients_get)
{
	pthread_mutex_lock(&replies.lock);
	while (!ready.announced)
		pthread_cond_wait(&replies.more, &replies.lock);
	pthread_mutex_unlock(&replies.lock);
	cr_expect_eq(ready.announced, 2048);
	cr_expect_eq(ready.given, 2048);
}

static void send_order(void)
{
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	c->kind = ENGINE_SCALE;
	c->n_replicas = 2;
	params_init(&c->params);
	mailbox_order(front_mailbox(front), &c, on_order, NULL);
}

/* An order may take minutes; status queries queued after it must not wait for it. */
Test(front, status_query_behind_an_order_times_out)
{
	atomic_store(&engine.silent, true);
	send_order();
	mailbox_status(front_mailbox(front), on_status, NULL);
	await_status(1);
	cr_expect(replies.none);
	cr_expect_eq(replies.n_orders, 0, "only the engine ends an order");
	/* Later queries are answered. */
	atomic_store(&engine.silent, false);
	mailbox_status(front_mailbox(front), on_status, NULL);
	await_status(2);
	cr_expect_not(replies.none);
	cr_expect_eq(replies.n_orders, 0);
}

/* Submit a job that hangs; id receives its id when it is accepted. */
static void submit(const char *user, const char *owner, char id[64])
{
	struct submit *s = xcalloc(1, sizeof *s);
	uint64_t listener = mailbox_listener_id(front_mailbox(front));
	params_init(&s->params);
	s->params.max_tokens = 8;
	s->tokens = xcalloc(1, sizeof *s->tokens);
	s->tokens[0] = FAKE_HANGS;
	s->n_tokens = 1;
	s->user = user ? xstrdup(user) : NULL;
	s->owner = owner ? xstrdup(owner) : NULL;
	mailbox_submit(front_mailbox(front), &s, &(struct listener){on_job, NULL, id, listener});
	pthread_mutex_lock(&replies.lock);
	while (!id[0])
		pthread_cond_wait(&replies.more, &replies.lock);
	pthread_mutex_unlock(&replies.lock);
}

static enum code cancel(const char *id, const char *user)
{
	mailbox_cancel(front_mailbox(front), id, user, on_cancelled, NULL);
	pthread_mutex_lock(&replies.lock);
	while (!replies.n_cancelled)
		pthread_cond_wait(&replies.more, &replies.lock);
	replies.n_cancelled = 0;
	enum code code = replies.cancelled;
	pthread_mutex_unlock(&replies.lock);
	return code;
}

/* A client owns a job neither by knowing its id nor by giving its owner's name as user. */
Test(front, only_the_owners_jobs_are_cancelled)
{
	static char alices[64], another[64], nameless[64], of_a_key[64];
	submit("alice", "~alice", alices);
	submit("alice", "~alice", another);
	submit("alice", NULL, nameless);
	submit("alice", "a key of the job socket", of_a_key);
	cr_expect_eq(cancel(alices, "~bob"), E_NO_SUCH_JOB);
	cr_expect_eq(cancel(alices, "alice"), E_NO_SUCH_JOB);
	cr_expect_eq(cancel(alices, ""), E_NO_SUCH_JOB, "without keys, after a start with keys");
	cr_expect_eq(cancel(nameless, "~alice"), E_NO_SUCH_JOB);
	cr_expect_eq(cancel(of_a_key, "~alice"), E_NO_SUCH_JOB);
	cr_expect_eq(cancel(of_a_key, ""), E_NO_SUCH_JOB);
	cr_expect_eq(cancel(of_a_key, NULL), E_NO_SUCH_JOB);
	cr_expect_eq(cancel("", NULL), E_NO_SUCH_JOB);
	cr_expect_eq(cancel("00000000000000000000000000000000", NULL), E_NO_SUCH_JOB);
	cr_expect_eq(atomic_load(&engine.n_cancelled), 0);
	cr_expect_eq(cancel(alices, "~alice"), CODE_OK);
	cr_expect_eq(cancel(another, NULL), CODE_OK);
	cr_expect_eq(cancel(nameless, ""), CODE_OK);
}

/* Clients wait for each query, and the queries' data are freed after front_stop(). */
Test(front, queries_in_progress_are_answered_when_it_stops)
{
	atomic_store(&engine.silent, true);
	send_order();
	mailbox_status(front_mailbox(front), on_status, NULL);
	mailbox_snapshot(front_mailbox(front), 0, 0, on_snapshot, NULL);
	front_stop(front);
	cr_expect_eq(replies.n_orders, 1);
	cr_expect_eq(replies.order, E_NOT_READY);
	cr_expect(replies.n_status == 1 && replies.none);
	cr_expect_eq(replies.n_snapshots, 1);
	/* Later queries are answered at once, as no thread reads the mailbox any more. */
	mailbox_status(front_mailbox(front), on_status, NULL);
	cr_expect_eq(replies.n_status, 2);
}
