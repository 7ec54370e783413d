#include "controller/journal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	APPLICATION_ID = 0x5175726e, /* "Qurn" in the file's header */
	SCHEMA = 1,                  /* user_version */
	STATEMENTS_MAX = 64,
	OPS_MAX = 65536, /* waiting */
	BUSY_MS = 10000, /* others only read: nobody holds it for long */
	RETRY_MS = 1000,
	CHECK_BYTES_MAX = 1 << 30, /* a larger file is not read through when it is opened */
	WAL_BYTES_MAX = 64 << 20,  /* what the -wal file is cut to */
	VACUUM_PAGES = 256,        /* given back after a transaction, at most */
	VACUUM_SPARE_PAGES = 256,  /* free pages that stay for what comes next */
};
#define BYTES_MAX ((size_t)256 << 20) /* waiting */

struct journal_db {
	sqlite3 *db;
	struct {
		const char *sql; /* static: compared as a pointer */
		sqlite3_stmt *stmt;
	} cache[STATEMENTS_MAX];
	unsigned n;
};

struct queue {
	struct journal_op *first, **last;
};

struct journal {
	char *path;
	int lock_fd;
	bool locked;
	struct journal_db *db; /* the thread's, once it runs */
	bool lost;             /* the thread's: something that must not be lost was given up */
	pthread_t thread;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t more;  /* for the thread */
	pthread_cond_t idle;  /* for journal_end() */
	struct queue ops;
	size_t n_ops, n_bytes; /* put and not told */
	uint64_t n_put;        /* ever */
	bool ending;           /* nothing is tried again */
	bool quit;
	bool failing;
	char why[256];
	struct journal_stats stats;
};

/* --- connections --- */

static const char *const schema[] = {
	"CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID",
	/* state: 0 unfinished, 1 ended.  Times are microseconds since 1970. */
	"CREATE TABLE jobs(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, key TEXT,"
	" body BLOB NOT NULL, accepted_at INTEGER NOT NULL, request BLOB, state INTEGER NOT NULL,"
	" cancelled INTEGER NOT NULL DEFAULT 0, finished_at INTEGER, end BLOB, row TEXT)",
	"CREATE UNIQUE INDEX jobs_key ON jobs(owner, key) WHERE key IS NOT NULL",
	"CREATE INDEX jobs_unfinished ON jobs(n) WHERE state = 0",
	"CREATE INDEX jobs_finished ON jobs(finished_at) WHERE state = 1",
	/* What unfinished jobs have so far, in the order in which it came: a run of tokens from
	 * `first` on; with first = -1 an output that has ended; with -2 the numerics class of what
	 * follows. */
	"CREATE TABLE tokens(job INTEGER NOT NULL, output INTEGER NOT NULL, first INTEGER NOT NULL,"
	" data BLOB NOT NULL)",
	"CREATE INDEX tokens_job ON tokens(job)",
	"CREATE TABLE files(id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, purpose TEXT NOT "
	"NULL,"
	" bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER)",
	"CREATE TABLE chunks(file TEXT NOT NULL, first INTEGER NOT NULL, data BLOB NOT NULL,"
	" PRIMARY KEY(file, first))",
	"CREATE TABLE batches(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
	" state INTEGER NOT NULL, created_at INTEGER NOT NULL, object TEXT NOT NULL)",
	"CREATE INDEX batches_live ON batches(n) WHERE state = 0",
	/* One per line of a batch's input that has ended; failed: it belongs to the error file. */
	"CREATE TABLE lines(batch INTEGER NOT NULL, line INTEGER NOT NULL, failed INTEGER NOT NULL,"
	" data BLOB NOT NULL, PRIMARY KEY(batch, line))",
};

sqlite3 *journal_sqlite(struct journal_db *db)
{
	return db->db;
}

sqlite3_stmt *journal_prepare(struct journal_db *db, const char *sql)
{
	for (unsigned i = 0; i < db->n; i++)
		if (db->cache[i].sql == sql) {
			sqlite3_reset(db->cache[i].stmt);
			sqlite3_clear_bindings(db->cache[i].stmt);
			return db->cache[i].stmt;
		}
	assert(db->n < STATEMENTS_MAX);
	sqlite3_stmt *s = NULL;
	if (sqlite3_prepare_v3(db->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL))
		return NULL;
	db->cache[db->n].sql = sql;
	db->cache[db->n++].stmt = s;
	return s;
}

