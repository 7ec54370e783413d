/* alloc.h - checked allocation.
 * Small metadata comes from x*(), which abort when memory is out (and print the size); large pools
 * (weights, KV, scratch) from alloc_big(), which returns NULL.
 * The step path allocates nothing: a test arms alloc_guard(), and any x*() call of that thread then
 * aborts.  Any thread. */
#ifndef QUERN_BASE_ALLOC_H
#define QUERN_BASE_ALLOC_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t bytes);           /* zeroed; checks n * bytes */
void *xrealloc(void *p, size_t n, size_t bytes); /* to n * bytes, checked */
char *xstrdup(const char *s);
void *xmemdup(const void *p, size_t bytes);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* vsnprintf() that cannot fail: out of memory, or a broken format, aborts.  The length of the text. */
size_t format_text(char *out, size_t n, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* array_grow(array, cap, n): array has room for at least n elements.  array is a pointer or NULL and cap its
 * capacity in elements, of any unsigned type: both lvalues, evaluated more than once.  Capacities double,
 * from 16, so that a steady state stops allocating; one that its type cannot hold aborts.  New elements are
 * not initialised. */
#define array_grow(array, cap, n)                                                                            \
	do {                                                                                                 \
		const size_t array_n_ = (n);                                                                 \
		if (array_n_ > (cap)) {                                                                      \
			(cap) = (__typeof__(cap))array_capacity((cap), array_n_, (__typeof__(cap))-1);       \
			(array) = xrealloc((array), (cap), sizeof *(array));                                 \
		}                                                                                            \
	} while (0)
/* The capacity alone, for arrays of one length side by side; most: the largest that is possible. */
size_t array_capacity(size_t cap, size_t n, size_t most);

/* array_grow() for an array that may become large: one of 4 MB or more has pages of its own, which are
 * moved as it grows, so that no call copies it.  Freed by pages_free(array, cap, sizeof *array). */
#define pages_grow(array, cap, n)                                                                            \
	do {                                                                                                 \
		const size_t array_n_ = (n), array_had_ = (cap);                                             \
		if (array_n_ > (cap)) {                                                                      \
			(cap) = (__typeof__(cap))array_capacity((cap), array_n_, (__typeof__(cap))-1);       \
			(array) = pages_realloc((array), array_had_, (cap), sizeof *(array));                \
		}                                                                                            \
	} while (0)
/* From had * bytes, what this function returned, or NULL, to n * bytes, at least as many. */
void *pages_realloc(void *p, size_t had, size_t n, size_t bytes);
void pages_free(void *p, size_t n, size_t bytes); /* NULL is fine */

/* Zeroed, aligned to 64 bytes (2 MB when bytes is larger than that, and advised to be
 * huge pages).  NULL when memory is out: the caller reports what it was for. */
void *alloc_big(size_t bytes);
void alloc_big_free(void *p, size_t bytes); /* NULL is fine; bytes as passed to alloc_big() */
/* As those, for areas that are made and freed together, such as the layers of a model: they lie side by side,
 * so that those too small for huge pages of their own share them.  The memory goes back when the last of
 * its neighbours is freed. */
void *alloc_beside(size_t bytes);
void alloc_beside_free(void *p, size_t bytes); /* NULL is fine; bytes as passed to alloc_beside() */
/* Has the system give the pages of an area now, which would otherwise be given, and cleared, when they are
 * first written.  Contents stay as they are, also while other threads write them. */
void alloc_touch(void *p, size_t bytes);
/* Bytes that this process holds from alloc_big() and alloc_beside() now, touched or not. */
size_t alloc_big_bytes(void);
/* Of all that this process has touched: bytes on huge pages, from /proc/self/smaps_rollup (root: "", or of
 * tests a directory that holds it); -1 where the system does not tell. */
int64_t alloc_huge_bytes(const char *root);

/* While on, every x*() call of this thread aborts. */
void alloc_guard(bool on);
/* How many x*() calls this thread has made. */
unsigned long alloc_count(void);

#endif
