#include "controller/net/endpoint.h"

#include "base/err.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static bool begins(const char *s, const char *with)
{
	return strncmp(s, with, strlen(with)) == 0;
}

/* Return whether e is reachable from this machine only. */
static bool is_local(const char *e)
{
	return begins(e, "ipc://") || begins(e, "inproc://") || begins(e, "tcp://127.") ||
	       begins(e, "tcp://localhost:") || begins(e, "tcp://[::1]:");
}

/* libzmq would accept 99999 as port 34463. */
static bool port_too_large(const char *e)
{
	const char *colon = strrchr(e, ':'), *digits = colon + 1;
	size_t n = strspn(digits, "0123456789");
	return begins(e, "tcp://") && n && !digits[n] && (n > 5 || atoi(digits) > 65535);
}

int endpoint_check(const char *e, const char *what, bool insecure, struct why *why)
{
	if (!begins(e, "ipc://") && !begins(e, "tcp://"))
		return err_why(why, -EINVAL, "%s %s: must be tcp://HOST:PORT or ipc://PATH", what, e);
	/* `quern serve` reads the endpoint as JSON. */
	if (utf8_valid(e, strlen(e)) != strlen(e))
		return err_why(why, -EINVAL, "%s %s: the path is not UTF-8", what, e);
	if (port_too_large(e))
		return err_why(why, -EINVAL, "%s %s: the largest port is 65535", what, e);
	if (!insecure && !is_local(e))
		return err_why(why, -EPERM,
			       "%s %s: other machines could connect; give it keys (--curve-key), "
			       "or allow it with --insecure",
			       what, e);
	return 0;
}
