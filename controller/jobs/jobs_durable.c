/* jobs_durable.c - write durable jobs to the journal; jobs.h draws the states.
 *
 * Acceptance and end are published only when they are on disk, so an accepted job is carried out, and a done
 * job stays done, whatever crashes.  One exception: while the disk fails, an end is published at once, and
 * recorded when the journal can write again.
 *
 * jobs_recover.c reads the jobs back. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/numerics.h"
#include "controller/jobs/jobs_impl.h"
#include "controller/jobs/journal.h"
#include "controller/jobs/record.h"
#include "proto/mp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char jobs_schema[] =
	/* state: 0 unfinished, 1 ended.  Times are microseconds since 1970. */
	"CREATE TABLE jobs(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, key TEXT,"
	" body BLOB NOT NULL, accepted_at INTEGER NOT NULL, request BLOB, state INTEGER NOT NULL,"
	" cancelled INTEGER NOT NULL DEFAULT 0, finished_at INTEGER, end BLOB, row TEXT, model TEXT);"
	"CREATE UNIQUE INDEX jobs_key ON jobs(owner, key) WHERE key IS NOT NULL;"
	"CREATE INDEX jobs_unfinished ON jobs(n) WHERE state = 0;"
	"CREATE INDEX jobs_finished ON jobs(finished_at) WHERE state = 1;"
	/* Progress of unfinished jobs, in order: the tokens from `first` on.  first = OUTPUT_ENDED: an output
	 * that has ended; JOB_CLASS: the numerics class of the rows that follow; JOB_TRACE: the job's trace.
	 * A reader skips rows of outputs that the job does not have.  So a new kind of such rows needs no
	 * migration, and a downgrade loses only their content. */
	"CREATE TABLE tokens(job INTEGER NOT NULL, output INTEGER NOT NULL, first INTEGER NOT NULL,"
	" data BLOB NOT NULL);"
	"CREATE INDEX tokens_job ON tokens(job)";

/* Name of the served model when the job was submitted; NULL: a version that did not record it. */
const char jobs_schema_model[] = "ALTER TABLE jobs ADD COLUMN model TEXT";

enum {
	SAVE_US = 250 * 1000, /* tokens are saved at least this often */
	SAVE_TOKENS = 4096,   /* or when all jobs together have this many unsaved tokens */
	SWEEP_US = 10 * 1000 * 1000,
	SWEEP_ROWS = 1000,
};

/* --- operations --- */

/* A row of the table tokens. */
struct saved {
	uint64_t number;
	uint32_t output;
	int64_t first;
	size_t at, n; /* range in the operation's bytes */
};

struct durable_op {
	struct journal_op op; /* must be the first member: the journal points to it */
	struct jobs *jobs;    /* uses only written and user, which never change */
	char id[JOBS_ID_SIZE];
	uint64_t number;
	char *key, *owner; /* owned or NULL */
	const char *model; /* the service's model, which outlives the journal */
	uint8_t body[16];
	int64_t unix_us, limit;
	struct buf bytes; /* a record, or rows of tokens */
	struct buf trace; /* a record, or empty */
	char *row;        /* owned */
	struct saved *saved;
	uint32_t n_saved, saved_cap;
};

static void op_free(struct durable_op *o)
{
	free(o->key);
	free(o->owner);
	buf_fini(&o->bytes);
	buf_fini(&o->trace);
	free(o->row);
	free(o->saved);
	free(o);
}

static void on_done(struct journal_op *op, int rc, const char *why)
{
	if (rc)
		log_warn("jobs", "journal not written reason=\"%s\"", why);
	op_free((struct durable_op *)op);
}

/* Finish a sweep.  It fails only if the disk does, which the journal logs. */
static void on_sweep_done(struct journal_op *op, int rc, const char *why)
{
	(void)rc, (void)why;
	op_free((struct durable_op *)op);
}

static void on_accept_done(struct journal_op *op, int rc, const char *why)
{
	struct durable_op *o = (struct durable_op *)op;
	o->jobs->written(o->jobs->user, o->id, false, rc, why);
	op_free(o);
}

static void on_end_done(struct journal_op *op, int rc, const char *why)
{
	struct durable_op *o = (struct durable_op *)op;
	o->jobs->written(o->jobs->user, o->id, true, rc, why);
	op_free(o);
}

