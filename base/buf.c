#include "base/buf.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

void buf_reserve(struct buf *b, size_t more)
{
	size_t need = b->len + more + 1;
	if (need <= b->cap)
		return;
	size_t cap = b->cap ? b->cap : 64;
	while (cap < need)
		cap += cap / 2 + 64;
	b->p = xrealloc(b->p, cap, 1);
	b->cap = cap;
	b->p[b->len] = '\0';
}

void buf_put(struct buf *b, const void *p, size_t n)
{
	buf_reserve(b, n);
	if (n)
		memcpy(b->p + b->len, p, n);
	b->len += n;
	b->p[b->len] = '\0';
}

void buf_putc(struct buf *b, char c)
{
	buf_put(b, &c, 1);
}

void buf_puts(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap, ap2;
	va_start(ap, fmt);
	va_copy(ap2, ap);
	size_t n = format_text(NULL, 0, fmt, ap);
	va_end(ap);
	buf_reserve(b, n);
	b->len += format_text(b->p + b->len, n + 1, fmt, ap2);
	va_end(ap2);
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	if (b->p)
		b->p[0] = '\0';
}

void buf_fini(struct buf *b)
{
	free(b->p);
	*b = (struct buf){0};
}

char *buf_take(struct buf *b)
{
	buf_reserve(b, 0);
	char *p = b->p;
	*b = (struct buf){0};
	return p;
}
