/* openai_batch_store.c - batches in the journal, and the API's calls: create, get, list, cancel. */
#include "controller/endpoints/openai_batch_impl.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "controller/jobs/jobs.h"
#include "controller/message/submit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char batches_schema[] =
	/* state: 0 live, 1 ended. */
	"CREATE TABLE batches(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
	" state INTEGER NOT NULL, created_at INTEGER NOT NULL, object TEXT NOT NULL);"
	"CREATE INDEX batches_live ON batches(n) WHERE state = 0;"
	/* Results of a live batch's lines; failed: the result belongs in the error file. */
	"CREATE TABLE lines(batch INTEGER NOT NULL, line INTEGER NOT NULL, failed INTEGER NOT NULL,"
	" data BLOB NOT NULL, PRIMARY KEY(batch, line))";

enum { WINDOW_MAX_S = 30 * 86400, LIST_MAX = 100 };

/* --- operations --- */

struct openai_batch_op {
	struct journal_op op;
	struct batches *bs;
	struct openai_batch *batch; /* run_save: the batch that counts this operation in n_saving; otherwise
				     * NULL */
	int64_t n;
	char id[FILE_ID_SIZE + 16]; /* for a line: "batch/line" */
	char owner[FILE_OWNER_SIZE];
	char *object; /* owned */
	int64_t created_at;
	bool over, failed;
	uint32_t line;
	size_t n_jobs;
	struct buf data;
	void (*done)(void *user, int rc, const char *why);
	void *user;
};

static struct openai_batch_op *op_new(struct batches *bs, const char *owner,
				      int (*run)(struct journal_op *, struct journal_db *),
				      void (*done)(struct journal_op *, int, const char *))
{
	struct openai_batch_op *o = xcalloc(1, sizeof *o);
	o->op.run = run;
	o->op.done = done;
	o->op.required = true;
	o->bs = bs;
	snprintf(o->owner, sizeof o->owner, "%s", owner);
	return o;
}

static void op_free(struct openai_batch_op *o)
{
	free(o->object);
	buf_fini(&o->data);
	free(o);
}

static void op_put(struct openai_batch_op *o)
{
	o->op.bytes = sizeof *o + o->data.cap;
	journal_put(file_store_journal(o->bs->files), &o->op);
}

static void on_done(struct journal_op *op, int rc, const char *why)
{
	struct openai_batch_op *o = (struct openai_batch_op *)op;
	if (rc)
		log_warn("batch", "journal not written reason=\"%s\"", why);
	if (o->done)
		o->done(o->user, rc, why);
	op_free(o);
}

static int run_insert(struct journal_op *op, struct journal_db *db)
{
	struct openai_batch_op *o = (struct openai_batch_op *)op;
	return journal_run(db,
			   "INSERT INTO batches(n, id, owner, state, created_at, object) VALUES(?, ?, ?, 0, "
			   "?, ?)",
			   JOURNAL_VALUES(journal_int(o->n), journal_text(o->id), journal_text(o->owner),
					  journal_int(o->created_at), journal_text(o->object)));
}

/* Write the owner of a batch's jobs: "" or SUBMIT_API_KEY and the key's name. */
static void job_owner(const char *owner, char out[1 + FILE_OWNER_SIZE])
{
	out[0] = *owner ? SUBMIT_API_KEY : '\0';
	snprintf(out + 1, FILE_OWNER_SIZE, "%s", owner);
}

static int run_save(struct journal_op *op, struct journal_db *db)
{
	struct openai_batch_op *o = (struct openai_batch_op *)op;
	/* A cancelling client and the batch's thread may save concurrently: a batch that has ended stays
	 * ended. */
	int rc =
		journal_run(db, "UPDATE batches SET state = ?, object = ? WHERE n = ? AND state = 0",
			    JOURNAL_VALUES(journal_int(o->over), journal_text(o->object), journal_int(o->n)));
	if (rc || !o->over)
		return rc;
	rc = journal_run(db, "DELETE FROM lines WHERE batch = ?", JOURNAL_VALUES(journal_int(o->n)));
	if (rc)
		return rc;
	/* Its unfinished jobs have no reader, now or after a restart. */
	char owner[1 + FILE_OWNER_SIZE];
	job_owner(o->owner, owner);
	return jobs_rows_cancel(db, owner, o->id);
}

