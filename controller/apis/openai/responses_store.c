#include "controller/apis/openai/responses_store.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "controller/apis/openai/conversations_store.h"
#include "controller/apis/openai/responses_store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char responses_schema[] =
	"CREATE TABLE responses(id TEXT PRIMARY KEY, owner TEXT NOT NULL, conversation TEXT NOT NULL,"
	" background INTEGER NOT NULL, done INTEGER NOT NULL, created_at INTEGER NOT NULL,"
	" expires_at INTEGER NOT NULL, n_before INTEGER NOT NULL, bytes INTEGER NOT NULL,"
	" request TEXT NOT NULL, repeated TEXT NOT NULL, context TEXT NOT NULL, body TEXT NOT NULL);"
	"CREATE INDEX responses_expire ON responses(expires_at);"
	"CREATE INDEX responses_owner ON responses(owner, done, expires_at);"
	"CREATE INDEX responses_pending ON responses(conversation) WHERE done = 0 AND conversation <> '';"
	"CREATE TABLE conversations(id TEXT PRIMARY KEY, owner TEXT NOT NULL, created_at INTEGER NOT NULL,"
	" expires_at INTEGER NOT NULL, n_items INTEGER NOT NULL, bytes INTEGER NOT NULL,"
	" metadata TEXT NOT NULL);"
	"CREATE INDEX conversations_expire ON conversations(expires_at);"
	"CREATE INDEX conversations_owner ON conversations(owner, expires_at);"
	"CREATE TABLE conversation_items(conversation TEXT NOT NULL, n INTEGER NOT NULL, id TEXT NOT NULL,"
	" bytes INTEGER NOT NULL, item TEXT NOT NULL, PRIMARY KEY(conversation, n)) WITHOUT ROWID;"
	"CREATE UNIQUE INDEX conversation_items_id ON conversation_items(conversation, id);"
	"CREATE TRIGGER items_in AFTER INSERT ON conversation_items BEGIN"
	" UPDATE conversations SET n_items = n_items + 1, bytes = bytes + new.bytes"
	" WHERE id = new.conversation; END;"
	"CREATE TRIGGER items_out AFTER DELETE ON conversation_items BEGIN"
	" UPDATE conversations SET n_items = n_items - 1, bytes = bytes - old.bytes"
	" WHERE id = old.conversation; END;"
	"CREATE TABLE stored_use(owner TEXT PRIMARY KEY, n INTEGER NOT NULL, bytes INTEGER NOT NULL)"
	" WITHOUT ROWID;"
	"CREATE TRIGGER responses_in AFTER INSERT ON responses BEGIN"
	" INSERT INTO stored_use VALUES(new.owner, 1, new.bytes) ON CONFLICT(owner)"
	" DO UPDATE SET n = n + 1, bytes = bytes + excluded.bytes; END;"
	"CREATE TRIGGER responses_size AFTER UPDATE OF bytes ON responses BEGIN"
	" UPDATE stored_use SET bytes = bytes + new.bytes - old.bytes WHERE owner = new.owner; END;"
	"CREATE TRIGGER responses_out AFTER DELETE ON responses BEGIN"
	" UPDATE stored_use SET n = n - 1, bytes = bytes - old.bytes WHERE owner = old.owner;"
	" DELETE FROM stored_use WHERE owner = old.owner AND n <= 0; END;"
	"CREATE TRIGGER conversations_in AFTER INSERT ON conversations BEGIN"
	" INSERT INTO stored_use VALUES(new.owner, 1, new.bytes) ON CONFLICT(owner)"
	" DO UPDATE SET n = n + 1, bytes = bytes + excluded.bytes; END;"
	"CREATE TRIGGER conversations_size AFTER UPDATE OF bytes ON conversations BEGIN"
	" UPDATE stored_use SET bytes = bytes + new.bytes - old.bytes WHERE owner = new.owner; END;"
	"CREATE TRIGGER conversations_out AFTER DELETE ON conversations BEGIN"
	" DELETE FROM conversation_items WHERE conversation = old.id;"
	" UPDATE stored_use SET n = n - 1, bytes = bytes - old.bytes WHERE owner = old.owner;"
	" DELETE FROM stored_use WHERE owner = old.owner AND n <= 0; END";

