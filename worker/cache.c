#include "worker/cache.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/option_table.h"
#include "kernels/cpu/cpu.h"

#include <string.h>

/* Blocks, and most bytes, moved to measure the link. */
enum { LINK_BLOCKS = 8, LINK_BYTES_MAX = 64 << 20 };
enum { DEFAULT_SEQS = 16, HOST_SHARE = 16, BLOCKS_MAX = 1 << 24 };
/* On the CPU a pool is 1 / TOTAL_SHARE of the memory, halved until it is at most 1 / FREE_SHARE of the free
 * memory. */
enum { TOTAL_SHARE = 4, FREE_SHARE = 3 };
enum { CONTEXT_STEP = 1024 /* tokens: a context limited by the pool is a multiple of this */ };
/* Least number of blocks, if a fraction of a device is used. */
enum { LEAST_BLOCKS = 16 };
/* Left for late allocations of the driver, such as graphs: a 64th of the device, at most MARGIN_MAX. */
enum { MARGIN_SHARE = 64, MARGIN_MAX = 512 << 20 };
/* Pinning takes time, and takes the memory from all other processes. */
static const int64_t pinned_max = (int64_t)8 << 30;

static int64_t host_bytes(void)
{
	int64_t total, free_now;
	cpu_host_memory(-1, &total, &free_now);
	return total;
}

