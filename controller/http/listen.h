/* listen.h - "HOST:PORT" to a listening socket. */
#ifndef QUERN_CONTROLLER_HTTP_LISTEN_H
#define QUERN_CONTROLLER_HTTP_LISTEN_H

#include <stdbool.h>
#include <stddef.h>

enum { HTTP_ADDRESS_SIZE = 64 };

/* addr: "127.0.0.1:8080", "[::1]:8080", "localhost:8080"; ":8080" is loopback, "*:8080" any; port 0:
 * a free one.  Returns the socket (non-blocking), with *v6 and the bound address ("127.0.0.1:8080");
 * or -EINVAL for a malformed address, -EPERM for one that is not loopback unless insecure,
 * -EADDRINUSE and the like from binding, with the reason. */
int http_listen(const char *addr, bool insecure, bool *v6, char address[HTTP_ADDRESS_SIZE], char *why,
		size_t why_n);

#endif
