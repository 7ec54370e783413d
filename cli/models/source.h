/* source.h - what `quern pull` is told to fetch, and its address.
 *
 *   ORG/NAME[@REVISION]         a repository of the hub at `endpoint`; so is
 * ENDPOINT/ORG/NAME[/tree/REVISION] http[s]://HOST/DIR/         a directory of any web server: files are
 * found by their usual names http[s]://HOST/DIR/FILE     one file, with a suffix (.gguf, .bin, .safetensors,
 * ...)
 *
 * Also the rules for names: a name becomes a path below the cache, so none may leave it. */
#ifndef QUERN_CLI_MODELS_SOURCE_H
#define QUERN_CLI_MODELS_SOURCE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	SOURCE_PART_MAX = 96,   /* of ORG and NAME, each */
	SOURCE_REVISION = 128,  /* size of a revision, the NUL included */
	SOURCE_URL_MAX = 2048,  /* of any address */
	SOURCE_PATH_MAX = 1024, /* of a file's path in a model, in at most SOURCE_DEPTH_MAX folders */
	SOURCE_DEPTH_MAX = 8,
};

enum source_kind { SOURCE_HUB, SOURCE_DIR, SOURCE_FILE };

struct source {
	enum source_kind kind;
	char endpoint[SOURCE_URL_MAX];      /* SOURCE_HUB: without a slash at its end */
	char name[2 * SOURCE_PART_MAX + 2]; /* "ORG/NAME"; of an address, "HOST/LAST-PART" */
	char revision[SOURCE_REVISION];     /* "main" by default; "" of an address */
	char url[SOURCE_URL_MAX];           /* SOURCE_DIR: with a slash at its end; SOURCE_FILE */
	char file[SOURCE_PART_MAX + 1];     /* SOURCE_FILE: its name */
};

/* -EINVAL with the reason.  as: the model's name in the cache, or NULL for the one that text has. */
int source_parse(const char *text, const char *endpoint, const char *as, struct source *s, char *why,
		 size_t why_n);

/* "ORG/NAME" or "ORG/NAME@REVISION", into its parts; revision becomes "" where none is given. */
int source_name(const char *text, char name[2 * SOURCE_PART_MAX + 2], char revision[SOURCE_REVISION],
		char *why, size_t why_n);

/* Whether a file of a server may be written below a model's directory under this path: relative, without "."
 * and
 * "..", control characters or backslashes, not hidden and not one of the cache's own names. */
int source_path_check(const char *path, char *why, size_t why_n);

/* "https://host:port" of an address, in lower case; false: it is not one of HTTP. */
bool source_origin(const char *url, char *out, size_t n);
/* Whether the text is an address of HTTP(S). */
bool source_is_url(const char *text);

/* Appends text with everything but unreserved characters (RFC 3986) as %XX; slashes stay if wanted. */
void source_escape(struct buf *out, const char *text, bool keep_slashes);

#endif
