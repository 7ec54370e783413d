/* curve.h - CURVE keys: generated, kept in files, set on ZeroMQ sockets.
 * A key pair is two strings of 40 characters (Z85).  The secret half is in a separate file that only its
 * owner may read.  Programs take the file's name as an argument, never the key, so that no key is visible
 * in a process list. */
#ifndef QUERN_PROTO_CURVE_H
#define QUERN_PROTO_CURVE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { CURVE_CHARS = 40, CURVE_SIZE = CURVE_CHARS + 1 };

struct curve_key {
	char public[CURVE_SIZE];
	char secret[CURVE_SIZE]; /* "": only the public half is known */
};

/* Generate a pair.  -ENOSYS: this libzmq has no CURVE. */
int curve_generate(struct curve_key *out, struct why *why);
/* Write dir/NAME.key (mode 0600: both halves) and dir/NAME.pub (the public half); dir is created if needed.
 * -EEXIST: neither file is overwritten. */
int curve_write(const struct curve_key *k, const char *dir, const char *name, struct why *why);

/* Read either file.  secret: the secret half is required, and no other user may be able to read the file; a
 * file of root's may be readable by its group, which must then be this process's.  The reason never shows
 * the file's contents.  -ENOENT, -EACCES, -EINVAL, ... */
int curve_read(const char *path, bool secret, struct curve_key *out, struct why *why);
/* Parse the text of a key file: lines "public = KEY" and "secret = KEY"; '#' begins a comment.  Errors as
 * for curve_read(). */
int curve_parse(const char *text, size_t n, bool secret, struct curve_key *out, struct why *why);
/* True if s[0..n) has the syntax of a key. */
bool curve_valid(const char *s, size_t n);

/* Sources of a client's or worker's keys; NULL: not given. */
struct curve_sources {
	const char *key;        /* option: path of its own key file */
	const char *server_key; /* option: path of the service's public key, or the key itself */
	/* environment, if the option is not given: path of its own key file, or the key itself */
	const char *env_key;
	const char *env_server_key; /* environment: the service's public key, likewise a path or the key */
};
/* Find both keys.  *keyed: false if no key is given.  Calls curve_protect() before it reads a secret. */
int curve_pair(const struct curve_sources *from, struct curve_key *own, struct curve_key *server, bool *keyed,
	       struct why *why);

/* Before the socket connects: authenticate as `own` (with its secret) to the peer with the public key
 * `server`. */
int curve_client(void *socket, const struct curve_key *own, const char *server);
/* Before the socket binds: admit only peers that ZAP accepts (zap.h) in this domain. */
int curve_server(void *socket, const struct curve_key *own, const char *domain);

/* Call when a secret is in memory: disables core files, and debuggers without CAP_SYS_PTRACE. */
void curve_protect(void);
/* Wipe the key. */
void curve_forget(struct curve_key *k);

#endif
