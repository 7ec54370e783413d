/* download.h - fetches the chosen files of a list into a directory: several ranges at a time, resumed where
 * an earlier run was cut, tried again after faults, checked.
 *
 *     list:  [a ####|####|##..][b ....|....]    pieces (part.h) in order; a call for each of `connections`
 *                        ^  ^   ^            */
#ifndef QUERN_CLI_MODELS_DOWNLOAD_H
#define QUERN_CLI_MODELS_DOWNLOAD_H

#include "cli/models/file_list.h"
#include "cli/models/http.h"

#include <stddef.h>
#include <stdint.h>

enum { DOWNLOAD_CONNECTIONS_MAX = 64 };

struct download {
	const struct file_list *list;
	const char *dir;
	int connections; /* 1 to DOWNLOAD_CONNECTIONS_MAX */
	/* Called about 10 times a second.  doing: the file at work. */
	void (*progress)(void *ctx, const char *doing, int64_t done, int64_t total);
	void *ctx;
	/* Out. */
	int64_t received; /* bytes of this run */
	size_t unchecked; /* files without a checksum */
};

/* 0 when all are there under their names.  -EINTR after Ctrl-C.  Whatever the error, what was fetched is
 * kept. */
int download_run(struct http *h, struct download *d, char *why, size_t why_n);

/* -ENOSPC, with figures, if the disk of dir has no room for the rest of the files. */
int download_check_space(const struct file_list *l, const char *dir, char *why, size_t why_n);

#endif
