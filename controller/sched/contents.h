/* contents.h - computed blocks by their tokens, and the stores that hold their bytes.
 * Owns the index of the prefix cache; knows no references of blocks.  Allocates in contents_new() only.
 *
 * A node is the content of one full block: its tokens, after those of its parent.  A first block has no
 * parent, but a root: the tenant and the adapter.
 *
 *   root {salt, adapter} --[t0 .. t15]--> node 1 --[t16 .. t31]--> node 2: kind 0: device block 9, host 4
 *                                            |                             kind 1: device block 6
 *                                            +-----[u16 .. u31]--> node 3: kind 0: host block 5
 *
 * A lookup walks from the root.  It compares all tokens of each node and the whole root, never hashes alone.
 *
 * A store is a pool of blocks in one tier, for all kinds of layers (base/kinds.h).  For each kind, a store
 * has at most one copy of a node under its name.  Other blocks with the same bytes have no name: two
 * sequences that computed the same tokens at the same time each keep their own block.
 *
 * A kind with a window needs only its last blocks to continue after a prefix.  So a prefix is found if
 * kinds without a window have all of its blocks, and kinds with a window those that the next position reads.
 *
 * A node exists while it has a copy, a child, or a holder (contents_hold): so a path from a root to a node
 * never has a gap, even if some of its nodes have no copy.
 *
 * The hash table is not base/map.h: keys are tokens, and the hash chains run through the nodes, so that
 * adding and removing in the step path allocates nothing. */
#ifndef QUERN_CONTROLLER_SCHED_CONTENTS_H
#define QUERN_CONTROLLER_SCHED_CONTENTS_H

#include "base/kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct contents;

enum contents_store { STORE_DEVICE, STORE_HOST, STORES };

enum { CONTENTS_NONE = -1 }; /* no node, or no block */

/* Equal tokens under different roots are different contents. */
struct contents_root {
	uint64_t salt;    /* tenant of the prefix cache */
	uint64_t adapter; /* adapter with which the tokens are computed; 0: none */
	uint64_t owner;   /* 0, or a number for each group, so that groups find nothing of each other */
};

/* n_blocks: blocks of each store; there are an eighth more nodes than blocks, and four times as many if all
 * kinds have windows, since most nodes then have no copy.  kinds: copied.  cache: keep copies that no
 * sequence uses (contents_kept).  seed: seeds the hashes, so that clients cannot choose prompts that
 * collide. */
struct contents *contents_new(const uint32_t n_blocks[STORES], uint32_t block_size, const struct kinds *kinds,
			      bool cache, uint64_t seed);
void contents_free(struct contents *c); /* NULL is fine */

/* Return the node of tokens [block_size] after parent, or CONTENTS_NONE.  parent is CONTENTS_NONE for a first
 * block; root is read only then. */
int32_t contents_find(const struct contents *c, const struct contents_root *root, int32_t parent,
		      const uint32_t *tokens);
/* A prefix after which a sequence can continue. */
struct contents_found {
	uint32_t n;      /* length in blocks */
	int32_t node;    /* node of its last block, or CONTENTS_NONE */
	uint32_t n_host; /* blocks of it that only the host pool has */
	uint32_t n_seen; /* length of the longest prefix if windows are ignored */
};
#define CONTENTS_HOST (1u << 31) /* in a list of blocks: a block of the host pool */
/* Find the longest prefix of the tokens, of at most max blocks, that the device pool has copies of; with
 * host, either pool.  ids [max][kinds]: its blocks, or CONTENTS_NONE for a block before a window; may be
 * NULL. */
struct contents_found contents_match(const struct contents *c, const struct contents_root *root,
				     const uint32_t *tokens, uint32_t max, bool host, uint32_t *ids);
/* Return the node of tokens after parent; add it if it is new.  The caller's hold moves from the parent to
 * it.  CONTENTS_NONE: there is no room for a new node, which happens only if many nodes have no copy; the
 * parent stays held. */
int32_t contents_add(struct contents *c, const struct contents_root *root, int32_t parent,
		     const uint32_t *tokens);
/* Hold a node, or give a hold back.  No-op for CONTENTS_NONE. */
void contents_hold(struct contents *c, int32_t node);
void contents_release(struct contents *c, int32_t node);

/* Return the block of this store that holds the node's content for a kind, or CONTENTS_NONE. */
int32_t contents_at(const struct contents *c, int32_t node, uint32_t kind, enum contents_store store);
/* Return the node that a block holds the content of, or CONTENTS_NONE; kind: of a block with a node. */
int32_t contents_node(const struct contents *c, enum contents_store store, uint32_t id);
uint32_t contents_kind(const struct contents *c, enum contents_store store, uint32_t id);
/* Record that block id of this store holds the node's content for a kind.  Neither the store has a copy of
 * it, nor the block a name. */
void contents_put(struct contents *c, int32_t node, uint32_t kind, enum contents_store store, uint32_t id);
/* The block no longer holds its node.  No-op if it has no name. */
void contents_lost(struct contents *c, enum contents_store store, uint32_t id);

/* The content of a block that is not full: its tokens, then this number up to block_size. */
#define CONTENTS_NO_TOKEN UINT32_MAX

/* Count a preempted sequence that will continue from the node's copy for this kind in the device pool, or one
 * less.  Return how many there are now.  The caller holds the node. */
uint32_t contents_retain(struct contents *c, int32_t node, uint32_t kind, int change);
/* Return whether a block of a store is such a copy. */
bool contents_retained(const struct contents *c, enum contents_store store, uint32_t id);
int32_t contents_parent(const struct contents *c, int32_t node);
/* Return the node that a block holds if it is a full block, or CONTENTS_NONE. */
int32_t contents_whole(const struct contents *c, enum contents_store store, uint32_t id);

/* Return whether a block that no sequence uses stays cached for its content: other sequences can find it, or
 * a preempted sequence will continue from it. */
bool contents_kept(const struct contents *c, enum contents_store store, uint32_t id);
/* From now on nothing that was computed before is found from a root, and none of it is kept, except what
 * preempted sequences retain.  Sequences that hold nodes continue. */
void contents_forget(struct contents *c);

/* Abort with a message if the counts disagree with these holds. */
void contents_check(const struct contents *c, const int32_t *holds, size_t n_holds);

#endif