static void on_end_held(struct journal_op *op, int rc, const char *why)
{
	struct durable_op *o = (struct durable_op *)op;
	(void)rc;
	o->jobs->written(o->jobs->user, o->id, true, -EAGAIN, why);
}

static struct durable_op *op_new(struct jobs *j, const struct job *job,
				 int (*run)(struct journal_op *, struct journal_db *))
{
	struct durable_op *o = xcalloc(1, sizeof *o);
	o->op.run = run;
	o->op.done = on_done;
	o->op.required = true;
	o->jobs = j;
	if (job) {
		memcpy(o->id, job->id, sizeof o->id);
		o->number = job->number;
	}
	return o;
}

static void op_put(struct jobs *j, struct durable_op *o)
{
	o->op.bytes = sizeof *o + o->bytes.cap + o->trace.cap + o->n_saved * sizeof *o->saved;
	journal_put(j->journal, &o->op);
}

static int put_row(struct journal_db *db, uint64_t number, int64_t output, int64_t first, const void *p,
		   size_t n)
{
	return journal_run(db, "INSERT INTO tokens(job, output, first, data) VALUES(?, ?, ?, ?)",
			   JOURNAL_VALUES(journal_int((int64_t)number), journal_int(output),
					  journal_int(first), journal_blob(p, n)));
}

static int delete_rows(struct journal_db *db, uint64_t number)
{
	return journal_run(db, "DELETE FROM tokens WHERE job = ?",
			   JOURNAL_VALUES(journal_int((int64_t)number)));
}

static int run_accept(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	int rc = journal_run(db,
			     "INSERT INTO jobs(n, id, owner, key, body, accepted_at, request, model, state) "
			     "VALUES(?, ?, ?, ?, ?, ?, ?, ?, 0)",
			     JOURNAL_VALUES(journal_int((int64_t)o->number), journal_text(o->id),
					    journal_text(o->owner ? o->owner : ""), journal_text(o->key),
					    journal_blob(o->body, sizeof o->body), journal_int(o->unix_us),
					    journal_blob(o->bytes.p, o->bytes.len), journal_text(o->model)));
	return rc || !o->trace.len ? rc
				   : put_row(db, o->number, OF_THE_JOB, JOB_TRACE, o->trace.p, o->trace.len);
}

static int run_save(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	int rc = SQLITE_OK;
	for (uint32_t i = 0; !rc && i < o->n_saved; i++) {
		const struct saved *v = &o->saved[i];
		rc = put_row(db, v->number, v->output, v->first, o->bytes.p + v->at, v->n);
	}
	return rc;
}

static int run_cancel(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	return journal_run(db, "UPDATE jobs SET cancelled = 1 WHERE n = ?",
			   JOURNAL_VALUES(journal_int((int64_t)o->number)));
}

static int run_retract(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	int rc = journal_run(db, "DELETE FROM jobs WHERE n = ?",
			     JOURNAL_VALUES(journal_int((int64_t)o->number)));
	return rc ? rc : delete_rows(db, o->number);
}

static int run_end(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	/* Only the first end counts. */
	int rc = journal_run(
		db, "UPDATE jobs SET state = 1, finished_at = ?, end = ?, row = ? WHERE n = ? AND state = 0",
		JOURNAL_VALUES(journal_int(o->unix_us), journal_blob(o->bytes.p, o->bytes.len),
			       journal_text(o->row), journal_int((int64_t)o->number)));
	return rc ? rc : delete_rows(db, o->number);
}

static int run_sweep(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	return journal_run(db,
			   "DELETE FROM jobs WHERE n IN (SELECT n FROM jobs WHERE state = 1 AND finished_at "
			   "< ? ORDER BY finished_at LIMIT ?)",
			   JOURNAL_VALUES(journal_int(o->unix_us), journal_int(o->limit)));
}

/* --- operations of other modules --- */

/* '0' follows '/' in ASCII. */
#define UNFINISHED_BELOW "owner = ?1 AND key >= ?2 || '/' AND key < ?2 || '0' AND state = 0"

