/* curve.h - CURVE keys: made, kept in files, given to ZeroMQ sockets.
 * A key pair is two strings of 40 characters (Z85).  The secret half is in a file of its own that
 * only its owner may read; programs are told the file's name, never the key, so that none stands
 * in process arguments. */
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
/* Writes dir/NAME.key (mode 0600: both halves) and dir/NAME.pub (the public one); dir is made
 * where it is not there.  -EEXIST: neither is overwritten. */
int curve_write(const struct curve_key *k, const char *dir, const char *name, char *why, size_t why_n);

/* Reads either file.  secret: the secret half is needed, and nobody else may be able to read the
 * file.  The reason never shows what the file holds.  -ENOENT, -EACCES, -EINVAL, ... */
int curve_read(const char *path, bool secret, struct curve_key *out, char *why, size_t why_n);
/* The same of a file's text: lines "public = KEY" and "secret = KEY", '#' begins a comment. */
int curve_parse(const char *text, size_t n, bool secret, struct curve_key *out, char *why, size_t why_n);
/* Is s[0..n) a public or secret key, by its form? */
bool curve_valid(const char *s, size_t n);

/* What a client or worker was told; NULL: nothing. */
struct curve_told {
	const char *key;            /* by option: the path of its own key file */
	const char *server_key;     /* the path of the service's, or that public key itself */
	const char *env_key;        /* by the environment, used where no option says it: a path or the */
	const char *env_server_key; /* key itself */
};
/* *keyed: false where it was told of no key.  Protects the process before it reads a secret. */
int curve_pair(const struct curve_told *told, struct curve_key *own, struct curve_key *server, bool *keyed,
	       char *why, size_t why_n);

/* Before the socket connects: as own (with its secret) to whoever has server's secret. */
int curve_client(void *socket, const struct curve_key *own, const char *server);
/* Before the socket binds: only peers that ZAP lets in (zap.h), asked under this domain. */
int curve_server(void *socket, const struct curve_key *own, const char *domain);

/* From here on no core file is written and no other user's debugger gets in: a secret is in memory. */
void curve_protect(void);
/* Wipes it. */
void curve_forget(struct curve_key *k);

#endif
