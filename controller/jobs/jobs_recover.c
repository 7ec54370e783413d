/* jobs_recover.c - read jobs from the journal.
 *
 * A restart resumes the unfinished jobs from the request and the saved tokens, and submits them to the engine
 * with these tokens (a beam search restarts from its prompt, with the same result).  Random numbers are
 * indexed by position, so the jobs continue with the same tokens as without the restart.  Finished jobs stay
 * on disk and are read on request. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/numerics.h"
#include "controller/jobs/jobs_impl.h"
#include "controller/jobs/journal.h"
#include "controller/jobs/record.h"
#include "formats/config.h"
#include "proto/mp.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Job numbers used while the journal's numbers are unknown; all numbers in the journal are lower. */
#define UNREAD_NUMBERS ((uint64_t)1 << 62)

/* --- the end of a job --- */

static int get_end(struct job *job, const void *bytes, size_t n, struct why *why)
{
	struct cursor c;
	struct record_tokens prompt;
	char name[64];
	durable_name(name, sizeof name, "end", job);
	int rc = record_open(&c, bytes, n, name, why);
	if (rc)
		return rc;
	/* Only the chosen outputs were recorded. */
	while (job->n_outputs > job->n_returned)
		output_fini(&job->outputs[--job->n_outputs]);
	uint32_t n_fields = cursor_array(&c, "end");
	if (cursor_uint(&c, "version", UINT32_MAX) != END_VERSION)
		return err_why(why, -EBADMSG, "%s: written by another version of quern", name);
	bool failed = cursor_bool(&c, "failed");
	job->result.code = (enum code)cursor_uint(&c, "code", E_INTERNAL);
	cursor_str(&c, "why", job->result.why, sizeof job->result.why);
	job->result.completion_tokens = (uint32_t)cursor_uint(&c, "completion_tokens", UINT32_MAX);
	job->result.cached_tokens = (uint32_t)cursor_uint(&c, "cached_tokens", UINT32_MAX);
	job->result.queued_us = cursor_int(&c, "queued_us", INT64_MIN, INT64_MAX);
	job->result.first_token_us = cursor_int(&c, "first_token_us", INT64_MIN, INT64_MAX);
	job->result.total_us = cursor_int(&c, "total_us", INT64_MIN, INT64_MAX);
	job->cancelled = cursor_bool(&c, "cancelled");
	job->class_changed = cursor_bool(&c, "class_changed");
	job->has_prompt_log = cursor_bool(&c, "prompt_logprobs");
	record_get_tokens(&c, &prompt);
	if (job->has_prompt_log && prompt.n + 1 != job->prompt_tokens)
		cursor_fail(&c, "prompt_logprobs: not those of this prompt");
	for (uint32_t i = 0; !c.bad && job->has_prompt_log && i < prompt.n; i++)
		toklog_push(&job->prompt_log, &prompt.tokens[i], prompt.top_ids, prompt.top_logprobs);
	record_tokens_fini(&prompt);
	if (n_fields != END_FIELDS + job->n_outputs)
		cursor_fail(&c, "end: the wrong number of outputs");
	for (uint32_t i = 0; !c.bad && i < job->n_outputs; i++)
		record_get_output(&c, &job->outputs[i], &job->rules, job->n_stop);
	rc = record_close(&c, why);
	if (!rc)
		job->state = failed ? JOB_FAILED : JOB_FINISHED;
	return rc;
}

/* --- a journal of an earlier format --- */

