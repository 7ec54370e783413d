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
	int32_t next; /* node in the same bucket; of a free node: the next free one */
	struct {
		int32_t at[STORES];  /* block of each store that holds it */
		uint32_t n_retained; /* preempted sequences that will continue from the device's block */
	} kind[];                    /* [kinds.n] */
};

struct contents {
	uint32_t n;    /* nodes */
	uint32_t size; /* tokens of a block */
	struct kinds kinds;
	bool cache;
	uint64_t seed;
	uint32_t era;     /* number of contents_forget() calls */
	uint32_t mask;    /* buckets - 1 */
	int32_t *buckets; /* first node of each bucket */
	int32_t free;     /* first free node */
	char *nodes;      /* [n] of node_bytes: struct node with its kinds */
	size_t node_bytes;
	uint32_t *tokens;         /* [n][size] */
	int32_t *node_of[STORES]; /* [n_blocks] node that a block holds */
	uint8_t *kind_of[STORES]; /* [n_blocks] kind of a block with a node */
};

static struct node *node_at(const struct contents *c, int32_t i)
{
	return (struct node *)(void *)(c->nodes + (size_t)i * c->node_bytes);
}

/* Return n numbers, all CONTENTS_NONE. */
static int32_t *new_list(size_t n)
{
	int32_t *list = xrealloc(NULL, n + 1, sizeof *list);
	memset(list, 0xff, n * sizeof *list);
	return list;
}

struct contents *contents_new(const uint32_t n_blocks[STORES], uint32_t block_size, const struct kinds *kinds,
			      bool cache, uint64_t seed)
{
	struct contents *c = xcalloc(1, sizeof *c);
	uint32_t n_buckets = 16;
	bool windows_only = true;
	c->size = block_size;
	c->kinds = *kinds;
	c->cache = cache;
	c->seed = seed;
	for (uint32_t k = 0; k < kinds->n; k++)
		windows_only &= kinds->window[k] > 0;
	for (int s = 0; s < STORES; s++) {
		c->n += windows_only ? 4 * n_blocks[s] : n_blocks[s] + n_blocks[s] / 8;
		c->node_of[s] = new_list(n_blocks[s]);
		c->kind_of[s] = xcalloc((size_t)n_blocks[s] + 1, sizeof *c->kind_of[s]);
	}
	while (n_buckets < c->n && n_buckets < 1u << 30)
		n_buckets *= 2;
	c->mask = n_buckets - 1;
	c->buckets = new_list(n_buckets);
	c->node_bytes = sizeof(struct node) + kinds->n * sizeof *node_at(c, 0)->kind;
	c->node_bytes = (c->node_bytes + 7) / 8 * 8;
	c->nodes = xcalloc((size_t)c->n + 1, c->node_bytes);
	c->tokens = xrealloc(NULL, (size_t)c->n * c->size + 1, sizeof *c->tokens);
	c->free = CONTENTS_NONE;
	for (uint32_t i = c->n; i-- > 0; c->free = (int32_t)i)
		node_at(c, (int32_t)i)->next = c->free;
	return c;
}

void contents_free(struct contents *c)
{
	if (!c)
		return;
	for (int s = 0; s < STORES; s++) {
		free(c->node_of[s]);
		free(c->kind_of[s]);
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
	for (; i != CONTENTS_NONE; i = node_at(c, i)->next) {
		const struct node *n = node_at(c, i);
		const bool first = parent == CONTENTS_NONE;
		if (n->parent == parent && (!first || n->era == c->era) &&
		    (!first || memcmp(&n->root, root, sizeof *root) == 0) &&
		    memcmp(c->tokens + (size_t)i * c->size, tokens, c->size * sizeof *tokens) == 0)
			break;
	}
	return i;
}

/* Return the first block of a prefix of n blocks that a kind reads after it. */
static uint32_t first_read(const struct contents *c, uint32_t kind, uint32_t n)
{
	return kinds_first(&c->kinds, kind, n * c->size) / c->size;
}

struct contents_found contents_match(const struct contents *c, const struct contents_root *root,
				     const uint32_t *tokens, uint32_t max, bool host, uint32_t *ids)
{
	const uint32_t n_kinds = c->kinds.n;
	struct contents_found f = {.node = CONTENTS_NONE};
	uint32_t run[KINDS_MAX] = {0}; /* neighbouring blocks up to this one that have copies */
	int32_t at = CONTENTS_NONE;
	for (bool whole = true; f.n_seen < max;) {
		at = contents_find(c, root, at, tokens + (size_t)f.n_seen * c->size);
		if (at == CONTENTS_NONE)
			break;
		bool reads = true;
		for (uint32_t k = 0; k < n_kinds; k++) {
			const int32_t *copies = node_at(c, at)->kind[k].at;
			uint32_t id = (uint32_t)copies[STORE_DEVICE];
			if (id == (uint32_t)CONTENTS_NONE && host && copies[STORE_HOST] != CONTENTS_NONE)
				id = (uint32_t)copies[STORE_HOST] | CONTENTS_HOST;
			run[k] = id == (uint32_t)CONTENTS_NONE ? 0 : run[k] + 1;
			whole &= run[k] || c->kinds.window[k];
			reads &= f.n_seen + 1 - first_read(c, k, f.n_seen + 1) <= run[k];
			if (ids)
				ids[(size_t)f.n_seen * n_kinds + k] = id;
		}
		if (!whole)
			break;
		f.n_seen++;
		if (reads) {
			f.n = f.n_seen;
			f.node = at;
		}
	}
	for (uint32_t k = 0; ids && k < n_kinds; k++)
		for (uint32_t i = 0; i < f.n; i++) {
			uint32_t *id = &ids[(size_t)i * n_kinds + k];
			if (i < first_read(c, k, f.n))
				*id = (uint32_t)CONTENTS_NONE;
			f.n_host += *id != (uint32_t)CONTENTS_NONE && *id & CONTENTS_HOST;
		}
	return f;
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
		struct node *n = node_at(c, i);
		const uint32_t bucket = bucket_of(c, root, parent, tokens);
		c->free = n->next;
		*n = (struct node){.root = *root, .parent = parent, .refs = 1, .bucket = bucket};
		n->era = c->era && parent != CONTENTS_NONE ? node_at(c, parent)->era : c->era;
		for (uint32_t k = 0; k < c->kinds.n; k++) {
			memset(n->kind[k].at, 0xff, sizeof n->kind[k].at); /* CONTENTS_NONE */
			n->kind[k].n_retained = 0;
		}
		n->next = c->buckets[bucket];
		c->buckets[bucket] = i;
		memcpy(c->tokens + (size_t)i * c->size, tokens, c->size * sizeof *tokens);
	}
	return i;
}

