/* peers.h - connections and their deadlines: how long each may take to send a request.
 * libmicrohttpd closes an idle connection, but would keep one for ever that sends a byte now and then
 * (slow loris).  From the connection's start, or its last reply, a request must be complete within the
 * limit; a body that comes steadily extends it.
 *
 * Nor does libmicrohttpd always see a client disconnect: when the end comes with the last bytes of half
 * a request, nothing wakes it again.  So the ends of connections are watched here (hangup.h), and a
 * connection that its client has closed is closed half a second later, unless its request was complete.
 *
 *   peer_add ---> deadline runs ---> peer_requested ---> no deadline ---> peer_replied --.
 *                    ^   peer_body extends                                               |
 *                    `-------------------------------------------------------------------' */
#ifndef QUERN_CONTROLLER_HTTP_PEERS_H
#define QUERN_CONTROLLER_HTTP_PEERS_H

#include <stdbool.h>
#include <stddef.h>

struct housekeeper;
struct peers;
struct peer;

/* Deadlines are looked at by the housekeeper. */
int peers_start(struct housekeeper *house, unsigned limit_s, struct peers **out, char *why, size_t why_n);
void peers_stop(struct peers *p); /* NULL is fine; all peers have been deleted */

/* fd stays open until peer_del(). */
struct peer *peer_add(struct peers *p, int fd);
void peer_del(struct peers *p, struct peer *peer);
/* n more bytes of a body have come. */
void peer_body(struct peers *p, struct peer *peer, size_t n);
/* The request is complete: no limit until peer_replied(), when the next one's time begins. */
void peer_requested(struct peers *p, struct peer *peer);
void peer_replied(struct peers *p, struct peer *peer);
/* What framing_target() found in the request that the peer sends; libmicrohttpd's thread only. */
size_t *peer_target(struct peer *peer);

#endif