int jobs_migrate_requests(struct journal_db *db)
{
	int64_t at = -1;
	for (;;) {
		struct why why;
		char name[64];
		struct cursor c;
		struct buf record = {0};
		sqlite3_stmt *s = journal_query(db,
						"SELECT n, id, request FROM jobs WHERE n > ? AND request IS "
						"NOT NULL ORDER BY n LIMIT 1",
						JOURNAL_VALUES(journal_int(at)));
		int rc = s ? sqlite3_step(s) : journal_error(db);
		if (rc != SQLITE_ROW) {
			sqlite3_reset(s);
			return rc == SQLITE_DONE ? 0 : rc;
		}
		at = sqlite3_column_int64(s, 0);
		snprintf(name, sizeof name, "request %s", (const char *)sqlite3_column_text(s, 1));
		const void *bytes = sqlite3_column_blob(s, 2);
		rc = record_open(&c, bytes ? bytes : "", (size_t)sqlite3_column_bytes(s, 2), name, &why);
		if (!rc)
			rc = record_migrate_request(&c, &record, &why);
		sqlite3_reset(s);
		if (rc) {
			log_warn("jobs", "request unreadable row=%" PRId64 " reason=\"%s\"", at, why.text);
			rc = 0;
		} else {
			record_seal(&record, name);
			rc = journal_run(db, "UPDATE jobs SET request = ? WHERE n = ?",
					 JOURNAL_VALUES(journal_blob(record.p, record.len), journal_int(at)));
		}
		buf_fini(&record);
		if (rc)
			return rc;
	}
}

/* --- a job --- */

/* Make a placeholder for an unreadable request, so that its job is listed as failed. */
static struct submit *unknown_request(void)
{
	struct submit *s = xcalloc(1, sizeof *s);
	params_init(&s->params);
	s->params.max_tokens = 1;
	s->durable = s->keep = s->skip_special = true;
	return s;
}

static void damaged(struct job *job, const char *why)
{
	job->result.code = E_INTERNAL;
	snprintf(job->result.why, sizeof job->result.why, "its record in the journal cannot be used: %.180s",
		 why);
	log_error("jobs", "job unreadable job=%s reason=\"%s\"", job->id, job->result.why);
}

/* Make a job from a row.  Columns: n, id, key, accepted_at, request; the last one is owner.  The caller owns
 * *request; NULL: it cannot be read, for the reason in job->result.why. */
static struct job *job_of_row(struct jobs *j, sqlite3_stmt *row, int64_t now, struct submit **request)
{
	struct why why = {""};
	char name[64];
	struct cursor c;
	struct submit *s = NULL;
	int64_t unix_us = clock_unix_us();
	const char *id = (const char *)sqlite3_column_text(row, 1);
	if (id && jobs_in_memory(j, id))
		return NULL; /* loaded by an earlier attempt that failed half-way */
	if (!id || strlen(id) != JOBS_ID_SIZE - 1 || strspn(id, "0123456789abcdef") != JOBS_ID_SIZE - 1) {
		log_error("jobs", "job unreadable row=%lld reason=\"its id is not valid\"",
			  (long long)sqlite3_column_int64(row, 0));
		return NULL;
	}
	snprintf(name, sizeof name, "request %s", id);
	const void *bytes = sqlite3_column_blob(row, 4);
	int rc = record_open(&c, bytes ? bytes : "", (size_t)sqlite3_column_bytes(row, 4), name, &why);
	if (!rc)
		rc = record_get_request(&c, (uint32_t)j->svc->config->n_vocab, now, unix_us, &s, &why);
	if (rc)
		s = unknown_request();
	const char *key = (const char *)sqlite3_column_text(row, 2);
	if (rc && key)
		s->key = xstrdup(key);
	const char *owner = (const char *)sqlite3_column_text(row, sqlite3_column_count(row) - 1);
	if (owner && *owner)
		s->owner = xstrdup(owner);
	uint64_t number = (uint64_t)sqlite3_column_int64(row, 0);
	struct job *job = jobs_new_job(j, s, id, number, now);
	job->disk.resumed = true;
	job->keep = true;
	job->times.accepted_unix_us = sqlite3_column_int64(row, 3);
	job->times.submitted_us = now - (unix_us - job->times.accepted_unix_us);
	job->disk.n_saved = xcalloc(job->n_outputs, sizeof *job->disk.n_saved);
	if (rc) {
		damaged(job, why.text);
		submit_free(s);
		s = NULL;
	}
	*request = s;
	return job;
}

