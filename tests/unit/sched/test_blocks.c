/* The block manager: counts agree, and shared blocks are copied before they are written. */
#include "controller/sched/blocks.h"

#include <criterion/criterion.h>
#include <string.h>

struct seen {
	uint32_t n_entries, n_copies, from, to;
};

static void on_entry(void *user, uint32_t kind, uint32_t logical, uint32_t block)
{
	(void)kind;
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

/* A pool with a prefix cache. */
struct cached {
	struct contents *c;
	struct blocks *b;
};

/* n_host: blocks of a host pool, which is not used.  There are as many nodes more. */
static struct cached open_beside(uint32_t n, uint32_t n_host)
{
	struct contents *c = contents_new((uint32_t[STORES]){n, n_host}, 16, &KINDS_ONE, true, 1);
	return (struct cached){c, blocks_new(n, 16, &KINDS_ONE, c, STORE_DEVICE)};
}

static struct cached open_cached(uint32_t n)
{
	return open_beside(n, 0);
}

static void close_cached(struct cached *p)
{
	contents_check(p->c, NULL, 0);
	blocks_free(p->b);
	contents_free(p->c);
}

Test(blocks, a_sequence_takes_a_block_when_the_last_is_full)
{
	struct cached p = open_cached(4);
	struct blocks *b = p.b;
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
	close_cached(&p);
}

Test(blocks, a_writer_into_a_shared_block_gets_a_copy)
{
	struct cached p = open_cached(4);
	struct blocks *b = p.b;
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
	close_cached(&p);
}

Test(blocks, blocks_of_a_plan_are_freed_by_its_result)
{
	struct cached p = open_cached(2);
	struct blocks *b = p.b;
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
	close_cached(&p);
}

static void fill(uint32_t *tokens, uint32_t n, uint32_t first)
{
	for (uint32_t i = 0; i < n; i++)
		tokens[i] = first + i;
}

/* Compute a sequence of n tokens, and name its full blocks. */
static void compute(struct cached *p, struct block_table *t, const uint32_t *tokens, uint32_t n,
		    uint64_t salt)
{
	struct blocks_later later = {0};
	struct seen seen = {0};
	const struct contents_root root = {.salt = salt};
	int32_t at = CONTENTS_NONE;
	grow(p->b, t, n, 0, &seen, &later);
	for (uint32_t i = 0; i < n / 16; i++) {
		at = contents_add(p->c, &root, at, tokens + i * 16);
		cr_assert_neq(at, CONTENTS_NONE);
		if (contents_at(p->c, at, 0, STORE_DEVICE) == CONTENTS_NONE)
			contents_put(p->c, at, 0, STORE_DEVICE, t->ids[i]);
	}
	contents_release(p->c, at);
}

static uint32_t hits(struct cached *p, const uint32_t *tokens, uint32_t max, uint64_t salt)
{
	struct block_table t = {0};
	const struct contents_root root = {.salt = salt};
	block_table_reserve(p->b, &t, max);
	const uint32_t n = contents_match(p->c, &root, tokens, max, false, t.ids).n;
	for (; t.n < n; t.n++)
		blocks_ref(p->b, t.ids[t.n]);
	blocks_drop(p->b, &t, NULL);
	block_table_fini(&t);
	return n;
}

Test(prefix, what_is_forgotten_is_not_found_and_free)
{
	struct cached p = open_cached(8);
	struct blocks *b = p.b;
	struct block_table t = {0}, held = {0};
	const struct block_table *tables[] = {&held};
	uint32_t tokens[64], others[64];
	fill(tokens, 64, 100);
	fill(others, 64, 900);
	compute(&p, &t, tokens, 40, 0);
	compute(&p, &held, others, 40, 0);
	blocks_drop(b, &t, NULL);
	cr_assert_eq(blocks_n_cached(b), 2);
	contents_forget(p.c);
	blocks_forget(b);
	blocks_check(b, tables, 1, NULL, 0);
	cr_expect_eq(blocks_n_cached(b), 0);
	cr_expect_eq(blocks_n_free(b), 5, "the three held blocks stay held");
	cr_expect_eq(hits(&p, tokens, 3, 0), 0);
	cr_expect_eq(hits(&p, others, 3, 0), 0, "nor what is held");
	blocks_drop(b, &held, NULL);
	cr_expect_eq(blocks_n_free(b) - blocks_n_cached(b), 8, "a held block is free when it is given up");
	compute(&p, &t, tokens, 40, 0);
	cr_expect_eq(hits(&p, tokens, 3, 0), 2, "what is computed later is found");
	blocks_drop(b, &t, NULL);
	block_table_fini(&t);
	block_table_fini(&held);
	close_cached(&p);
}

Test(prefix, computed_tokens_are_found)
{
	struct cached p = open_cached(8);
	struct blocks *b = p.b;
	struct block_table t = {0};
	uint32_t tokens[64];
	fill(tokens, 64, 100);
	compute(&p, &t, tokens, 40, 0);
	cr_assert_eq(hits(&p, tokens, 3, 0), 2, "two blocks are full");
	blocks_drop(b, &t, NULL);
	cr_assert_eq(blocks_n_cached(b), 2);
	cr_assert_eq(blocks_n_free(b), 8);
	cr_assert_eq(hits(&p, tokens, 3, 0), 2);
	tokens[20]++;
	cr_assert_eq(hits(&p, tokens, 3, 0), 1, "the second block differs");
	tokens[0]++;
	tokens[20]--;
	cr_assert_eq(hits(&p, tokens, 3, 0), 0, "the second block is the same, but not what is before it");
	const struct block_table *tables[] = {&t};
	blocks_check(b, tables, 1, NULL, 0);
	block_table_fini(&t);
	close_cached(&p);
}

Test(prefix, another_tenant_finds_nothing)
{
	struct cached p = open_cached(8);
	struct block_table t = {0};
	uint32_t tokens[32];
	fill(tokens, 32, 5);
	compute(&p, &t, tokens, 32, 77);
	cr_assert_eq(hits(&p, tokens, 2, 77), 2);
	cr_assert_eq(hits(&p, tokens, 2, 78), 0);
	block_table_fini(&t);
	close_cached(&p);
}

Test(prefix, eviction_takes_the_least_recently_used_from_its_end)
{
	struct cached p = open_cached(4);
	struct blocks *b = p.b;
	struct block_table one = {0}, two = {0}, three = {0};
	uint32_t a[32], c[32], d[64];
	fill(a, 32, 0);
	fill(c, 32, 1000);
	fill(d, 64, 2000);
	compute(&p, &one, a, 32, 0);
	compute(&p, &two, c, 32, 0);
	blocks_drop(b, &one, NULL);
	blocks_drop(b, &two, NULL);
	cr_assert_eq(hits(&p, a, 2, 0), 2, "which makes it the more recently used");
	compute(&p, &three, d, 16, 0);
	cr_assert_eq(hits(&p, c, 2, 0), 1, "its end went first");
	cr_assert_eq(hits(&p, a, 2, 0), 2);
	blocks_drop(b, &three, NULL);
	compute(&p, &three, d, 64, 0);
	cr_assert_eq(hits(&p, a, 2, 0), 0, "all were needed");
	const struct block_table *tables[] = {&three};
	blocks_check(b, tables, 1, NULL, 0);
	block_table_fini(&one);
	block_table_fini(&two);
	block_table_fini(&three);
	close_cached(&p);
}

Test(prefix, retained_blocks_are_evicted_after_all_others)
{
	struct cached p = open_beside(4, 1); /* a node of a lost block is held */
	struct blocks *b = p.b;
	struct block_table one = {0}, two = {0}, three = {0};
	uint32_t a[32], c[32], d[64];
	fill(a, 32, 0);
	fill(c, 32, 1000);
	fill(d, 64, 2000);
	compute(&p, &one, a, 32, 0);
	compute(&p, &two, c, 32, 0);
	const int32_t nodes[] = {contents_node(p.c, STORE_DEVICE, one.ids[0]),
				 contents_node(p.c, STORE_DEVICE, one.ids[1])};
	for (int i = 0; i < 2; i++)
		contents_hold(p.c, nodes[i]);
	blocks_retain(b, nodes[1], 0);
	blocks_drop(b, &one, NULL);
	blocks_retain(b, nodes[0], 0); /* in the cache already */
	blocks_drop(b, &two, NULL);
	cr_expect_eq(blocks_n_retained(b), 2);
	cr_expect_eq(blocks_n_cached(b), 4);
	compute(&p, &three, d, 32, 0);
	cr_expect_eq(hits(&p, c, 2, 0), 0, "though used more recently");
	cr_expect_eq(hits(&p, a, 2, 0), 2);
	cr_expect_eq(blocks_n_lost(b), 0);
	contents_forget(p.c);
	blocks_forget(b);
	cr_expect_eq(blocks_n_retained(b), 2, "not forgotten");
	compute(&p, &two, c, 16, 0);
	cr_expect_eq(contents_at(p.c, nodes[1], 0, STORE_DEVICE), CONTENTS_NONE,
		     "the end of the chain goes first");
	cr_expect_neq(contents_at(p.c, nodes[0], 0, STORE_DEVICE), CONTENTS_NONE);
	cr_expect_eq(blocks_n_lost(b), 1);
	for (int i = 0; i < 2; i++) {
		blocks_unretain(b, nodes[i], 0);
		contents_release(p.c, nodes[i]);
	}
	cr_expect_eq(blocks_n_cached(b), 0, "what is forgotten is not kept");
	const struct block_table *tables[] = {&two, &three};
	blocks_check(b, tables, 2, NULL, 0);
	blocks_drop(b, &two, NULL);
	blocks_drop(b, &three, NULL);
	block_table_fini(&one);
	block_table_fini(&two);
	block_table_fini(&three);
	close_cached(&p);
}

Test(prefix, tokens_computed_twice_at_a_time_are_indexed_once)
{
	struct cached p = open_cached(8);
	struct blocks *b = p.b;
	struct block_table one = {0}, two = {0};
	uint32_t a[48];
	fill(a, 48, 0);
	compute(&p, &one, a, 32, 0);
	compute(&p, &two, a, 48, 0);
	cr_assert_eq(hits(&p, a, 3, 0), 3, "the third block hangs on the first two of the other");
	blocks_drop(b, &two, NULL);
	cr_assert_eq(blocks_n_cached(b), 1);
	blocks_drop(b, &one, NULL);
	cr_assert_eq(blocks_n_cached(b), 3);
	block_table_fini(&one);
	block_table_fini(&two);
	close_cached(&p);
}

/* The names of duplicates: a block follows the twin of its predecessor, which is evicted. */
Test(prefix, a_block_after_an_evicted_twin_is_found_once_the_twin_is_computed_again)
{
	struct cached p = open_cached(6);
	struct blocks *b = p.b;
	struct block_table one = {0}, two = {0}, rest = {0};
	uint32_t a[48], c[32], d[64];
	fill(a, 48, 0);
	memcpy(c, a, 16 * sizeof *a); /* the first block of a, then its third */
	memcpy(c + 16, a + 32, 16 * sizeof *a);
	fill(d, 64, 1000);
	compute(&p, &two, a, 16, 0);
	compute(&p, &one, a, 32, 0); /* its second block follows one of two first blocks */
	blocks_drop(b, &two, NULL);
	compute(&p, &rest, d, 64, 0);
	cr_assert_eq(hits(&p, a, 2, 0), 0, "the twin was taken");
	blocks_drop(b, &rest, NULL);
	compute(&p, &one, a, 48, 0);
	cr_assert_eq(hits(&p, c, 2, 0), 1, "the third block was never computed after the first");
	cr_assert_eq(hits(&p, a, 3, 0), 3);
	const struct block_table *tables[] = {&one};
	blocks_check(b, tables, 1, NULL, 0);
	block_table_fini(&one);
	block_table_fini(&two);
	block_table_fini(&rest);
	close_cached(&p);
}

/* ---- kinds ---- */

/* Kind 1 has a window of 20 positions: position 60 reads from position 41 on, which is in row 2. */
Test(blocks, blocks_before_a_window_are_given_up)
{
	const struct kinds kinds = {.n = 2, .window = {0, 20}};
	struct contents *c = contents_new((uint32_t[STORES]){16}, 16, &kinds, true, 1);
	struct blocks *b = blocks_new(16, 16, &kinds, c, STORE_DEVICE);
	struct block_table t = {0}, other = {0};
	struct blocks_later later = {0};
	struct seen seen = {0};
	cr_expect_eq(blocks_missing(b, &t, 64, 0), 8);
	grow(b, &t, 64, 0, &seen, &later);
	cr_expect(t.n == 4 && blocks_held(b, &t) == 8 && seen.n_entries == 8);
	blocks_trim(b, &t, 60, NULL, 0, &later);
	cr_expect(t.ids[1] == (uint32_t)CONTENTS_NONE && t.ids[3] == (uint32_t)CONTENTS_NONE);
	cr_expect(t.ids[5] != (uint32_t)CONTENTS_NONE && blocks_held(b, &t) == 6);
	cr_expect(blocks_reach(b, &t, 60) && !blocks_reach(b, &t, 40));
	cr_expect_eq(blocks_n_free(b), 8, "until the plan's result");
	blocks_release(b, &later);
	cr_expect_eq(blocks_n_free(b), 10);
	blocks_share(b, &other, &t, 4);
	cr_expect_eq(blocks_held(b, &other), 6);
	const struct block_table *tables[] = {&t, &other};
	blocks_check(b, tables, 2, NULL, 0);
	blocks_trim(b, &t, 30, NULL, 0, NULL);
	cr_expect_eq(blocks_held(b, &t), 6, "an earlier position changes nothing");
	blocks_drop(b, &t, NULL);
	blocks_drop(b, &other, NULL);
	cr_expect_eq(blocks_n_free(b), 16);
	block_table_fini(&t);
	block_table_fini(&other);
	blocks_later_fini(&later);
	blocks_free(b);
	contents_free(c);
}
