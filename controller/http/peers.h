/* peers.h - connections and their deadlines: how long each may take to send a request.
 * libmicrohttpd closes an idle connection, but keeps one for ever that sends a byte now and then (slow
 * loris).  A request must be complete within the limit, counted from the connection's start or its last
 * reply; a body that arrives steadily extends the deadline.
 *
 * libmicrohttpd also misses some disconnects: if the end arrives with the last bytes of half a request,
 * nothing wakes it again.  So this module watches for the ends of connections (hangup.h).  A connection that
 * its client has closed is shut down half a second later, unless its request was complete, and again every
 * half second until libmicrohttpd has closed it.
 *
 *   peer_add ---> deadline runs ---> peer_requested ---> no deadline ---> peer_replied --.
 *                    ^   peer_body extends                                               |
 *                    `-------------------------------------------------------------------' */
#ifndef QUERN_CONTROLLER_HTTP_PEERS_H
#define QUERN_CONTROLLER_HTTP_PEERS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct housekeeper;
struct peers;
struct peer;

/* Start; the housekeeper checks the deadlines. */
int peers_start(struct housekeeper *house, unsigned limit_s, struct peers **out, struct why *why);
void peers_stop(struct peers *p); /* NULL is fine; all peers have been deleted */

/* Add a connection.  fd stays open until peer_del(). */
struct peer *peer_add(struct peers *p, int fd);
void peer_del(struct peers *p, struct peer *peer);
/* Report n more bytes of a body. */
void peer_body(struct peers *p, struct peer *peer, size_t n);
/* Report a complete request: no deadline until peer_replied(), which starts the time of the next request. */
void peer_requested(struct peers *p, struct peer *peer);
void peer_replied(struct peers *p, struct peer *peer);
/* Return where the result of framing_target() is stored for the request being received.  libmicrohttpd's
 * thread only. */
size_t *peer_target(struct peer *peer);

#endif
