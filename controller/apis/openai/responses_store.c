#include "controller/apis/openai/responses_store.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct store_op {
	struct journal_op op;
	struct responses_store *store;
	struct response_row row; /* put: all of it; finish: id and body; delete: id */
	int64_t expires_at, now;
	struct store_op *next, **prev; /* of those that may be read before they are written */
	void (*done)(void *user, int rc, const char *why);
	void *user;
};

struct responses_store {
	struct journal *journal;
	int64_t keep_s;
	pthread_mutex_t lock; /* guards the fields below, and the reader's use */
	struct journal_db *reader;
	struct store_op *waiting; /* puts and finishes on their way, youngest first */
};

void response_row_fini(struct response_row *r)
{
	free(r->request);
	free(r->repeated);
	free(r->context);
	free(r->body);
	*r = (struct response_row){0};
}

json_t *response_json(const char *text)
{
	return json_loads(text, JSON_ALLOW_NUL, NULL);
}

static char *copy(const char *s)
{
	return xstrdup(s ? s : "");
}

/* --- operations --- */

static int run_make(struct journal_op *op, struct journal_db *db)
{
	(void)op;
	return journal_exec(
		db, "CREATE TABLE IF NOT EXISTS responses(id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
		    " background INTEGER NOT NULL, done INTEGER NOT NULL, created_at INTEGER NOT NULL,"
		    " expires_at INTEGER NOT NULL, n_before INTEGER NOT NULL, request TEXT NOT NULL,"
		    " repeated TEXT NOT NULL, context TEXT NOT NULL, body TEXT NOT NULL);"
		    "CREATE INDEX IF NOT EXISTS responses_expire ON responses(expires_at)");
}

static int run_put(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	const struct response_row *r = &o->row;
	int rc = journal_run(db, "DELETE FROM responses WHERE expires_at <= ?",
			     JOURNAL_VALUES(journal_int(o->now)));
	if (!rc)
		rc = journal_run(db,
				 "DELETE FROM responses WHERE id IN (SELECT id FROM responses WHERE done = 1"
				 " ORDER BY expires_at LIMIT max(0, (SELECT count(*) FROM responses) - ?))",
				 JOURNAL_VALUES(journal_int(RESPONSES_MAX - 1)));
	return rc ? rc
		  : journal_run(db,
				"INSERT INTO responses(id, owner, background, done, created_at, expires_at,"
				" n_before, request, repeated, context, body)"
				" VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
				JOURNAL_VALUES(journal_text(r->id), journal_text(r->owner),
					       journal_int(r->background), journal_int(r->done),
					       journal_int(r->created_at), journal_int(o->expires_at),
					       journal_int(r->n_before), journal_text(r->request),
					       journal_text(r->repeated), journal_text(r->context),
					       journal_text(r->body)));
}

static int run_finish(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	return journal_run(db, "UPDATE responses SET done = 1, body = ? WHERE id = ? AND done = 0",
			   JOURNAL_VALUES(journal_text(o->row.body), journal_text(o->row.id)));
}

static int run_delete(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	return journal_run(db, "DELETE FROM responses WHERE id = ?", JOURNAL_VALUES(journal_text(o->row.id)));
}

static void on_done(struct journal_op *op, int rc, const char *why)
{
	struct store_op *o = (struct store_op *)op;
	pthread_mutex_lock(&o->store->lock);
	if (o->prev) {
		*o->prev = o->next;
		if (o->next)
			o->next->prev = o->prev;
	}
	pthread_mutex_unlock(&o->store->lock);
	if (rc && !o->done)
		log_warn("responses", "not stored: %s response=%s", why, o->row.id);
	if (o->done)
		o->done(o->user, rc, why);
	response_row_fini(&o->row);
	free(o);
}

static struct store_op *op_new(struct responses_store *s,
			       int (*run)(struct journal_op *, struct journal_db *))
{
	struct store_op *o = xcalloc(1, sizeof *o);
	o->op.run = run;
	o->op.done = on_done;
	o->op.bytes = sizeof *o;
	o->store = s;
	o->now = clock_unix();
	return o;
}

/* Readable from here on. */
static void put_waiting(struct store_op *o)
{
	struct responses_store *s = o->store;
	pthread_mutex_lock(&s->lock);
	o->prev = &s->waiting;
	o->next = s->waiting;
	if (o->next)
		o->next->prev = &o->next;
	s->waiting = o;
	pthread_mutex_unlock(&s->lock);
	journal_put(s->journal, &o->op);
}

