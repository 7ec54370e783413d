/* attention.c - paged attention: which rows, heads and chunks are computed together.
 *
 * A query reads the cache in chunks of CHUNK tokens, aligned to absolute positions.  Each chunk has its own
 * maximum and sum, and chunks are merged in ascending order.  The division of this work changes no bit.
 *
 * A span is a run of rows of one sequence; their queries walk the cache together:
 *   wide   few rows (decode): all KV heads.  For each tile, K of all heads is read in one piece, then V,
 *          so the cache is read once, in memory order.  If there are too few chunks to keep the threads
 *          busy (a short context, one sequence), heads are divided into lanes of adjacent heads.
 *   tall   many rows (a prompt): one KV head and up to type->span queries, so that data read once
 *          serves many queries.
 * A lane of a span is one task, which merges chunk after chunk.  If there are too few spans for the threads,
 * or their lengths differ too much, each chunk is a task of its own; the results are kept and merged
 * afterwards. */
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/kv.h"
#include "kernels/cpu/attention/scratch.h"

#include <assert.h>
#include <string.h>

struct attn_job {
	struct kern_dev *dev;
	const struct kern_attn_args *a;
	int heads;    /* query heads per KV head */
	int n_tall;   /* tall spans, which come first */
	int n_spans;  /* tall and wide spans */
	int kv_cuts;  /* lanes into which a wide span's KV heads are divided; divides n_kv_heads */
	bool by_head; /* tall spans are not cut: their tasks go head by head, so that a head stays in the
			 cache */
	int n_tasks;
	bool pieces; /* a head is whole groups of an operand, and is converted by itself */
};

/* A lane of a span: some query heads of one KV head (tall) or of each (wide). */
struct span {
	int seq, row, n_rows, pos; /* pos: position of the first row */
	int n_lanes;
	int kv_head0, n_kv; /* KV heads of this lane */
	int head0, n_heads; /* query heads of each KV head */
	int m;              /* queries of each KV head: rows x heads, row by row */
	int chunk0, chunk1; /* chunks that some row sees */
	const int32_t *table;
};

static struct attn_work work_of(const struct kern_kv *kv, int thread)
{
	return attn_cut(kv->scratch + (size_t)thread * kv->scratch_bytes, kv->type, kv->n_kv_heads, kv->dim);
}

/* ---- spans ---- */

/* Return the first position that a row at pos sees. */
static int first_seen(const struct kern_attn_args *a, int pos)
{
	return a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
}

static int at_once(int heads, int most_queries)
{
	return heads < most_queries ? heads : most_queries;
}

static struct span span_of(const struct attn_job *j, int i, int lane)
{
	const struct cpu_batch *b = &j->dev->batch;
	const bool wide = i >= j->n_tall;
	const int once = at_once(j->heads, wide ? WIDE_QUERIES : j->a->kv->type->span),
		  cuts = (j->heads + once - 1) / once;
	struct span s = {.row = b->span_row[i], .n_rows = b->span_rows[i]};
	s.seq = b->row_seq[s.row];
	s.pos = b->pos0[s.seq] + s.row - b->row0[s.seq];
	s.n_kv = wide ? j->a->n_kv_heads / j->kv_cuts : 1;
	s.n_lanes = j->a->n_kv_heads / s.n_kv * cuts;
	s.kv_head0 = lane / cuts * s.n_kv;
	s.head0 = lane % cuts * once;
	s.n_heads = j->heads - s.head0 < once ? j->heads - s.head0 : once;
	s.m = s.n_rows * s.n_heads;
	s.chunk0 = first_seen(j->a, s.pos) / CHUNK;
	s.chunk1 = (s.pos + s.n_rows - 1) / CHUNK + 1;
	s.table = cpu_table(j->dev, s.seq, j->a->kind);
	return s;
}

