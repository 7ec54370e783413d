/* What the front end asks the engine, and how long it waits for the answers. */
#include "controller/front.h"

#include "tests/demo_service.h"
#include "tests/wire/fake_engine.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct demo demo;
static void *zmq;
static struct front *front;
static struct fake_engine engine;

/* What was said, by the front end's thread. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	int n_orders, n_status;
	bool none; /* the last status was given up */
} said = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void on_status(void *user, const struct engine_status *s)
{
	(void)user;
	pthread_mutex_lock(&said.lock);
	said.n_status++;
	said.none = !s;
	pthread_cond_signal(&said.more);
	pthread_mutex_unlock(&said.lock);
}

static void on_order(void *user, enum code code, const char *why)
{
	(void)user, (void)code, (void)why;
	pthread_mutex_lock(&said.lock);
	said.n_orders++;
	pthread_mutex_unlock(&said.lock);
}

static void await_status(int n)
{
	pthread_mutex_lock(&said.lock);
	while (said.n_status < n)
		pthread_cond_wait(&said.more, &said.lock);
	pthread_mutex_unlock(&said.lock);
}

static void start(void)
{
	struct front_config cfg = {0};
	char why[256];
	demo_open(&demo);
	zmq = zmq_ctx_new();
	cr_assert_eq(front_start(zmq, &demo.svc, &cfg, &front, why, sizeof why), 0, "%s", why);
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

/* An order may take minutes; whoever asks for the status meanwhile is not kept waiting by it. */
Test(front, a_status_behind_an_order_is_given_up_when_its_own_time_is_over)
{
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	c->kind = ENGINE_SCALE;
	c->n_replicas = 2;
	params_init(&c->params);
	atomic_store(&engine.silent, true);
	front_order(front, &c, on_order, NULL);
	front_status(front, on_status, NULL);
	await_status(1);
	cr_expect(said.none);
	cr_expect_eq(said.n_orders, 0, "the order is the engine's to end");
	/* And the next ones are answered. */
	atomic_store(&engine.silent, false);
	front_status(front, on_status, NULL);
	await_status(2);
	cr_expect_not(said.none);
	cr_expect_eq(said.n_orders, 0);
}
