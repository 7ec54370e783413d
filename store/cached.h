/* cached.h - models in this user's cache (cli/models/cache.h draws it), found by their contents.
 *
 *     ROOT/                           $QUERN_MODELS, $XDG_CACHE_HOME/quern/models or ~/.cache/quern/models
 *       ORG/NAME/COMMIT/              what `quern pull` fetched
 *       _fetched/NAME/FINGERPRINT/    what a worker fetched from its controller (incoming.h): the files that
 *                                     a worker reads, without a tokenizer
 *       .checksums/                   records of fingerprint.h */
#ifndef QUERN_STORE_CACHED_H
#define QUERN_STORE_CACHED_H

#include "store/fingerprint.h"

#include <limits.h>

#define CACHED_FETCHED "_fetched"

/* ROOT by the values of QUERN_MODELS, XDG_CACHE_HOME and HOME, NULL where they are not set.  To be freed; an
 * absolute path.  NULL: none is set. */
char *cached_root(const char *models, const char *cache, const char *home);
char *cached_records(const char *root); /* to be freed */

/* The path to open a model with these contents: a folder of the cache that has all its files, with the right
 * checksums; among others, perhaps.  -ENOENT: there is none; why: what was wrong with one of the right sizes,
 * or "". */
int cached_find(const char *root, const struct manifest *m, const struct checksums *c, char path[PATH_MAX],
		char *why, size_t why_n);
/* Whether dir has all files of m, with the right checksums; -EBADMSG, -ENOENT, ... with the reason. */
int cached_check(const char *dir, const struct manifest *m, const struct checksums *c, char *why,
		 size_t why_n);
/* dir, or the first file in it. */
int cached_path(const char *dir, const struct manifest *m, char path[PATH_MAX], char *why, size_t why_n);

#endif