void contents_hold(struct contents *c, int32_t node)
{
	if (node != CONTENTS_NONE)
		node_at(c, node)->refs++;
}

void contents_release(struct contents *c, int32_t node)
{
	/* A node that goes gives up its hold on its parent. */
	while (node != CONTENTS_NONE && --node_at(c, node)->refs == 0) {
		struct node *n = node_at(c, node);
		int32_t *at = &c->buckets[n->bucket];
		while (*at != node)
			at = &node_at(c, *at)->next;
		*at = n->next;
		n->next = c->free;
		c->free = node;
		node = n->parent;
	}
}

int32_t contents_at(const struct contents *c, int32_t node, uint32_t kind, enum contents_store store)
{
	return node_at(c, node)->kind[kind].at[store];
}

int32_t contents_node(const struct contents *c, enum contents_store store, uint32_t id)
{
	return c->node_of[store][id];
}

uint32_t contents_kind(const struct contents *c, enum contents_store store, uint32_t id)
{
	return c->kind_of[store][id];
}

void contents_put(struct contents *c, int32_t node, uint32_t kind, enum contents_store store, uint32_t id)
{
	int32_t *at = &node_at(c, node)->kind[kind].at[store];
	assert(*at == CONTENTS_NONE && c->node_of[store][id] == CONTENTS_NONE);
	*at = (int32_t)id;
	c->node_of[store][id] = node;
	c->kind_of[store][id] = (uint8_t)kind;
	contents_hold(c, node);
}

void contents_lost(struct contents *c, enum contents_store store, uint32_t id)
{
	const int32_t node = c->node_of[store][id];
	if (node == CONTENTS_NONE)
		return;
	node_at(c, node)->kind[c->kind_of[store][id]].at[store] = CONTENTS_NONE;
	c->node_of[store][id] = CONTENTS_NONE;
	contents_release(c, node);
}

uint32_t contents_retain(struct contents *c, int32_t node, uint32_t kind, int change)
{
	return node_at(c, node)->kind[kind].n_retained += (uint32_t)change;
}

bool contents_retained(const struct contents *c, enum contents_store store, uint32_t id)
{
	const int32_t node = c->node_of[store][id];
	return store == STORE_DEVICE && node != CONTENTS_NONE &&
	       node_at(c, node)->kind[c->kind_of[store][id]].n_retained;
}

int32_t contents_parent(const struct contents *c, int32_t node)
{
	return node_at(c, node)->parent;
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
	return node != CONTENTS_NONE && (contents_retained(c, store, id) ||
					 (c->cache && node_at(c, node)->era == c->era && is_whole(c, node)));
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
	for (uint32_t i = 0; i < c->n; i++) {
		const struct node *n = node_at(c, (int32_t)i);
		if (n->refs && n->parent != CONTENTS_NONE)
			refs[n->parent]++;
		for (uint32_t k = 0; n->refs && k < STORES * c->kinds.n; k++)
			refs[i] += n->kind[k / STORES].at[k % STORES] != CONTENTS_NONE;
	}
	for (uint32_t i = 0; i < c->n; i++) {
		const uint32_t have = node_at(c, (int32_t)i)->refs;
		if (refs[i] != have) {
			fprintf(stderr, "contents: node %u: %u references, %u expected\n", i, have, refs[i]);
			abort();
		}
	}
	free(refs);
}
