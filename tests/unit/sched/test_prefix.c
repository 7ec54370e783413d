/* The index of the prefix cache: contents in one bucket are distinguished by their tokens. */
#include "controller/sched/prefix.h"

#include <criterion/criterion.h>

enum { BLOCKS = 64, SIZE = 4 };

static void content(uint32_t i, uint32_t *tokens)
{
	for (uint32_t k = 0; k < SIZE; k++)
		tokens[k] = i >> 2 * k & 3;
}

/* 64 of 256 possible contents: most buckets are shared. */
Test(prefix, a_block_is_found_by_all_of_its_tokens)
{
	struct prefix *p = prefix_new(BLOCKS, SIZE, 5);
	const uint64_t root = prefix_root(p, 0);
	uint32_t tokens[SIZE];
	for (uint32_t i = 0; i < BLOCKS; i++) {
		content(4 * i + 1, tokens);
		prefix_insert(p, i, root, tokens);
	}
	for (uint32_t i = 0; i < 4 * BLOCKS; i++) {
		content(i, tokens);
		cr_expect_eq(prefix_find(p, root, tokens), i % 4 == 1 ? (int64_t)(i / 4) : PREFIX_NONE,
			     "content %u", i);
	}
	prefix_free(p);
}

/* Equal tokens after other blocks, or of another tenant, are different contents. */
Test(prefix, a_block_is_found_behind_its_parent_only)
{
	struct prefix *p = prefix_new(BLOCKS, SIZE, 5);
	uint64_t parent[BLOCKS];
	uint32_t tokens[SIZE];
	content(7, tokens);
	for (uint32_t i = 0; i < BLOCKS; i += 2) {
		parent[i] = prefix_root(p, i);
		parent[i + 1] = prefix_insert(p, i, parent[i], tokens);
	}
	for (uint32_t i = 0; i < BLOCKS; i++)
		cr_expect_eq(prefix_find(p, parent[i], tokens), i % 2 ? PREFIX_NONE : (int64_t)i, "parent %u",
			     i);
	for (uint32_t i = 1; i < BLOCKS; i += 2)
		prefix_insert(p, i, parent[i], tokens);
	for (uint32_t i = 0; i < BLOCKS; i++)
		cr_expect_eq(prefix_find(p, parent[i], tokens), i, "parent %u", i);
	/* removed blocks are gone, the rest of their bucket is not */
	for (uint32_t i = 0; i < BLOCKS; i += 3)
		prefix_remove(p, i);
	for (uint32_t i = 0; i < BLOCKS; i++)
		cr_expect_eq(prefix_find(p, parent[i], tokens), i % 3 ? (int64_t)i : PREFIX_NONE, "parent %u",
			     i);
	prefix_free(p);
}
