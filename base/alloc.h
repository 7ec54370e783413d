/* alloc.h - checked allocation.
 * The x*() functions allocate small metadata; when memory is out they print the size and abort.
 * alloc_big() allocates large pools (weights, KV, scratch) and returns NULL when memory is out.
 * The step path allocates nothing: a test arms alloc_guard(), and then any x*() call of that thread aborts.
 * Any thread may call them. */
#ifndef QUERN_BASE_ALLOC_H
#define QUERN_BASE_ALLOC_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t bytes);           /* zeroed; checks n * bytes */
void *xrealloc(void *p, size_t n, size_t bytes); /* resizes to n * bytes, checked */
char *xstrdup(const char *s);
void *xmemdup(const void *p, size_t bytes);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Format like vsnprintf(), but abort if memory is out or the format is broken.  Returns the length of the
 * text. */
size_t format_text(char *out, size_t n, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* array_grow(array, cap, n): grow array to at least n elements.  array is a pointer or NULL; cap is its
 * capacity in elements, of any unsigned type.  Both are lvalues and are evaluated more than once.  Capacities
 * start at 16 and double, so that a steady state stops allocating.  A capacity that its type cannot hold
 * aborts.  New elements are not initialised. */
#define array_grow(array, cap, n)                                                                            \
	do {                                                                                                 \
		const size_t array_n_ = (n);                                                                 \
		if (array_n_ > (cap)) {                                                                      \
			(cap) = (__typeof__(cap))array_capacity((cap), array_n_, (__typeof__(cap))-1);       \
			(array) = xrealloc((array), (cap), sizeof *(array));                                 \
		}                                                                                            \
	} while (0)
/* Return the new capacity alone, for parallel arrays of one length.  most: the largest possible capacity. */
size_t array_capacity(size_t cap, size_t n, size_t most);

/* array_grow() for an array that may become large: from 4 MB on the array has pages of its own, and growing
 * moves the pages instead of copying them.  Free it with pages_free(array, cap, sizeof *array). */
#define pages_grow(array, cap, n)                                                                            \
	do {                                                                                                 \
		const size_t array_n_ = (n), array_had_ = (cap);                                             \
		if (array_n_ > (cap)) {                                                                      \
			(cap) = (__typeof__(cap))array_capacity((cap), array_n_, (__typeof__(cap))-1);       \
			(array) = pages_realloc((array), array_had_, (cap), sizeof *(array));                \
		}                                                                                            \
	} while (0)
/* Resize p from had * bytes to n * bytes, which must not be less.  p is NULL or was returned by this
 * function. */
void *pages_realloc(void *p, size_t had, size_t n, size_t bytes);
void pages_free(void *p, size_t n, size_t bytes); /* NULL is fine */

/* Allocate zeroed memory, aligned to 64 bytes; above 2 MB, aligned to 2 MB and advised to be huge pages.
 * Returns NULL when memory is out; the caller reports the purpose. */
void *alloc_big(size_t bytes);
void alloc_big_free(void *p, size_t bytes); /* NULL is fine; bytes as passed to alloc_big() */
/* alloc_big() and alloc_big_free() for areas that are allocated and freed together, such as the layers of a
 * model.  The areas are adjacent, so that areas too small for a huge page share one.  The memory is returned
 * to the system when the last of the neighbouring areas is freed. */
void *alloc_adjacent(size_t bytes);
void alloc_adjacent_free(void *p, size_t bytes); /* NULL is fine; bytes as passed to alloc_adjacent() */
/* Make the system allocate the pages of an area now instead of at the first write.  The contents do not
 * change, even while other threads write to them. */
void alloc_touch(void *p, size_t bytes);
/* Bytes that this process holds from alloc_big() and alloc_adjacent(), touched or not. */
size_t alloc_big_bytes(void);
/* Bytes of this process's resident memory on huge pages, from /proc/self/smaps_rollup; -1 if the system does
 * not report them.  root: ""; tests pass a directory that holds such a file. */
int64_t alloc_huge_bytes(const char *root);

/* While on, every x*() call of this thread aborts. */
void alloc_guard(bool on);
/* Number of x*() calls that this thread has made. */
unsigned long alloc_count(void);

#endif
