/* fake_engine.h - a thread with the engine's side of engine_msg.h: accepts jobs and generates tokens without
 * a model. The first token of a prompt selects the behaviour, FAKE_... below. */
#ifndef QUERN_TESTS_WIRE_FAKE_ENGINE_H
#define QUERN_TESTS_WIRE_FAKE_ENGINE_H

#include "base/alloc.h"
#include "base/clock.h"
#include "controller/fleet/engine.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

enum {
	FAKE_HANGS = 7,   /* accepted, no tokens */
	FAKE_REFUSED = 8, /* E_OVERLOADED */
	FAKE_FAILS = 9,   /* E_WORKER_LOST after three tokens */
	FAKE_JOBS_MAX = 4096,
};

struct fake_job {
	uint64_t number;
	uint32_t kind, n, max, at;
	bool cancelled, logprobs;
	uint64_t stopped; /* one bit per output */
};

struct fake_engine {
	void *zmq, *in, *out;
	pthread_t thread;
	struct fake_job jobs[FAKE_JOBS_MAX];
	int n_jobs;
	uint32_t vocab; /* tokens cycle through 300 .. vocab - 1 */
	int burst;      /* tokens of an output per event */
	bool quit;
	atomic_int n_submitted, n_cancelled, n_stopped, n_live;
	atomic_bool silent; /* does not answer STATUS */
};

static inline struct engine_event *fake_event(enum engine_event_kind kind, uint64_t job)
{
	struct engine_event *e = xcalloc(1, sizeof *e);
	e->kind = kind;
	e->job = job;
	e->stop_token = -1;
	return e;
}

/* Never blocks, like the engine: the front end may have closed its end during a job. */
static inline void fake_send(struct fake_engine *f, struct engine_event *e)
{
	if (zmq_send(f->out, &e, sizeof(struct engine_event *), ZMQ_DONTWAIT) < 0)
		engine_event_free(e);
}

static inline void fake_state(struct fake_engine *f, bool ready)
{
	struct engine_event *e = fake_event(ENGINE_STATE, 0);
	e->ready = ready;
	e->max_context = 2048;
	fake_send(f, e);
}

static inline void fake_submit(struct fake_engine *f, struct engine_cmd *c)
{
	atomic_fetch_add(&f->n_submitted, 1);
	struct engine_event *e =
		fake_event(c->tokens[0] == FAKE_REFUSED ? ENGINE_REFUSED : ENGINE_ACCEPTED, c->job);
	if (e->kind == ENGINE_REFUSED || f->n_jobs == FAKE_JOBS_MAX) {
		e->kind = ENGINE_REFUSED;
		e->code = E_OVERLOADED;
		snprintf(e->why, sizeof e->why, "4096 jobs are queued already");
	} else {
		f->jobs[f->n_jobs++] = (struct fake_job){.number = c->job,
							 .kind = c->tokens[0],
							 .n = c->params.n,
							 .max = c->params.max_tokens,
							 .logprobs = c->params.logprobs >= 0};
		atomic_fetch_add(&f->n_live, 1);
	}
	fake_send(f, e);
}

static inline struct fake_job *fake_find(struct fake_engine *f, uint64_t number)
{
	for (int i = 0; i < f->n_jobs; i++)
		if (f->jobs[i].number == number)
			return &f->jobs[i];
	return NULL;
}

static inline void fake_command(struct fake_engine *f, struct engine_cmd *c)
{
	struct fake_job *j = fake_find(f, c->job);
	switch (c->kind) {
	case ENGINE_SUBMIT:
		fake_submit(f, c);
		break;
	case ENGINE_STOP:
		atomic_fetch_add(&f->n_stopped, 1);
		if (j)
			j->stopped |= 1ull << c->index;
		break;
	case ENGINE_CANCEL:
		atomic_fetch_add(&f->n_cancelled, 1);
		if (j)
			j->cancelled = true;
		break;
	case ENGINE_STATUS:
		if (!atomic_load(&f->silent)) {
			struct engine_event *e = fake_event(ENGINE_STATUS_REPLY, 0);
			e->tag = c->tag;
			e->status = xcalloc(1, sizeof *e->status);
			e->status->ready = true;
			e->status->max_context = 2048;
			e->status->counts.n_running = (uint32_t)f->n_jobs;
			e->status->n_workers = 1;
			e->status->workers[0] = (struct engine_worker){
				.id = 1, .host = "here", .pid = 5, .device = "cpu", .state = "serving"};
			fake_send(f, e);
		}
		break;
	case ENGINE_EXPLAIN: /* the fake has no timelines */
		if (!atomic_load(&f->silent)) {
			struct engine_event *e = fake_event(ENGINE_EXPLAINED, c->job);
			e->tag = c->tag;
			fake_send(f, e);
		}
		break;
	case ENGINE_SCALE: /* refuses more than three replicas */
	case ENGINE_DRAIN:
	case ENGINE_FORGET:
		if (!atomic_load(&f->silent)) {
			struct engine_event *e = fake_event(ENGINE_ORDER_DONE, 0);
			e->tag = c->tag;
			e->code = c->n_replicas > 3 ? E_NOT_READY : CODE_OK;
			snprintf(e->why, sizeof e->why,
				 "kind %d replicas %u devices %u worker %llu wait %lld", (int)c->kind,
				 c->n_replicas, c->n_devices, (unsigned long long)c->worker,
				 (long long)c->wait_us);
			fake_send(f, e);
		}
		break;
	case ENGINE_QUIT:
		f->quit = true;
		break;
	}
	engine_cmd_free(c);
}

