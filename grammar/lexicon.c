/* lexicon.c - sorts tokens into groups and builds a trie of each group. */
#include "grammar/lexicon.h"
#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Upper limits of a group's number of characters per token, for slices. */
static const unsigned tiers[] = {1, 2, 3, 4, 6, 8, 12, LEXICON_LONG_BYTES};
enum { N_TIERS = sizeof tiers / sizeof *tiers };

struct item {
	const char *p;
	uint32_t n, token;
	uint8_t group;
};

static bool is_lower(unsigned char c)
{
	return c >= 'a' && c <= 'z';
}

static bool is_alnum(unsigned char c)
{
	return is_lower(c) || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static enum lexicon_class classify(const char *p, uint32_t n, unsigned *n_chars)
{
	bool lower = true, alnum = true;
	*n_chars = 0;
	if (n > LEXICON_LONG_BYTES)
		return LEXICON_LONG;
	if (utf8_valid(p, n) != n)
		return LEXICON_REST;
	for (uint32_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i];
		lower &= is_lower(c);
		alnum &= is_alnum(c);
		*n_chars += (c & 0xc0) != 0x80;
		if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
			return LEXICON_REST;
	}
	return lower ? LEXICON_LOWER : alnum ? LEXICON_ALNUM : LEXICON_JSON;
}

static int by_group_and_bytes(const void *x, const void *y)
{
	const struct item *a = x, *b = y;
	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
	if (c || a->n != b->n)
		return c ? c : a->n < b->n ? -1 : 1;
	return a->token < b->token ? -1 : 1;
}

static uint8_t group_of(const struct lexicon *v, uint32_t token, const char *p)
{
	unsigned n_chars, tier = 0;
	enum lexicon_class class = classify(p, (uint32_t)(v->at[token + 1] - v->at[token]), &n_chars);
	if (class >= LEXICON_REST)
		return (uint8_t)(N_LEXICON_SLICES * N_TIERS + (class - LEXICON_REST));
	while (n_chars > tiers[tier])
		tier++;
	return (uint8_t)(class * N_TIERS + tier);
}

static void set_bit(uint32_t *bits, uint32_t i)
{
	bits[i >> 5] |= (uint32_t)1 << (i & 31);
}

/* Append the trie of the sorted items[0..n) to the nodes. */
static void build_trie(struct lexicon *v, size_t *cap, const struct item *items, size_t n)
{
	/* the current node of each depth */
	uint32_t *open = xcalloc(LEXICON_TOKEN_BYTES_MAX + 1, sizeof *open);
	uint32_t depth = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t common = 0;
		if (i && items[i].n == items[i - 1].n &&
		    memcmp(items[i].p, items[i - 1].p, items[i].n) == 0) {
			v->same[items[i - 1].token] = items[i].token;
			continue;
		}
		while (i && common < items[i].n && common < items[i - 1].n &&
		       items[i].p[common] == items[i - 1].p[common])
			common++;
		for (; depth > common; depth--)
			v->nodes[open[depth]].next = v->n_nodes;
		while (depth < items[i].n) {
			array_grow(v->nodes, *cap, v->n_nodes + 1);
			v->nodes[v->n_nodes] = (struct lexicon_node){.token = LEXICON_NO_TOKEN,
								     .depth = (uint16_t)(depth + 1),
								     .byte = (uint8_t)items[i].p[depth]};
			open[++depth] = v->n_nodes++;
		}
		v->nodes[open[depth]].token = items[i].token;
	}
	for (; depth > 0; depth--)
		v->nodes[open[depth]].next = v->n_nodes;
	free(open);
}

