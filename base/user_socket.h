/* user_socket.h - sockets of a user's services at paths that its other programs know:
 * $XDG_RUNTIME_DIR/quern/NAME, or /tmp/quern-UID/NAME where that is not set.  The directory has mode 0700.
 * One that other users could write to is neither used nor looked into: they could answer in our place. */
#ifndef QUERN_BASE_USER_SOCKET_H
#define QUERN_BASE_USER_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

enum { USER_SOCKET_SIZE = 108 }; /* of a path, as sun_path has it */

/* The path for a service's socket; makes the directory.  -EPERM, ... with the reason. */
int user_socket_new(const char *name, char out[USER_SOCKET_SIZE], char *why, size_t why_n);
/* The path that a process listens on.  false: none does. */
bool user_socket_find(const char *name, char out[USER_SOCKET_SIZE]);
/* Whether a process listens on the socket at path. */
bool user_socket_answers(const char *path);

#endif
