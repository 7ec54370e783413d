/* Files: size limit of reads, and standard streams that must be open. */
#include "base/file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

Test(file, a_file_is_read_up_to_the_limit_and_no_further)
{
	struct why why = {""};
	char path[] = "/tmp/quern-file-XXXXXX";
	char *data;
	size_t n;
	int fd = mkstemp(path);
	cr_assert_eq(write(fd, "0123456789", 10), 10);
	close(fd);
	cr_assert_eq(file_read(path, 10, &data, &n, &why), 0, "%s", why.text);
	cr_expect(n == 10 && strcmp(data, "0123456789") == 0);
	free(data);
	cr_expect_eq(file_read(path, 9, &data, &n, &why), -EFBIG);
	cr_expect(strstr(why.text, "10 bytes, at most 9"), "%s", why.text);
	unlink(path);
}

Test(file, a_pipe_is_refused_and_not_waited_for, .timeout = 10)
{
	struct why why = {""};
	char path[] = "/tmp/quern-file-XXXXXX";
	const void *data;
	char *text;
	size_t n;
	close(mkstemp(path));
	unlink(path);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_expect_eq(file_read(path, 10, &text, &n, &why), -EINVAL);
	cr_expect(strstr(why.text, "not a regular file"), "%s", why.text);
	cr_expect_eq(file_map(path, &data, &n, &why), -EINVAL);
	unlink(path);
}

/* Otherwise the next opened file would become a standard stream and receive messages. */
Test(file, a_closed_standard_stream_is_replaced)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		int s;
		pid_t pid = fork();
		if (pid == 0) {
			close(fd);
			file_guard_stdio();
			_exit(open("/dev/null", O_RDONLY) > STDERR_FILENO ? 0 : 1);
		}
		cr_assert_eq(waitpid(pid, &s, 0), pid);
		cr_expect(WIFEXITED(s) && WEXITSTATUS(s) == 0, "stream %d", fd);
	}
}
