/* The engine's thread between a pretended front end and a simulated worker on the real bus:
 * jobs end once and with the right tokens, also when workers die, lie or fall silent. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "controller/engine.h"
#include "proto/bus.h"
#include "tests/sim/device.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { SLOTS = 8, BLOCKS = 32, CONTEXT = 256, RECV_MS = 60000 };

struct rig {
	void *zmq;
	void *events, *commands; /* what the front end would hold */
	struct engine *engine;
};

/* A worker that dies, or sends nonsense, after so many plans. */
struct worker {
	struct rig *rig;
	pthread_t thread;
	int die_after, lie_after; /* plans; -1: never */
	bool mute;                /* after it died, keeps its connection open */
	bool fail;                /* cannot load */
	_Atomic bool stop;
	_Atomic int n_plans;
};

static struct rig *rig_new(int64_t wait_us)
{
	struct rig *r = xcalloc(1, sizeof *r);
	char why[256];
	int timeout = RECV_MS;
	log_init("test", LOG_ERROR);
	r->zmq = zmq_ctx_new();
	r->events = zmq_socket(r->zmq, ZMQ_PULL);
	zmq_setsockopt(r->events, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	cr_assert_eq(zmq_bind(r->events, ENGINE_OUT), 0);
	struct engine_config c = {
		.model = "sim",
		.bus = "inproc://bus",
		.compute = "f32",
		.n_vocab = DEVICE_VOCAB,
		.model_context = CONTEXT,
		.block_size = 16,
		.max_seqs = SLOTS,
		.max_rows = 64,
		.chunk = 16,
		.max_jobs = 4,
		.max_tokens = 10000,
		.worker_wait_us = wait_us,
	};
	cr_assert_eq(engine_start(r->zmq, &c, &r->engine, why, sizeof why), 0, "%s", why);
	r->commands = zmq_socket(r->zmq, ZMQ_PUSH);
	cr_assert_eq(zmq_connect(r->commands, ENGINE_IN), 0);
	return r;
}

static void send_command(struct rig *r, struct engine_cmd *c)
{
	cr_assert_eq(zmq_send(r->commands, &c, sizeof c, 0), (int)sizeof c);
}

static void rig_free(struct rig *r)
{
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	struct engine_event *e;
	c->kind = ENGINE_QUIT;
	params_init(&c->params);
	send_command(r, c);
	engine_join(r->engine);
	while (zmq_recv(r->events, &e, sizeof e, ZMQ_DONTWAIT) == (int)sizeof e)
		engine_event_free(e);
	zmq_close(r->events);
	zmq_close(r->commands);
	zmq_ctx_term(r->zmq);
	free(r);
}

static struct engine_event *next_event(struct rig *r)
{
	struct engine_event *e;
	int n = zmq_recv(r->events, &e, sizeof e, 0);
	cr_assert_eq(n, (int)sizeof e, "no event in time");
	return e;
}

static void wait_ready(struct rig *r)
{
	for (bool ready = false; !ready;) {
		struct engine_event *e = next_event(r);
		ready = e->kind == ENGINE_STATE && e->ready;
		engine_event_free(e);
	}
}

static void send_msg(void *s, const struct bus_msg *m)
{
	struct buf b = {0};
	bus_encode(m, &b);
	zmq_send(s, b.p, b.len, 0);
	buf_fini(&b);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	void *s = zmq_socket(w->rig->zmq, ZMQ_DEALER);
	struct device *d = device_new(SLOTS, BLOCKS, 0, 16, CONTEXT);
	struct bus_limits lim = {SLOTS, 64, SLOTS, CONTEXT, BLOCKS, 0, DEVICE_VOCAB};
	struct plan p = {0};
	struct result r = {0};
	struct buf out = {0};
	uint64_t epoch = 0;
	int timeout = 20, linger = 500;
	char why[256];
	bool dead = false;
	zmq_setsockopt(s, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger);
	zmq_connect(s, "inproc://bus");
	send_msg(s, &(struct bus_msg){.type = BUS_HELLO, .hello = {"cpu", "here", 1}});
	int64_t beat = 0;
	while (!w->stop) {
		if (!dead && clock_us() - beat > 100000) {
			beat = clock_us();
			send_msg(s, &(struct bus_msg){.type = BUS_BEAT, .beat = {epoch, BUS_SERVING, 0, 0}});
		}
		zmq_msg_t m;
		zmq_msg_init(&m);
		if (zmq_msg_recv(&m, s, 0) < 0) {
			zmq_msg_close(&m);
			w->stop = w->stop || zmq_errno() == ETERM;
			continue;
		}
		int type = bus_peek(zmq_msg_data(&m), zmq_msg_size(&m), why, sizeof why);
		struct bus_msg got;
		if (dead) {
			/* hangs */
		} else if (type == BUS_STOP) {
			send_msg(s, &(struct bus_msg){.type = BUS_STOP});
			w->stop = true;
		} else if (type == BUS_LOAD) {
			bus_decode(zmq_msg_data(&m), zmq_msg_size(&m), &got, why, sizeof why);
			epoch = got.load.epoch;
			struct bus_msg ready = {.type = w->fail ? BUS_FAILED : BUS_READY};
			if (w->fail) {
				ready.failed.epoch = epoch;
				strcpy(ready.failed.why, "the weights are torn");
			} else {
				ready.ready = (struct bus_ready){
					.epoch = epoch, .n_blocks = BLOCKS, .n_vocab = DEVICE_VOCAB};
			}
			send_msg(s, &ready);
		} else if (type == BUS_PLAN) {
			cr_assert_eq(bus_decode_plan(zmq_msg_data(&m), zmq_msg_size(&m), &lim, &p, why,
						     sizeof why),
				     0, "%s", why);
			device_step(d, &p, &r);
			int n = ++w->n_plans;
			if (n == w->die_after) {
				dead = true;
				w->stop = !w->mute;
			} else if (n == w->lie_after) {
				zmq_send(s, "garbage", 7, 0);
			} else {
				bus_encode_result(&r, &out);
				zmq_send(s, out.p, out.len, 0);
			}
		}
		zmq_msg_close(&m);
	}
	plan_reset(&p);
	bus_plan_fini(&p);
	result_fini(&r);
	buf_fini(&out);
	device_free(d);
	zmq_close(s);
	return NULL;
}

static void worker_start(struct worker *w, struct rig *r)
{
	w->rig = r;
	pthread_create(&w->thread, NULL, worker_main, w);
}

static void worker_end(struct worker *w)
{
	w->stop = true;
	pthread_join(w->thread, NULL);
}

static void submit(struct rig *r, uint64_t job, uint32_t n_prompt, uint32_t max_tokens, uint32_t n)
{
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	params_init(&c->params);
	c->kind = ENGINE_SUBMIT;
	c->job = job;
	c->n_tokens = n_prompt;
	c->tokens = xmalloc(n_prompt * sizeof *c->tokens);
	for (uint32_t i = 0; i < n_prompt; i++)
		c->tokens[i] = (uint32_t)(job * 31 + i) % DEVICE_VOCAB;
	c->params.max_tokens = max_tokens;
	c->params.n = n;
	c->params.seed = job;
	send_command(r, c);
}

/* Collects a job's outputs until its end, and compares them with the undisturbed ones. */
static void expect_tokens(struct rig *r, uint64_t job, uint32_t n_prompt, uint32_t max_tokens, uint32_t n)
{
	uint32_t got[8][CONTEXT], n_got[8] = {0}, want[CONTEXT], prompt[CONTEXT];
	struct params params;
	bool done = false;
	params_init(&params);
	params.max_tokens = max_tokens;
	params.seed = job;
	for (uint32_t i = 0; i < n_prompt; i++)
		prompt[i] = (uint32_t)(job * 31 + i) % DEVICE_VOCAB;
	while (!done) {
		struct engine_event *e = next_event(r);
		cr_assert(e->kind != ENGINE_REFUSED && e->kind != ENGINE_JOB_FAILED, "%s", e->why);
		for (uint32_t i = 0; i < e->n_tokens; i++)
			if (!e->tokens[i].stop)
				got[e->tokens[i].index][n_got[e->tokens[i].index]++] = e->tokens[i].token;
		done = e->kind == ENGINE_JOB_DONE;
		engine_event_free(e);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = device_expect(prompt, n_prompt, &params, i, want, CONTEXT);
		cr_assert_eq(n_got[i], k, "output %u: %u tokens, not %u", i, n_got[i], k);
		cr_assert_arr_eq(got[i], want, k * sizeof *want);
	}
}

Test(engine, a_job_gets_its_tokens)
{
	struct rig *r = rig_new(60000000);
	struct worker w = {.die_after = -1, .lie_after = -1};
	worker_start(&w, r);
	submit(r, 1, 40, 50, 3);
	expect_tokens(r, 1, 40, 50, 3);
	rig_free(r);
	worker_end(&w);
}

Test(engine, a_job_survives_a_worker_that_goes_away)
{
	struct rig *r = rig_new(60000000);
	struct worker a = {.die_after = 20, .lie_after = -1}, b = {.die_after = -1, .lie_after = -1};
	worker_start(&a, r);
	wait_ready(r);
	submit(r, 2, 40, 100, 2);
	pthread_join(a.thread, NULL);
	worker_start(&b, r);
	expect_tokens(r, 2, 40, 100, 2);
	rig_free(r);
	worker_end(&b);
}

Test(engine, a_job_survives_a_worker_that_hangs)
{
	struct rig *r = rig_new(60000000);
	struct worker a = {.die_after = 20, .lie_after = -1, .mute = true},
		      b = {.die_after = -1, .lie_after = -1};
	worker_start(&a, r);
	wait_ready(r);
	submit(r, 3, 40, 100, 1);
	/* The engine says that it has noticed. */
	for (bool lost = false; !lost;) {
		struct engine_event *e = next_event(r);
		lost = e->kind == ENGINE_STATE && !e->ready;
		cr_assert_neq(e->kind, ENGINE_JOB_DONE);
		engine_event_free(e);
	}
	worker_start(&b, r);
	/* Its first tokens came before: compare the rest only by the count of plans and the end. */
	for (bool done = false; !done;) {
		struct engine_event *e = next_event(r);
		cr_assert_neq(e->kind, ENGINE_JOB_FAILED);
		done = e->kind == ENGINE_JOB_DONE;
		engine_event_free(e);
	}
	rig_free(r);
	worker_end(&a);
	worker_end(&b);
}

Test(engine, a_worker_that_sends_nonsense_is_given_up)
{
	struct rig *r = rig_new(60000000);
	struct worker a = {.die_after = -1, .lie_after = 10}, b = {.die_after = -1, .lie_after = -1};
	worker_start(&a, r);
	wait_ready(r);
	submit(r, 4, 40, 60, 1);
	pthread_join(a.thread, NULL); /* it is told to stop */
	worker_start(&b, r);
	expect_tokens(r, 4, 40, 60, 1);
	rig_free(r);
	worker_end(&b);
}

Test(engine, jobs_wait_for_a_worker_only_so_long)
{
	struct rig *r = rig_new(300000);
	submit(r, 5, 4, 4, 1);
	enum code code = CODE_OK;
	while (code == CODE_OK) {
		struct engine_event *e = next_event(r);
		if (e->kind == ENGINE_JOB_FAILED)
			code = e->code;
		engine_event_free(e);
	}
	cr_assert_eq(code, E_WORKER_LOST);
	rig_free(r);
}

Test(engine, durable_jobs_wait_for_a_worker_as_long_as_it_takes)
{
	struct rig *r = rig_new(300000);
	struct worker a = {.die_after = -1, .lie_after = -1};
	uint32_t had[] = {60, 61}, n_had[] = {2};
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	params_init(&c->params);
	c->kind = ENGINE_SUBMIT;
	c->job = 7;
	c->n_tokens = 4;
	c->tokens = xcalloc(4, sizeof *c->tokens);
	c->params.max_tokens = 5;
	c->durable = c->resumed = true;
	c->had = xmemdup(had, sizeof had);
	c->n_had = xmemdup(n_had, sizeof n_had);
	send_command(r, c);
	submit(r, 8, 4, 4, 1);
	enum code code = CODE_OK;
	while (code == CODE_OK) {
		struct engine_event *e = next_event(r);
		if (e->kind == ENGINE_JOB_FAILED) {
			cr_assert_eq(e->job, 8);
			code = e->code;
		}
		engine_event_free(e);
	}
	worker_start(&a, r);
	uint32_t n_tokens = 0;
	for (bool done = false; !done;) {
		struct engine_event *e = next_event(r);
		cr_assert_neq(e->kind, ENGINE_JOB_FAILED);
		if (e->kind == ENGINE_TOKENS)
			n_tokens += e->n_tokens;
		done = e->kind == ENGINE_JOB_DONE;
		engine_event_free(e);
	}
	cr_expect_eq(n_tokens, 3, "%u tokens behind those that it had", n_tokens);
	rig_free(r);
	worker_end(&a);
}

Test(engine, the_queue_has_a_bound)
{
	struct rig *r = rig_new(60000000);
	int refused = 0, accepted = 0;
	for (uint64_t job = 10; job < 20; job++)
		submit(r, job, 4, 4, 1);
	while (refused + accepted < 10) {
		struct engine_event *e = next_event(r);
		accepted += e->kind == ENGINE_ACCEPTED;
		if (e->kind == ENGINE_REFUSED) {
			refused++;
			cr_assert_eq(e->code, E_OVERLOADED);
		}
		engine_event_free(e);
	}
	cr_assert_eq(accepted, 4);
	rig_free(r);
}

Test(engine, a_worker_that_cannot_load_is_named)
{
	struct rig *r = rig_new(60000000);
	struct worker w = {.die_after = -1, .lie_after = -1, .fail = true};
	worker_start(&w, r);
	struct engine_event *e = next_event(r);
	cr_assert_eq(e->kind, ENGINE_STATE);
	cr_assert(!e->ready);
	cr_assert(strstr(e->why, "the weights are torn"), "%s", e->why);
	engine_event_free(e);
	rig_free(r);
	worker_end(&w);
}

Test(engine, a_job_that_no_pool_can_hold_is_refused)
{
	struct rig *r = rig_new(60000000);
	submit(r, 6, 200, 100, 1);
	struct engine_event *e = next_event(r);
	cr_assert_eq(e->kind, ENGINE_REFUSED);
	cr_assert_eq(e->code, E_TOO_LONG);
	engine_event_free(e);
	rig_free(r);
}

/* What a peer says that is no worker of ours: frames as they are, under an identity of its choice. */
static void *peer_new(struct rig *r, const char *identity)
{
	void *s = zmq_socket(r->zmq, ZMQ_DEALER);
	int timeout = 60000;
	zmq_setsockopt(s, ZMQ_ROUTING_ID, identity, strlen(identity));
	zmq_setsockopt(s, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	cr_assert_eq(zmq_connect(s, "inproc://bus"), 0);
	return s;
}

static enum bus_type next_type(void *s)
{
	char bytes[8192], why[256];
	int n = zmq_recv(s, bytes, sizeof bytes, 0);
	cr_assert_gt(n, 0, "nothing came");
	return (enum bus_type)bus_peek(bytes, (size_t)n, why, sizeof why);
}

static void say_ready(void *s, uint32_t n_blocks)
{
	struct bus_msg m = {.type = BUS_READY};
	send_msg(s, &(struct bus_msg){.type = BUS_HELLO, .hello = {"cpu", "here", 1}});
	cr_assert_eq(next_type(s), BUS_LOAD);
	m.ready = (struct bus_ready){.epoch = 1, .n_blocks = n_blocks, .n_vocab = DEVICE_VOCAB};
	send_msg(s, &m);
}

Test(engine, the_front_end_may_go_first)
{
	struct rig *r = rig_new(60000000);
	struct engine_cmd *status = xcalloc(1, sizeof *status), *quit = xcalloc(1, sizeof *quit);
	zmq_unbind(r->events, ENGINE_OUT);
	zmq_close(r->events); /* as front_stop() does, whatever is under way */
	usleep(200000);       /* until it is closed indeed */
	status->kind = ENGINE_STATUS;
	quit->kind = ENGINE_QUIT;
	params_init(&status->params);
	params_init(&quit->params);
	send_command(r, status); /* its answer finds nobody to take it */
	send_command(r, quit);
	engine_join(r->engine);
	zmq_close(r->commands);
	zmq_ctx_term(r->zmq);
	free(r);
}

Test(engine, no_frame_of_a_message_is_taken_for_its_sender)
{
	struct rig *r = rig_new(60000000);
	char longer[100];
	void *ours = peer_new(r, "worker");
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	void *liar = peer_new(r, longer);
	struct buf b = {0};
	say_ready(ours, BLOCKS);
	wait_ready(r);
	bus_encode(&(struct bus_msg){.type = BUS_STOP}, &b);
	zmq_send(liar, "worker", 6, ZMQ_SNDMORE);
	zmq_send(liar, b.p, b.len, 0);
	/* Had it been believed, the worker would be told to stop now; instead it gets work. */
	submit(r, 1, 4, 4, 1);
	enum bus_type type = BUS_BEAT;
	while (type == BUS_BEAT)
		type = next_type(ours);
	cr_assert_eq(type, BUS_PLAN);
	buf_fini(&b);
	zmq_close(ours);
	zmq_close(liar);
	rig_free(r);
}

Test(engine, a_pool_that_no_machine_has_is_not_believed)
{
	struct rig *r = rig_new(60000000);
	void *s = peer_new(r, "worker");
	say_ready(s, INT32_MAX);
	enum bus_type type = BUS_BEAT;
	while (type == BUS_BEAT)
		type = next_type(s);
	cr_assert_eq(type, BUS_STOP);
	zmq_close(s);
	rig_free(r);
}

Test(engine, results_of_the_time_before_a_broken_connection_are_passed_over)
{
	struct rig *r = rig_new(60000000);
	void *s = peer_new(r, "worker");
	struct result late = {.epoch = 1, .number = 1};
	struct buf b = {0};
	say_ready(s, BLOCKS);
	wait_ready(r);
	/* Its connection came back: it says who it is, and what it had computed. */
	send_msg(s, &(struct bus_msg){.type = BUS_HELLO, .hello = {"cpu", "here", 1}});
	bus_encode_result(&late, &b);
	zmq_send(s, b.p, b.len, 0);
	enum bus_type type = BUS_BEAT;
	while (type == BUS_BEAT)
		type = next_type(s);
	cr_assert_eq(type, BUS_LOAD);
	send_msg(s, &(struct bus_msg){
			    .type = BUS_READY,
			    .ready = {.epoch = 2, .n_blocks = BLOCKS, .n_vocab = DEVICE_VOCAB},
		    });
	wait_ready(r);
	buf_fini(&b);
	zmq_close(s);
	rig_free(r);
}
