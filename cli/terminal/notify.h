/* notify.h - reports the state of the service to the service manager that started it: sd_notify(3).
 * The protocol is a datagram of lines "NAME=value" to the socket that NOTIFY_SOCKET names (a path, or "@name"
 * for one in the abstract namespace).  systemd, Podman and s6 read it.  The lines are written here without
 * libsystemd, which would add five libraries to the program for this alone. */
#ifndef QUERN_CLI_TERMINAL_NOTIFY_H
#define QUERN_CLI_TERMINAL_NOTIFY_H

#include "base/err.h"
#include "cli/terminal/environment.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
	int fd; /* -1: no service manager */
	struct sockaddr_un to;
	socklen_t to_n;
	int64_t watchdog_us; /* interval between keep-alives: half of the manager's timeout; 0: no watchdog */
	int64_t next_us;     /* time of the next keep-alive */
	bool failed;         /* the last send failed, which was reported */
};

/* Open the manager's socket.  Uses env's notify_socket, watchdog_usec and watchdog_pid.  -EINVAL with the
 * reason if the socket's name is not a path. */
int notify_open(struct notify *n, const struct environment *env, struct why *why);
void notify_close(struct notify *n);

/* Send one datagram: "READY=1\nSTATUS=...".  No-op without a manager or if n is NULL.  Consecutive failures
 * are reported once. */
__attribute__((format(printf, 2, 3))) void notify_send(struct notify *n, const char *fmt, ...);
/* Send a keep-alive if one is due.  n may be NULL. */
void notify_alive(struct notify *n, int64_t now);

#endif
