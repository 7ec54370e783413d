#include "tests/sim/fleet_rig.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/sim/device.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { WAIT_US = 30 * 1000 * 1000, MAX_ROWS = 64 };

/* ---- the front end ---- */

static void on_notice(void *user, const struct engine_notice *n)
{
	struct rig *r = user;
	bool turned = n->kind == ENGINE_NOTICE_READY || n->kind == ENGINE_NOTICE_UNREADY;
	pthread_mutex_lock(&r->lock);
	r->n_turned += turned;
	r->n_retire += n->kind == ENGINE_NOTICE_RETIRE;
	r->n_lost += n->kind == ENGINE_NOTICE_LOST;
	r->n_failed += n->kind == ENGINE_NOTICE_FAILED;
	r->n_keep += n->kind == ENGINE_NOTICE_KEEP;
	if (n->kind == ENGINE_NOTICE_LOST)
		r->lost_pid = n->pid;
	if (n->kind == ENGINE_NOTICE_KEEP) {
		r->n_kept = n->n_pids;
		for (uint32_t i = 0; i < n->n_pids && i < 4; i++)
			r->keep_pids[i] = n->pids[i];
	}
	if (n->kind == ENGINE_NOTICE_SCALE) {
		r->n_scale++;
		r->scale_workers = n->n_workers;
		snprintf(r->scale_device, sizeof r->scale_device, "%s", n->n_devices ? n->devices[0] : "");
	}
	pthread_mutex_unlock(&r->lock);
	while (turned && atomic_load(&r->hold))
		usleep(1000);
}

