/* alloc.h - checked allocation.
 * Small metadata comes through x*(), which abort when memory is out (with the size);
 * large pools (weights, KV, scratch) through alloc_big(), which reports.
 * The step path allocates nothing: a test arms alloc_guard() and any x*() call of
 * this thread then aborts. */
#ifndef QUERN_BASE_ALLOC_H
#define QUERN_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t bytes);              /* zeroed; checks n * bytes */
void *xrealloc(void *p, size_t n, size_t bytes);    /* to n * bytes, checked */
char *xstrdup(const char *s);
void *xmemdup(const void *p, size_t bytes);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What vsnprintf() refuses: says why, and ends the program. */
void alloc_no_text(void) __attribute__((noreturn));

/* Zeroed, aligned to 64 bytes (2 MB when bytes is larger than that, and advised to be
 * huge pages).  NULL when memory is out: the caller says what it was for. */
void *alloc_big(size_t bytes);
void alloc_big_free(void *p, size_t bytes);          /* NULL is fine; bytes as they were asked for */
/* Of alloc_big() that this process holds now, touched or not, in bytes. */
size_t alloc_big_bytes(void);

/* While on, every x*() call of this thread aborts. */
void alloc_guard(bool on);
/* How many x*() calls this thread has made. */
unsigned long alloc_count(void);

#endif
