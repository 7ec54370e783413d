#include "proto/cursor.h"

#include <stdio.h>
#include <string.h>

enum { SKIP_DEPTH_MAX = 16 };

void cursor_init(struct cursor *c, const void *bytes, size_t n)
{
	*c = (struct cursor){.p = bytes, .end = (const uint8_t *)bytes + n};
}

void cursor_fail(struct cursor *c, const char *what)
{
	if (c->bad)
		return;
	c->bad = true;
	snprintf(c->what, sizeof c->what, "%s", what);
}

static void fail_name(struct cursor *c, const char *name, const char *what)
{
	char text[96];
	snprintf(text, sizeof text, "%s: %s", name, what);
	cursor_fail(c, text);
}

/* Consume n bytes; return them, or NULL. */
static const uint8_t *take(struct cursor *c, size_t n)
{
	if (c->bad)
		return NULL;
	if ((size_t)(c->end - c->p) < n) {
		cursor_fail(c, "the message is cut short");
		return NULL;
	}
	const uint8_t *p = c->p;
	c->p += n;
	return p;
}

static uint64_t big_endian(struct cursor *c, size_t n)
{
	const uint8_t *p = take(c, n);
	uint64_t x = 0;
	for (size_t i = 0; p && i < n; i++)
		x = x << 8 | p[i];
	return x;
}

static int tag(struct cursor *c)
{
	const uint8_t *p = take(c, 1);
	return p ? *p : -1;
}

uint32_t cursor_array(struct cursor *c, const char *name)
{
	int t = tag(c);
	if (t >= 0x90 && t <= 0x9f)
		return (uint32_t)t & 15;
	if (t == 0xdc)
		return (uint32_t)big_endian(c, 2);
	if (t == 0xdd)
		return (uint32_t)big_endian(c, 4);
	fail_name(c, name, "not an array");
	return 0;
}

uint32_t cursor_map(struct cursor *c, const char *name)
{
	int t = tag(c);
	if (t >= 0x80 && t <= 0x8f)
		return (uint32_t)t & 15;
	if (t == 0xde)
		return (uint32_t)big_endian(c, 2);
	if (t == 0xdf)
		return (uint32_t)big_endian(c, 4);
	fail_name(c, name, "not a map");
	return 0;
}

/* Read an integer; *neg: the value is a negative int64. */
static uint64_t integer(struct cursor *c, const char *name, bool *neg)
{
	int t = tag(c);
	int64_t s;
	*neg = false;
	if (t >= 0 && t <= 0x7f)
		return (uint64_t)t;
	switch (t) {
	case 0xcc:
		return big_endian(c, 1);
	case 0xcd:
		return big_endian(c, 2);
	case 0xce:
		return big_endian(c, 4);
	case 0xcf:
		return big_endian(c, 8);
	case 0xd0:
		s = (int8_t)big_endian(c, 1);
		break;
	case 0xd1:
		s = (int16_t)big_endian(c, 2);
		break;
	case 0xd2:
		s = (int32_t)big_endian(c, 4);
		break;
	case 0xd3:
		s = (int64_t)big_endian(c, 8);
		break;
	default:
		if (t < 0xe0) {
			fail_name(c, name, "not an integer");
			return 0;
		}
		s = (int8_t)t;
	}
	*neg = s < 0;
	return (uint64_t)s;
}

uint64_t cursor_uint(struct cursor *c, const char *name, uint64_t hi)
{
	bool neg;
	uint64_t x = integer(c, name, &neg);
	if (!c->bad && (neg || x > hi)) {
		fail_name(c, name, "out of range");
		return 0;
	}
	return x;
}

int64_t cursor_int(struct cursor *c, const char *name, int64_t lo, int64_t hi)
{
	bool neg;
	uint64_t x = integer(c, name, &neg);
	if (c->bad)
		return 0;
	if ((!neg && x > INT64_MAX) || (int64_t)x < lo || (int64_t)x > hi) {
		fail_name(c, name, "out of range");
		return 0;
	}
	return (int64_t)x;
}

