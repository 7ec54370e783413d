#include "controller/sched/blocks.h"

#include "base/alloc.h"
#include "controller/sched/prefix.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct blocks {
	uint32_t n;    /* blocks in the pool */
	uint32_t size; /* tokens of a block */
	uint32_t n_free;
	uint32_t *free; /* [n_free] stack: the block freed last is taken first, as its cache lines are warm */
	uint32_t *refs; /* [n] references */
	struct prefix *prefix; /* NULL: no cache */
	uint32_t n_cached;
	/* [n + 1] ring of the cached blocks, least recently used first; [n] is the head. */
	struct {
		uint32_t prev, next;
	} * lru;
};

static void push(uint32_t **ids, uint32_t *n, uint32_t *cap, uint32_t id)
{
	array_grow(*ids, *cap, *n + 1);
	(*ids)[(*n)++] = id;
}

static void lru_add(struct blocks *b, uint32_t id)
{
	b->lru[id].prev = b->lru[b->n].prev;
	b->lru[id].next = b->n;
	b->lru[b->lru[id].prev].next = id;
	b->lru[b->n].prev = id;
	b->n_cached++;
}

static void lru_remove(struct blocks *b, uint32_t id)
{
	b->lru[b->lru[id].prev].next = b->lru[id].next;
	b->lru[b->lru[id].next].prev = b->lru[id].prev;
	b->n_cached--;
}

uint32_t blocks_take(struct blocks *b)
{
	uint32_t id;
	assert(b->n_free + b->n_cached > 0);
	if (b->n_free) {
		id = b->free[--b->n_free];
	} else {
		id = b->lru[b->n].next;
		lru_remove(b, id);
		prefix_remove(b->prefix, id);
	}
	assert(b->refs[id] == 0);
	b->refs[id] = 1;
	return id;
}

void blocks_ref(struct blocks *b, uint32_t id)
{
	assert(id < b->n);
	if (b->refs[id]++ == 0)
		lru_remove(b, id); /* a block without references can only be a cached one */
}

static void unref(struct blocks *b, uint32_t id)
{
	assert(id < b->n && b->refs[id] > 0);
	if (--b->refs[id])
		return;
	if (b->prefix && prefix_has(b->prefix, id))
		lru_add(b, id);
	else
		b->free[b->n_free++] = id;
}

/* Make everything free. */
static void reset(struct blocks *b)
{
	memset(b->refs, 0, b->n * sizeof *b->refs);
	for (uint32_t i = 0; i < b->n; i++)
		b->free[i] = b->n - 1 - i;
	b->n_free = b->n;
	b->n_cached = 0;
	b->lru[b->n].prev = b->lru[b->n].next = b->n;
	if (b->prefix)
		prefix_reset(b->prefix);
}

struct blocks *blocks_new(uint32_t n_blocks, uint32_t block_size, bool cache, uint64_t seed)
{
	struct blocks *b = xcalloc(1, sizeof *b);
	b->n = n_blocks;
	b->size = block_size;
	b->free = xmalloc(n_blocks * sizeof *b->free);
	b->refs = xmalloc(n_blocks * sizeof *b->refs);
	b->lru = xmalloc((n_blocks + 1) * sizeof *b->lru);
	if (cache)
		b->prefix = prefix_new(n_blocks, block_size, seed);
	reset(b);
	return b;
}

void blocks_free(struct blocks *b)
{
	if (!b)
		return;
	prefix_free(b->prefix);
	free(b->free);
	free(b->refs);
	free(b->lru);
	free(b);
}

uint32_t blocks_total(const struct blocks *b)
{
	return b->n;
}

uint32_t blocks_n_free(const struct blocks *b)
{
	return b->n_free + b->n_cached;
}

uint32_t blocks_n_cached(const struct blocks *b)
{
	return b->n_cached;
}

uint32_t blocks_n_refs(const struct blocks *b, uint32_t id)
{
	return b->refs[id];
}

uint32_t blocks_for(const struct blocks *b, uint32_t n_tokens)
{
	return n_tokens / b->size + (n_tokens % b->size != 0);
}

uint32_t blocks_cells(const struct blocks *b, struct blocks_cell *cells, uint32_t n_cells)
{
	uint32_t n = n_cells < b->n ? n_cells : b->n, id = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t end = (uint32_t)((uint64_t)b->n * (i + 1) / n);
		struct blocks_cell c = {.n = end - id};
		for (; id < end; id++) {
			c.held += b->refs[id] > 0;
			c.cached += b->refs[id] == 0 && b->prefix && prefix_has(b->prefix, id);
		}
		cells[i] = c;
	}
	return n;
}

uint32_t blocks_missing(const struct blocks *b, const struct block_table *t, uint32_t n_tokens,
			uint32_t write_from)
{
	uint32_t want = blocks_for(b, n_tokens);
	uint32_t missing = want > t->n ? want - t->n : 0;
	for (uint32_t i = write_from / b->size; i < t->n && i < want; i++)
		missing += b->refs[t->ids[i]] > 1;
	return missing;
}

void blocks_grow(struct blocks *b, struct block_table *t, uint32_t n_tokens, uint32_t write_from,
		 const struct blocks_change *change, struct blocks_later *later)
{
	uint32_t want = blocks_for(b, n_tokens);
	for (uint32_t i = write_from / b->size; i < t->n && i < want; i++) {
		uint32_t old = t->ids[i];
		if (b->refs[old] == 1)
			continue;
		t->ids[i] = blocks_take(b);
		change->copy(change->user, old, t->ids[i]);
		change->entry(change->user, i, t->ids[i]);
		push(&later->ids, &later->n, &later->cap, old);
	}
	while (t->n < want) {
		blocks_push(t, blocks_take(b));
		change->entry(change->user, t->n - 1, t->ids[t->n - 1]);
	}
	t->n_writable = want * b->size;
}

