/* attention.c - paged attention: which rows, heads and chunks are worked on together.
 *
 * A span is a few consecutive rows of one sequence, seen by one KV head: its queries (rows x
 * query heads of that KV head) walk the cache together.  Each query takes the cache in chunks
 * of CHUNK tokens, aligned to absolute positions, each with its own maximum and sum; chunks
 * are folded in ascending order.  Where spans are fewer than the threads can use (decode of a
 * long sequence), each chunk of a span is a task, its results are kept and folded afterwards
 * in the same order: the same bits. */
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/kv.h"

#include <assert.h>
#include <string.h>

struct attn_job {
	struct kern_dev *dev;
	const struct kern_attn_args *a;
	int heads;         /* query heads of a KV head */
	int heads_at_once; /* of them in one span */
	int cuts;          /* spans that it takes for all of them */
	int n_lanes;       /* kv heads x cuts: spans of the same rows */
	int rows_at_once;
	int n_spans;       /* of rows */
	int n_chunk_tasks; /* chunks are tasks: how many there are in all */
};

/* One span and KV head, taken apart. */
struct span {
	int seq, row, n_rows, pos; /* pos: of the first row */
	int kv_head, head0, n_heads;
	int n_queries;      /* rows x heads, row by row */
	int chunk0, chunk1; /* that some row sees */
	const int32_t *table;
};

/* A thread's scratch, cut into its pieces. */
struct work {
	float *q;           /* [D][m] for each group of m queries */
	float *s;           /* [CHUNK_TILES][m][16] */
	float *o;           /* [SPAN_QUERIES][dim_pad] */
	float *oc;          /* [rows_max][dim_pad] of one chunk */
	float *max, *sum;   /* [SPAN_QUERIES] */
	float *cmax, *csum; /* [SPAN_QUERIES] of one chunk */
};

static struct work work_of(const struct kern_kv *kv, int thread)
{
	const size_t q = SPAN_QUERIES, rows = (size_t)kv->dev->isa->rows_max, pad = (size_t)kv->dim_pad;
	struct work w;
	w.s = kv->scratch + (size_t)thread * kv->scratch_floats;
	w.o = w.s + CHUNK * rows;
	w.oc = w.o + q * pad;
	w.max = w.oc + rows * pad;
	w.sum = w.max + q;
	w.cmax = w.sum + q;
	w.csum = w.cmax + q;
	w.q = w.csum + q;
	return w;
}

/* First position that a row at pos sees. */
static int first_seen(const struct kern_attn_args *a, int pos)
{
	return a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
}

static struct span span_of(const struct attn_job *j, int i, int lane)
{
	const struct cpu_batch *b = &j->dev->batch;
	struct span s = {.row = b->span_row[i], .n_rows = b->span_rows[i]};
	s.seq = b->row_seq[s.row];
	s.pos = b->pos0[s.seq] + s.row - b->row0[s.seq];
	s.kv_head = lane / j->cuts;
	s.head0 = lane % j->cuts * j->heads_at_once;
	s.n_heads = j->heads - s.head0 < j->heads_at_once ? j->heads - s.head0 : j->heads_at_once;
	s.n_queries = s.n_rows * s.n_heads;
	s.chunk0 = first_seen(j->a, s.pos) / CHUNK;
	s.chunk1 = (s.pos + s.n_rows - 1) / CHUNK + 1;
	s.table = b->tables + (size_t)s.seq * (size_t)j->dev->args.max_blocks_per_seq;
	return s;
}

/* Queries are taken in groups of at most rows_max. */
static int group_size(const struct attn_job *j, const struct span *s, int q0)
{
	int left = s->n_queries - q0, most = j->dev->isa->rows_max;
	return left < most ? left : most;
}

/* Query i of a span in the [T, Hq*D] arrays. */
static size_t query_at(const struct attn_job *j, const struct span *s, int i)
{
	int row = s->row + i / s->n_heads, head = s->kv_head * j->heads + s->head0 + i % s->n_heads;
	return ((size_t)row * (size_t)j->a->n_q_heads + (size_t)head) * (size_t)j->a->head_dim;
}

