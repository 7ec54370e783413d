/* Checked allocation: growing arrays, formatted text, the size guard. */
#include "base/alloc.h"
#include "base/buf.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

Test(alloc, array_grow_keeps_elements_and_doubles)
{
	uint32_t *v = NULL, cap = 0;
	unsigned n_moves = 0;
	for (uint32_t n = 0; n < 100000; n++) {
		uint32_t before = cap;
		array_grow(v, cap, n + 1);
		n_moves += cap != before;
		cr_assert_lt(n, cap);
		v[n] = n * 3;
	}
	for (uint32_t i = 0; i < 100000; i++)
		cr_assert_eq(v[i], i * 3);
	cr_expect_eq(cap, 1u << 17);
	cr_expect_eq(n_moves, 14, "16, 32, ..., 131072");
	free(v);
}

Test(alloc, pages_grow_keeps_elements)
{
	uint64_t *v = NULL;
	uint32_t cap = 0;
	for (uint32_t n = 0; n < 3u << 20; n++) {
		pages_grow(v, cap, n + 1);
		v[n] = n * UINT64_C(0x9e3779b97f4a7c15);
	}
	for (uint32_t n = 0; n < 3u << 20; n++)
		cr_assert_eq(v[n], n * UINT64_C(0x9e3779b97f4a7c15), "%u", n);
	pages_free(v, cap, sizeof *v);
	pages_free(NULL, 0, sizeof *v);
}

Test(alloc, array_grow_leaves_an_array_with_room_alone)
{
	size_t cap = 0;
	char *v = NULL;
	array_grow(v, cap, 0);
	cr_expect_null(v);
	array_grow(v, cap, 5);
	char *had = v;
	size_t had_cap = cap;
	unsigned long count = alloc_count();
	array_grow(v, cap, cap);
	cr_expect(v == had && cap == had_cap && alloc_count() == count);
	free(v);
}

