/* cache.h - the user's model cache: `quern pull` writes it, and commands find models in it by name.
 *
 *     ROOT/                         $QUERN_MODELS, $XDG_CACHE_HOME/quern/models or ~/.cache/quern/models
 *       ORG/NAME/
 *         .lock                     held by the command that writes here
 *         COMMIT/                   a model as of a commit: complete, never changed
 *           .quern-model.json       its manifest: {"name", "revision", "commit", "source", "date", "bytes"}
 *           config.json, ...
 *         .COMMIT.part/             in progress
 *         .COMMIT.old/              replaced or being removed
 *
 * Workers store what they fetch from a controller in the same ROOT (store/cached.h).
 *
 * Directories appear and disappear by rename(2): a reader sees a whole model or none. */
#ifndef QUERN_CLI_MODELS_CACHE_H
#define QUERN_CLI_MODELS_CACHE_H

#include "base/err.h"
#include "cli/models/file_list.h"
#include "cli/models/source.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CACHED_NAME = 2 * SOURCE_PART_MAX + 2 }; /* size of "ORG/NAME" */

/* One model in the cache. */
struct cached {
	char *dir; /* owned; has no manifest if the model is partial */
	char name[CACHED_NAME];
	char revision[SOURCE_REVISION];
	char commit[DIGEST_HEX];
	char kind[32]; /* "safetensors", "GGUF", "bin" (llama2.c) or "files"; "partial" */
	int64_t date;  /* time of the pull, seconds since 1970 */
	int64_t bytes;
	bool partial;
};
struct cache_list {
	struct cached *entries; /* sorted by name, then newest first */
	size_t n, cap;
};

/* Return ROOT as an absolute path, which the caller frees.  NULL with the reason if neither a cache variable
 * nor HOME is set. */
char *cache_root(struct why *why);

/* List the whole cache.  An absent root is empty. */
int cache_list_read(struct cache_list *l, struct why *why);
void cache_list_fini(struct cache_list *l);
/* Return whether text names the entry: "NAME" or "ORG/NAME", optionally with "@" and the revision as pulled
 * or the first digits of a commit (at least 7). */
bool cache_matches(const struct cached *c, const char *text);

/* Find the path of a model given to a command.  If word is an existing path, out is word.  Otherwise out is
 * the newest entry of that name: its directory, or its file if it holds a single GGUF or llama2.c file.  If
 * nothing is found, out is word.  name: the model's name if it is from the cache, else "". */
void cache_find(const char *word, char out[PATH_MAX], char name[CACHED_NAME]);

/* The directory in the cache that a model is written to, ROOT/ORG/NAME, locked. */
struct cache_target {
	char *dir;     /* ROOT/ORG/NAME */
	char *final;   /* .../COMMIT */
	char *staging; /* .../.COMMIT.part */
	int lock;
};
/* Make the folders and take the lock.  -EBUSY: another command holds it. */
int cache_target_open(struct cache_target *p, const char *name, const char *commit, struct why *why);
/* Return whether the finished entry already has all chosen files of l. */
bool cache_target_has(const struct cache_target *p, const struct file_list *l);
/* Make the staging directory, with links to files that have the same digest in the finished entry or in other
 * entries of this name. */
int cache_target_stage(const struct cache_target *p, const struct file_list *l, struct why *why);
/* Write the manifest and rename the staging directory to its final name, replacing any directory there. */
int cache_target_publish(const struct cache_target *p, const struct source *s, const struct file_list *l,
			 struct why *why);
/* Update the date and revision of a finished entry from which no file was missing. */
int cache_target_touch(const struct cache_target *p, const struct source *s, const struct file_list *l,
		       struct why *why);
void cache_target_close(struct cache_target *p);

/* Remove an entry; *bytes is the space that its files took. */
int cache_remove(const struct cached *c, int64_t *bytes, struct why *why);

#endif
