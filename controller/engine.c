#include "controller/engine.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/metrics.h"
#include "controller/sched.h"
#include "controller/wlink.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum {
	PREFILL_ROWS = 64, /* a step of so many tokens tells what a prompt costs */
	TICK_MS = 100,     /* deadlines, heartbeats */
	COMMANDS = 256,    /* taken in one turn of the loop */
	RATE_SECONDS = 8,  /* window of the tokens-per-second figures */
};

/* Logprobs of a job's prompt, gathered over the steps that compute it. */
struct prompt_logprobs {
	uint64_t job;
	uint32_t n; /* tokens that have one: the prompt's but the first */
	uint32_t have;
	struct engine_token *tokens; /* [n] */
	uint32_t *top_ids;           /* [n * PARAMS_LOGPROBS_MAX] */
	float *top_logprobs;
	struct prompt_logprobs *next;
};

struct engine {
	struct engine_config cfg;
	pthread_t thread;
	void *in, *out; /* PULL, PUSH */
	struct wlink *link;
	struct sched *sched;
	struct plan plan;
	struct result result;
	struct sched_events events;
	struct prompt_logprobs *prompts;
	bool quit;
	bool ready;
	uint32_t max_context;
	int64_t idle_since_us; /* since when no worker has served */
	double step_us_mean;
	double prefill_tps;         /* moving average over steps with long prompts; 0: none seen */
	uint32_t rows[SCHED_AHEAD]; /* of the plans under way, by number */
	/* Tokens per second: counts at the beginning of each of the last seconds. */
	struct {
		int64_t second;
		uint64_t prompt, generated;
	} rate[RATE_SECONDS];
};

/* ---- events out ---- */

static void emit(struct engine *e, struct engine_event *ev)
{
	/* The front end's socket has no bound: what is in it is bounded by the jobs accepted.  When
	 * the service ends, the front end goes first: nobody is there to wait for. */
	if (zmq_send(e->out, &ev, sizeof ev, ZMQ_DONTWAIT) < 0)
		engine_event_free(ev);
}

static struct engine_event *event_new(enum engine_event_kind kind, uint64_t job)
{
	struct engine_event *ev = xcalloc(1, sizeof *ev);
	ev->kind = kind;
	ev->job = job;
	ev->stop_token = -1;
	return ev;
}

void engine_event_free(struct engine_event *e)
{
	if (!e)
		return;
	free(e->tokens);
	free(e->top_ids);
	free(e->top_logprobs);
	free(e->status);
	free(e);
}

void engine_cmd_free(struct engine_cmd *c)
{
	if (!c)
		return;
	free(c->tokens);
	params_fini(&c->params);
	free(c);
}

static void emit_code(struct engine *e, enum engine_event_kind kind, uint64_t job, enum code code,
		      const char *why)
{
	struct engine_event *ev = event_new(kind, job);
	ev->code = code;
	snprintf(ev->why, sizeof ev->why, "%s", why);
	emit(e, ev);
}

static void set_ready(struct engine *e, bool ready, int64_t lost_pid, const char *why)
{
	if (ready == e->ready && !why[0])
		return;
	e->ready = ready;
	struct engine_event *ev = event_new(ENGINE_STATE, 0);
	ev->ready = ready;
	ev->max_context = e->max_context;
	snprintf(ev->why, sizeof ev->why, "%s", why);
	emit(e, ev);
	if (e->cfg.on_state)
		e->cfg.on_state(e->cfg.on_state_user, ready, lost_pid, why);
}

static const char *failure_text(enum code code)
{
	switch (code) {
	case E_DEADLINE:
		return "the deadline has passed";
	case E_WORKER_LOST:
		return "no worker served in time";
	case E_TOO_LONG:
		return "the prompt and max_tokens exceed what the cache of the worker holds";
	default:
		return "internal error";
	}
}

static void forget_prompt_logprobs(struct engine *e, uint64_t job)
{
	for (struct prompt_logprobs **at = &e->prompts; *at; at = &(*at)->next) {
		struct prompt_logprobs *p = *at;
		if (p->job != job)
			continue;
		*at = p->next;
		free(p->tokens);
		free(p->top_ids);
		free(p->top_logprobs);
		free(p);
		return;
	}
}

