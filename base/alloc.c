/* alloc.c - checked allocation.
 * The guard and the count are per thread; the bytes of large pools are per process. */
#include "base/alloc.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__has_include)
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#endif
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static const size_t huge_page = (size_t)2 << 20, line = 64;
static const size_t pages_min = (size_t)4 << 20;
static const size_t slab_bytes = (size_t)64 << 20, adjacent_max = (size_t)16 << 20;

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

/* Map memory that is aligned to huge pages and advised to use them; bytes must be a multiple of their size.
 * mmap's zeroed pages take no memory until they are touched, so a large pool does not slow the start. */
static void *map_huge(size_t bytes)
{
	char *raw = mmap(NULL, bytes + huge_page, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		return NULL;
	char *p = (char *)(((uintptr_t)raw + huge_page - 1) & ~(uintptr_t)(huge_page - 1));
	if (p > raw)
		munmap(raw, (size_t)(p - raw));
	if (raw + huge_page > p)
		munmap(p + bytes, (size_t)(raw + huge_page - p));
	madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

static size_t round_up(size_t bytes, size_t to)
{
	return (bytes + to - 1) & ~(to - 1);
}

void *pages_realloc(void *p, size_t had, size_t n, size_t bytes)
{
	size_t all;
	if (__builtin_mul_overflow(n, bytes, &all) || all > SIZE_MAX / 2)
		return checked(NULL, SIZE_MAX);
	if (all < pages_min)
		return xrealloc(p, n, bytes);
	note(n);
	const size_t old = had * bytes;
	void *q = old < pages_min
			  ? mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
			  : mremap(p, old, all, MREMAP_MAYMOVE);
	if (q == MAP_FAILED)
		return checked(NULL, all);
	if (old < pages_min) {
		if (old)
			memcpy(q, p, old);
		free(p);
	}
	return q;
}

void pages_free(void *p, size_t n, size_t bytes)
{
	if (!p || n * bytes < pages_min)
		free(p);
	else
		munmap(p, n * bytes);
}

void *alloc_big(size_t bytes)
{
	void *p;
	if (bytes <= huge_page) {
		const size_t n = round_up(bytes ? bytes : 1, line);
		p = aligned_alloc(line, n);
		if (p)
			memset(p, 0, n);
	} else {
		p = bytes > SIZE_MAX - 2 * huge_page ? NULL : map_huge(round_up(bytes, huge_page));
	}
	if (p)
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
		munmap(p, round_up(bytes, huge_page));
}

/* ---- adjacent areas ---- */

/* Gap between areas for the address sanitizer's red zones, which mmap's memory does not have by itself. */
#ifdef ASAN_POISON_MEMORY_REGION
static const size_t gap = 64;
#else
static const size_t gap;
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif

/* Areas are cut from the beginning of the slab.  The rest is not touched, and so takes no memory. */
struct slab {
	struct slab *next;
	char *p;
	size_t used;
	int areas; /* number of areas not yet freed */
};

static pthread_mutex_t slabs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs; /* new areas are cut from the first slab */

static struct slab *slab_new(void)
{
	struct slab *s = malloc(sizeof *s);
	char *p = s ? map_huge(slab_bytes) : NULL;
	if (!p) {
		free(s);
		return NULL;
	}
	ASAN_POISON_MEMORY_REGION(p, slab_bytes);
	*s = (struct slab){.next = slabs, .p = p};
	return slabs = s;
}

void *alloc_adjacent(size_t bytes)
{
	if (bytes > adjacent_max)
		return alloc_big(bytes);
	const size_t n = round_up((bytes ? bytes : 1) + gap, line);
	void *p = NULL;
	pthread_mutex_lock(&slabs_lock);
	struct slab *s = slabs;
	if (!s || slab_bytes - s->used < n)
		s = slab_new();
	if (s) {
		p = s->p + s->used;
		ASAN_UNPOISON_MEMORY_REGION(p, bytes);
		s->used += n;
		s->areas++;
		atomic_fetch_add(&big_bytes, bytes);
	}
	pthread_mutex_unlock(&slabs_lock);
	return p;
}

void alloc_adjacent_free(void *p, size_t bytes)
{
	if (!p || bytes > adjacent_max) {
		alloc_big_free(p, bytes);
		return;
	}
	atomic_fetch_sub(&big_bytes, bytes);
	pthread_mutex_lock(&slabs_lock);
	struct slab **at = &slabs;
	while ((uintptr_t)p - (uintptr_t)(*at)->p >= slab_bytes)
		at = &(*at)->next;
	struct slab *s = *at;
	if (--s->areas == 0) {
		*at = s->next;
		ASAN_UNPOISON_MEMORY_REGION(s->p, slab_bytes);
		munmap(s->p, slab_bytes);
		free(s);
	}
	pthread_mutex_unlock(&slabs_lock);
}

void alloc_touch(void *p, size_t bytes)
{
	const uintptr_t page = 4096, from = (uintptr_t)p & ~(page - 1), to = (uintptr_t)p + bytes;
	if (!bytes || !madvise((void *)from, round_up(to - from, page), MADV_POPULATE_WRITE))
		return;
	/* The kernel is older than Linux 5.14: write to each page. */
	for (uintptr_t at = (uintptr_t)p; at < to; at = (at & ~(page - 1)) + page)
		atomic_fetch_add((_Atomic unsigned char *)at, 0);
}

size_t alloc_big_bytes(void)
{
	return atomic_load(&big_bytes);
}

int64_t alloc_huge_bytes(const char *root)
{
	char path[512], text[128];
	int64_t kb = -1;
	snprintf(path, sizeof path, "%s/proc/self/smaps_rollup", root);
	FILE *f = fopen(path, "re");
	if (!f)
		return -1;
	while (kb < 0 && fgets(text, sizeof text, f))
		if (sscanf(text, "AnonHugePages: %" SCNd64 " kB", &kb) != 1)
			kb = -1;
	fclose(f);
	return kb < 0 ? -1 : kb * 1024;
}

void alloc_guard(bool on)
{
	guard = on;
}

unsigned long alloc_count(void)
{
	return count;
}
