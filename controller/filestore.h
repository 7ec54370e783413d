/* filestore.h - files that clients upload or that batches write, in the journal, in parts.
 * A file is there when it is complete; what was begun and never ended is swept at the next start.
 * Files belong to an owner (the name of an API key, "" without keys) and are not seen by others.
 * Any thread. */
#ifndef QUERN_CONTROLLER_FILESTORE_H
#define QUERN_CONTROLLER_FILESTORE_H

#include "controller/journal.h"

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

struct filestore;

struct file_info {
	char id[FILE_ID_SIZE];
	char owner[FILE_OWNER_SIZE];
	char name[FILE_NAME_SIZE];
	char purpose[FILE_PURPOSE_SIZE];
	int64_t bytes;
	int64_t created_at, expires_at; /* seconds since 1970; 0: does not expire */
};

/* Borrows the journal.  Unfinished files of an earlier life are removed. */
int filestore_open(struct journal *j, struct filestore **out, char *why, size_t why_n);
void filestore_close(struct filestore *fs); /* NULL is fine; no writers are left */
struct journal *filestore_journal(struct filestore *fs);

/* Draws an id: prefix and 128 random bits. */
void filestore_id(char id[FILE_ID_SIZE], const char *prefix);

/* -ENOENT: no such file of that owner; -EIO. */
int filestore_get(struct filestore *fs, const char *owner, const char *id, struct file_info *out);
/* Bytes [at, at + n) of a file of that many; fewer at its end; -EIO. */
ptrdiff_t filestore_read(struct filestore *fs, const char *id, int64_t at, void *p, size_t n);
/* Youngest first (or oldest), behind the file `after` (NULL: from the first), at most max into
 * out; *more: there are more.  purpose NULL: any.  How many, -ENOENT: no file `after`, -EIO. */
int filestore_list(struct filestore *fs, const char *owner, const char *purpose, const char *after,
		   bool ascending, struct file_info *out, int max, bool *more);

/* done: once, on the journal's thread or at once; rc 0 or -errno with why.  May be NULL.
 * -EBUSY: it is the input of a batch that has not ended, which why names. */
void filestore_delete(struct filestore *fs, const char *owner, const char *id,
		      void (*done)(void *user, int rc, const char *why), void *user);
/* The same of whichever owner and whatever reads it; one that is not there is gone, too. */
void filestore_remove(struct filestore *fs, const char *id, void (*done)(void *user, int rc, const char *why),
		      void *user);
/* Forgets what has expired, but for the inputs of batches that have not ended; called now and then. */
void filestore_sweep(struct filestore *fs);

/* A file being written, by one thread at a time.  info: all but bytes. */
struct file_writer;
struct file_writer *file_writer_new(struct filestore *fs, const struct file_info *info);
/* -EAGAIN: a part was refused (the disk is full, or slower than this): abort it. */
int file_writer_put(struct file_writer *w, const void *p, size_t n);
/* Waits until no more than 16 MiB of what was put wait for the disk: who has much to write as fast as it
 * can calls this now and then, or fills the journal's queue.  Not on its thread.  -EAGAIN as above. */
int file_writer_wait(struct file_writer *w);
/* What was not known when it was begun: purpose, expiry. */
void file_writer_describe(struct file_writer *w, const struct file_info *info);
int64_t file_writer_bytes(const struct file_writer *w);
/* The file is complete; takes *w.  also (may be NULL) runs in the same transaction. */
void file_writer_commit(struct file_writer **w, int (*also)(void *user, struct journal_db *db),
			void (*done)(void *user, int rc, const char *why), void *user);
/* Its parts go, as soon as the disk takes that.  NULL in it is fine. */
void file_writer_abort(struct file_writer **w);

#endif
