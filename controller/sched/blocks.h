/* blocks.h - which physical KV blocks each sequence holds.
 * Owns the free list, reference counts and block tables.  Knows nothing of tensors, sockets or policy.
 * Single-threaded: the engine loop.
 *
 * A table maps logical blocks (block_size tokens each) to physical ones.  A block in several tables is
 * shared; a sequence that writes into a shared block gets a copy first (copy-on-write).  Two outputs of a job
 * with a prompt of 40 tokens, block_size 16, before and after the second one writes its first token:
 *
 *              logical   0    1    2                 logical   0    1    2
 *   seq A      table   [ 5 ][ 9 ][ 2 ]   blocks_grow           [ 5 ][ 9 ][ 2 ]
 *   seq B      table   [ 5 ][ 9 ][ 2 ]   ---------->           [ 5 ][ 9 ][ 7 ]   copy 2 -> 7 in the plan
 *                         |    |    |                             |    |    |
 *   physical block        5    9    2                             5    9    2    7
 *   refs                  2    2    2                             2    2    2    1   2: A, and blocks_later
 *                                                                                    until the result: then 1
 *
 * Blocks that a plan under way may use are freed only after its result: references that are given up before
 * then go to the plan's struct blocks_later.
 *
 * Full blocks can be published: found again by their tokens (prefix.h).  A published block without references
 * is cached; cached blocks are allocated when no free one is left, least recently used first.
 *
 * After every step:  free + cached + held == total, and the references of a block are as many as the tables
 * and pending releases that name it (blocks_check). */
#ifndef QUERN_CONTROLLER_SCHED_BLOCKS_H
#define QUERN_CONTROLLER_SCHED_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct blocks;

struct block_table {
	uint32_t *ids; /* [n] physical block of each logical one */
	uint32_t n, cap;
	uint32_t n_writable; /* tokens up to which blocks_grow() has nothing to do, if writes continue where
				the last ones ended */
};

/* References to be released when the result of a plan has arrived. */
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

/* cache: published blocks are kept; seed: of the prefix hashes. */
struct blocks *blocks_new(uint32_t n_blocks, uint32_t block_size, bool cache, uint64_t seed);
void blocks_free(struct blocks *b); /* NULL is fine */
uint32_t blocks_total(const struct blocks *b);
uint32_t blocks_n_free(const struct blocks *b); /* available: free or cached */
uint32_t blocks_n_cached(const struct blocks *b);
uint32_t blocks_n_refs(const struct blocks *b, uint32_t id);
/* Blocks that hold n_tokens. */
uint32_t blocks_for(const struct blocks *b, uint32_t n_tokens);

/* A part of the pool: n consecutive blocks, of which `held` have references and `cached` are cached; the
 * others are free. */
struct blocks_cell {
	uint32_t n, held, cached;
};
/* The pool as a map of at most n_cells parts of about equal size, in order.  Returns the number of parts.
 * Visits every block. */
uint32_t blocks_cells(const struct blocks *b, struct blocks_cell *cells, uint32_t n_cells);

/* Blocks that t needs for n_tokens when positions from write_from on are written: new ones, and copies of
 * shared ones. */
uint32_t blocks_missing(const struct blocks *b, const struct block_table *t, uint32_t n_tokens,
			uint32_t write_from);
/* Grow t accordingly.  The caller has checked that blocks_missing() are available.  References to blocks that
 * were copied from go to later. */
void blocks_grow(struct blocks *b, struct block_table *t, uint32_t n_tokens, uint32_t write_from,
		 const struct blocks_change *change, struct blocks_later *later);
/* `to`, an empty table, shares the first n_blocks blocks of `from`. */
void blocks_share(struct blocks *b, struct block_table *to, struct block_table *from, uint32_t n_blocks);
/* For callers that fill tables themselves: a block with one reference; one more reference to a block; append
 * a block to t, counts unchanged. */
uint32_t blocks_take(struct blocks *b);
void blocks_ref(struct blocks *b, uint32_t id);
void blocks_push(struct block_table *t, uint32_t id);

/* Capacity for n blocks, so that growing to n allocates nothing. */
void block_table_reserve(struct block_table *t, uint32_t n);

/* The prefix cache.  chain identifies the tokens before a block, and starts as blocks_root(salt). */
uint64_t blocks_root(const struct blocks *b, uint64_t salt);
/* t, an empty table, takes the published blocks that hold the first tokens, at most max of them.  Returns
 * their number; *chain moves behind the last. */
uint32_t blocks_match(struct blocks *b, struct block_table *t, const uint32_t *tokens, uint32_t max,
		      uint64_t *chain);
/* Blocks that blocks_match() would find; takes none. */
uint32_t blocks_find(const struct blocks *b, const uint32_t *tokens, uint32_t max, uint64_t salt);
/* Block id holds these tokens [block_size] behind *chain, and will not be written again. */
void blocks_publish(struct blocks *b, uint32_t id, const uint32_t *tokens, uint64_t *chain);

/* t gives up all its blocks: at blocks_release(later), or at once when later is NULL. */
void blocks_drop(struct blocks *b, struct block_table *t, struct blocks_later *later);
void blocks_release(struct blocks *b, struct blocks_later *later);

void block_table_forget(struct block_table *t); /* empty; counts unchanged */
void block_table_fini(struct block_table *t);
void blocks_later_fini(struct blocks_later *l);

/* Aborts with a message when the counts disagree with these tables and releases. */
void blocks_check(const struct blocks *b, const struct block_table *const *tables, size_t n_tables,
		  const struct blocks_later *const *laters, size_t n_laters);

#endif
