/* replace.h - a file that is replaced as a whole: written beside it under a name of its own, then renamed.
 * At every time, also after a power cut, the path has what it had before or all of the new bytes. */
#ifndef QUERN_BASE_REPLACE_H
#define QUERN_BASE_REPLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct replace {
	FILE *f; /* to be written */
	char *path, *temp;
};

/* Opens the new file, with permissions mode less the umask.  A negative errno, with *r empty. */
int replace_begin(struct replace *r, const char *path, mode_t mode, char *why, size_t why_n);
/* The new file takes its place, and is on the disk.  A negative errno where that fails, and where an earlier
 * write to r->f has failed: the path is as it was, and the new file is gone.  Frees *r either way. */
int replace_end(struct replace *r, char *why, size_t why_n);
/* The new file is removed, the path stays as it was.  Frees *r; harmless after either of the above. */
void replace_drop(struct replace *r);

#endif
