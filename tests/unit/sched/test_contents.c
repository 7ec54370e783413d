/* The contents: nodes are distinguished by all tokens and the whole root, and exist as long as needed. */
#include "controller/sched/contents.h"

#include <criterion/criterion.h>

enum { BLOCKS = 64, SIZE = 4, NONE = CONTENTS_NONE };

static const struct contents_root plain_root = {0};

static struct contents *open_contents(uint32_t n_device, uint32_t n_host)
{
	return contents_new((uint32_t[STORES]){n_device, n_host}, SIZE, &KINDS_ONE, true, 5);
}

static const uint32_t *content(uint32_t i)
{
	static uint32_t tokens[SIZE];
	for (uint32_t k = 0; k < SIZE; k++)
		tokens[k] = i >> 2 * k & 3;
	return tokens;
}

/* Add a node, held by the caller. */
static int32_t add(struct contents *c, int32_t parent, uint32_t i)
{
	contents_hold(c, parent);
	return contents_add(c, &plain_root, parent, content(i));
}

/* Add a node with its copy in a block, not held. */
static int32_t compute(struct contents *c, const struct contents_root *root, int32_t parent, uint32_t i,
		       enum contents_store store, uint32_t block)
{
	contents_hold(c, parent);
	const int32_t node = contents_add(c, root, parent, content(i));
	contents_put(c, node, 0, store, block);
	contents_release(c, node);
	return node;
}

/* 64 of 256 possible contents: most buckets are shared. */
Test(contents, a_node_is_found_by_all_of_its_tokens)
{
	struct contents *c = open_contents(BLOCKS, 0);
	int32_t nodes[BLOCKS];
	for (uint32_t i = 0; i < BLOCKS; i++)
		nodes[i] = compute(c, &plain_root, NONE, 4 * i + 1, STORE_DEVICE, i);
	for (uint32_t i = 0; i < 4 * BLOCKS; i++)
		cr_expect_eq(contents_find(c, &plain_root, NONE, content(i)),
			     i % 4 == 1 ? nodes[i / 4] : NONE, "content %u", i);
	contents_check(c, NULL, 0);
	contents_free(c);
}

/* Use as many roots as the hash table has buckets, so that some share a bucket. */
Test(contents, roots_are_compared_whole)
{
	for (int field = 0; field < 3; field++) {
		struct contents *c = open_contents(BLOCKS, 0);
		for (uint32_t i = 0; i < BLOCKS; i++) {
			struct contents_root root = {0};
			*(field == 0 ? &root.salt : field == 1 ? &root.adapter : &root.owner) = i;
			cr_expect_eq(contents_find(c, &root, NONE, content(7)), NONE, "root %u", i);
			const int32_t node = compute(c, &root, NONE, 7, STORE_DEVICE, i);
			cr_expect_eq(contents_find(c, &root, NONE, content(7)), node, "root %u", i);
		}
		contents_free(c);
	}
}

/* Equal tokens after different nodes are different contents. */
Test(contents, a_node_is_found_after_its_parent_only)
{
	struct contents *c = open_contents(BLOCKS, 0);
	int32_t parents[BLOCKS / 2], children[BLOCKS / 2];
	for (uint32_t i = 0; i < BLOCKS / 2; i++) {
		parents[i] = compute(c, &plain_root, NONE, i, STORE_DEVICE, i);
		children[i] =
			i % 3 ? compute(c, &plain_root, parents[i], 9, STORE_DEVICE, BLOCKS / 2 + i) : NONE;
	}
	for (uint32_t i = 0; i < BLOCKS / 2; i++)
		cr_expect_eq(contents_find(c, &plain_root, parents[i], content(9)), children[i], "parent %u",
			     i);
	/* Removed nodes are gone, the rest of their buckets is not. */
	for (uint32_t i = 0; i < BLOCKS / 2; i += 2)
		contents_lost(c, STORE_DEVICE, BLOCKS / 2 + i);
	for (uint32_t i = 0; i < BLOCKS / 2; i++)
		cr_expect_eq(contents_find(c, &plain_root, parents[i], content(9)),
			     i % 2 ? children[i] : NONE, "parent %u", i);
	contents_check(c, NULL, 0);
	contents_free(c);
}

