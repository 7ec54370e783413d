#include "base/json_write.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Return whether a byte needs no escape within quotes: printable ASCII except quote and backslash. */
static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void put_escape(struct buf *b, unsigned char c)
{
	switch (c) {
	case '"':
		buf_puts(b, "\\\"");
		break;
	case '\\':
		buf_puts(b, "\\\\");
		break;
	case '\n':
		buf_puts(b, "\\n");
		break;
	case '\r':
		buf_puts(b, "\\r");
		break;
	case '\t':
		buf_puts(b, "\\t");
		break;
	default:
		buf_printf(b, "\\u%04x", c);
	}
}

void json_write_string(struct buf *b, const char *s, size_t n)
{
	buf_reserve(b, n + 2);
	buf_putc(b, '"');
	for (size_t i = 0; i < n;) {
		size_t run = i;
		while (run < n && is_plain((unsigned char)s[run]))
			run++;
		buf_put(b, s + i, run - i);
		i = run;
		if (i == n)
			break;
		unsigned char c = (unsigned char)s[i];
		if (c < 0x80) {
			put_escape(b, c);
			i++;
			continue;
		}
		int len = utf8_classify(s + i, n - i);
		if (len > 0)
			buf_put(b, s + i, (size_t)len);
		else
			utf8_put_replacement(b);
		/* A truncated character at the end becomes one U+FFFD. */
		i = len ? i + (size_t)abs(len) : n;
	}
	buf_putc(b, '"');
}

void json_write_str(struct buf *b, const char *s)
{
	if (s)
		json_write_string(b, s, strlen(s));
	else
		buf_puts(b, "null");
}

void json_write_uint(struct buf *b, uint64_t x)
{
	char digits[20];
	size_t n = sizeof digits;
	do
		digits[--n] = (char)('0' + x % 10);
	while (x /= 10);
	buf_put(b, digits + n, sizeof digits - n);
}

void json_write_int(struct buf *b, int64_t x)
{
	if (x < 0)
		buf_putc(b, '-');
	json_write_uint(b, x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
}

void json_write_float(struct buf *b, float x)
{
	buf_printf(b, "%.9g", (double)x);
}

void json_write_ids(struct buf *b, const uint32_t *ids, size_t n)
{
	buf_putc(b, '[');
	for (size_t i = 0; i < n; i++) {
		if (i)
			buf_putc(b, ',');
		json_write_uint(b, ids[i]);
	}
	buf_putc(b, ']');
}
