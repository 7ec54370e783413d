#include "controller/jobs/file_store.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/entropy.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char file_store_schema[] =
	/* Times are seconds since 1970. */
	"CREATE TABLE files(id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, purpose TEXT NOT "
	"NULL,"
	" bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER);"
	"CREATE TABLE chunks(file TEXT NOT NULL, first INTEGER NOT NULL, data BLOB NOT NULL,"
	" PRIMARY KEY(file, first))";

enum {
	PARTS_WAITING = 64, /* chunks of one file: 16 MiB, a sixteenth of the limit of the journal's queue */
};

struct file_store {
	struct journal *journal;
	file_used_by *used_by;
	pthread_mutex_t lock;      /* guards the reader and writers */
	struct journal_db *reader; /* NULL: the journal could not be opened yet */
	bool tidied;
	struct file_writer *writers; /* list of writers with a quota */
};

struct file_writer {
	struct file_store *fs;
	struct file_info info;
	/* Under the lock of fs, with a quota only: */
	struct file_quota quota, stored; /* stored: files and bytes of the owner, without files being
					  * written */
	int64_t bytes;                   /* copies of fields of info: bytes, */
	char owner[FILE_OWNER_SIZE];     /* owner and id */
	char id[FILE_ID_SIZE];
	struct file_writer *next, **prev;
	struct buf part;
	atomic_int failed;   /* 0: all chunks are in the journal or being written; -errno: a chunk has
			      * failed */
	char why[512];       /* the reason; set before failed */
	atomic_uint refs;    /* one for the writer, one per chunk in flight */
	atomic_uint n_parts; /* chunks in the journal or in flight */
	pthread_mutex_t lock;
	pthread_cond_t done;
	unsigned n_waiting; /* chunks in flight to the journal; under the lock */
};

/* An operation of any kind. */
struct file_op {
	struct journal_op op;
	struct file_writer *writer; /* a reference, or NULL */
	struct file_info info;
	int64_t first;
	struct buf data;
	file_used_by *used_by;
	char user_of[FILE_ID_SIZE]; /* user of the file, because of which it was not deleted */
	int (*also)(void *user, struct journal_db *db);
	void (*done)(void *user, int rc, const char *why);
	void *user;
};

/* --- operations --- */

static void quota_leave(struct file_writer *w, bool stored);

static struct file_op *op_new(int (*run)(struct journal_op *, struct journal_db *));
static int run_part(struct journal_op *op, struct journal_db *db);
static int run_commit(struct journal_op *op, struct journal_db *db);
static int run_delete(struct journal_op *op, struct journal_db *db);
static int run_delete_unused(struct journal_op *op, struct journal_db *db);
static int run_sweep(struct journal_op *op, struct journal_db *db);
static int run_tidy(struct journal_op *op, struct journal_db *db);

static void writer_unref(struct file_writer *w)
{
	if (atomic_fetch_sub(&w->refs, 1) != 1)
		return;
	pthread_cond_destroy(&w->done);
	pthread_mutex_destroy(&w->lock);
	buf_fini(&w->part);
	free(w);
}

static void fail(struct file_writer *w, int rc, const char *why)
{
	pthread_mutex_lock(&w->lock);
	if (!atomic_load(&w->failed)) {
		snprintf(w->why, sizeof w->why, "%s", why);
		atomic_store(&w->failed, rc);
	}
	pthread_mutex_unlock(&w->lock);
}

