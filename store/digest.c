#include "store/digest.h"

#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>

/* Abort if the library lacks SHA-256, or memory for it. */
struct digest *digest_new(void)
{
	gnutls_hash_hd_t h;
	if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
		abort();
	return (struct digest *)h;
}

void digest_add(struct digest *d, const void *p, size_t n)
{
	if (n && gnutls_hash((gnutls_hash_hd_t)d, p, n) < 0)
		abort();
}

void digest_end(struct digest *d, uint8_t out[DIGEST_BYTES])
{
	gnutls_hash_deinit((gnutls_hash_hd_t)d, out);
}

void digest_drop(struct digest *d)
{
	uint8_t unused[DIGEST_BYTES];
	if (d)
		digest_end(d, unused);
}

void digest_hex(const uint8_t *bytes, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[2 * n] = '\0';
}

static int value_of(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool digest_read(const char *text, uint8_t out[DIGEST_BYTES])
{
	for (size_t i = 0; i < DIGEST_BYTES; i++) {
		const int high = value_of(text[2 * i]), low = high < 0 ? -1 : value_of(text[2 * i + 1]);
		if (low < 0)
			return false;
		out[i] = (uint8_t)(high << 4 | low);
	}
	return text[2 * DIGEST_BYTES] == '\0';
}
