/* batch.cu - transfer of a step's input to the device: moves by a kernel, rings, the batch.
 *
 * The batch passes through one mapped buffer; a small kernel spreads it over arrays at static addresses.  A
 * padded batch ends with null rows.  Each null row is a sequence of its own at position 0 of the null block;
 * all share the tables of one sequence.  The buffer, in 32-bit words: token_at [T], row_table [T], row_pos
 * [T], logits_row [L], the entries of all changes, the changes.
 *
 * Block tables stay on the device.  Only the changed range of a table is sent, from the first entry that
 * differs to the last.  Differences are found by comparing with `has`, the host's copy of the device's tables
 * as they will be after all queued work; nothing else writes the device's tables.  If the edition is the one
 * last compared, comparison starts after the entries compared then. */
#include "kernels/cuda/cuda.cuh"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A change of a batch: copy `n` entries of the buffer, from `from` on, to tables[to]. */
struct change {
	int32_t to, from, n;
};

/* One of the device's tables. */
struct table {
	uint64_t edition; /* edition of the first n_compared entries; 0: unknown */
	int n_compared;
	int n_has; /* entries of `has` that the device's table has as well */
};

struct cuda_stage {
	struct cuda_ring ring, picks;
	struct change *changes; /* [(max_seqs + 1) * n_kinds] of the current batch */
	int n_changes;
	int n_tables;         /* tables of sequences, of all kinds; n_kinds tables of null rows follow */
	struct table *tables; /* [n_tables + n_kinds] */
	int32_t *has;         /* [n_tables + n_kinds][table_stride] */
};

/* ---- moves ---- */

enum { MOVE_THREADS = 256, MOVE_BLOCKS = 256 };

static __global__ void move_kernel(uint32_t *to, const uint32_t *from, size_t n)
{
	for (size_t i = blockIdx.x * MOVE_THREADS + threadIdx.x; i < n; i += gridDim.x * MOVE_THREADS)
		to[i] = from[i];
}

int cuda_move(struct kern_stream *s, void *to, const void *from, size_t bytes)
{
	const size_t n = bytes / 4, blocks = (n + MOVE_THREADS - 1) / MOVE_THREADS;
	if (!n)
		return 0;
	return KERN_LAUNCH(move_kernel, (unsigned)min(blocks, (size_t)MOVE_BLOCKS), MOVE_THREADS, 0, s->s,
			   (uint32_t *)to, (const uint32_t *)from, n);
}

/* ---- rings ---- */

int cuda_ring_init(struct kern_dev *d, struct cuda_ring *r, size_t bytes, bool copied)
{
	r->bytes = bytes;
	for (int i = 0; i < CUDA_RING; i++) {
		r->host[i] = (unsigned char *)cuda_host_new(d, bytes);
		if (!r->host[i] ||
		    cuda_check(cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming), "event"))
			return -ENOMEM;
	}
	if (copied)
		r->dev = (unsigned char *)cuda_mem_new(d, bytes);
	return copied && !r->dev ? -ENOMEM : 0;
}

void cuda_ring_fini(struct kern_dev *d, struct cuda_ring *r)
{
	for (int i = 0; i < CUDA_RING; i++) {
		if (r->done[i])
			cuda_check(cudaEventDestroy(r->done[i]), "end of an event");
		cuda_host_free(d, r->host[i], r->bytes);
	}
	cuda_mem_free(d, r->dev, r->bytes);
	memset(r, 0, sizeof *r);
}

/* Wait for an event.  A query comes first: it costs a fraction of a wait. */
static int wait_for(cudaEvent_t e)
{
	cudaError_t r = cudaEventQuery(e);
	if (r == cudaErrorNotReady) {
		cudaGetLastError();
		r = cudaEventSynchronize(e);
	}
	return cuda_check(r, "wait for a buffer");
}

unsigned char *cuda_ring_take(struct cuda_ring *r)
{
	const int i = r->next;
	if (r->used[i] && wait_for(r->done[i]))
		return NULL;
	r->used[i] = false;
	return r->host[i];
}