Test(contents, each_store_has_its_own_copy)
{
	struct contents *c = open_contents(8, 8);
	const int32_t node = compute(c, &plain_root, NONE, 1, STORE_DEVICE, 3);
	contents_put(c, node, 0, STORE_HOST, 5);
	cr_expect_eq(contents_at(c, node, 0, STORE_DEVICE), 3);
	cr_expect_eq(contents_at(c, node, 0, STORE_HOST), 5);
	cr_expect_eq(contents_node(c, STORE_HOST, 5), node);
	cr_expect_eq(contents_node(c, STORE_HOST, 3), NONE);
	contents_lost(c, STORE_DEVICE, 3);
	cr_expect_eq(contents_find(c, &plain_root, NONE, content(1)), node, "the host has a copy");
	cr_expect_eq(contents_at(c, node, 0, STORE_DEVICE), NONE);
	contents_check(c, NULL, 0);
	contents_lost(c, STORE_HOST, 5);
	cr_expect_eq(contents_find(c, &plain_root, NONE, content(1)), NONE, "no store has a copy");
	contents_check(c, NULL, 0);
	contents_free(c);
}

Test(contents, a_path_has_no_gap)
{
	struct contents *c = open_contents(8, 8);
	const int32_t first = compute(c, &plain_root, NONE, 1, STORE_DEVICE, 0);
	const int32_t second = compute(c, &plain_root, first, 2, STORE_DEVICE, 1);
	uint32_t tokens[2 * SIZE], ids[2] = {0};
	for (uint32_t k = 0; k < 2 * SIZE; k++)
		tokens[k] = content(k < SIZE ? 1 : 2)[k % SIZE];
	struct contents_found f = contents_match(c, &plain_root, tokens, 2, false, ids);
	cr_expect(f.n == 2 && f.node == second && f.n_host == 0 && ids[0] == 0 && ids[1] == 1);
	contents_lost(c, STORE_DEVICE, 0);
	contents_check(c, NULL, 0);
	f = contents_match(c, &plain_root, tokens, 2, false, NULL);
	cr_expect(f.n == 0 && f.node == NONE);
	cr_expect_eq(contents_find(c, &plain_root, NONE, content(1)), first, "its child has a copy");
	contents_put(c, first, 0, STORE_HOST, 3);
	cr_expect_eq(contents_match(c, &plain_root, tokens, 2, false, ids).n, 0, "the host is not asked");
	f = contents_match(c, &plain_root, tokens, 2, true, ids);
	cr_expect(f.n == 2 && f.n_host == 1 && ids[0] == (3 | CONTENTS_HOST) && ids[1] == 1);
	/* Computed again in another block, the device has both. */
	cr_expect_eq(compute(c, &plain_root, NONE, 1, STORE_DEVICE, 4), first);
	f = contents_match(c, &plain_root, tokens, 2, true, ids);
	cr_expect(f.n == 2 && f.n_host == 0 && ids[0] == 4 && ids[1] == 1);
	contents_free(c);
}

Test(contents, a_held_node_stays_with_all_before_it)
{
	struct contents *c = open_contents(8, 0);
	const int32_t first = compute(c, &plain_root, NONE, 1, STORE_DEVICE, 0);
	const int32_t second = add(c, first, 2);
	contents_lost(c, STORE_DEVICE, 0);
	contents_check(c, &second, 1);
	cr_expect_eq(add(c, NONE, 1), first);
	contents_release(c, first);
	contents_release(c, second);
	contents_check(c, NULL, 0);
	cr_expect_eq(contents_find(c, &plain_root, NONE, content(1)), NONE);
	contents_free(c);
}

/* There are as many nodes as blocks, and an eighth more.  More are refused, until one of them goes. */
Test(contents, nodes_are_limited)
{
	struct contents *c = open_contents(2, 1);
	int32_t at = NONE, holds[3];
	for (uint32_t i = 0; i < 3; i++)
		at = holds[i] = add(c, at, i);
	cr_expect_neq(at, NONE);
	cr_expect_eq(contents_add(c, &plain_root, at, content(3)), NONE);
	contents_check(c, holds, 3);
	cr_expect_eq(add(c, NONE, 0), holds[0], "what is known needs no room");
	contents_release(c, holds[0]);
	contents_check(c, holds, 3);
	contents_release(c, holds[2]);
	cr_expect_neq(add(c, holds[1], 3), NONE);
	contents_free(c);
}

