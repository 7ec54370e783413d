#include "controller/jobs/jobs.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "base/log.h"
#include "controller/jobs/jobs_impl.h"
#include "controller/metrics/metrics.h"
#include "controller/metrics/tracer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* --- lists and keys --- */

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

static uint64_t key_hash(const struct jobs *j, const char *key)
{
	return XXH3_64bits_withSeed(key, strlen(key), j->hash_seed);
}

bool job_is_of(const struct job *job, const char *owner)
{
	return job->owner && owner ? strcmp(job->owner, owner) == 0 : job->owner == owner;
}

const char *job_api_key(const struct job *job)
{
	return job->owner && job->owner[0] == SUBMIT_API_KEY ? job->owner + 1 : NULL;
}

/* Find a job by its idempotency key.  Each owner has its own keys. */
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

/* Free data that only a running job needs. */
static void release_running(struct job *job)
{
	stops_free((struct stops *)job->rules.stops);
	free((uint32_t *)job->rules.late_stop_ids);
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
	free(job->result.pooled);
	for (uint32_t i = 0; i < job->n_stop; i++)
		free(job->stop[i]);
	free(job->stop);
	free(job->user);
	free(job->key);
	free(job->owner);
	free(job->cache_salt);
	free(job->disk.n_saved);
	free(job->disk.numerics);
	free(job->times.timeline);
	trace_context_fini(&job->trace);
	buf_fini(&job->disk.request);
	engine_event_free(job->disk.ended);
	free(job);
}

/* Remove the job from every index, but not from its list. */
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
	job->disk.durable = s->durable;
	job->disk.restarts = s->params.beam_width > 0;
	memcpy(job->disk.body, s->body, sizeof job->disk.body);
	job->seed = s->params.seed;
	const bool chosen = s->best_of > s->params.n, scored = chosen || s->params.beam_width;
	job->hide_logprobs = scored && s->params.logprobs < 0;
	job->prompt_tokens = s->n_tokens;
	job->max_tokens = s->params.max_tokens;
	job->times.received_us = s->received_us;
	job->operation = s->params.pool ? "embeddings" : s->chat ? "chat" : "text_completion";
	job->of_http = s->of_http;
	job->trace = s->trace;
	s->trace.state = NULL;
	if (!job->trace.set)
		tracer_draw(j->svc->tracer, &job->trace);
	job->times.submitted_us = now;
	job->times.accepted_unix_us = clock_unix_us();
	job->rules = (struct output_rules){.tokenizer = j->svc->tokenizer,
					   .skip_special = s->skip_special,
					   .logprobs = scored || s->params.logprobs >= 0,
					   .mirostat = s->params.mirostat != 0,
					   .min_tokens = s->params.min_tokens,
					   .stop = job->stop,
					   .include_stop = s->include_stop,
					   .reasoning_open = s->reasoning == SUBMIT_REASONING_OPEN,
					   .late_stop_ids = s->late_stop_ids,
					   .n_late_stop_ids = s->n_late_stop_ids};
	if (s->reasoning != SUBMIT_REASONING_NONE)
		job->rules.reasoning = j->svc->marks ? j->svc->marks : &reasoning_usual;
	s->late_stop_ids = NULL; /* now owned by the rules */
	if (job->n_stop)
		job->rules.stops = stops_new(job->stop, job->n_stop);
	job->n_returned = s->params.n;
	job->n_outputs = chosen ? s->best_of : s->params.n;
	job->outputs = xcalloc(job->n_outputs, sizeof *job->outputs);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		output_init(&job->outputs[i], i, &job->rules);
	toklog_init(&job->prompt_log, s->params.prompt_logprobs >= 0);
	job->has_prompt_log = job->prompt_log.with && job->prompt_tokens == 1; /* the first token has no
									        * logprob */
	list_push(&j->unfinished, job);
	map_put(&j->by_number, job->number, job);
	map_put(&j->by_id, job_id_key(job->id), job);
	if (job->key)
		add_key(j, job);
	return job;
}

/* Report an error without a job. */
static void refuse_event(const struct listener *l, const struct job_event *e)
{
	l->event(l->user, e);
	if (l->gone)
		l->gone(l->user);
}

static void refuse(const struct listener *l, enum code code, const char *why)
{
	refuse_event(l, &(struct job_event){.kind = JOB_ERROR, .code = code, .why = why});
}