void blocks_share(struct blocks *b, struct block_table *to, struct block_table *from, uint32_t n_blocks)
{
	assert(to->n == 0 && n_blocks <= from->n);
	from->n_writable = to->n_writable = 0;
	for (uint32_t i = 0; i < n_blocks; i++) {
		blocks_ref(b, from->ids[i]);
		blocks_push(to, from->ids[i]);
	}
}

void blocks_push(struct block_table *t, uint32_t id)
{
	push(&t->ids, &t->n, &t->cap, id);
}

void block_table_reserve(struct block_table *t, uint32_t n)
{
	if (n <= t->cap)
		return;
	t->ids = xrealloc(t->ids, n, sizeof *t->ids);
	t->cap = n;
}

uint64_t blocks_root(const struct blocks *b, uint64_t salt)
{
	return b->prefix ? prefix_root(b->prefix, salt) : 0;
}

uint32_t blocks_match(struct blocks *b, struct block_table *t, const uint32_t *tokens, uint32_t max,
		      uint64_t *chain)
{
	uint32_t n = 0;
	assert(t->n == 0);
	for (; b->prefix && n < max; n++) {
		int64_t id = prefix_find(b->prefix, *chain, tokens + (size_t)n * b->size);
		if (id == PREFIX_NONE)
			break;
		blocks_ref(b, (uint32_t)id);
		blocks_push(t, (uint32_t)id);
		*chain = prefix_number(b->prefix, (uint32_t)id);
	}
	return n;
}

uint32_t blocks_find(const struct blocks *b, const uint32_t *tokens, uint32_t max, uint64_t salt)
{
	uint64_t chain = blocks_root(b, salt);
	uint32_t n = 0;
	for (; b->prefix && n < max; n++) {
		int64_t id = prefix_find(b->prefix, chain, tokens + (size_t)n * b->size);
		if (id == PREFIX_NONE)
			break;
		chain = prefix_number(b->prefix, (uint32_t)id);
	}
	return n;
}

void blocks_publish(struct blocks *b, uint32_t id, const uint32_t *tokens, uint64_t *chain)
{
	if (!b->prefix)
		return;
	/* Two sequences may have computed the same tokens at the same time: only one of the blocks is
	 * indexed. */
	int64_t known = prefix_find(b->prefix, *chain, tokens);
	if (known != PREFIX_NONE) {
		*chain = prefix_number(b->prefix, (uint32_t)known);
		return;
	}
	/* The block may still be indexed under such a duplicate of its predecessor that is gone. */
	prefix_remove(b->prefix, id);
	*chain = prefix_insert(b->prefix, id, *chain, tokens);
}

void blocks_forget(struct blocks *b)
{
	if (!b->prefix)
		return;
	while (b->n_cached) {
		const uint32_t id = b->lru[b->n].next;
		lru_remove(b, id);
		b->free[b->n_free++] = id;
	}
	prefix_reset(b->prefix);
}

void blocks_drop(struct blocks *b, struct block_table *t, struct blocks_later *later)
{
	t->n_writable = 0;
	/* Backwards, so that the end of a cached chain is evicted before its beginning, which stays
	 * usable. */
	while (t->n > 0) {
		uint32_t id = t->ids[--t->n];
		if (later)
			push(&later->ids, &later->n, &later->cap, id);
		else
			unref(b, id);
	}
}

void blocks_release(struct blocks *b, struct blocks_later *later)
{
	for (uint32_t i = 0; i < later->n; i++)
		unref(b, later->ids[i]);
	later->n = 0;
}

void block_table_forget(struct block_table *t)
{
	t->n = t->n_writable = 0;
}

void block_table_fini(struct block_table *t)
{
	free(t->ids);
	*t = (struct block_table){0};
}

void blocks_later_fini(struct blocks_later *l)
{
	free(l->ids);
	*l = (struct blocks_later){0};
}

static void broken(const char *what, uint32_t block, uint32_t have, uint32_t want)
{
	fprintf(stderr, "blocks: %s: block %u, %u counted, %u expected\n", what, block, have, want);
	abort();
}

void blocks_check(const struct blocks *b, const struct block_table *const *tables, size_t n_tables,
		  const struct blocks_later *const *laters, size_t n_laters)
{
	uint32_t *refs = calloc(b->n ? b->n : 1, sizeof *refs);
	uint32_t n_held = 0;
	assert(refs);
	for (size_t i = 0; i < n_tables; i++)
		for (uint32_t k = 0; k < tables[i]->n; k++)
			refs[tables[i]->ids[k]]++;
	for (size_t i = 0; i < n_laters; i++)
		for (uint32_t k = 0; k < laters[i]->n; k++)
			refs[laters[i]->ids[k]]++;
	for (uint32_t id = 0; id < b->n; id++) {
		if (refs[id] != b->refs[id])
			broken("references", id, b->refs[id], refs[id]);
		n_held += refs[id] > 0;
	}
	for (uint32_t i = 0; i < b->n_free; i++)
		if (b->refs[b->free[i]] != 0)
			broken("free, but held", b->free[i], b->refs[b->free[i]], 0);
	uint32_t n_cached = 0;
	for (uint32_t id = b->lru[b->n].next; id != b->n; id = b->lru[id].next, n_cached++)
		if (b->refs[id] != 0 || !prefix_has(b->prefix, id))
			broken("cached, but held or unknown", id, b->refs[id], 0);
	if (n_cached != b->n_cached || n_held + n_cached + b->n_free != b->n)
		broken("free + cached + held != total", b->n, n_held + n_cached + b->n_free, b->n);
	free(refs);
}
