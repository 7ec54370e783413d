#include "base/file.h"

#include "base/alloc.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_regular(const char *path, int *fd, size_t *bytes, struct why *why)
{
	struct stat st;
	*fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* O_NONBLOCK: do not wait for a pipe's writer */
	if (*fd < 0)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	if (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(*fd);
		return err_why(why, -EINVAL, "%s: not a regular file", path);
	}
	*bytes = (size_t)st.st_size;
	return 0;
}

void file_guard_stdio(void)
{
	/* open() returns the lowest free descriptor. */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			abort();
}

int file_read(const char *path, size_t max, char **data, size_t *bytes, struct why *why)
{
	int fd;
	size_t n, got = 0;
	int rc = open_regular(path, &fd, &n, why);
	if (rc)
		return rc;
	if (n > max) {
		close(fd);
		return err_why(why, -EFBIG, "%s: %zu bytes, at most %zu are accepted", path, n, max);
	}
	char *p = xmalloc(n + 1);
	while (got < n) {
		ssize_t k = read(fd, p + got, n - got);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		got += (size_t)k;
	}
	close(fd);
	if (got < n) {
		free(p);
		return err_why(why, -EIO, "%s: read %zu of %zu bytes", path, got, n);
	}
	p[n] = '\0';
	*data = p;
	*bytes = n;
	return 0;
}

int file_failed(struct why *why, const char *path, const char *done)
{
	const int err = errno;
	return err_why(why, -err, "%s cannot be %s: %s", path, done, strerror(err));
}

int file_map(const char *path, const void **data, size_t *bytes, struct why *why)
{
	int fd;
	int rc = open_regular(path, &fd, bytes, why);
	if (rc)
		return rc;
	*data = NULL;
	if (*bytes) {
		void *p = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED) {
			rc = err_why(why, -errno, "%s: cannot map %zu bytes: %s", path, *bytes,
				     strerror(errno));
			close(fd);
			return rc;
		}
		*data = p;
	}
	close(fd);
	return 0;
}

void file_unmap(const void *data, size_t bytes)
{
	if (data)
		munmap((void *)data, bytes);
}

void file_forget(const void *data, size_t bytes)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)data & ~(page - 1);
	if (bytes)
		madvise((void *)from, (size_t)((uintptr_t)data - from) + bytes, MADV_DONTNEED);
}

void file_read_ahead(const void *p, size_t n)
{
#ifdef MADV_POPULATE_READ
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p & ~(page - 1);
	(void)madvise((void *)from, (uintptr_t)p + n - from, MADV_POPULATE_READ);
#else
	(void)p, (void)n;
#endif
}

bool file_exists(const char *path)
{
	return access(path, F_OK) == 0;
}

bool file_is_dir(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_is_shared(const struct stat *st)
{
	mode_t others = st->st_uid == 0 && geteuid() != 0 ? 037 : 077;
	return st->st_mode & others;
}

char *file_join(const char *dir, const char *name)
{
	size_t n = strlen(dir);
	return xasprintf("%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

int file_sync_folder(const char *path)
{
	char *folder = xstrdup(path), *slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	const int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : fsync(fd) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	free(folder);
	return rc == -EINVAL || rc == -EACCES ? 0 : rc;
}
