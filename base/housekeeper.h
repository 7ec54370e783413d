/* housekeeper.h - one thread for short periodic or descriptor-driven work that nothing waits for.
 *
 *   poll: [wake][fd of part 0][fd of part 1] ...   until the first part is due
 *      --> part 0: ready()     part 1: tick()      one after another, without the housekeeper's lock */
#ifndef QUERN_BASE_HOUSEKEEPER_H
#define QUERN_BASE_HOUSEKEEPER_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct housekeeper;

enum { HOUSEKEEPER_PARTS_MAX = 16 };

struct house_part {
	int fd;                                      /* -1: none; must stay open until the part is removed */
	void (*ready)(void *user);                   /* fd is readable; NULL without fd */
	int64_t (*tick)(void *user, int64_t now_us); /* returns the clock_us() time of its next call;
						      * INT64_MAX: when woken.  NULL: never called.  The first
						      * call is at once */
	void *user;
};

/* -errno with the reason. */
int housekeeper_start(struct housekeeper **out, struct why *why);
void housekeeper_stop(struct housekeeper *h); /* NULL is fine; all parts must have been removed */

/* Add a part and return its number.  There is always room: the number of parts in a program is fixed.  Any
 * thread. */
int housekeeper_add(struct housekeeper *h, const struct house_part *part);
/* Stop calling the part's functions, and wait for a call in flight.  Not allowed from within such a call, or
 * while holding a lock that the functions take. */
void housekeeper_remove(struct housekeeper *h, int part);
/* Make the part's tick() due now.  Any thread, also from within a call. */
void housekeeper_wake(struct housekeeper *h, int part);

#endif