int jobs_rows_cancel(struct journal_db *db, const char *owner, const char *prefix)
{
	return journal_run(db, "UPDATE jobs SET cancelled = 1 WHERE " UNFINISHED_BELOW,
			   JOURNAL_VALUES(journal_text(owner), journal_text(prefix)));
}

int jobs_rows_delete(struct journal_db *db, const char *owner, const char *key)
{
	return journal_run(db, "DELETE FROM jobs WHERE owner = ? AND key = ? AND state = 1",
			   JOURNAL_VALUES(journal_text(owner), journal_text(key)));
}

void jobs_rows_each_unfinished(struct journal_db *db, const char *owner, const char *prefix,
			       void (*job)(void *user, const char *id), void *user)
{
	sqlite3_stmt *s = journal_query(db, "SELECT id FROM jobs WHERE " UNFINISHED_BELOW,
					JOURNAL_VALUES(journal_text(owner), journal_text(prefix)));
	while (s && sqlite3_step(s) == SQLITE_ROW) {
		const char *id = (const char *)sqlite3_column_text(s, 0);
		job(user, id ? id : "");
	}
	sqlite3_reset(s);
}

/* --- a new job --- */

enum code durable_refuses(struct jobs *j, struct why *why)
{
	struct why reason;
	struct journal_stats st;
	if (!j->journal) {
		err_why(why, 0, "durable: this service keeps no journal; start it with --journal FILE");
		return E_BAD_REQUEST;
	}
	if (!journal_health(j->journal, &reason)) {
		err_why(why, 0, "durable: %s", reason.text);
		return E_INTERNAL;
	}
	if (jobs_unread(j, &reason)) {
		err_why(why, 0, "durable: %s", reason.text);
		return E_NOT_READY;
	}
	journal_stats(j->journal, &st);
	/* The sweep keeps the journal at journal_bytes; at a quarter more it has only unfinished jobs
	 * left. */
	if (st.file_bytes - st.free_bytes > j->svc->journal_bytes / 4 * 5) {
		err_why(why, 0, "durable: the journal is full (--journal-bytes)");
		return E_OVERLOADED;
	}
	if (journal_room(j->journal, JOURNAL_JOB, 0, &reason)) {
		err_why(why, 0, "durable: %s", reason.text);
		return E_OVERLOADED;
	}
	return CODE_OK;
}

void durable_name(char *out, size_t n, const char *what, const struct job *job)
{
	snprintf(out, n, "%s %s", what, job->id);
}

void durable_begin(struct job *job, const struct submit *s, int64_t now)
{
	char name[64];
	job->keep = true;
	job->disk.n_saved = xcalloc(job->n_outputs, sizeof *job->disk.n_saved);
	/* Names and stop strings have moved to the job. */
	struct submit whole = *s;
	whole.user = job->user;
	whole.key = job->key;
	whole.cache_salt = job->cache_salt;
	whole.stop = job->stop;
	whole.n_stop = job->n_stop;
	whole.late_stop_ids = (uint32_t *)job->rules.late_stop_ids;
	record_put_request(&job->disk.request, &whole, now, job->times.accepted_unix_us);
	durable_name(name, sizeof name, "request", job);
	record_seal(&job->disk.request, name);
}

void durable_accept(struct jobs *j, struct job *job)
{
	struct durable_op *o = op_new(j, job, run_accept);
	job->disk.pending = true;
	o->op.done = on_accept_done;
	o->op.required = false;
	o->op.need = JOURNAL_JOB;
	o->key = job->key ? xstrdup(job->key) : NULL;
	o->owner = job->owner ? xstrdup(job->owner) : NULL;
	o->model = j->svc->model_name;
	memcpy(o->body, job->disk.body, sizeof o->body);
	o->unix_us = job->times.accepted_unix_us;
	o->bytes = job->disk.request;
	job->disk.request = (struct buf){0};
	if (job->trace.set) {
		char name[64];
		record_put_trace(&o->trace, &job->trace);
		durable_name(name, sizeof name, "trace", job);
		record_seal(&o->trace, name);
	}
	op_put(j, o);
}

