/* utf8.h - UTF-8: validated once on input, read without checks from then on, repaired (U+FFFD) on output.
 * RFC 3629; replacement as in the Unicode Standard, chapter 3, "maximal subpart". */
#ifndef QUERN_BASE_UTF8_H
#define QUERN_BASE_UTF8_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

/* Return the length of the longest prefix of p[0..n) that is whole, valid characters; n if all are valid. */
size_t utf8_valid(const char *p, size_t n);

/* Classify the beginning of p[0..n), n > 0.  > 0: the bytes of a valid character.  < 0: that many bytes that
 * cannot become valid.  0: a character that is cut off by the end of the text. */
int utf8_classify(const char *p, size_t n);

/* Append p[0..n), with U+FFFD in place of each maximal invalid sequence.  An unfinished character at the end
 * is left out.  Returns the number of bytes used. */
size_t utf8_put_lossy(struct buf *out, const char *p, size_t n);
void utf8_put_replacement(struct buf *out);

/* Encode cp (a Unicode scalar value) into s; returns the number of bytes, 1 to 4. */
int utf8_encode(uint32_t cp, char s[4]);

/* Count the characters that begin in p[0..n), of text that is valid except for its ends. */
static inline size_t utf8_chars(const char *p, size_t n)
{
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		k += ((unsigned char)p[i] & 0xc0) != 0x80;
	return k;
}

/* Decode the character at p, in text known to be valid; *len is its bytes. */
static inline uint32_t utf8_at(const char *p, int *len)
{
	const unsigned char *s = (const unsigned char *)p;
	if (s[0] < 0x80) {
		*len = 1;
		return s[0];
	}
	if (s[0] < 0xe0) {
		*len = 2;
		return (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f);
	}
	if (s[0] < 0xf0) {
		*len = 3;
		return (uint32_t)(s[0] & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
	}
	*len = 4;
	return (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 | (uint32_t)(s[2] & 0x3f) << 6 |
	       (s[3] & 0x3f);
}

/* Decode the character that ends at p + at (at > 0), in text known to be valid; *len is its bytes. */
static inline uint32_t utf8_before(const char *p, size_t at, int *len)
{
	size_t i = at - 1;
	while (i > 0 && ((unsigned char)p[i] & 0xc0) == 0x80)
		i--;
	return utf8_at(p + i, len);
}

#endif
