#include "controller/sched/blocks.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In struct blocks_later: a block that is evicted before all others. */
#define USELESS (1u << 31)

struct blocks {
	uint32_t n;    /* blocks in the pool */
	uint32_t size; /* tokens of a block */
	struct kinds kinds;
	bool has_windows;
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

/* Put a block into its ring: at the end, or, if it is useless, at the beginning. */
static void lru_add(struct blocks *b, uint32_t id, bool useless)
{
	const bool retained = contents_retained(b->contents, b->store, id);
	const uint32_t head = b->n + retained, next = useless && !retained ? b->lru[head].next : head;
	b->lru[id].prev = b->lru[next].prev;
	b->lru[id].next = next;
	b->lru[b->lru[id].prev].next = id;
	b->lru[next].prev = id;
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
static void set_unused(struct blocks *b, uint32_t id, bool useless)
{
	if (contents_kept(b->contents, b->store, id))
		lru_add(b, id, useless);
	else
		set_free(b, id);
}

/* Change how many preempted sequences retain a node.  A cached block of the node changes its ring. */
static void retain(struct blocks *b, int32_t node, uint32_t kind, int change)
{
	const int32_t id = contents_at(b->contents, node, kind, b->store);
	const bool cached = id != CONTENTS_NONE && b->refs[id] == 0;
	if (cached)
		lru_remove(b, (uint32_t)id);
	contents_retain(b->contents, node, kind, change);
	if (cached)
		set_unused(b, (uint32_t)id, false);
}

void blocks_retain(struct blocks *b, int32_t node, uint32_t kind)
{
	retain(b, node, kind, 1);
}

void blocks_unretain(struct blocks *b, int32_t node, uint32_t kind)
{
	retain(b, node, kind, -1);
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

static void unref(struct blocks *b, uint32_t id, bool useless, struct blocks_later *later)
{
	assert(id < b->n && b->refs[id] > 0);
	if (later) {
		array_grow(later->ids, later->cap, later->n + 1);
		later->ids[later->n++] = id | (useless ? USELESS : 0);
		return;
	}
	if (--b->refs[id] == 0)
		set_unused(b, id, useless);
}

void blocks_unref(struct blocks *b, uint32_t id, struct blocks_later *later)
{
	unref(b, id, false, later);
}

struct blocks *blocks_new(uint32_t n_blocks, uint32_t block_size, const struct kinds *kinds,
			  struct contents *c, enum contents_store store)
{
	struct blocks *b = xcalloc(1, sizeof *b);
	b->n = b->n_free = n_blocks;
	b->size = block_size;
	b->kinds = *kinds;
	b->has_windows = kinds_have_windows(kinds);
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

uint32_t blocks_first(const struct blocks *b, uint32_t kind, uint32_t position)
{
	return kinds_first(&b->kinds, kind, position) / b->size;
}

uint32_t blocks_held(const struct blocks *b, const struct block_table *t)
{
	uint32_t n = t->n * b->kinds.n;
	for (uint32_t k = 0; t->n && b->has_windows && k < b->kinds.n; k++)
		n -= blocks_first(b, k, t->from);
	return n;
}

/* Return the block of a kind in a row, or NULL: the row is before the kind's window. */
static uint32_t *block_at(const struct blocks *b, const struct block_table *t, uint32_t row, uint32_t kind)
{
	uint32_t *id = &t->ids[(size_t)row * b->kinds.n + kind];
	return *id == (uint32_t)CONTENTS_NONE ? NULL : id;
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
	const uint32_t want = blocks_for(b, n_tokens), n_kinds = b->kinds.n;
	uint32_t missing = want > t->n ? (want - t->n) * n_kinds : 0;
	for (uint32_t i = write_from / b->size; i < t->n && i < want; i++)
		for (uint32_t k = 0; k < n_kinds; k++)
			missing += b->refs[*block_at(b, t, i, k)] > 1;
	return missing;
}

/* Make room for one more row, and return it. */
static uint32_t *push(const struct blocks *b, struct block_table *t)
{
	if ((t->n + 1) * b->kinds.n > t->cap)
		block_table_reserve(b, t, t->n ? 2 * t->n : 8);
	return t->ids + (size_t)t->n++ * b->kinds.n;
}

void blocks_grow(struct blocks *b, struct block_table *t, uint32_t n_tokens, uint32_t write_from,
		 const struct blocks_change *change, struct blocks_later *later)
{
	const uint32_t want = blocks_for(b, n_tokens), n_kinds = b->kinds.n;
	for (uint32_t i = write_from / b->size; i < t->n && i < want; i++)
		for (uint32_t k = 0; k < n_kinds; k++) {
			uint32_t *id = block_at(b, t, i, k), old = *id;
			if (b->refs[old] == 1)
				continue;
			*id = blocks_take(b);
			change->copy(change->user, old, *id);
			change->entry(change->user, k, i, *id);
			blocks_unref(b, old, later);
		}
	while (t->n < want) {
		uint32_t *row = push(b, t);
		for (uint32_t k = 0; k < n_kinds; k++) {
			row[k] = blocks_take(b);
			change->entry(change->user, k, t->n - 1, row[k]);
		}
	}
	t->n_writable = want * b->size;
}

void blocks_share(struct blocks *b, struct block_table *to, struct block_table *from, uint32_t n_rows)
{
	assert(to->n == 0 && n_rows <= from->n);
	from->n_writable = to->n_writable = 0;
	to->from = from->from;
	for (uint32_t i = 0; i < n_rows; i++) {
		uint32_t *row = push(b, to);
		memcpy(row, from->ids + (size_t)i * b->kinds.n, b->kinds.n * sizeof *row);
		for (uint32_t k = 0; k < b->kinds.n; k++)
			if (block_at(b, to, i, k))
				blocks_ref(b, row[k]);
	}
}

bool blocks_reach(const struct blocks *b, const struct block_table *t, uint32_t position)
{
	for (uint32_t k = 0; b->has_windows && k < b->kinds.n; k++)
		if (blocks_first(b, k, t->from) > blocks_first(b, k, position))
			return false;
	return true;
}

void blocks_trim(struct blocks *b, struct block_table *t, uint32_t position, const uint32_t *keep,
		 uint32_t n_keep, struct blocks_later *later)
{
	if (!b->has_windows || position <= t->from)
		return;
	for (uint32_t k = 0; k < b->kinds.n; k++) {
		const uint32_t end = blocks_first(b, k, position);
		assert(end <= t->n);
		for (uint32_t i = blocks_first(b, k, t->from); i < end; i++) {
			bool useless = true;
			for (uint32_t j = 0; j < n_keep; j++)
				useless &= i < blocks_first(b, k, keep[j]) || i * b->size >= keep[j];
			uint32_t *id = block_at(b, t, i, k);
			unref(b, *id, useless, later);
			*id = (uint32_t)CONTENTS_NONE;
		}
	}
	t->from = position;
}

void block_table_reserve(const struct blocks *b, struct block_table *t, uint32_t n)
{
	if (n * b->kinds.n <= t->cap)
		return;
	t->cap = n * b->kinds.n;
	t->ids = xrealloc(t->ids, t->cap, sizeof *t->ids);
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
	while (t->n > 0) {
		t->n--;
		for (uint32_t k = 0; k < b->kinds.n; k++)
			if (block_at(b, t, t->n, k))
				blocks_unref(b, *block_at(b, t, t->n, k), later);
	}
	t->from = 0;
}

void blocks_release(struct blocks *b, struct blocks_later *later)
{
	for (uint32_t i = 0; i < later->n; i++)
		unref(b, later->ids[i] & ~USELESS, later->ids[i] & USELESS, NULL);
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
		for (uint32_t k = 0; k < tables[i]->n * b->kinds.n; k++) {
			const struct block_table *t = tables[i];
			const uint32_t row = k / b->kinds.n, kind = k % b->kinds.n;
			const bool read = row >= blocks_first(b, kind, t->from);
			if (read != (t->ids[k] != (uint32_t)CONTENTS_NONE))
				broken("a window of a table", row, t->ids[k], kind);
			if (read)
				refs[t->ids[k]]++;
		}
	for (size_t i = 0; i < n_laters; i++)
		for (uint32_t k = 0; k < laters[i]->n; k++)
			refs[laters[i]->ids[k] & ~USELESS]++;
	for (uint32_t id = 0; id < b->n; id++) {
		if (refs[id] != b->refs[id])
			broken("references", id, b->refs[id], refs[id]);
		n_held += refs[id] > 0;
		const int32_t node = contents_node(b->contents, b->store, id);
		if (node != CONTENTS_NONE &&
		    contents_at(b->contents, node, contents_kind(b->contents, b->store, id), b->store) !=
			    (int32_t)id)
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