int journal_exec(struct journal_db *db, const char *sql)
{
	return sqlite3_exec(db->db, sql, NULL, NULL, NULL);
}

static void db_close(struct journal_db *db)
{
	if (!db)
		return;
	for (unsigned i = 0; i < db->n; i++)
		sqlite3_finalize(db->cache[i].stmt);
	sqlite3_close(db->db);
	free(db);
}

/* What a code of SQLite means to whoever reads it. */
static int sqlite_why(const char *path, sqlite3 *db, int rc, char *why, size_t n)
{
	switch (rc & 0xff) {
	case SQLITE_NOTADB:
		return err_why(why, n, -EBADMSG, "%s is no journal of quern; name another file", path);
	case SQLITE_CORRUPT:
		return err_why(why, n, -EBADMSG,
			       "%s is damaged; move it (and %s-wal) away, or recover what is left of it with "
			       "sqlite3's .recover",
			       path, path);
	case SQLITE_FULL:
		return err_why(why, n, -ENOSPC, "%s cannot be written: the disk is full", path);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_why(why, n, -EBUSY, "%s is being written by another program", path);
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return err_why(why, n, -EACCES, "%s cannot be written: permission is missing", path);
	default:
		break;
	}
	/* SQLite remembers the error of opening only in some versions. */
	int said = errno, e = db ? sqlite3_system_errno(db) : 0;
	if (!e && (rc & 0xff) == SQLITE_IOERR)
		e = said;
	bool full = e == ENOSPC || e == EFBIG || e == EDQUOT;
	return err_why(why, n, full ? -ENOSPC : -EIO, "%s cannot be written: %s%s%s", path,
		       db ? sqlite3_errmsg(db) : sqlite3_errstr(rc), e ? ": " : "", e ? strerror(e) : "");
}

static int64_t get_int(sqlite3 *db, const char *sql, int *rc)
{
	sqlite3_stmt *s = NULL;
	int64_t v = 0;
	*rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
	if (!*rc) {
		*rc = sqlite3_step(s);
		if (*rc == SQLITE_ROW) {
			v = sqlite3_column_int64(s, 0);
			*rc = SQLITE_OK;
		} else if (*rc == SQLITE_DONE) {
			*rc = SQLITE_OK;
		}
	}
	sqlite3_finalize(s);
	return v;
}

static int db_open(const char *path, int flags, struct journal_db **out, char *why, size_t why_n)
{
	struct journal_db *d = xcalloc(1, sizeof *d);
	int on;
	int rc = sqlite3_open_v2(path, &d->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
	if (!rc)
		rc = sqlite3_busy_timeout(d->db, BUSY_MS);
	/* A file may have been made by somebody else. */
	if (!rc)
		rc = sqlite3_db_config(d->db, SQLITE_DBCONFIG_DEFENSIVE, 1, &on);
	if (!rc)
		rc = sqlite3_db_config(d->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, &on);
	if (!rc)
		rc = sqlite3_exec(d->db, "PRAGMA cell_size_check = on", NULL, NULL, NULL);
	if (rc) {
		rc = sqlite_why(path, d->db, rc, why, why_n);
		db_close(d);
		return rc;
	}
	*out = d;
	return 0;
}

/* --- opening --- */

/* The file of that name, opened and locked.  Whoever refuses its journal removes it: one that was opened
 * before and locked after that is not the one that others find.  *fd negative: it cannot be opened. */
static int lock_file(const char *name, int *fd)
{
	struct stat mine, there;
	for (;;) {
		*fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB))
			return -errno;
		if (fstat(*fd, &mine) == 0 && stat(name, &there) == 0 && mine.st_ino == there.st_ino &&
		    mine.st_dev == there.st_dev)
			return 0;
		close(*fd);
	}
}

/* Of a journal that was refused, before the lock is given up. */
static void remove_lock(const struct journal *j)
{
	char *name = xasprintf("%s-lock", j->path);
	unlink(name);
	free(name);
}

