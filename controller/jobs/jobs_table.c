/* jobs_table.c - read-only views of the table of jobs: rows, counts; and its invariants. */
#include "controller/jobs/jobs_impl.h"

#include <assert.h>

json_t *jobs_row(const struct job *job, int64_t now)
{
	static const char *const states[] = {"queued", "running", "done", "failed"};
	const char *api_key = job_api_key(job), *user = api_key ? api_key : job->user;
	uint32_t tokens = 0;
	for (uint32_t i = 0; i < job->n_outputs; i++)
		tokens += job->outputs[i].n_shown;
	json_t *row = json_pack("{s:s, s:s, s:s*, s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "job",
				job->id, "state", states[job->disk.recording ? JOB_RUNNING : job->state],
				"user", user, "key", job->key, "n", (json_int_t)job->n_returned,
				"prompt_tokens", (json_int_t)job->prompt_tokens, "completion_tokens",
				(json_int_t)tokens, "max_tokens", (json_int_t)job->max_tokens, "seed",
				(json_int_t)job->seed, "listeners", (json_int_t)job->n_watches, "age_ms",
				(json_int_t)((now - job->times.submitted_us) / 1000), "keep", job->keep,
				"cancelled", job->cancelled);
	if (job->state == JOB_FAILED && !job->disk.recording)
		json_object_set_new(row, "code", json_string(code_name(job->result.code)));
	return row;
}

json_t *jobs_table(const struct jobs *j, const char *owner, size_t max, int64_t now)
{
	json_t *rows = json_array();
	const struct list *lists[] = {&j->unfinished, &j->finished};
	for (int i = 0; i < 2; i++)
		for (struct job *job = lists[i]->youngest; job && json_array_size(rows) < max;
		     job = job->older)
			if (job_is_of(job, owner))
				json_array_append_new(rows, jobs_row(job, now));
	if (j->journal)
		durable_table(j, rows, owner, max);
	return rows;
}

static void put_now(json_t *rows, const struct job *job, int64_t now)
{
	const char *key = job_api_key(job);
	if (!key && !job_is_of(job, NULL))
		return;
	json_t *row = jobs_row(job, now);
	if (key)
		json_object_set_new(row, "owner", json_string(key));
	json_array_append_new(rows, row);
}

json_t *jobs_now(const struct jobs *j, size_t max, int64_t now)
{
	json_t *rows = json_array();
	for (struct job *job = j->unfinished.oldest; job && json_array_size(rows) < max - max / 5;
	     job = job->younger)
		put_now(rows, job, now);
	for (struct job *job = j->finished.youngest; job && json_array_size(rows) < max; job = job->older)
		put_now(rows, job, now);
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
	uint32_t n = 0, recording = 0;
	for (const struct job *job = j->unfinished.oldest; job; job = job->younger, n++) {
		/* A job that is being recorded is no longer in the engine. */
		assert(!job_finished(job) &&
		       map_get(&j->by_number, job->number) == (job->disk.recording ? NULL : job));
		recording += job->disk.recording;
		assert(map_get(&j->by_id, job_id_key(job->id)) == job);
		for (const struct watch *w = job->watches; w; w = w->next, watches++)
			assert(w->job == job && map_get(&j->by_listener, w->l.id) == w);
		for (uint32_t i = 0; i < job->n_outputs; i++)
			assert(job->outputs[i].n_shown <= job->outputs[i].log.n &&
			       job->outputs[i].shown <= job->outputs[i].text.len);
	}
	assert(n == j->unfinished.n && n == j->by_number.n + recording && watches == j->by_listener.n);
	n = 0;
	for (const struct job *job = j->finished.oldest; job; job = job->younger, n++) {
		assert(job_finished(job) && !job->watches);
		bytes += job->bytes;
	}
	assert(n == j->finished.n && bytes == j->finished_bytes);
	assert(j->by_id.n == j->unfinished.n + j->finished.n);
}
