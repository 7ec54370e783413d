#include "controller/tokenizer/pretok.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void pretok_fini(struct pretok *pt)
{
	for (int i = 0; i < pt->n; i++) {
		splitter_fini(&pt->ops[i].splitter);
		free(pt->ops[i].text);
	}
	pt->n = 0;
}

void pretok_run_fini(struct pretok_run *r)
{
	for (int i = 0; i < PRETOK_OPS_MAX; i++)
		splitter_match_fini(&r->match[i]);
}

static int apply(struct pretok_run *r, int op, const char *p, size_t n, bool first);

struct part {
	size_t from, to;
	bool hit;
};

struct parts {
	struct part *p;
	size_t n, cap;
};

static void parts_push(struct parts *ps, size_t from, size_t to, bool hit)
{
	array_grow(ps->p, ps->cap, ps->n + 1);
	ps->p[ps->n++] = (struct part){from, to, hit};
}

/* Return the end of the character at `at`. */
static size_t char_end(const char *p, size_t n, size_t at)
{
	for (at++; at < n && ((unsigned char)p[at] & 0xc0) == 0x80;)
		at++;
	return at;
}

/* Split the text into matches and the gaps between them. */
static int find_parts(struct pretok_run *r, int op, const char *p, size_t n, struct parts *ps)
{
	const struct pretok_op *o = &r->pt->ops[op];
	size_t done = 0, at = 0, from, to;
	while (at <= n) {
		int rc = splitter_next(&o->splitter, &r->match[op], p, n, at, &from, &to, r->why);
		if (rc < 0)
			return rc;
		if (rc == 0)
			break;
		if (from > done)
			parts_push(ps, done, from, o->invert);
		parts_push(ps, from, to, !o->invert);
		done = to;
		at = to > from ? to : to < n ? char_end(p, n, to) : n + 1;
	}
	if (done < n)
		parts_push(ps, done, n, o->invert);
	return 0;
}

/* Join matches and gaps according to the behavior, in place. */
static void merge_parts(struct parts *ps, enum pretok_behavior how)
{
	size_t m = 0;
	bool before = false;
	if (how == SPLIT_MERGED_WITH_NEXT) {
		for (size_t i = ps->n; i-- > 0;) {
			bool hit = ps->p[i].hit;
			if (hit && !before && m > 0)
				ps->p[ps->n - m].from = ps->p[i].from;
			else
				ps->p[ps->n - ++m] = ps->p[i];
			before = hit;
		}
		memmove(ps->p, ps->p + ps->n - m, m * sizeof(ps->p[0]));
		ps->n = m;
		return;
	}
	for (size_t i = 0; i < ps->n; i++) {
		bool hit = ps->p[i].hit;
		bool join = how == SPLIT_CONTIGUOUS ? hit == before : hit && !before;
		if (join && m > 0)
			ps->p[m - 1].to = ps->p[i].to;
		else
			ps->p[m++] = ps->p[i];
		before = hit;
	}
	ps->n = m;
}

static int split_merged(struct pretok_run *r, int op, const char *p, size_t n, bool first)
{
	struct parts ps = {0};
	int rc = find_parts(r, op, p, n, &ps);
	if (rc == 0)
		merge_parts(&ps, r->pt->ops[op].behavior);
	for (size_t i = 0; i < ps.n && rc == 0; i++)
		rc = apply(r, op + 1, p + ps.p[i].from, ps.p[i].to - ps.p[i].from,
			   first && ps.p[i].from == 0);
	free(ps.p);
	return rc;
}