/* Scaled, each group as [D][m]. */
static void load_queries(const struct attn_job *j, const struct span *s, float *out)
{
	const int dim = j->a->head_dim;
	for (int q0 = 0, m; q0 < s->n_queries; q0 += m) {
		m = group_size(j, s, q0);
		for (int i = 0; i < m; i++) {
			const float *in = (const float *)j->a->q + query_at(j, s, q0 + i);
			for (int d = 0; d < dim; d++)
				out[d * m + i] = in[d] * j->a->scale;
		}
		out += (size_t)dim * (size_t)m;
	}
}

static int clamp_chunk(int t)
{
	return t < 0 ? 0 : t > CHUNK ? CHUNK : t;
}

/* Where the chunk's tokens lie, up to token n. */
static void chunk_tiles(const struct attn_job *j, const struct span *s, int chunk, struct cpu_attn_chunk *c)
{
	const struct kern_kv *kv = j->a->kv;
	const int last = s->pos + s->n_rows - 1 - chunk * CHUNK, n = clamp_chunk(last + 1);
	const int begin = clamp_chunk(first_seen(j->a, s->pos) - chunk * CHUNK);
	for (int t = begin / LANES_N; t * LANES_N < n; t++) {
		int pos = chunk * CHUNK + t * LANES_N, at = pos % kv->block_size;
		int block = s->table[pos / kv->block_size];
		assert(block >= 0 && block < kv->n_blocks);
		c->k[t] = cpu_kv_k(kv, j->a->layer, block, s->kv_head) + at;
		c->v[t] = cpu_kv_v(kv, j->a->layer, block, s->kv_head) + (size_t)at * (size_t)kv->dim_pad;
	}
}

/* One chunk of all queries of a span.  Each query's result goes where fold() or the arrays say. */
struct chunk_out {
	bool fold; /* into w->max, sum, o; else into max, sum, o as they come */
	float *max, *sum, *o;
};

static void run_chunk(const struct attn_job *j, const struct span *s, int chunk, struct work *w,
		      const struct chunk_out *out)
{
	const struct kern_kv *kv = j->a->kv;
	const struct cpu_isa *isa = j->dev->isa;
	int from[SPAN_QUERIES], to[SPAN_QUERIES];
	struct cpu_attn_chunk c = {
		.dim = kv->dim,
		.dim_pad = kv->dim_pad,
		.q = w->q,
		.k_stride = (size_t)kv->block_size,
		.from = from,
		.to = to,
		.s = w->s,
	};
	const size_t pad = (size_t)kv->dim_pad;
	chunk_tiles(j, s, chunk, &c);
	for (int q0 = 0; q0 < s->n_queries; q0 += c.m) {
		c.m = group_size(j, s, q0);
		for (int i = 0; i < c.m; i++) {
			int pos = s->pos + (q0 + i) / s->n_heads;
			from[i] = clamp_chunk(first_seen(j->a, pos) - chunk * CHUNK);
			to[i] = clamp_chunk(pos + 1 - chunk * CHUNK);
		}
		c.o = out->fold ? w->oc : out->o + (size_t)q0 * pad;
		c.max = out->fold ? w->cmax : out->max + q0;
		c.sum = out->fold ? w->csum : out->sum + q0;
		isa->attn_chunk(&c);
		for (int i = 0; out->fold && i < c.m; i++) {
			int q = q0 + i, pos = s->pos + q / s->n_heads;
			if (from[i] >= to[i])
				continue;
			if (chunk == first_seen(j->a, pos) / CHUNK) {
				w->max[q] = c.max[i];
				w->sum[q] = c.sum[i];
				memcpy(w->o + (size_t)q * pad, c.o + (size_t)i * pad, pad * sizeof *c.o);
			} else {
				isa->attn_merge(&w->max[q], &w->sum[q], w->o + (size_t)q * pad, c.max[i],
						c.sum[i], c.o + (size_t)i * pad, kv->dim_pad);
			}
		}
		c.q += (size_t)kv->dim * (size_t)c.m;
	}
}

