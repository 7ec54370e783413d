/* local_token.h - proves to the controller that its supervisor started a worker, on its host.
 * The proof is a secret in a file (mode 0600); the supervisor passes its path to both.  Needed on TCP; on
 * ipc:// the kernel (SO_PEERCRED) identifies each peer's process. */
#ifndef QUERN_PROTO_LOCAL_TOKEN_H
#define QUERN_PROTO_LOCAL_TOKEN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { LOCAL_TOKEN_CHARS = 64, LOCAL_TOKEN_SIZE = LOCAL_TOKEN_CHARS + 1 };

/* Create a file, which must not exist, with a new random token.  0 or -errno, with the reason. */
int local_token_create(const char *path, struct why *why);
/* Read a token.  token: [LOCAL_TOKEN_SIZE].  -EACCES: other users can read the file; -EINVAL: not a token. */
int local_token_read(const char *path, char *token, struct why *why);
/* True if both are the same token; "" equals nothing.  The time does not depend on where they differ. */
bool local_token_equal(const char *a, const char *b);

#endif
