#include "base/trim.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum {
	EVERY_US = 1000 * 1000,
	AGAIN_MAX_US = 32 * EVERY_US,
	GROWTH = 1 << 20,
	PART = 32,
	MMAP_BYTES = 1 << 20,
	END_BYTES = 128 << 10
};

void trim_init(void)
{
	mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
	mallopt(M_TRIM_THRESHOLD, END_BYTES);
}

/* Return this process's resident bytes; 0: unknown. */
static size_t resident(void)
{
	char text[128];
	unsigned long pages = 0;
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	if (sscanf(text, "%*u %lu", &pages) != 1)
		return 0;
	return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

int64_t trim_tick(void *user, int64_t now_us)
{
	struct trim *t = user;
	size_t now = resident();
	bool grown = now > t->kept + t->kept / PART + GROWTH;
	if (!grown && now_us < t->again_us)
		return now_us + EVERY_US;
	malloc_trim(0);
	t->kept = resident();
	bool gained = t->kept + now / PART < now;
	t->wait_us = gained || grown || !t->wait_us  ? EVERY_US
		     : t->wait_us > AGAIN_MAX_US / 2 ? AGAIN_MAX_US
						     : 2 * t->wait_us;
	t->again_us = now_us + t->wait_us;
	return now_us + EVERY_US;
}
