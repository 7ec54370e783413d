/* client.h - one connection to a service's job socket (ZeroMQ DEALER, msgpack; see
 * docs/PROTOCOL.md).  Requests and replies are JSON trees.  One thread. */
#ifndef QUERN_CLI_CLIENT_H
#define QUERN_CLI_CLIENT_H

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

/* Connects within timeout_ms; -ECONNREFUSED at once if nothing listens.  keys: for a service on TCP with
 * CURVE keys; NULL: unencrypted.  -EACCES: the service does not accept this key. */
int client_open(const char *endpoint, const struct client_keys *keys, int timeout_ms, struct client **out,
		char *why, size_t why_n);
void client_close(struct client *c); /* NULL is fine; queued requests are still sent */

/* Sends the request with the next number as its `id`, also stored in *id (may be NULL). */
int client_send(struct client *c, json_t *request, uint64_t *id, char *why, size_t why_n);

/* The next reply, owned by the caller.  timeout_ms -1: for ever.  -ETIMEDOUT; -EINTR: interrupted (term.h);
 * -ECONNRESET: the service has gone away; -EBADMSG: not a reply. */
int client_recv(struct client *c, int timeout_ms, json_t **reply, char *why, size_t why_n);

/* Sends a request and waits for its reply.  An `error` reply is -EREMOTEIO, with its code and message in why.
 */
int client_call(struct client *c, json_t *request, int timeout_ms, json_t **reply, char *why, size_t why_n);

/* What a service says of its model.  Of one that does not report it: no chat. */
struct reasoning_marks;
struct client_about {
	char model[256];
	bool chat;                           /* it has a chat template */
	bool reasoning;                      /* a chat's text may have reasoning */
	bool reasoning_open;                 /* which begins at once, without its tag */
	const struct reasoning_marks *marks; /* around it; NULL: the usual ones */
};
int client_about(struct client *c, int timeout_ms, struct client_about *about, char *why, size_t why_n);

/* The id of the request that a reply belongs to; 0: none. */
uint64_t client_reply_id(const json_t *reply);
/* "delta", "done", ...; "" where there is none. */
const char *client_reply_op(const json_t *reply);
/* "message (E_CODE)" of an `error` reply. */
void client_reply_error(const json_t *reply, char *why, size_t why_n);

#endif
