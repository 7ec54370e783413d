/* workers.c - the paths of workers: the engine with its worker bus, and workers, each in a thread of this
 * process, that load the model, run plans and exit.  This thread is the front end and the operator, paused:
 * its calls do not fail. */
#include "base/alloc.h"
#include "controller/fleet/engine.h"
#include "formats/config.h"
#include "tests/inject/cases.h"
#include "tests/inject/inject.h"
#include "tests/testdata.h"
#include "worker/link.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

static uint32_t n_vocab;

void workers_prepare(void)
{
	struct why why;
	struct model_config c;
	if (model_config_load(repofile("models/demo"), &c, &why)) {
		fprintf(stderr, "sweep: %s\n", why.text);
		exit(2);
	}
	n_vocab = (uint32_t)c.n_vocab;
	model_config_fini(&c);
}

/* This thread's own sends must not fail. */
int __real_zmq_send(void *s, const void *p, size_t n, int flags);

enum {
	WORKERS_MAX = 4,
	CONTEXT = 64,
	TURN_MS = 20,
	/* Time after which a worker without a stop message is stopped here: its controller has exited. */
	STOP_MS = 2000,
	WAIT_MS = 60000, /* longer than any timeout; a longer wait is a hang */
	EXIT_HANGS = 3,
};

struct hand {
	pthread_t thread;
	struct link_args args;
	struct why why;
	int rc;
	_Atomic bool ended;
};

struct crew {
	void *zmq, *events, *commands;
	struct engine *engine;
	char bus[128];
	struct hand hands[WORKERS_MAX];
	_Atomic unsigned n_hands;
	unsigned n_retired; /* by a drain command */
};

static void *hand_main(void *arg)
{
	struct hand *h = arg;
	h->rc = link_run(&h->args, &h->why);
	atomic_store(&h->ended, true);
	return NULL;
}

static void start_hand(struct crew *w)
{
	struct hand *h = &w->hands[atomic_load(&w->n_hands)];
	h->args = (struct link_args){
		.bus = w->bus, .device = "cpu", .n_threads = 1, .late_ms = 5000, .grace_ms = 2 * WAIT_MS};
	int rc = pthread_create(&h->thread, NULL, hand_main, h);
	if (rc) {
		fprintf(stderr, "a worker's thread: %s\n", strerror(rc));
		abort();
	}
	atomic_fetch_add(&w->n_hands, 1);
}

/* Start workers as the supervisor does; called on the engine's thread. */
static void on_notice(void *user, const struct engine_notice *n)
{
	struct crew *w = user;
	if (n->kind == ENGINE_NOTICE_SCALE)
		while (atomic_load(&w->n_hands) < n->n_workers && atomic_load(&w->n_hands) < WORKERS_MAX)
			start_hand(w);
}

/* Return why no worker is left to carry out the command; NULL: there is one. */
static const char *no_worker_left(const struct crew *w)
{
	unsigned ended = 0;
	const char *why = "";
	for (unsigned i = 0; i < atomic_load(&w->n_hands); i++)
		if (atomic_load(&w->hands[i].ended)) {
			ended++;
			why = w->hands[i].rc ? w->hands[i].why.text : "a worker was stopped";
		}
	return ended > w->n_retired ? why : NULL;
}

static void hangs(const char *what)
{
	fprintf(stderr, "%s: no end in %d ms\n", what, WAIT_MS);
	_exit(EXIT_HANGS);
}

static void command(struct crew *w, struct engine_cmd *c)
{
	if (__real_zmq_send(w->commands, &c, sizeof(struct engine_cmd *), 0) < 0) {
		perror("a command");
		abort();
	}
}

static struct engine_cmd *new_command(enum engine_cmd_kind kind)
{
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	params_init(&c->params);
	c->kind = kind;
	c->wait_us = WAIT_MS / 3 * 1000LL;
	return c;
}

/* Wait for the next event of these kinds; it is the caller's.  NULL: no worker is left; why has the
 * reason. */
static struct engine_event *await(struct crew *w, unsigned kinds, const char *what, struct why *why)
{
	for (int ms = 0; ms < WAIT_MS; ms += TURN_MS) {
		struct engine_event *e;
		/* Check before taking events, so that the last events of a worker are still received. */
		const char *why_none = no_worker_left(w);
		while (zmq_recv(w->events, &e, sizeof(struct engine_event *), 0) > 0) {
			if (kinds & 1u << e->kind && (e->kind != ENGINE_STATE || e->ready))
				return e;
			engine_event_free(e);
		}
		if (why_none) {
			err_why(why, 0, "%s: %s", what, why_none);
			return NULL;
		}
	}
	hangs(what);
	return NULL;
}

static int await_code(struct crew *w, unsigned kinds, const char *what, struct why *why)
{
	struct engine_event *e = await(w, kinds, what, why);
	int rc = !e ? -EPIPE : e->code ? -EIO : 0;
	if (e && rc)
		err_why(why, 0, "%s: %s", what, e->why);
	engine_event_free(e);
	return rc;
}

/* ---- commands ---- */

