#include "controller/tokenizer/merges.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN_MAX = 60 };

#define SHOWN(p, n) (int)((n) < SHOWN_MAX ? (n) : SHOWN_MAX), (p)

static int unknown_piece(const struct merges *ms, const char *p, size_t n, struct why *why)
{
	return err_why(why, -EINVAL, "merges[%u]: \"%.*s\" is not in the vocabulary", ms->n, SHOWN(p, n));
}

/* Append the bytes of a piece to ms->both and return its id. */
static uint32_t find_part(const struct vocab *v, struct merges *ms, const char *p, size_t n)
{
	size_t from = ms->both.len;
	if (!v->byte_level)
		buf_put(&ms->both, p, n);
	else if (!vocab_spelled_bytes(p, n, &ms->both))
		return VOCAB_NONE;
	return vocab_find(v, ms->both.p + from, ms->both.len - from);
}

int merges_push(const struct vocab *v, struct merges *ms, const char *l, size_t l_n, const char *r,
		size_t r_n, struct why *why)
{
	struct merge m;
	buf_clear(&ms->both);
	buf_reserve(&ms->both, 1);
	m.left = find_part(v, ms, l, l_n);
	if (m.left == VOCAB_NONE)
		return unknown_piece(ms, l, l_n, why);
	m.right = find_part(v, ms, r, r_n);
	if (m.right == VOCAB_NONE)
		return unknown_piece(ms, r, r_n, why);
	m.id = vocab_find_near(v, ms->both.p, ms->both.len, ms->n ? ms->p[ms->n - 1].id : 0);
	if (m.id == VOCAB_NONE) {
		buf_clear(&ms->both);
		buf_put(&ms->both, l, l_n);
		buf_put(&ms->both, r, r_n);
		return unknown_piece(ms, ms->both.p, ms->both.len, why);
	}
	array_grow(ms->p, ms->cap, ms->n + (size_t)1);
	ms->p[ms->n++] = m;
	return 0;
}

int merges_push_line(const struct vocab *v, struct merges *ms, const char *p, size_t n, struct why *why)
{
	if (n >= 8 && memcmp(p, "#version", 8) == 0)
		return 0;
	const char *space = memchr(p, ' ', n);
	size_t left = space ? (size_t)(space - p) : 0, right = n - left - 1;
	if (!space || memchr(space + 1, ' ', right))
		return err_why(why, -EINVAL, "merges[%u]: \"%.*s\" is not two pieces", ms->n, SHOWN(p, n));
	return merges_push(v, ms, p, left, space + 1, right, why);
}

int merges_finish(struct merges *ms, struct bpe *b, int rc, struct why *why)
{
	bpe_init(b, ms->n);
	for (uint32_t i = 0; i < ms->n && rc == 0; i++)
		if (bpe_add_merge(b, i, ms->p[i].left, ms->p[i].right, ms->p[i].id))
			rc = err_why(why, -EINVAL, "merges[%u]: duplicate pair", i);
	free(ms->p);
	buf_fini(&ms->both);
	return rc;
}
