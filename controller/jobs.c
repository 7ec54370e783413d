#include "controller/jobs.h"

#include "base/alloc.h"
#include "base/log.h"
#include "controller/bestof.h"
#include "controller/entropy.h"
#include "controller/map.h"
#include "controller/metrics.h"
#include "controller/output.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_FINISHED, JOB_FAILED };

/* How far a listener has been told of one output. */
struct told {
	uint32_t token; /* next token */
	size_t text;    /* next byte; SIZE_MAX: where that token's text begins */
	bool end;       /* the delta with finish was sent */
};

struct watch {
	struct listener l;
	struct job *job;
	struct watch *next; /* of the same job */
	bool stream;
	struct told told[]; /* [n_told] */
};

struct job {
	uint64_t number; /* the engine's name for it */
	char id[JOBS_ID_SIZE];
	enum job_state state;
	bool keep;      /* goes on without listeners */
	bool cancelled; /* ENGINE_CANCEL was sent */
	bool dirty;     /* in jobs->dirty */
	char *user, *key, *cache_salt;
	uint64_t seed;
	uint32_t prompt_tokens;
	uint32_t max_tokens;
	char **stop; /* owned; rules.stop */
	uint32_t n_stop;
	struct output_rules rules;
	uint32_t n_told;    /* outputs that listeners know of */
	uint32_t n_outputs; /* more than n_told while the best of them are not chosen: then nothing is told */
	struct output *outputs;
	bool private; /* the tokens' log-probabilities are here, though nobody asked for them */
	struct toklog prompt_log; /* logprobs of the prompt's tokens 1.. */
	bool has_prompt_log, class_changed;
	struct watch *watches;
	uint32_t n_watches;
	struct job *same_key_hash;   /* chain of jobs->by_key */
	struct job *older, *younger; /* all jobs by submission, or finished ones by their end */
	int64_t submitted_us;        /* clock_us() */
	int64_t finished_us;
	size_t bytes; /* once finished: what it keeps */

	/* The end. */
	uint32_t completion_tokens, cached_tokens;
	int64_t queued_us, first_token_us, total_us;
	enum code code;
	char why[256];
};

struct list {
	struct job *oldest, *youngest;
	uint32_t n;
};

struct jobs {
	const struct service *svc;
	void (*send)(void *user, struct engine_cmd *c);
	void *user;
	uint64_t last_number;
	uint64_t hash_seed;
	struct map by_number;   /* unfinished: number -> job */
	struct map by_id;       /* first half of the id -> job */
	struct map by_key;      /* hash of the key -> chain of jobs */
	struct map by_listener; /* listener id -> watch */
	struct list unfinished;
	struct list finished;
	size_t finished_bytes;
	struct job **dirty; /* jobs with news for their listeners */
	uint32_t n_dirty, dirty_cap;
	struct token_logprob *logprobs; /* scratch for what listeners see */
	size_t logprobs_cap;
	struct output_view *views; /* scratch, [PARAMS_N_MAX] */
};

/* --- small things --- */

static void list_push(struct list *l, struct job *job)
{
	job->older = l->youngest;
	job->younger = NULL;
	*(l->youngest ? &l->youngest->younger : &l->oldest) = job;
	l->youngest = job;
	l->n++;
}

static void list_remove(struct list *l, struct job *job)
{
	*(job->older ? &job->older->younger : &l->oldest) = job->younger;
	*(job->younger ? &job->younger->older : &l->youngest) = job->older;
	job->older = job->younger = NULL;
	l->n--;
}

static uint64_t id_key(const char *id)
{
	char half[17];
	memcpy(half, id, 16);
	half[16] = 0;
	return strtoull(half, NULL, 16);
}

static struct token_logprob *scratch(struct jobs *j, size_t n)
{
	if (n > j->logprobs_cap) {
		j->logprobs_cap = n * 2;
		j->logprobs = xrealloc(j->logprobs, j->logprobs_cap, sizeof *j->logprobs);
	}
	return j->logprobs;
}