int cuda_ring_sent(struct cuda_ring *r, struct kern_stream *s)
{
	const int i = r->next;
	int e = cuda_check(cudaEventRecord(r->done[i], s->s), "event record");
	r->used[i] = !e;
	r->next = (i + 1) % CUDA_RING;
	return e;
}

int cuda_ring_send(struct cuda_ring *r, struct kern_stream *s, size_t bytes)
{
	assert(bytes <= r->bytes);
	int e = cuda_move(s, r->dev, cuda_mapped(s->dev, r->host[r->next], bytes), bytes);
	return e ? e : cuda_ring_sent(r, s);
}

/* ---- the batch ---- */

static size_t tables_bytes(const struct kern_dev *d)
{
	return (size_t)(d->stage->n_tables + d->args.n_kinds) * (size_t)d->args.max_blocks_per_seq *
	       sizeof(int32_t);
}

int cuda_batch_init(struct kern_dev *d)
{
	const struct kern_open_args *a = &d->args;
	struct cuda_batch *b = &d->batch;
	const size_t rows = (size_t)a->max_rows, seqs = (size_t)a->max_seqs, logits = (size_t)a->max_logits;
	const size_t kinds = (size_t)a->n_kinds, blocks = kinds * (size_t)a->max_blocks_per_seq;
	struct cuda_stage *g = d->stage = (struct cuda_stage *)xcalloc(1, sizeof *d->stage);
	g->n_tables = (a->max_tables ? a->max_tables : a->max_seqs) * a->n_kinds;
	g->changes = (struct change *)xcalloc((seqs + 1) * kinds, sizeof *g->changes);
	g->tables = (struct table *)xcalloc((size_t)g->n_tables + kinds, sizeof *g->tables);
	g->has = (int32_t *)alloc_big(tables_bytes(d));
	b->row0 = (int32_t *)xcalloc(seqs + 1, sizeof *b->row0);
	b->pos0 = (int32_t *)xcalloc(seqs, sizeof *b->pos0);
	b->table_at = (int32_t *)xcalloc(seqs, sizeof *b->table_at);
	b->table_stride = a->max_blocks_per_seq;
	b->token_at = (int32_t *)cuda_mem_new(d, rows * 4);
	b->row_table = (int32_t *)cuda_mem_new(d, rows * 4);
	b->row_pos = (int32_t *)cuda_mem_new(d, rows * 4);
	b->logits_row = (int32_t *)cuda_mem_new(d, logits * 4);
	b->tables = (int32_t *)cuda_mem_new(d, tables_bytes(d));
	if (!g->has || !b->token_at || !b->row_table || !b->row_pos || !b->logits_row || !b->tables)
		return -ENOMEM;
	if (cuda_ring_init(d, &g->picks, KERN_PICK_MAX * 2 * sizeof(uint32_t), false))
		return -ENOMEM;
	return cuda_ring_init(d, &g->ring,
			      (3 * rows + logits + seqs * blocks + kinds) * 4 +
				      (seqs + 1) * kinds * sizeof *g->changes,
			      false);
}

void cuda_batch_fini(struct kern_dev *d)
{
	struct cuda_batch *b = &d->batch;
	const struct kern_open_args *a = &d->args;
	struct cuda_stage *g = d->stage;
	if (!g)
		return;
	cuda_ring_fini(d, &g->ring);
	cuda_ring_fini(d, &g->picks);
	cuda_mem_free(d, b->tables, tables_bytes(d));
	cuda_mem_free(d, b->logits_row, (size_t)a->max_logits * 4);
	cuda_mem_free(d, b->row_pos, (size_t)a->max_rows * 4);
	cuda_mem_free(d, b->row_table, (size_t)a->max_rows * 4);
	cuda_mem_free(d, b->token_at, (size_t)a->max_rows * 4);
	free(b->table_at);
	free(b->pos0);
	free(b->row0);
	alloc_big_free(g->has, tables_bytes(d));
	free(g->tables);
	free(g->changes);
	free(g);
}

struct spread_args {
	const int32_t *in;
	int n_rows, n_logits;
	int changes; /* index of the changes in the buffer */
	int32_t *token_at, *row_table, *row_pos, *logits_row, *tables;
};