/* Handle a second submit of the same key. */
static void submit_again(struct jobs *j, struct job *job, const struct listener *l, bool stream)
{
	if (job->n_watches >= JOBS_LISTENERS_MAX) {
		refuse(l, E_OVERLOADED, "this job has too many listeners already");
		return;
	}
	struct watch *w = jobs_add_listener(j, job, l, stream);
	w->again = true;
	if (job->state == JOB_QUEUED)
		return;
	jobs_publish_accepted(w);
	for (uint32_t i = 0; stream && !job_is_choosing(job) && i < job->n_outputs; i++)
		jobs_publish_delta(j, w, &job->outputs[i]);
	if (job_finished(job)) {
		jobs_publish_end(j, job, l);
		jobs_remove_listeners(j, job);
	}
}

/* Return the number by which the engine identifies a user or cache salt; 0: none.  Seeded, so that no client
 * can search for a name with another's number.  Names of different owners get different numbers: owners share
 * neither a turn nor a cached prefix. */
static uint64_t name_number(const struct jobs *j, const char *owner, const char *name)
{
	uint64_t of = owner ? XXH3_64bits_withSeed(owner, strlen(owner), j->hash_seed) | 1 : 0;
	return name ? XXH3_64bits_withSeed(name, strlen(name), j->hash_seed ^ of) | 1 : of;
}

/* Send the job to the engine; moves the data that the engine needs from s. */
void jobs_send_submit(struct jobs *j, struct job *job, struct submit *s)
{
	struct engine_cmd *c = jobs_command(ENGINE_SUBMIT, job);
	c->tokens = s->tokens;
	c->n_tokens = s->n_tokens;
	s->tokens = NULL;
	c->params = s->params;
	job->has_constraint = s->params.constraint;
	c->params.n = job->n_outputs;
	if (job->hide_logprobs)
		c->params.logprobs = 0;
	params_init(&s->params);
	c->deadline_us = s->deadline_us;
	c->priority = s->priority;
	c->account = name_number(j, job->owner, NULL);
	c->user = name_number(j, job->owner, job->user);
	c->share = s->share;
	c->salt = name_number(j, job->owner, job->cache_salt);
	c->durable = job->disk.durable;
	if (job->disk.resumed)
		durable_resume(job, c);
	j->send(j->user, c);
}

/* A key identifies one request: refuse a different request under the same key. */
static enum code other_request(const struct job *job, const struct submit *s, struct why *why)
{
	if (memcmp(job->disk.body, s->body, sizeof job->disk.body) != 0)
		err_why(why, 0,
			"key: another request was submitted under \"%.256s\"; use another key, or submit "
			"the same "
			"request",
			s->key);
	else if (s->durable && !job->disk.durable)
		err_why(why, 0, "key: the job of \"%.256s\" is not durable; use another key", s->key);
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
	struct why why;
	enum code code;
	if (same && (code = other_request(same, s, &why))) {
		refuse_event(
			l, &(struct job_event){
				   .kind = JOB_ERROR, .code = code, .why = why.text, .other_request = true});
	} else if (same) {
		same->keep = same->keep || s->keep;
		submit_again(j, same, l, s->stream);
	} else if (s->existing && !jobs_unread(j, &why)) {
		refuse(l, E_NO_SUCH_JOB, "the job was refused, or is known no longer");
	} else if (s->existing) {
		refuse(l, E_NOT_READY, why.text);
	} else if (j->draining) {
		refuse(l, E_NOT_READY, SERVICE_ENDING);
	} else if (j->unfinished.n >= JOBS_MAX) {
		refuse(l, E_OVERLOADED, "too many jobs are unfinished");
	} else if (service_full(j->svc, &why)) {
		refuse(l, E_OVERLOADED, why.text);
	} else if (s->durable && (code = durable_refuses(j, &why))) {
		refuse(l, code, why.text);
	} else {
		struct job *job = jobs_new_job(j, s, NULL, 0, now);
		jobs_add_listener(j, job, l, s->stream);
		if (job->disk.durable)
			durable_begin(job, s, now);
		jobs_send_submit(j, job, s);
	}
	submit_free(s);
}

/* --- the end of a job --- */

static size_t job_bytes(const struct job *job)
{
	size_t bytes = sizeof *job + job->n_outputs * sizeof *job->outputs + toklog_bytes(&job->prompt_log) +
		       job->result.n_pooled * sizeof *job->result.pooled +
		       (job->times.timeline ? sizeof *job->times.timeline : 0);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		bytes += output_bytes(&job->outputs[i]);
	return bytes;
}

