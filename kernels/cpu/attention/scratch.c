/* scratch.c - attention's memory.  See scratch.h. */
#include "kernels/cpu/attention/scratch.h"

static size_t most(size_t a, size_t b)
{
	return a > b ? a : b;
}

static void *piece(unsigned char *base, size_t *at, size_t bytes)
{
	void *p = base ? base + *at : NULL;
	*at += (bytes + 63) & ~(size_t)63;
	return p;
}

struct attn_work attn_cut(unsigned char *base, const struct cpu_kv_type *type, int n_kv_heads, int dim)
{
	const int tall = type->span;
	const size_t n_kv = (size_t)n_kv_heads, pad = (size_t)((dim + 15) & ~15),
		     n = most(n_kv * WIDE_QUERIES, (size_t)tall);
	struct attn_work w;
	size_t at = 0;
	w.held = piece(base, &at, 2 * sizeof *w.held);
	w.q = piece(base, &at, most(n_kv * type->q_bytes(dim, WIDE_QUERIES), type->q_bytes(dim, tall)));
	w.own = piece(base, &at,
		      most(type->work_bytes(dim, n_kv_heads, WIDE_QUERIES), type->work_bytes(dim, 1, tall)));
	w.max = piece(base, &at, n * sizeof(float));
	w.sum = piece(base, &at, n * sizeof(float));
	w.cmax = piece(base, &at, n * sizeof(float));
	w.csum = piece(base, &at, n * sizeof(float));
	w.o = piece(base, &at, n * pad * sizeof(float));
	w.oc = piece(base, &at, n * pad * sizeof(float));
	w.bytes = at;
	return w;
}

/* Enough for a few sequences of the longest context. */
size_t attn_partials(const struct kern_dev *d, int n_kv_heads, int head_dim)
{
	enum { SEQUENCES = 4 };
	const size_t chunks = ((size_t)d->args.max_context + CHUNK - 1) / CHUNK,
		     queries = most((size_t)n_kv_heads * WIDE_QUERIES, (size_t)d->kv_type->span),
		     want = SEQUENCES * chunks * queries * (size_t)(((head_dim + 15) & ~15) + 3);
	return want < PARTIAL_MAX ? want : PARTIAL_MAX;
}