/* Isolated or removed: each match or gap is passed on at once. */
static int split(struct pretok_run *r, int op, const char *p, size_t n, bool first)
{
	const struct pretok_op *o = &r->pt->ops[op];
	bool keep_hits = o->behavior == SPLIT_ISOLATED || o->invert;
	bool keep_gaps = o->behavior == SPLIT_ISOLATED || !o->invert;
	size_t done = 0, at = 0, from = n, to = n;
	int hit = 1, rc = 0;
	while (hit && at <= n) {
		hit = splitter_next(&o->splitter, &r->match[op], p, n, at, &from, &to, r->why);
		if (hit < 0)
			return hit;
		if (!hit)
			from = to = n;
		if (keep_gaps && from > done)
			rc = apply(r, op + 1, p + done, from - done, first && done == 0);
		if (keep_hits && hit && !rc && to > from)
			rc = apply(r, op + 1, p + from, to - from, first && from == 0);
		if (rc)
			return rc;
		done = to;
		at = to > from ? to : to < n ? char_end(p, n, to) : n + 1;
	}
	if (keep_gaps && done < n)
		rc = apply(r, op + 1, p + done, n - done, first && done == 0);
	return rc;
}

/* The last operation with a pattern that covers the whole text: the path of most models. */
static int split_all(struct pretok_run *r, const struct splitter *s, const char *p, size_t n)
{
	for (size_t at = 0, to; at < n; at = to) {
		to = s->kind == SPLITTER_GPT2 ? splitter_gpt2(p, n, at)
					      : splitter_llama3(p, n, at, s->max_digits);
		r->word(r->ctx, p + at, to - at);
	}
	return 0;
}

static int metaspace(struct pretok_run *r, int op, const char *p, size_t n, bool first)
{
	const struct pretok_op *o = &r->pt->ops[op];
	size_t k = strlen(o->text);
	struct buf b = {0};
	bool starts = *p == ' ' || (n >= k && memcmp(p, o->text, k) == 0);
	if (!starts && (o->scheme == SCHEME_ALWAYS || (o->scheme == SCHEME_FIRST && first)))
		buf_puts(&b, o->text);
	for (size_t i = 0; i < n;) {
		const char *space = memchr(p + i, ' ', n - i);
		size_t to = space ? (size_t)(space - p) : n;
		buf_put(&b, p + i, to - i);
		if (space)
			buf_puts(&b, o->text);
		i = to + 1;
	}
	int rc = apply(r, op + 1, b.p, b.len, first);
	buf_fini(&b);
	return rc;
}

static int prefix(struct pretok_run *r, int op, const char *p, size_t n, bool first)
{
	const struct pretok_op *o = &r->pt->ops[op];
	size_t k = strlen(o->text);
	struct buf b = {0};
	if (n >= k && memcmp(p, o->text, k) == 0)
		return apply(r, op + 1, p, n, first);
	buf_puts(&b, o->text);
	buf_put(&b, p, n);
	int rc = apply(r, op + 1, b.p, b.len, first);
	buf_fini(&b);
	return rc;
}

/* Recurses at most PRETOK_OPS_MAX deep. */
static int apply(struct pretok_run *r, int op, const char *p, size_t n, bool first)
{
	const struct pretok_op *o = &r->pt->ops[op];
	if (n == 0)
		return 0;
	if (op == r->pt->n) {
		r->word(r->ctx, p, n);
		return 0;
	}
	switch (o->kind) {
	case PRETOK_PREFIX:
		return prefix(r, op, p, n, first);
	case PRETOK_METASPACE:
		return metaspace(r, op, p, n, first);
	default:
		break;
	}
	if (op + 1 == r->pt->n && o->behavior == SPLIT_ISOLATED &&
	    (o->splitter.kind == SPLITTER_GPT2 || o->splitter.kind == SPLITTER_LLAMA3))
		return split_all(r, &o->splitter, p, n);
	if (o->behavior == SPLIT_ISOLATED || o->behavior == SPLIT_REMOVED)
		return split(r, op, p, n, first);
	return split_merged(r, op, p, n, first);
}

int pretok_run(struct pretok_run *r, const char *text, size_t n, bool first)
{
	return apply(r, 0, text, n, first);
}
