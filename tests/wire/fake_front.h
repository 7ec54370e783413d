/* fake_front.h - a front end without an engine, for tests of what stands before it: defines all
 * of controller/front.h in the test program that includes it (once).  One thread, like the real
 * one.  A job's output repeats its prompt's tokens, from the second on; what else happens is
 * said by the request's `user`:
 *
 *   "hang"     accepted, then nothing until it is cancelled
 *   "mute"     not even accepted
 *   "refuse"   E_OVERLOADED instead of being accepted
 *   "deadline" accepted, then E_DEADLINE
 *   "lost"     E_WORKER_LOST after two tokens
 *   "flood"    text without end, as fast as it is taken
 *   "slow"     5 ms between tokens
 *   "stop"     ends by a stop string before its last token
 *   "say"      says its cache_salt instead of the prompt, and stops */
#ifndef QUERN_TESTS_WIRE_FAKE_FRONT_H
#define QUERN_TESTS_WIRE_FAKE_FRONT_H

#include "base/alloc.h"
#include "base/buf.h"
#include "controller/detok.h"
#include "controller/front.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAKE_TOPS = 8, FAKE_CONTEXT = 512 };

struct fake_output {
	struct detok *detok;
	struct buf text;
	uint32_t tokens[FAKE_CONTEXT];
	struct token_logprob logprobs[FAKE_CONTEXT];
	struct logprob_top tops[FAKE_CONTEXT][FAKE_TOPS];
	uint32_t n;
	enum finish finish;
};

struct fake_job {
	struct fake_job *next;
	struct submit *s;
	struct listener l;
	char name[32];
	bool accepted, unlisten, ended;
	struct fake_output *outputs; /* [params.n] */
	struct token_ids say;
};

struct front {
	const struct tokenizer *tokenizer;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct fake_job *incoming, *running;
	uint64_t unlisten[4096];
	size_t n_unlisten;
	bool quit;
	atomic_bool ready;
	bool holds; /* jobs that have ended keep their listeners: under the lock */
	bool stalls; /* nothing happens: under the lock */
	bool blocks; /* front_cancel() does not return: under the lock */
	pthread_cond_t unblocked;
	atomic_uint n_blocked; /* in front_cancel() */
	atomic_ullong next_id;
	atomic_uint n_live; /* listeners whose gone() has not been called */
	atomic_uint n_submitted, n_cancelled, n_done, n_error;
};

void submit_free(struct submit *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->n_stop; i++)
		free(s->stop[i]);
	free(s->stop);
	free(s->tokens);
	params_fini(&s->params);
	free(s->user);
	free(s->key);
	free(s->cache_salt);
	free(s);
}

uint64_t front_listener_id(struct front *f)
{
	return atomic_fetch_add(&f->next_id, 1) + 1;
}

