#include "controller/sched/contents.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct node {
	struct contents_root root;
	int32_t parent;
	uint32_t refs; /* copies, children and holds; 0: the node does not exist */
	uint32_t era;  /* contents.era when its first block was computed */
	uint32_t bucket;
	int32_t next;                /* node in the same bucket; of a free node: the next free one */
	int32_t at[STORES];          /* block of each store that holds it */
	uint32_t n_retained[STORES]; /* preempted sequences that will continue from that block */
};

struct contents {
	uint32_t n;    /* nodes */
	uint32_t size; /* tokens of a block */
	bool cache;
	uint64_t seed;
	uint32_t era;             /* number of contents_forget() calls */
	uint32_t mask;            /* buckets - 1 */
	int32_t *buckets;         /* first node of each bucket */
	int32_t free;             /* first free node */
	struct node *nodes;       /* [n] */
	uint32_t *tokens;         /* [n][size] */
	int32_t *node_of[STORES]; /* [n_blocks] node that a block holds */
};

/* Return n numbers, all CONTENTS_NONE. */
static int32_t *new_list(size_t n)
{
	int32_t *list = xrealloc(NULL, n + 1, sizeof *list);
	memset(list, 0xff, n * sizeof *list);
	return list;
}

struct contents *contents_new(const uint32_t n_blocks[STORES], uint32_t block_size, bool cache, uint64_t seed)
{
	struct contents *c = xcalloc(1, sizeof *c);
	uint32_t n_buckets = 16;
	c->size = block_size;
	c->cache = cache;
	c->seed = seed;
	for (int s = 0; s < STORES; s++)
		c->n += n_blocks[s] + n_blocks[s] / 8;
	for (int s = 0; s < STORES; s++)
		c->node_of[s] = new_list(n_blocks[s]);
	while (n_buckets < c->n && n_buckets < 1u << 30)
		n_buckets *= 2;
	c->mask = n_buckets - 1;
	c->buckets = new_list(n_buckets);
	c->nodes = xcalloc(c->n + 1, sizeof *c->nodes);
	c->tokens = xrealloc(NULL, (size_t)c->n * c->size + 1, sizeof *c->tokens);
	c->free = CONTENTS_NONE;
	for (uint32_t i = c->n; i-- > 0; c->free = (int32_t)i)
		c->nodes[i].next = c->free;
	return c;
}

void contents_free(struct contents *c)
{
	if (!c)
		return;
	for (int s = 0; s < STORES; s++) {
		free(c->node_of[s]);
	}
	free(c->buckets);
	free(c->nodes);
	free(c->tokens);
	free(c);
}

static uint32_t bucket_of(const struct contents *c, const struct contents_root *root, int32_t parent,
			  const uint32_t *tokens)
{
	const uint64_t before = parent == CONTENTS_NONE ? XXH3_64bits_withSeed(root, sizeof *root, c->seed)
							: c->seed ^ ((uint64_t)parent + 1);
	return (uint32_t)XXH3_64bits_withSeed(tokens, c->size * sizeof *tokens, before) & c->mask;
}

int32_t contents_find(const struct contents *c, const struct contents_root *root, int32_t parent,
		      const uint32_t *tokens)
{
	int32_t i = c->buckets[bucket_of(c, root, parent, tokens)];
	for (; i != CONTENTS_NONE; i = c->nodes[i].next) {
		const struct node *n = &c->nodes[i];
		const bool first = parent == CONTENTS_NONE;
		if (n->parent == parent && (!first || n->era == c->era) &&
		    (!first || memcmp(&n->root, root, sizeof *root) == 0) &&
		    memcmp(c->tokens + (size_t)i * c->size, tokens, c->size * sizeof *tokens) == 0)
			break;
	}
	return i;
}

uint32_t contents_match(const struct contents *c, const struct contents_root *root, const uint32_t *tokens,
			uint32_t max, enum contents_store store, uint32_t *ids, int32_t *last)
{
	int32_t at = CONTENTS_NONE;
	uint32_t n = 0;
	for (; n < max; n++) {
		const int32_t node = contents_find(c, root, at, tokens + (size_t)n * c->size);
		if (node == CONTENTS_NONE || c->nodes[node].at[store] == CONTENTS_NONE)
			break;
		if (ids)
			ids[n] = (uint32_t)c->nodes[node].at[store];
		at = node;
	}
	if (last)
		*last = at;
	return n;
}

