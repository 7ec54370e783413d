/* jobs_listeners.c - the listeners of a job and the events sent to them.
 *
 * An event of new tokens has everything new in an output since the listener's position.  jobs_flush()
 * publishes it, once per message of the engine. */
#include "controller/jobs/jobs_impl.h"

#include "base/alloc.h"

static struct token_logprob *scratch(struct jobs *j, size_t n)
{
	array_grow(j->logprobs, j->logprobs_cap, n);
	return j->logprobs;
}

static void publish(const struct watch *w, const struct job_event *e)
{
	w->l.event(w->l.user, e);
}

/* Remove a watch from the index, not from its job's chain, and free it. */
static void watch_free(struct jobs *j, struct watch *w)
{
	map_remove(&j->by_listener, w->l.id);
	if (w->l.gone)
		w->l.gone(w->l.user);
	free(w);
}

void jobs_remove_listeners(struct jobs *j, struct job *job)
{
	while (job->watches) {
		struct watch *w = job->watches;
		job->watches = w->next;
		job->n_watches--;
		watch_free(j, w);
	}
}

struct watch *jobs_add_listener(struct jobs *j, struct job *job, const struct listener *l, bool stream)
{
	struct watch *w = xcalloc(1, sizeof *w + job->n_returned * sizeof w->at[0]);
	w->l = *l;
	w->job = job;
	w->stream = stream;
	/* Append to the chain: listeners get events in the order in which they were added. */
	struct watch **last = &job->watches;
	while (*last)
		last = &(*last)->next;
	*last = w;
	job->n_watches++;
	map_put(&j->by_listener, l->id, w);
	return w;
}

void jobs_publish_accepted(const struct watch *w)
{
	const struct job *job = w->job;
	publish(w, &(struct job_event){.kind = JOB_ACCEPTED,
				       .job = job->id,
				       .prompt_tokens = job->prompt_tokens,
				       .accepted_unix_us = job->times.accepted_unix_us,
				       .again = w->again});
}

void jobs_publish_delta(struct jobs *j, struct watch *w, const struct output *o)
{
	struct position *at = &w->at[o->index];
	/* A failed job ends with its error. */
	const enum finish finish = w->job->state == JOB_FAILED ? FINISH_NONE : o->finish;
	bool end = finish != FINISH_NONE && !at->end;
	uint32_t to = o->n_shown;
	if (at->text == SIZE_MAX && at->token < o->log.n)
		at->text = o->start[at->token];
	else if (at->text == SIZE_MAX && at->token == o->log.n && o->finish != FINISH_NONE)
		at->text = o->tail;
	bool waits = at->token > to || at->text > o->shown; /* the listener's position is after the end of the
							     * output so far */
	uint32_t n = waits ? 0 : to - at->token;
	size_t text_n = waits || at->text == SIZE_MAX ? 0 : o->shown - at->text;
	if (!n && !text_n && !end)
		return;
	struct job_event e = {.kind = JOB_DELTA, .job = w->job->id, .offset = at->token};
	e.prompt_tokens = w->job->prompt_tokens;
	e.delta = (struct output_view){.index = o->index,
				       .text = text_n ? o->text.p + at->text : "",
				       .text_n = text_n,
				       .tokens = n ? o->log.token + at->token : NULL,
				       .n_tokens = n,
				       .starts = n ? o->start + at->token : NULL,
				       .tail = text_n && o->finish != FINISH_NONE ? o->text.len - o->tail : 0,
				       .finish = finish,
				       .stop_token = o->stop_token,
				       .stop_string = o->stop_string};
	if (o->log.with && n && !w->job->hide_logprobs) {
		struct token_logprob *lp = scratch(j, n);
		toklog_view(&o->log, at->token, to, lp);
		e.delta.logprobs = lp;
	}
	publish(w, &e);
	at->token += n;
	at->text += text_n;
	at->end = end || at->end;
}

void jobs_publish_end(struct jobs *j, const struct job *job, const struct listener *l)
{
	struct job_event e = {.kind = JOB_DONE,
			      .job = job->id,
			      .prompt_tokens = job->prompt_tokens,
			      .completion_tokens = job->result.completion_tokens,
			      .cached_tokens = job->result.cached_tokens,
			      .class_changed = job->class_changed,
			      .service_ended = job->service_ended,
			      .queued_us = job->result.queued_us,
			      .first_token_us = job->result.first_token_us,
			      .total_us = job->result.total_us,
			      .pooled = job->result.pooled,
			      .n_pooled = job->result.n_pooled};
	if (job->state == JOB_FAILED) {
		e.kind = JOB_ERROR;
		e.code = job->result.code;
		e.why = job->result.why;
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
		if (job->hide_logprobs)
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

void jobs_publish_deltas(struct jobs *j, struct job *job)
{
	if (job_is_choosing(job) || job->state == JOB_QUEUED)
		return; /* deltas begin after the choice and after JOB_ACCEPTED */
	for (struct watch *w = job->watches; w; w = w->next)
		for (uint32_t i = 0; w->stream && i < job->n_outputs; i++)
			if (job->outputs[i].dirty)
				jobs_publish_delta(j, w, &job->outputs[i]);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		job->outputs[i].dirty = false;
}

void jobs_mark_dirty(struct jobs *j, struct job *job, struct output *o)
{
	o->dirty = true;
	if (job->dirty)
		return;
	job->dirty = true;
	array_grow(j->dirty, j->dirty_cap, j->n_dirty + 1);
	j->dirty[j->n_dirty++] = job;
}

void jobs_flush(struct jobs *j)
{
	for (uint32_t i = 0; i < j->n_dirty; i++) {
		struct job *job = j->dirty[i];
		if (!job)
			continue;
		job->dirty = false;
		jobs_publish_deltas(j, job);
	}
	j->n_dirty = 0;
}

void jobs_publish_error(const struct job *job, const char *id, enum code code, const char *why)
{
	struct job_event e = {.kind = JOB_ERROR, .job = id, .code = code, .why = why};
	for (struct watch *w = job->watches; w; w = w->next)
		publish(w, &e);
}

void jobs_remove_listener(struct jobs *j, struct watch *w)
{
	struct job *job = w->job;
	struct watch **at = &job->watches;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	job->n_watches--;
	watch_free(j, w);
}