static bool take_tokens(struct job *job, struct output *o, int64_t first, const void *bytes, size_t n)
{
	struct why why;
	char name[96];
	struct cursor c;
	snprintf(name, sizeof name, "tokens %s %u %" PRId64, job->id, o->index, first);
	int rc = record_open(&c, bytes, n, name, &why);
	if (!rc && first == OUTPUT_ENDED) {
		/* The record has the whole output. */
		uint32_t index = o->index;
		output_fini(o);
		output_init(o, index, &job->rules);
		record_get_output(&c, o, &job->rules, job->n_stop);
		rc = record_close(&c, &why);
		job->disk.n_saved[index] = o->finish == FINISH_NONE ? 0 : SEQ_OVER;
	} else if (!rc && first == o->log.n) {
		struct record_tokens t;
		record_get_tokens(&c, &t);
		if (t.has_mu != job->rules.mirostat)
			cursor_fail(&c, "tokens: mirostat's state is not there, or of another job");
		rc = record_close(&c, &why);
		for (uint32_t i = 0; !rc && i < t.n; i++)
			output_push(o, &job->rules, &t.tokens[i], t.top_ids, t.top_logprobs);
		record_tokens_fini(&t);
		job->disk.n_saved[o->index] = o->log.n;
	}
	if (rc)
		log_warn("jobs", "job computed again job=%s from_token=%u reason=\"%s\"", job->id, o->log.n,
			 why.text);
	return !rc;
}

/* Set the job's numerics class.  If it is unreadable, the job may continue in any class. */
static void take_class(struct job *job, const void *bytes, size_t n)
{
	struct why why;
	char name[64], numerics[NUMERICS_MAX] = "";
	struct cursor c;
	durable_name(name, sizeof name, "class", job);
	int rc = record_open(&c, bytes, n, name, &why);
	if (!rc) {
		if (cursor_array(&c, "class") != 2)
			cursor_fail(&c, "class: the wrong number of fields");
		bool changed = cursor_bool(&c, "changed");
		cursor_str(&c, "numerics", numerics, sizeof numerics);
		rc = record_close(&c, &why);
		job->class_changed = !rc && changed;
	}
	free(job->disk.numerics);
	job->disk.numerics = rc || !numerics[0] ? NULL : xstrdup(numerics);
	if (rc)
		log_warn("jobs", "numerics class unknown job=%s reason=\"%s\"", job->id, why.text);
}

/* Replace the trace drawn for this run by the recorded one, if that is readable. */
static void take_trace(struct job *job, const void *bytes, size_t n)
{
	struct why why;
	char name[64];
	struct cursor c;
	struct trace_context trace = {0};
	durable_name(name, sizeof name, "trace", job);
	int rc = record_open(&c, bytes, n, name, &why);
	if (!rc) {
		record_get_trace(&c, &trace);
		rc = record_close(&c, &why);
	}
	if (rc) {
		trace_context_fini(&trace);
		log_warn("jobs", "trace replaced job=%s reason=\"%s\"", job->id, why.text);
		return;
	}
	trace_context_fini(&job->trace);
	job->trace = trace;
}

