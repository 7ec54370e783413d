/* hangup.h - detects that the peer of a socket has closed it, while the socket is not being read.
 * libmicrohttpd does not poll a suspended connection; the housekeeper does, by an epoll of this module.
 * A peer that closes only its sending side counts as gone: until bytes are sent to it, it cannot be
 * distinguished from one that has closed both. */
#ifndef QUERN_CONTROLLER_HTTP_HANGUP_H
#define QUERN_CONTROLLER_HTTP_HANGUP_H

#include <stddef.h>
#include <stdint.h>

struct hangup;
struct housekeeper;

/* gone(user) is called on the housekeeper's thread, at most once for each hangup_add(), never after
 * hangup_del() has returned.  -errno with the reason. */
int hangup_start(struct housekeeper *house, void (*gone)(void *user), struct hangup **out, char *why,
		 size_t why_n);
void hangup_stop(struct hangup *h); /* NULL is fine; nothing may be watched any more */

/* Watches fd, which stays open until hangup_del().  0: not watched (no memory in the kernel). */
uint64_t hangup_add(struct hangup *h, int fd, void *user);
/* Waits for a call of gone() that is under way.  watch 0 is fine.  Not from within gone(). */
void hangup_del(struct hangup *h, uint64_t watch);

#endif