static int take_lock(struct journal *j, char *why, size_t why_n)
{
	struct stat st;
	if (stat(j->path, &st) == 0 && !S_ISREG(st.st_mode))
		return err_why(why, why_n, -EINVAL, "journal %s is not a regular file", j->path);
	char *name = xasprintf("%s-lock", j->path), who[160] = "";
	int rc = lock_file(name, &j->lock_fd);
	if (j->lock_fd < 0) {
		rc = err_why(why, why_n, rc, "journal %s: %s", name, strerror(-rc));
	} else if (rc) {
		ssize_t n = pread(j->lock_fd, who, sizeof who - 1, 0);
		who[n > 0 ? n : 0] = 0;
		who[strcspn(who, "\n")] = 0;
		rc = err_why(
			why, why_n, -EBUSY,
			"journal %s is in use by %s; a journal belongs to one controller: name another file",
			j->path, who[0] ? who : "another controller");
	} else {
		char host[64] = "";
		j->locked = true;
		gethostname(host, sizeof host - 1);
		int n = snprintf(who, sizeof who, "process %ld of %s\n", (long)getpid(), host);
		/* Only a text for people: what locks is the lock. */
		if (ftruncate(j->lock_fd, 0) || pwrite(j->lock_fd, who, (size_t)n, 0) < 0)
			log_debug("journal", "cannot write %s: %s", name, strerror(errno));
	}
	free(name);
	return rc;
}

static int make_schema(struct journal *j, const char *model)
{
	sqlite3 *db = j->db->db;
	int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	for (size_t i = 0; !rc && i < sizeof schema / sizeof schema[0]; i++)
		rc = sqlite3_exec(db, schema[i], NULL, NULL, NULL);
	char pragmas[128];
	snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d",
		 APPLICATION_ID, SCHEMA);
	if (!rc)
		rc = sqlite3_exec(db, pragmas, NULL, NULL, NULL);
	sqlite3_stmt *s = NULL;
	if (!rc)
		rc = sqlite3_prepare_v2(db, "INSERT INTO meta VALUES('model', ?)", -1, &s, NULL);
	if (!rc) {
		sqlite3_bind_text(s, 1, model, -1, SQLITE_STATIC);
		rc = sqlite3_step(s) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
	}
	sqlite3_finalize(s);
	return rc ? rc : sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
}

/* The file is ours, of a version that we know, of this model. */
static int check_identity(struct journal *j, const char *model, char *why, size_t why_n)
{
	sqlite3 *db = j->db->db;
	int rc, rc2;
	int64_t id = get_int(db, "PRAGMA application_id", &rc);
	int64_t version = get_int(db, "PRAGMA user_version", &rc2);
	if (rc || rc2)
		return sqlite_why(j->path, db, rc ? rc : rc2, why, why_n);
	if (id != APPLICATION_ID)
		return err_why(why, why_n, -EBADMSG,
			       "%s is a database of another program, no journal of quern; name another file",
			       j->path);
	if (version != SCHEMA)
		return err_why(
			why, why_n, -EBADMSG,
			"journal %s has format %lld, this quern knows %d: use the quern that wrote it, or "
			"another file",
			j->path, (long long)version, SCHEMA);
	sqlite3_stmt *s = NULL;
	rc = sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE name = 'model'", -1, &s, NULL);
	if (!rc)
		rc = sqlite3_step(s);
	const char *had = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		rc = sqlite_why(j->path, db, rc, why, why_n);
	else if (!had || strcmp(had, model) != 0)
		rc = err_why(
			why, why_n, -EBADMSG,
			"journal %s belongs to another model (%.100s, this is %.100s): its jobs cannot go on "
			"here; name another file",
			j->path, had ? had : "unknown", model);
	else
		rc = 0;
	sqlite3_finalize(s);
	return rc;
}

/* Damage that SQLite can see is found now, and not in the middle of a job. */
static int check_pages(struct journal *j, char *why, size_t why_n)
{
	sqlite3 *db = j->db->db;
	struct stat st;
	sqlite3_stmt *s = NULL;
	if (stat(j->path, &st) == 0 && st.st_size > CHECK_BYTES_MAX)
		return 0;
	int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &s, NULL);
	if (!rc)
		rc = sqlite3_step(s);
	bool ok = rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(s, 0), "ok") == 0;
	sqlite3_finalize(s);
	if (ok)
		return 0;
	return sqlite_why(j->path, db, rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_CORRUPT : rc, why,
			  why_n);
}

