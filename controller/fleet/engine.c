#include "controller/fleet/engine.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/fleet/emit.h"
#include "controller/fleet/fleet.h"
#include "controller/fleet/model_server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum {
	QUEUE_PART = 3, /* used by is_full() */
	/* Commands per iteration: a flood of jobs must not hold up running jobs. */
	COMMANDS_MAX = 256,
};

struct engine {
	struct engine_config cfg;
	pthread_t thread;
	void *in, *out; /* PULL, PUSH */
	struct emit *emit;
	struct fleet *fleet;
	bool quit;
};

/* Return whether the parameters are within the limits of beam.h. */
static bool beam_fits(const struct params *p)
{
	return !p->beam_width || (p->beam_width >= p->n && p->beam_width <= PARAMS_N_MAX &&
				  p->n_stop_ids <= PARAMS_BEAM_STOPS_MAX);
}

/* Return whether the queue, or the share of it that the job's account may fill, is full.  An account may
 * queue at most QUEUE_PART times as much as then remains for others: a single account gets three quarters of
 * the queue.  Further accounts divide the rest in the same way; the last place is for an account with nothing
 * queued. */
static bool is_full(const struct engine *e, const struct engine_cmd *c, struct why *why)
{
	struct fleet_queue q = fleet_queue(e->fleet), its = fleet_queue_of(e->fleet, c->account);
	uint64_t n_tokens = q.queued_tokens + c->n_tokens;
	if (q.n_queued >= e->cfg.max_jobs || n_tokens > e->cfg.max_tokens) {
		err_why(why, 0, "the queue is full: %u jobs, %llu tokens wait", q.n_queued,
			(unsigned long long)q.queued_tokens);
		return true;
	}
	uint64_t jobs_left = e->cfg.max_jobs - q.n_queued - 1, tokens_left = e->cfg.max_tokens - n_tokens;
	if (!c->account || !its.n_queued ||
	    (its.n_queued + 1 <= QUEUE_PART * jobs_left &&
	     its.queued_tokens + c->n_tokens <= QUEUE_PART * tokens_left))
		return false;
	err_why(why, 0, "this key's part of the queue is full: %u of its jobs, %llu tokens wait",
		its.n_queued, (unsigned long long)its.queued_tokens);
	return true;
}

static void on_submit(struct engine *e, struct engine_cmd *c, int64_t now_us)
{
	uint64_t total = (uint64_t)c->n_tokens + c->params.max_tokens;
	struct why full;
	/* The replica that held a resumed job may not have returned yet. */
	uint32_t most = c->resumed ? e->cfg.model_context : fleet_max_context(e->fleet);
	if (c->n_tokens == 0 || c->params.max_tokens == 0 || c->params.n == 0 || c->params.n > PARAMS_N_MAX ||
	    !beam_fits(&c->params)) {
		emit_code(e->emit, ENGINE_REFUSED, c->job, E_BAD_REQUEST,
			  "a job needs a prompt, max_tokens and n");
	} else if (total > most) {
		char why[128];
		snprintf(why, sizeof why, "prompt (%u) and max_tokens (%u) exceed the context of %u tokens",
			 c->n_tokens, c->params.max_tokens, most);
		emit_code(e->emit, ENGINE_REFUSED, c->job, E_TOO_LONG, why);
	} else if (!c->resumed && is_full(e, c, &full)) {
		emit_code(e->emit, ENGINE_REFUSED, c->job, E_OVERLOADED, full.text);
	} else {
		struct group *g = group_new(c->job, c->tokens, c->n_tokens, &c->params);
		c->tokens = NULL;
		g->deadline_us = c->deadline_us;
		g->priority = c->priority;
		g->account = c->account;
		g->user = c->user;
		g->share = c->share;
		g->salt = c->salt;
		g->durable = c->durable;
		if (c->n_had)
			group_resume(g, c->had, c->n_had, c->mus);
		if (c->numerics)
			g->numerics_class = fleet_numerics_class(e->fleet, g->params.constraint, c->numerics);
		if (e->cfg.max_seqs < g->n_seqs)
			log_debug("engine", "job runs in rounds job=%llu outputs=%u max_seqs=%u",
				  (unsigned long long)c->job, g->n_seqs, e->cfg.max_seqs);
		emit_event(e->emit, emit_event_new(ENGINE_ACCEPTED, c->job));
		fleet_submit(e->fleet, &g, c->resumed, now_us);
	}
}

static void on_status(struct engine *e, const struct engine_cmd *c, int64_t now_us)
{
	struct engine_event *ev = emit_event_new(ENGINE_STATUS_REPLY, 0);
	ev->status = xcalloc(1, sizeof *ev->status);
	ev->tag = c->tag;
	fleet_status(e->fleet, now_us, ev->status);
	if (c->n_cells)
		fleet_maps(e->fleet, c->n_cells, ev->status);
	emit_event(e->emit, ev);
}

