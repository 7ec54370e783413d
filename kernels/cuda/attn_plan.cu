/* attn_plan.cu - attention's plans for a batch: one for each window that layers have.
 *
 * Usually the host makes the plan, with as many blocks as there is work.  A padded batch's launches may be
 * kept in a graph and replayed for later batches.  Its plan is made on the device by a kernel, from the rows'
 * positions, and depends only on the number of rows. */
#include "kernels/cuda/attn.cuh"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- on the device ---- */

struct list_args {
	struct list l;
	const int32_t *row_pos, *row_table;
	int n_rows, window;
	int partials_max;
};

/* Return the sum of v over this lane and the lower lanes. */
KERN_DEV int warp_upto(int v)
{
#pragma unroll
	for (int by = 1; by < WARP; by *= 2) {
		const int before = shfl_up(v, by);
		v += lane_id() >= by ? before : 0;
	}
	return v;
}

/* Make the list, with one block.  The first warp places every row's tile, partial results and items; then all
 * warps write the items.  A row is split if it has several chunks and there is room for their results. */
static __global__ void __launch_bounds__(LIST_THREADS, 1) list_kernel(struct list_args a)
{
	const int lane = lane_id();
	if (warp_id() == 0) {
		int partials = 0, items = 0; /* sums over the earlier rows */
		for (int row = lane; row - lane < a.n_rows; row += WARP) {
			const bool here = row < a.n_rows;
			const int pos = here ? a.row_pos[row] : 0;
			const int seen = a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
			const int chunk0 = seen / CUDA_CHUNK, n = pos / CUDA_CHUNK + 1 - chunk0;
			const int wanted = here && n > 1 ? n : 0;
			const int partial = partials + warp_upto(wanted) - wanted;
			const bool split = wanted && partial + wanted <= a.partials_max;
			const int mine = !here ? 0 : split ? n : 1;
			const int item = items + warp_upto(mine) - mine;
			if (here)
				a.l.tiles[row] = (struct tile){a.row_table[row],     row, 1, pos, chunk0, n,
							       split ? partial : -1, item};
			partials = shfl(partial + wanted, WARP - 1);
			items = shfl(item + mine, WARP - 1);
		}
		if (lane == 0)
			*a.l.count = items;
	}
	block_sync();
	for (int row = warp_id(); row < a.n_rows; row += LIST_THREADS / WARP) {
		const struct tile t = a.l.tiles[row];
		struct item *to = a.l.items + t.item;
		if (t.partial < 0 && lane == 0)
			*to = (struct item){row, -1};
		for (int c = lane; t.partial >= 0 && c < t.n_chunks; c += WARP)
			to[c] = (struct item){row, t.chunk0 + c};
	}
}

/* ---- lifetime ---- */

/* Return the length of a list; there are fewer partial results than items. */
static size_t list_items(const struct kern_dev *d, int items_max)
{
	return (size_t)d->args.max_seqs + (size_t)items_max;
}

static int list_new(struct kern_dev *d, struct list *l, int items_max)
{
	const size_t seqs = (size_t)d->args.max_seqs;
	l->count = (int32_t *)cuda_mem_new(d, sizeof(int32_t));
	l->tiles = (struct tile *)cuda_mem_new(d, seqs * sizeof(struct tile));
	l->items = (struct item *)cuda_mem_new(d, list_items(d, items_max) * sizeof(struct item));
	return l->count && l->tiles && l->items ? 0 : -ENOMEM;
}

static void list_free(struct kern_dev *d, const struct list *l, int items_max)
{
	const size_t seqs = (size_t)d->args.max_seqs;
	cuda_mem_free(d, l->count, sizeof(int32_t));
	cuda_mem_free(d, l->tiles, seqs * sizeof(struct tile));
	cuda_mem_free(d, l->items, list_items(d, items_max) * sizeof(struct item));
}

static size_t list_bytes(const struct kern_dev *d, int items_max)
{
	return cuda_mem_taken(sizeof(int32_t)) +
	       cuda_mem_taken((size_t)d->args.max_seqs * sizeof(struct tile)) +
	       cuda_mem_taken(list_items(d, items_max) * sizeof(struct item));
}

/* Return the most chunks that the sequences of a batch have. */
static size_t plan_chunks(const struct kern_dev *d, int block_size, int n_blocks)
{
	return (size_t)n_blocks * (size_t)block_size / CUDA_CHUNK + (size_t)d->args.max_seqs + 1;
}

static size_t plan_partial_bytes(size_t chunks, int n_kv_heads, int dim_pad)
{
	size_t bytes = chunks * (size_t)n_kv_heads * SPLIT_QUERIES * (size_t)(dim_pad + 2) * 4;
	return min(bytes, (size_t)PARTIAL_MAX_BYTES);
}

/* Return the bytes of the counters: one for each partial result of the smallest size, one query. */
static size_t plan_arrived_bytes(size_t partial_bytes, int dim_pad)
{
	return partial_bytes / ((size_t)(dim_pad + 2) * 4) * sizeof(int);
}

