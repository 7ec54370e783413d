/* moe.c - mixtures of experts.
 * The rows of each expert are gathered, its layers run on them, and its outputs are added to the rows in the
 * order of experts.
 *
 *   pairs       (row, expert), sorted by expert, then by row:   e0: r1 r4 | e2: r0 | e5: r0 r1 r2 ...
 *   cuts        at most ROWS_MAX pairs of one expert, the most that a kernel takes at once
 *   gate, up    a task is some outputs of one cut.  Threads take tasks as they become free, so an expert
 *               with many rows causes no waiting
 *   down        a task is some outputs of all cuts, experts ascending.  It alone adds to these outputs of
 *               the rows, in that order, so that no thread waits for another's sum
 *
 * Rows are processed in chunks of PIECE_ROWS.  None of this changes a bit of a row: each of its products is a
 * kernel's for one row, and each of its sums has one order. */
#include "kernels/cpu/linear.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

enum { PIECE_ROWS = 512 };

struct kern_experts {
	struct kern_dev *dev;
	int n, n_chosen, hidden, inter;
	int n_here, first;                 /* number of loaded experts, and the lowest loaded expert */
	bool *here;                        /* [n] true: loaded */
	struct kern_linear *gateup, *down; /* [n]; zeros for experts that are not loaded */
};

struct cut {
	int pair0; /* first pair */
	struct cpu_linear_job gateup, down;
};

struct task {
	int cut, col;
};

/* Scratch of the device, sized for its largest layer of experts. */
struct cpu_moe {
	int pairs_max, cuts_max, tasks_max;
	size_t gathered_bytes, mid_bytes, floats_bytes, packed_bytes;
	int32_t *row;     /* [pairs_max] row of a pair */
	float *weight;    /* [pairs_max] */
	struct cut *cuts; /* [cuts_max] */
	struct task *tasks;
	unsigned char *gathered; /* operands of the pairs' rows */
	unsigned char *mid;      /* operands made of the results of gate and up; if operands are floats,
				    `floats` */
	float *floats;           /* [pairs][intermediate] */
	float *packed;           /* [pairs][largest K], for kernels that read floats */
};

/* ---- load ---- */

void cpu_moe_free(struct cpu_moe *m)
{
	if (!m)
		return;
	free(m->row);
	free(m->weight);
	free(m->cuts);
	free(m->tasks);
	alloc_big_free(m->gathered, m->gathered_bytes);
	alloc_big_free(m->mid, m->mid_bytes);
	alloc_big_free(m->floats, m->floats_bytes);
	alloc_big_free(m->packed, m->packed_bytes);
	free(m);
}

static bool any_floats(const struct kern_linear *w)
{
	for (int i = 0; i < w->n_parts; i++)
		if (!w->parts[i].dots && !w->parts[i].bf16)
			return true;
	return false;
}

/* Return the most tasks that gate and up have for `cuts` cuts. */
static int tasks_of(const struct kern_linear *w, int cuts)
{
	return cuts * w->parts[0].n_blocks * BLOCK_TILES;
}

