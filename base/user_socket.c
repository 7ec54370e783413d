#include "base/user_socket.h"

#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { N_PLACES = 2, DIR_SIZE = 72 };

/* Store the i-th directory that may hold the socket; false if it is not available. */
static bool place(int i, char out[DIR_SIZE])
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	if (i == 1)
		return snprintf(out, DIR_SIZE, "/tmp/quern-%u", (unsigned)geteuid()) > 0;
	if (!base || *base != '/' || strlen(base) + sizeof "/quern" > DIR_SIZE || access(base, W_OK))
		return false;
	return snprintf(out, DIR_SIZE, "%s/quern", base) > 0;
}

/* Check that a directory belongs to this user alone.  -ENOENT: it does not exist; -EPERM: others can access
 * it. */
static int check(const char *dir)
{
	struct stat s;
	if (lstat(dir, &s))
		return -errno;
	return S_ISDIR(s.st_mode) && s.st_uid == geteuid() && !(s.st_mode & 077) ? 0 : -EPERM;
}

int user_socket_new(const char *name, char out[USER_SOCKET_SIZE], struct why *why)
{
	char dir[DIR_SIZE];
	int i = 0;
	while (!place(i, dir))
		i++;
	if (mkdir(dir, 0700) && errno != EEXIST)
		return err_why(why, -errno, "%s: %s", dir, strerror(errno));
	int rc = check(dir);
	if (rc)
		return err_why(why, rc, "%s: must be a directory of this user with mode 0700", dir);
	if (snprintf(out, USER_SOCKET_SIZE, "%s/%s", dir, name) >= USER_SOCKET_SIZE)
		return err_why(why, -ENAMETOOLONG, "%s/%s: too long for a socket", dir, name);
	return 0;
}

bool user_socket_find(const char *name, char out[USER_SOCKET_SIZE])
{
	char dir[DIR_SIZE];
	for (int i = 0; i < N_PLACES; i++)
		if (place(i, dir) && !check(dir) &&
		    snprintf(out, USER_SOCKET_SIZE, "%s/%s", dir, name) < USER_SOCKET_SIZE &&
		    user_socket_answers(out))
			return true;
	return false;
}

bool user_socket_answers(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof a.sun_path)
		return false;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	/* EAGAIN: a process listens, but its connection queue is full. */
	bool answers = !connect(fd, (struct sockaddr *)&a, sizeof a) || errno == EAGAIN;
	close(fd);
	return answers;
}
