#include "controller/fleet/emit.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

/* Logprobs of a job's prompt, collected over the steps that compute it. */
struct prompt_logprobs {
	uint64_t job;
	uint32_t n; /* prompt tokens except the first, which has no logprob */
	uint32_t have;
	struct engine_token *tokens; /* [n] */
	uint32_t *top_ids;           /* [n * PARAMS_LOGPROBS_MAX] */
	float *top_logprobs;
	struct prompt_logprobs *next;
};

/* A pool of TOKENS events, one per step: the front end returns them to the pool, so that a step allocates
 * nothing.  The pool is freed with the last of its events. */
struct emit_home {
	pthread_mutex_t lock;
	struct engine_event *spare;
	uint32_t n_spare, n_away;
	bool closed; /* the emit is freed: the pool is freed with the last event still in use */
};

enum { SPARE_MAX = 64 }; /* more spare events, left from a past burst, are freed */

struct emit {
	void *out;                                  /* PUSH */
	struct engine_event *unsent, **last_unsent; /* queue, oldest first */
	struct emit_home *home;
	struct prompt_logprobs *prompts;
};

struct emit *emit_new(void *socket)
{
	struct emit *e = xcalloc(1, sizeof *e);
	e->out = socket;
	e->last_unsent = &e->unsent;
	e->home = xcalloc(1, sizeof *e->home);
	pthread_mutex_init(&e->home->lock, NULL);
	return e;
}

static void event_free(struct engine_event *e)
{
	engine_event_fini(e);
	free(e);
}

static void home_free(struct emit_home *h)
{
	pthread_mutex_destroy(&h->lock);
	free(h);
}

static void home_give(struct engine_event *ev)
{
	struct emit_home *h = ev->home;
	pthread_mutex_lock(&h->lock);
	bool keep = !h->closed && h->n_spare < SPARE_MAX;
	if (keep) {
		ev->next_spare = h->spare;
		h->spare = ev;
		h->n_spare++;
	}
	bool last = --h->n_away == 0 && h->closed;
	pthread_mutex_unlock(&h->lock);
	if (!keep)
		event_free(ev);
	if (last)
		home_free(h);
}

static struct engine_event *home_take(struct emit_home *h)
{
	pthread_mutex_lock(&h->lock);
	struct engine_event *ev = h->spare;
	if (ev) {
		h->spare = ev->next_spare;
		h->n_spare--;
	}
	h->n_away++;
	pthread_mutex_unlock(&h->lock);
	if (!ev) {
		ev = xcalloc(1, sizeof *ev);
		ev->home = h;
		ev->recycle = home_give;
	}
	return ev;
}

static void home_close(struct emit_home *h)
{
	pthread_mutex_lock(&h->lock);
	h->closed = true;
	struct engine_event *spare = h->spare;
	bool last = h->n_away == 0;
	pthread_mutex_unlock(&h->lock);
	while (spare) {
		struct engine_event *next = spare->next_spare;
		event_free(spare);
		spare = next;
	}
	if (last)
		home_free(h);
}

/* An event that cannot be sent is kept: clients would wait forever for the end of a job that was dropped.
 * The socket's queue has no bound; the number of accepted jobs limits it. */
void emit_flush(struct emit *e)
{
	while (e->unsent) {
		struct engine_event *ev = e->unsent, *next = ev->next_spare;
		if (engine_msg_send(e->out, ev) < 0)
			return;
		e->unsent = next;
	}
	e->last_unsent = &e->unsent;
}

void emit_event(struct emit *e, struct engine_event *ev)
{
	ev->next_spare = NULL;
	*e->last_unsent = ev;
	e->last_unsent = &ev->next_spare;
}

struct engine_event *emit_event_new(enum engine_event_kind kind, uint64_t job)
{
	struct engine_event *ev = xcalloc(1, sizeof *ev);
	ev->kind = kind;
	ev->job = job;
	ev->stop_token = -1;
	return ev;
}

