/* curve.h - CURVE keys: generated, kept in files, set on ZeroMQ sockets.
 * A key pair is two strings of 40 characters (Z85).  The secret half is in a file of its own that only its
 * owner may read; programs get the name of the file, never the key, so that no key is in process arguments.
 */
#ifndef QUERN_PROTO_CURVE_H
#define QUERN_PROTO_CURVE_H

#include <stdbool.h>
#include <stddef.h>

enum { CURVE_CHARS = 40, CURVE_SIZE = CURVE_CHARS + 1 };

struct curve_key {
	char public[CURVE_SIZE];
	char secret[CURVE_SIZE]; /* "": only the public half is known */
};

/* A new pair.  -ENOSYS: this libzmq has no CURVE. */
int curve_generate(struct curve_key *out, char *why, size_t why_n);
/* Writes dir/NAME.key (mode 0600: both halves) and dir/NAME.pub (the public one); dir is created
 * if needed.  -EEXIST: neither is overwritten. */
int curve_write(const struct curve_key *k, const char *dir, const char *name, char *why, size_t why_n);

/* Reads either file.  secret: the secret half is needed, and no other user may be able to read the file
 * (root's may also be readable by its group, which then is this process's).  The reason never shows the
 * file's contents.  -ENOENT, -EACCES, -EINVAL, ... */
int curve_read(const char *path, bool secret, struct curve_key *out, char *why, size_t why_n);
/* The same from the text of a file: lines "public = KEY" and "secret = KEY", '#' begins a comment. */
int curve_parse(const char *text, size_t n, bool secret, struct curve_key *out, char *why, size_t why_n);
/* Is s[0..n) a public or secret key, by its form? */
bool curve_valid(const char *s, size_t n);

/* Where a client or worker finds its keys; NULL: not given. */
struct curve_sources {
	const char *key;        /* option: the path of its own key file */
	const char *server_key; /* option: the path of the service's public key, or that key itself */
	const char *env_key;    /* environment, where the option is not given: a path, or the key itself */
	const char *env_server_key; /* likewise */
};
/* *keyed: false where no key is given.  Calls curve_protect() before it reads a secret. */
int curve_pair(const struct curve_sources *from, struct curve_key *own, struct curve_key *server, bool *keyed,
	       char *why, size_t why_n);

/* Before the socket connects: as `own` (with its secret), to the peer with the secret of `server`. */
int curve_client(void *socket, const struct curve_key *own, const char *server);
/* Before the socket binds: only peers that ZAP accepts (zap.h) in this domain. */
int curve_server(void *socket, const struct curve_key *own, const char *domain);

/* A secret is in memory: from now on no core file is written, and no debugger of another user attaches. */
void curve_protect(void);
/* Wipes it. */
void curve_forget(struct curve_key *k);

#endif
