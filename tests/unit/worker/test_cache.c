/* test_cache.c - sizes of the paged cache's pools, on fake devices that only report numbers. */
#include "worker/cache.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct kern_info info;
static struct why why;

static void say_info(struct kern_dev *d, struct kern_info *out)
{
	(void)d;
	*out = info;
}

static int64_t block_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size)
{
	(void)d;
	return (int64_t)n_layers * 2 * n_kv_heads * head_dim * block_size * 2;
}

/* Attention's scratch: one byte for every 16 bytes of blocks. */
static int64_t scratch_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			     int n_blocks)
{
	return block_bytes(d, n_layers, n_kv_heads, head_dim, block_size) * n_blocks / 16;
}

static const struct kern_ops ops = {
	.info = say_info, .kv_block_bytes = block_bytes, .kv_scratch_bytes = scratch_bytes};
static const struct model_config model = {.n_layers = 2,
					  .layers = {{.kv_heads = 2, .dim = 64}, {.kv_heads = 2, .dim = 64}}};

static int size(struct cache *c, const struct model_config *m, uint64_t kv_bytes, uint64_t swap_bytes)
{
	const struct cache_args a = {.ops = &ops,
				     .model = m,
				     .block_size = 16,
				     .max_context = 1024,
				     .weights_bytes = 1 << 20,
				     .kv_bytes = kv_bytes,
				     .swap_bytes = swap_bytes};
	why.text[0] = '\0';
	return cache_size(c, &a, &why);
}

/* Size the pool from the memory that is left when everything else is loaded. */
static int size_last(struct cache *c, double fraction, uint64_t swap_bytes)
{
	const struct cache_args a = {.ops = &ops,
				     .model = &model,
				     .block_size = 16,
				     .max_context = 1024,
				     .swap_bytes = swap_bytes,
				     .fraction = fraction};
	why.text[0] = '\0';
	cr_assert(cache_sized_last(&a));
	return cache_size(c, &a, &why);
}

static void gpu(void)
{
	info = (struct kern_info){.bytes_total = 1 << 30,
				  .bytes_free = 1 << 29,
				  .head_max = 256,
				  .head_step = 8,
				  .steps_take_memory = true};
}

TestSuite(cache, .init = gpu);

Test(cache, a_pool_that_was_asked_for_is_given)
{
	struct cache c;
	cr_assert_eq(size(&c, &model, 1 << 20, 1 << 19), 0, "%s", why.text);
	cr_assert_eq(c.block_bytes, 16384);
	cr_assert_eq(c.n_blocks, 64);
	cr_assert_eq(c.n_host_blocks, 32);
}

Test(cache, a_pool_larger_than_the_device_is_refused_with_both_figures)
{
	struct cache c;
	cr_assert_eq(size(&c, &model, (uint64_t)1 << 31, 1), -ENOMEM);
	cr_assert(strstr(why.text, "2147483648") && strstr(why.text, "1073741824"), "%s", why.text);
}

Test(cache, a_pool_without_room_for_a_block_is_refused)
{
	struct cache c;
	cr_assert_eq(size(&c, &model, 100, 1), -ENOMEM);
	cr_assert(strstr(why.text, "16384"), "%s", why.text);
}

Test(cache, a_head_size_that_the_device_cannot_do_is_refused_by_its_number)
{
	struct cache c;
	struct model_config m = model;
	m.layers[0].dim = m.layers[1].dim = 320;
	cr_assert_eq(size(&c, &m, 1 << 20, 1), -ENOTSUP);
	cr_assert(strstr(why.text, "320") && strstr(why.text, "256"), "%s", why.text);
	m.layers[0].dim = m.layers[1].dim = 20;
	cr_assert_eq(size(&c, &m, 1 << 20, 1), -ENOTSUP);
	info.head_max = info.head_step = 0;
	cr_assert_eq(size(&c, &m, 1 << 20, 1), 0, "%s", why.text);
}

Test(cache, a_gpu_gives_its_fraction_less_what_is_in_use)
{
	struct cache c;
	info = (struct kern_info){.bytes_total = 1 << 30,
				  .bytes_free = 900 << 20,
				  .bytes_used = 100 << 20,
				  .steps_take_memory = true};
	cr_assert_eq(size_last(&c, 0.5, 1), 0, "%s", why.text);
	/* 412 MiB; scratch takes a sixteenth of them */
	cr_assert_eq(c.n_blocks, 412 * 64 - 412 * 64 / 16);
	cr_assert_eq(size_last(&c, 0, 1), 0, "%s", why.text);
	const int most = (int)((0.9 * (1 << 30) - (100 << 20)) / 16384);
	cr_assert_eq(c.n_blocks, (int)((0.9 * (1 << 30) - (100 << 20) - most * 1024.0) / 16384));
}

