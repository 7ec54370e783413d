/* linear.c - linear layers: division of outputs and rows into tasks, and the epilogues. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/stored.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

/* ---- load ---- */

int cpu_grow(void *at, size_t *has, size_t bytes, struct why *why)
{
	void *old, *p;
	if (bytes <= *has)
		return 0;
	p = alloc_big(bytes);
	if (!p)
		return err_why(why, -ENOMEM, "no memory for %zu bytes of scratch", bytes);
	alloc_touch(p, bytes);
	memcpy(&old, at, sizeof old);
	alloc_big_free(old, *has);
	memcpy(at, &p, sizeof p);
	*has = bytes;
	return 0;
}

/* Bytes of an operand in another order.  In mode int8 it is int16: its values are rounded again, which is
 * negligible with 16 bits. */
static size_t ordered_row(const struct kern_dev *d, int k)
{
	return d->bf16 ? cpu_bf16_row(d->bf16, k) : cpu_operand_wide(k).row;
}

/* Grow the scratch that depends on the layers: rows packed for K inputs, and sampling of N logits. */
static int reserve(struct kern_dev *d, int k, int n, bool ordered, struct why *why)
{
	const int most = d->args.max_rows > d->args.max_logits ? d->args.max_rows : d->args.max_logits;
	const int rows = most < ROWS_MAX ? most : ROWS_MAX;
	const size_t row = (size_t)k * sizeof(float);
	const bool integer = cpu_is_integer(d), wide = cpu_has_operands(d);
	int e = cpu_grow(&d->pack, &d->pack_bytes, (size_t)rows * row, why);
	if (!e && wide)
		e = cpu_grow(&d->wide, &d->wide_bytes, (size_t)most * row, why);
	if (!e && d->dot && !integer)
		e = cpu_grow(&d->quant, &d->quant_bytes, ROWS_MAX * cpu_operand(d, k).row, why);
	if (!e && ordered)
		e = cpu_grow(&d->ordered_floats, &d->ordered_floats_bytes, (size_t)rows * row, why);
	if (!e && ordered && wide)
		e = cpu_grow(&d->ordered, &d->ordered_bytes, (size_t)rows * ordered_row(d, k), why);
	if (e)
		return e;
	if (cpu_sample_reserve(d, n))
		return err_why(why, -ENOMEM, "no memory to sample from %d logits", n);
	return 0;
}

int cpu_linear_reserve_stored(struct kern_dev *d, const struct kern_linear *w, struct why *why)
{
	const size_t bytes = cpu_stored_scratch(w);
	int e = 0;
	for (int t = 0; !e && bytes && t < d->n_threads; t++)
		e = cpu_grow(&d->scratch[t].stored, &d->scratch[t].stored_bytes, bytes, why);
	return e;
}

/* Return the groups of outputs of gate and up that become operands together, per cut of the rows (plan()). */
static int groups_of(int n)
{
	return (n + ACT_GROUP - 1) / ACT_GROUP;
}

/* Return the counters needed.  Rows are cut only if there are fewer groups of outputs than wanted tasks. */
static size_t most_arrived(const struct kern_dev *d, int n)
{
	return (size_t)(groups_of(n) + TASKS_PER_THREAD * d->n_threads);
}

/* Grow the scratch of route(): normalized rows of k values, and their n outputs. */
static int reserve_router(struct kern_dev *d, int k, int n, struct why *why)
{
	const size_t rows = (size_t)d->args.max_rows;
	int e = cpu_grow(&d->wide, &d->wide_bytes, rows * (size_t)k * sizeof(float), why);
	if (!e)
		e = cpu_grow(&d->routes, &d->routes_bytes, rows * (size_t)n * sizeof(float), why);
	return e;
}

static int check_exact(const struct kern_linear_src *src, struct why *why)
{
	for (int i = 0; i < src->n_parts; i++)
		if (src->parts[i].dtype == KERN_AWQ4 || src->parts[i].dtype == KERN_CODES)
			return err_why(why, -ENOTSUP, "a router is F32, F16 or BF16");
	return 0;
}

void cpu_linear_acts(struct kern_linear *w, const struct kern_linear_src *src)
{
	assert(src->act == KERN_GELU_SIGMOID || (src->limit == 0 && src->up_plus == 0));
	w->act = src->act;
	w->limit = src->limit > 0 ? src->limit : INFINITY;
	w->up_plus = src->up_plus;
}