static void part_done(struct file_writer *w, int rc)
{
	if (rc)
		atomic_fetch_sub(&w->n_parts, 1);
	pthread_mutex_lock(&w->lock);
	w->n_waiting--;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

static void on_done(struct journal_op *op, int rc, const char *why)
{
	struct file_op *o = (struct file_op *)op;
	struct why used;
	if (!rc && o->user_of[0]) {
		why = used.text;
		rc = err_why(&used, -EBUSY,
			     "the file is the input of %s, which has not ended: cancel that or wait for it",
			     o->user_of);
	}
	/* Keep the first reason: later errors follow from it. */
	if (rc && o->writer) {
		fail(o->writer, rc, why);
		rc = atomic_load(&o->writer->failed);
		why = o->writer->why;
	}
	if (o->writer && o->op.run == run_commit)
		quota_leave(o->writer, !rc);
	if (o->writer && o->op.run == run_part)
		part_done(o->writer, rc);
	if (rc && o->op.run == run_commit) {
		/* The commit failed, so the file never existed: delete its chunks. */
		struct file_op *gone = op_new(run_delete);
		gone->op.required = true;
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
	o->op.frees = run == run_delete || run == run_delete_unused || run == run_sweep || run == run_tidy;
	return o;
}

static int run_part(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	if (atomic_load(&o->writer->failed))
		return SQLITE_ABORT;
	return journal_run(db, "INSERT INTO chunks(file, first, data) VALUES(?, ?, ?)",
			   JOURNAL_VALUES(journal_text(o->info.id), journal_int(o->first),
					  journal_blob(o->data.p, o->data.len)));
}

static bool is_whole(struct journal_db *db, const struct file_info *f)
{
	sqlite3_stmt *s =
		journal_query(db, "SELECT coalesce(sum(length(data)), 0) FROM chunks WHERE file = ?",
			      JOURNAL_VALUES(journal_text(f->id)));
	bool whole = s && sqlite3_step(s) == SQLITE_ROW && sqlite3_column_int64(s, 0) == f->bytes;
	sqlite3_reset(s);
	return whole;
}

static int run_commit(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	const struct file_info *f = &o->info;
	/* Its chunks were put earlier, so each is done or has failed, even within this transaction. */
	if ((o->writer && atomic_load(&o->writer->failed)) || !is_whole(db, f))
		return SQLITE_ABORT;
	int rc = journal_run(db,
			     "INSERT INTO files(id, owner, name, purpose, bytes, created_at, expires_at) "
			     "VALUES(?, ?, ?, ?, ?, ?, ?)",
			     JOURNAL_VALUES(journal_text(f->id), journal_text(f->owner),
					    journal_text(f->name), journal_text(f->purpose),
					    journal_int(f->bytes), journal_int(f->created_at),
					    f->expires_at ? journal_int(f->expires_at) : journal_text(NULL)));
	return rc || !o->also ? rc : o->also(o->user, db);
}

static int run_delete(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	int rc = journal_run(db, "DELETE FROM files WHERE id = ?", JOURNAL_VALUES(journal_text(o->info.id)));
	return rc ? rc
		  : journal_run(db, "DELETE FROM chunks WHERE file = ?",
				JOURNAL_VALUES(journal_text(o->info.id)));
}

static int find_user(const struct file_op *o, struct journal_db *db, const char *file, char by[FILE_ID_SIZE])
{
	by[0] = 0;
	return o->used_by ? o->used_by(db, file, by) : SQLITE_OK;
}

/* Checked within the transaction: a batch created meanwhile either sees the file or prevents its deletion. */
static int run_delete_unused(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	int rc = find_user(o, db, o->info.id, o->user_of);
	return rc || o->user_of[0] ? rc : run_delete(op, db);
}

static int run_tidy(struct journal_op *op, struct journal_db *db)
{
	(void)op;
	return journal_exec(db, "DELETE FROM chunks WHERE file NOT IN (SELECT id FROM files)");
}

static int run_sweep(struct journal_op *op, struct journal_db *db)
{
	struct file_op *o = (struct file_op *)op;
	char by[FILE_ID_SIZE];
	struct buf ids = {0};
	int rc;
	sqlite3_stmt *s = journal_query(db, "SELECT id FROM files WHERE expires_at <= ?",
					JOURNAL_VALUES(journal_int(o->first)));
	if (!s)
		return journal_error(db);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		char id[FILE_ID_SIZE] = "";
		snprintf(id, sizeof id, "%s", (const char *)sqlite3_column_text(s, 0));
		buf_put(&ids, id, sizeof id);
	}
	sqlite3_reset(s);
	rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
	for (size_t at = 0; !rc && at < ids.len; at += FILE_ID_SIZE) {
		memcpy(o->info.id, ids.p + at, FILE_ID_SIZE);
		rc = find_user(o, db, o->info.id, by);
		if (!rc && !by[0])
			rc = run_delete(op, db);
	}
	buf_fini(&ids);
	return rc;
}

/* --- lifecycle --- */

/* Open the reader, and delete unfinished files once, before any file is written.  Under the lock. */
static int open_reader(struct file_store *fs, struct why *why)
{
	int rc = fs->reader ? 0 : journal_reader(fs->journal, &fs->reader, why);
	if (!rc && !fs->tidied) {
		fs->tidied = true;
		journal_put(fs->journal, &op_new(run_tidy)->op);
	}
	return rc;
}

bool file_store_ready(struct file_store *fs, struct why *why)
{
	pthread_mutex_lock(&fs->lock);
	int rc = open_reader(fs, why);
	pthread_mutex_unlock(&fs->lock);
	return rc == 0;
}

int file_store_open(struct journal *j, file_used_by *used_by, struct file_store **out, struct why *why)
{
	struct file_store *fs = xcalloc(1, sizeof *fs);
	fs->used_by = used_by;
	fs->journal = j;
	pthread_mutex_init(&fs->lock, NULL);
	int rc = open_reader(fs, why);
	if (rc && rc != -EAGAIN) {
		file_store_close(fs);
		return rc;
	}
	*out = fs;
	return 0;
}

void file_store_close(struct file_store *fs)
{
	if (!fs)
		return;
	journal_reader_close(fs->reader);
	pthread_mutex_destroy(&fs->lock);
	free(fs);
}

struct journal *file_store_journal(struct file_store *fs)
{
	return fs->journal;
}

void file_store_id(char id[FILE_ID_SIZE], const char *prefix)
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

int file_store_get(struct file_store *fs, const char *owner, const char *id, struct file_info *out)
{
	int rc = -EIO;
	pthread_mutex_lock(&fs->lock);
	sqlite3_stmt *s = journal_query(
		fs->reader,
		"SELECT " INFO " FROM files WHERE id = ? AND owner = ? AND "
		"(expires_at IS NULL OR expires_at > ?)",
		JOURNAL_VALUES(journal_text(id), journal_text(owner), journal_int(clock_unix())));
	if (s) {
		rc = sqlite3_step(s);
		if (rc == SQLITE_ROW)
			info_of(s, out);
		rc = rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : -EIO;
		sqlite3_reset(s);
	}
	pthread_mutex_unlock(&fs->lock);
	return rc;
}

ptrdiff_t file_store_read(struct file_store *fs, const char *id, int64_t at, void *p, size_t n)
{
	size_t got = 0;
	int rc = SQLITE_DONE;
	pthread_mutex_lock(&fs->lock);
	/* All chunks have the same size, so the first one is found by its offset. */
	sqlite3_stmt *s = journal_query(
		fs->reader, "SELECT first, data FROM chunks WHERE file = ? AND first >= ? ORDER BY first",
		JOURNAL_VALUES(journal_text(id), journal_int(at - at % FILE_PART)));
	if (s) {
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

/* Return the rowid of the file after which a list continues; 0: no such file. */
static int64_t rowid_of(struct file_store *fs, const char *owner, const char *id)
{
	int64_t rowid = 0;
	sqlite3_stmt *s = journal_query(fs->reader, "SELECT rowid FROM files WHERE id = ? AND owner = ?",
					JOURNAL_VALUES(journal_text(id), journal_text(owner)));
	if (s && sqlite3_step(s) == SQLITE_ROW)
		rowid = sqlite3_column_int64(s, 0);
	sqlite3_reset(s);
	return rowid;
}

int file_store_list(struct file_store *fs, const char *owner, const char *purpose, const char *after,
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
	sqlite3_stmt *s = journal_query(fs->reader, ascending ? up : down,
					JOURNAL_VALUES(journal_text(owner), journal_text(purpose),
						       journal_int(clock_unix()), journal_int(from),
						       journal_int((int64_t)max + 1)));
	if (s && (from || !after)) {
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

void file_store_delete(struct file_store *fs, const char *owner, const char *id,
		       void (*done)(void *user, int rc, const char *why), void *user)
{
	struct file_op *o = op_new(run_delete_unused);
	o->used_by = fs->used_by;
	o->done = done;
	o->user = user;
	int rc = file_store_get(fs, owner, id, &o->info);
	if (rc)
		on_done(&o->op, rc, rc == -ENOENT ? "no such file" : "the journal cannot be read");
	else
		journal_put(fs->journal, &o->op);
}

void file_store_remove(struct file_store *fs, const char *id,
		       void (*done)(void *user, int rc, const char *why), void *user)
{
	struct file_op *o = op_new(run_delete);
	o->done = done;
	o->user = user;
	snprintf(o->info.id, sizeof o->info.id, "%s", id);
	journal_put(fs->journal, &o->op);
}

void file_store_sweep(struct file_store *fs)
{
	struct file_op *o = op_new(run_sweep);
	o->used_by = fs->used_by;
	o->first = clock_unix();
	journal_put(fs->journal, &o->op);
}

/* --- quotas --- */

/* Return the stored count and bytes of a file being written: its row, if it is committed but on_done() was
 * not called yet. */
static struct file_quota committed(const struct file_writer *w)
{
	struct file_quota is = {0};
	sqlite3_stmt *s = journal_query(w->fs->reader, "SELECT bytes FROM files WHERE id = ?",
					JOURNAL_VALUES(journal_text(w->id)));
	if (s && sqlite3_step(s) == SQLITE_ROW)
		is = (struct file_quota){1, sqlite3_column_int64(s, 0)};
	sqlite3_reset(s);
	return is;
}

/* Count the owner's stored files into w->stored.  Under the lock. */
static void count_stored(struct file_writer *w)
{
	w->stored = (struct file_quota){0};
	sqlite3_stmt *s = journal_query(w->fs->reader,
					"SELECT count(*), sum(bytes) FROM files WHERE owner = ? AND "
					"(expires_at IS NULL OR expires_at > ?)",
					JOURNAL_VALUES(journal_text(w->owner), journal_int(clock_unix())));
	if (s && sqlite3_step(s) == SQLITE_ROW)
		w->stored = (struct file_quota){sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1)};
	sqlite3_reset(s);
	for (const struct file_writer *v = w->fs->writers; v; v = v->next)
		if (strcmp(v->owner, w->owner) == 0) {
			struct file_quota is = committed(v);
			w->stored.files -= is.files;
			w->stored.bytes -= is.bytes;
		}
}

/* Return the use of w's owner: stored files and files being written, including w.  Under the lock. */
static struct file_quota use_of(const struct file_writer *w)
{
	struct file_quota use = w->stored;
	for (const struct file_writer *v = w->fs->writers; v; v = v->next)
		if (strcmp(v->owner, w->owner) == 0) {
			use.files++;
			use.bytes += v->bytes;
		}
	return use;
}

static bool exceeds(const struct file_quota *use, const struct file_quota *quota)
{
	return (quota->files && use->files > quota->files) || (quota->bytes && use->bytes > quota->bytes);
}

static bool has_quota(const struct file_writer *w)
{
	return w->quota.files || w->quota.bytes;
}

/* Count n more bytes of w, and fail w if the quota is exceeded. */
static void quota_check(struct file_writer *w, size_t n)
{
	char why[320];
	if (!has_quota(w))
		return;
	pthread_mutex_lock(&w->fs->lock);
	if (!w->prev) {
		pthread_mutex_unlock(&w->fs->lock);
		return;
	}
	w->bytes += (int64_t)n;
	struct file_quota use = use_of(w);
	bool over = exceeds(&use, &w->quota);
	if (over) { /* files may have been deleted meanwhile */
		count_stored(w);
		use = use_of(w);
		over = exceeds(&use, &w->quota);
	}
	pthread_mutex_unlock(&w->fs->lock);
	if (!over)
		return;
	bool files = w->quota.files && use.files > w->quota.files;
	snprintf(why, sizeof why,
		 "the quota of %" PRId64 " %s is reached (%s): %" PRId64
		 " are stored, with this file it would be "
		 "%" PRId64 "; delete files that are not needed, or have the quota raised",
		 files ? w->quota.files : w->quota.bytes, files ? "files" : "bytes of files",
		 files ? "max-files" : "max-stored-bytes", files ? w->stored.files : w->stored.bytes,
		 files ? use.files : use.bytes);
	quota_leave(w, false);
	fail(w, -E2BIG, why);
}

static void quota_enter(struct file_writer *w)
{
	pthread_mutex_lock(&w->fs->lock);
	count_stored(w);
	w->next = w->fs->writers;
	w->prev = &w->fs->writers;
	if (w->next)
		w->next->prev = &w->next;
	w->fs->writers = w;
	pthread_mutex_unlock(&w->fs->lock);
	quota_check(w, 0);
}

/* Remove w from the writers: its file is written, or never will be. */
static void quota_leave(struct file_writer *w, bool stored)
{
	if (!has_quota(w))
		return;
	pthread_mutex_lock(&w->fs->lock);
	if (!w->prev) { /* it has already left */
		pthread_mutex_unlock(&w->fs->lock);
		return;
	}
	*w->prev = w->next;
	if (w->next)
		w->next->prev = w->prev;
	w->prev = NULL;
	for (struct file_writer *v = w->fs->writers; stored && v; v = v->next)
		if (strcmp(v->owner, w->owner) == 0) {
			v->stored.files++;
			v->stored.bytes += w->bytes;
		}
	pthread_mutex_unlock(&w->fs->lock);
}

/* --- writers --- */

struct file_writer *file_writer_new(struct file_store *fs, const struct file_info *info,
				    const struct file_quota *quota)
{
	struct file_writer *w = xcalloc(1, sizeof *w);
	w->fs = fs;
	w->info = *info;
	w->info.bytes = 0;
	atomic_init(&w->refs, 1);
	atomic_init(&w->failed, 0);
	atomic_init(&w->n_parts, 0);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->done, NULL);
	if (quota && (quota->files || quota->bytes) && fs->reader) {
		w->quota = *quota;
		memcpy(w->owner, w->info.owner, sizeof w->owner);
		memcpy(w->id, w->info.id, sizeof w->id);
		quota_enter(w);
	}
	return w;
}

static void put_part(struct file_writer *w)
{
	if (atomic_load(&w->failed)) {
		buf_clear(&w->part);
		return;
	}
	struct file_op *o = op_new(run_part);
	o->info = w->info;
	o->first = w->info.bytes - (int64_t)w->part.len;
	o->data = w->part;
	o->op.bytes += o->data.len;
	o->op.need = JOURNAL_FILE;
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
	quota_check(w, n);
	while (n && !atomic_load(&w->failed)) {
		size_t room = FILE_PART - w->part.len, take = n < room ? n : room;
		buf_put(&w->part, from, take);
		w->info.bytes += (int64_t)take;
		from += take;
		n -= take;
		if (w->part.len == FILE_PART)
			put_part(w);
	}
	return atomic_load(&w->failed);
}

const char *file_writer_why(const struct file_writer *w)
{
	return atomic_load(&w->failed) ? w->why : "";
}

int file_writer_wait(struct file_writer *w)
{
	pthread_mutex_lock(&w->lock);
	/* Chunks are also done when the disk fails. */
	while (w->n_waiting >= PARTS_WAITING)
		pthread_cond_wait(&w->done, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return atomic_load(&w->failed);
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
	o->writer = w; /* the writer's own reference */
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
	quota_leave(w, false);
	if (!atomic_load(&w->n_parts)) {
		writer_unref(w);
		return;
	}
	/* The disk may be full: the chunks free space as soon as possible. */
	struct file_op *o = op_new(run_delete);
	o->op.required = true;
	o->info = w->info;
	o->writer = w;
	journal_put(w->fs->journal, &o->op);
}