/* Return the index of query i of the lane's KV head h in the [T, Hq*D] arrays. */
static size_t query_at(const struct attn_job *j, const struct span *s, int h, int i)
{
	const int row = s->row + i / s->n_heads;
	const int head = (s->kv_head0 + h) * j->heads + s->head0 + i % s->n_heads;
	return ((size_t)row * (size_t)j->a->n_q_heads + (size_t)head) * (size_t)j->a->head_dim;
}

/* Prepare a lane's queries, unless they are still prepared: a thread runs consecutive tasks, so they often
 * are. */
static void prepare_queries(const struct attn_job *j, const struct span *s, int span, int lane,
			    struct attn_work *w)
{
	const struct cpu_kv_type *type = j->a->kv->type;
	const size_t stride = type->q_bytes(j->a->head_dim, s->m);
	const float *q[KV_QUERIES];
	if (w->held[0] == span && w->held[1] == lane)
		return;
	for (int h = 0; h < s->n_kv; h++) {
		for (int i = 0; i < s->m; i++)
			q[i] = (const float *)j->a->q + query_at(j, s, h, i);
		type->queries(w->q + (size_t)h * stride, q, s->m, j->a->head_dim, j->a->scale);
	}
	w->held[0] = span;
	w->held[1] = lane;
}

/* ---- one chunk ---- */

static int clamp_chunk(int t)
{
	return t < 0 ? 0 : t > CHUNK ? CHUNK : t;
}

/* Find the tiles that some row sees. */
static void chunk_tiles(const struct attn_job *j, const struct span *s, int chunk, struct cpu_kv_chunk *c)
{
	const struct kern_kv *kv = j->a->kv;
	const int n = clamp_chunk(s->pos + s->n_rows - chunk * CHUNK);
	const int begin = clamp_chunk(first_seen(j->a, s->pos) - chunk * CHUNK);
	const size_t head = (size_t)s->kv_head0, all_k = (size_t)kv->n_kv_heads * kv->k_bytes;
	for (int t = begin / KV_TILE; t * KV_TILE < n; t++) {
		const int pos = chunk * CHUNK + t * KV_TILE, block = s->table[pos / kv->block_size];
		assert(block >= 0 && block < kv->n_blocks);
		const unsigned char *tile = cpu_kv_tile(kv, j->a->layer, block, pos % kv->block_size);
		c->k[t] = tile + head * kv->k_bytes;
		c->v[t] = tile + all_k + head * kv->v_bytes;
	}
}

/* Destination of results: [n_kv][m], o [n_kv][m][dim_pad]. */
struct results {
	float *max, *sum, *o;
};

static void run_chunk(const struct attn_job *j, const struct span *s, int chunk, const struct attn_work *w,
		      const struct results *out)
{
	const struct kern_kv *kv = j->a->kv;
	int from[KV_QUERIES], to[KV_QUERIES], at[KV_QUERIES];
	const float *alibi = j->a->alibi;
	struct cpu_kv_chunk c = {
		.n_heads = s->n_kv,
		.m = s->m,
		.dim = kv->dim,
		.dim_pad = kv->dim_pad,
		.scale = j->a->scale,
		.cap = j->a->cap,
		.alibi = alibi ? alibi + s->kv_head0 * j->heads + s->head0 : NULL,
		.alibi_step = j->heads,
		.alibi_heads = s->n_heads,
		.at = at,
		.q = w->q,
		.q_stride = kv->type->q_bytes(kv->dim, s->m),
		.k_bytes = kv->k_bytes,
		.v_bytes = kv->v_bytes,
		.from = from,
		.to = to,
		.work = w->own,
		.max = out->max,
		.sum = out->sum,
		.o = out->o,
	};
	assert(s->m <= KV_QUERIES);
	for (int i = 0; i < s->m; i++) {
		const int pos = s->pos + i / s->n_heads;
		from[i] = clamp_chunk(first_seen(j->a, pos) - chunk * CHUNK);
		to[i] = clamp_chunk(pos + 1 - chunk * CHUNK);
		at[i] = pos - chunk * CHUNK;
	}
	chunk_tiles(j, s, chunk, &c);
	kv->type->chunk(&c);
}

