#include "worker/cache.h"

#include "base/clock.h"
#include "base/err.h"

#include <string.h>
#include <unistd.h>

/* What is moved to measure the link. */
enum { LINK_BLOCKS = 8, LINK_BYTES_MAX = 64 << 20 };
enum { DEFAULT_SEQS = 16, FREE_SHARE = 4, HOST_SHARE = 16, BLOCKS_MAX = 1 << 24 };

static int64_t host_bytes(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	return pages > 0 && size > 0 ? (int64_t)pages * size : 0;
}

static int64_t at_most(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int cache_size(struct cache *c, const struct cache_args *a, char *why, size_t why_n)
{
	const struct model_config *m = a->model;
	struct kern_info info;
	memset(c, 0, sizeof *c);
	a->ops->info(a->dev, &info);
	if ((info.head_max && m->head_dim > info.head_max) || (info.head_step && m->head_dim % info.head_step))
		return err_why(why, why_n, -ENOTSUP,
			       "a head size of %d is more than this device's kernels can do: multiples of %d up to "
			       "%d; use --device cpu",
			       m->head_dim, info.head_step, info.head_max);
	c->ops = a->ops;
	c->block_size = a->block_size;
	c->block_bytes =
		a->ops->kv_block_bytes(a->dev, m->n_layers, m->n_kv_heads, m->head_dim, a->block_size);
	int64_t per_seq = (a->max_context + a->block_size - 1) / a->block_size;
	int64_t bytes = (int64_t)a->kv_bytes;
	if (!bytes)
		bytes = at_most((info.bytes_free - a->weights_bytes) / FREE_SHARE,
				DEFAULT_SEQS * per_seq * c->block_bytes);
	int64_t blocks = bytes / c->block_bytes;
	int64_t host = (int64_t)a->swap_bytes / c->block_bytes;
	if (!a->swap_bytes)
		host = at_most(host_bytes() / HOST_SHARE / c->block_bytes, blocks);
	int64_t host_used = a->swap_bytes ? host * c->block_bytes : 0;
	if (a->kv_bytes && bytes > info.bytes_total - a->weights_bytes)
		return err_why(
			why, why_n, -ENOMEM,
			"a KV pool of %lld bytes and weights of %lld exceed the %lld bytes of the device",
			(long long)bytes, (long long)a->weights_bytes, (long long)info.bytes_total);
	if (host_used > host_bytes())
		return err_why(why, why_n, -ENOMEM,
			       "a swap pool of %lld bytes exceeds the %lld bytes of this machine",
			       (long long)host_used, (long long)host_bytes());
	c->n_blocks = (int)at_most(blocks, BLOCKS_MAX);
	c->n_host_blocks = (int)at_most(host, BLOCKS_MAX);
	if (c->n_blocks < 1)
		return err_why(why, why_n, -ENOMEM,
			       "a KV pool of %lld bytes holds no block: one of %d tokens needs %lld bytes",
			       (long long)bytes, a->block_size, (long long)c->block_bytes);
	return 0;
}

/* Some blocks out and in, to learn what a swap costs; block 0 holds nothing yet.  The first
 * round only touches the memory. */
static void measure_link(struct cache *c, struct kern_stream *s)
{
	int32_t pairs[LINK_BLOCKS][2];
	int n = c->n_blocks < c->n_host_blocks ? c->n_blocks : c->n_host_blocks;
	int64_t t0 = 0;
	n = n < LINK_BLOCKS ? n : LINK_BLOCKS;
	if (n == 0 || (int64_t)n * c->block_bytes > LINK_BYTES_MAX)
		n = n ? 1 : 0;
	for (int i = 0; i < n; i++)
		pairs[i][0] = pairs[i][1] = i;
	for (int round = 0; round < 2; round++) {
		t0 = clock_us();
		if (c->ops->kv_swap_out(s, c->kv, (const int32_t(*)[2])pairs, n) ||
		    c->ops->kv_swap_in(s, c->kv, (const int32_t(*)[2])pairs, n) || c->ops->stream_sync(s))
			return;
	}
	int64_t us = clock_us() - t0;
	if (n)
		c->link_bps = (uint64_t)(2.0 * n * (double)c->block_bytes * 1e6 / (double)(us ? us : 1));
}

int cache_open(struct cache *c, const struct cache_args *a, struct kern_stream *s, char *why, size_t why_n)
{
	const struct model_config *m = a->model;
	c->kv = c->ops->kv_new(a->dev, m->n_layers, m->n_kv_heads, m->head_dim, c->block_size, c->n_blocks,
			       c->n_host_blocks);
	if (!c->kv)
		return err_why(why, why_n, -ENOMEM,
			       "out of memory: %lld bytes for the KV pool, %lld for the swap pool",
			       (long long)(c->n_blocks * c->block_bytes),
			       (long long)(c->n_host_blocks * c->block_bytes));
	measure_link(c, s);
	return 0;
}

void cache_close(struct cache *c)
{
	if (c->kv)
		c->ops->kv_free(c->kv);
	memset(c, 0, sizeof *c);
}

static int check_pairs(const struct plan_pair *p, uint32_t n, int n_from, int n_to, const char *what,
		       char *why, size_t why_n)
{
	for (uint32_t i = 0; i < n; i++)
		if (p[i].from >= (uint32_t)n_from || p[i].to >= (uint32_t)n_to)
			return err_why(why, why_n, -EINVAL,
				       "%s from block %u to block %u, there are %d and %d", what, p[i].from,
				       p[i].to, n_from, n_to);
	return 0;
}

int cache_run(struct cache *c, struct kern_stream *s, const struct plan *p, char *why, size_t why_n)
{
	_Static_assert(sizeof(struct plan_pair) == 2 * sizeof(int32_t),
		       "a pair is two int32 for the kernels");
	typedef const int32_t(*pairs)[2];
	int rc;
	if ((rc = check_pairs(p->swap_out, p->n_swap_out, c->n_blocks, c->n_host_blocks, "a swap out", why,
			      why_n)) ||
	    (rc = check_pairs(p->swap_in, p->n_swap_in, c->n_host_blocks, c->n_blocks, "a swap in", why,
			      why_n)) ||
	    (rc = check_pairs(p->copies, p->n_copies, c->n_blocks, c->n_blocks, "a copy", why, why_n)))
		return rc;
	if (p->n_swap_out && (rc = c->ops->kv_swap_out(s, c->kv, (pairs)p->swap_out, (int)p->n_swap_out)))
		return err_why(why, why_n, rc, "swapping out failed");
	if (p->n_swap_in && (rc = c->ops->kv_swap_in(s, c->kv, (pairs)p->swap_in, (int)p->n_swap_in)))
		return err_why(why, why_n, rc, "swapping in failed");
	if (p->n_copies && (rc = c->ops->kv_copy(s, c->kv, (pairs)p->copies, (int)p->n_copies)))
		return err_why(why, why_n, rc, "copying blocks failed");
	return 0;
}
