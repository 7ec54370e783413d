#include "cli/terminal/notify.h"

#include "base/err.h"
#include "cli/terminal/term.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { TEXT_MAX = 1024 };

/* Return the watchdog's timeout (WATCHDOG_USEC); 0: none, or not for this process. */
static int64_t watchdog_of(const struct environment *env)
{
	char *end;
	if (!env->watchdog_usec)
		return 0;
	if (env->watchdog_pid && strtoll(env->watchdog_pid, NULL, 10) != (long long)getpid())
		return 0;
	errno = 0;
	const long long us = strtoll(env->watchdog_usec, &end, 10);
	return errno || *end || us <= 0 ? 0 : us;
}

int notify_open(struct notify *n, const struct environment *env, struct why *why)
{
	*n = (struct notify){.fd = -1, .to = {.sun_family = AF_UNIX}};
	const char *name = env->notify_socket;
	if (!name)
		return 0;
	const size_t len = strlen(name);
	if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof n->to.sun_path)
		return err_why(
			why, -EINVAL,
			"NOTIFY_SOCKET is \"%.200s\", must be a path or @NAME of at most %zu bytes; unset it "
			"where no service manager waits",
			name, sizeof n->to.sun_path - 1);
	memcpy(n->to.sun_path, name, len);
	if (name[0] == '@')
		n->to.sun_path[0] = '\0';
	n->to_n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '/'));
	n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (n->fd < 0)
		return err_why(why, -errno, "NOTIFY_SOCKET: %s", strerror(errno));
	/* A manager that has stopped reading must not block the service. */
	setsockopt(n->fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_sec = 1}, sizeof(struct timeval));
	n->watchdog_us = watchdog_of(env) / 2;
	return 0;
}

void notify_close(struct notify *n)
{
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
}

static void send_text(struct notify *n, const char *text, size_t bytes, int flags)
{
	const bool sent = sendto(n->fd, text, bytes, MSG_NOSIGNAL | flags, (const struct sockaddr *)&n->to,
				 n->to_n) >= 0;
	if (!sent && !n->failed)
		term_note("cannot report the service's state to the service manager: NOTIFY_SOCKET %s: %s",
			  n->to.sun_path[0] ? n->to.sun_path : n->to.sun_path + 1, strerror(errno));
	n->failed = !sent;
}

void notify_send(struct notify *n, const char *fmt, ...)
{
	char text[TEXT_MAX];
	if (!n || n->fd < 0)
		return;
	va_list ap;
	va_start(ap, fmt);
	const int len = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	send_text(n, text, (size_t)len < sizeof text ? (size_t)len : sizeof text - 1, 0);
}

void notify_alive(struct notify *n, int64_t now)
{
	if (!n || n->fd < 0 || !n->watchdog_us || now < n->next_us)
		return;
	n->next_us = now + n->watchdog_us;
	send_text(n, "WATCHDOG=1", strlen("WATCHDOG=1"), MSG_DONTWAIT);
}