static uint64_t key_hash(const struct jobs *j, const char *key)
{
	return XXH3_64bits_withSeed(key, strlen(key), j->hash_seed);
}

static struct job *find_key(struct jobs *j, const char *key)
{
	struct job *job = map_get(&j->by_key, key_hash(j, key));
	while (job && strcmp(job->key, key) != 0)
		job = job->same_key_hash;
	return job;
}

static void add_key(struct jobs *j, struct job *job)
{
	uint64_t h = key_hash(j, job->key);
	job->same_key_hash = map_get(&j->by_key, h);
	map_put(&j->by_key, h, job);
}

static void remove_key(struct jobs *j, struct job *job)
{
	uint64_t h = key_hash(j, job->key);
	struct job *head = map_get(&j->by_key, h), **at = &head;
	while (*at != job)
		at = &(*at)->same_key_hash;
	*at = job->same_key_hash;
	if (head)
		map_put(&j->by_key, h, head);
	else
		map_remove(&j->by_key, h);
}

void submit_free(struct submit *s)
{
	if (!s)
		return;
	free(s->tokens);
	params_fini(&s->params);
	for (uint32_t i = 0; i < s->n_stop; i++)
		free(s->stop[i]);
	free(s->stop);
	free(s->user);
	free(s->key);
	free(s->cache_salt);
	free(s);
}

static struct engine_cmd *command(enum engine_cmd_kind kind, const struct job *job)
{
	struct engine_cmd *c = xcalloc(1, sizeof *c);
	c->kind = kind;
	c->job = job->number;
	params_init(&c->params);
	return c;
}

/* --- lifecycle --- */

struct jobs *jobs_new(const struct service *svc, void (*send)(void *, struct engine_cmd *), void *user)
{
	struct jobs *j = xcalloc(1, sizeof *j);
	j->svc = svc;
	j->send = send;
	j->user = user;
	j->hash_seed = entropy_u64();
	j->views = xcalloc(PARAMS_N_MAX, sizeof *j->views);
	return j;
}

/* What only a running job needs. */
static void release_running(struct job *job)
{
	stops_free((struct stops *)job->rules.stops);
	job->rules.stops = NULL;
}

static void job_free(struct job *job)
{
	assert(!job->watches);
	release_running(job);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		output_fini(&job->outputs[i]);
	free(job->outputs);
	toklog_fini(&job->prompt_log);
	for (uint32_t i = 0; i < job->n_stop; i++)
		free(job->stop[i]);
	free(job->stop);
	free(job->user);
	free(job->key);
	free(job->cache_salt);
	free(job);
}

/* Out of every index; its list apart. */
static void job_forget(struct jobs *j, struct job *job)
{
	map_remove(&j->by_number, job->number);
	map_remove(&j->by_id, id_key(job->id));
	if (job->key)
		remove_key(j, job);
	for (uint32_t i = 0; job->dirty && i < j->n_dirty; i++)
		if (j->dirty[i] == job)
			j->dirty[i] = NULL;
	job_free(job);
}

void jobs_free(struct jobs *j)
{
	if (!j)
		return;
	assert(j->unfinished.n == 0);
	while (j->finished.oldest) {
		struct job *job = j->finished.oldest;
		list_remove(&j->finished, job);
		job_forget(j, job);
	}
	map_fini(&j->by_number);
	map_fini(&j->by_id);
	map_fini(&j->by_key);
	map_fini(&j->by_listener);
	free(j->dirty);
	free(j->logprobs);
	free(j->views);
	free(j);
}

/* --- telling listeners --- */

static void tell(const struct watch *w, const struct job_event *e)
{
	w->l.event(w->l.user, e);
}

static void watch_free(struct jobs *j, struct watch *w)
{
	map_remove(&j->by_listener, w->l.id);
	if (w->l.gone)
		w->l.gone(w->l.user);
	free(w);
}

