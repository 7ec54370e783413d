/* endpoint.h - ZeroMQ endpoints that a service may listen on. */
#ifndef QUERN_CONTROLLER_ENDPOINT_H
#define QUERN_CONTROLLER_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>

/* Only this machine can reach it: ipc://, or tcp:// on a loopback address. */
bool endpoint_is_local(const char *e);

/* ipc://PATH or tcp://HOST:PORT; anything but this machine's own only when insecure (or
 * when it has keys, which is the same here).  what names
 * the socket ("job socket").  -EINVAL, -EPERM with the reason. */
int endpoint_check(const char *e, const char *what, bool insecure, char *why, size_t why_n);

#endif
