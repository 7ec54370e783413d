/* The block manager: counts agree, shared blocks are copied before they are written. */
#include "controller/blocks.h"

#include <criterion/criterion.h>

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
	struct blocks *b = blocks_new(4, 16);
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
	struct blocks *b = blocks_new(4, 16);
	struct block_table parent = {0}, child = {0};
	struct blocks_later later = {0};
	struct seen seen = {0};
	grow(b, &parent, 20, 0, &seen, &later);
	blocks_share(b, &child, &parent, 2);
	cr_assert_eq(blocks_n_free(b), 2);
	/* Position 20 lies in the second block; the first one stays shared. */
	cr_assert_eq(blocks_missing(b, &child, 21, 20), 1);
	grow(b, &child, 21, 20, &seen, &later);
	cr_assert_eq(seen.n_copies, 1);
	cr_assert_eq(seen.from, parent.ids[1]);
	cr_assert_eq(seen.to, child.ids[1]);
	cr_assert_eq(child.ids[0], parent.ids[0]);
	/* The parent's tail still counts for the plan under way, then it is the parent's alone. */
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

Test(blocks, what_a_plan_may_use_is_free_only_after_its_result)
{
	struct blocks *b = blocks_new(2, 16);
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
