/* trim.h - gives memory that malloc has kept back to the system. */
#ifndef QUERN_BASE_TRIM_H
#define QUERN_BASE_TRIM_H

#include <stddef.h>
#include <stdint.h>

/* Call at the start of a program.  Blocks of 1 MiB and more are returned to the system when freed, and so is
 * the end of a heap beyond 128 KiB.  By default malloc raises these bounds to 32 and 64 MiB once a large
 * block is freed, and malloc_trim() does not release the ends of the threads' heaps. */
void trim_init(void);

struct trim {
	size_t kept; /* resident bytes after the last trim; a struct trim starts zeroed */
	int64_t wait_us, again_us;
};

/* A housekeeper's tick (housekeeper.h; user: a struct trim), once a second.  Trims if the process has grown
 * by 1/32 of what was resident after the last trim plus 1 MiB, or if the wait has passed.  The wait is one
 * second after growth, or after a trim that released 1/32.  Otherwise it doubles, up to 32 seconds, because
 * memory that is freed later does not show as growth. */
int64_t trim_tick(void *user, int64_t now_us);

#endif
