#include "controller/filestore.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "controller/entropy.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_WAITING = 64 }; /* of a file: 16 MiB, a sixteenth of what the journal holds for all */

struct filestore {
	struct journal *journal;
	pthread_mutex_t lock; /* of the reader */
	struct journal_db *reader;
};

struct file_writer {
	struct filestore *fs;
	struct file_info info;
	struct buf part;
	atomic_bool failed;  /* a part is not in the journal */
	atomic_uint refs;    /* the writer's own, one per part under way */
	atomic_uint n_parts; /* in the journal, or under way to it */
	pthread_mutex_t lock;
	pthread_cond_t told;
	unsigned n_waiting; /* under the lock: parts that the journal has not told of */
};

/* One operation of any kind. */
struct file_op {
	struct journal_op op;
	struct file_writer *writer; /* a reference, or NULL */
	struct file_info info;
	int64_t first;
	struct buf data;
	char used_by[FILE_ID_SIZE]; /* a live batch that has it as its input: it was not deleted */
	int (*also)(void *user, struct journal_db *db);
	void (*done)(void *user, int rc, const char *why);
	void *user;
};

/* --- operations --- */

static struct file_op *op_new(int (*run)(struct journal_op *, struct journal_db *));
static int run_part(struct journal_op *op, struct journal_db *db);
static int run_commit(struct journal_op *op, struct journal_db *db);
static int run_delete(struct journal_op *op, struct journal_db *db);

static void writer_unref(struct file_writer *w)
{
	if (atomic_fetch_sub(&w->refs, 1) != 1)
		return;
	pthread_cond_destroy(&w->told);
	pthread_mutex_destroy(&w->lock);
	buf_fini(&w->part);
	free(w);
}

static void part_told(struct file_writer *w, int rc)
{
	if (rc)
		atomic_fetch_sub(&w->n_parts, 1);
	pthread_mutex_lock(&w->lock);
	w->n_waiting--;
	pthread_cond_signal(&w->told);
	pthread_mutex_unlock(&w->lock);
}

static void on_done(struct journal_op *op, int rc, const char *why)
{
	struct file_op *o = (struct file_op *)op;
	char used[160];
	if (!rc && o->used_by[0]) {
		why = used;
		rc = err_why(used, sizeof used, -EBUSY,
			     "the file is the input of %s, which has not ended: cancel that or wait for it",
			     o->used_by);
	}
	if (rc && o->writer)
		atomic_store(&o->writer->failed, true);
	if (o->writer && o->op.run == run_part)
		part_told(o->writer, rc);
	if (rc && o->op.run == run_commit) {
		/* It never was a file: its parts go. */
		struct file_op *gone = op_new(run_delete);
		gone->op.must = true;
		gone->info = o->info;
		journal_put(o->writer->fs->journal, &gone->op);
	}
	if (o->done)
		o->done(o->user, rc, why);
	if (o->writer)
		writer_unref(o->writer);
	buf_fini(&o->data);
	free(o);
}

static struct file_op *op_new(int (*run)(struct journal_op *, struct journal_db *))
{
	struct file_op *o = xcalloc(1, sizeof *o);
	o->op.run = run;
	o->op.done = on_done;
	o->op.bytes = sizeof *o;
	return o;
}

