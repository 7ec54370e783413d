/* journal.h - one SQLite file, and the thread that writes it.
 * Owns: the file, its lock, the queue of operations.  Knows nothing of jobs, files or batches: their modules
 * supply the schemas of their tables, and operations, which run on the journal's thread.
 *
 *   journal_put --> queue --> BEGIN, each operation in a savepoint, COMMIT, sync --> done(0)
 *        |                      |
 *        |                      +-- an operation fails: it alone is rolled back --> done(-EIO)
 *        |                      +-- the disk fails: ROLLBACK --> done(-ENOSPC, -EIO, ...)
 *        |                             required: held(), stays in the queue, again every second
 *        +-- not required, and the queue is full or the disk fails --> done(-EAGAIN), in the caller's thread
 *
 * The operations in the queue form one transaction (group commit).  Its size is bounded, which also bounds
 * the -wal file.  No operation is confirmed before the transaction is on disk: WAL mode, synchronous=FULL.
 * The first transaction that succeeds ends a failure; journal_health() reports the failure.
 *
 * Room on the disk is reserved for operations that must always be possible: ends of jobs, and deletes.
 *
 *   free   |<-- ballast -->|<-- job margin -->|            the rest            |
 *          |               |<--------- file margin --------->|                 |
 *   taken by  ends, deletes     + durable jobs, batches           + files
 *
 * The ballast is a file (PATH-ballast).  It is deleted when the disk is full anyway, for example because of
 * other programs, and made again when there is room. */
#ifndef QUERN_CONTROLLER_JOBS_JOURNAL_H
#define QUERN_CONTROLLER_JOBS_JOURNAL_H

#include "base/err.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct journal;

/* --- statements --- */

/* A connection with its prepared statements; used by one thread at a time. */
struct journal_db;

/* Value of a statement's parameter.  Texts and blobs are borrowed until the statement is reset. */
struct journal_value {
	enum { JOURNAL_NULL, JOURNAL_INT, JOURNAL_TEXT, JOURNAL_BLOB } type;
	int64_t i;
	const void *p;
	size_t n;
};
static inline struct journal_value journal_int(int64_t i)
{
	return (struct journal_value){.type = JOURNAL_INT, .i = i};
}
static inline struct journal_value journal_text(const char *s) /* NULL: SQL's NULL */
{
	return (struct journal_value){.type = s ? JOURNAL_TEXT : JOURNAL_NULL, .p = s};
}
static inline struct journal_value journal_blob(const void *p, size_t n) /* NULL: empty */
{
	return (struct journal_value){.type = JOURNAL_BLOB, .p = p ? p : "", .n = n};
}
/* The values of a statement's parameters in order, and their number. */
#define JOURNAL_VALUES(...)                                                                                  \
	(const struct journal_value[]){__VA_ARGS__},                                                         \
		sizeof((const struct journal_value[]){__VA_ARGS__}) / sizeof(struct journal_value)

/* Return the prepared statement of sql with its values bound, to be stepped and reset.  sql is static text
 * and is prepared once.  NULL: see journal_error(). */
sqlite3_stmt *journal_query(struct journal_db *db, const char *sql, const struct journal_value *values,
			    size_t n);
/* Run a statement: step it once and reset it.  SQLITE_OK, or an SQLite code. */
int journal_run(struct journal_db *db, const char *sql, const struct journal_value *values, size_t n);
/* Run one or more statements without caching them.  SQLITE_OK, or an SQLite code. */
int journal_exec(struct journal_db *db, const char *sql);
/* Return why the last call failed. */
int journal_error(const struct journal_db *db);
const char *journal_errmsg(const struct journal_db *db);

/* --- operations --- */

/* Purpose of an operation: the less urgent it is, the more of the disk must be free. */
enum journal_need {
	JOURNAL_END,  /* ends or deletes something: runs as long as it can be written at all */
	JOURNAL_JOB,  /* a durable job or a batch: the job margin must stay free */
	JOURNAL_FILE, /* a chunk of a file: the file margin must stay free */
	JOURNAL_N_NEEDS
};