struct responses_store *responses_store_open(struct journal *j, int64_t keep_s)
{
	struct responses_store *s = xcalloc(1, sizeof *s);
	s->journal = j;
	s->keep_s = keep_s;
	pthread_mutex_init(&s->lock, NULL);
	struct store_op *o = op_new(s, run_make);
	o->op.required = true;
	journal_put(j, &o->op);
	return s;
}

void responses_store_close(struct responses_store *s)
{
	if (!s)
		return;
	journal_reader_close(s->reader);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void responses_store_put(struct responses_store *s, struct response_row *row)
{
	struct store_op *o = op_new(s, run_put);
	o->row = *row;
	*row = (struct response_row){0};
	o->op.need = JOURNAL_JOB;
	o->op.bytes += strlen(o->row.request) + strlen(o->row.repeated) + strlen(o->row.context) +
		       strlen(o->row.body);
	o->expires_at = o->row.created_at + s->keep_s;
	put_waiting(o);
}

void responses_store_finish(struct responses_store *s, const char *id, const char *body)
{
	struct store_op *o = op_new(s, run_finish);
	snprintf(o->row.id, sizeof o->row.id, "%s", id);
	o->row.body = xstrdup(body);
	o->op.bytes += strlen(body);
	o->op.required = true;
	put_waiting(o);
}

void responses_store_delete(struct responses_store *s, const char *id,
			    void (*done)(void *user, int rc, const char *why), void *user)
{
	struct store_op *o = op_new(s, run_delete);
	snprintf(o->row.id, sizeof o->row.id, "%s", id);
	o->op.frees = true;
	o->done = done;
	o->user = user;
	journal_put(s->journal, &o->op);
}

/* --- reading, under the lock --- */

static char *column(sqlite3_stmt *q, int i)
{
	return copy((const char *)sqlite3_column_text(q, i));
}

static int read_row(struct responses_store *s, const char *id, struct response_row *out)
{
	char why[256];
	if (!s->reader && journal_reader(s->journal, &s->reader, why, sizeof why))
		return -EIO;
	sqlite3_stmt *q =
		journal_query(s->reader,
			      "SELECT owner, background, done, created_at, n_before, request, repeated,"
			      " context, body FROM responses WHERE id = ? AND expires_at > ?",
			      JOURNAL_VALUES(journal_text(id), journal_int(clock_unix())));
	if (!q)
		return -EIO;
	int step = sqlite3_step(q);
	if (step == SQLITE_ROW) {
		snprintf(out->id, sizeof out->id, "%s", id);
		snprintf(out->owner, sizeof out->owner, "%s", (const char *)sqlite3_column_text(q, 0));
		out->background = sqlite3_column_int(q, 1);
		out->done = sqlite3_column_int(q, 2);
		out->created_at = sqlite3_column_int64(q, 3);
		out->n_before = sqlite3_column_int64(q, 4);
		out->request = column(q, 5);
		out->repeated = column(q, 6);
		out->context = column(q, 7);
		out->body = column(q, 8);
	}
	sqlite3_reset(q);
	return step == SQLITE_ROW ? 0 : step == SQLITE_DONE ? -ENOENT : -EIO;
}

/* What of it is on its way to the disk. */
static int read_waiting(const struct responses_store *s, const char *id, struct response_row *out, int rc)
{
	const struct store_op *finish = NULL;
	for (const struct store_op *o = s->waiting; o; o = o->next) {
		if (strcmp(o->row.id, id) != 0)
			continue;
		if (o->op.run == run_finish)
			finish = o;
		if (o->op.run != run_put || !rc)
			continue;
		*out = o->row;
		out->request = copy(o->row.request);
		out->repeated = copy(o->row.repeated);
		out->context = copy(o->row.context);
		out->body = copy(o->row.body);
		rc = 0;
	}
	if (!rc && finish && !out->done) {
		free(out->body);
		out->body = copy(finish->row.body);
		out->done = true;
	}
	return rc;
}

int responses_store_get(struct responses_store *s, const char *owner, const char *id,
			struct response_row *out)
{
	*out = (struct response_row){0};
	pthread_mutex_lock(&s->lock);
	/* An operation that is done leaves the list under the lock, later than it is on the disk. */
	int rc = read_row(s, id, out);
	rc = read_waiting(s, id, out, rc);
	pthread_mutex_unlock(&s->lock);
	if (!rc && strcmp(out->owner, owner) != 0)
		rc = -ENOENT;
	if (rc)
		response_row_fini(out);
	return rc;
}
