/* housekeeper.h - one thread for what is done now and then, or when a descriptor is ready: for work that is
 * short and that nothing waits for.
 *
 *   poll: [wake][fd of part 0][fd of part 1] ...   until the first part is due
 *      --> part 0: ready()     part 1: tick()      one after another, without the housekeeper's lock */
#ifndef QUERN_BASE_HOUSEKEEPER_H
#define QUERN_BASE_HOUSEKEEPER_H

#include <stddef.h>
#include <stdint.h>

struct housekeeper;

enum { HOUSEKEEPER_PARTS_MAX = 16 };

struct house_part {
	int fd;                    /* -1: none; stays open until it is removed */
	void (*ready)(void *user); /* fd is readable; NULL without fd */
	int64_t (*tick)(void *user,
			int64_t now_us); /* returns when it is next due, by clock_us(); INT64_MAX:
					  * when it is woken.  NULL: never.  First called at once */
	void *user;
};

/* -errno with the reason. */
int housekeeper_start(struct housekeeper **out, char *why, size_t why_n);
void housekeeper_stop(struct housekeeper *h); /* NULL is fine; all parts have been removed */

/* The part's number.  There is always room: the parts of a program are counted.  Any thread. */
int housekeeper_add(struct housekeeper *h, const struct house_part *part);
/* Its functions are not called any more; waits for a call under way.  Not from within one, and with no lock
 * held that they take. */
void housekeeper_remove(struct housekeeper *h, int part);
/* The part's tick() is due now.  Any thread, also from within a call. */
void housekeeper_wake(struct housekeeper *h, int part);

#endif
