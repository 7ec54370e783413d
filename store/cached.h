/* cached.h - models in this user's cache (cli/models/cache.h draws the layout), found by their contents.
 *
 *     ROOT/                           $QUERN_MODELS, $XDG_CACHE_HOME/quern/models or ~/.cache/quern/models
 *       ORG/NAME/COMMIT/              fetched by `quern pull`
 *       _fetched/NAME/FINGERPRINT/    fetched by a worker from its controller (incoming.h): the files that
 *                                     a worker reads, without a tokenizer
 *       .checksums/                   records of fingerprint.h */
#ifndef QUERN_STORE_CACHED_H
#define QUERN_STORE_CACHED_H

#include "base/err.h"
#include "store/fingerprint.h"

#include <limits.h>

#define CACHED_FETCHED "_fetched"

/* Return ROOT, an absolute path, from the values of QUERN_MODELS, XDG_CACHE_HOME and HOME (NULL: not set).
 * The caller frees it.  NULL: no value is usable. */
char *cached_root(const char *models, const char *cache, const char *home);
char *cached_records(const char *root); /* the caller frees it */

/* Find a folder of the cache that has all files of m with the right checksums, and perhaps other files; set
 * path as cached_path() does.  -ENOENT: there is none; why: the fault of a folder with files of the right
 * sizes, or "". */
int cached_find(const char *root, const struct manifest *m, const struct checksums *c, char path[PATH_MAX],
		struct why *why);
/* Return 0 if dir has all files of m with the right checksums; else -EBADMSG, -ENOENT, ... with the
 * reason. */
int cached_check(const char *dir, const struct manifest *m, const struct checksums *c, struct why *why);
/* Set path to dir, or to m->first in dir if m has one: the path to open. */
int cached_path(const char *dir, const struct manifest *m, char path[PATH_MAX], struct why *why);

#endif
