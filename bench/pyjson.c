#include "bench/pyjson.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Write a float as repr(float): the fewest digits that parse as the same double; with an exponent below 1e-4
 * and from 1e16 on. */
static void put_real(struct buf *out, double x)
{
	char text[48], digits[24];
	int n = 0;
	for (int p = 0; p <= 16; p++) {
		snprintf(text, sizeof text, "%.*e", p, x);
		if (strtod(text, NULL) == x)
			break;
	}
	const char *e = strchr(text, 'e');
	const int exponent = atoi(e + 1);
	for (const char *c = text; c < e; c++)
		if (*c >= '0' && *c <= '9')
			digits[n++] = *c;
	digits[n] = 0;
	if (text[0] == '-')
		buf_putc(out, '-');
	if (exponent < -4 || exponent >= 16) {
		buf_printf(out, "%c%s%se%c%02d", digits[0], n > 1 ? "." : "", digits + 1,
			   exponent < 0 ? '-' : '+', abs(exponent));
	} else if (exponent < 0) {
		buf_printf(out, "0.%.*s%s", -exponent - 1, "000", digits);
	} else {
		for (int i = 0; i <= exponent; i++)
			buf_putc(out, i < n ? digits[i] : '0');
		buf_printf(out, ".%s", n > exponent + 1 ? digits + exponent + 1 : "0");
	}
}

static void put_string(struct buf *out, const char *p, size_t n)
{
	static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
	buf_putc(out, '"');
	for (size_t i = 0; i < n; i++) {
		const unsigned char c = (unsigned char)p[i];
		const char *at = c ? strchr(plain, c) : NULL;
		if (at)
			buf_printf(out, "\\%c", escaped[at - plain]);
		else if (c < 0x20)
			buf_printf(out, "\\u%04x", c);
		else
			buf_putc(out, (char)c);
	}
	buf_putc(out, '"');
}

void pyjson_put(struct buf *out, const json_t *v)
{
	const char *key, *between = "";
	json_t *part;
	switch (json_typeof(v)) {
	case JSON_NULL:
		buf_puts(out, "null");
		break;
	case JSON_TRUE:
		buf_puts(out, "true");
		break;
	case JSON_FALSE:
		buf_puts(out, "false");
		break;
	case JSON_INTEGER:
		buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		break;
	case JSON_REAL:
		put_real(out, json_real_value(v));
		break;
	case JSON_STRING:
		put_string(out, json_string_value(v), json_string_length(v));
		break;
	case JSON_ARRAY:
		buf_putc(out, '[');
		for (size_t i = 0; i < json_array_size(v); i++, between = ", ") {
			buf_puts(out, between);
			pyjson_put(out, json_array_get(v, i));
		}
		buf_putc(out, ']');
		break;
	case JSON_OBJECT:
		buf_putc(out, '{');
		json_object_foreach((json_t *)v, key, part)
		{
			buf_puts(out, between);
			put_string(out, key, strlen(key));
			buf_puts(out, ": ");
			pyjson_put(out, part);
			between = ", ";
		}
		buf_putc(out, '}');
		break;
	}
}
