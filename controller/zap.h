/* zap.h - who may connect: the one place that answers libzmq's ZAP questions (RFC 27).
 * Owns: the service's key, the list of keys that are let in, the thread that answers.
 *
 * Sockets on TCP speak CURVE where the service has a key; a peer is known by its public key, and
 * nothing else that it says of itself counts.  Sockets on ipc:// are for processes of the same
 * user (or root), by the credentials that the kernel vouches for.
 *
 * The list is a text file, one line each, read again when it changes:
 *     client KEY name      may use the job socket
 *     admin  KEY name      likewise, and scale and drain
 *     worker KEY name      may join the worker bus
 * The service's own key may do everything. */
#ifndef QUERN_CONTROLLER_ZAP_H
#define QUERN_CONTROLLER_ZAP_H

#include "proto/curve.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zap;

#define ZAP_JOBS "jobs" /* domains */
#define ZAP_BUS  "bus"

enum zap_role { ZAP_CLIENT = 1, ZAP_WORKER = 2, ZAP_ADMIN = 4 };

/* Starts the thread.  key: of the service, copied; NULL: sockets on TCP stay in the clear.
 * allow: path of the list; NULL: only the service's own key.  zmq: before any socket of this
 * context is bound.  -ENOENT, -EINVAL (naming file and line), ... */
int zap_start(void *zmq, const struct curve_key *key, const char *allow, struct zap **out, char *why,
	      size_t why_n);
/* After all sockets that it guards are closed; NULL is fine. */
void zap_stop(struct zap *z);

/* Before the socket is bound to endpoint: who will be let in.  NULL z: everybody. */
int zap_guard(struct zap *z, void *socket, const char *endpoint, const char *domain);
bool zap_has_key(const struct zap *z);

/* What a peer may do, by the public key that CURVE has verified: any of zap_role, 0 nothing (any
 * more).  Any thread. */
unsigned zap_roles(struct zap *z, const char *public);
/* One more whenever the list has changed.  Any thread. */
uint64_t zap_generation(const struct zap *z);
/* Read the list again soon.  Any thread, and from signal handlers. */
void zap_reload(struct zap *z);

/* For tests and fuzzing: the list of a text. */
struct zap_entry {
	char public[CURVE_SIZE];
	unsigned roles;
};
int zap_parse(const char *text, size_t n, struct zap_entry **out, size_t *out_n, char *why, size_t why_n);

#endif
