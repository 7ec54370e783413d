/* fake_mailbox.h - a front end without an engine, for tests of HTTP.  It defines the functions of
 * controller/jobs/mailbox.h that senders call, so a test program includes it once.  It has one thread, like
 * the real front end.  The output of a job repeats the tokens of its prompt from the second on.  The `user`
 * of a request selects another behaviour:
 *
 *   "hang"     accepted, no tokens until it is cancelled
 *   "begin"    accepted, one token, and no more until it is cancelled
 *   "mute"     neither accepted nor refused
 *   "refuse"   E_OVERLOADED instead of being accepted
 *   "toolong"  E_TOO_LONG instead of being accepted
 *   "burst"    all tokens of an output in one delta
 *   "deadline" accepted, then E_DEADLINE
 *   "lost"     E_WORKER_LOST after two tokens
 *   "flood"    endless text, as fast as it is read
 *   "slow"     5 ms between tokens
 *   "stop"     ended by a stop string before its last token
 *   "say"      the output is its cache_salt instead of the prompt, ended by a stop token */
#ifndef QUERN_TESTS_WIRE_FAKE_MAILBOX_H
#define QUERN_TESTS_WIRE_FAKE_MAILBOX_H

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "controller/tokenizer/detok.h"
#include "controller/jobs/mailbox.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAKE_TOPS = 8, FAKE_CONTEXT = 512, FAKE_SEEN = 16 };

/* The fields of a submitted job that decide when it runs and what it shares. */
struct fake_seen {
	char owner[64], user[64], salt[128]; /* "": none */
	int32_t priority;
	uint32_t share;
	bool durable;
};

