#include "worker/join.h"

#include "base/err.h"
#include "base/file.h"
#include "worker/inspect/inspect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { HOST_MAX = 253, PORT_DIGITS = 5 };

static const char host_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
static const char digits[] = "0123456789";

/* Parse a port; 0: invalid. */
static long port_of(const char *s)
{
	const size_t n = strspn(s, digits);
	const long port = n && n <= PORT_DIGITS && !s[n] ? strtol(s, NULL, 10) : 0;
	return port <= 65535 ? port : 0;
}

int join_endpoint(const char *word, char out[JOIN_ENDPOINT_SIZE], struct why *why)
{
	const size_t n = strspn(word, host_chars);
	if (n == 0 || n > HOST_MAX || (word[n] && word[n] != ':'))
		return err_why(why, -EINVAL,
			       "--join is \"%.100s\", must be HOST or HOST:PORT: a name or an IPv4 address",
			       word);
	const long port = word[n] ? port_of(word + n + 1) : JOIN_PORT;
	if (!port)
		return err_why(why, -EINVAL, "--join: \"%.100s\" is not a port, 1 to 65535", word + n + 1);
	snprintf(out, JOIN_ENDPOINT_SIZE, "tcp://%.*s:%ld", (int)n, word, port);
	return 0;
}

/* Return 1 if the file exists, 0 if not; -errno with the reason if unknown, as in a directory that this
 * user may not search.  Without its keys the worker would connect in vain, or without encryption. */
static int has(const char *path, struct why *why)
{
	struct stat st;
	if (stat(path, &st) == 0)
		return 1;
	const int e = errno;
	if (e == ENOENT || e == ENOTDIR)
		return 0;
	return err_why(why, -e, "%s: %s: let this user read it, or give --key and --server-key", path,
		       strerror(e));
}

/* Find both files in one directory.  1: *key and *server_key are set; 0: neither exists. */
static int keys_in(const char *dir, char **key, char **server_key, struct why *why)
{
	char *own = file_join(dir, "worker.key"), *server = file_join(dir, "service.pub");
	const int has_own = has(own, why);
	const int has_server = has_own < 0 ? 0 : has(server, why);
	int rc = has_own < 0 ? has_own : has_server < 0 ? has_server : has_own && has_server;
	if (rc == 0 && (has_own || has_server))
		rc = err_why(why, -ENOENT,
			     "%s is missing next to %s: copy it from where `quern keygen --fleet` "
			     "made it, or give --key and --server-key",
			     has_own ? server : own, has_own ? own : server);
	if (rc == 1) {
		*key = own;
		*server_key = server;
		return 1;
	}
	free(own);
	free(server);
	return rc;
}

int join_keys(const char *const *dirs, size_t n, char **key, char **server_key, struct why *why)
{
	struct why other;
	int hidden = 0;
	*key = *server_key = NULL;
	for (size_t i = 0; i < n; i++) {
		if (!dirs[i])
			continue;
		int rc = keys_in(dirs[i], key, server_key, hidden ? &other : why);
		if (rc > 0)
			return 0;
		if (rc == -ENOENT)
			return hidden ? err_why(why, rc, "%s", other.text) : rc;
		hidden = hidden ? hidden : rc;
	}
	return hidden;
}

const char *join_device(struct why *why)
{
	return inspect_opens("cuda:0", why) ? "cuda:0" : "cpu";
}