static int run_line(struct journal_op *op, struct journal_db *db)
{
	struct openai_batch_op *o = (struct openai_batch_op *)op;
	int rc = journal_run(db, "REPLACE INTO lines(batch, line, failed, data) VALUES(?, ?, ?, ?)",
			     JOURNAL_VALUES(journal_int(o->n), journal_int(o->line), journal_int(o->failed),
					    journal_blob(o->data.p, o->data.len)));
	char owner[1 + FILE_OWNER_SIZE];
	job_owner(o->owner, owner);
	/* The result has the output of all its jobs. */
	for (size_t i = 0; !rc && i < o->n_jobs; i++) {
		char key[GENERATION_KEY_SIZE];
		generation_job_key(key, o->id, o->n_jobs, i);
		rc = jobs_rows_delete(db, owner, key);
	}
	return rc;
}

int batches_with_input(struct journal_db *db, const char *file, char by[FILE_ID_SIZE])
{
	by[0] = 0;
	sqlite3_stmt *s = journal_query(db,
					"SELECT id FROM batches WHERE state = 0 AND json_valid(object) AND "
					"json_extract(object, '$.input_file_id') = ? LIMIT 1",
					JOURNAL_VALUES(journal_text(file)));
	if (!s)
		return journal_error(db);
	int rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		snprintf(by, FILE_ID_SIZE, "%s", (const char *)sqlite3_column_text(s, 0));
	sqlite3_reset(s);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* --- live batches --- */

void openai_batch_free(struct openai_batch *b)
{
	if (!b)
		return;
	free(b->lines);
	json_decref(b->object);
	free(b);
}

/* ---- terms of a key, in the record ---- */

static void put_terms(json_t *kept, const struct api_key_terms *t)
{
	json_object_set_new(kept, "_share", json_integer(t->share));
	json_object_set_new(kept, "_priority", json_pack("[i, i]", t->best, t->worst));
}

static void take_terms(const json_t *kept, struct api_key_terms *t)
{
	int best, worst;
	*t = API_KEY_NO_TERMS;
	t->share = (uint32_t)json_integer_value(json_object_get(kept, "_share"));
	t->share += !t->share;
	if (json_unpack(json_object_get(kept, "_priority"), "[i, i]", &best, &worst) == 0 && best <= worst) {
		t->best = best;
		t->worst = worst;
	}
}

/* ---- owners ---- */

struct batch_owner *openai_batch_owner(struct batches *bs, const char *name)
{
	struct batch_owner *o = bs->owners;
	while (o && strcmp(o->name, name) != 0)
		o = o->next;
	return o;
}

void openai_batch_begin(struct batches *bs, const char *owner)
{
	struct batch_owner *o = openai_batch_owner(bs, owner);
	if (!o) {
		o = xcalloc(1, sizeof *o);
		snprintf(o->name, sizeof o->name, "%s", owner);
		o->next = bs->owners;
		bs->owners = o;
	}
	o->n_live++;
	bs->n_live++;
}

void openai_batch_end(struct batches *bs, const char *owner)
{
	struct batch_owner **at = &bs->owners;
	while (strcmp((*at)->name, owner) != 0)
		at = &(*at)->next;
	bs->n_live--;
	if (--(*at)->n_live)
		return;
	struct batch_owner *gone = *at;
	*at = gone->next;
	free(gone);
}

/* Check the limits of live batches.  Under the lock. */
static bool may_begin(struct batches *bs, const char *name, struct why *why)
{
	const struct batch_owner *o = openai_batch_owner(bs, name);
	uint32_t its = o ? o->n_live : 0;
	uint32_t left = bs->n_live < OPENAI_BATCH_LIVE_MAX ? OPENAI_BATCH_LIVE_MAX - bs->n_live : 0;
	if (bs->stopping)
		err_why(why, 0, "the service ends");
	else if (!left)
		err_why(why, 0, "%u batches have not ended: create another when one has", bs->n_live);
	else if (*name && its && its + 1 > OPENAI_BATCH_LIVE_PART * (left - 1))
		err_why(why, 0,
			"%u batches of this key have not ended, which is its part of the %d of all keys: "
			"create another when one has",
			its, OPENAI_BATCH_LIVE_MAX);
	else
		return true;
	return false;
}

static void free_owners(struct batches *bs)
{
	struct batch_owner *o;
	while ((o = bs->owners)) {
		bs->owners = o->next;
		free(o);
	}
	bs->n_live = 0;
}

static void free_list(struct openai_batch **first)
{
	struct openai_batch *next;
	for (struct openai_batch *b = *first; b; b = next) {
		next = b->later;
		openai_batch_free(b);
	}
	*first = NULL;
}

void batches_free(struct batches *bs)
{
	free_owners(bs);
	free_list(&bs->first);
	free_list(&bs->fresh);
	journal_reader_close(bs->reader);
	pthread_cond_destroy(&bs->more);
	pthread_mutex_destroy(&bs->lock);
	free(bs);
}

void openai_batch_take_new(struct batches *bs)
{
	pthread_mutex_lock(&bs->lock);
	struct openai_batch **at = &bs->first;
	while (*at)
		at = &(*at)->later;
	*at = bs->fresh;
	bs->fresh = NULL;
	pthread_mutex_unlock(&bs->lock);
}

void openai_batch_set_counts(struct openai_batch *b)
{
	json_object_set_new(b->object, "request_counts",
			    json_pack("{s:I, s:I, s:I}", "total", (json_int_t)b->n_lines, "completed",
				      (json_int_t)(b->n_done - b->n_failed), "failed",
				      (json_int_t)b->n_failed));
}

static void on_saved(struct journal_op *op, int rc, const char *why)
{
	struct openai_batch_op *o = (struct openai_batch_op *)op;
	struct batches *bs = o->bs;
	if (rc)
		log_warn("batch", "journal not written batch=%s reason=\"%s\"", o->id, why);
	pthread_mutex_lock(&bs->lock);
	o->batch->n_saving--;
	bs->wake = true;
	pthread_cond_broadcast(&bs->more);
	pthread_mutex_unlock(&bs->lock);
	op_free(o);
}

void openai_batch_save(struct batches *bs, struct openai_batch *b, bool over)
{
	struct openai_batch_op *o = op_new(bs, b->owner, run_save, on_saved);
	o->batch = b;
	o->n = b->n;
	o->over = over;
	snprintf(o->id, sizeof o->id, "%s", b->id);
	pthread_mutex_lock(&bs->lock);
	b->n_saving++;
	openai_batch_set_counts(b);
	/* Fields for a restart, which OpenAI's API does not show. */
	json_t *kept = json_copy(b->object);
	put_terms(kept, &b->terms);
	json_object_set_new(kept, "_output_keep_s", json_integer(b->output_keep_s));
	json_object_set_new(kept, "_output_file", json_string(b->output_file));
	json_object_set_new(kept, "_error_file", json_string(b->error_file));
	json_object_set_new(kept, "_cancelled", json_boolean(b->cancelled));
	json_object_set_new(kept, "_expired", json_boolean(b->expired));
	o->object = json_dumps(kept, JSON_COMPACT);
	json_decref(kept);
	pthread_mutex_unlock(&bs->lock);
	op_put(o);
}

static void take_text(const json_t *o, const char *key, char *out, size_t n)
{
	const char *s = json_string_value(json_object_get(o, key));
	snprintf(out, n, "%s", s ? s : "");
}

/* Return a copy without the private fields. */
static json_t *shown(const json_t *object)
{
	json_t *o = json_deep_copy(object);
	const char *key;
	json_t *v;
	void *next;
	json_object_foreach_safe(o, next, key, v) if (key[0] == '_') json_object_del(o, key);
	return o;
}

/* Parse a batch's record; NULL: it is malformed. */
static struct openai_batch *parse_record(int64_t n, const char *owner, const char *text)
{
	json_t *o = text ? json_loads(text, 0, NULL) : NULL;
	if (!json_is_object(o)) {
		json_decref(o);
		return NULL;
	}
	struct openai_batch *b = xcalloc(1, sizeof *b);
	b->n = n;
	snprintf(b->owner, sizeof b->owner, "%s", owner ? owner : "");
	take_text(o, "id", b->id, sizeof b->id);
	take_text(o, "input_file_id", b->input_file, sizeof b->input_file);
	take_text(o, "endpoint", b->endpoint, sizeof b->endpoint);
	take_text(o, "_output_file", b->output_file, sizeof b->output_file);
	take_text(o, "_error_file", b->error_file, sizeof b->error_file);
	take_terms(o, &b->terms);
	b->output_keep_s = json_integer_value(json_object_get(o, "_output_keep_s"));
	b->expires_at = json_integer_value(json_object_get(o, "expires_at"));
	b->cancelled = json_is_true(json_object_get(o, "_cancelled"));
	b->expired = json_is_true(json_object_get(o, "_expired"));
	b->ending = b->cancelled || b->expired;
	const char *status = json_string_value(json_object_get(o, "status"));
	/* The counts are used until the input is read again, and if it cannot be read. */
	const json_t *counts = json_object_get(o, "request_counts");
	json_int_t total = json_integer_value(json_object_get(counts, "total"));
	json_int_t good = json_integer_value(json_object_get(counts, "completed"));
	json_int_t failed = json_integer_value(json_object_get(counts, "failed"));
	if (total >= 0 && total <= OPENAI_BATCH_LINES_MAX && good >= 0 && failed >= 0 &&
	    good + failed <= total) {
		b->n_lines = (uint32_t)total;
		b->n_done = (uint32_t)(good + failed);
		b->n_failed = (uint32_t)failed;
	}
	b->phase =
		status && strcmp(status, "validating") == 0 ? OPENAI_BATCH_VALIDATING : OPENAI_BATCH_RUNNING;
	b->object = shown(o);
	json_decref(o);
	return b;
}

int openai_batch_load(struct batches *bs, struct why *why)
{
	int rc = journal_reader(file_store_journal(bs->files), &bs->reader, why);
	if (rc)
		return rc;
	sqlite3_stmt *s =
		journal_query(bs->reader, "SELECT n, owner, object, state FROM batches ORDER BY n", NULL, 0);
	struct openai_batch **last = &bs->first;
	rc = s ? SQLITE_OK : journal_error(bs->reader);
	while (s && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		bs->last_n = sqlite3_column_int64(s, 0);
		if (sqlite3_column_int(s, 3))
			continue;
		struct openai_batch *b = parse_record(bs->last_n, (const char *)sqlite3_column_text(s, 1),
						      (const char *)sqlite3_column_text(s, 2));
		if (!b) {
			log_error("batch", "batch unreadable row=%" PRId64, bs->last_n);
			continue;
		}
		*last = b;
		last = &b->later;
		openai_batch_begin(bs, b->owner);
	}
	sqlite3_reset(s);
	if (rc != SQLITE_DONE) {
		rc = err_why(why, -EIO, "batches: the journal cannot be read: %s",
			     journal_errmsg(bs->reader));
		free_list(&bs->first);
		free_owners(bs);
		journal_reader_close(bs->reader);
		bs->reader = NULL;
		return rc;
	}
	if (bs->n_live)
		log_info("batch", "resumed from the journal batches=%u", bs->n_live);
	return 0;
}

int openai_batch_load_lines(struct batches *bs, struct openai_batch *b)
{
	int rc = SQLITE_ERROR;
	pthread_mutex_lock(&bs->lock);
	sqlite3_stmt *s = journal_query(bs->reader, "SELECT line, failed FROM lines WHERE batch = ?",
					JOURNAL_VALUES(journal_int(b->n)));
	b->n_done = b->n_failed = 0;
	if (s) {
		while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
			int64_t line = sqlite3_column_int64(s, 0);
			if (line < 0 || line >= b->n_lines)
				continue;
			b->lines[line].state = LINE_DONE;
			b->n_done++;
			b->n_failed += sqlite3_column_int(s, 1) != 0;
		}
		sqlite3_reset(s);
	}
	openai_batch_set_counts(b);
	pthread_mutex_unlock(&bs->lock);
	return rc == SQLITE_DONE ? 0 : -EIO;
}