/* The tokens of one result: one event, before the ends that they may have brought. */
static void emit_tokens(struct engine *e, const struct result *r)
{
	uint32_t n = 0, n_top = 0, k = 0;
	for (uint32_t i = 0; i < e->events.n; i++) {
		const struct sched_event *s = &e->events.v[i];
		n += s->kind == SCHED_TOKEN;
		if (s->kind == SCHED_TOKEN && s->logprob >= 0)
			n_top += r->logprobs[s->logprob].n_top;
	}
	if (n == 0)
		return;
	struct engine_event *ev = event_new(ENGINE_TOKENS, 0);
	ev->tokens = xcalloc(n, sizeof *ev->tokens);
	ev->n_tokens = n;
	if (n_top) {
		ev->top_ids = xmalloc(n_top * sizeof *ev->top_ids);
		ev->top_logprobs = xmalloc(n_top * sizeof *ev->top_logprobs);
	}
	n = n_top = 0;
	for (; k < e->events.n; k++) {
		const struct sched_event *s = &e->events.v[k];
		if (s->kind != SCHED_TOKEN)
			continue;
		struct engine_token *t = &ev->tokens[n++];
		*t = (struct engine_token){
			.job = s->job, .index = s->index, .token = s->token, .top0 = n_top, .stop = s->stop};
		if (s->logprob < 0)
			continue;
		const struct result_logprob *l = &r->logprobs[s->logprob];
		t->logprob = l->logprob;
		t->rank = l->rank;
		t->n_top = l->n_top;
		if (l->n_top) {
			memcpy(ev->top_ids + n_top, r->top_ids + l->top0, l->n_top * sizeof *ev->top_ids);
			memcpy(ev->top_logprobs + n_top, r->top_logprobs + l->top0,
			       l->n_top * sizeof *ev->top_logprobs);
		}
		n_top += l->n_top;
	}
	emit(e, ev);
}

static void emit_end(struct engine *e, const struct sched_event *s, int64_t now_us)
{
	struct engine_event *ev;
	switch (s->kind) {
	case SCHED_TOKEN:
		break;
	case SCHED_OUTPUT_DONE:
		ev = event_new(ENGINE_OUTPUT_DONE, s->job);
		ev->index = s->index;
		ev->finish = s->finish;
		ev->stop_token = s->stop_token;
		emit(e, ev);
		break;
	case SCHED_GROUP_DONE:
		ev = event_new(ENGINE_JOB_DONE, s->job);
		ev->queued_us = (s->first_run_us ? s->first_run_us : now_us) - s->arrival_us;
		ev->first_token_us = (s->first_token_us ? s->first_token_us : now_us) - s->arrival_us;
		ev->total_us = now_us - s->arrival_us;
		ev->cached_tokens = s->cached_tokens;
		emit(e, ev);
		forget_prompt_logprobs(e, s->job);
		break;
	case SCHED_GROUP_FAILED:
		emit_code(e, ENGINE_JOB_FAILED, s->job, s->code, failure_text(s->code));
		forget_prompt_logprobs(e, s->job);
		break;
	}
}

/* What the scheduler said, to the front end. r: the result that its logprobs refer to, or NULL. */
static void flush_events(struct engine *e, const struct result *r, int64_t now_us)
{
	if (r)
		emit_tokens(e, r);
	for (uint32_t i = 0; i < e->events.n; i++)
		emit_end(e, &e->events.v[i], now_us);
	e->events.n = 0;
}

/* ---- logprobs of prompts ---- */

static struct prompt_logprobs *prompt_of(struct engine *e, const struct group *g)
{
	for (struct prompt_logprobs *p = e->prompts; p; p = p->next)
		if (p->job == g->job)
			return p->have == p->n ? NULL : p; /* all were sent: computed again */
	struct prompt_logprobs *p = xcalloc(1, sizeof *p);
	size_t k = (size_t)g->params.prompt_logprobs;
	p->job = g->job;
	p->n = g->n_prompt - 1;
	p->tokens = xcalloc(p->n, sizeof *p->tokens);
	p->top_ids = xmalloc(p->n * k * sizeof *p->top_ids);
	p->top_logprobs = xmalloc(p->n * k * sizeof *p->top_logprobs);
	p->next = e->prompts;
	e->prompts = p;
	return p;
}

