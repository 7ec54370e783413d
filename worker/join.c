#include "worker/join.h"

#include "base/err.h"
#include "base/file.h"
#include "worker/inspect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOST_MAX = 253, PORT_DIGITS = 5 };

static const char host_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
static const char digits[] = "0123456789";

/* 0: it is not a port. */
static long port_of(const char *s)
{
	const size_t n = strspn(s, digits);
	const long port = n && n <= PORT_DIGITS && !s[n] ? strtol(s, NULL, 10) : 0;
	return port <= 65535 ? port : 0;
}

int join_endpoint(const char *word, char out[JOIN_ENDPOINT_SIZE], char *why, size_t why_n)
{
	const size_t n = strspn(word, host_chars);
	if (n == 0 || n > HOST_MAX || (word[n] && word[n] != ':'))
		return err_why(why, why_n, -EINVAL,
			       "--join is \"%.100s\", must be HOST or HOST:PORT: a name or an IPv4 address",
			       word);
	const long port = word[n] ? port_of(word + n + 1) : JOIN_PORT;
	if (!port)
		return err_why(why, why_n, -EINVAL, "--join: \"%.100s\" is not a port, 1 to 65535",
			       word + n + 1);
	snprintf(out, JOIN_ENDPOINT_SIZE, "tcp://%.*s:%ld", (int)n, word, port);
	return 0;
}

int join_keys(const char *const *dirs, size_t n, char **key, char **server_key, char *why, size_t why_n)
{
	*key = *server_key = NULL;
	for (size_t i = 0; i < n; i++) {
		if (!dirs[i])
			continue;
		char *own = file_join(dirs[i], "worker.key"), *server = file_join(dirs[i], "service.pub");
		const bool has_own = file_exists(own), has_server = file_exists(server);
		if (has_own && has_server) {
			*key = own;
			*server_key = server;
			return 0;
		}
		int rc = 0;
		if (has_own || has_server)
			rc = err_why(why, why_n, -ENOENT,
				     "%s is missing beside %s: copy it from where `quern keygen --fleet` "
				     "made it, or give --key and --server-key",
				     has_own ? server : own, has_own ? own : server);
		free(own);
		free(server);
		if (rc)
			return rc;
	}
	return 0;
}

const char *join_device(void)
{
	return inspect_opens("cuda:0") ? "cuda:0" : "cpu";
}