static int reserve(struct kern_dev *d, const struct kern_experts *x, struct why *why)
{
	if (!d->moe)
		d->moe = xcalloc(1, sizeof *d->moe);
	struct cpu_moe *m = d->moe;
	const int rows = d->args.max_rows < PIECE_ROWS ? d->args.max_rows : PIECE_ROWS;
	const int pairs = rows * x->n_chosen;
	const int cuts = (x->n_here < pairs ? x->n_here : pairs) + pairs / ROWS_MAX;
	const int tasks = tasks_of(&x->gateup[x->first], cuts),
		  wide = x->hidden > x->inter ? x->hidden : x->inter;
	const size_t n = (size_t)pairs;
	bool floats = false;
	for (int e = 0; e < x->n; e++)
		floats |= any_floats(&x->gateup[e]) || any_floats(&x->down[e]);
	if (pairs > m->pairs_max) {
		m->row = xrealloc(m->row, n, sizeof *m->row);
		m->weight = xrealloc(m->weight, n, sizeof *m->weight);
		m->pairs_max = pairs;
	}
	if (cuts > m->cuts_max)
		m->cuts = xrealloc(m->cuts, (size_t)(m->cuts_max = cuts), sizeof *m->cuts);
	if (tasks > m->tasks_max)
		m->tasks = xrealloc(m->tasks, (size_t)(m->tasks_max = tasks), sizeof *m->tasks);
	int e = 0;
	for (int i = 0; !e && i < x->n; i++) {
		e = cpu_linear_reserve_stored(d, &x->gateup[i], why);
		if (!e)
			e = cpu_linear_reserve_stored(d, &x->down[i], why);
	}
	if (!e && cpu_has_operands(d)) /* normalized rows before their conversion to operands */
		e = cpu_grow(&d->wide, &d->wide_bytes,
			     (size_t)d->args.max_rows * (size_t)x->hidden * sizeof(float), why);
	if (!e)
		e = cpu_grow(&m->gathered, &m->gathered_bytes, cpu_operand_bytes(d, pairs, x->hidden), why);
	if (!e)
		e = cpu_grow(&m->floats, &m->floats_bytes, n * (size_t)x->inter * sizeof(float), why);
	if (!e && cpu_has_operands(d))
		e = cpu_grow(&m->mid, &m->mid_bytes, cpu_operand_bytes(d, pairs, x->inter), why);
	if (!e && floats)
		e = cpu_grow(&m->packed, &m->packed_bytes, n * (size_t)wide * sizeof(float), why);
	return e;
}

static int expert_load(struct kern_experts *x, const struct kern_experts_src *src, int e, struct why *why)
{
	struct kern_linear_src gateup = {0}, down = {0};
	struct kern_linear *g = &x->gateup[e], *o = &x->down[e];
	int rc = src->expert(src->arg, e, &gateup, &down, why);
	if (rc)
		return rc;
	assert(gateup.n_parts == 2 && gateup.k == src->hidden && gateup.parts[0].n == src->intermediate);
	assert(down.n_parts == 1 && down.k == src->intermediate && down.parts[0].n == src->hidden);
	g->dev = o->dev = x->dev;
	cpu_linear_acts(g, &gateup);
	rc = cpu_pack(g, &gateup, why);
	return rc ? rc : cpu_pack(o, &down, why);
}

int cpu_experts_load(struct kern_dev *d, const struct kern_experts_src *src, struct kern_experts **out,
		     struct why *why)
{
	struct kern_experts *x = xcalloc(1, sizeof *x);
	assert(src->n_experts > 0 && src->n_experts <= KERN_EXPERTS_MAX);
	assert(src->n_chosen > 0 && src->n_chosen <= KERN_CHOSEN_MAX && src->n_chosen <= src->n_experts);
	*out = NULL;
	*x = (struct kern_experts){.dev = d,
				   .n = src->n_experts,
				   .n_chosen = src->n_chosen,
				   .hidden = src->hidden,
				   .inter = src->intermediate};
	x->here = xcalloc((size_t)x->n, sizeof *x->here);
	x->gateup = xcalloc((size_t)x->n, sizeof *x->gateup);
	x->down = xcalloc((size_t)x->n, sizeof *x->down);
	int rc = 0;
	for (int e = 0; !rc && e < x->n; e++) {
		if (src->here && !src->here[e])
			continue;
		x->here[e] = true;
		x->first = x->n_here++ ? x->first : e;
		rc = expert_load(x, src, e, why);
	}
	assert(x->n_here > 0);
	if (!rc)
		rc = reserve(d, x, why);
	if (rc) {
		cpu_experts_free(x);
		return rc;
	}
	*out = x;
	return 0;
}

