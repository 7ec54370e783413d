/* trim.h - gives memory that malloc keeps back to the system.
 * malloc returns the end of its heaps by itself; what is free between blocks in use stays resident. */
#ifndef QUERN_BASE_TRIM_H
#define QUERN_BASE_TRIM_H

#include <stddef.h>
#include <stdint.h>

struct trim {
	size_t kept; /* bytes resident after the last time; zeroed at first */
};

/* A housekeeper's tick (housekeeper.h; user: a struct trim): every second, if the process has grown by a
 * thirty-second of what was resident last time, and 1 MiB. */
int64_t trim_tick(void *user, int64_t now_us);

#endif