int cpu_linear_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		    struct why *why)
{
	struct kern_linear *w = xcalloc(1, sizeof *w);
	const bool pair = src->n_parts == 2 && !src->exact; /* gate and up */
	w->dev = d;
	cpu_linear_acts(w, src);
	w->exact = src->exact;
	w->may_order = true;
	*out = NULL;
	int e = src->exact ? check_exact(src, why) : 0;
	if (!e)
		e = cpu_pack(w, src, why);
	if (!e)
		e = reserve(d, w->k, w->n, w->order != NULL, why);
	if (!e)
		e = cpu_linear_reserve_stored(d, w, why);
	if (!e && pair) /* the results of gate and up become an operand */
		e = reserve(d, w->parts[0].n, w->n, false, why);
	if (!e && pair && cpu_has_operands(d))
		e = cpu_grow(&d->arrived, &d->arrived_bytes,
			     most_arrived(d, w->parts[0].n) * sizeof *d->arrived, why);
	if (!e && src->exact)
		e = reserve_router(d, w->k, w->n, why);
	if (e) {
		cpu_linear_free(w);
		return e;
	}
	*out = w;
	return 0;
}

void cpu_linear_fini(struct kern_linear *w)
{
	for (int i = 0; i < 3; i++)
		alloc_adjacent_free(w->parts[i].w, w->parts[i].bytes);
	free(w->order);
}

void cpu_linear_free(struct kern_linear *w)
{
	if (!w)
		return;
	cpu_linear_fini(w);
	free(w);
}

int64_t cpu_linear_bytes(const struct kern_linear *w)
{
	int64_t n = w->order ? (int64_t)w->k * (int64_t)sizeof *w->order : 0;
	for (int i = 0; i < w->n_parts; i++)
		n += (int64_t)w->parts[i].bytes;
	return n;
}

/* Pack a table: a copy to read rows from and, if that cannot compute, another one as the head. */
static int pack_table(struct kern_embed *e, const struct kern_embed_src *src, struct why *why)
{
	struct kern_dev *d = e->linear.dev;
	struct kern_linear_src from = {
		.name = "embedding",
		.k = src->hidden,
		.n_parts = 1,
		.parts[0] = {.dtype = src->dtype, .n = src->n_vocab, .w = src->table},
	};
	const bool int8_head = d->args.head == KERN_HEAD_INT8 ||
			       (d->args.head == KERN_HEAD_MODE && d->args.compute == KERN_COMPUTE_INT8);
	const bool codes = src->dtype == KERN_CODES;
	const bool one = !src->head || (codes ? cpu_head_gives_rows(d, src->table) : !int8_head);
	e->linear.as_stored = !codes || !src->head || !one;
	from.head = !e->linear.as_stored;
	int err = cpu_pack(&e->linear, &from, why);
	if (err || one)
		return err;
	from.name = "head";
	from.head = true;
	return cpu_pack(&e->head, &from, why);
}

int cpu_embed_load(struct kern_dev *d, const struct kern_embed_src *src, struct kern_embed **out,
		   struct why *why)
{
	*out = NULL;
	if (src->dtype == KERN_AWQ4 || (src->dtype == KERN_CODES && !cpu_codes_give_rows(d, src->table)))
		return err_why(why, -ENOTSUP, "an embedding table of such codes is not supported");
	struct kern_embed *e = xcalloc(1, sizeof *e);
	e->n_vocab = src->n_vocab;
	e->hidden = src->hidden;
	e->linear.dev = e->head.dev = d;
	int err = pack_table(e, src, why);
	if (!err)
		err = reserve(d, src->hidden, src->n_vocab, false, why);
	if (!err)
		err = cpu_linear_reserve_stored(d, &e->linear, why);
	if (!err)
		err = cpu_linear_reserve_stored(d, &e->head, why);
	if (err) {
		cpu_embed_free(e);
		return err;
	}
	*out = e;
	return 0;
}

void cpu_embed_free(struct kern_embed *e)
{
	if (!e)
		return;
	cpu_linear_fini(&e->linear);
	cpu_linear_fini(&e->head);
	free(e);
}

int64_t cpu_embed_bytes(const struct kern_embed *e)
{
	return cpu_linear_bytes(&e->linear) + cpu_linear_bytes(&e->head);
}

const struct kern_linear *cpu_embed_linear(const struct kern_embed *e)
{
	return e->head.n_parts ? &e->head : &e->linear;
}