void openai_batch_each_unfinished(struct batches *bs, const struct openai_batch *b,
				  void (*job)(void *user, const char *id), void *user)
{
	char owner[1 + FILE_OWNER_SIZE];
	job_owner(b->owner, owner);
	pthread_mutex_lock(&bs->lock);
	jobs_rows_each_unfinished(bs->reader, owner, b->id, job, user);
	pthread_mutex_unlock(&bs->lock);
}

void openai_batch_store_line(struct batches *bs, struct openai_batch *b, uint32_t line, bool failed,
			     struct buf *data, size_t n_jobs,
			     void (*done)(void *user, int rc, const char *why), void *user)
{
	struct openai_batch_op *o = op_new(bs, b->owner, run_line, on_done);
	o->n = b->n;
	snprintf(o->id, sizeof o->id, "%s/%u", b->id, line);
	o->line = line;
	o->failed = failed;
	o->data = *data;
	*data = (struct buf){0};
	o->n_jobs = n_jobs;
	o->done = done;
	o->user = user;
	op_put(o);
}

int64_t openai_batch_result_bytes(struct batches *bs, const struct openai_batch *b)
{
	int64_t bytes = 0;
	pthread_mutex_lock(&bs->lock);
	sqlite3_stmt *s = journal_query(bs->reader, "SELECT sum(length(data) + 1) FROM lines WHERE batch = ?",
					JOURNAL_VALUES(journal_int(b->n)));
	if (s && sqlite3_step(s) == SQLITE_ROW)
		bytes = sqlite3_column_int64(s, 0);
	sqlite3_reset(s);
	pthread_mutex_unlock(&bs->lock);
	return bytes;
}