static int plan_items(const struct kern_dev *d, size_t chunks)
{
	return d->args.max_rows + (int)min(chunks, (size_t)1 << 20);
}

static size_t plan_ring_bytes(const struct kern_dev *d, int items)
{
	return (size_t)d->args.max_rows * sizeof(struct tile) + 2 * (size_t)items * sizeof(struct item);
}

size_t cuda_plans_bytes(const struct kern_dev *d, int n_kv_heads, int dim_pad, int block_size, int n_blocks)
{
	const size_t chunks = plan_chunks(d, block_size, n_blocks);
	const int items = plan_items(d, chunks);
	const size_t partial = plan_partial_bytes(chunks, n_kv_heads, dim_pad);
	return cuda_mem_taken(partial) + cuda_mem_taken(plan_arrived_bytes(partial, dim_pad)) +
	       PLANS * (cuda_mem_taken(plan_ring_bytes(d, items)) + list_bytes(d, items));
}

int cuda_plans_new(struct kern_kv *kv)
{
	struct kern_dev *d = kv->dev;
	struct cuda_plans *p = (struct cuda_plans *)xcalloc(1, sizeof *p);
	int e = 0;
	kv->plans = p;
	const size_t chunks = plan_chunks(d, kv->block_size, kv->n_blocks);
	p->partial.bytes = plan_partial_bytes(chunks, kv->n_kv_heads, kv->dim_pad);
	p->partial.p = cuda_mem_new(d, p->partial.bytes);
	p->tiles_max = d->args.max_rows;
	p->items_max = plan_items(d, chunks);
	p->arrived = (int *)cuda_mem_new(d, plan_arrived_bytes(p->partial.bytes, kv->dim_pad));
	if (!p->partial.p || !p->arrived)
		return -ENOMEM;
	for (int i = 0; i < PLANS && !e; i++) {
		e = list_new(d, &p->plan[i].list, p->items_max);
		if (!e)
			e = cuda_ring_init(d, &p->plan[i].ring, plan_ring_bytes(d, p->items_max), true);
	}
	return e;
}

void cuda_plans_free(struct kern_kv *kv)
{
	struct cuda_plans *p = kv->plans;
	if (!p)
		return;
	for (int i = 0; i < PLANS; i++) {
		list_free(kv->dev, &p->plan[i].list, p->items_max);
		cuda_ring_fini(kv->dev, &p->plan[i].ring);
	}
	cuda_mem_free(kv->dev, p->arrived, plan_arrived_bytes(p->partial.bytes, kv->dim_pad));
	cuda_mem_free(kv->dev, p->partial.p, p->partial.bytes);
	free(p);
}

/* ---- on the host ---- */

/* A plan being made: the arrays in the host's buffer. */
struct planning {
	struct cuda_plan *p;
	const struct kern_attn_args *a;
	struct tile *tiles;
	struct item *split, *wide;
	int tiles_max, items_max;
	int partials, partials_max, rows_split, rows_wide;
};

static void plan_tile(struct planning *g, int table, int row, int n_rows, int pos, bool wide)
{
	struct cuda_plan *p = g->p;
	const int window = g->a->window, i = p->n_tiles++;
	struct tile *t = &g->tiles[i];
	const int seen = window > 0 && pos >= window ? pos - window + 1 : 0;
	*t = (struct tile){table, row, n_rows, pos, seen / CUDA_CHUNK, 0, -1, 0};
	t->n_chunks = (pos + n_rows - 1) / CUDA_CHUNK + 1 - t->chunk0;
	assert(i < g->tiles_max);
	if (wide) {
		g->wide[p->n_wide++] = (struct item){i, -1};
		return;
	}
	if (t->n_chunks == 1 || g->partials + t->n_chunks > g->partials_max ||
	    p->n_split + t->n_chunks + g->tiles_max - i > g->items_max) {
		g->split[p->n_split++] = (struct item){i, -1};
		return;
	}
	t->partial = g->partials;
	g->partials += t->n_chunks;
	for (int c = 0; c < t->n_chunks; c++)
		g->split[p->n_split++] = (struct item){i, t->chunk0 + c};
}

static void plan_run(struct planning *g, const struct cuda_batch *b, int seq)
{
	const int row = b->row0[seq], n = b->row0[seq + 1] - row, pos = b->pos0[seq];
	const bool wide = g->rows_wide && n * g->p->at_once > WIDE_QUERIES / 2;
	const int step = wide ? g->rows_wide : g->rows_split;
	for (int r = 0; r < n; r += step)
		plan_tile(g, b->table_at[seq], row + r, n - r < step ? n - r : step, pos + r, wide);
}

size_t cuda_plan_part(const struct cuda_plan *p, int part)
{
	size_t at = (size_t)p->n_tiles * sizeof(struct tile);
	at += part > 0 ? (size_t)p->n_split * sizeof(struct item) : 0;
	at += part > 1 ? (size_t)p->n_wide * sizeof(struct item) : 0;
	return at;
}

