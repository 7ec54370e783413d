/* prefix.h - the index of the prefix cache: which blocks hold which tokens.
 * Owns the keys; knows nothing of reference counts.  Allocates in prefix_new() only.
 *
 * Each indexed content has a number.  The key of a block is (number of the previous block, its tokens), so
 * that a block is found by its content and the content of all blocks before it:
 *
 *   prompt        [t0 .. t15]         [t16 .. t31]         [t32 .. t47]
 *   key           (root(salt), .)     (1, .)               (2, .)
 *   number        1                   2                    3
 *   block         17                  4                    9
 *
 *   2nd prompt    [t0 .. t15]         [u16 .. u31]
 *   key           (root(salt), .)     (1, .)
 *   number        1: block 17         4: block 30
 *
 * A lookup walks the chain: find (root, t0..15) -> block 17, number 1; find (1, t16..31) -> block 4, ... A
 * hit compares both halves of the key, so by induction all tokens are compared, never hashes alone.  The root
 * depends on the tenant (cache salt): tenants share nothing.
 *
 * The hash table is not base/map.h: keys are tokens, and the hash chains run through one entry per block, so
 * that inserting and removing in the step path allocates nothing. */
#ifndef QUERN_CONTROLLER_SCHED_PREFIX_H
#define QUERN_CONTROLLER_SCHED_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

struct prefix;

enum { PREFIX_NONE = -1 };

/* seed: seeds the hashes, so that clients cannot choose prompts that collide. */
struct prefix *prefix_new(uint32_t n_blocks, uint32_t block_size, uint64_t seed);
void prefix_free(struct prefix *p);  /* NULL is fine */
void prefix_reset(struct prefix *p); /* removes everything */

/* Return the parent of a tenant's first blocks. */
uint64_t prefix_root(const struct prefix *p, uint64_t salt);
/* Return the block that holds tokens [block_size] after parent, or PREFIX_NONE. */
int64_t prefix_find(const struct prefix *p, uint64_t parent, const uint32_t *tokens);
/* Index a block; neither the block nor its content may be indexed yet.  Return the number of its content. */
uint64_t prefix_insert(struct prefix *p, uint32_t block, uint64_t parent, const uint32_t *tokens);
void prefix_remove(struct prefix *p, uint32_t block); /* no-op if it is not indexed */
bool prefix_has(const struct prefix *p, uint32_t block);
uint64_t prefix_number(const struct prefix *p, uint32_t block);

#endif