/* ---- run ---- */

/* Return the first row of row block b; n_rows for b = n_row_blocks. */
static int row_block_start(const struct cpu_linear_job *j, int b)
{
	int each = j->n_rows / j->n_row_blocks, more = j->n_rows % j->n_row_blocks;
	return b * each + (b < more ? b : more);
}

/* Return true if integer operands must be converted for parts that read floats. */
static bool reads_operands(const struct cpu_linear_job *j)
{
	return cpu_is_integer(j->w->dev) && !j->w->exact;
}

/* Convert m operands to floats, as [k][m]. */
static void pack_operands(const struct cpu_linear_job *j, int r0, int m, float *out)
{
	const int k = j->w->k;
	float row[ACT_GROUP];
	for (int r = 0; r < m; r++)
		for (int k0 = 0; k0 < k; k0 += ACT_GROUP) {
			const int n = k - k0 < ACT_GROUP ? k - k0 : ACT_GROUP;
			cpu_dequantize(row, j->in + (size_t)(r0 + r) * j->op.row, &j->op, k0, n);
			for (int i = 0; i < n; i++)
				out[(size_t)(k0 + i) * (size_t)m + (size_t)r] = row[i];
		}
}

void cpu_linear_pack(const struct cpu_linear_job *j, int b, float *out)
{
	const int r0 = row_block_start(j, b), m = row_block_start(j, b + 1) - r0, k = j->w->k;
	out += (size_t)r0 * (size_t)k;
	if (reads_operands(j)) {
		pack_operands(j, r0, m, out);
		return;
	}
	const float *in = (const float *)(const void *)j->in + (size_t)r0 * (size_t)k;
	for (int i = 0; i < k; i++)
		for (int r = 0; r < m; r++)
			*out++ = in[(size_t)r * (size_t)k + (size_t)i];
}

static void pack_rows(void *arg, int b, int thread)
{
	const struct cpu_linear_job *j = arg;
	(void)thread;
	cpu_linear_pack(j, b, j->w->dev->pack);
}

static const struct cpu_part *find_part(const struct kern_linear *w, int *block)
{
	const struct cpu_part *p = w->parts;
	while (*block >= p->n_blocks)
		*block -= p++->n_blocks;
	return p;
}

/* Return the prefetch distance for weights: about a group's codes of a block, so that they arrive while the
 * codes before them are multiplied.  Intel's hardware prefetch ends at each 4 KB page.  On AMD, prefetch
 * instructions make reading slower (18 to 23 GB/s instead of 24, Zen 4). */
static size_t weights_ahead(const struct cpu_codes *c)
{
#if defined(__x86_64__)
	if (__builtin_cpu_is("intel"))
		return c->bits == 8 ? 8192 : 4096;
#endif
	(void)c;
	return 0;
}

/* Tiles of a block, of which a kernel computes some. */
struct tiles {
	const unsigned char *w;
	int n, t0; /* tiles in the block; the first of those wanted */
};

static struct tiles tiles_of(const struct cpu_linear_job *j, const struct cpu_linear_tile *at)
{
	const struct cpu_part *p = at->part;
	if (p->stored.read)
		return (struct tiles){cpu_stored_tiles(j->w, at), at->tn, 0};
	return (struct tiles){p->w + (size_t)at->block * p->block_bytes, cpu_part_tiles(p, at->block),
			      at->t0};
}

static void run_dots(const struct cpu_linear_job *j, const struct cpu_linear_tile *at)
{
	const struct cpu_part *p = at->part;
	const int r0 = row_block_start(j, at->b0);
	const struct tiles tiles = tiles_of(j, at);
	const struct cpu_dot_tile t = {
		.w = tiles.w,
		.tiles = tiles.n,
		.t0 = tiles.t0,
		.tn = at->tn,
		.k = j->w->k,
		.codes = p->codes,
		.x = j->dots + (size_t)r0 * j->op.row,
		.op = &j->op,
		.n_rows = row_block_start(j, at->b1) - r0,
		.ahead = weights_ahead(&p->codes),
		.next = at->next,
		.next_stride = j->out_stride,
		.scratch = at->lines,
		.c = at->c,
	};
	j->w->dev->dot->tile(&t);
}