/* Sort the longest items first, so that the last blocks to start are short. */
static int longer_first(const void *x, const void *y)
{
	const struct item *a = (const struct item *)x, *b = (const struct item *)y;
	return a->tile < b->tile ? 1 : a->tile > b->tile ? -1 : 0;
}

/* Return the shared memory of an attention block. */
static int smem_of(int dim_pad, bool split, int stages)
{
	switch (dim_pad) {
	case 32:
		return smem_of_dim<32>(split, stages);
	case 64:
		return smem_of_dim<64>(split, stages);
	case 96:
		return smem_of_dim<96>(split, stages);
	case 128:
		return smem_of_dim<128>(split, stages);
	default:
		return smem_of_dim<256>(split, stages);
	}
}

/* Set the plan's fields that do not depend on the batch; returns how many partial results there is room
 * for. */
static int plan_shape(const struct kern_dev *d, const struct kern_attn_args *a, struct cuda_plan *p)
{
	const struct kern_kv *kv = a->kv;
	p->serial = d->batch.serial;
	p->heads = a->n_q_heads / a->n_kv_heads;
	p->window = a->window;
	p->cuts = (p->heads + SPLIT_QUERIES - 1) / SPLIT_QUERIES;
	p->at_once = (p->heads + p->cuts - 1) / p->cuts;
	for (int split = 0; split < 2; split++)
		p->stages[split] = smem_of(kv->dim_pad, split, 2) <= d->smem_max   ? 2
				   : smem_of(kv->dim_pad, split, 1) <= d->smem_max ? 1
										   : 0;
	/* a tile of a padded batch is one row */
	p->queries = (p->listed ? 1 : SPLIT_QUERIES / p->at_once) * p->at_once;
	const size_t one = (size_t)(a->n_kv_heads * p->cuts * p->queries) * (size_t)(kv->dim_pad + 2) * 4;
	return (int)min(kv->plans->partial.bytes / one, (size_t)kv->plans->items_max);
}

static int plan_list(struct kern_stream *s, const struct kern_attn_args *a, struct cuda_plan *p)
{
	const struct kern_dev *d = s->dev;
	p->listed = true;
	struct list_args l = {};
	l.partials_max = plan_shape(d, a, p);
	l.l = p->list;
	l.row_pos = d->batch.row_pos;
	l.row_table = d->batch.row_table;
	l.n_rows = d->batch.n_rows;
	l.window = a->window;
	return KERN_LAUNCH(list_kernel, 1, LIST_THREADS, 0, s->s, l);
}

static int plan_make(struct kern_stream *s, const struct kern_attn_args *a, struct cuda_plan *p)
{
	struct kern_dev *d = s->dev;
	unsigned char *buf = cuda_ring_take(&p->ring);
	if (!buf)
		return -EIO;
	p->listed = false;
	p->n_tiles = p->n_split = p->n_wide = 0;
	struct planning g = {};
	g.p = p;
	g.a = a;
	g.tiles_max = a->kv->plans->tiles_max;
	g.items_max = a->kv->plans->items_max;
	g.partials_max = plan_shape(d, a, p);
	g.rows_split = SPLIT_QUERIES / p->at_once;
	g.rows_wide = p->stages[0] ? WIDE_QUERIES / p->at_once : 0;
	/* laid out for the largest plan, then made contiguous */
	g.tiles = (struct tile *)(void *)buf;
	g.split = (struct item *)(void *)(g.tiles + g.tiles_max);
	g.wide = g.split + g.items_max;
	for (int q = 0; q < d->batch.n_seqs; q++)
		plan_run(&g, &d->batch, q);
	if (p->n_wide)
		qsort(g.wide, (size_t)p->n_wide, sizeof *g.wide, longer_first);
	memmove(buf + cuda_plan_part(p, 0), g.split, (size_t)p->n_split * sizeof *g.split);
	memmove(buf + cuda_plan_part(p, 1), g.wide, (size_t)p->n_wide * sizeof *g.wide);
	return cuda_ring_send(&p->ring, s, cuda_plan_part(p, 2));
}

/* ---- on the host or on the device ---- */

/* Return the plan of this window, or else reuse the plan of another window, in rotation. */
static struct cuda_plan *plan_of(struct cuda_plans *all, int heads, int window)
{
	for (int i = 0; i < PLANS; i++)
		if (all->plan[i].heads == heads && all->plan[i].window == window)
			return &all->plan[i];
	struct cuda_plan *p = &all->plan[all->next];
	all->next = (all->next + 1) % PLANS;
	p->fresh = false;
	return p;
}

const struct cuda_plan *cuda_plan_for(struct kern_stream *s, const struct kern_attn_args *a)
{
	const struct cuda_batch *b = &s->dev->batch;
	struct cuda_plan *p = plan_of(a->kv->plans, a->n_q_heads / a->n_kv_heads, a->window);
	if (!p->fresh || p->serial != b->serial)
		p->fresh = !(b->pad_to ? plan_list(s, a, p) : plan_make(s, a, p));
	return p->fresh ? p : NULL;
}
