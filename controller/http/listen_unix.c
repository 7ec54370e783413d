#include "controller/http/listen.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/user_socket.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	BACKLOG = 1024,
	MODE_OWN = 0600,
	MODE_ALL = 0666,
	LOCK_TRIES = 100,
	LOCK_WAIT_US = 10 * 1000,
};

/* Lock the directory of path, so that only one of two processes that find the same stale file replaces it.
 * -1: not locked, because the directory cannot be read or stays locked for a second. */
static int lock_directory(const char *path)
{
	char *copy = xstrdup(path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(copy);
	for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); i++) {
		if (i < LOCK_TRIES && errno == EWOULDBLOCK) {
			usleep(LOCK_WAIT_US);
			continue;
		}
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Remove the socket file of a process that has ended.  -EADDRINUSE: a process listens on it. */
static int remove_stale(const char *path, struct why *why)
{
	struct stat s;
	if (lstat(path, &s))
		return errno == ENOENT
			       ? 0
			       : err_why(why, -errno, "HTTP address unix:%s: %s", path, strerror(errno));
	if (!S_ISSOCK(s.st_mode))
		return err_why(why, -EEXIST, "HTTP address unix:%s: the file is not a socket", path);
	if (user_socket_answers(path))
		return err_why(why, -EADDRINUSE, "HTTP address unix:%s: another process listens on it", path);
	if (unlink(path))
		return err_why(why, -errno, "HTTP address unix:%s: a stale file: %s", path, strerror(errno));
	return 0;
}

/* Bind fd to path.  bind() gives the file the descriptor's mode, less the umask, so the file is never open to
 * others too early. */
static int bind_path(int fd, const char *path, bool guarded, struct stat *file)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	return fd < 0 || fchmod(fd, MODE_OWN) || bind(fd, (struct sockaddr *)&a, sizeof a) ||
			       chmod(path, guarded ? MODE_ALL : MODE_OWN) || lstat(path, file) ||
			       listen(fd, BACKLOG)
		       ? -errno
		       : 0;
}

int http_listen_unix(const char *path, bool guarded, struct http_listener *out, struct why *why)
{
	struct stat file = {0};
	if (!*path)
		return err_why(why, -EINVAL, "HTTP address unix:%s: must be unix:PATH", path);
	if (strlen(path) >= USER_SOCKET_SIZE)
		return err_why(why, -ENAMETOOLONG,
			       "HTTP address unix:%s: the path of a socket has at most %d bytes", path,
			       USER_SOCKET_SIZE - 1);
	/* `quern serve` reads the address as JSON. */
	if (utf8_valid(path, strlen(path)) != strlen(path))
		return err_why(why, -EINVAL, "HTTP address unix:%s: the path is not UTF-8", path);
	int lock = lock_directory(path), fd = -1;
	int rc = remove_stale(path, why);
	if (!rc) {
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		rc = bind_path(fd, path, guarded, &file);
		if (rc)
			err_why(why, rc, "HTTP address unix:%s: %s", path, strerror(-rc));
	}
	if (lock >= 0)
		close(lock);
	*out = (struct http_listener){.fd = fd, .family = AF_UNIX, .dev = file.st_dev, .ino = file.st_ino};
	out->path = xstrdup(path);
	if (!rc)
		return 0;
	if (fd >= 0)
		close(fd);
	free(out->path);
	return rc;
}
