/* file_store.h - files that clients upload or batches write, in the journal, in parts.
 * A file exists when it is complete; parts of an unfinished one are removed at the next start.
 * Files belong to an owner (the name of an API key, "" without API keys) and are invisible to others.
 * Any thread.
 *
 *   file_writer_put --> parts of 256 KiB --> journal (table chunks)
 *   file_writer_commit --> row of files: the file exists | file_writer_abort --> its parts are deleted */
#ifndef QUERN_CONTROLLER_JOBS_FILE_STORE_H
#define QUERN_CONTROLLER_JOBS_FILE_STORE_H

#include "controller/jobs/journal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FILE_ID_SIZE = 48, /* "file-" and 128 random bits */
	FILE_NAME_SIZE = 256,
	FILE_PURPOSE_SIZE = 32,
	FILE_OWNER_SIZE = 64,
	FILE_PART = 256 << 10, /* bytes of a part in the journal */
};

struct file_store;

extern const char file_store_schema[]; /* of the journal */

struct file_info {
	char id[FILE_ID_SIZE];
	char owner[FILE_OWNER_SIZE];
	char name[FILE_NAME_SIZE];
	char purpose[FILE_PURPOSE_SIZE];
	int64_t bytes;
	int64_t created_at, expires_at; /* seconds since 1970; 0: does not expire */
};

/* What uses a file, which must not go then: its name into by, "" without any.  On the journal's thread,
 * within a transaction.  SQLITE_OK, or a code of SQLite. */
typedef int file_used_by(struct journal_db *db, const char *file, char by[FILE_ID_SIZE]);

/* Borrows the journal.  Unfinished files of an earlier life are removed.  used_by NULL: nothing uses files.
 */
int file_store_open(struct journal *j, file_used_by *used_by, struct file_store **out, char *why,
		    size_t why_n);
void file_store_close(struct file_store *fs); /* NULL is fine; no writers are left */
struct journal *file_store_journal(struct file_store *fs);
/* False, with the reason: the journal could not be opened yet.  No file can be read or written then. */
bool file_store_ready(struct file_store *fs, char *why, size_t why_n);

/* Draws an id: prefix and 128 random bits. */
void file_store_id(char id[FILE_ID_SIZE], const char *prefix);

/* -ENOENT: no such file of that owner; -EIO. */
int file_store_get(struct file_store *fs, const char *owner, const char *id, struct file_info *out);
/* Reads bytes [at, at + n) into p; returns how many, fewer at the end of the file; -EIO. */
ptrdiff_t file_store_read(struct file_store *fs, const char *id, int64_t at, void *p, size_t n);
/* Youngest (or oldest) first, after the file `after` (NULL: from the first), at most max into out;
 * *more: there are more.  purpose NULL: any.  Returns how many, -ENOENT: no file `after`, -EIO. */
int file_store_list(struct file_store *fs, const char *owner, const char *purpose, const char *after,
		    bool ascending, struct file_info *out, int max, bool *more);

/* done (may be NULL): once, on the journal's thread or at once; rc 0 or -errno with why.
 * -EBUSY: the file is used, by what why names. */
void file_store_delete(struct file_store *fs, const char *owner, const char *id,
		       void (*done)(void *user, int rc, const char *why), void *user);
/* The same for any owner, and for files that are used; 0 also without such a file. */
void file_store_remove(struct file_store *fs, const char *id,
		       void (*done)(void *user, int rc, const char *why), void *user);
/* Deletes expired files, except those that are used; called now and then. */
void file_store_sweep(struct file_store *fs);

/* What an owner's files may be, all together; 0: no limit. */
struct file_quota {
	int64_t files, bytes;
};

/* A file being written, by one thread at a time.  info: all but bytes.  quota: of its owner, whose files that
 * are being written count as well; NULL: none. */
struct file_writer;
struct file_writer *file_writer_new(struct file_store *fs, const struct file_info *info,
				    const struct file_quota *quota);
/* Negative: a part was refused: abort the file.  -EAGAIN: the disk fails, or is slower than the caller;
 * -EDQUOT: it has too little room for files (journal_room()); -E2BIG: the quota. */
int file_writer_put(struct file_writer *w, const void *p, size_t n);
const char *file_writer_why(const struct file_writer *w); /* the reason; "" without one */
/* Waits until at most 16 MiB of the file wait for the disk: a fast writer of a large file would fill the
 * journal's queue otherwise.  Not on the journal's thread.  Returns as above. */
int file_writer_wait(struct file_writer *w);
/* Replaces info (purpose, expiry) but for the bytes. */
void file_writer_describe(struct file_writer *w, const struct file_info *info);
int64_t file_writer_bytes(const struct file_writer *w);
/* The file is complete; takes *w.  also (may be NULL) runs in the same transaction. */
void file_writer_commit(struct file_writer **w, int (*also)(void *user, struct journal_db *db),
			void (*done)(void *user, int rc, const char *why), void *user);
/* Deletes its parts, as soon as the disk allows.  *w may be NULL. */
void file_writer_abort(struct file_writer **w);

#endif