struct fake_output {
	struct detok *detok;
	struct buf text;
	uint32_t tokens[FAKE_CONTEXT], starts[FAKE_CONTEXT];
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

/* Behaviour of all jobs, whatever their users are; NULL: selected by each job's user. */
static const char *_Atomic fake_all;

static int64_t fake_loop_us; /* when the front end's loop ran last; 0: just now */

struct mailbox {
	const struct tokenizer *tokenizer;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct fake_job *incoming, *running;
	uint64_t unlisten[4096];
	size_t n_unlisten;
	bool quit;
	atomic_bool ready;
	bool holds;  /* finished jobs keep their listeners; under the lock */
	bool stalls; /* the thread does nothing; under the lock */
	bool blocks; /* mailbox_cancel() does not return; under the lock */
	pthread_cond_t unblocked;
	atomic_uint n_blocked; /* callers in mailbox_cancel() */
	atomic_ullong next_id;
	atomic_uint n_live; /* listeners that wait for their gone() call */
	atomic_uint n_submitted, n_cancelled, n_done, n_error;
	atomic_uint n_begun;              /* jobs that gave one token and wait, as "begin" does */
	struct fake_seen seen[FAKE_SEEN]; /* of the first jobs; valid up to n_submitted */
};

static void fake_see(struct mailbox *f, const struct submit *s)
{
	uint32_t n = atomic_load(&f->n_submitted);
	if (n >= FAKE_SEEN)
		return;
	struct fake_seen *seen = &f->seen[n];
	*seen = (struct fake_seen){.priority = s->priority, .share = s->share, .durable = s->durable};
	snprintf(seen->owner, sizeof seen->owner, "%s", s->owner ? s->owner : "");
	snprintf(seen->user, sizeof seen->user, "%s", s->user ? s->user : "");
	snprintf(seen->salt, sizeof seen->salt, "%s", s->cache_salt ? s->cache_salt : "");
}

uint64_t mailbox_listener_id(struct mailbox *f)
{
	return atomic_fetch_add(&f->next_id, 1) + 1;
}

void mailbox_submit(struct mailbox *f, struct submit **s, const struct listener *l)
{
	struct fake_job *j = xcalloc(1, sizeof *j);
	j->s = *s;
	*s = NULL;
	j->l = *l;
	snprintf(j->name, sizeof j->name, "job-%llu", (unsigned long long)l->id);
	j->outputs = xcalloc(j->s->params.n, sizeof *j->outputs);
	if (j->s->user && !strcmp(j->s->user, "say"))
		tokenizer_encode(f->tokenizer, j->s->cache_salt, strlen(j->s->cache_salt), 0, NULL, 0,
				 &j->say, NULL);
	atomic_fetch_add(&f->n_live, 1);
	pthread_mutex_lock(&f->lock);
	fake_see(f, j->s);
	atomic_fetch_add(&f->n_submitted, 1);
	struct fake_job **at = &f->incoming;
	while (*at)
		at = &(*at)->next;
	*at = j;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

void mailbox_unlisten(struct mailbox *f, uint64_t id)
{
	pthread_mutex_lock(&f->lock);
	if (f->n_unlisten < 4096)
		f->unlisten[f->n_unlisten++] = id;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

void mailbox_waits(struct mailbox *f, char *out, size_t n)
{
	(void)f;
	snprintf(out, n, "1 worker loads");
}

uint32_t mailbox_n_draining(const struct mailbox *f)
{
	(void)f;
	return 0;
}

bool mailbox_draining(const struct mailbox *f)
{
	(void)f;
	return false;
}

int64_t mailbox_loop_us(const struct mailbox *f)
{
	(void)f;
	return fake_loop_us ? fake_loop_us : clock_us();
}

bool mailbox_ready(const struct mailbox *f)
{
	return atomic_load(&f->ready);
}

uint32_t mailbox_max_context(const struct mailbox *f)
{
	(void)f;
	return FAKE_CONTEXT;
}

void mailbox_status(struct mailbox *f, void (*cb)(void *user, const struct engine_status *s), void *user)
{
	struct engine_status s = {.ready = mailbox_ready(f), .max_context = FAKE_CONTEXT};
	cb(user, &s);
}

void mailbox_call(struct mailbox *f, void (*fn)(void *user), void *user)
{
	(void)f;
	fn(user);
}

void mailbox_snapshot(struct mailbox *f, uint32_t n_cells, uint32_t max_jobs,
		      void (*cb)(void *user, struct mailbox_snapshot *s), void *user)
{
	(void)n_cells;
	struct mailbox_snapshot s = {.status = xcalloc(1, sizeof *s.status),
				     .jobs = max_jobs ? json_array() : NULL};
	s.status->ready = mailbox_ready(f);
	s.status->max_context = FAKE_CONTEXT;
	cb(user, &s);
	free(s.status);
	json_decref(s.jobs);
}

/* The only job has the id 0123456789abcdef0123456789abcdef. No effect without a callback. */
void mailbox_cancel(struct mailbox *f, const char *job, const char *owner,
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

/* Explains the same only job. */
void mailbox_explain(struct mailbox *f, const char *job, const char *owner,
		     void (*cb)(void *user, json_t *explained, enum code code, const char *why), void *user)
{
	(void)f, (void)owner;
	json_t *it =
		strcmp(job, "0123456789abcdef0123456789abcdef") == 0 ? json_pack("{s:s}", "job", job) : NULL;
	cb(user, it, it ? CODE_OK : E_NO_SUCH_JOB, it ? "" : "there is no such job");
	json_decref(it);
}

static bool fake_is(const struct fake_job *j, const char *what)
{
	const char *all = atomic_load(&fake_all);
	return all ? !strcmp(all, what) : j->s->user && !strcmp(j->s->user, what);
}

static void fake_error(struct mailbox *f, struct fake_job *j, enum code code, const char *why)
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
				    .starts = o->starts,
				    .tokens = o->tokens,
				    .n_tokens = o->n,
				    .logprobs = j->s->params.logprobs >= 0 ? o->logprobs : NULL,
				    .finish = o->finish,
				    .stop_token = -1,
				    .stop_string = stop && j->s->n_stop ? j->s->stop[0] : NULL,
				    .cumulative_logprob = NAN};
}

/* Emit one more token of output i, with its delta. */
static void fake_token(struct mailbox *f, struct fake_job *j, uint32_t i)
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
	o->starts[o->n] = (uint32_t)before;
	fake_logprob(&o->logprobs[o->n], o->tops[o->n], o->tokens[o->n], p->logprobs);
	detok_push(o->detok, o->tokens[o->n], &o->text);
	if (++o->n == max) {
		o->finish = fake_is(j, "stop") || o->n == j->say.n ? FINISH_STOP : FINISH_LENGTH;
		detok_flush(o->detok, &o->text);
	}
	if (!j->s->stream || fake_is(j, "burst"))
		return;
	struct job_event e = {
		.kind = JOB_DELTA, .job = j->name, .offset = o->n - 1, .delta = fake_view(j, i)};
	e.delta.text += before;
	e.delta.text_n -= before;
	e.delta.tokens += o->n - 1;
	e.delta.starts += o->n - 1;
	e.delta.n_tokens = 1;
	if (e.delta.logprobs)
		e.delta.logprobs += o->n - 1;
	j->l.event(j->l.user, &e);
}

static void fake_burst(const struct fake_job *j)
{
	for (uint32_t i = 0; i < j->s->params.n; i++) {
		struct job_event e = {.kind = JOB_DELTA, .job = j->name, .delta = fake_view(j, i)};
		j->l.event(j->l.user, &e);
	}
}

static void fake_done(struct mailbox *f, struct fake_job *j)
{
	if (fake_is(j, "burst") && j->s->stream)
		fake_burst(j);
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

static void fake_accept(struct mailbox *f, struct fake_job *j)
{
	struct job_event e = {.kind = JOB_ACCEPTED, .job = j->name, .prompt_tokens = j->s->n_tokens};
	if (fake_is(j, "refuse")) {
		fake_error(f, j, E_OVERLOADED, "4096 jobs are queued");
		return;
	}
	if (fake_is(j, "toolong")) {
		fake_error(f, j, E_TOO_LONG, "the prompt is too long");
		return;
	}
	j->accepted = true;
	j->l.event(j->l.user, &e);
	if (fake_is(j, "deadline"))
		fake_error(f, j, E_DEADLINE, "the deadline has passed");
}

/* Run one step of a job; sets ended. */
static void fake_step(struct mailbox *f, struct fake_job *j)
{
	bool more = false;
	if (fake_is(j, "mute"))
		return;
	if (!j->accepted) {
		fake_accept(f, j);
		return;
	}
	if (fake_is(j, "hang") || (fake_is(j, "begin") && j->outputs[0].n))
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
	if (fake_is(j, "begin"))
		atomic_fetch_add(&f->n_begun, 1);
	if (fake_is(j, "lost") && j->outputs[0].n == 2)
		fake_error(f, j, E_WORKER_LOST, "no worker came back in time");
	else if (!more)
		fake_done(f, j);
}

static void fake_job_free(struct mailbox *f, struct fake_job *j)
{
	atomic_fetch_sub(&f->n_live, 1); /* first: after the last gone() the server may end */
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

/* Move incoming jobs and unlistens to the thread, under the lock. Returns false if there is nothing to do and
 * the thread must wait. */
static bool fake_take(struct mailbox *f)
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
		bool waits = fake_is(j, "mute") || (fake_is(j, "hang") && j->accepted) ||
			     (fake_is(j, "begin") && j->outputs[0].n);
		busy |= j->unlisten || !(j->ended ? f->holds : waits);
	}
	f->n_unlisten = 0;
	return busy || f->quit;
}

static void *fake_loop(void *arg)
{
	struct mailbox *f = arg;
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

static struct mailbox *fake_start(const struct tokenizer *t)
{
	struct mailbox *f = xcalloc(1, sizeof *f);
	f->tokenizer = t;
	atomic_store(&f->ready, true);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->more, NULL);
	pthread_cond_init(&f->unblocked, NULL);
	pthread_create(&f->thread, NULL, fake_loop, f);
	return f;
}

/* Simulate a slow front end: finished jobs keep their listeners. */
__attribute__((unused)) static void fake_hold(struct mailbox *f, bool holds)
{
	pthread_mutex_lock(&f->lock);
	f->holds = holds;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

/* Simulate a busy front end: its thread does nothing. */
__attribute__((unused)) static void fake_stall(struct mailbox *f, bool stalls)
{
	pthread_mutex_lock(&f->lock);
	f->stalls = stalls;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

/* Make mailbox_cancel() block its caller. */
__attribute__((unused)) static void fake_block(struct mailbox *f, bool blocks)
{
	pthread_mutex_lock(&f->lock);
	f->blocks = blocks;
	pthread_cond_broadcast(&f->unblocked);
	pthread_mutex_unlock(&f->lock);
}

static void fake_stop(struct mailbox *f)
{
	pthread_mutex_lock(&f->lock);
	f->quit = true;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	free(f);
}

#endif
