/* buf.h - a growable byte buffer.
 * A NUL always follows the len bytes, so that text can be used as a C string.  A zero-initialised buffer is
 * empty. */
#ifndef QUERN_BASE_BUF_H
#define QUERN_BASE_BUF_H

#include <stddef.h>

struct buf {
	char *p; /* owned; NULL until the first write */
	size_t len;
	size_t cap;
};

void buf_put(struct buf *b, const void *p, size_t n);
void buf_putc(struct buf *b, char c);
void buf_puts(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_reserve(struct buf *b, size_t more);
void buf_clear(struct buf *b); /* keeps the memory */
void buf_fini(struct buf *b);
char *buf_take(struct buf *b); /* returns the text (never NULL), which the caller frees; empties b */

#endif
