/* batch.cu - a step's input on its way to the device: moves by a kernel, rings, the batch.
 *
 * One mapped buffer, and one small kernel that spreads it over arrays at static addresses.  A padded batch
 * ends with null rows, each a sequence of its own at position 0 of the null block. The buffer, in 32-bit
 * words: token_at [T], row_seq [T], row_pos [T], logits_row [L], where each sequence's table begins and the
 * last one ends [S+1], tables one after another. */
#include "kernels/cuda/cuda.cuh"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct cuda_stage {
	struct cuda_ring ring;
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

/* Waits only for what is not done yet: the query costs a fraction of a wait. */
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

int cuda_batch_init(struct kern_dev *d)
{
	const struct kern_open_args *a = &d->args;
	struct cuda_batch *b = &d->batch;
	const size_t rows = (size_t)a->max_rows, seqs = (size_t)a->max_seqs, logits = (size_t)a->max_logits;
	const size_t blocks = (size_t)a->max_blocks_per_seq;
	d->stage = (struct cuda_stage *)xcalloc(1, sizeof *d->stage);
	b->row0 = (int32_t *)xcalloc(seqs + 1, sizeof *b->row0);
	b->pos0 = (int32_t *)xcalloc(seqs, sizeof *b->pos0);
	b->table_stride = a->max_blocks_per_seq;
	b->token_at = (int32_t *)cuda_mem_new(d, rows * 4);
	b->row_seq = (int32_t *)cuda_mem_new(d, rows * 4);
	b->row_pos = (int32_t *)cuda_mem_new(d, rows * 4);
	b->logits_row = (int32_t *)cuda_mem_new(d, logits * 4);
	b->tables = (int32_t *)cuda_mem_new(d, seqs * blocks * 4);
	if (!b->token_at || !b->row_seq || !b->row_pos || !b->logits_row || !b->tables)
		return -ENOMEM;
	return cuda_ring_init(d, &d->stage->ring, (3 * rows + logits + seqs + 1 + seqs * blocks) * 4, false);
}

void cuda_batch_fini(struct kern_dev *d)
{
	struct cuda_batch *b = &d->batch;
	const struct kern_open_args *a = &d->args;
	if (!d->stage)
		return;
	cuda_ring_fini(d, &d->stage->ring);
	cuda_mem_free(d, b->tables, (size_t)a->max_seqs * (size_t)a->max_blocks_per_seq * 4);
	cuda_mem_free(d, b->logits_row, (size_t)a->max_logits * 4);
	cuda_mem_free(d, b->row_pos, (size_t)a->max_rows * 4);
	cuda_mem_free(d, b->row_seq, (size_t)a->max_rows * 4);
	cuda_mem_free(d, b->token_at, (size_t)a->max_rows * 4);
	free(b->pos0);
	free(b->row0);
	free(d->stage);
}

struct spread_args {
	const int32_t *in;
	int n_rows, n_seqs, n_logits, stride;
	int32_t *token_at, *row_seq, *row_pos, *logits_row, *tables;
};

/* Block y 0: what is per row; block y s+1: the table of sequence s. */
static __global__ void batch_spread_kernel(struct spread_args a)
{
	const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)blockIdx.y;
	const int32_t *begin = a.in + 3 * a.n_rows + a.n_logits, *packed = begin + a.n_seqs + 1;
	if (y > 0) {
		const int from = begin[y - 1], n = begin[y] - from;
		if (i < n)
			a.tables[(size_t)(y - 1) * (size_t)a.stride + (size_t)i] = packed[from + i];
		return;
	}
	if (i < a.n_rows) {
		a.token_at[i] = a.in[i];
		a.row_seq[i] = a.in[a.n_rows + i];
		a.row_pos[i] = a.in[2 * a.n_rows + i];
	}
	if (i < a.n_logits)
		a.logits_row[i] = a.in[3 * a.n_rows + i];
}

/* Writes sequence q's rows (their positions `stride` behind them) and table; returns the end of its
 * table. */
static int32_t put_seq(struct kern_dev *d, const struct kern_batch *in, int q, int32_t *rows, int stride,
		       int32_t *tables, int32_t at)
{
	struct cuda_batch *b = &d->batch;
	const int first = in->row0[q], end = in->row0[q + 1], last = in->pos0[q] + end - first;
	assert(first <= end && end <= in->n_rows && in->pos0[q] >= 0 && last <= d->args.max_context);
	assert(!in->pad_to || end == first + 1);
	b->row0[q + 1] = end;
	b->pos0[q] = in->pos0[q];
	for (int r = first; r < end; r++) {
		rows[r] = q;
		rows[stride + r] = in->pos0[q] + r - first;
	}
	const int blocks = d->block_size ? (last + d->block_size - 1) / d->block_size : 0;
	if (first == end || !blocks)
		return at;
	assert(blocks <= in->table_stride && blocks <= b->table_stride);
	const int32_t *t = in->tables + (size_t)q * (size_t)in->table_stride;
	for (int i = 0; i < blocks; i++) {
		assert(t[i] >= 0 && t[i] < d->n_blocks);
		tables[at + i] = t[i];
	}
	return at + blocks;
}

/* The same of null row q. */
static int32_t put_null(struct kern_dev *d, int q, int32_t *rows, int stride, int32_t *tables, int32_t at)
{
	struct cuda_batch *b = &d->batch;
	rows[q] = q;
	rows[stride + q] = b->pos0[q] = 0;
	b->row0[q + 1] = q + 1;
	if (d->n_blocks)
		tables[at++] = d->n_blocks;
	return at;
}

int cuda_batch_set(struct kern_stream *s, const struct kern_batch *in)
{
	struct kern_dev *d = s->dev;
	struct cuda_batch *b = &d->batch;
	const int pad = in->pad_to, rows = max(in->n_rows, pad), seqs = max(in->n_seqs, pad),
		  logits = max(in->n_logits, pad);
	assert(in->n_rows >= 0 && rows <= d->args.max_rows && in->n_seqs >= 0 && seqs <= d->args.max_seqs);
	assert(in->n_logits >= 0 && logits <= d->args.max_logits && (!in->n_seqs || in->row0[0] == 0));
	assert(!pad || (in->n_rows == in->n_seqs && rows == pad && logits == pad));
	int32_t *w = (int32_t *)(void *)cuda_ring_take(&d->stage->ring);
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
	int32_t *begin = w + 3 * rows + logits, *tables = begin + seqs + 1, at = 0, most = 0;
	b->row0[0] = begin[0] = 0;
	for (int q = 0; q < seqs; q++) {
		at = begin[q + 1] = q < in->n_seqs ? put_seq(d, in, q, w + rows, rows, tables, at)
						   : put_null(d, q, w + rows, rows, tables, at);
		most = at - begin[q] > most ? at - begin[q] : most;
	}
	assert(b->row0[seqs] == rows);
	if (!rows)
		return 0;
	const size_t bytes = (size_t)(tables + at - w) * 4;
	assert(bytes <= d->stage->ring.bytes);
	struct spread_args a = {(const int32_t *)cuda_mapped(d, w, bytes),
				rows,
				seqs,
				logits,
				b->table_stride,
				b->token_at,
				b->row_seq,
				b->row_pos,
				b->logits_row,
				b->tables};
	most = most > rows ? most : rows;
	most = most > logits ? most : logits;
	int e = KERN_LAUNCH(batch_spread_kernel, dim3((unsigned)(most + 255) / 256, (unsigned)seqs + 1), 256,
			    0, s->s, a);
	return e ? e : cuda_ring_sent(&d->stage->ring, s);
}
