/* apikeys.h - who may use the HTTP API, with which share and which limits.
 * Owns: the keys of a file, as SHA-256 digests only, and what each has used.  The file is read
 * again when it changes; one that is wrong then is named in the log, and the keys stay as they were.
 * Any thread.
 *
 *   # name, share and limits may be left out; a limit of 0 is none
 *   sk-alice-3f9c2a7e   name=alice share=2 max-jobs=8 requests-per-minute=60 tokens-per-minute=90000
 *   sha256:9f86d081...  name=bob
 */
#ifndef QUERN_CONTROLLER_APIKEYS_H
#define QUERN_CONTROLLER_APIKEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct apikeys;
struct apikey;

enum { APIKEYS_MAX = 4096, APIKEY_NAME_MAX = 64, APIKEY_BYTES_MIN = 16, APIKEY_BYTES_MAX = 256 };

/* -errno or -EINVAL with the reason, which names the file and the line, never the key. */
int apikeys_open(const char *path, struct apikeys **out, char *why, size_t why_n);
void apikeys_close(struct apikeys *k); /* NULL is fine */

/* The key of "Bearer KEY"; NULL: none such.  Takes as long whichever key it is.  The result is k's
 * and stays valid until apikeys_close(), also when the file drops the key.  now: clock_us(). */
struct apikey *apikeys_find(struct apikeys *k, const char *authorization, int64_t now);

/* name: [A-Za-z0-9_.-], unique.  share: 1..1000. */
void apikey_who(const struct apikey *a, char name[APIKEY_NAME_MAX], uint32_t *share);

/* What is left of a key's limits; -1: it has none of that kind. */
struct apikey_left {
	int64_t max_requests, requests;
	int64_t max_tokens, tokens;
};

/* A request of n_jobs jobs (0: none that runs); takes it from requests-per-minute where count says
 * so.  0; -EAGAIN: a limit is reached: why says which, *retry_s when to come again.  On 0 each job
 * is given back by apikey_end(). */
int apikey_begin(struct apikey *a, uint32_t n_jobs, bool count, int64_t now, unsigned *retry_s, char *why,
		 size_t why_n);
/* One job has ended. */
void apikey_end(struct apikey *a);
/* Tokens are charged when they are known: a key that has used more than its tokens-per-minute
 * waits until they are made up for. */
void apikey_charge(struct apikey *a, uint64_t tokens, int64_t now);
void apikey_left(struct apikey *a, int64_t now, struct apikey_left *out);

#endif
