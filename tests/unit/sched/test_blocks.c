/* The block manager: counts agree, and shared blocks are copied before they are written. */
#include "controller/sched/blocks.h"

#include <criterion/criterion.h>
#include <string.h>

struct seen {
	uint32_t n_entries, n_copies, from, to;
};

static void on_entry(void *user, uint32_t logical, uint32_t block)
{
	(void)logical;
	(void)block;
	((struct seen *)user)->n_entries++;
}

static void on_copy(void *user, uint32_t from, uint32_t to)
{
	struct seen *s = user;
	s->n_copies++;
	s->from = from;
	s->to = to;
}

static void grow(struct blocks *b, struct block_table *t, uint32_t n, uint32_t write_from, struct seen *seen,
		 struct blocks_later *later)
{
	struct blocks_change change = {on_entry, on_copy, seen};
	blocks_grow(b, t, n, write_from, &change, later);
}

Test(blocks, a_sequence_takes_a_block_when_the_last_is_full)
{
	struct blocks *b = blocks_new(4, 16, false, 0);
	struct block_table t = {0};
	struct blocks_later later = {0};
	struct seen seen = {0};
	grow(b, &t, 16, 0, &seen, &later);
	cr_assert_eq(t.n, 1);
	cr_assert_eq(blocks_missing(b, &t, 16, 15), 0);
	cr_assert_eq(blocks_missing(b, &t, 17, 16), 1);
	grow(b, &t, 17, 16, &seen, &later);
	cr_assert_eq(t.n, 2);
	cr_assert_eq(blocks_n_free(b), 2);
	cr_assert_eq(seen.n_entries, 2);
	blocks_drop(b, &t, NULL);
	cr_assert_eq(blocks_n_free(b), 4);
	block_table_fini(&t);
	blocks_later_fini(&later);
	blocks_free(b);
}

Test(blocks, a_writer_into_a_shared_block_gets_a_copy)
{
	struct blocks *b = blocks_new(4, 16, false, 0);
	struct block_table parent = {0}, child = {0};
	struct blocks_later later = {0};
	struct seen seen = {0};
	grow(b, &parent, 20, 0, &seen, &later);
	blocks_share(b, &child, &parent, 2);
	cr_assert_eq(blocks_n_free(b), 2);
	/* Position 20 is in the second block; the first stays shared. */
	cr_assert_eq(blocks_missing(b, &child, 21, 20), 1);
	grow(b, &child, 21, 20, &seen, &later);
	cr_assert_eq(seen.n_copies, 1);
	cr_assert_eq(seen.from, parent.ids[1]);
	cr_assert_eq(seen.to, child.ids[1]);
	cr_assert_eq(child.ids[0], parent.ids[0]);
	/* The plan in flight still holds the parent's last block; afterwards only the parent does. */
	cr_assert_eq(blocks_missing(b, &parent, 21, 20), 1);
	blocks_release(b, &later);
	cr_assert_eq(blocks_missing(b, &parent, 21, 20), 0);
	const struct block_table *tables[] = {&parent, &child};
	blocks_check(b, tables, 2, NULL, 0);
	block_table_fini(&parent);
	block_table_fini(&child);
	blocks_later_fini(&later);
	blocks_free(b);
}

Test(blocks, blocks_of_a_plan_are_freed_by_its_result)
{
	struct blocks *b = blocks_new(2, 16, false, 0);
	struct block_table t = {0};
	struct blocks_later later = {0};
	struct seen seen = {0};
	grow(b, &t, 32, 0, &seen, &later);
	blocks_drop(b, &t, &later);
	cr_assert_eq(blocks_n_free(b), 0);
	blocks_release(b, &later);
	cr_assert_eq(blocks_n_free(b), 2);
	block_table_fini(&t);
	blocks_later_fini(&later);
	blocks_free(b);
}

static void fill(uint32_t *tokens, uint32_t n, uint32_t first)
{
	for (uint32_t i = 0; i < n; i++)
		tokens[i] = first + i;
}

/* Compute and publish a sequence of n tokens. */
static void compute(struct blocks *b, struct block_table *t, const uint32_t *tokens, uint32_t n,
		    uint64_t salt)
{
	struct blocks_later later = {0};
	struct seen seen = {0};
	uint64_t chain = blocks_root(b, salt);
	grow(b, t, n, 0, &seen, &later);
	for (uint32_t i = 0; i < n / 16; i++)
		blocks_publish(b, t->ids[i], tokens + i * 16, &chain);
}

static uint32_t hits(struct blocks *b, const uint32_t *tokens, uint32_t max, uint64_t salt)
{
	struct block_table t = {0};
	uint64_t chain = blocks_root(b, salt);
	uint32_t n = blocks_match(b, &t, tokens, max, &chain);
	blocks_drop(b, &t, NULL);
	block_table_fini(&t);
	return n;
}

Test(prefix, what_is_forgotten_is_not_found_and_free)
{
	struct blocks *b = blocks_new(8, 16, true, 1);
	struct block_table t = {0}, held = {0};
	const struct block_table *tables[] = {&held};
	uint32_t tokens[64], others[64];
	fill(tokens, 64, 100);
	fill(others, 64, 900);
	compute(b, &t, tokens, 40, 0);
	compute(b, &held, others, 40, 0);
	blocks_drop(b, &t, NULL);
	cr_assert_eq(blocks_n_cached(b), 2);
	blocks_forget(b);
	blocks_check(b, tables, 1, NULL, 0);
	cr_expect_eq(blocks_n_cached(b), 0);
	cr_expect_eq(blocks_n_free(b), 5, "the three held blocks stay held");
	cr_expect_eq(hits(b, tokens, 3, 0), 0);
	cr_expect_eq(hits(b, others, 3, 0), 0, "nor what is held");
	blocks_drop(b, &held, NULL);
	cr_expect_eq(blocks_n_free(b) - blocks_n_cached(b), 8, "a held block is free when it is given up");
	compute(b, &t, tokens, 40, 0);
	cr_expect_eq(hits(b, tokens, 3, 0), 2, "what is computed later is found");
	blocks_drop(b, &t, NULL);
	block_table_fini(&t);
	block_table_fini(&held);
	blocks_free(b);
}