double cursor_float(struct cursor *c, const char *name)
{
	int t = tag(c);
	if (t == 0xca) {
		uint32_t bits = (uint32_t)big_endian(c, 4);
		float f;
		memcpy(&f, &bits, sizeof f);
		return f;
	}
	if (t == 0xcb) {
		uint64_t bits = big_endian(c, 8);
		double d;
		memcpy(&d, &bits, sizeof d);
		return d;
	}
	fail_name(c, name, "not a float");
	return 0;
}

bool cursor_bool(struct cursor *c, const char *name)
{
	int t = tag(c);
	if (t != 0xc2 && t != 0xc3)
		fail_name(c, name, "not true or false");
	return t == 0xc3;
}

void cursor_str(struct cursor *c, const char *name, char *out, size_t n)
{
	int t = tag(c);
	size_t len = 0;
	out[0] = '\0';
	if (t >= 0xa0 && t <= 0xbf)
		len = (size_t)t & 31;
	else if (t == 0xd9)
		len = big_endian(c, 1);
	else if (t == 0xda)
		len = big_endian(c, 2);
	else if (t == 0xdb)
		len = big_endian(c, 4);
	else
		fail_name(c, name, "not a string");
	const uint8_t *p = take(c, len);
	if (!p)
		return;
	if (len >= n || memchr(p, 0, len)) {
		fail_name(c, name, "too long, or holds a NUL");
		return;
	}
	memcpy(out, p, len);
	out[len] = '\0';
}

const void *cursor_bin(struct cursor *c, const char *name, size_t size, size_t max, uint32_t *count)
{
	int t = tag(c);
	size_t len = 0;
	*count = 0;
	if (t >= 0xc4 && t <= 0xc6)
		len = big_endian(c, (size_t)1 << (t - 0xc4));
	else
		fail_name(c, name, "not a blob");
	if (!c->bad && (len % size || len / size > max)) {
		fail_name(c, name, "a blob of the wrong size");
		return NULL;
	}
	const uint8_t *p = take(c, len);
	if (p)
		*count = (uint32_t)(len / size);
	return p;
}

/* Skip a value that is nested `depth` deep. */
static void skip_depth(struct cursor *c, int depth)
{
	if (depth > SKIP_DEPTH_MAX) {
		cursor_fail(c, "nested too deep");
		return;
	}
	int t = tag(c);
	uint64_t children = 0;
	if (t < 0x80 || t >= 0xe0)
		return;
	if (t <= 0x8f)
		children = 2 * ((uint64_t)t & 15);
	else if (t <= 0x9f)
		children = (uint64_t)t & 15;
	else if (t <= 0xbf)
		take(c, (size_t)t & 31);
	else if (t <= 0xc3)
		return; /* nil, false, true; 0xc1 is not a value, and is skipped as well */
	else if (t <= 0xc6)
		take(c, big_endian(c, (size_t)1 << (t - 0xc4)));
	else if (t <= 0xc9)
		take(c, big_endian(c, (size_t)1 << (t - 0xc7)) + 1);
	else if (t <= 0xcb)
		take(c, t == 0xca ? 4 : 8);
	else if (t <= 0xd3)
		take(c, (size_t)1 << ((t - 0xcc) & 3));
	else if (t <= 0xd8)
		take(c, ((size_t)1 << (t - 0xd4)) + 1);
	else if (t <= 0xdb)
		take(c, big_endian(c, (size_t)1 << (t - 0xd9)));
	else if (t <= 0xdd)
		children = big_endian(c, t == 0xdc ? 2 : 4);
	else
		children = 2 * big_endian(c, t == 0xde ? 2 : 4);
	for (uint64_t i = 0; i < children && !c->bad; i++)
		skip_depth(c, depth + 1);
}

void cursor_skip(struct cursor *c)
{
	skip_depth(c, 0);
}