static inline void fake_end(struct fake_engine *f, struct fake_job *j, bool failed)
{
	for (uint32_t i = 0; i < j->n && !failed; i++) {
		struct engine_event *e = fake_event(ENGINE_OUTPUT_DONE, j->number);
		e->index = i;
		e->finish = j->cancelled ? FINISH_ABORT : FINISH_LENGTH;
		fake_send(f, e);
	}
	struct engine_event *e = fake_event(failed ? ENGINE_JOB_FAILED : ENGINE_JOB_DONE, j->number);
	e->code = failed ? E_WORKER_LOST : CODE_OK;
	if (failed)
		snprintf(e->why, sizeof e->why, "no worker came back in time");
	e->queued_us = 1;
	e->first_token_us = 2;
	e->total_us = 3;
	fake_send(f, e);
	*j = f->jobs[--f->n_jobs];
	atomic_fetch_sub(&f->n_live, 1);
}

/* Emit the next `burst` tokens of every output. */
static inline void fake_step(struct fake_engine *f)
{
	struct engine_event *e = fake_event(ENGINE_TOKENS, 0);
	e->tokens = xcalloc((size_t)f->n_jobs * 64 * (size_t)f->burst + 1, sizeof *e->tokens);
	for (int i = 0; i < f->n_jobs; i++) {
		struct fake_job *j = &f->jobs[i];
		if (j->kind == FAKE_HANGS || j->cancelled)
			continue;
		for (int b = 0; b < f->burst && j->at < j->max; b++, j->at++)
			for (uint32_t k = 0; k < j->n; k++)
				if (!(j->stopped >> k & 1))
					e->tokens[e->n_tokens++] = (struct engine_token){
						.job = j->number,
						.index = k,
						.token = 300 + (j->at * 7 + k) % (f->vocab - 300),
						.logprob = -0.25f,
						.rank = j->logprobs ? 1 : 0};
	}
	fake_send(f, e);
	for (int i = f->n_jobs; i-- > 0;) {
		struct fake_job *j = &f->jobs[i];
		bool failed = j->kind == FAKE_FAILS && j->at >= 3;
		bool stopped = j->stopped == (j->n == 64 ? UINT64_MAX : (1ull << j->n) - 1);
		if (failed || j->cancelled || stopped || (j->at >= j->max && j->kind != FAKE_HANGS))
			fake_end(f, j, failed);
	}
}

static inline void *fake_thread(void *arg)
{
	struct fake_engine *f = arg;
	fake_state(f, true);
	while (!f->quit) {
		struct engine_cmd *c;
		zmq_pollitem_t item = {.socket = f->in, .events = ZMQ_POLLIN};
		zmq_poll(&item, 1, f->n_jobs ? 1 : 20);
		while (!f->quit && zmq_recv(f->in, &c, sizeof(struct engine_cmd *), ZMQ_DONTWAIT) > 0)
			fake_command(f, c);
		if (f->n_jobs)
			fake_step(f);
	}
	struct engine_cmd *c;
	while (zmq_recv(f->in, &c, sizeof(struct engine_cmd *), ZMQ_DONTWAIT) > 0)
		engine_cmd_free(c);
	zmq_close(f->in);
	zmq_close(f->out);
	return NULL;
}

static inline void fake_start(struct fake_engine *f, void *zmq)
{
	int zero = 0;
	f->zmq = zmq;
	f->vocab = f->vocab ? f->vocab : 1600;
	f->burst = f->burst ? f->burst : 1;
	f->in = zmq_socket(zmq, ZMQ_PULL);
	f->out = zmq_socket(zmq, ZMQ_PUSH);
	zmq_setsockopt(f->in, ZMQ_RCVHWM, &zero, sizeof zero);
	zmq_setsockopt(f->out, ZMQ_SNDHWM, &zero, sizeof zero);
	zmq_setsockopt(f->out, ZMQ_LINGER, &zero, sizeof zero);
	cr_assert_eq(zmq_bind(f->in, ENGINE_IN), 0);
	cr_assert_eq(zmq_connect(f->out, ENGINE_OUT), 0);
	cr_assert_eq(pthread_create(&f->thread, NULL, fake_thread, f), 0);
}

/* Stop the thread. The front end has already stopped. */
static inline void fake_stop(struct fake_engine *f)
{
	void *s = zmq_socket(f->zmq, ZMQ_PUSH);
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	params_init(&c->params);
	c->kind = ENGINE_QUIT;
	cr_assert_eq(zmq_connect(s, ENGINE_IN), 0);
	zmq_send(s, &c, sizeof(struct engine_cmd *), 0);
	pthread_join(f->thread, NULL);
	zmq_close(s);
}

#endif
