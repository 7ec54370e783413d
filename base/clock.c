#include "base/clock.h"

#include <time.h>

static int64_t read_us(clockid_t id)
{
	struct timespec ts;
	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_us(void)
{
	return read_us(CLOCK_MONOTONIC);
}

int64_t clock_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t clock_unix(void)
{
	return read_us(CLOCK_REALTIME) / 1000000;
}

int64_t clock_unix_us(void)
{
	return read_us(CLOCK_REALTIME);
}

int64_t clock_thread_cpu_us(void)
{
	return read_us(CLOCK_THREAD_CPUTIME_ID);
}
