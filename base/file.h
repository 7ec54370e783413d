/* file.h - files read whole or mapped, with a limit and a reason. */
#ifndef QUERN_BASE_FILE_H
#define QUERN_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The whole file, NUL-terminated, to be freed by the caller.  -EFBIG beyond max bytes;
 * -ENOENT, -EACCES, ... as open(2) has them; why names the path. */
int file_read(const char *path, size_t max, char **data, size_t *bytes, char *why, size_t why_n);

/* A read-only private mapping.  An empty file gives *data = NULL, *bytes = 0. */
int file_map(const char *path, const void **data, size_t *bytes, char *why, size_t why_n);
void file_unmap(const void *data, size_t bytes);
/* Of a mapping, a part that is not read again soon: its pages do not stay in this process's memory. */
void file_forget(const void *data, size_t bytes);
/* Has the n bytes at p, of a mapping, read from the disk now.  Where the kernel cannot do that (before Linux
 * 5.14), they are read when they are used. */
void file_read_ahead(const void *p, size_t n);

/* Call first in main(): gives a process that was started without stdin, stdout or stderr (`>&-`) ones that
 * fail. Otherwise the next file or socket that it opens would be "stdout", and receive what is printed. */
void file_guard_stdio(void);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Can processes of other users read it?  A file of root's that this user reads by its group is private:
 * Kubernetes mounts secrets of a pod with an fsGroup so (root:GROUP, 0440). */
struct stat;
bool file_is_shared(const struct stat *st);
/* dir + "/" + name, to be freed. */
char *file_join(const char *dir, const char *name);

#endif
