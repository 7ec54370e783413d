#include "controller/http/api_keys.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum {
	DIGEST = 32,
	FILE_MAX = 4 << 20,
	CHECK_US = 1000000, /* interval between checks of the file, while requests arrive */
	SHARE_MAX = 1000,
	MINUTE_US = 60 * 1000000,
};

/* Token bucket: refills evenly, `most` per minute, and may be overdrawn. */
struct bucket {
	int64_t most; /* capacity; 0: no limit */
	double left;
	int64_t at_us; /* clock_us() of `left` */
};

struct api_key {
	unsigned char digest[DIGEST];
	char name[APIKEY_NAME_MAX];
	bool known; /* still in the file */
	uint32_t share;
	int32_t best, worst; /* range of its requests' priorities */
	int64_t max_jobs;    /* 0: no limit */
	struct api_key_quota quota;
	uint32_t n_jobs;
	struct bucket requests, tokens;
	struct api_keys *all;
};

struct api_keys {
	char *path;
	pthread_mutex_t lock;  /* guards the fields below, and all keys */
	struct api_key **keys; /* [n], including keys dropped from the file */
	size_t n;
	int64_t checked_us;
	struct timespec changed;
	off_t bytes;
	ino_t inode;
};

/* --- the file --- */

static int digest_of(const char *key, size_t n, unsigned char out[DIGEST])
{
	return gnutls_hash_fast(GNUTLS_DIG_SHA256, key, n, out) ? -EIO : 0;
}

static int parse_hex(const char *hex, unsigned char out[DIGEST])
{
	if (strlen(hex) != 2 * DIGEST || strspn(hex, "0123456789abcdefABCDEF") != 2 * DIGEST)
		return -EINVAL;
	for (int i = 0; i < DIGEST; i++) {
		char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
		out[i] = (unsigned char)strtoul(two, NULL, 16);
	}
	return 0;
}

static int parse_key(const char *word, struct api_key *a, struct why *why)
{
	static const char hashed[] = "sha256:";
	size_t n = strlen(word);
	if (!strncmp(word, hashed, sizeof hashed - 1)) {
		if (parse_hex(word + sizeof hashed - 1, a->digest))
			return err_why(why, -EINVAL, "sha256: must be followed by 64 hexadecimal digits");
	} else if (n < APIKEY_BYTES_MIN || n > APIKEY_BYTES_MAX) {
		return err_why(why, -EINVAL, "the key has %zu bytes, must have %d to %d", n, APIKEY_BYTES_MIN,
			       APIKEY_BYTES_MAX);
	} else if (digest_of(word, n, a->digest)) {
		return err_why(why, -EIO, "SHA-256 is not available");
	}
	snprintf(a->name, sizeof a->name, "key-%02x%02x%02x%02x", a->digest[0], a->digest[1], a->digest[2],
		 a->digest[3]);
	return 0;
}

