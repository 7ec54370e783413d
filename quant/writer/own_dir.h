/* own_dir.h - a directory of this run beside its result: locked while the run uses it, and known by a file in
 * it, its mark, to be a run's.
 *
 *     none, or empty             it is made, taken
 *     locked by another run      -EBUSY
 *     with the mark              a run that was killed left it: taken, emptied
 *     without                    -EEXIST: it is somebody else's
 *
 * The mark is made first and goes last, so that what a killed run leaves is always known. */
#ifndef QUERN_QUANT_WRITER_OWN_DIR_H
#define QUERN_QUANT_WRITER_OWN_DIR_H

#include <stdbool.h>
#include <stddef.h>

/* Made if it is not there, and locked: *fd, -1 after an error, has the lock until it is closed.  dst: the
 * result, for the message of -EBUSY.  What is in it is left alone. */
int own_dir_lock(const char *path, const char *dst, int *fd, char *why, size_t why_n);
/* The same, and empty but for the mark; -EEXIST: somebody else's. */
int own_dir_take(const char *path, const char *dst, const char *mark, int *fd, char *why, size_t why_n);

/* Without entries, but for those that begin with `but` (NULL: none is left out). */
bool own_dir_is_empty(int fd, const char *but);
/* Removes files and directories of files; the mark last. */
void own_dir_empty(int fd, const char *mark);
/* Emptied and removed; *fd is closed and -1.  Nothing where it is -1 already. */
void own_dir_remove(const char *path, const char *mark, int *fd);

#endif