static int open_file(struct journal *j, const char *model, char *why, size_t why_n)
{
	/* SQLite's own files take its mode: what is asked here is for nobody else to read. */
	int fd = open(j->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_why(why, why_n, -errno, "journal %s: %s", j->path, strerror(errno));
	close(fd);
	int rc = db_open(j->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &j->db, why, why_n);
	if (rc)
		return rc;
	sqlite3 *db = j->db->db;
	char pragmas[256];
	snprintf(pragmas, sizeof pragmas,
		 "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
		 "PRAGMA journal_size_limit = %d",
		 WAL_BYTES_MAX);
	/* Before anything of ours is written into it: whose is it?  An empty one has no tables. */
	int64_t n = get_int(db, "SELECT count(*) FROM sqlite_schema", &rc);
	if (rc)
		return sqlite_why(j->path, db, rc, why, why_n);
	if (n && (rc = check_identity(j, model, why, why_n)))
		return rc;
	if ((rc = sqlite3_exec(db, pragmas, NULL, NULL, NULL)) || (!n && (rc = make_schema(j, model))))
		return sqlite_why(j->path, db, rc, why, why_n);
	return check_pages(j, why, why_n);
}

/* --- the thread --- */

static bool disk_error(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_FULL:
	case SQLITE_IOERR:
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_NOMEM:
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_PERM:
	case SQLITE_PROTOCOL:
		return true;
	default:
		return false;
	}
}

static void queue_init(struct queue *q)
{
	q->first = NULL;
	q->last = &q->first;
}

static void queue_push(struct queue *q, struct journal_op *op)
{
	op->next = NULL;
	*q->last = op;
	q->last = &op->next;
}

static struct journal_op *queue_pop(struct queue *q)
{
	struct journal_op *op = q->first;
	if (op && !(q->first = op->next))
		q->last = &q->first;
	return op;
}

static void tell(struct journal *j, struct journal_op *op, int rc, const char *why)
{
	size_t bytes = op->bytes;
	op->done(op, rc, why);
	pthread_mutex_lock(&j->lock);
	j->n_ops--;
	j->n_bytes -= bytes;
	pthread_mutex_unlock(&j->lock);
}

static void set_failing(struct journal *j, const char *why)
{
	pthread_mutex_lock(&j->lock);
	bool was = j->failing;
	j->failing = why != NULL;
	if (why)
		snprintf(j->why, sizeof j->why, "%s", why);
	pthread_mutex_unlock(&j->lock);
	if (why && !was)
		log_error("journal", "durable jobs are refused: %s", why);
	else if (!why && was)
		log_info("journal", "writes again");
}

static int run_one(struct journal *j, struct journal_op *op)
{
	int rc = journal_exec(j->db, "SAVEPOINT op");
	if (rc)
		return rc;
	rc = op->run(op, j->db);
	if (rc) {
		if (!disk_error(rc)) {
			int rc2 = journal_exec(j->db, "ROLLBACK TO op");
			if (rc2)
				return rc2;
		} else {
			return rc;
		}
	}
	int rc2 = journal_exec(j->db, "RELEASE op");
	return rc2 ? rc2 : rc;
}

/* What the transaction says of its operations: [n] codes, in order.  Not SQLITE_OK: nothing of
 * it is there. */
static int transaction(struct journal *j, struct queue *q, int *codes)
{
	int rc = journal_exec(j->db, "BEGIN IMMEDIATE");
	size_t i = 0;
	for (struct journal_op *op = q->first; !rc && op; op = op->next, i++) {
		codes[i] = run_one(j, op);
		if (codes[i] && disk_error(codes[i]))
			rc = codes[i];
	}
	/* A file that cannot take a byte more is noticed although nobody wants to write. */
	if (!rc && !q->first)
		rc = journal_exec(j->db, "REPLACE INTO meta VALUES('probe', randomblob(8))");
	if (!rc)
		rc = journal_exec(j->db, "COMMIT");
	return rc;
}

