/* prefix.h - which blocks hold which tokens: the index of the prefix cache.
 * A full block is found by its content and by the content of all blocks before it: each content
 * has a number of its own, and the key of a block is (number of the block before it, its
 * tokens).  A hit compares both, so that by induction all tokens are compared, never hashes
 * alone.  The first block's predecessor is the root of its tenant (cache salt).
 * Owns: the keys.  Knows nothing of reference counts.  Allocates at prefix_new() only. */
#ifndef QUERN_CONTROLLER_PREFIX_H
#define QUERN_CONTROLLER_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

struct prefix;

enum { PREFIX_NONE = -1 };

/* seed: of the hashes, so that nobody outside can make buckets long. */
struct prefix *prefix_new(uint32_t n_blocks, uint32_t block_size, uint64_t seed);
void prefix_free(struct prefix *p);                     /* NULL is fine */
void prefix_reset(struct prefix *p);                    /* nothing is indexed */

/* The number before the first block of a tenant. */
uint64_t prefix_root(const struct prefix *p, uint64_t salt);
/* The block that holds tokens [block_size] behind parent, or PREFIX_NONE. */
int64_t prefix_find(const struct prefix *p, uint64_t parent, const uint32_t *tokens);
/* block is not indexed, nor is its content.  Returns the number of its content. */
uint64_t prefix_insert(struct prefix *p, uint32_t block, uint64_t parent, const uint32_t *tokens);
void prefix_remove(struct prefix *p, uint32_t block);   /* nothing happens if it is not indexed */
bool prefix_has(const struct prefix *p, uint32_t block);
uint64_t prefix_number(const struct prefix *p, uint32_t block);

#endif