static void watch_all_gone(struct jobs *j, struct job *job)
{
	while (job->watches) {
		struct watch *w = job->watches;
		job->watches = w->next;
		job->n_watches--;
		watch_free(j, w);
	}
}

static struct watch *watch_add(struct jobs *j, struct job *job, const struct listener *l, bool stream)
{
	struct watch *w = xcalloc(1, sizeof *w + job->n_told * sizeof w->told[0]);
	w->l = *l;
	w->job = job;
	w->stream = stream;
	/* At the end of the chain: listeners are told in the order in which they came. */
	struct watch **at = &job->watches;
	while (*at)
		at = &(*at)->next;
	*at = w;
	job->n_watches++;
	map_put(&j->by_listener, l->id, w);
	return w;
}

/* An error without a job. */
static void refuse(const struct listener *l, enum code code, const char *why)
{
	l->event(l->user, &(struct job_event){.kind = JOB_ERROR, .code = code, .why = why});
	if (l->gone)
		l->gone(l->user);
}

static void tell_accepted(const struct watch *w)
{
	const struct job *job = w->job;
	tell(w,
	     &(struct job_event){.kind = JOB_ACCEPTED, .job = job->id, .prompt_tokens = job->prompt_tokens});
}

/* What is new of one output for one listener. */
static void tell_delta(struct jobs *j, struct watch *w, const struct output *o)
{
	struct told *t = &w->told[o->index];
	bool end = o->finish != FINISH_NONE && !t->end;
	uint32_t to = o->n_shown;
	if (t->text == SIZE_MAX && t->token < o->log.n)
		t->text = o->start[t->token];
	bool waits = t->token > to || t->text > o->shown; /* attached ahead of what there is */
	uint32_t n = waits ? 0 : to - t->token;
	size_t text_n = waits || t->text == SIZE_MAX ? 0 : o->shown - t->text;
	if (!n && !text_n && !end)
		return;
	struct job_event e = {.kind = JOB_DELTA, .job = w->job->id, .offset = t->token};
	e.prompt_tokens = w->job->prompt_tokens;
	e.delta = (struct output_view){.index = o->index,
				       .text = text_n ? o->text.p + t->text : "",
				       .text_n = text_n,
				       .tokens = n ? o->log.token + t->token : NULL,
				       .n_tokens = n,
				       .finish = o->finish,
				       .stop_token = o->stop_token,
				       .stop_string = o->stop_string};
	if (o->log.with && n && !w->job->private) {
		struct token_logprob *lp = scratch(j, n);
		toklog_view(&o->log, t->token, to, lp);
		e.delta.logprobs = lp;
	}
	tell(w, &e);
	t->token += n;
	t->text += text_n;
	t->end = end || t->end;
}

static void tell_end(struct jobs *j, const struct job *job, const struct listener *l)
{
	struct job_event e = {.kind = JOB_DONE,
			      .job = job->id,
			      .prompt_tokens = job->prompt_tokens,
			      .completion_tokens = job->completion_tokens,
			      .cached_tokens = job->cached_tokens, .class_changed = job->class_changed,
			      .queued_us = job->queued_us,
			      .first_token_us = job->first_token_us,
			      .total_us = job->total_us};
	if (job->state == JOB_FAILED) {
		e.kind = JOB_ERROR;
		e.code = job->code;
		e.why = job->why;
		l->event(l->user, &e);
		return;
	}
	size_t n = job->has_prompt_log ? job->prompt_log.n : 0;
	for (uint32_t i = 0; job->rules.logprobs && i < job->n_outputs; i++)
		n += job->outputs[i].n_shown;
	struct token_logprob *lp = scratch(j, n + 1);
	for (uint32_t i = 0; i < job->n_outputs; i++) {
		output_view(&job->outputs[i], lp, &j->views[i]);
		lp += job->rules.logprobs ? job->outputs[i].n_shown : 0;
		if (job->private)
			j->views[i].logprobs = NULL;
	}
	if (job->has_prompt_log) {
		toklog_view(&job->prompt_log, 0, job->prompt_log.n, lp);
		e.prompt_logprobs = lp;
	}
	e.outputs = j->views;
	e.n_outputs = job->n_outputs;
	l->event(l->user, &e);
}

