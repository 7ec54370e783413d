/* model_server.h - gives workers that lack the model its files: the list of them with checksums, and chunks.
 * A thread of low priority reads the files, so that the engine's does not wait for a disk; answers come
 * encoded, and the engine's thread sends them after its plans.
 *
 *     engine thread   ask ............ poll fd, take, send
 *     this thread          read, hash, encode
 *
 * The files are those of the start: one that was changed or replaced since is refused, since workers that
 * serve already have the others' contents.  At most MODEL_SERVER_ASKED requests of a worker wait. */
#ifndef QUERN_CONTROLLER_FLEET_MODEL_SERVER_H
#define QUERN_CONTROLLER_FLEET_MODEL_SERVER_H

#include "base/buf.h"
#include "proto/bus.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_SERVER_ASKED = 64 };

struct model_server;

/* path: the model; name: for people; records: where checksums are kept (store/fingerprint.h), NULL: nowhere.
 * -ENOENT, ... with the reason: the model has no weights here. */
int model_server_start(struct model_server **out, const char *path, const char *name, const char *records,
		       char *why, size_t why_n);
void model_server_stop(struct model_server *s); /* NULL is fine */

const char *model_server_sketch(const struct model_server *s);
/* Into out: "", as long as the checksums of some files are not known. */
void model_server_fingerprint(struct model_server *s, char out[MANIFEST_FINGERPRINT]);

/* A worker's request.  false: it has too many, and this one is dropped. */
bool model_server_ask(struct model_server *s, uint64_t worker, const struct bus_want *w);
/* Readable when there is an answer. */
int model_server_fd(const struct model_server *s);
/* The next answer: its bytes are the caller's (buf_fini()).  false: there is none now. */
bool model_server_take(struct model_server *s, uint64_t *worker, struct buf *out);
/* Forgets what the worker has asked for. */
void model_server_forget(struct model_server *s, uint64_t worker);

#endif
