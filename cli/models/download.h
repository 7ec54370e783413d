/* download.h - fetches the chosen files of a list into a directory: several ranges in parallel, resumed where
 * an earlier run stopped, retried after faults, and checked.
 *
 *     list:  [a ####|####|##..][b ....|....]    chunks (part.h) in order; one call for each of `connections`
 *                        ^  ^   ^ */
#ifndef QUERN_CLI_MODELS_DOWNLOAD_H
#define QUERN_CLI_MODELS_DOWNLOAD_H

#include "base/err.h"
#include "cli/models/file_list.h"
#include "cli/models/http.h"

#include <stddef.h>
#include <stdint.h>

enum { DOWNLOAD_CONNECTIONS_MAX = 64 };

struct download {
	const struct file_list *list;
	const char *dir;
	int connections; /* 1 to DOWNLOAD_CONNECTIONS_MAX */
	/* Called about 10 times a second.  doing: the file being fetched. */
	void (*progress)(void *ctx, const char *doing, int64_t done, int64_t total);
	void *ctx;
	/* Results. */
	int64_t received; /* bytes received in this run */
	size_t unchecked; /* files without a checksum */
};

/* Fetch the files.  0: all are complete under their names.  -EINTR after Ctrl-C.  After any error, the data
 * fetched so far is kept. */
int download_run(struct http *h, struct download *d, struct why *why);

/* -ENOSPC, with figures, if the disk of dir has no room for the rest of the files. */
int download_check_space(const struct file_list *l, const char *dir, struct why *why);

#endif
