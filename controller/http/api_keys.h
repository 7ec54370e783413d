/* api_keys.h - the keys of the HTTP API, with their shares and limits.
 * Owns: the keys of a file, stored as SHA-256 digests only, and the usage of each.  A changed file is read
 * again; if it is invalid, the error is logged and the previous keys stay in force.  Any thread.
 *
 *   # everything but the key is optional; a limit of 0 is unlimited
 *   sk-alice-3f9c2a7e   name=alice share=2 max-jobs=8 requests-per-minute=60 tokens-per-minute=90000
 *   sha256:9f86d081...  name=bob priority=-10..100 */
#ifndef QUERN_CONTROLLER_HTTP_API_KEYS_H
#define QUERN_CONTROLLER_HTTP_API_KEYS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_keys;
struct api_key;

enum { APIKEYS_MAX = 4096, APIKEY_NAME_MAX = 64, APIKEY_BYTES_MIN = 16, APIKEY_BYTES_MAX = 256 };

/* Read the keys of a file.  -errno or -EINVAL with the reason, which names the file and the line, never the
 * key. */
int api_keys_open(const char *path, struct api_keys **out, struct why *why);
void api_keys_close(struct api_keys *k); /* NULL is fine */

/* Return the key of "Bearer KEY"; NULL if it is unknown.  Takes the same time for every key.  k owns the
 * result, which stays valid until api_keys_close(), also if the file drops the key.  now: clock_us(). */
struct api_key *api_keys_find(struct api_keys *k, const char *authorization, int64_t now);

/* name: [A-Za-z0-9_.-], unique.  share: 1..1000. */
void api_key_name(const struct api_key *a, char name[APIKEY_NAME_MAX], uint32_t *share);

/* The scheduling terms that the file grants a key. */
struct api_key_terms {
	char name[APIKEY_NAME_MAX];
	uint32_t share;
	int32_t best, worst; /* range of its requests' priorities: lowest and highest number */
};
/* The terms of requests without a key. */
#define API_KEY_NO_TERMS ((struct api_key_terms){.share = 1, .best = INT32_MIN, .worst = INT32_MAX})
void api_key_terms(const struct api_key *a, struct api_key_terms *out);
/* Return the priority granted to a request that asks for `wanted`. */
int32_t api_key_priority(const struct api_key_terms *t, int32_t wanted);

/* The limits of a key and what is left of each; -1: no such limit. */
struct api_key_left {
	int64_t max_requests, requests;
	int64_t max_tokens, tokens;
};

/* Charge a request of n_jobs jobs (0: none).  count: charge requests-per-minute too.  0: the caller calls
 * api_key_end() once per job.  -EAGAIN: a limit is reached; why names it, *retry_s is the seconds to wait. */
int api_key_begin(struct api_key *a, uint32_t n_jobs, bool count, int64_t now, unsigned *retry_s,
		  struct why *why);
/* Limits of all files of a key together; 0: no limit, -1: the key has no limit of its own. */
struct api_key_quota {
	int64_t max_files, max_bytes;
};
void api_key_quota(const struct api_key *a, struct api_key_quota *out);
/* Release one job that has ended. */
void api_key_end(struct api_key *a);
/* Charge tokens when their number is known.  A key that has used more than its tokens-per-minute waits until
 * its token bucket has refilled. */
void api_key_charge(struct api_key *a, uint64_t tokens, int64_t now);
void api_key_left(struct api_key *a, int64_t now, struct api_key_left *out);

#endif
