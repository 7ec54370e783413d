#include "controller/apis/resume.h"

#include "base/alloc.h"
#include "controller/http/http.h"
#include "controller/request/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char KEY[] = "Idempotency-Key", LAST[] = "Last-Event-ID";

static bool refuse(struct exchange *x, const char *header, const char *why)
{
	exchange_error(x, MHD_HTTP_BAD_REQUEST, "invalid_request_error", header, NULL, "%s: %s", header, why);
	return false;
}

static bool visible(const char *s)
{
	for (; *s; s++)
		if (*s < 0x21 || *s > 0x7e)
			return false;
	return true;
}

bool resume_read(struct exchange *x, const json_t *client, struct resume_request *r)
{
	*r = (struct resume_request){0};
	const char *key = x->idempotency_key, *last = x->last_event_id;
	if (last && *last && !key)
		return refuse(x, LAST,
			      "streams are gone on with by their Idempotency-Key: send the one that "
			      "the stream was begun with");
	if (!key)
		return true;
	if (!*key || strlen(key) > RESUME_KEY_MAX || !visible(key))
		return refuse(x, KEY, "must be 1 to 255 visible characters of ASCII");
	if (last && *last) {
		const size_t n = strspn(last, "0123456789");
		if (last[n] || n > 18)
			return refuse(x, LAST, "must be the number of an event: the last `id` that came");
		r->after = strtoull(last, NULL, 10);
		r->attach = true;
	}
	r->on = true;
	snprintf(r->key, sizeof r->key, "%s", key);
	uint8_t digest[16];
	XXH128_canonical_t sum;
	api_digest(client, digest);
	const XXH64_hash_t path = XXH3_64bits(x->path, strlen(x->path));
	XXH128_canonicalFromHash(&sum, XXH3_128bits_withSeed(digest, sizeof digest, path));
	memcpy(r->body, sum.digest, sizeof r->body);
	return true;
}

static XXH128_hash_t draw(const struct resume_request *r, const struct submit *s, const char *what)
{
	char *of = xasprintf("%s\n%s\n%s", s->owner ? s->owner : "", r->key, what);
	const XXH128_hash_t h = XXH3_128bits(of, strlen(of));
	free(of);
	return h;
}

void resume_own(const struct resume_request *r, struct submit *s, size_t i, size_t n, bool durable,
		bool seeded)
{
	char what[32];
	free(s->key);
	s->key = n > 1 ? xasprintf("stream/%s/%zu", r->key, i) : xasprintf("stream/%s", r->key);
	memcpy(s->body, r->body, sizeof s->body);
	s->keep = true;
	s->durable = durable;
	s->existing = r->attach;
	snprintf(what, sizeof what, "seed %zu", i);
	if (!seeded)
		s->params.seed = draw(r, s, what).low64 >> 1;
}

void resume_id(const struct resume_request *r, const struct submit *s, const char *prefix, char *out,
	       size_t out_n)
{
	const XXH128_hash_t h = draw(r, s, "id");
	snprintf(out, out_n, "%s%016" PRIx64 "%016" PRIx64, prefix, h.high64, h.low64);
}

uint64_t resume_calls(const struct resume_request *r, const struct submit *s, uint32_t choice)
{
	char what[32];
	snprintf(what, sizeof what, "calls %u", choice);
	return draw(r, s, what).low64 | 1;
}

struct resume *resume_new(const struct resume_request *r, uint32_t n_outputs, bool lines)
{
	struct resume *out = xcalloc(1, sizeof *out);
	out->turns = turns_new(n_outputs);
	out->ids = (struct event_ids){.lines = lines, .after = r->after};
	out->attach = r->attach;
	return out;
}

void resume_free(struct resume *r)
{
	if (!r)
		return;
	turns_free(r->turns);
	free(r);
}
