#include "controller/jobs/stops.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
	const uint8_t *p; /* owned by struct stops */
	uint16_t n;
	uint16_t *border; /* [n]: length of the longest proper border of p[0..i] */
};

struct stops {
	unsigned n;
	struct pattern pattern[PARAMS_STOP_MAX];
	bool first[256]; /* bytes with which some pattern begins */
};

static void pattern_init(struct pattern *t, const char *string)
{
	size_t n = strlen(string);
	assert(n > 0 && n <= PARAMS_STOP_BYTES_MAX);
	t->p = xmemdup(string, n);
	t->n = (uint16_t)n;
	t->border = xcalloc(n, sizeof *t->border);
	for (uint16_t i = 1, k = 0; i < n; i++) {
		while (k && t->p[i] != t->p[k])
			k = t->border[k - 1];
		if (t->p[i] == t->p[k])
			k++;
		t->border[i] = k;
	}
}

struct stops *stops_new(char *const *strings, size_t n)
{
	assert(n > 0 && n <= PARAMS_STOP_MAX);
	struct stops *s = xcalloc(1, sizeof *s);
	s->n = (unsigned)n;
	for (size_t i = 0; i < n; i++) {
		pattern_init(&s->pattern[i], strings[i]);
		s->first[s->pattern[i].p[0]] = true;
	}
	return s;
}

void stops_free(struct stops *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n; i++) {
		free((void *)s->pattern[i].p);
		free(s->pattern[i].border);
	}
	free(s);
}

/* Return the new state of a pattern after byte c; t->n if it is complete. */
static uint16_t step(const struct pattern *t, uint16_t k, uint8_t c)
{
	while (k && t->p[k] != c)
		k = t->border[k - 1];
	return t->p[k] == c ? k + 1 : 0;
}

static bool idle(const struct stops *s, const struct stops_at *at)
{
	for (unsigned i = 0; i < s->n; i++)
		if (at->matched[i])
			return false;
	return true;
}

bool stops_push(const struct stops *s, struct stops_at *at, const char *text, size_t n, struct stops_hit *hit)
{
	const uint8_t *p = (const uint8_t *)text;
	bool quiet = idle(s, at);
	for (size_t i = 0; i < n; i++) {
		/* Fast path: nothing has begun to match, and this byte begins no pattern. */
		if (quiet && !s->first[p[i]])
			continue;
		quiet = true;
		for (unsigned k = 0; k < s->n; k++) {
			at->matched[k] = step(&s->pattern[k], at->matched[k], p[i]);
			if (at->matched[k] == s->pattern[k].n) {
				*hit = (struct stops_hit){
					.end = i + 1, .length = s->pattern[k].n, .which = k};
				return true;
			}
			quiet = quiet && at->matched[k] == 0;
		}
	}
	return false;
}

size_t stops_held(const struct stops *s, const struct stops_at *at)
{
	size_t held = 0;
	for (unsigned i = 0; i < s->n; i++)
		if (at->matched[i] > held)
			held = at->matched[i];
	return held;
}
