/* clock.h - the clocks.
 * Pure modules take the time as an argument instead. */
#ifndef QUERN_BASE_CLOCK_H
#define QUERN_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_us(void);   /* monotonic, microseconds */
int64_t clock_ns(void);   /* monotonic, nanoseconds */
int64_t clock_unix(void); /* wall clock, seconds since 1970 */
int64_t clock_unix_us(void);
int64_t clock_thread_cpu_us(void);

#endif
