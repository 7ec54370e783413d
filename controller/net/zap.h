/* zap.h - ZAP authentication (RFC 27): which peers may connect.
 * Owns: the service's key, the list of allowed keys, the thread that answers libzmq's requests.
 *
 *   peer --CURVE handshake--> libzmq --ZAP request--> zap thread --200 or 400--> libzmq
 *
 * tcp://: CURVE, if the service has a key.  A peer is identified by its verified public key only; its routing
 * id and other names that it chooses are ignored.
 * ipc://: processes of the same user, or root, by the credentials from the kernel (SO_PEERCRED).
 *
 * The list is a text file, one key per line, read again when it changes:
 *     client KEY name      may use the job socket
 *     admin  KEY name      may use the job socket, scale and drain
 *     worker KEY name      may join the worker bus
 * The service's own key has all roles. */
#ifndef QUERN_CONTROLLER_NET_ZAP_H
#define QUERN_CONTROLLER_NET_ZAP_H

#include "base/err.h"
#include "proto/curve.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zap;

/* ZAP domains */
#define ZAP_JOBS "jobs"
#define ZAP_BUS  "bus"

enum zap_role { ZAP_CLIENT = 1, ZAP_WORKER = 2, ZAP_ADMIN = 4 };

/* Start the thread, before any socket of the context zmq is bound.  key: the service's, copied; NULL: TCP
 * sockets are not encrypted.  allow: path of the list; NULL: only the service's own key is allowed.  -ENOENT,
 * -EINVAL (naming file and line), ... */
int zap_start(void *zmq, const struct curve_key *key, const char *allow, struct zap **out, struct why *why);
/* Stop the thread, after all guarded sockets are closed.  NULL is fine. */
void zap_stop(struct zap *z);

/* Set up authentication for a socket that is then bound to endpoint.  z NULL: all peers are accepted. */
int zap_guard(struct zap *z, void *socket, const char *endpoint, const char *domain);
bool zap_has_key(const struct zap *z);

/* Return the roles (enum zap_role, or-ed) of a public key that CURVE has verified; 0: the key is not, or no
 * longer, allowed.  Any thread. */
unsigned zap_roles(struct zap *z, const char *public);
/* Return a counter that is incremented whenever the list is read again.  Any thread. */
uint64_t zap_generation(const struct zap *z);
/* Request that the list be read again.  Any thread, and from signal handlers. */
void zap_reload(struct zap *z);

/* Parse the text of a list; public for tests and fuzzing. */
struct zap_entry {
	char public[CURVE_SIZE];
	unsigned roles;
};
int zap_parse(const char *text, size_t n, struct zap_entry **out, size_t *out_n, struct why *why);

#endif
