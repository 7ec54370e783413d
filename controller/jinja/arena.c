#include "controller/jinja/arena.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_FIRST = 32 << 10, CHUNK_LARGEST = 1 << 20, ALIGN = 16 };

struct jchunk {
	struct jchunk *next;
	size_t bytes;
	_Alignas(ALIGN) char data[];
};

void jinja_fail(struct jctx *c, int rc, const char *fmt, ...)
{
	char text[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	c->rc = err_why(c->why, rc, "line %u of the chat template: %s", c->line, text);
	longjmp(c->fail, 1);
}

void jinja_out_of_steps(struct jctx *c)
{
	c->steps = c->steps_max;
	jinja_fail(c, -E2BIG, "it takes more than %llu steps", (unsigned long long)c->steps_max);
}

void jinja_too_deep(struct jctx *c)
{
	jinja_fail(c, -E2BIG, "nested deeper than %u", c->depth_max);
}

/* Add a chunk of at least this size. */
static void more(struct jctx *c, size_t bytes)
{
	struct jarena *a = &c->arena;
	size_t size = a->chunks ? a->bytes : CHUNK_FIRST;
	size = size > CHUNK_LARGEST ? CHUNK_LARGEST : size;
	size = size < bytes ? bytes : size;
	if (size > a->max - a->bytes) {
		size = bytes;
		if (size > a->max - a->bytes)
			jinja_fail(c, -E2BIG, "it takes more than %zu MiB of memory", a->max >> 20);
	}
	struct jchunk *k = xmalloc(sizeof *k + size);
	k->next = a->chunks;
	k->bytes = size;
	a->chunks = k;
	a->bytes += size;
	a->at = k->data;
	a->end = k->data + size;
}

static size_t rounded(struct jctx *c, size_t bytes)
{
	if (bytes > c->arena.max)
		jinja_fail(c, -E2BIG, "it takes more than %zu MiB of memory", c->arena.max >> 20);
	return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

void *jinja_alloc_raw(struct jctx *c, size_t bytes)
{
	bytes = rounded(c, bytes);
	jinja_step(c, bytes >> 6);
	if (bytes > (size_t)(c->arena.end - c->arena.at))
		more(c, bytes);
	void *p = c->arena.at;
	c->arena.at += bytes;
	return p;
}

void *jinja_alloc(struct jctx *c, size_t bytes)
{
	return memset(jinja_alloc_raw(c, bytes), 0, bytes);
}

void *jinja_alloc_n(struct jctx *c, size_t n, size_t bytes)
{
	size_t all;
	if (__builtin_mul_overflow(n, bytes, &all))
		all = SIZE_MAX;
	return all ? jinja_alloc(c, all) : NULL;
}

void *jinja_realloc(struct jctx *c, void *p, size_t old, size_t size)
{
	size_t had = rounded(c, old), want = rounded(c, size);
	if (p && (char *)p + had == c->arena.at &&
	    (want <= had || want - had <= (size_t)(c->arena.end - c->arena.at))) {
		c->arena.at = (char *)p + want;
		jinja_step(c, want > had ? (want - had) >> 6 : 0);
		return p;
	}
	if (want <= had)
		return p;
	void *q = jinja_alloc_raw(c, size);
	if (old)
		memcpy(q, p, old);
	return q;
}

void jinja_arena_fini(struct jarena *a)
{
	while (a->chunks) {
		struct jchunk *k = a->chunks;
		a->chunks = k->next;
		free(k);
	}
	*a = (struct jarena){0};
}