void emit_code(struct emit *e, enum engine_event_kind kind, uint64_t job, enum code code, const char *why)
{
	struct engine_event *ev = emit_event_new(kind, job);
	ev->code = code;
	snprintf(ev->why, sizeof ev->why, "%s", why);
	emit_event(e, ev);
}

static const char *failure_text(enum code code)
{
	switch (code) {
	case E_DEADLINE:
		return "the deadline has passed";
	case E_WORKER_LOST:
		return "no worker that could continue it served in time";
	case E_TOO_LONG:
		return "the prompt and max_tokens exceed what the cache of the worker holds";
	default:
		return "internal error";
	}
}

void emit_drop_prompt(struct emit *e, uint64_t job)
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

void emit_free(struct emit *e)
{
	if (!e)
		return;
	while (e->prompts)
		emit_drop_prompt(e, e->prompts->job);
	while (e->unsent) {
		struct engine_event *next = e->unsent->next_spare;
		engine_event_free(e->unsent);
		e->unsent = next;
	}
	home_close(e->home);
	free(e);
}

/* Return the result with the logprobs of a token: r, or for a beam search the logprobs collected earlier;
 * NULL: none. */
static const struct result *logprobs_of(const struct sched_event *s, const struct sched_events *events,
					const struct result *r)
{
	return s->logprob < 0 ? NULL : s->searched ? &events->beam_logprobs : r;
}

/* Return a TOKENS event with room for n tokens and n_top likely tokens. */
static struct engine_event *tokens_event(struct emit *e, uint32_t n, uint32_t n_top)
{
	struct engine_event *ev = home_take(e->home);
	ev->kind = ENGINE_TOKENS;
	ev->stop_token = -1;
	ev->n_tokens = n;
	if (n > ev->cap_tokens) {
		ev->cap_tokens = 2 * n;
		ev->tokens = xrealloc(ev->tokens, ev->cap_tokens, sizeof *ev->tokens);
	}
	if (n_top > ev->cap_tops) {
		ev->cap_tops = 2 * n_top;
		ev->top_ids = xrealloc(ev->top_ids, ev->cap_tops, sizeof *ev->top_ids);
		ev->top_logprobs = xrealloc(ev->top_logprobs, ev->cap_tops, sizeof *ev->top_logprobs);
	}
	return ev;
}

/* Emit all tokens of one result as one event, before the ends that they may cause. */
static void emit_tokens(struct emit *e, const struct sched_events *events, const struct result *r,
			const char *numerics)
{
	uint32_t n = 0, n_top = 0, k = 0;
	for (uint32_t i = 0; i < events->n; i++) {
		const struct sched_event *s = &events->v[i];
		const struct result *from = s->kind == SCHED_TOKEN ? logprobs_of(s, events, r) : NULL;
		n += s->kind == SCHED_TOKEN;
		n_top += from ? from->logprobs[s->logprob].n_top : 0;
	}
	if (n == 0)
		return;
	struct engine_event *ev = tokens_event(e, n, n_top);
	snprintf(ev->numerics, sizeof ev->numerics, "%s", numerics);
	n = n_top = 0;
	for (; k < events->n; k++) {
		const struct sched_event *s = &events->v[k];
		if (s->kind != SCHED_TOKEN)
			continue;
		struct engine_token *t = &ev->tokens[n++];
		*t = (struct engine_token){.job = s->job,
					   .index = s->index,
					   .token = s->token,
					   .top0 = n_top,
					   .mu = s->mu,
					   .stop = s->stop};
		const struct result *from = logprobs_of(s, events, r);
		if (!from)
			continue;
		const struct result_logprob *l = &from->logprobs[s->logprob];
		t->logprob = l->logprob;
		t->rank = l->rank;
		t->n_top = l->n_top;
		if (l->n_top) {
			memcpy(ev->top_ids + n_top, from->top_ids + l->top0, l->n_top * sizeof *ev->top_ids);
			memcpy(ev->top_logprobs + n_top, from->top_logprobs + l->top0,
			       l->n_top * sizeof *ev->top_logprobs);
		}
		n_top += l->n_top;
	}
	emit_event(e, ev);
}