static void build_groups(struct lexicon *v, struct item *items, size_t n)
{
	size_t cap = 0;
	if (n)
		qsort(items, n, sizeof *items, by_group_and_bytes);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i; k < n && items[k].group == items[i].group;)
			k++;
		struct lexicon_group *g = &v->groups[v->n_groups++];
		unsigned id = items[i].group;
		bool slice = id < N_LEXICON_SLICES * N_TIERS;
		g->class = slice ? (enum lexicon_class)(id / N_TIERS)
				 : (enum lexicon_class)(LEXICON_REST + (id - N_LEXICON_SLICES * N_TIERS));
		g->max_chars = slice ? tiers[id % N_TIERS] : 0;
		g->begin = v->n_nodes;
		build_trie(v, &cap, items + i, k - i);
		g->end = v->n_nodes;
		if (!slice)
			continue;
		g->bits = xcalloc(v->n_words, sizeof *g->bits);
		v->memory += v->n_words * sizeof *g->bits;
		if (v->n_groups > 1 && g[-1].class == g->class)
			memcpy(g->bits, g[-1].bits, v->n_words * sizeof *g->bits);
		for (size_t t = i; t < k; t++)
			set_bit(g->bits, items[t].token);
	}
	v->memory += cap * sizeof *v->nodes;
}

/* Return true if the bytes are neither text nor one special token. */
static bool is_forged(const char *p, uint32_t n)
{
	if (n > 2 && (unsigned char)p[0] == LEXICON_SPECIAL_BEGIN &&
	    (unsigned char)p[n - 1] == LEXICON_SPECIAL_END)
		p++, n -= 2;
	for (uint32_t i = 0; i < n; i++)
		if ((unsigned char)p[i] >= LEXICON_NO_TEXT)
			return true;
	return false;
}

int lexicon_new(const struct lexicon_token *tokens, size_t n, struct lexicon **out, struct why *why)
{
	size_t bytes = 0, n_items = 0;
	if (n > LEXICON_TOKENS_MAX)
		return err_why(why, -E2BIG, "a vocabulary of %zu tokens, at most %d", n, LEXICON_TOKENS_MAX);
	for (size_t i = 0; i < n; i++) {
		if (tokens[i].n > LEXICON_TOKEN_BYTES_MAX)
			return err_why(why, -E2BIG, "token %zu has %" PRIu32 " bytes, at most %d", i,
				       tokens[i].n, LEXICON_TOKEN_BYTES_MAX);
		bytes += tokens[i].n;
	}
	struct lexicon *v = xcalloc(1, sizeof *v);
	v->n_tokens = (uint32_t)n;
	v->n_words = (uint32_t)((n + 31) / 32);
	v->bytes = xmalloc(bytes + 1);
	v->at = xcalloc(n + 1, sizeof *v->at);
	v->kinds = xcalloc(n + 1, 1);
	v->same = xcalloc(n + 1, sizeof *v->same);
	memset(v->same, 0xff, n * sizeof *v->same);
	v->ends = xcalloc(n + 1, sizeof *v->ends);
	struct item *items = xcalloc(n + 1, sizeof *items);
	for (uint32_t i = 0; i < n; i++) {
		char *p = v->bytes + v->at[i];
		if (tokens[i].n)
			memcpy(p, tokens[i].bytes, tokens[i].n);
		v->at[i + 1] = v->at[i] + tokens[i].n;
		v->kinds[i] = (uint8_t)tokens[i].kind;
		if (tokens[i].kind == LEXICON_END)
			v->ends[v->n_ends++] = i;
		if (tokens[i].kind == LEXICON_TEXT && is_forged(tokens[i].bytes, tokens[i].n))
			v->kinds[i] = LEXICON_CONTROL;
		if (v->kinds[i] != LEXICON_TEXT || !tokens[i].n)
			continue;
		if (tokens[i].n > v->max_bytes)
			v->max_bytes = tokens[i].n;
		items[n_items++] = (struct item){p, tokens[i].n, i, group_of(v, i, p)};
	}
	v->memory = sizeof *v + bytes + n * (sizeof *v->at + 1 + sizeof *v->same + sizeof *v->ends);
	build_groups(v, items, n_items);
	free(items);
	*out = v;
	return 0;
}

void lexicon_free(struct lexicon *v)
{
	if (!v)
		return;
	for (int i = 0; i < v->n_groups; i++)
		free(v->groups[i].bits);
	free(v->nodes);
	free(v->same);
	free(v->ends);
	free(v->bytes);
	free(v->at);
	free(v->kinds);
	free(v);
}
