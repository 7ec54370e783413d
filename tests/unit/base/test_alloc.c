/* Checked allocation: growing arrays, formatted text, the guard. */
#include "base/alloc.h"
#include "base/buf.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
