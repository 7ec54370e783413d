/* client.h - one connection to a service's job socket (ZeroMQ DEALER, msgpack; see docs/PROTOCOL.md).
 * Requests and replies are JSON trees.  One thread. */
#ifndef QUERN_CLI_CLIENT_H
#define QUERN_CLI_CLIENT_H

#include "base/err.h"
#include "proto/curve.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;

/* The client's key pair and the service's public key. */
struct client_keys {
	struct curve_key own, server;
};

/* Connect within timeout_ms; -ECONNREFUSED at once if nothing listens.  keys: for a service on TCP with CURVE
 * keys; NULL: unencrypted.  -EACCES: the service does not accept this key. */
int client_open(const char *endpoint, const struct client_keys *keys, int timeout_ms, struct client **out,
		struct why *why);
/* NULL is fine; queued requests are still sent.  errno stays, for term_finish(). */
void client_close(struct client *c);

/* Send the request with the next number as its `id`, which is also stored in *id (id may be NULL). */
int client_send(struct client *c, json_t *request, uint64_t *id, struct why *why);

/* Receive the next reply, which the caller owns.  timeout_ms -1: no limit.  -ETIMEDOUT; -EINTR: interrupted
 * (term.h); -ECONNRESET: the service has gone away; -EBADMSG: not a reply. */
int client_recv(struct client *c, int timeout_ms, json_t **reply, struct why *why);

/* Send a request and wait for its reply.  An `error` reply becomes -EREMOTEIO, with its code and message in
 * why. */
int client_call(struct client *c, json_t *request, int timeout_ms, json_t **reply, struct why *why);

/* Description of the service's model.  If the service does not report it: no chat. */
struct reasoning_marks;
struct client_about {
	char model[256];
	bool chat;                           /* the model has a chat template */
	bool reasoning;                      /* a chat's text may contain reasoning */
	bool reasoning_open;                 /* the text begins with reasoning, without the opening tag */
	const struct reasoning_marks *marks; /* tags around reasoning; NULL: the usual ones */
};
int client_about(struct client *c, int timeout_ms, struct client_about *about, struct why *why);

/* Return the id of the request that a reply belongs to; 0: none. */
uint64_t client_reply_id(const json_t *reply);
/* Return the reply's op: "delta", "done", ...; "" if it has none. */
const char *client_reply_op(const json_t *reply);
/* Format an `error` reply as "message (E_CODE)". */
void client_reply_error(const json_t *reply, struct why *why);

#endif
