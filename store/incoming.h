/* incoming.h - a model that is being fetched: which bytes to ask for, where they go, whether they are right.
 *
 *     ROOT/_fetched/MODEL/
 *       .lock                      held while a worker fetches (and by quern rm)
 *       .FINGERPRINT.part/         under way
 *         config.json              complete: its checksum was right
 *         .model.safetensors.part  the beginning of a file; as long as what is there
 *       FINGERPRINT/               complete
 *
 * Files come one after the other, each from its beginning, so that a killed worker's successor goes on where
 * the file ends.  What it finds is hashed again; a wrong checksum in the end costs that file, once.
 *
 * Names come from a checked manifest, and are opened without following links. */
#ifndef QUERN_STORE_INCOMING_H
#define QUERN_STORE_INCOMING_H

#include "store/cached.h"

struct incoming;

/* Makes the folders, takes the lock, finds out what is there already, and whether there is room for the rest.
 * m, root and c's strings are borrowed.  -EBUSY: another worker of this host fetches it; -ENOSPC; ... */
int incoming_open(struct incoming **out, const char *root, const struct manifest *m,
		  const struct checksums *c, char *why, size_t why_n);
/* Keeps what is there for a later one.  NULL is fine. */
void incoming_close(struct incoming *in);

int64_t incoming_done(const struct incoming *in); /* bytes there */
bool incoming_is_complete(const struct incoming *in);

/* The next bytes to ask for, at most BUS_CHUNK_MAX.  false: all were asked for. */
bool incoming_want(struct incoming *in, uint32_t *file, uint64_t *offset, uint32_t *bytes);
/* How many of these have not come. */
uint32_t incoming_outstanding(const struct incoming *in);
/* Asks again for all that has not come. */
void incoming_rewind(struct incoming *in);
/* Bytes that came.  1: they were not due now, as after a rewind, and are dropped.  -EBADMSG: they contradict
 * the request, or the checksum of the file is wrong for the second time. */
int incoming_put(struct incoming *in, uint32_t file, uint64_t offset, const void *bytes, uint32_t n,
		 char *why, size_t why_n);

/* Of a complete one: it gets its name in the cache, with a manifest for `quern list`.  path: as to open it.
 */
int incoming_publish(struct incoming *in, char path[PATH_MAX], char *why, size_t why_n);

#endif