/* Which outputs there will be is not known before the end. */
static bool chooses(const struct job *job)
{
	return job->n_outputs > job->n_told;
}

static void tell_news(struct jobs *j, struct job *job)
{
	if (chooses(job))
		return;
	for (struct watch *w = job->watches; w; w = w->next)
		for (uint32_t i = 0; w->stream && i < job->n_outputs; i++)
			if (job->outputs[i].dirty)
				tell_delta(j, w, &job->outputs[i]);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		job->outputs[i].dirty = false;
}

static void mark_dirty(struct jobs *j, struct job *job, struct output *o)
{
	o->dirty = true;
	if (job->dirty)
		return;
	job->dirty = true;
	if (j->n_dirty == j->dirty_cap) {
		j->dirty_cap = j->dirty_cap ? j->dirty_cap * 2 : 256;
		j->dirty = xrealloc(j->dirty, j->dirty_cap, sizeof(struct job *));
	}
	j->dirty[j->n_dirty++] = job;
}

static void flush(struct jobs *j)
{
	for (uint32_t i = 0; i < j->n_dirty; i++) {
		struct job *job = j->dirty[i];
		if (!job)
			continue;
		job->dirty = false;
		tell_news(j, job);
	}
	j->n_dirty = 0;
}

/* --- a request --- */

static struct job *job_new(struct jobs *j, struct submit *s, int64_t now)
{
	struct job *job = xcalloc(1, sizeof *job);
	job->number = ++j->last_number;
	do
		snprintf(job->id, sizeof job->id, "%016" PRIx64 "%016" PRIx64, entropy_u64(), entropy_u64());
	while (map_get(&j->by_id, id_key(job->id)));
	job->keep = s->keep;
	job->user = s->user;
	job->key = s->key;
	job->cache_salt = s->cache_salt;
	job->stop = s->stop;
	job->n_stop = s->n_stop;
	s->user = s->key = s->cache_salt = NULL;
	s->stop = NULL;
	s->n_stop = 0;
	job->seed = s->params.seed;
	const bool chosen = s->best_of > s->params.n, scored = chosen || s->params.beam_width;
	job->private = scored && s->params.logprobs < 0;
	job->prompt_tokens = s->n_tokens;
	job->max_tokens = s->params.max_tokens;
	job->submitted_us = now;
	job->rules = (struct output_rules){.tokenizer = j->svc->tokenizer,
					   .skip_special = s->skip_special,
					   .logprobs = scored || s->params.logprobs >= 0,
					   .min_tokens = s->params.min_tokens,
					   .stop = job->stop,
					   .include_stop = s->include_stop};
	if (job->n_stop)
		job->rules.stops = stops_new(job->stop, job->n_stop);
	job->n_told = s->params.n;
	job->n_outputs = chosen ? s->best_of : s->params.n;
	job->outputs = xcalloc(job->n_outputs, sizeof *job->outputs);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		output_init(&job->outputs[i], i, &job->rules);
	toklog_init(&job->prompt_log, s->params.prompt_logprobs >= 0);
	list_push(&j->unfinished, job);
	map_put(&j->by_number, job->number, job);
	map_put(&j->by_id, id_key(job->id), job);
	if (job->key)
		add_key(j, job);
	return job;
}

/* A second submit of the same key. */
static void submit_again(struct jobs *j, struct job *job, const struct listener *l, bool stream)
{
	if (job->n_watches >= JOBS_LISTENERS_MAX) {
		refuse(l, E_OVERLOADED, "too many listen to this job already");
		return;
	}
	struct watch *w = watch_add(j, job, l, stream);
	if (job->state == JOB_QUEUED)
		return;
	tell_accepted(w);
	for (uint32_t i = 0; stream && !chooses(job) && i < job->n_outputs; i++)
		tell_delta(j, w, &job->outputs[i]);
	if (job_finished(job)) {
		tell_end(j, job, l);
		watch_all_gone(j, job);
	}
}

