#include "base/utf8.h"

#include <string.h>

/* Return the length of a character from its first byte, 0 if invalid, and the range of the second byte.  The
 * range excludes surrogates, overlong forms and values beyond U+10FFFF.  Later bytes are 80..bf. */
static int lead(unsigned char b, unsigned char *lo, unsigned char *hi)
{
	*lo = 0x80;
	*hi = 0xbf;
	if (b < 0x80)
		return 1;
	if (b < 0xc2)
		return 0;
	if (b < 0xe0)
		return 2;
	if (b < 0xf0) {
		if (b == 0xe0)
			*lo = 0xa0;
		else if (b == 0xed)
			*hi = 0x9f;
		return 3;
	}
	if (b == 0xf0)
		*lo = 0x90;
	else if (b == 0xf4)
		*hi = 0x8f;
	return b < 0xf5 ? 4 : 0;
}

int utf8_classify(const char *p, size_t n)
{
	const unsigned char *s = (const unsigned char *)p;
	unsigned char lo, hi;
	int len = lead(s[0], &lo, &hi);
	if (len == 0)
		return -1;
	for (int i = 1; i < len; i++) {
		if ((size_t)i == n)
			return 0;
		if (s[i] < lo || s[i] > hi)
			return -i;
		lo = 0x80;
		hi = 0xbf;
	}
	return len;
}

size_t utf8_valid(const char *p, size_t n)
{
	size_t i = 0;
	while (i < n) {
		uint64_t w;
		if (i + 8 <= n && (memcpy(&w, p + i, 8), (w & 0x8080808080808080u) == 0)) {
			i += 8;
			continue;
		}
		int len = utf8_classify(p + i, n - i);
		if (len <= 0)
			return i;
		i += (size_t)len;
	}
	return n;
}

void utf8_put_replacement(struct buf *out)
{
	buf_put(out, "\xef\xbf\xbd", 3);
}

size_t utf8_put_lossy(struct buf *out, const char *p, size_t n)
{
	size_t i = 0;
	while (i < n) {
		size_t ok = utf8_valid(p + i, n - i);
		if (ok > 0)
			buf_put(out, p + i, ok);
		i += ok;
		if (i == n)
			break;
		int len = utf8_classify(p + i, n - i);
		if (len == 0)
			return i;
		utf8_put_replacement(out);
		i += (size_t)-len;
	}
	return n;
}

int utf8_encode(uint32_t cp, char s[4])
{
	if (cp < 0x80) {
		s[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		s[0] = (char)(0xc0 | cp >> 6);
		s[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		s[0] = (char)(0xe0 | cp >> 12);
		s[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		s[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	s[0] = (char)(0xf0 | cp >> 18);
	s[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	s[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	s[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}
