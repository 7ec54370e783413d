/* incoming.h - a model being fetched: which bytes to request next, where to store them, whether they are
 * right.
 *
 *     ROOT/_fetched/MODEL/
 *       .lock                      held while a worker fetches (and by quern rm)
 *       .FINGERPRINT.part/         in progress
 *         config.json              complete: its checksum was right
 *         .model.safetensors.part  the beginning of a file, as far as it was fetched
 *       FINGERPRINT/               complete
 *
 * Files are fetched one after the other, each from its beginning, so that a killed worker's successor
 * resumes at the end of the partial file.  That file is hashed again.  A wrong checksum at the end discards
 * the file, and it is fetched once more.
 *
 * Names come from a checked manifest, and are opened without following links. */
#ifndef QUERN_STORE_INCOMING_H
#define QUERN_STORE_INCOMING_H

#include "base/err.h"
#include "store/cached.h"

struct incoming;

/* Create the folders, take the lock, find the files already present, and check the room for the rest.  m,
 * root and c's strings are borrowed.  -EBUSY: another worker of this host fetches the model; -ENOSPC; ... */
int incoming_open(struct incoming **out, const char *root, const struct manifest *m,
		  const struct checksums *c, struct why *why);
/* Keep the files so far for a later fetch.  NULL is fine. */
void incoming_close(struct incoming *in);

int64_t incoming_done(const struct incoming *in); /* bytes present */
bool incoming_is_complete(const struct incoming *in);

/* Get the next bytes to request, at most BUS_CHUNK_MAX.  false: all are requested. */
bool incoming_want(struct incoming *in, uint32_t *file, uint64_t *offset, uint32_t *bytes);
/* Number of requests without a reply. */
uint32_t incoming_outstanding(const struct incoming *in);
/* Request all missing bytes again. */
void incoming_rewind(struct incoming *in);
/* Store received bytes.  1: not the bytes that are due, as after a rewind, and dropped.  -EBADMSG: they
 * contradict the request, or the file's checksum is wrong for the second time. */
int incoming_put(struct incoming *in, uint32_t file, uint64_t offset, const void *bytes, uint32_t n,
		 struct why *why);

/* Rename a complete model to its final name in the cache, with a manifest for `quern list`.  path: the path
 * to open. */
int incoming_publish(struct incoming *in, char path[PATH_MAX], struct why *why);

#endif
