/* replace.h - replace a file atomically: write a temporary file in the same directory, then rename it.
 * At any time, also after a power cut, the path has either its previous contents or all of the new ones. */
#ifndef QUERN_BASE_REPLACE_H
#define QUERN_BASE_REPLACE_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct replace {
	FILE *f; /* the new file, to write to */
	char *path, *temp;
};

/* Open the new file, with permissions mode less the umask.  On error, a negative errno and *r is empty. */
int replace_begin(struct replace *r, const char *path, mode_t mode, struct why *why);
/* Sync the new file and rename it to the path.  If that fails, or an earlier write to r->f has failed, return
 * a negative errno; the path is unchanged and the new file removed.  Frees *r in both cases. */
int replace_end(struct replace *r, struct why *why);
/* Remove the new file and leave the path unchanged.  Frees *r; harmless after replace_end() or a failed
 * replace_begin(). */
void replace_drop(struct replace *r);

/* Replace the file at PATH with o as indented JSON. */
int replace_json(const char *path, const json_t *o, struct why *why);

#endif