static void run_bf16(const struct cpu_linear_job *j, const struct cpu_linear_tile *at)
{
	const struct cpu_part *p = at->part;
	const int r0 = row_block_start(j, at->b0);
	const struct tiles tiles = tiles_of(j, at);
	const struct cpu_bf16_tile t = {
		.w = tiles.w,
		.tiles = tiles.n,
		.t0 = tiles.t0,
		.tn = at->tn,
		.k = j->w->k,
		.group = p->codes.group,
		.bits = p->codes.bits,
		.f32_scales = p->codes.heads == HEADS_F32,
		.zero = p->codes.zero,
		.x = j->in + (size_t)r0 * j->row,
		.row = j->row,
		.n_rows = row_block_start(j, at->b1) - r0,
		.scratch = at->lines,
		.c = at->c,
	};
	j->w->dev->bf16->tile(&t);
}

static void run_floats(const struct cpu_linear_job *j, const struct cpu_linear_tile *at)
{
	const struct cpu_part *p = at->part;
	const int r0 = row_block_start(j, at->b0);
	const struct tiles tiles = tiles_of(j, at);
	struct cpu_tile t = {
		.dtype = p->dtype,
		.w = tiles.w,
		.tiles = tiles.n,
		.t0 = tiles.t0,
		.tn = at->tn,
		.k = j->w->k,
		.codes = p->codes,
		.scratch = at->lines,
		.x = j->x + (size_t)r0 * (size_t)j->w->k,
		.n_rows = row_block_start(j, at->b1) - r0,
		.n_row_blocks = at->b1 - at->b0,
		.c = at->c,
	};
	j->w->dev->isa->linear_tile(&t);
}

void cpu_linear_tile(const struct cpu_linear_job *j, const struct cpu_linear_tile *t)
{
	if (t->part->dots)
		run_dots(j, t);
	else if (t->part->bf16)
		run_bf16(j, t);
	else
		run_floats(j, t);
}

/* Report that outputs c0 .. c0 + n - 1 of some rows are done.  The task that finishes a group converts the
 * group to an operand: the values are still in a cache, and no thread waits for another. */
static void arrive(const struct cpu_linear_job *j, int cut, int c0, int n, int r0, int rows)
{
	struct kern_dev *d = j->w->dev;
	const int width = j->w->parts[0].n, group = c0 / ACT_GROUP, k0 = group * ACT_GROUP;
	const int all = width - k0 < ACT_GROUP ? width - k0 : ACT_GROUP;
	atomic_int *arrived = &d->arrived[cut * groups_of(width) + group];
	if (atomic_fetch_add(arrived, n) + n < all)
		return;
	for (int r = r0; r < r0 + rows; r++)
		cpu_quantize_piece(d, j->op_out + (size_t)r * j->op_row,
				   j->out + (size_t)r * j->out_stride + k0, width, k0, all);
}

void cpu_linear_act(const struct cpu_linear_job *j, float *out, const float *gate, const float *up,
		    size_t c_stride, int c0, int n, int n_rows)
{
	const struct kern_linear *w = j->w;
	const float *b0 = w->parts[0].bias, *b1 = w->parts[1].bias;
	w->dev->isa->store_glu(&(struct cpu_glu){
		.act = w->act,
		.limit = w->limit,
		.plus = w->up_plus,
		.out = out,
		.out_stride = j->out_stride,
		.gate = gate,
		.up = up,
		.c_stride = c_stride,
		.gate_bias = b0 ? b0 + c0 : NULL,
		.up_bias = b1 ? b1 + c0 : NULL,
		.n_rows = n_rows,
		.n = n,
	});
}

