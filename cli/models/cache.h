/* cache.h - the models of this user: where `quern pull` puts them, and commands find them by name.
 *
 *     ROOT/                         $QUERN_MODELS, $XDG_CACHE_HOME/quern/models or ~/.cache/quern/models
 *       ORG/NAME/
 *         .lock                     held by the command that writes here
 *         COMMIT/                   a model as it was at a commit: complete, never changed
 *           .quern-model.json       its manifest: {"name", "revision", "commit", "source", "date", "bytes"}
 *           config.json, ...
 *         .COMMIT.part/             under way
 *         .COMMIT.old/              replaced or being removed
 *
 * Workers put what they fetch from a controller beside them (store/cached.h).
 *
 * Directories appear and go by rename(2): a reader sees a model as a whole or not at all. */
#ifndef QUERN_CLI_MODELS_CACHE_H
#define QUERN_CLI_MODELS_CACHE_H

#include "cli/models/file_list.h"
#include "cli/models/source.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CACHED_NAME = 2 * SOURCE_PART_MAX + 2 }; /* size of "ORG/NAME" */

/* One entry. */
struct cached {
	char *dir; /* owned; with no manifest if it is partial */
	char name[CACHED_NAME];
	char revision[SOURCE_REVISION];
	char commit[DIGEST_HEX];
	char kind[32]; /* "safetensors", "GGUF", "llama2.c", ...; "partial" */
	int64_t date;  /* of the pull, seconds since 1970 */
	int64_t bytes;
	bool partial;
};
struct cache_list {
	struct cached *entries; /* by name, then the newest first */
	size_t n, cap;
};

/* ROOT as an absolute path, to be freed; NULL with the reason: neither it nor HOME is set. */
char *cache_root(char *why, size_t why_n);

/* All that is there.  An absent root is empty. */
int cache_list_read(struct cache_list *l, char *why, size_t why_n);
void cache_list_fini(struct cache_list *l);
/* Whether an entry is meant: "NAME", or "ORG/NAME", with "@REVISION" as it was pulled or a commit's first
 * digits (7 at least). */
bool cache_matches(const struct cached *c, const char *text);

/* The path of a model that a command is given: word itself if it is a path that exists, else the newest entry
 * of that name: its directory, or its file if a single GGUF or llama2.c file is all there is.  name: what to
 * call it if it is from the cache, else "".  out: word if nothing is found. */
void cache_find(const char *word, char out[PATH_MAX], char name[CACHED_NAME]);

/* A place to write a model to: ROOT/ORG/NAME, locked. */
struct cache_place {
	char *dir;     /* ROOT/ORG/NAME */
	char *final;   /* .../COMMIT */
	char *staging; /* .../.COMMIT.part */
	int lock;
};
/* Makes the folders, takes the lock.  -EBUSY: another command has it. */
int cache_place_open(struct cache_place *p, const char *name, const char *commit, char *why, size_t why_n);
/* Whether all chosen files of l are in the finished entry already. */
bool cache_place_has(const struct cache_place *p, const struct file_list *l);
/* Makes the staging directory, with links to files of the finished entry and of others of this name, which
 * have the same digest. */
int cache_place_stage(const struct cache_place *p, const struct file_list *l, char *why, size_t why_n);
/* Writes the manifest and gives the staging directory its final name, in place of what has it. */
int cache_place_publish(const struct cache_place *p, const struct source *s, const struct file_list *l,
			char *why, size_t why_n);
/* The same where nothing was missing: its date and the name of its revision. */
int cache_place_touch(const struct cache_place *p, const struct source *s, const struct file_list *l,
		      char *why, size_t why_n);
void cache_place_close(struct cache_place *p);

/* Removes an entry; *bytes is what its files took. */
int cache_remove(const struct cached *c, int64_t *bytes, char *why, size_t why_n);

#endif
