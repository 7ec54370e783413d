/* jobs_trace.c - a job's spans (docs/operating/monitoring.md): one for the whole job, with a child span per
 * phase. */
#include "base/alloc.h"
#include "base/log.h"
#include "controller/jobs/jobs_impl.h"
#include "controller/metrics/span.h"
#include "controller/metrics/tracer.h"

#include <stdio.h>

/* The spans of a job, all with the same parent. */
struct spans {
	struct buf all;
	size_t n;
	const struct trace_context *of;
	uint8_t job[8];
	int64_t shift_us;
};

static void put_phase(struct spans *s, const char *name, int64_t begin_us, int64_t end_us,
		      const struct buf *more)
{
	struct span p = {.of = s->of,
			 .name = name,
			 .kind = SPAN_INTERNAL,
			 .begin_us = begin_us,
			 .end_us = end_us,
			 .shift_us = s->shift_us,
			 .attributes = more};
	memcpy(p.parent, s->job, sizeof p.parent);
	trace_context_span(p.id);
	span_put(&s->all, &p);
	s->n++;
}

static void put_queue(struct buf *b, const struct timeline *t)
{
	span_attribute_int(b, "quern.jobs_ahead", t->n_ahead);
	span_attribute_int(b, "quern.jobs_begun", t->n_begun);
	span_attribute_int(b, "quern.better_priority_first", t->n_better);
	for (int h = 0; h < HOLDS; h++) {
		char name[40];
		snprintf(name, sizeof name, "quern.held_us.%s", timeline_hold_name((enum hold)h));
		if (t->held_us[h] > 0)
			span_attribute_int(b, name, t->held_us[h]);
	}
}

static void put_timeline(struct spans *s, const struct job *job, uint32_t tokens)
{
	const struct timeline *t = job->times.timeline;
	bool seen[PHASES] = {0};
	for (uint32_t i = 0; i < t->n_spans; i++) {
		const enum phase p = t->spans[i].phase;
		struct buf more = {0};
		/* Sums cover the whole job, and are put in the phase's first span. */
		if (!seen[p] && p == PHASE_QUEUED)
			put_queue(&more, t);
		if (!seen[p] && p == PHASE_PREFILL) {
			span_attribute_int(&more, "quern.tokens", (int64_t)t->n_rows);
			span_attribute_int(&more, "quern.steps", t->n_chunks);
			span_attribute_int(&more, "quern.cached_tokens", job->result.cached_tokens);
		}
		if (!seen[p] && p == PHASE_DECODE)
			span_attribute_int(&more, "quern.tokens", tokens);
		if (!seen[p] && p == PHASE_RECOMPUTE)
			span_attribute_int(&more, "quern.tokens", (int64_t)t->n_again);
		seen[p] = true;
		put_phase(s, timeline_phase_name(p), t->spans[i].from_us, t->spans[i].to_us, &more);
		buf_fini(&more);
	}
}

static void put_finishes(struct buf *b, const struct job *job)
{
	const char *all[PARAMS_N_MAX];
	uint32_t n = 0;
	for (; n < job->n_outputs; n++)
		all[n] = finish_name(job->outputs[n].finish);
	if (n)
		span_attribute_texts(b, "gen_ai.response.finish_reasons", all, n);
}

/* Append attributes named by OpenTelemetry's conventions for generative AI, and vLLM's gen_ai.latency. */
static void put_attributes(struct buf *b, const struct jobs *j, const struct job *job, uint32_t tokens,
			   int64_t end_us)
{
	const double unit = 1e-6;
	const int64_t begin_us = job->times.received_us ? job->times.received_us : job->times.submitted_us;
	span_attribute_text(b, "gen_ai.operation.name", job->operation);
	span_attribute_text(b, "gen_ai.provider.name", "quern");
	span_attribute_text(b, "gen_ai.request.model", j->svc->model_name);
	span_attribute_text(b, "gen_ai.response.model", j->svc->model_name);
	span_attribute_text(b, "gen_ai.response.id", job->id);
	span_attribute_int(b, "gen_ai.request.max_tokens", job->max_tokens);
	span_attribute_int(b, "gen_ai.request.choice.count", job->n_returned);
	span_attribute_int(b, "gen_ai.request.seed", (int64_t)job->seed);
	span_attribute_int(b, "gen_ai.usage.input_tokens", job->prompt_tokens);
	span_attribute_int(b, "gen_ai.usage.output_tokens", tokens);
	if (job->result.queued_us || job->result.total_us) {
		span_attribute_double(b, "gen_ai.latency.time_in_queue",
				      (double)job->result.queued_us * unit);
		span_attribute_double(
			b, "gen_ai.latency.time_to_first_token",
			(double)(job->result.first_token_us + job->times.submitted_us - begin_us) * unit);
	}
	span_attribute_double(b, "gen_ai.latency.e2e", (double)(end_us - begin_us) * unit);
	span_attribute_int(b, "quern.cached_tokens", job->result.cached_tokens);
	if (job->times.timeline) {
		span_attribute_int(b, "quern.sequences_preempted", job->times.timeline->n_seqs_preempted);
		span_attribute_int(b, "quern.moves", job->times.timeline->n_moves);
	}
	if (job->disk.resumed)
		span_attribute_int(b, "quern.resumed", 1);
}

void jobs_trace(struct jobs *j, const struct job *job, enum code code, const char *why, int64_t now)
{
	if (!j->svc->tracer || !job->trace.sampled)
		return;
	struct spans s = {.of = &job->trace, .shift_us = span_shift()};
	struct buf attributes = {0};
	char name[288];
	uint32_t tokens = 0;
	for (uint32_t i = 0; i < job->n_outputs; i++)
		tokens += job->outputs[i].n_shown;
	trace_context_span(s.job);
	snprintf(name, sizeof name, "%s %s", job->operation, j->svc->model_name);
	put_attributes(&attributes, j, job, tokens, now);
	put_finishes(&attributes, job);
	if (code)
		span_attribute_text(&attributes, "error.type", code_name(code));
	struct span whole = {.of = &job->trace,
			     .name = name,
			     .kind = job->of_http ? SPAN_INTERNAL : SPAN_SERVER,
			     .begin_us = job->times.received_us ? job->times.received_us
								: job->times.submitted_us,
			     .end_us = now,
			     .shift_us = s.shift_us,
			     .error = code ? why : NULL,
			     .attributes = &attributes};
	memcpy(whole.id, s.job, sizeof whole.id);
	memcpy(whole.parent, job->trace.span, sizeof whole.parent);
	span_put(&s.all, &whole);
	s.n++;
	if (job->times.received_us)
		put_phase(&s, "prepare", job->times.received_us, job->times.submitted_us, NULL);
	if (job->times.timeline)
		put_timeline(&s, job, tokens);
	if (job->disk.durable && job->times.ended_us)
		put_phase(&s, "journal", job->times.ended_us, now, NULL);
	tracer_put(j->svc->tracer, &s.all, s.n);
	buf_fini(&attributes);
}