static int parse_name(const char *text, struct api_key *a, struct why *why)
{
	static const char plain[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.";
	size_t n = strlen(text);
	if (!n || n >= sizeof a->name || strspn(text, plain) != n)
		return err_why(why, -EINVAL, "name: must be 1 to %zu of A-Za-z0-9_.-", sizeof a->name - 1);
	memcpy(a->name, text, n + 1);
	return 0;
}

static int parse_number(const char *name, const char *text, int64_t lo, int64_t hi, int64_t *out,
			struct why *why)
{
	char *end;
	errno = 0;
	long long x = strtoll(text, &end, 10);
	if (errno || end == text || *end || x < lo || x > hi)
		return err_why(why, -EINVAL, "%s: must be an integer from %lld to %lld", name, (long long)lo,
			       (long long)hi);
	*out = x;
	return 0;
}

/* Parse BEST..WORST, or one priority for all requests. */
static int parse_priority(char *text, struct api_key *a, struct why *why)
{
	int64_t best = 0, worst = 0;
	char *dots = strstr(text, "..");
	if (dots)
		*dots = 0;
	int rc = parse_number("priority", text, INT32_MIN, INT32_MAX, &best, why);
	if (!rc)
		rc = parse_number("priority", dots ? dots + 2 : text, INT32_MIN, INT32_MAX, &worst, why);
	if (rc)
		return rc;
	if (best > worst)
		return err_why(why, -EINVAL,
			       "priority: %lld..%lld: the first number must be the lower one (it runs first)",
			       (long long)best, (long long)worst);
	a->best = (int32_t)best;
	a->worst = (int32_t)worst;
	return 0;
}

/* Parse a field name=value. */
static int parse_word(char *word, struct api_key *a, struct why *why)
{
	char *value = strchr(word, '=');
	int64_t share = 1;
	int rc;
	if (!value) /* may be a fragment of a key: not shown */
		return err_why(why, -EINVAL,
			       "the key must be followed by name=value fields, separated by blanks");
	*value++ = 0;
	if (!strcmp(word, "name"))
		return parse_name(value, a, why);
	if (!strcmp(word, "share")) {
		rc = parse_number(word, value, 1, SHARE_MAX, &share, why);
		a->share = (uint32_t)share;
		return rc;
	}
	if (!strcmp(word, "priority"))
		return parse_priority(value, a, why);
	if (!strcmp(word, "max-jobs"))
		return parse_number(word, value, 0, INT32_MAX, &a->max_jobs, why);
	if (!strcmp(word, "max-files"))
		return parse_number(word, value, 0, INT32_MAX, &a->quota.max_files, why);
	if (!strcmp(word, "max-stored-bytes")) {
		rc = size_parse(value, &a->quota.max_bytes, why);
		return rc ? err_prefix(why, rc, "%s", word) : 0;
	}
	if (!strcmp(word, "requests-per-minute"))
		return parse_number(word, value, 0, INT32_MAX, &a->requests.most, why);
	if (!strcmp(word, "tokens-per-minute"))
		return parse_number(word, value, 0, INT64_MAX / MINUTE_US, &a->tokens.most, why);
	return err_why(why, -EINVAL,
		       "unknown field: must be name, share, priority, max-jobs, requests-per-minute, "
		       "tokens-per-minute, max-files or max-stored-bytes");
}

static int parse_line(char *line, struct api_key *a, struct why *why)
{
	char *rest = line, *word = strtok_r(line, " \t\r", &rest);
	int rc = parse_key(word, a, why);
	while (!rc && (word = strtok_r(NULL, " \t\r", &rest)) && word[0] != '#')
		rc = parse_word(word, a, why);
	return rc;
}

struct parsed {
	struct api_key *keys;
	size_t n;
};

static int check_unique(const struct parsed *p, const struct api_key *a, struct why *why)
{
	for (size_t i = 0; i < p->n; i++) {
		if (!memcmp(p->keys[i].digest, a->digest, DIGEST))
			return err_why(why, -EINVAL, "duplicate key");
		if (!strcmp(p->keys[i].name, a->name))
			return err_why(why, -EINVAL, "duplicate name %s", a->name);
	}
	return 0;
}

static int parse_text(char *text, struct parsed *p, struct why *why)
{
	int no = 0, rc;
	for (char *line; (line = strsep(&text, "\n"));) {
		struct api_key a = {.share = 1, .worst = INT32_MAX, .known = true, .quota = {-1, -1}};
		no++;
		line += strspn(line, " \t\r");
		if (!*line || *line == '#')
			continue;
		rc = parse_line(line, &a, why);
		if (!rc)
			rc = check_unique(p, &a, why);
		if (!rc && p->n == APIKEYS_MAX)
			rc = err_why(why, -E2BIG, "more than %d keys", APIKEYS_MAX);
		if (rc)
			return err_prefix(why, rc, "line %d", no);
		p->keys[p->n++] = a;
	}
	return p->n ? 0 : err_why(why, -EINVAL, "no keys in it");
}

/* Adopt the parsed keys.  Keys known before keep their usage. */
static void adopt(struct api_keys *k, const struct parsed *p)
{
	for (size_t i = 0; i < k->n; i++)
		k->keys[i]->known = false;
	for (size_t i = 0; i < p->n; i++) {
		const struct api_key *new = &p->keys[i];
		struct api_key *a = NULL;
		for (size_t j = 0; j < k->n && !a; j++)
			if (!memcmp(k->keys[j]->digest, new->digest, DIGEST))
				a = k->keys[j];
		if (!a) {
			k->keys = xrealloc(k->keys, k->n + 1, sizeof *k->keys);
			a = k->keys[k->n++] = xmemdup(new, sizeof *new);
			a->all = k;
			continue;
		}
		a->known = true;
		memcpy(a->name, new->name, sizeof a->name);
		a->share = new->share;
		a->best = new->best;
		a->worst = new->worst;
		a->max_jobs = new->max_jobs;
		a->quota = new->quota;
		a->requests.most = new->requests.most;
		a->tokens.most = new->tokens.most;
	}
}

static int read_keys(struct api_keys *k, struct why *why)
{
	char *text = NULL;
	size_t n;
	struct parsed p = {0};
	int rc = file_read(k->path, FILE_MAX, &text, &n, why);
	if (rc)
		return rc;
	if (memchr(text, 0, n)) {
		rc = err_why(why, -EINVAL, "%s: contains a NUL byte", k->path);
	} else {
		p.keys = xcalloc(APIKEYS_MAX, sizeof *p.keys);
		rc = parse_text(text, &p, why);
		if (rc)
			err_prefix(why, rc, "%s", k->path);
	}
	if (!rc)
		adopt(k, &p);
	free(p.keys);
	explicit_bzero(text, n);
	free(text);
	return rc;
}

/* Return true if the file differs from the version read last. */
static bool has_changed(struct api_keys *k)
{
	struct stat st;
	if (stat(k->path, &st))
		return false; /* the file is being replaced */
	bool same = st.st_mtim.tv_sec == k->changed.tv_sec && st.st_mtim.tv_nsec == k->changed.tv_nsec &&
		    st.st_size == k->bytes && st.st_ino == k->inode;
	k->changed = st.st_mtim;
	k->bytes = st.st_size;
	k->inode = st.st_ino;
	return !same;
}

int api_keys_open(const char *path, struct api_keys **out, struct why *why)
{
	struct stat st;
	struct api_keys *k = xcalloc(1, sizeof *k);
	k->path = xstrdup(path);
	pthread_mutex_init(&k->lock, NULL);
	k->checked_us = clock_us();
	has_changed(k);
	int rc = read_keys(k, why);
	if (rc) {
		api_keys_close(k);
		return rc;
	}
	if (stat(path, &st) == 0 && file_is_shared(&st))
		log_warn("http", "keys file is readable by others file=%s remedy=\"chmod 600\"", path);
	log_info("http", "keys read file=%s keys=%zu", path, k->n);
	*out = k;
	return 0;
}

void api_keys_close(struct api_keys *k)
{
	if (!k)
		return;
	for (size_t i = 0; i < k->n; i++)
		free(k->keys[i]);
	free(k->keys);
	free(k->path);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

/* Read the file again if it has changed.  Under the lock. */
static void follow(struct api_keys *k, int64_t now)
{
	struct why why;
	if (now - k->checked_us < CHECK_US)
		return;
	k->checked_us = now;
	if (!has_changed(k))
		return;
	if (read_keys(k, &why))
		log_error("http", "previous keys kept file=%s reason=\"%s\"", k->path, why.text);
	else
		log_info("http", "keys read again file=%s keys=%zu", k->path, k->n);
}

struct api_key *api_keys_find(struct api_keys *k, const char *authorization, int64_t now)
{
	static const char scheme[] = "Bearer ";
	unsigned char digest[DIGEST];
	struct api_key *found = NULL;
	if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
		return NULL;
	const char *key = authorization + sizeof scheme - 1;
	key += strspn(key, " ");
	size_t n = strlen(key);
	if (n > APIKEY_BYTES_MAX || digest_of(key, n, digest))
		return NULL;
	pthread_mutex_lock(&k->lock);
	follow(k, now);
	/* Compare with all keys, each in constant time: the duration reveals nothing. */
	for (size_t i = 0; i < k->n; i++) {
		bool same = gnutls_memcmp(k->keys[i]->digest, digest, DIGEST) == 0;
		if (same && k->keys[i]->known)
			found = k->keys[i];
	}
	pthread_mutex_unlock(&k->lock);
	return found;
}

/* --- limits --- */

void api_key_name(const struct api_key *a, char name[APIKEY_NAME_MAX], uint32_t *share)
{
	struct api_key_terms t;
	api_key_terms(a, &t);
	memcpy(name, t.name, sizeof t.name);
	*share = t.share;
}

void api_key_terms(const struct api_key *a, struct api_key_terms *out)
{
	pthread_mutex_lock(&a->all->lock);
	*out = (struct api_key_terms){.share = a->share, .best = a->best, .worst = a->worst};
	memcpy(out->name, a->name, sizeof a->name);
	pthread_mutex_unlock(&a->all->lock);
}

void api_key_quota(const struct api_key *a, struct api_key_quota *out)
{
	pthread_mutex_lock(&a->all->lock);
	*out = a->quota;
	pthread_mutex_unlock(&a->all->lock);
}

int32_t api_key_priority(const struct api_key_terms *t, int32_t wanted)
{
	return wanted < t->best ? t->best : wanted > t->worst ? t->worst : wanted;
}

static void refill(struct bucket *b, int64_t now)
{
	double most = (double)b->most;
	if (!b->most) { /* usage without a limit is not charged later; a new limit starts full */
		*b = (struct bucket){0};
		return;
	}
	if (!b->at_us)
		b->left = most;
	else if (now > b->at_us)
		b->left += (double)(now - b->at_us) / MINUTE_US * most;
	if (b->left > most)
		b->left = most;
	b->at_us = now;
}

/* Return the seconds until `want` tokens are left; at least 1. */
static unsigned wait_for(const struct bucket *b, double want)
{
	double s = (want - b->left) / (double)b->most * 60;
	return s > 3600 ? 3600 : s < 1 ? 1 : (unsigned)s + 1;
}

static int admit(struct api_key *a, uint32_t n_jobs, bool count, unsigned *retry_s, struct why *why)
{
	*retry_s = 1;
	if (a->max_jobs && n_jobs && a->n_jobs + (uint64_t)n_jobs > (uint64_t)a->max_jobs)
		return err_why(why, -EAGAIN,
			       "the key's limit of %lld jobs at once is reached: %u run, the request has %u",
			       (long long)a->max_jobs, a->n_jobs, n_jobs);
	if (count && a->requests.most && a->requests.left < 1) {
		*retry_s = wait_for(&a->requests, 1);
		return err_why(why, -EAGAIN, "the key's limit of %lld requests per minute is reached",
			       (long long)a->requests.most);
	}
	if (count && a->tokens.most && a->tokens.left <= 0) {
		*retry_s = wait_for(&a->tokens, 1);
		return err_why(why, -EAGAIN, "the key's limit of %lld tokens per minute is reached",
			       (long long)a->tokens.most);
	}
	return 0;
}

int api_key_begin(struct api_key *a, uint32_t n_jobs, bool count, int64_t now, unsigned *retry_s,
		  struct why *why)
{
	pthread_mutex_lock(&a->all->lock);
	refill(&a->requests, now);
	refill(&a->tokens, now);
	int rc = admit(a, n_jobs, count, retry_s, why);
	if (!rc) {
		a->n_jobs += n_jobs;
		if (count)
			a->requests.left -= 1;
	}
	pthread_mutex_unlock(&a->all->lock);
	return rc;
}

void api_key_end(struct api_key *a)
{
	pthread_mutex_lock(&a->all->lock);
	a->n_jobs--;
	pthread_mutex_unlock(&a->all->lock);
}

void api_key_charge(struct api_key *a, uint64_t tokens, int64_t now)
{
	pthread_mutex_lock(&a->all->lock);
	refill(&a->tokens, now);
	a->tokens.left -= (double)tokens;
	pthread_mutex_unlock(&a->all->lock);
}

static int64_t whole(const struct bucket *b)
{
	return !b->most ? -1 : b->left > 0 ? (int64_t)b->left : 0;
}

void api_key_left(struct api_key *a, int64_t now, struct api_key_left *out)
{
	pthread_mutex_lock(&a->all->lock);
	refill(&a->requests, now);
	refill(&a->tokens, now);
	*out = (struct api_key_left){.max_requests = a->requests.most,
				     .requests = whole(&a->requests),
				     .max_tokens = a->tokens.most,
				     .tokens = whole(&a->tokens)};
	pthread_mutex_unlock(&a->all->lock);
}
