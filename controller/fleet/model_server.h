/* model_server.h - sends the model's files to workers that lack them: a list with checksums, then chunks.
 * A thread of low priority reads the files, so that the engine's thread never waits for a disk.  The answers
 * are encoded by that thread; the engine's thread sends them after its plans.
 *
 *     engine thread   request ........ poll fd, take, send
 *     this thread              read, hash, encode
 *     ZeroMQ threads                                     write, release
 *
 * Only the files present at start are sent.  A file that was changed or replaced since is refused, because
 * workers that serve already have loaded the original.
 *
 * At most MODEL_SERVER_ASKED requests of a worker wait.  A worker that does not read its answers gets no more
 * while 8 MiB of them are unread, or 64 MiB over all workers (in both cases plus one answer per worker). */
#ifndef QUERN_CONTROLLER_FLEET_MODEL_SERVER_H
#define QUERN_CONTROLLER_FLEET_MODEL_SERVER_H

#include "base/buf.h"
#include "base/err.h"
#include "proto/bus.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_SERVER_ASKED = 64 };

struct model_server;

/* path: the model; name: the name shown to people; records: where checksums are kept (store/fingerprint.h),
 * NULL: nowhere.  -ENOENT, ... with the reason: the model has no weights here. */
int model_server_start(struct model_server **out, const char *path, const char *name, const char *records,
		       struct why *why);
void model_server_stop(struct model_server *s); /* NULL is fine */

const char *model_server_quick_fingerprint(const struct model_server *s);
/* Write the fingerprint to out; "" until the checksums of all files are known. */
void model_server_fingerprint(struct model_server *s, char out[MANIFEST_FINGERPRINT]);

/* Queue a worker's request.  False: too many of its requests wait, and this one is dropped. */
bool model_server_request(struct model_server *s, uint64_t worker, const struct bus_want *w);
/* Return a descriptor that is readable when there is an answer. */
int model_server_fd(const struct model_server *s);
/* An encoded answer.  release(bytes, hint) returns the bytes when they have been written, or were dropped;
 * any thread may call it (zmq_msg_init_data()), also after model_server_stop(). */
struct model_answer {
	uint64_t worker;
	char *bytes;
	size_t n;
	void (*release)(void *bytes, void *hint);
	void *hint;
};
/* Take the next answer, which the caller releases.  False: there is none now. */
bool model_server_take(struct model_server *s, struct model_answer *out);
/* Drop the worker's requests and answers, except answers that were taken. */
void model_server_forget(struct model_server *s, uint64_t worker);

#endif