/* Format 1 made this table on first use, with other columns. */
const char responses_upgrade[] = "DROP TABLE IF EXISTS responses";

void response_row_fini(struct response_row *r)
{
	free(r->request);
	free(r->repeated);
	free(r->context);
	free(r->body);
	*r = (struct response_row){0};
}

static char *copy(const char *s)
{
	return xstrdup(s ? s : "");
}

void response_row_copy(struct response_row *out, const struct response_row *r)
{
	*out = *r;
	out->request = copy(r->request);
	out->repeated = copy(r->repeated);
	out->context = copy(r->context);
	out->body = copy(r->body);
}

json_t *response_json(const char *text)
{
	json_t *v = NULL;
	json_parse(text, strlen(text), &v, NULL);
	return v;
}

static int64_t row_bytes(const struct response_row *r)
{
	return (int64_t)(ROW_BYTES + strlen(r->request) + strlen(r->repeated) + strlen(r->context) +
			 strlen(r->body));
}

/* --- operations: on the journal's thread --- */

int store_int(struct journal_db *db, const char *sql, const struct journal_value *values, size_t n,
	      int64_t otherwise, int64_t *out)
{
	sqlite3_stmt *q = journal_query(db, sql, values, n);
	*out = otherwise;
	if (!q)
		return journal_error(db);
	const int rc = sqlite3_step(q);
	if (rc == SQLITE_ROW && sqlite3_column_type(q, 0) != SQLITE_NULL)
		*out = sqlite3_column_int64(q, 0);
	sqlite3_reset(q);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Delete the oldest row of the owner that may be deleted.  *any: there was one. */
static int delete_oldest(struct journal_db *db, const char *owner, const char *keep, bool *any)
{
	char id[RESPONSE_ID_SIZE] = "";
	bool conversation = false;
	*any = false;
	sqlite3_stmt *q = journal_query(
		db,
		"SELECT id, is_conversation FROM ("
		"SELECT * FROM (SELECT id, 0 AS is_conversation, expires_at FROM responses"
		" WHERE owner = ?1 AND done = 1 ORDER BY expires_at LIMIT 1)"
		" UNION ALL SELECT * FROM (SELECT id, 1, expires_at FROM conversations"
		" WHERE owner = ?1 AND id <> ?2 ORDER BY expires_at LIMIT 1)) ORDER BY expires_at LIMIT 1",
		JOURNAL_VALUES(journal_text(owner), journal_text(keep)));
	if (!q)
		return journal_error(db);
	int rc = sqlite3_step(q);
	if (rc == SQLITE_ROW) {
		snprintf(id, sizeof id, "%s", (const char *)sqlite3_column_text(q, 0));
		conversation = sqlite3_column_int(q, 1);
		*any = true;
	}
	sqlite3_reset(q);
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? SQLITE_OK : rc;
	return journal_run(db,
			   conversation ? "DELETE FROM conversations WHERE id = ?"
					: "DELETE FROM responses WHERE id = ?",
			   JOURNAL_VALUES(journal_text(id)));
}

struct use {
	int64_t n, bytes;
};

/* Read the rows and bytes that an owner stores; owner NULL: all owners. */
static int use_of(struct journal_db *db, const char *owner, struct use *out)
{
	sqlite3_stmt *q = owner ? journal_query(db, "SELECT n, bytes FROM stored_use WHERE owner = ?",
						JOURNAL_VALUES(journal_text(owner)))
				: journal_query(db, "SELECT sum(n), sum(bytes) FROM stored_use", NULL, 0);
	*out = (struct use){0};
	if (!q)
		return journal_error(db);
	const int rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		*out = (struct use){sqlite3_column_int64(q, 0), sqlite3_column_int64(q, 1)};
	sqlite3_reset(q);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static bool is_over(const struct use *u, int64_t rows, int64_t bytes, int64_t more_rows, int64_t more_bytes)
{
	return u->n + more_rows > 1 && (u->n + more_rows > rows || u->bytes + more_bytes > bytes);
}

/* Find the owner with the most bytes. */
static int largest(struct journal_db *db, char owner[FILE_OWNER_SIZE])
{
	sqlite3_stmt *q = journal_query(
		db, "SELECT owner FROM stored_use ORDER BY bytes DESC, n DESC LIMIT 1", NULL, 0);
	if (!q)
		return journal_error(db);
	const int rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		snprintf(owner, FILE_OWNER_SIZE, "%s", (const char *)sqlite3_column_text(q, 0));
	sqlite3_reset(q);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int store_make_room(const struct store_op *o, struct journal_db *db, const char *owner, const char *keep,
		    int64_t more_rows, int64_t more_bytes)
{
	const struct responses_limits *l = &o->store->limits;
	struct use use;
	bool any = true;
	int rc = journal_run(db, "DELETE FROM responses WHERE expires_at <= ?",
			     JOURNAL_VALUES(journal_int(o->now)));
	if (!rc)
		rc = journal_run(db, "DELETE FROM conversations WHERE expires_at <= ?",
				 JOURNAL_VALUES(journal_int(o->now)));
	while (!rc && any && !(rc = use_of(db, owner, &use)) &&
	       is_over(&use, l->owner_rows, l->owner_bytes, more_rows, more_bytes))
		rc = delete_oldest(db, owner, keep, &any);
	any = true;
	while (!rc && any && !(rc = use_of(db, NULL, &use)) &&
	       is_over(&use, l->rows, l->bytes, more_rows, more_bytes)) {
		char most[FILE_OWNER_SIZE] = "";
		rc = largest(db, most);
		if (!rc)
			rc = delete_oldest(db, most, keep, &any);
	}
	return rc;
}

static int run_put(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	const struct response_row *r = &o->row;
	const int64_t bytes = row_bytes(r);
	int rc = store_make_room(o, db, r->owner, r->conversation, 1, bytes);
	if (!rc)
		rc = journal_run(db,
				 "INSERT INTO responses(id, owner, conversation, background, done, "
				 "created_at,"
				 " expires_at, n_before, bytes, request, repeated, context, body)"
				 " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO NOTHING",
				 JOURNAL_VALUES(journal_text(r->id), journal_text(r->owner),
						journal_text(r->conversation), journal_int(r->background),
						journal_int(r->done), journal_int(r->created_at),
						journal_int(r->created_at + o->store->limits.keep_s),
						journal_int(r->n_before), journal_int(bytes),
						journal_text(r->request), journal_text(r->repeated),
						journal_text(r->context), journal_text(r->body)));
	/* Add the items of a stored response to its conversation. */
	int64_t n_new = 0;
	if (!rc)
		rc = store_int(db, "SELECT changes()", NULL, 0, 0, &n_new);
	return rc || !n_new ? rc : conversations_add_items(o, db, r->owner);
}

static int run_finish(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	const char *id = o->row.id, *body = o->row.body;
	char owner[FILE_OWNER_SIZE] = "";
	/* Only once: a response that is done or deleted adds nothing to a conversation. */
	sqlite3_stmt *q = journal_query(db, "SELECT owner FROM responses WHERE id = ? AND done = 0",
					JOURNAL_VALUES(journal_text(id)));
	if (!q)
		return journal_error(db);
	int rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		snprintf(owner, sizeof owner, "%s", (const char *)sqlite3_column_text(q, 0));
	sqlite3_reset(q);
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? SQLITE_OK : rc;
	rc = journal_run(
		db,
		"UPDATE responses SET done = 1, bytes = bytes - length(CAST(body AS BLOB)) + ?,"
		" body = ? WHERE id = ?",
		JOURNAL_VALUES(journal_int((int64_t)strlen(body)), journal_text(body), journal_text(id)));
	if (!rc)
		rc = conversations_add_items(o, db, owner);
	return rc ? rc : store_make_room(o, db, owner, o->row.conversation, 0, 0);
}

static int run_delete(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	return journal_run(db, "DELETE FROM responses WHERE id = ?", JOURNAL_VALUES(journal_text(o->row.id)));
}

/* --- passing operations to the journal: any thread --- */

/* Drop a reference; true: it was the last.  Under the lock. */
static bool unref(struct store_op *o)
{
	return --o->refs == 0;
}

static void op_free(struct store_op *o)
{
	response_row_fini(&o->row);
	free(o->items);
	free(o);
}

void store_op_unref(struct store_op *o)
{
	if (!o)
		return;
	pthread_mutex_lock(&o->store->lock);
	const bool last = unref(o);
	pthread_mutex_unlock(&o->store->lock);
	if (last)
		op_free(o);
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
		log_warn("responses", "response not stored response=%s reason=\"%s\"", o->row.id, why);
	if (o->done)
		o->done(o->user, o->rc ? o->rc : rc, o->rc ? o->why : why);
	store_op_unref(o);
}

struct store_op *store_op_new(struct responses_store *s, int (*run)(struct journal_op *, struct journal_db *))
{
	struct store_op *o = xcalloc(1, sizeof *o);
	o->op.run = run;
	o->op.done = on_done;
	o->op.bytes = sizeof *o;
	o->store = s;
	o->refs = 1;
	o->now = clock_unix();
	return o;
}

void store_op_put(struct store_op *o, bool waiting)
{
	struct responses_store *s = o->store;
	pthread_mutex_lock(&s->lock);
	if (waiting) {
		o->prev = &s->waiting;
		o->next = s->waiting;
		if (o->next)
			o->next->prev = &o->next;
		s->waiting = o;
	}
	pthread_mutex_unlock(&s->lock);
	o->op.bytes += o->items ? strlen(o->items) : 0;
	journal_put(s->journal, &o->op);
}

struct responses_store *responses_store_open(struct journal *j, const struct responses_limits *limits)
{
	struct responses_store *s = xcalloc(1, sizeof *s);
	s->journal = j;
	s->limits = *limits;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->reading, NULL);
	return s;
}

void responses_store_close(struct responses_store *s)
{
	if (!s)
		return;
	journal_reader_close(s->reader);
	pthread_mutex_destroy(&s->reading);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int responses_store_room(struct responses_store *s, struct why *why)
{
	if (!journal_health(s->journal, why))
		return -EIO;
	return journal_room(s->journal, JOURNAL_JOB, 0, why);
}

void responses_store_put(struct responses_store *s, struct response_row *row, const char *items,
			 responses_done *done, void *user)
{
	struct store_op *o = store_op_new(s, run_put);
	o->row = *row;
	*row = (struct response_row){0};
	o->items = items ? xstrdup(items) : NULL;
	/* A response that has ended began while there was room. */
	o->op.need = o->row.done ? JOURNAL_END : JOURNAL_JOB;
	o->op.bytes += (size_t)row_bytes(&o->row);
	o->done = done;
	o->user = user;
	store_op_put(o, true);
}

void responses_store_finish(struct responses_store *s, const char *id, const char *body,
			    const char *conversation, const char *items, responses_done *done, void *user)
{
	struct store_op *o = store_op_new(s, run_finish);
	snprintf(o->row.id, sizeof o->row.id, "%s", id);
	snprintf(o->row.conversation, sizeof o->row.conversation, "%s", conversation);
	o->row.body = xstrdup(body);
	o->items = items ? xstrdup(items) : NULL;
	o->op.bytes += strlen(body);
	o->op.required = true;
	o->done = done;
	o->user = user;
	store_op_put(o, true);
}

void responses_store_delete(struct responses_store *s, const char *id, responses_done *done, void *user)
{
	struct store_op *o = store_op_new(s, run_delete);
	snprintf(o->row.id, sizeof o->row.id, "%s", id);
	o->op.frees = true;
	o->done = done;
	o->user = user;
	store_op_put(o, false);
}

/* --- reading --- */

struct journal_db *store_read_begin(struct responses_store *s)
{
	struct why why;
	pthread_mutex_lock(&s->reading);
	if (s->reader || journal_reader(s->journal, &s->reader, &why) == 0)
		return s->reader;
	pthread_mutex_unlock(&s->reading);
	return NULL;
}

void store_read_end(struct responses_store *s)
{
	pthread_mutex_unlock(&s->reading);
}

static char *column(sqlite3_stmt *q, int i)
{
	return copy((const char *)sqlite3_column_text(q, i));
}

static int read_row(struct responses_store *s, const char *id, struct response_row *out)
{
	struct journal_db *db = store_read_begin(s);
	if (!db)
		return -EIO;
	sqlite3_stmt *q =
		journal_query(db,
			      "SELECT owner, conversation, background, done, created_at, n_before, request,"
			      " repeated, context, body FROM responses WHERE id = ? AND expires_at > ?",
			      JOURNAL_VALUES(journal_text(id), journal_int(clock_unix())));
	const int step = q ? sqlite3_step(q) : SQLITE_ERROR;
	if (step == SQLITE_ROW) {
		snprintf(out->id, sizeof out->id, "%s", id);
		snprintf(out->owner, sizeof out->owner, "%s", (const char *)sqlite3_column_text(q, 0));
		snprintf(out->conversation, sizeof out->conversation, "%s",
			 (const char *)sqlite3_column_text(q, 1));
		out->background = sqlite3_column_int(q, 2);
		out->done = sqlite3_column_int(q, 3);
		out->created_at = sqlite3_column_int64(q, 4);
		out->n_before = sqlite3_column_int64(q, 5);
		out->request = column(q, 6);
		out->repeated = column(q, 7);
		out->context = column(q, 8);
		out->body = column(q, 9);
	}
	if (q)
		sqlite3_reset(q);
	store_read_end(s);
	return step == SQLITE_ROW ? 0 : step == SQLITE_DONE ? -ENOENT : -EIO;
}

/* Find the row and the end of a response that are being written to disk; both are held. */
static void find_waiting(struct responses_store *s, const char *id, struct store_op **put,
			 struct store_op **finish)
{
	*put = *finish = NULL;
	pthread_mutex_lock(&s->lock);
	for (struct store_op *o = s->waiting; o; o = o->next) {
		if (strcmp(o->row.id, id) != 0)
			continue;
		if (o->op.run == run_finish)
			*finish = o;
		if (o->op.run == run_put)
			*put = o;
	}
	if (*put)
		(*put)->refs++;
	if (*finish)
		(*finish)->refs++;
	pthread_mutex_unlock(&s->lock);
}

int responses_store_get(struct responses_store *s, const char *owner, const char *id,
			struct response_row *out)
{
	struct store_op *put, *finish;
	int rc = 0;
	*out = (struct response_row){0};
	/* Read the waiting operations first: those that leave the list meanwhile are on disk by then. */
	find_waiting(s, id, &put, &finish);
	if (put)
		response_row_copy(out, &put->row);
	else
		rc = read_row(s, id, out);
	if (!rc && finish && !out->done) {
		free(out->body);
		out->body = copy(finish->row.body);
		out->done = true;
	}
	store_op_unref(put);
	store_op_unref(finish);
	if (!rc && strcmp(out->owner, owner) != 0)
		rc = -ENOENT;
	if (rc)
		response_row_fini(out);
	return rc;
}