Test(cache, what_is_not_free_is_not_taken)
{
	struct cache c;
	info = (struct kern_info){.bytes_total = 1 << 30,
				  .bytes_free = 200 << 20,
				  .bytes_used = 100 << 20,
				  .steps_take_memory = true};
	cr_assert_eq(size_last(&c, 0.9, 1), 0, "%s", why.text);
	cr_assert_leq(c.n_blocks, (200 - 16) * 64); /* a 64th of the device stays free */
	cr_assert_geq(c.n_blocks, (200 - 16) * 60 - 1);
}

Test(cache, fewer_blocks_than_any_service_needs_are_refused)
{
	struct cache c;
	info = (struct kern_info){.bytes_total = 64 << 20,
				  .bytes_free = 40 << 20,
				  .bytes_used = (32 << 20) - 18 * 16384,
				  .steps_take_memory = true};
	cr_assert_eq(size_last(&c, 0.5, 1), 0, "%s", why.text);
	cr_assert_eq(c.n_blocks, 16); /* scratch takes the rest */
	info.bytes_used += 16384;
	cr_assert_eq(size_last(&c, 0.5, 1), -ENOMEM);
	cr_assert(strstr(why.text, "at least 16 are needed") && strstr(why.text, "50% (32 MiB)"), "%s",
		  why.text);
}

/* The swap pool is within the fraction as well. */
Test(cache, a_fraction_of_a_cpu_is_one_pool)
{
	struct cache c;
	const uint64_t swaps[] = {100 << 20, 1, 0};
	info = (struct kern_info){.bytes_total = 1 << 30, .bytes_free = 900 << 20, .bytes_used = 100 << 20};
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(size_last(&c, 0.5, swaps[i]), 0, "%s", why.text);
		cr_expect_eq(c.n_host_blocks, 0);
		cr_expect_eq(c.n_blocks, 412 * 64 - 412 * 64 / 16);
	}
}

Test(cache, weights_beyond_what_is_free_are_refused_before_they_are_loaded)
{
	const struct cache_args a = {.ops = &ops, .model = &model, .weights_bytes = (int64_t)600 << 20};
	cr_assert_eq(cache_check(&a, &why), -ENOMEM);
	cr_assert(strstr(why.text, "600 MiB") && strstr(why.text, "only 512 are free"), "%s", why.text);
}

/* --- a CPU without a given pool size --- */

static int size_cpu_with(struct cache *c, int64_t total, int64_t free_now, int max_context,
			 uint64_t swap_bytes)
{
	const struct cache_args a = {.ops = &ops,
				     .model = &model,
				     .block_size = 16,
				     .max_context = max_context,
				     .weights_bytes = 100 << 20,
				     .swap_bytes = swap_bytes};
	info = (struct kern_info){.bytes_total = total, .bytes_free = free_now};
	why.text[0] = '\0';
	return cache_size(c, &a, &why);
}

static int size_cpu(struct cache *c, int64_t total, int64_t free_now, int max_context)
{
	return size_cpu_with(c, total, free_now, max_context, 1);
}

/* A quarter of the memory, and the sixteenth that a swap pool would take. */
Test(cache, the_swap_pool_of_a_cpu_is_a_part_of_its_pool)
{
	struct cache with, without;
	const int64_t total = (int64_t)4096 << 20, free_now = (int64_t)3900 << 20;
	cr_assert_eq(size_cpu_with(&without, total, free_now, 1 << 20, 1), 0, "%s", why.text);
	cr_assert_eq(size_cpu_with(&with, total, free_now, 1 << 20, 0), 0, "%s", why.text);
	cr_expect_eq(with.n_blocks * 4, without.n_blocks * 5, "%d and %d blocks", with.n_blocks,
		     without.n_blocks);
	cr_expect_eq(with.n_host_blocks, 0);
	cr_assert_eq(size_cpu_with(&with, total, free_now, 1 << 20, 512 << 20), 0, "%s", why.text);
	cr_expect_eq(with.n_blocks, without.n_blocks + 512 * 64);
	cr_assert_eq(size(&with, &model, 64 << 20, 32 << 20), 0, "%s", why.text);
	cr_expect_eq(with.n_blocks, 96 * 64, "both that were asked for");
	cr_assert_eq(size(&with, &model, 64 << 20, 0), 0, "%s", why.text);
	cr_expect_eq(with.n_blocks, 64 * 64);
	cr_expect_eq(size(&with, &model, (uint64_t)3 << 30, (uint64_t)1 << 30), -ENOMEM,
		     "more than there is");
}