/* Merge one more chunk into the queries of KV heads h0 <= h < h1; its results begin at in. */
static void fold(const struct attn_job *j, const struct span *s, int chunk, int h0, int h1,
		 const struct results *in, const struct attn_work *w)
{
	const size_t pad = (size_t)j->a->kv->dim_pad;
	for (int q = h0 * s->m; q < h1 * s->m; q++) {
		const int pos = s->pos + q % s->m / s->n_heads, c0 = first_seen(j->a, pos) / CHUNK;
		const float *from = in->o + (size_t)q * pad;
		float *to = w->o + (size_t)q * pad;
		if (chunk < c0 || chunk > pos / CHUNK)
			continue;
		if (chunk == c0) {
			w->max[q] = in->max[q];
			w->sum[q] = in->sum[q];
			memcpy(to, from, pad * sizeof *to);
		} else {
			j->dev->isa->attn_merge(&w->max[q], &w->sum[q], to, in->max[q], in->sum[q], from,
						(int)pad);
		}
	}
}

/* Return the weight of a head's sink in the sum, relative to exp(max).  From e^60 on the sink makes the
 * result vanish, so the exponent is clipped there. */
static float sink_weight(const struct attn_job *j, int head, float max)
{
	enum { MOST = 60 };
	const float sink = ((const float *)j->a->sinks)[head], x = sink > max + MOST ? max + MOST : sink;
	return j->a->kv->type->one * j->dev->isa->exp_block(NULL, &x, 1, max, 1);
}

static void store_results(const struct attn_job *j, const struct span *s, int h0, int h1,
			  const struct attn_work *w)
{
	struct kern_dev *d = j->dev;
	const size_t pad = (size_t)j->a->kv->dim_pad;
	const int dim = j->a->head_dim, width = j->a->n_q_heads * dim;
	for (int h = h0; h < h1; h++)
		for (int i = 0; i < s->m; i++) {
			const size_t q = (size_t)(h * s->m + i), at = query_at(j, s, h, i);
			float *o = w->o + q * pad, sum = w->sum[q];
			if (j->a->sinks)
				sum += sink_weight(j, (int)(at % (size_t)width) / dim, w->max[q]);
			if (!j->pieces) {
				d->isa->attn_out((float *)j->a->out + at, o, sum, dim);
				continue;
			}
			d->isa->attn_out(o, o, sum, dim);
			cpu_quantize_piece(d,
					   (unsigned char *)j->a->out +
						   at / (size_t)width * cpu_operand_bytes(d, 1, width),
					   o, width, (int)(at % (size_t)width), dim);
		}
}

/* ---- tasks ---- */

/* Floats for results of a chunk that is a task: max, sum, o of the lane's queries. */
static size_t partial_stride(const struct kern_kv *kv, const struct span *s)
{
	const size_t n = (size_t)s->n_kv * (size_t)s->m;
	return ((2 * n + 15) & ~(size_t)15) + n * (size_t)kv->dim_pad;
}

static struct results partial_of(const struct attn_job *j, int i, const struct span *s, int task)
{
	const size_t n = (size_t)s->n_kv * (size_t)s->m;
	struct span first = span_of(j, i, 0); /* the lane with the most queries */
	const size_t stride = partial_stride(j->a->kv, &first),
		     at = j->dev->batch.span_part[i] + (size_t)task * stride;
	assert(at + stride <= j->a->kv->partial_floats);
	float *p = j->a->kv->partial + at;
	return (struct results){.max = p, .sum = p + n, .o = p + ((2 * n + 15) & ~(size_t)15)};
}

static const size_t whole = SIZE_MAX; /* span_part of a span that is not cut into chunks */

