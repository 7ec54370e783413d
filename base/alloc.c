#include "base/alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
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
		fprintf(stderr, "alloc: %zu bytes asked for while the allocation guard is on\n", bytes);
		abort();
	}
}

static void *checked(void *p, size_t bytes)
{
	if (!p && bytes) {
		fprintf(stderr, "alloc: out of memory, %zu bytes asked for\n", bytes);
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

/* A broken format is a bug of ours. */
void alloc_no_text(void)
{
	fprintf(stderr, "alloc: %s\n",
		errno == ENOMEM ? "out of memory, a text cannot be put together" : "a broken format");
	abort();
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap, ap2;
	va_start(ap, fmt);
	va_copy(ap2, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		alloc_no_text();
	char *s = xmalloc((size_t)n + 1);
	vsnprintf(s, (size_t)n + 1, fmt, ap2);
	va_end(ap2);
	return s;
}

/* mmap gives zeroed pages that cost nothing until touched, so a large pool does not
 * slow the start. */
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
