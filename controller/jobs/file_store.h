/* file_store.h - files that clients upload or batches write, stored in the journal in chunks.
 * A file exists once it is complete; chunks of an unfinished file are removed at the next start.  Files
 * belong to an owner (the name of an API key, "" without API keys) and are invisible to other owners.  Any
 * thread.
 *
 *   file_writer_put --> chunks of 256 KiB --> journal (table chunks)
 *   file_writer_commit --> row of files: the file exists | file_writer_abort --> its chunks are deleted */
#ifndef QUERN_CONTROLLER_JOBS_FILE_STORE_H
#define QUERN_CONTROLLER_JOBS_FILE_STORE_H

#include "base/err.h"
#include "controller/jobs/journal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FILE_ID_SIZE = 48, /* "file-" and 128 random bits */
	FILE_NAME_SIZE = 256,
	FILE_PURPOSE_SIZE = 32,
	FILE_OWNER_SIZE = 64,
	FILE_PART = 256 << 10, /* bytes of a chunk in the journal */
};

struct file_store;

extern const char file_store_schema[]; /* SQL of the journal's tables of files */

struct file_info {
	char id[FILE_ID_SIZE];
	char owner[FILE_OWNER_SIZE];
	char name[FILE_NAME_SIZE];
	char purpose[FILE_PURPOSE_SIZE];
	int64_t bytes;
	int64_t created_at, expires_at; /* seconds since 1970; 0: does not expire */
};

/* Write the name of a user of the file to by; "" if there is none.  A file in use must not be deleted.  On
 * the journal's thread, within a transaction.  Returns SQLITE_OK, or an SQLite code. */
typedef int file_used_by(struct journal_db *db, const char *file, char by[FILE_ID_SIZE]);

/* Open the store; borrows the journal.  Removes unfinished files of an earlier run.  used_by NULL: nothing
 * uses files. */
int file_store_open(struct journal *j, file_used_by *used_by, struct file_store **out, struct why *why);
void file_store_close(struct file_store *fs); /* NULL is fine; no writers may be left */
struct journal *file_store_journal(struct file_store *fs);
/* Return true if files can be read and written; false with the reason: the journal could not be opened
 * yet. */
bool file_store_ready(struct file_store *fs, struct why *why);

/* Draw an id: prefix and 128 random bits. */
void file_store_id(char id[FILE_ID_SIZE], const char *prefix);

/* Look up a file.  -ENOENT: the owner has no such file; -EIO. */
int file_store_get(struct file_store *fs, const char *owner, const char *id, struct file_info *out);
/* Read bytes [at, at + n) into p.  Returns the number of bytes, fewer at the end of the file; -EIO. */
ptrdiff_t file_store_read(struct file_store *fs, const char *id, int64_t at, void *p, size_t n);
/* List at most max files into out, newest first (ascending: oldest first), after the file `after` (NULL: from
 * the first).  *more: there are more.  purpose NULL: any.  Returns the number; -ENOENT: no file `after`;
 * -EIO. */
int file_store_list(struct file_store *fs, const char *owner, const char *purpose, const char *after,
		    bool ascending, struct file_info *out, int max, bool *more);

/* Delete a file.  done (may be NULL) is called once, on the journal's thread or at once; rc 0, or -errno with
 * why.  -EBUSY: the file is in use; why names the user. */
void file_store_delete(struct file_store *fs, const char *owner, const char *id,
		       void (*done)(void *user, int rc, const char *why), void *user);
/* Delete a file of any owner, even if it is in use; done as above.  rc is also 0 if there is no such file. */
void file_store_remove(struct file_store *fs, const char *id,
		       void (*done)(void *user, int rc, const char *why), void *user);
/* Delete expired files, except those in use.  Called now and then. */
void file_store_sweep(struct file_store *fs);

/* Limits of all files of an owner together; 0: no limit. */
struct file_quota {
	int64_t files, bytes;
};

/* A file being written, by one thread at a time.  info: everything but bytes.  quota: the owner's; files that
 * are being written count too; NULL: none. */
struct file_writer;
struct file_writer *file_writer_new(struct file_store *fs, const struct file_info *info,
				    const struct file_quota *quota);
/* Append bytes.  Negative: a chunk was refused; abort the file.  -EAGAIN: the disk fails, or is slower than
 * the caller; -EDQUOT: the disk has too little room for files (journal_room()); -E2BIG: the quota. */
int file_writer_put(struct file_writer *w, const void *p, size_t n);
const char *file_writer_why(const struct file_writer *w); /* reason of the error; "" if there is none */
/* Wait until at most 16 MiB of the file wait for the disk.  Otherwise a fast writer of a large file would
 * fill the journal's queue.  Not on the journal's thread.  Returns as file_writer_put() does. */
int file_writer_wait(struct file_writer *w);
/* Replace info (purpose, expiry), except the bytes. */
void file_writer_describe(struct file_writer *w, const struct file_info *info);
int64_t file_writer_bytes(const struct file_writer *w);
/* Commit the file, which is complete; takes *w.  also (may be NULL) runs in the same transaction. */
void file_writer_commit(struct file_writer **w, int (*also)(void *user, struct journal_db *db),
			void (*done)(void *user, int rc, const char *why), void *user);
/* Delete the file's chunks as soon as the disk allows.  *w may be NULL. */
void file_writer_abort(struct file_writer **w);

#endif
