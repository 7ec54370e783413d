/* peers.h - the connections, and how long each may take to say a request.  libmicrohttpd closes
 * a connection on which nothing happens; one that sends a byte now and then (slow loris) it
 * would keep for ever.  From the connection's start, or its last reply, until a request is
 * complete, only so much time may pass; a body that comes steadily is given more.
 *
 * Nor does libmicrohttpd always see a client leave: it reads what has come, and when the end came
 * with the last bytes of half a request, nothing wakes it again.  So the ends of connections are
 * watched here, and a connection whose client has gone is closed half a second later, unless its
 * request was complete. */
#ifndef QUERN_CONTROLLER_PEERS_H
#define QUERN_CONTROLLER_PEERS_H

#include <stdbool.h>
#include <stddef.h>

struct peers;
struct peer;

int peers_start(unsigned limit_s, struct peers **out, char *why, size_t why_n);
void peers_stop(struct peers *p); /* NULL is fine; all peers have been deleted */

/* fd stays open until peer_del(). */
struct peer *peer_add(struct peers *p, int fd);
void peer_del(struct peers *p, struct peer *peer);
/* n more bytes of a body have come. */
void peer_body(struct peers *p, struct peer *peer, size_t n);
/* The request is complete: no limit until peer_replied(), when the next one's time begins. */
void peer_asked(struct peers *p, struct peer *peer);
void peer_replied(struct peers *p, struct peer *peer);

#endif
