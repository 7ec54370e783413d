/* jobs_events.c - handle the engine's events of jobs: acceptance, tokens, ends of outputs, the end. */
#include "controller/jobs/jobs_impl.h"

#include "base/alloc.h"
#include "controller/metrics/metrics.h"

#include <stdio.h>

void jobs_accept(struct jobs *j, struct job *job)
{
	job->state = JOB_RUNNING;
	for (struct watch *w = job->watches; w; w = w->next)
		jobs_publish_accepted(w);
	/* Tokens may have arrived while it was pending. */
	for (uint32_t i = 0; i < job->n_outputs; i++)
		job->outputs[i].dirty = true;
	jobs_publish_deltas(j, job);
}

static void on_accepted(struct jobs *j, struct job *job)
{
	if (job->state != JOB_QUEUED || job->disk.pending)
		return;
	if (job->disk.durable)
		durable_accept(j, job);
	else
		jobs_accept(j, job);
}

/* Handle a refusal.  A resumed job was accepted in an earlier run, so it fails instead. */
static void on_refused(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now)
{
	if (!job->disk.resumed) {
		jobs_refuse(j, job, e->code, e->why);
		return;
	}
	job->result.code = e->code;
	snprintf(job->result.why, sizeof job->result.why, "%s", e->why);
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
		metrics_observe_traced(m, METRIC_ITL, now - o->last_us, &job->trace);
	} else {
		o->first_us = now;
		metrics_observe_traced(m, METRIC_TTFT, now - job->times.submitted_us, &job->trace);
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
		jobs_mark_dirty(j, job, o);
		if (job->disk.durable) {
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

/* Handle a pooled result.  The job's output has no tokens: its first time is the end of the prompt. */
static void on_pooled(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now)
{
	struct metrics *m = j->svc->metrics;
	if (job->result.pooled || !e->n_values)
		return;
	job->result.pooled = xmemdup(e->values, e->n_values * sizeof *e->values);
	job->result.n_pooled = e->n_values;
	metrics_add(m, METRIC_PROMPT_TOKENS, job->prompt_tokens);
	metrics_observe_traced(m, METRIC_TTFT, now - job->times.submitted_us, &job->trace);
	job->outputs[0].first_us = job->outputs[0].last_us = now;
}

static void on_output_done(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now)
{
	if (e->index >= job->n_outputs || job->outputs[e->index].finish != FINISH_NONE)
		return;
	struct output *o = &job->outputs[e->index];
	output_end(o, &job->rules, e->finish, e->stop_token);
	jobs_mark_dirty(j, job, o);
	if (job->disk.durable)
		durable_mark(j, job, 1, now);
}

void jobs_on_end(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now)
{
	if (e->times && !job->times.timeline)
		job->times.timeline = xmemdup(e->times, sizeof *e->times);
	if (job->disk.pending) {
		/* The job ended before its acceptance is on disk: JOB_ACCEPTED must come first. */
		job->disk.ended = xmemdup(e, sizeof *e);
		job->disk.ended->tokens = NULL;
		job->disk.ended->top_ids = NULL;
		job->disk.ended->top_logprobs = NULL;
		job->disk.ended->values = NULL;
		job->disk.ended->status = NULL;
		job->disk.ended->times = NULL;
		return;
	}
	job->result.cached_tokens = e->cached_tokens;
	job->class_changed = job->class_changed || e->class_changed; /* or it changed in an earlier run */
	job->result.queued_us = e->queued_us;
	job->result.first_token_us = e->first_token_us;
	job->result.total_us = e->total_us;
	if (e->kind == ENGINE_JOB_FAILED) {
		job->result.code = e->code;
		snprintf(job->result.why, sizeof job->result.why, "%s", e->why);
	}
	jobs_finish(j, job, e->kind == ENGINE_JOB_FAILED ? JOB_FAILED : JOB_FINISHED, now);
}

void jobs_event(struct jobs *j, const struct engine_event *e, int64_t now)
{
	if (e->kind == ENGINE_TOKENS) {
		on_tokens(j, e, now);
		jobs_flush(j);
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
	case ENGINE_POOLED:
		on_pooled(j, job, e, now);
		break;
	case ENGINE_OUTPUT_DONE:
		on_output_done(j, job, e, now);
		break;
	case ENGINE_JOB_DONE:
	case ENGINE_JOB_FAILED:
		jobs_on_end(j, job, e, now);
		break;
	default:
		break;
	}
	jobs_flush(j);
}
