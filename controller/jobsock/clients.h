/* clients.h - the clients of the job socket, found by routing id and by descriptor.
 * Owns: a record per client, and the count of bytes that ZeroMQ still holds for each client and for all.
 * Used on the front end's thread; ZeroMQ's threads lower the counts when a message has been written.
 *
 *   add --> live --lose--> lost (nothing more is sent) --unlink--> unlinked --release--> freed
 *                                                           (requests in the parser still refer to it)
 *
 * Two clients may have the same descriptor: a message of a closed connection may be read after its descriptor
 * was reused for another connection. */
#ifndef QUERN_CONTROLLER_JOBSOCK_CLIENTS_H
#define QUERN_CONTROLLER_JOBSOCK_CLIENTS_H

#include "base/map.h"
#include "proto/curve.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct budget;
struct call;

struct client {
	uint8_t route[256]; /* ZeroMQ's routing id */
	size_t route_n;
	int fd;                 /* descriptor of its connection, -1: unknown */
	char owner[CURVE_SIZE]; /* verified public key; "": the socket requires no keys */
	bool lost;              /* disconnected, or does not read */
	bool queued;            /* in clients->lost */
	bool unlinked;          /* removed from the tables; freed with its last request */
	struct client *next_lost, *same_fd, *same_hash;
	struct budget *budget;
	struct call *calls; /* used by the job socket: requests that wait for events or replies */
	uint32_t n_parsing; /* requests in the parser that refer to this client */
};

struct clients {
	struct map by_route; /* hash of the routing id -> chain, same_hash */
	uint64_t hash_seed;
	struct client **by_fd; /* [n_fd]: chain, same_fd */
	size_t n_fd;
	struct client *lost; /* lost clients, to be unlinked */
};

void clients_init(struct clients *t);
void clients_fini(struct clients *t); /* all clients are unlinked */

struct client *clients_find(const struct clients *t, const void *route, size_t n);
struct client *clients_add(struct clients *t, const void *route, size_t n, int fd, const char *owner);
/* Return the clients of a descriptor, chained by same_fd; makes room for the descriptor in the table. */
struct client *clients_of_fd(struct clients *t, int fd);

/* Mark a client as lost, from within a callback; the owner of the table unlinks it later
 * (clients_take_lost()). */
void clients_lose(struct clients *t, struct client *c);
/* Lose the clients for which lost() is true. */
void clients_lose_if(struct clients *t, bool (*lost)(void *user, const struct client *c), void *user);
struct client *clients_take_lost(struct clients *t); /* NULL: none */
void clients_unlink(struct clients *t, struct client *c);
/* Free an unlinked client that no request refers to; no effect on others. */
void clients_release(struct client *c);

/* Return the owner of the client's jobs, or NULL. */
const char *clients_owner(const struct client *c);
size_t clients_unsent(const struct client *c); /* bytes that ZeroMQ holds; c NULL: for all clients */
/* Send a message without blocking, after an empty delimiter frame if delimiter is set.  -EAGAIN: too many
 * unsent bytes wait for the client; -EHOSTUNREACH: it has disconnected; ... */
int clients_send(struct client *c, void *router, bool delimiter, const void *bytes, size_t n);

#endif