static void attn_task(void *arg, int task, int thread)
{
	const struct attn_job *j = arg;
	const struct cpu_batch *b = &j->dev->batch;
	int i = 0;
	if (j->by_head && task < b->span_task[j->n_tall]) {
		i = task % j->n_tall;
		task /= j->n_tall;
	} else {
		while (task >= b->span_task[i + 1])
			i++;
		task -= b->span_task[i];
	}
	struct span s = span_of(j, i, 0);
	struct attn_work w = work_of(j->a->kv, thread);
	const int n_chunks = s.chunk1 - s.chunk0;
	if (b->span_part[i] != whole) {
		const int lane = task / n_chunks;
		s = span_of(j, i, lane);
		const struct results out = partial_of(j, i, &s, task);
		prepare_queries(j, &s, i, lane, &w);
		run_chunk(j, &s, s.chunk0 + task % n_chunks, &w, &out);
		return;
	}
	s = span_of(j, i, task);
	prepare_queries(j, &s, i, task, &w);
	const struct results out = {.max = w.cmax, .sum = w.csum, .o = w.oc};
	for (int c = s.chunk0; c < s.chunk1; c++) {
		run_chunk(j, &s, c, &w, &out);
		fold(j, &s, c, 0, s.n_kv, &out, &w);
	}
	store_results(j, &s, 0, s.n_kv, &w);
}

/* Merge one KV head of a span that was cut into chunks. */
static void fold_task(void *arg, int task, int thread)
{
	const struct attn_job *j = arg;
	const int i = task / j->a->n_kv_heads, kv_head = task % j->a->n_kv_heads;
	const struct attn_work w = work_of(j->a->kv, thread);
	if (j->dev->batch.span_part[i] == whole)
		return;
	const int n_lanes = span_of(j, i, 0).n_lanes;
	for (int lane = 0; lane < n_lanes; lane++) {
		const struct span s = span_of(j, i, lane);
		const int h = kv_head - s.kv_head0, n_chunks = s.chunk1 - s.chunk0;
		if (h < 0 || h >= s.n_kv)
			continue;
		for (int c = s.chunk0; c < s.chunk1; c++) {
			const struct results in = partial_of(j, i, &s, lane * n_chunks + c - s.chunk0);
			fold(j, &s, c, h, h + 1, &in, &w);
		}
		store_results(j, &s, h, h + 1, &w);
	}
}

/* ---- plan ---- */

static void add_spans(struct attn_job *j, int seq, int rows_at_once)
{
	struct cpu_batch *b = &j->dev->batch;
	for (int r = b->row0[seq]; r < b->row0[seq + 1]; r += rows_at_once) {
		const int left = b->row0[seq + 1] - r;
		b->span_row[j->n_spans] = r;
		b->span_rows[j->n_spans++] = left < rows_at_once ? left : rows_at_once;
	}
}

static void plan_spans(struct attn_job *j)
{
	const struct cpu_batch *b = &j->dev->batch;
	const int span = j->a->kv->type->span;
	j->heads = j->a->n_q_heads / j->a->n_kv_heads;
	for (int wide = 0; wide < 2; wide++) {
		for (int q = 0; q < b->n_seqs; q++) {
			const int rows = b->row0[q + 1] - b->row0[q];
			if ((rows <= 1 || rows * j->heads <= WIDE_QUERIES) == (wide == 1))
				add_spans(j, q, wide ? rows : span / at_once(j->heads, span));
		}
		if (!wide)
			j->n_tall = j->n_spans;
	}
}

/* Divide the heads of wide spans into lanes, if chunks for all KV heads are too few for the threads, or
 * differ too much in length.  Heads are divided while the areas that a task reads stay large (small areas
 * defeat the hardware's prefetch), or while threads would be idle. */
