/* conns.h - the connections of a listening ZeroMQ socket, by their descriptors, as its monitor tells
 * of them: how many there are, which are somebody's, and which have to go when there are too many.
 * Owns: the table.  Knows no protocol.  One thread: the one that reads the monitor.
 *
 * A connection is accepted as a stranger's, and is kept for good once it has shown what it is there
 * for (conns_keep()).  When there are more than max, the stranger that was there first is cut off:
 * whoever opens connections and says nothing keeps nobody out.  Where all are kept, the newest goes.
 *
 * Cut off means shut down: ZeroMQ sees the end, closes, and its monitor says so. */
#ifndef QUERN_CONTROLLER_CONNS_H
#define QUERN_CONTROLLER_CONNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conns;

/* How many connections a listening socket may have at most: want, or so many quarters of the
 * descriptors that the process may open, less those that files and the worker bus need.  Raises
 * RLIMIT_NOFILE (the soft limit) as far as that helps. */
enum conns_quarters { CONNS_JOBS = 1, CONNS_HTTP = 3 };
size_t conns_limit(size_t want, enum conns_quarters share);

/* endpoint: where the socket listens, as ZMQ_LAST_ENDPOINT tells it. */
struct conns *conns_new(const char *endpoint, size_t max);
void conns_free(struct conns *c); /* NULL is fine */

/* What the monitor says.  until_us: when a stranger is cut off by conns_expire(); INT64_MAX: never. */
void conns_opened(struct conns *c, int fd, int64_t until_us);
/* Whether it may have been more than a stranger's. */
bool conns_closed(struct conns *c, int fd);

bool conns_is_open(const struct conns *c, int fd);
size_t conns_count(const struct conns *c);
/* No stranger any more.  Its number, never used twice; 0: no such connection is open (fd may be
 * negative, too). */
uint64_t conns_keep(struct conns *c, int fd);
/* A stranger again, and the first to go; nothing happens where the connection of this number has
 * been closed. */
void conns_release(struct conns *c, int fd, uint64_t number, int64_t until_us);
/* Cuts off the strangers whose time has come; how many. */
size_t conns_expire(struct conns *c, int64_t now_us);

#endif