static void linear_task(void *arg, int task, int thread)
{
	const struct cpu_linear_job *j = arg;
	const struct kern_linear *w = j->w;
	const struct cpu_isa *isa = w->dev->isa;
	const struct cpu_scratch *s = &w->dev->scratch[thread];
	const int cut = task % j->n_row_cuts, col = task / j->n_row_cuts;
	const int b0 = (int)((int64_t)j->n_row_blocks * cut / j->n_row_cuts);
	const int b1 = (int)((int64_t)j->n_row_blocks * (cut + 1) / j->n_row_cuts);
	int block = col / j->tasks_per_block, t0 = col % j->tasks_per_block * j->task_tiles;
	const struct cpu_part *p = j->swiglu ? &w->parts[0] : find_part(w, &block);
	int tiles = cpu_part_tiles(p, block), tn = tiles < j->task_tiles ? tiles : j->task_tiles;
	int c0 = block * BLOCK_N + t0 * LANES_N, n = p->n - c0 < tn * LANES_N ? p->n - c0 : tn * LANES_N;
	if (t0 >= tiles || n <= 0 || b0 == b1)
		return;
	const int r0 = row_block_start(j, b0), rows = row_block_start(j, b1) - r0;
	const size_t c_stride = (size_t)tn * LANES_N;
	float *out = j->out + (size_t)r0 * j->out_stride + (j->swiglu ? 0 : p->n0) + c0;
	struct cpu_linear_tile t = {.part = p,
				    .block = block,
				    .t0 = t0,
				    .tn = tn,
				    .b0 = b0,
				    .b1 = b1,
				    .lines = s->lines,
				    .stored = s->stored,
				    .c = s->c,
				    .next = j->swiglu ? NULL : out};
	cpu_linear_tile(j, &t);
	if (!j->swiglu) {
		isa->store_rows(out, j->out_stride, s->c, c_stride, p->bias ? p->bias + c0 : NULL, rows, n);
		return;
	}
	t.part = &w->parts[1];
	t.c = s->c + (size_t)ROWS_MAX * BLOCK_N;
	t.next = out;
	cpu_linear_tile(j, &t);
	cpu_linear_act(j, out, s->c, t.c, c_stride, c0, n, rows);
	if (j->op_out)
		arrive(j, cut, c0, n, r0, rows);
}

static void plan(struct cpu_linear_job *j)
{
	const struct kern_linear *w = j->w;
	const struct kern_dev *d = w->dev;
	j->n_row_blocks = (j->n_rows + d->isa->rows_max - 1) / d->isa->rows_max;
	int blocks = 0;
	for (int i = 0; i < (j->swiglu ? 1 : w->n_parts); i++)
		blocks += w->parts[i].n_blocks;
	j->tasks_per_block = 1;
	while (j->tasks_per_block < BLOCK_TILES &&
	       blocks * j->tasks_per_block < TASKS_PER_THREAD * d->n_threads)
		j->tasks_per_block *= 2;
	j->task_tiles = BLOCK_TILES / j->tasks_per_block;
	j->n_col_tasks = blocks * j->tasks_per_block;
	j->n_row_cuts = (TASKS_PER_THREAD * d->n_threads + j->n_col_tasks - 1) / j->n_col_tasks;
	if (j->n_row_cuts > j->n_row_blocks)
		j->n_row_cuts = j->n_row_blocks;
}

/* Reorder row r of the input to the order of the weights. */
static void order_row(void *arg, int r, int thread)
{
	const struct cpu_linear_job *j = arg;
	const struct kern_linear *w = j->w;
	const struct kern_dev *d = w->dev;
	const size_t k = (size_t)w->k;
	const unsigned char *in = j->in + (size_t)r * j->row;
	float *x = d->pack + (size_t)r * k, *to = d->ordered_floats + (size_t)r * k;
	(void)thread;
	if (d->bf16)
		cpu_bf16_floats(d->bf16, x, in, w->k);
	else if (cpu_is_integer(d))
		for (int k0 = 0; k0 < w->k; k0 += ACT_GROUP)
			cpu_dequantize(x + k0, in, &j->op, k0, w->k - k0 < ACT_GROUP ? w->k - k0 : ACT_GROUP);
	else
		x = (float *)(uintptr_t)in;
	for (size_t i = 0; i < k; i++)
		to[i] = x[w->order[i]];
	if (!cpu_has_operands(d))
		return;
	const struct cpu_operand op = cpu_operand_wide(w->k);
	unsigned char *row = d->ordered + (size_t)r * ordered_row(d, w->k);
	if (d->bf16)
		cpu_bf16_round(d->bf16, row, to, w->k);
	else
		d->dot->quantize(row, to, &op);
}

static void order_rows(struct cpu_linear_job *j)
{
	struct kern_dev *d = j->w->dev;
	cpu_run(d, j->n_rows, (int64_t)j->n_rows * j->w->k / 4, order_row, j);
	j->in = cpu_has_operands(d) ? d->ordered : (const unsigned char *)d->ordered_floats;
	j->op = cpu_operand_wide(j->w->k);
	if (cpu_has_operands(d))
		j->row = ordered_row(d, j->w->k);
}