static void cut_heads(struct attn_job *j)
{
	enum { PIECE = 8192 };
	const int threads = j->dev->n_threads, heads = j->a->n_kv_heads;
	int64_t n = 0;
	j->kv_cuts = 1;
	for (int i = 0; threads > 1 && i < j->n_spans; i++) {
		const struct span s = span_of(j, i, 0);
		n += (int64_t)s.n_lanes * (s.chunk1 - s.chunk0);
	}
	for (int cuts = 2; threads > 1 && heads % cuts == 0; cuts *= 2) {
		const bool large = (size_t)(heads / cuts) * j->a->kv->k_bytes >= PIECE;
		if (n * j->kv_cuts >= (large ? 2 : 1) * (int64_t)threads)
			break;
		j->kv_cuts = cuts;
	}
}

/* Decide which spans are cut into chunks: wide spans if there is another thread to share with, tall spans if
 * there would be few tasks.  Both only as far as there is room for results. */
static void plan_tasks(struct attn_job *j)
{
	struct cpu_batch *b = &j->dev->batch;
	size_t used = 0;
	int64_t lanes = 0, n = 0;
	cut_heads(j);
	j->by_head = true;
	for (int i = 0; i < j->n_spans; i++) {
		const struct span s = span_of(j, i, 0);
		lanes += (int64_t)s.n_lanes * (i < j->n_tall ? 1 : s.chunk1 - s.chunk0);
	}
	const bool few = lanes < 3 * (int64_t)j->dev->n_threads;
	for (int i = 0; i < j->n_spans; i++) {
		const struct span s = span_of(j, i, 0);
		const int chunks = s.chunk1 - s.chunk0;
		const size_t room = partial_stride(j->a->kv, &s) * (size_t)s.n_lanes * (size_t)chunks;
		const bool few_here = i < j->n_tall ? few : j->kv_cuts == 1 || s.n_lanes < j->dev->n_threads;
		const bool split = j->dev->n_threads > 1 && chunks > 1 && few_here &&
				   used + room <= j->a->kv->partial_floats;
		b->span_task[i] = (int32_t)n;
		b->span_part[i] = split ? used : whole;
		j->by_head &= !split || i >= j->n_tall;
		used += split ? room : 0;
		n += (int64_t)s.n_lanes * (split ? chunks : 1);
	}
	assert(n <= INT32_MAX);
	b->span_task[j->n_spans] = (int32_t)n;
	j->n_tasks = (int)n;
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

static void attention(struct kern_stream *s, const struct kern_attn_args *a, bool pieces)
{
	struct attn_job j = {.dev = s->dev, .a = a, .kv_cuts = 1, .pieces = pieces};
	assert(a->head_dim == a->kv->dim && a->n_kv_heads == a->kv->n_kv_heads &&
	       a->n_q_heads % a->n_kv_heads == 0);
	assert(a->layer >= 0 && a->layer < a->kv->n_layers && a->kv->block_size == s->dev->block_size);
	if (!s->dev->batch.n_rows)
		return;
	plan_spans(&j);
	plan_tasks(&j);
	for (int t = 0; t < s->dev->n_threads; t++)
		work_of(a->kv, t).held[0] = -1;
	const int64_t work = work_of_batch(&j);
	cpu_run(s->dev, j.n_tasks, work, attn_task, &j);
	for (int i = 0; i < j.n_spans; i++)
		if (s->dev->batch.span_part[i] != whole) {
			cpu_run(s->dev, j.n_spans * a->n_kv_heads, work / CHUNK, fold_task, &j);
			break;
		}
}

int cpu_attention(struct kern_stream *s, const struct kern_attn_args *a)
{
	struct kern_dev *d = s->dev;
	struct kern_attn_args floats = *a;
	const int width = a->n_q_heads * a->head_dim;
	if (!cpu_has_operands(d)) {
		attention(s, a, false);
	} else if (a->head_dim % ACT_GROUP == 0) {
		attention(s, a, true);
		cpu_quantize_end(d, a->out, d->batch.n_rows, width);
	} else {
		assert((size_t)d->batch.n_rows * (size_t)width * sizeof(float) <= d->wide_bytes);
		floats.out = d->wide;
		attention(s, &floats, false);
		cpu_quantize(d, a->out, d->wide, d->batch.n_rows, width);
	}
	return 0;
}
