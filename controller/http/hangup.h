/* hangup.h - detect that the peer of a socket has closed it while the socket is not being read.
 * libmicrohttpd does not poll a suspended connection; the housekeeper polls it with this module's epoll.  A
 * peer that closes only its sending side counts as gone: until bytes are sent to it, this looks the same as
 * closing both. */
#ifndef QUERN_CONTROLLER_HTTP_HANGUP_H
#define QUERN_CONTROLLER_HTTP_HANGUP_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct hangup;
struct housekeeper;

/* Start.  gone(user) is called on the housekeeper's thread, at most once per hangup_add(), never after
 * hangup_del() has returned.  -errno with the reason. */
int hangup_start(struct housekeeper *house, void (*gone)(void *user), struct hangup **out, struct why *why);
void hangup_stop(struct hangup *h); /* NULL is fine; nothing may be watched any more */

/* Watch fd, which stays open until hangup_del().  0: not watched (the kernel has no memory). */
uint64_t hangup_add(struct hangup *h, int fd, void *user);
/* End a watch, and wait for a gone() call in flight.  watch 0 is fine.  Not from within gone(). */
void hangup_del(struct hangup *h, uint64_t watch);

#endif