static int step(sqlite3_stmt *s)
{
	int rc = sqlite3_step(s);
	sqlite3_reset(s);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int prepare(struct journal_db *db, const char *sql, sqlite3_stmt **out)
{
	*out = journal_prepare(db, sql);
	return *out ? SQLITE_OK : sqlite3_errcode(journal_sqlite(db));
}

/* A statement with one text. */
static int exec_text(struct journal_db *db, const char *sql, const char *text)
{
	sqlite3_stmt *s;
	int rc = prepare(db, sql, &s);
	if (rc)
		return rc;
	sqlite3_bind_text(s, 1, text, -1, SQLITE_STATIC);
	return step(s);
}

static int run_part(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	sqlite3_stmt *s;
	int rc = prepare(db, "INSERT INTO chunks(file, first, data) VALUES(?, ?, ?)", &s);
	if (rc)
		return rc;
	sqlite3_bind_text(s, 1, o->info.id, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 2, o->first);
	sqlite3_bind_blob64(s, 3, o->data.p ? o->data.p : "", o->data.len, SQLITE_STATIC);
	return step(s);
}

static int run_commit(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	sqlite3_stmt *s;
	/* Parts were put before: they have been carried out, or never will be. */
	if (o->writer && atomic_load(&o->writer->failed))
		return SQLITE_ABORT;
	int rc = prepare(db,
			 "INSERT INTO files(id, owner, name, purpose, bytes, created_at, expires_at) "
			 "VALUES(?, ?, ?, ?, ?, ?, ?)",
			 &s);
	if (rc)
		return rc;
	sqlite3_bind_text(s, 1, o->info.id, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 2, o->info.owner, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 3, o->info.name, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 4, o->info.purpose, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 5, o->info.bytes);
	sqlite3_bind_int64(s, 6, o->info.created_at);
	if (o->info.expires_at)
		sqlite3_bind_int64(s, 7, o->info.expires_at);
	rc = step(s);
	return rc || !o->also ? rc : o->also(o->user, db);
}

static int run_delete(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	int rc = exec_text(db, "DELETE FROM files WHERE id = ?", o->info.id);
	return rc ? rc : exec_text(db, "DELETE FROM chunks WHERE file = ?", o->info.id);
}

/* What live batches read.  A batch that starts again reads its input from the beginning. */
#define LIVE_INPUTS                                                                                          \
	"(SELECT coalesce(json_extract(object, '$.input_file_id'), '') FROM batches WHERE state = 0 AND "    \
	"json_valid(object))"

/* As a client asks: in the transaction, so that no batch is created meanwhile. */
static int run_delete_unused(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	sqlite3_stmt *s;
	o->used_by[0] = 0;
	int rc = prepare(db,
			 "SELECT id FROM batches WHERE state = 0 AND json_valid(object) AND "
			 "json_extract(object, '$.input_file_id') = ? LIMIT 1",
			 &s);
	if (rc)
		return rc;
	sqlite3_bind_text(s, 1, o->info.id, -1, SQLITE_STATIC);
	rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		snprintf(o->used_by, sizeof o->used_by, "%s", (const char *)sqlite3_column_text(s, 0));
	sqlite3_reset(s);
	return rc == SQLITE_DONE ? run_delete(op, db) : rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int run_tidy(struct journal_op *op, struct journal_db *db)
{
	(void)op;
	return journal_exec(db, "DELETE FROM chunks WHERE file NOT IN (SELECT id FROM files)");
}

static int run_sweep(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	sqlite3_stmt *s;
	int rc =
		prepare(db,
			"DELETE FROM chunks WHERE file IN (SELECT id FROM files WHERE expires_at IS NOT NULL "
			"AND expires_at <= ? AND id NOT IN " LIVE_INPUTS ")",
			&s);
	if (rc)
		return rc;
	sqlite3_bind_int64(s, 1, o->first);
	if ((rc = step(s)) ||
	    (rc = prepare(db,
			  "DELETE FROM files WHERE expires_at IS NOT NULL AND expires_at <= ? AND id NOT "
			  "IN " LIVE_INPUTS,
			  &s)))
		return rc;
	sqlite3_bind_int64(s, 1, o->first);
	return step(s);
}

/* --- lifecycle --- */

int filestore_open(struct journal *j, struct filestore **out, char *why, size_t why_n)
{
	struct filestore *fs = xcalloc(1, sizeof *fs);
	int rc = journal_reader(j, &fs->reader, why, why_n);
	if (rc) {
		free(fs);
		return rc;
	}
	fs->journal = j;
	pthread_mutex_init(&fs->lock, NULL);
	journal_put(j, &op_new(run_tidy)->op);
	*out = fs;
	return 0;
}

void filestore_close(struct filestore *fs)
{
	if (!fs)
		return;
	journal_reader_close(fs->reader);
	pthread_mutex_destroy(&fs->lock);
	free(fs);
}

struct journal *filestore_journal(struct filestore *fs)
{
	return fs->journal;
}

void filestore_id(char id[FILE_ID_SIZE], const char *prefix)
{
	snprintf(id, FILE_ID_SIZE, "%s%016" PRIx64 "%016" PRIx64, prefix, entropy_u64(), entropy_u64());
}

/* --- reading --- */

#define INFO "id, owner, name, purpose, bytes, created_at, expires_at"

static void text(char *out, size_t n, sqlite3_stmt *s, int column)
{
	const char *t = (const char *)sqlite3_column_text(s, column);
	snprintf(out, n, "%s", t ? t : "");
}

static void info_of(sqlite3_stmt *s, struct file_info *f)
{
	*f = (struct file_info){.bytes = sqlite3_column_int64(s, 4),
				.created_at = sqlite3_column_int64(s, 5),
				.expires_at = sqlite3_column_int64(s, 6)};
	text(f->id, sizeof f->id, s, 0);
	text(f->owner, sizeof f->owner, s, 1);
	text(f->name, sizeof f->name, s, 2);
	text(f->purpose, sizeof f->purpose, s, 3);
}

int filestore_get(struct filestore *fs, const char *owner, const char *id, struct file_info *out)
{
	int rc = -EIO;
	pthread_mutex_lock(&fs->lock);
	sqlite3_stmt *s =
		journal_prepare(fs->reader, "SELECT " INFO " FROM files WHERE id = ? AND owner = ? AND "
					    "(expires_at IS NULL OR expires_at > ?)");
	if (s) {
		sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
		sqlite3_bind_text(s, 2, owner, -1, SQLITE_STATIC);
		sqlite3_bind_int64(s, 3, clock_unix());
		rc = sqlite3_step(s);
		if (rc == SQLITE_ROW)
			info_of(s, out);
		rc = rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : -EIO;
		sqlite3_reset(s);
	}
	pthread_mutex_unlock(&fs->lock);
	return rc;
}

ptrdiff_t filestore_read(struct filestore *fs, const char *id, int64_t at, void *p, size_t n)
{
	size_t got = 0;
	int rc = SQLITE_DONE;
	pthread_mutex_lock(&fs->lock);
	/* Parts are of one size, so that the first one is found by its place. */
	sqlite3_stmt *s =
		journal_prepare(fs->reader, "SELECT first, data FROM chunks WHERE file = ? AND first >= ? "
					    "ORDER BY first");
	if (s) {
		sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
		sqlite3_bind_int64(s, 2, at - at % FILE_PART);
		while (got < n && (rc = sqlite3_step(s)) == SQLITE_ROW) {
			int64_t skip = at + (int64_t)got - sqlite3_column_int64(s, 0);
			int64_t have = sqlite3_column_bytes(s, 1);
			const char *data = sqlite3_column_blob(s, 1);
			if (skip < 0 || skip >= have)
				break;
			size_t take = (size_t)(have - skip) < n - got ? (size_t)(have - skip) : n - got;
			memcpy((char *)p + got, data + skip, take);
			got += take;
		}
		sqlite3_reset(s);
	}
	pthread_mutex_unlock(&fs->lock);
	return s && (rc == SQLITE_DONE || rc == SQLITE_ROW) ? (ptrdiff_t)got : -EIO;
}

/* Where the list begins; 0: at its end. */
static int64_t rowid_of(struct filestore *fs, const char *owner, const char *id)
{
	int64_t rowid = 0;
	sqlite3_stmt *s = journal_prepare(fs->reader, "SELECT rowid FROM files WHERE id = ? AND owner = ?");
	if (!s)
		return 0;
	sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 2, owner, -1, SQLITE_STATIC);
	if (sqlite3_step(s) == SQLITE_ROW)
		rowid = sqlite3_column_int64(s, 0);
	sqlite3_reset(s);
	return rowid;
}

int filestore_list(struct filestore *fs, const char *owner, const char *purpose, const char *after,
		   bool ascending, struct file_info *out, int max, bool *more)
{
	static const char up[] =
		"SELECT " INFO " FROM files WHERE owner = ?1 AND (?2 IS NULL OR purpose = ?2) "
		"AND (expires_at IS NULL OR expires_at > ?3) AND rowid > ?4 "
		"ORDER BY rowid LIMIT ?5";
	static const char down[] =
		"SELECT " INFO " FROM files WHERE owner = ?1 AND (?2 IS NULL OR purpose = ?2) "
		"AND (expires_at IS NULL OR expires_at > ?3) AND rowid < ?4 "
		"ORDER BY rowid DESC LIMIT ?5";
	int n = 0, rc = SQLITE_ERROR;
	*more = false;
	pthread_mutex_lock(&fs->lock);
	int64_t from = after ? rowid_of(fs, owner, after) : ascending ? 0 : INT64_MAX;
	sqlite3_stmt *s = journal_prepare(fs->reader, ascending ? up : down);
	if (s && (from || !after)) {
		sqlite3_bind_text(s, 1, owner, -1, SQLITE_STATIC);
		if (purpose)
			sqlite3_bind_text(s, 2, purpose, -1, SQLITE_STATIC);
		sqlite3_bind_int64(s, 3, clock_unix());
		sqlite3_bind_int64(s, 4, from);
		sqlite3_bind_int64(s, 5, (int64_t)max + 1);
		while ((rc = sqlite3_step(s)) == SQLITE_ROW && !(*more = n == max))
			info_of(s, &out[n++]);
		sqlite3_reset(s);
	}
	pthread_mutex_unlock(&fs->lock);
	if (after && !from)
		return -ENOENT;
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? n : -EIO;
}

/* --- writing --- */

void filestore_delete(struct filestore *fs, const char *owner, const char *id,
		      void (*done)(void *user, int rc, const char *why), void *user)
{
	struct file_op *o = op_new(run_delete_unused);
	o->done = done;
	o->user = user;
	int rc = filestore_get(fs, owner, id, &o->info);
	if (rc)
		on_done(&o->op, rc, rc == -ENOENT ? "no such file" : "the journal cannot be read");
	else
		journal_put(fs->journal, &o->op);
}

void filestore_remove(struct filestore *fs, const char *id, void (*done)(void *user, int rc, const char *why),
		      void *user)
{
	struct file_op *o = op_new(run_delete);
	o->done = done;
	o->user = user;
	snprintf(o->info.id, sizeof o->info.id, "%s", id);
	journal_put(fs->journal, &o->op);
}

void filestore_sweep(struct filestore *fs)
{
	struct file_op *o = op_new(run_sweep);
	o->first = clock_unix();
	journal_put(fs->journal, &o->op);
}

struct file_writer *file_writer_new(struct filestore *fs, const struct file_info *info)
{
	struct file_writer *w = xcalloc(1, sizeof *w);
	w->fs = fs;
	w->info = *info;
	w->info.bytes = 0;
	atomic_init(&w->refs, 1);
	atomic_init(&w->failed, false);
	atomic_init(&w->n_parts, 0);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->told, NULL);
	return w;
}

