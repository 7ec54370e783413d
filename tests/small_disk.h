/* small_disk.h - a small file system in memory that only this process and its children see. */
#ifndef QUERN_TESTS_SMALL_DISK_H
#define QUERN_TESTS_SMALL_DISK_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Mount it at dir, which exists. Return 0, or -errno if mounting is not allowed. */
static inline int small_disk_mount(const char *dir, int mib)
{
	char size[32];
	snprintf(size, sizeof size, "size=%dm", mib);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("quern-test", dir, "tmpfs", 0, size))
		return -errno;
	return 0;
}

static inline int small_disk_read_only(const char *dir, _Bool on)
{
	return mount(NULL, dir, NULL, MS_REMOUNT | (on ? MS_RDONLY : 0), NULL) ? -errno : 0;
}

static inline int64_t small_disk_free(const char *dir)
{
	struct statvfs st;
	return statvfs(dir, &st) ? -1 : (int64_t)st.f_bavail * (int64_t)st.f_frsize;
}

/* Write to a file until `left` bytes are free, as other programs would. */
static inline void small_disk_fill(const char *dir, const char *name, int64_t left)
{
	static const char page[4096];
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	while (fd >= 0 && small_disk_free(dir) > left && write(fd, page, sizeof page) > 0)
		;
	if (fd >= 0)
		close(fd);
}

static inline void small_disk_empty(const char *dir, const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	unlink(path);
}

#endif