static int job(struct crew *w, uint64_t number, struct why *why)
{
	static const uint32_t prompt[] = {5, 6, 7, 8, 9};
	struct engine_cmd *c = new_command(ENGINE_SUBMIT);
	c->job = number;
	c->tokens = xmemdup(prompt, sizeof prompt);
	c->n_tokens = sizeof prompt / sizeof *prompt;
	c->params.max_tokens = 3;
	c->params.ignore_eos = true;
	command(w, c);
	return await_code(w, 1u << ENGINE_REFUSED | 1u << ENGINE_JOB_DONE | 1u << ENGINE_JOB_FAILED, "job",
			  why);
}

static int scale(struct crew *w, uint32_t n, struct why *why)
{
	struct engine_cmd *c = new_command(ENGINE_SCALE);
	c->n_replicas = n;
	command(w, c);
	return await_code(w, 1u << ENGINE_ORDER_DONE, "scale", why);
}

static int drain(struct crew *w, uint64_t worker, struct why *why)
{
	struct engine_cmd *c = new_command(ENGINE_DRAIN);
	c->worker = worker;
	w->n_retired++;
	command(w, c);
	return await_code(w, 1u << ENGINE_ORDER_DONE, "drain", why);
}

static int status(struct crew *w, struct why *why)
{
	struct engine_cmd *c = new_command(ENGINE_STATUS);
	c->n_cells = 8;
	command(w, c);
	return await_code(w, 1u << ENGINE_STATUS_REPLY, "status", why);
}

/* ---- lifecycle ---- */

static int crew_start(struct crew *w, unsigned tp, struct why *why)
{
	int ms = TURN_MS;
	*w = (struct crew){.zmq = zmq_ctx_new()};
	snprintf(w->bus, sizeof w->bus, "ipc://%s/bus", inject_dir());
	w->events = zmq_socket(w->zmq, ZMQ_PULL);
	zmq_setsockopt(w->events, ZMQ_RCVTIMEO, &ms, sizeof ms);
	if (zmq_bind(w->events, ENGINE_OUT))
		abort();
	struct engine_config c = {
		.compute = "f32",
		.n_vocab = n_vocab,
		.model_context = CONTEXT,
		.block_size = 16,
		.max_seqs = 4,
		.max_rows = 16,
		.preempt = "auto",
		.kv_bytes = 1 << 20,
		.swap_bytes = 1 << 18,
		.max_jobs = 4,
		.max_tokens = 10000,
		.worker_wait_us = WAIT_MS / 2 * 1000LL,
		.silent_us = WAIT_MS / 2 * 1000LL,
		.tp = tp,
		.supervised = true,
		.on_notice = on_notice,
		.on_notice_user = w,
	};
	snprintf(c.model, sizeof c.model, "%s", repofile("models/demo"));
	snprintf(c.bus, sizeof c.bus, "%s", w->bus);
	inject_pause(false);
	int rc = engine_start(w->zmq, &c, &w->engine, why);
	inject_pause(true);
	if (rc)
		return rc;
	w->commands = zmq_socket(w->zmq, ZMQ_PUSH);
	if (zmq_connect(w->commands, ENGINE_IN))
		abort();
	for (unsigned i = 0; i < tp; i++)
		start_hand(w);
	return 0;
}

static void crew_stop(struct crew *w)
{
	struct engine_event *e;
	if (w->engine) {
		command(w, new_command(ENGINE_QUIT));
		engine_join(w->engine);
	}
	for (unsigned i = 0; i < atomic_load(&w->n_hands); i++)
		for (int ms = 0; !atomic_load(&w->hands[i].ended); ms += TURN_MS) {
			if (ms == STOP_MS)
				link_stop();
			if (ms >= WAIT_MS)
				hangs("the end of a worker");
			nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000L}, NULL);
		}
	for (unsigned i = 0; i < atomic_load(&w->n_hands); i++)
		pthread_join(w->hands[i].thread, NULL);
	while (zmq_recv(w->events, &e, sizeof(struct engine_event *), ZMQ_DONTWAIT) > 0)
		engine_event_free(e);
	zmq_close(w->events);
	if (w->commands)
		zmq_close(w->commands);
	zmq_ctx_term(w->zmq);
}

/* Check that a worker that failed has a reason, even if the engine has ended. */
static int crew_end(struct crew *w, int rc, struct why *why)
{
	crew_stop(w);
	for (unsigned i = 0; i < atomic_load(&w->n_hands); i++)
		if (w->hands[i].rc && !w->hands[i].why.text[0]) {
			rc = w->hands[i].rc;
			err_why(why, 0, "%s", "");
		}
	inject_pause(false);
	return rc;
}

/* ---- cases ---- */

int workers_serve(struct why *why)
{
	struct crew w;
	inject_pause(true);
	int rc = crew_start(&w, 1, why);
	if (!rc)
		rc = job(&w, 1, why);
	return crew_end(&w, rc, why);
}

int workers_scale(struct why *why)
{
	struct crew w;
	inject_pause(true);
	int rc = crew_start(&w, 1, why);
	if (!rc)
		rc = scale(&w, 2, why);
	if (!rc)
		rc = status(&w, why);
	if (!rc)
		rc = drain(&w, 1, why);
	if (!rc)
		rc = job(&w, 1, why);
	return crew_end(&w, rc, why);
}

/* Run two ranks, which meet and reduce. */
int workers_group(struct why *why)
{
	struct crew w;
	inject_pause(true);
	int rc = crew_start(&w, 2, why);
	if (!rc)
		rc = job(&w, 1, why);
	return crew_end(&w, rc, why);
}
