/* blocks.h - the physical KV blocks of each sequence.
 * Owns the free list, reference counts and block tables.  Knows nothing of tensors, sockets or policy.
 * Single-threaded: the engine loop.
 *
 * A table maps logical blocks (block_size tokens each) to physical blocks.  A block in several tables is
 * shared; a sequence that writes into a shared block gets a copy first (copy-on-write).  Two outputs of a job
 * with a prompt of 40 tokens, block_size 16, before and after the second output writes its first token:
 *
 *              logical   0    1    2                 logical   0    1    2
 *   seq A      table   [ 5 ][ 9 ][ 2 ]   blocks_grow           [ 5 ][ 9 ][ 2 ]
 *   seq B      table   [ 5 ][ 9 ][ 2 ]   ---------->           [ 5 ][ 9 ][ 7 ]   copy 2 -> 7 in the plan
 *                         |    |    |                             |    |    |
 *   physical block        5    9    2                             5    9    2    7
 *   refs                  2    2    2                             2    2    2    1   2: A, and blocks_later
 *                                                                                    until the result: then 1
 *
 * A block that a plan in flight may use is freed only after that plan's result: references that are given up
 * earlier are collected in the plan's struct blocks_later.
 *
 * A pool is a store of contents (contents.h): blocks that hold a node are found by their tokens.  Without
 * references such a block is cached.  When no block is free, cached blocks are evicted, least recently used
 * first, and those that a preempted sequence will continue from (retained) after all others.
 *
 * All kinds of layers (base/kinds.h) share the pool.  A table has a row for each logical block, with a block
 * of each kind.  Rows before the window of a kind have none, CONTENTS_NONE (blocks_trim).
 *
 * After every step: free + cached + held == total, and the reference count of a block equals the number of
 * tables and pending releases that name it (blocks_check). */
#ifndef QUERN_CONTROLLER_SCHED_BLOCKS_H
#define QUERN_CONTROLLER_SCHED_BLOCKS_H

#include "controller/sched/contents.h"

struct blocks;

struct block_table {
	uint32_t *ids;       /* [n][kinds] physical blocks of each logical one */
	uint32_t n, cap;     /* rows; room for ids */
	uint32_t n_writable; /* tokens up to which blocks_grow() has nothing to do, if writes continue
				where the previous writes ended */
	uint32_t from;       /* the table has what positions from here on read */
};

/* References to release when the result of a plan has arrived. */
struct blocks_later {
	uint32_t *ids;
	uint32_t n, cap;
};

/* Callbacks for the changes that blocks_grow() makes, for the plan. */
struct blocks_change {
	void (*entry)(void *user, uint32_t kind, uint32_t logical, uint32_t block);
	void (*copy)(void *user, uint32_t from, uint32_t to);
	void *user;
};

/* kinds: copied.  c: the contents that this pool stores. */
struct blocks *blocks_new(uint32_t n_blocks, uint32_t block_size, const struct kinds *kinds,
			  struct contents *c, enum contents_store store);
void blocks_free(struct blocks *b); /* NULL is fine */
uint32_t blocks_total(const struct blocks *b);
uint32_t blocks_n_free(const struct blocks *b); /* available: free or cached */
uint32_t blocks_n_cached(const struct blocks *b);
uint32_t blocks_n_retained(const struct blocks *b); /* cached blocks that are retained */
uint64_t blocks_n_lost(const struct blocks *b);     /* retained blocks evicted so far */
uint32_t blocks_n_refs(const struct blocks *b, uint32_t id);
/* Return the number of rows that hold n_tokens. */
uint32_t blocks_for(const struct blocks *b, uint32_t n_tokens);
/* Return the first row in which the position reads a block of this kind. */
uint32_t blocks_first(const struct blocks *b, uint32_t kind, uint32_t position);
/* Return the number of blocks in a table. */
uint32_t blocks_held(const struct blocks *b, const struct block_table *t);

/* A section of the pool: n consecutive blocks, of which `held` have references and `cached` are cached; the
 * rest are free. */
struct blocks_cell {
	uint32_t n, held, cached;
};
/* Summarise the pool in at most n_cells sections of about equal size, in order.  Return the number of
 * sections.  Visits every block. */
uint32_t blocks_cells(const struct blocks *b, struct blocks_cell *cells, uint32_t n_cells);

/* Return how many blocks t needs for n_tokens if positions from write_from on are written: new blocks, and
 * copies of shared blocks. */
uint32_t blocks_missing(const struct blocks *b, const struct block_table *t, uint32_t n_tokens,
			uint32_t write_from);
/* Grow t to hold n_tokens: append new blocks, and replace shared blocks that will be written by copies.  The
 * caller has checked that blocks_missing() blocks are available.  `later` collects the references that t
 * had to the originals of the copies. */
void blocks_grow(struct blocks *b, struct block_table *t, uint32_t n_tokens, uint32_t write_from,
		 const struct blocks_change *change, struct blocks_later *later);
/* Share the first n_rows rows of `from` with `to`, an empty table. */
void blocks_share(struct blocks *b, struct block_table *to, struct block_table *from, uint32_t n_rows);
/* Return whether t has the blocks that this position and later ones read. */
bool blocks_reach(const struct blocks *b, const struct block_table *t, uint32_t position);
/* Give up the blocks that neither this position nor later ones read.  Sequences often continue from a
 * position in keep [n_keep]: a block that such a position reads is cached as any other.  Any other block of a
 * window is the next to be evicted. */
void blocks_trim(struct blocks *b, struct block_table *t, uint32_t position, const uint32_t *keep,
		 uint32_t n_keep, struct blocks_later *later);
/* For callers that fill tables themselves.  blocks_take: return a block with one reference.  blocks_ref: add
 * a reference to a block.  blocks_unref: give one up, at blocks_release(later), or at once if later is
 * NULL. */
uint32_t blocks_take(struct blocks *b);
void blocks_ref(struct blocks *b, uint32_t id);
void blocks_unref(struct blocks *b, uint32_t id, struct blocks_later *later);

/* Reserve capacity for n rows, so that growing to n allocates nothing. */
void block_table_reserve(const struct blocks *b, struct block_table *t, uint32_t n);

/* A preempted sequence will continue from the node's block for a kind, or no longer.  The caller holds the
 * node. */
void blocks_retain(struct blocks *b, int32_t node, uint32_t kind);
void blocks_unretain(struct blocks *b, int32_t node, uint32_t kind);

/* Make all cached blocks free, except retained ones; their contents are lost. */
void blocks_forget(struct blocks *b);

/* A survey counts references without changing them.  blocks_count: return how often id has been counted since
 * blocks_survey(), this time included. */
void blocks_survey(struct blocks *b);
uint32_t blocks_count(struct blocks *b, uint32_t id);

/* Give up all blocks of t: at blocks_release(later), or at once if later is NULL. */
void blocks_drop(struct blocks *b, struct block_table *t, struct blocks_later *later);
void blocks_release(struct blocks *b, struct blocks_later *later);

void block_table_fini(struct block_table *t);
void blocks_later_fini(struct blocks_later *l);

/* Abort with a message if the counts disagree with these tables and releases. */
void blocks_check(const struct blocks *b, const struct block_table *const *tables, size_t n_tables,
		  const struct blocks_later *const *laters, size_t n_laters);

#endif
