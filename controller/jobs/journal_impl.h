/* journal_impl.h - what journal.c (the queue, the thread), journal_file.c (opening) and journal_db.c
 * (connections) share.  For these only. */
#ifndef QUERN_CONTROLLER_JOBS_JOURNAL_IMPL_H
#define QUERN_CONTROLLER_JOBS_JOURNAL_IMPL_H

#include "controller/jobs/journal.h"

/* journal_file.c */

struct journal_file {
	char *path;
	int lock_fd; /* PATH-lock; -1: not open */
	bool locked;
	struct journal_db *db; /* that writes */
};
/* Also after an error, f is ended with journal_file_close(). */
int journal_file_open(struct journal_file *f, const struct journal_config *cfg, char *why, size_t why_n);
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
bool journal_in_transaction(const struct journal_db *db);
/* The first column of the first row; 0 without one.  *rc: SQLITE_OK or a code. */
int64_t journal_get_int(struct journal_db *db, const char *sql, int *rc);

#endif