static void run_rows(struct cpu_linear_job *j)
{
	struct kern_dev *d = j->w->dev;
	const int64_t per_row = (int64_t)j->w->k * (j->w->n / LANES_N + 1);
	bool floats = false, dots = false;
	plan(j);
	if (j->w->order)
		order_rows(j);
	for (int i = 0; i < j->w->n_parts; i++)
		*(j->w->parts[i].dots ? &dots : &floats) |= !j->w->parts[i].bf16;
	j->dots = j->in;
	if (dots && !cpu_is_integer(d)) {
		const float *x = (const float *)(const void *)j->in;
		for (int r = 0; d->bf16 && r < j->n_rows; r++, x = d->pack)
			cpu_bf16_floats(d->bf16, d->pack + (size_t)r * (size_t)j->w->k,
					j->in + (size_t)r * j->row, j->w->k);
		cpu_quantize_dots(d, d->quant, x, j->n_rows, j->w->k);
		j->dots = d->quant;
	}
	j->x = (const float *)(const void *)j->in;
	if (floats && (j->n_rows > 1 || reads_operands(j))) {
		assert((size_t)j->n_rows * (size_t)j->w->k * sizeof(float) <= d->pack_bytes);
		j->x = d->pack;
		cpu_run(d, j->n_row_blocks, (int64_t)j->n_rows * j->w->k, pack_rows, j);
	}
	if (j->op_out) {
		const size_t n = (size_t)(groups_of(j->w->parts[0].n) * j->n_row_cuts);
		assert(n * sizeof *d->arrived <= d->arrived_bytes);
		memset(d->arrived, 0, n * sizeof *d->arrived);
	}
	/* Reading and widening a weight costs as much as two rows. */
	cpu_run(d, j->n_col_tasks * j->n_row_cuts, per_row * (j->n_rows + 2), linear_task, j);
}

void cpu_linear_floats(const struct kern_linear *w, float *out, const float *in, int n_rows)
{
	assert(w->exact);
	for (int r = 0; r < n_rows; r += ROWS_MAX) {
		struct cpu_linear_job j = {
			.w = w,
			.out = out + (size_t)r * (size_t)w->n,
			.out_stride = (size_t)w->n,
			.in = (const unsigned char *)(in + (size_t)r * (size_t)w->k),
			.n_rows = n_rows - r < ROWS_MAX ? n_rows - r : ROWS_MAX,
		};
		run_rows(&j);
	}
}

/* Run a layer.  op_out: operands to convert out to (out then has ROWS_MAX rows), or NULL. */
static void run(const struct kern_linear *w, float *out, unsigned char *op_out, const void *in, int n_rows,
		bool swiglu)
{
	struct kern_dev *d = w->dev;
	const size_t n = (size_t)(swiglu ? w->parts[0].n : w->n), row = cpu_operand_bytes(d, 1, w->k);
	const size_t op_row = op_out ? cpu_operand_bytes(d, 1, (int)n) : 0;
	assert(n_rows <= d->args.max_rows || n_rows <= d->args.max_logits);
	for (int r = 0; r < n_rows; r += ROWS_MAX) {
		struct cpu_linear_job j = {
			.w = w,
			.out = op_out ? out : out + (size_t)r * n,
			.out_stride = n,
			.in = (const unsigned char *)in + (size_t)r * row,
			.row = row,
			.op = cpu_operand(d, w->k),
			.n_rows = n_rows - r < ROWS_MAX ? n_rows - r : ROWS_MAX,
			.swiglu = swiglu,
			.op_out = op_out ? op_out + (size_t)r * op_row : NULL,
			.op_row = op_row,
		};
		run_rows(&j);
	}
}

int cpu_linear(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
	       bool out_f32)
{
	(void)out_f32; /* values are F32 anyway */
	assert(s->dev == w->dev);
	run(w, out, NULL, in, n_rows, false);
	return 0;
}

int cpu_gateup_swiglu(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
		      int n_rows)
{
	struct kern_dev *d = s->dev;
	const int n = w->parts[0].n;
	assert(d == w->dev && w->n_parts == 2 && n == w->parts[1].n);
	if (!cpu_has_operands(d)) {
		run(w, out, NULL, in, n_rows, true);
		return 0;
	}
	assert((size_t)(n_rows < ROWS_MAX ? n_rows : ROWS_MAX) * (size_t)n * sizeof(float) <= d->wide_bytes);
	run(w, d->wide, out, in, n_rows, true);
	cpu_quantize_end(d, out, n_rows, n);
	return 0;
}