Test(alloc, array_capacity_doubles_within_its_type)
{
	static const struct {
		size_t cap, n, most, want;
	} rows[] = {
		{0, 1, SIZE_MAX, 16},
		{16, 17, SIZE_MAX, 32},
		{10, 100, SIZE_MAX, 128},
		{16, 1000, SIZE_MAX, 1024},
		{0, 200, UINT8_MAX, UINT8_MAX},
		{0, 3, 10, 10},
		{(size_t)1 << 31, ((size_t)1 << 31) + 1, UINT32_MAX, UINT32_MAX},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		cr_expect_eq(array_capacity(rows[i].cap, rows[i].n, rows[i].most), rows[i].want, "row %zu",
			     i);
}

Test(alloc, a_length_beyond_the_capacitys_type_aborts, .signal = SIGABRT)
{
	uint8_t cap = 0;
	char *v = NULL;
	array_grow(v, cap, 256);
}

Test(alloc, bytes_that_overflow_abort, .signal = SIGABRT)
{
	size_t cap = 0;
	uint64_t *v = NULL;
	array_grow(v, cap, SIZE_MAX / 4);
}

Test(alloc, growth_under_the_guard_aborts, .signal = SIGABRT)
{
	uint32_t *v = NULL, cap = 0;
	alloc_guard(true);
	array_grow(v, cap, 1);
}

Test(alloc, formatted_text_is_the_same_in_memory_and_in_a_buffer)
{
	struct buf b = {0};
	char *s = xasprintf("%s=%d %0200d", "key", -7, 5);
	buf_puts(&b, "> ");
	buf_printf(&b, "%s=%d %0200d", "key", -7, 5);
	cr_expect_eq(strlen(s), 207);
	cr_expect_eq(b.len, 209);
	cr_expect_str_eq(b.p + 2, s);
	free(s);
	buf_fini(&b);
}

/* ---- areas that share slabs ---- */

enum { AREAS = 9, AREA = (11 << 20) + 100 };

Test(alloc, areas_beside_each_other_are_zeroed_and_do_not_overlap)
{
	unsigned char *p[AREAS];
	const size_t before = alloc_big_bytes();
	for (int round = 0; round < 2; round++) { /* two rounds, each larger than one slab */
		for (int i = 0; i < AREAS; i++) {
			cr_assert_not_null(p[i] = alloc_adjacent(AREA));
			cr_expect_eq((uintptr_t)p[i] % 64, 0);
			for (int at = 0; at < AREA; at += 4096)
				cr_assert_eq(p[i][at], 0);
			memset(p[i], i + 1, AREA);
		}
		cr_expect_eq(alloc_big_bytes(), before + (size_t)AREAS * AREA);
		for (int i = 0; i < AREAS; i++) {
			cr_expect_eq(p[i][0], i + 1);
			cr_expect_eq(p[i][AREA - 1], i + 1);
		}
		for (int i = 0; i < AREAS; i++)
			alloc_adjacent_free(p[(i * 2 + 3) % AREAS], AREA);
		cr_expect_eq(alloc_big_bytes(), before);
	}
}

Test(alloc, small_areas_share_a_huge_page)
{
	char *a = alloc_adjacent(1 << 20), *b = alloc_adjacent((1 << 20) - 4096);
	cr_expect_eq((uintptr_t)a >> 21, (uintptr_t)b >> 21);
	alloc_adjacent_free(a, 1 << 20);
	memset(b, 1, (1 << 20) - 4096); /* the neighbour must stay intact */
	alloc_adjacent_free(b, (1 << 20) - 4096);
	alloc_adjacent_free(NULL, 5);
}

Test(alloc, memory_beside_others_goes_back_with_the_last)
{
	char *a = alloc_adjacent(100), *b = alloc_adjacent(100);
	unsigned char in[1];
	alloc_adjacent_free(b, 100);
	cr_expect_eq(mincore((void *)((uintptr_t)a & ~(uintptr_t)4095), 1, in), 0);
	alloc_adjacent_free(a, 100);
	cr_expect_eq(mincore((void *)((uintptr_t)a & ~(uintptr_t)4095), 1, in), -1, "not mapped any more");
}

Test(alloc, an_area_beyond_all_slabs_is_one_of_its_own)
{
	const size_t bytes = (size_t)100 << 20, before = alloc_big_bytes();
	char *p = alloc_adjacent(bytes);
	cr_assert_not_null(p);
	p[bytes - 1] = 1;
	cr_expect_eq(alloc_big_bytes(), before + bytes);
	alloc_adjacent_free(p, bytes);
	cr_expect_eq(alloc_big_bytes(), before);
	cr_expect_null(alloc_adjacent(SIZE_MAX - 10));
}

Test(alloc, huge_pages_are_counted_as_the_system_tells)
{
	char dir[] = "/tmp/quern-alloc-XXXXXX", path[128], cmd[256];
	cr_assert_not_null(mkdtemp(dir));
	cr_expect_eq(alloc_huge_bytes(dir), -1, "no such file");
	snprintf(cmd, sizeof cmd, "mkdir -p %s/proc/self", dir);
	cr_assert_eq(system(cmd), 0);
	snprintf(path, sizeof path, "%s/proc/self/smaps_rollup", dir);
	FILE *f = fopen(path, "w");
	fputs("5581-7ffd ---p 00000000 00:00 0 [rollup]\nRss:  900 kB\nAnonHugePages:    6144 kB\nSwap: 7 "
	      "kB\n",
	      f);
	fclose(f);
	cr_expect_eq(alloc_huge_bytes(dir), 6144 * 1024);
	f = fopen(path, "w");
	fputs("Rss:  900 kB\n", f);
	fclose(f);
	cr_expect_eq(alloc_huge_bytes(dir), -1);
	snprintf(cmd, sizeof cmd, "rm -r %s", dir);
	cr_assert_eq(system(cmd), 0);
}
