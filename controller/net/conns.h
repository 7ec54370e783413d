/* conns.h - the connections of a listening ZeroMQ socket, by descriptor, from the events of its monitor:
 * their number, and which of them are closed when there are too many.
 * Owns: the table.  Independent of the protocol.  One thread: the reader of the monitor.
 *
 *                conns_keep()               conns_release()
 *   accepted --> pending -----------------> kept -------------> pending, first to be closed
 *                   |
 *                   +--> shut down when its time has passed (conns_expire()), or when it is the oldest
 *                        pending connection and more than `max` are open
 *
 * A connection is pending until its first message or request: opening connections without sending anything
 * cannot lock other clients out.  If all are kept, the newest is closed.
 *
 * Closing a connection means shutting down its descriptor: ZeroMQ then closes it, and the monitor reports
 * it. */
#ifndef QUERN_CONTROLLER_NET_CONNS_H
#define QUERN_CONTROLLER_NET_CONNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conns;

/* Return the maximum number of connections of a listening socket: want, or the given quarters of the
 * process's descriptors less a reserve for files and the worker bus, whichever is less.  Raises the soft
 * limit of RLIMIT_NOFILE as far as needed. */
enum conns_quarters { CONNS_JOBS = 1, CONNS_HTTP = 3 };
size_t conns_limit(size_t want, enum conns_quarters share);

/* endpoint: the socket's ZMQ_LAST_ENDPOINT. */
struct conns *conns_new(const char *endpoint, size_t max);
void conns_free(struct conns *c); /* NULL is fine */

/* Record events of the monitor.  until_us: when conns_expire() closes the connection if it is still pending;
 * INT64_MAX: never. */
void conns_opened(struct conns *c, int fd, int64_t until_us);
/* Record that the connection closed.  False: it was pending or closed by this table, so no request can have
 * arrived on it. */
bool conns_closed(struct conns *c, int fd);

bool conns_is_open(const struct conns *c, int fd);
size_t conns_count(const struct conns *c);
/* Move a connection from pending to kept.  Return its number, never reused; 0: fd is not an open connection
 * (it may be negative). */
uint64_t conns_keep(struct conns *c, int fd);
/* Move a connection from kept to pending, first to be closed.  No effect if the connection with this number
 * is closed already. */
void conns_release(struct conns *c, int fd, uint64_t number, int64_t until_us);
/* Close the pending connections that have expired; return their number. */
size_t conns_expire(struct conns *c, int64_t now_us);

#endif
