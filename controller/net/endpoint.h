/* endpoint.h - ZeroMQ endpoints that the service may listen on. */
#ifndef QUERN_CONTROLLER_NET_ENDPOINT_H
#define QUERN_CONTROLLER_NET_ENDPOINT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Check that e is ipc://PATH or tcp://HOST:PORT, and local unless insecure (also set for a socket with keys).
 * what: name of the socket ("job socket").  -EINVAL, -EPERM with the reason. */
int endpoint_check(const char *e, const char *what, bool insecure, struct why *why);

#endif