/* The block is kept for the sequence that retains it: other sequences cannot find it. */
Test(contents, a_block_that_is_not_full_is_kept_only_while_it_is_retained)
{
	struct contents *c = open_contents(8, 0);
	uint32_t tokens[SIZE];
	memcpy(tokens, content(1), sizeof tokens);
	tokens[SIZE - 1] = CONTENTS_NO_TOKEN;
	const int32_t node = contents_add(c, &plain_root, NONE, tokens);
	contents_put(c, node, 0, STORE_DEVICE, 3);
	cr_expect_not(contents_kept(c, STORE_DEVICE, 3));
	cr_expect_eq(contents_whole(c, STORE_DEVICE, 3), NONE);
	cr_expect_eq(contents_retain(c, node, 0, 1), 1);
	cr_expect(contents_kept(c, STORE_DEVICE, 3));
	contents_forget(c);
	cr_expect(contents_kept(c, STORE_DEVICE, 3));
	cr_expect_eq(contents_retain(c, node, 0, -1), 0);
	cr_expect_not(contents_kept(c, STORE_DEVICE, 3));
	contents_free(c);
}

Test(contents, forgotten_nodes_are_not_found_nor_kept)
{
	struct contents *c = open_contents(8, 0);
	const int32_t first = compute(c, &plain_root, NONE, 1, STORE_DEVICE, 0);
	cr_expect(contents_kept(c, STORE_DEVICE, 0));
	contents_forget(c);
	cr_expect_not(contents_kept(c, STORE_DEVICE, 0));
	cr_expect_eq(contents_find(c, &plain_root, NONE, content(1)), NONE);
	compute(c, &plain_root, first, 2, STORE_DEVICE, 1);
	cr_expect_not(contents_kept(c, STORE_DEVICE, 1), "nor what is computed after it");
	const int32_t again = compute(c, &plain_root, NONE, 1, STORE_DEVICE, 2);
	cr_expect_neq(again, first);
	cr_expect(contents_kept(c, STORE_DEVICE, 2));
	cr_expect_eq(contents_find(c, &plain_root, NONE, content(1)), again);
	contents_free(c);
}

/* ---- kinds ---- */

/* Kind 0 has no window, kind 1 one of two blocks: after n blocks it reads the last two of them. */
Test(contents, a_prefix_ends_where_windows_are_cached)
{
	const struct kinds kinds = {.n = 2, .window = {0, 2 * SIZE}};
	struct contents *c = contents_new((uint32_t[STORES]){BLOCKS, BLOCKS}, SIZE, &kinds, true, 5);
	uint32_t tokens[6 * SIZE], ids[2 * 6];
	int32_t nodes[6], at = NONE;
	for (uint32_t i = 0; i < 6; i++) {
		for (uint32_t k = 0; k < SIZE; k++)
			tokens[i * SIZE + k] = content(i)[k];
		at = nodes[i] = contents_add(c, &plain_root, at, content(i));
		contents_put(c, at, 0, STORE_DEVICE, i);
		contents_put(c, at, 1, STORE_DEVICE, 10 + i);
	}
	contents_release(c, at);
	cr_expect_eq(contents_kind(c, STORE_DEVICE, 3), 0);
	cr_expect_eq(contents_kind(c, STORE_DEVICE, 13), 1);
	struct contents_found f = contents_match(c, &plain_root, tokens, 6, false, ids);
	cr_expect(f.n == 6 && f.n_seen == 6 && f.node == nodes[5]);
	for (uint32_t i = 0; i < 6; i++)
		cr_expect(ids[2 * i] == i && ids[2 * i + 1] == (i < 4 ? (uint32_t)NONE : 10 + i), "row %u",
			  i);
	/* Without block 4 of the window, neither 5 nor 6 blocks are enough. */
	contents_lost(c, STORE_DEVICE, 14);
	f = contents_match(c, &plain_root, tokens, 6, false, ids);
	cr_expect(f.n == 4 && f.n_seen == 6 && f.node == nodes[3]);
	cr_expect(ids[2 * 1 + 1] == (uint32_t)NONE && ids[2 * 2 + 1] == 12 && ids[2 * 3 + 1] == 13);
	/* The host has it. */
	contents_put(c, nodes[4], 1, STORE_HOST, 7);
	f = contents_match(c, &plain_root, tokens, 6, true, ids);
	cr_expect(f.n == 6 && f.n_host == 1 && ids[2 * 4 + 1] == (7 | CONTENTS_HOST));
	/* Kind 0 needs every block. */
	contents_lost(c, STORE_DEVICE, 2);
	f = contents_match(c, &plain_root, tokens, 6, true, ids);
	cr_expect(f.n == 2 && f.n_seen == 2 && f.n_host == 0);
	contents_check(c, NULL, 0);
	contents_free(c);
}
