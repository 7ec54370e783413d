/* trim.h - gives memory that malloc keeps back to the system. */
#ifndef QUERN_BASE_TRIM_H
#define QUERN_BASE_TRIM_H

#include <stddef.h>
#include <stdint.h>

/* At the start of a program: blocks of a mebibyte and more go back when they are freed, and so does the end
 * of a heap beyond 128 KiB.  By default malloc raises both bounds to 32 and 64 MiB once a large block is
 * freed, and malloc_trim() leaves the ends of the threads' heaps. */
void trim_init(void);

struct trim {
	size_t kept; /* bytes resident after the last time; all zero at first */
	int64_t wait_us, again_us;
};

/* A housekeeper's tick (housekeeper.h; user: a struct trim): a second after the process has grown by a
 * thirty-second of what was resident last time, and 1 MiB, or after the last time if that gave back as much;
 * else after twice the wait before, and at least every 32 seconds: what is freed later is not seen to grow.
 */
int64_t trim_tick(void *user, int64_t now_us);

#endif