/* What comes behind something that was lost must not be there without it: the next life finds what was
 * written before, and goes on from there. */
static void refuse_all(struct journal *j, struct queue *q)
{
	struct journal_op *op;
	while ((op = queue_pop(q)))
		tell(j, op, -EIO, j->why);
}

/* One transaction of all that is in q; what must be tried again stays there. */
static void commit(struct journal *j, struct queue *q, size_t n, bool last)
{
	int *codes = xcalloc(n ? n : 1, sizeof *codes);
	struct queue again;
	char why[256] = "";
	errno = 0;
	int err = 0, rc = transaction(j, q, codes);
	if (rc) {
		err = sqlite_why(j->path, j->db->db, rc, why, sizeof why);
		if (!sqlite3_get_autocommit(j->db->db))
			journal_exec(j->db, "ROLLBACK");
	}
	set_failing(j, rc ? why : NULL);
	queue_init(&again);
	struct journal_op *op;
	for (size_t i = 0; (op = queue_pop(q)); i++) {
		if (rc && op->must && !last) {
			if (op->held)
				op->held(op, err, why);
			op->held = NULL;
			queue_push(&again, op);
		} else if (rc) {
			j->lost = j->lost || op->must;
			tell(j, op, err, why);
		} else if (codes[i]) {
			log_error("journal", "refused: %s", sqlite3_errstr(codes[i]));
			tell(j, op, -EIO, sqlite3_errstr(codes[i]));
		} else {
			tell(j, op, 0, "");
		}
	}
	pthread_mutex_lock(&j->lock);
	j->stats.n_commits += !rc;
	j->stats.n_ops += rc ? 0 : n;
	pthread_mutex_unlock(&j->lock);
	free(codes);
	*q = again;
	if (!q->first)
		q->last = &q->first;
}

/* Space that was freed goes back to the file system, a bounded part at a time. */
static void vacuum(struct journal *j)
{
	int rc;
	int64_t n = get_int(j->db->db, "PRAGMA freelist_count", &rc);
	char text[64];
	if (rc || n <= VACUUM_SPARE_PAGES)
		return;
	n -= VACUUM_SPARE_PAGES;
	snprintf(text, sizeof text, "PRAGMA incremental_vacuum(%d)",
		 n < VACUUM_PAGES ? (int)n : VACUUM_PAGES);
	journal_exec(j->db, text);
}

static void measure(struct journal *j)
{
	int rc;
	int64_t page = get_int(j->db->db, "PRAGMA page_size", &rc);
	int64_t n = get_int(j->db->db, "PRAGMA page_count", &rc);
	int64_t n_free = get_int(j->db->db, "PRAGMA freelist_count", &rc);
	pthread_mutex_lock(&j->lock);
	j->stats.file_bytes = page * n;
	j->stats.free_bytes = page * n_free;
	pthread_mutex_unlock(&j->lock);
}

static size_t count(const struct queue *q)
{
	size_t n = 0;
	for (const struct journal_op *op = q->first; op; op = op->next)
		n++;
	return n;
}

/* Moves all that waits behind what is in hand.  Waits for something to do; false: the end. */
static bool take(struct journal *j, struct queue *hand)
{
	struct timespec until;
	pthread_mutex_lock(&j->lock);
	pthread_cond_broadcast(&j->idle);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += RETRY_MS / 1000;
	/* What is tried again has time: the disk is as it was. */
	while (!j->quit && !(j->ending && (hand->first || j->ops.first)) && (j->failing || !j->ops.first)) {
		if (!j->failing)
			pthread_cond_wait(&j->more, &j->lock);
		else if (pthread_cond_timedwait(&j->more, &j->lock, &until))
			break;
	}
	for (struct journal_op *op; (op = queue_pop(&j->ops));)
		queue_push(hand, op);
	bool quit = j->quit;
	pthread_mutex_unlock(&j->lock);
	return !quit || hand->first;
}