void jobs_written(struct jobs *j, const char *id, bool end, int rc, const char *why, int64_t now)
{
	struct job *job = jobs_in_memory(j, id);
	if (!job)
		return;
	if (end) {
		job->disk.recorded = rc != -EAGAIN;
		if (job->disk.recording)
			jobs_conclude(j, job, now);
		return;
	}
	if (!job->disk.pending)
		return;
	job->disk.pending = false;
	if (rc) {
		char text[400];
		snprintf(text, sizeof text, "durable: %s", why);
		if (!job->disk.ended)
			j->send(j->user, jobs_command(ENGINE_CANCEL, job));
		jobs_refuse(j, job, rc == -EDQUOT ? E_OVERLOADED : E_INTERNAL, text);
		return;
	}
	jobs_accept(j, job);
	struct engine_event *e = job->disk.ended;
	job->disk.ended = NULL;
	if (e)
		jobs_on_end(j, job, e, now);
	engine_event_free(e);
}

void durable_cancel(struct jobs *j, struct job *job)
{
	op_put(j, op_new(j, job, run_cancel));
}

void durable_retract(struct jobs *j, struct job *job)
{
	op_put(j, op_new(j, job, run_retract));
}

/* --- tokens --- */

void durable_mark(struct jobs *j, struct job *job, uint32_t n_tokens, int64_t now)
{
	if (job->disk.restarts)
		return;
	j->n_unsaved_tokens += n_tokens;
	if (j->save_us == INT64_MAX)
		j->save_us = now + SAVE_US;
	if (!job->disk.unsaved) {
		job->disk.unsaved = true;
		array_grow(j->unsaved, j->unsaved_cap, j->n_unsaved + 1);
		j->unsaved[j->n_unsaved++] = job;
	}
}

void durable_class(struct job *job, const char *reported)
{
	char numerics[NUMERICS_MAX], had[NUMERICS_MAX];
	if (job->disk.restarts || !reported[0])
		return;
	numerics_of_output(job->has_constraint, reported, numerics, sizeof numerics);
	numerics_of_output(job->has_constraint, job->disk.numerics ? job->disk.numerics : "", had,
			   sizeof had);
	if (numerics_same(had, numerics))
		return;
	job->class_changed = job->class_changed || job->disk.numerics;
	free(job->disk.numerics);
	job->disk.numerics =
		xstrdup(reported); /* all of it, because older controllers compare the whole class */
	job->disk.numerics_unsaved = true;
}

static struct saved *add_row(struct durable_op *o, const struct job *job, struct buf *b)
{
	array_grow(o->saved, o->saved_cap, o->n_saved + 1);
	struct saved *v = &o->saved[o->n_saved++];
	*v = (struct saved){.number = job->number, .at = o->bytes.len, .n = b->len};
	buf_put(&o->bytes, b->p, b->len);
	buf_fini(b);
	return v;
}

/* Save the numerics class before the first tokens, in the same transaction; again when it changes. */
static void save_class(struct durable_op *o, struct job *job)
{
	char name[64];
	struct buf b = {0};
	if (!job->disk.numerics_unsaved)
		return;
	job->disk.numerics_unsaved = false;
	mp_put_array(&b, 2);
	mp_put_bool(&b, job->class_changed);
	mp_put_cstr(&b, job->disk.numerics);
	durable_name(name, sizeof name, "class", job);
	record_seal(&b, name);
	add_row(o, job, &b)->first = JOB_CLASS;
}

static void save_row(struct durable_op *o, const struct job *job, const struct output *out, int64_t first,
		     uint32_t to)
{
	char name[96];
	struct buf b = {0};
	if (first == OUTPUT_ENDED)
		record_put_output(&b, out, &job->rules);
	else
		record_put_tokens(&b, &out->log, (uint32_t)first, to, job->rules.mirostat ? &out->mu : NULL);
	snprintf(name, sizeof name, "tokens %s %u %" PRId64, job->id, out->index, first);
	record_seal(&b, name);
	struct saved *v = add_row(o, job, &b);
	v->output = out->index;
	v->first = first;
}

static void save_output(struct durable_op *o, struct job *job, const struct output *out)
{
	uint32_t *n_saved = &job->disk.n_saved[out->index];
	if (*n_saved == SEQ_OVER)
		return;
	if (out->finish != FINISH_NONE) {
		save_row(o, job, out, OUTPUT_ENDED, 0);
		*n_saved = SEQ_OVER;
		return;
	}
	/* A stop token is saved with the end of its output. */
	uint32_t to = out->log.n - out->at_stop;
	if (to <= *n_saved)
		return;
	save_row(o, job, out, *n_saved, to);
	*n_saved = to;
}