static void emit_prompt(struct engine *e, struct prompt_logprobs *p)
{
	struct engine_event *ev = event_new(ENGINE_PROMPT_LOGPROBS, p->job);
	ev->tokens = p->tokens;
	ev->n_tokens = p->n;
	ev->top_ids = p->top_ids;
	ev->top_logprobs = p->top_logprobs;
	p->tokens = NULL;
	p->top_ids = NULL;
	p->top_logprobs = NULL;
	emit(e, ev);
}

static void gather_prompt_logprobs(struct engine *e, const struct result *r)
{
	const struct group *g = NULL;
	uint32_t slot = UINT32_MAX; /* whose group g is: those of one run stand together */
	for (uint32_t i = 0; i < r->n_logprobs; i++) {
		const struct result_logprob *l = &r->logprobs[i];
		if (l->prompt && l->slot != slot)
			g = sched_run_of(e->sched, slot = l->slot);
		if (!l->prompt || !g || g->params.prompt_logprobs < 0 || l->position == 0 ||
		    l->position >= g->n_prompt || l->n_top > (uint32_t)g->params.prompt_logprobs)
			continue;
		struct prompt_logprobs *p = prompt_of(e, g);
		if (!p)
			continue;
		struct engine_token *t = &p->tokens[l->position - 1];
		if (t->rank)
			continue; /* had it before a preemption */
		uint32_t top0 = (l->position - 1) * (uint32_t)g->params.prompt_logprobs;
		*t = (struct engine_token){.job = g->job,
					   .token = l->token,
					   .logprob = l->logprob,
					   .rank = l->rank ? l->rank : 1,
					   .n_top = l->n_top,
					   .top0 = top0};
		for (uint32_t k = 0; k < l->n_top; k++) {
			p->top_ids[top0 + k] = r->top_ids[l->top0 + k];
			p->top_logprobs[top0 + k] = r->top_logprobs[l->top0 + k];
		}
		if (++p->have == p->n)
			emit_prompt(e, p);
	}
}

/* ---- commands in ---- */

static void on_submit(struct engine *e, struct engine_cmd *c, int64_t now_us)
{
	struct sched_stats st;
	uint64_t total = (uint64_t)c->n_tokens + c->params.max_tokens;
	sched_stats(e->sched, &st);
	if (c->n_tokens == 0 || c->params.max_tokens == 0 || c->params.n == 0 || c->params.n > PARAMS_N_MAX) {
		emit_code(e, ENGINE_REFUSED, c->job, E_BAD_REQUEST, "a job needs a prompt, max_tokens and n");
	} else if (total > e->max_context) {
		char why[128];
		snprintf(why, sizeof why, "prompt (%u) and max_tokens (%u) exceed the context of %u tokens",
			 c->n_tokens, c->params.max_tokens, e->max_context);
		emit_code(e, ENGINE_REFUSED, c->job, E_TOO_LONG, why);
	} else if (st.n_queued >= e->cfg.max_jobs || st.queued_tokens + c->n_tokens > e->cfg.max_tokens) {
		char why[128];
		snprintf(why, sizeof why, "the queue is full: %u jobs, %llu tokens wait", st.n_queued,
			 (unsigned long long)st.queued_tokens);
		emit_code(e, ENGINE_REFUSED, c->job, E_OVERLOADED, why);
	} else {
		struct group *g = group_new(c->job, c->tokens, c->n_tokens, &c->params);
		c->tokens = NULL;
		g->deadline_us = c->deadline_us;
		g->priority = c->priority;
		g->user = c->user;
		g->share = c->share;
		g->salt = c->salt;
		if (e->cfg.max_seqs < g->n_seqs)
			log_debug("engine", "job=%llu n=%u runs in turns of %u", (unsigned long long)c->job,
				  g->n_seqs, e->cfg.max_seqs);
		sched_add(e->sched, &g, now_us);
		emit(e, event_new(ENGINE_ACCEPTED, c->job));
	}
}

