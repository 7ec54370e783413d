/* jobs_durable.c - what the journal knows of jobs, and jobs out of the journal.
 *
 *   submit --engine accepts--> settling --on the disk--> RUNNING --end--> recording --on the disk--> finished
 *
 * Nobody is told of either before it is on the disk: a job that was said to be accepted is carried out, one
 * that was said to be done is done, whatever dies then.  Only a disk that fails does not hold back an end:
 * it is told, and goes to the journal when that writes again.
 *
 * A restart makes the unfinished ones again, from the request and the tokens that were saved, and
 * hands them to the engine as they are (a beam search begins anew, and finds the same): sampling is counted
 * by position, so that they go on with the very tokens they would have had.  Finished ones stay on the disk
 * and are read when somebody asks for them. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/jobs_impl.h"
#include "controller/journal.h"
#include "controller/record.h"
#include "proto/mp.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SAVE_US = 250 * 1000, /* tokens are this young when a crash loses them */
	SAVE_TOKENS = 4096,   /* or so few, of all jobs */
	SWEEP_US = 10 * 1000 * 1000,
	SWEEP_ROWS = 1000,
	END_VERSION = 1,
	END_FIELDS = 13,
	OUTPUT_ENDED = -1, /* tokens.first of an output that has ended */
	JOB_CLASS = -2,    /* and of what is no tokens, but the numerics class of those that follow */
};

/* --- operations --- */

/* One row of tokens. */
struct saved {
	uint64_t number;
	uint32_t output;
	int64_t first;
	size_t at, n; /* of the operation's bytes */
};

struct durable_op {
	struct journal_op op; /* first: it is handed over as this */
	struct jobs *jobs;    /* only settled and user are read, which never change */
	char id[JOBS_ID_SIZE];
	uint64_t number;
	char *key, *owner; /* owned or NULL */
	uint8_t body[16];
	int64_t unix_us, limit;
	struct buf bytes; /* a record, or rows of tokens */
	char *row;        /* owned */
	struct saved *saved;
	uint32_t n_saved, saved_cap;
};

static void op_free(struct durable_op *o)
{
	free(o->key);
	free(o->owner);
	buf_fini(&o->bytes);
	free(o->row);
	free(o->saved);
	free(o);
}

static void on_done(struct journal_op *op, int rc, const char *why)
{
	(void)why;
	if (rc)
		log_warn("jobs", "not in the journal: %s", why);
	op_free((struct durable_op *)op);
}

static void on_accept_done(struct journal_op *op, int rc, const char *why)
{
	struct durable_op *o = (struct durable_op *)op;
	o->jobs->settled(o->jobs->user, o->id, false, rc, why);
	op_free(o);
}

static void on_end_done(struct journal_op *op, int rc, const char *why)
{
	struct durable_op *o = (struct durable_op *)op;
	o->jobs->settled(o->jobs->user, o->id, true, rc, why);
	op_free(o);
}

static void on_end_held(struct journal_op *op, int rc, const char *why)
{
	struct durable_op *o = (struct durable_op *)op;
	(void)rc;
	o->jobs->settled(o->jobs->user, o->id, true, -EAGAIN, why);
}

static struct durable_op *op_new(struct jobs *j, const struct job *job,
				 int (*run)(struct journal_op *, struct journal_db *))
{
	struct durable_op *o = xcalloc(1, sizeof *o);
	o->op.run = run;
	o->op.done = on_done;
	o->op.must = true;
	o->jobs = j;
	if (job) {
		memcpy(o->id, job->id, sizeof o->id);
		o->number = job->number;
	}
	return o;
}

static void op_put(struct jobs *j, struct durable_op *o)
{
	o->op.bytes = sizeof *o + o->bytes.cap + o->n_saved * sizeof *o->saved;
	journal_put(j->journal, &o->op);
}