/* Grid y = 0: the data per row; y = c + 1: change c. */
static __global__ void batch_spread_kernel(struct spread_args a)
{
	const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)blockIdx.y;
	if (y > 0) {
		const struct change *c = (const struct change *)(const void *)(a.in + a.changes) + (y - 1);
		if (i < c->n)
			a.tables[c->to + i] = a.in[c->from + i];
		return;
	}
	if (i < a.n_rows) {
		a.token_at[i] = a.in[i];
		a.row_table[i] = a.in[a.n_rows + i];
		a.row_pos[i] = a.in[2 * a.n_rows + i];
	}
	if (i < a.n_logits)
		a.logits_row[i] = a.in[3 * a.n_rows + i];
}

/* Make the first n entries of table t equal to `want`: add the changed entries to the buffer at in[at].
 * Returns the buffer's new end. */
static int32_t put_table(struct kern_dev *d, int t, const int32_t *want, int n, uint64_t edition, int32_t *in,
			 int32_t at)
{
	struct cuda_stage *g = d->stage;
	struct table *x = &g->tables[t];
	const bool same = edition && edition == x->edition;
	const int known = min(n, x->n_has), to = t * d->batch.table_stride;
	int32_t *has = g->has + to;
	int from = same ? min(n, x->n_compared) : 0, end = n;
	while (from < known && has[from] == want[from])
		from++;
	while (end > from && end <= known && has[end - 1] == want[end - 1])
		end--;
	x->edition = edition;
	x->n_compared = same ? max(n, x->n_compared) : n;
	x->n_has = max(n, x->n_has);
	if (from == end)
		return at;
	g->changes[g->n_changes++] = {to + from, at, end - from};
	for (int i = from; i < end; i++) {
		assert(want[i] >= 0 && (want[i] < d->n_blocks || t >= g->n_tables));
		in[at++] = has[i] = want[i];
	}
	return at;
}

/* Write the rows of sequence q (positions `stride` words after the tables) and the changes of its tables.
 * Returns the buffer's new end. */
static int32_t put_seq(struct kern_dev *d, const struct kern_batch *in, int q, int32_t *rows, int stride,
		       int32_t *buffer, int32_t at)
{
	struct cuda_batch *b = &d->batch;
	const int first = in->row0[q], end = in->row0[q + 1], last = in->pos0[q] + end - first;
	const int own = in->table_at ? in->table_at[q] : q, t = own * d->args.n_kinds;
	assert(first <= end && end <= in->n_rows && in->pos0[q] >= 0 && last <= d->args.max_context);
	assert((!in->pad_to || end == first + 1) && t >= 0 && t < d->stage->n_tables);
	b->row0[q + 1] = end;
	b->pos0[q] = in->pos0[q];
	b->table_at[q] = t;
	for (int r = first; r < end; r++) {
		rows[r] = t;
		rows[stride + r] = in->pos0[q] + r - first;
	}
	const int blocks = d->block_size ? (last + d->block_size - 1) / d->block_size : 0;
	if (first == end || !blocks)
		return at;
	assert(blocks <= in->table_stride && blocks <= b->table_stride);
	for (int k = 0; k < d->args.n_kinds; k++)
		at = put_table(d, t + k, kern_batch_table(in, q, d->args.n_kinds, k), blocks,
			       in->editions ? in->editions[own] : 0, buffer, at);
	return at;
}

/* Write null row q, as put_seq() does. */
static int32_t put_null(struct kern_dev *d, int q, int32_t *rows, int stride, int32_t *buffer, int32_t at)
{
	struct cuda_batch *b = &d->batch;
	const int32_t null_block = d->n_blocks;
	rows[q] = b->table_at[q] = d->stage->n_tables;
	rows[stride + q] = b->pos0[q] = 0;
	b->row0[q + 1] = q + 1;
	for (int k = 0; d->n_blocks && k < d->args.n_kinds; k++)
		at = put_table(d, d->stage->n_tables + k, &null_block, 1, 0, buffer, at);
	return at;
}