static void rates(const struct engine *e, const struct sched_stats *st, int64_t now_us,
		  struct engine_status *out)
{
	int64_t oldest = INT64_MAX;
	int at = -1;
	for (int i = 0; i < RATE_SECONDS; i++)
		if (e->rate[i].second && e->rate[i].second > now_us / 1000000 - RATE_SECONDS &&
		    e->rate[i].second < oldest) {
			oldest = e->rate[i].second;
			at = i;
		}
	if (at < 0)
		return;
	double span = (double)(now_us - oldest * 1000000) / 1e6;
	if (span < 0.5)
		return;
	out->prompt_tps = (double)(st->prompt_tokens - e->rate[at].prompt) / span;
	out->decode_tps = (double)(st->generated_tokens - e->rate[at].generated) / span;
}

static void replica_row(const struct engine *e, struct engine_status *out)
{
	const struct engine_worker *w = &out->workers[0];
	if (out->n_workers == 0 || strcmp(w->state, "lost") == 0)
		return;
	out->n_replicas = 1;
	struct engine_replica *r = &out->replicas[0];
	*r = (struct engine_replica){
		.id = w->replica,
		.tp = 1,
		.n_workers = 1,
		.workers = {w->id},
		.max_context = e->ready ? e->max_context : 0,
		.n_running = out->n_running,
		.n_waiting = out->n_waiting,
		.n_swapped = out->n_swapped,
		.queued_tokens = out->queued_tokens,
		.n_blocks = out->n_blocks,
		.n_free = out->n_free,
		.n_cached = out->n_cached,
		.n_held = out->n_held,
		.n_host_blocks = out->n_host_blocks,
		.n_host_free = out->n_host_free,
		.n_preempted = out->n_preempted,
		.n_swapped_out = out->n_swapped_out,
		.prefix_queries = out->prefix_queries,
		.prefix_hits = out->prefix_hits,
		.prompt_tokens = out->prompt_tokens,
		.generated_tokens = out->generated_tokens,
		.n_steps = out->n_steps,
		.step_us_mean = out->step_us_mean,
		.prompt_tps = out->prompt_tps,
		.decode_tps = out->decode_tps,
	};
	snprintf(r->state, sizeof r->state, "%s", w->state);
	if (e->ready)
		snprintf(r->numerics, sizeof r->numerics, "%s", wlink_ready(e->link)->numerics);
}

static void on_status(struct engine *e, const struct engine_cmd *c, int64_t now_us)
{
	struct sched_stats st;
	sched_stats(e->sched, &st);
	struct engine_event *ev = event_new(ENGINE_STATUS_REPLY, 0);
	struct engine_status *out = ev->status = xcalloc(1, sizeof *out);
	ev->tag = c->tag;
	*out = (struct engine_status){
		.ready = e->ready,
		.max_context = e->max_context,
		.n_running = st.n_running,
		.n_waiting = st.n_waiting,
		.queued_tokens = st.queued_tokens,
		.block_size = e->cfg.block_size,
		.n_blocks = st.n_blocks,
		.n_swapped = st.n_swapped,
		.n_free = st.n_free,
		.n_cached = st.n_cached,
		.n_host_blocks = st.n_host_blocks,
		.n_host_free = st.n_host_free,
		.n_swapped_out = st.n_swapped_out,
		.prefix_queries = st.prefix_queries,
		.prefix_hits = st.prefix_hits,
		.n_held = st.n_blocks - st.n_free - st.n_cached,
		.n_preempted = st.n_preempted,
		.prompt_tokens = st.prompt_tokens,
		.generated_tokens = st.generated_tokens,
		.n_steps = st.n_plans,
		.step_us_mean = e->step_us_mean,
	};
	rates(e, &st, now_us, out);
	out->n_workers = wlink_status(e->link, &out->workers[0]);
	replica_row(e, out);
	emit(e, ev);
}

