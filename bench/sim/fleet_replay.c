#include "bench/sim/fleet_replay.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "controller/fleet/emit.h"
#include "controller/fleet/fleet.h"
#include "controller/message/engine_msg.h"
#include "proto/bus.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum {
	TICK_US = 100 * 1000, /* interval of the fleet's timers */
	TURNS_MAX = 64,       /* limit of message rounds at one time, where messages answer messages */
};
#define BUS "inproc://fleet-replay"

enum sim_state { SIM_NONE, SIM_STARTING, SIM_JOINED, SIM_ENDED };

/* A plan that the device executes or will execute. */
struct flight {
	int64_t finish_us;
	struct result result;
};

struct sim_worker {
	enum sim_state state;
	void *socket;             /* DEALER */
	int64_t born_us, join_us; /* times when it was ordered, and when it serves */
	int64_t free_us;          /* time when its device becomes idle */
	uint64_t *slots;          /* [max_seqs] the sequence in each slot */
	struct flight flight[SCHED_AHEAD];
	uint32_t first, n_flight;
};

struct sim_request {
	int64_t first_us, last_us; /* times of its first and last token; 0: none yet */
	uint32_t n_got;
	bool bad;
};

struct sim {
	const struct fleet_replay_config *cfg;
	const struct trace *trace;
	struct fleet_replay_report *report;
	struct engine_config engine;
	void *zmq, *events, *emit_socket; /* PULL, PUSH */
	struct emit *emit;
	struct fleet *fleet;
	struct sim_worker workers[ENGINE_WORKERS_MAX];
	struct sim_request *requests; /* [trace->n] */
	size_t n_arrived;
	uint64_t n_open; /* requests accepted but not ended */
	int64_t now_us, tick_us;
	bool answered; /* a worker has sent something in this round */
	struct plan plan;
	struct buf bytes;
};

/* ---- workers ---- */

static uint32_t count(const struct sim *s, enum sim_state state)
{
	uint32_t n = 0;
	for (int i = 0; i < ENGINE_WORKERS_MAX; i++)
		n += s->workers[i].state == state;
	return n;
}

static void note_workers(struct sim *s)
{
	struct fleet_replay_report *r = s->report;
	const uint32_t serving = count(s, SIM_JOINED), all = serving + count(s, SIM_STARTING);
	r->n_most = all > r->n_most ? all : r->n_most;
	array_grow(r->points, r->cap_points, r->n_points + 1);
	r->points[r->n_points++] = (struct fleet_replay_point){s->now_us, all, serving};
}

static void send_message(struct sim *s, struct sim_worker *w, const struct bus_msg *m)
{
	bus_encode(m, &s->bytes);
	zmq_send(w->socket, s->bytes.p, s->bytes.len, 0);
	s->answered = true;
}

static void start_workers(struct sim *s, uint32_t n, int64_t start_us)
{
	for (int i = 0; i < ENGINE_WORKERS_MAX && n; i++) {
		struct sim_worker *w = &s->workers[i];
		if (w->state != SIM_NONE && w->state != SIM_ENDED)
			continue;
		w->state = SIM_STARTING;
		w->born_us = s->now_us;
		w->join_us = s->now_us + start_us;
		s->report->n_started++;
		n--;
	}
	note_workers(s);
}

/* The worker has loaded: send hello. */
static void join(struct sim *s, struct sim_worker *w)
{
	int none = 0;
	struct bus_msg m = {.type = BUS_HELLO, .hello = {.device = "sim", .host = "simulated", .pid = 1}};
	w->socket = zmq_socket(s->zmq, ZMQ_DEALER);
	zmq_setsockopt(w->socket, ZMQ_LINGER, &none, sizeof none);
	zmq_connect(w->socket, BUS);
	w->state = SIM_JOINED;
	w->free_us = s->now_us;
	w->first = w->n_flight = 0;
	if (!w->slots)
		w->slots = xcalloc(s->engine.max_seqs, sizeof *w->slots);
	send_message(s, w, &m);
	note_workers(s);
}

static void end_worker(struct sim *s, struct sim_worker *w)
{
	s->report->worker_s += (double)(s->now_us - w->born_us) / 1e6;
	if (w->socket)
		zmq_close(w->socket);
	w->socket = NULL;
	w->state = SIM_ENDED;
	s->report->n_ended++;
	note_workers(s);
}