static void put_part(struct file_writer *w)
{
	struct file_op *o = op_new(run_part);
	o->info = w->info;
	o->first = w->info.bytes - (int64_t)w->part.len;
	o->data = w->part;
	o->op.bytes += o->data.cap;
	o->writer = w;
	w->part = (struct buf){0};
	atomic_fetch_add(&w->refs, 1);
	atomic_fetch_add(&w->n_parts, 1);
	pthread_mutex_lock(&w->lock);
	w->n_waiting++;
	pthread_mutex_unlock(&w->lock);
	journal_put(w->fs->journal, &o->op);
}

int file_writer_put(struct file_writer *w, const void *p, size_t n)
{
	const char *from = p;
	while (n) {
		size_t room = FILE_PART - w->part.len, take = n < room ? n : room;
		buf_put(&w->part, from, take);
		w->info.bytes += (int64_t)take;
		from += take;
		n -= take;
		if (w->part.len == FILE_PART)
			put_part(w);
	}
	return atomic_load(&w->failed) ? -EAGAIN : 0;
}

int file_writer_wait(struct file_writer *w)
{
	pthread_mutex_lock(&w->lock);
	/* A disk that fails tells, too. */
	while (w->n_waiting >= PARTS_WAITING)
		pthread_cond_wait(&w->told, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return atomic_load(&w->failed) ? -EAGAIN : 0;
}

void file_writer_describe(struct file_writer *w, const struct file_info *info)
{
	int64_t bytes = w->info.bytes;
	w->info = *info;
	w->info.bytes = bytes;
}

int64_t file_writer_bytes(const struct file_writer *w)
{
	return w->info.bytes;
}

void file_writer_commit(struct file_writer **pw, int (*also)(void *user, struct journal_db *db),
			void (*done)(void *user, int rc, const char *why), void *user)
{
	struct file_writer *w = *pw;
	*pw = NULL;
	if (w->part.len)
		put_part(w);
	struct file_op *o = op_new(run_commit);
	o->info = w->info;
	o->writer = w; /* our reference */
	o->also = also;
	o->done = done;
	o->user = user;
	journal_put(w->fs->journal, &o->op);
}

void file_writer_abort(struct file_writer **pw)
{
	struct file_writer *w = *pw;
	*pw = NULL;
	if (!w)
		return;
	if (!atomic_load(&w->n_parts)) {
		writer_unref(w);
		return;
	}
	/* Files are given up when the disk is full: what they hold of it goes as soon as it can. */
	struct file_op *o = op_new(run_delete);
	o->op.must = true;
	o->info = w->info;
	o->writer = w;
	journal_put(w->fs->journal, &o->op);
}
