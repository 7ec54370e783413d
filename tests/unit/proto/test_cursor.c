/* The limits of a cursor: each value is accepted up to its limit, and refused just above. */
#include "proto/cursor.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

static struct cursor c;

Test(cursor, a_string_fits_its_field_with_its_end)
{
	uint8_t bytes[] = {0xa4, 'f', 'o', 'u', 'r'};
	char out[6] = "?????";
	cursor_init(&c, bytes, sizeof bytes);
	cursor_str(&c, "name", out, 5);
	cr_expect_not(c.bad);
	cr_expect_str_eq(out, "four");
	memset(out, '?', sizeof out);
	cursor_init(&c, bytes, sizeof bytes);
	cursor_str(&c, "name", out, 4);
	cr_expect(c.bad);
	cr_expect_str_eq(c.what, "name: too long, or holds a NUL");
	cr_expect_eq(out[4], '?', "a byte beyond the field was written");
}

Test(cursor, a_signed_integer_holds_63_bits)
{
	uint8_t most[] = {0xcf, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	uint8_t beyond[] = {0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0};
	uint8_t least[] = {0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0};
	cursor_init(&c, most, sizeof most);
	cr_expect_eq(cursor_int(&c, "x", INT64_MIN, INT64_MAX), INT64_MAX);
	cr_expect_not(c.bad);
	cursor_init(&c, least, sizeof least);
	cr_expect_eq(cursor_int(&c, "x", INT64_MIN, INT64_MAX), INT64_MIN);
	cr_expect_not(c.bad);
	cursor_init(&c, beyond, sizeof beyond);
	cr_expect_eq(cursor_int(&c, "x", INT64_MIN, INT64_MAX), 0);
	cr_expect_str_eq(c.what, "x: out of range");
}

/* Skip n nested arrays with a number in the innermost. */
static bool skips(size_t n)
{
	uint8_t bytes[64];
	memset(bytes, 0x91, n);
	bytes[n] = 7;
	cursor_init(&c, bytes, n + 1);
	cursor_skip(&c);
	return !c.bad && c.p == c.end;
}

Test(cursor, values_to_skip_are_nested_16_deep)
{
	cr_expect(skips(0));
	cr_expect(skips(16));
	cr_expect_not(skips(17));
	cr_expect_str_eq(c.what, "nested too deep");
	cr_expect_not(skips(40));
}
