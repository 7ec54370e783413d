#include "controller/request/breakers.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "controller/request/checked.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	STRINGS_MAX = 64,
	STRING_BYTES_MAX = 40, /* the length to which llama.cpp cuts them */
};

static const char *const field = "dry_sequence_breakers";

struct string {
	const char *p;
	size_t n;
	bool found; /* a token contains it */
};

struct strings {
	struct string s[STRINGS_MAX];
	size_t n;
	bool begins[256]; /* some string begins with this byte */
};

static int get_strings(const json_t *list, struct strings *out, struct api_problem *problem)
{
	static const char *const usual[] = {"\n", ":", "\"", "*"};
	out->n = list ? json_array_size(list) : sizeof usual / sizeof *usual;
	if (out->n > STRINGS_MAX)
		return api_fail(problem, E_BAD_REQUEST, field, "%s has %zu strings, at most %d are accepted",
				field, out->n, STRINGS_MAX);
	for (size_t i = 0; i < out->n; i++) {
		const json_t *v = list ? json_array_get(list, i) : NULL;
		if (list && (!json_is_string(v) || json_string_length(v) == 0 ||
			     json_string_length(v) > STRING_BYTES_MAX))
			return api_fail(problem, E_BAD_REQUEST, field,
					"%s[%zu] must be a string of 1 to %d bytes", field, i,
					STRING_BYTES_MAX);
		out->s[i].p = list ? json_string_value(v) : usual[i];
		out->s[i].n = list ? json_string_length(v) : strlen(usual[i]);
		out->s[i].found = !list; /* a model need not have a token for each default string */
		out->begins[(uint8_t)out->s[i].p[0]] = true;
	}
	return 0;
}

/* Return true if the n bytes contain one of the strings; marks every string found. */
static bool has_one(struct strings *s, const char *p, size_t n)
{
	bool any = false;
	for (size_t at = 0; at < n; at++) {
		if (!s->begins[(uint8_t)p[at]])
			continue;
		for (size_t i = 0; i < s->n; i++)
			if (s->s[i].n <= n - at && !memcmp(p + at, s->s[i].p, s->s[i].n))
				any = s->s[i].found = true;
	}
	return any;
}

/* Write the cache key: the strings, each preceded by its length, and whether a token must contain them. */
static void put_key(const struct strings *s, bool must, struct buf *key)
{
	buf_putc(key, must);
	for (size_t i = 0; i < s->n; i++) {
		buf_put(key, &s->s[i].n, sizeof s->s[i].n);
		buf_put(key, s->s[i].p, s->s[i].n);
	}
}

static int find_ids(struct strings *s, const struct service *svc, struct params *p,
		    struct api_problem *problem)
{
	const struct tokenizer *t = svc->tokenizer;
	const uint32_t n_vocab = (uint32_t)svc->config->n_vocab, known = tokenizer_n_vocab(t);
	struct buf text = {0}, ids = {0};
	int rc = 0;
	for (uint32_t id = 0; id < n_vocab && id < known; id++) {
		buf_clear(&text);
		tokenizer_piece(t, id, &text);
		if (has_one(s, text.p, text.len))
			buf_put(&ids, &id, sizeof id);
	}
	p->n_breakers = (uint32_t)(ids.len / sizeof(uint32_t));
	for (size_t i = 0; i < s->n && !rc; i++)
		if (!s->s[i].found)
			rc = api_fail(
				problem, E_BAD_REQUEST, field,
				"%s[%zu] is in no token's text; breakers of several tokens are not built yet",
				field, i);
	if (!rc && p->n_breakers > PARAMS_BREAKERS_MAX)
		rc = api_fail(problem, E_BAD_REQUEST, field,
			      "%s: they are in %u tokens, at most %d are accepted", field, p->n_breakers,
			      PARAMS_BREAKERS_MAX);
	if (rc)
		p->n_breakers = 0;
	else if (p->n_breakers)
		p->breakers = xmemdup(ids.p, ids.len);
	buf_fini(&text);
	buf_fini(&ids);
	return rc;
}

int breakers_read(const json_t *list, const struct service *svc, struct params *p,
		  struct api_problem *problem)
{
	struct strings s = {0};
	struct buf key = {0};
	int rc = get_strings(list, &s, problem);
	if (rc || !s.n || !(p->dry_multiplier > 0))
		return rc;
	put_key(&s, list != NULL, &key);
	if (!checked_breakers(svc->checked, key.p, key.len, &p->breakers, &p->n_breakers)) {
		rc = find_ids(&s, svc, p, problem);
		if (!rc)
			checked_keep_breakers(svc->checked, key.p, key.len, p->breakers, p->n_breakers);
	}
	buf_fini(&key);
	return rc;
}
