/* source.h - parses what `quern pull` is asked to fetch, and its address.
 *
 *   ORG/NAME[@REVISION]                   a repository of the hub at `endpoint`
 *   ENDPOINT/ORG/NAME[/tree/REVISION]     the same, as in the URLs of the hub's pages
 *   http[s]://HOST/DIR/                   a directory of any web server: files by their usual names
 *   http[s]://HOST/DIR/FILE               one file, with a suffix (.gguf, .bin, .safetensors, ...)
 *
 * It also checks names: a name becomes a path below the cache, and must not lead outside it. */
#ifndef QUERN_CLI_MODELS_SOURCE_H
#define QUERN_CLI_MODELS_SOURCE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	SOURCE_PART_MAX = 96,   /* maximum length of ORG and of NAME */
	SOURCE_REVISION = 128,  /* size of a revision, including the NUL */
	SOURCE_URL_MAX = 2048,  /* size of any address */
	SOURCE_PATH_MAX = 1024, /* maximum length of a file's path in a model, with at most SOURCE_DEPTH_MAX
				 * components */
	SOURCE_DEPTH_MAX = 8,
};

enum source_kind { SOURCE_HUB, SOURCE_DIR, SOURCE_FILE };

struct source {
	enum source_kind kind;
	char endpoint[SOURCE_URL_MAX];      /* SOURCE_HUB: without a final slash */
	char name[2 * SOURCE_PART_MAX + 2]; /* "ORG/NAME"; for an address, "HOST/LAST-PART" */
	char revision[SOURCE_REVISION];     /* "main" by default; "" for an address */
	char url[SOURCE_URL_MAX];           /* SOURCE_DIR: with a final slash; SOURCE_FILE */
	char file[SOURCE_PART_MAX + 1];     /* SOURCE_FILE: the file's name */
};

/* Parse text.  as: the model's name in the cache, or NULL for the name in text.  -EINVAL with the reason. */
int source_parse(const char *text, const char *endpoint, const char *as, struct source *s, struct why *why);

/* Split "ORG/NAME" or "ORG/NAME@REVISION"; revision becomes "" if none is given. */
int source_name(const char *text, char name[2 * SOURCE_PART_MAX + 2], char revision[SOURCE_REVISION],
		struct why *why);

/* Check that a server's file may be written below a model's directory under this path.  The path must be
 * relative, without "." and "..", control characters or backslashes, not hidden, and not one of the cache's
 * own names. */
int source_path_check(const char *path, struct why *why);

/* Store the "https://host:port" of an address, in lower case; false if it is not an HTTP address. */
bool source_origin(const char *url, char *out, size_t n);
/* Return whether the text is an HTTP(S) address. */
bool source_is_url(const char *text);

/* Append text with all but unreserved characters (RFC 3986) as %XX; keep_slashes: slashes stay. */
void source_escape(struct buf *out, const char *text, bool keep_slashes);

#endif