/* Add an output to the metrics.  Called for each output once its job has ended. */
static void count_end(const struct jobs *j, const struct job *job, const struct output *o, int64_t now)
{
	static const enum metric_counter reasons[] = {[FINISH_STOP] = METRIC_FINISHED_STOP,
						      [FINISH_LENGTH] = METRIC_FINISHED_LENGTH,
						      [FINISH_ABORT] = METRIC_FINISHED_ABORT,
						      [FINISH_ERROR] = METRIC_FINISHED_ERROR};
	struct metrics *m = j->svc->metrics;
	const struct trace_context *of = &job->trace;
	metrics_add(m, reasons[o->finish], 1);
	metrics_observe_traced(m, METRIC_E2E, (o->last_us ? o->last_us : now) - job->times.submitted_us, of);
	metrics_observe(m, METRIC_REQUEST_PROMPT_TOKENS, job->prompt_tokens);
	metrics_observe(m, METRIC_REQUEST_GENERATION_TOKENS, o->n_shown);
	metrics_observe(m, METRIC_REQUEST_MAX_TOKENS, job->max_tokens);
	if (!o->first_us)
		return;
	metrics_observe_traced(m, METRIC_QUEUE, job->result.queued_us, of);
	metrics_observe_traced(m, METRIC_PREFILL, job->result.first_token_us - job->result.queued_us, of);
	metrics_observe_traced(m, METRIC_DECODE, o->last_us - o->first_us, of);
	metrics_observe_traced(m, METRIC_INFERENCE,
			       o->last_us - job->times.submitted_us - job->result.queued_us, of);
	if (o->log.n > 1)
		metrics_observe_traced(m, METRIC_TPOT, (o->last_us - o->first_us) / (o->log.n - 1), of);
}

/* Count the end of a job for /metrics, once. */
static void count_job(const struct jobs *j, const struct job *job)
{
	struct metrics *m = j->svc->metrics;
	uint32_t most = 0;
	for (uint32_t i = 0; i < job->n_outputs; i++)
		most = job->outputs[i].n_shown > most ? job->outputs[i].n_shown : most;
	metrics_observe(m, METRIC_REQUEST_MOST_TOKENS, most);
	metrics_observe(m, METRIC_REQUEST_N, job->n_outputs);
	if (!job->outputs[0].first_us)
		return;
	const uint32_t cached = job->result.cached_tokens < job->prompt_tokens ? job->result.cached_tokens
									       : job->prompt_tokens;
	metrics_add(m, METRIC_PROMPT_CACHED, cached);
	metrics_add(m, METRIC_PROMPT_COMPUTED, job->prompt_tokens - cached);
	metrics_observe(m, METRIC_PREFILL_COMPUTED, job->prompt_tokens - cached);
}

void jobs_add_finished(struct jobs *j, struct job *job, int64_t finished_us)
{
	job->times.finished_us = finished_us;
	map_remove(&j->by_number, job->number);
	list_remove(&j->unfinished, job);
	list_push(&j->finished, job);
	job->bytes = job_bytes(job);
	j->finished_bytes += job->bytes;
}

void jobs_conclude(struct jobs *j, struct job *job, int64_t now)
{
	job->disk.recording = false;
	for (struct watch *w = job->watches; w; w = w->next)
		jobs_publish_end(j, job, &w->l);
	jobs_remove_listeners(j, job);
	jobs_trace(j, job, job->state == JOB_FAILED ? job->result.code : CODE_OK, job->result.why, now);
	jobs_add_finished(j, job, now);
}

/* Move the job to a final state.  The only way there. */
void jobs_finish(struct jobs *j, struct job *job, enum job_state state, int64_t now)
{
	assert(!job_finished(job) && !job->disk.recording);
	job->state = state;
	job->times.ended_us = now;
	for (uint32_t i = 0; i < job->n_outputs; i++) {
		struct output *o = &job->outputs[i];
		if (o->finish == FINISH_NONE) {
			output_end(o, &job->rules, state == JOB_FAILED ? FINISH_ERROR : FINISH_ABORT, -1);
			o->dirty = true;
		}
	}
	if (job_is_choosing(job)) {
		output_choose_best(job->outputs, job->n_outputs, job->n_returned);
		job->n_outputs = job->n_returned;
	}
	for (uint32_t i = 0; i < job->n_outputs; i++) {
		job->result.completion_tokens += job->outputs[i].n_shown;
		count_end(j, job, &job->outputs[i], now);
	}
	count_job(j, job);
	release_running(job);
	map_remove(&j->by_number, job->number);
	if (job->disk.durable)
		durable_end(j, job, now);
	if (state == JOB_FINISHED)
		jobs_publish_deltas(j, job);
	if (!job->disk.recording)
		jobs_conclude(j, job, now);
	char trace[TRACE_ID_HEX] = "-";
	if (job->trace.remote || job->trace.sampled)
		trace_context_hex(&job->trace, trace);
	log_debug("jobs", "job ended job=%.8s state=%s tokens=%u code=%s trace=%s", job->id,
		  state == JOB_FAILED ? "failed" : "done", job->result.completion_tokens,
		  code_name(job->result.code), trace);
}