int openai_batch_each_line(struct batches *bs, struct openai_batch *b, bool failed,
			   int (*put)(void *user, const char *p, size_t n), void *user, uint32_t *n)
{
	/* Use a separate connection, because this may take long. */
	struct journal_db *db;
	struct why why;
	int rc = journal_reader(file_store_journal(bs->files), &db, &why);
	if (rc)
		return rc;
	*n = 0;
	sqlite3_stmt *s =
		journal_query(db, "SELECT data FROM lines WHERE batch = ? AND failed = ? ORDER BY line",
			      JOURNAL_VALUES(journal_int(b->n), journal_int(failed)));
	int step_rc = SQLITE_ERROR;
	while (s && !rc && (step_rc = sqlite3_step(s)) == SQLITE_ROW) {
		const void *data = sqlite3_column_blob(s, 0);
		rc = put(user, data ? data : "", (size_t)sqlite3_column_bytes(s, 0));
		(*n)++;
	}
	journal_reader_close(db);
	return rc ? rc : step_rc == SQLITE_DONE ? 0 : -EIO;
}

/* --- waiting for the journal --- */

struct waiting {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int rc;
};

static void on_waited(void *user, int rc, const char *why)
{
	struct waiting *w = user;
	(void)why;
	pthread_mutex_lock(&w->lock);
	w->rc = rc;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static int wait_for(struct waiting *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return w->rc;
}

int openai_batch_commit_file(struct batches *bs, struct file_writer **w)
{
	struct waiting wait = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
	(void)bs;
	file_writer_commit(w, NULL, on_waited, &wait);
	return wait_for(&wait);
}

int openai_batch_delete_file(struct batches *bs, const char *id)
{
	struct waiting wait = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
	file_store_remove(bs->files, id, on_waited, &wait);
	return wait_for(&wait);
}

/* --- the API --- */

/* Return the seconds of "90s", "30m", "24h", "7d", at most 30 days; -1: malformed. */
static int64_t window_seconds(const char *text)
{
	char *end;
	errno = 0;
	long n = strtol(text, &end, 10);
	int64_t unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 0;
	if (errno || text[0] < '1' || text[0] > '9' || !unit || end[1] || n > WINDOW_MAX_S / unit)
		return -1;
	return n * unit;
}

static json_t *new_object(const struct openai_batch *b, const struct openai_batch_request *r, int64_t now)
{
	static const char *const nulls[] = {
		"errors",       "output_file_id", "error_file_id", "in_progress_at", "finalizing_at",
		"completed_at", "failed_at",      "expired_at",    "cancelling_at",  "cancelled_at"};
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "id", b->id, "object", "batch",
			      "endpoint", b->endpoint, "input_file_id", b->input_file, "completion_window",
			      r->window, "status", "validating", "created_at", (json_int_t)now, "expires_at",
			      (json_int_t)b->expires_at);
	for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++)
		json_object_set_new(o, nulls[i], json_null());
	json_object_set(o, "metadata", r->metadata ? (json_t *)r->metadata : json_null());
	return o;
}