/* The engine knows users and tenants by number; 0: none was named.  Seeded, so that nobody can
 * find a name that has another one's number. */
static uint64_t name_number(const struct jobs *j, const char *name)
{
	return name ? XXH3_64bits_withSeed(name, strlen(name), j->hash_seed) | 1 : 0;
}

void jobs_submit(struct jobs *j, struct submit **ps, const struct listener *l, int64_t now)
{
	struct submit *s = *ps;
	*ps = NULL;
	assert(s->params.n >= 1 && s->params.n <= PARAMS_N_MAX && s->best_of <= PARAMS_N_MAX &&
	       s->n_tokens > 0);
	struct job *same = s->key ? find_key(j, s->key) : NULL;
	if (same) {
		same->keep = same->keep || s->keep;
		submit_again(j, same, l, s->stream);
	} else if (j->unfinished.n >= JOBS_MAX) {
		refuse(l, E_OVERLOADED, "too many jobs are unfinished");
	} else {
		struct job *job = job_new(j, s, now);
		watch_add(j, job, l, s->stream);
		struct engine_cmd *c = command(ENGINE_SUBMIT, job);
		c->tokens = s->tokens;
		c->n_tokens = s->n_tokens;
		s->tokens = NULL;
		c->params = s->params;
		c->params.n = job->n_outputs;
		if (job->private)
			c->params.logprobs = 0;
		params_init(&s->params);
		c->deadline_us = s->deadline_us;
		c->priority = s->priority;
		c->user = name_number(j, job->user);
		c->share = s->share;
		c->salt = name_number(j, job->cache_salt);
		j->send(j->user, c);
	}
	submit_free(s);
}

/* --- the end of a job --- */

static size_t job_bytes(const struct job *job)
{
	size_t bytes = sizeof *job + job->n_outputs * sizeof *job->outputs + toklog_bytes(&job->prompt_log);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		bytes += output_bytes(&job->outputs[i]);
	return bytes;
}

/* What /metrics tells of each output, once it is over. */
static void count_end(const struct jobs *j, const struct job *job, const struct output *o, int64_t now)
{
	static const enum metric_counter reasons[] = {[FINISH_STOP] = METRIC_FINISHED_STOP,
						      [FINISH_LENGTH] = METRIC_FINISHED_LENGTH,
						      [FINISH_ABORT] = METRIC_FINISHED_ABORT,
						      [FINISH_ERROR] = METRIC_FINISHED_ERROR};
	struct metrics *m = j->svc->metrics;
	metrics_add(m, reasons[o->finish], 1);
	metrics_observe(m, METRIC_E2E, (o->last_us ? o->last_us : now) - job->submitted_us);
	metrics_observe(m, METRIC_REQUEST_PROMPT_TOKENS, job->prompt_tokens);
	metrics_observe(m, METRIC_REQUEST_GENERATION_TOKENS, o->n_shown);
	if (!o->first_us)
		return;
	metrics_observe(m, METRIC_QUEUE, job->queued_us);
	metrics_observe(m, METRIC_PREFILL, job->first_token_us - job->queued_us);
	metrics_observe(m, METRIC_DECODE, o->last_us - o->first_us);
	if (o->log.n > 1)
		metrics_observe(m, METRIC_TPOT, (o->last_us - o->first_us) / (o->log.n - 1));
}