void jobs_save(struct jobs *j)
{
	if (!j->n_unsaved)
		return;
	j->save_us = INT64_MAX;
	/* Lost tokens can be computed again, so they are not queued for a slow or failing disk. */
	if (!journal_takes(j->journal)) {
		j->save_us = clock_us() + SAVE_US;
		j->n_unsaved_tokens = 0; /* so that their number does not trigger a save before save_us */
		return;
	}
	struct durable_op *o = op_new(j, NULL, run_save);
	for (uint32_t i = 0; i < j->n_unsaved; i++) {
		struct job *job = j->unsaved[i];
		if (!job)
			continue;
		job->disk.unsaved = false;
		if (job->state != JOB_RUNNING) {
			/* The job is not in the journal yet: these tokens are saved with its next tokens. */
			continue;
		}
		save_class(o, job);
		for (uint32_t k = 0; k < job->n_outputs; k++)
			save_output(o, job, &job->outputs[k]);
	}
	j->n_unsaved = j->n_unsaved_tokens = 0;
	if (o->n_saved)
		op_put(j, o);
	else
		op_free(o);
}

int64_t jobs_save_at(const struct jobs *j)
{
	return j->n_unsaved_tokens >= SAVE_TOKENS ? 0 : j->save_us;
}

void durable_forget(struct jobs *j, struct job *job)
{
	for (uint32_t i = 0; job->disk.unsaved && i < j->n_unsaved; i++)
		if (j->unsaved[i] == job)
			j->unsaved[i] = NULL;
	job->disk.unsaved = false;
}

/* --- the end --- */

static void put_end(struct buf *b, const struct job *job)
{
	mp_put_array(b, END_FIELDS + job->n_outputs);
	mp_put_uint(b, END_VERSION);
	mp_put_bool(b, job->state == JOB_FAILED);
	mp_put_uint(b, job->result.code);
	mp_put_cstr(b, job->result.why);
	mp_put_uint(b, job->result.completion_tokens);
	mp_put_uint(b, job->result.cached_tokens);
	mp_put_int(b, job->result.queued_us);
	mp_put_int(b, job->result.first_token_us);
	mp_put_int(b, job->result.total_us);
	mp_put_bool(b, job->cancelled);
	mp_put_bool(b, job->class_changed);
	mp_put_bool(b, job->has_prompt_log);
	record_put_tokens(b, &job->prompt_log, 0, job->has_prompt_log ? job->prompt_log.n : 0, NULL);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		record_put_output(b, &job->outputs[i], &job->rules);
}

void durable_end(struct jobs *j, struct job *job, int64_t now)
{
	struct why why;
	char name[64];
	struct durable_op *o = op_new(j, job, run_end);
	json_t *row = jobs_row(job, now);
	job->disk.recording = journal_health(j->journal, &why);
	o->op.done = on_end_done;
	o->op.held = on_end_held;
	o->unix_us = clock_unix_us();
	put_end(&o->bytes, job);
	durable_name(name, sizeof name, "end", job);
	record_seal(&o->bytes, name);
	o->row = json_dumps(row, JSON_COMPACT);
	json_decref(row);
	op_put(j, o);
}

void durable_sweep(struct jobs *j, int64_t now)
{
	struct journal_stats st;
	/* Also while the disk is full: a sweep makes room. */
	if (now < j->sweep_us || !j->reader)
		return;
	j->sweep_us = now + SWEEP_US;
	journal_stats(j->journal, &st);
	struct durable_op *o = op_new(j, NULL, run_sweep);
	o->op.required = false;
	o->op.frees = true;
	o->op.done = on_sweep_done;
	o->limit = SWEEP_ROWS;
	/* Delete expired jobs; if the file is too large, the oldest of any age. */
	bool full = st.file_bytes - st.free_bytes > j->svc->journal_bytes;
	o->unix_us = full ? INT64_MAX : clock_unix_us() - j->svc->keep_durable_us;
	if (full)
		j->sweep_us = now + SWEEP_US / 10;
	op_put(j, o);
}