/* A batch being created. */
struct creation {
	struct batches *bs;
	struct openai_batch *batch;
	void (*done)(void *user, int rc, const json_t *batch, const char *param, const char *why);
	void *user;
};

static void on_created(void *user, int rc, const char *why)
{
	struct creation *c = user;
	struct batches *bs = c->bs;
	if (rc) {
		c->done(c->user, -EAGAIN, NULL, NULL, why);
		pthread_mutex_lock(&bs->lock);
		openai_batch_end(bs, c->batch->owner);
		pthread_mutex_unlock(&bs->lock);
		openai_batch_free(c->batch);
		free(c);
		return;
	}
	c->done(c->user, 0, c->batch->object, NULL, NULL);
	pthread_mutex_lock(&bs->lock);
	struct openai_batch **at = &bs->fresh;
	while (*at)
		at = &(*at)->later;
	*at = c->batch;
	bs->wake = true;
	pthread_cond_broadcast(&bs->more);
	pthread_mutex_unlock(&bs->lock);
	free(c);
}

static bool check(struct batches *bs, const struct openai_batch_request *r, const char **param,
		  struct why *why)
{
	struct file_info f;
	char urls[LINE_EXCHANGE_URLS_SIZE];
	*param = "endpoint";
	if (!line_exchange_route(bs->host, r->endpoint)) {
		line_exchange_urls(bs->host, urls);
		err_why(why, 0, "endpoint %s", urls);
		return false;
	}
	*param = "completion_window";
	if (window_seconds(r->window) < 0) {
		err_why(why, 0, "completion_window must be like \"24h\" (s, m, h or d), at most 30 days");
		return false;
	}
	*param = "input_file_id";
	int rc = file_store_get(bs->files, r->owner, r->input_file, &f);
	if (rc) {
		err_why(why, 0, "input_file_id: no such file: %.64s", r->input_file);
		return false;
	}
	if (strcmp(f.purpose, "batch") != 0) {
		err_why(why, 0, "input_file_id: the file's purpose is %.32s, it must be batch", f.purpose);
		return false;
	}
	return true;
}