static void on_command(struct engine *e, struct engine_cmd *c, int64_t now_us)
{
	switch (c->kind) {
	case ENGINE_SUBMIT:
		on_submit(e, c, now_us);
		break;
	case ENGINE_STOP:
		sched_stop(e->sched, c->job, c->index, &e->events);
		break;
	case ENGINE_CANCEL:
		sched_cancel(e->sched, c->job, &e->events);
		break;
	case ENGINE_STATUS:
		on_status(e, c, now_us);
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
	/* Only so many between two steps: a flood of jobs does not hold up those that run. */
	for (int i = 0; i < COMMANDS && !e->quit; i++) {
		if (zmq_recv(e->in, &c, sizeof c, ZMQ_DONTWAIT) != (int)sizeof c)
			break;
		on_command(e, c, now_us);
	}
	flush_events(e, NULL, now_us);
}

/* ---- the worker ---- */

static void measure_speed(struct engine *e)
{
	const struct bus_ready *r = wlink_ready(e->link);
	sched_speed(e->sched, e->prefill_tps, (double)r->link_bps, r->block_bytes);
}

static void note_rows(struct engine *e)
{
	e->rows[e->plan.number % SCHED_AHEAD] = e->plan.n_rows;
}

static void note_prefill(struct engine *e, const struct result *r)
{
	uint32_t rows = e->rows[r->number % SCHED_AHEAD];
	if (rows < PREFILL_ROWS || r->step_us == 0)
		return;
	double tps = rows * 1e6 / r->step_us;
	e->prefill_tps = e->prefill_tps == 0 ? tps : 0.9 * e->prefill_tps + 0.1 * tps;
	measure_speed(e);
}

/* pid: of a worker here that may still hang, 0: none. */
static void on_lost(struct engine *e, int64_t now_us, int64_t pid, const char *why)
{
	log_warn("engine", "worker lost: %s", why);
	/* One that dies while it loads, again and again, does not prolong the wait. */
	if (e->ready) {
		sched_lost(e->sched);
		e->idle_since_us = now_us;
	}
	set_ready(e, false, pid, why);
}

static void on_ready(struct engine *e, int64_t now_us)
{
	const struct bus_ready *r = wlink_ready(e->link);
	uint64_t pool = (uint64_t)r->n_blocks * e->cfg.block_size;
	e->max_context = pool < e->cfg.model_context ? (uint32_t)pool : e->cfg.model_context;
	sched_start(e->sched, r->n_blocks, r->n_host_blocks, wlink_epoch(e->link));
	measure_speed(e);
	sched_fail_larger(e->sched, e->max_context, &e->events);
	flush_events(e, NULL, now_us);
	set_ready(e, true, 0, "");
}

static void on_result(struct engine *e, int64_t now_us)
{
	struct result *r = &e->result;
	gather_prompt_logprobs(e, r);
	if (sched_apply(e->sched, r, now_us, &e->events)) {
		log_error("engine", "result number=%llu does not fit its plan",
			  (unsigned long long)r->number);
		wlink_drop(e->link);
		on_lost(e, now_us, wlink_lost_pid(e->link), "it sent a result that fits no plan");
		return;
	}
	metrics_observe(e->cfg.metrics, METRIC_ITERATION_TOKENS, e->rows[r->number % SCHED_AHEAD]);
	note_prefill(e, r);
	e->step_us_mean = e->step_us_mean == 0 ? r->step_us : 0.95 * e->step_us_mean + 0.05 * r->step_us;
	flush_events(e, r, now_us);
}

static void on_link(struct engine *e, enum wlink_event ev, int64_t now_us, const char *why)
{
	switch (ev) {
	case WLINK_NONE:
		break;
	case WLINK_READY:
		on_ready(e, now_us);
		break;
	case WLINK_RESULT:
		on_result(e, now_us);
		break;
	case WLINK_LOST:
		on_lost(e, now_us, wlink_lost_pid(e->link), why);
		break;
	case WLINK_FAILED: /* it ends by itself, and another try would end alike */
		on_lost(e, now_us, 0, why);
		break;
	}
}

static void take_messages(struct engine *e, int64_t now_us)
{
	char why[512];
	enum wlink_event ev;
	while ((ev = wlink_recv(e->link, now_us, &e->result, why, sizeof why)) != WLINK_NONE)
		on_link(e, ev, now_us, why);
	on_link(e, wlink_tick(e->link, now_us, why, sizeof why), now_us, why);
}

static void send_plans(struct engine *e, int64_t now_us)
{
	while (e->ready && sched_plan(e->sched, now_us, &e->plan)) {
		note_rows(e);
		int rc = wlink_send_plan(e->link, &e->plan);
		if (rc == 0)
			continue;
		wlink_drop(e->link);
		on_lost(e, now_us, wlink_lost_pid(e->link), strerror(-rc));
	}
}

static void tick(struct engine *e, int64_t now_us)
{
	struct sched_stats st;
	sched_expire(e->sched, now_us, &e->events);
	sched_stats(e->sched, &st);
	if (e->cfg.load) {
		atomic_store_explicit(&e->cfg.load->n_queued, st.n_queued, memory_order_relaxed);
		atomic_store_explicit(&e->cfg.load->queued_tokens, st.queued_tokens, memory_order_relaxed);
	}
	int64_t second = now_us / 1000000;
	int at = (int)(second % RATE_SECONDS);
	if (e->rate[at].second != second) {
		e->rate[at].second = second;
		e->rate[at].prompt = st.prompt_tokens;
		e->rate[at].generated = st.generated_tokens;
	}
	if (!e->ready && st.n_groups && now_us - e->idle_since_us > e->cfg.worker_wait_us)
		sched_fail_older(e->sched, now_us - e->cfg.worker_wait_us, E_WORKER_LOST, &e->events);
	flush_events(e, NULL, now_us);
}

/* The loop: what has come in, what it means, what goes out. */
static void *engine_main(void *arg)
{
	struct engine *e = arg;
	e->idle_since_us = clock_us();
	while (!e->quit) {
		zmq_pollitem_t items[] = {
			{.socket = e->in, .events = ZMQ_POLLIN},
			{.socket = wlink_socket(e->link), .events = ZMQ_POLLIN},
		};
		zmq_poll(items, 2, TICK_MS);
		int64_t now_us = clock_us();
		take_messages(e, now_us);
		take_commands(e, now_us);
		tick(e, now_us);
		send_plans(e, now_us);
	}
	wlink_close(e->link);
	struct engine_cmd *c;
	while (zmq_recv(e->in, &c, sizeof c, ZMQ_DONTWAIT) == (int)sizeof c)
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

static enum sched_preempt preempt_mode(const char *name)
{
	if (strcmp(name, "swap") == 0)
		return SCHED_SWAP;
	return strcmp(name, "recompute") == 0 ? SCHED_RECOMPUTE : SCHED_AUTO;
}

int engine_start(void *zmq_context, const struct engine_config *cfg, struct engine **out, char *why,
		 size_t why_n)
{
	struct engine *e = xcalloc(1, sizeof *e);
	int rc;
	e->cfg = *cfg;
	e->max_context = cfg->model_context;
	e->sched = sched_new(&(struct sched_config){
		.block_size = cfg->block_size,
		.max_seqs = cfg->max_seqs,
		.max_rows = cfg->max_rows,
		.chunk = cfg->chunk,
		.step_us = cfg->step_us,
		.prefill_separate = cfg->prefill_separate,
		.no_cache = cfg->no_prefix_cache,
		.preempt = preempt_mode(cfg->preempt),
		.seed = cfg->seed,
	});
	e->in = open_socket(zmq_context, ZMQ_PULL);
	e->out = open_socket(zmq_context, ZMQ_PUSH);
	if (!e->in || !e->out || zmq_bind(e->in, ENGINE_IN) < 0 || zmq_connect(e->out, ENGINE_OUT) < 0) {
		rc = err_why(why, why_n, -errno, "engine: %s", zmq_strerror(errno));
		goto fail_sockets;
	}
	rc = wlink_open(zmq_context, cfg, &e->link, why, why_n);
	if (rc)
		goto fail_sockets;
	rc = pthread_create(&e->thread, NULL, engine_main, e);
	if (rc) {
		rc = err_why(why, why_n, -rc, "engine thread: %s", strerror(rc));
		goto fail_link;
	}
	*out = e;
	return 0;

fail_link:
	wlink_close(e->link);
fail_sockets:
	if (e->in)
		zmq_close(e->in);
	if (e->out)
		zmq_close(e->out);
	sched_free(e->sched);
	free(e);
	return rc;
}

const char *engine_bus(const struct engine *e)
{
	return wlink_endpoint(e->link);
}

void engine_join(struct engine *e)
{
	pthread_join(e->thread, NULL);
	while (e->prompts)
		forget_prompt_logprobs(e, e->prompts->job);
	sched_free(e->sched);
	sched_events_fini(&e->events);
	plan_fini(&e->plan);
	result_fini(&e->result);
	free(e);
}
