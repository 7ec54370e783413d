#include "controller/blocks.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct blocks {
	uint32_t n;    /* blocks in the pool */
	uint32_t size; /* tokens of a block */
	uint32_t n_free;
	uint32_t *free; /* [n_free] stack: the block let go last is taken first, its lines are warm */
	uint32_t *refs; /* [n] holders */
};

static void push(uint32_t **ids, uint32_t *n, uint32_t *cap, uint32_t id)
{
	if (*n == *cap) {
		*cap = *cap ? *cap * 2 : 16;
		*ids = xrealloc(*ids, *cap, sizeof **ids);
	}
	(*ids)[(*n)++] = id;
}

static uint32_t take(struct blocks *b)
{
	assert(b->n_free > 0);
	uint32_t id = b->free[--b->n_free];
	assert(b->refs[id] == 0);
	b->refs[id] = 1;
	return id;
}

static void unref(struct blocks *b, uint32_t id)
{
	assert(id < b->n && b->refs[id] > 0);
	if (--b->refs[id] == 0)
		b->free[b->n_free++] = id;
}

struct blocks *blocks_new(uint32_t n_blocks, uint32_t block_size)
{
	struct blocks *b = xcalloc(1, sizeof *b);
	b->n = n_blocks;
	b->size = block_size;
	b->free = xmalloc(n_blocks * sizeof *b->free);
	b->refs = xmalloc(n_blocks * sizeof *b->refs);
	blocks_reset(b);
	return b;
}

void blocks_free(struct blocks *b)
{
	if (!b)
		return;
	free(b->free);
	free(b->refs);
	free(b);
}

uint32_t blocks_total(const struct blocks *b)
{
	return b->n;
}

uint32_t blocks_n_free(const struct blocks *b)
{
	return b->n_free;
}

uint32_t blocks_size(const struct blocks *b)
{
	return b->size;
}

uint32_t blocks_for(const struct blocks *b, uint32_t n_tokens)
{
	return n_tokens / b->size + (n_tokens % b->size != 0);
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
		t->ids[i] = take(b);
		change->copy(change->user, old, t->ids[i]);
		change->entry(change->user, i, t->ids[i]);
		push(&later->ids, &later->n, &later->cap, old);
	}
	while (t->n < want) {
		push(&t->ids, &t->n, &t->cap, take(b));
		change->entry(change->user, t->n - 1, t->ids[t->n - 1]);
	}
}

void blocks_share(struct blocks *b, struct block_table *to, const struct block_table *from, uint32_t n_blocks)
{
	assert(to->n == 0 && n_blocks <= from->n);
	for (uint32_t i = 0; i < n_blocks; i++) {
		b->refs[from->ids[i]]++;
		push(&to->ids, &to->n, &to->cap, from->ids[i]);
	}
}

void blocks_drop(struct blocks *b, struct block_table *t, struct blocks_later *later)
{
	/* Backwards, so that the first block is on top of the stack. */
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

void blocks_reset(struct blocks *b)
{
	memset(b->refs, 0, b->n * sizeof *b->refs);
	for (uint32_t i = 0; i < b->n; i++)
		b->free[i] = b->n - 1 - i;
	b->n_free = b->n;
}

void block_table_forget(struct block_table *t)
{
	t->n = 0;
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
	if (n_held + b->n_free != b->n)
		broken("free + held != total", b->n, n_held + b->n_free, b->n);
	free(refs);
}
