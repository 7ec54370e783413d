/* arena.h - memory, failure and limits of a parse or a rendering.
 *
 * A template is stored in one arena and a rendering in another; each arena is freed as a whole. A failure is
 * a longjmp to jinja_parse() or jinja_render(): safe, since nothing else is held. Every recursion goes
 * through jinja_enter(), which bounds the C stack. */
#ifndef QUERN_CONTROLLER_JINJA_ARENA_H
#define QUERN_CONTROLLER_JINJA_ARENA_H

#include "base/err.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

struct jchunk;

struct jarena {
	struct jchunk *chunks; /* the newest first */
	char *at, *end;        /* free bytes of the newest chunk */
	size_t bytes, max;     /* bytes: allocated in all chunks; max: limit */
};

/* The context of a parse or a rendering. */
struct jctx {
	struct jarena arena;
	jmp_buf fail;
	int rc;
	struct why *why;
	unsigned line; /* current line of the template, for why */
	unsigned depth, depth_max;
	uint64_t steps, steps_max;
};

void *jinja_alloc(struct jctx *c, size_t bytes);     /* zeroed; aligned to 16 */
void *jinja_alloc_raw(struct jctx *c, size_t bytes); /* not zeroed */
/* n * bytes, checked for overflow, zeroed; n 0: NULL */
void *jinja_alloc_n(struct jctx *c, size_t n, size_t bytes);
/* Resize p from old to size bytes, in place if p was the last allocation. */
void *jinja_realloc(struct jctx *c, void *p, size_t old, size_t size);
void jinja_arena_fini(struct jarena *a);
_Noreturn void jinja_fail(struct jctx *c, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
_Noreturn void jinja_out_of_steps(struct jctx *c);
_Noreturn void jinja_too_deep(struct jctx *c);

static inline void jinja_step(struct jctx *c, uint64_t n)
{
	if ((c->steps += n) > c->steps_max)
		jinja_out_of_steps(c);
}
static inline void jinja_enter(struct jctx *c)
{
	if (++c->depth > c->depth_max)
		jinja_too_deep(c);
	jinja_step(c, 1);
}
static inline void jinja_leave(struct jctx *c)
{
	c->depth--;
}

#endif
