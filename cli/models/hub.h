/* hub.h - lists the files that a model has on a server.
 * On a hub, GET /api/models/ORG/NAME/revision/REV?blobs=true returns the commit and its files, with sizes and
 * digests (SHA-256 of large files, Git's SHA-1 of others).  If it leaves those out,
 * .../tree/COMMIT?recursive=true (pages, by Link: rel="next") has them.  Files are at
 * /ORG/NAME/resolve/COMMIT/PATH.
 * On a web server, the usual names are tried, and the names that the index of the weights lists. */
#ifndef QUERN_CLI_MODELS_HUB_H
#define QUERN_CLI_MODELS_HUB_H

#include "base/err.h"
#include "cli/models/file_list.h"
#include "cli/models/http.h"
#include "cli/models/source.h"

/* Fill l, which is zeroed, and its commit. */
int hub_list(struct http *h, const struct source *s, struct file_list *l, struct why *why);

/* Parse a hub's replies, without a network.  Files are added to l; url is the prefix of a file's path. */
int hub_read_revision(const char *text, size_t n, const char *url, struct file_list *l, bool *sized,
		      struct why *why);
int hub_read_tree(const char *text, size_t n, const char *url, struct file_list *l, struct why *why);

#endif
