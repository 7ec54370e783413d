/* alloc.c - checked allocation.  The guard and the count are a thread's own; the bytes of large pools
 * are the process's. */
#include "base/alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t huge_page = (size_t)2 << 20;

static _Thread_local bool guard;
static _Thread_local unsigned long count;
static atomic_size_t big_bytes;

static void note(size_t bytes)
{
	count++;
	if (guard) {
		fprintf(stderr, "alloc: %zu bytes requested while the allocation guard is on\n", bytes);
		abort();
	}
}

static void *checked(void *p, size_t bytes)
{
	if (!p && bytes) {
		fprintf(stderr, "alloc: out of memory, %zu bytes requested\n", bytes);
		abort();
	}
	return p;
}

void *xmalloc(size_t bytes)
{
	note(bytes);
	return checked(malloc(bytes ? bytes : 1), bytes);
}

void *xcalloc(size_t n, size_t bytes)
{
	note(n);
	return checked(calloc(n ? n : 1, bytes ? bytes : 1), n);
}

void *xrealloc(void *p, size_t n, size_t bytes)
{
	size_t all;
	note(n);
	if (__builtin_mul_overflow(n, bytes, &all))
		return checked(NULL, SIZE_MAX);
	return checked(realloc(p, all ? all : 1), all);
}

char *xstrdup(const char *s)
{
	return xmemdup(s, strlen(s) + 1);
}

void *xmemdup(const void *p, size_t bytes)
{
	void *q = xmalloc(bytes);
	if (bytes)
		memcpy(q, p, bytes);
	return q;
}

size_t format_text(char *out, size_t n, const char *fmt, va_list ap)
{
	int len = vsnprintf(out, n, fmt, ap);
	if (len < 0) {
		fprintf(stderr, "alloc: %s\n",
			errno == ENOMEM ? "out of memory, a text cannot be formatted" : "a broken format");
		abort();
	}
	return (size_t)len;
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap, ap2;
	va_start(ap, fmt);
	va_copy(ap2, ap);
	size_t n = format_text(NULL, 0, fmt, ap);
	va_end(ap);
	char *s = xmalloc(n + 1);
	format_text(s, n + 1, fmt, ap2);
	va_end(ap2);
	return s;
}

size_t array_capacity(size_t cap, size_t n, size_t most)
{
	enum { FIRST = 16 };
	if (n > most)
		checked(NULL, SIZE_MAX);
	if (cap < FIRST)
		cap = most < FIRST ? most : FIRST;
	while (cap < n)
		cap = cap > most / 2 ? most : cap * 2;
	return cap;
}

/* mmap's zeroed pages cost nothing until they are touched, so a large pool does not slow the start. */
void *alloc_big(size_t bytes)
{
	if (bytes <= huge_page) {
		size_t n = (bytes + 63) & ~(size_t)63;
		void *p = aligned_alloc(64, n ? n : 64);
		if (p) {
			memset(p, 0, n);
			atomic_fetch_add(&big_bytes, bytes);
		}
		return p;
	}
	if (bytes > SIZE_MAX - 2 * huge_page)
		return NULL;
	size_t n = (bytes + huge_page - 1) & ~(huge_page - 1);
	char *raw = mmap(NULL, n + huge_page, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		return NULL;
	char *p = (char *)(((uintptr_t)raw + huge_page - 1) & ~(uintptr_t)(huge_page - 1));
	if (p > raw)
		munmap(raw, (size_t)(p - raw));
	if (raw + huge_page > p)
		munmap(p + n, (size_t)(raw + huge_page - p));
	madvise(p, n, MADV_HUGEPAGE);
	atomic_fetch_add(&big_bytes, bytes);
	return p;
}

void alloc_big_free(void *p, size_t bytes)
{
	if (!p)
		return;
	atomic_fetch_sub(&big_bytes, bytes);
	if (bytes <= huge_page)
		free(p);
	else
		munmap(p, (bytes + huge_page - 1) & ~(huge_page - 1));
}

size_t alloc_big_bytes(void)
{
	return atomic_load(&big_bytes);
}

void alloc_guard(bool on)
{
	guard = on;
}

unsigned long alloc_count(void)
{
	return count;
}