static uint32_t token_of(const struct sim *s, uint64_t request, uint32_t position)
{
	struct rng hash = {s->cfg->seed ^ (request * 0xd6e8feb86659fd93u + position)};
	return (uint32_t)((rng_next(&hash) >> 32) * REPLAY_VOCAB >> 32);
}

static void on_load(struct sim *s, struct sim_worker *w, const struct bus_load *load)
{
	struct bus_msg m = {.type = BUS_READY,
			    .ready = {.epoch = load->epoch,
				      .numerics = "simulated",
				      .n_blocks = s->cfg->n_blocks,
				      .n_vocab = REPLAY_VOCAB,
				      .block_bytes = (uint64_t)costmodel_block_bytes(&s->cfg->cost,
										     s->engine.block_size)}};
	send_message(s, w, &m);
}

static int on_plan(struct sim *s, struct sim_worker *w, const void *bytes, size_t n, struct why *why)
{
	const struct engine_config *c = &s->engine;
	const struct bus_limits lim = {c->max_seqs,      c->max_rows, c->max_seqs,  c->model_context,
				       s->cfg->n_blocks, 0,           REPLAY_VOCAB, 1};
	struct plan *p = &s->plan;
	int rc = bus_decode_plan(bytes, n, &lim, p, why);
	if (rc)
		return rc;
	assert(w->n_flight < SCHED_AHEAD);
	struct flight *f = &w->flight[(w->first + w->n_flight++) % SCHED_AHEAD];
	const double step_us = costmodel_step_us(&s->cfg->cost, p, c->block_size);
	const int64_t begin_us = w->free_us > s->now_us ? w->free_us : s->now_us;
	f->finish_us = w->free_us = begin_us + (int64_t)llround(step_us);
	result_reset(&f->result);
	f->result.epoch = p->epoch;
	f->result.number = p->number;
	f->result.step_us = (uint32_t)fmin(step_us, UINT32_MAX);
	for (uint32_t i = 0; i < p->n_seqs; i++)
		w->slots[p->seqs[i].slot] = p->seqs[i].seq;
	for (uint32_t i = 0; i < p->n_runs; i++) {
		const struct plan_run *run = &p->runs[i];
		if (run->flags & PLAN_SAMPLE)
			result_add_token(&f->result,
					 token_of(s, w->slots[run->slot], run->pos0 + run->n_rows));
	}
	return 0;
}

/* Receive one message from the controller.  1; 0: there is none; -EBADMSG. */
static int take_message(struct sim *s, struct sim_worker *w, struct why *why)
{
	zmq_msg_t m;
	struct bus_msg msg;
	zmq_msg_init(&m);
	if (zmq_msg_recv(&m, w->socket, ZMQ_DONTWAIT) < 0) {
		zmq_msg_close(&m);
		return 0;
	}
	const void *bytes = zmq_msg_data(&m);
	const size_t n = zmq_msg_size(&m);
	int type = bus_peek(bytes, n, why), rc = type < 0 ? type : 0;
	if (!rc && type == BUS_PLAN)
		rc = on_plan(s, w, bytes, n, why);
	else if (!rc && type != BUS_VOCABULARY)
		rc = bus_decode(bytes, n, &msg, why);
	if (!rc && type == BUS_LOAD)
		on_load(s, w, &msg.load);
	if (!rc && type == BUS_STOP) {
		send_message(s, w, &(struct bus_msg){.type = BUS_STOP});
		end_worker(s, w);
	}
	zmq_msg_close(&m);
	return rc ? rc : 1;
}

/* Receive all messages; negative: one of them is invalid.  A device that already has SCHED_AHEAD plans
 * receives no plan, so its other messages wait for the next tick. */
static int take_messages(struct sim *s, struct why *why)
{
	const bool ticks = s->tick_us == s->now_us + TICK_US;
	for (int i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct sim_worker *w = &s->workers[i];
		int rc;
		while (w->state == SIM_JOINED && (ticks || w->n_flight < SCHED_AHEAD) &&
		       (rc = take_message(s, w, why)) != 0)
			if (rc < 0)
				return rc;
	}
	return 0;
}

static void send_result(struct sim *s, struct sim_worker *w)
{
	struct flight *f = &w->flight[w->first];
	w->first = (w->first + 1) % SCHED_AHEAD;
	w->n_flight--;
	bus_encode_result(&f->result, &s->bytes);
	zmq_send(w->socket, s->bytes.p, s->bytes.len, 0);
}

/* ---- the supervisor ---- */