static void on_explain(struct engine *e, const struct engine_cmd *c, int64_t now_us)
{
	struct engine_event *ev = emit_event_new(ENGINE_EXPLAINED, c->job);
	struct timeline t;
	ev->tag = c->tag;
	if (fleet_times(e->fleet, c->job, now_us, &t))
		ev->times = xmemdup(&t, sizeof t);
	emit_event(e->emit, ev);
}

static void on_command(struct engine *e, struct engine_cmd *c, int64_t now_us)
{
	switch (c->kind) {
	case ENGINE_SUBMIT:
		on_submit(e, c, now_us);
		break;
	case ENGINE_STOP:
		fleet_stop(e->fleet, c->job, c->index, now_us);
		break;
	case ENGINE_CANCEL:
		fleet_cancel(e->fleet, c->job, now_us);
		break;
	case ENGINE_EXPLAIN:
		on_explain(e, c, now_us);
		break;
	case ENGINE_STATUS:
		on_status(e, c, now_us);
		break;
	case ENGINE_SCALE:
	case ENGINE_DRAIN:
	case ENGINE_FORGET:
		fleet_order(e->fleet, c, now_us);
		break;
	case ENGINE_QUIT:
		e->quit = true;
		break;
	}
	engine_cmd_free(c);
}

static void take_commands(struct engine *e, int64_t now_us)
{
	struct engine_cmd *c;
	for (int i = 0; i < COMMANDS_MAX && !e->quit; i++) {
		if (!(c = engine_msg_recv(e->in)))
			break;
		on_command(e, c, now_us);
	}
}

/* Run one iteration of the engine's loop.  Plans are sent before tokens are published, so that the device
 * does not wait for the front end. */
static void turn(struct engine *e, int64_t now_us)
{
	while (fleet_receive(e->fleet, now_us)) /* results, and workers that join or are lost */
		fleet_apply(e->fleet, now_us);
	take_commands(e, now_us);         /* new jobs, cancellations, orders */
	fleet_schedule(e->fleet, now_us); /* assign jobs to replicas, make the next plans */
	fleet_send(e->fleet, now_us);     /* plans to workers, then chunks of the model */
	fleet_tick(e->fleet, now_us);     /* timers */
	fleet_publish(e->fleet, now_us);  /* tokens to the front end */
}

static void *engine_main(void *arg)
{
	struct engine *e = arg;
	struct model_server *files = e->cfg.model_server;
	zmq_pollitem_t items[4] = {{.socket = e->in}, [3] = {.fd = files ? model_server_fd(files) : -1}};
	const int n_items = files ? 4 : 3;
	fleet_poll(e->fleet, &items[1].socket, &items[2].socket);
	for (int i = 0; i < n_items; i++)
		items[i].events = ZMQ_POLLIN;
	int64_t now_us = clock_us();
	while (!e->quit) {
		zmq_poll(items, n_items, fleet_wait_ms(e->fleet, now_us));
		now_us = clock_us();
		turn(e, now_us);
	}
	fleet_stop_workers(e->fleet);
	struct engine_cmd *c;
	while ((c = engine_msg_recv(e->in)))
		engine_cmd_free(c);
	zmq_close(e->in);
	zmq_close(e->out);
	return NULL;
}

static void *open_socket(void *context, int type)
{
	int none = 0;
	void *s = zmq_socket(context, type);
	if (!s)
		return NULL;
	zmq_setsockopt(s, ZMQ_SNDHWM, &none, sizeof none);
	zmq_setsockopt(s, ZMQ_RCVHWM, &none, sizeof none);
	zmq_setsockopt(s, ZMQ_LINGER, &none, sizeof none);
	return s;
}

int engine_start(void *zmq_context, const struct engine_config *cfg, struct engine **out, struct why *why)
{
	struct engine *e = xcalloc(1, sizeof *e);
	int rc;
	e->cfg = *cfg;
	e->in = open_socket(zmq_context, ZMQ_PULL);
	e->out = open_socket(zmq_context, ZMQ_PUSH);
	e->emit = emit_new(e->out);
	if (!e->in || !e->out || zmq_bind(e->in, ENGINE_IN) < 0 || zmq_connect(e->out, ENGINE_OUT) < 0) {
		rc = err_why(why, -errno, "engine: %s", zmq_strerror(errno));
		goto fail_sockets;
	}
	rc = fleet_open(zmq_context, &e->cfg, e->emit, &e->fleet, why);
	if (rc)
		goto fail_sockets;
	rc = pthread_create(&e->thread, NULL, engine_main, e);
	if (rc) {
		rc = err_why(why, -rc, "engine thread: %s", strerror(rc));
		goto fail_fleet;
	}
	*out = e;
	return 0;

fail_fleet:
	fleet_close(e->fleet);
fail_sockets:
	if (e->in)
		zmq_close(e->in);
	if (e->out)
		zmq_close(e->out);
	emit_free(e->emit);
	free(e);
	return rc;
}

const char *engine_bus(const struct engine *e)
{
	return fleet_bus(e->fleet);
}

void engine_join(struct engine *e)
{
	pthread_join(e->thread, NULL);
	fleet_close(e->fleet);
	emit_free(e->emit);
	free(e);
}
