/* join.h - what `quern worker --join HOST` works out by itself: the bus's endpoint, the keys, the device. */
#ifndef QUERN_WORKER_JOIN_H
#define QUERN_WORKER_JOIN_H

#include <stddef.h>

enum { JOIN_PORT = 7430, JOIN_ENDPOINT_SIZE = 288 };

/* "HOST" or "HOST:PORT" (a name or an IPv4 address) to "tcp://HOST:PORT".  -EINVAL with the reason. */
int join_endpoint(const char *word, char out[JOIN_ENDPOINT_SIZE], char *why, size_t why_n);

/* The first of n directories (NULL ones are skipped) that has worker.key or service.pub: the paths of both,
 * to be freed.  None has: 0, both NULL.  -ENOENT: one of the two is missing there.  A directory that cannot
 * be searched is passed over; where none of the others has keys it is the error: -EACCES, ... */
int join_keys(const char *const *dirs, size_t n, char **key, char **server_key, char *why, size_t why_n);

/* "cuda:0" where this program has kernels for GPUs and one opens; else "cpu", and why it is not a GPU. */
const char *join_device(char *why, size_t why_n);

#endif