void front_submit(struct front *f, struct submit **s, const struct listener *l)
{
	struct fake_job *j = xcalloc(1, sizeof *j);
	j->s = *s;
	*s = NULL;
	j->l = *l;
	snprintf(j->name, sizeof j->name, "job-%llu", (unsigned long long)l->id);
	j->outputs = xcalloc(j->s->params.n, sizeof *j->outputs);
	if (j->s->user && !strcmp(j->s->user, "say"))
		tokenizer_encode(f->tokenizer, j->s->cache_salt, strlen(j->s->cache_salt), 0, NULL, 0,
				 &j->say, NULL, 0);
	atomic_fetch_add(&f->n_live, 1);
	atomic_fetch_add(&f->n_submitted, 1);
	pthread_mutex_lock(&f->lock);
	struct fake_job **at = &f->incoming;
	while (*at)
		at = &(*at)->next;
	*at = j;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

void front_unlisten(struct front *f, uint64_t id)
{
	pthread_mutex_lock(&f->lock);
	if (f->n_unlisten < 4096)
		f->unlisten[f->n_unlisten++] = id;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

bool front_ready(const struct front *f)
{
	return atomic_load(&f->ready);
}

uint32_t front_max_context(const struct front *f)
{
	(void)f;
	return FAKE_CONTEXT;
}

void front_status(struct front *f, void (*cb)(void *user, const struct engine_status *s), void *user)
{
	struct engine_status s = {.ready = front_ready(f), .max_context = FAKE_CONTEXT};
	cb(user, &s);
}

void engine_status_free(struct engine_status *s)
{
	free(s);
}

void front_snapshot(struct front *f, uint32_t n_cells, uint32_t max_jobs,
		    void (*cb)(void *user, struct front_snapshot *s), void *user)
{
	(void)n_cells;
	struct front_snapshot s = {.status = xcalloc(1, sizeof *s.status),
				   .jobs = max_jobs ? json_array() : NULL};
	s.status->ready = front_ready(f);
	s.status->max_context = FAKE_CONTEXT;
	cb(user, &s);
	free(s.status);
	json_decref(s.jobs);
}

/* There is one job, whose id is 0123456789abcdef twice.  What nobody asks about is not heard. */
void front_cancel(struct front *f, const char *job, const char *owner,
		  void (*cb)(void *user, enum code code), void *user)
{
	(void)owner;
	if (!cb)
		return;
	pthread_mutex_lock(&f->lock);
	atomic_fetch_add(&f->n_blocked, 1);
	while (f->blocks)
		pthread_cond_wait(&f->unblocked, &f->lock);
	atomic_fetch_sub(&f->n_blocked, 1);
	pthread_mutex_unlock(&f->lock);
	cb(user, strcmp(job, "0123456789abcdef0123456789abcdef") == 0 ? CODE_OK : E_NO_SUCH_JOB);
}

void front_connect(struct front *f)
{
	(void)f;
}

const char *front_jobs_endpoint(const struct front *f)
{
	(void)f;
	return "";
}

static bool fake_is(const struct fake_job *j, const char *what)
{
	return j->s->user && !strcmp(j->s->user, what);
}

static void fake_error(struct front *f, struct fake_job *j, enum code code, const char *why)
{
	struct job_event e = {.kind = JOB_ERROR, .job = j->name, .code = code, .why = why};
	j->ended = true;
	atomic_fetch_add(&f->n_error, 1);
	j->l.event(j->l.user, &e);
}

static void fake_logprob(struct token_logprob *l, struct logprob_top *tops, uint32_t token, int32_t k)
{
	uint32_t n = k < 0 ? 0 : k < FAKE_TOPS ? (uint32_t)k : FAKE_TOPS;
	*l = (struct token_logprob){token, -0.25f, 1, n, tops};
	for (uint32_t i = 0; i < n; i++)
		tops[i] = (struct logprob_top){(token + i) % 500, i == 7 ? -INFINITY : -0.25f - (float)i};
}

static struct output_view fake_view(const struct fake_job *j, uint32_t i)
{
	const struct fake_output *o = &j->outputs[i];
	bool stop = fake_is(j, "stop") && o->finish == FINISH_STOP;
	return (struct output_view){.index = i,
				    .text = o->text.p ? o->text.p : "",
				    .text_n = o->text.len,
				    .tokens = o->tokens,
				    .n_tokens = o->n,
				    .logprobs = j->s->params.logprobs >= 0 ? o->logprobs : NULL,
				    .finish = o->finish,
				    .stop_token = -1,
				    .stop_string = stop && j->s->n_stop ? j->s->stop[0] : NULL,
				    .cumulative_logprob = NAN};
}

/* One more token of output i, with its delta. */
static void fake_token(struct front *f, struct fake_job *j, uint32_t i)
{
	struct fake_output *o = &j->outputs[i];
	const struct params *p = &j->s->params;
	uint32_t max = p->max_tokens ? p->max_tokens : FAKE_CONTEXT - j->s->n_tokens;
	size_t before = o->text.len;
	if (!o->detok)
		o->detok = detok_new(f->tokenizer, j->s->skip_special, true);
	uint32_t again = j->s->n_tokens > 1 ? 1 + o->n % (j->s->n_tokens - 1) : 0;
	o->tokens[o->n] = j->say.n ? j->say.ids[o->n] : j->s->tokens[again];
	if (j->say.n && j->say.n < max)
		max = (uint32_t)j->say.n;
	fake_logprob(&o->logprobs[o->n], o->tops[o->n], o->tokens[o->n], p->logprobs);
	detok_push(o->detok, o->tokens[o->n], &o->text);
	if (++o->n == max) {
		o->finish = fake_is(j, "stop") || o->n == j->say.n ? FINISH_STOP : FINISH_LENGTH;
		detok_flush(o->detok, &o->text);
	}
	if (!j->s->stream)
		return;
	struct job_event e = {
		.kind = JOB_DELTA, .job = j->name, .offset = o->n - 1, .delta = fake_view(j, i)};
	e.delta.text += before;
	e.delta.text_n -= before;
	e.delta.tokens += o->n - 1;
	e.delta.n_tokens = 1;
	if (e.delta.logprobs)
		e.delta.logprobs += o->n - 1;
	j->l.event(j->l.user, &e);
}

static void fake_done(struct front *f, struct fake_job *j)
{
	struct output_view views[PARAMS_N_MAX];
	struct job_event e = {.kind = JOB_DONE,
			      .job = j->name,
			      .prompt_tokens = j->s->n_tokens,
			      .outputs = views,
			      .n_outputs = j->s->params.n,
			      .cached_tokens = 1};
	struct logprob_top tops[FAKE_CONTEXT][FAKE_TOPS];
	struct token_logprob lp[FAKE_CONTEXT];
	for (uint32_t i = 0; i < e.n_outputs; i++) {
		views[i] = fake_view(j, i);
		e.completion_tokens += j->outputs[i].n;
	}
	for (uint32_t i = 1; i < j->s->n_tokens; i++)
		fake_logprob(&lp[i - 1], tops[i - 1], j->s->tokens[i], j->s->params.prompt_logprobs);
	if (j->s->params.prompt_logprobs >= 0)
		e.prompt_logprobs = lp;
	j->ended = true;
	atomic_fetch_add(&f->n_done, 1);
	j->l.event(j->l.user, &e);
}

static void fake_flood(struct fake_job *j)
{
	static char text[65536];
	memset(text, 'x', sizeof text);
	struct job_event e = {.kind = JOB_DELTA, .job = j->name, .delta = fake_view(j, 0)};
	e.delta.text = text;
	e.delta.text_n = sizeof text;
	j->l.event(j->l.user, &e);
}

static void fake_accept(struct front *f, struct fake_job *j)
{
	struct job_event e = {.kind = JOB_ACCEPTED, .job = j->name, .prompt_tokens = j->s->n_tokens};
	if (fake_is(j, "refuse")) {
		fake_error(f, j, E_OVERLOADED, "4096 jobs are queued");
		return;
	}
	j->accepted = true;
	j->l.event(j->l.user, &e);
	if (fake_is(j, "deadline"))
		fake_error(f, j, E_DEADLINE, "the deadline has passed");
}

/* One step of a job; sets ended. */
static void fake_step(struct front *f, struct fake_job *j)
{
	bool more = false;
	if (fake_is(j, "mute"))
		return;
	if (!j->accepted) {
		fake_accept(f, j);
		return;
	}
	if (fake_is(j, "hang"))
		return;
	if (fake_is(j, "flood")) {
		fake_flood(j);
		return;
	}
	if (fake_is(j, "slow"))
		usleep(5000);
	for (uint32_t i = 0; i < j->s->params.n; i++)
		if (j->outputs[i].finish == FINISH_NONE) {
			fake_token(f, j, i);
			more = true;
		}
	if (fake_is(j, "lost") && j->outputs[0].n == 2)
		fake_error(f, j, E_WORKER_LOST, "no worker came back in time");
	else if (!more)
		fake_done(f, j);
}

static void fake_job_free(struct front *f, struct fake_job *j)
{
	atomic_fetch_sub(&f->n_live, 1); /* before: the server may wait for the last one, and end */
	if (j->l.gone)
		j->l.gone(j->l.user);
	for (uint32_t i = 0; i < j->s->params.n; i++) {
		detok_free(j->outputs[i].detok);
		buf_fini(&j->outputs[i].text);
	}
	free(j->outputs);
	token_ids_fini(&j->say);
	submit_free(j->s);
	free(j);
}

/* Under the lock: what was told to the thread becomes its own; false: it must wait. */
static bool fake_take(struct front *f)
{
	struct fake_job **at = &f->running;
	bool busy = false;
	while (*at)
		at = &(*at)->next;
	*at = f->incoming;
	f->incoming = NULL;
	for (struct fake_job *j = f->running; j; j = j->next) {
		for (size_t i = 0; i < f->n_unlisten; i++)
			j->unlisten |= f->unlisten[i] == j->l.id;
		bool waits = fake_is(j, "mute") || (fake_is(j, "hang") && j->accepted);
		busy |= j->unlisten || !(j->ended ? f->holds : waits);
	}
	f->n_unlisten = 0;
	return busy || f->quit;
}

static void *fake_loop(void *arg)
{
	struct front *f = arg;
	for (;;) {
		pthread_mutex_lock(&f->lock);
		while (f->stalls || !fake_take(f))
			pthread_cond_wait(&f->more, &f->lock);
		bool quit = f->quit, holds = f->holds;
		pthread_mutex_unlock(&f->lock);
		for (struct fake_job **at = &f->running, *j; (j = *at);) {
			if (j->unlisten && !j->ended)
				atomic_fetch_add(&f->n_cancelled, 1);
			else if (quit && !j->ended)
				fake_error(f, j, E_INTERNAL, "the service stops");
			else if (!j->ended)
				fake_step(f, j);
			if ((j->ended && !holds) || j->unlisten || quit) {
				*at = j->next;
				fake_job_free(f, j);
			} else {
				at = &j->next;
			}
		}
		if (quit)
			return NULL;
	}
}

static struct front *fake_start(const struct tokenizer *t)
{
	struct front *f = xcalloc(1, sizeof *f);
	f->tokenizer = t;
	atomic_store(&f->ready, true);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->more, NULL);
	pthread_cond_init(&f->unblocked, NULL);
	pthread_create(&f->thread, NULL, fake_loop, f);
	return f;
}

int front_start(void *zmq_context, const struct service *svc, const struct front_config *cfg,
		struct front **out, char *why, size_t why_n)
{
	(void)zmq_context;
	(void)cfg;
	(void)why;
	(void)why_n;
	*out = fake_start(svc->tokenizer);
	return 0;
}

/* Whether jobs that have ended keep their listeners, as a front end does that is slow. */
__attribute__((unused)) static void fake_hold(struct front *f, bool holds)
{
	pthread_mutex_lock(&f->lock);
	f->holds = holds;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

/* Whether the front end's thread stands still, as one does that is busy. */
__attribute__((unused)) static void fake_stall(struct front *f, bool stalls)
{
	pthread_mutex_lock(&f->lock);
	f->stalls = stalls;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

/* Whether front_cancel() waits, and with it the thread that has called it. */
__attribute__((unused)) static void fake_block(struct front *f, bool blocks)
{
	pthread_mutex_lock(&f->lock);
	f->blocks = blocks;
	pthread_cond_broadcast(&f->unblocked);
	pthread_mutex_unlock(&f->lock);
}

void front_stop(struct front *f)
{
	pthread_mutex_lock(&f->lock);
	f->quit = true;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	free(f);
}

#endif