void cpu_experts_free(struct kern_experts *x)
{
	if (!x)
		return;
	for (int e = 0; e < x->n; e++) {
		cpu_linear_fini(&x->gateup[e]);
		cpu_linear_fini(&x->down[e]);
	}
	free(x->here);
	free(x->gateup);
	free(x->down);
	free(x);
}

int64_t cpu_experts_bytes(const struct kern_experts *x)
{
	int64_t n = 0;
	for (int e = 0; e < x->n; e++)
		n += cpu_linear_bytes(&x->gateup[e]) + cpu_linear_bytes(&x->down[e]);
	return n;
}

/* ---- plan ---- */

/* One chunk of the rows. */
struct moe_job {
	const struct kern_experts *x;
	struct kern_dev *dev;
	struct cpu_moe *m;
	const struct kern_moe_args *a;
	int row0, n_rows;
	int n_cuts, n_tasks;
	int gateup_tiles, down_tiles; /* tiles of a task: 1, 2 or 4 */
	const unsigned char *mid;     /* operands of the pairs, from gate and up to down */
	size_t in_row, mid_row;       /* bytes of an operand */
};

/* Return the tasks to make of a block, so that `blocks` blocks are enough for the threads. */
static int tasks_per_block(const struct kern_dev *d, int blocks)
{
	int n = 1;
	while (n < BLOCK_TILES && blocks * n < TASKS_PER_THREAD * d->n_threads)
		n *= 2;
	return n;
}

/* Return the job of one layer of a cut, with rows from pair0 on. */
static struct cpu_linear_job layer_job(const struct moe_job *j, const struct kern_linear *w,
				       const unsigned char *operands, size_t row, int pair0, int n)
{
	struct cpu_linear_job l = {.w = w, .row = row, .n_rows = n, .op = cpu_operand(j->dev, w->k)};
	l.in = l.dots = operands + (size_t)pair0 * row;
	l.x = (const float *)(const void *)l.in;
	l.n_row_blocks = (n + j->dev->isa->rows_max - 1) / j->dev->isa->rows_max;
	return l;
}

static void add_cuts(struct moe_job *j, int e, int pair0, int n)
{
	for (int at = 0; at < n; at += ROWS_MAX) {
		const int rows = n - at < ROWS_MAX ? n - at : ROWS_MAX;
		struct cut *c = &j->m->cuts[j->n_cuts++];
		c->pair0 = pair0 + at;
		c->gateup = layer_job(j, &j->x->gateup[e], j->m->gathered, j->in_row, c->pair0, rows);
		c->gateup.swiglu = true;
		c->gateup.out = j->m->floats + (size_t)c->pair0 * (size_t)j->x->inter;
		c->gateup.out_stride = (size_t)j->x->inter;
		c->down = layer_job(j, &j->x->down[e], j->mid, j->mid_row, c->pair0, rows);
	}
}

/* Sort the pairs by expert.  Pairs of experts that are not loaded are in no cut. */
static void plan_pairs(struct moe_job *j)
{
	const int c = j->x->n_chosen, n = j->n_rows * c;
	const int32_t *expert = j->a->expert + (size_t)j->row0 * (size_t)c;
	const float *weight = j->a->weight + (size_t)j->row0 * (size_t)c;
	int start[KERN_EXPERTS_MAX + 1] = {0}, at[KERN_EXPERTS_MAX];
	for (int i = 0; i < n; i++) {
		assert(expert[i] >= 0 && expert[i] < j->x->n);
		start[expert[i] + 1]++;
	}
	for (int e = 0; e < j->x->n; e++)
		start[e + 1] += at[e] = start[e];
	for (int i = 0; i < n; i++) {
		const int p = at[expert[i]]++;
		j->m->row[p] = j->row0 + i / c;
		j->m->weight[p] = weight[i];
	}
	for (int e = 0; e < j->x->n; e++)
		if (j->x->here[e])
			add_cuts(j, e, start[e], start[e + 1] - start[e]);
}