/* The one way into a final state. */
static void finish(struct jobs *j, struct job *job, enum job_state state, int64_t now)
{
	assert(!job_finished(job));
	job->state = state;
	job->finished_us = now;
	for (uint32_t i = 0; i < job->n_outputs; i++) {
		struct output *o = &job->outputs[i];
		if (o->finish == FINISH_NONE) {
			output_end(o, &job->rules, state == JOB_FAILED ? FINISH_ERROR : FINISH_ABORT, -1);
			o->dirty = true;
		}
	}
	if (chooses(job)) {
		bestof_choose(job->outputs, job->n_outputs, job->n_told);
		job->n_outputs = job->n_told;
	}
	for (uint32_t i = 0; i < job->n_outputs; i++) {
		job->completion_tokens += job->outputs[i].n_shown;
		count_end(j, job, &job->outputs[i], now);
	}
	release_running(job);
	if (state == JOB_FINISHED)
		tell_news(j, job);
	for (struct watch *w = job->watches; w; w = w->next)
		tell_end(j, job, &w->l);
	watch_all_gone(j, job);
	map_remove(&j->by_number, job->number);
	list_remove(&j->unfinished, job);
	list_push(&j->finished, job);
	job->bytes = job_bytes(job);
	j->finished_bytes += job->bytes;
	log_debug("jobs", "end job=%.8s state=%s tokens=%u code=%s", job->id,
		  state == JOB_FAILED ? "failed" : "done", job->completion_tokens, code_name(job->code));
}

/* --- the engine's events --- */

static void on_accepted(struct job *job)
{
	if (job->state != JOB_QUEUED)
		return;
	job->state = JOB_RUNNING;
	for (struct watch *w = job->watches; w; w = w->next)
		tell_accepted(w);
}

/* Never accepted: no record of it stays, its key is free again. */
static void on_refused(struct jobs *j, struct job *job, const struct engine_event *e)
{
	struct job_event said = {.kind = JOB_ERROR, .code = e->code, .why = e->why};
	for (struct watch *w = job->watches; w; w = w->next)
		tell(w, &said);
	watch_all_gone(j, job);
	list_remove(&j->unfinished, job);
	job_forget(j, job);
}

static void stop_output(struct jobs *j, const struct job *job, const struct output *o)
{
	struct engine_cmd *c = command(ENGINE_STOP, job);
	c->index = o->index;
	j->send(j->user, c);
}

static void count_token(const struct jobs *j, const struct job *job, struct output *o, int64_t now)
{
	struct metrics *m = j->svc->metrics;
	metrics_add(m, METRIC_GENERATION_TOKENS, 1);
	if (o->last_us) {
		metrics_observe(m, METRIC_ITL, now - o->last_us);
	} else {
		o->first_us = now;
		metrics_observe(m, METRIC_TTFT, now - job->submitted_us);
		if (o->index == 0)
			metrics_add(m, METRIC_PROMPT_TOKENS, job->prompt_tokens);
	}
	o->last_us = now;
}

static void on_tokens(struct jobs *j, const struct engine_event *e, int64_t now)
{
	struct job *job = NULL;
	for (uint32_t i = 0; i < e->n_tokens; i++) {
		const struct engine_token *t = &e->tokens[i];
		if (!job || job->number != t->job)
			job = map_get(&j->by_number, t->job);
		if (!job || t->index >= job->n_outputs)
			continue;
		struct output *o = &job->outputs[t->index];
		if (o->finish != FINISH_NONE)
			continue;
		count_token(j, job, o, now);
		if (output_push(o, &job->rules, t, e->top_ids, e->top_logprobs))
			stop_output(j, job, o);
		mark_dirty(j, job, o);
	}
}

static void on_prompt_logprobs(struct job *job, const struct engine_event *e)
{
	if (job->has_prompt_log || !job->prompt_log.with || e->n_tokens + 1 != job->prompt_tokens)
		return;
	for (uint32_t i = 0; i < e->n_tokens; i++)
		toklog_push(&job->prompt_log, &e->tokens[i], e->top_ids, e->top_logprobs);
	job->has_prompt_log = true;
}

static void on_output_done(struct jobs *j, struct job *job, const struct engine_event *e)
{
	if (e->index >= job->n_outputs || job->outputs[e->index].finish != FINISH_NONE)
		return;
	struct output *o = &job->outputs[e->index];
	output_end(o, &job->rules, e->finish, e->stop_token);
	mark_dirty(j, job, o);
}

