/* The paths of a user's service sockets. */
#include "base/user_socket.h"

#include "base/alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char base[] = "/tmp/quern-test-XXXXXX";
static struct why why;
static char path[USER_SOCKET_SIZE];

static void begin(void)
{
	cr_assert(mkdtemp(base));
	setenv("XDG_RUNTIME_DIR", base, 1);
}

static void end(void)
{
	char *command = xasprintf("rm -rf %s", base);
	cr_expect_eq(system(command), 0);
	free(command);
}

TestSuite(user_socket, .init = begin, .fini = end, .timeout = 30);

static int listen_at(const char *at)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path, sizeof a.sun_path, "%s", at);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	cr_assert(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 1));
	return fd;
}

Test(user_socket, is_found_while_a_process_listens)
{
	char found[USER_SOCKET_SIZE];
	struct stat s;
	cr_assert_eq(user_socket_new("jobs", path, &why), 0, "%s", why.text);
	cr_expect(!strncmp(path, base, strlen(base)) && strstr(path, "/quern/jobs"), "%s", path);
	char *dir = xasprintf("%s/quern", base);
	cr_expect(!stat(dir, &s) && (s.st_mode & 07777) == 0700);
	free(dir);
	cr_expect_not(user_socket_find("jobs", found));
	int fd = listen_at(path);
	cr_expect(user_socket_answers(path) && user_socket_find("jobs", found));
	cr_expect_str_eq(found, path);
	cr_expect_not(user_socket_find("other", found));
	close(fd);
	/* The socket of a killed service remains, but no longer answers. */
	cr_expect(!access(path, F_OK) && !user_socket_answers(path) && !user_socket_find("jobs", found));
}

Test(user_socket, a_directory_that_others_may_use_is_refused)
{
	char *dir = xasprintf("%s/quern", base);
	mkdir(dir, 0700);
	int fd = listen_at((snprintf(path, sizeof path, "%s/jobs", dir), path));
	for (int mode = 0; mode < 0100; mode++) {
		chmod(dir, (mode_t)(0700 | mode));
		cr_expect_eq(user_socket_find("jobs", path), mode == 0, "%03o", mode);
		cr_expect_eq(user_socket_new("jobs", path, &why), mode ? -EPERM : 0);
		cr_expect(!mode || strstr(why.text, dir), "%s", why.text);
	}
	close(fd);
	/* A directory after a link is refused too: another user may have made the link. */
	char *other = xasprintf("%s/other", base);
	chmod(dir, 0700);
	cr_assert(!rename(dir, other) && !symlink(other, dir));
	cr_expect_eq(user_socket_new("jobs", path, &why), -EPERM);
	free(other);
	free(dir);
}

Test(user_socket, without_a_runtime_directory_it_is_in_tmp)
{
	static const char *const not_one[] = {NULL, "", "relative", "/no/such/directory"};
	for (size_t i = 0; i < sizeof not_one / sizeof *not_one; i++) {
		if (not_one[i])
			setenv("XDG_RUNTIME_DIR", not_one[i], 1);
		else
			unsetenv("XDG_RUNTIME_DIR");
		char *want = xasprintf("/tmp/quern-%u/x", (unsigned)geteuid());
		cr_expect_eq(user_socket_new("x", path, &why), 0, "%s", why.text);
		cr_expect_str_eq(path, want);
		free(want);
	}
}
