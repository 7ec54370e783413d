#include "controller/sched/prefix.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Contents are numbered from 1; roots have the top bit set, so that the two never collide. */
#define ROOT_BIT (1ull << 63)

struct entry {
	uint64_t number; /* number of the block's content; 0: the block is not indexed */
	uint64_t parent;
	uint32_t next; /* block in the same bucket, or NIL */
	uint32_t bucket;
};

#define NIL UINT32_MAX

struct prefix {
	uint32_t n, size; /* number of blocks, tokens per block */
	uint64_t seed;
	uint64_t last;         /* last number assigned */
	uint32_t mask;         /* buckets - 1 */
	uint32_t *buckets;     /* first block of each bucket */
	struct entry *entries; /* [n] */
	uint32_t *tokens;      /* [n][size] */
};

struct prefix *prefix_new(uint32_t n_blocks, uint32_t block_size, uint64_t seed)
{
	struct prefix *p = xcalloc(1, sizeof *p);
	uint32_t buckets = 16;
	while (buckets < n_blocks && buckets < 1u << 30)
		buckets *= 2;
	p->n = n_blocks;
	p->size = block_size;
	p->seed = seed;
	p->mask = buckets - 1;
	p->buckets = xmalloc(buckets * sizeof *p->buckets);
	p->entries = xcalloc(n_blocks, sizeof *p->entries);
	p->tokens = xrealloc(NULL, (size_t)n_blocks * block_size, sizeof *p->tokens);
	prefix_reset(p);
	return p;
}

void prefix_free(struct prefix *p)
{
	if (!p)
		return;
	free(p->buckets);
	free(p->entries);
	free(p->tokens);
	free(p);
}

void prefix_reset(struct prefix *p)
{
	for (uint32_t i = 0; i <= p->mask; i++)
		p->buckets[i] = NIL;
	memset(p->entries, 0, p->n * sizeof *p->entries);
}

uint64_t prefix_root(const struct prefix *p, uint64_t salt)
{
	return XXH3_64bits_withSeed(&salt, sizeof salt, p->seed) | ROOT_BIT;
}

static uint32_t bucket_of(const struct prefix *p, uint64_t parent, const uint32_t *tokens)
{
	return (uint32_t)XXH3_64bits_withSeed(tokens, p->size * sizeof *tokens, p->seed ^ parent) & p->mask;
}

int64_t prefix_find(const struct prefix *p, uint64_t parent, const uint32_t *tokens)
{
	uint32_t b = p->buckets[bucket_of(p, parent, tokens)];
	for (; b != NIL; b = p->entries[b].next)
		if (p->entries[b].parent == parent &&
		    memcmp(p->tokens + (size_t)b * p->size, tokens, p->size * sizeof *tokens) == 0)
			return b;
	return PREFIX_NONE;
}

uint64_t prefix_insert(struct prefix *p, uint32_t block, uint64_t parent, const uint32_t *tokens)
{
	struct entry *e = &p->entries[block];
	assert(e->number == 0);
	e->number = ++p->last;
	e->parent = parent;
	e->bucket = bucket_of(p, parent, tokens);
	e->next = p->buckets[e->bucket];
	p->buckets[e->bucket] = block;
	memcpy(p->tokens + (size_t)block * p->size, tokens, p->size * sizeof *tokens);
	return e->number;
}

void prefix_remove(struct prefix *p, uint32_t block)
{
	struct entry *e = &p->entries[block];
	if (e->number == 0)
		return;
	uint32_t *at = &p->buckets[e->bucket];
	while (*at != block)
		at = &p->entries[*at].next;
	*at = e->next;
	e->number = 0;
}

bool prefix_has(const struct prefix *p, uint32_t block)
{
	return p->entries[block].number != 0;
}

uint64_t prefix_number(const struct prefix *p, uint32_t block)
{
	return p->entries[block].number;
}