static int step(sqlite3_stmt *s)
{
	int rc = sqlite3_step(s);
	sqlite3_reset(s);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int run_accept(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	sqlite3_stmt *s =
		journal_prepare(db, "INSERT INTO jobs(n, id, owner, key, body, accepted_at, request, "
				    "state) VALUES(?, ?, ?, ?, ?, ?, ?, 0)");
	if (!s)
		return sqlite3_errcode(journal_sqlite(db));
	sqlite3_bind_int64(s, 1, (sqlite3_int64)o->number);
	sqlite3_bind_text(s, 2, o->id, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 3, o->owner ? o->owner : "", -1, SQLITE_STATIC);
	if (o->key)
		sqlite3_bind_text(s, 4, o->key, -1, SQLITE_STATIC);
	sqlite3_bind_blob(s, 5, o->body, sizeof o->body, SQLITE_STATIC);
	sqlite3_bind_int64(s, 6, o->unix_us);
	sqlite3_bind_blob64(s, 7, o->bytes.p, o->bytes.len, SQLITE_STATIC);
	return step(s);
}

static int run_save(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	sqlite3_stmt *s =
		journal_prepare(db, "INSERT INTO tokens(job, output, first, data) VALUES(?, ?, ?, ?)");
	int rc = s ? SQLITE_OK : sqlite3_errcode(journal_sqlite(db));
	for (uint32_t i = 0; !rc && i < o->n_saved; i++) {
		const struct saved *v = &o->saved[i];
		sqlite3_bind_int64(s, 1, (sqlite3_int64)v->number);
		sqlite3_bind_int64(s, 2, v->output);
		sqlite3_bind_int64(s, 3, v->first);
		sqlite3_bind_blob64(s, 4, o->bytes.p + v->at, v->n, SQLITE_STATIC);
		rc = step(s);
	}
	return rc;
}

static int run_cancel(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	sqlite3_stmt *s = journal_prepare(db, "UPDATE jobs SET cancelled = 1 WHERE n = ?");
	if (!s)
		return sqlite3_errcode(journal_sqlite(db));
	sqlite3_bind_int64(s, 1, (sqlite3_int64)o->number);
	return step(s);
}

static int run_retract(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	sqlite3_stmt *s = journal_prepare(db, "DELETE FROM jobs WHERE n = ?");
	if (!s)
		return sqlite3_errcode(journal_sqlite(db));
	sqlite3_bind_int64(s, 1, (sqlite3_int64)o->number);
	return step(s);
}

static int delete_tokens(struct journal_db *db, uint64_t number)
{
	sqlite3_stmt *s = journal_prepare(db, "DELETE FROM tokens WHERE job = ?");
	if (!s)
		return sqlite3_errcode(journal_sqlite(db));
	sqlite3_bind_int64(s, 1, (sqlite3_int64)number);
	return step(s);
}

static int run_end(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	/* One that has ended once keeps its end. */
	sqlite3_stmt *s = journal_prepare(db, "UPDATE jobs SET state = 1, finished_at = ?, end = ?, row = ? "
					      "WHERE n = ? AND state = 0");
	if (!s)
		return sqlite3_errcode(journal_sqlite(db));
	sqlite3_bind_int64(s, 1, o->unix_us);
	sqlite3_bind_blob64(s, 2, o->bytes.p, o->bytes.len, SQLITE_STATIC);
	sqlite3_bind_text(s, 3, o->row, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 4, (sqlite3_int64)o->number);
	int rc = step(s);
	return rc ? rc : delete_tokens(db, o->number);
}

static int run_sweep(struct journal_op *op, struct journal_db *db)
{
	struct durable_op *o = (struct durable_op *)op;
	sqlite3_stmt *s =
		journal_prepare(db, "DELETE FROM jobs WHERE n IN (SELECT n FROM jobs WHERE state = 1 "
				    "AND finished_at < ? ORDER BY finished_at LIMIT ?)");
	if (!s)
		return sqlite3_errcode(journal_sqlite(db));
	sqlite3_bind_int64(s, 1, o->unix_us);
	sqlite3_bind_int64(s, 2, o->limit);
	return step(s);
}

/* --- a new job --- */

enum code durable_refuses(struct jobs *j, char *why, size_t why_n)
{
	char reason[320];
	struct journal_stats st;
	if (!j->journal) {
		snprintf(why, why_n, "durable: this service keeps no journal; start it with --journal FILE");
		return E_BAD_REQUEST;
	}
	if (!journal_health(j->journal, reason, sizeof reason)) {
		snprintf(why, why_n, "durable: %s", reason);
		return E_INTERNAL;
	}
	journal_stats(j->journal, &st);
	/* A quarter above what the sweep keeps it at: only unfinished jobs are left in it then. */
	if (st.file_bytes - st.free_bytes > j->svc->journal_bytes / 4 * 5) {
		snprintf(why, why_n, "durable: the journal is full (--journal-bytes)");
		return E_OVERLOADED;
	}
	return CODE_OK;
}

static void whose(char *out, size_t n, const char *what, const struct job *job)
{
	snprintf(out, n, "%s %s", what, job->id);
}

void durable_begin(struct job *job, const struct submit *s, int64_t now)
{
	char name[64];
	job->keep = true;
	job->accepted_unix_us = clock_unix_us();
	job->n_saved = xcalloc(job->n_outputs, sizeof *job->n_saved);
	/* The names have moved to the job. */
	struct submit whole = *s;
	whole.user = job->user;
	whole.key = job->key;
	whole.cache_salt = job->cache_salt;
	whole.stop = job->stop;
	whole.n_stop = job->n_stop;
	record_put_request(&job->request, &whole, now, job->accepted_unix_us);
	whose(name, sizeof name, "request", job);
	record_seal(&job->request, name);
}

void durable_accept(struct jobs *j, struct job *job)
{
	struct durable_op *o = op_new(j, job, run_accept);
	job->settling = true;
	o->op.done = on_accept_done;
	o->op.must = false;
	o->key = job->key ? xstrdup(job->key) : NULL;
	o->owner = job->owner ? xstrdup(job->owner) : NULL;
	memcpy(o->body, job->body, sizeof o->body);
	o->unix_us = job->accepted_unix_us;
	o->bytes = job->request;
	job->request = (struct buf){0};
	op_put(j, o);
}

/* In memory only. */
static struct job *find(struct jobs *j, const char *id)
{
	struct job *job = map_get(&j->by_id, job_id_key(id));
	return job && strcmp(job->id, id) == 0 ? job : NULL;
}

void jobs_settled(struct jobs *j, const char *id, bool end, int rc, const char *why, int64_t now)
{
	struct job *job = find(j, id);
	if (!job)
		return;
	if (end) {
		job->recorded = rc != -EAGAIN;
		if (job->recording)
			jobs_told(j, job, now);
		return;
	}
	if (!job->settling)
		return;
	job->settling = false;
	if (rc) {
		char text[400];
		snprintf(text, sizeof text, "durable: %s", why);
		if (!job->ended)
			j->send(j->user, jobs_command(ENGINE_CANCEL, job));
		jobs_refuse(j, job, E_INTERNAL, text);
		return;
	}
	jobs_accept(j, job);
	struct engine_event *e = job->ended;
	job->ended = NULL;
	if (e)
		jobs_end_of(j, job, e, now);
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
	if (job->anew)
		return;
	j->n_unsaved_tokens += n_tokens;
	if (j->save_us == INT64_MAX)
		j->save_us = now + SAVE_US;
	if (!job->unsaved) {
		job->unsaved = true;
		if (j->n_unsaved == j->unsaved_cap) {
			j->unsaved_cap = j->unsaved_cap ? j->unsaved_cap * 2 : 64;
			j->unsaved = xrealloc(j->unsaved, j->unsaved_cap, sizeof(struct job *));
		}
		j->unsaved[j->n_unsaved++] = job;
	}
}

void durable_class(struct job *job, const char *numerics)
{
	if (job->anew || !numerics[0] || (job->numerics && strcmp(job->numerics, numerics) == 0))
		return;
	job->class_changed = job->class_changed || job->numerics;
	free(job->numerics);
	job->numerics = xstrdup(numerics);
	job->numerics_unsaved = true;
}

static struct saved *add_row(struct durable_op *o, const struct job *job, struct buf *b)
{
	if (o->n_saved == o->saved_cap) {
		o->saved_cap = o->saved_cap ? o->saved_cap * 2 : 64;
		o->saved = xrealloc(o->saved, o->saved_cap, sizeof *o->saved);
	}
	struct saved *v = &o->saved[o->n_saved++];
	*v = (struct saved){.number = job->number, .at = o->bytes.len, .n = b->len};
	buf_put(&o->bytes, b->p, b->len);
	buf_fini(b);
	return v;
}

/* Before the first tokens, within the same transaction; again when it changes. */
static void save_class(struct durable_op *o, struct job *job)
{
	char name[64];
	struct buf b = {0};
	if (!job->numerics_unsaved)
		return;
	job->numerics_unsaved = false;
	mp_put_array(&b, 2);
	mp_put_bool(&b, job->class_changed);
	mp_put_cstr(&b, job->numerics);
	whose(name, sizeof name, "class", job);
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
		record_put_tokens(&b, &out->log, (uint32_t)first, to);
	snprintf(name, sizeof name, "tokens %s %u %" PRId64, job->id, out->index, first);
	record_seal(&b, name);
	struct saved *v = add_row(o, job, &b);
	v->output = out->index;
	v->first = first;
}

static void save_output(struct durable_op *o, struct job *job, const struct output *out)
{
	uint32_t *n_saved = &job->n_saved[out->index];
	if (*n_saved == SEQ_OVER)
		return;
	if (out->finish != FINISH_NONE) {
		save_row(o, job, out, OUTPUT_ENDED, 0);
		*n_saved = SEQ_OVER;
		return;
	}
	/* One that ends its output goes with the output. */
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
	/* Tokens that are lost are computed again: they need not wait in memory for the disk. */
	if (!journal_takes(j->journal)) {
		j->save_us = clock_us() + SAVE_US;
		return;
	}
	struct durable_op *o = op_new(j, NULL, run_save);
	for (uint32_t i = 0; i < j->n_unsaved; i++) {
		struct job *job = j->unsaved[i];
		if (!job)
			continue;
		job->unsaved = false;
		if (job->state != JOB_RUNNING) {
			/* Not there yet: what it has comes with its next tokens. */
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
	for (uint32_t i = 0; job->unsaved && i < j->n_unsaved; i++)
		if (j->unsaved[i] == job)
			j->unsaved[i] = NULL;
	job->unsaved = false;
}

/* --- the end --- */

static void put_end(struct buf *b, const struct job *job)
{
	mp_put_array(b, END_FIELDS + job->n_outputs);
	mp_put_uint(b, END_VERSION);
	mp_put_bool(b, job->state == JOB_FAILED);
	mp_put_uint(b, job->code);
	mp_put_cstr(b, job->why);
	mp_put_uint(b, job->completion_tokens);
	mp_put_uint(b, job->cached_tokens);
	mp_put_int(b, job->queued_us);
	mp_put_int(b, job->first_token_us);
	mp_put_int(b, job->total_us);
	mp_put_bool(b, job->cancelled);
	mp_put_bool(b, job->class_changed);
	mp_put_bool(b, job->has_prompt_log);
	record_put_tokens(b, &job->prompt_log, 0, job->has_prompt_log ? job->prompt_log.n : 0);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		record_put_output(b, &job->outputs[i], &job->rules);
}

void durable_end(struct jobs *j, struct job *job, int64_t now)
{
	char name[64], why[256];
	struct durable_op *o = op_new(j, job, run_end);
	json_t *row = jobs_row(job, now);
	job->recording = journal_health(j->journal, why, sizeof why);
	o->op.done = on_end_done;
	o->op.held = on_end_held;
	o->unix_us = clock_unix_us();
	put_end(&o->bytes, job);
	whose(name, sizeof name, "end", job);
	record_seal(&o->bytes, name);
	o->row = json_dumps(row, JSON_COMPACT);
	json_decref(row);
	op_put(j, o);
}

static int get_end(struct job *job, const void *bytes, size_t n, char *why, size_t why_n)
{
	struct cursor c;
	struct record_tokens prompt;
	char name[64];
	whose(name, sizeof name, "end", job);
	int rc = record_open(&c, bytes, n, name, why, why_n);
	if (rc)
		return rc;
	/* Only the chosen ones are there. */
	while (job->n_outputs > job->n_told)
		output_fini(&job->outputs[--job->n_outputs]);
	uint32_t n_fields = cursor_array(&c, "end");
	if (cursor_uint(&c, "version", UINT32_MAX) != END_VERSION)
		return err_why(why, why_n, -EBADMSG, "%s: written by another version of quern", name);
	bool failed = cursor_bool(&c, "failed");
	job->code = (enum code)cursor_uint(&c, "code", E_INTERNAL);
	cursor_str(&c, "why", job->why, sizeof job->why);
	job->completion_tokens = (uint32_t)cursor_uint(&c, "completion_tokens", UINT32_MAX);
	job->cached_tokens = (uint32_t)cursor_uint(&c, "cached_tokens", UINT32_MAX);
	job->queued_us = cursor_int(&c, "queued_us", INT64_MIN, INT64_MAX);
	job->first_token_us = cursor_int(&c, "first_token_us", INT64_MIN, INT64_MAX);
	job->total_us = cursor_int(&c, "total_us", INT64_MIN, INT64_MAX);
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
	rc = record_close(&c, why, why_n);
	if (!rc)
		job->state = failed ? JOB_FAILED : JOB_FINISHED;
	return rc;
}

/* --- out of the journal --- */

/* A job whose record cannot be read: there, and failed. */
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
	job->code = E_INTERNAL;
	snprintf(job->why, sizeof job->why, "its record in the journal cannot be used: %.180s", why);
	log_error("jobs", "job=%s %s", job->id, job->why);
}

/* Columns: n, id, key, accepted_at, request; the last one: owner.  *request: what it asked for, the caller's; NULL: it
 * cannot be read, job->why says why. */
static struct job *job_of_row(struct jobs *j, sqlite3_stmt *row, int64_t now, struct submit **request)
{
	char why[256] = "", name[64];
	struct cursor c;
	struct submit *s = NULL;
	int64_t unix_us = clock_unix_us();
	const char *id = (const char *)sqlite3_column_text(row, 1);
	if (!id || strlen(id) != JOBS_ID_SIZE - 1 || strspn(id, "0123456789abcdef") != JOBS_ID_SIZE - 1 ||
	    find(j, id)) {
		log_error("jobs", "the journal has a job without a valid id");
		return NULL;
	}
	snprintf(name, sizeof name, "request %s", id);
	const void *bytes = sqlite3_column_blob(row, 4);
	int rc = record_open(&c, bytes ? bytes : "", (size_t)sqlite3_column_bytes(row, 4), name, why,
			     sizeof why);
	if (!rc)
		rc = record_get_request(&c, (uint32_t)j->svc->config->n_vocab, now, unix_us, &s, why,
					sizeof why);
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
	job->resumed = true;
	job->keep = true;
	job->accepted_unix_us = sqlite3_column_int64(row, 3);
	job->submitted_us = now - (unix_us - job->accepted_unix_us);
	job->n_saved = xcalloc(job->n_outputs, sizeof *job->n_saved);
	if (rc) {
		damaged(job, why);
		submit_free(s);
		s = NULL;
	}
	*request = s;
	return job;
}

static bool take_tokens(struct job *job, struct output *o, int64_t first, const void *bytes, size_t n)
{
	char name[96], why[256];
	struct cursor c;
	snprintf(name, sizeof name, "tokens %s %u %" PRId64, job->id, o->index, first);
	int rc = record_open(&c, bytes, n, name, why, sizeof why);
	if (!rc && first == OUTPUT_ENDED) {
		/* It has the whole of it. */
		uint32_t index = o->index;
		output_fini(o);
		output_init(o, index, &job->rules);
		record_get_output(&c, o, &job->rules, job->n_stop);
		rc = record_close(&c, why, sizeof why);
		job->n_saved[index] = o->finish == FINISH_NONE ? 0 : SEQ_OVER;
	} else if (!rc && first == o->log.n) {
		struct record_tokens t;
		record_get_tokens(&c, &t);
		rc = record_close(&c, why, sizeof why);
		for (uint32_t i = 0; !rc && i < t.n; i++)
			output_push(o, &job->rules, &t.tokens[i], t.top_ids, t.top_logprobs);
		record_tokens_fini(&t);
		job->n_saved[o->index] = o->log.n;
	}
	if (rc)
		log_warn("jobs", "job=%s goes on from token %u: %s", job->id, o->log.n, why);
	return !rc;
}

/* One that cannot be read leaves the job free to go on anywhere, as if it had never been known. */
static void take_class(struct job *job, const void *bytes, size_t n)
{
	char name[64], why[256], numerics[256] = "";
	struct cursor c;
	whose(name, sizeof name, "class", job);
	int rc = record_open(&c, bytes, n, name, why, sizeof why);
	if (!rc) {
		if (cursor_array(&c, "class") != 2)
			cursor_fail(&c, "class: the wrong number of fields");
		bool changed = cursor_bool(&c, "changed");
		cursor_str(&c, "numerics", numerics, sizeof numerics);
		rc = record_close(&c, why, sizeof why);
		job->class_changed = !rc && changed;
	}
	free(job->numerics);
	job->numerics = rc || !numerics[0] ? NULL : xstrdup(numerics);
	if (rc)
		log_warn("jobs", "job=%s may go on in another numerics class: %s", job->id, why);
}

/* What was saved of its outputs; what cannot be read is computed again. */
static int load_tokens(struct jobs *j, struct job *job, int64_t now)
{
	sqlite3_stmt *s = journal_prepare(j->reader, "SELECT output, first, data FROM tokens WHERE job = ? "
						     "ORDER BY rowid");
	int rc;
	if (!s)
		return sqlite3_errcode(journal_sqlite(j->reader));
	sqlite3_bind_int64(s, 1, (sqlite3_int64)job->number);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		int64_t index = sqlite3_column_int64(s, 0), first = sqlite3_column_int64(s, 1);
		const void *data = sqlite3_column_blob(s, 2);
		if (first == JOB_CLASS)
			take_class(job, data ? data : "", (size_t)sqlite3_column_bytes(s, 2));
		if (first == JOB_CLASS || index < 0 || index >= job->n_outputs || job->outputs[index].finish != FINISH_NONE)
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
	if (job->anew)
		return;
	c->n_had = xcalloc(job->n_outputs, sizeof *c->n_had);
	for (uint32_t i = 0; i < job->n_outputs; i++)
		n += job->outputs[i].log.n;
	c->had = xcalloc(n ? n : 1, sizeof *c->had);
	if (!n) { /* it has not begun: any class will do */
		free(job->numerics);
		job->numerics = NULL;
		job->class_changed = false;
	}
	c->numerics = job->numerics ? xstrdup(job->numerics) : NULL;
	n = 0;
	for (uint32_t i = 0; i < job->n_outputs; i++) {
		const struct output *o = &job->outputs[i];
		c->n_had[i] = o->finish == FINISH_NONE ? o->log.n : SEQ_OVER;
		if (o->finish != FINISH_NONE || !o->log.n)
			continue;
		memcpy(c->had + n, o->log.token, o->log.n * sizeof *c->had);
		n += o->log.n;
	}
}

/* An unfinished job goes on, or ends at once. */
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

/* The unfinished ones, in the order in which they were accepted. */
static int resume_all(struct jobs *j, int64_t now)
{
	sqlite3_stmt *s =
		journal_prepare(j->reader, "SELECT n, id, key, accepted_at, request, cancelled, owner FROM jobs "
					   "WHERE state = 0 ORDER BY n");
	int rc;
	if (!s)
		return sqlite3_errcode(journal_sqlite(j->reader));
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

int jobs_recover(struct jobs *j, struct journal *journal,
		 void (*settled)(void *user, const char *id, bool end, int rc, const char *why), int64_t now,
		 char *why, size_t why_n)
{
	assert(!j->journal && j->unfinished.n == 0);
	int rc = journal_reader(journal, &j->reader, why, why_n);
	if (rc)
		return rc;
	j->journal = journal;
	j->settled = settled;
	sqlite3_stmt *s = journal_prepare(j->reader, "SELECT max(n) FROM jobs");
	rc = s ? sqlite3_step(s) : sqlite3_errcode(journal_sqlite(j->reader));
	if (rc == SQLITE_ROW) {
		j->last_number = (uint64_t)sqlite3_column_int64(s, 0);
		sqlite3_reset(s);
		rc = resume_all(j, now);
	}
	if (rc)
		return err_why(why, why_n, -EIO, "journal %s: %s", journal_path(journal),
			       sqlite3_errmsg(journal_sqlite(j->reader)));
	if (j->unfinished.n)
		log_info("jobs", "go on from the journal n=%u", j->unfinished.n);
	return 0;
}

/* A finished job in memory again; row: as job_of_row(), before its last one end, finished_at. */
static struct job *load_finished(struct jobs *j, sqlite3_stmt *row)
{
	char why[256];
	struct submit *s;
	int64_t now = clock_us();
	struct job *job = job_of_row(j, row, now, &s);
	if (!job)
		return NULL;
	const void *end = sqlite3_column_blob(row, 5);
	if (s && get_end(job, end ? end : "", (size_t)sqlite3_column_bytes(row, 5), why, sizeof why)) {
		damaged(job, why);
		job->state = JOB_FAILED;
	} else if (!s) {
		job->state = JOB_FAILED;
	}
	submit_free(s);
	job->recorded = true;
	jobs_file(j, job, now - (clock_unix_us() - sqlite3_column_int64(row, 6)));
	return job;
}

struct job *durable_find(struct jobs *j, const char *id)
{
	sqlite3_stmt *s =
		journal_prepare(j->reader, "SELECT n, id, key, accepted_at, request, end, finished_at, owner "
					   "FROM jobs WHERE id = ? AND state = 1");
	if (!s)
		return NULL;
	sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
	struct job *job = sqlite3_step(s) == SQLITE_ROW ? load_finished(j, s) : NULL;
	sqlite3_reset(s);
	return job;
}

struct job *durable_find_key(struct jobs *j, const char *key, const char *owner)
{
	sqlite3_stmt *s =
		journal_prepare(j->reader, "SELECT n, id, key, accepted_at, request, end, finished_at, owner "
					   "FROM jobs WHERE owner = ? AND key = ? AND state = 1");
	if (!s)
		return NULL;
	sqlite3_bind_text(s, 1, owner ? owner : "", -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 2, key, -1, SQLITE_STATIC);
	struct job *job = sqlite3_step(s) == SQLITE_ROW ? load_finished(j, s) : NULL;
	sqlite3_reset(s);
	return job;
}

void durable_table(const struct jobs *j, json_t *rows, const char *owner, size_t max)
{
	sqlite3_stmt *s = journal_prepare(j->reader, "SELECT id, row, accepted_at FROM jobs WHERE state = 1 AND owner = ? "
						     "ORDER BY finished_at DESC LIMIT ?");
	if (!s)
		return;
	int64_t unix_us = clock_unix_us();
	sqlite3_bind_text(s, 1, owner ? owner : "", -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 2, (sqlite3_int64)max);
	while (json_array_size(rows) < max && sqlite3_step(s) == SQLITE_ROW) {
		const char *id = (const char *)sqlite3_column_text(s, 0);
		const char *text = (const char *)sqlite3_column_text(s, 1);
		if (!id || !text || strlen(id) != JOBS_ID_SIZE - 1 || find((struct jobs *)j, id))
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

void durable_sweep(struct jobs *j, int64_t now)
{
	struct journal_stats st;
	if (now < j->sweep_us || !journal_takes(j->journal))
		return;
	j->sweep_us = now + SWEEP_US;
	journal_stats(j->journal, &st);
	struct durable_op *o = op_new(j, NULL, run_sweep);
	o->op.must = false;
	o->limit = SWEEP_ROWS;
	/* Too old; when the file is too large, the oldest, whatever their age. */
	bool full = st.file_bytes - st.free_bytes > j->svc->journal_bytes;
	o->unix_us = full ? INT64_MAX : clock_unix_us() - j->svc->keep_durable_us;
	if (full)
		j->sweep_us = now + SWEEP_US / 10;
	op_put(j, o);
}
