/* model_server.h - gives workers that lack the model its files: the list of them with checksums, and chunks.
 * A thread of low priority reads the files, so that the engine's does not wait for a disk; answers come
 * encoded, and the engine's thread sends them after its plans.
 *
 *     engine thread   ask ............ poll fd, take, send
 *     this thread          read, hash, encode
 *     ZeroMQ's                                             write, release
 *
 * The files are those of the start: one that was changed or replaced since is refused, since workers that
 * serve already have the others' contents.
 *
 * At most MODEL_SERVER_ASKED requests of a worker wait, and for one that does not read its answers no more of
 * them are made: 8 MiB lie unread, and 64 MiB of all workers (with one answer of each beyond). */
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
/* An answer, encoded.  release(bytes, hint) gives the bytes back when they have been written, or were not;
 * any thread may call it (zmq_msg_init_data()), also after model_server_stop(). */
struct model_answer {
	uint64_t worker;
	char *bytes;
	size_t n;
	void (*release)(void *bytes, void *hint);
	void *hint;
};
/* The next one, which the caller releases.  false: there is none now. */
bool model_server_take(struct model_server *s, struct model_answer *out);
/* Forgets what the worker has asked for, but what was taken. */
void model_server_forget(struct model_server *s, uint64_t worker);

#endif