static void on_notice(void *user, const struct engine_notice *n)
{
	struct sim *s = user;
	const uint32_t starting = count(s, SIM_STARTING);
	if (n->kind == ENGINE_NOTICE_SCALE && n->n_workers > starting)
		start_workers(s, n->n_workers - starting, s->cfg->start_us);
	/* The scale is complete without the workers that still start. */
	for (int i = 0; n->kind == ENGINE_NOTICE_KEEP && i < ENGINE_WORKERS_MAX; i++)
		if (s->workers[i].state == SIM_STARTING)
			end_worker(s, &s->workers[i]);
}

/* ---- requests ---- */

static void submit(struct sim *s, size_t i)
{
	const struct arrival *a = &s->trace->v[i];
	if ((uint64_t)a->n_prompt + a->n_output > fleet_max_context(s->fleet)) {
		s->report->n_refused++;
		return;
	}
	struct params params;
	params_init(&params);
	params.max_tokens = a->n_output;
	params.ignore_eos = true;
	params.seed = i;
	uint32_t *prompt = xmalloc(a->n_prompt * sizeof *prompt);
	for (uint32_t k = 0; k < a->n_prompt; k++)
		prompt[k] = token_of(s, i + 1, k);
	struct group *g = group_new(i + 1, prompt, a->n_prompt, &params);
	s->n_open++;
	fleet_submit(s->fleet, &g, false, s->now_us);
}

static void on_token(struct sim *s, uint64_t job)
{
	struct sim_request *q = &s->requests[job - 1];
	if (!q->n_got++) {
		q->first_us = s->now_us;
		const double ttft_ms = (double)(s->now_us - s->trace->v[job - 1].at_us) / 1e3;
		samples_add(&s->report->ttft_ms, ttft_ms);
		if (s->cfg->slo.ttft_ms > 0 && ttft_ms > s->cfg->slo.ttft_ms)
			q->bad = true;
	}
	q->last_us = s->now_us;
}

static void on_done(struct sim *s, uint64_t job)
{
	const struct slo *slo = &s->cfg->slo;
	struct sim_request *q = &s->requests[job - 1];
	const double e2el_ms = (double)(q->last_us - s->trace->v[job - 1].at_us) / 1e3;
	s->n_open--;
	s->report->n_done++;
	if (q->n_got > 1) {
		const double tpot_ms = (double)(q->last_us - q->first_us) / 1e3 / (q->n_got - 1);
		samples_add(&s->report->tpot_ms, tpot_ms);
		if (slo->tpot_ms > 0 && tpot_ms > slo->tpot_ms)
			q->bad = true;
	}
	if (slo->e2el_ms > 0 && e2el_ms > slo->e2el_ms)
		q->bad = true;
	s->report->n_good += !q->bad;
}

static void take_events(struct sim *s)
{
	struct engine_event *e;
	while ((e = engine_msg_recv(s->events))) {
		for (uint32_t i = 0; e->kind == ENGINE_TOKENS && i < e->n_tokens; i++)
			on_token(s, e->tokens[i].job);
		if (e->kind == ENGINE_JOB_DONE)
			on_done(s, e->job);
		if (e->kind == ENGINE_JOB_FAILED) {
			s->n_open--;
			s->report->n_lost++;
		}
		engine_event_free(e);
	}
}

/* ---- time ---- */

/* Run one round of the engine (controller/fleet/engine.c), and the workers' answers, until nothing is
 * sent. */
