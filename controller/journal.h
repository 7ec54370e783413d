/* journal.h - one SQLite file, one thread that writes it.
 * Owns: the file, its lock, the queue of what is to be written.  Knows nothing of jobs or
 * batches: those hand over operations (jobstore.h, filestore.h), which run on the journal's
 * thread.  All that wait when the disk is free are one transaction (group commit), and none is
 * told before that is on the disk: WAL mode, synchronous=FULL.
 *
 * When the disk fails (full, an I/O error), the transaction is undone.  Operations that can be
 * refused are told so; those that must not be lost stay in the queue and are tried again every
 * second.  journal_health() says which of the two it is. */
#ifndef QUERN_CONTROLLER_JOURNAL_H
#define QUERN_CONTROLLER_JOURNAL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct journal;

/* A connection with its prepared statements. */
struct journal_db;
sqlite3 *journal_sqlite(struct journal_db *db);
/* The prepared statement of a text that is static, reset and without bindings; NULL: sqlite3_errcode()
 * says why.  Borrowed. */
sqlite3_stmt *journal_prepare(struct journal_db *db, const char *sql);
/* Prepare, step once, reset, for statements without parameters.  A code of SQLite, SQLITE_OK. */
int journal_exec(struct journal_db *db, const char *sql);

struct journal_op {
	/* On the journal's thread, within a transaction.  SQLITE_OK, or a code of SQLite: what this
	 * operation has done is undone. */
	int (*run)(struct journal_op *op, struct journal_db *db);
	/* On the journal's thread, once, last: 0 when it is on the disk, or -errno and why (-ENOSPC,
	 * -EIO).  The operation is the callee's to free. */
	void (*done)(struct journal_op *op, int rc, const char *why);
	/* A must, on the journal's thread, once at most and before done: the disk failed with it (-ENOSPC,
	 * -EIO, ...), it is tried again.  NULL: nobody asks. */
	void (*held)(struct journal_op *op, int rc, const char *why);
	size_t bytes;            /* about what it holds, for the bound */
	bool must;               /* tried again when the disk fails */
	struct journal_op *next; /* the journal's */
};

struct journal_config {
	const char *path;
	/* What may not change between two lives of the file: whose tokens these are. */
	const char *model;
};

/* Opens or makes the file and locks it (PATH-lock names the holder), starts the thread.  -EBUSY: another
 * controller has it; -EBADMSG: not a journal, of a newer version, damaged, or of another model. */
int journal_open(const struct journal_config *cfg, struct journal **out, char *why, size_t why_n);
/* Writes what waits, one last time if the disk fails; every operation is told.  NULL is fine. */
void journal_close(struct journal *j);
/* The service ends: waits until all that was put so far has been told.  From here on, what the disk does
 * not take is not tried again but told so, and once something that must not be lost was given up,
 * nothing that comes after it is written: the next life goes on from what was before it.  Any thread
 * that is not the journal's. */
void journal_end(struct journal *j);

/* Any thread; takes op.  An operation that is no must is told -EAGAIN at once, on the caller's thread,
 * when the queue is full or the disk fails. */
void journal_put(struct journal *j, struct journal_op *op);
/* The queue has room, the disk does not fail: tokens had better be put now than later. */
bool journal_takes(struct journal *j);
/* Any thread.  True: it writes.  False with the reason. */
bool journal_health(struct journal *j, char *why, size_t why_n);
const char *journal_path(const struct journal *j);

struct journal_stats {
	uint64_t n_commits, n_ops; /* since it was opened */
	uint64_t n_waiting;
	int64_t file_bytes, free_bytes; /* of the file: as large as that, of which free */
};
void journal_stats(struct journal *j, struct journal_stats *out);

/* A connection that only reads, for one thread: it sees what is committed, and waits for nobody. */
int journal_reader(struct journal *j, struct journal_db **out, char *why, size_t why_n);
void journal_reader_close(struct journal_db *db); /* NULL is fine */

#endif
