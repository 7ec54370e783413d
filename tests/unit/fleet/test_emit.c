/* Events to the front end have the right contents, and a steady state allocates no memory. */
#include "base/alloc.h"
#include "controller/fleet/emit.h"

#include <criterion/criterion.h>
#include <zmq.h>

enum { JOBS = 40 };

static void *ctx, *out, *in;
static struct emit *emit;

static void *open_end(int type)
{
	int none = 0;
	void *s = zmq_socket(ctx, type);
	zmq_setsockopt(s, type == ZMQ_PUSH ? ZMQ_SNDHWM : ZMQ_RCVHWM, &none, sizeof none);
	zmq_setsockopt(s, ZMQ_LINGER, &none, sizeof none);
	return s;
}

static void begin(void)
{
	ctx = zmq_ctx_new();
	in = open_end(ZMQ_PULL);
	out = open_end(ZMQ_PUSH);
	cr_assert_eq(zmq_bind(in, "inproc://test"), 0);
	cr_assert_eq(zmq_connect(out, "inproc://test"), 0);
	emit = emit_new(out);
}

static void end(void)
{
	emit_free(emit);
	zmq_close(in);
	zmq_close(out);
	zmq_ctx_term(ctx);
}

TestSuite(emit, .init = begin, .fini = end);

static struct engine_event *next(void)
{
	struct engine_event *ev;
	return zmq_recv(in, &ev, sizeof ev, ZMQ_DONTWAIT) == (int)sizeof ev ? ev : NULL;
}

/* Emit a step of n jobs: one token each, with its two most likely tokens. */
static void emit_step(struct sched_events *ev, struct result *r, uint32_t n)
{
	result_reset(r);
	for (uint32_t i = 0; i < n; i++) {
		struct result_logprob *l = result_add_logprob(r);
		*l = (struct result_logprob){
			.token = i, .logprob = -1, .rank = 1, .n_top = 2, .top0 = r->n_top};
		result_add_top(r, i, -1);
		result_add_top(r, i + 1, -2);
		ev->v[i] = (struct sched_event){.kind = SCHED_TOKEN,
						.job = 100 + i,
						.token = i,
						.logprob = (int32_t)i,
						.stop_token = -1};
	}
	ev->n = n;
	emit_events(emit, ev, r, "class a", 0);
	emit_flush(emit);
}

Test(emit, tokens_of_a_step_are_one_event)
{
	struct sched_event v[JOBS];
	struct sched_events ev = {.v = v, .cap = JOBS};
	struct result r = {0};
	emit_step(&ev, &r, 3);
	cr_assert_eq(ev.n, 0);
	struct engine_event *e = next();
	cr_assert_not_null(e);
	cr_assert(e->kind == ENGINE_TOKENS && e->n_tokens == 3);
	cr_assert_str_eq(e->numerics, "class a");
	cr_assert(e->tokens[2].job == 102 && e->tokens[2].token == 2 && e->tokens[2].n_top == 2);
	cr_assert_eq(e->top_ids[e->tokens[2].top0 + 1], 3);
	cr_assert_null(next());
	engine_event_free(e);
	result_fini(&r);
}

Test(emit, steady_state_allocates_nothing)
{
	struct sched_event v[JOBS];
	struct sched_events ev = {.v = v, .cap = JOBS};
	struct result r = {0};
	emit_step(&ev, &r, JOBS);
	emit_step(&ev, &r, JOBS);
	engine_event_free(next());
	engine_event_free(next());
	alloc_guard(true);
	for (uint32_t step = 0; step < 1000; step++) {
		/* The front end lags by up to a step, and steps vary in size. */
		emit_step(&ev, &r, 1 + step % JOBS);
		if (step)
			engine_event_free(next());
	}
	alloc_guard(false);
	engine_event_free(next());
	cr_assert_null(next());
	result_fini(&r);
}

Test(emit, event_may_outlive_the_engine)
{
	struct sched_event v[JOBS];
	struct sched_events ev = {.v = v, .cap = JOBS};
	struct result r = {0};
	emit_step(&ev, &r, 5);
	emit_step(&ev, &r, 5);
	struct engine_event *a = next(), *b = next();
	engine_event_free(a);
	emit_free(emit);
	cr_assert_eq(b->tokens[4].token, 4);
	engine_event_free(b);
	emit = emit_new(out);
	result_fini(&r);
}
