/* user_socket.h - sockets of a user's services, at paths that the user's other programs know:
 * $XDG_RUNTIME_DIR/quern/NAME, or /tmp/quern-UID/NAME if that is not set.
 * The directory has mode 0700.  A directory that other users can write to is neither used nor searched: they
 * could answer in our place. */
#ifndef QUERN_BASE_USER_SOCKET_H
#define QUERN_BASE_USER_SOCKET_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { USER_SOCKET_SIZE = 108 }; /* size of a path, as in sun_path */

/* Store the path for a service's socket, and make the directory.  -EPERM, ... with the reason. */
int user_socket_new(const char *name, char out[USER_SOCKET_SIZE], struct why *why);
/* Store the path that a process listens on; false if none does. */
bool user_socket_find(const char *name, char out[USER_SOCKET_SIZE]);
/* Return whether a process listens on the socket at path. */
bool user_socket_answers(const char *path);

#endif