struct rig *rig_new(const struct engine_config *given)
{
	struct rig *r = xcalloc(1, sizeof *r);
	struct engine_config c = given ? *given : (struct engine_config){0};
	struct why why;
	int timeout = 20;
	log_init("test", getenv("QUERN_TEST_LOG") ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	pthread_mutex_init(&r->lock, NULL);
	r->zmq = zmq_ctx_new();
	r->events = zmq_socket(r->zmq, ZMQ_PULL);
	zmq_setsockopt(r->events, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	cr_assert_eq(zmq_bind(r->events, ENGINE_OUT), 0);
	snprintf(c.model, sizeof c.model, "sim");
	if (!c.bus[0])
		snprintf(c.bus, sizeof c.bus, "inproc://bus");
	if (!c.compute[0])
		snprintf(c.compute, sizeof c.compute, "f32");
	c.n_vocab = DEVICE_VOCAB;
	c.model_context = RIG_CONTEXT;
	c.block_size = 16;
	c.max_seqs = RIG_SLOTS;
	c.max_rows = MAX_ROWS;
	c.chunk = 16;
	c.max_jobs = c.max_jobs ? c.max_jobs : 1000;
	c.max_tokens = 100000;
	c.worker_wait_us = c.worker_wait_us ? c.worker_wait_us : 60000000;
	c.stop_us = c.stop_us ? c.stop_us : 500 * 1000; /* for workers that hang */
	c.on_notice = on_notice;
	c.on_notice_user = r;
	cr_assert_eq(engine_start(r->zmq, &c, &r->engine, &why), 0, "%s", why.text);
	r->commands = zmq_socket(r->zmq, ZMQ_PUSH);
	cr_assert_eq(zmq_connect(r->commands, ENGINE_IN), 0);
	return r;
}

static struct engine_cmd *command(enum engine_cmd_kind kind)
{
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	c->kind = kind;
	params_init(&c->params);
	return c;
}

static void send_command(struct rig *r, struct engine_cmd *c)
{
	cr_assert_eq(zmq_send(r->commands, &c, sizeof c, 0), (int)sizeof c);
}

void rig_end_engine(struct rig *r)
{
	if (!r->engine)
		return;
	send_command(r, command(ENGINE_QUIT));
	engine_join(r->engine);
	r->engine = NULL;
}

void rig_free(struct rig *r)
{
	struct engine_event *e;
	for (uint32_t i = 0; i < r->n_peers; i++)
		zmq_close(r->peers[i]);
	rig_end_engine(r);
	while (zmq_recv(r->events, &e, sizeof e, ZMQ_DONTWAIT) == (int)sizeof e)
		engine_event_free(e);
	zmq_close(r->events);
	zmq_close(r->commands);
	zmq_ctx_shutdown(r->zmq); /* else a worker that starts only now would block in its hello */
	for (uint32_t i = 0; i < r->n_workers; i++) {
		rig_end_worker(r->workers[i]);
		free(r->workers[i]);
	}
	zmq_ctx_term(r->zmq);
	pthread_mutex_destroy(&r->lock);
	constraint_free(r->constraint);
	free(r);
}

static void take(struct rig *r, const struct engine_event *e)
{
	struct rig_job *j = &r->jobs[e->job % RIG_JOBS];
	for (uint32_t i = 0; i < e->n_tokens; i++) {
		struct rig_job *o = &r->jobs[e->tokens[i].job % RIG_JOBS];
		uint32_t index = e->tokens[i].index;
		cr_assert(!o->done && index < RIG_OUTPUTS && o->out[index].n < RIG_OUT,
			  "a token of job %llu after its end", (unsigned long long)e->tokens[i].job);
		o->out[index].tokens[o->out[index].n++] = e->tokens[i].token;
		o->n_out++;
	}
	switch (e->kind) {
	case ENGINE_ACCEPTED:
		j->accepted = true;
		break;
	case ENGINE_REFUSED:
	case ENGINE_JOB_FAILED:
		j->refused = e->kind == ENGINE_REFUSED;
		j->done = true;
		j->code = e->code;
		snprintf(j->why, sizeof j->why, "%s", e->why);
		break;
	case ENGINE_JOB_DONE:
		cr_assert(!j->done, "job %llu ended twice", (unsigned long long)e->job);
		j->done = true;
		j->class_changed = e->class_changed;
		break;
	case ENGINE_STATE:
		r->ready = e->ready;
		if (!e->ready)
			snprintf(r->unready_why, sizeof r->unready_why, "%s", e->why);
		break;
	case ENGINE_STATUS_REPLY:
		r->status = *e->status;
		r->status_here = true;
		break;
	case ENGINE_ORDER_DONE:
		r->order_here = true;
		r->order = e->code;
		snprintf(r->order_why, sizeof r->order_why, "%s", e->why);
		break;
	default:
		break;
	}
}

/* Take one event, or time out. */
static void turn(struct rig *r, int64_t begun_us, const char *what)
{
	struct engine_event *e;
	cr_assert_lt(clock_us() - begun_us, WAIT_US, "%s: not in time", what);
	if (zmq_recv(r->events, &e, sizeof e, 0) != (int)sizeof e)
		return;
	take(r, e);
	engine_event_free(e);
}

#define WAIT_FOR(condition)                                                                                  \
	for (int64_t begun = clock_us(); !(condition);)                                                      \
	turn(r, begun, #condition)

static struct engine_cmd *submit_command(struct rig *r, uint64_t job, uint32_t first, uint32_t n_prompt,
					 uint32_t max_tokens, uint32_t n)
{
	struct engine_cmd *c = command(ENGINE_SUBMIT);
	struct rig_job *j = &r->jobs[job];
	c->job = job;
	c->n_tokens = j->n_prompt = n_prompt;
	j->max_tokens = max_tokens;
	j->first = first;
	c->tokens = xmalloc(n_prompt * sizeof *c->tokens);
	for (uint32_t i = 0; i < n_prompt; i++)
		c->tokens[i] = (first + i) % DEVICE_VOCAB;
	c->params.max_tokens = max_tokens;
	c->params.n = j->n = n;
	c->params.seed = job;
	c->account = r->account;
	c->params.constraint = constraint_ref(r->constraint);
	return c;
}

void rig_submit_n(struct rig *r, uint64_t job, uint32_t first, uint32_t n_prompt, uint32_t max_tokens,
		  uint32_t n)
{
	send_command(r, submit_command(r, job, first, n_prompt, max_tokens, n));
}

void rig_submit(struct rig *r, uint64_t job, uint32_t first, uint32_t n_prompt, uint32_t max_tokens)
{
	rig_submit_n(r, job, first, n_prompt, max_tokens, 1);
}

void rig_submit_many(struct rig *r, uint64_t from, uint64_t to, uint32_t n_prompt, uint32_t max_tokens)
{
	for (uint64_t i = from; i < to; i++)
		rig_submit(r, i, (uint32_t)i * 37, n_prompt, max_tokens);
}

void rig_resume(struct rig *r, uint64_t job, uint32_t n_prompt, uint32_t max_tokens, uint32_t n_had,
		const char *numerics, bool durable)
{
	struct engine_cmd *c = submit_command(r, job, 0, n_prompt, max_tokens, 1);
	struct rig_job *j = &r->jobs[job];
	c->resumed = true;
	c->durable = durable;
	cr_assert_eq(device_expect(c->tokens, n_prompt, &c->params, 0, j->out[0].tokens, RIG_OUT),
		     max_tokens);
	j->out[0].n = j->n_out = n_had;
	c->had = xmemdup(j->out[0].tokens, n_had * sizeof *c->had);
	c->n_had = xmemdup(&n_had, sizeof n_had);
	c->numerics = xstrdup(numerics);
	send_command(r, c);
}

void rig_wait_end(struct rig *r, uint64_t job)
{
	WAIT_FOR(r->jobs[job].done);
}

void rig_wait_failed(struct rig *r, uint64_t job, enum code code)
{
	rig_wait_end(r, job);
	cr_assert_eq(r->jobs[job].code, code, "job %llu: %s", (unsigned long long)job, r->jobs[job].why);
}

void rig_wait_accepted(struct rig *r, uint64_t job)
{
	WAIT_FOR(r->jobs[job].accepted || r->jobs[job].refused);
}

void rig_finish(struct rig *r, uint64_t job)
{
	struct rig_job *j = &r->jobs[job];
	uint32_t prompt[RIG_CONTEXT], want[RIG_OUT];
	struct params params;
	rig_wait_failed(r, job, CODE_OK);
	params_init(&params);
	params.max_tokens = j->max_tokens;
	params.seed = job;
	for (uint32_t i = 0; i < j->n_prompt; i++)
		prompt[i] = (j->first + i) % DEVICE_VOCAB;
	for (uint32_t i = 0; i < j->n; i++) {
		uint32_t n = device_expect(prompt, j->n_prompt, &params, i, want, RIG_OUT);
		cr_assert_eq(j->out[i].n, n, "job %llu, output %u: %u tokens, not %u",
			     (unsigned long long)job, i, j->out[i].n, n);
		cr_assert_arr_eq(j->out[i].tokens, want, n * sizeof *want);
	}
}

void rig_finish_many(struct rig *r, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		rig_finish(r, i);
}

void rig_wait_tokens(struct rig *r, uint64_t job, uint32_t n)
{
	WAIT_FOR(r->jobs[job].n_out >= n);
}

void rig_wait_ready(struct rig *r, bool ready)
{
	WAIT_FOR(r->ready == ready);
}

void rig_request_status(struct rig *r)
{
	send_command(r, command(ENGINE_STATUS));
}

const struct engine_status *rig_status(struct rig *r)
{
	r->status_here = false;
	rig_request_status(r);
	WAIT_FOR(r->status_here);
	return &r->status;
}

static uint32_t count(struct rig *r, const char *state)
{
	const struct engine_status *s = rig_status(r);
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->n_replicas; i++)
		n += strcmp(s->replicas[i].state, state) == 0;
	return n;
}

void rig_wait_replicas(struct rig *r, uint32_t n, const char *state)
{
	WAIT_FOR(count(r, state) == n);
}

void rig_order(struct rig *r, enum engine_cmd_kind kind, uint64_t what, int64_t wait_us)
{
	struct engine_cmd *c = command(kind);
	if (kind == ENGINE_SCALE)
		c->n_replicas = (uint32_t)what;
	else
		c->worker = what;
	c->wait_us = wait_us;
	if (r->order_device) {
		c->n_devices = 1;
		c->devices = xcalloc(1, sizeof *c->devices);
		snprintf(c->devices[0], sizeof c->devices[0], "%s", r->order_device);
	}
	r->order_here = false;
	send_command(r, c);
}

enum code rig_wait_order(struct rig *r)
{
	WAIT_FOR(r->order_here);
	return r->order;
}

void rig_expect_order(struct rig *r)
{
	cr_assert_eq(rig_wait_order(r), CODE_OK, "%s", r->order_why);
}

uint32_t rig_notices(struct rig *r, const uint32_t *counter)
{
	pthread_mutex_lock(&r->lock);
	uint32_t n = *counter;
	pthread_mutex_unlock(&r->lock);
	return n;
}

/* ---- workers ---- */

struct fake {
	struct fake_worker *w;
	void *s;
	struct device *device;
	struct bus_load load;
	uint64_t expected;
	bool missed, hung, stuck;
	int n_hellos, n_seen; /* plans received */
	int64_t beat_us, wake_us;
	uint32_t n_blocks;
	struct plan plan;
	struct result result;
	struct buf out;
};

static void send_msg(void *s, const struct bus_msg *m)
{
	struct buf b = {0};
	bus_encode(m, &b);
	zmq_send(s, b.p, b.len, 0);
	buf_fini(&b);
}

static void send_hello(struct fake *f)
{
	struct bus_msg m = {.type = BUS_HELLO};
	snprintf(m.hello.device, sizeof m.hello.device, "%s", f->w->c.device ? f->w->c.device : "cpu");
	snprintf(m.hello.host, sizeof m.hello.host, "%s", f->w->c.host ? f->w->c.host : "here");
	snprintf(m.hello.rendezvous, sizeof m.hello.rendezvous, "%p-%d", (void *)f->w, ++f->n_hellos);
	m.hello.pid = f->w->c.pid ? f->w->c.pid : 1;
	snprintf(m.hello.compute, sizeof m.hello.compute, "%s", f->w->c.compute ? f->w->c.compute : "f32");
	snprintf(m.hello.token, sizeof m.hello.token, "%s", f->w->c.token ? f->w->c.token : "");
	send_msg(f->s, &m);
}

static void send_beat(struct fake *f)
{
	f->beat_us = clock_us();
	send_msg(f->s, &(struct bus_msg){.type = BUS_BEAT,
					 .beat = {f->load.epoch,
						  f->missed      ? BUS_MISSED
						  : f->w->leaves ? BUS_LEAVING
								 : BUS_SERVING,
						  f->expected - 1, f->expected}});
}

static void on_load(struct fake *f, const struct bus_load *load)
{
	if (f->w->c.fail_load) {
		send_msg(f->s, &(struct bus_msg){.type = BUS_FAILED,
						 .failed = {load->epoch, "the weights are torn"}});
		return;
	}
	f->load = *load;
	f->expected = 1;
	f->missed = false;
	device_free(f->device);
	f->device = device_new(RIG_SLOTS, f->n_blocks, 0, 16, RIG_CONTEXT);
	f->w->rank = load->rank;
	f->w->n_loads++;
	f->w->n_group_plans = 0;
	struct bus_msg m = {.type = BUS_READY};
	m.ready = (struct bus_ready){
		.epoch = load->epoch, .n_blocks = f->n_blocks, .n_vocab = DEVICE_VOCAB, .load_ms = 1};
	snprintf(m.ready.numerics, sizeof m.ready.numerics, "%s",
		 f->w->c.numerics ? f->w->c.numerics : "class a");
	send_msg(f->s, &m);
}

static bool names(const struct plan *p, uint64_t job)
{
	for (uint32_t i = 0; i < p->n_seqs; i++)
		if (p->seqs[i].seq == job)
			return true;
	return false;
}

/* Return the duration of the step as reported. */
static uint32_t step_us(const struct fake *f)
{
	uint32_t us = f->w->step_us ? (uint32_t)f->w->step_us : 1000;
	for (uint32_t i = 0; i < f->plan.n_runs; i++)
		us += f->plan.runs[i].n_rows > 1 ? f->plan.runs[i].n_rows * f->w->c.row_us : 0;
	return us;
}

static void on_plan(struct fake *f, const void *bytes, size_t n)
{
	struct bus_limits lim = {RIG_SLOTS,   MAX_ROWS, RIG_SLOTS,    RIG_CONTEXT,
				 f->n_blocks, 0,        DEVICE_VOCAB, 1};
	struct why why;
	cr_assert_eq(bus_decode_plan(bytes, n, &lim, &f->plan, &why), 0, "%s", why.text);
	if (f->plan.epoch != f->load.epoch)
		return;
	const struct fake_config *c = &f->w->c;
	int seen = ++f->n_seen;
	if (seen == c->lose_plan)
		return;
	if (seen == c->stuck_at) {
		f->stuck = true;
		return;
	}
	if (seen == c->die_at || atomic_load(&f->w->dies) || (c->die_of && names(&f->plan, c->die_of))) {
		f->w->end = true;
		return;
	}
	if (seen == c->hang_at) {
		f->hung = true;
		f->wake_us = c->hang_ms ? clock_us() + c->hang_ms * 1000 : INT64_MAX;
		return;
	}
	if (f->plan.number != f->expected) {
		f->missed = f->missed || f->plan.number > f->expected;
		send_beat(f);
		return;
	}
	usleep((useconds_t)f->w->step_us);
	device_step(f->device, &f->plan, &f->result);
	f->expected++;
	f->w->n_plans++;
	f->w->n_seqs += (int)f->plan.n_seqs;
	f->w->n_group_plans++;
	if (f->load.rank > 0 || seen == c->lose_result)
		return;
	f->w->n_results++;
	f->result.step_us = step_us(f);
	bus_encode_result(&f->result, &f->out);
	if (seen == c->garbage_at)
		zmq_send(f->s, "garbage", 7, 0);
	else
		zmq_send(f->s, f->out.p, f->out.len, 0);
}

static void on_beat(struct fake *f, const struct bus_beat *b)
{
	if (b->epoch == 0 && f->load.n_ranks > 1) { /* its tp_group has ended */
		f->load.n_ranks = 0;
		send_hello(f);
	} else if (b->epoch == f->load.epoch && b->progress >= f->expected && !f->missed) {
		f->missed = true;
		send_beat(f);
	}
}

static void on_message(struct fake *f, const void *bytes, size_t n)
{
	struct bus_msg m;
	struct why why;
	int type = bus_peek(bytes, n, &why);
	if (f->stuck)
		return;
	if (type == BUS_PLAN) {
		on_plan(f, bytes, n);
		return;
	}
	cr_assert_eq(bus_decode(bytes, n, &m, &why), 0, "%s", why.text);
	if (type == BUS_LOAD) {
		on_load(f, &m.load);
	} else if (type == BUS_BEAT) {
		on_beat(f, &m.beat);
	} else if (type == BUS_STOP) {
		f->w->stopped = true; /* before the reply: tests check it as soon as the order is done */
		send_msg(f->s, &(struct bus_msg){.type = BUS_STOP});
		f->w->end = true;
	}
}

static void *fake_main(void *arg)
{
	struct fake_worker *w = arg;
	struct fake f = {.w = w, .expected = 1, .n_blocks = w->c.n_blocks ? w->c.n_blocks : RIG_BLOCKS};
	int timeout = 10, linger = 500;
	f.s = zmq_socket(w->rig->zmq, ZMQ_DEALER);
	f.device = device_new(RIG_SLOTS, f.n_blocks, 0, 16, RIG_CONTEXT);
	zmq_setsockopt(f.s, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	zmq_setsockopt(f.s, ZMQ_LINGER, &linger, sizeof linger);
	zmq_connect(f.s, w->bus);
	send_hello(&f);
	while (!w->end) {
		if (f.hung && clock_us() < f.wake_us) {
			usleep(1000);
			continue;
		}
		f.hung = false;
		if (atomic_exchange(&w->hello_again, false))
			send_hello(&f);
		if (clock_us() - f.beat_us > 100000)
			send_beat(&f);
		zmq_msg_t m;
		zmq_msg_init(&m);
		if (zmq_msg_recv(&m, f.s, 0) >= 0)
			on_message(&f, zmq_msg_data(&m), zmq_msg_size(&m));
		else if (zmq_errno() == ETERM)
			w->end = true;
		zmq_msg_close(&m);
	}
	plan_reset(&f.plan);
	bus_plan_fini(&f.plan);
	result_fini(&f.result);
	buf_fini(&f.out);
	device_free(f.device);
	zmq_close(f.s);
	return NULL;
}

struct fake_worker *rig_worker(struct rig *r, const struct fake_config *c)
{
	struct fake_worker *w = xcalloc(1, sizeof *w);
	cr_assert_lt(r->n_workers, RIG_WORKERS);
	if (c)
		w->c = *c;
	w->step_us = w->c.step_us;
	w->rig = r;
	snprintf(w->bus, sizeof w->bus, "%s", engine_bus(r->engine));
	r->workers[r->n_workers++] = w;
	pthread_create(&w->thread, NULL, fake_main, w);
	return w;
}

void rig_wait_stopped(struct fake_worker *w)
{
	while (!w->stopped)
		usleep(1000);
}

void rig_join_worker(struct fake_worker *w)
{
	if (!w->joined)
		pthread_join(w->thread, NULL);
	w->joined = true;
}

void rig_end_worker(struct fake_worker *w)
{
	w->end = true;
	rig_join_worker(w);
}

/* ---- peers ---- */

void *rig_peer(struct rig *r, const char *identity)
{
	void *s = zmq_socket(r->zmq, ZMQ_DEALER);
	int timeout = 60000, linger = 0;
	cr_assert_lt(r->n_peers, RIG_PEERS);
	r->peers[r->n_peers++] = s;
	zmq_setsockopt(s, ZMQ_ROUTING_ID, identity, strlen(identity));
	zmq_setsockopt(s, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger);
	cr_assert_eq(zmq_connect(s, engine_bus(r->engine)), 0);
	return s;
}

void rig_peer_send(void *peer, const struct bus_msg *m)
{
	send_msg(peer, m);
}

void rig_peer_hello(void *peer, const char *device, const char *host)
{
	struct bus_msg m = {.type = BUS_HELLO, .hello = {.pid = 1, .rendezvous = "place"}};
	snprintf(m.hello.device, sizeof m.hello.device, "%s", device);
	snprintf(m.hello.host, sizeof m.hello.host, "%s", host);
	rig_peer_send(peer, &m);
}

void rig_peer_ready(void *peer, const struct bus_load *load)
{
	struct bus_msg m = {.type = BUS_READY};
	m.ready = (struct bus_ready){
		.epoch = load->epoch, .numerics = "class a", .n_blocks = RIG_BLOCKS, .n_vocab = DEVICE_VOCAB};
	rig_peer_send(peer, &m);
}

enum bus_type rig_peer_recv(void *peer, struct bus_load *load)
{
	static char bytes[1 << 16];
	struct why why;
	for (;;) {
		int n = zmq_recv(peer, bytes, sizeof bytes, 0);
		cr_assert_gt(n, 0, "no message in time");
		int type = bus_peek(bytes, (size_t)n, &why);
		struct bus_msg m;
		if (type == BUS_LOAD && load) {
			cr_assert_eq(bus_decode(bytes, (size_t)n, &m, &why), 0, "%s", why.text);
			*load = m.load;
		}
		if (type != BUS_BEAT)
			return (enum bus_type)type;
	}
}

void *rig_loading_peer(struct rig *r, const char *identity, struct bus_load *load)
{
	void *peer = rig_peer(r, identity);
	rig_peer_hello(peer, "cpu", "here");
	cr_assert_eq(rig_peer_recv(peer, load), BUS_LOAD);
	return peer;
}
