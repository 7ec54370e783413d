/* api_keys.h - the keys of the HTTP API, with their shares and limits.
 * Owns: the keys of a file, as SHA-256 digests only, and the use of each.  The file is read again when
 * it changes; if it is invalid then, the error is logged and the previous keys stay in force.
 * Any thread.
 *
 *   # all but the key may be left out; a limit of 0 is unlimited
 *   sk-alice-3f9c2a7e   name=alice share=2 max-jobs=8 requests-per-minute=60 tokens-per-minute=90000
 *   sha256:9f86d081...  name=bob priority=-10..100
 */
#ifndef QUERN_CONTROLLER_HTTP_API_KEYS_H
#define QUERN_CONTROLLER_HTTP_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_keys;
struct api_key;

enum { APIKEYS_MAX = 4096, APIKEY_NAME_MAX = 64, APIKEY_BYTES_MIN = 16, APIKEY_BYTES_MAX = 256 };

/* -errno or -EINVAL with the reason, which names the file and the line, never the key. */
int api_keys_open(const char *path, struct api_keys **out, char *why, size_t why_n);
void api_keys_close(struct api_keys *k); /* NULL is fine */

/* The key of "Bearer KEY"; NULL: unknown.  Takes the same time for every key.  The result is k's
 * and stays valid until api_keys_close(), also when the file drops the key.  now: clock_us(). */
struct api_key *api_keys_find(struct api_keys *k, const char *authorization, int64_t now);

/* name: [A-Za-z0-9_.-], unique.  share: 1..1000. */
void api_key_name(const struct api_key *a, char name[APIKEY_NAME_MAX], uint32_t *share);

/* What the file grants a key in scheduling. */
struct api_key_terms {
	char name[APIKEY_NAME_MAX];
	uint32_t share;
	int32_t best, worst; /* priorities of its requests: the lowest number and the highest */
};
/* Of requests without a key. */
#define API_KEY_NO_TERMS ((struct api_key_terms){.share = 1, .best = INT32_MIN, .worst = INT32_MAX})
void api_key_terms(const struct api_key *a, struct api_key_terms *out);
/* The priority of a request that asks for this one. */
int32_t api_key_priority(const struct api_key_terms *t, int32_t wanted);

/* The rest of a key's limits; -1: no limit of that kind. */
struct api_key_left {
	int64_t max_requests, requests;
	int64_t max_tokens, tokens;
};

/* A request of n_jobs jobs (0: none); count: also against requests-per-minute.  0, and each job is given
 * back by api_key_end(); -EAGAIN: a limit is reached: why names it, *retry_s: seconds to wait. */
int api_key_begin(struct api_key *a, uint32_t n_jobs, bool count, int64_t now, unsigned *retry_s, char *why,
		  size_t why_n);
/* What the files of a key may be, all together; 0: no limit, -1: the key has none of its own. */
struct api_key_quota {
	int64_t max_files, max_bytes;
};
void api_key_quota(const struct api_key *a, struct api_key_quota *out);
/* One job has ended. */
void api_key_end(struct api_key *a);
/* Tokens are charged when their number is known: a key that has used more than its tokens-per-minute
 * waits until the bucket has refilled. */
void api_key_charge(struct api_key *a, uint64_t tokens, int64_t now);
void api_key_left(struct api_key *a, int64_t now, struct api_key_left *out);

#endif
