/* jobs_explain.c - report where a job's time went, for `explain` (docs/PROTOCOL.md).
 *
 *   received       submitted                                              ended       concluded
 *      |--- prepare ---|--- the engine's phases (timeline.h), and other ---|-- journal --| */
#include "controller/jobs/jobs_impl.h"

#include <inttypes.h>

/* Add a phase and return its time, us. */
static int64_t put_phase(json_t *phases, const char *name, int64_t us, json_t *more)
{
	json_t *p = json_pack("{s:s, s:I}", "phase", name, "us", (json_int_t)us);
	if (more)
		json_object_update(p, more);
	json_decref(more);
	json_array_append_new(phases, p);
	return us;
}

/* Return the details of a phase other than its time. */
static json_t *phase_details(const struct job *job, const struct timeline *t, enum phase p, uint32_t tokens)
{
	json_t *held;
	uint32_t n_later;
	switch (p) {
	case PHASE_QUEUED:
		n_later = t->n_begun > t->n_ahead ? t->n_begun - t->n_ahead : 0;
		held = json_object();
		for (int h = 0; h < HOLDS; h++)
			if (t->held_us[h] > 0)
				json_object_set_new(held, timeline_hold_name((enum hold)h),
						    json_integer(t->held_us[h]));
		return json_pack("{s:I, s:I, s:I, s:I, s:o}", "jobs_ahead", (json_int_t)t->n_ahead,
				 "jobs_begun", (json_int_t)t->n_begun, "later_jobs_first",
				 (json_int_t)n_later, "better_priority_first", (json_int_t)t->n_better,
				 "held_us", held);
	case PHASE_PREFILL:
		return json_pack("{s:I, s:I, s:I}", "steps", (json_int_t)t->n_chunks, "tokens",
				 (json_int_t)t->n_rows, "cached_tokens",
				 (json_int_t)job->result.cached_tokens);
	case PHASE_RECOMPUTE:
		return json_pack("{s:I, s:I}", "times", (json_int_t)t->times[p], "tokens",
				 (json_int_t)t->n_again);
	case PHASE_DECODE:
		return json_pack("{s:I}", "tokens", (json_int_t)tokens);
	default:
		return json_pack("{s:I}", "times", (json_int_t)t->times[p]);
	}
}

static json_t *spans_of(const struct timeline *t, int64_t zero_us)
{
	json_t *spans = json_array();
	for (uint32_t i = 0; i < t->n_spans; i++) {
		const struct timeline_span *s = &t->spans[i];
		json_array_append_new(spans,
				      json_pack("{s:s, s:I, s:I}", "phase", timeline_phase_name(s->phase),
						"from_us", (json_int_t)(s->from_us - zero_us), "us",
						(json_int_t)(s->to_us - s->from_us)));
	}
	return spans;
}

/* Add the phases of a job read from the journal, from the times in its record. */
static int64_t put_recorded(json_t *phases, const struct job *job)
{
	int64_t sum = put_phase(phases, "queued", job->result.queued_us, NULL);
	sum += put_phase(phases, "prefill", job->result.first_token_us - job->result.queued_us, NULL);
	return sum + put_phase(phases, "decode", job->result.total_us - job->result.first_token_us, NULL);
}

json_t *jobs_explain(const struct job *job, const struct timeline *live, int64_t now)
{
	const struct timeline *t = job->times.timeline ? job->times.timeline : live;
	const bool recorded = !t && job_has_ended(job) && !job->times.ended_us; /* read from the journal */
	const int64_t begin = job->times.received_us ? job->times.received_us : job->times.submitted_us;
	const int64_t end = job->times.finished_us && !recorded ? job->times.finished_us : now;
	const int64_t ended = job->times.ended_us ? job->times.ended_us : end;
	int64_t sum = 0, total = recorded ? job->result.total_us : end - begin;
	json_t *out = jobs_row(job, now), *phases = json_array();
	uint32_t tokens = 0;
	for (uint32_t i = 0; i < job->n_outputs; i++)
		tokens += job->outputs[i].n_shown;
	if (recorded) {
		sum = put_recorded(phases, job);
	} else {
		sum = put_phase(phases, "prepare", job->times.submitted_us - begin, NULL);
		for (int p = PHASE_NONE + 1; t && p < PHASES; p++)
			if (t->times[p])
				sum += put_phase(phases, timeline_phase_name((enum phase)p), t->us[p],
						 phase_details(job, t, (enum phase)p, tokens));
		if (job->disk.durable)
			sum += put_phase(phases, "journal", end - ended, NULL);
		put_phase(phases, "other", total > sum ? total - sum : 0, NULL);
	}
	if (job->trace.remote || job->trace.sampled) {
		char trace[TRACE_ID_HEX];
		trace_context_hex(&job->trace, trace);
		json_object_set_new(out, "trace", json_string(trace));
	}
	json_object_set_new(out, "total_us", json_integer(total));
	json_object_set_new(out, "cached_tokens", json_integer(job->result.cached_tokens));
	json_object_set_new(out, "resumed", json_boolean(job->disk.resumed));
	json_object_set_new(out, "in_memory", json_boolean(!recorded));
	json_object_set_new(out, "phases", phases);
	if (!t)
		return out;
	if (t->phase != PHASE_NONE)
		json_object_set_new(out, "phase", json_string(timeline_phase_name(t->phase)));
	json_object_set_new(out, "sequences_preempted", json_integer(t->n_seqs_preempted));
	json_object_set_new(out, "moves", json_integer(t->n_moves));
	json_object_set_new(out, "spans", spans_of(t, begin));
	json_object_set_new(out, "spans_left_out", json_integer(t->n_left_out));
	return out;
}