void batches_create(struct batches *bs, const struct openai_batch_request *r,
		    void (*done)(void *user, int rc, const json_t *batch, const char *param, const char *why),
		    void *user)
{
	const char *param;
	struct why why;
	if (!check(bs, r, &param, &why)) {
		done(user, -EINVAL, NULL, param, why.text);
		return;
	}
	pthread_mutex_lock(&bs->lock);
	bool full = !may_begin(bs, r->owner, &why);
	int64_t n = full ? 0 : ++bs->last_n;
	if (!full)
		openai_batch_begin(bs, r->owner);
	pthread_mutex_unlock(&bs->lock);
	if (full) {
		done(user, -EAGAIN, NULL, NULL, why.text);
		return;
	}
	struct openai_batch *b = xcalloc(1, sizeof *b);
	int64_t now = clock_unix();
	b->n = n;
	file_store_id(b->id, "batch_");
	file_store_id(b->output_file, "file-");
	file_store_id(b->error_file, "file-");
	snprintf(b->owner, sizeof b->owner, "%s", r->owner);
	snprintf(b->input_file, sizeof b->input_file, "%s", r->input_file);
	snprintf(b->endpoint, sizeof b->endpoint, "%s", r->endpoint);
	b->terms = r->terms;
	b->output_keep_s = r->output_keep_s;
	b->expires_at = now + window_seconds(r->window);
	b->object = new_object(b, r, now);
	openai_batch_set_counts(b);
	struct creation *c = xcalloc(1, sizeof *c);
	*c = (struct creation){bs, b, done, user};
	struct openai_batch_op *o = op_new(bs, b->owner, run_insert, on_done);
	o->op.required = false;
	o->op.need = JOURNAL_JOB;
	o->n = n;
	snprintf(o->id, sizeof o->id, "%s", b->id);
	o->created_at = now;
	json_t *kept = json_copy(b->object);
	put_terms(kept, &b->terms);
	json_object_set_new(kept, "_output_keep_s", json_integer(b->output_keep_s));
	json_object_set_new(kept, "_output_file", json_string(b->output_file));
	json_object_set_new(kept, "_error_file", json_string(b->error_file));
	o->object = json_dumps(kept, JSON_COMPACT);
	json_decref(kept);
	o->done = on_created;
	o->user = c;
	op_put(o);
}