static void plan_tasks(struct moe_job *j)
{
	const int first = j->x->first;
	const int blocks = j->x->gateup[first].parts[0].n_blocks, down = j->x->down[first].parts[0].n_blocks;
	const int each = tasks_per_block(j->dev, blocks * j->n_cuts);
	j->gateup_tiles = BLOCK_TILES / each;
	j->down_tiles = BLOCK_TILES / tasks_per_block(j->dev, down);
	for (int c = 0; c < j->n_cuts; c++)
		for (int col = 0; col < blocks * each; col++)
			j->m->tasks[j->n_tasks++] = (struct task){c, col};
}

/* ---- run ---- */

static void gather_cut(void *arg, int task, int thread)
{
	const struct moe_job *j = arg;
	struct cut *c = &j->m->cuts[task];
	struct cpu_linear_job *l = &c->gateup;
	(void)thread;
	for (int i = c->pair0; i < c->pair0 + l->n_rows; i++)
		memcpy(j->m->gathered + (size_t)i * j->in_row,
		       (const unsigned char *)j->a->in + (size_t)j->m->row[i] * j->in_row, j->in_row);
}

/* Pack a cut's rows for kernels that read floats. */
static void pack_layer(const struct moe_job *j, const struct cut *c, struct cpu_linear_job *l)
{
	if (!any_floats(l->w) || (l->n_rows == 1 && !cpu_is_integer(j->dev)))
		return;
	float *to = j->m->packed + (size_t)c->pair0 * (size_t)l->w->k;
	for (int b = 0; b < l->n_row_blocks; b++)
		cpu_linear_pack(l, b, to);
	l->x = to;
}

static void prepare_cut(void *arg, int task, int thread)
{
	const struct moe_job *j = arg;
	struct cut *c = &j->m->cuts[task];
	gather_cut(arg, task, thread);
	pack_layer(j, c, &c->gateup);
}

static void gateup_task(void *arg, int task, int thread)
{
	const struct moe_job *j = arg;
	const struct cpu_scratch *s = &j->dev->scratch[thread];
	const struct task *t = &j->m->tasks[task];
	const struct cpu_linear_job *l = &j->m->cuts[t->cut].gateup;
	const struct cpu_part *gate = &l->w->parts[0];
	const int per_block = BLOCK_TILES / j->gateup_tiles;
	const int block = t->col / per_block, t0 = t->col % per_block * j->gateup_tiles;
	const int tiles = cpu_part_tiles(gate, block), tn = tiles < j->gateup_tiles ? tiles : j->gateup_tiles;
	const int c0 = block * BLOCK_N + t0 * LANES_N, left = gate->n - c0;
	if (t0 >= tiles || left <= 0)
		return;
	struct cpu_linear_tile at = {.part = gate,
				     .block = block,
				     .t0 = t0,
				     .tn = tn,
				     .b1 = l->n_row_blocks,
				     .lines = s->lines,
				     .stored = s->stored,
				     .c = s->c};
	cpu_linear_tile(l, &at);
	at.part = &l->w->parts[1];
	at.c = s->c + (size_t)ROWS_MAX * BLOCK_N;
	cpu_linear_tile(l, &at);
	cpu_linear_act(l, l->out + c0, s->c, at.c, (size_t)tn * LANES_N, c0,
		       left < tn * LANES_N ? left : tn * LANES_N, l->n_rows);
}

static void between_cut(void *arg, int task, int thread)
{
	const struct moe_job *j = arg;
	struct cut *c = &j->m->cuts[task];
	(void)thread;
	for (int i = 0; j->mid == j->m->mid && i < c->down.n_rows; i++)
		cpu_quantize_row(j->dev, j->m->mid + (size_t)(c->pair0 + i) * j->mid_row,
				 j->m->floats + (size_t)(c->pair0 + i) * (size_t)j->x->inter, j->x->inter);
	pack_layer(j, c, &c->down);
}

