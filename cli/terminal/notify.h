/* notify.h - the state of the service, for the service manager that started it: sd_notify(3).
 * The protocol is a datagram of lines "NAME=value" to the socket that NOTIFY_SOCKET names (a path, or "@name"
 * for one in the abstract namespace); systemd, Podman and s6 read it.  These lines are written here, without
 * libsystemd, which would bring five libraries more into a program that does nothing else with them. */
#ifndef QUERN_CLI_TERMINAL_NOTIFY_H
#define QUERN_CLI_TERMINAL_NOTIFY_H

#include "cli/terminal/environment.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
	int fd; /* -1: no service manager asks */
	struct sockaddr_un to;
	socklen_t to_n;
	int64_t watchdog_us; /* between two signs of life: half of what the manager waits; 0: it does not */
	int64_t next_us;     /* when the next one is due */
	bool failed;         /* and was reported */
};

/* env: notify_socket, watchdog_usec and watchdog_pid count.  -EINVAL with the reason: the socket's name is no
 * path. */
int notify_open(struct notify *n, const struct environment *env, char *why, size_t why_n);
void notify_close(struct notify *n);

/* One datagram: "READY=1\nSTATUS=..."; without a manager, or with n NULL, nothing.  A failure is noted once.
 */
__attribute__((format(printf, 2, 3))) void notify_send(struct notify *n, const char *fmt, ...);
/* A sign of life, if one is due.  n may be NULL. */
void notify_alive(struct notify *n, int64_t now);

#endif
