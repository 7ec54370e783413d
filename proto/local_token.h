/* local_token.h - proves to the controller that a worker was started by its supervisor, on its host: a secret
 * in a file (mode 0600) whose path the supervisor gives to both.  Needed on TCP; on ipc:// the kernel
 * (SO_PEERCRED) knows the process of each peer. */
#ifndef QUERN_PROTO_LOCAL_TOKEN_H
#define QUERN_PROTO_LOCAL_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

enum { LOCAL_TOKEN_CHARS = 64, LOCAL_TOKEN_SIZE = LOCAL_TOKEN_CHARS + 1 };

/* A file that does not exist yet, with a new random token.  0 or -errno, with the reason. */
int local_token_create(const char *path, char *why, size_t why_n);
/* token: [LOCAL_TOKEN_SIZE].  -EACCES: other users can read it; -EINVAL: not a token. */
int local_token_read(const char *path, char *token, char *why, size_t why_n);
/* Whether both are the same token; "" is none.  Takes as long wherever they differ. */
bool local_token_equal(const char *a, const char *b);

#endif