/* Load the saved tokens of the job's outputs; unreadable tokens are computed again. */
static int load_tokens(struct jobs *j, struct job *job, int64_t now)
{
	sqlite3_stmt *s = journal_query(j->reader,
					"SELECT output, first, data FROM tokens WHERE job = ? ORDER BY rowid",
					JOURNAL_VALUES(journal_int((int64_t)job->number)));
	int rc;
	if (!s)
		return journal_error(j->reader);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		int64_t index = sqlite3_column_int64(s, 0), first = sqlite3_column_int64(s, 1);
		const void *data = sqlite3_column_blob(s, 2);
		if (first == JOB_CLASS)
			take_class(job, data ? data : "", (size_t)sqlite3_column_bytes(s, 2));
		if (first == JOB_TRACE && index == OF_THE_JOB)
			take_trace(job, data ? data : "", (size_t)sqlite3_column_bytes(s, 2));
		if (first == JOB_CLASS || index < 0 || index >= job->n_outputs ||
		    job->outputs[index].finish != FINISH_NONE)
			continue;
		take_tokens(job, &job->outputs[index], first, data ? data : "",
			    (size_t)sqlite3_column_bytes(s, 2));
	}
	sqlite3_reset(s);
	for (uint32_t i = 0; i < job->n_outputs; i++) {
		struct output *o = &job->outputs[i];
		o->first_us = o->last_us = o->log.n ? now : 0;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

void durable_resume(struct job *job, struct engine_cmd *c)
{
	size_t n = 0;
	c->resumed = true;
	if (job->disk.restarts)
		return;
	c->n_had = xcalloc(job->n_outputs, sizeof *c->n_had);
	c->mus = xcalloc(job->n_outputs, sizeof *c->mus);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		n += job->outputs[i].log.n;
	c->had = xcalloc(n ? n : 1, sizeof *c->had);
	if (!n) { /* without tokens, any class is allowed */
		free(job->disk.numerics);
		job->disk.numerics = NULL;
		job->class_changed = false;
	}
	c->numerics = job->disk.numerics ? xstrdup(job->disk.numerics) : NULL;
	n = 0;
	for (uint32_t i = 0; i < job->n_outputs; i++) {
		const struct output *o = &job->outputs[i];
		c->mus[i] = o->mu;
		c->n_had[i] = o->finish == FINISH_NONE ? o->log.n : SEQ_OVER;
		if (o->finish != FINISH_NONE || !o->log.n)
			continue;
		memcpy(c->had + n, o->log.token, o->log.n * sizeof *c->had);
		n += o->log.n;
	}
}

/* Continue an unfinished job, or end it at once. */
static void resume(struct jobs *j, struct job *job, struct submit *s, bool cancelled, int64_t now)
{
	bool all = true;
	job->state = JOB_RUNNING;
	if (!s) {
		jobs_finish(j, job, JOB_FAILED, now);
		return;
	}
	for (uint32_t i = 0; i < job->n_outputs; i++) {
		struct output *o = &job->outputs[i];
		if (o->finish == FINISH_NONE && o->log.n >= job->max_tokens)
			output_end(o, &job->rules, FINISH_LENGTH, -1);
		all = all && o->finish != FINISH_NONE;
	}
	job->cancelled = cancelled;
	if (all || cancelled)
		jobs_finish(j, job, JOB_FINISHED, now);
	else
		jobs_send_submit(j, job, s);
}

/* Resume the unfinished jobs in the order of their acceptance. */
static int resume_all(struct jobs *j, int64_t now)
{
	sqlite3_stmt *s = journal_query(j->reader,
					"SELECT n, id, key, accepted_at, request, cancelled, owner FROM jobs "
					"WHERE state = 0 ORDER BY n",
					NULL, 0);
	int rc;
	if (!s)
		return journal_error(j->reader);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		struct submit *request;
		struct job *job = job_of_row(j, s, now, &request);
		if (!job)
			continue;
		rc = request ? load_tokens(j, job, now) : SQLITE_OK;
		resume(j, job, request, sqlite3_column_int(s, 5) != 0, now);
		submit_free(request);
		if (rc)
			break;
	}
	sqlite3_reset(s);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int read_all(struct jobs *j, int64_t now, struct why *why)
{
	uint32_t had = j->unfinished.n;
	int rc = journal_reader(j->journal, &j->reader, why);
	if (rc)
		return rc;
	sqlite3_stmt *s = journal_query(j->reader, "SELECT max(n) FROM jobs", NULL, 0);
	rc = s ? sqlite3_step(s) : journal_error(j->reader);
	if (rc == SQLITE_ROW) {
		j->last_number = (uint64_t)sqlite3_column_int64(s, 0);
		sqlite3_reset(s);
		rc = resume_all(j, now);
	}
	if (rc) {
		rc = err_why(why, -EIO, "journal %s: %s", journal_path(j->journal),
			     journal_errmsg(j->reader));
		journal_reader_close(j->reader);
		j->reader = NULL;
		return rc;
	}
	if (j->unfinished.n > had)
		log_info("jobs", "resumed from the journal jobs=%u", j->unfinished.n - had);
	return 0;
}

int jobs_recover(struct jobs *j, struct journal *journal,
		 void (*written)(void *user, const char *id, bool end, int rc, const char *why), int64_t now,
		 struct why *why)
{
	assert(!j->journal && j->unfinished.n == 0);
	j->journal = journal;
	j->written = written;
	int rc = read_all(j, now, why);
	if (rc != -EAGAIN)
		return rc;
	log_warn("jobs", "journal read later reason=\"%s\"", why->text);
	j->last_number = UNREAD_NUMBERS;
	return 0;
}

void durable_recover_late(struct jobs *j, int64_t now)
{
	struct why why;
	int rc = j->reader ? 0 : read_all(j, now, &why);
	if (rc && rc != -EAGAIN)
		log_error("jobs", "journal not read reason=\"%s\"", why.text);
}

bool jobs_unread(const struct jobs *j, struct why *why)
{
	if (!j->journal || j->reader)
		return false;
	if (journal_health(j->journal, why))
		err_why(why, 0, "the journal is being read");
	return true;
}

/* Load a finished job into memory.  row: as for job_of_row(), with end and finished_at before owner. */
static struct job *load_finished(struct jobs *j, sqlite3_stmt *row)
{
	struct why why;
	struct submit *s;
	int64_t now = clock_us();
	struct job *job = job_of_row(j, row, now, &s);
	if (!job)
		return NULL;
	const void *end = sqlite3_column_blob(row, 5);
	if (s && get_end(job, end ? end : "", (size_t)sqlite3_column_bytes(row, 5), &why)) {
		damaged(job, why.text);
		job->state = JOB_FAILED;
	} else if (!s) {
		job->state = JOB_FAILED;
	}
	submit_free(s);
	job->disk.recorded = true;
	jobs_add_finished(j, job, now - (clock_unix_us() - sqlite3_column_int64(row, 6)));
	return job;
}

/* Load the job that a query finds.  query NULL: it could not be prepared. */
static struct job *load_one(struct jobs *j, sqlite3_stmt *query)
{
	struct job *job = query && sqlite3_step(query) == SQLITE_ROW ? load_finished(j, query) : NULL;
	sqlite3_reset(query);
	return job;
}

struct job *durable_find(struct jobs *j, const char *id)
{
	if (!j->reader)
		return NULL;
	return load_one(j, journal_query(j->reader,
					 "SELECT n, id, key, accepted_at, request, end, finished_at, owner "
					 "FROM jobs WHERE id = ? AND state = 1",
					 JOURNAL_VALUES(journal_text(id))));
}

struct job *durable_find_key(struct jobs *j, const char *key, const char *owner)
{
	if (!j->reader)
		return NULL;
	return load_one(j,
			journal_query(j->reader,
				      "SELECT n, id, key, accepted_at, request, end, finished_at, owner "
				      "FROM jobs WHERE owner = ? AND key = ? AND state = 1",
				      JOURNAL_VALUES(journal_text(owner ? owner : ""), journal_text(key))));
}

void durable_table(const struct jobs *j, json_t *rows, const char *owner, size_t max)
{
	if (!j->reader)
		return;
	sqlite3_stmt *s =
		journal_query(j->reader,
			      "SELECT id, row, accepted_at FROM jobs WHERE state = 1 AND owner = ? "
			      "ORDER BY finished_at DESC LIMIT ?",
			      JOURNAL_VALUES(journal_text(owner ? owner : ""), journal_int((int64_t)max)));
	if (!s)
		return;
	int64_t unix_us = clock_unix_us();
	while (json_array_size(rows) < max && sqlite3_step(s) == SQLITE_ROW) {
		const char *id = (const char *)sqlite3_column_text(s, 0);
		const char *text = (const char *)sqlite3_column_text(s, 1);
		if (!id || !text || strlen(id) != JOBS_ID_SIZE - 1 || jobs_in_memory((struct jobs *)j, id))
			continue;
		json_t *row = json_loads(text, 0, NULL);
		if (!json_is_object(row)) {
			json_decref(row);
			continue;
		}
		json_object_set_new(row, "age_ms",
				    json_integer((unix_us - sqlite3_column_int64(s, 2)) / 1000));
		json_object_set_new(row, "listeners", json_integer(0));
		json_array_append_new(rows, row);
	}
	sqlite3_reset(s);
}
