/* join.h - values that `quern worker --join HOST` finds by itself: the bus's endpoint, the keys, the
 * device. */
#ifndef QUERN_WORKER_JOIN_H
#define QUERN_WORKER_JOIN_H

#include "base/err.h"

#include <stddef.h>

enum { JOIN_PORT = 7430, JOIN_ENDPOINT_SIZE = 288 };

/* Convert "HOST" or "HOST:PORT" (a name or an IPv4 address) to "tcp://HOST:PORT".  -EINVAL with the
 * reason. */
int join_endpoint(const char *word, char out[JOIN_ENDPOINT_SIZE], struct why *why);

/* Find the first of n directories (NULL entries are skipped) that has worker.key or service.pub, and set
 * the paths of both, which the caller frees.  No directory has keys: 0, both NULL.  -ENOENT: one of the two
 * files is missing there.  A directory that cannot be searched is skipped; its error (-EACCES, ...) is
 * returned only if no other directory has keys. */
int join_keys(const char *const *dirs, size_t n, char **key, char **server_key, struct why *why);

/* Return "cuda:0" if this program has GPU kernels and a GPU opens; else "cpu", with the reason in why. */
const char *join_device(struct why *why);

#endif
