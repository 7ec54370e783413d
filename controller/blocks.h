/* blocks.h - which physical KV blocks each sequence holds.
 * Owns: the free list, reference counts, block tables.  Knows nothing of tensors, sockets or
 * policy.  Single-threaded: the engine loop.
 *
 * A table maps logical blocks (block_size tokens each) to physical ones.  A block held by
 * several tables is shared; who writes into a shared one gets a copy first (copy-on-write).
 * Blocks that a plan under way may still use are freed only after its result: whoever lets go
 * of a block says after which plan it may be used again (struct blocks_later).
 *
 * Full blocks can be published: found again by their tokens (prefix.h).  A published block that
 * nobody holds is cached; cached blocks are given out when no free one is left, least recently
 * used first.
 *
 * After every step:  free + cached + held == total, and the references of a block are as many as
 * the tables and pending releases that name it (blocks_check). */
#ifndef QUERN_CONTROLLER_BLOCKS_H
#define QUERN_CONTROLLER_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct blocks;

struct block_table {
	uint32_t *ids;          /* [n] physical block of each logical one */
	uint32_t n, cap;
	uint32_t n_writable;    /* tokens up to which blocks_grow() has nothing to do, for writes
	                           that go on where the last ones ended */
};

/* References to be given up when the result of a plan has come. */
struct blocks_later {
	uint32_t *ids;
	uint32_t n, cap;
};

/* What blocks_grow() changed, for the plan. */
struct blocks_change {
	void (*entry)(void *user, uint32_t logical, uint32_t block);
	void (*copy)(void *user, uint32_t from, uint32_t to);
	void *user;
};

/* cache: published blocks are kept; seed: of its hashes. */
struct blocks *blocks_new(uint32_t n_blocks, uint32_t block_size, bool cache, uint64_t seed);
void blocks_free(struct blocks *b);                     /* NULL is fine */
uint32_t blocks_total(const struct blocks *b);
uint32_t blocks_n_free(const struct blocks *b);         /* that can be had: free or cached */
uint32_t blocks_n_cached(const struct blocks *b);
uint32_t blocks_size(const struct blocks *b);           /* tokens of a block */
/* Blocks that hold n_tokens. */
uint32_t blocks_for(const struct blocks *b, uint32_t n_tokens);

/* A part of the pool: n blocks one after the other, of which so many have holders or are cached;
 * the others are free. */
struct blocks_cell {
	uint32_t n, held, cached;
};
/* The pool as a map of at most n_cells parts of about the same size, in order.  Returns how many.
 * Looks at every block once. */
uint32_t blocks_cells(const struct blocks *b, struct blocks_cell *cells, uint32_t n_cells);

/* How many free blocks it takes to give t room for n_tokens when positions from write_from on
 * are written: new ones, and copies of shared ones. */
uint32_t blocks_missing(const struct blocks *b, const struct block_table *t, uint32_t n_tokens, uint32_t write_from);
/* Do it.  The caller has seen that blocks_missing() are free.  References to blocks that were
 * copied from go to later. */
void blocks_grow(struct blocks *b, struct block_table *t, uint32_t n_tokens, uint32_t write_from,
		 const struct blocks_change *change, struct blocks_later *later);
/* to becomes a second holder of the first n_blocks blocks of from; to is empty before. */
void blocks_share(struct blocks *b, struct block_table *to, struct block_table *from, uint32_t n_blocks);
/* One block, and one reference more or less to a block: for who keeps tables of its own kind. */
uint32_t blocks_take(struct blocks *b);
void blocks_ref(struct blocks *b, uint32_t id);
void blocks_push(struct block_table *t, uint32_t id);   /* t holds id from now on; counts as they are */

void block_table_reserve(struct block_table *t, uint32_t n); /* room for n, so that growing allocates nothing */

/* The prefix cache.  chain: which tokens came before; begins as blocks_root(salt). */
uint64_t blocks_root(const struct blocks *b, uint64_t salt);
/* t, which is empty, gets the published blocks that hold the first tokens, at most max of them.
 * Returns how many; *chain stands behind the last. */
uint32_t blocks_match(struct blocks *b, struct block_table *t, const uint32_t *tokens, uint32_t max,
		      uint64_t *chain);
/* How many blocks blocks_match() would find, without taking them. */
uint32_t blocks_find(const struct blocks *b, const uint32_t *tokens, uint32_t max, uint64_t salt);
/* id holds these tokens [block_size] behind *chain, and will not be written any more. */
void blocks_publish(struct blocks *b, uint32_t id, const uint32_t *tokens, uint64_t *chain);

/* t lets go of all its blocks: at once when later is NULL. */
void blocks_drop(struct blocks *b, struct block_table *t, struct blocks_later *later);
void blocks_release(struct blocks *b, struct blocks_later *later);
/* Everything is free again (the worker and its cache are gone).  Tables are to be emptied by
 * their owners: block_table_forget(). */
void blocks_reset(struct blocks *b);

void block_table_forget(struct block_table *t);                     /* empty, without touching counts */
void block_table_fini(struct block_table *t);
void blocks_later_fini(struct blocks_later *l);

/* Aborts with a message when the counts do not agree with these tables and releases. */
void blocks_check(const struct blocks *b, const struct block_table *const *tables, size_t n_tables,
		  const struct blocks_later *const *laters, size_t n_laters);

#endif
