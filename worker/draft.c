#include "worker/draft.h"

#include "proto/plan.h"

enum {
	MATCH_MIN = 3, /* shorter matches are mostly chance */
	MATCH_MAX = 16,
	WAITS_MAX = 64,
};

uint32_t draft_limit(struct draft_pace *p, uint32_t max)
{
	if (p->wait) {
		p->wait--;
		return 0;
	}
	return p->length && p->length < max ? p->length : max;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

void draft_took(struct draft_pace *p, uint32_t proposed, uint32_t accepted)
{
	if (!proposed)
		return;
	if (accepted == 0) {
		p->length = 1;
		p->wait = p->waits = (uint8_t)(p->waits ? least(2u * p->waits, WAITS_MAX) : 1);
		return;
	}
	p->length = (uint8_t)least(accepted == proposed ? 2 * accepted : accepted + 1, PLAN_DRAFTS_MAX);
	p->waits = 0;
}

/* Return how many tokens before position a equal those before position b, up to MATCH_MAX; a < b. */
static uint32_t match(const int32_t *tokens, uint32_t a, uint32_t b)
{
	uint32_t n = 0;
	while (n < MATCH_MAX && n < a && tokens[a - 1 - n] == tokens[b - 1 - n])
		n++;
	return n;
}

uint32_t draft_lookup(const int32_t *tokens, uint32_t n, uint32_t max, int32_t *out)
{
	uint32_t best = 0, longest = MATCH_MIN - 1;
	for (uint32_t at = n ? n - 1 : 0; at > 0 && longest < MATCH_MAX; at--) {
		const uint32_t k = tokens[at - 1] == tokens[n - 1] ? match(tokens, at, n) : 0;
		if (k > longest) {
			longest = k;
			best = at;
		}
	}
	if (!best)
		return 0;
	/* The tokens at the end may follow themselves: then they repeat. */
	for (uint32_t i = 0; i < max; i++)
		out[i] = best + i < n ? tokens[best + i] : out[best + i - n];
	return max;
}