int cuda_batch_set(struct kern_stream *s, const struct kern_batch *in)
{
	struct kern_dev *d = s->dev;
	struct cuda_batch *b = &d->batch;
	struct cuda_stage *g = d->stage;
	const int pad = in->pad_to, rows = max(in->n_rows, pad), seqs = max(in->n_seqs, pad),
		  logits = max(in->n_logits, pad);
	assert(in->n_rows >= 0 && rows <= d->args.max_rows && in->n_seqs >= 0 && seqs <= d->args.max_seqs);
	assert(in->n_logits >= 0 && logits <= d->args.max_logits && (!in->n_seqs || in->row0[0] == 0));
	assert(!pad || (in->n_rows == in->n_seqs && rows == pad && logits == pad));
	int32_t *w = (int32_t *)(void *)cuda_ring_take(&g->ring), at = 3 * rows + logits;
	if (!w)
		return -EIO;
	b->n_rows = rows;
	b->n_seqs = seqs;
	b->n_logits = logits;
	b->pad_to = pad;
	b->serial++;
	for (int i = 0; i < rows; i++)
		w[i] = i < in->n_rows ? in->token_at[i] : -1;
	for (int i = 0; i < logits; i++) {
		assert(i >= in->n_logits || (in->logits_row[i] >= 0 && in->logits_row[i] < in->n_rows));
		w[3 * rows + i] = i < in->n_logits ? in->logits_row[i] : i;
	}
	b->row0[0] = g->n_changes = 0;
	for (int q = 0; q < seqs; q++)
		at = q < in->n_seqs ? put_seq(d, in, q, w + rows, rows, w, at)
				    : put_null(d, q, w + rows, rows, w, at);
	assert(b->row0[seqs] == rows);
	if (!rows)
		return 0;
	int most = max(rows, logits);
	for (int i = 0; i < g->n_changes; i++)
		most = max(most, (int)g->changes[i].n);
	memcpy(w + at, g->changes, (size_t)g->n_changes * sizeof *g->changes);
	const size_t bytes = (size_t)at * 4 + (size_t)g->n_changes * sizeof *g->changes;
	assert(bytes <= g->ring.bytes);
	struct spread_args a = {(const int32_t *)cuda_mapped(d, w, bytes),
				rows,
				logits,
				at,
				b->token_at,
				b->row_table,
				b->row_pos,
				b->logits_row,
				b->tables};
	int e = KERN_LAUNCH(batch_spread_kernel,
			    dim3((unsigned)(most + 255) / 256, (unsigned)g->n_changes + 1), 256, 0, s->s, a);
	if (!e)
		e = cuda_ring_sent(&g->ring, s);
	if (e) /* the device's tables are unknown now */
		memset(g->tables, 0, (size_t)(g->n_tables + d->args.n_kinds) * sizeof *g->tables);
	return e;
}

/* ---- picks ---- */

static __global__ void pick_kernel(float *out, const float *x, const uint32_t *pairs, int n)
{
	const int i = (int)(blockIdx.x * MOVE_THREADS + threadIdx.x);
	if (i < n)
		out[pairs[2 * i + 1]] = x[pairs[2 * i]];
}

int cuda_pick(struct kern_stream *s, float *out, const float *x, const uint32_t (*pairs)[2], int n)
{
	struct kern_dev *d = s->dev;
	uint32_t *w = n ? (uint32_t *)(void *)cuda_ring_take(&d->stage->picks) : NULL, end = 0;
	assert(n >= 0 && n <= KERN_PICK_MAX);
	if (!w)
		return n ? -EIO : 0;
	for (int i = 0; i < n; i++) {
		w[2 * i] = pairs[i][0];
		w[2 * i + 1] = pairs[i][1];
		end = max(end, pairs[i][1] + 1);
	}
	float *to = (float *)cuda_mapped(d, out, (size_t)end * sizeof *out);
	assert(to);
	int e = KERN_LAUNCH(pick_kernel, (unsigned)(n + MOVE_THREADS - 1) / MOVE_THREADS, MOVE_THREADS, 0,
			    s->s, to, x, (const uint32_t *)cuda_mapped(d, w, (size_t)n * 2 * sizeof *w), n);
	return e ? e : cuda_ring_sent(&d->stage->picks, s);
}