static void on_job_end(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now)
{
	job->cached_tokens = e->cached_tokens;
	job->class_changed = e->class_changed;
	job->queued_us = e->queued_us;
	job->first_token_us = e->first_token_us;
	job->total_us = e->total_us;
	if (e->kind == ENGINE_JOB_FAILED) {
		job->code = e->code;
		snprintf(job->why, sizeof job->why, "%s", e->why);
	}
	finish(j, job, e->kind == ENGINE_JOB_FAILED ? JOB_FAILED : JOB_FINISHED, now);
}

void jobs_event(struct jobs *j, const struct engine_event *e, int64_t now)
{
	if (e->kind == ENGINE_TOKENS) {
		on_tokens(j, e, now);
		flush(j);
		return;
	}
	struct job *job = map_get(&j->by_number, e->job);
	if (!job)
		return;
	switch (e->kind) {
	case ENGINE_ACCEPTED:
		on_accepted(job);
		break;
	case ENGINE_REFUSED:
		on_refused(j, job, e);
		break;
	case ENGINE_PROMPT_LOGPROBS:
		on_prompt_logprobs(job, e);
		break;
	case ENGINE_OUTPUT_DONE:
		on_output_done(j, job, e);
		break;
	case ENGINE_JOB_DONE:
	case ENGINE_JOB_FAILED:
		on_job_end(j, job, e, now);
		break;
	default:
		break;
	}
	flush(j);
}

/* --- asking after jobs --- */

struct job *jobs_find(struct jobs *j, const char *id)
{
	if (strlen(id) != JOBS_ID_SIZE - 1 || strspn(id, "0123456789abcdef") != JOBS_ID_SIZE - 1)
		return NULL;
	struct job *job = map_get(&j->by_id, id_key(id));
	return job && strcmp(job->id, id) == 0 ? job : NULL;
}

const char *job_id(const struct job *job)
{
	return job->id;
}

bool job_finished(const struct job *job)
{
	return job->state == JOB_FINISHED || job->state == JOB_FAILED;
}

uint32_t job_n_outputs(const struct job *job)
{
	return job->n_told;
}

uint32_t job_n_listeners(const struct job *job)
{
	return job->n_watches;
}

int jobs_attach(struct jobs *j, struct job *job, const struct listener *l, bool stream, const uint32_t *from)
{
	if (job->n_watches >= JOBS_LISTENERS_MAX)
		return -EBUSY;
	struct watch *w = watch_add(j, job, l, stream);
	for (uint32_t i = 0; i < job->n_told; i++) {
		w->told[i].token = from ? from[i] : 0;
		w->told[i].text = w->told[i].token ? SIZE_MAX : 0;
		if (stream && !chooses(job) && job->state != JOB_QUEUED && job->state != JOB_FAILED)
			tell_delta(j, w, &job->outputs[i]);
	}
	if (job_finished(job)) {
		tell_end(j, job, l);
		watch_all_gone(j, job);
	}
	return 0;
}

void jobs_result(struct jobs *j, struct job *job, const struct listener *l)
{
	assert(job_finished(job));
	tell_end(j, job, l);
	if (l->gone)
		l->gone(l->user);
}

void jobs_cancel(struct jobs *j, struct job *job)
{
	if (job_finished(job) || job->cancelled)
		return;
	job->cancelled = true;
	j->send(j->user, command(ENGINE_CANCEL, job));
}

void jobs_unlisten(struct jobs *j, uint64_t listener)
{
	struct watch *w = map_get(&j->by_listener, listener);
	if (!w)
		return;
	struct job *job = w->job;
	struct watch **at = &job->watches;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	job->n_watches--;
	watch_free(j, w);
	if (!job->n_watches && !job->keep)
		jobs_cancel(j, job);
}

/* --- finished jobs --- */