/* Return a copy of the timeline of a group that ends now. */
static struct timeline *times_of(const struct sched_events *ev, const struct sched_event *s, int64_t now_us)
{
	struct timeline *t = xmemdup(&ev->times[s->times], sizeof *t);
	timeline_end(t, now_us);
	return t;
}

static void emit_end(struct emit *e, const struct sched_events *all, const struct sched_event *s,
		     int64_t now_us)
{
	struct engine_event *ev;
	switch (s->kind) {
	case SCHED_TOKEN:
		break;
	case SCHED_POOLED:
		ev = emit_event_new(ENGINE_POOLED, s->job);
		ev->n_values = s->n_values;
		ev->values = xmemdup(all->values + s->value0, s->n_values * sizeof *ev->values);
		emit_event(e, ev);
		break;
	case SCHED_OUTPUT_DONE:
		ev = emit_event_new(ENGINE_OUTPUT_DONE, s->job);
		ev->index = s->index;
		ev->finish = s->finish;
		ev->stop_token = s->stop_token;
		emit_event(e, ev);
		break;
	case SCHED_GROUP_DONE:
		ev = emit_event_new(ENGINE_JOB_DONE, s->job);
		ev->queued_us = (s->first_run_us ? s->first_run_us : now_us) - s->arrival_us;
		ev->first_token_us = (s->first_token_us ? s->first_token_us : now_us) - s->arrival_us;
		ev->total_us = now_us - s->arrival_us;
		ev->cached_tokens = s->cached_tokens;
		ev->class_changed = s->class_changed;
		ev->times = times_of(all, s, now_us);
		emit_event(e, ev);
		emit_drop_prompt(e, s->job);
		break;
	case SCHED_GROUP_FAILED:
		ev = emit_event_new(ENGINE_JOB_FAILED, s->job);
		ev->code = s->code;
		snprintf(ev->why, sizeof ev->why, "%s", s->why ? s->why : failure_text(s->code));
		ev->times = times_of(all, s, now_us);
		emit_event(e, ev);
		emit_drop_prompt(e, s->job);
		break;
	}
}

static struct prompt_logprobs *prompt_of(struct emit *e, const struct group *g)
{
	for (struct prompt_logprobs *p = e->prompts; p; p = p->next)
		if (p->job == g->job)
			/* complete and sent already; this is a recomputation */
			return p->have == p->n ? NULL : p;
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

static void emit_prompt(struct emit *e, struct prompt_logprobs *p)
{
	struct engine_event *ev = emit_event_new(ENGINE_PROMPT_LOGPROBS, p->job);
	ev->tokens = p->tokens;
	ev->n_tokens = p->n;
	ev->top_ids = p->top_ids;
	ev->top_logprobs = p->top_logprobs;
	p->tokens = NULL;
	p->top_ids = NULL;
	p->top_logprobs = NULL;
	emit_event(e, ev);
}

void emit_prompts(struct emit *e, const struct sched *s, const struct result *r)
{
	const struct group *g = NULL;
	uint32_t slot = UINT32_MAX; /* slot of g: the logprobs of one run are adjacent */
	for (uint32_t i = 0; i < r->n_logprobs; i++) {
		const struct result_logprob *l = &r->logprobs[i];
		if (l->prompt && l->slot != slot)
			g = sched_run_of(s, slot = l->slot);
		if (!l->prompt || !g || g->params.prompt_logprobs < 0 || l->position == 0 ||
		    l->position >= g->n_prompt || l->n_top > (uint32_t)g->params.prompt_logprobs)
			continue;
		struct prompt_logprobs *p = prompt_of(e, g);
		if (!p)
			continue;
		struct engine_token *t = &p->tokens[l->position - 1];
		if (t->rank)
			continue; /* known since before a preemption */
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

void emit_events(struct emit *e, struct sched_events *ev, const struct result *r, const char *numerics,
		 int64_t now_us)
{
	if (r)
		emit_tokens(e, ev, r, numerics);
	for (uint32_t i = 0; i < ev->n; i++)
		emit_end(e, ev, &ev->v[i], now_us);
	ev->n = 0;
	ev->n_values = 0;
}