static int64_t at_most(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static double mib(int64_t bytes)
{
	return (double)bytes / (1 << 20);
}

/* Return the number of layers in a block. */
static int block_layers(const struct cache_args *a)
{
	return a->kinds ? a->kinds->n_layers : a->model->n_layers;
}

/* Room for a pool, and how it was computed. */
struct room {
	double fraction;
	int64_t share;  /* device memory usable by this worker */
	int64_t margin; /* device memory that stays free */
	int64_t bytes;  /* for blocks; may be negative */
};

static struct room room_of(const struct cache *c, const struct cache_args *a, const struct kern_info *info)
{
	struct room r = {.fraction = a->fraction > 0 ? a->fraction : OPTION_GPU_FRACTION};
	r.share = (int64_t)(r.fraction * (double)info->bytes_total);
	r.margin = at_most(info->bytes_total / MARGIN_SHARE, MARGIN_MAX);
	int64_t most = at_most(r.share - info->bytes_used, info->bytes_free - r.margin);
	int64_t blocks = at_most(most > 0 ? most / c->block_bytes : 0, BLOCKS_MAX);
	/* The scratch of that many blocks: an upper bound, since there will be fewer. */
	const struct config_layer *l = &a->model->layers[0];
	r.bytes = most - a->ops->kv_scratch_bytes(a->dev, block_layers(a), l->kv_heads, l->dim, a->block_size,
						  blocks ? (int)blocks : 1);
	return r;
}

static int too_few(const struct cache *c, const struct kern_info *info, const struct room *r, int64_t blocks,
		   int64_t least, struct why *why)
{
	return err_why(
		why, -ENOMEM,
		"no room for a KV pool: of %.0f MiB of the device this worker may use %.0f%% (%.0f "
		"MiB), its weights and scratch take %.0f; %.0f are free, %.0f of them stay so: that "
		"gives %lld blocks of %.3f MiB, at least %lld are needed. Give it more with "
		"--memory-fraction, end what else uses the device, share the model with --tp, or lower "
		"--context, --max-seqs or --max-batch-tokens",
		mib(info->bytes_total), 100 * r->fraction, mib(r->share), mib(info->bytes_used),
		mib(info->bytes_free), mib(r->margin), (long long)blocks, mib(c->block_bytes),
		(long long)least);
}

/* Return the blocks of one sequence of max_context. */
static int64_t per_seq(const struct cache_args *a)
{
	return kinds_blocks(a->kinds ? &a->kinds->kinds : &KINDS_ONE, (uint32_t)a->max_context,
			    (uint32_t)a->block_size, (uint32_t)a->max_rows);
}

bool cache_is_one_pool(const struct cache_args *a)
{
	struct kern_info info;
	a->ops->info(a->dev, &info);
	return !info.steps_take_memory && !a->two_pools;
}

bool cache_sized_last(const struct cache_args *a)
{
	struct kern_info info;
	a->ops->info(a->dev, &info);
	return !a->kv_bytes && (a->fraction > 0 || info.steps_take_memory);
}

/* Compute the device's blocks from the memory that is left now. */
static int size_rest(struct cache *c, const struct cache_args *a, const struct kern_info *info,
		     int64_t *blocks, struct why *why)
{
	const struct room r = room_of(c, a, info);
	const int64_t least = at_most(per_seq(a), LEAST_BLOCKS);
	*blocks = r.bytes > 0 ? r.bytes / c->block_bytes : 0;
	return *blocks < least ? too_few(c, info, &r, *blocks, least, why) : 0;
}

/* Return the bytes that swap_bytes adds to a CPU's pool of this many bytes. */
static int64_t swap_part(const struct cache_args *a, const struct kern_info *info, int64_t bytes)
{
	if (a->two_pools || (a->kv_bytes && !a->swap_bytes))
		return 0;
	return a->swap_bytes ? (int64_t)a->swap_bytes : at_most(bytes, info->bytes_total / HOST_SHARE);
}

/* Return the bytes of a CPU's pool if none are given.  The pool follows from the machine's memory, so that
 * the context is the same at every start; the free memory, which varies, only halves it. */
static int64_t cpu_pool(const struct cache *c, const struct cache_args *a, const struct kern_info *info)
{
	const int64_t left = (info->bytes_free - a->weights_bytes) / FREE_SHARE;
	int64_t bytes = info->bytes_total / TOTAL_SHARE;
	while (bytes > left && bytes > c->block_bytes)
		bytes /= 2;
	if (bytes > left)
		bytes = left;
	const int64_t full = per_seq(a) * c->block_bytes,
		      step = CONTEXT_STEP / a->block_size * c->block_bytes;
	bytes = at_most(bytes, DEFAULT_SEQS * full);
	bytes += swap_part(a, info, bytes);
	if (bytes > step && bytes < full)
		bytes -= bytes % step;
	return bytes;
}

/* Compute the device's blocks: the number requested, or the CPU's rule of thumb. */
static int size_first(const struct cache *c, const struct cache_args *a, const struct kern_info *info,
		      int64_t *blocks, struct why *why)
{
	int64_t bytes = (int64_t)a->kv_bytes;
	if (!a->kv_bytes)
		bytes = cpu_pool(c, a, info);
	else if (cache_is_one_pool(a))
		bytes += swap_part(a, info, bytes);
	if ((a->kv_bytes || a->swap_bytes) && bytes > info->bytes_total - a->weights_bytes)
		return err_why(
			why, -ENOMEM,
			"a KV pool of %lld bytes and weights of %lld exceed the %lld bytes of the device",
			(long long)bytes, (long long)a->weights_bytes, (long long)info->bytes_total);
	*blocks = bytes > 0 ? bytes / c->block_bytes : 0;
	if (*blocks < (int64_t)c->kinds.n) /* one of each kind */
		return err_why(why, -ENOMEM,
			       "a KV pool of %lld bytes holds no block: one of %d tokens needs %lld bytes",
			       (long long)bytes, a->block_size, (long long)(c->block_bytes * c->kinds.n));
	return 0;
}

static int size_host(struct cache *c, const struct cache_args *a, const struct kern_info *info,
		     int64_t blocks, struct why *why)
{
	const int64_t host = host_bytes();
	if (cache_is_one_pool(a))
		return 0;
	int64_t n = (int64_t)a->swap_bytes / c->block_bytes;
	if (a->swap_bytes && n * c->block_bytes > host)
		return err_why(why, -ENOMEM,
			       "a swap pool of %lld bytes exceeds the %lld bytes of this machine",
			       (long long)(n * c->block_bytes), (long long)host);
	if (!a->swap_bytes) {
		n = host / HOST_SHARE;
		n = at_most((info->steps_take_memory ? at_most(n, pinned_max) : n) / c->block_bytes, blocks);
	}
	c->n_host_blocks = (int)at_most(n, BLOCKS_MAX);
	return 0;
}

/* Check that the device can store the heads, which have the same number and size in all layers: the cache has
 * one shape. */
static int check_heads(const struct model_config *m, const struct kern_info *info, struct why *why)
{
	const struct config_layer *first = &m->layers[0];
	for (int i = 1; i < m->n_layers; i++)
		if (m->layers[i].kv_heads != first->kv_heads || m->layers[i].dim != first->dim)
			return err_why(
				why, -ENOTSUP,
				"layer %d has %d KV heads of %d values, layer 0 has %d of %d: layers that "
				"differ are not supported",
				i, m->layers[i].kv_heads, m->layers[i].dim, first->kv_heads, first->dim);
	if ((!info->head_max || first->dim <= info->head_max) &&
	    (!info->head_step || first->dim % info->head_step == 0))
		return 0;
	return err_why(
		why, -ENOTSUP,
		"a head size of %d is more than this device's kernels can do: multiples of %d up to %d; use "
		"--device cpu with --kv-cache-dtype f32 or bf16",
		first->dim, info->head_step, info->head_max);
}

int cache_check(const struct cache_args *a, struct why *why)
{
	struct kern_info info;
	a->ops->info(a->dev, &info);
	int rc = check_heads(a->model, &info, why);
	if (rc || a->weights_bytes <= info.bytes_free)
		return rc;
	return err_why(
		why, -ENOMEM,
		"the weights take %.0f MiB, but of the %.0f MiB of the device only %.0f are free: end what "
		"else uses it, or share the model with --tp",
		mib(a->weights_bytes), mib(info.bytes_total), mib(info.bytes_free));
}

int cache_size(struct cache *c, const struct cache_args *a, struct why *why)
{
	const struct model_config *m = a->model;
	struct kern_info info;
	int64_t blocks = 0;
	memset(c, 0, sizeof *c);
	a->ops->info(a->dev, &info);
	int rc = check_heads(m, &info, why);
	if (rc)
		return rc;
	c->ops = a->ops;
	c->block_size = a->block_size;
	c->kinds = a->kinds ? a->kinds->kinds : KINDS_ONE;
	c->block_bytes = a->ops->kv_block_bytes(a->dev, block_layers(a), m->layers[0].kv_heads,
						m->layers[0].dim, a->block_size);
	rc = cache_sized_last(a) ? size_rest(c, a, &info, &blocks, why)
				 : size_first(c, a, &info, &blocks, why);
	if (rc)
		return rc;
	c->n_blocks = (int)at_most(blocks, BLOCKS_MAX);
	return size_host(c, a, &info, c->n_blocks, why);
}

/* Measure a swap of some blocks out and in; block 0 holds nothing yet.  The first round only touches the
 * memory. */
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

int cache_open(struct cache *c, const struct cache_args *a, struct kern_stream *s, struct why *why)
{
	const struct model_config *m = a->model;
	c->kv = c->ops->kv_new(a->dev, block_layers(a), m->layers[0].kv_heads, m->layers[0].dim,
			       c->block_size, c->n_blocks, c->n_host_blocks);
	if (!c->kv) {
		struct kern_info info;
		c->ops->info(a->dev, &info);
		return err_why(
			why, -ENOMEM,
			"out of memory: %lld bytes for the KV pool (--kv-bytes), %lld for the swap pool "
			"(--swap-bytes); of %lld bytes of the device %lld are free, this worker holds %lld",
			(long long)(c->n_blocks * c->block_bytes),
			(long long)(c->n_host_blocks * c->block_bytes), (long long)info.bytes_total,
			(long long)info.bytes_free, (long long)info.bytes_used);
	}
	int rc = swaps_new(&c->swaps, c->ops, a->dev, c->kv, c->n_blocks);
	if (rc)
		return err_why(why, rc, "no stream could be created for swaps");
	measure_link(c, s);
	return 0;
}

void cache_close(struct cache *c)
{
	swaps_free(c->swaps);
	if (c->kv)
		c->ops->kv_free(c->kv);
	memset(c, 0, sizeof *c);
}

static int check_pairs(const struct plan_pair *p, uint32_t n, int n_from, int n_to, const char *what,
		       struct why *why)
{
	for (uint32_t i = 0; i < n; i++)
		if (p[i].from >= (uint32_t)n_from || p[i].to >= (uint32_t)n_to)
			return err_why(why, -EINVAL, "%s from block %u to block %u, there are %d and %d",
				       what, p[i].from, p[i].to, n_from, n_to);
	return 0;
}

int cache_run(struct cache *c, struct kern_stream *s, const struct plan *p, struct why *why)
{
	_Static_assert(sizeof(struct plan_pair) == 2 * sizeof(int32_t),
		       "a pair is two int32 for the kernels");
	typedef const int32_t(*pairs)[2];
	int rc;
	if ((rc = check_pairs(p->swap_out, p->n_swap_out, c->n_blocks, c->n_host_blocks, "a swap out",
			      why)) ||
	    (rc = check_pairs(p->swap_in, p->n_swap_in, c->n_host_blocks, c->n_blocks, "a swap in", why)) ||
	    (rc = check_pairs(p->copies, p->n_copies, c->n_blocks, c->n_blocks, "a copy", why)))
		return rc;
	rc = swaps_queue(c->swaps, s, (pairs)p->swap_out, (int)p->n_swap_out, (pairs)p->swap_in,
			 (int)p->n_swap_in);
	if (rc)
		return err_why(why, rc, "swapping blocks failed");
	for (uint32_t i = 0; i < p->n_copies && swaps_pending(c->swaps); i++)
		if ((rc = swaps_reads(c->swaps, s, (int)p->copies[i].from)) ||
		    (rc = swaps_writes(c->swaps, s, (int)p->copies[i].to)))
			return err_why(why, rc, "waiting for a swap failed");
	if (p->n_copies && (rc = c->ops->kv_copy(s, c->kv, (pairs)p->copies, (int)p->n_copies)))
		return err_why(why, rc, "copying blocks failed");
	return 0;
}

/* Make s wait for the swaps of the blocks that run q reads or writes in layers of a kind. */
static int settle_run(struct cache *c, struct kern_stream *s, const struct kern_batch *b, int q,
		      uint32_t kind)
{
	const int32_t *table = kern_batch_table(b, q, (int)c->kinds.n, (int)kind);
	const int end = b->pos0[q] + b->row0[q + 1] - b->row0[q], first = b->pos0[q] / c->block_size;
	int i = (int)kinds_first(&c->kinds, kind, (uint32_t)b->pos0[q]) / c->block_size, rc = 0;
	for (; !rc && i * c->block_size < end; i++)
		rc = i < first ? swaps_reads(c->swaps, s, table[i]) : swaps_writes(c->swaps, s, table[i]);
	return rc;
}

int cache_settle(struct cache *c, struct kern_stream *s, const struct kern_batch *b, struct why *why)
{
	int rc = 0;
	for (int q = 0; !rc && q < b->n_seqs && swaps_pending(c->swaps); q++)
		for (uint32_t k = 0; !rc && k < c->kinds.n; k++)
			rc = settle_run(c, s, b, q, k);
	return rc ? err_why(why, rc, "waiting for a swap failed") : 0;
}
