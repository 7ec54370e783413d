/* digest.h - SHA-256, computed in chunks, and as text. */
#ifndef QUERN_STORE_DIGEST_H
#define QUERN_STORE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_BYTES = 32, DIGEST_TEXT = 2 * DIGEST_BYTES + 1 };

struct digest; /* a computation in progress */
struct digest *digest_new(void);
void digest_add(struct digest *d, const void *p, size_t n);
/* Store the result and free d. */
void digest_end(struct digest *d, uint8_t out[DIGEST_BYTES]);
void digest_drop(struct digest *d); /* discards it; NULL is fine */

/* Write n bytes as 2 n lower-case digits and a NUL. */
void digest_hex(const uint8_t *bytes, size_t n, char *out);
/* Parse exactly DIGEST_BYTES in hexadecimal; false: text is something else. */
bool digest_read(const char *text, uint8_t out[DIGEST_BYTES]);

#endif
