/* own_dir.h - a run's own directory next to its result: locked while the run uses it, and recognized by a
 * mark, a file in it.
 *
 *     missing, or empty          it is made and taken
 *     locked by another run      -EBUSY
 *     with the mark              left by a killed run: taken and emptied
 *     without the mark           -EEXIST: not a run's
 *
 * The mark is created first and removed last, so that the directory of a killed run is always recognized. */
#ifndef QUERN_QUANT_WRITER_OWN_DIR_H
#define QUERN_QUANT_WRITER_OWN_DIR_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Make the directory if it is missing, and lock it.  *fd holds the lock until it is closed; -1 after an
 * error.  dst: the result, for the message of -EBUSY.  The content is left alone. */
int own_dir_lock(const char *path, const char *dst, int *fd, struct why *why);
/* Lock the directory, and empty it except for the mark; -EEXIST: not a run's. */
int own_dir_take(const char *path, const char *dst, const char *mark, int *fd, struct why *why);

/* Return whether it has no entries other than those that begin with `but` (NULL: no exception). */
bool own_dir_is_empty(int fd, const char *but);
/* Remove files, and directories of files; the mark last. */
void own_dir_empty(int fd, const char *mark);
/* Empty and remove the directory; close *fd and set it to -1.  Does nothing if *fd is -1. */
void own_dir_remove(const char *path, const char *mark, int *fd);

#endif