int64_t jobs_sweep(struct jobs *j, int64_t now)
{
	struct job *job;
	while ((job = j->finished.oldest) &&
	       (job->finished_us + j->svc->keep_finished_us <= now || j->finished.n > j->svc->max_finished ||
		j->finished_bytes > JOBS_FINISHED_BYTES)) {
		list_remove(&j->finished, job);
		j->finished_bytes -= job->bytes;
		job_forget(j, job);
	}
	return job ? job->finished_us + j->svc->keep_finished_us : INT64_MAX;
}

void jobs_end(struct jobs *j, int64_t now)
{
	flush(j);
	while (j->unfinished.oldest) {
		struct job *job = j->unfinished.oldest;
		jobs_cancel(j, job);
		if (job->state == JOB_QUEUED) {
			struct engine_event e = {.code = E_INTERNAL, .why = "the service is stopping"};
			on_refused(j, job, &e);
		} else {
			job->total_us = now - job->submitted_us;
			finish(j, job, JOB_FINISHED, now);
		}
	}
}

static json_t *job_row(const struct job *job, int64_t now)
{
	static const char *const states[] = {"queued", "running", "done", "failed"};
	uint32_t tokens = 0;
	for (uint32_t i = 0; i < job->n_outputs; i++)
		tokens += job->outputs[i].n_shown;
	json_t *row =
		json_pack("{s:s, s:s, s:s*, s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "job",
			  job->id, "state", states[job->state], "user", job->user, "key", job->key, "n",
			  (json_int_t)job->n_told, "prompt_tokens", (json_int_t)job->prompt_tokens,
			  "completion_tokens", (json_int_t)tokens, "max_tokens", (json_int_t)job->max_tokens,
			  "seed", (json_int_t)job->seed, "listeners", (json_int_t)job->n_watches, "age_ms",
			  (json_int_t)((now - job->submitted_us) / 1000), "keep", job->keep, "cancelled",
			  job->cancelled);
	if (job->state == JOB_FAILED)
		json_object_set_new(row, "code", json_string(code_name(job->code)));
	return row;
}

json_t *jobs_table(const struct jobs *j, size_t max, int64_t now)
{
	json_t *rows = json_array();
	const struct list *lists[] = {&j->unfinished, &j->finished};
	for (int i = 0; i < 2; i++)
		for (struct job *job = lists[i]->youngest; job && json_array_size(rows) < max;
		     job = job->older)
			json_array_append_new(rows, job_row(job, now));
	return rows;
}

void jobs_counts(const struct jobs *j, struct jobs_counts *out)
{
	*out = (struct jobs_counts){.n_finished = j->finished.n,
				    .n_listeners = (uint32_t)j->by_listener.n,
				    .finished_bytes = j->finished_bytes};
	for (const struct job *job = j->unfinished.oldest; job; job = job->younger)
		(*(job->state == JOB_QUEUED ? &out->n_queued : &out->n_running))++;
}

void jobs_check(const struct jobs *j)
{
	size_t watches = 0, bytes = 0;
	uint32_t n = 0;
	for (const struct job *job = j->unfinished.oldest; job; job = job->younger, n++) {
		assert(!job_finished(job) && map_get(&j->by_number, job->number) == job);
		assert(map_get(&j->by_id, id_key(job->id)) == job);
		for (const struct watch *w = job->watches; w; w = w->next, watches++)
			assert(w->job == job && map_get(&j->by_listener, w->l.id) == w);
		for (uint32_t i = 0; i < job->n_outputs; i++)
			assert(job->outputs[i].n_shown <= job->outputs[i].log.n &&
			       job->outputs[i].shown <= job->outputs[i].text.len);
	}
	assert(n == j->unfinished.n && n == j->by_number.n && watches == j->by_listener.n);
	n = 0;
	for (const struct job *job = j->finished.oldest; job; job = job->younger, n++) {
		assert(job_finished(job) && !job->watches);
		bytes += job->bytes;
	}
	assert(n == j->finished.n && bytes == j->finished_bytes);
	assert(j->by_id.n == j->unfinished.n + j->finished.n);
}