struct journal_op {
	/* Runs on the journal's thread, within a transaction.  SQLITE_OK, or an SQLite code: the effects of
	 * this operation are undone. */
	int (*run)(struct journal_op *op, struct journal_db *db);
	/* Called last, once, on the journal's thread: 0 when the operation is on disk, or -errno and why
	 * (-ENOSPC, -EIO; -EDQUOT: the disk has less room than an operation of this need must leave).  The
	 * callee frees the operation. */
	void (*done)(struct journal_op *op, int rc, const char *why);
	/* Required operations only, may be NULL.  Called on the journal's thread, at most once and before
	 * done: the disk failed (-ENOSPC, -EIO, ...) and the operation will be retried. */
	void (*held)(struct journal_op *op, int rc, const char *why);
	size_t bytes;            /* approximate memory: counts against the queue's limit */
	bool required;           /* must not be lost: never refused, retried when the disk fails */
	bool frees;              /* deletes: tried before all others, also while the disk fails */
	enum journal_need need;  /* JOURNAL_END if required */
	struct journal_op *next; /* used by the journal */
};

/* Format of the file, its user_version.  A change of a table, or of a record in a table, adds 1 here, and a
 * migration from the previous format (controller/main.c). */
enum { JOURNAL_FORMAT = 4 };

/* Converts a file of format `from` to the next format.  All migrations of an open are one transaction: a file
 * has either its old format or this one. */
struct journal_migration {
	int from;
	const char *const *sql; /* statements in order, NULL-terminated; NULL: none */
	/* Makes the changes that SQL cannot, after these statements; NULL: none.  SQLite's error code. */
	int (*run)(struct journal_db *db);
};

struct journal_config {
	const char *path;
	/* Recorded in the file when it is created: another model cannot continue the tokens of this one. */
	const char *model;
	/* CREATE statements of the tables, executed in this order when the file is created.  NULL-terminated;
	 * NULL: none.  Borrowed until the journal is closed. */
	const char *const *schemas;
	/* Migrations from older formats to this one; borrowed until the journal is closed.  A file of a
	 * format without a path to this one is refused. */
	const struct journal_migration *migrations;
	size_t n_migrations;
	/* Bytes of the disk; 0: chosen by its size (journal_disk.c); negative: none. */
	int64_t file_margin, job_margin;
};

/* Open or create the file, lock it (PATH-lock names the holder), and start the thread.  -EBUSY: another
 * controller holds it; -EBADMSG: not a journal, a newer version, damaged, or of another model.  A full or
 * read-only disk is not an error: the file is opened as soon as possible; until then the journal fails
 * operations and has no readers. */
int journal_open(const struct journal_config *cfg, struct journal **out, struct why *why);
/* Write the queue, one last time if the disk fails.  Every operation is done afterwards.  NULL is fine. */
void journal_close(struct journal *j);
/* Prepare to stop: wait until all operations put so far are done.  From then on, operations that the disk
 * does not accept fail instead of being retried.  After the first required operation fails this way, all
 * later ones fail, so the next start resumes from a state without gaps.  Any thread except the journal's. */
void journal_end(struct journal *j);

/* Queue an operation; takes op.  Any thread.  An operation that is not required is done with -EAGAIN at once,
 * on the caller's thread, if the queue is full, or if the disk fails and the operation frees nothing. */
void journal_put(struct journal *j, struct journal_op *op);
/* Return true if the queue is less than half full and the disk works: tokens may be saved now. */
bool journal_takes(struct journal *j);
/* Return true if the last transaction succeeded; false with the reason.  Any thread. */
bool journal_health(struct journal *j, struct why *why);
/* Check the room for an operation of this need that writes `bytes`.  0: it would be accepted now; -EDQUOT
 * with the reason: the disk has too little room.  Any thread. */
int journal_room(struct journal *j, enum journal_need need, int64_t bytes, struct why *why);
const char *journal_path(const struct journal *j);

struct journal_stats {
	uint64_t n_commits, n_ops; /* since the journal was opened */
	uint64_t n_waiting;
	int64_t file_bytes, free_bytes; /* size of the file, and its free bytes */
	int64_t disk_free;              /* bytes free on the disk for this user; negative: not known */
};
void journal_stats(struct journal *j, struct journal_stats *out);

/* Open a read-only connection for one thread.  It sees committed data and is never blocked.  -EAGAIN with the
 * reason: the file is not open yet. */
int journal_reader(struct journal *j, struct journal_db **out, struct why *why);
void journal_reader_close(struct journal_db *db); /* NULL is fine */

#endif