/* Find a live batch.  Under the lock. */
static struct openai_batch *find_live(struct batches *bs, const char *owner, const char *id)
{
	struct openai_batch *const heads[] = {bs->first, bs->fresh};
	for (int i = 0; i < 2; i++)
		for (struct openai_batch *b = heads[i]; b; b = b->later)
			if (strcmp(b->id, id) == 0 && strcmp(b->owner, owner) == 0)
				return b;
	return NULL;
}

/* Return a copy of the batch's present state.  Under the lock. */
static json_t *live_object(struct openai_batch *b)
{
	openai_batch_set_counts(b);
	return json_deep_copy(b->object);
}

/* Return a batch from the journal.  Under the lock. */
static json_t *stored_object(struct batches *bs, const char *owner, const char *id)
{
	json_t *o = NULL;
	sqlite3_stmt *s = journal_query(bs->reader, "SELECT object FROM batches WHERE id = ? AND owner = ?",
					JOURNAL_VALUES(journal_text(id), journal_text(owner)));
	if (s && sqlite3_step(s) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(s, 0);
		json_t *kept = text ? json_loads(text, 0, NULL) : NULL;
		o = json_is_object(kept) ? shown(kept) : NULL;
		json_decref(kept);
	}
	sqlite3_reset(s);
	return o;
}

json_t *batches_get(struct batches *bs, const char *owner, const char *id)
{
	pthread_mutex_lock(&bs->lock);
	struct openai_batch *b = find_live(bs, owner, id);
	json_t *o = b ? live_object(b) : stored_object(bs, owner, id);
	pthread_mutex_unlock(&bs->lock);
	return o;
}

json_t *batches_list(struct batches *bs, const char *owner, const char *after, int max, bool *more)
{
	json_t *list = json_array();
	int64_t from = INT64_MAX;
	*more = false;
	pthread_mutex_lock(&bs->lock);
	if (after) {
		sqlite3_stmt *s =
			journal_query(bs->reader, "SELECT n FROM batches WHERE id = ? AND owner = ?",
				      JOURNAL_VALUES(journal_text(after), journal_text(owner)));
		from = s && sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
		sqlite3_reset(s);
	}
	sqlite3_stmt *s = journal_query(
		bs->reader, "SELECT id FROM batches WHERE owner = ? AND n < ? ORDER BY n DESC LIMIT ?",
		JOURNAL_VALUES(journal_text(owner), journal_int(from),
			       journal_int((max < LIST_MAX ? max : LIST_MAX) + 1)));
	char ids[LIST_MAX + 1][FILE_ID_SIZE];
	int n = 0;
	if (s && from) {
		while (n <= LIST_MAX && sqlite3_step(s) == SQLITE_ROW) {
			const char *id = (const char *)sqlite3_column_text(s, 0);
			snprintf(ids[n++], FILE_ID_SIZE, "%s", id ? id : "");
		}
		sqlite3_reset(s);
	}
	for (int i = 0; i < n; i++) {
		if ((*more = i == max))
			break;
		struct openai_batch *b = find_live(bs, owner, ids[i]);
		json_t *o = b ? live_object(b) : stored_object(bs, owner, ids[i]);
		if (o)
			json_array_append_new(list, o);
	}
	pthread_mutex_unlock(&bs->lock);
	if (after && !from) {
		json_decref(list);
		return NULL;
	}
	return list;
}

json_t *batches_cancel(struct batches *bs, const char *owner, const char *id, bool *ended)
{
	pthread_mutex_lock(&bs->lock);
	struct openai_batch *b = find_live(bs, owner, id);
	*ended = !b || b->phase == OPENAI_BATCH_OVER || b->phase == OPENAI_BATCH_FINALIZING;
	bool now = b && !*ended && !b->ending;
	if (now) {
		b->ending = b->cancelled = true;
		json_object_set_new(b->object, "status", json_string("cancelling"));
		json_object_set_new(b->object, "cancelling_at", json_integer(clock_unix()));
		bs->wake = true;
		pthread_cond_broadcast(&bs->more);
	}
	json_t *o = b ? live_object(b) : stored_object(bs, owner, id);
	b = now ? b : NULL;
	if (b)
		b->n_saving++; /* so that it is not freed */
	pthread_mutex_unlock(&bs->lock);
	if (!b)
		return o;
	openai_batch_save(bs, b, false);
	pthread_mutex_lock(&bs->lock);
	b->n_saving--;
	pthread_mutex_unlock(&bs->lock);
	return o;
}
