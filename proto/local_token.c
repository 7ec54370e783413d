#include "proto/local_token.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int local_token_create(const char *path, struct why *why)
{
	unsigned char random[LOCAL_TOKEN_CHARS / 2];
	char text[LOCAL_TOKEN_SIZE + 1];
	if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
		return err_why(why, -EIO, "no random numbers: %s", strerror(errno));
	for (size_t i = 0; i < sizeof random; i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	text[LOCAL_TOKEN_CHARS] = '\n';
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	ssize_t n = write(fd, text, LOCAL_TOKEN_SIZE);
	int rc = n == LOCAL_TOKEN_SIZE ? 0 : n < 0 ? -errno : -ENOSPC;
	if (close(fd) < 0 && !rc)
		rc = -errno;
	explicit_bzero(text, sizeof text);
	explicit_bzero(random, sizeof random);
	return rc ? err_why(why, rc, "%s: %s", path, strerror(-rc)) : 0;
}

int local_token_read(const char *path, char *token, struct why *why)
{
	char text[LOCAL_TOKEN_SIZE + 1];
	struct stat st;
	token[0] = '\0';
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	ssize_t n = 0;
	int rc = 0;
	if (fstat(fd, &st) < 0 || (n = read(fd, text, sizeof text)) < 0)
		rc = err_why(why, -errno, "%s: %s", path, strerror(errno));
	else if (st.st_mode & 077)
		rc = err_why(why, -EACCES, "%s: other users can read it; chmod 600", path);
	else if (n != LOCAL_TOKEN_SIZE || text[LOCAL_TOKEN_CHARS] != '\n')
		rc = err_why(why, -EINVAL, "%s: not a token of %d characters", path, LOCAL_TOKEN_CHARS);
	close(fd);
	if (rc)
		return rc;
	text[LOCAL_TOKEN_CHARS] = '\0';
	if (strspn(text, "0123456789abcdef") != LOCAL_TOKEN_CHARS)
		return err_why(why, -EINVAL, "%s: not a token of %d hexadecimal digits", path,
			       LOCAL_TOKEN_CHARS);
	memcpy(token, text, LOCAL_TOKEN_SIZE);
	explicit_bzero(text, sizeof text);
	return 0;
}

bool local_token_equal(const char *a, const char *b)
{
	unsigned differ = 0;
	if (strlen(a) != LOCAL_TOKEN_CHARS || strlen(b) != LOCAL_TOKEN_CHARS)
		return false;
	for (int i = 0; i < LOCAL_TOKEN_CHARS; i++)
		differ |= (unsigned)(unsigned char)a[i] ^ (unsigned char)b[i];
	return differ == 0;
}
