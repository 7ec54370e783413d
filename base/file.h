/* file.h - read or map whole files, with a size limit and a reason for errors. */
#ifndef QUERN_BASE_FILE_H
#define QUERN_BASE_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Read the whole file, NUL-terminated; the caller frees it.  -EFBIG if it has more than max bytes; -ENOENT,
 * -EACCES, ... as from open(2); why names the path. */
int file_read(const char *path, size_t max, char **data, size_t *bytes, struct why *why);

/* Return -errno with the reason "PATH cannot be DONE: ...", where done is "written", "opened", ... */
int file_failed(struct why *why, const char *path, const char *done);

/* Map a file, read-only and private.  An empty file gives *data = NULL, *bytes = 0. */
int file_map(const char *path, const void **data, size_t *bytes, struct why *why);
void file_unmap(const void *data, size_t bytes);
/* Drop a range of a mapping from this process's memory.  For data that is not read again soon. */
void file_forget(const void *data, size_t bytes);
/* Read the n mapped bytes at p from the disk now.  If the kernel cannot do that (before Linux 5.14), they are
 * read when they are used. */
void file_read_ahead(const void *p, size_t n);

/* Call first in main().  If the process was started without stdin, stdout or stderr (`>&-`), open a
 * descriptor that fails in its place.  Otherwise the next file or socket opened would become "stdout" and
 * receive what is printed. */
void file_guard_stdio(void);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Return whether processes of other users can read the file.  A file of root's that this user reads through
 * its group counts as private: Kubernetes mounts the secrets of a pod with an fsGroup so (root:GROUP,
 * 0440). */
struct stat;
bool file_is_shared(const struct stat *st);
/* Sync the folder that holds PATH, so that a rename to PATH survives a power cut.  Also returns 0 if the file
 * system cannot sync a folder or this user may not list it. */
int file_sync_folder(const char *path);
/* Return dir + "/" + name, which the caller frees. */
char *file_join(const char *dir, const char *name);

#endif
