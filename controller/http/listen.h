/* listen.h - open listening sockets for a list of addresses: "HOST:PORT,unix:PATH" gives one socket or
 * several. */
#ifndef QUERN_CONTROLLER_HTTP_LISTEN_H
#define QUERN_CONTROLLER_HTTP_LISTEN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { HTTP_ADDRESS_SIZE = 1024, HTTP_LISTENERS_MAX = 8 };

/* A listening socket, non-blocking. */
struct http_listener {
	int fd;     /* -1: closed, or taken over by the owner */
	int family; /* AF_INET, AF_INET6 or AF_UNIX */
	int port;   /* 0 for AF_UNIX */
	char *path; /* file of an AF_UNIX socket, owned; otherwise NULL */
	dev_t dev;  /* device and inode of that file */
	ino_t ino;
};

/* Zero-initialised means empty. */
struct http_listeners {
	struct http_listener at[HTTP_LISTENERS_MAX];
	size_t n;
	char address[HTTP_ADDRESS_SIZE]; /* bound addresses, in the format that http_listen() takes */
};

/* Open a socket for each address of the comma-separated list addrs:
 *
 *   127.0.0.1:8080   one address
 *   [::1]:8080       an IPv6 address
 *   :8080            127.0.0.1
 *   localhost:8080   127.0.0.1 and, where the machine has IPv6, ::1
 *   *:8080           0.0.0.0 and ::
 *   NAME:8080        every address that NAME resolves to
 *   unix:/run/q.sock a file
 *
 * Port 0 chooses a free port, which is the same for all addresses of a name.  guarded: clients need keys, or
 * the operator allows all clients.  Without it, addresses other than loopback are refused (-EPERM), and the
 * file of a Unix socket has mode 0600 instead of 0666.  A file on which no process listens is replaced.
 * -EINVAL: a malformed address; -EADDRINUSE and the like: from binding.  After an error why has the reason,
 * and out is empty. */
int http_listen(const char *addrs, bool guarded, struct http_listeners *out, struct why *why);

/* Close the sockets that are still open and remove their files, unless another process has replaced them. */
void http_listeners_close(struct http_listeners *l);

/* Open one socket at path (listen_unix.c). */
int http_listen_unix(const char *path, bool guarded, struct http_listener *out, struct why *why);

#endif
