#include "controller/jobs.h"

#include "base/alloc.h"
#include "base/log.h"
#include "controller/bestof.h"
#include "controller/entropy.h"
#include "controller/jobs_impl.h"
#include "controller/metrics.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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

bool job_is_of(const struct job *job, const char *owner)
{
	return job->owner && owner ? strcmp(job->owner, owner) == 0 : job->owner == owner;
}

/* Each owner has idempotency keys of his own. */
static struct job *find_key(struct jobs *j, const char *key, const char *owner)
{
	struct job *job = map_get(&j->by_key, key_hash(j, key));
	while (job && (strcmp(job->key, key) != 0 || !job_is_of(job, owner)))
		job = job->same_key_hash;
	return job || !j->journal ? job : durable_find_key(j, key, owner);
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

struct engine_cmd *jobs_command(enum engine_cmd_kind kind, const struct job *job)
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
	j->save_us = INT64_MAX;
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
	free(job->owner);
	free(job->cache_salt);
	free(job->n_saved);
	free(job->numerics);
	buf_fini(&job->request);
	engine_event_free(job->ended);
	free(job);
}

/* Out of every index; its list apart. */
static void job_forget(struct jobs *j, struct job *job)
{
	map_remove(&j->by_number, job->number);
	map_remove(&j->by_id, job_id_key(job->id));
	if (job->key)
		remove_key(j, job);
	for (uint32_t i = 0; job->dirty && i < j->n_dirty; i++)
		if (j->dirty[i] == job)
			j->dirty[i] = NULL;
	durable_forget(j, job);
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
	journal_reader_close(j->reader);
	free(j->unsaved);
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
	if (chooses(job) || job->state == JOB_QUEUED)
		return; /* the choice comes first, and that it is accepted */
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

struct job *jobs_new_job(struct jobs *j, struct submit *s, const char *id, uint64_t number, int64_t now)
{
	struct job *job = xcalloc(1, sizeof *job);
	job->number = number ? number : ++j->last_number;
	if (id)
		snprintf(job->id, sizeof job->id, "%s", id);
	while (!id && (!job->id[0] || map_get(&j->by_id, job_id_key(job->id))))
		snprintf(job->id, sizeof job->id, "%016" PRIx64 "%016" PRIx64, entropy_u64(), entropy_u64());
	job->keep = s->keep;
	job->user = s->user;
	job->key = s->key;
	job->owner = s->owner;
	job->cache_salt = s->cache_salt;
	job->stop = s->stop;
	job->n_stop = s->n_stop;
	s->user = s->key = s->cache_salt = s->owner = NULL;
	s->stop = NULL;
	s->n_stop = 0;
	job->durable = s->durable;
	job->anew = s->params.beam_width > 0;
	memcpy(job->body, s->body, sizeof job->body);
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
	job->has_prompt_log = job->prompt_log.with && job->prompt_tokens == 1; /* nothing stands before it */
	list_push(&j->unfinished, job);
	map_put(&j->by_number, job->number, job);
	map_put(&j->by_id, job_id_key(job->id), job);
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
 * find a name that has another one's number.  What an owner names is his: neither a turn nor a
 * cached prefix is shared with another one. */
static uint64_t name_number(const struct jobs *j, const char *owner, const char *name)
{
	uint64_t of = owner ? XXH3_64bits_withSeed(owner, strlen(owner), j->hash_seed) | 1 : 0;
	return name ? XXH3_64bits_withSeed(name, strlen(name), j->hash_seed ^ of) | 1 : of;
}

/* What the engine needs of the request moves there. */
void jobs_send_submit(struct jobs *j, struct job *job, struct submit *s)
{
	struct engine_cmd *c = jobs_command(ENGINE_SUBMIT, job);
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
	c->user = name_number(j, job->owner, job->user);
	c->share = s->share;
	c->salt = name_number(j, job->owner, job->cache_salt);
	c->durable = job->durable;
	if (job->resumed)
		durable_resume(job, c);
	j->send(j->user, c);
}

/* The same key must mean the same request. */
static enum code other_request(const struct job *job, const struct submit *s, char *why, size_t n)
{
	if (memcmp(job->body, s->body, sizeof job->body) != 0)
		snprintf(why, n,
			 "key: another request was submitted under \"%.256s\"; use another key, or submit the same "
			 "request",
			 s->key);
	else if (s->durable && !job->durable)
		snprintf(why, n, "key: the job of \"%.256s\" is not durable; use another key", s->key);
	else
		return CODE_OK;
	return E_BAD_REQUEST;
}

void jobs_submit(struct jobs *j, struct submit **ps, const struct listener *l, int64_t now)
{
	struct submit *s = *ps;
	*ps = NULL;
	assert(s->params.n >= 1 && s->params.n <= PARAMS_N_MAX && s->best_of <= PARAMS_N_MAX &&
	       s->n_tokens > 0);
	struct job *same = s->key ? find_key(j, s->key, s->owner) : NULL;
	char why[512];
	enum code code;
	if (same && (code = other_request(same, s, why, sizeof why))) {
		refuse(l, code, why);
	} else if (same) {
		same->keep = same->keep || s->keep;
		submit_again(j, same, l, s->stream);
	} else if (j->unfinished.n >= JOBS_MAX) {
		refuse(l, E_OVERLOADED, "too many jobs are unfinished");
	} else if (service_full(j->svc, why, sizeof why)) {
		refuse(l, E_OVERLOADED, why);
	} else if (s->durable && (code = durable_refuses(j, why, sizeof why))) {
		refuse(l, code, why);
	} else {
		struct job *job = jobs_new_job(j, s, NULL, 0, now);
		watch_add(j, job, l, s->stream);
		if (job->durable)
			durable_begin(job, s, now);
		jobs_send_submit(j, job, s);
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

void jobs_file(struct jobs *j, struct job *job, int64_t finished_us)
{
	job->finished_us = finished_us;
	map_remove(&j->by_number, job->number);
	list_remove(&j->unfinished, job);
	list_push(&j->finished, job);
	job->bytes = job_bytes(job);
	j->finished_bytes += job->bytes;
}

void jobs_told(struct jobs *j, struct job *job, int64_t now)
{
	job->recording = false;
	for (struct watch *w = job->watches; w; w = w->next)
		tell_end(j, job, &w->l);
	watch_all_gone(j, job);
	jobs_file(j, job, now);
}

/* The one way into a final state. */
void jobs_finish(struct jobs *j, struct job *job, enum job_state state, int64_t now)
{
	assert(!job_finished(job) && !job->recording);
	job->state = state;
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
	map_remove(&j->by_number, job->number);
	if (job->durable)
		durable_end(j, job, now);
	if (state == JOB_FINISHED)
		tell_news(j, job);
	if (!job->recording)
		jobs_told(j, job, now);
	log_debug("jobs", "end job=%.8s state=%s tokens=%u code=%s", job->id,
		  state == JOB_FAILED ? "failed" : "done", job->completion_tokens, code_name(job->code));
}

/* --- the engine's events --- */

void jobs_accept(struct jobs *j, struct job *job)
{
	job->state = JOB_RUNNING;
	for (struct watch *w = job->watches; w; w = w->next)
		tell_accepted(w);
	/* What came in the meantime. */
	for (uint32_t i = 0; i < job->n_outputs; i++)
		job->outputs[i].dirty = true;
	tell_news(j, job);
}

static void on_accepted(struct jobs *j, struct job *job)
{
	if (job->state != JOB_QUEUED || job->settling)
		return;
	if (job->durable)
		durable_accept(j, job);
	else
		jobs_accept(j, job);
}

void jobs_drop(struct jobs *j, struct job *job)
{
	watch_all_gone(j, job);
	list_remove(&j->unfinished, job);
	job_forget(j, job);
}

/* Never accepted: no record of it stays, its key is free again. */
void jobs_refuse(struct jobs *j, struct job *job, enum code code, const char *why)
{
	struct job_event said = {.kind = JOB_ERROR, .code = code, .why = why};
	for (struct watch *w = job->watches; w; w = w->next)
		tell(w, &said);
	jobs_drop(j, job);
}

/* One from before a crash was accepted then: it fails now. */
static void on_refused(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now)
{
	if (!job->resumed) {
		jobs_refuse(j, job, e->code, e->why);
		return;
	}
	job->code = e->code;
	snprintf(job->why, sizeof job->why, "%s", e->why);
	jobs_finish(j, job, JOB_FAILED, now);
}

static void stop_output(struct jobs *j, const struct job *job, const struct output *o)
{
	struct engine_cmd *c = jobs_command(ENGINE_STOP, job);
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
		if (job->durable) {
			durable_class(job, e->numerics);
			durable_mark(j, job, 1, now);
		}
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

static void on_output_done(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now)
{
	if (e->index >= job->n_outputs || job->outputs[e->index].finish != FINISH_NONE)
		return;
	struct output *o = &job->outputs[e->index];
	output_end(o, &job->rules, e->finish, e->stop_token);
	mark_dirty(j, job, o);
	if (job->durable)
		durable_mark(j, job, 1, now);
}

void jobs_end_of(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now)
{
	if (job->settling) {
		/* It is over before it is accepted: that comes first. */
		job->ended = xmemdup(e, sizeof *e);
		job->ended->tokens = NULL;
		job->ended->top_ids = NULL;
		job->ended->top_logprobs = NULL;
		job->ended->status = NULL;
		return;
	}
	job->cached_tokens = e->cached_tokens;
	job->class_changed = job->class_changed || e->class_changed; /* or in an earlier life */
	job->queued_us = e->queued_us;
	job->first_token_us = e->first_token_us;
	job->total_us = e->total_us;
	if (e->kind == ENGINE_JOB_FAILED) {
		job->code = e->code;
		snprintf(job->why, sizeof job->why, "%s", e->why);
	}
	jobs_finish(j, job, e->kind == ENGINE_JOB_FAILED ? JOB_FAILED : JOB_FINISHED, now);
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
		on_accepted(j, job);
		break;
	case ENGINE_REFUSED:
		on_refused(j, job, e, now);
		break;
	case ENGINE_PROMPT_LOGPROBS:
		on_prompt_logprobs(job, e);
		break;
	case ENGINE_OUTPUT_DONE:
		on_output_done(j, job, e, now);
		break;
	case ENGINE_JOB_DONE:
	case ENGINE_JOB_FAILED:
		jobs_end_of(j, job, e, now);
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
	struct job *job = jobs_in_memory(j, id);
	return job || !j->journal ? job : durable_find(j, id);
}

const char *job_id(const struct job *job)
{
	return job->id;
}

const char *job_user(const struct job *job)
{
	return job->user;
}

bool job_finished(const struct job *job)
{
	return (job->state == JOB_FINISHED || job->state == JOB_FAILED) && !job->recording;
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
	if (job_finished(job) || job->recording || job->cancelled)
		return;
	job->cancelled = true;
	if (job->durable)
		durable_cancel(j, job);
	j->send(j->user, jobs_command(ENGINE_CANCEL, job));
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
	if (j->journal)
		durable_sweep(j, now);
	for (struct job *next, *job = j->finished.oldest; job; job = next) {
		next = job->younger;
		/* While the disk fails, this is the only place where its end is. */
		if (job->durable && !job->recorded)
			continue;
		if (job->finished_us + j->svc->keep_finished_us > now && j->finished.n <= j->svc->max_finished &&
		    j->finished_bytes <= JOBS_FINISHED_BYTES)
			return job->finished_us + j->svc->keep_finished_us;
		list_remove(&j->finished, job);
		j->finished_bytes -= job->bytes;
		job_forget(j, job);
	}
	return INT64_MAX;
}

static void tell_all(const struct job *job, enum code code, const char *why)
{
	struct job_event said = {.kind = JOB_ERROR, .job = job->id, .code = code, .why = why};
	for (struct watch *w = job->watches; w; w = w->next)
		tell(w, &said);
}

void jobs_end(struct jobs *j, int64_t now)
{
	flush(j);
	jobs_save(j);
	while (j->unfinished.oldest) {
		struct job *job = j->unfinished.oldest;
		if (job->durable && job->state != JOB_QUEUED) {
			/* It is in the journal; whether with its end, the disk alone knows. */
			tell_all(job, E_NOT_READY,
				 "the service is stopping; the job goes on when it is back: attach to it then");
			jobs_drop(j, job);
			continue;
		}
		jobs_cancel(j, job);
		if (job->state == JOB_QUEUED) {
			if (job->settling)
				durable_retract(j, job);
			jobs_refuse(j, job, E_INTERNAL, "the service is stopping");
		} else {
			job->total_us = now - job->submitted_us;
			jobs_finish(j, job, JOB_FINISHED, now);
		}
	}
}