static int turn(struct sim *s, struct why *why)
{
	for (int i = 0; i < TURNS_MAX; i++) {
		while (fleet_receive(s->fleet, s->now_us))
			fleet_apply(s->fleet, s->now_us);
		fleet_schedule(s->fleet, s->now_us);
		fleet_send(s->fleet, s->now_us);
		fleet_tick(s->fleet, s->now_us);
		fleet_publish(s->fleet, s->now_us);
		take_events(s);
		s->answered = false;
		int rc = take_messages(s, why);
		if (rc || !s->answered)
			return rc;
	}
	return 0;
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t next_event(const struct sim *s)
{
	int64_t at_us = s->tick_us;
	if (s->n_arrived < s->trace->n)
		at_us = earlier(at_us, s->trace->v[s->n_arrived].at_us);
	for (int i = 0; i < ENGINE_WORKERS_MAX; i++) {
		const struct sim_worker *w = &s->workers[i];
		if (w->state == SIM_STARTING)
			at_us = earlier(at_us, w->join_us);
		else if (w->state == SIM_JOINED && w->n_flight)
			at_us = earlier(at_us, w->flight[w->first].finish_us);
	}
	return at_us;
}

/* Process everything due now outside the controller. */
static void happen(struct sim *s)
{
	for (int i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct sim_worker *w = &s->workers[i];
		if (w->state == SIM_STARTING && w->join_us <= s->now_us)
			join(s, w);
		while (w->state == SIM_JOINED && w->n_flight && w->flight[w->first].finish_us <= s->now_us)
			send_result(s, w);
	}
	while (s->n_arrived < s->trace->n && s->trace->v[s->n_arrived].at_us <= s->now_us)
		submit(s, s->n_arrived++);
	if (s->now_us >= s->tick_us)
		s->tick_us = s->now_us + TICK_US;
}

static int run(struct sim *s, struct why *why)
{
	start_workers(s, s->cfg->n_first, 0);
	while (s->n_arrived < s->trace->n || s->n_open) {
		happen(s);
		int rc = turn(s, why);
		if (rc)
			return rc;
		s->now_us = next_event(s);
	}
	return 0;
}

/* ---- lifecycle ---- */

static void *socket_of(struct sim *s, int type)
{
	int none = 0;
	void *socket = zmq_socket(s->zmq, type);
	zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none);
	zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none);
	zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
	return socket;
}

static int open_fleet(struct sim *s, struct why *why)
{
	struct engine_config *c = &s->engine;
	*c = s->cfg->engine;
	snprintf(c->bus, sizeof c->bus, BUS);
	snprintf(c->compute, sizeof c->compute, "f32");
	c->n_vocab = REPLAY_VOCAB;
	c->model_context = s->cfg->max_context;
	c->worker_wait_us = INT64_MAX / 4;
	c->silent_us = c->stuck_us = -1;
	c->stop_us = 1;
	c->keep_workers = c->supervised = true;
	c->seed = s->cfg->seed;
	c->on_notice = on_notice;
	c->on_notice_user = s;
	s->zmq = zmq_ctx_new();
	s->events = socket_of(s, ZMQ_PULL);
	s->emit_socket = socket_of(s, ZMQ_PUSH);
	if (zmq_bind(s->events, ENGINE_OUT) < 0 || zmq_connect(s->emit_socket, ENGINE_OUT) < 0)
		return err_why(why, -errno, "simulated fleet: %s", zmq_strerror(errno));
	s->emit = emit_new(s->emit_socket);
	return fleet_open(s->zmq, c, s->emit, &s->fleet, why);
}

static void close_all(struct sim *s)
{
	for (int i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct sim_worker *w = &s->workers[i];
		if (w->state == SIM_STARTING || w->state == SIM_JOINED)
			end_worker(s, w);
		for (int k = 0; k < SCHED_AHEAD; k++)
			result_fini(&w->flight[k].result);
		free(w->slots);
	}
	fleet_close(s->fleet);
	take_events(s);
	emit_free(s->emit);
	zmq_close(s->events);
	zmq_close(s->emit_socket);
	zmq_ctx_term(s->zmq);
	bus_plan_fini(&s->plan);
	buf_fini(&s->bytes);
	free(s->requests);
}

int fleet_replay_run(const struct fleet_replay_config *cfg, const struct trace *trace,
		     struct fleet_replay_report *out, struct why *why)
{
	struct sim *s = xcalloc(1, sizeof *s);
	const int64_t wall_us = clock_us();
	*out = (struct fleet_replay_report){.n_requests = trace->n};
	s->cfg = cfg;
	s->trace = trace;
	s->report = out;
	s->requests = xcalloc(trace->n ? trace->n : 1, sizeof *s->requests);
	int rc = open_fleet(s, why);
	if (!rc)
		rc = run(s, why);
	out->sim_s = (double)s->now_us / 1e6;
	close_all(s);
	out->wall_s = (double)(clock_us() - wall_us) / 1e6;
	free(s);
	if (rc)
		fleet_replay_report_fini(out);
	return rc;
}

double fleet_replay_good(const struct fleet_replay_report *r)
{
	const uint64_t n = r->n_requests - r->n_refused;
	return n ? (double)r->n_good / (double)n : 1;
}

void fleet_replay_report_fini(struct fleet_replay_report *r)
{
	samples_fini(&r->ttft_ms);
	samples_fini(&r->tpot_ms);
	free(r->points);
	*r = (struct fleet_replay_report){0};
}
