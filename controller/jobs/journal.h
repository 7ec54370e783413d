/* journal.h - one SQLite file, and the thread that writes it.
 * Owns: the file, its lock, the queue of operations.  Knows nothing of jobs, files or batches: their
 * modules bring the schemas of their tables, and operations, which run on the journal's thread.
 *
 *   journal_put --> queue --> BEGIN, each operation in a savepoint, COMMIT, sync --> done(0)
 *        |                      |
 *        |                      +-- an operation fails: it alone is rolled back --> done(-EIO)
 *        |                      +-- the disk fails: ROLLBACK --> done(-ENOSPC, -EIO, ...)
 *        |                             required: held(), stays in the queue, again every second
 *        +-- not required, and the queue is full or the disk fails --> done(-EAGAIN), in the caller's thread
 *
 * The operations in the queue are one transaction (group commit; bounded, so that the -wal file is); none is
 * confirmed before that is on the disk: WAL mode, synchronous=FULL.  The first transaction that succeeds ends
 * a failure; journal_health() shows whether there is one.
 *
 * Room on the disk is kept for what must always be possible, the ends of jobs and deletes:
 *
 *   free   |<-- ballast -->|<-- job margin -->|            the rest            |
 *          |               |<--------- file margin --------->|                 |
 *   taken by  ends, deletes     + durable jobs, batches           + files
 *
 * The ballast is a file (PATH-ballast).  It is let go when the disk is full all the same, because of other
 * programs, say, and made again when there is room. */
#ifndef QUERN_CONTROLLER_JOBS_JOURNAL_H
#define QUERN_CONTROLLER_JOBS_JOURNAL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct journal;

/* --- statements --- */

/* A connection with its prepared statements; used by one thread at a time. */
struct journal_db;

/* The value of a parameter.  Texts and blobs are borrowed until the statement is reset. */
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
/* The values of a statement's parameters, in their order, and their number. */
#define JOURNAL_VALUES(...)                                                                                  \
	(const struct journal_value[]){__VA_ARGS__},                                                         \
		sizeof((const struct journal_value[]){__VA_ARGS__}) / sizeof(struct journal_value)

/* The prepared statement of sql (static text: prepared once), to be stepped and reset.  NULL:
 * journal_error(). */
sqlite3_stmt *journal_query(struct journal_db *db, const char *sql, const struct journal_value *values,
			    size_t n);
/* The same, stepped once and reset.  SQLITE_OK, or a code of SQLite. */
int journal_run(struct journal_db *db, const char *sql, const struct journal_value *values, size_t n);
/* One or more statements that are not worth preparing.  SQLITE_OK, or a code. */
int journal_exec(struct journal_db *db, const char *sql);
/* Why the last call failed. */
int journal_error(const struct journal_db *db);
const char *journal_errmsg(const struct journal_db *db);

/* --- operations --- */

/* What an operation is for: the less urgent, the more of the disk must be free for it. */
enum journal_need {
	JOURNAL_END,  /* ends or deletes something: as long as it can be written at all */
	JOURNAL_JOB,  /* a durable job, a batch: beyond the job margin */
	JOURNAL_FILE, /* a part of a file: beyond the file margin */
	JOURNAL_N_NEEDS
};

struct journal_op {
	/* On the journal's thread, within a transaction.  SQLITE_OK, or a code of SQLite: the effects of this
	 * operation are undone. */
	int (*run)(struct journal_op *op, struct journal_db *db);
	/* On the journal's thread, once, last: 0 when it is on the disk, or -errno and why (-ENOSPC,
	 * -EIO; -EDQUOT: the disk has less room than an operation of this need leaves free).  The operation
	 * is the callee's to free. */
	void (*done)(struct journal_op *op, int rc, const char *why);
	/* Of a required one, on the journal's thread, at most once and before done: the disk failed (-ENOSPC,
	 * -EIO, ...), the operation will be tried again.  May be NULL. */
	void (*held)(struct journal_op *op, int rc, const char *why);
	size_t bytes;            /* of memory, about: counts for the queue's bound */
	bool required;           /* must not be lost: never refused, tried again when the disk fails */
	bool frees;              /* deletes: is tried, before all others, also while the disk fails */
	enum journal_need need;  /* JOURNAL_END if it is required */
	struct journal_op *next; /* the journal's */
};

/* The format of the file, its user_version.  What changes a table adds 1 here, and a migration from the
 * format before (controller/main.c). */
enum { JOURNAL_FORMAT = 3 };

/* Makes a file of format `from` one of the next.  All migrations of an open are one transaction: a file is of
 * its old format or of this one. */
struct journal_migration {
	int from;
	const char *const *sql; /* statements in their order, NULL-terminated */
};

struct journal_config {
	const char *path;
	/* Recorded in the file when it is made: tokens of one model cannot be continued by another. */
	const char *model;
	/* CREATE statements of the tables, executed in this order when the file is made.  NULL-terminated;
	 * NULL: none.  Borrowed until the journal is closed. */
	const char *const *schemas;
	/* From older formats to this one; borrowed likewise.  A file of a format from which they do not lead
	 * here is refused. */
	const struct journal_migration *migrations;
	size_t n_migrations;
	/* Of the disk, in bytes; 0: by its size (journal_disk.c); negative: none. */
	int64_t file_margin, job_margin;
};

/* Opens or creates the file and locks it (PATH-lock names the holder), starts the thread.  -EBUSY: another
 * controller has it; -EBADMSG: not a journal, of a newer version, damaged, or of another model.
 * A full or read-only disk is not an error: the file is opened as soon as that is possible, and until then
 * the journal fails, and has no readers. */
int journal_open(const struct journal_config *cfg, struct journal **out, char *why, size_t why_n);
/* Writes the queue, one last time if the disk fails; every operation is done by then.  NULL is fine. */
void journal_close(struct journal *j);
/* The service stops: waits until all operations put so far are done.  From here on, operations that the disk
 * does not accept fail instead of being tried again, and after the first required one that fails so, all
 * later ones fail: the next start resumes from a state without gaps.  Any thread but the journal's. */
void journal_end(struct journal *j);

/* Any thread; takes op.  An operation that is not required is done with -EAGAIN at once, on the caller's
 * thread, when the queue is full, or the disk fails and the operation frees nothing. */
void journal_put(struct journal *j, struct journal_op *op);
/* True: the queue is less than half full and the disk works, so tokens may be saved now. */
bool journal_takes(struct journal *j);
/* Any thread.  True: the last transaction succeeded.  False with the reason. */
bool journal_health(struct journal *j, char *why, size_t why_n);
/* Any thread.  0: an operation of this need that writes `bytes` would be taken now; -EDQUOT: the disk has not
 * enough room, with the reason. */
int journal_room(struct journal *j, enum journal_need need, int64_t bytes, char *why, size_t why_n);
const char *journal_path(const struct journal *j);

struct journal_stats {
	uint64_t n_commits, n_ops; /* since it was opened */
	uint64_t n_waiting;
	int64_t file_bytes, free_bytes; /* the file's size, and how much of it is free */
	int64_t disk_free;              /* of the disk, for this user; negative: not known */
};
void journal_stats(struct journal *j, struct journal_stats *out);

/* A connection that only reads, for one thread: it sees what is committed, and is never blocked.  -EAGAIN:
 * the file is not open yet, with the reason. */
int journal_reader(struct journal *j, struct journal_db **out, char *why, size_t why_n);
void journal_reader_close(struct journal_db *db); /* NULL is fine */

#endif