static void store_queries(const struct attn_job *j, const struct span *s, const struct work *w)
{
	const size_t pad = (size_t)j->a->kv->dim_pad;
	for (int i = 0; i < s->n_queries; i++)
		j->dev->isa->attn_out((float *)j->a->out + query_at(j, s, i), w->o + (size_t)i * pad,
				      w->sum[i], j->a->head_dim);
}

static void span_task(void *arg, int task, int thread)
{
	const struct attn_job *j = arg;
	struct span s = span_of(j, task / j->n_lanes, task % j->n_lanes);
	struct work w = work_of(j->a->kv, thread);
	load_queries(j, &s, w.q);
	for (int c = s.chunk0; c < s.chunk1; c++)
		run_chunk(j, &s, c, &w, &(struct chunk_out){.fold = true});
	store_queries(j, &s, &w);
}

/* ---- chunks as tasks ---- */

/* Results of a chunk: max [m], sum [m], o [m][dim_pad], at most SPAN_QUERIES queries. */
static size_t partial_stride(const struct kern_kv *kv, int queries)
{
	return (size_t)queries * ((size_t)kv->dim_pad + 2);
}

static struct chunk_out partial_of(const struct attn_job *j, const struct span *s, int task)
{
	const struct kern_kv *kv = j->a->kv;
	const int most = j->rows_at_once * j->heads_at_once;
	assert(((size_t)task + 1) * partial_stride(kv, most) <= kv->partial_floats);
	float *p = kv->partial + (size_t)task * partial_stride(kv, most);
	return (struct chunk_out){.max = p, .sum = p + s->n_queries, .o = p + 2 * s->n_queries};
}

static int chunks_of(const struct attn_job *j, int span)
{
	struct span s = span_of(j, span, 0);
	return s.chunk1 - s.chunk0;
}

static void chunk_task(void *arg, int task, int thread)
{
	const struct attn_job *j = arg;
	const int32_t *first = j->dev->batch.span_task;
	int i = 0;
	while (task >= first[i + 1])
		i++;
	const int n = (first[i + 1] - first[i]) / j->n_lanes, lane = (task - first[i]) / n;
	struct span s = span_of(j, i, lane);
	struct work w = work_of(j->a->kv, thread);
	struct chunk_out out = partial_of(j, &s, task);
	load_queries(j, &s, w.q);
	run_chunk(j, &s, s.chunk0 + (task - first[i]) % n, &w, &out);
}

static void fold_task(void *arg, int task, int thread)
{
	const struct attn_job *j = arg;
	const struct kern_kv *kv = j->a->kv;
	const size_t pad = (size_t)kv->dim_pad;
	const int i = task / j->n_lanes, lane = task % j->n_lanes;
	struct span s = span_of(j, i, lane);
	struct work w = work_of(kv, thread);
	const int first = j->dev->batch.span_task[i] + lane * (s.chunk1 - s.chunk0);
	for (int q = 0; q < s.n_queries; q++) {
		int pos = s.pos + q / s.n_heads, c0 = first_seen(j->a, pos) / CHUNK, c1 = pos / CHUNK + 1;
		for (int c = c0; c < c1; c++) {
			struct chunk_out p = partial_of(j, &s, first + c - s.chunk0);
			if (c == c0) {
				w.max[q] = p.max[q];
				w.sum[q] = p.sum[q];
				memcpy(w.o + (size_t)q * pad, p.o + (size_t)q * pad, pad * sizeof *p.o);
			} else {
				j->dev->isa->attn_merge(&w.max[q], &w.sum[q], w.o + (size_t)q * pad, p.max[q],
							p.sum[q], p.o + (size_t)q * pad, kv->dim_pad);
			}
		}
	}
	store_queries(j, &s, &w);
}