static void *journal_thread(void *arg)
{
	struct journal *j = arg;
	struct queue hand;
	queue_init(&hand);
	while (take(j, &hand)) {
		pthread_mutex_lock(&j->lock);
		bool last = j->ending || j->quit;
		pthread_mutex_unlock(&j->lock);
		if (j->lost) {
			refuse_all(j, &hand);
			continue;
		}
		commit(j, &hand, count(&hand), last);
		vacuum(j);
		measure(j);
	}
	return NULL;
}

/* --- any thread --- */

void journal_put(struct journal *j, struct journal_op *op)
{
	char why[256] = "the journal has too much to write";
	pthread_mutex_lock(&j->lock);
	bool full = j->n_ops >= OPS_MAX || j->n_bytes + op->bytes > BYTES_MAX;
	if (j->failing)
		snprintf(why, sizeof why, "%s", j->why);
	bool refused = !op->must && (full || j->failing || j->quit);
	if (!refused) {
		j->n_ops++;
		j->n_put++;
		j->n_bytes += op->bytes;
		queue_push(&j->ops, op);
		pthread_cond_signal(&j->more);
	}
	pthread_mutex_unlock(&j->lock);
	if (refused)
		op->done(op, -EAGAIN, why);
}

bool journal_takes(struct journal *j)
{
	pthread_mutex_lock(&j->lock);
	bool takes = !j->failing && j->n_ops < OPS_MAX / 2 && j->n_bytes < BYTES_MAX / 2;
	pthread_mutex_unlock(&j->lock);
	return takes;
}

bool journal_health(struct journal *j, char *why, size_t why_n)
{
	pthread_mutex_lock(&j->lock);
	bool ok = !j->failing;
	if (!ok)
		snprintf(why, why_n, "%s", j->why);
	pthread_mutex_unlock(&j->lock);
	return ok;
}

void journal_stats(struct journal *j, struct journal_stats *out)
{
	pthread_mutex_lock(&j->lock);
	*out = j->stats;
	out->n_waiting = j->n_ops;
	pthread_mutex_unlock(&j->lock);
}

const char *journal_path(const struct journal *j)
{
	return j->path;
}

void journal_end(struct journal *j)
{
	pthread_mutex_lock(&j->lock);
	uint64_t n = j->n_put;
	j->ending = true;
	pthread_cond_signal(&j->more);
	/* From here on they are told in the order in which they were put. */
	while (j->n_put - j->n_ops < n)
		pthread_cond_wait(&j->idle, &j->lock);
	pthread_mutex_unlock(&j->lock);
}

int journal_reader(struct journal *j, struct journal_db **out, char *why, size_t why_n)
{
	return db_open(j->path, SQLITE_OPEN_READONLY, out, why, why_n);
}

void journal_reader_close(struct journal_db *db)
{
	db_close(db);
}

/* --- lifecycle --- */

static void journal_free(struct journal *j)
{
	db_close(j->db);
	if (j->lock_fd >= 0)
		close(j->lock_fd);
	pthread_cond_destroy(&j->idle);
	pthread_cond_destroy(&j->more);
	pthread_mutex_destroy(&j->lock);
	free(j->path);
	free(j);
}

int journal_open(const struct journal_config *cfg, struct journal **out, char *why, size_t why_n)
{
	struct journal *j = xcalloc(1, sizeof *j);
	pthread_condattr_t monotonic;
	j->path = xstrdup(cfg->path);
	j->lock_fd = -1;
	queue_init(&j->ops);
	pthread_mutex_init(&j->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&j->more, &monotonic);
	pthread_cond_init(&j->idle, NULL);
	pthread_condattr_destroy(&monotonic);
	int rc = take_lock(j, why, why_n);
	if (!rc)
		rc = open_file(j, cfg->model, why, why_n);
	if (!rc) {
		measure(j);
		int e = pthread_create(&j->thread, NULL, journal_thread, j);
		if (e)
			rc = err_why(why, why_n, -e, "journal: cannot start its thread");
	}
	if (rc) {
		if (j->locked)
			remove_lock(j);
		journal_free(j);
		return rc;
	}
	*out = j;
	return 0;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	pthread_mutex_lock(&j->lock);
	j->quit = true;
	pthread_cond_signal(&j->more);
	pthread_mutex_unlock(&j->lock);
	pthread_join(j->thread, NULL);
	assert(j->n_ops == 0);
	journal_free(j);
}