/* Set the start value of the sum, in n outputs of the chunk's rows. */
static void begin(const struct moe_job *j, int c0, int n)
{
	const size_t h = (size_t)j->x->hidden;
	const float *from = j->a->begin;
	for (int r = j->row0; r < j->row0 + j->n_rows; r++) {
		float *out = (float *)j->a->out + (size_t)r * h + c0;
		const float by = j->a->begin_by ? j->a->begin_by[r] : 1;
		for (int i = 0; i < n; i++)
			out[i] = from ? by * from[(size_t)r * h + (size_t)(c0 + i)] : 0;
	}
}

static void down_task(void *arg, int task, int thread)
{
	const struct moe_job *j = arg;
	const struct cpu_scratch *s = &j->dev->scratch[thread];
	const int per_block = BLOCK_TILES / j->down_tiles;
	const int block = task / per_block, t0 = task % per_block * j->down_tiles;
	const int tiles = cpu_part_tiles(&j->x->down[j->x->first].parts[0], block);
	const int tn = tiles < j->down_tiles ? tiles : j->down_tiles;
	const int c0 = block * BLOCK_N + t0 * LANES_N, left = j->x->hidden - c0;
	const int n = left < tn * LANES_N ? left : tn * LANES_N;
	if (t0 >= tiles || left <= 0)
		return;
	begin(j, c0, n);
	for (int k = 0; k < j->n_cuts; k++) {
		const struct cut *c = &j->m->cuts[k];
		const struct cpu_part *p = &c->down.w->parts[0];
		cpu_linear_tile(&c->down, &(struct cpu_linear_tile){.part = p,
								    .block = block,
								    .t0 = t0,
								    .tn = tn,
								    .b1 = c->down.n_row_blocks,
								    .lines = s->lines,
								    .stored = s->stored,
								    .c = s->c});
		for (int i = 0; i < c->down.n_rows; i++) {
			const float *y = s->c + (size_t)i * (size_t)(tn * LANES_N),
				    w = j->m->weight[c->pair0 + i];
			float *out = (float *)j->a->out +
				     (size_t)j->m->row[c->pair0 + i] * (size_t)j->x->hidden + c0;
			for (int o = 0; o < n; o++)
				out[o] += w * (p->bias ? y[o] + p->bias[c0 + o] : y[o]);
		}
	}
}

static void run_piece(struct moe_job *j)
{
	const struct kern_experts *x = j->x;
	const int64_t pairs = (int64_t)j->n_rows * x->n_chosen,
		      width = (int64_t)x->hidden * x->inter / LANES_N;
	const int down_blocks = x->down[x->first].parts[0].n_blocks;
	plan_pairs(j);
	plan_tasks(j);
	cpu_run(j->dev, j->n_cuts, pairs * x->hidden / 8, prepare_cut, j);
	cpu_run(j->dev, j->n_tasks, 2 * width * (pairs + 2 * j->n_cuts), gateup_task, j);
	cpu_run(j->dev, j->n_cuts, pairs * x->inter, between_cut, j);
	cpu_run(j->dev, down_blocks * (BLOCK_TILES / j->down_tiles), width * (pairs + 2 * j->n_cuts),
		down_task, j);
}

int cpu_moe(struct kern_stream *s, const struct kern_experts *x, const struct kern_moe_args *a, int n_rows)
{
	struct kern_dev *d = s->dev;
	assert(d == x->dev && n_rows <= d->args.max_rows && a->begin != a->out);
	for (int r = 0; r < n_rows; r += PIECE_ROWS) {
		struct moe_job j = {
			.x = x,
			.dev = d,
			.m = d->moe,
			.a = a,
			.row0 = r,
			.n_rows = n_rows - r < PIECE_ROWS ? n_rows - r : PIECE_ROWS,
			.mid = cpu_has_operands(d) ? d->moe->mid : (const unsigned char *)d->moe->floats,
			.in_row = cpu_operand_bytes(d, 1, x->hidden),
			.mid_row = cpu_operand_bytes(d, 1, x->inter),
		};
		run_piece(&j);
	}
	return 0;
}
