/* journal_impl.h - shared by journal.c (the queue, the thread), journal_file.c (opening), journal_disk.c
 * (room) and journal_db.c (connections).  Private to them. */
#ifndef QUERN_CONTROLLER_JOBS_JOURNAL_IMPL_H
#define QUERN_CONTROLLER_JOBS_JOURNAL_IMPL_H

#include "base/err.h"
#include "controller/jobs/journal.h"

#include <stdatomic.h>

/* journal_disk.c */

/* The disk of the journal, and the room that is kept free on it. */
struct journal_disk {
	int fd;                  /* an open file on the disk, borrowed; -1: none yet */
	char *ballast;           /* path of the ballast */
	atomic_bool has_ballast; /* set by the journal's thread */
	int64_t margin[JOURNAL_N_NEEDS];
	int64_t ballast_bytes;
	int64_t transaction_bytes; /* upper estimate of one transaction */
	int64_t wal_bytes;         /* size to which the -wal file is truncated, and at which it is
				    * checkpointed */
	int64_t spare_bytes;       /* free pages kept in the file for later writes */
};
/* Set the sizes by the size of fd's disk. */
void journal_disk_init(struct journal_disk *d, const struct journal_config *cfg, int fd);
void journal_disk_fini(struct journal_disk *d);
int64_t journal_disk_free(const struct journal_disk *d); /* bytes; INT64_MAX: not known */
/* Return the bytes that an operation of this need must leave free, unless it frees something itself. */
int64_t journal_disk_keeps(const struct journal_disk *d, enum journal_need need);
/* Make the ballast if there is room.  May be called any number of times. */
void journal_disk_make_ballast(struct journal_disk *d);
/* Delete the ballast.  false: there was none. */
bool journal_disk_drop_ballast(struct journal_disk *d);
/* Return -EDQUOT with the reason. */
int journal_disk_refuse(const struct journal_disk *d, enum journal_need need, const char *path,
			struct why *why);

/* journal_file.c */

struct journal_file {
	char *path;
	int lock_fd; /* PATH-lock; -1: not open */
	bool locked;
	struct journal_disk disk;
	struct journal_db *db; /* the writing connection */
};
/* Open the file.  The caller calls journal_file_close(), also after an error. */
int journal_file_open(struct journal_file *f, const struct journal_config *cfg, struct why *why);
/* Return true if the disk is full or read-only: try again later. */
bool journal_file_may_open_later(int rc);
/* Close the file.  refused: also remove the lock file, so that nothing is left next to a file that is not a
 * journal. */
void journal_file_close(struct journal_file *f, bool refused);

/* journal_db.c */

/* Open a connection.  flags: SQLITE_OPEN_... */
int journal_db_open(const char *path, int flags, struct journal_db **out, struct why *why);
void journal_db_close(struct journal_db *db); /* NULL is fine */
/* Return an SQLite code as -errno, with the reason and what to do about it. */
int journal_why(const char *path, const struct journal_db *db, int rc, struct why *why);
/* Return true if the disk or the file failed, not the statement. */
bool journal_is_disk_error(int rc);
/* Set whether statements wait for other connections of the file (initially they do). */
void journal_db_patience(struct journal_db *db, bool waits);
bool journal_in_transaction(const struct journal_db *db);
/* Return the first column of the first row; 0 if there is no row.  *rc: SQLITE_OK or an SQLite code. */
int64_t journal_get_int(struct journal_db *db, const char *sql, int *rc);

#endif
