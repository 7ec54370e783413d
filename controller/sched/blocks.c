#include "controller/sched/blocks.h"

#include "base/alloc.h"

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
	struct contents *contents;
	enum contents_store store;
	uint32_t n_cached, n_retained; /* n_cached includes n_retained */
	uint64_t n_lost;               /* retained blocks evicted so far */
	/* [n + 2] two rings of the cached blocks, least recently used first: heads [n], and [n + 1] of the
	 * retained blocks. */
	struct {
		uint32_t prev, next;
	} * lru;
	/* [n] how often a block was counted in the survey of that number. */
	struct {
		uint32_t number, n;
	} * counted;
	uint32_t n_surveys;
};

static void lru_add(struct blocks *b, uint32_t id)
{
	const bool retained = contents_retained(b->contents, b->store, id);
	const uint32_t head = b->n + retained;
	b->lru[id].prev = b->lru[head].prev;
	b->lru[id].next = head;
	b->lru[b->lru[id].prev].next = id;
	b->lru[head].prev = id;
	b->n_cached++;
	b->n_retained += retained;
}

static void lru_remove(struct blocks *b, uint32_t id)
{
	b->lru[b->lru[id].prev].next = b->lru[id].next;
	b->lru[b->lru[id].next].prev = b->lru[id].prev;
	b->n_cached--;
	b->n_retained -= contents_retained(b->contents, b->store, id);
}

static void set_free(struct blocks *b, uint32_t id)
{
	contents_lost(b->contents, b->store, id);
	b->free[b->n_free++] = id;
}

/* Make the least recently used block that is not retained free; if all cached blocks are, the least recently
 * used one. */
static void evict(struct blocks *b)
{
	const bool retained = b->n_cached == b->n_retained;
	const uint32_t id = b->lru[b->n + retained].next;
	b->n_lost += retained;
	lru_remove(b, id);
	set_free(b, id);
}

/* A block without references goes to the cache, or becomes free. */
static void set_unused(struct blocks *b, uint32_t id)
{
	if (contents_kept(b->contents, b->store, id))
		lru_add(b, id);
	else
		set_free(b, id);
}

/* Change how many preempted sequences retain a node.  A cached block of the node changes its ring. */
static void retain(struct blocks *b, int32_t node, int change)
{
	const int32_t id = contents_at(b->contents, node, b->store);
	const bool cached = id != CONTENTS_NONE && b->refs[id] == 0;
	if (cached)
		lru_remove(b, (uint32_t)id);
	contents_retain(b->contents, node, b->store, change);
	if (cached)
		set_unused(b, (uint32_t)id);
}

void blocks_retain(struct blocks *b, int32_t node)
{
	retain(b, node, 1);
}

void blocks_unretain(struct blocks *b, int32_t node)
{
	retain(b, node, -1);
}