static void drop(struct jobs *j, struct job *job)
{
	jobs_remove_listeners(j, job);
	list_remove(&j->unfinished, job);
	job_forget(j, job);
}

void jobs_refuse(struct jobs *j, struct job *job, enum code code, const char *why)
{
	jobs_publish_error(job, NULL, code, why);
	jobs_trace(j, job, code, why, clock_us());
	drop(j, job);
}

/* --- one job --- */

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

bool job_finished(const struct job *job)
{
	return (job->state == JOB_FINISHED || job->state == JOB_FAILED) && !job->disk.recording;
}

bool job_has_ended(const struct job *job)
{
	return job->state == JOB_FINISHED || job->state == JOB_FAILED;
}

uint64_t job_number(const struct job *job)
{
	return job->number;
}

uint32_t job_n_outputs(const struct job *job)
{
	return job->n_returned;
}

uint32_t job_n_listeners(const struct job *job)
{
	return job->n_watches;
}

int jobs_attach(struct jobs *j, struct job *job, const struct listener *l, bool stream, const uint32_t *from)
{
	if (job->n_watches >= JOBS_LISTENERS_MAX)
		return -EBUSY;
	struct watch *w = jobs_add_listener(j, job, l, stream);
	for (uint32_t i = 0; i < job->n_returned; i++) {
		w->at[i].token = from ? from[i] : 0;
		w->at[i].text = w->at[i].token ? SIZE_MAX : 0;
		if (stream && !job_is_choosing(job) && job->state != JOB_QUEUED && job->state != JOB_FAILED)
			jobs_publish_delta(j, w, &job->outputs[i]);
	}
	if (job_finished(job)) {
		jobs_publish_end(j, job, l);
		jobs_remove_listeners(j, job);
	}
	return 0;
}

void jobs_result(struct jobs *j, struct job *job, const struct listener *l)
{
	assert(job_finished(job));
	jobs_publish_end(j, job, l);
	if (l->gone)
		l->gone(l->user);
}

void jobs_cancel(struct jobs *j, struct job *job)
{
	if (job_finished(job) || job->disk.recording || job->cancelled)
		return;
	job->cancelled = true;
	if (job->disk.durable)
		durable_cancel(j, job);
	j->send(j->user, jobs_command(ENGINE_CANCEL, job));
}

void jobs_unlisten(struct jobs *j, uint64_t listener)
{
	struct watch *w = map_get(&j->by_listener, listener);
	if (!w)
		return;
	struct job *job = w->job;
	jobs_remove_listener(j, w);
	if (!job->n_watches && !job->keep)
		jobs_cancel(j, job);
}

/* --- finished jobs --- */

int64_t jobs_sweep(struct jobs *j, int64_t now)
{
	if (j->journal) {
		durable_recover_late(j, now);
		durable_sweep(j, now);
	}
	for (struct job *next, *job = j->finished.oldest; job; job = next) {
		next = job->younger;
		/* Its end is only in memory, not on disk yet. */
		if (job->disk.durable && !job->disk.recorded)
			continue;
		if (job->times.finished_us + j->svc->keep_finished_us > now &&
		    j->finished.n <= j->svc->max_finished && j->finished_bytes <= JOBS_FINISHED_BYTES)
			return job->times.finished_us + j->svc->keep_finished_us;
		list_remove(&j->finished, job);
		j->finished_bytes -= job->bytes;
		job_forget(j, job);
	}
	return INT64_MAX;
}

void jobs_drain(struct jobs *j)
{
	j->draining = true;
}

uint32_t jobs_n_draining(const struct jobs *j)
{
	uint32_t n = 0;
	for (const struct job *job = j->unfinished.oldest; job; job = job->younger) {
		bool survives = job->disk.durable && job->state != JOB_QUEUED;
		n += !survives || (job->disk.recording && job->watches);
	}
	return n;
}

void jobs_end(struct jobs *j, int64_t now)
{
	jobs_flush(j);
	jobs_save(j);
	while (j->unfinished.oldest) {
		struct job *job = j->unfinished.oldest;
		if (job->disk.durable && job->state != JOB_QUEUED) {
			/* The job is in the journal; its end may not be. */
			jobs_publish_error(
				job, job->id, E_NOT_READY,
				"the service is stopping; the job continues when it is back: attach to it "
				"then");
			drop(j, job);
			continue;
		}
		job->service_ended = true;
		jobs_cancel(j, job);
		if (job->state == JOB_QUEUED) {
			if (job->disk.pending)
				durable_retract(j, job);
			jobs_refuse(j, job, E_NOT_READY, "the service is stopping");
		} else {
			job->result.total_us = now - job->times.submitted_us;
			jobs_finish(j, job, JOB_FINISHED, now);
		}
	}
}