/* Other programs' use of memory differs from start to start. */
Test(cache, the_context_does_not_follow_the_memory_that_happens_to_be_free)
{
	struct cache c;
	const int64_t total = (int64_t)4001 << 20;
	cr_assert_eq(size_cpu(&c, total, (int64_t)3900 << 20, 1 << 20), 0, "%s", why.text);
	const int n_blocks = c.n_blocks;
	cr_expect_eq(n_blocks * 16, 1000 * 1024, "a quarter of the memory, in steps: %d tokens",
		     n_blocks * 16);
	for (int64_t mib = 3200; mib < 3900; mib += 7) {
		cr_assert_eq(size_cpu(&c, total, mib << 20, 1 << 20), 0, "%s", why.text);
		cr_expect_eq(c.n_blocks, n_blocks, "%lld MiB free: %d blocks", (long long)mib, c.n_blocks);
	}
	/* The kernel's share of memory differs from boot to boot. */
	cr_assert_eq(size_cpu(&c, total + (2 << 20), (int64_t)3900 << 20, 1 << 20), 0, "%s", why.text);
	cr_expect_eq(c.n_blocks, n_blocks);
}

Test(cache, a_pool_of_the_cpu_leaves_two_thirds_of_the_free_memory)
{
	struct cache c;
	for (int64_t mib = 200; mib < 4000; mib += 101) {
		cr_assert_eq(size_cpu(&c, (int64_t)4000 << 20, mib << 20, 1 << 20), 0, "%s", why.text);
		cr_expect_leq(c.n_blocks * c.block_bytes, (mib - 100) * (1 << 20) / 3, "%lld MiB free",
			      (long long)mib);
	}
	cr_expect_eq(size_cpu(&c, (int64_t)4000 << 20, 90 << 20, 1 << 20), -ENOMEM);
}

Test(cache, a_pool_of_the_cpu_holds_sixteen_contexts_at_most)
{
	struct cache c;
	cr_assert_eq(size_cpu(&c, (int64_t)4000 << 20, (int64_t)3900 << 20, 2048), 0, "%s", why.text);
	cr_expect_eq(c.n_blocks, 16 * 2048 / 16);
}

Test(cache, layers_of_different_shape_are_refused)
{
	struct model_config m = model;
	struct cache c;
	m.layers[1].kv_heads = 4;
	cr_expect_eq(size(&c, &m, 1 << 20, 1 << 19), -ENOTSUP);
	cr_expect(strstr(why.text, "layer 1 has 4 KV heads of 64 values, layer 0 has 2 of 64"), "%s",
		  why.text);
}

Test(cache, a_block_holds_the_layers_of_one_kind)
{
	const struct config_kinds kinds = {
		.kinds = {.n = 2, .window = {0, 128}}, .n_layers = 1, .kind = {0, 1}};
	struct cache_args a = {.ops = &ops,
			       .model = &model,
			       .block_size = 16,
			       .max_context = 1024,
			       .max_rows = 64,
			       .weights_bytes = 1 << 20,
			       .kv_bytes = 1 << 20};
	struct cache one, two;
	cr_assert_eq(cache_size(&one, &a, &why), 0, "%s", why.text);
	a.kinds = &kinds;
	cr_assert_eq(cache_size(&two, &a, &why), 0, "%s", why.text);
	cr_expect_eq(two.block_bytes, one.block_bytes / 2);
	cr_expect_eq(two.n_blocks, 2 * one.n_blocks);
	cr_expect(two.kinds.n == 2 && two.kinds.window[1] == 128 && one.kinds.n == 1);
	a.kv_bytes = (uint64_t)two.block_bytes; /* a block, but none of the other kind */
	cr_expect_eq(cache_size(&two, &a, &why), -ENOMEM);
}