/* ---- plan ---- */

static void plan_spans(struct attn_job *j)
{
	struct cpu_batch *b = &j->dev->batch;
	j->heads = j->a->n_q_heads / j->a->n_kv_heads;
	j->heads_at_once = j->heads < SPAN_QUERIES ? j->heads : SPAN_QUERIES;
	j->cuts = (j->heads + j->heads_at_once - 1) / j->heads_at_once;
	j->n_lanes = j->a->n_kv_heads * j->cuts;
	j->rows_at_once = SPAN_QUERIES / j->heads_at_once;
	for (int q = 0; q < b->n_seqs; q++)
		for (int r = b->row0[q]; r < b->row0[q + 1]; r += j->rows_at_once) {
			int left = b->row0[q + 1] - r;
			b->span_row[j->n_spans] = r;
			b->span_rows[j->n_spans++] = left < j->rows_at_once ? left : j->rows_at_once;
		}
}

/* True where chunks should be tasks, and there is room for their results. */
static bool plan_chunks(struct attn_job *j)
{
	int32_t *first = j->dev->batch.span_task;
	if (j->dev->n_threads == 1 || j->n_spans * j->n_lanes >= 3 * j->dev->n_threads)
		return false;
	int64_t n = 0;
	for (int i = 0; i < j->n_spans; i++) {
		first[i] = (int32_t)n;
		n += (int64_t)chunks_of(j, i) * j->n_lanes;
	}
	first[j->n_spans] = (int32_t)n;
	j->n_chunk_tasks = (int)n;
	size_t stride = partial_stride(j->a->kv, j->rows_at_once * j->heads_at_once);
	return n > (int64_t)j->n_spans * j->n_lanes && (size_t)n <= j->a->kv->partial_floats / stride;
}

static int64_t work_of_batch(const struct attn_job *j)
{
	const struct cpu_batch *b = &j->dev->batch;
	int64_t seen = 0;
	for (int q = 0; q < b->n_seqs; q++) {
		int64_t rows = b->row0[q + 1] - b->row0[q], last = b->pos0[q] + rows;
		if (j->a->window > 0 && last > j->a->window)
			last = j->a->window;
		seen += rows * last;
	}
	return seen * j->a->n_q_heads * j->a->head_dim / 8;
}

static void attention(struct kern_stream *s, const struct kern_attn_args *a)
{
	struct attn_job j = {.dev = s->dev, .a = a};
	assert(a->head_dim == a->kv->dim && a->n_kv_heads == a->kv->n_kv_heads &&
	       a->n_q_heads % a->n_kv_heads == 0);
	assert(a->layer >= 0 && a->layer < a->kv->n_layers && a->kv->block_size == s->dev->block_size);
	if (!s->dev->batch.n_rows)
		return;
	plan_spans(&j);
	const int64_t work = work_of_batch(&j);
	if (plan_chunks(&j)) {
		cpu_run(s->dev, j.n_chunk_tasks, work, chunk_task, &j);
		cpu_run(s->dev, j.n_spans * j.n_lanes, work / CHUNK, fold_task, &j);
	} else {
		cpu_run(s->dev, j.n_spans * j.n_lanes, work, span_task, &j);
	}
}

int cpu_attention(struct kern_stream *s, const struct kern_attn_args *a)
{
	struct kern_dev *d = s->dev;
	struct kern_attn_args floats = *a;
	const int width = a->n_q_heads * a->head_dim;
	if (cpu_has_operands(d)) {
		assert((size_t)d->batch.n_rows * (size_t)width * sizeof(float) <= d->wide_bytes);
		floats.out = d->wide;
	}
	attention(s, &floats);
	if (cpu_has_operands(d))
		cpu_quantize(d, a->out, d->wide, d->batch.n_rows, width);
	return 0;
}