Test(prefix, computed_tokens_are_found)
{
	struct blocks *b = blocks_new(8, 16, true, 1);
	struct block_table t = {0};
	uint32_t tokens[64];
	fill(tokens, 64, 100);
	compute(b, &t, tokens, 40, 0);
	cr_assert_eq(hits(b, tokens, 3, 0), 2, "two blocks are full");
	blocks_drop(b, &t, NULL);
	cr_assert_eq(blocks_n_cached(b), 2);
	cr_assert_eq(blocks_n_free(b), 8);
	cr_assert_eq(hits(b, tokens, 3, 0), 2);
	tokens[20]++;
	cr_assert_eq(hits(b, tokens, 3, 0), 1, "the second block differs");
	tokens[0]++;
	tokens[20]--;
	cr_assert_eq(hits(b, tokens, 3, 0), 0, "the second block is the same, but not what is before it");
	const struct block_table *tables[] = {&t};
	blocks_check(b, tables, 1, NULL, 0);
	block_table_fini(&t);
	blocks_free(b);
}

Test(prefix, another_tenant_finds_nothing)
{
	struct blocks *b = blocks_new(8, 16, true, 1);
	struct block_table t = {0};
	uint32_t tokens[32];
	fill(tokens, 32, 5);
	compute(b, &t, tokens, 32, 77);
	cr_assert_eq(hits(b, tokens, 2, 77), 2);
	cr_assert_eq(hits(b, tokens, 2, 78), 0);
	block_table_fini(&t);
	blocks_free(b);
}

Test(prefix, eviction_takes_the_least_recently_used_from_its_end)
{
	struct blocks *b = blocks_new(4, 16, true, 1);
	struct block_table one = {0}, two = {0}, three = {0};
	uint32_t a[32], c[32], d[64];
	fill(a, 32, 0);
	fill(c, 32, 1000);
	fill(d, 64, 2000);
	compute(b, &one, a, 32, 0);
	compute(b, &two, c, 32, 0);
	blocks_drop(b, &one, NULL);
	blocks_drop(b, &two, NULL);
	cr_assert_eq(hits(b, a, 2, 0), 2, "which makes it the more recently used");
	compute(b, &three, d, 16, 0);
	cr_assert_eq(hits(b, c, 2, 0), 1, "its end went first");
	cr_assert_eq(hits(b, a, 2, 0), 2);
	blocks_drop(b, &three, NULL);
	compute(b, &three, d, 64, 0);
	cr_assert_eq(hits(b, a, 2, 0), 0, "all were needed");
	const struct block_table *tables[] = {&three};
	blocks_check(b, tables, 1, NULL, 0);
	block_table_fini(&one);
	block_table_fini(&two);
	block_table_fini(&three);
	blocks_free(b);
}

Test(prefix, tokens_computed_twice_at_a_time_are_indexed_once)
{
	struct blocks *b = blocks_new(8, 16, true, 1);
	struct block_table one = {0}, two = {0};
	uint32_t a[48];
	fill(a, 48, 0);
	compute(b, &one, a, 32, 0);
	compute(b, &two, a, 48, 0);
	cr_assert_eq(hits(b, a, 3, 0), 3, "the third block hangs on the first two of the other");
	blocks_drop(b, &two, NULL);
	cr_assert_eq(blocks_n_cached(b), 1);
	blocks_drop(b, &one, NULL);
	cr_assert_eq(blocks_n_cached(b), 3);
	block_table_fini(&one);
	block_table_fini(&two);
	blocks_free(b);
}

Test(prefix, a_block_behind_an_evicted_duplicate_is_indexed_again)
{
	struct blocks *b = blocks_new(6, 16, true, 1);
	struct block_table one = {0}, two = {0}, rest = {0};
	uint32_t a[48], c[32], d[64];
	fill(a, 48, 0);
	memcpy(c, a, 16 * sizeof *a); /* the first block of a, then its third */
	memcpy(c + 16, a + 32, 16 * sizeof *a);
	fill(d, 64, 1000);
	compute(b, &two, a, 16, 0);
	compute(b, &one, a, 32, 0); /* its second block follows one of two first blocks */
	blocks_drop(b, &two, NULL);
	compute(b, &rest, d, 64, 0);
	cr_assert_eq(hits(b, a, 2, 0), 0, "the twin was given out");
	blocks_drop(b, &rest, NULL);
	/* Published again from the beginning, as after a swap or fork, with one more block. */
	compute(b, &one, a, 48, 0);
	cr_assert_eq(hits(b, c, 2, 0), 1, "the third block was never computed behind the first");
	cr_assert_eq(hits(b, a, 3, 0), 3);
	const struct block_table *tables[] = {&one};
	blocks_check(b, tables, 1, NULL, 0);
	block_table_fini(&one);
	block_table_fini(&two);
	block_table_fini(&rest);
	blocks_free(b);
}