uint32_t blocks_take(struct blocks *b)
{
	assert(b->n_free + b->n_cached > 0);
	if (b->n_free == 0)
		evict(b);
	const uint32_t id = b->free[--b->n_free];
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

void blocks_unref(struct blocks *b, uint32_t id, struct blocks_later *later)
{
	assert(id < b->n && b->refs[id] > 0);
	if (later) {
		array_grow(later->ids, later->cap, later->n + 1);
		later->ids[later->n++] = id;
		return;
	}
	if (--b->refs[id] == 0)
		set_unused(b, id);
}

struct blocks *blocks_new(uint32_t n_blocks, uint32_t block_size, struct contents *c,
			  enum contents_store store)
{
	struct blocks *b = xcalloc(1, sizeof *b);
	b->n = b->n_free = n_blocks;
	b->size = block_size;
	b->contents = c;
	b->store = store;
	b->free = xmalloc(n_blocks * sizeof *b->free);
	b->refs = xcalloc(n_blocks, sizeof *b->refs);
	b->lru = xmalloc(((size_t)n_blocks + 2) * sizeof *b->lru);
	b->counted = xcalloc(n_blocks, sizeof *b->counted);
	for (uint32_t i = 0; i < n_blocks; i++)
		b->free[i] = n_blocks - 1 - i;
	for (uint32_t head = n_blocks; head < n_blocks + 2; head++)
		b->lru[head].prev = b->lru[head].next = head;
	return b;
}

void blocks_free(struct blocks *b)
{
	if (!b)
		return;
	free(b->free);
	free(b->refs);
	free(b->lru);
	free(b->counted);
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

uint32_t blocks_n_retained(const struct blocks *b)
{
	return b->n_retained;
}

uint64_t blocks_n_lost(const struct blocks *b)
{
	return b->n_lost;
}

uint32_t blocks_n_refs(const struct blocks *b, uint32_t id)
{
	return b->refs[id];
}

uint32_t blocks_for(const struct blocks *b, uint32_t n_tokens)
{
	return n_tokens / b->size + (n_tokens % b->size != 0);
}

static bool has_node(const struct blocks *b, uint32_t id)
{
	return contents_node(b->contents, b->store, id) != CONTENTS_NONE;
}

uint32_t blocks_cells(const struct blocks *b, struct blocks_cell *cells, uint32_t n_cells)
{
	uint32_t n = n_cells < b->n ? n_cells : b->n, id = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t end = (uint32_t)((uint64_t)b->n * (i + 1) / n);
		struct blocks_cell c = {.n = end - id};
		for (; id < end; id++) {
			c.held += b->refs[id] > 0;
			c.cached += b->refs[id] == 0 && has_node(b, id);
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

static void push(struct block_table *t, uint32_t id)
{
	array_grow(t->ids, t->cap, t->n + 1);
	t->ids[t->n++] = id;
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
		blocks_unref(b, old, later);
	}
	while (t->n < want) {
		push(t, blocks_take(b));
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
		push(to, from->ids[i]);
	}
}

void block_table_reserve(struct block_table *t, uint32_t n)
{
	if (n <= t->cap)
		return;
	t->ids = xrealloc(t->ids, n, sizeof *t->ids);
	t->cap = n;
}

void blocks_forget(struct blocks *b)
{
	while (b->n_cached > b->n_retained)
		evict(b);
}

void blocks_survey(struct blocks *b)
{
	b->n_surveys++;
}

uint32_t blocks_count(struct blocks *b, uint32_t id)
{
	if (b->counted[id].number != b->n_surveys)
		b->counted[id].n = 0;
	b->counted[id].number = b->n_surveys;
	return ++b->counted[id].n;
}

void blocks_drop(struct blocks *b, struct block_table *t, struct blocks_later *later)
{
	t->n_writable = 0;
	/* Backwards, so that the end of a cached chain is evicted before its beginning, which stays
	 * usable. */
	while (t->n > 0)
		blocks_unref(b, t->ids[--t->n], later);
}

void blocks_release(struct blocks *b, struct blocks_later *later)
{
	for (uint32_t i = 0; i < later->n; i++)
		blocks_unref(b, later->ids[i], NULL);
	later->n = 0;
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
	uint32_t *refs = xcalloc(b->n + 1, sizeof *refs), n_held = 0;
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
		const int32_t node = contents_node(b->contents, b->store, id);
		if (node != CONTENTS_NONE && contents_at(b->contents, node, b->store) != (int32_t)id)
			broken("the node has another copy", id, (uint32_t)node, id);
	}
	for (uint32_t i = 0; i < b->n_free; i++)
		if (b->refs[b->free[i]] != 0 || has_node(b, b->free[i]))
			broken("free, but held or with a content", b->free[i], b->refs[b->free[i]], 0);
	uint32_t n_cached = 0, n_retained = 0;
	for (uint32_t head = b->n; head < b->n + 2; head++)
		for (uint32_t id = b->lru[head].next; id != head; id = b->lru[id].next, n_cached++) {
			const bool retained = contents_retained(b->contents, b->store, id);
			n_retained += retained;
			if (b->refs[id] != 0 || !has_node(b, id) || retained != (head == b->n + 1))
				broken("cached, but held, without content or in the other ring", id,
				       b->refs[id], 0);
		}
	if (n_retained != b->n_retained)
		broken("retained", b->n, b->n_retained, n_retained);
	if (n_cached != b->n_cached || n_held + n_cached + b->n_free != b->n)
		broken("free + cached + held != total", b->n, n_held + n_cached + b->n_free, b->n);
	free(refs);
}