int32_t contents_add(struct contents *c, const struct contents_root *root, int32_t parent,
		     const uint32_t *tokens)
{
	int32_t i = contents_find(c, root, parent, tokens);
	if (i != CONTENTS_NONE) {
		contents_hold(c, i);
		contents_release(c, parent);
	} else if ((i = c->free) != CONTENTS_NONE) {
		/* The new node takes the hold on its parent, which is not touched: that would be a cache
		 * miss. */
		struct node *n = &c->nodes[i];
		const uint32_t bucket = bucket_of(c, root, parent, tokens);
		c->free = n->next;
		*n = (struct node){.root = *root, .parent = parent, .refs = 1, .bucket = bucket};
		n->era = c->era && parent != CONTENTS_NONE ? c->nodes[parent].era : c->era;
		memset(n->at, 0xff, sizeof n->at); /* CONTENTS_NONE */
		n->next = c->buckets[bucket];
		c->buckets[bucket] = i;
		memcpy(c->tokens + (size_t)i * c->size, tokens, c->size * sizeof *tokens);
	}
	return i;
}

void contents_hold(struct contents *c, int32_t node)
{
	if (node != CONTENTS_NONE)
		c->nodes[node].refs++;
}

void contents_release(struct contents *c, int32_t node)
{
	/* A node that goes gives up its hold on its parent. */
	while (node != CONTENTS_NONE && --c->nodes[node].refs == 0) {
		struct node *n = &c->nodes[node];
		int32_t *at = &c->buckets[n->bucket];
		while (*at != node)
			at = &c->nodes[*at].next;
		*at = n->next;
		n->next = c->free;
		c->free = node;
		node = n->parent;
	}
}

int32_t contents_at(const struct contents *c, int32_t node, enum contents_store store)
{
	return c->nodes[node].at[store];
}

int32_t contents_node(const struct contents *c, enum contents_store store, uint32_t id)
{
	return c->node_of[store][id];
}

void contents_put(struct contents *c, int32_t node, enum contents_store store, uint32_t id)
{
	assert(c->nodes[node].at[store] == CONTENTS_NONE && c->node_of[store][id] == CONTENTS_NONE);
	c->nodes[node].at[store] = (int32_t)id;
	c->node_of[store][id] = node;
	contents_hold(c, node);
}

void contents_lost(struct contents *c, enum contents_store store, uint32_t id)
{
	const int32_t node = c->node_of[store][id];
	if (node == CONTENTS_NONE)
		return;
	c->nodes[node].at[store] = CONTENTS_NONE;
	c->node_of[store][id] = CONTENTS_NONE;
	contents_release(c, node);
}

uint32_t contents_retain(struct contents *c, int32_t node, enum contents_store store, int change)
{
	return c->nodes[node].n_retained[store] += (uint32_t)change;
}

bool contents_retained(const struct contents *c, enum contents_store store, uint32_t id)
{
	const int32_t node = c->node_of[store][id];
	return node != CONTENTS_NONE && c->nodes[node].n_retained[store];
}

int32_t contents_parent(const struct contents *c, int32_t node)
{
	return c->nodes[node].parent;
}

static bool is_whole(const struct contents *c, int32_t node)
{
	return c->tokens[(size_t)node * c->size + c->size - 1] != CONTENTS_NO_TOKEN;
}

int32_t contents_whole(const struct contents *c, enum contents_store store, uint32_t id)
{
	const int32_t node = c->node_of[store][id];
	return node != CONTENTS_NONE && is_whole(c, node) ? node : CONTENTS_NONE;
}

bool contents_kept(const struct contents *c, enum contents_store store, uint32_t id)
{
	const int32_t node = c->node_of[store][id];
	return node != CONTENTS_NONE && (c->nodes[node].n_retained[store] ||
					 (c->cache && c->nodes[node].era == c->era && is_whole(c, node)));
}

void contents_forget(struct contents *c)
{
	c->era++;
}

void contents_check(const struct contents *c, const int32_t *holds, size_t n_holds)
{
	uint32_t *refs = xcalloc(c->n + 1, sizeof *refs);
	for (size_t i = 0; i < n_holds; i++)
		if (holds[i] != CONTENTS_NONE)
			refs[holds[i]]++;
	for (const struct node *n = c->nodes; n < c->nodes + c->n; n++) {
		if (n->refs && n->parent != CONTENTS_NONE)
			refs[n->parent]++;
		for (int s = 0; n->refs && s < STORES; s++)
			refs[n - c->nodes] += n->at[s] != CONTENTS_NONE;
	}
	for (uint32_t i = 0; i < c->n; i++)
		if (refs[i] != c->nodes[i].refs) {
			fprintf(stderr, "contents: node %u: %u references, %u expected\n", i,
				c->nodes[i].refs, refs[i]);
			abort();
		}
	free(refs);
}
