/* journal_impl.h - what journal.c (the queue, the thread), journal_file.c (opening), journal_disk.c (room)
 * and journal_db.c (connections) share.  For these only. */
#ifndef QUERN_CONTROLLER_JOBS_JOURNAL_IMPL_H
#define QUERN_CONTROLLER_JOBS_JOURNAL_IMPL_H

#include "controller/jobs/journal.h"

#include <stdatomic.h>

/* journal_disk.c */

/* The disk of the journal, and how much of it stays free. */
struct journal_disk {
	int fd;                  /* of a file on it; borrowed; -1: none yet */
	char *ballast;           /* its path */
	atomic_bool has_ballast; /* set by the journal's thread */
	int64_t margin[JOURNAL_N_NEEDS];
	int64_t ballast_bytes;
	int64_t transaction_bytes; /* of one transaction, about, at most */
	int64_t wal_bytes;         /* what the -wal file is cut to, and checkpointed at */
	int64_t spare_bytes;       /* free pages that stay in the file for what comes next */
};
/* Sizes follow from that of the disk of fd. */
void journal_disk_init(struct journal_disk *d, const struct journal_config *cfg, int fd);
void journal_disk_fini(struct journal_disk *d);
int64_t journal_disk_free(const struct journal_disk *d); /* bytes; INT64_MAX: not known */
/* What an operation of this need leaves free, unless it frees something itself. */
int64_t journal_disk_keeps(const struct journal_disk *d, enum journal_need need);
/* Makes the ballast where there is room for it; any number of times. */
void journal_disk_make_ballast(struct journal_disk *d);
/* False: there was none. */
bool journal_disk_drop_ballast(struct journal_disk *d);
/* -EDQUOT with the reason. */
int journal_disk_refuse(const struct journal_disk *d, enum journal_need need, const char *path, char *why,
			size_t why_n);

/* journal_file.c */

struct journal_file {
	char *path;
	int lock_fd; /* PATH-lock; -1: not open */
	bool locked;
	struct journal_disk disk;
	struct journal_db *db; /* that writes */
};
/* Also after an error, f is ended with journal_file_close(). */
int journal_file_open(struct journal_file *f, const struct journal_config *cfg, char *why, size_t why_n);
/* The disk is full, or read-only: to be tried again. */
bool journal_file_may_open_later(int rc);
/* refused: the lock file goes, too; nothing is left beside a file that is not a journal. */
void journal_file_close(struct journal_file *f, bool refused);

/* journal_db.c */

/* flags: SQLITE_OPEN_... */
int journal_db_open(const char *path, int flags, struct journal_db **out, char *why, size_t why_n);
void journal_db_close(struct journal_db *db); /* NULL is fine */
/* An SQLite code as -errno, with the reason and what to do about it. */
int journal_why(const char *path, const struct journal_db *db, int rc, char *why, size_t why_n);
/* The disk or the file failed, not the statement. */
bool journal_is_disk_error(int rc);
/* Whether statements wait for other connections of the file; they do at first. */
void journal_db_patience(struct journal_db *db, bool waits);
bool journal_in_transaction(const struct journal_db *db);
/* The first column of the first row; 0 without one.  *rc: SQLITE_OK or a code. */
int64_t journal_get_int(struct journal_db *db, const char *sql, int *rc);

#endif
